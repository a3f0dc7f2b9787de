//! OptiNIC's figure 5: how long all-reduce, all-gather and reduce-scatter of 20 to 80 MB take with go-back-N, with selective
//! repeat, and in time with what is there.
//!
//! Four ranks, links of 1 Gbit/s, a round trip of 1 ms, all by the same tables and the same runner. Messages are passed on
//! whole, so that all that differs is what is done about losses:
//!
//! - *go-back-N*: messages of reliable connections ([`Workload`]) are measured once, and each message of an operation takes the
//!   time of one of them, drawn independently;
//! - *selective repeat*: a network in virtual time in which a lost packet comes a round trip later;
//! - *in time*: the same network where what is lost is lost. The budget is OptiNIC's first one (3.1.2), 1.25 times the median of
//!   the first operations and 50 us.
//!
//! The paper's losses are its switches' under background traffic; here they are drawn, independently or in bursts.

use super::NAME;
use crate::cells::{Lab, Stopped};
use crate::connections::{OVERHEAD_BYTES, Workload};
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Verdict};
use lacuna_link::{Fraction, Loss, LossProcess, Prng, SplitMix64};
use lacuna_planner::chart::{Axis, Chart, Series};
use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::run::{Divisor, Job, Label, Reason, Settings, Time, Vectors};
use lacuna_schedule::schedule::{Algorithm, Collective, Request, plan};
use lacuna_schedule::simulated::{Carried, Config, Fate, Group, Judge, Network};

const RANKS: usize = 4;
const RATE_BITS_PER_S: u64 = 1_000_000_000;
const RTT_NS: u64 = 1_000_000;
const PACKET_BYTES: u32 = 1024;
/// When a receive ends after the sender's last packet should have come: some packets' time at this rate.
const GRACE_NS: u64 = 50_000;
/// Operations before the budget is set.
const WARM_UP: usize = 3;
/// Time for those: far more than any takes.
const UNHURRIED_NS: u64 = 600_000_000_000;
/// OptiNIC 3.1.2.
const FIRST: (f64, u64) = (1.25, 50_000);
/// What the paper's figure shows, least and most.
const PAPER: (f64, f64) = (1.6, 2.5);
/// What the paper says of more loss.
const PAPER_LOSSY: f64 = 5.0;
const SEED: u64 = 1;

/// Losses: their mean, and how many packets are lost in a row on average.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Losses {
    mean: f64,
    burst_packets: f64,
}

const UNDER_ONE: Losses = Losses { mean: 9e-3, burst_packets: 1.0 };
const IN_BURSTS: Losses = Losses { mean: 9e-3, burst_packets: 16.0 };
const MANY: Losses = Losses { mean: 4.5e-2, burst_packets: 1.0 };

impl Losses {
    fn loss(self) -> Loss {
        if self.burst_packets > 1.0 {
            Loss::bursts(self.mean, self.burst_packets).expect("losses that can be")
        } else {
            Loss::Independent(Fraction::from_f64(self.mean))
        }
    }

    fn name(self) -> String {
        let Self { mean, burst_packets } = self;
        let bursts = match burst_packets > 1.0 {
            true => format!(", bursts of {burst_packets}"),
            false => String::new(),
        };
        format!("{:.1} %{bursts}", 100.0 * mean)
    }

    /// A process for each pair of ranks.
    fn judge(self, seed: u64) -> Judge {
        let process = |pair| LossProcess::new(self.loss(), Prng::new(seed, pair));
        let mut pairs: Vec<LossProcess> = (0..(RANKS * RANKS) as u64).map(process).collect();
        Box::new(move |packet| match pairs[packet.from * RANKS + packet.to].loses() {
            true => Fate::Lost,
            false => Fate::Comes { extra_ns: 0 },
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    AllReduce,
    AllGather,
    ReduceScatter,
}

impl What {
    const ALL: [Self; 3] = [Self::AllReduce, Self::AllGather, Self::ReduceScatter];

    fn collective(self, bytes: usize) -> Collective {
        let counts = vec![bytes / RANKS; RANKS];
        match self {
            Self::AllReduce => Collective::AllReduce { count: bytes },
            Self::AllGather => Collective::AllGather { counts },
            Self::ReduceScatter => Collective::ReduceScatter { counts },
        }
    }
}

/// Operations of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    what: What,
    bytes: usize,
    losses: Losses,
}

/// How long operations took, and what they lost per hop.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    mean_s: f64,
    deviation_s: f64,
    lost: f64,
    late: f64,
}

/// An operation that is over.
#[derive(Debug, Clone, Copy, Default)]
struct One {
    s: f64,
    bytes: u64,
    lost_bytes: u64,
    late_bytes: u64,
}

impl Times {
    fn of(operations: &[One]) -> Self {
        let count = operations.len().max(1) as f64;
        let mean_s = operations.iter().map(|one| one.s).sum::<f64>() / count;
        let variance = operations.iter().map(|one| (one.s - mean_s).powi(2)).sum::<f64>() / count;
        let sum = |of: fn(&One) -> u64| operations.iter().map(of).sum::<u64>() as f64;
        let bytes = sum(|one| one.bytes).max(1.0);
        let lost = sum(|one| one.lost_bytes) / bytes;
        let late = sum(|one| one.late_bytes) / bytes;
        Self { mean_s, deviation_s: variance.sqrt(), lost, late }
    }
}

#[derive(Debug, Clone, Copy)]
struct Found {
    back: Times,
    selective: Times,
    in_time: Times,
}

impl Found {
    fn gain(&self) -> f64 {
        self.back.mean_s / self.in_time.mean_s
    }
}

/// A link on which a packet takes as long as one of a reliable connection does with its headers.
fn link(config: Config) -> Config {
    Config { packet_bytes: PACKET_BYTES as usize, chunk_packets: 64, is_warm: true, ..config }
}

fn payload_bits_per_s() -> u64 {
    let packet_bytes = u64::from(PACKET_BYTES);
    RATE_BITS_PER_S * packet_bytes / (packet_bytes + OVERHEAD_BYTES)
}

impl Cell {
    /// Messages of this size over a connection with go-back-N: the time until each is acknowledged.
    fn messages_ns(&self, count: u64, stop: &dyn Fn() -> bool) -> Option<Vec<u64>> {
        let workload = Workload {
            message_bytes: self.bytes / RANKS,
            mtu_bytes: PACKET_BYTES,
            depth: 1,
            seed: SEED,
            duration_ns: UNHURRIED_NS,
            messages: Some(count),
            ..Workload::new(RATE_BITS_PER_S, RTT_NS, self.losses.loss())
        };
        let measured = workload.run(stop)?;
        Some(measured.times_s.iter().map(|seconds| (seconds * 1e9) as u64).collect())
    }

    /// Runs one operation of so many bytes in a network.
    fn operate(&self, bytes: usize, network: Network, time: Time) -> One {
        let settings = Settings { is_pipelined: false, has_checks: false, ..Settings::default() };
        let collective = self.what.collective(bytes);
        let mut group = Group::new(network, settings);
        for rank in 0..RANKS {
            let table = plan(&Request {
                collective: &collective,
                algorithm: &Algorithm::Ring,
                rank,
                ranks: RANKS,
                is_average: false,
                is_in_place: false,
            });
            let table = table.expect("a ring of four");
            let label = Label {
                name: String::new(),
                elements: bytes as u64,
                element: Element::U8,
                op: Op::Sum,
            };
            let buffers = Vectors { input: vec![1; table.input], output: vec![0; table.output] };
            let buffers = Box::new(buffers);
            group.start(rank, Job { table, label, buffers, time, losses: Vec::new() });
        }
        assert!(group.run(u64::MAX), "an operation without a fault ends");
        let mut one = One::default();
        for rank in 0..RANKS {
            for (time_ns, finished) in group.take(rank) {
                let report = finished.result.expect("no rank fails");
                one.s = one.s.max(time_ns as f64 / 1e9);
                one.bytes += report.bytes();
                one.lost_bytes += report.lost_bytes();
                let late = report.hops.iter().filter(|hop| hop.reason == Reason::Deadline);
                one.late_bytes += late.map(|hop| hop.bytes - hop.reached_bytes).sum::<u64>();
            }
        }
        one
    }

    fn with_go_back_n(&self, messages_ns: &[u64], seed: u64) -> One {
        let mut random = SplitMix64::new(seed);
        let messages_ns = messages_ns.to_vec();
        let carrier = move |_, _, _| {
            let acknowledged_ns = messages_ns[random.below(messages_ns.len() as u64) as usize];
            let received_ns = acknowledged_ns.saturating_sub(RTT_NS / 2);
            Carried { received_ns, next_ns: received_ns }
        };
        let config = Config { carrier: Some(Box::new(carrier)), ..Config::reliable(RANKS, 1, 0) };
        let network = Network::new(link(config), Box::new(|_| Fate::Comes { extra_ns: 0 }));
        // Its messages stand for those that were measured, whatever they carry.
        self.operate(RANKS, network, Time::Unlimited)
    }

    fn with_selective_repeat(&self, seed: u64) -> One {
        let config = Config::reliable(RANKS, payload_bits_per_s(), RTT_NS / 2);
        self.operate(
            self.bytes,
            Network::new(link(config), self.losses.judge(seed)),
            Time::Unlimited,
        )
    }

    fn in_time(&self, budget_ns: u64, seed: u64) -> One {
        let config = Config {
            grace_ns: Some(GRACE_NS),
            ..Config::best_effort(RANKS, payload_bits_per_s(), RTT_NS / 2)
        };
        let time = Time::Bounded { budget_ns, usual_ns: budget_ns, divisor: Divisor::Ranks };
        self.operate(self.bytes, Network::new(link(config), self.losses.judge(seed)), time)
    }

    fn run(&self, (operations, messages): (u64, u64), stop: &dyn Fn() -> bool) -> Option<Found> {
        let messages_ns = self.messages_ns(messages, stop)?;
        let mut first_s: Vec<f64> =
            (0..WARM_UP).map(|seed| self.in_time(UNHURRIED_NS, seed as u64).s).collect();
        first_s.sort_by(f64::total_cmp);
        let budget_ns = (FIRST.0 * first_s[WARM_UP / 2] * 1e9) as u64 + FIRST.1;
        let (mut back, mut selective, mut in_time) = (Vec::new(), Vec::new(), Vec::new());
        // Operations over messages that were measured cost nothing.
        for operation in 0..20 * operations {
            back.push(self.with_go_back_n(&messages_ns, (SEED << 32) + operation));
        }
        for operation in 0..operations {
            if stop() {
                return None;
            }
            let seed = (SEED << 32) + operation;
            selective.push(self.with_selective_repeat(seed));
            in_time.push(self.in_time(budget_ns, seed));
        }
        let [back, selective, in_time] = [back, selective, in_time].map(|all| Times::of(&all));
        Some(Found { back, selective, in_time })
    }
}

pub(crate) fn figure_5(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let megabytes: &[usize] = lab.effort.pick(&[20, 80], &[20, 40, 60, 80]);
    let (operations, messages) = lab.effort.pick((3, 40), (40, 400));
    let mut cells = Vec::new();
    for what in What::ALL {
        for losses in [UNDER_ONE, IN_BURSTS, MANY] {
            let bytes = megabytes.iter().map(|megabytes| 1_000_000 * megabytes);
            cells.extend(bytes.map(|bytes| Cell { what, bytes, losses }));
        }
    }
    let found = lab.each(&cells, |cell| cell.run((operations, messages), lab.stop))?;
    let workload = format!(
        "ring of {RANKS} ranks, 1 Gbit/s, 1 ms, packets of {PACKET_BYTES} bytes, messages passed on whole; {operations} operations, of \
         go-back-N {} over {messages} measured messages",
        20 * operations
    );
    Ok(outcome(&cells, &found, workload))
}

fn outcome(cells: &[Cell], found: &[Found], workload: String) -> Outcome {
    let mut csv = Csv::new(
        "operation,loss,burst_packets,bytes,gbn_mean_s,gbn_sd_s,sr_mean_s,sr_sd_s,bounded_mean_s,bounded_sd_s,lost,late",
    );
    let mut rows = Vec::new();
    for (Cell { what, bytes, losses }, found) in cells.iter().zip(found) {
        let Found { back, selective, in_time } = found;
        let name = what.collective(*bytes).name();
        let times = [back, selective, in_time].map(|of| [of.mean_s, of.deviation_s]).concat();
        let of = [losses.mean, losses.burst_packets, *bytes as f64];
        csv.row(&[name], &[&of[..], &times, &[in_time.lost, in_time.late]].concat());
        let ms =
            |times: &Times| format!("{:.0} ± {:.0}", times.mean_s * 1e3, times.deviation_s * 1e3);
        rows.push(vec![
            name.to_owned(),
            losses.name(),
            format!("{} MB", bytes / 1_000_000),
            ms(back),
            ms(selective),
            ms(in_time),
            format!("{:.2}", found.gain()),
            format!("{:.2}", selective.mean_s / in_time.mean_s),
            format!("{:.2} %", 100.0 * in_time.lost),
            format!("{:.2} %", 100.0 * in_time.late),
        ]);
    }
    let header = [
        "operation",
        "loss",
        "bytes",
        "go-back-N, ms",
        "selective repeat",
        "in time",
        "gain",
        "over sr",
        "lost",
        "late",
    ];
    Outcome {
        paper: NAME,
        item: Item::Figure(5),
        live: false,
        title: "collective time by size, go-back-N and in time".to_owned(),
        workload,
        statements: statements(cells, found),
        charts: charts(cells, found),
        rows: Some(Rows { header: header.map(str::to_owned).into(), rows }),
        remarks: vec![
            "Lost is bytes per hop; the paper's losses are its switches' under background traffic, here they are drawn.".to_owned(),
        ],
        csv,
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| (value.min(least), value.max(most)))
}

fn statements(cells: &[Cell], found: &[Found]) -> Vec<Statement> {
    let of = |losses: Losses| {
        cells
            .iter()
            .zip(found)
            .filter(move |(cell, _)| cell.losses == losses)
            .map(|(_, found)| found)
    };
    let gains = |losses| ends(of(losses).map(Found::gain));
    let lost = |losses| 100.0 * of(losses).map(|found| found.in_time.lost).fold(0.0, f64::max);
    let (few, bursts, many) = (gains(UNDER_ONE), gains(IN_BURSTS), gains(MANY));
    let against = ends(of(UNDER_ONE).map(|found| found.selective.mean_s / found.in_time.mean_s));
    let sd = |times: fn(&Found) -> Times| {
        of(UNDER_ONE).map(|found| times(found).deviation_s).fold(0.0, f64::max) * 1e3
    };
    let verdict = |mine: f64, least: f64| match mine {
        mine if mine * 0.9 > least => Verdict::Exceeded,
        mine if mine >= least => Verdict::Holds,
        _ => Verdict::Differs,
    };
    vec![
        Statement {
            section: "5.3.1, figure 5",
            paper: format!("{} to {} times faster than RoCE at less than 1 % lost", PAPER.0, PAPER.1),
            ours: format!(
                "{:.2} to {:.2} times at {:.2} % lost; the same losses in bursts of {}: {:.2} to {:.2} times",
                few.0, few.1, lost(UNDER_ONE), IN_BURSTS.burst_packets, bursts.0, bursts.1
            ),
            verdict: verdict(few.0, PAPER.0),
            why: Some("one loss costs go-back-N a round trip however many packets it takes along, so fewer and longer losses cost it less".to_owned()),
        },
        Statement {
            section: "5.3.1",
            paper: format!("up to {PAPER_LOSSY} times faster where 4 to 5 % may be lost"),
            ours: format!("{:.2} to {:.2} times at {:.2} % lost", many.0, many.1, lost(MANY)),
            verdict: verdict(many.1, PAPER_LOSSY),
            why: Some("here go-back-N sends at the rate of the link, and what it sends again is lost again: its timeouts, which double, take most of the time; the paper's cards had losses of a switch, which fall with the rate".to_owned()),
        },
        Statement {
            section: "5.3.1, figure 5",
            paper: "the times vary a third as much (12 and 35 ms)".to_owned(),
            ours: format!(
                "standard deviation {:.1} ms in time, {:.1} ms with go-back-N, at most",
                sd(|found| found.in_time), sd(|found| found.back)
            ),
            verdict: verdict(sd(|found| found.back) / sd(|found| found.in_time).max(1e-3), 3.0),
            why: None,
        },
        Statement {
            section: "beside selective repeat",
            paper: "no baseline of figure 5 repairs single packets".to_owned(),
            ours: format!("{:.2} to {:.2} times faster than selective repeat, same losses", against.0, against.1),
            verdict: verdict(against.0, PAPER.0),
            why: Some("a packet that is sent again takes a packet's time, and a round trip at the end of a message: long tensors hide it".to_owned()),
        },
    ]
}

fn charts(cells: &[Cell], found: &[Found]) -> Vec<Chart> {
    let chart = |what: What, losses: Losses| {
        let here = cells.iter().zip(found);
        let here: Vec<_> =
            here.filter(|(cell, _)| cell.what == what && cell.losses == losses).collect();
        let line = |name: &str, of: fn(&Found) -> Times| {
            let point =
                |(cell, found): &(&Cell, &Found)| (cell.bytes as f64 / 1e6, of(found).mean_s * 1e3);
            Series::new(name, here.iter().map(point).collect())
        };
        Chart {
            title: format!("{}, {}", what.collective(RANKS).name(), losses.name()),
            x: Axis::linear("MB"),
            y: Axis::linear("ms"),
            series: vec![
                line("go-back-N", |found| found.back),
                line("selective repeat", |found| found.selective),
                line("in time", |found| found.in_time),
            ],
            marks: Vec::new(),
        }
    };
    What::ALL
        .into_iter()
        .flat_map(|what| [UNDER_ONE, MANY].map(|losses| chart(what, losses)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_time_is_ahead_of_go_back_n_by_what_the_losses_cost_it() {
        let run = |what, losses| {
            let cell = Cell { what, bytes: 4_000_000, losses };
            cell.run((2, 20), &|| false).expect("it is not stopped")
        };
        for what in What::ALL {
            let few = run(what, UNDER_ONE);
            assert!(few.gain() > 1.5, "{what:?} {few:?}");
            assert!((few.in_time.lost - UNDER_ONE.mean).abs() < 0.003, "{what:?} {few:?}");
            assert_eq!(few.in_time.late, 0.0, "{what:?} {few:?}");
            assert_eq!((few.back.lost, few.selective.lost), (0.0, 0.0), "{what:?}");
        }
        let many = run(What::AllReduce, MANY);
        assert!(many.gain() > 4.0 && many.in_time.lost > 0.04, "{many:?}");
        // What is not repaired takes the time of its bytes.
        let bytes = 2 * (RANKS - 1) * 1_000_000;
        let least_s = bytes as f64 * 8.0 / payload_bits_per_s() as f64;
        assert!(many.in_time.mean_s < 1.1 * least_s + 6e-3, "{many:?} {least_s}");
    }

    #[test]
    fn a_cell_ends_when_told_to() {
        let cell = Cell { what: What::AllReduce, bytes: 400_000, losses: UNDER_ONE };
        assert!(cell.run((1, 5), &|| true).is_none());
    }
}
