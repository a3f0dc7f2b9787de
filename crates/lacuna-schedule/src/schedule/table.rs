//! A schedule of one rank as data.
//!
//! A table means what it does when its entries are carried out one after the other, each wholly. The
//! runner carries out as much at once as this allows: an element may be sent as soon as the entries
//! before it that write this element have done so. Hence no entry names what it waits for, and a message is
//! forwarded chunk by chunk while the rest of it still arrives, in every schedule.
//!
//! Between two ranks, the n-th send of one is the n-th receive of the other, of the same length. Entries
//! of no elements are left out on both sides.
//!
//! Phases divide the time of an operation that ends by a deadline: entries of one phase share a deadline,
//! phases follow each other. All ranks have the same phases with the same weights.

use std::ops::Range;

/// Memory that a part is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// What the rank contributes. Only read.
    Input,
    /// The result. In place, contributions are here too.
    Output,
    /// Memory of the operation's own.
    Scratch,
}

/// A range of elements of one space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    /// Where.
    pub space: Space,
    /// The first element.
    pub start: usize,
    /// Elements.
    pub len: usize,
}

impl Part {
    /// A part of the input.
    #[must_use]
    pub const fn input(range: Range<usize>) -> Self {
        Self { space: Space::Input, start: range.start, len: range.end - range.start }
    }

    /// A part of the output.
    #[must_use]
    pub const fn output(range: Range<usize>) -> Self {
        Self { space: Space::Output, start: range.start, len: range.end - range.start }
    }

    /// A part of the scratch memory.
    #[must_use]
    pub const fn scratch(range: Range<usize>) -> Self {
        Self { space: Space::Scratch, start: range.start, len: range.end - range.start }
    }

    /// Its elements.
    #[must_use]
    pub const fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// Elements of this part, counted from its start.
    const fn piece(&self, offset: usize, len: usize) -> Self {
        Self { space: self.space, start: self.start + offset, len }
    }

    const fn overlaps(&self, other: &Self) -> bool {
        self.space as u8 == other.space as u8
            && self.start < other.start + other.len
            && other.start < self.start + self.len
    }
}

/// What an entry does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Sends a part.
    Send {
        /// To whom.
        peer: usize,
        /// Which.
        from: Part,
    },
    /// Receives a part, and reduces it with one that is here.
    Receive {
        /// From whom.
        peer: usize,
        /// Where the result goes.
        to: Part,
        /// What is reduced with what comes; `None`: it is taken as it comes. The same part as `to`, or in
        /// another space.
        with: Option<Part>,
    },
    /// Copies a part to another space.
    Copy {
        /// Of this one.
        from: Part,
        /// To this one.
        to: Part,
    },
    /// Divides by the number of contributions.
    Divide {
        /// Which part.
        part: Part,
    },
}

impl Action {
    /// Elements that it works on.
    #[must_use]
    pub const fn elements(&self) -> usize {
        match self {
            Self::Send { from, .. } | Self::Copy { from, .. } => from.len,
            Self::Receive { to, .. } => to.len,
            Self::Divide { part } => part.len,
        }
    }

    /// The parts that it only reads.
    pub fn reads(&self) -> impl Iterator<Item = Part> + use<> {
        match *self {
            Self::Send { from, .. } | Self::Copy { from, .. } => Some(from),
            Self::Receive { to, with, .. } => with.filter(|with| *with != to),
            Self::Divide { .. } => None,
        }
        .into_iter()
    }

    /// The part that it changes.
    #[must_use]
    pub const fn writes(&self) -> Option<Part> {
        match *self {
            Self::Send { .. } => None,
            Self::Receive { to, .. } | Self::Copy { to, .. } => Some(to),
            Self::Divide { part } => Some(part),
        }
    }

    fn piece(&self, offset: usize, len: usize) -> Self {
        let cut = |part: Part| part.piece(offset, len);
        match *self {
            Self::Send { peer, from } => Self::Send { peer, from: cut(from) },
            Self::Receive { peer, to, with } => {
                Self::Receive { peer, to: cut(to), with: with.map(cut) }
            }
            Self::Copy { from, to } => Self::Copy { from: cut(from), to: cut(to) },
            Self::Divide { part } => Self::Divide { part: cut(part) },
        }
    }

    fn moved(&self, place: &impl Fn(Part) -> Part) -> Self {
        match *self {
            Self::Send { peer, from } => Self::Send { peer, from: place(from) },
            Self::Receive { peer, to, with } => {
                Self::Receive { peer, to: place(to), with: with.map(place) }
            }
            Self::Copy { from, to } => Self::Copy { from: place(from), to: place(to) },
            Self::Divide { part } => Self::Divide { part: place(part) },
        }
    }
}

/// A line of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// An index of [`Table::phases`].
    pub phase: usize,
    /// What is done.
    pub action: Action,
}

/// Whose contributions a range of a result has if none is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Those of all ranks, reduced.
    All,
    /// That of one rank.
    Rank(usize),
}

/// The schedule of one rank; see the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Whose.
    pub rank: usize,
    /// Of how many.
    pub ranks: usize,
    /// Elements of the input.
    pub input: usize,
    /// Elements of the output.
    pub output: usize,
    /// Elements of the scratch memory.
    pub scratch: usize,
    /// Whether the input is in the output: then there is no input, and the output is read too.
    pub is_in_place: bool,
    /// The phases by weight: elements that the busiest rank receives in it.
    pub phases: Vec<u64>,
    /// What is done, in order.
    pub entries: Vec<Entry>,
    /// Whose contributions the result has, range by range of the output.
    pub expected: Vec<(Range<usize>, Whose)>,
}

impl Table {
    /// The same with no transfer of more than so many elements, for fabrics whose messages are bounded.
    /// All ranks have to use the same number.
    #[must_use]
    pub fn cut(&self, elements_max: usize) -> Self {
        let elements_max = elements_max.max(1);
        let mut entries = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let len = entry.action.elements();
            for offset in (0..len).step_by(elements_max) {
                let action = entry.action.piece(offset, elements_max.min(len - offset));
                entries.push(Entry { phase: entry.phase, action });
            }
        }
        Self { entries, ..self.clone() }
    }

    /// The same with the input in the output, where element 0 of the input is element `input_at` of the
    /// common memory and element 0 of the output is element `output_at`.
    pub(super) fn in_place(&self, input_at: usize, output_at: usize) -> Self {
        let place = |part: Part| match part.space {
            Space::Input => Part { space: Space::Output, start: part.start + input_at, ..part },
            Space::Output => Part { start: part.start + output_at, ..part },
            Space::Scratch => part,
        };
        let moved = self
            .entries
            .iter()
            .map(|entry| Entry { phase: entry.phase, action: entry.action.moved(&place) });
        let is_needed = |entry: &Entry| match entry.action {
            Action::Copy { from, to } => from != to,
            _ => true,
        };
        Self {
            entries: moved.filter(is_needed).collect(),
            input: 0,
            output: (self.input + input_at).max(self.output + output_at),
            is_in_place: true,
            expected: self
                .expected
                .iter()
                .map(|(range, whose)| (range.start + output_at..range.end + output_at, *whose))
                .collect(),
            ..self.clone()
        }
    }

    /// Where in the table the input is: in place, in the output.
    #[must_use]
    pub const fn input_space(&self) -> Space {
        if self.is_in_place { Space::Output } else { Space::Input }
    }

    /// The first thing that makes this no table: a part outside of its space, an input that is changed, a
    /// receive that reduces with another part of the same space.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let size = |space| match space {
            Space::Input => self.input,
            Space::Output => self.output,
            Space::Scratch => self.scratch,
        };
        for (i, Entry { phase, action }) in self.entries.iter().enumerate() {
            let parts = action.reads().chain(action.writes());
            let outside = parts.into_iter().find(|part| part.range().end > size(part.space));
            let peer = match *action {
                Action::Send { peer, .. } | Action::Receive { peer, .. } => Some(peer),
                _ => None,
            };
            let is_bad = match *action {
                Action::Receive { to, with: Some(with), .. } => {
                    with.len != to.len || (with != to && with.space == to.space)
                }
                Action::Copy { from, to } => from.len != to.len || from.overlaps(&to),
                _ => false,
            };
            let writes_input = action.writes().is_some_and(|part| part.space == Space::Input);
            let is_nobody = peer.is_some_and(|peer| peer >= self.ranks || peer == self.rank);
            let is_bad = is_bad || *phase >= self.phases.len() || action.elements() == 0;
            if outside.is_some() || is_bad || writes_input || is_nobody {
                return Some(format!("rank {}, entry {i}: {action:?}", self.rank));
            }
        }
        None
    }
}

/// Writes a table, entry by entry.
pub(super) struct Builder {
    pub(super) table: Table,
}

impl Builder {
    pub(super) fn new(rank: usize, ranks: usize, input: usize, output: usize) -> Self {
        let table = Table {
            rank,
            ranks,
            input,
            output,
            scratch: 0,
            is_in_place: false,
            phases: Vec::new(),
            entries: Vec::new(),
            expected: Vec::new(),
        };
        Self { table }
    }

    /// What follows is of a new phase, in which the busiest rank receives so many elements.
    pub(super) fn phase(&mut self, elements: usize) {
        self.table.phases.push(elements as u64);
    }

    pub(super) fn send(&mut self, peer: usize, from: Part) {
        self.entry(Action::Send { peer, from });
    }

    pub(super) fn receive(&mut self, peer: usize, to: Part, with: Option<Part>) {
        self.entry(Action::Receive { peer, to, with });
    }

    pub(super) fn copy(&mut self, from: Part, to: Part) {
        self.entry(Action::Copy { from, to });
    }

    pub(super) fn divide(&mut self, part: Part) {
        self.entry(Action::Divide { part });
    }

    /// Makes room in the scratch memory.
    pub(super) fn scratch(&mut self, elements: usize) {
        self.table.scratch = self.table.scratch.max(elements);
    }

    pub(super) fn expect(&mut self, range: Range<usize>, whose: Whose) {
        if !range.is_empty() {
            self.table.expected.push((range, whose));
        }
    }

    fn entry(&mut self, action: Action) {
        if action.elements() == 0 {
            return;
        }
        // What comes before the first step is in its phase.
        let phase = self.table.phases.len().saturating_sub(1);
        self.table.entries.push(Entry { phase, action });
    }
}

/// Where each of the parts of so many elements begins, and where the last one ends: as equal as can be,
/// the longer ones first.
pub(super) fn shares(elements: usize, parts: usize) -> Vec<usize> {
    let (each, longer) = (elements / parts, elements % parts);
    (0..=parts).map(|part| part * each + part.min(longer)).collect()
}

/// Where each part begins, and where the last one ends.
pub(super) fn offsets(counts: &[usize]) -> Vec<usize> {
    let ends = counts.iter().scan(0, |end, count| {
        *end += count;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// The longest part.
pub(super) fn longest(offsets: &[usize]) -> usize {
    offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}
