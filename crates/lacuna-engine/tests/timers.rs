//! The named timers of a queue pair.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_proto::qp::Timer;

const RTT_NS: u64 = 40 * MS;

fn pair() -> Pair {
    let controller = ControllerConfig::Fixed { rate_bits_per_s: 100_000_000 };
    let config = PairConfig { controller, ..PairConfig::default() };
    let mut pair = Pair::new(config, Link { delay_ns: RTT_NS / 2, ..Link::default() });
    pair.post(Side::B, 1 << 20);
    pair.run_for(2 * RTT_NS);
    pair
}

fn next(pair: &Pair) -> Option<Timer> {
    let next = pair.a.qp().next_timer(u32::MAX);
    assert_eq!(next.map(|(due_ns, _)| due_ns), pair.a.qp().poll_timeout());
    next.map(|(_, timer)| timer)
}

#[test]
fn a_sender_waits_for_its_pace_then_for_an_answer_and_then_for_nothing() {
    let mut pair = pair();
    assert_eq!(next(&pair), None);
    let id = pair.send(Side::A, vec![1; 1 << 20], None);
    pair.run_for(RTT_NS / 4);
    assert_eq!(next(&pair), Some(Timer::Pace(0)));
    assert!(pair.run_until(SECOND, |pair| !pair.a.qp().has_queued()));
    assert_eq!(next(&pair), Some(Timer::Flush(0)));
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).finished));
    pair.run_for(2 * RTT_NS);
    assert_eq!(next(&pair), None);
}

#[test]
fn a_worker_is_not_called_for_the_channels_of_others() {
    let mut pair = pair();
    pair.send(Side::A, vec![1; 1 << 20], None);
    pair.run_for(RTT_NS / 4);
    let (_, timer) = pair.a.qp().next_timer(0).expect("what is in flight may be lost");
    assert_ne!(timer, Timer::Pace(0));
}
