//! What a rank and the host of a meeting say to each other: one line of JSON each.

use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::net::SocketAddr;

/// What the first word says, so that who comes to the wrong port is told.
pub(super) const PROTOCOL: &str = "lacuna-meeting-1";
/// Longest word of a rank.
pub(super) const JOIN_BYTES_MAX: usize = 4 << 10;
/// Longest word of the host: an address of every rank.
pub(super) const ANSWER_BYTES_MAX: usize = 2 * 64 * super::RANKS_MAX + 256;

/// A rank comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Join {
    pub(super) protocol: String,
    pub(super) job: String,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// Where it listens; an unspecified address is the one that it is seen at.
    pub(super) listens: SocketAddr,
    /// Where it would host a meeting of those that are left, likewise.
    pub(super) meets: SocketAddr,
    /// Which group it wants, where one is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<Part>,
    /// Whether it was no rank so far; then its rank, and how many there are, do not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_newcomer: bool,
}

/// What a rank says of itself where a group is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// Ranks of one colour get a group; `None` is in none.
    pub(super) color: Option<u64>,
    /// They are ordered by this, and then by their ranks.
    pub(super) key: i64,
}

/// What the host answers, once all are there or at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// `rank` is who hears it.
    All {
        group: u64,
        rank: usize,
        addresses: Vec<SocketAddr>,
        meets: Vec<SocketAddr>,
    },
    Refused {
        reason: String,
    },
    /// Of a rank without a colour, where a group is split.
    Apart,
    /// Not in this meeting, but perhaps in the next one.
    Later {
        reason: String,
    },
}

pub(super) fn line<T: Serialize>(word: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(word).expect("words have string keys only");
    bytes.push(b'\n');
    bytes
}

/// Reads on; `Some` once the line is whole. The end of the stream and a line that is too long are errors.
pub(super) fn read_line(
    stream: &mut impl Read,
    read: &mut Vec<u8>,
    bytes_max: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut room = [0; 4096];
    loop {
        if let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            return Ok(Some(read[..end].to_vec()));
        }
        if read.len() > bytes_max {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
        }
        match stream.read(&mut room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => read.extend_from_slice(&room[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
