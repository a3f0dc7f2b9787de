//! Which bytes of a message are here, and which of memory, whatever messages they came by.

use crate::work::{Arrived, Done, Operation};
use lacuna_path::ranges::Ranges;
use std::collections::HashMap;
use std::ops::Range;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Map {
    /// All.
    Whole,
    /// These.
    Parts(Ranges),
}

impl Map {
    /// The bytes that are here, as the fewest ranges, in order, of a message of so many.
    pub fn ranges(&self, length: u32) -> impl Iterator<Item = Range<u64>> {
        let (whole, parts) = match self {
            Self::Whole => ((length > 0).then_some(0..u64::from(length)), None),
            Self::Parts(parts) => (None, Some(parts.iter().cloned())),
        };
        whole.into_iter().chain(parts.into_iter().flatten())
    }

    /// How many are here, of so many.
    #[must_use]
    pub fn bytes(&self, length: u32) -> u64 {
        self.ranges(length).map(|range| range.end - range.start).sum()
    }
}

/// What Write-Records have written, by key, as ranges of memory: for applications that do not think in messages
/// (memory semantics; datagram-iWARP 2.2). Completions say it all, so a queue pair serves both kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    written: HashMap<u32, Ranges>,
}

impl Memory {
    /// Takes in a completion; `false` if it is no Write-Record's.
    pub fn add(&mut self, done: &Done) -> bool {
        if done.operation != Operation::Record {
            return false;
        }
        if let Some(Arrived { map, length, place: Some(place), .. }) = done.arrived.as_deref() {
            let written = self.written.entry(place.key).or_default();
            for range in map.ranges(*length) {
                written.add(place.offset + range.start..place.offset + range.end);
            }
        }
        true
    }

    /// What was written under a key, in order, from the start of the key's range.
    pub fn written(&self, key: u32) -> impl Iterator<Item = Range<u64>> {
        self.written.get(&key).into_iter().flat_map(Ranges::iter).cloned()
    }

    /// The same, and it is forgotten.
    pub fn take(&mut self, key: u32) -> Ranges {
        self.written.remove(&key).unwrap_or_default()
    }
}
