//! Retransmission timeout: a run expires if no report covers it in time, and the path is then *dark*
//! (has an outage) until a report comes.
//!
//! The timeout is that of SDR-RDMA (4.1.1) with the lower bound and the back-off of RFC 6298.

use super::Path;
use crate::controller::Signal;
use crate::ledger::LedgerEntry;

/// Shortest timeout of a run: a few time slices of a loaded host (Linux: 4 ms each, and several
/// tasks).
const UNHEARD_NS_MIN: u64 = 50_000_000;

/// How the retransmission timeout follows the round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtoConfig {
    /// `alpha` of RTO = RTT + alpha RTT (SDR-RDMA 4.1.1), in hundredths.
    pub alpha_percent: u32,
    /// Lower bound, because a host may take a core away for milliseconds.
    pub min_ns: u64,
    /// Upper bound of back-off; a longer round trip makes the timeout longer still.
    pub max_ns: u64,
    /// Timeout before the first sample.
    pub initial_ns: u64,
}

impl Default for RtoConfig {
    /// 3 RTT, as in the paper's evaluation (5.1.1).
    fn default() -> Self {
        Self {
            alpha_percent: 200,
            min_ns: 10_000_000,
            max_ns: 1_000_000_000,
            initial_ns: 200_000_000,
        }
    }
}

impl Path {
    /// The retransmission timeout now, back-off included.
    #[inline]
    pub fn rto_ns(&self) -> u64 {
        let base = match self.rtt.smoothed_ns() {
            None => self.rto.initial_ns,
            Some(srtt) => {
                let scaled = srtt + srtt * u64::from(self.rto.alpha_percent) / 100;
                // RFC 6298 (2.3): never below what the variance calls for.
                scaled.max(srtt + 4 * self.rtt.variance_ns())
            }
        };
        let base = base.max(self.rto.min_ns);
        // The upper bound limits only the back-off: a timeout below the round trip would send
        // everything twice for ever.
        (base << self.back_off.min(16)).min(self.rto.max_ns.max(base))
    }

    /// When the oldest run in flight expires.
    #[inline]
    pub fn expiry_ns(&self) -> Option<u64> {
        let oldest = self.channels.iter().filter_map(|c| c.ledger.oldest_sent_ns()).min()?;
        Some(oldest + self.unheard_ns())
    }

    /// Time from sending a run to its expiry. Several flushes were sent by then, so on a short path
    /// the silence is more likely a busy host than loss.
    fn unheard_ns(&self) -> u64 {
        self.rto_ns().max(UNHEARD_NS_MIN)
    }

    /// Takes the next expired run.
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<LedgerEntry> {
        let sent_before_ns = now_ns.checked_sub(self.unheard_ns())?;
        for channel in 0..self.channels.len() {
            let state = &mut self.channels[channel];
            if let Some(entry) = state.ledger.pop_expired(sent_before_ns) {
                state.missing.on_expired(entry.count(), entry.psn_end);
                self.black_hole.on_judged(&state.watch, &entry);
                self.remove_in_flight(channel, &entry);
                return Some(entry);
            }
        }
        None
    }

    /// Runs expired: wait twice as long for the next ones (RFC 6298, 5.5),
    /// until a report comes.
    pub fn on_expired(&mut self, now_ns: u64) {
        self.signal(now_ns, Signal::Silence);
        if self.back_off == 0 {
            self.dark_since_ns = now_ns;
        }
        self.back_off = (self.back_off + 1).min(16);
    }

    /// Whether the path is dark: runs have expired and no report came since.
    #[inline]
    pub fn is_dark(&self) -> bool {
        self.back_off > 0
    }
}
