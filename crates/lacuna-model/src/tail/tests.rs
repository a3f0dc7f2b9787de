//! The distribution against a simulation of the mode, packet by packet, on a link that carries one at a
//! time: a sender that has a queue of data, parity and repairs, and hears one round trip after a packet what
//! the receiver has of it. It knows nothing of rounds, ramps or codes' chances.

use super::*;
use crate::monte_carlo::{Sample, Samples};
use crate::{Loss, Random, RepairTiming, SelectiveRepeat};
use std::collections::{BTreeMap, VecDeque};

const K: u64 = 32;
const M: u64 = 16;
const Z: f64 = 4.0;

fn mode(rows: u32, rule: TailRule) -> TailMode {
    TailMode { code: Code::mds(K as u32, M as u32).unwrap(), rows, slot_packets: 1 << 20, rule }
}

fn transfer(packets: u64, rtt_packets: f64, loss: Loss) -> Transfer {
    Transfer::from_chunks(packets, 1e-5, rtt_packets * 1e-5, loss.of_chunk(1).unwrap()).unwrap()
}

/// A packet on the link.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Packet {
    Data(u64),
    /// Of a submessage, a row, and whether it is the submessage's last.
    Parity(u64, u64, bool),
}

struct Simulation {
    transfer: Transfer,
    rows: u64,
    choice: TailParity,
    /// Mean length of a run of lost packets.
    burst: f64,
}

/// A row as the receiver has it.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    missing: u64,
    parity: u64,
}

impl Row {
    fn is_incomplete(&self) -> bool {
        self.missing > self.parity
    }
}

struct Run<'r> {
    has: Vec<bool>,
    /// By submessage, then row.
    received: Vec<Row>,
    on_their_way: BTreeMap<u64, u32>,
    repairs: VecDeque<u64>,
    copies: VecDeque<u64>,
    fallen: Vec<bool>,
    random: &'r mut Random,
    is_bad: bool,
    /// When the link was looked at last.
    changed: f64,
}

impl Simulation {
    fn submessage(&self, packet: u64) -> u64 {
        packet / (K * self.rows)
    }

    /// The row of a packet, among all.
    fn row(&self, packet: u64) -> usize {
        (self.submessage(packet) * self.rows + packet % (K * self.rows) % self.rows) as usize
    }

    /// Whether a packet is lost that leaves now; the link goes on changing while nothing passes it.
    fn is_lost(&self, run: &mut Run<'_>, now: f64) -> bool {
        let p = self.transfer.loss().probability();
        if self.burst <= 1.0 {
            return run.random.chance(p);
        }
        for _ in 0..(now - run.changed).round() as u64 {
            let change = if run.is_bad { 1.0 / self.burst } else { p / (1.0 - p) / self.burst };
            run.is_bad ^= run.random.chance(change);
        }
        run.changed = now;
        run.is_bad
    }

    fn is_missing(&self, run: &Run<'_>, packet: u64) -> bool {
        !run.has[packet as usize] && run.received[self.row(packet)].is_incomplete()
    }

    /// What the receiver lacks of a submessage.
    fn missing(&self, run: &Run<'_>, submessage: u64) -> Vec<u64> {
        let first = submessage * K * self.rows;
        let last = (first + K * self.rows).min(self.transfer.chunks());
        (first..last).filter(|packet| self.is_missing(run, *packet)).collect()
    }

    fn repair(&self, run: &mut Run<'_>, packets: Vec<u64>, copies: u32) {
        for packet in &packets {
            run.on_their_way.insert(*packet, copies);
            run.repairs.push_back(*packet);
        }
        for _ in 1..copies {
            run.copies.extend(&packets);
        }
    }
}

impl Sample for Simulation {
    fn sample_s(&self, random: &mut Random) -> f64 {
        let (count, rtt) =
            (self.transfer.chunks(), self.transfer.rtt_s() / self.transfer.chunk_s());
        let submessages = count.div_ceil(K * self.rows);
        let is_bad = random.chance(self.transfer.loss().probability());
        let mut run = Run {
            has: vec![false; count as usize],
            received: vec![Row::default(); (submessages * self.rows) as usize],
            on_their_way: BTreeMap::new(),
            repairs: VecDeque::new(),
            copies: VecDeque::new(),
            fallen: vec![true; submessages as usize],
            random,
            is_bad,
            changed: 0.0,
        };
        for packet in 0..count {
            run.received[self.row(packet)].missing += 1;
        }
        let mut first: VecDeque<Packet> = (0..count).map(Packet::Data).collect();
        let mut heard: VecDeque<(f64, Packet)> = VecDeque::new();
        let (mut now, mut judged, mut chosen, mut copies) = (0.0, 0, false, 1);
        let mut incomplete = run.received.iter().filter(|row| row.is_incomplete()).count();
        loop {
            while heard.front().is_some_and(|(at, _)| *at <= now) {
                let Some((_, packet)) = heard.pop_front() else { break };
                match packet {
                    Packet::Data(packet) => {
                        judged = judged.max(packet + 1);
                        if let Some(left) = run.on_their_way.get_mut(&packet) {
                            *left -= 1;
                            if *left > 0 {
                                continue;
                            }
                            run.on_their_way.remove(&packet);
                        }
                        let submessage = self.submessage(packet);
                        if run.fallen[submessage as usize] {
                            if self.is_missing(&run, packet) {
                                self.repair(&mut run, vec![packet], copies);
                            }
                        } else if (packet + 1) % (K * self.rows) == 0 || packet + 1 == count {
                            let missing = self.missing(&run, submessage);
                            let most = u64::from(self.choice.parity) * self.rows;
                            if missing.len() as u64 > most {
                                run.fallen[submessage as usize] = true;
                                self.repair(&mut run, missing, copies);
                            }
                        }
                    }
                    Packet::Parity(submessage, _, true) => {
                        let missing = self.missing(&run, submessage);
                        if !run.fallen[submessage as usize] && !missing.is_empty() {
                            run.fallen[submessage as usize] = true;
                            self.repair(&mut run, missing, copies);
                        }
                    }
                    Packet::Parity(..) => {}
                }
            }
            let repair = run.repairs.pop_front().or_else(|| run.copies.pop_front());
            let Some(packet) = repair.map(Packet::Data).or_else(|| first.pop_front()) else {
                let Some((at, _)) = heard.front() else { unreachable!("nothing is on its way") };
                now = at.max(now);
                continue;
            };
            now += 1.0;
            heard.push_back((now + rtt, packet));
            if !self.is_lost(&mut run, now) {
                let (row, is_new) = match packet {
                    Packet::Data(packet) => {
                        let is_new = !std::mem::replace(&mut run.has[packet as usize], true);
                        (self.row(packet), is_new)
                    }
                    Packet::Parity(submessage, row, _) => {
                        ((submessage * self.rows + row) as usize, true)
                    }
                };
                let row = &mut run.received[row];
                let was_incomplete = row.is_incomplete();
                match packet {
                    Packet::Data(_) => row.missing -= u64::from(is_new),
                    Packet::Parity(..) => row.parity += 1,
                }
                incomplete -= usize::from(was_incomplete && !row.is_incomplete());
                if incomplete == 0 {
                    return (now + rtt) * self.transfer.chunk_s();
                }
            }
            if first.is_empty() && !chosen {
                chosen = true;
                copies = self.choice.repair_copies;
                let start = judged.div_ceil(K * self.rows);
                for submessage in start..submessages {
                    let packets = (count - submessage * K * self.rows).min(K * self.rows);
                    let most = (packets.div_ceil(self.rows) * M).div_ceil(K);
                    let parity = u64::from(self.choice.parity).min(most);
                    let rows = packets.min(self.rows);
                    if parity > 0 {
                        run.fallen[submessage as usize] = false;
                    }
                    for i in 0..parity * rows {
                        first.push_back(Packet::Parity(
                            submessage,
                            i % rows,
                            i + 1 == parity * rows,
                        ));
                    }
                }
                for _ in 1..copies {
                    for (packet, left) in &mut run.on_their_way {
                        *left += 1;
                        first.push_back(Packet::Data(*packet));
                    }
                }
            }
        }
    }
}

/// Whether mean and quantiles are within `slack` of the intervals that so many samples leave; what is not.
fn off(exact: &TailCoding, samples: &Samples, slack: f64) -> Option<String> {
    let quantiles = [0.5, 0.9, 0.99].map(|probability| {
        let interval = samples.quantile_interval_s(probability, Z);
        (format!("p{}", probability * 100.0), exact.quantile_s(probability), interval)
    });
    let mean = ("mean".to_owned(), exact.mean_s(), samples.mean_interval_s(Z));
    let all = std::iter::once(mean).chain(quantiles);
    let off = all.filter(|(_, value, (low, high))| {
        !(low * (1.0 - slack) <= *value && *value <= high * (1.0 + slack))
    });
    let off =
        off.map(|(name, value, (low, high))| format!("{name} {value:.6} [{low:.6}, {high:.6}]"));
    let off = off.collect::<Vec<_>>().join(", ");
    (!off.is_empty()).then_some(off)
}

macro_rules! says {
    ($parity:expr, $copies:expr) => {
        |_| TailParity { parity: $parity, repair_copies: $copies }
    };
}

const RULES: [TailRule; 6] =
    [says!(0, 1), says!(0, 2), says!(1, 2), says!(3, 2), says!(6, 3), says!(16, 4)];

/// A message and what is done about its tail.
struct Cell {
    packets: u64,
    rtt_packets: f64,
    loss: f64,
    burst: f64,
    rows: u32,
    rule: TailRule,
}

impl Cell {
    fn off(&self, slack: f64) -> Option<String> {
        let Self { packets, rtt_packets, loss, burst, rows, rule } = *self;
        let model =
            if burst > 1.0 { Loss::bursts(loss, burst).unwrap() } else { Loss::PerPacket(loss) };
        let transfer = transfer(packets, rtt_packets, model);
        let exact = TailCoding::new(&transfer, &mode(rows, rule)).unwrap();
        let choice = exact.choice();
        let simulation = Simulation { transfer, rows: rows.into(), choice, burst };
        let trials = (1_000_000 / packets).clamp(250, 4000) as usize;
        let samples = Samples::draw(&simulation, trials, &mut Random::new(packets));
        let tail = exact.question().tail_packets;
        off(&exact, &samples, slack).map(|off| {
            format!(
                "{packets} packets, round trip {rtt_packets}, loss {loss} in bursts of {burst}, \
                 {rows} rows, {choice:?}, tail {tail}: {off}"
            )
        })
    }
}

fn assert_agree(slack: f64, cells: impl Iterator<Item = Cell>) {
    let off: Vec<String> = cells.filter_map(|cell| cell.off(slack)).collect();
    assert!(off.is_empty(), "{}", off.join("\n"));
}

fn cells(
    lengths: &[(u64, f64)],
    losses: &[(f64, f64)],
    rows: u32,
    rules: &[TailRule],
) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &(packets, rtt_packets) in lengths {
        for &(loss, burst) in losses {
            let cell = |&rule| Cell { packets, rtt_packets, loss, burst, rows, rule };
            cells.extend(rules.iter().map(cell));
        }
    }
    cells
}

#[test]
fn it_agrees_with_a_simulation_packet_by_packet() {
    let lengths = [(1, 700.0), (20, 700.0), (300, 700.0), (2000, 700.0), (4000, 100.0)];
    let losses = [(1e-3, 1.0), (1e-2, 1.0), (5e-2, 1.0), (0.1, 1.0)];
    assert_agree(0.01, cells(&lengths, &losses, 1, &RULES).into_iter());
}

#[test]
fn rows_are_repaired_each_by_itself() {
    let lengths = [(50, 700.0), (500, 700.0), (2500, 900.0)];
    assert_agree(0.01, cells(&lengths, &[(1e-2, 1.0), (5e-2, 1.0)], 3, &RULES).into_iter());
}

#[test]
fn bursts_agree_with_their_simulation() {
    let losses = [(1e-2, 8.0), (1e-3, 8.0), (3e-2, 3.0)];
    let rules = [RULES[0], RULES[3], RULES[4]];
    let both = [1, 3].map(|rows| cells(&[(2000, 700.0)], &losses, rows, &rules));
    assert_agree(0.03, both.into_iter().flatten());
}

#[test]
fn without_parity_and_copies_it_is_selective_repeat() {
    let timing = RepairTiming { rto_rtts: 1.0, wire_time: true };
    for (packets, p) in [(100, 1e-2), (3000, 1e-3), (50_000, 1e-2)] {
        let transfer = transfer(packets, 700.0, Loss::PerPacket(p));
        let tail = TailCoding::new(&transfer, &mode(1, RULES[0])).unwrap();
        let repeat = SelectiveRepeat::new(&transfer, timing).unwrap();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.005;
        assert!(near(tail.mean_s(), repeat.mean_s()), "{packets} {p}");
        for probability in [0.5, 0.99, 0.999] {
            let (a, b) = (tail.quantile_s(probability), repeat.quantile_s(probability));
            assert!(near(a, b), "{packets} {p} {probability}: {a} {b}");
        }
        assert_eq!((tail.fallback_probability(), tail.parity_share()), (None, 0.0));
    }
}

#[test]
fn a_lossless_message_is_ideal_however_much_parity_follows_it() {
    let transfer = transfer(1000, 300.0, Loss::PerPacket(0.0));
    for rule in RULES {
        let tail = TailCoding::new(&transfer, &mode(1, rule)).unwrap();
        for time_s in [tail.mean_s(), tail.quantile_s(0.0), tail.quantile_s(0.999)] {
            assert!((time_s / transfer.ideal_s() - 1.0).abs() < 1e-9, "{time_s}");
        }
    }
}

#[test]
fn the_rule_is_asked_about_the_tail_and_gets_no_more_parity_than_there_is() {
    let transfer = transfer(2000, 700.0, Loss::bursts(0.01, 8.0).unwrap());
    let tail = TailCoding::new(&transfer, &mode(3, says!(99, 0))).unwrap();
    let TailQuestion { message_packets, tail_packets, rows, loss, burst_packets, .. } =
        *tail.question();
    // The last 700 packets, less the submessage of 96 that began before them.
    assert!(
        (601..=700).contains(&tail_packets) && (2000 - tail_packets) % 96 == 0,
        "{tail_packets}"
    );
    assert_eq!((message_packets, rows), (2000, 3));
    assert!((loss - 0.01).abs() < 1e-12 && (burst_packets - 8.0).abs() < 1e-9);
    assert_eq!(tail.choice(), TailParity { parity: 16, repair_copies: 1 });
    assert!(TailCoding::new(&transfer, &mode(0, RULES[0])).is_err());
    // Of a message of two slots, the second.
    let slots = TailMode { slot_packets: 1800, ..mode(3, RULES[3]) };
    let tail = TailCoding::new(&transfer, &slots).unwrap();
    assert_eq!(tail.question().tail_packets, 200);
}
