//! One source and several receivers of a group: what is lost is asked for and comes again, once.

use lacuna_datagram::{Config, Done, Endpoint, Operation, PeerId, RecvWork, Run, SendWork, Verb};
use lacuna_link::SplitMix64;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride};
use std::net::SocketAddr;
use std::sync::Arc;

const BUFFER_BYTES: u64 = 20_000;
const RECEIVES: u64 = 64;
const NAME: u32 = 7;

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 7407))
}

fn group() -> SocketAddr {
    SocketAddr::from(([239, 1, 2, 3], 7407))
}

fn pattern(of: u64, length: u64) -> Vec<u8> {
    (0..length)
        .map(|at| (of.wrapping_mul(0x9e37_79b9) ^ at.wrapping_mul(31) ^ at >> 7) as u8)
        .collect()
}

struct Receiver {
    endpoint: Endpoint,
    region: Arc<Region>,
    /// By message: how often it came, and how many of its bytes.
    came: Vec<(u32, u64)>,
}

/// Host 0 sends; all others are in the group.
struct World {
    rng: SplitMix64,
    loss_ppm: u32,
    now_ns: u64,
    source: Endpoint,
    group: PeerId,
    receivers: Vec<Receiver>,
    packets: Vec<(u64, usize, usize, Vec<u8>)>,
    lengths: Vec<u64>,
}

impl World {
    fn new(seed: u64, receivers: usize, loss_ppm: u32) -> Self {
        let rate_bits_per_s = Some(300_000_000);
        let config = Config { rate_bits_per_s, ..Config::default() };
        let mut source = Endpoint::new(config, Arc::new(KeyTable::new(seed)), seed);
        let group = source.peer(group()).unwrap();
        let receivers = (1..=receivers)
            .map(|host| {
                let keys = Arc::new(KeyTable::new(seed + host as u64));
                let bytes = RECEIVES * BUFFER_BYTES + (1 << 22);
                let config = RegionConfig { has_validity: true, is_exclusive: false };
                let region = Region::new(vec![0; bytes as usize], config);
                let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
                let range = RECEIVES * BUFFER_BYTES..bytes;
                let key = keys.register(&region, range, access, || host as u32 * 1000).unwrap();
                let mut endpoint = Endpoint::new(Config::default(), keys, seed + 10 + host as u64);
                endpoint.name_region(NAME, Some(key));
                let mut receiver = Receiver { endpoint, region, came: Vec::new() };
                (0..RECEIVES).for_each(|id| receiver.post(0, id));
                receiver
            })
            .collect();
        Self {
            rng: SplitMix64::new(seed),
            loss_ppm,
            now_ns: 1_000_000,
            source,
            group,
            receivers,
            packets: Vec::new(),
            lengths: Vec::new(),
        }
    }

    fn send(&mut self, length: u64) {
        let data = pattern(self.lengths.len() as u64, length);
        let id = self.lengths.len() as u64;
        self.lengths.push(length);
        let work = SendWork::new(id, self.group, Verb::Send { data: data.into() });
        self.source.post_send(self.now_ns, work).unwrap();
    }

    fn transmit(&mut self) {
        let mut runs: Vec<Run> = Vec::new();
        for from in 0..=self.receivers.len() {
            loop {
                let endpoint = match from.checked_sub(1) {
                    None => &mut self.source,
                    Some(at) => &mut self.receivers[at].endpoint,
                };
                let Some(to) = endpoint.poll_transmit(self.now_ns, 64, &mut runs) else { break };
                for run in runs.drain(..) {
                    for at in 0..run.len() {
                        let mut packet = vec![0; run.packet_bytes(at)];
                        let bytes = run.emit(at, &mut packet);
                        packet.truncate(bytes);
                        for host in 0..=self.receivers.len() {
                            let is_for = to == address(host) || to == group() && host != from;
                            if is_for && !self.rng.chance(self.loss_ppm) {
                                let due_ns = self.now_ns + 100_000 + self.rng.below(50_000);
                                self.packets.push((due_ns, from, host, packet.clone()));
                            }
                        }
                    }
                }
            }
        }
    }

    fn step(&mut self) {
        self.transmit();
        self.now_ns += 50_000 + self.rng.below(100_000);
        let now_ns = self.now_ns;
        self.packets.sort_by_key(|(due_ns, ..)| *due_ns);
        let due = self.packets.partition_point(|(due_ns, ..)| *due_ns <= now_ns);
        for (_, from, to, packet) in self.packets.drain(..due) {
            match to.checked_sub(1) {
                None => self.source.on_datagram(now_ns, address(from), &packet),
                Some(at) => self.receivers[at].endpoint.on_datagram(now_ns, address(from), &packet),
            }
        }
        self.source.on_timeout(now_ns);
        for receiver in &mut self.receivers {
            receiver.endpoint.on_timeout(now_ns);
            while let Some(done) = receiver.endpoint.poll_done() {
                receiver.on_done(now_ns, &done, &self.lengths);
            }
        }
        while self.source.poll_done().is_some() {}
    }

    fn run(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
    }
}

impl Receiver {
    fn post(&mut self, now_ns: u64, id: u64) {
        let range = id * BUFFER_BYTES..(id + 1) * BUFFER_BYTES;
        let into = Slices::new([(self.region.clone(), Stride::of_range(range))]).unwrap();
        self.endpoint.post_recv(now_ns, RecvWork { id, into }).unwrap();
    }

    fn on_done(&mut self, now_ns: u64, done: &Done, lengths: &[u64]) {
        let arrived = done.arrived.as_ref().unwrap();
        assert_eq!(arrived.source, address(0));
        if done.operation == Operation::Record {
            self.came.push((1, done.bytes));
            return;
        }
        let mut bytes = vec![0; done.bytes as usize];
        self.region.read(done.id * BUFFER_BYTES, &mut bytes).unwrap();
        let of = lengths.iter().enumerate().find(|(of, length)| {
            **length == done.bytes && bytes == pattern(*of as u64, done.bytes)
        });
        let (of, _) = of.expect("a message that was sent");
        self.came.resize(self.came.len().max(of + 1), (0, 0));
        self.came[of].0 += 1;
        self.post(now_ns, done.id);
    }
}

#[test]
fn each_receiver_gets_every_message_once_though_each_loses_others() {
    for (seed, loss_ppm) in [(1, 0), (2, 20_000), (3, 100_000)] {
        let mut world = World::new(seed, 3, loss_ppm);
        // The first message tells where a source's numbers begin, so it may be lost for good.
        for _ in 0..300 {
            let length = 1 + world.rng.below(BUFFER_BYTES);
            world.send(length);
            world.run(4);
        }
        world.run(5_000);
        let lengths = world.lengths.len();
        for receiver in &world.receivers {
            let lost = receiver.came.iter().skip(2).filter(|(times, _)| *times == 0).count();
            assert!(receiver.came.len() == lengths && lost <= lengths / 100, "{lost} lost");
            assert!(receiver.came.iter().all(|(times, _)| *times <= 1));
            let stats = receiver.endpoint.stats();
            assert_eq!(stats.messages_open, 0);
        }
        let again = world.source.stats().bytes_again;
        let sent: u64 = world.lengths.iter().sum();
        let most = sent * 4 * u64::from(loss_ppm) / 1_000_000 * 3;
        assert!(again <= most, "{again} bytes again of {sent}");
    }
}

#[test]
fn a_source_that_repairs_nothing_keeps_nothing_and_its_receivers_stay_without() {
    let mut world = World::new(4, 3, 50_000);
    let rate_bits_per_s = Some(300_000_000);
    let config = Config { rate_bits_per_s, group_repairs: false, ..Config::default() };
    world.source = Endpoint::new(config, Arc::new(KeyTable::new(4)), 4);
    world.group = world.source.peer(group()).unwrap();
    for _ in 0..200 {
        world.send(1_000);
        world.run(4);
    }
    world.run(5_000);
    assert_eq!(world.source.stats().bytes_again, 0);
    for receiver in &world.receivers {
        let came = receiver.came.iter().filter(|(times, _)| *times == 1).count();
        assert!((170..200).contains(&came), "{came} of 200");
        assert_eq!(receiver.endpoint.stats().messages_open, 0);
    }
}

#[test]
fn the_loss_of_the_last_message_is_noticed() {
    let mut world = World::new(5, 2, 0);
    world.send(100);
    world.run(20);
    world.loss_ppm = 1_000_000;
    world.send(200);
    world.run(20);
    world.loss_ppm = 0;
    world.run(2_000);
    for receiver in &world.receivers {
        assert_eq!(receiver.came, [(1, 0), (1, 0)]);
    }
}

#[test]
fn a_write_to_a_named_region_lands_at_a_place_of_each_receiver() {
    let mut world = World::new(6, 3, 30_000);
    for at in 0..20u64 {
        let verb =
            Verb::WriteNamed { data: pattern(at, 50_000).into(), name: NAME, offset: at * 50_000 };
        world.source.post_send(world.now_ns, SendWork::new(at, world.group, verb)).unwrap();
        world.run(40);
    }
    world.run(5_000);
    for receiver in &world.receivers {
        let whole = receiver.came.iter().filter(|(_, bytes)| *bytes == 50_000).count();
        assert!(whole >= 19, "{:?}", receiver.came);
        let mut bytes = vec![0; 50_000];
        receiver.region.read(RECEIVES * BUFFER_BYTES + 19 * 50_000, &mut bytes).unwrap();
        assert!(bytes == pattern(19, 50_000));
    }
    // Without the name it is a key that nobody has.
    world.receivers[0].endpoint.name_region(NAME, None);
    let before = world.receivers[0].came.len();
    let verb = Verb::WriteNamed { data: pattern(1, 10).into(), name: NAME, offset: 0 };
    world.source.post_send(world.now_ns, SendWork::new(1, world.group, verb)).unwrap();
    world.run(3_000);
    assert_eq!(world.receivers[0].came.len(), before);
    assert!(world.receivers[0].endpoint.stats().discards.key > 0);
    assert!(world.receivers[1].came.len() > before);
}

#[test]
fn what_a_source_sends_to_a_group_and_to_one_alone_is_counted_apart() {
    let mut world = World::new(7, 1, 0);
    let alone = world.source.peer(address(1)).unwrap();
    for _ in 0..100 {
        world.send(100);
        let verb = Verb::Send { data: pattern(0, 100).into() };
        world.source.post_send(world.now_ns, SendWork::new(0, alone, verb)).unwrap();
        world.run(3);
    }
    world.run(100);
    let stats = world.receivers[0].endpoint.stats();
    assert_eq!((stats.messages_whole, stats.messages_missed), (200, 0));
    assert_eq!(stats.discards.late, 0);
}

#[test]
fn a_source_that_says_up_to_where_it_sent_lets_the_last_losses_be_counted() {
    let mut world = World::new(8, 1, 0);
    let alone = world.source.peer(address(1)).unwrap();
    let send = |world: &mut World| {
        let verb = Verb::Send { data: pattern(0, 100).into() };
        world.lengths = vec![100];
        world.source.post_send(world.now_ns, SendWork::new(0, alone, verb)).unwrap();
        world.run(3);
    };
    send(&mut world);
    world.loss_ppm = 1_000_000;
    (0..5).for_each(|_| send(&mut world));
    world.loss_ppm = 0;
    assert_eq!(world.receivers[0].endpoint.stats().messages_missed, 0);
    world.source.say_sent(alone);
    world.run(100);
    assert_eq!(world.receivers[0].endpoint.stats().messages_missed, 5);
}
