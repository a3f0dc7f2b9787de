//! Epochs: all keys of an association are replaced together, by either end, without a word and without a stop.
//!
//! An end goes on to the next epoch when it may, and wants to, or when a packet of that epoch was opened. It may once
//! it has opened a packet of its present epoch, as in QUIC (RFC 9001, 6.1): the peer has come along.
//!
//! So the ends are never more than one epoch apart: to leave epoch *e*, an end must have heard the other one in *e*.
//! A receiver needs the keys of its own epoch, the one before, for what is late, and the one after. Two bits in
//! a packet tell these apart. Whatever is lost, any later packet does as well.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the epoch in a packet.
pub(crate) const BITS: u32 = 2;
const MASK: u64 = (1 << BITS) - 1;

/// The epoch of one end.
#[derive(Debug)]
pub(crate) struct Epochs {
    /// The one that this end seals with.
    current: AtomicU64,
    /// Packets of all epochs before this one were opened, or may have been.
    heard_end: AtomicU64,
    /// When the present one began.
    began_ns: AtomicU64,
    /// Bytes that were sealed in it, about.
    bytes: AtomicU64,
}

impl Epochs {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            current: AtomicU64::new(0),
            heard_end: AtomicU64::new(0),
            began_ns: AtomicU64::new(now_ns),
            bytes: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.began_ns.load(Ordering::Relaxed))
    }

    /// Adds bytes that were sealed; returns how many there are now.
    #[inline]
    pub(crate) fn add_bytes(&self, bytes: u64) -> u64 {
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Goes on to the next epoch if the peer was heard in the present one. Returns whether it did.
    pub(crate) fn try_advance(&self, now_ns: u64) -> bool {
        let current = self.current();
        self.heard_end.load(Ordering::Acquire) > current && self.move_to(current, now_ns)
    }

    /// A packet of this epoch was opened.
    #[inline]
    pub(crate) fn on_opened(&self, epoch: u64, now_ns: u64) {
        if self.heard_end.load(Ordering::Relaxed) <= epoch {
            self.heard_end.fetch_max(epoch + 1, Ordering::AcqRel);
        }
        if epoch == self.current() + 1 {
            self.move_to(epoch - 1, now_ns);
        }
    }

    /// From this epoch to the next, once, whoever asks.
    fn move_to(&self, from: u64, now_ns: u64) -> bool {
        let moved =
            self.current.compare_exchange(from, from + 1, Ordering::AcqRel, Ordering::Acquire);
        if moved.is_ok() {
            self.began_ns.store(now_ns, Ordering::Relaxed);
            self.bytes.store(0, Ordering::Relaxed);
        }
        moved.is_ok()
    }

    /// The epoch that a packet's bits mean; `None` if it is none that the peer can be in.
    #[inline]
    pub(crate) fn of_bits(&self, bits: u64) -> Option<u64> {
        let current = self.current();
        match bits.wrapping_sub(current) & MASK {
            0 => Some(current),
            1 => Some(current + 1),
            MASK => current.checked_sub(1),
            _ => None,
        }
    }
}

/// An epoch's bits in a packet.
#[inline]
pub(crate) fn bits(epoch: u64) -> u64 {
    epoch & MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Packets of both ends cross, are late, lost or doubled, and both ends want to go on at any time.
        #[test]
        fn the_ends_are_never_more_than_one_epoch_apart(steps in prop::collection::vec((0u8..6, any::<u8>()), 1..500)) {
            let ends = [Epochs::new(0), Epochs::new(0)];
            let mut packets: [Vec<u64>; 2] = Default::default();
            for (what, which) in steps {
                let end = usize::from(what % 2);
                match what / 2 {
                    0 => packets[end].push(ends[end].current()),
                    1 => {
                        ends[end].try_advance(0);
                    }
                    _ => {
                        let came = &packets[1 - end];
                        if let Some(&epoch) = came.get(usize::from(which) % came.len().max(1)) {
                            let read = ends[end].of_bits(bits(epoch));
                            // What is too old has a meaning only for its key, and its tag is wrong then.
                            if read == Some(epoch) {
                                ends[end].on_opened(epoch, 0);
                            } else {
                                prop_assert!(epoch + 1 < ends[end].current());
                            }
                        }
                    }
                }
                prop_assert!(ends[0].current().abs_diff(ends[1].current()) <= 1);
            }
        }
    }

    #[test]
    fn no_end_goes_on_alone() {
        let epochs = Epochs::new(0);
        assert!(!epochs.try_advance(1), "the peer was not heard yet");
        epochs.on_opened(0, 1);
        assert!(epochs.try_advance(2));
        assert!(!epochs.try_advance(3), "the peer has not come along");
        epochs.on_opened(0, 4);
        assert!(!epochs.try_advance(5), "that packet was late");
        epochs.on_opened(1, 6);
        assert!(epochs.try_advance(7));
        assert_eq!(epochs.current(), 2);
    }
}
