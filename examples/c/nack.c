/* A reliability scheme of one's own over the SDR API.
 *
 * The receiver looks at the live bitmap; when nothing new came for a while it
 * names the missing chunks to the sender, out of band (a NACK). The sender sends
 * them again through the streaming calls. When all are here the receiver says
 * so, and both are done with the message. That is selective repeat at its
 * simplest; docs/own-scheme.md goes on from here.
 *
 * To have something to repair, the sender leaves out chunks at random.
 *
 *     nack receiver
 *     nack sender HOST --loss 10
 */

#define _POSIX_C_SOURCE 200809L

#include <time.h>

#include "queue_pair.h"

enum { CHUNK_BYTES = 16384, MTU_BYTES = 1024, MESSAGE_BYTES = 5 * 1024 * 1024 + 12345 };
enum { CHUNKS = (MESSAGE_BYTES + CHUNK_BYTES - 1) / CHUNK_BYTES };
/* Chunks named in one NACK, and the silence before it. */
enum { NACK_MAX = 128, SILENCE_MS = 5 };

struct nack {
    /* 0: everything is here. */
    uint32_t count;
    uint32_t chunks[NACK_MAX];
};

static const char *device = "udp";

static unsigned char byte_of(unsigned message, size_t at)
{
    return (unsigned char)(message * 101 + at * 3 + (at >> 9));
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct sdr_qp_attr attributes(int sends)
{
    struct sdr_qp_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.bitmap_chunk_size_log_bytes = log_of(CHUNK_BYTES);
    attr.max_in_flight_log_bytes = log_of(2 * MESSAGE_BYTES);
    attr.max_log_num_msgs = 1;
    attr.mtu = mtu_of(MTU_BYTES);
    attr.send_enable = (uint8_t)sends;
    attr.recv_enable = (uint8_t)!sends;
    return attr;
}

/* ---- the receiver ---- */

/* The missing chunks, the first NACK_MAX of them. */
static void find_gaps(const volatile uint8_t *bitmap, struct nack *nack)
{
    uint32_t chunk;
    nack->count = 0;
    for (chunk = 0; chunk < CHUNKS && nack->count < NACK_MAX; chunk++)
        if (!(bitmap[chunk / 8] >> chunk % 8 & 1))
            nack->chunks[nack->count++] = chunk;
}

static uint32_t count_chunks(const volatile uint8_t *bitmap)
{
    uint32_t chunk, count = 0;
    for (chunk = 0; chunk < CHUNKS; chunk++)
        count += bitmap[chunk / 8] >> chunk % 8 & 1;
    return count;
}

static unsigned receive_message(struct sdr_qp *qp, struct memory *memory, int oob, unsigned message)
{
    struct sdr_recv_wr wr;
    struct sdr_recv_handle *handle = NULL;
    struct nack nack;
    uint8_t *bitmap = NULL;
    size_t bytes = 0, at;
    uint32_t here, before = 0, immediate = 0;
    unsigned nacks = 0;
    long since_ms;
    char ready = 'r';
    int result;

    memset(&wr, 0, sizeof(wr));
    wr.max_length = MESSAGE_BYTES;
    wr.lkey = memory->lkey;
    wr.address = (uint64_t)(uintptr_t)memory->start;
    while ((result = sdr_recv_post(qp, &wr, &handle)) == SDR_RETRY)
        ;
    if (result)
        fail_call("sdr_recv_post");
    oob_send(oob, &ready, 1);

    since_ms = now_ms();
    do {
        if (sdr_recv_bitmap_get(handle, &bitmap, &bytes))
            fail_call("sdr_recv_bitmap_get");
        here = count_chunks(bitmap);
        if (here > before) {
            before = here;
            since_ms = now_ms();
        } else if (now_ms() - since_ms > SILENCE_MS) {
            find_gaps(bitmap, &nack);
            if (nack.count > 0) {
                oob_send(oob, &nack, sizeof(nack));
                nacks++;
            }
            since_ms = now_ms();
        }
    } while (here < CHUNKS);
    if (sdr_recv_imm_get(handle, &immediate) || immediate != message)
        fail("message %u: immediate %u", message, immediate);
    if (sdr_recv_complete(handle))
        fail_call("sdr_recv_complete");
    nack.count = 0;
    oob_send(oob, &nack, sizeof(nack));
    for (at = 0; at < MESSAGE_BYTES; at++)
        if (memory->start[at] != byte_of(message, at))
            fail("message %u is wrong at byte %zu", message, at);
    return nacks;
}

static void receive_all(int oob)
{
    struct sdr_context *context = make_context(device, 2);
    struct sdr_qp_attr attr = attributes(0);
    struct sdr_qp *qp = make_queue_pair(context, &attr, oob);
    struct memory memory = make_memory(context, MESSAGE_BYTES);
    uint32_t messages = 0;
    unsigned message, nacks = 0;
    oob_receive(oob, &messages, sizeof(messages));
    for (message = 0; message < messages; message++)
        nacks += receive_message(qp, &memory, oob, message);
    printf("received %u messages, every byte checked, after %u NACKs\n", (unsigned)messages, nacks);
    end_all(context, qp, &memory);
}

/* ---- the sender ---- */

/* Sends a chunk, or leaves it out, as a bad path would. */
static int send_chunk(struct sdr_send_handle *handle, struct memory *memory, uint32_t chunk,
                      int loss_percent)
{
    struct sdr_send_continue_wr wr;
    size_t start = (size_t)chunk * CHUNK_BYTES;
    size_t left = MESSAGE_BYTES - start;
    if (rand() % 100 < loss_percent)
        return 0;
    memset(&wr, 0, sizeof(wr));
    wr.length = left < CHUNK_BYTES ? (uint32_t)left : (uint32_t)CHUNK_BYTES;
    wr.local_addr = (uint64_t)(uintptr_t)(memory->start + start);
    wr.lkey = memory->lkey;
    wr.remote_offset = chunk;
    if (sdr_streaming_send_continue(handle, &wr))
        fail_call("sdr_streaming_send_continue");
    return 1;
}

static unsigned send_message(struct sdr_qp *qp, struct memory *memory, int oob, unsigned message,
                             int loss_percent)
{
    struct sdr_send_start_wr wr;
    struct sdr_send_handle *handle = NULL;
    struct nack nack;
    uint32_t i;
    unsigned repaired = 0;
    size_t at;
    char ready = 0;
    int result, completed = 0;

    for (at = 0; at < MESSAGE_BYTES; at++)
        memory->start[at] = byte_of(message, at);
    oob_receive(oob, &ready, 1);
    wr.opcode = SDR_WR_WRITE_WITH_IMM;
    wr.imm_value = message;
    while ((result = sdr_streaming_send_start(qp, &wr, &handle)) == SDR_RETRY)
        ;
    if (result)
        fail_call("sdr_streaming_send_start");
    for (i = 0; i < CHUNKS; i++)
        send_chunk(handle, memory, i, loss_percent);
    for (;;) {
        oob_receive(oob, &nack, sizeof(nack));
        if (nack.count == 0)
            break;
        for (i = 0; i < nack.count && i < NACK_MAX; i++)
            if (nack.chunks[i] < CHUNKS)
                repaired += (unsigned)send_chunk(handle, memory, nack.chunks[i], loss_percent);
    }
    if (sdr_streaming_send_end(handle))
        fail_call("sdr_streaming_send_end");
    while ((result = sdr_send_poll(handle, &completed, NULL)) == SDR_RETRY)
        ;
    if (result || !completed)
        fail_call("sdr_send_poll");
    return repaired;
}

static void send_all(int oob, uint32_t messages, int loss_percent)
{
    struct sdr_context *context = make_context(device, 2);
    struct sdr_qp_attr attr = attributes(1);
    struct sdr_qp *qp = make_queue_pair(context, &attr, oob);
    struct memory memory = make_memory(context, MESSAGE_BYTES);
    unsigned message, repaired = 0;
    oob_send(oob, &messages, sizeof(messages));
    for (message = 0; message < messages; message++)
        repaired += send_message(qp, &memory, oob, message, loss_percent);
    printf("sent %u messages, %u chunks again\n", (unsigned)messages, repaired);
    end_all(context, qp, &memory);
}

int main(int argc, char **argv)
{
    const char *port = "7411";
    int is_sender = argc > 2 && strcmp(argv[1], "sender") == 0;
    int i = is_sender ? 3 : 2, loss_percent = 10, oob;
    uint32_t messages = 20;
    int is_usable = is_sender || (argc > 1 && strcmp(argv[1], "receiver") == 0);
    for (; is_usable && i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--port") == 0)
            port = value;
        else if (strcmp(argv[i], "--device") == 0)
            device = value;
        else if (strcmp(argv[i], "--messages") == 0)
            messages = (uint32_t)atoi(value);
        else if (strcmp(argv[i], "--loss") == 0)
            loss_percent = atoi(value);
        else
            is_usable = 0;
    }
    if (!is_usable || loss_percent < 0 || loss_percent > 90)
        fail("usage: nack receiver [--port N] [--device NAME]\n"
             "       nack sender HOST [--port N] [--device NAME] [--messages N] [--loss PERCENT]");
    oob = is_sender ? oob_connect(argv[2], port) : oob_accept((uint16_t)atoi(port));
    if (is_sender)
        send_all(oob, messages, loss_percent);
    else
        receive_all(oob);
    close(oob);
    return 0;
}
