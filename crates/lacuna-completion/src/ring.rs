//! The queue: completions in the order of their pushes, from many producers to many consumers.
//!
//! **Structure.** Producers push onto a stack of indices (Treiber); a consumer takes the whole stack
//! at once, turns it round, and keeps what it was not asked for in a list under a lock, which is
//! taken only when there is something to take. Why no ring of sequence numbers (Vyukov,
//! `crossbeam_queue::ArrayQueue`):
//! - A producer that is interrupted between claiming and filling its place in a ring hides what others
//!   pushed behind it. If it was an ordinary completion and theirs were solicited, their event has
//!   fired, found nothing, and does not come again. Here a push is one change of one word.
//! - A consumer that is interrupted while it reads its place blocks the producer that comes round to
//!   it, even though entries are free.
//! - Whether somebody is to be woken stands in the word that a push changes anyway. With a ring it is
//!   another word, and both sides need a full fence between the two.
//! - A ring walks through all of its memory. Here the entry that was freed last is used next.
//!
//! ```text
//! head   63..36   number in the stack      35  closed
//!        34  sleepers   33  event, if solicited   32  event   31..0  newest index
//! ```
//!
//! **Entries.** `reserved` counts the entries that are promised or filled. An entry goes back to the
//! free list before it is taken off the count, so whoever has reserved finds a free entry.
//!
//! Invariants:
//! - an index is in one place: the free list, a producer's hands, the stack, or the list of a
//!   consumer; who has it alone may touch its cell;
//! - `ready_count` is not 0 while `ready` has anything, as seen by whoever has seen the stack empty:
//!   it is raised before the stack is emptied;
//! - each arming is answered by one push at most, the first that it is for.

#![allow(unsafe_code)]

use crate::cells::Cells;
use crate::free_list::FreeList;
use crate::links::{Links, NONE};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, OwnLine, lock};
use std::fmt;

/// Most entries of a queue (a judgement: four times what network cards offer).
pub const ENTRIES_MAX: u32 = 1 << 24;

const NEWEST: u64 = u32::MAX as u64;
const EVENT_ANY: u64 = 1 << 32;
const EVENT_SOLICITED: u64 = 1 << 33;
const SLEEPERS: u64 = 1 << 34;
const CLOSED: u64 = 1 << 35;
const COUNT_SHIFT: u32 = 36;
const ONE: u64 = 1 << COUNT_SHIFT;
const FLAGS: u64 = EVENT_ANY | EVENT_SOLICITED | SLEEPERS | CLOSED;

const _: () = assert!((ENTRIES_MAX as u64) < 1 << (64 - COUNT_SHIFT) && ENTRIES_MAX < NONE);

/// The completions that an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// The next one.
    Any,
    /// The next that is solicited, or has failed.
    Solicited,
}

/// Who is to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "they sleep until they are woken"]
pub struct Wakes {
    /// Whoever armed the event.
    pub event: bool,
    /// The threads that sleep until something comes.
    pub sleepers: bool,
}

/// There are not as many free entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the completion queue has too few free entries: {needed} are needed, and {reserved} of {entries} are reserved or filled; poll completions first"
)]
pub struct Full {
    /// Entries of the queue.
    pub entries: u32,
    /// How many of them are reserved, or filled and not polled.
    pub reserved: u32,
    /// How many were asked for.
    pub needed: u32,
}

impl Full {
    /// Whether trying again can help, after completions were polled. Not if the queue has fewer
    /// entries than are needed.
    pub fn is_retryable(&self) -> bool {
        self.needed <= self.entries
    }
}

/// A queue cannot have so many entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{entries} entries of a completion queue: must be 1 to {ENTRIES_MAX}")]
pub struct EntriesError {
    /// Entries asked for.
    pub entries: u32,
}

/// See the module's text.
pub struct CompletionRing<T> {
    /// What was pushed and not taken by a consumer.
    head: OwnLine<AtomicU64>,
    free: OwnLine<FreeList>,
    /// Entries that are promised or filled.
    reserved: OwnLine<AtomicU32>,
    /// Length of `ready`, to be read without the lock; see the invariants.
    ready_count: OwnLine<AtomicU32>,
    /// What a consumer took and nobody has polled, oldest first.
    ready: Mutex<List>,
    links: Links,
    cells: Cells<T>,
}

/// A list of entries, by the links.
struct List {
    first: u32,
    last: u32,
    count: u32,
}

impl<T> CompletionRing<T> {
    /// A queue of `entries`.
    ///
    /// # Errors
    /// When that is 0, or more than [`ENTRIES_MAX`].
    pub fn new(entries: u32) -> Result<Self, EntriesError> {
        if entries == 0 || entries > ENTRIES_MAX {
            return Err(EntriesError { entries });
        }
        Ok(Self {
            head: OwnLine(AtomicU64::new(NEWEST)),
            free: OwnLine(FreeList::all()),
            reserved: OwnLine(AtomicU32::new(0)),
            ready_count: OwnLine(AtomicU32::new(0)),
            ready: Mutex::new(List { first: NONE, last: NONE, count: 0 }),
            links: Links::chained(entries),
            cells: Cells::new(entries),
        })
    }

    /// Entries of the queue.
    pub fn capacity(&self) -> u32 {
        self.cells.count()
    }

    /// Entries that are reserved, or filled and not polled.
    pub fn reserved(&self) -> u32 {
        self.reserved.0.load(Ordering::Relaxed)
    }

    /// Completions that wait to be polled.
    pub fn len(&self) -> u32 {
        // While a consumer moves some from one to the other they may count twice.
        let count = (self.head.0.load(Ordering::Acquire) >> COUNT_SHIFT) as u32;
        (count + self.ready_count.0.load(Ordering::Relaxed)).min(self.capacity())
    }

    /// Whether none waits to be polled: two loads.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // In this order: see the invariant of `ready_count`.
        self.head.0.load(Ordering::Acquire) & NEWEST == NEWEST
            && self.ready_count.0.load(Ordering::Relaxed) == 0
    }

    /// Whether it was closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.head.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Promises `entries` entries, all or none.
    ///
    /// # Errors
    /// When fewer are free.
    pub fn reserve(&self, entries: u32) -> Result<(), Full> {
        let capacity = self.capacity();
        let mut reserved = self.reserved.0.load(Ordering::Relaxed);
        loop {
            if entries > capacity - reserved {
                return Err(Full { entries: capacity, reserved, needed: entries });
            }
            // Acquire: what was given back before is in the free list.
            match self.reserved.0.compare_exchange_weak(
                reserved,
                reserved + entries,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => reserved = now,
            }
        }
    }

    /// Gives back entries that were reserved and not pushed.
    pub fn release(&self, entries: u32) {
        let before = self.reserved.0.fetch_sub(entries, Ordering::Release);
        debug_assert!(before >= entries, "{entries} of {before} reserved entries given back");
    }

    /// Queues a completion, in an entry that was reserved.
    ///
    /// # Panics
    /// If none was.
    #[inline]
    pub fn push(&self, value: T, is_solicited: bool) -> Wakes {
        let index = self.free.0.pop(&self.links).expect("an entry was reserved");
        // SAFETY: the index came from the free list just now, and nobody else has it.
        unsafe { self.cells.write(index, value) };
        let wanted = if is_solicited { EVENT_ANY | EVENT_SOLICITED } else { EVENT_ANY };
        let mut word = self.head.0.load(Ordering::Relaxed);
        loop {
            self.links.set_next(index, (word & NEWEST) as u32);
            let is_event = word & wanted != 0;
            let answered = if is_event { EVENT_ANY | EVENT_SOLICITED | SLEEPERS } else { SLEEPERS };
            let pushed = ((word & !NEWEST & !answered) + ONE) | u64::from(index);
            // Release: the cell and the link. Pushes that follow are read-modify-writes as well, so
            // who acquires the last has all of them.
            match self.head.0.compare_exchange_weak(
                word,
                pushed,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Wakes { event: is_event, sleepers: word & SLEEPERS != 0 },
                Err(now) => word = now,
            }
        }
    }

    /// Moves up to `max` completions to the end of `into`, the oldest first, and returns how many.
    /// Allocates nothing if `into` has room for them. Waits for nothing but another consumer that is
    /// in this call.
    #[inline]
    pub fn poll(&self, into: &mut Vec<T>, max: usize) -> usize {
        if self.is_empty() || max == 0 {
            return 0;
        }
        self.take(into, max)
    }

    fn take(&self, into: &mut Vec<T>, max: usize) -> usize {
        let mut ready = lock(&self.ready);
        if (ready.count as usize) < max {
            self.fetch(&mut ready);
        }
        let count = max.min(ready.count as usize);
        if count == 0 {
            return 0;
        }
        // Before anything is taken: this may panic.
        into.reserve(count);
        let first = ready.first;
        let mut last = first;
        for at in 0..count {
            let index = if at == 0 { first } else { self.links.next(last) };
            // SAFETY: the index is in the list of consumers, whose lock is held.
            into.push(unsafe { self.cells.read(index) });
            last = index;
        }
        ready.first = self.links.next(last);
        ready.count -= count as u32;
        self.ready_count.0.store(ready.count, Ordering::Relaxed);
        drop(ready);
        self.free.0.push_list(&self.links, first, last);
        // After the entries are free: see the module's text.
        self.reserved.0.fetch_sub(count as u32, Ordering::Release);
        count
    }

    /// Appends all that was pushed to `ready`, in the order of the pushes.
    fn fetch(&self, ready: &mut List) {
        let mut word = self.head.0.load(Ordering::Relaxed);
        loop {
            if word & NEWEST == NEWEST {
                self.ready_count.0.store(ready.count, Ordering::Relaxed);
                return;
            }
            // Before the stack is emptied: see the invariants.
            let count = ready.count + (word >> COUNT_SHIFT) as u32;
            self.ready_count.0.store(count, Ordering::Relaxed);
            match self.head.0.compare_exchange_weak(
                word,
                word & FLAGS | NEWEST,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        let newest = (word & NEWEST) as u32;
        let (mut index, mut newer) = (newest, NONE);
        while index != NONE {
            let older = self.links.next(index);
            self.links.set_next(index, newer);
            (newer, index) = (index, older);
        }
        let oldest = newer;
        if ready.count == 0 {
            ready.first = oldest;
        } else {
            self.links.set_next(ready.last, oldest);
        }
        ready.last = newest;
        ready.count += (word >> COUNT_SHIFT) as u32;
    }

    /// Asks for an event with the next completion. `true` if some are queued already, for which none
    /// comes. Armed for any and for solicited ones, the event comes with any.
    pub fn arm(&self, arm: Arm) -> bool {
        let flag = match arm {
            Arm::Any => EVENT_ANY,
            Arm::Solicited => EVENT_SOLICITED,
        };
        self.head.0.fetch_or(flag, Ordering::AcqRel);
        !self.is_empty()
    }

    /// As [`CompletionRing::arm`] for any completion, on behalf of a thread that is about to sleep.
    pub fn arm_sleeper(&self) -> bool {
        self.head.0.fetch_or(SLEEPERS, Ordering::AcqRel);
        !self.is_empty()
    }

    /// Marks the queue as closed: nobody will push any more but those who have reserved. Everybody is
    /// to be woken. `false` if it was closed already.
    pub fn close(&self) -> bool {
        self.head.0.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0
    }
}

impl<T> Drop for CompletionRing<T> {
    fn drop(&mut self) {
        let mut ready = lock(&self.ready);
        self.fetch(&mut ready);
        let mut index = ready.first;
        for _ in 0..ready.count {
            // SAFETY: nobody else has the queue any more, and the index was in the list.
            drop(unsafe { self.cells.read(index) });
            index = self.links.next(index);
        }
    }
}

impl<T> fmt::Debug for CompletionRing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionRing")
            .field("capacity", &self.capacity())
            .field("reserved", &self.reserved())
            .field("len", &self.len())
            .field("is_closed", &self.is_closed())
            .finish()
    }
}
