/* The benchmark loop of SDR-RDMA 5.4.1 over the SDR API.
 *
 * The server posts receives, says so, then polls the immediate and the bitmap of
 * the oldest one. When all chunks are here it completes the receive, posts it
 * again and acknowledges the message out of band. The client keeps a number of
 * sends in flight, polls them in order and waits for each acknowledgement.
 * Nothing is repaired: on a path without loss, nothing must be missing.
 *
 *     perf server
 *     perf client HOST --messages 1000 --check
 */

#define _POSIX_C_SOURCE 200809L

#include <time.h>

#include "queue_pair.h"

/* What both ends must have in common; the client tells the server. */
struct settings {
    unsigned long long size, chunk, mtu, channels, in_flight, messages, check, immediates;
};

static const char *device = "udp";
static int polls_memory = 0;
/* Messages before the clock starts, as `lacuna perf` has them by default: the
 * path's rate and windows are found meanwhile. */
static unsigned long long warmup = 16;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint32_t immediate_of(uint64_t message)
{
    return (uint32_t)(message * 2654435761u + 1);
}

static unsigned char byte_of(uint64_t message, uint64_t at)
{
    return (unsigned char)(message * 31 + at * 7 + (at >> 8) * 13 + (at >> 16));
}

static struct sdr_qp *connect_to_peer(struct sdr_context *context, const struct settings *settings,
                                      int oob, int sends)
{
    struct sdr_qp_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.bitmap_chunk_size_log_bytes = log_of(settings->chunk);
    attr.max_in_flight_log_bytes = log_of(settings->size * settings->in_flight);
    attr.max_log_num_msgs = log_of(settings->in_flight);
    attr.mtu = mtu_of(settings->mtu);
    attr.send_enable = (uint8_t)sends;
    attr.recv_enable = (uint8_t)!sends;
    return make_queue_pair(context, &attr, oob);
}

/* Whether all chunks are here. The bitmap changes while it is read. */
static int is_complete(const uint8_t *bitmap, uint64_t chunks)
{
    const volatile uint8_t *bytes = bitmap;
    uint64_t i;
    for (i = 0; i < chunks / 8; i++)
        if (bytes[i] != 0xff)
            return 0;
    return chunks % 8 == 0 || bytes[i] == (1u << (chunks % 8)) - 1;
}

static void post_receive(struct sdr_qp *qp, struct memory *memory, const struct settings *settings,
                         uint64_t slot, struct sdr_recv_handle **handle)
{
    struct sdr_recv_wr wr;
    int result;
    memset(&wr, 0, sizeof(wr));
    wr.max_length = (uint32_t)settings->size;
    wr.lkey = memory->lkey;
    wr.address = (uint64_t)(uintptr_t)(memory->start + slot * settings->size);
    while ((result = sdr_recv_post(qp, &wr, handle)) == SDR_RETRY)
        ;
    if (result)
        fail_call("sdr_recv_post");
}

static void wait_for_message(struct sdr_recv_handle *handle, const struct settings *settings,
                             uint64_t message)
{
    uint64_t chunks = (settings->size + settings->chunk - 1) / settings->chunk;
    uint8_t *bitmap = NULL;
    size_t bytes = 0;
    uint32_t immediate = 0;
    int result = SDR_SUCCESS;
    if (settings->immediates) {
        while ((result = sdr_recv_imm_get(handle, &immediate)) == SDR_RETRY)
            ;
        if (result)
            fail_call("sdr_recv_imm_get");
        if (immediate != immediate_of(message))
            fail("message %llu has immediate %x", (unsigned long long)message, immediate);
    }
    do {
        if ((!bitmap || !polls_memory) && sdr_recv_bitmap_get(handle, &bitmap, &bytes))
            fail_call("sdr_recv_bitmap_get");
        if (bytes != (chunks + 7) / 8)
            fail("%zu bytes of bitmap for %llu chunks", bytes, (unsigned long long)chunks);
    } while (!is_complete(bitmap, chunks));
}

static void serve(int oob)
{
    struct settings settings;
    struct sdr_context *context;
    struct sdr_qp *qp;
    struct sdr_recv_handle **handles;
    struct memory memory;
    uint64_t posted, done, at;
    char ready = 'r';

    oob_receive(oob, &settings, sizeof(settings));
    context = make_context(device, (uint32_t)settings.channels);
    qp = connect_to_peer(context, &settings, oob, 0);
    memory = make_memory(context, (size_t)(settings.size * settings.in_flight));
    /* Touched now, so that what is measured is not the system finding pages. */
    memset(memory.start, 1, (size_t)(settings.size * settings.in_flight));
    handles = (struct sdr_recv_handle **)calloc((size_t)settings.in_flight, sizeof(*handles));
    if (!handles)
        fail("no memory");
    for (posted = 0; posted < settings.in_flight && posted < settings.messages; posted++)
        post_receive(qp, &memory, &settings, posted, &handles[posted]);
    oob_send(oob, &ready, 1);

    for (done = 0; done < settings.messages; done++) {
        uint64_t slot = done % settings.in_flight;
        const unsigned char *bytes = memory.start + slot * settings.size;
        uint32_t acknowledged = (uint32_t)done;
        wait_for_message(handles[slot], &settings, done);
        if (sdr_recv_complete(handles[slot]))
            fail_call("sdr_recv_complete");
        for (at = 0; settings.check && at < settings.size; at++)
            if (bytes[at] != byte_of(done, at))
                fail("message %llu is wrong at byte %llu", (unsigned long long)done,
                     (unsigned long long)at);
        if (posted < settings.messages) {
            post_receive(qp, &memory, &settings, slot, &handles[slot]);
            posted++;
        }
        oob_send(oob, &acknowledged, sizeof(acknowledged));
    }
    printf("received %llu messages%s\n", settings.messages,
           settings.check ? ", every byte checked" : "");
    /* The client is done with its queue pair before ours goes. */
    oob_receive(oob, &ready, 1);
    end_all(context, qp, &memory);
    free(handles);
}

static void post_send(struct sdr_qp *qp, struct memory *memory, const struct settings *settings,
                      uint64_t message, struct sdr_send_handle **handle)
{
    uint64_t slot = message % settings->in_flight, at;
    unsigned char *bytes = memory->start + slot * settings->size;
    struct sdr_send_wr wr;
    int result;
    for (at = 0; settings->check && at < settings->size; at++)
        bytes[at] = byte_of(message, at);
    memset(&wr, 0, sizeof(wr));
    wr.opcode = settings->immediates ? SDR_WR_WRITE_WITH_IMM : SDR_WR_WRITE;
    wr.imm_value = immediate_of(message);
    wr.length = (uint32_t)settings->size;
    wr.lkey = memory->lkey;
    wr.local_addr = (uint64_t)(uintptr_t)bytes;
    while ((result = sdr_send_post(qp, &wr, handle)) == SDR_RETRY)
        ;
    if (result)
        fail_call("sdr_send_post");
}

static void send_all(int oob, const struct settings *settings)
{
    struct sdr_context *context = make_context(device, (uint32_t)settings->channels);
    struct sdr_qp *qp;
    struct memory memory;
    struct sdr_send_handle **handles;
    uint64_t posted, done;
    /* In a run so short that everything is posted before the clock would start, or
     * where posting is mostly the filling of buffers, all of it is measured. */
    uint64_t before = settings->check || settings->messages <= settings->in_flight + warmup
                          ? 0
                          : warmup;
    uint64_t measured = settings->messages - before;
    double began_s, took_s;
    char ready = 0;

    oob_send(oob, settings, sizeof(*settings));
    qp = connect_to_peer(context, settings, oob, 1);
    memory = make_memory(context, (size_t)(settings->size * settings->in_flight));
    memset(memory.start, 1, (size_t)(settings->size * settings->in_flight));
    handles = (struct sdr_send_handle **)calloc((size_t)settings->in_flight, sizeof(*handles));
    if (!handles)
        fail("no memory");
    oob_receive(oob, &ready, 1);

    began_s = now_s();
    for (posted = 0; posted < settings->in_flight && posted < settings->messages; posted++)
        post_send(qp, &memory, settings, posted, &handles[posted]);
    for (done = 0; done < settings->messages; done++) {
        uint64_t slot = done % settings->in_flight;
        uint32_t acknowledged = 0;
        int completed = 0, result;
        do {
            result = sdr_send_poll(handles[slot], &completed, NULL);
            if (result == SDR_ERROR)
                fail_call("sdr_send_poll");
        } while (!completed);
        oob_receive(oob, &acknowledged, sizeof(acknowledged));
        if (acknowledged != (uint32_t)done)
            fail("message %u acknowledged, not %llu", acknowledged, (unsigned long long)done);
        if (done + 1 == before)
            began_s = now_s();
        if (posted < settings->messages) {
            post_send(qp, &memory, settings, posted, &handles[slot]);
            posted++;
        }
    }
    took_s = now_s() - began_s;
    printf("%llu messages of %llu bytes in %.3f s: %.3f Gbit/s\n", (unsigned long long)measured,
           settings->size, took_s, (double)measured * (double)settings->size * 8 / took_s / 1e9);
    end_all(context, qp, &memory);
    oob_send(oob, &ready, 1);
    free(handles);
}

static void usage(void)
{
    fail("usage: perf server [--port N] [--device NAME] [--memory]\n"
         "       perf client HOST [--port N] [--device NAME] [--size BYTES] [--chunk BYTES]\n"
         "            [--mtu BYTES] [--channels N] [--in-flight N] [--messages N] [--check]\n"
         "            [--warmup N] [--no-immediates]\n"
         "--memory looks at the bitmap's memory only, without a call for each look.");
}

int main(int argc, char **argv)
{
    struct settings settings = {8u << 20, 64u << 10, 4096, 8, 128, 1000, 0, 1};
    const char *port = "7410";
    int is_client = argc > 2 && strcmp(argv[1], "client") == 0;
    int i = is_client ? 3 : 2, oob;
    if (!is_client && (argc < 2 || strcmp(argv[1], "server") != 0))
        usage();
    for (; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        unsigned long long *into = NULL;
        if (strcmp(argv[i], "--check") == 0) {
            settings.check = 1;
            continue;
        } else if (strcmp(argv[i], "--no-immediates") == 0) {
            settings.immediates = 0;
            continue;
        } else if (strcmp(argv[i], "--memory") == 0) {
            polls_memory = 1;
            continue;
        } else if (strcmp(argv[i], "--port") == 0)
            port = value;
        else if (strcmp(argv[i], "--device") == 0)
            device = value;
        else if (strcmp(argv[i], "--warmup") == 0)
            warmup = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--size") == 0)
            into = &settings.size;
        else if (strcmp(argv[i], "--chunk") == 0)
            into = &settings.chunk;
        else if (strcmp(argv[i], "--mtu") == 0)
            into = &settings.mtu;
        else if (strcmp(argv[i], "--channels") == 0)
            into = &settings.channels;
        else if (strcmp(argv[i], "--in-flight") == 0)
            into = &settings.in_flight;
        else if (strcmp(argv[i], "--messages") == 0)
            into = &settings.messages;
        else
            usage();
        if (into && (*into = strtoull(value, NULL, 10)) == 0)
            usage();
        i++;
    }
    oob = is_client ? oob_connect(argv[2], port) : oob_accept((uint16_t)atoi(port));
    if (is_client)
        send_all(oob, &settings);
    else
        serve(oob);
    close(oob);
    return 0;
}
