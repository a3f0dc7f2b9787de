//! A message that is open: what came of it, and when it is over if nothing more comes.

use crate::groups::OPEN_NS;
use crate::peers::Numbered;
use crate::work::{Ended, RecvWork};
use lacuna_path::ranges::Ranges;
use std::ops::Range;

/// Silence is this many times what segments are apart.
const SILENCE_INTERVALS: u64 = 4;
/// The least silence: what a busy host may hold packets back.
pub(super) const SILENCE_NS_MIN: u64 = 1_000_000;
/// The most: however slow the source is, a message of which a segment is lost holds its place no longer.
const SILENCE_NS_MAX: u64 = 1_000_000_000;
/// Silence before two segments were seen: longer than the pauses of slow senders.
const SILENCE_NS_UNKNOWN: u64 = 50_000_000;
/// How long the segments of a message may be overtaken by later messages.
pub(super) const OVERTAKEN_NS: u64 = 1_000_000;
/// Weight of a new interval: 1 / 2^this.
const INTERVAL_SHIFT: u32 = 3;

/// Where an open message goes.
#[derive(Debug)]
pub(super) enum Goal {
    Receive(RecvWork),
    Record { key: u32, generation: u64, base: u64 },
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) numbered: Numbered,
    pub(super) number: u32,
    pub(super) goal: Goal,
    pub(super) length: u32,
    pub(super) came: Ranges,
    pub(super) bytes: u64,
    pub(super) last_ns: u64,
    pub(super) interval_ns: Option<u64>,
    /// When a later message of the source came first.
    pub(super) overtaken_ns: Option<u64>,
    pub(super) missed: u32,
    pub(super) is_solicited: bool,
    /// It is for a group, so what is missing may be repaired.
    pub(super) is_of_group: bool,
}

impl Open {
    pub(super) fn new(
        numbered: Numbered,
        number: u32,
        goal: Goal,
        length: u32,
        now_ns: u64,
    ) -> Self {
        Self {
            numbered,
            number,
            goal,
            length,
            came: Ranges::default(),
            bytes: 0,
            last_ns: now_ns,
            interval_ns: None,
            overtaken_ns: None,
            missed: 0,
            is_solicited: false,
            is_of_group: false,
        }
    }

    pub(super) fn add(&mut self, place: u32, bytes: usize) {
        let start = u64::from(place);
        self.came.add(start..start + bytes as u64);
        self.bytes += bytes as u64;
    }

    /// What is there around a segment once it is there, too.
    pub(super) fn merged(&self, range: &Range<u64>) -> Range<u64> {
        let wide = range.start.saturating_sub(1)..range.end + 1;
        let mut merged = range.clone();
        for there in self.came.within(&wide) {
            merged = merged.start.min(there.start)..merged.end.max(there.end);
        }
        merged
    }

    pub(super) fn on_segment(&mut self, now_ns: u64) {
        // Those that came in one bundle say nothing about time.
        let interval_ns = now_ns.saturating_sub(self.last_ns);
        if interval_ns > 0 {
            self.interval_ns = Some(match self.interval_ns {
                None => interval_ns,
                Some(mean) => mean - (mean >> INTERVAL_SHIFT) + (interval_ns >> INTERVAL_SHIFT),
            });
        }
        self.last_ns = now_ns;
    }

    /// When it is closed if nothing more comes, and why then.
    pub(super) fn due(&self) -> (u64, Ended) {
        let silence_ns = self.interval_ns.map_or(SILENCE_NS_UNKNOWN, |interval_ns| {
            interval_ns.saturating_mul(SILENCE_INTERVALS).clamp(SILENCE_NS_MIN, SILENCE_NS_MAX)
        });
        if self.is_of_group {
            return (self.last_ns.saturating_add(silence_ns.max(OPEN_NS)), Ended::Silence);
        }
        let silent_ns = self.last_ns.saturating_add(silence_ns);
        match self.overtaken_ns {
            Some(ns) if ns + OVERTAKEN_NS < silent_ns => {
                ((ns + OVERTAKEN_NS).max(self.last_ns), Ended::Accounted)
            }
            _ => (silent_ns, Ended::Silence),
        }
    }
}
