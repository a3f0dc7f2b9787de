//! The queue as its two sides see it: a [`CompletionRing`], the event that its owner watches, and the
//! threads that sleep in it.
//!
//! The protocol of whoever waits for the event is that of `ibv_req_notify_cq`: *arm, poll until there
//! is nothing, wait for the event, and again*. Between two armings the event is set once at most. A
//! thread that arms answers for what is there: it polls until the queue is empty.

use crate::event_state::EventState;
use crate::ring::{Arm, CompletionRing, EntriesError, Full, Wakes};
use crate::sleepers::Sleepers;
use crate::sync::{Arc, AtomicU64, Ordering};
use core::time::Duration;
use std::fmt;

/// Something that others wait for outside of this crate: a file descriptor that is readable while the
/// event is set. Neither call waits or fails.
pub trait Event {
    /// Sets it; nothing if it is set.
    fn set(&self);
    /// Clears it; nothing if it is clear.
    fn clear(&self);
}

/// No event: for queues that are only polled.
impl Event for () {
    fn set(&self) {}
    fn clear(&self) {}
}

/// A completion queue. Clones are the same queue.
pub struct Queue<T, E>(Arc<Shared<T, E>>);

struct Shared<T, E> {
    ring: CompletionRing<T>,
    sleepers: Sleepers,
    event: E,
    event_state: EventState,
    /// See [`Queue::refused`].
    refused: AtomicU64,
}

impl<T, E: Event> Queue<T, E> {
    /// A queue of `entries`.
    ///
    /// # Errors
    /// When that is 0, or more than [`ENTRIES_MAX`](crate::ENTRIES_MAX).
    pub fn new(entries: u32, event: E) -> Result<Self, EntriesError> {
        let ring = CompletionRing::new(entries)?;
        let (sleepers, event_state) = (Sleepers::new(), EventState::clear());
        let refused = AtomicU64::new(0);
        Ok(Self(Arc::new(Shared { ring, sleepers, event, event_state, refused })))
    }

    /// The queue without its event and its sleepers: its capacity, and how full it is.
    pub fn ring(&self) -> &CompletionRing<T> {
        &self.0.ring
    }

    /// The event that it was made with.
    pub fn event(&self) -> &E {
        &self.0.event
    }

    /// Reserves `entries` entries, all or none. Never waits.
    ///
    /// # Errors
    /// When fewer are free.
    pub fn reserve(&self, entries: u32) -> Result<Reservation<T, E>, Full> {
        self.0.ring.reserve(entries)?;
        Ok(Reservation { queue: self.clone(), entries })
    }

    /// A reservation of no entries, to which some can be added.
    pub fn no_entries(&self) -> Reservation<T, E> {
        Reservation { queue: self.clone(), entries: 0 }
    }

    /// Reserves an entry for something that nobody has posted, such as a message that comes by itself.
    /// `None` if none is free; that is counted. To be called before the message has any effect, so
    /// that it can still be refused as a whole.
    pub fn try_reserve(&self) -> Option<Reservation<T, E>> {
        match self.reserve(1) {
            Ok(reservation) => Some(reservation),
            Err(Full { .. }) => {
                self.0.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// How often [`Queue::try_reserve`] found no free entry.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Moves up to `max` completions to the end of `into`, the oldest first, and returns how many.
    /// Two loads if there are none. Allocates nothing if `into` has room for them.
    #[inline]
    pub fn poll(&self, into: &mut Vec<T>, max: usize) -> usize {
        self.0.ring.poll(into, max)
    }

    /// Clears the event, and has the next completion set it. `true` if completions wait already, for
    /// which no event comes; poll until there are none. A closed queue sets the event at once.
    pub fn arm(&self, arm: Arm) -> bool {
        let shared = &*self.0;
        if shared.event_state.is_to_be_cleared() {
            shared.event.clear();
        }
        let has_any = shared.ring.arm(arm);
        if shared.ring.is_closed() {
            shared.set_event();
        }
        has_any
    }

    /// Sleeps until a completion comes or the queue is closed, at most `limit`. Returns at once if
    /// completions wait, and perhaps early without a reason: the caller, which has the clock, loops.
    pub fn wait(&self, limit: Duration) {
        let shared = &*self.0;
        let ticket = shared.sleepers.ticket();
        if shared.ring.arm_sleeper() || shared.ring.is_closed() {
            return;
        }
        shared.sleepers.sleep(ticket, limit);
    }

    /// No more completions will come but for what is reserved; wakes everybody. What is queued can
    /// still be polled.
    pub fn close(&self) {
        if self.0.ring.close() {
            self.0.set_event();
            self.0.sleepers.wake_all();
        }
    }

    /// Whether [`Queue::close`] was called.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.0.ring.is_closed()
    }
}

impl<T, E: Event> Shared<T, E> {
    #[cold]
    fn wake(&self, wakes: Wakes) {
        if wakes.event {
            self.set_event();
        }
        if wakes.sleepers {
            self.sleepers.wake_all();
        }
    }

    fn set_event(&self) {
        self.event_state.begin_set();
        self.event.set();
        self.event_state.end_set();
    }
}

impl<T, E> Clone for Queue<T, E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T, E> fmt::Debug for Queue<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.ring.fmt(f)
    }
}

/// Entries of a queue that are reserved. What is not pushed is given back when it is dropped.
pub struct Reservation<T, E: Event> {
    queue: Queue<T, E>,
    entries: u32,
}

impl<T, E: Event> Reservation<T, E> {
    /// How many entries it has left.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Makes `entries` of them a reservation of their own.
    ///
    /// # Panics
    /// If it has fewer.
    #[must_use = "what is dropped is given back"]
    pub fn split(&mut self, entries: u32) -> Self {
        assert!(entries <= self.entries, "{entries} of {} reserved entries", self.entries);
        self.entries -= entries;
        Self { queue: self.queue.clone(), entries }
    }

    /// Reserves `entries` more, all or none.
    ///
    /// # Errors
    /// When fewer are free.
    pub fn grow(&mut self, entries: u32) -> Result<(), Full> {
        self.queue.0.ring.reserve(entries)?;
        self.entries += entries;
        Ok(())
    }

    /// Queues a completion in one of the entries, and wakes whoever is to be woken. Never waits for
    /// another thread, unless one sleeps. `is_solicited`: whether it wakes those, too, who wait for
    /// solicited completions only; failures do.
    ///
    /// # Panics
    /// If it has no entry left.
    #[inline]
    pub fn push(&mut self, value: T, is_solicited: bool) {
        assert!(self.entries > 0, "a completion without a reserved entry");
        self.entries -= 1;
        let shared = &*self.queue.0;
        let wakes = shared.ring.push(value, is_solicited);
        if wakes != Wakes::default() {
            shared.wake(wakes);
        }
    }
}

impl<T, E: Event> Drop for Reservation<T, E> {
    fn drop(&mut self) {
        if self.entries > 0 {
            self.queue.0.ring.release(self.entries);
        }
    }
}

impl<T, E: Event> fmt::Debug for Reservation<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("entries", &self.entries).finish_non_exhaustive()
    }
}
