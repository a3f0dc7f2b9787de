//! Protocol of the Lacuna transport, as pure state machines.
//!
//! The receiver's record of which packet was placed where is `lacuna_place`'s. The reliability
//! [`modes`] decide what to do about the gaps in it. The queue pair [`qp`] joins the modes with the
//! path to the peer (`lacuna_path`), and [`handshake`] makes a connection out of two queue pairs.
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
