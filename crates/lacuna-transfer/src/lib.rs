//! Files and folders of any size over one connection: in constant memory, verified, and resumable
//! after any break.
//!
//! ```
//! use lacuna_transfer::{ReceiveOptions, Receiver, SendOptions, Sender};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (outbox, inbox) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let file = outbox.path().join("notes.txt");
//! std::fs::write(&file, "hello over there")?;
//! // One end:
//! let receiver = Receiver::bind("127.0.0.1:0".parse()?, inbox.path(), ReceiveOptions::default())?;
//! let address = receiver.local_addr().to_string();
//! let receiving = std::thread::spawn(move || receiver.recv());
//! // The other:
//! let sent = Sender::new(SendOptions::default()).send(&[&file], &address, &())?;
//! assert_eq!((sent.files, sent.moved_bytes), (1, 16));
//!
//! let received = receiving.join().expect("no panic")?;
//! assert!(received.complete && inbox.path().join("notes.txt").exists());
//! # Ok(())
//! # }
//! ```
//!
//! An [`Observer`] is told of files, progress and events during a transfer. A [`Stop`] ends it
//! early. [`Receiver::serve`] receives from any number of senders, and [`clean`] removes the
//! partial files of broken transfers. Where only the receiver can connect, a [`Fetcher`] does, to a
//! [`SendListener`].
//!
//! # How it works
//!
//! `wire` defines the messages; `send` is the sender's side and `recv` the receiver's. Both share
//! buffers (`pool`), outgoing messages (`outbound`), incoming messages (`inbound`), the hash thread
//! (`digest`), the comparison of prefixes by which a transfer resumes (`prefix`), and when a transfer
//! connects again (`retry`). Either side may be the one that connects.
//!
//! A file under its final name is always complete: data goes to a partial file beside it, which is
//! renamed once the hash of all its content agrees. A partial file is only ever appended to, so it
//! is a prefix of the content: after any break, the next transfer hashes it and continues behind
//! it. Nothing is synced on the way: a killed program loses nothing that it wrote, and damage by a
//! power failure at the end of a partial file shows in its hash. [`ReceiveOptions::sync`] makes
//! each file durable before it is renamed.
//!
//! Holes of a file (`extents`) are announced and not sent, and are holes at the receiver. Sizes that
//! are reserved, moved and shown count data; only the hash covers holes, too.
//!
//! # What it leaves to others
//!
//! The transport (`lacuna`) moves messages, repairs losses and measures the path. This crate prints
//! nothing and installs no signal handlers. It needs a Unix system, because folders are opened
//! component by component.

#![cfg(unix)]
#![forbid(unsafe_code)]

mod digest;
mod error;
mod extents;
mod inbound;
mod name;
mod observer;
mod outbound;
mod pool;
mod prefix;
mod rate;
mod recv;
mod report;
mod retry;
mod send;
mod silence;
mod wire;

pub use error::{BindError, CleanError, FileError, Kept, PathError, ReceiveError, SendError};
pub use lacuna_service::{Blames, Fault, Stop};
pub use name::{NameError, shown, shown_text};
pub use observer::{Event, Observer, Progress};
pub use recv::{
    CleanEvent, CleanOptions, CleanSummary, FetchOptions, Fetcher, PartialFile, ReceiveOptions,
    Receiver, ReceiverEvent, Sessions, clean,
};
pub use report::{Blame, FileReport, FilesFailed, Kind, Status, Summary};
pub use send::{SendListener, SendOptions, Sender, Sources};
pub use wire::Hash;

/// Memory for data in flight that a caller may set. At least one block arrives while another is
/// written; the upper bound catches typing mistakes.
pub const BUFFERS_BYTES: std::ops::RangeInclusive<u64> = 8 << 20..=2 << 30;
const _: () = assert!(*BUFFERS_BYTES.start() == 2 * wire::BLOCK_BYTES as u64);

/// Blocks to keep in flight: the bandwidth-delay product of 10 Gbit/s over `rtt_us` and a quarter
/// more, plus those held by disk and hash; or as many as the caller allows.
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
