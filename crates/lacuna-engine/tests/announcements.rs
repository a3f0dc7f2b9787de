//! Announcements of receives that get lost, on a path so long that a round trip more is felt.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Side};
use lacuna_proto::modes::Mode;

const RTT_NS: u64 = 40 * MS;

/// How long a message takes from the time when its receive is posted, if so many packets of the receiver are lost then.
fn took_ns(mode: Mode, answers_lost: u32) -> u64 {
    let config = PairConfig { mode, ..PairConfig::default() };
    let mut pair = Pair::new(config, Link { delay_ns: RTT_NS / 2, ..Link::default() });
    // The receiver learns the round trip.
    pair.post(Side::A, 1 << 10);
    pair.run_for(2 * RTT_NS);
    let id = pair.send(Side::B, vec![1; 1 << 10], None);
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::B, id).finished));
    pair.send(Side::A, vec![7; 20_000], None);
    // Long enough that the sender asks seldom.
    pair.run_for(10 * SECOND);
    let posted_ns = pair.now_ns;
    let posted = pair.post(Side::B, 20_000);
    pair.answers_lost = answers_lost;
    assert!(pair.run_until(posted_ns + SECOND, |_| posted.is_complete()));
    pair.now_ns - posted_ns
}

#[test]
fn a_lost_announcement_costs_a_sender_that_waits_no_round_trip() {
    for mode in [Mode::SR, Mode::BOUNDED] {
        let usual_ns = took_ns(mode, 0);
        assert!((RTT_NS..RTT_NS + 5 * MS).contains(&usual_ns), "{mode}: {usual_ns}");
        let took_ns = took_ns(mode, 1);
        assert!(took_ns <= usual_ns + 2 * MS, "{mode}: {took_ns} beside {usual_ns}");
    }
}
