//! Messages in regions: binding, refusals, repairs, and random overlapping writes against an oracle. Run
//! under the address and the thread sanitizer too (`table/tests.rs`).

mod oracle;

use super::*;
use crate::discard::Discard;
use crate::geometry::{Geometry, GeometryConfig};
use crate::placement::Placement;
use crate::receive::Receive;
use crate::summary::BurstSummary;
use crate::table::{RecvTable, Ticket};
use crate::writer::ChannelWriter;
use lacuna_code::{Code, Codec, Engine, EngineKind};
use lacuna_link::SplitMix64;
use lacuna_wire::{DataHeader, ImmediateFields, ImmediateSplit, Qpn};

const MTU: usize = 100;
/// The queue pairs' own key.
const RKEY: u32 = 7;

fn geometry(channels: u8, code: Option<Code>) -> Geometry {
    Geometry::new(GeometryConfig {
        mtu_bytes: MTU as u32,
        chunk_packets: 1,
        stripe_packets: 1,
        channels,
        generations: 4,
        split: ImmediateSplit::new(4, 20, 8).unwrap(),
        max_message_bytes: 64 * MTU as u64,
        code,
        ..GeometryConfig::default()
    })
    .unwrap()
}

/// A message of `bytes` bytes at `base` of a key's range.
#[derive(Debug, Clone, Copy)]
struct Message {
    number: u64,
    key: u32,
    base: u64,
    bytes: usize,
}

impl Message {
    fn packets(&self) -> u32 {
        self.bytes.div_ceil(MTU).max(1) as u32
    }

    fn bytes_of(&self, packet: u32) -> usize {
        (self.bytes - packet as usize * MTU).min(MTU)
    }

    fn header(&self, geometry: &Geometry, packet: u32) -> DataHeader {
        let slot = geometry.slot_of(self.number);
        let fields = ImmediateFields { message: slot, packet, fragment: 0 };
        let generation = geometry.generation_of(self.number);
        DataHeader {
            dest: Qpn::new(1, geometry.channel_of(slot, packet), generation),
            psn: packet,
            ends_message: packet + 1 == self.packets(),
            carries_immediate: false,
            address: Some(self.base + u64::from(packet) * MTU as u64),
            rkey: self.key,
            length: self.bytes_of(packet) as u32,
            behind: 0,
            immediate: geometry.split().pack(fields),
        }
    }
}

/// A queue pair at the receiver, whose peer writes to regions.
struct End {
    geometry: Geometry,
    table: Arc<RecvTable>,
    writers: Vec<ChannelWriter>,
}

impl End {
    fn new(keys: &Arc<KeyTable>, peer: u64, channels: u8, code: Option<Code>) -> Self {
        let geometry = geometry(channels, code);
        let engine = || Engine::new(EngineKind::Naive).unwrap();
        let codec = code.map(|code| Arc::new(Codec::with_engine(code, engine())));
        let (table, writers) = ChannelWriter::of_table(geometry, RKEY, 0, codec.as_ref());
        assert!(keys.reserve(RKEY));
        table.use_keys(keys.clone(), peer);
        Self { geometry, table, writers }
    }

    fn post(&self, number: u64) -> Arc<Receive> {
        self.table.post_unbound(number).unwrap()
    }

    fn place_header(&mut self, header: &DataHeader, payload: &[u8]) -> BurstSummary {
        let mut placer = self.writers[usize::from(header.dest.channel())].burst();
        placer.place(header, payload, false);
        placer.finish()
    }

    fn place(&mut self, message: Message, packet: u32, byte: u8) -> BurstSummary {
        let header = message.header(&self.geometry, packet);
        self.place_header(&header, &[byte; MTU][..message.bytes_of(packet)])
    }
}

/// Keys, and a region with one of them.
struct Target {
    keys: Arc<KeyTable>,
    region: Arc<Region>,
    key: u32,
    rng: SplitMix64,
}

impl Target {
    fn new(bytes: usize, config: RegionConfig) -> Self {
        let (keys, region) = (Arc::new(KeyTable::new(1)), Region::new(vec![0; bytes], config));
        let mut target = Self { keys, region, key: 0, rng: SplitMix64::new(3) };
        target.key = target.register(0..bytes as u64, Rights::REMOTE_WRITE, Scope::Any);
        target
    }

    fn register(&mut self, range: Range<u64>, rights: Rights, scope: Scope) -> u32 {
        let draw = || self.rng.next_u64() as u32;
        self.keys.register(&self.region, range, Access { rights, scope }, draw).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.region.len() as usize];
        self.region.read(0, &mut bytes).unwrap();
        bytes
    }

    fn valid(&self) -> Vec<(u64, u64)> {
        let granules = self.region.validity().unwrap().copy(0..self.region.len());
        granules.ranges().map(|range| (range.start, range.end)).collect()
    }
}

const WITH_MAP: RegionConfig = RegionConfig { has_validity: true, is_exclusive: false };

/// The one reason why a packet was discarded.
fn reason(summary: &BurstSummary) -> Option<Discard> {
    let mut reasons = Discard::ALL.into_iter().filter(|r| summary.discarded[r.index()] > 0);
    let reason = reasons.next()?;
    assert_eq!((reasons.next(), summary.packets), (None, 0));
    Some(reason)
}

#[test]
fn whichever_packet_comes_first_binds_the_message() {
    for first in 0..4 {
        let target = Target::new(1000, WITH_MAP);
        let mut end = End::new(&target.keys, 1, 2, None);
        let receive = end.post(0);
        assert!(receive.is_unbound() && receive.bound().is_none() && !receive.is_complete());
        let message = Message { number: 0, key: target.key, base: 130, bytes: 350 };
        for packet in [first, 0, 1, 2, 3] {
            let summary = end.place(message, packet, packet as u8 + 1);
            assert_eq!(summary.packets + summary.duplicates, 1);
            assert_eq!(summary.touched, Some((0, 0)));
        }
        let bound = receive.bound().unwrap();
        assert_eq!((bound.key(), bound.address()), (target.key, 130));
        let record = receive.record();
        assert!(record.is_complete());
        assert_eq!(record.length_bytes(), Some(350));
        assert_eq!(record.chunk(0), None, "the bytes are in the region");
        let byte = |at: usize| match at.checked_sub(130) {
            Some(at) if at < 350 => (at / 100) as u8 + 1,
            _ => 0,
        };
        let expected: Vec<u8> = (0..1000).map(byte).collect();
        assert_eq!(target.bytes(), expected);
        assert_eq!(target.valid(), [(192, 448)]);
        assert!(end.table.close(0).is_some());
        let late = end.place(message, 0, 9);
        assert_eq!((reason(&late), late.late), (Some(Discard::Late), true));
    }
}

#[test]
fn one_peer_cannot_write_where_another_cannot_be() {
    let mut target = Target::new(2000, WITH_MAP);
    let range = 500..900;
    let read = target.register(range.clone(), Rights::REMOTE_READ, Scope::Any);
    let other = target.register(range.clone(), Rights::REMOTE_WRITE, Scope::Peer(2));
    let own = target.register(range.clone(), Rights::REMOTE_WRITE, Scope::Peer(1));
    let revoked = target.register(range, Rights::REMOTE_WRITE, Scope::Any);
    assert!(target.keys.revoke(revoked));
    let mut end = End::new(&target.keys, 1, 1, None);
    let receive = end.post(0);
    let message = Message { number: 0, key: own, base: 0, bytes: 400 };
    let with = |key, base, bytes| Message { key, base, bytes, ..message };
    for (message, packet, expected) in [
        (with(own ^ 1, 0, 400), 0, Discard::UnknownKey),
        (with(RKEY, 0, 400), 0, Discard::OutOfRange),
        (with(read, 0, 400), 0, Discard::Right),
        (with(other, 0, 400), 0, Discard::Scope),
        (with(revoked, 0, 400), 0, Discard::Revoked),
        (with(own, 301, 400), 0, Discard::Window),
        (with(own, u64::MAX - 300, 400), 0, Discard::Window),
        (with(own, 400, 400), 0, Discard::Window),
    ] {
        let summary = end.place(message, packet, 1);
        assert_eq!(reason(&summary), Some(expected), "{message:?}");
    }
    let mut before = message.header(&end.geometry, 2);
    before.address = Some(150);
    let summary = end.place_header(&before, &[1; MTU]);
    assert_eq!(reason(&summary), Some(Discard::Window), "the message would begin before the range");
    let mut short = message.header(&end.geometry, 1);
    short.length = 50;
    short.behind = 51;
    assert_eq!(reason(&end.place_header(&short, &[1; 50])), Some(Discard::Inconsistent));
    let mut without = message.header(&end.geometry, 1);
    without.address = None;
    assert_eq!(reason(&end.place_header(&without, &[1; MTU])), Some(Discard::Key));
    assert!(receive.bound().is_none());
    assert!(target.bytes().iter().all(|byte| *byte == 0) && target.valid().is_empty());
    // Bound, it stays where it is.
    assert_eq!(end.place(message, 1, 1).packets, 1);
    for (message, packet, expected) in [
        (with(own, 100, 400), 2, Discard::Inconsistent),
        (with(target.key, 500, 400), 2, Discard::Inconsistent),
        (with(own, 0, 450), 4, Discard::Window),
        (with(own ^ 1, 0, 400), 2, Discard::UnknownKey),
    ] {
        let summary = end.place(message, packet, 1);
        assert_eq!(reason(&summary), Some(expected), "{message:?}");
    }
    assert_eq!(target.bytes().iter().filter(|byte| **byte != 0).count(), MTU);
}

#[test]
fn a_receive_with_a_buffer_takes_no_key_of_a_region() {
    let target = Target::new(1000, WITH_MAP);
    let mut end = End::new(&target.keys, 1, 1, None);
    let receive = end.table.post(0, Placement::from_vec(vec![0; 400])).unwrap();
    let message = Message { number: 0, key: target.key, base: 0, bytes: 400 };
    for key in [target.key, target.key ^ 1] {
        let summary = end.place(Message { key, ..message }, 0, 1);
        assert_eq!(reason(&summary), Some(Discard::Key));
    }
    // Also amid its own packets.
    let mut placer = end.writers[0].burst();
    for (packet, key) in [(0, RKEY), (1, target.key), (2, RKEY)] {
        let header = Message { key, ..message }.header(&end.geometry, packet);
        placer.place(&header, &[5; MTU], false);
    }
    let summary = placer.finish();
    assert_eq!((summary.packets, summary.discarded[Discard::Key.index()]), (2, 1));
    assert_eq!(receive.chunk(0), Some(&[5; MTU][..]));
    assert!(!receive.has_packet(1) && receive.has_packet(2));
    assert!(target.bytes().iter().all(|byte| *byte == 0));
}

#[test]
fn messages_of_slots_and_regions_share_a_burst() {
    let target = Target::new(1000, WITH_MAP);
    let mut end = End::new(&target.keys, 1, 1, None);
    let slot = end.table.post(0, Placement::from_vec(vec![0; 300])).unwrap();
    let unbound = [1, 2].map(|number| end.post(number));
    let messages = [
        Message { number: 0, key: RKEY, base: 0, bytes: 300 },
        Message { number: 1, key: target.key, base: 10, bytes: 300 },
        Message { number: 2, key: target.key, base: 500, bytes: 300 },
    ];
    let mut placer = end.writers[0].burst();
    for packet in 0..3 {
        for message in messages {
            let header = message.header(&end.geometry, packet);
            placer.place(&header, &[message.number as u8 + 1; MTU], false);
        }
    }
    let summary = placer.finish();
    assert_eq!((summary.packets, summary.bytes, summary.chunks), (9, 900, 9));
    assert_eq!(summary.touched, Some((0, 2)));
    assert!(slot.is_complete() && unbound.iter().all(|receive| receive.record().is_complete()));
    let bytes = target.bytes();
    assert!(bytes[10..310].iter().all(|byte| *byte == 2));
    assert!(bytes[500..800].iter().all(|byte| *byte == 3));
}

#[test]
fn a_damaged_packet_leaves_the_bytes_of_others() {
    let target = Target::new(1000, WITH_MAP);
    target.region.write(0, &[9; 1000]).unwrap();
    let mut end = End::new(&target.keys, 1, 1, None);
    let receive = end.post(0);
    let message = Message { number: 0, key: target.key, base: 0, bytes: 400 };
    let seal = end.geometry.seal();
    for (packet, is_damaged) in [(0, true), (1, false), (2, true)] {
        let header = message.header(&end.geometry, packet);
        let mut bytes = vec![0; seal.packet_bytes(&header)];
        seal.emit_packet(&header, &mut bytes, &[4; MTU]);
        let at = header.header_bytes();
        bytes[at + 5] ^= u8::from(is_damaged);
        let mut placer = end.writers[0].burst();
        let payload = &bytes[at..][..MTU];
        let outcome = placer.check_and_place(&bytes, &header, payload, false);
        assert_eq!(outcome.is_err(), is_damaged);
        assert_eq!(placer.finish().packets, u64::from(!is_damaged));
    }
    assert!(!receive.record().has_packet(0) && receive.record().has_packet(1));
    let bytes = target.bytes();
    assert!(bytes[100..200].iter().all(|byte| *byte == 4));
    assert!(bytes[..100].iter().chain(&bytes[200..]).all(|byte| *byte == 9));
}

#[test]
fn a_packet_in_pieces_is_valid_with_its_last_piece() {
    let target = Target::new(1000, WITH_MAP);
    let mut end = End::new(&target.keys, 1, 1, None);
    let receive = end.post(0);
    let message = Message { number: 0, key: target.key, base: 64, bytes: 300 };
    let whole = message.header(&end.geometry, 1);
    let piece = |start: u32, end: u32| DataHeader {
        address: whole.address.map(|address| address + u64::from(start)),
        length: end - start,
        behind: 100 - end,
        ..whole
    };
    // The last one, which binds the message, the first, and the middle one twice.
    for (start, stop, has_all) in [(70, 100, false), (0, 30, false), (20, 75, true), (20, 75, true)]
    {
        let header = piece(start, stop);
        end.place_header(&header, &[3; MTU][..(stop - start) as usize]);
        assert_eq!(receive.record().has_packet(1), has_all);
        assert_eq!(target.valid().is_empty(), !has_all);
    }
    assert_eq!(receive.bound().map(Bound::address), Some(64));
    assert_eq!(target.valid(), [(192, 256)]);
    assert!(target.bytes()[164..264].iter().all(|byte| *byte == 3));
}

#[test]
fn an_empty_message_binds_and_its_immediate_arrives() {
    let target = Target::new(100, WITH_MAP);
    let mut end = End::new(&target.keys, 1, 1, None);
    let receive = end.post(0);
    let message = Message { number: 0, key: target.key, base: 100, bytes: 0 };
    let fragments = end.geometry.split().fragments();
    for packet in 0..fragments {
        let fields = ImmediateFields { message: 0, packet, fragment: packet + 1 };
        let header = DataHeader {
            ends_message: true,
            carries_immediate: true,
            address: Some(100),
            length: 0,
            immediate: end.geometry.split().pack(fields),
            ..message.header(&end.geometry, 0)
        };
        assert_eq!(end.place_header(&header, &[]).packets, 1);
    }
    let record = receive.record();
    assert!(record.is_complete());
    assert_eq!((record.length_bytes(), record.immediate()), (Some(0), Some(0x0403_0201)));
    assert!(target.valid().is_empty());
}

#[test]
fn an_exclusive_region_keeps_valid_bytes_until_they_are_taken() {
    let exclusive = RegionConfig { is_exclusive: true, ..RegionConfig::default() };
    let target = Target::new(1024, exclusive);
    let mut end = End::new(&target.keys, 1, 1, None);
    let place = |end: &mut End, number, base, byte| {
        let message = Message { number, key: target.key, base, bytes: 100 };
        end.place(message, 0, byte)
    };
    let receives: Vec<_> = (0..4).map(|number| end.post(number)).collect();
    assert_eq!(place(&mut end, 0, 64, 1).packets, 1);
    assert_eq!(target.valid(), [(64, 128)]);
    let summary = place(&mut end, 1, 100, 2);
    assert_eq!(reason(&summary), Some(Discard::Overlap));
    assert!(summary.is_of_the_peer(), "it has the key");
    assert!(!receives[1].record().has_packet(0));
    assert!(target.bytes()[64..164].iter().all(|byte| *byte == 1));
    assert_eq!(place(&mut end, 2, 200, 3).packets, 1);
    // Copies are no overlap, and taken bytes may be overwritten.
    assert_eq!(place(&mut end, 0, 64, 1).duplicates, 1);
    assert_eq!(target.region.validity().unwrap().take(0..128).count(), 1);
    assert_eq!(place(&mut end, 1, 100, 2).packets, 1);
    assert!(target.bytes()[100..200].iter().all(|byte| *byte == 2));
}

/// Places packets 0 and 2..4 of a message of four, overwrites some bytes, and places the parity.
fn lose_packet_1(overwritten: Option<u64>) -> (Target, Arc<Receive>, BurstSummary) {
    let code = Code::mds(4, 1).unwrap();
    let target = Target::new(1000, WITH_MAP);
    let mut end = End::new(&target.keys, 1, 1, Some(code));
    let receive = end.post(0);
    let message = Message { number: 0, key: target.key, base: 30, bytes: 400 };
    let data = [[1u8; MTU], [2; MTU], [3; MTU], [4; MTU]];
    for packet in [0, 2, 3] {
        assert_eq!(end.place(message, packet, packet as u8 + 1).packets, 1);
    }
    if let Some(at) = overwritten {
        target.region.write(at, &[0xEE]).unwrap();
    }
    let mut parity = [[0; MTU]];
    let codec = Codec::with_engine(code, Engine::new(EngineKind::Naive).unwrap());
    codec.encode(&data[..], &mut parity[..]).unwrap();
    let base = end.geometry.layout().unwrap().base();
    let fields = ImmediateFields { message: 0, packet: base, fragment: 0 };
    let header = DataHeader {
        ends_message: true,
        address: Some(30 + 400),
        length: MTU as u32,
        immediate: end.geometry.split().pack(fields),
        ..message.header(&end.geometry, 0)
    };
    let summary = end.place_header(&header, &parity[0]);
    (target, receive, summary)
}

#[test]
fn a_lost_packet_is_repaired_in_the_region() {
    let (target, receive, summary) = lose_packet_1(None);
    assert_eq!((summary.repaired_packets, summary.chunks, summary.touched), (1, 1, Some((0, 0))));
    assert!(receive.record().is_complete());
    assert!(target.bytes()[130..230].iter().all(|byte| *byte == 2));
    assert_eq!(target.valid(), [(64, 384)]);
}

#[test]
fn nothing_is_repaired_from_bytes_that_another_writer_changed() {
    for at in [30, 129, 230, 429] {
        let (target, receive, summary) = lose_packet_1(Some(at));
        assert_eq!((summary.repaired_packets, summary.parity_packets), (0, 1));
        assert!(!receive.record().has_packet(1));
        assert!(target.bytes()[130..230].iter().all(|byte| *byte == 0));
    }
    // The lost packet's own bytes may be anybody's.
    let (_, receive, summary) = lose_packet_1(Some(130));
    assert_eq!(summary.repaired_packets, 1);
    assert!(receive.record().is_complete());
}

#[test]
fn parity_that_comes_first_has_no_place_yet() {
    let target = Target::new(1000, WITH_MAP);
    let mut end = End::new(&target.keys, 1, 1, Some(Code::mds(4, 1).unwrap()));
    let receive = end.post(0);
    let message = Message { number: 0, key: target.key, base: 0, bytes: 400 };
    let base = end.geometry.layout().unwrap().base();
    let fields = ImmediateFields { message: 0, packet: base, fragment: 0 };
    let header = DataHeader {
        ends_message: true,
        address: Some(400),
        length: MTU as u32,
        immediate: end.geometry.split().pack(fields),
        ..message.header(&end.geometry, 0)
    };
    assert_eq!(reason(&end.place_header(&header, &[0; MTU])), Some(Discard::Unbound));
    assert!(receive.bound().is_none());
}

#[test]
fn packets_with_guessed_keys_are_counted_and_soon_refused() {
    let mut target = Target::new(1000, WITH_MAP);
    let other = target.register(0..1000, Rights::REMOTE_WRITE, Scope::Any);
    let mut end = End::new(&target.keys, 1, 1, None);
    let _receives = [0, 1].map(|number| end.post(number));
    let message = Message { number: 0, key: target.key, base: 0, bytes: 300 };
    assert_eq!(end.place(message, 0, 1).packets, 1);
    let mut placer = end.writers[0].burst();
    for _ in 0..1000 {
        let key = target.rng.next_u64() as u32;
        let header = Message { key, ..message }.header(&end.geometry, 1);
        placer.place(&header, &[9; MTU], false);
    }
    let summary = placer.finish();
    let count = |reason: Discard| summary.discarded[reason.index()];
    assert_eq!(count(Discard::UnknownKey), u64::from(GUESSES_MAX));
    assert_eq!(count(Discard::Guesses), 1000 - u64::from(GUESSES_MAX));
    assert!(!summary.is_of_the_peer());
    assert_eq!(target.keys.guesses(), u64::from(GUESSES_MAX));
    // The key that the peer uses still works, others do not for a while.
    assert_eq!(end.place(message, 1, 1).packets, 1);
    let next = Message { number: 1, key: other, ..message };
    assert_eq!(reason(&end.place(next, 0, 1)), Some(Discard::Guesses));
    target.keys.forgive();
    assert_eq!(end.place(next, 0, 1).packets, 1);
}

#[test]
fn memory_that_a_message_is_bound_to_can_be_had_after_revoke() {
    let target = Target::new(1000, WITH_MAP);
    let mut end = End::new(&target.keys, 1, 1, None);
    let receive = end.post(0);
    let message = Message { number: 0, key: target.key, base: 0, bytes: 300 };
    assert_eq!(end.place(message, 0, 1).packets, 1);
    assert!(target.keys.revoke(target.key));
    assert_eq!(reason(&end.place(message, 1, 1)), Some(Discard::Revoked));
    let bytes = target.region.into_memory().unwrap().into_vec().unwrap();
    assert_eq!(bytes.iter().filter(|byte| **byte == 1).count(), MTU);
    assert!(receive.record().has_packet(0), "what was placed is still known");
    assert!(end.table.close(0).is_some());
}

#[test]
fn a_bound_receive_takes_memory_as_packets_come() {
    let bytes = 64 * MTU;
    let target = Target::new(bytes, RegionConfig::default());
    let end = End::new(&target.keys, 1, 1, None);
    let receive = end.post(0);
    let unbound = std::mem::size_of_val(&*receive);
    assert!(unbound <= 300, "{unbound} bytes, as `post_unbound` says");
}

#[test]
fn a_message_with_an_immediate_has_no_place_until_it_is_admitted() {
    let target = Target::new(1000, WITH_MAP);
    let mut end = End::new(&target.keys, 1, 1, None);
    let (room, held) = (Arc::new(()), Arc::new(()));
    let (admits, ticket) = (Arc::downgrade(&room), held.clone());
    let admit = move || admits.upgrade().is_none().then(|| Box::new(ticket.clone()) as Ticket);
    assert!(end.table.admit_by(admit) && !end.table.admit_by(|| None));
    let plain = end.post(0);
    let receive = end.post(1);
    let message = Message { number: 0, key: target.key, base: 0, bytes: 400 };
    assert_eq!(end.place(message, 0, 1).packets, 1, "nobody is told of it");
    assert!(plain.bound().unwrap().take_ticket().is_none());

    let message = Message { number: 1, base: 500, ..message };
    let header = DataHeader { carries_immediate: true, ..message.header(&end.geometry, 1) };
    assert_eq!(reason(&end.place_header(&header, &[2; MTU])), Some(Discard::Entry));
    assert!(receive.bound().is_none());
    drop(room);
    assert_eq!(end.place_header(&header, &[2; MTU]).packets, 1);
    assert_eq!(Arc::strong_count(&held), 3);
    assert!(receive.bound().unwrap().take_ticket().is_some());
    assert!(receive.bound().unwrap().take_ticket().is_none());
    assert_eq!(target.bytes()[600..700], [2; 100]);
}
