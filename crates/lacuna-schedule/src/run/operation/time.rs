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
    /// In time, with what is there by then. What it usually takes is divided over the phases by their weight; what
    /// a phase does not use is left to later ones. The rest of the budget belongs to whichever phase needs it.
    Bounded {
        /// From its start.
        budget_ns: u64,
        /// Of the budget, at most.
        usual_ns: u64,
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

/// When each phase has to be over: the reserve, which is what the budget has beyond the usual time, and shares of
/// that by weight, one after the other. A phase that ends early leaves its time to those behind it, whose deadlines
/// stay.
///
/// The reserve is before the first deadline, not divided as well: what comes late, as a rank that starts late does,
/// makes all phases late by the same time, and the first ones would be cut off though the budget had time for all.
pub(super) fn deadlines(weights: &[u64], now_ns: u64, budget_ns: u64, usual_ns: u64) -> Vec<u64> {
    let usual_ns = usual_ns.min(budget_ns);
    let reserve_ns = budget_ns - usual_ns;
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let ends = weights.iter().scan(0u128, |end, weight| {
        *end += u128::from(*weight);
        Some(*end)
    });
    let of = |end: u128| (u128::from(usual_ns) * end).checked_div(total);
    let last = weights.len().saturating_sub(1);
    ends.enumerate()
        .map(|(phase, end)| {
            let share_ns = of(end).map_or(usual_ns, |share| share as u64);
            now_ns.saturating_add(if phase == last { budget_ns } else { reserve_ns + share_ns })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_divided_by_weight_and_ends_exactly() {
        assert_eq!(deadlines(&[3, 1, 0, 4], 1000, 801, 801), [1300, 1400, 1400, 1801]);
        assert_eq!(deadlines(&[0, 0], 5, 10, 10), [15, 15]);
        assert_eq!(deadlines(&[1 << 62; 2], 0, u64::MAX, u64::MAX), [u64::MAX / 2, u64::MAX]);
        assert_eq!(deadlines(&[7; 3], u64::MAX - 5, 90, 30)[2], u64::MAX);
    }

    #[test]
    fn what_the_budget_has_beyond_the_usual_time_belongs_to_every_phase() {
        assert_eq!(deadlines(&[1, 1, 2], 1000, 500, 400), [1200, 1300, 1500]);
        assert_eq!(deadlines(&[1, 1], 1000, 500, 0), [1500, 1500]);
        assert_eq!(deadlines(&[1, 1], 1000, 500, 600), [1250, 1500], "no more than the budget");
    }
}
