//! Pools: buffers that receives of any queue pairs share, with an event when few are left.
//!
//! The buffers are [`lacuna_place::pool`]'s. Here is the event: an entry that [`Pool::arm`] has reserved in
//! a completion queue, and that is pushed once. The pool's receives know the buffers only, so an alarm that
//! is never raised goes with the last clone of the pool, and no cycle keeps the queue.

use crate::completion::{Completion, CompletionQueue, Full, Outcome, Reservation};
use lacuna_place::pool::BufferPool;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers of one length that receives of any queue pairs share. A receive that is posted with a pool takes
/// a buffer when its first packet arrives. So a host of many peers needs memory for the messages that are
/// on their way, and not for all that could come (the shared receive queue of verbs).
///
/// A packet that finds no buffer is dropped and counted; in a mode that repairs it comes again. Which
/// message takes a buffer first is chance: with fewer buffers than messages under way, the application must
/// complete receives in any order, as a completion queue does, and put the buffers back.
///
/// ```no_run
/// # use lacuna::{CompletionQueue, Connection, Outcome, Pool, RecvOptions};
/// # use std::time::Duration;
/// # fn example(connections: &[Connection], queue: &CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(64 << 10, 100);
/// for (number, connection) in connections.iter().enumerate() {
///     connection.complete_to(queue)?;
///     connection.queue_recv(&pool, RecvOptions::default(), number as u64)?;
/// }
/// pool.arm(10, queue, u64::MAX)?;
/// let mut completions = Vec::new();
/// queue.poll(&mut completions, 64, Duration::from_secs(1))?;
/// for completion in completions {
///     match completion.outcome {
///         Outcome::Received(ended) => pool.put(ended.take().buffer),
///         Outcome::PoolLow => (0..50).for_each(|_| pool.put(Vec::new())),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// Clones are the same pool.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    buffers: Arc<BufferPool>,
    alarm: Mutex<Option<Alarm>>,
}

/// What is queued when few buffers are left.
struct Alarm {
    entry: Reservation,
    user_data: u64,
}

impl Pool {
    /// A pool of this many buffers of `buffer_bytes` bytes each. A buffer is no longer than the longest
    /// message of one slot ([`Geometry::max_message_bytes`](crate::Geometry::max_message_bytes)).
    pub fn new(buffer_bytes: usize, buffers: usize) -> Self {
        let pool = BufferPool::new(buffer_bytes);
        (0..buffers).for_each(|_| pool.put(vec![0; buffer_bytes]));
        let inner = Arc::new(Inner { buffers: pool, alarm: Mutex::default() });
        let told = Arc::downgrade(&inner);
        inner.buffers.on_low(move || told.upgrade().iter().for_each(|inner| inner.raise()));
        Self { inner }
    }

    /// Puts a buffer in, a used or a new one. One of another length is made as long as the others.
    pub fn put(&self, buffer: Vec<u8>) {
        self.inner.buffers.put(buffer);
    }

    /// Queues [`Outcome::PoolLow`] once when fewer than `limit` buffers are free; at once if they are. It
    /// takes the place of an alarm that was not raised yet; with a limit of 0 that is all it does.
    ///
    /// # Errors
    /// When the queue has no free entry; then nothing changes.
    pub fn arm(&self, limit: usize, queue: &CompletionQueue, user_data: u64) -> Result<(), Full> {
        let alarm = match limit {
            0 => None,
            _ => Some(Alarm { entry: queue.reserve(1)?, user_data }),
        };
        *self.inner.alarm.lock().unwrap_or_else(PoisonError::into_inner) = alarm;
        self.inner.buffers.arm(limit);
        Ok(())
    }

    /// Bytes of a buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.inner.buffers.buffer_bytes()
    }

    /// Buffers that are free.
    pub fn free(&self) -> usize {
        self.inner.buffers.free()
    }

    /// Packets that were dropped because no buffer was free.
    pub fn refused(&self) -> u64 {
        self.inner.buffers.refused()
    }

    pub(crate) fn buffers(&self) -> &Arc<BufferPool> {
        &self.inner.buffers
    }
}

impl Inner {
    fn raise(&self) {
        let alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Alarm { mut entry, user_data }) = alarm {
            let outcome = Outcome::PoolLow;
            entry.push(Completion { user_data, queue_pair: 0, is_silent: false, outcome }, true);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.buffers.fmt(f)
    }
}
