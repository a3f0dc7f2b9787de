//! The client: measures, shows how far it is, and reports, also what was measured until somebody
//! pressed Ctrl-C or the server fell silent.

use super::lanes::{Clock, Lanes};
use super::progress::Bar;
use super::report::Report;
use super::{ClientArgs, csv};
use crate::failure::Failure;
use crate::output::Output;
use crate::units::{show_bytes, show_rate, show_time};
use crate::{interrupt, planner, purpose, reach, upfront};
use lacuna::Wrap;
use lacuna_probe::{Client, ClientConfig, ClientError};
use std::net::SocketAddr;

/// Bytes of the headers of IP and UDP.
const OVERHEAD_BYTES_V4: u32 = 20 + 8;
const OVERHEAD_BYTES_V6: u32 = 40 + 8;

/// What a measurement found, and why it is not all that was asked for, if it is not.
pub(super) struct Measured {
    /// `None` if there is not a single trial.
    pub(super) report: Option<Report>,
    pub(super) failure: Option<Failure>,
}

pub(super) fn run(args: &ClientArgs, output: Output) -> Result<(), Failure> {
    upfront::check(args.csv.as_ref())?;
    upfront::check(args.plot.as_ref())?;
    interrupt::install()?;
    let Measured { report, failure } = measure(args, None, &interrupt::requested, output)?;
    if let Some(report) = &report {
        report.print(output)?;
        if let Some(path) = &args.csv {
            csv::write(path, report.trials())?;
            output.note(&format!("rows: {}", path.display()));
        }
        if let Some(path) = &args.plot {
            let title = format!("Drop rates to {}, {}", args.host, report.describe_trials());
            planner::draw_drops(path, &title, &report.drops(), &[])?;
            output.note(&format!("plot: {}", path.display()));
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Measures once. `stop` ends it early, with what there is until then; `wrap` goes around the
/// datapath of each socket.
pub(super) fn measure(
    args: &ClientArgs,
    wrap: Option<&Wrap>,
    stop: &dyn Fn() -> bool,
    output: Output,
) -> Result<Measured, Failure> {
    let mut addresses = reach::addresses(&args.host, stop)?;
    // A server listens on IPv4 unless it was told otherwise.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let Some(last) = addresses.len().checked_sub(1) else {
        return Err(Failure::Network(format!("{} has no address", args.host)));
    };
    for (index, server) in addresses.into_iter().enumerate() {
        let config = config(args, server);
        // What can be wrong at this end is wrong before anything is sent.
        config.validate().map_err(|error| Failure::Usage(error.to_string()))?;
        let run = measure_at(args, server, config, wrap, stop, output)?;
        let is_nobody = matches!(run.error(), Some(ClientError::Silent { was_heard: false, .. }));
        if is_nobody && index < last {
            output.note(&format!("{server} does not answer; trying the next address"));
            continue;
        }
        return Ok(run.into_measured(args));
    }
    Err(Failure::Network(format!("{} has no address", args.host)))
}

fn config(args: &ClientArgs, server: SocketAddr) -> ClientConfig {
    ClientConfig {
        nonce: purpose::random(),
        seed: purpose::random(),
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

/// A client that has come to its end.
struct Run {
    client: Client,
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
    let mut lanes = Lanes::open(server, args.flows, args.fragment, wrap)?;
    let clock = Clock::start();
    let mut client =
        Client::new(config, clock.now_ns()).map_err(|error| Failure::Usage(error.to_string()))?;
    let total_s = args.time.as_secs_f64() * f64::from(args.trials) * args.payload.len() as f64;
    output.note(&format!(
        "{server}: trials of {} at {}, {} at most",
        show_time(args.time.as_secs_f64()),
        show_rate(args.rate as f64),
        show_time(total_s),
    ));
    let bar = Bar::new(output);
    let mut told = Told::default();
    while !client.is_done() {
        lanes.turn(&mut client, clock)?;
        if stop() {
            client.stop(clock.now_ns());
        }
        told.tell(&client, overhead_bytes, args.rate, &bar);
        bar.update(&client.progress(clock.now_ns()));
    }
    bar.clear();
    Ok(Run { client, overhead_bytes, seconds: clock.now_ns() as f64 / 1e9 })
}

/// What a user was told already.
#[derive(Default)]
struct Told {
    trials: usize,
    has_mtu: bool,
}

impl Told {
    fn tell(&mut self, client: &Client, overhead_bytes: u32, rate: u64, bar: &Bar) {
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
        for trial in &client.trials()[self.trials..] {
            self.trials += 1;
            bar.note(&super::report::trial_line(trial, overhead_bytes, rate));
        }
    }
}

impl Run {
    fn error(&self) -> Option<&ClientError> {
        self.client.error()
    }

    fn into_measured(self, args: &ClientArgs) -> Measured {
        let host = &args.host;
        let failure = match self.client.error() {
            Some(ClientError::Silent { was_heard: false, .. }) => Some(Failure::Network(format!(
                "{host} said nothing for {} s: is lacuna probe server running there, on that port, \
                 and does UDP get through?",
                lacuna_probe::client::SILENCE_NS_MAX / 1_000_000_000
            ))),
            Some(error @ ClientError::NothingFits { .. }) => {
                Some(Failure::Usage(format!("{error}: choose a smaller --payload, or --fragment")))
            }
            Some(error @ ClientError::TooLong { .. }) => Some(Failure::Network(format!(
                "{host} refused: {error} (its --max-time): use fewer --trials or less --time"
            ))),
            Some(error @ ClientError::Busy) => {
                Some(Failure::Network(format!("{host} refused: {error}; try again later")))
            }
            Some(error) => Some(Failure::Network(format!("{host}: {error}"))),
            None if self.client.is_stopped() => Some(Failure::Interrupted),
            None => None,
        };
        let interrupted = failure.is_some();
        let report =
            Report::new(args, &self.client, self.overhead_bytes, self.seconds, interrupted);
        Measured { report, failure }
    }
}
