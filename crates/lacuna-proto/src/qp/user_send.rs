//! Sends as the application sees them: of any length, with one outcome however many messages they
//! take, and an optional deadline.

use super::deadlines::Deadlines;
use super::error::{PostSendError, SendFailure};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::prefetch::prefetch_value;
use std::collections::VecDeque;
use std::ops::Range;

/// Identifies a send of this queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId {
    /// Number of the send; later ones are greater.
    serial: u64,
    /// Index in the table.
    index: u32,
}

impl SendId {
    /// How many sends there were before it.
    pub(super) fn earlier(self) -> u64 {
        self.serial
    }
}

/// A send to be made.
#[derive(Debug, Clone)]
pub struct SendRequest {
    /// The bytes; any length.
    pub data: SendBuffer,
    /// User immediate to go with it.
    pub immediate: Option<u32>,
    /// Deadline, on the caller's clock.
    pub deadline_ns: Option<u64>,
}

/// State of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendStatus {
    /// Everything was sent once.
    pub injected: bool,
    /// The peer has finished its receive, complete or not.
    pub finished: bool,
    /// How it ended, for this queue pair's mode; `None` while it goes on.
    pub outcome: Option<Result<(), SendFailure>>,
    /// Chunks queued to be sent again. A chunk acknowledged before it leaves is counted but not
    /// sent.
    pub retransmitted_chunks: u64,
}

/// A send as the application knows it.
#[derive(Debug)]
pub(super) struct UserSend {
    pub(super) len_bytes: u64,
    /// Numbers of its messages; empty while it waits for its receive.
    pub(super) numbers: Range<u64>,
    /// Messages of `numbers` that were not sent completely once.
    pub(super) uninjected: u64,
    /// Messages of `numbers` that the peer has not finished.
    pub(super) unfinished: u64,
    pub(super) acked_bytes: u64,
    pub(super) retransmitted_chunks: u64,
    pub(super) outcome: Option<Result<(), SendFailure>>,
    /// It is a stream that was not ended.
    pub(super) streaming: bool,
    /// It was a stream, and the peer had its whole message before the application ended it. Further
    /// pushes are ignored, and are no error.
    pub(super) stream_is_whole: bool,
    /// The owner takes its outcome from a list ([`UserSends::poll_ended`]).
    notifies: bool,
    /// The application has released the send; forget it at its end.
    detached: bool,
}

impl UserSend {
    /// A send that waits for its receive.
    fn new(len_bytes: u64) -> Self {
        Self {
            len_bytes,
            numbers: 0..0,
            uninjected: 0,
            unfinished: 0,
            acked_bytes: 0,
            retransmitted_chunks: 0,
            outcome: None,
            streaming: false,
            stream_is_whole: false,
            notifies: false,
            detached: false,
        }
    }

    /// The send has become `count` messages from `first` on.
    pub(super) fn start(&mut self, first: u64, count: u64) {
        self.numbers = first..first + count;
        self.uninjected = count;
        self.unfinished = count;
    }
}

/// The sends of a queue pair, each until it has ended and was released.
///
/// A slab: adding and finding a send takes no search, and a warm table allocates nothing. It must
/// handle some million messages a second.
#[derive(Debug, Default)]
pub(super) struct UserSends {
    table: Vec<Option<(u64, UserSend)>>,
    /// Indices of empty entries.
    free: Vec<u32>,
    next_serial: u64,
    /// Number of sends without an outcome.
    open: usize,
    /// Sends that have ended and whose outcome the owner takes.
    ended: VecDeque<SendId>,
    /// The first is that of an open send.
    deadlines: Deadlines<SendId>,
}

impl UserSends {
    /// Enters a send that waits for its receive.
    pub(super) fn admit(&mut self, len_bytes: u64, deadline_ns: Option<u64>) -> SendId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            (self.table.len() - 1) as u32
        });
        let id = SendId { serial: self.next_serial, index };
        self.next_serial += 1;
        self.table[index as usize] = Some((id.serial, UserSend::new(len_bytes)));
        self.open += 1;
        if let Some(deadline_ns) = deadline_ns {
            self.deadlines.push(deadline_ns, id);
        }
        id
    }

    /// Sends that were entered so far.
    pub(super) fn admitted(&self) -> u64 {
        self.next_serial
    }

    /// Prefetches a send that is looked at soon.
    #[inline]
    pub(super) fn prefetch(&self, id: SendId) {
        if let Some(send) = self.table.get(id.index as usize) {
            prefetch_value(send);
        }
    }

    pub(super) fn get(&self, id: SendId) -> Option<&UserSend> {
        let (serial, send) = self.table.get(id.index as usize)?.as_ref()?;
        (*serial == id.serial).then_some(send)
    }

    pub(super) fn get_mut(&mut self, id: SendId) -> Option<&mut UserSend> {
        let (serial, send) = self.table.get_mut(id.index as usize)?.as_mut()?;
        (*serial == id.serial).then_some(send)
    }

    /// An open stream; `None` if the peer has its message whole already.
    pub(super) fn stream(&mut self, id: SendId) -> Result<Option<&mut UserSend>, PostSendError> {
        match self.get_mut(id) {
            Some(send) if send.streaming => Ok(Some(send)),
            Some(send) if send.stream_is_whole => Ok(None),
            _ => Err(PostSendError::NoSuchSend),
        }
    }

    /// The sends without an outcome, in the order in which they were entered.
    pub(super) fn open(&self) -> Vec<SendId> {
        let open = self.table.iter().enumerate().filter_map(|(index, entry)| {
            let (serial, send) = entry.as_ref()?;
            let id = SendId { serial: *serial, index: index as u32 };
            send.outcome.is_none().then_some(id)
        });
        let mut open: Vec<_> = open.collect();
        open.sort_unstable();
        open
    }

    /// How many sends before this one have no outcome.
    pub(super) fn open_before(&self, id: SendId) -> usize {
        let open = self
            .table
            .iter()
            .flatten()
            .filter(|(serial, send)| *serial < id.serial && send.outcome.is_none());
        open.count()
    }

    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.next_ns()
    }

    /// An open send whose deadline has passed.
    pub(super) fn overdue(&self, now_ns: u64) -> Option<SendId> {
        self.deadlines.overdue(now_ns)
    }

    /// Has the owner take a send's outcome from a list, instead of asking for it.
    pub(super) fn notify(&mut self, id: SendId) {
        let Some(send) = self.get_mut(id) else { return };
        send.notifies = true;
        if send.outcome.is_some() {
            self.ended.push_back(id);
        }
    }

    /// The next such send that has ended, which is forgotten.
    pub(super) fn poll_ended(&mut self) -> Option<(SendId, Result<(), SendFailure>)> {
        loop {
            let id = self.ended.pop_front()?;
            let outcome = self.get(id).and_then(|send| send.outcome);
            self.release(id);
            if let Some(outcome) = outcome {
                return Some((id, outcome));
            }
        }
    }

    /// Ends a send. Returns `false` if it had ended before.
    pub(super) fn settle(&mut self, id: SendId, outcome: Result<(), SendFailure>) -> bool {
        let Some(send) = self.get_mut(id).filter(|send| send.outcome.is_none()) else {
            return false;
        };
        send.outcome = Some(outcome);
        send.streaming = false;
        let notifies = send.notifies;
        self.open -= 1;
        if notifies {
            self.ended.push_back(id);
        }
        self.forget(id);
        self.tidy_deadlines();
        true
    }

    /// The application will not ask for the outcome.
    pub(super) fn release(&mut self, id: SendId) {
        if let Some(send) = self.get_mut(id) {
            send.detached = true;
        }
        self.forget(id);
    }

    /// Removes a send if it has ended and was released.
    fn forget(&mut self, id: SendId) {
        let done = |send: &UserSend| send.detached && send.outcome.is_some();
        if self.get(id).is_some_and(done) {
            self.table[id.index as usize] = None;
            self.free.push(id.index);
        }
    }

    fn tidy_deadlines(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let mut deadlines = std::mem::take(&mut self.deadlines);
        let is_open = |id: SendId| self.get(id).is_some_and(|send| send.outcome.is_none());
        deadlines.tidy(self.open, is_open);
        self.deadlines = deadlines;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_entry_is_another_send() {
        let mut sends = UserSends::default();
        let first = sends.admit(1, None);
        sends.release(first);
        assert!(sends.settle(first, Ok(())));
        let second = sends.admit(2, None);
        assert_eq!((first.index, second.index), (0, 0));
        assert!(sends.get(first).is_none() && !sends.settle(first, Ok(())));
        assert_eq!(sends.get(second).unwrap().len_bytes, 2);
        assert!(second > first);
    }

    #[test]
    fn the_next_deadline_is_of_a_send_that_goes_on() {
        let mut sends = UserSends::default();
        let ids: Vec<_> = [30, 10, 20].map(|at| sends.admit(1, Some(at))).to_vec();
        assert_eq!((sends.next_deadline_ns(), sends.overdue(9)), (Some(10), None));
        assert_eq!(sends.overdue(10), Some(ids[1]));
        sends.settle(ids[2], Ok(()));
        sends.settle(ids[1], Ok(()));
        assert_eq!(sends.next_deadline_ns(), Some(30));
        assert_eq!(sends.open(), [ids[0]]);
    }

    #[test]
    fn deadlines_of_ended_sends_do_not_accumulate_behind_an_early_one() {
        let mut sends = UserSends::default();
        sends.admit(1, Some(1));
        for at in 2..10_000 {
            let id = sends.admit(1, Some(at));
            sends.release(id);
            sends.settle(id, Ok(()));
            assert!(sends.deadlines.len() <= 100);
        }
        assert_eq!((sends.table.len(), sends.next_deadline_ns()), (2, Some(1)));
    }
}
