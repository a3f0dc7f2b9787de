//! How long a worker may leave a queue pair alone: longer in the middle of long messages, and not
//! where an application would wait for it.

mod common;

use common::{MS, SECOND};
use lacuna_engine::idle::Patience;
use lacuna_engine::testing::{End, Link, Pair, PairConfig, Side};
use lacuna_path::controller::ControllerConfig;

const RTT_NS: u64 = 40 * MS;
/// The pacing rate: a message takes much longer than a round trip.
const RATE: u64 = 100_000_000;

fn pair(rtt_ns: u64) -> Pair {
    let config = PairConfig {
        controller: ControllerConfig::Fixed { rate_bits_per_s: RATE },
        ..PairConfig::default()
    };
    let pair = Pair::new(config, Link { delay_ns: rtt_ns / 2, ..Link::default() });
    // Nothing that it sends is answered; the handshake had measured the path.
    let now_ns = pair.now_ns;
    pair.b.qp().on_rtt_sample(now_ns, rtt_ns);
    pair
}

/// How long an engine may leave the sockets alone for this end.
fn wait_ns(end: &End, now_ns: u64) -> u64 {
    Patience::of(&end.qp(), now_ns).wait_ns
}

/// The waits that sender and receiver allow once `thousandths` of a message have arrived.
fn rests_at(len: usize, thousandths: u64) -> (u64, u64) {
    rests_over(RTT_NS, len, thousandths)
}

fn rests_over(rtt_ns: u64, len: usize, thousandths: u64) -> (u64, u64) {
    let pair = &mut pair(rtt_ns);
    run_to(pair, rtt_ns, len, thousandths);
    (wait_ns(&pair.a, pair.now_ns), wait_ns(&pair.b, pair.now_ns))
}

/// Sends a message until `thousandths` of it have arrived.
fn run_to(pair: &mut Pair, rtt_ns: u64, len: usize, thousandths: u64) {
    let posted = pair.post(Side::B, len);
    pair.run_for(2 * rtt_ns);
    pair.send(Side::A, vec![1; len], None);
    let came = |pair: &Pair| pair.b.qp().stats().channels.iter().map(|c| c.bytes).sum::<u64>();
    let wanted = len as u64 * thousandths / 1000;
    assert!(pair.run_until(60 * SECOND, |pair| came(pair) >= wanted), "it did not come");
    assert!(!posted.is_complete());
}

#[test]
fn in_the_middle_of_a_long_message_rests_are_long_and_the_senders_are_no_queue() {
    assert_eq!(rests_at(8 << 20, 500), (RTT_NS / 20, RTT_NS / 10));
}

#[test]
fn near_the_end_of_a_message_rests_are_short_and_a_sender_that_waits_takes_none() {
    // Half a megabyte is in flight, as much as the path holds: 1/16 of the message.
    assert_eq!(rests_at(8 << 20, 860), (RTT_NS / 40, RTT_NS / 10));
    assert_eq!(rests_at(8 << 20, 910), (RTT_NS / 40, RTT_NS / 40));
    assert_eq!(rests_at(8 << 20, 985), (0, RTT_NS / 40));
}

#[test]
fn a_short_message_is_near_its_end_from_its_beginning() {
    assert_eq!(rests_at(900_000, 400), (RTT_NS / 40, RTT_NS / 40));
}

#[test]
fn on_shorter_paths_rests_are_a_quarter_at_most_in_the_middle_and_none_at_the_end() {
    assert_eq!(rests_over(MS / 2, 8 << 20, 500), (MS / 8, MS / 8));
    assert_eq!(rests_over(MS, 8 << 20, 500), (225_000, MS / 4));
    assert_eq!(rests_over(MS, 8 << 20, 910), (0, 0));
    assert_eq!(rests_over(3 * MS, 8 << 20, 500), (225_000, MS / 2));
    assert_eq!(rests_over(MS / 4, 8 << 20, 500), (0, 0), "a wake-up takes as long");
}

#[test]
fn behind_a_queue_that_others_keep_rests_are_short() {
    for (rtt_ms, short_ns) in [(40, MS), (1, 0)] {
        let rtt_ns = rtt_ms * MS;
        let pair = &mut pair(rtt_ns);
        run_to(pair, rtt_ns, 8 << 20, 500);
        let now_ns = pair.now_ns;
        for side in [&mut pair.a, &mut pair.b] {
            assert!(wait_ns(side, now_ns) > short_ns);
            (0..50).for_each(|_| side.qp().on_rtt_sample(now_ns, 2 * rtt_ns));
            assert_eq!(wait_ns(side, now_ns), short_ns, "{rtt_ms} ms");
        }
    }
}
