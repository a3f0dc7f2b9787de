//! What ranks contribute, and what the result has to be. Small whole numbers, so that every type holds every result
//! exactly.

use super::What;
use lacuna_code::hadamard::{f32_of_bf16, f32_of_f16};
use lacuna_collective::{Collective, Element, Op};
use std::ops::Range;

/// Values are less than this.
const VALUES: usize = 3;
/// Contributions repeat after so many elements, and so do results.
const PERIOD: usize = 2 * VALUES;

/// The value of an element of a rank.
fn value(rank: usize, at: usize) -> usize {
    1 + (rank * 7 + at) % VALUES
}

/// For a product, in which few ranks may have more than one.
fn factor(rank: usize, at: usize) -> usize {
    if rank < 4 { 1 + (rank + at) % 2 } else { 1 }
}

fn contribution(op: Op, rank: usize, at: usize) -> usize {
    if op == Op::Product { factor(rank, at) } else { value(rank, at) }
}

/// The operation of a size, as a rank sees it, and what it has as input: the index of its first element and how many.
pub(super) struct Plan {
    pub(super) collective: Collective,
    pub(super) input: usize,
    pub(super) output: usize,
    /// Index of the first element of the output in the operation's.
    start: usize,
    what: What,
}

impl Plan {
    /// Of `bytes` in all, of which as many are used as divide into elements of all ranks.
    pub(super) fn new(what: What, bytes: u64, size: usize, rank: usize, ranks: usize) -> Self {
        let count = (bytes as usize / size).max(1);
        let each = count.div_ceil(ranks);
        let (collective, input, output, start) = match what {
            What::AllReduce => (Collective::AllReduce { count }, count, count, 0),
            What::ReduceScatter => {
                let counts = vec![each; ranks];
                (Collective::ReduceScatter { counts }, each * ranks, each, each * rank)
            }
            What::AllGather => {
                (Collective::AllGather { counts: vec![each; ranks] }, each, each * ranks, 0)
            }
            What::Broadcast => {
                let input = if rank == 0 { count } else { 0 };
                (Collective::Broadcast { root: 0, count }, input, count, 0)
            }
            What::Reduce => {
                let output = if rank == 0 { count } else { 0 };
                (Collective::Reduce { root: 0, count }, count, output, 0)
            }
            What::AllToAll => {
                let counts = vec![each; ranks];
                let collective = Collective::AllToAll { sent: counts.clone(), received: counts };
                (collective, each * ranks, each * ranks, 0)
            }
        };
        Self { collective, input, output, start, what }
    }

    /// Bytes of the operation, as nccl-tests counts them.
    pub(super) fn elements(&self) -> usize {
        self.input.max(self.output)
    }

    pub(super) fn fill(&self, element: Element, op: Op, rank: usize) -> Vec<u8> {
        (0..self.input)
            .flat_map(|at| bytes(element, contribution(self.op(op), rank, at) as f64))
            .collect()
    }

    fn op(&self, op: Op) -> Op {
        if self.collective.reduces() { op } else { Op::Sum }
    }

    /// What an element of the output has to be.
    fn expected(&self, op: Op, rank: usize, ranks: usize, at: usize) -> f64 {
        let each = self.output / ranks.max(1);
        match self.what {
            What::AllReduce | What::ReduceScatter | What::Reduce => {
                let all = (0..ranks).map(|rank| contribution(op, rank, self.start + at) as f64);
                match op {
                    Op::Sum => all.sum(),
                    Op::Average => all.sum::<f64>() / ranks as f64,
                    Op::Product => all.product(),
                    Op::Min => all.fold(f64::INFINITY, f64::min),
                    Op::Max => all.fold(0.0, f64::max),
                }
            }
            What::AllGather => value(at / each, at % each) as f64,
            What::Broadcast => value(0, at) as f64,
            What::AllToAll => value(at / each, rank * each + at % each) as f64,
        }
    }

    /// Elements that are neither right nor told to lack something; encoded ones are right within rounding.
    pub(super) fn wrong(
        &self,
        (element, op): (Element, Op),
        (rank, ranks): (usize, usize),
        output: &[u8],
        told: &[Range<usize>],
        is_encoded: bool,
    ) -> u64 {
        let mut is_told = vec![false; self.output];
        for range in told {
            is_told[range.clone()].fill(true);
        }
        let most = VALUES as f64 * if self.is_sum(op) { ranks as f64 } else { 1.0 };
        let tolerance = most * rounding(element) * 4.0 * (ranks as f64 + 12.0).sqrt();
        let results = self.results(op, rank, ranks);
        let known: Vec<Vec<u8>> = results.known.iter().map(|v| bytes(element, *v)).collect();
        let mut wrong = 0;
        for (at, found) in output.chunks_exact(element.size_bytes()).enumerate() {
            let is_right = match known.get(at % PERIOD) {
                _ if is_encoded => (float(element, found) - results.at(at)).abs() <= tolerance,
                Some(known) => found == known,
                None => found == bytes(element, results.at(at)),
            };
            wrong += u64::from(!is_right && !is_told[at]);
        }
        wrong
    }

    fn results(&self, op: Op, rank: usize, ranks: usize) -> Results<'_> {
        let repeats = !matches!(self.what, What::AllGather | What::AllToAll);
        let count = if repeats { PERIOD.min(self.output) } else { 0 };
        let known = (0..count).map(|at| self.expected(op, rank, ranks, at)).collect();
        Results { plan: self, op, rank, ranks, known }
    }

    fn is_sum(&self, op: Op) -> bool {
        self.collective.reduces() && op == Op::Sum
    }

    /// How far a result is off, if its elements are floats.
    pub(super) fn errors(
        &self,
        (element, op): (Element, Op),
        (rank, ranks): (usize, usize),
        output: &[u8],
    ) -> Option<Errors> {
        if !matches!(element, Element::F16 | Element::Bf16 | Element::F32 | Element::F64) {
            return None;
        }
        let mut errors = Errors::default();
        let size = element.size_bytes();
        let results = self.results(op, rank, ranks);
        for (block, found) in output.chunks(ERROR_BLOCK * size).enumerate() {
            let (mut error, mut of) = (0.0, 0.0);
            for (at, found) in (block * ERROR_BLOCK..).zip(found.chunks_exact(size)) {
                let expected = results.at(at);
                error += (float(element, found) - expected).powi(2);
                of += expected.powi(2);
            }
            errors.square += error;
            errors.of += of;
            // A few elements at the end are no block to compare with others.
            if found.len() == ERROR_BLOCK * size || block == 0 {
                errors.worst = errors.worst.max(error / of);
            }
        }
        Some(errors)
    }
}

/// What the elements of an output have to be.
struct Results<'p> {
    plan: &'p Plan,
    op: Op,
    rank: usize,
    ranks: usize,
    /// The first ones, if the others repeat them.
    known: Vec<f64>,
}

impl Results<'_> {
    fn at(&self, at: usize) -> f64 {
        let known = self.known.get(at % PERIOD).copied();
        known.unwrap_or_else(|| self.plan.expected(self.op, self.rank, self.ranks, at))
    }
}

/// Elements of a block of which the worst is told: as many as an encoded block has as a rule.
pub(super) const ERROR_BLOCK: usize = 1024;

/// How far results are off: squared errors, the squares of what they should be, and the worst block's ratio.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Errors {
    pub(super) square: f64,
    pub(super) of: f64,
    pub(super) worst: f64,
}

/// The largest relative error of a float of this type.
fn rounding(element: Element) -> f64 {
    match element {
        Element::F16 => 1.0 / 2048.0,
        Element::Bf16 => 1.0 / 256.0,
        _ => 1.0 / f64::from(1 << 24),
    }
}

/// The value of a float.
fn float(element: Element, bytes: &[u8]) -> f64 {
    match (element, bytes) {
        (Element::F16, &[a, b]) => f32_of_f16(u16::from_le_bytes([a, b])).into(),
        (Element::Bf16, &[a, b]) => f32_of_bf16(u16::from_le_bytes([a, b])).into(),
        (Element::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).into(),
        (_, bytes) => f64::from_le_bytes(bytes.try_into().unwrap_or_default()),
    }
}

/// A whole number (or an average, which integers round towards zero) as an element.
fn bytes(element: Element, value: f64) -> Vec<u8> {
    match element {
        Element::I8 | Element::U8 => vec![value as u8],
        Element::I16 | Element::U16 => (value as u16).to_le_bytes().to_vec(),
        Element::I32 | Element::U32 => (value as u32).to_le_bytes().to_vec(),
        Element::I64 | Element::U64 => (value as u64).to_le_bytes().to_vec(),
        Element::F16 | Element::Bf16 | Element::F32 => {
            let bits = (value as f32).to_bits();
            match element {
                Element::F32 => bits.to_le_bytes().to_vec(),
                Element::Bf16 => rounded(bits, 16).to_le_bytes().to_vec(),
                _ => half(value as f32).to_le_bytes().to_vec(),
            }
        }
        Element::F64 => value.to_le_bytes().to_vec(),
    }
}

/// The upper bits of a float, rounded to the nearest, ties to even.
fn rounded(bits: u32, dropped: u32) -> u16 {
    let half = (1 << (dropped - 1)) - 1 + (bits >> dropped & 1);
    ((bits + half) >> dropped) as u16
}

/// A float of 1 to 2^15 in binary16.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let mantissa = rounded(bits & 0x007f_ffff, 13);
    let exponent = ((bits >> 23) as i32 - 127 + 15) as u16;
    (exponent << 10) + mantissa
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_lacks_a_contribution_is_wrong_within_rounding_too() {
        let ranks = 4;
        for element in [Element::F16, Element::Bf16, Element::F32] {
            let plan = Plan::new(What::AllReduce, 6000, element.size_bytes(), 0, ranks);
            let (types, all) = ((element, Op::Sum), (0, ranks));
            let right: Vec<u8> = (0..plan.output)
                .flat_map(|at| bytes(element, plan.expected(Op::Sum, 0, ranks, at)))
                .collect();
            let mut wrong = right.clone();
            let size = element.size_bytes();
            wrong[..size].copy_from_slice(&bytes(element, plan.expected(Op::Sum, 0, 3, 0)));
            for is_encoded in [false, true] {
                assert_eq!(plan.wrong(types, all, &right, &[], is_encoded), 0);
                assert_eq!(plan.wrong(types, all, &wrong, &[], is_encoded), 1);
                assert_eq!(plan.wrong(types, all, &wrong, &[0..1, 1..1], is_encoded), 0);
            }
            let errors = plan.errors(types, all, &wrong).unwrap();
            assert!(errors.square > 0.9 && errors.of > 100.0 && errors.worst > 0.0);
            assert_eq!(plan.errors(types, all, &right).unwrap().square, 0.0);
        }
    }

    #[test]
    fn whole_numbers_are_exact_in_every_type() {
        for element in Element::ALL {
            assert_eq!(bytes(element, 1.0).len(), element.size_bytes());
        }
        assert_eq!(bytes(Element::F16, 1.0), 0x3c00_u16.to_le_bytes());
        assert_eq!(bytes(Element::F16, 6.0), 0x4600_u16.to_le_bytes());
        assert_eq!(bytes(Element::F16, 7.0 / 3.0), 0x40ab_u16.to_le_bytes());
        assert_eq!(bytes(Element::Bf16, 6.0), 0x40c0_u16.to_le_bytes());
        assert_eq!(bytes(Element::Bf16, 7.0 / 3.0), 0x4015_u16.to_le_bytes());
    }
}
