//! The sender's view of the path to a peer: data in flight, round-trip time, loss detection,
//! congestion control and pacing; and the receiver's reports.
//!
//! | module | contents |
//! |---|---|
//! | `path` | [`Path`]: the sender's state of the path to one peer, which joins the modules below |
//! | [`rtt`], [`loss`] | estimates: round-trip time (RFC 6298), losses and their bursts |
//! | [`ledger`], `missing`, `reordering` | runs in flight, and when a packet counts as lost (RACK) |
//! | `delivery`, [`pacer`] | delivery-rate samples; pacing |
//! | [`controller`] | congestion controllers: BBR, CUBIC, a fixed rate |
//! | [`shared_credit`] | what queue pairs to one peer share: credit of its sockets, number of senders |
//! | `ecn`, `black_hole` | whether ECN-capable and full packets pass |
//! | [`memory`] | records of paths for later connections |
//! | [`arrivals`], [`report_policy`] | the receiver's side: counts of packets, and when to report |
//! | [`small_vec`] | a vector with one element inline |
//!
//! The crate knows packets and sequence numbers, but no messages: the owner of a [`Path`] says
//! which packets a run holds, and decides what their loss means. So queue pairs of any protocol can
//! use it. Time (`now_ns`, nanoseconds of any epoch) and seeds are arguments. There is no socket,
//! thread or clock, and the same inputs give the same answers.

#![forbid(unsafe_code)]

pub mod arrivals;
mod black_hole;
pub mod controller;
pub mod delivery;
mod ecn;
pub mod flow;
pub mod lateness;
pub mod ledger;
pub mod loss;
pub mod memory;
mod missing;
pub mod pacer;
mod path;
pub mod ranges;
mod reordering;
pub mod report_policy;
pub mod rtt;
pub mod shared_credit;
pub mod small_vec;

pub use path::{IP_UDP_BYTES, Path, RtoConfig};
