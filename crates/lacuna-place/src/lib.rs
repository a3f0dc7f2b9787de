//! Placement: packets that say where they belong, put there in any order, and the record of what
//! came. No message order, no mode and no path; no socket, thread or clock.
//!
//! | module | what it holds |
//! |---|---|
//! | `geometry` | the numbers that both ends agree on: packets, chunks, stripes, slots, and where each lies |
//! | `placement` | the memory of one receive, as the workers see it |
//! | `slot` | who may touch a buffer when: pins, generations, and the end of both |
//! | `receive` | the record of one receive: packet bits, chunk bits, end, immediate |
//! | `table` | the slots of one queue pair |
//! | `writer` | the right to place packets of one channel |
//! | `burst`, `summary` | placing a burst of packets, the fast path; and what it did |
//! | `pieces`, `payload` | packets that come in pieces; and those of which only the length is known |
//! | `parity` | where parity stands, what of it is kept, and the repair of what was lost |
//! | `discard` | why a packet set no bit |
//! | `prefetch` | asking for memory ahead of its use |
//!
//! What is to be done about the gaps, in which order messages are sent and received, and how fast
//! packets travel is decided by the crates above, which read the record.
//!
//! Invariants:
//! - bytes are where they belong or their bit is clear, and a bit is set only once they are there;
//! - each byte has one writer, the worker of its channel, because the channel follows from the place;
//! - once a slot is closed nothing writes to its buffer any more.
//!
//! All unsafe code of the transport that is about memory which several threads share is here, and
//! is tested with loom: `slot.rs`, `placement.rs`, and their users `receive.rs`, `burst.rs` and
//! `burst/repairs.rs`, which state why the contracts hold. `prefetch.rs` asks for memory and touches
//! none.

#![deny(unsafe_code)]

pub mod burst;
pub mod discard;
pub mod geometry;
pub mod parity;
mod payload;
mod pieces;
pub mod placement;
pub mod prefetch;
pub mod receive;
pub mod slot;
pub mod summary;
mod sync;
pub mod table;
pub mod writer;

pub use sync::Yield;
