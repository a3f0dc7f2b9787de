//! Completion queues: one place to poll, or to wait, for the operations of any number of queue pairs.
//!
//! The queue itself is [`lacuna_completion::Queue`]. Here are the clock, the file descriptor, manual
//! progress, and what becomes of it when the context goes or the process forks.
//!
//! A queue does not keep its context alive: the context closes its queues when it goes, and by then no
//! queue pair is left that could push.
//!
//! **For queue pairs** (`posting.rs`, `sink.rs`, `reads.rs`). A queue pair keeps a clone of its queue.
//! 1. Posting calls [`CompletionQueue::reserve`] before it takes the queue pair's lock, and returns
//!    [`Full`] to the application. The [`Reservation`] is kept with the operation. A receive of several
//!    slots that ends with one completion reserves one entry. If posting fails later on, dropping the
//!    reservation gives the entry back.
//! 2. Whoever finds under the lock that operations have ended moves their reservations out, with what
//!    the completions will say, into a list of its own that it uses again and again.
//! 3. After the lock was released it calls [`Reservation::push`](lacuna_completion::Reservation::push)
//!    for each. A push may set the file descriptor, which is a system call, and the application that it
//!    wakes takes the queue pair's lock next. Completions of one queue pair are in order if one thread
//!    at a time does steps 2 and 3.
//! 4. A message that comes without a posted receive calls [`CompletionQueue::try_reserve`] before its
//!    first byte is placed. Without an entry the message is refused as a whole.
//! 5. When the queue pair is dropped, its operations fail, and their completions say so. An operation
//!    that ends without a completion, as silent sends do, drops its reservation.
//!
//! Reliable connections and datagram queue pairs do the same with their work requests (`verbs.rs`,
//! `datagrams.rs`).
//!
//! No lock is taken while one of the queue's own is held, so a push may be made under other locks
//! without a deadlock; it only makes their other users wait.

mod datagrams;
mod descriptor;
mod ended;
mod posting;
mod reads;
mod sink;
#[cfg(test)]
mod tests;
mod verbs;

use crate::clock::Clock;
use crate::context::WeakContext;
use crate::error::{CompletionQueueError, ContextError, PollError, ReadError};
use crate::handles::SLEEP_MAX;
use crate::one_sided::Written;
use crate::shared::Shared;
pub(crate) use datagrams::DatagramSink;
use descriptor::Descriptor;
pub use ended::EndedReceive;
pub use lacuna_completion::Arm;
use lacuna_completion::Queue;
use lacuna_datapath::process::Own;
use lacuna_proto::qp::SendFailure;
pub use posting::{QueuedRead, QueuedSend};
pub(crate) use sink::Sink;
use std::fmt;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;
pub use verbs::SharedReceives;
pub(crate) use verbs::VerbSink;

/// An operation that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// What the operation was posted with.
    pub user_data: u64,
    /// The number of the queue pair; 0 if it is none's.
    pub queue_pair: u32,
    /// Whether it was posted to be silent ([`QueuedSend::is_silent`]): then it has failed.
    pub is_silent: bool,
    /// Which operation, and how it ended.
    pub outcome: Outcome,
}

/// How an operation has ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// A send.
    Sent(Result<(), SendFailure>),
    /// A write to a region of the peer.
    Wrote(Result<(), SendFailure>),
    /// A receive, whole or not.
    Received(EndedReceive),
    /// A read of a region of the peer: bytes that came. All, but in a bounded mode, where what was lost
    /// leaves the bytes as they were.
    Read(Result<u64, ReadError>),
    /// A message with an immediate that the peer has written to a region here, which nobody posted
    /// anything for ([`Connection::queue_written`](crate::Connection::queue_written)).
    Written(Written),
    /// So many chunks of a receive are here, as many as were asked for, or all that will come
    /// ([`RecvHandle::queue_chunks`](crate::RecvHandle::queue_chunks)).
    Chunks(u32),
    /// Fewer buffers of a pool are free than was asked for ([`Pool::arm`](crate::Pool::arm)).
    PoolLow,
    /// A work request of a datagram queue pair, or a message that came to it
    /// ([`datagram::Settings::completions`](crate::datagram::Settings)).
    Datagram(lacuna_datagram::Done),
    /// A work request of a reliable connection ([`rc::Settings::completions`](crate::rc::Settings)).
    Verb(lacuna_rc::Done),
}

/// Where the operations of a queue pair complete to that have no handle.
pub(crate) enum AnySink {
    Operations(Sink),
    Verbs(VerbSink),
}

impl AnySink {
    /// Queues the completions of operations that have ended. To be called without the queue pair's lock.
    pub(crate) fn deliver(&self, shared: &Arc<Shared>) {
        match self {
            Self::Operations(sink) => sink.deliver(shared),
            Self::Verbs(sink) => sink.deliver(shared),
        }
    }
}

/// Completions of the queue pairs that were told to post to it, sends and receives alike, made by
/// [`Context::completion_queue`](crate::Context::completion_queue).
///
/// Each operation reserves an entry when it is posted, so the queue never overruns; posting fails
/// while all entries are reserved or wait to be polled. Completions may be polled by any number of
/// threads. Clones are the same queue.
///
/// There are three ways to wait:
/// - [`try_poll`](Self::try_poll) again and again: the lowest latency;
/// - [`poll`](Self::poll) with a timeout, which sleeps;
/// - the file descriptor ([`AsFd`](std::os::fd::AsFd), on Unix systems), for `epoll` and asynchronous
///   runtimes. *Arm, poll until nothing is left, wait until the descriptor is readable, and again*;
///   [`arm`](Self::arm) has the details. The descriptor stays the same, and open, until the last clone
///   is dropped.
///
/// With [`Progress::Manual`](crate::Progress::Manual) both polls make progress when they find nothing.
/// Nothing but the application's calls does, so the descriptor alone cannot be waited for.
///
/// The queue does not keep its context. When that is gone, what is queued can still be polled; then
/// comes [`PollError::Closed`]. In a forked child an inherited queue can only be dropped.
#[derive(Clone)]
pub struct CompletionQueue {
    inner: Own<Arc<Inner>>,
}

pub(crate) struct Inner {
    queue: Queue<Completion, Descriptor>,
    clock: Clock,
    /// The context, if it makes progress in the application's calls only.
    manual: Option<WeakContext>,
}

impl CompletionQueue {
    pub(crate) fn new(
        entries: u32,
        clock: Clock,
        manual: Option<WeakContext>,
    ) -> Result<Self, CompletionQueueError> {
        let descriptor = Descriptor::new()
            .map_err(|source| ContextError::System { what: "an event descriptor", source })?;
        let queue = Queue::new(entries, descriptor)?;
        Ok(Self { inner: Own::new(Arc::new(Inner { queue, clock, manual })) })
    }

    /// What the context closes when it goes.
    pub(crate) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.inner)
    }

    /// Reserves entries for operations, all or none. Takes no lock.
    pub(crate) fn reserve(&self, entries: u32) -> Result<Reservation, Full> {
        self.inner.queue.reserve(entries)
    }

    /// No entries, to which some are added.
    pub(crate) fn none(&self) -> Reservation {
        self.inner.queue.no_entries()
    }

    /// Reserves an entry for a message that nobody has posted a receive for; see the module's text.
    /// `None` is counted in [`CompletionQueue::refused`].
    pub(crate) fn try_reserve(&self) -> Option<Reservation> {
        self.inner.queue.try_reserve()
    }

    /// Moves up to `max` completions to the end of `into`, the oldest first, and returns how many.
    /// Does not wait; costs some nanoseconds if there are none, and allocates nothing if `into` has
    /// room for `max`.
    ///
    /// With manual progress it makes progress once if there are none, unless another thread is doing
    /// so.
    ///
    /// # Errors
    /// When there are none and the context is gone, or in a forked child.
    #[inline]
    pub fn try_poll(&self, into: &mut Vec<Completion>, max: usize) -> Result<usize, PollError> {
        if self.inner.is_inherited() {
            return Err(PollError::Inherited);
        }
        let inner = &**self.inner;
        let count = inner.queue.poll(into, max);
        if count > 0 || max == 0 || inner.manual.is_none() && !inner.queue.is_closed() {
            return Ok(count);
        }
        inner.progress_and_poll(into, max)
    }

    /// As [`try_poll`](Self::try_poll), but waits until there is a completion, at most `timeout`;
    /// then returns 0. `Duration::MAX` waits as long as the context lives.
    ///
    /// # Errors
    /// When there are none and the context is gone, or in a forked child.
    pub fn poll(
        &self,
        into: &mut Vec<Completion>,
        max: usize,
        timeout: Duration,
    ) -> Result<usize, PollError> {
        let count = self.try_poll(into, max)?;
        if count > 0 || max == 0 || timeout.is_zero() {
            return Ok(count);
        }
        let inner = &**self.inner;
        let end_ns = inner.clock.end_of(timeout);
        loop {
            let left = inner.clock.until(end_ns);
            let limit = left.min(SLEEP_MAX);
            match inner.manual.as_ref().and_then(WeakContext::visit) {
                Some(context) => context.progress_within(limit),
                None => inner.queue.wait(limit),
            }
            let count = self.try_poll(into, max)?;
            if count > 0 || left.is_zero() {
                return Ok(count);
            }
        }
    }

    /// Has the next completion, or the next solicited one, make the file descriptor readable, once.
    /// As `ibv_req_notify_cq`:
    ///
    /// - It makes the descriptor unreadable; nothing else does.
    /// - A completion that is queued already does not count. So poll after arming, until nothing is
    ///   left; `true` says that there is something. Then no completion is missed: either a poll after
    ///   `arm` returns it, or it makes the descriptor readable.
    /// - Solicited are receives of messages with an immediate, of reliable connections and datagrams those that
    ///   their sender marked, and all that failed or ended with gaps.
    /// - Armed for both kinds, the descriptor becomes readable with the next completion of any kind.
    /// - When the context goes, the descriptor becomes readable, and stays so.
    ///
    /// # Errors
    /// In a forked child, where it would take the parent's event.
    pub fn arm(&self, arm: Arm) -> Result<bool, PollError> {
        if self.inner.is_inherited() {
            return Err(PollError::Inherited);
        }
        Ok(self.inner.queue.arm(arm))
    }

    /// Completions that wait to be polled.
    pub fn len(&self) -> usize {
        self.inner.queue.ring().len() as usize
    }

    /// Whether none waits to be polled.
    pub fn is_empty(&self) -> bool {
        self.inner.queue.ring().is_empty()
    }

    /// The number of entries that it was made with.
    pub fn capacity(&self) -> usize {
        self.inner.queue.ring().capacity() as usize
    }

    /// Entries that are taken: one for each operation that is posted or whose completion waits to be
    /// polled.
    pub fn reserved(&self) -> usize {
        self.inner.queue.ring().reserved() as usize
    }

    /// Packets that were dropped because no entry was free for their message: such as come without a
    /// posted receive, which would have reserved one. In a mode that repairs they come again.
    pub fn refused(&self) -> u64 {
        self.inner.queue.refused()
    }
}

/// Entries that operations have reserved.
pub(crate) type Reservation = lacuna_completion::Reservation<Completion, Descriptor>;

pub use lacuna_completion::Full;

impl Inner {
    /// As [`CompletionQueue::try_reserve`].
    pub(crate) fn try_reserve(&self) -> Option<Reservation> {
        self.queue.try_reserve()
    }

    /// The context is gone.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// The rest of a poll that has found nothing.
    #[cold]
    fn progress_and_poll(
        &self,
        into: &mut Vec<Completion>,
        max: usize,
    ) -> Result<usize, PollError> {
        if let Some(context) = self.manual.as_ref().and_then(WeakContext::visit) {
            context.try_progress();
        }
        // Before the poll: what was pushed before the queue was closed is polled first.
        let is_closed = self.queue.is_closed();
        match self.queue.poll(into, max) {
            0 if is_closed => Err(PollError::Closed),
            count => Ok(count),
        }
    }
}

#[cfg(unix)]
impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.queue.event().as_fd()
    }
}

#[cfg(unix)]
impl AsRawFd for CompletionQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.capacity())
            .field("reserved", &self.reserved())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
