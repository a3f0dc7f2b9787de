//! Interrupt moderation: after a burst, the caller of an engine may wait before it polls the
//! sockets again, though packets may arrive.
//!
//! Waking up costs a thread more than handling the packets of a fraction of a millisecond, and on a
//! long path such a delay does not matter. So after a burst, if all queue pairs allow it, the
//! thread waits before the next step, as network cards wait before they interrupt. A command of the
//! application or a pressing timer ends the wait.
//!
//! The socket has to hold what arrives during a wait. So waits are short at first; they double
//! while little is found after them, and are halved when that fills a good part of the socket.
//! There is no wait while a socket may still hold packets: a step reads a bounded number, and with
//! a wait after each step the sender's window would be full most of the time. (The wait that a
//! queue pair allows may be far too long: a receiver knows the round-trip time from its first
//! packets, which a busy host may have delivered late.)
//!
//! The bytes moved after a wake-up share its cost. At 1 Gbit/s, 125 KB arrive in a millisecond, two
//! segmentation-offload bundles; at 100 Mbit/s a tenth of that, and wake-ups would be most of the
//! work. So for a flow that is slow and has lasted, a wait may become as long as the queue pairs
//! allow. Not for a flow that has just begun: it may be a short message whose end an application
//! waits for.

/// The first wait.
const FIRST_WAIT_NS: u64 = 100_000;
/// Shortest wait: a wake-up is late by as much, so a shorter one saves nothing.
const WAIT_NS_MIN: u64 = 50_000;
/// Longest wait for a flow that is fast or has just begun, whatever queue pairs allow.
const WAIT_NS_MAX: u64 = 1_000_000;
/// Longest wait of all. At 100 Mbit/s 50 KB arrive in it, most of a segmentation-offload bundle.
const LONG_WAIT_NS_MAX: u64 = 4_000_000;
/// Most bytes that may be moved, both ways together, during a wait longer than [`WAIT_NS_MAX`]: most of
/// a bundle. The cost per byte does not fall any more beyond it.
const LONG_BYTES_MAX: u64 = 56 << 10;
/// Spans of a millisecond or more in a row with traffic after which a flow counts as lasting. With
/// the round-trip time of a path that allows long waits, that is longer than a short message takes.
const STEADY_SPANS: u32 = 32;
/// A longer sleep is a pause of the flow. Bursts and reports of a flow without pauses are a few
/// milliseconds apart.
const PAUSE_NS: u64 = 10_000_000;
/// Smaller sockets are never left alone for longer than [`WAIT_NS_MAX`]: this holds 4 ms of 1 Gbit/s, as
/// the kernel counts.
const LONG_SOCKET_BYTES: u64 = 1 << 20;
/// Bytes found after a wait, as fractions of the socket buffer (1/16, 1/8; the kernel charges a
/// packet up to twice its bytes): below the first, waits get longer, above the second, shorter.
const SOCKET_PARTS: (u64, u64) = (16, 8);

/// The state of interrupt moderation in one engine.
#[derive(Debug)]
pub struct Moderation {
    /// Queue pairs that allow no wait.
    impatient: usize,
    /// The shortest wait that the queue pairs served since the last wait allow.
    allowed_ns: u64,
    /// A burst was moved since the last wait.
    is_earned: bool,
    longest_wait_ns: u64,
    /// Bytes received since the last wait.
    bytes: u64,
    /// A socket may still hold packets.
    may_have_unread: bool,
    pace: Pace,
}

/// Rate of the flow, measured over spans of at least 1 ms. (Not over waits: little is found after
/// one that ends early.)
#[derive(Debug)]
struct Pace {
    span_began_ns: u64,
    /// Bytes moved since `span_began_ns`, both ways.
    moved_bytes: u64,
    /// Spans since the last pause.
    spans_in_a_row: u32,
    /// The longest wait at the rate of the last span.
    wait_ns: u64,
}

impl Moderation {
    pub(crate) fn new() -> Self {
        Self {
            impatient: 0,
            allowed_ns: u64::MAX,
            is_earned: false,
            longest_wait_ns: FIRST_WAIT_NS,
            bytes: 0,
            may_have_unread: false,
            pace: Pace {
                span_began_ns: 0,
                moved_bytes: 0,
                spans_in_a_row: 0,
                wait_ns: WAIT_NS_MAX,
            },
        }
    }

    /// The wait that a queue pair allows has changed; `None` stands for no queue pair.
    #[inline]
    pub(crate) fn change(&mut self, before_ns: Option<u64>, now_ns: Option<u64>) {
        self.impatient += usize::from(now_ns == Some(0));
        self.impatient -= usize::from(before_ns == Some(0));
        self.allowed_ns = self.allowed_ns.min(now_ns.unwrap_or(u64::MAX));
    }

    /// A run was sent.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.is_earned = true;
        self.pace.moved_bytes += bytes;
    }

    /// The thread slept, because there was nothing to do.
    pub(crate) fn on_slept(&mut self, slept_ns: u64) {
        if slept_ns > PAUSE_NS {
            self.pace.spans_in_a_row = 0;
        }
    }

    /// Packets were received for queue pairs that allow a wait of `allowed_ns`. `is_bulk`: enough
    /// at once to be a bulk transfer.
    #[inline]
    pub(crate) fn on_received(&mut self, bytes: u64, is_bulk: bool, allowed_ns: u64) {
        self.bytes += bytes;
        self.pace.moved_bytes += bytes;
        self.allowed_ns = self.allowed_ns.min(allowed_ns);
        self.is_earned |= is_bulk;
    }

    /// A step has read as much from a socket as it may; more may be left.
    pub(crate) fn on_left(&mut self) {
        self.may_have_unread = true;
    }

    /// Whether to wait now, and how long. `socket_bytes`: receive buffer of the smallest socket.
    pub(crate) fn take(&mut self, now_ns: u64, socket_bytes: u64) -> Option<u64> {
        if std::mem::take(&mut self.may_have_unread) {
            return None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let allowed_ns = std::mem::replace(&mut self.allowed_ns, u64::MAX);
        if !std::mem::take(&mut self.is_earned) || self.impatient > 0 {
            return None;
        }
        let pace_ns = self.pace.wait_ns(now_ns);
        let most_ns = if socket_bytes < LONG_SOCKET_BYTES { WAIT_NS_MAX } else { pace_ns };
        if bytes > socket_bytes / SOCKET_PARTS.1 {
            self.longest_wait_ns /= 2;
        } else if bytes < socket_bytes / SOCKET_PARTS.0 {
            self.longest_wait_ns = (self.longest_wait_ns * 2).max(FIRST_WAIT_NS);
        }
        self.longest_wait_ns = self.longest_wait_ns.min(most_ns);
        let wait_ns = allowed_ns.min(self.longest_wait_ns);
        (wait_ns >= WAIT_NS_MIN).then_some(wait_ns)
    }
}

impl Pace {
    /// The longest wait that may begin now.
    fn wait_ns(&mut self, now_ns: u64) -> u64 {
        let span_ns = now_ns.saturating_sub(self.span_began_ns);
        if span_ns >= WAIT_NS_MAX {
            self.spans_in_a_row = self.spans_in_a_row.saturating_add(1);
            let bundle_ns = span_ns.saturating_mul(LONG_BYTES_MAX) / self.moved_bytes.max(1);
            self.wait_ns = bundle_ns.clamp(WAIT_NS_MAX, LONG_WAIT_NS_MAX);
            (self.span_began_ns, self.moved_bytes) = (now_ns, 0);
        }
        if self.spans_in_a_row > STEADY_SPANS { self.wait_ns } else { WAIT_NS_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET_BYTES: u64 = 400_000;

    #[test]
    fn one_queue_pair_that_allows_no_wait_keeps_the_thread_looking() {
        let mut moderation = Moderation::new();
        moderation.change(None, Some(1_000_000));
        moderation.on_sent(1000);
        assert!(moderation.take(0, SOCKET_BYTES).is_some());
        assert_eq!(moderation.take(0, SOCKET_BYTES), None, "once for what was moved");
        moderation.change(None, Some(0));
        moderation.on_sent(1000);
        assert_eq!(moderation.take(0, SOCKET_BYTES), None);
        moderation.change(Some(0), None);
        moderation.change(Some(1_000_000), Some(1_000_000));
        moderation.on_sent(1000);
        assert!(moderation.take(0, SOCKET_BYTES).is_some());
    }

    /// The longest wait of a flow of `kbit_per_ms` that lasts `ms`, with waits that end on time.
    fn longest_of(
        moderation: &mut Moderation,
        now_ns: &mut u64,
        kbit_per_ms: u64,
        ms: u64,
        socket: u64,
    ) -> u64 {
        let (end_ns, mut longest_wait_ns) = (*now_ns + ms * 1_000_000, 0);
        let mut waited_ns = 1_000_000;
        while *now_ns < end_ns {
            moderation.change(Some(10_000_000), Some(10_000_000));
            moderation.on_sent(waited_ns * kbit_per_ms / 8000);
            waited_ns = moderation.take(*now_ns, socket).unwrap();
            longest_wait_ns = longest_wait_ns.max(waited_ns);
            *now_ns += waited_ns;
        }
        longest_wait_ns
    }

    #[test]
    fn a_slow_flow_that_goes_on_is_left_alone_for_longer_until_it_pauses_or_is_fast() {
        const LARGE: u64 = 4 << 20;
        let (mut moderation, mut now_ns) = (Moderation::new(), 5_000_000);
        let mut longest = |moderation: &mut Moderation, kbit_per_ms, ms, socket| {
            longest_of(moderation, &mut now_ns, kbit_per_ms, ms, socket)
        };
        assert_eq!(longest(&mut moderation, 100, 30, LARGE), 1_000_000, "it may end soon");
        assert_eq!(longest(&mut moderation, 100, 30, LARGE), 4_000_000);
        longest(&mut moderation, 1000, 10, LARGE);
        assert_eq!(longest(&mut moderation, 1000, 100, LARGE), 1_000_000, "fast");
        assert_eq!(longest(&mut moderation, 100, 20, LARGE), 4_000_000);
        moderation.on_slept(20_000_000);
        assert_eq!(longest(&mut moderation, 100, 30, LARGE), 1_000_000);
        let between = longest(&mut Moderation::new(), 200, 100, LARGE);
        assert!((2_000_000..3_000_000).contains(&between), "a bundle, not {between}");
        assert_eq!(longest(&mut Moderation::new(), 100, 100, SOCKET_BYTES), 1_000_000);
    }

    #[test]
    fn waits_that_end_early_make_a_fast_flow_no_slow_one() {
        let (mut moderation, mut now_ns) = (Moderation::new(), 5_000_000);
        for _ in 0..1000 {
            moderation.change(Some(10_000_000), Some(10_000_000));
            moderation.on_sent(12_500);
            assert!(moderation.take(now_ns, 4 << 20).unwrap() <= 1_000_000);
            now_ns += 100_000;
        }
    }

    #[test]
    fn there_is_no_wait_while_something_lies_in_a_socket_and_all_that_lay_there_counts() {
        let mut moderation = Moderation::new();
        let mut take = |steps| {
            moderation.change(Some(1_000_000), Some(1_000_000));
            for _ in 1..steps {
                moderation.on_received(30_000, true, 1_000_000);
                moderation.on_left();
                assert_eq!(moderation.take(0, SOCKET_BYTES), None);
            }
            moderation.on_received(30_000, true, 1_000_000);
            moderation.take(0, SOCKET_BYTES)
        };
        assert_eq!(take(1), Some(100_000));
        assert_eq!(take(2), Some(50_000));
        assert_eq!(take(2), None);
    }

    #[test]
    fn waits_are_as_long_as_the_socket_can_stand() {
        let mut moderation = Moderation::new();
        let mut take = |bytes| {
            moderation.change(Some(1_000_000), Some(1_000_000));
            moderation.on_received(bytes, true, 1_000_000);
            moderation.take(0, SOCKET_BYTES)
        };
        let grown: Vec<_> = (0..5).map(|_| take(1000).unwrap()).collect();
        assert_eq!(grown, [200_000, 400_000, 800_000, 1_000_000, 1_000_000]);
        assert_eq!(take(100_000), Some(500_000));
        assert_eq!(take(40_000), Some(500_000));
        assert_eq!(
            [take(100_000), take(100_000), take(100_000)],
            [Some(250_000), Some(125_000), Some(62_500)]
        );
        assert_eq!([take(100_000), take(1000), take(1000)], [None, Some(100_000), Some(200_000)]);
    }
}
