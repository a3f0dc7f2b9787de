//! All interleavings of producers, consumers and armings, on queues of one or two entries.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p lacuna-completion --release --lib loom`
//!
//! A wake-up that is lost leaves a thread asleep for ever, which loom reports as a deadlock; a cell
//! that two threads may touch at once, as a race.

use crate::{Arm, Event, Queue};
use core::time::Duration;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// An event that a test can wait for, as a program does with a file descriptor.
#[derive(Clone)]
struct Flag(Arc<(Mutex<FlagState>, Condvar)>);

#[derive(Default)]
struct FlagState {
    is_set: bool,
    sets: usize,
}

impl Flag {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(FlagState::default()), Condvar::new())))
    }

    fn wait(&self) {
        let mut state = self.0.0.lock().unwrap();
        while !state.is_set {
            state = self.0.1.wait(state).unwrap();
        }
    }

    fn sets(&self) -> usize {
        self.0.0.lock().unwrap().sets
    }
}

impl Event for Flag {
    fn set(&self) {
        let mut state = self.0.0.lock().unwrap();
        state.is_set = true;
        state.sets += 1;
        self.0.1.notify_all();
    }

    fn clear(&self) {
        self.0.0.lock().unwrap().is_set = false;
    }
}

/// Explores all interleavings with at most `preemptions` involuntary switches between threads.
fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// Threads that push one completion each: its number, and whether it is solicited.
fn producers<E: Event + Send + Sync + 'static>(
    queue: &Queue<(u32, bool), E>,
    pushes: [bool; 2],
) -> Vec<thread::JoinHandle<()>> {
    let start = |(number, is_solicited)| {
        let mut reservation = queue.reserve(1).unwrap();
        thread::spawn(move || reservation.push((number, is_solicited), is_solicited))
    };
    (0..).zip(pushes).map(start).collect()
}

/// One thread that pushes two completions; with two consumers there are fewer interleavings than with
/// two producers.
fn producer_of_two<E: Event + Send + Sync + 'static>(
    queue: &Queue<(u32, bool), E>,
    is_solicited: bool,
) -> thread::JoinHandle<()> {
    let mut reservation = queue.reserve(2).unwrap();
    thread::spawn(move || {
        for number in 0..2 {
            reservation.push((number, is_solicited), is_solicited);
        }
    })
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

fn poll_or_sleep<E: Event>(queue: &Queue<(u32, bool), E>, count: usize) -> Vec<(u32, bool)> {
    let mut found = Vec::new();
    while found.len() < count {
        if queue.poll(&mut found, 1) == 0 {
            queue.wait(Duration::MAX);
        }
    }
    found
}

#[test]
fn a_sleeping_consumer_gets_all_that_two_producers_push() {
    model(3, || {
        let queue = Queue::new(2, ()).unwrap();
        let threads = producers(&queue, [false; 2]);
        let mut found = poll_or_sleep(&queue, 2);
        found.sort_unstable();
        assert_eq!(found, [(0, false), (1, false)]);
        join(threads);
    });
}

#[test]
fn two_sleeping_consumers_get_one_each() {
    model(2, || {
        let queue = Queue::new(2, ()).unwrap();
        let producer = producer_of_two(&queue, false);
        let other = {
            let queue = queue.clone();
            thread::spawn(move || poll_or_sleep(&queue, 1))
        };
        let mut found = poll_or_sleep(&queue, 1);
        found.extend(other.join().unwrap());
        found.sort_unstable();
        assert_eq!(found, [(0, false), (1, false)]);
        join(vec![producer]);
    });
}

/// Arms, polls until there is nothing, waits for the event, and again, until `is_done`. Returns what
/// it got and how often it armed.
fn follow_event(
    queue: &Queue<(u32, bool), Flag>,
    arm: Arm,
    is_done: impl Fn(&[(u32, bool)]) -> bool,
) -> (Vec<(u32, bool)>, usize) {
    let (mut found, mut arms) = (Vec::new(), 0);
    loop {
        queue.arm(arm);
        arms += 1;
        while queue.poll(&mut found, 1) > 0 {}
        if is_done(&found) {
            return (found, arms);
        }
        queue.event().wait();
    }
}

#[test]
fn an_event_for_any_completion_is_not_lost() {
    model(2, || {
        let queue = Queue::new(2, Flag::new()).unwrap();
        let threads = producers(&queue, [false, true]);
        let (_, arms) = follow_event(&queue, Arm::Any, |found| found.len() == 2);
        join(threads);
        assert!(queue.event().sets() <= arms);
    });
}

#[test]
fn an_event_for_a_solicited_completion_is_not_lost_behind_one_that_is_not() {
    model(3, || {
        let queue = Queue::new(2, Flag::new()).unwrap();
        let threads = producers(&queue, [false, true]);
        let is_done = |found: &[(u32, bool)]| found.contains(&(1, true));
        let (_, arms) = follow_event(&queue, Arm::Solicited, is_done);
        join(threads);
        assert!(queue.event().sets() <= arms);
    });
}

#[test]
fn one_that_was_not_solicited_sets_no_event() {
    model(3, || {
        let queue = Queue::new(2, Flag::new()).unwrap();
        queue.arm(Arm::Solicited);
        join(producers(&queue, [false; 2]));
        assert_eq!(queue.event().sets(), 0);
    });
}

#[test]
fn one_consumer_waits_for_the_event_while_another_sleeps() {
    model(2, || {
        let queue = Queue::new(2, Flag::new()).unwrap();
        let threads = vec![producer_of_two(&queue, true)];
        let other = {
            let queue = queue.clone();
            thread::spawn(move || poll_or_sleep(&queue, 1))
        };
        let mut found = Vec::new();
        loop {
            queue.arm(Arm::Solicited);
            if queue.poll(&mut found, 1) > 0 {
                break;
            }
            queue.event().wait();
        }
        found.extend(other.join().unwrap());
        found.sort_unstable();
        assert_eq!(found, [(0, true), (1, true)]);
        join(threads);
    });
}

#[test]
fn what_one_consumer_is_moving_does_not_look_gone_to_another() {
    model(3, || {
        let queue = Queue::new(2, ()).unwrap();
        join(producers(&queue, [false; 2]));
        let poll = |queue: &Queue<(u32, bool), ()>| queue.poll(&mut Vec::new(), 1);
        let other = {
            let queue = queue.clone();
            thread::spawn(move || poll(&queue))
        };
        assert_eq!(poll(&queue), 1);
        assert_eq!(other.join().unwrap(), 1);
        assert!(queue.ring().is_empty());
    });
}

/// Nobody waits here, since loom would explore each turn of a loop that does: a producer that finds
/// no free entry gives up, and what the polls in between miss is polled at the end. Arming makes loom
/// explore pushes before the polls: it overlooks a race of a load with a load and exchange.
#[test]
fn entries_are_handed_from_consumer_to_producer() {
    for entries in [1, 2] {
        model(3, move || {
            let queue: Queue<u32, ()> = Queue::new(entries, ()).unwrap();
            let producer = |numbers: std::ops::Range<u32>| {
                let queue = queue.clone();
                thread::spawn(move || {
                    let mut pushed = Vec::new();
                    for number in numbers {
                        if let Some(mut reservation) = queue.try_reserve() {
                            reservation.push(number, false);
                            pushed.push(number);
                        }
                    }
                    pushed
                })
            };
            let threads = [producer(0..1), producer(1..3)];
            let mut found = Vec::new();
            for max in [2, 1] {
                queue.arm(Arm::Any);
                queue.poll(&mut found, max);
            }
            let pushed = threads.map(|thread| thread.join().unwrap()).concat();
            queue.poll(&mut found, 3);
            found.sort_unstable();
            assert_eq!(found, pushed);
            assert_eq!((queue.ring().len(), queue.ring().reserved()), (0, 0));
            assert_eq!(queue.refused() as usize, 3 - pushed.len());
        });
    }
}

#[test]
fn closing_wakes_who_sleeps_and_who_waits_for_the_event() {
    model(3, || {
        let queue: Queue<u32, Flag> = Queue::new(1, Flag::new()).unwrap();
        let sleeper = {
            let queue = queue.clone();
            thread::spawn(move || {
                while !queue.is_closed() {
                    queue.wait(Duration::MAX);
                }
            })
        };
        let closer = {
            let queue = queue.clone();
            thread::spawn(move || queue.close())
        };
        queue.arm(Arm::Solicited);
        queue.event().wait();
        assert!(queue.is_closed());
        join(vec![sleeper, closer]);
    });
}
