//! `lacuna-train figure2`: accuracy against loss, OptiNIC's figure 2 and Celeris' figure 1.
//!
//! Every cell is run with the same seeds: the same start and the same batches as the lossless run that it is
//! compared with, and the same packets lost with the transform as without. Seeds are the outer loop, so a run
//! that is stopped has whole seeds. If nothing else is said each rank applies what came to it, and parameters are
//! averaged every 50 steps.

use crate::train::{Model, Network, OF_FIGURES};
use lacuna_training::statistics::Interval;
use lacuna_training::task::TaskKind;
use lacuna_training::trainer::Trained;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// Percent of the packets that are lost per hop.
const LOSSES: [f64; 7] = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0];
const LOSSES_QUICK: [f64; 3] = [1.0, 5.0, 20.0];
/// The difference in accuracy, in points, that still counts as none.
const TOLERATED_POINTS: f64 = 0.5;
/// The difference in loss, relative, that still counts as none.
const TOLERATED_LOSS_PERCENT: f64 = 1.0;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: Model,
    /// Ten seeds and all losses, instead of three seeds and three losses.
    #[arg(long)]
    full: bool,
    /// How many seeds.
    #[arg(long)]
    seeds: Option<u64>,
    /// Which losses, in percent.
    #[arg(long, value_delimiter = ',')]
    losses: Option<Vec<f64>>,
    /// Writes a line per run.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Prints a line of JSON per run instead of the table.
    #[arg(long)]
    json: bool,
}

/// The runs of a loss, with the transform or without.
struct Cell {
    network: Network,
    runs: Vec<Trained>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let seeds = arguments.seeds.unwrap_or(if arguments.full { 10 } else { 3 });
    let usual = if arguments.full { &LOSSES[..] } else { &LOSSES_QUICK[..] };
    let losses = arguments.losses.clone().unwrap_or_else(|| usual.to_vec());
    let mut cells = vec![Network { loss_percent: 0.0, transform: false }];
    for transform in [false, true] {
        cells.extend(losses.iter().map(|loss| Network { loss_percent: *loss, transform }));
    }
    let mut cells: Vec<Cell> =
        cells.into_iter().map(|network| Cell { network, runs: Vec::new() }).collect();
    let mut csv = arguments.csv.as_ref().map(File::create).transpose()?;
    if let Some(csv) = &mut csv {
        writeln!(
            csv,
            "seed,loss_percent,transform,accuracy,test_loss,drift,missing_contributions,missing_results"
        )?;
    }
    for seed in 1..=seeds {
        let task = arguments.model.task(seed)?;
        for cell in &mut cells {
            let settings = arguments.model.settings(seed, 0, OF_FIGURES);
            let trained = arguments.model.train(&task, cell.network, &settings, |_| {})?;
            report(arguments, &mut csv, seed, cell.network, &trained)?;
            cell.runs.push(trained);
        }
    }
    if !arguments.json {
        print!("{}", table(arguments.model.task, &cells));
    }
    Ok(())
}

fn report(
    arguments: &Arguments,
    csv: &mut Option<File>,
    seed: u64,
    network: Network,
    trained: &Trained,
) -> anyhow::Result<()> {
    let (quality, missing) = (trained.quality(), trained.missing);
    let drift = trained.points.last().map_or(0.0, |point| point.drift);
    let Network { loss_percent, transform } = network;
    if let Some(csv) = csv {
        writeln!(
            csv,
            "{seed},{loss_percent},{transform},{:.4},{:.5},{drift:.5},{:.5},{:.5}",
            quality.accuracy, quality.loss, missing.contributions, missing.results
        )?;
    }
    if arguments.json {
        let line = serde_json::json!({
            "figure": "optinic-2", "seed": seed, "network": network, "quality": quality, "drift": drift,
            "missing": missing,
        });
        println!("{line}");
    }
    let form = if transform { "transform" } else { "raw" };
    eprintln!(
        "seed {seed}, {loss_percent:4} % {form:9}: {:.2} % right, loss {:.4}, drift {drift:.4}",
        100.0 * quality.accuracy,
        quality.loss
    );
    Ok(())
}

/// The table, with a verdict on each cell: against the lossless one, by what the task is judged by.
fn table(task: TaskKind, cells: &[Cell]) -> String {
    let is_text = task == TaskKind::Text;
    let (unit, tolerated) =
        if is_text { ("%", TOLERATED_LOSS_PERCENT) } else { ("points", TOLERATED_POINTS) };
    let (lossless, others) = cells.split_first().expect("a lossless cell");
    let mut text = format!(
        "| loss per hop | transform | {} | difference, {unit} (90 %) | drift | verdict |\n|---|---|---|---|---|---|\n",
        if is_text { "test loss" } else { "accuracy, %" }
    );
    let value = |run: &Trained| {
        if is_text { run.quality().loss } else { 100.0 * run.quality().accuracy }
    };
    let mean = |cell: &Cell, of: &dyn Fn(&Trained) -> f64| {
        cell.runs.iter().map(of).sum::<f64>() / cell.runs.len() as f64
    };
    let digits = if is_text { 4 } else { 2 };
    text += &format!("| 0 % | | {:.digits$} | | 0 | |\n", mean(lossless, &value));
    for cell in others {
        let pairs = cell.runs.iter().zip(&lossless.runs);
        // Below 0 is worse.
        let differences: Vec<f64> = pairs
            .map(|(run, base)| match is_text {
                true => 100.0 * (1.0 - value(run) / value(base)),
                false => value(run) - value(base),
            })
            .collect();
        let interval = Interval::of(&differences);
        let verdict = if interval.is_within(tolerated) {
            format!("within {tolerated}")
        } else if interval.is_below(tolerated) {
            format!("worse by more than {tolerated}")
        } else if interval.is_below(0.0) {
            "worse".to_owned()
        } else {
            "not decided".to_owned()
        };
        text += &format!(
            "| {} % | {} | {:.digits$} | {:+.2} ± {:.2} | {:.3} | {verdict} |\n",
            cell.network.loss_percent,
            if cell.network.transform { "yes" } else { "no" },
            mean(cell, &value),
            interval.mean,
            interval.half,
            mean(cell, &|run| run.points.last().map_or(0.0, |point| point.drift)),
        );
    }
    text
}
