//! Line charts and heat maps of the planner's numbers, several to a drawing, as SVG.
//!
//! Logarithmic axes are linear ones of the exponent, with ticks at powers that suit the range.

use crate::failure::Failure;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use std::error::Error;
use std::ops::Range;
use std::path::Path;

/// A chart's width and height, and the height of a line of text above or below.
const CHART_SIZE: (u32, u32) = (560, 400);
pub(super) const LINE_HEIGHT: u32 = 20;

/// Most ticks of an axis.
const TICKS_MAX: f64 = 9.0;

/// Several charts under one title, with lines of text below.
#[derive(Debug)]
pub(super) struct Drawing {
    pub(super) title: String,
    pub(super) charts: Vec<Chart>,
    pub(super) notes: Vec<String>,
}

/// One chart.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Where the lines leave room.
    pub(super) legend: Legend,
}

/// A corner at the top.
#[derive(Debug, Clone, Copy)]
pub(super) enum Legend {
    Left,
    Right,
}

/// A line.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// An axis.
#[derive(Debug)]
pub(super) struct Axis {
    description: String,
    is_log: bool,
    label: fn(f64) -> String,
}

impl Axis {
    pub(super) fn linear(description: &str) -> Self {
        Self { description: description.to_owned(), is_log: false, label: plain }
    }

    pub(super) fn log(description: &str, label: fn(f64) -> String) -> Self {
        Self { description: description.to_owned(), is_log: true, label }
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_log { value.max(f64::MIN_POSITIVE).log2() } else { value }
    }

    fn text(&self, place: f64) -> String {
        (self.label)(if self.is_log { place.exp2() } else { place })
    }

    /// The range of these values, with some room, and where the ticks are.
    fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let places: Vec<f64> = values.map(|value| self.place(value)).collect();
        let low = places.iter().copied().fold(f64::INFINITY, f64::min);
        let high = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return Scale { range: 0.0..1.0, ticks: vec![] };
        }
        if !self.is_log {
            let (low, high) = (low.min(0.0), if high > low.min(0.0) { high * 1.08 } else { 1.0 });
            let rough = (high - low) / TICKS_MAX;
            let decade = 10f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade);
            let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
            let count = ((high - low) / step) as i32;
            let ticks = (0..=count).map(|i| low + f64::from(i) * step).collect();
            return Scale { range: low..high, ticks };
        }
        let room = ((high - low) * 0.02).max(0.05);
        // Powers of ten where a label is a plain number, of two (and so of 1024) for bytes.
        let unit = if (self.label)(1024.0).contains("KiB") { 1.0 } else { 10f64.log2() };
        let count = (high - low) / unit;
        let stride = (count / TICKS_MAX).ceil().max(1.0) * unit;
        let first = (low / stride - 1e-9).ceil() as i32;
        let last = (high / stride + 1e-9).floor() as i32;
        let ticks = (first..=last).map(|i| f64::from(i) * stride).collect();
        Scale { range: low - room..high + room, ticks }
    }
}

/// An axis as the plotting library asks for it: a range with ticks of our choice.
#[derive(Clone)]
struct Scale {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// A number for an axis.
pub(super) fn plain(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A power of ten for an axis.
pub(super) fn power(value: f64) -> String {
    format!("{value:.0e}")
}

impl Drawing {
    /// Writes an SVG.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        self.draw(path)
            .map_err(|error| Failure::Local(format!("cannot write {}: {error}", path.display())))
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let columns = if self.charts.len() > 1 { 2 } else { 1 };
        let rows = self.charts.len().div_ceil(columns).max(1);
        let width = CHART_SIZE.0 * columns as u32;
        let title = wrapped(&self.title, width);
        let notes: Vec<String> = self.notes.iter().flat_map(|note| wrapped(note, width)).collect();
        let head = LINE_HEIGHT * title.len() as u32 + 12;
        let foot = LINE_HEIGHT * notes.len() as u32 + 8;
        let size = (width, head + CHART_SIZE.1 * rows as u32 + foot);
        let area = SVGBackend::new(path, size).into_drawing_area();
        area.fill(&WHITE)?;
        let (head_area, rest) = area.split_vertically(head);
        let (middle, foot_area) = rest.split_vertically(CHART_SIZE.1 * rows as u32);
        for (area, lines) in [(&head_area, &title), (&foot_area, &notes)] {
            for (i, line) in lines.iter().enumerate() {
                let at = (14, 8 + LINE_HEIGHT as i32 * i as i32);
                area.draw(&Text::new(line.clone(), at, ("sans-serif", 14).into_font()))?;
            }
        }
        for (chart, area) in self.charts.iter().zip(middle.split_evenly((rows, columns))) {
            chart.draw(&area)?;
        }
        area.present()?;
        Ok(())
    }
}

impl Chart {
    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = self.x.scale(points().map(|point| point.0));
        let y = self.y.scale(points().map(|point| point.1));
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 15))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(&self.x.description)
            .y_desc(&self.y.description)
            .x_label_formatter(&|place| self.x.text(*place))
            .y_label_formatter(&|place| self.y.text(*place))
            .draw()?;
        for (index, series) in self.series.iter().enumerate() {
            let color = Palette99::pick(index).mix(0.9);
            let line = series.points.iter().map(|(x, y)| (self.x.place(*x), self.y.place(*y)));
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(2)))?
                .label(&series.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2))
                });
        }
        if self.series.len() > 1 {
            chart
                .configure_series_labels()
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .position(match self.legend {
                    Legend::Left => SeriesLabelPosition::UpperLeft,
                    Legend::Right => SeriesLabelPosition::UpperRight,
                })
                .draw()?;
        }
        Ok(())
    }
}

/// A table of values over two logarithmic axes.
#[derive(Debug)]
pub(super) struct HeatMap {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// Ascending.
    pub(super) columns: Vec<f64>,
    /// Ascending.
    pub(super) rows: Vec<f64>,
    /// By row, then column. 1 is white, more is red, less is blue.
    pub(super) values: Vec<Vec<f64>>,
}

/// Draws heat maps one below the other, with lines of text below.
pub(super) fn write_heat_maps(
    path: &Path,
    title: &str,
    maps: &[HeatMap],
    notes: &[String],
) -> Result<(), Failure> {
    draw_heat_maps(path, title, maps, notes)
        .map_err(|error| Failure::Local(format!("cannot write {}: {error}", path.display())))
}

/// Width of a heat map's cell and height of its row.
const CELL_SIZE: (u32, u32) = (38, 22);
/// Room for the labels of rows and columns.
const LABEL_SIZE: (u32, u32) = (84, 70);

fn draw_heat_maps(
    path: &Path,
    title: &str,
    maps: &[HeatMap],
    notes: &[String],
) -> Result<(), Box<dyn Error>> {
    let columns = maps.iter().map(|map| map.columns.len()).max().unwrap_or(1) as u32;
    let rows = maps.iter().map(|map| map.rows.len()).max().unwrap_or(1) as u32;
    let width = LABEL_SIZE.0 + CELL_SIZE.0 * columns + 20;
    let map_height = LABEL_SIZE.1 + CELL_SIZE.1 * rows;
    let notes: Vec<String> = notes.iter().flat_map(|note| wrapped(note, width)).collect();
    let height = 36 + map_height * maps.len() as u32 + LINE_HEIGHT * notes.len() as u32 + 12;
    let area = SVGBackend::new(path, (width, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let font = |size: u32| ("sans-serif", size).into_font();
    area.draw(&Text::new(title.to_owned(), (14, 10), font(15)))?;
    for (index, map) in maps.iter().enumerate() {
        let top = 36 + map_height as i32 * index as i32;
        area.draw(&Text::new(map.title.clone(), (14, top), font(14)))?;
        let left = LABEL_SIZE.0 as i32;
        // The largest row on top, as the paper has it.
        for (i, values) in map.values.iter().rev().enumerate() {
            let y = top + 24 + CELL_SIZE.1 as i32 * i as i32;
            let label = map.y.text(map.y.place(map.rows[map.rows.len() - 1 - i]));
            area.draw(&Text::new(label, (14, y + 5), font(11)))?;
            for (j, value) in values.iter().enumerate() {
                let x = left + CELL_SIZE.0 as i32 * j as i32;
                let corner = (x + CELL_SIZE.0 as i32 - 1, y + CELL_SIZE.1 as i32 - 1);
                area.draw(&Rectangle::new([(x, y), corner], heat(*value).filled()))?;
                area.draw(&Text::new(format!("{value:.2}"), (x + 6, y + 6), font(10)))?;
            }
        }
        let y = top + 28 + CELL_SIZE.1 as i32 * map.rows.len() as i32;
        for (j, column) in map.columns.iter().enumerate().step_by(4) {
            let x = left + CELL_SIZE.0 as i32 * j as i32;
            area.draw(&Text::new(map.x.text(map.x.place(*column)), (x + 4, y), font(11)))?;
        }
        let descriptions = format!("{} over {}", map.y.description, map.x.description);
        area.draw(&Text::new(descriptions, (left, y + 16), font(11)))?;
    }
    for (i, note) in notes.iter().enumerate() {
        let y = 36 + map_height as i32 * maps.len() as i32 + LINE_HEIGHT as i32 * i as i32;
        area.draw(&Text::new(note.clone(), (14, y), font(14)))?;
    }
    area.present()?;
    Ok(())
}

/// White at 1; red towards 12, blue towards 0.8.
fn heat(value: f64) -> RGBColor {
    let strength = |share: f64| 255 - (share.clamp(0.0, 1.0) * 170.0) as u8;
    if value >= 1.0 {
        let cold = strength(value.log2() / 3.6);
        RGBColor(255, cold, cold)
    } else {
        let cold = strength((1.0 - value) / 0.2);
        RGBColor(cold, cold, 255)
    }
}

/// Lines of a text that fit this width, at about 7 pixels a character.
pub(super) fn wrapped(text: &str, width: u32) -> Vec<String> {
    let room = (width.saturating_sub(28) / 7).max(20) as usize;
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > room {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}
