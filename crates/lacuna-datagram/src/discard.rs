//! Why segments were dropped, and what their sources are told of it.

use lacuna_place::region::KeyError;
use lacuna_wire::ddp::ControlReason;

/// Why a segment was dropped. Each has a counter ([`Discards`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Discard {
    /// Its bytes are there.
    Duplicate,
    /// Its message is over.
    Late,
    /// It disagrees with others of its message.
    Inconsistent,
    /// No receive is posted, or the message is longer than it.
    NoBuffer,
    /// Nothing is registered under the key for this source, or it was revoked, or the source has guessed too many.
    Key,
    /// The key does not allow it.
    Rights,
    /// Not within the key's memory.
    Bounds,
    /// It touches valid bytes of a region whose writers exclude each other.
    Overlap,
    /// Too many peers, or too many messages open.
    Busy,
    /// It is sent reliably and this end is not, or the other way round.
    Service,
    /// It is not known where its source's reliable messages begin.
    Stranger,
}

/// How many segments were dropped, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Discards {
    /// See [`Discard::Duplicate`].
    pub duplicate: u64,
    /// See [`Discard::Late`].
    pub late: u64,
    /// See [`Discard::Inconsistent`].
    pub inconsistent: u64,
    /// See [`Discard::NoBuffer`].
    pub no_buffer: u64,
    /// See [`Discard::Key`].
    pub key: u64,
    /// See [`Discard::Rights`].
    pub rights: u64,
    /// See [`Discard::Bounds`].
    pub bounds: u64,
    /// See [`Discard::Overlap`].
    pub overlap: u64,
    /// See [`Discard::Busy`].
    pub busy: u64,
    /// See [`Discard::Service`].
    pub service: u64,
    /// See [`Discard::Stranger`].
    pub stranger: u64,
}

impl Discards {
    pub(crate) fn count(&mut self, discard: Discard) {
        let counter = match discard {
            Discard::Duplicate => &mut self.duplicate,
            Discard::Late => &mut self.late,
            Discard::Inconsistent => &mut self.inconsistent,
            Discard::NoBuffer => &mut self.no_buffer,
            Discard::Key => &mut self.key,
            Discard::Rights => &mut self.rights,
            Discard::Bounds => &mut self.bounds,
            Discard::Overlap => &mut self.overlap,
            Discard::Busy => &mut self.busy,
            Discard::Service => &mut self.service,
            Discard::Stranger => &mut self.stranger,
        };
        *counter += 1;
    }
}

impl Discard {
    /// What its source is told, if anything: nothing about what is no message, and nothing to who guesses keys.
    pub(crate) fn reason(self) -> Option<ControlReason> {
        match self {
            Self::NoBuffer => Some(ControlReason::NoBuffer),
            Self::Rights => Some(ControlReason::Rights),
            Self::Bounds => Some(ControlReason::Bounds),
            Self::Busy => Some(ControlReason::Busy),
            Self::Duplicate
            | Self::Late
            | Self::Inconsistent
            | Self::Key
            | Self::Overlap
            | Self::Service
            | Self::Stranger => None,
        }
    }
}

pub(crate) fn of_key(error: &KeyError) -> Discard {
    match error {
        // Who may not use a key does not learn that there is one.
        KeyError::Unknown { .. }
        | KeyError::Revoked { .. }
        | KeyError::Guesses { .. }
        | KeyError::Scope { .. } => Discard::Key,
        KeyError::Right { .. } => Discard::Rights,
        KeyError::Range { .. } => Discard::Bounds,
    }
}
