//! Bounded modes end to end over the fake link: every receive ends in time, for the right reason, with
//! exactly what came. OptiNIC 3.1, Celeris III; the sender's word is ours.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::reason::Reason;
use lacuna_proto::modes::Mode;
use lacuna_proto::qp::{
    Grace, PostedReceive, ReceiveFailure, RecvOptions, SendFailure, SendId, SendRequest,
};
use lacuna_wire::CancelReason;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const MTU: usize = 1024;
const RATE: u64 = 1_000_000_000;
/// One-way delay of the tests' link.
const DELAY_NS: u64 = 12_500_000;
/// The sender's word is sent so often, a millisecond apart.
const WORDS_NS: u64 = 2 * MS;

fn config(mode: &str) -> PairConfig {
    PairConfig {
        mode: mode.parse().unwrap(),
        controller: ControllerConfig::Fixed { rate_bits_per_s: RATE },
        ..PairConfig::default()
    }
}

fn link() -> Link {
    Link { delay_ns: DELAY_NS, rate_bits_per_s: Some(RATE), ..Link::default() }
}

/// A pair whose ends know the round-trip time and the receive window.
fn pair(mode: &str, link: Link) -> Pair {
    let mut pair = Pair::new(config(mode), link);
    pair.run_for(100 * MS);
    pair
}

fn until(pair: &Pair, ns: u64) -> RecvOptions {
    RecvOptions { deadline_ns: Some(pair.now_ns + ns), ..RecvOptions::default() }
}

/// Runs until a receive is over and returns why.
fn ends(pair: &mut Pair, posted: &PostedReceive) -> Reason {
    assert!(pair.run_until(60 * SECOND, |_| posted.reason().is_some()), "it never ended");
    posted.reason().unwrap()
}

/// Closes a receive, zeroes what is missing, and compares every packet with the one that was sent.
/// Returns how many packets are missing.
fn check(pair: &mut Pair, mut posted: PostedReceive, sent: &[u8]) -> usize {
    let now_ns = pair.now_ns;
    {
        let mut qp = pair.b.qp();
        for part in &posted.parts {
            qp.table().close(part.number());
        }
        qp.on_receive_closed(now_ns, &posted);
    }
    let here: Vec<bool> = posted
        .parts
        .iter()
        .flat_map(|part| {
            let packets = (part.capacity_bytes() as usize).div_ceil(MTU) as u32;
            (0..packets).map(move |i| part.packets_here(i / 64) >> (i % 64) & 1 == 1)
        })
        .collect();
    let missing_bytes = posted.zero_missing();
    let bytes = posted.into_vec().expect("nobody else holds a closed receive");
    let mut missing = 0;
    let mut zeros = 0;
    for (index, packet) in sent.chunks(MTU).enumerate() {
        let got = &bytes[index * MTU..][..packet.len()];
        if here[index] {
            assert!(got == packet, "packet {index} is said to be here");
        } else {
            assert!(got.iter().all(|byte| *byte == 0), "packet {index} is missing");
            missing += 1;
            zeros += packet.len() as u64;
        }
    }
    assert!(missing_bytes >= zeros);
    missing
}

/// Loses packets of data as `loses` says, and notes the numbers of the lost ones.
fn lose(pair: &mut Pair, loses: impl Fn(u32) -> bool + 'static) -> Rc<RefCell<Vec<u32>>> {
    let lost = Rc::new(RefCell::new(Vec::new()));
    let noted = lost.clone();
    pair.drop_data = Some(Box::new(move |packet| {
        let is_lost = loses(packet);
        if is_lost {
            noted.borrow_mut().push(packet);
        }
        is_lost
    }));
    lost
}

/// Losses with this probability, in bursts of this length.
fn losses(seed: u64, ppm: u32, burst: u32) -> impl Fn(u32) -> bool {
    let (rng, left) = (RefCell::new(Rng::new(seed)), Cell::new(0));
    move |_| {
        if left.get() == 0 && rng.borrow_mut().chance(ppm / burst) {
            left.set(burst);
        }
        left.replace(left.get().saturating_sub(1)) > 0
    }
}

#[test]
fn without_loss_every_message_is_whole_in_every_bounded_mode() {
    for mode in ["bounded", "bounded:1", "bounded+ec:mds:8:2", "bounded:2+ec:xor:4:2"] {
        for generations in [1, 4] {
            let geometry = GeometryConfig { generations, ..config(mode).geometry };
            let mut pair = Pair::new(PairConfig { geometry, ..config(mode) }, link());
            for len in [0, 1, 1023, 1024, 1025, 16 << 10, (1 << 20) + 7] {
                let posted = pair.post(Side::B, len);
                let data = Rng::new(len as u64).bytes(len);
                pair.send(Side::A, data.clone(), Some(0x1234_5678));
                assert_eq!(ends(&mut pair, &posted), Reason::Whole, "{mode}, {len} bytes");
                assert_eq!(posted.placed_bytes(), len as u64);
                pair.run_for(SECOND);
                assert_eq!(posted.immediate(), Some(0x1234_5678));
                assert_eq!(check(&mut pair, posted, &data), 0);
            }
            let stats = pair.b.qp().stats();
            assert_eq!(stats.ends.receives[Reason::Whole.index()], 7);
            assert_eq!((stats.ends.missing_bytes, stats.ends.receives.iter().sum()), (0, 7u64));
        }
    }
}

#[test]
fn a_deadline_ends_a_receive_to_the_nanosecond_in_every_mode() {
    for mode in ["bounded", "raw", "sr", "ec", "auto"] {
        let mut pair = pair(mode, link());
        pair.link.dark = true;
        let options = until(&pair, 7 * MS + 123);
        let posted = pair.post_with(Side::B, 5000, options);
        pair.run_for(7 * MS + 122);
        assert_eq!(posted.reason(), None, "{mode}");
        pair.run_for(1);
        assert_eq!(posted.reason(), Some(Reason::Deadline), "{mode}");
        assert_eq!(check(&mut pair, posted, &[9; 5000]), 5);
    }
}

#[test]
fn a_sender_learns_that_the_receive_of_a_reliable_message_is_over() {
    let mut pair = pair("sr", link());
    let options = until(&pair, 200 * MS);
    let posted = pair.post_with(Side::B, 8 << 20, options);
    pair.run_for(50 * MS);
    lose(&mut pair, |packet| packet == 3);
    let id = pair.send(Side::A, vec![7; 8 << 20], None);
    assert_eq!(ends(&mut pair, &posted), Reason::Deadline);
    let outcome = |pair: &mut Pair| pair.status(Side::A, id).outcome;
    assert!(pair.run_until(SECOND, |pair| outcome(pair).is_some()));
    assert!(matches!(outcome(&mut pair), Some(Err(SendFailure::ClosedByPeer))));
    // It repairs no more.
    pair.run_for(100 * MS);
    let sent = pair.a.data_packets;
    pair.run_for(5 * SECOND);
    assert_eq!(pair.a.data_packets, sent);
}

#[test]
fn what_is_lost_is_exactly_what_is_missing_and_the_senders_word_ends_it() {
    for (ppm, burst) in [(100, 1), (1000, 1), (10_000, 1), (50_000, 1), (10_000, 8), (50_000, 8)] {
        for (len, count) in [(64 << 10, 60), (1 << 20, 8)] {
            let mut pair = pair("bounded", link());
            let mut lossy = 0;
            for round in 0..count {
                let data = Rng::new(round).bytes(len);
                let posted = pair.post(Side::B, len);
                pair.run_for(50 * MS);
                let lost = lose(&mut pair, losses(round, ppm, burst));
                let id = pair.send(Side::A, data.clone(), None);
                let reason = ends(&mut pair, &posted);
                let end_ns = pair.now_ns;
                let last_ns = posted.arrivals_ns().map(|(_, last_ns)| last_ns);
                assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())), "it was all sent");
                let lost = lost.borrow().len();
                assert_eq!(check(&mut pair, posted, &data), lost, "{reason}");
                if lost == 0 {
                    assert_eq!(reason, Reason::Whole);
                    continue;
                }
                lossy += 1;
                assert!(matches!(reason, Reason::End | Reason::Accounted), "{reason}");
                // The path keeps the order, so there is no grace. The first word leaves with the last
                // packet, and control packets are not lost here.
                let waited_ns = end_ns - last_ns.unwrap_or(end_ns);
                assert!(waited_ns < 2 * MS, "{waited_ns} ns");
            }
            let stats = pair.b.qp().stats().ends;
            assert_eq!(stats.receives[Reason::Deadline.index()], 0);
            assert!(lossy > 0 || ppm < 10_000);
        }
    }
}

/// Sends 64 packets that are all lost, with what the sender says of them. Returns when the last one left.
fn send_into_the_dark(pair: &mut Pair) -> u64 {
    let before = pair.a.data_packets;
    pair.link.dark = true;
    pair.send(Side::A, vec![3; 64 << 10], None);
    assert!(pair.run_until(SECOND, |pair| pair.a.data_packets == before + 64));
    pair.now_ns
}

#[test]
fn a_lost_word_is_said_again() {
    let mut pair = pair("bounded", link());
    for lost_words in [1, 2] {
        let posted = pair.post(Side::B, 64 << 10);
        pair.run_for(50 * MS);
        let left_ns = send_into_the_dark(&mut pair);
        pair.run_for(lost_words * MS - MS / 2);
        pair.link.dark = false;
        assert_eq!(ends(&mut pair, &posted), Reason::Accounted);
        let took_ns = pair.now_ns - left_ns;
        let (least_ns, most_ns) = (DELAY_NS + (lost_words - 1) * MS, DELAY_NS + WORDS_NS + MS);
        assert!((least_ns..most_ns).contains(&took_ns), "{took_ns} ns");
        drop(pair.close(Side::B, posted));
    }
}

/// A receive without a deadline has nothing else that ends it.
#[test]
fn where_many_words_are_lost_a_later_one_ends_the_receive_and_then_the_sender_is_silent() {
    let mut pair = pair("bounded", link());
    let posted = pair.post(Side::B, 64 << 10);
    pair.run_for(50 * MS);
    send_into_the_dark(&mut pair);
    pair.run_for(3 * SECOND);
    assert_eq!(posted.reason(), None);
    pair.link.dark = false;
    assert_eq!(ends(&mut pair, &posted), Reason::Accounted);
    pair.run_for(SECOND);
    let said = pair.a.control_packets;
    pair.run_for(10 * SECOND);
    assert_eq!(pair.a.control_packets, said);
}

#[test]
fn all_words_lost_leave_a_receive_to_its_deadline() {
    let mut pair = pair("bounded", link());
    let options = until(&pair, 300 * MS);
    let posted = pair.post_with(Side::B, 64 << 10, options);
    let due_ns = options.deadline_ns.unwrap();
    pair.run_for(50 * MS);
    send_into_the_dark(&mut pair);
    assert_eq!(ends(&mut pair, &posted), Reason::Deadline);
    assert_eq!(pair.now_ns, due_ns);
}

#[test]
fn back_to_back_messages_end_without_a_timeout() {
    for (window, generations) in [(8, 1), (8, 4), (1, 1), (1, 4), (3, 2)] {
        let mode = format!("bounded:{window}");
        let geometry = GeometryConfig { generations, ..config(&mode).geometry };
        let mut pair = Pair::new(PairConfig { geometry, ..config(&mode) }, link());
        pair.run_for(100 * MS);
        let len = 128 << 10;
        let data: Vec<_> = (0..40).map(|round| Rng::new(round).bytes(len)).collect();
        let posted: Vec<_> = data.iter().map(|_| pair.post(Side::B, len)).collect();
        pair.run_for(50 * MS);
        let lost = lose(&mut pair, losses(window, 20_000, 1));
        for data in &data {
            pair.send(Side::A, data.clone(), None);
        }
        let mut reasons = [0; Reason::ALL.len()];
        for posted in &posted {
            reasons[ends(&mut pair, posted).index()] += 1;
        }
        let late: u64 = (pair.b.qp().stats().channels.iter())
            .map(|channel| channel.discarded.iter().sum::<u64>())
            .sum();
        let missing: usize = posted
            .into_iter()
            .zip(&data)
            .map(|(posted, data)| check(&mut pair, posted, data))
            .sum();
        assert_eq!(missing as u64, lost.borrow().len() as u64 + late, "window {window}");
        assert_eq!(reasons[Reason::Deadline.index()] + reasons[Reason::Failed.index()], 0);
        assert!(reasons[Reason::End.index()] + reasons[Reason::Accounted.index()] > 0);
    }
}

#[test]
fn a_later_message_preempts_one_whose_tail_is_lost() {
    // Only the sender's word could end the first message sooner, and it is not said while more follows.
    let mut pair = pair("bounded:2", link());
    let len = 256 << 10;
    let posted: Vec<_> = (0..6).map(|_| pair.post(Side::B, len)).collect();
    pair.run_for(50 * MS);
    let tails = Cell::new(0);
    lose(&mut pair, move |packet| {
        let is_tail = packet == 255;
        tails.set(tails.get() + u32::from(is_tail));
        is_tail && tails.get() == 1
    });
    for _ in &posted {
        pair.send(Side::A, vec![5; len], None);
    }
    let reasons: Vec<_> = posted.iter().map(|posted| ends(&mut pair, posted)).collect();
    assert_eq!(reasons[0], Reason::Preempted);
    assert!(reasons[1..].iter().all(|reason| *reason == Reason::Whole), "{reasons:?}");
}

#[test]
fn reordering_is_waited_for_once_it_is_known() {
    let reorder = Link { reorder_ppm: 500_000, reorder_ns: DELAY_NS / 2, ..link() };
    for mode in ["bounded", "bounded:1"] {
        for seed in 1..4 {
            let mut pair = Pair::new(PairConfig { seed, ..config(mode) }, reorder);
            pair.run_for(100 * MS);
            let mut reasons = Vec::new();
            for round in 0..100 {
                let data = Rng::new(round).bytes(64 << 10);
                let posted = pair.post(Side::B, data.len());
                pair.run_for(30 * MS);
                pair.send(Side::A, data.clone(), None);
                reasons.push(ends(&mut pair, &posted));
                check(&mut pair, posted, &data);
            }
            let cut = reasons[20..].iter().filter(|reason| **reason != Reason::Whole).count();
            assert_eq!(cut, 0, "{mode}: {reasons:?}");
            assert!(pair.b.qp().stats().ends.graced_packets > 0);
        }
    }
}

#[test]
fn a_fixed_grace_counts_from_the_last_packet() {
    let mut pair = pair("bounded", link());
    let options = RecvOptions { grace: Grace::Fixed { ns: 20 * MS }, ..RecvOptions::default() };
    let posted = pair.post_with(Side::B, 64 << 10, options);
    pair.run_for(50 * MS);
    lose(&mut pair, |packet| packet == 3);
    pair.send(Side::A, vec![3; 64 << 10], None);
    assert_eq!(ends(&mut pair, &posted), Reason::End);
    let (first_ns, last_ns) = posted.arrivals_ns().unwrap();
    assert_eq!(pair.now_ns - last_ns, 20 * MS);
    let took_ns = last_ns - first_ns;
    assert!((MS / 4..5 * MS).contains(&took_ns), "64 KiB at 1 Gbit/s take {took_ns} ns");
}

#[test]
fn late_packets_write_nothing_and_are_counted() {
    let mut pair = pair("bounded", link());
    pair.recorded = Some(Vec::new());
    let posted = pair.post(Side::B, 64 << 10);
    pair.run_for(50 * MS);
    lose(&mut pair, |packet| packet % 2 == 1);
    let data = Rng::new(5).bytes(64 << 10);
    pair.send(Side::A, data.clone(), None);
    assert!(matches!(ends(&mut pair, &posted), Reason::End | Reason::Accounted));
    let before = pair.b.qp().stats().channels[0].discarded.iter().sum::<u64>();
    let recorded = pair.recorded.take().unwrap();
    for (side, channel, bytes) in recorded {
        if side == Side::A {
            pair.inject(Side::B, channel, bytes);
        }
    }
    pair.run_for(50 * MS);
    let after = pair.b.qp().stats().channels[0].discarded.iter().sum::<u64>();
    assert_eq!(after - before, 64, "every packet of the message came again");
    assert_eq!(check(&mut pair, posted, &data), 32);
}

#[test]
fn a_sender_that_gives_up_ends_the_receive_with_what_came() {
    let slow = ControllerConfig::Fixed { rate_bits_per_s: 10_000_000 };
    let mut pair = Pair::new(PairConfig { controller: slow, ..config("bounded") }, link());
    let posted = pair.post(Side::B, 1 << 20);
    pair.run_for(100 * MS);
    let data = Rng::new(1).bytes(1 << 20);
    let deadline_ns = Some(pair.now_ns + 100 * MS);
    let request =
        SendRequest { data: SendBuffer::from(data.clone()), immediate: None, deadline_ns };
    let id: SendId = pair.a.qp().queue_send(request).unwrap();
    assert_eq!(ends(&mut pair, &posted), Reason::Cancelled);
    let failure = ReceiveFailure::Cancelled(CancelReason::Deadline);
    assert_eq!(pair.b.qp().receive_failure(&posted), Some(failure));
    let Some(Err(SendFailure::Deadline { .. })) = pair.status(Side::A, id).outcome else {
        panic!("{:?}", pair.status(Side::A, id).outcome);
    };
    let missing = check(&mut pair, posted, &data);
    // 100 ms at 10 Mbit/s are 122 of the 1024 packets.
    assert!((880..930).contains(&missing), "{missing}");
}

#[test]
fn parity_repairs_what_it_can_and_the_rest_is_missing() {
    let mut pair = pair("bounded+ec:mds:8:2", link());
    let (mut repaired, mut lossy) = (0, 0);
    for round in 0..40 {
        let data = Rng::new(round).bytes(256 << 10);
        let posted = pair.post(Side::B, data.len());
        pair.run_for(50 * MS);
        let lost = lose(&mut pair, losses(round, 20_000, 1));
        pair.send(Side::A, data.clone(), None);
        let reason = ends(&mut pair, &posted);
        pair.run_for(10 * MS);
        let missing = check(&mut pair, posted, &data);
        let lost = lost.borrow().len();
        repaired += u32::from(lost > 0 && reason == Reason::Whole);
        lossy += u32::from(missing > 0);
        assert_eq!(missing > 0, reason != Reason::Whole);
        assert!(matches!(reason, Reason::Whole | Reason::End | Reason::Accounted), "{reason}");
    }
    assert!(repaired > 10, "{repaired} repaired, {lossy} with gaps");
    assert_eq!(pair.a.qp().stats().send.retransmitted_packets, 0);
}

#[test]
fn every_operation_ends_by_its_deadline_whatever_is_lost() {
    for (ppm, burst) in [(1000, 1), (50_000, 1), (50_000, 8), (900_000, 1)] {
        let link = Link { loss_ppm: ppm / burst, burst_packets: burst, ..link() };
        let mut pair = pair("bounded", link);
        let mut open: Vec<(PostedReceive, u64, Vec<u8>)> = Vec::new();
        for round in 0..200u64 {
            let len = 1 + (Rng::new(round).below(64 << 10) as usize);
            let data = Rng::new(round).bytes(len);
            let options = until(&pair, 60 * MS);
            let posted = pair.post_with(Side::B, len, options);
            open.push((posted, options.deadline_ns.unwrap(), data.clone()));
            let deadline_ns = Some(pair.now_ns + 60 * MS);
            let data = SendBuffer::from(data);
            pair.a.qp().queue_send(SendRequest { data, immediate: None, deadline_ns }).unwrap();
            pair.run_for(MS / 2);
            let now_ns = pair.now_ns;
            let late = |(posted, due_ns, _): &(PostedReceive, u64, Vec<u8>)| {
                *due_ns <= now_ns && posted.reason().is_none()
            };
            assert!(!open.iter().any(late), "a receive is open after its deadline");
        }
        pair.run_for(60 * MS);
        for (posted, _, data) in open {
            assert!(posted.reason().is_some());
            // A message may have taken an earlier one's place, if that was given up before it had one.
            let len = data.len();
            let now_ns = pair.now_ns;
            let mut qp = pair.b.qp();
            for part in &posted.parts {
                qp.table().close(part.number());
            }
            qp.on_receive_closed(now_ns, &posted);
            assert!(posted.placed_bytes() <= len as u64);
        }
        let ends = pair.b.qp().stats().ends;
        assert_eq!(ends.receives.iter().sum::<u64>(), 200);
        assert_eq!(ends.receives[Reason::Failed.index()], 0);
    }
}

#[test]
fn loss_alone_slows_no_sender() {
    let took_ns = |ppm: u32| {
        let link = Link { loss_ppm: ppm, ..link() };
        let mut pair = pair("bounded", link);
        let posted: Vec<_> = (0..8).map(|_| pair.post(Side::B, 1 << 20)).collect();
        pair.run_for(50 * MS);
        let started_ns = pair.now_ns;
        let sent: Vec<_> =
            posted.iter().map(|_| pair.send(Side::A, vec![1; 1 << 20], None)).collect();
        let is_sent = |pair: &mut Pair, id: &SendId| pair.status(Side::A, *id).outcome.is_some();
        assert!(pair.run_until(60 * SECOND, |pair| sent.iter().all(|id| is_sent(pair, id))));
        pair.now_ns - started_ns
    };
    let (without, with) = (took_ns(0), took_ns(50_000));
    assert!(with < without + without / 20, "{with} ns with loss, {without} ns without");
}

#[test]
fn only_bounded_modes_end_by_what_was_heard() {
    assert!(Mode::Raw.to_string() == "raw");
    let mut pair = pair("raw", link());
    let posted = pair.post(Side::B, 64 << 10);
    pair.run_for(50 * MS);
    lose(&mut pair, |packet| packet == 3);
    pair.send(Side::A, vec![3; 64 << 10], None);
    pair.run_for(5 * SECOND);
    assert_eq!(posted.reason(), None, "the application has a scheme of its own");
    assert_eq!(posted.placed_packets(), 63);
}
