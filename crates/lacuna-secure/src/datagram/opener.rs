//! What opens the packets of one address, taken out of the keyring so that it is not held meanwhile; and why packets are
//! not opened.

use super::keys::Receiving;
use super::{FROM_ANSWERING, FROM_ASKING, HEAD_BYTES, ID_BYTES, Id, TAIL_BYTES, TO_GROUP};
use std::sync::Arc;

/// A packet that is not to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// Shorter than any that is sealed.
    #[error("a packet of {found} bytes, at least {} are needed", HEAD_BYTES + TAIL_BYTES)]
    TooShort {
        /// Its length.
        found: usize,
    },
    /// By no association that is known at its address: of a peer that is new, or has begun anew, or of nobody.
    #[error("sealed by keys that are not known")]
    Unknown,
    /// No packet of data. It may be a hello or an answer ([`Keyring::on_unopened`](super::Keyring::on_unopened)).
    #[error("not a packet of data")]
    Kind,
    /// It came before, or is too old for that to be known.
    #[error("packet {number} came before, or is too late")]
    Repeated {
        /// Its number.
        number: u64,
    },
    /// The tag is wrong: damaged, or made by somebody else.
    #[error("not sealed by the peer")]
    Forged,
    /// So many packets were forged that the keys are given up (RFC 9001, 6.6).
    #[error("{failures} packets were forged: the keys are given up")]
    Spent {
        /// How many.
        failures: u64,
    },
    /// This end has sealed it.
    #[error("sealed by this end")]
    Reflected,
}

/// What opens the packets of one address, without the keyring.
#[derive(Debug, Clone)]
pub struct Opener {
    pub(super) current: Option<Arc<Receiving>>,
    pub(super) previous: Option<Arc<Receiving>>,
    pub(super) group: Option<Arc<Receiving>>,
    /// Of what this end sends to groups itself.
    pub(super) own_group: Id,
}

impl Opener {
    /// Opens a packet in place: its text is behind [`HEAD_BYTES`] then, and [`TAIL_BYTES`] before its end.
    ///
    /// # Errors
    /// See [`OpenError`]. Of `Kind` and `Unknown` the packet is as it was; of others its bytes mean nothing. The
    /// keyring is to hear of it ([`Keyring::on_unopened`](super::Keyring::on_unopened)).
    #[inline]
    pub fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        let Some((&[kind, ref id @ ..], _)) = packet.split_first_chunk::<{ 1 + ID_BYTES }>() else {
            return Err(OpenError::TooShort { found: packet.len() });
        };
        let keys = match kind {
            FROM_ASKING | FROM_ANSWERING => [self.current.as_ref(), self.previous.as_ref()],
            TO_GROUP if *id == self.own_group => return Err(OpenError::Reflected),
            TO_GROUP => [self.group.as_ref(), None],
            _ => return Err(OpenError::Kind),
        };
        let keys = keys.into_iter().flatten().find(|keys| keys.is_of(kind, id));
        keys.ok_or(OpenError::Unknown)?.open(packet)
    }
}
