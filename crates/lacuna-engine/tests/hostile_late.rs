//! A peer that never stops sending what is over: packets of closed receives and of writes under revoked keys,
//! again and again, between its real messages. Nothing changes in memory that was given back, later messages
//! arrive, and every such packet is counted.

mod common;

use common::{MS, SECOND, post, take};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::discard::Discard;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope};
use lacuna_proto::qp::{RecvOptions, RecvRequest, SendRequest, Target};
use lacuna_wire::{ImmediateSplit, Packet, parse_checked};
use std::sync::Arc;

/// Packets of old messages before each step of a millisecond.
const FLOOD: usize = 40;

fn config(mode: &str, split: (u8, u8, u8)) -> PairConfig {
    PairConfig {
        geometry: GeometryConfig {
            mtu_bytes: 256,
            chunk_packets: 2,
            stripe_packets: 4,
            channels: 2,
            generations: 4,
            split: ImmediateSplit::new(split.0, split.1, split.2).unwrap(),
            max_message_bytes: 8 << 10,
            ..GeometryConfig::default()
        },
        mode: mode.parse().unwrap(),
        controller: ControllerConfig::Fixed { rate_bits_per_s: 100_000_000 },
        ..PairConfig::default()
    }
}

fn pair(mode: &str, split: (u8, u8, u8)) -> Pair {
    let mut pair = Pair::new(config(mode, split), Link { delay_ns: 2 * MS, ..Link::default() });
    pair.recorded = Some(Vec::new());
    pair
}

/// Data packets of a message, with their channels.
type Packets = Vec<(u8, Vec<u8>)>;

/// Takes the data packets that A has sent since the last call.
fn sent(pair: &mut Pair) -> Packets {
    let recorded = pair.recorded.replace(Vec::new()).expect("recording is on");
    let data = recorded.into_iter().filter(|(side, _, bytes)| {
        *side == Side::A && matches!(parse_checked(bytes), Ok(Packet::Data(..)))
    });
    data.map(|(_, channel, bytes)| (channel, bytes)).collect()
}

/// What the peer sends again and again.
struct Flood {
    rng: Rng,
    old: Vec<Packets>,
    /// Only so many of the newest messages: their generations have not come round.
    messages_max: usize,
    count: u64,
}

impl Flood {
    fn new(seed: u64, messages_max: usize) -> Self {
        Self { rng: Rng::new(seed), old: Vec::new(), messages_max, count: 0 }
    }

    fn pour(&mut self, pair: &mut Pair) {
        let from = self.old.len().saturating_sub(self.messages_max);
        let packets: Vec<&(u8, Vec<u8>)> = self.old[from..].iter().flatten().collect();
        for _ in 0..FLOOD.min(packets.len() * FLOOD) {
            let (channel, bytes) = packets[self.rng.below(packets.len() as u64) as usize];
            pair.inject(Side::B, *channel, bytes.clone());
            self.count += 1;
        }
    }

    /// Runs with the flood until `done`.
    fn run(&mut self, pair: &mut Pair, mut done: impl FnMut(&mut Pair) -> bool) {
        for _ in 0..10_000 {
            self.pour(pair);
            if pair.run_until(MS, &mut done) {
                return;
            }
        }
        panic!("a message does not arrive while old packets are sent");
    }
}

fn discarded(pair: &Pair, reasons: &[Discard]) -> u64 {
    let channels = pair.b.qp().stats().channels;
    let count =
        |reason: &Discard| channels.iter().map(|c| c.discarded[reason.index()]).sum::<u64>();
    reasons.iter().map(count).sum()
}

#[test]
fn old_packets_without_end_change_no_buffer_and_stop_no_message() {
    // Eight slots and four generations: the packets of the last 31 messages are known as old.
    for mode in ["sr", "auto", "ec:mds:4:2", "bounded", "raw"] {
        let mut pair = pair(mode, (3, 21, 8));
        let mut flood = Flood::new(1, 30);
        let mut given_back: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for number in 0..100u64 {
            let data = Rng::new(number).bytes(3000);
            let held = post(&mut pair, Side::B, vec![0; 3000]);
            let id = pair.send(Side::A, data.clone(), None);
            flood.run(&mut pair, |pair| {
                held.posted.is_complete() && pair.status(Side::A, id).outcome.is_some()
            });
            assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())), "{mode}, {number}");
            let bytes = take(&mut pair, Side::B, held);
            assert!(bytes == data, "{mode}, message {number}");
            given_back.push((bytes.clone(), bytes));
            // What is on its way of it, and its parity.
            pair.run_for(5 * MS);
            flood.old.push(sent(&mut pair));
        }
        flood.pour(&mut pair);
        pair.run_for(MS);
        assert!(given_back.iter().all(|(buffer, copy)| buffer == copy), "{mode}");
        assert!(flood.count > 10_000, "{mode}: {}", flood.count);
        // Each packet is counted: as placed, or as late. (Late parity counts as parity that was not needed.)
        let late = discarded(&pair, &[Discard::Late]);
        let channels = pair.b.qp().stats().channels;
        let placed: u64 = channels.iter().map(|channel| channel.packets + channel.duplicates).sum();
        assert_eq!(placed + late, pair.a.data_packets + flood.count, "{mode}");
        assert!(late > flood.count / 4, "{mode}: {late} of {}", flood.count);
        let has_parity = channels.iter().any(|channel| channel.parity_packets > 0);
        assert!(has_parity || late == flood.count, "{mode}: {late}, {}", flood.count);
    }
}

#[test]
fn old_packets_of_a_receive_that_its_deadline_has_ended_are_late() {
    for mode in ["bounded", "sr"] {
        let mut pair = pair(mode, (3, 21, 8));
        let mut flood = Flood::new(2, 30);
        for number in 0..60u64 {
            let data = Rng::new(number).bytes(3000);
            let deadline_ns = Some(pair.now_ns + 20 * MS);
            let request = RecvRequest {
                buffer: lacuna_place::placement::Placement::from_vec(vec![0xEE; 3000]),
                options: RecvOptions { deadline_ns, ..RecvOptions::default() },
                notifies: false,
            };
            let now_ns = pair.now_ns;
            let mut posted = pair.b.qp().post_receive_with(now_ns, request).unwrap();
            // Half of its packets come before the deadline, and nothing is repaired in time.
            pair.link.loss_ppm = 500_000;
            let data_sent = SendBuffer::from(data.clone());
            let request = SendRequest { data: data_sent, immediate: None, deadline_ns };
            pair.a.qp().queue_send(request).unwrap();
            flood.pour(&mut pair);
            pair.run_for(20 * MS);
            pair.link.loss_ppm = 0;
            assert!(posted.reason().is_some(), "{mode}, {number}");
            let packets = posted.placed_packets();
            let mut here = vec![false; 12];
            for (packet, is_here) in here.iter_mut().enumerate() {
                *is_here = posted.parts[0].has_packet(packet as u32);
            }
            // The application has not looked yet: the protocol has closed it.
            flood.old.push(sent(&mut pair));
            flood.pour(&mut pair);
            pair.run_for(10 * MS);
            assert_eq!(posted.placed_packets(), packets, "{mode}, {number}");
            {
                let mut qp = pair.b.qp();
                posted.parts.iter().for_each(|part| drop(qp.table().close(part.number())));
                qp.on_receive_closed(pair.now_ns, &posted);
            }
            let length = posted.length_bytes().unwrap_or(3000) as usize;
            posted.zero_missing();
            let bytes = posted.into_vec().unwrap();
            for (packet, is_here) in here.into_iter().enumerate() {
                let range = packet * 256..(packet * 256 + 256).min(length);
                let expected =
                    if is_here { &data[range.clone()] } else { &[0; 256][..range.len()] };
                assert!(bytes[range] == *expected, "{mode}, {number}: packet {packet}");
            }
        }
        assert!(discarded(&pair, &[Discard::Late]) >= flood.count / 2, "{mode}");
    }
}

/// A region that the peer may write, and its key.
fn registered(keys: &KeyTable, rng: &mut Rng) -> (Arc<Region>, u32) {
    let config = RegionConfig { has_validity: true, ..RegionConfig::default() };
    let region = Region::new(vec![0; 8 << 10], config);
    let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
    let draw = || rng.next_u64() as u32;
    let key = keys.register(&region, 0..8 << 10, access, draw).unwrap();
    (region, key)
}

#[test]
fn packets_under_revoked_keys_without_end_change_no_memory_and_stop_no_write() {
    for mode in ["sr", "ec:mds:4:2", "bounded"] {
        // 256 slots and four generations: none comes round.
        let mut pair = pair(mode, (8, 20, 4));
        let keys = Arc::new(KeyTable::new(1));
        pair.a.qp().become_one_sided(Arc::new(KeyTable::new(2)), 2);
        pair.b.qp().become_one_sided(keys.clone(), 1);
        pair.run_for(50 * MS);
        let mut flood = Flood::new(3, usize::MAX);
        let mut rng = Rng::new(4);
        let mut given_back: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for number in 0..40u64 {
            let (region, key) = registered(&keys, &mut rng);
            for address in [0, 1000, 1000] {
                let data = Rng::new(number).bytes(3000);
                let target = Target { key, address };
                let data_sent = SendBuffer::from(data.clone());
                let request = SendRequest { data: data_sent, immediate: None, deadline_ns: None };
                let id = pair.a.qp().queue_write(request, target, false).unwrap();
                let is_here = |pair: &mut Pair| {
                    let mut got = vec![0; 3000];
                    region.read(address, &mut got).unwrap();
                    got == data && pair.status(Side::A, id).outcome.is_some()
                };
                flood.run(&mut pair, is_here);
                assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())), "{mode}, {number}");
            }
            pair.run_for(5 * MS);
            // Of a live key, to slots that are closed: they write nothing either.
            flood.old.push(sent(&mut pair));
            region.zero(0..8 << 10).unwrap();
            flood.pour(&mut pair);
            pair.run_for(MS);
            let mut got = vec![1; 8 << 10];
            region.read(0, &mut got).unwrap();
            assert!(got.iter().all(|byte| *byte == 0), "{mode}, {number}");
            assert!(keys.revoke(key));
            let bytes = region.into_memory().unwrap().into_vec().unwrap();
            given_back.push((bytes.clone(), bytes));
        }
        flood.pour(&mut pair);
        pair.run_for(SECOND);
        assert!(given_back.iter().all(|(memory, copy)| memory == copy), "{mode}");
        assert!(flood.count > 5000, "{mode}: {}", flood.count);
        let late = discarded(&pair, &Discard::ALL);
        assert!(
            (flood.count..flood.count + 2000).contains(&late),
            "{mode}: {late}, {}",
            flood.count
        );
    }
}
