//! Cells and goals: what is measured and what is claimed, read from
//! `cells.toml`.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// All of `cells.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Suite {
    #[serde(rename = "cell")]
    pub(crate) cells: Vec<Cell>,
    #[serde(rename = "goal")]
    pub(crate) goals: Vec<Goal>,
}

/// One setting.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cell {
    pub(crate) name: String,
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) inflight: u32,
    pub(crate) mtu: u32,
    #[serde(default = "chunk")]
    pub(crate) chunk: u64,
    #[serde(default = "one")]
    pub(crate) channels: u8,
    #[serde(default)]
    pub(crate) progress: Progress,
    #[serde(default)]
    pub(crate) datapath: Datapath,
    /// Bytes in flight of the bare loops.
    #[serde(default = "windows")]
    pub(crate) windows: Vec<u64>,
    pub(crate) contestants: Vec<String>,
}

/// What a sample is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Gbit/s of payload: more is better.
    #[default]
    Throughput,
    /// Microseconds one way: less is better.
    Latency,
}

impl Kind {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "Gbit/s",
            Self::Latency => "us",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Progress {
    #[default]
    Threads,
    Manual,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Datapath {
    #[default]
    Udp,
    Plain,
}

/// `ours` over the best of `against`, in one run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Goal {
    pub(crate) ours: String,
    pub(crate) cell: String,
    pub(crate) against: Vec<String>,
    /// Where `against` was measured, if not in the same cell.
    pub(crate) against_cell: Option<String>,
    pub(crate) at_least: f64,
}

fn chunk() -> u64 {
    64 << 10
}

fn one() -> u8 {
    1
}

fn windows() -> Vec<u64> {
    vec![1 << 20, 4 << 20]
}

impl Suite {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let suite: Self = toml::from_str(text).context("cells.toml")?;
        for goal in &suite.goals {
            for (cell, names) in [
                (&goal.cell, std::slice::from_ref(&goal.ours)),
                (goal.against_cell.as_ref().unwrap_or(&goal.cell), &goal.against[..]),
            ] {
                let found = suite.cells.iter().find(|found| &found.name == cell);
                let found = found.with_context(|| format!("a goal names no cell: {cell}"))?;
                for name in names {
                    let is_there = found.contestants.contains(name);
                    ensure!(is_there, "a goal wants {name}, which {cell} does not run");
                }
            }
        }
        Ok(suite)
    }

    /// The suite that is kept beside this program's source.
    pub(crate) fn ours() -> Result<Self> {
        Self::parse(include_str!("../cells.toml"))
    }
}

#[cfg(test)]
mod tests {
    use super::Suite;

    #[test]
    fn every_goal_names_what_is_measured() {
        let suite = Suite::ours().unwrap();
        assert!(!suite.goals.is_empty());
    }

    #[test]
    fn a_goal_over_something_that_is_not_run_is_refused() {
        let text = r#"
            [[cell]]
            name = "a"
            about = ""
            size = 1
            inflight = 1
            mtu = 1
            contestants = ["x"]
            [[goal]]
            ours = "x"
            cell = "a"
            against = ["y"]
            at_least = 1.0
        "#;
        let error = Suite::parse(text).unwrap_err().to_string();
        assert!(error.contains("wants y"), "{error}");
    }
}
