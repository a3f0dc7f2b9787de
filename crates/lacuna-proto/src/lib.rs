//! Protocol of the Lacuna transport, as pure state machines.
//!
//! A receiver of a message always knows which parts it lacks; what to do about
//! the gaps is software's choice. This crate holds both halves: the record of
//! what was placed where ([`receive`], [`slot`], [`table`]), and above it the
//! reliability [`modes`] and the queue pair [`qp`], which joins them with the
//! path to the peer (`lacuna-path`).
//!
//! No socket, thread, clock or global randomness: time (`now_ns`, nanoseconds
//! of any epoch) and keys are arguments, so the same code runs over sockets and
//! inside a simulation, and the same inputs give the same packets.
//!
//! Unsafe code is confined to the memory that workers share: `slot.rs` (who may
//! touch a buffer when), `placement.rs` (copying into it), and their two users
//! `receive.rs` and `table.rs`, which state why the contracts hold; and to `prefetch.rs`, which asks
//! for memory and touches none.

#![deny(unsafe_code)]

pub mod buffer;
pub mod burst;
pub mod discard;
pub mod geometry;
pub mod modes;
pub mod parity;
mod pieces;
pub mod placement;
pub mod prefetch;
pub mod probe;
pub mod qp;
pub mod receive;
pub mod slot;
pub mod summary;
mod sync;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod writer;
