//! Errors: one enum per operation, each variant with whose fault it is.

use crate::address::show;
use crate::security::{CIPHER_VARIABLE, INSECURE_VARIABLE, TOKEN_FILE_VARIABLE};
use lacuna_code::EngineError;
use lacuna_datapath::BindError;
use lacuna_datapath::limit::{Limit, NoThread, Said};
use lacuna_place::geometry::GeometryError;
use lacuna_place::reason::Reason;
use lacuna_place::region::OutOfBounds;
use lacuna_proto::handshake::{Disagreement, Wire};
use lacuna_proto::qp::{Failure, ReceiveFailure};
use lacuna_trust::{CertificatesError, FileError};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use lacuna_place::buffer::RangeError;
pub use lacuna_proto::qp::{
    PostReadError, PostReceiveError, PostSendError, ReadFailure, SendFailure, WaitedFor,
};

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
    /// The token that the environment names cannot be used.
    #[error("{TOKEN_FILE_VARIABLE}: {source}")]
    Token {
        /// Why not.
        source: FileError,
    },
    /// Certificates that the environment names cannot be used. The caller's fault.
    #[error(transparent)]
    Certificates {
        /// Why not.
        source: CertificatesError,
    },
    /// The environment does not name the files of certificates as it must. The caller's fault.
    #[error("certificates: {why}")]
    CertificateFiles {
        /// What is wrong.
        why: &'static str,
    },
    /// The environment asks for connections in clear, and not in the right way. The caller's fault.
    #[error("{INSECURE_VARIABLE}: {why}")]
    Insecure {
        /// What is wrong.
        why: &'static str,
    },
    /// The environment names no cipher. The caller's fault.
    #[error("{CIPHER_VARIABLE}: no cipher is called {found}: use aes-128-gcm or chacha20-poly1305")]
    Cipher {
        /// What it names.
        found: String,
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

/// An operation that completes into a queue could not be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueError<E> {
    /// The completion queue has no free entry. It has one when completions were polled.
    #[error(transparent)]
    Full(lacuna_completion::Full),
    /// The queue pair was told no completion queue. The caller's fault.
    #[error("the queue pair has no completion queue: call complete_to first")]
    NoQueue,
    /// It was refused for another reason.
    #[error(transparent)]
    Post(E),
}

/// A completion queue could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CompletionQueueError {
    /// The queue pair has a completion queue already. The caller's fault.
    #[error("the queue pair has a completion queue already")]
    Set,
    /// The connection was told no completion queue. The caller's fault.
    #[error("the connection has no completion queue: call complete_to first")]
    Unset,
    /// The connection has no one-sided operations. The caller's fault.
    #[error("this connection writes no regions: the connecting end asks for that (one_sided)")]
    NoRegions,
    /// The number of entries is out of range. The caller's fault.
    #[error(transparent)]
    Entries(#[from] lacuna_completion::EntriesError),
    /// The system refused a file descriptor, or the context cannot be used in this process.
    #[error(transparent)]
    Context(#[from] ContextError),
}

/// A completion queue could not be polled or armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PollError {
    /// All completions were polled, and none will come: the context is gone.
    #[error("the completion queue is empty, and its context is gone")]
    Closed,
    /// The context was made before this process was forked. The caller's fault.
    #[error("{}", ContextError::Inherited)]
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
    /// The ends were made with different forms of data packets.
    #[error(
        "the ends do not agree on the form of packets: {here} here, {there} at the peer; give both the same wire"
    )]
    WireMismatch {
        /// This end's.
        here: Wire,
        /// The peer's.
        there: Wire,
    },
    /// The datapath cannot send packets of this form. The caller's fault.
    #[error(
        "the datapath {datapath} cannot send packets in the form {wire}: take the datapath udp on Linux, or wire short"
    )]
    Wire {
        /// The form asked for.
        wire: Wire,
        /// Which datapath.
        datapath: &'static str,
    },
    /// Packets of this form are in clear, and the context takes encrypted connections alone. The caller's fault.
    #[error(
        "packets in the form {wire} are in clear, and this context encrypts: take another context, or wire short"
    )]
    ClearWire {
        /// The form asked for.
        wire: Wire,
    },
    /// Encrypted packets were asked for, and the context trusts nobody. The caller's fault.
    #[error("encrypted packets need keys: give the context somebody to trust")]
    NoTrust,
    /// Queue pairs whose infos the application exchanges take their keys from a token, and the context, which encrypts
    /// everything, has none. The caller's fault.
    #[error(
        "queue pairs whose infos the program exchanges need a token, which both ends have: keys and codes alone do not do"
    )]
    NoToken,
    /// The peer has no token, and this end encrypts.
    #[error(
        "the peer's info is of an end in clear, and this one encrypts: give both the same token"
    )]
    PeerInClear,
    /// The peer encrypts, and this end has no token.
    #[error(
        "the peer's info is of an end that encrypts, and this one has no token: give both the same"
    )]
    PeerEncrypts,
    /// Neither end has a token, and the peer is not on this host.
    #[error(
        "nobody is trusted yet, so {peer} is not spoken to in clear: give both ends the same token ({TOKEN_FILE_VARIABLE}), or {INSECURE_VARIABLE}=1 where nobody else is on the network"
    )]
    NobodyTrusted {
        /// The peer.
        peer: IpAddr,
    },
    /// The info is not the peer's but this end's own. The caller's fault, or somebody sent it back.
    #[error("the peer's info is this end's own")]
    OwnInfo,
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
            Disagreement::Wire { here, there } => Self::WireMismatch { here, there },
        }
    }
}

/// There is no secret for packets to a peer, and they must not be in clear.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// Peers are trusted by keys or codes, and this needs a token. The caller's fault.
    #[error(
        "this needs a token, which both ends have (--token FILE, or {TOKEN_FILE_VARIABLE}): keys alone do not do"
    )]
    NoToken,
    /// The peer is not on this host, and there is no token. The caller's fault.
    #[error(
        "{peer} is not this host, and nobody there is trusted: both ends need the same token (--token FILE, or {TOKEN_FILE_VARIABLE}); --insecure is for networks that nobody else can reach"
    )]
    NobodyTrusted {
        /// The peer.
        peer: IpAddr,
    },
    /// The environment makes no sense.
    #[error(transparent)]
    Context(#[from] ContextError),
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
    /// The ends do not come to know each other by their keys: one of them does not believe the other, takes no
    /// encrypted connections or none that are not, or somebody has meddled with the exchange.
    #[error("no secure connection with {}: {why}", show(*peer))]
    Secure {
        /// The peer.
        peer: SocketAddr,
        /// What was found wrong.
        why: String,
    },
    /// The peer wants the one-time code that it shows, and this end has none.
    #[error("no secure connection with {}: a code is needed: the peer shows one, and none was given here", show(*peer))]
    CodeWanted {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer is not on this host, nobody is trusted by keys, and nothing says that this may be in clear. The caller's
    /// fault.
    #[error(
        "{} is not this host, and nobody there is trusted: both ends need the same token (--token FILE, or {TOKEN_FILE_VARIABLE}) or each other's keys (--trust FILE); --insecure is for networks that nobody else can reach",
        show(*peer)
    )]
    NobodyTrusted {
        /// The peer.
        peer: SocketAddr,
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

/// What an end says that takes no connections in clear; the rest is advice.
pub(crate) const ENCRYPTED_ONLY: &str = "it takes encrypted connections only";

impl ConnectError {
    /// The error for a `peer` that was not reached; a lack of resources of this host is an error of
    /// its own.
    pub(crate) fn unreachable(peer: &impl ToString, source: io::Error) -> Self {
        match Limit::of(&source) {
            Some(_) => ContextError::System { what: "a connection", source }.into(),
            None => Self::Unreachable { peer: peer.to_string(), source },
        }
    }

    /// Whether the peer refused because it takes encrypted connections only: keys may help.
    pub fn wants_encryption(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason.starts_with(ENCRYPTED_ONLY))
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

/// A region or a window of one could not be registered. Nothing is registered then.
pub type RegionError = lacuna_place::region::RegisterError;

/// Parts of regions cannot be the memory of a message. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// A part is not in its region.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The memory of a region is lent for a scope, and a send or a receive could outlive that.
    #[error("the region's memory is lent: send and receive with the memory itself")]
    Lent,
}

/// A region of the peer could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It could not be asked for.
    #[error(transparent)]
    Post(#[from] PostReadError),
    /// The place for it here could not be given a key: it is out of range, or too many keys are in use.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// It failed.
    #[error(transparent)]
    Failed(#[from] ReadFailure),
}

/// A part of an offered send was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// The part is outside of the message. The caller's fault.
    #[error("{len} bytes at {offset} are outside of the message's {size_bytes} bytes")]
    Outside {
        /// Offset of the part.
        offset: usize,
        /// Its length.
        len: usize,
        /// Bytes of the message.
        size_bytes: usize,
    },
    /// Some of the part was written before. The caller's fault.
    #[error("some of the {len} bytes at {offset} were written before: each byte is written once")]
    WrittenBefore {
        /// Offset of the part.
        offset: usize,
        /// Its length.
        len: usize,
    },
    /// The send takes nothing more.
    #[error(transparent)]
    Send(#[from] PostSendError),
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
    /// It is over with gaps: by its own deadline, or in a bounded mode by what was heard of the
    /// message.
    #[error("the receive is over with gaps (reason: {reason}), {bytes} bytes came")]
    Over {
        /// Why it is over.
        reason: Reason,
        /// Bytes that came.
        bytes: u64,
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
