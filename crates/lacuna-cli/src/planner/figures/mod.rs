//! `lacuna figures`: figures 3, 9, 10, 12, 13 and 15 of the SDR paper from the model, 2 and 11 from
//! measurements, as SVG and CSV, with what the paper states of each and what comes out.
//!
//! The paper does not say which chunk its figures 3, 9, 10, 12 and 13 have, nor whether the drop
//! rate is that of a chunk or of a packet. `--chunk` and `--loss-per` choose; with 4 KiB chunks,
//! the default, the two are the same, and most headlines come out.

mod allreduce;
mod crossover;
mod distance;
mod drops;
mod encoding;
mod grid;
mod lines;
mod packets;
mod setup;

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use serde::Serialize;
use setup::{LossPer, Setup};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

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
    #[arg(long, default_value = "4KiB", value_parser = super::arguments::size)]
    chunk: u64,
    /// What a drop rate counts: chunks whatever their length (4.2.1), or packets of 4 KiB (5.4.2)
    #[arg(long, value_enum, default_value_t = LossPer::Chunk)]
    loss_per: LossPer,
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

/// What a figure turns out to be.
struct Figure {
    number: u32,
    headlines: Vec<Headline>,
    csv: Csv,
}

/// A statement of the paper about a figure, and what the model says of it.
#[derive(Debug, Clone, Serialize)]
struct Headline {
    section: &'static str,
    paper: &'static str,
    ours: String,
}

impl Headline {
    /// Two lines for beneath a figure.
    fn notes(headlines: &[Self]) -> Vec<String> {
        let lines = |headline: &Self| {
            [
                format!("Paper, {}: {}", headline.section, headline.paper),
                format!("Here: {}", headline.ours),
            ]
        };
        headlines.iter().flat_map(lines).collect()
    }
}

/// Numbers for other tools.
struct Csv {
    text: String,
}

impl Csv {
    fn new(header: &str) -> Self {
        Self { text: format!("{header}\n") }
    }

    fn row(&mut self, labels: &[&str], numbers: &[f64]) {
        let mut line = labels.join(",");
        for number in numbers {
            // Writing to a string cannot fail.
            let _ = write!(line, "{}{number:e}", if line.is_empty() { "" } else { "," });
        }
        self.text.push_str(&line);
        self.text.push('\n');
    }
}

#[derive(Debug, Serialize)]
struct Written {
    figure: u32,
    svg: String,
    csv: String,
    headlines: Vec<Headline>,
}

/// All that the model draws.
const FROM_MODEL: [u32; 6] = [3, 9, 10, 12, 13, 15];
/// Figures of measurements, and the option that brings each.
const DROPS: (u32, &str) = (2, "--probe");
const ENCODING: (u32, &str) = (11, "--ec-bench");

pub(crate) fn run(args: &FiguresArgs, output: Output) -> Result<(), Failure> {
    let numbers = numbers(args)?;
    std::fs::create_dir_all(&args.out).map_err(|error| Failure::file("make", &args.out, &error))?;
    let setup = Setup::new(args.chunk, args.loss_per)?;
    for number in numbers {
        let svg = args.out.join(format!("figure-{number}.svg"));
        let csv = args.out.join(format!("figure-{number}.csv"));
        let figure = draw(number, &setup, args, &svg)?;
        std::fs::write(&csv, &figure.csv.text)
            .map_err(|error| Failure::file("write", &csv, &error))?;
        report(&figure, &svg, &csv, output)?;
    }
    Ok(())
}

/// Which to draw: those asked for, or all that can be.
fn numbers(args: &FiguresArgs) -> Result<Vec<u32>, Failure> {
    let measured = [(DROPS, !args.probe.is_empty()), (ENCODING, args.ec_bench.is_some())];
    let mut numbers = args.numbers.clone();
    if numbers.is_empty() {
        numbers.extend(FROM_MODEL);
        numbers.extend(measured.iter().filter(|(_, is_there)| *is_there).map(|((n, _), _)| n));
    }
    numbers.sort_unstable();
    numbers.dedup();
    for number in &numbers {
        match measured.iter().find(|((measured, _), _)| measured == number) {
            Some(((_, option), false)) => {
                return Err(Failure::Usage(format!(
                    "figure {number} is a measurement: give it with {option} FILE"
                )));
            }
            None if !FROM_MODEL.contains(number) => {
                return Err(Failure::Usage(format!(
                    "figure {number} is not drawn here: one of 2, 3, 9, 10, 11, 12, 13, 15"
                )));
            }
            _ => {}
        }
    }
    Ok(numbers)
}

fn draw(number: u32, setup: &Setup, args: &FiguresArgs, svg: &Path) -> Result<Figure, Failure> {
    match number {
        2 => drops::figure_2(&args.probe, svg),
        11 => encoding::figure_11(args.ec_bench.as_deref(), svg),
        3 => lines::figure_3(setup, svg),
        9 => grid::figure_9(setup, svg),
        10 => lines::figure_10(setup, svg),
        12 => distance::figure_12(setup, svg),
        13 => {
            let trials = allreduce::Trials { fixed: args.trials, seed: args.seed };
            allreduce::figure_13(setup, svg, trials)
        }
        _ => packets::figure_15(svg),
    }
}

fn report(figure: &Figure, svg: &Path, csv: &Path, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.object(&Written {
            figure: figure.number,
            svg: svg.display().to_string(),
            csv: csv.display().to_string(),
            headlines: figure.headlines.clone(),
        });
    }
    output.line(&format!("figure {}: {}, {}", figure.number, svg.display(), csv.display()))?;
    for headline in &figure.headlines {
        output.line(&format!("  {} says: {}", headline.section, headline.paper))?;
        output.line(&format!("  here:       {}", headline.ours))?;
    }
    Ok(())
}
