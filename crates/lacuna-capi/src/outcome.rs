//! Turns Rust results into C codes, with a text for each thread's last error.
//!
//! Every exported function is one call of [`code`] or [`object`]. They catch panics, which are bugs
//! of this library, and report them as errors. Panics are not printed, here or on the library's
//! threads: standard error belongs to the program.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Done.
pub(crate) const OK: c_int = 0;
/// The call makes no sense, or (only in `sdr.h`, which has one code for both) the operation has
/// failed for good.
pub(crate) const USAGE: c_int = 1;
/// Not possible now: call again.
pub(crate) const RETRY: c_int = 2;
/// A deadline or timeout has passed.
pub(crate) const DEADLINE: c_int = 3;
/// A fault of the network or the peer.
pub(crate) const PEER: c_int = 4;
/// This host refused a resource: memory, sockets, threads.
pub(crate) const SYSTEM: c_int = 5;
/// A bug of this library.
pub(crate) const BUG: c_int = 6;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Why a call did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    /// `None` for [`RETRY`] where calls are too frequent to format a text.
    text: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: Some(text.into()) }
    }

    /// The caller's fault; `text` says what to do instead.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, text)
    }

    /// What is said of it.
    pub(crate) fn into_text(self) -> String {
        self.text.unwrap_or_default()
    }

    /// Whether calling again can help.
    pub(crate) fn is_retry(&self) -> bool {
        self.code == RETRY
    }

    /// "Call again", without a text.
    pub(crate) const fn retry() -> Self {
        Self { code: RETRY, text: None }
    }
}

/// Message and location of the first panic in this process.
static FIRST_PANIC: OnceLock<String> = OnceLock::new();

/// Keeps panics off standard error from now on, and notes the first one. All Rust code that uses
/// this copy of the standard library is this library's.
pub(crate) fn silence_panics() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Ordering::Relaxed) {
        std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
            // Later panics mostly follow from the first.
            let _ = FIRST_PANIC.set(panic.to_string());
        }));
    }
}

/// The error for a panic of this library that happened earlier.
pub(crate) fn bug() -> Failure {
    let said = FIRST_PANIC.get().map_or("a thread has panicked", String::as_str);
    Failure::new(BUG, format!("bug in liblacuna, please report: {said}; make a new context"))
}

/// The error for a queue pair that has failed.
pub(crate) fn broken(failure: &lacuna::Failure) -> Failure {
    match failure {
        lacuna::Failure::WorkerPanicked => bug(),
        failure => Failure::new(PEER, failure.to_string()),
    }
}

/// The text of this thread's last error; empty if there was none.
pub(crate) fn last_error() -> *const c_char {
    // Valid until this thread's next error replaces it.
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// Runs a call that returns a code.
pub(crate) fn code(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match run(call) {
        Ok(()) => OK,
        Err(failure) => note(failure),
    }
}

/// Runs a call of `sdr.h`, which has one code for everything but success and "call again".
pub(crate) fn sdr_code(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match code(call) {
        known @ (OK | RETRY) => known,
        _ => USAGE,
    }
}

/// Runs a call that returns an object, or NULL.
pub(crate) fn object<T>(call: impl FnOnce() -> Result<*mut T, Failure>) -> *mut T {
    run(call).unwrap_or_else(|failure| {
        note(failure);
        std::ptr::null_mut()
    })
}

fn run<R>(call: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    // State that a panic leaves inconsistent is behind locks whose poison is ignored, and the
    // transport fails its queue pairs when a worker panics.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Err(Failure::new(BUG, format!("bug in liblacuna, please report: {}", message(&panic))))
    })
}

/// The text of a panic.
fn message(panic: &Box<dyn Any + Send>) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

/// Makes a failure the thread's last error, and returns its code.
pub(crate) fn note(failure: Failure) -> c_int {
    if let Some(text) = failure.text {
        let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
        // While a thread ends, its thread-local storage may be gone; then nobody can ask for the
        // text.
        let _ = LAST_ERROR.try_with(|last| last.replace(text));
    }
    failure.code
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn text() -> String {
        // SAFETY: a terminated string of this thread, copied before its next call.
        unsafe { CStr::from_ptr(last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_is_a_code_and_a_text() {
        assert_eq!(code(|| panic!("what {}", "then")), BUG);
        assert!(text().ends_with("what then"), "{}", text());
        assert_eq!(sdr_code(|| panic!("again")), USAGE);
        assert!(object::<u8>(|| panic!("and again")).is_null());
    }

    /// In a process of its own, whose standard error can be seen.
    #[test]
    fn a_panic_is_not_printed_and_said_by_the_errors_that_follow() {
        const INSIDE: &str = "LACUNA_TEST_HUSHED";
        if std::env::var_os(INSIDE).is_some() {
            silence_panics();
            assert_eq!(code(|| panic!("what")), BUG);
            assert!(std::thread::spawn(|| panic!("then")).join().is_err());
            assert_eq!(code(|| Err(broken(&lacuna::Failure::WorkerPanicked))), BUG);
            assert!(text().contains("outcome.rs") && text().contains("what"), "{}", text());
            // Past the harness, which prints what it catches.
            std::process::exit(0);
        }
        let name = "outcome::tests::a_panic_is_not_printed_and_said_by_the_errors_that_follow";
        let test = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(test);
        command.args(["--exact", name, "--nocapture"]).env(INSIDE, "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }

    #[test]
    fn each_thread_has_its_own_last_error() {
        assert_eq!(code(|| Err(Failure::usage("here\0"))), USAGE);
        std::thread::spawn(|| assert_eq!(text(), "")).join().unwrap();
        assert_eq!(text(), "here?");
        assert_eq!(code(|| Err(Failure::retry())), RETRY);
        assert_eq!(text(), "here?", "a retry has no text");
    }
}
