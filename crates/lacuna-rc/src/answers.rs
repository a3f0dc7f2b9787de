//! What the responder says, in order: acknowledgements, refusals, and what was read.
//!
//! One queue for all of them: an acknowledgement that overtook the answer to an earlier READ would tell
//! the requester that the answer is lost (InfiniBand volume 1, section 9.7.5.1.1). Acknowledgements in a
//! row are one, for the newest packet: that is how they are coalesced.
//!
//! Bounded: an acknowledgement merges with the one before, and READs are as many as the responder admits.

use lacuna_wire::rc::Syndrome;
use std::collections::VecDeque;
use std::ops::Range;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All packets up to this number have come; or the packet with this number is refused.
    Say { psn: u64, syndrome: Syndrome, messages: u32 },
    /// The packet with this number is missing, and these have come behind it (selective repeat).
    Missing { psn: u64, messages: u32, came: Vec<Range<u64>> },
    /// What was read.
    Read(ReadAnswer),
    /// What an atomic operation found.
    Atomic { psn: u64, before: u64, messages: u32 },
}

impl Answer {
    /// Whether it answers a READ or an atomic operation.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Atomic { .. })
    }
}

/// The answer to a READ, of which `next` packets have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadAnswer {
    pub(crate) first_psn: u64,
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) bytes: u32,
    pub(crate) packets: u32,
    pub(crate) next: u32,
    pub(crate) messages: u32,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    queue: VecDeque<Answer>,
    /// READs and atomic operations among them.
    reads: usize,
}

impl Answers {
    pub(crate) fn push(&mut self, answer: Answer) {
        match (&answer, self.queue.back_mut()) {
            (
                Answer::Say { psn, syndrome: Syndrome::Ack { .. }, .. },
                Some(last @ Answer::Say { syndrome: Syndrome::Ack { .. }, .. }),
            ) => {
                // A duplicate's acknowledgement must not take back a newer one.
                if matches!(last, Answer::Say { psn: before, .. } if *psn >= *before) {
                    *last = answer;
                }
                return;
            }
            (Answer::Missing { .. }, Some(last @ Answer::Missing { .. })) => {
                *last = answer;
                return;
            }
            (Answer::Read(again), _) => {
                let again = *again;
                if self.replace(&again) {
                    return;
                }
            }
            _ => {}
        }
        self.reads += usize::from(answer.is_read());
        self.queue.push_back(answer);
    }

    /// A READ that is asked again while its answer waits: the answer begins anew where it is wanted.
    fn replace(&mut self, again: &ReadAnswer) -> bool {
        let end = again.first_psn + u64::from(again.packets);
        let same = |answer: &&mut Answer| match answer {
            Answer::Read(read) => read.first_psn + u64::from(read.packets) == end,
            _ => false,
        };
        match self.queue.iter_mut().find(same) {
            Some(found) => {
                *found = Answer::Read(*again);
                true
            }
            None => false,
        }
    }

    /// READs and atomic operations whose answers wait.
    pub(crate) fn reads(&self) -> usize {
        self.reads
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Answer> {
        self.queue.front_mut()
    }

    pub(crate) fn pop(&mut self) -> Option<Answer> {
        let answer = self.queue.pop_front()?;
        self.reads -= usize::from(answer.is_read());
        Some(answer)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
