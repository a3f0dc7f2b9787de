//! Writes to regions of the peer and reads of them, without a receive that was posted for them.

use super::connection::{lacuna_connection, optional, write_failure};
use super::ended::lacuna_ended;
use super::map::lacuna_map;
use super::region::{lacuna_region, region_failure};
use super::send::lacuna_send;
use crate::outcome::{self, Failure, code};
use crate::pointer::{self, Out};
use lacuna::{PostReadError, ReadError, ReadFailure, Reason, Target, Written};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// A message with an immediate that the peer has written to a region here.
#[repr(C)]
pub struct lacuna_written {
    /// Where the message begins, from the start of the key's range.
    pub address: u64,
    /// Bytes of the message; 0 while its end is not known.
    pub length: u64,
    /// Bytes of the message that came; copies count once.
    pub bytes: u64,
    /// Bytes of a packet: packet i begins i * packet_bytes behind address.
    pub packet_bytes: u64,
    /// Key of the region or window.
    pub key: u32,
    /// Why the message is over: of enum lacuna_reason.
    pub reason: u32,
    /// The immediate, if all of it came.
    pub immediate: u32,
    /// Whether all of the immediate came.
    pub has_immediate: u8,
    /// Whether the end of the message is known.
    pub has_length: u8,
    /// Whether everything came.
    pub is_complete: u8,
    /// 0.
    pub reserved: u8,
    /// 0.
    pub more: [u64; 2],
}

impl lacuna_written {
    /// What came, and its map if there are gaps.
    fn of(written: Written) -> (Self, Option<Box<lacuna_map>>) {
        let Written { key, address, len, bytes, immediate, reason, packets } = written;
        let is_complete = reason == Reason::Whole || len == Some(bytes);
        let this = Self {
            address,
            length: len.unwrap_or(0),
            bytes,
            packet_bytes: packets.packet_bytes() as u64,
            key,
            reason: reason as u32,
            immediate: immediate.unwrap_or(0),
            has_immediate: u8::from(immediate.is_some()),
            has_length: u8::from(len.is_some()),
            is_complete: u8::from(is_complete),
            reserved: 0,
            more: [0; 2],
        };
        (this, lacuna_map::of(packets, is_complete))
    }

    /// The same as a completion queue tells of it.
    pub(super) fn ended(written: Written) -> (lacuna_ended, Option<Box<lacuna_map>>) {
        let packets = written.packets.len() as u64;
        let (written, map) = Self::of(written);
        let ended = lacuna_ended {
            length: written.length,
            bytes: written.bytes,
            packet_bytes: written.packet_bytes,
            packets,
            reason: written.reason,
            immediate: written.immediate,
            has_immediate: written.has_immediate,
            has_length: written.has_length,
            is_complete: written.is_complete,
            ..lacuna_ended::default()
        };
        (ended, map)
    }
}

pub(super) fn read_failure(error: &ReadError) -> Failure {
    let code = match error {
        ReadError::Post(PostReadError::Failed(failure))
        | ReadError::Failed(ReadFailure::Failed(failure)) => return outcome::broken(failure),
        ReadError::Post(PostReadError::Busy { .. }) => outcome::RETRY,
        ReadError::Post(_) => outcome::USAGE,
        ReadError::Region(error) => return region_failure(error),
        ReadError::Failed(ReadFailure::Deadline { .. }) => outcome::DEADLINE,
        ReadError::Failed(_) => outcome::PEER,
    };
    Failure::new(code, error.to_string())
}

/// Writes length bytes to a region of the peer, address bytes behind the start of key's
/// range, and waits until they are there (in modes bounded, best-effort and raw: until
/// they are on the wire), at most deadline_ms. The peer need not have posted anything,
/// unlike for lacuna_write(), which sends a message into its next receive; with an
/// immediate, unless that is NULL, its lacuna_wait_written() is told. LACUNA_USAGE for a
/// connection without the setting one_sided, LACUNA_PEER if the peer refuses the place or
/// has revoked the key; a key that it does not know gets no answer, so that nobody can
/// try keys, and the write ends by its deadline. Writes keep no order among each other,
/// nor towards messages: wait for one before the next where it matters. May be called
/// from several threads.
///
/// # Safety
/// connection was not freed; data points to length bytes that nobody changes
/// during the call; immediate is NULL or points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_remote_write(
    connection: *mut lacuna_connection,
    key: u32,
    address: u64,
    data: *const c_void,
    length: usize,
    immediate: *const u32,
    deadline_ms: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let data = unsafe { pointer::bytes(data.cast(), length, "data") }?;
        // SAFETY: the caller's promise.
        let immediate = unsafe { optional(immediate) }?;
        let (to, deadline) = (Target { key, address }, Duration::from_millis(deadline_ms));
        let connection = &connection.connection;
        let written = match immediate {
            Some(immediate) => connection.write_to_with_immediate(to, data, immediate, deadline),
            None => connection.write_to(to, data, deadline),
        };
        written.map_err(|error| write_failure(&error))
    })
}

/// Starts a write to a region of the peer; the send is used as one of
/// lacuna_send_start(). The rest as lacuna_remote_write().
///
/// # Safety
/// As for lacuna_send_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_remote_write_start(
    connection: *mut lacuna_connection,
    key: u32,
    address: u64,
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
        let (to, deadline) = (Target { key, address }, Duration::from_millis(deadline_ms));
        let start =
            |data| connection.connection.start_write_to_within(to, data, immediate, deadline);
        // SAFETY: the caller's promise.
        unsafe { lacuna_send::start(connection, data, length, send, start) }
    })
}

/// Reads length bytes of a region of the peer, from address bytes behind the start of
/// key's range on, into a region here, which may have any rights, at offset, and waits
/// until they are there, at most deadline_ms. Unlike lacuna_read(), which receives the
/// next message that the peer sends, the peer's program does nothing for it. bytes gets
/// how many came, and may be NULL: all, but in modes bounded, best-effort and raw, where
/// what was lost leaves the memory as it was. Errors as those of lacuna_remote_write();
/// what came before one may be in the region. May be called from several threads.
///
/// # Safety
/// connection was not freed, nor is region during the call; bytes is NULL or points to a
/// uint64_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_remote_read(
    connection: *mut lacuna_connection,
    key: u32,
    address: u64,
    length: u64,
    region: *mut lacuna_region,
    offset: u64,
    deadline_ms: u64,
    bytes: *mut u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let region = unsafe { pointer::object(region, "region") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(bytes, "bytes") }?;
        let range = region.range(offset, length)?;
        let (from, deadline) = (Target { key, address }, Duration::from_millis(deadline_ms));
        let read =
            connection.connection.read_into(from, length, region.region(), range.start, deadline);
        let bytes = read.map_err(|error| read_failure(&error))?;
        if let Some(out) = out {
            out.set(bytes);
        }
        Ok(())
    })
}

/// Waits for the next message with an immediate that the peer has written to a region
/// here, at most timeout_ms. written says what came, and map which packets did, to be
/// freed with lacuna_map_free(): NULL if everything came. map may be NULL. The gaps of a
/// map count from written's address. While a thousand such messages wait, the peer's
/// writes wait, too. May be called from any thread.
///
/// # Safety
/// connection was not freed; written points to its struct; map is NULL or points to a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_wait_written(
    connection: *mut lacuna_connection,
    timeout_ms: u64,
    written: *mut lacuna_written,
    map: *mut *mut lacuna_map,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = &unsafe { pointer::object(connection, "connection") }?.connection;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(written, "written") }?;
        // SAFETY: the caller's promise.
        let map_out = unsafe { Out::optional(map, "map") }?;
        if !connection.has_one_sided() {
            return Err(Failure::usage(
                "the connection has no one-sided operations: the connecting end's setting one_sided",
            ));
        }
        let found = connection.wait_written(Duration::from_millis(timeout_ms));
        let found = found.ok_or_else(|| match connection.failure() {
            Some(failure) => outcome::broken(&failure),
            None => {
                let text = format!("nothing was written with an immediate within {timeout_ms} ms");
                Failure::new(outcome::DEADLINE, text)
            }
        })?;
        let (written, map) = lacuna_written::of(found);
        lacuna_map::give(map, map_out);
        out.set(written);
        Ok(())
    })
}
