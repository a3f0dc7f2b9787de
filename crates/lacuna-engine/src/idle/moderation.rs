//! Interrupt moderation for whoever owns an engine: after a burst, it may leave its sockets alone for a
//! while although packets may come.
//!
//! Waking up costs a thread more than handling the packets of a fraction of a millisecond does, and on
//! a long path nobody feels that delay. So a thread that has just moved a burst, all of whose queue
//! pairs allow it, waits before it looks again, as network cards do before they interrupt. A request of
//! the application ends the wait at once; so does a timer that presses.
//!
//! The socket has to hold what arrives during a wait. So waits are short at first. They double while
//! little is found behind them, and are halved when what is found fills a good part of the socket.
//! There is no wait while a socket may still hold packets: a step reads only so much, and with a wait
//! behind each step the sender's window would be full most of the time. (What a queue pair allows may
//! be far off: a receiver knows the round trip by its first packets, which a busy host may have
//! delivered late.)
//!
//! The cost of a wake-up is shared by what is moved behind it. At 1 Gbit/s a millisecond brings 125 KB,
//! two pieces of segmentation offload; at 100 Mbit/s a tenth of that, and waking up would be most of
//! the work. So behind a flow that has gone on for long and moves little, a wait becomes as long as the
//! queue pairs allow. Behind a flow that has just begun it does not: it may be a short message whose
//! end an application waits for.

/// The first wait.
const FIRST_NS: u64 = 100_000;
/// Shorter waits save nothing: a wake-up is late by as much.
const NS_MIN: u64 = 50_000;
/// The longest wait behind a flow that is fast or has just begun, whatever queue pairs allow.
const NS_MAX: u64 = 1_000_000;
/// The longest wait of all. At 100 Mbit/s 50 KB arrive in it, most of a piece of segmentation offload.
const LONG_NS_MAX: u64 = 4_000_000;
/// What may be moved during a wait beyond [`NS_MAX`], both ways together: most of a piece of
/// segmentation offload. A byte is no cheaper in larger amounts.
const LONG_BYTES_MAX: u64 = 56 << 10;
/// A flow is steady after so many milliseconds in a row in which something was moved: with the round
/// trip of a path that allows long waits, longer than a short message takes there.
const STEADY_SPANS: u32 = 32;
/// A longer sleep is a pause of the flow. Bursts and reports of a flow without pauses are a few
/// milliseconds apart.
const PAUSE_NS: u64 = 10_000_000;
/// Sockets that hold less are never left alone for longer than [`NS_MAX`]: this is 4 ms of 1 Gbit/s,
/// by the kernel's accounting.
const LONG_SOCKET_BYTES: u64 = 1 << 20;
/// What is found behind a wait, in parts of the socket buffer by the kernel's accounting, which charges
/// a packet up to twice: below the first part waits become longer, above the second shorter.
const PARTS: (u64, u64) = (16, 8);

/// See the module's text.
#[derive(Debug)]
pub struct Moderation {
    /// Queue pairs that allow no wait.
    impatient: usize,
    /// The shortest wait that a queue pair served since the last wait allows.
    allowed_ns: u64,
    /// A burst was moved since then.
    is_earned: bool,
    longest_ns: u64,
    /// Bytes received since then.
    bytes: u64,
    /// A socket may still hold packets.
    is_left: bool,
    pace: Pace,
}

/// How fast the flow is, measured over spans of at least a millisecond. (Waits would be the wrong
/// measure: one that ends early has little behind it at any rate.)
#[derive(Debug)]
struct Pace {
    began_ns: u64,
    /// Bytes moved since then, both ways.
    moved_bytes: u64,
    /// Spans since there was a pause.
    in_a_row: u32,
    /// The longest wait that the rate of the last span allows.
    wait_ns: u64,
}

impl Moderation {
    pub(crate) fn new() -> Self {
        Self {
            impatient: 0,
            allowed_ns: u64::MAX,
            is_earned: false,
            longest_ns: FIRST_NS,
            bytes: 0,
            is_left: false,
            pace: Pace { began_ns: 0, moved_bytes: 0, in_a_row: 0, wait_ns: NS_MAX },
        }
    }

    /// A queue pair allows a wait of so long now, and did before; `None`: there is none.
    #[inline]
    pub(crate) fn change(&mut self, before_ns: Option<u64>, now_ns: Option<u64>) {
        self.impatient += usize::from(now_ns == Some(0));
        self.impatient -= usize::from(before_ns == Some(0));
        self.allowed_ns = self.allowed_ns.min(now_ns.unwrap_or(u64::MAX));
    }

    /// A run of so many bytes was sent.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.is_earned = true;
        self.pace.moved_bytes += bytes;
    }

    /// The thread slept for so long, because there was nothing to do.
    pub(crate) fn on_slept(&mut self, slept_ns: u64) {
        if slept_ns > PAUSE_NS {
            self.pace.in_a_row = 0;
        }
    }

    /// So many bytes were received for queue pairs that allow a wait of so long; `is_much`: enough
    /// packets at once to be a bulk transfer.
    #[inline]
    pub(crate) fn on_received(&mut self, bytes: u64, is_much: bool, allowed_ns: u64) {
        self.bytes += bytes;
        self.pace.moved_bytes += bytes;
        self.allowed_ns = self.allowed_ns.min(allowed_ns);
        self.is_earned |= is_much;
    }

    /// A step has read as much from a socket as it may, which need not be all.
    pub(crate) fn on_left(&mut self) {
        self.is_left = true;
    }

    /// Whether to wait now, and how long, with sockets that hold so much.
    pub(crate) fn take(&mut self, now_ns: u64, socket_bytes: u64) -> Option<u64> {
        if std::mem::take(&mut self.is_left) {
            return None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let allowed_ns = std::mem::replace(&mut self.allowed_ns, u64::MAX);
        if !std::mem::take(&mut self.is_earned) || self.impatient > 0 {
            return None;
        }
        let pace_ns = self.pace.wait_ns(now_ns);
        let most_ns = if socket_bytes < LONG_SOCKET_BYTES { NS_MAX } else { pace_ns };
        if bytes > socket_bytes / PARTS.1 {
            self.longest_ns /= 2;
        } else if bytes < socket_bytes / PARTS.0 {
            self.longest_ns = (self.longest_ns * 2).max(FIRST_NS);
        }
        self.longest_ns = self.longest_ns.min(most_ns);
        let wait_ns = allowed_ns.min(self.longest_ns);
        (wait_ns >= NS_MIN).then_some(wait_ns)
    }
}

impl Pace {
    /// The longest wait that may begin now.
    fn wait_ns(&mut self, now_ns: u64) -> u64 {
        let span_ns = now_ns.saturating_sub(self.began_ns);
        if span_ns >= NS_MAX {
            self.in_a_row = self.in_a_row.saturating_add(1);
            let piece_ns = span_ns.saturating_mul(LONG_BYTES_MAX) / self.moved_bytes.max(1);
            self.wait_ns = piece_ns.clamp(NS_MAX, LONG_NS_MAX);
            (self.began_ns, self.moved_bytes) = (now_ns, 0);
        }
        if self.in_a_row > STEADY_SPANS { self.wait_ns } else { NS_MAX }
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

    /// A flow of this rate behind waits that end when they should, for so long; the longest.
    fn longest_of(
        moderation: &mut Moderation,
        now_ns: &mut u64,
        kbit_per_ms: u64,
        ms: u64,
        socket: u64,
    ) -> u64 {
        let (end_ns, mut longest_ns) = (*now_ns + ms * 1_000_000, 0);
        let mut waited_ns = 1_000_000;
        while *now_ns < end_ns {
            moderation.change(Some(10_000_000), Some(10_000_000));
            moderation.on_sent(waited_ns * kbit_per_ms / 8000);
            waited_ns = moderation.take(*now_ns, socket).unwrap();
            longest_ns = longest_ns.max(waited_ns);
            *now_ns += waited_ns;
        }
        longest_ns
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
        assert!((2_000_000..3_000_000).contains(&between), "a piece, not {between}");
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
