//! Collective operations without a socket: schedules, and what runs them.
//!
//! A collective is a *table* per rank ([`schedule::Table`]): who sends which part to whom, after what.
//! Sums are made by the kernels of [`reduce`] on the types of [`element`].
//!
//! No socket, thread, clock or global randomness: time and events are arguments.

#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod element;
pub mod reduce;
pub mod schedule;
