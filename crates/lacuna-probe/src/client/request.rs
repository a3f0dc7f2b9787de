//! A request that is repeated until it is answered.

use super::refusals::REFUSED_RETRY_NS;
use super::{Packet, filler};
use crate::wire::Message;

/// Time after which a request is repeated, on a short path.
const RETRY_NS: u64 = 250_000_000;

/// A repeated request.
#[derive(Debug)]
pub(super) struct Request {
    message: Message,
    since_ns: u64,
    next_ns: u64,
    retry_ns: u64,
    sent: u32,
}

impl Request {
    pub(super) fn new(message: Message, now_ns: u64, rtt_ns: u64) -> Self {
        let retry_ns = RETRY_NS.max(rtt_ns + rtt_ns / 4);
        Self { message, since_ns: now_ns, next_ns: now_ns, retry_ns, sent: 0 }
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

    /// This host refused the packet: send it again soon.
    pub(super) fn on_refused(&mut self, now_ns: u64) {
        self.next_ns = self.next_ns.min(now_ns.saturating_add(REFUSED_RETRY_NS));
    }

    /// How often it was sent.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    pub(super) fn send(&mut self, now_ns: u64, key: u64) -> Packet {
        self.next_ns = now_ns.saturating_add(self.retry_ns);
        self.sent += 1;
        self.message.packet(key, 0, filler())
    }
}
