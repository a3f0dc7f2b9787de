//! `lacuna plan`: which scheme for this path.

use super::{arguments, unusable};
use crate::failure::Failure;
use crate::output::Output;
use crate::units::{self, show_bytes};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use lacuna_planner::{
    InTime, LossKnown, Measured, Objective, Plan, PlanChartError, PlanError, PlanRequest,
    Recommendation, fibre_rtt_s, recommend,
};
use lacuna_units::show_time_fixed;
use std::path::PathBuf;

/// Recommend a reliability scheme for a path, and say why
///
/// Compares the transport's default mode, auto, with selective repeat and erasure codes as the transport
/// runs them (headers and repairs take link time, parity follows each submessage), prints what to expect
/// of each, which of the fixed ones is best, where that flips, and when it does not matter. Of auto it is
/// what a connection chooses that knows the path; a first message over an unknown one gets more parity.
///
/// For programs that need a reliable connection (RDMA verbs, which send everything again from a lost packet on)
/// it says which LoWAR(r, c) to put below it, what that comes to with messages back to back, and whether a
/// mode that places packets in any order is the better choice.
///
/// --from reads a JSON object with any of rate_bits_per_s, rtt_s, loss (a number or [low, high]),
/// mean_burst_packets and mtu_bytes, as `lacuna probe client --json` writes it; options beside it
/// override it.
///
/// Examples:
///   lacuna plan --rate 400gbit --rtt 25ms --loss 1e-4 --size 128MiB
///   lacuna plan --rate 10gbit --distance 3750km --loss 1e-5..1e-2 --burst 8 --size 1MiB,64MiB --objective p99
///   lacuna plan --from path.json --size 1GiB --plot plan.svg
///   lacuna plan --rate 10gbit --rtt 25ms --loss 1e-3 --size 64MiB --deadline 90ms
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
    /// Say beside what is there by then, from the first byte sent: for each mode the probability that a message
    /// is complete, and the expected share of its bytes without repairs
    #[arg(long, value_name = "TIME", value_parser = arguments::rtt_s)]
    deadline: Option<f64>,
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
}

pub(crate) fn run(args: &PlanArgs, output: Output) -> Result<(), Failure> {
    let advice = recommend(&request(args)?)?;
    if let Some(path) = &args.plot {
        advice.draw(path)?;
    }
    let in_time = match args.deadline {
        Some(deadline_s) => Some((deadline_s, advice.in_time(deadline_s)?)),
        None => None,
    };
    let in_time = in_time.as_ref().map(|(deadline_s, in_time)| (*deadline_s, in_time));
    match (output.json, in_time) {
        (true, None) => output.object(&advice.answer())?,
        (true, Some((deadline_s, in_time))) => {
            output.object(&advice.answer_by(deadline_s, in_time))?;
        }
        (false, in_time) => output.line(&render(&advice, in_time))?,
    }
    let has_codes = lacuna::modes::TABLE.iter().any(|entry| entry.name.starts_with("ec"));
    if advice.plan.choice().candidate.scheme.is_coded() && !has_codes {
        output.note("this version's transport has no erasure coding yet: of its modes, take sr");
    }
    Ok(())
}

fn request(args: &PlanArgs) -> Result<PlanRequest, Failure> {
    let measured = match &args.from {
        None => Measured::default(),
        Some(path) => Measured::read(path).map_err(|error| {
            unusable(&error, |reason| {
                format!("--from {}: not a path's measurement: {reason}", path.display())
            })
        })?,
    };
    let asked = Measured {
        rate_bits_per_s: args.rate,
        rtt_s: args.rtt.or(args.distance.map(fibre_rtt_s)),
        loss: args.loss.map(|(low, high)| match low == high {
            true => LossKnown::At(low),
            false => LossKnown::Between(low, high),
        }),
        mean_burst_packets: args.burst,
        mtu_bytes: args.mtu,
    };
    Ok(PlanRequest {
        path: asked.or(measured),
        sizes_bytes: args.size.clone(),
        objective: args.objective.objective(),
    })
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let PlanError::Unknown { missing } = error else { return Self::Usage(error.to_string()) };
        let missing: Vec<&str> = missing
            .iter()
            .map(|what| match *what {
                "rate" => "--rate",
                "rtt" => "--rtt (or --distance)",
                _ => "--loss",
            })
            .collect();
        Self::Usage(format!(
            "no {}: give what is missing, or --from a file that has it (--help explains)",
            missing.join(", ")
        ))
    }
}

impl From<PlanChartError> for Failure {
    fn from(error: PlanChartError) -> Self {
        match error {
            PlanChartError::Model(error) => Self::Usage(error.to_string()),
            PlanChartError::Chart(error) => error.into(),
        }
    }
}

fn render(advice: &Recommendation, in_time: Option<(f64, &InTime)>) -> String {
    let mut lines = advice.lines();
    let plan = &advice.plan;
    if let Some((deadline_s, in_time)) = in_time {
        lines.extend(advice.lines_by(deadline_s, in_time));
    }
    let table = table(plan, in_time.map(|(_, in_time)| in_time));
    lines.push(format!("ideal {}\n{table}", show_time_fixed(plan.ideal_s)));
    lines.join("\n")
}

fn table(plan: &Plan, in_time: Option<&InTime>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header =
        vec!["", "mode", "chunk", "mean", "p50", "p99", "p99.9", "P(fallback)", "parity"];
    header.extend(in_time.map(|_| "P(in time)"));
    table.set_header(header);
    for (index, expected) in plan.candidates.iter().enumerate() {
        let mut row = vec![
            match index {
                index if index == plan.recommended => ">",
                index if index == plan.fixed => "-",
                _ => "",
            }
            .to_owned(),
            expected.candidate.scheme.to_string(),
            show_bytes(expected.chunk_bytes),
            show_time_fixed(expected.mean_s),
            show_time_fixed(expected.p50_s),
            show_time_fixed(expected.p99_s),
            show_time_fixed(expected.p999_s),
            expected.fallback.map_or_else(String::new, |fallback| format!("{fallback:.1e}")),
            format!("{:.0} %", expected.parity_share * 100.0),
        ];
        let in_time = in_time.and_then(|in_time| in_time.candidates.get(index));
        row.extend(in_time.map(|probability| format!("{probability:.6}")));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
