//! Three datagram queue pairs, their memory, and the books that tell what each packet may do. Two have each other for
//! a peer, and all are in a group; the third has the first one.
//!
//! Held after every packet: memory changed only within the packet's own place, under a key that is live, of a posted
//! receive or an open READ, and to the packet's bytes; only of a packet that was taken; a granule is valid only
//! if all of it was written; a completion's map has no byte that no packet of its message brought; what is open is
//! bounded; what has a deadline is over by then; and a stranger was told no more than three times what it sent.
//! Held at the end: every work request ended once, nothing is open, and no time is due for ever.
//! Held of reliable queue pairs while strangers know neither instances nor numbers: each message is delivered at most
//! once, in the order of its source, and one that succeeds was delivered.

use lacuna_datagram::{
    Arrived, Config, Done, Ended, Endpoint, OpenLimits, Operation, PeerId, RecvWork,
    ReliableConfig, Run, SendWork, Target, Verb,
};
use lacuna_link::SplitMix64;
use lacuna_path::controller::ControllerConfig;
use lacuna_path::ranges::Ranges;
use lacuna_place::region::{
    Access, GRANULE_BYTES, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride,
};
use lacuna_wire::ddp::{
    self, ControlFrame, ControlFrames, ReadRequest, Segment, Space, Tagged, Untagged,
};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of each memory of an end.
pub(crate) const MEMORY_BYTES: u64 = 2048;
/// A window of the memory, under a key of its own.
const WINDOW: Range<u64> = 500..1500;
const PACKET_BYTES_MAX: usize = 128;
const PEERS_MAX: usize = 6;
const OPEN: OpenLimits = OpenLimits { of_source: 3, in_all: 5 };
const RECORDS_MAX: usize = 12;
const STREAMS_MAX: usize = 4;
/// Nobody acknowledges for so long: the peer is in error.
const SILENCE_NS: u64 = 1_000_000_000;
const RECEIVES_MAX: usize = 16;
const IN_FLIGHT_MAX: usize = 512;
/// No packet is under way for longer.
const UNDER_WAY_NS_MAX: u64 = 20_000_000_000;
pub(crate) const ENDS: usize = 3;
/// The name of a region of each end.
pub(crate) const NAME: u32 = 3;
/// Steps in which all must end once nothing is posted any more.
const STEPS_MAX: usize = 10_000;

pub(crate) fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8], 7407))
}

/// All ends but the one that sends.
fn group_address() -> SocketAddr {
    SocketAddr::from(([239, 1, 2, 3], 7407))
}

pub(crate) fn group() -> u32 {
    ddp::group_number(group_address().ip(), group_address().port())
}

/// The peer of an end.
pub(crate) fn other(at: usize) -> usize {
    [1, 0, 0][at]
}

/// What the queue pairs are, and what strangers know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unreliable,
    /// With a congestion controller.
    Controlled,
    Reliable,
    /// The same; strangers know neither numbers nor instances.
    ReliableBlind,
}

impl Kind {
    fn of(settings: u8) -> Self {
        [Self::Unreliable, Self::Controlled, Self::Reliable, Self::ReliableBlind]
            [usize::from(settings >> 2 & 3)]
    }

    fn is_reliable(self) -> bool {
        matches!(self, Self::Reliable | Self::ReliableBlind)
    }
}

/// Reliable messages of one end to another, as they were seen on the way.
#[derive(Default)]
struct Line {
    /// Their order, by number.
    order: HashMap<u32, u64>,
    delivered: u64,
    delivered_last: u64,
    succeeded: u64,
}

pub(crate) fn stranger(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, number], 7407))
}

/// A message as its segments say it: whose, which, how long, under which key and where.
type Message = (SocketAddr, u32, u32, Option<(u32, u64)>);

struct Key {
    key: u32,
    range: Range<u64>,
    /// Only the other end may use it.
    is_of_peer: bool,
}

struct End {
    endpoint: Endpoint,
    keys: Arc<KeyTable>,
    /// What peers write and read, what receives are parts of, and what READs go to.
    memory: Arc<Region>,
    receives: Arc<Region>,
    sinks: Arc<Region>,
    /// What was in them after the last packet.
    seen: [Vec<u8>; 3],
    live: Vec<Key>,
    dead: Vec<u32>,
    peer: PeerId,
    group: PeerId,
    /// What the name is of, if it is of anything.
    named: Option<u32>,
    /// Work requests that have not ended, and whether they are signaled.
    sends: BTreeMap<u64, bool>,
    /// When those that are signaled are over, at the latest.
    deadlines: BTreeMap<u64, u64>,
    posted: BTreeMap<u64, Range<u64>>,
    reads: BTreeMap<u64, Range<u64>>,
    /// Bytes of `memory` that packets wrote.
    written: Ranges,
    came: HashMap<Message, Ranges>,
    /// The last number that a good packet had, by space; of READs the last that was asked, and its sink.
    numbers: [u32; 6],
    sink: u32,
    /// What a stranger knows who hears all: of the reliable messages to this end where they begin and as which
    /// instance, of those from it the record, and the token that was asked for last.
    begin: (u32, u32),
    record: u32,
    token: u64,
    /// Of each source: bytes that came, and bytes of control to it.
    heard: HashMap<SocketAddr, (usize, usize)>,
}

pub(crate) struct World {
    now_ns: u64,
    pub(crate) kind: Kind,
    ends: [End; ENDS],
    /// When they left, from whom and to whom.
    packets: Vec<(u64, usize, usize, Vec<u8>)>,
    lines: HashMap<(usize, usize), Line>,
    next_in_order: u64,
    next_id: u64,
    rng: SplitMix64,
    /// What happens, if somebody wants to know.
    story: Option<Vec<String>>,
}

fn region(has_validity: bool, is_exclusive: bool) -> Arc<Region> {
    Region::new(vec![0; MEMORY_BYTES as usize], RegionConfig { has_validity, is_exclusive })
}

fn slice(region: &Arc<Region>, range: &Range<u64>) -> Slices {
    Slices::new([(region.clone(), Stride::of_range(range.clone()))]).expect("within the region")
}

fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; MEMORY_BYTES as usize];
    region.read(0, &mut bytes).expect("its length");
    bytes
}

/// From the first byte to the last that differ.
fn difference(before: &[u8], after: &[u8]) -> Option<Range<u64>> {
    // Most packets change nothing, and this is fast.
    if before == after {
        return None;
    }
    let differs = |(before, after): (&u8, &u8)| before != after;
    let first = before.iter().zip(after).position(differs)?;
    let last = before.iter().zip(after).rposition(differs)?;
    Some(first as u64..last as u64 + 1)
}

/// Whether what changed is bytes of a payload that goes to `start`.
fn is_of(changed: &Range<u64>, after: &[u8], start: u64, payload: &[u8]) -> bool {
    let end = start + payload.len() as u64;
    changed.start >= start
        && changed.end <= end
        && after[changed.start as usize..changed.end as usize]
            == payload[(changed.start - start) as usize..(changed.end - start) as usize]
}

impl End {
    fn new(at: usize, settings: u8) -> Self {
        let keys = Arc::new(KeyTable::new(at as u64));
        let kind = Kind::of(settings);
        let controller = match settings & 1 {
            0 => ControllerConfig::Cubic,
            _ => ControllerConfig::Bbr,
        };
        let reliable =
            ReliableConfig { controller, silence_ns: SILENCE_NS, streams_max: STREAMS_MAX };
        let config = Config {
            packet_bytes_max: PACKET_BYTES_MAX,
            rate_bits_per_s: (kind == Kind::Unreliable && settings & 1 != 0).then_some(10_000_000),
            controller: (kind == Kind::Controlled).then_some(controller),
            reliable: kind.is_reliable().then_some(reliable),
            peers_max: PEERS_MAX,
            open: OPEN,
            records_max: RECORDS_MAX,
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(config, keys.clone(), at as u64);
        let peer = endpoint.peer(address(other(at))).expect("the first one");
        let group = endpoint.group(group_address()).expect("the second one");
        Self {
            endpoint,
            keys,
            memory: region(true, settings & 2 != 0),
            receives: region(false, false),
            sinks: region(false, false),
            seen: [(); 3].map(|()| vec![0; MEMORY_BYTES as usize]),
            live: Vec::new(),
            dead: Vec::new(),
            peer,
            group,
            named: None,
            sends: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            posted: BTreeMap::new(),
            reads: BTreeMap::new(),
            written: Ranges::default(),
            came: HashMap::new(),
            numbers: [0; 6],
            sink: 0,
            begin: (0, 0),
            record: 0,
            token: 0,
            heard: HashMap::new(),
        }
    }

    fn register(&mut self, choice: u8, rng: &mut SplitMix64) {
        let both = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let rights = [both, Rights::REMOTE_WRITE, Rights::REMOTE_READ][usize::from(choice) % 3];
        let range = if choice & 0x10 == 0 { 0..MEMORY_BYTES } else { WINDOW };
        let is_of_peer = choice & 0x20 != 0;
        let scope = if is_of_peer { Scope::Peer(self.peer.number()) } else { Scope::Any };
        let access = Access { rights, scope };
        let draw = || rng.next_u64() as u32;
        let key = self.keys.register(&self.memory, range.clone(), access, draw);
        self.live.extend(key.map(|key| Key { key, range, is_of_peer }));
    }

    /// Memory changed by a packet: where it may have, and to what.
    fn check_change(&self, from: SocketAddr, at: usize, packet: &[u8], now: &[Vec<u8>; 3]) {
        let segment = ddp::parse(packet).ok().filter(|_| ddp::check(packet).is_ok());
        for (which, (before, after)) in self.seen.iter().zip(now).enumerate() {
            let Some(changed) = difference(before, after) else { continue };
            let is_allowed = match (which, segment) {
                (0, Some((Segment::Tagged(tagged), payload))) if !tagged.flags.is_answer => {
                    let named = self.key_of(&tagged);
                    self.live.iter().any(|Key { key, range, is_of_peer }| {
                        let start = range.start.saturating_add(tagged.offset);
                        Some(*key) == named
                            && start.saturating_add(payload.len() as u64) <= range.end
                            && (!is_of_peer || from == address(other(at)))
                            && is_of(&changed, after, start, payload)
                    })
                }
                (1, Some((Segment::Untagged(untagged), payload))) => {
                    self.posted.values().any(|range| {
                        let start = range.start + u64::from(untagged.place);
                        start + payload.len() as u64 <= range.end
                            && is_of(&changed, after, start, payload)
                    })
                }
                (2, Some((Segment::Tagged(tagged), payload))) if tagged.flags.is_answer => {
                    self.reads.values().any(|range| {
                        let start = range.start + u64::from(tagged.place);
                        from == address(other(at))
                            && start + payload.len() as u64 <= range.end
                            && is_of(&changed, after, start, payload)
                    })
                }
                _ => false,
            };
            assert!(is_allowed, "memory {which} changed at {changed:?} by {segment:?} of {from}");
        }
    }

    /// The key that a segment means.
    fn key_of(&self, tagged: &Tagged) -> Option<u32> {
        match tagged.flags.is_named {
            true => self.named.filter(|_| tagged.stag == NAME),
            false => Some(tagged.stag),
        }
    }

    fn memories(&self) -> [Vec<u8>; 3] {
        [&self.memory, &self.receives, &self.sinks].map(|region| bytes_of(region))
    }

    /// A packet was taken: notes what its message has now.
    fn note(&mut self, from: SocketAddr, packet: &[u8]) {
        let Ok((segment, payload)) = ddp::parse(packet) else { return };
        let bytes = payload.len() as u64;
        let space = |is_reliable, group, alone, of_group| match (is_reliable, group) {
            (true, _) => Space::Reliable,
            (false, 0) => alone,
            (false, _) => of_group,
        };
        let (message, place) = match segment {
            Segment::Tagged(tagged) => {
                let Tagged { offset, number, length, place, flags, group, .. } = tagged;
                if flags.is_answer {
                    return;
                }
                let space = space(flags.is_reliable, group, Space::Records, Space::GroupRecords);
                self.numbers[space as usize] = number;
                let Some(stag) = self.key_of(&tagged) else { return };
                if let Some(key) = self.live.iter().find(|key| key.key == stag) {
                    // What was refused is beyond it, or not: a source hears of that, so its packet was taken.
                    let start = key.range.start.saturating_add(offset);
                    self.written.add(start..start.saturating_add(bytes));
                }
                let base = offset.wrapping_sub(place.into());
                ((from, number, length, Some((stag, base))), place)
            }
            Segment::Untagged(untagged) => {
                let Untagged { operation, is_reliable, group, number, length, place } = untagged;
                if operation == ddp::Operation::Control {
                    return;
                }
                let space = space(is_reliable, group, Space::Sends, Space::GroupSends);
                if operation != ddp::Operation::ReadRequest || is_reliable {
                    self.numbers[space as usize] = number;
                }
                ((from, number, length, None), place)
            }
        };
        let place = u64::from(place);
        self.came.entry(message).or_default().add(place..place + bytes);
    }

    fn check_validity(&self) {
        let valid = self.memory.validity().expect("it has one").copy(0..MEMORY_BYTES);
        for range in valid.ranges() {
            assert!(self.written.covers(&range), "{range:?} is valid and was not written");
        }
        assert!(valid.count() <= MEMORY_BYTES / GRANULE_BYTES);
    }

    fn on_done(&mut self, done: &Done, is_over: bool) {
        let Done { id, operation, status, bytes, arrived, .. } = done;
        self.deadlines.remove(id);
        match operation {
            Operation::Send | Operation::WriteRecord => {
                let is_signaled = self.sends.remove(id).expect("posted, and not ended before");
                assert!(is_signaled || status.is_err());
            }
            Operation::Read => {
                let range = self.reads.remove(id).expect("posted, and not ended before");
                assert!(*bytes <= range.end - range.start);
                assert!(status.is_err() || *bytes == range.end - range.start, "{done:?}");
            }
            Operation::Receive => {
                let range = self.posted.remove(id).expect("posted, and not ended before");
                match arrived {
                    Some(arrived) => {
                        assert!(status.is_ok() && u64::from(arrived.length) == *bytes, "{done:?}");
                        assert!(*bytes <= range.end - range.start, "{done:?}");
                        self.check_map(arrived, *bytes);
                    }
                    None => assert!(status.is_err() && is_over, "{done:?}"),
                }
            }
            Operation::Record => {
                assert!(status.is_ok(), "{done:?}");
                self.check_map(arrived.as_ref().expect("what came"), *bytes);
            }
        }
    }

    fn check_map(&self, arrived: &Arrived, bytes: u64) {
        let Arrived { source, number, length, map, place, .. } = arrived;
        assert_eq!(map.bytes(*length), bytes, "{arrived:?}");
        let place = place.map(|Target { key, offset }| (key, offset));
        let came = self.came.get(&(*source, *number, *length, place));
        let came = came.unwrap_or_else(|| panic!("nothing came of {arrived:?}"));
        for range in map.ranges(*length) {
            assert!(range.end <= u64::from(*length) && came.covers(&range), "{arrived:?}");
        }
    }
}

impl World {
    pub(crate) fn new(settings: u8, is_told: bool) -> Self {
        let mut rng = SplitMix64::new(7);
        let mut ends = [0, 1, 2].map(|at| End::new(at, settings));
        for end in &mut ends {
            // All rights to all, and a window that the peer alone may write.
            [0x00, 0x31].into_iter().for_each(|choice| end.register(choice, &mut rng));
            let key = end.live[0].key;
            end.endpoint.name_region(NAME, Some(key));
            end.named = Some(key);
        }
        Self {
            now_ns: 1_000_000_000,
            kind: Kind::of(settings),
            ends,
            packets: Vec::new(),
            lines: HashMap::new(),
            next_in_order: 0,
            next_id: 0,
            rng,
            story: is_told.then(Vec::new),
        }
    }

    /// What a stranger knows: where the reliable messages to an end begin and as which instance, the record of those
    /// from it, and a token.
    pub(crate) fn secrets(&self, at: usize) -> ((u32, u32), u32, u64) {
        let End { begin, record, token, .. } = self.ends[at];
        (begin, record, token)
    }

    /// A number that a packet for this end may have.
    pub(crate) fn number(&self, at: usize, space: Space) -> u32 {
        self.ends[at].numbers[space as usize]
    }

    /// A key of an end, or one that it had, or the sink of a READ, or none.
    pub(crate) fn key(&self, of: usize, choice: u8) -> u32 {
        let End { live, dead, sink, .. } = &self.ends[of];
        let choice = usize::from(choice);
        match choice % 8 {
            0 if !dead.is_empty() => dead[choice / 8 % dead.len()],
            1 => choice as u32,
            2 => *sink,
            _ if live.is_empty() => 0,
            _ => live[choice % live.len()].key,
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn send_work(&mut self, at: usize, verb: Verb, is_signaled: bool) -> SendWork {
        let to = self.ends[at].peer;
        SendWork { is_signaled, is_solicited: !is_signaled, ..SendWork::new(self.id(), to, verb) }
    }

    /// `left_ns` is the time until it is given up, if it is.
    pub(crate) fn post(
        &mut self,
        at: usize,
        verb: Verb,
        is_unsignaled: bool,
        is_to_group: bool,
        left_ns: Option<u64>,
    ) {
        let mut work = self.send_work(at, verb, !is_unsignaled);
        let (id, now_ns) = (work.id, self.now_ns);
        let end = &mut self.ends[at];
        if is_to_group {
            work.to = end.group;
        }
        work.deadline_ns = left_ns.map(|ns| now_ns + ns);
        let deadline_ns = work.deadline_ns.filter(|_| !is_unsignaled);
        if end.endpoint.post_send(now_ns, work).is_ok() {
            end.sends.insert(id, !is_unsignaled);
            end.deadlines.extend(deadline_ns.map(|ns| (id, ns)));
        }
    }

    /// The peer is in error no more, if it is; or a name is another key's.
    pub(crate) fn reset(&mut self, at: usize) {
        let end = &mut self.ends[at];
        end.endpoint.reset(end.peer);
    }

    pub(crate) fn name(&mut self, at: usize, choice: u8) {
        let end = &mut self.ends[at];
        end.named = end.live.get(usize::from(choice)).map(|key| key.key);
        end.endpoint.name_region(NAME, end.named);
    }

    pub(crate) fn say_sent(&mut self, at: usize, is_to_group: bool) {
        let end = &mut self.ends[at];
        end.endpoint.say_sent(if is_to_group { end.group } else { end.peer });
    }

    pub(crate) fn post_read(&mut self, at: usize, start: u64, bytes: u64, from: Target, ns: u64) {
        let range = start..(start + bytes).min(MEMORY_BYTES);
        let into = slice(&self.ends[at].sinks, &range);
        let mut work = self.send_work(at, Verb::Read { into, from }, true);
        work.deadline_ns = Some(self.now_ns + ns);
        let (id, now_ns) = (work.id, self.now_ns);
        let end = &mut self.ends[at];
        if end.endpoint.post_send(now_ns, work).is_ok() {
            end.reads.insert(id, range);
            end.deadlines.insert(id, now_ns + ns);
        }
    }

    pub(crate) fn post_recv(&mut self, at: usize, start: u64, bytes: u64) {
        let range = start..(start + bytes).min(MEMORY_BYTES);
        let id = self.id();
        let end = &mut self.ends[at];
        let into = slice(&end.receives, &range);
        let work = RecvWork { id, into };
        if end.posted.len() < RECEIVES_MAX && end.endpoint.post_recv(self.now_ns, work).is_ok() {
            end.posted.insert(id, range);
        }
    }

    pub(crate) fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        (0..ENDS).for_each(|at| self.on_time(at));
    }

    fn on_time(&mut self, at: usize) {
        self.ends[at].endpoint.on_timeout(self.now_ns);
        self.take_done(at);
        let late = self.ends[at].deadlines.iter().find(|(_, ns)| **ns <= self.now_ns);
        assert!(late.is_none(), "{late:?} is not over at {}", self.now_ns);
    }

    /// Everything that may leave now is on its way.
    pub(crate) fn transmit(&mut self, at: usize, packets_max: usize) {
        let mut runs: Vec<Run> = Vec::new();
        while let Some(to) =
            self.ends[at].endpoint.poll_transmit(self.now_ns, packets_max, &mut runs)
        {
            let count = runs.iter().map(Run::len).sum::<usize>();
            assert!((1..=packets_max.max(2)).contains(&count), "{count} packets of {packets_max}");
            for run in runs.drain(..) {
                for index in 0..run.len() {
                    let mut packet = vec![0xa5; run.packet_bytes(index)];
                    let bytes = run.emit(index, &mut packet);
                    packet.truncate(bytes);
                    self.leave(at, to, packet);
                }
            }
        }
        assert!(!self.ends[at].endpoint.has_packets(), "packets may leave, and none does");
        self.take_done(at);
    }

    fn leave(&mut self, at: usize, to: SocketAddr, packet: Vec<u8>) {
        let (segment, payload) = ddp::parse(&packet).expect("what is sent is a packet");
        ddp::check(&packet).expect("with its trailer");
        if let Some(story) = &mut self.story {
            story.push(format!("{} {at} to {to}: {segment:?}", self.now_ns));
        }
        let to = (0..ENDS).find(|end| address(*end) == to).ok_or(to);
        if let Segment::Untagged(Untagged { operation, number, .. }) = segment {
            match operation {
                ddp::Operation::Control => {
                    if let Err(to) = to
                        && to != group_address()
                    {
                        let (heard, told) = self.ends[at].heard.entry(to).or_default();
                        *told += packet.len();
                        assert!(*told <= 3 * *heard, "{to} sent {heard} bytes and is told {told}");
                    }
                    self.overhear(at, to.ok(), payload);
                }
                ddp::Operation::ReadRequest => {
                    // Who acknowledges a part of one gets the rest of it.
                    if let Ok(request) = ReadRequest::parse(payload) {
                        let end = &mut self.ends[at];
                        (end.numbers[Space::Reads as usize], end.sink) =
                            (number, request.sink_stag);
                    }
                }
                _ => {}
            }
        }
        let (is_reliable, number) = match segment {
            Segment::Tagged(tagged) => (tagged.flags.is_reliable, tagged.number),
            Segment::Untagged(untagged) => (untagged.is_reliable, untagged.number),
        };
        if let (Ok(to), true) = (to, is_reliable) {
            let order = &mut self.lines.entry((at, to)).or_default().order;
            order.entry(number).or_insert_with(|| {
                self.next_in_order += 1;
                self.next_in_order
            });
            self.ends[to].numbers[Space::Reliable as usize] = number;
        }
        let targets: Vec<usize> = match to {
            Ok(to) => vec![to],
            Err(to) if to == group_address() => (0..ENDS).filter(|end| *end != at).collect(),
            Err(_) => Vec::new(),
        };
        for to in targets {
            if self.packets.len() < IN_FLIGHT_MAX {
                self.packets.push((self.now_ns, at, to, packet.clone()));
            }
        }
    }

    /// What somebody learns who hears control from one end to another.
    fn overhear(&mut self, at: usize, to: Option<usize>, payload: &[u8]) {
        for frame in ControlFrames::new(payload) {
            let frame = frame.expect("what is sent can be read");
            match frame {
                ControlFrame::Begin { about, instance, .. } => {
                    if let Some(to) = to {
                        self.ends[to].begin = (about.number, instance);
                    }
                }
                ControlFrame::Acknowledge { record, .. } => {
                    if let Some(to) = to {
                        self.ends[to].record = record;
                    }
                }
                ControlFrame::Ask { token, .. } => self.ends[at].token = token,
                _ => {}
            }
        }
    }

    /// A packet that is on its way arrives, and perhaps stays there for another time.
    pub(crate) fn arrive(&mut self, choice: u64, is_doubled: bool) {
        let now_ns = self.now_ns;
        self.packets.retain(|(left_ns, ..)| left_ns + UNDER_WAY_NS_MAX > now_ns);
        if self.packets.is_empty() {
            return;
        }
        let at = choice as usize % self.packets.len();
        let (_, from, to, packet) = match is_doubled {
            true => self.packets[at].clone(),
            false => self.packets.remove(at),
        };
        self.deliver(to, address(from), &packet);
    }

    pub(crate) fn lose(&mut self, choice: u64) {
        if !self.packets.is_empty() {
            self.packets.remove(choice as usize % self.packets.len());
        }
    }

    pub(crate) fn deliver(&mut self, at: usize, from: SocketAddr, packet: &[u8]) {
        let end = &mut self.ends[at];
        end.heard.entry(from).or_default().0 += packet.len();
        let taken = end.endpoint.stats().packets_taken;
        end.endpoint.on_datagram(self.now_ns, from, packet);
        let memories = end.memories();
        end.check_change(from, at, packet, &memories);
        let stats = end.endpoint.stats();
        if stats.packets_taken > taken {
            end.note(from, packet);
        } else {
            assert!(memories == end.seen, "{from} changed memory by what was refused");
        }
        end.seen = memories;
        assert!(stats.peers <= PEERS_MAX && stats.streams <= STREAMS_MAX, "{stats:?}");
        assert!(end.endpoint.records() <= RECORDS_MAX);
        self.take_done(at);
        let end = &self.ends[at];
        let open = end.endpoint.stats().messages_open - end.reads.len();
        // The message that is next of a stream is always taken.
        let open_max = OPEN.in_all + if self.kind.is_reliable() { STREAMS_MAX } else { 0 };
        assert!(open <= open_max, "{open} messages are open");
        end.check_validity();
    }

    fn take_done(&mut self, at: usize) {
        while let Some(done) = self.ends[at].endpoint.poll_done() {
            if let Some(story) = &mut self.story {
                story.push(format!("{} {at} {done:?}", self.now_ns));
            }
            self.ends[at].on_done(&done, false);
            if self.kind == Kind::ReliableBlind {
                self.check_order(at, &done);
            }
        }
        let end = &mut self.ends[at];
        while let Some(error) = end.endpoint.poll_error() {
            if let Some(story) = &mut self.story {
                story.push(format!("{} {at} {error:?}", self.now_ns));
            }
        }
    }

    /// A reliable message is delivered, or its source learns that it was.
    fn check_order(&mut self, at: usize, done: &Done) {
        match (done.operation, done.arrived.as_deref()) {
            (Operation::Receive | Operation::Record, Some(arrived)) => {
                let Some(from) = (0..ENDS).find(|end| address(*end) == arrived.source) else {
                    return;
                };
                let line = self.lines.entry((from, at)).or_default();
                // Others are a stranger's, who has begun before the peer.
                if let Some(order) = line.order.get(&arrived.number)
                    && arrived.ended == Ended::Whole
                {
                    let last = line.delivered_last;
                    assert!(*order > last, "{order} is delivered after {last}: {done:?}");
                    (line.delivered, line.delivered_last) = (line.delivered + 1, *order);
                }
            }
            (Operation::Send | Operation::WriteRecord, _) if done.status.is_ok() => {
                let line = self.lines.entry((at, other(at))).or_default();
                line.succeeded += 1;
                assert!(line.succeeded <= line.delivered, "{done:?} was not delivered");
            }
            _ => {}
        }
    }

    pub(crate) fn revoke(&mut self, at: usize, choice: usize) {
        let end = &mut self.ends[at];
        if end.live.is_empty() {
            return;
        }
        let key = end.live.remove(choice % end.live.len());
        assert!(end.keys.revoke(key.key));
        end.dead.push(key.key);
    }

    pub(crate) fn register(&mut self, at: usize, choice: u8) {
        if self.ends[at].live.len() < 8 {
            self.ends[at].register(choice, &mut self.rng);
        }
    }

    /// The peer's handle is given back, so it may have to go for others.
    pub(crate) fn forget(&mut self, at: usize) {
        let end = &mut self.ends[at];
        end.endpoint.forget(end.peer);
    }

    /// The peer is held again, perhaps as a new one: then keys of the old one are nobody's.
    pub(crate) fn hold(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let Some(peer) = end.endpoint.peer(address(other(at))) else { return };
        if peer != end.peer {
            end.live.iter().filter(|key| key.is_of_peer).for_each(|key| {
                assert!(end.keys.revoke(key.key));
                end.dead.push(key.key);
            });
            end.live.retain(|key| !key.is_of_peer);
        }
        end.peer = peer;
    }

    /// Lets all end, and closes all. What happened.
    pub(crate) fn end(mut self) -> Vec<String> {
        for step in 0.. {
            assert!(step < STEPS_MAX, "it goes on for ever");
            for at in 0..ENDS {
                self.transmit(at, 8);
                // A reliable Send waits for a receive as long as its peer says that it is there.
                while self.kind.is_reliable() && self.ends[at].posted.len() < RECEIVES_MAX / 2 {
                    self.post_recv(at, 0, MEMORY_BYTES);
                }
            }
            while !self.packets.is_empty() {
                self.arrive(0, false);
            }
            (0..ENDS).for_each(|at| self.on_time(at));
            if self.ends.iter().any(|end| end.endpoint.has_packets()) {
                continue;
            }
            let due = self.ends.iter().filter_map(|end| end.endpoint.poll_timeout()).min();
            let Some(due_ns) = due else { break };
            assert!(due_ns > self.now_ns, "due at {due_ns}, and it is {}", self.now_ns);
            self.now_ns = due_ns;
            (0..ENDS).for_each(|at| self.on_time(at));
        }
        for at in 0..ENDS {
            let end = &mut self.ends[at];
            let stats = end.endpoint.stats();
            assert_eq!((stats.messages_open, stats.messages_waiting), (0, 0), "{stats:?}");
            assert_eq!(end.endpoint.receives(), end.posted.len(), "receives are kept");
            let signaled = end.sends.values().filter(|is_signaled| **is_signaled).count();
            assert_eq!((signaled, end.reads.len()), (0, 0), "all that was posted ended");
            end.endpoint.close();
            while let Some(done) = end.endpoint.poll_done() {
                end.on_done(&done, true);
                if let Some(story) = &mut self.story {
                    story.push(format!("{at} {done:?}"));
                }
            }
            assert!(end.posted.is_empty(), "{:?} never ended", end.posted);
            assert_eq!(end.endpoint.poll_timeout(), None);
        }
        self.story.unwrap_or_default()
    }
}
