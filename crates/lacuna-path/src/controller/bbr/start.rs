//! How a flow begins: at a rate that is known, or measured with the first bytes, instead of doubling
//! from nothing.
//!
//! The phases are those of Careful Resume (RFC 9959, section 3):
//!
//! - *Reconnaissance*: the initial window leaves at once. It is a train whose spread at the peer says
//!   what the path carries (`train.rs`); a train without a spread is followed by a longer one. A flow
//!   with a known rate (from the configuration or the path's memory) skips this phase: the round trip
//!   that the phase is to confirm was measured while connecting.
//! - *Unvalidated*: the flow sends at that rate, with a window of what the path would hold. At a known
//!   rate, an eighth of a round trip leaves faster, as in probing upwards: the path may carry more by
//!   now, and a message may be over before anything else would tell. At a rate from a train in which
//!   something stood still, which may be a quarter of the path's, another train leaves first, at once.
//! - *Validating*: what was sent at that rate is arriving. When all of it has arrived, the rate that
//!   was delivered is the estimate, or the known rate if it met no queue, and the flow goes on to probe
//!   for more.
//! - *Safe retreat*: there was congestion, or a queue while less arrives than was sent. The rate falls
//!   to what arrives, and the queue is drained.
//!
//! The RFC jumps to half of the remembered rate. Half a window, sent at the full rate, stands still for
//! half a round trip, which is too long for one message. `memory.rs` decides how much of a record to
//! believe. Here a wrong rate shows as soon as a millisecond of its packets has arrived; until then the
//! flow does to the path what the last round of slow start does.
//!
//! A known rate that met no queue stays the estimate, whatever arrived: less arrives where the path
//! loses packets or a host stood still, and a series of short messages would hand on a falling rate.
//! Measured: M-bbr-11.

use super::{Bbr, FullBandwidth, Sample, StartRate, State, times};
use crate::controller::train::{Estimate, Train};
use crate::delivery::rate_of;

/// Flights after which measuring trains is given up: the flow is past its start.
const FLIGHTS_MAX: u32 = 4;
/// Bytes that make a flight. An application may begin with a few words; nothing
/// is learnt from those, least of all a rate to pace at.
const FLIGHT_BYTES_MIN: u64 = 32 << 10;
/// A train is no reason to send more than so many times of it in a round trip:
/// one that is believed closely, and another.
const JUMP_TIMES: (u64, u64) = (512, 64);
/// A first flight that came in no time, from so many bytes on, is of a path too
/// fast for it: so many times as much goes out then, which takes half a
/// millisecond at 10 Gbit/s.
const TOO_SHORT_BYTES: u64 = 48 << 10;
const LONGER_TIMES: u64 = 5;
/// What may be in flight, per cent of what the path would hold, and for how long
/// besides: reports come some part of a round trip late, and hosts take their time.
/// Measured: M-bbr-14.
const WINDOW_PERCENT: u64 = 125;
const WINDOW_NS: u64 = 1_000_000;
/// Rounds of probing upwards after which the rate shows whether the path has
/// more: what was sent in the first is reported in the second.
const DOUBT_ROUNDS: u64 = 2;
/// Growth that shows it, per cent; probing sends a quarter more.
const GROWN_PERCENT: u64 = 115;
/// A first round trip longer than those of connecting by more than this part of
/// them, and by more than the first packets of a train wait for each other, has met a
/// queue.
const MET_QUEUE_PART: u64 = 4;
const MET_QUEUE_NS_MIN: u64 = 1_000_000;
/// The first part of a flight at a known rate, of a round trip, and how fast it
/// leaves, per cent: it makes a queue of a 32nd at most, too little to be seen.
const ASKING_PART: u64 = 8;
const ASKING_PERCENT: u64 = 125;
/// The same of a rate that a train leaves in doubt: half of what the path would hold,
/// which is a queue of so much if it carries no more, and no longer a train than others.
const DOUBTFUL_PART: u64 = 2;
/// More than was hoped for by so much, per cent, is no noise.
const CARRIES_MORE_PERCENT: u64 = 103;
/// Less than so much of what was sent arrives: the path is slower than hoped.
const SHORTFALL_PERCENT: u64 = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Reconnaissance,
    /// Bytes after this total are sent at the hoped-for rate.
    Unvalidated {
        from_bytes: u64,
    },
    /// They are arriving; all of them have at this total.
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

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(super) struct Start {
    phase: Phase,
    /// Hoped for, bytes per second.
    rate: u64,
    /// What the train said, which may be too much for one jump; 0 without one.
    goal: u64,
    /// Believed closely.
    is_exact: bool,
    train: Train,
    /// Flights that a train was looked for in.
    flights: u32,
    /// The second is a longer train.
    is_repeated: bool,
    /// What was lost of the first.
    lost_bytes: u64,
    /// A queue of others stood when its first packets arrived.
    met_queue: bool,
    has_heard: bool,
    has_sent: bool,
    /// Asks whether the path carries more than is known.
    asking: Asking,
    /// A train that left a doubt was followed by another.
    is_asked: bool,
    /// The answer was that it does.
    is_raised: bool,
    /// There was a queue since the rate was hoped for.
    saw_queue: bool,
    /// What was hoped for has arrived: the largest rate is the path's.
    is_valid: bool,
}

/// The part of a flight that leaves faster than it is hoped that the path carries.
#[derive(Debug, Clone, Copy, Default)]
enum Asking {
    #[default]
    No,
    /// Leaving, behind so many bytes of the flow: so many have.
    Leaving { from_bytes: u64, sent_bytes: u64 },
    /// Arriving: all of it has at this total.
    Arriving { end_bytes: u64 },
}

impl Start {
    /// Whether the hoped-for rate is in force.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Unvalidated { .. } | Phase::Validating { .. })
    }

    pub(super) fn rate(&self) -> Option<u64> {
        self.is_active().then_some(self.rate)
    }

    /// What to send at.
    pub(super) fn pacing_rate(&self) -> Option<u64> {
        let rate = self.rate()?;
        Some(match self.asking {
            Asking::Leaving { .. } if self.is_known() => percent_of(rate, ASKING_PERCENT),
            // At once.
            Asking::Leaving { .. } => 0,
            Asking::No | Asking::Arriving { .. } => rate,
        })
    }

    /// Whether the rate is known from elsewhere.
    fn is_known(&self) -> bool {
        self.goal == 0
    }

    pub(super) fn met_queue(&self) -> bool {
        self.met_queue
    }

    pub(super) fn is_valid(&self) -> bool {
        self.is_valid
    }

    /// Whether the first flight is still to be seen: it leaves at once.
    pub(super) fn is_unpaced(&self) -> bool {
        self.phase == Phase::Reconnaissance && self.flights == 0
    }

    /// What the start has shown of the path, if the flow ends with it: too little
    /// was sent then for any sample to be more than the sender's own rate. The
    /// train of the first flight is the path's; and a rate that was known is
    /// still right if what was sent so arrives as fast; more, if that was the answer.
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

    /// Hopes for what a train says, as far as one jump may go.
    fn believe(&mut self, estimate: Estimate, min_rtt_ns: u64) {
        let times = if estimate.is_exact { JUMP_TIMES.0 } else { JUMP_TIMES.1 };
        let rate_max = rate_of(times * super::INITIAL_WINDOW_BYTES, min_rtt_ns);
        self.is_exact = estimate.is_exact;
        self.rate = estimate.rate.min(rate_max);
        self.goal = estimate.rate;
    }

    /// What leaves from here on does so at the hoped-for rate; behind so many bytes.
    fn expect(&mut self, sample: &Sample) -> u64 {
        let from_bytes = sample.delivered_bytes + sample.in_flight_bytes;
        self.phase = Phase::Unvalidated { from_bytes };
        from_bytes
    }

    /// So much leaves, on a path that holds so much at the hoped-for rate.
    pub(super) fn on_sent(&mut self, bytes: u64, path_bytes: u64) {
        self.has_sent = true;
        if let Asking::Leaving { from_bytes, sent_bytes } = self.asking {
            let sent_bytes = sent_bytes.saturating_add(bytes);
            let most_bytes = match self.is_known() {
                true => percent_of(path_bytes / ASKING_PART, ASKING_PERCENT),
                false => {
                    (path_bytes / DOUBTFUL_PART).min(LONGER_TIMES * super::INITIAL_WINDOW_BYTES)
                }
            };
            self.asking = match sent_bytes >= most_bytes {
                true => Asking::Arriving { end_bytes: from_bytes.saturating_add(sent_bytes) },
                false => Asking::Leaving { from_bytes, sent_bytes },
            };
        }
    }
}

fn percent_of(value: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

impl Bbr {
    /// Begins at a rate that is known from elsewhere.
    pub(super) fn jump(&mut self, start: StartRate) {
        if self.start.has_sent {
            return;
        }
        self.start.rate = (start.rate_bits_per_s / 8).max(1);
        self.start.is_exact = true;
        self.start.phase = Phase::Unvalidated { from_bytes: 0 };
        self.start.asking = Asking::Leaving { from_bytes: 0, sent_bytes: 0 };
        self.set_pacing_rate();
        self.set_window(0);
    }

    /// The window while the hoped-for rate is in force.
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
                // Too much at once for the queue, which says nothing of the rate:
                // from here on it is doubled, and paced.
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
                if self.hears_more(sample) {
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
        // A train in whose middle the path was not even full says nothing new.
        if self.start.rate > self.max_bandwidth.get() {
            self.start.expect(sample);
        }
    }

    /// Takes what the train of the first flights says, and asks again if that leaves a doubt.
    fn believe_train(&mut self, sample: &Sample) {
        let (Some(estimate), Some(min_rtt_ns)) = (self.start.train.estimate(), self.min_rtt.get())
        else {
            return;
        };
        // Later trains are paced: they may show the sender's own rate.
        let unpaced_flights = if self.start.is_repeated { 2 } else { 1 };
        let is_unpaced = self.start.flights < unpaced_flights;
        let is_exact = estimate.is_exact && is_unpaced && !estimate.is_doubtful;
        let is_active = self.start.is_active();
        if estimate.is_doubtful && is_active && self.start.is_exact {
            // What has come before stood still is better.
            return;
        }
        self.start.believe(Estimate { is_exact, ..estimate }, min_rtt_ns);
        let is_news = is_active || self.start.rate > self.max_bandwidth.get();
        if estimate.is_doubtful && is_unpaced && is_news && !self.start.is_asked {
            self.start.is_asked = true;
            let from_bytes = self.start.expect(sample);
            self.start.asking = Asking::Leaving { from_bytes, sent_bytes: 0 };
        } else if is_exact && matches!(self.start.asking, Asking::Leaving { sent_bytes: 0, .. }) {
            // Nothing is left to ask.
            self.start.asking = Asking::No;
        }
    }

    /// Once all that asked has come: if it came faster than was hoped for, so is the
    /// rest sent.
    fn hears_more(&mut self, sample: &Sample) -> bool {
        let Asking::Arriving { end_bytes } = self.start.asking else { return false };
        if sample.delivered_bytes < end_bytes {
            return false;
        }
        self.start.asking = Asking::No;
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
                self.start.rate = found.rate.min(percent_of(rate, ASKING_PERCENT));
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
            // Too little was sent to tell: the hope goes on with the next. Or
            // the first jump is safe, and here is the second.
            self.start.rate = self.start.rate.max(self.start.goal);
            self.start.expect(sample);
            return;
        }
        self.start.phase = Phase::Done;
        // A whole flight is a long train: closer than the largest sample.
        // And what was hoped for, if samples came up to it or nothing waited.
        let rate = match self.start.is_known() && !self.start.saw_queue {
            true => self.without_own_loss(self.start.rate),
            false => self.max_bandwidth.get().min(self.start.rate),
        };
        let arrived = self.start.train.estimate().map_or(0, |estimate| estimate.rate);
        // No more arrives than was sent: more is what hosts do to times.
        let sent = match self.start.is_known() {
            true => percent_of(self.start.rate, ASKING_PERCENT),
            false => self.start.rate,
        };
        self.max_bandwidth.set(rate.max(arrived.min(sent)));
        if self.start.met_queue {
            // The train lay between the packets of others: what it says is what
            // they left, and the share has yet to be found.
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
    /// end, the flow doubles after all.
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

    /// Whether less arrives than is sent, and waits.
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
            // Too much at once, but at a rate that the path itself has shown.
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

    /// Nothing is heard: what was hoped for is not believed any longer.
    pub(super) fn on_start_silence(&mut self) {
        if self.start.is_active() {
            self.start.phase = Phase::Done;
            self.pacing_rate = 0;
            self.window_bytes = super::INITIAL_WINDOW_BYTES.max(self.min_window_bytes());
            self.set_pacing_rate();
        }
    }
}
