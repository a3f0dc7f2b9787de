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

enum { MESSAGE = 12000, PIECE = 16384, PIECES = MEMORY_BYTES / PIECE, ROOMS = 2048 };

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
    struct lacuna_map *map;
    struct lacuna_region *region;
    struct lacuna_window *window;
    unsigned char *region_bytes;
    /* Both ends complete into it. */
    struct lacuna_completion_queue *queue;
    /* It sends to itself, and completes into its own list. */
    struct lacuna_datagram *datagram;
    struct lacuna_address datagram_address;
    uint64_t peer;
    unsigned char datagram_bytes[PIECE];
    /* Of this rank alone. */
    struct lacuna_group *group;
    struct lacuna_group_operation *operation, *dead_operation;
    float numbers[8];
    unsigned char bytes[20000];
    /* For receives: each has a piece of its own, so that no two packets are
     * placed over each other. */
    unsigned char (*pieces)[PIECE];
    unsigned next_piece, next_room;
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

/* The same for those of lacuna.h, of which there are more. */
static unsigned char *next_room(struct bed *bed)
{
    return bed->pieces[__atomic_fetch_add(&bed->next_room, 1, __ATOMIC_SEQ_CST) % ROOMS];
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
        ANSWERED(lacuna_receive_post(bed->far_end, next_room(bed), MESSAGE, &made));
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

static void receive_post_with(struct bed *bed, enum way way)
{
    struct lacuna_receive_options options;
    struct lacuna_receive *made = NULL;
    memset(&options, 0, sizeof(options));
    options.deadline_us = 2000;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_receive_post_with(NULL, bed->pieces[0], MESSAGE, &options, &made));
        REFUSED(lacuna_receive_post_with(bed->far_end, NULL, MESSAGE, &options, &made));
        REFUSED(lacuna_receive_post_with(bed->far_end, bed->pieces[0], MESSAGE, NULL, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_receive_post_with(bed->far_end, bed->pieces[0], SIZE_MAX, NULL, &made));
        options.missing = 3;
        REFUSED(lacuna_receive_post_with(bed->far_end, bed->pieces[0], MESSAGE, &options, &made));
        options.missing = LACUNA_MISSING_KEEP;
        options.reserved[5] = 1;
        REFUSED(lacuna_receive_post_with(bed->far_end, bed->pieces[0], MESSAGE, &options, &made));
        options.reserved[5] = 0;
        options.more[1] = UINT64_MAX;
        REFUSED(lacuna_receive_post_with(bed->far_end, bed->pieces[0], MESSAGE, &options, &made));
        break;
    default:
        options.deadline_us = UINT64_MAX;
        options.grace_us = UINT64_MAX;
        options.has_grace = 255;
        ANSWERED(lacuna_receive_post_with(bed->far_end, next_room(bed), MESSAGE,
                                          &options, &made));
        if (made)
            PUT(bed->posted, made);
    }
    if (way != AS_MEANT)
        CHECK(!made);
}

static void receive_wait_over(struct bed *bed, enum way way)
{
    uint32_t reason = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_receive_wait_over(NULL, 1, &reason));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_receive_wait_over(bed->dead_posted, 1, &reason));
        break;
    default:
        ANSWERED(lacuna_receive_wait_over(GET(bed->posted), 1, &reason));
        ANSWERED(lacuna_receive_wait_over(GET(bed->posted), 0, NULL));
        return;
    }
    CHECK(reason == 77);
}

static void receive_take(struct bed *bed, enum way way)
{
    struct lacuna_map *map = NULL;
    struct lacuna_ended ended;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_receive_take(NULL, &ended, &map));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_receive_take(bed->dead_posted, &ended, &map));
        break;
    default:
        ANSWERED(lacuna_receive_take(GET(bed->posted), &ended, &map));
        lacuna_map_free(map);
        ANSWERED(lacuna_receive_take(GET(bed->posted), NULL, NULL));
        return;
    }
    CHECK(!map);
}

static void map_packets(struct bed *bed, enum way way)
{
    uint8_t bits[4];
    size_t size = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_map_packets(NULL, bits, sizeof(bits), &size));
        REFUSED(lacuna_map_packets(bed->map, NULL, sizeof(bits), &size));
        CHECK(size == 77);
        break;
    default:
        CHECK(lacuna_map_packets(bed->map, bits, sizeof(bits), &size) == LACUNA_OK && size > 0);
        CHECK(lacuna_map_packets(bed->map, NULL, 0, NULL) == LACUNA_OK);
    }
}

static void map_gaps(struct bed *bed, enum way way)
{
    struct lacuna_range gap = {77, 77};
    size_t count = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_map_gaps(NULL, &gap, 1, &count));
        REFUSED(lacuna_map_gaps(bed->map, NULL, 1, &count));
        CHECK(count == 77 && gap.length == 77);
        break;
    default:
        CHECK(lacuna_map_gaps(bed->map, &gap, 1, &count) == LACUNA_OK && count == 1);
        CHECK(gap.offset == 0 && gap.length == MESSAGE);
        CHECK(lacuna_map_gaps(bed->map, NULL, 0, NULL) == LACUNA_OK);
    }
}

static void map_ranges(struct bed *bed, enum way way)
{
    struct lacuna_range range;
    size_t count = 77;
    if (way == WITH_NULL) {
        REFUSED(lacuna_map_ranges(NULL, &range, 1, &count));
        REFUSED(lacuna_map_ranges(bed->map, NULL, 1, &count));
        return;
    }
    /* Nothing of it came. */
    CHECK(lacuna_map_ranges(bed->map, &range, 1, &count) == LACUNA_OK && count == 0);
    CHECK(lacuna_map_ranges(bed->map, NULL, 0, NULL) == LACUNA_OK);
}

static void map_free(struct bed *bed, enum way way)
{
    struct lacuna_receive *made = NULL;
    struct lacuna_map *map = NULL;
    if (way == WITH_NULL) {
        lacuna_map_free(NULL);
        return;
    }
    ANSWERED(lacuna_receive_post(bed->far_end, next_room(bed), MESSAGE, &made));
    if (made)
        CHECK(lacuna_receive_take(made, NULL, &map) == LACUNA_OK);
    lacuna_map_free(map);
}

static void send_start_offered(struct bed *bed, enum way way)
{
    struct lacuna_send *made = NULL;
    uint32_t immediate = 7;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_send_start_offered(NULL, bed->bytes, MESSAGE, &immediate, 1, &made));
        REFUSED(lacuna_send_start_offered(bed->near_end, NULL, MESSAGE, &immediate, 1, &made));
        REFUSED(lacuna_send_start_offered(bed->near_end, bed->bytes, MESSAGE, NULL, 1, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_send_start_offered(bed->near_end, bed->bytes, SIZE_MAX, NULL, 1, &made));
        break;
    default:
        ANSWERED(lacuna_send_start_offered(bed->near_end, bed->bytes, MESSAGE, NULL, 2, &made));
        if (made)
            PUT(bed->started, made);
    }
    if (way != AS_MEANT)
        CHECK(!made);
}

static void send_offer(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_send_offer(NULL, 0, 1));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_send_offer(bed->dead_started, 0, 1));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_send_offer(bed->started, SIZE_MAX, 2));
        REFUSED(lacuna_send_offer(bed->started, SIZE_MAX, SIZE_MAX));
        REFUSED(lacuna_send_offer(bed->started, MESSAGE, 1));
        break;
    default:
        ANSWERED(lacuna_send_offer(GET(bed->started), 1, MESSAGE - 1));
        ANSWERED(lacuna_send_offer(GET(bed->started), 0, 1));
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

static void region_new(struct bed *bed, enum way way)
{
    struct lacuna_region_options options;
    struct lacuna_region *made = NULL;
    void *bytes = bed->region_bytes;
    memset(&options, 0, sizeof(options));
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_region_new(NULL, bytes, 8, &options, &made));
        REFUSED(lacuna_region_new(bed->context, NULL, 8, &options, &made));
        REFUSED(lacuna_region_new(bed->context, bytes, 8, &options, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_region_new(bed->context, bytes, SIZE_MAX, &options, &made));
        options.rights = 8;
        REFUSED(lacuna_region_new(bed->context, bytes, 8, &options, &made));
        options.rights = UINT32_MAX;
        REFUSED(lacuna_region_new(bed->context, bytes, 8, &options, &made));
        options.rights = 0;
        options.reserved[1] = 1;
        REFUSED(lacuna_region_new(bed->context, bytes, 8, &options, &made));
        options.reserved[1] = 0;
        options.more[0] = 1;
        REFUSED(lacuna_region_new(bed->context, bytes, 8, &options, &made));
        break;
    default:
        ANSWERED(lacuna_region_new(bed->context, bytes, PIECE, NULL, &made));
        lacuna_region_free(made);
        made = NULL;
    }
    CHECK(!made);
}

static void region_key(struct bed *bed, enum way way)
{
    uint32_t key = 0;
    if (way == WITH_NULL) {
        REFUSED(lacuna_region_key(NULL, &key));
        REFUSED(lacuna_region_key(bed->region, NULL));
        return;
    }
    CHECK(lacuna_region_key(bed->region, &key) == LACUNA_OK);
}

static void marks(struct bed *bed, enum way way,
                  int (*get)(struct lacuna_region *, uint64_t, uint64_t, uint8_t *, size_t))
{
    uint8_t bits[PIECE / 64 / 8];
    bits[0] = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(get(NULL, 0, 64, bits, sizeof(bits)));
        REFUSED(get(bed->region, 0, 64, NULL, sizeof(bits)));
        break;
    case OUT_OF_RANGE:
        REFUSED(get(bed->region, 0, PIECE + 1, bits, sizeof(bits)));
        REFUSED(get(bed->region, PIECE, 1, bits, sizeof(bits)));
        REFUSED(get(bed->region, UINT64_MAX, UINT64_MAX, bits, sizeof(bits)));
        REFUSED(get(bed->region, 0, UINT64_MAX, bits, SIZE_MAX));
        REFUSED(get(bed->region, 1, 64, bits, sizeof(bits)));
        REFUSED(get(bed->region, 0, PIECE, bits, sizeof(bits) - 1));
        break;
    default:
        CHECK(get(bed->region, 0, PIECE, bits, sizeof(bits)) == LACUNA_OK);
        CHECK(get(bed->region, PIECE, 0, bits, 0) == LACUNA_OK);
        return;
    }
    CHECK(bits[0] == 77);
}

static void region_valid(struct bed *bed, enum way way) { marks(bed, way, lacuna_region_valid); }
static void region_take_valid(struct bed *bed, enum way way)
{
    marks(bed, way, lacuna_region_take_valid);
}

static void region_revoke(struct bed *bed, enum way way)
{
    struct lacuna_region *made = NULL;
    (void)bed;
    if (way == WITH_NULL) {
        REFUSED(lacuna_region_revoke(NULL));
        return;
    }
    ANSWERED(lacuna_region_new(bed->context, bed->region_bytes, PIECE, NULL, &made));
    CHECK(made && lacuna_region_revoke(made) == LACUNA_OK);
    CHECK(lacuna_region_revoke(made) == LACUNA_OK);
    lacuna_region_free(made);
}

static void region_free(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        lacuna_region_free(NULL);
    else
        region_new(bed, AS_MEANT);
}

static void region_window(struct bed *bed, enum way way)
{
    struct lacuna_window *made = NULL;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_region_window(NULL, 0, 8, 0, &made));
        REFUSED(lacuna_region_window(bed->region, 0, 8, 0, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_region_window(bed->region, 0, PIECE + 1, 0, &made));
        REFUSED(lacuna_region_window(bed->region, PIECE + 1, 0, 0, &made));
        REFUSED(lacuna_region_window(bed->region, UINT64_MAX, 2, 0, &made));
        REFUSED(lacuna_region_window(bed->region, 0, 8, 9, &made));
        break;
    default:
        ANSWERED(lacuna_region_window(bed->region, 8, 8, LACUNA_RIGHT_REMOTE_READ, &made));
        lacuna_window_free(made);
        made = NULL;
    }
    CHECK(!made);
}

static void window_key(struct bed *bed, enum way way)
{
    uint32_t key = 0;
    if (way == WITH_NULL) {
        REFUSED(lacuna_window_key(NULL, &key));
        REFUSED(lacuna_window_key(bed->window, NULL));
        return;
    }
    CHECK(lacuna_window_key(bed->window, &key) == LACUNA_OK);
}

static void window_free(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        lacuna_window_free(NULL);
    else
        region_window(bed, AS_MEANT);
}

static uint32_t region_key_of(struct bed *bed)
{
    uint32_t key = 0;
    CHECK(lacuna_region_key(bed->region, &key) == LACUNA_OK);
    return key;
}

static void remote_write(struct bed *bed, enum way way)
{
    uint32_t key = region_key_of(bed), immediate = 9;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_remote_write(NULL, key, 0, bed->bytes, 8, &immediate, 1));
        REFUSED(lacuna_remote_write(bed->near_end, key, 0, NULL, 8, &immediate, 1));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_remote_write(bed->near_end, key, 0, bed->bytes, SIZE_MAX, NULL, 1));
        REFUSED(lacuna_remote_write(bed->near_end, key, UINT64_MAX, bed->bytes, 8, NULL, 1));
        CHECK(lacuna_remote_write(bed->near_end, key, PIECE - 1, bed->bytes, 8, NULL, 5000) ==
              LACUNA_PEER);
        break;
    default:
        ANSWERED(lacuna_remote_write(bed->near_end, key, 0, bed->bytes, MESSAGE, NULL, 2));
        ANSWERED(lacuna_remote_write(bed->near_end, key, 0, bed->bytes, 8, &immediate, 2));
    }
}

static void remote_write_start(struct bed *bed, enum way way)
{
    struct lacuna_send *made = NULL;
    uint32_t key = region_key_of(bed);
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_remote_write_start(NULL, key, 0, bed->bytes, 8, NULL, 1, &made));
        REFUSED(lacuna_remote_write_start(bed->near_end, key, 0, NULL, 8, NULL, 1, &made));
        REFUSED(lacuna_remote_write_start(bed->near_end, key, 0, bed->bytes, 8, NULL, 1, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_remote_write_start(bed->near_end, key, 0, bed->bytes, SIZE_MAX, NULL, 1,
                                          &made));
        break;
    default:
        ANSWERED(lacuna_remote_write_start(bed->near_end, key, 0, bed->bytes, MESSAGE, NULL, 2,
                                           &made));
        if (made)
            PUT(bed->started, made);
    }
    if (way != AS_MEANT)
        CHECK(!made);
}

static void remote_read(struct bed *bed, enum way way)
{
    uint64_t came = 77;
    uint32_t key = region_key_of(bed);
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_remote_read(NULL, key, 0, 8, bed->region, 0, 1, &came));
        REFUSED(lacuna_remote_read(bed->near_end, key, 0, 8, NULL, 0, 1, &came));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_remote_read(bed->near_end, key, 0, UINT64_MAX, bed->region, 8, 1, &came));
        REFUSED(lacuna_remote_read(bed->near_end, key, 0, 8, bed->region, UINT64_MAX, 1, &came));
        REFUSED(lacuna_remote_read(bed->near_end, key, 0, 8, bed->region, PIECE - 7, 1, &came));
        CHECK(lacuna_remote_read(bed->near_end, key, UINT64_MAX, 8, bed->region, 0, 5000, &came) ==
              LACUNA_PEER);
        break;
    default:
        ANSWERED(lacuna_remote_read(bed->near_end, key, 0, 100, bed->region, 8192, 2, NULL));
        return;
    }
    CHECK(came == 77);
}

static void wait_written(struct bed *bed, enum way way)
{
    struct lacuna_written written;
    struct lacuna_map *map = NULL;
    if (way == WITH_NULL) {
        REFUSED(lacuna_wait_written(NULL, 1, &written, &map));
        REFUSED(lacuna_wait_written(bed->far_end, 1, NULL, &map));
        CHECK(!map);
        return;
    }
    ANSWERED(lacuna_wait_written(bed->far_end, 1, &written, &map));
    lacuna_map_free(map);
    ANSWERED(lacuna_wait_written(bed->far_end, 0, &written, NULL));
}

static void connection_class(struct bed *bed, enum way way)
{
    struct lacuna_connection *messages = NULL;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_connection_class(NULL, LACUNA_CLASS_CRITICAL, &messages));
        REFUSED(lacuna_connection_class(bed->near_end, LACUNA_CLASS_CRITICAL, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_connection_class(bed->near_end, 0, &messages));
        REFUSED(lacuna_connection_class(bed->near_end, UINT32_MAX, &messages));
        /* Nobody asked for it. */
        REFUSED(lacuna_connection_class(bed->near_end, LACUNA_CLASS_DROPPABLE, &messages));
        break;
    default:
        CHECK(lacuna_connection_class(bed->near_end, LACUNA_CLASS_CRITICAL, &messages) == LACUNA_OK);
        CHECK(messages && messages != bed->near_end);
        /* It ends with its connection alone. */
        lacuna_connection_free(messages);
        ANSWERED(lacuna_write(messages, bed->bytes, 8, NULL, 1));
        return;
    }
    CHECK(!messages);
}

static void completion_queue_new(struct bed *bed, enum way way)
{
    struct lacuna_completion_queue *made = NULL;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_completion_queue_new(NULL, 1, &made));
        REFUSED(lacuna_completion_queue_new(bed->context, 1, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_completion_queue_new(bed->context, 0, &made));
        REFUSED(lacuna_completion_queue_new(bed->context, UINT32_MAX, &made));
        break;
    default:
        ANSWERED(lacuna_completion_queue_new(bed->context, 3, &made));
        lacuna_completion_queue_free(made);
        made = NULL;
    }
    CHECK(!made);
}

static void completion_queue_poll(struct bed *bed, enum way way)
{
    struct lacuna_completion completions[4];
    size_t count = 77;
    if (way == WITH_NULL) {
        REFUSED(lacuna_completion_queue_poll(NULL, completions, 4, 1, &count));
        REFUSED(lacuna_completion_queue_poll(bed->queue, NULL, 4, 1, &count));
        REFUSED(lacuna_completion_queue_poll(bed->queue, completions, 4, 1, NULL));
        CHECK(count == 77);
        return;
    }
    CHECK(lacuna_completion_queue_poll(bed->queue, completions, 4, 1, &count) == LACUNA_OK);
    CHECK(count <= 4);
    while (count > 0)
        lacuna_map_free(completions[--count].map);
    CHECK(lacuna_completion_queue_poll(bed->queue, NULL, 0, 1, &count) == LACUNA_OK && count == 0);
}

static void completion_queue_descriptor(struct bed *bed, enum way way)
{
    int descriptor = -1;
    if (way == WITH_NULL) {
        REFUSED(lacuna_completion_queue_descriptor(NULL, &descriptor));
        REFUSED(lacuna_completion_queue_descriptor(bed->queue, NULL));
        CHECK(descriptor == -1);
        return;
    }
    CHECK(lacuna_completion_queue_descriptor(bed->queue, &descriptor) == LACUNA_OK);
    CHECK(descriptor >= 0);
}

static void completion_queue_arm(struct bed *bed, enum way way)
{
    int has_any = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_completion_queue_arm(NULL, LACUNA_ARM_ANY, &has_any));
        CHECK(has_any == 77);
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_completion_queue_arm(bed->queue, 2, &has_any));
        REFUSED(lacuna_completion_queue_arm(bed->queue, UINT32_MAX, &has_any));
        CHECK(has_any == 77);
        break;
    default:
        CHECK(lacuna_completion_queue_arm(bed->queue, LACUNA_ARM_ANY, &has_any) == LACUNA_OK);
        CHECK(has_any == 0 || has_any == 1);
        CHECK(lacuna_completion_queue_arm(bed->queue, LACUNA_ARM_SOLICITED, NULL) == LACUNA_OK);
    }
}

static void completion_queue_free(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        lacuna_completion_queue_free(NULL);
    else
        completion_queue_new(bed, AS_MEANT);
}

static void complete_to(struct bed *bed, enum way way)
{
    if (way == WITH_NULL) {
        REFUSED(lacuna_complete_to(NULL, bed->queue));
        REFUSED(lacuna_complete_to(bed->near_end, NULL));
        return;
    }
    /* They do already. */
    REFUSED(lacuna_complete_to(bed->near_end, bed->queue));
    REFUSED(lacuna_complete_to(bed->far_end, bed->queue));
}

/* What a full queue refuses, has room for later. */
static void make_room(struct bed *bed)
{
    completion_queue_poll(bed, AS_MEANT);
}

static void queue_send(struct bed *bed, enum way way)
{
    uint32_t immediate = 7;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_queue_send(NULL, bed->bytes, 8, &immediate, 1, 0, 1));
        REFUSED(lacuna_queue_send(bed->near_end, NULL, 8, &immediate, 1, 0, 1));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_queue_send(bed->near_end, bed->bytes, SIZE_MAX, NULL, 1, 0, 1));
        REFUSED(lacuna_queue_send(bed->near_end, bed->bytes, SIZE_MAX, NULL, 1,
                                  LACUNA_QUEUED_SILENT, 1));
        REFUSED(lacuna_queue_send(bed->near_end, bed->bytes, 8, NULL, 1, 2, 1));
        REFUSED(lacuna_queue_send(bed->near_end, bed->bytes, 8, NULL, 1, UINT32_MAX, 1));
        break;
    default:
        ANSWERED(lacuna_queue_send(bed->near_end, bed->bytes, MESSAGE, NULL, 2, 0, UINT64_MAX));
        ANSWERED(lacuna_queue_send(bed->near_end, bed->bytes, 8, &immediate, 2,
                                   LACUNA_QUEUED_SILENT, UINT64_MAX));
        make_room(bed);
    }
}

static void queue_receive(struct bed *bed, enum way way)
{
    struct lacuna_receive_options options;
    memset(&options, 0, sizeof(options));
    options.deadline_us = 2000;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_queue_receive(NULL, bed->pieces[0], MESSAGE, &options, 1));
        REFUSED(lacuna_queue_receive(bed->far_end, NULL, MESSAGE, &options, 1));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_queue_receive(bed->far_end, bed->pieces[0], SIZE_MAX, &options, 1));
        options.missing = 3;
        REFUSED(lacuna_queue_receive(bed->far_end, bed->pieces[0], MESSAGE, &options, 1));
        options.missing = 0;
        options.more[0] = 1;
        REFUSED(lacuna_queue_receive(bed->far_end, bed->pieces[0], MESSAGE, &options, 1));
        break;
    default:
        ANSWERED(lacuna_queue_receive(bed->far_end, next_room(bed), MESSAGE, &options,
                                      3));
        make_room(bed);
    }
}

static void queue_remote_write(struct bed *bed, enum way way)
{
    uint32_t key = region_key_of(bed), immediate = 7;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_queue_remote_write(NULL, key, 0, bed->bytes, 8, &immediate, 1, 0, 1));
        REFUSED(lacuna_queue_remote_write(bed->near_end, key, 0, NULL, 8, &immediate, 1, 0, 1));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_queue_remote_write(bed->near_end, key, 0, bed->bytes, SIZE_MAX, NULL, 1, 0,
                                          1));
        REFUSED(lacuna_queue_remote_write(bed->near_end, key, UINT64_MAX, bed->bytes, 8, NULL, 1, 0,
                                          1));
        REFUSED(lacuna_queue_remote_write(bed->near_end, key, 0, bed->bytes, 8, NULL, 1, 6, 1));
        break;
    default:
        ANSWERED(lacuna_queue_remote_write(bed->near_end, key, 0, bed->bytes, 8, NULL, 2, 0, 4));
        ANSWERED(lacuna_queue_remote_write(bed->near_end, key, 8, bed->bytes, 8, NULL, 2,
                                           LACUNA_QUEUED_SILENT, 5));
        make_room(bed);
    }
}

static void queue_remote_read(struct bed *bed, enum way way)
{
    uint32_t key = region_key_of(bed);
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_queue_remote_read(NULL, key, 0, 8, bed->region, 0, 1, 1));
        REFUSED(lacuna_queue_remote_read(bed->near_end, key, 0, 8, NULL, 0, 1, 1));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_queue_remote_read(bed->near_end, key, 0, PIECE + 1, bed->region, 0, 1, 1));
        REFUSED(lacuna_queue_remote_read(bed->near_end, key, 0, UINT64_MAX, bed->region, 8, 1, 1));
        REFUSED(lacuna_queue_remote_read(bed->near_end, key, 0, 8, bed->region, UINT64_MAX, 1, 1));
        break;
    default:
        ANSWERED(lacuna_queue_remote_read(bed->near_end, key, 0, 8, bed->region, PIECE - 8, 2, 6));
        make_room(bed);
    }
}

static void queue_written(struct bed *bed, enum way way)
{
    if (way == WITH_NULL) {
        REFUSED(lacuna_queue_written(NULL, 1));
        return;
    }
    /* The first is the only one. (What is told of at the far end only is waited for there.) */
    ANSWERED(lacuna_queue_written(bed->near_end, UINT64_MAX));
    REFUSED(lacuna_queue_written(bed->near_end, 1));
}

/* ---- datagrams ---- */

static void address_parse(struct bed *bed, enum way way)
{
    struct lacuna_address address;
    (void)bed;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_address_parse(NULL, &address));
        REFUSED(lacuna_address_parse("127.0.0.1:1", NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_address_parse("", &address));
        REFUSED(lacuna_address_parse("127.0.0.1", &address));
        REFUSED(lacuna_address_parse("127.0.0.1:65536", &address));
        REFUSED(lacuna_address_parse("localhost:1", &address));
        REFUSED(lacuna_address_parse("[fe80::1]:1", &address));
        REFUSED(lacuna_address_parse("\xff\xfe:1", &address));
        break;
    default:
        CHECK(lacuna_address_parse("[2001:db8::1]:1", &address) == LACUNA_OK);
    }
}

static void address_text(struct bed *bed, enum way way)
{
    struct lacuna_address address = bed->datagram_address;
    char text[80];
    size_t length = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_address_text(NULL, text, sizeof(text), &length));
        REFUSED(lacuna_address_text(&address, NULL, 1, &length));
        break;
    case OUT_OF_RANGE:
        address.reserved[1] = 1;
        REFUSED(lacuna_address_text(&address, text, sizeof(text), &length));
        CHECK(length == 77);
        break;
    default:
        CHECK(lacuna_address_text(&address, text, sizeof(text), NULL) == LACUNA_OK);
        CHECK(lacuna_address_text(&address, NULL, 0, &length) == LACUNA_OK);
        CHECK(length == strlen(text));
        CHECK(lacuna_address_text(&address, text, 4, &length) == LACUNA_OK && strlen(text) == 3);
    }
}

static void address_of(struct bed *bed, enum way way)
{
    struct lacuna_address address;
    struct sockaddr_in6 v6;
    (void)bed;
    memset(&v6, 0, sizeof(v6));
    v6.sin6_family = AF_INET6;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_address_of(NULL, sizeof(v6), &address));
        REFUSED(lacuna_address_of(&v6, sizeof(v6), NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_address_of(&v6, sizeof(v6) - 1, &address));
        REFUSED(lacuna_address_of(&v6, 1, &address));
        REFUSED(lacuna_address_of(&v6, 0, &address));
        v6.sin6_family = AF_UNIX;
        REFUSED(lacuna_address_of(&v6, sizeof(v6), &address));
        break;
    default:
        CHECK(lacuna_address_of(&v6, sizeof(v6), &address) == LACUNA_OK);
    }
}

static void address_sockaddr(struct bed *bed, enum way way)
{
    struct lacuna_address address = bed->datagram_address;
    struct sockaddr_in v4;
    size_t length = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_address_sockaddr(NULL, &v4, sizeof(v4), &length));
        REFUSED(lacuna_address_sockaddr(&address, NULL, sizeof(v4), &length));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_address_sockaddr(&address, &v4, sizeof(v4) - 1, &length));
        address.reserved[0] = 1;
        REFUSED(lacuna_address_sockaddr(&address, &v4, sizeof(v4), &length));
        break;
    default:
        CHECK(lacuna_address_sockaddr(&address, &v4, sizeof(v4), NULL) == LACUNA_OK);
    }
}

static void datagram_settings_default(struct bed *bed, enum way way)
{
    struct lacuna_datagram_settings settings;
    (void)bed;
    if (way == WITH_NULL)
        REFUSED(lacuna_datagram_settings_default(NULL));
    else
        CHECK(lacuna_datagram_settings_default(&settings) == LACUNA_OK);
}

static struct lacuna_datagram_settings datagram_settings(void)
{
    struct lacuna_datagram_settings settings;
    CHECK(lacuna_datagram_settings_default(&settings) == LACUNA_OK);
    settings.bind = "127.0.0.1";
    return settings;
}

static void datagram_new(struct bed *bed, enum way way)
{
    struct lacuna_datagram_settings settings = datagram_settings();
    struct lacuna_datagram *made = NULL;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_datagram_new(NULL, &settings, &made));
        REFUSED(lacuna_datagram_new(bed->context, &settings, NULL));
        break;
    case OUT_OF_RANGE:
        settings.packet_bytes = 127;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings.packet_bytes = 65508;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.workers = 0;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings.workers = UINT32_MAX;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.peers_max = 0;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.open_max = 0;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.open_of_source_max = 0;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.receive_buffer_bytes = 0;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.bind = "eth0";
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings.bind = "\xff\xfe";
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.multicast_interface = UINT32_MAX;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.is_reliable = 1, settings.cc = "reno";
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings.cc = "fixed";
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings.cc = NULL, settings.silence_ms = 0;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.more[3] = 1;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.reserved[0] = 1;
        REFUSED(lacuna_datagram_new(bed->context, &settings, &made));
        settings = datagram_settings(), settings.bind = "203.0.113.7";
        CHECK(lacuna_datagram_new(bed->context, &settings, &made) == LACUNA_SYSTEM && !made);
        break;
    default:
        settings.completions = bed->queue;
        settings.is_reliable = 1;
        ANSWERED(lacuna_datagram_new(bed->context, &settings, &made));
        lacuna_datagram_free(made);
        make_room(bed);
    }
}

static void datagram_free(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        lacuna_datagram_free(NULL);
    else
        datagram_new(bed, AS_MEANT);
}

static void datagram_number(struct bed *bed, enum way way)
{
    uint32_t number = 0;
    if (way == WITH_NULL) {
        REFUSED(lacuna_datagram_number(NULL, &number));
        REFUSED(lacuna_datagram_number(bed->datagram, NULL));
        return;
    }
    CHECK(lacuna_datagram_number(bed->datagram, &number) == LACUNA_OK && number != 0);
}

static void datagram_local(struct bed *bed, enum way way)
{
    struct lacuna_address address;
    if (way == WITH_NULL) {
        REFUSED(lacuna_datagram_local(NULL, &address));
        REFUSED(lacuna_datagram_local(bed->datagram, NULL));
        return;
    }
    CHECK(lacuna_datagram_local(bed->datagram, &address) == LACUNA_OK && address.port != 0);
}

static void datagram_close(struct bed *bed, enum way way)
{
    struct lacuna_datagram_settings settings = datagram_settings();
    struct lacuna_datagram *made = NULL;
    struct lacuna_slice slice = {bed->datagram_bytes, 8};
    if (way == WITH_NULL) {
        REFUSED(lacuna_datagram_close(NULL));
        return;
    }
    ANSWERED(lacuna_datagram_new(bed->context, &settings, &made));
    CHECK(made && lacuna_datagram_receive(made, &slice, 1, 1) == LACUNA_OK);
    CHECK(lacuna_datagram_close(made) == LACUNA_OK && lacuna_datagram_close(made) == LACUNA_OK);
    REFUSED(lacuna_datagram_receive(made, &slice, 1, 2));
    lacuna_datagram_free(made);
}

static void handle_of(struct bed *bed, enum way way,
                      int (*get)(struct lacuna_datagram *, const struct lacuna_address *,
                                 uint64_t *))
{
    struct lacuna_address address = bed->datagram_address;
    uint64_t peer = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(get(NULL, &address, &peer));
        REFUSED(get(bed->datagram, NULL, &peer));
        REFUSED(get(bed->datagram, &address, NULL));
        break;
    case OUT_OF_RANGE:
        address.port = 0;
        REFUSED(get(bed->datagram, &address, &peer));
        memset(&address, 0, sizeof(address)), address.port = 7;
        REFUSED(get(bed->datagram, &address, &peer));
        address.ip[0] = 0xfe, address.ip[1] = 0x80;
        REFUSED(get(bed->datagram, &address, &peer));
        address = bed->datagram_address, address.reserved[0] = 1;
        REFUSED(get(bed->datagram, &address, &peer));
        CHECK(peer == 77);
        break;
    default:
        /* No more are held than the first time. */
        CHECK(lacuna_address_parse("127.0.0.1:9", &address) == LACUNA_OK);
        CHECK(get(bed->datagram, &address, &peer) == LACUNA_OK && peer != 77);
    }
}

static void datagram_peer(struct bed *bed, enum way way)
{
    handle_of(bed, way, lacuna_datagram_peer);
}
static void datagram_group(struct bed *bed, enum way way)
{
    handle_of(bed, way, lacuna_datagram_group);
}

static void of_handle(struct bed *bed, enum way way,
                      int (*call)(struct lacuna_datagram *, uint64_t))
{
    switch (way) {
    case WITH_NULL:
        REFUSED(call(NULL, bed->peer));
        break;
    case OUT_OF_RANGE:
        REFUSED(call(bed->datagram, 0));
        REFUSED(call(bed->datagram, bed->peer + 1000000));
        REFUSED(call(bed->datagram, UINT64_MAX));
        break;
    default:
        CHECK(call(bed->datagram, bed->peer) == LACUNA_OK);
    }
}

static void datagram_forget(struct bed *bed, enum way way)
{
    of_handle(bed, way, lacuna_datagram_forget);
}
static void datagram_reset(struct bed *bed, enum way way)
{
    of_handle(bed, way, lacuna_datagram_reset);
}
static void datagram_say_sent(struct bed *bed, enum way way)
{
    of_handle(bed, way, lacuna_datagram_say_sent);
}

static void datagram_address(struct bed *bed, enum way way)
{
    struct lacuna_address address;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_datagram_address(NULL, bed->peer, &address));
        REFUSED(lacuna_datagram_address(bed->datagram, bed->peer, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_datagram_address(bed->datagram, UINT64_MAX, &address));
        REFUSED(lacuna_datagram_address(bed->datagram, 1, &address));
        break;
    default:
        CHECK(lacuna_datagram_address(bed->datagram, bed->peer, &address) == LACUNA_OK);
    }
}

static void membership(struct bed *bed, enum way way,
                       int (*call)(struct lacuna_datagram *, const struct lacuna_address *,
                                   uint32_t))
{
    struct lacuna_address group;
    CHECK(lacuna_address_parse("239.77.1.4:0", &group) == LACUNA_OK);
    switch (way) {
    case WITH_NULL:
        REFUSED(call(NULL, &group, 1));
        REFUSED(call(bed->datagram, NULL, 1));
        break;
    case OUT_OF_RANGE:
        REFUSED(call(bed->datagram, &bed->datagram_address, 1));
        CHECK(call(bed->datagram, &group, UINT32_MAX) == LACUNA_SYSTEM);
        break;
    default:
        /* Joined or left already, or there are no groups on this machine. */
        ANSWERED(call(bed->datagram, &group, 1));
    }
}

static void datagram_join(struct bed *bed, enum way way)
{
    membership(bed, way, lacuna_datagram_join);
}
static void datagram_leave(struct bed *bed, enum way way)
{
    membership(bed, way, lacuna_datagram_leave);
}

static void datagram_name_region(struct bed *bed, enum way way)
{
    uint32_t key = region_key_of(bed);
    if (way == WITH_NULL) {
        REFUSED(lacuna_datagram_name_region(NULL, 7, &key));
        return;
    }
    CHECK(lacuna_datagram_name_region(bed->datagram, 8, &key) == LACUNA_OK);
    CHECK(lacuna_datagram_name_region(bed->datagram, 8, NULL) == LACUNA_OK);
}

static void datagram_poll(struct bed *bed, enum way way)
{
    struct lacuna_completion completions[8];
    size_t count = 77;
    if (way == WITH_NULL) {
        REFUSED(lacuna_datagram_poll(NULL, completions, 8, 1, &count));
        REFUSED(lacuna_datagram_poll(bed->datagram, NULL, 8, 1, &count));
        REFUSED(lacuna_datagram_poll(bed->datagram, completions, 8, 1, NULL));
        CHECK(count == 77);
        return;
    }
    CHECK(lacuna_datagram_poll(bed->datagram, completions, 8, 1, &count) == LACUNA_OK);
    CHECK(count <= 8);
    while (count > 0)
        lacuna_map_free(completions[--count].map);
    CHECK(lacuna_datagram_poll(bed->datagram, NULL, 0, 1, &count) == LACUNA_OK && count == 0);
}

static void datagram_poll_error(struct bed *bed, enum way way)
{
    struct lacuna_datagram_error errors[4];
    size_t count = 77;
    if (way == WITH_NULL) {
        REFUSED(lacuna_datagram_poll_error(NULL, errors, 4, 1, &count));
        REFUSED(lacuna_datagram_poll_error(bed->datagram, NULL, 4, 1, &count));
        REFUSED(lacuna_datagram_poll_error(bed->datagram, errors, 4, 1, NULL));
        CHECK(count == 77);
        return;
    }
    CHECK(lacuna_datagram_poll_error(bed->datagram, errors, 4, 1, &count) == LACUNA_OK);
    CHECK(count <= 4);
    CHECK(lacuna_datagram_poll_error(bed->datagram, NULL, 0, 1, &count) == LACUNA_OK && !count);
}

static void datagram_stats_json(struct bed *bed, enum way way)
{
    char text[4000];
    size_t length = 77;
    if (way == WITH_NULL) {
        REFUSED(lacuna_datagram_stats_json(NULL, text, sizeof(text), &length));
        REFUSED(lacuna_datagram_stats_json(bed->datagram, NULL, 1, &length));
        return;
    }
    CHECK(lacuna_datagram_stats_json(bed->datagram, text, sizeof(text), &length) == LACUNA_OK);
    CHECK(strlen(text) == length);
    CHECK(lacuna_datagram_stats_json(bed->datagram, NULL, 0, NULL) == LACUNA_OK);
}

/* A list that no call takes. */
static void bad_lists(int (*post)(struct bed *, const struct lacuna_slice *, size_t), struct bed *bed)
{
    struct lacuna_slice slices[2];
    slices[0].memory = bed->datagram_bytes, slices[0].length = 8;
    slices[1].memory = bed->datagram_bytes, slices[1].length = 8;
    REFUSED(post(bed, NULL, 1));
    REFUSED(post(bed, slices, 1025));
    REFUSED(post(bed, slices, SIZE_MAX));
    slices[1].memory = NULL;
    REFUSED(post(bed, slices, 2));
    slices[1].memory = bed->datagram_bytes, slices[1].length = SIZE_MAX;
    REFUSED(post(bed, slices, 2));
    slices[0].length = slices[1].length = UINT32_MAX;
    REFUSED(post(bed, slices, 2));
    REFUSED(post(bed, (const struct lacuna_slice *)(bed->datagram_bytes + 1), 1));
}

static int post_receive(struct bed *bed, const struct lacuna_slice *slices, size_t count)
{
    return lacuna_datagram_receive(bed->datagram, slices, count, UINT64_MAX);
}

static void datagram_receive(struct bed *bed, enum way way)
{
    struct lacuna_slice slice = {bed->datagram_bytes, PIECE};
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_datagram_receive(NULL, &slice, 1, 1));
        break;
    case OUT_OF_RANGE:
        bad_lists(post_receive, bed);
        break;
    default:
        CHECK(post_receive(bed, &slice, 1) == LACUNA_OK);
        datagram_poll(bed, AS_MEANT);
    }
}

static int post_message(struct bed *bed, const struct lacuna_slice *slices, size_t count)
{
    return lacuna_datagram_send(bed->datagram, bed->peer, slices, count, 1000, 0, UINT64_MAX);
}

static void datagram_send(struct bed *bed, enum way way)
{
    struct lacuna_slice slice = {bed->bytes, 8};
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_datagram_send(NULL, bed->peer, &slice, 1, 0, 0, 1));
        break;
    case OUT_OF_RANGE:
        bad_lists(post_message, bed);
        REFUSED(lacuna_datagram_send(bed->datagram, UINT64_MAX, &slice, 1, 0, 0, 1));
        REFUSED(lacuna_datagram_send(bed->datagram, bed->peer, &slice, 1, 0, 4, 1));
        REFUSED(lacuna_datagram_send(bed->datagram, bed->peer, &slice, 1, 0, UINT32_MAX, 1));
        REFUSED(lacuna_datagram_send(bed->datagram, bed->peer, &slice, 1, 0, 5, 1));
        break;
    default:
        CHECK(post_message(bed, &slice, 1) == LACUNA_OK);
        slice.length = MESSAGE;
        CHECK(lacuna_datagram_send(bed->datagram, bed->peer, &slice, 1, UINT64_MAX,
                                   LACUNA_QUEUED_SILENT | LACUNA_QUEUED_SOLICITED, 1) == LACUNA_OK);
        datagram_poll(bed, AS_MEANT);
    }
}

static int post_record(struct bed *bed, const struct lacuna_slice *slices, size_t count)
{
    return lacuna_datagram_write_record(bed->datagram, bed->peer, region_key_of(bed), 0, slices, count,
                                        1000, 0, 1);
}

static void datagram_write_record(struct bed *bed, enum way way)
{
    uint32_t key = region_key_of(bed);
    struct lacuna_slice slice = {bed->bytes, 8};
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_datagram_write_record(NULL, bed->peer, key, 0, &slice, 1, 0, 0, 1));
        break;
    case OUT_OF_RANGE:
        bad_lists(post_record, bed);
        REFUSED(lacuna_datagram_write_record(bed->datagram, 0, key, 0, &slice, 1, 0, 0, 1));
        REFUSED(lacuna_datagram_write_record(bed->datagram, bed->peer, key, 0, &slice, 1, 0, 4, 1));
        /* The peer refuses these. */
        CHECK(lacuna_datagram_write_record(bed->datagram, bed->peer, key, UINT64_MAX, &slice, 1, 0, 0,
                                           1) == LACUNA_OK);
        CHECK(lacuna_datagram_write_record(bed->datagram, bed->peer, ~key, 0, &slice, 1, 0, 0, 1) ==
              LACUNA_OK);
        datagram_poll(bed, AS_MEANT);
        break;
    default:
        CHECK(post_record(bed, &slice, 1) == LACUNA_OK);
        datagram_poll(bed, AS_MEANT);
    }
}

static int post_named(struct bed *bed, const struct lacuna_slice *slices, size_t count)
{
    return lacuna_datagram_write_named(bed->datagram, bed->peer, 7, 0, slices, count, 1000, 0, 1);
}

static void datagram_write_named(struct bed *bed, enum way way)
{
    struct lacuna_slice slice = {bed->bytes, 8};
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_datagram_write_named(NULL, bed->peer, 7, 0, &slice, 1, 0, 0, 1));
        break;
    case OUT_OF_RANGE:
        bad_lists(post_named, bed);
        REFUSED(lacuna_datagram_write_named(bed->datagram, 0, 7, 0, &slice, 1, 0, 0, 1));
        REFUSED(lacuna_datagram_write_named(bed->datagram, bed->peer, 7, 0, &slice, 1, 0, 4, 1));
        break;
    default:
        CHECK(post_named(bed, &slice, 1) == LACUNA_OK);
        datagram_poll(bed, AS_MEANT);
    }
}

static int post_read(struct bed *bed, const struct lacuna_slice *slices, size_t count)
{
    return lacuna_datagram_read(bed->datagram, bed->peer, region_key_of(bed), 0, slices, count, 20, 0,
                                1);
}

static void datagram_read(struct bed *bed, enum way way)
{
    uint32_t key = region_key_of(bed);
    struct lacuna_slice slice = {bed->datagram_bytes, 8};
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_datagram_read(NULL, bed->peer, key, 0, &slice, 1, 1, 0, 1));
        break;
    case OUT_OF_RANGE:
        bad_lists(post_read, bed);
        REFUSED(lacuna_datagram_read(bed->datagram, UINT64_MAX, key, 0, &slice, 1, 1, 0, 1));
        REFUSED(lacuna_datagram_read(bed->datagram, bed->peer, key, 0, &slice, 1, 1, 4, 1));
        CHECK(lacuna_datagram_read(bed->datagram, bed->peer, key, UINT64_MAX, &slice, 1, 5, 0, 1) ==
              LACUNA_OK);
        datagram_poll(bed, AS_MEANT);
        break;
    default:
        CHECK(post_read(bed, &slice, 1) == LACUNA_OK);
        datagram_poll(bed, AS_MEANT);
    }
}

/* ---- groups ---- */

/* An operation that takes input and output; which are too long for the counts, if any. */
typedef int (*collective)(struct lacuna_group *, const void *, void *, uint32_t,
                          const struct lacuna_group_options *, struct lacuna_group_operation **);

static const uint64_t one_count[1] = {3}, odd_count[1] = {UINT64_MAX};

static int all_reduce(struct lacuna_group *group, const void *input, void *output, uint32_t element,
                      const struct lacuna_group_options *options,
                      struct lacuna_group_operation **operation)
{
    return lacuna_group_all_reduce(group, input, output, 3, element, 0, options, operation);
}
static int reduce_scatter(struct lacuna_group *group, const void *input, void *output,
                          uint32_t element, const struct lacuna_group_options *options,
                          struct lacuna_group_operation **operation)
{
    return lacuna_group_reduce_scatter(group, input, output, 0, one_count, element, 0, options,
                                       operation);
}
static int all_gather(struct lacuna_group *group, const void *input, void *output, uint32_t element,
                      const struct lacuna_group_options *options,
                      struct lacuna_group_operation **operation)
{
    return lacuna_group_all_gather(group, input, output, 0, one_count, element, options, operation);
}
static int broadcast(struct lacuna_group *group, const void *input, void *output, uint32_t element,
                     const struct lacuna_group_options *options,
                     struct lacuna_group_operation **operation)
{
    return lacuna_group_broadcast(group, input, output, 3, 0, element, options, operation);
}
static int reduce(struct lacuna_group *group, const void *input, void *output, uint32_t element,
                  const struct lacuna_group_options *options,
                  struct lacuna_group_operation **operation)
{
    return lacuna_group_reduce(group, input, output, 3, 0, element, 0, options, operation);
}
static int gather(struct lacuna_group *group, const void *input, void *output, uint32_t element,
                  const struct lacuna_group_options *options,
                  struct lacuna_group_operation **operation)
{
    return lacuna_group_gather(group, input, output, 0, one_count, 0, element, options, operation);
}
static int scatter(struct lacuna_group *group, const void *input, void *output, uint32_t element,
                   const struct lacuna_group_options *options,
                   struct lacuna_group_operation **operation)
{
    return lacuna_group_scatter(group, input, output, 0, one_count, 0, element, options, operation);
}
static int all_to_all(struct lacuna_group *group, const void *input, void *output, uint32_t element,
                      const struct lacuna_group_options *options,
                      struct lacuna_group_operation **operation)
{
    return lacuna_group_all_to_all(group, input, output, 3, NULL, NULL, element, options,
                                   operation);
}

static void run_collective(struct bed *bed, enum way way, collective run)
{
    struct lacuna_group_options options;
    struct lacuna_group_operation *operation = NULL;
    float numbers[4] = {1, 2, 3, 4}, result[4] = {0, 0, 0, 7};
    memset(&options, 0, sizeof(options));
    switch (way) {
    case WITH_NULL:
        REFUSED(run(NULL, numbers, result, LACUNA_ELEMENT_F32, NULL, NULL));
        REFUSED(run(bed->group, numbers, NULL, LACUNA_ELEMENT_F32, NULL, &operation));
        break;
    case OUT_OF_RANGE:
        REFUSED(run(bed->group, numbers, result, 12, NULL, &operation));
        REFUSED(run(bed->group, numbers, result, UINT32_MAX, NULL, NULL));
        REFUSED(run(bed->group, numbers, numbers + 1, LACUNA_ELEMENT_F32, NULL, &operation));
        options.algorithm = "triangle";
        REFUSED(run(bed->group, numbers, result, LACUNA_ELEMENT_F32, &options, &operation));
        options.algorithm = "\xff\xfe";
        REFUSED(run(bed->group, numbers, result, LACUNA_ELEMENT_F32, &options, &operation));
        options.algorithm = "hierarchical:0,1";
        REFUSED(run(bed->group, numbers, result, LACUNA_ELEMENT_F32, &options, &operation));
        options.algorithm = NULL, options.budget = LACUNA_BUDGET_FIXED;
        REFUSED(run(bed->group, numbers, result, LACUNA_ELEMENT_F32, &options, &operation));
        options.budget = 4;
        REFUSED(run(bed->group, numbers, result, LACUNA_ELEMENT_F32, &options, &operation));
        options.budget = 0, options.divisor = 2;
        REFUSED(run(bed->group, numbers, result, LACUNA_ELEMENT_F32, &options, &operation));
        options.divisor = 0, options.more[0] = 1;
        REFUSED(run(bed->group, numbers, result, LACUNA_ELEMENT_F32, &options, &operation));
        CHECK(result[0] == 0);
        break;
    default:
        CHECK(run(bed->group, numbers, result, LACUNA_ELEMENT_F32, NULL, NULL) == LACUNA_OK);
        CHECK(result[0] == 1 && result[2] == 3 && result[3] == 7);
    }
    CHECK(!operation);
}

static void group_all_reduce(struct bed *bed, enum way way)
{
    float numbers[3] = {1, 2, 3};
    run_collective(bed, way, all_reduce);
    if (way == OUT_OF_RANGE) {
        REFUSED(lacuna_group_all_reduce(bed->group, NULL, numbers, UINT64_MAX, 10, 0, NULL, NULL));
        REFUSED(lacuna_group_all_reduce(bed->group, NULL, numbers, 3, 10, 5, NULL, NULL));
    }
}
static void group_reduce_scatter(struct bed *bed, enum way way)
{
    float numbers[3] = {1, 2, 3};
    run_collective(bed, way, reduce_scatter);
    if (way == OUT_OF_RANGE)
        REFUSED(lacuna_group_reduce_scatter(bed->group, NULL, numbers, 0, odd_count, 10, 0, NULL,
                                            NULL));
}
static void group_all_gather(struct bed *bed, enum way way)
{
    float numbers[3] = {1, 2, 3};
    run_collective(bed, way, all_gather);
    if (way == OUT_OF_RANGE)
        REFUSED(lacuna_group_all_gather(bed->group, NULL, numbers, 0, odd_count, 10, NULL, NULL));
}
static void group_broadcast(struct bed *bed, enum way way)
{
    float numbers[3] = {1, 2, 3};
    run_collective(bed, way, broadcast);
    if (way == OUT_OF_RANGE)
        REFUSED(lacuna_group_broadcast(bed->group, NULL, numbers, 3, 1, 10, NULL, NULL));
}
static void group_reduce(struct bed *bed, enum way way)
{
    float numbers[3] = {1, 2, 3};
    run_collective(bed, way, reduce);
    if (way == OUT_OF_RANGE)
        REFUSED(lacuna_group_reduce(bed->group, NULL, numbers, 3, UINT32_MAX, 10, 0, NULL, NULL));
}
static void group_gather(struct bed *bed, enum way way)
{
    float numbers[3] = {1, 2, 3};
    run_collective(bed, way, gather);
    if (way == OUT_OF_RANGE)
        REFUSED(lacuna_group_gather(bed->group, NULL, numbers, 3, NULL, 1, 10, NULL, NULL));
}
static void group_scatter(struct bed *bed, enum way way)
{
    float numbers[3] = {1, 2, 3};
    run_collective(bed, way, scatter);
    if (way == OUT_OF_RANGE)
        REFUSED(lacuna_group_scatter(bed->group, NULL, numbers, 3, NULL, 1, 10, NULL, NULL));
}
static void group_all_to_all(struct bed *bed, enum way way)
{
    float numbers[3] = {1, 2, 3}, result[3];
    run_collective(bed, way, all_to_all);
    if (way == WITH_NULL)
        REFUSED(lacuna_group_all_to_all(bed->group, NULL, result, 3, NULL, NULL, 10, NULL, NULL));
    if (way == OUT_OF_RANGE)
        REFUSED(lacuna_group_all_to_all(bed->group, numbers, result, 0, one_count, NULL, 10, NULL,
                                        NULL));
}

static void group_exchange(struct bed *bed, enum way way)
{
    float numbers[3] = {1, 2, 3}, result[3];
    const uint32_t none = UINT32_MAX;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_exchange(NULL, numbers, none, 0, result, none, 0, 10, NULL, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_group_exchange(bed->group, numbers, 1, 3, result, none, 0, 10, NULL, NULL));
        REFUSED(lacuna_group_exchange(bed->group, numbers, none, 0, result, 0, 3, 10, NULL, NULL));
        REFUSED(lacuna_group_exchange(bed->group, numbers, none, 0, result, none, 0, 99, NULL,
                                      NULL));
        break;
    default:
        CHECK(lacuna_group_exchange(bed->group, numbers, none, 0, result, none, 0, 10, NULL,
                                    NULL) == LACUNA_OK);
    }
}

static void group_barrier(struct bed *bed, enum way way)
{
    struct lacuna_group_options options;
    memset(&options, 0, sizeof(options));
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_barrier(NULL, NULL, NULL));
        break;
    case OUT_OF_RANGE:
        options.algorithm = "tree";
        REFUSED(lacuna_group_barrier(bed->group, &options, NULL));
        break;
    default:
        CHECK(lacuna_group_barrier(bed->group, NULL, NULL) == LACUNA_OK);
    }
}

static void group_form(struct bed *bed, enum way way)
{
    struct lacuna_group *made = NULL;
    struct lacuna_settings *settings = NULL;
    (void)bed;
    CHECK(lacuna_settings_new(&settings) == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "bind", "127.0.0.1") == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "meeting_timeout_ms", "20") == LACUNA_OK);
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_form(NULL, 0, 1, settings, &made));
        REFUSED(lacuna_group_form("127.0.0.1:1", 0, 1, settings, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_group_form("127.0.0.1:1", 1, 1, settings, &made));
        REFUSED(lacuna_group_form("127.0.0.1:1", 0, 0, settings, &made));
        REFUSED(lacuna_group_form("127.0.0.1:1", 0, UINT32_MAX, settings, &made));
        REFUSED(lacuna_group_form("127.0.0.1", 0, 1, settings, &made));
        REFUSED(lacuna_group_form("\xff\xfe:1", 0, 1, settings, &made));
        CHECK(lacuna_group_form("127.0.0.1:0", 0, 2, settings, &made) == LACUNA_PEER);
        CHECK(lacuna_group_form("127.0.0.1:1", 1, 2, settings, &made) == LACUNA_PEER);
        CHECK(lacuna_settings_set(settings, "mode", "raw") == LACUNA_OK);
        REFUSED(lacuna_group_form("127.0.0.1:1", 0, 1, settings, &made));
        break;
    default:
        CHECK(lacuna_group_form("127.0.0.1:1", 0, 1, settings, &made) == LACUNA_OK && made);
        lacuna_group_free(made);
        made = NULL;
    }
    CHECK(!made);
    lacuna_settings_free(settings);
}

static void group_form_from_environment(struct bed *bed, enum way way)
{
    struct lacuna_group *made = NULL;
    (void)bed;
    if (way == WITH_NULL) {
        REFUSED(lacuna_group_form_from_environment(NULL, NULL));
        return;
    }
    CHECK(lacuna_group_form_from_environment(NULL, &made) == LACUNA_OK && made);
    lacuna_group_free(made);
}

static void group_free(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        lacuna_group_free(NULL);
    else
        group_form(bed, AS_MEANT);
}

static void group_number(struct bed *bed, enum way way, uint32_t expected,
                         int (*get)(struct lacuna_group *, uint32_t *))
{
    uint32_t number = 77;
    if (way == WITH_NULL) {
        REFUSED(get(NULL, &number));
        REFUSED(get(bed->group, NULL));
        CHECK(number == 77);
        return;
    }
    CHECK(get(bed->group, &number) == LACUNA_OK && number == expected);
}
static void group_rank(struct bed *bed, enum way way)
{
    group_number(bed, way, 0, lacuna_group_rank);
}
static void group_ranks(struct bed *bed, enum way way)
{
    group_number(bed, way, 1, lacuna_group_ranks);
}
static void group_failed_rank(struct bed *bed, enum way way)
{
    group_number(bed, way, UINT32_MAX, lacuna_group_failed_rank);
}

static void group_form_again(struct bed *bed, enum way way)
{
    if (way == WITH_NULL)
        REFUSED(lacuna_group_form_again(NULL, 1));
    else
        CHECK(lacuna_group_form_again(bed->group, 1000) == LACUNA_OK);
}

static void group_form_with(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_form_with(NULL, "127.0.0.1:0", 0, 1));
        REFUSED(lacuna_group_form_with(bed->group, NULL, 0, 1));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_group_form_with(bed->group, "", 0, 1));
        REFUSED(lacuna_group_form_with(bed->group, "127.0.0.1:65536", 0, 1));
        REFUSED(lacuna_group_form_with(bed->group, "\xff\xfe:1", 0, 1));
        break;
    default:
        /* Nobody comes. */
        CHECK(lacuna_group_form_with(bed->group, "127.0.0.1:0", UINT32_MAX, 1) == LACUNA_OK);
    }
}

static void group_join(struct bed *bed, enum way way)
{
    struct lacuna_group *made = NULL;
    struct lacuna_settings *settings = NULL;
    (void)bed;
    CHECK(lacuna_settings_new(&settings) == LACUNA_OK);
    CHECK(lacuna_settings_set(settings, "meeting_timeout_ms", "1") == LACUNA_OK);
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_join(NULL, settings, &made));
        REFUSED(lacuna_group_join("127.0.0.1:1", settings, NULL));
        break;
    case OUT_OF_RANGE:
        REFUSED(lacuna_group_join("", settings, &made));
        REFUSED(lacuna_group_join("127.0.0.1:1,127.0.0.1", settings, &made));
        REFUSED(lacuna_group_join("\xff\xfe:1", settings, &made));
        break;
    default:
        /* No group is there. */
        CHECK(lacuna_group_join("127.0.0.1:1", settings, &made) == LACUNA_PEER);
    }
    CHECK(!made);
    lacuna_settings_free(settings);
}

static void group_split(struct bed *bed, enum way way)
{
    struct lacuna_group *part = bed->group;
    int result;
    if (way == WITH_NULL) {
        REFUSED(lacuna_group_split(NULL, 0, 0, &part));
        REFUSED(lacuna_group_split(bed->group, 0, 0, NULL));
        return;
    }
    CHECK(lacuna_group_split(bed->group, -1, 0, &part) == LACUNA_OK && !part);
    result = lacuna_group_split(bed->group, INT64_MAX, INT64_MIN, &part);
    CHECK(result == LACUNA_OK && part);
    lacuna_group_free(part);
}

static void group_operation_free(struct bed *bed, enum way way)
{
    struct lacuna_group_operation *operation = NULL;
    float number = 5;
    int result;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_operation_free(NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_group_operation_free(bed->dead_operation));
        break;
    default:
        CHECK(lacuna_group_all_reduce(bed->group, NULL, &number, 1, LACUNA_ELEMENT_F32, 0, NULL,
                                      &operation) == LACUNA_OK);
        while ((result = lacuna_group_operation_wait(operation, 1000)) == LACUNA_RETRY)
            ;
        /* Another thread may form the group again meanwhile. */
        CHECK(result == LACUNA_OK || result == LACUNA_PEER);
        CHECK(lacuna_group_operation_free(operation) == LACUNA_OK);
    }
}

static void group_operation_poll(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_operation_poll(NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_group_operation_poll(bed->dead_operation));
        break;
    default:
        ANSWERED(lacuna_group_operation_poll(bed->operation));
    }
}

static void group_operation_wait(struct bed *bed, enum way way)
{
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_operation_wait(NULL, 1));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_group_operation_wait(bed->dead_operation, 1));
        break;
    default:
        CHECK(lacuna_group_operation_wait(bed->operation, UINT64_MAX) == LACUNA_OK);
    }
}

static void group_operation_report(struct bed *bed, enum way way)
{
    struct lacuna_group_report report;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_operation_report(NULL, &report));
        REFUSED(lacuna_group_operation_report(bed->operation, NULL));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_group_operation_report(bed->dead_operation, &report));
        break;
    default:
        CHECK(lacuna_group_operation_report(bed->operation, &report) == LACUNA_OK);
        CHECK(report.lost_bytes == 0 && report.straggler_rank == UINT32_MAX);
    }
}

static void group_operation_missing(struct bed *bed, enum way way)
{
    struct lacuna_group_missing missing;
    size_t count = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_operation_missing(NULL, &missing, 1, &count));
        REFUSED(lacuna_group_operation_missing(bed->operation, NULL, 1, &count));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_group_operation_missing(bed->dead_operation, &missing, 1, &count));
        CHECK(count == 77);
        break;
    default:
        CHECK(lacuna_group_operation_missing(bed->operation, &missing, 1, &count) == LACUNA_OK);
        CHECK(lacuna_group_operation_missing(bed->operation, NULL, 0, NULL) == LACUNA_OK);
        CHECK(count == 0);
    }
}

static void group_operation_algorithm(struct bed *bed, enum way way)
{
    char text[20];
    size_t length = 77;
    switch (way) {
    case WITH_NULL:
        REFUSED(lacuna_group_operation_algorithm(NULL, text, sizeof(text), &length));
        REFUSED(lacuna_group_operation_algorithm(bed->operation, NULL, 1, &length));
        break;
    case AFTER_ITS_END:
        REFUSED(lacuna_group_operation_algorithm(bed->dead_operation, text, sizeof(text), &length));
        break;
    default:
        CHECK(lacuna_group_operation_algorithm(bed->operation, text, sizeof(text), &length) ==
                  LACUNA_OK &&
              length == strlen(text) && length > 0);
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
    {"lacuna_receive_post_with", receive_post_with, NULL, LAST, NULL},
    {"lacuna_receive_wait_over", receive_wait_over, NULL, NULL, FITS},
    {"lacuna_receive_take", receive_take, NULL, NULL, FITS},
    {"lacuna_map_packets", map_packets, NULL, LAST, FITS},
    {"lacuna_map_gaps", map_gaps, NULL, LAST, FITS},
    {"lacuna_map_free", map_free, NULL, LAST, FITS},
    {"lacuna_send_start_offered", send_start_offered, NULL, LAST, NULL},
    {"lacuna_send_offer", send_offer, NULL, NULL, NULL},
    {"lacuna_region_new", region_new, NULL, LAST, NULL},
    {"lacuna_region_key", region_key, NULL, LAST, FITS},
    {"lacuna_region_valid", region_valid, NULL, LAST, NULL},
    {"lacuna_region_take_valid", region_take_valid, NULL, LAST, NULL},
    {"lacuna_region_revoke", region_revoke, NULL, LAST, FITS},
    {"lacuna_region_free", region_free, NULL, LAST, FITS},
    {"lacuna_region_window", region_window, NULL, LAST, NULL},
    {"lacuna_window_key", window_key, NULL, LAST, FITS},
    {"lacuna_window_free", window_free, NULL, LAST, FITS},
    {"lacuna_remote_write", remote_write, NULL, LAST, NULL},
    {"lacuna_remote_write_start", remote_write_start, NULL, LAST, NULL},
    {"lacuna_remote_read", remote_read, NULL, LAST, NULL},
    {"lacuna_wait_written", wait_written, NULL, LAST, FITS},
    {"lacuna_connection_class", connection_class, NULL, LAST, NULL},
    {"lacuna_completion_queue_new", completion_queue_new, NULL, LAST, NULL},
    {"lacuna_completion_queue_poll", completion_queue_poll, NULL, LAST, FITS},
    {"lacuna_completion_queue_descriptor", completion_queue_descriptor, NULL, LAST, FITS},
    {"lacuna_completion_queue_arm", completion_queue_arm, NULL, LAST, NULL},
    {"lacuna_completion_queue_free", completion_queue_free, NULL, LAST, FITS},
    {"lacuna_complete_to", complete_to, NULL, LAST, FITS},
    {"lacuna_queue_send", queue_send, NULL, LAST, NULL},
    {"lacuna_queue_receive", queue_receive, NULL, LAST, NULL},
    {"lacuna_queue_remote_write", queue_remote_write, NULL, LAST, NULL},
    {"lacuna_queue_remote_read", queue_remote_read, NULL, LAST, NULL},
    {"lacuna_queue_written", queue_written, NULL, LAST, FITS},
    {"lacuna_map_ranges", map_ranges, NULL, LAST, FITS},
    {"lacuna_address_parse", address_parse, NULL, NONE, NULL},
    {"lacuna_address_text", address_text, NULL, NONE, NULL},
    {"lacuna_address_of", address_of, NULL, NONE, NULL},
    {"lacuna_address_sockaddr", address_sockaddr, NULL, NONE, NULL},
    {"lacuna_datagram_settings_default", datagram_settings_default, NULL, NONE, FITS},
    {"lacuna_datagram_new", datagram_new, NULL, LAST, NULL},
    {"lacuna_datagram_number", datagram_number, NULL, LAST, FITS},
    {"lacuna_datagram_local", datagram_local, NULL, LAST, FITS},
    {"lacuna_datagram_close", datagram_close, NULL, LAST, FITS},
    {"lacuna_datagram_free", datagram_free, NULL, LAST, FITS},
    {"lacuna_datagram_peer", datagram_peer, NULL, LAST, NULL},
    {"lacuna_datagram_group", datagram_group, NULL, LAST, NULL},
    {"lacuna_datagram_forget", datagram_forget, NULL, LAST, NULL},
    {"lacuna_datagram_address", datagram_address, NULL, LAST, NULL},
    {"lacuna_datagram_reset", datagram_reset, NULL, LAST, NULL},
    {"lacuna_datagram_say_sent", datagram_say_sent, NULL, LAST, NULL},
    {"lacuna_datagram_join", datagram_join, NULL, LAST, NULL},
    {"lacuna_datagram_leave", datagram_leave, NULL, LAST, NULL},
    {"lacuna_datagram_name_region", datagram_name_region, NULL, LAST, FITS},
    {"lacuna_datagram_send", datagram_send, NULL, LAST, NULL},
    {"lacuna_datagram_write_record", datagram_write_record, NULL, LAST, NULL},
    {"lacuna_datagram_write_named", datagram_write_named, NULL, LAST, NULL},
    {"lacuna_datagram_read", datagram_read, NULL, LAST, NULL},
    {"lacuna_datagram_receive", datagram_receive, NULL, LAST, NULL},
    {"lacuna_datagram_poll", datagram_poll, NULL, LAST, FITS},
    {"lacuna_datagram_poll_error", datagram_poll_error, NULL, LAST, FITS},
    {"lacuna_datagram_stats_json", datagram_stats_json, NULL, LAST, FITS},
    {"lacuna_group_form", group_form, NULL, NONE, NULL},
    {"lacuna_group_form_from_environment", group_form_from_environment, NULL, NONE, FITS},
    {"lacuna_group_rank", group_rank, NULL, LAST, FITS},
    {"lacuna_group_ranks", group_ranks, NULL, LAST, FITS},
    {"lacuna_group_failed_rank", group_failed_rank, NULL, LAST, FITS},
    {"lacuna_group_form_again", group_form_again, NULL, LAST, FITS},
    {"lacuna_group_form_with", group_form_with, NULL, LAST, NULL},
    {"lacuna_group_join", group_join, NULL, NONE, NULL},
    {"lacuna_group_split", group_split, NULL, LAST, FITS},
    {"lacuna_group_free", group_free, NULL, LAST, FITS},
    {"lacuna_group_all_reduce", group_all_reduce, NULL, LAST, NULL},
    {"lacuna_group_reduce_scatter", group_reduce_scatter, NULL, LAST, NULL},
    {"lacuna_group_all_gather", group_all_gather, NULL, LAST, NULL},
    {"lacuna_group_broadcast", group_broadcast, NULL, LAST, NULL},
    {"lacuna_group_reduce", group_reduce, NULL, LAST, NULL},
    {"lacuna_group_gather", group_gather, NULL, LAST, NULL},
    {"lacuna_group_scatter", group_scatter, NULL, LAST, NULL},
    {"lacuna_group_all_to_all", group_all_to_all, NULL, LAST, NULL},
    {"lacuna_group_exchange", group_exchange, NULL, LAST, NULL},
    {"lacuna_group_barrier", group_barrier, NULL, LAST, NULL},
    {"lacuna_group_operation_poll", group_operation_poll, NULL, NULL, FITS},
    {"lacuna_group_operation_wait", group_operation_wait, NULL, NULL, FITS},
    {"lacuna_group_operation_report", group_operation_report, NULL, NULL, FITS},
    {"lacuna_group_operation_missing", group_operation_missing, NULL, NULL, FITS},
    {"lacuna_group_operation_algorithm", group_operation_algorithm, NULL, NULL, FITS},
    {"lacuna_group_operation_free", group_operation_free, NULL, NULL, FITS},
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
    CHECK((bed->pieces = (unsigned char(*)[PIECE])malloc((size_t)ROOMS * PIECE)));
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
    bed->receive = post_recv(&bed->b, PIECE, MESSAGE);
    (void)post_recv(&bed->b, 2 * PIECE, MESSAGE);
    bed->next_piece = 3;
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
    CHECK(lacuna_settings_set(bed->settings, "one_sided", "on") == LACUNA_OK);
    CHECK(lacuna_settings_set(bed->settings, "classes", "critical") == LACUNA_OK);
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
    {
        struct lacuna_region_options options;
        memset(&options, 0, sizeof(options));
        options.rights = LACUNA_RIGHT_REMOTE_WRITE | LACUNA_RIGHT_REMOTE_READ;
        options.has_validity = 1;
        CHECK((bed->region_bytes = (unsigned char *)calloc(1, PIECE)));
        CHECK(lacuna_region_new(bed->context, bed->region_bytes, PIECE, &options, &bed->region) ==
              LACUNA_OK);
        CHECK(lacuna_region_window(bed->region, 0, 8, 0, &bed->window) == LACUNA_OK);
    }
    CHECK(lacuna_completion_queue_new(bed->context, 64, &bed->queue) == LACUNA_OK);
    CHECK(lacuna_complete_to(bed->near_end, bed->queue) == LACUNA_OK);
    CHECK(lacuna_complete_to(bed->far_end, bed->queue) == LACUNA_OK);
    {
        struct lacuna_datagram_settings settings = datagram_settings();
        uint32_t key = region_key_of(bed);
        CHECK(lacuna_datagram_new(bed->context, &settings, &bed->datagram) == LACUNA_OK);
        CHECK(lacuna_datagram_local(bed->datagram, &bed->datagram_address) == LACUNA_OK);
        CHECK(lacuna_datagram_peer(bed->datagram, &bed->datagram_address, &bed->peer) == LACUNA_OK);
        CHECK(lacuna_datagram_name_region(bed->datagram, 7, &key) == LACUNA_OK);
    }
    {
        CHECK(lacuna_group_form("127.0.0.1:1", 0, 1, bed->settings, &bed->group) == LACUNA_OK);
        CHECK(lacuna_group_all_reduce(bed->group, NULL, bed->numbers, 8, LACUNA_ELEMENT_F32, 0,
                                      NULL, &bed->dead_operation) == LACUNA_OK);
        CHECK(lacuna_group_operation_wait(bed->dead_operation, 10000) == LACUNA_OK);
        CHECK(lacuna_group_operation_free(bed->dead_operation) == LACUNA_OK);
        CHECK(lacuna_group_all_reduce(bed->group, NULL, bed->numbers, 8, LACUNA_ELEMENT_F32, 0,
                                      NULL, &bed->operation) == LACUNA_OK);
        CHECK(lacuna_group_operation_wait(bed->operation, 10000) == LACUNA_OK);
    }
    receive_post(bed, AS_MEANT);
    bed->dead_posted = bed->posted;
    CHECK(lacuna_receive_take(bed->dead_posted, NULL, &bed->map) == LACUNA_OK && bed->map);
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
    lacuna_map_free(bed->map);
    lacuna_connection_free(bed->near_end);
    lacuna_connection_free(bed->far_end);
    make_room(bed);
    lacuna_datagram_free(bed->datagram);
    lacuna_group_free(bed->group);
    lacuna_listener_free(bed->listener);
    lacuna_context_free(bed->context);
    lacuna_settings_free(bed->settings);
    lacuna_completion_queue_free(bed->queue);
    lacuna_region_free(bed->region);
    lacuna_window_free(bed->window);
    free(bed->region_bytes);
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
    struct bed *bed;
    unsigned call;
    /* Before there are threads that read the environment. */
    setenv("LACUNA_RENDEZVOUS", "127.0.0.1:1", 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    bed = make_bed();
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
