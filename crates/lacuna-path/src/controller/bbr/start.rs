//! How a flow starts: at a known rate, or at a rate measured with its first bytes, instead of
//! doubling from nothing.
//!
//! The phases are those of Careful Resume (RFC 9959, section 3):
//!
//! - *Reconnaissance*: the initial window is sent at once. It is a train whose spread at the peer
//!   shows the rate of the path (`train.rs`); a train without a spread is followed by a longer one.
//!   A flow with a known rate (from the configuration or the path's memory) skips this phase,
//!   because the round trip that the phase is to confirm was measured while connecting.
//! - *Unvalidated*: the flow jumps to that rate (the *jump rate*), with a window of what the path
//!   would hold. At a known rate, an eighth of a round trip is sent faster, as in probing upwards:
//!   the path may carry more by now, and a message may be over before anything else would tell. If
//!   the train had a gap, its rate may be a quarter of the path's, and another train is sent first,
//!   at once.
//! - *Validating*: what was sent at the jump rate is arriving. When all of it has arrived, the
//!   delivered rate is the estimate, or the known rate if it met no queue, and the flow goes on to
//!   probe for more.
//! - *Safe retreat*: there was congestion, or a queue while less arrives than was sent. The rate
//!   falls to the delivered one, and the queue is drained.
//!
//! The RFC jumps to half of the remembered window. Half a window, sent at the full rate, stands
//! still for half a round trip, which is too long for one message. `memory.rs` decides how much of
//! a record to believe. Here a wrong rate shows as soon as a millisecond of its packets has
//! arrived; until then the flow loads the path no more than the last round of slow start does.
//!
//! A known rate that met no queue remains the estimate, whatever arrived: less arrives where the
//! path loses packets or a host stood still, and a series of short messages would hand on a falling
//! rate. Measured: M-bbr-11.

use super::{Bbr, FullBandwidth, Sample, StartRate, State, times};
use crate::controller::train::{Estimate, Train};
use crate::delivery::rate_of;

/// Most flights in which a train is looked for; after them the flow is past its start.
const FLIGHTS_MAX: u32 = 4;
/// Fewest bytes of a flight. An application may begin with a few words, from which no rate can be
/// measured.
const FLIGHT_BYTES_MIN: u64 = 32 << 10;
/// Most that a train justifies sending in a round trip, in multiples of the initial window: an
/// exact train, and another.
const JUMP_TIMES: (u64, u64) = (512, 64);
/// If this much of the first flight arrived without a measurable spread, the path is too fast for
/// it. Then this many times as much is sent, which takes half a millisecond at 10 Gbit/s.
const TOO_SHORT_BYTES: u64 = 48 << 10;
const LONGER_TIMES: u64 = 5;
/// Window, in per cent of what the path would hold at the jump rate, and in time on top: reports
/// come some part of a round trip late, and hosts take their time. Measured: M-bbr-14.
const WINDOW_PERCENT: u64 = 125;
const WINDOW_NS: u64 = 1_000_000;
/// Rounds of probing upwards after which the rate shows whether the path carries more: what was
/// sent in the first is reported in the second.
const DOUBT_ROUNDS: u64 = 2;
/// Growth that shows it, in per cent; probing sends a quarter more.
const GROWN_PERCENT: u64 = 115;
/// The first round trip has met a queue if it is longer than those of connecting by more than this
/// part of them, and by more than the first packets of a train wait for each other.
const MET_QUEUE_PART: u64 = 4;
const MET_QUEUE_NS_MIN: u64 = 1_000_000;
/// At a known rate, the first part of a round trip that is sent faster, and how fast, in per cent:
/// it makes a queue of a 32nd at most, too little to be seen.
const PROBE_PART: u64 = 8;
const PROBE_PERCENT: u64 = 125;
/// The same after a train with a gap: half of what the path would hold, which is a queue as long if
/// the path carries no more, and no longer a train than others.
const DOUBTFUL_PART: u64 = 2;
/// A delivered rate above the jump rate by this much, in per cent, is no noise.
const CARRIES_MORE_PERCENT: u64 = 103;
/// If less than this part arrives of what was sent, the path is slower than the jump rate.
const SHORTFALL_PERCENT: u64 = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Reconnaissance,
    /// Bytes after this total are sent at the jump rate.
    Unvalidated {
        from_bytes: u64,
    },
    /// They are arriving; all of them have arrived at this total.
    Validating {
        end_bytes: u64,
    },
    /// Probing upwards from this rate, for so many rounds.
    Doubting {
        rate: u64,
        rounds: u64,
    },
    Done,
}

/// State of a flow's start.
#[derive(Debug, Clone, Default)]
pub(super) struct Start {
    phase: Phase,
    /// The jump rate, bytes per second.
    rate: u64,
    /// The rate of the train, which may be too much for one jump; 0 without one.
    goal: u64,
    /// The train was exact.
    is_exact: bool,
    train: Train,
    /// Flights in which a train was looked for.
    flights: u32,
    /// The second flight is a longer train.
    is_repeated: bool,
    /// Bytes lost of the first flight.
    lost_bytes: u64,
    /// Competitors had a queue when its first packets arrived.
    met_queue: bool,
    has_heard: bool,
    has_sent: bool,
    /// Finds out whether the path carries more than is known.
    probe: RateProbe,
    /// A train with a gap was followed by another.
    is_probed: bool,
    /// The probe has found more.
    is_raised: bool,
    /// There was a queue since the jump.
    saw_queue: bool,
    /// The jump rate was delivered: the largest rate is the path's.
    is_valid: bool,
}

/// The part of a flight that is sent faster than the jump rate.
#[derive(Debug, Clone, Copy, Default)]
enum RateProbe {
    #[default]
    No,
    /// It is being sent, after this many bytes of the flow; this much of it was sent.
    Leaving { from_bytes: u64, sent_bytes: u64 },
    /// It is arriving; all of it has arrived at this total.
    Arriving { end_bytes: u64 },
}

impl Start {
    /// Whether the jump rate is in force.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Unvalidated { .. } | Phase::Validating { .. })
    }

    pub(super) fn rate(&self) -> Option<u64> {
        self.is_active().then_some(self.rate)
    }

    /// Pacing rate of the start, if it decides.
    pub(super) fn pacing_rate(&self) -> Option<u64> {
        let rate = self.rate()?;
        Some(match self.probe {
            RateProbe::Leaving { .. } if self.is_known() => percent_of(rate, PROBE_PERCENT),
            // Unpaced.
            RateProbe::Leaving { .. } => 0,
            RateProbe::No | RateProbe::Arriving { .. } => rate,
        })
    }

    /// Whether the jump rate was known beforehand.
    fn is_known(&self) -> bool {
        self.goal == 0
    }

    pub(super) fn met_queue(&self) -> bool {
        self.met_queue
    }

    pub(super) fn is_valid(&self) -> bool {
        self.is_valid
    }

    /// Whether the first flight is being sent, which is not paced.
    pub(super) fn is_unpaced(&self) -> bool {
        self.phase == Phase::Reconnaissance && self.flights == 0
    }

    /// The rate that the start has found, for a flow that ends with it. Any sample of so few bytes
    /// is no more than the sender's own rate. The train of the first flight shows the path's rate;
    /// and a known rate is still right if what was sent at it arrives as fast, or more if the probe
    /// found more.
    pub(super) fn found(&self) -> Option<u64> {
        let arriving = || self.train.estimate().filter(|estimate| estimate.is_exact);
        match self.phase {
            Phase::Unvalidated { .. } | Phase::Validating { .. } if self.goal > 0 => {
                self.is_exact.then_some(self.goal)
            }
            Phase::Unvalidated { .. } => self.is_raised.then_some(self.rate),
            Phase::Doubting { .. } if self.is_known() && !self.saw_queue => Some(self.rate),
            Phase::Validating { .. } => {
                let least = u128::from(self.rate) * u128::from(SHORTFALL_PERCENT) / 100;
                arriving().filter(|found| u128::from(found.rate) >= least).map(|_| self.rate)
            }
            _ => None,
        }
    }

    /// Whether the first flight was too short a train for this path.
    fn is_too_short(&self) -> bool {
        self.is_unpaced()
            && self.train.bytes() >= TOO_SHORT_BYTES
            && self.train.estimate().is_none()
    }

    fn add_to_train(&mut self, sample: &Sample) {
        self.train.on_report(
            sample.sent_ns,
            sample.arrived_ns,
            sample.delivered_bytes,
            sample.newly_delivered_bytes,
        );
    }

    /// Sets the jump rate to that of a train, as far as one jump may go.
    fn believe(&mut self, estimate: Estimate, min_rtt_ns: u64) {
        let times = if estimate.is_exact { JUMP_TIMES.0 } else { JUMP_TIMES.1 };
        let rate_max = rate_of(times * super::INITIAL_WINDOW_BYTES, min_rtt_ns);
        self.is_exact = estimate.is_exact;
        self.rate = estimate.rate.min(rate_max);
        self.goal = estimate.rate;
    }

    /// Sends at the jump rate from here on. Returns the total before that.
    fn expect(&mut self, sample: &Sample) -> u64 {
        let from_bytes = sample.delivered_bytes + sample.in_flight_bytes;
        self.phase = Phase::Unvalidated { from_bytes };
        from_bytes
    }

    /// A burst is sent; `path_bytes` is what the path holds at the jump rate.
    pub(super) fn on_sent(&mut self, bytes: u64, path_bytes: u64) {
        self.has_sent = true;
        if let RateProbe::Leaving { from_bytes, sent_bytes } = self.probe {
            let sent_bytes = sent_bytes.saturating_add(bytes);
            let most_bytes = match self.is_known() {
                true => percent_of(path_bytes / PROBE_PART, PROBE_PERCENT),
                false => {
                    (path_bytes / DOUBTFUL_PART).min(LONGER_TIMES * super::INITIAL_WINDOW_BYTES)
                }
            };
            self.probe = match sent_bytes >= most_bytes {
                true => RateProbe::Arriving { end_bytes: from_bytes.saturating_add(sent_bytes) },
                false => RateProbe::Leaving { from_bytes, sent_bytes },
            };
        }
    }
}

fn percent_of(value: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

impl Bbr {
    /// Starts at a known rate.
    pub(super) fn jump(&mut self, start: StartRate) {
        if self.start.has_sent {
            return;
        }
        self.start.rate = (start.rate_bits_per_s / 8).max(1);
        self.start.is_exact = true;
        self.start.phase = Phase::Unvalidated { from_bytes: 0 };
        self.start.probe = RateProbe::Leaving { from_bytes: 0, sent_bytes: 0 };
        self.set_pacing_rate();
        self.set_window(0);
    }

    /// The window while the jump rate is in force.
    pub(super) fn start_window_bytes(&self) -> Option<u64> {
        if self.start.is_too_short() {
            return Some(LONGER_TIMES * super::INITIAL_WINDOW_BYTES);
        }
        let rate = self.start.rate()?;
        let late = u64::try_from(times(rate, WINDOW_NS)).unwrap_or(u64::MAX);
        let path = self.path_times(rate, WINDOW_PERCENT);
        Some(path.saturating_add(late).saturating_add(2 * self.quantum_bytes()))
    }

    pub(super) fn check_start(&mut self, sample: &Sample) {
        if self.start.phase == Phase::Done {
            return;
        }
        if self.is_short() && !self.start.is_active() {
            self.start.phase = Phase::Done;
            return;
        }
        let is_new = sample.newly_delivered_bytes > 0 && sample.sent_ns > 0;
        let is_of_train = is_new && self.start.train.holds(sample.sent_ns, sample.arrived_ns);
        if self.start.phase == Phase::Reconnaissance && is_new && !is_of_train {
            self.start.flights += u32::from(self.start.train.bytes() >= FLIGHT_BYTES_MIN);
            self.start.train = Train::default();
        }
        if is_new && !self.start.has_heard {
            self.start.has_heard = true;
            let met = |min_rtt_ns: u64| {
                let longer_ns = (min_rtt_ns / MET_QUEUE_PART).max(MET_QUEUE_NS_MIN);
                sample.rtt_ns() > Some(min_rtt_ns.saturating_add(longer_ns))
            };
            self.start.met_queue = self.min_rtt.get().is_some_and(met);
        }
        if self.start.is_unpaced() {
            self.start.lost_bytes += sample.newly_lost_bytes;
            if self.start.lost_bytes >= FLIGHT_BYTES_MIN {
                // The flight overflowed a queue, which says nothing of the rate. From here on the
                // flow doubles, and is paced.
                self.start.flights = 1;
                self.judge.forgive();
            }
        }
        let takes_all = !matches!(self.start.phase, Phase::Unvalidated { .. });
        if is_new && (takes_all || is_of_train) {
            self.start.add_to_train(sample);
        }
        self.start.saw_queue |= self.verdict().has_queue || self.verdict().is_congested;
        match self.start.phase {
            Phase::Reconnaissance => self.reconnoitre(sample),
            Phase::Unvalidated { from_bytes } => {
                if sample.delivered_bytes > from_bytes {
                    let end_bytes = sample.delivered_bytes + sample.in_flight_bytes;
                    self.start.phase = Phase::Validating { end_bytes };
                    self.start.train = Train::default();
                    self.start.add_to_train(sample);
                } else if is_of_train {
                    // More of the train has come.
                    self.believe_train(sample);
                }
            }
            Phase::Validating { end_bytes } => {
                if self.probe_found_more(sample) {
                    self.start.expect(sample);
                } else {
                    self.validate(sample, end_bytes);
                }
            }
            Phase::Doubting { rate, rounds } => self.doubt(rate, rounds),
            Phase::Done => {}
        }
        if self.start.is_active() && self.is_too_fast() {
            self.retreat(sample);
        }
    }

    fn reconnoitre(&mut self, sample: &Sample) {
        if self.start.flights > FLIGHTS_MAX || self.full.is_reached() {
            self.start.phase = Phase::Done;
            return;
        }
        self.start.is_repeated |= self.start.is_too_short();
        self.believe_train(sample);
        // A train slower than the largest sample says nothing new.
        if self.start.rate > self.max_bandwidth.get() {
            self.start.expect(sample);
        }
    }

    /// Takes the rate of the first flights' train, and probes again if it had a gap.
    fn believe_train(&mut self, sample: &Sample) {
        let (Some(estimate), Some(min_rtt_ns)) = (self.start.train.estimate(), self.min_rtt.get())
        else {
            return;
        };
        // Later trains are paced, so they may show the sender's own rate.
        let unpaced_flights = if self.start.is_repeated { 2 } else { 1 };
        let is_unpaced = self.start.flights < unpaced_flights;
        let is_exact = estimate.is_exact && is_unpaced && !estimate.is_doubtful;
        let is_active = self.start.is_active();
        if estimate.is_doubtful && is_active && self.start.is_exact {
            // The earlier estimate, from before the gap, is better.
            return;
        }
        self.start.believe(Estimate { is_exact, ..estimate }, min_rtt_ns);
        let is_news = is_active || self.start.rate > self.max_bandwidth.get();
        if estimate.is_doubtful && is_unpaced && is_news && !self.start.is_probed {
            self.start.is_probed = true;
            let from_bytes = self.start.expect(sample);
            self.start.probe = RateProbe::Leaving { from_bytes, sent_bytes: 0 };
        } else if is_exact && matches!(self.start.probe, RateProbe::Leaving { sent_bytes: 0, .. }) {
            // An exact train leaves nothing to probe for.
            self.start.probe = RateProbe::No;
        }
    }

    /// Once all of the probe has arrived: if it arrived faster than the jump rate, sends the rest
    /// as fast.
    fn probe_found_more(&mut self, sample: &Sample) -> bool {
        let RateProbe::Arriving { end_bytes } = self.start.probe else { return false };
        if sample.delivered_bytes < end_bytes {
            return false;
        }
        self.start.probe = RateProbe::No;
        let rate = self.start.rate;
        let is_more = |found: &Estimate| {
            found.is_exact && found.rate > percent_of(rate, CARRIES_MORE_PERCENT)
        };
        let min_rtt_ns = self.min_rtt.get().unwrap_or(1);
        match self.start.train.estimate().filter(is_more) {
            Some(found) if !self.start.is_known() => {
                let is_exact = !found.is_doubtful;
                self.start.believe(Estimate { is_exact, ..found }, min_rtt_ns);
                true
            }
            Some(found) if !self.start.met_queue => {
                self.start.rate = found.rate.min(percent_of(rate, PROBE_PERCENT));
                self.start.is_raised = true;
                true
            }
            _ => false,
        }
    }

    fn validate(&mut self, sample: &Sample, end_bytes: u64) {
        if sample.delivered_bytes < end_bytes {
            return;
        }
        let Some(rate) = &sample.rate else { return };
        if rate.is_app_limited || self.start.goal > self.start.rate {
            // Too little was sent to tell: validate with the next flight. Or the first jump was
            // safe, and this is the second.
            self.start.rate = self.start.rate.max(self.start.goal);
            self.start.expect(sample);
            return;
        }
        self.start.phase = Phase::Done;
        // A whole flight is a long train, more exact than the largest sample. And the jump rate is
        // right if samples came up to it or nothing waited.
        let rate = match self.start.is_known() && !self.start.saw_queue {
            true => self.without_own_loss(self.start.rate),
            false => self.max_bandwidth.get().min(self.start.rate),
        };
        let arrived = self.start.train.estimate().map_or(0, |estimate| estimate.rate);
        // No more can arrive than was sent: a higher rate is an error of the hosts' times.
        let sent = match self.start.is_known() {
            true => percent_of(self.start.rate, PROBE_PERCENT),
            false => self.start.rate,
        };
        self.max_bandwidth.set(rate.max(arrived.min(sent)));
        if self.start.met_queue {
            // The train lay between the packets of competitors: it shows what they left, and the
            // flow's share has yet to be found.
            self.full = FullBandwidth::default();
            return;
        }
        self.start.is_valid = true;
        self.full.set_reached();
        self.start_down(sample);
        self.start_up(sample);
        self.start.phase = Phase::Doubting { rate: self.max_bandwidth.get(), rounds: 0 };
    }

    /// The path may carry much more than the train or the memory said: if probing upwards meets no
    /// limit, the flow doubles after all.
    fn doubt(&mut self, rate: u64, rounds: u64) {
        if self.state != State::Up || self.verdict().has_queue {
            self.start.phase = Phase::Done;
        } else if self.rounds.is_start() {
            self.start.phase = Phase::Doubting { rate, rounds: rounds + 1 };
            let grown = u128::from(self.max_bandwidth.get()) * 100;
            if rounds >= DOUBT_ROUNDS && grown >= u128::from(rate) * u128::from(GROWN_PERCENT) {
                self.start.phase = Phase::Done;
                self.full = FullBandwidth::default();
                self.state = State::Startup;
            }
        }
    }

    /// Whether less arrives than is sent, and a queue grows.
    fn is_too_fast(&self) -> bool {
        let falls_short = || {
            let Phase::Validating { .. } = self.start.phase else { return false };
            let arriving = self.start.train.estimate().filter(|estimate| estimate.is_exact);
            arriving.is_some_and(|estimate| {
                u128::from(estimate.rate) * 100
                    < u128::from(self.start.rate) * u128::from(SHORTFALL_PERCENT)
            })
        };
        self.verdict().is_congested || (self.verdict().has_queue && falls_short())
    }

    /// Safe retreat.
    fn retreat(&mut self, sample: &Sample) {
        let is_measured = self.start.goal > 0 && self.start.is_exact;
        let arriving = match self.start.train.estimate() {
            Some(estimate) if estimate.is_exact => estimate.rate,
            // The burst was too large, but the path itself has shown the rate.
            _ if is_measured => self.start.rate,
            _ => 0,
        };
        let rate = arriving.min(self.start.rate).max(self.max_bandwidth.get());
        self.start.phase = Phase::Done;
        self.max_bandwidth.set(rate);
        self.full.set_reached();
        self.rounds.restart(sample.delivered_bytes);
        self.state = State::Drain;
    }

    /// Nothing is heard: gives the jump rate up.
    pub(super) fn on_start_silence(&mut self) {
        if self.start.is_active() {
            self.start.phase = Phase::Done;
            self.pacing_rate = 0;
            self.window_bytes = super::INITIAL_WINDOW_BYTES.max(self.min_window_bytes());
            self.set_pacing_rate();
        }
    }
}
