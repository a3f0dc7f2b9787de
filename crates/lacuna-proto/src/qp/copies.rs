//! Copies of parts of regions, which answer reads of the peer.
//!
//! The buffers are used again: one that was sent a moment ago is still in the cache and has its pages, and
//! need not be zeroed, since all of it is written. What is kept is bounded.

use super::reads::READ_BYTES_MAX;
use lacuna_place::buffer::{Memory, SendBuffer};
use lacuna_place::region::{KeyError, KeyTable, Rights};
use lacuna_wire::{Read, ReadRefusal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers that are kept: as many as are mostly under way on a short path.
const KEPT_MAX: usize = 8;
/// Longer ones are not kept.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The buffers.
#[derive(Debug, Default)]
pub(super) struct Copies(Arc<Mutex<Vec<Vec<u8>>>>);

impl Copies {
    /// Copies what a peer wants to read, all at once.
    pub(super) fn copy(
        &self,
        keys: &KeyTable,
        peer: u64,
        read: &Read,
    ) -> Result<SendBuffer, ReadRefusal> {
        if read.length > READ_BYTES_MAX {
            return Err(ReadRefusal::TooLong);
        }
        let end = read.address.checked_add(read.length).ok_or(ReadRefusal::Range)?;
        let pinned = keys.pin(read.key, peer, Rights::REMOTE_READ, read.address..end);
        let pinned = pinned.map_err(|error| match error {
            KeyError::Range { .. } => ReadRefusal::Range,
            _ => ReadRefusal::Key,
        })?;
        // The one that was used last is the likeliest to be in the cache.
        let kept = lock(&self.0).pop();
        let mut copy = Copy { bytes: kept.unwrap_or_default(), home: self.0.clone() };
        copy.bytes.resize(read.length as usize, 0);
        pinned.read(read.address, &mut copy.bytes).map_err(|_| ReadRefusal::Range)?;
        Ok(SendBuffer::new(Arc::new(copy)))
    }
}

/// A buffer that goes home when it was sent.
#[derive(Debug)]
struct Copy {
    bytes: Vec<u8>,
    home: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Memory for Copy {
    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn range(&self, offset: usize, len: usize) -> &[u8] {
        self.bytes.range(offset, len)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let mut kept = lock(&self.home);
        if kept.len() < KEPT_MAX && self.bytes.capacity() <= KEPT_BYTES_MAX {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
