//! Measurement of a path: what share of the packets it loses and in which bursts, how long it is
//! and how much that varies, whether it reorders, what rate it delivers, how large a packet may be.
//!
//! Two state machines: a [`Client`] that sends trials of numbered packets at a bounded rate, and a
//! [`Server`] that keeps a record of what came ([`Arrivals`]) and hands it back. Neither holds a
//! socket, a clock, a thread or a source of randomness: `now_ns`, keys and seeds are arguments, so
//! the same code runs over sockets and over an emulated path on a fake clock. All of it is about the
//! way from the client to the server; only round trips need the way back.
//!
//! | file | what it is |
//! |---|---|
//! | [`wire`] | the packets |
//! | `proof` | how a server knows that an address is its sender's, without keeping anything |
//! | [`TokenBucket`] | why the rate asked for is never exceeded |
//! | [`Arrivals`] | the record of a trial: loss, bursts, reordering (RFC 4737), jitter (RFC 3550) |
//! | `client`, `server` | the two machines |
//! | [`estimate`] | from counts to numbers with confidence intervals |
//! | [`summary`] | what all trials together say of the path |
//!
//! Rules that hold throughout:
//!
//! * No answer of a server is longer than what it answers, and there is none but a challenge for an
//!   address that has not proved to receive what is sent to it. So a server is of no use to those
//!   who want to flood somebody else.
//! * A server keeps at most so many clients for at most so long, and a bounded record for each.
//! * Whatever bytes come, they are parsed or counted as foreign; they never panic.

#![forbid(unsafe_code)]

mod arrivals;
mod bucket;
pub mod client;
mod counted;
pub mod estimate;
mod host;
mod proof;
pub mod server;
pub mod summary;
pub mod wire;

pub use arrivals::{Arrivals, PACKETS_MAX};
pub use bucket::TokenBucket;
pub use client::{Client, ClientConfig, ClientError, Packet, Trial};
pub use counted::{BINS, Counted};
pub use host::{Host, HostDrops};
pub use server::{Server, ServerConfig, ServerEvent};
pub use summary::{PathEstimate, SizeEstimate, Summary};

/// Most flows of a client, each a socket of its own.
pub const FLOWS_MAX: u16 = 64;
/// The shortest payload of a probe: its header, the trailer, and no shorter than the answer to it.
pub const PAYLOAD_BYTES_MIN: u32 = wire::ECHO_BYTES as u32;
/// The longest payload of a probe: what UDP carries over IPv4.
pub const PAYLOAD_BYTES_MAX: u32 = 65_507;
/// The longest trial (a judgement: what is longer is better several trials).
pub const TRIAL_NS_MAX: u64 = 3600 * 1_000_000_000;

const _: () = assert!(PAYLOAD_BYTES_MIN as usize >= wire::PROBE_HEADER_BYTES + wire::TRAILER_BYTES);
