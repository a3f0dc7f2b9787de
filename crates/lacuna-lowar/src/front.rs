//! The grid at the front: where blocks begin among the packets behind a gap, as far as that is certain.
//!
//! Packets that wait in the ring need no place until their repair tells it. One that is placed ahead of its
//! turn must be added to its block's sums at once, so its place must be known:
//!
//! - a message's First or Only packet begins a block;
//! - a packet that follows the one before it continues its block, or begins one if that was full;
//! - behind a single missing packet, a Middle or Last packet is of the message that was open, whose Middle
//!   is missing; with none open, the message's First is missing.
//!
//! Behind two missing packets or more, an end and a beginning may be among them: nothing is certain until
//! the next First or Only packet.

use crate::grid::Grid;
use lacuna_wire::rc::Part;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front {
    grid: Grid,
    is_certain: bool,
}

impl Front {
    /// The front of a flow that is in order.
    pub(crate) fn new(grid: Grid) -> Self {
        Self { grid, is_certain: true }
    }

    /// Takes a data packet; the first number of its block, if that is certain.
    pub(crate) fn place(&mut self, psn: u64, part: Part, block_packets: u16) -> Option<u64> {
        let gap = psn.checked_sub(self.grid.next)?;
        if !part.begins() {
            match gap {
                0 => {}
                1 => {
                    let missing = if self.grid.in_message { Part::Middle } else { Part::First };
                    self.grid.step(self.grid.next, missing, block_packets);
                }
                _ => self.is_certain = false,
            }
        } else {
            self.is_certain = true;
        }
        self.grid.step(psn, part, block_packets);
        self.is_certain.then_some(self.grid.first)
    }

    /// Takes a packet that has numbers and no place in a block.
    pub(crate) fn skip(&mut self, psn: u64, numbers: u64) {
        if psn >= self.grid.next {
            self.grid.skip(psn, numbers);
            self.is_certain = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Part::{First, Last, Middle, Only};

    #[test]
    fn one_missing_packet_leaves_the_grid_certain_two_do_not() {
        let mut grid = Grid::at(10);
        grid.step(10, First, 4);
        // 11 is missing.
        let mut front = Front::new(grid);
        assert_eq!(front.place(12, Middle, 4), Some(10));
        assert_eq!(front.place(13, Middle, 4), Some(10));
        assert_eq!(front.place(14, Middle, 4), Some(14));
        // 15 and 16 are missing, perhaps a Last and a First.
        assert_eq!(front.place(17, Middle, 4), None);
        assert_eq!(front.place(18, Last, 4), None);
        assert_eq!(front.place(19, Only, 4), Some(19));
        // 20 is missing, which is a First.
        assert_eq!(front.place(21, Middle, 4), Some(20));
        assert_eq!(front.place(11, Middle, 4), None, "behind the front");
    }
}
