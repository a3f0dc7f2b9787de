//! Writes to regions over the fake link: no receive is posted, each packet finds its place by key and
//! address, and the mode repairs or ends the message like any other.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::reason::Reason;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope};
use lacuna_proto::qp::{
    Event, PostReceiveError, PostSendError, SendFailure, SendId, SendRequest, Target,
};
use lacuna_wire::ImmediateSplit;
use std::sync::Arc;

const DELAY_NS: u64 = 12_500_000;
const REGION_BYTES: usize = 1 << 20;

struct Writers {
    pair: Pair,
    keys: Arc<KeyTable>,
    region: Arc<Region>,
    key: u32,
}

fn link(loss_ppm: u32) -> Link {
    let rate_bits_per_s = Some(1_000_000_000);
    Link { delay_ns: DELAY_NS, rate_bits_per_s, loss_ppm, ..Link::default() }
}

/// Two one-sided queue pairs; B has a region that A may write.
fn writers_with(mode: &str, geometry: GeometryConfig, link: Link) -> Writers {
    let config = PairConfig {
        geometry,
        mode: mode.parse().unwrap(),
        controller: ControllerConfig::Fixed { rate_bits_per_s: 1_000_000_000 },
        ..PairConfig::default()
    };
    let mut pair = Pair::new(config, link);
    let keys = Arc::new(KeyTable::new(1));
    let mut rng = Rng::new(7);
    let region_config = RegionConfig { has_validity: true, ..RegionConfig::default() };
    let region = Region::new(vec![0; REGION_BYTES], region_config);
    let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
    let range = 0..REGION_BYTES as u64;
    let key = keys.register(&region, range, access, || rng.below(1 << 32) as u32).unwrap();
    pair.a.qp().become_one_sided(Arc::new(KeyTable::new(2)), 2);
    pair.b.qp().become_one_sided(keys.clone(), 1);
    pair.run_for(100 * MS);
    Writers { pair, keys, region, key }
}

fn geometry(channels: u8) -> GeometryConfig {
    GeometryConfig { channels, split: ImmediateSplit::COMPACT, ..PairConfig::default().geometry }
}

fn writers(mode: &str, loss_ppm: u32) -> Writers {
    writers_with(mode, geometry(1), link(loss_ppm))
}

impl Writers {
    fn write(&mut self, address: u64, data: &[u8], immediate: Option<u32>) -> SendId {
        let target = Target { key: self.key, address };
        let request =
            SendRequest { data: SendBuffer::from(data.to_vec()), immediate, deadline_ns: None };
        self.pair.a.qp().queue_write(request, target, false).unwrap()
    }

    fn ends(&mut self, id: SendId) -> Result<(), SendFailure> {
        let outcome = |pair: &mut Pair| pair.status(Side::A, id).outcome;
        assert!(self.pair.run_until(60 * SECOND, |pair| outcome(pair).is_some()), "never ended");
        outcome(&mut self.pair).unwrap()
    }

    fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.region.read(address, &mut out).unwrap();
        out
    }
}

#[test]
fn writes_of_all_lengths_arrive_whole_in_every_mode_that_repairs() {
    for mode in ["sr", "sr:rto", "auto", "ec:mds:8:2"] {
        for (channels, loss_ppm) in [(1, 0), (1, 50_000), (3, 20_000)] {
            let mut writers = writers_with(mode, geometry(channels), link(loss_ppm));
            let mut rng = Rng::new(3);
            for len in [0, 1, 3, 1023, 1024, 1025, 4097, 65_536, 300_001] {
                let address = rng.below((REGION_BYTES - len) as u64);
                let data = rng.bytes(len);
                let id = writers.write(address, &data, None);
                assert_eq!(writers.ends(id), Ok(()), "{mode}, {len} bytes");
                assert!(writers.read(address, len) == data, "{mode}, {len} bytes at {address}");
            }
        }
    }
}

#[test]
fn many_writes_in_flight_reuse_the_receives() {
    let mut writers = writers("sr", 10_000);
    let mut rng = Rng::new(1);
    let mut model = vec![0; REGION_BYTES];
    let mut ids = Vec::new();
    for number in 0..2000u64 {
        let len = 1 + rng.below(2000) as usize;
        // Writes in flight at the same time do not overlap: their order is not promised.
        let address = number % 400 * 2500;
        let data = rng.bytes(len);
        if number >= 400 {
            let earlier: SendId = ids[number as usize - 400];
            assert_eq!(writers.ends(earlier), Ok(()));
        }
        model[address as usize..][..len].copy_from_slice(&data);
        ids.push(writers.write(address, &data, None));
    }
    for id in ids {
        assert_eq!(writers.ends(id), Ok(()));
    }
    assert!(writers.read(0, REGION_BYTES) == model);
    assert_eq!(writers.pair.b.qp().stats().ends.receives[Reason::Whole.index()], 2000);
    assert!(writers.pair.b.qp().poll_written(0).is_none(), "none carried an immediate");
}

#[test]
fn a_write_with_an_immediate_tells_the_peers_application() {
    let mut writers = writers("auto", 10_000);
    writers.write(5, &[1; 3000], None);
    let data = Rng::new(4).bytes(70_000);
    let id = writers.write(100_000, &data, Some(0xDEAD_BEEF));
    assert_eq!(writers.ends(id), Ok(()));
    let now_ns = writers.pair.now_ns;
    let written = writers.pair.b.qp().poll_written(now_ns).expect("one carried an immediate");
    let bound = written.receive.bound().unwrap();
    assert_eq!((bound.key(), bound.address()), (writers.key, 100_000));
    let record = bound.record();
    assert_eq!((record.length_bytes(), record.immediate()), (Some(70_000), Some(0xDEAD_BEEF)));
    assert_eq!(written.reason, Reason::Whole);
    assert!(writers.pair.b.qp().poll_written(now_ns).is_none());
    let told = |(side, event): &(Side, Event)| {
        *side == Side::B
            && matches!(event, Event::Changed(changes)
                if changes.contains(lacuna_proto::qp::Changes::WRITTEN))
    };
    assert!(writers.pair.events.iter().any(told));
}

#[test]
fn immediates_of_any_size_come_whole_with_writes_of_any_length_under_loss() {
    for mode in ["auto", "sr", "sr:rto", "ec:mds:8:2", "ec:xor:8:2"] {
        let mut writers = writers(mode, 50_000);
        let mut rng = Rng::new(6);
        for _ in 0..40 {
            let bits = rng.below(33);
            let immediate = rng.below(1 << bits) as u32;
            let len = rng.below(20_000) as usize;
            let data = rng.bytes(len);
            let id = writers.write(0, &data, Some(immediate));
            assert_eq!(writers.ends(id), Ok(()));
            let now_ns = writers.pair.now_ns;
            let written = writers.pair.b.qp().poll_written(now_ns).expect("it is told");
            assert_eq!(written.receive.record().immediate(), Some(immediate), "{mode}");
        }
    }
}

#[test]
fn a_small_write_tells_of_itself_with_its_only_packet() {
    let mut writers = writers("sr", 0);
    for (immediate, packets) in [(0, 1), (127, 1), (128, 2), (u32::MAX, 5)] {
        let before = writers.pair.a.qp().stats().send.packets;
        let id = writers.write(0, &[7; 64], Some(immediate));
        assert_eq!(writers.ends(id), Ok(()));
        assert_eq!(writers.pair.a.qp().stats().send.packets - before, packets);
    }
}

#[test]
fn a_bounded_write_ends_with_a_map_of_what_came() {
    let mut writers = writers("bounded", 0);
    writers.pair.drop_data = Some(Box::new(|packet| packet % 10 == 3));
    let data = Rng::new(4).bytes(100 * 1024);
    let id = writers.write(1024, &data, Some(9));
    assert_eq!(writers.ends(id), Ok(()), "it was all sent");
    writers.pair.run_for(100 * MS);
    let now_ns = writers.pair.now_ns;
    let written = writers.pair.b.qp().poll_written(now_ns).expect("the end came");
    assert_eq!(written.reason, Reason::End);
    let record = written.receive.record();
    assert_eq!((record.placed_packets(), record.placed_bytes()), (90, 90 * 1024));
    let validity = writers.region.validity().unwrap();
    for packet in 0..100u64 {
        let range = 1024 * (packet + 1)..1024 * (packet + 2);
        let is_here = packet % 10 != 3;
        assert_eq!(record.packets_here(packet as u32 / 64) >> (packet % 64) & 1 == 1, is_here);
        assert_eq!(validity.is_valid(range.clone()), is_here, "packet {packet}");
        let got = writers.read(range.start, 1024);
        let sent = &data[packet as usize * 1024..][..1024];
        assert!(
            if is_here { got == sent } else { got == [0; 1024] },
            "nothing is zeroed or claimed"
        );
    }
}

#[test]
fn a_bounded_write_that_was_lost_whole_costs_no_receive() {
    let mut writers = writers("bounded", 0);
    writers.pair.drop_data = Some(Box::new(|_| true));
    for _ in 0..1000 {
        let id = writers.write(0, &[1; 100], None);
        assert_eq!(writers.ends(id), Ok(()));
    }
    writers.pair.drop_data = None;
    writers.pair.run_for(SECOND);
    let id = writers.write(0, &[2; 100], None);
    assert_eq!(writers.ends(id), Ok(()));
    writers.pair.run_for(SECOND);
    assert_eq!(writers.read(0, 100), [2; 100]);
}

#[test]
fn a_write_longer_than_a_slot_is_one_operation() {
    let geometry = GeometryConfig { max_message_bytes: 64 << 10, ..geometry(2) };
    let mut writers = writers_with("sr", geometry, link(10_000));
    let data = Rng::new(4).bytes(500_000);
    let id = writers.write(77, &data, Some(5));
    assert_eq!(writers.ends(id), Ok(()));
    assert!(writers.read(77, 500_000) == data);
    let now_ns = writers.pair.now_ns;
    let written = writers.pair.b.qp().poll_written(now_ns).expect("the last part tells");
    assert_eq!(written.receive.record().immediate(), Some(5));
    assert!(writers.pair.b.qp().poll_written(now_ns).is_none());
}

#[test]
fn an_unknown_key_writes_nothing_and_the_deadline_ends_the_write() {
    // A third party could send such packets, too, so nobody answers them.
    let mut writers = writers("sr", 0);
    for key in [writers.key ^ 1, 0, u32::MAX] {
        let deadline_ns = Some(writers.pair.now_ns + 200 * MS);
        let data = SendBuffer::from(vec![9; 100]);
        let request = SendRequest { data, immediate: None, deadline_ns };
        let target = Target { key, address: 0 };
        let id = writers.pair.a.qp().queue_write(request, target, false).unwrap();
        assert!(matches!(writers.ends(id), Err(SendFailure::Deadline { .. })));
    }
    assert!(writers.read(0, REGION_BYTES).iter().all(|byte| *byte == 0));
    assert!(writers.keys.guesses() > 0);
    // The receives are free again.
    let id = writers.write(0, &[3; 100], None);
    assert_eq!(writers.ends(id), Ok(()));
}

#[test]
fn a_peer_that_guesses_keys_is_refused_for_a_second() {
    let mut writers = writers("bounded", 0);
    for key in 1..600u32 {
        let data = SendBuffer::from(vec![9; 8]);
        let request = SendRequest { data, immediate: None, deadline_ns: None };
        let target = Target { key, address: 0 };
        writers.pair.a.qp().queue_write(request, target, false).unwrap();
    }
    writers.pair.run_for(100 * MS);
    // It has not used the right key before, so that does not help it now.
    let id = writers.write(0, &[3; 8], None);
    assert_eq!(writers.ends(id), Ok(()));
    writers.pair.run_for(100 * MS);
    assert_eq!(writers.read(0, 8), [0; 8]);
    assert!((200..400).contains(&writers.keys.guesses()), "{}", writers.keys.guesses());
    writers.pair.run_for(2 * SECOND);
    for byte in [4, 5] {
        // The first brings a refusal that is older than a second, and with it the end of all.
        let id = writers.write(0, &[byte; 8], None);
        assert_eq!(writers.ends(id), Ok(()));
        writers.pair.run_for(100 * MS);
    }
    assert_eq!(writers.read(0, 8), [5; 8]);
}

#[test]
fn a_write_outside_of_the_range_or_without_the_right_is_refused() {
    let mut writers = writers("sr", 0);
    let end = REGION_BYTES as u64;
    let access = Access { rights: Rights::REMOTE_READ, scope: Scope::Any };
    let draw = || 0x1234_5678;
    let read_only = writers.keys.register(&writers.region, 0..end, access, draw).unwrap();
    let key = writers.key;
    for (key, address) in [(key, end - 10), (key, end), (key, u64::MAX - 200), (read_only, 0)] {
        let data = SendBuffer::from(vec![9; 100]);
        let request = SendRequest { data, immediate: Some(1), deadline_ns: None };
        let id = writers.pair.a.qp().queue_write(request, Target { key, address }, false).unwrap();
        assert_eq!(writers.ends(id), Err(SendFailure::Refused), "{address}");
    }
    assert!(writers.read(0, REGION_BYTES).iter().all(|byte| *byte == 0));
    let now_ns = writers.pair.now_ns;
    assert!(writers.pair.b.qp().poll_written(now_ns).is_none());
    let id = writers.write(0, &[3; 100], None);
    assert_eq!(writers.ends(id), Ok(()));
}

#[test]
fn a_write_whose_last_packets_are_outside_of_the_range_is_refused_though_the_first_fill_it() {
    let end = REGION_BYTES as u64;
    for mode in ["sr", "sr:rto", "auto", "ec:mds:8:2"] {
        let mut writers = writers(mode, 0);
        for (bytes, too_many) in [(1024, 1), (1024, 1024), (4096, 5000), (65_536, 300_000)] {
            let data = vec![9; bytes + too_many];
            let id = writers.write(end - bytes as u64, &data, None);
            assert_eq!(writers.ends(id), Err(SendFailure::Refused), "{mode}, {bytes}");
            let id = writers.write(end - bytes as u64, &data[..bytes], None);
            assert_eq!(writers.ends(id), Ok(()), "{mode}, {bytes}");
        }
    }
}

#[test]
fn nothing_is_written_after_a_key_was_revoked_and_the_write_is_refused() {
    let mut writers = writers("sr", 0);
    let id = writers.write(0, &vec![1; 1 << 20], None);
    writers.pair.run_for(DELAY_NS + 2 * MS);
    assert!(writers.keys.revoke(writers.key));
    let before = writers.read(0, REGION_BYTES);
    assert!(before.contains(&1) && before.contains(&0), "in the middle of it");
    assert_eq!(writers.ends(id), Err(SendFailure::Refused));
    assert!(writers.read(0, REGION_BYTES) == before);
    assert!(writers.pair.a.qp().is_idle());
}

#[test]
fn packets_that_are_refused_do_not_count_as_lost() {
    // Short packets that nobody counts look as if only the short ones passed, and the sender would send four
    // packets per round trip to find out.
    let geometry = GeometryConfig { mtu_bytes: 64, chunk_packets: 1, ..geometry(1) };
    for mode in ["sr", "sr:rto", "auto", "bounded"] {
        let mut writers = writers_with(mode, geometry, link(10_000));
        let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
        let other = writers.keys.register(&writers.region, 0..1 << 16, access, || 0x1234_5678);
        assert!(writers.keys.revoke(writers.key));
        let ids: Vec<_> = (0..2000).map(|_| writers.write(0, &[1; 150], None)).collect();
        for id in ids {
            let outcome = writers.ends(id);
            assert!(outcome == Err(SendFailure::Refused) || mode == "bounded", "{outcome:?}");
        }
        writers.key = other.unwrap();
        let start_ns = writers.pair.now_ns;
        let ids: Vec<_> = (0..2000).map(|_| writers.write(0, &[2; 150], None)).collect();
        for id in ids {
            let outcome = writers.ends(id);
            assert!(outcome == Ok(()) || mode == "bounded", "{mode}: {outcome:?}");
        }
        let took_ns = writers.pair.now_ns - start_ns;
        assert!(took_ns < SECOND, "{mode}: {took_ns}");
    }
}

#[test]
fn an_application_that_does_not_look_holds_the_writer_up_and_loses_nothing() {
    let mut writers = writers("sr", 0);
    for number in 0..3000u32 {
        writers.write(0, &[1; 8], Some(number));
    }
    writers.pair.run_for(5 * SECOND);
    assert!(!writers.pair.a.qp().is_idle());
    let mut seen = 0;
    for _ in 0..100 {
        let now_ns = writers.pair.now_ns;
        while let Some(written) = writers.pair.b.qp().poll_written(now_ns) {
            assert_eq!(written.receive.record().immediate(), Some(seen));
            seen += 1;
        }
        writers.pair.run_for(200 * MS);
    }
    assert_eq!(seen, 3000);
    assert!(writers.pair.a.qp().is_idle());
}

#[test]
fn a_write_can_be_offered_part_by_part() {
    let mut writers = writers("auto", 20_000);
    let data = Rng::new(2).bytes(200_000);
    let request =
        SendRequest { data: SendBuffer::from(data.clone()), immediate: None, deadline_ns: None };
    let target = Target { key: writers.key, address: 300 };
    let id = writers.pair.a.qp().queue_write(request, target, true).unwrap();
    for part in [3, 0, 4, 1, 2u64] {
        writers.pair.run_for(20 * MS);
        writers.pair.a.qp().offer(id, part * 40_000..(part + 1) * 40_000).unwrap();
    }
    assert_eq!(writers.ends(id), Ok(()));
    assert!(writers.read(300, 200_000) == data);
}

#[test]
fn a_queue_pair_is_for_messages_or_for_writes() {
    let mut writers = writers("sr", 0);
    let pair = &mut writers.pair;
    let request = |len| SendRequest {
        data: SendBuffer::from(vec![1; len]),
        immediate: None,
        deadline_ns: None,
    };
    assert_eq!(pair.a.qp().queue_send(request(1)), Err(PostSendError::OneSided));
    assert_eq!(pair.a.qp().post_send(request(1)), Err(PostSendError::OneSided));
    assert_eq!(pair.a.qp().open_stream(None), Err(PostSendError::OneSided));
    let buffer = lacuna_place::placement::Placement::from_vec(vec![0; 10]);
    let refused = pair.b.qp().post_receive(0, buffer).unwrap_err();
    assert_eq!(refused, PostReceiveError::OneSided);
    let messages = Pair::new(PairConfig::default(), Link::default());
    let refused = messages.a.qp().queue_write(request(1), Target { key: 1, address: 0 }, false);
    assert_eq!(refused, Err(PostSendError::NoRegions));
}

#[test]
fn packets_of_writes_are_never_cut() {
    let mut writers = writers("sr", 0);
    let id = writers.write(0, &[1; 5000], None);
    assert_eq!(writers.ends(id), Ok(()));
    writers.pair.link.packet_bytes_max = 700;
    let data = SendBuffer::from(vec![2; 5000]);
    let deadline_ns = Some(writers.pair.now_ns + 5 * SECOND);
    let request = SendRequest { data, immediate: None, deadline_ns };
    let target = Target { key: writers.key, address: 0 };
    let id = writers.pair.a.qp().queue_write(request, target, false).unwrap();
    assert!(matches!(writers.ends(id), Err(SendFailure::Deadline { .. })));
    // A path that is wide again carries them.
    writers.pair.link.packet_bytes_max = usize::MAX;
    let id = writers.write(0, &[3; 5000], None);
    assert_eq!(writers.ends(id), Ok(()));
    assert_eq!(writers.read(0, 5000), [3; 5000]);
}

#[test]
fn a_fenced_write_leaves_when_all_earlier_ones_have_ended_and_others_wait_behind_it() {
    for mode in ["sr", "bounded"] {
        let mut writers = writers(mode, 20_000);
        let mut rng = Rng::new(6);
        let mut expected = vec![0; REGION_BYTES];
        let mut writes = Vec::new();
        // All to the same bytes: without the fences, the last to arrive would win.
        for number in 0..20usize {
            let len = if number % 3 == 0 { 200_000 } else { 64 };
            let data = rng.bytes(len);
            expected[..len].copy_from_slice(&data);
            let target = Target { key: writers.key, address: 0 };
            let data = SendBuffer::from(data);
            let request = SendRequest { data, immediate: None, deadline_ns: None };
            let mut qp = writers.pair.a.qp();
            writes.push(qp.fenced(|qp| qp.queue_write(request, target, false)).unwrap());
        }
        let mut ended = 0;
        while ended < writes.len() {
            let has_ended =
                |pair: &mut Pair, at: usize| pair.status(Side::A, writes[at]).outcome.is_some();
            assert!(writers.pair.run_until(60 * SECOND, |pair| has_ended(pair, ended)), "{mode}");
            ended += 1;
            let is_later_begun = (ended + 1..writes.len())
                .any(|later| writers.pair.status(Side::A, writes[later]).injected);
            assert!(!is_later_begun, "{mode}: write {ended} is still under way");
        }
        writers.pair.run_for(SECOND);
        if mode == "sr" {
            assert!(writers.read(0, REGION_BYTES) == expected);
        }
    }
}

#[test]
fn a_fence_that_is_cancelled_or_refused_holds_nothing_back() {
    let mut writers = writers("sr", 0);
    let target = Target { key: writers.key, address: 0 };
    let request = |len: usize| SendRequest {
        data: SendBuffer::from(vec![1; len]),
        immediate: None,
        deadline_ns: None,
    };
    let first = writers.write(0, &[1; 300_000], None);
    let mut qp = writers.pair.a.qp();
    let refused = qp.fenced(|qp| qp.queue_send(request(5)));
    assert_eq!(refused, Err(PostSendError::OneSided));
    let after = qp.queue_write(request(5), target, false).unwrap();
    let fenced = qp.fenced(|qp| qp.queue_write(request(7), target, false)).unwrap();
    let late = SendRequest { deadline_ns: Some(1), ..request(9) };
    let late = qp.queue_write(late, target, false).unwrap();
    let last = qp.queue_write(request(9), target, false).unwrap();
    drop(qp);
    let now_ns = writers.pair.now_ns;
    writers.pair.a.qp().cancel_send(now_ns, fenced);
    assert_eq!(writers.ends(fenced), Err(SendFailure::Cancelled));
    assert!(matches!(writers.ends(late), Err(SendFailure::Deadline { .. })));
    for id in [after, last, first] {
        assert_eq!(writers.ends(id), Ok(()));
    }
    assert!(writers.pair.a.qp().is_idle());
}
