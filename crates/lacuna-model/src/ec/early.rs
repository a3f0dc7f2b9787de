//! Early acknowledgement: how many parity chunks a receiver waits for if it answers as soon as it can.
//!
//! `R(s)` is the probability that a submessage is repairable with its first `s` parity chunks.
//! All data come first, then the parity of submessage 1, 2, ..., `L`, and of a short one at the
//! end. After `s` parity chunks of submessage `l` the message is repairable with
//! `R(m)^(l-1) R(s) R(0)^(L-l) R_short(0)`.

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Early {
    whole: u64,
    /// `R(0), ..., R(m)`.
    each: Vec<f64>,
    /// That of the short submessage; `[1]` if there is none.
    tail: Vec<f64>,
}

impl Early {
    pub(super) fn new(whole: u64, each: Vec<f64>, tail: Option<Vec<f64>>) -> Self {
        Self { whole, each, tail: tail.unwrap_or_else(|| vec![1.0]) }
    }

    /// The probability that so many parity chunks suffice.
    pub(super) fn done_after(&self, sent: u64) -> f64 {
        let m = (self.each.len() - 1) as u64;
        let before = sent / m;
        if before >= self.whole {
            let of_tail = ((sent - self.whole * m) as usize).min(self.tail.len() - 1);
            return power(self.all(), self.whole) * self.tail[of_tail];
        }
        let current = self.each[(sent % m) as usize];
        power(self.all(), before)
            * current
            * power(self.each[0], self.whole - before - 1)
            * self.tail[0]
    }

    /// The fewest parity chunks that suffice with this probability.
    pub(super) fn quantile(&self, probability: f64) -> u64 {
        let (mut low, mut high) = (0, self.parity());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.done_after(middle) >= probability {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// `E[parity chunks not waited for; no fallback]`: the sum of `done_after` over all numbers of
    /// parity chunks short of all.
    pub(super) fn saved_chunks(&self) -> f64 {
        let m = self.each.len() - 1;
        let (none, all) = (self.each[0], self.all());
        let partial: f64 = self.each[..m].iter().sum();
        // sum_l all^(l-1) none^(L-l)
        let series = if all > none * (1.0 + 1e-9) {
            (power(all, self.whole) - power(none, self.whole)) / (all - none)
        } else {
            self.whole as f64 * power(all, self.whole.saturating_sub(1))
        };
        let of_tail: f64 = self.tail[..self.tail.len() - 1].iter().sum();
        partial * series * self.tail[0] + power(all, self.whole) * of_tail
    }

    fn parity(&self) -> u64 {
        self.whole * (self.each.len() - 1) as u64 + (self.tail.len() - 1) as u64
    }

    fn all(&self) -> f64 {
        self.each[self.each.len() - 1]
    }
}

fn power(base: f64, exponent: u64) -> f64 {
    // Not `powf`: near 1 it would lose what `ln_1p` keeps.
    if exponent == 0 { 1.0 } else { (exponent as f64 * (base - 1.0).ln_1p()).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_the_sum_over_the_distribution() {
        for (whole, each, tail) in [
            (5, vec![0.3, 0.7, 0.9], None),
            (3, vec![0.9, 0.99], Some(vec![0.95, 0.97, 0.99])),
            (4, vec![0.5, 0.5, 0.5], None),
        ] {
            let early = Early::new(whole, each, tail);
            let sum: f64 = (0..early.parity()).map(|sent| early.done_after(sent)).sum();
            assert!((early.saved_chunks() - sum).abs() < 1e-12);
            let done: Vec<f64> = (0..=early.parity()).map(|sent| early.done_after(sent)).collect();
            assert!(done.windows(2).all(|pair| pair[0] <= pair[1] + 1e-12), "{done:?}");
            let half = early.quantile(0.05);
            assert!(early.done_after(half) >= 0.05);
            assert!(half == 0 || early.done_after(half - 1) < 0.05);
        }
    }
}
