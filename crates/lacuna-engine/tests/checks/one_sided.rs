//! Two one-sided queue pairs over the fake link that follow a list of bytes: writes and reads of regions in
//! both directions, with fences, deadlines and keys that are revoked, against an oracle of every byte.
//!
//! The bytes of a write are a function of its number, and none is 0. A write is *settled* when nothing of
//! it can be placed any more. The oracle asserts that
//!
//! - a byte of a region changes only to that of a write that covers it, is not settled, and has a live key
//!   with the right to write; nothing changes after the key was revoked;
//! - a reliable write that succeeded has put its bytes there, unless another one that was not settled
//!   before it began has done so since; the order that fences ask for is kept;
//! - the validity map and the records of messages claim only bytes that were written, and the map claims all
//!   that a successful reliable write covers;
//! - a reliable write with an immediate that succeeded is told exactly once, and no write is told twice;
//! - a read gives bytes that were there while it went on, and before its key was revoked; nothing lands
//!   outside of its place, or after that was revoked;
//! - everything ends, by its deadline if it has one, once the link is healed.

mod end;

use super::Choices;
use super::oracle::any_link;
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::reason::Reason;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope};
use lacuna_proto::modes::Mode;
use lacuna_proto::qp::{
    ReadFailure, ReadId, ReadRequest, SendFailure, SendId, SendRequest, Target, Written,
};
use lacuna_wire::ImmediateSplit;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const MS: u64 = 1_000_000;
const REGION_BYTES: usize = 8192;
const WRITES_MAX: usize = 80;
const READS_MAX: usize = 40;
/// Longer than any packet is under way.
const FLIGHT_NS: u64 = 500 * MS;
/// Bytes of a sink that its key does not cover.
const MARGIN: usize = 64;
/// The ranges of a region's keys; the last one allows reads only.
const WINDOWS: [Range<u64>; 4] = [0..3000, 2000..5000, 4500..8192, 0..8192];

struct Write {
    index: usize,
    id: SendId,
    key: u32,
    /// In the peer's region; `None` if the range of the key is exceeded.
    start: usize,
    content: Vec<u8>,
    immediate: Option<u32>,
    deadline_ns: Option<u64>,
    is_fenced: bool,
    queued_ns: u64,
    settled_ns: u64,
    outcome: Option<Result<(), SendFailure>>,
    told: u32,
}

impl Write {
    fn byte(&self, offset: usize) -> Option<u8> {
        self.content.get(offset.checked_sub(self.start)?).copied()
    }

    fn range(&self) -> Range<usize> {
        self.start..self.start + self.content.len()
    }
}

struct Read {
    id: ReadId,
    key: u32,
    /// In the peer's region.
    start: usize,
    before: Vec<u8>,
    queued_ns: u64,
    deadline_ns: Option<u64>,
    /// When the key that it reads under was revoked.
    revoked_ns: u64,
    sink: Arc<Region>,
    sink_key: u32,
    /// The sink's bytes when its key was revoked.
    after: Option<Vec<u8>>,
}

/// One end: its region, and what it does with the other end's.
struct End {
    keys: Arc<KeyTable>,
    region: Arc<Region>,
    /// Of each of `WINDOWS`, the newest key, and whether it lives.
    windows: Vec<(u32, bool)>,
    /// Where each key's range begins in the region.
    starts: BTreeMap<u32, u64>,
    seen: Vec<u8>,
    writes: Vec<Write>,
    reads: Vec<Read>,
}

struct World {
    pair: Pair,
    mode: Mode,
    mtu: usize,
    slot: usize,
    ends: [End; 2],
    checked_ns: u64,
    rng: Rng,
}

/// What a list has reached.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) writes: u64,
    pub(crate) refused: u64,
    pub(crate) told: u64,
    pub(crate) reads: u64,
}

/// Runs the list.
pub(crate) fn run(bytes: &[u8]) -> Reached {
    let mut choices = Choices::new(bytes);
    let mut world = World::new(&mut choices);
    while let Some(operation) = choices.next() {
        world.operate(operation, &mut choices);
    }
    world.heal();
    world.replay();
    world.reached()
}

fn content(side: Side, index: usize, len: usize) -> Vec<u8> {
    let mut bytes = Rng::new((index as u64) << 1 | side as u64).bytes(len);
    bytes.iter_mut().for_each(|byte| *byte = (*byte).max(1));
    bytes
}

fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len() as usize];
    region.read(0, &mut bytes).unwrap();
    bytes
}

impl End {
    fn new(seed: u64) -> Self {
        let config = RegionConfig { has_validity: true, ..RegionConfig::default() };
        Self {
            keys: Arc::new(KeyTable::new(seed)),
            region: Region::new(vec![0; REGION_BYTES], config),
            windows: Vec::new(),
            starts: BTreeMap::new(),
            seen: vec![0; REGION_BYTES],
            writes: Vec::new(),
            reads: Vec::new(),
        }
    }

    fn register(&mut self, index: usize, rng: &mut Rng) -> u32 {
        let read_only = index + 1 == WINDOWS.len();
        let write = if read_only { Rights::NONE } else { Rights::REMOTE_WRITE };
        let access = Access { rights: write | Rights::REMOTE_READ, scope: Scope::Any };
        let draw = || rng.next_u64() as u32;
        let range = WINDOWS[index].clone();
        let key = self.keys.register(&self.region, range.clone(), access, draw).unwrap();
        self.starts.insert(key, range.start);
        key
    }

    /// Whether nothing of `first` can be placed once `second` has begun.
    fn is_before(&self, first: &Write, second: &Write, is_reliable: bool) -> bool {
        // One that has failed, or that ended when it was on the wire, may be under way when the fence lets
        // the next one go. A fence that was given up holds nothing back.
        let mut between =
            self.writes.iter().skip(first.index + 1).take_while(|w| w.index <= second.index);
        let holds = |write: &Write| write.is_fenced && !matches!(write.outcome, Some(Err(_)));
        first.settled_ns <= second.queued_ns
            || is_reliable && first.outcome == Some(Ok(())) && between.any(holds)
    }

    /// Whether a write under this key may be placed now.
    fn allows(&self, key: u32) -> bool {
        self.windows[..WINDOWS.len() - 1].contains(&(key, true))
    }
}

impl World {
    fn new(choices: &mut Choices<'_>) -> Self {
        let modes = [
            "sr",
            "auto",
            "sr:rto",
            "ec:mds:4:2",
            "ec:xor:6:3",
            "bounded",
            "bounded:1",
            "bounded+ec:mds:4:2",
        ];
        let mode: Mode = modes[choices.below(modes.len())].parse().unwrap();
        let mtu = [256, 64, 128][choices.below(3)];
        let chunk_packets = 1 + choices.below(3) as u32;
        let geometry = GeometryConfig {
            mtu_bytes: mtu,
            chunk_packets,
            stripe_packets: chunk_packets * (1 + choices.below(2) as u32),
            channels: 1 + choices.below(3) as u8,
            generations: 4,
            split: [(6, 22, 4), (6, 18, 8)].map(|(m, p, u)| ImmediateSplit::new(m, p, u).unwrap())
                [choices.below(2)],
            max_message_bytes: u64::from(mtu * chunk_packets * (2 + choices.below(8) as u32)),
            code: None,
            interleave: 1 + choices.below(2) as u32,
            ..GeometryConfig::default()
        };
        let controller = match choices.byte() % 3 {
            0 => ControllerConfig::Fixed { rate_bits_per_s: 20_000_000 },
            _ => ControllerConfig::Bbr,
        };
        let seed = u64::from(choices.byte());
        let config = PairConfig { geometry, mode, controller, seed, ..PairConfig::default() };
        let mut pair = Pair::new(config, Link { delay_ns: 2 * MS, ..Link::default() });
        pair.recorded = Some(Vec::new());
        let mut rng = Rng::new(seed);
        let ends = [Side::A, Side::B].map(|side| {
            let mut end = End::new(side as u64);
            for index in 0..WINDOWS.len() {
                let key = end.register(index, &mut rng);
                end.windows.push((key, true));
            }
            pair.end(side).qp().become_one_sided(end.keys.clone(), 1);
            end
        });
        let checked_ns = pair.now_ns;
        let slot = geometry.max_message_bytes as usize;
        Self { pair, mode, mtu: mtu as usize, slot, ends, checked_ns, rng }
    }

    fn operate(&mut self, operation: u8, choices: &mut Choices<'_>) {
        let side = if operation & 0x80 == 0 { Side::A } else { Side::B };
        match operation & 0x0F {
            0..=3 => self.write(side, choices),
            4 | 5 => self.read(side, choices),
            6 => {
                let writes = &self.ends[side as usize].writes;
                let index = choices.below(writes.len());
                let Some(id) = writes.get(index).map(|write| write.id) else { return };
                let now_ns = self.pair.now_ns;
                self.pair.end(side).qp().cancel_send(now_ns, id);
            }
            7 => self.turn(side, choices.below(WINDOWS.len())),
            8 => self.take_written(side),
            9 => self.pair.link = any_link(choices, self.mtu),
            _ => {
                self.pair.run_for(u64::from(choices.byte()) * MS / 4);
                self.check();
            }
        }
    }

    // ---- operations ----

    fn write(&mut self, side: Side, choices: &mut Choices<'_>) {
        let (window, options) = (choices.below(8), choices.byte());
        let index = self.ends[side as usize].writes.len();
        if index >= WRITES_MAX {
            return;
        }
        // Mostly those that may be written.
        let window = [0, 1, 2, 0, 1, 2, 1, 3][window];
        let bytes = (WINDOWS[window].end - WINDOWS[window].start) as usize;
        let len = choices.below(if options & 1 == 0 { 300 } else { bytes });
        let most = if options & 0x70 == 0 { bytes + 100 } else { bytes - len + 1 };
        let address = choices.below(most) as u64;
        let now_ns = self.pair.now_ns;
        let wait_ns = u64::from(choices.byte()) * 4 * MS;
        let deadline_ns = (options & 6 == 6).then_some(now_ns + wait_ns);
        let immediate =
            (options & 8 != 0).then_some(0x9E37_79B1_u32.wrapping_mul(index as u32 + 1));
        let is_fenced = options & 0x81 == 0x81;
        let (key, _) = self.ends[side.peer() as usize].windows[window];
        let content = content(side, index, len);
        let data = SendBuffer::from(content.clone());
        let request = SendRequest { data, immediate, deadline_ns };
        let target = Target { key, address };
        let mut qp = self.pair.end(side).qp();
        let queued = match is_fenced {
            true => qp.fenced(|qp| qp.queue_write(request, target, false)),
            false => qp.queue_write(request, target, false),
        };
        drop(qp);
        let end = &mut self.ends[side as usize];
        end.writes.push(Write {
            index,
            id: queued.expect("a write is taken"),
            key,
            start: (WINDOWS[window].start + address) as usize,
            content,
            immediate,
            deadline_ns,
            is_fenced,
            queued_ns: now_ns,
            settled_ns: u64::MAX,
            outcome: None,
            told: 0,
        });
    }

    fn read(&mut self, side: Side, choices: &mut Choices<'_>) {
        let (window, options) = (choices.below(WINDOWS.len()), choices.byte());
        if self.ends[side as usize].reads.len() >= READS_MAX {
            return;
        }
        let bytes = (WINDOWS[window].end - WINDOWS[window].start) as usize;
        let len = 1 + choices.below(if options & 1 == 0 { 300 } else { bytes });
        let most = if options & 0x70 == 0 { bytes + 100 } else { bytes - len + 1 };
        let address = choices.below(most) as u64;
        let wait_ns = u64::from(choices.byte()) * 4 * MS;
        let (queued_ns, peer) = (self.pair.now_ns, &self.ends[side.peer() as usize]);
        let deadline_ns = (options & 6 == 6).then_some(queued_ns + wait_ns);
        let (key, is_live) = peer.windows[window];
        let before = bytes_of(&peer.region);
        let own = &mut self.ends[side as usize];
        let sink = Region::new(vec![0; len + MARGIN], RegionConfig::default());
        let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
        let draw = || self.rng.next_u64() as u32;
        let sink_key = own.keys.register(&sink, 0..len as u64, access, draw).unwrap();
        let request = ReadRequest {
            from: Target { key, address },
            len_bytes: len as u64,
            into: Target { key: sink_key, address: 0 },
            deadline_ns,
        };
        let id = self.pair.end(side).qp().queue_read(queued_ns, request).expect("a read is taken");
        let start = (WINDOWS[window].start + address) as usize;
        let revoked_ns = if is_live { u64::MAX } else { 0 };
        let after = None;
        let read = Read {
            id,
            key,
            start,
            before,
            queued_ns,
            deadline_ns,
            revoked_ns,
            sink,
            sink_key,
            after,
        };
        own.reads.push(read);
    }

    /// Revokes a key, or makes another if that was done.
    fn turn(&mut self, side: Side, index: usize) {
        // What has changed until now was allowed.
        self.check();
        let now_ns = self.pair.now_ns;
        let end = &mut self.ends[side as usize];
        let (key, is_live) = end.windows[index];
        if is_live {
            assert!(end.keys.revoke(key));
            end.windows[index] = (key, false);
            for read in &mut self.ends[side.peer() as usize].reads {
                if read.key == key {
                    read.revoked_ns = read.revoked_ns.min(now_ns);
                }
            }
        } else {
            end.windows[index] = (end.register(index, &mut self.rng), true);
        }
    }

    /// The application of one end takes what it was told, and compares it with what was written.
    fn take_written(&mut self, side: Side) {
        self.check();
        let now_ns = self.pair.now_ns;
        loop {
            let written = self.pair.end(side).qp().poll_written(now_ns);
            let Some(written) = written else { return };
            self.check_written(side, &written);
        }
    }

    // ---- what must hold ----

    fn check(&mut self) {
        // What is due now is done.
        self.pair.run_for(0);
        for side in [Side::A, Side::B] {
            self.check_region(side.peer());
            self.check_writes(side);
            self.check_reads(side);
        }
        self.checked_ns = self.pair.now_ns;
    }

    /// What has changed in an end's region since the last check, and what its map claims.
    fn check_region(&mut self, side: Side) {
        let checked_ns = self.checked_ns;
        let [own, peer] = self.both(side);
        let bytes = bytes_of(&own.region);
        let writes: Vec<&Write> = (peer.writes.iter())
            .filter(|write| own.allows(write.key) && write.settled_ns > checked_ns)
            .collect();
        for (offset, byte) in bytes.iter().enumerate().filter(|(at, byte)| own.seen[*at] != **byte)
        {
            let is_written = writes.iter().any(|write| write.byte(offset) == Some(*byte));
            assert!(is_written, "byte {offset} became {byte:#x}, which no write may have done");
        }
        own.seen = bytes;
        let validity = own.region.validity().expect("it has a map");
        for range in validity.copy(0..own.region.len()).ranges() {
            let claimed = &own.seen[range.start as usize..range.end as usize];
            assert!(!claimed.contains(&0), "{range:?} is said to be valid and was never written");
        }
    }

    /// Writes of one end that have ended since the last check.
    fn check_writes(&mut self, side: Side) {
        let (now_ns, is_reliable) = (self.pair.now_ns, self.mode.is_reliable());
        for index in 0..self.ends[side as usize].writes.len() {
            let write = &self.ends[side as usize].writes[index];
            if write.outcome.is_some() {
                continue;
            }
            let outcome = self.pair.status(side, write.id).outcome;
            let write = &mut self.ends[side as usize].writes[index];
            if write.deadline_ns.is_some_and(|due_ns| due_ns <= now_ns) {
                assert!(outcome.is_some(), "the deadline of write {index} has passed");
            }
            write.outcome = outcome;
            match outcome {
                None => {}
                Some(Err(SendFailure::Failed(failure))) => panic!("{failure}"),
                // All of it was placed, and nothing is placed twice.
                Some(Ok(())) if is_reliable => {
                    write.settled_ns = now_ns;
                    self.check_placed(side, index);
                }
                Some(_) => write.settled_ns = now_ns + FLIGHT_NS,
            }
        }
    }

    /// A reliable write has succeeded: its bytes are there, or those of one that was not settled before it
    /// began.
    fn check_placed(&mut self, side: Side, index: usize) {
        let slot = self.slot;
        let [own, peer] = self.both(side);
        let write = &own.writes[index];
        let range = write.range();
        assert!(range.end <= REGION_BYTES, "write {index} succeeded outside of the region");
        for offset in range.clone() {
            let byte = peer.seen[offset];
            let is_others = || {
                let others = own.writes.iter().filter(|other| other.byte(offset) == Some(byte));
                others.filter(|other| !own.is_before(other, write, true)).count() > 0
            };
            assert!(
                write.byte(offset) == Some(byte) || is_others(),
                "byte {offset} of write {index} is {byte:#x}"
            );
        }
        let validity = peer.region.validity().expect("it has a map");
        // A granule of two messages, of a write longer than a slot, is nobody's.
        for start in range.clone().step_by(slot) {
            let end = (start + slot).min(range.end) / 64 * 64;
            let start = start.next_multiple_of(64);
            assert!(start >= end || validity.is_valid(start as u64..end as u64), "{range:?}");
        }
    }

    /// What the application was told: the record claims what was written.
    fn check_written(&mut self, side: Side, written: &Written) {
        let (mtu, is_reliable) = (self.mtu, self.mode.is_reliable());
        let [own, peer] = self.both(side);
        let bound = written.receive.bound().expect("it has a place");
        let record = bound.record();
        let first = (own.starts[&bound.key()] + bound.address()) as usize;
        let is_of = |write: &Write| {
            write.key == bound.key()
                && (write.range().contains(&first) || write.start == first)
                && record.immediate().is_none_or(|immediate| write.immediate == Some(immediate))
        };
        let told: Vec<usize> =
            (0..peer.writes.len()).filter(|index| is_of(&peer.writes[*index])).collect();
        assert!(!told.is_empty(), "a message of no write");
        if written.reason == Reason::Whole {
            assert!(record.is_complete() && record.immediate().is_some());
        }
        if record.immediate().is_some() {
            assert_eq!(told.len(), 1);
            peer.writes[told[0]].told += 1;
            assert_eq!(peer.writes[told[0]].told, 1, "write {} is told twice", told[0]);
        }
        assert!(written.reason == Reason::Whole || !is_reliable || !record.is_complete());
        let limit = record.length_bytes().unwrap_or(record.capacity_bytes()) as usize;
        for (packet, start) in (0..limit).step_by(mtu).enumerate() {
            if record.packets_here(packet as u32 / 64) >> (packet % 64) & 1 == 0 {
                continue;
            }
            for offset in first + start..first + (start + mtu).min(limit) {
                let byte = own.seen[offset];
                let is_claimed = |index: &usize| {
                    let write = &peer.writes[*index];
                    let is_it = |other: &&Write| {
                        other.byte(offset) == Some(byte)
                            && !peer.is_before(other, write, is_reliable)
                    };
                    write.byte(offset).is_some() && peer.writes.iter().any(|w| is_it(&w))
                };
                assert!(told.iter().any(is_claimed), "byte {offset} is claimed, and is {byte:#x}");
            }
        }
    }

    /// Reads of one end: those that have ended are compared and their places given back.
    fn check_reads(&mut self, side: Side) {
        let (now_ns, is_reliable) = (self.pair.now_ns, self.mode.is_reliable());
        for index in 0..self.ends[side as usize].reads.len() {
            let read = &self.ends[side as usize].reads[index];
            if let Some(after) = &read.after {
                assert!(bytes_of(&read.sink) == *after, "read {index} wrote after it was over");
                continue;
            }
            let bytes = bytes_of(&read.sink);
            let len = bytes.len() - MARGIN;
            assert!(bytes[len..].iter().all(|byte| *byte == 0), "read {index} wrote too far");
            let status = self.pair.end(side).qp().read_status(read.id).expect("not released");
            if read.deadline_ns.is_some_and(|due_ns| due_ns <= now_ns) {
                assert!(status.outcome.is_some(), "the deadline of read {index} has passed");
            }
            let writes = &self.ends[side as usize].writes;
            for (at, byte) in bytes[..len].iter().enumerate() {
                let offset = read.start + at;
                let may_be_missing = *byte == 0 && !(is_reliable && status.outcome == Some(Ok(())));
                let is_of = |write: &&Write| {
                    write.byte(offset) == Some(*byte)
                        && write.settled_ns > read.queued_ns
                        && write.queued_ns < read.revoked_ns
                };
                assert!(
                    may_be_missing
                        || read.before.get(offset) == Some(byte)
                        || writes.iter().any(|write| is_of(&write)),
                    "read {index} got {byte:#x} from {offset}"
                );
            }
            match status.outcome {
                None => continue,
                Some(Err(ReadFailure::Failed(failure))) => panic!("{failure}"),
                Some(Ok(())) if is_reliable => assert_eq!(status.placed_bytes, len as u64),
                Some(Ok(())) => assert!(status.placed_bytes <= len as u64),
                Some(Err(_)) => {}
            }
            let (id, key) = (read.id, read.sink_key);
            assert!(self.ends[side as usize].keys.revoke(key));
            self.pair.end(side).qp().release_read(id);
            self.ends[side as usize].reads[index].after = Some(bytes);
        }
    }

    /// The end, and the other one.
    fn both(&mut self, side: Side) -> [&mut End; 2] {
        let [a, b] = &mut self.ends;
        match side {
            Side::A => [a, b],
            Side::B => [b, a],
        }
    }
}
