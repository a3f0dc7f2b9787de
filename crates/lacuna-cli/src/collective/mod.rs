//! `lacuna collective`: operations between ranks, measured.

mod data;
mod local;
mod losses;
mod measure;
mod report;

use crate::failure::Failure;
use crate::output::Output;
use crate::trust::{self, TrustArgs};
use crate::units;
use crate::{interrupt, modes, pace};
use clap::{Args, Subcommand, ValueEnum};
use lacuna::datapath::{Impairment, Loss};
use lacuna::rc::Repair;
use lacuna::{ControllerKind, Mode, ScopedIp};
use lacuna_collective::{Algorithm, Element, Encode, Op, Rule, Transport};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lacuna collective bench --ranks 4                 four processes on this machine
  lacuna collective bench --ranks 4 --rate 1gbit --rtt 40ms --loss 1e-3 -b 16M -e 16M
                                                    the same, far apart
  lacuna collective bench --ranks 4 --mode bounded --budget 200ms --rate 1gbit --loss 1%
                                                    in time, with what is there by then
  lacuna collective bench --ranks 4 --mode bounded --budget 10s --loss 1% -e 1M --encode hadamard
                                                    the same losses hurt no block much: compare the column
                                                    \"worst\" with that of a run without --encode
  lacuna collective bench --ranks 4 --mode bounded --budget adaptive --loss 1% -e 1M --loss-log lost.jsonl
  lacuna collective bench --ranks 4 --mode bounded --budget 10s -e 1M --replay lost.jsonl
                                                    logs what each receive lost, then loses the same again
  torchrun --nnodes 4 --no-python lacuna collective bench
                                                    one process per host: RANK, WORLD_SIZE, MASTER_ADDR
                                                    and MASTER_PORT say who and where

Columns are those of nccl-tests: algbw is size / time, busbw what the busiest rank sends and receives
(all-reduce: algbw x 2 (n - 1) / n). #wrong counts elements that are neither right nor told to be missing;
encoded ones are right within rounding. In time, mse is the squared error of the results over their square, worst that of
the worst block of 1,024 elements.";

/// Operations between ranks: all-reduce and its kin.
#[derive(Debug, Args)]
pub(crate) struct CollectiveArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(Box<BenchArgs>),
}

/// Operations that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Reduce,
    AllToAll,
}

/// Measure collective operations, and check their results.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = [EXAMPLES, trust::HELP, units::HELP].join("\n\n"))]
pub(crate) struct BenchArgs {
    /// The operation
    #[arg(long, value_enum, default_value = "all-reduce")]
    op: What,
    /// Smallest size; of all-gather and reduce-scatter, of all ranks together
    #[arg(short = 'b', long, default_value = "1MiB", value_parser = units::some_bytes)]
    begin: u64,
    /// Largest size
    #[arg(short = 'e', long, default_value = "64MiB", value_parser = units::some_bytes)]
    end: u64,
    /// From one size to the next
    #[arg(short = 'f', long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    factor: u64,
    /// Operations of each size that are measured
    #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Operations of each size before those
    #[arg(short = 'w', long, default_value_t = 5)]
    warmup: u32,
    /// Type of the elements: i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64
    #[arg(long = "type", default_value = "f32", value_parser = element)]
    element: Element,
    /// How elements are reduced: sum average product min max
    #[arg(long, default_value = "sum", value_parser = reduction)]
    reduce: Op,
    /// Schedule: ring, doubling, halving, tree, transpose, cube:RADIX, direct [default: by size and round trips]
    #[arg(long, value_parser = algorithm)]
    algorithm: Option<Algorithm>,
    /// What is done about gaps
    #[arg(long, default_value = "auto", value_parser = modes::parser())]
    mode: Mode,
    /// What carries messages: sdr, or reliable connections as RDMA cards have them, with go-back-N (rc) or selective
    /// repeat (rc:sr), to compare
    #[arg(long, default_value = "sdr", value_parser = transport)]
    qp: Transport,
    /// Congestion control; fixed if a --pace is given, else bbr
    #[arg(long, value_parser = pace::parser(), value_name = "NAME")]
    cc: Option<ControllerKind>,
    /// Each rank sends to each other one at this rate, instead of finding one. With another --cc than fixed, only begin at
    /// it
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    pace: Option<u64>,
    /// Time for an operation, after which it goes on with what is there: a time, or adaptive, which is learned from the
    /// first operations (adaptive:optinic, adaptive:celeris, adaptive:celeris-deviation by these papers' rules); needs
    /// --mode bounded
    #[arg(long, value_parser = limit)]
    budget: Option<Limit>,
    /// Encode what is sent, so that a lost packet makes many blocks a little wrong instead of zeroing some elements:
    /// hadamard, hadamard:STRIDE or hadamard:STRIDE:BLOCK, where STRIDE blocks of BLOCK elements share packets [default:
    /// 64, 1024]; for sums and averages of f32, f16 or bf16, all-gather and broadcast
    #[arg(long, value_name = "CODE", value_parser = encode)]
    encode: Option<Encode>,
    /// Write what each operation lost, as a line of JSON per operation and rank: the byte ranges of each receive, and the
    /// contributions that the result lacks; needs --budget
    #[arg(long, value_name = "FILE")]
    loss_log: Option<PathBuf>,
    /// Lose the bytes that a log has: the same operations, given by the same options, lose the same ranges, and their
    /// results are compared; needs --budget, long enough that nothing else is lost
    #[arg(long, value_name = "FILE", conflicts_with = "loss")]
    replay: Option<PathBuf>,
    /// Start so many processes on this machine, rather than be one of several
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    ranks: Option<u16>,
    /// Rate of each process's path, with --ranks
    #[arg(long, value_parser = units::rate, requires = "ranks")]
    rate: Option<u64>,
    /// Round-trip time of the path between two processes, with --ranks
    #[arg(long, default_value = "0ms", value_parser = units::duration)]
    rtt: Duration,
    /// Share of packets that a process's path loses, with --ranks
    #[arg(long, default_value = "0", value_parser = units::fraction)]
    loss: f64,
    /// Mean burst of losses, in packets
    #[arg(long, default_value_t = 1.0)]
    burst: f64,
    /// Local address of the sockets [default: all, or loopback with --ranks]
    #[arg(long)]
    bind: Option<IpAddr>,
    /// The address that other ranks reach this one at [default: the one that rank 0 sees]
    #[arg(long)]
    announce: Option<IpAddr>,
    /// How long to wait for the other ranks
    #[arg(long, default_value = "60s", value_parser = units::some_duration)]
    timeout: Duration,
    /// Do not check the results
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    trust: TrustArgs,
}

/// What `--budget` says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    Fixed(Duration),
    Adaptive(Rule),
}

fn limit(text: &str) -> Result<Limit, String> {
    let Some(rule) = text.strip_prefix("adaptive") else {
        return units::some_duration(text).map(Limit::Fixed);
    };
    let rules = [Rule::default(), Rule::OptiNic, Rule::Celeris, Rule::CelerisDeviation];
    let found = match rule.strip_prefix(':') {
        None if rule.is_empty() => Some(Rule::default()),
        None => None,
        Some(name) => rules.into_iter().find(|rule| rule.name() == name),
    };
    found.map(Limit::Adaptive).ok_or_else(|| {
        let names = rules.map(|rule| format!("adaptive:{}", rule.name()));
        format!("use a time, adaptive, or {}", names.join(", "))
    })
}

fn transport(text: &str) -> Result<Transport, String> {
    match text {
        "sdr" => Ok(Transport::Sdr),
        "rc" | "rc:gbn" => Ok(Transport::Rc(Repair::GoBackN)),
        "rc:sr" => Ok(Transport::Rc(Repair::SelectiveRepeat)),
        _ => Err("use sdr, rc or rc:sr".to_owned()),
    }
}

fn element(text: &str) -> Result<Element, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn reduction(text: &str) -> Result<Op, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn encode(text: &str) -> Result<Encode, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    const NAMES: &str = "ring, doubling, halving, tree, transpose, cube:RADIX, direct";
    Ok(match text {
        "ring" => Algorithm::Ring,
        "doubling" => Algorithm::Doubling,
        "halving" => Algorithm::Halving,
        "tree" => Algorithm::Tree,
        "transpose" => Algorithm::Transpose,
        "direct" => Algorithm::Direct,
        other => {
            let radix = other.strip_prefix("cube:").and_then(|radix| radix.parse().ok());
            let radix = radix.filter(|radix| *radix >= 2);
            Algorithm::Cube { radix: radix.ok_or_else(|| format!("use {NAMES}"))? }
        }
    })
}

impl BenchArgs {
    fn check(&self) -> Result<(), Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        if self.end < self.begin {
            return usage("the largest size is less than the smallest: choose a larger -e".into());
        }
        let is_bounded = matches!(self.mode, Mode::Bounded(_));
        match self.budget {
            Some(_) if !is_bounded => {
                return usage("a budget ends operations in time: add --mode bounded".into());
            }
            None if is_bounded => {
                return usage(
                    "mode bounded needs to know when to end: add --budget adaptive, or a time"
                        .into(),
                );
            }
            _ => {}
        }
        if !self.mode.is_reliable() && !is_bounded {
            return usage(format!(
                "mode {} repairs nothing and ends nothing: use a reliable mode, or bounded",
                self.mode
            ));
        }
        if self.cc == Some(ControllerKind::Fixed) && self.pace.is_none() {
            return usage("--cc fixed needs a --pace; or leave it, and bbr finds one".into());
        }
        if self.qp != Transport::Sdr && is_bounded {
            return usage("reliable connections end nothing in time: leave --mode, or --qp".into());
        }
        let has_log = self.loss_log.is_some() || self.replay.is_some();
        if has_log && !is_bounded {
            let text = "a reliable mode loses nothing: add --mode bounded --budget 10s";
            return usage(text.into());
        }
        if self.loss_log.is_some() && self.loss_log == self.replay {
            return usage(
                "--loss-log would overwrite what --replay reads: use another file".into(),
            );
        }
        if let Some(path) = &self.replay {
            // Once, rather than by each process.
            let opened = std::fs::File::open(path);
            opened.map_err(|error| Failure::Local(format!("{}: {error}", path.display())))?;
        }
        if let Some(encode) = &self.encode {
            let plan = data::Plan::new(self.op, 1, self.element.size_bytes(), 0, 1);
            let check = encode.check(&plan.collective, self.element, self.reduce);
            check.map_err(|error| Failure::Usage(error.to_string()))?;
        }
        if self.ranks.is_none() && (self.loss > 0.0 || !self.rtt.is_zero()) {
            return usage("only paths of processes that --ranks starts are emulated".into());
        }
        self.impairment().map(drop)
    }

    /// What the path of a process does to what it sends; nothing if nothing was asked for.
    fn impairment(&self) -> Result<Option<Impairment>, Failure> {
        if self.rate.is_none() && self.loss == 0.0 && self.rtt.is_zero() {
            return Ok(None);
        }
        let loss = match self.loss {
            0.0 => Loss::None,
            loss => Loss::bursts(loss, self.burst).map_err(|error| {
                Failure::Usage(format!("{error}: choose less --loss or a longer --burst"))
            })?,
        };
        let impairment = Impairment {
            loss,
            delay_ns: (self.rtt / 2).as_nanos() as u64,
            rate_bits_per_s: self.rate,
            ..Impairment::default()
        };
        impairment.validate().map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Some(impairment))
    }

    fn bind(&self) -> ScopedIp {
        match self.bind {
            Some(ip) => ip.into(),
            None if self.ranks.is_some() => std::net::Ipv4Addr::LOCALHOST.into(),
            None => ScopedIp::ANY,
        }
    }
}

pub(crate) fn run(args: &CollectiveArgs, output: Output) -> Result<(), Failure> {
    let Command::Bench(args) = &args.command;
    args.check()?;
    interrupt::install()?;
    match args.ranks {
        Some(ranks) if !local::is_child() => local::start(ranks, output),
        _ => measure::run(args, output),
    }
}
