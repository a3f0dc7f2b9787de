//! Those who run a cell: Lacuna, the bare loops that show what the kernel can
//! do, and what one could use instead. Each takes a cell and gives one sample.
//!
//! A contestant that is not installed says so and is skipped.

pub(crate) mod external;
mod lacuna_perf;
mod ping;
pub(crate) mod quic;
mod tcp;

use crate::bare;
use crate::cell::Cell;
use anyhow::{Result, bail};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Where and how long.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) send_core: usize,
    pub(crate) receive_core: usize,
    pub(crate) duration: Duration,
    /// The `lacuna` command.
    pub(crate) lacuna: PathBuf,
}

/// What one run found.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Sample {
    /// In the unit of the cell's kind.
    pub(crate) value: f64,
    /// Processor seconds of both ends per 10^9 bytes of payload, where known.
    pub(crate) cpu_s_per_gbyte: Option<f64>,
    /// Packets that did not arrive, or were sent again, where known.
    pub(crate) lost: Option<u64>,
    pub(crate) retransmitted: Option<u64>,
    /// What the contestant says of itself.
    pub(crate) note: Option<String>,
}

/// What came of a run.
pub(crate) enum Outcome {
    Sample(Sample),
    /// Not here, and why.
    Skipped(String),
}

/// Runs a contestant once.
pub(crate) fn run(name: &str, cell: &Cell, place: &Place) -> Result<Outcome> {
    let sample = match name {
        "bare-copy" => bare::throughput(cell, place, bare::Receive::Copy)?,
        "bare-scatter" => bare::throughput(cell, place, bare::Receive::Scatter)?,
        "bare-ping" => bare::ping(cell, place)?,
        "lacuna-raw" => lacuna_perf::run(cell, place, "raw", false)?,
        "lacuna-sr" => lacuna_perf::run(cell, place, "sr", false)?,
        "lacuna-sealed" => lacuna_perf::run(cell, place, "sr", true)?,
        "lacuna-ping" => ping::run(cell, place, false)?,
        "lacuna-sealed-ping" => ping::run(cell, place, true)?,
        "tcp-cubic" => return tcp::run(cell, place, "cubic"),
        "tcp-bbr" => return tcp::run(cell, place, "bbr"),
        "quinn-default" => quic::run(cell, place, None)?,
        "quinn-4096" => quic::run(cell, place, Some(4096))?,
        "ucx-put" => return external::ucx_put(cell, place),
        "ucx-tag" => return external::ucx_tag(cell, place),
        "libfabric-rxd" => return external::libfabric_rxd(cell, place),
        _ => bail!("no contestant is called {name}"),
    };
    Ok(Outcome::Sample(sample))
}
