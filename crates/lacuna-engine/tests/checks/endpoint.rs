//! One queue pair whose peer is whatever a list of bytes says: data packets near the truth or far
//! from it, control bodies of any kind, posts, sends, closes and the clock in between. The queue pair may
//! be for messages, which may be bounded, or for writes and reads of regions.
//!
//! Asserted all along: no panic; polls end and no timer stays in the past; bytes under a set
//! packet bit never change; a chunk bit has all its packets' bits; "complete" has no hole; a
//! closed buffer never changes; what is missing of it is zero, if that was asked for; deadlines are kept;
//! nothing that was set is cleared; a receive that is over stays as it is; of regions, what `targets.rs`
//! says.

#![allow(unsafe_code)]

mod frames;
mod packets;
mod targets;

use super::Choices;
use crate::common::run_dry_with;
use lacuna_engine::testing::Rng;
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::discard::Discard;
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_place::reason::Reason;
use lacuna_place::writer::ChannelWriter;
use lacuna_proto::modes::Mode;
use lacuna_proto::qp::{
    Grace, Peer, PostedReceive, QpConfig, QueuePair, ReadId, ReadRequest, RecvOptions, RecvRequest,
    SendId, SendRequest, Target,
};
use lacuna_wire::ImmediateSplit;
use targets::{PEER, Targets};

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
    deadline_ns: Option<u64>,
    /// Packets that were here when it was over.
    over_packets: Option<u64>,
}

impl Received {
    /// Zeroes what is missing of a closed receive, and sees that it is zero.
    fn zero_missing(&mut self) {
        let zeroed = self.posted.zero_missing();
        let mut zeros = 0;
        for (index, part) in self.posted.parts.iter().enumerate() {
            let limit = part.length_bytes().unwrap_or(part.capacity_bytes()) as usize;
            for start in (0..limit).step_by(MTU) {
                let len = MTU.min(limit - start);
                if !part.has_packet((start / MTU) as u32) {
                    let bytes = self.bytes(index * SLOT_PACKETS as usize * MTU + start, len);
                    assert!(bytes.iter().all(|byte| *byte == 0), "a missing packet is not zeroed");
                    zeros += len as u64;
                }
            }
            if part.length_bytes().is_some() {
                break;
            }
        }
        assert_eq!(zeroed, zeros);
    }

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
    /// The list is of the kind that also has deadlines of receives and frames of regions.
    is_new: bool,
    /// What the peer writes and reads, if the queue pair is one-sided.
    targets: Option<Targets>,
    reads: Vec<(ReadId, Option<u64>)>,
    told: u64,
    answers: u64,
}

/// How much a list has reached, so that the tests can say that lists reach it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) repaired_packets: u64,
    /// Receives that were over with gaps, not at the end.
    pub(crate) ended_early: u64,
    /// Packets that were placed in regions, and those that were refused.
    pub(crate) written_packets: u64,
    pub(crate) refused_packets: u64,
    /// Messages with an immediate, and reads of the peer that were answered.
    pub(crate) told: u64,
    pub(crate) answers: u64,
}

/// Runs the list.
pub(crate) fn run(bytes: &[u8]) -> Reached {
    let mut choices = Choices::new(bytes);
    let mut world = World::new(&mut choices);
    for packets in [SLOT_PACKETS, 2 * SLOT_PACKETS] {
        world.post(packets as usize * MTU, RecvOptions::default());
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
        let is_new = options & 0x80 != 0;
        let kind = if is_new { choices.byte() } else { 0 };
        let modes = ["sr", "raw", "sr:rto", "ec:mds:2:1", "ec:xor:4:2", "ec:mds:3:5", "auto"];
        let bounded = ["bounded", "bounded:2", "bounded+ec:mds:2:1", "bounded:1"];
        let mode = match usize::from(second >> 1) {
            choice if kind & 2 != 0 => bounded[choice % bounded.len()],
            choice => modes[choice % modes.len()],
        };
        let is_one_sided = kind & 1 != 0;
        // Nobody would end a write in mode raw.
        let mode = if is_one_sided && mode == "raw" { "bounded" } else { mode };
        let mode: Mode = mode.parse().unwrap();
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
        let has_code = geometry.layout().is_some() || mode == Mode::Auto;
        let targets = is_one_sided.then(|| Targets::new(kind & 4 != 0, has_code));
        if let Some(targets) = &targets {
            qp.become_one_sided(targets.keys.clone(), PEER);
        }
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
            is_new,
            targets,
            reads: Vec::new(),
            told: 0,
            answers: 0,
        }
    }

    fn operate(&mut self, operation: u8, choices: &mut Choices<'_>) {
        match operation & 0x0F {
            0..=3 if self.targets.is_some() => self.use_regions(operation, choices),
            0 => {
                let len = choices.below(3 * SLOT_PACKETS as usize * MTU);
                let options = if self.is_new { choices.byte() } else { 0 };
                let deadline_ns =
                    (options & 1 != 0).then_some(self.now_ns + u64::from(options >> 2) * MS);
                let grace = if options & 2 == 0 { Grace::Path } else { Grace::Fixed { ns: MS } };
                self.post(len, RecvOptions { deadline_ns, grace });
            }
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
                self.run_dry();
                self.check_deadlines();
            }
        }
    }

    fn run_dry(&mut self) {
        let targets = &self.targets;
        let answers = &mut self.answers;
        run_dry_with(&mut self.qp, self.now_ns, |payload| {
            if let Some(targets) = targets {
                *answers += u64::from(targets.on_sent(payload));
            }
        });
    }

    fn check_deadlines(&self) {
        let now_ns = self.now_ns;
        let is_past =
            |deadline_ns: &Option<u64>| deadline_ns.is_some_and(|due_ns| due_ns <= now_ns);
        for (id, deadline_ns) in &self.sends {
            let status = self.qp.send_status(*id).expect("not released");
            assert!(!is_past(deadline_ns) || status.outcome.is_some(), "a deadline has passed");
        }
        for Received { posted, deadline_ns, .. } in &self.receives {
            assert!(!is_past(deadline_ns) || posted.reason().is_some(), "a deadline has passed");
        }
        for (id, deadline_ns) in &self.reads {
            let status = self.qp.read_status(*id).expect("not released");
            assert!(!is_past(deadline_ns) || status.outcome.is_some(), "a deadline has passed");
        }
    }

    fn post(&mut self, len: usize, options: RecvOptions) {
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
        let request = RecvRequest { buffer: placement, options, notifies: false };
        match self.qp.post_receive_with(self.now_ns, request) {
            Ok(posted) => {
                let packets = len.div_ceil(MTU).max(1);
                let seen = vec![None; packets];
                let deadline_ns = options.deadline_ns;
                let (closed, over_packets) = (None, None);
                let received =
                    Received { posted, start, len, seen, closed, deadline_ns, over_packets };
                self.receives.push(received);
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
        if self.is_new {
            received.zero_missing();
        }
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

    // ---- one-sided ----

    /// What the application of a one-sided queue pair does.
    fn use_regions(&mut self, operation: u8, choices: &mut Choices<'_>) {
        let choice = choices.byte();
        let Some(targets) = &mut self.targets else { return };
        match operation & 3 {
            0 => {
                while let Some(written) = self.qp.poll_written(self.now_ns) {
                    let bound = written.receive.bound().expect("it has a place");
                    targets.check_record(bound, MTU as u64);
                    self.told += 1;
                }
                let mut open = std::mem::take(&mut self.reads);
                while let Some((id, _)) = self.qp.poll_ended_read() {
                    open.retain(|(other, _)| *other != id);
                }
                self.reads = open;
            }
            1 if choice & 1 == 0 => targets.turn(usize::from(choice >> 1)),
            1 => {
                let start = u64::from(choice) * 16;
                targets.take(start..start + 1000);
            }
            2 => self.write(choice, choices),
            _ => self.read(choice, choices),
        }
    }

    fn write(&mut self, options: u8, choices: &mut Choices<'_>) {
        if self.sends.len() >= SENDS_MAX {
            return;
        }
        let len = choices.below(3 * SLOT_PACKETS as usize * MTU);
        let deadline_ns =
            (options & 2 != 0).then_some(self.now_ns + u64::from(choices.byte()) * MS);
        let data = SendBuffer::from(vec![1; len]);
        let immediate = (options & 1 != 0).then_some(0x1234_5678);
        let request = SendRequest { data, immediate, deadline_ns };
        let target = Target { key: u32::from(options), address: self.number(choices) };
        let is_offered = options & 4 != 0;
        let sent = match options & 8 {
            0 => self.qp.queue_write(request, target, is_offered),
            _ => self.qp.fenced(|qp| qp.queue_write(request, target, is_offered)),
        };
        let Ok(id) = sent else { return };
        self.sends.push((id, deadline_ns));
        if is_offered {
            let _ = self.qp.offer(id, 0..len as u64 / 2);
            let _ = self.qp.offer(id, len as u64 / 2..len as u64);
        }
    }

    fn read(&mut self, options: u8, choices: &mut Choices<'_>) {
        if options & 3 == 3 && !self.reads.is_empty() {
            let (id, _) = self.reads.remove(choices.below(self.reads.len()));
            return self.qp.release_read(id);
        }
        let (own_key, sink) = (choices.byte(), choices.below(2000) as u64);
        let Some(targets) = &self.targets else { return };
        let into = Target { key: targets.key(own_key), address: sink };
        let deadline_ns =
            (options & 4 != 0).then_some(self.now_ns + u64::from(choices.byte()) * MS);
        let from = Target { key: u32::from(options), address: self.number(choices) };
        let len_bytes = choices.below(2000) as u64;
        let request = ReadRequest { from, len_bytes, into, deadline_ns };
        if let Ok(id) = self.qp.queue_read(self.now_ns, request) {
            self.reads.push((id, deadline_ns));
            if options & 8 != 0 {
                self.qp.notify_read(id);
            }
        }
    }

    // ---- what must hold ----

    fn check(&mut self) {
        let geometry = self.geometry;
        let chunk_packets = geometry.chunk_packets();
        if let Some(targets) = &mut self.targets {
            targets.check();
        }
        for received in &mut self.receives {
            // Nothing is missing of a whole one, and when the queue pair fails the application closes them.
            let stays = |reason| !matches!(reason, Reason::Whole | Reason::Failed);
            if received.posted.reason().is_some_and(stays) {
                let packets = received.posted.placed_packets();
                let before = *received.over_packets.get_or_insert(packets);
                assert_eq!(packets, before, "a receive that is over has changed");
            }
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
    fn end(mut self) -> Reached {
        let ends = self.qp.stats().ends;
        let ended_early = ends.receives[1..].iter().sum();
        for index in 0..self.receives.len() {
            self.close(index);
        }
        for (id, _) in &self.sends {
            self.qp.cancel_send(self.now_ns, *id);
            assert!(self.qp.send_status(*id).expect("not released").outcome.is_some());
        }
        for (id, _) in std::mem::take(&mut self.reads) {
            self.qp.release_read(id);
        }
        for _ in 0..4 {
            self.run_dry();
            self.now_ns = self.qp.poll_timeout().unwrap_or(self.now_ns).max(self.now_ns);
        }
        self.check();
        let channels = self.qp.stats().channels;
        let refused = || {
            channels
                .iter()
                .flat_map(|c| Discard::OF_REGIONS.map(|reason| c.discarded[reason.index()]))
        };
        Reached {
            repaired_packets: channels.iter().map(|channel| channel.repaired_packets).sum(),
            ended_early,
            written_packets: match self.targets {
                Some(_) => channels.iter().map(|channel| channel.packets).sum(),
                None => 0,
            },
            refused_packets: refused().sum(),
            told: self.told,
            answers: self.answers,
        }
    }
}
