//! What applications post and get back. Names follow libibverbs, and datagram-iWARP, section 2.1.

use crate::map::Map;
use crate::peers::PeerId;
use core::net::SocketAddr;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::Slices;
use lacuna_wire::ddp::ControlReason;

/// Memory of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its key (STag).
    pub key: u32,
    /// The first byte, from the start of the key's range.
    pub offset: u64,
}

/// What a work request does.
#[derive(Debug, Clone)]
pub enum Verb {
    /// Bytes for the peer's next receive.
    Send {
        /// The bytes.
        data: SendBuffer,
    },
    /// Bytes for the peer's memory. The peer records what came, and nothing is told here.
    WriteRecord {
        /// The bytes.
        data: SendBuffer,
        /// Where they go.
        to: Target,
    },
    /// The same for memory that has a name at the peer, or at each of a group
    /// ([`Endpoint::name_region`](crate::Endpoint::name_region)).
    WriteNamed {
        /// The bytes.
        data: SendBuffer,
        /// The memory's name.
        name: u32,
        /// The first byte, from the start of the key's range.
        offset: u64,
    },
    /// Bytes of the peer's memory.
    Read {
        /// Where they go; as many as it has.
        into: Slices,
        /// Where they are.
        from: Target,
    },
}

/// The kind of operation that a completion tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A Send was handed to the network.
    Send,
    /// A Write-Record was handed to the network.
    WriteRecord,
    /// A READ is over.
    Read,
    /// A Send came.
    Receive,
    /// A Write-Record came, whole or in part.
    Record,
}

/// A work request of the send queue.
#[derive(Debug, Clone)]
pub struct SendWork {
    /// Given back in the completion.
    pub id: u64,
    /// Whom it is for.
    pub to: PeerId,
    /// What it does.
    pub verb: Verb,
    /// It completes with an entry; without, only a failure and a READ have one.
    pub is_signaled: bool,
    /// The receiver's completion wakes those who wait for solicited ones alone.
    pub is_solicited: bool,
    /// It is given up at this time. A READ should have one: its question or its answer may be lost.
    pub deadline_ns: Option<u64>,
}

impl SendWork {
    /// A work request that completes with an entry, wakes nobody in particular and has no deadline.
    #[must_use]
    pub fn new(id: u64, to: PeerId, verb: Verb) -> Self {
        Self { id, to, verb, is_signaled: true, is_solicited: false, deadline_ns: None }
    }
}

/// A posted receive.
#[derive(Debug, Clone)]
pub struct RecvWork {
    /// Given back in the completion.
    pub id: u64,
    /// Where a message goes.
    pub into: Slices,
}

/// Why a work request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Its deadline has passed.
    #[error("the deadline has passed")]
    Deadline,
    /// The queue pair was closed before it was done.
    #[error("the queue pair was flushed")]
    Flushed,
    /// A part of what a READ asked for was lost: its answer ended without it. Retryable.
    #[error("a part of the answer was lost")]
    Lost,
    /// The peer said nothing for too long; where datagrams are sealed, also that it gave no keys: nobody is there, or it
    /// has another secret. Retryable; of a reliable queue pair once the peer was reset.
    #[error("the peer says nothing")]
    Unreachable,
    /// The peer has lost what it knew, as when its program was started again: what came of earlier messages
    /// cannot be told. Retryable, once the peer was reset.
    #[error("the peer has begun anew")]
    Restarted,
    /// The peer refused. This side's fault, mostly: a key, a range, a message longer than the receive.
    #[error("the peer refused: {0:?}")]
    Peer(ControlReason),
}

/// Why a record is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// All of the message is here.
    Whole,
    /// The source has sent later messages, or said that it sent all; what is missing is lost.
    Accounted,
    /// Nothing came for longer than its segments were apart.
    Silence,
    /// It had to go for others: the source, or all of them, had too many open.
    Evicted,
    /// The source gave it up.
    Cancelled,
}

/// What came by itself: a Send, or a Write-Record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// From where.
    pub source: SocketAddr,
    /// Its number among those of the source.
    pub number: u32,
    /// Bytes of the whole message.
    pub length: u32,
    /// Which of them are here.
    pub map: Map,
    /// Where a Write-Record is.
    pub place: Option<Target>,
    /// Why it is over.
    pub ended: Ended,
    /// Messages of the source that are known to be lost whole since the last completion.
    pub missed: u32,
    /// Whether the source asked for a wake-up.
    pub is_solicited: bool,
}

/// A completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The work request's; 0 of a Write-Record that came.
    pub id: u64,
    /// What was done.
    pub operation: Operation,
    /// The peer.
    pub peer: PeerId,
    /// How it ended.
    pub status: Result<(), Failure>,
    /// Bytes that were moved.
    pub bytes: u64,
    /// It was asked for; else it has failed.
    pub is_signaled: bool,
    /// Of what came.
    pub arrived: Option<Box<Arrived>>,
}

impl Done {
    /// Whether it wakes those, too, who wait for solicited completions alone: its source says so, it has failed, or
    /// something is missing.
    #[must_use]
    pub fn is_solicited(&self) -> bool {
        let asks = |arrived: &Arrived| arrived.is_solicited || arrived.ended != Ended::Whole;
        self.status.is_err() || self.arrived.as_deref().is_some_and(asks)
    }
}

/// Why work was not posted. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The peer is not known (any more).
    #[error("no such peer: its handle is of another queue pair, or was given back")]
    Peer,
    /// A message is longer than 2^32 - 1 bytes.
    #[error("{bytes} bytes are more than a message may have, {}", u32::MAX)]
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// The peer is in error, until it is reset.
    #[error("the peer is in error: {0}; reset it to go on")]
    Failed(Failure),
    /// Reliable datagrams go to one peer at a time: not to a group or a broadcast address.
    #[error("{address} is no single host, and this queue pair is reliable")]
    Group {
        /// The address.
        address: SocketAddr,
    },
    /// Too many peers have something on its way.
    #[error("{streams} peers have streams, and no more may")]
    Streams {
        /// How many.
        streams: usize,
    },
    /// The queue pair is closed.
    #[error("the queue pair is closed")]
    Closed,
}
