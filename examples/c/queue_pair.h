/* A connected queue pair of the SDR API: what every program that uses it does
 * first. The two ends hand each other the queue pairs' infos out of band. */

#ifndef EXAMPLE_QUEUE_PAIR_H
#define EXAMPLE_QUEUE_PAIR_H

#include <sdr.h>
#include <sdr_mr.h>

#include "oob.h"

/* The power of two that a number is, rounded up. */
static inline uint32_t log_of(uint64_t number)
{
    uint32_t log = 0;
    while (log < 63 && ((uint64_t)1 << log) < number)
        log++;
    return log;
}

static inline enum sdr_mtu mtu_of(uint64_t bytes)
{
    switch (bytes) {
    case 64: return SDR_MTU_64;
    case 128: return SDR_MTU_128;
    case 256: return SDR_MTU_256;
    case 512: return SDR_MTU_512;
    case 1024: return SDR_MTU_1024;
    case 2048: return SDR_MTU_2048;
    case 4096: return SDR_MTU_4096;
    default: fail("mtu of %llu bytes: a power of two from 64 to 4096", (unsigned long long)bytes);
    }
    return SDR_MTU_64;
}

static inline struct sdr_context *make_context(const char *device, uint32_t channels)
{
    struct sdr_dev_attr attr;
    struct sdr_context *context;
    memset(&attr, 0, sizeof(attr));
    attr.num_channels = channels;
    context = sdr_context_create(device, &attr);
    if (!context)
        fail_call("sdr_context_create");
    return context;
}

static inline struct sdr_qp *make_queue_pair(struct sdr_context *context, struct sdr_qp_attr *attr,
                                             int oob)
{
    struct sdr_qp *qp = sdr_qp_create(context, attr);
    size_t size = 0;
    void *ours, *theirs;
    if (!qp)
        fail_call("sdr_qp_create");
    if (sdr_qp_info_size_get(qp, &size))
        fail_call("sdr_qp_info_size_get");
    ours = malloc(size);
    theirs = malloc(size);
    if (!ours || !theirs)
        fail("no memory");
    if (sdr_qp_info_get(qp, ours))
        fail_call("sdr_qp_info_get");
    oob_send(oob, ours, size);
    oob_receive(oob, theirs, size);
    if (sdr_qp_connect(qp, theirs))
        fail_call("sdr_qp_connect");
    free(ours);
    free(theirs);
    return qp;
}

/* Memory for messages, registered. */
struct memory {
    unsigned char *start;
    struct sdr_mr *mr;
    uint32_t lkey;
};

static inline struct memory make_memory(struct sdr_context *context, size_t bytes)
{
    struct memory memory;
    memory.start = (unsigned char *)malloc(bytes);
    if (!memory.start)
        fail("no %zu bytes of memory", bytes);
    memory.mr = sdr_mr_reg(context, memory.start, bytes, SDR_ACCESS_REMOTE_WRITE);
    if (!memory.mr || sdr_mr_lkey_get(memory.mr, &memory.lkey))
        fail_call("sdr_mr_reg");
    return memory;
}

static inline void end_all(struct sdr_context *context, struct sdr_qp *qp, struct memory *memory)
{
    if (sdr_mr_dereg(memory->mr) || sdr_qp_destroy(qp) || sdr_context_destroy(context))
        fail_call("at the end");
    free(memory->start);
}

#endif
