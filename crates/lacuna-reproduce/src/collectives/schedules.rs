//! Each schedule's time in a network in virtual time, beside what the model says of it (`choose::time_s`), by
//! which schedules are chosen; what forwarding by the bitmap gains; and a hierarchical schedule between two sites
//! beside a flat ring.
//!
//! A rank has a link of 1 Gbit/s in each direction, and receives are known to their senders. A lost packet comes
//! three round trips later, as the model's timeouts have it. The same tables and the same runner as on sockets
//! ([`lacuna_schedule::run`]).

use super::NAME;
use crate::cells::{Lab, Stopped};
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Study, Verdict};
use lacuna_model::{Framing, Loss, Path, RepairTiming};
use lacuna_planner::chart::{Axis, Chart, Series, plain};
use lacuna_schedule::choose::{Surroundings, time_s};
use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::run::{Job, Label, Settings, Time, Vectors};
use lacuna_schedule::schedule::{Algorithm, Collective, Request, plan};
use lacuna_schedule::simulated::{Config, Group, Network, independent_loss};

const RANKS: usize = 8;
const RATE_BITS_PER_S: u64 = 1_000_000_000;
const PACKET_BYTES: usize = 1024;
const CHUNK_PACKETS: usize = 4;
/// Within a site, one way.
const NEAR_NS: u64 = 25_000;
/// The model may be off by so much, of one message at a time or forwarded alike.
const OFF: (f64, f64) = (0.75, 1.25);

/// An operation on paths.
#[derive(Debug, Clone, PartialEq)]
struct Case {
    collective: Collective,
    algorithm: Algorithm,
    rtt_ns: u64,
    loss_ppm: u32,
    /// Ranks in two sites, between which the path is; else it is between all.
    has_sites: bool,
}

impl Case {
    fn all_reduce(algorithm: Algorithm, bytes: usize, rtt_ns: u64) -> Self {
        let collective = Collective::AllReduce { count: bytes };
        Self { collective, algorithm, rtt_ns, loss_ppm: 0, has_sites: false }
    }

    fn bytes(&self) -> usize {
        match self.collective {
            Collective::AllReduce { count }
            | Collective::Broadcast { count, .. }
            | Collective::Reduce { count, .. } => count,
            _ => 0,
        }
    }

    fn name(&self) -> String {
        match (&self.collective, &self.algorithm) {
            (Collective::Broadcast { .. }, Algorithm::Ring) => "broadcast by chain".to_owned(),
            (collective, algorithm) => format!("{} by {algorithm}", collective.name()),
        }
    }

    fn sites() -> Vec<usize> {
        (0..RANKS).map(|rank| rank * 2 / RANKS).collect()
    }

    fn model_s(&self) -> f64 {
        let loss = Loss::PerPacket(f64::from(self.loss_ppm) / 1e6);
        let path = |rtt_ns: u64| Path {
            rate_bits_per_s: RATE_BITS_PER_S as f64,
            rtt_s: rtt_ns as f64 / 1e9,
            loss,
        };
        let surroundings = Surroundings {
            path: path(self.rtt_ns),
            near: self.has_sites.then(|| (path(2 * NEAR_NS), Self::sites())),
            framing: Framing {
                chunk_bytes: (PACKET_BYTES * CHUNK_PACKETS) as u64,
                packet_bytes: PACKET_BYTES as u64,
                overhead_bytes: 0,
            },
            message_s: 0.0,
            repair: RepairTiming::TIMEOUT,
        };
        time_s(&self.collective, &self.algorithm, RANKS, 1, &surroundings).expect("a schedule")
    }

    /// When the last rank is done.
    fn found_s(&self, is_pipelined: bool, seed: u64) -> f64 {
        let (far_ns, has_sites) = (self.rtt_ns / 2, self.has_sites);
        let sites = Self::sites();
        let delay_ns = move |from: usize, to: usize| {
            if has_sites && sites[from] == sites[to] { NEAR_NS } else { far_ns }
        };
        let config = Config {
            delay_ns: Box::new(delay_ns),
            packet_bytes: PACKET_BYTES,
            chunk_packets: CHUNK_PACKETS,
            // With the round trip that it takes to be sent again: three.
            repair_ns: 2 * self.rtt_ns,
            is_warm: true,
            ..Config::reliable(RANKS, RATE_BITS_PER_S, 0)
        };
        let network = Network::new(config, independent_loss(self.loss_ppm, seed));
        let settings = Settings { is_pipelined, has_checks: false, ..Settings::default() };
        let mut group = Group::new(network, settings);
        for rank in 0..RANKS {
            let request = Request {
                collective: &self.collective,
                algorithm: &self.algorithm,
                rank,
                ranks: RANKS,
                is_average: false,
                is_in_place: false,
            };
            let table = plan(&request).expect("a schedule");
            let label = Label {
                name: String::new(),
                elements: self.bytes() as u64,
                element: Element::U8,
                op: Op::Sum,
            };
            let buffers = Vectors { input: vec![1; table.input], output: vec![0; table.output] };
            group.start(
                rank,
                Job {
                    table,
                    label,
                    buffers: Box::new(buffers),
                    time: Time::Unlimited,
                    losses: Vec::new(),
                },
            );
        }
        assert!(group.run(u64::MAX), "an operation without a fault ends");
        let ends_ns = (0..RANKS).flat_map(|rank| group.take(rank)).map(|(time_ns, _)| time_ns);
        ends_ns.max().unwrap_or(0) as f64 / 1e9
    }
}

/// What a case took.
#[derive(Debug, Clone, Copy)]
struct Found {
    model_s: f64,
    pipelined_s: f64,
    /// Passed on in whole messages.
    whole_s: f64,
}

impl Found {
    fn ratio(&self) -> f64 {
        self.pipelined_s / self.model_s
    }

    fn gain(&self) -> f64 {
        self.whole_s / self.pipelined_s
    }
}

/// All-reduces by all algorithms, broadcasts, reduces: of these bytes and round trips.
fn grid(bytes: &[usize], rtts_ns: &[u64]) -> Vec<Case> {
    let mut cases = Vec::new();
    for rtt_ns in rtts_ns.iter().copied() {
        for bytes in bytes.iter().copied() {
            for algorithm in [
                Algorithm::Ring,
                Algorithm::Halving,
                Algorithm::Doubling,
                Algorithm::Cube { radix: 2 },
                Algorithm::Transpose,
            ] {
                cases.push(Case::all_reduce(algorithm, bytes, rtt_ns));
            }
            let flat = Case::all_reduce(Algorithm::Ring, bytes, rtt_ns);
            let broadcast = Collective::Broadcast { root: 0, count: bytes };
            cases.push(Case { collective: broadcast.clone(), ..flat.clone() });
            let tree = Case { algorithm: Algorithm::Tree, ..flat };
            cases.push(Case { collective: broadcast, ..tree.clone() });
            cases.push(Case { collective: Collective::Reduce { root: 0, count: bytes }, ..tree });
        }
    }
    cases
}

/// A flat ring and a hierarchical schedule between two sites.
fn between_sites(bytes: &[usize], rtts_ns: &[u64]) -> Vec<Case> {
    let mut cases = Vec::new();
    for rtt_ns in rtts_ns {
        for bytes in bytes {
            for algorithm in [Algorithm::Ring, Algorithm::Hierarchical { sites: Case::sites() }] {
                cases
                    .push(Case { has_sites: true, ..Case::all_reduce(algorithm, *bytes, *rtt_ns) });
            }
        }
    }
    cases
}

fn measure(lab: &Lab<'_>, cases: &[Case], seeds: u64) -> Result<Vec<Found>, Stopped> {
    lab.each(cases, |case| {
        let seeds = if case.loss_ppm > 0 { seeds } else { 1 };
        let mean = |is_pipelined| {
            let mut sum_s = 0.0;
            for seed in 0..seeds {
                if (lab.stop)() {
                    return None;
                }
                sum_s += case.found_s(is_pipelined, seed);
            }
            Some(sum_s / seeds as f64)
        };
        let (model_s, pipelined_s) = (case.model_s(), mean(true)?);
        Some(Found { model_s, pipelined_s, whole_s: mean(false)? })
    })
}

pub(crate) fn schedules(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let bytes: &[usize] =
        lab.effort.pick(&[8 << 10, 256 << 10, 4 << 20], &[8 << 10, 64 << 10, 1 << 20, 16 << 20]);
    let rtts_ns: &[u64] = lab
        .effort
        .pick(&[200_000, 2_000_000, 20_000_000], &[200_000, 2_000_000, 20_000_000, 80_000_000]);
    let seeds = lab.effort.pick(10, 40);
    let plain_cases = grid(bytes, rtts_ns);
    let site_cases = between_sites(bytes, rtts_ns);
    let lossy = grid(&bytes[1..], &[20_000_000]).into_iter();
    let lossy: Vec<Case> = lossy.map(|case| Case { loss_ppm: 1000, ..case }).collect();
    let cases = [&plain_cases[..], &site_cases, &lossy].concat();
    let found = measure(lab, &cases, seeds)?;
    Ok(outcome(&cases, &found, seeds))
}

/// The smallest and the largest.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (value.min(least), value.max(most)))
}

/// Pairs of flat ring and hierarchical schedule on the same paths: how many times longer the ring takes here, and
/// by the model.
fn site_gains(cases: &[Case], found: &[Found]) -> Vec<(usize, u64, f64, f64)> {
    let all: Vec<_> = cases.iter().zip(found).filter(|(case, _)| case.has_sites).collect();
    let pairs = all.chunks_exact(2).map(|pair| {
        let [(case, ring), (_, sites)] = [pair[0], pair[1]];
        let gains = (ring.pipelined_s / sites.pipelined_s, ring.model_s / sites.model_s);
        (case.bytes(), case.rtt_ns, gains.0, gains.1)
    });
    pairs.collect()
}

fn outcome(cases: &[Case], found: &[Found], seeds: u64) -> Outcome {
    let mut csv =
        Csv::new("operation,sites,bytes,rtt_s,loss,s,model_s,ratio,whole_messages_s,gain");
    let mut rows = Vec::new();
    for (case, found) in cases.iter().zip(found) {
        let sites = if case.has_sites { "2" } else { "1" };
        let loss = f64::from(case.loss_ppm) / 1e6;
        let numbers = [case.bytes() as f64, case.rtt_ns as f64 / 1e9, loss, found.pipelined_s];
        let ratios = [found.model_s, found.ratio(), found.whole_s, found.gain()];
        csv.row(&[&case.name(), sites], &[numbers, ratios].concat());
        rows.push(vec![
            case.name(),
            sites.to_owned(),
            lacuna_units::show_bytes(case.bytes() as u64),
            format!("{} ms", case.rtt_ns as f64 / 1e6),
            if loss > 0.0 { format!("{loss:.0e}") } else { "0".to_owned() },
            format!("{:.2}", found.pipelined_s * 1e3),
            format!("{:.2}", found.model_s * 1e3),
            format!("{:.2}", found.ratio()),
            format!("{:.2}", found.gain()),
        ]);
    }
    let of = |is: fn(&Case) -> bool| -> Vec<Found> {
        cases.iter().zip(found).filter(|(case, _)| is(case)).map(|(_, found)| *found).collect()
    };
    let header =
        ["operation", "sites", "bytes", "round trip", "loss", "ms", "model", "ratio", "gain"];
    Outcome {
        paper: NAME,
        item: Item::Study(Study::Schedules),
        live: false,
        title: "each schedule's time beside the model's".to_owned(),
        workload: format!(
            "{RANKS} ranks, 1 Gbit/s each way, packets of 1 KiB, chunks of 4; two sites: 50 us within; loss: mean of {seeds} \
             seeds. Gain: the time with whole messages passed on, over that by chunks"
        ),
        statements: statements(&of, &site_gains(cases, found)),
        charts: charts(cases, found),
        rows: Some(Rows { header: header.map(str::to_owned).into(), rows }),
        remarks: vec![
            "The model leaves out that halving, cube, transpose, doubling and trees forward chunks too, so it is too long where a message takes about as long as a round trip; of 8 KiB it leaves out that a packet takes its time at the sender's link and at the receiver's.".to_owned(),
        ],
        csv,
    }
}

fn statements(
    of: &dyn Fn(fn(&Case) -> bool) -> Vec<Found>,
    sites: &[(usize, u64, f64, f64)],
) -> Vec<Statement> {
    let is = |(least, most): (f64, f64)| {
        if least >= OFF.0 && most <= OFF.1 { Verdict::Holds } else { Verdict::Differs }
    };
    let lossless = |case: &Case| case.loss_ppm == 0 && case.bytes() > 8 << 10;
    let without = ends(of(lossless).iter().map(Found::ratio));
    let tiny =
        ends(of(|case| case.loss_ppm == 0 && case.bytes() <= 8 << 10).iter().map(Found::ratio));
    let with = ends(of(|case| case.loss_ppm > 0).iter().map(Found::ratio));
    let stored =
        ends(of(|case| case.loss_ppm > 0).iter().map(|found| found.whole_s / found.model_s));
    let gains = sites.iter().map(|(_, _, here, model)| here / model);
    let largest = sites.iter().copied().max_by(|a, b| a.2.total_cmp(&b.2));
    let largest = largest.map_or(String::new(), |(bytes, rtt_ns, here, model)| {
        format!(
            "; most for {} over {} ms: {here:.2}, the model's {model:.2}",
            lacuna_units::show_bytes(bytes as u64),
            rtt_ns as f64 / 1e6
        )
    });
    let chain = ends(of(|case| case.name() == "broadcast by chain").iter().map(Found::gain));
    let ring = ends(
        of(|case| case.algorithm == Algorithm::Ring && case.bytes() > 8 << 10)
            .iter()
            .map(Found::gain),
    );
    let all = ends(of(|_| true).iter().map(Found::gain));
    let show = |(least, most): (f64, f64)| format!("{least:.2} to {most:.2}");
    let gain = ends(gains);
    vec![
        Statement {
            section: "the model of schedules",
            paper: "without loss each schedule takes the model's time".to_owned(),
            ours: format!("ratios {}; of 8 KiB {}", show(without), show(tiny)),
            verdict: is(without),
            why: Some("holds: from 0.75 to 1.25, above 8 KiB".to_owned()),
        },
        Statement {
            section: "the model of schedules",
            paper: "at a loss of 1e-3 each schedule takes the model's time".to_owned(),
            ours: format!("ratios {}; with whole messages passed on {}", show(with), show(stored)),
            verdict: is(with),
            why: Some("the model has one message for each phase: what waits for the slowest of many takes longer, and chunks that are not lost are passed on meanwhile, which takes less".to_owned()),
        },
        Statement {
            section: "the model of schedules",
            paper: "between two sites a hierarchical all-reduce is ahead of a flat ring by the model's ratio".to_owned(),
            ours: format!("here over the model's {}{largest}", show(gain)),
            verdict: is(gain),
            why: Some("holds: from 0.75 to 1.25. Long tensors take the time of their bytes either way: the ratio is 1".to_owned()),
        },
        Statement {
            section: "3.1.1",
            paper: "chunks are used as they come, and not when their message is whole".to_owned(),
            ours: format!(
                "gain by chunks: chain {}, ring above 8 KiB {}, all {}",
                show(chain),
                show(ring),
                show(all)
            ),
            verdict: if ring.0 >= 0.99 && chain.1 > 2.0 { Verdict::Holds } else { Verdict::Differs },
            why: Some("below 1: halving and cube of long tensors over short paths, where parts of the next step share the link with the rest of this one".to_owned()),
        },
    ]
}

fn charts(cases: &[Case], found: &[Found]) -> Vec<Chart> {
    let rtts: std::collections::BTreeSet<u64> = cases.iter().map(|case| case.rtt_ns).collect();
    let chart = |rtt_ns: u64| {
        let here = |case: &Case| case.rtt_ns == rtt_ns && case.loss_ppm == 0 && !case.has_sites;
        let here: Vec<_> = cases.iter().zip(found).filter(|(case, _)| here(case)).collect();
        let names: std::collections::BTreeSet<String> =
            here.iter().map(|(case, _)| case.name()).collect();
        let line = |name: String| {
            let points = here.iter().filter(|(case, _)| case.name() == name);
            let points = points.map(|(case, found)| (case.bytes() as f64, found.ratio())).collect();
            Series::new(name, points)
        };
        Chart {
            title: format!("{} ms, no loss", rtt_ns as f64 / 1e6),
            x: Axis::log("bytes", plain),
            y: Axis::ratio("time over the model's"),
            series: names.into_iter().map(line).collect(),
            marks: Vec::new(),
        }
    };
    rtts.into_iter().map(chart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Effort;

    fn measured(cases: &[Case]) -> Vec<Found> {
        let lab = Lab { effort: Effort::Quick, stop: &|| false, progress: &|_, _| {} };
        measure(&lab, cases, 1).expect("it is not stopped")
    }

    #[test]
    fn schedules_take_the_times_of_the_model() {
        let cases = grid(&[8 << 10, 512 << 10], &[200_000, 20_000_000]);
        for (case, found) in cases.iter().zip(measured(&cases)) {
            let (least, most) = if case.bytes() > 8 << 10 { OFF } else { (0.9, 1.3) };
            assert!((least..most).contains(&found.ratio()), "{case:?} {found:?}");
            // Rings and chains are what the model knows best.
            if case.algorithm == Algorithm::Ring && case.bytes() > 8 << 10 {
                assert!((found.ratio() - 1.0).abs() < 0.02, "{case:?} {found:?}");
            }
        }
    }

    #[test]
    fn a_hierarchical_schedule_is_ahead_of_a_flat_ring_by_the_models_ratio() {
        let cases = between_sites(&[8 << 10, 512 << 10], &[2_000_000, 20_000_000]);
        let gains = site_gains(&cases, &measured(&cases));
        for (bytes, rtt_ns, here, model) in &gains {
            let off = here / model;
            assert!((OFF.0..OFF.1).contains(&off), "{bytes} {rtt_ns}: {here} {model}");
        }
        assert!(gains.iter().any(|(_, _, here, _)| *here > 1.9), "{gains:?}");
    }

    #[test]
    fn passing_on_by_chunks_gains_where_hops_follow_each_other() {
        let ring = Case::all_reduce(Algorithm::Ring, 512 << 10, 2_000_000);
        let collective = Collective::Broadcast { root: 0, count: 512 << 10 };
        let chain = Case { collective, ..ring.clone() };
        let found = measured(&[ring, chain]);
        assert!(found[0].gain() > 1.2 && found[1].gain() > 2.5, "{found:?}");
    }
}
