//! `lacuna send` and `lacuna recv`: files and folders of any size over one
//! connection, in constant memory, verified, and resumable after any break.
//!
//! What the ends say to each other is in `wire`; the sender's side in `send`,
//! the receiver's in `recv`. Both use the same blocks of memory (`pool`),
//! outgoing messages (`lane`), incoming messages (`inbound`), hash thread
//! (`digest`), and the same way to find out what is left to do (`ladder`).
//!
//! A file under its own name is always whole: data goes to a partial file
//! beside it, which gets the name when the hash of everything agrees. A partial
//! file holds a prefix of the data, because it is only ever appended to; so
//! whatever ends a transfer, the next one hashes what is there and goes on
//! behind it. Nothing is forced onto the disk on the way: a program that is
//! killed loses nothing that it wrote, and what a power failure takes from the
//! end of a partial file is noticed by its hash. `recv --sync` makes each file
//! durable before it gets its name.

#[cfg(unix)]
mod digest;
#[cfg(unix)]
mod inbound;
#[cfg(unix)]
mod interrupt;
#[cfg(unix)]
mod ladder;
#[cfg(unix)]
mod lane;
#[cfg(unix)]
mod name;
#[cfg(unix)]
mod pool;
#[cfg(unix)]
mod progress;
#[cfg(unix)]
mod recv;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod send;
#[cfg(unix)]
mod wire;

use crate::failure::Failure;
use crate::output::Output;
use crate::units;
use clap::Args;
use lacuna::Mode;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where a receiver listens unless told otherwise.
const PORT: u16 = 7400;

/// Send files and folders to a receiver.
///
/// Regular files and folders are sent, with their permissions and files with
/// their times; symbolic links and special files below the given paths are
/// skipped with a note (a link that is given as a PATH is followed). Names are
/// sent byte for byte, whatever their script, text or not.
///
/// A transfer that broke, at either end and for whatever reason, is resumed by
/// the same command: what has arrived is compared by its hash, not sent again.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Files and folders; each keeps its last name at the receiver
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The receiver: HOST or HOST:PORT (7400 if none is given)
    #[arg(value_name = "HOST:PORT")]
    to: String,
    /// How long to try to go on after a break, without any progress; 0s gives up at once
    #[arg(long, default_value = "60s", value_parser = units::duration, value_name = "TIME")]
    retry: Duration,
    /// Take files of the same size and time at the receiver as identical, without reading them
    #[arg(long)]
    quick: bool,
    /// Reliability: sr, sr:rto
    #[arg(long, default_value = "sr")]
    mode: Mode,
    /// Send at this rate instead of probing for one
    #[arg(long, value_parser = units::rate)]
    rate: Option<u64>,
    /// Payload bytes per packet; found by probing if not given
    #[arg(long)]
    mtu: Option<u32>,
    /// Bytes per chunk, rounded up to whole packets: what a lost packet costs to repair
    #[arg(long, default_value = "4KiB", value_parser = units::bytes, value_name = "SIZE")]
    chunk: u64,
    /// Sockets, each with its own 4-tuple
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    channels: u8,
    /// Memory for data on its way; by the round-trip time if not given (32 to 160 MiB)
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    buffers: Option<u64>,
}

/// Receive files and folders.
///
/// Everything stays below the folder: names that lead out of it, and paths on
/// which a symbolic link lies, are refused. A file gets its name only after the
/// hash of its content was verified; until then it is a hidden file ending in
/// .lacuna-part beside it, from which a later transfer resumes.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// Where to listen; port 0 takes any and prints it
    #[arg(long, default_value = "0.0.0.0:7400", value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Folder to receive into; made if it does not exist
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// End after one sender, with its result
    #[arg(long)]
    once: bool,
    /// Replace existing files that differ
    #[arg(long)]
    overwrite: bool,
    /// Write each file through to the disk before it gets its name
    #[arg(long)]
    sync: bool,
    /// Sockets, each with its own 4-tuple
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    channels: u8,
    /// Memory for data on its way, per sender; by the round-trip time if not given (32 to 160 MiB)
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    buffers: Option<u64>,
}

/// Runs `lacuna send`.
#[cfg(unix)]
pub(crate) fn send(args: &SendArgs, output: Output) -> Result<(), Failure> {
    send::run(args, output)
}

/// Runs `lacuna recv`.
#[cfg(unix)]
pub(crate) fn recv(args: &RecvArgs, output: Output) -> Result<(), Failure> {
    recv::run(args, output)
}

/// Folders are held open and entered link by link, as only Unix does.
#[cfg(not(unix))]
pub(crate) fn send(_: &SendArgs, _: Output) -> Result<(), Failure> {
    Err(Failure::Local("send and recv need a Unix system".to_owned()))
}

/// See [`send`].
#[cfg(not(unix))]
pub(crate) fn recv(_: &RecvArgs, _: Output) -> Result<(), Failure> {
    Err(Failure::Local("send and recv need a Unix system".to_owned()))
}

/// Blocks to keep under way: what a path of 10 Gbit/s holds in `rtt_us` and a
/// quarter more, on top of what disk and hash hold; or what the user allows.
#[cfg(unix)]
fn blocks_ahead(rtt_us: Option<u64>, allowed_bytes: Option<u64>) -> usize {
    const RATE_BYTES_PER_US: u64 = 10_000 / 8;
    const BLOCKS: std::ops::RangeInclusive<u64> = 8..=40;
    let block_bytes = wire::BLOCK_BYTES as u64;
    let blocks = match allowed_bytes {
        // One receives while the other is written.
        Some(bytes) => (bytes / block_bytes).clamp(2, 512),
        None => {
            let path_bytes = rtt_us.unwrap_or(0).saturating_mul(RATE_BYTES_PER_US * 5 / 4);
            (BLOCKS.start() + path_bytes / block_bytes).min(*BLOCKS.end())
        }
    };
    blocks as usize
}
