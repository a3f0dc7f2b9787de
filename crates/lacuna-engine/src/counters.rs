//! Counters of an engine that belong to no queue pair.

use lacuna_wire::{PacketError, RejectKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Packets that reached no queue pair, by reason, and drops of the datapaths. Written by the
/// engine, read by any thread.
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
