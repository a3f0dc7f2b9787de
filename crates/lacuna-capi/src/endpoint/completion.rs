//! Operations that have ended, as a queue tells of them.

use super::address::lacuna_address;
use super::connection::write_failure;
use super::datagram::done::{self, Came};
use super::ended::{self, lacuna_ended};
use super::map::lacuna_map;
use super::one_sided::{lacuna_written, read_failure};
use super::posted::Posted;
use crate::outcome::{self, Failure};
use lacuna::{Completion, Outcome, SendError, Target, datagram};

/// What has ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum lacuna_operation {
    /// Something that this header does not know.
    LACUNA_OPERATION_OTHER = 0,
    /// A write of lacuna_queue_send(), or a message of lacuna_datagram_send().
    LACUNA_OPERATION_SEND = 1,
    /// A write to a region of the peer, of lacuna_queue_remote_write(),
    /// lacuna_datagram_write_record() or lacuna_datagram_write_named().
    LACUNA_OPERATION_REMOTE_WRITE = 2,
    /// A receive of lacuna_queue_receive() or lacuna_datagram_receive().
    LACUNA_OPERATION_RECEIVE = 3,
    /// A read of a region of the peer, of lacuna_queue_remote_read() or
    /// lacuna_datagram_read().
    LACUNA_OPERATION_REMOTE_READ = 4,
    /// The peer has written a message with an immediate to a region here, as
    /// lacuna_queue_written() asked to be told; or a Write-Record came to a datagram queue
    /// pair.
    LACUNA_OPERATION_WRITTEN = 5,
}

/// An operation that has ended.
#[repr(C)]
pub struct lacuna_completion {
    /// What the operation was posted with; 0 of a Write-Record that came.
    pub user_data: u64,
    /// Of a receive and of a written message: what came, to be freed with
    /// lacuna_map_free(). NULL if all did.
    pub map: *mut lacuna_map,
    /// Of a receive and of a written message, without arrivals: what came. Of a read:
    /// bytes.
    pub ended: lacuna_ended,
    /// What has ended: of enum lacuna_operation.
    pub operation: u32,
    /// How: of enum lacuna_result. LACUNA_OK for a write that the peer has (in modes
    /// bounded, best-effort and raw, and of datagrams that are not reliable: that is on the
    /// wire), for a read that was answered, and for a receive or a written message of which
    /// everything came. LACUNA_DEADLINE and LACUNA_PEER for others; ended then has the
    /// reason, and what came is in its place.
    pub result: u32,
    /// Of a written message: the key of the region or window.
    pub key: u32,
    /// Whether it was posted with LACUNA_QUEUED_SILENT: then it has failed.
    pub is_silent: u8,
    /// 0.
    pub reserved: [u8; 3],
    /// Of a written message: where it begins, from the start of the key's range.
    pub address: u64,
    /// Of datagrams: the peer; UINT64_MAX if there is none, as of a receive that was
    /// flushed. It may go once others need its place, unless lacuna_datagram_peer() has
    /// given it out.
    pub peer: u64,
    /// Of what came as datagrams: from where.
    pub source: lacuna_address,
    /// Of what came as datagrams: its number among those of the source.
    pub number: u32,
    /// Of what came as datagrams: messages of the source that are known to be lost whole
    /// since the last completion.
    pub missed: u32,
    /// Of datagrams: the queue pair, as lacuna_datagram_number() has it; else 0.
    pub queue_pair: u32,
    /// Of what came as datagrams: whether it was posted with LACUNA_QUEUED_SOLICITED.
    pub is_solicited: u8,
    /// 0.
    pub unused: [u8; 3],
    /// 0.
    pub more: [u64; 4],
}

/// The same before it is given to the program.
pub(super) struct Told {
    user_data: u64,
    operation: lacuna_operation,
    is_silent: bool,
    failure: Option<Failure>,
    ended: lacuna_ended,
    map: Option<Box<lacuna_map>>,
    place: Target,
    came: Came,
}

impl Told {
    /// Gives the memory of the operation back: the transport does not touch it after this returns.
    pub(super) fn of(completion: Completion, posted: &Posted) -> Self {
        let Completion { user_data, queue_pair, is_silent, outcome, .. } = completion;
        Self::of_parts(user_data, queue_pair, is_silent, outcome, posted)
    }

    fn of_parts(
        user_data: u64,
        queue_pair: u32,
        is_silent: bool,
        outcome: Outcome,
        posted: &Posted,
    ) -> Self {
        // What the program has posted silently has no place: it lends no memory. Nor has what the peer does.
        let has_place = !is_silent
            && match &outcome {
                Outcome::Written(_) => false,
                Outcome::Datagram(done) => done.operation != datagram::Operation::Record,
                _ => true,
            };
        let mut known = if has_place { posted.take(user_data) } else { None };
        if let Some(operation) = &mut known {
            operation.reclaim();
        }
        let user_data = known.as_ref().map_or(user_data, |operation| operation.user_data);
        let operation = operation_of(&outcome);
        let told = |failure, ended, map| {
            let place = Target { key: 0, address: 0 };
            let came = Came::default();
            Self { user_data, operation, is_silent, failure, ended, map, place, came }
        };
        match outcome {
            Outcome::Sent(result) | Outcome::Wrote(result) => {
                let failure = result.err().map(|error| write_failure(&SendError::Failed(error)));
                told(failure, lacuna_ended::default(), None)
            }
            Outcome::Read(result) => {
                let bytes = *result.as_ref().unwrap_or(&0);
                let ended = lacuna_ended { bytes, ..lacuna_ended::default() };
                told(result.err().map(|error| read_failure(&error)), ended, None)
            }
            Outcome::Received(receive) => {
                let (ended, map) = lacuna_ended::of(receive.take());
                told(ended::over(&ended), ended, map)
            }
            Outcome::Written(written) => {
                let place = Target { key: written.key, address: written.address };
                let (ended, map) = lacuna_written::ended(written);
                Self { place, ..told(ended::over(&ended), ended, map) }
            }
            Outcome::Datagram(done) => {
                let done::Told { failure, ended, map, place, came } =
                    done::Told::of(queue_pair, done);
                Self { place, came, ..told(failure, ended, map) }
            }
            _ => told(None, lacuna_ended::default(), None),
        }
    }

    /// A completion of a datagram queue pair's own list.
    pub(super) fn of_datagram(queue_pair: u32, done: datagram::Done, posted: &Posted) -> Self {
        let (user_data, is_silent) = (done.id, !done.is_signaled);
        Self::of_parts(user_data, queue_pair, is_silent, Outcome::Datagram(done), posted)
    }

    /// As C has it; the text of a failure becomes the calling thread's last error.
    pub(super) fn into_c(self) -> lacuna_completion {
        lacuna_completion {
            user_data: self.user_data,
            map: lacuna_map::into_raw(self.map),
            ended: self.ended,
            operation: self.operation as u32,
            result: self.failure.map_or(outcome::OK, outcome::note) as u32,
            key: self.place.key,
            is_silent: u8::from(self.is_silent),
            reserved: [0; 3],
            address: self.place.address,
            peer: self.came.peer,
            source: self.came.source,
            number: self.came.number,
            missed: self.came.missed,
            queue_pair: self.came.queue_pair,
            is_solicited: u8::from(self.came.is_solicited),
            unused: [0; 3],
            more: [0; 4],
        }
    }
}

fn operation_of(outcome: &Outcome) -> lacuna_operation {
    match outcome {
        Outcome::Sent(_) => lacuna_operation::LACUNA_OPERATION_SEND,
        Outcome::Wrote(_) => lacuna_operation::LACUNA_OPERATION_REMOTE_WRITE,
        Outcome::Received(_) => lacuna_operation::LACUNA_OPERATION_RECEIVE,
        Outcome::Read(_) => lacuna_operation::LACUNA_OPERATION_REMOTE_READ,
        Outcome::Written(_) => lacuna_operation::LACUNA_OPERATION_WRITTEN,
        Outcome::Datagram(done) => done::operation_of(done.operation),
        _ => lacuna_operation::LACUNA_OPERATION_OTHER,
    }
}
