//! Packets that this host refused to send, and for how long it has taken none at all.
//!
//! A refusal mostly passes: a firewall rule, a route that is away for a moment. What was refused did
//! not leave, so whoever asked asks again soon, and a search does not take it for an answer. Only a
//! host that takes nothing for a while ends a measurement: soon while no packet has gone yet, since
//! then there is most likely no way at all, and after the patience that a server has once there was.

/// How soon what was refused is sent again.
pub(super) const AGAIN_NS: u64 = 50_000_000;
/// How long a host may refuse everything while the server has not been heard: a moment, so that who
/// has no route is told so and need not wait for an answer that nobody can give.
pub(super) const REFUSED_NS_MAX: u64 = 1_000_000_000;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Since the host took one.
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

    /// Packets that were refused since the host took one.
    pub(super) fn in_a_row(&self) -> u64 {
        self.in_a_row
    }

    /// For how long the host has refused all; `None` if the last one went.
    pub(super) fn for_ns(&self, now_ns: u64) -> Option<u64> {
        (self.in_a_row > 0).then(|| now_ns.saturating_sub(self.since_ns))
    }
}
