//! The memory of an operation: the caller's input and output, and scratch of its own.

use crate::element::{Element, Op};
use crate::reduce::Engine;
use crate::schedule::{Part, Space};
use std::ops::Range;

/// The caller's memory. The same slices at every call, until the operation is over.
pub trait Buffers: Send {
    /// What this rank contributes; empty if it is in place.
    fn input(&self) -> &[u8];
    /// The result.
    fn output(&self) -> &[u8];
    /// Both, to write the result.
    fn split(&mut self) -> (&[u8], &mut [u8]);
}

/// Two vectors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vectors {
    /// See [`Buffers::input`].
    pub input: Vec<u8>,
    /// See [`Buffers::output`].
    pub output: Vec<u8>,
}

impl Buffers for Vectors {
    fn input(&self) -> &[u8] {
        &self.input
    }

    fn output(&self) -> &[u8] {
        &self.output
    }

    fn split(&mut self) -> (&[u8], &mut [u8]) {
        (&self.input, &mut self.output)
    }
}

/// All memory of an operation, by parts.
pub(super) struct Memory {
    pub(super) buffers: Box<dyn Buffers>,
    scratch: Vec<u8>,
    element: Element,
    op: Op,
    engine: Engine,
}

impl Memory {
    pub(super) fn new(buffers: Box<dyn Buffers>, scratch: usize, element: Element, op: Op) -> Self {
        let scratch = vec![0; scratch * element.size_bytes()];
        Self { buffers, scratch, element, op, engine: Engine::best() }
    }

    fn bytes(&self, part: Part) -> Range<usize> {
        let size = self.element.size_bytes();
        part.start * size..(part.start + part.len) * size
    }

    pub(super) fn read(&self, part: Part) -> &[u8] {
        let space = match part.space {
            Space::Input => self.buffers.input(),
            Space::Output => self.buffers.output(),
            Space::Scratch => &self.scratch,
        };
        &space[self.bytes(part)]
    }

    fn write(&mut self, part: Part) -> &mut [u8] {
        let bytes = self.bytes(part);
        let space = match part.space {
            Space::Input => unreachable!("a table does not change its input"),
            Space::Output => self.buffers.split().1,
            Space::Scratch => &mut self.scratch,
        };
        &mut space[bytes]
    }

    /// Of two spaces, the one to be written first.
    fn pair(&mut self, to: Part, from: Part) -> (&mut [u8], &[u8]) {
        let (to_bytes, from_bytes) = (self.bytes(to), self.bytes(from));
        let (input, output) = self.buffers.split();
        let (to, from): (&mut [u8], &[u8]) = match (to.space, from.space) {
            (Space::Output, Space::Input) => (output, input),
            (Space::Output, Space::Scratch) => (output, &self.scratch),
            (Space::Scratch, Space::Input) => (&mut self.scratch, input),
            (Space::Scratch, Space::Output) => (&mut self.scratch, output),
            _ => unreachable!("a table reads and writes different spaces"),
        };
        (&mut to[to_bytes], &from[from_bytes])
    }

    /// What came, taken as it is or reduced.
    pub(super) fn receive(&mut self, to: Part, with: Option<Part>, came: &[u8]) {
        let (op, element, engine) = (self.op, self.element, self.engine);
        match with {
            None => self.write(to).copy_from_slice(came),
            Some(with) if with == to => engine.reduce_into(op, element, self.write(to), came),
            Some(with) => {
                let (to, with) = self.pair(to, with);
                engine.reduce(op, element, to, with, came);
            }
        }
    }

    /// What did not come: it is left out of a reduction, and zero otherwise.
    pub(super) fn leave_out(&mut self, to: Part, with: Option<Part>) {
        match with {
            None => self.write(to).fill(0),
            Some(with) if with == to => {}
            Some(with) => self.copy(with, to),
        }
    }

    pub(super) fn copy(&mut self, from: Part, to: Part) {
        if from.space == to.space {
            let (from, to) = (self.bytes(from), self.bytes(to));
            self.buffers.split().1.copy_within(from, to.start);
            return;
        }
        let (to, from) = self.pair(to, from);
        to.copy_from_slice(from);
    }

    pub(super) fn divide(&mut self, part: Part, by: usize) {
        let (element, engine) = (self.element, self.engine);
        engine.divide(element, self.write(part), u32::try_from(by).unwrap_or(u32::MAX));
    }
}
