//! The grid: where blocks begin. Encoder and decoder follow the same rule.
//!
//! LoWAR IV-B1, decided further where the paper is silent: a block begins
//!
//! - with a message's First or Only packet,
//! - after a full block of the same message,
//! - with a packet that does not continue the one before it: a retransmission, or the first one seen.
//!
//! A block ends when it is full or with its message. A retransmission in the middle of a message begins
//! the grid anew at the packet that is sent again, instead of at the message's beginning: each repair
//! names its block's first packet and their number, so nobody needs to know where the message began, and
//! the blocks are full.
//!
//! Numbers are unwrapped to 64 bits here (`lacuna_wire::psn`).

use lacuna_wire::rc::Part;

/// Numbers start far from zero, so that an earlier one is never negative.
pub(crate) const PSN_ORIGIN: u64 = 1 << 32;

/// The place of a flow in its grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// The number that continues.
    pub(crate) next: u64,
    /// The first number of the block.
    pub(crate) first: u64,
    /// Whether the last packet's message goes on.
    pub(crate) in_message: bool,
    /// Whether the last packet's block goes on.
    pub(crate) in_block: bool,
}

impl Grid {
    /// A flow whose first packet has this number.
    pub(crate) fn at(psn: u64) -> Self {
        Self { next: psn, first: psn, in_message: false, in_block: false }
    }

    /// Whether a packet begins a block.
    #[inline]
    pub(crate) fn begins(&self, psn: u64, part: Part) -> bool {
        part.begins() || psn != self.next || !self.in_block
    }

    /// Takes a packet, with `block_packets` the size of its block; returns whether it begins one.
    #[inline]
    pub(crate) fn step(&mut self, psn: u64, part: Part, block_packets: u16) -> bool {
        let begins = self.begins(psn, part);
        if begins {
            self.first = psn;
        }
        self.next = psn + 1;
        self.in_message = !part.ends();
        self.in_block = self.in_message && self.next - self.first < u64::from(block_packets);
        begins
    }

    /// Takes a packet that has numbers and no place in a block.
    pub(crate) fn skip(&mut self, psn: u64, numbers: u64) {
        *self = Self::at(psn + numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_begin_with_messages_when_full_and_when_sent_again() {
        use Part::{First, Last, Middle, Only};
        let mut grid = Grid::at(100);
        let packets = [
            (100, Only, true),
            (101, First, true),
            (102, Middle, false),
            (103, Middle, true),
            (104, Last, false),
            (105, First, true),
            (106, Middle, false),
            (106, Middle, true),
            (107, Last, false),
            (50, Last, true),
        ];
        for (psn, part, begins) in packets {
            assert_eq!(grid.begins(psn, part), begins, "{psn}");
            assert_eq!(grid.step(psn, part, 2), begins, "{psn}");
        }
    }
}
