//! Sends as the application knows them: any length, one outcome, however many
//! messages it became; and whose deadline is the next.

use super::error::{PostSendError, SendFailure};
use crate::buffer::SendBuffer;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Names a send of this queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId(pub(super) u64);

/// A send to be made.
#[derive(Debug, Clone)]
pub struct SendRequest {
    /// The bytes; any length.
    pub data: SendBuffer,
    /// User immediate to go with it.
    pub immediate: Option<u32>,
    /// When to give up, on the caller's clock.
    pub deadline_ns: Option<u64>,
}

/// Where a send stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendStatus {
    /// Everything was put on the wire once.
    pub injected: bool,
    /// The peer said that its receive is finished, complete or not.
    pub finished: bool,
    /// How it ended, for this queue pair's mode; `None` while it goes on.
    pub outcome: Option<Result<(), SendFailure>>,
    /// Chunks that were sent again.
    pub retransmitted_chunks: u64,
}

/// A send as the application knows it.
#[derive(Debug)]
pub(super) struct UserSend {
    pub(super) len_bytes: u64,
    deadline_ns: Option<u64>,
    /// Messages it became; empty while it waits.
    pub(super) numbers: Range<u64>,
    /// Of those, how many are not injected and not finished.
    pub(super) uninjected: u64,
    pub(super) unfinished: u64,
    pub(super) acked_bytes: u64,
    pub(super) retransmitted_chunks: u64,
    pub(super) outcome: Option<Result<(), SendFailure>>,
    /// A stream stays open until it is ended.
    pub(super) streaming: bool,
    /// It was a stream, and the peer has its message whole before it was ended:
    /// what is still put into it has no use and is no mistake.
    pub(super) stream_is_whole: bool,
    /// Nobody will ask for the outcome: forget it when it is known.
    detached: bool,
}

impl UserSend {
    /// A send that waits for its receive.
    fn new(len_bytes: u64, deadline_ns: Option<u64>) -> Self {
        Self {
            len_bytes,
            deadline_ns,
            numbers: 0..0,
            uninjected: 0,
            unfinished: 0,
            acked_bytes: 0,
            retransmitted_chunks: 0,
            outcome: None,
            streaming: false,
            stream_is_whole: false,
            detached: false,
        }
    }

    /// It became the messages from `first` on.
    pub(super) fn start(&mut self, first: u64, count: u64) {
        self.numbers = first..first + count;
        self.uninjected = count;
        self.unfinished = count;
    }
}

/// The sends of a queue pair until their end, and after it for as long as
/// somebody may ask for the outcome.
#[derive(Debug, Default)]
pub(super) struct UserSends {
    by_id: BTreeMap<SendId, UserSend>,
    next_id: u64,
    /// Deadlines of the sends that go on, the next one first.
    deadlines: BTreeSet<(u64, SendId)>,
}

impl UserSends {
    /// Takes a send, which waits for its receive.
    pub(super) fn admit(&mut self, len_bytes: u64, deadline_ns: Option<u64>) -> SendId {
        let id = SendId(self.next_id);
        self.next_id += 1;
        self.by_id.insert(id, UserSend::new(len_bytes, deadline_ns));
        self.deadlines.extend(deadline_ns.map(|deadline_ns| (deadline_ns, id)));
        id
    }

    pub(super) fn get(&self, id: SendId) -> Option<&UserSend> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: SendId) -> Option<&mut UserSend> {
        self.by_id.get_mut(&id)
    }

    /// A stream that goes on; `None` if the peer has its message whole already.
    pub(super) fn stream(&mut self, id: SendId) -> Result<Option<&mut UserSend>, PostSendError> {
        match self.by_id.get_mut(&id) {
            Some(send) if send.streaming => Ok(Some(send)),
            Some(send) if send.stream_is_whole => Ok(None),
            _ => Err(PostSendError::NoSuchSend),
        }
    }

    /// Those that go on.
    pub(super) fn open(&self) -> Vec<SendId> {
        let open = self.by_id.iter().filter(|(_, send)| send.outcome.is_none());
        open.map(|(id, _)| *id).collect()
    }

    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline_ns, _)| *deadline_ns)
    }

    /// A send that goes on though its deadline has passed.
    pub(super) fn overdue(&self, now_ns: u64) -> Option<SendId> {
        self.deadlines.first().filter(|deadline| deadline.0 <= now_ns).map(|(_, id)| *id)
    }

    /// Ends a send; `false` if it has ended before.
    pub(super) fn settle(&mut self, id: SendId, outcome: Result<(), SendFailure>) -> bool {
        let Some(send) = self.by_id.get_mut(&id).filter(|send| send.outcome.is_none()) else {
            return false;
        };
        send.outcome = Some(outcome);
        send.streaming = false;
        if let Some(deadline_ns) = send.deadline_ns {
            self.deadlines.remove(&(deadline_ns, id));
        }
        self.forget(id);
        true
    }

    /// Nobody will ask for the outcome.
    pub(super) fn release(&mut self, id: SendId) {
        if let Some(send) = self.by_id.get_mut(&id) {
            send.detached = true;
        }
        self.forget(id);
    }

    /// Forgets a send that has ended and that nobody will ask for.
    fn forget(&mut self, id: SendId) {
        let done = |send: &UserSend| send.detached && send.outcome.is_some();
        if self.by_id.get(&id).is_some_and(done) {
            self.by_id.remove(&id);
        }
    }
}
