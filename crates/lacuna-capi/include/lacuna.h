/* Lacuna's own interface: connections with a mode and deadlines, live bitmaps, datagrams, groups.
 *
 * Written from the Rust sources by crates/lacuna-capi/tests/headers.rs: do not edit.
 * docs/c-library.md is the manual.
 *
 * A thread must not be cancelled (pthread_cancel) while it is inside a call: that aborts
 * the process. A child process (fork) makes a context of its own: of what it has inherited
 * it may free each thing, which changes nothing for its parent, and all other calls with
 * that are errors. */

#ifndef LACUNA_LACUNA_H
#define LACUNA_LACUNA_H

#include <stddef.h>
#include <stdint.h>

/**
 * What a call answers.
 */
enum lacuna_result {
  /**
   * Done.
   */
  LACUNA_OK = 0,
  /**
   * The call makes no sense: a NULL, an unknown setting, an object whose use
   * has ended. Calling again does not help.
   */
  LACUNA_USAGE = 1,
  /**
   * Not possible now, or not complete yet: call again.
   */
  LACUNA_RETRY = 2,
  /**
   * The deadline or timeout has passed.
   */
  LACUNA_DEADLINE = 3,
  /**
   * The network or the peer: nobody there, gone, gave up, or something else
   * than was expected.
   */
  LACUNA_PEER = 4,
  /**
   * This machine: file descriptors, memory, threads, ports in use. If it is a limit,
   * the text names it.
   */
  LACUNA_SYSTEM = 5,
  /**
   * A bug of this library; please report the text.
   */
  LACUNA_BUG = 6,
};

/**
 * Why a receive, or a message in a region, is over.
 */
enum lacuna_reason {
  /**
   * All of the message came.
   */
  LACUNA_REASON_WHOLE = 1,
  /**
   * The packet that ends the message came, and the grace has passed since. What
   * is missing is lost.
   */
  LACUNA_REASON_END = 2,
  /**
   * The sender has said that everything was sent, and the grace has passed since.
   * What is missing is lost.
   */
  LACUNA_REASON_ACCOUNTED = 3,
  /**
   * The receive's deadline has passed.
   */
  LACUNA_REASON_DEADLINE = 4,
  /**
   * A later message came while this one was incomplete.
   */
  LACUNA_REASON_PREEMPTED = 5,
  /**
   * The sender gave the message up, or the program took the receive back.
   */
  LACUNA_REASON_CANCELLED = 6,
  /**
   * The connection has failed or was closed.
   */
  LACUNA_REASON_FAILED = 7,
  /**
   * Of datagrams: nothing came for longer than the message's packets were apart. What
   * is missing is lost.
   */
  LACUNA_REASON_SILENCE = 8,
  /**
   * Of datagrams: it had to go for others, as its sender, or all of them, had too many
   * messages open.
   */
  LACUNA_REASON_EVICTED = 9,
};

/**
 * What the gaps of a receive hold when it is over.
 */
enum lacuna_missing {
  /**
   * What is usual in the connection's mode: zeros in bounded and best-effort, what
   * was there before in the others.
   */
  LACUNA_MISSING_USUAL = 0,
  /**
   * Zeros, so that the buffer can be used as it is: a sum ignores them.
   */
  LACUNA_MISSING_ZERO = 1,
  /**
   * What was there before.
   */
  LACUNA_MISSING_KEEP = 2,
};

/**
 * What may be done with a key: a sum of these.
 */
enum lacuna_right {
  /**
   * This program may read into the region; peers may do nothing.
   */
  LACUNA_RIGHT_LOCAL = 1,
  /**
   * Peers may write.
   */
  LACUNA_RIGHT_REMOTE_WRITE = 2,
  /**
   * Peers may read.
   */
  LACUNA_RIGHT_REMOTE_READ = 4,
};

/**
 * What a message is for.
 */
enum lacuna_class {
  /**
   * Repaired whatever the connection's mode is, and not held up by other messages: for
   * what the program has to say beside its bulk.
   */
  LACUNA_CLASS_CRITICAL = 1,
  /**
   * Not repaired whatever the connection's mode is: receives end in time, as in mode
   * bounded.
   */
  LACUNA_CLASS_DROPPABLE = 2,
  /**
   * Repaired whatever the connection's mode is, and does not hold up critical messages:
   * for bulk that has to be whole, beside bulk that has not.
   */
  LACUNA_CLASS_REPAIRED = 3,
};

/**
 * Which completions lacuna_completion_queue_arm() waits for.
 */
enum lacuna_arm {
  /**
   * All.
   */
  LACUNA_ARM_ANY = 0,
  /**
   * Receives of messages with an immediate, datagrams that were posted with
   * LACUNA_QUEUED_SOLICITED, and all that failed or ended with gaps.
   */
  LACUNA_ARM_SOLICITED = 1,
};

/**
 * What has ended.
 */
enum lacuna_operation {
  /**
   * Something that this header does not know.
   */
  LACUNA_OPERATION_OTHER = 0,
  /**
   * A write of lacuna_queue_send(), or a message of lacuna_datagram_send().
   */
  LACUNA_OPERATION_SEND = 1,
  /**
   * A write to a region of the peer, of lacuna_queue_remote_write(),
   * lacuna_datagram_write_record() or lacuna_datagram_write_named().
   */
  LACUNA_OPERATION_REMOTE_WRITE = 2,
  /**
   * A receive of lacuna_queue_receive() or lacuna_datagram_receive().
   */
  LACUNA_OPERATION_RECEIVE = 3,
  /**
   * A read of a region of the peer, of lacuna_queue_remote_read() or
   * lacuna_datagram_read().
   */
  LACUNA_OPERATION_REMOTE_READ = 4,
  /**
   * The peer has written a message with an immediate to a region here, as
   * lacuna_queue_written() asked to be told; or a Write-Record came to a datagram queue
   * pair.
   */
  LACUNA_OPERATION_WRITTEN = 5,
};

/**
 * How lacuna_queue_send(), lacuna_queue_remote_write() and the calls of datagram queue
 * pairs post: a sum of these.
 */
enum lacuna_queued {
  /**
   * Success is not told, only failure: for all but every n-th of many short ones. The
   * bytes are copied, and the program's again when the call returns. It takes an entry
   * of the queue until it has ended.
   */
  LACUNA_QUEUED_SILENT = 1,
  /**
   * Of datagrams only: the completion at the peer counts for those who wait with
   * LACUNA_ARM_SOLICITED.
   */
  LACUNA_QUEUED_SOLICITED = 2,
};

/**
 * What a message is numbered among.
 */
enum lacuna_datagram_space {
  /**
   * Messages of lacuna_datagram_send().
   */
  LACUNA_DATAGRAM_SENDS = 0,
  /**
   * READs, and their answers.
   */
  LACUNA_DATAGRAM_READS = 1,
  /**
   * Write-Records.
   */
  LACUNA_DATAGRAM_RECORDS = 2,
  /**
   * All messages of reliable queue pairs.
   */
  LACUNA_DATAGRAM_RELIABLE = 3,
  /**
   * Messages to a group.
   */
  LACUNA_DATAGRAM_GROUP_SENDS = 4,
  /**
   * Write-Records to a group.
   */
  LACUNA_DATAGRAM_GROUP_RECORDS = 5,
};

/**
 * Why a message was refused. Later versions may have others.
 */
enum lacuna_datagram_refusal {
  /**
   * No receive was posted, or it was too short.
   */
  LACUNA_DATAGRAM_NO_BUFFER = 1,
  /**
   * No memory has the key, or it was revoked.
   */
  LACUNA_DATAGRAM_KEY = 2,
  /**
   * The bytes are not all within the memory.
   */
  LACUNA_DATAGRAM_BOUNDS = 3,
  /**
   * The memory may not be used so.
   */
  LACUNA_DATAGRAM_RIGHTS = 4,
  /**
   * The receiver has too many messages open, or no free entry for a completion.
   */
  LACUNA_DATAGRAM_BUSY = 5,
  /**
   * Its sender gave it up.
   */
  LACUNA_DATAGRAM_CANCELLED = 6,
  /**
   * Its time was over.
   */
  LACUNA_DATAGRAM_DEADLINE = 7,
};

/**
 * The type of an element. In memory and between ranks it is little-endian.
 */
enum lacuna_element {
  /**
   * int8_t.
   */
  LACUNA_ELEMENT_I8 = 0,
  /**
   * uint8_t.
   */
  LACUNA_ELEMENT_U8 = 1,
  /**
   * int16_t.
   */
  LACUNA_ELEMENT_I16 = 2,
  /**
   * uint16_t.
   */
  LACUNA_ELEMENT_U16 = 3,
  /**
   * int32_t.
   */
  LACUNA_ELEMENT_I32 = 4,
  /**
   * uint32_t.
   */
  LACUNA_ELEMENT_U32 = 5,
  /**
   * int64_t.
   */
  LACUNA_ELEMENT_I64 = 6,
  /**
   * uint64_t.
   */
  LACUNA_ELEMENT_U64 = 7,
  /**
   * IEEE 754 binary16: added in float, and rounded to this once per hop.
   */
  LACUNA_ELEMENT_F16 = 8,
  /**
   * The upper half of a float (bfloat16), likewise.
   */
  LACUNA_ELEMENT_BF16 = 9,
  /**
   * float.
   */
  LACUNA_ELEMENT_F32 = 10,
  /**
   * double.
   */
  LACUNA_ELEMENT_F64 = 11,
};

/**
 * How elements are reduced. A float that is not a number makes the result none; integers
 * wrap.
 */
enum lacuna_reduction {
  /**
   * Added.
   */
  LACUNA_REDUCTION_SUM = 0,
  /**
   * Added, and divided by the number of contributions; of integers towards zero.
   */
  LACUNA_REDUCTION_AVERAGE = 1,
  /**
   * Multiplied.
   */
  LACUNA_REDUCTION_PRODUCT = 2,
  /**
   * The smallest.
   */
  LACUNA_REDUCTION_MIN = 3,
  /**
   * The largest.
   */
  LACUNA_REDUCTION_MAX = 4,
};

/**
 * How much time an operation of a group has.
 */
enum lacuna_budget {
  /**
   * As long as it takes.
   */
  LACUNA_BUDGET_UNLIMITED = 0,
  /**
   * As long as it takes; if that is longer than budget_us, it fails.
   */
  LACUNA_BUDGET_WITHIN = 1,
  /**
   * budget_us; then it goes on with what is there. For groups of mode bounded.
   */
  LACUNA_BUDGET_FIXED = 2,
  /**
   * As long as operations of its kind and size take, which the group learns; then it
   * goes on with what is there. For groups of mode bounded.
   */
  LACUNA_BUDGET_ADAPTIVE = 3,
};

/**
 * What an average is divided by where contributions are missing.
 */
enum lacuna_divisor {
  /**
   * By the number of contributions that an element has.
   */
  LACUNA_DIVISOR_CONTRIBUTORS = 0,
  /**
   * By the number of ranks: what is missing counts as zero.
   */
  LACUNA_DIVISOR_RANKS = 1,
};

/**
 * Completions of many connections.
 */
struct lacuna_completion_queue;

/**
 * A connection to a peer.
 */
struct lacuna_connection;

/**
 * Sockets and threads that connections share.
 */
struct lacuna_context;

/**
 * A datagram queue pair.
 */
struct lacuna_datagram;

/**
 * A group of ranks that compute together.
 */
struct lacuna_group;

/**
 * An operation of a group, under way or over.
 */
struct lacuna_group_operation;

/**
 * Waits for peers.
 */
struct lacuna_listener;

/**
 * What of a message came that came with gaps.
 */
struct lacuna_map;

/**
 * A posted receive.
 */
struct lacuna_receive;

/**
 * Memory that peers write or read by its key.
 */
struct lacuna_region;

/**
 * A write under way.
 */
struct lacuna_send;

/**
 * Settings for contexts, connections and groups.
 */
struct lacuna_settings;

/**
 * A part of a region under a key of its own.
 */
struct lacuna_window;

/**
 * What came of a message.
 */
struct lacuna_received {
  /**
   * Bytes of the message; 0 while its end is not known.
   */
  uint64_t length;
  /**
   * Bytes of a chunk: chunk i begins at byte i * chunk_bytes.
   */
  uint64_t chunk_bytes;
  /**
   * Chunks of the message; of the buffer while its end is not known.
   */
  uint32_t chunks;
  /**
   * Chunks that are here.
   */
  uint32_t chunks_done;
  /**
   * The immediate, if there is one.
   */
  uint32_t immediate;
  /**
   * Whether all of an immediate is here.
   */
  uint8_t has_immediate;
  /**
   * Whether the end of the message is known.
   */
  uint8_t has_length;
  /**
   * Whether everything is here.
   */
  uint8_t is_complete;
};

/**
 * When a receive is over, and what its gaps hold then. All zeros are the defaults.
 */
struct lacuna_receive_options {
  /**
   * Microseconds after which the receive is over, whatever is there; 0 is no limit.
   */
  uint64_t deadline_us;
  /**
   * Microseconds that a receive which could be over waits for packets that the path
   * has reordered, if has_grace is set. Only modes bounded and best-effort end
   * receives before their deadline.
   */
  uint64_t grace_us;
  /**
   * Whether grace_us counts; else the grace is as long as packets have been late on
   * this path.
   */
  uint8_t has_grace;
  /**
   * What gaps hold: of enum lacuna_missing.
   */
  uint8_t missing;
  /**
   * Must be 0.
   */
  uint8_t reserved[6];
  /**
   * Must be 0.
   */
  uint64_t more[2];
};

/**
 * What a receive has when it is over.
 */
struct lacuna_ended {
  /**
   * Bytes of the message; 0 while its end is not known.
   */
  uint64_t length;
  /**
   * Bytes of the message that came; copies count once.
   */
  uint64_t bytes;
  /**
   * Bytes of a packet: packet i begins at byte i * packet_bytes.
   */
  uint64_t packet_bytes;
  /**
   * Packets of the message; of the buffer while the message's end is not known.
   */
  uint64_t packets;
  /**
   * Nanoseconds from the first packet's arrival until the receive was taken back.
   */
  uint64_t first_ago_ns;
  /**
   * Nanoseconds from the last packet's arrival until the receive was taken back.
   */
  uint64_t last_ago_ns;
  /**
   * Why it is over: of enum lacuna_reason.
   */
  uint32_t reason;
  /**
   * The immediate, if there is one.
   */
  uint32_t immediate;
  /**
   * Whether all of an immediate came.
   */
  uint8_t has_immediate;
  /**
   * Whether the end of the message is known.
   */
  uint8_t has_length;
  /**
   * Whether the two arrivals are known: whether any packet came.
   */
  uint8_t has_arrivals;
  /**
   * Whether everything came.
   */
  uint8_t is_complete;
  /**
   * 0.
   */
  uint8_t reserved[4];
  /**
   * 0.
   */
  uint64_t more[2];
};

/**
 * Bytes of a buffer.
 */
struct lacuna_range {
  /**
   * The first byte, from the start of the buffer.
   */
  uint64_t offset;
  /**
   * How many.
   */
  uint64_t length;
};

/**
 * What a region keeps and allows. All zeros are the defaults.
 */
struct lacuna_region_options {
  /**
   * A sum of enum lacuna_right; 0 is LACUNA_RIGHT_REMOTE_WRITE.
   */
  uint32_t rights;
  /**
   * Whether a map is kept of what peers have written. It takes 1/512 of the memory.
   */
  uint8_t has_validity;
  /**
   * Whether packets are refused that touch bytes which the map says are valid: each
   * byte is written once until it was taken. The map is kept then.
   */
  uint8_t is_exclusive;
  /**
   * Must be 0.
   */
  uint8_t reserved[2];
  /**
   * Must be 0.
   */
  uint64_t more[2];
};

/**
 * A message with an immediate that the peer has written to a region here.
 */
struct lacuna_written {
  /**
   * Where the message begins, from the start of the key's range.
   */
  uint64_t address;
  /**
   * Bytes of the message; 0 while its end is not known.
   */
  uint64_t length;
  /**
   * Bytes of the message that came; copies count once.
   */
  uint64_t bytes;
  /**
   * Bytes of a packet: packet i begins i * packet_bytes behind address.
   */
  uint64_t packet_bytes;
  /**
   * Key of the region or window.
   */
  uint32_t key;
  /**
   * Why the message is over: of enum lacuna_reason.
   */
  uint32_t reason;
  /**
   * The immediate, if all of it came.
   */
  uint32_t immediate;
  /**
   * Whether all of the immediate came.
   */
  uint8_t has_immediate;
  /**
   * Whether the end of the message is known.
   */
  uint8_t has_length;
  /**
   * Whether everything came.
   */
  uint8_t is_complete;
  /**
   * 0.
   */
  uint8_t reserved;
  /**
   * 0.
   */
  uint64_t more[2];
};

/**
 * An IP address and a port, for datagrams. Equal addresses are equal bytes.
 */
struct lacuna_address {
  /**
   * The address in network byte order; one of IPv4 is written ::ffff:192.0.2.1.
   */
  uint8_t ip[16];
  /**
   * Number of this host's interface, of link-local addresses; 0 of all others.
   */
  uint32_t scope;
  /**
   * In host byte order.
   */
  uint16_t port;
  /**
   * Must be 0.
   */
  uint8_t reserved[2];
};

/**
 * An operation that has ended.
 */
struct lacuna_completion {
  /**
   * What the operation was posted with; 0 of a Write-Record that came.
   */
  uint64_t user_data;
  /**
   * Of a receive and of a written message: what came, to be freed with
   * lacuna_map_free(). NULL if all did.
   */
  struct lacuna_map *map;
  /**
   * Of a receive and of a written message, without arrivals: what came. Of a read:
   * bytes.
   */
  struct lacuna_ended ended;
  /**
   * What has ended: of enum lacuna_operation.
   */
  uint32_t operation;
  /**
   * How: of enum lacuna_result. LACUNA_OK for a write that the peer has (in modes
   * bounded, best-effort and raw, and of datagrams that are not reliable: that is on the
   * wire), for a read that was answered, and for a receive or a written message of which
   * everything came. LACUNA_DEADLINE and LACUNA_PEER for others; ended then has the
   * reason, and what came is in its place.
   */
  uint32_t result;
  /**
   * Of a written message: the key of the region or window.
   */
  uint32_t key;
  /**
   * Whether it was posted with LACUNA_QUEUED_SILENT: then it has failed.
   */
  uint8_t is_silent;
  /**
   * 0.
   */
  uint8_t reserved[3];
  /**
   * Of a written message: where it begins, from the start of the key's range.
   */
  uint64_t address;
  /**
   * Of datagrams: the peer; UINT64_MAX if there is none, as of a receive that was
   * flushed. It may go once others need its place, unless lacuna_datagram_peer() has
   * given it out.
   */
  uint64_t peer;
  /**
   * Of what came as datagrams: from where.
   */
  struct lacuna_address source;
  /**
   * Of what came as datagrams: its number among those of the source.
   */
  uint32_t number;
  /**
   * Of what came as datagrams: messages of the source that are known to be lost whole
   * since the last completion.
   */
  uint32_t missed;
  /**
   * Of datagrams: the queue pair, as lacuna_datagram_number() has it; else 0.
   */
  uint32_t queue_pair;
  /**
   * Of what came as datagrams: whether it was posted with LACUNA_QUEUED_SOLICITED.
   */
  uint8_t is_solicited;
  /**
   * 0.
   */
  uint8_t unused[3];
  /**
   * 0.
   */
  uint64_t more[4];
};

/**
 * What a datagram queue pair is made with. lacuna_datagram_settings_default() fills it
 * in; the strings and the completion queue remain the program's.
 */
struct lacuna_datagram_settings {
  /**
   * An IP address of this host, as the setting bind; NULL, the default, is "::", all of
   * them.
   */
  const char *bind;
  /**
   * The congestion control, as the setting cc: "auto", which NULL, the default, is,
   * "bbr", "cubic", or "fixed" at rate_bits_per_s. Of an unreliable queue pair, whose
   * peers are asked now and then how much has come, also "none": as fast as the host
   * can, and what peer or path cannot take is lost.
   */
  const char *cc;
  /**
   * Where all completes to, of the same context; NULL, the default, is a list of its
   * own, which lacuna_datagram_poll() polls. Each operation takes an entry from its
   * posting on; a Write-Record that comes while none is free is dropped, of a reliable
   * peer to come again.
   */
  struct lacuna_completion_queue *completions;
  /**
   * Bits per second to each peer, headers included. 0, the default, leaves it to cc;
   * with "auto", one that is given is kept to.
   */
  uint64_t rate_bits_per_s;
  /**
   * Of a reliable queue pair: a peer that says nothing for so many milliseconds, while
   * something is to be acknowledged, is in error until lacuna_datagram_reset().
   */
  uint64_t silence_ms;
  /**
   * Bytes of the longest packet, as UDP payload: 128 to 65507. The path to every peer
   * must pass it.
   */
  uint32_t packet_bytes;
  /**
   * UDP port; 0, the default, is any that is free.
   */
  uint16_t port;
  /**
   * Whether each message comes once, and in order of each peer. Both ends need it.
   */
  uint8_t is_reliable;
  /**
   * How many routers packets to groups pass at most, and one more; 1, the default,
   * stays in the network.
   */
  uint8_t multicast_ttl;
  /**
   * Whether packets to groups come to queue pairs of this host, too: yes by default.
   */
  uint8_t multicast_loop;
  /**
   * Must be 0.
   */
  uint8_t reserved[3];
  /**
   * Number of the interface that packets to groups leave by; 0, the default, is the one
   * of the route.
   */
  uint32_t multicast_interface;
  /**
   * Threads that take packets, 1 to 64, each from a socket of its own on the same port;
   * those of a peer are all one's. With progress = manual there is none.
   */
  uint32_t workers;
  /**
   * Bytes of each socket's receive buffer to ask the system for.
   */
  uint64_t receive_buffer_bytes;
  /**
   * Peers that are known at a time; those without a handle go for others.
   */
  uint64_t peers_max;
  /**
   * Messages of one source that may be open at a time: that have come in part.
   */
  uint64_t open_of_source_max;
  /**
   * The same of all sources.
   */
  uint64_t open_max;
  /**
   * Must be 0.
   */
  uint64_t more[4];
};

/**
 * Something that went wrong with a message.
 */
struct lacuna_datagram_error {
  /**
   * The other end.
   */
  struct lacuna_address peer;
  /**
   * The message's number among those of its sender.
   */
  uint32_t number;
  /**
   * What it is numbered among: of enum lacuna_datagram_space.
   */
  uint32_t space;
  /**
   * What went wrong: of enum lacuna_datagram_refusal.
   */
  uint32_t reason;
  /**
   * Whether the peer says so, of a message from here; else the message was the peer's.
   */
  uint8_t is_told;
  /**
   * 0.
   */
  uint8_t reserved[3];
  /**
   * 0.
   */
  uint64_t more[2];
};

/**
 * Memory of the program, as a part of a message.
 */
struct lacuna_slice {
  /**
   * Where it is; NULL is allowed if length is 0. Of a message that is sent it is only
   * read.
   */
  void *memory;
  /**
   * Bytes.
   */
  size_t length;
};

/**
 * How one operation of a group is carried out. All zeros are the defaults; what is added
 * later takes of the reserved bytes, where 0 is as before. All ranks have to give the same.
 */
struct lacuna_group_options {
  /**
   * By which schedule: "ring", "halving", "doubling", "transpose", "cube:RADIX", "tree",
   * "direct", or "hierarchical:SITES" with the number of each rank's site, as in
   * "hierarchical:0,0,1,1". NULL chooses one by the size and the round trips.
   */
  const char *algorithm;
  /**
   * Microseconds, for a budget that has some.
   */
  uint64_t budget_us;
  /**
   * Of enum lacuna_budget.
   */
  uint8_t budget;
  /**
   * Of enum lacuna_divisor.
   */
  uint8_t divisor;
  /**
   * Must be 0.
   */
  uint8_t reserved[6];
  /**
   * Must be 0.
   */
  uint64_t more[5];
};

/**
 * How an operation of a group went, for this rank.
 */
struct lacuna_group_report {
  /**
   * Bytes that this rank was to receive.
   */
  uint64_t bytes;
  /**
   * Bytes of those that did not come.
   */
  uint64_t lost_bytes;
  /**
   * Nanoseconds from its start to its end.
   */
  uint64_t took_ns;
  /**
   * Nanoseconds that it had, if it was to end with what is there; else 0.
   */
  uint64_t budget_ns;
  /**
   * Elements of the output that lack a contribution, or may.
   */
  uint64_t missing_elements;
  /**
   * Nanoseconds that the straggler was waited for, beyond the phase before.
   */
  uint64_t straggler_ns;
  /**
   * The rank that was waited for longest; UINT32_MAX if none was.
   */
  uint32_t straggler_rank;
  /**
   * In which phase of the schedule, from 0 on.
   */
  uint32_t straggler_phase;
  /**
   * 0.
   */
  uint64_t more[6];
};

/**
 * A contribution that is missing.
 */
struct lacuna_group_missing {
  /**
   * The first element of the output that lacks it.
   */
  uint64_t first;
  /**
   * How many do.
   */
  uint64_t count;
  /**
   * Whose contribution; UINT32_MAX where it is not known what is missing, if anything,
   * because a rank did not say in time what it had lost.
   */
  uint32_t rank;
  /**
   * 0.
   */
  uint32_t reserved;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The library's version, as in "0.1.0".
 */
const char *lacuna_version(void);

/**
 * What went wrong in the last call of this thread that failed, of sdr.h,
 * sdr_mr.h or lacuna.h; empty if none has. LACUNA_RETRY and SDR_RETRY leave it
 * as it is. The text is good until the thread's next failure.
 */
const char *lacuna_last_error(void);

/**
 * Makes settings: all at their defaults.
 */
int lacuna_settings_new(struct lacuna_settings **settings);

/**
 * Changes one setting. Of a context: bind (an IP address of this host, a link-local
 * one with its interface, as in fe80::1%eth0; "::", the default, is all of them),
 * channels (1 to 16), datapath (udp, udp-plain), progress (threads, manual),
 * receive_buffer_bytes, ecn (on, off: whether packets may be marked), path_memory (a
 * file that keeps what paths are like, for the next program; nothing need be there
 * yet; "" for none), pcap (a file that every packet is captured to, replaced if it
 * exists; contexts of the same settings share it; made up in it are the headers of IP
 * and UDP, the UDP destination port 4791 and the ICRC; "" for none), pcap_limit_bytes
 * (where the capture ends; the traffic goes on). Of a connection: mode (auto, sr,
 * sr:rto, raw, ec, or with a code of one's own as in ec:mds:32:8, best-effort,
 * bounded, or with a window of messages as in bounded:4), wire (short, or rdma:
 * packets as RDMA cards take them), chunk_bytes, mtu_bytes (or "probe"), split (as in
 * 10+18+4), generations, max_message_bytes, cc (congestion control: bbr, cubic, fixed,
 * or auto, which is fixed if a rate is given, else bbr), rate_bits_per_s (what fixed
 * sends at and the others begin at; 0 or "find" finds one), deadline_ms, silence_ms
 * (at least 1), connect_timeout_ms, one_sided (on, off: whether the ends may write and
 * read each other's regions), classes (none, or some of critical, droppable, repaired,
 * as critical+droppable: what lacuna_connection_class() gives), tag (a number for the
 * accepting end). Of a group: bind, mode, chunk_bytes (64 KiB if it is not given), cc, rate_bits_per_s,
 * silence_ms and pcap as above, job (what the ranks of one run have in common; others are
 * refused), port (for the connections of this rank; 0 is any), announce (the address that
 * other ranks reach this one at; "seen", the default, is the one that rank 0 sees),
 * meeting_timeout_ms (how long ranks wait for each other), budget_rule (how adaptive
 * budgets are learned: steered, optinic, celeris, celeris-deviation). May be called from
 * any thread; objects that were made with these settings keep theirs.
 */
int lacuna_settings_set(struct lacuna_settings *settings,
                        const char *name,
                        const char *value);

/**
 * Frees settings. NULL is allowed. Must be the last call with them.
 */
void lacuna_settings_free(struct lacuna_settings *settings);

/**
 * Makes a context. settings may be NULL.
 */
int lacuna_context_new(const struct lacuna_settings *settings,
                       struct lacuna_context **context);

/**
 * Makes progress once, without waiting, for settings with progress = manual;
 * worked says whether there was anything to do, and may be NULL. Waiting calls
 * make progress by themselves. May be called from any thread.
 */
int lacuna_context_progress(struct lacuna_context *context, int *worked);

/**
 * Frees a context. NULL is allowed. Listeners and connections that were made
 * with it go on; the sockets are closed with the last of them. Must be the last
 * call with the context. In a child process (fork) that has inherited it, it closes
 * all inherited descriptors of the library, and nothing else; the parent's
 * connections go on.
 */
void lacuna_context_free(struct lacuna_context *context);

/**
 * Listens at address; port 0 takes any. "[::]:7400" is all addresses of this host,
 * of IPv6 and IPv4 (of IPv4 where there is no IPv6), "0.0.0.0:7400" those of IPv4, and a
 * link-local address names its interface, as in "[fe80::1%eth0]:7400". settings may be
 * NULL; of those of a connection the accepting end's own are cc,
 * rate_bits_per_s, deadline_ms, silence_ms, connect_timeout_ms, and mtu_bytes if it
 * is given (the smaller one, if both ends give it). mode, wire, chunk_bytes, split,
 * generations, max_message_bytes, one_sided, classes and tag are the connecting end's,
 * whatever settings has for them. May be called from any thread.
 */
int lacuna_listener_new(struct lacuna_context *context,
                        const char *address,
                        const struct lacuna_settings *settings,
                        struct lacuna_listener **listener);

/**
 * The port that it listens at. May be called from any thread.
 */
int lacuna_listener_port(struct lacuna_listener *listener, uint16_t *port);

/**
 * Waits for the next peer and agrees with it. LACUNA_PEER concerns that peer
 * only: call again. LACUNA_SYSTEM says that this machine lacks what a connection
 * takes, file descriptors mostly; the listener goes on, and has it perhaps at the
 * next call, which waits a moment first. May be called from several threads, to
 * serve as many peers at once.
 */
int lacuna_listener_accept(struct lacuna_listener *listener,
                           struct lacuna_connection **connection);

/**
 * Frees a listener. NULL is allowed. Its connections go on. Must be the last
 * call with it. In a child process that has inherited it, see lacuna_context_free().
 */
void lacuna_listener_free(struct lacuna_listener *listener);

/**
 * Connects to a listener at peer, as in "host:7400", "192.0.2.1:7400",
 * "[2001:db8::1]:7400" or, if it is link-local, "[fe80::1%eth0]:7400" with this host's
 * interface to it. What is not written so is LACUNA_USAGE, a host that is not known
 * LACUNA_PEER. settings may be NULL. May be called from any thread.
 */
int lacuna_connect(struct lacuna_context *context,
                   const char *peer,
                   const struct lacuna_settings *settings,
                   struct lacuna_connection **connection);

/**
 * Closes and frees a connection, with its classes, receives and sends. NULL is allowed.
 * The peer is told in good order. Nothing touches the program's memory after it
 * returns; completions of what was posted to it can still be polled. Must be the last
 * call with the connection and what was made of it. In a child process that has
 * inherited it, see lacuna_context_free(): nobody is told.
 */
void lacuna_connection_free(struct lacuna_connection *connection);

/**
 * Writes length bytes, with an immediate unless that is NULL, and waits until
 * the peer has them (in mode raw: until they are on the wire), at most
 * deadline_ms. May be called from several threads; each message goes as a whole.
 */
int lacuna_write(struct lacuna_connection *connection,
                 const void *data,
                 size_t length,
                 const uint32_t *immediate,
                 uint64_t deadline_ms);

/**
 * Receives the next message into a buffer of capacity bytes, waiting for at most
 * timeout_ms. received may be NULL. On an error the receive is given up; what
 * came of the message is in the buffer. May be called from several threads;
 * messages are received in the order of the calls.
 */
int lacuna_read(struct lacuna_connection *connection,
                void *buffer,
                size_t capacity,
                uint64_t timeout_ms,
                struct lacuna_received *received);

/**
 * Waits until the peer has posted the receive for the next message, at most
 * timeout_ms: a write started then goes out at once. May be called from any
 * thread.
 */
int lacuna_wait_clear_to_send(struct lacuna_connection *connection, uint64_t timeout_ms);

/**
 * Waits until all sends have ended and the peer is done with their receives, at
 * most timeout_ms: call it before lacuna_connection_free() where the last
 * messages matter. May be called from any thread.
 */
int lacuna_flush(struct lacuna_connection *connection, uint64_t timeout_ms);

/**
 * What the connection uses, for people: mode, chunk, MTU, channels, datapath,
 * window, round-trip time. As snprintf(): as much as fits is written, with its
 * end, and length gets the length of the whole text without its end. buffer may
 * be NULL if capacity is 0, length if it is not wanted. May be called from any
 * thread.
 */
int lacuna_describe(struct lacuna_connection *connection,
                    char *buffer,
                    size_t capacity,
                    size_t *length);

/**
 * Counters of now as one JSON object: packets, bytes, repairs and losses of both
 * directions, round-trip time, window. The rest as lacuna_describe().
 */
int lacuna_stats_json(struct lacuna_connection *connection,
                      char *buffer,
                      size_t capacity,
                      size_t *length);

/**
 * The number that the connecting end gave with the setting tag. May be called
 * from any thread.
 */
int lacuna_tag(struct lacuna_connection *connection, uint64_t *tag);

/**
 * Posts a receive over a buffer of capacity bytes, which is the library's until
 * lacuna_receive_complete() or lacuna_connection_free() has returned: the
 * program reads those chunks that are here, and nothing else of it.
 * LACUNA_RETRY when too many are posted. May be called from any thread; messages
 * land in the order of the calls.
 */
int lacuna_receive_post(struct lacuna_connection *connection,
                        void *buffer,
                        size_t capacity,
                        struct lacuna_receive **receive);

/**
 * Waits until the whole message is here, at most timeout_ms; with 0 it only
 * looks. After an error the receive stays posted. May be called from any thread.
 */
int lacuna_receive_wait(struct lacuna_receive *receive, uint64_t timeout_ms);

/**
 * What is here now. May be called from any thread.
 */
int lacuna_receive_status(struct lacuna_receive *receive,
                          struct lacuna_received *received);

/**
 * Whether a chunk is here, so that its bytes may be read: one load. May be
 * called from any thread.
 */
int lacuna_receive_has_chunk(struct lacuna_receive *receive,
                             uint32_t chunk,
                             int *is_here);

/**
 * The live bitmap, as sdr_recv_bitmap_get() of sdr.h gives it: chunk i is bit
 * i % 8 of byte i / 8, set while the program looks. The pointer is good until
 * the receive is completed. LACUNA_USAGE for a buffer that is longer than one
 * message slot, which has several. May be called from any thread.
 */
int lacuna_receive_bitmap(struct lacuna_receive *receive,
                          const uint8_t **bytes,
                          size_t *num_bytes);

/**
 * Takes the buffer back, whether or not everything came; received says what did,
 * and may be NULL. Nothing writes to the buffer after it returns; the receive is
 * used up. May be called from any thread; waits for other calls with it.
 */
int lacuna_receive_complete(struct lacuna_receive *receive,
                            struct lacuna_received *received);

/**
 * As lacuna_receive_post(), with options, which may be NULL. In modes bounded and
 * best-effort a receive without a deadline is over, too, when the sender has said that
 * it sent everything. What a receive that is over has, lacuna_receive_take() says.
 */
int lacuna_receive_post_with(struct lacuna_connection *connection,
                             void *buffer,
                             size_t capacity,
                             const struct lacuna_receive_options *options,
                             struct lacuna_receive **receive);

/**
 * Waits until the receive is over, whole or not, at most timeout_ms; with 0 it only
 * looks. LACUNA_DEADLINE while it goes on. reason gets one of enum lacuna_reason, and
 * may be NULL. The receive stays posted. May be called from any thread.
 */
int lacuna_receive_wait_over(struct lacuna_receive *receive,
                             uint64_t timeout_ms,
                             uint32_t *reason);

/**
 * Takes the buffer back, as lacuna_receive_complete() does, and says more: ended gets
 * what came, and map which packets did, to be freed with lacuna_map_free(). map gets
 * NULL if everything came, and either may be NULL. Does not wait: a receive that goes
 * on is over now. The receive is used up. May be called from any thread; waits for
 * other calls with it.
 */
int lacuna_receive_take(struct lacuna_receive *receive,
                        struct lacuna_ended *ended,
                        struct lacuna_map **map);

/**
 * The map as bits: packet i is bit i % 8 of byte i / 8, and begins at byte i *
 * packet_bytes of the buffer (of struct lacuna_ended or lacuna_written). Writes as
 * many bytes as fit; num_bytes gets the number of all, and may be NULL. bits may be
 * NULL if capacity is 0. LACUNA_USAGE for the map of a datagram, whose packets have no
 * common length. May be called from any thread.
 */
int lacuna_map_packets(const struct lacuna_map *map,
                       uint8_t *bits,
                       size_t capacity,
                       size_t *num_bytes);

/**
 * The gaps in order, as bytes of the buffer: up to the end of the message, or of the
 * buffer if the message's end did not come. Writes as many as fit; count gets the
 * number of all, and may be NULL. gaps may be NULL if capacity is 0. May be called
 * from any thread.
 */
int lacuna_map_gaps(const struct lacuna_map *map,
                    struct lacuna_range *gaps,
                    size_t capacity,
                    size_t *count);

/**
 * What came, in order, as bytes of the buffer: the fewest ranges. The rest as
 * lacuna_map_gaps().
 */
int lacuna_map_ranges(const struct lacuna_map *map,
                      struct lacuna_range *ranges,
                      size_t capacity,
                      size_t *count);

/**
 * Frees a map. NULL is allowed. Must be the last call with it. A map needs nothing
 * else: it may be freed after its connection, and in a child process (fork).
 */
void lacuna_map_free(struct lacuna_map *map);

/**
 * Starts a write of length bytes, with an immediate unless that is NULL; it
 * fails after deadline_ms. The bytes must not change until lacuna_send_free()
 * has returned. LACUNA_RETRY when too many writes wait. May be called from any
 * thread; messages go in the order of the calls.
 */
int lacuna_send_start(struct lacuna_connection *connection,
                      const void *data,
                      size_t length,
                      const uint32_t *immediate,
                      uint64_t deadline_ms,
                      struct lacuna_send **send);

/**
 * How the write stands, without waiting: LACUNA_OK if the peer has everything
 * (in mode raw: if everything is on the wire), LACUNA_RETRY while it goes on,
 * another code if it has failed. May be called from any thread.
 */
int lacuna_send_poll(struct lacuna_send *send);

/**
 * Waits until the write has ended, which its deadline sees to. May be called
 * from any thread.
 */
int lacuna_send_wait(struct lacuna_send *send);

/**
 * Frees a send; one that goes on is given up. When it returns the bytes are the
 * program's again. May be called from any thread; waits for other calls with
 * it. In a child process that has inherited it, see lacuna_context_free().
 */
int lacuna_send_free(struct lacuna_send *send);

/**
 * Starts a write of length bytes that become ready part by part, each of which leaves
 * when lacuna_send_offer() has named it. Nothing is copied: the program fills its
 * memory at data, and a part that was offered must not change until
 * lacuna_send_free() has returned. The write ends when all parts have been offered and
 * are there, or fails after deadline_ms. The rest as lacuna_send_start().
 */
int lacuna_send_start_offered(struct lacuna_connection *connection,
                              const void *data,
                              size_t length,
                              const uint32_t *immediate,
                              uint64_t deadline_ms,
                              struct lacuna_send **send);

/**
 * Says that length bytes from offset on of a write that lacuna_send_start_offered()
 * started are ready, and lets them leave: any part, in any order, again if need be.
 * Parts of whole chunks spare repeated packets. Of a write that has ended, or that was
 * started as a whole, it changes nothing. LACUNA_USAGE for what is outside of the
 * write. May be called from any thread.
 */
int lacuna_send_offer(struct lacuna_send *send, size_t offset, size_t length);

/**
 * Registers length bytes of the program's memory, so that peers with the key of the
 * region may write or read them over any connection of the context that was made with
 * the setting one_sided. options may be NULL. The memory is used in place, and must be
 * there until lacuna_region_free() or lacuna_region_revoke() has returned. The program
 * may use it meanwhile, but bytes that a peer is writing only after it was told that
 * they are there: by the map (lacuna_region_take_valid()), by lacuna_wait_written(), by
 * the return of lacuna_region_revoke(), or by the peer in a message that it sent after
 * its write had ended. May be called from any thread.
 */
int lacuna_region_new(struct lacuna_context *context,
                      void *memory,
                      size_t length,
                      const struct lacuna_region_options *options,
                      struct lacuna_region **region);

/**
 * The key, to be told to peers: 32 random bits. May be called from any thread.
 */
int lacuna_region_key(struct lacuna_region *region, uint32_t *key);

/**
 * What peers have written of length bytes from offset on since it was last taken: bit
 * i % 8 of byte i / 8 of bits says that the 64 bytes at offset + 64 * i were written
 * whole; the last may be fewer at the end of the region. offset must be a multiple of
 * 64, and bits has room for a bit per 64 bytes, rounded up; else LACUNA_USAGE, as for a
 * region without has_validity. May be called from any thread.
 */
int lacuna_region_valid(struct lacuna_region *region,
                        uint64_t offset,
                        uint64_t length,
                        uint8_t *bits,
                        size_t capacity);

/**
 * As lacuna_region_valid(), and marks all that as not written: of two threads that take
 * one gets each mark, and in an exclusive region peers may write there again.
 */
int lacuna_region_take_valid(struct lacuna_region *region,
                             uint64_t offset,
                             uint64_t length,
                             uint8_t *bits,
                             size_t capacity);

/**
 * Revokes the key and those of all windows: when it returns, no peer writes or reads
 * the memory any more. Again it is no error. The region remains, without use, until it
 * is freed. May be called from any thread.
 */
int lacuna_region_revoke(struct lacuna_region *region);

/**
 * Frees a region. NULL is allowed. Its key and those of its windows are revoked: when
 * it returns, nobody but the program touches the memory. Regions are freed by this
 * call alone, before or after their context and their windows. Must be the last call
 * with the region. In a child process that has inherited it, see lacuna_context_free().
 */
void lacuna_region_free(struct lacuna_region *region);

/**
 * Gives length bytes of a region from offset on a key of their own, with rights of its
 * own: a sum of enum lacuna_right, where 0 is LACUNA_RIGHT_REMOTE_WRITE. Addresses
 * under the key count from offset. It ends with the window, or with the region's key.
 * May be called from any thread.
 */
int lacuna_region_window(struct lacuna_region *region,
                         uint64_t offset,
                         uint64_t length,
                         uint32_t rights,
                         struct lacuna_window **window);

/**
 * The window's key, to be told to peers. May be called from any thread.
 */
int lacuna_window_key(struct lacuna_window *window, uint32_t *key);

/**
 * Frees a window. NULL is allowed. Its key is revoked: when it returns, no peer writes
 * or reads under it any more. Must be the last call with the window. In a child process
 * that has inherited it, see lacuna_context_free().
 */
void lacuna_window_free(struct lacuna_window *window);

/**
 * Writes length bytes to a region of the peer, address bytes behind the start of key's
 * range, and waits until they are there (in modes bounded, best-effort and raw: until
 * they are on the wire), at most deadline_ms. The peer need not have posted anything,
 * unlike for lacuna_write(), which sends a message into its next receive; with an
 * immediate, unless that is NULL, its lacuna_wait_written() is told. LACUNA_USAGE for a
 * connection without the setting one_sided, LACUNA_PEER if the peer refuses the place or
 * has revoked the key; a key that it does not know gets no answer, so that nobody can
 * try keys, and the write ends by its deadline. Writes keep no order among each other,
 * nor towards messages: wait for one before the next where it matters. May be called
 * from several threads.
 */
int lacuna_remote_write(struct lacuna_connection *connection,
                        uint32_t key,
                        uint64_t address,
                        const void *data,
                        size_t length,
                        const uint32_t *immediate,
                        uint64_t deadline_ms);

/**
 * Starts a write to a region of the peer; the send is used as one of
 * lacuna_send_start(). The rest as lacuna_remote_write().
 */
int lacuna_remote_write_start(struct lacuna_connection *connection,
                              uint32_t key,
                              uint64_t address,
                              const void *data,
                              size_t length,
                              const uint32_t *immediate,
                              uint64_t deadline_ms,
                              struct lacuna_send **send);

/**
 * Reads length bytes of a region of the peer, from address bytes behind the start of
 * key's range on, into a region here, which may have any rights, at offset, and waits
 * until they are there, at most deadline_ms. Unlike lacuna_read(), which receives the
 * next message that the peer sends, the peer's program does nothing for it. bytes gets
 * how many came, and may be NULL: all, but in modes bounded, best-effort and raw, where
 * what was lost leaves the memory as it was. Errors as those of lacuna_remote_write();
 * what came before one may be in the region. May be called from several threads.
 */
int lacuna_remote_read(struct lacuna_connection *connection,
                       uint32_t key,
                       uint64_t address,
                       uint64_t length,
                       struct lacuna_region *region,
                       uint64_t offset,
                       uint64_t deadline_ms,
                       uint64_t *bytes);

/**
 * Waits for the next message with an immediate that the peer has written to a region
 * here, at most timeout_ms. written says what came, and map which packets did, to be
 * freed with lacuna_map_free(): NULL if everything came. map may be NULL. The gaps of a
 * map count from written's address. While a thousand such messages wait, the peer's
 * writes wait, too. May be called from any thread.
 */
int lacuna_wait_written(struct lacuna_connection *connection,
                        uint64_t timeout_ms,
                        struct lacuna_written *written,
                        struct lacuna_map **map);

/**
 * The messages of a class of a connection, if the connecting end's setting classes has it:
 * kind is one of enum lacuna_class. messages gets a connection for them, the same each
 * time. What is sent there lands in what is received there, and keeps no order towards
 * other messages. It has no classes. Regions are written and read as without it, but such
 * writes and reads complete into the queue of the connection only; lacuna_flush(),
 * lacuna_describe(), lacuna_stats_json() and lacuna_tag() are those of the connection. It
 * ends with the connection, and lacuna_connection_free() of it does nothing. May be called
 * from any thread.
 */
int lacuna_connection_class(struct lacuna_connection *connection,
                            uint32_t kind,
                            struct lacuna_connection **messages);

/**
 * Makes a completion queue of a context. Each operation takes one of its entries from its
 * posting until its completion was polled. The queue does not keep the context: when that
 * and its connections were freed, what is queued can still be polled; then
 * lacuna_completion_queue_poll() answers with LACUNA_USAGE. May be called from any thread.
 */
int lacuna_completion_queue_new(struct lacuna_context *context,
                                uint32_t entries,
                                struct lacuna_completion_queue **queue);

/**
 * Takes up to capacity completions, the oldest first, waiting for the first at most
 * timeout_ms; with 0 it only looks. count gets how many: 0 if none came in time, which is
 * LACUNA_OK. The memory of what has completed is the program's again. If some have failed,
 * lacuna_last_error() has the text of the last of those. With progress = manual it makes
 * progress. May be called from several threads: each completion is taken once.
 */
int lacuna_completion_queue_poll(struct lacuna_completion_queue *queue,
                                 struct lacuna_completion *completions,
                                 size_t capacity,
                                 uint64_t timeout_ms,
                                 size_t *count);

/**
 * A file descriptor for poll(), epoll and event loops. It is readable once a completion
 * has come that lacuna_completion_queue_arm() asked for, and stays so until that is called
 * again. It is the queue's, which closes it; reading it or writing to it is of no use.
 * With progress = manual nobody but the program's calls makes progress, so nothing comes
 * while it waits. LACUNA_USAGE where the system has no such descriptors. May be called
 * from any thread.
 */
int lacuna_completion_queue_descriptor(struct lacuna_completion_queue *queue,
                                       int *descriptor);

/**
 * Has the next completion make the descriptor readable, once; kind is one of enum
 * lacuna_arm. As ibv_req_notify_cq(): completions that are queued already do not count, so
 * poll until nothing is left after arming, then wait. has_any says whether there are some,
 * and may be NULL. When the context was freed the descriptor stays readable. May be called
 * from any thread.
 */
int lacuna_completion_queue_arm(struct lacuna_completion_queue *queue,
                                uint32_t kind,
                                int *has_any);

/**
 * Frees a completion queue, with the completions in it. NULL is allowed. Connections that
 * complete into it go on: what was posted to them is done and nobody is told, and its
 * memory is the program's again when they were freed. Must be the last call with the
 * queue. In a child process that has inherited it, see lacuna_context_free().
 */
void lacuna_completion_queue_free(struct lacuna_completion_queue *queue);

/**
 * Has what is posted to a connection with lacuna_queue_send(), lacuna_queue_receive(),
 * lacuna_queue_remote_write() and lacuna_queue_remote_read() complete into a queue of its
 * context. Once for each connection and class, before the first of them. Receives and
 * sends with handles are not affected. May be called from any thread.
 */
int lacuna_complete_to(struct lacuna_connection *connection,
                       struct lacuna_completion_queue *queue);

/**
 * Starts a write, as lacuna_send_start(), that completes into the connection's queue;
 * user_data comes back with the completion. flags is a sum of enum lacuna_queued. The bytes
 * must not change until the completion was polled, or lacuna_connection_free() has
 * returned. LACUNA_RETRY when too many writes wait or the queue has no free entry. May be
 * called from any thread.
 */
int lacuna_queue_send(struct lacuna_connection *connection,
                      const void *data,
                      size_t length,
                      const uint32_t *immediate,
                      uint64_t deadline_ms,
                      uint32_t flags,
                      uint64_t user_data);

/**
 * Posts a receive, as lacuna_receive_post_with(), that completes into the connection's
 * queue when it is over; user_data comes back with the completion, which has what came. The
 * buffer is the library's until the completion was polled, or lacuna_connection_free() has
 * returned. LACUNA_RETRY when too many are posted or the queue has no free entry. May be
 * called from any thread.
 */
int lacuna_queue_receive(struct lacuna_connection *connection,
                         void *buffer,
                         size_t capacity,
                         const struct lacuna_receive_options *options,
                         uint64_t user_data);

/**
 * Starts a write to a region of the peer, as lacuna_remote_write_start(), that completes
 * into the connection's queue. flags, user_data and the rest as lacuna_queue_send().
 * LACUNA_USAGE for a class.
 */
int lacuna_queue_remote_write(struct lacuna_connection *connection,
                              uint32_t key,
                              uint64_t address,
                              const void *data,
                              size_t length,
                              const uint32_t *immediate,
                              uint64_t deadline_ms,
                              uint32_t flags,
                              uint64_t user_data);

/**
 * Starts a read of a region of the peer, as lacuna_remote_read(), that completes into the
 * connection's queue, which says how many bytes came; user_data comes back with it. Nothing
 * lands in region once it is freed: then the read fails. LACUNA_RETRY when too many reads
 * are under way or the queue has no free entry, LACUNA_USAGE for a class. May be called
 * from any thread.
 */
int lacuna_queue_remote_read(struct lacuna_connection *connection,
                             uint32_t key,
                             uint64_t address,
                             uint64_t length,
                             struct lacuna_region *region,
                             uint64_t offset,
                             uint64_t deadline_ms,
                             uint64_t user_data);

/**
 * Has messages with an immediate that the peer writes to regions here complete into the
 * connection's queue, instead of lacuna_wait_written(); user_data comes back with each.
 * Such a message takes an entry of the queue before its first byte is placed: while none
 * is free, the peer's writes wait. Once for each connection, behind lacuna_complete_to().
 * LACUNA_USAGE for a class. May be called from any thread.
 */
int lacuna_queue_written(struct lacuna_connection *connection, uint64_t user_data);

/**
 * Reads an address as in "192.0.2.1:7400", "[2001:db8::1]:7400" or, if it is link-local,
 * "[fe80::1%eth0]:7400" with this host's interface to it. Names of hosts are not looked
 * up. May be called from any thread.
 */
int lacuna_address_parse(const char *text, struct lacuna_address *address);

/**
 * Writes an address as lacuna_address_parse() reads it. As snprintf(): as much as fits is
 * written, with its end, and length gets the length of the whole text without its end.
 * buffer may be NULL if capacity is 0, length if it is not wanted. May be called from any
 * thread.
 */
int lacuna_address_text(const struct lacuna_address *address,
                        char *buffer,
                        size_t capacity,
                        size_t *length);

/**
 * The address that a struct sockaddr of length bytes has, which is a struct sockaddr_in
 * or a struct sockaddr_in6, as getaddrinfo() gives them. May be called from any thread.
 */
int lacuna_address_of(const void *sockaddr,
                      size_t length,
                      struct lacuna_address *address);

/**
 * Writes an address as the system has it, for its own calls: a struct sockaddr_in for
 * IPv4, else a struct sockaddr_in6. sockaddr has room for capacity bytes, as a struct
 * sockaddr_storage has enough of; LACUNA_USAGE if they are too few. length gets the
 * length, and may be NULL. May be called from any thread.
 */
int lacuna_address_sockaddr(const struct lacuna_address *address,
                            void *sockaddr,
                            size_t capacity,
                            size_t *length);

/**
 * Makes a datagram queue pair: a socket of its own, over which messages go to any number
 * of peers and come from them, without connections. It is ready at once. Peers write and
 * read the context's regions by their keys. By default what the path loses is lost, and
 * what came is told exactly (UD); with is_reliable of the settings each message comes
 * once, and in order of each peer (RD). settings may be NULL, else
 * lacuna_datagram_settings_default() has filled them in first. The queue pair keeps the
 * context. May be called from any thread.
 */
int lacuna_datagram_new(struct lacuna_context *context,
                        const struct lacuna_datagram_settings *settings,
                        struct lacuna_datagram **datagram);

/**
 * Its number, as completions have it: not 0, and no other queue pair of this process has
 * it. May be called from any thread.
 */
int lacuna_datagram_number(struct lacuna_datagram *datagram, uint32_t *number);

/**
 * The address of its socket; of one that is bound to all addresses, that one, with the
 * port. May be called from any thread.
 */
int lacuna_datagram_local(struct lacuna_datagram *datagram,
                          struct lacuna_address *address);

/**
 * Closes a datagram queue pair: what was posted completes, as failed, and nothing can be
 * posted any more. Completions can still be polled. Again it is no error. May be called
 * from any thread.
 */
int lacuna_datagram_close(struct lacuna_datagram *datagram);

/**
 * Closes and frees a datagram queue pair. NULL is allowed. What was posted fails: a
 * completion queue has its completions, and those of its own list that were not polled
 * are gone. Nothing touches the program's memory after it returns, but for regions, which
 * are the context's. Messages that were handed to the network are on their way; of a
 * reliable queue pair those that the peer has not acknowledged may be lost. Must be the
 * last call with the queue pair. In a child process that has inherited it, see
 * lacuna_context_free().
 */
void lacuna_datagram_free(struct lacuna_datagram *datagram);

/**
 * The peer with this address: an address handle, a number that the calls of this queue
 * pair take. Equal addresses are one handle, and it stays until
 * lacuna_datagram_forget(). LACUNA_RETRY if as many are held as peers_max of the settings
 * has. May be called from any thread.
 */
int lacuna_datagram_peer(struct lacuna_datagram *datagram,
                         const struct lacuna_address *address,
                         uint64_t *peer);

/**
 * Several hosts as one peer: a multicast group, or a broadcast address. What
 * lacuna_datagram_send() and lacuna_datagram_write_named() post to it goes to all, once;
 * those that miss something ask for it again for a second. A reliable queue pair has no
 * groups. The rest as lacuna_datagram_peer().
 */
int lacuna_datagram_group(struct lacuna_datagram *datagram,
                          const struct lacuna_address *address,
                          uint64_t *peer);

/**
 * Gives a handle back: the peer may go once others need its place. May be called from any
 * thread.
 */
int lacuna_datagram_forget(struct lacuna_datagram *datagram, uint64_t peer);

/**
 * The address of a peer. LACUNA_USAGE if it is not known, or not any more. May be called
 * from any thread.
 */
int lacuna_datagram_address(struct lacuna_datagram *datagram,
                            uint64_t peer,
                            struct lacuna_address *address);

/**
 * Ends the error of a peer, so that messages can be posted to it again. Only peers of
 * reliable queue pairs are ever in error: they were silent for silence_ms of the settings,
 * or have begun anew and lost what they knew. May be called from any thread.
 */
int lacuna_datagram_reset(struct lacuna_datagram *datagram,
                          uint64_t peer);

/**
 * Tells a peer, or a group, up to where has been sent, once that has left: it knows then
 * which messages were lost last. Of those before, later ones tell it. May be called from
 * any thread.
 */
int lacuna_datagram_say_sent(struct lacuna_datagram *datagram, uint64_t peer);

/**
 * Has what is sent to a multicast group, and to this queue pair's port, come here, on an
 * interface by its number: 0 is that of the address's scope, or of the route. The port of
 * group does not count. LACUNA_USAGE if the address is no group's, LACUNA_SYSTEM if the
 * system refuses: it is joined already, or there is no such interface. May be called from
 * any thread.
 */
int lacuna_datagram_join(struct lacuna_datagram *datagram,
                         const struct lacuna_address *group,
                         uint32_t interface);

/**
 * Leaves a group that lacuna_datagram_join() has joined, with the same arguments. May be
 * called from any thread.
 */
int lacuna_datagram_leave(struct lacuna_datagram *datagram,
                          const struct lacuna_address *group,
                          uint32_t interface);

/**
 * Gives a region, or a window of one, a name by its key, under which
 * lacuna_datagram_write_named() of peers finds it; a key that is NULL takes the name back.
 * May be called from any thread.
 */
int lacuna_datagram_name_region(struct lacuna_datagram *datagram,
                                uint32_t name,
                                const uint32_t *key);

/**
 * Takes up to capacity completions of the queue pair's own list, the oldest first, as
 * lacuna_completion_queue_poll() takes those of a queue: with it the memory of what has
 * completed is the program's again. LACUNA_USAGE if the queue pair completes into a queue.
 * Write-Records that come wait in the list, 65536 at most; more are dropped until
 * it was polled. With progress = manual it makes progress, for the whole context. May be
 * called from any thread.
 */
int lacuna_datagram_poll(struct lacuna_datagram *datagram,
                         struct lacuna_completion *completions,
                         size_t capacity,
                         uint64_t timeout_ms,
                         size_t *count);

/**
 * Takes up to capacity errors, the oldest first, waiting for the first at most timeout_ms;
 * with 0 it only looks. They are what the queue pair refused, and what peers said of
 * messages from here. count gets how many: 0 if none came in time, which is LACUNA_OK.
 * Errors end nothing. Some thousand wait at most, and more are counted. May be called from
 * any thread.
 */
int lacuna_datagram_poll_error(struct lacuna_datagram *datagram,
                               struct lacuna_datagram_error *errors,
                               size_t capacity,
                               uint64_t timeout_ms,
                               size_t *count);

/**
 * Counters of now as one JSON object: peers, messages, packets, what was missed, dropped
 * and why. The rest as lacuna_stats_json().
 */
int lacuna_datagram_stats_json(struct lacuna_datagram *datagram,
                               char *buffer,
                               size_t capacity,
                               size_t *length);

/**
 * Posts a message for the next receive of a peer: count parts of memory, one after the
 * other. It completes when its packets were handed to the network, and of a reliable queue
 * pair when the peer has all of it; user_data comes back with the completion. After
 * deadline_ms, unless that is 0, it is given up. flags is a sum of enum lacuna_queued. The
 * bytes must not change until the completion was polled, or lacuna_datagram_free() has
 * returned, but what is silent or goes to a group is copied, and the program's again when
 * the call returns; slices itself is read during the call alone. Messages to one peer are
 * sent in order. LACUNA_RETRY when the completion queue has no free entry, LACUNA_PEER
 * when the peer is in error. A message that finds no receive is lost, which
 * lacuna_datagram_poll_error() tells both ends; of a reliable queue pair it waits for one.
 * May be called from any thread.
 */
int lacuna_datagram_send(struct lacuna_datagram *datagram,
                         uint64_t peer,
                         const struct lacuna_slice *slices,
                         size_t count,
                         uint64_t deadline_ms,
                         uint32_t flags,
                         uint64_t user_data);

/**
 * Posts a Write-Record: bytes for memory of a peer, offset bytes behind the start of key's
 * range. The peer has posted nothing for it, and its queue pair tells of it by
 * LACUNA_OPERATION_WRITTEN: what came of it, with the map of what did not. Nothing more is
 * told here. The rest as lacuna_datagram_send().
 */
int lacuna_datagram_write_record(struct lacuna_datagram *datagram,
                                 uint64_t peer,
                                 uint32_t key,
                                 uint64_t offset,
                                 const struct lacuna_slice *slices,
                                 size_t count,
                                 uint64_t deadline_ms,
                                 uint32_t flags,
                                 uint64_t user_data);

/**
 * As lacuna_datagram_write_record(), for memory that has a name at the peer, or at each of
 * a group: lacuna_datagram_name_region().
 */
int lacuna_datagram_write_named(struct lacuna_datagram *datagram,
                                uint64_t peer,
                                uint32_t name,
                                uint64_t offset,
                                const struct lacuna_slice *slices,
                                size_t count,
                                uint64_t deadline_ms,
                                uint32_t flags,
                                uint64_t user_data);

/**
 * Posts a READ: as many bytes of a peer's memory as the slices have, from offset bytes
 * behind the start of key's range on, go into them. It completes when all are there, by
 * its deadline, or when the peer refuses; a READ has a completion whatever flags has. It
 * should have a deadline, unless the queue pair is reliable: its question or its answer
 * may be lost, and a key that the peer does not know gets no answer. The memory is the
 * library's until the completion was polled, or lacuna_datagram_free() has returned;
 * slices itself is read during the call alone. The rest as lacuna_datagram_send().
 */
int lacuna_datagram_read(struct lacuna_datagram *datagram,
                         uint64_t peer,
                         uint32_t key,
                         uint64_t offset,
                         const struct lacuna_slice *slices,
                         size_t count,
                         uint64_t deadline_ms,
                         uint32_t flags,
                         uint64_t user_data);

/**
 * Posts a receive, for a message of anybody that lacuna_datagram_send() has posted: its
 * bytes go into the slices, one after the other. Receives are taken in order, each by one
 * message, which may be shorter. user_data comes back with the completion, which has the
 * source. The memory is the library's until the completion was polled, or
 * lacuna_datagram_free() has returned; slices itself is read during the call alone.
 * LACUNA_RETRY when the completion queue has no free entry. May be called from any thread.
 */
int lacuna_datagram_receive(struct lacuna_datagram *datagram,
                            const struct lacuna_slice *slices,
                            size_t count,
                            uint64_t user_data);

/**
 * Fills in the defaults. May be called from any thread.
 */
int lacuna_datagram_settings_default(struct lacuna_datagram_settings *settings);

/**
 * Forms a group of so many ranks, of which this is number rank: rank 0 waits for the others
 * at host, as in "192.0.2.1:29500", and the others look for it there; then each connects
 * with each. settings may be NULL: meeting_timeout_ms is how long ranks wait for each
 * other, and all of them have to give the same mode, chunk_bytes and job. LACUNA_PEER says
 * who did not come.
 */
int lacuna_group_form(const char *host,
                      uint32_t rank,
                      uint32_t ranks,
                      const struct lacuna_settings *settings,
                      struct lacuna_group **group);

/**
 * The same with host, rank and number of ranks by the environment, as torchrun and others
 * set it: MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; LACUNA_RENDEZVOUS (HOST:PORT) and
 * LACUNA_JOB where they are wanted otherwise. The setting job goes before the latter. With LACUNA_JOIN
 * (HOST:PORT) it is lacuna_group_join() of that.
 * LACUNA_USAGE names the variable that is missing.
 */
int lacuna_group_form_from_environment(const struct lacuna_settings *settings,
                                       struct lacuna_group **group);

/**
 * This rank, from 0 on. May be called from any thread.
 */
int lacuna_group_rank(struct lacuna_group *group, uint32_t *rank);

/**
 * How many ranks there are. May be called from any thread.
 */
int lacuna_group_ranks(struct lacuna_group *group, uint32_t *ranks);

/**
 * Because of which rank the group has failed; UINT32_MAX if it has not, or if it is no
 * rank's fault. Once an operation has failed, all do, as ranks no longer agree on what was
 * sent. May be called from any thread.
 */
int lacuna_group_failed_rank(struct lacuna_group *group,
                             uint32_t *rank);

/**
 * Frees a group. NULL is allowed. What was sent has up to two seconds to arrive; then its
 * operations end, and their memory is the program's when this returns. Other ranks may go
 * on with what does not need this one. Must be the last call with the group and its
 * operations. In a child process that has inherited it, see lacuna_context_free().
 */
void lacuna_group_free(struct lacuna_group *group);

/**
 * Every rank gets the reduction of all inputs, of count elements each: element is of enum
 * lacuna_element, reduction of enum lacuna_reduction. options may be NULL.
 *
 * What all operations of a group have in common: all ranks start the same ones in the same
 * order, from one thread at a time. If operation is NULL the call waits until it is over,
 * and answers how it went (lacuna_group_operation_wait()); else the operation goes on, and
 * operation gets what it is waited for and freed by. Memory is used in place, without a
 * copy: until the operation is over, or the group was freed or formed again, the input must
 * not change, and the output not be touched. If input is NULL though the operation has one,
 * it is in place: then the output has the length of the longer of the two, and this rank's
 * part of it is the shorter. Otherwise the two must not overlap. LACUNA_USAGE changes
 * nothing; when the group has failed every call answers LACUNA_PEER or LACUNA_DEADLINE.
 */
int lacuna_group_all_reduce(struct lacuna_group *group,
                            const void *input,
                            void *output,
                            uint64_t count,
                            uint32_t element,
                            uint32_t reduction,
                            const struct lacuna_group_options *options,
                            struct lacuna_group_operation **operation);

/**
 * Every rank gets its part of the reduction of all inputs: of counts[rank] elements, or of
 * count if counts is NULL. An input has the parts of all ranks, one behind the other. The
 * rest as lacuna_group_all_reduce().
 */
int lacuna_group_reduce_scatter(struct lacuna_group *group,
                                const void *input,
                                void *output,
                                uint64_t count,
                                const uint64_t *counts,
                                uint32_t element,
                                uint32_t reduction,
                                const struct lacuna_group_options *options,
                                struct lacuna_group_operation **operation);

/**
 * Every rank gets the inputs of all, one behind the other: of counts[rank] elements, or of
 * count if counts is NULL. The rest as lacuna_group_all_reduce().
 */
int lacuna_group_all_gather(struct lacuna_group *group,
                            const void *input,
                            void *output,
                            uint64_t count,
                            const uint64_t *counts,
                            uint32_t element,
                            const struct lacuna_group_options *options,
                            struct lacuna_group_operation **operation);

/**
 * Every rank gets the input of rank root, of count elements. The input of others does not
 * count. The rest as lacuna_group_all_reduce().
 */
int lacuna_group_broadcast(struct lacuna_group *group,
                           const void *input,
                           void *output,
                           uint64_t count,
                           uint32_t root,
                           uint32_t element,
                           const struct lacuna_group_options *options,
                           struct lacuna_group_operation **operation);

/**
 * Rank root gets the reduction of all inputs, of count elements each. The output of others
 * does not count. The rest as lacuna_group_all_reduce().
 */
int lacuna_group_reduce(struct lacuna_group *group,
                        const void *input,
                        void *output,
                        uint64_t count,
                        uint32_t root,
                        uint32_t element,
                        uint32_t reduction,
                        const struct lacuna_group_options *options,
                        struct lacuna_group_operation **operation);

/**
 * Rank root gets the inputs of all, one behind the other: of counts[rank] elements, or of
 * count if counts is NULL. The output of others does not count. The rest as
 * lacuna_group_all_reduce().
 */
int lacuna_group_gather(struct lacuna_group *group,
                        const void *input,
                        void *output,
                        uint64_t count,
                        const uint64_t *counts,
                        uint32_t root,
                        uint32_t element,
                        const struct lacuna_group_options *options,
                        struct lacuna_group_operation **operation);

/**
 * Every rank gets its part of the input of rank root, which has the parts of all, one
 * behind the other: of counts[rank] elements, or of count if counts is NULL. The input of
 * others does not count. The rest as lacuna_group_all_reduce().
 */
int lacuna_group_scatter(struct lacuna_group *group,
                         const void *input,
                         void *output,
                         uint64_t count,
                         const uint64_t *counts,
                         uint32_t root,
                         uint32_t element,
                         const struct lacuna_group_options *options,
                         struct lacuna_group_operation **operation);

/**
 * Every rank sends a part of its input to every rank and gets a part of everybody's: of
 * count elements each, or of as many as sent and received say if they are not NULL. Parts
 * are one behind the other, in the order of ranks. It cannot be in place. The rest as
 * lacuna_group_all_reduce().
 */
int lacuna_group_all_to_all(struct lacuna_group *group,
                            const void *input,
                            void *output,
                            uint64_t count,
                            const uint64_t *sent,
                            const uint64_t *received,
                            uint32_t element,
                            const struct lacuna_group_options *options,
                            struct lacuna_group_operation **operation);

/**
 * Sends sent elements of the input to rank to, and receives received elements into the
 * output from rank from. Either may be UINT32_MAX, for nobody; both, for a rank that has no
 * part. Like all operations it is started by every rank of the group. It cannot be in
 * place. The rest as lacuna_group_all_reduce().
 */
int lacuna_group_exchange(struct lacuna_group *group,
                          const void *input,
                          uint32_t to,
                          uint64_t sent,
                          void *output,
                          uint32_t from,
                          uint64_t received,
                          uint32_t element,
                          const struct lacuna_group_options *options,
                          struct lacuna_group_operation **operation);

/**
 * No rank goes on before all have come. The rest as lacuna_group_all_reduce().
 */
int lacuna_group_barrier(struct lacuna_group *group,
                         const struct lacuna_group_options *options,
                         struct lacuna_group_operation **operation);

/**
 * Joins a group that is there: waits at host until the ranks there call
 * lacuna_group_form_with(). host may be several, with commas between them, as in
 * "node0:29500,node1:29500". The setting job has to be the one that the group was formed
 * with, and mode and chunk_bytes those of the others; meeting_timeout_ms is how long it
 * waits. lacuna_group_rank() and lacuna_group_ranks() say what it has become.
 */
int lacuna_group_join(const char *host,
                      const struct lacuna_settings *settings,
                      struct lacuna_group **group);

/**
 * Forms the group again, of the ranks that are left when one is gone: in the order of their
 * old ranks, so lacuna_group_rank() and lacuna_group_ranks() answer anew. All that are left
 * have to call it within timeout_ms of each other; who does not is no part of it any more.
 * Operations that go on are lost, and their memory is the program's when this returns. If
 * it fails, the group can only be freed. Waits for other calls with the group.
 */
int lacuna_group_form_again(struct lacuna_group *group,
                            uint64_t timeout_ms);

/**
 * The same with newcomers, which call lacuna_group_join() and come behind the old ranks: so
 * many are waited for, for at most timeout_ms; then the group goes on with who came. The
 * lowest of the old ranks listens for them at address, as in "[::]:29500", while this
 * lasts. Which host that is depends on who is left, so it is an address that each of them
 * has. All old ranks have to give the same. The group need not have failed.
 */
int lacuna_group_form_with(struct lacuna_group *group,
                           const char *address,
                           uint32_t newcomers,
                           uint64_t timeout_ms);

/**
 * Splits the group, as MPI_Comm_split() does: the ranks that give the same color get a
 * group of their own, in the order of their keys, and of their old ranks where those are
 * the same. With a negative color there is none, and part gets NULL. All ranks call it, in
 * the same order as other splits of the group. The group goes on beside its parts:
 * operations of all of them may be in flight at once, and a failure of one does nothing to
 * the others. LACUNA_PEER says who did not come within the setting meeting_timeout_ms; the
 * group is as it was then. May be called from any thread.
 */
int lacuna_group_split(struct lacuna_group *group,
                       int64_t color,
                       int64_t key,
                       struct lacuna_group **part);

/**
 * How an operation stands, without waiting: LACUNA_OK if it is over and the result in its
 * place, LACUNA_RETRY while it goes on, another code if it has failed. Its memory is the
 * program's again with every answer but LACUNA_RETRY. May be called from any thread.
 */
int lacuna_group_operation_poll(struct lacuna_group_operation *operation);

/**
 * Waits until an operation is over, for at most timeout_ms: LACUNA_OK if it is and the
 * result is in its place, LACUNA_RETRY if it goes on. Other codes say that it has failed,
 * and with it the group: lacuna_group_failed_rank() says because of whom, and
 * lacuna_group_form_again() goes on without it. Of these LACUNA_DEADLINE is for an
 * operation that took longer than its budget. Its memory is the program's again with every
 * answer but LACUNA_RETRY. May be called from any thread.
 */
int lacuna_group_operation_wait(struct lacuna_group_operation *operation,
                                uint64_t timeout_ms);

/**
 * How an operation that is over went. LACUNA_RETRY while it goes on. May be called from
 * any thread.
 */
int lacuna_group_operation_report(struct lacuna_group_operation *operation,
                                  struct lacuna_group_report *report);

/**
 * Which contributions the output lacks, of an operation that is over: an entry for each
 * range of elements and rank, in order. Writes as many as fit; count gets the number of
 * all, and may be NULL. missing may be NULL if capacity is 0. LACUNA_RETRY while it goes
 * on. May be called from any thread.
 */
int lacuna_group_operation_missing(struct lacuna_group_operation *operation,
                                   struct lacuna_group_missing *missing,
                                   size_t capacity,
                                   size_t *count);

/**
 * The schedule that an operation which is over was carried out by. LACUNA_RETRY while it
 * goes on. The rest as lacuna_describe().
 */
int lacuna_group_operation_algorithm(struct lacuna_group_operation *operation,
                                     char *buffer,
                                     size_t capacity,
                                     size_t *length);

/**
 * Frees an operation that is over. LACUNA_RETRY while it goes on: its memory is in use, so
 * wait for it first; lacuna_group_free() ends those that go on. May be called from any
 * thread. In a child process that has inherited it, see lacuna_context_free().
 */
int lacuna_group_operation_free(struct lacuna_group_operation *operation);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LACUNA_LACUNA_H */
