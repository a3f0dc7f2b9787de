//! The report policy: when a receiver sends reports, like QUIC's ACK frequency.
//!
//! Reports serve the sender's congestion controller: bbr wants some per round trip, a controller for
//! short paths may want one for every 16 KiB or at once after a mark. So the sender's controller
//! chooses the policy ([`ControllerConfig::report_policy`]), and the handshake carries it to the
//! receiver. If it carries none, the policy is [`ReportPolicy::DEFAULT`].
//!
//! A receiver clamps the numbers of its peer, so that it never sends more than a report per
//! `BYTES_LEAST` or per `DELAY_NS_LEAST` ([`ReportPolicy::of_peer`]).
//!
//! [`ControllerConfig::report_policy`]: crate::controller::ControllerConfig::report_policy

use lacuna_wire::ReportsInfo;

/// Lower limit of a peer's `bytes_max`: a few full packets.
const BYTES_LEAST: u32 = 4 << 10;
/// Lower limit of a peer's delays, because a report takes some microseconds of processor time.
const DELAY_NS_LEAST: u32 = 10_000;

/// Thresholds of a receiver's reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportPolicy {
    /// Unreported bytes after which a report is due, unless the credit is small.
    pub bytes_max: u32,
    /// Shortest time between two reports that are due only by time.
    pub delay_ns_min: u32,
    /// Longest time between an arrival and its report.
    pub delay_ns_max: u32,
    /// Shortest time between a report and the next one because of a gap: reordering must not make
    /// every packet a report.
    pub gap_delay_ns_min: u32,
    /// Reports per round trip that are due only by time.
    pub per_rtt: u32,
    /// Whether a congestion mark is reported as soon as a gap is.
    pub on_mark: bool,
    /// Delays of small messages that go to and fro.
    pub ping_pong: PingPong,
    /// Limits on a slow path.
    pub slow_path: SlowPath,
}

/// Ping-pong: small messages to and fro on a short path. A report after each would delay them by
/// more than half of what a message takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingPong {
    /// Shortest time between two reports of a ping-pong.
    pub delay_ns: u32,
    /// Packets belong to a ping-pong if the pause before them is shorter than this. After a longer
    /// one a report is sent at once, which saves the wake-up by a timer.
    pub pause_ns: u32,
    /// A burst of a ping-pong has fewer bytes than this: less than a full packet, so that reports of
    /// a bulk transfer are not delayed.
    pub bytes: u32,
    /// And fewer bytes are unreported than `bytes_max` divided by this.
    pub part: u32,
}

/// A path so slow that a report stands for few bytes received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowPath {
    /// A report that is due only by time waits until this many times its own bytes were received.
    pub share: u32,
    /// Reports per round trip with fewer bytes than that.
    pub per_rtt: u32,
    /// Longest wait for such a report.
    pub delay_ns_max: u32,
}

impl ReportPolicy {
    /// For long paths and bulk: what most controllers want.
    pub const DEFAULT: Self = Self {
        // A report costs a packet at both ends: this is one per two full bundles of segmentation
        // offload.
        bytes_max: 128 << 10,
        // A peer that waits for a report sends a flush after the same time
        // (`FlushPolicy::delay_ns`).
        delay_ns_min: 50_000,
        delay_ns_max: 1_000_000,
        gap_delay_ns_min: 20_000,
        // A judgement: a controller sees a change within a sixteenth of a round trip.
        per_rtt: 16,
        on_mark: false,
        ping_pong: PingPong {
            delay_ns: 250_000,
            // Less than the time after which the peer sends a flush.
            pause_ns: 40_000,
            bytes: 1024,
            part: 16,
        },
        slow_path: SlowPath {
            // TCP's acknowledgements take a 56th: 52 bytes for two full packets. Measured: M-path-1.
            share: 64,
            // The congestion window of such a path is small, and a longer wait would be much of a
            // round trip.
            per_rtt: 4,
            // On a reverse path so narrow that reports queue, round trips become longer and reports
            // rarer. Measured: M-path-2.
            delay_ns_max: 100_000_000,
        },
    };

    /// The policy for the info; `None` if it is the default.
    pub fn to_peer(&self) -> Option<ReportsInfo> {
        (*self != Self::DEFAULT).then_some(ReportsInfo {
            bytes_max: self.bytes_max,
            delay_ns_min: self.delay_ns_min,
            delay_ns_max: self.delay_ns_max,
            gap_delay_ns_min: self.gap_delay_ns_min,
            per_rtt: self.per_rtt,
            on_mark: self.on_mark,
        })
    }

    /// The peer's policy, clamped to what this host grants.
    pub fn of_peer(info: &ReportsInfo) -> Self {
        // Without a report for longer, the sender's timeout would take it for an outage.
        let delay_ns_most = Self::DEFAULT.slow_path.delay_ns_max;
        let delay_ns_min = info.delay_ns_min.clamp(DELAY_NS_LEAST, delay_ns_most);
        Self {
            bytes_max: info.bytes_max.max(BYTES_LEAST),
            delay_ns_min,
            delay_ns_max: info.delay_ns_max.clamp(delay_ns_min, delay_ns_most),
            gap_delay_ns_min: info.gap_delay_ns_min.clamp(DELAY_NS_LEAST, delay_ns_most),
            per_rtt: info.per_rtt.max(1),
            on_mark: info.on_mark,
            ..Self::DEFAULT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_not_told() {
        assert_eq!(ReportPolicy::DEFAULT.to_peer(), None);
    }

    #[test]
    fn what_the_peer_asks_for_is_done() {
        let policy = ReportPolicy {
            bytes_max: 16 << 10,
            delay_ns_min: 20_000,
            delay_ns_max: 100_000,
            on_mark: true,
            ..ReportPolicy::DEFAULT
        };
        assert_eq!(ReportPolicy::of_peer(&policy.to_peer().unwrap()), policy);
    }

    #[test]
    fn no_peer_gets_a_report_for_every_byte() {
        let policy = ReportPolicy::of_peer(&ReportsInfo {
            bytes_max: 0,
            delay_ns_min: 0,
            delay_ns_max: 0,
            gap_delay_ns_min: 0,
            per_rtt: 0,
            on_mark: true,
        });
        assert_eq!(policy.bytes_max, BYTES_LEAST);
        assert_eq!((policy.delay_ns_min, policy.delay_ns_max), (DELAY_NS_LEAST, DELAY_NS_LEAST));
        assert_eq!((policy.gap_delay_ns_min, policy.per_rtt), (DELAY_NS_LEAST, 1));
        let patient = ReportsInfo {
            delay_ns_min: u32::MAX,
            delay_ns_max: u32::MAX,
            ..policy.to_peer().unwrap()
        };
        let policy = ReportPolicy::of_peer(&patient);
        assert!(policy.delay_ns_min <= policy.delay_ns_max);
        assert_eq!(policy.delay_ns_max, ReportPolicy::DEFAULT.slow_path.delay_ns_max);
    }
}
