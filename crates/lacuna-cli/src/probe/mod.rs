//! `lacuna probe`: measures what a path does to packets between two hosts (SDR-RDMA, figure 2 and
//! artifact A3, without `iperf3`).
//!
//! The measurement itself is `lacuna-probe`, which has no sockets; this module adds sockets, a
//! clock, the host's counters, and output. Both ends use the transport's own datapath, so an
//! emulated path can be put around it.

mod client;
mod csv;
mod host;
mod progress;
mod refusals;
mod report;
mod row;
mod server;
mod sockets;
#[cfg(test)]
mod tests;

use crate::capture::{Capture, CaptureArgs, Captures};
use crate::failure::Failure;
use crate::output::Output;
use crate::{address, interrupt, listening, units};
use clap::{Args, Subcommand};
use server::Server;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where a server listens unless told otherwise.
const PORT: u16 = 7403;
/// Longest that a server serves a client.
const SESSION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Trials of each payload size: a week of short ones.
const TRIALS_MAX: u32 = 100_000;

const EXAMPLES: &str = "\
Examples:
  lacuna probe server               on one machine
  lacuna probe client HOST          on the other: about a minute at 10 Mbit/s";

const SERVER_EXAMPLES: &str = "\
Examples:
  lacuna probe server                       UDP port 7403, IPv6 and IPv4, until Ctrl-C
  lacuna probe server --once --listen 81    one client, another port
  lacuna probe server --listen 0.0.0.0:7403 over IPv4 alone";

const CLIENT_EXAMPLES: &str = "\
Examples:
  lacuna probe client HOST                                 1, 2, 4 and 8 KiB, three trials of each
  lacuna probe client HOST --json > path.json              the result for a script, and for
  lacuna plan --from path.json --size 1GiB                 what to do about it
  lacuna probe client HOST --rate 1gbit --flows 16 --trials 200 --time 15s --csv drops.csv
  lacuna figures 2 --probe drops.csv --out figures         figure 2 of the SDR paper, of your path";

/// Measure what a path does to packets: loss and bursts, round trips, reordering, rate, MTU.
///
/// Start `lacuna probe server` on one machine, `lacuna probe client HOST` on the other. Everything
/// but the round trips is about the way from the client to the server.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProbeArgs {
    #[command(subcommand)]
    side: Side,
}

/// Each is described where its arguments are.
#[derive(Debug, Subcommand)]
enum Side {
    Server(ServerArgs),
    Client(Box<ClientArgs>),
}

/// Wait for clients and count what arrives.
///
/// Ends by Ctrl-C, or with --once after a client. Who has not shown that packets reach it gets no
/// answer that is longer than what it sent. Clients that measure at the same time disturb each
/// other, so one more than --clients is told that the server is busy.
#[derive(Debug, Args)]
#[command(
    after_help = SERVER_EXAMPLES,
    after_long_help = [SERVER_EXAMPLES, address::LISTEN_HELP, units::HELP].join("\n\n")
)]
struct ServerArgs {
    /// Where to listen (UDP): ADDRESS:PORT, or a port alone for all addresses,
    /// IPv6 and IPv4; port 0 takes any and prints it
    #[arg(
        long,
        default_value = "[::]:7403",
        value_name = "ADDRESS:PORT",
        value_parser = |text: &str| address::at(text, PORT)
    )]
    listen: SocketAddr,
    /// Clients at a time, 16 at most
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = units::count(1..=16u8))]
    clients: u8,
    /// How long a client may be served, 7d at most
    #[arg(long, default_value = "12h", value_name = "TIME", value_parser = session)]
    max_time: Duration,
    /// End after one client
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    capture: CaptureArgs,
}

/// Send trials of packets to a server, and report what became of them.
///
/// Trials of all payload sizes take turns. Each number comes with its 95 % confidence interval;
/// that of the loss counts bursts, and trials that differ, as less than so many packets. A trial
/// during which a host itself dropped packets (socket, kernel or card) or refused them (a firewall,
/// no route) is marked and left out. What ends it early leaves the trials that were finished.
///
/// The rate is never exceeded; headers of IP and UDP count. Packets are never fragmented, so sizes
/// that the path does not take are left out, unless --fragment is given. With --json the result
/// has the fields that `lacuna plan --from` reads; its rate is what was delivered at the --rate
/// asked for, so plan with --rate if the link can do more.
#[derive(Debug, Args)]
#[command(
    after_help = CLIENT_EXAMPLES,
    after_long_help = [CLIENT_EXAMPLES, address::HELP, units::HELP].join("\n\n")
)]
struct ClientArgs {
    /// The server: HOST or HOST:PORT (7403 if none is given)
    #[arg(value_parser = |text: &str| address::to(text, PORT))]
    host: String,
    /// Send at this rate, in bits, and never faster
    #[arg(long, default_value = "10mbit", value_parser = units::rate)]
    rate: u64,
    /// UDP payload of the packets, several separated by commas
    #[arg(
        long,
        short = 's',
        default_value = "1KiB,2KiB,4KiB,8KiB",
        value_name = "SIZES",
        value_delimiter = ',',
        value_parser = payload
    )]
    payload: Vec<u32>,
    /// Sockets that take turns, each with its own 4-tuple, 64 at most
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = units::count(1..=lacuna_probe::FLOWS_MAX))]
    flows: u16,
    /// Trials of each payload size
    #[arg(long, short = 'n', default_value_t = 3, value_name = "COUNT", value_parser = units::count(1..=TRIALS_MAX))]
    trials: u32,
    /// How long a trial is, 1h at most
    #[arg(long, short = 'D', default_value = "5s", value_name = "TIME", value_parser = trial)]
    time: Duration,
    /// Also send sizes above the path's MTU, cut up by IP: a lost piece loses the packet
    #[arg(long)]
    fragment: bool,
    /// Write a row per trial; fields that iperf3 has, too, have its names
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the drop rates of the trials by payload size, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    capture: CaptureArgs,
}

fn payload(text: &str) -> Result<u32, String> {
    let range = lacuna_probe::PAYLOAD_BYTES_MIN.into()..=lacuna_probe::PAYLOAD_BYTES_MAX.into();
    let bytes = units::bytes_within(text, &range)?;
    u32::try_from(bytes).map_err(|_| format!("{text} is out of range"))
}

fn trial(text: &str) -> Result<Duration, String> {
    match units::some_duration(text)? {
        time if time.as_nanos() > lacuna_probe::TRIAL_NS_MAX.into() => {
            Err(format!("\"{text}\" is out of range: use 1h at most, and more --trials"))
        }
        time => Ok(time),
    }
}

fn session(text: &str) -> Result<Duration, String> {
    match units::some_duration(text)? {
        time if time > SESSION_MAX => Err(format!("\"{text}\" is out of range: use 7d at most")),
        time => Ok(time),
    }
}

pub(crate) fn run(args: &ProbeArgs, output: Output) -> Result<(), Failure> {
    match &args.side {
        Side::Server(args) => {
            interrupt::install()?;
            let capture = Capture::open(&args.capture, Captures::Probes, output)?;
            let wrap = capture.around(None);
            let mut server = Server::open(args, wrap.as_ref(), output)?;
            listening::tell(output, server.local_addr(), "udp", "")?;
            capture.conclude(server.run(&interrupt::requested), output)
        }
        Side::Client(args) => client::run(args, output),
    }
}
