//! Collective operations without a socket: schedules, and what runs them.
//!
//! A collective is a *table* per rank ([`schedule::Table`]): who sends which part to whom, after what.
//! One *runner* ([`run::Runner`]) carries tables out over a [`run::Fabric`], which real queue pairs and a
//! network in virtual time ([`simulated`]) implement. Sums are made by the kernels of [`reduce`] on the types
//! of [`element`].
//!
//! [`mod@choose`] says which algorithm to take, and [`budget`] how long an operation may take if it has to end
//! in time rather than complete.
//!
//! No socket, thread, clock or global randomness: time and events are arguments.

#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod budget;
pub mod choose;
pub mod element;
pub mod reduce;
pub mod run;
pub mod schedule;
pub mod simulated;
