//! When operations and their phases have to be over.

/// When an operation has to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// When it is complete.
    Unlimited,
    /// When it is complete; if that takes longer, it fails.
    Within {
        /// From its start.
        limit_ns: u64,
    },
    /// In time, with what is there by then. The budget is divided over the phases by their weight; what a
    /// phase does not use is left to later ones.
    Bounded {
        /// From its start.
        budget_ns: u64,
        /// What an average is divided by.
        divisor: Divisor,
    },
}

/// What the average of an operation that ends in time is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divisor {
    /// The number of ranks: what is missing counts as zero. Chunks are divided as they come.
    Ranks,
    /// The number of contributions that an element has. Elements are divided when those are known, which
    /// is when their last note has come. Where they are not known, as [`Divisor::Ranks`].
    Contributors,
}

/// When each phase has to be over: shares of the budget by weight, one after the other. A phase that ends
/// early leaves its time to those behind it, whose deadlines stay.
pub(super) fn deadlines(weights: &[u64], now_ns: u64, budget_ns: u64) -> Vec<u64> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let ends = weights.iter().scan(0u128, |end, weight| {
        *end += u128::from(*weight);
        Some(*end)
    });
    let of = |end: u128| (u128::from(budget_ns) * end).checked_div(total);
    let last = weights.len().saturating_sub(1);
    ends.enumerate()
        .map(|(phase, end)| {
            let share = of(end).map_or(budget_ns, |share| share as u64);
            now_ns.saturating_add(if phase == last { budget_ns } else { share })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_divided_by_weight_and_ends_exactly() {
        assert_eq!(deadlines(&[3, 1, 0, 4], 1000, 801), [1300, 1400, 1400, 1801]);
        assert_eq!(deadlines(&[0, 0], 5, 10), [15, 15]);
        assert_eq!(deadlines(&[1 << 62; 2], 0, u64::MAX), [u64::MAX / 2, u64::MAX]);
        assert_eq!(deadlines(&[7; 3], u64::MAX - 5, 90)[2], u64::MAX);
    }
}
