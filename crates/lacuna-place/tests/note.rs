//! Packets that are only noted lead to the same record as packets that are placed: any list of them,
//! with duplicates, stale generations, wrong slots, keys and channels, contradictions, pieces and
//! parity, gives the same summaries and records, for receives with and without memory.

use lacuna_code::{Code, Codec};
use lacuna_place::discard::Discard;
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_place::receive::Receive;
use lacuna_place::summary::BurstSummary;
use lacuna_place::table::RecvTable;
use lacuna_place::writer::ChannelWriter;
use lacuna_wire::{DataHeader, ImmediateFields, ImmediateSplit, Qpn};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MTU: u64 = 64;
const RKEY: u32 = 7;
const SLOTS: u64 = 4;
/// Bytes of every message: the last packet is a short one.
const MESSAGE_BYTES: u64 = 21 * MTU + 10;
/// A receive has room for more.
const CAPACITY_BYTES: u64 = 24 * MTU;

fn geometry(channels: u8, chunk_packets: u32, code: Option<Code>) -> Geometry {
    Geometry::new(GeometryConfig {
        mtu_bytes: MTU as u32,
        chunk_packets,
        stripe_packets: chunk_packets,
        channels,
        generations: 2,
        split: ImmediateSplit::new(2, 22, 8).unwrap(),
        max_message_bytes: 32 * MTU,
        code,
        ..GeometryConfig::default()
    })
    .unwrap()
}

/// What a packet has wrong, if anything.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    Key,
    Channel,
    Generation,
    Slot,
    /// A wrong packet number, by this many packets: in the message, after it, or in the parity.
    Number(u32),
    Address(u32),
    NoAddress,
    Length(u32),
    Ends,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Data {
        packet: u32,
        fault: Fault,
    },
    Parity {
        index: u32,
        fault: Fault,
    },
    /// Half of a packet.
    Piece {
        packet: u32,
        is_parity: bool,
        half: u8,
    },
    /// The application closes the receive and posts the next one.
    Repost,
}

/// One step and its random parameters.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    step: Step,
    slot: u64,
    has_address: bool,
    carries_immediate: bool,
    marked: bool,
    psn_jitter: i32,
    ends_burst: bool,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let fault = || {
        prop_oneof![
            30 => Just(Fault::None),
            1 => Just(Fault::Key),
            1 => Just(Fault::Channel),
            1 => Just(Fault::Generation),
            1 => Just(Fault::Slot),
            1 => (1u32..40).prop_map(Fault::Number),
            1 => (1u32..3000).prop_map(Fault::Address),
            1 => Just(Fault::NoAddress),
            1 => (0u32..130).prop_map(Fault::Length),
            1 => Just(Fault::Ends),
        ]
    };
    let step = prop_oneof![
        60 => (0u32..22, fault()).prop_map(|(packet, fault)| Step::Data { packet, fault }),
        20 => (0u32..24, fault()).prop_map(|(index, fault)| Step::Parity { index, fault }),
        8 => (0u32..24, any::<bool>(), 0u8..2)
            .prop_map(|(packet, is_parity, half)| Step::Piece { packet, is_parity, half }),
        2 => Just(Step::Repost),
    ];
    let slot = prop_oneof![4 => Just(0), 1 => 0..SLOTS];
    let jitter = prop_oneof![3 => Just(0), 1 => -20i32..20];
    let more = (any::<bool>(), 0u8..4, 0u8..4, jitter, 0u8..6);
    (step, slot, more).prop_map(|(step, slot, (has_address, immediate, marked, jitter, end))| {
        Drawn {
            step,
            slot,
            has_address,
            carries_immediate: immediate == 0,
            marked: marked == 0,
            psn_jitter: jitter,
            ends_burst: end == 0,
        }
    })
}

/// A packet as it is handed to a placer.
#[derive(Debug, Clone)]
struct Packet {
    channel: u8,
    header: DataHeader,
    payload: Vec<u8>,
    marked: bool,
}

/// Number, offset in the slot and bytes of a data packet.
fn data(g: &Geometry, packet: u32) -> (u32, u64, u64) {
    let packet = packet % g.packets(MESSAGE_BYTES);
    let offset = u64::from(packet) * MTU;
    (packet, offset, (MESSAGE_BYTES - offset).min(MTU))
}

/// Number, offset in the slot and bytes of a parity packet, if messages carry any.
fn parity(g: &Geometry, index: u32) -> Option<(u32, u64, u64)> {
    let (layout, packets) = (g.layout()?, g.packets(MESSAGE_BYTES));
    let submessages = 0..layout.submessages(packets);
    let all = submessages.flat_map(|submessage| layout.parity_of(submessage, packets).flatten());
    let all: Vec<u32> = all.collect();
    let packet = all[index as usize % all.len()];
    let ahead = u64::from(packet - layout.base()) * MTU;
    let bytes = layout.parity_bytes(layout.locate(packet), MESSAGE_BYTES, packets, MTU as u32);
    Some((packet, MESSAGE_BYTES + ahead, bytes))
}

/// The packet of a step, of message `number`; `None` if the geometry has no such packet.
fn packet(g: &Geometry, number: u64, index: u32, drawn: &Drawn) -> Option<Packet> {
    let (is_parity, fault, (mut packet, mut offset, mut bytes)) = match drawn.step {
        Step::Data { packet, fault } => (false, fault, data(g, packet)),
        Step::Parity { index, fault } => (true, fault, parity(g, index)?),
        Step::Piece { packet, is_parity: true, .. } => (true, Fault::None, parity(g, packet)?),
        Step::Piece { packet, .. } => (false, Fault::None, data(g, packet)),
        Step::Repost => return None,
    };
    let mut ends_message = is_parity || offset + bytes == MESSAGE_BYTES;
    let mut has_address = drawn.has_address || is_parity;
    let mut behind = 0;
    if let Step::Piece { half, .. } = drawn.step {
        let front = bytes / 2;
        has_address = true;
        match half {
            0 => (behind, bytes) = ((bytes - front) as u32, front),
            // The bytes after a piece of parity determine where it begins.
            _ if is_parity => bytes -= front,
            _ => (offset, bytes) = (offset + front, bytes - front),
        }
    }
    let (mut rkey, mut slot, mut generation) = (RKEY, g.slot_of(number), g.generation_of(number));
    let mut channel = g.channel_of(slot, packet);
    match fault {
        Fault::None => {}
        Fault::Key => rkey ^= 1,
        Fault::Channel => channel = (channel + 1) % g.channels(),
        Fault::Generation => generation = (generation + 1) % 2,
        Fault::Slot => slot = (slot + 1) % SLOTS as u32,
        Fault::Number(by) => packet += by,
        Fault::Address(by) => offset += u64::from(by),
        Fault::NoAddress => has_address = false,
        Fault::Length(length) => bytes = length.into(),
        Fault::Ends => ends_message = !ends_message,
    }
    let fields = ImmediateFields { message: slot, packet, fragment: packet * 37 % 256 };
    let header = DataHeader {
        dest: Qpn::new(1, channel, generation),
        psn: (1000 + index as i32 + drawn.psn_jitter) as u32,
        ends_message,
        carries_immediate: drawn.carries_immediate,
        address: has_address.then(|| g.slot_address(slot) + offset),
        rkey,
        length: bytes as u32,
        behind,
        immediate: g.split().pack(fields),
    };
    let payload = (0..bytes).map(|at| (at as u32 ^ packet.wrapping_mul(31)) as u8 | 1).collect();
    Some(Packet { channel, header, payload, marked: drawn.marked })
}

/// The contents of a record.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    number: u64,
    packets: Vec<bool>,
    chunk_bits: Vec<u64>,
    counts: (u32, u32, u32),
    length_bytes: Option<u64>,
    fragments: u32,
    immediate: Option<u32>,
    is_complete: bool,
}

impl Record {
    fn of(receive: &Receive) -> Self {
        let packets = CAPACITY_BYTES.div_ceil(MTU) as u32;
        let words = receive.chunk_bits().iter().map(|word| word.load(Ordering::Acquire));
        Self {
            number: receive.number(),
            packets: (0..packets).map(|packet| receive.has_packet(packet)).collect(),
            chunk_bits: words.collect(),
            counts: (receive.chunks(), receive.chunks_done(), receive.cumulative()),
            length_bytes: receive.length_bytes(),
            fragments: receive.fragments(),
            immediate: receive.immediate(),
            is_complete: receive.is_complete(),
        }
    }
}

/// How packets are handed over, and whether receives have memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    PlacedInMemory,
    NotedInMemory,
    PlacedInPhantom,
    NotedInPhantom,
}

/// The receiving side of one queue pair.
struct Receiver {
    way: Way,
    table: Arc<RecvTable>,
    writers: Vec<ChannelWriter>,
    receives: Vec<Arc<Receive>>,
    summaries: Vec<BurstSummary>,
    records: Vec<Record>,
}

impl Receiver {
    fn new(way: Way, geometry: Geometry, codec: Option<&Arc<Codec>>) -> Self {
        let (table, writers) = ChannelWriter::of_table(geometry, RKEY, 1000, codec);
        let receives = (0..SLOTS).map(|number| Self::post(way, &table, number)).collect();
        Self { way, table, writers, receives, summaries: Vec::new(), records: Vec::new() }
    }

    fn post(way: Way, table: &RecvTable, number: u64) -> Arc<Receive> {
        let bytes = CAPACITY_BYTES as usize;
        let placement = match way {
            Way::PlacedInMemory | Way::NotedInMemory => Placement::from_vec(vec![0; bytes]),
            Way::PlacedInPhantom | Way::NotedInPhantom => Placement::phantom(bytes),
        };
        table.post(number, placement).unwrap()
    }

    fn take(&mut self, packets: &[Packet]) {
        let Some(first) = packets.first() else { return };
        let mut placer = self.writers[usize::from(first.channel)].burst();
        for Packet { header, payload, marked, .. } in packets {
            match self.way {
                Way::PlacedInMemory | Way::PlacedInPhantom => {
                    placer.place(header, payload, *marked);
                }
                Way::NotedInMemory | Way::NotedInPhantom => {
                    placer.note(header, payload.len() as u32, *marked);
                }
            }
        }
        self.summaries.push(placer.finish());
    }

    fn run(&mut self, steps: &[Drawn]) {
        let geometry = *self.table.geometry();
        let mut burst: Vec<Packet> = Vec::new();
        for (index, drawn) in steps.iter().enumerate() {
            let slot = drawn.slot as usize;
            let number = self.receives[slot].number();
            if let Step::Repost = drawn.step {
                self.take(&std::mem::take(&mut burst));
                self.close(slot);
                self.receives[slot] = Self::post(self.way, &self.table, number + SLOTS);
                continue;
            }
            let Some(packet) = packet(&geometry, number, index as u32, drawn) else { continue };
            if burst.first().is_some_and(|first| first.channel != packet.channel) {
                self.take(&std::mem::take(&mut burst));
            }
            burst.push(packet);
            if drawn.ends_burst {
                self.take(&std::mem::take(&mut burst));
            }
        }
        self.take(&burst);
        (0..SLOTS as usize).for_each(|slot| self.close(slot));
    }

    /// Closes a receive and keeps the contents of its record.
    fn close(&mut self, slot: usize) {
        let receive = &self.receives[slot];
        self.table.close(receive.number()).unwrap();
        self.records.push(Record::of(receive));
        for chunk in 0..receive.capacity_chunks() {
            let bytes = receive.chunk(chunk);
            match self.way {
                Way::PlacedInMemory => {
                    let is_in_the_message = chunk < receive.chunks();
                    assert!(!is_in_the_message || bytes.is_some() == receive.has_chunk(chunk));
                }
                Way::NotedInMemory => {
                    assert!(bytes.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)));
                }
                Way::PlacedInPhantom | Way::NotedInPhantom => assert_eq!(bytes, None),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn noted_packets_have_the_books_of_placed_ones(
        channels in 1u8..4,
        chunk_packets in 1u32..5,
        code in prop::option::of(prop_oneof![Just("mds:3:2"), Just("xor:4:2")]),
        steps in prop::collection::vec(drawn(), 1..250),
    ) {
        let code: Option<Code> = code.map(|code| code.parse().unwrap());
        let geometry = geometry(channels, chunk_packets, code);
        let codec = code.map(|code| Arc::new(Codec::new(code).unwrap()));
        let run = |way| {
            let mut receiver = Receiver::new(way, geometry, codec.as_ref());
            receiver.run(&steps);
            (receiver.summaries, receiver.records)
        };
        let placed = run(Way::PlacedInMemory);
        prop_assert_eq!(&placed, &run(Way::NotedInPhantom));
        prop_assert_eq!(&placed, &run(Way::PlacedInPhantom));
        if code.is_none() {
            // Parity without bytes repairs nothing where there is memory to repair.
            prop_assert_eq!(&placed, &run(Way::NotedInMemory));
        }
    }
}

#[test]
fn parity_that_is_only_noted_repairs_nothing_in_memory() {
    let code: Code = "mds:3:2".parse().unwrap();
    let geometry = geometry(1, 1, Some(code));
    let codec = Arc::new(Codec::new(code).unwrap());
    let normal = |step| Drawn {
        step,
        slot: 0,
        has_address: false,
        carries_immediate: false,
        marked: false,
        psn_jitter: 0,
        ends_burst: false,
    };
    let steps = [
        normal(Step::Data { packet: 0, fault: Fault::None }),
        normal(Step::Data { packet: 1, fault: Fault::None }),
        normal(Step::Parity { index: 0, fault: Fault::None }),
    ];
    for (way, repaired) in [(Way::NotedInMemory, 0), (Way::NotedInPhantom, 1)] {
        let mut receiver = Receiver::new(way, geometry, Some(&codec));
        receiver.run(&steps);
        let summary = &receiver.summaries[0];
        assert_eq!((summary.packets, summary.parity_packets), (3, 1), "{way:?}");
        assert_eq!(summary.repaired_packets, repaired, "{way:?}");
        assert_eq!(receiver.records[0].packets[2], repaired == 1, "{way:?}");
    }
}

/// Checks that the random lists reach the interesting states; otherwise the property proves nothing.
#[test]
fn lists_of_packets_reach_every_kind_of_outcome() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let lists = prop::collection::vec(drawn(), 200..250);
    let code: Code = "mds:3:2".parse().unwrap();
    let codec = Arc::new(Codec::new(code).unwrap());
    let (mut total, mut complete) = (BurstSummary::default(), 0);
    for _ in 0..40 {
        let steps = lists.new_tree(&mut runner).unwrap().current();
        let mut receiver =
            Receiver::new(Way::NotedInPhantom, geometry(2, 2, Some(code)), Some(&codec));
        receiver.run(&steps);
        complete += receiver.records.iter().filter(|record| record.is_complete).count();
        for summary in &receiver.summaries {
            total.packets += summary.packets;
            total.duplicates += summary.duplicates;
            total.parity_packets += summary.parity_packets;
            total.repaired_packets += summary.repaired_packets;
            total.chunks += summary.chunks;
            total.marked += summary.marked;
            total.gap |= summary.gap;
            for (sum, count) in total.discarded.iter_mut().zip(summary.discarded) {
                *sum += count;
            }
        }
    }
    assert!(total.packets > 1000 && total.duplicates > 100 && total.parity_packets > 100);
    assert!(total.repaired_packets > 20 && total.chunks > 100 && total.marked > 100 && total.gap);
    let of_slots = Discard::ALL.iter().filter(|reason| !Discard::OF_REGIONS.contains(reason));
    let mut of_slots = of_slots.map(|reason| total.discarded[reason.index()]);
    assert!(of_slots.all(|count| count > 0), "{:?}", total.discarded);
    assert!(complete > 0);
}
