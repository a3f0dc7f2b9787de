//! The path of a cell, and its changes while a run goes on.

use super::cell::{Cell, Change};
use anyhow::{Context, Result};
use lacuna_wan::{Delay, Direction, Fraction, HostConfig, Loss, Wan, WanConfig, WayConfig};
use std::time::Duration;

/// The interval of the path's time line.
const INTERVAL: Duration = Duration::from_millis(50);

/// Both ways: there, and back.
fn ways(cell: &Cell, rate_mbit: u64, loss: f64) -> Result<[WayConfig; 2]> {
    let loss = match (loss, cell.burst) {
        (0.0, _) => Loss::None,
        (loss, 1) => Loss::Independent(
            Fraction::checked_from_f64(loss).with_context(|| format!("a loss of {loss}"))?,
        ),
        (loss, burst) => Loss::bursts(loss, f64::from(burst))?,
    };
    let rate_bits_per_s = rate_mbit * 1_000_000;
    let there = WayConfig {
        rate_bits_per_s: Some(rate_bits_per_s),
        queue_bytes: cell.queue_bytes,
        delay: Delay::Fixed(cell.rtt_ms * 1_000_000 / 2),
        loss,
        ..WayConfig::default()
    };
    let rate_bits_per_s = Some((rate_bits_per_s as f64 * cell.back) as u64);
    Ok([there.clone(), WayConfig { rate_bits_per_s, ..there }])
}

/// Two new hosts with the cell's path between them.
pub(crate) fn start(cell: &Cell, sysctls: &[(String, String)], seed: u64) -> Result<Wan> {
    let config = WanConfig {
        ways: ways(cell, cell.rate_mbit, cell.loss)?,
        hosts: HostConfig { sysctls: sysctls.to_vec(), ..HostConfig::default() },
        seed,
        interval: INTERVAL,
    };
    Ok(Wan::start(&config)?)
}

/// Makes the path what a change says; what it does not say is as the cell has it.
pub(crate) fn change(wan: &Wan, cell: &Cell, change: &Change) -> Result<()> {
    let rate_mbit = change.rate_mbit.unwrap_or(cell.rate_mbit);
    let ways = ways(cell, rate_mbit, change.loss.unwrap_or(cell.loss))?;
    for (direction, way) in Direction::ALL.into_iter().zip(ways) {
        wan.change(direction, way)?;
    }
    Ok(())
}
