//! A buffer pool: the memory of a transfer, a bounded number of blocks that are reused.
//!
//! A block returns to the pool when its last user (transport, hash thread or disk) drops it. The
//! block that returned last is handed out first, so that a short path works within the cache.

use lacuna::Memory;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A buffer pool. Clones are the same pool.
#[derive(Clone)]
pub(crate) struct BufferPool {
    inner: Arc<Inner>,
}

struct Inner {
    block_bytes: usize,
    /// Most blocks there may be.
    limit: usize,
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    free: Vec<Vec<u8>>,
    /// Blocks that exist, free or in use.
    made: usize,
}

/// The memory of one message.
pub(crate) struct Block {
    bytes: Vec<u8>,
    home: Arc<Inner>,
}

impl BufferPool {
    pub(crate) fn new(block_bytes: usize, limit: usize) -> Self {
        assert!(limit > 0, "a pool without blocks would wait for ever");
        let state = Mutex::new(State { free: Vec::new(), made: 0 });
        Self { inner: Arc::new(Inner { block_bytes, limit, state, returned: Condvar::new() }) }
    }

    /// A block if there is one now.
    pub(crate) fn try_take(&self) -> Option<Block> {
        self.inner.pop(&mut self.inner.lock()).map(|bytes| self.adopt(bytes))
    }

    /// Waits for a block.
    pub(crate) fn take_within(&self, timeout: Duration) -> Option<Block> {
        let mut state = self.inner.lock();
        if let Some(bytes) = self.inner.pop(&mut state) {
            return Some(self.adopt(bytes));
        }
        let waited = self.inner.returned.wait_timeout(state, timeout);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        self.inner.pop(&mut state).map(|bytes| self.adopt(bytes))
    }

    /// Makes a block of memory that [`Block::into_bytes`] took out.
    pub(crate) fn adopt(&self, bytes: Vec<u8>) -> Block {
        Block { bytes, home: self.inner.clone() }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop(&self, state: &mut State) -> Option<Vec<u8>> {
        if let Some(bytes) = state.free.pop() {
            return Some(bytes);
        }
        if state.made == self.limit {
            return None;
        }
        state.made += 1;
        Some(vec![0; self.block_bytes])
    }
}

impl Block {
    /// Takes the memory out of a block, to be returned with [`BufferPool::adopt`].
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Memory for Block {
    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn range(&self, offset: usize, len: usize) -> &[u8] {
        &self.bytes[offset..][..len]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if !bytes.is_empty() {
            self.home.lock().free.push(bytes);
            self.home.returned.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna::SendBuffer;

    #[test]
    fn there_are_never_more_blocks_than_allowed() {
        let pool = BufferPool::new(16, 2);
        let (first, second) = (pool.try_take().unwrap(), pool.try_take().unwrap());
        assert!(pool.try_take().is_none());
        assert!(pool.take_within(Duration::from_millis(1)).is_none());
        drop(first);
        let bytes = pool.try_take().unwrap().into_bytes();
        assert!(pool.try_take().is_none(), "taken apart, it still counts");
        drop(pool.adopt(bytes));
        drop(second);
        assert!(pool.try_take().is_some());
    }

    #[test]
    fn a_block_comes_back_when_its_last_user_lets_go() {
        let pool = BufferPool::new(16, 1);
        let whole = SendBuffer::new(Arc::new(pool.try_take().unwrap()));
        let part = whole.part(3, 4).unwrap();
        drop(whole);
        assert!(pool.try_take().is_none());
        drop(part);
        assert!(pool.try_take().is_some());
    }
}
