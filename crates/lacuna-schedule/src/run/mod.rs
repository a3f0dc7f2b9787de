//! One runner for all schedules.
//!
//! The runner carries tables ([`crate::schedule`]) out over a [`Fabric`]: it posts messages, reduces and
//! copies what comes, and offers what is ready, chunk by chunk. Several operations are in flight at once;
//! all ranks start them in the same order.
//!
//! ```text
//! let sequence = runner.start(&mut fabric, job);
//! loop {
//!     runner.poll(&mut fabric);                       // handles all events
//!     while let Some(finished) = runner.take() { … }  // operations that are over
//!     // wait for the fabric, at most until runner.poll_timeout()
//! }
//! ```
//!
//! # Operations that end in time
//!
//! With [`Time::Bounded`] every receive has a deadline: phases have shares of the usual time, behind a reserve that is
//! what the budget has beyond it. What has not come
//! by then is left out of reductions and is zero where it is only passed on; every rank goes on with what it
//! has, so the operation ends by its budget, exactly on the fabric's clock. [`Report`] says for each hop
//! which bytes did not come, and for the result which ranks' contributions are missing where. A sum that is
//! lost on a hop takes the contributions of all ranks before it along; the notes of the senders say so.
//!
//! # Failures
//!
//! A rank that is gone, or that runs something else, ends all operations with a [`RunError`] that names it;
//! the others are told.

mod board;
mod fabric;
mod memory;
mod note;
mod operation;
mod order;
mod ports;
mod report;
mod runner;
#[cfg(test)]
mod tests;
mod who;

pub use board::PUBLISHED_BYTES_MAX;
pub use fabric::{Event, Fabric, FabricError, NOTE_BYTES_MAX, Posting, Reason, Token};
pub use memory::{Buffers, Vectors};
pub use note::{Label, abort_note};
pub use operation::{Divisor, Job, Time};
pub use report::{Finished, Hop, Report, RunError, Straggler};
pub use runner::Runner;
pub use who::RankSet;

/// How a runner works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Receives that are posted for each peer before their data can come.
    pub receives_ahead: usize,
    /// Whether chunks are passed on while others still arrive. False is store-and-forward, to compare.
    pub is_pipelined: bool,
    /// Whether ranks tell those that they send to what they run, so that a disagreement is found rather than
    /// a wrong result.
    pub has_checks: bool,
}

impl Default for Settings {
    fn default() -> Self {
        // Eight: with two messages of a ring in flight, room for four operations.
        Self { receives_ahead: 8, is_pipelined: true, has_checks: true }
    }
}
