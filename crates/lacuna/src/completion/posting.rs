//! Operations that complete into a queue instead of on a handle: how the application posts them.

use super::reads::PendingRead;
use super::sink::{PendingChunks, PendingReceive, PendingSend, Sink, lock};
use super::{AnySink, CompletionQueue, Full, Reservation};
use crate::completed::RecvOptions;
use crate::connection::Connection;
use crate::error::{
    CompletionQueueError, PostReadError, PostReceiveError, PostSendError, QueueError, ReadError,
};
use crate::handles::RecvHandle;
use crate::place::RecvPlace;
use crate::queue_pair::QueuePair;
use crate::reading::Parts;
use crate::region::Region;
use crate::shared::Shared;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::table::Ticket;
use lacuna_proto::qp::{self, SendRequest, Target};
use std::convert::Infallible;
use std::time::Duration;

/// A send or a write that completes into a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueuedSend {
    /// User immediate to go with it.
    pub immediate: Option<u32>,
    /// It fails after this time; `None` is no limit.
    pub deadline: Option<Duration>,
    /// Comes back with the completion.
    pub user_data: u64,
    /// Success is not told, only failure: for all but every n-th of many. It takes an entry of the queue
    /// until it has ended.
    pub is_silent: bool,
    /// It waits until all earlier sends and reads have ended, well or not, and what is posted after it
    /// waits behind it. Of the sends of one kind: messages and one-sided operations do not wait for each
    /// other.
    pub is_fenced: bool,
}

/// A read that completes into a queue.
#[derive(Debug, Clone, Copy)]
pub struct QueuedRead<'r> {
    /// What is read of the peer.
    pub from: Target,
    /// How many bytes.
    pub len: u64,
    /// The region that it is read into. When it is dropped or revoked the read fails.
    pub into: &'r Region,
    /// Where the first byte lands in `into`.
    pub offset: u64,
    /// It fails after this time; `None` is the connection's deadline.
    pub deadline: Option<Duration>,
    /// Comes back with the completion.
    pub user_data: u64,
}

impl QueuePair {
    /// Has operations that are posted with `queue_…` complete into this queue. Operations with handles are
    /// not affected. To be called once, before the first of them.
    ///
    /// # Errors
    /// When the queue pair has a queue already.
    pub fn complete_to(&self, queue: &CompletionQueue) -> Result<(), CompletionQueueError> {
        let sink = Sink::new(queue.clone(), self.owner.context.clock());
        let is_first = self.owner.shared.set_sink(AnySink::Operations(sink));
        if is_first { Ok(()) } else { Err(CompletionQueueError::Set) }
    }

    /// Posts a receive that completes into the queue pair's completion queue.
    ///
    /// # Errors
    /// When the queue pair has no queue, the queue has no free entry, or as
    /// [`QueuePair::post_recv`].
    pub fn queue_recv(
        &self,
        place: impl Into<RecvPlace>,
        options: RecvOptions,
        user_data: u64,
    ) -> Result<(), QueueError<PostReceiveError>> {
        let (sink, entry) = sink_entry(&self.owner.shared)?;
        let place = place.into();
        let options = place.usual(options);
        let (now_ns, request) = self.recv_request(place, options, true);
        self.owner.shared.with_receives(|qp| {
            let posted = qp.post_receive_with(now_ns, request).map_err(QueueError::Post)?;
            let missing = options.missing;
            let receive = PendingReceive { entry, user_data, posted, missing };
            lock(&sink.pending).receives.insert(receive.posted.first, receive);
            Ok::<(), QueueError<PostReceiveError>>(())
        })?;
        if options.deadline.is_some() {
            self.owner.shared.kick();
        }
        Ok(())
    }

    /// Starts a send of any length that completes into the queue pair's completion queue.
    ///
    /// # Errors
    /// When the queue pair has no queue, the queue has no free entry, or as [`QueuePair::send`].
    pub fn queue_send(
        &self,
        data: impl Into<SendBuffer>,
        options: QueuedSend,
    ) -> Result<(), QueueError<PostSendError>> {
        self.queue_any(data.into(), options, None)
    }

    fn queue_any(
        &self,
        data: SendBuffer,
        options: QueuedSend,
        to: Option<Target>,
    ) -> Result<(), QueueError<PostSendError>> {
        let (sink, entry) = sink_entry(&self.owner.shared)?;
        let QueuedSend { immediate, deadline, user_data, is_silent, is_fenced } = options;
        let deadline_ns = deadline.map(|deadline| self.owner.context.clock().end_of(deadline));
        let request = SendRequest { data, immediate, deadline_ns };
        self.owner.shared.with_qp(|qp| {
            let queue = |qp: &mut qp::QueuePair| match to {
                Some(to) => qp.queue_write(request, to, false),
                None => qp.queue_send(request),
            };
            let id = if is_fenced { qp.fenced(queue) } else { queue(qp) };
            let id = id.map_err(QueueError::Post)?;
            let is_write = to.is_some();
            let send = PendingSend { entry, user_data, is_silent, is_write };
            lock(&sink.pending).sends.insert(id, send);
            qp.notify_send(id);
            Ok::<(), QueueError<PostSendError>>(())
        })?;
        self.owner.shared.kick();
        Ok(())
    }
}

impl Connection {
    /// Has operations that are posted with `queue_…` complete into this queue: sends, receives, and, if the
    /// connection has them, writes to regions. Operations with handles are not affected.
    ///
    /// # Errors
    /// When the connection has a queue already.
    pub fn complete_to(&self, queue: &CompletionQueue) -> Result<(), CompletionQueueError> {
        self.queue_pair().complete_to(queue)?;
        self.one_sided().map_or(Ok(()), |one_sided| one_sided.complete_to(queue))
    }

    /// As [`QueuePair::queue_recv`].
    ///
    /// # Errors
    /// As [`QueuePair::queue_recv`].
    pub fn queue_recv(
        &self,
        place: impl Into<RecvPlace>,
        options: RecvOptions,
        user_data: u64,
    ) -> Result<(), QueueError<PostReceiveError>> {
        self.queue_pair().queue_recv(place, options, user_data)
    }

    /// As [`QueuePair::queue_send`], with the connection's deadline if `options` has none.
    ///
    /// # Errors
    /// As [`QueuePair::queue_send`].
    pub fn queue_send(
        &self,
        data: impl Into<SendBuffer>,
        options: QueuedSend,
    ) -> Result<(), QueueError<PostSendError>> {
        self.queue_pair().queue_any(data.into(), self.bounded(options), None)
    }

    /// Starts a write to a region of the peer that completes into the connection's completion queue; the
    /// connection's deadline holds if `options` has none.
    ///
    /// # Errors
    /// As [`QueuePair::queue_send`] and [`Connection::start_write_to`].
    pub fn queue_write_to(
        &self,
        to: Target,
        data: impl Into<SendBuffer>,
        options: QueuedSend,
    ) -> Result<(), QueueError<PostSendError>> {
        let queue_pair = self.one_sided().ok_or(QueueError::Post(PostSendError::NoRegions))?;
        queue_pair.queue_any(data.into(), self.bounded(options), Some(to))
    }

    /// Starts a read of any length of a region of the peer that completes into the connection's completion
    /// queue.
    ///
    /// # Errors
    /// When the connection has no queue, the queue has no free entry, or as [`Connection::read_into`].
    pub fn queue_read(&self, read: QueuedRead<'_>) -> Result<(), QueueError<ReadError>> {
        let no_regions = || QueueError::Post(PostReadError::NoRegions.into());
        let queue_pair = self.one_sided().ok_or_else(no_regions)?;
        let QueuedRead { from, len, into, offset, deadline, user_data } = read;
        let (sink, entry) = sink_entry(&queue_pair.owner.shared)?;
        let (shared, clock) = (&queue_pair.owner.shared, queue_pair.owner.context.clock());
        let end_ns = clock.end_of(deadline.unwrap_or(self.deadline()));
        let mut parts = Parts::new(from, len, into, offset, end_ns);
        {
            // Whoever delivers the end of the first part waits until the read is known.
            let mut delivering = lock(&sink.delivering);
            if let Err(error) = parts.ask(shared, clock, true) {
                parts.release(shared);
                return Err(QueueError::Post(error));
            }
            delivering.reads.add(PendingRead { entry, user_data, parts });
        }
        if len == 0 {
            sink.deliver(shared);
        }
        Ok(())
    }

    /// Has messages with an immediate that the peer writes to regions here complete into the connection's
    /// queue, with this user data, instead of waiting for [`Connection::wait_written`]. Each takes an entry
    /// before its first byte is placed; while none is free it is refused and counted
    /// ([`CompletionQueue::refused`]), and the peer's write waits, or is lost in a mode without repair.
    ///
    /// # Errors
    /// When the connection has no queue, no one-sided operations, or this was called before.
    pub fn queue_written(&self, user_data: u64) -> Result<(), CompletionQueueError> {
        let queue_pair = self.one_sided().ok_or(CompletionQueueError::NoRegions)?;
        let shared = &queue_pair.owner.shared;
        let sink = shared.sink().ok_or(CompletionQueueError::Unset)?;
        let queue = lock(&sink.pending).queue.as_ref().map(CompletionQueue::downgrade);
        let queue = queue.ok_or(CompletionQueueError::Unset)?;
        sink.written.set(user_data).map_err(|_| CompletionQueueError::Set)?;
        shared.table().admit_by(move || {
            let entry: Ticket = Box::new(queue.upgrade()?.try_reserve()?);
            Some(entry)
        });
        // Some may wait already.
        sink.deliver(shared);
        Ok(())
    }

    fn bounded(&self, options: QueuedSend) -> QueuedSend {
        QueuedSend { deadline: Some(options.deadline.unwrap_or(self.deadline())), ..options }
    }
}

impl RecvHandle {
    /// Queues [`Outcome::Chunks`](super::Outcome::Chunks) once this many chunks are here, or the receive is
    /// over, into the queue pair's completion queue: at once if they are. Which chunks they are the handle
    /// says ([`RecvHandle::has_chunk`]).
    ///
    /// # Errors
    /// When the queue pair has no queue, or the queue has no free entry.
    pub fn queue_chunks(&self, chunks: u32, user_data: u64) -> Result<(), QueueError<Infallible>> {
        let shared = &self.owner().shared;
        let (sink, entry) = sink_entry(shared)?;
        let posted = self.posted();
        let parts = posted.parts.iter().cloned().collect();
        let watch = PendingChunks { entry, user_data, chunks, parts };
        shared.with_qp(|qp| {
            lock(&sink.pending).chunks.push(watch);
            qp.watch_chunks(posted, chunks);
        });
        sink.deliver(shared);
        Ok(())
    }
}

/// The sink of a queue pair, and an entry of its queue.
fn sink_entry<E>(shared: &Shared) -> Result<(&Sink, Reservation), QueueError<E>> {
    let sink = shared.sink().ok_or(QueueError::NoQueue)?;
    let queue = lock(&sink.pending).queue.clone().ok_or(QueueError::NoQueue)?;
    Ok((sink, queue.reserve(1)?))
}

impl<E> From<Full> for QueueError<E> {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}
