//! The model on a fake clock: what was asked for comes out, to 2 % where it is random, and bundles
//! make no difference.

use super::*;
use crate::bundle::tests::{TCP, frame};
use lacuna_link::{Fraction, Loss};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn bundle_of(packets: usize) -> Bundle {
    let payload_bytes = packets * usize::from(TCP.segment_bytes);
    let bundle = Bundle::parse(&frame(crate::bundle::tests::Recipe { payload_bytes, ..TCP }));
    let bundle = bundle.expect("a bundle");
    assert_eq!(bundle.packets() as usize, packets);
    bundle
}

/// Bytes of a full packet of these bundles, from its IP header on.
const PACKET_BYTES: u64 = 20 + 32 + 1448;

fn share(probability: f64) -> Fraction {
    Fraction::from_f64(probability)
}

fn assert_within_2_percent(actual: f64, expected: f64) {
    assert!((actual / expected - 1.0).abs() <= 0.02, "{actual} instead of {expected}");
}

/// Lets bundles enter, one each `gap_ns`, and returns what comes out.
fn run(way: &mut Way, bundles: u64, packets: usize, gap_ns: u64) -> Vec<Part> {
    let bundle = bundle_of(packets);
    let mut parts = vec![];
    for number in 0..bundles {
        way.on_bundle(number * gap_ns, &bundle, true, &mut parts);
    }
    parts
}

fn packets_in(parts: &[Part]) -> u64 {
    parts.iter().map(|part| u64::from(part.end - part.start)).sum()
}

#[test]
fn a_way_that_does_nothing_passes_bundles_whole_and_at_once() {
    let mut way = Way::new(WayConfig::default(), 1, 0);
    let parts = run(&mut way, 3, 40, 10);
    let whole =
        |release_ns| Part { release_ns, start: 0, end: 40, is_marked: false, flipped_bit: None };
    assert_eq!(parts, [whole(0), whole(10), whole(20)]);
    assert_eq!(way.counters().sent_packets, 120);
}

#[test]
fn the_delay_is_exact() {
    for loss in [Loss::None, Loss::Independent(share(0.1))] {
        let config = WayConfig { delay: Delay::Fixed(20 * MS), loss, ..WayConfig::default() };
        let mut way = Way::new(config, 1, 0);
        let mut parts = vec![];
        for number in 0..1000 {
            parts.clear();
            way.on_bundle(number * 777, &bundle_of(3), true, &mut parts);
            assert!(parts.iter().all(|part| part.release_ns == number * 777 + 20 * MS));
        }
    }
}

#[test]
fn a_busy_link_delivers_at_its_rate() {
    for rate in [10_000_000u64, 100_000_000, 1_000_000_000, 10_000_000_000] {
        let config = WayConfig {
            rate_bits_per_s: Some(rate),
            queue_bytes: 1 << 20,
            delay: Delay::Fixed(20 * MS),
            ..WayConfig::default()
        };
        let mut way = Way::new(config, 1, 0);
        // Twice what the link takes, for ten seconds of the fake clock at most.
        let gap_ns = 40 * (PACKET_BYTES + 14) * 8 * S / rate / 2;
        let bundles = 4000.min(10 * S / gap_ns);
        let parts = run(&mut way, bundles, 40, gap_ns);
        let last_ns = parts.last().unwrap().release_ns - 20 * MS;
        let bits = packets_in(&parts) * (PACKET_BYTES + 14) * 8;
        let measured = bits as f64 / (last_ns as f64 / S as f64);
        assert!((measured / rate as f64 - 1.0).abs() < 1e-6, "{measured} instead of {rate}");
        assert_eq!(packets_in(&parts) + way.counters().queue_dropped, 40 * bundles);
    }
}

#[test]
fn packets_of_a_bundle_come_no_later_than_asked_after_their_time() {
    // 1514 bytes at 100 Mbit/s take 121,120 ns.
    let config = WayConfig {
        rate_bits_per_s: Some(100_000_000),
        bundle_ns_max: Some(400_000),
        ..WayConfig::default()
    };
    let mut way = Way::new(config, 1, 0);
    let parts = run(&mut way, 1, 10, 0);
    let of_parts: Vec<_> = parts.iter().map(|p| (p.start, p.end, p.release_ns)).collect();
    let at = |packets: u64| packets * 121_120;
    // The first of four waits 363,360 ns.
    assert_eq!(of_parts, [(0, 4, at(4)), (4, 8, at(8)), (8, 10, at(10))]);
}

#[test]
fn bundles_stay_whole_on_a_long_path_and_are_cut_on_a_short_one() {
    for (delay_ns, parts) in [(20 * MS, 1), (10 * MS, 2), (MS, 5)] {
        let config = WayConfig {
            rate_bits_per_s: Some(1_000_000_000),
            delay: Delay::Fixed(delay_ns),
            ..WayConfig::default()
        };
        // 45 full packets take 545 us.
        let bundle = bundle_of(45);
        let mut out = vec![];
        Way::new(config, 1, 0).on_bundle(0, &bundle, true, &mut out);
        let lengths: Vec<u32> = out.iter().map(|part| part.end - part.start).collect();
        assert_eq!(lengths.len(), parts, "{lengths:?}");
        let longest = lengths.iter().max().unwrap();
        assert!(lengths[..parts - 1].iter().all(|length| length == longest), "{lengths:?}");
    }
}

#[test]
fn independent_losses_are_as_many_as_asked() {
    for loss in [0.05, 0.01, 1e-3] {
        let config = WayConfig { loss: Loss::Independent(share(loss)), ..WayConfig::default() };
        let mut way = Way::new(config, 1, 0);
        let parts = run(&mut way, 500_000, 40, 1);
        let counters = way.counters();
        assert_eq!(packets_in(&parts) + counters.lost, counters.sent_packets);
        assert_within_2_percent(counters.lost as f64 / counters.sent_packets as f64, loss);
    }
}

#[test]
fn bursts_are_as_many_and_as_long_as_asked() {
    for (loss, burst) in [(0.01, 8.0), (0.05, 3.0), (0.02, 64.0)] {
        let config = WayConfig { loss: Loss::bursts(loss, burst).unwrap(), ..WayConfig::default() };
        let mut way = Way::new(config, 2, 0);
        run(&mut way, 1_500_000, 40, 1);
        let counters = way.counters();
        assert_within_2_percent(counters.lost as f64 / counters.sent_packets as f64, loss);
        assert_within_2_percent(counters.lost as f64 / counters.loss_bursts as f64, burst);
    }
}

#[test]
fn what_the_queue_cannot_hold_is_dropped_packet_by_packet() {
    let config = WayConfig {
        rate_bits_per_s: Some(100_000_000),
        queue_bytes: 10 * (PACKET_BYTES + 14),
        ..WayConfig::default()
    };
    let mut way = Way::new(config, 1, 0);
    let parts = run(&mut way, 1, 40, 0);
    // One in transmission, ten waiting.
    assert_eq!(packets_in(&parts), 11);
    assert_eq!(way.counters().queue_dropped, 29);
    assert_eq!(way.counters().queue_bytes_max, 10 * (PACKET_BYTES + 14));
    assert_eq!(way.take_queue_bytes_max(0), 10 * (PACKET_BYTES + 14));
    assert_eq!(way.queue_bytes(121_120), 9 * (PACKET_BYTES + 14));
    assert_eq!(way.counters().queue_ns_max, 10 * 121_120);
    assert_eq!(way.counters().queue_ns_sum, 55 * 121_120);
    assert_eq!(way.take_queue_bytes_max(S), 10 * (PACKET_BYTES + 14));
    assert_eq!(way.take_queue_bytes_max(S), 0);
}

#[test]
fn packets_that_meet_a_long_queue_are_marked_if_they_may_be() {
    for is_ecn_capable in [true, false] {
        let config = WayConfig {
            rate_bits_per_s: Some(100_000_000),
            mark_above_bytes: Some(10 * (PACKET_BYTES + 14)),
            bundle_ns_max: Some(S),
            ..WayConfig::default()
        };
        let mut way = Way::new(config, 1, 0);
        let mut parts = vec![];
        way.on_bundle(0, &bundle_of(40), is_ecn_capable, &mut parts);
        let marks: Vec<_> = parts.iter().map(|p| (p.start, p.end, p.is_marked)).collect();
        if is_ecn_capable {
            // The first is in transmission; eleven wait when the thirteenth comes.
            assert_eq!(marks, [(0, 12, false), (12, 40, true)]);
            assert_eq!(way.counters().marked, 28);
        } else {
            assert_eq!(marks, [(0, 40, false)]);
            assert_eq!(way.counters().marked, 0);
        }
    }
}

#[test]
fn random_effects_are_as_many_as_asked() {
    let config = WayConfig {
        mark: share(0.01),
        reorder: share(0.02),
        reorder_delay_ns: MS,
        duplicate: share(0.03),
        corrupt: share(0.04),
        ..WayConfig::default()
    };
    let mut way = Way::new(config, 3, 1);
    let parts = run(&mut way, 100_000, 40, 1);
    let counters = *way.counters();
    let of_all = |count: u64| count as f64 / counters.sent_packets as f64;
    assert_within_2_percent(of_all(counters.marked), 0.01);
    assert_within_2_percent(of_all(counters.reordered), 0.02);
    assert_within_2_percent(of_all(counters.duplicated), 0.03);
    assert_within_2_percent(of_all(counters.corrupted), 0.04);
    assert_eq!(packets_in(&parts), counters.sent_packets + counters.duplicated);
    let flipped = parts.iter().filter(|part| part.flipped_bit.is_some());
    assert_eq!(flipped.count() as u64, counters.corrupted);
}

#[test]
fn jitter_spreads_packets_but_keeps_their_order() {
    let config = WayConfig { jitter_ns: MS, delay: Delay::Fixed(20 * MS), ..WayConfig::default() };
    let mut way = Way::new(config, 1, 0);
    // So far apart that none has to wait for another.
    let parts = run(&mut way, 20_000, 1, 2 * MS);
    let delays: Vec<u64> =
        (0..).zip(&parts).map(|(number, part)| part.release_ns - number * 2 * MS).collect();
    assert!(delays.iter().all(|delay| (20 * MS..=21 * MS).contains(delay)));
    let mean = delays.iter().sum::<u64>() as f64 / delays.len() as f64;
    assert_within_2_percent(mean - 20e6, 0.5e6);

    let parts = run(&mut way, 20_000, 1, MS / 10);
    assert!(parts.is_sorted_by_key(|part| part.release_ns));
}

#[test]
fn a_recorded_delay_is_followed() {
    let trace = DelayTrace::parse("0 10\n100 30\n200 20").unwrap();
    let mut way = Way::new(WayConfig { delay: Delay::Trace(trace), ..WayConfig::default() }, 1, 0);
    let parts = run(&mut way, 5, 1, 70 * MS);
    let arrivals: Vec<u64> = parts.iter().map(|part| part.release_ns / MS).collect();
    assert_eq!(arrivals, [10, 80, 170, 230, 300]);
}

#[test]
fn a_way_changes_for_what_enters_afterwards() {
    let mut way =
        Way::new(WayConfig { delay: Delay::Fixed(20 * MS), ..WayConfig::default() }, 1, 0);
    let bundle = bundle_of(10);
    let mut parts = vec![];
    way.on_bundle(0, &bundle, true, &mut parts);
    let dark = WayConfig { loss: Loss::Independent(Fraction::always()), ..WayConfig::default() };
    way.change(dark).unwrap();
    way.on_bundle(MS, &bundle, true, &mut parts);
    way.change(WayConfig::default()).unwrap();
    way.on_bundle(2 * MS, &bundle, true, &mut parts);
    let came: Vec<_> = parts.iter().map(|p| (p.release_ns, p.end - p.start)).collect();
    // The second is lost; the third does not overtake the first.
    assert_eq!(came, [(20 * MS, 10), (20 * MS, 10)]);
    assert_eq!(way.counters().lost, 10);

    let wrong = WayConfig { rate_bits_per_s: Some(0), ..WayConfig::default() };
    assert_eq!(way.change(wrong), Err(WayError::ZeroRate));
    assert_eq!(way.config().rate_bits_per_s, None);
}

#[test]
fn ways_that_would_hold_too_much_are_refused() {
    let config = WayConfig {
        rate_bits_per_s: Some(100_000_000_000),
        delay: Delay::Fixed(S),
        ..WayConfig::default()
    };
    assert!(matches!(config.validate(), Err(WayError::TooMuchInFlight { .. })));
}

/// A way that does everything at once.
fn busy(bundle_ns_max: u64) -> WayConfig {
    WayConfig {
        rate_bits_per_s: Some(1_000_000_000),
        queue_bytes: 200_000,
        delay: Delay::Fixed(3 * MS),
        jitter_ns: 100_000,
        loss: Loss::bursts(0.05, 2.0).unwrap(),
        reorder: share(0.02),
        reorder_delay_ns: MS,
        duplicate: share(0.02),
        corrupt: share(0.02),
        mark: share(0.02),
        mark_above_bytes: Some(100_000),
        bundle_ns_max: Some(bundle_ns_max),
        ..WayConfig::default()
    }
}

proptest! {
    /// The oracle is the same way, entered by the packets one by one.
    #[test]
    fn a_bundle_fares_as_its_packets_would(
        sizes in proptest::collection::vec((1..42usize, 0..1_000_000u64), 1..60),
        seed: u64,
        bundle_ns_max in 0..2_000_000u64,
    ) {
        let mut whole = Way::new(busy(bundle_ns_max), seed, 0);
        let mut single = Way::new(busy(0), seed, 0);
        let mut now_ns = 0;
        for (packets, gap_ns) in sizes {
            now_ns += gap_ns;
            let (mut parts, mut singles) = (vec![], vec![]);
            whole.on_bundle(now_ns, &bundle_of(packets), true, &mut parts);
            for index in 0..packets as u32 {
                let mut of_this = vec![];
                single.on_bundle(now_ns, &bundle_of(1), true, &mut of_this);
                let at = |part: Part| Part { start: index, end: index + 1, ..part };
                singles.extend(of_this.into_iter().map(at));
            }
            let apart = parts.iter().flat_map(|part| {
                (part.start..part.end).map(|start| Part { start, end: start + 1, ..*part })
            });
            let apart: Vec<Part> = apart.collect();
            prop_assert_eq!(apart.len(), singles.len());
            for (of_bundle, alone) in apart.iter().zip(&singles) {
                prop_assert_eq!(Part { release_ns: 0, ..*of_bundle }, Part { release_ns: 0, ..*alone });
                let late_ns = of_bundle.release_ns.checked_sub(alone.release_ns);
                prop_assert!(late_ns.is_some_and(|late_ns| late_ns <= bundle_ns_max));
            }
        }
        prop_assert_eq!(whole.counters(), single.counters());
    }
}

#[test]
fn the_seed_and_the_number_of_the_way_decide() {
    let losses = |seed, number| {
        let config = WayConfig { loss: Loss::Independent(share(0.1)), ..WayConfig::default() };
        run(&mut Way::new(config, seed, number), 100, 40, 1)
    };
    assert_eq!(losses(1, 0), losses(1, 0));
    assert_ne!(losses(1, 0), losses(2, 0));
    assert_ne!(losses(1, 0), losses(1, 1));
}
