//! The arguments of the commands that run over an emulated network.

use lacuna_training::network::{Delivery, Network, Path};
use std::time::Duration;

/// The path between ranks.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PathArguments {
    /// Rate at which each rank can send, in Mbit/s.
    #[arg(long, default_value_t = 500)]
    pub(crate) mbit: u64,
    /// Round trip between ranks in milliseconds.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) rtt_ms: f64,
    /// Fraction of the packets that is lost, in percent.
    #[arg(long, default_value_t = 0.1)]
    pub(crate) loss: f64,
    /// Time for an operation of a bounded delivery in milliseconds [default: learned].
    #[arg(long)]
    pub(crate) budget_ms: Option<f64>,
}

impl PathArguments {
    /// The path; losses come in bursts of so many packets on average.
    pub(crate) fn path(&self, burst_packets: Option<f64>) -> anyhow::Result<Path> {
        anyhow::ensure!(self.mbit > 0, "a rate of 0: give --mbit 1 or more");
        anyhow::ensure!(
            (0.0..10_000.0).contains(&self.rtt_ms),
            "--rtt-ms {} is not from 0 to 10,000",
            self.rtt_ms
        );
        anyhow::ensure!((0.0..100.0).contains(&self.loss), "--loss {} is no percentage", self.loss);
        Ok(Path {
            rate_bits_per_s: Some(1_000_000 * self.mbit),
            rtt_ms: self.rtt_ms,
            loss: self.loss / 100.0,
            burst_packets: burst_packets.unwrap_or(1.0),
        })
    }

    /// The network of a run.
    pub(crate) fn network(
        &self,
        ranks: usize,
        path: Path,
        delivery: &Delivery,
        seed: u64,
    ) -> anyhow::Result<Network> {
        let mut delivery = delivery.clone();
        if let Some(ms) = self.budget_ms {
            anyhow::ensure!(ms > 0.0, "--budget-ms {ms}: an operation needs some time");
            delivery = delivery.within(Duration::try_from_secs_f64(ms / 1e3)?);
        }
        Ok(Network { ranks, path, delivery, seed })
    }
}

/// Writes a record for people and scripts: what was run, and what was found.
pub(crate) fn write_record(
    path: Option<&std::path::Path>,
    record: &serde_json::Value,
) -> anyhow::Result<()> {
    if let Some(path) = path {
        std::fs::write(path, serde_json::to_string_pretty(record)? + "\n")?;
    }
    Ok(())
}
