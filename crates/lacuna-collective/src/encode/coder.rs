//! Encodes what a rank contributes, and decodes its result by what the report says is missing.
//!
//! The memory for encoded tensors and the transforms' scratch are the group's, and serve the next operations again.
//!
//! Invariants: an operation sees the encoded tensors only, in buffers as long and as placed as the caller's; the caller's
//! output is written once, when the operation is over.

use super::parts::{Part, Parts};
use super::{Decoded, Encode, EncodeError, Scaling, of_code};
use crate::pool::Buffers as Pool;
use lacuna_code::hadamard::{
    Arrived, Element as Encoded, RawBlocks, Scale, Transform, Unit, bf16_of_f32, f16_of_f32,
    f32_of_bf16, f32_of_f16,
};
use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::run::{Buffers, Divisor, Report, Vectors};
use lacuna_schedule::schedule::Collective;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Transforms that are kept, at most; more operations at once make their own.
const TRANSFORMS_MAX: usize = 8;
/// Of a coefficient's count of missing contributions: some rank did not say what it had lost.
const UNCERTAIN: u32 = 1 << 31;

#[derive(Debug, Default)]
struct Kept {
    buffers: Pool,
    transforms: Vec<Transform>,
}

type Shared = Arc<Mutex<Kept>>;

fn lock(kept: &Shared) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a group encodes with.
#[derive(Debug)]
pub(crate) struct Coder {
    kept: Shared,
    rank: usize,
    ranks: usize,
    /// The group's number, which all of its ranks know.
    group: u64,
    /// Operations so far whose seeds were the group's. All ranks start the same ones in the same order.
    seeded: AtomicU64,
}

/// An operation that is to be encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) encode: &'a Encode,
    pub(crate) collective: &'a Collective,
    pub(crate) element: Element,
    pub(crate) op: Op,
    pub(crate) is_in_place: bool,
    /// What an average is divided by, if the operation ends with what is there.
    pub(crate) divisor: Option<Divisor>,
}

/// What is left to be done when an encoded operation is over.
pub(crate) struct Work {
    kept: Shared,
    caller: Box<dyn Buffers>,
    output: Vec<Part>,
    transform: Option<Transform>,
    scaling: Scaling,
    /// Contributions that a coefficient of the result has, if none is missing.
    expected: usize,
    /// Coefficients are divided by the contributions that they have.
    is_by_contributors: bool,
}

/// Encoded tensors, whose memory goes back to the group.
struct Wire {
    vectors: Vectors,
    kept: Shared,
}

impl Buffers for Wire {
    fn input(&self) -> &[u8] {
        &self.vectors.input
    }

    fn output(&self) -> &[u8] {
        &self.vectors.output
    }

    fn split(&mut self) -> (&[u8], &mut [u8]) {
        self.vectors.split()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Vectors { input, output } = std::mem::take(&mut self.vectors);
        let mut kept = lock(&self.kept);
        for buffer in [input, output].into_iter().filter(|buffer| buffer.capacity() > 0) {
            kept.buffers.give_back(buffer);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut kept = lock(&self.kept);
        if kept.transforms.len() < TRANSFORMS_MAX {
            kept.transforms.extend(self.transform.take());
        }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("output", &self.output).finish_non_exhaustive()
    }
}

impl Coder {
    pub(crate) fn new(rank: usize, ranks: usize, group: u64) -> Self {
        let kept = Arc::default();
        Self { kept, rank, ranks, group, seeded: AtomicU64::new(0) }
    }

    /// Encodes the caller's contribution: the memory for the operation, and what is to be done after it. The caller's memory
    /// is as long as the operation says.
    pub(crate) fn encode(
        &self,
        asked: Asked<'_>,
        caller: Box<dyn Buffers>,
    ) -> Result<(Box<dyn Buffers>, Work), EncodeError> {
        let Asked { encode, collective, element, op, is_in_place, divisor } = asked;
        encode.check(collective, element, op)?;
        let encoded = of_code(element).ok_or(EncodeError::Element { element })?;
        let parts = Parts::new(encode, collective, self.rank, is_in_place)?;
        let is_sum = collective.reduces();
        let mut wire = Wire { vectors: Vectors::default(), kept: self.kept.clone() };
        let kept = {
            let Kept { buffers, transforms } = &mut *lock(&self.kept);
            wire.vectors.input = buffers.take(caller.input().len());
            wire.vectors.output = buffers.take(caller.output().len());
            let fits = |transform: &Transform| transform.element() == encoded;
            transforms.iter().position(fits).map(|at| transforms.swap_remove(at))
        };
        let mut transform = match kept {
            Some(transform) => transform,
            None => Transform::new(encoded, 0)?,
        };
        transform.set_seed(encode.seed.unwrap_or_else(|| {
            self.group.wrapping_add(self.seeded.fetch_add(1, Ordering::Relaxed))
        }));
        let (from, to) = match is_in_place {
            true => (caller.output(), &mut wire.vectors.output),
            false => (caller.input(), &mut wire.vectors.input),
        };
        for part in &parts.input {
            let bytes = bytes(encoded, &part.place);
            encode_part(&mut transform, part, &from[bytes.clone()], &mut to[bytes]);
        }
        let work = Work {
            kept: self.kept.clone(),
            caller,
            output: parts.output,
            transform: Some(transform),
            scaling: encode.scaling,
            expected: if is_sum { self.ranks } else { 1 },
            is_by_contributors: op == Op::Average
                && is_sum
                && divisor == Some(Divisor::Contributors),
        };
        Ok((Box::new(wire), work))
    }
}

impl Work {
    /// Decodes the result of the operation, which is over, into the caller's memory.
    pub(crate) fn decode(
        mut self,
        mut wire: Box<dyn Buffers>,
        report: &Report,
    ) -> (Box<dyn Buffers>, Decoded) {
        let mut decoded = Decoded::default();
        let mut lacks = Vec::new();
        let mut transform = self.transform.take().expect("it is here until the end");
        let element = transform.element();
        let mut caller = std::mem::replace(&mut self.caller, Box::new(Vectors::default()));
        let (wire, tensors) = (wire.split().1, caller.split().1);
        for part in &self.output {
            let bytes = bytes(element, &part.place);
            let (wire, tensors) = (&mut wire[bytes.clone()], &mut tensors[bytes]);
            for unit in (0..part.layout.units()).map(|unit| part.layout.unit(unit)) {
                decode_unit(&mut transform, part, &unit, wire, tensors);
                let start = part.place.start + unit.wire().start;
                let is_whole = !missing(report, start..start + unit.wire().len(), &mut lacks);
                for (index, number) in unit.blocks().enumerate() {
                    let block = part.layout.block(number).range();
                    let elements = &mut tensors[self::bytes(element, &block)];
                    let place = part.place.start + block.start..part.place.start + block.end;
                    if !is_whole {
                        self.settle(&unit, index, (element, elements), &lacks, |share| {
                            decoded.incomplete.push((place.clone(), share));
                        });
                    }
                    if is_poisoned(element, elements) {
                        fill_nan(element, elements);
                        decoded.not_finite.push(place);
                    }
                }
            }
        }
        decoded.incomplete.sort_unstable_by_key(|(range, _)| range.start);
        decoded.not_finite.sort_unstable_by_key(|range| range.start);
        self.transform = Some(transform);
        (caller, decoded)
    }

    /// Scales a block that lacks something, and tells of it.
    fn settle(
        &self,
        unit: &Unit,
        index: usize,
        (element, elements): (Encoded, &mut [u8]),
        lacks: &[u32],
        tell: impl FnOnce(f64),
    ) {
        let (mut missing, mut empty, mut is_uncertain) = (0u64, 0usize, false);
        for run in unit.runs(index) {
            for lacks in &lacks[run.place..run.place + run.len] {
                let count = lacks & !UNCERTAIN;
                is_uncertain |= count != *lacks;
                missing += u64::from(count);
                empty += usize::from(count as usize >= self.expected);
            }
        }
        if missing == 0 && !is_uncertain {
            return;
        }
        let count = elements.len() / element.bytes();
        let share = missing as f64 / (count * self.expected) as f64;
        tell(share);
        let lost = if self.is_by_contributors { empty as f64 / count as f64 } else { share };
        if self.scaling == Scaling::Unbiased && lost > 0.0 && lost < 1.0 {
            scale(element, elements, (1.0 / (1.0 - lost)) as f32);
        }
    }
}

fn bytes(element: Encoded, elements: &Range<usize>) -> Range<usize> {
    elements.start * element.bytes()..elements.end * element.bytes()
}

fn encode_part(transform: &mut Transform, part: &Part, from: &[u8], to: &mut [u8]) {
    let element = transform.element();
    let raw = transform.encode(&part.layout, from, to).expect("both are as long as the layout");
    for number in raw.iter() {
        let unit = part.layout.unit(part.layout.unit_of(number));
        let to = &mut to[bytes(element, &unit.wire())];
        for run in unit.runs(number - unit.blocks().start) {
            fill_nan(element, &mut to[bytes(element, &(run.place..run.place + run.len))]);
        }
    }
}

fn decode_unit(
    transform: &mut Transform,
    part: &Part,
    unit: &Unit,
    wire: &mut [u8],
    tensors: &mut [u8],
) {
    let wire = &mut wire[bytes(transform.element(), &unit.wire())];
    // What is missing is zero already, and what is not finite shows in the result.
    let (arrived, raw) = (Arrived::All, RawBlocks::none(part.layout.blocks()));
    transform
        .decode_unit(&part.layout, unit, wire, arrived, &raw, Scale::Kept, tensors)
        .expect("both are as long as the layout");
}

/// Counts how many contributions the elements of a range of the output lack; false if none lacks any.
fn missing(report: &Report, range: Range<usize>, lacks: &mut Vec<u32>) -> bool {
    lacks.clear();
    let mut add = |other: &Range<usize>, count: u32| {
        lacks.resize(range.len(), 0);
        let within = other.start.max(range.start)..other.end.min(range.end);
        for lacks in &mut lacks[within.start - range.start..within.end - range.start] {
            *lacks |= count;
        }
    };
    let from = report.missing.partition_point(|(other, _)| other.end <= range.start);
    for (other, ranks) in
        report.missing[from..].iter().take_while(|(other, _)| other.start < range.end)
    {
        add(other, ranks.len() as u32);
    }
    let from = report.uncertain.partition_point(|other| other.end <= range.start);
    for other in report.uncertain[from..].iter().take_while(|other| other.start < range.end) {
        add(other, UNCERTAIN);
    }
    !lacks.is_empty()
}

/// The elements as f32.
fn each(element: Encoded, elements: &[u8]) -> impl Iterator<Item = f32> + '_ {
    elements.chunks_exact(element.bytes()).map(move |bytes| match *bytes {
        [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]),
        [a, b] if element == Encoded::F16 => f32_of_f16(u16::from_ne_bytes([a, b])),
        [a, b] => f32_of_bf16(u16::from_ne_bytes([a, b])),
        _ => unreachable!("elements have 2 or 4 bytes"),
    })
}

/// Whether a coefficient was not finite: then no element of the block is. A single element may be infinite because it is too
/// large for the type.
fn is_poisoned(element: Encoded, elements: &[u8]) -> bool {
    each(element, elements).all(|value| !value.is_finite())
}

fn fill_nan(element: Encoded, elements: &mut [u8]) {
    let half = if element == Encoded::F16 { 0x7e00u16 } else { 0x7fc0 };
    match element {
        Encoded::F32 => elements.as_chunks_mut().0.fill(f32::NAN.to_ne_bytes()),
        _ => elements.as_chunks_mut().0.fill(half.to_ne_bytes()),
    }
}

fn scale(element: Encoded, elements: &mut [u8], factor: f32) {
    match element {
        Encoded::F32 => {
            for word in elements.as_chunks_mut().0 {
                *word = (f32::from_ne_bytes(*word) * factor).to_ne_bytes();
            }
        }
        Encoded::F16 => scale_half(elements, |bits| f16_of_f32(f32_of_f16(bits) * factor)),
        _ => scale_half(elements, |bits| bf16_of_f32(f32_of_bf16(bits) * factor)),
    }
}

fn scale_half(elements: &mut [u8], scaled: impl Fn(u16) -> u16) {
    for word in elements.as_chunks_mut().0 {
        *word = scaled(u16::from_ne_bytes(*word)).to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_schedule::run::RankSet;

    const COUNT: usize = 1000;

    fn report(missing: Vec<(Range<usize>, RankSet)>, uncertain: Vec<Range<usize>>) -> Report {
        let (hops, straggler) = (Vec::new(), None);
        Report { started_ns: 0, ended_ns: 0, hops, missing, uncertain, straggler }
    }

    /// One rank's contribution, encoded and decoded as the result of so many ranks, of which all others contribute zero.
    fn there_and_back(
        scaling: Scaling,
        divisor: Option<Divisor>,
        report: &Report,
        lose: Range<usize>,
    ) -> (Vec<f32>, Decoded) {
        let coder = Coder::new(0, 4, 7);
        let encode = Encode { block: 64, stride: 8, scaling, ..Encode::default() };
        let collective = &Collective::AllReduce { count: COUNT };
        let element = Element::F32;
        let op = if divisor.is_some() { Op::Average } else { Op::Sum };
        let asked = Asked { encode: &encode, collective, element, op, is_in_place: true, divisor };
        let output = (0..COUNT).flat_map(|at| (1.0 + at as f32).to_ne_bytes()).collect();
        let caller = Box::new(Vectors { input: Vec::new(), output });
        let (mut wire, work) = coder.encode(asked, caller).unwrap();
        wire.split().1[4 * lose.start..4 * lose.end].fill(0);
        let (caller, decoded) = work.decode(wire, report);
        (each(Encoded::F32, caller.output()).collect(), decoded)
    }

    #[test]
    fn blocks_that_lack_something_are_named_with_the_share() {
        // A unit is 512 elements, a round of it 64: eight elements of each of its eight blocks.
        let lacking: RankSet = [1, 2].into_iter().collect();
        let report = report(vec![(64..96, lacking)], vec![700..701, 800..801]);
        let (values, decoded) = there_and_back(Scaling::Kept, None, &report, 0..0);
        let shares: Vec<f64> = decoded.incomplete.iter().map(|(_, share)| *share).collect();
        // Half of a round: four of the blocks lack two of four contributions to an eighth of their elements.
        assert_eq!(shares[..4], [1.0 / 16.0; 4]);
        assert!(shares.len() > 4 && shares[4..].iter().all(|share| *share == 0.0));
        assert_eq!(decoded.incomplete[3].0, 192..256);
        assert!(decoded.incomplete[4].0.start >= 512);
        assert!(
            values.iter().enumerate().all(|(at, value)| (value - at as f32 - 1.0).abs() < 0.01)
        );
    }

    #[test]
    fn unbiased_results_are_scaled_by_what_came() {
        let norm = |values: &[f32]| values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        let all: RankSet = (0..4).collect();
        let report = report(vec![(64..128, all)], Vec::new());
        let of = |scaling, divisor| {
            let (values, decoded) = there_and_back(scaling, divisor, &report, 64..128);
            assert_eq!(decoded.incomplete.len(), 8);
            assert_eq!(decoded.incomplete[0].1, 0.125);
            norm(&values[..512])
        };
        let (kept, unbiased) = (of(Scaling::Kept, None), of(Scaling::Unbiased, None));
        assert!((unbiased / kept / (8.0f64 / 7.0).powi(2) - 1.0).abs() < 1e-4);
        let by_contributors = of(Scaling::Unbiased, Some(Divisor::Contributors));
        assert!((by_contributors / unbiased - 1.0).abs() < 1e-4);
        // Some contributions to each coefficient: an average by contributors is right as it is.
        let some: RankSet = [1].into_iter().collect();
        let report = super::tests::report(vec![(0..512, some)], Vec::new());
        let of =
            |divisor| norm(&there_and_back(Scaling::Unbiased, divisor, &report, 0..0).0[..512]);
        let (sum, average) = (of(None), of(Some(Divisor::Contributors)));
        assert!((sum / average / (4.0f64 / 3.0).powi(2) - 1.0).abs() < 1e-4);
    }

    #[test]
    fn memory_and_transforms_are_used_again() {
        let coder = Coder::new(0, 1, 7);
        let encode = Encode::default();
        let collective = &Collective::AllReduce { count: COUNT };
        let (element, op, divisor) = (Element::F32, Op::Sum, None);
        let asked = Asked { encode: &encode, collective, element, op, is_in_place: true, divisor };
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..5 {
            let caller = Box::new(Vectors { input: Vec::new(), output: vec![0; 4 * COUNT] });
            let (wire, work) = coder.encode(asked, caller).unwrap();
            places.insert(wire.output().as_ptr() as usize);
            drop(work.decode(wire, &report(Vec::new(), Vec::new())));
        }
        assert_eq!((places.len(), lock(&coder.kept).transforms.len()), (1, 1));
    }
}
