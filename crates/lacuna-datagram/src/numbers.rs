//! Which messages of a source have been seen, by their numbers.
//!
//! A source numbers its messages one after the other from a random number on. The last [`WINDOW`] numbers have a
//! bit each, so a message that is overtaken by later ones is still taken, and a closed one is not taken
//! again. What leaves the window unseen was lost whole: that is how a message is missed of which nothing came.
//!
//! A number that is far from the last one is of a source that began anew at the same address.
//!
//! Invariant: a number is new once, until it leaves the window or the source begins anew.

/// Numbers that are remembered.
pub(crate) const WINDOW: u32 = 56;
/// A number this far ahead, or behind, is of a source that began anew. A message that is so late is lost.
const FAR: u32 = 1 << 16;

/// The numbers of one source and space; see the module's text. Twelve bytes, as every idle peer has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    highest: u32,
    /// In two halves, so that it needs no alignment: [`WINDOW`] bits, of which bit k is the number `highest` - k,
    /// and above them how many of these numbers the source has used, as far as is known; 0 before the first.
    packed: [u32; 2],
}

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Not seen before; so many before it are known to be lost by it.
    New {
        /// Messages that left the window unseen.
        missed: u32,
        /// How much higher it is than any before; 0 if it is not, or is the first.
        ahead: u32,
    },
    /// Seen: it is open, or over.
    Known,
    /// Too far behind to know.
    Old,
}

const BITS: u64 = (1 << WINDOW) - 1;

impl Seen {
    fn unpack(self) -> (u64, u32) {
        let packed = u64::from(self.packed[1]) << 32 | u64::from(self.packed[0]);
        (packed & BITS, (packed >> WINDOW) as u32)
    }

    fn set(&mut self, highest: u32, bits: u64, used: u32) {
        let packed = bits & BITS | u64::from(used.min(WINDOW)) << WINDOW;
        *self = Self { highest, packed: [packed as u32, (packed >> 32) as u32] };
    }

    /// Takes in a number.
    pub(crate) fn take(&mut self, number: u32) -> Sight {
        let (bits, used) = self.unpack();
        let ahead = number.wrapping_sub(self.highest);
        let behind = self.highest.wrapping_sub(number);
        if used == 0 || ahead.min(behind) > FAR {
            self.set(number, 1, 1);
            return Sight::New { missed: 0, ahead: 0 };
        }
        if ahead == 0 {
            return Sight::Known;
        }
        if ahead <= FAR {
            // Of the numbers that the source has used, those that leave the window now, and how many were seen.
            let staying = WINDOW.saturating_sub(ahead);
            let leaving = used.saturating_sub(staying);
            let seen = (bits >> staying).count_ones();
            let skipped = ahead.saturating_sub(WINDOW);
            let shifted = if ahead < WINDOW { bits << ahead } else { 0 };
            self.set(number, shifted | 1, used + ahead);
            return Sight::New { missed: leaving - seen + skipped, ahead };
        }
        if behind >= WINDOW {
            return Sight::Old;
        }
        if bits >> behind & 1 == 1 {
            return Sight::Known;
        }
        self.set(self.highest, bits | 1 << behind, used.max(behind + 1));
        Sight::New { missed: 0, ahead: 0 }
    }

    /// How much higher a number is than any that was seen; 0 if none was, or the source has begun anew.
    pub(crate) fn ahead(self, number: u32) -> u32 {
        let (_, used) = self.unpack();
        let ahead = number.wrapping_sub(self.highest);
        if used == 0 || ahead > FAR { 0 } else { ahead }
    }

    /// No message up to this number comes any more: how many of those are missed that were not counted yet.
    pub(crate) fn settle(&mut self, number: u32) -> u32 {
        let mut missed = 0;
        if self.ahead(number) > 0
            && let Sight::New { missed: leaving, .. } = self.take(number)
        {
            missed += leaving + 1;
        }
        let (bits, used) = self.unpack();
        let behind = self.highest.wrapping_sub(number);
        if used == 0 || behind >= used {
            return missed;
        }
        // Those from this number back that were used and not seen count now, and as seen from then on.
        let judged = (BITS >> (WINDOW - used)) & !((1 << behind) - 1);
        missed += (judged & !bits).count_ones();
        self.set(self.highest, bits | judged, used);
        missed
    }

    /// Whether a number is none that [`Seen::take`] would take: it was seen, or is too far behind to know.
    pub(crate) fn knows(self, number: u32) -> bool {
        let (bits, used) = self.unpack();
        let behind = self.highest.wrapping_sub(number);
        used > 0
            && match behind {
                0..WINDOW => bits >> behind & 1 == 1,
                _ => behind <= FAR,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_new_once_also_when_it_is_overtaken() {
        let mut seen = Seen::default();
        let start = u32::MAX - 1;
        let numbers = [0, 1, 5, 3, 3, 1, 5, 40, 2];
        let sights = numbers.map(|at| match seen.take(start.wrapping_add(at)) {
            Sight::New { missed, .. } => Sight::New { missed, ahead: 0 },
            other => other,
        });
        let new = Sight::New { missed: 0, ahead: 0 };
        let known = Sight::Known;
        assert_eq!(sights, [new, new, new, new, known, known, known, new, new]);
        assert!(seen.knows(start) && !seen.knows(start.wrapping_add(4)));
    }

    #[test]
    fn what_leaves_the_window_unseen_is_missed_once() {
        use lacuna_link::SplitMix64;
        let mut rng = SplitMix64::new(7);
        for _ in 0..20 {
            let (mut seen, mut missed, mut came) = (Seen::default(), 0u64, 0u64);
            let start = rng.next_u64() as u32;
            let mut number = 0u32;
            while number < 10_000 {
                if !rng.chance(200_000) {
                    came += 1;
                    match seen.take(start.wrapping_add(number)) {
                        Sight::New { missed: more, .. } => missed += u64::from(more),
                        other => panic!("{other:?}"),
                    }
                }
                number += if rng.chance(1_000) { 100 } else { 1 };
            }
            // All are judged but the last window, the last step, and what was before the first that came.
            let judged = u64::from(number) - came - missed;
            assert!(judged <= u64::from(WINDOW) + 120, "{number} {came} {missed}");
        }
    }

    #[test]
    fn a_source_that_begins_anew_is_new() {
        let mut seen = Seen::default();
        seen.take(1_000_000);
        for number in [5, 3_000_000_000, 7] {
            assert_eq!(seen.take(number), Sight::New { missed: 0, ahead: 0 });
            assert_eq!(seen.take(number), Sight::Known);
        }
        assert_eq!(seen.take(7u32.wrapping_sub(WINDOW)), Sight::Old);
    }

    #[test]
    fn what_was_not_seen_is_missed_once_the_source_says_that_it_sent_all() {
        let mut seen = Seen::default();
        let start = u32::MAX - 2;
        for at in [0, 1, 4] {
            seen.take(start.wrapping_add(at));
        }
        assert_eq!(seen.settle(start.wrapping_add(3)), 2);
        assert_eq!(seen.settle(start.wrapping_add(3)), 0);
        assert_eq!(seen.take(start.wrapping_add(2)), Sight::Known, "late");
        // Two more were sent, and nothing of them came.
        assert_eq!(seen.ahead(start.wrapping_add(6)), 2);
        assert_eq!(seen.settle(start.wrapping_add(6)), 2);
        assert_eq!(seen.settle(start.wrapping_add(206)), 200);
        assert_eq!(seen.take(start.wrapping_add(207)), Sight::New { missed: 0, ahead: 1 });
        assert_eq!(
            Seen::default().settle(7),
            0,
            "of a source that nothing came of nothing is known"
        );
    }
}
