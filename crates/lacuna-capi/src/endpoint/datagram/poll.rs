//! A datagram queue pair's own list of completions, its errors, and its counters.

use super::{To, lacuna_datagram};
use crate::endpoint::address::lacuna_address;
use crate::endpoint::completion::{Told, lacuna_completion};
use crate::endpoint::connection::text_out;
use crate::outcome::{Failure, code};
use crate::pointer::{self, Out, Outs};
use lacuna::datagram::{ControlReason, MessageError, Space, Stats};
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// What a message is numbered among.
#[repr(C)]
pub enum lacuna_datagram_space {
    /// Messages of lacuna_datagram_send().
    LACUNA_DATAGRAM_SENDS = 0,
    /// READs, and their answers.
    LACUNA_DATAGRAM_READS = 1,
    /// Write-Records.
    LACUNA_DATAGRAM_RECORDS = 2,
    /// All messages of reliable queue pairs.
    LACUNA_DATAGRAM_RELIABLE = 3,
    /// Messages to a group.
    LACUNA_DATAGRAM_GROUP_SENDS = 4,
    /// Write-Records to a group.
    LACUNA_DATAGRAM_GROUP_RECORDS = 5,
}

const _: () = {
    assert!(lacuna_datagram_space::LACUNA_DATAGRAM_SENDS as u8 == Space::Sends as u8);
    assert!(lacuna_datagram_space::LACUNA_DATAGRAM_READS as u8 == Space::Reads as u8);
    assert!(lacuna_datagram_space::LACUNA_DATAGRAM_RECORDS as u8 == Space::Records as u8);
    assert!(lacuna_datagram_space::LACUNA_DATAGRAM_RELIABLE as u8 == Space::Reliable as u8);
    assert!(lacuna_datagram_space::LACUNA_DATAGRAM_GROUP_SENDS as u8 == Space::GroupSends as u8);
    assert!(
        lacuna_datagram_space::LACUNA_DATAGRAM_GROUP_RECORDS as u8 == Space::GroupRecords as u8
    );
};

/// Why a message was refused. Later versions may have others.
#[repr(C)]
pub enum lacuna_datagram_refusal {
    /// No receive was posted, or it was too short.
    LACUNA_DATAGRAM_NO_BUFFER = 1,
    /// No memory has the key, or it was revoked.
    LACUNA_DATAGRAM_KEY = 2,
    /// The bytes are not all within the memory.
    LACUNA_DATAGRAM_BOUNDS = 3,
    /// The memory may not be used so.
    LACUNA_DATAGRAM_RIGHTS = 4,
    /// The receiver has too many messages open, or no free entry for a completion.
    LACUNA_DATAGRAM_BUSY = 5,
    /// Its sender gave it up.
    LACUNA_DATAGRAM_CANCELLED = 6,
    /// Its time was over.
    LACUNA_DATAGRAM_DEADLINE = 7,
}

const _: () = {
    use lacuna_datagram_refusal as refusal;
    assert!(refusal::LACUNA_DATAGRAM_NO_BUFFER as u8 == ControlReason::NoBuffer.code());
    assert!(refusal::LACUNA_DATAGRAM_KEY as u8 == ControlReason::Key.code());
    assert!(refusal::LACUNA_DATAGRAM_BOUNDS as u8 == ControlReason::Bounds.code());
    assert!(refusal::LACUNA_DATAGRAM_RIGHTS as u8 == ControlReason::Rights.code());
    assert!(refusal::LACUNA_DATAGRAM_BUSY as u8 == ControlReason::Busy.code());
    assert!(refusal::LACUNA_DATAGRAM_CANCELLED as u8 == ControlReason::Cancelled.code());
    assert!(refusal::LACUNA_DATAGRAM_DEADLINE as u8 == ControlReason::Deadline.code());
};

/// Something that went wrong with a message.
#[repr(C)]
pub struct lacuna_datagram_error {
    /// The other end.
    pub peer: lacuna_address,
    /// The message's number among those of its sender.
    pub number: u32,
    /// What it is numbered among: of enum lacuna_datagram_space.
    pub space: u32,
    /// What went wrong: of enum lacuna_datagram_refusal.
    pub reason: u32,
    /// Whether the peer says so, of a message from here; else the message was the peer's.
    pub is_told: u8,
    /// 0.
    pub reserved: [u8; 3],
    /// 0.
    pub more: [u64; 2],
}

impl lacuna_datagram_error {
    fn of(error: MessageError) -> Self {
        Self {
            peer: lacuna_address::of(error.peer),
            number: error.about.number,
            space: error.about.space as u32,
            reason: error.reason.code().into(),
            is_told: u8::from(error.is_told),
            reserved: [0; 3],
            more: [0; 2],
        }
    }
}

/// Takes up to capacity completions of the queue pair's own list, the oldest first, as
/// lacuna_completion_queue_poll() takes those of a queue: with it the memory of what has
/// completed is the program's again. LACUNA_USAGE if the queue pair completes into a queue.
/// Write-Records that come wait in the list, 65536 at most; more are dropped until
/// it was polled. With progress = manual it makes progress, for the whole context. May be
/// called from any thread.
///
/// # Safety
/// datagram was not freed; completions points to capacity structs; count points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_poll(
    datagram: *mut lacuna_datagram,
    completions: *mut lacuna_completion,
    capacity: usize,
    timeout_ms: u64,
    count: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let outs = unsafe { Outs::new(completions, capacity, "completions") }?;
        // SAFETY: the caller's promise.
        let count = unsafe { Out::new(count, "count") }?;
        let To::OwnList(posted) = &datagram.completes_to else {
            return Err(Failure::usage(
                "the queue pair has a completion queue: call lacuna_completion_queue_poll()",
            ));
        };
        let (queue_pair, timeout) = (&datagram.queue_pair, Duration::from_millis(timeout_ms));
        let mut found = Vec::new();
        queue_pair.poll_many(&mut found, capacity, timeout);
        count.set(found.len());
        for (index, done) in found.into_iter().enumerate() {
            outs.set(index, Told::of_datagram(queue_pair.number(), done, posted).into_c());
        }
        Ok(())
    })
}

/// Takes up to capacity errors, the oldest first, waiting for the first at most timeout_ms;
/// with 0 it only looks. They are what the queue pair refused, and what peers said of
/// messages from here. count gets how many: 0 if none came in time, which is LACUNA_OK.
/// Errors end nothing. Some thousand wait at most, and more are counted. May be called from
/// any thread.
///
/// # Safety
/// datagram was not freed; errors points to capacity structs; count points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_poll_error(
    datagram: *mut lacuna_datagram,
    errors: *mut lacuna_datagram_error,
    capacity: usize,
    timeout_ms: u64,
    count: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let outs = unsafe { Outs::new(errors, capacity, "errors") }?;
        // SAFETY: the caller's promise.
        let count = unsafe { Out::new(count, "count") }?;
        let queue_pair = &datagram.queue_pair;
        let mut found = 0;
        let mut next = match capacity {
            0 => None,
            _ if timeout_ms == 0 => {
                queue_pair.progress();
                queue_pair.poll_error()
            }
            _ => queue_pair.wait_error(Duration::from_millis(timeout_ms)),
        };
        while let Some(error) = next {
            outs.set(found, lacuna_datagram_error::of(error));
            found += 1;
            next = if found < capacity { queue_pair.poll_error() } else { None };
        }
        count.set(found);
        Ok(())
    })
}

/// Counters of now as one JSON object: peers, messages, packets, what was missed, dropped
/// and why. The rest as lacuna_stats_json().
///
/// # Safety
/// datagram was not freed; buffer points to capacity bytes; length is NULL or points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_stats_json(
    datagram: *mut lacuna_datagram,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        let text = json_of(&datagram.queue_pair.stats());
        // SAFETY: the caller's promise.
        unsafe { text_out(&text, buffer, capacity, length) }
    })
}

fn json_of(stats: &Stats) -> String {
    let discards = [
        ("duplicate", stats.discards.duplicate),
        ("late", stats.discards.late),
        ("inconsistent", stats.discards.inconsistent),
        ("no_buffer", stats.discards.no_buffer),
        ("key", stats.discards.key),
        ("rights", stats.discards.rights),
        ("bounds", stats.discards.bounds),
        ("overlap", stats.discards.overlap),
        ("busy", stats.discards.busy),
        ("service", stats.discards.service),
        ("stranger", stats.discards.stranger),
    ];
    let counters = [
        ("peers", stats.peers as u64),
        ("active_peers", stats.active_peers as u64),
        ("peers_evicted", stats.peers_evicted),
        ("peers_failed", stats.peers_failed),
        ("streams", stats.streams as u64),
        ("messages_waiting", stats.messages_waiting as u64),
        ("messages_sent", stats.messages_sent),
        ("messages_whole", stats.messages_whole),
        ("messages_partial", stats.messages_partial),
        ("messages_missed", stats.messages_missed),
        ("messages_open", stats.messages_open as u64),
        ("messages_evicted", stats.messages_evicted),
        ("packets_sent", stats.packets_sent),
        ("packets_taken", stats.packets_taken),
        ("packets_rejected", stats.rejected.iter().sum()),
        ("bytes_taken", stats.bytes_taken),
        ("bytes_again", stats.bytes_again),
        ("errors_dropped", stats.errors_dropped),
        ("errors_silenced", stats.errors_silenced),
    ];
    let fields = |all: &[(&str, u64)]| {
        let fields: Vec<_> = all.iter().map(|(name, n)| format!("\"{name}\": {n}")).collect();
        fields.join(", ")
    };
    format!("{{{}, \"discards\": {{{}}}}}", fields(&counters), fields(&discards))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_one_json_object() {
        let text = json_of(&Stats::default());
        assert!(
            text.starts_with("{\"peers\": 0, ") && text.ends_with("\"stranger\": 0}}"),
            "{text}"
        );
        assert_eq!(text.matches(": 0").count(), 30);
    }
}
