//! The idle policy: when to step an engine again.
//!
//! It has four answers ([`Look`]):
//!
//! | answer | when | file |
//! |---|---|---|
//! | at once | the last step did something, and nothing speaks for waiting | |
//! | after a wait, whatever arrives | after a burst on a long path: interrupt moderation | `moderation.rs` |
//! | spin | nothing to do, and a peer so near that the delay of a wake-up would matter | `spin.rs` |
//! | sleep until woken | otherwise | |
//!
//! The facts come from the queue pairs ([`Patience`]: round-trip times, whether they wait for an
//! answer, how near the ends of their messages are) and from the engine: bytes moved, whether a
//! socket was emptied, how long sleeps took. A queue pair decides nothing here. (How a UDP socket
//! gets more packets out of one system call is the datapath's business, `lacuna_datapath::udp`.)

mod moderation;
mod patience;
mod spin;

use core::time::Duration;
pub use moderation::Moderation;
pub use patience::Patience;
use spin::Spin;

/// When to step again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// At once: more work is likely.
    Now,
    /// At once, though probably nothing has arrived.
    Spin,
    /// After this many nanoseconds, whatever arrives meanwhile. Only a command of the application
    /// ends the wait early.
    After(u64),
    /// When a packet arrives, or at [`crate::Engine::next_event_ns`].
    Sleep,
}

/// The idle policy of one engine.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) moderation: Moderation,
    spin: Spin,
}

impl Idle {
    /// `spin`: how long to spin before a sleep.
    pub(crate) fn new(spin: Duration) -> Self {
        Self { moderation: Moderation::new(), spin: Spin::new(spin) }
    }

    /// A queue pair's patience has changed; `None` stands for no queue pair.
    #[inline]
    pub(crate) fn on_patience(&mut self, before: Option<Patience>, now: Option<Patience>) {
        let wait_ns = |patience: Patience| patience.wait_ns;
        self.moderation.change(before.map(wait_ns), now.map(wait_ns));
        let is_near = |patience: Option<Patience>| patience.is_some_and(|known| known.is_near);
        self.spin.change(is_near(before), is_near(now));
    }

    /// The answer after a step that did something. `socket_bytes`: receive buffer of the smallest
    /// socket.
    pub(crate) fn after_work(&mut self, now_ns: u64, socket_bytes: u64) -> Look {
        self.spin.on_work();
        self.moderation.take(now_ns, socket_bytes).map_or(Look::Now, Look::After)
    }

    /// The answer after a step with nothing to do.
    pub(crate) fn after_nothing(&mut self, now_ns: u64) -> Look {
        if self.spin.should_spin(now_ns) { Look::Spin } else { Look::Sleep }
    }

    /// The caller slept for this long.
    pub(crate) fn on_slept(&mut self, slept_ns: u64) {
        self.spin.on_slept(slept_ns);
        self.moderation.on_slept(slept_ns);
    }
}
