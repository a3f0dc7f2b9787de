//! The queue does what a `VecDeque`, a count and three flags would do, whatever the list of
//! operations.
#![cfg(not(loom))]

use lacuna_completion::{Arm, Event, Full, Queue, Reservation};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
struct Flag(AtomicBool);

impl Event for Flag {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// As long as a completion, and with memory of its own.
#[derive(Debug, Clone)]
struct Item {
    number: u32,
    _bytes: [u8; 150],
    _alive: Arc<()>,
}

#[derive(Debug, Clone)]
enum Step {
    Reserve(u32),
    TryReserve,
    /// Entries more for a reservation, by its index modulo their number; so below.
    Grow(usize, u32),
    Split(usize, u32),
    Give(usize),
    Push(usize, bool),
    Poll(usize),
    Arm(Arm),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u32..5).prop_map(Step::Reserve),
        1 => Just(Step::TryReserve),
        1 => (any::<usize>(), 0u32..4).prop_map(|(which, more)| Step::Grow(which, more)),
        1 => (any::<usize>(), 0u32..4).prop_map(|(which, some)| Step::Split(which, some)),
        1 => any::<usize>().prop_map(Step::Give),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(which, asks)| Step::Push(which, asks)),
        3 => (0usize..6).prop_map(Step::Poll),
        2 => prop_oneof![Just(Arm::Any), Just(Arm::Solicited)].prop_map(Step::Arm),
    ]
}

fn run(entries: u32, steps: Vec<Step>) {
    let alive = Arc::new(());
    let queue = Queue::new(entries, Flag::default()).unwrap();
    let mut reservations: Vec<Reservation<Item, Flag>> = Vec::new();
    let (mut expected, mut reserved, mut number) = (VecDeque::new(), 0, 0);
    let mut refused = 0;
    let (mut armed_any, mut armed_solicited, mut is_set) = (false, false, false);
    for step in steps {
        let index = |which: usize| which.checked_rem(reservations.len());
        match step {
            Step::Reserve(count) => match queue.reserve(count) {
                Ok(reservation) => {
                    assert_eq!(reservation.entries(), count);
                    reservations.push(reservation);
                    reserved += count;
                }
                Err(full) => {
                    assert!(reserved + count > entries);
                    assert_eq!(full, Full { entries, reserved, needed: count });
                    assert_eq!(full.is_retryable(), count <= entries);
                }
            },
            Step::TryReserve => {
                if let Some(reservation) = queue.try_reserve() {
                    reservations.push(reservation);
                    reserved += 1;
                } else {
                    assert_eq!(reserved, entries);
                    refused += 1;
                }
            }
            Step::Grow(which, more) => {
                let Some(at) = index(which) else { continue };
                let grown = reservations[at].grow(more);
                assert_eq!(grown.is_ok(), reserved + more <= entries);
                reserved += if grown.is_ok() { more } else { 0 };
            }
            Step::Split(which, some) => {
                let Some(at) = index(which) else { continue };
                let some = some.min(reservations[at].entries());
                let part = reservations[at].split(some);
                reservations.push(part);
            }
            Step::Give(which) => {
                let Some(at) = index(which) else { continue };
                reserved -= reservations.swap_remove(at).entries();
            }
            Step::Push(which, is_solicited) => {
                let Some(at) = index(which).filter(|at| reservations[*at].entries() > 0) else {
                    continue;
                };
                let item = Item { number, _bytes: [7; 150], _alive: alive.clone() };
                reservations[at].push(item, is_solicited);
                expected.push_back(number);
                number += 1;
                if armed_any || armed_solicited && is_solicited {
                    (armed_any, armed_solicited, is_set) = (false, false, true);
                }
            }
            Step::Poll(max) => {
                let mut found = Vec::new();
                let count = queue.poll(&mut found, max);
                assert_eq!(count, found.len());
                assert_eq!(count, max.min(expected.len()));
                for item in found {
                    assert_eq!(Some(item.number), expected.pop_front());
                }
                reserved -= count as u32;
            }
            Step::Arm(arm) => {
                assert_eq!(queue.arm(arm), !expected.is_empty());
                is_set = false;
                match arm {
                    Arm::Any => armed_any = true,
                    Arm::Solicited => armed_solicited = true,
                }
            }
        }
        assert_eq!(queue.ring().len() as usize, expected.len());
        assert_eq!(queue.ring().is_empty(), expected.is_empty());
        assert_eq!((queue.ring().reserved(), queue.refused()), (reserved, refused));
        assert_eq!(queue.event().0.load(Ordering::Relaxed), is_set);
        assert_eq!(Arc::strong_count(&alive), 1 + expected.len());
    }
    drop((queue, reservations));
    assert_eq!(Arc::strong_count(&alive), 1);
}

proptest! {
    #[test]
    fn the_queue_agrees_with_its_oracle(
        entries in 1u32..9,
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        run(entries, steps);
    }
}

#[test]
fn a_queue_has_entries_and_not_too_many() {
    for entries in [0, lacuna_completion::ENTRIES_MAX + 1, u32::MAX] {
        let refused = Queue::<u8, ()>::new(entries, ()).unwrap_err();
        assert_eq!(refused.entries, entries);
    }
}

#[test]
fn a_closed_queue_sets_the_event_and_keeps_what_it_has() {
    let queue = Queue::new(2, Flag::default()).unwrap();
    let mut reservation = queue.reserve(2).unwrap();
    reservation.push(1, false);
    queue.close();
    assert!(queue.is_closed() && queue.event().0.load(Ordering::Relaxed));
    reservation.push(2, false);
    let mut found = Vec::new();
    assert_eq!(queue.poll(&mut found, 9), 2);
    assert_eq!(found, [1, 2]);
    assert!(!queue.arm(Arm::Solicited));
    assert!(queue.event().0.load(Ordering::Relaxed));
}
