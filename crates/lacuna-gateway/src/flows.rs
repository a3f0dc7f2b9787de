//! What is known of each flow: packets of one direction of one connection, by its addresses and the queue pair
//! that they are for. Learned from packets alone.
//!
//! A flow gets state once [`CONFIRMED_AFTER`] packets had numbers one after another: whoever makes numbers up
//! pays that much for each flow, and flows that are sought are in a table of fixed size, where the newest takes
//! the place of another. Of those with state there are at most so many as the caller says; then one that was
//! not used for long goes, of some that are drawn. A flow that has lost its state begins anew with its next
//! packets: nothing depends on it but repairs.

use core::net::IpAddr;
use lacuna_wire::Qpn;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Packets with numbers in a row after which a flow is one.
const CONFIRMED_AFTER: u8 = 3;
/// Places of the table of flows that are sought.
const SOUGHT: usize = 1 << 14;
/// Flows that are drawn, of which the one that was not used for longest goes.
const DRAWN: usize = 8;

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) queue_pair: Qpn,
}

/// A flow that is sought.
#[derive(Debug, Clone, Copy, Default)]
struct Sought {
    hash: u64,
    next_psn: u32,
    count: u8,
}

/// Flows with state of type `F`; see the module's text.
#[derive(Debug)]
pub(crate) struct Flows<F> {
    by_key: HashMap<FlowKey, usize>,
    flows: Vec<(FlowKey, u64, F)>,
    flows_max: usize,
    sought: Vec<Sought>,
    hasher: RandomState,
    /// Counts uses.
    clock: u64,
    draws: u64,
}

impl<F> Flows<F> {
    pub(crate) fn new(flows_max: usize) -> Self {
        Self {
            by_key: HashMap::new(),
            flows: Vec::new(),
            flows_max: flows_max.max(1),
            sought: vec![Sought::default(); SOUGHT],
            hasher: RandomState::new(),
            clock: 0,
            draws: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The state of a flow, if it has some.
    pub(crate) fn get_mut(&mut self, key: &FlowKey) -> Option<&mut F> {
        let index = *self.by_key.get(key)?;
        self.clock += 1;
        let (_, used, flow) = &mut self.flows[index];
        *used = self.clock;
        Some(flow)
    }

    /// All states.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&FlowKey, &mut F)> {
        self.flows.iter_mut().map(|(key, _, flow)| (&*key, flow))
    }

    /// A packet of a flow without state came; whether it is a flow by now.
    pub(crate) fn confirms(&mut self, key: &FlowKey, psn: u32) -> bool {
        let hash = self.hasher.hash_one(key);
        let sought = &mut self.sought[hash as usize % SOUGHT];
        let follows = sought.hash == hash && sought.next_psn == psn;
        let count = if follows { sought.count + 1 } else { 1 };
        *sought = Sought { hash, next_psn: psn.wrapping_add(1) & lacuna_wire::PSN_MASK, count };
        count >= CONFIRMED_AFTER
    }

    /// Gives a flow state; what another one had to give up for it.
    pub(crate) fn insert(&mut self, key: FlowKey, flow: F) -> Option<F> {
        self.clock += 1;
        let entry = (key, self.clock, flow);
        if self.flows.len() < self.flows_max {
            self.by_key.insert(key, self.flows.len());
            self.flows.push(entry);
            return None;
        }
        let drawn: [usize; DRAWN] = std::array::from_fn(|_| self.draw());
        let oldest = drawn.into_iter().min_by_key(|index| self.flows[*index].1)?;
        let (gone_key, _, gone) = std::mem::replace(&mut self.flows[oldest], entry);
        self.by_key.remove(&gone_key);
        self.by_key.insert(key, oldest);
        Some(gone)
    }

    fn draw(&mut self) -> usize {
        self.draws += 1;
        self.hasher.hash_one(self.draws) as usize % self.flows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> FlowKey {
        let address = |host: u8| IpAddr::from([10, 0, 0, host]);
        FlowKey { source: address(1), destination: address(2), queue_pair: Qpn::from_bits(number) }
    }

    #[test]
    fn a_flow_is_one_after_three_numbers_in_a_row() {
        let mut flows: Flows<()> = Flows::new(4);
        let psn = lacuna_wire::PSN_MASK - 1;
        assert!(!flows.confirms(&key(7), psn));
        assert!(!flows.confirms(&key(7), psn));
        assert!(!flows.confirms(&key(7), psn + 1));
        assert!(flows.confirms(&key(7), 0));
    }

    #[test]
    fn there_are_never_more_than_so_many_and_those_in_use_stay() {
        let mut flows = Flows::new(64);
        for number in 0..10_000u32 {
            flows.insert(key(number), number);
            assert_eq!(flows.get_mut(&key(0)), Some(&mut 0), "it is used all the time");
            assert!(flows.len() <= 64);
        }
        assert_eq!(flows.iter_mut().count(), 64);
        for (key, number) in flows.iter_mut() {
            assert_eq!(key.queue_pair, Qpn::from_bits(*number));
        }
    }
}
