//! A CSV row per trial, for other tools and for figure 2.

use super::row::{Cell, Row};
use crate::failure::Failure;
use std::path::Path;

/// Writes a header line, then one per trial. Unknown values are empty.
pub(super) fn write(path: &Path, trials: &[Row]) -> Result<(), Failure> {
    std::fs::write(path, text(trials)).map_err(|error| Failure::file("write", path, &error))
}

fn text(trials: &[Row]) -> String {
    let Some(first) = trials.first() else { return String::new() };
    let mut text = first.names().collect::<Vec<_>>().join(",") + "\n";
    for trial in trials {
        let cells: Vec<String> = trial.cells().map(show).collect();
        text += &(cells.join(",") + "\n");
    }
    text
}

fn show(cell: Cell) -> String {
    match cell {
        Cell::Count(count) => count.to_string(),
        Cell::Number(number) => number.to_string(),
        Cell::Flag(flag) => flag.to_string(),
        Cell::Nothing => String::new(),
    }
}
