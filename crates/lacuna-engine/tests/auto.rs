//! The mode `auto` end to end: two queue pairs over the fake link.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::GeometryConfig;
use lacuna_proto::modes::Mode;
use lacuna_proto::modes::auto::{Choice, Chosen, Policy, Question, plan};
use lacuna_proto::qp::Event;
use lacuna_wire::ImmediateSplit;

const RATE: u64 = 100_000_000;

/// A fixed rate, so that the window does not hide the effects of the mode.
fn config(policy: Policy, chunk_packets: u32) -> PairConfig {
    let default = PairConfig::default();
    PairConfig {
        geometry: GeometryConfig { chunk_packets, ..default.geometry },
        mode: Mode::Auto,
        policy,
        controller: ControllerConfig::Fixed { rate_bits_per_s: RATE },
        ..default
    }
}

/// A policy with constant parity.
fn fixed<const PARITY: u8, const COPIES: u8>(_: &Question) -> Choice {
    Choice { parity: PARITY, repair_copies: COPIES }
}

const FIXED: [Policy; 6] =
    [fixed::<0, 1>, fixed::<0, 2>, fixed::<1, 1>, fixed::<3, 2>, fixed::<16, 1>, fixed::<255, 2>];

fn one_message(pair: &mut Pair, len: usize, immediate: Option<u32>) -> u64 {
    common::one_message(pair, len, 100, immediate)
}

#[test]
fn messages_of_all_lengths_arrive_whatever_is_chosen() {
    for loss_ppm in [0, 50_000] {
        for policy in FIXED.into_iter().chain([plan as Policy]) {
            let mut pair = Pair::new(config(policy, 3), Link { loss_ppm, ..Link::default() });
            for len in [0, 1, 1023, 1024, 1025, 4097, 98_304, 98_305, 500_003] {
                one_message(&mut pair, len, None);
                one_message(&mut pair, len, Some(0xDEAD_0000 ^ len as u32));
            }
        }
    }
}

#[test]
fn everything_at_once_on_random_lengths_whatever_is_chosen() {
    let link = Link {
        loss_ppm: 100_000,
        reorder_ppm: 300_000,
        duplicate_ppm: 100_000,
        corrupt_ppm: 10_000,
        ..Link::default()
    };
    for (seed, policy) in FIXED.into_iter().chain([plan as Policy]).enumerate() {
        let mut config = config(policy, 1 + seed as u32 % 4);
        config.geometry.channels = 1 + (seed % 3) as u8;
        config.geometry.stripe_packets = 1;
        config.geometry.max_message_bytes = if seed % 2 == 0 { 100 << 10 } else { 0 };
        config.geometry.split = [ImmediateSplit::DEFAULT, ImmediateSplit::WIDE][seed % 2];
        let mut pair = Pair::new(PairConfig { seed: seed as u64, ..config }, link);
        let mut rng = Rng::new(seed as u64);
        for _ in 0..15 {
            let len = rng.below(300_000) as usize;
            one_message(&mut pair, len, None);
        }
    }
}

#[test]
fn a_loss_at_the_end_is_repaired_without_a_round_trip() {
    let mut pair = Pair::new(config(fixed::<2, 1>, 4), Link::default());
    let lossless_ns = one_message(&mut pair, 500_000, None);
    let parity = pair.a.qp().stats().send.parity_packets;
    assert!(parity > 0 && parity < 40, "{parity} of 500 packets, of which ten ms are the tail");
    // Two chunks of the last submessage, and the packet that ends the message.
    pair.drop_data = Some(Box::new(|packet| [400, 421, 488].contains(&packet)));
    let lossy_ns = one_message(&mut pair, 500_000, None);
    let sent = pair.a.qp().stats().send;
    assert_eq!((sent.retransmitted_packets, sent.fallbacks), (0, 0));
    assert!(lossy_ns < lossless_ns + 3 * MS, "{lossy_ns} against {lossless_ns}");
}

#[test]
fn without_loss_parity_costs_no_time() {
    let took = |policy| {
        let mut pair = Pair::new(config(policy, 4), Link::default());
        one_message(&mut pair, 500_000, None)
    };
    assert_eq!(took(fixed::<0, 1>), took(fixed::<8, 1>));
}

#[test]
fn what_is_lost_before_the_tail_is_sent_again_while_data_go_out() {
    let mut pair = Pair::new(config(fixed::<4, 1>, 1), Link::default());
    let first = std::cell::Cell::new(true);
    pair.drop_data = Some(Box::new(move |packet| packet == 10 && first.replace(false)));
    one_message(&mut pair, 1_000_000, None);
    let sent = pair.a.qp().stats().send;
    assert_eq!((sent.retransmitted_packets, sent.fallbacks), (1, 0));
}

#[test]
fn a_message_that_others_follow_gets_no_parity() {
    let mut pair = Pair::new(config(plan, 1), Link { loss_ppm: 10_000, ..Link::default() });
    let posted: Vec<_> = (0..3).map(|_| pair.post(Side::B, 200_000)).collect();
    pair.run_for(50 * MS);
    let ids = [0, 1, 2].map(|_| pair.send(Side::A, vec![5; 200_000], None));
    let all = |pair: &mut Pair| ids.iter().all(|id| pair.status(Side::A, *id).outcome.is_some());
    assert!(pair.run_until(10 * SECOND, all));
    assert!(posted.iter().all(lacuna_proto::qp::PostedReceive::is_complete));
    let auto = pair.a.qp().stats().auto.unwrap();
    assert_eq!((auto.messages, auto.coded_messages), (3, 1));
}

#[test]
fn a_dark_spell_ends_in_a_complete_message() {
    for dark_from_ms in [2, 12, 22, 30] {
        let mut pair = Pair::new(config(fixed::<4, 2>, 1), Link::default());
        let posted = pair.post(Side::B, 300_000);
        pair.run_for(50 * MS);
        let data = Rng::new(1).bytes(300_000);
        let id = pair.send(Side::A, data.clone(), None);
        pair.run_for(dark_from_ms * MS);
        pair.link.dark = true;
        pair.run_for(SECOND);
        pair.link.dark = false;
        assert!(pair.run_until(10 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
        assert_eq!(pair.close(Side::B, posted), data);
    }
}

/// The choices for `count` messages.
fn choices(pair: &mut Pair, count: u32) -> Vec<u8> {
    let chosen = |pair: &mut Pair| {
        one_message(pair, 400_000, None);
        let auto = pair.a.qp().stats().auto.expect("the mode is auto");
        auto.last.expect("a message was sent").choice.parity
    };
    (0..count).map(|_| chosen(pair)).collect()
}

#[test]
fn the_choice_follows_a_path_that_changes() {
    let link = Link { rate_bits_per_s: Some(RATE), delay_ns: 20 * MS, ..Link::default() };
    let mut pair = Pair::new(config(plan, 1), link);
    let clean = choices(&mut pair, 60);
    assert_eq!(clean[30..], [0; 30], "nothing is lost: {clean:?}");
    pair.link.loss_ppm = 10_000;
    let lossy = choices(&mut pair, 40);
    println!("{lossy:?}");
    assert!(lossy[4..].iter().all(|parity| (2..=6).contains(parity)), "{lossy:?}");
    let loss = pair.a.qp().stats().auto.unwrap().estimate.loss();
    assert!((7e-3..14e-3).contains(&loss), "{loss}");
    pair.link.loss_ppm = 0;
    let healed = choices(&mut pair, 100);
    println!("{healed:?}");
    assert_eq!(healed[80..], [0; 20], "{healed:?}");
    let auto = pair.a.qp().stats().auto.unwrap();
    assert!(auto.changes <= 12, "it does not waver: {} changes", auto.changes);
}

#[test]
fn reordering_is_no_loss() {
    let link = Link { reorder_ppm: 200_000, reorder_ns: 5 * MS, ..Link::default() };
    let mut pair = Pair::new(config(plan, 1), link);
    choices(&mut pair, 30);
    let auto = pair.a.qp().stats().auto.unwrap();
    // A fifth of the packets is late; hardly any is lost.
    assert!(auto.estimate.lost_packets < 8.0, "{:?}", auto.estimate);
    assert!(pair.b.qp().stats().channels[0].packets > 11_000);
    // Over 29 seeds it is 0 to 4; a path that loses the delayed packets would get 16.
    assert!(auto.last.unwrap().choice.parity <= 4, "{auto:?}");
}

/// A's latest event about its choice.
fn choice(pair: &mut Pair) -> Option<Box<Chosen>> {
    pair.take_event(Side::A, |event| match event {
        Event::Chose(chosen) => Some(chosen.clone()),
        _ => None,
    })
}

#[test]
fn a_choice_is_told_once() {
    let link = Link { loss_ppm: 20_000, delay_ns: 20 * MS, ..Link::default() };
    let mut pair = Pair::new(config(plan, 1), link);
    assert_eq!(choice(&mut pair), None);
    // As the handshake's probes do.
    let now_ns = pair.now_ns;
    pair.a.qp().on_rtt_sample(now_ns, 40 * MS);
    choices(&mut pair, 1);
    let told = choice(&mut pair).expect("the first choice is one").to_string();
    assert!(told.contains("parity per 32 chunks for the end of a message"), "{told}");
    assert!(told.contains(": loss "), "{told}");
    assert_eq!(choice(&mut pair), None);
}
