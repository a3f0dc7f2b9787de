//! Classes of messages: connections within a connection.
//!
//! A class is given to the program as a connection of its own, so that all calls for messages take it. It
//! belongs to its connection, which frees it.

use super::connection::lacuna_connection;
use crate::outcome::{Failure, code};
use crate::pointer::{self, Out};
use lacuna::Class;
use std::ffi::c_int;

/// What a message is for.
#[repr(C)]
pub enum lacuna_class {
    /// Repaired whatever the connection's mode is, and not held up by other messages: for
    /// what the program has to say beside its bulk.
    LACUNA_CLASS_CRITICAL = 1,
    /// Not repaired whatever the connection's mode is: receives end in time, as in mode
    /// bounded.
    LACUNA_CLASS_DROPPABLE = 2,
    /// Repaired whatever the connection's mode is, and does not hold up critical messages:
    /// for bulk that has to be whole, beside bulk that has not.
    LACUNA_CLASS_REPAIRED = 3,
}

const CRITICAL: u32 = lacuna_class::LACUNA_CLASS_CRITICAL as u32;
const DROPPABLE: u32 = lacuna_class::LACUNA_CLASS_DROPPABLE as u32;
const REPAIRED: u32 = lacuna_class::LACUNA_CLASS_REPAIRED as u32;

/// The messages of a class of a connection, if the connecting end's setting classes has it:
/// kind is one of enum lacuna_class. messages gets a connection for them, the same each
/// time. What is sent there lands in what is received there, and keeps no order towards
/// other messages. It has no classes. Regions are written and read as without it, but such
/// writes and reads complete into the queue of the connection only; lacuna_flush(),
/// lacuna_describe(), lacuna_stats_json() and lacuna_tag() are those of the connection. It
/// ends with the connection, and lacuna_connection_free() of it does nothing. May be called
/// from any thread.
///
/// # Safety
/// connection was not freed; messages points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_connection_class(
    connection: *mut lacuna_connection,
    kind: u32,
    messages: *mut *mut lacuna_connection,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let connection = unsafe { pointer::object(connection, "connection") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(messages, "messages") }?;
        let class = match kind {
            CRITICAL => Class::Critical,
            DROPPABLE => Class::Droppable,
            REPAIRED => Class::Repaired,
            _ => {
                return Err(Failure::usage(format!(
                    "kind {kind}: must be one of enum lacuna_class"
                )));
            }
        };
        let messages = connection.class(class).ok_or_else(|| {
            Failure::usage("the connection has no such class: the connecting end's setting classes")
        })?;
        out.set(std::ptr::from_ref(messages).cast_mut());
        Ok(())
    })
}
