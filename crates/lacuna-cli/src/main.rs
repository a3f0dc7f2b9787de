//! `lacuna`: real data over lossy long paths, from the command line.

mod address;
mod capture;
mod chunks;
mod failure;
mod interrupt;
mod listening;
mod memory;
mod modes;
mod output;
mod pace;
mod units;
mod upfront;
mod wire;

mod collective;
mod demo;
mod ec_bench;
#[cfg(target_os = "linux")]
mod lowar;
mod perf;
mod planner;
mod probe;
mod reproduce;
mod transfer;
mod trust;
#[cfg(target_os = "linux")]
mod wan;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, Parser, Subcommand};
use failure::EXIT_CODES;
use output::{Output, complain};
use std::io::IsTerminal;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  lacuna demo                        real data over a lossy long path on this machine
  lacuna recv --dir inbox            files between two machines: on the one
  lacuna send big.tar folder HOST    and on the other
  lacuna perf server                 throughput between two machines: on the one
  lacuna perf client HOST            and on the other";

/// RDMA-style transport with software-defined reliability over plain UDP.
///
/// No root, no RDMA card, no GPU. Every command explains itself: -h shortly,
/// --help at length.
#[derive(Debug, Parser)]
#[command(
    name = "lacuna",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = EXAMPLES,
    after_long_help = [EXAMPLES, EXIT_CODES].join("\n\n")
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
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

/// Each is described where its arguments are.
#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Send(transfer::SendArgs),
    Recv(transfer::RecvArgs),
    /// The far end of a transfer over ssh, which `lacuna send` starts
    #[cfg(unix)]
    #[command(hide = true)]
    OverSsh,
    // Described where its arguments are.
    Perf(perf::PerfArgs),
    Collective(collective::CollectiveArgs),
    Probe(probe::ProbeArgs),
    Key(trust::KeyArgs),
    Model(planner::ModelArgs),
    Plan(planner::PlanArgs),
    Figures(planner::FiguresArgs),
    Reproduce(reproduce::ReproduceArgs),
    /// Measure the erasure codes against threads, beside other libraries
    EcBench(ec_bench::EcBenchArgs),
    // Described where its arguments are.
    #[cfg(target_os = "linux")]
    Lowar(lowar::LowarArgs),
    // Likewise.
    #[cfg(target_os = "linux")]
    Wan(Box<wan::WanArgs>),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    start_log(cli.common.verbose);
    let output = Output { json: cli.common.json, quiet: cli.common.quiet };
    let result = match cli.command {
        Command::Demo(args) => demo::run(&args, output),
        Command::Send(args) => transfer::send(&args, output),
        Command::Recv(args) => transfer::recv(&args, output),
        #[cfg(unix)]
        Command::OverSsh => transfer::over_ssh(output),
        Command::Perf(args) => perf::run(&args, output),
        Command::Collective(args) => collective::run(&args, output),
        Command::Probe(args) => probe::run(&args, output),
        Command::Key(args) => trust::run(&args, output),
        Command::Model(args) => planner::model(&args, output),
        Command::Plan(args) => planner::plan(&args, output),
        Command::Figures(args) => planner::figures(&args, output),
        Command::Reproduce(args) => reproduce::run(&args, output),
        Command::EcBench(args) => ec_bench::run(&args, output),
        #[cfg(target_os = "linux")]
        Command::Lowar(args) => lowar::run(&args, output),
        // It ends as the program that it ran.
        #[cfg(target_os = "linux")]
        Command::Wan(args) => match wan::run(&args, output) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure);
            failure.exit_code()
        }
    }
}

/// Help and version as they are; a command line that makes no sense in one line.
fn explain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Standard output may be closed.
            let _ = error.print();
        }
        _ => complain(format_args!("{} (--help explains)", one_line(&error.to_string()))),
    }
    ExitCode::from(error.exit_code() as u8)
}

/// The error and its tips, without usage and general advice.
fn one_line(text: &str) -> String {
    let said = text.strip_prefix("error: ").unwrap_or(text);
    let paragraphs = said.split("\n\n").enumerate();
    let kept = paragraphs.filter(|(index, paragraph)| *index == 0 || paragraph.contains("tip:"));
    let words = kept.flat_map(|(_, paragraph)| paragraph.split_whitespace());
    words.collect::<Vec<_>>().join(" ")
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
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // They would be printed with `eprintln!`, which panics if standard error is closed.
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_is_answered_in_one_line() {
        for (args, part) in [
            (&["lacuna", "fly"][..], "unrecognized subcommand 'fly'"),
            (&["lacuna", "demo", "--run", "1"], "similar argument exists: '--runs'"),
            (&["lacuna", "demo", "--mode", "magic"], "one of auto, raw, sr, sr:rto, ec"),
            (&["lacuna", "demo", "--mode", "ec:mds:200:56"], "200 + 56 is more than 255"),
            (&["lacuna", "perf", "client"], "not provided: <HOST>"),
        ] {
            let error = Cli::try_parse_from(args).expect_err("nonsense");
            let line = one_line(&error.to_string());
            assert!(line.contains(part) && !line.contains('\n'), "{line}");
            assert!(!line.contains("Usage:") && !line.contains("error:"), "{line}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn hosts_have_any_mtu_that_ip_has() {
        for mtu in ["576", "1450", "1422", "65535"] {
            let args = ["lacuna", "wan", "run", "--mtu", mtu, "--", "server", "--", "client"];
            if let Err(error) = Cli::try_parse_from(args) {
                panic!("{mtu}: {}", one_line(&error.to_string()));
            }
        }
    }
}
