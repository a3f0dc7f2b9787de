//! Counters of an impaired link, readable from other threads while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of an impaired link so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImpairCounters {
    /// Packets that this end handed to the link.
    pub sent: u64,
    /// Of these, packets lost at random.
    pub lost: u64,
    /// Packets that found the queue full, or too much in flight already.
    pub queue_dropped: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets held back, so that later ones overtook them.
    pub reordered: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets that the inner datapath refused to send when they were released: too large for the
    /// path, or no route.
    pub refused: u64,
}

/// The counters of an [`Impair`](super::Impair), from any thread.
#[derive(Clone, Debug)]
pub struct ImpairCountersHandle(pub(super) Arc<SharedCounters>);

impl ImpairCountersHandle {
    /// The counters so far. A packet that another thread is sending may be counted in some of them.
    #[must_use]
    pub fn read(&self) -> ImpairCounters {
        self.0.read()
    }
}

/// One writer, any number of readers, no order between the counters.
#[derive(Debug, Default)]
pub(super) struct SharedCounters {
    pub(super) sent: Counter,
    pub(super) lost: Counter,
    pub(super) queue_dropped: Counter,
    pub(super) duplicated: Counter,
    pub(super) reordered: Counter,
    pub(super) corrupted: Counter,
    pub(super) refused: Counter,
}

impl SharedCounters {
    pub(super) fn read(&self) -> ImpairCounters {
        ImpairCounters {
            sent: self.sent.get(),
            lost: self.lost.get(),
            queue_dropped: self.queue_dropped.get(),
            duplicated: self.duplicated.get(),
            reordered: self.reordered.get(),
            corrupted: self.corrupted.get(),
            refused: self.refused.get(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
