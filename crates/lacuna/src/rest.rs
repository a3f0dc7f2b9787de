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

/// First rest.
const FIRST_NS: u64 = 100_000;
/// Never longer, whatever queue pairs say.
const NS_MAX: u64 = 1_000_000;
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
}

impl Rest {
    pub(crate) fn new() -> Self {
        let (restless, allowed_ns, is_earned) = (0, u64::MAX, false);
        Self { restless, allowed_ns, is_earned, longest_ns: FIRST_NS, bytes: 0 }
    }

    /// A queue pair allows so much now, and did before; `None`: there is none.
    pub(crate) fn change(&mut self, before_ns: Option<u64>, now_ns: Option<u64>) {
        self.restless += usize::from(now_ns == Some(0));
        self.restless -= usize::from(before_ns == Some(0));
        self.allowed_ns = self.allowed_ns.min(now_ns.unwrap_or(u64::MAX));
    }

    /// Much was sent.
    pub(crate) fn on_sent(&mut self) {
        self.is_earned = true;
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
        let allowed_ns = std::mem::replace(&mut self.allowed_ns, u64::MAX);
        if !std::mem::take(&mut self.is_earned) || self.restless > 0 {
            return None;
        }
        if bytes > socket_bytes / PARTS.1 {
            self.longest_ns /= 2;
        } else if bytes < socket_bytes / PARTS.0 {
            self.longest_ns = (self.longest_ns * 2).clamp(FIRST_NS, NS_MAX);
        }
        let rest_ns = allowed_ns.min(self.longest_ns);
        (rest_ns >= FIRST_NS).then_some(rest_ns)
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
        rest.on_sent();
        assert!(rest.take(SOCKET_BYTES).is_some());
        assert_eq!(rest.take(SOCKET_BYTES), None, "once for what was moved");
        rest.change(None, Some(0));
        rest.on_sent();
        assert_eq!(rest.take(SOCKET_BYTES), None);
        rest.change(Some(0), None);
        rest.change(Some(1_000_000), Some(1_000_000));
        rest.on_sent();
        assert!(rest.take(SOCKET_BYTES).is_some());
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
