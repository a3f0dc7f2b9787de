/* Every function of the three headers, misused in each way that it can be: with
 * NULL, with objects whose use has ended, with sizes, infos and texts that cannot
 * be, with a peer that is gone, and from two threads at once with the same
 * objects. Prints a line per function; tests/misuse.rs compares the lines with the
 * headers, so that no function can be forgotten.
 *
 *     every_call [ROUNDS]
 */

#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"

/* One way at a time, so that a function is one switch. */
enum way {
    WITH_NULL,
    AFTER_ITS_END,
    OUT_OF_RANGE,
    /* As it is meant, whatever comes of it: repeated, from two threads, with a
     * peer that is gone. */
    AS_MEANT,
};

enum { MESSAGE = 12000, PIECE = 16384, PIECES = MEMORY_BYTES / PIECE };

/* Objects that the calls share. */
struct bed {
    struct end a, b;
    struct sdr_recv_handle *receive;
    struct sdr_send_handle *send, *stream;
    /* Their use has ended. */
    struct sdr_qp *dead_qp;
    struct sdr_mr *dead_mr;
    struct sdr_recv_handle *dead_receive;
    struct sdr_send_handle *dead_send;
    unsigned char *info;
    size_t info_bytes;

    struct lacuna_settings *settings;
    struct lacuna_context *context;
    struct lacuna_listener *listener;
    uint16_t port;
    struct lacuna_connection *near_end, *far_end;
    struct lacuna_receive *posted, *dead_posted;
    struct lacuna_send *started, *dead_started;
    unsigned char bytes[20000];
    /* For receives: each has a piece of its own, so that no two packets are
     * placed over each other. */
    unsigned char (*pieces)[PIECE];
    unsigned next_piece;
};

/* Answered with an error and a text of its own. */
#define REFUSED(call)                                \
    do {                                             \
        CHECK((call) == SDR_ERROR);                  \
        CHECK(strlen(lacuna_last_error()) > 0);      \
    } while (0)
#define NO_OBJECT(call)                              \
    do {                                             \
        CHECK(!(call));                              \
        CHECK(strlen(lacuna_last_error()) > 0);      \
    } while (0)
/* Any code that the header knows. */
#define ANSWERED(call)                               \
    do {                                             \
        int answer_ = (call);                        \
        CHECK(answer_ >= 0 && answer_ < LACUNA_BUG); \
    } while (0)

/* Where the next receive goes. */
static size_t next_piece(struct bed *bed)
{
    return __atomic_fetch_add(&bed->next_piece, 1, __ATOMIC_SEQ_CST) % PIECES;
}

/* ---- sdr.h ---- */

static void context_create(struct bed *bed, enum way way)
{
    struct sdr_dev_attr dev = {2, 0};
    struct sdr_context *made;
    (void)bed;
    switch (way) {
    case WITH_NULL:
        NO_OBJECT(sdr_context_create("udp", NULL));
        NO_OBJECT(sdr_context_create(NULL, NULL));
        break;
    case OUT_OF_RANGE:
        NO_OBJECT(sdr_context_create("verbs", &dev));
        NO_OBJECT(sdr_context_create("", &dev));
        NO_OBJECT(sdr_context_create("udp:\xff\xfe", &dev));
        dev.num_channels = UINT32_MAX;
        dev.log_max_qps = UINT32_MAX;
        CHECK((made = sdr_context_create("mem", &dev)));
        CHECK(sdr_context_destroy(made) == SDR_SUCCESS);
        break;
    default:
        CHECK((made = sdr_context_create("mem", &dev)));
        CHECK(sdr_context_destroy(made) == SDR_SUCCESS);
    }
}

static void context_destroy(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        REFUSED(sdr_context_destroy(NULL));
    else
        context_create(bed, AS_MEANT);
}

static void qp_create(struct bed *bed, enum way way)
{
    struct sdr_qp_attr attr = pair_attr();
    struct sdr_qp *made;
    switch (way) {
    case WITH_NULL:
        NO_OBJECT(sdr_qp_create(NULL, &attr));
        NO_OBJECT(sdr_qp_create(bed->a.context, NULL));
        break;
    case OUT_OF_RANGE:
        attr.mtu = (enum sdr_mtu)7;
        NO_OBJECT(sdr_qp_create(bed->a.context, &attr));
        attr = pair_attr();
        attr.bitmap_chunk_size_log_bytes = 31;
        NO_OBJECT(sdr_qp_create(bed->a.context, &attr));
        attr = pair_attr();
        attr.max_log_num_msgs = UINT32_MAX;
        NO_OBJECT(sdr_qp_create(bed->a.context, &attr));
        break;
    default:
        CHECK((made = sdr_qp_create(bed->a.context, &attr)));
        CHECK(sdr_qp_destroy(made) == SDR_SUCCESS);
    }
}

static void qp_destroy(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_qp_destroy(NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_qp_destroy(bed->dead_qp));
        break;
    default:
        qp_create(bed, AS_MEANT);
    }
}

static void qp_info_size_get(struct bed *bed, enum way way)
{
    size_t size = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_qp_info_size_get(NULL, &size));
        REFUSED(sdr_qp_info_size_get(bed->a.qp, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_qp_info_size_get(bed->dead_qp, &size));
        CHECK(size == 77);
        break;
    default:
        CHECK(sdr_qp_info_size_get(bed->a.qp, &size) == SDR_SUCCESS && size == bed->info_bytes);
    }
}

static void qp_info_get(struct bed *bed, enum way way)
{
    unsigned char info[4096];
    CHECK(bed->info_bytes <= sizeof(info));
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_qp_info_get(NULL, info));
        REFUSED(sdr_qp_info_get(bed->a.qp, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_qp_info_get(bed->dead_qp, info));
        break;
    default:
        CHECK(sdr_qp_info_get(bed->a.qp, info) == SDR_SUCCESS);
    }
}

static void qp_connect(struct bed *bed, enum way way)
{
    struct sdr_qp_attr attr = pair_attr();
    struct sdr_qp *fresh;
    unsigned char wrong[4096];
    size_t at;
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_qp_connect(NULL, bed->info));
        REFUSED(sdr_qp_connect(bed->a.qp, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_qp_connect(bed->dead_qp, bed->info));
        break;
    case OUT_OF_RANGE:
        CHECK((fresh = sdr_qp_create(bed->a.context, &attr)));
        for (at = 0; at < 256; at++) {
            memset(wrong, (int)at, sizeof(wrong));
            REFUSED(sdr_qp_connect(fresh, wrong));
        }
        /* Cut off: the rest is zeros. */
        for (at = 0; at + 4 < 60; at++) {
            memset(wrong, 0, sizeof(wrong));
            memcpy(wrong, bed->info, at);
            REFUSED(sdr_qp_connect(fresh, wrong));
        }
        CHECK(sdr_qp_destroy(fresh) == SDR_SUCCESS);
        break;
    default:
        /* Connected already. */
        REFUSED(sdr_qp_connect(bed->a.qp, bed->info));
    }
}

static void recv_post(struct bed *bed, enum way way)
{
    struct sdr_recv_handle *handle = NULL;
    struct sdr_recv_wr wr;
    wr.max_length = MESSAGE;
    wr.lkey = bed->b.lkey;
    wr.address = (uint64_t)(uintptr_t)bed->b.memory;
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_recv_post(NULL, &wr, &handle));
        REFUSED(sdr_recv_post(bed->b.qp, NULL, &handle));
        REFUSED(sdr_recv_post(bed->b.qp, &wr, NULL));
        wr.address = 0;
        REFUSED(sdr_recv_post(bed->b.qp, &wr, &handle));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_recv_post(bed->dead_qp, &wr, &handle));
        break;
    case OUT_OF_RANGE:
        wr.max_length = MEMORY_BYTES + 1;
        REFUSED(sdr_recv_post(bed->b.qp, &wr, &handle));
        wr.max_length = UINT32_MAX;
        REFUSED(sdr_recv_post(bed->b.qp, &wr, &handle));
        wr.max_length = MESSAGE;
        wr.address += MEMORY_BYTES - MESSAGE + 1;
        REFUSED(sdr_recv_post(bed->b.qp, &wr, &handle));
        wr.address = UINT64_MAX;
        REFUSED(sdr_recv_post(bed->b.qp, &wr, &handle));
        wr.address = (uint64_t)(uintptr_t)bed->b.memory;
        wr.lkey += 1u << 20;
        REFUSED(sdr_recv_post(bed->b.qp, &wr, &handle));
        break;
    default:
        wr.address += next_piece(bed) * PIECE;
        ANSWERED(sdr_recv_post(bed->b.qp, &wr, &handle));
        if (handle)
            PUT(bed->receive, handle);
    }
    if (way != AS_MEANT)
        CHECK(!handle);
}

static void recv_imm_get(struct bed *bed, enum way way)
{
    uint32_t number = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_recv_imm_get(NULL, &number));
        REFUSED(sdr_recv_imm_get(bed->receive, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_recv_imm_get(bed->dead_receive, &number));
        CHECK(number == 77);
        break;
    default:
        ANSWERED(sdr_recv_imm_get(GET(bed->receive), &number));
    }
}

static void recv_bitmap_get(struct bed *bed, enum way way)
{
    uint8_t *bits = NULL;
    size_t size = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_recv_bitmap_get(NULL, &bits, &size));
        REFUSED(sdr_recv_bitmap_get(bed->receive, NULL, &size));
        REFUSED(sdr_recv_bitmap_get(bed->receive, &bits, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_recv_bitmap_get(bed->dead_receive, &bits, &size));
        break;
    default:
        ANSWERED(sdr_recv_bitmap_get(GET(bed->receive), &bits, &size));
    }
    if (way != AS_MEANT)
        CHECK(!bits && size == 77);
}

static void recv_bitmap_chunk_expand(struct bed *bed, enum way way)
{
    uint64_t packets[64] = {77};
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_recv_bitmap_chunk_expand(NULL, 0, packets));
        REFUSED(sdr_recv_bitmap_chunk_expand(bed->receive, 0, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_recv_bitmap_chunk_expand(bed->dead_receive, 0, packets));
        break;
    case OUT_OF_RANGE:
        REFUSED(sdr_recv_bitmap_chunk_expand(bed->receive, 2, packets));
        REFUSED(sdr_recv_bitmap_chunk_expand(bed->receive, UINT32_MAX, packets));
        break;
    default:
        ANSWERED(sdr_recv_bitmap_chunk_expand(GET(bed->receive), 1, packets));
    }
    if (way != AS_MEANT)
        CHECK(packets[0] == 77);
}

static void recv_complete(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_recv_complete(NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_recv_complete(bed->dead_receive));
        break;
    default:
        ANSWERED(sdr_recv_complete(GET(bed->receive)));
    }
}

static void send_post_(struct bed *bed, enum way way)
{
    struct sdr_send_handle *handle = NULL;
    struct sdr_send_wr wr = send_wr(&bed->a, 0, MESSAGE);
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_send_post(NULL, &wr, &handle));
        REFUSED(sdr_send_post(bed->a.qp, NULL, &handle));
        REFUSED(sdr_send_post(bed->a.qp, &wr, NULL));
        wr.local_addr = 0;
        REFUSED(sdr_send_post(bed->a.qp, &wr, &handle));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_send_post(bed->dead_qp, &wr, &handle));
        break;
    case OUT_OF_RANGE:
        wr.length = UINT32_MAX;
        REFUSED(sdr_send_post(bed->a.qp, &wr, &handle));
        wr = send_wr(&bed->a, MEMORY_BYTES - MESSAGE + 1, MESSAGE);
        REFUSED(sdr_send_post(bed->a.qp, &wr, &handle));
        wr = send_wr(&bed->a, 0, MESSAGE);
        wr.remote_offset = UINT64_MAX;
        REFUSED(sdr_send_post(bed->a.qp, &wr, &handle));
        wr = send_wr(&bed->a, 0, MESSAGE);
        wr.opcode = (enum sdr_wr_opcode)2;
        REFUSED(sdr_send_post(bed->a.qp, &wr, &handle));
        wr = send_wr(&bed->a, 0, MESSAGE);
        wr.lkey = 0;
        REFUSED(sdr_send_post(bed->a.qp, &wr, &handle));
        break;
    default:
        ANSWERED(sdr_send_post(bed->a.qp, &wr, &handle));
        if (handle)
            PUT(bed->send, handle);
    }
    if (way != AS_MEANT)
        CHECK(!handle);
}

static void streaming_send_start(struct bed *bed, enum way way)
{
    struct sdr_send_handle *handle = NULL;
    struct sdr_send_start_wr wr = {SDR_WR_WRITE_WITH_IMM, 5};
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_streaming_send_start(NULL, &wr, &handle));
        REFUSED(sdr_streaming_send_start(bed->a.qp, NULL, &handle));
        REFUSED(sdr_streaming_send_start(bed->a.qp, &wr, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_streaming_send_start(bed->dead_qp, &wr, &handle));
        break;
    case OUT_OF_RANGE:
        wr.opcode = (enum sdr_wr_opcode)-1;
        REFUSED(sdr_streaming_send_start(bed->a.qp, &wr, &handle));
        break;
    default:
        ANSWERED(sdr_streaming_send_start(bed->a.qp, &wr, &handle));
        if (handle)
            PUT(bed->stream, handle);
    }
    if (way != AS_MEANT)
        CHECK(!handle);
}

static void streaming_send_continue(struct bed *bed, enum way way)
{
    struct sdr_send_continue_wr wr;
    memset(&wr, 0, sizeof(wr));
    wr.length = 1 << CHUNK_LOG;
    wr.local_addr = (uint64_t)(uintptr_t)bed->a.memory;
    wr.lkey = bed->a.lkey;
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_streaming_send_continue(NULL, &wr));
        REFUSED(sdr_streaming_send_continue(bed->stream, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_streaming_send_continue(bed->dead_send, &wr));
        break;
    case OUT_OF_RANGE:
        wr.length = UINT32_MAX;
        REFUSED(sdr_streaming_send_continue(bed->stream, &wr));
        wr.length = 1 << CHUNK_LOG;
        wr.remote_offset = UINT64_MAX;
        REFUSED(sdr_streaming_send_continue(bed->stream, &wr));
        wr.remote_offset = 1u << 30;
        REFUSED(sdr_streaming_send_continue(bed->stream, &wr));
        wr.remote_offset = 0;
        wr.lkey = 0;
        REFUSED(sdr_streaming_send_continue(bed->stream, &wr));
        /* Not a send that parts can be added to. */
        wr.lkey = bed->a.lkey;
        REFUSED(sdr_streaming_send_continue(bed->send, &wr));
        break;
    default:
        ANSWERED(sdr_streaming_send_continue(GET(bed->stream), &wr));
    }
}

static void streaming_send_end(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_streaming_send_end(NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_streaming_send_end(bed->dead_send));
        break;
    default:
        ANSWERED(sdr_streaming_send_end(GET(bed->stream)));
    }
}

static void send_poll(struct bed *bed, enum way way)
{
    struct sdr_send_status status = {77};
    int flag = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_send_poll(NULL, &flag, &status));
        REFUSED(sdr_send_poll(bed->send, NULL, &status));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_send_poll(bed->dead_send, &flag, &status));
        break;
    default:
        ANSWERED(sdr_send_poll(GET(bed->send), &flag, NULL));
        ANSWERED(sdr_send_poll(GET(bed->stream), &flag, &status));
    }
    if (way != AS_MEANT)
        CHECK(flag == 77 && status.flags == 77);
}

/* ---- sdr_mr.h ---- */

static void mr_reg(struct bed *bed, enum way way)
{
    struct sdr_context *context = bed->a.context;
    struct sdr_mr *made;
    switch (way) {
    case WITH_NULL:
        NO_OBJECT(sdr_mr_reg(NULL, bed->bytes, 8, SDR_ACCESS_REMOTE_WRITE));
        NO_OBJECT(sdr_mr_reg(context, NULL, 8, SDR_ACCESS_REMOTE_WRITE));
        break;
    case OUT_OF_RANGE:
        NO_OBJECT(sdr_mr_reg(context, bed->bytes, 0, SDR_ACCESS_REMOTE_WRITE));
        NO_OBJECT(sdr_mr_reg(context, bed->bytes, SIZE_MAX, SDR_ACCESS_REMOTE_WRITE));
        NO_OBJECT(sdr_mr_reg(context, bed->bytes, 8, (enum sdr_access_flags)1));
        break;
    default:
        CHECK((made = sdr_mr_reg(context, bed->bytes, 8, SDR_ACCESS_REMOTE_WRITE)));
        CHECK(sdr_mr_dereg(made) == SDR_SUCCESS);
    }
}

static void mr_dereg(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(sdr_mr_dereg(NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(sdr_mr_dereg(bed->dead_mr));
        break;
    default:
        mr_reg(bed, AS_MEANT);
    }
}

static void mr_key(struct bed *bed, enum way way, int (*get)(struct sdr_mr *, uint32_t *))
{
    uint32_t key = 0;
    switch (way) {
    case WITH_NULL:
        REFUSED(get(NULL, &key));
        REFUSED(get(bed->a.mr, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(get(bed->dead_mr, &key));
        break;
    default:
        CHECK(get(bed->a.mr, &key) == SDR_SUCCESS && key == bed->a.lkey);
    }
    if (way != AS_MEANT)
        CHECK(key == 0);
}

static void mr_lkey_get(struct bed *bed, enum way way) { mr_key(bed, way, sdr_mr_lkey_get); }
static void mr_rkey_get(struct bed *bed, enum way way) { mr_key(bed, way, sdr_mr_rkey_get); }

/* ---- lacuna.h ---- */

static void version(struct bed *bed, enum way way)
{
    (void)bed;
    (void)way;
    CHECK(strlen(lacuna_version()) >= 5);
}

static void last_error(struct bed *bed, enum way way)
{
    (void)bed;
    (void)way;
    CHECK(lacuna_last_error());
}

static void settings_new(struct bed *bed, enum way way)
{
    struct lacuna_settings *made = NULL;
    (void)bed;
    if (way == WITH_NULL) {
        REFUSED(lacuna_settings_new(NULL));
        return;
    }
    CHECK(lacuna_settings_new(&made) == LACUNA_OK);
    lacuna_settings_free(made);
}

static void settings_set(struct bed *bed, enum way way)
{
    char longest[5000];
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_settings_set(NULL, "mode", "sr"));
        REFUSED(lacuna_settings_set(bed->settings, NULL, "sr"));
        REFUSED(lacuna_settings_set(bed->settings, "mode", NULL));
        break;
    case OUT_OF_RANGE:
        memset(longest, '9', sizeof(longest));
        longest[sizeof(longest) - 1] = 0;
        REFUSED(lacuna_settings_set(bed->settings, longest, longest));
        REFUSED(lacuna_settings_set(bed->settings, "chunk_bytes", longest));
        REFUSED(lacuna_settings_set(bed->settings, "channels", "-1"));
        REFUSED(lacuna_settings_set(bed->settings, "split", "1+1+1+1"));
        REFUSED(lacuna_settings_set(bed->settings, "mode", ""));
        REFUSED(lacuna_settings_set(bed->settings, "mode", "\xff"));
        break;
    default:
        CHECK(lacuna_settings_set(bed->settings, "mode", "sr") == LACUNA_OK);
    }
}

static void settings_free(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        lacuna_settings_free(NULL);
    else
        settings_new(bed, AS_MEANT);
}

static void context_new(struct bed *bed, enum way way)
{
    struct lacuna_settings *settings = NULL;
    struct lacuna_context *made = NULL;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_context_new(bed->settings, NULL));
        break;
    case OUT_OF_RANGE:
        CHECK(lacuna_settings_new(&settings) == LACUNA_OK);
        CHECK(lacuna_settings_set(settings, "channels", "0") == LACUNA_OK);
        REFUSED(lacuna_context_new(settings, &made));
        CHECK(lacuna_settings_set(settings, "channels", "17") == LACUNA_OK);
        REFUSED(lacuna_context_new(settings, &made));
        CHECK(!made);
        lacuna_settings_free(settings);
        break;
    default:
        CHECK(lacuna_context_new(bed->settings, &made) == LACUNA_OK);
        lacuna_context_free(made);
    }
}

static void context_progress(struct bed *bed, enum way way)
{
    int worked = 0;
    if (way == WITH_NULL)
        REFUSED(lacuna_context_progress(NULL, &worked));
    else
        ANSWERED(lacuna_context_progress(bed->context, &worked));
}

static void context_free(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        lacuna_context_free(NULL);
    else
        context_new(bed, AS_MEANT);
}

static void listener_new(struct bed *bed, enum way way)
{
    struct lacuna_listener *made = NULL;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_listener_new(NULL, "127.0.0.1:0", NULL, &made));
        REFUSED(lacuna_listener_new(bed->context, NULL, NULL, &made));
        REFUSED(lacuna_listener_new(bed->context, "127.0.0.1:0", NULL, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_listener_new(bed->context, "127.0.0.1", NULL, &made));
        REFUSED(lacuna_listener_new(bed->context, "127.0.0.1:70000", NULL, &made));
        REFUSED(lacuna_listener_new(bed->context, "", NULL, &made));
        /* An address of the range for documentation (RFC 5737). */
        CHECK(lacuna_listener_new(bed->context, "203.0.113.7:0", NULL, &made) == LACUNA_SYSTEM);
        break;
    default:
        CHECK(lacuna_listener_new(bed->context, "127.0.0.1:0", NULL, &made) == LACUNA_OK);
        lacuna_listener_free(made);
        made = NULL;
    }
    CHECK(!made);
}

static void listener_port(struct bed *bed, enum way way)
{
    uint16_t port = 0;
    if (way == WITH_NULL) {
        REFUSED(lacuna_listener_port(NULL, &port));
        REFUSED(lacuna_listener_port(bed->listener, NULL));
        return;
    }
    CHECK(lacuna_listener_port(bed->listener, &port) == LACUNA_OK && port == bed->port);
}

/* A peer that connects, speaks another protocol, and goes. */
static void call_with_nonsense(uint16_t port)
{
    static const char nonsense[] = "GET / HTTP/1.1\r\n\r\n";
    struct sockaddr_in to;
    int caller = socket(AF_INET, SOCK_STREAM, 0);
    memset(&to, 0, sizeof(to));
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(caller >= 0 && connect(caller, (struct sockaddr *)&to, sizeof(to)) == 0);
    CHECK(send(caller, nonsense, sizeof(nonsense), MSG_NOSIGNAL) == (ssize_t)sizeof(nonsense));
    close(caller);
}

static void listener_accept(struct bed *bed, enum way way)
{
    struct lacuna_connection *made = NULL;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_listener_accept(NULL, &made));
        REFUSED(lacuna_listener_accept(bed->listener, NULL));
        break;
    default:
        call_with_nonsense(bed->port);
        CHECK(lacuna_listener_accept(bed->listener, &made) == LACUNA_PEER && !made);
    }
}

static void listener_free(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        lacuna_listener_free(NULL);
    else
        listener_new(bed, AS_MEANT);
}

static void connect_(struct bed *bed, enum way way)
{
    struct lacuna_connection *made = NULL;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_connect(NULL, "127.0.0.1:1", NULL, &made));
        REFUSED(lacuna_connect(bed->context, NULL, NULL, &made));
        REFUSED(lacuna_connect(bed->context, "127.0.0.1:1", NULL, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_connect(bed->context, "127.0.0.1:70000", bed->settings, &made));
        REFUSED(lacuna_connect(bed->context, "", bed->settings, &made));
        REFUSED(lacuna_connect(bed->context, "127.0.0.1", bed->settings, &made));
        break;
    default:
        /* Nobody listens at the port that the discard service had. */
        CHECK(lacuna_connect(bed->context, "127.0.0.1:9", bed->settings, &made) == LACUNA_PEER);
    }
    CHECK(!made);
}

static void connection_free(struct bed *bed, enum way way)
{
    (void)bed;
    (void)way;
    lacuna_connection_free(NULL);
}

static void write_(struct bed *bed, enum way way)
{
    uint32_t immediate = 7;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_write(NULL, bed->bytes, 8, &immediate, 1));
        REFUSED(lacuna_write(bed->near_end, NULL, 8, &immediate, 1));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_write(bed->near_end, bed->bytes, SIZE_MAX, &immediate, 1));
        break;
    default:
        ANSWERED(lacuna_write(bed->near_end, bed->bytes, MESSAGE, &immediate, 2));
    }
}

static void read_(struct bed *bed, enum way way)
{
    struct lacuna_received received;
    unsigned char buffer[MESSAGE];
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_read(NULL, buffer, sizeof(buffer), 1, &received));
        REFUSED(lacuna_read(bed->far_end, NULL, sizeof(buffer), 1, &received));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_read(bed->far_end, buffer, SIZE_MAX, 1, &received));
        break;
    default:
        ANSWERED(lacuna_read(bed->far_end, buffer, sizeof(buffer), 2, &received));
        ANSWERED(lacuna_read(bed->far_end, buffer, sizeof(buffer), 0, NULL));
    }
}

static void wait_clear_to_send(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        REFUSED(lacuna_wait_clear_to_send(NULL, 1));
    else
        ANSWERED(lacuna_wait_clear_to_send(bed->near_end, 1));
}

static void flush_(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        REFUSED(lacuna_flush(NULL, 1));
    else
        ANSWERED(lacuna_flush(bed->near_end, 1));
}

static void text_of(struct bed *bed, enum way way,
                    int (*get)(struct lacuna_connection *, char *, size_t, size_t *))
{
    char text[8];
    size_t length = 0;
    if (way == WITH_NULL) {
        REFUSED(get(NULL, text, sizeof(text), &length));
        REFUSED(get(bed->near_end, NULL, sizeof(text), &length));
        CHECK(length == 0);
        return;
    }
    CHECK(get(bed->near_end, text, sizeof(text), &length) == LACUNA_OK);
    CHECK(length > sizeof(text) && strlen(text) == sizeof(text) - 1);
    CHECK(get(bed->near_end, NULL, 0, NULL) == LACUNA_OK);
}

static void describe(struct bed *bed, enum way way) { text_of(bed, way, lacuna_describe); }
static void stats_json(struct bed *bed, enum way way) { text_of(bed, way, lacuna_stats_json); }

static void tag(struct bed *bed, enum way way)
{
    uint64_t number = 0;
    if (way == WITH_NULL) {
        REFUSED(lacuna_tag(NULL, &number));
        REFUSED(lacuna_tag(bed->far_end, NULL));
        return;
    }
    CHECK(lacuna_tag(bed->far_end, &number) == LACUNA_OK && number == 42);
}

static void receive_post(struct bed *bed, enum way way)
{
    struct lacuna_receive *made = NULL;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_receive_post(NULL, bed->pieces[0], MESSAGE, &made));
        REFUSED(lacuna_receive_post(bed->far_end, NULL, MESSAGE, &made));
        REFUSED(lacuna_receive_post(bed->far_end, bed->pieces[0], MESSAGE, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_receive_post(bed->far_end, bed->pieces[0], SIZE_MAX, &made));
        break;
    default:
        ANSWERED(lacuna_receive_post(bed->far_end, bed->pieces[next_piece(bed)], MESSAGE, &made));
        if (made)
            PUT(bed->posted, made);
    }
    if (way != AS_MEANT)
        CHECK(!made);
}

static void receive_wait(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_receive_wait(NULL, 1));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_receive_wait(bed->dead_posted, 1));
        break;
    default:
        ANSWERED(lacuna_receive_wait(GET(bed->posted), 1));
    }
}

static void receive_status(struct bed *bed, enum way way)
{
    struct lacuna_received received;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_receive_status(NULL, &received));
        REFUSED(lacuna_receive_status(bed->posted, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_receive_status(bed->dead_posted, &received));
        break;
    default:
        ANSWERED(lacuna_receive_status(GET(bed->posted), &received));
    }
}

static void receive_has_chunk(struct bed *bed, enum way way)
{
    int is_here = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_receive_has_chunk(NULL, 0, &is_here));
        REFUSED(lacuna_receive_has_chunk(bed->posted, 0, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_receive_has_chunk(bed->dead_posted, 0, &is_here));
        break;
    case OUT_OF_RANGE:
        CHECK(lacuna_receive_has_chunk(bed->posted, UINT32_MAX, &is_here) == LACUNA_OK);
        CHECK(is_here == 0);
        return;
    default:
        ANSWERED(lacuna_receive_has_chunk(GET(bed->posted), 0, &is_here));
        return;
    }
    CHECK(is_here == 77);
}

static void receive_bitmap(struct bed *bed, enum way way)
{
    const uint8_t *bits = NULL;
    size_t size = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_receive_bitmap(NULL, &bits, &size));
        REFUSED(lacuna_receive_bitmap(bed->posted, NULL, &size));
        REFUSED(lacuna_receive_bitmap(bed->posted, &bits, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_receive_bitmap(bed->dead_posted, &bits, &size));
        break;
    default:
        ANSWERED(lacuna_receive_bitmap(GET(bed->posted), &bits, &size));
        return;
    }
    CHECK(!bits && size == 77);
}

static void receive_complete(struct bed *bed, enum way way)
{
    struct lacuna_received received;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_receive_complete(NULL, &received));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_receive_complete(bed->dead_posted, &received));
        break;
    default:
        ANSWERED(lacuna_receive_complete(GET(bed->posted), NULL));
    }
}

static void send_start(struct bed *bed, enum way way)
{
    struct lacuna_send *made = NULL;
    uint32_t immediate = 7;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_send_start(NULL, bed->bytes, MESSAGE, &immediate, 1, &made));
        REFUSED(lacuna_send_start(bed->near_end, NULL, MESSAGE, &immediate, 1, &made));
        REFUSED(lacuna_send_start(bed->near_end, bed->bytes, MESSAGE, &immediate, 1, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_send_start(bed->near_end, bed->bytes, SIZE_MAX, NULL, 1, &made));
        break;
    default:
        ANSWERED(lacuna_send_start(bed->near_end, bed->bytes, MESSAGE, &immediate, 2, &made));
        if (made)
            PUT(bed->started, made);
    }
    if (way != AS_MEANT)
        CHECK(!made);
}

static void send_poll_(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_send_poll(NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_send_poll(bed->dead_started));
        break;
    default:
        ANSWERED(lacuna_send_poll(GET(bed->started)));
    }
}

static void send_wait(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_send_wait(NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_send_wait(bed->dead_started));
        break;
    default:
        ANSWERED(lacuna_send_wait(GET(bed->started)));
    }
}

static void send_free(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_send_free(NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_send_free(bed->dead_started));
        break;
    default:
        ANSWERED(lacuna_send_free(GET(bed->started)));
    }
}

/* ---- the table ---- */

/* Why a function is not called in a way. */
#define LAST "must be the last call with it"
#define NONE "takes no such object"
#define FITS "takes nothing that could be out of range"
#define VOID "takes nothing"

static const struct {
    const char *name;
    void (*call)(struct bed *, enum way);
    /* Why it is not called so, by way; NULL where it is. */
    const char *not_with_null, *not_after_its_end, *not_out_of_range;
} calls[] = {
    {"sdr_context_create", context_create, NULL, NONE, NULL},
    {"sdr_context_destroy", context_destroy, NULL, LAST, FITS},
    {"sdr_qp_create", qp_create, NULL, LAST, NULL},
    {"sdr_qp_destroy", qp_destroy, NULL, NULL, FITS},
    {"sdr_qp_info_size_get", qp_info_size_get, NULL, NULL, FITS},
    {"sdr_qp_info_get", qp_info_get, NULL, NULL, FITS},
    {"sdr_qp_connect", qp_connect, NULL, NULL, NULL},
    {"sdr_recv_post", recv_post, NULL, NULL, NULL},
    {"sdr_recv_imm_get", recv_imm_get, NULL, NULL, FITS},
    {"sdr_recv_bitmap_get", recv_bitmap_get, NULL, NULL, FITS},
    {"sdr_recv_bitmap_chunk_expand", recv_bitmap_chunk_expand, NULL, NULL, NULL},
    {"sdr_recv_complete", recv_complete, NULL, NULL, FITS},
    {"sdr_send_post", send_post_, NULL, NULL, NULL},
    {"sdr_streaming_send_start", streaming_send_start, NULL, NULL, NULL},
    {"sdr_streaming_send_continue", streaming_send_continue, NULL, NULL, NULL},
    {"sdr_streaming_send_end", streaming_send_end, NULL, NULL, FITS},
    {"sdr_send_poll", send_poll, NULL, NULL, FITS},
    {"sdr_mr_reg", mr_reg, NULL, LAST, NULL},
    {"sdr_mr_dereg", mr_dereg, NULL, NULL, FITS},
    {"sdr_mr_lkey_get", mr_lkey_get, NULL, NULL, FITS},
    {"sdr_mr_rkey_get", mr_rkey_get, NULL, NULL, FITS},
    {"lacuna_version", version, VOID, VOID, VOID},
    {"lacuna_last_error", last_error, VOID, VOID, VOID},
    {"lacuna_settings_new", settings_new, NULL, NONE, FITS},
    {"lacuna_settings_set", settings_set, NULL, LAST, NULL},
    {"lacuna_settings_free", settings_free, NULL, LAST, FITS},
    {"lacuna_context_new", context_new, NULL, LAST, NULL},
    {"lacuna_context_progress", context_progress, NULL, LAST, FITS},
    {"lacuna_context_free", context_free, NULL, LAST, FITS},
    {"lacuna_listener_new", listener_new, NULL, LAST, NULL},
    {"lacuna_listener_port", listener_port, NULL, LAST, FITS},
    {"lacuna_listener_accept", listener_accept, NULL, LAST, FITS},
    {"lacuna_listener_free", listener_free, NULL, LAST, FITS},
    {"lacuna_connect", connect_, NULL, LAST, NULL},
    {"lacuna_connection_free", connection_free, NULL, LAST, FITS},
    {"lacuna_write", write_, NULL, LAST, NULL},
    {"lacuna_read", read_, NULL, LAST, NULL},
    {"lacuna_wait_clear_to_send", wait_clear_to_send, NULL, LAST, FITS},
    {"lacuna_flush", flush_, NULL, LAST, FITS},
    {"lacuna_describe", describe, NULL, LAST, FITS},
    {"lacuna_stats_json", stats_json, NULL, LAST, FITS},
    {"lacuna_tag", tag, NULL, LAST, FITS},
    {"lacuna_receive_post", receive_post, NULL, LAST, NULL},
    {"lacuna_receive_wait", receive_wait, NULL, NULL, FITS},
    {"lacuna_receive_status", receive_status, NULL, NULL, FITS},
    {"lacuna_receive_has_chunk", receive_has_chunk, NULL, NULL, NULL},
    {"lacuna_receive_bitmap", receive_bitmap, NULL, NULL, FITS},
    {"lacuna_receive_complete", receive_complete, NULL, NULL, FITS},
    {"lacuna_send_start", send_start, NULL, LAST, NULL},
    {"lacuna_send_poll", send_poll_, NULL, NULL, FITS},
    {"lacuna_send_wait", send_wait, NULL, NULL, FITS},
    {"lacuna_send_free", send_free, NULL, NULL, FITS},
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

/* ---- the bed ---- */

static void *accept_one(void *given)
{
    struct bed *bed = (struct bed *)given;
    CHECK(lacuna_listener_accept(bed->listener, &bed->far_end) == LACUNA_OK);
    return NULL;
}

static struct bed *make_bed(void)
{
    struct bed *bed = (struct bed *)calloc(1, sizeof(*bed));
    struct sdr_qp_attr attr = pair_attr();
    struct sdr_send_wr wr;
    struct sdr_send_start_wr start = {SDR_WR_WRITE, 0};
    struct sdr_recv_handle *taken;
    pthread_t accepting;
    char peer[40];
    int result;
    CHECK(bed);
    CHECK((bed->pieces = (unsigned char(*)[PIECE])malloc(MEMORY_BYTES)));
    bed->a = make_end("udp:127.0.0.1", &attr);
    bed->b = make_end("udp:127.0.0.1", &attr);
    connect_ends(&bed->a, &bed->b);
    CHECK(sdr_qp_info_size_get(bed->b.qp, &bed->info_bytes) == SDR_SUCCESS);
    CHECK((bed->info = (unsigned char *)malloc(bed->info_bytes)));
    CHECK(sdr_qp_info_get(bed->b.qp, bed->info) == SDR_SUCCESS);
    CHECK((bed->dead_qp = sdr_qp_create(bed->a.context, &attr)));
    {
        /* A handle is used up for good only with its queue pair. */
        struct end late = bed->a, other = bed->b;
        CHECK((late.qp = sdr_qp_create(late.context, &attr)));
        CHECK((other.qp = sdr_qp_create(other.context, &attr)));
        connect_ends(&late, &other);
        taken = post_recv(&other, 0, 8);
        wr = send_wr(&late, 0, 8);
        bed->dead_send = post_send(&late, &wr);
        finish_send(bed->dead_send);
        CHECK(sdr_recv_complete(taken) == SDR_SUCCESS);
        (void)post_recv(&other, 0, 8);
        bed->dead_send = post_send(&late, &wr);
        CHECK(sdr_qp_destroy(late.qp) == SDR_SUCCESS);
        CHECK(sdr_qp_destroy(other.qp) == SDR_SUCCESS);
    }
    CHECK(sdr_qp_destroy(bed->dead_qp) == SDR_SUCCESS);
    bed->dead_mr = sdr_mr_reg(bed->a.context, bed->bytes, 8, SDR_ACCESS_REMOTE_WRITE);
    CHECK(sdr_mr_dereg(bed->dead_mr) == SDR_SUCCESS);
    bed->dead_receive = post_recv(&bed->b, 0, MESSAGE);
    bed->receive = post_recv(&bed->b, 0, MESSAGE);
    (void)post_recv(&bed->b, 0, MESSAGE);
    wr = send_wr(&bed->a, 0, MESSAGE);
    finish_send(post_send(&bed->a, &wr));
    while (!has_chunks(bed->dead_receive, 2))
        ;
    CHECK(sdr_recv_complete(bed->dead_receive) == SDR_SUCCESS);
    bed->send = post_send(&bed->a, &wr);
    while ((result = sdr_streaming_send_start(bed->a.qp, &start, &bed->stream)) == SDR_RETRY)
        ;
    CHECK(result == SDR_SUCCESS);

    CHECK(lacuna_settings_new(&bed->settings) == LACUNA_OK);
    CHECK(lacuna_settings_set(bed->settings, "bind", "127.0.0.1") == LACUNA_OK);
    CHECK(lacuna_settings_set(bed->settings, "tag", "42") == LACUNA_OK);
    CHECK(lacuna_settings_set(bed->settings, "connect_timeout_ms", "10000") == LACUNA_OK);
    CHECK(lacuna_context_new(bed->settings, &bed->context) == LACUNA_OK);
    CHECK(lacuna_listener_new(bed->context, "127.0.0.1:0", NULL, &bed->listener) == LACUNA_OK);
    CHECK(lacuna_listener_port(bed->listener, &bed->port) == LACUNA_OK);
    CHECK(pthread_create(&accepting, NULL, accept_one, bed) == 0);
    snprintf(peer, sizeof(peer), "127.0.0.1:%u", (unsigned)bed->port);
    CHECK(lacuna_connect(bed->context, peer, bed->settings, &bed->near_end) == LACUNA_OK);
    CHECK(pthread_join(accepting, NULL) == 0);
    /* The other connects are to a port without a listener, and that is asked
       again for a while. */
    CHECK(lacuna_settings_set(bed->settings, "connect_timeout_ms", "20") == LACUNA_OK);
    receive_post(bed, AS_MEANT);
    bed->dead_posted = bed->posted;
    CHECK(lacuna_receive_complete(bed->dead_posted, NULL) == LACUNA_OK);
    receive_post(bed, AS_MEANT);
    send_start(bed, AS_MEANT);
    bed->dead_started = bed->started;
    CHECK(lacuna_send_free(bed->dead_started) == LACUNA_OK);
    send_start(bed, AS_MEANT);
    CHECK(bed->posted && bed->started);
    return bed;
}

static void free_bed(struct bed *bed)
{
    lacuna_connection_free(bed->near_end);
    lacuna_connection_free(bed->far_end);
    lacuna_listener_free(bed->listener);
    lacuna_context_free(bed->context);
    lacuna_settings_free(bed->settings);
    end_pair(&bed->a);
    end_pair(&bed->b);
    free(bed->pieces);
    free(bed->info);
    free(bed);
}

/* ---- from two threads at once ---- */

static unsigned rounds = 20;

/* The call that is made, or CALLS for all in an order of the thread's own. */
struct turn {
    struct bed *bed;
    unsigned call, seed;
};

static void *repeat(void *given)
{
    struct turn *turn = (struct turn *)given;
    unsigned round, number = turn->seed;
    for (round = 0; round < rounds; round++) {
        unsigned call = turn->call;
        if (call == CALLS) {
            number = number * 1664525u + 1013904223u;
            call = (number >> 16) % CALLS;
        }
        calls[call].call(turn->bed, AS_MEANT);
    }
    return NULL;
}

static void from_two_threads(struct bed *bed, unsigned call)
{
    struct turn turns[2] = {{bed, call, 1}, {bed, call, 2}};
    pthread_t threads[2];
    int i;
    for (i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, repeat, &turns[i]) == 0);
    for (i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void without_a_peer(struct bed *bed)
{
    unsigned call;
    struct lacuna_connection *gone = bed->far_end;
    CHECK(sdr_qp_destroy(bed->b.qp) == SDR_SUCCESS);
    /* Receives end with their connection: this one is of the end that stays. */
    bed->far_end = bed->near_end;
    bed->posted = NULL;
    receive_post(bed, AS_MEANT);
    CHECK(bed->posted);
    lacuna_connection_free(gone);
    for (call = 0; call < CALLS; call++)
        if (calls[call].call != tag)
            calls[call].call(bed, AS_MEANT);
    bed->far_end = NULL;
}

int main(int argc, char **argv)
{
    struct bed *bed = make_bed();
    unsigned call;
    if (argc > 1)
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    for (call = 0; call < CALLS; call++) {
        const char *not_so = "";
        if (!calls[call].not_with_null)
            calls[call].call(bed, WITH_NULL);
        if (!calls[call].not_after_its_end)
            calls[call].call(bed, AFTER_ITS_END);
        else
            not_so = calls[call].not_after_its_end;
        if (!calls[call].not_out_of_range)
            calls[call].call(bed, OUT_OF_RANGE);
        printf("%s%s%s%s%s%s\n", calls[call].name, calls[call].not_with_null ? "" : " null",
               calls[call].not_after_its_end ? "" : " ended",
               calls[call].not_out_of_range ? "" : " range", *not_so ? " - ended not, " : "", not_so);
    }
    for (call = 0; call < CALLS; call++)
        from_two_threads(bed, call);
    rounds *= CALLS;
    from_two_threads(bed, CALLS);
    without_a_peer(bed);
    free_bed(bed);
    puts("all misuse answered");
    return 0;
}
