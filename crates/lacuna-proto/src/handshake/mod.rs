//! The handshake that makes a connection, as two state machines: [`Connect`] and [`Accept`]. Over TCP
//! the ends say who they are, what both will use, and how to reach their queue pairs.
//!
//! ```text
//! connecting end                                 accepting end
//!   hello (wishes, ports, keys)          ─────▶  connected: posts receives
//!                                        ◀─────  welcome (packet size, info) or refusal
//!                                        ◀─────  over UDP: full packets, each channel;
//!   connected: data                      ─────▶          receives posted (clear to send)
//! ```
//!
//! One round trip behind TCP's own, and data right behind it. Four things that
//! would cost more are taken from elsewhere:
//!
//! - The control connection may be one that has served before, without TCP's round
//!   trip: the owner keeps a pool of them.
//! - The round-trip time is TCP's, which its handshake has measured, if the
//!   exchange took no longer; else what the exchange took, until there is a
//!   sample ([`Rtt`]). Only where packets over UDP come later than the welcome is TCP of
//!   another path, and time is taken to measure.
//! - The packet size is the largest candidate that both ends' TCP would send.
//!   That it passes shows by the accepting end's full packets, which come beside
//!   the welcome; from there on both ends prove it (`qp/proof.rs`).
//!   Where those do not come, because of address translation, loss or a narrow
//!   link between, the connecting end probes before it goes on. If only smaller
//!   packets pass, it says goodbye and connects anew with what does.
//! - What the peer sends over UDP may overtake its welcome: the owner keeps it
//!   for the queue pair, since the peer's word that receives are posted may be in it.
//!
//! The machines hold no socket, clock or thread. Their owner moves bytes between them and the control
//! connection (`wanted`, `on_bytes`; `poll_bytes`, `on_sent`), calls them when their time has come
//! (`poll_timeout`, `on_timeout`), and does what they ask for (`poll`). A wrong magic, version or
//! parameter is an error that says so.
//!
//! Invariants: no byte behind the peer's message is read, because it belongs to whoever watches the
//! control connection afterwards; each machine ends with exactly one outcome, by its deadline; memory
//! is bounded by the longest message, whatever a stranger claims.

mod accept;
mod connect;
pub mod goodbye;
mod info;
mod message_reader;
mod messages;
mod rtt;
#[cfg(test)]
mod tests;
mod wishes;

pub use accept::{Accept, AcceptError, AcceptStep, Welcoming};
pub use connect::{Agreed, Connect, ConnectError, ConnectStep, Offer, ProbePlan};
pub use info::{Disagreement, check_agreement, info_of, peer_of};
pub use messages::{End, Hello, PROTOCOL_VERSION, addresses, busy};
pub use rtt::Rtt;
pub use wishes::{Host, Wishes};

use messages::printable;
use serde::Deserialize;

/// The peer's message is none of this protocol, or of another version of it.
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

/// The part of what is left until `deadline_ns` that finding out whether packets pass may take: so that
/// who gives up can still say why.
fn patience_ns(now_ns: u64, deadline_ns: u64) -> u64 {
    let left_ns = deadline_ns.saturating_sub(now_ns);
    left_ns - left_ns / 4
}
