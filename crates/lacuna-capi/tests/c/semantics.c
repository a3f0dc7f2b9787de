/* What the SDR API promises beyond moving bytes: matching by order over many
 * wraparounds of the message numbers, streams, parts at an offset, the packets of
 * a chunk, memory that is free when a send is complete, and buffers that nothing
 * writes to after an early completion. */

#include "pair.h"

static unsigned char byte_of(unsigned message, size_t at)
{
    return (unsigned char)(message * 29 + at * 5 + (at >> 9));
}

/* Many more messages than slots; the sender overwrites its buffer as soon as the
 * send is complete. */
static void order_and_wraparound(const char *device)
{
    struct sdr_qp_attr attr = pair_attr();
    struct end a, b;
    struct sdr_recv_handle *posted[8];
    enum { LENGTH = 20000, MESSAGES = 3000 };
    unsigned message;
    size_t at;
    attr.max_log_num_msgs = 3;
    a = make_end(device, &attr);
    b = make_end(device, &attr);
    connect_ends(&a, &b);
    for (message = 0; message < 8; message++)
        posted[message] = post_recv(&b, message * LENGTH, LENGTH);
    for (message = 0; message < MESSAGES; message++) {
        unsigned slot = message % 8;
        uint32_t length = LENGTH - message % 7, immediate = 0;
        struct sdr_send_wr wr = send_wr(&a, 0, length);
        struct sdr_send_handle *sent;
        int result;
        for (at = 0; at < length; at++)
            a.memory[at] = byte_of(message, at);
        wr.opcode = SDR_WR_WRITE_WITH_IMM;
        wr.imm_value = message * 77777;
        sent = post_send(&a, &wr);
        finish_send(sent);
        memset(a.memory, 0xee, length);
        while ((result = sdr_recv_imm_get(posted[slot], &immediate)) == SDR_RETRY)
            ;
        CHECK(result == SDR_SUCCESS && immediate == message * 77777);
        while (!has_chunks(posted[slot], 3))
            ;
        CHECK(sdr_recv_complete(posted[slot]) == SDR_SUCCESS);
        for (at = 0; at < length; at++)
            CHECK(b.memory[slot * LENGTH + at] == byte_of(message, at));
        posted[slot] = post_recv(&b, slot * LENGTH, LENGTH);
    }
    end_pair(&a);
    end_pair(&b);
}

static void part(struct end *end, struct sdr_send_handle *stream, size_t from, uint32_t length,
                 uint64_t chunk)
{
    struct sdr_send_continue_wr wr;
    memset(&wr, 0, sizeof(wr));
    wr.length = length;
    wr.local_addr = (uint64_t)(uintptr_t)(end->memory + from);
    wr.lkey = end->lkey;
    wr.remote_offset = chunk;
    CHECK(sdr_streaming_send_continue(stream, &wr) == SDR_SUCCESS);
}

static void streams(const char *device)
{
    enum { CHUNK = 1 << CHUNK_LOG, CHUNKS = 10, LENGTH = CHUNK * 9 + 700 };
    struct sdr_qp_attr attr = pair_attr();
    struct end a = make_end(device, &attr), b = make_end(device, &attr);
    struct sdr_send_start_wr start = {SDR_WR_WRITE_WITH_IMM, 0xabcdef01u};
    struct sdr_send_handle *stream = NULL, *sent;
    struct sdr_recv_handle *receive;
    struct sdr_send_wr wr;
    uint64_t packets = 0;
    uint32_t immediate = 0;
    uint8_t *bitmap = NULL;
    size_t bytes = 0, at;
    int result, chunk;
    connect_ends(&a, &b);
    for (at = 0; at < LENGTH; at++)
        a.memory[at] = byte_of(1, at);
    receive = post_recv(&b, 0, LENGTH);
    while ((result = sdr_streaming_send_start(a.qp, &start, &stream)) == SDR_RETRY)
        ;
    CHECK(result == SDR_SUCCESS);
    /* The end first, then from behind; of chunk 0 only three packets. */
    part(&a, stream, 9 * CHUNK, 700, 9);
    for (chunk = 8; chunk > 0; chunk--)
        part(&a, stream, (size_t)chunk * CHUNK, CHUNK, (uint64_t)chunk);
    part(&a, stream, 0, 3 * 1024, 0);
    do {
        CHECK(sdr_recv_bitmap_get(receive, &bitmap, &bytes) == SDR_SUCCESS);
        CHECK(sdr_recv_bitmap_chunk_expand(receive, 0, &packets) == SDR_SUCCESS);
    } while (GET(bitmap[0]) != 0xfe || GET(bitmap[1]) != 0x03 || packets != 7);
    CHECK(bytes == 2);
    CHECK(sdr_recv_bitmap_chunk_expand(receive, 9, &packets) == SDR_SUCCESS && packets == 1);
    /* All of chunk 0 now, and something again. */
    part(&a, stream, 0, CHUNK, 0);
    part(&a, stream, 9 * CHUNK, 700, 9);
    part(&a, stream, 4 * CHUNK, 2 * CHUNK, 4);
    while (!has_chunks(receive, CHUNKS))
        ;
    while ((result = sdr_recv_imm_get(receive, &immediate)) == SDR_RETRY)
        ;
    CHECK(result == SDR_SUCCESS && immediate == 0xabcdef01u);
    CHECK(sdr_recv_complete(receive) == SDR_SUCCESS);
    CHECK(memcmp(a.memory, b.memory, LENGTH) == 0);
    /* The sender goes on for a while and does not hear of it, as in the paper. */
    for (chunk = 0; chunk < 1000; chunk++)
        part(&a, stream, 0, CHUNK, 1);
    CHECK(sdr_streaming_send_end(stream) == SDR_SUCCESS);
    finish_send(stream);

    /* One-shot, into the middle of a buffer. */
    memset(b.memory, 0, LENGTH);
    receive = post_recv(&b, 0, LENGTH);
    wr = send_wr(&a, 3 * CHUNK, 2 * CHUNK);
    wr.remote_offset = 3;
    sent = post_send(&a, &wr);
    finish_send(sent);
    do
        CHECK(sdr_recv_bitmap_get(receive, &bitmap, &bytes) == SDR_SUCCESS);
    while (GET(bitmap[0]) != 0x18);
    CHECK(GET(bitmap[1]) == 0);
    CHECK(sdr_recv_complete(receive) == SDR_SUCCESS);
    CHECK(memcmp(a.memory + 3 * CHUNK, b.memory + 3 * CHUNK, 2 * CHUNK) == 0);
    CHECK(b.memory[3 * CHUNK - 1] == 0 && b.memory[5 * CHUNK] == 0);
    end_pair(&a);
    end_pair(&b);
}

/* Completed while packets are under way; the buffer belongs to the program then,
 * and so does the one that is posted over it next. */
static void early_completion(const char *device)
{
    enum { LENGTH = 1 << 20, ROUNDS = 60 };
    struct sdr_qp_attr attr = pair_attr();
    struct end a, b;
    unsigned char *copy = (unsigned char *)malloc(LENGTH);
    unsigned round;
    CHECK(copy);
    attr.max_log_num_msgs = 0;
    attr.rate_limit = 400;
    a = make_end(device, &attr);
    b = make_end(device, &attr);
    connect_ends(&a, &b);
    for (round = 0; round < ROUNDS; round++) {
        struct sdr_recv_handle *receive = post_recv(&b, 0, LENGTH), *fence;
        struct sdr_send_wr wr = send_wr(&a, 0, LENGTH), short_wr = send_wr(&a, LENGTH, 100);
        struct sdr_send_handle *sent;
        memset(a.memory, (int)round + 1, LENGTH);
        sent = post_send(&a, &wr);
        while (!has_chunks(receive, round % 5))
            ;
        CHECK(sdr_recv_complete(receive) == SDR_SUCCESS);
        memset(b.memory, 0xee, LENGTH);
        memcpy(copy, b.memory, LENGTH);
        /* What was under way has come when a later message is here. */
        fence = post_recv(&b, LENGTH, 100);
        finish_send(sent);
        sent = post_send(&a, &short_wr);
        finish_send(sent);
        while (!has_chunks(fence, 1))
            ;
        CHECK(memcmp(copy, b.memory, LENGTH) == 0);
        CHECK(sdr_recv_complete(fence) == SDR_SUCCESS);
    }
    end_pair(&a);
    end_pair(&b);
    free(copy);
}

/* More than max_in_flight_log_bytes are not lent out, and sends that are never
 * polled have a bound. */
static void back_pressure(const char *device)
{
    struct sdr_qp_attr attr = pair_attr();
    struct end a, b;
    struct sdr_recv_handle *receives[16];
    struct sdr_send_handle *sent[16], *more = NULL;
    struct sdr_send_wr wr;
    int i, refused = 0, result = SDR_RETRY;
    attr.max_in_flight_log_bytes = 18;
    attr.rate_limit = 50;
    a = make_end(device, &attr);
    b = make_end(device, &attr);
    connect_ends(&a, &b);
    for (i = 0; i < 16; i++)
        receives[i] = post_recv(&b, (size_t)i << 17, 1 << 17);
    wr = send_wr(&a, 0, 1 << 17);
    /* A third of 128 KiB at 50 Mbit/s has to wait for the first. */
    for (i = 0; i < 16; i++) {
        while ((result = sdr_send_post(a.qp, &wr, &sent[i])) == SDR_RETRY)
            refused++;
        CHECK(result == SDR_SUCCESS);
    }
    CHECK(refused > 0);
    /* No receive is posted for one more. */
    for (i = 0; i < 16; i++)
        finish_send(sent[i]);
    CHECK(sdr_send_post(a.qp, &wr, &more) == SDR_RETRY && !more);
    for (i = 0; i < 16; i++) {
        while (!has_chunks(receives[i], 1 << (17 - CHUNK_LOG)))
            ;
        CHECK(sdr_recv_complete(receives[i]) == SDR_SUCCESS);
    }
    end_pair(&a);
    end_pair(&b);
}

/* Programs that take a byte of the bitmap that is not zero for a message that is here
 * are right where a message is one chunk, and there alone: see streams(). */
static void a_chunk_for_each_message(const char *device)
{
    enum { LENGTH = 1 << 20, MESSAGES = 4 };
    struct sdr_qp_attr attr = pair_attr();
    struct sdr_send_handle *sent;
    struct sdr_recv_handle *receive;
    struct sdr_send_wr wr;
    struct end a, b;
    uint8_t *bitmap = NULL;
    size_t bytes = 0, at;
    unsigned message;
    attr.bitmap_chunk_size_log_bytes = 20;
    /* So that a message is long enough under way to be looked at. */
    attr.rate_limit = 2000;
    a = make_end(device, &attr);
    b = make_end(device, &attr);
    connect_ends(&a, &b);
    for (message = 0; message < MESSAGES; message++) {
        /* One is shorter than its chunk. */
        uint32_t length = LENGTH - 700 * (message % 2);
        for (at = 0; at < length; at++)
            a.memory[at] = byte_of(message, at);
        receive = post_recv(&b, 0, LENGTH);
        wr = send_wr(&a, 0, length);
        sent = post_send(&a, &wr);
        do
            CHECK(sdr_recv_bitmap_get(receive, &bitmap, &bytes) == SDR_SUCCESS && bytes == 1);
        while (!GET(bitmap[0]));
        CHECK(memcmp(a.memory, b.memory, length) == 0);
        finish_send(sent);
        CHECK(sdr_recv_complete(receive) == SDR_SUCCESS);
    }
    end_pair(&a);
    end_pair(&b);
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "udp:127.0.0.1";
    order_and_wraparound(device);
    streams(device);
    early_completion(device);
    back_pressure(device);
    a_chunk_for_each_message(device);
    puts("all promises kept");
    return 0;
}
