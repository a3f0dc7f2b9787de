//! Completion queues: one place to poll, or to wait, for the operations of many connections.
//!
//! A queue is shared by the program's object and the connections that complete into it, so it may be freed
//! before them.
//!
//! Invariant: once `lacuna_connection_free` has returned, nothing touches the memory of what was posted to
//! the connection. But a completion that nobody has polled holds its receive, whose buffer late packets may
//! still come into, and the last packets of a send may still be read. So who frees a connection takes the
//! completions out of the transport's queue, and the next polls tell of them.

use super::completion::{Told, lacuna_completion};
use super::context::{context_failure, lacuna_context};
use super::posted::{Posted, Source};
use crate::outcome::{Failure, code};
use crate::pointer::{self, Out, Outs};
use lacuna::datapath::Process;
use lacuna::{Arm, CompletionQueue, CompletionQueueError, PollError};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// Completions of many connections.
pub struct lacuna_completion_queue {
    process: Process,
    queue: Arc<Queue>,
}

impl pointer::Object for lacuna_completion_queue {
    fn process(&self) -> Process {
        self.process
    }
}

impl lacuna_completion_queue {
    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

/// What a queue's object and its connections share.
pub(super) struct Queue {
    pub(super) transport: CompletionQueue,
    pub(super) posted: Posted,
    /// Completions that were taken out of the transport's queue and not polled. Polls hold the lock shared
    /// while they sleep and until they have given memory back; none sleeps while there are some.
    early: RwLock<VecDeque<Told>>,
}

impl Queue {
    fn read(&self) -> RwLockReadGuard<'_, VecDeque<Told>> {
        self.early.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, VecDeque<Told>> {
        self.early.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to `max` completions; none if none comes within `timeout`.
    fn poll(&self, max: usize, timeout: Duration) -> Result<Vec<Told>, Failure> {
        loop {
            let early = self.read();
            if early.is_empty() {
                let mut found = Vec::new();
                let polled = self.transport.poll(&mut found, max, timeout);
                polled.map_err(|error| poll_failure(&error))?;
                return Ok(found.into_iter().map(|found| Told::of(found, &self.posted)).collect());
            }
            drop(early);
            let mut early = self.write();
            let count = max.min(early.len());
            // Another thread may have been faster.
            if count > 0 || max == 0 {
                return Ok(early.drain(..count).collect());
            }
        }
    }

    /// Has the descriptor tell of the next completion; whether some can be polled now.
    fn arm(&self, arm: Arm) -> Result<bool, Failure> {
        // Under the lock: what is on its way from one queue to the other is in neither.
        let early = self.read();
        let has_any = self.transport.arm(arm).map_err(|error| poll_failure(&error))?;
        Ok(has_any || !early.is_empty())
    }

    /// Gives back the memory of all that was posted to a queue pair which has gone.
    pub(super) fn settle(&self, source: &Source) {
        while source.holds_memory() {
            // Not `write`, which a poll that sleeps could hold up: what is in the transport's queue wakes it,
            // and else other polls are giving back what is left.
            match self.early.try_write() {
                Ok(early) => return self.take_all(early),
                Err(TryLockError::Poisoned(early)) => return self.take_all(early.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    /// Takes all completions out of the transport's queue.
    fn take_all(&self, mut early: RwLockWriteGuard<'_, VecDeque<Told>>) {
        let mut found = Vec::new();
        while self.transport.try_poll(&mut found, self.transport.capacity()).is_ok_and(|n| n > 0) {}
        early.extend(found.into_iter().map(|found| Told::of(found, &self.posted)));
    }
}

fn poll_failure(error: &PollError) -> Failure {
    Failure::usage(error.to_string())
}

pub(super) fn queue_failure(error: &CompletionQueueError) -> Failure {
    match error {
        CompletionQueueError::Context(error) => context_failure(error),
        CompletionQueueError::Set
        | CompletionQueueError::Unset
        | CompletionQueueError::NoRegions
        | CompletionQueueError::Entries(_) => Failure::usage(error.to_string()),
    }
}

/// Which completions lacuna_completion_queue_arm() waits for.
#[repr(C)]
pub enum lacuna_arm {
    /// All.
    LACUNA_ARM_ANY = 0,
    /// Receives of messages with an immediate, datagrams that were posted with
    /// LACUNA_QUEUED_SOLICITED, and all that failed or ended with gaps.
    LACUNA_ARM_SOLICITED = 1,
}

const ANY: u32 = lacuna_arm::LACUNA_ARM_ANY as u32;
const SOLICITED: u32 = lacuna_arm::LACUNA_ARM_SOLICITED as u32;

/// Makes a completion queue of a context. Each operation takes one of its entries from its
/// posting until its completion was polled. The queue does not keep the context: when that
/// and its connections were freed, what is queued can still be polled; then
/// lacuna_completion_queue_poll() answers with LACUNA_USAGE. May be called from any thread.
///
/// # Safety
/// context was not freed; queue points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_completion_queue_new(
    context: *mut lacuna_context,
    entries: u32,
    queue: *mut *mut lacuna_completion_queue,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { pointer::object(context, "context") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(queue, "queue") }?;
        let made = context.context().completion_queue(entries);
        let transport = made.map_err(|error| queue_failure(&error))?;
        let queue =
            Arc::new(Queue { transport, posted: Posted::default(), early: RwLock::default() });
        let made = lacuna_completion_queue { process: Process::current(), queue };
        out.set(Box::into_raw(Box::new(made)));
        Ok(())
    })
}

/// Takes up to capacity completions, the oldest first, waiting for the first at most
/// timeout_ms; with 0 it only looks. count gets how many: 0 if none came in time, which is
/// LACUNA_OK. The memory of what has completed is the program's again. If some have failed,
/// lacuna_last_error() has the text of the last of those. With progress = manual it makes
/// progress. May be called from several threads: each completion is taken once.
///
/// # Safety
/// queue was not freed; completions points to capacity structs; count points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_completion_queue_poll(
    queue: *mut lacuna_completion_queue,
    completions: *mut lacuna_completion,
    capacity: usize,
    timeout_ms: u64,
    count: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let queue = unsafe { pointer::object(queue, "queue") }?;
        // SAFETY: the caller's promise.
        let outs = unsafe { Outs::new(completions, capacity, "completions") }?;
        // SAFETY: the caller's promise.
        let count = unsafe { Out::new(count, "count") }?;
        let told = queue.queue.poll(capacity, Duration::from_millis(timeout_ms))?;
        count.set(told.len());
        for (index, told) in told.into_iter().enumerate() {
            outs.set(index, told.into_c());
        }
        Ok(())
    })
}

/// A file descriptor for poll(), epoll and event loops. It is readable once a completion
/// has come that lacuna_completion_queue_arm() asked for, and stays so until that is called
/// again. It is the queue's, which closes it; reading it or writing to it is of no use.
/// With progress = manual nobody but the program's calls makes progress, so nothing comes
/// while it waits. LACUNA_USAGE where the system has no such descriptors. May be called
/// from any thread.
///
/// # Safety
/// queue was not freed; descriptor points to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_completion_queue_descriptor(
    queue: *mut lacuna_completion_queue,
    descriptor: *mut c_int,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let queue = unsafe { pointer::object(queue, "queue") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(descriptor, "descriptor") }?;
        out.set(descriptor_of(&queue.queue.transport)?);
        Ok(())
    })
}

#[cfg(unix)]
fn descriptor_of(queue: &CompletionQueue) -> Result<c_int, Failure> {
    use std::os::fd::AsRawFd;
    Ok(queue.as_raw_fd())
}

#[cfg(not(unix))]
fn descriptor_of(_: &CompletionQueue) -> Result<c_int, Failure> {
    Err(Failure::usage("this system has no file descriptors to wait for"))
}

/// Has the next completion make the descriptor readable, once; kind is one of enum
/// lacuna_arm. As ibv_req_notify_cq(): completions that are queued already do not count, so
/// poll until nothing is left after arming, then wait. has_any says whether there are some,
/// and may be NULL. When the context was freed the descriptor stays readable. May be called
/// from any thread.
///
/// # Safety
/// queue was not freed; has_any is NULL or points to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_completion_queue_arm(
    queue: *mut lacuna_completion_queue,
    kind: u32,
    has_any: *mut c_int,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let queue = unsafe { pointer::object(queue, "queue") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(has_any, "has_any") }?;
        let arm = match kind {
            ANY => Arm::Any,
            SOLICITED => Arm::Solicited,
            _ => {
                return Err(Failure::usage(format!("kind {kind}: must be one of enum lacuna_arm")));
            }
        };
        let any = queue.queue.arm(arm)?;
        if let Some(out) = out {
            out.set(c_int::from(any));
        }
        Ok(())
    })
}

/// Frees a completion queue, with the completions in it. NULL is allowed. Connections that
/// complete into it go on: what was posted to them is done and nobody is told, and its
/// memory is the program's again when they were freed. Must be the last call with the
/// queue. In a child process that has inherited it, see lacuna_context_free().
///
/// # Safety
/// If not NULL, queue was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_completion_queue_free(queue: *mut lacuna_completion_queue) {
    let _ = code(|| {
        // SAFETY: the caller's promise.
        if !queue.is_null() && unsafe { pointer::to_free(queue, "queue") }?.is_some() {
            // SAFETY: made by `lacuna_completion_queue_new`, and this is the last call with it.
            drop(unsafe { Box::from_raw(queue) });
        }
        Ok(())
    });
}
