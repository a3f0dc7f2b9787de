//! Rounds: every contestant of every chosen cell once per round, in an order that turns around from
//! round to round. All contestants of a round meet the same seed of losses.

use super::cell::Cell;
use super::contestant::{self, Contestant};
use super::end::Identity;
use super::record::{Entry, Folder, Record};
use super::run::{Place, run};
use super::sample::Sample;
use super::summary::headline;
use crate::contestant::quic;
use crate::machine::{Machine, today};
use anyhow::{Result, ensure};
use lacuna::trust::Token;
use std::collections::BTreeMap;
use std::time::Duration;

/// A run is worth nothing if the machine stood still for so long. A busy machine keeps the race
/// from running for some tens of milliseconds (judgement).
pub(crate) const STANDSTILL_MS: f64 = 500.0;
/// How often such a run is repeated.
const TRIES: u32 = 3;

pub(crate) struct Race<'a> {
    pub(crate) contestants: &'a contestant::File,
    /// Only these, if any are named.
    pub(crate) only: &'a [String],
    pub(crate) rounds: u32,
    pub(crate) budget: Duration,
    pub(crate) note: &'a str,
    pub(crate) machine: Machine,
}

impl Race<'_> {
    /// Runs the cells. What a round found is kept at once, if there is a folder.
    pub(crate) fn run(&self, cells: Vec<Cell>, folder: Option<&Folder>) -> Result<Vec<Record>> {
        let (certificate, key) = quic::identity()?;
        let token = Token::generate()?.to_text().to_string();
        let place = Place { identity: Identity { certificate, key, token }, budget: self.budget };
        let mut records: Vec<_> =
            cells.into_iter().map(|cell| Record { cell, entries: BTreeMap::new() }).collect();
        let is_chosen = |name: &String| self.only.is_empty() || self.only.contains(name);
        let named = records.iter().flat_map(|record| &record.cell.contestants);
        ensure!(named.clone().any(is_chosen), "no cell runs {}", self.only.join(" or "));
        for round in 0..self.rounds {
            for record in &mut records {
                let mut order: Vec<_> = record.cell.contestants.clone();
                order.retain(is_chosen);
                if round % 2 == 1 {
                    order.reverse();
                }
                for name in order {
                    self.run_once(record, &name, round, &place)?;
                }
                if let Some(folder) = folder {
                    folder.keep(record)?;
                }
            }
        }
        Ok(records)
    }

    fn run_once(&self, record: &mut Record, name: &str, round: u32, place: &Place) -> Result<()> {
        let cell = &record.cell;
        let entry = record.entries.entry(name.to_owned()).or_insert_with(|| self.entry(cell));
        if entry.skipped.is_some() {
            return Ok(());
        }
        let flows = self.contestants.flows(name)?;
        if let Some(missing) = flows.iter().find_map(|flow: &&Contestant| flow.missing()) {
            eprintln!("  {} {name}: skipped, {missing}", cell.name);
            entry.skipped = Some(missing);
            return Ok(());
        }
        let mut found = run(cell, &flows, u64::from(round) + 1, place);
        for _ in 1..TRIES {
            let stood_ms = found.as_ref().map_or(0.0, |sample| sample.standstill_ms);
            if stood_ms <= STANDSTILL_MS {
                break;
            }
            eprintln!(
                "  {} {name}: again, the machine stood still for {stood_ms:.0} ms",
                cell.name
            );
            found = run(cell, &flows, u64::from(round) + 1, place);
        }
        match &found {
            Ok(sample) => eprintln!("  {} #{round} {name}: {}", cell.name, headline(sample)),
            Err(error) => {
                eprintln!("  {} #{round} {name}: failed: {error:#}", cell.name);
                entry.failures.push(format!("{error:#}"));
            }
        }
        entry.samples.push(found.ok());
        Ok(())
    }

    fn entry(&self, cell: &Cell) -> Entry {
        Entry {
            day: today(),
            machine: self.machine.clone(),
            note: self.note.to_owned(),
            budget_s: self.budget.as_secs_f64(),
            task: cell.task,
            samples: Vec::<Option<Sample>>::new(),
            failures: Vec::new(),
            skipped: None,
        }
    }
}
