//! Which element lies where: blocks of the transform, units of interleaved blocks, packets.
//!
//! OptiNIC 3.2: a tensor is cut into blocks of p elements, and a packet carries p/S elements of each of S
//! blocks. Invariants:
//!
//! - A block lies within one tensor, so tensors of different scale are never mixed.
//! - The encoded form has as many elements as the tensors: what is left of a tensor after its blocks of p
//!   elements is cut into ever smaller powers of two instead of being padded.
//! - Blocks are ordered by falling size, in the tensors' order within a size. S·p elements of blocks are a
//!   [`Unit`]; all units but the last have exactly that many, as sizes are powers of two.
//! - A unit is written in S rounds: round t takes from each block of n elements those from tn/S to
//!   (t+1)n/S. In a unit of S blocks of p elements a round is a packet. Where there are fewer blocks than S,
//!   a packet takes several rounds: the stride is never more than the blocks there are.

use std::ops::Range;

/// Smallest block for which a layout can be made.
pub const BLOCK_MIN: usize = 64;
/// Largest block of a layout: 16 KiB of f32, which fits the L1 cache beside its source.
pub const BLOCK_MAX: usize = 4096;
/// The default stride. Losing one packet in a hundred leaves the worst block near the mean from here on.
pub const STRIDE_DEFAULT: usize = 64;

/// Sizes that a block may have: 2^0 to 2^12.
const CLASSES_MAX: usize = BLOCK_MAX.ilog2() as usize + 1;

/// Where the elements of some tensors lie in packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    block_log2: u32,
    stride_log2: u32,
    packet: usize,
    elements: usize,
    tensors: Vec<Tensor>,
    full_blocks: usize,
    rests: Vec<Rest>,
}

/// Why there is no such layout. The caller's numbers are at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The block is no power of two or too small or large.
    #[error(
        "blocks of {block} elements: {BLOCK_MIN} to {BLOCK_MAX} and a power of two are possible"
    )]
    Block {
        /// Elements asked for.
        block: usize,
    },
    /// The stride is no power of two or larger than the block.
    #[error("stride {stride}: powers of two up to the block of {block} elements are possible")]
    Stride {
        /// Stride asked for.
        stride: usize,
        /// Elements of a block.
        block: usize,
    },
    /// Packets without elements.
    #[error("a packet must have one element or more")]
    EmptyPacket,
    /// More elements than memory can have.
    #[error("tensor {tensor}: the lengths add up to more than memory can have")]
    TooLong {
        /// The tensor with which the sum overflows.
        tensor: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tensor {
    start: usize,
    len: usize,
    /// Blocks of full size in the tensors before.
    full_before: usize,
}

/// A block that is smaller than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rest {
    start: usize,
    log2: u32,
    /// Encoded elements before it.
    wire: usize,
}

/// A block: consecutive elements of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The first element's index, counted over all tensors.
    pub start: usize,
    /// Elements are 2 to the power of this.
    pub log2: u32,
}

/// Blocks that share their packets: what must be encoded before the first of these packets can leave.
#[derive(Debug, Clone)]
pub struct Unit {
    wire: Range<usize>,
    blocks: Range<usize>,
    rounds_log2: u32,
    classes: [Class; CLASSES_MAX],
    class_count: usize,
}

/// Blocks of one size in a unit.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    log2: u32,
    /// The first one's index within the unit.
    first: usize,
    count: usize,
}

/// Consecutive elements of a block that lie beside each other in the encoded form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first element within its block.
    pub start: usize,
    /// Elements.
    pub len: usize,
    /// The first element's place in the encoded form of the unit.
    pub place: usize,
}

/// A block's elements in runs of equal length at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Runs {
    /// Elements of a run are 2 to the power of this.
    pub(super) run_log2: u32,
    /// Elements from the start of a run to the start of the next.
    pub(super) pitch: usize,
}

impl Runs {
    /// A block of consecutive elements.
    pub(super) const CONTIGUOUS: Self = Self { run_log2: usize::BITS - 1, pitch: 0 };

    /// Place of an element of the block, from the place of its first.
    #[inline(always)]
    pub(super) fn place(&self, element: usize) -> usize {
        (element >> self.run_log2) * self.pitch + (element & ((1 << self.run_log2) - 1))
    }
}

impl Block {
    /// Number of elements.
    pub fn len(&self) -> usize {
        1 << self.log2
    }

    /// Always false: a block has one element or more.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The elements, counted over all tensors.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len()
    }
}

impl Layout {
    /// Blocks of `block` elements, of which `stride` share packets of `block` elements. `tensors` are the
    /// lengths of the tensors, in elements, which lie one behind the other.
    pub fn new(block: usize, stride: usize, tensors: &[usize]) -> Result<Self, LayoutError> {
        if !block.is_power_of_two() || !(BLOCK_MIN..=BLOCK_MAX).contains(&block) {
            return Err(LayoutError::Block { block });
        }
        if !stride.is_power_of_two() || stride > block {
            return Err(LayoutError::Stride { stride, block });
        }
        let block_log2 = block.ilog2();
        let mut layout = Self {
            block_log2,
            stride_log2: stride.ilog2(),
            packet: block,
            elements: 0,
            tensors: Vec::with_capacity(tensors.len()),
            full_blocks: 0,
            rests: Vec::new(),
        };
        for (tensor, len) in tensors.iter().copied().enumerate() {
            let start = layout.elements;
            // Bytes of f32 must be countable too.
            let end = start.checked_add(len).filter(|end| *end <= isize::MAX as usize / 4);
            layout.elements = end.ok_or(LayoutError::TooLong { tensor })?;
            layout.tensors.push(Tensor { start, len, full_before: layout.full_blocks });
            layout.full_blocks += len >> block_log2;
        }
        let mut wire = layout.full_blocks << block_log2;
        for log2 in (0..block_log2).rev() {
            for tensor in &layout.tensors {
                if tensor.len >> log2 & 1 == 1 {
                    // What is left is cut largest first, so larger ones lie before.
                    let before = tensor.len >> (log2 + 1) << (log2 + 1);
                    layout.rests.push(Rest { start: tensor.start + before, log2, wire });
                    wire += 1 << log2;
                }
            }
        }
        debug_assert_eq!(wire, layout.elements);
        Ok(layout)
    }

    /// The same with packets of `packet` elements, where that is not a block's number of elements. Their
    /// elements come from as many blocks as fit; units then begin and end within packets.
    pub fn with_packet_elements(mut self, packet: usize) -> Result<Self, LayoutError> {
        if packet == 0 {
            return Err(LayoutError::EmptyPacket);
        }
        self.packet = packet;
        Ok(self)
    }

    /// Elements of a block, but for those at the end of a tensor.
    pub fn block_elements(&self) -> usize {
        1 << self.block_log2
    }

    /// Blocks that share a packet, if there are as many.
    pub fn stride(&self) -> usize {
        1 << self.stride_log2
    }

    /// Elements of all tensors, and of their encoded form.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.full_blocks + self.rests.len()
    }

    /// A block.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn block(&self, block: usize) -> Block {
        if block >= self.full_blocks {
            let rest = self.rests[block - self.full_blocks];
            return Block { start: rest.start, log2: rest.log2 };
        }
        // The last tensor with at most as many blocks before it; tensors without any come before.
        let after = self.tensors.partition_point(|tensor| tensor.full_before <= block);
        let tensor = self.tensors[after - 1];
        let start = tensor.start + ((block - tensor.full_before) << self.block_log2);
        Block { start, log2: self.block_log2 }
    }

    /// The block of an element.
    ///
    /// # Panics
    /// If there are not as many elements.
    pub fn block_of(&self, element: usize) -> usize {
        assert!(element < self.elements, "element {element} of {}", self.elements);
        let after = self.tensors.partition_point(|tensor| tensor.start <= element);
        let tensor = self.tensors[after - 1];
        let offset = element - tensor.start;
        if offset >> self.block_log2 < tensor.len >> self.block_log2 {
            return tensor.full_before + (offset >> self.block_log2);
        }
        // The rest's blocks are the set bits of the length: the highest bit in which offset and length
        // differ tells the block.
        let log2 = (offset ^ tensor.len).ilog2();
        let start = tensor.start + (tensor.len >> (log2 + 1) << (log2 + 1));
        let order = |rest: &Rest| (std::cmp::Reverse(rest.log2), rest.start);
        let found = self.rests.binary_search_by_key(&(std::cmp::Reverse(log2), start), order);
        self.full_blocks + found.expect("each bit of a tensor's length has its block")
    }

    /// Number of units.
    pub fn units(&self) -> usize {
        self.elements.div_ceil(self.unit_elements())
    }

    /// A unit.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn unit(&self, unit: usize) -> Unit {
        assert!(unit < self.units(), "unit {unit} of {}", self.units());
        let start = unit * self.unit_elements();
        let wire = start..self.elements.min(start + self.unit_elements());
        let blocks = self.block_at(wire.start)..self.block_at(wire.end);
        let mut classes = [Class::default(); CLASSES_MAX];
        let mut class_count = 0;
        let mut add = |log2: u32, first: usize, count: usize| {
            classes[class_count] = Class { log2, first, count };
            class_count += 1;
        };
        let full = self.full_blocks.clamp(blocks.start, blocks.end) - blocks.start;
        if full > 0 {
            add(self.block_log2, 0, full);
        }
        let mut at = blocks.start + full;
        while at < blocks.end {
            let rests = &self.rests[at - self.full_blocks..blocks.end - self.full_blocks];
            let log2 = rests[0].log2;
            let count = rests.partition_point(|rest| rest.log2 >= log2);
            add(log2, at - blocks.start, count);
            at += count;
        }
        Unit { wire, blocks, rounds_log2: self.stride_log2, classes, class_count }
    }

    /// The unit of a block.
    pub fn unit_of(&self, block: usize) -> usize {
        let wire = match block.checked_sub(self.full_blocks) {
            None => block << self.block_log2,
            Some(rest) => self.rests[rest].wire,
        };
        wire / self.unit_elements()
    }

    /// Elements of a packet, but for the last.
    pub fn packet_elements(&self) -> usize {
        self.packet
    }

    /// Number of packets.
    pub fn packets(&self) -> usize {
        self.elements.div_ceil(self.packet)
    }

    /// Packet of an element, and its place there.
    ///
    /// # Panics
    /// If there are not as many elements.
    pub fn place(&self, element: usize) -> (usize, usize) {
        let block = self.block_of(element);
        let unit = self.unit(self.unit_of(block));
        let within = element - self.block(block).start;
        let place = unit.wire.start + unit.place(block - unit.blocks.start, within);
        (place / self.packet, place % self.packet)
    }

    fn unit_elements(&self) -> usize {
        1 << (self.block_log2 + self.stride_log2)
    }

    /// The block that begins at a place of the encoded form, by the blocks' order; the number of blocks at
    /// its end.
    fn block_at(&self, wire: usize) -> usize {
        let block = wire >> self.block_log2;
        if block < self.full_blocks {
            return block;
        }
        self.full_blocks + self.rests.partition_point(|rest| rest.wire < wire)
    }
}

impl Unit {
    /// Its elements in the encoded form of all tensors.
    pub fn wire(&self) -> Range<usize> {
        self.wire.clone()
    }

    /// Its blocks, by their numbers in the layout.
    pub fn blocks(&self) -> Range<usize> {
        self.blocks.clone()
    }

    /// The runs of a block, which is counted within the unit.
    ///
    /// # Panics
    /// If there are not as many blocks.
    pub fn runs(&self, block: usize) -> impl Iterator<Item = Run> + '_ {
        let class = self.class(block);
        let of = self.classes[class];
        (0..1usize << self.rounds_log2).filter_map(move |round| {
            let (start, end) = (self.share(of.log2, round), self.share(of.log2, round + 1));
            let len = end - start;
            (len > 0).then(|| {
                let place = self.round_of_class(class, round) + (block - of.first) * len;
                Run { start, len, place }
            })
        })
    }

    /// Where an element of a block, which is counted within the unit, lies in the unit's encoded form.
    pub fn place(&self, block: usize, element: usize) -> usize {
        let class = self.class(block);
        let of = self.classes[class];
        // The round t with t·n/S <= element < (t+1)·n/S, both rounded down.
        let round = (((element + 1) << self.rounds_log2) - 1) >> of.log2;
        let (start, end) = (self.share(of.log2, round), self.share(of.log2, round + 1));
        let first = self.round_of_class(class, round) + (block - of.first) * (end - start);
        first + element - start
    }

    /// Place of the first element of a block, and its runs, if all blocks of the unit have the same size.
    pub(super) fn regular(&self, block: usize) -> Option<(usize, Runs)> {
        if self.class_count != 1 {
            return None;
        }
        let Class { log2, count, .. } = self.classes[0];
        let run_log2 = log2.saturating_sub(self.rounds_log2);
        Some((block << run_log2, Runs { run_log2, pitch: count << run_log2 }))
    }

    /// Elements of a block of 2^log2 that lie in the rounds before.
    fn share(&self, log2: u32, round: usize) -> usize {
        (round << log2) >> self.rounds_log2
    }

    fn class(&self, block: usize) -> usize {
        let classes = &self.classes[..self.class_count];
        let found = classes.iter().position(|class| block - class.first < class.count);
        found.unwrap_or_else(|| panic!("block {block} of {}", self.blocks.len()))
    }

    /// Where a round's elements of a class begin.
    fn round_of_class(&self, class: usize, round: usize) -> usize {
        let mut place = 0;
        for (index, of) in self.classes[..self.class_count].iter().enumerate() {
            let until = if index < class { round + 1 } else { round };
            place += self.share(of.log2, until) * of.count;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layouts() -> impl Strategy<Value = Layout> {
        let lengths = prop::collection::vec(prop_oneof![0usize..300, 0usize..20_000], 0..8);
        (6u32..=9, 0u32..=9, lengths, 1usize..700).prop_map(|(block, stride, tensors, packet)| {
            let layout = Layout::new(1 << block, 1 << stride.min(block), &tensors).unwrap();
            if packet < 350 { layout.with_packet_elements(packet).unwrap() } else { layout }
        })
    }

    proptest! {
        #[test]
        fn every_element_has_one_place_and_blocks_keep_to_their_tensor(layout in layouts()) {
            let mut is_taken = vec![false; layout.elements()];
            for unit in (0..layout.units()).map(|unit| layout.unit(unit)) {
                for (index, block) in unit.blocks().enumerate() {
                    let range = layout.block(block).range();
                    let within = |tensor: &Tensor| {
                        tensor.start <= range.start && range.end <= tensor.start + tensor.len
                    };
                    prop_assert!(layout.tensors.iter().any(within));
                    let mut next = 0;
                    for run in unit.runs(index) {
                        prop_assert_eq!(run.start, next);
                        next += run.len;
                        for offset in 0..run.len {
                            let element = range.start + run.start + offset;
                            prop_assert_eq!(layout.block_of(element), block);
                            let place = unit.wire().start + run.place + offset;
                            let at = (place / layout.packet, place % layout.packet);
                            prop_assert_eq!(layout.place(element), at);
                            prop_assert!(!std::mem::replace(&mut is_taken[place], true));
                            if let Some((first, runs)) = unit.regular(index) {
                                prop_assert_eq!(first + runs.place(run.start + offset), run.place + offset);
                            }
                        }
                    }
                    prop_assert_eq!(next, range.len());
                }
            }
            prop_assert!(is_taken.iter().all(|is_taken| *is_taken));
        }

        #[test]
        fn all_units_but_the_last_are_full(layout in layouts()) {
            for unit in 0..layout.units() {
                let wire = layout.unit(unit).wire();
                let full = layout.block_elements() * layout.stride();
                prop_assert!(wire.len() == full || unit + 1 == layout.units());
                let blocks = layout.unit(unit).blocks();
                prop_assert_eq!(blocks.map(|block| layout.block(block).len()).sum::<usize>(), wire.len());
            }
        }
    }

    #[test]
    fn a_packet_carries_the_same_share_of_each_block_of_its_unit() {
        let layout = Layout::new(1024, 64, &[1024 * 128]).unwrap();
        assert_eq!((layout.units(), layout.packets()), (2, 128));
        let mut shares = vec![[0; 128]; 128];
        for element in 0..layout.elements() {
            shares[layout.place(element).0][layout.block_of(element)] += 1;
        }
        for (packet, shares) in shares.iter().enumerate() {
            for (block, share) in shares.iter().enumerate() {
                assert_eq!(*share, if packet / 64 == block / 64 { 16 } else { 0 });
            }
        }
    }

    #[test]
    fn fewer_blocks_than_the_stride_share_all_packets() {
        // Three blocks: each packet has a third of each, to within a run of 16.
        let layout = Layout::new(1024, 64, &[3 * 1024]).unwrap();
        for packet in 0..3 {
            for block in 0..3 {
                let here = |element: &usize| layout.place(*element).0 == packet;
                let share = (block * 1024..(block + 1) * 1024).filter(here).count();
                assert!(share.abs_diff(341) <= 16, "packet {packet}, block {block}: {share}");
            }
        }
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(Layout::new(1000, 64, &[]), Err(LayoutError::Block { block: 1000 }));
        assert_eq!(Layout::new(8192, 64, &[]), Err(LayoutError::Block { block: 8192 }));
        let error = LayoutError::Stride { stride: 128, block: 64 };
        assert_eq!(Layout::new(64, 128, &[]), Err(error));
        assert_eq!(Layout::new(64, 0, &[]), Err(LayoutError::Stride { stride: 0, block: 64 }));
        let lengths = [usize::MAX / 16, usize::MAX];
        assert_eq!(Layout::new(64, 64, &lengths), Err(LayoutError::TooLong { tensor: 1 }));
        let layout = Layout::new(64, 64, &[5]).unwrap();
        assert_eq!(layout.with_packet_elements(0), Err(LayoutError::EmptyPacket));
    }
}
