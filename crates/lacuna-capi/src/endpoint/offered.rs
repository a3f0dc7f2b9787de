//! Sends whose bytes become ready part by part.

use super::connection::{lacuna_connection, optional, write_failure};
use super::send::lacuna_send;
use crate::outcome::{Failure, code};
use crate::pointer;
use lacuna::SendError;
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// Starts a write of length bytes that become ready part by part, each of which leaves
/// when lacuna_send_offer() has named it. Nothing is copied: the program fills its
/// memory at data, and a part that was offered must not change until
/// lacuna_send_free() has returned. The write ends when all parts have been offered and
/// are there, or fails after deadline_ms. The rest as lacuna_send_start().
///
/// # Safety
/// connection was not freed; data points to length bytes, of which nobody changes those
/// that were offered until then; immediate is NULL or points to a uint32_t; send points
/// to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_send_start_offered(
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
        let start = |data| queue_pair.send_when_offered(data, immediate, deadline);
        // SAFETY: the caller's promise; of what was not offered the transport reads
        // nothing.
        unsafe { lacuna_send::start(connection, data, length, send, start) }
    })
}

/// Says that length bytes from offset on of a write that lacuna_send_start_offered()
/// started are ready, and lets them leave: any part, in any order, again if need be.
/// Parts of whole chunks spare repeated packets. Of a write that has ended, or that was
/// started as a whole, it changes nothing. LACUNA_USAGE for what is outside of the
/// write. May be called from any thread.
///
/// # Safety
/// The send's connection was not freed; nobody changes the bytes until
/// lacuna_send_free() has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_send_offer(
    send: *mut lacuna_send,
    offset: usize,
    length: usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let send = unsafe { pointer::object(send, "send") }?;
        if offset.checked_add(length).is_none() {
            return Err(Failure::usage(format!(
                "{length} bytes at {offset}: more than there can be"
            )));
        }
        send.with_handle(|handle| {
            let offered = handle.offer(offset, length);
            offered.map_err(|error| write_failure(&SendError::Post(error)))
        })
    })
}
