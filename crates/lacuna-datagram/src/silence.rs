//! When a message of which nothing more comes is taken for over.
//!
//! Segments of a message come in bundles with pauses between them: the host's, and those of a source that serves many
//! peers in turns. Four times the longest pause of late without a segment is *silence*; ten milliseconds at least,
//! and a second at most, so that no source holds a place for long. Datagram-iWARP leaves the time open (2.2).

/// Silence is this many times what segments were apart.
const INTERVALS: u64 = 4;
/// The least: how long a busy host, or a source that serves many in turns, may let a message rest.
const NS_MIN: u64 = 10_000_000;
/// The most: however slow the source is, a message of which a segment is lost holds its place no longer.
const NS_MAX: u64 = 1_000_000_000;
/// Before two segments were seen: longer than the pauses of slow senders.
const NS_UNKNOWN: u64 = 50_000_000;
/// What a long interval loses with each shorter one after it: 1 / 2^this.
const INTERVAL_SHIFT: u32 = 3;

/// The pauses of one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    pub(crate) last_ns: u64,
    /// The longest interval between segments, of late.
    interval_ns: Option<u64>,
}

impl Silence {
    /// A first segment came.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { last_ns: now_ns, interval_ns: None }
    }

    /// Another one came.
    pub(crate) fn on_segment(&mut self, now_ns: u64) {
        // Those that came in one bundle say nothing about time.
        let interval_ns = now_ns.saturating_sub(self.last_ns);
        if interval_ns > 0 {
            self.interval_ns = Some(match self.interval_ns {
                None => interval_ns,
                Some(longest) => interval_ns.max(longest - (longest >> INTERVAL_SHIFT)),
            });
        }
        self.last_ns = now_ns;
    }

    /// How long is silence.
    pub(crate) fn ns(&self) -> u64 {
        self.interval_ns.map_or(NS_UNKNOWN, |interval_ns| {
            interval_ns.saturating_mul(INTERVALS).clamp(NS_MIN, NS_MAX)
        })
    }

    /// When it is over if nothing more comes.
    pub(crate) fn due_ns(&self) -> u64 {
        self.last_ns.saturating_add(self.ns())
    }
}
