//! A path that becomes too narrow for full packets during a connection: data in flight arrive in
//! pieces, in all modes, whether the host learns of it or not.

use lacuna_engine::testing::{Link, Narrowness, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::GeometryConfig;
use lacuna_proto::qp::{Event, SendId};

const MS: u64 = 1_000_000;
const RTT_NS: u64 = 10 * MS;
/// A packet of 1,024 bytes payload has 1,044 bytes, with an address 1,060.
const NARROW: usize = 1000;
const WAYS: [Narrowness; 3] = [Narrowness::Told, Narrowness::Hidden, Narrowness::Refused];
const MODES: [&str; 5] = ["auto", "sr", "sr:rto", "ec:mds:8:2", "ec:xor:8:4"];

fn link() -> Link {
    Link { rate_bits_per_s: Some(100_000_000), delay_ns: RTT_NS / 2, ..Link::default() }
}

fn pair(mode: &str, config: PairConfig, link: Link) -> Pair {
    let mut pair = Pair::new(PairConfig { mode: mode.parse().unwrap(), ..config }, link);
    // As the exchange that connects measures it.
    for side in [Side::A, Side::B] {
        pair.end(side).qp().on_rtt_sample(1_000_000_000, RTT_NS);
    }
    pair
}

fn narrow(pair: &mut Pair, packet_bytes_max: usize, narrowness: Narrowness) {
    pair.link.packet_bytes_max = packet_bytes_max;
    pair.link.narrowness = narrowness;
}

fn is_done(pair: &mut Pair, id: SendId) -> bool {
    pair.status(Side::A, id).outcome.is_some()
}

/// Sends a message, and narrows the link when a part of it has arrived; returns when.
fn narrow_under_way(pair: &mut Pair, bytes: usize, narrowness: Narrowness) -> (SendId, Vec<u8>) {
    let data = Rng::new(7).bytes(bytes);
    let id = pair.send(Side::A, data.clone(), None);
    assert!(pair.run_until(10_000 * MS, |pair| pair.a.data_packets > bytes as u64 / 1024 / 3));
    narrow(pair, NARROW, narrowness);
    (id, data)
}

/// Whether A has reported that the path takes shorter packets.
fn narrowed(pair: &mut Pair) -> bool {
    let told = |event: &Event| matches!(event, Event::Narrowed(_)).then_some(());
    pair.take_event(Side::A, told).is_some()
}

#[test]
fn a_message_under_way_comes_through_in_every_mode_and_way_of_knowing() {
    for mode in MODES {
        for narrowness in WAYS {
            let mut pair = pair(mode, PairConfig::default(), link());
            let posted = pair.post(Side::B, 4 << 20);
            let (id, data) = narrow_under_way(&mut pair, 4 << 20, narrowness);
            let what = format!("{mode} {narrowness:?}");
            assert!(
                pair.run_until(5_000 * MS, |pair| is_done(pair, id)),
                "{what}: {:?}",
                pair.a.qp()
            );
            assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())), "{what}");
            assert!(pair.close(Side::B, posted) == data, "{what}: other bytes");
            assert!(pair.a.qp().payload_bytes_max() < 1024, "{what}");
        }
    }
}

#[test]
fn it_is_seen_within_some_round_trips_and_after_one_window() {
    for narrowness in WAYS {
        for controller in [ControllerConfig::Bbr, ControllerConfig::Cubic] {
            let config = PairConfig { controller, ..PairConfig::default() };
            let mut pair = pair("sr", config, link());
            let _posted = pair.post(Side::B, 8 << 20);
            let (..) = narrow_under_way(&mut pair, 8 << 20, narrowness);
            let (since_ns, stats) = (pair.now_ns, pair.a.qp().stats());
            let (window, rtt_ns) = (stats.window_bytes, stats.rtt.smoothed_ns().unwrap());
            assert!(pair.run_until(2_000 * MS, narrowed));
            let rtts = (pair.now_ns - since_ns).div_ceil(rtt_ns);
            let most = if narrowness == Narrowness::Hidden { 10 } else { 5 };
            assert!(rtts <= most, "{narrowness:?}: {rtts} round trips");
            // Packets in flight are lost, too.
            let in_vain = pair.a.too_long;
            pair.run_for(10 * RTT_NS);
            let in_vain = in_vain.max(pair.a.too_long);
            // A controller that doubles its window per round trip sends two.
            let windows = if controller == ControllerConfig::Bbr { 1 } else { 2 };
            let most = windows * window.div_ceil(1044) + 20;
            assert!(in_vain <= most, "{narrowness:?}: {in_vain} packets, the window has {window}");
        }
    }
}

#[test]
fn without_repair_later_messages_are_whole() {
    for narrowness in WAYS {
        let mut pair = pair("raw", PairConfig::default(), link());
        pair.post(Side::B, 1 << 20);
        let (id, _) = narrow_under_way(&mut pair, 1 << 20, narrowness);
        assert!(pair.run_until(1_000 * MS, |pair| is_done(pair, id)));
        pair.run_for(20 * RTT_NS);
        let data = Rng::new(8).bytes(1 << 20);
        let posted = pair.post(Side::B, 1 << 20);
        let id = pair.send(Side::A, data.clone(), Some(0x1234_5678));
        assert!(pair.run_until(2_000 * MS, |pair| is_done(pair, id)));
        pair.run_for(2 * RTT_NS);
        assert!(posted.is_complete(), "{narrowness:?}");
        assert_eq!(posted.immediate(), Some(0x1234_5678));
        assert!(pair.close(Side::B, posted) == data, "{narrowness:?}: other bytes");
    }
}

#[test]
fn it_goes_on_at_nearly_the_speed_of_before() {
    let mut pair = pair("sr", PairConfig::default(), link());
    let _posted = pair.post(Side::B, 64 << 20);
    narrow_under_way(&mut pair, 64 << 20, Narrowness::Hidden);
    pair.run_for(500 * MS);
    let before = pair.b.qp().stats().channels[0].bytes;
    pair.run_for(1_000 * MS);
    let bits = (pair.b.qp().stats().channels[0].bytes - before) * 8;
    // Two pieces of 512 bytes with 36 of headers and 28 of IP and UDP each.
    assert!(bits > 100_000_000 * 512 / 576 * 97 / 100, "{bits} bits in a second");
}

#[test]
fn with_losses_and_reordering_besides_it_comes_through() {
    for mode in MODES {
        for seed in 0..4 {
            let config = PairConfig { seed, ..PairConfig::default() };
            let link =
                Link { loss_ppm: 20_000, reorder_ppm: 50_000, duplicate_ppm: 10_000, ..link() };
            let mut pair = pair(mode, config, link);
            let posted = pair.post(Side::B, 2 << 20);
            let (id, data) = narrow_under_way(&mut pair, 2 << 20, Narrowness::Hidden);
            assert!(pair.run_until(20_000 * MS, |pair| is_done(pair, id)), "{mode} {seed}");
            assert!(pair.close(Side::B, posted) == data, "{mode} {seed}: other bytes");
        }
    }
}

#[test]
fn a_path_that_becomes_narrower_again_is_followed() {
    let mut pair = pair("sr", PairConfig::default(), link());
    let posted = pair.post(Side::B, 8 << 20);
    let (id, data) = narrow_under_way(&mut pair, 8 << 20, Narrowness::Hidden);
    pair.run_for(200 * MS);
    assert_eq!(pair.a.qp().payload_bytes_max(), 512);
    narrow(&mut pair, 400, Narrowness::Hidden);
    assert!(pair.run_until(5_000 * MS, |pair| is_done(pair, id)));
    assert_eq!(pair.a.qp().payload_bytes_max(), 342);
    assert!(pair.close(Side::B, posted) == data);
}

#[test]
fn over_several_channels_and_with_long_chunks_it_comes_through() {
    for mode in MODES {
        let geometry = GeometryConfig {
            mtu_bytes: 1024,
            chunk_packets: 8,
            stripe_packets: 16,
            channels: 4,
            ..GeometryConfig::default()
        };
        let mut pair = pair(mode, PairConfig { geometry, ..PairConfig::default() }, link());
        let posted = pair.post(Side::B, (2 << 20) + 100);
        let (id, data) = narrow_under_way(&mut pair, (2 << 20) + 100, Narrowness::Hidden);
        assert!(pair.run_until(5_000 * MS, |pair| is_done(pair, id)), "{mode}");
        assert!(pair.close(Side::B, posted) == data, "{mode}: other bytes");
    }
}

#[test]
fn messages_whose_ends_pass_are_no_proof() {
    // A full packet and a short one that passes: something always arrives.
    for bytes in [1024, 1500, 2048 + 1] {
        let mut pair = pair("sr", PairConfig::default(), link());
        narrow(&mut pair, NARROW, Narrowness::Hidden);
        for message in 0..20 {
            let data = Rng::new(message).bytes(bytes);
            let posted = pair.post(Side::B, bytes);
            let id = pair.send(Side::A, data.clone(), Some(message as u32));
            assert!(pair.run_until(3_000 * MS, |pair| is_done(pair, id)), "{bytes}: {message}");
            assert_eq!(posted.immediate(), Some(message as u32));
            assert!(pair.close(Side::B, posted) == data);
        }
    }
}

#[test]
fn a_path_on_which_full_packets_pass_stays_as_it_is() {
    for (loss_ppm, burst_packets) in [(0, 1), (10_000, 1), (10_000, 32), (50_000, 8)] {
        for mode in MODES {
            let link = Link { loss_ppm: loss_ppm / burst_packets, burst_packets, ..link() };
            let mut pair = pair(mode, PairConfig::default(), link);
            for message in 0..4 {
                let posted = pair.post(Side::B, 1 << 20);
                let id = pair.send(Side::A, Rng::new(message).bytes(1 << 20), None);
                assert!(pair.run_until(20_000 * MS, |pair| is_done(pair, id)));
                pair.close(Side::B, posted);
            }
            assert_eq!(pair.a.qp().payload_bytes_max(), 1024, "{mode} {loss_ppm} {burst_packets}");
        }
    }
}

#[test]
fn a_forged_word_of_a_narrow_route_cuts_nothing() {
    let mut pair = pair("sr", PairConfig::default(), link());
    let _posted = pair.post(Side::B, 1 << 20);
    pair.send(Side::A, Rng::new(1).bytes(1 << 20), None);
    pair.run_for(40 * MS);
    let now_ns = pair.now_ns;
    pair.a.qp().on_route_mtu(now_ns, 552);
    assert_eq!(pair.a.qp().payload_bytes_max(), 1024);
}

#[test]
fn a_path_that_was_never_as_wide_as_agreed_is_proved_with_pieces() {
    let mut pair = pair("auto", PairConfig::default(), link());
    narrow(&mut pair, NARROW, Narrowness::Hidden);
    let now_ns = pair.now_ns;
    pair.a.qp().prove(now_ns, 5_000 * MS);
    pair.b.qp().prove(now_ns, 5_000 * MS);
    let posted = pair.post(Side::B, 1 << 20);
    let id = pair.send(Side::A, vec![3; 1 << 20], None);
    assert!(pair.run_until(2_000 * MS, |pair| is_done(pair, id)));
    assert!(pair.close(Side::B, posted) == vec![3; 1 << 20]);
    pair.run_for(10_000 * MS);
    assert_eq!((pair.a.qp().failure(), pair.b.qp().failure()), (None, None));
    assert_eq!(pair.b.qp().payload_bytes_max(), 512, "who only receives knows it by the proof");
}

#[test]
fn a_path_that_was_dark_meanwhile_is_found_narrow() {
    let mut pair = pair("sr", PairConfig::default(), link());
    let posted = pair.post(Side::B, 4 << 20);
    let (id, data) = narrow_under_way(&mut pair, 4 << 20, Narrowness::Hidden);
    pair.link.dark = true;
    pair.run_for(3_000 * MS);
    pair.link.dark = false;
    assert!(pair.run_until(3_000 * MS, |pair| is_done(pair, id)));
    assert!(pair.close(Side::B, posted) == data);
}

#[test]
fn at_a_rate_that_is_given_it_is_seen_too() {
    let controller = ControllerConfig::Fixed { rate_bits_per_s: 90_000_000 };
    let mut pair = pair("sr", PairConfig { controller, ..PairConfig::default() }, link());
    let posted = pair.post(Side::B, 8 << 20);
    let (id, data) = narrow_under_way(&mut pair, 8 << 20, Narrowness::Hidden);
    let since_ns = pair.now_ns;
    assert!(pair.run_until(2_000 * MS, narrowed));
    assert!(pair.now_ns - since_ns <= 500 * MS);
    assert!(pair.run_until(5_000 * MS, |pair| is_done(pair, id)));
    assert!(pair.close(Side::B, posted) == data);
}

#[test]
fn a_search_that_nobody_answers_ends() {
    for rtt_ns in [RTT_NS, 2_000 * MS] {
        let mut pair = pair("sr", PairConfig::default(), link());
        let now_ns = pair.now_ns;
        pair.a.qp().on_rtt_sample(now_ns, rtt_ns);
        pair.run_for(20 * MS);
        pair.link.dark = true;
        let (now_ns, sent) = (pair.now_ns, pair.a.control_packets);
        pair.a.qp().on_too_large(now_ns, 1000);
        pair.run_for(20_000 * MS);
        let sent = pair.a.control_packets - sent;
        assert!((8..60).contains(&sent), "{sent} probes");
        let done = pair.a.control_packets;
        pair.run_for(60_000 * MS);
        assert_eq!(pair.a.control_packets, done);
    }
}
