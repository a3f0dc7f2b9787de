//! A gateway: LoWAR's repairs in front of any RoCEv2 stack, a kernel's or a card's.
//!
//! LoWAR is transparent on the wire: data packets are never changed, and a connection above does not notice
//! the shim. So two boxes at the ends of a long path can have it, and the hosts behind them need nothing. The
//! one near the sender adds repairs; the one near the receiver recovers what was lost, and hands on in order.
//!
//! | module | contents |
//! |---|---|
//! | `frame` | Ethernet frames with packets of RoCEv2, and frames made from others |
//! | `flows` | what is known of each flow, by addresses and queue pair; bounded |
//! | `gateway` | frames from one side, frames for the other |
//!
//! Invariants: a frame that is not understood passes as it is; a data frame that came passes bit by bit; no
//! repair reaches a host; whatever comes, memory is bounded.
//!
//! No socket, thread or clock: frames and `now_ns` are arguments.

#![forbid(unsafe_code)]

mod flows;
mod frame;
mod gateway;

pub use frame::RoceFrame;
pub use gateway::{Counters, Gateway, GatewayConfig};
