//! A hostile peer or network: old packets again and again, packets that contradict each other,
//! control frames with absurd values. Protects invariant 2 (no byte of a buffer changes after its
//! receive was completed), invariant 1 against malice (never a set bit over wrong bytes, never
//! "complete" over a hole) and invariant 4 (no panic, no unbounded work, no spinning timer).
//!
//! What generations guarantee: a packet of message `n` is refused by every later message of its
//! slot until `slots * generations` messages further on, where slot and generation are the same
//! again. From then on the packet's own address says nothing against it.

mod common;

use common::{MS, SECOND, control_body, data_towards, inject, post, run_dry, take};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::discard::Discard;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::placement::Placement;
use lacuna_proto::modes::Mode;
use lacuna_proto::qp::{QueuePair, SendFailure, SendRequest};
use lacuna_wire::{
    Ack, Cancel, CancelReason, ChannelReport, DataHeader, Flush, FlushMark, Frame, ImmediateFields,
    ImmediateSplit, Probe, ProbeReply, Qpn, Read, Receives, ReceivesBefore, Report, Run, RunList,
    Sent, U64List,
};

const SLOTS: u64 = 8;
const MTU: usize = 256;

fn config(generations: u8, channels: u8) -> PairConfig {
    PairConfig {
        geometry: GeometryConfig {
            mtu_bytes: MTU as u32,
            chunk_packets: 2,
            stripe_packets: 4,
            channels,
            generations,
            split: ImmediateSplit::new(3, 21, 8).unwrap(),
            max_message_bytes: 8 << 10,
            code: None,
            ..GeometryConfig::default()
        },
        ..PairConfig::default()
    }
}

fn recording(config: PairConfig) -> Pair {
    let mut pair = Pair::new(config, Link { delay_ns: MS, ..Link::default() });
    pair.recorded = Some(Vec::new());
    pair
}

fn discarded(pair: &Pair, reason: Discard) -> u64 {
    pair.b.qp().stats().channels.iter().map(|c| c.discarded[reason.index()]).sum()
}

fn placed(pair: &Pair) -> u64 {
    pair.b.qp().stats().channels.iter().map(|c| c.packets + c.duplicates).sum()
}

/// Sends one message into a receive over `buffer`; closes it whole, or early with most packets
/// lost. Returns the bytes.
fn exchange(pair: &mut Pair, buffer: Vec<u8>, data: Vec<u8>, early: bool) -> Vec<u8> {
    let held = post(pair, Side::B, buffer);
    pair.run_for(5 * MS);
    pair.link.loss_ppm = if early { 600_000 } else { 0 };
    let len = data.len();
    let request =
        SendRequest { data: SendBuffer::from(data.clone()), immediate: None, deadline_ns: None };
    let id = pair.a.qp().queue_send(request).unwrap();
    if early {
        // One way: packets arrive, repairs do not.
        pair.run_for(MS + MS / 2);
    } else {
        let done = pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome.is_some());
        assert!(done);
    }
    pair.link.loss_ppm = 0;
    let chunks: Vec<Option<Vec<u8>>> = (0..held.posted.parts[0].chunks())
        .map(|chunk| held.posted.parts[0].chunk(chunk).map(<[u8]>::to_vec))
        .collect();
    let bytes = take(pair, Side::B, held);
    for (index, chunk) in chunks.iter().enumerate() {
        let start = index * 2 * MTU;
        match chunk {
            Some(chunk) => {
                assert_eq!(&bytes[start..start + chunk.len()], &data[start..start + chunk.len()]);
            }
            None => assert!(early, "a whole message has all chunks"),
        }
    }
    let ended = pair.run_until(10 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some());
    assert!(ended, "a send of {len} bytes ends when its receive does");
    bytes
}

#[test]
fn old_packets_reach_no_later_receive_until_the_generations_wrap() {
    for (generations, channels) in [(1, 1), (2, 2), (3, 1), (4, 2)] {
        let protected = SLOTS * u64::from(generations);
        let mut pair = recording(config(generations, channels));
        let mut rng = Rng::new(u64::from(generations));
        let mut buffer = vec![0; 4000];
        // Packets by message, and what the same vector held when it was given back.
        let mut packets = Vec::new();
        for number in 0..3 * protected {
            let data = rng.bytes(3000);
            let early = rng.chance(400_000);
            let bytes = exchange(&mut pair, std::mem::take(&mut buffer), data, early);
            // Packets still in flight arrive late anyway.
            pair.run_for(5 * MS);
            packets.push(data_towards(&pair, Side::B));
            pair.recorded = Some(Vec::new());

            // Nothing is posted: every old packet is late, and the buffer is the caller's.
            let (late, before) = (discarded(&pair, Discard::Late), placed(&pair));
            let from = packets.len().saturating_sub(protected as usize);
            let mut count = 0;
            for (channel, header, payload) in packets[from..].iter().flatten() {
                inject(&mut pair, Side::B, *channel, header, payload);
                count += 1;
            }
            pair.run_for(MS);
            assert_eq!(discarded(&pair, Discard::Late), late + count, "message {number}");
            buffer = bytes.clone();

            // Not always, so that real messages and unused receives occur in all slots.
            if rng.chance(400_000) {
                continue;
            }
            // The next receive over the same memory refuses all packets of earlier messages, as far
            // back as generations tell them apart.
            let held = post(&mut pair, Side::B, buffer);
            let from = packets.len().saturating_sub(protected as usize - 1);
            for (channel, header, payload) in packets[from..].iter().flatten() {
                inject(&mut pair, Side::B, *channel, header, payload);
            }
            pair.run_for(MS);
            let part = &held.posted.parts[0];
            assert_eq!(part.chunks_done(), 0);
            assert_eq!(part.length_bytes(), None);
            assert!((0..20).all(|packet| !part.has_packet(packet)), "message {number}");
            assert_eq!(placed(&pair), before);
            // It is closed unused; the sender skips it.
            buffer = take(&mut pair, Side::B, held);
            assert_eq!(buffer, bytes, "message {number}");
            packets.push(Vec::new());
        }
    }
}

#[test]
fn an_old_packet_passes_for_new_once_the_generations_have_wrapped() {
    // Not protected: after this many messages slot and generation repeat. Only the sequence number,
    // which placement does not check, would tell them apart.
    for generations in 1..=4u8 {
        let mut pair = recording(config(generations, 1));
        exchange(&mut pair, vec![0; 4000], vec![7; 3000], false);
        let old = data_towards(&pair, Side::B);
        for _ in 1..SLOTS * u64::from(generations) {
            exchange(&mut pair, vec![0; 4000], vec![8; 3000], false);
        }
        let held = post(&mut pair, Side::B, vec![0; 4000]);
        assert_eq!(held.posted.first, SLOTS * u64::from(generations));
        let (channel, header, payload) = &old[0];
        inject(&mut pair, Side::B, *channel, header, payload);
        pair.run_for(MS);
        assert!(held.posted.parts[0].has_packet(0));
        assert_eq!(take(&mut pair, Side::B, held)[..MTU], [7; MTU]);
    }
}

/// A change to a header, its payload and its channel, and the reason it must be refused for.
type Change = (&'static str, Discard, fn(&mut DataHeader, &mut Vec<u8>, &mut u8));

const SPLIT: (u8, u8, u8) = (3, 21, 8);

fn split() -> ImmediateSplit {
    ImmediateSplit::new(SPLIT.0, SPLIT.1, SPLIT.2).unwrap()
}

fn repack(header: &mut DataHeader, change: impl FnOnce(&mut ImmediateFields)) {
    let mut fields = split().unpack(header.immediate);
    change(&mut fields);
    header.immediate = split().pack(fields);
}

/// Gives a packet without an address the address of its packet number.
fn addressed(header: &mut DataHeader) -> &mut u64 {
    let fields = split().unpack(header.immediate);
    let slot = u64::from(fields.message) * (8 << 10);
    header.address.get_or_insert(slot + u64::from(fields.packet) * 256)
}

const CHANGES: &[Change] = &[
    ("another key", Discard::Key, |h, _, _| h.rkey ^= 1),
    ("another generation", Discard::Late, |h, _, _| {
        h.dest = Qpn::new(h.dest.queue_pair(), h.dest.channel(), h.dest.generation() ^ 1);
    }),
    ("a generation that does not exist", Discard::Late, |h, _, _| {
        h.dest = Qpn::new(h.dest.queue_pair(), h.dest.channel(), 7);
    }),
    ("another slot, address and all", Discard::Late, |h, _, _| {
        *addressed(h) += 2 * (8 << 10);
        repack(h, |fields| fields.message += 2);
    }),
    ("another slot in the immediate alone", Discard::Inconsistent, |h, _, _| {
        addressed(h);
        repack(h, |fields| fields.message += 2);
    }),
    ("another slot in the address alone", Discard::Inconsistent, |h, _, _| {
        *addressed(h) += 2 * (8 << 10);
    }),
    ("an address far away", Discard::Inconsistent, |h, _, _| *addressed(h) = u64::MAX),
    ("an address between packets", Discard::Inconsistent, |h, _, _| *addressed(h) += 1),
    ("an address of another packet", Discard::Inconsistent, |h, _, _| *addressed(h) += 256),
    ("another packet of the same channel", Discard::Inconsistent, |h, _, _| {
        addressed(h);
        repack(h, |fields| fields.packet += 1);
    }),
    ("a packet past the buffer", Discard::OutOfRange, |h, _, _| {
        *addressed(h) += 16 * 256;
        repack(h, |fields| fields.packet += 16);
    }),
    ("a packet past the slot", Discard::Inconsistent, |h, _, _| {
        *addressed(h) += 64 * 256;
        repack(h, |fields| fields.packet += 64);
    }),
    ("a packet past the buffer, by its number alone", Discard::OutOfRange, |h, _, _| {
        h.address = None;
        repack(h, |fields| fields.packet += 16);
    }),
    ("a packet past the slot, by its number alone", Discard::Inconsistent, |h, _, _| {
        h.address = None;
        repack(h, |fields| fields.packet += 64);
    }),
    ("another slot, by its number alone", Discard::Late, |h, _, _| {
        h.address = None;
        repack(h, |fields| fields.message += 2);
    }),
    ("another channel", Discard::Channel, |_, _, channel| *channel ^= 1),
    ("a short packet that does not end the message", Discard::Inconsistent, |_, p, _| {
        p.truncate(8);
    }),
    ("a packet longer than the MTU", Discard::Inconsistent, |_, p, _| p.resize(2 * 256, 9)),
    ("an end longer than the MTU", Discard::Inconsistent, |h, p, _| {
        h.ends_message = true;
        p.resize(2 * 256, 9);
    }),
    ("an empty packet that is not behind the data", Discard::Inconsistent, |_, p, _| p.clear()),
];

#[test]
fn packets_that_contradict_themselves_set_no_bit() {
    let both = |change| [(false, change), (true, change)];
    for (has_address, (name, reason, change)) in CHANGES.iter().flat_map(both) {
        let mut pair = recording(config(4, 2));
        let data = Rng::new(1).bytes(4000);
        // Message 0 only provides packets to change; it is lost.
        let held = post(&mut pair, Side::B, vec![0; 4000]);
        pair.run_for(5 * MS);
        pair.link.dark = true;
        let id = pair.send(Side::A, data.clone(), None);
        pair.run_for(0);
        let (mut channel, mut header, mut payload) = data_towards(&pair, Side::B).swap_remove(0);
        if has_address {
            addressed(&mut header);
        }
        change(&mut header, &mut payload, &mut channel);
        for _ in 0..10 {
            inject(&mut pair, Side::B, channel, &header, &payload);
        }
        pair.run_for(MS);
        assert_eq!(discarded(&pair, *reason), 10, "{name}");
        let part = &held.posted.parts[0];
        assert!((0..16).all(|packet| !part.has_packet(packet)), "{name}");
        assert_eq!(part.length_bytes(), None, "{name}");
        // They do not block the real ones.
        pair.link.dark = false;
        let done = pair.run_until(20 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some());
        assert!(done, "{name}");
        assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())), "{name}");
        assert_eq!(take(&mut pair, Side::B, held), data, "{name}");
    }
}

#[test]
fn packets_for_another_queue_pair_or_with_a_bad_trailer_go_no_further() {
    let mut pair = recording(config(4, 1));
    let held = post(&mut pair, Side::B, vec![0; 4000]);
    pair.run_for(5 * MS);
    pair.link.dark = true;
    pair.send(Side::A, vec![5; 4000], None);
    pair.run_for(0);
    let (channel, header, payload) = data_towards(&pair, Side::B).swap_remove(0);
    let other = DataHeader { dest: Qpn::new(77, 0, 0), ..header };
    inject(&mut pair, Side::B, channel, &other, &payload);
    let mut with_address = header;
    addressed(&mut with_address);
    for header in [header, with_address] {
        let mut bytes = lacuna_engine::testing::data_packet(&header, &payload);
        bytes[40] ^= 1;
        pair.inject(Side::B, channel, bytes);
    }
    // More payload than the announced length, or a piece of a packet that cannot exist.
    for length in [252, 260] {
        let other = DataHeader { length, ..with_address };
        pair.inject(Side::B, channel, lacuna_engine::testing::data_packet(&other, &payload));
    }
    pair.run_for(0);
    // The trailer holds the key where there is no address.
    assert_eq!(discarded(&pair, Discard::Key), 1);
    assert_eq!(discarded(&pair, Discard::Inconsistent), 1);
    assert_eq!(pair.b.rejected, 3);
    assert!(!held.posted.parts[0].has_packet(0));
}

#[test]
fn nothing_is_left_of_a_damaged_packet_and_the_real_one_still_comes() {
    // Behind a good packet of its message, and as the first of all; with its key before the payload,
    // and behind it.
    for (good, has_address) in [(0, false), (0, true), (1, false), (1, true), (6, false), (6, true)]
    {
        let mut pair = recording(config(4, 1));
        let held = post(&mut pair, Side::B, vec![7; 4000]);
        pair.run_for(5 * MS);
        pair.link.dark = true;
        let id = pair.send(Side::A, vec![5; 4000], None);
        pair.run_for(0);
        let packets = data_towards(&pair, Side::B);
        for (index, (channel, header, payload)) in packets.iter().enumerate().take(good + 3) {
            let mut header = *header;
            if has_address {
                addressed(&mut header);
            }
            let mut bytes = lacuna_engine::testing::data_packet(&header, payload);
            if index >= good {
                let at = bytes.len() - 4 - 100 * (index - good);
                bytes[at] ^= 1;
            }
            pair.inject(Side::B, *channel, bytes);
        }
        pair.run_for(0);
        let refused = if has_address { pair.b.rejected } else { discarded(&pair, Discard::Key) };
        assert_eq!(refused, 3, "{good}, {has_address}");
        let part = &held.posted.parts[0];
        for packet in 0..16 {
            assert_eq!(part.has_packet(packet), (packet as usize) < good, "{packet}");
        }
        if good == 1 {
            // Closed early: the bytes that arrived are there, and no others.
            let bytes = take(&mut pair, Side::B, held);
            assert!(bytes[..MTU].iter().all(|byte| *byte == 5));
            assert!(bytes[MTU..4 * MTU].iter().all(|byte| *byte == 0));
            assert!(bytes[4 * MTU..].iter().all(|byte| *byte == 7));
            continue;
        }
        pair.link.dark = false;
        let done = pair.run_until(20 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some());
        assert!(done, "{good}, {has_address}");
        assert_eq!(take(&mut pair, Side::B, held), [5; 4000], "{good}, {has_address}");
    }
}

#[test]
fn the_number_of_a_packet_with_a_wrong_key_proves_nothing() {
    let mut pair = recording(config(4, 1));
    let held = post(&mut pair, Side::B, vec![0; 4000]);
    pair.run_for(5 * MS);
    let id = pair.send(Side::A, vec![5; 4000], None);
    pair.run_for(0);
    let (channel, header, payload) = data_towards(&pair, Side::B).swap_remove(0);
    for ahead in [1, 5000] {
        let psn = (header.psn + ahead) & 0xFF_FFFF;
        // Damage anywhere looks like this.
        let damaged = DataHeader { psn, rkey: header.rkey ^ 1 << 9, ..header };
        inject(&mut pair, Side::B, channel, &damaged, &payload);
    }
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
    assert_eq!(pair.b.qp().stats().lost_packets(), 0);
    assert_eq!(take(&mut pair, Side::B, held), [5; 4000]);
}

#[test]
fn an_end_before_packets_that_came_is_refused() {
    let mut pair = recording(config(4, 1));
    let held = post(&mut pair, Side::B, vec![0; 4000]);
    pair.run_for(5 * MS);
    pair.link.dark = true;
    pair.send(Side::A, vec![5; 4000], None);
    pair.run_for(0);
    let packets = data_towards(&pair, Side::B);
    let (channel, header, payload) = &packets[8];
    inject(&mut pair, Side::B, *channel, header, payload);
    for (index, packet) in packets.iter().enumerate().take(8) {
        let (channel, header, payload) = packet;
        let ends = DataHeader { ends_message: true, ..*header };
        inject(&mut pair, Side::B, *channel, &ends, &payload[..payload.len() - index]);
    }
    pair.run_for(MS);
    let part = &held.posted.parts[0];
    assert_eq!(discarded(&pair, Discard::Inconsistent), 8);
    assert_eq!(part.length_bytes(), None);
    // The first consistent end is kept; later ones are ignored.
    let (channel, header, payload) = &packets[10];
    let ends = DataHeader { ends_message: true, ..*header };
    inject(&mut pair, Side::B, *channel, &ends, &payload[..100]);
    inject(&mut pair, Side::B, *channel, &ends, &payload[..101]);
    let (channel, header, payload) = &packets[11];
    inject(&mut pair, Side::B, *channel, header, payload);
    pair.run_for(MS);
    assert_eq!(discarded(&pair, Discard::Inconsistent), 10);
    assert_eq!(part.length_bytes(), Some(10 * 256 + 100));
    assert!(!held.posted.is_complete());
}

#[test]
fn a_flood_of_stray_copies_does_not_slow_repairs_down() {
    // A copy of an old packet is not evidence of reordering: else the sender would wait for
    // thousands of packets before it repairs.
    let mut pair = recording(PairConfig::default());
    let data = Rng::new(3).bytes(400_000);
    exchange(&mut pair, vec![0; 400_000], data, false);
    let old = data_towards(&pair, Side::B);
    for (channel, header, payload) in &old {
        inject(&mut pair, Side::B, *channel, header, payload);
    }
    pair.run_for(10 * MS);
    pair.link.delay_ns = 20 * MS;
    exchange(&mut pair, vec![0; 4000], vec![1; 4000], false);
    let held = post(&mut pair, Side::B, vec![0; 5000]);
    pair.run_for(100 * MS);
    let start_ns = pair.now_ns;
    pair.link.dark = true;
    let id = pair.send(Side::A, vec![2; 5000], None);
    pair.run_for(0);
    pair.link.dark = false;
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome.is_some()));
    let took_ns = pair.now_ns - start_ns;
    assert!(took_ns < 85 * MS, "two round trips of 40 ms, not {took_ns}");
    assert_eq!(take(&mut pair, Side::B, held), vec![2; 5000]);
}

// ---- control ----

/// Two queue pairs with all kinds of operations in flight; the second is the victim.
fn busy(mode: Mode, channels: u8, seed: u64) -> Pair {
    let config = PairConfig { mode, seed, ..config(4, channels) };
    let mut pair = Pair::new(config, Link { loss_ppm: 300_000, delay_ns: MS, ..Link::default() });
    for side in [Side::A, Side::B] {
        for len in [0, 100, 5000, 20_000] {
            pair.post(side, len);
        }
    }
    pair.run_for(3 * MS);
    for side in [Side::A, Side::B] {
        for len in [0, 90, 5000, 18_000, 300, 7] {
            pair.send(side, vec![1; len], Some(len as u32));
        }
    }
    pair.run_for(2 * MS);
    pair
}

/// Generates control frames with values that are near the truth, at the ends of their range, or
/// random.
struct Absurd<'r> {
    rng: &'r mut Rng,
    near: u64,
}

impl Absurd<'_> {
    fn number(&mut self) -> u64 {
        match self.rng.below(6) {
            0 => u64::MAX,
            1 => u64::MAX - self.rng.below(3),
            2 => (1 << 62) - 1 + self.rng.below(3),
            3 => self.rng.next_u64() >> self.rng.below(64),
            _ => (self.near + self.rng.below(20)).saturating_sub(5),
        }
    }

    fn short(&mut self) -> u32 {
        match self.rng.below(4) {
            0 => u32::MAX - self.rng.below(3) as u32,
            1 => self.rng.next_u64() as u32 >> self.rng.below(32),
            _ => self.rng.below(20) as u32,
        }
    }

    fn bytes(&mut self, bound: u64) -> Vec<u8> {
        let len = self.rng.below(bound) as usize;
        self.rng.bytes(len)
    }

    fn push(&mut self, now_ns: u64, psn: u32, frames: &mut Vec<Owned>) {
        let channel = self.rng.below(3) as u8;
        let psn = match self.rng.below(3) {
            0 => psn.wrapping_add(self.rng.below(8) as u32).wrapping_sub(4) & 0xFF_FFFF,
            1 => psn & 0xFF_FFFF,
            _ => self.short() & 0xFF_FFFF,
        };
        frames.push(match self.rng.below(9) {
            0 => Owned::Receives {
                base: self.number(),
                posted: self.number(),
                failed_from: self.number(),
                finished: {
                    let len = self.rng.below(40) as usize;
                    self.rng.bytes(len)
                },
                failed: (0..self.rng.below(8)).map(|_| self.number()).collect(),
                runs: (0..self.rng.below(8))
                    .map(|_| Run {
                        count: self.short(),
                        capacity_bytes: self.number(),
                        continues: self.rng.chance(400_000),
                    })
                    .collect(),
            },
            1 => Owned::Ack {
                message: self.number(),
                cumulative: self.short(),
                fragments: self.short(),
                truncated: self.rng.chance(500_000),
                skipped_bytes: self.short() & Ack::SKIPPED_BYTES_MAX,
                chunks: self.bytes(60),
            },
            2 => {
                let mut report = Report::new();
                report.push(ChannelReport {
                    channel,
                    next_psn: psn,
                    flushed_psn: self.short() & 0xFF_FFFF,
                    received_packets: self.number(),
                    duplicate_packets: self.number(),
                    marked_packets: self.number(),
                    reorder_packets: self.short(),
                    delay_ns: self.short(),
                    credit_bytes: self.short(),
                });
                Owned::Plain(Frame::Report(report))
            }
            3 => {
                let mut flush = Flush::new(self.number());
                flush.push(FlushMark { channel, next_psn: psn });
                flush.push(FlushMark { channel: 15, next_psn: 0xFF_FFFF });
                Owned::Plain(Frame::Flush(flush))
            }
            4 => Owned::Plain(Frame::Cancel(Cancel {
                message: self.number(),
                reason: CancelReason::from_code(self.rng.below(4) as u8),
            })),
            5 => Owned::Plain(Frame::Probe(Probe { id: self.short(), sent_ns: self.number() })),
            6 => Owned::Plain(Frame::Sent(Sent { channel, next_psn: psn, before: self.number() })),
            7 => Owned::Plain(Frame::Read(Read {
                id: self.number(),
                key: self.short(),
                address: self.number(),
                length: self.number(),
                sink_key: self.short(),
                sink_address: self.number(),
                left_us: self.short(),
            })),
            _ => {
                let echo_ns = if self.rng.chance(300_000) { now_ns } else { self.number() };
                let (id, packet_bytes) = (self.short(), self.short());
                Owned::Plain(Frame::ProbeReply(ProbeReply { id, echo_ns, packet_bytes }))
            }
        });
    }
}

// A few live at a time.
#[allow(clippy::large_enum_variant)]
enum Owned {
    Receives {
        base: u64,
        posted: u64,
        failed_from: u64,
        finished: Vec<u8>,
        failed: Vec<u64>,
        runs: Vec<Run>,
    },
    Ack {
        message: u64,
        cumulative: u32,
        fragments: u32,
        truncated: bool,
        skipped_bytes: u32,
        chunks: Vec<u8>,
    },
    Plain(Frame<'static>),
}

impl Owned {
    fn frame(&self) -> Frame<'_> {
        match self {
            Self::Receives { base, posted, failed_from, finished, failed, runs } => {
                Frame::Receives(Receives {
                    base: *base,
                    posted: *posted,
                    finished,
                    failed_from: *failed_from,
                    failed: U64List::from_values(failed),
                    runs: RunList::from_runs(runs),
                })
            }
            Self::Ack { message, cumulative, fragments, truncated, skipped_bytes, chunks } => {
                Frame::Ack(Ack {
                    message: *message,
                    cumulative: *cumulative,
                    immediate_fragments: *fragments,
                    truncated: *truncated,
                    skipped_bytes: *skipped_bytes,
                    chunks,
                })
            }
            Self::Plain(frame) => *frame,
        }
    }
}

fn mode_of(seed: u64) -> Mode {
    ["raw", "sr", "sr:rto"][(seed % 3) as usize].parse().unwrap()
}

#[test]
fn absurd_control_frames_neither_panic_nor_spin() {
    for seed in 0..60u64 {
        let pair = busy(mode_of(seed), 1 + (seed % 2) as u8, seed);
        let mut rng = Rng::new(seed);
        let mut now_ns = pair.now_ns;
        let near = 4;
        for step in 0..150u32 {
            let mut frames = Vec::new();
            let mut absurd = Absurd { rng: &mut rng, near };
            // First sequence number of the pair harness's first end, and a little on.
            let psn = 0xFF_FFF0 + 2 + step % 40;
            for _ in 0..1 + absurd.rng.below(5) {
                absurd.push(now_ns, psn, &mut frames);
            }
            let frames: Vec<Frame<'_>> = frames.iter().map(Owned::frame).collect();
            let body = control_body(1000 + step, &frames);
            let mut qp = pair.b.qp();
            qp.on_control(now_ns, 0, &body, body.len()).expect("the frames are well formed");
            run_dry(&mut qp, now_ns);
            now_ns += rng.below(30 * MS);
            if rng.chance(100_000) {
                let request = SendRequest {
                    data: SendBuffer::from(vec![3; rng.below(30_000) as usize]),
                    immediate: None,
                    deadline_ns: Some(now_ns + rng.below(100 * MS)),
                };
                // Refused or not, as the absurd window has it.
                let _ = qp.queue_send(request.clone());
                let _ = qp.post_send(request);
            }
            run_dry(&mut qp, now_ns);
            if qp.failure().is_some() {
                break;
            }
        }
    }
}

#[test]
fn random_control_bodies_neither_panic_nor_spin() {
    for seed in 0..10u64 {
        let pair = busy(mode_of(seed), 1, seed);
        let mut rng = Rng::new(seed);
        let mut now_ns = pair.now_ns;
        for step in 0..500u32 {
            // A body whose fixed part is right, then frames of random kind and length.
            let mut body = control_body(1000 + step, &[]);
            for _ in 0..rng.below(4) {
                let len = rng.below(80) as usize;
                body.extend([rng.below(256) as u8 & 0x8F, 0, 0, len as u8]);
                body.extend(rng.bytes(len));
            }
            let mut qp = pair.b.qp();
            let _ = qp.on_control(now_ns, 0, &body, body.len());
            let len = rng.below(100) as usize;
            let _ = qp.on_control(now_ns, 0, &rng.bytes(len), len);
            now_ns += rng.below(10 * MS);
            run_dry(&mut qp, now_ns);
        }
    }
}

fn victim(mode: Mode) -> QueuePair {
    let config = PairConfig { mode, ..config(4, 1) };
    Pair::new(config, Link::default()).b.into_qp()
}

#[test]
fn a_window_with_absurd_numbers_is_ignored() {
    for (base, posted, count, capacity_bytes) in [
        (u64::MAX, u64::MAX, u32::MAX, u64::MAX),
        (u64::MAX - 1, u64::MAX, 1, 1),
        (1 << 63, 1 << 63, u32::MAX, 1 << 20),
        (5, 4, 1, 100),
    ] {
        let mut qp = victim(Mode::SR);
        let runs: Vec<Run> = [false, true, true, false]
            .map(|continues| Run { count, capacity_bytes, continues })
            .to_vec();
        let receives = Receives {
            base,
            posted,
            finished: &[0xFF; 8],
            failed_from: u64::MAX,
            failed: U64List::from_values(&[u64::MAX, 0]),
            runs: RunList::from_runs(&runs),
        };
        let body = control_body(1, &[Frame::Receives(receives)]);
        let now_ns = 2 * SECOND;
        qp.on_control(now_ns, 0, &body, body.len()).unwrap();
        let request =
            SendRequest { data: SendBuffer::from(vec![1; 10]), immediate: None, deadline_ns: None };
        assert!(qp.post_send(request.clone()).is_err(), "nothing is posted");
        qp.queue_send(request).unwrap();
        let (_, data_packets) = run_dry(&mut qp, now_ns);
        assert_eq!(data_packets, 0);
    }
}

#[test]
fn a_send_that_failed_in_one_slot_lets_go_of_its_memory_in_all() {
    let mut qp = victim(Mode::SR);
    let slot_bytes = qp.config().geometry.max_message_bytes();
    let window = |sequence, finished: &[u8], failed: &[u64]| {
        let runs = [
            Run { count: 1, capacity_bytes: slot_bytes, continues: false },
            Run { count: 2, capacity_bytes: slot_bytes, continues: true },
        ];
        control_body(
            sequence,
            &[Frame::Receives(Receives {
                base: 0,
                posted: 3,
                finished,
                failed_from: 0,
                failed: U64List::from_values(failed),
                runs: RunList::from_runs(&runs),
            })],
        )
    };
    let now_ns = 2 * SECOND;
    let body = window(1, &[], &[]);
    qp.on_control(now_ns, 0, &body, body.len()).unwrap();
    let memory = std::sync::Arc::new(vec![1; 3 * slot_bytes as usize]);
    let data = SendBuffer::new(memory.clone());
    let id =
        qp.queue_send(SendRequest { data, immediate: None, deadline_ns: None }).expect("it fits");
    // The peer closes the first slot only, and never says more.
    let body = window(2, &[1], &[0]);
    qp.on_control(now_ns, 0, &body, body.len()).unwrap();
    let outcome = qp.send_status(id).expect("not released").outcome;
    assert_eq!(outcome, Some(Err(SendFailure::ClosedByPeer)));
    assert_eq!(std::sync::Arc::strong_count(&memory), 1, "nothing of it is sent any more");
    let (_, data_packets) = run_dry(&mut qp, now_ns);
    assert_eq!(data_packets, 0);
}

#[test]
fn a_window_with_absurd_lengths_takes_what_is_sent() {
    let mut qp = victim(Mode::Raw);
    let run = |continues| Run { count: u32::MAX, capacity_bytes: u64::MAX, continues };
    let runs = [Run { count: 1, ..run(false) }, run(true), run(true)];
    let receives = Receives {
        base: (1 << 62) - 1,
        posted: 1 << 62,
        finished: &[],
        failed_from: 0,
        failed: U64List::default(),
        runs: RunList::from_runs(&runs),
    };
    let body = control_body(1, &[Frame::Receives(receives)]);
    let now_ns = 2 * SECOND;
    qp.on_control(now_ns, 0, &body, body.len()).unwrap();
    let request = SendRequest {
        data: SendBuffer::from(vec![1; 100_000]),
        immediate: None,
        deadline_ns: None,
    };
    let id = qp.post_send(request).unwrap();
    run_dry(&mut qp, now_ns);
    assert!(qp.send_status(id).unwrap().injected);
}

#[test]
fn a_peer_that_counts_its_receives_backwards_gets_no_number_twice() {
    let mut qp = victim("bounded".parse().unwrap());
    let now_ns = 2 * SECOND;
    let runs = [Run { count: 4, capacity_bytes: 1000, continues: false }];
    let window = |sequence, receives| {
        let receives_before = Frame::ReceivesBefore(ReceivesBefore { base: 0, receives });
        let posted = Frame::Receives(Receives {
            base: 0,
            posted: 4,
            finished: &[],
            failed_from: 0,
            failed: U64List::default(),
            runs: RunList::from_runs(&runs),
        });
        control_body(sequence, &[receives_before, posted])
    };
    let request =
        || SendRequest { data: SendBuffer::from(vec![1; 10]), immediate: None, deadline_ns: None };
    let body = window(1, 0);
    qp.on_control(now_ns, 0, &body, body.len()).unwrap();
    for _ in 0..2 {
        qp.queue_send(request()).unwrap();
    }
    // The receives of the next sends would be those of the first two.
    let body = window(2, 2);
    qp.on_control(now_ns, 0, &body, body.len()).unwrap();
    assert!(qp.open_stream(None).is_err() && qp.post_send(request()).is_err());
    let late = qp.queue_send(request()).unwrap();
    assert_eq!(qp.send_status(late).unwrap().outcome, Some(Err(SendFailure::ClosedByPeer)));
    let (_, data_packets) = run_dry(&mut qp, now_ns);
    assert_eq!(data_packets, 2);
}

#[test]
fn absurd_echoes_do_not_stretch_the_timers() {
    let mut qp = victim(Mode::SR);
    let now_ns = u64::MAX / 2;
    for echo_ns in [0, 1, now_ns, now_ns + 1, u64::MAX] {
        let reply = ProbeReply { id: 0, echo_ns, packet_bytes: 0 };
        let body = control_body(1, &[Frame::ProbeReply(reply)]);
        qp.on_control(now_ns, 0, &body, body.len()).unwrap();
    }
    let rtt = *qp.stats().rtt.smoothed_ns().as_ref().unwrap();
    assert!(rtt <= 60 * SECOND, "{rtt}");
    run_dry(&mut qp, now_ns);
}

#[test]
fn cancels_and_acknowledgements_of_foreign_messages_change_nothing() {
    let mut qp = victim(Mode::SR);
    let now_ns = 2 * SECOND;
    let posted = qp.post_receive(now_ns, Placement::from_vec(vec![0; 100])).unwrap();
    for message in [1, 7, 8, 1 << 40, u64::MAX] {
        let cancel = Cancel { message, reason: CancelReason::Cancelled };
        let ack = Ack {
            message,
            cumulative: u32::MAX,
            immediate_fragments: u32::MAX,
            truncated: true,
            skipped_bytes: 0,
            chunks: &[0xFF; 100],
        };
        let body = control_body(1, &[Frame::Cancel(cancel), Frame::Ack(ack)]);
        qp.on_control(now_ns, 0, &body, body.len()).unwrap();
    }
    assert_eq!(qp.receive_failure(&posted), None);
    run_dry(&mut qp, now_ns);
}

#[test]
fn a_full_queue_of_sends_whose_time_is_over_ends_in_one_call() {
    const COUNT: u64 = 65_536;
    // The same deadline; in the order of the sends, against it, and across.
    for stride in [0, 1, COUNT - 1, 30_011] {
        let mut qp = victim(Mode::SR);
        let now_ns = 2 * SECOND;
        // Nothing is posted: all wait.
        let ids: Vec<_> = (0..COUNT)
            .map(|index| {
                let deadline_ns = Some(now_ns + 1 + index * stride % COUNT);
                let data = SendBuffer::from(vec![1]);
                let request = SendRequest { data, immediate: None, deadline_ns };
                qp.queue_send(request).expect("it may wait")
            })
            .collect();
        let data = SendBuffer::from(vec![1]);
        let last = SendRequest { data, immediate: None, deadline_ns: None };
        assert!(qp.queue_send(last.clone()).is_err(), "the queue is full");
        qp.on_timeout(now_ns + COUNT);
        for id in ids {
            let outcome = qp.send_status(id).expect("not released").outcome;
            assert!(matches!(outcome, Some(Err(SendFailure::Deadline { .. }))), "{outcome:?}");
        }
        assert!(qp.queue_send(last).is_ok(), "there is room again");
    }
}
