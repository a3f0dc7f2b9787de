//! Collective operations without a socket: schedules, and what runs them.
//!
//! A collective is a *table* per rank ([`schedule::Table`]): who sends which part to whom, after what.
//! One *runner* ([`run`]) carries tables out over a [`run::Fabric`], which real queue pairs and a fabric in
//! virtual time implement. Sums are made by the kernels of [`reduce`] on the types of [`element`].
//! [`budget`] says how long an operation may take if it has to end in time rather than complete.
//!
//! No socket, thread, clock or global randomness: time and events are arguments.

#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod element;
pub mod reduce;
