//! Rounds: every contestant of every chosen cell once per round, in an order
//! that turns around from round to round, so that a machine that drifts drifts
//! for all alike.

use crate::cell::{Cell, Suite};
use crate::contestant::{self, Outcome, Place, Sample};
use crate::machine::Machine;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// All that a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) rounds: u32,
    pub(crate) round_s: f64,
    pub(crate) cells: Vec<CellResults>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CellResults {
    pub(crate) cell: Cell,
    /// By contestant; one entry per round, `None` where it failed.
    pub(crate) samples: BTreeMap<String, Vec<Option<Sample>>>,
    /// Contestants that are not here, and why.
    pub(crate) skipped: BTreeMap<String, String>,
}

/// Median and range of a contestant's samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

pub(crate) fn spread(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    };
    Some(Spread { median, least, most })
}

impl CellResults {
    pub(crate) fn spread(&self, contestant: &str) -> Option<Spread> {
        let samples = self.samples.get(contestant)?;
        spread(samples.iter().flatten().map(|sample| sample.value).collect())
    }

    fn value(&self, contestant: &str, round: usize) -> Option<f64> {
        Some(self.samples.get(contestant)?.get(round)?.as_ref()?.value)
    }
}

impl Results {
    fn cell(&self, name: &str) -> Option<&CellResults> {
        self.cells.iter().find(|results| results.cell.name == name)
    }

    /// A goal's ratio, round by round: both sides were measured within the
    /// same minute.
    pub(crate) fn ratios(&self, goal: &crate::cell::Goal) -> Vec<f64> {
        let ours = self.cell(&goal.cell);
        let theirs = self.cell(goal.against_cell.as_ref().unwrap_or(&goal.cell));
        let (Some(ours), Some(theirs)) = (ours, theirs) else { return Vec::new() };
        (0..self.rounds as usize)
            .filter_map(|round| {
                let best = goal.against.iter().filter_map(|name| theirs.value(name, round));
                let best = best.reduce(f64::max)?;
                Some(ours.value(&goal.ours, round)? / best)
            })
            .collect()
    }
}

/// Runs the cells whose names contain one of `filters` (all, if there is none).
pub(crate) fn run(
    suite: &Suite,
    filters: &[String],
    only: &[String],
    rounds: u32,
    place: &Place,
) -> Result<Results> {
    let is_chosen = |cell: &&Cell| {
        filters.is_empty() || filters.iter().any(|filter| cell.name.contains(filter.as_str()))
    };
    let mut cells: Vec<_> = suite
        .cells
        .iter()
        .filter(is_chosen)
        .map(|cell| CellResults {
            cell: cell.clone(),
            samples: BTreeMap::new(),
            skipped: BTreeMap::new(),
        })
        .collect();
    anyhow::ensure!(!cells.is_empty(), "no cell is called like {}", filters.join(" or "));
    for round in 0..rounds {
        for results in &mut cells {
            let mut order: Vec<_> = results.cell.contestants.clone();
            order.retain(|name| only.is_empty() || only.contains(name));
            if round % 2 == 1 {
                order.reverse();
            }
            for name in order {
                run_once(results, &name, round, place);
            }
        }
    }
    let round_s = place.duration.as_secs_f64();
    Ok(Results { machine: Machine::here(), rounds, round_s, cells })
}

fn run_once(results: &mut CellResults, name: &str, round: u32, place: &Place) {
    if results.skipped.contains_key(name) {
        return;
    }
    let cell = &results.cell;
    let unit = cell.kind.unit();
    let sample = match contestant::run(name, cell, place) {
        Ok(Outcome::Sample(sample)) => {
            let note = sample.note.as_deref().unwrap_or("");
            eprintln!("  {} #{round} {name}: {:.2} {unit} {note}", cell.name, sample.value);
            Some(sample)
        }
        Ok(Outcome::Skipped(why)) => {
            eprintln!("  {} {name}: skipped, {why}", cell.name);
            results.skipped.insert(name.to_owned(), why);
            return;
        }
        Err(error) => {
            eprintln!("  {} #{round} {name}: failed: {error:#}", cell.name);
            None
        }
    };
    results.samples.entry(name.to_owned()).or_default().push(sample);
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn a_median_lies_between_the_middle_values() {
        let found = spread(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((found.median, found.least, found.most), (2.5, 1.0, 4.0));
        assert!(spread(Vec::new()).is_none());
    }
}
