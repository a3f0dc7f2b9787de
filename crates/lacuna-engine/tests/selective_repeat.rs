//! Selective repeat end to end: two queue pairs over the fake link.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::discard::Discard;
use lacuna_place::geometry::GeometryConfig;
use lacuna_proto::modes::{Mode, sr};
use lacuna_wire::{ImmediateSplit, Seal};

fn one_message(pair: &mut Pair, len: usize) -> u64 {
    common::one_message(pair, len, 0, None)
}

#[test]
fn a_posted_receive_costs_no_round_trip_before_the_first_byte() {
    let mut pair = Pair::new(PairConfig::default(), Link::default());
    let took_ns = one_message(&mut pair, 10_000);
    assert!(took_ns < 11 * MS, "one round trip is 10 ms, it took {took_ns}");
}

#[test]
fn messages_of_all_lengths_arrive() {
    let mut pair = Pair::new(PairConfig::default(), Link::default());
    for len in [0, 1, 3, 4, 5, 1023, 1024, 1025, 4095, 4096, 4097, 65_536, 1_000_003] {
        one_message(&mut pair, len);
    }
}

#[test]
fn a_lost_packet_is_repaired_one_round_trip_after_it_shows() {
    let config = PairConfig {
        controller: ControllerConfig::Fixed { rate_bits_per_s: 100_000_000 },
        ..PairConfig::default()
    };
    let mut pair = Pair::new(config, Link::default());
    let lossless_ns = one_message(&mut pair, 500_000);
    pair.link.loss_ppm = 20_000;
    let lossy_ns = one_message(&mut pair, 500_000);
    let extra_ns = lossy_ns - lossless_ns;
    assert!((1..25 * MS).contains(&extra_ns), "about one more round trip, not {extra_ns}");
}

#[test]
fn a_repair_whose_original_comes_late_is_counted_as_needless() {
    let mut pair = Pair::new(PairConfig::default(), Link::default());
    one_message(&mut pair, 100_000);
    assert_eq!(pair.a.qp().stats().spurious_repairs, 0);
    // The first packets that are overtaken: nobody knows yet that this path reorders.
    pair.link.reorder_ppm = 200_000;
    let posted = pair.post(Side::B, 100_000);
    pair.run_for(50 * MS);
    let id = pair.send(Side::A, vec![1; 100_000], None);
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
    // The repairs find the receive still open.
    pair.run_for(50 * MS);
    pair.close(Side::B, posted);
    let stats = pair.a.qp().stats();
    let repairs = stats.send.retransmitted_packets;
    assert!(
        (1..=repairs).contains(&stats.spurious_repairs),
        "{} of {repairs}",
        stats.spurious_repairs
    );
}

#[test]
fn copies_that_the_network_makes_are_no_needless_repairs() {
    let mut pair = Pair::new(PairConfig::default(), Link::default());
    pair.link.duplicate_ppm = 500_000;
    one_message(&mut pair, 100_000);
    pair.run_for(50 * MS);
    assert!(pair.b.qp().stats().channels[0].duplicates > 0);
    assert_eq!(pair.a.qp().stats().spurious_repairs, 0);
}

#[test]
fn without_nack_a_loss_costs_the_timeout() {
    let config = PairConfig {
        mode: Mode::SelectiveRepeat(sr::Config { nack: false }),
        controller: ControllerConfig::Fixed { rate_bits_per_s: 100_000_000 },
        ..PairConfig::default()
    };
    let mut pair = Pair::new(config, Link::default());
    let lossless_ns = one_message(&mut pair, 500_000);
    pair.link.loss_ppm = 20_000;
    let lossy_ns = one_message(&mut pair, 500_000);
    assert!(lossy_ns - lossless_ns > 15 * MS, "less than RTO - RTT: {}", lossy_ns - lossless_ns);
    let stats = pair.a.qp().stats();
    assert!(stats.send.retransmitted_chunks > 0);
    assert!(stats.timeouts > 0, "the timeouts that repaired are counted");
}

#[test]
fn a_lost_tail_is_found_by_asking_not_by_timeout() {
    let mut pair = Pair::new(PairConfig::default(), Link::default());
    one_message(&mut pair, 5000);
    let posted = pair.post(Side::B, 5000);
    pair.run_for(50 * MS);
    let start_ns = pair.now_ns;
    let data = Rng::new(5).bytes(5000);
    pair.link.dark = true;
    let id = pair.send(Side::A, data.clone(), None);
    // The whole message is lost; everything after it passes.
    pair.run_until(0, |_| true);
    pair.link.dark = false;
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
    let took_ns = pair.now_ns - start_ns;
    assert!(took_ns < 25 * MS, "two round trips and the flush delay, not {took_ns}");
    assert_eq!(pair.close(Side::B, posted), data);
}

#[test]
fn a_lost_tail_counts_as_lost_once_the_peer_says_that_it_was_sent() {
    for mode in [Mode::Raw, Mode::SR] {
        let mut pair = Pair::new(PairConfig { mode, ..PairConfig::default() }, Link::default());
        let posted = pair.post(Side::B, 5000);
        pair.run_for(50 * MS);
        pair.link.dark = true;
        pair.send(Side::A, vec![7; 5000], None);
        pair.run_until(0, |_| true);
        pair.link.dark = false;
        let sent = pair.a.qp().stats().send.packets;
        assert!(sent > 1, "the message is several packets");
        assert_eq!(pair.b.qp().stats().lost_packets(), 0, "nothing is known of them yet");
        pair.run_for(SECOND);
        assert_eq!(pair.b.qp().stats().lost_packets(), sent, "{mode}");
        pair.close(Side::B, posted);
    }
}

#[test]
fn a_lost_clear_to_send_is_asked_for() {
    let mut pair = Pair::new(PairConfig::default(), Link { dark: true, ..Link::default() });
    pair.post(Side::B, 1000);
    pair.run_for(20 * MS);
    pair.link.dark = false;
    assert!(!pair.a.qp().is_clear_to_send());
    assert!(pair.run_until(SECOND, |pair| pair.a.qp().is_clear_to_send()));
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    for controller in
        [ControllerConfig::Bbr, ControllerConfig::Fixed { rate_bits_per_s: 500_000_000 }]
    {
        let config = PairConfig { controller, ..PairConfig::default() };
        let link = Link { rate_bits_per_s: Some(1_000_000_000), ..Link::default() };
        let mut pair = Pair::new(config, link);
        for len in [100, 100_000, 5_000_000] {
            one_message(&mut pair, len);
        }
        let stats = pair.a.qp().stats();
        assert_eq!(stats.send.retransmitted_packets, 0, "{controller:?}");
        assert_eq!(stats.timeouts, 0);
        let stats = pair.b.qp().stats();
        assert_eq!((stats.lost_packets(), stats.channels[0].duplicates), (0, 0));
    }
}

#[test]
fn over_a_slow_path_answers_take_a_small_share_of_what_they_answer() {
    let link = Link { delay_ns: 20 * MS, rate_bits_per_s: Some(10_000_000), ..Link::default() };
    let mut pair = Pair::new(PairConfig::default(), link);
    // As connecting has measured it.
    let now_ns = pair.now_ns;
    pair.b.qp().on_rtt_sample(now_ns, 40 * MS);
    pair.recorded = Some(Vec::new());
    one_message(&mut pair, 4_000_000);
    let recorded = pair.recorded.take().unwrap();
    let bytes = |side| -> usize {
        let of_side = recorded.iter().filter(|(from, ..)| *from == side);
        of_side.map(|(.., packet)| packet.len()).sum()
    };
    let (there, back) = (bytes(Side::A), bytes(Side::B));
    assert!(back * 40 < there, "{back} for {there}");
}

#[test]
fn reordering_alone_causes_few_repairs() {
    let link = Link {
        reorder_ppm: 500_000,
        reorder_ns: 2 * MS,
        rate_bits_per_s: Some(1_000_000_000),
        ..Link::default()
    };
    let mut pair = Pair::new(PairConfig::default(), link);
    // The cost of learning about the reordering is paid in the first messages.
    for _ in 0..10 {
        one_message(&mut pair, 2_000_000);
    }
    let stats = pair.a.qp().stats();
    let share = stats.send.retransmitted_packets as f64 / stats.send.packets as f64;
    assert!(share < 0.05, "{share}");
}

#[test]
fn messages_land_in_the_order_of_the_receives() {
    let mut pair = Pair::new(PairConfig::default(), Link { loss_ppm: 50_000, ..Link::default() });
    let mut rng = Rng::new(9);
    let messages: Vec<Vec<u8>> = (0..50)
        .map(|_| {
            let len = rng.below(20_000) as usize;
            rng.bytes(len)
        })
        .collect();
    let ids: Vec<_> = messages.iter().map(|m| pair.send(Side::A, m.clone(), None)).collect();
    pair.run_for(30 * MS);
    let posted: Vec<_> = messages.iter().map(|_| pair.post(Side::B, 20_000)).collect();
    let done = pair.run_until(30 * SECOND, |pair| {
        ids.iter().all(|id| pair.status(Side::A, *id).outcome.is_some())
    });
    assert!(done);
    for (message, posted) in messages.iter().zip(posted) {
        assert_eq!(&pair.close(Side::B, posted), message);
    }
}

#[test]
fn a_message_longer_than_a_slot_takes_several() {
    let geometry = GeometryConfig { max_message_bytes: 64 << 10, ..PairConfig::default().geometry };
    let config = PairConfig { geometry, ..PairConfig::default() };
    let mut pair = Pair::new(config, Link { loss_ppm: 10_000, ..Link::default() });
    for len in [65_535, 65_536, 65_537, 131_072, 300_000] {
        one_message(&mut pair, len);
    }
}

#[test]
fn a_short_message_in_a_long_receive_leaves_the_next_receive_alone() {
    let geometry = GeometryConfig { max_message_bytes: 64 << 10, ..PairConfig::default().geometry };
    let config = PairConfig { geometry, ..PairConfig::default() };
    let mut pair = Pair::new(config, Link { loss_ppm: 10_000, ..Link::default() });
    let first = pair.post(Side::B, 300_000);
    let second = pair.post(Side::B, 1000);
    let short = Rng::new(1).bytes(70_000);
    let next = Rng::new(2).bytes(1000);
    let ids = [pair.send(Side::A, short.clone(), None), pair.send(Side::A, next.clone(), None)];
    let done = pair.run_until(30 * SECOND, |pair| {
        ids.iter().all(|id| pair.status(Side::A, *id).outcome == Some(Ok(())))
    });
    assert!(done);
    assert_eq!(pair.close(Side::B, first), short);
    assert_eq!(pair.close(Side::B, second), next);
}

#[test]
fn the_user_immediate_is_rebuilt_from_its_fragments() {
    for split in [ImmediateSplit::DEFAULT, ImmediateSplit::WIDE] {
        let geometry = GeometryConfig { split, ..PairConfig::default().geometry };
        let config = PairConfig { geometry, ..PairConfig::default() };
        let mut pair = Pair::new(config, Link { loss_ppm: 100_000, ..Link::default() });
        // Fewer packets than fragments, and more.
        for len in [0usize, 1, 1024, 5000, 100_000] {
            let immediate = 0xDEAD_0000 ^ len as u32;
            let posted = pair.post(Side::B, len + 100);
            let id = pair.send(Side::A, vec![7; len], Some(immediate));
            let done =
                pair.run_until(30 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some());
            assert!(done, "{len} bytes");
            assert_eq!(posted.immediate(), Some(immediate));
            assert_eq!(pair.close(Side::B, posted), vec![7; len]);
        }
    }
}

#[test]
fn slots_and_generations_wrap_around_many_times() {
    let geometry = GeometryConfig {
        split: ImmediateSplit::new(3, 21, 8).unwrap(),
        max_message_bytes: 1 << 20,
        ..PairConfig::default().geometry
    };
    let config = PairConfig { geometry, ..PairConfig::default() };
    let link = Link { loss_ppm: 50_000, duplicate_ppm: 50_000, ..Link::default() };
    let mut pair = Pair::new(config, link);
    for round in 0..100usize {
        one_message(&mut pair, 1000 + round);
    }
}

#[test]
fn several_channels_carry_one_message() {
    let geometry = GeometryConfig { channels: 4, ..PairConfig::default().geometry };
    let config = PairConfig { geometry, ..PairConfig::default() };
    let mut pair = Pair::new(config, Link { loss_ppm: 10_000, ..Link::default() });
    one_message(&mut pair, 1_000_000);
    let stats = pair.b.qp().stats();
    assert!(stats.channels.iter().all(|channel| channel.packets > 100), "{stats:?}");
}

#[test]
fn everything_at_once_on_random_lengths() {
    // Loss 20 %, reordering 50 %, duplication 20 %, corruption 1 %.
    let link = Link {
        loss_ppm: 200_000,
        reorder_ppm: 500_000,
        duplicate_ppm: 200_000,
        corrupt_ppm: 10_000,
        ..Link::default()
    };
    let mut rejected = 0;
    for seed in 0..6 {
        let geometry = GeometryConfig {
            channels: 1 + (seed % 3) as u8,
            max_message_bytes: if seed % 2 == 0 { 100 << 10 } else { 0 },
            ..PairConfig::default().geometry
        };
        let mode = Mode::SelectiveRepeat(sr::Config { nack: seed % 3 != 2 });
        let config = PairConfig { geometry, mode, seed, ..PairConfig::default() };
        let mut pair = Pair::new(config, link);
        let mut rng = Rng::new(seed);
        for _ in 0..20 {
            let len = rng.below(300_000) as usize;
            one_message(&mut pair, len);
        }
        rejected += pair.b.rejected;
        let channels = pair.b.qp().stats().channels;
        let damaged: u64 = channels.iter().map(|c| c.discarded[Discard::Key.index()]).sum();
        assert!(damaged > 0, "corruption was seen in packets whose key is in the trailer");
    }
    assert!(rejected > 0, "and in their headers, and control packets");
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let run = |seed| {
        let link = Link { loss_ppm: 50_000, ..Link::default() };
        let mut pair = Pair::new(PairConfig { seed, ..PairConfig::default() }, link);
        pair.recorded = Some(Vec::new());
        one_message(&mut pair, 200_000);
        pair.recorded.unwrap()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn what_the_window_cuts_off_ends_with_a_whole_bundle() {
    const BUNDLE: u32 = 7;
    let mut pair = Pair::new(PairConfig::default(), Link::default());
    let len = 1_000_000;
    let posted = pair.post(Side::B, len);
    pair.run_for(50 * MS);
    let data = Rng::new(1).bytes(len);
    let id = pair.send(Side::A, data.clone(), None);
    pair.a.qp().set_bundle(BUNDLE);
    // The first window: what is left of it is less than a bundle.
    let now_ns = pair.now_ns;
    let mut sent = 0;
    while let Some(run) = pair.a.qp().poll_transmit(now_ns, 0, 3 * BUNDLE) {
        assert_eq!(run.len() as u32 % BUNDLE, 0, "{} packets", run.len());
        sent += run.len();
    }
    assert!(sent > 0 && sent * 1024 < len, "{sent} packets: the window is the limit");
    // Those were lost. The rest is not a multiple of a bundle, and arrives.
    let done = pair.run_until(30 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some());
    assert!(done);
    assert_eq!(pair.close(Side::B, posted), data);
}

#[test]
fn more_on_its_way_than_an_acknowledgement_describes_is_repaired_as_soon() {
    // 1 Gbit/s over 250 ms: 28,000 packets, where an acknowledgement has room for 8,192 chunks.
    const RTT: u64 = 250 * MS;
    for mode in ["sr", "auto"] {
        let default = PairConfig::default();
        let config = PairConfig {
            geometry: GeometryConfig { mtu_bytes: 1024, chunk_packets: 1, ..default.geometry },
            mode: mode.parse().unwrap(),
            controller: ControllerConfig::Fixed { rate_bits_per_s: 1_000_000_000 },
            credit_bytes: 64 << 20,
            ..default
        };
        let link = Link {
            delay_ns: RTT / 2,
            rate_bits_per_s: Some(1_000_000_000),
            loss_ppm: 1000,
            ..Link::default()
        };
        let mut pair = Pair::new(config, link);
        let now_ns = pair.now_ns;
        pair.a.qp().on_rtt_sample(now_ns, RTT);
        let len = 48 << 20;
        let posted = pair.post(Side::B, len);
        pair.run_for(RTT);
        let start_ns = pair.now_ns;
        let data = Rng::new(3).bytes(len);
        let id = pair.send(Side::A, data.clone(), None);
        assert!(pair.run_until(60 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
        let took_ns = pair.now_ns - start_ns;
        assert!(pair.close(Side::B, posted) == data);
        let sending_ns =
            (len as u64 / 1024) * (1024 + Seal::default().overhead_bytes(false) as u64 + 28) * 8;
        let more_percent = (took_ns - sending_ns) * 100 / RTT;
        // One round trip in any case, one for a loss at the end, and half for a second loss.
        println!("{mode}: {more_percent} % of a round trip");
        assert!(more_percent < 260, "{mode}: {more_percent} % of a round trip");
    }
}
