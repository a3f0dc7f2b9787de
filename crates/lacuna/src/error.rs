//! What can go wrong, one enum per operation, sorted by whose fault it is.

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
    /// The file of [`path_memory`](crate::ContextConfig::path_memory) is something
    /// else, or cannot be read.
    #[error("cannot use {} as path memory: {}", file.display(), Said(source))]
    PathMemory {
        /// Which file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no thread to be had.
    #[error("the system refused a thread: {}", NoThread(.0))]
    Thread(io::Error),
    /// The system refused something else: file descriptors, randomness.
    #[error("the system refused {what}: {}", Said(source))]
    System {
        /// What it refused.
        what: &'static str,
        /// Its word for it.
        source: io::Error,
    },
    /// It was made before this process was forked. The caller's fault.
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
    /// The erasure codec cannot work as the environment asks.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The controller `fixed` holds a rate, and none is given. The caller's fault.
    #[error("the controller \"fixed\" needs a rate; give one, or take \"bbr\", which finds it")]
    NoRate,
    /// A setting that means something only if it is more than zero. The caller's
    /// fault.
    #[error("{what} is 0; {instead}")]
    Zero {
        /// Which setting.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// The peer's info does not parse.
    #[error("the peer's info cannot be read: {0}")]
    Info(#[from] lacuna_wire::InfoError),
    /// The peer's address is link-local, and this end's sockets are on no particular link.
    /// The caller's fault.
    #[error(
        "the peer's address {ip} is link-local: bind the context to this host's own on that link, as in fe80::1%eth0"
    )]
    NoZone {
        /// The peer's.
        ip: Ipv6Addr,
    },
    /// It is connected already.
    #[error("the queue pair is connected already")]
    Connected,
    /// Its context is of no use in this process. The caller's fault.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// All queue pair numbers of the context are in use.
    #[error("all {limit} queue pairs of this context are in use")]
    TooMany {
        /// How many there can be.
        limit: u32,
    },
    /// The system refused something.
    #[error("the system refused {what}: {}", Said(source))]
    System {
        /// What it refused.
        what: &'static str,
        /// Its word for it.
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
    /// Nobody listens there, or the network does not lead there.
    #[error("cannot reach {peer}: {source}")]
    Unreachable {
        /// Where.
        peer: String,
        /// The system's word for it.
        source: io::Error,
    },
    /// The listening port cannot be had.
    #[error("cannot listen on {}: {}", show(*address), Said(source))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's word for it.
        source: io::Error,
    },
    /// A peer waits at a listener, and this machine lacks what a connection takes: file
    /// descriptors, for instance. The listener goes on, and has it perhaps later.
    #[error("cannot take a connection at {}: {}", show(*address), Said(source))]
    Accept {
        /// Where.
        address: SocketAddr,
        /// The system's word for it.
        source: io::Error,
    },
    /// The control connection broke, or said nothing for too long.
    #[error("the exchange with {} failed while {doing}: {source}", show(*peer))]
    Exchange {
        /// With whom.
        peer: SocketAddr,
        /// At which step.
        doing: &'static str,
        /// What happened.
        source: io::Error,
    },
    /// The peer does not speak this protocol.
    #[error("{} does not speak Lacuna ({why})", show(*peer))]
    NotLacuna {
        /// Who.
        peer: SocketAddr,
        /// How that shows.
        why: String,
    },
    /// The peer speaks another version of it.
    #[error("{} speaks version {there} of the protocol, this end version {here}", show(*peer))]
    Version {
        /// Who.
        peer: SocketAddr,
        /// This end's version.
        here: u32,
        /// The peer's.
        there: u32,
    },
    /// The peer refused, and said why.
    #[error("{} refused: {reason}", show(*peer))]
    Refused {
        /// Who.
        peer: SocketAddr,
        /// Its reason.
        reason: String,
    },
    /// The peer has no room just now.
    #[error("{} is busy: {reason}", show(*peer))]
    Busy {
        /// Who.
        peer: SocketAddr,
        /// What there is too much of.
        reason: String,
    },
    /// So many peers were connecting at once that one that had said nothing had
    /// to make room. The listener goes on.
    #[error(
        "{} was turned away: {limit} peers were connecting at once, and it had said nothing",
        show(*peer)
    )]
    Crowded {
        /// Who.
        peer: SocketAddr,
        /// How many may be connecting.
        limit: usize,
    },
    /// The peer asks for parameters that this end cannot use; it was told so.
    #[error("{} asks for what this end cannot do: {reason}", show(*peer))]
    Unacceptable {
        /// Who.
        peer: SocketAddr,
        /// What cannot be.
        reason: String,
    },
    /// TCP works, but UDP packets get no answer.
    #[error("no answer over UDP from {} on {} of {channels} channels within {:.1} s: is UDP between the ends blocked, or the MTU too large?", show(*peer), channels - answered, waited.as_secs_f64())]
    NoUdp {
        /// Who.
        peer: SocketAddr,
        /// Channels that got an answer.
        answered: u32,
        /// Channels there are.
        channels: u32,
        /// How long it tried.
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
    /// Why `peer` was not reached, unless it is this machine that lacks something.
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

/// A send did not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It could not be started.
    #[error(transparent)]
    Post(#[from] PostSendError),
    /// It was started and failed.
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

/// A receive did not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// It could not be posted.
    #[error(transparent)]
    Post(#[from] PostReceiveError),
    /// Its deadline came first.
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
