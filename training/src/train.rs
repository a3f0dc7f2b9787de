//! `lacuna-train train`, and the arguments that it shares with the figures.

use lacuna_link::{Fraction, Loss};
use lacuna_training::exchange::{Divisor, Encoded, Exact, Exchange, Lossy};
use lacuna_training::optimizer::Rule;
use lacuna_training::task::{Task, TaskKind};
use lacuna_training::trainer::{Point, Replicas, Settings, Trained, train};

/// What is trained, and how.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Model {
    /// Data and model.
    #[arg(long, value_enum, default_value = "glyphs")]
    pub(crate) task: TaskKind,
    /// Ranks, which share a batch.
    #[arg(long, default_value_t = 4)]
    pub(crate) ranks: usize,
    /// Examples of a step, over all ranks [default: 64 glyphs, 16 texts].
    #[arg(long)]
    pub(crate) batch: Option<usize>,
    /// Steps [default: 300 for glyphs, 600 for text].
    #[arg(long)]
    pub(crate) steps: Option<usize>,
    /// The rule that parameters follow [default: momentum for glyphs, adam for text].
    #[arg(long, value_enum)]
    pub(crate) optimizer: Option<Rule>,
    /// The highest rate of learning [default: 0.05 with momentum, 0.002 with adam].
    #[arg(long)]
    pub(crate) rate: Option<f32>,
    /// Each rank applies what came to it [default of the figures].
    #[arg(long, conflicts_with = "same")]
    pub(crate) own: bool,
    /// All ranks apply the same, as when reduced pieces are sent reliably [default of train].
    #[arg(long)]
    pub(crate) same: bool,
    /// With --own: parameters are averaged exactly each so many steps; 0 is never [default: 50 with the figures, 0 with
    /// train].
    #[arg(long, conflicts_with = "same")]
    pub(crate) resync: Option<usize>,
    /// What sums that lack contributions are divided by.
    #[arg(long, value_enum, default_value = "contributors")]
    pub(crate) divisor: Divisor,
    /// Packets are lost in bursts of so many on average, instead of independently.
    #[arg(long)]
    pub(crate) burst: Option<f64>,
    /// The seed that data are made from.
    #[arg(long, default_value_t = 1)]
    pub(crate) data_seed: u64,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: Model,
    /// Fraction of the packets that is lost on each hop, in percent.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Averages the gradients' Hadamard transforms.
    #[arg(long)]
    transform: bool,
    /// Runs with so many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Evaluates each so many steps.
    #[arg(long, default_value_t = 100)]
    every: usize,
    /// Prints a line of JSON per point.
    #[arg(long)]
    json: bool,
}

/// What a gradient's packets meet.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(crate) struct Network {
    pub(crate) loss_percent: f64,
    pub(crate) transform: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let network = Network { loss_percent: arguments.loss, transform: arguments.transform };
    for seed in arguments.seed..arguments.seed + arguments.seeds {
        let task = arguments.model.task(seed)?;
        eprintln!("seed {seed}: {} parameters", task.initial().len());
        let settings = arguments.model.settings(seed, arguments.every, Replicas::Same);
        let trained = arguments.model.train(&task, network, &settings, |point| {
            if arguments.json {
                println!("{}", serde_json::json!({ "seed": seed, "network": network, "point": point }));
            }
            let Point { step, training_loss, quality, drift } = point;
            eprintln!(
                "seed {seed}, step {step:5}: training {training_loss:.4}, test {:.4}, {:.2} % right, drift {drift:.4}",
                quality.loss,
                100.0 * quality.accuracy,
            );
        })?;
        let missing = trained.missing;
        eprintln!(
            "seed {seed}: {} of {} packets lost; missing {:.2} % of the contributions, {:.2} % of the results",
            missing.lost_packets,
            missing.packets,
            100.0 * missing.contributions,
            100.0 * missing.results,
        );
    }
    Ok(())
}

/// Replicas of the figures, if nothing else is said: each rank applies what came to it, and parameters are averaged
/// every 50 steps, as with groups that end operations in time.
pub(crate) const OF_FIGURES: Replicas = Replicas::Own { resync_every: 50 };

/// Whether the batch can be shared.
pub(crate) fn check(settings: &Settings) -> anyhow::Result<()> {
    let Settings { ranks, batch, steps, .. } = *settings;
    anyhow::ensure!(steps > 0, "nothing to train: --steps is at least 1");
    anyhow::ensure!(
        ranks > 0 && batch > 0 && batch.is_multiple_of(ranks),
        "a batch of {batch} cannot be shared equally by {ranks} ranks: choose a multiple for --batch",
    );
    Ok(())
}

impl Model {
    /// The data, and a model that starts as the seed says.
    pub(crate) fn task(&self, seed: u64) -> anyhow::Result<Task> {
        Ok(Task::new(self.task, self.task.usual_size(), self.data_seed, seed)?)
    }

    /// Trains it.
    pub(crate) fn train(
        &self,
        task: &Task,
        network: Network,
        settings: &Settings,
        on_point: impl FnMut(&Point),
    ) -> anyhow::Result<Trained> {
        check(settings)?;
        let mut exchange = self.exchange(task, network, settings.seed)?;
        train(task, &mut *exchange, settings, on_point)
    }

    /// What ranks apply, where `usual` is meant if nothing is said.
    fn replicas(&self, usual: Replicas) -> Replicas {
        let resync_every = self.resync.unwrap_or(match usual {
            Replicas::Own { resync_every } => resync_every,
            Replicas::Same => 0,
        });
        match usual {
            _ if self.same => Replicas::Same,
            Replicas::Same if !self.own && self.resync.is_none() => Replicas::Same,
            _ => Replicas::Own { resync_every },
        }
    }

    /// How it is trained; `usual` are the replicas that are meant if nothing is said.
    pub(crate) fn settings(&self, seed: u64, evaluate_every: usize, usual: Replicas) -> Settings {
        let is_text = self.task == TaskKind::Text;
        let rule = self.optimizer.unwrap_or(if is_text { Rule::Adam } else { Rule::Momentum });
        let rate = if rule == Rule::Adam { 0.002 } else { 0.05 };
        Settings {
            ranks: self.ranks,
            batch: self.batch.unwrap_or(if is_text { 16 } else { 64 }),
            steps: self.steps.unwrap_or(if is_text { 600 } else { 300 }),
            rule,
            rate: self.rate.unwrap_or(rate),
            replicas: self.replicas(usual),
            evaluate_every,
            seed,
        }
    }

    fn exchange(
        &self,
        task: &Task,
        network: Network,
        seed: u64,
    ) -> anyhow::Result<Box<dyn Exchange>> {
        let probability = network.loss_percent / 100.0;
        anyhow::ensure!((0.0..1.0).contains(&probability), "{} % loss", network.loss_percent);
        let loss = match self.burst {
            _ if probability == 0.0 => Loss::None,
            Some(packets) => Loss::bursts(probability, packets)?,
            None => Loss::Independent(Fraction::from_f64(probability)),
        };
        let lossy = Lossy::new(self.ranks, &loss, self.divisor, seed);
        Ok(match (loss.is_none(), network.transform) {
            (true, false) => Box::new(Exact),
            (_, false) => Box::new(lossy),
            (_, true) => Box::new(Encoded::new(lossy, &task.tensors(), seed)?),
        })
    }
}
