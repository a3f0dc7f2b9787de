//! Why a receive is over. The five papers end a message in different ways; here each way is a reason of
//! the same completion.

use std::fmt;

/// Why a receive is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// All of the message arrived.
    Whole = 1,
    /// The packet that ends the message arrived, and the time in which the path reorders packets has
    /// passed since. What is missing is lost. (OptiNIC 3.1.2, with a grace.)
    End = 2,
    /// The sender has said that everything was sent, and the time in which the path reorders packets has
    /// passed since. What is missing is lost.
    Accounted = 3,
    /// The receive's deadline has passed.
    Deadline = 4,
    /// A later message arrived while this one was incomplete. (OptiNIC 3.1.1, with a window.)
    Preempted = 5,
    /// The sender gave the message up, or the application closed the receive.
    Cancelled = 6,
    /// The queue pair has failed.
    Failed = 7,
}

impl Reason {
    /// All reasons, in the order of [`Reason::index`].
    pub const ALL: [Self; 7] = [
        Self::Whole,
        Self::End,
        Self::Accounted,
        Self::Deadline,
        Self::Preempted,
        Self::Cancelled,
        Self::Failed,
    ];

    /// Index of this reason's counter.
    #[inline]
    pub fn index(self) -> usize {
        self as usize - 1
    }

    /// Name in statistics and messages: lower case, stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::End => "end",
            Self::Accounted => "accounted",
            Self::Deadline => "deadline",
            Self::Preempted => "preempted",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
    }
}
