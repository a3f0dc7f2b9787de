//! What applications post and get back: work requests and completions. Names follow libibverbs.

use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::Slices;
use lacuna_wire::rc::Nak;

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte: with Lacuna's peers, from the start of the key's range.
    pub address: u64,
    /// The key.
    pub key: u32,
}

/// What a work request does.
#[derive(Debug, Clone)]
pub enum Verb {
    /// Bytes for the peer's next receive.
    Send {
        /// The bytes; inline is a copy of them (`SendBuffer::copy_of`).
        data: SendBuffer,
        /// For the receiver's completion.
        immediate: Option<u32>,
    },
    /// Bytes for the peer's memory.
    Write {
        /// The bytes.
        data: SendBuffer,
        /// Where they go.
        remote: Remote,
        /// Takes a receive of the peer, and stands in its completion.
        immediate: Option<u32>,
    },
    /// Bytes of the peer's memory.
    Read {
        /// Where they go; as many as it has.
        into: Slices,
        /// Where they are.
        remote: Remote,
    },
    /// Stores a number of eight bytes, big-endian on the wire and in the memory of this host as the host
    /// has it, if another is there; gives what was there.
    CompareSwap {
        /// Eight bytes for what was there, in this host's order.
        into: Slices,
        /// Where the number is: a multiple of 8.
        remote: Remote,
        /// What must be there.
        compare: u64,
        /// What is stored.
        swap: u64,
    },
    /// Adds to a number of eight bytes, and gives what it was.
    FetchAdd {
        /// Eight bytes for what was there, in this host's order.
        into: Slices,
        /// Where the number is: a multiple of 8.
        remote: Remote,
        /// What is added, modulo 2^64.
        add: u64,
    },
}

/// The kind of operation that a completion tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A SEND was delivered.
    Send,
    /// A WRITE is in place.
    Write,
    /// What was read is here.
    Read,
    /// An atomic operation was done.
    Atomic,
    /// A SEND came.
    Receive,
    /// A WRITE with immediate came.
    ReceiveWritten,
}

impl Verb {
    /// Its kind.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match self {
            Self::Send { .. } => Operation::Send,
            Self::Write { .. } => Operation::Write,
            Self::Read { .. } => Operation::Read,
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => Operation::Atomic,
        }
    }

    /// Bytes that it moves.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Send { data, .. } | Self::Write { data, .. } => data.len() as u64,
            Self::Read { into, .. } => into.len(),
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => 8,
        }
    }

    /// Whether it waits for an answer of its own and counts against `reads_max`.
    pub(crate) fn is_read_or_atomic(&self) -> bool {
        matches!(self.operation(), Operation::Read | Operation::Atomic)
    }
}

/// How a work request is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags {
    /// It completes with an entry; without, only a failure has one.
    pub is_signaled: bool,
    /// The receiver's completion wakes those who wait for solicited ones alone.
    pub is_solicited: bool,
    /// It begins when all READs and atomic operations before it are done.
    pub is_fenced: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Self { is_signaled: true, is_solicited: false, is_fenced: false }
    }
}

/// A work request of the send queue.
#[derive(Debug, Clone)]
pub struct SendWork {
    /// Given back in the completion.
    pub id: u64,
    /// What it does.
    pub verb: Verb,
    /// How.
    pub flags: Flags,
}

/// A posted receive.
#[derive(Debug, Clone)]
pub struct RecvWork {
    /// Given back in the completion.
    pub id: u64,
    /// Where a message goes.
    pub into: Slices,
}

/// What a receive got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The immediate.
    pub immediate: Option<u32>,
    /// Whether the sender asked for a wake-up.
    pub is_solicited: bool,
}

/// Why a work request failed. Names follow `ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The queue pair had failed or was closed before it was done.
    #[error("the queue pair was flushed")]
    Flushed,
    /// The peer has not answered in all retries. Its fault, or the path's.
    #[error("no answer after {retries} retries")]
    RetryExceeded {
        /// Retries.
        retries: u8,
    },
    /// The peer had no receive in all retries. Its fault.
    #[error("the peer had no receive after {retries} retries")]
    RnrRetryExceeded {
        /// Retries.
        retries: u8,
    },
    /// The peer refused. This side's fault, mostly: a key, a range, a message longer than the receive.
    #[error("the peer refused: {0:?}")]
    Remote(Nak),
    /// A message was longer than the receive. The sender's fault.
    #[error("a message has more than the receive's {capacity_bytes} bytes")]
    Length {
        /// Bytes of the receive.
        capacity_bytes: u64,
    },
    /// The peer's request was refused, and its message was for this receive. The peer's fault.
    #[error("the message's rest was refused: {0:?}")]
    Refused(Nak),
    /// The key of the queue pair's packets has sealed as many as it may, and the peer was not heard to follow to a new
    /// one. The path's fault, or the peer's.
    #[error(
        "the key of its packets has sealed {packets}, as many as it may, and the peer was not heard to follow to a new one: connect anew"
    )]
    KeySpent {
        /// Packets that it has sealed.
        packets: u64,
    },
    /// The peer answered what was not asked. Its fault.
    #[error("an answer that fits no question")]
    BadResponse,
}

/// How a work request ended.
pub type Status = Result<(), Failure>;

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The work request's.
    pub id: u64,
    /// What was done.
    pub operation: Operation,
    /// How it ended.
    pub status: Status,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Of a receive.
    pub received: Option<Received>,
    /// Whether success would have had a completion, too ([`Flags::is_signaled`]); receives have one.
    pub is_signaled: bool,
}

impl Done {
    /// Whether it wakes those who wait for solicited completions alone: what failed does, and a receive whose
    /// sender asked for it.
    #[must_use]
    pub fn is_solicited(&self) -> bool {
        self.status.is_err() || self.received.is_some_and(|received| received.is_solicited)
    }
}

/// Why work was not posted. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue pair is not connected, or has failed.
    #[error("the queue pair is in state {state:?}")]
    State {
        /// Its state.
        state: crate::QpState,
    },
    /// A message is longer than 2^31 bytes (section 9.7.7).
    #[error("{bytes} bytes are more than a message may have, 2^31")]
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// An atomic operation needs eight bytes at a multiple of 8.
    #[error(
        "an atomic operation at {address:#x} into {bytes} bytes: it needs 8 at a multiple of 8"
    )]
    Atomic {
        /// Where.
        address: u64,
        /// Bytes for the answer.
        bytes: u64,
    },
}
