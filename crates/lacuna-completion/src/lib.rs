//! The queue behind the transport's completion queues: a bounded queue for any number of producers
//! and consumers, whose entries are reserved before they are needed, and which can be armed so that
//! the next completion wakes somebody.
//!
//! | module | contents |
//! |---|---|
//! | `ring` | the queue itself: reservations, `push`, `poll`, and who is to be woken |
//! | `queue` | the queue with its event and its sleeping threads; reservations as values |
//! | `event_state` | whether the event may be set |
//! | `sleepers` | threads that wait for a completion |
//! | `free_list`, `links` | unused entries; the links of all lists |
//! | `cells` | memory of the entries |
//!
//! The crate knows nothing of what a completion is, and has no socket, file descriptor or clock: the
//! owner gives it an [`Event`] to set, and time limits as arguments.
//!
//! Invariants:
//! - a reservation can always be pushed, without waiting for another thread;
//! - a pushed completion is polled once, and completions come out in the order of their pushes;
//! - arming loses no wake-up: of a completion and an `arm`, either the poll after the `arm` returns
//!   the completion, or its push sets the event. Both are one change of the same word.

#![deny(unsafe_code)]

mod cells;
mod event_state;
mod free_list;
mod links;
#[cfg(all(test, loom))]
mod loom_tests;
mod queue;
mod ring;
mod sleepers;
mod sync;

pub use queue::{Event, Queue, Reservation};
pub use ring::{Arm, CompletionRing, ENTRIES_MAX, EntriesError, Full, Wakes};
