//! The transform of all vector engines, written once over a vector type.
//!
//! A pass holds some vectors of a block in registers and does several stages on them: radix 8 where there
//! are 16 registers, radix 16 where there are 32. The first pass takes consecutive vectors and also does
//! the stages within a vector. It loads from where the block lies, the last pass stores to where it goes,
//! so signs, scale and the interleaving of packets cost no pass of their own. A block of 1,024 elements
//! takes two passes over the L1 cache with AVX-512, three with AVX2.
//!
//! Larger data (`transform_in_place`) is transformed in blocks of [`BLOCK_MAX`], and these are combined
//! depth first, so that what fits a cache is finished there.

#![allow(unsafe_code)]
// Loops over arrays of registers are completely unrolled; indices are clearer than iterators there.
#![allow(clippy::needless_range_loop, reason = "indices are of several registers at once")]

use super::super::layout::{BLOCK_MAX, Runs};
use super::scalar::Scalar;
use super::{Kernel, SIGN_WORDS, Scratch, Task, Way};

/// Bytes of an element.
const ELEMENT_BYTES: usize = 4;

/// What is done besides the transform: signs and a check of the outputs, signs after it, nothing.
const ENCODE: u8 = 0;
const DECODE: u8 = 1;
const PLAIN: u8 = 2;

static NO_SIGNS: [u64; SIGN_WORDS] = [0; SIGN_WORDS];

/// A register full of f32.
///
/// # Safety
/// Every function may be called only where the processor has the instructions
/// that the implementing file names. Pointers need no alignment and are valid
/// for `LANES` elements.
pub(super) unsafe trait Vector: Copy {
    /// Elements of a vector are 2 to the power of this; at most 16.
    const LANES_LOG2: u32;
    /// The largest radix whose vectors fit the registers, as a power of two; at most 4.
    const RADIX_LOG2_MAX: u32;

    /// The same in all lanes.
    unsafe fn splat(value: f32) -> Self;
    /// Reads a vector.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes a vector.
    unsafe fn store(self, to: *mut u8);
    /// The sum.
    unsafe fn add(self, other: Self) -> Self;
    /// The difference.
    unsafe fn sub(self, other: Self) -> Self;
    /// The product.
    unsafe fn mul(self, other: Self) -> Self;
    /// The stages within a vector.
    unsafe fn within(self) -> Self;
    /// Negates the lanes whose bit is set; higher bits are ignored.
    unsafe fn negate(self, lanes: u64) -> Self;
    /// This, plus zero times the other: no longer zero where the other is not finite.
    unsafe fn note(self, other: Self) -> Self;
    /// Fetches a line into the L2 cache; may point anywhere.
    unsafe fn prefetch(at: *const u8);
    /// Whether all lanes are zero, of whichever sign.
    unsafe fn is_zero(self) -> bool;
}

/// `Kernel::transform`.
///
/// # Panics
/// If the task's elements are not within the slices.
///
/// # Safety
/// The processor has `V`'s instructions.
#[inline(always)]
pub(super) unsafe fn transform<V: Vector>(
    task: &Task<'_>,
    from: &[u8],
    to: &mut [u8],
    scratch: &mut Scratch,
) -> bool {
    // A vector must lie within a run.
    let is_possible = |runs: Runs| runs.run_log2 >= V::LANES_LOG2;
    if task.log2 < V::LANES_LOG2 || !is_possible(task.from) || !is_possible(task.to) {
        return Scalar.transform(task, from, to, scratch);
    }
    let last = (1 << task.log2) - 1;
    assert!(last < BLOCK_MAX);
    assert!(task.from.place(last) < from.len() / ELEMENT_BYTES);
    assert!(task.to.place(last) < to.len() / ELEMENT_BYTES);
    let block = Block {
        log2: task.log2 - V::LANES_LOG2,
        task,
        from: from.as_ptr(),
        to: to.as_mut_ptr(),
        scratch: scratch.0.as_mut_ptr().cast(),
    };
    // SAFETY: source, target and scratch hold the block by the assertions: places of elements grow, so
    // the last one's is the greatest.
    unsafe {
        match task.way {
            Way::Encode => block.transform::<V, ENCODE>(),
            Way::Decode => block.transform::<V, DECODE>(),
        }
    }
}

/// `Kernel::transform_in_place`.
///
/// # Safety
/// The processor has `V`'s instructions.
#[inline(always)]
pub(super) unsafe fn transform_in_place<V: Vector>(data: &mut [f32], scale: f32) {
    assert!(data.len().is_power_of_two());
    let log2 = data.len().ilog2();
    if log2 < V::LANES_LOG2 {
        Scalar.transform_in_place(data, scale);
        return;
    }
    // The stages above blocks, shared out to passes as evenly as possible.
    let leaf_log2 = log2.min(BLOCK_MAX.ilog2());
    let passes = (log2 - leaf_log2).div_ceil(V::RADIX_LOG2_MAX);
    let data = data.as_mut_ptr().cast::<u8>();
    let leaf_bytes = ELEMENT_BYTES << leaf_log2;
    for leaf in 0..1usize << (log2 - leaf_log2) {
        let leaf_scale = if passes == 0 { scale } else { 1.0 };
        // SAFETY: the leaf is within the data.
        unsafe { transform_leaf::<V>(data.add(leaf * leaf_bytes), leaf_log2, leaf_scale) };
        // Depth first: passes that this leaf is the last part of.
        let mut at_log2 = leaf_log2;
        for pass in 0..passes {
            let radix_log2 = (log2 - at_log2).div_ceil(passes - pass);
            let above_log2 = at_log2 + radix_log2;
            let leaves = 1usize << (above_log2 - leaf_log2);
            if !(leaf + 1).is_multiple_of(leaves) {
                break;
            }
            let is_last = pass + 1 == passes;
            // SAFETY: as many leaves end with this one, within the data.
            unsafe {
                let part = data.add((leaf + 1 - leaves) * leaf_bytes);
                let half = 1 << (at_log2 - V::LANES_LOG2);
                combine::<V>(part, half, radix_log2, is_last.then_some(scale));
            }
            at_log2 = above_log2;
        }
    }
}

/// Transforms contiguous data of at most [`BLOCK_MAX`] elements.
///
/// # Safety
/// The processor has `V`'s instructions; the data is valid for 2^log2 elements.
#[inline(always)]
unsafe fn transform_leaf<V: Vector>(data: *mut u8, log2: u32, scale: f32) {
    let task = Task {
        log2,
        way: Way::Encode,
        from: Runs::CONTIGUOUS,
        to: Runs::CONTIGUOUS,
        signs: &NO_SIGNS,
        scale,
    };
    // In place: each step of a pass stores where it has loaded from.
    let block = Block {
        log2: log2 - V::LANES_LOG2,
        task: &task,
        from: data.cast_const(),
        to: data,
        scratch: data,
    };
    // SAFETY: the block is all of the data.
    unsafe { block.transform::<V, PLAIN>() };
}

/// Combines 2^radix_log2 parts of `half` vectors each that are transformed already.
///
/// # Safety
/// The processor has `V`'s instructions; the data is valid for all parts.
#[inline(always)]
unsafe fn combine<V: Vector>(data: *mut u8, half: usize, radix_log2: u32, scale: Option<f32>) {
    // SAFETY: the contract is the callee's.
    unsafe {
        match radix_log2 {
            1 => combine_radix::<V, 2>(data, half, scale),
            2 => combine_radix::<V, 4>(data, half, scale),
            3 => combine_radix::<V, 8>(data, half, scale),
            _ => combine_radix::<V, 16>(data, half, scale),
        }
    }
}

/// # Safety
/// As for `combine`.
#[inline(always)]
unsafe fn combine_radix<V: Vector, const R: usize>(data: *mut u8, half: usize, scale: Option<f32>) {
    let bytes = ELEMENT_BYTES << V::LANES_LOG2;
    // SAFETY: vector `at` of each of the `R` parts is within the data.
    unsafe {
        let factor = V::splat(scale.unwrap_or(1.0));
        for at in 0..half {
            let first = data.add(at * bytes);
            let mut vectors = [factor; R];
            for r in 0..R {
                vectors[r] = V::load(first.add(r * half * bytes));
            }
            vectors = butterflies(vectors);
            for r in 0..R {
                // One is exact as a factor.
                vectors[r].mul(factor).store(first.add(r * half * bytes));
            }
        }
    }
}

/// The stages between `R` vectors.
///
/// # Safety
/// The processor has `V`'s instructions.
#[inline(always)]
unsafe fn butterflies<V: Vector, const R: usize>(mut vectors: [V; R]) -> [V; R] {
    let mut step = 1;
    while step < R {
        for r in 0..R {
            if r & step == 0 {
                // SAFETY: the contract is this function's.
                unsafe {
                    let (low, high) = (vectors[r], vectors[r + step]);
                    vectors[r] = low.add(high);
                    vectors[r + step] = low.sub(high);
                }
            }
        }
        step *= 2;
    }
    vectors
}

/// How far ahead of a vector the same of the next block lies: behind this one's run, or behind the block.
/// Without this prefetch encoding and decoding from memory take twice as long: the hardware's prefetchers do
/// not follow runs a packet apart, and lose the contiguous side between them.
#[inline(always)]
fn ahead_bytes(runs: Runs, elements: usize) -> usize {
    ELEMENT_BYTES * if runs.pitch == 0 { elements } else { 1 << runs.run_log2 }
}

/// A block whose passes are to be done. Source, target and scratch are the same memory, or apart.
struct Block<'a> {
    /// Vectors are 2 to the power of this.
    log2: u32,
    task: &'a Task<'a>,
    from: *const u8,
    to: *mut u8,
    scratch: *mut u8,
}

impl Block<'_> {
    /// All passes. Encoding, returns whether all outputs are finite.
    ///
    /// # Safety
    /// The processor has `V`'s instructions; source and target are valid at the places of all elements of
    /// the task, in runs of a vector or more, and scratch for as many elements.
    #[inline(always)]
    unsafe fn transform<V: Vector, const WAY: u8>(&self) -> bool {
        let passes = self.log2.div_ceil(V::RADIX_LOG2_MAX).max(1);
        let mut done_log2 = 0;
        let mut is_finite = true;
        for pass in 0..passes {
            let radix_log2 = (self.log2 - done_log2).div_ceil(passes - pass);
            let half = 1 << done_log2;
            // SAFETY: the contract is the callee's; the radices' product is the number of vectors.
            unsafe {
                match (pass == 0, pass + 1 == passes) {
                    (true, true) => {
                        is_finite = self.pass::<V, true, true, WAY>(half, radix_log2);
                    }
                    (true, false) => _ = self.pass::<V, true, false, WAY>(half, radix_log2),
                    (false, false) => _ = self.pass::<V, false, false, WAY>(half, radix_log2),
                    (false, true) => {
                        is_finite = self.pass::<V, false, true, WAY>(half, radix_log2);
                    }
                }
            }
            done_log2 += radix_log2;
        }
        is_finite
    }

    /// # Safety
    /// As for `radix`.
    #[inline(always)]
    unsafe fn pass<V: Vector, const FIRST: bool, const LAST: bool, const WAY: u8>(
        &self,
        half: usize,
        radix_log2: u32,
    ) -> bool {
        // SAFETY: the contract is the callee's.
        unsafe {
            match radix_log2 {
                0 => self.radix::<V, 1, FIRST, LAST, WAY>(half),
                1 => self.radix::<V, 2, FIRST, LAST, WAY>(half),
                2 => self.radix::<V, 4, FIRST, LAST, WAY>(half),
                3 => self.radix::<V, 8, FIRST, LAST, WAY>(half),
                _ if V::RADIX_LOG2_MAX == 4 => self.radix::<V, 16, FIRST, LAST, WAY>(half),
                _ => unreachable!("radices are at most 2^RADIX_LOG2_MAX"),
            }
        }
    }

    /// One pass of radix `R` over vectors that are `half` apart.
    ///
    /// # Safety
    /// As for `transform`; `half` and `R` are powers of two whose product divides the number of vectors.
    #[inline(always)]
    unsafe fn radix<
        V: Vector,
        const R: usize,
        const FIRST: bool,
        const LAST: bool,
        const WAY: u8,
    >(
        &self,
        half: usize,
    ) -> bool {
        let vectors = 1usize << self.log2;
        // SAFETY: `base + r * half` is below `vectors`, so the elements are within the block; source and
        // target are valid at their places, scratch at their numbers. Sign words suffice for all elements.
        unsafe {
            let factor = V::splat(self.task.scale);
            let mut noted = V::splat(0.0);
            let elements = vectors << V::LANES_LOG2;
            let from_ahead = ahead_bytes(self.task.from, elements);
            let to_ahead = ahead_bytes(self.task.to, elements);
            let mut outer = 0;
            while outer < vectors {
                for base in outer..outer + half {
                    let mut registers = [factor; R];
                    for r in 0..R {
                        let element = (base + r * half) << V::LANES_LOG2;
                        registers[r] = if FIRST {
                            let place = self.task.from.place(element);
                            let from = self.from.add(place * ELEMENT_BYTES);
                            if WAY != PLAIN {
                                V::prefetch(from.wrapping_add(from_ahead));
                            }
                            let vector = V::load(from);
                            let vector =
                                if WAY == ENCODE { self.negate(vector, element) } else { vector };
                            vector.within()
                        } else {
                            V::load(self.scratch.add(element * ELEMENT_BYTES))
                        };
                    }
                    registers = butterflies(registers);
                    for r in 0..R {
                        let element = (base + r * half) << V::LANES_LOG2;
                        if LAST {
                            let vector = registers[r].mul(factor);
                            if WAY == ENCODE {
                                noted = noted.note(vector);
                            }
                            let vector =
                                if WAY == DECODE { self.negate(vector, element) } else { vector };
                            let place = self.task.to.place(element);
                            let to = self.to.add(place * ELEMENT_BYTES);
                            if WAY != PLAIN {
                                V::prefetch(to.wrapping_add(to_ahead));
                            }
                            vector.store(to);
                        } else {
                            registers[r].store(self.scratch.add(element * ELEMENT_BYTES));
                        }
                    }
                }
                outer += half * R;
            }
            noted.is_zero()
        }
    }

    /// Negates the elements of a vector by their signs.
    ///
    /// # Safety
    /// The processor has `V`'s instructions.
    #[inline(always)]
    unsafe fn negate<V: Vector>(&self, vector: V, element: usize) -> V {
        let word = self.task.signs[element / 64 % SIGN_WORDS];
        // SAFETY: the contract is this function's.
        unsafe { vector.negate(word >> (element % 64)) }
    }
}
