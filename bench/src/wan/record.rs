//! Records on disk: a file for each cell with every sample, each contestant with where and when it
//! was measured. A new measurement takes the place of the contestant's old one and leaves the
//! others'.

use super::cell::Cell;
use super::end::Task;
use super::plot::Picture;
use super::sample::Sample;
use crate::machine::Machine;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What was found in a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) cell: Cell,
    /// By contestant.
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// What was found of a contestant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) day: String,
    pub(crate) machine: Machine,
    pub(crate) note: String,
    pub(crate) budget_s: f64,
    /// As it was run: shorter, perhaps, than the cell has it.
    pub(crate) task: Task,
    /// One per round, `None` where it failed.
    pub(crate) samples: Vec<Option<Sample>>,
    pub(crate) failures: Vec<String>,
    /// Why it did not run at all.
    pub(crate) skipped: Option<String>,
}

/// Where records, document and pictures are.
pub(crate) struct Folder {
    records: PathBuf,
    document: PathBuf,
    /// Pictures, in a folder that the document names.
    pictures: PathBuf,
}

impl Folder {
    /// All of it in one folder.
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            records: folder.join("record"),
            document: folder.join("race.md"),
            pictures: folder.join("race"),
        }
    }

    /// This checkout's.
    pub(crate) fn of_checkout() -> Self {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
        let docs = bench.join("../docs");
        Self {
            records: bench.join("wan/record"),
            document: docs.join("race.md"),
            pictures: docs.join("race"),
        }
    }

    fn record(&self, cell: &str) -> PathBuf {
        self.records.join(format!("{cell}.json"))
    }

    /// Keeps what was found, beside what is there of others.
    pub(crate) fn keep(&self, record: &Record) -> Result<()> {
        let path = self.record(&record.cell.name);
        let mut kept = if path.exists() { read(&path)? } else { record.clone() };
        kept.cell = record.cell.clone();
        kept.entries.extend(record.entries.clone());
        write(&path, &serde_json::to_string_pretty(&kept)?)
    }

    /// All that are there.
    pub(crate) fn records(&self) -> Result<Vec<Record>> {
        let files = fs::read_dir(&self.records)
            .with_context(|| format!("no records in {}", self.records.display()))?;
        let mut records = Vec::new();
        for file in files {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                records.push(read(&path)?);
            }
        }
        Ok(records)
    }

    pub(crate) fn write(&self, document: &str, pictures: &[Picture]) -> Result<()> {
        write(&self.document, document)?;
        for picture in pictures {
            write(&self.pictures.join(&picture.name), &picture.svg)?;
        }
        eprintln!("written: {}", self.document.display());
        Ok(())
    }
}

fn read(path: &Path) -> Result<Record> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
