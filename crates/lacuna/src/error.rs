//! Errors: one enum per operation, each variant with whose fault it is.

use crate::address::show;
use lacuna_code::EngineError;
use lacuna_datapath::BindError;
use lacuna_datapath::limit::{Limit, NoThread, Said};
use lacuna_place::geometry::GeometryError;
use lacuna_proto::handshake::Disagreement;
use lacuna_proto::qp::{Failure, ReceiveFailure};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use lacuna_proto::buffer::RangeError;
pub use lacuna_proto::qp::{PostReceiveError, PostSendError, SendFailure, WaitedFor};

/// A context could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The number of channels is out of range. The caller's fault.
    #[error("{channels} channels: must be 1 to 16")]
    Channels {
        /// Channels asked for.
        channels: u8,
    },
    /// A socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The [`path_memory`](crate::ContextConfig::path_memory) file cannot be read, or is something
    /// else.
    #[error("cannot use {} as path memory: {}", file.display(), Said(source))]
    PathMemory {
        /// Which file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The system gave no thread.
    #[error("the system refused a thread: {}", NoThread(.0))]
    Thread(io::Error),
    /// The system refused another resource: file descriptors, randomness.
    #[error("the system refused {what}: {}", Said(source))]
    System {
        /// What it refused.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The context was made before this process was forked. The caller's fault.
    #[error(
        "the context was made by a process that this one was forked from, and works there only: make one here"
    )]
    Inherited,
}

/// A queue pair could not be made or connected.
#[derive(Debug, thiserror::Error)]
pub enum QueuePairError {
    /// The parameters cannot be used. The caller's fault.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The two ends were made with different parameters.
    #[error("the ends do not agree on {what}: {here} here, {there} at the peer")]
    Mismatch {
        /// Which parameter.
        what: &'static str,
        /// This end's value.
        here: u64,
        /// The peer's.
        there: u64,
    },
    /// The ends were made with different erasure codes.
    #[error(
        "the ends do not agree on the erasure code: {here} here, {there} at the peer; give both the same mode"
    )]
    Code {
        /// This end's, or "none".
        here: String,
        /// The peer's, or "none".
        there: String,
    },
    /// The erasure code cannot run as the environment variables ask.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The controller `fixed` needs a rate and none was given. The caller's fault.
    #[error("the controller \"fixed\" needs a rate; give one, or take \"bbr\", which finds it")]
    NoRate,
    /// A setting must be more than zero. The caller's fault.
    #[error("{what} is 0; {instead}")]
    Zero {
        /// Which setting.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// The peer's `info` does not parse.
    #[error("the peer's info cannot be read: {0}")]
    Info(#[from] lacuna_wire::InfoError),
    /// The peer's address is link-local, and this context is bound to no particular link. The
    /// caller's fault.
    #[error(
        "the peer's address {ip} is link-local: bind the context to this host's own on that link, as in fe80::1%eth0"
    )]
    NoZone {
        /// The peer's.
        ip: Ipv6Addr,
    },
    /// The queue pair is connected already.
    #[error("the queue pair is connected already")]
    Connected,
    /// The context cannot be used in this process. The caller's fault.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// All queue pair numbers of the context are in use.
    #[error("all {limit} queue pairs of this context are in use")]
    TooMany {
        /// How many there can be.
        limit: u32,
    },
    /// The system refused a resource.
    #[error("the system refused {what}: {}", Said(source))]
    System {
        /// What it refused.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl From<Disagreement> for QueuePairError {
    fn from(disagreement: Disagreement) -> Self {
        match disagreement {
            Disagreement::Number { what, here, there } => Self::Mismatch { what, here, there },
            Disagreement::Code { here, there } => Self::Code { here, there },
        }
    }
}

/// Connecting or accepting failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there, or there is no route.
    #[error("cannot reach {peer}: {source}")]
    Unreachable {
        /// The address.
        peer: String,
        /// The system's error.
        source: io::Error,
    },
    /// The listening address cannot be bound.
    #[error("cannot listen on {}: {}", show(*address), Said(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A peer is waiting, and this host lacks a resource to accept it, such as a file descriptor.
    /// The listener continues, and may succeed later.
    #[error("cannot take a connection at {}: {}", show(*address), Said(source))]
    Accept {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The control connection failed during the handshake, or timed out.
    #[error("the exchange with {} failed while {doing}: {source}", show(*peer))]
    Exchange {
        /// The peer.
        peer: SocketAddr,
        /// At which step.
        doing: &'static str,
        /// What happened.
        source: io::Error,
    },
    /// The peer does not speak this protocol.
    #[error("{} does not speak Lacuna ({why})", show(*peer))]
    NotLacuna {
        /// The peer.
        peer: SocketAddr,
        /// How that shows.
        why: String,
    },
    /// The peer speaks another version of the protocol.
    #[error("{} speaks version {there} of the protocol, this end version {here}", show(*peer))]
    Version {
        /// The peer.
        peer: SocketAddr,
        /// This end's version.
        here: u32,
        /// The peer's.
        there: u32,
    },
    /// The peer refused, and said why.
    #[error("{} refused: {reason}", show(*peer))]
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// Its reason.
        reason: String,
    },
    /// The peer is overloaded.
    #[error("{} is busy: {reason}", show(*peer))]
    Busy {
        /// The peer.
        peer: SocketAddr,
        /// What there is too much of.
        reason: String,
    },
    /// Too many peers were connecting at once, so one that had sent nothing was refused. The
    /// listener continues.
    #[error(
        "{} was turned away: {limit} peers were connecting at once, and it had said nothing",
        show(*peer)
    )]
    Crowded {
        /// The peer.
        peer: SocketAddr,
        /// How many may be connecting.
        limit: usize,
    },
    /// The peer asks for parameters that this end cannot use; it was told so.
    #[error("{} asks for what this end cannot do: {reason}", show(*peer))]
    Unacceptable {
        /// The peer.
        peer: SocketAddr,
        /// What cannot be.
        reason: String,
    },
    /// TCP works, but UDP packets are not answered.
    #[error("no answer over UDP from {} on {} of {channels} channels within {:.1} s: is UDP between the ends blocked, or the MTU too large?", show(*peer), channels - answered, waited.as_secs_f64())]
    NoUdp {
        /// The peer.
        peer: SocketAddr,
        /// Channels with an answer.
        answered: u32,
        /// All channels.
        channels: u32,
        /// How long this end tried.
        waited: Duration,
    },
    /// The parameters cannot be used.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
    /// The context could not be made.
    #[error(transparent)]
    Context(#[from] ContextError),
}

impl ConnectError {
    /// The error for a `peer` that was not reached; a lack of resources of this host is an error of
    /// its own.
    pub(crate) fn unreachable(peer: &impl ToString, source: io::Error) -> Self {
        match Limit::of(&source) {
            Some(_) => ContextError::System { what: "a connection", source }.into(),
            None => Self::Unreachable { peer: peer.to_string(), source },
        }
    }

    /// Whether trying again later can help.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Exchange { .. }
                | Self::NoUdp { .. }
                | Self::Busy { .. }
                | Self::Accept { .. }
        )
    }
}

/// A send failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It could not be posted.
    #[error(transparent)]
    Post(#[from] PostSendError),
    /// It was posted and failed.
    #[error(transparent)]
    Failed(#[from] SendFailure),
}

impl SendError {
    /// Whether trying again later can help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Post(error) => error.is_retryable(),
            Self::Failed(failure) => matches!(failure, SendFailure::Deadline { .. }),
        }
    }
}

/// A receive failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// It could not be posted.
    #[error(transparent)]
    Post(#[from] PostReceiveError),
    /// The time limit passed.
    #[error("deadline passed after {waited_ms} ms with {chunks_done} of {chunks} chunks received")]
    Deadline {
        /// Time waited.
        waited_ms: u64,
        /// Chunks that came.
        chunks_done: u32,
        /// Chunks of the message, or of the buffer while its length is unknown.
        chunks: u32,
    },
    /// The sender will not complete it.
    #[error(transparent)]
    Failed(#[from] ReceiveFailure),
}

impl RecvError {
    /// Whether the peer closed the connection in good order.
    pub fn is_closed(&self) -> bool {
        use lacuna_proto::qp::Gone;
        let closed = Failure::PeerGone(Gone::Closed);
        matches!(self, Self::Failed(ReceiveFailure::Failed(failure)) if *failure == closed)
            || matches!(self, Self::Post(PostReceiveError::Failed(failure)) if *failure == closed)
    }
}
