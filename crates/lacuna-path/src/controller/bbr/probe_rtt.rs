//! ProbeRTT [5.3.4]: for a fifth of a second so little is in flight that the flow's own queue
//! drains, and the path's smallest round trip shows again.

use super::{Bbr, Sample, State};

/// `ProbeRTTDuration` [2.15].
const DURATION_NS: u64 = 200_000_000;

/// State of a ProbeRTT.
#[derive(Debug, Clone, Default)]
pub(super) struct ProbeRtt {
    /// When it may end; set once little is in flight.
    done_ns: Option<u64>,
    is_round_done: bool,
}

impl Bbr {
    /// `BBRCheckProbeRTT` [5.3.4.3].
    pub(super) fn check_probe_rtt(&mut self, sample: &Sample) {
        let may = !self.restarts && !self.is_short() && !self.start.is_active();
        if self.state != State::ProbeRtt && self.min_rtt.is_expired() && may {
            self.prior_window_bytes = self.window_bytes;
            self.state = State::ProbeRtt;
            self.probe_rtt = ProbeRtt::default();
            self.cycle.stop();
            self.rounds.restart(sample.delivered_bytes);
        }
        if self.state != State::ProbeRtt {
            return;
        }
        match self.probe_rtt.done_ns {
            None if sample.in_flight_bytes <= self.probe_rtt_window_bytes() => {
                self.probe_rtt.done_ns = Some(sample.now_ns + DURATION_NS);
                self.probe_rtt.is_round_done = false;
                self.rounds.restart(sample.delivered_bytes);
            }
            None => {}
            Some(done_ns) => {
                self.probe_rtt.is_round_done |= self.rounds.is_start();
                if self.probe_rtt.is_round_done && sample.now_ns > done_ns {
                    self.end_probe_rtt(sample);
                }
            }
        }
    }

    /// `BBRExitProbeRTT` [5.3.4.4].
    fn end_probe_rtt(&mut self, sample: &Sample) {
        self.min_rtt.on_probed(sample.now_ns);
        self.window_bytes = self.window_bytes.max(self.prior_window_bytes);
        self.reset_shortterm();
        if self.full.is_reached() {
            self.start_down(sample);
            self.start_cruise();
        } else {
            self.state = State::Startup;
        }
    }

    /// `BBRProbeRTTCwnd` [5.6.4.5].
    pub(super) fn probe_rtt_window_bytes(&self) -> u64 {
        self.path_times(self.rate(), State::ProbeRtt.window_gain()).max(self.min_window_bytes())
    }
}
