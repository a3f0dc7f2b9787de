//! How long a queue pair can wait for the next step, from what the protocol knows.

use lacuna_proto::qp::QueuePair;

/// Longest wait as a part of the round-trip time (1/40): the part that a burst is paced over.
const WAIT_RTT_PART: u64 = 40;
/// Longest wait near a message's end: as long as a burst is paced over.
const WAIT_NS_MAX: u64 = 1_000_000;
/// Longest waits in the middle of long messages, as parts of the round-trip time: of a sender
/// (1/20) and of a receiver (1/10). A delay there does not delay the message's end. Packets that a
/// sender holds back leave in one go and queue at the bottleneck, which must stay below the 16th of
/// the path that `bbr` takes for a queue. Measured: M-engine-2.
const LONG_WAIT_RTT_PARTS: (u64, u64) = (20, 10);
/// Upper bound of these waits. At 100 Mbit/s, most of a segmentation-offload bundle arrives in it.
const LONG_WAIT_NS_MAX: u64 = 4_000_000;
/// With fewer bytes left to a message's end, waits are short again. It is mostly more than a path
/// has in flight that is slow enough for long waits, so losses of the last round trip are not
/// repaired later.
const NEAR_END_BYTES: u64 = 1 << 20;
/// Shortest wait near a message's end, where nobody knows whether more arrives: shorter ones save
/// nothing.
const WAIT_NS_MIN: u64 = 200_000;
/// On shorter paths: the wait in the middle of long messages, and the part of the round-trip time
/// that it must not exceed, for a sender and a receiver. Four reports per round trip are enough,
/// and a quarter of it is two bursts of a sender. Measured: M-engine-2.
const SHORT_PATH_WAITS: ((u64, u64), (u64, u64)) = ((225_000, 4), (500_000, 4));
/// Shorter paths allow no wait: a wake-up is late by an eighth of this.
const WAIT_RTT_NS_MIN: u64 = 400_000;
/// Round-trip time below which a peer is near: the wake-up of a sleeping thread takes a good part
/// of it.
const NEAR_RTT_NS: u64 = 500_000;

/// How long a queue pair can wait for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long the sockets may be left alone after a burst of this queue pair. 0 if the delay
    /// would matter, or if the queue pair waits for an answer or a receive ends soon.
    pub wait_ns: u64,
    /// The peer is so near that spinning pays.
    pub is_near: bool,
}

impl Patience {
    /// Of a queue pair of which nothing is known.
    pub const NONE: Self = Self { wait_ns: 0, is_near: false };

    /// Of a queue pair that waits for nothing, at the end of a path with such round trips.
    pub fn of_path(rtt_ns: Option<u64>) -> Self {
        Self { wait_ns: 0, is_near: rtt_ns.is_some_and(|rtt_ns| rtt_ns < NEAR_RTT_NS) }
    }

    /// The present patience of a queue pair.
    #[inline]
    pub fn of(qp: &QueuePair, now_ns: u64) -> Self {
        let min_rtt_ns = qp.rtt().min_ns();
        // A receive that ends during the longest wait must not end late.
        let is_ending =
            qp.receive_due_ns().is_some_and(|due_ns| due_ns < now_ns + LONG_WAIT_NS_MAX);
        let is_impatient = is_ending || qp.awaits_answer();
        Self {
            wait_ns: if is_impatient { 0 } else { wait_ns(qp, min_rtt_ns.unwrap_or(0)) },
            is_near: min_rtt_ns.is_some_and(|min_rtt_ns| min_rtt_ns < NEAR_RTT_NS),
        }
    }
}

/// The wait that a queue pair allows: a small part of a long path's round-trip time; in the middle
/// of long messages a larger part, since on slow paths a wake-up costs more than handling the
/// packets.
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
    // Other flows keep a queue: a flow that arrives in bunches gets less of it.
    let is_queued = qp.rtt().smoothed_ns() > Some(min_rtt_ns + min_rtt_ns / 2);
    match (min_rtt_ns / WAIT_RTT_PART).min(WAIT_NS_MAX) {
        wait_ns if !is_queued && !qp.is_near_end(NEAR_END_BYTES) => wait_ns.max(long_ns),
        wait_ns if wait_ns >= WAIT_NS_MIN => wait_ns,
        _ => 0,
    }
}
