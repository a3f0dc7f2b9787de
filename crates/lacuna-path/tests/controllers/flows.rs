//! What flows do to a path: how much of it they use, how full its queue is, how they share. The table is kept: a change of a controller shows as changed numbers.

use crate::bottleneck::{Bottleneck, Link, MS, Policer, SECOND, Stalls, WIRE_BYTES};
use crate::conformance::all;
use lacuna_path::controller::ControllerConfig;
use std::fmt::Write;

const BBR: ControllerConfig = ControllerConfig::Bbr;
const CUBIC: ControllerConfig = ControllerConfig::Cubic;

struct Seen {
    /// Of what the link's rate and its own loss leave, per mille.
    used_permille: u64,
    /// Mean queue, per mille of what the path holds.
    queue_permille: u64,
    /// Packets of a million that the queue dropped.
    dropped_ppm: u64,
}

/// A flow alone: five round trips to start, then 20 seconds that count.
fn alone(config: ControllerConfig, link: Link) -> Seen {
    let mut path = Bottleneck::new(link, 7);
    let flow = path.add(config, None, u64::MAX, 0);
    path.run_for(5 * link.rtt_ns);
    path.mean_queue_permille();
    let counts = |path: &Bottleneck| {
        let flow = &path.flows[flow];
        (flow.received_packets, flow.sent_packets, flow.overflowed_packets)
    };
    let before = counts(&path);
    path.run_for(20 * SECOND);
    let after = counts(&path);
    let lost_ppm = u64::from(link.loss_ppm) * link.burst_packets;
    let possible = link.rate_bits_per_s / 8 * 20 / 1_000_000 * (1_000_000 - lost_ppm);
    Seen {
        used_permille: (after.0 - before.0) * WIRE_BYTES * 1000 / possible,
        queue_permille: path.mean_queue_permille(),
        dropped_ppm: (after.2 - before.2) * 1_000_000 / (after.1 - before.1).max(1),
    }
}

fn table() -> String {
    let mut text = String::from(
        "A flow alone for 20 s, after five round trips. Used: of what the rate and the path's own loss\n\
         leave, in thousandths. Queue: its mean, in thousandths of what the path holds. Dropped: by the\n\
         queue, of a million packets. Loss is of a million packets, in bursts of so many.\n\n\
         controller  mbit/s  rtt ms  queue %  loss ppm  burst |  used  queue  dropped\n",
    );
    for (mbit, rtt_ms) in [(100, 40), (1000, 1), (1000, 40), (1000, 250), (10_000, 40)] {
        for config in all(mbit * 990_000) {
            for queue_percent in [10, 100, 300] {
                for (loss_ppm, burst) in [(0, 1), (10_000, 1), (50_000, 1), (64_000, 64)] {
                    // Cubic collapses at any loss: one line shows it.
                    let is_enough = config != BBR && (loss_ppm > 10_000 || queue_percent != 100);
                    // A tenth of the shortest path is eight packets, less than a burst.
                    if is_enough || (rtt_ms == 1 && queue_percent == 10) {
                        continue;
                    }
                    // 1e-3 in bursts of 64.
                    let loss_ppm = if burst == 64 { 1000 } else { loss_ppm };
                    let link = Link::new(mbit, rtt_ms * MS, queue_percent).losing(loss_ppm, burst);
                    let seen = alone(config, link);
                    let _ = writeln!(
                        text,
                        "{:10} {mbit:7} {rtt_ms:7} {queue_percent:8} {loss_ppm:9} {burst:6} | {:5} {:6} {:8}",
                        config.name(),
                        seen.used_permille,
                        seen.queue_permille,
                        seen.dropped_ppm,
                    );
                }
            }
        }
    }
    text
}

#[test]
fn the_table_of_rate_round_trip_loss_and_queue_is_as_it_was() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/controllers/table.txt");
    let table = table();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(file, &table).expect("the table can be written");
    }
    let kept = std::fs::read_to_string(file).unwrap_or_default();
    assert!(kept == table, "changed; if that is meant, run with UPDATE_SNAPSHOTS=1:\n{table}");
}

#[test]
fn bbr_fills_a_path_that_loses_and_leaves_its_queue_short() {
    for rtt_ms in [25, 40, 100] {
        for (loss_ppm, burst, least) in
            [(0, 1, 970), (1000, 1, 970), (10_000, 1, 970), (50_000, 1, 950), (1000, 64, 970)]
        {
            let link = Link::new(1000, rtt_ms * MS, 100).losing(loss_ppm, burst);
            let Seen { used_permille, queue_permille, .. } = alone(BBR, link);
            let what = format!("{rtt_ms} ms, loss {loss_ppm} ppm in bursts of {burst}");
            assert!(used_permille >= least, "{what}: used {used_permille}");
            assert!(queue_permille < 300, "{what}: queue {queue_permille}");
        }
    }
}

#[test]
fn a_host_that_stops_its_programs_now_and_then_does_not_slow_bbr_down() {
    // On average 3 ms in 30, up to 8 at a time.
    let stalls = Stalls { every_ns: 50 * MS, lasts_ns: 4 * MS };
    for (mbit, rtt_ms) in [(100, 40), (1000, 40), (1000, 100)] {
        for (loss_ppm, burst, least) in
            [(0, 1, 940), (10_000, 1, 940), (50_000, 1, 920), (1000, 64, 940)]
        {
            let link = Link::new(mbit, rtt_ms * MS, 100).losing(loss_ppm, burst);
            let Seen { used_permille, queue_permille, .. } =
                alone(BBR, Link { stalls: Some(stalls), ..link });
            let what =
                format!("{mbit} Mbit/s, {rtt_ms} ms, loss {loss_ppm} ppm in bursts of {burst}");
            assert!(used_permille >= least, "{what}: used {used_permille}");
            assert!(queue_permille < 300, "{what}: queue {queue_permille}");
        }
    }
    // Much more, over a longer path: what is measured is still the path.
    let stalls = Stalls { every_ns: 40 * MS, lasts_ns: 12 * MS };
    let link = Link { stalls: Some(stalls), ..Link::new(1000, 250 * MS, 100) };
    let Seen { used_permille, .. } = alone(BBR, link);
    assert!(used_permille >= 920, "{used_permille}");
}

#[test]
fn what_a_host_that_stands_still_leaves_in_the_queue_drains_at_once() {
    for (every_us, lasts_us) in [(10_000, 500), (20_000, 500), (20_000, 1000), (50_000, 2000)] {
        let stalls = Stalls { every_ns: every_us * 1000, lasts_ns: lasts_us * 1000 };
        let link = Link { stalls: Some(stalls), ..Link::new(1000, MS, 400) };
        let Seen { used_permille, queue_permille, .. } = alone(BBR, link);
        let what = format!("{lasts_us} us every {every_us}");
        assert!(used_permille >= 920, "{what}: used {used_permille}");
        // Left to stand it is 290 to 450.
        assert!(queue_permille < 270, "{what}: queue {queue_permille}");
    }
}

#[test]
fn loss_slows_cubic_down() {
    let link = Link::new(1000, 40 * MS, 100);
    assert!(alone(CUBIC, link).used_permille > 950);
    assert!(alone(CUBIC, link.losing(1000, 1)).used_permille < 50);
}

#[test]
fn an_overflowing_queue_slows_bbr_down() {
    // Two flows, a small queue: nobody may push on through loss.
    let mut path = Bottleneck::new(Link::new(100, 40 * MS, 15), 3);
    let flows = [0, 1].map(|flow| path.add(BBR, None, u64::MAX, flow * 500 * MS));
    path.run_for(20 * SECOND);
    let before = flows.map(|flow| path.flows[flow].overflowed_packets);
    path.run_for(20 * SECOND);
    for (flow, before) in flows.into_iter().zip(before) {
        let dropped = path.flows[flow].overflowed_packets - before;
        // 167,000 packets pass in this time.
        assert!(dropped < 3000, "{dropped}");
    }
}

#[test]
fn a_queue_too_short_to_be_seen_is_not_overrun() {
    // The same as above, where round trips show nothing. Probing for more costs some.
    for (loss_ppm, queue_percent) in [(0, 2), (10_000, 2), (50_000, 2), (0, 5), (10_000, 5)] {
        let link = Link::new(1000, 40 * MS, queue_percent).losing(loss_ppm, 1);
        let Seen { used_permille, dropped_ppm, .. } = alone(BBR, link);
        let what = format!("queue {queue_percent} %, loss {loss_ppm} ppm");
        assert!(dropped_ppm < 15_000, "{what}: dropped {dropped_ppm}");
        assert!(used_permille > 880, "{what}: used {used_permille}");
    }
}

#[test]
fn a_path_that_begins_to_lose_is_used_on() {
    for rtt_ms in [10, 40] {
        let link = Link::new(1000, rtt_ms * MS, 100);
        let mut path = Bottleneck::new(link, 5);
        let flow = path.add(BBR, None, u64::MAX, 0);
        path.run_for(5 * SECOND);
        path.link = link.losing(50_000, 1);
        path.run_for(5 * SECOND);
        let before = path.flows[flow].received_packets;
        path.run_for(10 * SECOND);
        let used = (path.flows[flow].received_packets - before) * WIRE_BYTES * 8 / 10;
        assert!(used > 900_000_000 / 100 * 95, "{rtt_ms} ms: {used} bit/s");
    }
}

#[test]
fn a_policer_without_a_queue_is_found_and_not_run_through() {
    for mbit in [100, 1000] {
        let rate_bits_per_s = mbit * 1_000_000;
        // What it lets through at once is 5 ms.
        let policer = Policer { rate_bits_per_s, bucket_bytes: mbit * 125 * 5 };
        let link = Link { policer: Some(policer), ..Link::new(10 * mbit, 40 * MS, 100) };
        let mut path = Bottleneck::new(link, 7);
        let flow = path.add(BBR, None, u64::MAX, 0);
        path.run_for(3 * SECOND);
        let counts = |path: &Bottleneck| {
            let flow = &path.flows[flow];
            [flow.received_packets, flow.sent_packets, flow.overflowed_packets]
        };
        let before = counts(&path);
        path.run_for(10 * SECOND);
        let after = counts(&path);
        let [received, sent, dropped] = [0, 1, 2].map(|index| after[index] - before[index]);
        let used_permille = received * WIRE_BYTES * 8 * 100 / rate_bits_per_s;
        assert!(used_permille > 900, "{mbit} Mbit/s: used {used_permille}");
        assert!(dropped * 1_000_000 / sent < 20_000, "{mbit} Mbit/s: {dropped} of {sent}");
    }
}

#[test]
fn after_darkness_the_path_is_full_again_within_two_seconds() {
    for rtt_ms in [40, 250] {
        let link = Link::new(1000, rtt_ms * MS, 100);
        let mut path = Bottleneck::new(link, 5);
        let flow = path.add(BBR, None, u64::MAX, 0);
        path.run_for(5 * SECOND);
        path.link.is_dark = true;
        path.run_for(3 * SECOND);
        path.link.is_dark = false;
        // A timeout of silence has doubled up to a second or the round trip's.
        path.run_for(2 * SECOND);
        let before = path.flows[flow].received_packets;
        path.run_for(2 * SECOND);
        let used = (path.flows[flow].received_packets - before) * WIRE_BYTES * 8 / 2;
        assert!(used > 900_000_000, "{rtt_ms} ms: {used} bit/s");
    }
}

#[test]
fn marks_keep_the_queue_shorter_than_its_end_would() {
    let link = Link::new(1000, 40 * MS, 300);
    let marking = Link { mark_bytes: Some(link.path_bytes() / 20), ..link };
    for config in [BBR, CUBIC] {
        let Seen { used_permille, queue_permille, dropped_ppm } = alone(config, marking);
        assert_eq!(dropped_ppm, 0, "{config:?}");
        assert!(queue_permille < 100, "{config:?}: {queue_permille}");
        assert!(used_permille > 850, "{config:?}: {used_permille}");
    }
}

#[test]
fn two_flows_share_fairly() {
    for (rtt_ms, queue_percent) in [(10, 100), (40, 20), (40, 100), (40, 300), (100, 100)] {
        let mut path = Bottleneck::new(Link::new(1000, rtt_ms * MS, queue_percent), 11);
        let flows = [0, 1].map(|flow| path.add(BBR, None, u64::MAX, flow * 5 * SECOND));
        path.run_for(20 * SECOND);
        let received = |path: &Bottleneck| flows.map(|flow| path.flows[flow].received_packets);
        let before = received(&path);
        path.run_for(30 * SECOND);
        let after = received(&path);
        let [a, b] = [0, 1].map(|flow| u128::from(after[flow] - before[flow]));
        // Jain's index of two: (a + b)^2 / 2 (a^2 + b^2).
        let jain_permille = (a + b).pow(2) * 1000 / (2 * (a * a + b * b));
        assert!(
            jain_permille >= 900,
            "{rtt_ms} ms, queue {queue_percent} %: {jain_permille}, {a} {b}"
        );
    }
}

#[test]
fn reordering_slows_no_bbr_down() {
    let link = Link { jitter_ns: 2 * MS, ..Link::new(1000, 40 * MS, 100) };
    let Seen { used_permille, .. } = alone(BBR, link);
    assert!(used_permille > 900, "{used_permille}");
}

#[test]
fn a_path_that_changes_its_rate_is_followed() {
    let mut path = Bottleneck::new(Link::new(1000, 40 * MS, 100), 5);
    let flow = path.add(BBR, None, u64::MAX, 0);
    path.run_for(5 * SECOND);
    for mbit in [200, 1000] {
        path.link = Link::new(mbit, 40 * MS, 100);
        path.run_for(10 * SECOND);
        path.mean_queue_permille();
        let before = path.flows[flow].received_packets;
        path.run_for(5 * SECOND);
        let used = (path.flows[flow].received_packets - before) * WIRE_BYTES * 8 / 5;
        assert!(used > mbit * 900_000, "{mbit} Mbit/s: {used} bit/s");
        assert!(path.mean_queue_permille() < 300, "{mbit} Mbit/s");
    }
}
