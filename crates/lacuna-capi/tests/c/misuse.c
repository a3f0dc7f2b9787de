/* Every call with NULL, with objects whose use has ended, with wrong infos, keys,
 * sizes and numbers: an error with a text, and no output written. Then from
 * several threads at once, with a queue pair that is destroyed meanwhile. */

#include <pthread.h>

#include "pair.h"

static void nulls(void)
{
    struct sdr_qp_attr attr = pair_attr();
    struct sdr_dev_attr dev = {1, 0};
    struct end end = make_end("udp:127.0.0.1", &attr);
    struct sdr_recv_wr recv;
    struct sdr_send_wr send = send_wr(&end, 0, 8);
    struct sdr_send_start_wr start = {SDR_WR_WRITE, 0};
    struct sdr_send_continue_wr part = {8, 0, 0, 0};
    struct sdr_recv_handle *receive = post_recv(&end, 0, 100);
    struct sdr_send_handle *sending = NULL;
    uint8_t *bits = NULL;
    size_t size = 0;
    int flag = 0;
    uint32_t number = 7;
    char info[4000];
    memset(&recv, 0, sizeof(recv));

    CHECK(!sdr_context_create("udp", NULL) && strstr(lacuna_last_error(), "dev_attr is NULL"));
    CHECK(!sdr_context_create("mlx5_0", &dev) && strstr(lacuna_last_error(), "udp:ADDRESS"));
    CHECK(!sdr_context_create("udp:203.0.113.7", &dev));
    CHECK(!sdr_qp_create(NULL, &attr) && !sdr_qp_create(end.context, NULL));
    CHECK(!sdr_mr_reg(NULL, info, 4, SDR_ACCESS_REMOTE_WRITE));
    CHECK(!sdr_mr_reg(end.context, NULL, 4, SDR_ACCESS_REMOTE_WRITE));
    CHECK(!sdr_mr_reg(end.context, info, 0, SDR_ACCESS_REMOTE_WRITE));
    CHECK(!sdr_mr_reg(end.context, info, (size_t)-1, SDR_ACCESS_REMOTE_WRITE));
    CHECK_ERROR(sdr_context_destroy(NULL), "NULL");
    CHECK_ERROR(sdr_qp_destroy(NULL), "qp is NULL");
    CHECK_ERROR(sdr_qp_info_size_get(NULL, &size), "qp is NULL");
    CHECK_ERROR(sdr_qp_info_size_get(end.qp, NULL), "info_size is NULL");
    CHECK_ERROR(sdr_qp_info_get(NULL, info), "qp is NULL");
    CHECK_ERROR(sdr_qp_info_get(end.qp, NULL), "info is NULL");
    CHECK_ERROR(sdr_qp_connect(NULL, info), "qp is NULL");
    CHECK_ERROR(sdr_qp_connect(end.qp, NULL), "remote_qp_info is NULL");
    CHECK_ERROR(sdr_recv_post(NULL, &recv, &receive), "qp is NULL");
    CHECK_ERROR(sdr_recv_post(end.qp, NULL, &receive), "wr is NULL");
    CHECK_ERROR(sdr_recv_post(end.qp, &recv, NULL), "handle is NULL");
    CHECK_ERROR(sdr_recv_imm_get(NULL, &number), "handle is NULL");
    CHECK_ERROR(sdr_recv_imm_get(receive, NULL), "immediate is NULL");
    CHECK_ERROR(sdr_recv_bitmap_get(NULL, &bits, &size), "handle is NULL");
    CHECK_ERROR(sdr_recv_bitmap_get(receive, NULL, &size), "bitmap_bytes is NULL");
    CHECK_ERROR(sdr_recv_bitmap_get(receive, &bits, NULL), "bitmap_num_bytes is NULL");
    CHECK_ERROR(sdr_recv_bitmap_chunk_expand(NULL, 0, (uint64_t *)info), "handle is NULL");
    CHECK_ERROR(sdr_recv_bitmap_chunk_expand(receive, 0, NULL), "bitmap is NULL");
    CHECK_ERROR(sdr_recv_complete(NULL), "handle is NULL");
    CHECK_ERROR(sdr_send_post(NULL, &send, &sending), "qp is NULL");
    CHECK_ERROR(sdr_send_post(end.qp, NULL, &sending), "wr is NULL");
    CHECK_ERROR(sdr_send_post(end.qp, &send, NULL), "handle is NULL");
    CHECK_ERROR(sdr_streaming_send_start(NULL, &start, &sending), "qp is NULL");
    CHECK_ERROR(sdr_streaming_send_start(end.qp, NULL, &sending), "wr is NULL");
    CHECK_ERROR(sdr_streaming_send_start(end.qp, &start, NULL), "handle is NULL");
    CHECK_ERROR(sdr_streaming_send_continue(NULL, &part), "handle is NULL");
    CHECK_ERROR(sdr_streaming_send_end(NULL), "handle is NULL");
    CHECK_ERROR(sdr_send_poll(NULL, &flag, NULL), "handle is NULL");
    CHECK_ERROR(sdr_mr_dereg(NULL), "mr is NULL");
    CHECK_ERROR(sdr_mr_lkey_get(NULL, &number), "mr is NULL");
    CHECK_ERROR(sdr_mr_lkey_get(end.mr, NULL), "lkey is NULL");
    CHECK_ERROR(sdr_mr_rkey_get(end.mr, NULL), "rkey is NULL");
    /* Nothing of this has written an output. */
    CHECK(number == 7 && size == 0 && !bits && !flag && !sending);
    /* Misaligned. */
    CHECK_ERROR(sdr_recv_imm_get(receive, (uint32_t *)(info + 1)), "aligned");
    end_pair(&end);
}

static void attributes(void)
{
    struct sdr_qp_attr attr = pair_attr();
    struct end end = make_end("mem", &attr);
    attr.mtu = (enum sdr_mtu)77;
    CHECK(!sdr_qp_create(end.context, &attr) && strstr(lacuna_last_error(), "mtu 77"));
    attr = pair_attr();
    attr.bitmap_chunk_size_log_bytes = 9;
    CHECK(!sdr_qp_create(end.context, &attr) && strstr(lacuna_last_error(), "must be 10"));
    attr.bitmap_chunk_size_log_bytes = 4000000000u;
    CHECK(!sdr_qp_create(end.context, &attr));
    attr = pair_attr();
    attr.max_log_num_msgs = 40;
    CHECK(!sdr_qp_create(end.context, &attr) && strstr(lacuna_last_error(), "max_log_num_msgs"));
    attr = pair_attr();
    attr.max_in_flight_log_bytes = (size_t)-1;
    CHECK(sdr_qp_create(end.context, &attr));
    end_pair(&end);
}

static void connecting(void)
{
    struct sdr_qp_attr attr = pair_attr();
    struct end a = make_end("udp:127.0.0.1", &attr), b = make_end("udp:127.0.0.1", &attr), c;
    struct sdr_send_wr wr = send_wr(&a, 0, 100);
    struct sdr_send_handle *sending = NULL;
    unsigned char *info;
    size_t size = 0, at;
    CHECK(sdr_qp_info_size_get(a.qp, &size) == SDR_SUCCESS);
    info = (unsigned char *)malloc(size);
    CHECK_ERROR(sdr_send_post(a.qp, &wr, &sending), "not connected");
    for (at = 0; at < size; at++)
        info[at] = (unsigned char)(at * 37);
    CHECK_ERROR(sdr_qp_connect(a.qp, info), "no info of a queue pair");
    memset(info, 0, size);
    CHECK_ERROR(sdr_qp_connect(a.qp, info), "");
    memset(info, 0xff, size);
    CHECK_ERROR(sdr_qp_connect(a.qp, info), "");
    attr.mtu = SDR_MTU_512;
    c = make_end("udp:127.0.0.1", &attr);
    CHECK(sdr_qp_info_get(c.qp, info) == SDR_SUCCESS);
    CHECK_ERROR(sdr_qp_connect(a.qp, info), "do not agree on the MTU");
    connect_ends(&a, &b);
    CHECK(sdr_qp_info_get(b.qp, info) == SDR_SUCCESS);
    CHECK_ERROR(sdr_qp_connect(a.qp, info), "connected already");
    /* Each byte of an info changed: refused or taken, never a crash. */
    CHECK(sdr_qp_info_get(b.qp, info) == SDR_SUCCESS);
    attr = pair_attr();
    for (at = 0; at < 120; at++) {
        struct sdr_qp *fresh = sdr_qp_create(c.context, &attr);
        CHECK(fresh);
        info[at] ^= 0x5a;
        (void)sdr_qp_connect(fresh, info);
        info[at] ^= 0x5a;
        CHECK(sdr_qp_destroy(fresh) == SDR_SUCCESS);
    }
    free(info);
    end_pair(&a);
    end_pair(&b);
    end_pair(&c);
}

static void ranges(void)
{
    struct sdr_qp_attr attr = pair_attr(), sends = pair_attr(), receives = pair_attr();
    struct end a = make_end("udp:127.0.0.1", &attr), b = make_end("udp:127.0.0.1", &attr);
    struct sdr_send_wr wr = send_wr(&a, 0, 100);
    struct sdr_recv_wr recv;
    struct sdr_send_start_wr start = {SDR_WR_WRITE, 0};
    struct sdr_send_continue_wr part;
    struct sdr_send_handle *sending = NULL, *stream = NULL;
    struct sdr_recv_handle *receive = NULL, *posted;
    struct sdr_qp *other;
    int flag = 0;
    connect_ends(&a, &b);
    posted = post_recv(&b, 0, 50000);

    wr.lkey++;
    CHECK_ERROR(sdr_send_post(a.qp, &wr, &sending), "no memory is registered");
    wr = send_wr(&a, MEMORY_BYTES - 99, 100);
    CHECK_ERROR(sdr_send_post(a.qp, &wr, &sending), "outside of the region");
    wr.local_addr = UINT64_MAX;
    CHECK_ERROR(sdr_send_post(a.qp, &wr, &sending), "outside of the region");
    wr = send_wr(&a, 0, 100);
    wr.opcode = (enum sdr_wr_opcode)9;
    CHECK_ERROR(sdr_send_post(a.qp, &wr, &sending), "opcode 9");
    wr = send_wr(&a, 0, 100);
    wr.remote_offset = UINT64_MAX;
    CHECK_ERROR(sdr_send_post(a.qp, &wr, &sending), "remote_offset");
    recv.max_length = 10;
    recv.lkey = 0;
    recv.address = (uint64_t)(uintptr_t)b.memory;
    CHECK_ERROR(sdr_recv_post(b.qp, &recv, &receive), "no memory is registered");
    recv.lkey = b.lkey;
    recv.max_length = UINT32_MAX;
    CHECK_ERROR(sdr_recv_post(b.qp, &recv, &receive), "outside of the region");
    CHECK_ERROR(sdr_recv_bitmap_chunk_expand(posted, 7, (uint64_t *)(void *)a.memory),
                "chunk 7 of a receive of 7 chunks");

    /* More than the receive that it would land in. */
    wr = send_wr(&a, 0, 50001);
    int result;
    while ((result = sdr_send_post(a.qp, &wr, &sending)) == SDR_RETRY)
        ;
    CHECK(result == SDR_ERROR && strstr(lacuna_last_error(), "does not fit"));
    CHECK(sdr_streaming_send_start(a.qp, &start, &stream) == SDR_SUCCESS);
    CHECK_ERROR(sdr_streaming_send_continue(stream, NULL), "wr is NULL");
    memset(&part, 0, sizeof(part));
    part.length = 100;
    part.lkey = a.lkey + 1;
    part.local_addr = (uint64_t)(uintptr_t)a.memory;
    CHECK_ERROR(sdr_streaming_send_continue(stream, &part), "no memory is registered");
    part.lkey = a.lkey;
    part.remote_offset = 1u << 20;
    CHECK_ERROR(sdr_streaming_send_continue(stream, &part), "does not fit");
    part.remote_offset = UINT64_MAX / 2;
    CHECK_ERROR(sdr_streaming_send_continue(stream, &part), "remote_offset");
    /* A streaming send that was not ended is not complete; then it takes no more. */
    CHECK(sdr_send_poll(stream, &flag, NULL) == SDR_RETRY);
    CHECK(sdr_streaming_send_end(stream) == SDR_SUCCESS);
    CHECK_ERROR(sdr_streaming_send_end(stream), "was ended");
    part.remote_offset = 0;
    CHECK_ERROR(sdr_streaming_send_continue(stream, &part), "was ended");
    finish_send(stream);
    finish_send(stream);

    sends.recv_enable = 0;
    receives.send_enable = 0;
    other = sdr_qp_create(a.context, &sends);
    recv.max_length = 10;
    recv.lkey = a.lkey;
    recv.address = (uint64_t)(uintptr_t)a.memory;
    CHECK_ERROR(sdr_recv_post(other, &recv, &receive), "without recv_enable");
    CHECK(sdr_qp_destroy(other) == SDR_SUCCESS);
    other = sdr_qp_create(a.context, &receives);
    wr = send_wr(&a, 0, 100);
    CHECK_ERROR(sdr_send_post(other, &wr, &sending), "without send_enable");
    CHECK(!sending && !receive);
    end_pair(&a);
    end_pair(&b);
}

static void after_the_end(void)
{
    struct sdr_qp_attr attr = pair_attr();
    struct end a = make_end("udp:127.0.0.1", &attr), b = make_end("udp:127.0.0.1", &attr);
    struct sdr_recv_handle *receive, *open;
    struct sdr_send_handle *sent, *late = NULL;
    struct sdr_send_wr wr = send_wr(&a, 0, 20000);
    struct sdr_mr *other;
    uint8_t *bits = NULL;
    size_t size = 0;
    uint32_t number = 0;
    int flag = 0, posts;
    connect_ends(&a, &b);
    receive = post_recv(&b, 0, 20000);
    CHECK(sdr_mr_dereg(b.mr) == SDR_RETRY);
    sent = post_send(&a, &wr);
    finish_send(sent);
    while (!has_chunks(receive, 3))
        ;
    CHECK(sdr_recv_complete(receive) == SDR_SUCCESS);
    CHECK_ERROR(sdr_recv_complete(receive), "was completed");
    CHECK_ERROR(sdr_recv_bitmap_get(receive, &bits, &size), "was completed");
    CHECK_ERROR(sdr_recv_imm_get(receive, &number), "was completed");
    CHECK_ERROR(sdr_recv_bitmap_chunk_expand(receive, 0, (uint64_t *)(void *)a.memory),
                "was completed");
    finish_send(sent);

    other = sdr_mr_reg(a.context, a.memory, 100, SDR_ACCESS_REMOTE_WRITE);
    CHECK(sdr_mr_rkey_get(other, &number) == SDR_SUCCESS && number != a.lkey);
    CHECK(sdr_mr_dereg(other) == SDR_SUCCESS);
    CHECK_ERROR(sdr_mr_dereg(other), "registered no more");
    CHECK_ERROR(sdr_mr_lkey_get(other, &number), "registered no more");
    wr.lkey = number;
    wr.length = 10;
    CHECK_ERROR(sdr_send_post(a.qp, &wr, &late), "no memory is registered");

    /* As many receives as there can be. */
    for (posts = 0;; posts++) {
        struct sdr_recv_wr recv;
        recv.max_length = 8;
        recv.lkey = b.lkey;
        recv.address = (uint64_t)(uintptr_t)b.memory;
        if (sdr_recv_post(b.qp, &recv, &receive) == SDR_RETRY)
            break;
        CHECK(posts < 2000);
    }
    CHECK(posts >= 1 << MESSAGES_LOG);

    /* The peer goes: our calls still answer. */
    open = post_recv(&a, 1000, 100);
    CHECK(sdr_qp_destroy(b.qp) == SDR_SUCCESS);
    CHECK_ERROR(sdr_qp_destroy(b.qp), "was destroyed");
    CHECK_ERROR(sdr_recv_complete(receive), "was completed");
    CHECK_ERROR(sdr_qp_info_get(b.qp, a.memory), "was destroyed");
    wr = send_wr(&a, 0, 8);
    for (posts = 0; posts < 100000; posts++) {
        CHECK(sdr_recv_imm_get(open, &number) == SDR_RETRY);
        CHECK(sdr_send_post(a.qp, &wr, &late) != SDR_ERROR);
    }
    CHECK(sdr_qp_destroy(a.qp) == SDR_SUCCESS);
    CHECK_ERROR(sdr_recv_complete(open), "was completed");
    CHECK_ERROR(sdr_send_post(a.qp, &wr, &late), "was destroyed");
    if (late)
        CHECK_ERROR(sdr_send_poll(late, &flag, NULL), "");
    end_pair(&a);
    end_pair(&b);
}

/* ---- from several threads at once ---- */

enum { ROUNDS = 400 };

static struct end left, right;
static struct sdr_recv_handle *shared_receive;
static struct sdr_send_handle *shared_send;
/* Pieces of memory that were posted: no two receives share one. */
static unsigned posted;
enum { PIECE = 32768 };

static void *receiver(void *unused)
{
    int round;
    (void)unused;
    for (round = 0; round < ROUNDS; round++) {
        struct sdr_recv_handle *handle = NULL;
        struct sdr_recv_wr wr;
        uint8_t *bits = NULL;
        size_t size = 0;
        uint32_t number;
        uint64_t packets[64];
        wr.max_length = 30000;
        wr.lkey = right.lkey;
        wr.address = (uint64_t)(uintptr_t)right.memory +
                     __atomic_fetch_add(&posted, 1, __ATOMIC_SEQ_CST) % (MEMORY_BYTES / PIECE) * PIECE;
        if (sdr_recv_post(right.qp, &wr, &handle) == SDR_SUCCESS)
            PUT(shared_receive, handle);
        handle = GET(shared_receive);
        (void)sdr_recv_bitmap_get(handle, &bits, &size);
        (void)sdr_recv_imm_get(handle, &number);
        (void)sdr_recv_bitmap_chunk_expand(handle, 0, packets);
        if (round % 3 == 0)
            (void)sdr_recv_complete(handle);
    }
    return NULL;
}

static void *sender(void *unused)
{
    int round;
    (void)unused;
    for (round = 0; round < ROUNDS; round++) {
        struct sdr_send_handle *handle = NULL;
        struct sdr_send_wr wr = send_wr(&left, 0, 30000);
        struct sdr_send_start_wr start = {SDR_WR_WRITE_WITH_IMM, 5};
        struct sdr_send_continue_wr part;
        int flag = 0;
        memset(&part, 0, sizeof(part));
        part.length = 8192;
        part.lkey = left.lkey;
        part.local_addr = wr.local_addr;
        if (round % 2 ? sdr_send_post(left.qp, &wr, &handle) == SDR_SUCCESS
                      : sdr_streaming_send_start(left.qp, &start, &handle) == SDR_SUCCESS)
            PUT(shared_send, handle);
        handle = GET(shared_send);
        (void)sdr_streaming_send_continue(handle, &part);
        (void)sdr_send_poll(handle, &flag, NULL);
        (void)sdr_streaming_send_end(handle);
    }
    return NULL;
}

static void threads(void)
{
    struct sdr_qp_attr attr = pair_attr();
    pthread_t running[6];
    struct sdr_qp *dying;
    int i;
    left = make_end("udp:127.0.0.1", &attr);
    right = make_end("udp:127.0.0.1", &attr);
    connect_ends(&left, &right);
    for (i = 0; i < 6; i++)
        CHECK(pthread_create(&running[i], NULL, i % 2 ? receiver : sender, NULL) == 0);
    for (i = 0; i < 6; i++)
        CHECK(pthread_join(running[i], NULL) == 0);
    /* Again, with a queue pair that goes in between. */
    for (i = 0; i < 6; i++)
        CHECK(pthread_create(&running[i], NULL, i % 2 ? receiver : sender, NULL) == 0);
    dying = right.qp;
    CHECK(sdr_qp_destroy(dying) == SDR_SUCCESS);
    CHECK(sdr_qp_destroy(left.qp) == SDR_SUCCESS);
    for (i = 0; i < 6; i++)
        CHECK(pthread_join(running[i], NULL) == 0);
    end_pair(&left);
    end_pair(&right);
}

int main(void)
{
    CHECK(strlen(lacuna_last_error()) == 0);
    nulls();
    attributes();
    connecting();
    ranges();
    after_the_end();
    threads();
    puts("all misuse answered");
    return 0;
}
