//! Reads of regions over the fake link: asked for by control frames that may be lost, answered by writes.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope};
use lacuna_proto::qp::{
    PostReadError, READ_BYTES_MAX, READS_OPEN_MAX, ReadFailure, ReadId, ReadRequest, ReadStatus,
    SendRequest, Target,
};
use lacuna_wire::{Frame, ImmediateSplit, Read, ReadRefusal};
use std::cell::Cell;
use std::sync::Arc;

const DELAY_NS: u64 = 12_500_000;
const REGION_BYTES: usize = 1 << 20;

struct Readers {
    pair: Pair,
    rng: Rng,
    /// Of A, which reads, and of B.
    keys: [Arc<KeyTable>; 2],
    /// B's.
    source: Arc<Region>,
    key: u32,
    bytes: Vec<u8>,
}

fn readers(mode: &str, channels: u8, link: Link) -> Readers {
    readers_at(1_000_000_000, mode, channels, link)
}

/// With senders of this rate.
fn readers_at(rate_bits_per_s: u64, mode: &str, channels: u8, link: Link) -> Readers {
    let geometry = GeometryConfig { channels, ..PairConfig::default().geometry };
    readers_with(rate_bits_per_s, mode, geometry, link)
}

fn readers_with(rate_bits_per_s: u64, mode: &str, geometry: GeometryConfig, link: Link) -> Readers {
    let default = PairConfig::default();
    let split = ImmediateSplit::COMPACT;
    let config = PairConfig {
        geometry: GeometryConfig { split, ..geometry },
        mode: mode.parse().unwrap(),
        controller: ControllerConfig::Fixed { rate_bits_per_s },
        ..default
    };
    let mut pair = Pair::new(config, link);
    let keys = [1, 2].map(|seed| Arc::new(KeyTable::new(seed)));
    let mut rng = Rng::new(7);
    let bytes = rng.bytes(REGION_BYTES);
    let source = Region::new(bytes.clone(), RegionConfig::default());
    let access = Access { rights: Rights::REMOTE_READ, scope: Scope::Any };
    let range = 0..REGION_BYTES as u64;
    let key = keys[1].register(&source, range, access, || rng.below(1 << 32) as u32).unwrap();
    pair.a.qp().become_one_sided(keys[0].clone(), 2);
    pair.b.qp().become_one_sided(keys[1].clone(), 1);
    pair.run_for(100 * MS);
    Readers { pair, rng, keys, source, key, bytes }
}

fn link(loss_ppm: u32) -> Link {
    let rate_bits_per_s = Some(1_000_000_000);
    Link { delay_ns: DELAY_NS, rate_bits_per_s, loss_ppm, ..Link::default() }
}

/// A read under way, with the region that it is written to.
struct Reading {
    id: ReadId,
    sink: Arc<Region>,
    key: u32,
    address: u64,
    len: usize,
}

impl Readers {
    fn request(
        &mut self,
        from: Target,
        len: usize,
        deadline_ns: Option<u64>,
    ) -> (ReadRequest, Arc<Region>) {
        let sink = Region::new(vec![0; len], RegionConfig::default());
        let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
        let draw = || self.rng.below(1 << 32) as u32;
        let key = self.keys[0].register(&sink, 0..len as u64, access, draw).unwrap();
        let into = Target { key, address: 0 };
        (ReadRequest { from, len_bytes: len as u64, into, deadline_ns }, sink)
    }

    fn read(&mut self, address: u64, len: usize) -> Reading {
        let (request, sink) = self.request(Target { key: self.key, address }, len, None);
        let now_ns = self.pair.now_ns;
        let id = self.pair.a.qp().queue_read(now_ns, request).unwrap();
        Reading { id, sink, key: request.into.key, address, len }
    }

    fn ends(&mut self, id: ReadId) -> ReadStatus {
        let status = |pair: &mut Pair| pair.a.qp().read_status(id).expect("not released");
        let has_ended = |pair: &mut Pair| status(pair).outcome.is_some();
        assert!(self.pair.run_until(60 * SECOND, has_ended), "it never ended");
        status(&mut self.pair)
    }

    /// Ends a read and compares every byte.
    fn check(&mut self, reading: Reading) {
        let status = self.ends(reading.id);
        let sent = self.pair.b.qp().stats().send;
        let mode = self.pair.b.qp().config().mode;
        let stats = (sent, mode, self.pair.a.qp().stats().ends);
        assert_eq!(status.outcome, Some(Ok(())), "{} bytes, {stats:?}", reading.len);
        assert_eq!(status.placed_bytes, reading.len as u64);
        self.pair.a.qp().release_read(reading.id);
        self.keys[0].revoke(reading.key);
        let mut got = vec![0; reading.len];
        reading.sink.read(0, &mut got).unwrap();
        assert!(got == self.bytes[reading.address as usize..][..reading.len]);
    }
}

#[test]
fn reads_of_all_lengths_arrive_in_every_mode_that_repairs() {
    for mode in ["sr", "auto", "ec:mds:8:2"] {
        for (channels, loss_ppm) in [(1, 0), (1, 50_000), (3, 20_000)] {
            let mut readers = readers(mode, channels, link(loss_ppm));
            for len in [1, 3, 1023, 1024, 1025, 65_536, 300_001] {
                let address = readers.rng.below((REGION_BYTES - len) as u64);
                let reading = readers.read(address, len);
                readers.check(reading);
            }
        }
    }
}

/// Messages of 64 KiB, so that reads take several.
fn short_slots(channels: u8) -> GeometryConfig {
    let max_message_bytes = 64 << 10;
    GeometryConfig { channels, max_message_bytes, ..PairConfig::default().geometry }
}

#[test]
fn a_read_longer_than_a_slot_ends_when_all_of_it_is_here() {
    for (channels, loss_ppm) in [(1, 0), (3, 20_000)] {
        for mode in ["sr", "auto", "ec:mds:8:2"] {
            let mut readers =
                readers_with(1_000_000_000, mode, short_slots(channels), link(loss_ppm));
            for len in [(64 << 10) - 1, 64 << 10, (64 << 10) + 1, 128 << 10, 500_000] {
                let reading = readers.read(77, len);
                readers.check(reading);
            }
        }
    }
}

#[test]
fn in_a_bounded_mode_a_read_of_several_messages_ends_though_any_of_them_is_lost_whole() {
    // Messages of 64 packets: five of them, and one that is shorter.
    let len = 5 * (64 << 10) + 5000;
    for lost in 0..6usize {
        let mut readers = readers_with(1_000_000_000, "bounded", short_slots(1), link(0));
        let mut rng = Rng::new(lost as u64);
        // B reads of A, towards which the harness can lose certain packets.
        let bytes = rng.bytes(len);
        let source = Region::new(bytes.clone(), RegionConfig::default());
        let sink = Region::new(vec![0; len], RegionConfig::default());
        let mut target = |keys: &KeyTable, region, rights| {
            let access = Access { rights, scope: Scope::Any };
            let draw = || rng.below(1 << 32) as u32;
            let key = keys.register(region, 0..len as u64, access, draw).unwrap();
            Target { key, address: 0 }
        };
        let request = ReadRequest {
            from: target(&readers.keys[0], &source, Rights::REMOTE_READ),
            len_bytes: len as u64,
            into: target(&readers.keys[1], &sink, Rights::REMOTE_WRITE),
            deadline_ns: None,
        };
        let packets = Cell::new(0);
        readers.pair.drop_data = Some(Box::new(move |_| {
            let packet = packets.replace(packets.get() + 1);
            (lost * 64..(lost + 1) * 64).contains(&packet)
        }));
        let now_ns = readers.pair.now_ns;
        let id = readers.pair.b.qp().queue_read(now_ns, request).unwrap();
        let status = |pair: &mut Pair| pair.b.qp().read_status(id).unwrap();
        let ends = |pair: &mut Pair| status(pair).outcome.is_some();
        assert!(readers.pair.run_until(SECOND, ends), "message {lost}");
        let status = status(&mut readers.pair);
        assert_eq!(status.outcome, Some(Ok(())), "message {lost}");
        let start = lost * (64 << 10);
        let end = (start + (64 << 10)).min(len);
        assert_eq!(status.placed_bytes, (len - (end - start)) as u64, "message {lost}");
        let mut got = vec![0; len];
        sink.read(0, &mut got).unwrap();
        assert!(got[..start] == bytes[..start] && got[end..] == bytes[end..]);
        assert!(got[start..end].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn many_reads_in_flight_end_each_with_its_own_bytes() {
    let mut readers = readers("sr", 1, link(30_000));
    let mut open = Vec::new();
    for number in 0..500u64 {
        let len = 1 + readers.rng.below(3000) as usize;
        open.push(readers.read(number * 2000, len));
        if open.len() == 60 {
            let first = open.remove(0);
            readers.check(first);
        }
    }
    for reading in open {
        readers.check(reading);
    }
    assert!(readers.pair.a.qp().is_idle());
}

#[test]
fn a_lost_request_is_repeated_and_answered_once() {
    let mut readers = readers("sr", 1, link(0));
    readers.pair.link.dark = true;
    let reading = readers.read(0, 50_000);
    readers.pair.run_for(100 * MS);
    readers.pair.link.dark = false;
    readers.check(reading);
    // Requests that come again are not answered again.
    readers.pair.recorded = Some(Vec::new());
    let reading = readers.read(100, 50_000);
    readers.check(reading);
    let sent = readers.pair.b.data_packets;
    let recorded = readers.pair.recorded.take().unwrap();
    for (side, channel, bytes) in recorded.into_iter().filter(|(side, ..)| *side == Side::A) {
        assert_eq!(side, Side::A);
        readers.pair.inject(Side::B, channel, bytes);
    }
    readers.pair.run_for(SECOND);
    assert_eq!(readers.pair.b.data_packets, sent);
}

#[test]
fn what_the_key_does_not_allow_is_refused() {
    let mut readers = readers("sr", 1, link(0));
    let end = REGION_BYTES as u64;
    let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
    let write_only =
        readers.keys[1].register(&readers.source, 0..end, access, || 0x1234_5678).unwrap();
    let key = readers.key;
    for (key, address, why) in [
        (key ^ 1, 0, ReadRefusal::Key),
        (write_only, 0, ReadRefusal::Key),
        (key, end - 10, ReadRefusal::Range),
        (key, u64::MAX - 5, ReadRefusal::Range),
    ] {
        let (request, _sink) = readers.request(Target { key, address }, 100, None);
        let now_ns = readers.pair.now_ns;
        let id = readers.pair.a.qp().queue_read(now_ns, request).unwrap();
        assert_eq!(readers.ends(id).outcome, Some(Err(ReadFailure::Refused(why))), "{address}");
        readers.pair.a.qp().release_read(id);
    }
    readers.keys[1].revoke(key);
    let reading = readers.read(0, 100);
    let refused = Err(ReadFailure::Refused(ReadRefusal::Key));
    assert_eq!(readers.ends(reading.id).outcome, Some(refused));
}

#[test]
fn a_deadline_ends_a_read_and_its_answer() {
    let mut readers = readers_at(10_000_000, "sr", 1, link(0));
    let deadline_ns = Some(readers.pair.now_ns + 200 * MS);
    let from = Target { key: readers.key, address: 0 };
    let (request, _sink) = readers.request(from, REGION_BYTES, deadline_ns);
    let now_ns = readers.pair.now_ns;
    let id = readers.pair.a.qp().queue_read(now_ns, request).unwrap();
    let status = readers.ends(id);
    assert!(matches!(status.outcome, Some(Err(ReadFailure::Deadline { .. }))));
    assert_eq!(Some(readers.pair.now_ns), deadline_ns);
    readers.pair.a.qp().release_read(id);
    // The peer stops, too.
    readers.pair.run_for(SECOND);
    let sent = readers.pair.b.data_packets;
    readers.pair.run_for(5 * SECOND);
    assert_eq!(readers.pair.b.data_packets, sent);
    assert!(sent < 1024, "not all of it was sent");
}

#[test]
fn a_read_without_time_left_is_not_asked_for() {
    let mut readers = readers("sr", 1, link(0));
    let now_ns = readers.pair.now_ns;
    let from = Target { key: readers.key, address: 0 };
    let (request, _sink) = readers.request(from, 1, Some(now_ns));
    let id = readers.pair.a.qp().queue_read(now_ns, request).unwrap();
    let outcome = readers.pair.a.qp().read_status(id).unwrap().outcome;
    let over = ReadFailure::Deadline { placed_bytes: 0, len_bytes: 1 };
    assert_eq!(outcome, Some(Err(over)));
    readers.pair.run_for(SECOND);
    assert_eq!(readers.pair.b.data_packets, 0);
}

#[test]
fn in_a_bounded_mode_a_read_ends_with_what_came() {
    let mut readers = readers("bounded", 1, link(100_000));
    let mut gaps = 0;
    for _ in 0..20 {
        let reading = readers.read(4096, 100_000);
        let status = readers.ends(reading.id);
        assert_eq!(status.outcome, Some(Ok(())));
        gaps += 100_000 - status.placed_bytes;
        readers.pair.a.qp().release_read(reading.id);
        readers.keys[0].revoke(reading.key);
    }
    assert!(gaps > 0, "nothing was lost");
}

#[test]
fn a_second_answer_does_not_count() {
    let mut readers = readers("bounded", 1, link(0));
    readers.pair.recorded = Some(Vec::new());
    let reading = readers.read(100, 50_000);
    assert_eq!(readers.ends(reading.id).placed_bytes, 50_000);
    let sent = readers.pair.b.data_packets;
    for (side, channel, bytes) in readers.pair.recorded.take().unwrap() {
        if side == Side::A {
            readers.pair.inject(Side::B, channel, bytes);
        }
    }
    readers.pair.run_for(SECOND);
    assert_eq!(readers.pair.b.data_packets, 2 * sent, "the first may have been lost whole");
    assert_eq!(readers.ends(reading.id).placed_bytes, 50_000);
}

#[test]
fn what_is_read_later_is_copied_later() {
    let mut readers = readers("sr", 1, link(0));
    let readings = [(); 6].map(|()| readers.read(0, REGION_BYTES));
    assert_eq!(readers.ends(readings[0].id).outcome, Some(Ok(())));
    // Copies that were made go on, and others are not made any more.
    readers.keys[1].revoke(readers.key);
    let outcomes = readings.each_ref().map(|reading| readers.ends(reading.id).outcome.unwrap());
    let whole = outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
    assert!((1..4).contains(&whole), "{outcomes:?}");
    let refused = Err(ReadFailure::Refused(ReadRefusal::Key));
    assert!(outcomes[whole..].iter().all(|outcome| *outcome == refused), "{outcomes:?}");
    for reading in readings.into_iter().take(whole) {
        readers.check(reading);
    }
}

#[test]
fn what_a_peer_may_have_answered_at_once_is_bounded() {
    let mut readers = readers("sr", 1, link(0));
    let key = readers.key;
    let mut ids = Vec::new();
    for _ in 0..READS_OPEN_MAX {
        let (request, _sink) = readers.request(Target { key, address: 0 }, 1000, None);
        let now_ns = readers.pair.now_ns;
        ids.push(readers.pair.a.qp().queue_read(now_ns, request).unwrap());
    }
    let (request, _sink) = readers.request(Target { key, address: 0 }, 1000, None);
    let now_ns = readers.pair.now_ns;
    let busy = readers.pair.a.qp().queue_read(now_ns, request);
    assert_eq!(busy, Err(PostReadError::Busy { open: READS_OPEN_MAX }));
    for len_bytes in [0, READ_BYTES_MAX + 1] {
        let request = ReadRequest { len_bytes, ..request };
        let refused = readers.pair.a.qp().queue_read(now_ns, request);
        assert_eq!(refused, Err(PostReadError::Length { len_bytes }));
    }
    for id in ids {
        assert_eq!(readers.ends(id).outcome, Some(Ok(())));
        readers.pair.a.qp().release_read(id);
    }
}

#[test]
fn a_peer_that_asks_for_more_than_it_takes_is_held_up_and_not_answered_twice() {
    let mut readers = readers("sr", 1, link(0));
    let mut rng = Rng::new(3);
    let now_ns = readers.pair.now_ns;
    for number in 0..100_000u64 {
        // As old packets, so that newer ones are heard. Places for the answers are not known at A.
        let read = Read {
            id: 1 + rng.below(number + 1),
            key: readers.key,
            address: rng.below(REGION_BYTES as u64),
            length: rng.below(REGION_BYTES as u64),
            sink_key: rng.below(1 << 32) as u32,
            sink_address: rng.below(1 << 40),
            left_us: 1_000_000,
        };
        let body = common::control_body(1, &[Frame::Read(read)]);
        readers.pair.b.qp().on_control(now_ns, 0, &body, body.len()).unwrap();
    }
    readers.pair.run_for(3 * SECOND);
    // They have ended by the deadline that the peer gave, and it can read again.
    assert!(readers.pair.b.qp().is_idle());
    let sent = readers.pair.b.qp().stats().send;
    assert!(sent.bytes < 10 * (64 << 20), "{sent:?}");
    assert!(readers.keys[0].guesses() > 0);
}

#[test]
fn many_requests_of_one_peer_are_answered_as_few_are() {
    many_requests(100);
}

#[test]
#[ignore = "long: a million requests"]
fn a_million_requests_of_one_peer_are_answered_as_few_are() {
    many_requests(1000);
}

/// So many thousands of requests, which nobody waits for.
fn many_requests(rounds: u64) {
    let mut readers = readers("sr", 1, link(0));
    let mut rng = Rng::new(4);
    let small = |id, rng: &mut Rng, key| Read {
        id,
        key,
        address: rng.below(1000),
        length: 1 + rng.below(1000),
        sink_key: rng.below(1 << 32) as u32,
        sink_address: 0,
        left_us: 100_000,
    };
    let mut answered = 0;
    for round in 0..rounds {
        let now_ns = readers.pair.now_ns;
        // Of those with a right key some are answered, and all others are refused or not heard.
        let mut frames = Vec::new();
        for number in 0..1000 {
            let key = if number % 2 == 0 { readers.key } else { rng.below(1 << 32) as u32 };
            let read = small(1 + round * 1000 + number, &mut rng, key);
            frames.push(Frame::Read(read));
            if frames.len() == 20 {
                let body = common::control_body(1, &std::mem::take(&mut frames));
                readers.pair.b.qp().on_control(now_ns, 0, &body, body.len()).unwrap();
            }
        }
        let sent = readers.pair.b.data_packets;
        readers.pair.run_for(5 * MS);
        let sent = readers.pair.b.data_packets - sent;
        // Answers to what may wait, and what is repeated of those before.
        assert!(sent <= 1000, "{sent} packets in answer to a thousand requests");
        answered += sent;
    }
    readers.pair.run_for(2 * SECOND);
    println!("{answered} packets in answer to {rounds} thousand requests");
    assert!(answered > rounds, "{answered}");
    assert!(readers.pair.b.qp().is_idle());
    // It can read again.
    let reading = Read { id: 1 << 40, left_us: 0, ..small(0, &mut rng, readers.key) };
    let before = readers.pair.b.data_packets;
    let body = common::control_body(1, &[Frame::Read(reading)]);
    let now_ns = readers.pair.now_ns;
    readers.pair.b.qp().on_control(now_ns, 0, &body, body.len()).unwrap();
    readers.pair.run_for(5 * MS);
    assert!(readers.pair.b.data_packets > before);
}

#[test]
fn reads_end_with_their_queue_pair() {
    let mut readers = readers("sr", 1, link(0));
    readers.pair.link.dark = true;
    let reading = readers.read(0, 1000);
    let status = readers.ends(reading.id);
    assert!(matches!(status.outcome, Some(Err(ReadFailure::Failed(_)))), "{status:?}");
}

#[test]
fn a_fenced_write_waits_for_reads_and_answers_wait_for_no_fence() {
    let mut readers = readers("sr", 1, link(10_000));
    let mut rng = Rng::new(12);
    // Both ends may do all: A has a place that B may write, and B one that A may.
    let access = Access { rights: Rights::REMOTE_WRITE | Rights::REMOTE_READ, scope: Scope::Any };
    let places = readers.keys.clone().map(|keys| {
        let region = Region::new(vec![0; 100_000], RegionConfig::default());
        let key = keys.register(&region, 0..100_000, access, || rng.below(1 << 32) as u32);
        (region, key.unwrap())
    });
    let mut open = Vec::new();
    for (side, here, there) in [(Side::A, 0, 1), (Side::B, 1, 0)] {
        let now_ns = readers.pair.now_ns;
        let read = ReadRequest {
            from: Target { key: places[there].1, address: 0 },
            len_bytes: 90_000,
            into: Target { key: places[here].1, address: 0 },
            deadline_ns: None,
        };
        let write = SendRequest { data: vec![9; 50].into(), immediate: None, deadline_ns: None };
        let target = Target { key: places[there].1, address: 95_000 };
        let mut qp = readers.pair.end(side).qp();
        let read = qp.queue_read(now_ns, read).unwrap();
        let write = qp.fenced(|qp| qp.queue_write(write, target, false)).unwrap();
        open.push((side, read, write));
    }
    for (side, read, write) in open {
        let has_read =
            |pair: &mut Pair| pair.end(side).qp().read_status(read).unwrap().outcome.is_some();
        while !has_read(&mut readers.pair) {
            assert!(!readers.pair.status(side, write).injected, "before the read has ended");
            let now_ns = readers.pair.now_ns;
            assert!(now_ns < 60 * SECOND, "the fences wait for each other");
            readers.pair.run_for(MS / 10);
        }
        let ended =
            readers.pair.run_until(60 * SECOND, |pair| pair.status(side, write).outcome.is_some());
        assert!(ended);
        assert_eq!(readers.pair.status(side, write).outcome, Some(Ok(())));
    }
}
