//! A question that is repeated until it is answered.

use super::refusals::AGAIN_NS as REFUSED_AGAIN_NS;
use super::{Packet, filler};
use crate::wire::Message;

/// How long an answer may take before the question is repeated, on a short path.
const AGAIN_NS: u64 = 250_000_000;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Asking {
    message: Message,
    since_ns: u64,
    next_ns: u64,
    again_ns: u64,
    asked: u32,
}

impl Asking {
    pub(super) fn new(message: Message, now_ns: u64, rtt_ns: u64) -> Self {
        let again_ns = AGAIN_NS.max(rtt_ns + rtt_ns / 4);
        Self { message, since_ns: now_ns, next_ns: now_ns, again_ns, asked: 0 }
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    pub(super) fn waited_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns)
    }

    /// It did not leave: it is asked again soon.
    pub(super) fn on_refused(&mut self, now_ns: u64) {
        self.next_ns = self.next_ns.min(now_ns.saturating_add(REFUSED_AGAIN_NS));
    }

    /// How often it was asked.
    pub(super) fn asked(&self) -> u32 {
        self.asked
    }

    pub(super) fn ask(&mut self, now_ns: u64, key: u64) -> Packet {
        self.next_ns = now_ns.saturating_add(self.again_ns);
        self.asked += 1;
        self.message.packet(key, 0, filler())
    }
}
