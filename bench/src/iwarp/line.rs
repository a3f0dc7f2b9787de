//! What was found, and whether it is what was wanted.

use crate::run::{Spread, spread};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeMap;

/// Figures of contestants that took turns, by name: one for each round.
#[derive(Debug, Default)]
pub(super) struct Samples {
    names: Vec<&'static str>,
    values: BTreeMap<&'static str, Vec<f64>>,
    lost_turns: Vec<(&'static str, u32)>,
}

impl Samples {
    pub(super) fn add(&mut self, name: &'static str, value: f64) {
        if !self.values.contains_key(name) {
            self.names.push(name);
        }
        self.values.entry(name).or_default().push(value);
    }

    /// Turns that were taken again after something was lost.
    pub(super) fn add_lost_turns(&mut self, name: &'static str, count: u32) {
        self.lost_turns.extend((count > 0).then_some((name, count)));
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// `ours` over `theirs`, round by round.
    pub(super) fn ratios(&self, ours: &str, theirs: &str) -> Vec<f64> {
        let of = |name| self.values.get(name).map_or(&[][..], Vec::as_slice);
        of(ours).iter().zip(of(theirs)).map(|(ours, theirs)| ours / theirs).collect()
    }

    /// The figures, in the order in which their names came first.
    fn figures(&self) -> impl Iterator<Item = (&'static str, Spread)> {
        self.names.iter().filter_map(|name| Some((*name, spread(self.values[name].clone())?)))
    }
}

/// What a ratio is to be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// Prints lines, as text or one JSON object each, and counts the goals that were missed.
#[derive(Debug)]
pub(super) struct Printer {
    pub(super) is_json: bool,
    pub(super) path: &'static str,
    pub(super) missed: u32,
}

#[derive(Debug, Serialize)]
struct Figure<'a> {
    path: &'a str,
    what: &'a str,
    bytes: usize,
    who: &'a str,
    unit: &'a str,
    median: f64,
    least: f64,
    most: f64,
}

#[derive(Debug, Serialize)]
struct Judged<'a> {
    path: &'a str,
    ratio: &'a str,
    median: f64,
    least: f64,
    most: f64,
    goal: Option<f64>,
    is_met: Option<bool>,
}

impl Printer {
    /// Where what follows was measured.
    pub(super) fn begin(&mut self, path: &'static str) {
        self.path = path;
    }

    /// A heading, or a remark.
    pub(super) fn say(&self, text: &str) {
        if !self.is_json {
            println!("{text}");
        }
    }

    /// All figures of contestants that took turns.
    pub(super) fn figures(
        &self,
        what: &str,
        unit: &str,
        bytes: usize,
        samples: &Samples,
    ) -> Result<()> {
        let mut text = format!("{:<9} {what:<20} {bytes:>8} B", self.path);
        for (who, Spread { median, least, most }) in samples.figures() {
            if self.is_json {
                let path = self.path;
                let figure = Figure { path, what, bytes, who, unit, median, least, most };
                println!("{}", serde_json::to_string(&figure)?);
            }
            text += &format!("  {who} {median:.2} [{least:.2}-{most:.2}]");
        }
        self.say(&format!("{text} {unit}"));
        for (who, count) in &samples.lost_turns {
            self.say(&format!(
                "          {who}: {count} turns ended with a loss and were taken again"
            ));
        }
        Ok(())
    }

    /// One figure.
    pub(super) fn figure(
        &self,
        what: &str,
        who: &'static str,
        unit: &str,
        value: f64,
    ) -> Result<()> {
        let mut samples = Samples::default();
        samples.add(who, value);
        for (who, Spread { median, .. }) in samples.figures() {
            if self.is_json {
                let (path, least, most, bytes) = (self.path, median, median, 0);
                let figure = Figure { path, what, bytes, who, unit, median, least, most };
                println!("{}", serde_json::to_string(&figure)?);
            }
            self.say(&format!("{:<9} {what}: {who} {median:.1} {unit}", self.path));
        }
        Ok(())
    }

    /// Ratios of the rounds, and what their median is to be. Returns the median.
    pub(super) fn judge(
        &mut self,
        ratio: &str,
        ratios: Vec<f64>,
        goal: Option<Goal>,
    ) -> Result<f64> {
        let Spread { median, least, most } = spread(ratios).context("no rounds")?;
        let is_met = goal.map(|goal| match goal {
            Goal::AtMost(goal) => median <= goal,
            Goal::AtLeast(goal) => median >= goal,
        });
        self.missed += u32::from(is_met == Some(false));
        let path = self.path;
        let (sign, value) = match goal {
            None => ("", None),
            Some(Goal::AtMost(goal)) => ("<=", Some(goal)),
            Some(Goal::AtLeast(goal)) => (">=", Some(goal)),
        };
        if self.is_json {
            let judged = Judged { path, ratio, median, least, most, goal: value, is_met };
            println!("{}", serde_json::to_string(&judged)?);
            return Ok(median);
        }
        let verdict = match (value, is_met) {
            (Some(goal), Some(true)) => format!(", goal {sign} {goal}: met"),
            (Some(goal), _) => format!(", goal {sign} {goal}: not met"),
            (None, _) => String::new(),
        };
        println!("{path:<9} {ratio}: {median:.3} [{least:.3}-{most:.3}]{verdict}");
        Ok(median)
    }
}
