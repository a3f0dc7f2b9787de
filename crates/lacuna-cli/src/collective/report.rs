//! Results: the columns of nccl-tests, and what was lost; or a JSON object a line.

use super::What;
use crate::failure::Failure;
use crate::output::Output;
use serde::Serialize;

/// Of the slowest rank of each operation.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Times {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
}

impl Times {
    pub(super) fn of(mut us: Vec<f64>) -> Self {
        us.sort_by(f64::total_cmp);
        let at =
            |share: f64| us[((us.len() as f64 * share).ceil() as usize).clamp(1, us.len()) - 1];
        let mean = us.iter().sum::<f64>() / us.len() as f64;
        Self { mean, p50: at(0.5), p99: at(0.99), p999: at(0.999) }
    }
}

/// One size.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) op: &'static str,
    pub(super) size_bytes: u64,
    pub(super) count: u64,
    #[serde(rename = "type")]
    pub(super) element: String,
    pub(super) reduce: String,
    pub(super) algorithm: String,
    pub(super) ranks: usize,
    /// What carries long messages.
    pub(super) qp: String,
    pub(super) mode: String,
    pub(super) encode: Option<String>,
    pub(super) iterations: u32,
    /// The first operation of this size, warm-up or not: of the first size, over connections that know nothing.
    pub(super) first_us: f64,
    pub(super) time_us: Times,
    pub(super) algbw_gbyte_per_s: f64,
    pub(super) busbw_gbyte_per_s: f64,
    /// Bytes that did not come, of those that were to be received by all ranks.
    pub(super) lost_fraction: f64,
    /// Receives that their deadline ended.
    pub(super) cut_off_fraction: f64,
    /// Elements of results that lack a contribution, or may.
    pub(super) incomplete_fraction: f64,
    /// Squared error of the results over their square, and that of the worst block of 1,024 elements; `None`: not checked, or
    /// not floats.
    pub(super) relative_mse: Option<f64>,
    pub(super) relative_mse_worst_block: Option<f64>,
    /// Of the last operation, at rank 0.
    pub(super) budget_us: Option<f64>,
    /// `None`: not checked.
    pub(super) wrong: Option<u64>,
}

/// What the busiest rank sends and receives, of the operation's size: nccl-tests' factor.
pub(super) fn bus_factor(what: What, ranks: usize) -> f64 {
    let n = ranks as f64;
    match what {
        What::AllReduce => 2.0 * (n - 1.0) / n,
        What::ReduceScatter | What::AllGather | What::AllToAll => (n - 1.0) / n,
        What::Broadcast | What::Reduce => 1.0,
    }
}

/// `is_in_time`: operations end with what is there, so results have errors.
pub(super) fn header(output: Output, is_in_time: bool) -> Result<(), Failure> {
    if output.json {
        return Ok(());
    }
    let errors = match is_in_time {
        true => format!(" {:>9} {:>9}", "mse", "worst"),
        false => String::new(),
    };
    output.line(&format!(
        "{:>12} {:>12} {:>5} {:>7} {:>10} {:>11} {:>11} {:>11} {:>8} {:>8} {:>9} {:>9}{errors} {:>10} {:>7}",
        "size (B)",
        "count",
        "type",
        "redop",
        "schedule",
        "mean (us)",
        "p50 (us)",
        "p99 (us)",
        "algbw",
        "busbw",
        "lost",
        "cut off",
        "budget",
        "#wrong"
    ))
}

impl Row {
    pub(super) fn print(&self, output: Output) -> Result<(), Failure> {
        if output.json {
            return output.object(self);
        }
        let budget = self.budget_us.map_or("-".to_owned(), |us| format!("{us:.0}"));
        let errors =
            match (self.budget_us.is_some(), self.relative_mse, self.relative_mse_worst_block) {
                (true, Some(error), Some(worst)) => format!(" {error:>9.2e} {worst:>9.2e}"),
                (true, ..) => format!(" {:>9} {:>9}", "-", "-"),
                (false, ..) => String::new(),
            };
        let wrong = self.wrong.map_or("-".to_owned(), |wrong| wrong.to_string());
        let Times { mean, p50, p99, .. } = self.time_us;
        output.line(&format!(
            "{:>12} {:>12} {:>5} {:>7} {:>10} {mean:>11.1} {p50:>11.1} {p99:>11.1} {:>8.3} {:>8.3} {:>9.2e} {:>9.2e}{errors} \
             {budget:>10} {wrong:>7}",
            self.size_bytes,
            self.count,
            self.element,
            self.reduce,
            self.algorithm,
            self.algbw_gbyte_per_s,
            self.busbw_gbyte_per_s,
            self.lost_fraction,
            self.cut_off_fraction,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_that_so_many_do_not_exceed() {
        let times = Times::of((1..=1000).rev().map(f64::from).collect());
        assert_eq!((times.p50, times.p99, times.p999), (500.0, 990.0, 999.0));
        assert_eq!(Times::of(vec![3.0]).p999, 3.0);
    }

    #[test]
    fn the_bus_bandwidth_is_that_of_nccl_tests() {
        assert_eq!(bus_factor(What::AllReduce, 4), 1.5);
        assert_eq!(bus_factor(What::AllGather, 4), 0.75);
    }
}
