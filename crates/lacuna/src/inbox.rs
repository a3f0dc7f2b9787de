//! What other threads ask of a worker: a list under a lock and a wake-up.

use crate::shared::Shared;
use lacuna_datapath::Waker;
use lacuna_proto::table::ChannelWriter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A request.
pub(crate) enum Command {
    /// Serve this queue pair from now on.
    Add(Arc<Shared>),
    /// Its channels may be written to: the queue pair is connected.
    Write(u32, Vec<ChannelWriter>),
    /// Look at it: there is something to send or to tell.
    Ready(u32),
    /// Forget it.
    Remove(u32),
    /// End the thread.
    Stop,
}

/// One per worker.
pub(crate) struct Inbox {
    commands: Mutex<Vec<Command>>,
    /// Whether there are any, changed under the lock: a worker that looks all the
    /// time need not take it. What it misses just now it finds when it looks again,
    /// before it sleeps: the wake-up comes after the change.
    has_any: AtomicBool,
    waker: Waker,
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { commands: Mutex::new(Vec::new()), has_any: AtomicBool::new(false), waker }
    }

    pub(crate) fn push(&self, command: Command) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.push(command);
        self.has_any.store(true, Ordering::Relaxed);
        drop(commands);
        self.waker.wake();
    }

    /// Ends the worker's sleep, or its next one, without a request.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Moves all requests to `into`, which is empty.
    pub(crate) fn take(&self, into: &mut Vec<Command>) {
        if !self.has_any.load(Ordering::Relaxed) {
            return;
        }
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *commands, into);
        self.has_any.store(false, Ordering::Relaxed);
    }
}
