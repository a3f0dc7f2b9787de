//! The ACK extended transport header: what a responder answers.
//!
//! ```text
//! syndrome 8 | message sequence number 24
//! ```
//!
//! The upper three bits of the syndrome say what it is, the lower five the credits, the timer or the reason
//! (InfiniBand Architecture Specification, volume 1, section 9.7.5.2).

use crate::PSN_MASK;

/// The credits of a responder that gives none and sets no limit (section 9.7.7.2).
pub const CREDITS_UNLIMITED: u8 = 31;

const KIND_SHIFT: u32 = 5;
const VALUE_MASK: u8 = 0x1f;
const KIND_ACK: u8 = 0b000;
const KIND_RNR: u8 = 0b001;
const KIND_NAK: u8 = 0b011;

/// Waits of the receiver-not-ready timer in units of 10 us, by their code (section 9.7.5.2.8, table 45).
pub const RNR_TIMERS: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];
const RNR_UNIT_NS: u64 = 10_000;

/// The wait of a receiver-not-ready timer's code, of which five bits count.
#[must_use]
pub const fn rnr_timer_ns(code: u8) -> u64 {
    RNR_TIMERS[(code & VALUE_MASK) as usize] as u64 * RNR_UNIT_NS
}

/// The code of the shortest wait that is at least so long; of the longest one if none is.
#[must_use]
pub fn rnr_timer_of(wait_ns: u64) -> u8 {
    // Code 0 is the longest wait, the others are in order.
    (1..32).find(|code| rnr_timer_ns(*code) >= wait_ns).unwrap_or(0)
}

/// Why a request is refused for good, or the packet was not the expected one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Nak {
    /// Packets before this one are missing: everything from the expected number on is wanted again.
    PsnSequence = 0,
    /// Not a request that may come here, or too long.
    InvalidRequest = 1,
    /// The memory may not be accessed so.
    RemoteAccess = 2,
    /// The responder cannot finish the request.
    RemoteOperational = 3,
    /// Of reliable datagrams, which nobody has.
    InvalidRdRequest = 4,
}

impl Nak {
    const fn of(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            _ => return None,
        })
    }
}

/// What an answer says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// All up to this number has come; the code of credits for more.
    Ack {
        /// See [`CREDITS_UNLIMITED`].
        credits: u8,
    },
    /// No receive is posted: try again after this timer's wait.
    ReceiverNotReady {
        /// See [`rnr_timer_ns`].
        timer: u8,
    },
    /// Refused.
    Nak(Nak),
    /// A code that the specification reserves.
    Reserved(u8),
}

impl Syndrome {
    const fn of(byte: u8) -> Self {
        let value = byte & VALUE_MASK;
        match byte >> KIND_SHIFT {
            KIND_ACK => Self::Ack { credits: value },
            KIND_RNR => Self::ReceiverNotReady { timer: value },
            KIND_NAK => match Nak::of(value) {
                Some(nak) => Self::Nak(nak),
                None => Self::Reserved(byte),
            },
            _ => Self::Reserved(byte),
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Ack { credits } => KIND_ACK << KIND_SHIFT | credits & VALUE_MASK,
            Self::ReceiverNotReady { timer } => KIND_RNR << KIND_SHIFT | timer & VALUE_MASK,
            Self::Nak(nak) => KIND_NAK << KIND_SHIFT | nak as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// What it says.
    pub syndrome: Syndrome,
    /// Messages that the responder has finished, 24 bits.
    pub messages: u32,
}

impl Aeth {
    /// An acknowledgement without a limit of credits.
    #[must_use]
    pub const fn ack(messages: u32) -> Self {
        Self { syndrome: Syndrome::Ack { credits: CREDITS_UNLIMITED }, messages }
    }

    pub(super) const fn of_word(word: u32) -> Self {
        Self { syndrome: Syndrome::of((word >> 24) as u8), messages: word & PSN_MASK }
    }

    pub(super) const fn word(self) -> u32 {
        (self.syndrome.byte() as u32) << 24 | self.messages & PSN_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_kept() {
        for byte in 0..=u8::MAX {
            let word = u32::from(byte) << 24 | 0x0012_3456;
            assert_eq!(Aeth::of_word(word).word(), word);
        }
    }

    #[test]
    fn timers_are_found_by_their_wait() {
        assert_eq!(
            (rnr_timer_ns(0), rnr_timer_ns(1), rnr_timer_ns(31)),
            (655_360_000, 10_000, 491_520_000)
        );
        for code in 1..32 {
            assert_eq!(rnr_timer_of(rnr_timer_ns(code)), code);
            assert_eq!(rnr_timer_of(rnr_timer_ns(code) + 1), (code + 1) % 32);
        }
    }
}
