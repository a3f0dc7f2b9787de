//! The two operations of all vector engines, written once over a vector type.
//!
//! A step takes a few vectors of every input and keeps the sums of all its rows in registers: each input
//! byte is read once and each output byte written once, whatever the number of inputs. If there are more
//! rows than fit the registers, they are computed in groups, tile by tile, so that groups after the first
//! read the tile's inputs from the cache.
//!
//! From memory, cache conflicts limit the speed, not the arithmetic: k chunks of a power-of-two length
//! start in the same set of every cache. Hence the software prefetch, [`PREFETCH_BYTES`] ahead into the L2
//! cache. Measured: M-code-1, with the variants that were slower. Non-temporal stores would be faster,
//! but the sender of the parity would have to fetch it back from memory.

#![allow(unsafe_code)]
// Loops over arrays of registers are completely unrolled; indices are clearer than iterators there.
#![allow(clippy::needless_range_loop)]

use super::plan::{Matrix, Task};
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::ops::Range;

/// Prefetch distance of each of many inputs: from 384 bytes on a larger one makes no difference, and the
/// last bytes of a chunk are prefetched in vain. Measured: M-code-1.
const PREFETCH_BYTES: usize = 512;

/// Prefetch distance of one or two inputs, together: they are read so much faster that 512 bytes ahead
/// would be too late. 4 KiB is a packet; mostly the next packet follows. Measured: M-code-2.
const PREFETCH_FEW_BYTES: usize = 4096;

/// Bytes of a cache line, and of the widest vector.
const LINE_BYTES: usize = 64;

/// Bytes of all inputs in a tile, if there are several groups of rows: half of an L1 cache of 32 KiB.
const TILE_BYTES: usize = 16 << 10;

/// Shortest tile; all are multiples of it. Two steps of the widest engine.
const TILE_BYTES_MIN: usize = 256;

/// A register full of bytes, and how to multiply it by a constant.
///
/// # Safety
/// Every function may be called only where the processor has the instructions
/// that the implementing file names. Pointers need no alignment and are valid
/// for as many bytes as the function moves.
pub(super) unsafe trait Vector: Copy {
    /// Bytes of a vector; at most `LINE_BYTES`.
    const BYTES: usize;
    /// Rows whose sums fit the registers; a divisor of `ROW_GROUP`.
    const ROWS: usize;
    /// Words that a coefficient takes in the plan.
    const FACTOR_WORDS: usize;
    /// A coefficient in registers.
    type Factor: Copy;
    /// An input prepared for products.
    type Source: Copy;

    /// Writes a coefficient into the plan: `FACTOR_WORDS` words.
    fn write_factor(coefficient: u8, words: &mut [u64]);
    /// Reads a coefficient from the plan.
    unsafe fn factor(words: *const u64) -> Self::Factor;
    /// All zeros.
    unsafe fn zero() -> Self;
    /// Reads `BYTES`.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `BYTES`.
    unsafe fn store(self, to: *mut u8);
    /// The sum in the field.
    unsafe fn xor(self, other: Self) -> Self;
    /// Prepares an input.
    unsafe fn source(self) -> Self::Source;
    /// The product.
    unsafe fn product(factor: Self::Factor, source: Self::Source) -> Self;

    /// Reads `len` bytes, less than `BYTES`; the others are zero.
    #[inline(always)]
    unsafe fn load_part(from: *const u8, len: usize) -> Self {
        let mut line = [0u8; LINE_BYTES];
        // SAFETY: `len` bytes are valid at `from` by contract and fit the line.
        unsafe {
            std::ptr::copy_nonoverlapping(from, line.as_mut_ptr(), len);
            Self::load(line.as_ptr())
        }
    }

    /// Writes the first `len` bytes, less than `BYTES`.
    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, len: usize) {
        let mut line = [0u8; LINE_BYTES];
        // SAFETY: the vector fits the line; `len` bytes are valid at `to` by
        // contract.
        unsafe {
            self.store(line.as_mut_ptr());
            std::ptr::copy_nonoverlapping(line.as_ptr(), to, len);
        }
    }

    /// Calls [`Group::multiply`] with as many rows as there are outputs, 1 to
    /// `ROWS`, and steps of as many vectors as fit the registers then.
    ///
    /// # Safety
    /// As for [`Group::multiply`].
    unsafe fn multiply_group(group: &Group<'_>, outputs: &mut [&mut [u8]], columns: Range<usize>);
}

/// Products with one group of rows.
pub(super) struct Group<'a> {
    /// The factors of the first input: `ROWS` of them, then those of the next.
    factors: *const u64,
    inputs: &'a [&'a [u8]],
    accumulate: bool,
    prefetch_bytes: usize,
}

/// Words of a plan: groups of `ROWS` rows; in a group the columns, in a column
/// the factors of the group's rows.
pub(super) const fn plan_words<V: Vector>(rows: usize, columns: usize) -> usize {
    rows.div_ceil(V::ROWS) * columns * V::ROWS * V::FACTOR_WORDS
}

/// Writes a matrix in this layout. Missing rows of the last group are not written: they are never read.
pub(super) fn write_plan<V: Vector>(matrix: &Matrix<'_>, words: &mut [u64]) {
    for row in 0..matrix.rows() {
        for (column, coefficient) in matrix.row(row).iter().enumerate() {
            let place = (row / V::ROWS * matrix.columns + column) * V::ROWS + row % V::ROWS;
            let words = &mut words[place * V::FACTOR_WORDS..][..V::FACTOR_WORDS];
            V::write_factor(*coefficient, words);
        }
    }
}

/// `Kernel::mul`.
///
/// # Panics
/// If a slice ends before the columns do, or the plan before the task.
///
/// # Safety
/// The processor has `V`'s instructions.
#[inline(always)]
pub(super) unsafe fn mul<V: Vector>(
    task: &Task<'_>,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    columns: Range<usize>,
    accumulate: bool,
) {
    assert!(inputs.iter().all(|input| columns.end <= input.len()));
    assert!(outputs.iter().all(|output| columns.end <= output.len()));
    assert!(task.first_row.is_multiple_of(V::ROWS));
    assert!(inputs.len() <= task.columns && task.first_column <= task.columns - inputs.len());
    assert!(plan_words::<V>(task.first_row + outputs.len(), task.columns) <= task.words.len());
    let tile_bytes = if outputs.len() <= V::ROWS {
        columns.len()
    } else {
        TILE_BYTES / inputs.len().max(1) / TILE_BYTES_MIN * TILE_BYTES_MIN
    };
    let tile_bytes = tile_bytes.max(TILE_BYTES_MIN);
    let mut start = columns.start;
    while start < columns.end {
        let end = columns.end.min(start + tile_bytes);
        for (index, outputs) in outputs.chunks_mut(V::ROWS).enumerate() {
            let group = task.first_row / V::ROWS + index;
            let place = (group * task.columns + task.first_column) * V::ROWS * V::FACTOR_WORDS;
            // SAFETY: the group's factors are in the plan by the assertion on
            // its words; if there are no inputs, none are read.
            let factors = unsafe { task.words.as_ptr().add(place) };
            let prefetch_bytes = prefetch_bytes(inputs.len());
            let group = Group { factors, inputs, accumulate, prefetch_bytes };
            // SAFETY: the slices reach to the columns' end by the assertions,
            // and there are 1 to `ROWS` outputs.
            unsafe { V::multiply_group(&group, outputs, start..end) };
        }
        start = end;
    }
}

impl Group<'_> {
    /// Number of inputs.
    #[inline(always)]
    pub(super) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// The group without its first rows.
    ///
    /// # Panics
    /// If it has no more rows than that.
    #[inline(always)]
    pub(super) fn skip_rows<V: Vector>(&self, rows: usize) -> Self {
        assert!(rows < V::ROWS);
        // Inside of the first input's factors.
        let factors = self.factors.wrapping_add(rows * V::FACTOR_WORDS);
        Self { factors, ..*self }
    }

    /// Sums of `R` rows over `columns`, in steps of `W` vectors.
    ///
    /// # Safety
    /// The processor has `V`'s instructions; there are `R` outputs, at most
    /// `V::ROWS`; all slices reach to the columns' end; the plan has the
    /// factors of all inputs.
    #[inline(always)]
    pub(super) unsafe fn multiply<V: Vector, const R: usize, const W: usize>(
        &self,
        outputs: &mut [&mut [u8]],
        columns: Range<usize>,
    ) {
        debug_assert_eq!(outputs.len(), R);
        let mut pointers = [std::ptr::null_mut(); R];
        for (pointer, output) in pointers.iter_mut().zip(outputs) {
            *pointer = output.as_mut_ptr();
        }
        let mut at = columns.start;
        // SAFETY: each step ends at or before the columns' end, where all
        // slices reach; the rest is this function's contract.
        unsafe {
            while columns.end - at >= W * V::BYTES {
                self.step::<V, R, W>(&pointers, at, None);
                at += W * V::BYTES;
            }
            while columns.end - at >= V::BYTES {
                self.step::<V, R, 1>(&pointers, at, None);
                at += V::BYTES;
            }
            if at < columns.end {
                self.step::<V, R, 1>(&pointers, at, Some(columns.end - at));
            }
        }
    }

    /// `W` vectors of each row from `at` on, or `part` bytes.
    ///
    /// # Safety
    /// As for `multiply`, and all slices reach to the end of the step.
    #[inline(always)]
    unsafe fn step<V: Vector, const R: usize, const W: usize>(
        &self,
        outputs: &[*mut u8; R],
        at: usize,
        part: Option<usize>,
    ) {
        let load = |from: *const u8| match part {
            // SAFETY: `from` is in a slice that reaches to the end of the step.
            None => unsafe { V::load(from) },
            // SAFETY: as above.
            Some(len) => unsafe { V::load_part(from, len) },
        };
        // SAFETY: outputs and inputs reach to the end of the step by contract,
        // and so do the factors, `ROWS` per input; a prefetch may be anywhere.
        unsafe {
            let mut sums = [[V::zero(); W]; R];
            if self.accumulate {
                for r in 0..R {
                    for w in 0..W {
                        sums[r][w] = load(outputs[r].add(at + w * V::BYTES));
                    }
                }
            }
            for (index, input) in self.inputs.iter().enumerate() {
                let from = input.as_ptr().add(at);
                prefetch::<V, W>(from, self.prefetch_bytes);
                let mut sources = [V::zero().source(); W];
                for w in 0..W {
                    sources[w] = load(from.add(w * V::BYTES)).source();
                }
                let factors = self.factors.add(index * V::ROWS * V::FACTOR_WORDS);
                for r in 0..R {
                    let factor = V::factor(factors.add(r * V::FACTOR_WORDS));
                    for w in 0..W {
                        sums[r][w] = sums[r][w].xor(V::product(factor, sources[w]));
                    }
                }
            }
            for r in 0..R {
                for w in 0..W {
                    let to = outputs[r].add(at + w * V::BYTES);
                    match part {
                        None => sums[r][w].store(to),
                        Some(len) => sums[r][w].store_part(to, len),
                    }
                }
            }
        }
    }
}

/// `Kernel::xor`.
///
/// # Panics
/// If a slice ends before the columns do.
///
/// # Safety
/// The processor has `V`'s instructions.
#[inline(always)]
pub(super) unsafe fn xor<V: Vector>(
    inputs: &[&[u8]],
    output: &mut [u8],
    columns: Range<usize>,
    accumulate: bool,
) {
    assert!(inputs.iter().all(|input| columns.end <= input.len()));
    assert!(columns.end <= output.len());
    let output = output.as_mut_ptr();
    let mut at = columns.start;
    // SAFETY: the slices reach to the columns' end by the assertions, and each
    // step ends at or before it.
    unsafe {
        while columns.end - at >= 4 * V::BYTES {
            xor_step::<V, 4>(inputs, output, at, accumulate, None);
            at += 4 * V::BYTES;
        }
        while columns.end - at >= V::BYTES {
            xor_step::<V, 1>(inputs, output, at, accumulate, None);
            at += V::BYTES;
        }
        if at < columns.end {
            xor_step::<V, 1>(inputs, output, at, accumulate, Some(columns.end - at));
        }
    }
}

/// `W` vectors of the sum from `at` on, or `part` bytes.
///
/// # Safety
/// The processor has `V`'s instructions and all slices reach to the end of the
/// step.
#[inline(always)]
unsafe fn xor_step<V: Vector, const W: usize>(
    inputs: &[&[u8]],
    output: *mut u8,
    at: usize,
    accumulate: bool,
    part: Option<usize>,
) {
    // SAFETY: output and inputs reach to the end of the step by contract; a
    // prefetch may be anywhere.
    unsafe {
        let mut sums = [V::zero(); W];
        let ahead_bytes = prefetch_bytes(inputs.len());
        let start = if accumulate { Some(output.cast_const()) } else { None };
        let inputs = inputs.iter().map(|input| input.as_ptr());
        for from in start.into_iter().chain(inputs) {
            let from = from.add(at);
            prefetch::<V, W>(from, ahead_bytes);
            for w in 0..W {
                let vector = match part {
                    None => V::load(from.add(w * V::BYTES)),
                    Some(len) => V::load_part(from, len),
                };
                sums[w] = sums[w].xor(vector);
            }
        }
        for w in 0..W {
            match part {
                None => sums[w].store(output.add(at + w * V::BYTES)),
                Some(len) => sums[w].store_part(output.add(at), len),
            }
        }
    }
}

/// Prefetch distance of each input.
#[inline(always)]
fn prefetch_bytes(inputs: usize) -> usize {
    match inputs {
        1 | 2 => PREFETCH_FEW_BYTES / inputs,
        _ => PREFETCH_BYTES,
    }
}

/// Prefetches the lines that a later step of `W` vectors will read.
#[inline(always)]
fn prefetch<V: Vector, const W: usize>(from: *const u8, ahead_bytes: usize) {
    let mut offset = 0;
    while offset < W * V::BYTES {
        let line = from.wrapping_add(ahead_bytes + offset);
        // SAFETY: a prefetch reads nothing and never faults, wherever it points;
        // SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
        offset += LINE_BYTES;
    }
}
