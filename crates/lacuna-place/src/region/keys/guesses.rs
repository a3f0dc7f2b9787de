//! Counts the unknown keys that each peer names, in memory of fixed size, and says who has named too many.
//!
//! There may be more peers than can be remembered, and their addresses may be false. So a peer has no entry
//! of its own: it shares a counter in each of two rows with other peers, and its count is the lower of the
//! two (a count-min sketch). It is never too low. It is too high only if others that share both counters
//! guess, too; a flood of guesses from everywhere uses up the counters of all, and with them the guesses
//! that any peer has left. That is wanted: it bounds the guesses of all peers together.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Unknown keys that a peer may name between two calls of
/// [`KeyTable::forgive`](super::KeyTable::forgive). With 1,000 keys and one call a second, a peer that
/// guesses all the time hits a key once in 4.7 hours (a judgement).
pub const GUESSES_MAX: u32 = 256;

const ROWS: usize = 2;
/// Counters per row.
#[cfg(not(loom))]
const COLUMNS: usize = 256;
/// Loom is slow to make many counters.
#[cfg(loom)]
const COLUMNS: usize = 1;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Guesses {
    seed: u64,
    rows: [[AtomicU32; COLUMNS]; ROWS],
    total: AtomicU64,
    /// When they were forgiven last.
    forgiven_ns: AtomicU64,
}

impl Guesses {
    /// Nobody has guessed. `seed` is random, so that a peer cannot choose which counters it shares.
    pub(super) fn new(seed: u64) -> Self {
        let row = |_| std::array::from_fn(|_| AtomicU32::new(0));
        let (total, forgiven_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { seed, rows: std::array::from_fn(row), total, forgiven_ns }
    }

    /// Counts a guess.
    #[cold]
    pub(super) fn count(&self, peer: u64) {
        self.total.fetch_add(1, Ordering::Relaxed);
        for counter in self.counters(peer) {
            // Never wraps: who has reached the limit is not counted.
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Guesses of a peer since they were forgiven; may be too high.
    #[inline]
    pub(super) fn of(&self, peer: u64) -> u32 {
        let [first, second] = self.counters(peer);
        first.load(Ordering::Relaxed).min(second.load(Ordering::Relaxed))
    }

    /// Whether a peer has guessed too often.
    #[inline]
    pub(super) fn are_spent(&self, peer: u64) -> bool {
        self.of(peer) >= GUESSES_MAX
    }

    /// All guesses so far.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Forgets the guesses of all peers if that is a second ago.
    pub(super) fn forgive_each_second(&self, now_ns: u64) {
        let before_ns = self.forgiven_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(before_ns) < 1_000_000_000 {
            return;
        }
        let (relaxed, mine) = (Ordering::Relaxed, now_ns);
        if self.forgiven_ns.compare_exchange(before_ns, mine, relaxed, relaxed).is_ok() {
            self.forgive();
        }
    }

    /// Forgets the guesses of all peers.
    pub(super) fn forgive(&self) {
        self.rows.iter().flatten().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// The counters of a peer, one in each row.
    #[inline]
    fn counters(&self, peer: u64) -> [&AtomicU32; ROWS] {
        // The finisher of SplitMix64.
        let mut hash = peer ^ self.seed;
        hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        hash ^= hash >> 31;
        let column = |row: usize| (hash >> (32 * row)) as usize % COLUMNS;
        [&self.rows[0][column(0)], &self.rows[1][column(1)]]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_is_refused_and_others_are_not() {
        let guesses = Guesses::new(5);
        for _ in 0..GUESSES_MAX {
            assert!(!guesses.are_spent(7));
            guesses.count(7);
        }
        assert!(guesses.are_spent(7));
        let refused = (100..1100).filter(|peer| guesses.are_spent(*peer)).count();
        assert_eq!(refused, 0, "two counters in common are one chance in 65,536");
        guesses.forgive();
        assert!(!guesses.are_spent(7));
        assert_eq!(guesses.total(), u64::from(GUESSES_MAX));
    }

    #[test]
    fn guesses_from_everywhere_are_bounded_together() {
        let guesses = Guesses::new(9);
        for peer in 0..1_000_000 {
            if !guesses.are_spent(peer) {
                guesses.count(peer);
            }
        }
        let bound = 2 * COLUMNS as u64 * u64::from(GUESSES_MAX);
        assert!(guesses.total() <= bound, "{} of {bound}", guesses.total());
        let worst = guesses.rows.iter().flatten().map(|c| c.load(Ordering::Relaxed)).max();
        assert!(worst.is_some_and(|worst| worst < 1 << 20));
    }
}
