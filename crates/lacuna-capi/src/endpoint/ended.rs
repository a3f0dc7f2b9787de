//! Receives with a deadline, and what a receive has when it is over.

use super::connection::{lacuna_connection, receive_failure};
use super::map::lacuna_map;
use super::receive::lacuna_receive;
use crate::outcome::{self, Failure, code};
use crate::pointer::{self, Out};
use lacuna::{Completed, Missing, Reason, RecvError, RecvOptions};
use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

/// Why a receive, or a message in a region, is over.
#[repr(C)]
pub enum lacuna_reason {
    /// All of the message came.
    LACUNA_REASON_WHOLE = 1,
    /// The packet that ends the message came, and the grace has passed since. What
    /// is missing is lost.
    LACUNA_REASON_END = 2,
    /// The sender has said that everything was sent, and the grace has passed since.
    /// What is missing is lost.
    LACUNA_REASON_ACCOUNTED = 3,
    /// The receive's deadline has passed.
    LACUNA_REASON_DEADLINE = 4,
    /// A later message came while this one was incomplete.
    LACUNA_REASON_PREEMPTED = 5,
    /// The sender gave the message up, or the program took the receive back.
    LACUNA_REASON_CANCELLED = 6,
    /// The connection has failed or was closed.
    LACUNA_REASON_FAILED = 7,
    /// Of datagrams: nothing came for longer than the message's packets were apart. What
    /// is missing is lost.
    LACUNA_REASON_SILENCE = 8,
    /// Of datagrams: it had to go for others, as its sender, or all of them, had too many
    /// messages open.
    LACUNA_REASON_EVICTED = 9,
}

const _: () = {
    assert!(lacuna_reason::LACUNA_REASON_WHOLE as u8 == Reason::Whole as u8);
    assert!(lacuna_reason::LACUNA_REASON_END as u8 == Reason::End as u8);
    assert!(lacuna_reason::LACUNA_REASON_ACCOUNTED as u8 == Reason::Accounted as u8);
    assert!(lacuna_reason::LACUNA_REASON_DEADLINE as u8 == Reason::Deadline as u8);
    assert!(lacuna_reason::LACUNA_REASON_PREEMPTED as u8 == Reason::Preempted as u8);
    assert!(lacuna_reason::LACUNA_REASON_CANCELLED as u8 == Reason::Cancelled as u8);
    assert!(lacuna_reason::LACUNA_REASON_FAILED as u8 == Reason::Failed as u8);
};

/// What the gaps of a receive hold when it is over.
#[repr(C)]
pub enum lacuna_missing {
    /// What is usual in the connection's mode: zeros in bounded and best-effort, what
    /// was there before in the others.
    LACUNA_MISSING_USUAL = 0,
    /// Zeros, so that the buffer can be used as it is: a sum ignores them.
    LACUNA_MISSING_ZERO = 1,
    /// What was there before.
    LACUNA_MISSING_KEEP = 2,
}

const ZERO: u8 = lacuna_missing::LACUNA_MISSING_ZERO as u8;
const KEEP: u8 = lacuna_missing::LACUNA_MISSING_KEEP as u8;

/// When a receive is over, and what its gaps hold then. All zeros are the defaults.
#[repr(C)]
pub struct lacuna_receive_options {
    /// Microseconds after which the receive is over, whatever is there; 0 is no limit.
    pub deadline_us: u64,
    /// Microseconds that a receive which could be over waits for packets that the path
    /// has reordered, if has_grace is set. Only modes bounded and best-effort end
    /// receives before their deadline.
    pub grace_us: u64,
    /// Whether grace_us counts; else the grace is as long as packets have been late on
    /// this path.
    pub has_grace: u8,
    /// What gaps hold: of enum lacuna_missing.
    pub missing: u8,
    /// Must be 0.
    pub reserved: [u8; 6],
    /// Must be 0.
    pub more: [u64; 2],
}

/// What a receive has when it is over.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct lacuna_ended {
    /// Bytes of the message; 0 while its end is not known.
    pub length: u64,
    /// Bytes of the message that came; copies count once.
    pub bytes: u64,
    /// Bytes of a packet: packet i begins at byte i * packet_bytes.
    pub packet_bytes: u64,
    /// Packets of the message; of the buffer while the message's end is not known.
    pub packets: u64,
    /// Nanoseconds from the first packet's arrival until the receive was taken back.
    pub first_ago_ns: u64,
    /// Nanoseconds from the last packet's arrival until the receive was taken back.
    pub last_ago_ns: u64,
    /// Why it is over: of enum lacuna_reason.
    pub reason: u32,
    /// The immediate, if there is one.
    pub immediate: u32,
    /// Whether all of an immediate came.
    pub has_immediate: u8,
    /// Whether the end of the message is known.
    pub has_length: u8,
    /// Whether the two arrivals are known: whether any packet came.
    pub has_arrivals: u8,
    /// Whether everything came.
    pub is_complete: u8,
    /// 0.
    pub reserved: [u8; 4],
    /// 0.
    pub more: [u64; 2],
}

impl lacuna_ended {
    /// What a receive has, and its map if it has gaps.
    pub(super) fn of(done: Completed) -> (Self, Option<Box<lacuna_map>>) {
        let now = Instant::now();
        let ago_ns = |at: Option<Instant>| {
            at.map_or(0, |at| now.saturating_duration_since(at).as_nanos() as u64)
        };
        let first = done.first_arrival();
        // Each reads the clocks, so they may differ by less than that takes.
        let last_ago_ns = ago_ns(done.last_arrival());
        let first_ago_ns = ago_ns(first).max(last_ago_ns);
        let ended = Self {
            length: done.len.unwrap_or(0) as u64,
            bytes: done.bytes,
            packet_bytes: done.packets.packet_bytes() as u64,
            packets: done.packets.len() as u64,
            first_ago_ns,
            last_ago_ns,
            reason: done.reason as u32,
            immediate: done.immediate.unwrap_or(0),
            has_immediate: u8::from(done.immediate.is_some()),
            has_length: u8::from(done.len.is_some()),
            has_arrivals: u8::from(first.is_some()),
            is_complete: u8::from(done.is_complete),
            ..Self::default()
        };
        (ended, lacuna_map::of(done.packets, done.is_complete))
    }
}

/// The options that a program gives; NULL is the defaults.
///
/// # Safety
/// If not NULL, `options` points to its struct.
pub(super) unsafe fn options_of(
    options: *const lacuna_receive_options,
) -> Result<RecvOptions, Failure> {
    if options.is_null() {
        return Ok(RecvOptions::default());
    }
    // SAFETY: the caller's promise.
    let options = unsafe { pointer::shared(options, "options") }?;
    if options.reserved != [0; 6] || options.more != [0; 2] {
        return Err(Failure::usage("options has reserved bytes that are not 0: zero the struct"));
    }
    let missing = match options.missing {
        0 => None,
        ZERO => Some(Missing::Zero),
        KEEP => Some(Missing::Keep),
        other => {
            return Err(Failure::usage(format!(
                "options.missing is {other}: must be one of enum lacuna_missing"
            )));
        }
    };
    let is_given = |us: u64| (us > 0).then(|| Duration::from_micros(us));
    Ok(RecvOptions {
        deadline: is_given(options.deadline_us),
        grace: (options.has_grace != 0).then(|| Duration::from_micros(options.grace_us)),
        missing,
    })
}

/// As lacuna_receive_post(), with options, which may be NULL. In modes bounded and
/// best-effort a receive without a deadline is over, too, when the sender has said that
/// it sent everything. What a receive that is over has, lacuna_receive_take() says.
///
/// # Safety
/// As for lacuna_receive_post(); options is NULL or points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_receive_post_with(
    connection: *mut lacuna_connection,
    buffer: *mut c_void,
    capacity: usize,
    options: *const lacuna_receive_options,
    receive: *mut *mut lacuna_receive,
) -> c_int {
    // SAFETY: the caller's promise.
    code(|| unsafe {
        let options = options_of(options)?;
        lacuna_receive::post(connection, buffer, capacity, options, receive)
    })
}

/// Waits until the receive is over, whole or not, at most timeout_ms; with 0 it only
/// looks. LACUNA_DEADLINE while it goes on. reason gets one of enum lacuna_reason, and
/// may be NULL. The receive stays posted. May be called from any thread.
///
/// # Safety
/// The receive's connection was not freed; reason is NULL or points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_receive_wait_over(
    receive: *mut lacuna_receive,
    timeout_ms: u64,
    reason: *mut u32,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let receive = unsafe { pointer::object(receive, "receive") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(reason, "reason") }?;
        let timeout = Duration::from_millis(timeout_ms);
        let reason = receive.with(|receive| Ok(receive.wait_over(timeout)))?.ok_or_else(|| {
            let text = format!("the receive still goes on after {timeout_ms} ms");
            Failure::new(outcome::DEADLINE, text)
        })?;
        if let Some(out) = out {
            out.set(reason as u32);
        }
        Ok(())
    })
}

/// Takes the buffer back, as lacuna_receive_complete() does, and says more: ended gets
/// what came, and map which packets did, to be freed with lacuna_map_free(). map gets
/// NULL if everything came, and either may be NULL. Does not wait: a receive that goes
/// on is over now. The receive is used up. May be called from any thread; waits for
/// other calls with it.
///
/// # Safety
/// The receive's connection was not freed; ended is NULL or points to its struct, map
/// is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_receive_take(
    receive: *mut lacuna_receive,
    ended: *mut lacuna_ended,
    map: *mut *mut lacuna_map,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let receive = unsafe { pointer::object(receive, "receive") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(ended, "ended") }?;
        // SAFETY: the caller's promise.
        let map_out = unsafe { Out::optional(map, "map") }?;
        let (ended, map) = lacuna_ended::of(receive.take()?);
        lacuna_map::give(map, map_out);
        if let Some(out) = out {
            out.set(ended);
        }
        Ok(())
    })
}

/// The failure of a receive that is over and is not whole.
pub(super) fn over(ended: &lacuna_ended) -> Option<Failure> {
    let reason = Reason::ALL.into_iter().find(|reason| *reason as u32 == ended.reason);
    let reason = reason.filter(|_| ended.is_complete == 0)?;
    Some(receive_failure(&RecvError::Over { reason, bytes: ended.bytes }))
}
