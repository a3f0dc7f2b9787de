//! Writes that go on while the program does something else.

use super::connection::{lacuna_connection, optional, write_failure};
use crate::memory::Lending;
use crate::outcome::{Failure, code};
use crate::pointer::{self, Out};
use crate::pool::FreeList;
use lacuna::datapath::Process;
use lacuna::{PostSendError, QueuePair, SendBuffer, SendError, SendHandle};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// A write under way.
pub struct lacuna_send {
    process: Process,
    index: usize,
    free: Arc<FreeList>,
    going: RwLock<Option<Going>>,
}

impl pointer::Object for lacuna_send {
    fn process(&self) -> Process {
        self.process
    }
}

struct Going {
    send: SendHandle,
    lending: Lending,
    /// To make progress while waiting for the memory. Not the connection, which must end with the
    /// program's handle.
    queue_pair: QueuePair,
}

impl lacuna_send {
    /// Cancels the send if needed, and waits for its memory; `false` if that was done before.
    pub(super) fn end(&self, queue_pair: &QueuePair) -> bool {
        let going = self.going.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Going { send, mut lending, .. }) = going else { return false };
        send.cancel();
        while !lending.is_over() {
            // A worker drops its reference in its next step, after sending what it holds.
            send.cancel();
            if !queue_pair.context().progress() {
                std::thread::yield_now();
            }
        }
        drop(send);
        self.free.put(self.index);
        true
    }

    fn with<R>(&self, look: impl FnOnce(&Going) -> Result<R, Failure>) -> Result<R, Failure> {
        let going = self.going.read().unwrap_or_else(PoisonError::into_inner);
        look(going.as_ref().ok_or_else(gone)?)
    }

    /// What the send's handle says.
    pub(super) fn with_handle<R>(
        &self,
        look: impl FnOnce(&SendHandle) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.with(|going| look(&going.send))
    }

    /// Has `start` start a send of the program's bytes.
    ///
    /// # Safety
    /// As for [`lacuna_send_start`].
    pub(super) unsafe fn start(
        connection: &lacuna_connection,
        data: *const c_void,
        length: usize,
        send: *mut *mut Self,
        start: impl FnOnce(SendBuffer) -> Result<SendHandle, PostSendError>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(send, "send") }?;
        let data = pointer::start(data.cast_mut().cast::<u8>(), length, "data")?;
        let lending = Lending::new(&Arc::default());
        // SAFETY: unchanged by the caller's promise until `end` has seen the
        // lending over.
        let lent = unsafe { lending.lend(data, length, None) };
        let handle = start(lent).map_err(|error| write_failure(&SendError::Post(error)))?;
        let empty = |index, free| Self {
            process: Process::current(),
            index,
            free,
            going: RwLock::new(None),
        };
        let taken = connection.sends.take(empty).ok_or_else(gone)?;
        let queue_pair = connection.queue_pair().clone();
        *taken.going.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Going { send: handle, lending, queue_pair });
        out.set(std::ptr::from_ref(taken).cast_mut());
        Ok(())
    }
}

fn gone() -> Failure {
    Failure::usage("this send was freed")
}

/// Starts a write of length bytes, with an immediate unless that is NULL; it
/// fails after deadline_ms. The bytes must not change until lacuna_send_free()
/// has returned. LACUNA_RETRY when too many writes wait. May be called from any
/// thread; messages go in the order of the calls.
///
/// # Safety
/// connection was not freed; data points to length bytes that nobody changes
/// until then; immediate is NULL or points to a uint32_t; send points to a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_send_start(
    connection: *mut lacuna_connection,
    data: *const c_void,
    length: usize,
    immediate: *const u32,
    deadline_ms: u64,
    send: *mut *mut lacuna_send,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let immediate = unsafe { optional(immediate) }?;
        let deadline = Some(Duration::from_millis(deadline_ms));
        let queue_pair = connection.queue_pair();
        let start = |data| queue_pair.send_within(data, immediate, deadline);
        // SAFETY: the caller's promise.
        unsafe { lacuna_send::start(connection, data, length, send, start) }
    })
}

/// How the write stands, without waiting: LACUNA_OK if the peer has everything
/// (in mode raw: if everything is on the wire), LACUNA_RETRY while it goes on,
/// another code if it has failed. May be called from any thread.
///
/// # Safety
/// The send's connection was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_send_poll(send: *mut lacuna_send) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let send = unsafe { pointer::object(send, "send") }?;
        send.with(|going| match going.send.status().outcome {
            None => Err(Failure::retry()),
            Some(ended) => ended.map_err(|error| write_failure(&SendError::Failed(error))),
        })
    })
}

/// Waits until the write has ended, which its deadline sees to. May be called
/// from any thread.
///
/// # Safety
/// The send's connection was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_send_wait(send: *mut lacuna_send) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let send = unsafe { pointer::object(send, "send") }?;
        send.with(|going| going.send.wait().map_err(|error| write_failure(&error)))
    })
}

/// Frees a send; one that goes on is given up. When it returns the bytes are the
/// program's again. May be called from any thread; waits for other calls with
/// it. In a child process that has inherited it, see lacuna_context_free().
///
/// # Safety
/// The send's connection was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_send_free(send: *mut lacuna_send) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let Some(send) = unsafe { pointer::to_free(send, "send") }? else { return Ok(()) };
        let queue_pair = send.with(|going| Ok(going.queue_pair.clone()))?;
        if send.end(&queue_pair) { Ok(()) } else { Err(gone()) }
    })
}
