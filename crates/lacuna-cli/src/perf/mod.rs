//! `lacuna perf`: throughput and completion times between two hosts, in the manner of
//! `ib_write_bw`.
//!
//! A session has two connections: a reliable one announces the measurement and returns the server's
//! counters; the other is measured, in the requested mode. With `--mode raw` nothing is repaired
//! and the server only polls the bitmap, as in the paper's benchmark (SDR-RDMA 5.4.1).

mod client;
mod cpu;
mod give_up;
mod pattern;
mod protocol;
mod receiving;
mod report;
mod sending;
mod server;
mod session;
#[cfg(test)]
mod tests;

use crate::capture::CaptureArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::pace::PaceArgs;
use crate::{address, interrupt, listening, modes, units};
use clap::{Args, Subcommand};
use lacuna::{DatapathKind, Mode, Progress};
use server::{Server, Settings};
use std::net::SocketAddr;
use std::time::Duration;

/// Where a server listens unless told otherwise.
const PORT: u16 = 7402;
/// Most messages per run: the time of each is kept in memory.
const COUNT_MAX: u64 = 1_000_000_000;

const EXAMPLES: &str = "\
Examples:
  lacuna perf server                on one machine, for as many clients as come
  lacuna perf client HOST           on the other: 8 MiB messages for 5 s";

const SERVER_EXAMPLES: &str = "\
Examples:
  lacuna perf server                           port 7402, IPv6 and IPv4, until Ctrl-C
  lacuna perf server --once --listen 81        one client, another port
  lacuna perf server --listen 0.0.0.0:7402     over IPv4 alone";

const CLIENT_EXAMPLES: &str = "\
Examples:
  lacuna perf client HOST                      8 MiB messages, 16 in flight, for 5 s
  lacuna perf client HOST -s 64KiB -n 1000     1000 messages of 64 KiB
  lacuna perf client HOST --mode raw           without repair: what the path delivers
  lacuna perf client HOST:81 --validate --json every byte checked, the result for a script";

/// Measure throughput and completion times between two machines.
///
/// Start `lacuna perf server` on one, `lacuna perf client HOST` on the other.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    side: Side,
}

/// Each is described where its arguments are.
#[derive(Debug, Subcommand)]
enum Side {
    Server(ServerArgs),
    Client(Box<ClientArgs>),
}

/// What both ends may choose.
#[derive(Debug, Args)]
struct EndArgs {
    /// Sockets, each with its own 4-tuple: as many as both ends ask for, 16 at most
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = units::count(1..=16u8))]
    channels: u8,
    /// Who makes progress: threads, or this program's own calls
    #[arg(long, default_value = "threads", value_parser = ["threads", "manual"])]
    progress: String,
    /// How long a thread looks for work before it sleeps
    #[arg(long, default_value = "20us", value_name = "TIME", value_parser = units::duration)]
    spin: Duration,
    /// Send and receive one packet a call, without the kernel's offloads
    #[arg(long)]
    no_offload: bool,
    #[command(flatten)]
    capture: CaptureArgs,
}

impl EndArgs {
    fn progress(&self) -> Progress {
        match self.progress.as_str() {
            "manual" => Progress::Manual,
            _ => Progress::Threads { workers: 0, spin: self.spin },
        }
    }

    fn datapath(&self) -> DatapathKind {
        if self.no_offload { DatapathKind::UdpPlain } else { DatapathKind::Udp }
    }
}

/// Wait for clients and take what they send.
///
/// Ends by Ctrl-C, or with --once after a client. Several clients may measure at once; they share this machine and the path,
/// and one too many is told that the server is busy.
#[derive(Debug, Args)]
#[command(
    after_help = SERVER_EXAMPLES,
    after_long_help = [SERVER_EXAMPLES, address::LISTEN_HELP, units::HELP].join("\n\n")
)]
struct ServerArgs {
    /// Where to listen: ADDRESS:PORT, or a port alone for all addresses,
    /// IPv6 and IPv4; port 0 takes any and prints it
    #[arg(
        long,
        default_value = "[::]:7402",
        value_name = "ADDRESS:PORT",
        value_parser = |text: &str| address::at(text, PORT)
    )]
    listen: SocketAddr,
    /// Clients at a time, 64 at most
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = units::count(1..=64u8))]
    clients: u8,
    /// End after one client, with its result
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    end: EndArgs,
}

/// Send to a server and report.
///
/// Rate and time are of the messages alone, after a warm-up: from posting a
/// message until the server has it. With --mode raw nothing is repaired; the
/// server counts what is missing, and the rate is of what arrived.
#[derive(Debug, Args)]
#[command(
    after_help = CLIENT_EXAMPLES,
    after_long_help = [CLIENT_EXAMPLES, address::HELP, units::HELP].join("\n\n")
)]
struct ClientArgs {
    /// The server: HOST or HOST:PORT (7402 if none is given)
    #[arg(value_parser = |text: &str| address::to(text, PORT))]
    host: String,
    /// Bytes per message
    #[arg(long, short, default_value = "8MiB", value_parser = units::some_bytes)]
    size: u64,
    /// Messages to send; without it, as many as --duration allows
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = units::count(1..=COUNT_MAX))]
    iters: Option<u64>,
    /// How long messages are begun; at least until one of the warm-up and one more have arrived
    #[arg(
        long,
        short = 'D',
        default_value = "5s",
        value_name = "TIME",
        value_parser = units::some_duration
    )]
    duration: Duration,
    /// Messages before the measurement begins
    #[arg(long, default_value_t = 16, value_name = "COUNT", value_parser = units::count(0..=COUNT_MAX))]
    warmup: u64,
    /// Bytes per chunk, rounded up to whole packets: what a lost packet costs to repair;
    /// one packet if not given
    #[arg(long, value_name = "SIZE", value_parser = units::some_bytes)]
    chunk: Option<u64>,
    /// Payload bytes per packet; found by probing if not given
    #[arg(long, short, value_name = "SIZE", value_parser = units::packet_bytes)]
    mtu: Option<u32>,
    /// Messages in flight, 1024 at most
    #[arg(long, short = 't', default_value_t = 16, value_name = "COUNT", value_parser = units::count(1..=1024u32))]
    inflight: u32,
    /// Reliability; auto measures the path and says what it chose
    #[arg(long, default_value = "auto", value_parser = modes::parser())]
    mode: Mode,
    #[command(flatten)]
    pace: PaceArgs,
    /// Fill every message anew and check every byte at the server
    #[arg(long)]
    validate: bool,
    #[command(flatten)]
    end: EndArgs,
}

pub(crate) fn run(args: &PerfArgs, output: Output) -> Result<(), Failure> {
    match &args.side {
        Side::Server(args) => {
            interrupt::install()?;
            let stop = Box::new(interrupt::requested);
            let server = Server::open(args, Settings::new(args), None, output, stop)?;
            listening::tell(output, server.local_addr(), "tcp", "")?;
            let (capture, ended) = (server.capture().clone(), server.run());
            drop(server);
            capture.conclude(ended, output)
        }
        Side::Client(args) => client::run(args, output),
    }
}
