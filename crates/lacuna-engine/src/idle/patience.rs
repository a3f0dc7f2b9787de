//! How long a queue pair can wait for a look at the sockets, by what it says of itself.

use lacuna_proto::qp::QueuePair;

/// A wait is such a part of the round trip at most, as a burst is paced to be.
const WAIT_RTT_PART: u64 = 40;
/// No longer, near a message's end: as long as a burst is paced for.
const WAIT_NS_MAX: u64 = 1_000_000;
/// The same parts in the middle of messages, of who sends and of who only receives: what
/// leaves or comes so much later there is no later at the end. What the sender holds
/// back leaves at once and waits at the bottleneck, and must not look like a queue,
/// which is a 16th of the path to `bbr`. Measured: M-engine-2.
const LONG_WAIT_RTT_PARTS: (u64, u64) = (20, 10);
/// The longest of these. What comes in it at 100 Mbit/s is most of a piece of
/// segmentation offload.
const LONG_WAIT_NS_MAX: u64 = 4_000_000;
/// So near to a message's end, waits are short again: more than a path has in flight
/// that is slow enough for long ones, mostly, so that what is lost of the last round
/// trip is not repaired later.
const NEAR_END_BYTES: u64 = 1 << 20;
/// Shorter ones save nothing where nobody knows that something comes.
const WAIT_NS_MIN: u64 = 200_000;
/// On shorter paths waits in the middle of long messages may be so long if that is such
/// a part of the round trip, of who sends and of who only receives: four reports in a
/// round trip are enough, and a quarter for who sends is two bursts. Measured: M-engine-2.
const SHORT_PATH_WAITS: ((u64, u64), (u64, u64)) = ((225_000, 4), (500_000, 4));
/// No waits over shorter paths: a wake-up is late by an eighth of this.
const WAIT_RTT_NS_MIN: u64 = 400_000;
/// A peer within a shorter round trip is near: what a sleeping thread takes to wake up is much of it.
const NEAR_RTT_NS: u64 = 500_000;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long an engine that has just moved much for the queue pair may leave its sockets alone. 0
    /// where that would be felt, or where what comes next decides how it goes on.
    pub wait_ns: u64,
    /// The peer is so near that to wait for it awake pays.
    pub is_near: bool,
}

impl Patience {
    /// That of a queue pair of which nothing is known.
    pub const NONE: Self = Self { wait_ns: 0, is_near: false };

    /// That of a queue pair now.
    #[inline]
    pub fn of(qp: &QueuePair) -> Self {
        let min_rtt_ns = qp.rtt().min_ns();
        Self {
            wait_ns: if qp.awaits_answer() { 0 } else { wait_ns(qp, min_rtt_ns.unwrap_or(0)) },
            is_near: min_rtt_ns.is_some_and(|min_rtt_ns| min_rtt_ns < NEAR_RTT_NS),
        }
    }
}

/// Next to nothing of a long path's round trip, and as long as a burst is paced for; in the middle of
/// long messages more, for those whom waking up costs more than what came.
#[inline]
fn wait_ns(qp: &QueuePair, min_rtt_ns: u64) -> u64 {
    if min_rtt_ns < WAIT_RTT_NS_MIN {
        return 0;
    }
    let (part, (most_ns, short_part)) = match qp.is_sending() {
        true => (LONG_WAIT_RTT_PARTS.0, SHORT_PATH_WAITS.0),
        false => (LONG_WAIT_RTT_PARTS.1, SHORT_PATH_WAITS.1),
    };
    let short_ns = most_ns.min(min_rtt_ns / short_part);
    let long_ns = (min_rtt_ns / part).clamp(short_ns, LONG_WAIT_NS_MAX);
    // Others keep a queue: who comes to it in bunches gets less of it.
    let is_queued = qp.rtt().smoothed_ns() > Some(min_rtt_ns + min_rtt_ns / 2);
    match (min_rtt_ns / WAIT_RTT_PART).min(WAIT_NS_MAX) {
        wait_ns if !is_queued && !qp.is_near_end(NEAR_END_BYTES) => wait_ns.max(long_ns),
        wait_ns if wait_ns >= WAIT_NS_MIN => wait_ns,
        _ => 0,
    }
}
