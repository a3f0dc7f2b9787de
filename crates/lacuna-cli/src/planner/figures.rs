//! `lacuna figures`: the figures of the SDR paper as files, and what became of its headlines.

use super::{LossPerName, arguments, unusable};
use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use lacuna_planner::{DROPS_FIGURE, ENCODING_FIGURE, FigureError, FigureOptions, WrittenFigure};
use std::path::PathBuf;

/// Draw the SDR paper's figures: 3, 9, 10, 12, 13, 15 from the model, 2 and 11 from measurements
///
/// Each becomes an SVG and a CSV, with the paper's stated headline and ours beneath. Figure 2 needs
/// what `lacuna probe client` measured, figure 11 what `lacuna ec-bench --json` did. Figures 14 and
/// 16 are measurements of a network card and not drawn here.
///
/// Examples:
///   lacuna figures --out figures
///   lacuna figures 9 10 --out figures-64k --chunk 64KiB
///   lacuna figures 2 --probe drops.csv --out figures
///   lacuna figures 11 --ec-bench codes.json --out figures
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct FiguresArgs {
    /// Figures of the paper; all from the model if none is given, and those whose measurement is
    #[arg(value_name = "N")]
    numbers: Vec<u32>,
    /// Folder to write to; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Bytes per chunk, which the paper does not state
    #[arg(long, default_value = "4KiB", value_parser = arguments::size)]
    chunk: u64,
    /// What a drop rate counts: chunks whatever their length (4.2.1), or packets of 4 KiB (5.4.2)
    #[arg(long, value_enum, default_value_t = LossPerName::Chunk)]
    loss_per: LossPerName,
    /// Trials of each ring allreduce in figure 13 [default: as many as narrow the 99 % interval of p99.9 to
    /// 1 % to either side, a million at most]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    trials: Option<u32>,
    /// Seed of these trials
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Figure 2: the JSON or CSV of `lacuna probe client`; several files are one measurement
    #[arg(long, value_name = "FILE")]
    probe: Vec<PathBuf>,
    /// Figure 11: the output of `lacuna ec-bench --json`
    #[arg(long, value_name = "FILE")]
    ec_bench: Option<PathBuf>,
}

pub(crate) fn run(args: &FiguresArgs, output: Output) -> Result<(), Failure> {
    let options = FigureOptions {
        chunk_bytes: args.chunk,
        loss_per: args.loss_per.loss_per(),
        trials: args.trials,
        seed: args.seed,
        drops: args.probe.clone(),
        encoding: args.ec_bench.clone(),
    };
    let numbers = options.numbers(&args.numbers)?;
    std::fs::create_dir_all(&args.out).map_err(|error| Failure::file("make", &args.out, &error))?;
    for number in numbers {
        report(&options.write(number, &args.out)?, output)?;
    }
    Ok(())
}

impl From<FigureError> for Failure {
    fn from(error: FigureError) -> Self {
        match &error {
            FigureError::NotMeasured { number } => {
                let option = option(*number);
                Self::Usage(format!("figure {number} is a measurement: give it with {option} FILE"))
            }
            FigureError::Measurement { number, source } => unusable(source, |reason| {
                let advice = match *number {
                    ENCODING_FIGURE => "give what lacuna ec-bench --json wrote",
                    _ => "give what lacuna probe client wrote with --json or --csv",
                };
                let (option, path) = (option(*number), source.path().display());
                format!("{option} {path}: {reason}: {advice}")
            }),
            FigureError::Unknown { .. } | FigureError::Model(_) => Self::Usage(error.to_string()),
            FigureError::Chart(_) | FigureError::Write { .. } => Self::Local(error.to_string()),
        }
    }
}

/// The option with the measurement for a figure.
fn option(number: u32) -> &'static str {
    match number {
        DROPS_FIGURE => "--probe",
        _ => "--ec-bench",
    }
}

fn report(figure: &WrittenFigure, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.object(figure);
    }
    output.line(&format!("figure {}: {}, {}", figure.figure, figure.svg, figure.csv))?;
    for headline in &figure.headlines {
        output.line(&format!("  {} says: {}", headline.section, headline.paper))?;
        output.line(&format!("  here:       {}", headline.ours))?;
    }
    Ok(())
}
