//! Engines joined in virtual time: as many as wanted, over links with losses, with and without bytes.

use lacuna_engine::harness::{Handle, Links, Net};
use lacuna_link::{Fraction, Loss, PipeConfig};
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::{SendBuffer, Zeros};
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_proto::modes::{Mode, auto};
use lacuna_proto::qp::{PostedReceive, QpConfig, SendId, SendRequest};
use std::sync::Arc;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MTU_BYTES: u32 = 4096;
/// The most that is asked for at once: by the encoder, a submessage.
const RANGE_BYTES: usize = 4 << 20;

fn config(queue_pair: u32, mode: Mode) -> QpConfig {
    let geometry =
        GeometryConfig { mtu_bytes: MTU_BYTES, code: mode.code(), ..GeometryConfig::default() };
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

/// A connection of the first of two hosts to the second, by queue pairs of these numbers.
fn connect(net: &mut Net, hosts: [usize; 2], numbers: [u32; 2], mode: Mode) -> [Handle; 2] {
    net.connect(hosts, numbers.map(|number| config(number, mode)))
}

fn send(net: &mut Net, from: &Handle, data: SendBuffer) -> SendId {
    let request = SendRequest { data, immediate: None, deadline_ns: None };
    let id = from.qp().queue_send(request).expect("it may wait");
    net.kick(from);
    id
}

fn post(net: &mut Net, to: &Handle, buffer: Placement) -> PostedReceive {
    let posted = to.qp().post_receive(net.now_ns(), buffer).expect("a slot is free");
    net.kick(to);
    posted
}

/// Closes a receive and takes its bytes.
fn take(net: &mut Net, to: &Handle, posted: PostedReceive) -> Vec<u8> {
    let mut qp = to.qp();
    posted.parts.iter().for_each(|part| _ = qp.table().close(part.number()));
    qp.on_receive_closed(net.now_ns(), &posted);
    drop(qp);
    net.kick(to);
    posted.into_vec().expect("nobody else holds a closed receive")
}

fn is_sent(from: &Handle, id: SendId) -> bool {
    from.qp().send_status(id).expect("kept").outcome == Some(Ok(()))
}

fn lossy() -> PipeConfig {
    PipeConfig {
        delay_ns: 5 * MS,
        rate_bits_per_s: Some(10_000_000_000),
        queue_bytes: 16 << 20,
        loss: Loss::Independent(Fraction::from_ppm(1000)),
        ..PipeConfig::default()
    }
}

/// What a transfer over such a link took, and the packets that were lost.
fn transfer(mode: Mode, len: usize, has_bytes: bool) -> (u64, u64) {
    let (mut net, mut links) = (Net::new(), Links::new(lossy(), 5));
    let hosts = [(); 2].map(|()| match has_bytes {
        true => net.add_host(1),
        false => net.add_host_without_bytes(1),
    });
    let [from, to] = connect(&mut net, hosts, [1, 1], mode);
    let data = SendBuffer::new(Arc::new(Zeros::new(len, RANGE_BYTES)));
    let buffer = match has_bytes {
        true => Placement::from_vec(vec![1; len]),
        false => Placement::phantom(len),
    };
    let posted = post(&mut net, &to, buffer);
    let id = send(&mut net, &from, data);
    let since_ns = net.now_ns();
    assert!(net.run_until(60 * SECOND, &mut links, |_| is_sent(&from, id)), "{mode}");
    assert!(posted.is_complete());
    if has_bytes {
        assert_eq!(take(&mut net, &to, posted), vec![0; len]);
    }
    (net.now_ns() - since_ns, links.dropped())
}

#[test]
fn two_engines_move_a_gigabyte_through_a_lossy_link() {
    let (took_ns, dropped) = transfer(Mode::SR, 1 << 30, false);
    assert!(dropped > 100, "{dropped} packets were lost");
    // 0.86 s at the link's rate; the start and the repairs of the end take some round trips.
    assert!((860 * MS..1500 * MS).contains(&took_ns), "{} ms", took_ns / MS);
}

#[test]
fn packets_without_bytes_fare_as_packets_with() {
    for mode in ["raw", "sr", "ec:mds:32:8", "auto"] {
        let mode: Mode = mode.parse().expect("a mode");
        if mode.is_reliable() {
            assert_eq!(transfer(mode, 3_000_001, false), transfer(mode, 3_000_001, true), "{mode}");
        }
    }
}

#[test]
fn many_engines_are_joined_each_to_each() {
    const HOSTS: usize = 5;
    const BYTES: usize = 200_000;
    let (mut net, mut links) = (Net::new(), Links::new(lossy(), 1));
    (0..HOSTS).for_each(|_| _ = net.add_host(1));
    links.set(0, 1, PipeConfig { delay_ns: 50 * MS, ..lossy() });
    let mut transfers = Vec::new();
    for from in 0..HOSTS {
        for to in (0..HOSTS).filter(|to| *to != from) {
            // A number is one host's: those of its connections to others, and of theirs to it.
            let numbers = [1 + to as u32, 101 + from as u32];
            let [sender, receiver] = connect(&mut net, [from, to], numbers, Mode::SR);
            let data: Vec<u8> = (0..BYTES).map(|at| (at * (1 + from) + to) as u8).collect();
            let posted = post(&mut net, &receiver, Placement::from_vec(vec![0; BYTES]));
            let id = send(&mut net, &sender, data.clone().into());
            transfers.push((sender, id, receiver, posted, data));
        }
    }
    let all_sent = |_: &mut Net| transfers.iter().all(|(sender, id, ..)| is_sent(sender, *id));
    assert!(net.run_until(10 * SECOND, &mut links, all_sent));
    for (_, _, receiver, posted, data) in transfers {
        assert_eq!(take(&mut net, &receiver, posted), data);
    }
}
