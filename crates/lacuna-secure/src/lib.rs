//! Sealed packets: everything behind a packet's base header is encrypted, and all of it is authenticated, so that
//! nobody but the peer can read it, change it, or make the receiver do anything.
//!
//! ```text
//! BTH 12 | ciphertext: other headers, payload, pad | epoch and number 4 | tag 16
//! ```
//!
//! - [`cipher`]: the two algorithms and what a key of each may be used for (RFC 9001, 6.6);
//! - [`schedule`]: from one secret of both ends to a key for each epoch, direction and channel;
//! - [`epoch`]: when keys are replaced, and why both ends are never more than one epoch apart;
//! - [`window`]: which numbers came, so that none counts twice (RFC 6479);
//! - [`association`]: all of it for one queue pair;
//! - [`datagram`]: the same for a queue pair with any number of peers and no connections;
//! - [`exchange`]: the secret of a queue pair whose ends exchanged descriptions by a way of the application's own;
//! - [`peering`]: keys of two ends that have nothing but datagrams between them, either of which may start again.
//!
//! The number counts the packets that were sealed with a key, whatever they are: data, control packets, probes, those
//! of reliable connections. So no protocol above can make one repeat, by sending a packet again or by counting in two
//! places. Its low bits travel with the packet; the receiver knows the others (RFC 9000, 17.1).
//!
//! Invariants: a key never seals two packets with one number; nothing of a packet is used, and no state but a counter
//! of failures changes, before its tag was checked; secrets are overwritten when they are dropped.
//!
//! No clock, socket or thread: time is an argument.

pub mod association;
pub mod cipher;
pub mod datagram;
pub mod epoch;
pub mod exchange;
pub mod peering;
pub mod schedule;
pub mod window;

pub use association::{Association, Limits, OpenError, SealError};
pub use cipher::Cipher;
pub use schedule::{End, SECRET_BYTES, Secret};

/// Bytes of a packet that stay in clear: the base header, which says whom it is for.
pub const HEAD_BYTES: usize = 12;
/// Bytes of epoch and number.
pub const NUMBER_BYTES: usize = 4;
/// Bytes of the tag.
pub const TAG_BYTES: usize = 16;
/// Bytes behind the ciphertext.
pub const TRAILER_BYTES: usize = NUMBER_BYTES + TAG_BYTES;
/// The shortest packet.
pub const PACKET_BYTES_MIN: usize = HEAD_BYTES + TRAILER_BYTES;
