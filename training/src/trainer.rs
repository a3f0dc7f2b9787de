//! Data-parallel training: each rank has the gradient of its share of a batch, an exchange averages them.
//!
//! The ranks are in one process and take turns. Either all of them apply the same average (one replica), or
//! each applies what came to it: then replicas drift apart wherever a piece came to some ranks and not to
//! others, until their parameters are averaged exactly every so many steps.

use crate::exchange::{Exchange, Missing};
use crate::optimizer::{Optimizer, Rule, share_of_rate};
use crate::random::{Random, Stream};
use crate::task::{Quality, Task};

/// How a model is trained.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Settings {
    /// Ranks, each with an equal share of the batch.
    pub ranks: usize,
    /// Examples of a step, over all ranks.
    pub batch: usize,
    /// Steps.
    pub steps: usize,
    /// The rule that parameters follow.
    pub rule: Rule,
    /// The highest rate of learning.
    pub rate: f32,
    /// Whether each rank applies what came to it, or all the same.
    pub replicas: Replicas,
    /// Evaluates each so many steps, beside the end; 0 is never.
    pub evaluate_every: usize,
    /// Decides which examples are in which batch.
    pub seed: u64,
}

/// What ranks apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Replicas {
    /// The same average on every rank: reduced pieces are sent reliably.
    Same,
    /// Each rank what came to it.
    Own {
        /// Parameters are averaged exactly each so many steps; 0 is never.
        resync_every: usize,
    },
}

/// A point on the way.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Point {
    /// Steps that were taken.
    pub step: usize,
    /// Mean loss of the batches since the last point.
    pub training_loss: f64,
    /// On the test set, by the first rank's parameters.
    pub quality: Quality,
    /// How far apart replicas are: the root of the mean square distance from their mean, over the root of
    /// the mean square of the parameters.
    pub drift: f64,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Trained {
    /// What was evaluated on the way; the last point is the end.
    pub points: Vec<Point>,
    /// What the exchanges lacked; fractions are means over steps.
    pub missing: Missing,
}

impl Trained {
    /// How good the model was in the end.
    ///
    /// # Panics
    /// Never: there is a point at the end of each run.
    #[must_use]
    pub fn quality(&self) -> Quality {
        self.points.last().expect("a point at the end").quality
    }
}

/// The examples of each step: every example once, in random order, then again in another.
#[derive(Debug)]
pub struct Batches {
    order: Vec<u32>,
    next: usize,
    random: Random,
}

impl Batches {
    /// Of so many examples, by a seed.
    #[must_use]
    pub fn new(examples: usize, seed: u64) -> Self {
        let random = Random::new(seed, Stream::Batches);
        Self { order: (0..examples as u32).collect(), next: examples, random }
    }

    /// The next `count` examples.
    pub fn take(&mut self, count: usize) -> Vec<u32> {
        let mut batch = Vec::with_capacity(count);
        while batch.len() < count && !self.order.is_empty() {
            if self.next == self.order.len() {
                self.random.shuffle(&mut self.order);
                self.next = 0;
            }
            let end = self.order.len().min(self.next + count - batch.len());
            batch.extend_from_slice(&self.order[self.next..end]);
            self.next = end;
        }
        batch
    }
}

/// One rank's model.
struct Replica {
    parameters: Vec<f32>,
    optimizer: Optimizer,
}

/// Trains the task's model from its start.
///
/// # Errors
/// When a tensor cannot be computed or the exchange fails.
///
/// # Panics
/// If there are no ranks, or the batch cannot be shared equally.
pub fn train(
    task: &Task,
    exchange: &mut dyn Exchange,
    settings: &Settings,
    mut on_point: impl FnMut(&Point),
) -> anyhow::Result<Trained> {
    let Settings { ranks, batch, steps, .. } = *settings;
    assert!(ranks > 0 && batch.is_multiple_of(ranks), "{batch} examples for {ranks} ranks");
    let count = task.initial().len();
    let (is_own, resync_every) = match settings.replicas {
        Replicas::Same => (false, 0),
        Replicas::Own { resync_every } => (true, resync_every),
    };
    let replica = || Replica {
        parameters: task.initial().to_vec(),
        optimizer: Optimizer::new(settings.rule, count),
    };
    let mut replicas: Vec<Replica> =
        (0..if is_own { ranks } else { 1 }).map(|_| replica()).collect();
    let mut gradients = vec![vec![0.0; count]; ranks];
    let mut averages = vec![vec![0.0; count]; replicas.len()];
    let mut batches = Batches::new(task.examples(), settings.seed);
    let mut trained = Trained { points: Vec::new(), missing: Missing::default() };
    let (mut losses, mut loss_count) = (0.0, 0);

    for step in 0..steps {
        let examples = batches.take(batch);
        for (rank, gradient) in gradients.iter_mut().enumerate() {
            if rank == 0 || is_own {
                task.set_parameters(&replicas[rank].parameters)?;
            }
            let share = &examples[rank * batch / ranks..(rank + 1) * batch / ranks];
            losses += task.gradient(share, gradient)?;
            loss_count += 1;
        }
        let missing = exchange.average(&gradients, &mut averages)?;
        trained.missing.add(&missing, 1.0 / steps as f64);
        let rate = settings.rate * share_of_rate(step, steps);
        for (replica, average) in replicas.iter_mut().zip(&averages) {
            replica.optimizer.step(&mut replica.parameters, average, rate);
        }
        let done = step + 1;
        // Before parameters are averaged, or there would never be any drift.
        let drift_here = || drift(&replicas);
        let is_due = settings.evaluate_every > 0 && done % settings.evaluate_every == 0;
        let drift_now = if is_due || done == steps { drift_here() } else { 0.0 };
        if resync_every > 0 && done % resync_every == 0 {
            resync(&mut replicas);
        }
        if is_due || done == steps {
            task.set_parameters(&replicas[0].parameters)?;
            let quality = task.evaluate()?;
            let training_loss = losses / f64::from(loss_count);
            let point = Point { step: done, training_loss, quality, drift: drift_now };
            on_point(&point);
            trained.points.push(point);
            (losses, loss_count) = (0.0, 0);
        }
    }
    Ok(trained)
}

fn mean(replicas: &[Replica], index: usize) -> f32 {
    replicas.iter().map(|replica| replica.parameters[index]).sum::<f32>() / replicas.len() as f32
}

/// Averages the parameters exactly. Momenta stay as they are.
fn resync(replicas: &mut [Replica]) {
    let count = replicas[0].parameters.len();
    for index in 0..count {
        let mean = mean(replicas, index);
        for replica in &mut *replicas {
            replica.parameters[index] = mean;
        }
    }
}

fn drift(replicas: &[Replica]) -> f64 {
    if replicas.len() == 1 {
        return 0.0;
    }
    let (mut apart, mut all) = (0.0, 0.0);
    for index in 0..replicas[0].parameters.len() {
        let mean = mean(replicas, index);
        for replica in replicas {
            apart += f64::from(replica.parameters[index] - mean).powi(2);
            all += f64::from(replica.parameters[index]).powi(2);
        }
    }
    if all > 0.0 { (apart / all).sqrt() } else { 0.0 }
}
