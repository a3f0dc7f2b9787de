//! An engine that is stepped by hand.

use super::*;
use crate::harness::{Links, Net, Place};
use core::net::{Ipv4Addr, SocketAddr};
use lacuna_datapath::{BurstBuffers, MemNetwork};
use lacuna_link::PipeConfig;
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_proto::modes::{Mode, auto};
use lacuna_proto::qp::{QpConfig, SendRequest};
use lacuna_wire::Seal;

const SOCKET_BYTES: usize = 1 << 20;

/// No time passes.
struct Stopped;

impl Time for Stopped {
    fn now_ns(&self) -> u64 {
        0
    }
}

#[test]
fn an_engine_leaves_no_socket_alone_that_it_has_not_emptied() {
    let network = MemNetwork::new();
    let bind = |bytes| network.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), bytes).unwrap();
    let (own, mut sender) = (bind(SOCKET_BYTES), bind(0));
    let to = own.local_addr();
    let mut engine =
        Engine::new(Stopped, vec![(0, Box::new(own))], Duration::ZERO, Secret::new([0; 32]));
    let mut buffers = BurstBuffers::new();
    const BURSTS: usize = 500;
    let mut send = || {
        let mut burst = buffers.start(to);
        (0..FEW_PACKETS).for_each(|_| burst.push(&[], &[0; 20], &[]));
        sender.send(0, &burst).unwrap();
    };
    (0..BURSTS).for_each(|_| send());
    let receive = |engine: &mut Engine<Stopped>| {
        engine.receive(0, 0, &mut |event| panic!("nothing to tell, not {event:?}"))
    };
    // Unknown packets, but counted.
    let taken = |engine: &Engine<Stopped>| {
        engine.counters.rejected.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>()
    };
    let mut steps = 0;
    loop {
        assert!(receive(&mut engine));
        let wait_ns = engine.idle.moderation.take(0, SOCKET_BYTES as u64);
        if taken(&engine) == (BURSTS * FEW_PACKETS) as u64 {
            break;
        }
        assert_eq!(wait_ns, None);
        steps += 1;
    }
    assert!(steps > 1);
    // The step before may have read as many as it may. This one does not.
    send();
    assert!(receive(&mut engine));
    assert!(engine.idle.moderation.take(0, SOCKET_BYTES as u64).is_some());
}

/// Without coalescing each packet is a batch of its own; the queue pair's lock is taken once per
/// receive call all the same.
#[test]
fn packets_of_one_receive_call_take_the_lock_once() {
    const PACKETS: usize = 64;
    let link = PipeConfig { delay_ns: 1_000_000, ..PipeConfig::default() };
    let (mut net, mut links) = (Net::new(), Links::new(link, 1));
    let hosts = [(); 2].map(|()| net.add_host(1));
    let [from, to] = net.connect(hosts, [1, 2].map(qp_config));
    let posted = to.qp().post_receive(net.now_ns(), Placement::from_vec(vec![0; PACKETS * MTU]));
    let _posted = posted.expect("a slot is free");
    net.kick(&to);
    net.run_until(100_000_000, &mut links, |_| false);
    let request =
        SendRequest { data: vec![7; PACKETS * MTU].into(), immediate: None, deadline_ns: None };
    from.qp().queue_send(request).expect("the receive is posted");
    let run = from.qp().poll_transmit(net.now_ns(), 0, PACKETS as u32).expect("the window is open");
    assert_eq!(run.len(), PACKETS);
    for (header, payload) in run.packets_from(0) {
        let seal = Seal::default();
        let mut bytes = vec![0; seal.packet_bytes(&header)];
        seal.emit_packet(&header, &mut bytes, payload);
        let [from, to] = hosts.map(|host| Place { host, channel: 0 });
        net.inject(from, to, bytes);
    }
    net.deliver_now();
    let before = to.books.locks.load(Ordering::Relaxed);
    let now_ns = net.now_ns();
    assert!(net.host(hosts[1]).engine().receive(now_ns, 0, &mut |_| {}));
    assert_eq!(to.books.locks.load(Ordering::Relaxed) - before, 1);
    assert_eq!(to.qp().stats().channels[0].packets, PACKETS as u64);
}

const MTU: usize = 1024;

fn qp_config(queue_pair: u32) -> QpConfig {
    let geometry = GeometryConfig { mtu_bytes: MTU as u32, ..GeometryConfig::default() };
    QpConfig {
        geometry: Geometry::new(geometry).expect("a valid geometry"),
        mode: Mode::SR,
        policy: auto::plan,
        controller: ControllerConfig::Fixed { rate_bits_per_s: 10_000_000_000 },
        rto: RtoConfig::default(),
        queue_pair,
        rkey: 1,
        qkey: 2,
        first_psn: 3,
        credit_bytes: 4 << 20,
        silence_max_ns: 30_000_000_000,
    }
}
