//! The idle policy: when the owner of an engine looks at its datapaths again.
//!
//! There are four answers ([`Look`]), and one place that gives them:
//!
//! | answer | when | file |
//! |---|---|---|
//! | look at once | the last step did something, and nothing speaks for waiting | |
//! | wait, whatever comes | behind a burst on long paths: interrupt moderation | `moderation.rs` |
//! | spin | nothing was to do, and a peer is so near that waking up would be felt | `spin.rs` |
//! | sleep until woken | else | |
//!
//! The facts come from the queue pairs ([`Patience`]: round trips, what they wait for, how near the
//! ends of their messages are) and from the engine: bytes moved, whether a socket was emptied, how long
//! sleeps took. A queue pair decides nothing here. (What a UDP socket does to get more packets from
//! one call is the datapath's business, `lacuna_datapath::udp`.)

mod moderation;
mod patience;
mod spin;

use core::time::Duration;
pub use moderation::Moderation;
pub use patience::Patience;
use spin::Spin;

/// When to look at the datapaths again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// At once.
    Now,
    /// At once; there may be nothing.
    Spin,
    /// After so many nanoseconds, whatever comes meanwhile. Only what the application asks for ends
    /// that before.
    After(u64),
    /// When something comes, or it is time ([`crate::Engine::next_event_ns`]).
    Sleep,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) moderation: Moderation,
    spin: Spin,
}

impl Idle {
    /// A policy that spins for so long before it sleeps.
    pub(crate) fn new(spin: Duration) -> Self {
        Self { moderation: Moderation::new(), spin: Spin::new(spin) }
    }

    /// A queue pair's patience is another now; `None`: there is no such queue pair.
    #[inline]
    pub(crate) fn on_patience(&mut self, before: Option<Patience>, now: Option<Patience>) {
        let wait_ns = |patience: Patience| patience.wait_ns;
        self.moderation.change(before.map(wait_ns), now.map(wait_ns));
        let is_near = |patience: Option<Patience>| patience.is_some_and(|known| known.is_near);
        self.spin.change(is_near(before), is_near(now));
    }

    /// The last step has done something: when to look again, with sockets that hold so much.
    pub(crate) fn after_work(&mut self, now_ns: u64, socket_bytes: u64) -> Look {
        self.spin.on_work();
        self.moderation.take(now_ns, socket_bytes).map_or(Look::Now, Look::After)
    }

    /// The last step had nothing to do: when to look again.
    pub(crate) fn after_nothing(&mut self, now_ns: u64) -> Look {
        if self.spin.looks_again(now_ns) { Look::Spin } else { Look::Sleep }
    }

    /// The owner slept for so long.
    pub(crate) fn on_slept(&mut self, slept_ns: u64) {
        self.spin.on_slept(slept_ns);
        self.moderation.on_slept(slept_ns);
    }
}
