//! The run queue: queue pairs of an engine that want a turn, served round robin, one burst per
//! turn.
//!
//! Two deviations:
//!
//! - *Light senders first.* A queue pair whose last turn took less than a burst goes before the
//!   others, so that a short message does not wait for a burst of each of a thousand others (the new
//!   queues of FQ-CoDel, RFC 8290, 4.1). A sender with a full window does not become light by waiting
//!   for it. After [`LIGHT_TURNS_MAX`] turns of light senders, one of the others gets a turn.
//! - *Among many, several bursts per turn.* With a thousand queue pairs, none is in a cache when
//!   its turn comes, and each visit costs about 50 cache misses, 5 us; longer turns share that cost.
//!   A message that is sent in one go is also complete sooner, on average, than one interleaved with
//!   all others.
//!
//! Invariant, kept by the engine: a queue pair is in here at most once.

use std::collections::VecDeque;

/// Bursts in a row for one of many, about 1 MB. Measured: M-turn-2.
const BURSTS_MAX: u32 = 4;

/// Turns in a row of light senders while others wait.
const LIGHT_TURNS_MAX: u32 = 8;

/// Queue pairs that want a turn.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    light: VecDeque<u32>,
    heavy: VecDeque<u32>,
    /// Turns of light senders since one of the others had a turn.
    light_turns: u32,
    /// The heavy sender that had the last turn, and how many bursts in a row.
    holder: Option<u32>,
    bursts: u32,
}

impl RunQueue {
    pub(crate) fn len(&self) -> usize {
        self.light.len() + self.heavy.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queues a queue pair; `had_burst`: its last turn filled a burst.
    pub(crate) fn push(&mut self, number: u32, had_burst: bool) {
        let list = if had_burst { &mut self.heavy } else { &mut self.light };
        list.push_back(number);
    }

    /// Queues a queue pair again whose turn was too short for all its data.
    pub(crate) fn requeue(&mut self, number: u32, are_many: bool) {
        if are_many && self.holder == Some(number) && self.bursts < BURSTS_MAX {
            self.heavy.push_front(number);
        } else {
            self.heavy.push_back(number);
        }
    }

    /// The queue pair whose turn is next.
    pub(crate) fn peek(&self) -> Option<u32> {
        let (first, second) = match self.light_turns < LIGHT_TURNS_MAX {
            true => (&self.light, &self.heavy),
            false => (&self.heavy, &self.light),
        };
        first.front().or(second.front()).copied()
    }

    /// Takes the queue pair whose turn is next.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let number = self.peek()?;
        if self.light.front() == Some(&number) {
            self.light_turns = (self.light_turns + 1).min(LIGHT_TURNS_MAX);
            return self.light.pop_front();
        }
        self.light_turns = 0;
        self.bursts = if self.holder == Some(number) { self.bursts.saturating_add(1) } else { 1 };
        self.holder = Some(number);
        self.heavy.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Order of the turns of queue pairs with this many bursts each.
    fn order(bursts: &[u32]) -> Vec<u32> {
        let (mut turns, mut left) = (RunQueue::default(), bursts.to_vec());
        (0..bursts.len() as u32).for_each(|number| turns.push(number, false));
        let mut order = Vec::new();
        while let Some(number) = turns.pop() {
            order.push(number);
            let left = &mut left[number as usize];
            *left -= 1;
            if *left > 0 {
                turns.requeue(number, false);
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
        turns.requeue(7, true);
        assert_eq!(turns.pop(), Some(7));
    }

    #[test]
    fn one_of_many_keeps_its_turn_for_some_bursts() {
        let mut turns = RunQueue::default();
        (0..2).for_each(|number| turns.requeue(number, true));
        let mut next = || {
            let number = turns.pop().unwrap();
            turns.requeue(number, true);
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
        (0..3).for_each(|number| turns.requeue(number, false));
        let light = 10..10 + 2 * LIGHT_TURNS_MAX;
        light.clone().for_each(|number| turns.push(number, false));
        turns.push(3, true);
        let order: Vec<u32> = std::iter::from_fn(|| turns.pop()).collect();
        let middle = light.start + LIGHT_TURNS_MAX;
        let (first, second) = (light.start..middle, middle..light.end);
        assert!(order.into_iter().eq(first.chain([0]).chain(second).chain([1, 2, 3])));
    }

    #[test]
    fn who_sends_little_interrupts_a_row_for_a_turn() {
        let mut turns = RunQueue::default();
        (0..2).for_each(|number| turns.requeue(number, true));
        let mut order = Vec::new();
        for step in 0..6 {
            if step == 1 {
                turns.push(10, false);
            }
            let number = turns.pop().unwrap();
            order.push(number);
            if number < 10 {
                turns.requeue(number, true);
            }
        }
        assert_eq!(order, [0, 10, 0, 0, 0, 1]);
    }
}
