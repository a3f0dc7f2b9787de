//! Datagram queue pairs: any number of peers, without connections.
//!
//! | file | contents |
//! |---|---|
//! | `settings` | what a queue pair is made with |
//! | `peers` | address handles, groups, names of regions |
//! | `post` | sends, Write-Records, READs, receives |
//! | `poll` | its own list of completions, errors, counters |
//! | `done` | what a completion tells |
//!
//! A peer is a number, not an object: there may be a million of them, and any number that a program makes up is
//! nobody's.
//!
//! Invariant: once `lacuna_datagram_free` has returned, nothing touches the memory of what was posted. The queue pair
//! is the last that holds it: its threads are joined, and what was posted goes with it. What its completions say is
//! kept by the completion queue, if it has one.

pub(super) mod done;
pub mod peers;
pub mod poll;
pub mod post;
pub mod settings;

use super::address::lacuna_address;
use super::completion_queue::Queue;
use super::context::{context_failure, lacuna_context};
use super::posted::{Posted, Source};
use crate::outcome::{self, Failure, code};
use crate::pointer::{self, Out};
use lacuna::datagram::{Error, QueuePair};
use lacuna::datapath::Process;
use settings::lacuna_datagram_settings;
use std::ffi::c_int;
use std::sync::Arc;

/// A datagram queue pair.
pub struct lacuna_datagram {
    process: Process,
    queue_pair: QueuePair,
    completes_to: To,
    /// Counts what was posted.
    source: Arc<Source>,
}

/// Where it completes to.
enum To {
    Queue(Arc<Queue>),
    OwnList(Posted),
}

impl pointer::Object for lacuna_datagram {
    fn process(&self) -> Process {
        self.process
    }
}

impl lacuna_datagram {
    /// The operations whose completions were not polled.
    fn posted(&self) -> &Posted {
        match &self.completes_to {
            To::Queue(queue) => &queue.posted,
            To::OwnList(posted) => posted,
        }
    }
}

fn make_failure(error: &Error) -> Failure {
    let code = match error {
        Error::PacketBytes { .. } | Error::NoToken | Error::Multicast(_) => outcome::USAGE,
        Error::Bind(_) => outcome::SYSTEM,
        Error::Context(error) => return context_failure(error),
    };
    Failure::new(code, error.to_string())
}

/// Makes a datagram queue pair: a socket of its own, over which messages go to any number
/// of peers and come from them, without connections. It is ready at once. Peers write and
/// read the context's regions by their keys. By default what the path loses is lost, and
/// what came is told exactly (UD); with is_reliable of the settings each message comes
/// once, and in order of each peer (RD). settings may be NULL, else
/// lacuna_datagram_settings_default() has filled them in first. The queue pair keeps the
/// context. May be called from any thread.
///
/// # Safety
/// context was not freed, nor is what settings points to during the call; datagram points
/// to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_new(
    context: *mut lacuna_context,
    settings: *const lacuna_datagram_settings,
    datagram: *mut *mut lacuna_datagram,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { pointer::object(context, "context") }?;
        // SAFETY: the caller's promise.
        let (settings, queue) = unsafe { settings::given(settings) }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(datagram, "datagram") }?;
        let made = context.context().datagram_queue_pair(&settings);
        let queue_pair = made.map_err(|error| make_failure(&error))?;
        let completes_to = queue.map_or_else(|| To::OwnList(Posted::default()), To::Queue);
        let process = Process::current();
        let source = Arc::default();
        let made = lacuna_datagram { process, queue_pair, completes_to, source };
        out.set(Box::into_raw(Box::new(made)));
        Ok(())
    })
}

/// Its number, as completions have it: not 0, and no other queue pair of this process has
/// it. May be called from any thread.
///
/// # Safety
/// datagram was not freed; number points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_number(
    datagram: *mut lacuna_datagram,
    number: *mut u32,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(number, "number") }?;
        out.set(datagram.queue_pair.number());
        Ok(())
    })
}

/// The address of its socket; of one that is bound to all addresses, that one, with the
/// port. May be called from any thread.
///
/// # Safety
/// datagram was not freed; address points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_local(
    datagram: *mut lacuna_datagram,
    address: *mut lacuna_address,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(address, "address") }?;
        out.set(lacuna_address::of(datagram.queue_pair.local_addr()));
        Ok(())
    })
}

/// Closes a datagram queue pair: what was posted completes, as failed, and nothing can be
/// posted any more. Completions can still be polled. Again it is no error. May be called
/// from any thread.
///
/// # Safety
/// datagram was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_close(datagram: *mut lacuna_datagram) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let datagram = unsafe { pointer::object(datagram, "datagram") }?;
        datagram.queue_pair.close();
        Ok(())
    })
}

/// Closes and frees a datagram queue pair. NULL is allowed. What was posted fails: a
/// completion queue has its completions, and those of its own list that were not polled
/// are gone. Nothing touches the program's memory after it returns, but for regions, which
/// are the context's. Messages that were handed to the network are on their way; of a
/// reliable queue pair those that the peer has not acknowledged may be lost. Must be the
/// last call with the queue pair. In a child process that has inherited it, see
/// lacuna_context_free().
///
/// # Safety
/// If not NULL, datagram was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_datagram_free(datagram: *mut lacuna_datagram) {
    let _ = code(|| {
        // SAFETY: the caller's promise.
        if !datagram.is_null() && unsafe { pointer::to_free(datagram, "datagram") }?.is_some() {
            // SAFETY: made by `lacuna_datagram_new`, and this is the last call with it.
            let datagram = unsafe { Box::from_raw(datagram) };
            let lacuna_datagram { queue_pair, completes_to, .. } = *datagram;
            // Before the table of what it may read until then.
            drop(queue_pair);
            drop(completes_to);
        }
        Ok(())
    });
}
