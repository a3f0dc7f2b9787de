//! `lacuna plan`: which scheme for this path.

use super::chart::{Axis, Chart, Drawing, Mark, Series, size};
use super::{OVERHEAD_BYTES, arguments, auto};
use crate::failure::Failure;
use crate::output::Output;
use crate::units;
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use lacuna_model::plan::{
    self, Axis as PlanAxis, Expected, Flip, LossKnown, Objective, Plan, Question, Scheme,
};
use serde::{Deserialize, Deserializer, Serialize};
use std::path::{Path, PathBuf};

/// Speed of light in fibre: vacuum over the refractive index of silica, 1.468 at 1550 nm.
const FIBRE_KM_PER_S: f64 = 299_792.458 / 1.468;

/// Recommend a reliability scheme for a path, and say why
///
/// Compares the transport's default mode, auto, with selective repeat and erasure codes as the transport
/// runs them (headers and repairs take link time, parity follows each submessage), prints what to expect
/// of each, which of the fixed ones is best, where that flips, and when it does not matter. Of auto it is
/// what a connection chooses that knows the path; a first message over an unknown one gets more parity.
///
/// --from reads a JSON object with any of rate_bits_per_s, rtt_s, loss (a number or [low, high]),
/// mean_burst_packets and mtu_bytes, as `lacuna probe client --json` writes it; options beside it
/// override it.
///
/// Examples:
///   lacuna plan --rate 400gbit --rtt 25ms --loss 1e-4 --size 128MiB
///   lacuna plan --rate 10gbit --distance 3750km --loss 1e-5..1e-2 --burst 8 --size 1MiB,64MiB --objective p99
///   lacuna plan --from path.json --size 1GiB --plot plan.svg
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct PlanArgs {
    /// Rate of the path
    #[arg(long, value_parser = arguments::rate, allow_hyphen_values = true)]
    rate: Option<f64>,
    /// Round-trip time of the path
    #[arg(long, value_parser = arguments::rtt_s, allow_hyphen_values = true, conflicts_with = "distance")]
    rtt: Option<f64>,
    /// Length of the fibre instead of --rtt: 204 km take a millisecond one way (the paper's
    /// figures count 300 km instead, 3750 km as 25 ms)
    #[arg(long, value_parser = arguments::kilometres, allow_hyphen_values = true)]
    distance: Option<f64>,
    /// Share of packets that are lost, or a range: 1e-3 or 1e-5..1e-2
    #[arg(long, value_parser = arguments::losses, allow_hyphen_values = true)]
    loss: Option<(f64, f64)>,
    /// Packets are lost in bursts of this mean length
    #[arg(long, value_parser = arguments::factor)]
    burst: Option<f64>,
    /// Bytes per message; several, separated by commas, are equally frequent
    #[arg(long, value_parser = arguments::size, value_delimiter = ',', required = true)]
    size: Vec<u64>,
    /// What to make small
    #[arg(long, value_enum, default_value_t = ObjectiveName::P999)]
    objective: ObjectiveName,
    /// Read the path from a file
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Payload bytes per packet [default: 4096]
    ///
    /// With less than 4 KiB the transport lays the chunks of a code in turn, so that a burst of
    /// losses meets several of its blocks. Of auto the model has it so, of the fixed codes it does not: with
    /// --burst it takes those with chunks of one packet for worse than they are.
    #[arg(long, value_name = "SIZE", value_parser = units::packet_bytes)]
    mtu: Option<u32>,
    /// Draw the best of each kind over message sizes, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ObjectiveName {
    Mean,
    P99,
    #[value(name = "p99.9", alias = "p999")]
    P999,
}

impl ObjectiveName {
    fn objective(self) -> Objective {
        match self {
            Self::Mean => Objective::Mean,
            Self::P99 => Objective::P99,
            Self::P999 => Objective::P999,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }
}

/// A path as a measurement describes it.
#[derive(Debug, Default, Deserialize)]
struct Measured {
    rate_bits_per_s: Option<f64>,
    rtt_s: Option<f64>,
    loss: Option<MeasuredLoss>,
    mean_burst_packets: Option<f64>,
    #[serde(default, deserialize_with = "packet_bytes")]
    mtu_bytes: Option<u32>,
}

/// As many as a packet may have; `null` where no packet size was measured.
fn packet_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let bytes = Option::<u64>::deserialize(from)?;
    let checked = bytes.map(units::allowed_packet_bytes);
    checked.transpose().map_err(serde::de::Error::custom)
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum MeasuredLoss {
    At(f64),
    Between(f64, f64),
}

#[derive(Debug, Serialize)]
struct Answer {
    recommended: Recommended,
    /// The best mode that does the same for every message; `matters`, `reason` and `flips` are of these.
    fixed: Recommended,
    /// What the default mode does.
    auto: Option<AutoAnswer>,
    objective: &'static str,
    ideal_s: f64,
    /// Whether the choice between repeating and coding makes a difference.
    matters: bool,
    /// How much longer the best of the other family takes, as a fraction.
    other_family_worse: Option<f64>,
    reason: String,
    flips: Vec<FlipAnswer>,
    candidates: Vec<CandidateAnswer>,
}

#[derive(Debug, Serialize)]
struct Recommended {
    mode: String,
    code: Option<&'static str>,
    k: Option<u32>,
    m: Option<u32>,
    chunk_bytes: u64,
    /// Until a lost chunk goes out again.
    rto_s: f64,
    /// Until a coded message falls back to repeating.
    fto_s: Option<f64>,
    window_bytes: u64,
}

/// Least and most over the sizes and losses asked about.
#[derive(Debug, Serialize)]
struct AutoAnswer {
    parity: (u32, u32),
    repair_copies: (u32, u32),
    /// Packets at the end of the longest message that get the parity.
    tail_packets: u64,
    /// How much longer than the best fixed mode it takes, as a fraction.
    worse_than_fixed: f64,
}

#[derive(Debug, Serialize)]
struct FlipAnswer {
    axis: &'static str,
    value: f64,
    to: &'static str,
}

#[derive(Debug, Serialize)]
struct CandidateAnswer {
    mode: String,
    chunk_bytes: u64,
    mean_s: f64,
    p50_s: f64,
    p99_s: f64,
    p999_s: f64,
    p_fallback: Option<f64>,
    parity_share: f64,
    timeout_s: f64,
}

pub(crate) fn run(args: &PlanArgs, output: Output) -> Result<(), Failure> {
    let question = question(args)?;
    let plan = plan::plan(&question)?;
    if let Some(path) = &args.plot {
        draw(path, &question, &plan, args.objective)?;
    }
    if output.json {
        output.object(&answer(&question, &plan, args.objective))?;
    } else {
        output.line(&render(&question, &plan, args.objective))?;
    }
    let has_codes = lacuna::modes::TABLE.iter().any(|entry| entry.name.starts_with("ec"));
    if plan.choice().candidate.scheme.is_coded() && !has_codes {
        output.note("this version's transport has no erasure coding yet: of its modes, take sr");
    }
    Ok(())
}

fn question(args: &PlanArgs) -> Result<Question, Failure> {
    let measured = match &args.from {
        None => Measured::default(),
        Some(path) => read(path)?,
    };
    let rate = args.rate.or(measured.rate_bits_per_s);
    let rtt_s = args.rtt.or(args.distance.map(|km| 2.0 * km / FIBRE_KM_PER_S)).or(measured.rtt_s);
    let loss = match (args.loss, measured.loss) {
        (Some((low, high)), _) if low == high => Some(LossKnown::At(low)),
        (Some((low, high)), _) | (None, Some(MeasuredLoss::Between(low, high))) => {
            Some(LossKnown::Between(low, high))
        }
        (None, Some(MeasuredLoss::At(loss))) => Some(LossKnown::At(loss)),
        (None, None) => None,
    };
    let (Some(rate_bits_per_s), Some(rtt_s), Some(loss)) = (rate, rtt_s, loss) else {
        let needed = [
            (rate.is_some(), "--rate"),
            (rtt_s.is_some(), "--rtt (or --distance)"),
            (loss.is_some(), "--loss"),
        ];
        let missing = needed.into_iter().filter(|(is_known, _)| !is_known).map(|(_, name)| name);
        let missing = missing.collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!(
            "no {missing}: give what is missing, or --from a file that has it (--help explains)"
        )));
    };
    let mtu = args.mtu.or(measured.mtu_bytes).unwrap_or(4096);
    Ok(Question {
        rate_bits_per_s,
        rtt_s,
        loss,
        mean_burst_packets: args.burst.or(measured.mean_burst_packets),
        sizes_bytes: args.size.clone(),
        objective: args.objective.objective(),
        packet_bytes: mtu.into(),
        overhead_bytes: OVERHEAD_BYTES,
        auto: Some(auto::mode(mtu)?),
    })
}

fn read(path: &Path) -> Result<Measured, Failure> {
    let text = super::read_text(path)?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::Usage(format!("--from {}: not a path's measurement: {error}", path.display()))
    })
}

fn answer(question: &Question, plan: &Plan, objective: ObjectiveName) -> Answer {
    Answer {
        recommended: recommended(question, plan, plan.choice()),
        fixed: recommended(question, plan, plan.fixed_choice()),
        auto: plan.auto().map(|expected| AutoAnswer {
            parity: auto::range(&expected.tails, |choice| choice.parity),
            repair_copies: auto::range(&expected.tails, |choice| choice.repair_copies),
            tail_packets: expected.tails.iter().map(|tail| tail.0.tail_packets).max().unwrap_or(0),
            worse_than_fixed: worse(question, expected, plan.fixed_choice()),
        }),
        objective: objective.name(),
        ideal_s: plan.ideal_s,
        matters: plan.matters,
        other_family_worse: Some(plan.other_family_worse).filter(|worse| worse.is_finite()),
        reason: plan.reason.clone(),
        flips: plan.flips.iter().map(flip_answer).collect(),
        candidates: plan.candidates.iter().map(candidate_answer).collect(),
    }
}

fn recommended(question: &Question, plan: &Plan, choice: &Expected) -> Recommended {
    let (code, rto_s, fto_s) = match choice.candidate.scheme {
        Scheme::Repeat { .. } | Scheme::Auto(_) => (None, choice.timeout_s, None),
        Scheme::Code(code) => (Some(code), question.rtt_s, Some(choice.timeout_s)),
    };
    Recommended {
        mode: choice.candidate.scheme.to_string(),
        code: code.map(|code| match code.kind() {
            lacuna_model::CodeKind::Mds => "mds",
            lacuna_model::CodeKind::Xor => "xor",
        }),
        k: code.map(|code| code.k()),
        m: code.map(|code| code.m()),
        chunk_bytes: choice.chunk_bytes,
        rto_s,
        fto_s,
        window_bytes: plan.window_bytes,
    }
}

/// How much longer the one takes than the other, as a fraction.
fn worse(question: &Question, one: &Expected, other: &Expected) -> f64 {
    one.of(question.objective) / other.of(question.objective) - 1.0
}

fn flip_answer(flip: &Flip) -> FlipAnswer {
    FlipAnswer {
        axis: match flip.axis {
            PlanAxis::Size => "size_bytes",
            PlanAxis::Loss => "loss",
            PlanAxis::Rtt => "rtt_s",
        },
        value: flip.value,
        to: if flip.to_coding { "ec" } else { "sr" },
    }
}

fn candidate_answer(expected: &Expected) -> CandidateAnswer {
    CandidateAnswer {
        mode: expected.candidate.scheme.to_string(),
        chunk_bytes: expected.chunk_bytes,
        mean_s: expected.mean_s,
        p50_s: expected.p50_s,
        p99_s: expected.p99_s,
        p999_s: expected.p999_s,
        p_fallback: expected.fallback,
        parity_share: expected.parity_share,
        timeout_s: expected.timeout_s,
    }
}

fn render(question: &Question, plan: &Plan, objective: ObjectiveName) -> String {
    let fixed = plan.fixed_choice();
    let mut lines = take(question, plan, objective);
    lines.push(format!("why {} of the fixed modes: {}", fixed.candidate.scheme, plan.reason));
    if plan.matters {
        let worse = if plan.other_family_worse.is_finite() {
            longer(plan.other_family_worse)
        } else {
            "for ever".to_owned()
        };
        let other = if fixed.candidate.scheme.is_coded() { "repeating" } else { "coding" };
        lines.push(format!(
            "among them the choice matters: by {}, {other} takes {worse}",
            objective.name()
        ));
    } else {
        lines.push(format!(
            "among them the choice does not matter much: by {}, the best of the other kind is within {:.0} %",
            objective.name(),
            plan::DOES_NOT_MATTER * 100.0
        ));
    }
    for flip in &plan.flips {
        let from = flip.axis.of(question);
        let side = if flip.value > from { "above" } else { "below" };
        let (axis, value) = match flip.axis {
            PlanAxis::Size => ("size", two_figures(&units::show_bytes(flip.value as u64))),
            PlanAxis::Loss => ("loss", format!("{:.1e}", flip.value)),
            PlanAxis::Rtt => ("round trip", two_figures(&units::show_time(flip.value))),
        };
        let to = if flip.to_coding { "coding" } else { "repeating" };
        lines.push(format!("flips to {to} {side} a {axis} of about {value}"));
    }
    lines.push(format!("ideal {}\n{}", show_time(plan.ideal_s), table(plan)));
    lines.join("\n")
}

/// What to take: the mode, and how it and the other one, fixed or not, compare.
fn take(question: &Question, plan: &Plan, objective: ObjectiveName) -> Vec<String> {
    let fixed = plan.fixed_choice();
    let settings = format!(
        "{} with chunks of {}, a window of {} and a {} of {}",
        fixed.candidate.scheme,
        units::show_bytes(fixed.chunk_bytes),
        units::show_bytes(plan.window_bytes),
        if fixed.candidate.scheme.is_coded() { "fallback timeout" } else { "repair time" },
        show_time(fixed.timeout_s),
    );
    let Some(auto) = plan.auto() else { return vec![format!("take {settings}")] };
    let what = auto::describe(&auto.tails);
    let name = objective.name();
    if plan.recommended == plan.fixed {
        let worse = longer(worse(question, auto, fixed));
        return vec![
            format!("take {settings}"),
            format!("by {name}, auto, the default, takes {worse}: {what}"),
        ];
    }
    let worse = longer(worse(question, fixed, auto));
    vec![
        format!("take auto, the default: {what}"),
        format!("by {name}, the best fixed mode takes {worse}: {settings}"),
    ]
}

fn longer(fraction: f64) -> String {
    match (fraction * 100.0).round() {
        0.0 => "as long".to_owned(),
        percent if percent < 0.0 => format!("{:.0} % less", -percent),
        percent => format!("{percent:.0} % longer"),
    }
}

/// A quantity that is not known better, as two of its figures.
fn two_figures(shown: &str) -> String {
    let Some((number, unit)) = shown.split_once(' ') else { return shown.to_owned() };
    let Ok(value) = number.parse::<f64>() else { return shown.to_owned() };
    let second = |value: f64| value.max(f64::MIN_POSITIVE).log10().floor() - 1.0;
    let step = 10f64.powf(second(value));
    let value = (value / step).round() * step;
    // What was rounded up to another power of ten has a figure more before the point.
    let digits = (-second(value * (1.0 + f64::EPSILON))).max(0.0) as usize;
    format!("{value:.digits$} {unit}")
}

fn table(plan: &Plan) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "mode", "chunk", "mean", "p50", "p99", "p99.9", "P(fallback)", "parity"]);
    for (index, expected) in plan.candidates.iter().enumerate() {
        table.add_row([
            match index {
                index if index == plan.recommended => ">",
                index if index == plan.fixed => "-",
                _ => "",
            }
            .to_owned(),
            expected.candidate.scheme.to_string(),
            units::show_bytes(expected.chunk_bytes),
            show_time(expected.mean_s),
            show_time(expected.p50_s),
            show_time(expected.p99_s),
            show_time(expected.p999_s),
            expected.fallback.map_or_else(String::new, |fallback| format!("{fallback:.1e}")),
            format!("{:.0} %", expected.parity_share * 100.0),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn show_time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

/// Sizes beyond those asked for on each side, in steps of half a factor of two.
const PLOT_STEPS: i32 = 20;

/// The best of each kind, over message sizes around those asked for.
fn draw(
    path: &Path,
    question: &Question,
    plan: &Plan,
    objective: ObjectiveName,
) -> Result<(), Failure> {
    let mut best: Vec<&Expected> = Vec::new();
    for expected in [plan.choice(), plan.fixed_choice()].into_iter().chain(&plan.candidates) {
        let kind = |expected: &Expected| expected.candidate.effort().0;
        let name = |expected: &Expected| expected.candidate.scheme.to_string();
        let is_kind = |known: &&Expected| {
            kind(known) == kind(expected)
                && (expected.candidate.scheme.is_coded() || name(known) == name(expected))
        };
        if !best.iter().any(is_kind) {
            best.push(expected);
        }
    }
    let (least, most) = question
        .sizes_bytes
        .iter()
        .fold((u64::MAX, 1), |(least, most), size| (least.min(*size), most.max(*size)));
    let between = (2.0 * (most as f64 / least as f64).log2()).ceil() as i32;
    let mut series = Vec::new();
    for expected in best {
        let mut points = Vec::new();
        for step in -PLOT_STEPS..=between + PLOT_STEPS {
            let size = (least as f64 * (f64::from(step) / 2.0).exp2()).round().max(1.0);
            let moved = Question { sizes_bytes: vec![size as u64], ..question.clone() };
            let there = expected.candidate.expected(&moved)?;
            points.push((size, there.of(moved.objective) / moved.ideal_s()?));
        }
        let scheme = expected.candidate.scheme.to_string();
        let name = match expected.candidate.scheme {
            Scheme::Auto(_) => "auto, the default".to_owned(),
            _ => format!("{scheme}, chunks of {}", units::show_bytes(expected.chunk_bytes)),
        };
        series.push(Series::new(name, points).of(&scheme));
    }
    let sizes = question.sizes_bytes.iter().map(|size| units::show_bytes(*size));
    let asked = format!("asked for: {}", sizes.collect::<Vec<_>>().join(", "));
    let mark = |size: &u64| Mark::Vertical { x: *size as f64, name: asked.clone() };
    let chart = Chart {
        title: format!("{} over the ideal time", objective.name()),
        x: Axis::doubling("message size", size),
        y: Axis::ratio("x ideal"),
        series,
        marks: question.sizes_bytes.iter().map(mark).collect(),
    };
    let choice = take(question, plan, objective).join("; ");
    let title = format!("Path: {}\nChoice: {choice}", describe(question));
    let notes = vec![format!(
        "Why {} of the fixed modes: {}",
        plan.fixed_choice().candidate.scheme,
        plan.reason
    )];
    Drawing { title, charts: vec![chart], is_common_y: false, notes }.write(path)
}

/// The path, for a title.
fn describe(question: &Question) -> String {
    let loss = match question.loss {
        LossKnown::At(loss) => format!("loss {loss:.1e}"),
        LossKnown::Between(low, high) => format!("loss {low:.1e} to {high:.1e}"),
    };
    let bursts = question
        .mean_burst_packets
        .map_or_else(String::new, |packets| format!(" in bursts of {packets:.1}"));
    format!(
        "{}, round trip {}, {loss}{bursts}, packets of {}",
        units::show_rate(question.rate_bits_per_s),
        units::show_time(question.rtt_s),
        units::show_bytes(question.packet_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_to_a_few_percent_has_two_figures() {
        for (shown, told) in [
            ("1.23 GiB", "1.2 GiB"),
            ("638.04 MiB", "640 MiB"),
            ("12.8 ms", "13 ms"),
            ("9.96 us", "10 us"),
            ("2 h", "2.0 h"),
        ] {
            assert_eq!(two_figures(shown), told);
        }
    }
}
