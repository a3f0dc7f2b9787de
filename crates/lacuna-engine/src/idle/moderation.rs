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
//! of the socket. While something lies there there is none: a step reads only so much,
//! and with a rest behind each the sender's window would be full for most of the time.
//! (What a queue pair allows may be wrong by far: who only receives knows the round trip
//! by its first packets, which a busy host may have delivered late.)
//!
//! What a wake-up costs is shared by what is moved behind it. At 1 Gbit/s a
//! millisecond has 125 KB for that, two pieces of segmentation offload; at
//! 100 Mbit/s a tenth, and waking up would be most of the work. So behind a flow
//! that goes on and on and moves little a rest becomes as long as its queue pairs
//! allow. Not behind one that has just begun: it may be a message whose end is near,
//! and an application that waits for it.

/// First rest.
const FIRST_NS: u64 = 100_000;
/// Shorter ones save nothing: that much a wake-up is late by itself.
const NS_MIN: u64 = 50_000;
/// Never longer, whatever queue pairs say, where much is moved or has just begun to be.
const NS_MAX: u64 = 1_000_000;
/// Never longer at all. At 100 Mbit/s, which is 50 KB of it: most of a piece.
const LONG_NS_MAX: u64 = 4_000_000;
/// What a rest beyond [`NS_MAX`] may be behind, both ways together: most of a piece
/// of segmentation offload. More at once is no cheaper, a byte.
const LONG_BYTES_MAX: u64 = 56 << 10;
/// So many milliseconds in a row with something in each are a flow that goes on and
/// on: with the round trip of a path that allows long rests, longer than a message
/// that is small there takes.
const STEADY_SPANS: u32 = 32;
/// Nothing to do for longer is a pause in such a flow. Bursts and reports of a flow that has none
/// are a few milliseconds apart.
const PAUSE_NS: u64 = 10_000_000;
/// Sockets that hold less are left alone for no longer than ever: 4 ms of 1 Gbit/s,
/// should that come, by the kernel's accounting.
const LONG_SOCKET_BYTES: u64 = 1 << 20;
/// What is found behind a rest, in parts of the socket buffer by the kernel's
/// accounting, which charges a packet up to twice: up to this rests become longer,
/// beyond this shorter.
const PARTS: (u64, u64) = (16, 8);

/// See the module's text.
#[derive(Debug)]
pub struct Moderation {
    /// Queue pairs that allow none.
    restless: usize,
    /// The least that those served since the last rest allow.
    allowed_ns: u64,
    /// Much was moved since then.
    is_earned: bool,
    longest_ns: u64,
    /// Bytes received since then.
    bytes: u64,
    /// More may lie in a socket.
    is_left: bool,
    pace: Pace,
}

/// How fast what is moved is, by spans of a millisecond at least, from rest to rest:
/// not by rests, of which one that ends early has little behind it at any rate.
#[derive(Debug)]
struct Pace {
    began_ns: u64,
    /// Bytes moved since then, both ways.
    moved_bytes: u64,
    /// Spans since there was a pause.
    in_a_row: u32,
    /// A rest may be so long.
    rest_ns: u64,
}

impl Moderation {
    pub(crate) fn new() -> Self {
        Self {
            restless: 0,
            allowed_ns: u64::MAX,
            is_earned: false,
            longest_ns: FIRST_NS,
            bytes: 0,
            is_left: false,
            pace: Pace { began_ns: 0, moved_bytes: 0, in_a_row: 0, rest_ns: NS_MAX },
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
        self.pace.moved_bytes += bytes;
    }

    /// There was nothing to do for so long.
    pub(crate) fn on_slept(&mut self, slept_ns: u64) {
        if slept_ns > PAUSE_NS {
            self.pace.in_a_row = 0;
        }
    }

    /// A batch of so many bytes came, and whether that is much, for queue pairs
    /// that allow so much.
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

    /// Whether to rest now, and how long, with sockets that hold so much.
    pub(crate) fn take(&mut self, now_ns: u64, socket_bytes: u64) -> Option<u64> {
        if std::mem::take(&mut self.is_left) {
            return None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let allowed_ns = std::mem::replace(&mut self.allowed_ns, u64::MAX);
        if !std::mem::take(&mut self.is_earned) || self.restless > 0 {
            return None;
        }
        let pace_ns = self.pace.rest_ns(now_ns);
        let most_ns = if socket_bytes < LONG_SOCKET_BYTES { NS_MAX } else { pace_ns };
        if bytes > socket_bytes / PARTS.1 {
            self.longest_ns /= 2;
        } else if bytes < socket_bytes / PARTS.0 {
            self.longest_ns = (self.longest_ns * 2).max(FIRST_NS);
        }
        self.longest_ns = self.longest_ns.min(most_ns);
        let rest_ns = allowed_ns.min(self.longest_ns);
        (rest_ns >= NS_MIN).then_some(rest_ns)
    }
}

impl Pace {
    /// How long a rest may be, beginning now.
    fn rest_ns(&mut self, now_ns: u64) -> u64 {
        let span_ns = now_ns.saturating_sub(self.began_ns);
        if span_ns >= NS_MAX {
            self.in_a_row = self.in_a_row.saturating_add(1);
            let piece_ns = span_ns.saturating_mul(LONG_BYTES_MAX) / self.moved_bytes.max(1);
            self.rest_ns = piece_ns.clamp(NS_MAX, LONG_NS_MAX);
            (self.began_ns, self.moved_bytes) = (now_ns, 0);
        }
        if self.in_a_row > STEADY_SPANS { self.rest_ns } else { NS_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET_BYTES: u64 = 400_000;

    #[test]
    fn whoever_allows_none_keeps_all_awake() {
        let mut rest = Moderation::new();
        rest.change(None, Some(1_000_000));
        rest.on_sent(1000);
        assert!(rest.take(0, SOCKET_BYTES).is_some());
        assert_eq!(rest.take(0, SOCKET_BYTES), None, "once for what was moved");
        rest.change(None, Some(0));
        rest.on_sent(1000);
        assert_eq!(rest.take(0, SOCKET_BYTES), None);
        rest.change(Some(0), None);
        rest.change(Some(1_000_000), Some(1_000_000));
        rest.on_sent(1000);
        assert!(rest.take(0, SOCKET_BYTES).is_some());
    }

    /// A flow of this rate behind rests that end when they should, for so long; the longest.
    fn longest_of(
        rest: &mut Moderation,
        now_ns: &mut u64,
        kbit_per_ms: u64,
        ms: u64,
        socket: u64,
    ) -> u64 {
        let (end_ns, mut longest_ns) = (*now_ns + ms * 1_000_000, 0);
        let mut rested_ns = 1_000_000;
        while *now_ns < end_ns {
            rest.change(Some(10_000_000), Some(10_000_000));
            rest.on_sent(rested_ns * kbit_per_ms / 8000);
            rested_ns = rest.take(*now_ns, socket).unwrap();
            longest_ns = longest_ns.max(rested_ns);
            *now_ns += rested_ns;
        }
        longest_ns
    }

    #[test]
    fn a_slow_flow_that_goes_on_is_left_alone_for_longer_until_it_pauses_or_is_fast() {
        const LARGE: u64 = 4 << 20;
        let (mut rest, mut now_ns) = (Moderation::new(), 5_000_000);
        let mut longest = |rest: &mut Moderation, kbit_per_ms, ms, socket| {
            longest_of(rest, &mut now_ns, kbit_per_ms, ms, socket)
        };
        assert_eq!(longest(&mut rest, 100, 30, LARGE), 1_000_000, "it may end soon");
        assert_eq!(longest(&mut rest, 100, 30, LARGE), 4_000_000);
        longest(&mut rest, 1000, 10, LARGE);
        assert_eq!(longest(&mut rest, 1000, 100, LARGE), 1_000_000, "fast");
        assert_eq!(longest(&mut rest, 100, 20, LARGE), 4_000_000);
        rest.on_slept(20_000_000);
        assert_eq!(longest(&mut rest, 100, 30, LARGE), 1_000_000);
        let between = longest(&mut Moderation::new(), 200, 100, LARGE);
        assert!((2_000_000..3_000_000).contains(&between), "a piece, not {between}");
        assert_eq!(longest(&mut Moderation::new(), 100, 100, SOCKET_BYTES), 1_000_000);
    }

    #[test]
    fn rests_that_end_early_make_a_fast_flow_no_slow_one() {
        let (mut rest, mut now_ns) = (Moderation::new(), 5_000_000);
        for _ in 0..1000 {
            rest.change(Some(10_000_000), Some(10_000_000));
            rest.on_sent(12_500);
            assert!(rest.take(now_ns, 4 << 20).unwrap() <= 1_000_000);
            now_ns += 100_000;
        }
    }

    #[test]
    fn there_is_no_rest_while_something_lies_in_a_socket_and_all_that_lay_there_counts() {
        let mut rest = Moderation::new();
        let mut take = |steps| {
            rest.change(Some(1_000_000), Some(1_000_000));
            for _ in 1..steps {
                rest.on_received(30_000, true, 1_000_000);
                rest.on_left();
                assert_eq!(rest.take(0, SOCKET_BYTES), None);
            }
            rest.on_received(30_000, true, 1_000_000);
            rest.take(0, SOCKET_BYTES)
        };
        assert_eq!(take(1), Some(100_000));
        assert_eq!(take(2), Some(50_000));
        assert_eq!(take(2), None);
    }

    #[test]
    fn rests_are_as_long_as_the_socket_can_stand() {
        let mut rest = Moderation::new();
        let mut take = |bytes| {
            rest.change(Some(1_000_000), Some(1_000_000));
            rest.on_received(bytes, true, 1_000_000);
            rest.take(0, SOCKET_BYTES)
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
