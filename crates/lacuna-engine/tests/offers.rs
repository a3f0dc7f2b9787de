//! Sends whose data become ready part by part, over the fake link.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::{Memory, SendBuffer};
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::reason::Reason;
use lacuna_proto::qp::{PostSendError, SendId, SendRequest};
use std::sync::{Arc, Mutex};

const DELAY_NS: u64 = 12_500_000;

fn config(mode: &str, channels: u8) -> PairConfig {
    let default = PairConfig::default();
    PairConfig {
        geometry: GeometryConfig { channels, ..default.geometry },
        mode: mode.parse().unwrap(),
        controller: ControllerConfig::Fixed { rate_bits_per_s: 1_000_000_000 },
        ..default
    }
}

fn pair(mode: &str, channels: u8, loss_ppm: u32) -> Pair {
    let link = Link { delay_ns: DELAY_NS, loss_ppm, ..Link::default() };
    let mut pair = Pair::new(config(mode, channels), link);
    pair.run_for(100 * MS);
    pair
}

/// Memory that refuses to be read where it was not offered.
struct Guarded {
    bytes: Vec<u8>,
    offered: Mutex<Vec<bool>>,
}

impl Memory for Guarded {
    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn range(&self, offset: usize, len: usize) -> &[u8] {
        let offered = self.offered.lock().unwrap();
        assert!(offered[offset..][..len].iter().all(|is| *is), "read before it was offered");
        &self.bytes[offset..][..len]
    }
}

struct Offered {
    id: SendId,
    memory: Arc<Guarded>,
}

impl Offered {
    fn begin(pair: &mut Pair, bytes: Vec<u8>) -> Self {
        let offered = Mutex::new(vec![false; bytes.len()]);
        let memory = Arc::new(Guarded { bytes, offered });
        let data = SendBuffer::new(memory.clone());
        let request = SendRequest { data, immediate: Some(99), deadline_ns: None };
        let id = pair.a.qp().queue_send_offered(request).unwrap();
        Self { id, memory }
    }

    fn offer(&self, pair: &mut Pair, start: usize, len: usize) {
        self.memory.offered.lock().unwrap()[start..start + len].fill(true);
        pair.a.qp().offer(self.id, start as u64..(start + len) as u64).unwrap();
    }

    fn is_done(&self, pair: &mut Pair) -> bool {
        pair.status(Side::A, self.id).outcome == Some(Ok(()))
    }
}

/// The parts of `len` bytes, cut at random, in random order.
fn parts(rng: &mut Rng, len: usize) -> Vec<(usize, usize)> {
    let mut cuts: Vec<usize> = (0..12).map(|_| rng.below(len as u64) as usize).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    let mut parts: Vec<_> = cuts.windows(2).map(|cut| (cut[0], cut[1] - cut[0])).collect();
    for at in (1..parts.len()).rev() {
        parts.swap(at, rng.below(at as u64 + 1) as usize);
    }
    parts
}

#[test]
fn random_parts_in_random_order_give_the_same_bytes_in_every_mode() {
    for mode in ["sr", "sr:rto", "ec:mds:8:2", "auto", "raw", "bounded", "bounded+ec:mds:8:2"] {
        // Only a mode that repairs has something to do with a lossy path here.
        let is_reliable = mode.parse::<lacuna_proto::modes::Mode>().unwrap().is_reliable();
        let loss_ppm = if is_reliable { 50_000 } else { 0 };
        for channels in [1, 3] {
            let mut pair = pair(mode, channels, loss_ppm);
            for seed in 0..6 {
                let mut rng = Rng::new(seed);
                let len = 1 + rng.below(400_000) as usize;
                let bytes = rng.bytes(len);
                let posted = pair.post(Side::B, len);
                let offered = Offered::begin(&mut pair, bytes.clone());
                // A later message does not get ahead of it where that would end it.
                let next = pair.post(Side::B, 100);
                pair.send(Side::A, vec![7; 100], None);
                for (start, len) in parts(&mut rng, len) {
                    pair.run_for(rng.below(4) * MS);
                    offered.offer(&mut pair, start, len);
                }
                assert!(pair.run_until(60 * SECOND, |pair| offered.is_done(pair)), "{mode}");
                pair.run_for(100 * MS);
                assert_eq!(posted.reason(), Some(Reason::Whole), "{mode}, {channels}, {seed}");
                assert_eq!(posted.immediate(), Some(99));
                assert_eq!(next.reason(), Some(Reason::Whole));
                assert!(pair.close(Side::B, posted) == bytes, "{mode}");
                drop(pair.close(Side::B, next));
            }
        }
    }
}

#[test]
fn the_first_part_arrives_after_half_a_round_trip() {
    for mode in ["sr", "auto", "bounded", "ec"] {
        let mut pair = pair(mode, 1, 0);
        let posted = pair.post(Side::B, 1 << 20);
        pair.run_for(50 * MS);
        let offered = Offered::begin(&mut pair, vec![3; 1 << 20]);
        pair.run_for(100 * MS);
        let start_ns = pair.now_ns;
        offered.offer(&mut pair, 64 << 10, 4096);
        let part = posted.parts[0].clone();
        assert!(pair.run_until(SECOND, |_| part.has_chunk(16)));
        assert!(pair.now_ns - start_ns < DELAY_NS + MS, "{mode}");
        assert_eq!(part.placed_packets(), 4, "nothing else was sent");
    }
}

#[test]
fn a_send_of_several_slots_is_offered_as_one() {
    let mut config = config("sr", 1);
    config.geometry.max_message_bytes = 64 << 10;
    let link = Link { delay_ns: DELAY_NS, loss_ppm: 20_000, ..Link::default() };
    let mut pair = Pair::new(config, link);
    pair.run_for(100 * MS);
    let bytes = Rng::new(1).bytes(300_000);
    let posted = pair.post(Side::B, bytes.len());
    let offered = Offered::begin(&mut pair, bytes.clone());
    offered.offer(&mut pair, 60_000, 100_000);
    pair.run_for(50 * MS);
    offered.offer(&mut pair, 0, 60_000);
    offered.offer(&mut pair, 160_000, 140_000);
    assert!(pair.run_until(60 * SECOND, |pair| offered.is_done(pair)));
    assert!(pair.close(Side::B, posted) == bytes);
}

#[test]
fn a_send_that_is_never_offered_holds_nothing_up_but_its_own_receive() {
    let mut pair = pair("sr", 1, 0);
    let first = pair.post(Side::B, 1000);
    let offered = Offered::begin(&mut pair, vec![3; 1000]);
    let second = pair.post(Side::B, 1000);
    let id = pair.send(Side::A, vec![4; 1000], None);
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
    assert!(pair.close(Side::B, second) == [4; 1000]);
    assert_eq!(first.placed_packets(), 0);
    let now_ns = pair.now_ns;
    pair.a.qp().cancel_send(now_ns, offered.id);
    pair.run_for(100 * MS);
    assert_eq!(first.reason(), Some(Reason::Cancelled));
    // What is offered of it now is of no use, and no error.
    pair.a.qp().offer(offered.id, 0..1000).unwrap();
}

#[test]
fn in_a_bounded_mode_later_messages_wait_until_it_was_offered_or_given_up() {
    let mut pair = pair("bounded", 1, 0);
    let first = pair.post(Side::B, 1000);
    let second = pair.post(Side::B, 1000);
    let offered = Offered::begin(&mut pair, vec![3; 1000]);
    let id = pair.send(Side::A, vec![4; 1000], None);
    pair.run_for(SECOND);
    assert_eq!(pair.status(Side::A, id).outcome, None);
    let now_ns = pair.now_ns;
    pair.a.qp().cancel_send(now_ns, offered.id);
    pair.run_for(100 * MS);
    assert_eq!(first.reason(), Some(Reason::Cancelled));
    assert_eq!(second.reason(), Some(Reason::Whole));
}

#[test]
fn what_is_outside_of_the_send_is_refused() {
    let mut pair = pair("sr", 1, 0);
    let offered = Offered::begin(&mut pair, vec![3; 1000]);
    let error = pair.a.qp().offer(offered.id, 990..1001).unwrap_err();
    let outside =
        PostSendError::OutsideOfSend { offset_bytes: 990, offered_bytes: 11, len_bytes: 1000 };
    assert_eq!(error, outside);
    #[allow(clippy::reversed_empty_ranges, reason = "a mistake that is refused")]
    let backwards = pair.a.qp().offer(offered.id, 9..3);
    assert!(backwards.is_err());
}
