//! `lacuna-train figure3`: time to an accuracy, OptiNIC's figure 3, by what is done about losses.
//!
//! Real runs over an emulated path, one after the other; seeds are the outer loop, so that a disturbance of the
//! machine meets all deliveries alike, and a run that is stopped has whole seeds. The first cell is the same path
//! without losses: it says which share of a step the network takes.

use crate::path::{PathArguments, write_record};
use crate::train::{Model, OF_FIGURES, check};
use lacuna_training::network::{Delivery, Path};
use lacuna_training::parallel::{Timed, train};
use lacuna_training::sharded;
use lacuna_training::statistics::{mean, quantile};
use std::path::PathBuf;

/// The share of the lossless step that the network has to take, or the figure says nothing.
const NETWORK_SHARE_MIN: f64 = 0.6;
/// How much faster than the baseline bounded deliveries are to be.
const FASTER: f64 = 1.5;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: Model,
    #[command(flatten)]
    path: PathArguments,
    /// What is done about losses: gbn (go-back-N over reliable connections), sr, auto, ec:CODE, bounded with a learned
    /// budget, bounded@MS with one of so many milliseconds; +transform at the end.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "gbn,sr,auto,bounded@160,bounded,bounded@160+transform,bounded+transform"
    )]
    deliveries: Vec<Delivery>,
    /// The one that others are compared with [default: gbn, else sr, or the first].
    #[arg(long)]
    baseline: Option<Delivery>,
    /// The accuracy to be reached, in percent.
    #[arg(long, default_value_t = 88.0)]
    accuracy: f64,
    /// Evaluates each so many steps.
    #[arg(long, default_value_t = 10)]
    every: usize,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Parameters are sharded: all-gather before, reduce-scatter after the gradient (ZeRO-3).
    #[arg(long, conflicts_with_all = ["own", "same", "resync"])]
    sharded: bool,
    /// Writes what was run and found as JSON.
    #[arg(long)]
    record: Option<PathBuf>,
    /// Prints a line of JSON per run instead of the table.
    #[arg(long)]
    json: bool,
}

/// The runs of a delivery.
struct Cell {
    path: Path,
    delivery: Delivery,
    runs: Vec<Timed>,
}

impl Cell {
    fn name(&self) -> String {
        match self.path.loss {
            0.0 => format!("{} without losses", self.delivery),
            _ => self.delivery.to_string(),
        }
    }

    fn mean(&self, of: impl Fn(&Timed) -> f64) -> f64 {
        mean(&self.runs.iter().map(of).collect::<Vec<_>>())
    }

    /// Mean time to the accuracy, if all runs have reached it.
    fn seconds_to(&self, accuracy: f64) -> Option<f64> {
        let seconds: Option<Vec<f64>> =
            self.runs.iter().map(|run| run.seconds_to(accuracy)).collect();
        seconds.filter(|seconds| !seconds.is_empty()).map(|seconds| mean(&seconds))
    }

    fn step_ms(&self, quantile_of: f64) -> f64 {
        let mut steps: Vec<f64> =
            self.runs.iter().flat_map(|run| run.steps.iter().map(|step| step.ms)).collect();
        quantile(&mut steps, quantile_of)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    anyhow::ensure!(arguments.seeds > 0, "nothing to run: --seeds is at least 1");
    let path = arguments.path.path(arguments.model.burst)?;
    let cell = |path, delivery: &Delivery| Cell { path, delivery: delivery.clone(), runs: vec![] };
    let mut cells = vec![cell(path.lossless(), &Delivery::default())];
    if path.loss > 0.0 {
        cells.extend(arguments.deliveries.iter().map(|delivery| cell(path, delivery)));
    }
    for seed in 1..=arguments.seeds {
        let task = arguments.model.task(seed)?;
        let settings = arguments.model.settings(seed, arguments.every, OF_FIGURES);
        check(&settings)?;
        for cell in &mut cells {
            let network =
                arguments.path.network(settings.ranks, cell.path, &cell.delivery, seed)?;
            let timed = match arguments.sharded {
                true => sharded::train(&task, &network, &settings)?,
                false => train(&task, &network, &settings)?,
            };
            report(arguments, cell, seed, &timed);
            cell.runs.push(timed);
        }
    }
    let record = record(arguments, path, &cells);
    write_record(arguments.record.as_deref(), &record)?;
    if !arguments.json {
        print!("{}{}", table(arguments, &cells), verdicts(arguments, &cells));
    }
    Ok(())
}

fn report(arguments: &Arguments, cell: &Cell, seed: u64, timed: &Timed) {
    let target = arguments.accuracy / 100.0;
    let reached = timed.seconds_to(target);
    if arguments.json {
        let line = serde_json::json!({
            "figure": "optinic-3", "seed": seed, "delivery": cell.delivery, "path": cell.path,
            "sharded": arguments.sharded, "accuracy": target, "seconds": reached, "run": timed,
            "steps": timed.steps,
        });
        println!("{line}");
    }
    let reached = reached.map_or("never".to_owned(), |seconds| format!("after {seconds:.1} s"));
    eprintln!(
        "seed {seed}, {}: {} % {reached}, {:.1} ms a step ({:.0} % network), {:.2} % in the end",
        cell.name(),
        arguments.accuracy,
        timed.means.step_ms,
        100.0 * timed.means.network_share(),
        100.0 * timed.points.last().map_or(0.0, |point| point.quality.accuracy),
    );
}

fn table(arguments: &Arguments, cells: &[Cell]) -> String {
    let baseline = baseline(arguments, cells).and_then(|cell| seconds_to(arguments, cell));
    let mut text = format!(
        "| delivery | s to {} % | times faster | step, ms: mean | p50 | p99 | network | lost | late | missing | accuracy in the end, % |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        arguments.accuracy
    );
    for cell in cells {
        let seconds = seconds_to(arguments, cell);
        let of = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let faster = baseline.zip(seconds).map(|(baseline, seconds)| baseline / seconds);
        text += &format!(
            "| {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.0} % | {:.3} % | {:.3} % | {:.3} % | {:.2} |\n",
            cell.name(),
            of(seconds, 1),
            of(faster, 2),
            cell.mean(|run| run.means.step_ms),
            cell.step_ms(0.5),
            cell.step_ms(0.99),
            100.0 * cell.mean(|run| run.means.network_share()),
            100.0 * cell.mean(|run| run.means.lost),
            100.0 * cell.mean(|run| run.means.late),
            100.0 * cell.mean(|run| run.means.missing),
            100.0 * cell.mean(|run| run.points.last().map_or(0.0, |point| point.quality.accuracy)),
        );
    }
    text
}

fn seconds_to(arguments: &Arguments, cell: &Cell) -> Option<f64> {
    cell.seconds_to(arguments.accuracy / 100.0)
}

/// The cell that others are compared with.
fn baseline<'c>(arguments: &Arguments, cells: &'c [Cell]) -> Option<&'c Cell> {
    let lossy = &cells[1..];
    let named = |name: &str| lossy.iter().find(|cell| cell.delivery.to_string() == name);
    match &arguments.baseline {
        Some(delivery) => lossy.iter().find(|cell| cell.delivery == *delivery),
        None => named("gbn").or_else(|| named("sr")).or(lossy.first()),
    }
}

/// What the figure is to show, and whether it does.
fn verdicts(arguments: &Arguments, cells: &[Cell]) -> String {
    let share = cells[0].mean(|run| run.means.network_share());
    let holds = |is_so: bool| if is_so { "holds" } else { "does not hold" };
    let mut text = format!(
        "network at least {:.0} % of the lossless step: {:.0} %, {}\n",
        100.0 * NETWORK_SHARE_MIN,
        100.0 * share,
        holds(share >= NETWORK_SHARE_MIN)
    );
    let auto = cells[1..].iter().find(|cell| cell.delivery == Delivery::default());
    for cell in cells[1..].iter().filter(|cell| cell.delivery.is_bounded()) {
        let Some(seconds) = seconds_to(arguments, cell) else {
            text += &format!("{}: never reached\n", cell.name());
            continue;
        };
        let others = [(baseline(arguments, cells), FASTER), (auto, 1.0)];
        for (other, goal) in others {
            let other = other.filter(|other| !std::ptr::eq(*other, cell));
            let Some((other, theirs)) =
                other.and_then(|other| Some((other, seconds_to(arguments, other)?)))
            else {
                continue;
            };
            text += &format!(
                "{} at least {goal} times faster than {}: {:.2}, {}\n",
                cell.name(),
                other.name(),
                theirs / seconds,
                holds(theirs / seconds >= goal)
            );
        }
    }
    text
}

fn record(arguments: &Arguments, path: Path, cells: &[Cell]) -> serde_json::Value {
    let settings = arguments.model.settings(1, arguments.every, OF_FIGURES);
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| {
            serde_json::json!({
                "delivery": cell.delivery, "path": cell.path,
                "seconds_to_accuracy": cell.runs.iter()
                    .map(|run| run.seconds_to(arguments.accuracy / 100.0)).collect::<Vec<_>>(),
                "step_ms": { "mean": cell.mean(|run| run.means.step_ms),
                    "p50": cell.step_ms(0.5), "p99": cell.step_ms(0.99) },
                "runs": cell.runs,
            })
        })
        .collect();
    serde_json::json!({
        "figure": "optinic-3", "sharded": arguments.sharded, "accuracy": arguments.accuracy / 100.0,
        "settings": settings, "path": path, "cells": cells,
    })
}
