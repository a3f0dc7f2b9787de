//! Reliable connections in the engine: beside SDR's queue pairs, over links that lose and damage.

use lacuna_engine::harness::{Flights, Handle, Links, Net, Packet, Place, Sent, Wire};
use lacuna_engine::{Books, Event, Lane, Machine, RcLane, State};
use lacuna_link::{Chances, Fraction, Loss, PipeConfig, SplitMix64};
use lacuna_path::controller::{AnyController, ControllerConfig, Fixed, Setup};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride};
use lacuna_rc::{
    Done, Failure, Flags, Operation, Peer, QpState, QueuePair, RcConfig, ReceiveQueue, RecvWork,
    Remote, SendWork, ShimSettings, Verb,
};
use lacuna_secure::{self as secure, Association, Cipher, Limits, Secret};
use lacuna_wire::rc::{CodeKind, NOTIFICATION_OPCODE, REPAIR_OPCODE, Strength};
use lacuna_wire::{Qpn, RejectKind, Seal};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MEMORY_BYTES: usize = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// One end of a connection.
struct End {
    handle: Handle,
    host: usize,
    region: Arc<Region>,
    key: u32,
}

fn all_of(region: &Arc<Region>) -> Slices {
    Slices::new([(region.clone(), Stride::of_range(0..region.len()))]).unwrap()
}

fn region(bytes: usize) -> Arc<Region> {
    Region::new(vec![0; bytes], RegionConfig::default())
}

fn bytes_of(region: &Region, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(0, &mut bytes).unwrap();
    bytes
}

fn fixed() -> AnyController {
    AnyController::Fixed(Fixed::new(1_000_000_000))
}

/// A shim with a repair for so many packets.
fn lowar(block_packets: u16) -> ShimSettings {
    let strength = Strength { block_packets, repairs: 1, code: CodeKind::Xor };
    ShimSettings::Protect { strength, caps_short_blocks: false }
}

/// A connection between two hosts, by queue pairs of these numbers.
fn connect(
    net: &mut Net,
    hosts: [usize; 2],
    numbers: [u32; 2],
    shims: [ShimSettings; 2],
    controller: &AnyController,
) -> [End; 2] {
    connect_sealed(net, hosts, numbers, shims, controller, None)
}

/// The same, whose packets are encrypted if there are limits for their keys.
fn connect_sealed(
    net: &mut Net,
    hosts: [usize; 2],
    numbers: [u32; 2],
    shims: [ShimSettings; 2],
    controller: &AnyController,
    limits: Option<Limits>,
) -> [End; 2] {
    let seal = if limits.is_some() { Seal::Aead } else { Seal::default() };
    let config = |number| RcConfig::new(Qpn::new(number, 0, 0), 1024, controller.clone());
    let configs = numbers.map(config);
    let peers = [1, 0].map(|at: usize| Peer {
        number: configs[at].number,
        first_psn: configs[at].first_psn,
        answers_max: configs[at].answers_max,
    });
    std::array::from_fn(|at| {
        let keys = Arc::new(KeyTable::new(at as u64));
        let region = region(MEMORY_BYTES);
        let rights = Rights::LOCAL | Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let access = Access { rights, scope: Scope::Any };
        let mut rng = SplitMix64::new(at as u64);
        let draw = || rng.next_u64() as u32;
        let key = keys.register(&region, 0..MEMORY_BYTES as u64, access, draw).unwrap();
        let receives = Arc::new(ReceiveQueue::new());
        let mut qp = QueuePair::new(configs[at].clone(), keys, receives).unwrap();
        let responder = qp.accept(peers[at]).unwrap();
        qp.start();
        let far = Place { host: hosts[1 - at], channel: 0 }.address();
        let machine = Machine::Rc(Box::new(qp));
        let state = State::new(machine, [Some(far)]);
        let books = Books::new(numbers[at], 0, seal, state, 1);
        if let Some(limits) = limits {
            let end = [secure::End::Connecting, secure::End::Accepting][at];
            let secret = Secret::new([6; 32]);
            books.secure(Association::new(Cipher::default(), secret, end, 1, limits, net.now_ns()));
        }
        let lane = lacuna_rc::Lane::new(&configs[at], shims[at], responder).unwrap();
        let lane = Lane::Rc(Box::new(RcLane::new(0, lane)));
        let handle = net.open(hosts[at], books, vec![lane]);
        End { handle, host: hosts[at], region, key }
    })
}

impl End {
    /// Does something with the queue pair, and has its engine look at it.
    fn with<R>(&self, net: &mut Net, each: impl FnOnce(&mut QueuePair) -> R) -> R {
        let result = match &mut self.handle.books.lock().machine {
            Machine::Rc(qp) => each(qp),
            other => panic!("a reliable connection, not {other:?}"),
        };
        net.kick(&self.handle);
        result
    }

    fn post(&self, net: &mut Net, id: u64, verb: Verb) {
        let work = SendWork { id, verb, flags: Flags::default() };
        self.with(net, |qp| qp.post_send(work)).unwrap();
    }

    fn remote(&self, address: u64) -> Remote {
        Remote { address, key: self.key }
    }

    fn take_done(&self, net: &mut Net) -> Vec<Done> {
        let events = net.host(self.host).take_events();
        let is_news = events.iter().any(|event| matches!(event, Event::Completed(_)));
        let mut done = Vec::new();
        if let Machine::Rc(qp) = &mut self.handle.books.lock().machine {
            done.extend(std::iter::from_fn(|| qp.poll_done()));
        }
        assert_eq!(is_news, !done.is_empty(), "completions are told of");
        done
    }
}

fn pipe(loss_ppm: u32) -> PipeConfig {
    PipeConfig {
        delay_ns: 5_000_000,
        rate_bits_per_s: Some(1_100_000_000),
        queue_bytes: 16 << 20,
        loss: Loss::Independent(Fraction::from_ppm(loss_ppm)),
        chances: Chances { corrupt: Fraction::from_ppm(loss_ppm), ..Chances::default() },
        ..PipeConfig::default()
    }
}

#[test]
fn all_operations_pass_the_engine_over_links_that_lose_and_damage() {
    let grid =
        [(1, 0, 0), (2, 2_000, 0), (3, 20_000, 0), (4, 0, 8), (5, 2_000, 32), (6, 20_000, 4)];
    let often = Limits { packets: 100, ..Limits::default() };
    let grid = grid.into_iter().flat_map(|each| [(each, None), (each, Some(often))]);
    for ((seed, loss_ppm, block_packets), limits) in grid {
        let (mut net, mut links) = (Net::new(), Links::new(pipe(loss_ppm), seed));
        let hosts = [net.add_host(1), net.add_host(1)];
        let shim = if block_packets == 0 { ShimSettings::Off } else { lowar(block_packets) };
        let [near, far] = connect_sealed(&mut net, hosts, [3, 5], [shim; 2], &fixed(), limits);
        let data = SplitMix64::new(seed).bytes(300_000);
        let (target, into) = (region(data.len()), region(data.len()));
        far.with(&mut net, |qp| qp.post_recv(RecvWork { id: 9, into: all_of(&target) })).unwrap();
        let buffer = SendBuffer::from(data.clone());
        let write = Verb::Write { data: buffer.clone(), remote: far.remote(0), immediate: None };
        near.post(&mut net, 1, write);
        near.post(&mut net, 2, Verb::Send { data: buffer, immediate: Some(77) });
        near.post(&mut net, 3, Verb::Read { into: all_of(&into), remote: far.remote(0) });
        let (mut sent, mut came) = (Vec::new(), Vec::new());
        let is_over = net.run_until(60 * SECOND, &mut links, |net| {
            sent.extend(near.take_done(net));
            came.extend(far.take_done(net));
            sent.len() == 3 && came.len() == 1
        });
        assert!(is_over, "{loss_ppm}: {sent:?} {came:?}");
        let operations: Vec<_> = sent.iter().map(|done| (done.id, done.status)).collect();
        assert_eq!(operations, [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
        assert_eq!((came[0].id, came[0].operation), (9, Operation::Receive));
        assert_eq!(came[0].received.unwrap().immediate, Some(77));
        assert_eq!(bytes_of(&far.region, data.len()), data);
        assert_eq!(bytes_of(&target, data.len()), data);
        assert_eq!(bytes_of(&into, data.len()), data);
        let stats = near.with(&mut net, |qp| qp.stats());
        if loss_ppm == 0 || block_packets == 0 {
            assert_eq!(stats.retransmitted_packets == 0, loss_ppm == 0, "{stats:?}");
        }
        let recovered = [&near, &far].map(|end| {
            let shim = end.with(&mut net, |qp| qp.stats().shim);
            assert_eq!(shim.is_some(), block_packets > 0);
            shim.map_or(0, |shim| shim.received.packets_recovered)
        });
        let is_helped = recovered.iter().sum::<u64>() > 0;
        assert_eq!(is_helped, loss_ppm > 0 && block_packets > 0, "{recovered:?}");
        let keys = [&near, &far].map(|end| end.handle.books.association().map(Association::epoch));
        assert!(keys.iter().all(|epoch| epoch.is_some() == limits.is_some()));
        assert!(keys.iter().flatten().all(|epoch| *epoch >= 1), "{keys:?} times replaced");
    }
}

#[test]
fn packets_of_every_kind_that_are_in_clear_are_nothing_to_an_encrypted_connection() {
    let (mut net, mut links) = (Net::new(), Links::new(pipe(0), 1));
    let hosts = [net.add_host(1), net.add_host(1)];
    let limits = Some(Limits::default());
    let [_, far] = connect_sealed(&mut net, hosts, [3, 5], [lowar(4); 2], &fixed(), limits);
    let clear = {
        let links = Links::new(pipe(0), 1);
        let (mut net, mut wire) = (Net::new(), Watched::new(links));
        let hosts = [net.add_host(1), net.add_host(1)];
        let [near, far] = connect(&mut net, hosts, [3, 5], [lowar(4); 2], &fixed());
        let data = SendBuffer::from(vec![1; 100_000]);
        near.post(&mut net, 1, Verb::Write { data, remote: far.remote(0), immediate: None });
        assert!(net.run_until(SECOND, &mut wire, |net| !near.take_done(net).is_empty()));
        let mut notification = wire.data[0].clone();
        notification[0] = NOTIFICATION_OPCODE;
        [wire.data, wire.kept, vec![notification]].concat()
    };
    assert!(clear.iter().any(|packet| packet[0] == REPAIR_OPCODE));
    let count = clear.len() as u64;
    let places = hosts.map(|host| Place { host, channel: 0 });
    for packet in clear {
        net.inject(places[0], places[1], packet);
    }
    net.run_until(SECOND, &mut links, |_| false);
    let counters = net.host(hosts[1]).engine().counters().clone();
    let refused =
        RejectKind::ALL.map(|kind| counters.rejected[kind.as_index()].load(Ordering::Relaxed));
    assert_eq!(refused.iter().sum::<u64>(), count, "{refused:?}");
    assert!(refused[RejectKind::Forged.as_index()] > 0);
    let stats = far.with(&mut net, |qp| qp.stats());
    let shim = stats.shim.map(|shim| shim.received.repairs_received);
    assert_eq!((stats.notifications, shim), (0, Some(0)));
    assert!(bytes_of(&far.region, MEMORY_BYTES).iter().all(|byte| *byte == 0));
}

#[test]
fn a_closed_connection_gives_everything_back() {
    let (mut net, mut links) = (Net::new(), Links::new(pipe(0), 1));
    let hosts = [net.add_host(1), net.add_host(1)];
    let [near, far] = connect(&mut net, hosts, [3, 5], [ShimSettings::Off; 2], &fixed());
    let target = region(1 << 19);
    for id in 0..2 {
        far.with(&mut net, |qp| qp.post_recv(RecvWork { id, into: all_of(&target) })).unwrap();
    }
    let data = SendBuffer::from(vec![1; 1 << 19]);
    near.post(&mut net, 7, Verb::Send { data, immediate: None });
    // In the middle of the message.
    assert!(!net.run_until(7_000_000, &mut links, |_| false));
    far.with(&mut net, QueuePair::close);
    net.run_until(1_000, &mut links, |_| false);
    let mut done: Vec<_> = far.take_done(&mut net);
    done.sort_by_key(|done| done.id);
    assert_eq!(done.iter().map(|done| done.id).collect::<Vec<_>>(), [0, 1]);
    assert!(done.iter().all(|done| done.status.is_err()));
    let before = bytes_of(&target, 1 << 19);
    net.run_until(SECOND, &mut links, |_| false);
    assert_eq!(bytes_of(&target, 1 << 19), before, "nothing is written any more");
}

/// Links that note what the first host sends.
struct Watched {
    links: Links,
    data: Vec<Vec<u8>>,
    repairs: usize,
    /// Those.
    kept: Vec<Vec<u8>>,
}

impl Watched {
    fn new(links: Links) -> Self {
        Self { links, data: Vec::new(), repairs: 0, kept: Vec::new() }
    }
}

impl Wire for Watched {
    fn carry(&mut self, now_ns: u64, sent: Sent, flights: &mut Flights) {
        if let (0, Packet::Bytes(bytes)) = (sent.from.host, &sent.packet) {
            match bytes[0] == REPAIR_OPCODE {
                true => {
                    self.repairs += 1;
                    self.kept.push(bytes.clone());
                }
                false => self.data.push(bytes.clone()),
            }
        }
        self.links.carry(now_ns, sent, flights);
    }
}

#[test]
fn data_packets_are_the_same_bytes_with_a_shim_and_without() {
    let sent = [ShimSettings::Off, lowar(32)].map(|shim| {
        let links = Links::new(pipe(0), 1);
        let (mut net, mut wire) = (Net::new(), Watched::new(links));
        let hosts = [net.add_host(1), net.add_host(1)];
        let [near, far] = connect(&mut net, hosts, [3, 5], [shim, ShimSettings::Accept], &fixed());
        for id in 0..20 {
            let data = SendBuffer::from(SplitMix64::new(id).bytes(1 << (id % 18)));
            let target = region(data.len());
            far.with(&mut net, |qp| qp.post_recv(RecvWork { id, into: all_of(&target) })).unwrap();
            let write = Verb::Write { data: data.clone(), remote: far.remote(0), immediate: None };
            near.post(&mut net, 2 * id, write);
            near.post(&mut net, 2 * id + 1, Verb::Send { data, immediate: Some(77) });
        }
        let mut done = 0;
        assert!(net.run_until(60 * SECOND, &mut wire, |net| {
            done += near.take_done(net).len();
            done == 40
        }));
        (wire.data, wire.repairs)
    });
    let [(without, none), (with, some)] = sent;
    assert!(with == without);
    assert!(none == 0 && some > 40, "{some} repairs");
}

#[test]
fn marks_of_routers_slow_the_sender_before_its_queue_overflows() {
    let cases = [(Some(100_000), None), (Some(100_000), Some(Limits::default())), (None, None)];
    let [with, sealed, without] = cases.map(|(mark_above_bytes, limits)| {
        let pipe = PipeConfig { mark_above_bytes, queue_bytes: 1 << 20, ..pipe(0) };
        let (mut net, mut links) = (Net::new(), Links::new(pipe, 1));
        let hosts = [net.add_host(1), net.add_host(1)];
        let controller = ControllerConfig::Cubic.build(Setup { packet_bytes: 1084, seed: 1 });
        let shims = [ShimSettings::Off; 2];
        let [near, far] = connect_sealed(&mut net, hosts, [3, 5], shims, &controller, limits);
        let data = SendBuffer::from(vec![7; MEMORY_BYTES]);
        for id in 0..100 {
            let write = Verb::Write { data: data.clone(), remote: far.remote(0), immediate: None };
            near.post(&mut net, id, write);
        }
        let mut done = 0;
        assert!(net.run_until(60 * SECOND, &mut links, |net| {
            done += near.take_done(net).len();
            done == 100
        }));
        let stats = near.with(&mut net, |qp| qp.stats());
        (stats.notifications, links.overflowed())
    });
    assert!(with.0 > 0 && with.1 == 0, "{with:?}");
    assert!(sealed.0 > 0 && sealed.1 == 0, "{sealed:?}");
    assert!(without.0 == 0 && without.1 > 0, "{without:?}");
}

#[test]
fn a_connection_whose_key_is_used_up_fails_and_says_so() {
    let (mut net, mut links) = (Net::new(), Links::new(pipe(0), 1));
    let hosts = [net.add_host(1), net.add_host(1)];
    // Nothing of the far end arrives, so nobody hears that it follows to a new key.
    links.set(hosts[1], hosts[0], pipe(1_000_000));
    let limits = Limits { packets: 10, packets_max: 40, ..Limits::default() };
    let shims = [ShimSettings::Off; 2];
    let [near, far] = connect_sealed(&mut net, hosts, [3, 5], shims, &fixed(), Some(limits));
    for id in 0..2 {
        let data = SendBuffer::from(vec![1; 300_000]);
        let write = Verb::Write { data, remote: far.remote(0), immediate: None };
        near.post(&mut net, id, write);
    }
    let mut done = Vec::new();
    let is_over = net.run_until(SECOND, &mut links, |net| {
        done.extend(near.take_done(net));
        done.len() == 2
    });
    assert!(is_over, "{done:?}");
    let ends: Vec<_> = done.iter().map(|done| (done.id, done.status)).collect();
    let spent = Failure::KeySpent { packets: 40 };
    assert_eq!(ends, [(0, Err(spent)), (1, Err(Failure::Flushed))]);
    assert_eq!(near.with(&mut net, |qp| qp.state()), QpState::Error);
    net.run_until(SECOND, &mut links, |_| false);
    let arrived = bytes_of(&far.region, 300_000).iter().filter(|byte| **byte == 1).count();
    assert_eq!(arrived, 40 * 1024, "what was sealed, and nothing else");
}
