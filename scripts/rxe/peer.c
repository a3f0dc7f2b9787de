/* A reliable connection by libibverbs: the peer of `cargo run -p lacuna --example roce_peer`.
 *
 *   peer DEVICE GID_INDEX THEIR_ADDRESS MTU MINE THEIRS
 *
 * Writes how its queue pair is reached to the file MINE, waits for THEIRS, and then
 *   1. takes messages and writes of the other end until a SEND of "done", and checks every byte;
 *   2. does the same to the other end: SEND, WRITE, WRITE with immediate, READ, both atomic operations.
 *
 * A line of the files: QPN PSN RKEY ADDRESS, in decimal. Bytes: message number n has n * 31 + i at place i.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZES = 6, SLOT = 1 << 17, RECEIVES = 32, REGION = SLOT * 16 };
static const int sizes[SIZES] = {1, 8, 1000, 1024, 5000, 100000};

static void fail(const char *what) {
    fprintf(stderr, "peer: %s\n", what);
    exit(1);
}
#define CHECK(is, what) do { if (!(is)) fail(what); } while (0)

static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *region_mr, *inbox_mr, *own_mr;
static unsigned char *region, *inbox, *own;
static unsigned received;

static void fill(unsigned char *to, int n, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(n * 31 + i);
}
static int is_filled(const unsigned char *at, int n, int bytes) {
    for (int i = 0; i < bytes; i++)
        if (at[i] != (unsigned char)(n * 31 + i)) return 0;
    return 1;
}
static void post_receive(int slot) {
    struct ibv_sge sge = {(uintptr_t)(inbox + (size_t)slot * SLOT), SLOT, inbox_mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(!ibv_post_recv(qp, &wr, &bad), "cannot post a receive");
}
static struct ibv_wc next(void) {
    struct ibv_wc wc;
    for (;;) {
        int n = ibv_poll_cq(cq, 1, &wc);
        CHECK(n >= 0, "cannot poll");
        if (n == 1) break;
        usleep(100);
    }
    if (wc.status) {
        fprintf(stderr, "peer: completion %s\n", ibv_wc_status_str(wc.status));
        exit(1);
    }
    return wc;
}
static void work(enum ibv_wr_opcode opcode, void *at, int bytes, uint64_t to, uint32_t key, int n) {
    struct ibv_sge sge = {(uintptr_t)at, bytes, own_mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1000 + n, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wr.imm_data = htonl(n);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = to;
        wr.wr.atomic.rkey = key;
        wr.wr.atomic.compare_add = 5;
        wr.wr.atomic.swap = 77;
    } else {
        wr.wr.rdma.remote_addr = to;
        wr.wr.rdma.rkey = key;
    }
    CHECK(!ibv_post_send(qp, &wr, &bad), "cannot post");
    struct ibv_wc wc = next();
    CHECK(wc.wr_id == 1000u + n, "another completion than expected");
}

int main(int argc, char **argv) {
    CHECK(argc == 7, "usage: peer DEVICE GID_INDEX THEIR_ADDRESS MTU MINE THEIRS");
    int count, gid_index = atoi(argv[2]), mtu_bytes = atoi(argv[4]);
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *context = NULL;
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(list[i]), argv[1])) context = ibv_open_device(list[i]);
    CHECK(context, "no such device");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 256, NULL, NULL, 0);
    CHECK(pd && cq, "no protection domain or completion queue");
    region = calloc(1, REGION), inbox = calloc(RECEIVES, SLOT), own = calloc(1, SLOT);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC;
    region_mr = ibv_reg_mr(pd, region, REGION, access);
    inbox_mr = ibv_reg_mr(pd, inbox, (size_t)RECEIVES * SLOT, IBV_ACCESS_LOCAL_WRITE);
    own_mr = ibv_reg_mr(pd, own, SLOT, IBV_ACCESS_LOCAL_WRITE);
    CHECK(region_mr && inbox_mr && own_mr, "cannot register memory");
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 16, .max_recv_wr = 64,
                                            .max_send_sge = 1, .max_recv_sge = 1}};
    qp = ibv_create_qp(pd, &init);
    CHECK(qp, "cannot create a queue pair");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                        IBV_QP_ACCESS_FLAGS), "INIT");
    for (int slot = 0; slot < RECEIVES; slot++) post_receive(slot);
    for (int n = 0; n < SIZES; n++) fill(region + (size_t)(8 + n) * SLOT, 50 + n, sizes[n]);

    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.new", argv[5]);
    FILE *file = fopen(temporary, "w");
    CHECK(file, "cannot write");
    unsigned psn = 0xfffff0;
    fprintf(file, "%u %u %u %llu\n", qp->qp_num, psn, region_mr->rkey,
            (unsigned long long)(uintptr_t)region);
    fclose(file);
    CHECK(!rename(temporary, argv[5]), "cannot rename");
    unsigned their_qpn, their_psn, their_key;
    unsigned long long their_address;
    while (!(file = fopen(argv[6], "r"))) usleep(10000);
    CHECK(fscanf(file, "%u %u %u %llu", &their_qpn, &their_psn, &their_key, &their_address) == 4,
          "cannot read the other end");
    fclose(file);

    enum ibv_mtu mtu = mtu_bytes == 256 ? IBV_MTU_256 : mtu_bytes == 512 ? IBV_MTU_512
                     : mtu_bytes == 1024 ? IBV_MTU_1024 : mtu_bytes == 2048 ? IBV_MTU_2048
                                                                            : IBV_MTU_4096;
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = their_qpn,
                                .rq_psn = their_psn, .max_dest_rd_atomic = 16, .min_rnr_timer = 12,
                                .ah_attr = {.is_global = 1, .port_num = 1,
                                            .grh = {.sgid_index = gid_index, .hop_limit = 64}}};
    unsigned char *gid = attr.ah_attr.grh.dgid.raw;
    struct in_addr v4;
    if (inet_pton(AF_INET, argv[3], &v4) == 1) {
        gid[10] = gid[11] = 0xff;
        memcpy(gid + 12, &v4, 4);
    } else {
        CHECK(inet_pton(AF_INET6, argv[3], gid) == 1, "no address");
    }
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                        IBV_QP_MIN_RNR_TIMER), "RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = 17,
                                .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                        IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                        IBV_QP_MAX_QP_RD_ATOMIC), "RTS");

    unsigned with_immediate = 0, messages = 0;
    for (;;) {
        struct ibv_wc wc = next();
        unsigned char *at = inbox + (size_t)wc.wr_id * SLOT;
        received++;
        if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
            unsigned n = ntohl(wc.imm_data);
            CHECK(n < SIZES && wc.byte_len == (unsigned)sizes[n], "wrong immediate or length");
            CHECK(is_filled(region + (size_t)n * SLOT, n, sizes[n]), "wrong bytes written");
            with_immediate++;
        } else if (wc.byte_len == 4 && !memcmp(at, "done", 4)) {
            post_receive(wc.wr_id);
            break;
        } else {
            unsigned n = messages++ % SIZES;
            CHECK(wc.byte_len == (unsigned)sizes[n] && is_filled(at, n, sizes[n]), "wrong message");
        }
        post_receive(wc.wr_id);
    }
    printf("peer: took %u messages, %u writes with immediate\n", messages, with_immediate);
    CHECK(messages >= SIZES && with_immediate >= SIZES, "too few");

    for (int round = 0; round < 20; round++) {
        for (int n = 0; n < SIZES; n++) {
            uint64_t to = their_address + (uint64_t)n * SLOT;
            fill(own, n, sizes[n]);
            work(IBV_WR_RDMA_WRITE, own, sizes[n], to, their_key, n);
            work(IBV_WR_RDMA_WRITE_WITH_IMM, own, sizes[n], to, their_key, n);
            work(IBV_WR_SEND, own, sizes[n], 0, 0, n);
            memset(own, 0, SLOT);
            work(IBV_WR_RDMA_READ, own, sizes[n], to, their_key, n);
            CHECK(is_filled(own, n, sizes[n]), "read something else");
        }
    }
    uint64_t word, at = their_address + 7ull * SLOT;
    work(IBV_WR_ATOMIC_FETCH_AND_ADD, own, 8, at, their_key, 0);
    memcpy(&word, own, 8);
    CHECK(word == 0, "fetched something else");
    work(IBV_WR_ATOMIC_CMP_AND_SWP, own, 8, at, their_key, 0);
    memcpy(&word, own, 8);
    CHECK(word == 5, "found something else");
    work(IBV_WR_RDMA_READ, own, 8, at, their_key, 0);
    memcpy(&word, own, 8);
    CHECK(word == 77, "swapped something else");
    memcpy(own, "done", 4);
    work(IBV_WR_SEND, own, 4, 0, 0, 0);
    printf("peer: did %d of each operation, and the atomic ones\n", 20 * SIZES);
    return 0;
}
