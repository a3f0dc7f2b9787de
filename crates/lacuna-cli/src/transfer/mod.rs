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
//! file holds a prefix of the content, because it is only ever appended to; so
//! whatever ends a transfer, the next one hashes what is there and goes on
//! behind it. Nothing is forced onto the disk on the way: a program that is
//! killed loses nothing that it wrote, and what a power failure takes from the
//! end of a partial file is noticed by its hash. `recv --sync` makes each file
//! durable before it gets its name.
//!
//! Holes of a file (`extents`) are told, not sent, and are holes at the receiver;
//! what is promised, moved and shown is data. Only the hash is of all that the
//! file reads as.

mod args;
#[cfg(unix)]
mod digest;
#[cfg(unix)]
mod extents;
#[cfg(unix)]
mod inbound;
#[cfg(unix)]
mod ladder;
#[cfg(unix)]
mod lane;
#[cfg(unix)]
mod name;
#[cfg(unix)]
mod pool;
#[cfg(unix)]
mod printer;
#[cfg(unix)]
mod progress;
#[cfg(unix)]
mod rate;
#[cfg(unix)]
mod recv;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod send;
#[cfg(unix)]
mod silence;
#[cfg(unix)]
mod target;
#[cfg(unix)]
mod wire;

use crate::failure::Failure;
use crate::output::Output;
pub(crate) use args::{RecvArgs, SendArgs};

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

/// Memory for data on its way that the user may allow: one block comes while
/// the other is written; and a bound against slips of the finger.
const BUFFERS_BYTES: std::ops::RangeInclusive<u64> = 8 << 20..=2 << 30;
#[cfg(unix)]
const _: () = assert!(*BUFFERS_BYTES.start() == 2 * wire::BLOCK_BYTES as u64);

/// Blocks to keep under way: what a path of 10 Gbit/s holds in `rtt_us` and a
/// quarter more, on top of what disk and hash hold; or what the user allows.
#[cfg(unix)]
fn blocks_ahead(rtt_us: Option<u64>, allowed_bytes: Option<u64>) -> usize {
    const RATE_BYTES_PER_US: u64 = 10_000 / 8;
    const BY_PATH: std::ops::RangeInclusive<u64> = 8..=40;
    let block_bytes = wire::BLOCK_BYTES as u64;
    let blocks = match allowed_bytes {
        Some(bytes) => bytes.clamp(*BUFFERS_BYTES.start(), *BUFFERS_BYTES.end()) / block_bytes,
        None => {
            let path_bytes = rtt_us.unwrap_or(0).saturating_mul(RATE_BYTES_PER_US * 5 / 4);
            (BY_PATH.start() + path_bytes / block_bytes).min(*BY_PATH.end())
        }
    };
    blocks as usize
}
