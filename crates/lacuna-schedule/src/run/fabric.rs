//! What carries the bytes: the one interface between schedules and a network.
//!
//! A fabric connects this rank with its peers. The runner ([`super::Runner`]) posts messages to it, offers
//! their bytes, and is told what has come; it knows nothing else of the network, so the same tables run
//! over queue pairs, in virtual time ([`crate::simulated`]) or in a simulator.
//!
//! # Messages
//!
//! - **Order.** Between two ranks the n-th send lands in the n-th receive that was posted for that peer, of
//!   the same length. The runner posts both in the order of the tables, on both sides. No tag travels.
//! - **Receives are posted ahead.** The runner posts up to [`super::Settings::receives_ahead`] for each peer
//!   before their data can come, each with a deadline of its own if the operation has to end in time. A
//!   fabric with fewer slots keeps later ones until there is room; posting never fails for want of it.
//! - **Sends are offered part by part**, in any order, each byte once. [`Fabric::offer`] takes the bytes
//!   (copies them, or has sent them when it returns), so the runner may change the memory afterwards. A
//!   fabric sends what is offered at once: others wait for it. Parts are multiples of
//!   [`Fabric::chunk_bytes`] from the message's start, but for the last, where the schedule allows it.
//! - **Chunks are seen before the message is whole.** [`Event::Arrived`] says which bytes are here, in any
//!   order, each at most once; they can be read with [`Fabric::view`] from then on until
//!   [`Fabric::release`]. A fabric may tell of several chunks at once, and need not tell of those that are
//!   here when the receive ends.
//! - **Each receive ends once**, by [`Event::Ended`], with a reason and what is missing. All other bytes are
//!   here then. After that nothing changes in its memory. A receive with a deadline ends by it, whatever the
//!   peer does; one without ends whole, or because the peer failed.
//! - **Each send ends once**, by [`Event::Sent`]. Operations do not wait for it, so a fabric is kept until
//!   its sends have ended.
//!
//! # Notes
//!
//! [`Fabric::tell`] carries small messages of the runners among themselves, reliably (the critical class: repaired,
//! whatever mode the data have), at most [`NOTE_BYTES_MAX`] bytes. They do not take part in the order of messages. They
//! may overtake each other, and come more than once.
//!
//! # Time and failure
//!
//! The runner reads the time from [`Fabric::now_ns`] only, and asks to be called again by
//! [`super::Runner::poll_timeout`]. A peer that is gone is told by [`Event::PeerFailed`], once, or by the
//! error of a call. Tokens are the runner's; a fabric hands them back as they are, and ignores those that
//! it does not know any more.

use lacuna_path::ranges::Ranges;
pub use lacuna_place::reason::Reason;
use std::ops::Range;

/// Longest note.
pub const NOTE_BYTES_MAX: usize = 64 << 10;

/// Names a send or a receive; a name is used once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// A message to be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posting {
    /// Its name.
    pub token: Token,
    /// To or from whom.
    pub peer: usize,
    /// Its length: at least one byte.
    pub len_bytes: usize,
    /// When it has to be over, on the fabric's clock; `None`: when it is whole.
    pub deadline_ns: Option<u64>,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes of a receive are here.
    Arrived {
        /// The receive.
        token: Token,
        /// Which bytes.
        bytes: Range<usize>,
    },
    /// A receive is over.
    Ended {
        /// The receive.
        token: Token,
        /// Why.
        reason: Reason,
        /// Bytes that are not here.
        missing: Ranges<usize>,
        /// The message's length, if it is known.
        len_bytes: Option<usize>,
    },
    /// A send is over.
    Sent {
        /// The send.
        token: Token,
        /// Whether all of it was sent, and arrived if the fabric is reliable.
        is_whole: bool,
    },
    /// A note has come.
    Told {
        /// From whom.
        peer: usize,
        /// The note.
        note: Vec<u8>,
    },
    /// A peer is gone. Its receives and sends end besides.
    PeerFailed {
        /// Who.
        peer: usize,
        /// What was seen of it, for the error message.
        cause: String,
    },
}

/// Why a fabric cannot do what it is asked. Retrying does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// A peer is gone.
    #[error("rank {peer}: {cause}")]
    Peer {
        /// Who.
        peer: usize,
        /// What was seen of it.
        cause: String,
    },
    /// Nothing works any more.
    #[error("{cause}")]
    Broken {
        /// Why.
        cause: String,
    },
}

/// See the module's text.
pub trait Fabric {
    /// Now, on a clock that never goes back.
    fn now_ns(&self) -> u64;

    /// Bytes that the fabric makes visible and sends at once; 1 or more.
    fn chunk_bytes(&self) -> usize;

    /// Posts the next receive from a peer.
    ///
    /// # Errors
    /// [`FabricError`]
    fn post_receive(&mut self, posting: &Posting) -> Result<(), FabricError>;

    /// Posts the next send to a peer; nothing of it is offered yet.
    ///
    /// # Errors
    /// [`FabricError`]
    fn post_send(&mut self, posting: &Posting) -> Result<(), FabricError>;

    /// Offers a part of a send.
    ///
    /// # Errors
    /// [`FabricError`]
    fn offer(&mut self, token: Token, offset: usize, bytes: &[u8]) -> Result<(), FabricError>;

    /// Bytes of a receive that are here.
    ///
    /// # Panics
    /// If some are not: the runner's fault.
    fn view(&self, token: Token, bytes: Range<usize>) -> &[u8];

    /// Frees the memory of a receive, which ends if it has not, without an event.
    fn release(&mut self, token: Token);

    /// Gives a send up. It ends without an event.
    fn cancel(&mut self, token: Token);

    /// Sends a note.
    ///
    /// # Errors
    /// [`FabricError`]
    fn tell(&mut self, peer: usize, note: &[u8]) -> Result<(), FabricError>;

    /// The next event. Does not wait.
    fn poll(&mut self) -> Option<Event>;
}
