//! UCX's one-sided put over its TCP transport, where its program is installed: what one could use instead.
//!
//! Its program measures itself, in processes of its own; so its figures are beside those of the others, not in turns
//! with them.

use super::Effort;
use super::line::{Printer, Samples};
use super::turn::Sides;
use crate::contestant::external::{ucx_put_latency, ucx_put_rate};
use crate::contestant::{Outcome, Place};
use anyhow::Result;
use std::path::PathBuf;

const ROUNDS_MAX: u32 = 3;
const LATENCY_SIZES: [usize; 4] = [64, 512, 2048, 64 << 10];
const RATE_SIZES: [usize; 3] = [1 << 10, 64 << 10, 512 << 10];

/// Measures over loopback.
pub(super) fn run(sides: Sides<'_>, effort: Effort, out: &Printer) -> Result<()> {
    let [send_core, receive_core] = sides.cores;
    let duration = effort.ucx;
    let place = Place { send_core, receive_core, duration, lacuna: PathBuf::new() };
    let latency = LATENCY_SIZES.map(|bytes| ("latency, put", "us", bytes));
    let rates = RATE_SIZES.map(|bytes| ("one way, put", "Gbit/s", bytes));
    for (what, unit, bytes) in latency.into_iter().chain(rates) {
        let mut samples = Samples::default();
        for _ in 0..effort.rounds.min(ROUNDS_MAX) {
            let outcome = match unit {
                "us" => ucx_put_latency(bytes as u64, &place),
                _ => ucx_put_rate(bytes as u64, &place),
            };
            match outcome? {
                Outcome::Sample(sample) => samples.add("UCX", sample.value),
                Outcome::Skipped(why) => {
                    eprintln!("UCX: skipped, {why}");
                    return Ok(());
                }
            }
        }
        out.figures(what, unit, bytes, &samples)?;
    }
    Ok(())
}
