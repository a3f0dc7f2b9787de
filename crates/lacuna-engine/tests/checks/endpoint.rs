//! One queue pair whose peer is whatever a list of bytes says: data packets near the truth or far
//! from it, control bodies of any kind, posts, sends, closes and the clock in between.
//!
//! Asserted all along: no panic; polls end and no timer stays in the past; bytes under a set
//! packet bit never change; a chunk bit has all its packets' bits; "complete" has no hole; a
//! closed buffer never changes; deadlines are kept; nothing that was set is cleared.

#![allow(unsafe_code)]

use super::Choices;
use crate::common::{control_body, run_dry};
use lacuna_engine::testing::{Rng, data_packet};
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_place::writer::ChannelWriter;
use lacuna_proto::buffer::SendBuffer;
use lacuna_proto::modes::Mode;
use lacuna_proto::qp::{Peer, PostedReceive, QpConfig, QueuePair, SendId, SendRequest};
use lacuna_wire::{
    Ack, Cancel, CancelReason, ChannelReport, DataHeader, Flush, FlushMark, Frame, ImmediateFields,
    ImmediateSplit, Probe, ProbeReply, Qpn, Receives, Report, Run, RunList, U64List, parse_data,
};

const MS: u64 = 1_000_000;
const MTU: usize = 64;
const RKEY: u32 = 7;
/// Packets of a slot's message.
const SLOT_PACKETS: u64 = 12;
const OPEN_MAX: usize = 12;
const SENDS_MAX: usize = 64;

/// A posted receive over memory of this file, so that bytes under clear bits can be checked, too.
struct Received {
    posted: PostedReceive,
    start: *mut u8,
    len: usize,
    /// Bytes seen under packet bits, by packet of the whole receive.
    seen: Vec<Option<Vec<u8>>>,
    closed: Option<Vec<u8>>,
}

impl Received {
    fn bytes(&self, start: usize, len: usize) -> Vec<u8> {
        assert!(start + len <= self.len);
        // SAFETY: allocated by `World::post` with `self.len` bytes and freed by the drop below; one
        // thread, and nobody places while this runs.
        unsafe { std::slice::from_raw_parts(self.start.add(start), len) }.to_vec()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // SAFETY: the parts of a vector of this length and capacity, given up by `World::post`; its
        // slots were closed before.
        drop(unsafe { Vec::from_raw_parts(self.start, self.len, self.len) });
    }
}

struct World {
    geometry: Geometry,
    qp: QueuePair,
    writers: Vec<ChannelWriter>,
    now_ns: u64,
    receives: Vec<Received>,
    sends: Vec<(SendId, Option<u64>)>,
    /// Receives that an honest peer would announce.
    peer_posted: u64,
    sequence: u32,
    sent_psn: [u32; 2],
    psn: [u32; 2],
    /// Fills payloads with changing bytes, so that a second write shows.
    fill: Rng,
}

/// Runs the list; returns how many packets were repaired.
pub(crate) fn run(bytes: &[u8]) -> u64 {
    let mut choices = Choices::new(bytes);
    let mut world = World::new(&mut choices);
    for packets in [SLOT_PACKETS, 2 * SLOT_PACKETS] {
        world.post(packets as usize * MTU);
    }
    while let Some(operation) = choices.next() {
        world.operate(operation, &mut choices);
        world.check();
    }
    world.end()
}

impl World {
    fn new(choices: &mut Choices<'_>) -> Self {
        let options = choices.byte();
        let second = choices.byte();
        let modes = ["sr", "raw", "sr:rto", "ec:mds:2:1", "ec:xor:4:2", "ec:mds:3:5", "auto"];
        let mode: Mode = modes[usize::from(second >> 1) % modes.len()].parse().unwrap();
        let chunk_packets = 1 + u32::from(options & 3);
        let geometry = Geometry::new(GeometryConfig {
            mtu_bytes: MTU as u32,
            chunk_packets,
            stripe_packets: chunk_packets,
            channels: 1 + (options >> 2 & 1),
            generations: 1 + (options >> 3 & 1),
            split: [(2, 26, 4), (2, 22, 8)].map(|(m, p, u)| ImmediateSplit::new(m, p, u).unwrap())
                [usize::from(options >> 4 & 1)],
            max_message_bytes: SLOT_PACKETS * MTU as u64,
            code: mode.code(),
            interleave: 1 + u32::from(options >> 5 & 3),
            ..GeometryConfig::default()
        })
        .unwrap();
        let options = second;
        let controller = match options & 1 {
            0 => ControllerConfig::Bbr,
            _ => ControllerConfig::Fixed { rate_bits_per_s: 1_000_000 },
        };
        let mut qp = QueuePair::new(QpConfig {
            geometry,
            mode,
            policy: lacuna_proto::modes::auto::plan,
            controller,
            rto: RtoConfig::default(),
            queue_pair: 1,
            rkey: RKEY,
            qkey: 8,
            first_psn: 0xFF_FFF8,
            credit_bytes: 1 << 20,
            silence_max_ns: 30_000 * MS,
        });
        let now_ns = 1000 * MS;
        let credit_bytes = if options & 0x80 == 0 { 1 << 20 } else { 1000 };
        let peer = Peer { queue_pair: 2, rkey: 9, qkey: 10, first_psn: 3, credit_bytes };
        qp.connect(now_ns, peer);
        let writers = qp.take_writers();
        Self {
            geometry,
            qp,
            writers,
            now_ns,
            receives: Vec::new(),
            sends: Vec::new(),
            peer_posted: 0,
            sequence: 0,
            sent_psn: [0xFF_FFF8; 2],
            psn: [3; 2],
            fill: Rng::new(1),
        }
    }

    fn operate(&mut self, operation: u8, choices: &mut Choices<'_>) {
        match operation & 0x0F {
            0 => self.post(choices.below(3 * SLOT_PACKETS as usize * MTU)),
            1 => self.close(choices.below(OPEN_MAX)),
            2 => self.send(choices),
            3 => self.stream(choices),
            4 => {
                let (index, now_ns) = (choices.below(self.sends.len()), self.now_ns);
                if let Some((id, _)) = self.sends.get(index) {
                    self.qp.cancel_send(now_ns, *id);
                }
            }
            5..=8 => self.burst(operation >> 4, choices),
            9 => {
                let len = usize::from(choices.byte() & 63);
                let raw = choices.slice(len);
                self.control(operation, |_| Vec::new(), raw);
            }
            10 | 11 => self.frames(operation, choices),
            12 => self.honest_answer(choices),
            13 => {
                // Any body at all, also of another version.
                let len = usize::from(choices.byte() & 63);
                let raw = choices.slice(len);
                let _ = self.qp.on_control(self.now_ns, 0, raw, raw.len());
            }
            _ => {
                self.now_ns += match operation >> 4 {
                    0 => 0,
                    15 => 2000 * MS,
                    _ => u64::from(choices.byte()) * MS / 8,
                };
                run_dry(&mut self.qp, self.now_ns);
                for (id, deadline_ns) in &self.sends {
                    let status = self.qp.send_status(*id).expect("not released");
                    if deadline_ns.is_some_and(|deadline_ns| deadline_ns <= self.now_ns) {
                        assert!(status.outcome.is_some(), "a deadline has passed");
                    }
                }
            }
        }
    }

    fn post(&mut self, len: usize) {
        if self.receives.len() >= OPEN_MAX {
            // The oldest closed receive was checked for long enough.
            if let Some(index) = self.receives.iter().position(|r| r.closed.is_some()) {
                self.receives.remove(index);
            }
        }
        let mut memory = vec![0xA5; len];
        memory.shrink_to_fit();
        let mut memory = std::mem::ManuallyDrop::new(memory);
        assert_eq!(memory.capacity(), len);
        let start = memory.as_mut_ptr();
        // SAFETY: freed by `Received::drop`, which comes after the slots were closed; what was not
        // posted is freed below. Reads happen between bursts, on the same thread.
        let placement = unsafe { Placement::from_raw(start, len) };
        match self.qp.post_receive(self.now_ns, placement) {
            Ok(posted) => {
                let packets = len.div_ceil(MTU).max(1);
                let seen = vec![None; packets];
                self.receives.push(Received { posted, start, len, seen, closed: None });
            }
            Err(_) => drop(std::mem::ManuallyDrop::into_inner(memory)),
        }
    }

    fn close(&mut self, index: usize) {
        let Some(received) = self.receives.get_mut(index) else { return };
        if received.closed.is_some() {
            return;
        }
        for part in &received.posted.parts {
            self.qp.table().close(part.number());
        }
        self.qp.on_receive_closed(self.now_ns, &received.posted);
        received.closed = Some(received.bytes(0, received.len));
    }

    fn send(&mut self, choices: &mut Choices<'_>) {
        if self.sends.len() >= SENDS_MAX {
            return;
        }
        let len = choices.below(3 * SLOT_PACKETS as usize * MTU);
        let options = choices.byte();
        let wait_ns = u64::from(options >> 2) * MS;
        let request = SendRequest {
            data: SendBuffer::from(vec![1; len]),
            immediate: (options & 1 != 0).then_some(0x1234_5678),
            deadline_ns: (options & 2 != 0).then_some(self.now_ns + wait_ns),
        };
        let deadline_ns = request.deadline_ns;
        let sent = match options & 4 {
            0 => self.qp.queue_send(request),
            _ => self.qp.post_send(request),
        };
        self.sends.extend(sent.ok().map(|id| (id, deadline_ns)));
    }

    fn stream(&mut self, choices: &mut Choices<'_>) {
        let options = choices.byte();
        let index = choices.below(self.sends.len());
        match (options & 3, self.sends.get(index)) {
            (0, _) if self.sends.len() < SENDS_MAX => {
                let opened = self.qp.open_stream((options & 4 != 0).then_some(5));
                self.sends.extend(opened.ok().map(|id| (id, None)));
            }
            (1, Some((id, _))) => {
                let _ = self.qp.end_stream(*id);
            }
            (_, Some((id, _))) => {
                let chunk = u64::from(options >> 4) * self.geometry.chunk_bytes();
                let data = vec![2; choices.below(300)];
                let ends = options & 4 != 0;
                let _ = self.qp.push_stream(*id, chunk, data.into(), ends);
            }
            _ => {}
        }
    }

    /// The number of a message with an open receive, or one near it.
    fn near_number(&self, choice: u8) -> u64 {
        let open = self.receives.iter().filter(|received| received.closed.is_none());
        let numbers: Vec<u64> =
            open.flat_map(|r| &r.posted.parts).map(|part| part.number()).collect();
        let base = match numbers[..] {
            [] => 0,
            _ => numbers[usize::from(choice & 15) % numbers.len()],
        };
        let slots = u64::from(self.geometry.slots());
        match choice >> 4 {
            15 => base + slots,
            14 => base.saturating_sub(slots),
            13 => base + 1,
            12 => base.saturating_sub(1),
            _ => base,
        }
    }

    /// Data packets for the posted receives, or nearly so.
    fn burst(&mut self, count: u8, choices: &mut Choices<'_>) {
        let geometry = self.geometry;
        let channel = usize::from(choices.byte()) % self.writers.len();
        let mut packets = Vec::new();
        for _ in 0..=count {
            let number = self.near_number(choices.byte());
            let (place, shape) = (choices.byte(), choices.byte());
            if let Some(parity) = self.parity(number, channel, place, shape, choices) {
                packets.push(parity);
                continue;
            }
            let packet = u32::from(place) % 16;
            let faults = choices.byte();
            let slot = geometry.slot_of(number);
            let fields = ImmediateFields { message: slot, packet, fragment: packet % 4 };
            // Mostly full packets, so that chunks and messages complete.
            let (len, ends_message) = match shape {
                0..=199 => (MTU, false),
                200..=215 => (MTU, true),
                216..=231 => (usize::from(choices.byte()) % MTU, true),
                232..=247 => (usize::from(choices.byte()) % (3 * MTU), shape & 1 != 0),
                _ => (0, shape & 1 != 0),
            };
            let address = geometry.slot_address(slot) + u64::from(packet) * MTU as u64;
            let mut header = DataHeader {
                dest: Qpn::new(1, channel as u8, geometry.generation_of(number)),
                psn: self.psn[channel],
                ends_message,
                carries_immediate: faults & 15 == 15,
                address: (place & 16 != 0).then_some(address),
                rkey: RKEY,
                length: len as u32,
                behind: 0,
                immediate: geometry.split().pack(fields),
            };
            self.psn[channel] = (self.psn[channel] + 1) & 0xFF_FFFF;
            match faults >> 4 {
                15 => header.rkey ^= 1,
                14 => {
                    header.address = Some(address.wrapping_add(choices.below(4096) as u64));
                }
                13 => header.immediate ^= 1 << (choices.byte() % 32),
                12 => header.psn = choices.below(65_536) as u32 * 256,
                11 => header.dest = Qpn::new(1, 0, choices.byte() % 8),
                10 => header.address = Some(u64::MAX - u64::from(choices.byte())),
                _ => {}
            }
            packets.push((header, self.fill.bytes(len)));
        }
        let mut placer = self.writers[channel].burst();
        for (header, payload) in packets {
            let packet = data_packet(&header, &payload);
            if header.psn & 1 == 0 && parse_data(&packet).is_some() {
                let checked = placer.check_and_place(&packet, &header, &payload, false);
                assert_eq!(checked, Ok(()));
            } else {
                placer.place(&header, &payload, false);
            }
        }
        let summary = placer.finish();
        self.qp.on_burst(self.now_ns, channel as u8, &summary);
    }

    /// With a code, now and then a parity packet: of a message as long as its receive, or of
    /// another length, with a length of its own that mostly fits.
    fn parity(
        &mut self,
        number: u64,
        channel: usize,
        place: u8,
        shape: u8,
        choices: &mut Choices<'_>,
    ) -> Option<(DataHeader, Vec<u8>)> {
        let geometry = self.geometry;
        let layout = geometry.layout().filter(|_| shape & 1 == 1)?;
        let slot = geometry.slot_of(number);
        let packet = layout.base() + u32::from(place) % 24;
        let at = layout.locate(packet);
        let bytes = match shape >> 1 & 7 {
            0 => choices.below(SLOT_PACKETS as usize * MTU + 100) as u64,
            1 => (SLOT_PACKETS - 2) * MTU as u64 + 5,
            _ => SLOT_PACKETS * MTU as u64,
        };
        let packets = bytes.div_ceil(MTU as u64).max(1) as u32;
        let mut len = layout.parity_bytes(at, bytes, packets, MTU as u32) as usize;
        if shape >> 4 == 15 {
            len = usize::from(choices.byte()) % (2 * MTU);
        }
        let fields = ImmediateFields { message: slot, packet, fragment: packet % 4 };
        let ahead = u64::from(packet - layout.base()) * MTU as u64;
        let header = DataHeader {
            dest: Qpn::new(1, channel as u8, geometry.generation_of(number)),
            psn: self.psn[channel],
            ends_message: shape >> 4 & 3 != 0,
            carries_immediate: shape >> 6 == 3,
            // A parity packet without is none.
            address: (place < 240).then_some(geometry.slot_address(slot) + bytes + ahead),
            rkey: RKEY,
            length: len as u32,
            behind: 0,
            immediate: geometry.split().pack(fields),
        };
        self.psn[channel] = (self.psn[channel] + 1) & 0xFF_FFFF;
        Some((header, self.fill.bytes(len)))
    }

    /// A control packet: frames, then raw bytes behind them.
    fn control<'f>(
        &mut self,
        operation: u8,
        frames: impl FnOnce(&Self) -> Vec<Frame<'f>>,
        raw: &[u8],
    ) {
        // Mostly newer than the last, sometimes the same or far away.
        match operation >> 4 {
            0 => {}
            15 => self.sequence = self.sequence.wrapping_add(1 << 30),
            _ => self.sequence = self.sequence.wrapping_add(1),
        }
        let mut body = control_body(self.sequence, &frames(self));
        body.extend_from_slice(raw);
        let _ = self.qp.on_control(self.now_ns, 0, &body, body.len());
    }

    fn number(&self, choices: &mut Choices<'_>) -> u64 {
        match choices.byte() {
            255 => u64::MAX,
            254 => u64::MAX - 1,
            253 => 1 << 62,
            252 => (1 << 62) - 2,
            251 => u64::from(u32::MAX),
            250 => self.now_ns,
            near => u64::from(near) / 4,
        }
    }

    fn short(&self, choices: &mut Choices<'_>) -> u32 {
        match choices.byte() {
            255 => u32::MAX,
            254 => u32::MAX - 1,
            253 => 1 << 30,
            252 => 0xFF_FFF8 + u32::from(choices.byte()),
            near => u32::from(near),
        }
    }

    fn frames(&mut self, operation: u8, choices: &mut Choices<'_>) {
        let kind = choices.byte();
        let (n0, n1, n2) = (self.number(choices), self.number(choices), self.number(choices));
        let (s0, s1, s2) = (self.short(choices), self.short(choices), self.short(choices));
        let options = choices.byte();
        let bits = choices.slice(usize::from(options & 31));
        let failed = [n2, n0, n2.wrapping_sub(1)];
        let runs = [
            Run { count: s0, capacity_bytes: n2, continues: options & 32 != 0 },
            Run { count: s1, capacity_bytes: u64::from(s2), continues: options & 64 != 0 },
            Run { count: 1, capacity_bytes: n1, continues: options & 128 != 0 },
        ];
        let channel = options >> 5 & 3;
        let frame = match kind % 7 {
            0 => Frame::Receives(Receives {
                base: n0,
                posted: n1,
                finished: bits,
                failed_from: n2,
                failed: U64List::from_values(&failed),
                runs: RunList::from_runs(&runs),
            }),
            1 => Frame::Ack(Ack {
                message: n0,
                cumulative: s0,
                immediate_fragments: s1,
                truncated: options & 32 != 0,
                skipped_bytes: s1 >> 8,
                chunks: bits,
            }),
            2 => {
                let mut report = Report::new();
                report.push(ChannelReport {
                    channel,
                    next_psn: s0 & 0xFF_FFFF,
                    flushed_psn: s1 & 0xFF_FFFF,
                    received_packets: n0,
                    duplicate_packets: n1,
                    marked_packets: n2,
                    reorder_packets: s2,
                    delay_ns: s1,
                    credit_bytes: s2,
                });
                Frame::Report(report)
            }
            3 => {
                let mut flush = Flush::new(n0);
                flush.push(FlushMark { channel, next_psn: s0 & 0xFF_FFFF });
                Frame::Flush(flush)
            }
            4 => Frame::Cancel(Cancel { message: n0, reason: CancelReason::from_code(options) }),
            5 => Frame::Probe(Probe { id: s0, sent_ns: n0 }),
            _ => Frame::ProbeReply(ProbeReply { id: s0, echo_ns: n0, packet_bytes: s1 }),
        };
        self.control(operation, |_| vec![frame], &[]);
    }

    /// Frames of an honest peer: it has posted some receives and received all packets.
    fn honest_answer(&mut self, choices: &mut Choices<'_>) {
        let (control, finished) = (choices.byte(), choices.byte());
        self.peer_posted += u64::from(control & 3);
        let mut report = Report::new();
        for channel in 0..self.writers.len() {
            // All packets sent so far, according to the queue pair itself.
            while let Some(run) = self.qp.poll_transmit(self.now_ns, channel as u8, 64) {
                let (header, _) = run.packet(run.len() - 1);
                self.sent_psn[channel] = (header.psn + 1) & 0xFF_FFFF;
            }
            report.push(ChannelReport {
                channel: channel as u8,
                next_psn: self.sent_psn[channel],
                flushed_psn: self.sent_psn[channel],
                credit_bytes: 1 << 20,
                ..ChannelReport::default()
            });
        }
        let base = self.peer_posted.saturating_sub(u64::from(finished & 15));
        let runs = [Run {
            count: (self.peer_posted - base) as u32,
            capacity_bytes: SLOT_PACKETS * MTU as u64,
            continues: false,
        }];
        let acked = [finished; 4];
        let frames = vec![
            Frame::Report(report),
            Frame::Receives(Receives {
                base,
                posted: self.peer_posted,
                finished: &[],
                failed_from: 0,
                failed: U64List::default(),
                runs: RunList::from_runs(&runs),
            }),
            Frame::Ack(Ack {
                message: base,
                cumulative: u32::from(control >> 4),
                immediate_fragments: u32::from(finished),
                truncated: false,
                skipped_bytes: 0,
                chunks: &acked,
            }),
        ];
        self.control(0x10, |_| frames, &[]);
    }

    // ---- what must hold ----

    fn check(&mut self) {
        let geometry = self.geometry;
        let chunk_packets = geometry.chunk_packets();
        for received in &mut self.receives {
            if let Some(closed) = &received.closed {
                assert_eq!(closed, &received.bytes(0, received.len), "a closed buffer changed");
            }
            let mut hole = false;
            for (part_index, part) in received.posted.parts.iter().enumerate() {
                let base = part_index * SLOT_PACKETS as usize;
                let capacity = part.capacity_bytes() as usize;
                for packet in 0..capacity.div_ceil(MTU).max(1) {
                    let has = part.has_packet(packet as u32);
                    let seen = &received.seen[base + packet];
                    assert!(has || seen.is_none(), "a packet bit was cleared");
                    if has {
                        let start = packet * MTU;
                        let bytes = received.bytes(base * MTU + start, MTU.min(capacity - start));
                        // The rest of a short last packet's bytes belongs to no other packet.
                        match seen {
                            Some(seen) => assert_eq!(seen, &bytes, "bytes under a set bit changed"),
                            None => received.seen[base + packet] = Some(bytes),
                        }
                    }
                }
                let length = part.length_bytes().map_or(capacity, |length| length as usize);
                for chunk in 0..part.capacity_chunks() {
                    if !part.has_chunk(chunk) {
                        hole |= chunk < part.chunks();
                        continue;
                    }
                    let first = chunk * chunk_packets;
                    let end = (first + chunk_packets).min(length.div_ceil(MTU).max(1) as u32);
                    assert!(
                        (first..end).all(|packet| part.has_packet(packet)),
                        "chunk with a hole"
                    );
                    let bytes = part.chunk(chunk).map_or(0, <[u8]>::len);
                    let start = first as usize * MTU;
                    let full = chunk_packets as usize * MTU;
                    assert_eq!(bytes, full.min(length.saturating_sub(start)));
                }
                if part.length_bytes().is_some() {
                    break;
                }
            }
            assert!(!(received.posted.is_complete() && hole), "complete with a hole");
        }
    }

    /// Everything is closed and time passes: nothing is left to do, or its timer is later.
    fn end(mut self) -> u64 {
        for index in 0..self.receives.len() {
            self.close(index);
        }
        for (id, _) in &self.sends {
            self.qp.cancel_send(self.now_ns, *id);
            assert!(self.qp.send_status(*id).expect("not released").outcome.is_some());
        }
        for _ in 0..4 {
            run_dry(&mut self.qp, self.now_ns);
            self.now_ns = self.qp.poll_timeout().unwrap_or(self.now_ns).max(self.now_ns);
        }
        self.check();
        self.qp.stats().channels.iter().map(|channel| channel.repaired_packets).sum()
    }
}
