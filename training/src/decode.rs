//! `lacuna-train decode`: a transformer that is split over ranks continues texts, OptiNIC's figure 4: characters per
//! second and the time to the first one, by what is done about lost packets.
//!
//! The model is trained by one process first, without losses, and decodes the same texts alone: what ranks choose over
//! the network is compared with that. Rounds are the outer loop, so that a disturbance of the machine meets
//! all deliveries alike.

use crate::path::{PathArguments, write_record};
use lacuna_training::exchange::Exact;
use lacuna_training::inference::{Agreement, Decoded, Settings, Weights, alone, over};
use lacuna_training::model::Shape;
use lacuna_training::network::{Delivery, Path};
use lacuna_training::optimizer::Rule;
use lacuna_training::statistics::{mean, quantile};
use lacuna_training::task::{Task, TaskKind, Text};
use lacuna_training::trainer::{self, Replicas};
use std::path::PathBuf;

/// OptiNIC 5.2.2: the least of what more characters per second are gained.
const MORE: f64 = 1.28;
/// OptiNIC 5.2.2: the least by which the 99th percentile of the time to the first one shrinks.
const SHORTER: f64 = 2.0;
/// How much the validation loss may rise.
const LOSS_RISE_PERCENT: f64 = 1.0;
/// A fixed budget, if nothing else is said: so many times what an all-reduce takes.
const BUDGET: f64 = 2.0;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    /// Ranks, which share heads and hidden units: 2, 4, or both.
    #[arg(long, value_delimiter = ',', default_value = "4")]
    ranks: Vec<usize>,
    #[command(flatten)]
    path: PathArguments,
    /// Packets are lost in bursts of so many on average, instead of independently.
    #[arg(long)]
    burst: Option<f64>,
    /// What is done about losses: gbn (go-back-N over reliable connections), sr, auto, ec:CODE, bounded with a learned
    /// budget, bounded@MS with one of so many milliseconds for the all-reduce of one character, longer ones
    /// have more in proportion [default: gbn, sr, auto, bounded, and bounded with twice the time of an all-reduce].
    #[arg(long, value_delimiter = ',')]
    deliveries: Vec<Delivery>,
    /// Texts of a batch.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Characters of each text that are known.
    #[arg(long, default_value_t = 32)]
    prompt: usize,
    /// Characters that are added to each.
    #[arg(long, default_value_t = 16)]
    more: usize,
    /// Batches that are timed, in each round.
    #[arg(long, default_value_t = 30)]
    batches: usize,
    /// Batches before them, in which connections and budgets learn.
    #[arg(long, default_value_t = 2)]
    warm_up: usize,
    /// Batches that go on as they were written, for loss and agreement.
    #[arg(long, default_value_t = 10)]
    readings: usize,
    /// How many rounds.
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Steps of the training before; 0 decodes with random parameters.
    #[arg(long, default_value_t = 300)]
    training_steps: usize,
    /// The seed that the model starts from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The seed that texts are made from.
    #[arg(long, default_value_t = 1)]
    data_seed: u64,
    /// Writes what was run and found as JSON.
    #[arg(long)]
    record: Option<PathBuf>,
    /// Prints a line of JSON per run instead of the table.
    #[arg(long)]
    json: bool,
}

/// The runs of a delivery, with a number of ranks.
struct Cell {
    ranks: usize,
    path: Path,
    delivery: Delivery,
    runs: Vec<Decoded>,
}

/// What a cell comes to.
#[derive(Debug, Clone, Copy, serde::Serialize)]
struct Summary {
    characters_per_s: f64,
    first_ms_p50: f64,
    first_ms_p99: f64,
    next_ms_p50: f64,
    next_ms_p99: f64,
    lost: f64,
    late: f64,
    missing: f64,
    validation_loss: f64,
    agreement: Agreement,
}

impl Cell {
    fn name(&self) -> String {
        match self.path.loss {
            0.0 => format!("{} without losses", self.delivery),
            _ => self.delivery.to_string(),
        }
    }

    fn mean(&self, of: impl Fn(&Decoded) -> f64) -> f64 {
        mean(&self.runs.iter().map(of).collect::<Vec<_>>())
    }

    fn quantile(&self, of: impl Fn(&Decoded) -> &[f64], share: f64) -> f64 {
        let mut all: Vec<f64> = self.runs.iter().flat_map(|run| of(run).to_vec()).collect();
        if all.is_empty() { 0.0 } else { quantile(&mut all, share) }
    }

    fn summary(&self, expected: &Decoded) -> Summary {
        let agreement = |of: fn(Agreement) -> f64| self.mean(|run| of(run.agreement(expected)));
        Summary {
            characters_per_s: self.mean(|run| run.per_s),
            first_ms_p50: self.quantile(|run| &run.first_ms, 0.5),
            first_ms_p99: self.quantile(|run| &run.first_ms, 0.99),
            next_ms_p50: self.quantile(|run| &run.next_ms, 0.5),
            next_ms_p99: self.quantile(|run| &run.next_ms, 0.99),
            lost: self.mean(|run| run.lost),
            late: self.mean(|run| run.late),
            missing: self.mean(|run| run.missing),
            validation_loss: self.mean(|run| run.reading.loss),
            agreement: Agreement {
                chosen: agreement(|agreement| agreement.chosen),
                read: agreement(|agreement| agreement.read),
                scores: agreement(|agreement| agreement.scores),
            },
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = arguments.settings();
    let text = Text::new(arguments.data_seed);
    let shape = Shape::wide(text.alphabet());
    arguments.check(shape)?;
    let path = arguments.path.path(arguments.burst)?;
    let weights = arguments.weights(&text, shape)?;
    let expected = alone(&weights, &settings)?;
    eprintln!(
        "{} parameters; one process: {:.0} characters/s, validation loss {:.4}",
        weights.parameters.len(),
        expected.per_s,
        expected.reading.loss
    );
    let mut cells = Vec::new();
    for ranks in &arguments.ranks {
        let cell = |path, delivery| Cell { ranks: *ranks, path, delivery, runs: Vec::new() };
        cells.push(cell(path.lossless(), Delivery::default()));
        if path.loss > 0.0 {
            let deliveries = arguments.deliveries(path, *ranks, shape)?;
            cells.extend(deliveries.into_iter().map(|delivery| cell(path, delivery)));
        }
    }
    for round in 1..=arguments.rounds {
        for cell in &mut cells {
            let network = arguments.path.network(cell.ranks, cell.path, &cell.delivery, round)?;
            cell.runs.push(over(&weights, &network, &settings)?);
            report(arguments, cell, round, &expected);
        }
    }
    let record = record(arguments, path, &cells, &expected);
    write_record(arguments.record.as_deref(), &record)?;
    if !arguments.json {
        for cells in cells.chunk_by(|one, other| one.ranks == other.ranks) {
            print!("{}{}", table(cells, &expected), verdicts(cells, &expected));
        }
    }
    Ok(())
}

impl Arguments {
    fn settings(&self) -> Settings {
        Settings {
            texts: self.batch,
            prompt: self.prompt,
            more: self.more,
            warm_up: self.warm_up,
            batches: self.batches,
            readings: self.readings,
            data_seed: self.data_seed,
        }
    }

    fn check(&self, shape: Shape) -> anyhow::Result<()> {
        let Shape { heads, context, .. } = shape;
        for ranks in &self.ranks {
            anyhow::ensure!(
                *ranks > 1 && heads.is_multiple_of(*ranks),
                "{heads} heads cannot be shared equally by {ranks} ranks: give --ranks 2 or 4"
            );
        }
        let is_some = self.batch > 0 && self.prompt > 0 && self.more > 0 && self.batches > 0;
        anyhow::ensure!(
            is_some && self.rounds > 0,
            "nothing to decode: --batch, --prompt, --more, --batches and --rounds are at least 1"
        );
        anyhow::ensure!(
            self.prompt + self.more <= context,
            "{} characters are known and {} are added, and the model sees {context}: give a smaller --prompt or --more",
            self.prompt,
            self.more
        );
        Ok(())
    }

    fn deliveries(&self, path: Path, ranks: usize, shape: Shape) -> anyhow::Result<Vec<Delivery>> {
        if !self.deliveries.is_empty() {
            return Ok(self.deliveries.clone());
        }
        let ms = (BUDGET * path.all_reduce_ms(ranks, 4 * self.batch * shape.width)).ceil().max(1.0);
        let names = ["gbn", "sr", "auto", "bounded"].map(str::to_owned);
        let names = names.into_iter().chain([format!("bounded@{ms}")]);
        Ok(names.map(|name| name.parse()).collect::<Result<_, _>>()?)
    }

    /// Trains the model.
    fn weights(&self, text: &Text, shape: Shape) -> anyhow::Result<Weights> {
        let seeds = (self.data_seed, self.seed);
        let task = Task::of_text(text, shape, TaskKind::Text.usual_size(), seeds)?;
        if self.training_steps > 0 {
            let settings = trainer::Settings {
                ranks: 1,
                batch: 16,
                steps: self.training_steps,
                rule: Rule::Adam,
                rate: 0.002,
                replicas: Replicas::Same,
                evaluate_every: 0,
                seed: self.seed,
            };
            eprintln!("training for {} steps", self.training_steps);
            trainer::train(&task, &mut Exact, &settings, |_| {})?;
        }
        Ok(Weights { shape, parameters: task.parameters()? })
    }
}

fn report(arguments: &Arguments, cell: &Cell, round: u64, expected: &Decoded) {
    let Some(run) = cell.runs.last() else { return };
    let agreement = run.agreement(expected);
    if arguments.json {
        let line = serde_json::json!({
            "figure": "optinic-4", "round": round, "ranks": cell.ranks, "delivery": cell.delivery,
            "path": cell.path, "characters_per_s": run.per_s, "first_ms": run.first_ms,
            "next_ms": run.next_ms, "lost": run.lost, "late": run.late, "missing": run.missing,
            "validation_loss": run.reading.loss, "validation_loss_alone": expected.reading.loss,
            "agreement": agreement,
        });
        println!("{line}");
    }
    eprintln!(
        "round {round}, {} ranks, {}: {:.0} characters/s, {:.1} ms to the first (p50), validation loss {:.4}, {:.2} % alike",
        cell.ranks,
        cell.name(),
        run.per_s,
        quantile(&mut run.first_ms.clone(), 0.5),
        run.reading.loss,
        100.0 * agreement.read
    );
}

/// The cell that others are compared with.
fn baseline(cells: &[Cell]) -> Option<&Cell> {
    let lossy = cells.get(1..).unwrap_or_default();
    let named = |name: &str| lossy.iter().find(|cell| cell.delivery.to_string() == name);
    named("sr").or_else(|| named("gbn")).or(lossy.first())
}

fn table(cells: &[Cell], expected: &Decoded) -> String {
    let base = baseline(cells).map(|cell| cell.summary(expected));
    let mut text = format!(
        "{} ranks; alone: validation loss {:.4}\n\
         | delivery | characters/s | beside sr | ms to first: p50 | p99 | p99 beside sr | ms to next: p50 | p99 | lost | late | missing | validation loss | read alike | chosen alike | scores apart |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        cells.first().map_or(0, |cell| cell.ranks),
        expected.reading.loss
    );
    for cell in cells {
        let of = cell.summary(expected);
        let beside = |ratio: fn(&Summary, &Summary) -> f64| {
            let ratio =
                base.as_ref().map(|base| ratio(&of, base)).filter(|ratio| ratio.is_finite());
            ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        text += &format!(
            "| {} | {:.0} | {} | {:.1} | {:.1} | {} | {:.1} | {:.1} | {:.3} % | {:.3} % | {:.3} % | {:.4} | {:.2} % | {:.2} % | {:.2} % |\n",
            cell.name(),
            of.characters_per_s,
            beside(|of, base| of.characters_per_s / base.characters_per_s),
            of.first_ms_p50,
            of.first_ms_p99,
            beside(|of, base| base.first_ms_p99 / of.first_ms_p99),
            of.next_ms_p50,
            of.next_ms_p99,
            100.0 * of.lost,
            100.0 * of.late,
            100.0 * of.missing,
            of.validation_loss,
            100.0 * of.agreement.read,
            100.0 * of.agreement.chosen,
            100.0 * of.agreement.scores,
        );
    }
    text
}

/// What the figure is to show, and whether it does.
fn verdicts(cells: &[Cell], expected: &Decoded) -> String {
    let mut text = String::new();
    let Some(base) = baseline(cells) else { return text };
    let (name, base) = (base.name(), base.summary(expected));
    let holds = |is_so: bool| if is_so { "holds" } else { "does not hold" };
    for cell in cells.iter().filter(|cell| cell.delivery.is_bounded()) {
        let of = cell.summary(expected);
        let more = of.characters_per_s / base.characters_per_s;
        let shorter = base.first_ms_p99 / of.first_ms_p99;
        let rise = 100.0 * (of.validation_loss / expected.reading.loss - 1.0);
        let cell = cell.name();
        text += &format!(
            "{cell}: characters/s at least {MORE} times those of {name}: {more:.2}, {}\n",
            holds(more >= MORE)
        );
        text += &format!(
            "{cell}: p99 of the first at least {SHORTER} times below that of {name}: {shorter:.2}, {}\n",
            holds(shorter >= SHORTER)
        );
        if expected.reading.loss > 0.0 {
            text += &format!(
                "{cell}: validation loss at most {LOSS_RISE_PERCENT} % higher: {rise:+.2} %, {}\n",
                holds(rise <= LOSS_RISE_PERCENT)
            );
        }
    }
    text
}

fn record(
    arguments: &Arguments,
    path: Path,
    cells: &[Cell],
    expected: &Decoded,
) -> serde_json::Value {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| {
            serde_json::json!({
                "ranks": cell.ranks, "delivery": cell.delivery, "path": cell.path,
                "summary": cell.summary(expected),
            })
        })
        .collect();
    serde_json::json!({
        "figure": "optinic-4", "settings": arguments.settings(), "rounds": arguments.rounds,
        "training_steps": arguments.training_steps, "path": path,
        "validation_loss": expected.reading.loss, "cells": cells,
    })
}
