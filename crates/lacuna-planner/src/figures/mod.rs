//! The figures of the SDR paper: 3, 9, 10, 12, 13 and 15 from the model, 2 and 11 from
//! measurements, as SVG and CSV, with the paper's statements on each and the results here.
//!
//! The paper does not say which chunk size figures 3, 9, 10, 12 and 13 use, nor whether the drop
//! rate is per chunk or per packet. [`FigureOptions`] chooses; with 4 KiB chunks, the default, the
//! two are the same, and most of the paper's statements are reproduced.

mod allreduce;
mod crossover;
mod distance;
mod drops;
mod encoding;
mod grid;
mod lines;
mod packets;
mod setup;

use crate::LossPer;
use crate::error::FigureError;
use serde::Serialize;
use setup::Setup;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Figures that the model draws without a measurement.
const FROM_MODEL: [u32; 6] = [3, 9, 10, 12, 13, 15];

/// The figure of drop rates, which needs [`FigureOptions::drops`].
pub const DROPS_FIGURE: u32 = 2;

/// The figure of encoding throughput, which needs [`FigureOptions::encoding`].
pub const ENCODING_FIGURE: u32 = 11;

/// What figures are drawn for.
#[derive(Debug, Clone)]
pub struct FigureOptions {
    /// Bytes per chunk, which the paper does not state.
    pub chunk_bytes: u64,
    /// What a drop rate counts: chunks whatever their length (4.2.1), or packets of 4 KiB (5.4.2).
    pub loss_per: LossPer,
    /// Trials of each ring allreduce in figure 13; `None`: as many as narrow the 99 % interval of p99.9
    /// to 1 % to either side, a million at most.
    pub trials: Option<u32>,
    /// Seed of these trials.
    pub seed: u64,
    /// Figure 2: files with the JSON or CSV of a probe; several are one measurement.
    pub drops: Vec<PathBuf>,
    /// Figure 11: a file with the JSON of a benchmark of the erasure codes.
    pub encoding: Option<PathBuf>,
}

impl Default for FigureOptions {
    fn default() -> Self {
        Self {
            chunk_bytes: 4096,
            loss_per: LossPer::Chunk,
            trials: None,
            seed: 1,
            drops: Vec::new(),
            encoding: None,
        }
    }
}

/// A figure that was written.
#[derive(Debug, Clone, Serialize)]
pub struct WrittenFigure {
    /// Its number in the paper.
    pub figure: u32,
    /// The file with the drawing.
    pub svg: String,
    /// The file with the numbers.
    pub csv: String,
    /// The paper's statements and the results here.
    pub headlines: Vec<Headline>,
}

/// The contents of a figure.
struct Figure {
    number: u32,
    headlines: Vec<Headline>,
    csv: Csv,
}

/// A statement of the paper about a figure, and the result here.
#[derive(Debug, Clone, Serialize)]
pub struct Headline {
    /// Of the paper.
    pub section: &'static str,
    /// What the paper states.
    pub paper: &'static str,
    /// The result here.
    pub ours: String,
}

impl Headline {
    /// Two lines below a figure.
    fn notes(headlines: &[Self]) -> Vec<String> {
        let lines = |headline: &Self| {
            [
                format!("Paper, {}: {}", headline.section, headline.paper),
                format!("Here: {}", headline.ours),
            ]
        };
        headlines.iter().flat_map(lines).collect()
    }
}

/// Numbers for other tools.
struct Csv {
    text: String,
}

impl Csv {
    fn new(header: &str) -> Self {
        Self { text: format!("{header}\n") }
    }

    fn row(&mut self, labels: &[&str], numbers: &[f64]) {
        let mut line = labels.join(",");
        for number in numbers {
            // Writing to a string cannot fail.
            let _ = write!(line, "{}{number:e}", if line.is_empty() { "" } else { "," });
        }
        self.text.push_str(&line);
        self.text.push('\n');
    }
}

impl FigureOptions {
    /// The figures to draw, ascending: those asked for, or else all that the model draws and those
    /// whose measurements are given.
    ///
    /// # Errors
    /// When a figure is unknown or its measurement is not given.
    pub fn numbers(&self, asked: &[u32]) -> Result<Vec<u32>, FigureError> {
        let measured =
            [(DROPS_FIGURE, !self.drops.is_empty()), (ENCODING_FIGURE, self.encoding.is_some())];
        let mut numbers = asked.to_vec();
        if numbers.is_empty() {
            numbers.extend(FROM_MODEL);
            numbers.extend(measured.iter().filter(|(_, is_there)| *is_there).map(|(n, _)| n));
        }
        numbers.sort_unstable();
        numbers.dedup();
        for number in &numbers {
            match measured.iter().find(|(measured, _)| measured == number) {
                Some((_, false)) => return Err(FigureError::NotMeasured { number: *number }),
                None if !FROM_MODEL.contains(number) => {
                    return Err(FigureError::Unknown { number: *number });
                }
                _ => {}
            }
        }
        Ok(numbers)
    }

    /// Draws a figure and writes it into an existing folder, as `figure-N.svg` and `figure-N.csv`.
    ///
    /// # Errors
    /// When the figure is unknown or its measurement missing or unusable, a quantity is out of the model's
    /// range, or a file cannot be written.
    pub fn write(&self, number: u32, folder: &Path) -> Result<WrittenFigure, FigureError> {
        let svg = folder.join(format!("figure-{number}.svg"));
        let csv = folder.join(format!("figure-{number}.csv"));
        let figure = self.draw(number, &svg)?;
        std::fs::write(&csv, &figure.csv.text)
            .map_err(|source| FigureError::Write { path: csv.clone(), source })?;
        Ok(WrittenFigure {
            figure: figure.number,
            svg: svg.display().to_string(),
            csv: csv.display().to_string(),
            headlines: figure.headlines,
        })
    }

    fn draw(&self, number: u32, svg: &Path) -> Result<Figure, FigureError> {
        let setup = &Setup::new(self.chunk_bytes, self.loss_per)?;
        match number {
            DROPS_FIGURE => drops::figure_2(&self.drops, svg),
            ENCODING_FIGURE => encoding::figure_11(self.encoding.as_deref(), svg),
            3 => lines::figure_3(setup, svg),
            9 => grid::figure_9(setup, svg),
            10 => lines::figure_10(setup, svg),
            12 => distance::figure_12(setup, svg),
            13 => {
                let trials = allreduce::Trials { fixed: self.trials, seed: self.seed };
                allreduce::figure_13(setup, svg, trials)
            }
            15 => packets::figure_15(svg),
            number => Err(FigureError::Unknown { number }),
        }
    }
}
