//! What a queue pair is made with.

use lacuna_path::controller::AnyController;
use lacuna_wire::{PSN_MASK, Qpn};

/// The shortest MTU.
pub const MTU_BYTES_MIN: u32 = 256;
/// The longest MTU.
pub const MTU_BYTES_MAX: u32 = 4096;

/// Retries that never end (a receiver-not-ready count of 7, as the specification has it).
pub(crate) const RETRY_FOR_EVER: u8 = 7;

/// What is done about lost packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repair {
    /// Everything from the first lost packet on is sent again, as the specification has it. The responder
    /// keeps nothing behind a gap and says so once per gap.
    #[default]
    GoBackN,
    /// Only what is missing is sent again, and no more is under way than the path holds (IRN). Both ends must
    /// have it: the responder keeps what comes behind a gap and says what that is. Answers to READs are asked
    /// again from the first missing one on.
    SelectiveRepeat,
}

/// A repair that cannot be read from its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no repair: gbn or sr")]
pub struct ParseRepairError {
    /// What was given.
    pub text: String,
}

impl std::str::FromStr for Repair {
    type Err = ParseRepairError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::GoBackN, Self::SelectiveRepeat];
        let found = all.into_iter().find(|repair| repair.name() == text);
        found.ok_or_else(|| ParseRepairError { text: text.to_owned() })
    }
}

impl Repair {
    /// Its name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GoBackN => "gbn",
            Self::SelectiveRepeat => "sr",
        }
    }
}

/// How long an acknowledgement may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckTimeout {
    /// By the measured round trip: with the code of the specification (14 is 67 ms) a long path would
    /// either expire always or wait for seconds.
    #[default]
    Measured,
    /// 4.096 us times two to this power (section 9.7.6.1.3); 0 is never.
    Code(u8),
}

/// A queue pair's configuration.
#[derive(Debug, Clone)]
pub struct RcConfig {
    /// Its own number.
    pub number: Qpn,
    /// Under which number keys know the peer (`lacuna_place::region::Scope`).
    pub peer_number: u64,
    /// Bytes of payload of a full packet: a multiple of 4. Foreign peers know 256, 512, 1024, 2048, 4096.
    pub mtu_bytes: u32,
    /// Number of its first request, 24 bits.
    pub first_psn: u32,
    /// See [`Repair`].
    pub repair: Repair,
    /// See [`AckTimeout`].
    pub ack_timeout: AckTimeout,
    /// Expired timeouts in a row before the queue pair fails (`retry_cnt`), 0 to 7.
    pub retry_count: u8,
    /// Waits for a receive in a row before the queue pair fails (`rnr_retry`), 0 to 6; 7 is for ever.
    pub rnr_retry_count: u8,
    /// How long the peer is to wait when no receive is posted: a code (`lacuna_wire::rc::rnr_timer_ns`).
    pub rnr_timer: u8,
    /// READs and atomic operations that may be open at the peer (`max_rd_atomic`); at least 1.
    pub reads_max: u8,
    /// READs and atomic operations of the peer that are answered at a time (`max_dest_rd_atomic`).
    pub answers_max: u8,
    /// An answer is asked for at least every so many packets.
    pub ack_every_packets: u32,
    /// Decides how much is sent and how fast.
    pub controller: AnyController,
}

/// A configuration that cannot be. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not a possible MTU.
    #[error(
        "MTU of {mtu_bytes} bytes is not a multiple of 4 from {MTU_BYTES_MIN} to {MTU_BYTES_MAX}"
    )]
    Mtu {
        /// What was given.
        mtu_bytes: u32,
    },
    /// Out of its range.
    #[error("{name} is {value}, at most {most} is possible")]
    TooLarge {
        /// The field.
        name: &'static str,
        /// What was given.
        value: u32,
        /// The most.
        most: u32,
    },
    /// Must not be 0.
    #[error("{name} must not be 0")]
    Zero {
        /// The field.
        name: &'static str,
    },
}

impl RcConfig {
    /// A configuration with the usual values.
    #[must_use]
    pub fn new(number: Qpn, mtu_bytes: u32, controller: AnyController) -> Self {
        Self {
            number,
            peer_number: u64::from(number.queue_pair()),
            mtu_bytes,
            first_psn: 0,
            repair: Repair::default(),
            ack_timeout: AckTimeout::default(),
            retry_count: 7,
            rnr_retry_count: RETRY_FOR_EVER,
            rnr_timer: 12,
            reads_max: 16,
            answers_max: 16,
            ack_every_packets: 32,
            controller,
        }
    }

    /// Checks all values.
    ///
    /// # Errors
    /// The first that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mtu_bytes = self.mtu_bytes;
        if !(MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(&mtu_bytes) || !mtu_bytes.is_multiple_of(4) {
            return Err(ConfigError::Mtu { mtu_bytes });
        }
        let bounded = [
            ("first_psn", self.first_psn, PSN_MASK),
            ("retry_count", self.retry_count.into(), 7),
            ("rnr_retry_count", self.rnr_retry_count.into(), RETRY_FOR_EVER.into()),
            ("rnr_timer", self.rnr_timer.into(), 31),
        ];
        for (name, value, most) in bounded {
            if value > most {
                return Err(ConfigError::TooLarge { name, value, most });
            }
        }
        if let AckTimeout::Code(code) = self.ack_timeout
            && code > 31
        {
            return Err(ConfigError::TooLarge {
                name: "ack_timeout",
                value: code.into(),
                most: 31,
            });
        }
        let not_zero = [
            ("reads_max", u32::from(self.reads_max)),
            ("ack_every_packets", self.ack_every_packets),
        ];
        match not_zero.into_iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(ConfigError::Zero { name }),
            None => Ok(()),
        }
    }
}

/// The peer, as it describes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub number: Qpn,
    /// Number of its first request, 24 bits.
    pub first_psn: u32,
    /// READs and atomic operations that it answers at a time.
    pub answers_max: u8,
}
