//! An unreliable source finds the rate of a path through a bottleneck, and shares it with its target's other sources.

use lacuna_datagram::{Config, Endpoint, Operation, Run, SendWork, Target, Verb};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

const RATE_BITS_PER_S: u64 = 50_000_000;
const DELAY_NS: u64 = 10_000_000;
/// What waits before the bottleneck, at most.
const QUEUE_NS: u64 = 20_000_000;
const MESSAGE_BYTES: u64 = 50_000;

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 7407))
}

fn pop_due<T>(queue: &mut VecDeque<(u64, T, Vec<u8>)>, now_ns: u64) -> Option<(u64, T, Vec<u8>)> {
    queue.front().is_some_and(|(due_ns, ..)| *due_ns <= now_ns).then(|| queue.pop_front()).flatten()
}

/// Bytes that came of each source in the last two of three seconds, and the share of packets that the queue had no
/// room for.
fn run(controller: Option<ControllerConfig>, sources: usize) -> (Vec<u64>, f64) {
    let keys = Arc::new(KeyTable::new(1));
    let config = RegionConfig { has_validity: false, is_exclusive: false };
    let region = Region::new(vec![0; MESSAGE_BYTES as usize], config);
    let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
    let key = keys.register(&region, 0..MESSAGE_BYTES, access, || 77).unwrap();
    let mut target = Endpoint::new(Config::default(), keys, 1);
    let mut all: Vec<_> = (1..=sources)
        .map(|at| {
            let config = Config { controller, ..Config::default() };
            let mut source = Endpoint::new(config, Arc::new(KeyTable::new(2)), 10 + at as u64);
            let peer = source.peer(address(0)).unwrap();
            (source, peer)
        })
        .collect();
    let mut there: VecDeque<(u64, usize, Vec<u8>)> = VecDeque::new();
    let mut back: VecDeque<(u64, SocketAddr, Vec<u8>)> = VecDeque::new();
    let (mut free_ns, mut sent, mut dropped) = (0u64, 0u64, 0u64);
    let mut came = vec![0; sources];
    let mut runs: Vec<Run> = Vec::new();
    let packets = |runs: &mut Vec<Run>| {
        let mut packets = Vec::new();
        for run in runs.drain(..) {
            for at in 0..run.len() {
                let mut packet = vec![0; run.packet_bytes(at)];
                let bytes = run.emit(at, &mut packet);
                packet.truncate(bytes);
                packets.push(packet);
            }
        }
        packets
    };
    for now_ns in (0..3_000_000_000u64).step_by(200_000) {
        for (at, (source, peer)) in all.iter_mut().enumerate() {
            while source.stats().messages_waiting < 4 {
                let verb = Verb::WriteRecord {
                    data: vec![1; MESSAGE_BYTES as usize].into(),
                    to: Target { key, offset: 0 },
                };
                source.post_send(now_ns, SendWork::new(0, *peer, verb)).unwrap();
            }
            source.on_timeout(now_ns);
            // Without a controller it would never end.
            let mut bursts = 4;
            while bursts > 0 && source.poll_transmit(now_ns, 16, &mut runs).is_some() {
                bursts -= 1;
                for packet in packets(&mut runs) {
                    sent += 1;
                    if free_ns > now_ns + QUEUE_NS {
                        dropped += 1;
                        continue;
                    }
                    let wire_ns = (packet.len() as u64 + 28) * 8_000_000_000 / RATE_BITS_PER_S;
                    free_ns = free_ns.max(now_ns) + wire_ns;
                    there.push_back((free_ns + DELAY_NS, at, packet));
                }
            }
            while source.poll_done().is_some() {}
        }
        while let Some((_, at, packet)) = pop_due(&mut there, now_ns) {
            target.on_datagram(now_ns, address(at + 1), &packet);
        }
        target.on_timeout(now_ns);
        while let Some(to) = target.poll_transmit(now_ns, 16, &mut runs) {
            let packets = packets(&mut runs).into_iter();
            back.extend(packets.map(|packet| (now_ns + DELAY_NS, to, packet)));
        }
        while let Some((_, to, packet)) = pop_due(&mut back, now_ns) {
            let at = (0..sources).find(|at| address(at + 1) == to).unwrap();
            all[at].0.on_datagram(now_ns, address(0), &packet);
        }
        while let Some(done) = target.poll_done() {
            assert_eq!(done.operation, Operation::Record);
            let source = done.arrived.unwrap().source;
            let at = (0..sources).find(|at| address(at + 1) == source).unwrap();
            came[at] += if now_ns > 1_000_000_000 { done.bytes } else { 0 };
        }
    }
    (came, dropped as f64 / sent as f64)
}

const ALL_BYTES: u64 = RATE_BITS_PER_S / 8 * 2;

#[test]
fn a_controller_fills_the_path_and_loses_little() {
    let (came, lost) = run(Some(ControllerConfig::Bbr), 1);
    assert!(came[0] > ALL_BYTES * 85 / 100, "{came:?} of {ALL_BYTES}");
    assert!(lost < 0.02, "{lost}");
    let (_, lost) = run(None, 1);
    assert!(lost > 0.5, "without one it is flooded: {lost}");
}

#[test]
fn several_sources_share_a_path() {
    let (came, lost) = run(Some(ControllerConfig::Cubic), 3);
    let sum: u64 = came.iter().sum();
    assert!(sum > ALL_BYTES * 75 / 100, "{came:?} of {ALL_BYTES}");
    assert!(came.iter().all(|bytes| *bytes > sum / 10), "{came:?}");
    assert!(lost < 0.05, "{lost}");
}

#[test]
fn a_given_rate_holds_for_messages_that_are_posted_one_at_a_time() {
    let config = Config { rate_bits_per_s: Some(RATE_BITS_PER_S), ..Config::default() };
    let mut source = Endpoint::new(config, Arc::new(KeyTable::new(1)), 1);
    let peer = source.peer(address(2)).unwrap();
    let (mut now_ns, mut bytes) = (1_000_000_000, 0);
    let until_ns = now_ns + 100_000_000;
    let mut runs: Vec<Run> = Vec::new();
    while now_ns < until_ns {
        if source.stats().messages_waiting == 0 {
            let verb = Verb::Send { data: vec![1; 500].into() };
            source.post_send(now_ns, SendWork::new(1, peer, verb)).unwrap();
        }
        while source.poll_transmit(now_ns, 64, &mut runs).is_some() {
            let packets = runs.drain(..);
            bytes += packets.map(|run| run.packet_bytes(0) as u64 + 28).sum::<u64>();
        }
        while source.poll_done().is_some() {}
        now_ns += 10_000;
        source.on_timeout(now_ns);
    }
    let due = RATE_BITS_PER_S / 8 / 10;
    assert!((due * 9 / 10..due * 11 / 10).contains(&bytes), "{bytes} of {due} bytes");
    // An idle source is forgotten soon.
    while source.poll_transmit(now_ns + 10_000_000, 64, &mut runs).is_some() {}
    assert!(source.poll_transmit(now_ns + 20_000_000, 64, &mut runs).is_none());
    assert_eq!(source.stats().active_peers, 0);
}
