//! Errors of sending by a datapath.
//!
//! Receiving has no error type of its own: the network cannot make it fail, and a broken socket is
//! an [`io::Error`].

use std::io;

/// Why the first packet of a burst was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The packet is larger than the datapath or the path's first hop takes. Retrying does not help; a
    /// smaller packet does.
    #[error("a packet of {packet_bytes} bytes is larger than the path takes")]
    PacketTooLarge {
        /// The size of the packet that was refused.
        packet_bytes: usize,
    },
    /// The system refused. Retrying helps if [`SendError::is_transient`].
    #[error("cannot send: {0}")]
    Io(#[from] io::Error),
}

impl SendError {
    /// Whether the same packet may be sent later. Nearly all errors of a refused packet are transient;
    /// the table of [`ends_socket`](crate::ends_socket) has those that are not.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::PacketTooLarge { .. } => false,
            Self::Io(error) => crate::ends_socket(error).is_none(),
        }
    }
}
