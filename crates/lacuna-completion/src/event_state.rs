//! Whether the event may be set, so that arming clears it only then: clearing is a system call.
//!
//! Setting the event and taking note of that are two steps, and arming may come between them. So both
//! the beginning and the end of each set are noted. While a set is in progress, each arming clears the
//! event; an arming that relied on the end alone would find the event set, leave it so, and make its
//! caller spin until the thread that sets it runs again.
//!
//! Invariant: when the event is set and nobody is setting it, `IS_SET` is there.

use crate::sync::{AtomicU32, Ordering};

/// Bit 0: [`IS_SET`]. Bits 1 to 31: how many threads are setting the event.
pub(crate) struct EventState(AtomicU32);

/// The event was set, and not cleared since.
const IS_SET: u32 = 1;
const SETTER: u32 = 2;

impl EventState {
    pub(crate) fn clear() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Before the event is set.
    pub(crate) fn begin_set(&self) {
        self.0.fetch_add(SETTER, Ordering::Release);
    }

    /// After the event was set.
    pub(crate) fn end_set(&self) {
        self.0.fetch_or(IS_SET, Ordering::Release);
        self.0.fetch_sub(SETTER, Ordering::Release);
    }

    /// Whether the caller must clear the event now. One load if it need not.
    pub(crate) fn is_to_be_cleared(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0 && self.0.fetch_and(!IS_SET, Ordering::AcqRel) != 0
    }
}
