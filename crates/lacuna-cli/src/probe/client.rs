//! The client: measures, shows progress, and reports, also after Ctrl-C, a silent server, or a
//! failure of this end.

use super::progress::Bar;
use super::refusals::Refusals;
use super::report::Report;
use super::sockets::{Clock, Sockets};
use super::{ClientArgs, csv};
use crate::capture::{Capture, Captures};
use crate::failure::{Ending, Failure};
use crate::output::{Output, conclude};
use crate::units::{show_bytes, show_rate, show_time};
use crate::{interrupt, upfront};
use lacuna::Wrap;
use lacuna::address::show;
use lacuna_probe::{Client, ClientConfig, ClientError};
use lacuna_service::random;
use std::net::SocketAddr;

/// Bytes of the headers of IP and UDP.
const OVERHEAD_BYTES_V4: u32 = 20 + 8;
const OVERHEAD_BYTES_V6: u32 = 40 + 8;

/// The results of a measurement, and why it ended early, if so.
pub(super) struct Measured {
    /// `None` without a complete trial.
    pub(super) report: Option<Report>,
    pub(super) failure: Option<Failure>,
}

pub(super) fn run(args: &ClientArgs, output: Output) -> Result<(), Failure> {
    upfront::check(args.csv.as_ref())?;
    upfront::check(args.plot.as_ref())?;
    interrupt::install()?;
    let capture = Capture::open(&args.capture, Captures::Probes, output)?;
    let wrap = capture.around(None);
    let measured = measure(args, wrap.as_ref(), &interrupt::requested, output);
    let ended = measured.and_then(|measured| tell(args, measured, &capture, output));
    capture.conclude(ended, output)
}

fn tell(
    args: &ClientArgs,
    measured: Measured,
    capture: &Capture,
    output: Output,
) -> Result<(), Failure> {
    let Measured { report, failure } = measured;
    // Write each output even if another one failed: a measurement should not be repeated for a full
    // disk.
    let told = report.map_or(Ok(()), |mut report| {
        report.capture = capture.so_far();
        let told = [report.print(output), tell_csv(args, &report, output)];
        let told = told.into_iter().chain([tell_plot(args, &report, output)]);
        told.fold(Ok(()), Result::and)
    });
    conclude(failure, told)
}

fn tell_csv(args: &ClientArgs, report: &Report, output: Output) -> Result<(), Failure> {
    let Some(path) = &args.csv else { return Ok(()) };
    csv::write(path, report.trials())?;
    output.note(&format!("rows: {}", path.display()));
    Ok(())
}

fn tell_plot(args: &ClientArgs, report: &Report, output: Output) -> Result<(), Failure> {
    let Some(path) = &args.plot else { return Ok(()) };
    let title = format!("Drop rates to {}, {}", args.host, report.describe_trials());
    lacuna_planner::draw_drops(path, &title, &report.drops(), &[])?;
    output.note(&format!("plot: {}", path.display()));
    Ok(())
}

/// Measures once. `stop` ends it early with the results so far; `wrap` goes around the datapath of
/// each socket.
pub(super) fn measure(
    args: &ClientArgs,
    wrap: Option<&Wrap>,
    stop: &dyn Fn() -> bool,
    output: Output,
) -> Result<Measured, Failure> {
    // In the system's order, so that the path is the one a transfer would use.
    let addresses = lacuna_service::addresses(&args.host, stop)?;
    let mut silent = None;
    let mut addresses = addresses.into_iter().peekable();
    while let Some(server) = addresses.next() {
        let config = config(args, server);
        // Check this end's options before anything is sent.
        config.validate().map_err(|error| Failure::Usage(error.to_string()))?;
        let run = measure_at(args, server, config, wrap, stop, output)?;
        let why = match run.client.error() {
            Some(ClientError::Silent { was_heard: false, .. }) => "does not answer",
            Some(ClientError::Unsendable { was_heard: false, .. }) => "cannot be sent to",
            _ => return Ok(run.into_measured(args)),
        };
        if addresses.peek().is_some() {
            output.note(&format!("{} {why}; trying the next address", show(server)));
        }
        // A silent server is more informative than another address without a route.
        let is_silent = matches!(run.client.error(), Some(ClientError::Silent { .. }));
        if is_silent || silent.is_none() {
            silent = Some(run);
        }
    }
    let run = silent.ok_or_else(|| Failure::Network(format!("{} has no address", args.host)))?;
    Ok(run.into_measured(args))
}

fn config(args: &ClientArgs, server: SocketAddr) -> ClientConfig {
    ClientConfig {
        nonce: random(),
        seed: random(),
        rate_bits_per_s: args.rate,
        overhead_bytes: if server.is_ipv6() { OVERHEAD_BYTES_V6 } else { OVERHEAD_BYTES_V4 },
        flows: args.flows,
        payloads_bytes: args.payload.clone(),
        trials: args.trials,
        duration_ns: u64::try_from(args.time.as_nanos()).unwrap_or(u64::MAX),
        largest_bytes: lacuna_probe::PAYLOAD_BYTES_MAX,
        fragments: args.fragment,
    }
}

/// A client that has ended.
struct Run {
    server: SocketAddr,
    client: Client,
    /// Packets that this host refused to send.
    refusals: Refusals,
    /// Why this end had to stop.
    broken: Option<Failure>,
    overhead_bytes: u32,
    seconds: f64,
}

fn measure_at(
    args: &ClientArgs,
    server: SocketAddr,
    config: ClientConfig,
    wrap: Option<&Wrap>,
    stop: &dyn Fn() -> bool,
    output: Output,
) -> Result<Run, Failure> {
    let overhead_bytes = config.overhead_bytes;
    let mut sockets = Sockets::open(server, args.flows, args.fragment, wrap)?;
    let clock = Clock::start();
    let mut client =
        Client::new(config, clock.now_ns()).map_err(|error| Failure::Usage(error.to_string()))?;
    let total_s = args.time.as_secs_f64() * f64::from(args.trials) * args.payload.len() as f64;
    output.note(&format!(
        "{}: trials of {} at {}, {} at most",
        show(server),
        show_time(args.time.as_secs_f64()),
        show_rate(args.rate as f64),
        show_time(total_s),
    ));
    let bar = Bar::new(output);
    let mut told = Told::default();
    let mut broken = None;
    while !client.is_done() {
        if let Err(failure) = sockets.turn(&mut client, clock) {
            // The results so far count.
            broken = Some(failure);
            break;
        }
        if stop() {
            client.stop(clock.now_ns());
        }
        told.tell(&client, &sockets.host.refusals, overhead_bytes, args.rate, &bar);
        bar.update(&client.progress(clock.now_ns()));
    }
    bar.clear();
    let seconds = clock.now_ns() as f64 / 1e9;
    let refusals = sockets.host.refusals;
    Ok(Run { server, client, refusals, broken, overhead_bytes, seconds })
}

/// Notes that were printed already.
#[derive(Default)]
struct Told {
    trials: usize,
    has_mtu: bool,
    has_refusal: bool,
}

impl Told {
    fn tell(
        &mut self,
        client: &Client,
        refusals: &Refusals,
        overhead_bytes: u32,
        rate: u64,
        bar: &Bar,
    ) {
        if let Some(mtu) = client.path_mtu().filter(|_| !self.has_mtu) {
            self.has_mtu = true;
            let limit = if mtu.is_hosts_limit { " or more" } else { "" };
            let sizes: Vec<String> =
                client.payloads_bytes().iter().map(|size| show_bytes((*size).into())).collect();
            bar.note(&format!(
                "path MTU {}{limit} bytes; payloads of {}",
                mtu.packet_bytes,
                sizes.join(", ")
            ));
        }
        // Before the MTU is known, the measurement most likely ends with this error.
        if let Some(error) = refusals.newest().filter(|_| self.has_mtu && !self.has_refusal) {
            self.has_refusal = true;
            bar.note(&format!("this host refuses packets, which are counted: {error}"));
        }
        for trial in &client.trials()[self.trials..] {
            self.trials += 1;
            bar.note(&super::report::trial_line(trial, overhead_bytes, rate));
        }
    }
}

impl Run {
    fn into_measured(mut self, args: &ClientArgs) -> Measured {
        let failure = self.broken.take().or_else(|| self.failure(&args.host));
        let failure = match failure {
            None if self.client.is_stopped() => Some(Failure::Interrupted),
            failure => failure,
        };
        let ending = Ending::of(failure.as_ref());
        let Self { client, refusals, overhead_bytes, seconds, .. } = self;
        let report = Report::new(args, &client, overhead_bytes, seconds, ending, refusals);
        Measured { report, failure }
    }

    /// Why the client ended early.
    fn failure(&self, host: &str) -> Option<Failure> {
        let error = self.client.error()?;
        let refused = self.refusals.describe();
        let refused = refused.map_or(String::new(), |refused| format!("; {refused}"));
        Some(match error {
            ClientError::Unsendable { .. } => {
                let said = self.refusals.newest().unwrap_or("no reason given");
                self.refusals.failure(format!("cannot send to {}: {said} ({error})", self.server))
            }
            ClientError::Silent { was_heard: false, .. } => Failure::Network(format!(
                "{host} said nothing for {} s: is lacuna probe server running there, on that port, \
                 and does UDP get through?{refused}",
                lacuna_probe::client::SILENCE_NS_MAX / 1_000_000_000
            )),
            ClientError::Silent { .. } => Failure::Network(format!("{host}: {error}{refused}")),
            ClientError::NothingFits { .. } => {
                Failure::Usage(format!("{error}: choose a smaller --payload, or --fragment"))
            }
            ClientError::TooLong { .. } => Failure::Network(format!(
                "{host} refused: {error} (its --max-time): use fewer --trials or less --time"
            )),
            ClientError::Busy => {
                Failure::Network(format!("{host} refused: {error}; try again later"))
            }
            error => Failure::Network(format!("{host}: {error}")),
        })
    }
}
