//! A ring of four sites, whose operations run through the runner of schedules and whose messages take the times
//! of the transport's own protocol: the 99.9th percentile of erasure coding and of selective repeat with
//! timeouts (SDR-RDMA 5.3, figure 13), beside the model.
//!
//! 20,000 operations are 480,000 messages. The protocol's messages are measured once ([`Messages`]), and each
//! message of an operation takes the time of one of them, drawn independently: losses are independent, so is
//! one message's time of another's. A tensor has one element for each of the four parts, which stands for a
//! quarter of 16 MiB.
//!
//! Two readings of a stage:
//!
//! - *acknowledged*, as the model of figure 13 has it: a rank's next message begins when its last one is
//!   acknowledged and its neighbour's is there; a stage takes one message's time for its sender;
//! - *received*, as the runner does it: a message begins when what it carries is there. A stage is half a round
//!   trip shorter, and nobody waits for an acknowledgement.
//!
//! Messages are passed on whole: forwarding by the bitmap is what `schedules` shows.

use super::NAME;
use super::messages::{Messages, Took};
use crate::cells::{Lab, Stopped};
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Study, Verdict};
use lacuna_link::SplitMix64;
use lacuna_model::collective::ring_allreduce;
use lacuna_model::monte_carlo::{RepeatSampler, Sample, SubmessageSampler};
use lacuna_model::{
    Code, Completion, EcConfig, Framing, Loss, ModelError, Path, Random, RepairTiming, Transfer,
};
use lacuna_planner::chart::{Axis, Chart, Series, power};
use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::run::{Job, Label, Settings, Time, Vectors};
use lacuna_schedule::schedule::{Algorithm, Collective, Request, Table, plan};
use lacuna_schedule::simulated::{Carried, Config, Fate, Group, Network};
use std::rc::Rc;

const RANKS: usize = 4;
const TENSOR_BYTES: usize = 16 << 20;
const PART_BYTES: usize = TENSOR_BYTES / RANKS;
const RTT_NS: u64 = 25_000_000;
const PACKET_BYTES: u32 = 4096;
const LOSSES: [f64; 3] = [1e-4, 1e-3, 1e-2];
/// That of figure 13, and that of the live measurement.
const RATES: [u64; 2] = [400_000_000_000, 1_000_000_000];
const OPERATIONS: usize = 20_000;
/// Of the model's ring.
const TRIALS: usize = 100_000;
const PERCENTILE: f64 = 0.999;
const SEED: u64 = 1;
/// How far the ratio may be off the model's.
const TOLERANCE: f64 = 0.15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Repeat,
    Coded,
}

impl Scheme {
    const ALL: [Self; 2] = [Self::Repeat, Self::Coded];

    fn mode(self) -> &'static str {
        match self {
            Self::Repeat => "sr:rto",
            Self::Coded => "ec:mds:32:8",
        }
    }
}

/// When a stage is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Acknowledged,
    Received,
}

impl Reading {
    const ALL: [Self; 2] = [Self::Acknowledged, Self::Received];

    fn name(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Received => "received",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    rate_bits_per_s: u64,
    loss: f64,
    scheme: Scheme,
}

/// Of operations: mean, median and 99.9th percentile.
#[derive(Debug, Clone, Copy)]
struct Times {
    mean_s: f64,
    median_s: f64,
    tail_s: f64,
}

impl Times {
    /// Of sorted times; quantiles by nearest rank.
    fn of(sorted_s: &[f64]) -> Self {
        let quantile = |share: f64| {
            let rank = (share * sorted_s.len() as f64).ceil() as usize;
            sorted_s[rank.clamp(1, sorted_s.len()) - 1]
        };
        Self {
            mean_s: sorted_s.iter().sum::<f64>() / sorted_s.len() as f64,
            median_s: quantile(0.5),
            tail_s: quantile(PERCENTILE),
        }
    }
}

impl Cell {
    fn messages(&self, count: usize) -> Messages {
        Messages {
            mode: self.scheme.mode().parse().expect("a mode"),
            rate_bits_per_s: self.rate_bits_per_s,
            rtt_ns: RTT_NS,
            loss: self.loss,
            packet_bytes: PACKET_BYTES,
            bytes: PART_BYTES,
            count,
            seed: SEED,
        }
    }

    /// The model's message, as figure 13 has it.
    fn transfer(&self) -> Result<Transfer, ModelError> {
        let path = Path {
            rate_bits_per_s: self.rate_bits_per_s as f64,
            rtt_s: RTT_NS as f64 / 1e9,
            loss: Loss::PerChunk(self.loss),
        };
        Transfer::new(&path, &Framing::PAPER, PART_BYTES as u64)
    }

    fn model(&self) -> Result<Box<dyn Sample>, ModelError> {
        let transfer = self.transfer()?;
        Ok(match self.scheme {
            Scheme::Repeat => Box::new(RepeatSampler::new(&transfer, RepairTiming::TIMEOUT)?),
            Scheme::Coded => {
                let config = EcConfig::paper(Code::mds(32, 8)?);
                Box::new(SubmessageSampler::new(&transfer, config)?)
            }
        })
    }

    /// Times of rings whose messages take times that the model draws.
    fn modelled(&self, reading: Reading) -> Result<Vec<f64>, ModelError> {
        struct Boxed(Box<dyn Sample>);
        impl Sample for Boxed {
            fn sample_s(&self, random: &mut Random) -> f64 {
                self.0.sample_s(random)
            }
        }
        let stage = Boxed(self.model()?);
        let mut random = Random::new(SEED);
        match reading {
            Reading::Acknowledged => {
                let drawn = ring_allreduce(&stage, RANKS as u32, TRIALS, &mut random)?;
                let rank = |i: usize| drawn.quantile_s((i as f64 + 0.5) / TRIALS as f64);
                Ok((0..TRIALS).map(rank).collect())
            }
            // Each rank's last message is the end of a chain of its own.
            Reading::Received => {
                let way_back_s = RTT_NS as f64 / 2e9;
                let mut chain = || -> f64 {
                    (0..2 * RANKS - 2).map(|_| stage.sample_s(&mut random) - way_back_s).sum()
                };
                let mut one = || (0..RANKS).map(|_| chain()).fold(0.0, f64::max);
                let mut times: Vec<f64> = (0..TRIALS).map(|_| one()).collect();
                times.sort_by(f64::total_cmp);
                Ok(times)
            }
        }
    }
}

/// Runs operations whose messages take times of these, and returns what they took. `None` if it was told to stop.
fn operate(
    pool: &Rc<[Took]>,
    injection_ns: u64,
    reading: Reading,
    operations: usize,
    stop: &dyn Fn() -> bool,
) -> Option<Vec<f64>> {
    let collective = Collective::AllReduce { count: RANKS };
    let table = |rank| {
        let algorithm = &Algorithm::Ring;
        let (is_average, is_in_place) = (false, false);
        plan(&Request {
            collective: &collective,
            algorithm,
            rank,
            ranks: RANKS,
            is_average,
            is_in_place,
        })
        .expect("a ring of four")
    };
    let tables: Vec<Table> = (0..RANKS).map(table).collect();
    let settings = Settings { is_pipelined: false, has_checks: false, ..Settings::default() };
    let mut times_s = Vec::with_capacity(operations);
    for operation in 0..operations {
        if operation % 256 == 0 && stop() {
            return None;
        }
        let mut random = SplitMix64::new((SEED << 32) + operation as u64);
        let pool = pool.clone();
        let carrier = move |_, _, _| {
            let Took { received_ns, acknowledged_ns } =
                pool[random.below(pool.len() as u64) as usize];
            match reading {
                Reading::Acknowledged => {
                    Carried { received_ns: acknowledged_ns, next_ns: acknowledged_ns }
                }
                Reading::Received => Carried { received_ns, next_ns: injection_ns },
            }
        };
        // Receives of a warm group are known to their senders.
        let config = Config { carrier: Some(Box::new(carrier)), ..Config::reliable(RANKS, 1, 0) };
        let network = Network::new(config, Box::new(|_| Fate::Comes { extra_ns: 0 }));
        let mut group = Group::new(network, settings);
        for (rank, table) in tables.iter().enumerate() {
            let label = Label {
                name: String::new(),
                elements: RANKS as u64,
                element: Element::U8,
                op: Op::Sum,
            };
            let buffers = Vectors { input: vec![1; RANKS], output: vec![0; RANKS] };
            let (table, buffers) = (table.clone(), Box::new(buffers));
            group.start(
                rank,
                Job { table, label, buffers, time: Time::Unlimited, losses: Vec::new() },
            );
        }
        assert!(group.run(u64::MAX), "a ring without a fault ends");
        let mut last_ns = 0;
        for rank in 0..RANKS {
            let (time_ns, finished) = group.take(rank).remove(0);
            assert!(finished.result.is_ok() && finished.buffers.output() == [RANKS as u8; RANKS]);
            last_ns = last_ns.max(time_ns);
        }
        times_s.push(last_ns as f64 / 1e9);
    }
    times_s.sort_by(f64::total_cmp);
    Some(times_s)
}

/// A cell read in one way: by the protocol, and by the model.
#[derive(Debug, Clone, Copy)]
struct Found {
    cell: Cell,
    reading: Reading,
    ours: Times,
    model: Times,
}

pub(crate) fn ring(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let messages = lab.effort.pick(2_000, 40_000);
    let mut cells = Vec::new();
    for rate_bits_per_s in RATES {
        for loss in LOSSES {
            cells.extend(Scheme::ALL.map(|scheme| Cell { rate_bits_per_s, loss, scheme }));
        }
    }
    let found = lab.each(&cells, |cell| {
        let pool: Rc<[Took]> = cell.messages(messages).run(lab.stop)?.into();
        let injection_ns = PART_BYTES as u64 * 8 * 1_000_000_000 / cell.rate_bits_per_s;
        let mut found = Vec::new();
        for reading in Reading::ALL {
            let ours = operate(&pool, injection_ns, reading, OPERATIONS, lab.stop)?;
            let model = cell.modelled(reading).expect("a path that makes sense");
            let (ours, model) = (Times::of(&ours), Times::of(&model));
            found.push(Found { cell: *cell, reading, ours, model });
        }
        Some(found)
    })?;
    let found: Vec<Found> = found.into_iter().flatten().collect();
    let workload = format!(
        "all-reduce of 16 MiB by a ring of {RANKS} ranks, 25 ms, {OPERATIONS} operations through the runner, passed on \
         whole; {messages} messages of 4 MiB by the protocol per cell, packets of 4 KiB, losses both ways"
    );
    Ok(outcome(&found, workload))
}

/// The time of selective repeat over that of erasure coding.
fn gain(found: &[Found], rate: u64, loss: f64, reading: Reading, of: fn(&Found) -> f64) -> f64 {
    let time = |scheme| {
        let cell = Cell { rate_bits_per_s: rate, loss, scheme };
        let found = found.iter().find(|found| found.cell == cell && found.reading == reading);
        of(found.expect("it is in the grid"))
    };
    time(Scheme::Repeat) / time(Scheme::Coded)
}

fn outcome(found: &[Found], workload: String) -> Outcome {
    let mut csv = Csv::new(
        "mode,reading,rate_bits_per_s,loss,mean_s,p50_s,p999_s,model_mean_s,model_p50_s,model_p999_s",
    );
    for Found { cell, reading, ours, model } in found {
        let numbers = [ours, model].map(|times| [times.mean_s, times.median_s, times.tail_s]);
        let numbers = [&[cell.rate_bits_per_s as f64, cell.loss], &numbers.concat()[..]].concat();
        csv.row(&[cell.scheme.mode(), reading.name()], &numbers);
    }
    let mut rows = Vec::new();
    let mut statements = Vec::new();
    for rate in RATES {
        let gbit = rate / 1_000_000_000;
        for reading in Reading::ALL {
            for loss in LOSSES {
                let gain = |of| gain(found, rate, loss, reading, of);
                let (ours, model) = (gain(|f| f.ours.tail_s), gain(|f| f.model.tail_s));
                let off = ours / model - 1.0;
                rows.push(vec![
                    format!("{gbit} Gbit/s, {}", reading.name()),
                    format!("{loss:.0e}"),
                    format!("{:.2}", gain(|f| f.ours.mean_s)),
                    format!("{:.2}", gain(|f| f.model.mean_s)),
                    format!("{ours:.2}"),
                    format!("{model:.2}"),
                    format!("{:+.1} %", 100.0 * off),
                ]);
            }
            let worst = LOSSES.iter().map(|loss| {
                let ours = gain(found, rate, *loss, reading, |f| f.ours.tail_s);
                let model = gain(found, rate, *loss, reading, |f| f.model.tail_s);
                (ours / model - 1.0, ours)
            });
            let gains: Vec<String> = worst
                .clone()
                .map(|(off, ours)| format!("{ours:.2} ({:+.1} %)", 100.0 * off))
                .collect();
            let holds = worst.into_iter().all(|(off, _)| off.abs() <= TOLERANCE);
            let why = match (rate, reading) {
                (_, Reading::Received) => {
                    "a part goes on when it is there, not when its sender knows that: half a round trip less for each stage, which is half of a stage with parity"
                }
                (1_000_000_000, _) => {
                    "a part takes 34 ms of link time here, so a repair is a smaller share: the paper's figure is for 400 Gbit/s"
                }
                _ => "figure 13's own reading: a stage ends when its sender knows",
            };
            statements.push(Statement {
                section: "SDR-RDMA 5.3, figure 13",
                paper: "p99.9 of selective repeat over that of erasure coding grows with the loss, from 3 to more than 6".to_owned(),
                ours: format!(
                    "{gbit} Gbit/s, {}: {} at 1e-4, 1e-3, 1e-2 (beside the model's)",
                    reading.name(),
                    gains.join(", ")
                ),
                verdict: if holds { Verdict::Holds } else { Verdict::Differs },
                why: Some(format!("holds: within 15 % of the model for the same chunk; {why}")),
            });
        }
    }
    let chart = |rate: u64| {
        let mut series = Vec::new();
        for reading in Reading::ALL {
            for (whose, of) in [
                ("protocol", (|f: &Found| f.ours.tail_s) as fn(&Found) -> f64),
                ("model", |f: &Found| f.model.tail_s),
            ] {
                let points =
                    LOSSES.iter().map(|loss| (*loss, gain(found, rate, *loss, reading, of)));
                series.push(Series::new(format!("{}, {whose}", reading.name()), points.collect()));
            }
        }
        Chart {
            title: format!("{} Gbit/s", rate / 1_000_000_000),
            x: Axis::log("loss of packets", power),
            y: Axis::ratio("SR RTO over EC, p99.9"),
            series,
            marks: Vec::new(),
        }
    };
    let header = ["a stage is", "loss", "mean", "model", "p99.9", "model", "off"];
    Outcome {
        paper: NAME,
        item: Item::Study(Study::Ring),
        live: false,
        title: "a ring of four sites: erasure coding and selective repeat with timeouts".to_owned(),
        workload,
        statements,
        charts: RATES.map(chart).into(),
        rows: Some(Rows { header: header.map(str::to_owned).into(), rows }),
        remarks: Vec::new(),
        csv,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_protocol_take_the_times_of_the_model() {
        for (scheme, loss) in
            [(Scheme::Repeat, 1e-3), (Scheme::Repeat, 1e-2), (Scheme::Coded, 1e-2)]
        {
            let cell = Cell { rate_bits_per_s: RATES[0], loss, scheme };
            let pool = cell.messages(150).run(&|| false).expect("it is not stopped");
            let ours_s =
                pool.iter().map(|took| took.acknowledged_ns as f64 / 1e9).sum::<f64>() / 150.0;
            let (model, mut random) = (cell.model().expect("a path"), Random::new(3));
            let model_s = (0..20_000).map(|_| model.sample_s(&mut random)).sum::<f64>() / 20_000.0;
            // Of 150 messages, with a spread of half a timeout: four standard errors.
            let slack = if scheme == Scheme::Coded { 0.01 } else { 0.12 };
            assert!((ours_s / model_s - 1.0).abs() < slack, "{cell:?}: {ours_s} {model_s}");
            for Took { received_ns, acknowledged_ns } in pool {
                assert!(
                    acknowledged_ns - received_ns >= RTT_NS / 2,
                    "its acknowledgement has a way"
                );
            }
        }
    }

    #[test]
    fn a_stage_ends_where_its_reading_says() {
        let pool: Rc<[Took]> = [Took { received_ns: 100, acknowledged_ns: 180 }].into();
        let times = |reading| operate(&pool, 10, reading, 3, &|| false).expect("it is not stopped");
        assert_eq!(times(Reading::Received), [600e-9; 3]);
        assert_eq!(times(Reading::Acknowledged), [6.0 * 180e-9; 3]);
        // A stage waits for its own last acknowledgement, and that is all that it waits for.
        let pool: Rc<[Took]> = [(100, 900), (100, 100)]
            .map(|(received_ns, acknowledged_ns)| Took { received_ns, acknowledged_ns })
            .into();
        let late = operate(&pool, 10, Reading::Acknowledged, 50, &|| false).expect("not stopped");
        assert!(late[0] >= 600e-9 && late[49] > 2e-6 && late[49] <= 6.0 * 900e-9, "{late:?}");
        assert_eq!(operate(&pool, 10, Reading::Received, 1, &|| true), None);
    }
}
