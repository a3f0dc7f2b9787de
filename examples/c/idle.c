/* What a call costs when there is nothing to do: a program that polls many queue
 * pairs makes mostly such calls. Both ends are in this process, connected over
 * loopback, with a receive posted that nothing comes into and a streaming send
 * that nothing is put into.
 *
 *     idle [--device NAME] [--channels N] [--calls N] [--max-ns N]
 *
 * Prints nanoseconds per call, the median of seven rounds: by the clock, and of
 * the calling thread's processor time, which a busy machine does not lengthen.
 * With --max-ns it fails if a call takes more of the latter.
 */

#define _POSIX_C_SOURCE 200809L

#include <time.h>

#include "queue_pair.h"

enum { ROUNDS = 7, MESSAGE = 1 << 20, CHUNK_LOG = 16 };

struct end {
    struct sdr_context *context;
    struct sdr_qp *qp;
    struct memory memory;
};

static struct end sending, receiving;
static struct sdr_recv_handle *receive;
static struct sdr_send_handle *stream;

static struct end make_end(const char *device, uint32_t channels)
{
    struct end end;
    struct sdr_qp_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.bitmap_chunk_size_log_bytes = CHUNK_LOG;
    attr.max_in_flight_log_bytes = 24;
    attr.max_log_num_msgs = 4;
    attr.mtu = SDR_MTU_4096;
    attr.send_enable = attr.recv_enable = 1;
    end.context = make_context(device, channels);
    end.qp = sdr_qp_create(end.context, &attr);
    if (!end.qp)
        fail_call("sdr_qp_create");
    end.memory = make_memory(end.context, MESSAGE);
    return end;
}

static void connect_to(struct end *end, struct end *peer)
{
    size_t size = 0;
    void *info;
    if (sdr_qp_info_size_get(peer->qp, &size) || !(info = malloc(size)))
        fail_call("sdr_qp_info_size_get");
    if (sdr_qp_info_get(peer->qp, info) || sdr_qp_connect(end->qp, info))
        fail_call("sdr_qp_connect");
    free(info);
}

static int post_receive(struct sdr_recv_handle **handle)
{
    struct sdr_recv_wr wr;
    memset(&wr, 0, sizeof(wr));
    wr.max_length = MESSAGE;
    wr.lkey = receiving.memory.lkey;
    wr.address = (uint64_t)(uintptr_t)receiving.memory.start;
    return sdr_recv_post(receiving.qp, &wr, handle);
}

static int start_stream(struct sdr_qp *qp, struct sdr_send_handle **handle)
{
    struct sdr_send_start_wr wr = {SDR_WR_WRITE, 0};
    return sdr_streaming_send_start(qp, &wr, handle);
}

/* ---- the calls: each gives what it gives when there is nothing to do ---- */

static int imm_get(void)
{
    uint32_t immediate;
    return sdr_recv_imm_get(receive, &immediate) == SDR_RETRY;
}

static int bitmap_get(void)
{
    uint8_t *bitmap;
    size_t bytes;
    return sdr_recv_bitmap_get(receive, &bitmap, &bytes) == SDR_SUCCESS && !bitmap[0];
}

static int chunk_expand(void)
{
    uint64_t packets;
    return sdr_recv_bitmap_chunk_expand(receive, 0, &packets) == SDR_SUCCESS && !packets;
}

static int send_poll(void)
{
    int completed;
    return sdr_send_poll(stream, &completed, NULL) == SDR_RETRY;
}

/* The receiving end has posted nothing in the other direction's queue pair. */
static int send_post(void)
{
    struct sdr_send_handle *handle;
    struct sdr_send_wr wr;
    memset(&wr, 0, sizeof(wr));
    wr.length = MESSAGE;
    wr.lkey = receiving.memory.lkey;
    wr.local_addr = (uint64_t)(uintptr_t)receiving.memory.start;
    return sdr_send_post(receiving.qp, &wr, &handle) == SDR_RETRY;
}

static int send_start(void)
{
    struct sdr_send_handle *handle;
    return start_stream(receiving.qp, &handle) == SDR_RETRY;
}

static int recv_post(void)
{
    struct sdr_recv_handle *handle;
    return post_receive(&handle) == SDR_RETRY;
}

static const struct {
    const char *name;
    int (*call)(void);
} calls[] = {
    {"sdr_recv_imm_get", imm_get},
    {"sdr_recv_bitmap_get", bitmap_get},
    {"sdr_recv_bitmap_chunk_expand", chunk_expand},
    {"sdr_send_poll", send_poll},
    {"sdr_send_post", send_post},
    {"sdr_streaming_send_start", send_start},
    {"sdr_recv_post", recv_post},
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static double now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Nanoseconds of one call, by two clocks. */
struct cost {
    double wall_ns, cpu_ns;
};

static struct cost measure(int (*call)(void), const char *name, unsigned long long count)
{
    double wall_ns[ROUNDS], cpu_ns[ROUNDS];
    struct cost cost;
    unsigned long long i;
    int round;
    for (round = 0; round < ROUNDS; round++) {
        double began_ns = now_ns(CLOCK_MONOTONIC), used_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        for (i = 0; i < count; i++)
            if (!call())
                fail("%s: there was something to do", name);
        wall_ns[round] = (now_ns(CLOCK_MONOTONIC) - began_ns) / (double)count;
        cpu_ns[round] = (now_ns(CLOCK_THREAD_CPUTIME_ID) - used_ns) / (double)count;
    }
    qsort(wall_ns, ROUNDS, sizeof(wall_ns[0]), by_size);
    qsort(cpu_ns, ROUNDS, sizeof(cpu_ns[0]), by_size);
    cost.wall_ns = wall_ns[ROUNDS / 2];
    cost.cpu_ns = cpu_ns[ROUNDS / 2];
    return cost;
}

int main(int argc, char **argv)
{
    unsigned long long channels = 8, count = 200000, max_ns = 0;
    const char *device = "udp:127.0.0.1";
    int i, result, is_slow = 0;
    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--device") == 0)
            device = argv[i + 1];
        else if (strcmp(argv[i], "--channels") == 0)
            channels = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--calls") == 0)
            count = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--max-ns") == 0)
            max_ns = strtoull(argv[i + 1], NULL, 10);
        else
            break;
    }
    if (i < argc || count == 0)
        fail("usage: idle [--device NAME] [--channels N] [--calls N] [--max-ns N]");
    sending = make_end(device, (uint32_t)channels);
    receiving = make_end(device, (uint32_t)channels);
    connect_to(&sending, &receiving);
    connect_to(&receiving, &sending);
    /* As many receives as there can be: the first is looked at, one more is refused. */
    if (post_receive(&receive))
        fail_call("sdr_recv_post");
    while ((result = start_stream(sending.qp, &stream)) == SDR_RETRY)
        ;
    if (result)
        fail_call("sdr_streaming_send_start");
    for (;;) {
        struct sdr_recv_handle *more;
        result = post_receive(&more);
        if (result == SDR_RETRY)
            break;
        if (result)
            fail_call("sdr_recv_post");
    }
    for (i = 0; i < (int)CALLS; i++) {
        struct cost cost = measure(calls[i].call, calls[i].name, count);
        printf("%-30s %6.1f ns, of the processor %6.1f ns\n", calls[i].name, cost.wall_ns,
               cost.cpu_ns);
        is_slow |= max_ns > 0 && cost.cpu_ns > (double)max_ns;
    }
    if (sdr_send_poll(stream, &result, NULL) == SDR_ERROR || sdr_streaming_send_end(stream))
        fail_call("sdr_streaming_send_end");
    if (sdr_context_destroy(sending.context) || sdr_context_destroy(receiving.context))
        fail_call("sdr_context_destroy");
    free(sending.memory.start);
    free(receiving.memory.start);
    if (is_slow)
        fail("a call takes longer than %llu ns", max_ns);
    return 0;
}
