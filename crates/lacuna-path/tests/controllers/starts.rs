//! How flows begin: on a path that nobody knows, on one that is known, and on one that was known and
//! is another now.

use crate::bottleneck::{Bottleneck, Link, MS, SECOND, Stalls, WIRE_BYTES};
use lacuna_path::controller::{Controller, ControllerConfig, StartRate};

const BBR: ControllerConfig = ControllerConfig::Bbr;
/// Packets of 1 MiB and of 8 MiB.
const MIB_PACKETS: u64 = (1 << 20) / 1436 + 1;
const MESSAGE_PACKETS: u64 = (8 << 20) / 1436 + 1;

/// How long so many packets take on a fresh connection, the time beyond which nobody can be faster
/// (size over rate and a round trip), and what the queue dropped.
fn message(link: Link, packets: u64, start: Option<StartRate>) -> (u64, u64, u64) {
    message_by(5, link, packets, start)
}

/// The same, and what chance does to it.
fn message_by(seed: u64, link: Link, packets: u64, start: Option<StartRate>) -> (u64, u64, u64) {
    let mut path = Bottleneck::new(link, seed);
    let flow = path.add(BBR, start, packets, 0);
    path.run_until_done(60 * SECOND);
    let took_ns = path.took_ns(flow).expect("it is done within a minute");
    let ideal_ns = packets * WIRE_BYTES * 8 * SECOND / link.rate_bits_per_s + link.rtt_ns;
    (took_ns, ideal_ns, path.flows[flow].overflowed_packets)
}

#[test]
fn the_first_message_on_an_unknown_path_takes_at_most_two_round_trips_more() {
    for (mbit, rtt_ms) in [(100, 10), (100, 40), (1000, 10), (1000, 40), (1000, 100), (1000, 250)] {
        let link = Link::new(mbit, rtt_ms * MS, 100);
        let (took_ns, ideal_ns, dropped) = message(link, MESSAGE_PACKETS, None);
        let more_ns = took_ns - ideal_ns;
        assert!(more_ns <= 2 * link.rtt_ns, "{mbit} {rtt_ms}: {took_ns} of {ideal_ns}");
        // The first flight is sent at once, and may be a little more than the queue.
        assert!(dropped <= 8, "{mbit} Mbit/s, {rtt_ms} ms: {dropped}");
    }
}

#[test]
fn a_long_first_message_takes_hardly_more() {
    let stalls = Stalls { every_ns: 50 * MS, lasts_ns: 2 * MS };
    for stalls in [None, Some(stalls)] {
        let link = Link { stalls, ..Link::new(1000, 40 * MS, 100) };
        let (took_ns, ideal_ns, dropped) = message(link, 128 * MIB_PACKETS, None);
        assert!(took_ns - ideal_ns <= 2 * link.rtt_ns, "{stalls:?}: {took_ns} of {ideal_ns}");
        assert_eq!(dropped, 0);
    }
}

#[test]
fn a_first_train_in_which_something_stood_still_is_followed_by_another() {
    let stalls = Some(Stalls { every_ns: 50 * MS, lasts_ns: 2 * MS });
    for (rtt_ms, mib) in [(40, 8), (100, 16)] {
        for seed in 5..105 {
            let link = Link { stalls, ..Link::new(1000, rtt_ms * MS, 100) };
            let (took_ns, ideal_ns, dropped) = message_by(seed, link, mib * MIB_PACKETS, None);
            let more_percent = (took_ns - ideal_ns) * 100 / link.rtt_ns;
            assert!(more_percent < 300, "{rtt_ms} ms, seed {seed}: {more_percent} % of one more");
            assert_eq!(dropped, 0);
        }
    }
}

#[test]
fn a_path_too_fast_for_the_first_train_gets_a_longer_one() {
    for (rtt_ms, mib) in [(10, 8), (10, 128), (40, 8), (40, 128), (100, 8)] {
        let link = Link::new(10_000, rtt_ms * MS, 100);
        let (took_ns, ideal_ns, dropped) = message(link, mib * MIB_PACKETS, None);
        let more_percent = (took_ns - ideal_ns) * 100 / link.rtt_ns;
        assert!(more_percent <= 240, "{rtt_ms} ms, {mib} MiB: {more_percent} % of a round trip");
        assert_eq!(dropped, 0);
    }
}

#[test]
fn a_first_flight_too_large_for_the_queue_is_followed_by_a_slower_one() {
    // The flight is as much as the path and its queue hold, or more.
    for (mbit, rtt_ms, mib) in [(100, 10, 1), (100, 10, 8), (1000, 1, 1), (1000, 1, 8)] {
        let link = Link::new(mbit, rtt_ms * MS, 20);
        let (took_ns, ideal_ns, _) = message(link, mib * MIB_PACKETS, None);
        assert!(
            took_ns - ideal_ns <= 8 * link.rtt_ns,
            "{mbit} Mbit/s, {mib} MiB: {took_ns} of {ideal_ns}"
        );
    }
}

/// What one bulk flow carries of the path's rate over `rtts` round trips that
/// begin `after_rtts` after its first packet.
fn carried_permille(link: Link, after_rtts: u64, rtts: u64) -> u64 {
    let mut path = Bottleneck::new(link, 5);
    let flow = path.add(BBR, None, u64::MAX, 0);
    path.run_for(after_rtts * link.rtt_ns);
    let before = path.flows[flow].received_packets;
    path.run_for(rtts * link.rtt_ns);
    let received = (path.flows[flow].received_packets - before) * WIRE_BYTES;
    received * 1000 / (rtts * link.path_bytes())
}

#[test]
fn bulk_fills_any_path_within_five_round_trips() {
    for (mbit, rtt_ms) in
        [(100, 40), (1000, 10), (1000, 40), (1000, 250), (5000, 40), (10_000, 40), (10_000, 100)]
    {
        for loss_ppm in [0, 1000, 10_000] {
            let link = Link::new(mbit, rtt_ms * MS, 100).losing(loss_ppm, 1);
            let passing = 1_000_000 - u64::from(loss_ppm);
            let used_permille = carried_permille(link, 5, 5) * 1_000_000 / passing;
            let what = format!("{mbit} Mbit/s, {rtt_ms} ms, loss {loss_ppm} ppm");
            assert!(used_permille >= 920, "{what}: {used_permille}");
        }
    }
}

#[test]
fn a_path_as_short_as_the_first_flight_is_found_to_carry_what_it_does() {
    for rtt_ms in [1, 2, 4] {
        let used_permille = carried_permille(Link::new(1000, rtt_ms * MS, 400), 10, 40);
        assert!(used_permille >= 970, "{rtt_ms} ms: {used_permille}");
    }
}

#[test]
fn the_first_message_on_a_known_path_waits_for_nothing() {
    for (mbit, rtt_ms) in [(100, 40), (1000, 40), (1000, 250)] {
        let link = Link::new(mbit, rtt_ms * MS, 100);
        let known = StartRate { rate_bits_per_s: mbit * 990_000 };
        let (took_ns, ideal_ns, dropped) = message(link, MESSAGE_PACKETS, Some(known));
        assert!(took_ns * 100 <= ideal_ns * 103, "{mbit} {rtt_ms}: {took_ns} of {ideal_ns}");
        assert_eq!(dropped, 0);
    }
}

#[test]
fn a_message_that_ends_with_the_start_leaves_a_record() {
    for (mbit, rtt_ms, mib) in [(100, 40, 1), (1000, 40, 1), (1000, 40, 8), (1000, 250, 8)] {
        let link = Link::new(mbit, rtt_ms * MS, 100);
        // A path that nobody knew, and then one that is known.
        let mut start = None;
        for _ in 0..3 {
            let mut path = Bottleneck::new(link, 5);
            let flow = path.add(BBR, start, mib * MIB_PACKETS, 0);
            path.run_until_done(60 * SECOND);
            path.run_for(link.rtt_ns);
            let (rate, min_rtt_ns) = path.flows[flow].path.found().expect("a record");
            let percent = rate / 10_000 / mbit;
            let what = format!("{mbit} Mbit/s, {rtt_ms} ms, {mib} MiB, {start:?}");
            assert!((90..=105).contains(&percent), "{what}: {percent} %");
            assert!(min_rtt_ns.abs_diff(link.rtt_ns) < link.rtt_ns / 20, "{what}: {min_rtt_ns}");
            start = Some(StartRate { rate_bits_per_s: rate });
        }
    }
}

/// What a series of messages has come to, parts of a thousand of what the path has.
struct Series {
    last_record: u64,
    mean_record: u64,
    mean_time: u64,
}

/// Messages one after the other, on connections of their own that begin at the record of the one
/// before.
fn series(link: Link, packets: u64, start_permille: u64, count: u64) -> Series {
    let permille = link.rate_bits_per_s / 1000;
    let mut start = StartRate { rate_bits_per_s: permille * start_permille };
    let (mut sum_ns, mut sum_record) = (0, 0);
    for seed in 0..count {
        let mut path = Bottleneck::new(link, seed);
        let flow = path.add(BBR, Some(start), packets, 0);
        path.run_until_done(60 * SECOND);
        sum_ns += path.took_ns(flow).expect("it is done within a minute");
        path.run_for(2 * link.rtt_ns);
        if let Some((rate_bits_per_s, _)) = path.flows[flow].path.found() {
            start = StartRate { rate_bits_per_s };
        }
        sum_record += start.rate_bits_per_s / permille;
    }
    let ideal_ns = packets * WIRE_BYTES * 8 * SECOND / link.rate_bits_per_s + link.rtt_ns;
    Series {
        last_record: start.rate_bits_per_s / permille,
        mean_record: sum_record / count,
        mean_time: sum_ns * 1000 / (ideal_ns * count),
    }
}

#[test]
fn a_series_of_messages_hands_on_a_rate_that_stays() {
    for (mbit, rtt_ms, mib) in [(1000, 40, 1), (1000, 40, 8), (100, 40, 1), (1000, 10, 8)] {
        for (loss_ppm, burst) in [(0, 1), (1000, 1), (10_000, 1), (10_000, 8), (50_000, 1)] {
            let link = Link::new(mbit, rtt_ms * MS, 100).losing(loss_ppm, burst);
            let record = series(link, mib * MIB_PACKETS, 990, 40).mean_record;
            let what = format!("{mbit} {rtt_ms} {mib} MiB, {loss_ppm} ppm in bursts of {burst}");
            assert!((970..=1030).contains(&record), "{what}: {record}");
        }
    }
}

#[test]
fn a_record_that_is_too_low_is_made_up_for_by_few_messages() {
    for (mib, low, time_max) in [(1, 560, 1050), (4, 560, 1100), (8, 560, 1100), (8, 250, 1400)] {
        for loss_ppm in [0, 10_000] {
            let link = Link::new(1000, 40 * MS, 100).losing(loss_ppm, 1);
            let Series { last_record, mean_time, .. } = series(link, mib * MIB_PACKETS, low, 8);
            let what = format!("{mib} MiB, {loss_ppm} ppm, {low}");
            assert!((960..=1030).contains(&last_record), "{what}: {last_record}");
            // With losses there are repairs besides.
            assert!(loss_ppm > 0 || mean_time <= time_max, "{what}: {mean_time}");
        }
    }
}

#[test]
fn a_host_that_stands_still_now_and_then_spoils_no_record() {
    let stalls = Some(Stalls { every_ns: 200 * MS, lasts_ns: 15 * MS });
    for (mib, loss_ppm) in [(1, 0), (8, 0), (8, 10_000)] {
        let link = Link { stalls, ..Link::new(1000, 40 * MS, 100) }.losing(loss_ppm, 1);
        let record = series(link, mib * MIB_PACKETS, 990, 100).mean_record;
        assert!((950..=1050).contains(&record), "{mib} MiB, {loss_ppm} ppm: {record}");
    }
}

#[test]
fn a_few_words_leave_no_record() {
    let mut path = Bottleneck::new(Link::new(1000, 40 * MS, 100), 5);
    let flow = path.add(BBR, None, 2, 0);
    for _ in 0..20 {
        path.run_until_done(SECOND);
        path.give(flow, 3);
    }
    path.run_until_done(SECOND);
    assert_eq!(path.flows[flow].path.found(), None);
}

#[test]
fn a_path_that_became_slower_makes_the_start_retreat() {
    for times in [2, 4] {
        let link = Link::new(100, 40 * MS, 100);
        let mut path = Bottleneck::new(link, 5);
        let stale = StartRate { rate_bits_per_s: times * 100_000_000 };
        let flow = path.add(BBR, Some(stale), u64::MAX, 0);
        path.run_for(SECOND);
        let rate = path.flows[flow].path.limits().rate_bits_per_s.unwrap();
        assert!((80_000_000..126_000_000).contains(&rate), "{times}: {rate}");
        path.mean_queue_permille();
        path.run_for(4 * SECOND);
        assert!(path.mean_queue_permille() < 300);
    }
}

#[test]
fn a_path_that_became_faster_is_found_to_be() {
    let mut path = Bottleneck::new(Link::new(1000, 40 * MS, 100), 5);
    let stale = StartRate { rate_bits_per_s: 100_000_000 };
    let flow = path.add(BBR, Some(stale), u64::MAX, 0);
    path.run_for(3 * SECOND);
    let before = path.flows[flow].received_packets;
    path.run_for(SECOND);
    let used = (path.flows[flow].received_packets - before) * WIRE_BYTES * 8;
    assert!(used > 900_000_000, "{used} bit/s");
}

#[test]
fn a_start_that_was_too_low_is_made_up_for_on_a_busy_host_too() {
    // What the host does to times looks like a queue, and must not end the probing. The mean of some
    // runs: how much is missed is up to chance.
    let stalls = Some(Stalls { every_ns: 30 * MS, lasts_ns: 4 * MS });
    let mut sum_permille = 0;
    for (seed, loss_ppm) in (1..5).flat_map(|seed| [(seed, 0), (seed, 50_000)]) {
        let link = Link { stalls, ..Link::new(1000, 40 * MS, 100).losing(loss_ppm, 1) };
        let mut path = Bottleneck::new(link, seed);
        let low = StartRate { rate_bits_per_s: 680_000_000 };
        let flow = path.add(BBR, Some(low), u64::MAX, 0);
        path.run_for(4 * SECOND);
        let before = path.flows[flow].received_packets;
        path.run_for(4 * SECOND);
        let received = (path.flows[flow].received_packets - before) * WIRE_BYTES;
        sum_permille += received * 1000 / (500 * u64::from(1_000_000 - loss_ppm));
    }
    assert!(sum_permille / 8 > 925, "{}", sum_permille / 8);
}

#[test]
fn small_messages_do_not_spoil_the_start_of_a_large_one() {
    let link = Link::new(1000, 40 * MS, 100);
    let mut path = Bottleneck::new(link, 5);
    let flow = path.add(BBR, None, 1, 0);
    for _ in 0..10 {
        path.run_until_done(SECOND);
        path.give(flow, 2);
    }
    path.run_until_done(SECOND);
    path.give(flow, MESSAGE_PACKETS);
    path.run_until_done(10 * SECOND);
    let took_ns = path.took_ns(flow).expect("it is done");
    assert!(took_ns < (112 + 2 * 40) * MS, "{took_ns}");
}

/// The first flight of 88 packets over 4 ms of path, in reports of so many packets, each so
/// long after the one before. What may be in flight after each.
fn windows_of_a_first_flight(reports: &[(u64, u64)]) -> Vec<u64> {
    use lacuna_path::controller::{RateSample, RoundTrips, Sample, Setup, Signal};
    let mut bbr = BBR.build(Setup { packet_bytes: 1500, seed: 1 });
    let rtt_ns = 4 * MS;
    bbr.on_signal(SECOND, Signal::RoundTrips(RoundTrips::one(rtt_ns)));
    let sent_ns = SECOND + rtt_ns;
    let total = FIRST_FLIGHT_PACKETS * 1500;
    for packet in 0..FIRST_FLIGHT_PACKETS {
        bbr.on_sent(sent_ns, 1500, packet * 1500);
    }
    let (mut delivered_bytes, mut heard_ns) = (0, sent_ns + rtt_ns);
    let window = |(after_ns, packets): &(u64, u64)| {
        heard_ns += after_ns;
        delivered_bytes += packets * 1500;
        let rate = RateSample {
            rate: delivered_bytes * SECOND / (heard_ns - sent_ns),
            delivered_bytes,
            prior_delivered_bytes: 0,
            lost_bytes: 0,
            in_flight_bytes: total,
            is_app_limited: false,
            late_ns: 0,
        };
        bbr.on_report(&Sample {
            now_ns: heard_ns,
            arrived_ns: heard_ns,
            sent_ns,
            newly_delivered_bytes: packets * 1500,
            delivered_bytes,
            newly_lost_bytes: 0,
            newly_marked_bytes: 0,
            rate: Some(rate),
            round_trips: Some(RoundTrips::one(heard_ns - sent_ns)),
            endpoint_ns: 0,
            min_rtt_ns: rtt_ns,
            smoothed_rtt_ns: rtt_ns,
            in_flight_bytes: total - delivered_bytes,
            is_window_limited: true,
        });
        bbr.limits().window_bytes
    };
    reports.iter().map(window).collect()
}

const FIRST_FLIGHT_PACKETS: u64 = 88;

#[test]
fn a_doubt_takes_nothing_away_that_the_first_flight_has_shown() {
    // A standstill so long that the train says less than the flow's own samples.
    for gap_ms in [12, 16, 20, 40] {
        let windows = windows_of_a_first_flight(&[(0, 24), (gap_ms * MS, 64)]);
        assert!(windows[1] >= FIRST_FLIGHT_PACKETS * 1500, "{gap_ms} ms: {windows:?}");
    }
}

#[test]
fn what_came_before_a_standstill_is_believed_all_the_same() {
    // 1 Gbit/s, until it stands still behind the 72nd packet.
    let mut reports = vec![(48_000, 4); 18];
    let before = *windows_of_a_first_flight(&reports).last().unwrap();
    assert!(before > 500_000, "a jump: {before}");
    reports.push((3 * MS, 16));
    let behind = *windows_of_a_first_flight(&reports).last().unwrap();
    assert!(behind >= before, "{behind} after {before}");
}
