//! Protocol of the Lacuna transport, as pure state machines.
//!
//! `lacuna_place` places packets and keeps the receive bitmaps. The reliability [`modes`] repair the
//! gaps in them. A queue pair ([`qp`]) joins a mode with the path to the peer (`lacuna_path`), and the
//! [`handshake`] connects two queue pairs.
//!
//! No socket, thread, clock or global randomness: time (`now_ns`, nanoseconds
//! of any epoch) and keys are arguments, so the same code runs over sockets and
//! inside a simulation, and the same inputs give the same packets.

#![forbid(unsafe_code)]

pub mod handshake;
pub mod modes;
pub mod path_frames;
pub mod probe;
mod probe_rounds;
pub mod qp;
