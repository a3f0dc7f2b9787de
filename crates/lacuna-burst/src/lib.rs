//! The interface between protocol and datapath of the Lacuna transport: the trait [`Datapath`] and the
//! packets that cross it.
//!
//! A [`Burst`] holds packets to one destination, gathered for one call; a [`ReceivedBatch`] holds packets
//! from one source that arrived together. [`Datapath`] sends and receives them; its [`Capabilities`] list
//! its limits and offloads. The datapaths (`lacuna-datapath`) and their user (`lacuna-engine`) both depend
//! on this crate and not on each other.
//!
//! Nothing here holds a socket, a thread or a clock. Unsafe code is confined to `burst/raw.rs`.

#![deny(unsafe_code)]

pub mod burst;
mod datapath;
mod error;
mod fatal;
mod received;

pub use burst::{Burst, BurstBuffers, TxPacket};
pub use datapath::{Capabilities, Datapath, Placer, TrailerOffload};
#[cfg(unix)]
pub use datapath::{EventSource, EventSources};
pub use error::SendError;
pub use fatal::{ends_listener, ends_socket};
pub use received::{Packets, PacketsMut, ReceivedBatch};

/// The largest UDP payload: 65,535 bytes of IPv4 packet less 20 of IP and 8 of UDP header (RFC 791,
/// RFC 768). IPv6 would allow 20 bytes more; one bound for both keeps their behaviour alike.
pub const PACKET_BYTES_MAX: usize = 65_507;

/// Most packets of one bundle: `UDP_MAX_SEGMENTS` of Linux before 6.9. Later kernels take 128; at usual
/// packet sizes a bundle reaches [`PACKET_BYTES_MAX`] before.
pub const BUNDLE_PACKETS_MAX: usize = 64;
