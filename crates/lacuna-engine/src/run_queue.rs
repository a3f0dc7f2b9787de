//! The run queue: the queue pairs of an engine that want a turn, in order.
//!
//! A turn is a burst. Those that have more to send than that go round, as in fair queueing; two
//! things are otherwise:
//!
//! - *Who sends little goes first*: a short message does not wait for a burst of each of a thousand
//!   others (the new queues of FQ-CoDel, RFC 8290, 4.1). Little is less than a burst in the turn
//!   before: who has a window to wait for comes anew each time, and is no less greedy for that. The
//!   others get one turn in some all the same, however many come.
//! - *Among many, who goes on keeps its turn for some bursts.* None of a thousand queue pairs is
//!   in a cache when it comes round, and each visit costs some 50 lines that are waited for,
//!   5 us; longer turns share that. A message that is sent in one piece is also whole sooner, in
//!   the mean, than one that all others go between.
//!
//! Invariant, the owner's: no queue pair is here twice.

use std::collections::VecDeque;

/// Bursts that one of many has in a row: a megabyte or so. A packet costs, over what it costs with
/// one queue pair, with a hundred and messages of 256 KiB 1.04 for 1.07, with a thousand and 1 MiB
/// 1.07 for 1.10, with 16 messages of 64 KiB each 1.15 for 1.23; with a thousand and a message of
/// 256 KiB each, which is one turn, 1.10 as before (`lacuna-bench scale`, old and new in turns).
const BURSTS_MAX: u32 = 4;

/// Turns in a row of those that send little while others wait.
const LITTLE_MAX: u32 = 8;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    little: VecDeque<u32>,
    much: VecDeque<u32>,
    /// Turns of those with little since one of the others had one.
    little_turns: u32,
    /// Who of the others had a turn last, and how many in a row.
    holder: Option<u32>,
    bursts: u32,
}

impl RunQueue {
    pub(crate) fn len(&self) -> usize {
        self.little.len() + self.much.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes in who wants a turn; `had_burst`: its last took a whole burst.
    pub(crate) fn push(&mut self, number: u32, had_burst: bool) {
        let list = if had_burst { &mut self.much } else { &mut self.little };
        list.push_back(number);
    }

    /// Takes in who had a turn just now that was too short for all it has.
    pub(crate) fn push_on(&mut self, number: u32, is_of_many: bool) {
        if is_of_many && self.holder == Some(number) && self.bursts < BURSTS_MAX {
            self.much.push_front(number);
        } else {
            self.much.push_back(number);
        }
    }

    /// Whose turn is next.
    pub(crate) fn peek(&self) -> Option<u32> {
        let (first, second) = match self.little_turns < LITTLE_MAX {
            true => (&self.little, &self.much),
            false => (&self.much, &self.little),
        };
        first.front().or(second.front()).copied()
    }

    /// Gives the next turn.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let number = self.peek()?;
        if self.little.front() == Some(&number) {
            self.little_turns = (self.little_turns + 1).min(LITTLE_MAX);
            return self.little.pop_front();
        }
        self.little_turns = 0;
        self.bursts = if self.holder == Some(number) { self.bursts.saturating_add(1) } else { 1 };
        self.holder = Some(number);
        self.much.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of queue pairs with so many bursts each to send, until all are through.
    fn order(bursts: &[u32]) -> Vec<u32> {
        let (mut turns, mut left) = (RunQueue::default(), bursts.to_vec());
        (0..bursts.len() as u32).for_each(|number| turns.push(number, false));
        let mut order = Vec::new();
        while let Some(number) = turns.pop() {
            order.push(number);
            let left = &mut left[number as usize];
            *left -= 1;
            if *left > 0 {
                turns.push_on(number, false);
            }
        }
        assert!(turns.is_empty());
        order
    }

    #[test]
    fn a_few_take_turns_of_a_burst() {
        assert_eq!(order(&[3, 1, 2]), [0, 1, 2, 0, 2, 0]);
    }

    #[test]
    fn one_may_go_on_alone_for_ever() {
        let mut turns = RunQueue { holder: Some(7), bursts: u32::MAX, ..RunQueue::default() };
        turns.push_on(7, true);
        assert_eq!(turns.pop(), Some(7));
    }

    #[test]
    fn one_of_many_keeps_its_turn_for_some_bursts() {
        let mut turns = RunQueue::default();
        (0..2).for_each(|number| turns.push_on(number, true));
        let mut next = || {
            let number = turns.pop().unwrap();
            turns.push_on(number, true);
            number
        };
        let row = BURSTS_MAX as usize;
        for _ in 0..3 {
            assert!((0..row).all(|_| next() == 0));
            assert!((0..row).all(|_| next() == 1));
        }
    }

    #[test]
    fn who_sends_little_goes_before_the_others_and_leaves_them_a_turn_in_some() {
        let mut turns = RunQueue::default();
        (0..3).for_each(|number| turns.push_on(number, false));
        let little = 10..10 + 2 * LITTLE_MAX;
        little.clone().for_each(|number| turns.push(number, false));
        turns.push(3, true);
        let order: Vec<u32> = std::iter::from_fn(|| turns.pop()).collect();
        let middle = little.start + LITTLE_MAX;
        let (first, second) = (little.start..middle, middle..little.end);
        assert!(order.into_iter().eq(first.chain([0]).chain(second).chain([1, 2, 3])));
    }

    #[test]
    fn who_sends_little_interrupts_a_row_for_a_turn() {
        let mut turns = RunQueue::default();
        (0..2).for_each(|number| turns.push_on(number, true));
        let mut order = Vec::new();
        for step in 0..6 {
            if step == 1 {
                turns.push(10, false);
            }
            let number = turns.pop().unwrap();
            order.push(number);
            if number < 10 {
                turns.push_on(number, true);
            }
        }
        assert_eq!(order, [0, 10, 0, 0, 0, 1]);
    }
}
