/* Memory registration of the SDR API, by Lacuna.
 *
 * Written from the Rust sources by crates/lacuna-capi/tests/headers.rs: do not edit.
 * docs/c-library.md is the manual.
 *
 * A thread must not be cancelled (pthread_cancel) while it is inside a call: that aborts
 * the process. A child process (fork) makes a context of its own: of what it has inherited
 * it may free each thing, which changes nothing for its parent, and all other calls with
 * that are errors. */

#ifndef LACUNA_SDR_MR_H
#define LACUNA_SDR_MR_H

#include <stddef.h>
#include <stdint.h>
#include "sdr.h"

/**
 * What the peer may do with registered memory.
 */
enum sdr_access_flags {
  /**
   * Write to it.
   */
  SDR_ACCESS_REMOTE_WRITE = 0,
};

/**
 * Registered memory.
 */
struct sdr_mr;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Registers length bytes at addr for sends and receives. The bytes must stay
 * allocated until sdr_mr_dereg() has succeeded, or the context was destroyed.
 *
 * Returns NULL on failure. May be called from any thread.
 */
struct sdr_mr *sdr_mr_reg(struct sdr_context *ctx,
                          void *addr,
                          size_t length,
                          enum sdr_access_flags access_flags);

/**
 * Ends a registration. SDR_RETRY while a posted receive or a send that is not
 * complete uses it. May be called from any thread. In a child process that has
 * inherited it, see sdr_context_destroy().
 */
int sdr_mr_dereg(struct sdr_mr *mr);

/**
 * The key that names the memory in work requests. May be called from any thread.
 */
int sdr_mr_lkey_get(struct sdr_mr *mr, uint32_t *lkey);

/**
 * The same key. Peers need none: the n-th send lands in the n-th posted receive.
 * May be called from any thread.
 */
int sdr_mr_rkey_get(struct sdr_mr *mr, uint32_t *rkey);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LACUNA_SDR_MR_H */
