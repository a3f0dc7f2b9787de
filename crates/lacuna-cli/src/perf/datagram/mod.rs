//! `--qp ud` and `--qp rd`: the measurement over datagram queue pairs (`lacuna::datagram`), both sides of it.
//!
//! The server has one queue pair, and the client as many as it wants to be peers, each with a socket of its own:
//! so a server is measured as many clients would use it. There are no connections; over the session the server
//! tells its port and the keys of its memory.
//!
//! A source does not know what came, so the server counts. When the client has handed all messages to the
//! network it says so over the session, and the server goes on until all is there or nothing has come for a while.
//!
//! | module | contents |
//! |---|---|
//! | `ends` | the client's queue pairs |
//! | `group` | one message to several servers |
//! | `client` | its operations |
//! | `lent` | the server's queue pair and memory |
//! | `server` | what comes, until nothing more does |
//! | `contents` | which bytes a message has, and whether those that came are right |
//! | `counts` | what came, as it is told and reported |

mod client;
mod contents;
mod counts;
mod ends;
pub(super) mod group;
mod lent;
mod server;

pub(super) use client::Requests;
pub(super) use counts::{Counted, Placed};
pub(super) use ends::Ends;
pub(super) use group::Receiver;
pub(super) use lent::{Lent, Shape};
pub(super) use server::Served;

use super::ClientArgs;
use super::protocol::Sent;
use super::report::Facts;
use super::verb::Verb;
use crate::failure::Failure;
use crate::units::{show_count, show_rate};

use lacuna::controller::{ControllerConfig, TABLE};
use lacuna::datagram::{Multicast, Reliable, SEAL_BYTES, Settings, Stats};
use lacuna::{Connection, ControllerKind, Mode, Wire};
use lacuna_wire::ddp::{TAGGED_HEADER_BYTES, TRAILER_BYTES, UNTAGGED_HEADER_BYTES};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// Queue pairs of a client, at most: each takes some descriptors and a buffer of a bundle of packets.
pub(super) const PEERS_MAX: u16 = 4096;
/// As the session and the report say that packets are encrypted.
const SEALED: &str = "sealed";
/// What headers and trailer of a packet of the session take.
const SESSION_OVERHEAD_BYTES: u32 = 20;
/// A READ is over after this, and twice the time that all in flight take at the rate, if there is one.
const READ_DEADLINE: Duration = Duration::from_secs(1);

/// The client's side, as it is told to the server.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Asked {
    /// Its queue pairs.
    peers: u32,
    /// Longest packet, as UDP payload.
    packet_bytes: u32,
    /// Of what the server sends to each peer.
    rate_bits_per_s: Option<u64>,
    /// Whether losses are to be repaired.
    #[serde(default)]
    reliable: bool,
    /// What is sent to this group is to be taken, on its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<SocketAddr>,
}

impl Asked {
    pub(super) fn packet_bytes(&self) -> u32 {
        self.packet_bytes
    }
}

/// The server's queue pair, as it is told to the client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Offered {
    port: u16,
    /// Keys of its memory, which the messages of a place take in turns.
    keys: Vec<u32>,
    /// Places of each peer in it.
    places: u32,
}

impl Offered {
    /// Refuses a server that does not hear the group.
    pub(super) fn check(&self, args: &ClientArgs, host: &str) -> Result<(), Failure> {
        args.group.map_or(Ok(()), |group| group::check(host, group, self.port))
    }
}

/// Why these arguments of `--qp ud` or `--qp rd` make no sense, if so.
pub(super) fn refused(args: &ClientArgs) -> Option<String> {
    let qp = &args.qp;
    let others = [
        ("--ping-pong", args.ping_pong),
        ("--missing", args.missing.is_some()),
        ("--chunk", args.chunk.is_some()),
        ("--wire rdma", args.wire != Wire::default()),
        ("--mode", args.mode != Mode::Auto),
        ("--no-offload", args.end.no_offload),
        ("--channels", args.end.channels > 1),
        ("--pcap", args.end.capture.is_on()),
        ("--path-memory", args.pace.path_memory.is_some()),
    ];
    if let Some((name, _)) = others.iter().find(|(_, is_used)| *is_used) {
        return Some(format!("{name} is not for --qp {qp}: leave it out, or take --qp sdr"));
    }
    if args.deadline.is_some() && args.verb != Verb::Read && !is_reliable(args) {
        let verb = args.verb.name();
        return Some(format!(
            "--deadline of --qp ud is for --verb read: a {verb} is over when it was handed to the network"
        ));
    }
    if args.size > u32::MAX.into() {
        return Some(format!("--qp {qp} has messages of {} bytes at most", u32::MAX));
    }
    let payload_bytes = args.mtu.unwrap_or_default();
    if args.validate && !payload_bytes.is_multiple_of(contents::WORD_BYTES as u32) {
        return Some(format!(
            "--validate with --qp {qp} needs an --mtu of whole words: a multiple of 8"
        ));
    }
    if args.validate && args.size < contents::WORD_BYTES {
        return Some(format!("--validate with --qp {qp} needs a --size of 8 bytes or more"));
    }
    let places = u64::from(args.inflight) * u64::from(args.peers);
    if args.validate && args.verb == Verb::WriteRecord && places > contents::PLACES_MAX {
        let most = contents::PLACES_MAX;
        return Some(format!(
            "--validate with {places} messages in flight is too many: choose --inflight and --peers of {most} together"
        ));
    }
    None
}

fn is_reliable(args: &ClientArgs) -> bool {
    args.qp == "rd"
}

/// What headers and trailer of a message's packets take.
fn overhead_bytes(verb: Verb) -> u32 {
    let header = if verb == Verb::Send { UNTAGGED_HEADER_BYTES } else { TAGGED_HEADER_BYTES };
    (header + TRAILER_BYTES) as u32
}

/// What sealing takes of a packet: the queue pairs trust as the session does.
fn seal_bytes(session: &Connection) -> u32 {
    if is_sealed(session) { SEAL_BYTES as u32 } else { 0 }
}

fn is_sealed(session: &Connection) -> bool {
    session.chosen().wire == SEALED
}

/// Payload of a packet: as asked for, or what the path of the session passes, in whole words.
fn payload_bytes(args: &ClientArgs, session: &Connection) -> u32 {
    args.mtu.unwrap_or_else(|| {
        let packet_bytes = session.chosen().mtu_bytes + SESSION_OVERHEAD_BYTES;
        let word = contents::WORD_BYTES as u32;
        let overhead_bytes = overhead_bytes(args.verb) + seal_bytes(session);
        (packet_bytes.saturating_sub(overhead_bytes) / word * word).max(word)
    })
}

/// What the server is asked for.
pub(super) fn asked(args: &ClientArgs, session: &Connection) -> Asked {
    Asked {
        peers: args.peers.into(),
        packet_bytes: payload_bytes(args, session)
            + overhead_bytes(args.verb)
            + seal_bytes(session),
        rate_bits_per_s: rate_of_each(args).filter(|_| args.verb == Verb::Read),
        reliable: is_reliable(args),
        group: args.group,
    }
}

/// What paces each queue pair, and whether it repairs.
fn settings(args: &ClientArgs) -> Settings {
    let controller = ControllerConfig::of(args.pace.cc, rate_of_each(args)).unwrap_or_default();
    let reliable = is_reliable(args).then(|| Reliable { controller, ..Reliable::default() });
    let rate_bits_per_s = match controller {
        ControllerConfig::Fixed { rate_bits_per_s } => Some(rate_bits_per_s),
        _ => None,
    };
    let multicast = Multicast { repairs: !args.no_group_repair, ..Multicast::default() };
    let controller = Some(controller);
    Settings { rate_bits_per_s, controller, reliable, multicast, ..Settings::default() }
}

/// The share of a queue pair: together they have the rate that was asked for.
fn rate_of_each(args: &ClientArgs) -> Option<u64> {
    args.pace.rate.map(|rate| (rate / u64::from(args.peers)).max(1))
}

/// How long an operation may take, if that is bounded: a READ always, as its answer may be lost.
fn deadline(args: &ClientArgs) -> Option<Duration> {
    let is_read = args.verb == Verb::Read && !is_reliable(args);
    args.deadline.or_else(|| is_read.then(|| read_deadline(args)))
}

fn read_deadline(args: &ClientArgs) -> Duration {
    args.deadline.unwrap_or_else(|| {
        let in_flight_bits =
            args.size as f64 * 8.0 * f64::from(args.inflight) * f64::from(args.peers);
        let all_s = args.pace.rate.map_or(0.0, |rate| in_flight_bits / rate as f64);
        READ_DEADLINE + Duration::try_from_secs_f64(2.0 * all_s).unwrap_or(Duration::MAX / 2)
    })
}

/// The name of a kind of controller.
fn name_of(kind: ControllerKind) -> &'static str {
    TABLE.iter().find(|entry| entry.kind == kind).map_or("", |entry| entry.name)
}

/// What a user is told at the start.
pub(super) fn start_line(args: &ClientArgs, session: &Connection) -> String {
    let peers = match (args.group, args.peers) {
        (Some(group), _) => {
            let servers = show_count(args.others.len() as u64 + 1, "server");
            format!("datagrams to the group {} for {servers}", group::name(group))
        }
        (None, 1) => "datagrams".to_owned(),
        (None, count) => format!("datagrams from {}", show_count(count.into(), "queue pair")),
    };
    let pace = match (args.pace.rate, args.pace.cc) {
        (Some(rate), _) => show_rate(rate as f64),
        (None, cc) => name_of(cc.unwrap_or(ControllerConfig::default().kind())).to_owned(),
    };
    let repair = match args.group {
        _ if is_reliable(args) => "selective repeat",
        Some(_) if !args.no_group_repair => "repaired as servers ask",
        _ => "nothing repaired",
    };
    format!("{peers}, {} bytes a packet, {repair}, {pace}", payload_bytes(args, session))
}

/// What the report says of the queue pairs.
pub(super) fn facts(
    args: &ClientArgs,
    session: &Connection,
    stats: &Stats,
    messages: u64,
) -> Facts {
    let payload_bytes = payload_bytes(args, session);
    let bytes = messages.saturating_mul(args.size);
    Facts {
        mode: if is_reliable(args) { "sr" } else { "raw" }.to_owned(),
        channels: 1,
        chunk_bytes: payload_bytes.into(),
        mtu_bytes: payload_bytes,
        wire: if is_sealed(session) { SEALED } else { "ddp" },
        payload_bytes_max: payload_bytes,
        refused_packets: 0,
        sent: Sent {
            packets: stats.packets_sent,
            bytes,
            retransmitted_packets: stats.bytes_again / u64::from(payload_bytes).max(1),
            ..Sent::default()
        },
        auto: None,
        rc: None,
        datagrams: Some(Counted::of_client(args.peers, stats).with_group(args)),
    }
}
