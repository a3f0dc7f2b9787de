//! Lacuna from C: the shared and static library `liblacuna`.
//!
//! Two interfaces over the same transport. `sdr.h` and `sdr_mr.h` are the API that the authors of
//! SDR-RDMA published (table 1 of the paper): queue pairs, connection info that the program
//! exchanges itself, a live bitmap, no reliability. `lacuna.h` is Lacuna's own: connections with
//! modes and deadlines, whose peers are found, agreed with and watched. `docs/c-library.md` is the
//! manual.
//!
//! Invariants:
//! - Each exported function is thin: it checks its pointers (`pointer.rs`), does one thing with
//!   safe types, and turns the result into a code (`outcome.rs`), where panics are caught, too.
//! - What a handle points to lives as long as its parent (`pool.rs`), so the use of a handle after
//!   its end, or by two threads at once, is an error and not a dangling pointer.
//! - The program's memory is touched only between the call that hands it over and the one that
//!   returns it (`memory.rs`).
//! - Outputs are written last, and only on success.
//! - Global state is limited to each thread's last error text, the network of the datapath `mem`,
//!   and the environment (`environment.rs`).

// The exported names follow C's conventions.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the texts become C comments, where an address in brackets is no link"
)]
#![allow(non_camel_case_types)]

// The bitmap's bytes are those of its words: chunk i is bit i % 8 of byte i / 8 only on
// little-endian machines.
#[cfg(target_endian = "big")]
compile_error!("the live bitmap of sdr_recv_bitmap_get needs a little-endian machine");

pub mod endpoint;
mod environment;
mod memory;
mod outcome;
mod pointer;
mod pool;
mod progress;
pub mod sdr;
