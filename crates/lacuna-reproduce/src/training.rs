//! What OptiNIC (figures 2 to 4) and Celeris (figure 1) say of training and inference, by the records of the package
//! `training`.
//!
//! That package depends on a library for automatic differentiation and takes minutes to hours, so it is none of this
//! workspace, and its runs are not done again here: its records, which are in the repository, are read and judged.
//! Each outcome names the command that makes its record again.

use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Verdict};
use lacuna_planner::chart::{Axis, Chart, Mark, Series, plain};
use serde::Deserialize;

/// A line per run: seed, loss, transform, accuracy and more.
const FIGURE_2: &str = include_str!("../../../training/record/figure2-glyphs.csv");
const FIGURE_2_COMMAND: &str =
    "cargo run --release -- figure2 --full --own --resync 50 --csv record/figure2-glyphs.csv";
const FIGURE_3: &str = include_str!("../../../training/record/figure3-glyphs.json");
const FIGURE_3_COMMAND: &str =
    "RAYON_NUM_THREADS=1 cargo run --release -- figure3 --record record/figure3-glyphs.json";
const FIGURE_4: &str = include_str!("../../../training/record/decode.json");
const FIGURE_4_COMMAND: &str = "RAYON_NUM_THREADS=1 cargo run --release -- decode --training-steps 150 --batches 6 --readings 2 --warm-up 1 --record record/decode.json";

/// The difference in accuracy, in points, that still counts as none.
const TOLERATED_POINTS: f64 = 0.5;
/// Up to which loss there is to be none.
const TOLERATED_LOSS_PERCENT: f64 = 5.0;
/// 95 % quantiles of Student's t for 1 to 20 degrees of freedom.
const STUDENT: [f64; 20] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725,
];

/// OptiNIC 5.2.1: time to accuracy, on average.
const FASTER: f64 = 1.6;
/// OptiNIC 2.1: the share of collectives in the time, at least.
const NETWORK_SHARE: f64 = 0.5;
/// OptiNIC 5.2.2: throughput, and the 99th percentile of the time to the first token, at least.
const MORE: f64 = 1.28;
const SHORTER: f64 = 2.0;

fn remark(command: &str) -> String {
    format!("From the record in training/record; made again by, in training: {command}")
}

fn is(holds: bool) -> Verdict {
    if holds { Verdict::Holds } else { Verdict::Differs }
}

/// A run of figure 2.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    seed: u64,
    loss_percent: f64,
    has_transform: bool,
    accuracy: f64,
}

impl Run {
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split(',');
        let mut next = || fields.next();
        Some(Self {
            seed: next()?.parse().ok()?,
            loss_percent: next()?.parse().ok()?,
            has_transform: next()?.parse().ok()?,
            accuracy: next()?.parse().ok()?,
        })
    }
}

/// A loss beside the lossless run with the same start and batches, in points: the mean and half of its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    loss_percent: f64,
    has_transform: bool,
    accuracy: f64,
    difference: f64,
    half: f64,
}

impl Point {
    fn is_within(&self) -> bool {
        self.difference.abs() + self.half <= TOLERATED_POINTS
    }

    fn is_worse(&self) -> bool {
        self.difference + self.half < 0.0
    }
}

fn points(runs: &[Run]) -> (usize, Vec<Point>) {
    let base: Vec<&Run> = runs.iter().filter(|run| run.loss_percent == 0.0).collect();
    let mut cells: Vec<(f64, bool)> = Vec::new();
    for run in runs.iter().filter(|run| run.loss_percent > 0.0) {
        let cell = (run.loss_percent, run.has_transform);
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    let point = |(loss_percent, has_transform): (f64, bool)| {
        let here =
            |run: &&Run| run.loss_percent == loss_percent && run.has_transform == has_transform;
        let pairs = runs.iter().filter(here).filter_map(|run| {
            let base = base.iter().find(|base| base.seed == run.seed)?;
            Some((100.0 * run.accuracy, 100.0 * (run.accuracy - base.accuracy)))
        });
        let (accuracies, differences): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let count = differences.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
        let difference = mean(&differences);
        let squares: f64 = differences.iter().map(|value| (value - difference).powi(2)).sum();
        let quantile = differences.len().checked_sub(2).and_then(|at| STUDENT.get(at));
        let half = quantile
            .map_or(f64::INFINITY, |quantile| quantile * (squares / (count - 1.0) / count).sqrt());
        Point { loss_percent, has_transform, accuracy: mean(&accuracies), difference, half }
    };
    (base.len(), cells.into_iter().map(point).collect())
}

/// Accuracy against loss: OptiNIC's figure 2, Celeris' figure 1.
pub(crate) fn accuracy(
    (paper, item, section): (&'static str, Item, &'static str),
    title: String,
) -> Outcome {
    let runs: Vec<Run> = FIGURE_2.lines().skip(1).filter_map(Run::read).collect();
    let (seeds, points) = points(&runs);
    let lossless: Vec<f64> =
        runs.iter().filter(|run| run.loss_percent == 0.0).map(|run| run.accuracy).collect();
    let lossless = 100.0 * lossless.iter().sum::<f64>() / lossless.len().max(1) as f64;
    let mut csv =
        Csv::new("transform,loss_percent,accuracy_percent,difference_points,half_90_points");
    let mut rows = Vec::new();
    for point in &points {
        let Point { loss_percent, has_transform, accuracy, difference, half } = *point;
        let with = if has_transform { "yes" } else { "no" };
        csv.row(&[with], &[loss_percent, accuracy, difference, half]);
        rows.push(vec![
            format!("{loss_percent} %"),
            with.to_owned(),
            format!("{accuracy:.2}"),
            format!("{difference:+.2} ± {half:.2}"),
            if point.is_within() { "within" } else { "outside" }.to_owned(),
        ]);
    }
    let header = ["loss", "transform", "accuracy, %", "beside lossless, points", "of 0.5 points"];
    Outcome {
        paper,
        item,
        live: false,
        title,
        workload: format!(
            "glyphs of ten classes, a perceptron of 1,058,058 parameters, {lossless:.2} % right without losses; 4 ranks, {seeds} seeds \
             with the same start and batches, each rank applies what came to it, parameters averaged every 50 steps"
        ),
        statements: accuracy_statements(section, &points),
        charts: vec![accuracy_chart(&points)],
        rows: Some(Rows { header: header.map(str::to_owned).into(), rows }),
        remarks: vec![
            remark(FIGURE_2_COMMAND),
            "Loss is of packets per hop of a ring, which leaves out more contributions: 5 % leave out 7 %. The paper's models are language models of 1 to 3 billion parameters.".to_owned(),
        ],
        csv,
    }
}

fn accuracy_statements(section: &'static str, points: &[Point]) -> Vec<Statement> {
    let with = |has_transform: bool| {
        let of = |point: &&Point| point.has_transform == has_transform;
        points.iter().filter(of).copied().collect::<Vec<_>>()
    };
    let to_five = |points: &[Point]| {
        let of = |point: &&Point| point.loss_percent <= TOLERATED_LOSS_PERCENT;
        points.iter().filter(of).copied().collect::<Vec<_>>()
    };
    let worst = |points: &[Point]| {
        let worst = points.iter().min_by(|one, other| {
            (one.difference - one.half).total_cmp(&(other.difference - other.half))
        });
        worst.map_or(String::new(), |point| {
            format!(
                "{:+.2} ± {:.2} points at {} %",
                point.difference, point.half, point.loss_percent
            )
        })
    };
    let [raw, encoded] = [false, true].map(|has_transform| to_five(&with(has_transform)));
    let stable = |points: &[Point]| !points.is_empty() && points.iter().all(Point::is_within);
    let control: Vec<Point> =
        with(false).into_iter().filter(|point| point.loss_percent >= 10.0).collect();
    let breaks = points.iter().filter(|point| !point.is_within());
    let breaks = breaks.map(|point| {
        format!(
            "{} % {} the transform",
            point.loss_percent,
            if point.has_transform { "with" } else { "without" }
        )
    });
    let breaks: Vec<String> = breaks.collect();
    vec![
        Statement {
            section,
            paper: "accuracy remains stable up to a loss of 5 %".to_owned(),
            ours: format!("with the transform at worst {}", worst(&encoded)),
            verdict: is(stable(&encoded)),
            why: Some("holds: the whole 90 % interval within 0.5 points".to_owned()),
        },
        Statement {
            section,
            paper: "accuracy remains stable up to a loss of 5 %".to_owned(),
            ours: format!("without the transform at worst {}", worst(&raw)),
            verdict: is(stable(&raw)),
            why: None,
        },
        Statement {
            section: "the control",
            paper: "a task that is to show something loses accuracy where much is lost".to_owned(),
            ours: format!(
                "without the transform {}; beyond half a point: {}",
                worst(&control),
                if breaks.is_empty() { "none".to_owned() } else { breaks.join(", ") }
            ),
            verdict: is(control.iter().any(|point| point.is_worse() && !point.is_within())),
            why: None,
        },
    ]
}

fn accuracy_chart(points: &[Point]) -> Chart {
    let line = |name: &str, has_transform: bool| {
        let here = points.iter().filter(|point| point.has_transform == has_transform);
        let here: Vec<&Point> = here.collect();
        let ends = |point: &&Point| (point.difference - point.half, point.difference + point.half);
        let place = |point: &&Point| (point.loss_percent, point.difference);
        Series::new(name, here.iter().map(place).collect()).within(here.iter().map(ends).collect())
    };
    Chart {
        title: "accuracy beside the lossless run".to_owned(),
        x: Axis::log("% of packets lost per hop", plain),
        y: Axis::linear("points"),
        series: vec![line("without the transform", false), line("with the transform", true)],
        marks: Vec::<Mark>::new(),
    }
}

/// The record of figure 3.
#[derive(Debug, Deserialize)]
struct TimeRecord {
    accuracy: f64,
    path: RecordedPath,
    cells: Vec<TimeCell>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct RecordedPath {
    rate_bits_per_s: Option<u64>,
    rtt_ms: f64,
    loss: f64,
}

impl RecordedPath {
    fn words(&self) -> String {
        let rate = self
            .rate_bits_per_s
            .map_or("any rate".to_owned(), |rate| format!("{} Mbit/s", rate / 1_000_000));
        format!("{rate}, {} ms, {} % lost", self.rtt_ms, 100.0 * self.loss)
    }
}

#[derive(Debug, Deserialize)]
struct TimeCell {
    delivery: String,
    path: RecordedPath,
    seconds_to_accuracy: Vec<Option<f64>>,
    runs: Vec<TimeRun>,
}

#[derive(Debug, Deserialize)]
struct TimeRun {
    means: TimeMeans,
    points: Vec<TimePoint>,
}

#[derive(Debug, Deserialize)]
struct TimeMeans {
    step_ms: f64,
    network_ms: f64,
    lost: f64,
    late: f64,
}

#[derive(Debug, Deserialize)]
struct TimePoint {
    seconds: f64,
    quality: TimeQuality,
}

#[derive(Debug, Deserialize)]
struct TimeQuality {
    accuracy: f64,
}

impl TimeCell {
    fn name(&self) -> String {
        match self.path.loss {
            0.0 => format!("{} without losses", self.delivery),
            _ => self.delivery.clone(),
        }
    }

    /// The mean time, if all runs reached the accuracy.
    fn seconds(&self) -> Option<f64> {
        let seconds: Option<Vec<f64>> = self.seconds_to_accuracy.iter().copied().collect();
        let seconds = seconds.filter(|seconds| !seconds.is_empty())?;
        Some(seconds.iter().sum::<f64>() / seconds.len() as f64)
    }

    fn mean(&self, of: impl Fn(&TimeMeans) -> f64) -> f64 {
        self.runs.iter().map(|run| of(&run.means)).sum::<f64>() / self.runs.len().max(1) as f64
    }

    fn network_share(&self) -> f64 {
        self.mean(|means| means.network_ms) / self.mean(|means| means.step_ms)
    }

    fn is_bounded(&self) -> bool {
        self.delivery.starts_with("bounded")
    }
}

/// Time to an accuracy, OptiNIC's figure 3.
pub(crate) fn time_to_accuracy((paper, item): (&'static str, Item), title: String) -> Outcome {
    let record: TimeRecord =
        serde_json::from_str(FIGURE_3).expect("what the training program wrote");
    let named = |name: &str| {
        let cell = record.cells.iter().find(|cell| cell.path.loss > 0.0 && cell.delivery == name);
        cell.and_then(TimeCell::seconds)
    };
    let base = named("gbn");
    let mut csv =
        Csv::new("delivery,loss,seconds,times_faster_than_gbn,step_ms,network_share,lost,late");
    let mut rows = Vec::new();
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    for cell in &record.cells {
        let seconds = cell.seconds();
        let faster = base.zip(seconds).map(|(base, seconds)| base / seconds);
        let step_ms = cell.mean(|means| means.step_ms);
        let (lost, late) = (cell.mean(|means| means.lost), cell.mean(|means| means.late));
        let unknown = f64::NAN;
        let numbers = [seconds.unwrap_or(unknown), faster.unwrap_or(unknown), step_ms];
        let shares = [cell.network_share(), lost, late];
        csv.row(&[&cell.delivery], &[&[cell.path.loss], &numbers[..], &shares].concat());
        rows.push(vec![
            cell.name(),
            number(seconds, 1),
            number(faster, 2),
            format!("{step_ms:.0}"),
            format!("{:.0} %", 100.0 * cell.network_share()),
            format!("{:.2} %", 100.0 * lost),
            format!("{:.2} %", 100.0 * late),
        ]);
    }
    let header = ["delivery", "seconds", "beside gbn", "ms a step", "network", "lost", "late"];
    let bounded = record.cells.iter().filter(|cell| cell.path.loss > 0.0 && cell.is_bounded());
    let gains: Vec<(String, f64, Option<f64>)> = bounded
        .filter_map(|cell| {
            let seconds = cell.seconds()?;
            let auto = named("auto").map(|auto| auto / seconds);
            Some((cell.name(), base? / seconds, auto))
        })
        .collect();
    let best = gains.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let worse: Vec<String> = gains
        .iter()
        .filter_map(|(name, _, auto)| {
            auto.filter(|auto| *auto < 1.0).map(|auto| format!("{name} {auto:.2}"))
        })
        .collect();
    let share =
        record.cells.iter().find(|cell| cell.path.loss == 0.0).map_or(0.0, TimeCell::network_share);
    let seeds = record.cells.first().map_or(0, |cell| cell.runs.len());
    let statements = vec![
        Statement {
            section: "2.1",
            paper: "collectives take 50 to 70 % of the time".to_owned(),
            ours: format!("{:.0} % of the lossless step", 100.0 * share),
            verdict: is(share >= NETWORK_SHARE),
            why: None,
        },
        Statement {
            section: "5.2.1, figure 3",
            paper: format!("time to accuracy is {FASTER} times shorter than RoCE's on average"),
            ours: best.map_or("not reached".to_owned(), |(name, gain, _)| {
                format!("{gain:.2} times shorter than go-back-N's by {name}")
            }),
            verdict: is(best.is_some_and(|(_, gain, _)| *gain >= FASTER)),
            why: None,
        },
        Statement {
            section: "beside auto",
            paper: "no reliable transport but RoCE is in figure 3".to_owned(),
            ours: match worse.is_empty() {
                true => "no bounded delivery is slower than auto".to_owned(),
                false => format!("slower than auto, in times as fast: {}", worse.join(", ")),
            },
            verdict: is(worse.is_empty() && !gains.is_empty()),
            why: Some("a ring passes chunks on while others are repaired, which leaves bounded deliveries little to gain over that".to_owned()),
        },
    ];
    Outcome {
        paper,
        item,
        live: false,
        title,
        workload: format!(
            "a perceptron of 1,058,058 parameters on glyphs, to {:.0} %; 4 ranks, {}, {seeds} seed; clock of one machine",
            100.0 * record.accuracy,
            record.path.words()
        ),
        statements,
        charts: vec![time_chart(&record)],
        rows: Some(Rows { header: header.map(str::to_owned).into(), rows }),
        remarks: vec![
            remark(FIGURE_3_COMMAND),
            "All ranks share the cores of one machine, so the times are good to 10 % at best."
                .to_owned(),
        ],
        csv,
    }
}

fn time_chart(record: &TimeRecord) -> Chart {
    let line = |cell: &TimeCell| {
        let points = cell.runs.first().map_or(&[][..], |run| &run.points);
        let place = |point: &TimePoint| (point.seconds, 100.0 * point.quality.accuracy);
        Series::new(cell.name(), points.iter().map(place).collect())
    };
    Chart {
        title: "the first seed".to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::linear("accuracy, %"),
        series: record.cells.iter().map(line).collect(),
        marks: Vec::new(),
    }
}

/// The record of figure 4.
#[derive(Debug, Deserialize)]
struct DecodeRecord {
    path: RecordedPath,
    validation_loss: f64,
    settings: DecodeSettings,
    cells: Vec<DecodeCell>,
}

#[derive(Debug, Deserialize)]
struct DecodeSettings {
    texts: usize,
    prompt: usize,
    more: usize,
    batches: usize,
}

#[derive(Debug, Deserialize)]
struct DecodeCell {
    ranks: usize,
    delivery: String,
    path: RecordedPath,
    summary: DecodeSummary,
}

#[derive(Debug, Deserialize)]
struct DecodeSummary {
    characters_per_s: f64,
    first_ms_p50: f64,
    first_ms_p99: f64,
    lost: f64,
    late: f64,
    validation_loss: f64,
    agreement: DecodeAgreement,
}

#[derive(Debug, Deserialize)]
struct DecodeAgreement {
    read: f64,
}

/// Throughput and time to the first token, OptiNIC's figure 4.
pub(crate) fn decoding((paper, item): (&'static str, Item), title: String) -> Outcome {
    let record: DecodeRecord =
        serde_json::from_str(FIGURE_4).expect("what the training program wrote");
    let mut csv = Csv::new(
        "delivery,ranks,loss,characters_per_s,first_ms_p50,first_ms_p99,lost,late,validation_loss,read_alike",
    );
    let mut rows = Vec::new();
    let lossy = |ranks: usize, delivery: &str| {
        record
            .cells
            .iter()
            .find(|cell| cell.path.loss > 0.0 && cell.ranks == ranks && cell.delivery == delivery)
    };
    // Beside go-back-N, as the paper has it, and beside selective repeat.
    let mut gains = [(); 2].map(|()| (0.0f64, 0.0f64));
    let mut rise = 0.0f64;
    for cell in &record.cells {
        let of = &cell.summary;
        let numbers = [of.characters_per_s, of.first_ms_p50, of.first_ms_p99, of.lost, of.late];
        let ends = [of.validation_loss, of.agreement.read];
        csv.row(
            &[&cell.delivery],
            &[&[cell.ranks as f64, cell.path.loss], &numbers[..], &ends].concat(),
        );
        rows.push(vec![
            cell.ranks.to_string(),
            if cell.path.loss > 0.0 {
                cell.delivery.clone()
            } else {
                format!("{} without losses", cell.delivery)
            },
            format!("{:.0}", of.characters_per_s),
            format!("{:.0}", of.first_ms_p50),
            format!("{:.0}", of.first_ms_p99),
            format!("{:.3} %", 100.0 * of.lost),
            format!("{:.3} %", 100.0 * of.late),
            format!("{:.4}", of.validation_loss),
            format!("{:.1} %", 100.0 * of.agreement.read),
        ]);
        if cell.path.loss == 0.0 || !cell.delivery.starts_with("bounded") {
            continue;
        }
        rise = rise.max(100.0 * (of.validation_loss / record.validation_loss - 1.0));
        for (gains, name) in gains.iter_mut().zip(["gbn", "sr"]) {
            if let Some(base) = lossy(cell.ranks, name) {
                gains.0 = gains.0.max(of.characters_per_s / base.summary.characters_per_s);
                gains.1 = gains.1.max(base.summary.first_ms_p99 / of.first_ms_p99);
            }
        }
    }
    let [beside_gbn, beside_sr] = gains;
    let header = [
        "ranks",
        "delivery",
        "characters/s",
        "first, ms: p50",
        "p99",
        "lost",
        "late",
        "validation loss",
        "read alike",
    ];
    let statement = |paper: String, ours: String, verdict| Statement {
        section: "5.2.2, figure 4",
        paper,
        ours,
        verdict,
        why: None,
    };
    let DecodeSettings { texts, prompt, more, batches } = record.settings;
    Outcome {
        paper,
        item,
        live: false,
        title,
        workload: format!(
            "a transformer for characters, split by heads and hidden units; {texts} texts at a time, {prompt} characters known, {more} \
             added, {batches} batches; {}; clock of one machine",
            record.path.words()
        ),
        statements: vec![
            statement(
                "throughput is 28 to 60 % higher than RoCE's".to_owned(),
                format!("{:.2} times go-back-N's, {:.2} times selective repeat's at best", beside_gbn.0, beside_sr.0),
                is(beside_gbn.0 >= MORE),
            ),
            statement(
                "the 99th percentile of the time to the first token is 2 to 3.5 times shorter".to_owned(),
                format!("{:.2} times beside go-back-N, {:.2} times beside selective repeat at best", beside_gbn.1, beside_sr.1),
                is(beside_gbn.1 >= SHORTER),
            ),
            statement(
                "accuracy is effectively unchanged".to_owned(),
                format!("validation loss at most {rise:+.2} % beside the lossless {:.4}", record.validation_loss),
                is(rise <= 1.0),
            ),
        ],
        charts: Vec::new(),
        rows: Some(Rows { header: header.map(str::to_owned).into(), rows }),
        remarks: vec![
            remark(FIGURE_4_COMMAND),
            "All ranks share the cores of one machine, so the times are good to 10 % at best. The paper's models are of 1 to 30 billion parameters, and its losses those of a switch.".to_owned(),
        ],
        csv,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_that_to_the_lossless_run_of_the_same_seed() {
        let lines = "1,0,false,0.90,1\n2,0,false,0.80,1\n1,5,true,0.89,1\n2,5,true,0.79,1\n2,10,false,0.5,1";
        let runs: Vec<Run> = lines.lines().filter_map(Run::read).collect();
        let (seeds, points) = points(&runs);
        assert_eq!((seeds, points.len()), (2, 2));
        assert!((points[0].difference + 1.0).abs() < 1e-9 && points[0].half < 1e-9);
        assert!(points[0].is_worse() && !points[0].is_within());
        // One seed proves nothing.
        assert!(points[1].half.is_infinite() && !points[1].is_worse());
        assert_eq!(Run::read("seed,loss_percent,transform,accuracy"), None);
    }

    #[test]
    fn the_records_are_read_and_judged() {
        let key = ("optinic", Item::Figure(2), "figure 2");
        let outcome = accuracy(key, String::new());
        assert_eq!(outcome.statements.len(), 3);
        assert!(outcome.workload.contains("10 seeds"), "{}", outcome.workload);
        assert!(outcome.statements[0].verdict == Verdict::Holds);
        for outcome in [
            time_to_accuracy(("optinic", Item::Figure(3)), String::new()),
            decoding(("optinic", Item::Figure(4)), String::new()),
        ] {
            let rows = outcome.rows.expect("a table").rows;
            assert!(rows.iter().any(|row| row.concat().contains("gbn")), "{rows:?}");
            assert!(outcome.remarks[0].contains("cargo run"));
        }
    }
}
