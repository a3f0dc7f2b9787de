//! Codes, error texts and the version.

use crate::outcome;
use std::ffi::c_char;

/// What a call answers.
#[repr(C)]
pub enum lacuna_result {
    /// Done.
    LACUNA_OK = 0,
    /// The call makes no sense: a NULL, an unknown setting, an object whose use
    /// has ended. Calling again does not help.
    LACUNA_USAGE = 1,
    /// Not possible now, or not complete yet: call again.
    LACUNA_RETRY = 2,
    /// The deadline or timeout has passed.
    LACUNA_DEADLINE = 3,
    /// The network or the peer: nobody there, gone, gave up, or something else
    /// than was expected.
    LACUNA_PEER = 4,
    /// This machine: file descriptors, memory, threads, ports in use. If it is a limit,
    /// the text names it.
    LACUNA_SYSTEM = 5,
    /// A bug of this library; please report the text.
    LACUNA_BUG = 6,
}

const _: () = {
    assert!(lacuna_result::LACUNA_OK as i32 == outcome::OK);
    assert!(lacuna_result::LACUNA_USAGE as i32 == outcome::USAGE);
    assert!(lacuna_result::LACUNA_RETRY as i32 == outcome::RETRY);
    assert!(lacuna_result::LACUNA_DEADLINE as i32 == outcome::DEADLINE);
    assert!(lacuna_result::LACUNA_PEER as i32 == outcome::PEER);
    assert!(lacuna_result::LACUNA_SYSTEM as i32 == outcome::SYSTEM);
    assert!(lacuna_result::LACUNA_BUG as i32 == outcome::BUG);
};

/// The library's version, as in "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn lacuna_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What went wrong in the last call of this thread that failed, of sdr.h,
/// sdr_mr.h or lacuna.h; empty if none has. LACUNA_RETRY and SDR_RETRY leave it
/// as it is. The text is good until the thread's next failure.
#[unsafe(no_mangle)]
pub extern "C" fn lacuna_last_error() -> *const c_char {
    outcome::last_error()
}
