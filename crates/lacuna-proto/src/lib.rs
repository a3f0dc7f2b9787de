//! Protocol of the Lacuna transport, as pure state machines.
//!
//! Above the record of what was placed where (`lacuna_place`) stand the reliability [`modes`], which
//! decide what to do about the gaps, and the queue pair [`qp`], which joins them with the path to the
//! peer (`lacuna_path`). How two ends find each other is [`handshake`].
//!
//! No socket, thread, clock or global randomness: time (`now_ns`, nanoseconds
//! of any epoch) and keys are arguments, so the same code runs over sockets and
//! inside a simulation, and the same inputs give the same packets.

#![forbid(unsafe_code)]

pub mod buffer;
pub mod handshake;
pub mod modes;
pub mod probe;
mod probe_rounds;
pub mod qp;
