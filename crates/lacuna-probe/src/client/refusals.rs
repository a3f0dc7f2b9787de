//! Packets that this host refused to send, and for how long it has refused all.
//!
//! Refusals are mostly temporary: a firewall rule, a route that is missing for a moment. A refused packet
//! did not leave, so requests are repeated soon, and the MTU search does not count it as a result. Only
//! if the host refuses all packets for a while, the measurement ends: soon if the server has not answered
//! yet, since then there is most likely no route; otherwise after the longest silence of a server.

/// Pause before a refused packet is sent again.
pub(super) const REFUSED_RETRY_NS: u64 = 50_000_000;
/// How long a host may refuse all packets before the server has answered: short, so that a user without
/// a route learns about it at once.
pub(super) const REFUSED_NS_MAX: u64 = 1_000_000_000;

/// Counts refusals; see the module's text.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Refusals since the last packet that was sent.
    in_a_row: u64,
    since_ns: u64,
}

impl Refusals {
    pub(super) fn on_refused(&mut self, now_ns: u64) {
        if self.in_a_row == 0 {
            self.since_ns = now_ns;
        }
        self.in_a_row += 1;
    }

    pub(super) fn on_taken(&mut self) {
        self.in_a_row = 0;
    }

    /// Refusals since the last packet that was sent.
    pub(super) fn in_a_row(&self) -> u64 {
        self.in_a_row
    }

    /// For how long the host has refused all packets; `None` if the last one was sent.
    pub(super) fn for_ns(&self, now_ns: u64) -> Option<u64> {
        (self.in_a_row > 0).then(|| now_ns.saturating_sub(self.since_ns))
    }
}
