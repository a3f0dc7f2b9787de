//! How long a message takes that is alone on its connection.
//!
//! Its sender knows after `B + K1 (RTT + e) + K2 tau'`: `B` is the time without losses, the message with the
//! repairs of all blocks but the last, and one round trip; `K1` is how often the connection goes back because its
//! receiver says so, `e` the time on the link from the missing packet to the one that shows it; `K2` is how often
//! nothing shows it, and the timeout must:
//!
//! - everything from the missing packet to the message's end is lost. The timeout then runs from the last
//!   acknowledgement, a round trip later, so that it costs `(tau + 1) RTT`;
//! - a packet that is sent again is missing again, which its receiver does not say twice. It costs `tau RTT`.
//!
//! The means of both follow from the chance `a_i` that block `i` is the first that fails, counted from where the
//! connection goes back to: `G_n = sum_i a_i (1 + G_(n-i))`, since after a round trip the link has
//! forgotten what it was. Beyond [`BLOCKS_EXACT`] blocks they grow by the same for each block.
//!
//! Each block fails as often as it must, so `K1` is a negative binomial variable: failures before so many
//! successes. Its chance is set so that the mean is right, which makes it exact without bursts; `K2` likewise.

use super::connection::{GoBackN, rows, total};
use crate::binomial;
use crate::completion::{Completion, quantile_between};
use crate::gilbert::row_times;

/// Blocks up to which each is followed.
const BLOCKS_EXACT: usize = 512;

/// More timeouts of a message on average are not told apart from other reasons: their number hardly varies.
const TIMEOUTS_APART: f64 = 20.0;
/// No more are counted then.
const TIMEOUTS_MAX: u64 = 1000;
/// What is less likely is left out.
const NEGLIGIBLE: f64 = 1e-15;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionMessage {
    base_s: f64,
    blocks: u64,
    /// Mean and cost of going back when told so.
    told: (f64, f64),
    /// Of going back by the timeout.
    silent: (f64, f64),
    timeouts: f64,
}

/// Expected numbers of one message.
#[derive(Debug, Clone, Copy, Default)]
struct Means {
    /// Times that the connection goes back.
    all: f64,
    /// Of these by the timeout: at the message's end, and because the same packet is missing again.
    at_end: f64,
    again: f64,
}

impl ConnectionMessage {
    /// A message of so many packets with nothing else on the connection.
    #[must_use]
    pub fn new(connection: &GoBackN, packets: u64) -> Self {
        let packets = packets.max(1);
        let path = &connection.path;
        let blocks = connection.blocks_of(packets);
        let last = blocks.last();
        let means = means(connection, packets);
        let wire = blocks.wire() - f64::from(last.repairs);
        let extra = connection.failure_packets() - connection.found();
        // The repairs of the last block are waited for if it has lost something and they save it.
        let clean =
            total(connection.stationary, &connection.packet.step.repeated(last.data.into()).ok);
        let saved = 1.0 - clean - total(connection.stationary, &last.step.lost);
        let waits = saved.max(0.0) * f64::from(last.repairs + 1) / 2.0;
        let base_s = (wire + waits) * path.packet_s + path.rtt_s;
        // A single packet's timeout begins when it leaves, not with an acknowledgement.
        let acknowledged = if packets > 1 { 1.0 } else { 0.0 };
        let silent = means.at_end + means.again;
        let timeouts = silent;
        let timeout_rtts = if silent > 0.0 {
            path.timeout_rtts + acknowledged * means.at_end / silent
        } else {
            path.timeout_rtts
        };
        let mut told = ((means.all - silent).max(0.0), path.rtt_s + extra * path.packet_s);
        let mut silent = (silent, timeout_rtts * path.rtt_s);
        if silent.0 > TIMEOUTS_APART {
            let all = told.0 + silent.0;
            told = (all, (told.0 * told.1 + silent.0 * silent.1) / all);
            silent.0 = 0.0;
        }
        let blocks = blocks.count + u64::from(blocks.short.is_some());
        Self { base_s, blocks, told, silent, timeouts }
    }

    /// How often the connection goes back, on average.
    #[must_use]
    pub fn failures(&self) -> f64 {
        self.told.0 + self.silent.0
    }

    /// How often it does so because a timeout has expired.
    #[must_use]
    pub fn timeouts(&self) -> f64 {
        self.timeouts
    }

    /// The time without losses: no message takes less.
    #[must_use]
    pub fn least_s(&self) -> f64 {
        self.base_s
    }

    /// The probability of going back at most so often for a reason of this mean.
    fn at_most(&self, mean: f64, most: u64) -> (f64, f64) {
        let each = mean / self.blocks as f64;
        binomial::tails(self.blocks.saturating_add(most), each / (1.0 + each), most)
    }
}

/// See the module's text.
fn means(connection: &GoBackN, packets: u64) -> Means {
    let blocks = connection.blocks_of(packets);
    let exact = blocks.count.min(BLOCKS_EXACT as u64) as usize;
    let full = &connection.full;
    let (full_lost, last_lost) = (rows(&full.step.lost), rows(&blocks.last().step.lost));
    if full_lost == [0.0; 2] && last_lost == [0.0; 2] {
        return Means::default();
    }
    let stationary = connection.stationary;
    let dot = |a: [f64; 2], b: [f64; 2]| a[0] * b[0] + a[1] * b[1];

    // Of one packet after the other to the end: all lost, and first some that came.
    let packet = &connection.packet.step;
    let last_packets = blocks.last().data as usize;
    let ends = if connection.shim.is_none() { exact } else { last_packets };
    let (mut came, mut all_lost, mut behind) = (stationary, stationary, [0.0; 2]);
    // P(something is missing, and everything behind it): with 1, 2, ... packets.
    let (mut suffix, mut whole) = (Vec::with_capacity(ends), Vec::with_capacity(ends));
    for _ in 0..ends {
        let both = [behind[0] + came[0], behind[1] + came[1]];
        behind = row_times(both, &packet.lost);
        came = row_times(came, &packet.ok);
        all_lost = row_times(all_lost, &packet.lost);
        suffix.push(behind[0] + behind[1]);
        whole.push(all_lost[0] + all_lost[1]);
    }

    // a_i of full blocks, and the chance that i of them come and the short one behind does not.
    let mut states = stationary;
    let (mut first, mut short) = (Vec::with_capacity(exact), Vec::with_capacity(exact + 1));
    for _ in 0..=exact {
        first.push(dot(states, full_lost));
        short.push(if blocks.short.is_some() { dot(states, last_lost) } else { 0.0 });
        states = row_times(states, &full.step.ok);
    }
    // Of a failed block at the end of a message below a shim, the chance that nothing comes behind what is
    // missing; and of any block that goes again, that the same packet is missing.
    let at_end = |failure: f64| match connection.shim {
        None => 0.0,
        Some(_) => failure.min(suffix.last().copied().unwrap_or(0.0)),
    };
    let failure = first[0];
    let again_share = if failure > 0.0 { connection.lost_again() / failure } else { 0.0 };

    // By the number of full blocks that are left, the short one besides: of an attempt that is not the
    // first, going back and its reasons.
    let mut left: Vec<Means> = Vec::with_capacity(exact + 1);
    let stop = |x: f64| 1.0 / (1.0 - x);
    let alone = short[0];
    left.push(Means { all: alone * stop(alone), at_end: at_end(alone) * stop(alone), again: 0.0 });
    let of_attempt = |left: &[Means], n: usize| {
        let mut sum = Means::default();
        for i in 1..n {
            let then = &left[n - i];
            sum.all += first[i] * (1.0 + then.all);
            sum.at_end += first[i] * then.at_end;
            sum.again += first[i] * then.again;
        }
        let then = &left[0];
        sum.all += short[n] * (1.0 + then.all);
        sum.at_end += short[n] * then.at_end;
        sum.again += short[n] * then.again;
        // Nothing comes behind what is missing. If it is the first packet, that is missing again.
        sum.at_end += match connection.shim {
            None => suffix[n - 1] - whole[n - 1],
            Some(_) if blocks.short.is_some() => at_end(short[n]),
            Some(_) => at_end(first[n - 1]),
        };
        sum
    };
    for n in 1..=exact {
        let sum = of_attempt(&left, n);
        left.push(Means {
            all: (sum.all + failure) * stop(failure),
            at_end: sum.at_end * stop(failure),
            again: (sum.again + failure * again_share) * stop(failure),
        });
    }
    let first_attempt = |n: usize| {
        if n == 0 {
            return left[0];
        }
        let mut sum = of_attempt(&left, n);
        let then = left[n];
        sum.all += failure * (1.0 + then.all);
        sum.at_end += failure * then.at_end;
        sum.again += failure * then.again;
        if connection.shim.is_none() {
            sum.at_end += whole[n - 1];
        }
        sum
    };
    let mut means = first_attempt(exact);
    let more = blocks.count - exact as u64;
    if more > 0 {
        let half = exact / 2;
        let (all, again) = (left[exact].all - left[half].all, left[exact].again - left[half].again);
        let more = more as f64 / (exact - half) as f64;
        means.all += more * all;
        means.again += more * again;
    }
    means
}

impl Completion for ConnectionMessage {
    fn mean_s(&self) -> f64 {
        self.base_s + self.told.0 * self.told.1 + self.silent.0 * self.silent.1
    }

    fn cdf(&self, time_s: f64) -> f64 {
        1.0 - self.survival(time_s)
    }

    fn survival(&self, time_s: f64) -> f64 {
        let over_s = (time_s - self.base_s) * (1.0 + 1e-12);
        if over_s < 0.0 {
            return 1.0;
        }
        let (mut survives, mut before) = (0.0, 1.0);
        for timeouts in 0..TIMEOUTS_MAX {
            // P(K2 > timeouts - 1) - P(K2 > timeouts).
            let (_, more) = self.at_most(self.silent.0, timeouts);
            let (this, left_s) = (before - more, over_s - timeouts as f64 * self.silent.1);
            before = more;
            if left_s < 0.0 {
                return (survives + this + more).min(1.0);
            }
            let most = (left_s / self.told.1.max(f64::MIN_POSITIVE)).min(1e15) as u64;
            survives += this * self.at_most(self.told.0, most).1;
            if more < NEGLIGIBLE {
                break;
            }
        }
        (survives + before).min(1.0)
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        let likely_s = 2.0 * self.mean_s();
        quantile_between(probability, self.base_s, (self.base_s, likely_s), |time_s| {
            self.survival(time_s)
        })
    }
}
