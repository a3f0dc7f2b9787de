//! Carries the tables of all ranks out with symbols instead of numbers: an element is the list of the
//! contributions in it. For tests.

use super::{Action, Entry, Part, Space, Table};
use lacuna_path::ranges::Ranges;
use std::collections::{BTreeMap, VecDeque};

/// A contribution: an element of a rank's input.
pub(crate) type Contribution = (usize, usize);

/// An element: how often each contribution is in it, and how often it was divided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Symbol {
    pub(crate) contributions: Vec<Contribution>,
    pub(crate) divided: u32,
}

/// The memory of a rank.
struct Memory {
    spaces: BTreeMap<Space, Vec<Symbol>>,
}

impl Memory {
    fn part(&mut self, part: Part) -> &mut [Symbol] {
        &mut self.spaces.get_mut(&part.space).unwrap()[part.range()]
    }
}

/// The outputs of all ranks if nothing is lost.
pub(crate) fn interpret(tables: &[Table], inputs_at: &[(usize, usize)]) -> Vec<Vec<Symbol>> {
    interpret_lossy(tables, inputs_at, &|_, _| Ranges::default())
}

/// The outputs of all ranks. `lost` are the elements that the n-th receive of a rank lacks. `input_at` is where a rank's input is in its output, if it is in place, and how
/// long. Panics where the tables do not fit each other.
pub(crate) fn interpret_lossy(
    tables: &[Table],
    inputs_at: &[(usize, usize)],
    lost: &dyn Fn(usize, usize) -> Ranges<usize>,
) -> Vec<Vec<Symbol>> {
    let mut received = vec![0; tables.len()];
    let mut memories: Vec<Memory> = tables
        .iter()
        .zip(inputs_at)
        .enumerate()
        .map(|(rank, (table, (at, len)))| {
            let own = |i| Symbol { contributions: vec![(rank, i)], divided: 0 };
            let mut output = vec![Symbol::default(); table.output];
            let mut input = vec![Symbol::default(); table.input];
            if table.is_in_place {
                (0..*len).for_each(|i| output[at + i] = own(i));
            } else {
                input = (0..table.input).map(own).collect();
            }
            let scratch = vec![Symbol::default(); table.scratch];
            let spaces =
                [(Space::Input, input), (Space::Output, output), (Space::Scratch, scratch)];
            Memory { spaces: spaces.into() }
        })
        .collect();
    let mut next = vec![0; tables.len()];
    let mut wires: BTreeMap<(usize, usize), VecDeque<Vec<Symbol>>> = BTreeMap::new();
    loop {
        let mut has_moved = false;
        for (rank, table) in tables.iter().enumerate() {
            while let Some(Entry { action, .. }) = table.entries.get(next[rank]) {
                match *action {
                    Action::Send { peer, from } => {
                        let symbols = memories[rank].part(from).to_vec();
                        wires.entry((rank, peer)).or_default().push_back(symbols);
                    }
                    Action::Receive { peer, to, with } => {
                        let wire = wires.entry((peer, rank)).or_default();
                        let Some(mut symbols) = wire.pop_front() else { break };
                        assert_eq!(symbols.len(), to.len, "from {peer} to {rank}");
                        for hole in lost(rank, received[rank]).iter() {
                            symbols[hole.clone()].fill(Symbol::default());
                        }
                        received[rank] += 1;
                        if let Some(with) = with {
                            for (sum, own) in symbols.iter_mut().zip(memories[rank].part(with)) {
                                assert_eq!(sum.divided + own.divided, 0, "divided too early");
                                sum.contributions.extend_from_slice(&own.contributions);
                                sum.contributions.sort_unstable();
                            }
                        }
                        memories[rank].part(to).clone_from_slice(&symbols);
                    }
                    Action::Copy { from, to } => {
                        let symbols = memories[rank].part(from).to_vec();
                        memories[rank].part(to).clone_from_slice(&symbols);
                    }
                    Action::Divide { part } => {
                        memories[rank].part(part).iter_mut().for_each(|one| one.divided += 1);
                    }
                }
                next[rank] += 1;
                has_moved = true;
            }
        }
        if !has_moved {
            break;
        }
    }
    for (rank, table) in tables.iter().enumerate() {
        assert_eq!(next[rank], table.entries.len(), "rank {rank} waits for ever");
    }
    assert!(wires.values().all(VecDeque::is_empty), "something was sent that nobody receives");
    memories.iter_mut().map(|memory| memory.spaces.remove(&Space::Output).unwrap()).collect()
}
