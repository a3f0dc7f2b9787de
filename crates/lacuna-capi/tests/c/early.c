/* Receives that are completed early, with packets still coming, and buffers that
 * are used again at once: nothing writes to a buffer after sdr_recv_complete() has
 * returned, whatever the shape of the queue pair.
 *
 *     early DEVICE BYTES CHUNK_LOG MTU_LOG CHANNELS ROUNDS
 */

#include "check.h"

struct end {
    struct sdr_context *context;
    struct sdr_qp *qp;
    unsigned char *memory;
    uint32_t lkey;
};

static size_t bytes, chunk_log, mtu_log, channels, rounds;

static struct end make_end(const char *device)
{
    struct sdr_dev_attr dev = {(uint32_t)channels, 0};
    struct sdr_qp_attr attr;
    struct end end;
    memset(&attr, 0, sizeof(attr));
    attr.bitmap_chunk_size_log_bytes = (uint32_t)chunk_log;
    for (attr.max_in_flight_log_bytes = 0; (size_t)1 << attr.max_in_flight_log_bytes < 2 * bytes;)
        attr.max_in_flight_log_bytes++;
    attr.max_log_num_msgs = 1;
    attr.mtu = (enum sdr_mtu)(mtu_log - 6);
    attr.send_enable = attr.recv_enable = 1;
    /* So that a message is long enough under way to be cut off. */
    attr.rate_limit = 2000;
    end.context = sdr_context_create(device, &dev);
    CHECK(end.context);
    CHECK((end.qp = sdr_qp_create(end.context, &attr)));
    CHECK((end.memory = (unsigned char *)malloc(bytes)));
    struct sdr_mr *mr = sdr_mr_reg(end.context, end.memory, bytes, SDR_ACCESS_REMOTE_WRITE);
    CHECK(mr && sdr_mr_lkey_get(mr, &end.lkey) == SDR_SUCCESS);
    return end;
}

static void connect_to(struct end *end, struct end *peer)
{
    size_t size = 0;
    void *info;
    CHECK(sdr_qp_info_size_get(peer->qp, &size) == SDR_SUCCESS && (info = malloc(size)));
    CHECK(sdr_qp_info_get(peer->qp, info) == SDR_SUCCESS);
    CHECK(sdr_qp_connect(end->qp, info) == SDR_SUCCESS);
    free(info);
}

static struct sdr_recv_handle *post_receive(struct end *end)
{
    struct sdr_recv_handle *handle = NULL;
    struct sdr_recv_wr wr;
    int result;
    wr.max_length = (uint32_t)bytes;
    wr.lkey = end->lkey;
    wr.address = (uint64_t)(uintptr_t)end->memory;
    while ((result = sdr_recv_post(end->qp, &wr, &handle)) == SDR_RETRY)
        ;
    CHECK(result == SDR_SUCCESS);
    return handle;
}

static struct sdr_send_handle *start_send(struct end *end, size_t length)
{
    struct sdr_send_handle *handle = NULL;
    struct sdr_send_wr wr;
    int result;
    memset(&wr, 0, sizeof(wr));
    wr.length = (uint32_t)length;
    wr.lkey = end->lkey;
    wr.local_addr = (uint64_t)(uintptr_t)end->memory;
    while ((result = sdr_send_post(end->qp, &wr, &handle)) == SDR_RETRY)
        ;
    CHECK(result == SDR_SUCCESS);
    return handle;
}

static void finish(struct sdr_send_handle *handle)
{
    int completed = 0, result;
    while ((result = sdr_send_poll(handle, &completed, NULL)) == SDR_RETRY)
        ;
    CHECK(result == SDR_SUCCESS);
}

/* Chunks of the first `count` that are here. */
static size_t here(struct sdr_recv_handle *handle, size_t count)
{
    uint8_t *bitmap = NULL;
    size_t size = 0, chunk, found = 0;
    CHECK(sdr_recv_bitmap_get(handle, &bitmap, &size) == SDR_SUCCESS);
    CHECK(size >= (count + 7) / 8);
    for (chunk = 0; chunk < count; chunk++)
        found += GET(bitmap[chunk / 8]) >> chunk % 8 & 1;
    return found;
}

static void all_are(const unsigned char *from, size_t length, unsigned char value)
{
    size_t at;
    for (at = 0; at < length; at++)
        CHECK(from[at] == value);
}

int main(int argc, char **argv)
{
    struct end a, b;
    size_t round, chunks, cut_off = 0;
    CHECK(argc == 7);
    bytes = strtoul(argv[2], NULL, 10);
    chunk_log = strtoul(argv[3], NULL, 10);
    mtu_log = strtoul(argv[4], NULL, 10);
    channels = strtoul(argv[5], NULL, 10);
    rounds = strtoul(argv[6], NULL, 10);
    chunks = (bytes + ((size_t)1 << chunk_log) - 1) >> chunk_log;
    a = make_end(argv[1]);
    b = make_end(argv[1]);
    connect_to(&a, &b);
    connect_to(&b, &a);
    for (round = 0; round < rounds; round++) {
        unsigned char first = (unsigned char)(2 * round % 200 + 1), second = first + 1;
        size_t wanted = round % 4 * chunks / 4, shorter = bytes - bytes / 3;
        size_t shorter_chunks = (shorter + ((size_t)1 << chunk_log) - 1) >> chunk_log;
        struct sdr_recv_handle *receive = post_receive(&b);
        struct sdr_send_handle *sent;
        memset(a.memory, first, bytes);
        sent = start_send(&a, bytes);
        while (here(receive, chunks) < wanted)
            ;
        cut_off += here(receive, chunks) < chunks;
        CHECK(sdr_recv_complete(receive) == SDR_SUCCESS);
        /* The program's from here on, while the message still comes. */
        memset(b.memory, 0xee, bytes);
        finish(sent);
        all_are(b.memory, bytes, 0xee);
        /* Used again for a shorter message, behind whatever is late of the first. */
        receive = post_receive(&b);
        memset(a.memory, second, bytes);
        sent = start_send(&a, shorter);
        finish(sent);
        while (here(receive, shorter_chunks) < shorter_chunks)
            ;
        CHECK(sdr_recv_complete(receive) == SDR_SUCCESS);
        all_are(b.memory, shorter, second);
        all_are(b.memory + shorter, bytes - shorter, 0xee);
    }
    CHECK(sdr_context_destroy(a.context) == SDR_SUCCESS);
    CHECK(sdr_context_destroy(b.context) == SDR_SUCCESS);
    free(a.memory);
    free(b.memory);
    printf("%zu of %zu receives cut off, no byte written later\n", cut_off, rounds);
    return 0;
}
