//! `lacuna perf`: throughput and completion times between two machines, in the
//! manner of `ib_write_bw`.
//!
//! A session is two connections: one, reliable, says what is to be measured
//! and brings the server's counters back; the other is measured, in the mode
//! asked for. With `--mode raw` nothing is repaired and the server polls the
//! bitmap only, as the paper's benchmark does (SDR-RDMA 5.4.1).

mod client;
mod cpu;
mod pattern;
mod protocol;
mod report;
mod server;

use crate::failure::Failure;
use crate::output::Output;
use crate::units;
use clap::{Args, Subcommand};
use lacuna::{DatapathKind, Mode, Progress};
use std::net::SocketAddr;
use std::time::Duration;

/// Measure throughput and completion times between two machines.
///
/// Start `lacuna perf server` on one, `lacuna perf client HOST` on the other.
#[derive(Debug, Args)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    side: Side,
}

#[derive(Debug, Subcommand)]
enum Side {
    /// Wait for clients and take what they send
    Server(ServerArgs),
    /// Send to a server and report
    Client(Box<ClientArgs>),
}

/// What both ends may choose.
#[derive(Debug, Args)]
struct EndArgs {
    /// Sockets, each with its own 4-tuple
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    channels: u8,
    /// Who makes progress: threads, or this program's own calls
    #[arg(long, default_value = "threads", value_parser = ["threads", "manual"])]
    progress: String,
    /// How long a thread looks for work before it sleeps
    #[arg(long, default_value = "20us", value_parser = units::duration)]
    spin: Duration,
    /// Send and receive one packet a call, without the kernel's offloads
    #[arg(long)]
    no_offload: bool,
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
#[derive(Debug, Args)]
struct ServerArgs {
    /// Where to listen
    #[arg(long, default_value = "0.0.0.0:7402")]
    listen: SocketAddr,
    /// End after one client
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    end: EndArgs,
}

/// Send to a server and report.
#[derive(Debug, Args)]
struct ClientArgs {
    /// The server: HOST or HOST:PORT (7402 if none is given)
    host: String,
    /// Bytes per message
    #[arg(long, short, default_value = "8MiB", value_parser = units::bytes)]
    size: u64,
    /// Messages to send; without it, as many as --duration allows
    #[arg(long, short = 'n')]
    iters: Option<u64>,
    /// How long to send
    #[arg(long, short = 'D', default_value = "5s", value_parser = units::duration)]
    duration: Duration,
    /// Messages before the measurement begins
    #[arg(long, default_value_t = 16)]
    warmup: u64,
    /// Bytes per chunk, rounded up to whole packets
    #[arg(long, default_value = "64KiB", value_parser = units::bytes)]
    chunk: u64,
    /// Payload bytes per packet; found by probing if not given
    #[arg(long, short)]
    mtu: Option<u32>,
    /// Messages in flight
    #[arg(long, short = 't', default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    inflight: u32,
    /// Reliability: raw, sr, sr:rto
    #[arg(long, default_value = "sr")]
    mode: Mode,
    /// Send at this rate instead of probing for one
    #[arg(long, value_parser = units::rate)]
    rate: Option<u64>,
    /// Fill every message anew and check every byte at the server
    #[arg(long)]
    validate: bool,
    #[command(flatten)]
    end: EndArgs,
}

pub(crate) fn run(args: &PerfArgs, output: Output) -> Result<(), Failure> {
    match &args.side {
        Side::Server(args) => server::run(args, output),
        Side::Client(args) => client::run(args, output),
    }
}
