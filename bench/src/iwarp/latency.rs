//! Latency: half of a round trip, beside the paper's figure 5.

use super::datagram::Kind;
use super::end::Wait;
use super::line::{Goal, Printer};
use super::rc::{Verb, Writes};
use super::turn::{Sides, ping_pong, rounds};
use super::{Effort, Limits, RC_SEND, RC_WRITE, TCP, UD_RECORD, UD_SEND, rc, tcp, ud};
use anyhow::Result;

/// Those of the goals, and some above them for the curve.
const SIZES: [usize; 8] = [64, 128, 256, 512, 1024, 2048, 8 << 10, 64 << 10];
/// Up to here the goals hold, as the paper's means do.
const SMALL_MAX: usize = 2048;
/// Of the baseline, at most: with busy polling, and when the ends sleep.
const POLLING_GOAL: f64 = 0.95;
const BLOCKING_GOAL: f64 = 1.2;
/// How much the paper's are below its RC, as a mean up to 2 kB (section 3.2.1).
const PAPER: [(&str, &str, f64); 2] = [(UD_SEND, RC_SEND, 0.181), (UD_RECORD, RC_WRITE, 0.244)];

/// Measures over one path.
pub(super) fn run(
    sides: Sides<'_>,
    effort: Effort,
    limits: &Limits,
    out: &mut Printer,
) -> Result<()> {
    let path = sides.path;
    for wait in [Wait::Poll, Wait::Block] {
        let what = format!("latency, {}", wait.name());
        let mut small: [Vec<f64>; 2] = Default::default();
        for bytes in SIZES.into_iter().filter(|bytes| limits.has_bytes(*bytes)) {
            let mut contestants = vec![
                tcp(TCP, path, Writes::Each, bytes),
                rc(RC_SEND, path, (Verb::Send, Writes::Each), bytes),
                rc(RC_WRITE, path, (Verb::Write, Writes::Each), bytes),
                ud(UD_SEND, path, Kind::Send, bytes),
                ud(UD_RECORD, path, Kind::WriteRecord, bytes),
            ];
            contestants.retain(|contestant| limits.has_contestant(contestant.name));
            // Long messages take longer, and their medians settle sooner.
            let trips = (effort.trips * 4096 / bytes.max(4096)).max(20);
            let samples = rounds(&mut contestants, effort.rounds, |ends| {
                ping_pong(ends, sides, wait, trips)
            })?;
            out.figures(&what, "us", bytes, &samples)?;
            for (at, (ours, theirs, _)) in PAPER.into_iter().enumerate() {
                if !(samples.has(ours) && samples.has(theirs)) {
                    continue;
                }
                let goal = match wait {
                    Wait::Poll => Goal::AtMost(POLLING_GOAL),
                    Wait::Block => Goal::AtMost(BLOCKING_GOAL),
                };
                let goal = (bytes <= SMALL_MAX).then_some(goal);
                let ratio = format!("{what}, {bytes} B, {ours} / {theirs}");
                let median = out.judge(&ratio, samples.ratios(ours, theirs), goal)?;
                if bytes <= SMALL_MAX {
                    small[at].push(median);
                }
            }
        }
        for ((ours, theirs, gain), ratios) in PAPER.into_iter().zip(&small) {
            if ratios.is_empty() {
                continue;
            }
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let verdict = if 1.0 - mean >= gain { "reached" } else { "not reached" };
            let (found, gain) = ((1.0 - mean) * 100.0, gain * 100.0);
            let name = format!("{what}, up to {SMALL_MAX} B, {ours}");
            out.figure(
                &name,
                "% below, mean",
                &format!("(paper {gain:.1} below {theirs}: {verdict})"),
                found,
            )?;
        }
    }
    Ok(())
}
