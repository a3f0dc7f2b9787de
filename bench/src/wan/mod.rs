//! The race: Lacuna and what people use, each over a path of its own that is emulated by
//! `lacuna-wan`. Cells and contestants are data (`wan/*.toml`); ends run in the path's hosts; what
//! was found is kept as records, from which the document is written.

mod cell;
mod contestant;
pub(crate) mod end;
mod glance;
mod goal;
mod meddle;
mod neighbours;
mod path;
mod plot;
mod process;
mod race;
mod record;
mod report;
mod run;
mod sample;
mod summary;
#[cfg(test)]
mod testing;

use crate::machine::Machine;
use anyhow::{Context, Result, ensure};
use clap::Args;
use record::Folder;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  wan 'bulk-1g-40ms-*' --rounds 3              all losses of one path
  wan 'message-8m-fresh-1g-40ms-1e-3' --only lacuna-auto,tcp-bbr --count 20
  wan --list                                   every cell, and how long it takes
  wan 'bulk-1g-40ms-0' --record                measured anew in bench/wan/record and docs/race.md
  wan --none --record                          the document alone, from the records";

/// Arguments of `wan`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WanArgs {
    /// Cells by name, `*` for anything
    #[arg(required_unless_present_any = ["list", "none"])]
    cells: Vec<String>,
    /// Name the cells, and run none
    #[arg(long)]
    list: bool,
    /// Run no cell: write the document of the records that are there
    #[arg(long, conflicts_with = "cells")]
    none: bool,
    /// Only these contestants
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How often each contestant runs a cell
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Another time of bulk transfers, in seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// Another number of messages in a round, or of connections of a crowd
    #[arg(long)]
    count: Option<u32>,
    /// The most seconds that a contestant's messages may take in a round; what is under way then
    /// is reported as unfinished
    #[arg(long, default_value_t = 60.0)]
    budget: f64,
    /// What to say next to the numbers, such as what else the machine did
    #[arg(long, default_value = "")]
    note: String,
    /// Keep records, document and pictures in this folder; those of other cells and contestants
    /// that are there already stay
    #[arg(long, conflicts_with = "record")]
    out: Option<PathBuf>,
    /// Keep them in this checkout: bench/wan/record and docs/race.md
    #[arg(long)]
    record: bool,
    /// Another file of cells
    #[arg(long)]
    cells_file: Option<PathBuf>,
    /// Another file of contestants
    #[arg(long)]
    contestants_file: Option<PathBuf>,
}

/// Names the cells, as long as somebody reads them: `--list | head` ends quietly.
fn list(cells: &[cell::Cell]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for cell in cells {
        match writeln!(out, "{:<36} {} contestants", cell.name, cell.contestants.len()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            written => written?,
        }
    }
    Ok(())
}

fn read(path: Option<&Path>, ours: &str) -> Result<String> {
    match path {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        }
        None => Ok(ours.to_owned()),
    }
}

/// Runs the race.
pub(crate) fn run(args: &WanArgs) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds must be 1 or more");
    ensure!(args.budget > 0.0 && args.budget < 86_400.0, "--budget must be above 0");
    ensure!(args.count != Some(0), "--count must be 1 or more");
    let is_time = |seconds: f64| (0.5..3600.0).contains(&seconds);
    ensure!(args.seconds.is_none_or(is_time), "--seconds must be 0.5 or more");
    let text = read(args.contestants_file.as_deref(), include_str!("../../wan/contestants.toml"))?;
    let contestants = contestant::File::parse(&text)?;
    let text = read(args.cells_file.as_deref(), include_str!("../../wan/cells.toml"))?;
    let suite = cell::File::parse(&text)?;
    let mut cells = suite.cells()?;
    contestants.check(&cells)?;
    let is_chosen = |name: &str| args.cells.iter().any(|pattern| cell::matches(pattern, name));
    if !args.cells.is_empty() {
        cells.retain(|cell| is_chosen(&cell.name));
        ensure!(
            !cells.is_empty(),
            "no cell is called like {}: see --list",
            args.cells.join(" or ")
        );
    }
    if args.list {
        return list(&cells);
    }
    for cell in &mut cells {
        cell.adjust(args.seconds, args.count);
    }
    let folder = match &args.out {
        Some(out) => Some(Folder::new(out)),
        None if args.record => Some(Folder::of_checkout()),
        None => None,
    };
    let mut records = Vec::new();
    if !args.none {
        let race = race::Race {
            contestants: &contestants,
            only: &args.only,
            rounds: args.rounds,
            budget: Duration::from_secs_f64(args.budget),
            note: &args.note,
            machine: Machine::here(),
        };
        records = race.run(cells, folder.as_ref())?;
    }
    if let Some(folder) = &folder {
        records = folder.records()?;
        // In the order of the file.
        let order: Vec<_> = suite.cells()?.into_iter().map(|cell| cell.name).collect();
        records.sort_by_key(|record| order.iter().position(|name| *name == record.cell.name));
    }
    let document = report::document(&records, &suite.goals, &contestants);
    match folder {
        Some(folder) => folder.write(&document, &plot::pictures(&records)),
        None => {
            print!("{document}");
            Ok(())
        }
    }
}
