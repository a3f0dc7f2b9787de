//! A cache of repair matrices, by erasure pattern: losses come in bursts, so patterns repeat. Each thread
//! has its own.

use crate::code::{Code, CodeKind};
use crate::codec::Codec;
use crate::engine::{Engine, Matrix, Plan};
use crate::repair_matrix::{Pattern, RepairMatrix};

/// Most patterns in the cache: all single losses of a block of 32 and as many others. A search takes less
/// than 0.1 us.
const PATTERNS_MAX: usize = 64;

/// Memory for patterns; the cache holds at least one. The largest code takes 0.5 MiB per pattern on some
/// engines.
const BYTES_MAX: usize = 1 << 20;

/// Memory for repairs with one codec, allocated once: the matrices of the last erasure patterns.
#[derive(Debug)]
pub struct Workspace {
    pub(crate) code: Code,
    pub(crate) engine: Engine,
    matrix: RepairMatrix,
    kept: Vec<Kept>,
    /// Count of uses, to find the least recently used pattern.
    uses: u64,
    misses: u64,
}

#[derive(Debug)]
struct Kept {
    /// `None` before the first use.
    pattern: Option<Pattern>,
    plan: Plan,
    used_at: u64,
}

impl Workspace {
    /// A workspace for `codec` and others of the same code and engine.
    pub fn new(codec: &Codec) -> Self {
        let (code, engine) = (codec.code(), codec.engine());
        let (k, m) = (code.data_chunks(), code.parity_chunks());
        let count = match code.kind() {
            // XOR repairs without a matrix.
            CodeKind::Xor => 0,
            CodeKind::Mds => (BYTES_MAX / Plan::bytes(engine, m, k)).clamp(1, PATTERNS_MAX),
        };
        let kept = || Kept { pattern: None, plan: Plan::with_capacity(engine, m, k), used_at: 0 };
        let kept = std::iter::repeat_with(kept).take(count).collect();
        Self { code, engine, matrix: RepairMatrix::new(code), kept, uses: 0, misses: 0 }
    }

    /// How many patterns were not in the cache.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// The plan of a pattern, from the cache or computed; then it replaces the least recently used one.
    pub(crate) fn plan(&mut self, pattern: &Pattern) -> &Plan {
        self.uses += 1;
        let found = self.kept.iter().position(|kept| kept.pattern.as_ref() == Some(pattern));
        let index = found.unwrap_or_else(|| {
            self.misses += 1;
            let oldest = self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.used_at);
            let index = oldest.map_or(0, |(index, _)| index);
            let coefficients = self.matrix.compute(pattern);
            let matrix = Matrix { coefficients, columns: self.code.data_chunks() };
            self.kept[index].plan.set(&matrix);
            self.kept[index].pattern = Some(*pattern);
            index
        });
        self.kept[index].used_at = self.uses;
        &self.kept[index].plan
    }
}
