//! Tests of waiting. None of them measures time; a lost wake-up shows as a test that does not end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;

fn nothing() -> [&'static dyn Datapath; 0] {
    []
}

#[test]
fn a_wake_before_the_wait_ends_it_at_once() {
    let (mut waiter, waker) = Waiter::new().unwrap();
    waker.wake();
    waker.wake();
    waiter.wait(nothing(), None).unwrap();
}

#[test]
fn a_wake_during_the_wait_ends_it() {
    let (mut waiter, waker) = Waiter::new().unwrap();
    let woken = Arc::new(AtomicU64::new(0));
    let thread = thread::spawn({
        let woken = Arc::clone(&woken);
        move || {
            woken.store(7, Ordering::Relaxed);
            waker.wake();
        }
    });
    while woken.load(Ordering::Relaxed) == 0 {
        waiter.wait(nothing(), None).unwrap();
    }
    thread.join().unwrap();
}

#[test]
fn a_timeout_ends_the_wait() {
    let (mut waiter, _waker) = Waiter::new().unwrap();
    waiter.wait(nothing(), Some(Duration::from_nanos(1))).unwrap();
    waiter.wait(nothing(), Some(Duration::ZERO)).unwrap();
}

#[test]
fn no_wake_is_ever_lost() {
    // Each side waits for the other's count; a lost wake-up leaves both asleep for ever.
    const ROUNDS: u64 = 20_000;
    let (waiter_a, waker_a) = Waiter::new().unwrap();
    let (waiter_b, waker_b) = Waiter::new().unwrap();
    let turn = Arc::new(AtomicU64::new(0));
    let player = |mut waiter: Waiter, other: Waker, mine: u64| {
        let turn = Arc::clone(&turn);
        move || {
            for round in (mine..ROUNDS).step_by(2) {
                while turn.load(Ordering::Relaxed) != round {
                    waiter.wait(nothing(), None).unwrap();
                }
                turn.store(round + 1, Ordering::Relaxed);
                other.wake();
            }
        }
    };
    let a = thread::spawn(player(waiter_a, waker_b, 0));
    let b = thread::spawn(player(waiter_b, waker_a, 1));
    a.join().unwrap();
    b.join().unwrap();
    assert_eq!(turn.load(Ordering::Relaxed), ROUNDS);
}

#[test]
fn a_wake_without_a_sleeper_makes_no_system_call() {
    let (waiter, waker) = Waiter::new().unwrap();
    waker.wake();
    assert!(!waiter.shared.alarm.is_ringing(), "rang though nobody slept");
}

#[test]
fn an_alarm_that_rings_late_costs_one_early_return() {
    let (mut waiter, waker) = Waiter::new().unwrap();
    // A waker was interrupted between its swap and `ring`.
    waker.shared.alarm.ring();
    waiter.wait(nothing(), None).unwrap();
    assert!(!waiter.shared.alarm.is_ringing());
}
