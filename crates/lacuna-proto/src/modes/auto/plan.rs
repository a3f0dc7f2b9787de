//! The policy of the mode `auto`: the parity of a message's tail with the least expected delay. Closed
//! forms as in `lacuna-model`, with loss bursts and the uncertainty of the estimate.
//!
//! # The cost of a choice
//!
//! The cost of q parity chunks per submessage is the delay of the message's end after its last data
//! packet, beyond that of a message without loss: mean + p99 / 2 + wire / 4.
//!
//! - *wire* is the time that the parity takes on the wire. A message with a loss waits for the parity;
//!   one without is complete before. A quarter of it counts in any case, because other flows may want
//!   the link (a judgement).
//! - If the parity does not suffice, or there is none, the delay is a round trip more.
//! - The p99 counts half: an application that waits for a message mostly waits for many, and the
//!   last of them decides. A judgement too; with weights from 1/4 to 1 the choice changes by one
//!   parity chunk.
//!
//! # Losses
//!
//! Bursts arrive as a Poisson process and have geometric lengths. Packets lost in a row hit
//! different rows of the code, as many as a submessage has, so one row sees bursts that are shorter
//! by this factor. The number of losses in a row of the code is then a sum of geometric numbers
//! (Polya-Aeppli); Panjer's recursion gives its distribution exactly, in a few dozen operations.
//!
//! The loss rate is known only as well as the evidence is long: it has a Gamma distribution, taken
//! here as two rates with the same mean and variance. A path on which a thousand packets came whole
//! may still lose one in a thousand, and a path of which nothing is known may be bad. So a first
//! message is hedged.
//!
//! # Repairs
//!
//! The part of a message before its tail has no parity. Its last losses are repaired in the last
//! round trip, and a repair that is lost again costs another round trip. Such repairs are few, so
//! each is sent as often as makes this rare. The costs above are those of parity, with repairs that
//! are sent once.
//!
//! Floating point is allowed here, because this is a planner that is asked once per message. The
//! same inputs give the same choice on one machine, and no packet's content depends on it.

use super::{CODE, Choice, Estimate, Question};

/// Round trips below which a tail gets no parity: everything in flight is in a socket buffer, and a
/// repair is quicker than the code.
const SHORT_RTT_NS: u64 = lacuna_path::controller::SHORT_PATH_NS;
/// Weights of the wire time and of the p99, relative to the mean.
const WIRE_WEIGHT: f64 = 0.25;
const P99_WEIGHT: f64 = 0.5;
/// Share of messages beyond the p99.
const P99: f64 = 0.01;
/// Prior of an unknown path: one in twelve is bad and loses three packets in a hundred. A message
/// that is sent whole before anything is heard meets such a path at its full price, and the parity
/// against it costs little. Both numbers were set with the grid of `tests/auto_grid.rs` in view, so
/// its first messages are no independent check of them; the same file has one.
const BAD_SHARE: f64 = 0.08;
const BAD_LOSS: f64 = 0.03;
/// Largest loss rate that is assumed.
const LOSS_MAX: f64 = 0.5;
/// Mean burst length from which on copies of a repair are useless, because they are lost together.
const BURST_PACKETS_MAX: f64 = 3.0;
/// Most copies of a repair, and the share of messages in which all copies of one may be lost: a
/// tenth of what the p99 leaves out. Both are judgements; at a loss of 10 % the first one binds.
const REPAIR_COPIES_MAX: u8 = 4;
const REPAIRS_FAIL: f64 = 1e-3;

/// The choice of least cost.
pub fn plan(question: &Question) -> Choice {
    let most = CODE.parity_chunks() as u8;
    let (mut parity, mut least) = (0, cost(question, 0));
    for more in 1..=most {
        if wire_ns(question, more) * WIRE_WEIGHT > least {
            break;
        }
        let cost = cost(question, more);
        if cost < least {
            (parity, least) = (more, cost);
        }
    }
    Choice { parity, repair_copies: repair_copies(question) }
}

/// Copies of each repair, so many that the last repairs of a message hardly ever all get lost:
/// those of the data before the tail, which parity does not cover and which the last round trip
/// repairs. They are few packets: 33 for 8 MiB over 40 ms at a loss of 1 %, where one message in a
/// hundred took a round trip more with two copies.
fn repair_copies(question: &Question) -> u8 {
    let estimate = &question.estimate;
    let is_long = estimate.rtt_ns >= SHORT_RTT_NS;
    let scattered = estimate.burst_packets < BURST_PACKETS_MAX;
    if !is_long || !scattered || question.is_followed {
        return 1;
    }
    let loss = estimate.loss().min(LOSS_MAX);
    let before = question.message_packets.saturating_sub(question.tail_packets);
    let repairs = f64::from(before.min(question.tail_packets)) * loss;
    let fails = |copies: u8| repairs * loss.powi(i32::from(copies)) > REPAIRS_FAIL;
    (2..REPAIR_COPIES_MAX).find(|copies| !fails(*copies)).unwrap_or(REPAIR_COPIES_MAX)
}

/// Cost of a choice in nanoseconds: mean + p99 / 2 + wire / 4, as described above.
pub fn cost(question: &Question, parity: u8) -> f64 {
    let estimate = &question.estimate;
    let is_short = estimate.rtt_ns < SHORT_RTT_NS || estimate.rate_bits_per_s == 0;
    if is_short || question.is_followed || question.tail_packets == 0 {
        return f64::from(parity);
    }
    let rtt_ns = estimate.rtt_ns as f64;
    let packet_ns = question.packet_bytes as f64 * 8e9 / estimate.rate_bits_per_s as f64;
    let tail = Tail::new(question);
    let tail_ns = (tail.packets * packet_ns).min(rtt_ns);
    let wire_ns = wire_ns(question, parity);
    let (mut mean_ns, mut any, mut fails) = (0.0, 0.0, 0.0);
    for (share, loss) in rates(estimate) {
        let bursts = tail.packets * loss / tail.burst;
        let some = -(-bursts).exp_m1();
        let (fail, late_ns) = match parity {
            // Losses lie anywhere in the tail, and the last of them decides. On average it lies
            // this much before the tail's end, and shows that much earlier.
            0 => (some, -(tail_ns * mean_after_last(bursts))),
            _ => (tail.fails(parity, loss), 0.0),
        };
        // A repair that is lost again costs another round trip.
        let again = -(-tail.packets * loss * loss).exp_m1() * fail;
        mean_ns += share * (some * wire_ns + fail * rtt_ns + late_ns + again * rtt_ns / 2.0);
        any += share * some;
        fails += share * fail;
    }
    let p99_ns = match (any > P99, fails > P99) {
        (_, true) => wire_ns + rtt_ns,
        (true, false) => wire_ns,
        (false, false) => 0.0,
    };
    // One nanosecond per parity chunk breaks ties in favour of less parity.
    mean_ns + P99_WEIGHT * p99_ns + WIRE_WEIGHT * wire_ns + f64::from(parity)
}

/// The time that the parity takes on the wire.
fn wire_ns(question: &Question, parity: u8) -> f64 {
    let rate = question.estimate.rate_bits_per_s.max(1) as f64;
    Tail::new(question).parity_packets(parity) * question.packet_bytes as f64 * 8e9 / rate
}

/// Mean part of the tail after the last of a Poisson number of losses, 0 where there is none: the
/// mean of 1 / (n + 1) over n >= 1.
fn mean_after_last(bursts: f64) -> f64 {
    if bursts < 1e-9 { 0.0 } else { -(-bursts).exp_m1() / bursts - (-bursts).exp() }
}

/// Possible loss rates of the path with their probabilities: two that have the mean and the
/// variance of the Gamma distribution after so many losses, and the rate of a bad path, whose
/// probability falls as packets are seen.
fn rates(estimate: &Estimate) -> [(f64, f64); 3] {
    let (loss, losses) = (estimate.loss(), estimate.lost_packets.max(1e-9));
    let bad = BAD_SHARE * (-BAD_LOSS * estimate.seen_packets).exp();
    let known = 1.0 - bad;
    if losses >= 1.0 {
        let spread = 1.0 / losses.sqrt();
        let high = (loss * (1.0 + spread)).min(LOSS_MAX);
        [(known / 2.0, loss * (1.0 - spread)), (known / 2.0, high), (bad, BAD_LOSS)]
    } else {
        let share = losses / (1.0 + losses);
        let high = (loss / share).min(LOSS_MAX);
        [(known * (1.0 - share), 0.0), (known * share, high), (bad, BAD_LOSS)]
    }
}

/// The tail in the terms of the code.
struct Tail {
    packets: f64,
    /// Data chunks of a submessage.
    data: f64,
    /// Most parity chunks that a submessage has.
    most: f64,
    /// Rows of the code in the whole tail.
    rows: f64,
    /// Mean losses in a row, on the wire and within a row of the code.
    burst: f64,
    burst_in_row: f64,
    /// Rows that one burst hits, and that fail together.
    rows_together: f64,
}

impl Tail {
    fn new(question: &Question) -> Self {
        let packets = f64::from(question.tail_packets);
        let in_turn = f64::from(question.rows.max(1));
        let (k, m) = (CODE.data_chunks() as f64, CODE.parity_chunks() as f64);
        let data = (packets / in_turn).ceil().min(k);
        let burst = question.estimate.burst_packets.max(1.0);
        Self {
            packets,
            data,
            most: (data * m / k).ceil(),
            rows: (packets / data).max(1.0),
            burst,
            burst_in_row: (burst / in_turn).max(1.0),
            rows_together: burst.min(in_turn),
        }
    }

    fn parity_packets(&self, parity: u8) -> f64 {
        f64::from(parity).min(self.most) * self.packets / self.data
    }

    /// The probability that some row misses more than this much parity repairs.
    fn fails(&self, parity: u8, loss: f64) -> f64 {
        let parity = f64::from(parity).min(self.most);
        let missing = missing_more(self.data + parity, parity as usize, loss, self.burst_in_row);
        -(self.rows / self.rows_together * (-missing).ln_1p()).exp_m1()
    }
}

/// The probability that more than `most` of the `chunks` in a row of the code are lost.
fn missing_more(chunks: f64, most: usize, loss: f64, burst: f64) -> f64 {
    let bursts = chunks * loss / burst;
    let stays = 1.0 - 1.0 / burst;
    // Panjer's recursion: chance[n] is the probability of n losses.
    let mut chance = [0.0; CODE_PARITY_MAX + 1];
    chance[0] = (-bursts).exp();
    let mut missing = -(-bursts).exp_m1();
    for n in 1..=most.min(CODE_PARITY_MAX) {
        let mut sum = 0.0;
        let mut length = 1.0 - stays;
        for j in 1..=n {
            if length < 1e-15 {
                break;
            }
            sum += j as f64 * length * chance[n - j];
            length *= stays;
        }
        chance[n] = bursts / n as f64 * sum;
        missing -= chance[n];
    }
    // After the subtractions, the last digits of a small probability are noise.
    if missing < 1e-12 { 0.0 } else { missing }
}

#[cfg(test)]
pub(super) fn row_fails(data: u32, parity: u8, loss: f64) -> f64 {
    missing_more(f64::from(data) + f64::from(parity), usize::from(parity), loss, 1.0)
}

/// Parity chunks of [`CODE`].
const CODE_PARITY_MAX: usize = 16;
