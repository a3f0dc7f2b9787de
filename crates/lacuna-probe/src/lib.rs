//! Measurement of a path: packet loss and its bursts, round-trip time and its variation, reordering,
//! rate and MTU.
//!
//! There are two state machines: a [`Client`] that sends trials of numbered packets at a bounded rate,
//! and a [`Server`] that records the arrivals ([`Arrivals`]) and reports them. Neither holds a socket, a
//! clock, a thread or a source of randomness: `now_ns`, keys and seeds are arguments, so the same code
//! runs over sockets and over an emulated path on a fake clock. All results are about the direction from
//! client to server; only round trips include the other direction.
//!
//! | file | contents |
//! |---|---|
//! | [`wire`] | the packets |
//! | `address_validation` | stateless cookies, by which a server validates a client's address |
//! | [`TokenBucket`] | keeps the client within its rate |
//! | [`Arrivals`] | the record of a trial: loss, bursts, reordering (RFC 4737), jitter (RFC 3550) |
//! | `client`, `server` | the two machines |
//! | [`estimate`] | from counts to numbers with confidence intervals |
//! | [`summary`] | the estimates of all trials together |
//!
//! Rules that hold throughout:
//!
//! * An answer of a server is never longer than its request, and an address that is not validated gets
//!   nothing but a challenge. So a server cannot be used to flood others (amplification).
//! * A server bounds the number of clients, the time of each, and the record of each.
//! * Any bytes that arrive are parsed or counted as foreign; they never panic.

#![forbid(unsafe_code)]

mod address_validation;
mod arrivals;
mod bucket;
pub mod client;
mod counted;
pub mod estimate;
mod host;
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
/// The shortest payload of a probe: that of its echo, which must not be longer.
pub const PAYLOAD_BYTES_MIN: u32 = wire::ECHO_BYTES as u32;
/// The longest payload of a probe: that of UDP over IPv4.
pub const PAYLOAD_BYTES_MAX: u32 = 65_507;
/// The longest trial (a judgement: several trials are better than a longer one).
pub const TRIAL_NS_MAX: u64 = 3600 * 1_000_000_000;

const _: () = assert!(PAYLOAD_BYTES_MIN as usize >= wire::PROBE_HEADER_BYTES + wire::TRAILER_BYTES);
