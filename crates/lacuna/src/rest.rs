//! When a worker leaves its sockets alone for a while although packets may come.
//!
//! Waking up costs a thread more than the packets of a fraction of a millisecond
//! do, and on a long path nobody feels that. So a worker that has just moved a
//! burst, all of whose queue pairs allow it, sleeps before it looks again (the
//! interrupt moderation of network cards, one floor higher). What the application
//! asks for ends the rest at once, and so does a timer.
//!
//! Meanwhile the socket has to hold what comes. A rest is short at first, becomes
//! longer while little is found behind it, and shorter when that fills a good part
//! of the socket.
//!
//! What a wake-up costs is shared by what is moved behind it. At 1 Gbit/s a
//! millisecond has 125 KB for that, two pieces of segmentation offload; at
//! 100 Mbit/s a tenth, and waking up would be most of the work. So behind a flow
//! that goes on and on and moves little a rest becomes as long as its queue pairs
//! allow. Not behind one that has just begun: it may be a message whose end is near,
//! and an application that waits for it.

/// First rest.
const FIRST_NS: u64 = 100_000;
/// Never longer, whatever queue pairs say, where much is moved or has just begun to be.
const NS_MAX: u64 = 1_000_000;
/// Never longer at all. At 100 Mbit/s, which is 50 KB of it: most of a piece.
const LONG_NS_MAX: u64 = 4_000_000;
/// So many rests with something behind each are a flow that goes on and on: with
/// the round trip of a path that allows long ones, longer than a message that is
/// small there takes.
const STEADY_RESTS: u32 = 32;
/// Bytes moved between two rests, both ways: up to this a long one becomes longer,
/// beyond that shorter. The latter is what a piece of segmentation offload has: more
/// at once is no cheaper, a byte.
const LITTLE_BYTES: (u64, u64) = (32 << 10, 64 << 10);
/// Sockets that hold less are left alone for no longer than ever: 4 ms of 1 Gbit/s,
/// should that come, by the kernel's accounting.
const LONG_SOCKET_BYTES: u64 = 1 << 20;
/// What is found behind a rest, in parts of the socket buffer by the kernel's
/// accounting, which charges a packet up to twice: up to this rests become longer,
/// beyond this shorter.
const PARTS: (u64, u64) = (16, 8);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Rest {
    /// Queue pairs that allow none.
    restless: usize,
    /// The least that those served since the last rest allow.
    allowed_ns: u64,
    /// Much was moved since then.
    is_earned: bool,
    longest_ns: u64,
    /// Bytes received since then.
    bytes: u64,
    /// Bytes sent since then.
    sent_bytes: u64,
    /// Rests behind which there was something, since there was a pause.
    in_a_row: u32,
}

impl Rest {
    pub(crate) fn new() -> Self {
        Self {
            restless: 0,
            allowed_ns: u64::MAX,
            is_earned: false,
            longest_ns: FIRST_NS,
            bytes: 0,
            sent_bytes: 0,
            in_a_row: 0,
        }
    }

    /// A queue pair allows so much now, and did before; `None`: there is none.
    pub(crate) fn change(&mut self, before_ns: Option<u64>, now_ns: Option<u64>) {
        self.restless += usize::from(now_ns == Some(0));
        self.restless -= usize::from(before_ns == Some(0));
        self.allowed_ns = self.allowed_ns.min(now_ns.unwrap_or(u64::MAX));
    }

    /// A run of so many bytes was sent, which is much.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.is_earned = true;
        self.sent_bytes += bytes;
    }

    /// There was nothing to do.
    pub(crate) fn on_pause(&mut self) {
        self.in_a_row = 0;
    }

    /// A batch of so many bytes came, and whether that is much, for queue pairs
    /// that allow so much.
    pub(crate) fn on_received(&mut self, bytes: u64, is_much: bool, allowed_ns: u64) {
        self.bytes += bytes;
        self.allowed_ns = self.allowed_ns.min(allowed_ns);
        self.is_earned |= is_much;
    }

    /// Whether to rest now, and how long, with sockets that hold so much.
    pub(crate) fn take(&mut self, socket_bytes: u64) -> Option<u64> {
        let bytes = std::mem::take(&mut self.bytes);
        let moved_bytes = bytes + std::mem::take(&mut self.sent_bytes);
        let allowed_ns = std::mem::replace(&mut self.allowed_ns, u64::MAX);
        if !std::mem::take(&mut self.is_earned) || self.restless > 0 {
            return None;
        }
        if bytes > socket_bytes / PARTS.1 {
            self.longest_ns /= 2;
        } else if bytes < socket_bytes / PARTS.0 {
            self.adapt(moved_bytes, socket_bytes);
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let rest_ns = allowed_ns.min(self.longest_ns);
        (rest_ns >= FIRST_NS).then_some(rest_ns)
    }

    /// Makes the longest rest what the bytes moved behind the last one call for.
    fn adapt(&mut self, moved_bytes: u64, socket_bytes: u64) {
        let is_steady = self.in_a_row >= STEADY_RESTS && socket_bytes >= LONG_SOCKET_BYTES;
        let longer_ns = (self.longest_ns * 2).max(FIRST_NS);
        let shorter_ns = self.longest_ns / 2;
        self.longest_ns = match is_steady {
            true if moved_bytes <= LITTLE_BYTES.0 => longer_ns.min(LONG_NS_MAX),
            true if moved_bytes <= LITTLE_BYTES.1 => self.longest_ns.max(longer_ns.min(NS_MAX)),
            true if shorter_ns >= NS_MAX => shorter_ns,
            _ => longer_ns.min(NS_MAX),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET_BYTES: u64 = 400_000;

    #[test]
    fn whoever_allows_none_keeps_all_awake() {
        let mut rest = Rest::new();
        rest.change(None, Some(1_000_000));
        rest.on_sent(1000);
        assert!(rest.take(SOCKET_BYTES).is_some());
        assert_eq!(rest.take(SOCKET_BYTES), None, "once for what was moved");
        rest.change(None, Some(0));
        rest.on_sent(1000);
        assert_eq!(rest.take(SOCKET_BYTES), None);
        rest.change(Some(0), None);
        rest.change(Some(1_000_000), Some(1_000_000));
        rest.on_sent(1000);
        assert!(rest.take(SOCKET_BYTES).is_some());
    }

    #[test]
    fn a_slow_flow_that_goes_on_is_left_alone_for_longer_until_it_ends_or_is_fast() {
        const LARGE: u64 = 4 << 20;
        let mut rest = Rest::new();
        let take = |rest: &mut Rest, bytes, socket_bytes| {
            rest.change(Some(10_000_000), Some(10_000_000));
            rest.on_sent(bytes);
            rest.take(socket_bytes).unwrap()
        };
        let steady = |rest: &mut Rest, bytes, socket_bytes| {
            let rests = (0..100).map(|_| take(rest, bytes, socket_bytes));
            rests.max().unwrap()
        };
        let begun = (0..STEADY_RESTS).map(|_| take(&mut rest, 10_000, LARGE)).max();
        assert_eq!(begun, Some(1_000_000), "it may end soon");
        assert_eq!(steady(&mut rest, 10_000, LARGE), 4_000_000);
        assert_eq!(take(&mut rest, 50_000, LARGE), 4_000_000, "not more than a piece");
        assert_eq!(take(&mut rest, 100_000, LARGE), 2_000_000, "more");
        assert_eq!(take(&mut rest, 100_000, LARGE), 1_000_000);
        assert_eq!(take(&mut rest, 100_000, LARGE), 1_000_000, "as ever");
        assert_eq!(take(&mut rest, 10_000, LARGE), 2_000_000);
        rest.on_pause();
        assert_eq!(take(&mut rest, 10_000, LARGE), 1_000_000);
        assert_eq!(steady(&mut Rest::new(), 50_000, LARGE), 1_000_000);
        assert_eq!(steady(&mut Rest::new(), 10_000, SOCKET_BYTES), 1_000_000);
    }

    #[test]
    fn rests_are_as_long_as_the_socket_can_stand() {
        let mut rest = Rest::new();
        let mut take = |bytes| {
            rest.change(Some(1_000_000), Some(1_000_000));
            rest.on_received(bytes, true, 1_000_000);
            rest.take(SOCKET_BYTES)
        };
        let grown: Vec<_> = (0..5).map(|_| take(1000).unwrap()).collect();
        assert_eq!(grown, [200_000, 400_000, 800_000, 1_000_000, 1_000_000]);
        assert_eq!(take(100_000), Some(500_000));
        assert_eq!(take(40_000), Some(500_000));
        assert_eq!(
            [take(100_000), take(100_000), take(100_000)],
            [Some(250_000), Some(125_000), None]
        );
        assert_eq!(take(1000), Some(125_000));
    }
}
