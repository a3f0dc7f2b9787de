//! Buffers that receives of several queue pairs share: a receive takes one when its first packet arrives,
//! not when it is posted. So a host of many peers needs memory for the messages that are on their way, and
//! not for all that could come (the shared receive queue of verbs; datagram-iWARP 2.2).
//!
//! A packet that finds no buffer is discarded and counted ([`Discard::Pool`](crate::discard::Discard)); in
//! a mode that repairs it comes again. A limit that is armed tells the owner once when fewer buffers are
//! free (`ibv_modify_srq`'s limit), so that more can be put in before that happens.
//!
//! Invariants: a buffer belongs to the pool, to one receive, or to the application; a receive that is
//! dropped gives its buffer back.

use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};

/// Called when fewer buffers than a limit are free.
type OnLow = Box<dyn Fn() + Send + Sync>;

/// Buffers of one size; see the module's text.
pub struct BufferPool {
    buffer_bytes: usize,
    free: Mutex<Free>,
    /// Packets that found no buffer; orders nothing.
    refused: AtomicU64,
    on_low: OnceLock<OnLow>,
}

struct Free {
    buffers: Vec<Vec<u8>>,
    /// The owner is told once when fewer are free; 0 never is.
    limit: usize,
}

impl BufferPool {
    /// A pool of buffers of `buffer_bytes` bytes, without any yet.
    pub fn new(buffer_bytes: usize) -> Arc<Self> {
        let free = Mutex::new(Free { buffers: Vec::new(), limit: 0 });
        let (refused, on_low) = (AtomicU64::new(0), OnceLock::new());
        Arc::new(Self { buffer_bytes, free, refused, on_low })
    }

    /// Bytes of a buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Buffers that are free.
    pub fn free(&self) -> usize {
        self.lock().buffers.len()
    }

    /// Packets that were discarded because no buffer was free.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Puts a buffer in. One of another length is made as long as those of the pool.
    pub fn put(&self, mut buffer: Vec<u8>) {
        buffer.resize(self.buffer_bytes, 0);
        self.lock().buffers.push(buffer);
    }

    /// Takes a free buffer out, as the first packet of a receive does.
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut free = self.lock();
        let buffer = free.buffers.pop();
        let is_low = free.take_low();
        drop(free);
        if is_low {
            self.tell();
        }
        if buffer.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        buffer
    }

    /// Calls `on_low` from now on when a limit is undercut, on whichever thread does so. Only the first
    /// call has an effect; it returns whether it was.
    pub fn on_low(&self, on_low: impl Fn() + Send + Sync + 'static) -> bool {
        self.on_low.set(Box::new(on_low)).is_ok()
    }

    /// Has the owner told once when fewer than `limit` buffers are free; at once if they are. 0 disarms.
    pub fn arm(&self, limit: usize) {
        let mut free = self.lock();
        free.limit = limit;
        let is_low = free.take_low();
        drop(free);
        if is_low {
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some(on_low) = self.on_low.get() {
            on_low();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    /// Whether the limit is undercut; disarms it then.
    fn take_low(&mut self) -> bool {
        let is_low = self.buffers.len() < self.limit;
        if is_low {
            self.limit = 0;
        }
        is_low
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("buffer_bytes", &self.buffer_bytes)
            .field("free", &self.free())
            .field("refused", &self.refused())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_limit_is_told_once_until_it_is_armed_again() {
        let pool = BufferPool::new(10);
        (0..4).for_each(|_| pool.put(Vec::new()));
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        assert!(pool.on_low(move || _ = count.fetch_add(1, Ordering::Relaxed)));
        assert!(!pool.on_low(|| ()));
        let told = || told.load(Ordering::Relaxed);
        pool.arm(3);
        let first = pool.take().unwrap();
        assert_eq!((told(), pool.free()), (0, 3));
        pool.take().unwrap();
        pool.take().unwrap();
        assert_eq!((told(), pool.free()), (1, 1));
        pool.arm(2);
        assert_eq!(told(), 2, "fewer are free already");
        pool.put(first);
        pool.arm(2);
        pool.arm(0);
        while pool.take().is_some() {}
        assert_eq!((told(), pool.refused()), (2, 1));
    }

    #[test]
    fn buffers_have_the_length_of_the_pool() {
        let pool = BufferPool::new(10);
        pool.put(vec![1; 20]);
        assert_eq!(pool.take().unwrap(), [1; 10]);
        pool.put(vec![1; 3]);
        assert_eq!(pool.take().unwrap(), [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
