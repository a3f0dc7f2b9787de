//! Errors of the system that come again and again, in a loop that goes on: each is logged once.
//!
//! A socket that cannot be read stays ready to be read. A line a turn would be ten thousand lines a
//! second, and hide the one that says what is wrong.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

/// The error that was logged last, of one thing that is tried again and again.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The system's number for it; 0 is none.
    code: AtomicI32,
}

impl Told {
    /// Whether to log it: it is another one than last time.
    pub(crate) fn is_news(&self, error: &io::Error) -> bool {
        // Those without a number are one kind.
        let code = error.raw_os_error().unwrap_or(-1);
        self.code.swap(code, Ordering::Relaxed) != code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_news_until_it_was_told() {
        let told = Told::default();
        let error = io::Error::from_raw_os_error;
        let seen = [1, 1, 1, 38, 38, 1].map(|code| told.is_news(&error(code)));
        assert_eq!(seen, [true, false, false, true, false, true]);
        let other = || io::Error::other("no number");
        assert!(told.is_news(&other()) && !told.is_news(&other()));
    }
}
