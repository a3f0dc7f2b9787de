//! Errors of a queue pair's operations: one enum per operation, with the numbers. `is_retryable`
//! tells whether calling again later can help.

use lacuna_wire::CancelReason;

/// Posting a receive failed. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostReceiveError {
    /// The peer of this queue pair writes to regions, without receives. The caller's fault.
    #[error("a one-sided queue pair takes no receives: its peer writes to regions")]
    OneSided,
    /// Not enough slots are free.
    #[error(
        "no free slot: the receive needs {needed}, and {open} of {slots} are open; complete one first"
    )]
    NoSlot {
        /// Slots that the receive takes.
        needed: u64,
        /// Slots in use.
        open: u64,
        /// Slots of the queue pair.
        slots: u32,
    },
    /// The buffer is longer than all slots together.
    #[error(
        "a receive of {capacity_bytes} bytes needs more than the {slots} slots of {slot_bytes} bytes"
    )]
    TooLong {
        /// Bytes of the buffer.
        capacity_bytes: u64,
        /// Slots of the queue pair.
        slots: u32,
        /// Bytes of a slot.
        slot_bytes: u64,
    },
    /// The queue pair has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl PostReceiveError {
    /// Whether calling again later can help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NoSlot { .. })
    }
}

/// Posting a send failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostSendError {
    /// The queue pair sends nothing but writes to regions. The caller's fault.
    #[error("a one-sided queue pair sends no messages, it writes to regions")]
    OneSided,
    /// The queue pair writes to no regions. The caller's fault.
    #[error("this queue pair writes to no regions: use a one-sided one")]
    NoRegions,
    /// The queue pair is not connected yet. The caller's fault.
    #[error("the queue pair is not connected: hand it the peer's info first")]
    NotConnected,
    /// The peer has not posted the receive of this send.
    #[error("the peer has posted no receive for message {number} (posted so far: {posted})")]
    Unposted {
        /// Number of the message.
        number: u64,
        /// Receives that the peer has posted, as far as known.
        posted: u64,
    },
    /// The message does not fit the peer's receive.
    #[error(
        "a message of {len_bytes} bytes does not fit the posted receive of {capacity_bytes} bytes"
    )]
    TooLong {
        /// Bytes of the message.
        len_bytes: u64,
        /// Bytes of the receive.
        capacity_bytes: u64,
    },
    /// The split of the immediate has no bits for the user.
    #[error("the queue pair's immediate split leaves no bits for a user immediate")]
    NoImmediate,
    /// Too many sends wait already.
    #[error("{waiting} sends wait for the peer's receives already; wait for some to complete")]
    QueueFull {
        /// Sends in the queue.
        waiting: usize,
    },
    /// A streaming send must begin at a chunk and stay within one slot.
    #[error(
        "bytes {offset_bytes}+{len_bytes} of a streaming send: must begin at a multiple of the chunk ({chunk_bytes} bytes), and only the end of the message may be no multiple of the MTU"
    )]
    Misaligned {
        /// Offset within the message.
        offset_bytes: u64,
        /// Bytes to send.
        len_bytes: u64,
        /// Bytes of a chunk.
        chunk_bytes: u64,
    },
    /// What was offered of a send is outside of it. The caller's fault.
    #[error(
        "bytes {offset_bytes}+{offered_bytes} were offered of a send that has {len_bytes} bytes"
    )]
    OutsideOfSend {
        /// Offset of what was offered.
        offset_bytes: u64,
        /// Its length.
        offered_bytes: u64,
        /// Bytes of the send.
        len_bytes: u64,
    },
    /// There is no such send, or it has ended.
    #[error("no such send is open")]
    NoSuchSend,
    /// The queue pair has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl PostSendError {
    /// Whether calling again later can help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unposted { .. } | Self::QueueFull { .. })
    }
}

/// What an operation was waiting for when its deadline passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitedFor {
    /// The peer to post a receive.
    Receive,
    /// The window to open.
    Transmission,
    /// The peer to acknowledge.
    Acknowledgement,
}

impl std::fmt::Display for WaitedFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Receive => "the peer to post a receive",
            Self::Transmission => "the path to take the data",
            Self::Acknowledgement => "the peer's acknowledgement",
        })
    }
}

/// A send ended without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendFailure {
    /// The deadline passed.
    #[error(
        "deadline passed with {acked_bytes} of {len_bytes} bytes acknowledged, waiting for {waited_for}{}",
        silence(*silent_ms)
    )]
    Deadline {
        /// Bytes that the peer is known to have.
        acked_bytes: u64,
        /// Bytes of the message.
        len_bytes: u64,
        /// What the send was waiting for.
        waited_for: WaitedFor,
        /// Time without a sign of life from a peer that owed an answer, if longer than answers
        /// take; else 0.
        silent_ms: u64,
    },
    /// The application cancelled the send.
    #[error("cancelled")]
    Cancelled,
    /// The peer refused a write to a region: the key does not allow it, or was revoked, or the place is
    /// outside of its range.
    #[error(
        "the peer refused the write: the key does not allow it, was revoked, or ends before the place"
    )]
    Refused,
    /// The peer closed its receive before everything had come.
    #[error("the peer closed its receive before the message was complete")]
    ClosedByPeer,
    /// The message does not fit the peer's receive.
    #[error(
        "a message of {len_bytes} bytes does not fit the posted receive of {capacity_bytes} bytes"
    )]
    TooLong {
        /// Bytes of the message.
        len_bytes: u64,
        /// Bytes of the receive.
        capacity_bytes: u64,
    },
    /// The queue pair has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

fn silence(silent_ms: u64) -> String {
    match silent_ms {
        0 => String::new(),
        _ => format!("; the path is dark or the peer gone, nothing was heard for {silent_ms} ms"),
    }
}

/// A receive will never be complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveFailure {
    /// The sender gave up.
    #[error("the sender gave the message up: {}", describe(.0))]
    Cancelled(CancelReason),
    /// The queue pair has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

fn describe(reason: &CancelReason) -> &'static str {
    match reason {
        CancelReason::Cancelled => "cancelled",
        CancelReason::Deadline => "its deadline passed",
        CancelReason::Other(_) => "for a reason unknown to this version",
    }
}

/// A queue pair that cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer's process or host is gone.
    #[error("the peer is gone: {0}")]
    PeerGone(Gone),
    /// The peer owed an answer and sent nothing.
    #[error("nothing heard of the peer for {silent_ms} ms")]
    Silent {
        /// For how long.
        silent_ms: u64,
    },
    /// Full packets over UDP get no answer, although TCP works.
    #[error(
        "no answer to packets of {packet_bytes} bytes over UDP on {} of {channels} channels within {waited_ms} ms: is UDP between the ends blocked, or the MTU too large?",
        channels - answered
    )]
    NoUdp {
        /// Channels that got an answer.
        answered: u32,
        /// All channels.
        channels: u32,
        /// UDP payload of a full packet.
        packet_bytes: u32,
        /// Time spent on trying.
        waited_ms: u64,
    },
    /// The key of its packets has sealed as many as it may, and the peer was not heard to follow to a new one.
    #[error(
        "the key of its packets has sealed {packets}, as many as it may, and the peer was not heard to follow to a new one: connect anew"
    )]
    KeySpent {
        /// Packets that it has sealed.
        packets: u64,
    },
    /// Closed by this end.
    #[error("the connection was closed")]
    Closed,
    /// A worker thread has panicked: a bug of this library.
    #[error("a worker of this context panicked; please report what it printed")]
    WorkerPanicked,
}

/// How this end noticed that the peer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It closed the connection in good order.
    Closed,
    /// Its control connection ended without a goodbye, as when its process dies.
    Broken,
    /// Its host, or the way there, no longer answers on the control connection.
    Unreachable,
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Closed => "it closed the connection",
            Self::Broken => "its process ended without a goodbye",
            Self::Unreachable => {
                "its host, or the path there, has not answered on the control connection for too long"
            }
        })
    }
}
