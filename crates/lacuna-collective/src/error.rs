//! What can go wrong, by whose fault.

use crate::encode::EncodeError;
use crate::mesh::MeshError;
use crate::rendezvous::MeetingError;
use lacuna_schedule::run::{FabricError, RunError};
use lacuna_schedule::schedule::ScheduleError;

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The ranks did not meet.
    #[error(transparent)]
    Meeting(#[from] MeetingError),
    /// They met, and are not all connected.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// This host's sockets.
    #[error("cannot open sockets: {0}")]
    Context(#[from] lacuna::ContextError),
    /// This host's listener.
    #[error("cannot listen: {0}")]
    Listen(Box<lacuna::ConnectError>),
    /// This host's socket for meeting again.
    #[error("cannot listen for a later meeting: {0}")]
    Reserve(std::io::Error),
    /// The group that is to be split has failed. It has to be formed again.
    #[error("the group has failed: {0}")]
    Failed(RunError),
    /// The connections do not work.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The caller's fault.
    #[error(
        "mode {0} ends in time, and reliable connections do not: give a reliable mode, or the transport sdr"
    )]
    Transport(lacuna::Mode),
    /// The caller's fault.
    #[error(transparent)]
    Controller(#[from] lacuna::controller::ConfigError),
    /// They are connected, and the first word to each other did not come.
    #[error("the ranks did not hear from each other: {0}")]
    Silent(#[from] OperationError),
    /// This host has no thread for it.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// It makes no sense. The caller's fault.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The memory is not as long as the operation says. The caller's fault.
    #[error("the {what} has {found} bytes, and the operation wants {expected}")]
    Memory {
        /// Input or output.
        what: &'static str,
        /// What was given.
        found: usize,
        /// What it has to be.
        expected: usize,
    },
    /// A budget where messages are only whole. The caller's fault.
    #[error(
        "a group over reliable connections ends no operation in time: give no budget, or the transport sdr"
    )]
    WholeOnly,
    /// It cannot be encoded. The caller's fault.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// It has to be complete, and is to lose something on purpose. The caller's fault.
    #[error(
        "losses on purpose are for operations that end in time: give a fixed or adaptive budget, or no losses"
    )]
    Losses,
    /// A rank is gone, runs something else, or was too late. The group has to be formed again.
    #[error(transparent)]
    Run(#[from] RunError),
}
