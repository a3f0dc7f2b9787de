//! Sends of `sdr.h`, one-shot and streaming.

use super::qp::{Live, sdr_qp};
use super::types::{
    sdr_send_continue_wr, sdr_send_start_wr, sdr_send_status, sdr_send_wr, sdr_wr_opcode,
    sdr_wr_opcode_value,
};
use crate::memory::{Lending, Regions};
use crate::outcome::{self, Failure, sdr_code};
use crate::pointer::{self, Out};
use crate::pool::FreeList;
use crate::progress::Driver;
use lacuna::datapath::Process;
use lacuna::{Geometry, PostSendError, SendBuffer, SendFailure, SendHandle, Stream};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A send under way.
pub struct sdr_send_handle {
    process: Process,
    index: usize,
    free: Arc<FreeList>,
    driver: Arc<Driver>,
    regions: Arc<Regions>,
    state: Mutex<State>,
}

impl pointer::Object for sdr_send_handle {
    fn process(&self) -> Process {
        self.process
    }
}

enum State {
    /// Not in use, or destroyed with its queue pair.
    Gone,
    /// Chunks may be added.
    Streaming {
        stream: Stream,
        lending: Lending,
        out_bytes: Arc<AtomicU64>,
        geometry: Geometry,
        /// End of the message, from the parts added so far.
        end_bytes: u64,
    },
    /// Nothing can be added any more.
    Going { send: SendHandle, lending: Lending, out_bytes: Arc<AtomicU64> },
    /// The outcome is known, but the memory may still be lent.
    Closing { lending: Lending, ended: Result<(), String> },
    /// Cancelled with its queue pair; the memory may still be lent.
    Dropped(Lending),
    /// The program was told the outcome, and is told again.
    Ended(Result<(), String>),
}

impl sdr_send_handle {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the send if it is in flight.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        *state = match std::mem::replace(&mut *state, State::Gone) {
            State::Streaming { lending, .. }
            | State::Going { lending, .. }
            | State::Closing { lending, .. } => {
                self.free.put(self.index);
                State::Dropped(lending)
            }
            _ => State::Gone,
        };
    }

    /// Waits until the memory of a cancelled send is free.
    pub(super) fn wait_for_memory(&self, driver: &Driver) {
        let mut state = self.lock();
        if let State::Dropped(lending) = &mut *state {
            while !lending.is_over() {
                driver.insist();
            }
            *state = State::Gone;
        }
    }

    /// Whether the outcome is known and the memory free; then the object becomes free.
    fn poll(&self) -> Result<(), Failure> {
        let mut state = self.lock();
        let ended = match &mut *state {
            State::Gone | State::Dropped(_) => return Err(gone()),
            State::Streaming { .. } => None,
            State::Ended(ended) => return failed(ended),
            // The memory first, because that takes no lock.
            State::Going { send, lending, .. } => match lending.is_over() {
                true => send.status().outcome.map(|ended| ended.map_err(|f| text_of(&f))),
                false => None,
            },
            State::Closing { lending, ended } => lending.is_over().then(|| ended.clone()),
        };
        let ended = ended.ok_or_else(Failure::retry)?;
        let others_go_on = match &*state {
            State::Going { out_bytes, .. } => out_bytes.load(Ordering::Relaxed) > 0,
            _ => false,
        };
        let told = failed(&ended);
        *state = State::Ended(ended);
        drop(state);
        self.free.put(self.index);
        if others_go_on {
            self.driver.leave();
        }
        told
    }
}

fn gone() -> Failure {
    Failure::usage("this send has ended, or its queue pair was destroyed")
}

fn text_of(failure: &SendFailure) -> String {
    match failure {
        SendFailure::Failed(failure) => outcome::broken(failure).into_text(),
        failure => failure.to_string(),
    }
}

fn failed(ended: &Result<(), String>) -> Result<(), Failure> {
    ended.clone().map_err(|text| Failure::new(outcome::PEER, text))
}

/// The immediate that goes with an opcode.
fn immediate(opcode: sdr_wr_opcode_value, imm_value: u32) -> Result<Option<u32>, Failure> {
    if opcode == sdr_wr_opcode::SDR_WR_WRITE as c_uint {
        Ok(None)
    } else if opcode == sdr_wr_opcode::SDR_WR_WRITE_WITH_IMM as c_uint {
        Ok(Some(imm_value))
    } else {
        Err(Failure::usage(format!("opcode {opcode} is no enumerator of sdr_wr_opcode")))
    }
}

/// Byte offset of a part in the message.
fn offset_bytes(geometry: &Geometry, remote_offset: u64) -> Result<u64, Failure> {
    let chunk_bytes = geometry.chunk_bytes();
    remote_offset.checked_mul(chunk_bytes).ok_or_else(|| {
        Failure::usage(format!("remote_offset {remote_offset} in chunks of {chunk_bytes} bytes"))
    })
}

/// The error for a send that cannot start now; the program retries.
fn not_posted(error: &PostSendError) -> Failure {
    match error {
        retryable if retryable.is_retryable() => Failure::retry(),
        PostSendError::Failed(failure) => outcome::broken(failure),
        error => Failure::usage(error.to_string()),
    }
}

impl Live {
    fn check_sends(&self) -> Result<(), Failure> {
        if !self.sends {
            return Err(Failure::usage("this queue pair was made without send_enable"));
        }
        Ok(())
    }
}

/// Takes an object for a send.
fn take(qp: &sdr_qp) -> Result<&sdr_send_handle, Failure> {
    let empty = |index, free| sdr_send_handle {
        process: Process::current(),
        index,
        free,
        driver: qp.driver.clone(),
        regions: qp.regions.clone(),
        state: Mutex::new(State::Gone),
    };
    // All in use: the program must poll some to their end.
    qp.sends.take(empty).ok_or_else(Failure::retry)
}

/// Starts a send of length bytes, into the peer's next posted receive.
///
/// The bytes must not change until sdr_send_poll() has said that the send is
/// complete. SDR_RETRY when the peer has posted no receive for it, as far as is
/// known here, or when max_in_flight_log_bytes are out already. May be called
/// from any thread; the order of the sends is that of the calls.
///
/// # Safety
/// The queue pair's context was not destroyed; the bytes stay as they are until
/// the send is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_send_post(
    qp: *mut sdr_qp,
    wr: *mut sdr_send_wr,
    handle: *mut *mut sdr_send_handle,
) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let qp = unsafe { pointer::object(qp, "qp") }?;
        // SAFETY: the caller's promise.
        let wr = unsafe { pointer::shared(wr, "wr") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(handle, "handle") }?;
        let immediate = immediate(wr.opcode, wr.imm_value)?;
        let live = qp.live()?;
        live.check_sends()?;
        let length = u64::from(wr.length);
        let region = qp.regions.find(wr.lkey, wr.local_addr, length)?;
        let offset = offset_bytes(&live.geometry, wr.remote_offset)?;
        let out_bytes = live.out_bytes.load(Ordering::Relaxed);
        let is_full = out_bytes > 0 && out_bytes.saturating_add(length) > live.window_bytes;
        if is_full || !live.queue_pair.is_clear_to_send() {
            qp.driver.poll();
            live.check_sending()?;
            return Err(Failure::retry());
        }
        let send = take(qp)?;
        let lending = Lending::new(&live.out_bytes);
        let start = std::ptr::with_exposed_provenance(wr.local_addr as usize);
        // SAFETY: registered, and by the caller's promise unchanged until the poll
        // that says so, or the end of the queue pair, has seen the lending over.
        let data = unsafe { lending.lend(start, wr.length as usize, Some(region)) };
        let started = match offset {
            0 => live.queue_pair.try_send(data, immediate),
            _ => part_of_a_message(&live, offset, data, immediate),
        };
        match started {
            Ok(started) => {
                let out_bytes = live.out_bytes.clone();
                *send.lock() = State::Going { send: started, lending, out_bytes };
            }
            Err(error) => {
                send.free.put(send.index);
                qp.driver.poll();
                return Err(not_posted(&error));
            }
        }
        qp.driver.push();
        out.set(std::ptr::from_ref(send).cast_mut());
        Ok(())
    })
}

/// The error for a one-shot send with an offset.
fn part_of_a_message(
    live: &Live,
    offset_bytes: u64,
    data: SendBuffer,
    immediate: Option<u32>,
) -> Result<SendHandle, PostSendError> {
    let stream = live.queue_pair.open_stream(immediate)?;
    stream.push(offset_bytes, data, true)?;
    stream.end()
}

/// Starts a send whose parts follow, into the peer's next posted receive.
/// SDR_RETRY as for sdr_send_post(). May be called from any thread.
///
/// # Safety
/// The queue pair's context was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_streaming_send_start(
    qp: *mut sdr_qp,
    wr: *mut sdr_send_start_wr,
    handle: *mut *mut sdr_send_handle,
) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let qp = unsafe { pointer::object(qp, "qp") }?;
        // SAFETY: the caller's promise.
        let wr = unsafe { pointer::shared(wr, "wr") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(handle, "handle") }?;
        let immediate = immediate(wr.opcode, wr.imm_value)?;
        let live = qp.live()?;
        live.check_sends()?;
        if !live.queue_pair.is_clear_to_send() {
            qp.driver.poll();
            live.check_sending()?;
            return Err(Failure::retry());
        }
        let send = take(qp)?;
        let stream = match live.queue_pair.open_stream(immediate) {
            Ok(stream) => stream,
            Err(error) => {
                send.free.put(send.index);
                qp.driver.poll();
                return Err(not_posted(&error));
            }
        };
        *send.lock() = State::Streaming {
            stream,
            lending: Lending::new(&live.out_bytes),
            out_bytes: live.out_bytes.clone(),
            geometry: live.geometry,
            end_bytes: 0,
        };
        out.set(std::ptr::from_ref(send).cast_mut());
        Ok(())
    })
}

/// Adds a part to a streaming send: any chunk, any order, again if wanted. A part
/// that begins where none reached so far and ends within a chunk, ends the
/// message. The bytes must not change until the send is complete. Once the peer
/// has completed its receive, parts are taken and go nowhere. May be called from
/// any thread.
///
/// # Safety
/// The handle's context was not destroyed; the bytes stay as they are until the
/// send is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_streaming_send_continue(
    handle: *mut sdr_send_handle,
    wr: *mut sdr_send_continue_wr,
) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { pointer::object(handle, "handle") }?;
        // SAFETY: the caller's promise.
        let wr = unsafe { pointer::shared(wr, "wr") }?;
        let mut state = handle.lock();
        let State::Streaming { stream, lending, geometry, end_bytes, .. } = &mut *state else {
            return Err(match &*state {
                State::Gone | State::Dropped(_) => gone(),
                _ => Failure::usage("this send was ended, or is no streaming send"),
            });
        };
        let length = u64::from(wr.length);
        let region = handle.regions.find(wr.lkey, wr.local_addr, length)?;
        let offset = offset_bytes(geometry, wr.remote_offset)?;
        let end = offset.saturating_add(length);
        // Only a message's end may lie within a chunk. Packets at a chunk's beginning may also be
        // sent again by themselves, and then do not end the message.
        let ends_message = end >= *end_bytes && !end.is_multiple_of(geometry.chunk_bytes());
        let start = std::ptr::with_exposed_provenance(wr.local_addr as usize);
        // SAFETY: as in `sdr_send_post`.
        let data = unsafe { lending.lend(start, wr.length as usize, Some(region)) };
        match stream.push(offset, data, ends_message) {
            // The peer has completed its receive. The paper's sender is not told of that and
            // continues (3.3.1).
            Ok(()) | Err(PostSendError::NoSuchSend) => {}
            Err(PostSendError::Failed(failure)) => return Err(outcome::broken(&failure)),
            Err(error) => return Err(Failure::usage(error.to_string())),
        }
        *end_bytes = end.max(*end_bytes);
        drop(state);
        handle.driver.push();
        Ok(())
    })
}

/// Ends a streaming send: what was added still goes out, and sdr_send_poll() says
/// when it has. May be called from any thread.
///
/// # Safety
/// The handle's context was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_streaming_send_end(handle: *mut sdr_send_handle) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { pointer::object(handle, "handle") }?;
        let mut state = handle.lock();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Streaming { stream, lending, out_bytes, .. } => match stream.end() {
                Ok(send) => *state = State::Going { send, lending, out_bytes },
                // The peer has completed its receive: nothing is left to send.
                Err(PostSendError::NoSuchSend) => {
                    *state = State::Closing { lending, ended: Ok(()) };
                }
                Err(error) => {
                    let text = error.to_string();
                    *state = State::Closing { lending, ended: Err(text.clone()) };
                    return Err(Failure::new(outcome::PEER, text));
                }
            },
            other => {
                *state = other;
                return Err(match &*state {
                    State::Gone | State::Dropped(_) => gone(),
                    _ => Failure::usage("this send was ended, or is no streaming send"),
                });
            }
        }
        drop(state);
        handle.driver.push();
        Ok(())
    })
}

/// Whether a send is complete: everything was put on the wire once, and its
/// memory is the program's again. completed_flag is then 1; SDR_RETRY before,
/// also for a streaming send that was not ended. status is unused and may be
/// NULL. A handle that is complete is used up, and may be polled a while longer.
/// May be called from any thread.
///
/// # Safety
/// The handle's context was not destroyed; completed_flag points to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_send_poll(
    handle: *mut sdr_send_handle,
    completed_flag: *mut c_int,
    status: *mut sdr_send_status,
) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { pointer::object(handle, "handle") }?;
        // SAFETY: the caller's promise.
        let completed = unsafe { Out::new(completed_flag, "completed_flag") }?;
        // SAFETY: the caller's promise.
        let status = unsafe { Out::optional(status, "status") }?;
        let polled = handle.poll().or_else(|failure| {
            if !failure.is_retry() {
                return Err(failure);
            }
            handle.driver.check()?;
            handle.driver.poll();
            handle.poll()
        });
        polled?;
        completed.set(1);
        if let Some(status) = status {
            status.set(sdr_send_status { flags: 0 });
        }
        Ok(())
    })
}
