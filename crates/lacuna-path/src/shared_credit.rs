//! State shared by queue pairs: the credit of a peer's socket, and the number of senders on this host.
//!
//! A receiver divides its socket's buffer into equal parts, one for each queue pair: its *credit*.
//! With a thousand queue pairs a part is five packets, and a sender that waits a round trip for every
//! five packets is slow. But few of a thousand send at a time, so the senders to one socket share
//! their parts: a queue pair may have in flight as much as is left, or its own part if that is more,
//! as long as some is left. This is the dynamic threshold of shared-memory switches (Choudhury and
//! Hahne, 1998, with alpha 1): each of n senders gets 1/(n+1) of the credit, and some is always left
//! for the next one.
//!
//! All senders share the caches of this host, whoever their peer is: the smallest congestion window
//! of a short path is divided among the queue pairs that have data in flight ([`Senders`]).
//!
//! Invariant: `held` is the sum of what the members have in flight. While several workers take at
//! once it may exceed the capacity by some packets; a socket holds more than the credit it gives.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Credit of one socket of the peer, in the receiving kernel's accounting.
#[derive(Debug, Default)]
pub struct SharedCredit {
    /// Sum of the members' parts.
    capacity: AtomicU64,
    /// Charge that the members have in flight.
    held: AtomicU64,
    /// Members with anything in flight.
    senders: Senders,
}

/// Number of queue pairs with anything in flight.
#[derive(Debug, Default)]
pub struct Senders(AtomicU32);

impl Senders {
    /// Counts one more.
    #[inline]
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one less.
    #[inline]
    pub fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number, at least 1.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed).max(1)
    }
}

impl SharedCredit {
    /// No credit yet; members bring their parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Members with anything in flight.
    pub(super) fn senders(&self) -> &Senders {
        &self.senders
    }

    /// Changes a member's part.
    #[inline]
    pub(super) fn change_part(&self, before: u64, now: u64) {
        self.capacity.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// A member takes credit for what it sends.
    #[inline]
    pub(super) fn take(&self, charge: u64) {
        self.held.fetch_add(charge, Ordering::Relaxed);
    }

    /// A member returns credit of what is not in flight any more.
    #[inline]
    pub(super) fn give_back(&self, charge: u64) {
        self.held.fetch_sub(charge, Ordering::Relaxed);
    }

    /// Credit that nobody has taken.
    fn left(&self) -> u64 {
        let held = self.held.load(Ordering::Relaxed);
        self.capacity.load(Ordering::Relaxed).saturating_sub(held)
    }

    /// Credit that a member with a part of `own` may take in addition to the `held` that it has;
    /// `on_the_way` is what the path holds before the socket.
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
        let credit = SharedCredit::new();
        credit.change_part(0, 100);
        assert_eq!(credit.room(100, 0, 0), 100);
        credit.take(60);
        assert_eq!(credit.room(100, 60, 0), 40);
        assert_eq!(credit.room(100, 60, 50), 90, "the path holds some too");
        credit.change_part(100, 50);
        assert_eq!(credit.room(50, 60, 0), 0);
        credit.give_back(60);
        assert_eq!(credit.room(50, 0, 0), 50);
    }

    #[test]
    fn few_of_many_have_nearly_all_and_all_have_their_parts() {
        let credit = SharedCredit::new();
        for _ in 0..1000 {
            credit.change_part(0, 10);
        }
        for senders in [1u64, 2, 9, 1000] {
            let mut held = vec![0u64; senders as usize];
            // Round after round each takes what it may.
            for _ in 0..200 {
                for held in &mut held {
                    let room = credit.room(10, *held, 0).min(3);
                    if room > 0 {
                        credit.take(room);
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
                credit.give_back(held);
            }
        }
        assert_eq!(credit.left(), 10_000);
    }
}
