/* An unreliable connection (UC) by libibverbs: the peer of `cargo run -p lacuna --example roce_writes`.
 *
 *   uc_peer DEVICE GID_INDEX THEIR_ADDRESS MINE THEIRS
 *
 * Takes WRITEs with immediate, each of which writes message n to slot n, until one has the immediate
 * 0xffffffff; each must be whole. Then sends 1,000 such WRITEs. Files as in peer.c, and MINE.ready once it can
 * receive: what comes before is lost.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITES = 1000, SLOTS = 1024, SLOT = 1024, RECEIVES = 1100 };

static void fail(const char *what) {
    fprintf(stderr, "peer: %s\n", what);
    exit(1);
}
#define CHECK(is, what) do { if (!(is)) fail(what); } while (0)

static int bytes_of(unsigned n) { return 1 + n * 7 % SLOT; }
static unsigned char byte_of(unsigned n, int i) { return (unsigned char)(n * 31 + i); }

int main(int argc, char **argv) {
    CHECK(argc == 6, "usage: uc_peer DEVICE GID_INDEX THEIR_ADDRESS MINE THEIRS");
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    struct ibv_context *context = NULL;
    for (int i = 0; i < count; i++)
        if (!strcmp(ibv_get_device_name(list[i]), argv[1])) context = ibv_open_device(list[i]);
    CHECK(context, "no such device");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4096, NULL, NULL, 0);
    CHECK(pd && cq, "no protection domain or completion queue");
    unsigned char *region = calloc(SLOTS, SLOT), *own = calloc(1, SLOT);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv_reg_mr(pd, region, SLOTS * SLOT, access);
    struct ibv_mr *own_mr = ibv_reg_mr(pd, own, SLOT, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && own_mr, "cannot register memory");
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UC,
                                    .cap = {.max_send_wr = 16, .max_recv_wr = RECEIVES,
                                            .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp, "cannot create a queue pair");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                        IBV_QP_ACCESS_FLAGS), "INIT");
    struct ibv_recv_wr receive = {0}, *bad_receive;
    for (int i = 0; i < RECEIVES; i++)
        CHECK(!ibv_post_recv(qp, &receive, &bad_receive), "cannot post a receive");
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.new", argv[4]);
    FILE *file = fopen(temporary, "w");
    CHECK(file, "cannot write");
    fprintf(file, "%u %u %u %llu\n", qp->qp_num, 5, mr->rkey, (unsigned long long)(uintptr_t)region);
    fclose(file);
    CHECK(!rename(temporary, argv[4]), "cannot rename");
    unsigned their_qpn, their_psn, their_key;
    unsigned long long their_address;
    while (!(file = fopen(argv[5], "r"))) usleep(10000);
    CHECK(fscanf(file, "%u %u %u %llu", &their_qpn, &their_psn, &their_key, &their_address) == 4,
          "cannot read the other end");
    fclose(file);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = their_qpn, .rq_psn = their_psn,
                                .ah_attr = {.is_global = 1, .port_num = 1,
                                            .grh = {.sgid_index = atoi(argv[2]), .hop_limit = 64}}};
    unsigned char *gid = attr.ah_attr.grh.dgid.raw;
    struct in_addr v4;
    if (inet_pton(AF_INET, argv[3], &v4) == 1) {
        gid[10] = gid[11] = 0xff;
        memcpy(gid + 12, &v4, 4);
    } else {
        CHECK(inet_pton(AF_INET6, argv[3], gid) == 1, "no address");
    }
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                        IBV_QP_RQ_PSN), "RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 5};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
    snprintf(temporary, sizeof temporary, "%s.ready", argv[4]);
    CHECK(file = fopen(temporary, "w"), "cannot write");
    fclose(file);

    unsigned whole = 0;
    static char came[WRITES];
    for (;;) {
        struct ibv_wc wc;
        int n = ibv_poll_cq(cq, 1, &wc);
        if (n == 0) { usleep(100); continue; }
        CHECK(n == 1 && wc.status == IBV_WC_SUCCESS, "a bad completion");
        CHECK(!ibv_post_recv(qp, &receive, &bad_receive), "cannot post a receive");
        unsigned number = ntohl(wc.imm_data);
        if (number == 0xffffffff) break;
        CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && number < WRITES, "an unknown immediate");
        CHECK(wc.byte_len == (unsigned)bytes_of(number), "a wrong length");
        for (int i = 0; i < bytes_of(number); i++)
            CHECK(region[number % SLOTS * SLOT + i] == byte_of(number, i), "a wrong byte");
        whole++;
        came[number] = 1;
    }
    printf("peer: %u writes came whole\n", whole);
    for (unsigned n = 0, from = 0; n <= WRITES && whole < WRITES; n++)
        if (n == WRITES || came[n]) {
            if (from < n) printf("peer: %u to %u are missing\n", from, n - 1);
            from = n + 1;
        }
    CHECK(whole == WRITES, "not as many as were sent, or one that should have vanished");
    for (unsigned n = 0; n <= WRITES; n++) {
        int bytes = n < WRITES ? bytes_of(n) : 1;
        for (int i = 0; i < bytes; i++) own[i] = byte_of(n, i);
        struct ibv_sge sge = {(uintptr_t)own, bytes, own_mr->lkey};
        struct ibv_send_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                 .send_flags = IBV_SEND_SIGNALED}, *bad;
        wr.imm_data = htonl(n < WRITES ? n : 0xffffffff);
        wr.wr.rdma.remote_addr = their_address + n % SLOTS * SLOT;
        wr.wr.rdma.rkey = their_key;
        CHECK(!ibv_post_send(qp, &wr, &bad), "cannot post");
        struct ibv_wc wc;
        int got;
        while (!(got = ibv_poll_cq(cq, 1, &wc))) usleep(50);
        CHECK(got == 1 && wc.status == IBV_WC_SUCCESS, "a write failed");
        // There is no flow control.
        usleep(300);
    }
    printf("peer: sent %u writes\n", WRITES);
    return 0;
}
