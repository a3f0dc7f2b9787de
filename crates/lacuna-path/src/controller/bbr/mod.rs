//! BBR, version 3 (draft-ietf-ccwg-bbr-05): a model of the path (its rate, its smallest round trip,
//! what it holds) from delivery-rate and round-trip samples, and a state machine that probes for
//! changes. Numbers in brackets are sections of the draft.
//!
//! Where this differs from the draft, and why:
//!
//! - *Loss is a sign of congestion only with a queue, or if it grows with what is sent.* The draft
//!   takes 2 % of loss per round trip for too much in flight [5.5.10.2]. Here a loss costs a repair
//!   and nothing else, and paths that lose several per cent for other reasons are what this transport
//!   is for. See `congestion.rs`.
//! - *The pacing rate makes up for the path's own loss*, up to 6 % [5.6.2]. The delivery rate is what
//!   arrives; pacing at it would lose the same share again in every round. It does so while a queue
//!   stands, too, which drains by the gain of cruising.
//! - *There is no packet conservation in recovery* [5.6.4.4]. Repairs are sent under the same
//!   window and rate as everything else. After silence the path itself sends little.
//! - *Probing upwards ends when a queue of a quarter of the path stands*, as in version 2
//!   (draft-cardwell-iccrg-bbr-congestion-control-02, 4.3.3.6), and not only after three rounds
//!   without growth [5.3.3.4]. On a path of 250 ms those rounds alone would keep a queue of half the
//!   path.
//! - *Time in which the host did not let the sender run is left out of a rate* [4.1.2]. See
//!   `delivery.rs`.
//! - *After the start, the rate of a round is the mean of its samples* and not the largest [5.5.5].
//!   Packets that arrive late and in a bunch make some samples too large, and the largest of forty
//!   is the worst of them. Drain begins a mean of its own: what arrives then was sent while
//!   probing, and is its answer. Measured: M-bbr-12.
//! - *A flow alone waits 200 ms between probings* where 63 round trips are less [5.3.3.5.1].
//! - *A rate is forgotten only after a queue was seen* [5.5.6]. A path that became slower shows one. A
//!   sender that its host kept from sending for some milliseconds of every round shows none, and
//!   would believe itself slow.
//! - *A flow does not give way for ever to competing flows that keep a queue.* A queue that stays
//!   for five rounds of sending no more than arrives is not the flow's own. Then draining ends
//!   [5.3.3.2 waits for what is in flight to fall, and it does not]. Probing upwards comes more
//!   often, lasts a whole round, and ends when the queue has grown, not because there is one. The
//!   windows allow for the time in that queue, so that the pace decides and not a window. The flow
//!   cuts once per cycle for what such a queue drops, not once per round. Otherwise, beside TCP
//!   with version 1, whose window keeps the queue full, it would end at a fiftieth of the path. How
//!   much the flow leaves to the others, and how often it probes, depends on whether they yield:
//!   see `competing_flows.rs`.
//! - *A queue that came within one round trip is drained at once.* See `sudden_queue.rs`.
//! - *When half of the flows from this host to the same peer have finished, a flow probes at once*,
//!   and beside siblings no flow is slower than the smallest window in a round trip. See
//!   `sibling_flows.rs`.
//! - *Cruising gives way to a queue*, a little. The largest rate of several seconds is too large,
//!   because hosts disturb the times. Where the draft lets a flow's own queue grow up to the
//!   window, here it drains.
//! - *The pacing margin* is a fifth of the draft's 1 % [5.6.2] where no queue was seen to overflow
//!   and no competitors keep one: the margin costs rate all the time, and probing drains anyway.
//! - *A round trip within 1/32 of the smallest renews it*, so that a path whose queue is empty now and
//!   then is not slowed down to see that [5.3.4].
//! - *The start is not blind* where a rate is known or can be measured. See `start.rs`.
//! - *On a short path there is no pacing* ([`super::SHORT_PATH_NS`]), no draining and no probing of
//!   the round trip: what is in flight is in the hosts, and their scheduling takes longer than the
//!   path.
//!
//! Several queue pairs between the same hosts are separate flows that share the path like
//! strangers. Only the smallest window on a short path, which belongs to the host and not to the
//! path, is divided among them.
//!
//! Rates are bytes per second, bytes are wire bytes, gains are per cent. There are no floats: a run
//! replays exactly.

mod competing_flows;
mod congestion;
mod model;
mod probe_bw;
mod probe_rtt;
mod sibling_flows;
mod start;
mod startup;
mod sudden_queue;
mod verdict;

use super::{Controller, Limits, SHORT_PATH_NS, Sample, Setup, Signal, StartRate};
use competing_flows::Competitors;
use congestion::Load;
use model::{ExtraAcked, Latest, MaxBandwidth, MinRtt, RoundMean, Rounds, times};
use probe_bw::Cycle;
use probe_rtt::ProbeRtt;
use start::Start;
use startup::FullBandwidth;
use verdict::{Judge, Verdict};

/// Initial window: enough to fill segmentation offload from the first burst on, and a train long
/// enough to measure. Flows of one owner do not divide it. Measured: M-bbr-2.
const INITIAL_WINDOW_BYTES: u64 = 128 << 10;
/// `MinPipeCwnd` [2.7].
const MIN_PACKETS: u64 = 4;
/// Part of the estimate to pace at, so that a queue drains: all but `PacingMarginPercent` [2.5]
/// where a queue was seen to overflow, where there is none (a policer), and where competitors keep
/// one. Elsewhere the drains between two probings are nearly enough. Measured: M-bbr-3.
const PACING_PERMILLE: (u64, u64) = (990, 998);
/// `Beta` [2.9].
const BETA_PERCENT: u64 = 70;
/// The same beside competitors that keep the queue full, applied to the largest rate and not to the
/// bound before: one cut per cycle is an answer, and one per round would hand them the path.
const COMPETING_BETA_PERCENT: u64 = 85;
/// `Headroom` [2.9], as the part that is used.
const HEADROOM_PERCENT: u64 = 85;
/// Pacing gain while cruising behind a queue, because the estimates of a busy host are 2 to 3 % too
/// large. Measured: M-bbr-4.
const QUEUED_CRUISE_GAIN: u64 = 94;
/// Pacing gain while a sudden queue drains, which takes five round trips if the queue is as long as
/// the path.
const SUDDEN_QUEUE_GAIN: u64 = 80;
/// Pacing gains of cruising and of probing upwards beside competitors that yield: they leave
/// bandwidth for the others to come back. Measured: M-bbr-5.
const YIELDING_GAINS: (u64, u64) = (92, 118);
/// Load, relative to the estimate, at which no queue of the path overflows.
const LOW_LOAD_PERCENT: u64 = 95;
/// Most of the path's own loss that is made up for: beyond it, sending more may be what causes it.
const OWN_LOSS_PPM_MAX: u64 = 60_000;

/// On a short path, the time that the smallest window lasts at the measured rate: mostly more than
/// a host's scheduling takes.
const SHORT_WINDOW_NS: u64 = 2_000_000;
/// Bounds of that window. At least a bundle of segmentation offload, so that the cost per packet
/// does not grow. At most four turns of the largest packets: with two, both ends wait for each
/// other in turn; with eight, the second-level caches no longer hold what is in flight. Measured:
/// M-bbr-6.
const SHORT_WINDOW_BYTES: (u64, u64) = (64 << 10, 2 << 20);
/// No window is larger than a second at 100 Tbit/s, whatever a peer reports.
const WINDOW_BYTES_MAX: u64 = 1 << 44;

/// `BBR.state` [5.1].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// Pacing gain, per cent [5.6.1].
    fn pacing_gain(self) -> u64 {
        match self {
            Self::Startup => 277,
            Self::Drain => 50,
            Self::Down => 90,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 100,
            Self::Up => 125,
        }
    }

    /// Gain of the window, per cent [5.6.1].
    fn window_gain(self) -> u64 {
        match self {
            Self::Startup | Self::Drain | Self::Down | Self::Cruise | Self::Refill => 200,
            Self::Up => 225,
            Self::ProbeRtt => 50,
        }
    }

    fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// `BBRIsProbingBW` [5.5.10.3].
    fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}

/// BBR version 3, with the differences above.
#[derive(Debug, Clone)]
pub struct Bbr {
    packet_bytes: u64,
    shares: u32,
    state: State,
    start: Start,
    rounds: Rounds,
    max_bandwidth: MaxBandwidth,
    round_mean: RoundMean,
    min_rtt: MinRtt,
    latest: Latest,
    extra_acked: ExtraAcked,
    full: FullBandwidth,
    judge: Judge,
    cycle: Cycle,
    probe_rtt: ProbeRtt,
    /// `bw_shortterm` and `inflight_shortterm`, while they bound anything
    /// [2.10].
    shortterm_rate: Option<u64>,
    shortterm_bytes: Option<u64>,
    /// `inflight_longterm` [2.10].
    longterm_bytes: Option<u64>,
    window_bytes: u64,
    /// Window to restore after ProbeRTT.
    prior_window_bytes: u64,
    /// Pacing rate; 0 before anything is known.
    pacing_rate: u64,
    /// Sending restarts after a pause: at the estimate, not above it [5.4.1].
    restarts: bool,
    /// Smoothed round trip, as of the latest report.
    smoothed_rtt_ns: u64,
    /// What arrives after this total was sent at less than the estimate of the path.
    low_from_bytes: Option<u64>,
}

impl Bbr {
    /// A controller that knows nothing of the path.
    pub fn new(setup: Setup) -> Self {
        let initial = INITIAL_WINDOW_BYTES.max(MIN_PACKETS * setup.packet_bytes);
        Self {
            packet_bytes: setup.packet_bytes,
            shares: 1,
            state: State::Startup,
            start: Start::default(),
            rounds: Rounds::default(),
            max_bandwidth: MaxBandwidth::default(),
            round_mean: RoundMean::default(),
            min_rtt: MinRtt::default(),
            latest: Latest::default(),
            extra_acked: ExtraAcked::default(),
            full: FullBandwidth::default(),
            judge: Judge::new(setup.packet_bytes),
            cycle: Cycle::new(setup.seed),
            probe_rtt: ProbeRtt::default(),
            shortterm_rate: None,
            shortterm_bytes: None,
            longterm_bytes: None,
            window_bytes: initial,
            prior_window_bytes: initial,
            pacing_rate: 0,
            restarts: false,
            smoothed_rtt_ns: 0,
            low_from_bytes: None,
        }
    }

    // ---- the model ----

    /// `BBR.bw` [5.5.4]: the current estimate; 0 before anything is known.
    fn rate(&self) -> u64 {
        let rate = self.max_bandwidth.get();
        self.shortterm_rate.map_or(rate, |bound| bound.min(rate))
    }

    /// What the path holds, times a gain in per cent [5.6.4.2]; the initial
    /// window before it is known.
    fn path_times(&self, rate: u64, gain: u64) -> u64 {
        match self.min_rtt.get() {
            Some(min_rtt_ns) if rate > 0 => {
                let bytes = times(rate, min_rtt_ns) * u128::from(gain) / 100;
                u64::try_from(bytes).unwrap_or(u64::MAX).min(WINDOW_BYTES_MAX)
            }
            _ => INITIAL_WINDOW_BYTES,
        }
    }

    /// `BBRQuantizationBudget` [5.6.4.2].
    fn quantized(&self, bytes: u64) -> u64 {
        let more = if self.state == State::Up { 2 * self.packet_bytes } else { 0 };
        bytes.max(3 * self.quantum_bytes()).max(self.min_window_bytes()) + more
    }

    fn quantum_bytes(&self) -> u64 {
        match self.pacing_rate {
            0 => self.packet_bytes,
            rate => {
                // At most an eighth of what the path holds.
                let part = times(rate, self.min_rtt.get().unwrap_or(0) / 8);
                let part = u64::try_from(part).unwrap_or(u64::MAX);
                super::burst_of(bits(rate)).min(part).max(2 * self.packet_bytes)
            }
        }
    }

    fn min_window_bytes(&self) -> u64 {
        MIN_PACKETS * self.packet_bytes
    }

    /// `BBRInflight` [5.6.4.2].
    fn inflight(&self, gain: u64) -> u64 {
        self.quantized(self.path_times(self.max_bandwidth.get(), gain))
    }

    /// `BBRTargetInflight` [5.3.3.5.3].
    fn target_bytes(&self) -> u64 {
        self.path_times(self.max_bandwidth.get(), 100).min(self.window_bytes)
    }

    /// The long-term bound, or a part of it in per cent: `BBRInflightWithHeadroom` [5.5.10.1]
    /// leaves room for others in this way. Never below what the path holds and what its reports are
    /// late by: the pacing rate leaves no queue then, and a loss taken for an overflow must not
    /// leave the path half empty.
    fn longterm_bound(&self, percent: u64) -> Option<u64> {
        let bytes = self.longterm_bytes? / 100 * percent;
        let rate = match self.state {
            // Beside competitors, a bound from a loss of theirs must not hide the effect of
            // probing.
            State::Up if self.verdict().has_competitors() => self.max_bandwidth.get() / 100 * 125,
            _ => self.max_bandwidth.get(),
        };
        Some(bytes.max(self.needed_bytes(rate)))
    }

    /// The short-term bound, but not below what its rate needs: pacing slows the flow down evenly,
    /// where a window would do so in bursts.
    fn shortterm_bound(&self) -> Option<u64> {
        Some(self.shortterm_bytes?.max(self.needed_bytes(self.rate())))
    }

    /// Bytes in flight at a rate, with the packets that get lost and with what reports are late by.
    fn needed_bytes(&self, rate: u64) -> u64 {
        let competing_bytes =
            u64::try_from(times(rate, self.competing_queue_ns())).unwrap_or(u64::MAX);
        let path = self.quantized(self.path_times(rate, 100)).saturating_add(competing_bytes);
        let sent = self.with_own_loss(path);
        sent.saturating_add(self.extra_acked.get()).saturating_add(2 * self.quantum_bytes())
    }

    /// Queueing delay by competitors.
    fn competing_queue_ns(&self) -> u64 {
        let min_rtt_ns = self.min_rtt.get().unwrap_or(0);
        match self.verdict().has_competitors() {
            true => self.smoothed_rtt_ns.saturating_sub(min_rtt_ns),
            false => 0,
        }
    }

    /// Bytes to send for this many to arrive. The estimates are of what arrives, and would shrink
    /// with each round.
    fn with_own_loss(&self, arrives: u64) -> u64 {
        let sent = u128::from(arrives) * 1_000_000 / u128::from(1_000_000 - self.own_loss_ppm());
        u64::try_from(sent).unwrap_or(u64::MAX)
    }

    /// Bytes that arrive of those sent.
    fn without_own_loss(&self, sent: u64) -> u64 {
        let arrives = u128::from(sent) * u128::from(1_000_000 - self.own_loss_ppm()) / 1_000_000;
        u64::try_from(arrives).unwrap_or(u64::MAX)
    }

    fn own_loss_ppm(&self) -> u64 {
        self.verdict().own_loss_ppm.min(OWN_LOSS_PPM_MAX)
    }

    fn verdict(&self) -> &Verdict {
        self.judge.verdict()
    }

    /// Whether the flow is doubling, in any state.
    fn is_doubling(&self) -> bool {
        self.state == State::Startup || self.judge.is_doubling()
    }

    fn is_short(&self) -> bool {
        self.min_rtt.get().is_some_and(|min_rtt_ns| min_rtt_ns < SHORT_PATH_NS)
    }

    // ---- per report [5.2.3] ----

    fn update_model(&mut self, sample: &Sample) {
        let rate = sample.rate.as_ref();
        self.rounds.on_report(rate, sample.delivered_bytes);
        self.min_rtt.on_report(sample.now_ns, sample.rtt_ns());
        self.smoothed_rtt_ns = sample.smoothed_rtt_ns;
        let min_rtt_ns = self.min_rtt.get().unwrap_or(0);
        let load = self.load(sample);
        let is_drained = sample.in_flight_bytes <= self.inflight(100);
        self.judge.on_report(sample, min_rtt_ns, self.rounds.is_start(), load, is_drained);
        self.latest.on_report(rate, sample.delivered_bytes);
        let round = self.round_mean.on_report(sample, self.rounds.is_start());
        let latest = rate.map(|rate| (rate.rate, rate.is_app_limited));
        let sampled = if self.is_doubling() { latest } else { round };
        if let Some((rate, is_app_limited)) = sampled
            && (rate >= self.max_bandwidth.get() || !is_app_limited)
        {
            self.max_bandwidth.on_sample(rate);
        }
        self.adapt_lower_bounds();
        let window_bytes = self.window_bytes;
        let believed = self.rate();
        let lasts_rounds = if self.full.is_reached() { 10 } else { 1 };
        self.extra_acked.on_report(
            sample,
            believed,
            window_bytes,
            self.rounds.count(),
            lasts_rounds,
        );
    }

    /// The load that a report is about.
    fn load(&self, sample: &Sample) -> Load {
        if !self.full.is_reached() || self.start.is_active() {
            Load::Start
        } else if self.low_from_bytes.is_some_and(|bytes| sample.delivered_bytes >= bytes) {
            Load::Low
        } else if self.state == State::Up && self.cycle.is_answered() {
            Load::Probing
        } else {
            Load::Even
        }
    }

    /// Records since when the load is low.
    fn note_load(&mut self, sample: &Sample) {
        let gain = self.gain();
        let paced = u128::from(self.rate()) * u128::from(gain);
        let is_low = paced <= u128::from(self.max_bandwidth.get()) * u128::from(LOW_LOAD_PERCENT);
        self.low_from_bytes = match self.low_from_bytes {
            _ if !is_low => None,
            None => Some(sample.delivered_bytes + sample.in_flight_bytes),
            from => from,
        };
    }

    /// `BBRAdaptLowerBoundsFromCongestion` [5.5.10.3].
    fn adapt_lower_bounds(&mut self) {
        if !self.latest.is_round_start() {
            return;
        }
        let congested = self.judge.take_round();
        // Draining is already an answer to congestion.
        let is_answered = self.state == State::Drain || self.start.is_active();
        if !congested || self.state.is_probing() || is_answered {
            return;
        }
        let rate = self.shortterm_rate.unwrap_or_else(|| self.max_bandwidth.get());
        let bytes = self.shortterm_bytes.unwrap_or(self.window_bytes);
        let least = match self.verdict().has_competitors() {
            true => self.max_bandwidth.get() / 100 * COMPETING_BETA_PERCENT,
            false => rate / 100 * BETA_PERCENT,
        };
        self.shortterm_rate = Some(self.latest.rate().max(least));
        self.shortterm_bytes = Some(self.latest.bytes().max(bytes / 100 * BETA_PERCENT));
    }

    fn reset_shortterm(&mut self) {
        self.shortterm_rate = None;
        self.shortterm_bytes = None;
    }

    fn reset_congestion_signals(&mut self) {
        self.judge.take_round();
        self.latest.reset();
    }

    // ---- control parameters [5.6] ----

    fn gain(&self) -> u64 {
        let verdict = self.verdict();
        match (self.state, verdict.competitors) {
            (state, _) if self.restarts && state.is_probe_bw() => 100,
            (State::Down | State::Cruise, Competitors::Unseen) if verdict.has_sudden_queue => {
                SUDDEN_QUEUE_GAIN
            }
            (State::Cruise, Competitors::Yielding) => YIELDING_GAINS.0,
            (State::Up, Competitors::Yielding) => YIELDING_GAINS.1,
            (State::Up, Competitors::Unseen) if self.is_doubling() => State::Startup.pacing_gain(),
            (State::Cruise, Competitors::Unseen) if verdict.has_queue => QUEUED_CRUISE_GAIN,
            (state, _) => state.pacing_gain(),
        }
    }

    /// Sets the start's pacing rate. Returns whether the start decides.
    fn set_start_pacing_rate(&mut self) -> bool {
        let Some(rate) = self.start.pacing_rate() else { return false };
        self.pacing_rate = rate;
        true
    }

    /// `BBRSetPacingRateWithGain` [5.6.2].
    fn set_pacing_rate(&mut self) {
        if self.set_start_pacing_rate() || self.start.is_unpaced() {
            return;
        }
        let gain = self.gain();
        let has_room = self.longterm_bytes.is_none() && !self.verdict().has_competitors();
        let permille = if has_room { PACING_PERMILLE.1 } else { PACING_PERMILLE.0 };
        let paced = u128::from(self.rate()) * u128::from(gain * permille) / 100_000;
        let paced = self.with_own_loss(u64::try_from(paced).unwrap_or(u64::MAX));
        let paced = match paced {
            0 => 0,
            paced => paced.max(self.judge.rate_min(self.packet_bytes, self.smoothed_rtt_ns)),
        };
        if paced > 0 && (self.full.is_reached() || paced > self.pacing_rate) {
            self.pacing_rate = paced;
        }
    }

    /// `BBRSetCwnd` [5.6.4.6].
    fn set_window(&mut self, newly_delivered_bytes: u64) {
        let gain = match self.state {
            // Twice what the path holds leads to a standstill where others have filled its queue.
            State::Startup if self.start.met_queue() => State::Startup.pacing_gain(),
            State::Up if self.is_doubling() => State::Startup.window_gain(),
            state => state.window_gain(),
        };
        let gained = self.path_times(self.max_bandwidth.get(), gain);
        let bytes_max = self.quantized(gained + self.extra_acked.get());
        let grown = self.window_bytes.saturating_add(newly_delivered_bytes);
        if let Some(bytes) = self.start_window_bytes() {
            self.window_bytes = bytes;
        } else if self.full.is_reached() {
            self.window_bytes = grown.min(bytes_max);
        } else if self.window_bytes < bytes_max || self.rounds.count() < 2 {
            self.window_bytes = grown;
        }
        let bound = match self.state {
            State::ProbeRtt | State::Cruise => self.longterm_bound(HEADROOM_PERCENT),
            State::Down | State::Refill | State::Up => self.longterm_bound(100),
            State::Startup | State::Drain => None,
        };
        let mut bound = bound.unwrap_or(u64::MAX).min(self.shortterm_bound().unwrap_or(u64::MAX));
        if self.state == State::ProbeRtt {
            bound = bound.min(self.probe_rtt_window_bytes());
        }
        let bound = bound.max(self.min_window_bytes());
        self.window_bytes = self.window_bytes.max(self.min_window_bytes()).min(bound);
        self.window_bytes = self.window_bytes.min(WINDOW_BYTES_MAX).max(self.short_floor_bytes());
    }

    /// On a short path, the smallest window.
    fn short_floor_bytes(&self) -> u64 {
        if !self.is_short() {
            return 0;
        }
        let (low, high) = SHORT_WINDOW_BYTES;
        let share = (high / u64::from(self.shares)).max(low);
        let lasting = times(self.max_bandwidth.get(), SHORT_WINDOW_NS);
        u64::try_from(lasting).unwrap_or(u64::MAX).clamp(low, share)
    }
}

impl Controller for Bbr {
    fn on_sent(&mut self, now_ns: u64, bytes: u64, in_flight_bytes: u64) {
        let hoped = self.start.rate().map_or(0, |rate| self.path_times(rate, 100));
        self.start.on_sent(bytes, hoped);
        self.set_start_pacing_rate();
        if in_flight_bytes == 0 {
            // [5.4.1]
            self.restarts = true;
            self.extra_acked.restart(now_ns);
            self.set_pacing_rate();
        }
    }

    fn on_report(&mut self, sample: &Sample) {
        self.update_model(sample);
        self.check_start(sample);
        self.check_startup_done(sample);
        self.check_drain_done(sample);
        self.check_sibling_flows(sample);
        self.update_cycle(sample);
        self.check_probe_rtt(sample);
        self.latest.advance(sample.rate.as_ref());
        if sample.newly_delivered_bytes > 0 {
            self.restarts = false;
        }
        self.set_pacing_rate();
        self.note_load(sample);
        self.set_window(sample.newly_delivered_bytes);
    }

    fn on_signal(&mut self, now_ns: u64, signal: Signal) {
        match signal {
            Signal::RoundTrips(round_trips) => {
                self.min_rtt.on_report(now_ns, Some(round_trips.newest_ns));
            }
            Signal::Start(start) => self.jump(start),
            Signal::Silence => self.on_start_silence(),
            Signal::Shares(shares) => {
                self.shares = shares.host.max(1);
                self.judge.set_flows(shares.path.max(1));
            }
        }
    }

    fn limits(&self) -> Limits {
        if self.pacing_rate == 0 || self.is_short() {
            return Limits::unpaced(self.window_bytes);
        }
        Limits {
            window_bytes: self.window_bytes,
            rate_bits_per_s: Some(bits(self.pacing_rate)),
            burst_bytes: self.quantum_bytes(),
        }
    }

    fn path_bytes(&self, min_rtt_ns: u64) -> u64 {
        if min_rtt_ns <= SHORT_PATH_NS {
            return 0;
        }
        let rate = self.max_bandwidth.get().max(self.start.rate().unwrap_or(0));
        u64::try_from(times(rate, min_rtt_ns)).unwrap_or(u64::MAX)
    }

    fn found_bits_per_s(&self) -> Option<u64> {
        let is_measured = self.full.is_reached() || self.start.is_valid();
        let measured = is_measured.then(|| self.with_own_loss(self.max_bandwidth.get()));
        let found = measured.max(self.start.found());
        found.filter(|rate| *rate > 0 && !self.is_short()).map(bits)
    }
}

fn bits(rate: u64) -> u64 {
    rate.saturating_mul(8)
}
