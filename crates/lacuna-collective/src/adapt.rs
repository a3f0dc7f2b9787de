//! Budgets that are learned: how long operations of one kind take is measured by all ranks, and what each found travels
//! with the notes of later operations (OptiNIC 3.1.2, Celeris III-B; the rules are in `lacuna_schedule::budget`).
//!
//! The first [`WARM_UP`] operations of a kind get time enough; in a bounded mode they end all the same, once their
//! senders have said that everything was sent.
//!
//! Ranks may have heard different reports when they begin an operation, so their budgets may differ a little; each ends
//! its own receives.

use lacuna_schedule::budget::{Key, Observed, Profiles, Proposal, Rule};
use lacuna_schedule::run::Report;
use std::collections::BTreeMap;

/// Operations of a kind before its budget is learned.
const WARM_UP: usize = 5;
/// What an operation gets that is measured: far more than any takes.
const WARM_UP_NS: u64 = 30_000_000_000;
/// Kinds of operations, at most: more are not learned.
const KINDS_MAX: usize = 1 << 10;
/// Operations of a kind that are remembered for the warm-up, of all ranks.
const TIMES_MAX: usize = 1 << 12;
const KEY_BYTES: usize = 16;

/// What a rank publishes after an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Word {
    /// It took so long, and was complete or had time enough.
    Took {
        ns: u64,
    },
    Proposes(Proposal),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Adapt {
    profiles: Profiles,
    /// Times of kinds that are warming up: this rank's operations, and what all ranks said.
    warming: BTreeMap<Key, (usize, Vec<u64>)>,
    /// What was said and not yet used.
    proposals: BTreeMap<Key, Vec<Proposal>>,
    /// The last word that was taken in, by rank.
    heard: Vec<u64>,
}

impl Adapt {
    pub(crate) fn new(rule: Rule, ranks: usize) -> Self {
        Self {
            profiles: Profiles::new(rule),
            warming: BTreeMap::new(),
            proposals: BTreeMap::new(),
            heard: vec![0; ranks],
        }
    }

    /// The time that an operation gets, and how much of it is usual.
    pub(crate) fn budget_ns(&mut self, key: Key, bytes: u64) -> (u64, u64) {
        if let Some(proposals) = self.proposals.remove(&key) {
            self.profiles.update(key, &proposals);
        }
        if let Some(times_ns) = self.learned_ns(key, bytes) {
            return times_ns;
        }
        if let Some((operations, times_ns)) = self.warming.get(&key)
            && *operations >= WARM_UP
        {
            self.profiles.warm_up(key, bytes, times_ns);
            self.warming.remove(&key);
        }
        self.learned_ns(key, bytes).unwrap_or((WARM_UP_NS, WARM_UP_NS))
    }

    fn learned_ns(&self, key: Key, bytes: u64) -> Option<(u64, u64)> {
        let Self { profiles, .. } = self;
        profiles.timeout_ns(key, bytes).zip(profiles.usual_ns(key, bytes))
    }

    /// An operation is over: what this rank says of it.
    pub(crate) fn on_finished(&mut self, key: Key, bytes: u64, report: &Report) -> Vec<u8> {
        let observed = Observed::of(report);
        let word = match self.profiles.proposal(key, bytes, &observed) {
            Some(proposal) => {
                self.take_in(key, Word::Proposes(proposal));
                Word::Proposes(proposal)
            }
            None => {
                let word = Word::Took { ns: observed.elapsed_ns };
                self.take_in(key, word);
                if let Some((operations, _)) = self.warming.get_mut(&key) {
                    *operations += 1;
                }
                word
            }
        };
        write(key, word)
    }

    /// What another rank has said last, with its stamp.
    pub(crate) fn on_heard(&mut self, rank: usize, stamp: u64, bytes: &[u8]) {
        let Some(heard) = self.heard.get_mut(rank).filter(|heard| **heard < stamp) else { return };
        *heard = stamp;
        match read(bytes) {
            Some((key, word)) => self.take_in(key, word),
            None => tracing::debug!(rank, "what a rank says of its times makes no sense"),
        }
    }

    fn take_in(&mut self, key: Key, word: Word) {
        match word {
            Word::Took { ns } if has_room(&self.warming, key) => {
                let times_ns = &mut self.warming.entry(key).or_default().1;
                if times_ns.len() < TIMES_MAX {
                    times_ns.push(ns);
                }
            }
            Word::Proposes(proposal) if has_room(&self.proposals, key) => {
                let proposals = self.proposals.entry(key).or_default();
                if proposals.len() < TIMES_MAX {
                    proposals.push(proposal);
                }
            }
            _ => {}
        }
    }
}

fn has_room<T>(kinds: &BTreeMap<Key, T>, key: Key) -> bool {
    kinds.len() < KINDS_MAX || kinds.contains_key(&key)
}

fn write(key: Key, word: Word) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(KEY_BYTES + 17);
    bytes.extend_from_slice(&key.group.to_le_bytes());
    bytes.extend_from_slice(&key.operation.to_le_bytes());
    bytes.extend_from_slice(&key.size_class.to_le_bytes());
    match word {
        Word::Took { ns } => {
            bytes.push(0);
            bytes.extend_from_slice(&ns.to_le_bytes());
        }
        Word::Proposes(proposal) => {
            bytes.push(1);
            bytes.extend_from_slice(&proposal.to_bytes());
        }
    }
    bytes
}

fn read(bytes: &[u8]) -> Option<(Key, Word)> {
    let (group, rest) = bytes.split_first_chunk::<8>()?;
    let (operation, rest) = rest.split_first_chunk::<4>()?;
    let (size_class, rest) = rest.split_first_chunk::<4>()?;
    let key = Key {
        group: u64::from_le_bytes(*group),
        operation: u32::from_le_bytes(*operation),
        size_class: u32::from_le_bytes(*size_class),
    };
    let (kind, rest) = rest.split_first()?;
    let word = match kind {
        0 => Word::Took { ns: u64::from_le_bytes(rest.try_into().ok()?) },
        1 => Word::Proposes(Proposal::from_bytes(rest.try_into().ok()?)?),
        _ => return None,
    };
    Some((key, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::new(1, 2, 1 << 20);
    const MS: u64 = 1_000_000;

    fn report(ns: u64) -> Report {
        Report {
            started_ns: 0,
            ended_ns: ns,
            hops: Vec::new(),
            missing: Vec::new(),
            uncertain: Vec::new(),
            straggler: None,
        }
    }

    #[test]
    fn a_budget_is_learned_from_the_first_operations_of_all_ranks() {
        let rule = Rule::OptiNic;
        let mut ranks = [Adapt::new(rule, 2), Adapt::new(rule, 2)];
        for stamp in 1..=5 {
            assert_eq!(ranks[0].budget_ns(KEY, 1 << 20).0, WARM_UP_NS);
            let words: Vec<Vec<u8>> = ranks
                .iter_mut()
                .zip([10 * MS, 12 * MS])
                .map(|(rank, ns)| rank.on_finished(KEY, 1 << 20, &report(ns)))
                .collect();
            ranks[0].on_heard(1, stamp, &words[1]);
            // The same again is not heard twice.
            ranks[0].on_heard(1, stamp, &words[1]);
            ranks[1].on_heard(0, stamp, &words[0]);
        }
        let budgets = ranks.each_mut().map(|rank| rank.budget_ns(KEY, 1 << 20));
        // 1.25 of the median, which is the lower of the two in the middle, and a little.
        assert_eq!(budgets, [(12_550_000, 12_550_000); 2], "a published rule, without a reserve");
        assert_eq!(ranks[0].budget_ns(Key::new(1, 3, 1 << 20), 1 << 20).0, WARM_UP_NS);
    }

    #[test]
    fn words_are_read_back_and_odd_ones_are_ignored() {
        let proposal = Proposal { estimate_ns: 5.0, late: 0.25 };
        for word in [Word::Took { ns: 7 }, Word::Proposes(proposal)] {
            let bytes = write(KEY, word);
            assert_eq!(read(&bytes), Some((KEY, word)));
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), None);
            }
        }
        let mut adapt = Adapt::new(Rule::default(), 2);
        adapt.on_heard(1, 1, &[9; 40]);
        adapt.on_heard(7, 1, &[]);
    }
}
