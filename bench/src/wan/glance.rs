//! The race at a glance: of every task and rate a table, a line per round-trip time and a column
//! per loss.

use super::cell::{Cell, loss_name};
use super::record::Record;
use super::report::{maybe, show};
use super::summary::{Summary, best, is_default, is_ours, is_rate};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A table of fewer cells says no more than theirs.
const CELLS_MIN: usize = 4;

const HEAD: &str = "
## At a glance

The first number is Lacuna's goodput or time, as a multiple of the ideal; it leads to the table of
the cell. The second is how many times better that is than the best of all others, bold where it is
worse. Lacuna's best mode at its defaults; connecting is not counted here.
";

/// A column: loss, and the mean length of its bursts.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Column(f64, u32);

impl Column {
    fn of(cell: &Cell) -> Self {
        Self(cell.loss, cell.burst)
    }

    fn name(self) -> String {
        match self.1 {
            1 => loss_name(self.0),
            burst => format!("{} in bursts of {burst}", loss_name(self.0)),
        }
    }
}

/// The tables of grids whose cells differ in nothing but path and task.
pub(crate) fn tables(records: &[Record]) -> String {
    let mut text = String::new();
    let mut names: Vec<&str> = Vec::new();
    let mut groups: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    let is_plain = |record: &&Record| record.cell.changes.is_empty() && !record.cell.is_shared();
    for record in records.iter().filter(is_plain) {
        let task = task(&record.cell);
        if !names.contains(&task) {
            names.push(task);
        }
        groups.entry(task).or_default().push(record);
    }
    for name in names {
        let records = &groups[name];
        if records.len() >= CELLS_MIN {
            text += &table(name, records);
        }
    }
    if text.is_empty() { text } else { HEAD.to_owned() + &text }
}

/// The name of a cell without round-trip time and loss, which stand last in it.
fn task(cell: &Cell) -> &str {
    let end = format!("-{}ms-{}", cell.rtt_ms, loss_name(cell.loss));
    cell.name.rfind(&end).map_or(&cell.name, |at| &cell.name[..at])
}

fn table(name: &str, records: &[&Record]) -> String {
    let mut columns: Vec<Column> = Vec::new();
    let mut rtts_ms: Vec<u64> = Vec::new();
    for record in records {
        let column = Column::of(&record.cell);
        if !columns.contains(&column) {
            columns.push(column);
        }
        if !rtts_ms.contains(&record.cell.rtt_ms) {
            rtts_ms.push(record.cell.rtt_ms);
        }
    }
    columns.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    rtts_ms.sort_unstable();
    let mut text = format!("\n| {name} |");
    for column in &columns {
        let _ = write!(text, " {} |", column.name());
    }
    text += "\n|---|";
    text += &"---|".repeat(columns.len());
    for rtt_ms in rtts_ms {
        let _ = write!(text, "\n| {rtt_ms} ms |");
        for column in &columns {
            let record = records
                .iter()
                .find(|record| record.cell.rtt_ms == rtt_ms && Column::of(&record.cell) == *column);
            let _ = write!(text, " {} |", record.map_or(String::new(), |record| entry(record)));
        }
    }
    text + "\n"
}

/// What a cell came to, with a link to its table.
fn entry(record: &Record) -> String {
    let cell = &record.cell;
    let Some((name, ours)) = best(record, is_default) else { return "failed".to_owned() };
    let of_ideal = Summary::new(&record.entries[name]).of_ideal(cell);
    let link = format!("[{}](#{})", maybe(of_ideal), cell.name);
    let Some((name, theirs)) = best(record, |name| !is_ours(name)) else { return link };
    let factor = if is_rate(cell.kind) { ours / theirs } else { theirs / ours };
    let bound = if Summary::new(&record.entries[name]).is_at_least { "> " } else { "" };
    let mark = if factor < 1.0 { "**" } else { "" };
    format!("{link} · {mark}{bound}{}{mark}", show(factor))
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::super::testing::records;
    use super::*;

    fn took(ms: f64) -> Sample {
        Sample { messages_ms: vec![ms], ..Sample::default() }
    }

    #[test]
    fn a_task_has_a_line_per_round_trip_time_and_a_column_per_loss() {
        let grid = "kind = \"message\"\nrtts_ms = [100, 40]\nlosses = [1e-3, 0]\nbursts = [1, 8]";
        let cut = Sample { unfinished_ms: Some(400.0), ..took(400.0) };
        let found = [("lacuna-auto", took(200.0)), ("lacuna-sr-fixed", took(1.0)), ("tcp", cut)];
        let records = records(grid, &found);
        assert_eq!(records.len(), 6);
        let text = tables(&records);
        let lines: Vec<_> = text.lines().skip_while(|line| !line.starts_with('|')).collect();
        assert_eq!(lines[0], "| x-8m-fresh-1g | 0 | 1e-3 | 1e-3 in bursts of 8 |");
        assert_eq!(lines[1], "|---|---|---|---|");
        assert!(lines[2].starts_with("| 40 ms | [1.79](#x-8m-fresh-1g-40ms-0) · > 2.00 | "));
        assert!(lines[3].starts_with("| 100 ms | [1.17](#x-8m-fresh-1g-100ms-0) · > 2.00 | "));
        assert_eq!(lines.len(), 4);
        // Too few cells for a table.
        assert_eq!(tables(&records[..3]), "");
    }

    #[test]
    fn where_ours_is_worse_stands_out() {
        let grid = "kind = \"message\"\nrtts_ms = [1, 25, 40, 100]\nlosses = [0]";
        let text = tables(&records(grid, &[("lacuna-auto", took(200.0)), ("tcp", took(100.0))]));
        assert_eq!(text.matches(" · **0.50** |").count(), 4);
        let text = tables(&records(grid, &[("lacuna-auto", took(200.0))]));
        assert_eq!(text.matches(") |").count(), 4);
        let text = tables(&records(grid, &[("tcp", took(200.0))]));
        assert_eq!(text.matches(" failed |").count(), 4);
    }
}
