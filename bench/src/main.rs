//! The benchmarks: Lacuna beside the kernel's own limit and beside what one
//! could use instead. See README.md.

mod bare;
mod cell;
mod completions;
mod contestant;
mod count;
mod deadlines;
mod engine;
mod hadamard;
mod handshakes;
mod heap;
mod iwarp;
mod machine;
mod meter;
mod pin;
mod report;
mod run;
mod scale;
mod verbs;
mod wan;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

#[derive(Debug, Parser)]
#[command(about = "Measure Lacuna beside the kernel's limit and other transports")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run cells of cells.toml and compare with the goals kept there
    Run(RunArgs),
    /// Race over an emulated long path: Lacuna and what people use
    Wan(wan::WanArgs),
    /// Measure the bitmap engine alone, packets fed from memory
    Engine {
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// One JSON object per point
        #[arg(long)]
        json: bool,
    },
    /// Measure the completion queue alone: an empty poll, a completion, across cores
    Completions {
        #[arg(long, default_value_t = 11)]
        rounds: u32,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Measure the Hadamard transform beside plain radix 2, in cache and from memory
    Hadamard {
        #[arg(long, default_value_t = 11)]
        rounds: u32,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Measure how late bounded operations end, and critical messages behind bulk, in real time
    Deadlines(deadlines::DeadlinesArgs),
    /// Connect while others flood the listener with half-open exchanges
    Handshakes(handshakes::HandshakesArgs),
    /// Measure the verbs beside each other: bulk sends, writes and reads, and small ones back and forth
    Verbs {
        #[arg(long, default_value_t = 11)]
        rounds: u32,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Measure datagram queue pairs beside iWARP over TCP: latency, rates, many peers
    Iwarp(iwarp::IwarpArgs),
    /// Measure what a packet costs as slots, queue pairs or message bytes grow
    Scale {
        /// Settings whose names begin with one of these, as in "queue pairs 10", or
        /// "memory"; all without
        only: Vec<String>,
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// One JSON object per setting
        #[arg(long)]
        json: bool,
    },
    /// Count instructions per packet and compare with instructions.json
    Count {
        /// Write the counts down instead
        #[arg(long)]
        update: bool,
        /// Growth that fails, as a share
        #[arg(long, default_value_t = 0.10)]
        tolerance: f64,
    },
    /// Be an end of the race, in a host
    #[command(hide = true)]
    WanEnd { order: String },
    /// Be the listener that is flooded
    #[command(hide = true)]
    Listen,
    /// Pin this process to a core, then become another program
    #[command(hide = true)]
    Pinned {
        core: usize,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        program: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Cells whose names contain one of these; all without
    cells: Vec<String>,
    /// Only these contestants
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How often each contestant runs
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Core of the sending end
    #[arg(long)]
    send_core: Option<usize>,
    /// Core of the receiving end
    #[arg(long)]
    receive_core: Option<usize>,
    /// The `lacuna` command; built from this checkout if not given
    #[arg(long)]
    lacuna: Option<PathBuf>,
    /// Keep raw results, table and picture in this folder
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match Cli::parse().task.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lacuna-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Task {
    fn run(self) -> Result<()> {
        match self {
            Self::Run(args) => run_cells(&args),
            Self::Wan(args) => wan::run(&args),
            Self::WanEnd { order } => wan::end::run(&order),
            Self::Engine { rounds, json } => engine::run(rounds, json),
            Self::Completions { rounds, json } => completions::run(rounds, json),
            Self::Hadamard { rounds, json } => hadamard::run(rounds, json, hadamard::Effort::FULL),
            Self::Deadlines(args) => deadlines::run(&args),
            Self::Handshakes(args) => handshakes::run(&args),
            Self::Listen => handshakes::listen(),
            Self::Verbs { rounds, json } => verbs::run(rounds, json, verbs::Effort::FULL),
            Self::Iwarp(args) => iwarp::run(&args),
            Self::Scale { only, rounds, json } => scale::run(&only, rounds, json),
            Self::Count { update, tolerance } => {
                ensure!(count::is_available(), "valgrind is not installed (Debian: valgrind)");
                let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
                let manifest = folder.join("Cargo.toml");
                let counted = build(&manifest, &["--bin", "lacuna-counted"])?;
                count::run(&counted, &folder.join("instructions.json"), tolerance, update)
            }
            Self::Pinned { core, program } => pin::become_pinned(core, &program),
        }
    }
}

fn run_cells(args: &RunArgs) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds must be 1 or more");
    ensure!(args.seconds > 0.0 && args.seconds < 3600.0, "--seconds must be above 0");
    let suite = cell::Suite::ours()?;
    let cores = pin::allowed()?;
    ensure!(cores.len() >= 2, "two cores are needed: one for each end");
    let place = contestant::Place {
        send_core: args.send_core.unwrap_or(cores[1]),
        receive_core: args.receive_core.unwrap_or(cores[0]),
        duration: Duration::from_secs_f64(args.seconds),
        lacuna: match &args.lacuna {
            Some(path) => path.clone(),
            None => build_lacuna()?,
        },
    };
    let results = run::run(&suite, &args.cells, &args.only, args.rounds, &place)?;
    print!("{}", report::table(&results, &suite));
    match &args.out {
        Some(folder) => report::keep(&results, &suite, folder),
        None => Ok(()),
    }
}

/// Builds the command from the checkout that this program was built from.
fn build_lacuna() -> Result<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    build(&root.join("Cargo.toml"), &["-p", "lacuna-cli"])
}

/// Builds one program of a workspace, with the target directory that `cargo run` has here, and
/// returns where it is.
fn build(manifest: &Path, which: &[&str]) -> Result<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--message-format=json"])
        .arg("--manifest-path")
        .arg(manifest)
        .args(which)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "building {} failed", which.join(" "));
    let messages = String::from_utf8(output.stdout)?;
    let path = messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    path.context("cargo named no executable")
}
