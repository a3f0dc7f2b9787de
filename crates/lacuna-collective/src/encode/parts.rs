//! The parts that an operation's tensors are encoded in, each by itself, and where they lie in a rank's memory.
//!
//! A part is what can be decoded alone: the whole tensor, or one rank's part of a reduce-scatter or an all-gather. Encoded
//! parts are as long as the parts, so they lie at the same places.

use super::{Encode, EncodeError};
use lacuna_code::hadamard::Layout;
use lacuna_schedule::schedule::Collective;
use std::ops::Range;

/// A part.
#[derive(Debug)]
pub(super) struct Part {
    /// Its elements in the memory that it is in.
    pub(super) place: Range<usize>,
    pub(super) layout: Layout,
}

/// What a rank contributes, and what it gets. Places count elements of the input or, in place, of the output; those of the
/// result count elements of the output.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) input: Vec<Part>,
    pub(super) output: Vec<Part>,
}

impl Parts {
    pub(super) fn new(
        encode: &Encode,
        collective: &Collective,
        rank: usize,
        is_in_place: bool,
    ) -> Result<Self, EncodeError> {
        // The lengths of all parts, which of them are here before the operation, and which after it.
        let (lengths, input, output) = match collective {
            Collective::AllReduce { count } => (vec![*count], 0..1, 0..1),
            Collective::Reduce { root, count } => {
                (vec![*count], 0..1, 0..usize::from(*root == rank))
            }
            Collective::Broadcast { root, count } => {
                (vec![*count], 0..usize::from(*root == rank), 0..1)
            }
            Collective::ReduceScatter { counts } => {
                (counts.clone(), 0..counts.len(), rank..rank + 1)
            }
            Collective::AllGather { counts } => (counts.clone(), rank..rank + 1, 0..counts.len()),
            _ => return Err(EncodeError::Collective { collective: collective.name() }),
        };
        let mut end = 0;
        let ends: Vec<usize> = lengths
            .iter()
            .map(|length| {
                end += length;
                end
            })
            .collect();
        let found = encode.tensors.iter().fold(0, |sum: usize, len| sum.saturating_add(*len));
        if !encode.tensors.is_empty() && found != end {
            return Err(EncodeError::Tensors { found, expected: end });
        }
        let parts = |which: Range<usize>| -> Result<Vec<Part>, EncodeError> {
            let start = |part: usize| ends[part] - lengths[part];
            let first = if is_in_place { 0 } else { which.clone().next().map_or(0, start) };
            let part = |part: usize| {
                let range = start(part)..ends[part];
                let layout =
                    Layout::new(encode.block, encode.stride, &tensors(&encode.tensors, &range))?;
                Ok(Part { place: range.start - first..range.end - first, layout })
            };
            which.clone().map(part).collect()
        };
        Ok(Self { input: parts(input)?, output: parts(output)? })
    }
}

/// The lengths of the tensors' pieces in a range of all elements; one if nothing is known of tensors.
fn tensors(all: &[usize], range: &Range<usize>) -> Vec<usize> {
    if all.is_empty() {
        return vec![range.len()];
    }
    let mut start = 0;
    let lengths = all.iter().map(|tensor| {
        let end = start + tensor;
        let within = end.min(range.end).saturating_sub(range.start.max(start));
        start = end;
        within
    });
    lengths.filter(|length| *length > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(parts: &[Part]) -> Vec<Range<usize>> {
        parts.iter().map(|part| part.place.clone()).collect()
    }

    #[test]
    fn parts_lie_where_the_operation_has_them() {
        let encode = Encode { tensors: vec![150, 350], ..Encode::default() };
        let counts = vec![100, 0, 400];
        let scatter = Collective::ReduceScatter { counts: counts.clone() };
        let gather = Collective::AllGather { counts };
        for (is_in_place, own) in [(false, 0..400), (true, 100..500)] {
            let parts = Parts::new(&encode, &scatter, 2, is_in_place).unwrap();
            assert_eq!(places(&parts.input), [0..100, 100..100, 100..500]);
            assert_eq!(places(&parts.output), std::slice::from_ref(&own));
            // 50 and 350 elements: blocks of 256, 64, 32, 32, 16, 16, 8, 4, 2, 2 and so on, none in both.
            assert_eq!(parts.output[0].layout, Layout::new(1024, 64, &[50, 350]).unwrap());
            let parts = Parts::new(&encode, &gather, 2, is_in_place).unwrap();
            assert_eq!(places(&parts.input), [own]);
            assert_eq!(places(&parts.output), [0..100, 100..100, 100..500]);
        }
        let error = Parts::new(&encode, &Collective::AllReduce { count: 501 }, 0, false);
        assert_eq!(error.unwrap_err(), EncodeError::Tensors { found: 500, expected: 501 });
    }
}
