//! The command queue of a worker: a list under a lock, and a waker.
//!
//! The most frequent command is to serve one queue pair, after an application has posted a send.
//! The first of these skips the list and goes through one atomic word.

use crate::shared::Shared;
use lacuna_datapath::Waker;
use lacuna_engine::Lane;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A command to a worker.
pub(crate) enum Command {
    /// Serve this queue pair from now on.
    Add(Arc<Shared>),
    /// Place packets of these channels from now on: the queue pair is connected.
    Lanes(u32, Vec<Lane>),
    /// Serve this queue pair in the next step: it has something to send, or to tell the peer.
    Ready(u32),
    /// Stop serving this queue pair.
    Remove(u32),
    /// End the thread.
    Stop,
}

/// Not a queue pair number.
const NOBODY: u32 = u32::MAX;

/// The command queue of one worker.
pub(crate) struct Inbox {
    commands: Mutex<Vec<Command>>,
    /// Whether `commands` has any; changed under the lock, so that a polling worker need not take
    /// it. A worker that misses a change sees it in its next step, before it sleeps, because the
    /// wake-up comes after the change.
    has_any: AtomicBool,
    /// The first queue pair to serve since the worker last took commands, or [`NOBODY`]. Only the
    /// worker resets it.
    ready: AtomicU32,
    waker: Waker,
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            commands: Mutex::default(),
            has_any: AtomicBool::new(false),
            ready: AtomicU32::new(NOBODY),
            waker,
        }
    }

    pub(crate) fn push(&self, command: Command) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.push(command);
        self.has_any.store(true, Ordering::Relaxed);
        drop(commands);
        self.waker.wake();
    }

    /// Asks the worker to serve a queue pair that it already knows.
    pub(crate) fn push_ready(&self, number: u32) {
        let first =
            self.ready.compare_exchange(NOBODY, number, Ordering::Release, Ordering::Relaxed);
        match first {
            Ok(_) => self.waker.wake(),
            Err(_) => self.push(Command::Ready(number)),
        }
    }

    /// Ends the worker's sleep, or its next one, without a command.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Whether there are no commands; without the lock, so possibly out of date.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.load(Ordering::Relaxed) == NOBODY && !self.has_any.load(Ordering::Relaxed)
    }

    /// Moves the list to `into`, which is empty. Returns the queue pair that skipped the list;
    /// serve it after the others.
    pub(crate) fn take(&self, into: &mut Vec<Command>) -> Option<u32> {
        let ready = self.ready.load(Ordering::Acquire);
        if ready != NOBODY {
            self.ready.store(NOBODY, Ordering::Relaxed);
        }
        if self.has_any.load(Ordering::Relaxed) {
            let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *commands, into);
            self.has_any.store(false, Ordering::Relaxed);
        }
        (ready != NOBODY).then_some(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_datapath::Waiter;

    #[test]
    fn all_queue_pairs_to_look_at_are_taken_once() {
        let (_waiter, waker) = Waiter::new().unwrap();
        let inbox = Inbox::new(waker);
        let take = || {
            let mut commands = Vec::new();
            let ready = inbox.take(&mut commands);
            let listed = commands.into_iter().map(|command| match command {
                Command::Ready(number) => number,
                _ => unreachable!("none was pushed"),
            });
            listed.chain(ready).collect::<Vec<_>>()
        };
        assert!(take().is_empty());
        for round in 0..2 {
            inbox.push_ready(1);
            assert_eq!(take(), [1], "round {round}");
            inbox.push_ready(2);
            inbox.push_ready(3);
            inbox.push_ready(4);
            assert_eq!(take(), [3, 4, 2], "round {round}");
            assert!(take().is_empty());
        }
    }
}
