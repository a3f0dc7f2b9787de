//! Contexts and listeners.

use super::connection::lacuna_connection;
use super::settings::{Values, lacuna_settings};
use crate::outcome::{self, Failure, code};
use crate::pointer::{self, Out};
use lacuna::datapath::Process;
use lacuna::{ConnectError, Context, ContextError, Listener, QueuePairError};
use std::ffi::{c_char, c_int};

/// Sockets and threads that connections share.
pub struct lacuna_context {
    process: Process,
    context: Context,
}

impl pointer::Object for lacuna_context {
    fn process(&self) -> Process {
        self.process
    }
}

/// Waits for peers.
pub struct lacuna_listener {
    process: Process,
    listener: Listener,
}

impl pointer::Object for lacuna_listener {
    fn process(&self) -> Process {
        self.process
    }
}

pub(super) fn context_failure(error: &ContextError) -> Failure {
    let code = match error {
        ContextError::Channels { .. }
        | ContextError::Insecure { .. }
        | ContextError::Cipher { .. }
        | ContextError::CertificateFiles { .. }
        | ContextError::Inherited => outcome::USAGE,
        ContextError::Bind(_)
        | ContextError::PathMemory { .. }
        | ContextError::Token { .. }
        | ContextError::Certificates { .. }
        | ContextError::Thread(_)
        | ContextError::System { .. } => outcome::SYSTEM,
    };
    Failure::new(code, error.to_string())
}

pub(super) fn connect_failure(error: &ConnectError) -> Failure {
    let code = match error {
        ConnectError::Listen { .. } | ConnectError::Accept { .. } => outcome::SYSTEM,
        ConnectError::QueuePair(QueuePairError::Context(error)) => return context_failure(error),
        ConnectError::QueuePair(QueuePairError::System { .. } | QueuePairError::TooMany { .. }) => {
            outcome::SYSTEM
        }
        ConnectError::QueuePair(_) | ConnectError::NobodyTrusted { .. } => outcome::USAGE,
        ConnectError::Context(error) => return context_failure(error),
        _ => outcome::PEER,
    };
    Failure::new(code, error.to_string())
}

/// Makes a context. settings may be NULL.
///
/// # Safety
/// settings is NULL or was not freed; context points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_context_new(
    settings: *const lacuna_settings,
    context: *mut *mut lacuna_context,
) -> c_int {
    code(|| {
        outcome::silence_panics();
        // SAFETY: the caller's promise.
        let values = unsafe { Values::of(settings) }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(context, "context") }?;
        let config = values.capture.around(values.context)?;
        let made = Context::new(config).map_err(|error| context_failure(&error))?;
        out.set(Box::into_raw(Box::new(lacuna_context {
            process: Process::current(),
            context: made,
        })));
        Ok(())
    })
}

/// Makes progress once, without waiting, for settings with progress = manual;
/// worked says whether there was anything to do, and may be NULL. Waiting calls
/// make progress by themselves. May be called from any thread.
///
/// # Safety
/// context was not freed; worked is NULL or points to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_context_progress(
    context: *mut lacuna_context,
    worked: *mut c_int,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { pointer::object(context, "context") }?;
        // SAFETY: the caller's promise.
        let worked = unsafe { Out::optional(worked, "worked") }?;
        let any = context.context.progress();
        if let Some(worked) = worked {
            worked.set(c_int::from(any));
        }
        Ok(())
    })
}

/// Frees a context. NULL is allowed. Listeners and connections that were made
/// with it go on; the sockets are closed with the last of them. Must be the last
/// call with the context. In a child process (fork) that has inherited it, it closes
/// all inherited descriptors of the library, and nothing else; the parent's
/// connections go on.
///
/// # Safety
/// If not NULL, context was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_context_free(context: *mut lacuna_context) {
    let _ = code(|| {
        // SAFETY: the caller's promise.
        if !context.is_null() && unsafe { pointer::to_free(context, "context") }?.is_some() {
            // SAFETY: made by `lacuna_context_new`, and this is the last call with it.
            drop(unsafe { Box::from_raw(context) });
        }
        Ok(())
    });
}

/// Listens at address; port 0 takes any. "[::]:7400" is all addresses of this host,
/// of IPv6 and IPv4 (of IPv4 where there is no IPv6), "0.0.0.0:7400" those of IPv4, and a
/// link-local address names its interface, as in "[fe80::1%eth0]:7400". settings may be
/// NULL; of those of a connection the accepting end's own are cc,
/// rate_bits_per_s, deadline_ms, silence_ms, connect_timeout_ms, and mtu_bytes if it
/// is given (the smaller one, if both ends give it). mode, wire, chunk_bytes, split,
/// generations, max_message_bytes, one_sided, classes and tag are the connecting end's,
/// whatever settings has for them. May be called from any thread.
///
/// # Safety
/// context was not freed; address is a terminated string; settings is NULL or
/// was not freed; listener points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_listener_new(
    context: *mut lacuna_context,
    address: *const c_char,
    settings: *const lacuna_settings,
    listener: *mut *mut lacuna_listener,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { pointer::object(context, "context") }?;
        // SAFETY: the caller's promise.
        let text = unsafe { pointer::text(address, "address") }?;
        // SAFETY: the caller's promise.
        let values = unsafe { Values::of(settings) }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(listener, "listener") }?;
        let address = lacuna::address::parse(text).map_err(|error| {
            Failure::usage(format!("address: {error}; write ADDRESS:PORT, as in [::]:7400"))
        })?;
        let made = Listener::bind(&context.context, address, values.connection);
        let made = made.map_err(|error| connect_failure(&error))?;
        out.set(Box::into_raw(Box::new(lacuna_listener {
            process: Process::current(),
            listener: made,
        })));
        Ok(())
    })
}

/// The port that it listens at. May be called from any thread.
///
/// # Safety
/// listener was not freed; port points to a uint16_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_listener_port(
    listener: *mut lacuna_listener,
    port: *mut u16,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let listener = unsafe { pointer::object(listener, "listener") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(port, "port") }?;
        out.set(listener.listener.local_addr().port());
        Ok(())
    })
}

/// Waits for the next peer and agrees with it. LACUNA_PEER concerns that peer
/// only: call again. LACUNA_SYSTEM says that this machine lacks what a connection
/// takes, file descriptors mostly; the listener goes on, and has it perhaps at the
/// next call, which waits a moment first. May be called from several threads, to
/// serve as many peers at once.
///
/// # Safety
/// listener was not freed; connection points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_listener_accept(
    listener: *mut lacuna_listener,
    connection: *mut *mut lacuna_connection,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let listener = unsafe { pointer::object(listener, "listener") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(connection, "connection") }?;
        let made = listener.listener.accept().map_err(|error| connect_failure(&error))?;
        out.set(lacuna_connection::new(made));
        Ok(())
    })
}

/// Frees a listener. NULL is allowed. Its connections go on. Must be the last
/// call with it. In a child process that has inherited it, see lacuna_context_free().
///
/// # Safety
/// If not NULL, listener was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_listener_free(listener: *mut lacuna_listener) {
    let _ = code(|| {
        // SAFETY: the caller's promise.
        if !listener.is_null() && unsafe { pointer::to_free(listener, "listener") }?.is_some() {
            // SAFETY: made by `lacuna_listener_new`, and this is the last call with it.
            drop(unsafe { Box::from_raw(listener) });
        }
        Ok(())
    });
}

impl lacuna_context {
    pub(super) fn context(&self) -> &Context {
        &self.context
    }
}
