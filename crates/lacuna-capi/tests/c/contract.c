/* The contract, as far as a compiler can check it: every call with its exact type,
 * every enumerator with its value; and the layout of every struct, printed for the
 * test to compare with the library's. */

#include <stddef.h>

#include "check.h"

#define LAYOUT(type, field) \
    printf("%s.%s %zu %zu\n", #type, #field, offsetof(struct type, field), \
           sizeof(((struct type *)0)->field))
#define SIZE(type) printf("%s %zu %zu\n", #type, sizeof(struct type), (size_t)0)

struct sdr_context *(*context_create)(const char *, struct sdr_dev_attr *) = sdr_context_create;
int (*context_destroy)(struct sdr_context *) = sdr_context_destroy;
struct sdr_qp *(*qp_create)(struct sdr_context *, struct sdr_qp_attr *) = sdr_qp_create;
int (*qp_destroy)(struct sdr_qp *) = sdr_qp_destroy;
int (*qp_info_size_get)(struct sdr_qp *, size_t *) = sdr_qp_info_size_get;
int (*qp_info_get)(struct sdr_qp *, void *) = sdr_qp_info_get;
int (*qp_connect)(struct sdr_qp *, void *) = sdr_qp_connect;
int (*recv_post)(struct sdr_qp *, struct sdr_recv_wr *, struct sdr_recv_handle **) = sdr_recv_post;
int (*recv_imm_get)(struct sdr_recv_handle *, uint32_t *) = sdr_recv_imm_get;
int (*recv_bitmap_get)(struct sdr_recv_handle *, uint8_t **, size_t *) = sdr_recv_bitmap_get;
int (*recv_bitmap_chunk_expand)(struct sdr_recv_handle *, uint32_t, uint64_t *) =
    sdr_recv_bitmap_chunk_expand;
int (*recv_complete)(struct sdr_recv_handle *) = sdr_recv_complete;
int (*send_post)(struct sdr_qp *, struct sdr_send_wr *, struct sdr_send_handle **) = sdr_send_post;
int (*streaming_send_start)(struct sdr_qp *, struct sdr_send_start_wr *,
                            struct sdr_send_handle **) = sdr_streaming_send_start;
int (*streaming_send_continue)(struct sdr_send_handle *, struct sdr_send_continue_wr *) =
    sdr_streaming_send_continue;
int (*streaming_send_end)(struct sdr_send_handle *) = sdr_streaming_send_end;
int (*send_poll)(struct sdr_send_handle *, int *, struct sdr_send_status *) = sdr_send_poll;
struct sdr_mr *(*mr_reg)(struct sdr_context *, void *, size_t, enum sdr_access_flags) = sdr_mr_reg;
int (*mr_dereg)(struct sdr_mr *) = sdr_mr_dereg;
int (*mr_lkey_get)(struct sdr_mr *, uint32_t *) = sdr_mr_lkey_get;
int (*mr_rkey_get)(struct sdr_mr *, uint32_t *) = sdr_mr_rkey_get;

/* The fields' types: a pointer to another type would not be taken. */
static void types(struct sdr_qp_attr *qp, struct sdr_send_wr *send, struct sdr_send_start_wr *start,
                  struct sdr_send_continue_wr *part, struct sdr_recv_wr *recv)
{
    uint32_t *u32[] = {&qp->bitmap_chunk_size_log_bytes, &qp->max_log_num_msgs, &qp->rate_limit,
                       &send->imm_value, &send->length, &send->lkey, &start->imm_value,
                       &part->length, &part->lkey, &recv->max_length, &recv->lkey};
    uint64_t *u64[] = {&send->local_addr, &send->remote_offset, &part->local_addr,
                       &part->remote_offset, &recv->address};
    uint8_t *u8[] = {&qp->send_enable, &qp->recv_enable};
    size_t *size = &qp->max_in_flight_log_bytes;
    enum sdr_mtu *mtu = &qp->mtu;
    enum sdr_wr_opcode *opcodes[] = {&send->opcode, &start->opcode};
    (void)u32, (void)u64, (void)u8, (void)size, (void)mtu, (void)opcodes;
}

int main(void)
{
    (void)types;
    CHECK(SDR_SUCCESS == 0 && SDR_ERROR == 1 && SDR_RETRY == 2);
    CHECK(SDR_MTU_64 == 0 && SDR_MTU_128 == 1 && SDR_MTU_256 == 2 && SDR_MTU_512 == 3);
    CHECK(SDR_MTU_1024 == 4 && SDR_MTU_2048 == 5 && SDR_MTU_4096 == 6);
    CHECK(SDR_WR_WRITE == 0 && SDR_WR_WRITE_WITH_IMM == 1);
    CHECK(SDR_ACCESS_REMOTE_WRITE == 0);
    SIZE(sdr_dev_attr);
    LAYOUT(sdr_dev_attr, num_channels);
    LAYOUT(sdr_dev_attr, log_max_qps);
    SIZE(sdr_qp_attr);
    LAYOUT(sdr_qp_attr, bitmap_chunk_size_log_bytes);
    LAYOUT(sdr_qp_attr, max_in_flight_log_bytes);
    LAYOUT(sdr_qp_attr, max_log_num_msgs);
    LAYOUT(sdr_qp_attr, mtu);
    LAYOUT(sdr_qp_attr, send_enable);
    LAYOUT(sdr_qp_attr, recv_enable);
    LAYOUT(sdr_qp_attr, rate_limit);
    SIZE(sdr_send_wr);
    LAYOUT(sdr_send_wr, opcode);
    LAYOUT(sdr_send_wr, imm_value);
    LAYOUT(sdr_send_wr, length);
    LAYOUT(sdr_send_wr, lkey);
    LAYOUT(sdr_send_wr, local_addr);
    LAYOUT(sdr_send_wr, remote_offset);
    SIZE(sdr_send_start_wr);
    LAYOUT(sdr_send_start_wr, opcode);
    LAYOUT(sdr_send_start_wr, imm_value);
    SIZE(sdr_send_continue_wr);
    LAYOUT(sdr_send_continue_wr, length);
    LAYOUT(sdr_send_continue_wr, local_addr);
    LAYOUT(sdr_send_continue_wr, lkey);
    LAYOUT(sdr_send_continue_wr, remote_offset);
    SIZE(sdr_recv_wr);
    LAYOUT(sdr_recv_wr, max_length);
    LAYOUT(sdr_recv_wr, lkey);
    LAYOUT(sdr_recv_wr, address);
    SIZE(sdr_send_status);
    LAYOUT(sdr_send_status, flags);
    SIZE(lacuna_received);
    LAYOUT(lacuna_received, length);
    LAYOUT(lacuna_received, chunks_done);
    LAYOUT(lacuna_received, is_complete);
    SIZE(lacuna_receive_options);
    LAYOUT(lacuna_receive_options, deadline_us);
    LAYOUT(lacuna_receive_options, grace_us);
    LAYOUT(lacuna_receive_options, missing);
    SIZE(lacuna_ended);
    LAYOUT(lacuna_ended, bytes);
    LAYOUT(lacuna_ended, last_ago_ns);
    LAYOUT(lacuna_ended, reason);
    LAYOUT(lacuna_ended, is_complete);
    SIZE(lacuna_region_options);
    LAYOUT(lacuna_region_options, rights);
    LAYOUT(lacuna_region_options, is_exclusive);
    SIZE(lacuna_written);
    LAYOUT(lacuna_written, bytes);
    LAYOUT(lacuna_written, key);
    LAYOUT(lacuna_written, is_complete);
    SIZE(lacuna_completion);
    LAYOUT(lacuna_completion, map);
    LAYOUT(lacuna_completion, result);
    LAYOUT(lacuna_completion, is_silent);
    LAYOUT(lacuna_completion, peer);
    LAYOUT(lacuna_completion, missed);
    LAYOUT(lacuna_completion, is_solicited);
    SIZE(lacuna_address);
    LAYOUT(lacuna_address, scope);
    LAYOUT(lacuna_address, port);
    SIZE(lacuna_slice);
    LAYOUT(lacuna_slice, memory);
    LAYOUT(lacuna_slice, length);
    SIZE(lacuna_datagram_settings);
    LAYOUT(lacuna_datagram_settings, completions);
    LAYOUT(lacuna_datagram_settings, silence_ms);
    LAYOUT(lacuna_datagram_settings, port);
    LAYOUT(lacuna_datagram_settings, multicast_loop);
    LAYOUT(lacuna_datagram_settings, workers);
    LAYOUT(lacuna_datagram_settings, open_max);
    SIZE(lacuna_datagram_error);
    LAYOUT(lacuna_datagram_error, number);
    LAYOUT(lacuna_datagram_error, reason);
    LAYOUT(lacuna_datagram_error, is_told);
    SIZE(lacuna_group_options);
    LAYOUT(lacuna_group_options, budget_us);
    LAYOUT(lacuna_group_options, budget);
    LAYOUT(lacuna_group_options, divisor);
    SIZE(lacuna_group_report);
    LAYOUT(lacuna_group_report, budget_ns);
    LAYOUT(lacuna_group_report, straggler_rank);
    LAYOUT(lacuna_group_report, straggler_phase);
    SIZE(lacuna_group_missing);
    LAYOUT(lacuna_group_missing, count);
    LAYOUT(lacuna_group_missing, rank);
    SIZE(lacuna_range);
    LAYOUT(lacuna_range, length);
    return 0;
}
