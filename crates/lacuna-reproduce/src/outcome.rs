//! What came of doing a paper's experiment again: what was run, the numbers, and how each statement of the
//! paper stands.

use lacuna_planner::ChartError;
use lacuna_planner::chart::{Chart, Drawing};
use serde::Serialize;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// How a statement of a paper stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The same within the tolerance that the statement gives.
    Holds,
    /// What the paper claims of its scheme is surpassed.
    Exceeded,
    /// It does not; the reason stands beside it.
    Differs,
}

impl Verdict {
    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Exceeded => "exceeded",
            Self::Differs => "differs",
        }
    }
}

/// A statement of the paper, and ours.
#[derive(Debug, Clone, Serialize)]
pub struct Statement {
    /// Section or figure.
    pub section: &'static str,
    /// What the paper says.
    pub paper: String,
    /// What was measured here.
    pub ours: String,
    /// How it stands.
    pub verdict: Verdict,
    /// Why it differs, or what it holds for.
    pub why: Option<String>,
}

impl Statement {
    /// A statement about a number: it holds if ours is at least `share` of the paper's, and is exceeded if ours
    /// is more than the paper's by the same share.
    #[must_use]
    pub fn at_least(
        section: &'static str,
        paper: String,
        ours: String,
        (theirs, mine): (f64, f64),
        share: f64,
    ) -> Self {
        let verdict = if mine * share > theirs {
            Verdict::Exceeded
        } else if mine >= theirs * share {
            Verdict::Holds
        } else {
            Verdict::Differs
        };
        Self { section, paper, ours, verdict, why: None }
    }

    /// With the reason.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..self }
    }
}

/// A figure's experiment, done again.
#[derive(Debug)]
pub struct Outcome {
    /// The paper's name on command lines.
    pub paper: &'static str,
    /// Number of the figure.
    pub figure: u32,
    /// What it shows.
    pub title: String,
    /// What was run.
    pub workload: String,
    /// The paper's statements, and ours.
    pub statements: Vec<Statement>,
    /// The drawing's charts.
    pub charts: Vec<Chart>,
    /// All numbers.
    pub csv: Csv,
}

/// An outcome whose files were written.
#[derive(Debug, Clone, Serialize)]
pub struct Written {
    /// The paper.
    pub paper: &'static str,
    /// Number of the figure.
    pub figure: u32,
    /// What it shows.
    pub title: String,
    /// What was run.
    pub workload: String,
    /// The file with the drawing.
    pub svg: String,
    /// The file with the numbers.
    pub csv: String,
    /// The paper's statements, and ours.
    pub statements: Vec<Statement>,
}

/// An outcome could not be written. This machine's fault.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The drawing.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// The numbers.
    #[error("cannot write {}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Outcome {
    /// Writes drawing and numbers into an existing folder.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(self, folder: &Path) -> Result<Written, WriteError> {
        let name = format!("{}-figure-{}", self.paper, self.figure);
        let (svg, csv) = (folder.join(format!("{name}.svg")), folder.join(format!("{name}.csv")));
        let lines = |statement: &Statement| {
            let Statement { section, paper, ours, verdict, why } = statement;
            let why = why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            [format!("Paper, {section}: {paper}"), format!("Here: {ours}: {}{why}", verdict.word())]
        };
        let mut notes = vec![self.workload.clone()];
        notes.extend(self.statements.iter().flat_map(lines));
        let title = format!("Figure {}: {}", self.figure, self.title);
        Drawing { title, charts: self.charts, is_common_y: false, notes }.write(&svg)?;
        std::fs::write(&csv, &self.csv.0)
            .map_err(|source| WriteError::Csv { path: csv.clone(), source })?;
        Ok(Written {
            paper: self.paper,
            figure: self.figure,
            title: self.title,
            workload: self.workload,
            svg: svg.display().to_string(),
            csv: csv.display().to_string(),
            statements: self.statements,
        })
    }
}

/// Numbers for other tools.
#[derive(Debug, Clone)]
pub struct Csv(String);

impl Csv {
    /// An empty table with these columns.
    #[must_use]
    pub fn new(header: &str) -> Self {
        Self(format!("{header}\n"))
    }

    /// Adds a row.
    pub fn row(&mut self, labels: &[&str], numbers: &[f64]) {
        let mut line = labels.join(",");
        for number in numbers {
            // Writing to a string cannot fail.
            let _ = write!(line, "{}{number:e}", if line.is_empty() { "" } else { "," });
        }
        self.0.push_str(&line);
        self.0.push('\n');
    }
}
