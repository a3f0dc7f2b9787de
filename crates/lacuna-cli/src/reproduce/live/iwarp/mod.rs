//! `lacuna reproduce iwarp --live`: the paper's figures with real programs on this machine.
//!
//! Latency and bandwidth (5, 6) are measured over loopback in this process, beside TCP; a broadcast (7) on an
//! emulated LAN, and what losses leave (8, 9) over an emulated link (`lacuna wan run`), beside UDP datagrams of 64 KiB. What the numbers come to is
//! `lacuna_reproduce`'s work.

mod broadcast;
mod loopback;
mod lossy;

use super::super::report;
use super::bar;
use crate::failure::{Ending, Failure};
use crate::output::{Output, conclude};
use crate::units;
use clap::Args;
use lacuna_reproduce::cells::Effort;
use lacuna_reproduce::iwarp::CameInDatagrams;
use lacuna_reproduce::iwarp::broadcast::{self as shares, Run, Shares};
use lacuna_reproduce::iwarp::loopback::{Bandwidths, Flow, Latencies, Ping, flows, pings};
use lacuna_reproduce::iwarp::loss::{self, Cell, Measurement};
use lacuna_reproduce::outcome::{Item, Outcome};
use lossy::Setting;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a run takes besides its time: hosts, connecting, and the end.
const MORE_TIME: Duration = Duration::from_millis(2_500);

#[derive(Debug, Args)]
#[command(next_help_heading = "With --live")]
pub(in crate::reproduce) struct IwarpLiveArgs {
    /// Measure real programs on this machine instead; 7 to 9 over an emulated LAN or link,
    /// which needs root or user namespaces
    #[arg(long)]
    pub(in crate::reproduce) live: bool,
    /// How long each run is measured; if not given, as long as its figure needs
    #[arg(long, value_parser = units::some_duration, requires = "live", value_name = "TIME")]
    time: Option<Duration>,
    /// Seed of the losses
    #[arg(long, default_value_t = 1, requires = "live")]
    seed: u64,
}

/// Measures what these figures need, and reports each.
pub(in crate::reproduce) fn measure(
    args: &IwarpLiveArgs,
    items: &[Item],
    effort: Effort,
    folder: &Path,
    output: Output,
) -> Result<(), Failure> {
    let is_full = effort == Effort::Full;
    let pick = |quick_ms, full_ms| {
        args.time.unwrap_or(Duration::from_millis(if is_full { full_ms } else { quick_ms }))
    };
    let packet_bytes = loopback::PACKET_BYTES;
    if items.contains(&Item::Figure(5)) {
        let time = pick(300, 1000);
        let latency = |ping: &Ping| loopback::latency(ping, time);
        let us = |ns: &f64| format!("{:.2} us", ns / 1e3);
        let (runs, ended) = each((pings(effort), Ping::words), time, latency, us, output);
        let all = Latencies { time_s: time.as_secs_f64(), packet_bytes, runs };
        tell(&all.runs, ended, || vec![all.outcome()], folder, output)?;
    }
    if items.contains(&Item::Figure(6)) {
        let time = pick(500, 2000);
        let bandwidth = |flow: &Flow| loopback::bandwidth(flow, time);
        let rate = |rate: &f64| units::show_rate(*rate);
        let (runs, ended) = each((flows(effort), Flow::words), time, bandwidth, rate, output);
        let all = Bandwidths { time_s: time.as_secs_f64(), packet_bytes, runs };
        tell(&all.runs, ended, || vec![all.outcome()], folder, output)?;
    }
    if items.contains(&Item::Figure(7)) {
        let time = pick(2000, 5000);
        let setting = broadcast::Setting { program: this_program()?, time, seed: args.seed };
        let measure = |run: &Run| setting.measure(run);
        let share = |came: &shares::Came| {
            let rate = units::show_rate(came.aggregate_bits_per_s());
            format!("{rate} in all, at least {:.4} of the bytes each", came.least())
        };
        let runs = shares::runs(effort);
        let planned = runs.len();
        let (runs, ended) = each((runs, Run::words), time + MORE_TIME, measure, share, output);
        let all = Shares { time_s: time.as_secs_f64(), runs, planned };
        tell(&all.runs, ended, || vec![all.outcome()], folder, output)?;
    }
    if items.iter().any(|item| [8, 9].map(Item::Figure).contains(item)) {
        let time = pick(2000, 5000);
        let program = this_program()?;
        let measure = |cell: &Cell| {
            // The schemes of a length and loss lose the same packets by number.
            let seed = args.seed.wrapping_add(cell.message_bytes.into());
            Setting { program: program.clone(), time, seed }.measure(cell)
        };
        let rate = |came: &CameInDatagrams| units::show_rate(came.placed.goodput_bits_per_s());
        let cells = loss::cells(effort, true);
        let planned = cells.len();
        let (runs, ended) = each((cells, Cell::words), time + MORE_TIME, measure, rate, output);
        let all = Measurement { live: true, time_s: time.as_secs_f64(), runs, planned };
        let outcomes = || items.iter().filter_map(|item| all.outcome(*item)).collect();
        tell(&all.runs, ended, outcomes, folder, output)?;
    }
    Ok(())
}

fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::Local(format!("cannot find this program: {error}")))
}

/// Runs with their numbers, or in one line why there are none.
type Runs<R, N> = Vec<(R, Result<N, String>)>;

/// Does one run after the other, until one ends all.
fn each<R, N>(
    (runs, words): (Vec<R>, fn(&R) -> String),
    time: Duration,
    measure: impl Fn(&R) -> Result<Result<N, String>, Failure>,
    show: impl Fn(&N) -> String,
    output: Output,
) -> (Runs<R, N>, Option<Failure>) {
    output.note(&format!(
        "{} runs, about {} in all",
        runs.len(),
        units::show_time((time * runs.len() as u32).as_secs_f64())
    ));
    let bar = bar(runs.len(), output);
    let mut done = Vec::new();
    let mut ended = None;
    for run in runs {
        let name = words(&run);
        bar.set_message(name.clone());
        match measure(&run) {
            Ok(number) => {
                let shown = number.as_ref().map_or_else(Clone::clone, &show);
                bar.suspend(|| output.note(&format!("{name}: {shown}")));
                done.push((run, number));
            }
            Err(failure) => {
                ended = Some(failure);
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    (done, ended)
}

/// Reports what there is; nothing if no run has a number.
fn tell<R, N>(
    runs: &Runs<R, N>,
    ended: Option<Failure>,
    outcomes: impl FnOnce() -> Vec<Outcome>,
    folder: &Path,
    output: Output,
) -> Result<(), Failure> {
    if runs.iter().all(|(_, number)| number.is_err()) {
        let why = runs.first().and_then(|(_, number)| number.as_ref().err());
        let why = why.map(|why| Failure::Local(format!("nothing is measured live: {why}")));
        return ended.or(why).map_or(Ok(()), Err);
    }
    let ending = Ending::of(ended.as_ref());
    let told = outcomes()
        .into_iter()
        .try_for_each(|outcome| report(&outcome.write(folder)?, &ending, output));
    conclude(ended, told)
}
