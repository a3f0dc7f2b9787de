//! Lacuna from C: the shared and static library `liblacuna`.
//!
//! Two interfaces over the same engine. `sdr.h` and `sdr_mr.h` are the API that
//! the authors of SDR-RDMA published (table 1 of the paper): queue pairs, blobs
//! that the program exchanges itself, a live bitmap, no reliability. `lacuna.h`
//! is ours: connections that are found, agreed on and watched, with modes and
//! deadlines. `docs/c-library.md` is the manual.
//!
//! How it is built:
//! - each exported function is thin: it checks its pointers (`pointer.rs`), does
//!   one thing with safe types, and turns the outcome into a code (`outcome.rs`),
//!   which is also where panics end;
//! - what a handle points to lives as long as its parent (`pool.rs`), so a handle
//!   that is used after its end, or by two threads at once, is answered with an
//!   error and is no wild pointer;
//! - memory of the program is touched only between the call that hands it over
//!   and the one that says it is done with (`memory.rs`);
//! - outputs are written last, and only on success;
//! - there is no global state but the text of each thread's last error, the
//!   network behind the datapath `mem`, and the environment (`environment.rs`).

// The interface has the names of C.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the texts become C comments, where an address in brackets is no link"
)]
#![allow(non_camel_case_types)]

// The bitmap's bytes are those of its words: chunk i is bit i % 8 of byte i / 8
// only where the low byte comes first.
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
