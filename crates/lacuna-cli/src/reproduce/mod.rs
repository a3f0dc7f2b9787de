//! `lacuna reproduce`: the papers' experiments, done again.

use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Output, conclude};
use crate::planner::{self, FiguresArgs};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use lacuna_reproduce::cells::{Effort, Lab};
use lacuna_reproduce::lowar;
use lacuna_reproduce::outcome::{Statement, WriteError, Written};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  lacuna reproduce lowar --out lowar    all figures of LoWAR, a coarse grid, some minutes
  lacuna reproduce lowar 9 --full       figure 9 on the paper's grid, five seeds
  lacuna reproduce lowar --list         what there is
  lacuna reproduce sdr --out sdr        the figures of SDR-RDMA, as lacuna figures draws them";

/// Do a paper's experiments again: our number, the paper's, and whether it holds
///
/// Each figure becomes an SVG and a CSV, and each statement of the paper a verdict: holds, exceeded, or
/// differs, and why. The experiments run in virtual time with the transport's own code, so no network is
/// needed and the same seed gives the same losses.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct ReproduceArgs {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Debug, Subcommand)]
enum Paper {
    /// LoWAR: repairs below a reliable connection; figures 3 and 9 to 13
    Lowar(LowarArgs),
    /// SDR-RDMA: the same as lacuna figures
    Sdr(FiguresArgs),
}

#[derive(Debug, Args)]
struct LowarArgs {
    /// Figures of the paper; all if none is given
    #[arg(value_name = "FIGURE")]
    figures: Vec<u32>,
    /// Folder to write to; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,
    /// The paper's grid with five seeds, instead of a coarse one; hours of processor time
    #[arg(long)]
    full: bool,
    /// Only list the figures
    #[arg(long, conflicts_with_all = ["full", "figures"])]
    list: bool,
}

pub(crate) fn run(args: &ReproduceArgs, output: Output) -> Result<(), Failure> {
    match &args.paper {
        Paper::Lowar(args) => reproduce_lowar(args, output),
        Paper::Sdr(args) => planner::figures(args, output),
    }
}

fn reproduce_lowar(args: &LowarArgs, output: Output) -> Result<(), Failure> {
    if args.list {
        return lowar::FIGURES
            .iter()
            .try_for_each(|(figure, title)| output.line(&format!("{figure:>3}  {title}")));
    }
    let known = lowar::FIGURES.map(|(figure, _)| figure);
    if let Some(other) = args.figures.iter().find(|figure| !known.contains(figure)) {
        let known = known.map(|figure| figure.to_string()).join(", ");
        let text =
            format!("figure {other} of LoWAR is not among those that can be done again: {known}");
        return Err(Failure::Usage(text));
    }
    interrupt::install()?;
    let out = &args.out;
    std::fs::create_dir_all(out).map_err(|error| Failure::file("make", out, &error))?;
    let mut figures = if args.figures.is_empty() { known.to_vec() } else { args.figures.clone() };
    figures.sort_unstable();
    figures.dedup();
    let effort = if args.full { Effort::Full } else { Effort::Quick };
    for figure in figures {
        let Some(written) = one(figure, effort, out, output)? else {
            return Err(Failure::Interrupted);
        };
        conclude(None, report(&written, output))?;
    }
    Ok(())
}

/// Does one figure; `None` if it was interrupted.
fn one(
    figure: u32,
    effort: Effort,
    folder: &Path,
    output: Output,
) -> Result<Option<Written>, Failure> {
    let bar = match output.shows_progress() {
        true => ProgressBar::new(0),
        false => ProgressBar::hidden(),
    };
    let style = "figure {msg}: {bar:30} {pos} of {len} runs, {elapsed} so far, {eta} to go";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.set_message(figure.to_string());
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let outcome =
        lowar::run(figure, &Lab { effort, stop: &interrupt::requested, progress: &progress });
    bar.finish_and_clear();
    match outcome {
        Some(Ok(outcome)) => Ok(Some(outcome.write(folder)?)),
        Some(Err(_)) | None => Ok(None),
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Local(error.to_string())
    }
}

fn report(written: &Written, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.object(written);
    }
    let Written { figure, title, svg, csv, workload, statements, .. } = written;
    output.line(&format!("figure {figure}: {title}: {svg}, {csv}"))?;
    output.line(&format!("  {workload}"))?;
    for Statement { section, paper, ours, verdict, why } in statements {
        output.line(&format!("  {section} says: {paper}"))?;
        let why = why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        output.line(&format!("  here: {ours}: {}{why}", verdict.word()))?;
    }
    Ok(())
}
