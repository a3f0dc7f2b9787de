//! Lending a borrowed slice to the transport for the length of one call.
//!
//! A handle that borrowed a slice could be forgotten, and the transport would
//! then use memory that is gone. So borrowed memory is lent only inside a call
//! that does not return, nor unwind, before the transport has given it back.
//! Callers that keep foreign memory alive themselves have an unsafe door.

#![allow(unsafe_code)]

use crate::error::PostReceiveError;
use crate::handles::RecvHandle;
use crate::queue_pair::QueuePair;
use lacuna_place::placement::Placement;
use lacuna_proto::buffer::{Memory, SendBuffer};
use std::sync::Arc;

/// A slice whose lifetime ends when `lend` returns.
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

/// Takes the memory back when dropped, so that unwinding waits too.
struct Return<W: Fn()> {
    memory: Arc<Borrowed>,
    nudge: W,
}

impl<W: Fn()> Drop for Return<W> {
    fn drop(&mut self) {
        // Not a look at the count, which would not order what its last reader
        // did before what the owner of the bytes does next; `get_mut` does.
        while Arc::get_mut(&mut self.memory).is_none() {
            // Nothing may leave this loop early, a panic included.
            let nudge = std::panic::AssertUnwindSafe(&self.nudge);
            if std::panic::catch_unwind(nudge).is_err() {
                std::thread::yield_now();
            }
        }
    }
}

impl Borrowed {
    /// Lends `data` to `use_it` and comes back when every clone of what it was
    /// given is gone; `nudge` is called until then, to make that happen.
    pub(crate) fn lend<R>(
        data: &[u8],
        use_it: impl FnOnce(SendBuffer) -> R,
        nudge: impl Fn(),
    ) -> R {
        let memory = Arc::new(Self { start: data.as_ptr(), len: data.len() });
        let _lent = Return { memory: memory.clone(), nudge };
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
        self.post_placement(unsafe { Placement::from_raw(start, len) })
    }
}

/// Posts a receive over a borrowed buffer. The handle must be completed or
/// dropped before the buffer is used again; the borrow sees to that, and the
/// callers in this crate never forget the handle.
pub(crate) fn post_recv<'b>(
    queue_pair: &QueuePair,
    buffer: &'b mut [u8],
) -> Result<LentRecv<'b>, PostReceiveError> {
    // SAFETY: the buffer is borrowed exclusively for the life of the handle
    // below, which is private to this crate and closed in its drop.
    let handle = unsafe { queue_pair.post_recv_raw(buffer.as_mut_ptr(), buffer.len()) }?;
    Ok(LentRecv { handle, _buffer: std::marker::PhantomData })
}

/// A receive over a borrowed buffer.
pub(crate) struct LentRecv<'b> {
    handle: RecvHandle,
    _buffer: std::marker::PhantomData<&'b mut [u8]>,
}

impl LentRecv<'_> {
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
        let nudge = || {
            nudges.set(nudges.get() + 1);
            if nudges.get() == 3 {
                held.take();
            }
        };
        Borrowed::lend(&[1, 2, 3], |memory| *held.borrow_mut() = Some(memory), nudge);
        assert_eq!(nudges.get(), 3);
    }

    #[test]
    fn no_panic_gets_out_while_bytes_are_lent() {
        let held = RefCell::new(None);
        let nudges = Cell::new(0);
        let nudge = || {
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
        let lend = || Borrowed::lend(&[1, 2, 3], use_it, nudge);
        let panic = catch_unwind(AssertUnwindSafe(lend)).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"while using"));
        assert!(held.borrow().is_none(), "returned before the panic went on");
    }
}
