//! Two datagram queue pairs, their memory, and the books that tell what each packet may do.
//!
//! Held after every packet: memory changed only within the packet's own place, under a key that is live, of a posted
//! receive or an open READ, and to the packet's bytes; only of a packet that was taken; a granule is valid only
//! if all of it was written; a completion's map has no byte that no packet of its message brought.
//! Held at the end: every work request ended once, nothing is open, no time is due for ever, and nobody
//! was told more bytes about errors than it had sent.

use lacuna_datagram::{
    Arrived, Config, Done, Endpoint, OpenLimits, Operation, PeerId, RecvWork, Run, SendWork,
    Target, Verb,
};
use lacuna_link::SplitMix64;
use lacuna_path::ranges::Ranges;
use lacuna_place::region::{
    Access, GRANULE_BYTES, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride,
};
use lacuna_wire::ddp::{self, ReadRequest, Segment, Space, Tagged, Untagged};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of each memory of an end.
pub(crate) const MEMORY_BYTES: u64 = 2048;
/// A window of the memory, under a key of its own.
const WINDOW: Range<u64> = 500..1500;
const PACKET_BYTES_MAX: usize = 128;
const PEERS_MAX: usize = 4;
const OPEN: OpenLimits = OpenLimits { of_source: 3, in_all: 5 };
const RECEIVES_MAX: usize = 16;
const IN_FLIGHT_MAX: usize = 512;
/// Steps in which all must end once nothing is posted any more.
const STEPS_MAX: usize = 10_000;

pub(crate) fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8], 7407))
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
    /// Work requests that have not ended.
    sends: BTreeMap<u64, bool>,
    posted: BTreeMap<u64, Range<u64>>,
    reads: BTreeMap<u64, Range<u64>>,
    /// Bytes of `memory` that packets wrote.
    written: Ranges,
    came: HashMap<Message, Ranges>,
    /// The last number that a good packet had, by space; of READs the last that was asked, and its sink.
    numbers: [u32; 3],
    sink: u32,
    /// Of each source: bytes that came, and bytes of control to it.
    heard: HashMap<SocketAddr, (usize, usize)>,
}

pub(crate) struct World {
    now_ns: u64,
    ends: [End; 2],
    packets: Vec<(usize, Vec<u8>)>,
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
        let config = Config {
            packet_bytes_max: PACKET_BYTES_MAX,
            rate_bits_per_s: (settings & 1 != 0).then_some(10_000_000),
            peers_max: PEERS_MAX,
            open: OPEN,
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(config, keys.clone(), at as u64);
        let peer = endpoint.peer(address(1 - at)).expect("the first one");
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
            sends: BTreeMap::new(),
            posted: BTreeMap::new(),
            reads: BTreeMap::new(),
            written: Ranges::default(),
            came: HashMap::new(),
            numbers: [0; 3],
            sink: 0,
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
                    self.live.iter().any(|Key { key, range, is_of_peer }| {
                        let start = range.start.saturating_add(tagged.offset);
                        *key == tagged.stag
                            && start.saturating_add(payload.len() as u64) <= range.end
                            && (!is_of_peer || from == address(1 - at))
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
                        from == address(1 - at)
                            && start + payload.len() as u64 <= range.end
                            && is_of(&changed, after, start, payload)
                    })
                }
                _ => false,
            };
            assert!(is_allowed, "memory {which} changed at {changed:?} by {segment:?} of {from}");
        }
    }

    fn memories(&self) -> [Vec<u8>; 3] {
        [&self.memory, &self.receives, &self.sinks].map(|region| bytes_of(region))
    }

    /// A packet was taken: notes what its message has now.
    fn note(&mut self, from: SocketAddr, packet: &[u8]) {
        let Ok((segment, payload)) = ddp::parse(packet) else { return };
        let bytes = payload.len() as u64;
        let (message, place) = match segment {
            Segment::Tagged(Tagged { stag, offset, number, length, place, flags }) => {
                if flags.is_answer {
                    return;
                }
                self.numbers[Space::Records as usize] = number;
                if let Some(key) = self.live.iter().find(|key| key.key == stag) {
                    let start = key.range.start + offset;
                    self.written.add(start..start + bytes);
                }
                let base = offset.wrapping_sub(place.into());
                ((from, number, length, Some((stag, base))), place)
            }
            Segment::Untagged(Untagged { operation, number, length, place }) => {
                if operation.queue() != Some(ddp::Queue::Sends) {
                    return;
                }
                self.numbers[Space::Sends as usize] = number;
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
        let mut ends = [0, 1].map(|at| End::new(at, settings));
        for end in &mut ends {
            // All rights to all, and a window that the peer alone may write.
            [0x00, 0x31].into_iter().for_each(|choice| end.register(choice, &mut rng));
        }
        let (packets, story) = (Vec::new(), is_told.then(Vec::new));
        Self { now_ns: 1_000_000_000, ends, packets, next_id: 0, rng, story }
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

    pub(crate) fn post(&mut self, at: usize, verb: Verb, is_unsignaled: bool) {
        let work = self.send_work(at, verb, !is_unsignaled);
        let (id, now_ns) = (work.id, self.now_ns);
        let end = &mut self.ends[at];
        if end.endpoint.post_send(now_ns, work).is_ok() {
            end.sends.insert(id, !is_unsignaled);
        }
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
        }
    }

    pub(crate) fn post_recv(&mut self, at: usize, start: u64, bytes: u64) {
        let range = start..(start + bytes).min(MEMORY_BYTES);
        let id = self.id();
        let end = &mut self.ends[at];
        let into = slice(&end.receives, &range);
        if end.posted.len() < RECEIVES_MAX && end.endpoint.post_recv(RecvWork { id, into }).is_ok()
        {
            end.posted.insert(id, range);
        }
    }

    pub(crate) fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        (0..2).for_each(|at| self.on_time(at));
    }

    fn on_time(&mut self, at: usize) {
        self.ends[at].endpoint.on_timeout(self.now_ns);
        self.take_done(at);
    }

    /// Everything that may leave now is on its way.
    pub(crate) fn transmit(&mut self, at: usize, packets_max: usize) {
        let mut runs: Vec<Run> = Vec::new();
        while let Some(to) =
            self.ends[at].endpoint.poll_transmit(self.now_ns, packets_max, &mut runs)
        {
            let count = runs.iter().map(Run::len).sum::<usize>();
            assert!((1..=packets_max).contains(&count), "{count} packets of {packets_max}");
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
        let end = &mut self.ends[at];
        match segment {
            Segment::Untagged(Untagged { operation: ddp::Operation::Control, .. }) => {
                let (heard, told) = end.heard.entry(to).or_default();
                *told += packet.len();
                assert!(told <= heard, "{to} sent {heard} bytes and is told {told}");
            }
            Segment::Untagged(Untagged {
                operation: ddp::Operation::ReadRequest, number, ..
            }) => {
                let request = ReadRequest::parse(payload).expect("what is asked is a request");
                (end.numbers[Space::Reads as usize], end.sink) = (number, request.sink_stag);
            }
            _ => {}
        }
        if let Some(to) = (0..2).find(|end| address(*end) == to)
            && self.packets.len() < IN_FLIGHT_MAX
        {
            self.packets.push((to, packet));
        }
    }

    /// A packet that is on its way arrives, and perhaps stays there for another time.
    pub(crate) fn arrive(&mut self, choice: u64, is_doubled: bool) {
        if self.packets.is_empty() {
            return;
        }
        let at = choice as usize % self.packets.len();
        let (to, packet) = match is_doubled {
            true => self.packets[at].clone(),
            false => self.packets.remove(at),
        };
        self.deliver(to, address(1 - to), &packet);
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
        assert!(stats.peers <= PEERS_MAX);
        self.take_done(at);
        let end = &self.ends[at];
        let open = end.endpoint.stats().messages_open - end.reads.len();
        assert!(open <= OPEN.in_all, "{open} messages are open");
        end.check_validity();
    }

    fn take_done(&mut self, at: usize) {
        let end = &mut self.ends[at];
        while let Some(done) = end.endpoint.poll_done() {
            end.on_done(&done, false);
            if let Some(story) = &mut self.story {
                story.push(format!("{} {at} {done:?}", self.now_ns));
            }
        }
        while let Some(error) = end.endpoint.poll_error() {
            if let Some(story) = &mut self.story {
                story.push(format!("{} {at} {error:?}", self.now_ns));
            }
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
        let Some(peer) = end.endpoint.peer(address(1 - at)) else { return };
        if peer != end.peer {
            end.live.iter().filter(|key| key.is_of_peer).for_each(|key| {
                assert!(end.keys.revoke(key.key));
                end.dead.push(key.key);
            });
            end.live.retain(|key| !key.is_of_peer);
        }
        end.peer = peer;
    }

    /// Lets all end, and closes both. What happened.
    pub(crate) fn end(mut self) -> Vec<String> {
        for step in 0.. {
            assert!(step < STEPS_MAX, "it goes on for ever");
            (0..2).for_each(|at| self.transmit(at, 8));
            while !self.packets.is_empty() {
                self.arrive(0, false);
            }
            (0..2).for_each(|at| self.on_time(at));
            if self.ends.iter().any(|end| end.endpoint.has_packets()) {
                continue;
            }
            let due = self.ends.iter().filter_map(|end| end.endpoint.poll_timeout()).min();
            let Some(due_ns) = due else { break };
            assert!(due_ns > self.now_ns, "due at {due_ns}, and it is {}", self.now_ns);
            self.now_ns = due_ns;
            (0..2).for_each(|at| self.on_time(at));
        }
        for at in 0..2 {
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
