//! ProbeBW [5.3.3]: the cycle of sending less (Down), sending as much as arrives (Cruise), filling
//! the path (Refill) and sending more (Up).

use super::{BETA_PERCENT, Bbr, Competitors, HEADROOM_PERCENT, Sample, State, times};
use lacuna_link::SplitMix64;

/// Time between two probings [5.3.3.5.3]: this, and up to `WAIT_SPREAD_NS` more at random, so that
/// flows do not probe together.
const WAIT_NS_MIN: u64 = 2_000_000_000;
const WAIT_SPREAD_NS: u64 = 1_000_000_000;
/// Rounds after which Reno would have probed [5.3.3.5.1].
const RENO_ROUNDS_MAX: u64 = 63;
/// Shortest time of these rounds without competitors: over 1 ms, probing would otherwise take a
/// fifth of the time, and its queue stands as long.
const ROUNDS_NS_MIN: u64 = 200_000_000;
/// Most rounds that Down needs to drain a quarter of the path. A queue that is still there is that
/// of competitors, and sending less would only leave room for them.
const DRAIN_ROUNDS: u64 = 5;
/// Rounds between two probings beside competitors: yielding and unyielding ones. Version 1 has
/// cycles of eight.
const YIELDING_ROUNDS: u64 = 16;
const UNYIELDING_ROUNDS: u64 = 8;
/// Most rounds of Down to measure the path's own loss: one until it shows, and some to count.
const OWN_LOSS_ROUNDS_MAX: u64 = 5;
/// Doublings of the growth per round in Up [5.3.3.6].
const UP_ROUNDS_MAX: u32 = 30;
/// Bytes in flight at which probing upwards ends, in per cent of the path.
const UP_PERCENT: u64 = 125;
/// And the least growth of round trips at its end: this part of the smallest one.
const UP_QUEUE_PART: u64 = 8;

/// `ack_phase` [5.3.3.6]: the phase that current reports are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acks {
    Refilling,
    Starting,
    Feedback,
    Stopping,
    Idle,
}

/// State of the cycle.
#[derive(Debug, Clone)]
pub(super) struct Cycle {
    random: SplitMix64,
    began_ns: u64,
    wait_ns: u64,
    /// Rounds since the last probing.
    rounds: u64,
    acks: Acks,
    /// `bw_probe_samples`: current losses are an answer to the probing.
    is_answer: bool,
    up_rounds: u32,
    /// Length of the competitors' queue when probing upwards began.
    queued_ns: u64,
    /// There was a queue, or congestion, since the largest rate was last dropped.
    saw_queue: bool,
    /// Bytes by which the long-term bound grows per window acknowledged.
    up_growth_bytes: u64,
}

impl Cycle {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed),
            began_ns: 0,
            wait_ns: WAIT_NS_MIN,
            rounds: 0,
            acks: Acks::Idle,
            is_answer: false,
            up_rounds: 0,
            queued_ns: 0,
            saw_queue: false,
            up_growth_bytes: 0,
        }
    }

    /// `BBRPickProbeWait`.
    fn pick_wait(&mut self) {
        let drawn = self.random.next_u64();
        self.rounds = drawn & 1;
        self.wait_ns = WAIT_NS_MIN + (drawn >> 1) % WAIT_SPREAD_NS;
    }

    /// `BBRRaiseInflightLongtermSlope`.
    fn raise_slope(&mut self, packet_bytes: u64) {
        self.up_growth_bytes = packet_bytes << self.up_rounds;
        self.up_rounds = (self.up_rounds + 1).min(UP_ROUNDS_MAX);
    }

    fn elapsed_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.began_ns)
    }

    /// Whether current reports are about packets sent while probing upwards.
    pub(super) fn is_answered(&self) -> bool {
        self.acks == Acks::Feedback
    }

    /// Current reports are not about probing any more, as in ProbeRTT.
    pub(super) fn stop(&mut self) {
        self.acks = Acks::Stopping;
        self.is_answer = false;
    }
}

impl Bbr {
    /// Begins to double if sibling flows have left room.
    pub(super) fn check_sibling_flows(&mut self, sample: &Sample) {
        let is_beginning = !self.full.is_reached() || self.start.is_active();
        self.judge.note_siblings(self.state == State::Up, is_beginning);
        let may_double = self.state.is_probe_bw() && !is_beginning && !self.is_short();
        let rate = self.max_bandwidth.get();
        if may_double && self.judge.have_siblings_left_room(sample.now_ns, rate) {
            self.reset_shortterm();
            self.longterm_bytes = None;
            self.start_up(sample);
            self.judge.begin_doubling(sample.now_ns);
        }
    }

    /// `BBRUpdateProbeBWCyclePhase` [5.3.3.6].
    pub(super) fn update_cycle(&mut self, sample: &Sample) {
        if !self.full.is_reached() || self.start.is_active() {
            return;
        }
        if self.rounds.is_start() {
            self.cycle.rounds += 1;
            let is_even = matches!(self.state, State::Down | State::Cruise);
            self.judge.on_round(is_even);
        }
        self.judge.on_cycle_report(sample.newly_delivered_bytes, sample.newly_lost_bytes);
        self.cycle.saw_queue |= self.verdict().has_queue || self.verdict().is_congested;
        self.adapt_longterm(sample);
        match self.state {
            State::Down => {
                if !self.check_refill(sample)
                    && self.is_time_to_cruise(sample)
                    && !self.measures_own_loss(sample)
                {
                    self.state = State::Cruise;
                }
            }
            State::Cruise => {
                self.check_refill(sample);
            }
            State::Refill => {
                if self.rounds.is_start() {
                    self.cycle.is_answer = true;
                    self.start_up(sample);
                }
            }
            State::Up => {
                if self.is_time_to_go_down(sample) {
                    self.start_down(sample);
                }
            }
            State::Startup | State::Drain | State::ProbeRtt => {}
        }
    }

    pub(super) fn start_down(&mut self, sample: &Sample) {
        self.reset_congestion_signals();
        self.judge.on_cycle();
        self.cycle.pick_wait();
        self.cycle.began_ns = sample.now_ns;
        self.cycle.acks = Acks::Stopping;
        self.rounds.restart(sample.delivered_bytes);
        self.end_mean();
        self.judge.on_probed(self.max_bandwidth.get());
        self.state = State::Down;
    }

    /// Packets sent from here on are paced otherwise, so they get a mean of their own.
    fn end_mean(&mut self) {
        let half = self.path_times(self.max_bandwidth.get(), 50);
        if !self.verdict().has_competitors()
            && self.round_mean.bytes() >= half
            && let Some((rate, is_app_limited)) = self.round_mean.end()
            && !is_app_limited
        {
            self.max_bandwidth.on_sample(rate);
        }
    }

    pub(super) fn start_cruise(&mut self) {
        self.state = State::Cruise;
    }

    pub(super) fn start_up(&mut self, sample: &Sample) {
        self.cycle.acks = Acks::Starting;
        self.rounds.restart(sample.delivered_bytes);
        self.full.restart(sample.rate.map_or(0, |rate| rate.rate));
        self.cycle.began_ns = sample.now_ns;
        self.cycle.queued_ns = self.competing_queue_ns();
        self.state = State::Up;
        self.cycle.raise_slope(self.packet_bytes);
    }

    /// `BBRIsTimeToProbeBW` [5.3.3.5.3]. Begins to probe and returns true if it is time.
    fn check_refill(&mut self, sample: &Sample) -> bool {
        let reno_rounds = (self.target_bytes() / self.packet_bytes).min(RENO_ROUNDS_MAX);
        let rounds = match self.verdict().competitors {
            Competitors::Unseen => reno_rounds,
            Competitors::Yielding => reno_rounds.min(YIELDING_ROUNDS),
            Competitors::Unyielding => reno_rounds.min(UNYIELDING_ROUNDS),
        };
        let is_time = self.cycle.elapsed_ns(sample.now_ns) > self.cycle.wait_ns
            || (self.cycle.rounds >= rounds.max(1)
                && (self.verdict().has_competitors()
                    || self.cycle.elapsed_ns(sample.now_ns) > ROUNDS_NS_MIN));
        if is_time {
            self.reset_shortterm();
            self.cycle.up_rounds = 0;
            self.cycle.acks = Acks::Refilling;
            self.rounds.restart(sample.delivered_bytes);
            self.state = State::Refill;
        }
        is_time
    }

    /// `BBRIsTimeToCruise`.
    fn is_time_to_cruise(&self, sample: &Sample) -> bool {
        let rounds = match self.verdict().competitors {
            Competitors::Unseen | Competitors::Yielding => DRAIN_ROUNDS,
            // Unyielding competitors fill any room at once, so the queue does not drain.
            Competitors::Unyielding => 1,
        };
        if self.cycle.rounds >= rounds {
            return true;
        }
        let headroom = self.longterm_bound(HEADROOM_PERCENT).unwrap_or(u64::MAX);
        sample.in_flight_bytes <= headroom && sample.in_flight_bytes <= self.inflight(100)
    }

    /// Whether to stay in Down, to measure the path's own loss.
    fn measures_own_loss(&self, sample: &Sample) -> bool {
        self.cycle.rounds < OWN_LOSS_ROUNDS_MAX && self.judge.wants_low_load(sample.now_ns)
    }

    /// `BBRIsTimeToGoDown`, with the deviation that the text of `mod.rs` describes.
    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        let is_bounded = self.longterm_bytes.is_some_and(|bytes| self.window_bytes >= bytes);
        if sample.is_window_limited && is_bounded {
            // The bound and not the path limits the rate, so the bound has to grow first.
            self.full.restart(sample.rate.map_or(0, |rate| rate.rate));
            return false;
        }
        // Beside competitors, sending more shows after a whole round or not at all.
        let round_ns = match self.verdict().has_competitors() {
            true => sample.smoothed_rtt_ns,
            false => self.min_rtt.get().unwrap_or(0),
        };
        let lasted = self.cycle.elapsed_ns(sample.now_ns) > round_ns;
        let competing_bytes = times(self.max_bandwidth.get(), self.cycle.queued_ns);
        let competing_bytes = u64::try_from(competing_bytes).unwrap_or(u64::MAX);
        let full = self.inflight(UP_PERCENT).saturating_add(competing_bytes);
        // What is in flight shows a queue only if the rate is right, and some milliseconds of a
        // queue may be the host's doing. Beside competitors there is a queue anyway, and waiting
        // for more of it would take bandwidth from them.
        let min_rtt_ns = self.min_rtt.get().unwrap_or(0);
        let longer_ns =
            if self.verdict().has_competitors() { 0 } else { min_rtt_ns / UP_QUEUE_PART };
        let least_ns = min_rtt_ns.saturating_add(longer_ns);
        let has_queue = sample.in_flight_bytes >= full
            && sample.smoothed_rtt_ns >= least_ns
            && self.verdict().has_queue;
        self.full.is_now() || (lasted && has_queue)
    }

    /// `BBRAdaptLongTermModel` [5.5.10.2].
    fn adapt_longterm(&mut self, sample: &Sample) {
        let rate = sample.rate.as_ref();
        if self.rounds.is_start() {
            match self.cycle.acks {
                Acks::Starting => self.cycle.acks = Acks::Feedback,
                Acks::Stopping => {
                    self.cycle.acks = Acks::Idle;
                    self.cycle.is_answer = false;
                    let is_free = rate.is_some_and(|rate| !rate.is_app_limited);
                    if self.state.is_probe_bw() && is_free && self.cycle.saw_queue {
                        self.max_bandwidth.advance();
                        self.cycle.saw_queue = false;
                    }
                }
                Acks::Refilling | Acks::Feedback | Acks::Idle => {}
            }
        }
        let Some(rate) = rate else { return };
        if self.verdict().is_congested {
            if self.cycle.is_answer {
                // `BBRHandleInflightTooHigh`
                self.cycle.is_answer = false;
                if !rate.is_app_limited {
                    let least = self.target_bytes() / 100 * BETA_PERCENT;
                    self.longterm_bytes = Some(rate.in_flight_bytes.max(least));
                }
                if self.state == State::Up {
                    self.start_down(sample);
                }
            }
        } else if let Some(bytes) = &mut self.longterm_bytes {
            *bytes = (*bytes).max(rate.in_flight_bytes);
            if self.state == State::Up {
                self.probe_longterm_upward(sample);
            }
        }
    }

    /// `BBRProbeInflightLongtermUpward`.
    fn probe_longterm_upward(&mut self, sample: &Sample) {
        let Some(bytes) = &mut self.longterm_bytes else { return };
        if !sample.is_window_limited || self.window_bytes < *bytes {
            return;
        }
        let growth = u128::from(self.cycle.up_growth_bytes)
            * u128::from(sample.newly_delivered_bytes)
            / u128::from(self.window_bytes.max(1));
        *bytes = bytes.saturating_add(u64::try_from(growth).unwrap_or(u64::MAX));
        if self.rounds.is_start() {
            self.cycle.raise_slope(self.packet_bytes);
        }
    }
}
