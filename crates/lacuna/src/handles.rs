//! Handles on operations in flight: a receive with its live bitmap, a one-shot send, a stream.
//!
//! Dropping a receive handle closes the receive; dropping a send handle lets the send continue. A
//! call that waits sleeps until the workers signal a change of the queue pair, or makes progress
//! itself if the context has no threads.

use crate::clock::after;
use crate::completed::{Completed, Missing};
use crate::error::{PostSendError, RecvError, SendError};
use crate::queue_pair::Owner;
use lacuna_engine::Machine;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::Geometry;
use lacuna_place::reason::Reason;
use lacuna_proto::modes::Mode;
use lacuna_proto::qp::{PostedReceive, QueuePair, ReceiveFailure, SendId, SendStatus};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Longest single sleep of a call that waits. A signal ends it earlier; this bounds what a lost one
/// costs.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Waits until `check` returns `Some`, at most until `deadline_ns`.
pub(crate) fn wait_for<R>(
    owner: &Owner,
    deadline_ns: u64,
    mut check: impl FnMut(&mut QueuePair) -> Option<R>,
) -> Option<R> {
    let clock = owner.context.clock();
    let mut state = owner.shared.lock();
    loop {
        if let Machine::Sdr(qp) = &mut state.machine
            && let Some(found) = check(qp)
        {
            return Some(found);
        }
        let left = clock.until(deadline_ns);
        if left.is_zero() {
            return None;
        }
        if owner.context.is_manual() {
            drop(state);
            owner.context.progress_within(left.min(SLEEP_MAX));
            state = owner.shared.lock();
        } else {
            state = owner.shared.wait(state, left.min(SLEEP_MAX));
        }
    }
}

/// A posted receive.
///
/// In a bounded mode nothing is repaired, and the receive is over in time with what is there:
///
/// ```no_run
/// # use lacuna::{ConnectionConfig, Connection, Context, RecvOptions};
/// # use std::time::Duration;
/// # fn example(context: &Context, connection: &Connection) -> Result<(), Box<dyn std::error::Error>> {
/// // The connecting end chooses the mode:
/// let config = ConnectionConfig { mode: "bounded".parse()?, ..ConnectionConfig::default() };
/// let sending = Connection::connect(context, "receiver:7400", config)?;
///
/// // The other:
/// let options = RecvOptions::within(Duration::from_millis(100));
/// let done = connection.post_recv_with(vec![0; 1 << 20], options)?.finish();
/// println!("{} bytes came, ended by {}", done.bytes, done.reason);
/// for gap in done.packets.gaps() {
///     println!("bytes {} to {} are zero", gap.start, gap.end);
/// }
/// # Ok(())
/// # }
/// ```
///
/// In mode `raw` nothing is repaired either, and a receive goes on until the application closes it.
/// Chunk `i` begins at `i` times the chunk's bytes in the buffer, in a receive of several slots too.
///
/// ```no_run
/// # use lacuna::{ConnectionConfig, Connection, Context, Mode, RecvError};
/// # use std::time::Duration;
/// # fn example(context: &Context, connection: &Connection) -> Result<(), Box<dyn std::error::Error>> {
/// // The connecting end:
/// let config = ConnectionConfig { mode: Mode::Raw, ..ConnectionConfig::default() };
/// let sending = Connection::connect(context, "receiver:7400", config)?;
///
/// // The other:
/// let receive = connection.post_recv(vec![0; 1 << 20])?;
/// let chunk_bytes = receive.geometry().chunk_bytes() as usize;
/// match receive.wait(Duration::from_millis(100)) {
///     Ok(()) | Err(RecvError::Deadline { .. }) => {}
///     Err(error) => return Err(error.into()),
/// }
/// let done = receive.complete();
/// // Where the message ends is not known if its last packet did not come.
/// let bytes = &done.buffer[..done.len.unwrap_or(done.buffer.len())];
/// for (i, chunk) in bytes.chunks(chunk_bytes).enumerate() {
///     let is_here = done.chunks[i / 64] >> (i % 64) & 1 == 1;
///     println!("chunk {i}, {} bytes: {is_here}", chunk.len());
/// }
/// # Ok(())
/// # }
/// ```
pub struct RecvHandle {
    owner: Arc<Owner>,
    posted: Option<PostedReceive>,
    /// `None`: what is usual in the queue pair's mode.
    missing: Option<Missing>,
}

impl RecvHandle {
    pub(crate) fn new(owner: Arc<Owner>, posted: PostedReceive, missing: Option<Missing>) -> Self {
        Self { owner, posted: Some(posted), missing }
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn posted(&self) -> &PostedReceive {
        self.posted.as_ref().expect("taken only by complete and drop")
    }

    /// Whether the whole message is here.
    pub fn is_complete(&self) -> bool {
        self.posted().is_complete()
    }

    /// Chunks of the message; of the buffer while the message's length is unknown.
    pub fn chunks(&self) -> u32 {
        let mut chunks = 0;
        for part in &self.posted().parts {
            chunks += part.chunks();
            if part.length_bytes().is_some() {
                // The message ends here; slots behind it stay unused.
                break;
            }
        }
        chunks
    }

    /// Chunks of the buffer, however long the message is.
    pub fn capacity_chunks(&self) -> u32 {
        self.posted().parts.iter().map(|part| part.capacity_chunks()).sum()
    }

    /// The numbers that both ends agreed on; a receive has one part at least.
    pub fn geometry(&self) -> &Geometry {
        self.posted().parts[0].geometry()
    }

    /// Chunks that are here.
    pub fn chunks_done(&self) -> u32 {
        self.posted().parts.iter().map(|part| part.chunks_done()).sum()
    }

    /// Whether a chunk is here: one load, no lock.
    pub fn has_chunk(&self, chunk: u32) -> bool {
        // Polled often, and mostly on a receive of one part: avoid the division.
        if let [only] = &self.posted().parts[..] {
            return only.has_chunk(chunk);
        }
        self.locate(chunk).is_some_and(|(part, chunk)| self.posted().parts[part].has_chunk(chunk))
    }

    /// The bytes of a chunk that is here, while others still arrive. It begins at
    /// `chunk` times [`Geometry::chunk_bytes`](crate::Geometry::chunk_bytes).
    pub fn chunk(&self, chunk: u32) -> Option<&[u8]> {
        let (part, chunk) = self.locate(chunk)?;
        self.posted().parts[part].chunk(chunk)
    }

    /// Bytes of the buffer whose chunks are all here, while others still arrive; `None` if some are not,
    /// and of a receive of several slots.
    pub fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        match &self.posted().parts[..] {
            [only] => only.bytes(range),
            _ => None,
        }
    }

    /// Which packets of a chunk are here, one bit each (the first 64).
    pub fn chunk_packets(&self, chunk: u32) -> u64 {
        self.locate(chunk).map_or(0, |(part, chunk)| self.posted().parts[part].chunk_packets(chunk))
    }

    /// The live chunk bitmap itself, for readers that keep a pointer to it: chunk
    /// `i` is bit `i % 64` of word `i / 64`. Bits are set while packets come and
    /// never cleared. `None` for a receive of several slots, each of which has a
    /// bitmap of its own.
    pub fn live_chunk_bits(&self) -> Option<&[AtomicU64]> {
        match &self.posted().parts[..] {
            [only] => Some(only.chunk_bits()),
            _ => None,
        }
    }

    /// Which packets of a chunk are here, one bit each, however many a chunk has:
    /// fills `words` from its start, and with zeros behind the chunk.
    pub fn copy_chunk_packets(&self, chunk: u32, words: &mut [u64]) {
        words.fill(0);
        let Some((part, chunk)) = self.locate(chunk) else { return };
        let part = &self.posted().parts[part];
        let chunk_packets = part.geometry().chunk_packets();
        let first = u64::from(chunk) * u64::from(chunk_packets);
        for packet in 0..chunk_packets {
            let Some(word) = words.get_mut((packet / 64) as usize) else { return };
            let here = u32::try_from(first + u64::from(packet)).is_ok_and(|p| part.has_packet(p));
            *word |= u64::from(here) << (packet % 64);
        }
    }

    fn locate(&self, chunk: u32) -> Option<(usize, u32)> {
        let per_part = self.posted().parts.first()?.capacity_chunks().max(1);
        let part = (chunk / per_part) as usize;
        (part < self.posted().parts.len()).then_some((part, chunk % per_part))
    }

    /// Bytes of the message, once its end is known.
    pub fn len(&self) -> Option<u64> {
        self.posted().length_bytes()
    }

    /// Whether the message is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The user immediate, once all its fragments came.
    pub fn immediate(&self) -> Option<u32> {
        self.posted().immediate()
    }

    /// Why the message will never be complete, if so.
    pub fn failure(&self) -> Option<ReceiveFailure> {
        let posted = self.posted();
        self.owner.shared.with_qp(|qp| qp.receive_failure(posted))
    }

    /// Why the receive is over; `None` while it goes on.
    pub fn reason(&self) -> Option<Reason> {
        self.posted().reason()
    }

    /// Bytes of the message that are here; copies count once.
    pub fn placed_bytes(&self) -> u64 {
        self.posted().placed_bytes()
    }

    /// Waits until the whole message is here; with a `timeout` of zero it only checks.
    ///
    /// # Errors
    /// When `timeout` has passed, when the receive is over with gaps, or when
    /// the connection has ended. The handle remains, so that the part that
    /// arrived can be read; only after a `timeout` may more come.
    pub fn wait(&self, timeout: Duration) -> Result<(), RecvError> {
        let posted = self.posted();
        if posted.is_complete() {
            return Ok(());
        }
        let start_ns = self.owner.context.clock().now_ns();
        let done = wait_for(&self.owner, after(start_ns, timeout), |qp| {
            if posted.is_complete() {
                return Some(Ok(()));
            }
            let reason = posted.reason()?;
            Some(Err(match qp.receive_failure(posted) {
                Some(failure) => RecvError::Failed(failure),
                None => RecvError::Over { reason, bytes: posted.placed_bytes() },
            }))
        });
        done.unwrap_or_else(|| {
            Err(RecvError::Deadline {
                waited_ms: timeout.as_millis() as u64,
                chunks_done: self.chunks_done(),
                chunks: self.chunks(),
            })
        })
    }

    /// Waits until this many chunks are here, or the receive is over; returns how many are. After `timeout`
    /// they may be fewer.
    pub fn wait_chunks(&self, chunks: u32, timeout: Duration) -> u32 {
        let posted = self.posted();
        let deadline_ns = after(self.owner.context.clock().now_ns(), timeout);
        let mut is_watched = false;
        wait_for(&self.owner, deadline_ns, |qp| {
            if !std::mem::replace(&mut is_watched, true) {
                qp.watch_chunks(posted, chunks);
            }
            (self.chunks_done() >= chunks || posted.reason().is_some()).then_some(())
        });
        self.chunks_done()
    }

    /// Waits until the receive is over, for whatever reason; `None` if it is not after `timeout`.
    pub fn wait_over(&self, timeout: Duration) -> Option<Reason> {
        let posted = self.posted();
        if let Some(reason) = posted.reason() {
            return Some(reason);
        }
        let deadline_ns = after(self.owner.context.clock().now_ns(), timeout);
        wait_for(&self.owner, deadline_ns, |_| posted.reason())
    }

    /// Waits until the receive is over and takes the buffer back: at its deadline at the latest, or,
    /// without one, when the connection ends.
    pub fn finish(self) -> Completed {
        self.wait_over(Duration::MAX);
        self.complete()
    }

    /// Takes the buffer back, whether or not everything came. Nothing writes
    /// to it after this returns; the peer is told that the receive is finished,
    /// which without threads happens in the next calls that make progress.
    pub fn complete(mut self) -> Completed {
        let posted = self.close().expect("closed only here and by drop");
        Completed::of(posted, || self.zeroes(), self.owner.context.clock())
    }

    /// Whether gaps are zeroed when the buffer is given back.
    fn zeroes(&self) -> bool {
        let is_bounded =
            || self.owner.shared.with_qp(|qp| matches!(qp.config().mode, Mode::Bounded(_)));
        self.missing.map_or_else(is_bounded, |missing| missing == Missing::Zero)
    }

    fn close(&mut self) -> Option<PostedReceive> {
        let posted = self.posted.take()?;
        if self.owner.context.is_inherited() {
            // In this process nobody writes to it, and a thread that is not here may hold it.
            std::mem::forget(posted);
            return None;
        }
        let now_ns = self.owner.context.clock().now_ns();
        let table = self.owner.shared.table();
        for part in &posted.parts {
            // Without the lock: `close` waits for workers that are copying into the slot.
            table.close(part.number());
        }
        self.owner.shared.with_receives(|qp| qp.on_receive_closed(now_ns, &posted));
        Some(posted)
    }

    /// Closes a receive of which the application does not want the buffer back.
    #[cold]
    fn give_up(&mut self) {
        // Foreign memory goes back to its owner.
        if let Some(mut posted) = self.close()
            && !posted.is_complete()
            && self.zeroes()
        {
            posted.zero_missing();
        }
    }
}

impl Drop for RecvHandle {
    #[inline]
    fn drop(&mut self) {
        if self.posted.is_some() {
            self.give_up();
        }
    }
}

impl fmt::Debug for RecvHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvHandle")
            .field("message", &self.posted().first)
            .field("chunks_done", &self.chunks_done())
            .field("chunks", &self.chunks())
            .finish_non_exhaustive()
    }
}

/// A one-shot send.
pub struct SendHandle {
    owner: Arc<Owner>,
    id: SendId,
}

impl SendHandle {
    pub(crate) fn new(owner: Arc<Owner>, id: SendId) -> Self {
        Self { owner, id }
    }

    /// Its state and outcome.
    pub fn status(&self) -> SendStatus {
        self.owner
            .shared
            .with_qp(|qp| qp.send_status(self.id))
            .expect("released only when the handle is dropped")
    }

    /// Whether it has ended: for a reliable mode when the peer has everything,
    /// for `raw` when everything was put on the wire.
    pub fn is_done(&self) -> bool {
        self.status().outcome.is_some()
    }

    /// Lets a part of a send be sent that was started by [`crate::QueuePair::send_when_offered`]. The
    /// part does not change any more. Parts may be offered in any order, and again.
    ///
    /// # Errors
    /// When the part is outside of the send, or the connection has ended. A send that has ended has no
    /// use for it, which is no error.
    pub fn offer(&self, offset: usize, len: usize) -> Result<(), PostSendError> {
        let bytes = offset as u64..offset as u64 + len as u64;
        self.owner.shared.with_qp(|qp| qp.offer(self.id, bytes))?;
        self.owner.shared.kick();
        Ok(())
    }

    /// Waits until it has ended: by success, its deadline, or the end of the
    /// connection. A send without a deadline ([`crate::QueuePair::send`]) waits
    /// as long as the peer lives and posts no receive for it.
    ///
    /// # Errors
    /// How it ended, if not by success.
    pub fn wait(&self) -> Result<(), SendError> {
        // No deadline here: the send's own deadline or the peer's silence ends the wait.
        wait_for(&self.owner, u64::MAX, |qp| qp.send_status(self.id)?.outcome)
            .unwrap_or(Ok(()))
            .map_err(SendError::Failed)
    }

    /// Waits until the peer said that its receive is finished, complete or not.
    /// `false` if that did not happen within `timeout`, or cannot happen any more.
    pub fn wait_finished(&self, timeout: Duration) -> bool {
        let deadline_ns = after(self.owner.context.clock().now_ns(), timeout);
        let finished = |qp: &mut QueuePair| {
            let status = qp.send_status(self.id)?;
            // A raw send has its outcome when it was sent; the peer may disappear after that.
            let failed = matches!(status.outcome, Some(Err(_))) || qp.failure().is_some();
            (status.finished || failed).then_some(status.finished)
        };
        wait_for(&self.owner, deadline_ns, finished).unwrap_or(false)
    }

    /// Cancels the send. If it has begun, the peer's receive fails with `Cancelled`. If it still
    /// waits for a receive, it takes none, and the next send lands there. A send that has ended is
    /// not affected. A send whose deadline passes is cancelled in the same way.
    pub fn cancel(&self) {
        let now_ns = self.owner.context.clock().now_ns();
        self.owner.shared.with_qp(|qp| qp.cancel_send(now_ns, self.id));
        self.owner.shared.kick();
    }
}

impl Drop for SendHandle {
    fn drop(&mut self) {
        if self.owner.context.is_inherited() {
            return;
        }
        self.owner.shared.with_qp(|qp| qp.release_send(self.id));
    }
}

impl fmt::Debug for SendHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A streaming send: chunks of one message in any order, again if wanted.
///
/// A stream is not repaired in any mode. A reliability scheme of the application's own reads the
/// peer's bitmap (over a channel of its own) and pushes again what is missing.
pub struct Stream {
    owner: Arc<Owner>,
    id: SendId,
    ended: bool,
}

impl Stream {
    pub(crate) fn new(owner: Arc<Owner>, id: SendId) -> Self {
        Self { owner, id, ended: false }
    }

    /// Sends `data` to `offset_bytes` of the message, a multiple of the chunk.
    /// `ends_message` says that the message ends there; only such a part may
    /// be no multiple of the MTU.
    ///
    /// # Errors
    /// When the part is misaligned or too long; when the connection has ended;
    /// `NoSuchSend` when the peer has closed its receive with something missing.
    /// Once the peer has the whole message, nothing more is sent, and that is
    /// no error.
    pub fn push(
        &self,
        offset_bytes: u64,
        data: impl Into<SendBuffer>,
        ends_message: bool,
    ) -> Result<(), PostSendError> {
        let data = data.into();
        self.owner
            .shared
            .with_qp(|qp| qp.push_stream(self.id, offset_bytes, data, ends_message))?;
        self.owner.shared.kick();
        Ok(())
    }

    /// Ends the stream. Data that was pushed is still sent.
    pub fn end(mut self) -> Result<SendHandle, PostSendError> {
        self.owner.shared.with_qp(|qp| qp.end_stream(self.id))?;
        self.owner.shared.kick();
        // From here on the handle releases the send.
        self.ended = true;
        Ok(SendHandle::new(self.owner.clone(), self.id))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.ended || self.owner.context.is_inherited() {
            return;
        }
        // Dropping a stream that was not ended cancels it.
        let now_ns = self.owner.context.clock().now_ns();
        self.owner.shared.with_qp(|qp| {
            qp.cancel_send(now_ns, self.id);
            qp.release_send(self.id);
        });
        self.owner.shared.kick();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id).finish_non_exhaustive()
    }
}
