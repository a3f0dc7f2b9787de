//! Operations that complete into a queue.

use super::completion_queue::{Queue, lacuna_completion_queue, queue_failure};
use super::connection::{lacuna_connection, optional, post_receive_failure, write_failure};
use super::ended::{lacuna_receive_options, options_of};
use super::one_sided::read_failure;
use super::posted::{Operation, Source};
use super::region::lacuna_region;
use crate::memory::Lending;
use crate::outcome::{self, Failure, code};
use crate::pointer;
use lacuna::{PostSendError, QueueError, QueuedRead, QueuedSend, SendBuffer, SendError, Target};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// How lacuna_queue_send(), lacuna_queue_remote_write() and the calls of datagram queue
/// pairs post: a sum of these.
#[repr(C)]
pub enum lacuna_queued {
    /// Success is not told, only failure: for all but every n-th of many short ones. The
    /// bytes are copied, and the program's again when the call returns. It takes an entry
    /// of the queue until it has ended.
    LACUNA_QUEUED_SILENT = 1,
    /// Of datagrams only: the completion at the peer counts for those who wait with
    /// LACUNA_ARM_SOLICITED.
    LACUNA_QUEUED_SOLICITED = 2,
}

pub(super) const SILENT: u32 = lacuna_queued::LACUNA_QUEUED_SILENT as u32;
pub(super) const SOLICITED: u32 = lacuna_queued::LACUNA_QUEUED_SOLICITED as u32;

/// The queue that a connection, or a class of it, completes into.
pub(super) struct Attached {
    queue: Arc<Queue>,
    source: Arc<Source>,
}

impl Attached {
    fn new(queue: &Arc<Queue>) -> Self {
        Self { queue: queue.clone(), source: Arc::default() }
    }

    /// Gives back the memory of all that was posted. The queue pair has gone.
    pub(super) fn settle(&self) {
        self.queue.settle(&self.source);
    }

    /// Has `post` post an operation under its place in the queue's table.
    fn post<E>(
        &self,
        operation: Operation,
        post: impl FnOnce(u64) -> Result<(), QueueError<E>>,
        failure: impl FnOnce(&E) -> Failure,
    ) -> Result<(), Failure> {
        let place = self.queue.posted.add(operation);
        post(place).map_err(|error| {
            drop(self.queue.posted.take(place));
            self::failure(&error, failure)
        })
    }
}

fn failure<E>(error: &QueueError<E>, of_post: impl FnOnce(&E) -> Failure) -> Failure {
    match error {
        QueueError::Full(full) => Failure::new(outcome::RETRY, full.to_string()),
        QueueError::NoQueue => no_queue(),
        QueueError::Post(error) => of_post(error),
    }
}

fn for_no_class(connection: &lacuna_connection) -> Result<(), Failure> {
    match connection.is_class() {
        true => Err(Failure::usage("a class has no regions: call it for the class's connection")),
        false => Ok(()),
    }
}

fn no_queue() -> Failure {
    Failure::usage("the connection has no completion queue: call lacuna_complete_to() first")
}

impl lacuna_connection {
    fn attached(&self) -> Result<&Attached, Failure> {
        self.completes_to.get().ok_or_else(no_queue)
    }

    /// Posts a send or a write with `post`.
    ///
    /// # Safety
    /// As for [`lacuna_queue_send`].
    unsafe fn queue(
        &self,
        data: *const c_void,
        length: usize,
        options: QueuedSend,
        flags: u32,
        post: impl FnOnce(SendBuffer, QueuedSend) -> Result<(), QueueError<PostSendError>>,
    ) -> Result<(), Failure> {
        let attached = self.attached()?;
        if flags & !SILENT != 0 {
            return Err(Failure::usage(format!(
                "flags {flags:#x}: must be 0 or LACUNA_QUEUED_SILENT"
            )));
        }
        let start = pointer::start(data.cast_mut().cast::<u8>(), length, "data")?;
        let post_failure = |error: &PostSendError| write_failure(&SendError::Post(*error));
        if flags & SILENT != 0 {
            // SAFETY: the caller's promise.
            let copy = unsafe { pointer::copy_in(start, length, "data") }?;
            let options = QueuedSend { is_silent: true, ..options };
            let posted = post(copy.into(), options);
            return posted.map_err(|error| failure(&error, post_failure));
        }
        let lending = Lending::new(&Arc::default());
        // SAFETY: unchanged by the caller's promise until the completion was polled, or the
        // connection was freed, both of which see the lending over.
        let lent = unsafe { lending.lend(start, length, None) };
        let context = self.queue_pair().context();
        let operation = Operation::send(&attached.source, options.user_data, lending, context);
        let post = |place| post(lent, QueuedSend { user_data: place, ..options });
        attached.post(operation, post, post_failure)
    }
}

fn options_for(immediate: Option<u32>, deadline_ms: u64, user_data: u64) -> QueuedSend {
    let deadline = Some(Duration::from_millis(deadline_ms));
    QueuedSend { immediate, deadline, user_data, ..QueuedSend::default() }
}

/// Has what is posted to a connection with lacuna_queue_send(), lacuna_queue_receive(),
/// lacuna_queue_remote_write() and lacuna_queue_remote_read() complete into a queue of its
/// context. Once for each connection and class, before the first of them. Receives and
/// sends with handles are not affected. May be called from any thread.
///
/// # Safety
/// connection and queue were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_complete_to(
    connection: *mut lacuna_connection,
    queue: *mut lacuna_completion_queue,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let queue = unsafe { pointer::object(queue, "queue") }?.queue();
        let told = match connection.is_class() {
            true => connection.queue_pair().complete_to(&queue.transport),
            false => connection.connection.complete_to(&queue.transport),
        };
        told.map_err(|error| queue_failure(&error))?;
        // The first, as the transport has said.
        let _ = connection.completes_to.set(Attached::new(queue));
        Ok(())
    })
}

/// Starts a write, as lacuna_send_start(), that completes into the connection's queue;
/// user_data comes back with the completion. flags is a sum of enum lacuna_queued. The bytes
/// must not change until the completion was polled, or lacuna_connection_free() has
/// returned. LACUNA_RETRY when too many writes wait or the queue has no free entry. May be
/// called from any thread.
///
/// # Safety
/// connection was not freed; data points to length bytes that nobody changes until then;
/// immediate is NULL or points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_queue_send(
    connection: *mut lacuna_connection,
    data: *const c_void,
    length: usize,
    immediate: *const u32,
    deadline_ms: u64,
    flags: u32,
    user_data: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let options = options_for(unsafe { optional(immediate) }?, deadline_ms, user_data);
        let post = |data, options| connection.queue_pair().queue_send(data, options);
        // SAFETY: the caller's promise.
        unsafe { connection.queue(data, length, options, flags, post) }
    })
}

/// Posts a receive, as lacuna_receive_post_with(), that completes into the connection's
/// queue when it is over; user_data comes back with the completion, which has what came. The
/// buffer is the library's until the completion was polled, or lacuna_connection_free() has
/// returned. LACUNA_RETRY when too many are posted or the queue has no free entry. May be
/// called from any thread.
///
/// # Safety
/// connection was not freed; the buffer is the library's until then; options is NULL or
/// points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_queue_receive(
    connection: *mut lacuna_connection,
    buffer: *mut c_void,
    capacity: usize,
    options: *const lacuna_receive_options,
    user_data: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options_of(options) }?;
        let attached = connection.attached()?;
        let buffer = pointer::start(buffer.cast::<u8>(), capacity, "buffer")?;
        let queue_pair = connection.queue_pair();
        let operation = Operation::receive(&attached.source, user_data);
        // SAFETY: the buffer is the library's by the caller's promise until the completion was
        // polled, which takes it, or the connection was freed, which takes those that are left.
        let post = |place| unsafe { queue_pair.queue_recv_raw(buffer, capacity, options, place) };
        attached.post(operation, post, post_receive_failure)
    })
}

/// Starts a write to a region of the peer, as lacuna_remote_write_start(), that completes
/// into the connection's queue. flags, user_data and the rest as lacuna_queue_send().
/// LACUNA_USAGE for a class.
///
/// # Safety
/// As for lacuna_queue_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_queue_remote_write(
    connection: *mut lacuna_connection,
    key: u32,
    address: u64,
    data: *const c_void,
    length: usize,
    immediate: *const u32,
    deadline_ms: u64,
    flags: u32,
    user_data: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let options = options_for(unsafe { optional(immediate) }?, deadline_ms, user_data);
        for_no_class(connection)?;
        let to = Target { key, address };
        let post = |data, options| connection.connection.queue_write_to(to, data, options);
        // SAFETY: the caller's promise.
        unsafe { connection.queue(data, length, options, flags, post) }
    })
}

/// Starts a read of a region of the peer, as lacuna_remote_read(), that completes into the
/// connection's queue, which says how many bytes came; user_data comes back with it. Nothing
/// lands in region once it is freed: then the read fails. LACUNA_RETRY when too many reads
/// are under way or the queue has no free entry, LACUNA_USAGE for a class. May be called
/// from any thread.
///
/// # Safety
/// connection was not freed, nor is region during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_queue_remote_read(
    connection: *mut lacuna_connection,
    key: u32,
    address: u64,
    length: u64,
    region: *mut lacuna_region,
    offset: u64,
    deadline_ms: u64,
    user_data: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let region = unsafe { pointer::object(region, "region") }?;
        for_no_class(connection)?;
        let attached = connection.attached()?;
        let (range, into) = (region.range(offset, length)?, region.region());
        let from = Target { key, address };
        let deadline = Some(Duration::from_millis(deadline_ms));
        let operation = Operation::receive(&attached.source, user_data);
        let post = |user_data| {
            let (len, offset) = (length, range.start);
            let read = QueuedRead { from, len, into, offset, deadline, user_data };
            connection.connection.queue_read(read)
        };
        attached.post(operation, post, read_failure)
    })
}

/// Has messages with an immediate that the peer writes to regions here complete into the
/// connection's queue, instead of lacuna_wait_written(); user_data comes back with each.
/// Such a message takes an entry of the queue before its first byte is placed: while none
/// is free, the peer's writes wait. Once for each connection, behind lacuna_complete_to().
/// LACUNA_USAGE for a class. May be called from any thread.
///
/// # Safety
/// connection was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_queue_written(
    connection: *mut lacuna_connection,
    user_data: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        for_no_class(connection)?;
        connection.connection.queue_written(user_data).map_err(|error| queue_failure(&error))
    })
}
