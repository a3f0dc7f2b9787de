//! Records for tests: what contestants found in the cells of a small grid.

use super::cell::{Cell, File};
use super::record::{Entry, Record};
use super::sample::Sample;
use crate::machine::Machine;

/// The cells of a grid "x" at 1 Gbit/s, of 8 MiB if of messages, with these lines of TOML besides;
/// in each the contestants found these samples.
pub(crate) fn records(lines: &str, samples: &[(&str, Sample)]) -> Vec<Record> {
    let text = format!(
        "[[grid]]\nname = \"x\"\nabout = \"\"\nrates_mbit = [1000]\nseconds = 1\n\
         sizes_kib = [8192]\ncount = 1\nconnections = [\"fresh\"]\ncontestants = []\n{lines}"
    );
    let machine = Machine::here();
    let entry = |cell: &Cell, sample: &Sample| Entry {
        day: String::new(),
        machine: machine.clone(),
        note: String::new(),
        budget_s: 1.0,
        task: cell.task,
        samples: vec![Some(sample.clone())],
        failures: vec![],
        skipped: None,
    };
    let record = |cell: Cell| {
        let entries = samples.iter();
        let entries = entries.map(|(name, sample)| ((*name).to_owned(), entry(&cell, sample)));
        Record { entries: entries.collect(), cell }
    };
    File::parse(&text).unwrap().cells().unwrap().into_iter().map(record).collect()
}
