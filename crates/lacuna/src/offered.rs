//! A send whose data become ready part by part: a collective forwards the first chunks of a message
//! while it still reduces the others. Each part leaves as soon as it is written, and is repaired like
//! any other data.
//!
//! The memory is written once, part by part, while the transport reads other parts. A range is read only
//! after it was written, and is not written again: both are checked under a lock, so the unsafe code
//! below is sound whatever the application does.

#![allow(unsafe_code)]

use crate::error::{OfferError, PostSendError};
use crate::handles::SendHandle;
use crate::queue_pair::QueuePair;
use lacuna_path::ranges::Ranges;
use lacuna_place::buffer::{Memory, SendBuffer};
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Memory of which each byte is written at most once, and read after that.
struct WriteOnce {
    /// As many bytes as are used, or more.
    bytes: Box<[UnsafeCell<u8>]>,
    size_bytes: usize,
    written: Mutex<Ranges>,
}

// SAFETY: `written` decides who may touch which bytes: those in it are only read, by anybody; others are
// written by a thread that holds its lock.
unsafe impl Sync for WriteOnce {}

impl WriteOnce {
    fn new(size_bytes: usize) -> Self {
        // From the allocator as zero pages, rather than byte by byte.
        let zeros = Box::into_raw(vec![0u8; size_bytes].into_boxed_slice());
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, so the box frees what it was allocated as; nobody else has it.
        let bytes = unsafe { Box::from_raw(zeros as *mut [UnsafeCell<u8>]) };
        Self { bytes, size_bytes, written: Mutex::default() }
    }

    /// Nothing is written any more, and nobody reads it.
    fn begin_again(&mut self, size_bytes: usize) {
        debug_assert!(size_bytes <= self.bytes.len());
        self.size_bytes = size_bytes;
        *self.written.get_mut().unwrap_or_else(PoisonError::into_inner) = Ranges::default();
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), OfferError> {
        let range = offset as u64..offset as u64 + data.len() as u64;
        let size_bytes = self.size_bytes;
        if offset > size_bytes || data.len() > size_bytes - offset {
            return Err(OfferError::Outside { offset, len: data.len(), size_bytes });
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !data.is_empty() && written.within(&range).next().is_some() {
            return Err(OfferError::WrittenBefore { offset, len: data.len() });
        }
        if let Some(start) = self.bytes.get(offset) {
            // SAFETY: the range is in bounds, and disjoint from all ranges that anybody reads or has
            // written; the lock keeps other writers away.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), start.get(), data.len()) };
        }
        written.add(range);
        Ok(())
    }
}

impl Memory for WriteOnce {
    fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    fn range(&self, offset: usize, len: usize) -> &[u8] {
        let part = &self.bytes[offset..][..len];
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            written.covers(&(offset as u64..(offset + len) as u64)),
            "read before it was written"
        );
        drop(written);
        // SAFETY: in bounds by the line above; these bytes were written, which happened before by the
        // lock, and are not written again as long as the memory lives.
        unsafe { std::slice::from_raw_parts(part.as_ptr().cast(), len) }
    }
}

/// Memory of sends that have ended, for later ones of about the same length
/// ([`Connection::send_offered_from`](crate::Connection::send_offered_from)): fresh pages cost more than what is copied
/// into them.
#[derive(Debug, Default)]
pub struct OfferedPool {
    kept: Mutex<Vec<Arc<WriteOnce>>>,
}

impl OfferedPool {
    /// Memories that are kept, at most.
    const KEPT_MAX: usize = 64;
    /// And their bytes.
    const KEPT_BYTES_MAX: usize = 256 << 20;

    fn take(&self, len: usize) -> Arc<WriteOnce> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for memory in kept.iter_mut() {
            let capacity = memory.bytes.len();
            if (len..=len.saturating_mul(2)).contains(&capacity)
                && let Some(free) = Arc::get_mut(memory)
            {
                free.begin_again(len);
                return memory.clone();
            }
        }
        let memory = Arc::new(WriteOnce::new(len));
        let bytes =
            |kept: &[Arc<WriteOnce>]| kept.iter().map(|memory| memory.bytes.len()).sum::<usize>();
        // Those of other lengths make room, the oldest first.
        while kept.len() >= Self::KEPT_MAX || bytes(&kept) + len > Self::KEPT_BYTES_MAX {
            match kept.iter().position(|memory| Arc::strong_count(memory) == 1) {
                Some(free) => drop(kept.remove(free)),
                None => return memory,
            }
        }
        kept.push(memory.clone());
        memory
    }
}

/// A send whose data are written part by part. It is a [`SendHandle`] besides.
///
/// ```no_run
/// # use lacuna::Connection;
/// # use std::time::Duration;
/// # fn example(connection: &Connection, chunks: &[Vec<u8>]) -> Result<(), Box<dyn std::error::Error>> {
/// let send = connection.send_offered(chunks.iter().map(Vec::len).sum(), None)?;
/// let mut offset = 0;
/// for chunk in chunks {
///     // Whatever takes its time; then the chunk leaves at once.
///     send.write(offset, chunk)?;
///     offset += chunk.len();
/// }
/// send.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OfferedSend {
    handle: SendHandle,
    memory: Arc<WriteOnce>,
}

impl std::fmt::Debug for WriteOnce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteOnce").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

impl OfferedSend {
    /// Copies a part of the message to its place and lets it be sent: any part, in any order, each byte
    /// once. Parts of whole chunks spare repeated packets. What is written to a send that has ended is of
    /// no use, which is no error.
    ///
    /// # Errors
    /// When the part is outside of the message, or some of it was written before.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), OfferError> {
        self.memory.write(offset, data)?;
        Ok(self.handle.offer(offset, data.len())?)
    }
}

impl Deref for OfferedSend {
    type Target = SendHandle;

    fn deref(&self) -> &SendHandle {
        &self.handle
    }
}

impl QueuePair {
    /// Starts a send of `len` bytes that are written part by part.
    ///
    /// # Errors
    /// As [`QueuePair::send`].
    pub fn send_offered(
        &self,
        len: usize,
        immediate: Option<u32>,
    ) -> Result<OfferedSend, PostSendError> {
        self.send_offered_within(len, immediate, None)
    }

    pub(crate) fn send_offered_within(
        &self,
        len: usize,
        immediate: Option<u32>,
        deadline: Option<Duration>,
    ) -> Result<OfferedSend, PostSendError> {
        self.send_offered_in(Arc::new(WriteOnce::new(len)), immediate, deadline)
    }

    /// As [`QueuePair::send_offered`], with the memory of sends that have ended.
    ///
    /// # Errors
    /// As [`QueuePair::send`].
    pub fn send_offered_from(
        &self,
        pool: &OfferedPool,
        len: usize,
        immediate: Option<u32>,
    ) -> Result<OfferedSend, PostSendError> {
        self.send_offered_in(pool.take(len), immediate, None)
    }

    pub(crate) fn send_offered_from_within(
        &self,
        pool: &OfferedPool,
        len: usize,
        immediate: Option<u32>,
        deadline: Option<Duration>,
    ) -> Result<OfferedSend, PostSendError> {
        self.send_offered_in(pool.take(len), immediate, deadline)
    }

    fn send_offered_in(
        &self,
        memory: Arc<WriteOnce>,
        immediate: Option<u32>,
        deadline: Option<Duration>,
    ) -> Result<OfferedSend, PostSendError> {
        let handle =
            self.send_when_offered(SendBuffer::new(memory.clone()), immediate, deadline)?;
        Ok(OfferedSend { handle, memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_written_once_and_read_after_that() {
        let memory = WriteOnce::new(10);
        memory.write(2, &[1, 2, 3]).unwrap();
        assert_eq!(memory.range(3, 2), [2, 3]);
        let again = OfferError::WrittenBefore { offset: 4, len: 2 };
        assert_eq!(memory.write(4, &[9, 9]), Err(again));
        memory.write(5, &[4, 5, 6, 7, 8]).unwrap();
        assert_eq!(memory.range(2, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
        let outside = OfferError::Outside { offset: 9, len: 2, size_bytes: 10 };
        assert_eq!(memory.write(9, &[0, 0]), Err(outside));
        memory.write(10, &[]).unwrap();
        let unread = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| memory.range(1, 2)));
        assert!(unread.is_err());
    }

    #[test]
    fn writers_and_readers_of_different_parts_share_it() {
        let memory = WriteOnce::new(64 << 10);
        std::thread::scope(|scope| {
            for part in 0..4usize {
                let memory = &memory;
                scope.spawn(move || {
                    for index in (part..64).step_by(4) {
                        memory.write(index << 10, &[index as u8; 1 << 10]).unwrap();
                        assert!(
                            memory.range(index << 10, 1 << 10).iter().all(|b| *b == index as u8)
                        );
                    }
                });
            }
        });
        assert_eq!(memory.range(0, 64 << 10)[63 << 10], 63);
    }

    #[test]
    fn memory_serves_again_once_nobody_has_it() {
        let pool = OfferedPool::default();
        let first = pool.take(1000);
        first.write(0, &[7; 1000]).unwrap();
        let address = first.bytes.as_ptr();
        assert_ne!(pool.take(1000).bytes.as_ptr(), address, "it is in use");
        drop(first);
        let again = pool.take(600);
        assert_eq!((again.bytes.as_ptr(), again.size_bytes()), (address, 600));
        again.write(0, &[8; 600]).unwrap();
        assert_eq!(again.range(0, 600), [8; 600]);
        assert!(again.write(600, &[1]).is_err(), "no more than it is asked for");
        for _ in 0..200 {
            std::mem::forget(pool.take(10));
        }
        assert!(pool.kept.lock().unwrap().len() <= OfferedPool::KEPT_MAX);
    }
}
