//! The settings of a measurement, their validation, and the errors of a measurement.

use super::LATE_NS;
use crate::wire::VERSION;
use crate::{FLOWS_MAX, PACKETS_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN, TRIAL_NS_MAX};

/// The slowest rate: a packet of 1 KiB takes a tenth of a second.
pub const RATE_BITS_PER_S_MIN: u64 = 80_000;

/// The settings of a measurement.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// A number that no other client has.
    pub nonce: u64,
    /// Seed for choosing the probes that request an echo.
    pub seed: u64,
    /// The rate, never exceeded; includes headers of IP and UDP.
    pub rate_bits_per_s: u64,
    /// Bytes of those headers: 28 over IPv4, 48 over IPv6.
    pub overhead_bytes: u32,
    /// Flows, each with a socket, besides the socket for requests.
    pub flows: u16,
    /// UDP payload sizes of the probes.
    pub payloads_bytes: Vec<u32>,
    /// Trials of each size.
    pub trials: u32,
    /// Length of a trial.
    pub duration_ns: u64,
    /// The largest UDP payload that the sockets take.
    pub largest_bytes: u32,
    /// Send sizes above the path's MTU nevertheless, in IP fragments.
    pub fragments: bool,
}

/// Why a measurement is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A payload too short or too long.
    #[error("payloads of {bytes} bytes: use {PAYLOAD_BYTES_MIN} to {PAYLOAD_BYTES_MAX}")]
    Payload {
        /// The payload.
        bytes: u32,
    },
    /// No payload at all, or no trial.
    #[error("nothing to measure: choose a payload and a trial at least")]
    Nothing,
    /// No flow, or too many.
    #[error("{flows} flows: use 1 to {FLOWS_MAX}")]
    Flows {
        /// As asked for.
        flows: u16,
    },
    /// The rate is too low.
    #[error("{rate_bits_per_s} bit/s: use at least {RATE_BITS_PER_S_MIN}")]
    Rate {
        /// As asked for.
        rate_bits_per_s: u64,
    },
    /// Trials are too short or too long.
    #[error("trials of {seconds} s: use up to {} s", TRIAL_NS_MAX / 1_000_000_000)]
    Duration {
        /// As asked for.
        seconds: u64,
    },
    /// More packets than a server keeps a record of.
    #[error(
        "a trial of {packets} packets is more than {PACKETS_MAX}: use a lower rate or shorter trials"
    )]
    Packets {
        /// What a trial would be.
        packets: u64,
    },
}

/// Why a measurement failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server is silent.
    #[error("no answer to {asked} within {} s", .waited_ns / 1_000_000_000)]
    Silent {
        /// The request.
        asked: &'static str,
        /// For how long.
        waited_ns: u64,
        /// Whether the server has ever answered.
        was_heard: bool,
    },
    /// This host refuses to send.
    #[error("this host refused each of {packets} packets within {:.1} s", *.refused_ns as f64 / 1e9)]
    Unsendable {
        /// Packets refused in a row.
        packets: u64,
        /// For how long.
        refused_ns: u64,
        /// Whether the server has ever answered.
        was_heard: bool,
    },
    /// The server has other clients.
    #[error("the server is busy with other clients")]
    Busy,
    /// The server's limit.
    #[error("it would take {needed_s} s, the server's limit is {limit_s} s")]
    TooLong {
        /// What it would take.
        needed_s: u32,
        /// The limit.
        limit_s: u32,
    },
    /// The server refused the trial's settings.
    #[error("the server refused the trial")]
    Refused,
    /// No payload fits the path.
    #[error("no payload fits: the path takes {payload_bytes_max} bytes")]
    NothingFits {
        /// The largest that does.
        payload_bytes_max: u32,
    },
    /// The server speaks another version of the protocol.
    #[error("the server speaks version {found}, this is version {}", VERSION)]
    Version {
        /// Its version.
        found: u8,
    },
}

impl ClientConfig {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// The first setting that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let payloads = PAYLOAD_BYTES_MIN..=PAYLOAD_BYTES_MAX;
        if let Some(&bytes) = self.payloads_bytes.iter().find(|bytes| !payloads.contains(bytes)) {
            return Err(ConfigError::Payload { bytes });
        }
        let Some(shortest) = self.payloads_bytes.iter().min().filter(|_| self.trials > 0) else {
            return Err(ConfigError::Nothing);
        };
        if !(1..=FLOWS_MAX).contains(&self.flows) {
            return Err(ConfigError::Flows { flows: self.flows });
        }
        if self.rate_bits_per_s < RATE_BITS_PER_S_MIN {
            return Err(ConfigError::Rate { rate_bits_per_s: self.rate_bits_per_s });
        }
        if !(1..=TRIAL_NS_MAX).contains(&self.duration_ns) {
            return Err(ConfigError::Duration { seconds: self.duration_ns / 1_000_000_000 });
        }
        let packets = self.packets(*shortest);
        if packets > u64::from(PACKETS_MAX) {
            return Err(ConfigError::Packets { packets });
        }
        Ok(())
    }

    /// Packets of a trial.
    pub(super) fn packets(&self, payload_bytes: u32) -> u64 {
        let bits = u128::from(payload_bytes + self.overhead_bytes) * 8;
        let all = u128::from(self.rate_bits_per_s) * u128::from(self.duration_ns);
        u64::try_from(all / (bits * 1_000_000_000)).unwrap_or(u64::MAX)
    }

    /// About how long the measurement takes at most, in seconds; the client tells the server.
    #[must_use]
    pub fn needed_s(&self) -> u32 {
        let trials = self.payloads_bytes.len() as u64 * u64::from(self.trials);
        let trials_ns = trials.saturating_mul(self.duration_ns.saturating_add(2 * LATE_NS));
        u32::try_from(60 + trials_ns / 1_000_000_000).unwrap_or(u32::MAX)
    }
}
