//! Connections, and the calls that wait for a whole message.

use super::context::{connect_failure, lacuna_context};
use super::queued::Attached;
use super::receive::{lacuna_receive, lacuna_received};
use super::send::lacuna_send;
use super::settings::{Values, lacuna_settings};
use crate::outcome::{self, Failure, code};
use crate::pointer::{self, Out};
use crate::pool::ObjectPool;
use lacuna::address::{self, AddressError};
use lacuna::datapath::Process;
use lacuna::{
    Class, Connection, PostReceiveError, PostSendError, QueuePair, ReceiveFailure, RecvError,
    SendError, SendFailure,
};
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;
use std::time::Duration;

/// A connection to a peer.
pub struct lacuna_connection {
    process: Process,
    // Declared before the connection, so dropped before it.
    pub(super) receives: ObjectPool<lacuna_receive>,
    pub(super) sends: ObjectPool<lacuna_send>,
    pub(super) completes_to: OnceLock<Attached>,
    /// Objects of its classes that the program has asked for, by [`Class`].
    classes: [OnceLock<Box<Self>>; 3],
    /// The connection's messages, or those of a class of it.
    queue_pair: QueuePair,
    is_class: bool,
    pub(super) connection: Connection,
}

impl pointer::Object for lacuna_connection {
    fn process(&self) -> Process {
        self.process
    }
}

impl lacuna_connection {
    pub(super) fn new(connection: Connection) -> *mut Self {
        let queue_pair = connection.queue_pair().clone();
        Box::into_raw(Box::new(Self::of(connection, queue_pair, false)))
    }

    fn of(connection: Connection, queue_pair: QueuePair, is_class: bool) -> Self {
        Self {
            process: Process::current(),
            receives: ObjectPool::new(usize::MAX),
            sends: ObjectPool::new(usize::MAX),
            completes_to: OnceLock::new(),
            classes: Default::default(),
            queue_pair,
            is_class,
            connection,
        }
    }

    /// The queue pair of its messages.
    pub(super) fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Whether it is a class of a connection, which the program does not free.
    pub(super) fn is_class(&self) -> bool {
        self.is_class
    }

    /// The object of a class; `None` if there is no such class. Classes have none.
    pub(super) fn class(&self, class: Class) -> Option<&Self> {
        let queue_pair = self.connection.class(class).filter(|_| !self.is_class)?;
        let made = || Box::new(Self::of(self.connection.clone(), queue_pair.clone(), true));
        let place = match class {
            Class::Critical => 0,
            Class::Droppable => 1,
            Class::Repaired => 2,
        };
        Some(&**self.classes[place].get_or_init(made))
    }

    /// Closes the connection with its classes.
    fn close(mut self) {
        let classes = std::mem::take(&mut self.classes);
        let classes = classes.into_iter().filter_map(OnceLock::into_inner).map(|class| class.end());
        let queues: Vec<_> = classes.collect();
        let own = self.end();
        // Not earlier: the queue pairs go with the last of the objects.
        queues.into_iter().chain([own]).flatten().for_each(|queue| queue.settle());
    }

    /// Ends receives and sends; what completes into a queue has still to be settled there.
    fn end(self) -> Option<Attached> {
        self.receives.for_each(|receive| {
            receive.close();
        });
        self.sends.for_each(|send| {
            send.end(&self.queue_pair);
        });
        self.completes_to.into_inner()
    }
}

pub(super) fn post_receive_failure(error: &PostReceiveError) -> Failure {
    let code = match error {
        retryable if retryable.is_retryable() => outcome::RETRY,
        PostReceiveError::Failed(failure) => return outcome::broken(failure),
        _ => outcome::USAGE,
    };
    Failure::new(code, error.to_string())
}

pub(super) fn receive_failure(error: &RecvError) -> Failure {
    let code = match error {
        RecvError::Post(error) => return post_receive_failure(error),
        RecvError::Deadline { .. } | RecvError::Over { reason: lacuna::Reason::Deadline, .. } => {
            outcome::DEADLINE
        }
        RecvError::Over { .. } => outcome::PEER,
        RecvError::Failed(ReceiveFailure::Failed(failure)) => return outcome::broken(failure),
        RecvError::Failed(ReceiveFailure::Cancelled(_)) => outcome::PEER,
    };
    Failure::new(code, error.to_string())
}

pub(super) fn write_failure(error: &SendError) -> Failure {
    let code = match error {
        SendError::Post(error) if error.is_retryable() => outcome::RETRY,
        SendError::Post(PostSendError::Failed(failure))
        | SendError::Failed(SendFailure::Failed(failure)) => return outcome::broken(failure),
        SendError::Post(_) | SendError::Failed(SendFailure::TooLong { .. }) => outcome::USAGE,
        SendError::Failed(SendFailure::Deadline { .. }) => outcome::DEADLINE,
        SendError::Failed(_) => outcome::PEER,
    };
    Failure::new(code, error.to_string())
}

/// An immediate that may not be there.
///
/// # Safety
/// If not NULL, `immediate` points to a number.
pub(super) unsafe fn optional(immediate: *const u32) -> Result<Option<u32>, Failure> {
    if immediate.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { pointer::shared(immediate, "immediate") }.copied().map(Some)
}

/// Copies a text to where the program wants it, as much of it as fits.
///
/// # Safety
/// `buffer` may be written to over `capacity` bytes, `length` is NULL or points to
/// a size.
pub(super) unsafe fn text_out(
    text: &str,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let length = unsafe { Out::optional(length, "length") }?;
    if let Some(room) = capacity.checked_sub(1) {
        let mut bytes = text.as_bytes()[..room.min(text.len())].to_vec();
        bytes.push(0);
        // SAFETY: the caller's promise, and no more than `capacity` bytes.
        unsafe { pointer::copy_out(&bytes, buffer.cast(), "buffer") }?;
    }
    if let Some(length) = length {
        length.set(text.len());
    }
    Ok(())
}

/// Whether a text looks like HOST:PORT.
fn is_peer(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse().is_ok_and(|port: u16| port > 0)
    })
}

/// Connects to a listener at peer, as in "host:7400", "192.0.2.1:7400",
/// "[2001:db8::1]:7400" or, if it is link-local, "[fe80::1%eth0]:7400" with this host's
/// interface to it. What is not written so is LACUNA_USAGE, a host that is not known
/// LACUNA_PEER. settings may be NULL. May be called from any thread.
///
/// # Safety
/// context was not freed; peer is a terminated string; settings is NULL or was
/// not freed; connection points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_connect(
    context: *mut lacuna_context,
    peer: *const c_char,
    settings: *const lacuna_settings,
    connection: *mut *mut lacuna_connection,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { pointer::object(context, "context") }?;
        // SAFETY: the caller's promise.
        let peer = unsafe { pointer::text(peer, "peer") }?;
        // SAFETY: the caller's promise.
        let values = unsafe { Values::of(settings) }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(connection, "connection") }?;
        if !is_peer(peer) {
            return Err(Failure::usage(format!(
                "peer \"{peer}\": write HOST:PORT, as in host:7400"
            )));
        }
        if let Err(error @ (AddressError::NoZone { .. } | AddressError::NoInterface { .. })) =
            address::parse(peer)
        {
            return Err(Failure::usage(format!("peer \"{peer}\": {error}")));
        }
        let made = Connection::connect(context.context(), peer, values.connection);
        out.set(lacuna_connection::new(made.map_err(|error| connect_failure(&error))?));
        Ok(())
    })
}

/// Closes and frees a connection, with its classes, receives and sends. NULL is allowed.
/// The peer is told in good order. Nothing touches the program's memory after it
/// returns; completions of what was posted to it can still be polled. Must be the last
/// call with the connection and what was made of it. In a child process that has
/// inherited it, see lacuna_context_free(): nobody is told.
///
/// # Safety
/// If not NULL, connection was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_connection_free(connection: *mut lacuna_connection) {
    let _ = code(|| {
        if connection.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let Some(live) = unsafe { pointer::to_free(connection, "connection") }? else {
            return Ok(());
        };
        if live.is_class {
            return Err(Failure::usage("a class belongs to its connection, and ends with it"));
        }
        // SAFETY: made by `lacuna_connection::new`, and this is the last call with it.
        let connection = unsafe { Box::from_raw(connection) };
        connection.close();
        Ok(())
    });
}

/// Writes length bytes, with an immediate unless that is NULL, and waits until
/// the peer has them (in mode raw: until they are on the wire), at most
/// deadline_ms. May be called from several threads; each message goes as a whole.
///
/// # Safety
/// connection was not freed; data points to length bytes that nobody changes
/// during the call; immediate is NULL or points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_write(
    connection: *mut lacuna_connection,
    data: *const c_void,
    length: usize,
    immediate: *const u32,
    deadline_ms: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let data = unsafe { pointer::bytes(data.cast(), length, "data") }?;
        // SAFETY: the caller's promise.
        let immediate = unsafe { optional(immediate) }?;
        let deadline = Duration::from_millis(deadline_ms);
        let written = connection.queue_pair().send_and_wait(data, immediate, deadline);
        written.map_err(|error| write_failure(&error))
    })
}

/// Receives the next message into a buffer of capacity bytes, waiting for at most
/// timeout_ms. received may be NULL. On an error the receive is given up; what
/// came of the message is in the buffer. May be called from several threads;
/// messages are received in the order of the calls.
///
/// # Safety
/// connection was not freed; buffer points to capacity bytes that are the
/// library's during the call; received is NULL or points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_read(
    connection: *mut lacuna_connection,
    buffer: *mut c_void,
    capacity: usize,
    timeout_ms: u64,
    received: *mut lacuna_received,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(received, "received") }?;
        let buffer = pointer::start(buffer.cast::<u8>(), capacity, "buffer")?;
        // SAFETY: the buffer is the library's during the call by the caller's
        // promise, and the handle is dropped before it returns.
        let posted = unsafe { connection.queue_pair().post_recv_raw(buffer, capacity) };
        let receive = posted.map_err(|error| post_receive_failure(&error))?;
        let timeout = Duration::from_millis(timeout_ms);
        receive.wait(timeout).map_err(|error| receive_failure(&error))?;
        let done = lacuna_received::of(&receive);
        drop(receive);
        if let Some(out) = out {
            out.set(done);
        }
        Ok(())
    })
}

/// Waits until the peer has posted the receive for the next message, at most
/// timeout_ms: a write started then goes out at once. May be called from any
/// thread.
///
/// # Safety
/// connection was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_wait_clear_to_send(
    connection: *mut lacuna_connection,
    timeout_ms: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        let clear = connection.queue_pair().wait_clear_to_send(Duration::from_millis(timeout_ms));
        clear.map_err(|error| match error {
            SendError::Post(PostSendError::Unposted { .. }) => {
                Failure::new(outcome::DEADLINE, error.to_string())
            }
            error => write_failure(&error),
        })
    })
}

/// Waits until all sends have ended and the peer is done with their receives, at
/// most timeout_ms: call it before lacuna_connection_free() where the last
/// messages matter. May be called from any thread.
///
/// # Safety
/// connection was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_flush(
    connection: *mut lacuna_connection,
    timeout_ms: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        if connection.connection.flush(Duration::from_millis(timeout_ms)) {
            return Ok(());
        }
        let text = format!("sends still go on after {timeout_ms} ms");
        Err(Failure::new(outcome::DEADLINE, text))
    })
}

/// What the connection uses, for people: mode, chunk, MTU, channels, datapath,
/// window, round-trip time. As snprintf(): as much as fits is written, with its
/// end, and length gets the length of the whole text without its end. buffer may
/// be NULL if capacity is 0, length if it is not wanted. May be called from any
/// thread.
///
/// # Safety
/// connection was not freed; buffer points to capacity bytes; length is NULL or
/// points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_describe(
    connection: *mut lacuna_connection,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        let text = connection.connection.chosen().to_string();
        // SAFETY: the caller's promise.
        unsafe { text_out(&text, buffer, capacity, length) }
    })
}

/// Counters of now as one JSON object: packets, bytes, repairs and losses of both
/// directions, round-trip time, window. The rest as lacuna_describe().
///
/// # Safety
/// As for lacuna_describe().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_stats_json(
    connection: *mut lacuna_connection,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        let text = connection.connection.stats().to_json();
        // SAFETY: the caller's promise.
        unsafe { text_out(&text, buffer, capacity, length) }
    })
}

/// The number that the connecting end gave with the setting tag. May be called
/// from any thread.
///
/// # Safety
/// connection was not freed; tag points to a uint64_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_tag(connection: *mut lacuna_connection, tag: *mut u64) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(tag, "tag") }?;
        out.set(connection.connection.tag());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::is_peer;

    #[test]
    fn a_peer_is_a_host_and_a_port() {
        for peer in ["host:7400", "127.0.0.1:1", "[::1]:65535", "::1:7400", "[fe80::1%2]:7400"] {
            assert!(is_peer(peer), "{peer}");
        }
        for other in ["", "host", "host:", ":7400", "host:0", "host:65536", "host:http", "[::1]"] {
            assert!(!is_peer(other), "{other}");
        }
    }
}
