//! `lacuna`: real data over lossy long paths, from the command line.

mod failure;
mod output;
mod units;

mod demo;
mod perf;
mod transfer;

use clap::{ArgAction, Args, Parser, Subcommand};
use output::Output;
use std::process::ExitCode;

/// RDMA-style transport with software-defined reliability over plain UDP.
///
/// No root, no RDMA card, no GPU. Start with `lacuna demo`: it moves real data
/// over a lossy long path on this machine and shows every mode side by side.
#[derive(Debug, Parser)]
#[command(
    name = "lacuna",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Quantities have units: 64MiB, 1gbit, 25ms, 1e-3 or 0.1%.
Exit codes: 0 success, 2 usage, 3 network or peer, 4 wrong data, 5 this machine, 130 interrupted.";

/// Options of every command.
#[derive(Debug, Args)]
struct Common {
    /// Print one JSON object per result on standard output
    #[arg(long, global = true)]
    json: bool,
    /// No progress and no notes on standard error
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Log more to standard error (-v, -vv); RUST_LOG overrides
    #[arg(long, short, global = true, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Move real data over an impaired path on this machine, every mode side by side
    Demo(demo::DemoArgs),
    /// Send files and folders to a receiver
    Send(transfer::SendArgs),
    /// Receive files and folders
    Recv(transfer::RecvArgs),
    /// Measure throughput and completion times between two machines
    Perf(perf::PerfArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(cli.common.verbose);
    let output = Output { json: cli.common.json, quiet: cli.common.quiet };
    let result = match cli.command {
        Command::Demo(args) => demo::run(&args, output),
        Command::Send(args) => transfer::send(&args, output),
        Command::Recv(args) => transfer::recv(&args, output),
        Command::Perf(args) => perf::run(&args, output),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("lacuna: {failure}");
            failure.exit_code()
        }
    }
}

fn start_log(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
