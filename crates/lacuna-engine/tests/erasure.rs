//! Erasure coding end to end: two queue pairs over the fake link.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::GeometryConfig;
use lacuna_proto::modes::Mode;
use lacuna_proto::qp::QpStats;
use lacuna_wire::{ImmediateSplit, Packet, parse};
use std::cell::Cell;

/// A fixed rate, so that the window does not hide the effects of the mode.
fn config(mode: &str, chunk_packets: u32) -> PairConfig {
    let default = PairConfig::default();
    PairConfig {
        geometry: GeometryConfig { chunk_packets, ..default.geometry },
        mode: mode.parse().unwrap(),
        controller: ControllerConfig::Fixed { rate_bits_per_s: 100_000_000 },
        ..default
    }
}

fn one_message(pair: &mut Pair, len: usize) -> u64 {
    common::one_message(pair, len, 100, None)
}

/// Packet numbers that were sent to B and are lost.
fn drop_only(pair: &mut Pair, lost: impl Fn(u32) -> bool + 'static) {
    pair.drop_data = Some(Box::new(lost));
}

fn repaired(stats: &QpStats) -> (u64, u64) {
    stats.channels.iter().fold((0, 0), |(packets, chunks), channel| {
        (packets + channel.repaired_packets, chunks + channel.repaired_chunks)
    })
}

#[test]
fn messages_of_all_lengths_arrive_with_and_without_loss() {
    for loss_ppm in [0, 50_000] {
        for mode in ["ec:mds:32:8", "ec:mds:4:2", "ec:xor:8:2", "ec:mds:1:1", "ec:mds:3:5"] {
            let mut pair = Pair::new(config(mode, 4), Link { loss_ppm, ..Link::default() });
            for len in [0, 1, 3, 1023, 1024, 1025, 4095, 4096, 4097, 16_384, 16_385, 131_072] {
                one_message(&mut pair, len);
            }
            one_message(&mut pair, 500_003);
        }
    }
}

#[test]
fn without_loss_nothing_is_repaired_resent_or_kept() {
    let mut pair = Pair::new(config("ec:mds:8:2", 2), Link::default());
    for len in [1, 1024, 100_000, 1_000_000] {
        one_message(&mut pair, len);
    }
    pair.run_for(SECOND);
    let sent = pair.a.qp().stats().send;
    assert_eq!((sent.retransmitted_packets, sent.fallbacks), (0, 0));
    assert!(sent.parity_packets > sent.packets / 6, "{sent:?}");
    let stats = pair.b.qp().stats();
    assert_eq!(repaired(&stats), (0, 0));
    assert_eq!((stats.lost_packets(), stats.channels[0].duplicates), (0, 0));
    assert_eq!(stats.channels[0].discarded.iter().sum::<u64>(), 0, "late parity is no fault");
}

#[test]
fn a_loss_is_repaired_without_a_round_trip() {
    let mut pair = Pair::new(config("ec:mds:8:2", 4), Link::default());
    let lossless_ns = one_message(&mut pair, 500_000);
    // Two chunks of a submessage, and the packet that ends the message.
    drop_only(&mut pair, |packet| [5, 21, 488].contains(&packet));
    let lossy_ns = one_message(&mut pair, 500_000);
    let sent = pair.a.qp().stats().send;
    assert_eq!((sent.retransmitted_packets, sent.fallbacks), (0, 0));
    assert_eq!(repaired(&pair.b.qp().stats()), (3, 3));
    // The end and the parity behind it have arrived.
    assert!(lossy_ns < lossless_ns + 2 * MS, "{lossy_ns} against {lossless_ns}");
}

#[test]
fn losses_in_a_row_hit_as_many_blocks_as_take_the_chunks_in_turn() {
    for (interleave, resent) in [(1, true), (4, false)] {
        let config = config("ec:mds:8:2", 1);
        let geometry = GeometryConfig { interleave, ..config.geometry };
        let mut pair = Pair::new(PairConfig { geometry, ..config }, Link::default());
        // Only the first transmission.
        let left = Cell::new(8u32);
        drop_only(&mut pair, move |packet| {
            (35..43).contains(&packet) && left.replace(left.get().saturating_sub(1)) > 0
        });
        one_message(&mut pair, 500_000);
        let sent = pair.a.qp().stats().send;
        assert_eq!(sent.retransmitted_packets > 0, resent, "{interleave}");
        assert_eq!(repaired(&pair.b.qp().stats()).0 == 8, !resent, "{interleave}");
    }
}

#[test]
fn a_submessage_is_repaired_while_later_ones_still_arrive() {
    let link = Link { rate_bits_per_s: Some(100_000_000), ..Link::default() };
    let mut pair = Pair::new(config("ec:mds:4:1", 1), link);
    drop_only(&mut pair, |packet| packet == 2);
    let posted = pair.post(Side::B, 1_000_000);
    pair.run_for(50 * MS);
    pair.send(Side::A, vec![7; 1_000_000], None);
    let parts = posted.parts.clone();
    assert!(pair.run_until(SECOND, move |_| parts[0].has_chunk(3)));
    assert!(!posted.parts[0].has_chunk(2));
    pair.run_for(MS);
    assert!(posted.parts[0].has_chunk(2));
    assert!(!posted.is_complete(), "most of it is still to come");
}

#[test]
fn losses_in_different_rows_of_a_submessage_do_not_add_up() {
    let mut pair = Pair::new(config("ec:mds:4:1", 4), Link::default());
    // All four chunks of the first submessage, each in another row; one parity chunk.
    drop_only(&mut pair, |packet| [0, 5, 10, 15].contains(&packet));
    one_message(&mut pair, 100_000);
    assert_eq!(pair.a.qp().stats().send.fallbacks, 0);
    assert_eq!(repaired(&pair.b.qp().stats()), (4, 4));
}

#[test]
fn only_what_parity_cannot_repair_is_sent_again() {
    let mut pair = Pair::new(config("ec:mds:4:1", 1), Link::default());
    let first = std::cell::Cell::new(3);
    pair.drop_data = Some(Box::new(move |packet| {
        // Packets 1 and 2 in their first transmission; packet 40 can be repaired.
        let is_lost = (packet == 1 || packet == 2 || packet == 40) && first.get() > 0;
        first.set(first.get() - u32::from(is_lost));
        is_lost
    }));
    one_message(&mut pair, 100_000);
    let sent = pair.a.qp().stats().send;
    assert_eq!((sent.fallbacks, sent.retransmitted_chunks, sent.retransmitted_packets), (1, 2, 2));
    assert_eq!(repaired(&pair.b.qp().stats()), (1, 1));
}

#[test]
fn xor_repairs_one_loss_per_group() {
    let mut pair = Pair::new(config("ec:xor:8:4", 1), Link::default());
    drop_only(&mut pair, |packet| (8..12).contains(&packet));
    one_message(&mut pair, 100_000);
    assert_eq!(repaired(&pair.b.qp().stats()), (4, 4));
    let first = std::cell::Cell::new(2);
    pair.drop_data = Some(Box::new(move |packet| {
        let is_lost = (packet == 8 || packet == 12) && first.get() > 0;
        first.set(first.get() - u32::from(is_lost));
        is_lost
    }));
    one_message(&mut pair, 100_000);
    let sent = pair.a.qp().stats().send;
    assert_eq!((sent.fallbacks, sent.retransmitted_chunks), (1, 2));
}

#[test]
fn everything_arrives_when_every_submessage_falls_back() {
    for mode in ["ec:mds:8:1", "ec:xor:8:2"] {
        let link = Link { loss_ppm: 400_000, ..Link::default() };
        let mut pair = Pair::new(config(mode, 4), link);
        one_message(&mut pair, 400_000);
        let sent = pair.a.qp().stats().send;
        assert!(sent.fallbacks >= 11, "of 13 submessages {} fell back", sent.fallbacks);
    }
}

#[test]
fn all_parity_lost_is_selective_repeat() {
    let mut pair = Pair::new(config("ec:mds:8:2", 1), Link::default());
    let base = pair.a.qp().config().geometry.layout().unwrap().base();
    let first = std::cell::Cell::new(true);
    pair.drop_data =
        Some(Box::new(move |packet| packet >= base || (packet == 50 && first.replace(false))));
    one_message(&mut pair, 100_000);
    let sent = pair.a.qp().stats().send;
    assert_eq!((sent.fallbacks, sent.retransmitted_packets), (1, 1));
}

#[test]
fn a_dark_spell_ends_in_a_complete_message() {
    let mut pair = Pair::new(config("ec:mds:8:2", 1), Link::default());
    let posted = pair.post(Side::B, 300_000);
    pair.run_for(50 * MS);
    let data = Rng::new(1).bytes(300_000);
    let id = pair.send(Side::A, data.clone(), None);
    pair.run_for(2 * MS);
    pair.link.dark = true;
    pair.run_for(SECOND);
    pair.link.dark = false;
    assert!(pair.run_until(10 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
    assert_eq!(pair.close(Side::B, posted), data);
}

#[test]
fn a_message_of_several_slots_is_coded_slot_by_slot() {
    let mut config = config("ec:mds:8:2", 2);
    config.geometry.max_message_bytes = 64 << 10;
    for loss_ppm in [0, 50_000] {
        let mut pair = Pair::new(config, Link { loss_ppm, ..Link::default() });
        for len in [65_535, 65_536, 65_537, 131_072, 300_000] {
            one_message(&mut pair, len);
        }
    }
}

#[test]
fn the_end_of_a_full_slot_is_known_from_parity_alone() {
    let mut config = config("ec:mds:8:2", 1);
    config.geometry.max_message_bytes = 64 << 10;
    let mut pair = Pair::new(config, Link::default());
    drop_only(&mut pair, |packet| packet == 63);
    // A longer receive: only the last packet and the parity show the end of the message.
    let posted = pair.post(Side::B, 100_000);
    pair.run_for(50 * MS);
    let data = Rng::new(3).bytes(64 << 10);
    let id = pair.send(Side::A, data.clone(), None);
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
    assert_eq!(pair.a.qp().stats().send.retransmitted_packets, 0);
    assert_eq!(pair.close(Side::B, posted), data);
}

#[test]
fn the_user_immediate_arrives_whatever_is_lost() {
    for split in [ImmediateSplit::DEFAULT, ImmediateSplit::WIDE] {
        let mut config = config("ec:mds:4:2", 2);
        config.geometry.split = split;
        let mut pair = Pair::new(config, Link { loss_ppm: 100_000, ..Link::default() });
        for len in [0usize, 1, 1024, 5000, 12_000, 100_000] {
            common::one_message(&mut pair, len, 100, Some(0xDEAD_0000 ^ len as u32));
        }
    }
}

#[test]
fn several_channels_share_the_submessages() {
    let mut config = config("ec:mds:8:2", 1);
    config.geometry.channels = 4;
    config.geometry.stripe_packets = 1;
    let mut pair = Pair::new(config, Link { loss_ppm: 20_000, ..Link::default() });
    one_message(&mut pair, 1_000_000);
    let stats = pair.b.qp().stats();
    assert!(stats.channels.iter().all(|c| c.packets > 100 && c.parity_packets > 20), "{stats:?}");
    assert!(stats.channels.iter().all(|c| c.repaired_packets > 0), "{stats:?}");
    assert!(pair.a.qp().stats().send.fallbacks < 3);
}

#[test]
fn slots_and_generations_wrap_around_many_times() {
    let mut config = config("ec:mds:4:2", 1);
    config.geometry.split = ImmediateSplit::new(3, 21, 8).unwrap();
    config.geometry.max_message_bytes = 1 << 20;
    let link = Link { loss_ppm: 50_000, duplicate_ppm: 50_000, ..Link::default() };
    let mut pair = Pair::new(config, link);
    for round in 0..100usize {
        one_message(&mut pair, 1000 + 97 * round);
    }
}

#[test]
fn everything_at_once_on_random_lengths() {
    let link = Link {
        loss_ppm: 200_000,
        reorder_ppm: 500_000,
        duplicate_ppm: 200_000,
        corrupt_ppm: 10_000,
        ..Link::default()
    };
    for seed in 0..8 {
        let mode = ["ec:mds:8:4", "ec:xor:6:3", "ec:mds:32:8", "ec:mds:2:5"][seed as usize % 4];
        let mut config = config(mode, 1 + seed as u32 % 5);
        config.geometry.channels = 1 + (seed % 3) as u8;
        config.geometry.max_message_bytes = if seed % 2 == 0 { 100 << 10 } else { 0 };
        let controller = [ControllerConfig::Bbr, config.controller][seed as usize / 4];
        let mut pair = Pair::new(PairConfig { seed, controller, ..config }, link);
        let mut rng = Rng::new(seed);
        for _ in 0..20 {
            let len = rng.below(300_000) as usize;
            one_message(&mut pair, len);
        }
        assert!(repaired(&pair.b.qp().stats()).0 > 0);
    }
}

#[test]
fn parity_that_comes_before_its_data_waits_for_it() {
    let link = Link { reorder_ppm: 500_000, reorder_ns: 20 * MS, ..Link::default() };
    let mut pair = Pair::new(config("ec:mds:8:4", 1), link);
    for _ in 0..10 {
        one_message(&mut pair, 200_000);
    }
    pair.run_for(SECOND);
    let stats = pair.b.qp().stats();
    assert_eq!(stats.lost_packets(), 0);
    assert!(repaired(&stats).0 > 0, "what was late was repaired before it came");
    assert!(stats.channels[0].duplicates > 0, "and came as a copy");
}

#[test]
fn receives_closed_early_stay_as_they_were() {
    let link = Link { loss_ppm: 100_000, ..Link::default() };
    let mut pair = Pair::new(config("ec:mds:8:4", 1), link);
    pair.recorded = Some(Vec::new());
    let held = common::post(&mut pair, Side::B, vec![0; 300_000]);
    pair.run_for(50 * MS);
    pair.send(Side::A, Rng::new(1).bytes(300_000), None);
    pair.run_for(15 * MS);
    assert!(!held.posted.is_complete());
    let closed = common::take(&mut pair, Side::B, held);
    let copy = closed.clone();
    pair.link = Link::default();
    for (from, channel, bytes) in pair.recorded.take().unwrap() {
        pair.inject(from.peer(), channel, bytes);
    }
    pair.run_for(SECOND);
    assert!(closed == copy);
}

#[test]
fn raw_streams_work_beside_coded_messages() {
    let mut pair = Pair::new(config("ec:mds:8:4", 1), Link::default());
    let posted = pair.post(Side::B, 10_000);
    pair.run_for(50 * MS);
    let id = pair.a.qp().open_stream(None).unwrap();
    pair.a.qp().push_stream(id, 0, vec![5; 10_000].into(), true).unwrap();
    pair.a.qp().end_stream(id).unwrap();
    assert!(pair.run_until(SECOND, move |_| posted.is_complete()));
    assert_eq!(pair.a.qp().stats().send.parity_packets, 0);
}

#[test]
fn parity_says_where_it_belongs_and_how_long_the_message_is() {
    let mut pair = Pair::new(config("ec:mds:4:2", 2), Link::default());
    pair.recorded = Some(Vec::new());
    one_message(&mut pair, 20_000);
    let geometry = pair.a.qp().config().geometry;
    let layout = *geometry.layout().unwrap();
    let mut seen = Vec::new();
    for (_, _, bytes) in pair.recorded.as_ref().unwrap() {
        let Ok(Packet::Data(header, _)) = parse(bytes) else { continue };
        let packet = geometry.split().unpack(header.immediate).packet;
        if layout.is_parity(packet) {
            let ahead = u64::from(packet - layout.base()) * 1024;
            assert_eq!(header.address, Some(20_000 + ahead));
            assert!(header.ends_message);
            seen.push(packet - layout.base());
        }
    }
    // 20 packets: two submessages of eight, a tail of two chunks with one parity chunk.
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let run = |seed| {
        let link = Link { loss_ppm: 50_000, ..Link::default() };
        let mut pair = Pair::new(PairConfig { seed, ..config("ec", 1) }, link);
        pair.recorded = Some(Vec::new());
        one_message(&mut pair, 200_000);
        pair.recorded.unwrap()
    };
    assert!(run(3) == run(3));
    assert!(run(3) != run(4));
}

#[test]
fn the_modes_code_must_be_the_geometrys() {
    assert_eq!(Mode::EC.to_string(), "ec:mds:32:8");
    let pair = Pair::new(config("ec", 1), Link::default());
    let mut config = pair.a.qp().config().clone();
    config.mode = Mode::SR;
    let made = std::panic::catch_unwind(|| lacuna_proto::qp::QueuePair::new(config));
    assert!(made.is_err());
}
