//! Bounded: nothing is repaired, and every receive ends in time with what is there (OptiNIC 3.1,
//! Celeris III).
//!
//! The sender sends each message once and is done when it is on the wire. With a code it sends parity
//! behind the data, and nothing else if that does not suffice. Controllers get their reports as in all
//! modes.
//!
//! A receive is over as soon as one of these holds (`lacuna_place::reason::Reason`):
//!
//! - all of it arrived (*whole*);
//! - its last packet arrived (*end*), or the sender has said that everything was sent (*accounted*);
//! - a packet of a message `window` receives further on arrived (*preempted*; with a window of 1 this
//!   is OptiNIC's single active message);
//! - its deadline passed, the sender gave it up, or the queue pair failed.
//!
//! *End*, *accounted* and *preempted* wait for the receive's grace, because the path may reorder
//! packets: without it the last packet, when it overtakes others, would make them losses. They are
//! judged for each channel, since channels keep no order among each other ([`Watch`]).
//!
//! The sender's word (`qp/words.rs`) is what no paper has: with it a message whose tail is lost ends a
//! reordering window later, and not by a timeout.

mod recv;
mod send;
#[cfg(test)]
mod tests;

pub use recv::{Span, Watch};
pub use send::Sender;

use lacuna_code::Code;

/// Receives after which an incomplete one is over, if nothing else is said. A judgement: a few
/// messages overlap on each path whose round trip is longer than a message, and collectives keep that
/// many in flight.
pub const WINDOW: u32 = 8;
/// The longest window.
pub const WINDOW_MAX: u32 = 1024;

/// Parameters that both ends agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// An incomplete receive is over when a message that many receives further on arrives: 1 to
    /// [`WINDOW_MAX`].
    pub window: u32,
    /// The code whose parity is sent with each message, if any.
    pub code: Option<Code>,
}
