//! What queue pairs share: the room in a peer's socket, and the caches of this host.
//!
//! A receiver divides its socket's buffer into equal parts, one for each queue pair: its *credit*.
//! With a thousand queue pairs a part is five packets, and a round trip for five packets costs more
//! than the packets. But few of a thousand send at a time, so the senders to one socket pool their
//! parts: a queue pair may hold as much as is left of the pool, or its own part if that is more,
//! while there is some left. This is the dynamic threshold of shared-memory switches (Choudhury and
//! Hahne, 1998, with alpha 1): each of n senders has 1/(n+1) of the pool, and some is always left for
//! the next one.
//!
//! All senders share the caches of this host, whatever their peer: the smallest congestion window of
//! a short path is divided among the senders that have anything in flight ([`Senders`]).
//!
//! Invariant: the pool holds the sum of what its members have in flight. Counts are not exact to the
//! packet while several workers take at once; a socket holds some packets more than it deals out.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// See the module's text. Charge is in the receiving kernel's accounting.
#[derive(Debug, Default)]
pub struct Pool {
    /// The members' parts together.
    capacity: AtomicU64,
    /// What they have in flight.
    held: AtomicU64,
    /// Those of them that have anything.
    senders: Senders,
}

/// Counts queue pairs that have anything in flight.
#[derive(Debug, Default)]
pub struct Senders(AtomicU32);

impl Senders {
    /// One more has something in flight.
    #[inline]
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One has nothing in flight any more.
    #[inline]
    pub fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many, one at least.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed).max(1)
    }
}

impl Pool {
    /// An empty pool; members bring their parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// The members that have anything in flight.
    pub(super) fn senders(&self) -> &Senders {
        &self.senders
    }

    /// A member's part has changed.
    #[inline]
    pub(super) fn change_part(&self, before: u64, now: u64) {
        self.capacity.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// A member has put so much in flight.
    #[inline]
    pub(super) fn take(&self, charge: u64) {
        self.held.fetch_add(charge, Ordering::Relaxed);
    }

    /// So much of a member's is in flight no more.
    #[inline]
    pub(super) fn give_back(&self, charge: u64) {
        self.held.fetch_sub(charge, Ordering::Relaxed);
    }

    /// What is held by nobody.
    fn left(&self) -> u64 {
        let held = self.held.load(Ordering::Relaxed);
        self.capacity.load(Ordering::Relaxed).saturating_sub(held)
    }

    /// What a member with a part of `own`, that holds `held` of the pool, may
    /// take in addition; `on_the_way` is room on the path before the socket.
    #[inline]
    pub(super) fn room(&self, own: u64, held: u64, on_the_way: u64) -> u64 {
        let left = self.left();
        let most = own.max(left).saturating_add(on_the_way);
        most.saturating_sub(held).min(left.saturating_add(on_the_way))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alone_has_its_part() {
        let pool = Pool::new();
        pool.change_part(0, 100);
        assert_eq!(pool.room(100, 0, 0), 100);
        pool.take(60);
        assert_eq!(pool.room(100, 60, 0), 40);
        assert_eq!(pool.room(100, 60, 50), 90, "the path holds some too");
        pool.change_part(100, 50);
        assert_eq!(pool.room(50, 60, 0), 0);
        pool.give_back(60);
        assert_eq!(pool.room(50, 0, 0), 50);
    }

    #[test]
    fn few_of_many_have_nearly_all_and_all_have_their_parts() {
        let pool = Pool::new();
        for _ in 0..1000 {
            pool.change_part(0, 10);
        }
        for senders in [1u64, 2, 9, 1000] {
            let mut held = vec![0u64; senders as usize];
            // Round after round each takes what it may.
            for _ in 0..200 {
                for held in &mut held {
                    let room = pool.room(10, *held, 0).min(3);
                    if room > 0 {
                        pool.take(room);
                        *held += room;
                    }
                }
            }
            let fair = 10_000 / (senders + 1);
            for held in &held {
                assert!(held.abs_diff(fair.min(600)) <= 3 || *held >= 10, "{held} of {fair}");
            }
            assert!(held.iter().sum::<u64>() <= 10_000);
            for held in held {
                pool.give_back(held);
            }
        }
        assert_eq!(pool.left(), 10_000);
    }
}
