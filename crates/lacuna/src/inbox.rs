//! What other threads ask of a worker: a list under a lock and a wake-up.
//!
//! Most of what is asked is to look at one queue pair, by an application that has
//! just posted a send: that goes without the list, through one word.

use crate::shared::Shared;
use lacuna_datapath::Waker;
use lacuna_engine::Lane;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A request.
pub(crate) enum Command {
    /// Serve this queue pair from now on.
    Add(Arc<Shared>),
    /// Packets of these channels may be taken: the queue pair is connected.
    Lanes(u32, Vec<Lane>),
    /// Look at it: there is something to send or to tell.
    Ready(u32),
    /// Forget it.
    Remove(u32),
    /// End the thread.
    Stop,
}

/// No queue pair has this number.
const NOBODY: u32 = u32::MAX;

/// One per worker.
pub(crate) struct Inbox {
    commands: Mutex<Vec<Command>>,
    /// Whether there are any, changed under the lock: a worker that looks all the
    /// time need not take it. What it misses just now it finds when it looks again,
    /// before it sleeps: the wake-up comes after the change.
    has_any: AtomicBool,
    /// The first queue pair to look at since requests were taken, or [`NOBODY`]:
    /// only the worker makes it that.
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

    /// Asks for a look at a queue pair, of which the list knows already.
    pub(crate) fn push_ready(&self, number: u32) {
        let first =
            self.ready.compare_exchange(NOBODY, number, Ordering::Release, Ordering::Relaxed);
        match first {
            Ok(_) => self.waker.wake(),
            Err(_) => self.push(Command::Ready(number)),
        }
    }

    /// Ends the worker's sleep, or its next one, without a request.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Whether there is nothing to take, as far as is known without a lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.load(Ordering::Relaxed) == NOBODY && !self.has_any.load(Ordering::Relaxed)
    }

    /// Moves all requests of the list to `into`, which is empty. Returns the queue
    /// pair to look at that is not among them, after them.
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
