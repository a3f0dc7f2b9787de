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
        self.scaled(key, bytes, Profile::timeout_ns)
    }

    /// How much of that is divided over the phases.
    #[must_use]
    pub fn usual_ns(&self, key: Key, bytes: u64) -> Option<u64> {
        self.scaled(key, bytes, Profile::usual_ns)
    }

    fn scaled(&self, key: Key, bytes: u64, time_ns: impl Fn(&Profile) -> u64) -> Option<u64> {
        let Sized { bytes: of, profile } = self.of.get(&key)?;
        let time_ns = u128::from(time_ns(profile)) * u128::from(bytes.max(1));
        u64::try_from(time_ns / u128::from(*of)).ok()
    }

    /// What this rank proposes after an operation of this kind, of so many bytes: those by which its timeout was asked
    /// for, while what was observed counts the bytes of all its messages.
    pub fn proposal(&mut self, key: Key, bytes: u64, observed: &Observed) -> Option<Proposal> {
        let Sized { bytes: of, profile } = self.of.get_mut(&key)?;
        let elapsed_ns = u128::from(observed.elapsed_ns) * u128::from(*of);
        let elapsed_ns = u64::try_from(elapsed_ns / u128::from(bytes.max(1))).unwrap_or(u64::MAX);
        Some(profile.proposal(&Observed { elapsed_ns, ..*observed }))
    }

    /// Takes the proposals of the ranks.
    pub fn update(&mut self, key: Key, proposals: &[Proposal]) {
        if let Some(sized) = self.of.get_mut(&key) {
            sized.profile.update(proposals);
        }
    }
}
