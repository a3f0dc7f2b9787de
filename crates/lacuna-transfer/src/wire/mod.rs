//! The file protocol: several records in one message; a record does not continue in the next
//! message.
//!
//! ```text
//! sender                                        receiver
//!   Hello                               ─────▶
//!                                       ◀─────  Welcome
//!   Offer, Unsent, Offer, …             ─────▶
//!                                       ◀─────  Want (what a partial file has) | Exists | Settled
//!   Start, Data, Hole, …, End | Same | Drop ─▶
//!                                       ◀─────  Settled, one per offer
//!   Finish                              ─────▶
//!                                       ◀─────  Finished
//! ```
//!
//! Offers run ahead of the data, so many small files do not cost a round trip each. Items are
//! numbered by their offers and handled in that order. `Unsent` has a number, too, and is settled by the
//! receiver at once; only a receiver that fetches gets it, as older ones do not know it. Either end sends `Alive` when it has sent
//! nothing else for a while.
//!
//! Numbers are big-endian. Records come from a peer that may be hostile: lengths are bounded before anything
//! is allocated, and what does not parse is an error that ends the session.

mod parse;
#[cfg(test)]
mod tests;

pub(crate) use parse::{answers, records};

use super::name::NAME_BYTES_MAX;
use std::ops::Range;

/// Version of the file protocol; another one is refused.
pub(crate) const VERSION: u16 = 2;
/// Longest message of the sender: large enough that the cost per message does not matter, small
/// enough that a break costs little.
pub(crate) const BLOCK_BYTES: usize = 4 << 20;
/// Longest message of the receiver.
pub(crate) const ANSWER_BYTES: usize = 64 << 10;
/// Open offers at a time. At a round-trip time of 100 ms this allows about 80,000 files per second;
/// an open offer costs each end a few hundred bytes.
pub(crate) const OFFERS_MAX: usize = 16_384;
/// Prefixes of a partial file that the receiver may send.
pub(crate) const PREFIXES_MAX: usize = 16;
/// Longest explanation.
pub(crate) const REASON_BYTES_MAX: usize = 1024;
/// Bytes of a data record that are not data.
pub(crate) const DATA_HEADER_BYTES: usize = 5;

/// Longest record without data, of either end.
pub(crate) const RECORD_BYTES_MAX: usize = 8192;
const _: () = assert!(RECORD_BYTES_MAX > NAME_BYTES_MAX + REASON_BYTES_MAX + 64);
const _: () = assert!(RECORD_BYTES_MAX > PREFIXES_MAX * 40 + 64);
const _: () = assert!(ANSWER_BYTES > 2 * RECORD_BYTES_MAX);

const MAGIC: &[u8; 6] = b"lacuna";

/// A BLAKE3 hash.
pub type Hash = [u8; 32];

/// A prefix of a partial file: its length and hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) offset: u64,
    pub(crate) hash: Hash,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
}

/// Properties of a file or folder that travel with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) kind: Kind,
    /// Permission bits, nothing above 0o777.
    pub(crate) mode: u16,
    /// Zero for a folder.
    pub(crate) size_bytes: u64,
    /// Data bytes without holes, as far as known before the file is read: what has to move and
    /// needs space.
    pub(crate) data_bytes: u64,
    pub(crate) modified: Time,
}

/// Time of the last change, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

/// Records of the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The first record. `session` is the same when a sender reconnects; with `quick`, files of
    /// equal size and time count as identical.
    Hello { session: [u8; 16], quick: bool },
    /// The next item.
    Offer { meta: Meta, name: &'a [u8] },
    /// The next item, which does not follow: it is skipped, or cannot be read. `name` is cut to the
    /// longest allowed.
    Unsent { kind: Kind, is_skipped: bool, name: &'a [u8], reason: &'a str },
    /// Data of an item follows, from this offset on.
    Start { item: u64, from: u64 },
    /// Data of the item that was started: a range of the message.
    Data { range: Range<usize> },
    /// `len` zeros follow that are not sent: the file has a hole.
    Hole { len: u64 },
    /// The item is complete; the hash covers all of it, holes as zeros.
    End { hash: Hash },
    /// The receiver's file has the same content.
    Same { item: u64 },
    /// The item is not sent, or not further.
    Drop { item: u64, reason: &'a str },
    /// Number of files in this session and bytes of their data, once known; for progress only.
    Total { files: u64, bytes: u64 },
    /// Keep-alive.
    Alive,
    /// No more offers; all were answered.
    Finish,
}

/// How an item ended at the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Received, verified and renamed. For a folder: it exists.
    Complete,
    /// Already there, equal by hash or by size and time.
    Identical,
    /// Not accepted, because of its name or what exists there.
    Refused,
    /// The receiver's system refused an operation.
    Failed,
    /// The received data has another hash.
    WrongHash,
    /// Already there; its time or permissions were updated.
    Updated,
}

/// Why the receiver ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FatalKind {
    /// It cannot write, or refuses to serve.
    Unable,
    /// The sender violated the protocol.
    Protocol,
}

/// Answers of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// Answer to the hello. `overwrite`: existing files are replaced.
    Welcome { overwrite: bool },
    /// Send this file; `prefixes` are the prefixes that the receiver has, shortest first.
    Want { item: u64, prefixes: Vec<Prefix> },
    /// A file of this size is here; this is its hash.
    Exists { item: u64, hash: Hash },
    /// The item has ended. A reason says why it failed, or why it was there and could not be
    /// updated.
    Settled { item: u64, outcome: Outcome, reason: &'a str },
    /// The session ends.
    Fatal { kind: FatalKind, reason: &'a str },
    /// Keep-alive.
    Alive,
    /// Everything is here; goodbye.
    Finished,
}

/// A message cannot be read. The peer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("a record of kind {kind:#04x} ends in the middle")]
    Truncated { kind: u8 },
    #[error("unknown record {kind:#04x}")]
    Unknown { kind: u8 },
    #[error("{what} {value}, at most {limit} allowed")]
    OutOfRange { what: &'static str, value: u64, limit: u64 },
    #[error("a reason that is no text")]
    NoText,
    #[error("it does not speak the file protocol")]
    NotFiles,
    #[error("it speaks version {there} of the file protocol, this end version {VERSION}")]
    Version { there: u16 },
}

const HELLO: u8 = 0x01;
const OFFER: u8 = 0x02;
const START: u8 = 0x03;
const DATA: u8 = 0x04;
const END: u8 = 0x05;
const SAME: u8 = 0x06;
const DROP: u8 = 0x07;
const TOTAL: u8 = 0x08;
const FINISH: u8 = 0x09;
const HOLE: u8 = 0x0A;
const UNSENT: u8 = 0x0B;
const WELCOME: u8 = 0x81;
const WANT: u8 = 0x82;
const EXISTS: u8 = 0x83;
const SETTLED: u8 = 0x84;
const FATAL: u8 = 0x85;
const FINISHED: u8 = 0x86;
const ALIVE: u8 = 0xFF;

/// Header of a data record; the data follows.
pub(crate) fn data_header(len: usize) -> [u8; DATA_HEADER_BYTES] {
    let [a, b, c, d] = (len as u32).to_be_bytes();
    [DATA, a, b, c, d]
}

impl Record<'_> {
    /// Appends the record. Data records are written by the packer with [`data_header`].
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { session, quick } => {
                out.push(HELLO);
                out.extend(MAGIC);
                out.extend(VERSION.to_be_bytes());
                out.extend(session);
                out.push(u8::from(*quick));
            }
            Self::Offer { meta, name } => {
                out.push(OFFER);
                out.push(number_of(meta.kind));
                out.extend(meta.mode.to_be_bytes());
                out.extend(meta.size_bytes.to_be_bytes());
                out.extend(meta.data_bytes.to_be_bytes());
                out.extend(meta.modified.seconds.to_be_bytes());
                out.extend(meta.modified.nanos.to_be_bytes());
                out.extend((name.len() as u16).to_be_bytes());
                out.extend(*name);
            }
            Self::Unsent { kind, is_skipped, name, reason } => {
                out.push(UNSENT);
                out.push(number_of(*kind));
                out.push(u8::from(*is_skipped));
                let name = &name[..name.len().min(NAME_BYTES_MAX)];
                out.extend((name.len() as u16).to_be_bytes());
                out.extend(name);
                emit_text(reason, out);
            }
            Self::Start { item, from } => {
                out.push(START);
                out.extend(item.to_be_bytes());
                out.extend(from.to_be_bytes());
            }
            Self::Data { range } => out.extend(data_header(range.len())),
            Self::Hole { len } => {
                out.push(HOLE);
                out.extend(len.to_be_bytes());
            }
            Self::End { hash } => {
                out.push(END);
                out.extend(hash);
            }
            Self::Same { item } => {
                out.push(SAME);
                out.extend(item.to_be_bytes());
            }
            Self::Drop { item, reason } => {
                out.push(DROP);
                out.extend(item.to_be_bytes());
                emit_text(reason, out);
            }
            Self::Total { files, bytes } => {
                out.push(TOTAL);
                out.extend(files.to_be_bytes());
                out.extend(bytes.to_be_bytes());
            }
            Self::Alive => out.push(ALIVE),
            Self::Finish => out.push(FINISH),
        }
    }
}

impl Answer<'_> {
    /// Appends the answer.
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Welcome { overwrite } => {
                out.push(WELCOME);
                out.extend(MAGIC);
                out.extend(VERSION.to_be_bytes());
                out.push(u8::from(*overwrite));
            }
            Self::Want { item, prefixes } => {
                out.push(WANT);
                out.extend(item.to_be_bytes());
                out.push(prefixes.len() as u8);
                for prefix in prefixes {
                    out.extend(prefix.offset.to_be_bytes());
                    out.extend(prefix.hash);
                }
            }
            Self::Exists { item, hash } => {
                out.push(EXISTS);
                out.extend(item.to_be_bytes());
                out.extend(hash);
            }
            Self::Settled { item, outcome, reason } => {
                out.push(SETTLED);
                out.extend(item.to_be_bytes());
                out.push(match outcome {
                    Outcome::Complete => 0,
                    Outcome::Identical => 1,
                    Outcome::Refused => 2,
                    Outcome::Failed => 3,
                    Outcome::WrongHash => 4,
                    Outcome::Updated => 5,
                });
                emit_text(reason, out);
            }
            Self::Fatal { kind, reason } => {
                out.push(FATAL);
                out.push(match kind {
                    FatalKind::Unable => 0,
                    FatalKind::Protocol => 1,
                });
                emit_text(reason, out);
            }
            Self::Alive => out.push(ALIVE),
            Self::Finished => out.push(FINISHED),
        }
    }
}

fn number_of(kind: Kind) -> u8 {
    match kind {
        Kind::File => 0,
        Kind::Folder => 1,
    }
}

/// Appends a text with its length, cut to the longest allowed.
fn emit_text(text: &str, out: &mut Vec<u8>) {
    let end = (0..=text.len().min(REASON_BYTES_MAX))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    out.extend((end as u16).to_be_bytes());
    out.extend(&text.as_bytes()[..end]);
}
