//! Runs an operation on the calling thread, or on a rayon pool, where each thread takes a range of every
//! chunk's bytes.

#[cfg(feature = "rayon")]
use crate::code::CHUNKS_MAX;
#[cfg(feature = "rayon")]
use crate::slice_array::{SliceArray, SliceArrayMut};

/// Bytes of inputs and outputs together below which work is not split. They take some ten microseconds to
/// compute, and handing them to another thread takes some microseconds (a judgement, not measured on many
/// cores).
#[cfg(feature = "rayon")]
const PIECE_BYTES: usize = 256 << 10;

/// Splits are at multiples of a cache line, so that each line has one writer.
#[cfg(feature = "rayon")]
const LINE_BYTES: usize = 64;

/// The threads that an operation runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// On the calling thread.
    Caller,
    /// On the threads of the rayon pool that the caller runs in.
    #[cfg(feature = "rayon")]
    Pool,
}

impl Spread {
    /// Calls `work` for all bytes of inputs and outputs, in one or more ranges. May leave empty slices in
    /// the list of outputs.
    pub(crate) fn columns<'o>(
        self,
        inputs: &[&[u8]],
        outputs: &mut [&'o mut [u8]],
        work: &(impl Fn(&[&[u8]], &mut [&'o mut [u8]]) + Sync),
    ) {
        match self {
            Self::Caller => work(inputs, outputs),
            #[cfg(feature = "rayon")]
            Self::Pool => split(inputs, outputs, work),
        }
    }
}

#[cfg(feature = "rayon")]
fn split<'o>(
    inputs: &[&[u8]],
    outputs: &mut [&'o mut [u8]],
    work: &(impl Fn(&[&[u8]], &mut [&'o mut [u8]]) + Sync),
) {
    let longest = |slice: Option<usize>| slice.unwrap_or(0);
    let len = longest(inputs.first().map(|input| input.len()))
        .max(longest(outputs.first().map(|output| output.len())));
    let middle = (len / 2).next_multiple_of(LINE_BYTES);
    if middle >= len || len * (inputs.len() + outputs.len()) <= PIECE_BYTES {
        return work(inputs, outputs);
    }
    let mut low_inputs = SliceArray::<CHUNKS_MAX>::new();
    let mut high_inputs = SliceArray::<CHUNKS_MAX>::new();
    for input in inputs {
        let (low, high) = input.split_at(middle.min(input.len()));
        low_inputs.push(low);
        high_inputs.push(high);
    }
    let mut low_outputs = SliceArrayMut::<CHUNKS_MAX>::new();
    let mut high_outputs = SliceArrayMut::<CHUNKS_MAX>::new();
    for output in outputs {
        let output = std::mem::take(output);
        let (low, high) = output.split_at_mut(middle.min(output.len()));
        low_outputs.push(low);
        high_outputs.push(high);
    }
    rayon::join(
        || split(low_inputs.slices(), low_outputs.slices(), work),
        || split(high_inputs.slices(), high_outputs.slices(), work),
    );
}
