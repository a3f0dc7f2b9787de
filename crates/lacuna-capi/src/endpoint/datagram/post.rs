//! Posting to datagram queue pairs.
//!
//! Memory is the library's until the completion was polled, as for connections that complete into a queue. What has no
//! completion, and what goes to a group, which may ask for it again later, is copied.

use super::done::failure_of;
use super::lacuna_datagram;
use crate::endpoint::posted::Operation;
use crate::endpoint::queued::{SILENT, SOLICITED};
use crate::endpoint::slices::{List, lacuna_slice};
use crate::memory::Lending;
use crate::outcome::{self, Failure, code};
use crate::pointer;
use lacuna::SendBuffer;
use lacuna::datagram::{PeerId, PostError, RecvWork, SendWork, Target, Verb, WorkError};
use std::ffi::c_int;
use std::sync::Arc;

/// What all work requests have.
struct Request {
    peer: u64,
    deadline_ms: u64,
    flags: u32,
    user_data: u64,
}

fn post_failure(error: &PostError) -> Failure {
    match error {
        PostError::Full(full) => Failure::new(outcome::RETRY, full.to_string()),
        PostError::Work(WorkError::Failed(failure)) => Failure::new(
            outcome::PEER,
            format!("the peer is in error: {}", failure_of(failure).into_text()),
        ),
        PostError::Work(error @ WorkError::Streams { .. }) => {
            Failure::new(outcome::RETRY, error.to_string())
        }
        PostError::Work(error) => Failure::usage(error.to_string()),
    }
}

impl Request {
    fn work(&self, datagram: &lacuna_datagram, id: u64, verb: Verb) -> Result<SendWork, Failure> {
        let Self { flags, .. } = *self;
        if flags & !(SILENT | SOLICITED) != 0 {
            return Err(Failure::usage(format!(
                "flags {flags:#x}: must be a sum of enum lacuna_queued"
            )));
        }
        let deadline_ns = (self.deadline_ms > 0).then(|| {
            let after_ns = self.deadline_ms.saturating_mul(1_000_000);
            datagram.queue_pair.now_ns().saturating_add(after_ns)
        });
        Ok(SendWork {
            is_signaled: flags & SILENT == 0,
            is_solicited: flags & SOLICITED != 0,
            deadline_ns,
            ..SendWork::new(id, PeerId::of_number(self.peer), verb)
        })
    }

    /// Posts bytes that are read.
    ///
    /// # Safety
    /// As for [`lacuna_datagram_send`].
    unsafe fn write(
        &self,
        datagram: *mut lacuna_datagram,
        slices: *const lacuna_slice,
        count: usize,
        verb: impl FnOnce(SendBuffer) -> Verb,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let list = unsafe { List::given(slices, count) }?;
        if self.flags & SILENT != 0 {
            // SAFETY: the caller's promise, for the length of the call.
            let work = self.work(datagram, self.user_data, verb(unsafe { list.copied() }?))?;
            return datagram.queue_pair.post_send(work).map_err(|error| post_failure(&error));
        }
        let lending = Lending::new(&Arc::default());
        let data = if datagram.queue_pair.is_group(PeerId::of_number(self.peer)) {
            // SAFETY: the caller's promise.
            unsafe { list.copied() }?
        } else {
            // SAFETY: unchanged by the caller's promise until the completion was polled, which sees the lending
            // over, or the queue pair was freed, which is the last that holds what was lent.
            unsafe { list.lent(&lending) }
        };
        let context = datagram.queue_pair.context();
        let operation = Operation::send(&datagram.source, self.user_data, lending, context);
        datagram.post(operation, |place| {
            let work = self.work(datagram, place, verb(data))?;
            datagram.queue_pair.post_send(work).map_err(|error| post_failure(&error))
        })
    }
}

impl lacuna_datagram {
    /// Has `post` post an operation under its place in the table.
    fn post(
        &self,
        operation: Operation,
        post: impl FnOnce(u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let place = self.posted().add(operation);
        post(place).inspect_err(|_| drop(self.posted().take(place)))
    }
}

/// Posts a message for the next receive of a peer: count parts of memory, one after the
/// other. It completes when its packets were handed to the network, and of a reliable queue
/// pair when the peer has all of it; user_data comes back with the completion. After
/// deadline_ms, unless that is 0, it is given up. flags is a sum of enum lacuna_queued. The
/// bytes must not change until the completion was polled, or lacuna_datagram_free() has
/// returned, but what is silent or goes to a group is copied, and the program's again when
/// the call returns; slices itself is read during the call alone. Messages to one peer are
/// sent in order. LACUNA_RETRY when the completion queue has no free entry, LACUNA_PEER
/// when the peer is in error. A message that finds no receive is lost, which
/// lacuna_datagram_poll_error() tells both ends; of a reliable queue pair it waits for one.
/// May be called from any thread.
///
/// # Safety
/// datagram was not freed; slices points to count structs, whose memory can be read and is
/// not changed until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_send(
    datagram: *mut lacuna_datagram,
    peer: u64,
    slices: *const lacuna_slice,
    count: usize,
    deadline_ms: u64,
    flags: u32,
    user_data: u64,
) -> c_int {
    let request = Request { peer, deadline_ms, flags, user_data };
    // SAFETY: the caller's promise.
    code(|| unsafe { request.write(datagram, slices, count, |data| Verb::Send { data }) })
}

/// Posts a Write-Record: bytes for memory of a peer, offset bytes behind the start of key's
/// range. The peer has posted nothing for it, and its queue pair tells of it by
/// LACUNA_OPERATION_WRITTEN: what came of it, with the map of what did not. Nothing more is
/// told here. The rest as lacuna_datagram_send().
///
/// # Safety
/// As for lacuna_datagram_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_write_record(
    datagram: *mut lacuna_datagram,
    peer: u64,
    key: u32,
    offset: u64,
    slices: *const lacuna_slice,
    count: usize,
    deadline_ms: u64,
    flags: u32,
    user_data: u64,
) -> c_int {
    let request = Request { peer, deadline_ms, flags, user_data };
    let to = Target { key, offset };
    let verb = |data| Verb::WriteRecord { data, to };
    // SAFETY: the caller's promise.
    code(|| unsafe { request.write(datagram, slices, count, verb) })
}

/// As lacuna_datagram_write_record(), for memory that has a name at the peer, or at each of
/// a group: lacuna_datagram_name_region().
///
/// # Safety
/// As for lacuna_datagram_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_write_named(
    datagram: *mut lacuna_datagram,
    peer: u64,
    name: u32,
    offset: u64,
    slices: *const lacuna_slice,
    count: usize,
    deadline_ms: u64,
    flags: u32,
    user_data: u64,
) -> c_int {
    let request = Request { peer, deadline_ms, flags, user_data };
    let verb = |data| Verb::WriteNamed { data, name, offset };
    // SAFETY: the caller's promise.
    code(|| unsafe { request.write(datagram, slices, count, verb) })
}

/// Posts a READ: as many bytes of a peer's memory as the slices have, from offset bytes
/// behind the start of key's range on, go into them. It completes when all are there, by
/// its deadline, or when the peer refuses; a READ has a completion whatever flags has. It
/// should have a deadline, unless the queue pair is reliable: its question or its answer
/// may be lost, and a key that the peer does not know gets no answer. The memory is the
/// library's until the completion was polled, or lacuna_datagram_free() has returned;
/// slices itself is read during the call alone. The rest as lacuna_datagram_send().
///
/// # Safety
/// datagram was not freed; slices points to count structs, whose memory is there and the
/// library's until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_read(
    datagram: *mut lacuna_datagram,
    peer: u64,
    key: u32,
    offset: u64,
    slices: *const lacuna_slice,
    count: usize,
    deadline_ms: u64,
    flags: u32,
    user_data: u64,
) -> c_int {
    let request = Request { peer, deadline_ms, flags, user_data };
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let list = unsafe { List::given(slices, count) }?;
        let from = Target { key, offset };
        // SAFETY: the library's by the caller's promise until the READ has completed, and was polled.
        let verb = Verb::Read { into: unsafe { list.into_slices() }?, from };
        let operation = Operation::receive(&datagram.source, request.user_data);
        datagram.post(operation, |place| {
            let work = SendWork { is_signaled: true, ..request.work(datagram, place, verb)? };
            datagram.queue_pair.post_send(work).map_err(|error| post_failure(&error))
        })
    })
}

/// Posts a receive, for a message of anybody that lacuna_datagram_send() has posted: its
/// bytes go into the slices, one after the other. Receives are taken in order, each by one
/// message, which may be shorter. user_data comes back with the completion, which has the
/// source. The memory is the library's until the completion was polled, or
/// lacuna_datagram_free() has returned; slices itself is read during the call alone.
/// LACUNA_RETRY when the completion queue has no free entry. May be called from any thread.
///
/// # Safety
/// As for lacuna_datagram_read().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_receive(
    datagram: *mut lacuna_datagram,
    slices: *const lacuna_slice,
    count: usize,
    user_data: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let list = unsafe { List::given(slices, count) }?;
        // SAFETY: the library's by the caller's promise until the receive has completed, and was polled.
        let into = unsafe { list.into_slices() }?;
        let operation = Operation::receive(&datagram.source, user_data);
        datagram.post(operation, |id| {
            let posted = datagram.queue_pair.post_recv(RecvWork { id, into });
            posted.map_err(|error| post_failure(&error))
        })
    })
}
