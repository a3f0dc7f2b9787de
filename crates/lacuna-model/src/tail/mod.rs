//! Selective repeat with parity for the end of a message: what the transport's mode `auto` does.
//!
//! A chunk that is lost is repeated one round trip later. While data still go out that costs the chunk's own
//! time on the link; only what is lost in the last round trip lengthens a message. So all data go out first,
//! and what of them nobody has judged when the last one leaves, the *tail*, gets parity then, behind
//! everything: `q` chunks for each submessage of it. From then on each repair goes out `c` times, and those
//! that are on their way get their copies behind the parity. How much parity, and how many copies, a
//! [rule](TailRule) says, which is not this crate's: whoever asks brings it, so that a plan's is that of the
//! transport. What follows from its answer is here.
//!
//! # The distribution
//!
//! `D` is when the last data chunk has left the link, `P` the time of the parity. Beyond `D` the message
//! waits for the last of these, which are independent where losses are:
//!
//! | | done with its `n`-th transmission with `a_n`, its transmissions are over at |
//! |---|---|
//! | chunk before the tail whose `J`-th repair is on its way at `D` | `a_{J+1}` at `D`, `a_{J+c}` at `D + P`, then `c` more each `O` |
//! | chunk of a tail without parity, sent at `x` | `a_1` at `D`, `a_{1+c}` at `x + O`, then `c` more each `O` |
//! | submessage with parity | `P(Bin(k+j, p) <= j)` with its `j`-th parity chunk; the rest, once its missing chunks were repeated `c` times, one `O` after its data (it misses more than `q`) or after its parity |
//!
//! Things of a kind reach each of these one behind the other at a steady pace, so `ln P(done)` is a sum of
//! straight [ramps](ramps::Ramps), and mean and quantiles follow from it.
//!
//! A code's chunks may be several packets long, *rows*, which it repairs each by itself; a burst of losses
//! meets as many. Under bursts a row sees the link's chain with the packets between its own left out, rows
//! of a submessage that a burst takes together count as one, and submessages in a row as [`ec`](crate::ec)
//! has them. Checked against a simulation that sends and judges every packet, and against the transport
//! (docs/model-against-transport.md).

mod ramps;
#[cfg(test)]
mod tests;

use crate::block::{Block, Parity, each_of, thinned};
use crate::error::check;
use crate::fate::Fate;
use crate::gilbert::ChunkChain;
use crate::missing::Repair;
use crate::{Code, Completion, ModelError, Transfer, binomial};
use ramps::{Ramp, Ramps};

/// So many things, or as near to each other, are not followed one by one.
const SINGLE_MAX: u64 = 64;
const FINE_PACKETS: f64 = 1.5;

/// Losses that are less likely than the likeliest by this factor are left out.
const NEGLIGIBLE: f64 = 1e-12;

/// What is known when the last data of a message have left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TailQuestion {
    /// Packets of the message.
    pub message_packets: u64,
    /// Packets of its tail.
    pub tail_packets: u64,
    /// Packets of a chunk of the code.
    pub rows: u32,
    /// Share of packets that the path loses.
    pub loss: f64,
    /// Mean length of a run of lost ones.
    pub burst_packets: f64,
    /// Round-trip time in seconds.
    pub rtt_s: f64,
    /// Seconds that a packet occupies the link.
    pub packet_s: f64,
}

/// What is done about the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailParity {
    /// Parity chunks of a submessage; a short one may have fewer.
    pub parity: u32,
    /// How often a repair goes out from the end of the data on, at least once.
    pub repair_copies: u32,
}

/// Decides what is done about a tail.
pub type TailRule = fn(&TailQuestion) -> TailParity;

/// A mode that sends parity for the tail alone.
#[derive(Debug, Clone, Copy)]
pub struct TailMode {
    /// The code that parity is part of: its `k`, and the most parity that it has. An MDS code.
    pub code: Code,
    /// Packets of a chunk of the code.
    pub rows: u32,
    /// A longer message is several of so many packets, of which only the last is treated so.
    pub slot_packets: u64,
    /// Decides how much of the parity is sent.
    pub rule: TailRule,
}

impl PartialEq for TailMode {
    fn eq(&self, other: &Self) -> bool {
        let same_rule = std::ptr::fn_addr_eq(self.rule, other.rule);
        let own = (self.code, self.rows, self.slot_packets);
        own == (other.code, other.rows, other.slot_packets) && same_rule
    }
}

/// Completion time of a message with parity for its tail, seen by the sender. Its chunks are packets, and
/// repairs take link time.
#[derive(Debug, Clone, PartialEq)]
pub struct TailCoding {
    rtt_s: f64,
    question: TailQuestion,
    choice: TailParity,
    parity_packets: u64,
    fallback: f64,
    ramps: Ramps,
}

impl TailCoding {
    /// A message whose tail is treated as the mode's rule says.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] for a code's chunk of no packets, or a slot.
    pub fn new(transfer: &Transfer, mode: &TailMode) -> Result<Self, ModelError> {
        Self::with_fate(transfer, mode, &Fate::new(*transfer.loss()))
    }

    /// The same, with the fate of the message's chunks.
    pub(crate) fn with_fate(
        transfer: &Transfer,
        mode: &TailMode,
        fate: &Fate,
    ) -> Result<Self, ModelError> {
        debug_assert_eq!(transfer.loss(), fate.loss());
        check("rows", mode.rows.into(), mode.rows > 0, "at least 1")?;
        let slot = mode.slot_packets;
        check("slot", slot as f64, slot > 0, "at least 1 packet")?;
        let schedule = Schedule::new(transfer, mode);
        let p = transfer.loss().probability();
        let after_loss = transfer.loss().chain().map_or(p, ChunkChain::loss_after_loss);
        let question = TailQuestion {
            message_packets: transfer.chunks(),
            tail_packets: schedule.tail,
            rows: mode.rows,
            loss: p,
            burst_packets: 1.0 / (1.0 - after_loss),
            rtt_s: transfer.rtt_s(),
            packet_s: transfer.chunk_s(),
        };
        let choice = (mode.rule)(&question);
        let choice = TailParity {
            parity: choice.parity.min(mode.code.m()),
            repair_copies: choice.repair_copies.max(1),
        };
        let parts =
            if choice.parity > 0 { schedule.parts(mode, choice.parity) } else { Vec::new() };
        let parity_packets = parts.iter().map(Part::parity_packets).sum();
        let mut waits = Waits { transfer, schedule, choice, fate, ramps: Vec::new() };
        waits.for_what_has_no_parity(parity_packets as f64);
        let ln_repaired = parts.iter().map(|part| waits.for_part(part)).sum::<f64>();
        let ramps = Ramps::new(waits.schedule.end * transfer.chunk_s(), waits.ramps);
        Ok(Self {
            rtt_s: transfer.rtt_s(),
            question,
            choice,
            parity_packets,
            fallback: -ln_repaired.exp_m1(),
            ramps,
        })
    }

    /// What the rule was asked.
    #[must_use]
    pub fn question(&self) -> &TailQuestion {
        &self.question
    }

    /// What it said.
    #[must_use]
    pub fn choice(&self) -> TailParity {
        self.choice
    }

    /// The probability that the parity does not repair the tail; `None` if it gets none.
    #[must_use]
    pub fn fallback_probability(&self) -> Option<f64> {
        (self.choice.parity > 0).then_some(self.fallback)
    }

    /// Share of what is sent that is parity.
    #[must_use]
    pub fn parity_share(&self) -> f64 {
        let parity = self.parity_packets as f64;
        parity / (self.question.message_packets as f64 + parity)
    }
}

impl Completion for TailCoding {
    fn mean_s(&self) -> f64 {
        self.rtt_s + self.ramps.mean_s()
    }

    fn cdf(&self, time_s: f64) -> f64 {
        self.ramps.ln_cdf(time_s - self.rtt_s).exp()
    }

    fn survival(&self, time_s: f64) -> f64 {
        -self.ramps.ln_cdf(time_s - self.rtt_s).exp_m1()
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        if probability <= 0.0 {
            return self.rtt_s + self.ramps.start_s();
        }
        self.rtt_s + self.ramps.quantile_s(probability)
    }
}

/// When data leave, in times of a packet.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    packets: u64,
    /// `O`: from the end of a transmission to that of its repetition.
    round: f64,
    /// The last data packet has left.
    end: f64,
    /// From one data packet to the next near the end: repairs take their share of the link.
    pace: f64,
    /// Packets that nothing was heard of when the last has left.
    unjudged: u64,
    /// Of these, the ones of submessages that nothing was heard of.
    tail: u64,
}

/// Submessages of the tail that are alike, in the order of sending.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Of a row.
    code: Code,
    submessages: u64,
    /// Rows in each.
    rows: u64,
    /// When the data of the first and the last have left.
    data: (f64, f64),
    /// When the parity of the first begins.
    parity: f64,
}

impl Part {
    fn parity_packets(&self) -> u64 {
        self.submessages * self.rows * u64::from(self.code.m())
    }
}

impl Schedule {
    fn new(transfer: &Transfer, mode: &TailMode) -> Self {
        let (packets, p) = (transfer.chunks(), transfer.loss().probability());
        let rtt = transfer.rtt_s() / transfer.chunk_s();
        let (count, round) = (packets as f64, rtt + 1.0);
        let is_long = count > round;
        let end = if is_long { round + (count - round) / (1.0 - p) } else { count };
        let pace = if is_long { 1.0 / (1.0 - p) } else { 1.0 };
        let unjudged = (rtt / pace).ceil().min(count) as u64;
        let submessage = u64::from(mode.code.k()) * u64::from(mode.rows);
        // Counted from the beginning of the last slot.
        let last = (packets - 1) % mode.slot_packets + 1;
        let judged = last.saturating_sub(unjudged).div_ceil(submessage).saturating_mul(submessage);
        Self { packets, round, end, pace, unjudged, tail: last.saturating_sub(judged) }
    }

    /// The tail with so many parity chunks for each submessage: the whole ones, and the last.
    fn parts(&self, mode: &TailMode, parity: u32) -> Vec<Part> {
        let (k, rows) = (u64::from(mode.code.k()), u64::from(mode.rows));
        let (whole, rest) = (self.tail / (k * rows), self.tail % (k * rows));
        let left = |behind: u64| self.end - behind as f64 * self.pace;
        let mut parts = Vec::new();
        // A code of less parity is a part of the whole one's.
        let mut add = |k: u64, parity: u32, submessages: u64, rows: u64, data, behind: u64| {
            if let Ok(code) = Code::mds(k as u32, parity)
                && submessages * rows > 0
            {
                let parity = self.end + behind as f64;
                parts.push(Part { code, submessages, rows, data, parity });
            }
        };
        let data = (left(self.tail.saturating_sub(k * rows)), left(rest));
        add(k, parity, whole, rows, data, 0);
        let behind = whole * rows * u64::from(parity);
        // Rows of a short submessage differ in length by one.
        let chunks = rest.div_ceil(rows);
        let parity = parity.min(mode.code.shortened_to(chunks).m());
        let longer = if rest % rows == 0 { rows } else { rest % rows };
        add(chunks, parity, u64::from(rest > 0), longer, (left(0), left(0)), behind);
        let shorter = if rest > rows { rows - longer } else { 0 };
        add(
            chunks.saturating_sub(1),
            parity,
            u64::from(rest > 0),
            shorter,
            (left(0), left(0)),
            behind,
        );
        parts
    }
}

/// What the message waits for beyond the end of its data.
struct Waits<'a> {
    transfer: &'a Transfer,
    schedule: Schedule,
    choice: TailParity,
    fate: &'a Fate,
    ramps: Vec<Ramp>,
}

impl Waits<'_> {
    /// Of `count` things of a kind together, `ln P(done)` is `from` before the first of these times, and
    /// reaches each of these values when all are past the second of the times beside it, one behind the
    /// other. In times of a packet.
    fn add(&mut self, count: u64, from: f64, stages: impl IntoIterator<Item = ((f64, f64), f64)>) {
        let packet_s = self.transfer.chunk_s();
        let mut before = from;
        for ((first, last), ln_done) in stages {
            let (gain, step) = (ln_done - before, (last - first) / (count - 1).max(1) as f64);
            before = before.max(ln_done);
            let mut ramp = |from: f64, to: f64, gain: f64| {
                let (from_s, to_s) = (from * packet_s, to * packet_s);
                self.ramps.push(Ramp { from_s, to_s, gain });
            };
            if step <= FINE_PACKETS || count > SINGLE_MAX {
                // As many are past at a time as if each took half a step before its time and half behind.
                ramp(first - step / 2.0, last + step / 2.0, gain);
            } else {
                for i in 0..count {
                    let at = first + i as f64 * step;
                    ramp(at, at, gain / count as f64);
                }
            }
        }
    }

    /// From one round of repairs to the next, with all copies.
    fn round(&self) -> f64 {
        self.schedule.round + f64::from(self.choice.repair_copies - 1)
    }

    /// Chunks before the tail, and the tail if it gets no parity.
    fn for_what_has_no_parity(&mut self, parity: f64) {
        let Schedule { packets, round, end, pace, unjudged, tail } = self.schedule;
        let rounds = self.fate.rounds(packets);
        let copies = self.choice.repair_copies as usize;
        // With so many transmissions, all of so many chunks have come.
        let done = |count: f64, transmissions: usize| count * rounds.ln_arrived(transmissions);
        let each = self.round();
        // Sent once, and judged only later.
        let coded = if self.choice.parity > 0 { tail } else { 0 };
        let (count, first) = (unjudged - coded, end - unjudged.saturating_sub(1) as f64 * pace);
        let last = end - coded as f64 * pace;
        let stages = (1..).map(|n| {
            let wait = round + (n - 1) as f64 * each;
            ((first + wait, last + wait), done(count as f64, 1 + n * copies))
        });
        let stages: Vec<_> = stages.take(1 + rounds.count() / copies).collect();
        if count > 0 {
            self.add(count, done(count as f64, 1), stages);
        }
        // Those of which a repair is on its way, and how many repairs that is.
        let mut on_their_way: Vec<(usize, f64, f64, f64)> = Vec::new();
        let mut last = end - unjudged as f64 * pace;
        for repairs in 1..=rounds.count() {
            if last <= 0.0 {
                break;
            }
            let first = (end - (repairs + 1) as f64 * round).max(0.0);
            let count = (last - first) / if last > round { pace } else { 1.0 };
            on_their_way.push((repairs, first, last, count));
            last = first;
        }
        let p = self.transfer.loss().probability();
        let lost =
            |(repairs, _, _, count): &(usize, f64, f64, f64)| count * p.powi(*repairs as i32);
        let copied = on_their_way.iter().map(lost).sum::<f64>();
        for (repairs, first, last, count) in on_their_way {
            let mut stages: Vec<((f64, f64), f64)> = Vec::new();
            // All their copies leave behind the parity, the first of each, then the second.
            for copy in 1..copies {
                let from = end + parity + (copy - 1) as f64 * copied;
                stages.push(((from, from + copied), done(count, repairs + 1 + copy)));
            }
            for n in 1..=1 + rounds.count() / copies {
                let transmissions = repairs + copies + n * copies;
                let wait = round + (n - 1) as f64 * each;
                let (first, last) = if copies == 1 {
                    let sent = repairs as f64 * round;
                    (first + sent, last + sent)
                } else {
                    let behind = end + parity + (copies - 1) as f64 * copied;
                    (behind - copied, behind)
                };
                stages.push(((first + wait, last + wait), done(count, transmissions)));
            }
            self.add(count.ceil() as u64, done(count, repairs + 1), stages);
        }
    }

    /// Submessages with parity. Returns the logarithm of the probability that it repairs all of them.
    fn for_part(&mut self, part: &Part) -> f64 {
        let Part { code, submessages, rows, data, parity } = *part;
        let Fates { ln_none, ln_early, repair, repeated, beyond } = self.fates(part);
        let (q, rows) = (f64::from(code.m()), rows as f64);
        let others = (submessages - 1) as f64 * rows * q;
        let mut stages: Vec<((f64, f64), f64)> = Vec::new();
        for (j, ln_done) in (1..).zip(&ln_early) {
            let first = parity + f64::from(j) * rows;
            stages.push(((first, first + others), *ln_done));
        }
        let ln_repaired = ln_early.last().copied().unwrap_or(ln_none);
        // The last of the chunks that go out again is as much behind the first.
        let (round, each) = (self.schedule.round + (repeated - 1.0).max(0.0), self.round());
        let count = submessages as f64;
        let not = |ln_done: f64| -(ln_done / count).exp_m1();
        let mut late = not(ln_repaired);
        for (n, ln_done) in repair.iter().enumerate() {
            // Those that miss more than the parity repairs are repeated when that is seen of their data.
            let wait = round + n as f64 * each;
            let next = not(*ln_done);
            let between = (1.0 - beyond) * late + beyond * next;
            stages.push(((data.0 + wait, data.1 + wait), count * (-between).ln_1p()));
            let first = parity + q * rows + wait;
            stages.push(((first, first + others), *ln_done));
            late = next;
        }
        self.add(submessages, ln_none, stages);
        ln_repaired
    }

    /// How a part fares, as logarithms of what becomes of all of it.
    fn fates(&self, part: &Part) -> Fates {
        let Part { code, submessages, rows, .. } = *part;
        let copies = self.choice.repair_copies as usize;
        let all = (submessages * rows) as f64;
        let (k, q) = (code.k(), code.m());
        let Some(chain) = self.fate.loss().chain() else {
            let p = self.fate.loss().probability();
            let ln_early = (1..=q).map(|j| {
                let early = Code::mds(k, j).map(|code| self.fate.outcome(code, 1).ln_success());
                all * early.unwrap_or(0.0)
            });
            let losses = Losses::new(code, p);
            // Of data, more are lost than the parity of all rows could repair.
            let lost = binomial::tails(u64::from(k) * rows, p, u64::from(q) * rows).1;
            let fails = self.fate.outcome(code, 1).failure;
            let one_fails = self.fate.outcome(code, 1).all_of(rows).failure;
            let rounds = self.fate.rounds(k.into()).count();
            let repair = (1..=1 + rounds / copies)
                .map(|n| all * (-losses.late(p.powi((n * copies) as i32)).min(fails)).ln_1p());
            return Fates {
                ln_none: all * f64::from(k) * self.fate.rounds(1).ln_arrived(1),
                ln_early: ln_early.collect(),
                repair: repair.chain([0.0]).collect(),
                // Of all rows that fail with one that does.
                repeated: losses.mean_missing() * (rows as f64 * fails / one_fails.max(fails)),
                beyond: if one_fails > 0.0 { (lost / one_fails).min(1.0) } else { 0.0 },
            };
        };
        // Rows that a burst takes together are one.
        let burst = 1.0 / (1.0 - chain.loss_after_loss());
        let count = submessages as f64 * rows as f64 / burst.clamp(1.0, rows as f64);
        let apart = thinned(chain, rows as u32);
        let packets = submessages * rows * u64::from(k);
        let ln_none = packets as f64 * self.fate.rounds(packets).ln_arrived(1);
        let mut least = ln_none;
        let early = Block::early(code, &apart).skip(1).map(|block| {
            let each = each_of(apart.stationary, &block.step, submessages).0;
            // Nor is it less likely with more parity.
            least = f64::max(least, count * each.ln_success());
            least
        });
        let ln_early = early.collect();
        let block = Block::new(code, &apart, Parity::Later);
        let repair =
            Repair::in_bursts(&block, submessages, &self.fate.rounds(block.chunks_if_any()));
        let after = |n: usize| count * repair.rounds.ln_arrived(1 + n * copies);
        Fates {
            ln_none,
            ln_early,
            repair: (1..=1 + repair.rounds.count() / copies).map(after).collect(),
            repeated: repair.mean_chunks_if_any,
            beyond: block.share_missing_more_than(q),
        }
    }
}

/// See [`Waits::fates`].
struct Fates {
    /// Nothing of its data is lost.
    ln_none: f64,
    /// The first, the first two, ... parity chunks repair it.
    ln_early: Vec<f64>,
    /// It has come after each round of repeats.
    repair: Vec<f64>,
    /// Chunks that go out again, where some do.
    repeated: f64,
    /// Of what the parity does not repair, the share that is seen from its data.
    beyond: f64,
}

/// Losses of a row that its parity does not repair: how many of its data and of its parity, where they are
/// independent.
struct Losses {
    parity: u32,
    /// Data and parity that are lost, and how likely that is.
    cases: Vec<(u32, u32, f64)>,
}

impl Losses {
    fn new(code: Code, p: f64) -> Self {
        let (of_data, of_parity) = (shares(code.k(), p), shares(code.m(), p));
        let mut cases = Vec::new();
        for (data, share) in (0..).zip(&of_data) {
            for (parity, other) in (0..).zip(&of_parity) {
                if data > 0 && data + parity > code.m() {
                    cases.push((data, parity, share * other));
                }
            }
        }
        let most = cases.iter().fold(0.0, |most, case| f64::max(most, case.2));
        cases.retain(|case| case.2 > most * NEGLIGIBLE);
        Self { parity: code.m(), cases }
    }

    /// The probability that the row is not whole once each of its lost data has stayed lost with `p` again:
    /// the parity that came repairs as many as it is.
    fn late(&self, p: f64) -> f64 {
        let late = |(data, lost, share): &(u32, u32, f64)| {
            let repairable = self.parity.saturating_sub(*lost);
            share * binomial::tails(u64::from(*data), p, repairable.into()).1
        };
        self.cases.iter().map(late).sum()
    }

    /// Data that are lost, on average.
    fn mean_missing(&self) -> f64 {
        let all: f64 = self.cases.iter().map(|case| case.2).sum();
        let missing: f64 = self.cases.iter().map(|case| f64::from(case.0) * case.2).sum();
        if all > 0.0 { missing / all } else { 0.0 }
    }
}

/// `P(Bin(n, p) = i)` for `i = 0, ..., n`.
fn shares(n: u32, p: f64) -> Vec<f64> {
    let odds = p / (1.0 - p);
    let first = (f64::from(n) * (-p).ln_1p()).exp();
    let next = |share: &f64, i: u32| share * odds * f64::from(n - i) / f64::from(i + 1);
    (0..n).fold(vec![first], |mut shares, i| {
        let share = shares.last().map_or(0.0, |share| next(share, i));
        shares.push(share);
        shares
    })
}
