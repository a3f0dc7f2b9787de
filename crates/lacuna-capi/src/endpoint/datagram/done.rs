//! What the completion of a datagram says, in the words of `lacuna_completion`.

use crate::endpoint::address::lacuna_address;
use crate::endpoint::completion::lacuna_operation;
use crate::endpoint::ended::{lacuna_ended, lacuna_reason};
use crate::endpoint::map::lacuna_map;
use crate::outcome::{self, Failure};
use lacuna::Target;
use lacuna::datagram::{self, Arrived, Done, Ended, Operation, PeerId};

/// Fields that only datagrams have.
#[derive(Default)]
pub(in crate::endpoint) struct Came {
    pub(in crate::endpoint) peer: u64,
    pub(in crate::endpoint) source: lacuna_address,
    pub(in crate::endpoint) number: u32,
    pub(in crate::endpoint) missed: u32,
    pub(in crate::endpoint) queue_pair: u32,
    pub(in crate::endpoint) is_solicited: bool,
}

/// All that a completion of a datagram tells beside what it was posted with.
pub(in crate::endpoint) struct Told {
    pub(in crate::endpoint) failure: Option<Failure>,
    pub(in crate::endpoint) ended: lacuna_ended,
    pub(in crate::endpoint) map: Option<Box<lacuna_map>>,
    pub(in crate::endpoint) place: Target,
    pub(in crate::endpoint) came: Came,
}

impl Told {
    pub(in crate::endpoint) fn of(queue_pair: u32, done: Done) -> Self {
        let Done { operation, peer, status, bytes, arrived, .. } = done;
        let failure = status.err().map(|failure| failure_of(&failure));
        let came = Came { peer: peer.number(), queue_pair, ..Came::default() };
        let place = Target { key: 0, address: 0 };
        let Some(arrived) = arrived else {
            let is_receive = operation == Operation::Receive;
            let reason = lacuna_reason::LACUNA_REASON_FAILED as u32;
            let reason = if is_receive && failure.is_some() { reason } else { 0 };
            let ended = lacuna_ended { bytes, reason, ..lacuna_ended::default() };
            return Self { failure, ended, map: None, place, came };
        };
        Self::of_arrived(came, place, failure, *arrived)
    }

    fn of_arrived(came: Came, place: Target, failure: Option<Failure>, arrived: Arrived) -> Self {
        let Arrived { source, number, length, map, place: at, ended, missed, is_solicited } =
            arrived;
        let length_bytes = u64::from(length);
        let bytes = map.bytes(length);
        let is_complete = bytes == length_bytes;
        let missing = (!is_complete)
            .then(|| lacuna_map::of_ranges(map.ranges(length).collect(), length_bytes));
        let failure = failure.or_else(|| {
            let text = || format!("{bytes} of {length} bytes came: {}", why(ended));
            (!is_complete).then(|| Failure::new(outcome::PEER, text()))
        });
        let ended = lacuna_ended {
            length: length_bytes,
            bytes,
            reason: reason_of(ended) as u32,
            has_length: 1,
            is_complete: u8::from(is_complete),
            ..lacuna_ended::default()
        };
        let source = lacuna_address::of(source);
        Self {
            failure,
            ended,
            map: missing,
            place: at.map_or(place, |at| Target { key: at.key, address: at.offset }),
            came: Came { source, number, missed, is_solicited, ..came },
        }
    }
}

pub(in crate::endpoint) fn operation_of(operation: Operation) -> lacuna_operation {
    match operation {
        Operation::Send => lacuna_operation::LACUNA_OPERATION_SEND,
        Operation::WriteRecord => lacuna_operation::LACUNA_OPERATION_REMOTE_WRITE,
        Operation::Read => lacuna_operation::LACUNA_OPERATION_REMOTE_READ,
        Operation::Receive => lacuna_operation::LACUNA_OPERATION_RECEIVE,
        Operation::Record => lacuna_operation::LACUNA_OPERATION_WRITTEN,
    }
}

fn reason_of(ended: Ended) -> lacuna_reason {
    match ended {
        Ended::Whole => lacuna_reason::LACUNA_REASON_WHOLE,
        Ended::Accounted => lacuna_reason::LACUNA_REASON_ACCOUNTED,
        Ended::Silence => lacuna_reason::LACUNA_REASON_SILENCE,
        Ended::Evicted => lacuna_reason::LACUNA_REASON_EVICTED,
        Ended::Cancelled => lacuna_reason::LACUNA_REASON_CANCELLED,
    }
}

fn why(ended: Ended) -> &'static str {
    match ended {
        Ended::Whole => "the message is whole",
        Ended::Accounted => "the source has sent all of it",
        Ended::Silence => "nothing more has come for long",
        Ended::Evicted => "too many messages were open",
        Ended::Cancelled => "the source has given it up",
    }
}

pub(super) fn failure_of(failure: &datagram::Failure) -> Failure {
    let code = match failure {
        datagram::Failure::Deadline => outcome::DEADLINE,
        datagram::Failure::Flushed
        | datagram::Failure::Lost
        | datagram::Failure::Unreachable
        | datagram::Failure::Restarted
        | datagram::Failure::Peer(_) => outcome::PEER,
    };
    Failure::new(code, failure.to_string())
}

/// The peer of what has none.
pub(super) const NOBODY: u64 = PeerId::NOBODY.number();
const _: () = assert!(NOBODY == u64::MAX, "as the header says");
