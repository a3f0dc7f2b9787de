//! Errors of datagrams that are not valid packets, and the kinds under which they are counted.
//!
//! All of them come from the network: none is the caller's fault, none is worth a retry, and anyone
//! who can send a datagram to the port can cause them.

use thiserror::Error;

/// Why [`parse`](crate::parse) or the [`Seal`](crate::Seal) refused a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PacketError {
    /// Shorter than the headers and the trailer of its kind.
    #[error("packet of {found} bytes is shorter than its {needed} bytes of headers and trailer")]
    TooShort {
        /// Least bytes of its kind.
        needed: usize,
        /// Bytes of the datagram.
        found: usize,
    },
    /// Not a whole number of 4-byte words: truncated, or not RoCE.
    #[error("packet of {found} bytes is not a whole number of 4-byte words")]
    Unaligned {
        /// Bytes of the datagram.
        found: usize,
    },
    /// Neither a data nor a control packet.
    #[error("opcode {found:#04x} is neither data (0x25, 0x2b) nor control (0x64)")]
    Opcode {
        /// The BTH opcode.
        found: u8,
    },
    /// The BTH is of a version that does not exist yet.
    #[error("transport header version {found} is not 0")]
    TransportVersion {
        /// The BTH TVer.
        found: u8,
    },
    /// Addressed to another InfiniBand partition.
    #[error("partition key {found:#06x} is not 0xffff")]
    PartitionKey {
        /// The BTH P_Key.
        found: u16,
    },
    /// More pad bytes than bytes after the headers.
    #[error("pad count {announced} exceeds the {room} bytes between headers and trailer")]
    Pad {
        /// The BTH pad count.
        announced: usize,
        /// Bytes between headers and trailer.
        room: usize,
    },
    /// The RETH announces a length other than the payload's.
    #[error("DMA length {announced} disagrees with {found} bytes of payload")]
    Length {
        /// The RETH DMA length.
        announced: u32,
        /// Bytes of payload in the packet.
        found: usize,
    },
    /// A repair header of an unknown type, or with numbers that no block has.
    #[error(
        "repair header of type {kind} has index {index} of {repairs} repairs, or a wrong block"
    )]
    Repair {
        /// Its type.
        kind: u8,
        /// Index of the repair.
        index: u8,
        /// Repairs of a full block.
        repairs: u16,
    },
    /// The trailer does not match the bytes before it: damaged, or not Lacuna.
    #[error("trailer {found:#010x} does not match the bytes before it, {expected:#010x}")]
    Trailer {
        /// Computed from the bytes.
        expected: u32,
        /// From the packet.
        found: u32,
    },
    /// For a queue pair whose packets are encrypted, and not sealed by its peer: damaged, made by
    /// somebody else, or for somebody else.
    #[error("not sealed by the peer")]
    Forged,
    /// Sealed by the peer, and came before, or is so late that this is not known any more.
    #[error("packet {number} came before, or is too late")]
    Repeated {
        /// Its number under the seal.
        number: u64,
    },
    /// Sealed with keys that the peer cannot use any more, or yet.
    #[error("sealed with keys that are over")]
    Epoch,
}

impl PacketError {
    /// The counter of this error.
    #[must_use]
    pub const fn kind(&self) -> RejectKind {
        match self {
            Self::TooShort { .. } => RejectKind::TooShort,
            Self::Unaligned { .. } => RejectKind::Unaligned,
            Self::Opcode { .. } => RejectKind::Opcode,
            Self::TransportVersion { .. } => RejectKind::TransportVersion,
            Self::PartitionKey { .. } => RejectKind::PartitionKey,
            Self::Pad { .. } => RejectKind::Pad,
            Self::Length { .. } => RejectKind::Length,
            Self::Repair { .. } => RejectKind::Repair,
            Self::Trailer { .. } => RejectKind::Trailer,
            Self::Forged => RejectKind::Forged,
            Self::Repeated { .. } => RejectKind::Repeated,
            Self::Epoch => RejectKind::Epoch,
        }
    }
}

/// A [`PacketError`] without its numbers: the index of a counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RejectKind {
    /// See [`PacketError::TooShort`].
    TooShort,
    /// See [`PacketError::Unaligned`].
    Unaligned,
    /// See [`PacketError::Opcode`].
    Opcode,
    /// See [`PacketError::TransportVersion`].
    TransportVersion,
    /// See [`PacketError::PartitionKey`].
    PartitionKey,
    /// See [`PacketError::Pad`].
    Pad,
    /// See [`PacketError::Length`].
    Length,
    /// See [`PacketError::Repair`].
    Repair,
    /// See [`PacketError::Trailer`].
    Trailer,
    /// See [`PacketError::Forged`].
    Forged,
    /// See [`PacketError::Repeated`].
    Repeated,
    /// See [`PacketError::Epoch`].
    Epoch,
}

impl RejectKind {
    /// Every kind, in the order of [`as_index`](Self::as_index).
    pub const ALL: [Self; Self::COUNT] = [
        Self::TooShort,
        Self::Unaligned,
        Self::Opcode,
        Self::TransportVersion,
        Self::PartitionKey,
        Self::Pad,
        Self::Length,
        Self::Repair,
        Self::Trailer,
        Self::Forged,
        Self::Repeated,
        Self::Epoch,
    ];
    /// How many kinds there are: the length of a table of counters.
    pub const COUNT: usize = Self::Epoch.as_index() + 1;

    /// Index of this kind's counter, below [`COUNT`](Self::COUNT).
    #[inline]
    #[must_use]
    pub const fn as_index(self) -> usize {
        self as usize
    }

    /// The name of the counter in statistics: lower case, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::Unaligned => "unaligned",
            Self::Opcode => "opcode",
            Self::TransportVersion => "transport_version",
            Self::PartitionKey => "partition_key",
            Self::Pad => "pad",
            Self::Length => "length",
            Self::Repair => "repair",
            Self::Trailer => "trailer",
            Self::Forged => "forged",
            Self::Repeated => "repeated",
            Self::Epoch => "epoch",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_index_and_name() {
        for (index, kind) in RejectKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.as_index(), index);
            assert!(RejectKind::ALL[..index].iter().all(|other| other.name() != kind.name()));
        }
    }

    #[test]
    fn errors_print_their_numbers() {
        let error = PacketError::Length { announced: 4096, found: 1400 };
        assert_eq!(error.to_string(), "DMA length 4096 disagrees with 1400 bytes of payload");
        assert_eq!(error.kind(), RejectKind::Length);
    }
}
