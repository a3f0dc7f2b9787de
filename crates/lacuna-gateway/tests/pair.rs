//! Two gateways at the ends of a path that loses, between hosts with reliable connections that know nothing of
//! them.

use lacuna_gateway::{Gateway, GatewayConfig, RoceFrame};
use lacuna_link::{Chances, Fraction, InFlight, Loss, Pipe, PipeConfig, Schedule, SplitMix64};
use lacuna_path::controller::{AnyController, Fixed};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope};
use lacuna_rc::{
    AnswerSink, Done, Flags, Lane, Peer, QueuePair, RcConfig, ReceiveQueue, Remote, SendWork,
    ShimSettings, Verb,
};
use lacuna_wire::rc::{REPAIR_OPCODE, RcHeader};
use lacuna_wire::{PacketError, Qpn, icrc_ipv4};
use std::collections::HashMap;
use std::sync::Arc;

const START_NS: u64 = 1_000_000_000;
const MESSAGE_BYTES: usize = 30_000;

struct Answers<'q>(u64, &'q mut QueuePair);

impl AnswerSink for Answers<'_> {
    fn on_answer(&mut self, header: &RcHeader, payload: &[u8]) {
        self.1.on_answer(self.0, header, payload);
    }

    fn place_answer_ahead(&mut self, header: &RcHeader, payload: &[u8]) -> bool {
        self.1.place_answer_ahead(header, payload)
    }

    fn on_placed_answer(&mut self, header: &RcHeader, payload_bytes: usize) {
        self.1.on_placed_answer(self.0, header, payload_bytes);
    }

    fn on_notification(&mut self) {}

    fn before_request(&mut self) {}

    fn on_rejected(&mut self, error: PacketError) {
        panic!("a host got a packet that it does not know: {error}");
    }
}

struct End {
    qp: QueuePair,
    lane: Lane,
    region: Arc<Region>,
    key: u32,
    done: Vec<Done>,
}

/// A frame from one host to the other, as a card makes it.
fn frame(host: usize, identification: u16, packet: &[u8]) -> Vec<u8> {
    let (from, to) = (host as u8 + 1, 2 - host as u8);
    let total = (20 + 8 + packet.len() + 4) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0, 0x45, 0xb9];
    frame.extend(total.to_be_bytes());
    frame.extend(identification.to_be_bytes());
    frame.extend([0x40, 0, 61, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    frame.extend(50_000u16.to_be_bytes());
    frame.extend(4791u16.to_be_bytes());
    frame.extend((total - 20).to_be_bytes());
    frame.extend([0, 0]);
    let (ip, udp) = (frame[14..34].try_into().unwrap(), frame[34..42].try_into().unwrap());
    let icrc = icrc_ipv4(&ip, &udp, &[packet]);
    frame.extend(packet);
    frame.extend(icrc);
    frame
}

struct World {
    now_ns: u64,
    /// Connections, both ends of each.
    pairs: Vec<[End; 2]>,
    gateways: [Option<Gateway>; 2],
    pipes: [Pipe; 2],
    schedule: Schedule<usize>,
    shared: lacuna_lowar::Shared,
    identification: u16,
    /// Frames of other protocols that came to each host.
    others: [Vec<Vec<u8>>; 2],
}

fn end(number: u32, rate: u64) -> End {
    let keys = Arc::new(KeyTable::new(number.into()));
    let region = Region::new(vec![0; MESSAGE_BYTES], RegionConfig::default());
    let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
    let key = keys.register(&region, 0..MESSAGE_BYTES as u64, access, || 77).unwrap();
    let controller = AnyController::Fixed(Fixed::new(rate));
    // Drawn, as hosts do: answers are told apart by them.
    let first_psn = number.wrapping_mul(0x9e37_79b1) >> 8;
    let config = RcConfig { first_psn, ..RcConfig::new(Qpn::from_bits(number), 1024, controller) };
    let mut qp = QueuePair::new(config.clone(), keys, Arc::new(ReceiveQueue::new())).unwrap();
    let peer = Peer { number: Qpn::from_bits(number), first_psn, answers_max: 16 };
    let responder = qp.accept(peer).unwrap();
    qp.start();
    let lane = Lane::new(&config, ShimSettings::Off, responder).unwrap();
    End { qp, lane, region, key, done: Vec::new() }
}

fn gateway(strength: Option<&str>) -> Option<Gateway> {
    let strength = strength.map(|strength| strength.parse().unwrap());
    Some(Gateway::new(GatewayConfig { strength, ..GatewayConfig::default() }).unwrap())
}

impl World {
    fn new(connections: u32, loss: f64, gateways: [Option<Gateway>; 2]) -> Self {
        let pipe = PipeConfig {
            delay_ns: 10_000_000,
            rate_bits_per_s: Some(10_000_000_000),
            queue_bytes: 4 << 20,
            loss: if loss > 0.0 { Loss::Independent(Fraction::from_f64(loss)) } else { Loss::None },
            chances: Chances { reorder: Fraction::from_f64(loss / 10.0), ..Chances::default() },
            reorder_delay_ns: 100_000,
            ..PipeConfig::default()
        };
        let rate = 8_000_000_000 / u64::from(connections);
        Self {
            now_ns: START_NS,
            pairs: (0..connections)
                .map(|at| [end(0x100 + at, rate), end(0x100 + at, rate)])
                .collect(),
            gateways,
            pipes: [Pipe::new(pipe.clone(), 5, 0), Pipe::new(pipe, 5, 100)],
            schedule: Schedule::default(),
            shared: lacuna_lowar::Shared::default(),
            identification: 0,
            others: [Vec::new(), Vec::new()],
        }
    }

    /// A frame leaves a host.
    fn leave(&mut self, host: usize, frame: &[u8]) {
        let mut out = Vec::new();
        match &mut self.gateways[host] {
            Some(gateway) => {
                gateway.on_local(self.now_ns, frame, &mut |frame| out.push(frame.to_vec()));
            }
            None => out.push(frame.to_vec()),
        }
        for frame in out {
            let pipe = &mut self.pipes[host];
            let faults = pipe.draw(frame.len() as u64);
            if faults.is_lost {
                continue;
            }
            let Some(passed) = pipe.pass(self.now_ns, frame.len() as u64, &faults) else {
                continue;
            };
            self.schedule
                .insert(passed.release_ns, 1 - host, |bytes| bytes.extend_from_slice(&frame));
        }
    }

    /// A frame has reached the network of a host.
    fn arrive(&mut self, host: usize, frame: &[u8]) {
        let mut out = Vec::new();
        match &mut self.gateways[host] {
            Some(gateway) => {
                gateway.on_remote(self.now_ns, frame, &mut |frame| out.push(frame.to_vec()));
            }
            None => out.push(frame.to_vec()),
        }
        out.iter().for_each(|frame| self.take(host, frame));
    }

    fn take(&mut self, host: usize, frame: &[u8]) {
        let Some(roce) = RoceFrame::parse(frame) else {
            return self.others[host].push(frame.to_vec());
        };
        assert!(roce.has_right_icrc(), "a host's stack would drop it");
        let packet = roce.packet();
        if packet[0] == REPAIR_OPCODE {
            // Without a gateway here; a host's stack does not know it.
            assert!(self.gateways[host].is_none(), "repairs end at the gateway");
            return;
        }
        let number = lacuna_wire::destination(packet).unwrap().bits();
        let Some(pair) = self.pairs.get_mut((number - 0x100) as usize) else { return };
        let End { qp, lane, .. } = &mut pair[host];
        lane.receive(self.now_ns, &mut self.shared, packet, &mut Answers(self.now_ns, qp));
    }

    fn run_now(&mut self) {
        let mut due: Vec<(usize, Vec<u8>)> = Vec::new();
        while let Some(index) = self.schedule.pop_due(self.now_ns) {
            let InFlight { tag, bytes } = self.schedule.packet(index);
            due.push((*tag, bytes.clone()));
            self.schedule.remove(index);
        }
        due.iter().for_each(|(host, bytes)| self.arrive(*host, bytes));
        for host in 0..2 {
            let mut out = Vec::new();
            if let Some(gateway) = &mut self.gateways[host] {
                gateway.on_timeout(self.now_ns, &mut |frame| out.push(frame.to_vec()));
            }
            out.iter().for_each(|frame| self.take(host, frame));
        }
        let mut packets = Vec::new();
        for pair in &mut self.pairs {
            for (host, end) in pair.iter_mut().enumerate() {
                end.qp.on_taken(self.now_ns, end.lane.taken());
                end.qp.on_timeout(self.now_ns);
                loop {
                    let run = end.qp.poll_answer(self.now_ns, 16);
                    let Some(run) = run.or_else(|| end.qp.poll_request(self.now_ns, 16)) else {
                        break;
                    };
                    let mut out = [0; 2048];
                    for index in 0..run.len() {
                        let bytes = run.emit(index, &mut out);
                        packets.push((host, out[..bytes].to_vec()));
                    }
                }
                end.done.extend(std::iter::from_fn(|| end.qp.poll_done()));
            }
        }
        for (host, packet) in packets {
            self.identification = self.identification.wrapping_add(1);
            let frame = frame(host, self.identification, &packet);
            self.leave(host, &frame);
        }
    }

    fn next_ns(&mut self) -> Option<u64> {
        let ends = self.pairs.iter().flatten().filter_map(|end| end.qp.poll_timeout());
        let next = ends.min();
        let gateways = self.gateways.iter_mut().flatten().filter_map(Gateway::poll_timeout).min();
        [next, gateways, self.schedule.next_ns()].into_iter().flatten().min()
    }

    /// Writes `count` messages each way on each connection, and waits for all; retransmitted packets.
    fn exchange(&mut self, count: u64, mut each: impl FnMut(&mut Self)) -> u64 {
        for pair in &mut self.pairs {
            for host in 0..2 {
                let remote = Remote { address: 0, key: pair[1 - host].key };
                for id in 0..count {
                    let data = SplitMix64::new(id + host as u64).bytes(MESSAGE_BYTES);
                    let data = SendBuffer::from(data);
                    let verb = Verb::Write { data, remote, immediate: None };
                    let work = SendWork { id, verb, flags: Flags::default() };
                    pair[host].qp.post_send(work).unwrap();
                }
            }
        }
        let end_ns = self.now_ns + 600_000_000_000;
        loop {
            self.run_now();
            each(self);
            if self.pairs.iter().flatten().all(|end| end.done.len() as u64 == count) {
                break;
            }
            let next_ns = self.next_ns().expect("something is under way");
            assert!(next_ns < end_ns, "it takes too long");
            self.now_ns = next_ns.max(self.now_ns);
        }
        for pair in &mut self.pairs {
            for host in 0..2 {
                let done = std::mem::take(&mut pair[host].done);
                assert!(done.iter().all(|done| done.status.is_ok()), "{done:?}");
                assert!(done.iter().map(|done| done.id).eq(0..count));
                let mut bytes = vec![0; MESSAGE_BYTES];
                pair[1 - host].region.read(0, &mut bytes).unwrap();
                assert!(bytes == SplitMix64::new(count - 1 + host as u64).bytes(MESSAGE_BYTES));
            }
        }
        let ends = self.pairs.iter().flatten();
        ends.map(|end| end.qp.stats().retransmitted_packets).sum()
    }
}

#[test]
fn connections_behind_gateways_hardly_ever_go_back() {
    let plain = World::new(100, 0.01, [None, None]).exchange(10, |_| {});
    let mut world = World::new(100, 0.01, [gateway(Some("8:1")), gateway(Some("8:1"))]);
    let again = world.exchange(10, |_| {});
    assert!(again < plain / 5, "{again} of {plain} packets are sent again");
    for gateway in world.gateways.iter_mut().flatten() {
        let counters = gateway.counters();
        assert!(counters.packets_recovered > 100, "{counters:?}");
        assert!((19_000_000..25_000_000).contains(&counters.rtt_ns), "{counters:?}");
        assert_eq!(counters.wrong_icrc, 0);
    }
}

#[test]
fn one_gateway_alone_breaks_nothing() {
    for at in 0..2 {
        let mut gateways = [None, None];
        gateways[at] = gateway(Some("8:1"));
        let mut world = World::new(3, 0.005, gateways);
        world.exchange(20, |_| {});
    }
    let mut world = World::new(3, 0.005, [gateway(None), gateway(Some("mds:8:2"))]);
    world.exchange(20, |_| {});
    let [near, _] = &mut world.gateways;
    assert!(near.as_mut().unwrap().counters().packets_recovered > 0, "it uses the other's repairs");
}

#[test]
fn a_gateway_that_begins_anew_in_the_middle_harms_nothing() {
    for at in 0..2 {
        let mut world = World::new(5, 0.01, [gateway(Some("8:1")), gateway(Some("8:1"))]);
        let mut restarts = 0;
        world.exchange(40, |world| {
            if world.now_ns > START_NS + 8_000_000 * (restarts + 1) && restarts < 5 {
                // What waits in it is lost with it.
                world.gateways[at] = gateway(Some("8:1"));
                restarts += 1;
            }
        });
        assert_eq!(restarts, 5);
    }
}

#[test]
fn what_is_not_rdma_passes_bit_by_bit_in_both_directions() {
    let mut world = World::new(1, 0.0, [gateway(Some("8:1")), gateway(Some("8:1"))]);
    let mut rng = SplitMix64::new(3);
    let mut sent = [Vec::new(), Vec::new()];
    for _ in 0..500 {
        for (host, sent) in sent.iter_mut().enumerate() {
            let mut bytes = frame(host, 1, &[4, 0, 0xff, 0xff, 0, 0, 0, 5, 0, 0, 0, 9]);
            let some = 1 + rng.below(200) as usize;
            match rng.below(5) {
                0 => bytes = rng.bytes(some),
                1 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
                // A fragment, another port, another protocol.
                2 => bytes[20] = 0x20,
                3 => bytes[36] ^= 0x40,
                _ => bytes[12] = 0x88,
            }
            if RoceFrame::parse(&bytes).is_none() && !bytes.is_empty() {
                world.leave(host, &bytes);
                sent.push(bytes);
            }
        }
    }
    while let Some(next_ns) = world.schedule.next_ns() {
        world.now_ns = next_ns;
        world.run_now();
    }
    assert!(world.others[1] == sent[0] && world.others[0] == sent[1]);
}

#[test]
fn a_million_forged_queue_pairs_take_no_more_memory_than_so_many_flows() {
    let mut gateway = gateway(Some("8:1")).unwrap();
    let mut passed = 0u64;
    for number in 0..1_000_000u32 {
        for psn in 0..4u32 {
            let packet: Vec<u8> = [0x0a00_ffffu32, number, psn, 0, 0, 0, 0]
                .into_iter()
                .flat_map(u32::to_be_bytes)
                .collect();
            if number % 16 != 0 && psn > 0 {
                continue;
            }
            gateway.on_local(START_NS, &frame(0, 1, &packet), &mut |_| passed += 1);
        }
    }
    assert!(passed >= 1_000_000, "all frames pass");
    assert!(gateway.flows() <= 2 * 4096, "{}", gateway.flows());
    let counters = gateway.counters();
    assert!(counters.flows_evicted > 50_000, "{counters:?}");
    // Repairs of nobody: a flow of the other direction each.
    let repair: Vec<u8> = [1, 8, 1, 0].into_iter().cycle().take(28).collect();
    let mut world: HashMap<u32, ()> = HashMap::new();
    for number in 0..100_000u32 {
        let mut packet = (0x1f00_0000 | number).to_be_bytes().to_vec();
        packet.extend(&repair);
        gateway.on_remote(START_NS, &frame(1, 1, &packet), &mut |_| {
            world.insert(number, ());
        });
    }
    assert!(world.is_empty(), "repairs reach no host");
    assert!(gateway.flows() <= 2 * 4096);
}

#[test]
fn whatever_comes_nothing_panics() {
    let mut rng = SplitMix64::new(9);
    let mut gateway = gateway(Some("mds:4:2")).unwrap();
    let mut now_ns = START_NS;
    for _ in 0..200_000 {
        now_ns += rng.below(100_000);
        let len = 4 * (3 + rng.below(40) as usize);
        let mut packet = rng.bytes(len);
        packet[0] = [0x1f, 4, 6, 7, 8, 10, 0x11, 12, 13, 14][rng.below(10) as usize];
        if packet[0] == 0x1f {
            packet[1..4].copy_from_slice(&[0, 0, rng.below(3) as u8]);
            packet[4] = 1 + rng.below(3) as u8;
            packet[5..7].fill(rng.below(4) as u8);
        } else {
            packet[1..4].copy_from_slice(&[0, 0xff, 0xff]);
            packet[4..8].copy_from_slice(&[0, 0, 0, rng.below(3) as u8]);
            packet[8..11].copy_from_slice(&[0; 3]);
        }
        packet[11] &= 0x1f;
        let mut bytes = frame(rng.below(2) as usize, 1, &packet);
        if rng.below(8) == 0 {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        match rng.below(2) {
            0 => gateway.on_local(now_ns, &bytes, &mut |_| {}),
            _ => gateway.on_remote(now_ns, &bytes, &mut |_| {}),
        }
        if gateway.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
            gateway.on_timeout(now_ns, &mut |_| {});
        }
    }
}
