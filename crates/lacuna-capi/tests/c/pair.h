/* Two connected queue pairs in one process. */

#ifndef PAIR_H
#define PAIR_H

#include "check.h"

struct end {
    struct sdr_context *context;
    struct sdr_qp *qp;
    struct sdr_mr *mr;
    unsigned char *memory;
    uint32_t lkey;
};

enum { MEMORY_BYTES = 4 << 20, CHUNK_LOG = 13, MESSAGES_LOG = 4 };

static inline struct sdr_qp_attr pair_attr(void)
{
    struct sdr_qp_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.bitmap_chunk_size_log_bytes = CHUNK_LOG;
    attr.max_in_flight_log_bytes = 22;
    attr.max_log_num_msgs = MESSAGES_LOG;
    attr.mtu = SDR_MTU_1024;
    attr.send_enable = 1;
    attr.recv_enable = 1;
    return attr;
}

static inline struct end make_end(const char *device, struct sdr_qp_attr *attr)
{
    struct sdr_dev_attr dev;
    struct end end;
    memset(&dev, 0, sizeof(dev));
    dev.num_channels = 2;
    end.context = sdr_context_create(device, &dev);
    CHECK(end.context);
    end.qp = sdr_qp_create(end.context, attr);
    CHECK(end.qp);
    end.memory = (unsigned char *)calloc(1, MEMORY_BYTES);
    CHECK(end.memory);
    end.mr = sdr_mr_reg(end.context, end.memory, MEMORY_BYTES, SDR_ACCESS_REMOTE_WRITE);
    CHECK(end.mr);
    CHECK(sdr_mr_lkey_get(end.mr, &end.lkey) == SDR_SUCCESS);
    return end;
}

static inline void connect_ends(struct end *a, struct end *b)
{
    size_t size = 0;
    void *info;
    CHECK(sdr_qp_info_size_get(a->qp, &size) == SDR_SUCCESS);
    info = malloc(size);
    CHECK(sdr_qp_info_get(a->qp, info) == SDR_SUCCESS);
    CHECK(sdr_qp_connect(b->qp, info) == SDR_SUCCESS);
    CHECK(sdr_qp_info_get(b->qp, info) == SDR_SUCCESS);
    CHECK(sdr_qp_connect(a->qp, info) == SDR_SUCCESS);
    free(info);
}

static inline struct sdr_recv_handle *post_recv(struct end *end, size_t at, uint32_t length)
{
    struct sdr_recv_handle *handle = NULL;
    struct sdr_recv_wr wr;
    wr.max_length = length;
    wr.lkey = end->lkey;
    wr.address = (uint64_t)(uintptr_t)(end->memory + at);
    CHECK(sdr_recv_post(end->qp, &wr, &handle) == SDR_SUCCESS);
    CHECK(handle);
    return handle;
}

static inline struct sdr_send_wr send_wr(struct end *end, size_t at, uint32_t length)
{
    struct sdr_send_wr wr;
    memset(&wr, 0, sizeof(wr));
    wr.opcode = SDR_WR_WRITE;
    wr.length = length;
    wr.lkey = end->lkey;
    wr.local_addr = (uint64_t)(uintptr_t)(end->memory + at);
    return wr;
}

static inline struct sdr_send_handle *post_send(struct end *end, struct sdr_send_wr *wr)
{
    struct sdr_send_handle *handle = NULL;
    int result;
    while ((result = sdr_send_post(end->qp, wr, &handle)) == SDR_RETRY)
        ;
    CHECK(result == SDR_SUCCESS);
    return handle;
}

static inline void finish_send(struct sdr_send_handle *handle)
{
    int completed = 0, result;
    while ((result = sdr_send_poll(handle, &completed, NULL)) == SDR_RETRY)
        CHECK(!completed);
    CHECK(result == SDR_SUCCESS && completed);
}

/* Whether the first chunks of a receive are here. */
static inline int has_chunks(struct sdr_recv_handle *handle, size_t chunks)
{
    uint8_t *bitmap = NULL;
    size_t count = 0, chunk;
    CHECK(sdr_recv_bitmap_get(handle, &bitmap, &count) == SDR_SUCCESS);
    CHECK(count >= (chunks + 7) / 8);
    for (chunk = 0; chunk < chunks; chunk++)
        if (!(GET(bitmap[chunk / 8]) >> chunk % 8 & 1))
            return 0;
    return 1;
}

static inline void end_pair(struct end *end)
{
    CHECK(sdr_context_destroy(end->context) == SDR_SUCCESS);
    free(end->memory);
}

#endif
