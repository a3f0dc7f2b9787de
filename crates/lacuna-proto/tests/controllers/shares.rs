//! How a path is shared: by two flows of one kind, and beside TCP with CUBIC and with BBR version 1,
//! whoever comes first.

use crate::bottleneck::{Bottleneck, Link, MS, SECOND, Stalls, WIRE_BYTES};
use lacuna_proto::path::controller::ControllerConfig;

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
