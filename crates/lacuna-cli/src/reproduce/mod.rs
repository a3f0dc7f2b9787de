//! `lacuna reproduce`: the papers' experiments, done again.
//!
//! Virtual time needs no network and is the same everywhere; `--live` (Linux) measures real programs on this
//! machine, whose numbers are this machine's. Workloads, statements and verdicts are in `lacuna_reproduce`;
//! here are the command line, the processes of live runs (`live`), and how outcomes are printed.

#[cfg(target_os = "linux")]
mod bulk;
#[cfg(target_os = "linux")]
mod datagrams;
#[cfg(target_os = "linux")]
mod live;

use crate::failure::{Ending, Failure};
use crate::interrupt;
use crate::output::{Output, conclude};
use crate::planner::{self, FiguresArgs};
use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use lacuna_reproduce::cells::Stopped;
use lacuna_reproduce::cells::{Effort, Lab};
use lacuna_reproduce::outcome::{Item, Outcome, Rows, Statement, WriteError, Written};
use lacuna_reproduce::{celeris, iwarp, lowar, optinic};
use serde::Serialize;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  lacuna reproduce lowar --out lowar    all of LoWAR on a coarse grid: half an hour of
                                        processor time
  lacuna reproduce lowar 9 --full       figure 9 on the paper's grid, five seeds
  lacuna reproduce lowar table1         what the shim takes of memory
  lacuna reproduce lowar --live         goodput and processor time of real programs over an
                                        emulated path, beside TCP: 4 minutes
  lacuna reproduce lowar --list         what there is
  lacuna reproduce iwarp 8 9 --full     datagram-iWARP under loss: two minutes
  lacuna reproduce iwarp 7 --live       a broadcast to three receivers, what each has
  lacuna reproduce optinic 2            what losses do to the accuracy of a training
  lacuna reproduce optinic 5            collectives in time and with go-back-N, by size
  lacuna reproduce optinic 7            what losses do to encoded tensors
  lacuna reproduce optinic ring         a ring of four sites, with the protocol's own messages
  lacuna reproduce celeris budgets      rules for the time that an operation gets
  lacuna reproduce sdr --out sdr        the figures of SDR-RDMA, as lacuna figures draws them";

/// Do a paper's experiments again: our number, the paper's, and whether it holds
///
/// Each figure becomes an SVG and a CSV, and each statement of the paper a verdict: holds, exceeded, or
/// differs, and why. The experiments run in virtual time with the transport's own code, so no network is
/// needed and the same seed gives the same losses. With --live real programs are measured instead.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct ReproduceArgs {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Debug, Subcommand)]
enum Paper {
    /// LoWAR: repairs below a reliable connection; figures 3 and 9 to 13, table I
    Lowar(LowarArgs),
    /// Datagram-iWARP: RDMA without connections; figures 5 to 9, of which 8 and 9 also in virtual time
    Iwarp(IwarpArgs),
    /// OptiNIC: bounded completion, collectives, training and the Hadamard transform; figures 2 to 5 and 7, table 3, ring,
    /// schedules
    Optinic(VirtualArgs),
    /// Celeris: operations that end in time; figure 1, budgets
    Celeris(VirtualArgs),
    /// SDR-RDMA: the same as lacuna figures
    Sdr(FiguresArgs),
    // For runs of --live.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Tcp(bulk::TcpArgs),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Datagrams(datagrams::DatagramsArgs),
}

#[derive(Debug, Args)]
struct LowarArgs {
    /// Figures and tables of the paper, such as 9 and table1; all if none is given
    #[arg(value_name = "FIGURE")]
    items: Vec<Item>,
    /// Folder to write to; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,
    /// The paper's grid with five seeds, instead of a coarse one; hours of processor time. With --live, more
    /// losses, 80 ms, 16 and 32 connections: 40 minutes
    #[arg(long)]
    full: bool,
    /// Only list what there is
    #[arg(long, conflicts_with_all = ["full", "items"])]
    list: bool,
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    live: live::LiveArgs,
}

#[derive(Debug, Args)]
struct VirtualArgs {
    /// Figures, tables and studies, as --list names them; all if none is given
    #[arg(value_name = "FIGURE")]
    items: Vec<Item>,
    /// Folder to write to; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,
    /// More cells, seeds and messages, instead of a coarse grid: some minutes each
    #[arg(long)]
    full: bool,
    /// Only list what there is
    #[arg(long, conflicts_with_all = ["full", "items"])]
    list: bool,
}

#[derive(Debug, Args)]
struct IwarpArgs {
    /// Figures of the paper, such as 9; all if none is given
    #[arg(value_name = "FIGURE")]
    items: Vec<Item>,
    /// Folder to write to; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,
    /// All of the paper's losses and every length from 1 KiB to 1 MiB, 5 s a cell, instead of a coarse grid;
    /// with --live every second length: half an hour
    #[arg(long)]
    full: bool,
    /// Only list what there is
    #[arg(long, conflicts_with_all = ["full", "items"])]
    list: bool,
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    live: live::iwarp::IwarpLiveArgs,
}

impl IwarpArgs {
    fn is_live(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.live.live;
        #[cfg(not(target_os = "linux"))]
        false
    }
}

/// What there is of a paper.
struct Source {
    name: &'static str,
    /// In virtual time, and measured live.
    experiments: &'static [(Item, &'static str)],
    live: &'static [(Item, &'static str)],
    run: fn(Item, &Lab<'_>) -> Option<Result<Outcome, Stopped>>,
}

const LOWAR: Source = Source {
    name: "LoWAR",
    experiments: &lowar::EXPERIMENTS,
    live: &lowar::live::EXPERIMENTS,
    run: lowar::run,
};

const IWARP: Source = Source {
    name: "datagram-iWARP",
    experiments: &iwarp::EXPERIMENTS,
    live: &iwarp::LIVE,
    run: iwarp::run,
};

const OPTINIC: Source =
    Source { name: "OptiNIC", experiments: &optinic::EXPERIMENTS, live: &[], run: optinic::run };

const CELERIS: Source =
    Source { name: "Celeris", experiments: &celeris::EXPERIMENTS, live: &[], run: celeris::run };

impl LowarArgs {
    fn is_live(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.live.live;
        #[cfg(not(target_os = "linux"))]
        false
    }
}

pub(crate) fn run(args: &ReproduceArgs, output: Output) -> Result<(), Failure> {
    match &args.paper {
        Paper::Lowar(args) => reproduce_lowar(args, output),
        Paper::Iwarp(args) => reproduce_iwarp(args, output),
        Paper::Optinic(args) => reproduce_virtual(&OPTINIC, args, output),
        Paper::Celeris(args) => reproduce_virtual(&CELERIS, args, output),
        Paper::Sdr(args) => planner::figures(args, output),
        #[cfg(target_os = "linux")]
        Paper::Tcp(args) => bulk::run(args, output),
        #[cfg(target_os = "linux")]
        Paper::Datagrams(args) => datagrams::run(args, output),
    }
}

fn reproduce_lowar(args: &LowarArgs, output: Output) -> Result<(), Failure> {
    if args.list {
        return LOWAR.list(output);
    }
    let items = LOWAR.chosen(&args.items, args.is_live())?;
    let effort = begin(args.full, &args.out)?;
    #[cfg(target_os = "linux")]
    if args.is_live() {
        return live::measure(&args.live, &items, effort, &args.out, output);
    }
    LOWAR.all(&items, effort, &args.out, output)
}

fn reproduce_iwarp(args: &IwarpArgs, output: Output) -> Result<(), Failure> {
    if args.list {
        return IWARP.list(output);
    }
    let items = IWARP.chosen(&args.items, args.is_live())?;
    let effort = begin(args.full, &args.out)?;
    #[cfg(target_os = "linux")]
    if args.is_live() {
        return live::iwarp::measure(&args.live, &items, effort, &args.out, output);
    }
    IWARP.all(&items, effort, &args.out, output)
}

fn reproduce_virtual(source: &Source, args: &VirtualArgs, output: Output) -> Result<(), Failure> {
    if args.list {
        return source.list(output);
    }
    let items = source.chosen(&args.items, false)?;
    let effort = begin(args.full, &args.out)?;
    source.all(&items, effort, &args.out, output)
}

/// Makes the folder, and says how much is to be run.
fn begin(is_full: bool, out: &Path) -> Result<Effort, Failure> {
    interrupt::install()?;
    std::fs::create_dir_all(out).map_err(|error| Failure::file("make", out, &error))?;
    Ok(if is_full { Effort::Full } else { Effort::Quick })
}

impl Source {
    fn list(&self, output: Output) -> Result<(), Failure> {
        let lines = |experiments: &[(Item, &str)]| {
            experiments.iter().try_for_each(|(item, title)| {
                output.line(&format!("{:>9}  {title}", item.to_string()))
            })
        };
        lines(self.experiments)?;
        if cfg!(target_os = "linux") && !self.live.is_empty() {
            output.line("with --live:")?;
            lines(self.live)?;
        }
        Ok(())
    }

    /// Does these experiments in virtual time, and reports each.
    fn all(
        &self,
        items: &[Item],
        effort: Effort,
        out: &Path,
        output: Output,
    ) -> Result<(), Failure> {
        for item in items {
            let Some(written) = one(self.run, *item, effort, out, output)? else {
                return Err(Failure::Interrupted);
            };
            conclude(None, report(&written, &Ending::default(), output))?;
        }
        Ok(())
    }

    /// What is to be done, in order: all there is if nothing was asked for.
    fn chosen(&self, asked: &[Item], is_live: bool) -> Result<Vec<Item>, Failure> {
        let known = if is_live { self.live } else { self.experiments };
        let known: Vec<Item> = known.iter().map(|(item, _)| *item).collect();
        if let Some(other) = asked.iter().find(|item| !known.contains(item)) {
            let is_live_only = self.live.iter().any(|(item, _)| item == other);
            if is_live_only && !is_live && cfg!(target_os = "linux") {
                let (name, item) = (self.name, other.words());
                return Err(Failure::Usage(format!(
                    "{item} of {name} is measured live: add --live"
                )));
            }
            let known: Vec<String> = known.iter().map(Item::to_string).collect();
            let how = if is_live { "measured live" } else { "done again" };
            return Err(Failure::Usage(format!(
                "{} of {} is not among those that can be {how}: {}",
                other.words(),
                self.name,
                known.join(", ")
            )));
        }
        let mut items = if asked.is_empty() { known } else { asked.to_vec() };
        items.sort_unstable();
        items.dedup();
        Ok(items)
    }
}

/// Does one experiment; `None` if it was interrupted.
fn one(
    run: fn(Item, &Lab<'_>) -> Option<Result<Outcome, Stopped>>,
    item: Item,
    effort: Effort,
    folder: &Path,
    output: Output,
) -> Result<Option<Written>, Failure> {
    let bar = match output.shows_progress() {
        true => ProgressBar::new(0),
        false => ProgressBar::hidden(),
    };
    let style = "{msg}: {bar:30} {pos} of {len} runs, {elapsed} so far, {eta} to go";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.set_message(item.words());
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let outcome = run(item, &Lab { effort, stop: &interrupt::requested, progress: &progress });
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

/// What `--json` prints for each figure or table.
#[derive(Debug, Serialize)]
struct Told<'w> {
    #[serde(flatten)]
    written: &'w Written,
    #[serde(flatten)]
    ending: &'w Ending,
}

fn report(written: &Written, ending: &Ending, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.object(&Told { written, ending });
    }
    let Written { item, title, svg, csv, workload, statements, rows, remarks, .. } = written;
    output.line(&format!("{}: {title}: {svg}, {csv}", item.words()))?;
    output.line(&format!("  {workload}"))?;
    if let Some(rows) = rows {
        output.line(&table(rows))?;
    }
    for Statement { section, paper, ours, verdict, why } in statements {
        output.line(&format!("  {section} says: {paper}"))?;
        let why = why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        output.line(&format!("  here: {ours}: {}{why}", verdict.word()))?;
    }
    remarks.iter().try_for_each(|remark| output.line(&format!("  {remark}")))
}

/// Rows for people, numbers to the right.
fn table(rows: &Rows) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(&rows.header);
    rows.rows.iter().for_each(|row| {
        table.add_row(row);
    });
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_named_by_figure_or_table_and_others_are_refused_in_one_line() {
        let item = |text: &str| text.parse::<Item>();
        assert_eq!(item("9"), Ok(Item::Figure(9)));
        assert_eq!(item("table1"), Ok(Item::Table(1)));
        for text in ["", "figure9", "table", "-1"] {
            let error = item(text).expect_err(text).to_string();
            assert!(error.contains("table1") && !error.contains('\n'), "{error}");
        }
        let asked = [Item::Figure(13), Item::Figure(9), Item::Figure(9)];
        let items = LOWAR.chosen(&asked, true).expect("both are measured");
        assert_eq!(items, [Item::Figure(9), Item::Figure(13)]);
        assert_eq!(LOWAR.chosen(&[], false).expect("all there is").len(), 7);
        let error = LOWAR.chosen(&[Item::Table(1)], true).expect_err("it is no run").to_string();
        assert_eq!(error, "table 1 of LoWAR is not among those that can be measured live: 9, 13");
        #[cfg(target_os = "linux")]
        {
            let error = IWARP.chosen(&[Item::Figure(7)], false).expect_err("a run").to_string();
            assert_eq!(error, "figure 7 of datagram-iWARP is measured live: add --live");
        }
    }
}
