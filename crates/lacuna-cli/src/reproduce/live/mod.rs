//! `lacuna reproduce lowar --live`: the paper's goodput and processor time on real sockets of this machine,
//! over an emulated path (`lacuna wan run`), with TCP beside.
//!
//! Runs are one after the other, each a process of its own with its two hosts, so that a run that fails or is
//! interrupted leaves nothing behind for the next one. All transports of a path have the same seed, and so
//! the same losses by packet number. What the numbers come to is `lacuna_reproduce`'s work.

pub(super) mod iwarp;
mod process;
mod run;

use crate::failure::{Ending, Failure};
use crate::interrupt;
use crate::output::{Output, conclude};
use crate::units;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lacuna_reproduce::cells::Effort;
use lacuna_reproduce::lowar::live::{self, Measurement};
use lacuna_reproduce::outcome::Item;
use run::{Ended, Setting};
use std::path::Path;
use std::time::Duration;

/// What a run takes besides its time: hosts, connecting, warm-up, and the end.
const MORE_TIME: Duration = Duration::from_millis(2_500);

#[derive(Debug, Args)]
#[command(next_help_heading = "With --live")]
pub(super) struct LiveArgs {
    /// Measure real programs on this machine instead, with TCP beside: goodput (9) and processor
    /// time (13) over an emulated path; needs root or user namespaces
    #[arg(long)]
    pub(super) live: bool,
    /// Rate of the emulated link
    #[arg(long, default_value = "1gbit", value_parser = units::rate, requires = "live", value_name = "RATE")]
    rate: u64,
    /// How long each run is measured [default: 6s, 10s with --full]
    #[arg(long, value_parser = units::some_duration, requires = "live", value_name = "TIME")]
    time: Option<Duration>,
    /// Seed of the losses
    #[arg(long, default_value_t = 1, requires = "live")]
    seed: u64,
}

/// Measures what these figures need, and reports each.
pub(super) fn measure(
    args: &LiveArgs,
    items: &[Item],
    effort: Effort,
    folder: &Path,
    output: Output,
) -> Result<(), Failure> {
    let time = args.time.unwrap_or(match effort {
        Effort::Quick => Duration::from_secs(6),
        Effort::Full => Duration::from_secs(10),
    });
    let runs = live::runs(items, effort);
    let about = (time + MORE_TIME) * runs.len() as u32;
    output.note(&format!(
        "{} runs of {}, about {} in all",
        runs.len(),
        units::show_time(time.as_secs_f64()),
        units::show_time(about.as_secs_f64())
    ));
    let bar = bar(runs.len(), output);
    let program = std::env::current_exe()
        .map_err(|error| Failure::Local(format!("cannot find this program: {error}")))?;
    let mut all = Measurement {
        rate_bits_per_s: args.rate,
        time_s: time.as_secs_f64(),
        seed: args.seed,
        planned: runs.len(),
        runs: Vec::new(),
    };
    let mut ended = None;
    let (mut path, mut seed) = (None, args.seed);
    for run in runs {
        let here = (run.rtt_ms, run.connections, run.loss);
        if path.replace(here).is_some_and(|before| before != here) {
            seed = seed.wrapping_add(1);
        }
        bar.set_message(run.words());
        let setting = Setting { program: program.clone(), rate_bits_per_s: args.rate, time, seed };
        match setting.measure(&run) {
            Ok(Ended::Numbers(numbers)) => {
                let rate = units::show_rate(numbers.goodput_bits_per_s);
                bar.suspend(|| output.note(&format!("{}: {rate}", run.words())));
                all.runs.push((run, Ok(numbers)));
            }
            Ok(Ended::Failed(why)) => {
                bar.suspend(|| output.note(&format!("{}: {why}", run.words())));
                all.runs.push((run, Err(why)));
            }
            Err(failure) => {
                ended = Some(failure);
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let told = report(&all, items, folder, &Ending::of(ended.as_ref()), output);
    conclude(ended, told)
}

/// Reports what there is; nothing if no run has numbers.
fn report(
    all: &Measurement,
    items: &[Item],
    folder: &Path,
    ending: &Ending,
    output: Output,
) -> Result<(), Failure> {
    if all.runs.iter().all(|(_, numbers)| numbers.is_err()) {
        return match all.runs.first() {
            Some((run, Err(why))) => Err(Failure::Local(format!("{}: {why}", run.words()))),
            _ => Ok(()),
        };
    }
    for item in items {
        if let Some(outcome) = live::outcome(*item, all) {
            super::report(&outcome.write(folder)?, ending, output)?;
        }
    }
    Ok(())
}

fn bar(count: usize, output: Output) -> ProgressBar {
    if !output.shows_progress() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(count as u64);
    let style = "{bar:30} {pos} of {len} runs, {elapsed} so far, {eta} to go: {msg}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(interrupt::POLL_INTERVAL * 5);
    bar
}
