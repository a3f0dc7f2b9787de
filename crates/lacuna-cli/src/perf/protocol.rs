//! Messages of client and server on the session's reliable connection: one JSON message each way at
//! the start and at the end.
//!
//! A client has two connections and a server has many clients; the tags of a client's two
//! connections carry the same random number.
//!
//! Every wait has a time limit and ends on Ctrl-C.
//! Every wait has an end, and is looked after meanwhile: Ctrl-C ends it too.

use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use lacuna::{Connection, PostReceiveError, RecvError, RecvHandle};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// Longest message of the session.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Most memory that a server allocates for one client.
pub(super) const LENT_BYTES_MAX: u64 = 16 << 30;
/// How long the other end may take to receive a session message.
pub(super) const TOLD_WITHIN: Duration = Duration::from_secs(10);
/// How long a server may take to answer, including the allocation of memory.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Client to server, first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) size_bytes: u64,
    pub(super) inflight: u32,
    pub(super) validate: bool,
}

/// Server to client: whether to connect the measured connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    Ready,
    Refused { reason: String },
}

/// Client to server: all messages have been sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) messages: u64,
}

/// Server to client, last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Counters {
    /// Messages that ended, complete or not, warm-up included.
    pub(super) messages: u64,
    /// Messages with lost packets.
    pub(super) incomplete: u64,
    /// Lost chunks.
    pub(super) missing_chunks: u64,
    pub(super) missing_bytes: u64,
    /// Messages with wrong bytes.
    pub(super) wrong: u64,
    pub(super) first_wrong: Option<String>,
    pub(super) lost_packets: u64,
    pub(super) duplicate_packets: u64,
    pub(super) rejected_packets: u64,
    pub(super) receive_drops: u64,
    /// Chunks that were computed from parity, and the time that took.
    #[serde(default)]
    pub(super) repaired_chunks: u64,
    #[serde(default)]
    pub(super) decode_s: f64,
    /// Processor time; `None` if the server had another client meanwhile.
    pub(super) cpu_s: Option<f64>,
}

/// A session message did not come.
#[derive(Debug, thiserror::Error)]
pub(super) enum TalkError {
    /// The other end is gone, or is not a perf endpoint.
    #[error(transparent)]
    Receive(#[from] RecvError),
    /// It is alive but silent.
    #[error("said nothing for {:.0} s", .waited.as_secs_f64())]
    Silent { waited: Duration },
    /// It sent something else.
    #[error("speaks another protocol ({0})")]
    Foreign(#[from] serde_json::Error),
    /// Ctrl-C.
    #[error("interrupted")]
    Stopped,
}

impl From<PostReceiveError> for TalkError {
    fn from(error: PostReceiveError) -> Self {
        Self::Receive(RecvError::Post(error))
    }
}

/// A session message to come.
pub(super) struct Awaited<M> {
    handle: Option<RecvHandle>,
    message: PhantomData<M>,
}

impl<M: for<'d> Deserialize<'d>> Awaited<M> {
    /// Posts a receive for it.
    pub(super) fn post(session: &Connection) -> Result<Self, PostReceiveError> {
        let handle = session.post_recv(vec![0; MESSAGE_BYTES_MAX])?;
        Ok(Self { handle: Some(handle), message: PhantomData })
    }

    /// The message if it has arrived; `None` once it was taken.
    pub(super) fn poll(&mut self) -> Result<Option<M>, TalkError> {
        self.poll_within(Duration::ZERO)
    }

    /// Waits for the message.
    pub(super) fn wait(
        mut self,
        timeout: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<M, TalkError> {
        let since = Instant::now();
        loop {
            if let Some(message) = self.poll_within(POLL_INTERVAL)? {
                return Ok(message);
            }
            if stop() {
                return Err(TalkError::Stopped);
            }
            let waited = since.elapsed();
            if waited >= timeout {
                return Err(TalkError::Silent { waited });
            }
        }
    }

    /// Waits a little for the message. In a context without threads this makes progress.
    pub(super) fn rest(&self, time: Duration) {
        if let Some(handle) = &self.handle {
            // The next poll reports any error.
            let _ = handle.wait(time);
        } else {
            std::thread::park_timeout(time);
        }
    }

    fn poll_within(&mut self, timeout: Duration) -> Result<Option<M>, TalkError> {
        let Some(handle) = &self.handle else { return Ok(None) };
        match handle.wait(timeout) {
            Ok(()) => {}
            Err(RecvError::Deadline { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let Some(done) = self.handle.take().map(RecvHandle::complete) else { return Ok(None) };
        let len = done.len.unwrap_or(0);
        Ok(Some(serde_json::from_slice(&done.buffer[..len])?))
    }
}

/// Sends one message and waits until the other end has it.
pub(super) fn send(session: &Connection, message: &impl Serialize) -> Result<(), Failure> {
    send_within(session, message, TOLD_WITHIN)
}

/// As [`send`], with a shorter time limit.
pub(super) fn send_within(
    session: &Connection,
    message: &impl Serialize,
    timeout: Duration,
) -> Result<(), Failure> {
    let bytes = serde_json::to_vec(message)
        .map_err(|error| Failure::Local(format!("cannot write a message: {error}")))?;
    Ok(session.send_with(&bytes, None, timeout)?)
}
