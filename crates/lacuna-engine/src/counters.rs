//! What an engine counts that belongs to no queue pair.

use lacuna_wire::{PacketError, RejectKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Packets refused before they reached a queue pair, by reason; and more that has no queue pair to
/// count it. Written by the engine, read by anybody.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets that are none of Lacuna, or are damaged, by [`RejectKind::as_index`].
    pub rejected: [AtomicU64; RejectKind::COUNT],
    /// Good packets for queue pairs that there are not, or with another key.
    pub unknown: AtomicU64,
    /// Packets that this end's receive queues have dropped.
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
