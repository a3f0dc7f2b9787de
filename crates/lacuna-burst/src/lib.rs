//! The border between protocols and datapaths of the Lacuna transport: packets on their way, and the
//! trait of what carries them.
//!
//! A [`Burst`] is packets to one destination, gathered for one call; a [`ReceivedBatch`] is packets of
//! one source that came together. [`Datapath`] moves both and says in its [`Capabilities`] what it can
//! do. What carries packets (`lacuna-datapath`) and what makes and takes them (`lacuna-engine`) know
//! these types and not each other.
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
/// RFC 768). IPv6 would take 20 bytes more; one bound for both keeps their behaviour alike.
pub const PACKET_BYTES_MAX: usize = 65_507;

/// Packets that leave in one piece at most: `UDP_MAX_SEGMENTS` of Linux before 6.9. Later kernels
/// take 128; at the sizes that matter a piece is full of bytes before.
pub const BUNDLE_PACKETS_MAX: usize = 64;
