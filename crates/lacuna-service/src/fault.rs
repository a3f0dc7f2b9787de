//! Whose fault an error is. Programs choose their exit code by it, callers their reaction.

use crate::thread::ThreadError;
use crate::{AcceptError, ListenError, LookUpError, ReachError};
use lacuna::datapath::limit::Limit;
use lacuna::{ConnectError, ContextError, QueuePairError};

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The caller asked for something that makes no sense.
    Caller,
    /// The network or the peer.
    Peer,
    /// What arrived is not what was sent.
    Data,
    /// This machine: files, memory, descriptors, threads, a port in use.
    Machine,
    /// Nobody's: the caller requested a stop.
    Stopped,
}

/// An error that knows whose fault it is.
pub trait Blames {
    /// Whose fault it is.
    fn fault(&self) -> Fault;
}

impl Blames for ConnectError {
    fn fault(&self) -> Fault {
        match self {
            Self::QueuePair(error) => error.fault(),
            Self::Context(error) => error.fault(),
            Self::Listen { .. } | Self::Accept { .. } => Fault::Machine,
            Self::NobodyTrusted { .. } => Fault::Caller,
            _ => Fault::Peer,
        }
    }
}

impl Blames for QueuePairError {
    fn fault(&self) -> Fault {
        match self {
            Self::Geometry(_)
            | Self::Engine(_)
            | Self::NoRate
            | Self::Zero { .. }
            | Self::ClearWire { .. }
            | Self::NoTrust
            | Self::NoToken
            | Self::NobodyTrusted { .. }
            | Self::OwnInfo
            | Self::Wire { .. } => Fault::Caller,
            Self::Context(error) => error.fault(),
            Self::TooMany { .. } | Self::System { .. } => Fault::Machine,
            _ => Fault::Peer,
        }
    }
}

impl Blames for ContextError {
    fn fault(&self) -> Fault {
        match self {
            Self::Channels { .. } | Self::Insecure { .. } => Fault::Caller,
            _ => Fault::Machine,
        }
    }
}

impl Blames for ThreadError {
    fn fault(&self) -> Fault {
        match self {
            Self::Refused(_) | Self::Panicked { .. } => Fault::Machine,
            Self::Stopped => Fault::Stopped,
        }
    }
}

impl Blames for ReachError {
    fn fault(&self) -> Fault {
        match self {
            Self::Connect(error) => error.fault(),
            Self::Thread(error) => error.fault(),
        }
    }
}

impl Blames for LookUpError {
    fn fault(&self) -> Fault {
        match self {
            Self::Limit { .. } => Fault::Machine,
            Self::Unknown { .. } => Fault::Peer,
            Self::Thread(error) => error.fault(),
        }
    }
}

impl Blames for ListenError {
    fn fault(&self) -> Fault {
        match self {
            Self::Address(_) => Fault::Machine,
            Self::Sockets(error) => error.fault(),
            Self::Listener(error) => error.fault(),
        }
    }
}

impl Blames for AcceptError {
    fn fault(&self) -> Fault {
        match self {
            Self::Stopped => Fault::Stopped,
            Self::Ended => Fault::Machine,
            Self::Thread(error) => error.fault(),
        }
    }
}

impl ListenError {
    /// Whether another address would help: this one cannot be bound, and not because of a limit of
    /// this host.
    #[must_use]
    pub fn is_of_address(&self) -> bool {
        match self {
            Self::Address(_) => true,
            Self::Listener(ConnectError::Listen { source, .. }) => Limit::of(source).is_none(),
            _ => false,
        }
    }
}
