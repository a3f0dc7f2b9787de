//! Counters of a datagram queue pair.

use crate::discard::Discards;
use lacuna_secure::datagram::KeyringStats;
use lacuna_wire::ddp::DdpErrorKind;

/// What a datagram queue pair did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Peers that are known.
    pub peers: usize,
    /// Peers with something to send.
    pub active_peers: usize,
    /// Peers that went for others.
    pub peers_evicted: u64,
    /// Messages that wait to be sent.
    pub messages_waiting: usize,
    /// Messages from here that were handed to the network.
    pub messages_sent: u64,
    /// Packets of them, and of control.
    pub packets_sent: u64,
    /// Packets that came and were taken.
    pub packets_taken: u64,
    /// Bytes of messages in them.
    pub bytes_taken: u64,
    /// Messages that came whole, Sends and Write-Records.
    pub messages_whole: u64,
    /// Write-Records that ended with something missing.
    pub messages_partial: u64,
    /// Messages of which nothing came, as far as their numbers tell.
    pub messages_missed: u64,
    /// Messages that are open.
    pub messages_open: usize,
    /// Messages that were closed as there were too many open.
    pub messages_evicted: u64,
    /// Segments that were dropped.
    pub discards: Discards,
    /// Datagrams that are no packets, by [`DdpErrorKind`].
    pub rejected: [u64; DdpErrorKind::COUNT],
    /// Errors that found the queue full.
    pub errors_dropped: u64,
    /// Errors that their source was not told, as it was told enough.
    pub errors_silenced: u64,
    /// Peers with reliable streams.
    pub streams: usize,
    /// Bytes that were sent again, of reliable messages and of those to groups.
    pub bytes_again: u64,
    /// How often a peer was put into error.
    pub peers_failed: u64,
    /// Of sealed datagrams: keys, and what was not opened. All 0 of a queue pair in clear.
    pub sealed: KeyringStats,
}
