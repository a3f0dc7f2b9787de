//! Logs a repeated error once.
//!
//! A socket that cannot be read stays readable, so its error comes back in every step: ten thousand
//! log lines a second, which would hide the first.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

/// The last error of one operation that is repeated in a loop.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The system's error number; 0 before the first error.
    code: AtomicI32,
}

impl Told {
    /// Whether to log `error`: it differs from the last one.
    pub(crate) fn is_news(&self, error: &io::Error) -> bool {
        // Errors without a number count as one kind.
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
