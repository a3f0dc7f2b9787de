//! Queue pairs of `sdr.h`.

use super::context::sdr_context;
use super::recv::sdr_recv_handle;
use super::send::sdr_send_handle;
use super::shape;
use super::types::sdr_qp_attr;
use crate::environment::Environment;
use crate::memory::Regions;
use crate::outcome::{self, Failure, object, sdr_code};
use crate::pointer::{self, Out};
use crate::pool::{FreeList, ObjectPool};
use crate::progress::Driver;
use lacuna::datapath::Process;
use lacuna::{Geometry, QpStats, QueuePair};
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Length of the info, in front of it in the blob.
const LENGTH_BYTES: usize = 4;
/// Blobs have a fixed size, so a program need not exchange it.
const BLOB_BYTES: usize = LENGTH_BYTES + QueuePair::INFO_BYTES_MAX;
/// Send handles beyond the slots: sends that the program has not polled to the end (a judgement).
const SENDS_MORE: usize = 4096;

/// Refused sends in a row between two checks whether a send can ever succeed.
const REFUSALS_PER_CHECK: u32 = 16;

/// A queue pair.
pub struct sdr_qp {
    process: Process,
    index: usize,
    free: Arc<FreeList>,
    pub(super) driver: Arc<Driver>,
    pub(super) regions: Arc<Regions>,
    advertise: IpAddr,
    live: RwLock<Option<Live>>,
    pub(super) receives: ObjectPool<sdr_recv_handle>,
    pub(super) full: Arc<Full>,
    pub(super) sends: ObjectPool<sdr_send_handle>,
}

impl pointer::Object for sdr_qp {
    fn process(&self) -> Process {
        self.process
    }
}

/// Limits the cost of posting receives while all slots are taken. A program then retries in a loop,
/// and each attempt takes two locks and reads the clock; so most calls are answered here until a
/// receive is completed.
#[derive(Debug, Default)]
pub(super) struct Full(AtomicU32);

impl Full {
    /// Calls in a row that are refused without an attempt.
    const SKIP: u32 = 15;

    /// An attempt found no free slot.
    pub(super) fn on_refused(&self) {
        self.0.store(Self::SKIP, Ordering::Relaxed);
    }

    /// A receive was completed.
    pub(super) fn on_completed(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether to refuse this call without an attempt. Not exact with several threads, which is
    /// harmless.
    pub(super) fn skips(&self) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        if left > 0 {
            self.0.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }
}

/// The state of a queue pair until it is destroyed.
pub(super) struct Live {
    pub(super) queue_pair: QueuePair,
    pub(super) geometry: Geometry,
    pub(super) sends: bool,
    pub(super) receives: bool,
    /// Limit of the bytes that sends lend out together; `out_bytes` is their number.
    pub(super) window_bytes: u64,
    pub(super) out_bytes: Arc<AtomicU64>,
    is_connected: AtomicBool,
    /// Sends refused in a row.
    refused: AtomicU32,
    environment: Environment,
}

impl sdr_qp {
    /// The queue pair; it is not destroyed while the guard is held.
    pub(super) fn live(&self) -> Result<LiveGuard<'_>, Failure> {
        self.driver.check()?;
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        if live.is_none() {
            return Err(gone());
        }
        Ok(LiveGuard(live))
    }

    /// Ends the queue pair: when this returns, the program's memory is not touched any more.
    /// `false` if it had ended before.
    pub(super) fn close(&self) -> bool {
        let mut slot = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let Some(live) = slot.take() else { return false };
        self.receives.for_each(|receive| {
            receive.close();
        });
        live.report();
        self.sends.for_each(sdr_send_handle::give_up);
        // Without it nothing is repeated or waited for, and workers drop the references they hold
        // in their next step.
        drop(live);
        self.sends.for_each(|send| send.wait_for_memory(&self.driver));
        true
    }
}

/// See [`sdr_qp::live`].
pub(super) struct LiveGuard<'q>(RwLockReadGuard<'q, Option<Live>>);

impl std::ops::Deref for LiveGuard<'_> {
    type Target = Live;

    fn deref(&self) -> &Live {
        self.0.as_ref().expect("checked when the guard was made, and locked since")
    }
}

impl Live {
    /// An error if sends can never succeed again.
    pub(super) fn check_sending(&self) -> Result<(), Failure> {
        if !self.is_connected.load(Ordering::Acquire) {
            return Err(Failure::usage(
                "the queue pair is not connected: call sdr_qp_connect first",
            ));
        }
        // Only some calls check, because it takes the queue pair's lock.
        let refused = self.refused.load(Ordering::Relaxed).wrapping_add(1);
        self.refused.store(refused, Ordering::Relaxed);
        if !refused.is_multiple_of(REFUSALS_PER_CHECK) {
            return Ok(());
        }
        match self.queue_pair.failure() {
            Some(failure) => Err(outcome::broken(&failure)),
            None => Ok(()),
        }
    }

    /// Prints the counters that the environment asks for. A closed standard error is ignored.
    fn report(&self) {
        let stats = self.queue_pair.stats();
        let mut out = std::io::stderr().lock();
        if self.environment.reports_sent {
            let QpStats { send, .. } = &stats;
            let _ = writeln!(
                out,
                "liblacuna: sent {} packets with {} bytes in {} messages, {} timeouts",
                send.packets, send.bytes, send.messages, stats.timeouts
            );
        }
        if self.environment.reports_received {
            for (channel, counted) in stats.channels.iter().enumerate() {
                let discarded: u64 = counted.discarded.iter().sum();
                let _ = writeln!(
                    out,
                    "liblacuna: channel {channel} received {} packets with {} bytes, {} chunks, {} duplicates, {discarded} discarded",
                    counted.packets, counted.bytes, counted.chunks, counted.duplicates
                );
            }
            let _ = writeln!(out, "liblacuna: {} packets lost", stats.lost_packets());
        }
    }
}

fn gone() -> Failure {
    Failure::usage("this queue pair was destroyed")
}

/// Makes a queue pair.
///
/// Returns NULL on failure. May be called from any thread.
///
/// # Safety
/// ctx was not destroyed; qp_attr points to a struct that nobody changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_create(
    ctx: *mut sdr_context,
    qp_attr: *mut sdr_qp_attr,
) -> *mut sdr_qp {
    object(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { pointer::object(ctx, "ctx") }?;
        // SAFETY: the caller's promise.
        let attr = unsafe { pointer::shared(qp_attr, "qp_attr") }?;
        context.driver.check()?;
        let environment = Environment::read()?;
        let config = shape::config(attr, environment.generations)?;
        let queue_pair = context.driver.context().queue_pair(&config);
        let queue_pair = queue_pair.map_err(|error| Failure::usage(error.to_string()))?;
        let geometry = queue_pair.geometry();
        let slots = geometry.slots() as usize;
        let window_log = u32::try_from(attr.max_in_flight_log_bytes).unwrap_or(u32::MAX);
        let live = Live {
            queue_pair,
            geometry,
            sends: attr.send_enable != 0,
            receives: attr.recv_enable != 0,
            window_bytes: 1u64.checked_shl(window_log).unwrap_or(u64::MAX),
            out_bytes: Arc::default(),
            is_connected: AtomicBool::new(false),
            refused: AtomicU32::new(0),
            environment,
        };
        let empty = |index, free| sdr_qp {
            process: Process::current(),
            index,
            free,
            driver: context.driver.clone(),
            regions: context.regions.clone(),
            advertise: context.advertise,
            live: RwLock::new(None),
            receives: ObjectPool::new(usize::MAX),
            full: Arc::default(),
            sends: ObjectPool::new(2 * slots + SENDS_MORE),
        };
        let made = context.queue_pairs.take(empty).ok_or_else(gone)?;
        *made.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
        Ok(std::ptr::from_ref(made).cast_mut())
    })
}

/// Ends a queue pair: its receives are completed, its sends given up. Nothing
/// touches their memory after it returns, and their handles answer with errors.
///
/// May be called from any thread; calls of other threads with this queue pair
/// are waited for. In a child process that has inherited it, see sdr_context_destroy().
///
/// # Safety
/// The queue pair's context was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_destroy(qp: *mut sdr_qp) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let Some(qp) = unsafe { pointer::to_free(qp, "qp") }? else { return Ok(()) };
        if !qp.close() {
            return Err(gone());
        }
        qp.free.put(qp.index);
        Ok(())
    })
}

/// The size of what sdr_qp_info_get() writes: the same for every queue pair of
/// this library. May be called from any thread.
///
/// # Safety
/// The queue pair's context was not destroyed; info_size points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_info_size_get(qp: *mut sdr_qp, info_size: *mut usize) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let qp = unsafe { pointer::object(qp, "qp") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(info_size, "info_size") }?;
        qp.live()?;
        out.set(BLOB_BYTES);
        Ok(())
    })
}

/// Writes what the peer must know of the queue pair, to be handed over by the
/// program's own means. May be called from any thread.
///
/// # Safety
/// The queue pair's context was not destroyed; info points to as many bytes as
/// sdr_qp_info_size_get() says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_info_get(qp: *mut sdr_qp, info: *mut c_void) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let qp = unsafe { pointer::object(qp, "qp") }?;
        let known = qp.live()?.queue_pair.info(qp.advertise);
        let mut blob = [0; BLOB_BYTES];
        blob[..LENGTH_BYTES].copy_from_slice(&(known.len() as u32).to_be_bytes());
        blob[LENGTH_BYTES..LENGTH_BYTES + known.len()].copy_from_slice(&known);
        // SAFETY: the caller's promise.
        unsafe { pointer::copy_out(&blob, info.cast(), "info") }
    })
}

/// Connects to the peer whose info this is. Both ends call it, once; receives may
/// be posted before. May be called from any thread.
///
/// # Safety
/// The queue pair's context was not destroyed; remote_qp_info points to as many
/// bytes as sdr_qp_info_size_get() says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_connect(qp: *mut sdr_qp, remote_qp_info: *mut c_void) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let qp = unsafe { pointer::object(qp, "qp") }?;
        let blob = remote_qp_info.cast_const().cast();
        // SAFETY: the caller's promise.
        let blob = unsafe { pointer::copy_in(blob, BLOB_BYTES, "remote_qp_info") }?;
        let (length, known) = blob.split_at(LENGTH_BYTES);
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let known = known.get(..length).ok_or_else(|| {
            Failure::usage("remote_qp_info is no info of a queue pair of this library")
        })?;
        let live = qp.live()?;
        live.queue_pair.connect(known).map_err(|error| Failure::usage(error.to_string()))?;
        live.is_connected.store(true, Ordering::Release);
        drop(live);
        // Has the first question to the peer leave at once.
        qp.driver.push();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_post_is_asked_again_after_a_while_and_at_once_after_a_completion() {
        let full = Full::default();
        assert!(!full.skips());
        full.on_refused();
        assert_eq!((0..100).take_while(|_| full.skips()).count(), Full::SKIP as usize);
        full.on_refused();
        assert!(full.skips());
        full.on_completed();
        assert!(!full.skips());
    }
}
