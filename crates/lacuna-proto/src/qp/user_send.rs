//! A send as the application knows it: any length, one outcome, however many
//! messages it became.

use super::error::SendFailure;
use crate::buffer::SendBuffer;
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
    pub(super) deadline_ns: Option<u64>,
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
    pub(super) detached: bool,
}

impl UserSend {
    /// A send that waits for its receive.
    pub(super) fn new(len_bytes: u64, deadline_ns: Option<u64>) -> Self {
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
