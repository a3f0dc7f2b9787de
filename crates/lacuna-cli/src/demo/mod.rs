//! `lacuna demo`: two endpoints in this process, real UDP sockets on loopback,
//! an impaired path between them, every reliability mode side by side.

mod path;
mod plot;
mod table;

use crate::failure::Failure;
use crate::output::Output;
use crate::units;
use clap::Args;
use lacuna::modes::{Mode, TABLE};
use lacuna::{Completed, Connection, SendBuffer};
use path::{Path, Ways};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Move real data over an impaired path on this machine, every mode side by side.
///
/// Two endpoints talk through real UDP sockets on loopback; what one sends
/// passes an emulated link with a rate, a delay and loss, both ways. Each mode
/// sends the same messages, each into a receive that was posted beforehand. The
/// ideal time is size / rate + RTT; no transport can be faster.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Bytes per message
    #[arg(long, default_value = "64MiB", value_parser = units::bytes)]
    size: u64,
    /// Round-trip time of the path
    #[arg(long, default_value = "25ms", value_parser = units::duration)]
    rtt: Duration,
    /// Share of packets that the path loses, each way
    #[arg(long, default_value = "1e-3", value_parser = units::fraction)]
    loss: f64,
    /// Rate of the path, each way
    #[arg(long, default_value = "1gbit", value_parser = units::rate)]
    rate: u64,
    /// Lose packets in bursts of this mean length
    #[arg(long, default_value_t = 1.0)]
    burst: f64,
    /// Messages per mode
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Seed of the path's losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes per chunk, rounded up to whole packets
    #[arg(long, default_value = "4KiB", value_parser = units::bytes)]
    chunk: u64,
    /// Payload bytes per packet
    #[arg(long, default_value_t = 4096)]
    mtu: u32,
    /// Do not tell the sender the path's rate: it finds a window by itself
    #[arg(long)]
    find_rate: bool,
    /// Only these modes; all that repair if none is given
    #[arg(long = "mode", value_name = "MODE")]
    modes: Vec<Mode>,
    /// Where to write the plot
    #[arg(long, default_value = "lacuna-demo.svg")]
    plot: PathBuf,
    /// Write no plot
    #[arg(long)]
    no_plot: bool,
}

/// What one mode did.
#[derive(Debug, Serialize)]
pub(crate) struct ModeResult {
    mode: String,
    size_bytes: u64,
    runs: u32,
    completion_ms: Completion,
    ideal_ms: f64,
    goodput_gbit_per_s: f64,
    retransmitted_chunks: u64,
    /// Share of packets that were repairs.
    retransmitted_share: f64,
    /// Runs of packets that nothing was heard of for a whole timeout.
    timeouts: u64,
    /// Packets that the path lost on the way to the receiver.
    lost_packets: u64,
    /// Chunks that never came, for modes without repair.
    missing_chunks: u64,
    /// Every chunk that came is right; with a mode that repairs, all came.
    verified: bool,
    #[serde(skip)]
    times_ms: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Completion {
    mean: f64,
    p50: f64,
    p99: f64,
    max: f64,
}

pub(crate) fn run(args: &DemoArgs, output: Output) -> Result<(), Failure> {
    let ways =
        Ways { rate_bits_per_s: args.rate, rtt: args.rtt, loss: args.loss, burst: args.burst };
    let ideal = Duration::from_secs_f64(args.size as f64 * 8.0 / args.rate as f64) + args.rtt;
    output.note(&format!(
        "{} runs of {} over {} with {:?} RTT, loss {}{}; ideal {:.1} ms",
        args.runs,
        units::show_bytes(args.size),
        units::show_rate(args.rate as f64),
        args.rtt,
        args.loss,
        if args.burst > 1.0 { format!(" in bursts of {}", args.burst) } else { String::new() },
        ideal.as_secs_f64() * 1e3,
    ));
    let modes: Vec<Mode> = if args.modes.is_empty() {
        TABLE.iter().map(|entry| entry.mode).filter(Mode::is_reliable).collect()
    } else {
        args.modes.clone()
    };
    let mut results = Vec::new();
    for mode in modes {
        let result = run_mode(args, &ways, mode, ideal, output)?;
        if output.json {
            output.object(&result)?;
        }
        results.push(result);
    }
    if !output.json {
        output.line(&table::render(&results))?;
    }
    if !args.no_plot {
        plot::write(&args.plot, &results).map_err(|error| {
            Failure::Local(format!("cannot write {}: {error}", args.plot.display()))
        })?;
        output.note(&format!("plot: {}", args.plot.display()));
    }
    match results.iter().find(|result| !result.verified) {
        Some(wrong) => {
            Err(Failure::Verification(format!("mode {} delivered wrong bytes", wrong.mode)))
        }
        None => Ok(()),
    }
}

fn run_mode(
    args: &DemoArgs,
    ways: &Ways,
    mode: Mode,
    ideal: Duration,
    output: Output,
) -> Result<ModeResult, Failure> {
    let path = Path::open(ways, args.seed, |config| lacuna::ConnectionConfig {
        mode,
        chunk_bytes: args.chunk,
        mtu_bytes: Some(args.mtu),
        rate_bits_per_s: (!args.find_rate).then_some(args.rate),
        // Nothing may hang: ten times the ideal, and time for a bad path.
        deadline: ideal * 10 + Duration::from_secs(30),
        ..config
    })?;
    output.note(&format!("{mode}: {}", path.sender.chosen()));
    let mut times_ms = Vec::new();
    let mut verified = true;
    let mut missing_chunks = 0;
    let mut buffer = vec![0; args.size as usize];
    for run in 0..args.runs {
        let message = Arc::new(contents(args.size as usize, args.seed + u64::from(run)));
        let (took, done) = one_message(&path, &message, buffer, args.rtt)?;
        let chunk_bytes = path.receiver.chosen().chunk_bytes as usize;
        let is_here = |chunk: &usize| done.chunks[chunk / 64] >> (chunk % 64) & 1 == 1;
        let chunks = args.size.div_ceil(chunk_bytes as u64).max(1) as usize;
        for chunk in (0..chunks).filter(is_here) {
            let bytes = chunk * chunk_bytes..((chunk + 1) * chunk_bytes).min(message.len());
            verified &= done.buffer[bytes.clone()] == message[bytes];
        }
        let here = (0..chunks).filter(is_here).count();
        missing_chunks += (chunks - here) as u64;
        verified &= !mode.is_reliable() || here == chunks;
        buffer = done.buffer;
        buffer.fill(0);
        times_ms.push(took.as_secs_f64() * 1e3);
        output.note(&format!(
            "{mode}: run {} of {}: {:.1} ms",
            run + 1,
            args.runs,
            took.as_secs_f64() * 1e3
        ));
    }
    let result = result(args, mode, ideal, &path, times_ms, verified);
    Ok(ModeResult { missing_chunks, ..result })
}

/// Sends one message into a receive that the sender knows of, and returns the
/// time until the sender knew that it had arrived.
fn one_message(
    path: &Path,
    message: &Arc<Vec<u8>>,
    buffer: Vec<u8>,
    rtt: Duration,
) -> Result<(Duration, Completed), Failure> {
    let (sender, receiver): (&Connection, &Connection) = (&path.sender, &path.receiver);
    let posted = receiver.post_recv(buffer).map_err(|error| Failure::Local(error.to_string()))?;
    sender.wait_clear_to_send(Duration::from_secs(30))?;
    let start = Instant::now();
    let send = sender
        .start_write(SendBuffer::new(message.clone()), None)
        .map_err(|error| Failure::Network(error.to_string()))?;
    send.wait()?;
    if path.sender.chosen().mode == "raw" {
        // Everything is on the wire; what does not come within a round trip
        // after the queue has drained was lost. The peer says so when it closes.
        let limit = rtt * 2 + Duration::from_millis(200);
        // Incomplete is an outcome here, not an error.
        let _ = posted.wait(limit);
        let took = start.elapsed();
        return Ok((took, posted.complete()));
    }
    let took = start.elapsed();
    posted.wait(Duration::from_secs(30))?;
    Ok((took, posted.complete()))
}

/// Bytes without a pattern, the same for the same seed.
fn contents(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64 (Marsaglia 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn result(
    args: &DemoArgs,
    mode: Mode,
    ideal: Duration,
    path: &Path,
    times_ms: Vec<f64>,
    verified: bool,
) -> ModeResult {
    let mut sorted = times_ms.clone();
    sorted.sort_by(f64::total_cmp);
    let rank = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
    let sent = path.sender.stats().sent;
    ModeResult {
        mode: mode.to_string(),
        size_bytes: args.size,
        runs: args.runs,
        completion_ms: Completion { mean, p50: rank(0.5), p99: rank(0.99), max: rank(1.0) },
        ideal_ms: ideal.as_secs_f64() * 1e3,
        goodput_gbit_per_s: args.size as f64 * 8.0 / (mean / 1e3) / 1e9,
        retransmitted_chunks: sent.retransmitted_chunks,
        retransmitted_share: sent.retransmission_share,
        timeouts: sent.timeouts,
        lost_packets: path.lost_to_receiver(),
        missing_chunks: 0,
        verified,
        times_ms,
    }
}
