//! What came of doing a paper's experiment again: what was run, the numbers, and how each statement of the
//! paper stands.

use lacuna_planner::ChartError;
use lacuna_planner::chart::{Chart, Drawing};
use serde::Serialize;
use std::fmt::{self, Display, Formatter, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

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

/// What of a paper is done again. Written as on command lines: `9`, `table1`, `budgets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// A figure, by its number.
    Figure(u32),
    /// A table, by its number.
    Table(u32),
    /// What a paper states without a figure or table, by a name.
    Study(Study),
}

/// See [`Item::Study`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Study {
    /// A ring of sites, its operations by the protocol and by the model.
    Ring,
    /// Each schedule's time beside the model's.
    Schedules,
    /// Rules for the time that an operation gets.
    Budgets,
}

impl Study {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ring, Self::Schedules, Self::Budgets];

    /// Its name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Schedules => "schedules",
            Self::Budgets => "budgets",
        }
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Figure(number) => write!(f, "{number}"),
            Self::Table(number) => write!(f, "table{number}"),
            Self::Study(study) => f.write_str(study.name()),
        }
    }
}

/// A text that names nothing that is done again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is neither a figure nor a table: use a number like 9, or table1; --list names all"
)]
pub struct ItemError(String);

impl FromStr for Item {
    type Err = ItemError;

    fn from_str(text: &str) -> Result<Self, ItemError> {
        let number = |digits: &str| digits.parse().map_err(|_| ItemError(text.to_owned()));
        if let Some(study) = Study::ALL.into_iter().find(|study| study.name() == text) {
            return Ok(Self::Study(study));
        }
        match text.strip_prefix("table") {
            Some(digits) => number(digits).map(Self::Table),
            None => number(text).map(Self::Figure),
        }
    }
}

impl Item {
    /// In words: "figure 9".
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Figure(number) => format!("figure {number}"),
            Self::Table(number) => format!("table {number}"),
            Self::Study(study) => study.name().to_owned(),
        }
    }
}

/// An experiment, done again.
#[derive(Debug)]
pub struct Outcome {
    /// The paper's name on command lines.
    pub paper: &'static str,
    /// The figure or table.
    pub item: Item,
    /// Whether real programs were measured, and not virtual time.
    pub live: bool,
    /// What it shows.
    pub title: String,
    /// What was run.
    pub workload: String,
    /// The paper's statements, and ours.
    pub statements: Vec<Statement>,
    /// The drawing's charts.
    pub charts: Vec<Chart>,
    /// What people are shown as rows, if anything is.
    pub rows: Option<Rows>,
    /// What went wrong or has to be known, in sentences.
    pub remarks: Vec<String>,
    /// All numbers.
    pub csv: Csv,
}

/// Rows for people, under a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rows {
    /// The columns' names.
    pub header: Vec<String>,
    /// Each as long as the header.
    pub rows: Vec<Vec<String>>,
}

/// An outcome whose files were written.
#[derive(Debug, Clone, Serialize)]
pub struct Written {
    /// The paper.
    pub paper: &'static str,
    /// `"figure": 9`, `"table": 1`, or `"study": "budgets"`.
    #[serde(flatten)]
    pub item: Item,
    /// Whether real programs were measured, and not virtual time.
    pub live: bool,
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
    /// Rows for people; other tools read the file.
    #[serde(skip)]
    pub rows: Option<Rows>,
    /// What went wrong or has to be known, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
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
        let kind = if self.live { "-live" } else { "" };
        let name = format!("{}-{}{kind}", self.paper, self.item.words().replace(' ', "-"));
        let (svg, csv) = (folder.join(format!("{name}.svg")), folder.join(format!("{name}.csv")));
        let lines = |statement: &Statement| {
            let Statement { section, paper, ours, verdict, why } = statement;
            let why = why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            [format!("Paper, {section}: {paper}"), format!("Here: {ours}: {}{why}", verdict.word())]
        };
        let mut notes = vec![self.workload.clone()];
        notes.extend(self.statements.iter().flat_map(lines));
        notes.extend(self.remarks.iter().cloned());
        let title = format!("{}: {}", capitalized(&self.item.words()), self.title);
        Drawing { title, charts: self.charts, is_common_y: false, notes }.write(&svg)?;
        std::fs::write(&csv, &self.csv.0)
            .map_err(|source| WriteError::Csv { path: csv.clone(), source })?;
        Ok(Written {
            paper: self.paper,
            item: self.item,
            live: self.live,
            title: self.title,
            workload: self.workload,
            svg: svg.display().to_string(),
            csv: csv.display().to_string(),
            statements: self.statements,
            rows: self.rows,
            remarks: self.remarks,
        })
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
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
