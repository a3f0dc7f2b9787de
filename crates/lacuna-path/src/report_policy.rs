//! When a receiver reports, as numbers.
//!
//! Reports serve the congestion controller of the peer, which sends: bbr wants some per round trip,
//! a controller for short paths may want one for every 16 KiB or at once after a mark. So the
//! sender's controller chooses the policy ([`ControllerConfig::report_policy`]), and the queue
//! pair's description carries it to the receiver; none there means [`ReportPolicy::DEFAULT`].
//!
//! A receiver believes no number that would cost it more than a report per
//! `BYTES_LEAST` or per `DELAY_NS_LEAST` ([`ReportPolicy::of_peer`]).
//!
//! [`ControllerConfig::report_policy`]: crate::controller::ControllerConfig::report_policy

use lacuna_wire::ReportsInfo;

/// No peer gets a report for less than a few full packets.
const BYTES_LEAST: u32 = 4 << 10;
/// No peer gets reports closer together, but those for bytes: a report takes a processor some
/// microseconds.
const DELAY_NS_LEAST: u32 = 10_000;

/// See the module's text. Times are between an arrival, or the last report, and the next report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportPolicy {
    /// Unreported bytes after which a report is due, unless the credit is small.
    pub bytes_max: u32,
    /// Shortest time between two reports that nothing but time asks for.
    pub delay_ns_min: u32,
    /// Longest time between an arrival and its report.
    pub delay_ns_max: u32,
    /// Shortest time between a report and the next for the sake of a gap: reordering must not
    /// make every packet a report.
    pub gap_delay_ns_min: u32,
    /// Reports per round trip that time alone asks for.
    pub per_rtt: u32,
    /// Whether a congestion mark is reported as soon as a gap is.
    pub on_mark: bool,
    /// What small messages to and fro change.
    pub trickle: Trickle,
    /// What a slow path changes.
    pub scant: Scant,
}

/// Small messages to and fro on a short path. A report after each would delay them by more than
/// half of what a message takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trickle {
    /// Shortest time between two reports then.
    pub delay_ns: u32,
    /// Packets belong to a trickle if the pause before them is shorter. After a longer one a report
    /// goes at once, and no timer has to wake anybody.
    pub pause_ns: u32,
    /// A burst of a trickle has fewer bytes: no full packet, so that a controller hears of a bulk
    /// transfer as often as ever.
    pub bytes: u32,
    /// And unreported is less than this part of the bytes after which a report is due.
    pub part: u32,
}

/// A path so slow that a report stands for few bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scant {
    /// A report that time asks for stands for so many times its own bytes, or waits longer.
    pub share: u32,
    /// Reports per round trip of less than that.
    pub per_rtt: u32,
    /// The longest wait for one.
    pub delay_ns_max: u32,
}

impl ReportPolicy {
    /// For long paths and bulk: what most controllers want.
    pub const DEFAULT: Self = Self {
        // A report costs a packet at both ends: this is one per two full bundles of segmentation
        // offload.
        bytes_max: 128 << 10,
        // A peer that waits for a report asks after as long (`FlushPolicy::delay_ns`).
        delay_ns_min: 50_000,
        delay_ns_max: 1_000_000,
        gap_delay_ns_min: 20_000,
        // A judgement: a controller sees a change within a sixteenth of a round trip.
        per_rtt: 16,
        on_mark: false,
        trickle: Trickle {
            delay_ns: 250_000,
            // Less than the time after which the peer asks.
            pause_ns: 40_000,
            bytes: 1024,
            part: 16,
        },
        scant: Scant {
            // TCP's acknowledgements take a 56th: 52 bytes for two full packets. Measured: M-path-1.
            share: 64,
            // Where a congestion window is so small, a longer wait would be much of each round trip.
            per_rtt: 4,
            // On a way back so narrow that reports queue, round trips become longer, and reports
            // fewer. Measured: M-path-2.
            delay_ns_max: 100_000_000,
        },
    };

    /// What the peer is to be told, which reports by the default if it is told nothing.
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

    /// What the peer asks for, within what this host grants.
    pub fn of_peer(info: &ReportsInfo) -> Self {
        // A sender that hears nothing for longer believes the path dark.
        let delay_ns_most = Self::DEFAULT.scant.delay_ns_max;
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
        assert_eq!(policy.delay_ns_max, ReportPolicy::DEFAULT.scant.delay_ns_max);
    }
}
