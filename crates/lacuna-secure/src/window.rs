//! Which of the latest packet numbers came: a bitmap of the last [`WINDOW`] numbers, used as a ring (RFC 6479).
//!
//! A number behind the window counts as one that came: whether it did is not known any more. The window is longer than
//! what paths reorder, and whoever sends over several paths of unequal length at more than a million packets a second
//! loses what is later than 16 milliseconds.

/// Numbers that are remembered.
pub const WINDOW: u64 = 1 << 14;
const WORDS: usize = (WINDOW / 64) as usize;

/// The numbers that came.
#[derive(Debug, Clone)]
pub struct Window {
    /// One past the highest number that came.
    next: u64,
    words: Box<[u64; WORDS]>,
}

impl Default for Window {
    fn default() -> Self {
        Self { next: 0, words: Box::new([0; WORDS]) }
    }
}

impl Window {
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
            || number + WINDOW >= self.next + 64 && self.words[word(number)] & bit(number) == 0
    }

    /// Notes that a packet with this number came, whose tag was right.
    #[inline]
    pub fn note(&mut self, number: u64) {
        if number >= self.next {
            self.advance(number);
        }
        self.words[word(number)] |= bit(number);
    }

    /// Clears the words that newer numbers take.
    fn advance(&mut self, number: u64) {
        let (old, new) = (self.next.div_ceil(64), number / 64 + 1);
        let first = old.max(new.saturating_sub(WORDS as u64));
        for index in first..new {
            self.words[(index % WORDS as u64) as usize] = 0;
        }
        self.next = number + 1;
    }
}

#[inline]
fn word(number: u64) -> usize {
    (number / 64 % WORDS as u64) as usize
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
    fn a_leap_forgets_what_is_behind_it() {
        let mut window = Window::default();
        (0..100).for_each(|number| window.note(number));
        window.note(10 * WINDOW);
        assert!(!window.is_new(50) && !window.is_new(5 * WINDOW));
        assert!(window.is_new(10 * WINDOW - 1) && !window.is_new(10 * WINDOW));
    }
}
