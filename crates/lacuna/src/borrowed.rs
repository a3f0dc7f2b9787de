//! Lends a borrowed slice to the transport for the length of one call.
//!
//! A handle with a borrow could be leaked (`mem::forget`), and the transport would then use freed
//! memory. So a slice is lent only inside a call that neither returns nor unwinds before the
//! transport has dropped every clone. Callers that keep the memory alive by other means use the
//! unsafe [`QueuePair::post_recv_raw`].

#![allow(unsafe_code)]

use crate::completed::RecvOptions;
use crate::error::{PostReceiveError, QueueError};
use crate::handles::RecvHandle;
use crate::queue_pair::QueuePair;
use lacuna_place::buffer::{Memory, SendBuffer};
use lacuna_place::placement::Placement;
use std::sync::Arc;

/// A slice whose borrow ends when [`Borrowed::lend`] returns.
pub(crate) struct Borrowed {
    start: *const u8,
    len: usize,
}

// SAFETY: shared bytes that nobody changes while they are lent.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

impl Memory for Borrowed {
    fn size_bytes(&self) -> usize {
        self.len
    }

    fn range(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: in bounds by the line above; `lend` holds the borrow until every clone of this
        // is gone.
        unsafe { std::slice::from_raw_parts(self.start.add(offset), len) }
    }
}

/// Waits in `drop` until all clones are gone, also when the call unwinds.
struct Reclaim<W: Fn()> {
    memory: Arc<Borrowed>,
    make_progress: W,
}

impl<W: Fn()> Drop for Reclaim<W> {
    fn drop(&mut self) {
        // `get_mut` synchronizes with the readers that dropped their clones; reading
        // `Arc::strong_count` would not order their reads before the writes of the slice's owner.
        while Arc::get_mut(&mut self.memory).is_none() {
            // A panic must not leave this loop either.
            let make_progress = std::panic::AssertUnwindSafe(&self.make_progress);
            if std::panic::catch_unwind(make_progress).is_err() {
                std::thread::yield_now();
            }
        }
    }
}

impl Borrowed {
    /// Lends `data` to `use_it` and returns when all clones of the buffer are gone. Until then it
    /// calls `make_progress`, which has to bring that about.
    pub(crate) fn lend<R>(
        data: &[u8],
        use_it: impl FnOnce(SendBuffer) -> R,
        make_progress: impl Fn(),
    ) -> R {
        let memory = Arc::new(Self { start: data.as_ptr(), len: data.len() });
        let _lent = Reclaim { memory: memory.clone(), make_progress };
        use_it(SendBuffer::new(memory))
    }
}

impl QueuePair {
    /// Posts a receive over foreign memory.
    ///
    /// # Safety
    /// As for [`Placement::from_raw`]: the memory is valid, and nobody else
    /// touches it except complete chunks through the handle, until the handle
    /// was completed or dropped. Forgetting the handle lends it for ever.
    pub unsafe fn post_recv_raw(
        &self,
        start: *mut u8,
        len: usize,
    ) -> Result<RecvHandle, PostReceiveError> {
        // SAFETY: the caller's promise is the contract.
        unsafe { self.post_recv_raw_with(start, len, RecvOptions::default()) }
    }

    /// As [`QueuePair::post_recv_raw`], with a deadline, a grace, or zeros for what is missing.
    ///
    /// # Safety
    /// As for [`QueuePair::post_recv_raw`].
    pub unsafe fn post_recv_raw_with(
        &self,
        start: *mut u8,
        len: usize,
        options: RecvOptions,
    ) -> Result<RecvHandle, PostReceiveError> {
        // SAFETY: the caller's promise is the contract.
        self.post_recv_with(unsafe { Placement::from_raw(start, len) }, options)
    }

    /// As [`QueuePair::queue_recv`], over foreign memory.
    ///
    /// # Errors
    /// As [`QueuePair::queue_recv`].
    ///
    /// # Safety
    /// As for [`Placement::from_raw`]: the memory is valid, and nobody else touches it, until the
    /// completion of the receive was polled and its [`crate::EndedReceive`] was taken or dropped. The
    /// completion remains in the queue when the queue pair has gone.
    pub unsafe fn queue_recv_raw(
        &self,
        start: *mut u8,
        len: usize,
        options: RecvOptions,
        user_data: u64,
    ) -> Result<(), QueueError<PostReceiveError>> {
        // SAFETY: the caller's promise is the contract.
        self.queue_recv(unsafe { Placement::from_raw(start, len) }, options, user_data)
    }
}

/// Posts a receive over a borrowed buffer. The returned value holds the borrow until the receive is
/// completed or dropped; callers in this crate never forget it.
pub(crate) fn post_recv<'b>(
    queue_pair: &QueuePair,
    buffer: &'b mut [u8],
) -> Result<BorrowedRecv<'b>, PostReceiveError> {
    // SAFETY: the buffer is borrowed exclusively for the life of the handle
    // below, which is private to this crate and closed in its drop.
    let handle = unsafe { queue_pair.post_recv_raw(buffer.as_mut_ptr(), buffer.len()) }?;
    Ok(BorrowedRecv { handle, _buffer: std::marker::PhantomData })
}

/// A receive over a borrowed buffer.
pub(crate) struct BorrowedRecv<'b> {
    handle: RecvHandle,
    _buffer: std::marker::PhantomData<&'b mut [u8]>,
}

impl BorrowedRecv<'_> {
    pub(crate) fn wait(&self, timeout: std::time::Duration) -> Result<(), crate::RecvError> {
        self.handle.wait(timeout)
    }

    pub(crate) fn complete(self) -> crate::Completed {
        self.handle.complete()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn lent_bytes_come_back_before_the_call_returns() {
        let held = RefCell::new(None);
        let nudges = Cell::new(0);
        let make_progress = || {
            nudges.set(nudges.get() + 1);
            if nudges.get() == 3 {
                held.take();
            }
        };
        Borrowed::lend(&[1, 2, 3], |memory| *held.borrow_mut() = Some(memory), make_progress);
        assert_eq!(nudges.get(), 3);
    }

    #[test]
    fn no_panic_gets_out_while_bytes_are_lent() {
        let held = RefCell::new(None);
        let nudges = Cell::new(0);
        let make_progress = || {
            nudges.set(nudges.get() + 1);
            match nudges.get() {
                1 => panic!("while nudging"),
                2 => drop(held.take()),
                _ => {}
            }
        };
        let use_it = |memory| {
            *held.borrow_mut() = Some(memory);
            panic!("while using");
        };
        let lend = || Borrowed::lend(&[1, 2, 3], use_it, make_progress);
        let panic = catch_unwind(AssertUnwindSafe(lend)).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"while using"));
        assert!(held.borrow().is_none(), "returned before the panic went on");
    }
}
