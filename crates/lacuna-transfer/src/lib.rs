//! Files and folders of any size over one connection: in constant memory, verified, and resumable after any
//! break.
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
//! partial files of broken transfers.
//!
//! # How it works
//!
//! `wire` says what the ends say to each other; `send` is the sender's side and `recv` the receiver's. Both
//! use the same blocks of memory (`pool`), outgoing messages (`outbound`), incoming messages (`inbound`), hash
//! thread (`digest`), and the same way to find out what is left to do (`prefix`).
//!
//! A file under its own name is always whole: data goes to a partial file beside it, which gets the name when
//! the hash of everything agrees. A partial file holds a prefix of the content, because it is only ever
//! appended to; so whatever ends a transfer, the next one hashes what is there and goes on behind it. Nothing
//! is forced onto the disk on the way: a program that is killed loses nothing that it wrote, and what a power
//! failure takes from the end of a partial file is noticed by its hash. [`ReceiveOptions::sync`] makes each
//! file durable before it gets its name.
//!
//! Holes of a file (`extents`) are announced, not sent, and are holes at the receiver; sizes that are
//! promised, moved and shown are those of data. Only the hash is of all that the file reads as.
//!
//! # What it leaves to others
//!
//! The transport (`lacuna`) moves messages, repairs losses and measures the path. This crate prints nothing
//! and installs no signal handlers. It needs a Unix system: folders are held open and entered link by link.

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
mod send;
mod silence;
mod wire;

pub use error::{BindError, CleanError, FileError, Kept, PathError, ReceiveError, SendError};
pub use lacuna_service::{Blames, Fault, Stop};
pub use name::{NameError, shown, shown_text};
pub use observer::{Event, Observer, Progress};
pub use recv::{
    CleanEvent, CleanOptions, CleanSummary, PartialFile, ReceiveOptions, Receiver, ReceiverEvent,
    Sessions, clean,
};
pub use report::{Blame, FileReport, FilesFailed, Kind, Status, Summary};
pub use send::{SendOptions, Sender, Sources};
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
