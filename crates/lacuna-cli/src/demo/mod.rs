//! `lacuna demo`: two endpoints in this process, real UDP sockets on loopback,
//! an impaired path between them, every reliability mode side by side.

mod mode;
mod path;
mod plot;
mod result;
mod table;

use crate::capture::{Capture, CaptureArgs, Captures};
use crate::failure::Failure;
use crate::output::{Output, conclude};
use crate::units::{self, show_bytes, show_count, show_time};
use crate::{interrupt, memory, modes, upfront, wire};
use clap::Args;
use lacuna::modes::{Mode, TABLE};
use lacuna::{ConnectionConfig, Wire};
use path::Ways;
use result::ModeResult;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest round-trip time: connecting takes several.
const RTT_MAX: Duration = Duration::from_secs(10);
/// Longest ideal time of a message; more is a mistake.
const IDEAL_MAX: Duration = Duration::from_secs(3600);
/// Longest mean burst of losses.
const BURST_PACKETS_MAX: f64 = 1e6;
/// The plot, unless it is given another name.
const PLOT: &str = "lacuna-demo.svg";

const EXAMPLES: &str = "\
Examples:
  lacuna demo                                   the default: 64 MiB over 1 Gbit/s, 25 ms, 0.1 %
  lacuna demo --loss 1% --burst 8 --rtt 100ms   a long path that loses in bursts
  lacuna demo --size 1MiB --runs 100 --json     short messages, results for a script
  lacuna demo --mode raw                        without repair: what arrives by itself
  lacuna demo --mode bounded --loss 1%          receives that end in time, with gaps
  lacuna demo --mode ec:xor:32:8 --mode ec      two erasure codes beside each other";

/// Move real data over an impaired path on this machine, every mode side by side.
///
/// Two endpoints talk through real UDP sockets on loopback; what one sends
/// passes an emulated link with a rate, a delay, loss and a queue of rate times
/// round-trip time, both ways. Each mode sends the same messages, each into a
/// receive that was posted beforehand. The ideal time is size / rate + RTT; no
/// transport can be faster. With --pcap the sender's packets are captured, before
/// the path, and what comes to it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = [EXAMPLES, units::HELP].join("\n\n"))]
pub(crate) struct DemoArgs {
    /// Bytes per message
    #[arg(long, default_value = "64MiB", value_parser = units::some_bytes)]
    size: u64,
    /// Round-trip time of the path, 10s at most
    #[arg(long, default_value = "25ms", value_parser = rtt)]
    rtt: Duration,
    /// Share of packets that the path loses, each way
    #[arg(long, default_value = "1e-3", value_parser = units::fraction)]
    loss: f64,
    /// Rate of the path, each way
    #[arg(long, default_value = "1gbit", value_parser = units::rate)]
    rate: u64,
    /// Lose packets in bursts of this mean length
    #[arg(long, default_value = "1", value_name = "PACKETS", value_parser = units::count(1.0..=BURST_PACKETS_MAX))]
    burst: f64,
    /// Messages per mode
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = units::count(1..=10_000u32))]
    runs: u32,
    /// Seed of the path's losses
    #[arg(long, default_value_t = 1, value_parser = units::count(0..=u64::MAX))]
    seed: u64,
    /// Bytes per chunk, rounded up to whole packets: what a lost packet costs to repair;
    /// one packet if not given
    #[arg(long, value_name = "SIZE", value_parser = units::some_bytes)]
    chunk: Option<u64>,
    /// Payload bytes per packet
    #[arg(long, default_value = "4096", value_name = "SIZE", value_parser = units::packet_bytes)]
    mtu: u32,
    /// Do not tell the sender the path's rate: it finds it by itself (bbr)
    ///
    /// It measures with its first packets, and probes now and then for more. What
    /// does not fit the path's queue meanwhile is dropped there, counted as
    /// "dropped in queue", and repaired like any loss.
    #[arg(long)]
    find_rate: bool,
    /// Only this mode; may be given several times. All but raw if none is given
    #[arg(long = "mode", value_name = "MODE", value_parser = modes::parser())]
    modes: Vec<Mode>,
    /// Form of data packets
    #[arg(long, default_value = "short", value_parser = wire::parser())]
    wire: Wire,
    /// Where to write the plot; lacuna-demo.svg, where that can be written, if not given
    #[arg(long, value_name = "FILE", conflicts_with = "no_plot")]
    plot: Option<PathBuf>,
    /// Write no plot
    #[arg(long)]
    no_plot: bool,
    #[command(flatten)]
    capture: CaptureArgs,
}

impl DemoArgs {
    /// What a message takes on an ideal path.
    fn ideal_s(&self) -> f64 {
        self.size as f64 * 8.0 / self.rate as f64 + self.rtt.as_secs_f64()
    }

    /// The modes to run, without duplicates.
    fn modes(&self) -> Vec<Mode> {
        let mut modes: Vec<Mode> = Vec::new();
        for mode in &self.modes {
            if !modes.contains(mode) {
                modes.push(*mode);
            }
        }
        if modes.is_empty() {
            modes =
                TABLE.iter().map(|entry| entry.mode).filter(|mode| *mode != Mode::Raw).collect();
        }
        modes
    }

    /// The failure for a mode that cannot run with these options. If the user named no mode, it
    /// says why this one runs.
    fn unfit(&self, mode: Mode, error: &str) -> Failure {
        Failure::Usage(match self.chunk {
            Some(chunk) if self.modes.is_empty() => format!(
                "--chunk {} is not for {mode}, one of the modes that run if no --mode is given: {error}",
                show_bytes(chunk)
            ),
            _ => error.to_owned(),
        })
    }

    /// Refuses options that cannot work, before anything starts.
    fn check(&self, ways: &Ways) -> Result<(), Failure> {
        for mode in self.modes() {
            let plain = ConnectionConfig::default();
            let config = ConnectionConfig {
                mode,
                chunk_bytes: self.chunk.unwrap_or(plain.chunk_bytes),
                wire: self.wire,
                ..plain
            };
            config.geometry(self.mtu, 1).map_err(|error| self.unfit(mode, &error.to_string()))?;
        }
        ways.check(self.mtu)?;
        let ideal_s = self.ideal_s();
        if ideal_s > IDEAL_MAX.as_secs_f64() {
            return Err(Failure::Usage(format!(
                "one message would take {} even on an ideal path: choose a smaller --size or a higher --rate",
                show_time(ideal_s)
            )));
        }
        let size = show_bytes(self.size);
        let what = format!("a message of {size} and a buffer to receive it");
        memory::check(self.size.saturating_mul(2), &what, "choose a smaller --size")
    }
}

fn rtt(text: &str) -> Result<Duration, String> {
    match units::duration(text)? {
        rtt if rtt > RTT_MAX => {
            Err(format!("\"{text}\" is out of range: use {} s at most", RTT_MAX.as_secs()))
        }
        rtt => Ok(rtt),
    }
}

pub(crate) fn run(args: &DemoArgs, output: Output) -> Result<(), Failure> {
    let ways =
        Ways { rate_bits_per_s: args.rate, rtt: args.rtt, loss: args.loss, burst: args.burst };
    args.check(&ways)?;
    upfront::check(args.plot.as_ref()).map_err(|failure| {
        Failure::Local(format!("{failure}: choose another --plot, or --no-plot"))
    })?;
    interrupt::install()?;
    let capture = Capture::open(&args.capture, Captures::Transport, output)?;
    let ended = run_all(args, &ways, &capture, output);
    capture.conclude(ended, output)
}

fn run_all(args: &DemoArgs, ways: &Ways, capture: &Capture, output: Output) -> Result<(), Failure> {
    output.note(&format!(
        "{} of {} over {ways}; ideal {}",
        show_count(args.runs.into(), "run"),
        show_bytes(args.size),
        show_time(args.ideal_s()),
    ));
    let mut results: Vec<ModeResult> = Vec::new();
    let (mut ended, mut told) = (None, Ok(()));
    for mode in args.modes() {
        let (result, failure) = mode::run(args, ways, mode, capture, output, &interrupt::requested);
        if output.json {
            told = told.and(result.iter().try_for_each(|result| output.object(result)));
        }
        results.extend(result);
        ended = failure.or_else(|| interrupt::requested().then_some(Failure::Interrupted));
        if ended.is_some() || told.is_err() || output.is_closed() {
            break;
        }
    }
    if !output.json {
        told = tell(args, &results, ended.as_ref(), output);
    }
    let wrong = wrong(&results).err();
    let is_whole = wrong.is_none() && ended.is_none() && told.is_ok();
    conclude(wrong.or(ended), told)?;
    if is_whole && !args.no_plot && !output.is_closed() {
        return draw(args, &results, ways, output);
    }
    Ok(())
}

/// Draws the plot. The results are printed already, so a plot that was not requested must not fail
/// the command.
fn draw(
    args: &DemoArgs,
    results: &[ModeResult],
    ways: &Ways,
    output: Output,
) -> Result<(), Failure> {
    let path = args.plot.as_deref().unwrap_or(Path::new(PLOT));
    match (plot::write(path, results, ways), &args.plot) {
        (Ok(()), _) => output.note(&format!("plot: {}", path.display())),
        (Err(error), None) => output.note(&format!(
            "no plot: cannot write {}: {error} (--plot takes another name)",
            path.display()
        )),
        (Err(error), Some(_)) => {
            return Err(Failure::Local(format!("cannot write {}: {error}", path.display())));
        }
    }
    Ok(())
}

/// Prints the results, and how far the demo came if it ended early.
fn tell(
    args: &DemoArgs,
    results: &[ModeResult],
    ended: Option<&Failure>,
    output: Output,
) -> Result<(), Failure> {
    if !results.is_empty() {
        output.line(&table::render(results))?;
        for auto in results.iter().filter_map(|result| result.auto.as_ref()) {
            output.line(&format!("auto: {}", auto.why))?;
        }
    }
    match ended {
        Some(Failure::Interrupted) => output.line(&finished("interrupted", args, results)),
        // Nothing to print if the demo did not begin.
        Some(_) if !results.is_empty() => output.line(&finished("not complete", args, results)),
        _ => Ok(()),
    }
}

fn wrong(results: &[ModeResult]) -> Result<(), Failure> {
    match results.iter().find(|result| !result.verified) {
        Some(wrong) => {
            Err(Failure::Verification(format!("mode {} delivered wrong bytes", wrong.mode)))
        }
        None => Ok(()),
    }
}

/// How far a demo came that ended early.
fn finished(how: &str, args: &DemoArgs, results: &[ModeResult]) -> String {
    let runs = |mode: &Mode| {
        let name = mode.to_string();
        let result = results.iter().find(|result| result.mode == name);
        format!("{name} {} of {}", result.map_or(0, |result| result.runs), args.runs)
    };
    let all: Vec<String> = args.modes().iter().map(runs).collect();
    format!("{how}; runs finished: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DemoArgs,
    }

    fn args(line: &str) -> DemoArgs {
        Line::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{error}")).args
    }

    #[test]
    fn a_mode_given_twice_runs_once() {
        let names = |line: &str| -> Vec<String> {
            args(line).modes().iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("demo --mode sr:rto --mode sr --mode sr:rto"), ["sr:rto", "sr"]);
        assert_eq!(names("demo --mode ec --mode ec:mds:32:8"), ["ec:mds:32:8"]);
        assert_eq!(names("demo"), ["auto", "sr", "sr:rto", "ec:mds:32:8", "bounded"]);
    }

    #[test]
    fn an_interrupted_demo_says_how_far_it_came() {
        let args = args("demo --runs 5");
        let results = [result::tests::result("sr")];
        assert_eq!(
            finished("interrupted", &args, &results),
            "interrupted; runs finished: auto 0 of 5, sr 2 of 5, sr:rto 0 of 5, ec:mds:32:8 0 of 5, \
             bounded 0 of 5"
        );
    }
}
