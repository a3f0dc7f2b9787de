/* Lacuna's own interface: connections with a mode and deadlines, live bitmaps.
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
 * A connection to a peer.
 */
struct lacuna_connection;

/**
 * Sockets and threads that connections share.
 */
struct lacuna_context;

/**
 * Waits for peers.
 */
struct lacuna_listener;

/**
 * A posted receive.
 */
struct lacuna_receive;

/**
 * A write under way.
 */
struct lacuna_send;

/**
 * Settings for contexts and connections.
 */
struct lacuna_settings;

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
 * receive_buffer_bytes, ecn (on, off: whether packets may be marked), path_memory
 * (a file that keeps what paths are like, for the next program; nothing need be
 * there yet; "" for none), pcap (a file that every packet is captured to, replaced
 * if it exists; contexts of the same settings share it; made up in it are the
 * headers of IP and UDP, the UDP destination port 4791 and the ICRC; "" for none),
 * pcap_limit_bytes (where the capture ends; the traffic goes on). Of a connection: mode (auto, sr, sr:rto, raw, ec, or with
 * a code of one's own as in ec:mds:32:8), chunk_bytes, mtu_bytes (or "probe"),
 * split (as in 10+18+4), generations, max_message_bytes, cc (congestion control:
 * bbr, cubic, fixed, or auto, which is fixed if a rate is given, else bbr),
 * rate_bits_per_s (what fixed sends at and the others begin at; 0 or "find" finds
 * one), deadline_ms, silence_ms (at least 1), connect_timeout_ms, tag (a number
 * for the accepting end). May be called from any thread; objects that were made
 * with these settings keep theirs.
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
 * is given (the smaller one, if both ends give it). mode, chunk_bytes, split,
 * generations, max_message_bytes and tag are the connecting end's, whatever
 * settings has for them. May be called from any thread.
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
 * Closes and frees a connection, with its receives and sends. NULL is allowed.
 * The peer is told in good order. Nothing touches the program's memory after it
 * returns. Must be the last call with the connection and what was made of it. In a
 * child process that has inherited it, see lacuna_context_free(): nobody is told.
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LACUNA_LACUNA_H */
