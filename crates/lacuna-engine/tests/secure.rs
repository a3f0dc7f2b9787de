//! Queue pairs whose packets are encrypted, in virtual time: everything works as in clear, keys are replaced on the way,
//! and whoever has the path but not the keys can do no more than lose packets.

use lacuna_engine::Event;
use lacuna_engine::harness::{Flights, Handle, Links, Net, Packet, Sent, Wire};
use lacuna_link::{Fraction, Loss, PipeConfig};
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_proto::modes::{Mode, auto};
use lacuna_proto::qp::{Event as QpEvent, Failure, QpConfig, SendFailure, SendId, SendRequest};
use lacuna_secure::{Association, Cipher, End, Limits, Secret};
use lacuna_wire::{RejectKind, Seal};
use std::sync::atomic::Ordering;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn config(queue_pair: u32, mode: Mode, mtu_bytes: u32, seal: Seal) -> QpConfig {
    let geometry =
        GeometryConfig { mtu_bytes, seal, code: mode.code(), ..GeometryConfig::default() };
    QpConfig {
        geometry: Geometry::new(geometry).expect("a valid geometry"),
        mode,
        policy: auto::plan,
        controller: ControllerConfig::Bbr,
        rto: RtoConfig::default(),
        queue_pair,
        rkey: 0x1000 + queue_pair,
        qkey: 0x2000 + queue_pair,
        first_psn: 7,
        credit_bytes: 64 << 20,
        silence_max_ns: 30 * SECOND,
    }
}

/// Two connected queue pairs with the same secret, and the same number, so that what is reflected finds one.
fn connect(net: &mut Net, mode: Mode, mtu_bytes: u32, limits: Limits) -> [Handle; 2] {
    let hosts = [net.add_host(1), net.add_host(1)];
    let ends = net.connect(hosts, [1, 1].map(|number| config(number, mode, mtu_bytes, Seal::Aead)));
    for (handle, end) in ends.iter().zip([End::Connecting, End::Accepting]) {
        let secret = Secret::new([5; 32]);
        handle.books.secure(Association::new(
            Cipher::default(),
            secret,
            end,
            1,
            limits,
            net.now_ns(),
        ));
    }
    ends
}

fn data(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}

fn is_sent(from: &Handle, id: SendId) -> bool {
    from.qp().send_status(id).expect("kept").outcome == Some(Ok(()))
}

/// Sends messages of these lengths both ways, checks what came, and says how long it took.
fn exchange(net: &mut Net, wire: &mut impl Wire, ends: &[Handle; 2], lens: &[usize]) -> u64 {
    let since_ns = net.now_ns();
    for (seed, len) in lens.iter().enumerate() {
        let mut under_way = Vec::new();
        for (from, to) in [(0, 1), (1, 0)] {
            let [from, to] = [&ends[from], &ends[to]];
            let buffer = Placement::from_vec(vec![0xCA; *len]);
            let posted = to.qp().post_receive(net.now_ns(), buffer).expect("a slot is free");
            net.kick(to);
            let data = SendBuffer::from(data(seed, *len));
            let request = SendRequest { data, immediate: None, deadline_ns: None };
            let id = from.qp().queue_send(request).expect("it may wait");
            net.kick(from);
            under_way.push((from, to, posted, id));
        }
        let all_sent = |_: &mut Net| under_way.iter().all(|(from, _, _, id)| is_sent(from, *id));
        assert!(net.run_until(60 * SECOND, wire, all_sent), "{len} bytes never came");
        for (_, to, posted, _) in under_way {
            let mut qp = to.qp();
            posted.parts.iter().for_each(|part| _ = qp.table().close(part.number()));
            qp.on_receive_closed(net.now_ns(), &posted);
            drop(qp);
            net.kick(to);
            assert_eq!(posted.into_vec().expect("closed"), data(seed, *len), "{len} bytes");
        }
    }
    net.now_ns() - since_ns
}

fn link(loss_ppm: u32) -> PipeConfig {
    PipeConfig {
        delay_ns: 5 * MS,
        rate_bits_per_s: Some(1_000_000_000),
        queue_bytes: 16 << 20,
        loss: Loss::Independent(Fraction::from_ppm(loss_ppm)),
        ..PipeConfig::default()
    }
}

fn rejected(net: &mut Net, host: usize) -> Vec<(RejectKind, u64)> {
    let counters = net.host(host).engine().counters().clone();
    let count = |kind: RejectKind| counters.rejected[kind.as_index()].load(Ordering::Relaxed);
    RejectKind::ALL
        .into_iter()
        .map(|kind| (kind, count(kind)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[test]
fn every_mode_moves_the_same_bytes_as_in_clear_while_keys_are_replaced_and_packets_lost() {
    for mode in ["sr", "ec:mds:32:8", "auto"] {
        for mtu_bytes in [1000, 1400, 4096] {
            let mode: Mode = mode.parse().expect("a mode");
            let (mut net, mut links) = (Net::new(), Links::new(link(200_000), 3));
            let limits = Limits { packets: 100, ..Limits::default() };
            let ends = connect(&mut net, mode, mtu_bytes, limits);
            exchange(&mut net, &mut links, &ends, &[0, 1, 5000, 1 << 20, 3]);
            assert!(links.dropped() > 100);
            for end in &ends {
                let association = end.books.association().expect("it was set");
                assert!(association.epoch() >= 3, "{mode}: {} keys", association.epoch());
                assert_eq!(association.failures(), 0, "{mode}");
            }
            for host in 0..2 {
                // What was on its way when keys were replaced twice: none here.
                assert_eq!(rejected(&mut net, host), [], "{mode}");
            }
        }
    }
}

/// Sits on the path and has no keys: after each packet come a forged one, repeated ones and its like.
struct Attacker {
    links: Links,
    seen: Vec<Vec<u8>>,
    added: u64,
}

impl Wire for Attacker {
    fn carry(&mut self, now_ns: u64, sent: Sent, flights: &mut Flights) {
        let Packet::Bytes(bytes) = &sent.packet else { panic!("hosts with bytes") };
        let (from, to, bytes) = (sent.from, sent.to, bytes.clone());
        self.links.carry(now_ns, sent, flights);
        let mut add = |from, to, bytes| {
            self.added += 1;
            // Behind the packet itself.
            flights.fly(now_ns + 6 * MS, from, to, Packet::Bytes(bytes), true);
        };
        let mut forged = bytes.clone();
        let bit = (self.seen.len() * 7) % (bytes.len() * 8);
        forged[bit / 8] ^= 1 << (bit % 8);
        add(from, to, forged);
        add(from, to, bytes.clone());
        add(to, from, bytes.clone());
        add(from, to, bytes[..bytes.len() - 4].to_vec());
        if let Some(old) = self.seen.get(self.seen.len() / 2) {
            add(from, to, old.clone());
        }
        self.seen.push(bytes);
    }
}

#[test]
fn an_attacker_on_the_path_moves_no_bit_no_window_and_no_timer() {
    let lens = [0, 700, 50_000, 400_000];
    let undisturbed = {
        let (mut net, mut links) = (Net::new(), Links::new(link(0), 3));
        let ends = connect(&mut net, Mode::SR, 1400, Limits::default());
        exchange(&mut net, &mut links, &ends, &lens)
    };
    let mut net = Net::new();
    let mut attacker = Attacker { links: Links::new(link(0), 3), seen: Vec::new(), added: 0 };
    let ends = connect(&mut net, Mode::SR, 1400, Limits::default());
    let took_ns = exchange(&mut net, &mut attacker, &ends, &lens);
    assert_eq!(took_ns, undisturbed, "not a nanosecond later");
    net.run_until(10 * MS, &mut attacker, |_| false);
    let refused: u64 =
        (0..2).flat_map(|host| rejected(&mut net, host)).map(|(_, count)| count).sum();
    assert!(
        attacker.added > 1000 && refused * 10 > attacker.added * 9,
        "{refused} of {}",
        attacker.added
    );
    for (host, end) in ends.iter().enumerate() {
        let stats = end.qp().stats();
        assert_eq!(stats.channels.iter().map(|channel| channel.duplicates).sum::<u64>(), 0);
        let kinds: Vec<_> = rejected(&mut net, host).into_iter().map(|(kind, _)| kind).collect();
        assert!(
            kinds.contains(&RejectKind::Forged) && kinds.contains(&RejectKind::Repeated),
            "{kinds:?}"
        );
    }
}

#[test]
fn packets_in_clear_are_nothing_to_a_queue_pair_with_keys_and_the_other_way_round() {
    for secure in [0, 1] {
        let (mut net, mut links) = (Net::new(), Links::new(link(0), 3));
        let hosts = [net.add_host(1), net.add_host(1)];
        let seal = |end| if end == secure { Seal::Aead } else { Seal::Crc32c };
        let ends =
            net.connect(hosts, [0, 1].map(|end| config(end as u32 + 1, Mode::SR, 1000, seal(end))));
        let secret = Secret::new([5; 32]);
        let association =
            Association::new(Cipher::default(), secret, End::Connecting, 1, Limits::default(), 0);
        ends[secure].books.secure(association);
        let posted =
            ends[1].qp().post_receive(net.now_ns(), Placement::from_vec(vec![7; 1000])).unwrap();
        let data = SendBuffer::from(vec![1; 1000]);
        ends[0].qp().queue_send(SendRequest { data, immediate: None, deadline_ns: None }).unwrap();
        ends.iter().for_each(|end| net.kick(end));
        net.run_until(SECOND, &mut links, |_| false);
        assert!(!posted.is_complete());
        for host in 0..2 {
            assert!(!rejected(&mut net, host).is_empty(), "host {host}");
        }
    }
}

/// Carries packets until it is cut, and then those of the first host alone.
struct Cut {
    links: Links,
    is_cut: bool,
}

impl Wire for Cut {
    fn carry(&mut self, now_ns: u64, sent: Sent, flights: &mut Flights) {
        if !self.is_cut || sent.from.host == 0 {
            self.links.carry(now_ns, sent, flights);
        }
    }
}

#[test]
fn a_queue_pair_whose_key_is_used_up_fails_and_says_so() {
    for mode in ["sr", "raw"] {
        let mode: Mode = mode.parse().expect("a mode");
        let mut net = Net::new();
        let mut wire = Cut { links: Links::new(link(0), 3), is_cut: false };
        let limits = Limits { packets: 50, packets_max: 60, ..Limits::default() };
        let ends = connect(&mut net, mode, 1000, limits);
        let into = Placement::from_vec(vec![0; 1 << 20]);
        let posted = ends[1].qp().post_receive(net.now_ns(), into).expect("a slot is free");
        net.kick(&ends[1]);
        let can_send = |_: &mut Net| ends[0].qp().is_clear_to_send();
        assert!(net.run_until(SECOND, &mut wire, can_send));
        wire.is_cut = true;
        let data = SendBuffer::from(data(1, 1 << 20));
        let request = SendRequest { data, immediate: None, deadline_ns: None };
        let id = ends[0].qp().queue_send(request).expect("it may wait");
        net.kick(&ends[0]);
        let has_failed = |_: &mut Net| ends[0].qp().failure().is_some();
        assert!(net.run_until(29 * SECOND, &mut wire, has_failed), "{mode}: it goes on");
        let failure = Failure::KeySpent { packets: 60 };
        assert_eq!(ends[0].qp().failure(), Some(failure), "{mode}");
        let outcome = ends[0].qp().send_status(id).expect("kept").outcome;
        assert_eq!(outcome, Some(Err(SendFailure::Failed(failure))), "{mode}");
        let told = net.host(0).take_events();
        assert!(told.iter().any(|event| matches!(event, Event::QueuePair(_, QpEvent::Failed(found)) if *found == failure)));
        net.run_until(SECOND, &mut wire, |_| false);
        assert!(!posted.is_complete());
    }
}
