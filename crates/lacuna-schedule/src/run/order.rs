//! What an entry of a table waits for: for each of its elements, the entries before it that touch the same
//! memory in a way that matters. Found once per operation, from the ranges alone.

use crate::schedule::{Part, Space, Table};
use lacuna_path::ranges::Ranges;

/// Elements of an entry that wait for elements of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dependency {
    /// The earlier entry.
    pub(super) on: usize,
    /// The first of the elements, counted from this entry's start.
    pub(super) start: usize,
    /// The same element, counted from the earlier entry's start.
    pub(super) on_start: usize,
    /// How many.
    pub(super) len: usize,
}

/// The dependencies of all entries, and who depends on each.
#[derive(Debug, Default)]
pub(super) struct Order {
    pub(super) dependencies: Vec<Vec<Dependency>>,
    pub(super) dependants: Vec<Vec<usize>>,
}

impl Order {
    pub(super) fn new(table: &Table) -> Self {
        let count = table.entries.len();
        let mut order =
            Self { dependencies: vec![Vec::new(); count], dependants: vec![Vec::new(); count] };
        for index in 0..count {
            let action = table.entries[index].action;
            for part in action.reads() {
                order.find(table, index, part, false);
            }
            if let Some(part) = action.writes() {
                order.find(table, index, part, true);
            }
        }
        order
    }

    /// Looks back for those that write what is read, or touch what is written, up to the last that wrote it:
    /// what was before that one it has waited for.
    fn find(&mut self, table: &Table, index: usize, part: Part, is_write: bool) {
        if !is_write && part.space == Space::Input {
            // Never written. Without this, large tables take quadratic time.
            return;
        }
        let mut open: Ranges<usize> = [part.range()].into_iter().collect();
        for on in (0..index).rev() {
            if open.last_end().is_none() {
                return;
            }
            let action = table.entries[on].action;
            let is_near = |other: &Part| {
                other.space == part.space && open.within(&other.range()).next().is_some()
            };
            if is_write {
                for read in action.reads().filter(is_near) {
                    self.add(index, part, on, read, &open);
                }
            }
            if let Some(written) = action.writes().filter(is_near) {
                self.add(index, part, on, written, &open);
                open.remove(&written.range());
            }
        }
    }

    fn add(&mut self, index: usize, part: Part, on: usize, other: Part, open: &Ranges<usize>) {
        for range in open.within(&other.range()) {
            let start = range.start.max(other.start);
            let end = range.end.min(other.start + other.len);
            self.dependencies[index].push(Dependency {
                on,
                start: start - part.start,
                on_start: start - other.start,
                len: end - start,
            });
        }
        if self.dependants[on].last() != Some(&index) {
            self.dependants[on].push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Action, Entry};

    #[test]
    fn an_element_waits_for_its_last_writer_and_the_readers_since() {
        let entry = |action| Entry { phase: 0, action };
        let output = |start, end| Part::output(start..end);
        let receive = |to| entry(Action::Receive { peer: 1, to, with: None });
        let send = |from| entry(Action::Send { peer: 1, from });
        let entries = vec![
            receive(output(0, 10)),
            receive(output(4, 8)),
            send(output(2, 6)),
            receive(output(0, 6)),
        ];
        let table = Table {
            rank: 0,
            ranks: 2,
            input: 0,
            output: 10,
            scratch: 0,
            is_in_place: false,
            phases: vec![1],
            entries,
            expected: Vec::new(),
        };
        let order = Order::new(&table);
        let on = |on, start, on_start, len| Dependency { on, start, on_start, len };
        assert_eq!(order.dependencies[0], []);
        assert_eq!(order.dependencies[1], [on(0, 0, 4, 4)]);
        assert_eq!(order.dependencies[2], [on(1, 2, 0, 2), on(0, 0, 2, 2)]);
        assert_eq!(order.dependencies[3], [on(2, 2, 0, 4), on(1, 4, 0, 2), on(0, 0, 0, 4)]);
        assert_eq!(order.dependants[0], [1, 2, 3]);
    }
}
