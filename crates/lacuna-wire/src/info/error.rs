//! Fields of a queue pair's description, and the errors of a malformed one.

use std::fmt;

use thiserror::Error;

use super::{QpInfo, SKIPPABLE, VERSION};
use crate::SplitError;

/// The fields of a [`QpInfo`]. The discriminants are the tags on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum InfoField {
    /// [`QpInfo::queue_pair`]
    QueuePair = 1,
    /// [`QpInfo::rkey`]
    Rkey = 2,
    /// [`QpInfo::qkey`]
    Qkey = 3,
    /// [`QpInfo::mtu_bytes`]
    Mtu = 4,
    /// [`QpInfo::chunk_packets`]
    Chunk = 5,
    /// [`QpInfo::split`]
    Split = 6,
    /// [`QpInfo::generations`]
    Generations = 7,
    /// [`QpInfo::stripe_packets`]
    Stripe = 8,
    /// [`QpInfo::max_message_bytes`]
    MaxMessage = 9,
    /// [`QpInfo::first_psn`]
    FirstPsn = 10,
    /// [`QpInfo::credit_bytes`]
    Credit = 11,
    /// [`QpInfo::channels`]
    Channels = 12,
    /// [`QpInfo::code`]; only there if there is one.
    Code = 13,
    /// [`QpInfo::seal`]; only there if it is not the default.
    Seal = 14,
    /// [`QpInfo::nonce`]; only there if packets are encrypted.
    Nonce = 15,
    /// [`QpInfo::reports`]; only there if it is not the default. Readers may skip it.
    Reports = SKIPPABLE | 1,
}

impl InfoField {
    /// Every field, in the order of tags.
    pub(super) const ALL: [Self; 16] = [
        Self::QueuePair,
        Self::Rkey,
        Self::Qkey,
        Self::Mtu,
        Self::Chunk,
        Self::Split,
        Self::Generations,
        Self::Stripe,
        Self::MaxMessage,
        Self::FirstPsn,
        Self::Credit,
        Self::Channels,
        Self::Code,
        Self::Seal,
        Self::Nonce,
        Self::Reports,
    ];

    /// Index of the field's value, the same as in [`InfoField::ALL`].
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Reports => Self::Nonce as usize,
            _ => self as usize - 1,
        }
    }

    /// The tag on the wire.
    #[must_use]
    pub const fn tag(self) -> u16 {
        self as u16
    }

    /// The field's name in messages: the name in [`QpInfo`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueuePair => "queue_pair",
            Self::Rkey => "rkey",
            Self::Qkey => "qkey",
            Self::Mtu => "mtu_bytes",
            Self::Chunk => "chunk_packets",
            Self::Split => "split",
            Self::Generations => "generations",
            Self::Stripe => "stripe_packets",
            Self::MaxMessage => "max_message_bytes",
            Self::FirstPsn => "first_psn",
            Self::Credit => "credit_bytes",
            Self::Channels => "channels",
            Self::Code => "code",
            Self::Seal => "seal",
            Self::Nonce => "nonce",
            Self::Reports => "reports",
        }
    }
}

// Tags count up from 1 without a gap, then the skippable ones, so the last one gives the number of
// fields.
const _: () = assert!(InfoField::Reports.index() + 1 == InfoField::ALL.len());

impl fmt::Display for InfoField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why bytes are no description of a queue pair. The peer is not Lacuna, of an incompatible
/// version, or faulty; a retry does not help.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum InfoError {
    /// Longer than any description.
    #[error("queue pair info of {found} bytes exceeds {} bytes", QpInfo::BYTES_MAX)]
    TooLong {
        /// Bytes of the input.
        found: usize,
    },
    /// Shorter than the header.
    #[error("queue pair info of {found} bytes is shorter than its {needed} bytes of header")]
    TooShort {
        /// Bytes of the header.
        needed: usize,
        /// Bytes of the input.
        found: usize,
    },
    /// Does not start with the magic.
    #[error("queue pair info does not start with \"LCQP\" but with {found:02x?}")]
    Magic {
        /// The first bytes.
        found: [u8; 4],
    },
    /// A description of another version.
    #[error("queue pair info has version {found}, not {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// The header announces another length of the fields than there is.
    #[error("queue pair info announces {announced} bytes of fields, {found} came")]
    Bytes {
        /// Announced bytes.
        announced: usize,
        /// Bytes after the header.
        found: usize,
    },
    /// The last field is truncated.
    #[error("queue pair info ends inside a field: {needed} bytes needed, {found} left")]
    Truncated {
        /// Bytes that the field needs.
        needed: usize,
        /// Bytes left.
        found: usize,
    },
    /// A field of an unknown tag that is not marked as skippable.
    #[error("queue pair info has a field of unknown tag {tag:#06x} that must not be skipped")]
    UnknownField {
        /// Its tag.
        tag: u16,
    },
    /// A field is there twice.
    #[error("queue pair info has field {field} twice")]
    Duplicate {
        /// The field.
        field: InfoField,
    },
    /// A field is missing.
    #[error("queue pair info lacks field {field}")]
    Missing {
        /// The field.
        field: InfoField,
    },
    /// A field's value has the wrong size.
    #[error("queue pair info has {found} bytes in field {field}, which does not hold its value")]
    Length {
        /// The field.
        field: InfoField,
        /// Bytes of its value.
        found: usize,
    },
    /// A field's value is out of its range.
    #[error("queue pair info has {field} = {found}, not within {min} to {max}")]
    Range {
        /// The field.
        field: InfoField,
        /// Its value.
        found: u64,
        /// The smallest valid value.
        min: u64,
        /// The largest valid value.
        max: u64,
    },
    /// The split is not a division of the immediate.
    #[error("queue pair info does not divide the immediate: {0}")]
    Split(#[from] SplitError),
    /// An address is neither IPv4 nor IPv6.
    #[error("queue pair info has a channel address of family {found}, not 4 or 6")]
    AddressFamily {
        /// The family.
        found: u8,
    },
}
