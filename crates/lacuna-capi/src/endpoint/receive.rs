//! Receives with a live bitmap.

use super::connection::{lacuna_connection, post_receive_failure, receive_failure};
use crate::outcome::{Failure, code};
use crate::pointer::{self, Out};
use crate::pool::FreeList;
use lacuna::datapath::Process;
use lacuna::{Completed, RecvHandle, RecvOptions};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// A posted receive.
pub struct lacuna_receive {
    process: Process,
    index: usize,
    free: Arc<FreeList>,
    /// Read by calls that look and wait; taken by the call that completes.
    posted: RwLock<Option<RecvHandle>>,
}

impl pointer::Object for lacuna_receive {
    fn process(&self) -> Process {
        self.process
    }
}

/// What came of a message.
#[repr(C)]
pub struct lacuna_received {
    /// Bytes of the message; 0 while its end is not known.
    pub length: u64,
    /// Bytes of a chunk: chunk i begins at byte i * chunk_bytes.
    pub chunk_bytes: u64,
    /// Chunks of the message; of the buffer while its end is not known.
    pub chunks: u32,
    /// Chunks that are here.
    pub chunks_done: u32,
    /// The immediate, if there is one.
    pub immediate: u32,
    /// Whether all of an immediate is here.
    pub has_immediate: u8,
    /// Whether the end of the message is known.
    pub has_length: u8,
    /// Whether everything is here.
    pub is_complete: u8,
}

impl lacuna_received {
    pub(super) fn of(receive: &RecvHandle) -> Self {
        let (length, immediate) = (receive.len(), receive.immediate());
        Self {
            length: length.unwrap_or(0),
            chunk_bytes: receive.geometry().chunk_bytes(),
            chunks: receive.chunks(),
            chunks_done: receive.chunks_done(),
            immediate: immediate.unwrap_or(0),
            has_immediate: u8::from(immediate.is_some()),
            has_length: u8::from(length.is_some()),
            is_complete: u8::from(receive.is_complete()),
        }
    }
}

impl lacuna_receive {
    /// Completes the receive and returns what arrived; `None` if that was done before.
    pub(super) fn close(&self) -> Option<lacuna_received> {
        let receive = self.posted.write().unwrap_or_else(PoisonError::into_inner).take()?;
        let done = lacuna_received::of(&receive);
        // Waits for workers that are copying into the buffer.
        drop(receive);
        self.free.put(self.index);
        Some(done)
    }

    /// The same with all that is known of what arrived.
    pub(super) fn take(&self) -> Result<Completed, Failure> {
        let receive = self.posted.write().unwrap_or_else(PoisonError::into_inner).take();
        let done = receive.ok_or_else(gone)?.complete();
        self.free.put(self.index);
        Ok(done)
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// As for [`lacuna_receive_post`].
    pub(super) unsafe fn post(
        connection: *mut lacuna_connection,
        buffer: *mut c_void,
        capacity: usize,
        options: RecvOptions,
        receive: *mut *mut Self,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(receive, "receive") }?;
        let buffer = pointer::start(buffer.cast::<u8>(), capacity, "buffer")?;
        let queue_pair = connection.queue_pair();
        // SAFETY: the buffer is the library's by the caller's promise until the
        // handle is dropped, by `close` or with the connection.
        let handle = unsafe { queue_pair.post_recv_raw_with(buffer, capacity, options) };
        let handle = handle.map_err(|error| post_receive_failure(&error))?;
        let empty = |index, free| Self {
            process: Process::current(),
            index,
            free,
            posted: RwLock::new(None),
        };
        let posted = connection.receives.take(empty).ok_or_else(gone)?;
        *posted.posted.write().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        out.set(std::ptr::from_ref(posted).cast_mut());
        Ok(())
    }

    pub(super) fn with<R>(
        &self,
        look: impl FnOnce(&RecvHandle) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let posted = self.posted.read().unwrap_or_else(PoisonError::into_inner);
        look(posted.as_ref().ok_or_else(gone)?)
    }
}

fn gone() -> Failure {
    Failure::usage("this receive was completed")
}

/// Posts a receive over a buffer of capacity bytes, which is the library's until
/// lacuna_receive_complete() or lacuna_connection_free() has returned: the
/// program reads those chunks that are here, and nothing else of it.
/// LACUNA_RETRY when too many are posted. May be called from any thread; messages
/// land in the order of the calls.
///
/// # Safety
/// connection was not freed; the buffer is the library's until then; receive
/// points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_receive_post(
    connection: *mut lacuna_connection,
    buffer: *mut c_void,
    capacity: usize,
    receive: *mut *mut lacuna_receive,
) -> c_int {
    // SAFETY: the caller's promise.
    code(|| unsafe {
        lacuna_receive::post(connection, buffer, capacity, RecvOptions::default(), receive)
    })
}

/// Waits until the whole message is here, at most timeout_ms; with 0 it only
/// looks. After an error the receive stays posted. May be called from any thread.
///
/// # Safety
/// The receive's connection was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_receive_wait(
    receive: *mut lacuna_receive,
    timeout_ms: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let receive = unsafe { pointer::object(receive, "receive") }?;
        let timeout = Duration::from_millis(timeout_ms);
        receive.with(|receive| receive.wait(timeout).map_err(|error| receive_failure(&error)))
    })
}

/// What is here now. May be called from any thread.
///
/// # Safety
/// The receive's connection was not freed; received points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_receive_status(
    receive: *mut lacuna_receive,
    received: *mut lacuna_received,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let receive = unsafe { pointer::object(receive, "receive") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(received, "received") }?;
        out.set(receive.with(|receive| Ok(lacuna_received::of(receive)))?);
        Ok(())
    })
}

/// Whether a chunk is here, so that its bytes may be read: one load. May be
/// called from any thread.
///
/// # Safety
/// The receive's connection was not freed; is_here points to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_receive_has_chunk(
    receive: *mut lacuna_receive,
    chunk: u32,
    is_here: *mut c_int,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let receive = unsafe { pointer::object(receive, "receive") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(is_here, "is_here") }?;
        out.set(receive.with(|receive| Ok(c_int::from(receive.has_chunk(chunk))))?);
        Ok(())
    })
}

/// The live bitmap, as sdr_recv_bitmap_get() of sdr.h gives it: chunk i is bit
/// i % 8 of byte i / 8, set while the program looks. The pointer is good until
/// the receive is completed. LACUNA_USAGE for a buffer that is longer than one
/// message slot, which has several. May be called from any thread.
///
/// # Safety
/// The receive's connection was not freed; the other pointers point to what
/// their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_receive_bitmap(
    receive: *mut lacuna_receive,
    bytes: *mut *const u8,
    num_bytes: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let receive = unsafe { pointer::object(receive, "receive") }?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { Out::new(bytes, "bytes") }?;
        // SAFETY: the caller's promise.
        let count = unsafe { Out::new(num_bytes, "num_bytes") }?;
        let (start, len) = receive.with(|receive| {
            let live = receive.live_chunk_bits().ok_or_else(|| {
                Failure::usage("this receive takes several slots, which have a bitmap each: use lacuna_receive_has_chunk()")
            })?;
            Ok((live.as_ptr().cast(), (receive.capacity_chunks() as usize).div_ceil(8)))
        })?;
        bytes.set(start);
        count.set(len);
        Ok(())
    })
}

/// Takes the buffer back, whether or not everything came; received says what did,
/// and may be NULL. Nothing writes to the buffer after it returns; the receive is
/// used up. May be called from any thread; waits for other calls with it.
///
/// # Safety
/// The receive's connection was not freed; received is NULL or points to its
/// struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_receive_complete(
    receive: *mut lacuna_receive,
    received: *mut lacuna_received,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let receive = unsafe { pointer::object(receive, "receive") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(received, "received") }?;
        let done = receive.close().ok_or_else(gone)?;
        if let Some(out) = out {
            out.set(done);
        }
        Ok(())
    })
}
