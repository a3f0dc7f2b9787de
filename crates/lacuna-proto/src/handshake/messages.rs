//! The messages of the handshake over TCP. Each is a magic, a length and JSON, so that a capture is
//! readable and fields can be added. All fields are untrusted, and are checked before they are used.

use super::siblings::{self, Sibling, SiblingFields};
use super::wire::HelloWire;
use crate::qp::Peer;
use core::net::SocketAddr;
use lacuna_path::report_policy::ReportPolicy;
use lacuna_wire::{Qpn, ReportsInfo};
use serde::{Deserialize, Serialize};

/// First bytes of every control connection.
pub(super) const MAGIC: &[u8; 8] = b"LACUNA\r\n";
/// Version of the handshake and of the protocol after it. 2: one message each way. 3: an
/// acknowledgement may omit the front of its bitmap. 4: a chunk of the code may be several chunks of
/// the bitmap. 5: a slot is whole chunks. 6: a packet whose offset follows from its number has no
/// address. 7: packets may come in pieces.
pub const PROTOCOL_VERSION: u32 = 7;
/// Longest message: several times the longest real one, and small enough for a thousand peers at
/// once.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Most characters of a peer's text in an error.
const QUOTED_CHARS_MAX: usize = 300;

/// The fields that the hello of every version has.
#[derive(Debug, Deserialize)]
pub(super) struct AnyHello {
    pub(super) version: u32,
}

/// The connecting end's message: the parameters that it wants, and how to reach it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the protocol.
    pub version: u32,
    /// Name and version of the program, for logs.
    pub agent: String,
    /// Reliability mode, as it is written.
    pub mode: String,
    /// Bytes per chunk.
    pub chunk_bytes: u64,
    /// Payload bytes of a packet, if this end's configuration fixes them.
    pub mtu_bytes: Option<u32>,
    /// Longest IP packet that this end's TCP would send, if known.
    #[serde(default)]
    pub packet_bytes: Option<u32>,
    /// Generations of a slot.
    pub generations: u8,
    /// Bits of message id, packet offset, user fragment.
    pub split: [u8; 3],
    /// Longest message of a slot; 0 is what the split allows.
    pub max_message_bytes: u64,
    /// The application's number for the purpose of the connection.
    #[serde(default)]
    pub tag: u64,
    /// Whether the control connection may be reused afterwards.
    #[serde(default)]
    pub keeps: bool,
    /// The report policy that this end's congestion controller wants, if not the usual one. Older
    /// peers do not read it, and report as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reports: Option<HelloReports>,
    /// Further queue pairs of this end. Older peers do not read them, and answer without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) siblings: Vec<SiblingFields>,
    /// The form of data packets, if not the short one. Older peers do not read it; their welcome
    /// shows that they did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wire: Option<HelloWire>,
    /// How to reach it.
    pub end: End,
}

/// A report policy in the hello; in the welcome it is part of the queue pair's info.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HelloReports(#[serde(with = "ReportsFields")] pub(super) ReportsInfo);

/// Its fields as JSON has them.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ReportsInfo")]
struct ReportsFields {
    bytes_max: u32,
    delay_ns_min: u32,
    delay_ns_max: u32,
    gap_delay_ns_min: u32,
    per_rtt: u32,
    on_mark: bool,
}

impl Hello {
    /// Further queue pairs of the connecting end, of the roles that are known here.
    pub fn siblings(&self) -> Vec<Sibling> {
        siblings::of_fields(&self.siblings)
    }

    /// The report policy that the connecting end asks for, if not the default; clamped to the limits of
    /// this end.
    pub fn reports(&self) -> Option<ReportPolicy> {
        self.reports.as_ref().map(|HelloReports(wanted)| ReportPolicy::of_peer(wanted))
    }
}

/// How to reach the connecting end's channels.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct End {
    /// Number of its queue pair.
    pub queue_pair: u32,
    /// Key of data packets.
    pub rkey: u32,
    /// Key of control packets.
    pub qkey: u32,
    /// First sequence number on each channel.
    pub first_psn: u32,
    /// Bytes that one of its sockets holds for this peer.
    pub credit_bytes: u32,
    /// UDP port of each channel.
    pub ports: Vec<u16>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Welcome {
    Accepted {
        version: u32,
        agent: String,
        /// Whether either end's configuration fixes the packet size; if so, no other size is tried.
        is_mtu_given: bool,
        /// The queue pair's description as bytes ([`lacuna_wire::QpInfo`]), with the packet size.
        info: Vec<u8>,
        /// Whether the control connection is reused, which the hello must have offered.
        #[serde(default)]
        keeps: bool,
        /// Queue pairs that answer those in the hello.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        siblings: Vec<SiblingFields>,
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
    /// Checks that packets can be addressed to this end; returns its number of channels.
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

    /// This end as the queue pair's [`Peer`].
    pub fn peer(&self) -> Peer {
        Peer {
            queue_pair: self.queue_pair,
            rkey: self.rkey,
            qkey: self.qkey,
            first_psn: self.first_psn,
            credit_bytes: self.credit_bytes,
        }
    }
}

/// Addresses of channels at these ports of the peer's host.
pub fn addresses(host: SocketAddr, ports: impl Iterator<Item = u16>) -> Vec<Option<SocketAddr>> {
    let at = |port| {
        let mut address = host;
        address.set_port(port);
        Some(address)
    };
    ports.map(at).collect()
}

/// Encodes a message: magic, length, JSON.
pub(super) fn encode(message: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(message).expect("plain data without maps");
    [&MAGIC[..], &(body.len() as u32).to_be_bytes(), &body].concat()
}

/// The refusal of a peer for lack of room, sent before its hello is read.
pub fn busy(reason: String) -> Vec<u8> {
    encode(&Welcome::Busy { version: PROTOCOL_VERSION, reason })
}

/// A peer's text made safe to print: short, and without control characters.
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

/// The smaller of two optional limits.
pub(super) fn smaller(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Name and version of this program.
pub(super) fn agent() -> String {
    concat!("lacuna/", env!("CARGO_PKG_VERSION")).to_owned()
}
