//! Bounded tables: flows with state, and numbers that may become a flow.
//!
//! Anybody can send packets with any queue pair number. So a flow gets state only after
//! [`FLOW_RUN_PACKETS`] packets whose numbers continue; until then it has a few bytes in a table of fixed
//! size, where another one may overwrite it. Of the flows, the least recently used one goes when there are
//! too many: it then passes unprotected until it has shown itself again.
//!
//! Invariants: `map` has exactly the indices of `slots`; the list of ages runs through all of them.

use crate::frame::FlowKey;
use std::collections::BTreeMap;

/// Packets with continuing numbers that make a flow.
pub const FLOW_RUN_PACKETS: u8 = 4;

/// Entries of the table of candidates: 768 KiB.
const CANDIDATES: usize = 1 << 16;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Slot<S> {
    key: FlowKey,
    state: S,
    older: u32,
    newer: u32,
}

/// Flows with state.
#[derive(Debug)]
pub(crate) struct Flows<S> {
    map: BTreeMap<FlowKey, u32>,
    slots: Vec<Slot<S>>,
    flows_max: usize,
    oldest: u32,
    newest: u32,
}

impl<S> Flows<S> {
    pub(crate) fn new(flows_max: usize) -> Self {
        let flows_max = flows_max.clamp(1, NONE as usize - 1);
        Self { map: BTreeMap::new(), slots: Vec::new(), flows_max, oldest: NONE, newest: NONE }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Where a flow is, which was used now.
    pub(crate) fn find(&mut self, key: &FlowKey) -> Option<u32> {
        // Packets come in runs.
        let newest = self.newest;
        if self.slots.get(newest as usize).is_some_and(|slot| slot.key == *key) {
            return Some(newest);
        }
        let index = *self.map.get(key)?;
        self.unlink(index);
        self.link(index);
        Some(index)
    }

    pub(crate) fn state_mut(&mut self, index: u32) -> Option<&mut S> {
        self.slots.get_mut(index as usize).map(|slot| &mut slot.state)
    }

    /// Adds a flow that is not there; what had to go for it.
    pub(crate) fn insert(&mut self, key: FlowKey, state: S) -> (u32, Option<S>) {
        if self.slots.len() < self.flows_max {
            let index = self.slots.len() as u32;
            self.slots.push(Slot { key, state, older: NONE, newer: NONE });
            self.map.insert(key, index);
            self.link(index);
            return (index, None);
        }
        let index = self.oldest;
        self.unlink(index);
        let slot = &mut self.slots[index as usize];
        self.map.remove(&slot.key);
        slot.key = key;
        let gone = std::mem::replace(&mut slot.state, state);
        self.map.insert(key, index);
        self.link(index);
        (index, Some(gone))
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().map(|slot| &slot.state)
    }

    pub(crate) fn states_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.slots.iter_mut().map(|slot| &mut slot.state)
    }

    /// The flow that was not used for the longest time.
    pub(crate) fn oldest(&self) -> Option<&S> {
        self.slots.get(self.oldest as usize).map(|slot| &slot.state)
    }

    /// The flow that was used last.
    pub(crate) fn newest(&self) -> Option<&S> {
        self.slots.get(self.newest as usize).map(|slot| &slot.state)
    }

    pub(crate) fn into_states(self) -> impl Iterator<Item = S> {
        self.slots.into_iter().map(|slot| slot.state)
    }

    /// Bytes of memory, without what states hold outside of themselves.
    pub(crate) fn memory_bytes(&self) -> usize {
        // A node of the map is at least half full.
        let node = 2 * (size_of::<FlowKey>() + size_of::<u32>());
        self.slots.capacity() * size_of::<Slot<S>>() + self.map.len() * node
    }

    fn unlink(&mut self, index: u32) {
        let Slot { older, newer, .. } = self.slots[index as usize];
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
    }

    fn link(&mut self, index: u32) {
        let newest = self.newest;
        let slot = &mut self.slots[index as usize];
        (slot.older, slot.newer) = (newest, NONE);
        match self.slots.get_mut(newest as usize) {
            Some(slot) => slot.newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    tag: u32,
    psn: u32,
    run: u8,
}

/// Numbers that may become a flow.
#[derive(Debug)]
pub(crate) struct Candidates {
    seed: u64,
    table: Box<[Candidate]>,
}

impl Candidates {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, table: vec![Candidate::default(); CANDIDATES].into_boxed_slice() }
    }

    /// A packet with a number came; how many continued up to it.
    pub(crate) fn on_packet(&mut self, key: &FlowKey, psn: u32) -> u8 {
        let (tag, candidate) = self.entry(key);
        let continues = candidate.tag == tag
            && candidate.run > 0
            && psn == (candidate.psn + 1) & lacuna_wire::PSN_MASK;
        let run = if continues { candidate.run.saturating_add(1) } else { 1 };
        *candidate = Candidate { tag, psn, run };
        run
    }

    /// How many packets continued up to the last one.
    pub(crate) fn run_of(&mut self, key: &FlowKey) -> u8 {
        let (tag, candidate) = self.entry(key);
        if candidate.tag == tag { candidate.run } else { 0 }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.table)
    }

    fn entry(&mut self, key: &FlowKey) -> (u32, &mut Candidate) {
        let number = u64::from(key.is_answers) << 32 | u64::from(key.queue_pair);
        let hash = hash_of(self.seed, key, number);
        ((hash >> 32) as u32, &mut self.table[hash as usize % CANDIDATES])
    }
}

/// A hash of a flow's addresses and a number, for tables where a collision costs little.
pub(crate) fn hash_of(seed: u64, key: &FlowKey, number: u64) -> u64 {
    let halves = [key.source, key.destination].map(|address| {
        let address = u128::from_be_bytes(address);
        [address as u64, (address >> 64) as u64]
    });
    let vlans = u64::from(key.vlans[0]) << 16 | u64::from(key.vlans[1]);
    let [[a, b], [c, d]] = halves;
    [a, b, c, d, vlans, number].into_iter().fold(seed, |hash, word| {
        let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        (product >> 64) as u64 ^ product as u64 ^ word.rotate_left(32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_link::SplitMix64;

    fn key(queue_pair: u32) -> FlowKey {
        FlowKey {
            queue_pair,
            is_answers: false,
            vlans: [0; 2],
            source: [1; 16],
            destination: [2; 16],
        }
    }

    #[test]
    fn the_least_recently_used_flow_goes() {
        let mut rng = SplitMix64::new(3);
        let mut flows = Flows::new(8);
        // The oracle: least recently used first.
        let mut used: Vec<u32> = Vec::new();
        for _ in 0..10_000 {
            let number = rng.below(12) as u32;
            let found = flows.find(&key(number));
            assert_eq!(found.is_some(), used.contains(&number), "{number}");
            match found {
                Some(index) => assert_eq!(flows.state_mut(index), Some(&mut number.clone())),
                None => {
                    let (_, gone) = flows.insert(key(number), number);
                    let expected = (used.len() == 8).then(|| used.remove(0));
                    assert_eq!(gone, expected);
                }
            }
            used.retain(|other| *other != number);
            used.push(number);
            assert_eq!(flows.len(), used.len());
        }
    }

    #[test]
    fn numbers_that_continue_are_counted_and_others_begin_again() {
        let mut candidates = Candidates::new(1);
        let runs =
            [0xff_fffe, 0xff_ffff, 0, 1, 3, 4, 4].map(|psn| candidates.on_packet(&key(7), psn));
        assert_eq!(runs, [1, 2, 3, 4, 1, 2, 1]);
        assert_eq!((candidates.run_of(&key(7)), candidates.run_of(&key(8))), (1, 0));
    }
}
