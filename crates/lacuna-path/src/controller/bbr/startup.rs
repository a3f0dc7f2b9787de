//! Startup and Drain [5.3.1, 5.3.2]: the flow doubles until the rate stops growing, then drains the
//! queue that it has made.

use super::{Bbr, Sample, State};
use crate::controller::RateSample;

/// Growth that a round must show, in per cent [5.3.1.2]. Up needs less, because the mean of a round
/// follows what is sent with a delay.
const GROWTH_PERCENT: u64 = 125;
const UP_GROWTH_PERCENT: u64 = 110;
/// Rounds without such growth after which the path counts as full [5.3.1.2].
const FULL_ROUNDS: u32 = 3;

/// Whether the rate has stopped growing: `BBRCheckFullBWReached` [5.3.1.2].
#[derive(Debug, Clone, Default)]
pub(super) struct FullBandwidth {
    rate: u64,
    rounds: u32,
    is_now: bool,
    is_reached: bool,
}

impl FullBandwidth {
    fn on_report(&mut self, rate: Option<&RateSample>, is_round_start: bool, growth_percent: u64) {
        let Some(rate) = rate.filter(|rate| !rate.is_app_limited && !self.is_now) else { return };
        if u128::from(rate.rate) * 100 >= u128::from(self.rate) * u128::from(growth_percent) {
            self.restart(rate.rate);
        } else if is_round_start {
            self.rounds += 1;
            self.is_now = self.rounds >= FULL_ROUNDS;
            self.is_reached |= self.is_now;
        }
    }

    /// Begins to look for growth from this rate on.
    pub(super) fn restart(&mut self, rate: u64) {
        *self = Self { rate, rounds: 0, is_now: false, is_reached: self.is_reached };
    }

    /// The path is full, as another mechanism has found.
    pub(super) fn set_reached(&mut self) {
        self.is_reached = true;
    }

    pub(super) fn is_now(&self) -> bool {
        self.is_now
    }

    pub(super) fn is_reached(&self) -> bool {
        self.is_reached
    }
}

impl Bbr {
    pub(super) fn check_startup_done(&mut self, sample: &Sample) {
        if self.start.is_active() {
            return;
        }
        let growth = if self.state == State::Up { UP_GROWTH_PERCENT } else { GROWTH_PERCENT };
        self.full.on_report(sample.rate.as_ref(), self.rounds.is_start(), growth);
        if self.state != State::Startup {
            return;
        }
        // [5.3.1.3]. A flow that met a full queue at once will see it overflow whatever it does,
        // and has no share of the path yet: it goes on while its rate grows.
        let grows = self.start.met_queue() && self.full.rounds == 0;
        let is_ours = !grows || self.verdict().is_heavy;
        if self.verdict().is_congested && is_ours && !self.full.is_reached() {
            let path = self.path_times(self.max_bandwidth.get(), 100);
            self.longterm_bytes = Some(path.max(self.latest.bytes()));
            self.full.set_reached();
        }
        if self.full.is_reached() {
            self.state = State::Drain;
        }
    }

    pub(super) fn check_drain_done(&mut self, sample: &Sample) {
        let is_drained = sample.in_flight_bytes <= self.inflight(100);
        if self.state == State::Drain && (is_drained || self.is_short()) {
            self.start_down(sample);
        }
    }
}
