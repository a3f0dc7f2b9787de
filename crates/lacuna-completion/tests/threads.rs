//! Several producers and consumers at full speed on a queue that is mostly full: each completion is
//! polled once, those of one producer in their order, and nobody sleeps for ever.
#![cfg(not(loom))]

use lacuna_completion::{Arm, Event, Queue};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

const PRODUCERS: u64 = 3;
const EACH: u64 = 20_000;
/// A wake-up that is lost makes the test hang, not slow.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

#[derive(Default)]
struct Flag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    fn wait(&self) {
        let is_set = self.is_set.lock().unwrap();
        drop(self.changed.wait_while(is_set, |is_set| !*is_set).unwrap());
    }
}

impl Event for Flag {
    fn set(&self) {
        *self.is_set.lock().unwrap() = true;
        self.changed.notify_all();
    }
    fn clear(&self) {
        *self.is_set.lock().unwrap() = false;
    }
}

/// Reserves, waiting for consumers, and pushes.
fn produce(queue: &Queue<(u64, Box<u64>), Flag>, producer: u64) {
    for number in 0..EACH {
        let mut reservation = loop {
            match queue.reserve(1) {
                Ok(reservation) => break reservation,
                Err(_) => thread::yield_now(),
            }
        };
        reservation.push((producer, Box::new(number)), true);
    }
}

/// Takes note of what one consumer polled.
fn check(found: &mut Vec<(u64, Box<u64>)>, next: &mut [u64; PRODUCERS as usize]) -> u64 {
    let count = found.len() as u64;
    for completion in found.drain(..) {
        let (producer, number) = (completion.0, *completion.1);
        assert!(number >= next[producer as usize], "out of order");
        next[producer as usize] = number + 1;
    }
    count
}

#[test]
fn completions_of_many_threads_come_once_and_in_order() {
    for (entries, sleepers, followers) in [(16, 2, 0), (16, 0, 1), (1, 1, 1), (300, 2, 1)] {
        let queue = Queue::new(entries, Flag::default()).unwrap();
        let polled = AtomicU64::new(0);
        let count = |count| {
            let before = polled.fetch_add(count, Ordering::Relaxed);
            if before + count == PRODUCERS * EACH {
                queue.close();
            }
        };
        thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let queue = &queue;
                scope.spawn(move || produce(queue, producer));
            }
            for max in 1..=sleepers {
                let (queue, count) = (&queue, &count);
                scope.spawn(move || {
                    let (mut found, mut next) = (Vec::new(), [0; PRODUCERS as usize]);
                    while !queue.is_closed() {
                        if queue.poll(&mut found, max * 7) == 0 {
                            queue.wait(FOR_EVER);
                        }
                        count(check(&mut found, &mut next));
                    }
                });
            }
            for _ in 0..followers {
                let (queue, count) = (&queue, &count);
                scope.spawn(move || {
                    let (mut found, mut next) = (Vec::new(), [0; PRODUCERS as usize]);
                    while !queue.is_closed() {
                        queue.arm(Arm::Solicited);
                        while queue.poll(&mut found, 64) > 0 {
                            count(check(&mut found, &mut next));
                        }
                        queue.event().wait();
                    }
                });
            }
        });
        assert_eq!(polled.into_inner(), PRODUCERS * EACH);
        assert_eq!((queue.ring().len(), queue.ring().reserved()), (0, 0));
    }
}
