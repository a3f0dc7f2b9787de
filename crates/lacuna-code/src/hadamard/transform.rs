//! Encoding tensors into the bytes of packets, and decoding what came of them.
//!
//! The unit of work is a [`Unit`](super::Unit) of the layout, so that a sender can put the first packets on
//! the wire while it encodes the next, and a receiver can decode what is complete. Encoding stores each
//! block's coefficients where they lie in the packets, decoding loads them from there: interleaving takes no
//! pass of its own.

use super::bytes::{bytes_of, bytes_of_mut};
use super::element::Element;
use super::engine::{Engine, EngineError, SIGN_WORDS, Scratch, Task, Way};
use super::layout::{Layout, Runs, Unit};
use super::raw::{BlockState, RawBlocks};
use super::signs;
use std::ops::Range;

/// Encodes and decodes tensors of one type. One per thread; making one allocates 48 KiB.
#[derive(Debug, Clone)]
pub struct Transform {
    engine: Engine,
    element: Element,
    seed: Option<u64>,
    signs: Box<[u64; SIGN_WORDS]>,
    scratch: Box<Scratch>,
    wide: [Box<Scratch>; 2],
}

/// Which packets came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived<'a> {
    /// All.
    All,
    /// Those whose bit is set, lowest bit first; what lies behind the words is missing.
    Bits(&'a [u64]),
}

/// What decoding multiplies blocks with. Raw and mixed blocks are never scaled.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Scale {
    /// Nothing: the least squared error.
    #[default]
    Kept,
    /// 1/(1 - lost), with the share of the block's coefficients that is missing here: the expected value is
    /// the tensor's. A block of which all is missing stays zero.
    Unbiased,
    /// This, where the share is known otherwise: in a sum each contribution may have lost another one.
    By(f32),
}

/// Buffers that do not fit the layout. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// The tensors' buffer.
    #[error("tensors have {have} bytes, and {need} by the layout")]
    Tensors {
        /// Bytes that there are.
        have: usize,
        /// Bytes by the layout.
        need: usize,
    },
    /// The buffer of the encoded form.
    #[error("the encoded form has {have} bytes, and {need} by the layout")]
    Wire {
        /// Bytes that there are.
        have: usize,
        /// Bytes by the layout.
        need: usize,
    },
    /// The list of raw blocks.
    #[error("the list of raw blocks is for {have} blocks, the layout has {need}")]
    Blocks {
        /// Blocks of the list.
        have: usize,
        /// Blocks of the layout.
        need: usize,
    },
}

impl Arrived<'_> {
    /// Whether a packet came.
    pub fn has(&self, packet: usize) -> bool {
        match self {
            Self::All => true,
            Self::Bits(words) => {
                words.get(packet / 64).is_some_and(|word| word >> (packet % 64) & 1 == 1)
            }
        }
    }

    /// Elements of a range of the encoded form that are missing, in ranges.
    fn missing(&self, wire: Range<usize>, packet: usize) -> impl Iterator<Item = Range<usize>> {
        let packets = match self {
            _ if wire.is_empty() => 0..0,
            Self::All => 0..0,
            Self::Bits(_) => wire.start / packet..wire.end.div_ceil(packet),
        };
        packets.filter(|packet| !self.has(*packet)).map(move |index| {
            let start = index * packet;
            start.max(wire.start)..(start + packet).min(wire.end)
        })
    }
}

impl Transform {
    /// A transform with random signs by a seed, which must be the same at all ends, and the engine that
    /// [`Engine::chosen`] names.
    pub fn new(element: Element, seed: u64) -> Result<Self, EngineError> {
        Ok(Self::with_engine(element, seed, Engine::chosen()?))
    }

    /// The same with an engine. All engines give the same bits.
    pub fn with_engine(element: Element, seed: u64, engine: Engine) -> Self {
        Self {
            engine,
            element,
            seed: Some(seed),
            signs: Box::new([0; SIGN_WORDS]),
            scratch: Scratch::new(),
            wide: [Scratch::new(), Scratch::new()],
        }
    }

    /// The same without signs: a tensor whose mean is not zero then has most of its energy in one
    /// coefficient per block.
    pub fn without_signs(self) -> Self {
        Self { seed: None, signs: Box::new([0; SIGN_WORDS]), ..self }
    }

    /// Random signs by another seed from now on.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
    }

    /// The type of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Encodes all units. Returns which blocks are raw: all ends need that list.
    pub fn encode(
        &mut self,
        layout: &Layout,
        tensors: &[u8],
        wire: &mut [u8],
    ) -> Result<RawBlocks, TransformError> {
        self.check_wire(layout.elements(), wire)?;
        let mut raw = RawBlocks::none(layout.blocks());
        for unit in (0..layout.units()).map(|unit| layout.unit(unit)) {
            let wire = &mut wire[self.bytes(unit.wire())];
            self.encode_unit(layout, &unit, tensors, wire, &mut raw)?;
        }
        Ok(raw)
    }

    /// Encodes a unit of all tensors into its own part of the encoded form, and adds the blocks that are not
    /// finite, or whose coefficients would not be, to the raw ones.
    pub fn encode_unit(
        &mut self,
        layout: &Layout,
        unit: &Unit,
        tensors: &[u8],
        wire: &mut [u8],
        raw: &mut RawBlocks,
    ) -> Result<(), TransformError> {
        self.check(layout, unit, tensors, wire, raw)?;
        for (index, number) in unit.blocks().enumerate() {
            let block = layout.block(number);
            let from = &tensors[self.bytes(block.range())];
            self.write_signs(number, block.len());
            if !self.encode_block(unit, index, block.log2, from, wire) {
                scatter(self.element, unit, index, from, wire);
                raw.insert(number);
            }
        }
        Ok(())
    }

    /// Decodes all units. What is missing of the encoded form is zeroed there and counts as zero.
    pub fn decode(
        &mut self,
        layout: &Layout,
        wire: &mut [u8],
        arrived: Arrived<'_>,
        raw: &RawBlocks,
        scale: Scale,
        tensors: &mut [u8],
    ) -> Result<(), TransformError> {
        self.check_wire(layout.elements(), wire)?;
        for unit in (0..layout.units()).map(|unit| layout.unit(unit)) {
            let wire = &mut wire[self.bytes(unit.wire())];
            self.decode_unit(layout, &unit, wire, arrived, raw, scale, tensors)?;
        }
        Ok(())
    }

    /// Decodes a unit, from its own part of the encoded form to its blocks in all tensors.
    // A layout and its unit, two buffers, and three things that are said of them.
    #[allow(
        clippy::too_many_arguments,
        reason = "each is of another type, so none is taken for another"
    )]
    pub fn decode_unit(
        &mut self,
        layout: &Layout,
        unit: &Unit,
        wire: &mut [u8],
        arrived: Arrived<'_>,
        raw: &RawBlocks,
        scale: Scale,
        tensors: &mut [u8],
    ) -> Result<(), TransformError> {
        self.check(layout, unit, tensors, wire, raw)?;
        let mut is_whole = true;
        for missing in arrived.missing(unit.wire(), layout.packet_elements()) {
            let start = unit.wire().start;
            wire[self.bytes(missing.start - start..missing.end - start)].fill(0);
            is_whole = false;
        }
        for (index, number) in unit.blocks().enumerate() {
            let block = layout.block(number);
            let to = &mut tensors[self.bytes(block.range())];
            match raw.state(number) {
                BlockState::Encoded => {
                    let factor = match scale {
                        Scale::Unbiased if !is_whole => {
                            unbiased(layout, unit, index, block.len(), arrived)
                        }
                        Scale::Kept | Scale::Unbiased => 1.0,
                        Scale::By(factor) => factor,
                    };
                    self.write_signs(number, block.len());
                    self.decode_block(unit, index, (block.log2, factor), wire, to);
                }
                BlockState::Raw => gather(self.element, unit, index, wire, to),
                BlockState::Mixed => self.element.fill_nan(to),
            }
        }
        Ok(())
    }

    /// Whether all coefficients are finite; what is written otherwise is of no use.
    fn encode_block(
        &mut self,
        unit: &Unit,
        index: usize,
        log2: u32,
        from: &[u8],
        wire: &mut [u8],
    ) -> bool {
        let Self { engine, element, signs, scratch, wide: [first, second], .. } = self;
        let scale = orthonormal(log2);
        let mut task = Task {
            log2,
            way: Way::Encode,
            from: Runs::CONTIGUOUS,
            to: Runs::CONTIGUOUS,
            signs,
            scale,
        };
        if *element == Element::F32 {
            if let Some((place, runs)) = engine.direct(unit, index) {
                task.to = runs;
                return engine.transform(&task, from, &mut wire[place * 4..], scratch);
            }
            let is_finite = engine.transform(&task, from, bytes_of_mut(&mut first.0), scratch);
            scatter(*element, unit, index, bytes_of(&first.0), wire);
            return is_finite;
        }
        element.widen(from, &mut first.0[..1 << log2]);
        engine.transform(&task, bytes_of(&first.0), bytes_of_mut(&mut second.0), scratch);
        // Of the narrow type: a coefficient may be too large for that.
        let is_finite = element.narrow(&second.0[..1 << log2], bytes_of_mut(&mut first.0));
        scatter(*element, unit, index, bytes_of(&first.0), wire);
        is_finite
    }

    fn decode_block(
        &mut self,
        unit: &Unit,
        index: usize,
        (log2, factor): (u32, f32),
        wire: &[u8],
        to: &mut [u8],
    ) {
        let Self { engine, element, signs, scratch, wide: [first, second], .. } = self;
        let scale = orthonormal(log2) * factor;
        let mut task = Task {
            log2,
            way: Way::Decode,
            from: Runs::CONTIGUOUS,
            to: Runs::CONTIGUOUS,
            signs,
            scale,
        };
        if *element == Element::F32 {
            if let Some((place, runs)) = engine.direct(unit, index) {
                task.from = runs;
                engine.transform(&task, &wire[place * 4..], to, scratch);
                return;
            }
            gather(*element, unit, index, wire, bytes_of_mut(&mut first.0));
            engine.transform(&task, bytes_of(&first.0), to, scratch);
            return;
        }
        gather(*element, unit, index, wire, bytes_of_mut(&mut first.0));
        element.widen(bytes_of(&first.0), &mut second.0[..1 << log2]);
        engine.transform(&task, bytes_of(&second.0), bytes_of_mut(&mut first.0), scratch);
        element.narrow(&first.0[..1 << log2], to);
    }

    fn write_signs(&mut self, block: usize, elements: usize) {
        if let Some(seed) = self.seed {
            signs::write(seed, block, elements, &mut self.signs);
        }
    }

    fn bytes(&self, elements: Range<usize>) -> Range<usize> {
        let bytes = self.element.bytes();
        elements.start * bytes..elements.end * bytes
    }

    fn check_wire(&self, elements: usize, wire: &[u8]) -> Result<(), TransformError> {
        let (have, need) = (wire.len(), elements * self.element.bytes());
        if have == need { Ok(()) } else { Err(TransformError::Wire { have, need }) }
    }

    fn check(
        &self,
        layout: &Layout,
        unit: &Unit,
        tensors: &[u8],
        wire: &[u8],
        raw: &RawBlocks,
    ) -> Result<(), TransformError> {
        let (have, need) = (tensors.len(), layout.elements() * self.element.bytes());
        if have != need {
            return Err(TransformError::Tensors { have, need });
        }
        let (have, need) = (raw.blocks(), layout.blocks());
        if have != need {
            return Err(TransformError::Blocks { have, need });
        }
        self.check_wire(unit.wire().len(), wire)
    }
}

impl Engine {
    /// Place and runs of a block whose vectors can be loaded and stored where they lie in a unit.
    fn direct(self, unit: &Unit, block: usize) -> Option<(usize, Runs)> {
        unit.regular(block).filter(|(_, runs)| 1 << runs.run_log2 >= self.lanes())
    }
}

/// 1/sqrt(n), with which the transform is its own inverse.
fn orthonormal(log2: u32) -> f32 {
    // Exact where the root is.
    (f64::from(1u32 << log2).sqrt().recip()) as f32
}

/// 1/(1 - lost) of a block; 1 if nothing came, as that is zero anyway.
fn unbiased(
    layout: &Layout,
    unit: &Unit,
    index: usize,
    elements: usize,
    arrived: Arrived<'_>,
) -> f32 {
    let lost = |place: usize, len: usize| {
        let start = unit.wire().start + place;
        let missing = arrived.missing(start..start + len, layout.packet_elements());
        missing.map(|range| range.len()).sum::<usize>()
    };
    let lost: usize = unit.runs(index).map(|run| lost(run.place, run.len)).sum();
    if lost == elements { 1.0 } else { elements as f32 / (elements - lost) as f32 }
}

/// Copies a block to its places in the unit.
fn scatter(element: Element, unit: &Unit, index: usize, from: &[u8], wire: &mut [u8]) {
    let bytes = element.bytes();
    for run in unit.runs(index) {
        let from = &from[run.start * bytes..][..run.len * bytes];
        wire[run.place * bytes..][..run.len * bytes].copy_from_slice(from);
    }
}

/// Copies a block from its places in the unit.
fn gather(element: Element, unit: &Unit, index: usize, wire: &[u8], to: &mut [u8]) {
    let bytes = element.bytes();
    for run in unit.runs(index) {
        let from = &wire[run.place * bytes..][..run.len * bytes];
        to[run.start * bytes..][..run.len * bytes].copy_from_slice(from);
    }
}
