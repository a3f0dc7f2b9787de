//! Reliable datagrams against an oracle: under loss, reordering, duplication and damage every message comes once, in
//! the order of its source, and as it was sent; a peer that is gone concerns nobody else.

use lacuna_datagram::{
    Config, Done, Endpoint, Failure, Operation, PeerId, PostError, RecvWork, ReliableConfig, Run,
    SendWork, Target, Verb,
};
use lacuna_link::SplitMix64;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride};
use lacuna_wire::ddp::{self, About, ControlFrame, Segment, Space, Untagged, emit_control};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

const BUFFER_BYTES: u64 = 20_000;
/// Receives are the first part of a host's memory, then comes a part for each host that writes there.
const RECEIVES: u64 = 8;
const PART_BYTES: u64 = 1 << 20;

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 7407))
}

fn byte(of: u64, at: u64) -> u8 {
    (of.wrapping_mul(0x9e37_79b9) ^ at.wrapping_mul(31) ^ at >> 7) as u8
}

fn pattern(of: u64, length: u64) -> Vec<u8> {
    (0..length).map(|at| byte(of, at)).collect()
}

/// What the target of a message is to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Expected {
    message: u64,
    operation: Operation,
    length: u64,
    offset: u64,
}

struct Host {
    endpoint: Endpoint,
    region: Arc<Region>,
    key: u32,
    peers: Vec<PeerId>,
    is_dead: bool,
    /// What it is to see of each other host, and to complete of what it posted.
    expected: Vec<VecDeque<Expected>>,
    posted: Vec<VecDeque<u64>>,
    /// Where it writes next at each other host.
    next: Vec<u64>,
}

struct Net {
    loss_ppm: u32,
    late_ppm: u32,
}

struct World {
    rng: SplitMix64,
    net: Net,
    now_ns: u64,
    hosts: Vec<Host>,
    packets: Vec<(u64, usize, usize, Vec<u8>)>,
    messages: u64,
    delivered: u64,
}

fn slices(region: &Arc<Region>, range: std::ops::Range<u64>) -> Slices {
    Slices::new([(region.clone(), Stride::of_range(range))]).unwrap()
}

impl World {
    fn new(seed: u64, hosts: usize, net: Net, reliable: ReliableConfig) -> Self {
        let all: Vec<Host> = (0..hosts)
            .map(|at| {
                let keys = Arc::new(KeyTable::new(seed + at as u64));
                let bytes = RECEIVES * BUFFER_BYTES + hosts as u64 * PART_BYTES;
                let config = RegionConfig { has_validity: false, is_exclusive: false };
                let region = Region::new(vec![0; bytes as usize], config);
                let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
                let access = Access { rights, scope: Scope::Any };
                let key = keys.register(&region, 0..bytes, access, || 77 + at as u32).unwrap();
                let config = Config { reliable: Some(reliable), ..Config::default() };
                let mut endpoint = Endpoint::new(config, keys, seed * 100 + at as u64);
                let peers = (0..hosts).map(|to| endpoint.peer(address(to)).unwrap()).collect();
                for id in 0..RECEIVES {
                    let into = slices(&region, id * BUFFER_BYTES..(id + 1) * BUFFER_BYTES);
                    endpoint.post_recv(0, RecvWork { id, into }).unwrap();
                }
                Host {
                    endpoint,
                    region,
                    key,
                    peers,
                    is_dead: false,
                    expected: vec![VecDeque::new(); hosts],
                    posted: vec![VecDeque::new(); hosts],
                    next: vec![0; hosts],
                }
            })
            .collect();
        Self {
            rng: SplitMix64::new(seed),
            net,
            now_ns: 1_000_000,
            hosts: all,
            packets: Vec::new(),
            messages: 0,
            delivered: 0,
        }
    }

    fn post(&mut self) {
        let hosts = self.hosts.len() as u64;
        let from = self.rng.below(hosts) as usize;
        let to = (from + 1 + self.rng.below(hosts - 1) as usize) % hosts as usize;
        let message = self.messages;
        let length = match self.rng.below(3) {
            0 => self.rng.below(64),
            1 => self.rng.below(3_000),
            _ => self.rng.below(BUFFER_BYTES + 1),
        };
        let data = pattern(message, length);
        let (verb, expected) = if self.rng.chance(500_000) {
            let operation = Operation::Receive;
            (Verb::Send { data: data.into() }, Expected { message, operation, length, offset: 0 })
        } else {
            let next = &mut self.hosts[from].next[to];
            if *next + length > PART_BYTES {
                *next = 0;
            }
            let offset = RECEIVES * BUFFER_BYTES + from as u64 * PART_BYTES + *next;
            *next += length;
            let verb = Verb::WriteRecord {
                data: data.into(),
                to: Target { key: self.hosts[to].key, offset },
            };
            (verb, Expected { message, operation: Operation::Record, length, offset })
        };
        self.messages += 1;
        let host = &mut self.hosts[from];
        host.endpoint.post_send(self.now_ns, SendWork::new(message, host.peers[to], verb)).unwrap();
        host.posted[to].push_back(message);
        self.hosts[to].expected[from].push_back(expected);
    }

    fn transmit(&mut self) {
        let mut runs: Vec<Run> = Vec::new();
        for from in 0..self.hosts.len() {
            while let Some(to) = self.hosts[from].endpoint.poll_transmit(self.now_ns, 64, &mut runs)
            {
                let to = (0..self.hosts.len()).find(|at| address(*at) == to);
                for run in runs.drain(..) {
                    for at in 0..run.len() {
                        let mut packet = vec![0; run.packet_bytes(at)];
                        let bytes = run.emit(at, &mut packet);
                        packet.truncate(bytes);
                        if let Some(to) = to {
                            self.offer(from, to, packet);
                        }
                    }
                }
            }
        }
    }

    fn offer(&mut self, from: usize, to: usize, mut packet: Vec<u8>) {
        let is_dead = self.hosts[from].is_dead || self.hosts[to].is_dead;
        if is_dead || self.rng.chance(self.net.loss_ppm) {
            return;
        }
        let is_late = self.rng.chance(self.net.late_ppm);
        let due_ns = self.now_ns + 500_000 + if is_late { self.rng.below(2_000_000) } else { 0 };
        if self.rng.chance(self.net.loss_ppm / 2) {
            self.packets.push((due_ns + self.rng.below(40_000_000), from, to, packet.clone()));
        }
        if self.rng.chance(self.net.loss_ppm / 10) {
            let at = self.rng.below(packet.len() as u64) as usize;
            packet[at] ^= 1 << self.rng.below(8);
        }
        self.packets.push((due_ns, from, to, packet));
    }

    fn step(&mut self) {
        self.transmit();
        self.now_ns += 50_000 + self.rng.below(100_000);
        let now_ns = self.now_ns;
        self.packets.sort_by_key(|(due_ns, ..)| *due_ns);
        let due = self.packets.partition_point(|(due_ns, ..)| *due_ns <= now_ns);
        for (_, from, to, packet) in self.packets.drain(..due) {
            self.hosts[to].endpoint.on_datagram(now_ns, address(from), &packet);
        }
        for at in 0..self.hosts.len() {
            self.hosts[at].endpoint.on_timeout(now_ns);
            while let Some(done) = self.hosts[at].endpoint.poll_done() {
                self.on_done(at, &done);
            }
        }
    }

    fn on_done(&mut self, at: usize, done: &Done) {
        let host = &mut self.hosts[at];
        let other = host.peers.iter().position(|peer| *peer == done.peer).expect("a peer");
        match done.operation {
            Operation::Receive | Operation::Record => {
                let arrived = done.arrived.as_ref().unwrap();
                assert_eq!(arrived.source, address(other));
                let expected = host.expected[other].pop_front().expect("nothing comes twice");
                assert_eq!(
                    (expected.operation, expected.length),
                    (done.operation, done.bytes),
                    "of {other} at {at}"
                );
                let start = match done.operation {
                    Operation::Receive => done.id * BUFFER_BYTES,
                    _ => expected.offset,
                };
                let mut bytes = vec![0; expected.length as usize];
                host.region.read(start, &mut bytes).unwrap();
                assert!(bytes == pattern(expected.message, expected.length), "{expected:?}");
                self.delivered += 1;
                if done.operation == Operation::Receive {
                    let (id, start) = (done.id, done.id * BUFFER_BYTES);
                    let into = slices(&host.region, start..start + BUFFER_BYTES);
                    host.endpoint.post_recv(self.now_ns, RecvWork { id, into }).unwrap();
                }
            }
            _ => {
                assert_eq!(done.status, Ok(()), "{done:?}");
                assert_eq!(host.posted[other].pop_front(), Some(done.id));
            }
        }
    }

    fn is_over(&self) -> bool {
        self.hosts.iter().all(|host| {
            host.expected.iter().all(VecDeque::is_empty)
                && host.posted.iter().all(VecDeque::is_empty)
        })
    }
}

fn run(seed: u64, messages: u64, net: Net) -> World {
    let mut world = World::new(seed, 4, net, ReliableConfig::default());
    while world.messages < messages {
        world.post();
        if world.rng.chance(300_000) {
            world.step();
        }
    }
    for _ in 0..400_000 {
        if world.is_over() {
            assert_eq!(world.delivered, messages);
            return world;
        }
        world.step();
    }
    let stats: Vec<_> = world.hosts.iter().map(|host| host.endpoint.stats()).collect();
    panic!("{} of {messages} came: {stats:#?}", world.delivered);
}

#[test]
fn every_message_comes_once_and_in_order() {
    run(1, 2_000, Net { loss_ppm: 0, late_ppm: 0 });
    run(2, 2_000, Net { loss_ppm: 50_000, late_ppm: 0 });
    run(3, 2_000, Net { loss_ppm: 50_000, late_ppm: 500_000 });
    run(4, 500, Net { loss_ppm: 300_000, late_ppm: 500_000 });
}

#[test]
#[ignore = "half a minute; .ci/long runs it"]
fn every_message_comes_once_and_in_order_for_longer() {
    for seed in 0..50 {
        run(seed, 4_000, Net { loss_ppm: 50_000, late_ppm: 500_000 });
        run(seed + 100, 4_000, Net { loss_ppm: 200_000, late_ppm: 100_000 });
    }
}

#[test]
fn without_loss_nothing_is_sent_again() {
    let world = run(5, 3_000, Net { loss_ppm: 0, late_ppm: 0 });
    let again: u64 = world.hosts.iter().map(|host| host.endpoint.stats().bytes_again).sum();
    // Some come before a receive is posted.
    let sent: u64 = world.hosts.iter().map(|host| host.endpoint.stats().bytes_taken).sum();
    assert!(again < sent / 10, "{again} of {sent}");
}

#[test]
fn a_peer_that_is_gone_concerns_nobody_else_and_is_in_error_until_it_is_reset() {
    let reliable = ReliableConfig { silence_ns: 300_000_000, ..ReliableConfig::default() };
    let net = Net { loss_ppm: 50_000, late_ppm: 0 };
    let mut world = World::new(17, 3, net, reliable);
    for _ in 0..200 {
        world.post();
    }
    while !world.is_over() {
        world.step();
    }
    world.hosts[2].is_dead = true;
    let deadline_ns = world.now_ns + 50_000_000;
    let to_dead = world.hosts[0].peers[2];
    let data = || pattern(1, 5_000);
    let work = SendWork::new(9_000, to_dead, Verb::Send { data: data().into() });
    let bounded = SendWork { deadline_ns: Some(deadline_ns), ..work.clone() };
    let host = &mut world.hosts[0].endpoint;
    host.post_send(world.now_ns, bounded).unwrap();
    host.post_send(world.now_ns, SendWork { id: 9_001, ..work.clone() }).unwrap();
    // One ends by its deadline, the other when the peer was silent for too long.
    let mut ends = Vec::new();
    let begin_ns = world.now_ns;
    let mut others = 0;
    while ends.len() < 2 && world.now_ns < begin_ns + 2_000_000_000 {
        // The others go on.
        if others < 100 {
            let message = world.messages;
            world.messages += 1;
            others += 1;
            let verb = Verb::Send { data: pattern(message, 2_000).into() };
            let host = &mut world.hosts[0];
            host.endpoint
                .post_send(world.now_ns, SendWork::new(message, host.peers[1], verb))
                .unwrap();
            host.posted[1].push_back(message);
            let operation = Operation::Receive;
            let expected = Expected { message, operation, length: 2_000, offset: 0 };
            world.hosts[1].expected[0].push_back(expected);
        }
        world.transmit();
        world.now_ns += 100_000;
        let now_ns = world.now_ns;
        let packets = std::mem::take(&mut world.packets);
        for (_, from, to, packet) in packets {
            world.hosts[to].endpoint.on_datagram(now_ns, address(from), &packet);
        }
        for at in 0..2 {
            world.hosts[at].endpoint.on_timeout(now_ns);
            while let Some(done) = world.hosts[at].endpoint.poll_done() {
                if done.id >= 9_000 {
                    ends.push((done.id, done.status, now_ns - begin_ns));
                } else {
                    world.on_done(at, &done);
                }
            }
        }
    }
    let (deadline, silent) = (Err(Failure::Deadline), Err(Failure::Unreachable));
    assert_eq!(
        ends.iter().map(|end| (end.0, end.1)).collect::<Vec<_>>(),
        [(9_000, deadline), (9_001, silent)]
    );
    assert!(ends[0].2 <= 50_200_000 && ends[1].2 <= 300_200_000, "{ends:?}");
    let host = &mut world.hosts[0].endpoint;
    let refused = host.post_send(world.now_ns, work.clone());
    assert_eq!(refused, Err(PostError::Failed(Failure::Unreachable)));
    assert_eq!(host.stats().peers_failed, 1);
    while !world.is_over() {
        world.step();
    }
    // It is back, and knows nothing of before.
    world.hosts[2].is_dead = false;
    world.hosts[0].endpoint.reset(to_dead);
    let message = 10_000;
    let work = SendWork { id: message, ..work };
    world.hosts[0].endpoint.post_send(world.now_ns, work).unwrap();
    world.hosts[0].posted[2].push_back(message);
    let expected = Expected { message: 1, operation: Operation::Receive, length: 5_000, offset: 0 };
    world.hosts[2].expected[0].push_back(expected);
    while !world.is_over() {
        world.step();
    }
}

#[test]
fn a_source_that_begins_anew_is_taken_and_a_target_that_did_is_an_error() {
    let net = || Net { loss_ppm: 50_000, late_ppm: 0 };
    let fixed = ControllerConfig::Fixed { rate_bits_per_s: 1_000_000_000 };
    let reliable = ReliableConfig { controller: fixed, ..ReliableConfig::default() };
    let mut world = World::new(8, 2, net(), reliable);
    for _ in 0..50 {
        world.post();
    }
    while !world.is_over() {
        world.step();
    }
    // Host 0 is another program now.
    let mut fresh = World::new(9, 2, net(), reliable);
    std::mem::swap(&mut world.hosts[0], &mut fresh.hosts[0]);
    let message = world.messages;
    let verb = Verb::Send { data: pattern(message, 3_000).into() };
    let host = &mut world.hosts[0];
    let now_ns = world.now_ns;
    host.endpoint.post_send(now_ns, SendWork::new(message, host.peers[1], verb)).unwrap();
    host.posted[1].push_back(message);
    let operation = Operation::Receive;
    let expected = Expected { message, operation, length: 3_000, offset: 0 };
    world.hosts[1].expected[0].push_back(expected);
    while !world.is_over() {
        world.step();
    }
    // What host 1 sends by the stream of before was known to the old program alone.
    let host = &mut world.hosts[1];
    let verb = Verb::Send { data: pattern(0, 100).into() };
    host.endpoint.post_send(world.now_ns, SendWork::new(77, host.peers[0], verb)).unwrap();
    for _ in 0..100_000 {
        world.transmit();
        world.now_ns += 100_000;
        let now_ns = world.now_ns;
        for (_, from, to, packet) in std::mem::take(&mut world.packets) {
            world.hosts[to].endpoint.on_datagram(now_ns, address(from), &packet);
        }
        for host in &mut world.hosts {
            host.endpoint.on_timeout(now_ns);
        }
        if let Some(done) = world.hosts[1].endpoint.poll_done() {
            assert_eq!((done.id, done.status), (77, Err(Failure::Restarted)));
            return;
        }
        assert!(world.hosts[0].endpoint.poll_done().is_none(), "nothing is delivered");
    }
    panic!("it never ended");
}

#[test]
fn forged_beginnings_leave_half_of_the_streams_to_sources_that_are_there() {
    let reliable = ReliableConfig { streams_max: 40, ..ReliableConfig::default() };
    let net = Net { loss_ppm: 0, late_ppm: 0 };
    let mut world = World::new(12, 3, net, reliable);
    for host in 0..200u8 {
        let about = About { space: Space::Reliable, number: 7 };
        let mut frames = Vec::new();
        emit_control(&ControlFrame::Begin { about, instance: 5, token: 0 }, &mut frames);
        let header = Untagged {
            operation: ddp::Operation::Control,
            is_reliable: false,
            group: 0,
            number: 0,
            length: frames.len() as u32,
            place: 0,
        };
        let segment = Segment::Untagged(header);
        let mut packet = vec![0; segment.packet_bytes(frames.len())];
        segment.emit_packet(&frames, &mut packet);
        let from = SocketAddr::from(([10, 9, 9, host], 7407));
        world.hosts[1].endpoint.on_datagram(world.now_ns, from, &packet);
    }
    assert_eq!(world.hosts[1].endpoint.stats().streams, 20);
    for _ in 0..60 {
        world.post();
    }
    while !world.is_over() {
        world.step();
    }
}

#[test]
fn reads_come_reliably_and_in_order_and_say_why_not() {
    let net = Net { loss_ppm: 100_000, late_ppm: 300_000 };
    let mut world = World::new(10, 2, net, ReliableConfig::default());
    let start = RECEIVES * BUFFER_BYTES;
    let key = world.hosts[1].key;
    let peer = world.hosts[0].peers[1];
    // A read behind a write sees it.
    let data = pattern(5, 50_000);
    let to = Target { key, offset: start };
    let into = slices(&world.hosts[0].region, start..start + 50_000);
    let now_ns = world.now_ns;
    let host = &mut world.hosts[0].endpoint;
    let works = [
        Verb::WriteRecord { data: data.clone().into(), to },
        Verb::Read { into: into.clone(), from: to },
        Verb::Read { into: into.clone(), from: Target { key: key ^ 1, offset: 0 } },
        Verb::Read { into: into.clone(), from: Target { key, offset: u64::MAX - 7 } },
        Verb::WriteRecord { data: data.clone().into(), to: Target { key: key ^ 1, offset: 0 } },
        Verb::WriteRecord { data: vec![1; 10].into(), to: Target { key, offset: 1 << 40 } },
        Verb::Send { data: vec![1; BUFFER_BYTES as usize + 1].into() },
        Verb::Send { data: vec![3; 10].into() },
    ];
    for (id, verb) in works.into_iter().enumerate() {
        host.post_send(now_ns, SendWork::new(id as u64, peer, verb)).unwrap();
    }
    let mut ends = vec![None; 8];
    let mut received = 0;
    for _ in 0..100_000 {
        world.transmit();
        world.now_ns += 100_000;
        let now_ns = world.now_ns;
        let due = world.packets.len();
        for (_, from, to, packet) in world.packets.drain(..due).collect::<Vec<_>>() {
            world.hosts[to].endpoint.on_datagram(now_ns, address(from), &packet);
        }
        for host in &mut world.hosts {
            host.endpoint.on_timeout(now_ns);
        }
        while let Some(done) = world.hosts[0].endpoint.poll_done() {
            assert_eq!(ends[done.id as usize].replace(done.status), None);
        }
        while let Some(done) = world.hosts[1].endpoint.poll_done() {
            received += u64::from(done.operation == Operation::Receive);
        }
        if ends.iter().all(Option::is_some) {
            break;
        }
    }
    use lacuna_wire::ddp::ControlReason::{Bounds, Key, NoBuffer};
    let refused = |reason| Some(Err(Failure::Peer(reason)));
    assert_eq!(
        ends,
        [
            Some(Ok(())),
            Some(Ok(())),
            refused(Key),
            refused(Bounds),
            refused(Key),
            refused(Bounds),
            refused(NoBuffer),
            Some(Ok(()))
        ]
    );
    assert_eq!(received, 1);
    let mut bytes = vec![0; 50_000];
    world.hosts[0].region.read(start, &mut bytes).unwrap();
    assert!(bytes == data);
}

#[test]
fn messages_wait_for_receives_without_being_sent_all_the_time() {
    let net = Net { loss_ppm: 0, late_ppm: 0 };
    let mut world = World::new(11, 2, net, ReliableConfig::default());
    let peer = world.hosts[0].peers[1];
    let now_ns = world.now_ns;
    for id in 0..RECEIVES + 20 {
        let verb = Verb::Send { data: pattern(id, 10_000).into() };
        world.hosts[0].endpoint.post_send(now_ns, SendWork::new(id, peer, verb)).unwrap();
    }
    let mut received = Vec::new();
    let run = |world: &mut World, received: &mut Vec<u64>, steps: usize| {
        for _ in 0..steps {
            world.transmit();
            world.now_ns += 100_000;
            let now_ns = world.now_ns;
            for (_, from, to, packet) in std::mem::take(&mut world.packets) {
                world.hosts[to].endpoint.on_datagram(now_ns, address(from), &packet);
            }
            for host in &mut world.hosts {
                host.endpoint.on_timeout(now_ns);
            }
            while let Some(done) = world.hosts[1].endpoint.poll_done() {
                received.push(done.id);
            }
        }
    };
    run(&mut world, &mut received, 30_000);
    assert_eq!(received.len() as u64, RECEIVES);
    let again = world.hosts[0].endpoint.stats().bytes_again;
    assert!(again < 100 * 20 * 10_000, "{again} bytes in three seconds");
    // It goes on at once.
    for id in 0..20 {
        let place = id % RECEIVES * BUFFER_BYTES;
        let into = slices(&world.hosts[1].region, place..place + BUFFER_BYTES);
        let now_ns = world.now_ns;
        world.hosts[1].endpoint.post_recv(now_ns, RecvWork { id, into }).unwrap();
        run(&mut world, &mut received, 50);
    }
    run(&mut world, &mut received, 100);
    assert_eq!(received.len() as u64, RECEIVES + 20);
}

#[test]
fn a_read_without_a_deadline_ends_when_the_peer_that_took_it_is_gone() {
    for is_gone in [true, false] {
        let net = Net { loss_ppm: 0, late_ppm: 0 };
        let mut world = World::new(12, 2, net, ReliableConfig::default());
        let (key, peer) = (world.hosts[1].key, world.hosts[0].peers[1]);
        let start = RECEIVES * BUFFER_BYTES;
        let into = slices(&world.hosts[0].region, start..start + 1000);
        let verb = Verb::Read { into, from: Target { key, offset: start } };
        world.hosts[0].endpoint.post_send(0, SendWork::new(1, peer, verb)).unwrap();
        let is_answer = |packet: &[u8]| {
            matches!(
                lacuna_wire::ddp::parse(packet),
                Ok((lacuna_wire::ddp::Segment::Tagged(tagged), _)) if tagged.flags.is_answer
            )
        };
        // The request is acknowledged; the answer is never made, or late.
        let (mut held, mut end) = (Vec::new(), None);
        for _ in 0..400 {
            world.transmit();
            world.now_ns += 100_000_000;
            let now_ns = world.now_ns;
            for (_, from, to, packet) in std::mem::take(&mut world.packets) {
                if is_answer(&packet) {
                    held.push((from, to, packet));
                } else if !is_gone || held.is_empty() {
                    world.hosts[to].endpoint.on_datagram(now_ns, address(from), &packet);
                }
            }
            if !is_gone && now_ns > 3_000_000_000 {
                for (from, to, packet) in held.drain(..) {
                    world.hosts[to].endpoint.on_datagram(now_ns, address(from), &packet);
                }
            }
            for host in &mut world.hosts {
                host.endpoint.on_timeout(now_ns);
            }
            end = end.or(world.hosts[0].endpoint.poll_done());
        }
        let expected = if is_gone { Err(Failure::Unreachable) } else { Ok(()) };
        assert_eq!(end.map(|done| done.status), Some(expected));
    }
}
