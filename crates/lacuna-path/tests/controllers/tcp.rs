//! A bulk TCP flow with BBR version 1, as Linux has it (tcp_bbr.c; Cardwell et al., "BBR:
//! Congestion-Based Congestion Control", 2016), to share a link with. Of TCP only what a neighbour
//! feels: segments paced in bundles of a millisecond, a report for each bundle that arrives, packet
//! conservation in the first round after a loss. What is lost is simply sent as something new.
//!
//! It is a little milder than the original: over an emulated path of 1 Gbit/s and 40 ms with a queue
//! of as much, a flow of Lacuna that had 0.45 of the rate beside this one after half a minute had 0.37
//! beside Linux'.

use crate::bottleneck::{MS, SECOND, WIRE_BYTES};
use std::collections::VecDeque;

/// Packets of the first window (RFC 6928) and of the smallest.
const INITIAL_PACKETS: u64 = 10;
const MIN_PACKETS: u64 = 4;
/// Rounds that the largest rate is remembered for.
const RATE_ROUNDS: u64 = 10;
/// Gains, per cent.
const HIGH_GAIN: u64 = 289;
const DRAIN_GAIN: u64 = 35;
const CYCLE: [u64; 8] = [125, 75, 100, 100, 100, 100, 100, 100];
/// How long the smallest round trip is believed, and how long it is looked for.
const MIN_RTT_LASTS_NS: u64 = 10 * SECOND;
const PROBE_RTT_NS: u64 = 200 * MS;
/// Rounds after which the most that acknowledgements ran ahead is forgotten by half.
const EXTRA_ROUNDS: u64 = 5;
/// Packets of a bundle at most: 64 KiB.
const BUNDLE_PACKETS: u64 = 44;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// What was known when a bundle left.
#[derive(Debug, Clone, Copy)]
struct Sent {
    psn_end: u64,
    sent_ns: u64,
    delivered: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    /// While the round trip was looked for: the rate is not the path's.
    is_limited: bool,
}

/// See the module's text.
pub(crate) struct TcpBbr {
    bundles: VecDeque<Sent>,
    sent_psn: u64,
    heard_psn: u64,
    heard_ns: u64,
    delivered: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    mode: Mode,
    /// Samples of the rate, packets per second, and their rounds, falling.
    rates: VecDeque<(u64, u64)>,
    min_rtt: (u64, u64),
    round: u64,
    round_end: u64,
    full_rate: u64,
    full_rounds: u32,
    is_full: bool,
    cycle: (usize, u64),
    window: u64,
    /// End of the first round of a recovery, and the window to return to.
    recovers: Option<(u64, u64)>,
    probe_done_ns: Option<u64>,
    /// The window before the round trip was looked for.
    prior_window: u64,
    /// What is sent before so many are delivered is limited.
    limited_end: u64,
    free_ns: u64,
    extra: ExtraAcked,
}

/// By how much acknowledgements run ahead of the rate: so many came since then; the most of the
/// rounds from this one on, and of as many before it.
#[derive(Debug, Clone, Copy, Default)]
struct ExtraAcked {
    since_ns: u64,
    packets: u64,
    most: [u64; 2],
    round: u64,
}

impl TcpBbr {
    pub(crate) fn new(now_ns: u64, rtt_ns: u64) -> Self {
        Self {
            bundles: VecDeque::new(),
            sent_psn: 0,
            heard_psn: 0,
            heard_ns: now_ns,
            delivered: 0,
            delivered_ns: now_ns,
            first_sent_ns: now_ns,
            mode: Mode::Startup,
            rates: VecDeque::new(),
            min_rtt: (rtt_ns, now_ns),
            round: 0,
            round_end: 0,
            full_rate: 0,
            full_rounds: 0,
            is_full: false,
            cycle: (2, now_ns),
            window: INITIAL_PACKETS,
            recovers: None,
            probe_done_ns: None,
            prior_window: 0,
            limited_end: 0,
            free_ns: now_ns,
            extra: ExtraAcked { since_ns: now_ns, ..ExtraAcked::default() },
        }
    }

    fn in_flight(&self) -> u64 {
        self.sent_psn - self.heard_psn
    }

    /// Packets per second.
    fn rate(&self) -> u64 {
        self.rates.front().map_or(0, |rate| rate.0)
    }

    fn path(&self, gain: u64) -> u64 {
        match self.rate() {
            0 => INITIAL_PACKETS,
            rate => {
                (u128::from(rate) * u128::from(self.min_rtt.0) / u128::from(SECOND)) as u64 * gain
                    / 100
            }
        }
    }

    fn pacing_rate(&self) -> u64 {
        let gain = match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeBw => CYCLE[self.cycle.0],
            Mode::ProbeRtt => 100,
        };
        let rate = match self.rate() {
            0 => INITIAL_PACKETS * SECOND / self.min_rtt.0,
            rate => rate,
        };
        (rate * gain * 99 / 10_000).max(1)
    }

    /// The bundle that leaves now, its first number and its packets; else when to ask again, if that
    /// is not up to the peer.
    pub(crate) fn poll(&mut self, now_ns: u64) -> Result<(u64, u64), Option<u64>> {
        // A timeout: everything in flight is gone.
        if self.in_flight() > 0 && now_ns > self.heard_ns + SECOND {
            self.heard_psn = self.sent_psn;
            self.heard_ns = now_ns;
            self.bundles.clear();
            self.window = MIN_PACKETS;
        }
        if now_ns < self.free_ns {
            return Err(Some(self.free_ns));
        }
        let rate = self.pacing_rate();
        let bundle = (rate / 1000).clamp(2, BUNDLE_PACKETS);
        let packets = bundle.min(self.window.saturating_sub(self.in_flight()));
        if packets == 0 {
            return Err((self.in_flight() > 0).then_some(self.heard_ns + SECOND + 1));
        }
        if self.in_flight() == 0 {
            self.first_sent_ns = now_ns;
            self.delivered_ns = now_ns;
        }
        let first = self.sent_psn;
        self.sent_psn += packets;
        self.bundles.push_back(Sent {
            psn_end: self.sent_psn,
            sent_ns: now_ns,
            delivered: self.delivered,
            delivered_ns: self.delivered_ns,
            first_sent_ns: self.first_sent_ns,
            is_limited: self.delivered < self.limited_end,
        });
        self.free_ns = self.free_ns.max(now_ns) + packets * SECOND / rate;
        Ok((first, packets))
    }

    /// So many packets before this number came.
    pub(crate) fn on_ack(&mut self, now_ns: u64, next_psn: u64, packets: u64) {
        if next_psn <= self.heard_psn {
            return;
        }
        let lost = (next_psn - self.heard_psn).saturating_sub(packets);
        self.heard_psn = next_psn;
        self.heard_ns = now_ns;
        self.delivered += packets;
        self.delivered_ns = now_ns;
        while self.bundles.len() > 1 && self.bundles[0].psn_end < next_psn {
            self.bundles.pop_front();
        }
        let Some(sent) = self.bundles.front().copied() else { return };
        self.first_sent_ns = sent.sent_ns;
        let interval = (now_ns - sent.delivered_ns).max(sent.sent_ns - sent.first_sent_ns);
        let rate = (self.delivered - sent.delivered) * SECOND / interval.max(1);
        let is_round = sent.delivered >= self.round_end;
        if is_round {
            self.round += 1;
            self.round_end = self.delivered;
        }
        let tells = !sent.is_limited || rate >= self.rate();
        if interval >= self.min_rtt.0 / 2 && tells {
            self.on_rate(rate);
        }
        self.note_extra(now_ns, packets);
        let rtt_ns = now_ns - sent.sent_ns;
        let is_expired = now_ns > self.min_rtt.1 + MIN_RTT_LASTS_NS;
        if rtt_ns <= self.min_rtt.0 || is_expired {
            self.min_rtt = (rtt_ns, now_ns);
        }
        self.change_mode(now_ns, is_round, is_expired, lost > 0);
        self.set_window(packets, lost);
    }

    fn note_extra(&mut self, now_ns: u64, packets: u64) {
        let rate = self.rate();
        let expected = |since_ns: u64| rate * (now_ns - since_ns) / SECOND;
        let extra = &mut self.extra;
        if self.round >= extra.round + EXTRA_ROUNDS {
            extra.most = [0, extra.most[0]];
            extra.round = self.round;
        }
        if extra.packets <= expected(extra.since_ns) {
            (extra.since_ns, extra.packets) = (now_ns, 0);
        }
        extra.packets = (extra.packets + packets).min(self.window);
        let more = extra.packets - expected(extra.since_ns).min(extra.packets);
        extra.most[0] = extra.most[0].max(more);
    }

    fn on_rate(&mut self, rate: u64) {
        while self.rates.back().is_some_and(|kept| kept.0 <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((rate, self.round));
        while self.rates.front().is_some_and(|kept| kept.1 + RATE_ROUNDS < self.round) {
            self.rates.pop_front();
        }
    }

    fn change_mode(&mut self, now_ns: u64, is_round: bool, is_expired: bool, has_loss: bool) {
        if is_round && !self.is_full {
            if self.rate() * 100 >= self.full_rate * 125 {
                (self.full_rate, self.full_rounds) = (self.rate(), 0);
            } else {
                self.full_rounds += 1;
                self.is_full = self.full_rounds >= 3;
            }
        }
        if self.mode == Mode::Startup && self.is_full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && self.in_flight() <= self.path(100) {
            self.mode = Mode::ProbeBw;
            self.cycle = (2, now_ns);
        }
        if self.mode == Mode::ProbeBw {
            let is_full_length = now_ns - self.cycle.1 > self.min_rtt.0;
            let is_over = match CYCLE[self.cycle.0] {
                125 => is_full_length && (has_loss || self.in_flight() >= self.path(125)),
                75 => is_full_length || self.in_flight() <= self.path(100),
                _ => is_full_length,
            };
            if is_over {
                self.cycle = ((self.cycle.0 + 1) % CYCLE.len(), now_ns);
            }
        }
        if is_expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.probe_done_ns = None;
            let before = self.recovers.map_or(0, |recovers| recovers.1);
            self.prior_window = self.window.max(before);
        }
        if self.mode == Mode::ProbeRtt {
            self.limited_end = self.delivered + self.in_flight();
            match self.probe_done_ns {
                None if self.in_flight() <= MIN_PACKETS => {
                    self.probe_done_ns = Some(now_ns + PROBE_RTT_NS);
                }
                Some(done_ns) if now_ns > done_ns => {
                    self.min_rtt.1 = now_ns;
                    self.mode = if self.is_full { Mode::ProbeBw } else { Mode::Startup };
                    self.cycle = (2, now_ns);
                    self.window = self.window.max(self.prior_window);
                }
                _ => {}
            }
        }
    }

    fn set_window(&mut self, delivered: u64, lost: u64) {
        if let Some((end, prior)) = self.recovers {
            if self.delivered >= end {
                self.window = self.window.max(prior);
                self.recovers = None;
            }
        } else if lost > 0 {
            self.recovers = Some((self.delivered + self.in_flight(), self.window));
            self.window = self.in_flight() + delivered;
        }
        self.window = self.window.saturating_sub(lost).max(MIN_PACKETS);
        let gain = if self.is_full { 200 } else { HIGH_GAIN };
        let extra = if self.is_full { self.extra.most[0].max(self.extra.most[1]) } else { 0 };
        // No more than comes in a tenth of a second; and three bundles more, as tcp_bbr.c's
        // quantisation.
        let extra = extra.min(self.rate() / 10);
        let target =
            self.path(gain) + extra + 3 * (self.pacing_rate() / 1000).clamp(2, BUNDLE_PACKETS);
        if self.recovers.is_none() {
            self.window += delivered;
            if self.is_full {
                self.window = self.window.min(target);
            }
        } else {
            self.window = self.window.max(self.in_flight() + delivered);
        }
        self.window = self.window.max(MIN_PACKETS);
        if self.mode == Mode::ProbeRtt {
            self.window = MIN_PACKETS;
        }
    }

    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered * WIRE_BYTES
    }
}
