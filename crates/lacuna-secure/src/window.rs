//! Which of the latest packet numbers came: a bitmap of the last [`WINDOW`] numbers, used as a ring (RFC 6479).
//!
//! A number behind the window counts as one that came: whether it did is not known any more. The window is longer than
//! what paths reorder, and whoever sends over several paths of unequal length at more than a million packets a second
//! loses what is later than 16 milliseconds. Where very many peers have one, it is shorter.

/// Numbers that are remembered.
pub const WINDOW: u64 = 1 << 14;

/// The numbers that came.
#[derive(Debug, Clone)]
pub struct Window {
    /// One past the highest number that came.
    next: u64,
    /// A power of two of them.
    words: Box<[u64]>,
}

impl Default for Window {
    fn default() -> Self {
        Self { next: 0, words: vec![0; (WINDOW / 64) as usize].into() }
    }
}

impl Window {
    /// One that remembers the last `numbers`, a power of two from 128 on, and takes none before `next`.
    pub(crate) fn starting_at(next: u64, numbers: u64) -> Self {
        debug_assert!(numbers.is_power_of_two() && numbers >= 128);
        let mut window = Self { next, words: vec![u64::MAX; (numbers / 64) as usize].into() };
        let word = window.word(next);
        window.words[word] = bit(next) - 1;
        window
    }

    /// One past the highest number that came.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether a packet with this number is new.
    #[inline]
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        number >= self.next
            || number + self.numbers() >= self.next + 64
                && self.words[self.word(number)] & bit(number) == 0
    }

    /// Notes that a packet with this number came, whose tag was right.
    #[inline]
    pub fn note(&mut self, number: u64) {
        if number >= self.next {
            self.advance(number);
        }
        let word = self.word(number);
        self.words[word] |= bit(number);
    }

    /// Clears the words that newer numbers take.
    fn advance(&mut self, number: u64) {
        let (old, new) = (self.next.div_ceil(64), number / 64 + 1);
        let first = old.max(new.saturating_sub(self.words.len() as u64));
        for index in first..new {
            let word = self.word(index * 64);
            self.words[word] = 0;
        }
        self.next = number + 1;
    }

    fn numbers(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    #[inline]
    fn word(&self, number: u64) -> usize {
        (number / 64) as usize & (self.words.len() - 1)
    }
}

/// The number nearest to `expected` whose low bits, so many, are these (RFC 9000, A.3).
#[inline]
pub(crate) fn unwrap(expected: u64, low: u64, bits: u32) -> u64 {
    let span = 1 << bits;
    let candidate = expected & !(span - 1) | low;
    if candidate + span / 2 <= expected {
        candidate + span
    } else if candidate > expected + span / 2 && candidate >= span {
        candidate - span
    } else {
        candidate
    }
}

#[inline]
fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_number_is_new_once_and_never_behind_the_window(
            steps in prop::collection::vec((any::<bool>(), 0u64..3 * WINDOW), 1..400),
        ) {
            let (mut window, mut came) = (Window::default(), BTreeSet::new());
            for (is_ahead, step) in steps {
                let number = if is_ahead { window.next() + step % 200 } else { window.next().saturating_sub(step) };
                let is_new = window.is_new(number);
                prop_assert!(!(is_new && came.contains(&number)), "{number} came before");
                let is_within = number + WINDOW >= window.next() + 64;
                prop_assert!(is_new || came.contains(&number) || !is_within, "{number} did not come");
                if is_new {
                    window.note(number);
                    came.insert(number);
                    prop_assert!(!window.is_new(number));
                }
            }
        }
    }

    #[test]
    fn a_window_that_starts_somewhere_takes_nothing_before() {
        for next in [0, 1, 63, 64, 65, 1000, 4095, 4096, 70_000] {
            let mut window = Window::starting_at(next, 4096);
            assert!((0..next).all(|number| !window.is_new(number)), "{next}");
            for number in (next..next + 5000).step_by(3) {
                assert!(window.is_new(number), "{number} of {next}");
                window.note(number);
                assert!(!window.is_new(number));
            }
            assert!((0..next).all(|number| !window.is_new(number)), "{next}");
        }
    }

    #[test]
    fn a_leap_forgets_what_is_behind_it() {
        let mut window = Window::default();
        (0..100).for_each(|number| window.note(number));
        window.note(10 * WINDOW);
        assert!(!window.is_new(50) && !window.is_new(5 * WINDOW));
        assert!(window.is_new(10 * WINDOW - 1) && !window.is_new(10 * WINDOW));
    }
}
