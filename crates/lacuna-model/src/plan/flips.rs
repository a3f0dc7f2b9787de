//! Where the choice flips: the nearest size, loss and round-trip time, smaller and larger, at which
//! the other family (repeating or coding) becomes the better one, all else being equal.
//!
//! An axis is searched outwards from where the question stands, in steps of half a decade and up to
//! its end; the step on which the choice changes is halved. A change that undoes itself within one
//! step is not seen.

use super::contest::Contest;
use super::{Candidate, Expected, Fates, LossKnown, Question};
use crate::{ModelError, crossing};

/// Steps of the outward search.
const STEP: f64 = 3.162_277_660_168_379_5;

/// The place of a flip is known to this fraction: two figures of it.
const PRECISION: f64 = 0.05;

/// What is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Message size in bytes; all sizes by the same factor.
    Size,
    /// Loss of packets; a range by the same factor at both ends.
    Loss,
    /// Round-trip time in seconds.
    Rtt,
}

impl Axis {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Size, Self::Loss, Self::Rtt];

    /// How far it is searched.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        match self {
            // From a packet to a tebibyte, which injection dominates on any path.
            Self::Size => (4096.0, 1.1e12),
            // From the best optics (fact 0.41 of the paper: 1e-8) to beyond any use.
            Self::Loss => (1e-9, 0.3),
            // From a cable to a geostationary satellite and back, twice.
            Self::Rtt => (1e-6, 1.0),
        }
    }

    /// Where the question stands on it: the first of several values.
    #[must_use]
    pub fn of(&self, question: &Question) -> f64 {
        match self {
            Self::Size => question.sizes_bytes.first().map_or(0.0, |size| *size as f64),
            Self::Loss => match question.loss {
                LossKnown::At(loss) => loss,
                LossKnown::Between(low, high) => (low * high).sqrt(),
            },
            Self::Rtt => question.rtt_s,
        }
    }

    /// The question with this axis at another value.
    #[must_use]
    pub fn at(&self, question: &Question, value: f64) -> Question {
        let mut moved = question.clone();
        let factor = value / self.of(question);
        match self {
            Self::Size => {
                for size in &mut moved.sizes_bytes {
                    *size = ((*size as f64 * factor).round() as u64).max(1);
                }
            }
            Self::Loss => {
                moved.loss = match question.loss {
                    LossKnown::At(_) => LossKnown::At(value),
                    LossKnown::Between(low, high) => {
                        LossKnown::Between(low * factor, (high * factor).min(0.5))
                    }
                };
            }
            Self::Rtt => moved.rtt_s = value,
        }
        moved
    }
}

/// A place where the choice changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flip {
    /// What is varied.
    pub axis: Axis,
    /// Where.
    pub value: f64,
    /// Whether coding is the choice on the far side.
    pub to_coding: bool,
}

/// All flips around a question; `sorted` is what was found for it, best first.
pub(super) fn find(
    question: &Question,
    fates: &Fates,
    sorted: &[Expected],
) -> Result<Vec<Flip>, ModelError> {
    // Each scheme with the chunk that suits it best here and with the smallest: others lose to one
    // of them, near here or far from here.
    let mut candidates: Vec<Candidate> = Vec::new();
    for expected in sorted {
        let candidate = expected.candidate;
        let is_known = |known: &Candidate| known.scheme == candidate.scheme;
        if !candidates.iter().any(is_known) || candidate.chunk_packets == 1 {
            candidates.push(candidate);
        }
    }
    let contest = Contest::new(candidates);
    let coding_at = |question: &Question| contest.coding_wins(question, fates);
    let here = coding_at(question)?;
    let mut flips = Vec::new();
    for axis in Axis::ALL {
        let (first, last) = axis.range();
        for (end, step) in [(first, 1.0 / STEP), (last, STEP)] {
            let mut near = axis.of(question);
            if near <= 0.0 {
                continue;
            }
            while (step > 1.0) == (near < end) && near != end {
                let far = near * step;
                let far = if (step > 1.0) == (far > end) { end } else { far };
                if coding_at(&axis.at(question, far))? != here {
                    let is_here =
                        |value| Ok::<_, ModelError>(coding_at(&axis.at(question, value))? == here);
                    let value = crossing(near, far, PRECISION, is_here)?;
                    flips.push(Flip { axis, value, to_coding: !here });
                    break;
                }
                near = far;
            }
        }
    }
    Ok(flips)
}
