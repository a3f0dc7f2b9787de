//! How an operation ended, for one rank.

use super::fabric::{FabricError, Reason};
use super::memory::Buffers;
use super::note::Label;
use super::who::RankSet;
use std::ops::Range;

/// An operation that is over, with its memory.
pub struct Finished {
    /// The number that [`super::Runner::start`] returned.
    pub sequence: u64,
    /// The memory that it was started with; the result is in the output unless it failed.
    pub buffers: Box<dyn Buffers>,
    /// How it went.
    pub result: Result<Report, RunError>,
}

impl std::fmt::Debug for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finished")
            .field("sequence", &self.sequence)
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}

/// An operation that ended as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// When it was started.
    pub started_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// Its receives, in the order of the table.
    pub hops: Vec<Hop>,
    /// Ranges of the output that lack contributions of some ranks, and of which; neighbours differ. Always
    /// empty if the operation did not have to end in time.
    pub missing: Vec<(Range<usize>, RankSet)>,
    /// Ranges of the output whose contributions are not known: a rank did not say in time what it had lost.
    pub uncertain: Vec<Range<usize>>,
    /// The hop that was waited for longest beyond the phase before it.
    pub straggler: Option<Straggler>,
}

impl Report {
    /// Bytes that were to be received.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.hops.iter().map(|hop| hop.bytes).sum()
    }

    /// Bytes that did not come.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        self.hops.iter().map(Hop::lost_bytes).sum()
    }

    /// How far the data came: the end of the last byte of each hop, over all bytes. A time per byte is
    /// divided by this, not by what came, because holes say nothing about the rate.
    #[must_use]
    pub fn reached_bytes(&self) -> u64 {
        self.hops.iter().map(|hop| hop.reached_bytes).sum()
    }
}

/// A receive of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// From whom.
    pub peer: usize,
    /// In which phase of the table.
    pub phase: usize,
    /// Its length.
    pub bytes: u64,
    /// Bytes that are missing, in order.
    pub lost: Vec<Range<usize>>,
    /// Where the last byte that came ends.
    pub reached_bytes: u64,
    /// Why it ended.
    pub reason: Reason,
    /// When, on the fabric's clock.
    pub ended_ns: u64,
}

impl Hop {
    /// How many bytes are missing.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        self.lost.iter().map(|range| range.len() as u64).sum()
    }
}

/// Who was waited for longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Straggler {
    /// The peer.
    pub rank: usize,
    /// The phase.
    pub phase: usize,
    /// How long after the end of the phase before it, or of the operation's start, its data were here.
    pub waited_ns: u64,
}

/// Why an operation failed. All operations of the group fail with it: ranks no longer agree on what was sent,
/// so the group has to be formed again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A rank is gone.
    #[error("rank {rank} is gone: {cause}")]
    Gone {
        /// Who.
        rank: usize,
        /// What was seen of it.
        cause: String,
    },
    /// A rank has given up, because of another or of itself.
    #[error("rank {by} gave up because of rank {rank}")]
    Aborted {
        /// Who said so.
        by: usize,
        /// Whose fault it is.
        rank: usize,
    },
    /// A receive that should have been whole is not.
    #[error("rank {rank}, phase {phase}: {lost_bytes} of {bytes} bytes did not come ({reason})")]
    Incomplete {
        /// From whom.
        rank: usize,
        /// In which phase.
        phase: usize,
        /// Its length.
        bytes: u64,
        /// How many did not come.
        lost_bytes: u64,
        /// Why it ended.
        reason: Reason,
    },
    /// It took too long.
    #[error("rank {rank} is late: phase {phase} waits for it {waited_ns} ns after the start")]
    Late {
        /// Who is waited for.
        rank: usize,
        /// In which phase.
        phase: usize,
        /// Since when.
        waited_ns: u64,
    },
    /// A rank does something else.
    #[error("rank {rank} runs {theirs}, this one {ours}")]
    Mismatch {
        /// Who.
        rank: usize,
        /// What it runs.
        theirs: Box<Label>,
        /// What this one runs.
        ours: Box<Label>,
    },
    /// A message is not as long as it should be.
    #[error("rank {rank}, phase {phase}: a message of {sent} bytes instead of {expected}")]
    Length {
        /// From whom.
        rank: usize,
        /// In which phase.
        phase: usize,
        /// Its length.
        sent: usize,
        /// What was expected.
        expected: usize,
    },
    /// The fabric does not work any more.
    #[error("the fabric failed: {cause}")]
    Fabric {
        /// Why.
        cause: String,
    },
}

impl RunError {
    /// Whose fault it is, if it is a rank's.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::Gone { rank, .. }
            | Self::Aborted { rank, .. }
            | Self::Incomplete { rank, .. }
            | Self::Late { rank, .. }
            | Self::Mismatch { rank, .. }
            | Self::Length { rank, .. } => Some(*rank),
            Self::Fabric { .. } => None,
        }
    }
}

impl From<FabricError> for RunError {
    fn from(error: FabricError) -> Self {
        match error {
            FabricError::Peer { peer, cause } => Self::Gone { rank: peer, cause },
            FabricError::Broken { cause } => Self::Fabric { cause },
        }
    }
}
