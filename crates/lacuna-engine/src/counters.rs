//! Counters of an engine that belong to no queue pair.

use lacuna_wire::{PacketError, RejectKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Packets that reached no queue pair, by reason, drops of the datapaths, and moves of paths. Written
/// by the engine, read by any thread.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets that are not Lacuna's or are damaged, by [`RejectKind::as_index`].
    pub rejected: [AtomicU64; RejectKind::COUNT],
    /// Valid packets for an unknown queue pair or with a wrong key.
    pub unknown: AtomicU64,
    /// Packets that the receive queues of this host dropped.
    pub receive_drops: AtomicU64,
    /// Packets that a datapath refused to send.
    pub refused_by_datapath: AtomicU64,
    /// Channels of queue pairs whose peer has moved to another address, and proved it.
    pub paths_moved: AtomicU64,
    /// Channels whose peer seemed to have moved, but was still where it had been.
    pub paths_kept: AtomicU64,
    /// Addresses that the peer seemed to have moved to, and that answered no challenge.
    pub paths_unproved: AtomicU64,
}

impl Counters {
    #[cold]
    pub(crate) fn reject(&self, error: &PacketError) {
        self.rejected[error.kind().as_index()].fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn unknown(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }
}
