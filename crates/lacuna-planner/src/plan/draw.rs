//! A recommendation as a chart: the best mode of each kind, over message sizes around those asked for.

use super::Recommendation;
use crate::chart::{Axis, Chart, Drawing, Mark, Series, size};
use crate::error::PlanChartError;
use lacuna_model::plan::{Expected, Question, Scheme};
use lacuna_units::show_bytes;
use std::path::Path;

/// Sizes beyond those asked for on each side, in steps of half a factor of two.
const PLOT_STEPS: i32 = 20;

impl Recommendation {
    /// Draws the best mode of each kind over message sizes, as SVG.
    ///
    /// # Errors
    /// When a size around those asked for is out of the model's range, or the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<(), PlanChartError> {
        let (question, plan) = (&self.question, &self.plan);
        let name = self.objective_name();
        let (least, most) = question
            .sizes_bytes
            .iter()
            .fold((u64::MAX, 1), |(least, most), size| (least.min(*size), most.max(*size)));
        let between = (2.0 * (most as f64 / least as f64).log2()).ceil() as i32;
        let mut series = Vec::new();
        for expected in self.best_of_each_kind() {
            let mut points = Vec::new();
            for step in -PLOT_STEPS..=between + PLOT_STEPS {
                let size = (least as f64 * (f64::from(step) / 2.0).exp2()).round().max(1.0);
                let moved = Question { sizes_bytes: vec![size as u64], ..question.clone() };
                let there = expected.candidate.expected(&moved)?;
                points.push((size, there.of(moved.objective) / moved.ideal_s()?));
            }
            let scheme = expected.candidate.scheme.to_string();
            let name = match expected.candidate.scheme {
                Scheme::Auto(_) => "auto, the default".to_owned(),
                _ => format!("{scheme}, chunks of {}", show_bytes(expected.chunk_bytes)),
            };
            series.push(Series::new(name, points).of(&scheme));
        }
        let sizes = question.sizes_bytes.iter().map(|size| show_bytes(*size));
        let asked = format!("asked for: {}", sizes.collect::<Vec<_>>().join(", "));
        let mark = |size: &u64| Mark::Vertical { x: *size as f64, name: asked.clone() };
        let chart = Chart {
            title: format!("{name} over the ideal time"),
            x: Axis::doubling("message size", size),
            y: Axis::ratio("x ideal"),
            series,
            marks: question.sizes_bytes.iter().map(mark).collect(),
        };
        let choice = self.take().join("; ");
        let title = format!("Path: {}\nChoice: {choice}", self.describe_path());
        let notes = vec![format!(
            "Why {} of the fixed modes: {}",
            plan.fixed_choice().candidate.scheme,
            plan.reason
        )];
        Drawing { title, charts: vec![chart], is_common_y: false, notes }.write(path)?;
        Ok(())
    }

    fn best_of_each_kind(&self) -> Vec<&Expected> {
        let plan = &self.plan;
        let mut best: Vec<&Expected> = Vec::new();
        for expected in [plan.choice(), plan.fixed_choice()].into_iter().chain(&plan.candidates) {
            let kind = |expected: &Expected| expected.candidate.effort().0;
            let name = |expected: &Expected| expected.candidate.scheme.to_string();
            let is_kind = |known: &&Expected| {
                kind(known) == kind(expected)
                    && (expected.candidate.scheme.is_coded() || name(known) == name(expected))
            };
            if !best.iter().any(is_kind) {
                best.push(expected);
            }
        }
        best
    }
}
