//! Profiles by what they are of: group, operation, size class. Operations of different sizes or groups take
//! different paths and times, so they do not teach each other (Celeris III-B).

use super::{Observed, Profile, Proposal, Rule};
use std::collections::BTreeMap;

/// What a profile is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The group, by a number of its own.
    pub group: u64,
    /// The operation, by a number of its own.
    pub operation: u32,
    /// The octave of the size.
    pub size_class: u32,
}

impl Key {
    /// Of an operation of so many bytes.
    #[must_use]
    pub const fn new(group: u64, operation: u32, bytes: u64) -> Self {
        let size_class = match bytes {
            0 => 0,
            _ => bytes.ilog2(),
        };
        Self { group, operation, size_class }
    }
}

/// What is known of one class, for the size of its warm-up.
#[derive(Debug, Clone)]
struct Sized {
    bytes: u64,
    profile: Profile,
}

/// All profiles of a process.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    rule: Rule,
    of: BTreeMap<Key, Sized>,
}

impl Profiles {
    /// None yet.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self { rule, of: BTreeMap::new() }
    }

    /// Begins a profile from complete operations of `bytes`. Does nothing without any.
    pub fn warm_up(&mut self, key: Key, bytes: u64, times_ns: &[u64]) {
        if let Some(profile) = Profile::new(self.rule, times_ns) {
            self.of.insert(key, Sized { bytes: bytes.max(1), profile });
        }
    }

    /// The time for the next operation of this kind; `None` before its warm-up. Within a class times are
    /// proportional to the bytes.
    #[must_use]
    pub fn timeout_ns(&self, key: Key, bytes: u64) -> Option<u64> {
        let Sized { bytes: of, profile } = self.of.get(&key)?;
        let timeout_ns = u128::from(profile.timeout_ns()) * u128::from(bytes.max(1));
        u64::try_from(timeout_ns / u128::from(*of)).ok()
    }

    /// What this rank proposes after an operation of this kind.
    pub fn proposal(&mut self, key: Key, observed: &Observed) -> Option<Proposal> {
        let Sized { bytes, profile } = self.of.get_mut(&key)?;
        let (is, of) = (observed.bytes.max(1), *bytes);
        let scaled = |value: u64| {
            let scaled = u128::from(value) * u128::from(of) / u128::from(is);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Some(profile.proposal(&Observed {
            elapsed_ns: scaled(observed.elapsed_ns),
            bytes: of,
            came_bytes: scaled(observed.came_bytes),
            reached_bytes: scaled(observed.reached_bytes),
            late_bytes: scaled(observed.late_bytes),
        }))
    }

    /// Takes the proposals of the ranks.
    pub fn update(&mut self, key: Key, proposals: &[Proposal]) {
        if let Some(sized) = self.of.get_mut(&key) {
            sized.profile.update(proposals);
        }
    }
}
