//! Threads that sleep until a completion comes: a count of wake-ups, and a condition variable.
//!
//! A thread takes a ticket, then arms the queue and looks at it once more, then sleeps unless there
//! was a wake-up since its ticket. All sleepers are woken: the one that comes first may want fewer
//! completions than there are.

use crate::sync::{Condvar, Mutex, lock};
use core::time::Duration;

pub(crate) struct Sleepers {
    state: Mutex<State>,
    woken: Condvar,
}

struct State {
    /// Wake-ups so far.
    wakes: u64,
    /// Threads that wait on `woken`. Without any, a wake-up makes no system call.
    sleeping: u32,
}

/// How many wake-ups there were.
#[derive(Clone, Copy)]
pub(crate) struct Ticket(u64);

impl Sleepers {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State { wakes: 0, sleeping: 0 }), woken: Condvar::new() }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(lock(&self.state).wakes)
    }

    /// Sleeps until a wake-up later than the ticket, at most `limit`. May return early.
    pub(crate) fn sleep(&self, ticket: Ticket, limit: Duration) {
        let mut state = lock(&self.state);
        if state.wakes == ticket.0 {
            state.sleeping += 1;
            let waited = self.woken.wait_timeout(state, limit);
            let mut state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            state.sleeping -= 1;
        }
    }

    pub(crate) fn wake_all(&self) {
        let mut state = lock(&self.state);
        state.wakes += 1;
        let is_needed = state.sleeping > 0;
        drop(state);
        if is_needed {
            self.woken.notify_all();
        }
    }
}
