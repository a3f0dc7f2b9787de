//! How ranks find each other: all but one of them tell the *host* of the meeting where they listen, and the host tells
//! everybody where all are. That is what PyTorch, Gloo and NCCL do before their first operation.
//!
//! A meeting has a *job*, a word that all its ranks share: who comes with another one, from an earlier run that has not
//! ended or to the wrong port, is told so and is no part of it. Whoever waits says for whom.
//!
//! When ranks are gone, those that are left meet again ([`Roll::again`]): each has said where it would host that, and the lowest
//! one that is there does. It takes in newcomers as well ([`Newcomers`], [`Meeting::joining`]). Rank 0 hosts a meeting at
//! that place also where a group is split ([`Roll::split`]).
//!
//! Words are lines of JSON over TCP (`words.rs`); the host is in `host.rs`, the others in `guest.rs`.

mod again;
mod environment;
mod guest;
mod held_port;
mod host;
mod split;
mod words;

pub use again::Newcomers;
pub use environment::EnvironmentError;
pub use held_port::HeldPort;
use std::net::SocketAddr;
use std::time::Duration;

/// Ranks of a group, at most.
pub const RANKS_MAX: usize = 4096;

/// Where and how the ranks of a job meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meeting {
    /// Host and port of rank 0, as in `10.0.0.1:29500` or `node0:29500`. Who joins may name several, with commas between
    /// them: the first that answers is taken.
    pub host: String,
    /// This rank, from 0 on.
    pub rank: usize,
    /// How many there are; 0 for one that joins a group ([`Meeting::joining`]), which learns both.
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

/// Jobs of meetings that a group has by itself begin so, and go on with its number.
const OF_GROUP: &str = "lacuna-group/";

impl Meeting {
    /// A rank that joins a group which is there: it waits at `host` until that is formed again with newcomers
    /// ([`Roll::again`]), and learns its rank then. The job has to be the group's.
    #[must_use]
    pub fn joining(host: &str) -> Self {
        let timeout = environment::TIMEOUT;
        Self { host: host.to_owned(), rank: 0, ranks: 0, job: String::new(), timeout }
    }

    /// Whether a group has this meeting by itself.
    fn is_of_group(&self) -> bool {
        self.job.starts_with(OF_GROUP)
    }

    /// Meets the others. Where the addresses of this rank's places are unspecified, the one that the host sees it at is
    /// announced.
    ///
    /// # Errors
    /// See [`MeetingError`].
    pub fn meet(&self, places: Places) -> Result<Roll, MeetingError> {
        let is_newcomer = self.ranks == 0 && self.rank == 0;
        if (self.rank >= self.ranks || self.ranks > RANKS_MAX) && !is_newcomer {
            return Err(MeetingError::Rank { rank: self.rank, ranks: self.ranks });
        }
        if self.rank == 0 && !is_newcomer {
            return host::meet(self, places);
        }
        let word = words::Join { is_newcomer, ..guest::word(self, places) };
        guest::meet(self, &word)?.ok_or_else(|| MeetingError::Refused {
            host: self.host.clone(),
            reason: "it splits a group, and has none for this rank".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
