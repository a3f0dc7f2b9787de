//! The path to a peer: what is in flight, how long a round trip takes, what is lost, and how fast and
//! how much may be sent.
//!
//! | module | what it holds |
//! |---|---|
//! | `path` | [`Path`]: the sender's books of one peer, which join the modules below |
//! | [`rtt`], [`loss`] | estimates: round-trip time (RFC 6298), losses and their bursts |
//! | [`ledger`], `missing`, `reordering` | runs in flight, and when a packet counts as lost (RACK) |
//! | `delivery`, [`pacer`] | delivery-rate samples; pacing |
//! | [`controller`] | congestion controllers, and their table |
//! | [`pool`] | what queue pairs to one peer share: room in its sockets, number of senders |
//! | `ecn`, `passage` | whether congestion marks and full packets pass |
//! | [`memory`] | what a path was found to be like, for the next connection |
//! | [`arrivals`], [`report_policy`] | the receiver's side: what came, and when to report it |
//! | [`small_vec`] | a vector with one element inline |
//!
//! The crate knows packets and sequence numbers, and no message: whoever owns a [`Path`] says which
//! packets a run holds, and decides what the loss of one means. Queue pairs of any protocol can so
//! share it. Time (`now_ns`, nanoseconds of any epoch) and seeds are arguments. There is no socket,
//! thread or clock, and the same inputs give the same answers.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod controller;
mod delivery;
mod ecn;
pub mod ledger;
pub mod loss;
pub mod memory;
mod missing;
pub mod pacer;
mod passage;
mod path;
pub mod pool;
mod reordering;
pub mod report_policy;
pub mod rtt;
pub mod small_vec;

pub use path::{IP_UDP_BYTES, Path, RtoConfig};
