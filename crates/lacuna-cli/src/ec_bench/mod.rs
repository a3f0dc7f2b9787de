//! `lacuna ec-bench`: the cost of the erasure codes on this host, by number of threads, beside
//! other libraries (SDR-RDMA figure 11).
//!
//! A transport with parity must compute it at the rate of the link; the question is how many cores
//! that takes.

mod coder;
mod contenders;
mod isal;
mod measure;
mod plot;
mod reed_solomon_simd;
mod table;

use crate::failure::{Ending, Failure};
use crate::output::{Output, conclude};
use crate::{interrupt, units, upfront};
use clap::{Args, ValueEnum};
use coder::Shape;
use serde::Serialize;
use std::path::PathBuf;

/// Measure the erasure codes against threads, beside other libraries.
///
/// Encodes, folds in and repairs blocks of k data chunks and m parity chunks in
/// one buffer, each thread its own blocks. Everything is measured in turn,
/// several times over, and reported as the median; a plain copy of the same data
/// stands beside it as the measure of what the memory gives. LACUNA_EC_ENGINE
/// forces an engine.
#[derive(Debug, Args)]
pub(crate) struct EcBenchArgs {
    /// Data chunks per block
    #[arg(long, short, default_value_t = 32)]
    k: usize,
    /// Parity chunks per block
    #[arg(long, short, default_value_t = 8)]
    m: usize,
    /// Bytes per chunk
    #[arg(long, default_value = "64KiB", value_parser = units::bytes)]
    chunk: u64,
    /// Bytes of data, in whole blocks; 128 KiB stay in a core's cache
    #[arg(long, default_value = "128MiB", value_parser = units::bytes)]
    size: u64,
    /// Numbers of threads, as 1,2,4; up to one per core if not given
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
    /// Only these codes; all that this machine has if none is given
    #[arg(long = "code", value_name = "CODE")]
    codes: Vec<CodeName>,
    /// Only these operations; all if none is given
    #[arg(long = "op", value_name = "OP")]
    ops: Vec<Op>,
    /// Data chunks that a decode repairs; m if not given
    #[arg(long)]
    lost: Option<usize>,
    /// Every engine that this processor can run, not only the chosen one
    #[arg(long)]
    all_engines: bool,
    /// ISA-L's shared library, if it is not where the system looks
    #[arg(long, value_name = "FILE")]
    isal: Option<PathBuf>,
    /// Measurements of each case
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Where to write the plot; none is written if not given
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// Codes and libraries to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CodeName {
    /// A plain copy of the data: what the memory gives
    Copy,
    /// Lacuna's XOR code
    Xor,
    /// Lacuna's MDS code
    Mds,
    /// Intel's ISA-L, the same MDS code
    Isal,
    /// The Rust crate of this name, another MDS code
    ReedSolomonSimd,
}

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    /// The parity of whole blocks
    Encode,
    /// The same, folding in pieces of up to 4 KiB as they pass
    Update,
    /// The lost data chunks of each block
    Decode,
}

/// One row of the result.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    code: CodeName,
    engine: String,
    op: Op,
    k: usize,
    m: usize,
    chunk_bytes: usize,
    size_bytes: usize,
    threads: usize,
    /// 0 unless something is decoded.
    lost: usize,
    /// Measurements that this is the median of.
    rounds: usize,
    #[serde(flatten)]
    ending: Ending,
    /// Of data, the median.
    gbyte_per_s: f64,
    #[serde(skip)]
    slowest: f64,
    #[serde(skip)]
    fastest: f64,
}

impl CodeName {
    fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Xor => "xor",
            Self::Mds => "mds",
            Self::Isal => "isal",
            Self::ReedSolomonSimd => "reed-solomon-simd",
        }
    }
}

impl Op {
    const ALL: [Self; 3] = [Self::Encode, Self::Update, Self::Decode];

    fn name(self) -> &'static str {
        match self {
            Self::Encode => "encode",
            Self::Update => "update",
            Self::Decode => "decode",
        }
    }
}

pub(crate) fn run(args: &EcBenchArgs, output: Output) -> Result<(), Failure> {
    let threads = threads(args)?;
    let shape = shape(args, &threads)?;
    upfront::check(args.plot.as_ref())?;
    interrupt::install()?;
    let contenders = contenders::find(args, &shape, output)?;
    let ops = if args.ops.is_empty() { &Op::ALL[..] } else { &args.ops };
    output.note(&format!(
        "({}, {}), chunks of {}, {} of data in {} blocks, {} rounds",
        shape.k,
        shape.m,
        units::show_bytes(shape.chunk_bytes as u64),
        units::show_bytes(shape.size_bytes() as u64),
        shape.blocks,
        args.rounds
    ));
    let stop = &interrupt::requested;
    let (rows, ended) = measure::all(&shape, &contenders, ops, &threads, args.rounds, stop)?;
    let told = tell(args, &rows, ended.is_some(), output);
    conclude(ended, told)
}

fn tell(
    args: &EcBenchArgs,
    rows: &[Row],
    is_interrupted: bool,
    output: Output,
) -> Result<(), Failure> {
    if output.json {
        rows.iter().try_for_each(|row| output.object(row))?;
    } else if !rows.is_empty() {
        output.line(&table::render(rows))?;
    }
    if is_interrupted {
        if !output.json {
            let least = rows.iter().map(|row| row.rounds).min().unwrap_or(0);
            output.line(&format!(
                "interrupted; {} measured, {least} of {} rounds at least",
                units::show_count(rows.len() as u64, "case"),
                args.rounds
            ))?;
        }
        return Ok(());
    }
    if let Some(path) = &args.plot {
        plot::write(path, rows).map_err(|error| {
            Failure::Local(format!("cannot write the plot {}: {error}", path.display()))
        })?;
        output.note(&format!("plot: {}", path.display()));
    }
    Ok(())
}

/// The numbers of threads, checked or chosen: powers of two up to the cores.
fn threads(args: &EcBenchArgs) -> Result<Vec<usize>, Failure> {
    const THREADS_MAX: usize = 1024;
    if let Some(count) = args.threads.iter().find(|count| !(1..=THREADS_MAX).contains(*count)) {
        return Err(Failure::Usage(format!("--threads {count}: use 1 to {THREADS_MAX}")));
    }
    if !args.threads.is_empty() {
        return Ok(args.threads.clone());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |count| Some(count * 2))
        .take_while(|c| *c < cores)
        .collect();
    counts.push(cores);
    Ok(counts)
}

/// The blocks, checked against each other and the machine.
fn shape(args: &EcBenchArgs, threads: &[usize]) -> Result<Shape, Failure> {
    let (k, m) = (args.k, args.m);
    // The narrowest of the codes that will be measured decides.
    lacuna_code::Code::mds(k, m).map_err(|error| Failure::Usage(format!("--k, --m: {error}")))?;
    let lost = args.lost.unwrap_or(m.min(k));
    if lost == 0 || lost > m.min(k) {
        return Err(Failure::Usage(format!("--lost {lost}: ({k}, {m}) repairs 1 to {}", m.min(k))));
    }
    let too_large = || Failure::Usage(format!("--chunk {}: larger than memory", args.chunk));
    let chunk_bytes = usize::try_from(args.chunk).map_err(|_| too_large())?;
    if chunk_bytes == 0 {
        return Err(Failure::Usage("--chunk 0: use at least 1 byte".to_owned()));
    }
    let block_bytes = chunk_bytes.checked_mul(k).ok_or_else(too_large)?;
    let blocks = usize::try_from(args.size).map_err(|_| too_large())? / block_bytes;
    let most = threads.iter().copied().max().unwrap_or(1);
    if blocks < most {
        return Err(Failure::Usage(format!(
            "--size {} holds {blocks} blocks of {k} x {} for {most} threads: use at least {}",
            units::show_bytes(args.size),
            units::show_bytes(args.chunk),
            units::show_bytes((block_bytes as u64).saturating_mul(most as u64))
        )));
    }
    Ok(Shape { k, m, chunk_bytes, blocks, lost })
}
