//! How long the peer has been silent.
//!
//! Everything that arrives from the peer changes one of the connection's counters: a message or
//! packets, the acknowledgement of something sent, or a round-trip sample. Each end sends a
//! keep-alive every two seconds (`outbound.rs`), so a longer silence means that the path or the peer is
//! broken.

use lacuna::ConnectionStats;
use std::time::{Duration, Instant};

/// When the peer was last heard.
pub(crate) struct Silence {
    heard: Instant,
    signs: Option<ActivityCounters>,
}

/// Counters that change whenever something arrives from the peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ActivityCounters {
    delivered_bytes: u64,
    messages: u64,
    packets: u64,
    rtt_us: (Option<f64>, f64),
}

impl ActivityCounters {
    pub(crate) fn new(stats: &ConnectionStats, delivered_bytes: u64) -> Self {
        let came = stats.channels.iter().map(|channel| channel.packets + channel.duplicates);
        Self {
            delivered_bytes,
            messages: stats.messages_received,
            packets: came.sum(),
            rtt_us: (stats.rtt.smoothed_us, stats.rtt.variance_us),
        }
    }
}

impl Silence {
    pub(crate) fn new(now: Instant) -> Self {
        Self { heard: now, signs: None }
    }

    /// Compares `signs` with those before; returns the time since they last changed.
    pub(crate) fn look(&mut self, now: Instant, signs: ActivityCounters) -> Duration {
        if self.signs != Some(signs) {
            (self.heard, self.signs) = (now, Some(signs));
        }
        now.saturating_duration_since(self.heard)
    }

    /// When something was heard last.
    pub(crate) fn heard(&self) -> Instant {
        self.heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_of_life_ends_a_silence() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut signs =
            ActivityCounters { delivered_bytes: 0, messages: 0, packets: 0, rtt_us: (None, 0.0) };
        let mut silence = Silence::new(start);
        assert_eq!(silence.look(at(1), signs), Duration::ZERO);
        assert_eq!(silence.look(at(9), signs), Duration::from_secs(8));
        let changes: [fn(&mut ActivityCounters); 5] = [
            |signs| signs.delivered_bytes += 1,
            |signs| signs.messages += 1,
            |signs| signs.packets += 1,
            |signs| signs.rtt_us.0 = Some(1.0),
            |signs| signs.rtt_us.1 = 2.0,
        ];
        for (change, second) in changes.into_iter().zip([10, 20, 30, 40, 50]) {
            change(&mut signs);
            assert_eq!(silence.look(at(second), signs), Duration::ZERO);
            assert_eq!(silence.look(at(second + 5), signs), Duration::from_secs(5));
            assert_eq!(silence.heard(), at(second));
        }
    }
}
