//! The handshake of a connection, as two state machines: [`Connect`] and [`Accept`]. Over TCP (the
//! control connection) the ends agree on parameters and exchange the addresses and keys of their
//! queue pairs, as RDMA CM does with its REQ and REP.
//!
//! ```text
//! connecting end                                 accepting end
//!   hello (parameters, ports, keys)          ─────▶  connected: posts receives
//!                                        ◀─────  welcome (packet size, info) or refusal
//!                                        ◀─────  over UDP: full packets, each channel;
//!   connected: data                      ─────▶          receives posted (clear to send)
//! ```
//!
//! The exchange takes one round trip after TCP's own handshake, and data may follow at once. Four
//! things that would cost further round trips are avoided:
//!
//! - TCP's handshake: the owner keeps a pool of control connections, and may reuse one.
//! - A measurement of the round trip: TCP has measured one in its handshake. If the exchange took
//!   much longer, its duration is used until there is a sample ([`Rtt`]). If UDP packets come later
//!   than the welcome, TCP takes another path than UDP; only then the connecting end measures.
//! - A search for the packet size: it is the largest candidate that both ends' TCP would send. The
//!   accepting end sends full packets together with the welcome, and their arrival shows that the
//!   size passes; from there on both ends prove it (`qp/proof.rs`). If they do not arrive (address
//!   translation, loss, a smaller path MTU), the connecting end probes before it goes on. If only
//!   smaller packets pass, it sends a goodbye and connects again with the size that passes.
//! - Order between TCP and UDP: the peer's UDP packets may overtake its welcome. The owner keeps
//!   them for the queue pair, because they may say that receives are posted.
//!
//! The machines hold no socket, clock or thread. Their owner moves bytes between them and the
//! control connection (`wanted`, `on_bytes`; `poll_bytes`, `on_sent`), calls them when their timers
//! are due (`poll_timeout`, `on_timeout`), and takes the steps that they ask for (`poll`).
//!
//! Invariants: no byte after the peer's message is read, because the connection's monitor reads it;
//! each machine ends with exactly one outcome, by its deadline; memory is bounded by the longest
//! message, whatever length the peer announces.

mod accept;
mod connect;
pub mod goodbye;
mod info;
mod message_reader;
mod messages;
mod parameters;
mod rtt;
mod siblings;
#[cfg(test)]
mod tests;
mod wire;

pub use accept::{Accept, AcceptError, AcceptStep, Welcoming};
pub use connect::{Agreed, Connect, ConnectError, ConnectStep, Offer, ProbePlan};
pub use info::{Disagreement, check_agreement, info_of, peer_of};
pub use messages::{End, Hello, PROTOCOL_VERSION, addresses, busy};
pub use parameters::{HostLimits, Parameters};
pub use rtt::Rtt;
pub use siblings::{Role, Sibling};
pub use wire::{ParseWireError, Wire, WireEnds};

use messages::printable;
use serde::Deserialize;

/// The peer's message is not one of this protocol, or is of another version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The peer does not speak this protocol.
    #[error("no Lacuna: {0}")]
    NotLacuna(String),
    /// The peer speaks another version of it.
    #[error("version {there}, this end speaks version {PROTOCOL_VERSION}")]
    Version {
        /// The peer's version.
        there: u32,
    },
}

fn parse<'d, M: Deserialize<'d>>(body: &'d [u8], doing: &str) -> Result<M, MessageError> {
    serde_json::from_slice(body).map_err(|error| {
        let error = printable(&error.to_string());
        MessageError::NotLacuna(format!("while {doing}: {error}"))
    })
}

fn check_version(there: u32) -> Result<(), MessageError> {
    if there == PROTOCOL_VERSION { Ok(()) } else { Err(MessageError::Version { there }) }
}

/// Time limit for probing the path: three quarters of the time until `deadline_ns`, so that an end
/// that gives up can still tell the peer why.
fn probe_timeout_ns(now_ns: u64, deadline_ns: u64) -> u64 {
    let left_ns = deadline_ns.saturating_sub(now_ns);
    left_ns - left_ns / 4
}
