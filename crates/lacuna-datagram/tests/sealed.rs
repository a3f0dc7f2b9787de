//! Sealed queue pairs against each other with a fake clock: what waits for keys, what never gets any, and what comes.

use lacuna_datagram::{
    Config, Done, Endpoint, Failure, Operation, PeerId, RecvWork, ReliableConfig, Run, SendWork,
    Target, Verb,
};
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride};
use lacuna_secure::datagram::{Keyring, KeyringConfig, Limits};
use lacuna_secure::{Cipher, Secret};
use std::net::SocketAddr;
use std::sync::Arc;

const MS: u64 = 1_000_000;
const BYTES: u64 = 100_000;

fn address(of: usize) -> SocketAddr {
    ([10, 0, 0, of as u8 + 1], 7407).into()
}

struct Host {
    endpoint: Endpoint,
    region: Arc<Region>,
    key: u32,
    done: Vec<Done>,
}

impl Host {
    fn new(config: Config, secret: u8, seed: u8) -> Self {
        let cipher = Cipher::Aes128Gcm;
        let of_keys = KeyringConfig { cipher, limits: Limits::of(cipher), peers_max: 100 };
        let keyring = Keyring::new(of_keys, Secret::new([secret; 32]), Secret::new([seed; 32]), 0);
        let keys = Arc::new(KeyTable::new(seed.into()));
        let has_validity = RegionConfig { has_validity: true, is_exclusive: false };
        let region = Region::new(vec![0; BYTES as usize], has_validity);
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let access = Access { rights, scope: Scope::Any };
        let key = keys.register(&region, 0..BYTES, access, || 77).unwrap();
        let endpoint = Endpoint::sealed(config, keys, seed.into(), keyring);
        Self { endpoint, region, key, done: Vec::new() }
    }

    fn slices(&self, range: std::ops::Range<u64>) -> Slices {
        Slices::new([(self.region.clone(), Stride::of_range(range))]).unwrap()
    }

    fn send(&mut self, now_ns: u64, to: PeerId, id: u64, bytes: usize) {
        let verb = Verb::Send { data: vec![id as u8; bytes].into() };
        self.endpoint.post_send(now_ns, SendWork::new(id, to, verb)).unwrap();
    }
}

/// Hosts, and packets that take a millisecond.
struct World {
    now_ns: u64,
    hosts: Vec<Host>,
    sent: u64,
    longest: usize,
}

impl World {
    fn new(config: Config, secrets: &[u8]) -> Self {
        let host = |(secret, seed): (&u8, u8)| Host::new(config, *secret, seed);
        let hosts = secrets.iter().zip(1..).map(host).collect();
        Self { now_ns: 1000 * MS, hosts, sent: 0, longest: 0 }
    }

    fn step(&mut self) {
        let mut packets = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        for from in 0..self.hosts.len() {
            let endpoint = &mut self.hosts[from].endpoint;
            while let Some(to) = endpoint.poll_transmit(self.now_ns, 64, &mut runs) {
                let emitter = endpoint.emitter(self.now_ns, to);
                for (run, at) in runs.iter().flat_map(|run| (0..run.len()).map(move |at| (run, at)))
                {
                    let emitter = match run.is_greeting() {
                        true => &lacuna_datagram::Emitter::default(),
                        false => emitter.as_ref().expect("there are keys for what is polled"),
                    };
                    let mut packet = vec![0; emitter.packet_bytes(run, at)];
                    let bytes = emitter.emit(run, at, &mut packet);
                    packet.truncate(bytes);
                    self.longest = self.longest.max(packet.len());
                    packets.push((from, to, packet));
                }
                runs.clear();
            }
        }
        self.sent += packets.len() as u64;
        self.now_ns += MS;
        for (from, to, packet) in packets {
            let all = to == group();
            for (at, host) in self.hosts.iter_mut().enumerate() {
                if to == address(at) || all && at != from {
                    host.endpoint.on_datagram(self.now_ns, address(from), &packet);
                }
            }
        }
        for host in &mut self.hosts {
            host.endpoint.on_timeout(self.now_ns);
            host.done.extend(std::iter::from_fn(|| host.endpoint.poll_done()));
        }
    }

    fn run(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
    }
}

fn group() -> SocketAddr {
    ([239, 1, 2, 3], 7407).into()
}

fn reliable() -> Config {
    Config { reliable: Some(ReliableConfig::default()), ..Config::default() }
}

#[test]
fn all_operations_wait_for_keys_and_come_whole() {
    for config in [Config::default(), reliable()] {
        let mut world = World::new(config, &[1, 1]);
        let peer = world.hosts[0].endpoint.peer(address(1)).unwrap();
        let now_ns = world.now_ns;
        let into = world.hosts[1].slices(0..20_000);
        world.hosts[1].endpoint.post_recv(now_ns, RecvWork { id: 9, into }).unwrap();
        world.hosts[0].send(now_ns, peer, 1, 20_000);
        let to = Target { key: world.hosts[1].key, offset: 30_000 };
        let verb = Verb::WriteRecord { data: vec![2; 20_000].into(), to };
        let host = &mut world.hosts[0];
        host.endpoint.post_send(now_ns, SendWork::new(2, peer, verb)).unwrap();
        world.step();
        assert_eq!((world.sent, world.hosts[0].done.len()), (1, 0), "a hello, and no more");
        world.run(100);
        let into = world.hosts[0].slices(0..20_000);
        let host = &mut world.hosts[0];
        let read = SendWork::new(3, peer, Verb::Read { into, from: to });
        host.endpoint.post_send(world.now_ns, read).unwrap();
        world.run(200);
        let of = |at: usize| {
            let told = |done: &Done| (done.id, done.operation, done.status.is_ok(), done.bytes);
            world.hosts[at].done.iter().map(told).collect::<Vec<_>>()
        };
        let expected = [(1, Operation::Send), (2, Operation::WriteRecord), (3, Operation::Read)];
        assert_eq!(of(0), expected.map(|(id, operation)| (id, operation, true, 20_000)));
        let expected = [(9, Operation::Receive), (0, Operation::Record)];
        assert_eq!(of(1), expected.map(|(id, operation)| (id, operation, true, 20_000)));
        assert!(world.longest <= config.packet_bytes_max, "{}", world.longest);
        let mut bytes = vec![0; 20_000];
        world.hosts[0].region.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 2));
        let stats = world.hosts[1].endpoint.stats();
        assert_eq!((stats.sealed.peers, stats.sealed.forged, stats.rejected), (1, 0, [0; 7]));
    }
}

#[test]
fn what_waits_for_the_keys_of_nobody_ends_and_holds_up_no_other() {
    for config in [Config::default(), reliable()] {
        // The third has another secret, and there is no fourth.
        let mut world = World::new(config, &[1, 1, 2]);
        let peers = [1, 2, 3].map(|at| world.hosts[0].endpoint.peer(address(at)).unwrap());
        let now_ns = world.now_ns;
        for id in 0..3 {
            let into = world.hosts[1].slices(0..1000);
            world.hosts[1].endpoint.post_recv(now_ns, RecvWork { id, into }).unwrap();
            for peer in [2, 1, 0] {
                world.hosts[0].send(now_ns, peers[peer], peer as u64, 1000);
            }
        }
        let into = world.hosts[0].slices(0..100);
        let from = Target { key: 77, offset: 0 };
        let read = SendWork::new(7, peers[2], Verb::Read { into, from });
        world.hosts[0].endpoint.post_send(now_ns, read).unwrap();
        world.run(50);
        let ends = |world: &World, id| -> Vec<_> {
            let of_id = world.hosts[0].done.iter().filter(|done| done.id == id);
            of_id.map(|done| done.status).collect()
        };
        assert_eq!(ends(&world, 0), [Ok(()); 3]);
        assert_eq!(world.hosts[1].done.len(), 3);
        assert!(ends(&world, 1).is_empty());
        world.run(7000);
        assert_eq!(ends(&world, 1), [Err(Failure::Unreachable); 3]);
        assert_eq!(ends(&world, 2), [Err(Failure::Unreachable); 3]);
        assert_eq!(ends(&world, 7), [Err(Failure::Unreachable)]);
        let stats = world.hosts[0].endpoint.stats();
        assert_eq!((stats.messages_waiting, stats.messages_open), (0, 0));
        assert_eq!(world.hosts[2].endpoint.stats().packets_taken, 0);
    }
}

#[test]
fn a_deadline_ends_what_waits_for_keys_as_well() {
    let mut world = World::new(Config::default(), &[1, 2]);
    let peer = world.hosts[0].endpoint.peer(address(1)).unwrap();
    let verb = Verb::Send { data: vec![1; 10].into() };
    let deadline_ns = Some(world.now_ns + 20 * MS);
    let work = SendWork { deadline_ns, ..SendWork::new(1, peer, verb) };
    world.hosts[0].endpoint.post_send(world.now_ns, work).unwrap();
    world.run(30);
    assert_eq!(world.hosts[0].done[0].status, Err(Failure::Deadline));
    // The same peer gets keys later on, and gets what was posted then.
    world.hosts[1] = Host::new(Config::default(), 1, 9);
    let into = world.hosts[1].slices(0..1000);
    world.hosts[1].endpoint.post_recv(world.now_ns, RecvWork { id: 1, into }).unwrap();
    let now_ns = world.now_ns;
    world.hosts[0].send(now_ns, peer, 2, 10);
    world.run(8000);
    assert_eq!(world.hosts[1].done.len(), 1);
}

#[test]
fn what_is_sent_to_a_group_comes_sealed_and_what_is_missed_is_repaired() {
    let mut world = World::new(Config::default(), &[1, 1, 1, 2]);
    let to = world.hosts[0].endpoint.group(group()).unwrap();
    let now_ns = world.now_ns;
    for at in 1..4 {
        for id in 0..20 {
            let into = world.hosts[at].slices(id * 5000..(id + 1) * 5000);
            world.hosts[at].endpoint.post_recv(now_ns, RecvWork { id, into }).unwrap();
        }
    }
    for id in 0..20 {
        let now_ns = world.now_ns;
        world.hosts[0].send(now_ns, to, id, 5000);
        world.run(3);
    }
    world.run(3000);
    let came = |at: usize| world.hosts[at].done.iter().filter(|done| done.bytes == 5000).count();
    assert_eq!([came(1), came(2), came(3)], [20, 20, 0], "{:?}", world.hosts[1].endpoint.stats());
}

#[test]
fn nobody_without_the_secret_moves_anything() {
    let mut world = World::new(Config::default(), &[1, 1]);
    let peer = world.hosts[0].endpoint.peer(address(1)).unwrap();
    let into = world.hosts[1].slices(0..1000);
    world.hosts[1].endpoint.post_recv(world.now_ns, RecvWork { id: 1, into }).unwrap();
    let now_ns = world.now_ns;
    world.hosts[0].send(now_ns, peer, 1, 1000);
    world.run(10);
    assert_eq!(world.hosts[1].done.len(), 1);
    let before = world.hosts[1].endpoint.stats();
    // In clear, with a checksum that is right, from the peer's address: all kinds of packets.
    let mut clear = Endpoint::new(Config::default(), Arc::new(KeyTable::new(5)), 5);
    let to = clear.peer(address(1)).unwrap();
    let target = Target { key: 77, offset: 0 };
    let verb = Verb::WriteRecord { data: vec![5; 5000].into(), to: target };
    clear.post_send(now_ns, SendWork::new(1, to, verb)).unwrap();
    let verb = Verb::Send { data: vec![5; 100].into() };
    clear.post_send(now_ns, SendWork::new(2, to, verb)).unwrap();
    let mut runs = Vec::new();
    while clear.poll_transmit(now_ns, 64, &mut runs).is_some() {}
    for run in &runs {
        for at in 0..run.len() {
            let mut packet = vec![0; run.packet_bytes(at)];
            let bytes = run.emit(at, &mut packet);
            world.hosts[1].endpoint.on_datagram(world.now_ns, address(0), &packet[..bytes]);
        }
    }
    let mut after = world.hosts[1].endpoint.stats();
    assert!(after.sealed.malformed > before.sealed.malformed);
    after.sealed = before.sealed;
    assert_eq!(after, before);
    let mut bytes = vec![0; 1000];
    world.hosts[1].region.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 1));
}
