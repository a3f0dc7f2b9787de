/* The SDR API of the SDR-RDMA paper (table 1, section 3.1) over plain UDP, by Lacuna.
 *
 * Written from the Rust sources by crates/lacuna-capi/tests/headers.rs: do not edit.
 * docs/c-library.md is the manual.
 *
 * A thread must not be cancelled (pthread_cancel) while it is inside a call: that aborts
 * the process. A child process (fork) makes a context of its own: of what it has inherited
 * it may free each thing, which changes nothing for its parent, and all other calls with
 * that are errors. */

#ifndef LACUNA_SDR_H
#define LACUNA_SDR_H

#include <stddef.h>
#include <stdint.h>

/**
 * What a call answers. The text of an error is to be had by
 * lacuna_last_error() of lacuna.h.
 */
enum sdr_errcode {
  /**
   * Done.
   */
  SDR_SUCCESS = 0,
  /**
   * The call makes no sense, or the operation has failed for good.
   */
  SDR_ERROR = 1,
  /**
   * Not possible now for lack of resources, or not complete yet: call again.
   */
  SDR_RETRY = 2,
};

/**
 * Payload bytes of a packet.
 */
enum sdr_mtu {
  /**
   * 64 bytes.
   */
  SDR_MTU_64,
  /**
   * 128 bytes.
   */
  SDR_MTU_128,
  /**
   * 256 bytes.
   */
  SDR_MTU_256,
  /**
   * 512 bytes.
   */
  SDR_MTU_512,
  /**
   * 1024 bytes: fits every path that carries IPv6.
   */
  SDR_MTU_1024,
  /**
   * 2048 bytes: needs an interface MTU of 2112.
   */
  SDR_MTU_2048,
  /**
   * 4096 bytes: needs an interface MTU of 4160, jumbo frames or loopback.
   */
  SDR_MTU_4096,
};

/**
 * What a send does at the peer.
 */
enum sdr_wr_opcode {
  /**
   * Writes.
   */
  SDR_WR_WRITE,
  /**
   * Writes, and hands over 32 bits.
   */
  SDR_WR_WRITE_WITH_IMM,
};

/**
 * A context: sockets that queue pairs share.
 */
struct sdr_context;

/**
 * A queue pair.
 */
struct sdr_qp;

/**
 * A posted receive.
 */
struct sdr_recv_handle;

/**
 * A send under way.
 */
struct sdr_send_handle;

/**
 * What a context is made with.
 */
struct sdr_dev_attr {
  /**
   * Sockets, each with its own 4-tuple towards a peer: 1 to 16, 0 means 1,
   * and more than 16 mean 16. Both ends need the same number. How many
   * threads serve them follows from the machine.
   */
  uint32_t num_channels;
  /**
   * Ignored: any number of queue pairs shares a context.
   */
  uint32_t log_max_qps;
};

/**
 * What a queue pair is made with. All but the enables and the rate must be the
 * same at both ends.
 */
struct sdr_qp_attr {
  /**
   * Bytes per bit of the bitmap, as a power of two: the MTU at least.
   */
  uint32_t bitmap_chunk_size_log_bytes;
  /**
   * Bytes of all messages in flight together, as a power of two. A message
   * may be as long. Sends that would lend out more are told SDR_RETRY.
   */
  size_t max_in_flight_log_bytes;
  /**
   * Messages in flight, as a power of two, 16 at most: so many receives can
   * be posted, or some more.
   */
  uint32_t max_log_num_msgs;
  /**
   * Payload bytes of a packet.
   */
  enum sdr_mtu mtu;
  /**
   * Whether it sends.
   */
  uint8_t send_enable;
  /**
   * Whether it receives.
   */
  uint8_t recv_enable;
  /**
   * Megabits per second that it sends with; 0 finds the path's rate.
   */
  uint32_t rate_limit;
};

/**
 * A receive.
 */
struct sdr_recv_wr {
  /**
   * Bytes of the buffer: messages that land in it may be shorter.
   */
  uint32_t max_length;
  /**
   * Key of the region that the buffer lies in.
   */
  uint32_t lkey;
  /**
   * Where the buffer lies.
   */
  uint64_t address;
};

/**
 * A one-shot send.
 */
struct sdr_send_wr {
  /**
   * Whether it carries imm_value.
   */
  enum sdr_wr_opcode opcode;
  /**
   * Handed to the peer with SDR_WR_WRITE_WITH_IMM.
   */
  uint32_t imm_value;
  /**
   * Bytes.
   */
  uint32_t length;
  /**
   * Key of the region that the bytes lie in.
   */
  uint32_t lkey;
  /**
   * Where the bytes lie.
   */
  uint64_t local_addr;
  /**
   * Where in the peer's buffer they go, in chunks of the bitmap.
   */
  uint64_t remote_offset;
};

/**
 * The beginning of a streaming send.
 */
struct sdr_send_start_wr {
  /**
   * Whether it carries imm_value.
   */
  enum sdr_wr_opcode opcode;
  /**
   * Handed to the peer with SDR_WR_WRITE_WITH_IMM.
   */
  uint32_t imm_value;
};

/**
 * A part of a streaming send.
 */
struct sdr_send_continue_wr {
  /**
   * Bytes: a multiple of the MTU, but for the part that ends the message.
   */
  uint32_t length;
  /**
   * Where the bytes lie.
   */
  uint64_t local_addr;
  /**
   * Key of the region that the bytes lie in.
   */
  uint32_t lkey;
  /**
   * Where in the peer's buffer they go, in chunks of the bitmap.
   */
  uint64_t remote_offset;
};

/**
 * Unused.
 */
struct sdr_send_status {
  /**
   * 0.
   */
  uint32_t flags;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a context.
 *
 * dev_name says what carries the packets: "udp" (or NULL), "udp:ADDRESS" for
 * sockets that are bound to an address of this host, or "mem" for a network
 * inside of this process. A link-local address of IPv6 names its interface, as in
 * "udp:fe80::1%eth0"; peers are on that link then. With "udp", sockets take IPv4 and
 * IPv6, and peers are told the address of this host that its default route of IPv4
 * uses, or without one that of IPv6, or 127.0.0.1 if it has neither.
 *
 * Returns NULL on failure; lacuna_last_error() of lacuna.h says why. May be
 * called from any thread.
 */
struct sdr_context *sdr_context_create(const char *dev_name,
                                       struct sdr_dev_attr *dev_attr);

/**
 * Ends a context with all that was made of it: queue pairs, their handles, and
 * registrations. Nothing touches the program's memory after it returns.
 *
 * Must be the last call with this context and with anything made of it. In a child
 * process (fork) that has inherited the context it closes all inherited descriptors
 * of the library, and nothing else.
 */
int sdr_context_destroy(struct sdr_context *context);

/**
 * Makes a queue pair.
 *
 * Returns NULL on failure. May be called from any thread.
 */
struct sdr_qp *sdr_qp_create(struct sdr_context *ctx, struct sdr_qp_attr *qp_attr);

/**
 * Ends a queue pair: its receives are completed, its sends given up. Nothing
 * touches their memory after it returns, and their handles answer with errors.
 *
 * May be called from any thread; calls of other threads with this queue pair
 * are waited for. In a child process that has inherited it, see sdr_context_destroy().
 */
int sdr_qp_destroy(struct sdr_qp *qp);

/**
 * The size of what sdr_qp_info_get() writes: the same for every queue pair of
 * this library. May be called from any thread.
 */
int sdr_qp_info_size_get(struct sdr_qp *qp, size_t *info_size);

/**
 * Writes what the peer must know of the queue pair, to be handed over by the
 * program's own means. May be called from any thread.
 */
int sdr_qp_info_get(struct sdr_qp *qp, void *info);

/**
 * Connects to the peer whose info this is. Both ends call it, once; receives may
 * be posted before. May be called from any thread.
 */
int sdr_qp_connect(struct sdr_qp *qp, void *remote_qp_info);

/**
 * Posts a receive. The n-th send of the peer lands in the n-th posted receive.
 *
 * The buffer is the library's until sdr_recv_complete() has returned: the
 * program reads those chunks whose bits are set, and nothing else of it.
 * SDR_RETRY when as many receives are posted as there can be. May be called
 * from any thread; the order of the posts is that of the calls.
 */
int sdr_recv_post(struct sdr_qp *qp,
                  struct sdr_recv_wr *wr,
                  struct sdr_recv_handle **handle);

/**
 * The immediate that the message carries. SDR_RETRY until the packets that
 * bring its parts are here: some of the first suffice. May be called from any
 * thread.
 */
int sdr_recv_imm_get(struct sdr_recv_handle *handle, uint32_t *immediate);

/**
 * The live bitmap: one bit per chunk of the buffer, chunk i is bit i % 8 of
 * byte i / 8. It is set when all bytes of the chunk are in the buffer, while the
 * program looks: read it as volatile memory, and put an acquire fence between
 * seeing a bit and reading the chunk, if another architecture than x86 is meant
 * to run the program. It must not be written to. Bits of chunks behind the end
 * of a shorter message stay clear.
 *
 * The pointer is good until sdr_recv_complete(). May be called from any thread,
 * once or for every look; a call also makes progress where that is the calls'
 * work.
 */
int sdr_recv_bitmap_get(struct sdr_recv_handle *handle,
                        uint8_t **bitmap_bytes,
                        size_t *bitmap_num_bytes);

/**
 * The packets of one chunk, one bit each: packet i is bit i % 64 of word i / 64.
 * bitmap points to as many words as a chunk's packets need, one for chunks of up
 * to 64 packets. May be called from any thread.
 */
int sdr_recv_bitmap_chunk_expand(struct sdr_recv_handle *handle,
                                 uint32_t chunk_offset,
                                 uint64_t *bitmap);

/**
 * Takes the buffer back, whether or not the message is complete; to be called
 * once for every posted receive. Nothing writes to the buffer after it returns.
 * The handle and the bitmap's pointer are used up. May be called from any
 * thread.
 */
int sdr_recv_complete(struct sdr_recv_handle *handle);

/**
 * Starts a send of length bytes, into the peer's next posted receive.
 *
 * The bytes must not change until sdr_send_poll() has said that the send is
 * complete. SDR_RETRY when the peer has posted no receive for it, as far as is
 * known here, or when max_in_flight_log_bytes are out already. May be called
 * from any thread; the order of the sends is that of the calls.
 */
int sdr_send_post(struct sdr_qp *qp,
                  struct sdr_send_wr *wr,
                  struct sdr_send_handle **handle);

/**
 * Starts a send whose parts follow, into the peer's next posted receive.
 * SDR_RETRY as for sdr_send_post(). May be called from any thread.
 */
int sdr_streaming_send_start(struct sdr_qp *qp,
                             struct sdr_send_start_wr *wr,
                             struct sdr_send_handle **handle);

/**
 * Adds a part to a streaming send: any chunk, any order, again if wanted. A part
 * that begins where none reached so far and ends within a chunk, ends the
 * message. The bytes must not change until the send is complete. Once the peer
 * has completed its receive, parts are taken and go nowhere. May be called from
 * any thread.
 */
int sdr_streaming_send_continue(struct sdr_send_handle *handle,
                                struct sdr_send_continue_wr *wr);

/**
 * Ends a streaming send: what was added still goes out, and sdr_send_poll() says
 * when it has. May be called from any thread.
 */
int sdr_streaming_send_end(struct sdr_send_handle *handle);

/**
 * Whether a send is complete: everything was put on the wire once, and its
 * memory is the program's again. completed_flag is then 1; SDR_RETRY before,
 * also for a streaming send that was not ended. status is unused and may be
 * NULL. A handle that is complete is used up, and may be polled a while longer.
 * May be called from any thread.
 */
int sdr_send_poll(struct sdr_send_handle *handle,
                  int *completed_flag,
                  struct sdr_send_status *status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LACUNA_SDR_H */
