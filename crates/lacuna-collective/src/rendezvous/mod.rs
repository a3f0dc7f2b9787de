//! How ranks find each other: all but one of them tell the *host* of the meeting where they listen, and the host tells
//! everybody where all are. That is what PyTorch, Gloo and NCCL do before their first operation.
//!
//! A meeting has a *job*, a word that all its ranks share: who comes with another one, from an earlier run that has not
//! ended or to the wrong port, is told so and is no part of it. Whoever waits says for whom.
//!
//! When ranks are gone, those that are left meet again ([`Roll::again`]): each has said where it would host that, and the lowest
//! one that is there does.
//!
//! Words are lines of JSON over TCP (`words.rs`); the host is in `host.rs`, the others in `guest.rs`.

mod again;
mod environment;
mod guest;
mod host;
mod words;

pub use environment::EnvironmentError;
use std::net::SocketAddr;
use std::time::Duration;

/// Ranks of a group, at most.
pub const RANKS_MAX: usize = 4096;

/// Where and how the ranks of a job meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meeting {
    /// Host and port of rank 0, as in `10.0.0.1:29500` or `node0:29500`.
    pub host: String,
    /// This rank, from 0 on.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// What the ranks of one run have in common, such as a scheduler's job number.
    pub job: String,
    /// How long to wait for the others.
    pub timeout: Duration,
}

/// Who is where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roll {
    /// The group's number: no other meeting has the same.
    pub group: u64,
    /// This end's rank.
    pub rank: usize,
    /// Where each rank listens.
    pub addresses: Vec<SocketAddr>,
    /// Where each would host a meeting of those that are left.
    pub meets: Vec<SocketAddr>,
}

/// Where a rank takes connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Of the other ranks, for data.
    pub listens: SocketAddr,
    /// For a meeting of those that are left.
    pub meets: SocketAddr,
}

/// Why ranks did not meet.
#[derive(Debug, thiserror::Error)]
pub enum MeetingError {
    /// The numbers make no sense. The caller's fault.
    #[error("rank {rank} of {ranks}: ranks are 0 to {}, at most {RANKS_MAX} in all", ranks.saturating_sub(1))]
    Rank {
        /// This rank.
        rank: usize,
        /// Of so many.
        ranks: usize,
    },
    /// The host's address makes no sense. The caller's fault.
    #[error("{host:?} is no HOST:PORT: {source}")]
    Address {
        /// What was given.
        host: String,
        /// What is wrong.
        source: std::io::Error,
    },
    /// Rank 0 cannot listen there.
    #[error("rank 0 cannot listen at {host}: {source}; is another job using the port?")]
    Listen {
        /// Where.
        host: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Rank 0 was not there in time. Retryable.
    #[error("nobody answered at {host} for {waited_s} s (is rank 0 running?): {last}")]
    NoHost {
        /// Where.
        host: String,
        /// How long it was tried.
        waited_s: u64,
        /// What the last try ended with.
        last: String,
    },
    /// Some ranks did not come in time. Retryable.
    #[error("waited {waited_s} s, and of {ranks} ranks these did not come: {}", list(missing))]
    Missing {
        /// How long.
        waited_s: u64,
        /// How many there are to be.
        ranks: usize,
        /// Who was missing.
        missing: Vec<usize>,
    },
    /// The host refused this rank: another job, another number of ranks, or a rank that is there already.
    #[error("refused by the meeting at {host}: {reason}")]
    Refused {
        /// Where.
        host: String,
        /// The host's words.
        reason: String,
    },
    /// The connection to the host broke. Retryable.
    #[error("rank 0, the host of the meeting at {host}, is gone: {source}")]
    Broken {
        /// Where.
        host: String,
        /// How.
        source: std::io::Error,
    },
}

/// Ranks as a list for people.
pub(crate) fn list(ranks: &[usize]) -> String {
    const SHOWN: usize = 16;
    let mut text: Vec<String> = ranks.iter().take(SHOWN).map(ToString::to_string).collect();
    if ranks.len() > SHOWN {
        text.push(format!("and {} more", ranks.len() - SHOWN));
    }
    text.join(", ")
}

impl Meeting {
    /// Meets the others. Where the addresses of this rank's places are unspecified, the one that the host sees it at is
    /// announced.
    ///
    /// # Errors
    /// See [`MeetingError`].
    pub fn meet(&self, places: Places) -> Result<Roll, MeetingError> {
        if self.rank >= self.ranks || self.ranks > RANKS_MAX {
            return Err(MeetingError::Rank { rank: self.rank, ranks: self.ranks });
        }
        if self.rank == 0 { host::meet(self, places) } else { guest::meet(self, places) }
    }
}

#[cfg(test)]
mod tests;
