//! One way: how many bytes arrive in a second, beside the paper's figure 6.

use super::bulk;
use super::datagram::Kind;
use super::line::{Goal, Printer};
use super::rc::{Verb, Writes};
use super::turn::{Sides, one_way, rounds};
use super::{Effort, Limits, RC_SEND, RC_WRITE, TCP, UD_RECORD, UD_SEND, rc, tcp, ud};
use anyhow::Result;

const TCP_COALESCED: &str = "TCP coalesced";
const RC_COALESCED: &str = "RC Send coalesced";
const SIZES: [usize; 5] = [64, 1 << 10, 8 << 10, 64 << 10, 512 << 10];
/// The sizes of the goals, and what ours are at least of those that write each message by itself.
const SMALL: (usize, f64) = (1 << 10, 2.0);
const LARGE: (usize, f64) = (512 << 10, 1.15);
/// The baseline of TCP itself, at least: it is to be an honest one.
const BASELINE_GOAL: f64 = 0.4;

/// Measures over one path.
pub(super) fn run(
    sides: Sides<'_>,
    effort: Effort,
    limits: &Limits,
    out: &mut Printer,
) -> Result<()> {
    let path = sides.path;
    for bytes in SIZES.into_iter().filter(|bytes| limits.has_bytes(*bytes)) {
        let mut contestants = vec![
            tcp(TCP, path, Writes::Each, bytes),
            tcp(TCP_COALESCED, path, Writes::Coalesced, bytes),
            rc(RC_SEND, path, (Verb::Send, Writes::Each), bytes),
            rc(RC_WRITE, path, (Verb::Write, Writes::Each), bytes),
            rc(RC_COALESCED, path, (Verb::Send, Writes::Coalesced), bytes),
            ud(UD_SEND, path, Kind::Send, bytes),
            ud(UD_RECORD, path, Kind::WriteRecord, bytes),
        ];
        contestants.retain(|contestant| limits.has_contestant(contestant.name));
        let messages = (effort.bytes / bytes).clamp(8, effort.messages);
        let samples = rounds(&mut contestants, effort.rounds, |ends| {
            let seconds = one_way(ends, sides, messages)?;
            Ok((messages * bytes * 8) as f64 / seconds / 1e9)
        })?;
        out.figures("one way", "Gbit/s", bytes, &samples)?;
        for (ours, baseline) in [(UD_SEND, RC_SEND), (UD_RECORD, RC_WRITE)] {
            let goal = [SMALL, LARGE].into_iter().find(|goal| goal.0 == bytes);
            let goal = goal.map(|(_, factor)| Goal::AtLeast(factor));
            // The goals are against the baseline; at 1 KiB against TCP, too.
            let goal_tcp = goal.filter(|_| bytes == SMALL.0);
            for (theirs, goal) in [(baseline, goal), (TCP, goal_tcp), (RC_COALESCED, None)] {
                if !(samples.has(ours) && samples.has(theirs)) {
                    continue;
                }
                let ratio = format!("one way, {bytes} B, {ours} / {theirs}");
                out.judge(&ratio, samples.ratios(ours, theirs), goal)?;
            }
        }
        for baseline in [RC_SEND, RC_WRITE] {
            if !(samples.has(baseline) && samples.has(TCP)) {
                continue;
            }
            let ratio = format!("one way, {bytes} B, {baseline} / {TCP}");
            out.judge(&ratio, samples.ratios(baseline, TCP), Some(Goal::AtLeast(BASELINE_GOAL)))?;
        }
    }
    if limits.has_bytes(bulk::BYTES) {
        bulk::run(sides, effort, out)?;
    }
    Ok(())
}
