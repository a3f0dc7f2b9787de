//! What the ends say to each other over TCP, and how to read it: a length and
//! JSON, so that a capture reads well and fields may be added. Everything here
//! comes from a stranger and is judged before it is used.

use lacuna_proto::qp::Peer;
use lacuna_wire::Qpn;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Opens every control connection.
pub(super) const MAGIC: &[u8; 8] = b"LACUNA\r\n";
/// Version of the exchange and of everything after it. 2: one message each way. 3: an
/// acknowledgement may leave out a part of its bitmap in front. 4: a code's chunks may be
/// several of the bitmap's. 5: a slot is whole chunks. 6: a packet that goes to the place of
/// its number has no address. 7: packets may come in pieces.
pub const PROTOCOL_VERSION: u32 = 7;
/// Longest message: several times what any holds, and little enough for a
/// thousand peers at once.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Characters of a peer's text that go into an error.
const QUOTED_CHARS_MAX: usize = 300;

/// What the hello of every version begins with; the rest is that version's own.
#[derive(Debug, Deserialize)]
pub(super) struct AnyHello {
    pub(super) version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    /// Name and version of the program, for logs.
    pub(super) agent: String,
    pub(super) mode: String,
    pub(super) chunk_bytes: u64,
    /// Payload bytes of a packet, if they are given.
    pub(super) mtu_bytes: Option<u32>,
    /// Longest IP packet that this end's TCP would send, if known.
    #[serde(default)]
    pub(super) packet_bytes: Option<u32>,
    pub(super) generations: u8,
    /// Bits of message id, packet offset, user fragment.
    pub(super) split: [u8; 3],
    pub(super) max_message_bytes: u64,
    #[serde(default)]
    pub(super) tag: u64,
    /// Whether the control connection may serve again; see `reuse.rs`.
    #[serde(default)]
    pub(super) keeps: bool,
    pub(super) end: End,
}

/// How to reach the connecting end's channels.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) queue_pair: u32,
    pub(super) rkey: u32,
    pub(super) qkey: u32,
    pub(super) first_psn: u32,
    pub(super) credit_bytes: u32,
    pub(super) ports: Vec<u16>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Welcome {
    Accepted {
        version: u32,
        agent: String,
        /// Whether either end has given the packet size: no other is tried then.
        is_mtu_given: bool,
        /// The queue pair's blob, with the packet size.
        info: Vec<u8>,
        /// Whether the control connection serves again, as the hello has offered.
        #[serde(default)]
        keeps: bool,
    },
    Refused {
        version: u32,
        reason: String,
    },
    /// Refused for now.
    Busy {
        version: u32,
        reason: String,
    },
}

impl End {
    /// Whether packets can be addressed to it; gives its number of channels.
    pub(super) fn check(&self) -> Result<u8, String> {
        let (least, most) = (Qpn::QUEUE_PAIR_MIN, Qpn::QUEUE_PAIR_MAX);
        if !(least..=most).contains(&self.queue_pair) {
            return Err(format!("queue pair {}: must be {least} to {most}", self.queue_pair));
        }
        if let Some(channel) = self.ports.iter().position(|port| *port == 0) {
            return Err(format!("port 0 for channel {channel}: nothing can be sent there"));
        }
        if self.first_psn >= 1 << 24 {
            return Err(format!("first sequence number {}: must be 24 bits", self.first_psn));
        }
        match self.ports.len() {
            count @ 1..=lacuna_wire::CHANNELS_MAX => Ok(count as u8),
            count => Err(format!("{count} channels: must be 1 to {}", lacuna_wire::CHANNELS_MAX)),
        }
    }

    pub(super) fn peer(&self) -> Peer {
        Peer {
            queue_pair: self.queue_pair,
            rkey: self.rkey,
            qkey: self.qkey,
            first_psn: self.first_psn,
            credit_bytes: self.credit_bytes,
        }
    }
}

/// Where channels at these ports of the peer's host are.
pub(super) fn addresses(
    host: SocketAddr,
    ports: impl Iterator<Item = u16>,
) -> Vec<Option<SocketAddr>> {
    let at = |port| {
        let mut address = host;
        address.set_port(port);
        Some(address)
    };
    ports.map(at).collect()
}

/// An end's message, with what opens the connection and its length in front.
pub(super) fn opening(message: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(message).expect("plain data without maps");
    [&MAGIC[..], &(body.len() as u32).to_be_bytes(), &body].concat()
}

/// A peer's text as it may be shown: short, and without control characters.
pub(super) fn printable(text: &str) -> String {
    let mut shown = String::new();
    for char in text.chars().take(QUOTED_CHARS_MAX) {
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}

pub(super) fn smaller(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

pub(super) fn agent() -> String {
    concat!("lacuna/", env!("CARGO_PKG_VERSION")).to_owned()
}
