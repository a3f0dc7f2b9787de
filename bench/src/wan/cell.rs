//! Cells of the race as data: `wan/cells.toml`. A grid is a table of lists; every combination of
//! their values is a cell, named after them, like `message-8m-fresh-1g-40ms-1e-3-b8`.

use super::end::{Reuse, Task};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Shallowest queue, as `lacuna wan` has it: some bundles of segmentation offload, which arrive at
/// once however well the sender paces.
const QUEUE_BYTES_MIN: u64 = 512 << 10;

/// All of `cells.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(rename = "grid")]
    grids: Vec<Grid>,
    #[serde(default, rename = "goal")]
    pub(crate) goals: Vec<Goal>,
}

/// Cells that differ in what is listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grid {
    name: String,
    about: String,
    kind: Kind,
    rates_mbit: Vec<u64>,
    rtts_ms: Vec<u64>,
    losses: Vec<f64>,
    /// Mean lengths of runs of lost packets; 1 is independent loss.
    #[serde(default = "alone")]
    bursts: Vec<u32>,
    /// In front of the link, in products of rate and round-trip time.
    #[serde(default = "one")]
    queue_bdp: f64,
    /// The way back's part of the rate.
    #[serde(default = "one")]
    back: f64,
    /// Of a bulk transfer.
    #[serde(default)]
    seconds: f64,
    /// Of messages.
    #[serde(default)]
    sizes_kib: Vec<u64>,
    #[serde(default)]
    count: u32,
    #[serde(default)]
    connections: Vec<Reuse>,
    /// What becomes of the path.
    #[serde(default)]
    changes: Vec<Change>,
    contestants: Vec<String>,
}

fn alone() -> Vec<u32> {
    vec![1]
}

fn one() -> f64 {
    1.0
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Goodput of a transfer without end.
    Bulk,
    /// Time of messages, one after the other.
    Message,
    /// Time of messages on many connections at once.
    Crowd,
}

/// The path becomes another one, or somebody on it begins to meddle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Change {
    /// After the client's start.
    pub(crate) at_s: f64,
    pub(crate) rate_mbit: Option<u64>,
    pub(crate) loss: Option<f64>,
    /// The client's packets come from other ports from now on, and nothing comes to the old ones, as behind a NAT that has
    /// forgotten its table.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) rebind: bool,
    /// Packets of the client are copied, changed and sent to the server at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forged_mbit: Option<u64>,
    /// Behind the link and not in front of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) behind: bool,
}

impl Change {
    /// Whether it leaves rate and loss of the path alone.
    pub(crate) fn is_of_ends(&self) -> bool {
        self.rebind || self.forged_mbit.is_some()
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) name: String,
    /// The grid it is of, and what that is about.
    pub(crate) grid: String,
    pub(crate) about: String,
    pub(crate) kind: Kind,
    pub(crate) rate_mbit: u64,
    pub(crate) rtt_ms: u64,
    pub(crate) loss: f64,
    pub(crate) burst: u32,
    pub(crate) queue_bytes: u64,
    /// The way back's part of the rate.
    #[serde(default = "one")]
    pub(crate) back: f64,
    pub(crate) task: Task,
    pub(crate) changes: Vec<Change>,
    pub(crate) contestants: Vec<String>,
}

/// What is claimed: any of these, of every cell that the pattern names and where it was measured.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Goal {
    pub(crate) ours: String,
    /// A pattern of cells, as on the command line.
    pub(crate) cells: String,
    /// Others, for `factor` and `cpu_share`.
    pub(crate) against: Vec<String>,
    /// Better than the best of the others by this at least.
    pub(crate) factor: Option<f64>,
    /// Processor time per byte, ends and path, as a part of the least of the others' at most.
    pub(crate) cpu_share: Option<f64>,
    /// A part of the ideal rate at least.
    pub(crate) of_ideal_rate: Option<f64>,
    /// Multiples of the ideal time at most: the mean, and the 99th of a hundred.
    pub(crate) of_ideal_time: Option<f64>,
    pub(crate) of_ideal_time_p99: Option<f64>,
    /// Round-trip times until the rate is full, at most.
    pub(crate) full_within_rtts: Option<f64>,
    /// The mean queue in products of rate and round-trip time, at most.
    pub(crate) queue_bdp: Option<f64>,
    /// Two flows: Jain's index at least, and the bounds of the first one's part.
    pub(crate) jain: Option<f64>,
    pub(crate) share: Option<[f64; 2]>,
    /// After darkness: milliseconds besides a round trip, at most.
    pub(crate) resumed_ms: Option<f64>,
    /// After the client was moved: milliseconds besides two round trips without a byte, at most.
    pub(crate) pause_ms: Option<f64>,
    /// A second after the client was moved, or others began to meddle: this part of the rate before at least.
    pub(crate) kept_rate: Option<f64>,
}

impl Cell {
    /// The same with another time or number, where given.
    pub(crate) fn adjust(&mut self, for_seconds: Option<f64>, messages: Option<u32>) {
        match &mut self.task {
            Task::Bulk { seconds } => *seconds = for_seconds.unwrap_or(*seconds),
            Task::Messages { count, .. } => *count = messages.unwrap_or(*count),
            Task::Crowd { connections, .. } => *connections = messages.unwrap_or(*connections),
        }
    }

    /// Whether flows of several contestants run beside each other in it.
    pub(crate) fn is_shared(&self) -> bool {
        self.contestants.iter().any(|name| name.contains('+'))
    }

    /// Rate times round-trip time.
    pub(crate) fn bdp_bytes(&self) -> u64 {
        self.rate_mbit * 1_000_000 / 8 * self.rtt_ms / 1000
    }

    /// What loss and headers leave of the rate: 1,352 bytes of payload in packets of 1,400 with
    /// Lacuna's headers, 1,442 on the link.
    pub(crate) fn ideal_mbit(&self) -> f64 {
        self.rate_mbit as f64 * 1352.0 / 1442.0 * (1.0 - self.loss)
    }

    /// The least time of a message: all of it at that rate, one way out and one way back.
    pub(crate) fn ideal_ms(&self) -> Option<f64> {
        let (bytes, messages) = match self.task {
            Task::Bulk { .. } => return None,
            Task::Messages { bytes, .. } => (bytes, 1),
            Task::Crowd { bytes, connections } => (bytes, connections),
        };
        let bits = bytes as f64 * f64::from(messages) * 8.0;
        Some(bits / (self.ideal_mbit() * 1e3) + self.rtt_ms as f64)
    }
}

impl File {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("cells of the race")
    }

    /// Every cell, in the order of the file.
    pub(crate) fn cells(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for grid in &self.grids {
            grid.expand(&mut cells).with_context(|| format!("the grid {}", grid.name))?;
        }
        Ok(cells)
    }
}

impl Grid {
    fn expand(&self, cells: &mut Vec<Cell>) -> Result<()> {
        let tasks = self.tasks()?;
        for (task_name, task) in &tasks {
            for rate_mbit in &self.rates_mbit {
                for rtt_ms in &self.rtts_ms {
                    for loss in &self.losses {
                        for burst in &self.bursts {
                            // No loss comes in bursts of any length.
                            if *loss == 0.0 && *burst > 1 {
                                continue;
                            }
                            cells.push(
                                self.cell(task_name, *task, *rate_mbit, *rtt_ms, *loss, *burst)?,
                            );
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn tasks(&self) -> Result<Vec<(String, Task)>> {
        if self.kind == Kind::Bulk {
            ensure!(self.seconds > 0.0, "a bulk transfer needs seconds");
            return Ok(vec![(String::new(), Task::Bulk { seconds: self.seconds })]);
        }
        ensure!(self.count > 0 && !self.sizes_kib.is_empty(), "messages need sizes_kib and count");
        let mut tasks = Vec::new();
        for size_kib in &self.sizes_kib {
            let bytes = size_kib << 10;
            let size = match size_kib {
                kib if kib % 1024 == 0 => format!("-{}m", kib / 1024),
                kib => format!("-{kib}k"),
            };
            if self.kind == Kind::Crowd {
                tasks.push((size, Task::Crowd { bytes, connections: self.count }));
                continue;
            }
            ensure!(!self.connections.is_empty(), "messages need connections: fresh, kept");
            for connection in &self.connections {
                let name = match connection {
                    Reuse::Fresh => "fresh",
                    Reuse::Kept => "kept",
                };
                let (count, connection) = (self.count, *connection);
                tasks.push((format!("{size}-{name}"), Task::Messages { bytes, count, connection }));
            }
        }
        Ok(tasks)
    }

    fn cell(
        &self,
        task_name: &str,
        task: Task,
        rate_mbit: u64,
        rtt_ms: u64,
        loss: f64,
        burst: u32,
    ) -> Result<Cell> {
        ensure!((0.0..1.0).contains(&loss), "a loss of {loss}: use 0 to less than 1");
        ensure!(burst > 0, "a burst has a packet at least");
        ensure!(self.back > 0.0, "a way back of {} of the rate: use more than 0", self.back);
        let rate = match rate_mbit {
            rate if rate % 1000 == 0 => format!("{}g", rate / 1000),
            rate => format!("{rate}m"),
        };
        let burst_name = if burst > 1 { format!("-b{burst}") } else { String::new() };
        let name =
            format!("{}{task_name}-{rate}-{rtt_ms}ms-{}{burst_name}", self.name, loss_name(loss));
        let mut cell = Cell {
            name,
            grid: self.name.clone(),
            about: self.about.clone(),
            kind: self.kind,
            rate_mbit,
            rtt_ms,
            loss,
            burst,
            queue_bytes: 0,
            back: self.back,
            task,
            changes: self.changes.clone(),
            contestants: self.contestants.clone(),
        };
        let queue_bytes = (cell.bdp_bytes() as f64 * self.queue_bdp) as u64;
        cell.queue_bytes = queue_bytes.max(QUEUE_BYTES_MIN);
        Ok(cell)
    }
}

/// As cells are named after it.
pub(crate) fn loss_name(loss: f64) -> String {
    if loss == 0.0 { "0".to_owned() } else { format!("{loss:e}") }
}

/// Whether a name is what a pattern says, in which `*` stands for anything.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(head) else { return false };
    (0..=name.len()).any(|at| name.is_char_boundary(at) && matches(rest, &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = include_str!("../../wan/cells.toml");

    #[test]
    fn every_cell_has_a_name_of_its_own_and_every_goal_a_cell() {
        let file = File::parse(OURS).unwrap();
        let cells = file.cells().unwrap();
        let mut names: Vec<_> = cells.iter().map(|cell| &cell.name).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        for goal in &file.goals {
            let found: Vec<_> =
                cells.iter().filter(|cell| matches(&goal.cells, &cell.name)).collect();
            assert!(!found.is_empty(), "no cell is called like {}", goal.cells);
            for cell in found {
                for name in std::iter::once(&goal.ours).chain(&goal.against) {
                    assert!(cell.contestants.contains(name), "{} does not run {name}", cell.name);
                }
            }
        }
    }

    #[test]
    fn a_grid_is_every_combination_but_bursts_of_nothing() {
        let text = r#"
            [[grid]]
            name = "x"
            about = ""
            kind = "message"
            rates_mbit = [1000, 100]
            rtts_ms = [40]
            losses = [0, 1e-3]
            bursts = [1, 8]
            sizes_kib = [64, 8192]
            count = 2
            connections = ["fresh"]
            contestants = ["a"]
        "#;
        let cells = File::parse(text).unwrap().cells().unwrap();
        let names: Vec<_> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(
            names[..4],
            [
                "x-64k-fresh-1g-40ms-0",
                "x-64k-fresh-1g-40ms-1e-3",
                "x-64k-fresh-1g-40ms-1e-3-b8",
                "x-64k-fresh-100m-40ms-0"
            ]
        );
        assert_eq!(names.len(), 12);
        assert_eq!(cells[6].queue_bytes, 5_000_000);
        assert!((cells[6].ideal_ms().unwrap() - 111.57).abs() < 0.01);
    }

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("bulk-*-0", "bulk-1g-40ms-0") && matches("*", "") && matches("a", "a"));
        assert!(!matches("bulk-*-0", "bulk-1g-40ms-0-b8") && !matches("a", "ab"));
        assert!(matches("*40ms*", "message-1g-40ms-0"));
    }
}
