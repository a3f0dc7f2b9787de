//! Data-parallel training by ranks that run at the same time, each with its own model, over a real network
//! (OptiNIC's figure 3).
//!
//! A step is the gradient of a rank's share of the batch, its average over all ranks, and the optimizer. Where
//! operations end with what is there, each rank applies what it has, and parameters are averaged exactly each
//! so many steps; that takes its part of the time, too.
//!
//! Time is that of the first rank's clock from a barrier on, over the whole run. Parameters are kept at some
//! steps and evaluated when the run is over.

use crate::network::{Ends, Network, on_all_ranks};
use crate::optimizer::{Optimizer, share_of_rate};
use crate::task::{Quality, Task};
use crate::trainer::{Batches, Replicas, Settings};
use std::time::{Duration, Instant};

/// A point on the way.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct TimedPoint {
    /// Steps that were taken.
    pub step: usize,
    /// Since the start.
    pub seconds: f64,
    /// On the test set, by the first rank's parameters.
    pub quality: Quality,
}

/// Where the time went and what was lost, as means over ranks and steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Means {
    /// Milliseconds of a step.
    pub step_ms: f64,
    /// Milliseconds of a step in which a rank waits for the network.
    pub network_ms: f64,
    /// Fraction of the bytes that did not come.
    pub lost: f64,
    /// Fraction of the bytes that were late: behind the last byte that came, when the deadline was.
    pub late: f64,
    /// Fraction of the contributions that a result lacks.
    pub missing: f64,
}

impl Means {
    /// The share of the time that goes to the network.
    #[must_use]
    pub fn network_share(&self) -> f64 {
        if self.step_ms > 0.0 { self.network_ms / self.step_ms } else { 0.0 }
    }
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Timed {
    /// In the order of steps; the last is the end.
    pub points: Vec<TimedPoint>,
    /// Where the time went.
    pub means: Means,
    /// Each step of the first rank.
    #[serde(skip)]
    pub steps: Vec<Step>,
}

/// A step of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Step {
    /// Milliseconds that it took.
    pub ms: f64,
    /// Bytes that were to come.
    pub bytes: u64,
    /// Those that did not.
    pub lost_bytes: u64,
    /// Those that were late.
    pub late_bytes: u64,
    /// Receives that ended by their deadline.
    pub cut_off: usize,
    /// Milliseconds that its operation had, if it was to end with what was there.
    pub budget_ms: Option<f64>,
}

impl Timed {
    /// When an accuracy was reached first, with straight lines between points; `None` if it was not.
    #[must_use]
    pub fn seconds_to(&self, accuracy: f64) -> Option<f64> {
        let mut before: Option<&TimedPoint> = None;
        for point in &self.points {
            if point.quality.accuracy >= accuracy {
                let Some(before) = before else { return Some(point.seconds) };
                let rise = point.quality.accuracy - before.quality.accuracy;
                let share = (accuracy - before.quality.accuracy) / rise;
                return Some(before.seconds + share * (point.seconds - before.seconds));
            }
            before = Some(point);
        }
        None
    }
}

/// What a rank has found.
pub(crate) struct OfRank {
    /// Of the first rank: steps, seconds and parameters.
    pub(crate) kept: Vec<(usize, f64, Vec<f32>)>,
    pub(crate) means: Means,
    pub(crate) steps: Vec<Step>,
}

/// Adds up what a rank does, step by step.
pub(crate) struct Clock {
    begin: Instant,
    network: Duration,
    missing: f64,
    steps: Vec<Step>,
    step: Step,
    step_begin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let begin = Instant::now();
        Self {
            begin,
            network: Duration::ZERO,
            missing: 0.0,
            steps: Vec::new(),
            step: Step::default(),
            step_begin: begin,
        }
    }

    /// Counts as time of the network.
    pub(crate) fn wait<R>(&mut self, run: impl FnOnce() -> R) -> R {
        let begin = Instant::now();
        let result = run();
        self.network += begin.elapsed();
        result
    }

    /// Counts what an operation lacked; `weight` is its part of all contributions of a step.
    pub(crate) fn count(&mut self, received: &crate::network::Received, weight: f64) {
        let step = &mut self.step;
        step.bytes += received.bytes;
        step.lost_bytes += received.lost_bytes;
        step.late_bytes += received.late_bytes;
        step.cut_off += received.cut_off;
        step.budget_ms = received.budget.map(|budget| budget.as_secs_f64() * 1e3);
        self.missing += weight * received.missing;
    }

    pub(crate) fn on_step(&mut self) {
        let now = Instant::now();
        let ms = (now - self.step_begin).as_secs_f64() * 1e3;
        self.steps.push(Step { ms, ..std::mem::take(&mut self.step) });
        self.step_begin = now;
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    pub(crate) fn finish(self, kept: Vec<(usize, f64, Vec<f32>)>) -> OfRank {
        let steps = self.steps.len().max(1) as f64;
        let sum = |of: &dyn Fn(&Step) -> f64| self.steps.iter().map(of).sum::<f64>();
        let means = Means {
            step_ms: sum(&|step| step.ms) / steps,
            network_ms: self.network.as_secs_f64() * 1e3 / steps,
            lost: sum(&|step| step.lost_bytes as f64) / sum(&|step| step.bytes as f64).max(1.0),
            late: sum(&|step| step.late_bytes as f64) / sum(&|step| step.bytes as f64).max(1.0),
            missing: self.missing / steps,
        };
        OfRank { kept, means, steps: self.steps }
    }
}

/// Evaluates what the first rank kept, and averages over ranks.
pub(crate) fn evaluate(task: &Task, ranks: Vec<OfRank>) -> anyhow::Result<Timed> {
    let count = ranks.len() as f64;
    let mut means = Means::default();
    for of in ranks.iter().map(|rank| rank.means) {
        means.step_ms += of.step_ms / count;
        means.network_ms += of.network_ms / count;
        means.lost += of.lost / count;
        means.late += of.late / count;
        means.missing += of.missing / count;
    }
    let first = ranks.into_iter().next();
    let (kept, steps) = first.map(|rank| (rank.kept, rank.steps)).unwrap_or_default();
    let mut points = Vec::with_capacity(kept.len());
    for (step, seconds, parameters) in kept {
        task.set_parameters(&parameters)?;
        points.push(TimedPoint { step, seconds, quality: task.evaluate()? });
    }
    Ok(Timed { points, means, steps })
}

/// Trains the task's model from the start that `settings.seed` says.
///
/// # Errors
/// When a tensor cannot be computed or the network fails.
///
/// # Panics
/// If the batch cannot be shared equally, or settings and network have different numbers of ranks.
pub fn train(task: &Task, network: &Network, settings: &Settings) -> anyhow::Result<Timed> {
    assert_eq!(settings.ranks, network.ranks, "ranks of the settings and of the network");
    assert!(settings.batch.is_multiple_of(settings.ranks), "equal shares of the batch");
    evaluate(task, on_all_ranks(network, |ends| of_rank(task, &ends, settings))?)
}

fn of_rank(task: &Task, ends: &Ends, settings: &Settings) -> anyhow::Result<OfRank> {
    let Settings { ranks, batch, steps, seed, .. } = *settings;
    let (rank, task) = (ends.rank(), task.with_model(seed)?);
    let mut parameters = task.initial().to_vec();
    let mut optimizer = Optimizer::new(settings.rule, parameters.len());
    let tensors = task.tensors();
    let resync_every = match settings.replicas {
        Replicas::Own { resync_every } if ends.data.delivery().is_bounded() => resync_every,
        _ => 0,
    };
    let mut batches = Batches::new(task.examples(), seed);
    let mut kept = Vec::new();
    ends.exact.barrier()?;
    let mut clock = Clock::start();
    for step in 0..steps {
        let examples = batches.take(batch);
        task.set_parameters(&parameters)?;
        let mut gradient = vec![0.0; parameters.len()];
        task.gradient(&examples[rank * batch / ranks..(rank + 1) * batch / ranks], &mut gradient)?;
        let received = clock.wait(|| ends.data.average(gradient, &tensors))?;
        clock.count(&received, 1.0);
        optimizer.step(
            &mut parameters,
            &received.values,
            settings.rate * share_of_rate(step, steps),
        );
        let done = step + 1;
        if resync_every > 0 && done % resync_every == 0 {
            let own = std::mem::take(&mut parameters);
            parameters = clock.wait(|| ends.exact.average(own, &[]))?.values;
        }
        clock.on_step();
        let is_due = settings.evaluate_every > 0 && done % settings.evaluate_every == 0;
        if rank == 0 && (is_due || done == steps) {
            kept.push((done, clock.seconds(), parameters.clone()));
        }
    }
    ends.exact.barrier()?;
    Ok(clock.finish(kept))
}
