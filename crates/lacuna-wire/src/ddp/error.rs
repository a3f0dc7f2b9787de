//! Why a datagram is no packet of a datagram queue pair. All of it comes from the network, and anyone can cause it.

use thiserror::Error;

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DdpError {
    /// Shorter than headers and trailer.
    #[error("packet of {found} bytes is shorter than its {needed} bytes of headers and trailer")]
    TooShort {
        /// Least bytes of its kind.
        needed: usize,
        /// Bytes of the datagram.
        found: usize,
    },
    /// A version of DDP or RDMAP that this is not.
    #[error("DDP version {ddp} and RDMAP version {rdmap} are not 1 and 1")]
    Version {
        /// Of DDP.
        ddp: u8,
        /// Of RDMAP.
        rdmap: u8,
    },
    /// An opcode of another protocol, or one that needs a reliable stream.
    #[error("RDMAP opcode {found:#x} is none of a datagram queue pair")]
    Opcode {
        /// The opcode.
        found: u8,
    },
    /// Tagged where the operation is untagged, or the other way round, or for a queue that is not its own.
    #[error("RDMAP opcode {opcode:#x} in a segment for {}", place_name(*.queue))]
    Model {
        /// The opcode.
        opcode: u8,
        /// The queue; `None` for a tagged segment.
        queue: Option<u32>,
    },
    /// The segment is not within its message, or says "last" and is not, or is empty.
    #[error("{payload} bytes at {place} of a message of {length} bytes, last: {is_last}")]
    Place {
        /// Where in the message.
        place: u32,
        /// Bytes.
        payload: usize,
        /// Of the message.
        length: u32,
        /// Whether it says that it is the last one.
        is_last: bool,
    },
    /// A control frame or a request that cannot be read.
    #[error("{what} of {found} bytes cannot be read")]
    Body {
        /// What it is.
        what: &'static str,
        /// Bytes that are there.
        found: usize,
    },
    /// The trailer does not match: damaged, or another protocol.
    #[error("trailer {found:#010x} does not match the bytes before it, {expected:#010x}")]
    Trailer {
        /// Computed.
        expected: u32,
        /// From the packet.
        found: u32,
    },
}

fn place_name(queue: Option<u32>) -> String {
    queue.map_or("tagged memory".to_owned(), |queue| format!("queue {queue}"))
}

/// A [`DdpError`] without its numbers: the index of a counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DdpErrorKind {
    /// See [`DdpError::TooShort`].
    TooShort,
    /// See [`DdpError::Version`].
    Version,
    /// See [`DdpError::Opcode`].
    Opcode,
    /// See [`DdpError::Model`].
    Model,
    /// See [`DdpError::Place`].
    Place,
    /// See [`DdpError::Body`].
    Body,
    /// See [`DdpError::Trailer`].
    Trailer,
}

impl DdpError {
    /// The counter of this error.
    #[must_use]
    pub const fn kind(&self) -> DdpErrorKind {
        match self {
            Self::TooShort { .. } => DdpErrorKind::TooShort,
            Self::Version { .. } => DdpErrorKind::Version,
            Self::Opcode { .. } => DdpErrorKind::Opcode,
            Self::Model { .. } => DdpErrorKind::Model,
            Self::Place { .. } => DdpErrorKind::Place,
            Self::Body { .. } => DdpErrorKind::Body,
            Self::Trailer { .. } => DdpErrorKind::Trailer,
        }
    }
}

impl DdpErrorKind {
    /// Every kind, in the order of its index.
    pub const ALL: [Self; Self::COUNT] = [
        Self::TooShort,
        Self::Version,
        Self::Opcode,
        Self::Model,
        Self::Place,
        Self::Body,
        Self::Trailer,
    ];
    /// How many kinds there are: the length of a table of counters.
    pub const COUNT: usize = Self::Trailer as usize + 1;

    /// The name of the counter in statistics: lower case, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::Version => "version",
            Self::Opcode => "opcode",
            Self::Model => "model",
            Self::Place => "place",
            Self::Body => "body",
            Self::Trailer => "trailer",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_index_and_name() {
        for (index, kind) in DdpErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert!(DdpErrorKind::ALL[..index].iter().all(|other| other.name() != kind.name()));
        }
    }

    #[test]
    fn errors_print_their_numbers() {
        let error = DdpError::Model { opcode: 0xc, queue: Some(0) };
        assert_eq!(error.to_string(), "RDMAP opcode 0xc in a segment for queue 0");
        let error = DdpError::Model { opcode: 3, queue: None };
        assert_eq!(error.to_string(), "RDMAP opcode 0x3 in a segment for tagged memory");
    }
}
