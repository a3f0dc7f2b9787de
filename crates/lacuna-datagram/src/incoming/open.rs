//! A message that is open: what came of it, and when it is over if nothing more comes.

use crate::groups::OPEN_NS;
use crate::peers::Numbered;
use crate::silence::Silence;
use crate::work::{Ended, RecvWork};
use lacuna_path::ranges::Ranges;
use std::ops::Range;

/// How long the segments of a message may be overtaken by later messages.
pub(super) const OVERTAKEN_NS: u64 = 1_000_000;
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
    pub(super) silence: Silence,
    /// When it is looked at.
    pub(super) armed_ns: u64,
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
            silence: Silence::new(now_ns),
            armed_ns: u64::MAX,
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

    /// When it is closed if nothing more comes, and why then.
    pub(super) fn due(&self) -> (u64, Ended) {
        let Silence { last_ns, .. } = self.silence;
        if self.is_of_group {
            let open_ns = self.silence.ns().max(OPEN_NS);
            return (last_ns.saturating_add(open_ns), Ended::Silence);
        }
        let silent_ns = self.silence.due_ns();
        match self.overtaken_ns {
            Some(ns) if ns + OVERTAKEN_NS < silent_ns => {
                ((ns + OVERTAKEN_NS).max(last_ns), Ended::Accounted)
            }
            _ => (silent_ns, Ended::Silence),
        }
    }
}
