//! How a path is shared: by two flows of one kind, and beside TCP with CUBIC and with BBR version 1,
//! whoever comes first.

use crate::bottleneck::{Bottleneck, Link, MS, SECOND, Stalls, WIRE_BYTES};
use lacuna_path::controller::ControllerConfig;

const BBR: ControllerConfig = ControllerConfig::Bbr;

#[derive(Debug, Clone, Copy)]
enum Neighbour {
    Own,
    TcpCubic,
    TcpBbr,
}

/// Of what both receive in 40 s, after 20 s, the first one's share in thousandths; and the mean queue.
/// Begins each after so many seconds.
fn share(link: Link, neighbour: Neighbour, begin_s: [u64; 2], seed: u64) -> (u64, u64) {
    let mut path = Bottleneck::new(link, seed);
    path.add(BBR, None, u64::MAX, begin_s[0] * SECOND);
    match neighbour {
        Neighbour::Own => {
            path.add(BBR, None, u64::MAX, begin_s[1] * SECOND);
        }
        Neighbour::TcpCubic => {
            path.add(ControllerConfig::Cubic, None, u64::MAX, begin_s[1] * SECOND);
        }
        Neighbour::TcpBbr => path.add_tcp_bbr(begin_s[1] * SECOND),
    }
    let received = |path: &Bottleneck| {
        let of = |flow: usize| path.flows[flow].received_packets * WIRE_BYTES;
        (of(0), path.tcp.as_ref().map_or_else(|| of(1), crate::tcp::TcpBbr::delivered_bytes))
    };
    path.run_for(20 * SECOND);
    path.mean_queue_permille();
    let before = received(&path);
    path.run_for(40 * SECOND);
    let after = received(&path);
    let (ours, others) = (after.0 - before.0, after.1 - before.1);
    (ours * 1000 / (ours + others), path.mean_queue_permille())
}

fn shares(neighbour: Neighbour, cells: &[(u64, u64)], allowed: std::ops::RangeInclusive<u64>) {
    let stalls = Stalls { every_ns: 40 * MS, lasts_ns: 2 * MS };
    for (mbit, rtt_ms) in cells.iter().copied() {
        for begin_s in [[0, 0], [3, 0], [0, 5]] {
            for (seed, stalls) in [(11, None), (13, Some(stalls))] {
                let link = Link { stalls, ..Link::new(mbit, rtt_ms * MS, 100) };
                let (share, _) = share(link, neighbour, begin_s, seed);
                let what = format!("{mbit} Mbit/s, {rtt_ms} ms, {neighbour:?}, from {begin_s:?} s");
                assert!(allowed.contains(&share), "{what}: {share}");
            }
        }
    }
}

#[test]
fn two_flows_share_evenly_whoever_came_first() {
    // Jain's index is 0.92 at 350.
    shares(Neighbour::Own, &[(100, 40), (1000, 10), (1000, 40), (1000, 100)], 350..=650);
}

#[test]
fn beside_tcp_cubic_each_has_its_share() {
    shares(Neighbour::TcpCubic, &[(100, 40), (1000, 10), (1000, 40)], 333..=667);
}

#[test]
fn beside_tcp_bbr_each_has_its_share() {
    // Linux' own takes a little more than this model of it: see `tcp.rs`.
    shares(Neighbour::TcpBbr, &[(100, 40), (1000, 40)], 333..=700);
}

/// A long flow and many short ones begin together. Of what the link carries in the ten round trips
/// after the last short one, the share of the long one, in thousandths.
fn left_alone(link: Link, flows: usize, is_one_owner: bool) -> u64 {
    let mut path = Bottleneck::new(link, 5);
    if is_one_owner {
        path = path.of_one_owner();
    }
    let long = path.add(BBR, None, 1 << 40, 0);
    for flow in 1..=flows {
        path.add(BBR, None, 500, flow as u64 * MS / 10);
    }
    while path.flows.iter().skip(1).any(|flow| flow.done_ns.is_none()) {
        path.run_for(MS);
    }
    let before = path.flows[long].received_packets;
    path.run_for(10 * link.rtt_ns);
    let received = (path.flows[long].received_packets - before) * WIRE_BYTES;
    received * 1000 / (10 * link.path_bytes())
}

#[test]
fn what_many_leave_is_taken_at_once_by_one_of_the_same_owner() {
    for (rtt_ms, flows) in [(10, 10), (10, 50), (40, 10), (40, 50), (100, 50)] {
        let used = left_alone(Link::new(1000, rtt_ms * MS, 100), flows, true);
        assert!(used >= 850, "{rtt_ms} ms, {flows} flows: {used}");
    }
}

/// A long flow, beside it so many of short messages, one at a time: the mean queue, in thousandths of
/// the path.
fn beside_messages(link: Link, flows: usize, is_one_owner: bool) -> u64 {
    let mut path = Bottleneck::new(link, 5);
    if is_one_owner {
        path = path.of_one_owner();
    }
    path.add(BBR, None, 1 << 40, 0);
    let short: Vec<_> = (0..flows).map(|_| path.add(BBR, None, 20, SECOND)).collect();
    path.run_for(2 * SECOND);
    path.mean_queue_permille();
    for _ in 0..50 {
        for flow in &short {
            path.give(*flow, 20);
        }
        path.run_for(5 * link.rtt_ns);
    }
    path.mean_queue_permille()
}

#[test]
fn messages_that_come_and_go_leave_nothing_to_ask_for() {
    for (mbit, rtt_ms, flows) in [(100, 40, 3), (1000, 10, 8), (1000, 40, 3), (1000, 100, 1)] {
        let link = Link::new(mbit, rtt_ms * MS, 100);
        let queue = |is_one_owner| beside_messages(link, flows, is_one_owner);
        let (own, strangers) = (queue(true), queue(false));
        assert!(own <= strangers + 5, "{mbit} Mbit/s, {rtt_ms} ms, {flows}: {own}, {strangers}");
    }
}

#[test]
fn a_crowd_of_one_owner_ends_when_the_link_has_carried_it() {
    let permille_of_link_time = |mbit: u64, flows: u64| {
        let link = Link::new(mbit, 40 * MS, 100);
        let mut path = Bottleneck::new(link, 5).of_one_owner();
        let flows: Vec<_> = (0..flows).map(|at| path.add(BBR, None, 92, at * MS / 3)).collect();
        path.run_until_done(60 * SECOND);
        let ended_ns = flows.iter().map(|flow| path.flows[*flow].done_ns.expect("it ends")).max();
        let on_link_ns = flows.len() as u64 * 92 * WIRE_BYTES * 8 * 1000 / mbit;
        (ended_ns.unwrap() - SECOND) * 1000 / on_link_ns
    };
    for (mbit, flows) in [(1000, 1000), (100, 300), (100, 100)] {
        // One flow more or less and the last one ends sooner or later: the median of five.
        let mut took =
            [92, 96, 100, 104, 108].map(|part| permille_of_link_time(mbit, flows * part / 100));
        took.sort_unstable();
        // Without shares tenfold.
        assert!(took[2] <= 1500, "{mbit}: {took:?} thousandths of the time on the link");
    }
}
