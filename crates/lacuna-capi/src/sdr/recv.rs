//! Receives of `sdr.h`: a buffer, its live bitmap, its immediate.

use super::qp::{Full, sdr_qp};
use super::types::sdr_recv_wr;
use crate::memory::Region;
use crate::outcome::{self, Failure, sdr_code};
use crate::pointer::{self, Out};
use crate::pool::FreeList;
use crate::progress::Driver;
use lacuna::datapath::Process;
use lacuna::{PostReceiveError, ReceiveFailure, RecvHandle};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Empty polls between two checks whether the message can still arrive, which takes the queue
/// pair's lock.
const POLLS_PER_CHECK: u32 = 256;

/// A posted receive.
pub struct sdr_recv_handle {
    process: Process,
    index: usize,
    free: Arc<FreeList>,
    driver: Arc<Driver>,
    full: Arc<Full>,
    polls: AtomicU32,
    posted: Mutex<Option<Posted>>,
}

impl pointer::Object for sdr_recv_handle {
    fn process(&self) -> Process {
        self.process
    }
}

struct Posted {
    receive: RecvHandle,
    /// Keeps the registration as long as the receive is posted.
    _region: Arc<Region>,
}

impl sdr_recv_handle {
    fn lock(&self) -> MutexGuard<'_, Option<Posted>> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the receive; `false` if that was done before.
    pub(super) fn close(&self) -> bool {
        // Waits for workers that are copying into the buffer.
        let posted = self.lock().take();
        if posted.is_none() {
            return false;
        }
        drop(posted);
        self.full.on_completed();
        self.free.put(self.index);
        true
    }

    /// A poll has found nothing.
    fn in_vain(&self, receive: &RecvHandle) -> Result<(), Failure> {
        self.driver.poll();
        let polls = self.polls.load(Ordering::Relaxed).wrapping_add(1);
        self.polls.store(polls, Ordering::Relaxed);
        if polls.is_multiple_of(POLLS_PER_CHECK) {
            self.driver.check()?;
            if let Some(failure) = receive.failure() {
                return Err(match failure {
                    ReceiveFailure::Failed(failure) => outcome::broken(&failure),
                    failure => Failure::new(outcome::PEER, failure.to_string()),
                });
            }
        }
        Ok(())
    }
}

fn gone() -> Failure {
    Failure::usage("this receive was completed, or its queue pair destroyed")
}

/// Posts a receive. The n-th send of the peer lands in the n-th posted receive.
///
/// The buffer is the library's until sdr_recv_complete() has returned: the
/// program reads those chunks whose bits are set, and nothing else of it.
/// SDR_RETRY when as many receives are posted as there can be. May be called
/// from any thread; the order of the posts is that of the calls.
///
/// # Safety
/// The queue pair's context was not destroyed; the buffer is the library's until
/// the receive is completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_post(
    qp: *mut sdr_qp,
    wr: *mut sdr_recv_wr,
    handle: *mut *mut sdr_recv_handle,
) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let qp = unsafe { pointer::object(qp, "qp") }?;
        // SAFETY: the caller's promise.
        let wr = unsafe { pointer::shared(wr, "wr") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(handle, "handle") }?;
        let live = qp.live()?;
        if !live.receives {
            return Err(Failure::usage("this queue pair was made without recv_enable"));
        }
        if qp.full.skips() {
            qp.driver.poll();
            return Err(Failure::retry());
        }
        let length = u64::from(wr.max_length);
        let region = qp.regions.find(wr.lkey, wr.address, length)?;
        let slot_bytes = live.geometry.max_message_bytes();
        if length > slot_bytes {
            return Err(Failure::usage(format!(
                "a receive of {length} bytes: this queue pair's messages have {slot_bytes} bytes at most; make it with a larger max_in_flight_log_bytes, a larger MTU or fewer messages"
            )));
        }
        let start = std::ptr::with_exposed_provenance_mut(wr.address as usize);
        // SAFETY: registered, and by the caller's promise the library's until the
        // handle is closed, which happens before the object is used again.
        let receive = unsafe { live.queue_pair.post_recv_raw(start, wr.max_length as usize) };
        let receive = match receive {
            Ok(receive) => receive,
            Err(error) if error.is_retryable() => {
                qp.full.on_refused();
                qp.driver.poll();
                return Err(Failure::retry());
            }
            Err(PostReceiveError::Failed(failure)) => return Err(outcome::broken(&failure)),
            Err(error) => return Err(Failure::usage(error.to_string())),
        };
        let empty = |index, free| sdr_recv_handle {
            process: Process::current(),
            index,
            free,
            driver: qp.driver.clone(),
            full: qp.full.clone(),
            polls: AtomicU32::new(0),
            posted: Mutex::new(None),
        };
        let posted = qp.receives.take(empty).ok_or_else(gone)?;
        *posted.lock() = Some(Posted { receive, _region: region });
        qp.driver.poll();
        out.set(std::ptr::from_ref(posted).cast_mut());
        Ok(())
    })
}

/// The immediate that the message carries. SDR_RETRY until the packets that
/// bring its parts are here: some of the first suffice. May be called from any
/// thread.
///
/// # Safety
/// The handle's context was not destroyed; immediate points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_imm_get(
    handle: *mut sdr_recv_handle,
    immediate: *mut u32,
) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { pointer::object(handle, "handle") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(immediate, "immediate") }?;
        let posted = handle.lock();
        let receive = &posted.as_ref().ok_or_else(gone)?.receive;
        if let Some(immediate) = receive.immediate() {
            out.set(immediate);
            return Ok(());
        }
        handle.in_vain(receive)?;
        // The step may have received it.
        out.set(receive.immediate().ok_or_else(Failure::retry)?);
        Ok(())
    })
}

/// The live bitmap: one bit per chunk of the buffer, chunk i is bit i % 8 of
/// byte i / 8. It is set when all bytes of the chunk are in the buffer, while the
/// program looks: read it as volatile memory, and put an acquire fence between
/// seeing a bit and reading the chunk, if another architecture than x86 is meant
/// to run the program. It must not be written to. Bits of chunks behind the end
/// of a shorter message stay clear.
///
/// The pointer is good until sdr_recv_complete(). May be called from any thread,
/// once or for every look; a call also makes progress where that is the calls'
/// work.
///
/// # Safety
/// The handle's context was not destroyed; the other pointers point to what
/// their types say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_bitmap_get(
    handle: *mut sdr_recv_handle,
    bitmap_bytes: *mut *mut u8,
    bitmap_num_bytes: *mut usize,
) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { pointer::object(handle, "handle") }?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { Out::new(bitmap_bytes, "bitmap_bytes") }?;
        // SAFETY: the caller's promise.
        let count = unsafe { Out::new(bitmap_num_bytes, "bitmap_num_bytes") }?;
        let posted = handle.lock();
        let receive = &posted.as_ref().ok_or_else(gone)?.receive;
        if receive.chunks_done() < receive.chunks() {
            handle.in_vain(receive)?;
        }
        let live = receive.live_chunk_bits();
        let live = live.ok_or_else(|| Failure::usage("a receive of several slots"))?;
        bytes.set(live.as_ptr().cast::<u8>().cast_mut());
        count.set((receive.capacity_chunks() as usize).div_ceil(8));
        Ok(())
    })
}

/// The packets of one chunk, one bit each: packet i is bit i % 64 of word i / 64.
/// bitmap points to as many words as a chunk's packets need, one for chunks of up
/// to 64 packets. May be called from any thread.
///
/// # Safety
/// The handle's context was not destroyed; bitmap points to so many words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_bitmap_chunk_expand(
    handle: *mut sdr_recv_handle,
    chunk_offset: u32,
    bitmap: *mut u64,
) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { pointer::object(handle, "handle") }?;
        let posted = handle.lock();
        let receive = &posted.as_ref().ok_or_else(gone)?.receive;
        let chunks = receive.capacity_chunks();
        if chunk_offset >= chunks {
            return Err(Failure::usage(format!(
                "chunk {chunk_offset} of a receive of {chunks} chunks"
            )));
        }
        if !receive.has_chunk(chunk_offset) {
            handle.in_vain(receive)?;
        }
        let words = receive.geometry().chunk_packets().div_ceil(64) as usize;
        // SAFETY: the caller's promise.
        let words = unsafe { pointer::words(bitmap, words, "bitmap") }?;
        receive.copy_chunk_packets(chunk_offset, words);
        Ok(())
    })
}

/// Takes the buffer back, whether or not the message is complete; to be called
/// once for every posted receive. Nothing writes to the buffer after it returns.
/// The handle and the bitmap's pointer are used up. May be called from any
/// thread.
///
/// # Safety
/// The handle's context was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_complete(handle: *mut sdr_recv_handle) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { pointer::object(handle, "handle") }?;
        if handle.close() { Ok(()) } else { Err(gone()) }
    })
}
