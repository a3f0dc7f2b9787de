//! Messages out of parts of regions and into parts of regions, and into buffers that receives share.

mod common;

use common::{MS, SECOND, take};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::discard::Discard;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::placement::Placement;
use lacuna_place::pool::BufferPool;
use lacuna_place::region::{Region, RegionConfig, Slices, Stride};
use lacuna_proto::qp::{Changes, Event, PostReceiveError, SendRequest};
use std::sync::Arc;

fn pair(mode: &str, channels: u8, loss_ppm: u32) -> Pair {
    let default = PairConfig::default();
    let config = PairConfig {
        geometry: GeometryConfig { channels, ..default.geometry },
        mode: mode.parse().unwrap(),
        controller: ControllerConfig::Fixed { rate_bits_per_s: 1_000_000_000 },
        ..default
    };
    let rate_bits_per_s = Some(1_000_000_000);
    Pair::new(config, Link { delay_ns: 5 * MS, rate_bits_per_s, loss_ppm, ..Link::default() })
}

/// A region of these bytes, and a list of a thousand parts of it of 0 to 799 bytes, in random order.
fn a_thousand_parts(rng: &mut Rng) -> (Arc<Region>, Slices) {
    let mut parts: Vec<_> = (0..500)
        .flat_map(|at| {
            let (start, bytes) = (at * 2000, rng.below(400));
            // Two rows each, as of a matrix, and one range.
            let rows = Stride { start, bytes, stride: 500, count: 2 };
            [rows, Stride::of_range(start + 1000..start + 1000 + rng.below(800))]
        })
        .collect();
    for at in (1..parts.len()).rev() {
        parts.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let region = Region::new(vec![0xEE; 1_000_000], RegionConfig::default());
    let list = Slices::new(parts.into_iter().map(|parts| (region.clone(), parts))).unwrap();
    (region, list)
}

#[test]
fn a_list_of_a_thousand_parts_is_sent_and_filled_like_contiguous_memory_in_every_mode() {
    for mode in ["raw", "sr", "sr:rto", "auto", "ec:mds:8:2", "ec:xor:8:2", "bounded"] {
        for (channels, loss_ppm) in [(1, 0), (3, 20_000)] {
            let loss_ppm = if matches!(mode, "raw" | "bounded") { 0 } else { loss_ppm };
            let mut pair = pair(mode, channels, loss_ppm);
            let mut rng = Rng::new(5);
            let (_, from) = a_thousand_parts(&mut rng);
            let (region, into) = a_thousand_parts(&mut rng);
            let len = from.len().min(into.len());
            let (from, into) = (from.part(0..len).unwrap(), into.part(0..len).unwrap());
            let data = rng.bytes(len as usize);
            from.write(0, &data).unwrap();
            // What is between the parts stays as it is.
            let mut expected = vec![0; region.len() as usize];
            into.write(0, &data).unwrap();
            region.read(0, &mut expected).unwrap();
            into.zero(0..len).unwrap();

            let now_ns = pair.now_ns;
            let placement = Placement::slices(into);
            let posted = pair.b.qp().post_receive(now_ns, placement).unwrap();
            let request = SendRequest { data: from.into(), immediate: None, deadline_ns: None };
            pair.a.qp().queue_send(request).unwrap();
            assert!(pair.run_until(60 * SECOND, |_| posted.is_complete()), "{mode}");
            assert_eq!(posted.length_bytes(), Some(len));
            let mut got = vec![0; region.len() as usize];
            region.read(0, &mut got).unwrap();
            assert!(got == expected, "{mode}, {channels} channels");
            if mode.starts_with("ec") && loss_ppm > 0 {
                let stats = pair.b.qp().stats();
                assert!(stats.channels.iter().any(|channel| channel.repaired_packets > 0));
            }
        }
    }
}

#[test]
fn a_message_of_several_slots_fills_a_list() {
    let default = PairConfig::default();
    let geometry = GeometryConfig { max_message_bytes: 64 << 10, ..default.geometry };
    let link = Link { loss_ppm: 10_000, ..Link::default() };
    let mut pair = Pair::new(PairConfig { geometry, ..default }, link);
    let mut rng = Rng::new(2);
    let (_, into) = a_thousand_parts(&mut rng);
    let data = rng.bytes(into.len() as usize);
    let now_ns = pair.now_ns;
    let posted = pair.b.qp().post_receive(now_ns, Placement::slices(into.clone())).unwrap();
    assert!(posted.parts.len() > 3);
    pair.send(Side::A, data.clone(), None);
    assert!(pair.run_until(60 * SECOND, |_| posted.is_complete()));
    let mut got = vec![0; data.len()];
    into.read(0, &mut got).unwrap();
    assert!(got == data);
    assert_eq!(posted.parts[0].chunk(0), None, "others may write it, so it cannot be borrowed");
}

#[test]
fn many_receives_share_a_few_buffers() {
    let mut pair = pair("sr", 2, 10_000);
    let pool = BufferPool::new(100_000);
    (0..2).for_each(|_| pool.put(Vec::new()));
    let mut rng = Rng::new(9);
    let post = |pair: &mut Pair| {
        let now_ns = pair.now_ns;
        let placement = Placement::pooled(pool.clone());
        common::Held { posted: pair.b.qp().post_receive(now_ns, placement).unwrap() }
    };
    let mut held: Vec<_> = (0..8).map(|_| post(&mut pair)).collect();
    assert_eq!(pool.free(), 2, "posting takes none");
    let mut messages = Vec::new();
    for _ in 0..40 {
        let len = 1 + rng.below(99_999) as usize;
        messages.push(rng.bytes(len));
        pair.send(Side::A, messages[messages.len() - 1].clone(), None);
    }
    // Which message takes a buffer is chance, so they end in any order.
    for _ in 0..messages.len() {
        let is_whole = |held: &common::Held| held.posted.is_complete();
        assert!(pair.run_until(60 * SECOND, |_| held.iter().any(is_whole)));
        let whole = held.remove(held.iter().position(is_whole).unwrap());
        let message = &messages[whole.posted.first as usize];
        let buffer = take(&mut pair, Side::B, whole);
        assert!(buffer[..message.len()] == message[..]);
        pool.put(buffer);
        held.push(post(&mut pair));
    }
    let stats = pair.b.qp().stats();
    let refused = stats.channels.iter().map(|channel| channel.discarded[Discard::Pool.index()]);
    let refused: u64 = refused.sum();
    assert!(refused > 0 && refused == pool.refused(), "eight messages never had eight buffers");
    for receive in held {
        let now_ns = pair.now_ns;
        let mut qp = pair.b.qp();
        qp.table().close(receive.posted.parts[0].number());
        qp.on_receive_closed(now_ns, &receive.posted);
        assert_eq!(receive.posted.into_vec(), None, "nothing came, so it has no buffer");
    }
    assert_eq!(pool.free(), 2);
}

#[test]
fn a_buffer_of_a_pool_that_is_longer_than_a_slot_is_refused() {
    let pair = pair("sr", 1, 0);
    let slot_bytes = pair.b.qp().config().geometry.max_message_bytes();
    let post = |buffer_bytes: u64| {
        let placement = Placement::pooled(BufferPool::new(buffer_bytes as usize));
        pair.b.qp().post_receive(0, placement)
    };
    assert!(post(slot_bytes).is_ok());
    let expected =
        PostReceiveError::TooLong { capacity_bytes: slot_bytes + 1, slots: 1, slot_bytes };
    assert_eq!(post(slot_bytes + 1).unwrap_err(), expected);
}

#[test]
fn the_owner_is_told_once_when_as_many_chunks_are_here_as_it_waits_for() {
    let mut pair = pair("sr", 2, 10_000);
    let posted = pair.post(Side::B, 1_000_000);
    let chunks = posted.parts[0].chunks();
    let is_told = |pair: &mut Pair| {
        let told = |event: &Event| match event {
            Event::Changed(changes) => changes.contains(Changes::CHUNKS).then_some(()),
            _ => None,
        };
        pair.take_event(Side::B, told).is_some()
    };
    pair.b.qp().watch_chunks(&posted, chunks / 2);
    pair.b.qp().watch_chunks(&posted, chunks / 2);
    pair.b.qp().watch_chunks(&posted, 3);
    pair.send(Side::A, vec![7; 1_000_000], None);
    for wanted in [3, chunks / 2] {
        assert!(pair.run_until(60 * SECOND, is_told));
        assert!((wanted..chunks).contains(&posted.parts[0].chunks_done()));
    }
    assert!(pair.run_until(60 * SECOND, |_| posted.is_complete()));
    assert!(!is_told(&mut pair), "each is told once");
    pair.b.qp().watch_chunks(&posted, 1);
    assert!(pair.run_until(SECOND, is_told), "they are here already");
}

#[test]
fn bytes_are_gathered_again_for_each_repair() {
    let mut pair = pair("sr", 1, 100_000);
    let region = Region::new(vec![3; 200_000], RegionConfig::default());
    let from = Slices::new([(region, Stride::of_range(0..200_000))]).unwrap();
    let posted = pair.post(Side::B, 200_000);
    let data = SendBuffer::from(from);
    let request = SendRequest { data, immediate: None, deadline_ns: None };
    let id = pair.a.qp().queue_send(request).unwrap();
    assert!(pair.run_until(60 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
    assert!(pair.status(Side::A, id).retransmitted_chunks > 0);
    assert!(pair.close(Side::B, posted).iter().all(|byte| *byte == 3));
}
