//! Write-Records under loss, reordering, duplication, damage and a hostile peer, against an oracle: a map never
//! claims a byte that its message did not write, and nothing is written that should not be.

use lacuna_datagram::{Config, Done, Endpoint, Operation, Run, SendWork, Target, Verb};
use lacuna_link::SplitMix64;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope};
use lacuna_wire::ddp::{RecordFlags, Segment, Tagged};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

const PEERS: usize = 16;
const REGION_BYTES: u64 = 1 << 24;
const MESSAGE_BYTES_MAX: u64 = 20_000;

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 7407))
}

/// Every byte of a message is told by its source, number and place.
fn byte(source: usize, message: u64, at: u64) -> u8 {
    (message.wrapping_mul(0x9e37_79b9) ^ (source as u64) << 5 ^ at.wrapping_mul(31) ^ at >> 7) as u8
}

/// What a completion tells of a message: its source, where it went, and its length.
type Told = (usize, Target, u32);

struct World {
    rng: SplitMix64,
    now_ns: u64,
    target: Endpoint,
    keys: Arc<KeyTable>,
    region: Arc<Region>,
    /// Exclusive ranges of each source, and one that all share.
    own: Vec<u32>,
    shared: u32,
    sources: Vec<Endpoint>,
    /// Where each source goes on in its own memory.
    next: [u64; PEERS],
    /// On their way: from whom, by when, and in the order in which they left.
    packets: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    next_packet: u64,
    sent: HashMap<Told, Vec<u64>>,
    messages: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let keys = Arc::new(KeyTable::new(seed));
        let config = RegionConfig { has_validity: true, is_exclusive: false };
        let region = Region::new(vec![0; REGION_BYTES as usize], config);
        let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
        let half = REGION_BYTES / 2;
        let part = half / PEERS as u64;
        let mut rng = SplitMix64::new(seed);
        let mut register =
            |range| keys.register(&region, range, access, || rng.next_u64() as u32).unwrap();
        let own = (0..PEERS as u64).map(|at| register(at * part..(at + 1) * part)).collect();
        let shared = register(half..REGION_BYTES);
        let target = Endpoint::new(Config::default(), keys.clone(), seed);
        let sources = (0..PEERS)
            .map(|at| {
                let keys = Arc::new(KeyTable::new(at as u64));
                Endpoint::new(Config::default(), keys, seed + 1 + at as u64)
            })
            .collect();
        Self {
            rng: SplitMix64::new(seed),
            now_ns: 1_000_000,
            target,
            keys,
            region,
            own,
            shared,
            sources,
            next: [0; PEERS],
            packets: BTreeMap::new(),
            next_packet: 0,
            sent: HashMap::new(),
            messages: 0,
        }
    }

    fn post(&mut self) {
        let source = self.rng.below(PEERS as u64) as usize;
        let length = 1 + self.rng.below(MESSAGE_BYTES_MAX);
        let (key, room) = match self.rng.below(2) {
            0 => (self.own[source], REGION_BYTES / 2 / PEERS as u64),
            _ => (self.shared, REGION_BYTES / 2),
        };
        let length = length.min(room);
        // In its own memory a source goes round, so that no message overtakes another one that is open.
        let offset = match key == self.shared {
            true => self.rng.below(room - length + 1),
            false if self.next[source] + length > room => 0,
            false => self.next[source],
        };
        if key != self.shared {
            self.next[source] = offset + length;
        }
        let message = self.messages;
        self.messages += 1;
        let data: Vec<u8> = (0..length).map(|at| byte(source, message, at)).collect();
        let to = Target { key, offset };
        let from = &mut self.sources[source];
        let peer = from.peer(address(200)).unwrap();
        let verb = Verb::WriteRecord { data: data.into(), to };
        let work = SendWork {
            id: message,
            to: peer,
            verb,
            is_signaled: false,
            is_solicited: false,
            deadline_ns: None,
        };
        from.post_send(self.now_ns, work).unwrap();
        self.sent.entry((source, to, length as u32)).or_default().push(message);
    }

    /// What sources have leaves, and is lost, doubled, damaged or delayed.
    fn transmit(&mut self) {
        let mut runs: Vec<Run> = Vec::new();
        for source in 0..PEERS {
            while self.sources[source].poll_transmit(self.now_ns, 64, &mut runs).is_some() {
                for run in runs.drain(..) {
                    for at in 0..run.len() {
                        let mut packet = vec![0; run.packet_bytes(at)];
                        let bytes = run.emit(at, &mut packet);
                        packet.truncate(bytes);
                        self.offer(source, packet);
                    }
                }
            }
        }
    }

    fn offer(&mut self, source: usize, mut packet: Vec<u8>) {
        if self.rng.chance(200_000) {
            return;
        }
        let delay_ns = if self.rng.chance(500_000) { self.rng.below(3_000_000) } else { 0 };
        let due_ns = self.now_ns + 100_000 + delay_ns;
        if self.rng.chance(50_000) {
            let later_ns = due_ns + self.rng.below(60_000_000);
            self.push(later_ns, source, packet.clone());
        }
        if self.rng.chance(20_000) {
            let at = self.rng.below(packet.len() as u64) as usize;
            packet[at] ^= 1 << self.rng.below(8);
        }
        self.push(due_ns, source, packet);
    }

    fn push(&mut self, due_ns: u64, source: usize, packet: Vec<u8>) {
        self.packets.insert((due_ns, self.next_packet), (source, packet));
        self.next_packet += 1;
    }

    /// Somebody who knows no key, or uses one wrongly, perhaps under another's address.
    fn attack(&mut self) {
        let payload = vec![0xee; 100];
        let (stag, offset) = match self.rng.below(4) {
            0 => (self.rng.next_u64() as u32, 0),
            // Past the end, and wrapping.
            1 => (self.shared, REGION_BYTES / 2 - 50),
            2 => (self.shared, u64::MAX - 20),
            _ => (self.own[0] ^ 1 << self.rng.below(32), 0),
        };
        let number = self.rng.next_u64() as u32;
        let flags = RecordFlags::default();
        let length = 100;
        let (place, group) = (0, 0);
        let segment = Segment::Tagged(Tagged { stag, offset, number, length, place, flags, group });
        let mut packet = vec![0; segment.packet_bytes(100)];
        segment.emit_packet(&payload, &mut packet);
        let from =
            if self.rng.chance(500_000) { 99 } else { self.rng.below(PEERS as u64) as usize };
        self.push(self.now_ns, from, packet);
    }

    /// Time goes on to the next thing that happens.
    fn step(&mut self) {
        self.now_ns += 50_000 + self.rng.below(200_000);
        let now_ns = self.now_ns;
        while let Some(entry) = self.packets.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let (from, packet) = entry.remove();
            self.target.on_datagram(now_ns, address(from), &packet);
        }
        self.target.on_timeout(now_ns);
    }
}

/// Whether the message of a completion was sent, and its map says no more than what is there for sure: bytes of its
/// own, but where another message was written since.
fn check(world: &World, done: &Done) -> u64 {
    assert_eq!(done.operation, Operation::Record);
    let arrived = done.arrived.as_ref().unwrap();
    let place = arrived.place.unwrap();
    let source = (0..PEERS).find(|at| address(*at) == arrived.source).expect("of a source");
    let sent = world.sent.get(&(source, place, arrived.length));
    let sent = sent.unwrap_or_else(|| panic!("nobody sent {arrived:?}"));
    let (len, start) = (u64::from(arrived.length), place.offset);
    let base = if place.key == world.shared {
        REGION_BYTES / 2
    } else {
        let at = world.own.iter().position(|key| *key == place.key).expect("a key");
        at as u64 * (REGION_BYTES / 2 / PEERS as u64)
    };
    let mut bytes = vec![0; len as usize];
    world.region.read(base + start, &mut bytes).unwrap();
    let covered: u64 = arrived.map.bytes(arrived.length);
    assert_eq!(covered, done.bytes);
    assert!(arrived.map.ranges(arrived.length).all(|range| range.end <= len));
    // Of its own bytes, in memory that no other source writes, what the map claims is there right now.
    if place.key != world.shared {
        let is_there = |message: &u64| {
            arrived.map.ranges(arrived.length).all(|range| {
                range.clone().all(|at| bytes[at as usize] == byte(source, *message, at))
            })
        };
        assert!(sent.iter().any(is_there), "{arrived:?}");
    }
    covered
}

fn run(seed: u64, messages: u64) -> (u64, u64) {
    let mut world = World::new(seed);
    let (mut whole, mut partial) = (0, 0);
    while world.messages < messages {
        world.post();
        if world.rng.chance(200_000) {
            world.attack();
        }
        world.transmit();
        world.step();
        while let Some(done) = world.target.poll_done() {
            let covered = check(&world, &done);
            match covered == u64::from(done.arrived.unwrap().length) {
                true => whole += 1,
                false => partial += 1,
            }
        }
        while world.target.poll_error().is_some() {}
    }
    // Nothing is written once keys are revoked, though packets are on their way.
    for key in world.own.iter().chain([&world.shared]) {
        world.keys.revoke(*key);
    }
    let mut before = vec![0; REGION_BYTES as usize];
    world.region.read(0, &mut before).unwrap();
    for _ in 0..2_000 {
        world.step();
    }
    let mut after = vec![0; REGION_BYTES as usize];
    world.region.read(0, &mut after).unwrap();
    assert!(before == after);
    let stats = world.target.stats();
    assert_eq!(stats.messages_open, 0, "every record is over: {stats:?}");
    (whole, partial)
}

#[test]
fn maps_never_claim_what_their_message_did_not_write() {
    let (whole, partial) = run(1, 5_000);
    assert!(whole > 500 && partial > 500, "{whole} whole, {partial} partial");
}

/// The same for longer.
#[test]
fn a_hundred_thousand_write_records() {
    for seed in 0..10 {
        let (whole, partial) = run(seed, 10_000);
        assert!(whole > 1_000 && partial > 1_000);
    }
}
