//! A grid of bounded messages in virtual time: 1 Gbit/s, 25 ms, losses of 0.01 to 5 %, alone and in bursts of
//! eight, of data and of what both ends say; messages of 64 KiB, 1 MiB and 8 MiB.
//!
//! | how | what must hold |
//! |---|---|
//! | with deadlines | every receive is over at its deadline, to the nanosecond, or before |
//! | one at a time, without deadlines | a lossy message ends `End` or `Accounted`; 99 % of them within the reordering window and 5 ms of the last packet or the sender's word, all within 1.5 round trips more per lost word |
//! | back to back, without deadlines | a lossy message ends `End`, `Accounted` or `Preempted`, never by a timeout |
//! | always | the packet map names exactly what came |

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::reason::Reason;
use lacuna_proto::qp::{PostedReceive, RecvOptions};
use lacuna_wire::{ControlBody, Frame, Packet, parse_checked};

const MTU: usize = 1024;
const RATE: u64 = 1_000_000_000;
const RTT_NS: u64 = 25 * MS;
/// What an end may take besides the reordering window: the second and third word follow after a millisecond each.
const SLACK_NS: u64 = 5 * MS;
/// The path keeps the order, so receivers have learned no reordering window.
const WINDOW_NS: u64 = 0;
/// Losses in millionths, and how many in a row.
const LOSSES: [(u32, u32); 8] =
    [(100, 1), (1000, 1), (10_000, 1), (50_000, 1), (100, 8), (1000, 8), (10_000, 8), (50_000, 8)];

fn lossy(ppm: u32, burst: u32) -> Link {
    Link {
        delay_ns: RTT_NS / 2,
        rate_bits_per_s: Some(RATE),
        loss_ppm: ppm / burst,
        burst_packets: burst,
        ..Link::default()
    }
}

/// With slots of a megabyte: longer messages take several.
fn pair(seed: u64) -> Pair {
    let default = PairConfig::default();
    let config = PairConfig {
        geometry: GeometryConfig { max_message_bytes: 1 << 20, ..default.geometry },
        mode: "bounded".parse().unwrap(),
        controller: ControllerConfig::Fixed { rate_bits_per_s: RATE },
        credit_bytes: 64 << 20,
        seed,
        ..default
    };
    let mut pair = Pair::new(config, lossy(0, 1));
    pair.run_for(100 * MS);
    pair
}

/// What happened in one cell.
#[derive(Debug, Default)]
struct Cell {
    messages: u32,
    /// Ended by a reason that is not `Whole`.
    lossy: u32,
    reasons: [u32; Reason::ALL.len()],
    /// Lossy ones that ended later than the reordering window and 5 ms.
    late: u32,
    /// Those of which no word and no end arrived: they wait for a deadline.
    silent: u32,
    slowest_ns: u64,
}

impl Cell {
    fn count(&mut self, reason: Reason) {
        self.messages += 1;
        self.reasons[reason.index()] += 1;
        self.lossy += u32::from(reason != Reason::Whole);
    }
}

/// Closes a receive and compares each packet with what was sent.
fn check(pair: &mut Pair, mut posted: PostedReceive, sent: &[u8]) {
    let now_ns = pair.now_ns;
    {
        let mut qp = pair.b.qp();
        posted.parts.iter().for_each(|part| drop(qp.table().close(part.number())));
        qp.on_receive_closed(now_ns, &posted);
    }
    let slot = posted.parts[0].geometry().max_message_bytes() as usize;
    let words: Vec<Vec<u64>> = (posted.parts.iter())
        .map(|part| {
            (0..slot.div_ceil(64 * MTU) as u32).map(|word| part.packets_here(word)).collect()
        })
        .collect();
    posted.zero_missing();
    let bytes = posted.into_vec().expect("nobody else holds a closed receive");
    for (index, packet) in sent.chunks(MTU).enumerate() {
        let (part, at) = (index * MTU / slot, index * MTU % slot / MTU);
        let got = &bytes[index * MTU..][..packet.len()];
        match words[part][at / 64] >> (at % 64) & 1 {
            1 => assert!(got == packet, "packet {index} is said to be here"),
            _ => assert!(got.iter().all(|byte| *byte == 0), "packet {index} is missing"),
        }
    }
}

/// Data of a message: every packet differs from those of others.
fn data(seed: u64, len: usize) -> Vec<u8> {
    let mut data = Rng::new(seed).bytes(len.min(1 << 16));
    data.resize(len, 7);
    for (index, packet) in data.chunks_mut(MTU).enumerate() {
        let name = (seed << 32 | index as u64 | 1 << 63).to_le_bytes();
        let len = name.len().min(packet.len());
        packet[..len].copy_from_slice(&name[..len]);
    }
    data
}

/// Words of A that were put on the link.
fn words(pair: &mut Pair) -> u64 {
    let recorded = pair.recorded.replace(Vec::new()).expect("recording is on");
    let is_word = |bytes: &[u8]| {
        let Ok(Packet::Control(_, body)) = parse_checked(bytes) else { return false };
        let Ok(body) = ControlBody::parse(body) else { return false };
        body.frames().any(|frame| matches!(frame, Ok(Frame::Sent(_))))
    };
    recorded.iter().filter(|(side, _, bytes)| *side == Side::A && is_word(bytes)).count() as u64
}

/// One message at a time, without deadlines.
fn one_at_a_time(losses: (u32, u32), len: usize, count: u64) -> Cell {
    let mut cell = Cell::default();
    let mut pair = pair(u64::from(losses.0 + losses.1));
    pair.recorded = Some(Vec::new());
    for round in 0..count {
        // The peer learns of the receive.
        pair.link = lossy(0, 1);
        let posted = pair.post(Side::B, len);
        pair.run_for(2 * RTT_NS);
        words(&mut pair);
        pair.link = lossy(losses.0, losses.1);
        let data = data(round, len);
        let before = pair.a.data_packets;
        pair.send(Side::A, data.clone(), None);
        let packets = len.div_ceil(MTU) as u64;
        assert!(pair.run_until(SECOND, |pair| pair.a.data_packets == before + packets));
        // When the last packet arrives, or would if it was not lost.
        let arrives_ns = pair.now_ns + RTT_NS / 2;
        let is_over = |_: &mut Pair| posted.reason().is_some();
        if !pair.run_until(SECOND, is_over) {
            // The last packet was lost, and all that the sender says of it.
            cell.silent += 1;
            assert!(words(&mut pair) >= 3, "message {round}: the sender has said nothing");
            check(&mut pair, posted, &data);
            continue;
        }
        let reason = posted.reason().unwrap();
        cell.count(reason);
        if reason != Reason::Whole {
            assert!(matches!(reason, Reason::End | Reason::Accounted), "{reason}");
            let took_ns = pair.now_ns.saturating_sub(arrives_ns);
            cell.slowest_ns = cell.slowest_ns.max(took_ns);
            cell.late += u32::from(took_ns > WINDOW_NS + SLACK_NS);
            // The first word leaves with the last packet; two more follow.
            let said = words(&mut pair).max(1);
            assert!(took_ns <= WINDOW_NS + SLACK_NS + said * RTT_NS * 3 / 2, "{took_ns} ns");
        }
        check(&mut pair, posted, &data);
    }
    let ends = pair.b.qp().stats().ends;
    assert_eq!(ends.receives[Reason::Deadline.index()], 0);
    cell
}

/// Messages one behind the other, without deadlines.
fn back_to_back(losses: (u32, u32), len: usize, count: usize) -> Cell {
    let mut cell = Cell::default();
    let mut pair = pair(u64::from(losses.0));
    let open = 16.min(count);
    let mut receives: Vec<(PostedReceive, Vec<u8>)> = Vec::new();
    let mut begun = 0;
    while cell.messages < count as u32 {
        while receives.len() < open && begun < count {
            let data = data(begun as u64, len);
            receives.push((pair.post(Side::B, len), data.clone()));
            pair.send(Side::A, data, None);
            begun += 1;
        }
        pair.link = lossy(losses.0, losses.1);
        let (first, _) = &receives[0];
        if !pair.run_until(2 * SECOND, |_| first.reason().is_some()) {
            // Of the last messages all may be lost that tells: nothing comes behind them.
            assert!(begun == count && receives.len() < 8, "it never ended");
            cell.silent += receives.len() as u32;
            cell.messages += receives.len() as u32;
            for (posted, data) in receives {
                check(&mut pair, posted, &data);
            }
            return cell;
        }
        let (first, data) = receives.remove(0);
        let reason = first.reason().unwrap();
        assert!(
            matches!(reason, Reason::Whole | Reason::End | Reason::Accounted | Reason::Preempted),
            "{reason}"
        );
        cell.count(reason);
        check(&mut pair, first, &data);
    }
    cell
}

/// With deadlines that are sometimes too short.
fn with_deadlines(losses: (u32, u32), len: usize, count: u64) -> Cell {
    let mut cell = Cell::default();
    let mut pair = pair(u64::from(losses.0 + 1));
    pair.link = lossy(losses.0, losses.1);
    let takes_ns = RTT_NS + len as u64 * 8;
    let mut rng = Rng::new(3);
    let mut open: Vec<(PostedReceive, u64, Vec<u8>)> = Vec::new();
    for round in 0..count {
        let deadline_ns = pair.now_ns + takes_ns / 4 + rng.below(3 * takes_ns);
        let options = RecvOptions { deadline_ns: Some(deadline_ns), ..RecvOptions::default() };
        let posted = pair.post_with(Side::B, len, options);
        let data = data(round, len);
        pair.send(Side::A, data.clone(), None);
        open.push((posted, deadline_ns, data));
        let next_ns = pair.now_ns + takes_ns / 2;
        while let Some(due_ns) =
            open.iter().map(|(_, due_ns, _)| *due_ns).filter(|d| *d <= next_ns).min()
        {
            pair.run_for(due_ns.saturating_sub(pair.now_ns));
            for at in (0..open.len()).rev().filter(|at| open[*at].1 <= due_ns).collect::<Vec<_>>() {
                let (posted, _, data) = open.remove(at);
                cell.count(posted.reason().expect("its deadline is now"));
                check(&mut pair, posted, &data);
            }
        }
        pair.run_for(next_ns - pair.now_ns);
    }
    pair.run_for(4 * takes_ns);
    for (posted, _, data) in open {
        cell.count(posted.reason().expect("its deadline has passed"));
        check(&mut pair, posted, &data);
    }
    assert_eq!(cell.reasons[Reason::Failed.index()], 0);
    cell
}

/// Runs the grid for messages of one length and prints the counts.
fn grid(len: usize, count: u64) {
    let (mut lossy, mut late, mut silent) = (0, 0, 0);
    for losses in LOSSES {
        let (ppm, burst) = losses;
        let alone = one_at_a_time(losses, len, count);
        println!("{len} bytes, {ppm} ppm in {burst}, one at a time: {alone:?}");
        lossy += alone.lossy;
        late += alone.late;
        silent += alone.silent;
        let behind = back_to_back(losses, len, count as usize);
        println!("{len} bytes, {ppm} ppm in {burst}, back to back: {behind:?}");
        assert_eq!(u64::from(behind.messages), count);
        let bounded = with_deadlines(losses, len, count);
        println!("{len} bytes, {ppm} ppm in {burst}, with deadlines: {bounded:?}");
        assert_eq!(u64::from(bounded.messages), count);
    }
    println!("{len} bytes: {lossy} lossy messages, {late} late, {silent} never told");
    assert!(lossy > 0);
    assert!(late + silent <= lossy / 100, "{late} late and {silent} silent of {lossy}");
}

#[test]
fn every_receive_ends_in_time_with_what_came() {
    grid(64 << 10, 60);
}

#[test]
fn every_receive_of_a_megabyte_ends_in_time_with_what_came() {
    grid(1 << 20, 4);
}

#[test]
fn reordering_by_a_quarter_of_a_round_trip_cuts_no_message_once_it_is_known() {
    for (len, count) in [(64 << 10, 60), (1 << 20, 24)] {
        let mut pair = pair(9);
        let (reorder_ppm, reorder_ns) = (500_000, RTT_NS / 4);
        pair.link = Link { reorder_ppm, reorder_ns, ..lossy(0, 1) };
        let mut cut = Vec::new();
        for round in 0..count {
            let data = data(round, len);
            let posted = pair.post(Side::B, len);
            pair.run_for(2 * RTT_NS);
            pair.send(Side::A, data.clone(), None);
            assert!(pair.run_until(SECOND, |_| posted.reason().is_some()));
            if posted.reason() != Some(Reason::Whole) {
                cut.push(round);
            }
            check(&mut pair, posted, &data);
        }
        assert!(cut.iter().all(|round| *round < 20), "{len} bytes: {cut:?}");
    }
}

#[test]
#[ignore = "long: a thousand messages of 64 KiB per cell"]
fn the_grid_of_64_kib() {
    grid(64 << 10, 1000);
}

#[test]
#[ignore = "long: a thousand messages of a megabyte per cell"]
fn the_grid_of_1_mib() {
    grid(1 << 20, 1000);
}

#[test]
#[ignore = "long: two hundred messages of 8 MiB per cell"]
fn the_grid_of_8_mib() {
    grid(8 << 20, 200);
}
