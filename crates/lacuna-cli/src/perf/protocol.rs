//! Messages of client and server on the session's reliable connection: one JSON message each way at
//! the start and at the end.
//!
//! A client has two connections and a server has many clients; the tags of a client's two
//! connections carry the same random number.
//!
//! Every wait has a time limit and ends on Ctrl-C.
//!
//! There are no versions: a field that an end does not know is ignored, and one that the other end leaves
//! out has a default. So that nothing which was asked for is ignored in silence, a client that asks for more
//! than plain sends gives [`Terms`], and a server that knows them agrees to them instead of being
//! [`Answer::Ready`].

use super::datagram::{Asked, Offered, Placed};
use super::rc::Described;
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use lacuna::{
    ChannelStats, Connection, ConnectionStats, Missing, PostReceiveError, RecvError, RecvHandle,
    SentStats,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) size_bytes: u64,
    pub(super) inflight: u32,
    pub(super) validate: bool,
}

/// [`Request`] as it is sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Opening {
    #[serde(flatten)]
    pub(super) request: Request,
    /// `None` for plain sends, which servers of all versions measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) terms: Option<Terms>,
}

/// What is measured, if not plain sends.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Terms {
    /// Name of the verb.
    pub(super) verb: String,
    /// How long after it was posted a receive ends. Of other operations the client keeps the time.
    pub(super) deadline_us: Option<u64>,
    /// What the gaps of a receive hold.
    pub(super) missing: Option<Fill>,
    /// Each write is sent back by a write to this place of the client.
    pub(super) echo: Option<Place>,
    /// The measurement is over a reliable connection to this queue pair of the client, and over no
    /// connection of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rc: Option<Described>,
    /// The measurement is over datagram queue pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) datagram: Option<Asked>,
}

/// What the gaps of a receive hold, as [`lacuna::Missing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fill {
    /// Zeros
    Zero,
    /// What was there before
    Keep,
}

/// A place in a region.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) key: u32,
    pub(super) address: u64,
}

/// Server to client: whether to connect the measured connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    /// For plain sends.
    Ready,
    /// To the [`Terms`].
    Agreed {
        /// Of the region that is written or read, with a place for each operation in flight
        /// ([`Request::place`]).
        key: Option<u32>,
        /// The server's queue pair, if a reliable connection is measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rc: Option<Described>,
        /// The server's queue pair, if datagrams are measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        datagram: Option<Offered>,
    },
    Refused {
        reason: String,
    },
}

/// Client to server: all messages have been sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) messages: u64,
    /// How operations ended, as far as the client knows.
    #[serde(default)]
    pub(super) ended: Ended,
    /// Operations that were given up at the end, and are not among the messages.
    #[serde(default)]
    pub(super) given_up: u64,
    /// Bytes that are known to be lost; `None` if the server has to find out.
    #[serde(default)]
    pub(super) lost_bytes: Option<u64>,
}

/// Operations by how they ended: the names of [`lacuna::Reason`].
pub(super) type Ended = BTreeMap<String, u64>;

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
    /// Bytes that did not come, to the packet. `None` of a server of an older version.
    #[serde(default)]
    pub(super) lost_bytes: Option<u64>,
    /// How operations ended, by reason; empty of a server of an older version.
    #[serde(default)]
    pub(super) ended: Ended,
    /// Writes that the server's program was told of; `None` of other verbs.
    #[serde(default)]
    pub(super) told_messages: Option<u64>,
    /// Why the server's shim asked for the repairs that it asked for.
    #[serde(default)]
    pub(super) chosen: Option<Chosen>,
    /// What the server's repair shim did, if it has one.
    #[serde(default)]
    pub(super) repairs: Option<Repairs>,
    /// What the server has sent, if it is the end that sends.
    #[serde(default)]
    pub(super) sent: Option<Sent>,
    /// What came of datagrams.
    #[serde(default)]
    pub(super) datagrams: Option<Placed>,
}

/// What the repair shim of an end did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Repairs {
    /// Repair packets that it sent.
    pub(super) sent: u64,
    /// Blocks that it could not protect for want of memory.
    pub(super) blocks_uncoded: u64,
    /// Packets that were lost and computed from others.
    pub(super) recovered: u64,
    /// Gaps that were left to the connection.
    pub(super) failed: u64,
}

/// Why packets that came were protected as they were, if that was chosen (`lowar:auto`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Chosen {
    pub(super) why: String,
    /// Strengths that were chosen, one after another.
    pub(super) choices: u64,
}

/// What an end has sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sent {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) retransmitted_packets: u64,
    pub(super) parity_packets: u64,
    pub(super) parity_bytes: u64,
    pub(super) fallbacks: u64,
    pub(super) encode_s: f64,
}

impl Sent {
    pub(super) fn of(sent: &SentStats) -> Self {
        Self {
            packets: sent.packets,
            bytes: sent.bytes,
            retransmitted_packets: sent.retransmitted_packets,
            parity_packets: sent.parity_packets,
            parity_bytes: sent.parity_bytes,
            fallbacks: sent.fallbacks,
            encode_s: sent.encode_s,
        }
    }

    /// Payload bytes without parity.
    pub(super) fn data_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.parity_bytes)
    }
}

impl Counters {
    /// With the wrong messages of other servers that took the same messages, whose processor time is not known.
    pub(super) fn beside<'a>(mut self, others: impl Iterator<Item = &'a Self>) -> Self {
        for other in others {
            self.wrong += other.wrong;
            self.first_wrong = self.first_wrong.or_else(|| other.first_wrong.clone());
            self.cpu_s = None;
        }
        self
    }

    /// With what a connection has received.
    pub(super) fn with_received(
        self,
        stats: &ConnectionStats,
        rejected_before: u64,
        drops_before: u64,
    ) -> Self {
        let context = &stats.context;
        // A damaged packet without a RETH looks like one with a wrong key.
        let damaged = |channel: &ChannelStats| channel.discarded.get("key").copied().unwrap_or(0);
        Self {
            lost_packets: stats.lost_packets,
            duplicate_packets: stats.channels.iter().map(|channel| channel.duplicates).sum(),
            rejected_packets: context.rejected_packets().saturating_sub(rejected_before)
                + stats.channels.iter().map(damaged).sum::<u64>(),
            receive_drops: context.receive_drops.saturating_sub(drops_before),
            repaired_chunks: stats.channels.iter().map(|channel| channel.repaired_chunks).sum(),
            decode_s: stats.channels.iter().map(|channel| channel.decode_s).sum(),
            ..self
        }
    }
}

impl Request {
    /// Bytes from one place of a region to the next: whole words, which are read and written at once.
    fn stride_bytes(&self) -> u64 {
        self.size_bytes.checked_next_multiple_of(64).unwrap_or(u64::MAX)
    }

    /// Where in a region message `number` lies. Messages in flight at once have places of their own.
    pub(super) fn place(&self, number: u64) -> u64 {
        (number % u64::from(self.inflight.max(1))).saturating_mul(self.stride_bytes())
    }

    /// The same for several queue pairs: the places of each follow those of the one before.
    pub(super) fn times(&self, count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self { inflight: self.inflight.saturating_mul(count), ..*self }
    }

    /// Bytes of a region with all places.
    pub(super) fn region_bytes(&self) -> u64 {
        self.stride_bytes().saturating_mul(self.inflight.into())
    }
}

impl Terms {
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deadline_us.map(Duration::from_micros)
    }
}

impl From<Fill> for Missing {
    fn from(fill: Fill) -> Self {
        match fill {
            Fill::Zero => Self::Zero,
            Fill::Keep => Self::Keep,
        }
    }
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
