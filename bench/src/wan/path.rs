//! The path of a cell, and its changes while a run goes on.

use super::cell::{Cell, Change};
use anyhow::{Context, Result};
use lacuna_wan::{Delay, Direction, Fraction, HostConfig, Loss, Wan, WanConfig, WayConfig};
use std::time::Duration;

/// The interval of the path's time line.
const INTERVAL: Duration = Duration::from_millis(50);

fn way(cell: &Cell, rate_mbit: u64, loss: f64) -> Result<WayConfig> {
    let loss = match (loss, cell.burst) {
        (0.0, _) => Loss::None,
        (loss, 1) => Loss::Independent(
            Fraction::checked_from_f64(loss).with_context(|| format!("a loss of {loss}"))?,
        ),
        (loss, burst) => Loss::bursts(loss, f64::from(burst))?,
    };
    Ok(WayConfig {
        rate_bits_per_s: Some(rate_mbit * 1_000_000),
        queue_bytes: cell.queue_bytes,
        delay: Delay::Fixed(cell.rtt_ms * 1_000_000 / 2),
        loss,
        ..WayConfig::default()
    })
}

/// Two new hosts with the cell's path between them; both ways alike.
pub(crate) fn start(cell: &Cell, sysctls: &[(String, String)], seed: u64) -> Result<Wan> {
    let way = way(cell, cell.rate_mbit, cell.loss)?;
    let config = WanConfig {
        ways: [way.clone(), way],
        hosts: HostConfig { sysctls: sysctls.to_vec(), ..HostConfig::default() },
        seed,
        interval: INTERVAL,
    };
    Ok(Wan::start(&config)?)
}

/// Makes the path what a change says; what it does not say is as the cell has it.
pub(crate) fn change(wan: &Wan, cell: &Cell, change: &Change) -> Result<()> {
    let rate_mbit = change.rate_mbit.unwrap_or(cell.rate_mbit);
    let way = way(cell, rate_mbit, change.loss.unwrap_or(cell.loss))?;
    for direction in Direction::ALL {
        wan.change(direction, way.clone())?;
    }
    Ok(())
}
