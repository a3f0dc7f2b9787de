//! Packet placement: each packet names its offset in the receiver's buffer and is written there, in any
//! order of arrival; a bitmap records which packets arrived. There is no socket, thread or clock here.
//!
//! | module | contents |
//! |---|---|
//! | `geometry` | the numbers that both ends agree on: packets, chunks, stripes, slots, and their offsets |
//! | `region` | registered memory that many queue pairs write by key and offset |
//! | `placement` | the memory of one receive, shared by several workers |
//! | `pool` | buffers that receives of several queue pairs share |
//! | `buffer` | memory that sends take their bytes from |
//! | `slot` | an entry of the root key: pins and generations, so that nothing writes after a close |
//! | `receive` | the record of one receive: packet bits, chunk bits, end, immediate |
//! | `table` | the slots of one queue pair |
//! | `writer` | the exclusive right to place packets of one channel |
//! | `burst`, `summary` | the fast path: placing a burst of packets; and its counts |
//! | `pieces`, `payload` | packets that arrive in pieces; packets of which only the length is known |
//! | `parity` | the numbers of parity packets, the parity that is kept, and repairs with it |
//! | `discard` | the reasons why a packet was not placed |
//! | `reason` | the reasons why a receive is over |
//! | `prefetch` | software prefetch |
//!
//! The crates above read the record. They decide how gaps are repaired, in which order messages are
//! sent and received, and how fast packets are sent.
//!
//! Invariants:
//! - a bit is set only after its bytes were written;
//! - each byte of a slot has one writer, the worker of its channel, because a packet's offset determines
//!   its channel; regions have other rules (`region/mod.rs`);
//! - once a slot is closed, nothing writes to its buffer any more, and once a key is revoked, nothing
//!   writes to its range.
//!
//! All of the transport's unsafe code for memory that threads share is here, and is tested with loom:
//! `slot.rs`, `placement.rs` with `placement/elsewhere.rs`, `region/memory.rs`, and their users `receive.rs`, `receive/parity.rs`, `burst.rs` and
//! `burst/repairs.rs`, which state why the contracts hold. `prefetch.rs` only issues prefetch hints.

#![deny(unsafe_code)]

pub mod buffer;
pub mod burst;
pub mod discard;
pub mod geometry;
pub mod parity;
mod payload;
mod pieces;
pub mod placement;
pub mod pool;
pub mod prefetch;
pub mod reason;
pub mod receive;
pub mod region;
pub mod slot;
pub mod summary;
mod sync;
pub mod table;
pub mod writer;

pub use sync::Yield;
