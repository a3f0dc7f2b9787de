//! Line charts and heat maps of the planner's numbers, several to a drawing, as SVG.
//!
//! Conventions: a chart's legend stands below it and never covers a line; lines differ in dashes and
//! markers as well as in colour, and a key has the same style in all charts of a drawing
//! (`style`); axes of ratios begin at 1, and axes of counts have integer ticks (`axis`); an
//! interval is a bar with ends.

mod axis;
mod heat;
mod style;

pub use axis::{Axis, plain, power, size};
pub(crate) use heat::{HeatMap, write_heat_maps};

use crate::error::ChartError;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;
use style::{Canvas, SAMPLE_WIDTH, Styles};

/// A chart's width, and its height without the legend.
const CHART_SIZE: (u32, u32) = (580, 390);
/// Height of a line of text above or below.
pub(crate) const LINE_HEIGHT: u32 = 20;
/// Height of a row of a legend, and where its first entry begins.
const LEGEND_HEIGHT: u32 = 19;
const LEGEND_LEFT: i32 = 70;
/// Colour of marks.
const MARK_COLOR: RGBColor = RGBColor(90, 90, 90);

/// Several charts under one title, with lines of text below.
#[derive(Debug)]
pub struct Drawing {
    /// Above the charts.
    pub title: String,
    /// The charts, two side by side.
    pub charts: Vec<Chart>,
    /// Whether all charts have one vertical axis, so that they can be compared.
    pub is_common_y: bool,
    /// Below the charts.
    pub notes: Vec<String>,
}

/// One chart.
#[derive(Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Its lines.
    pub series: Vec<Series>,
    /// What is pointed out.
    pub marks: Vec<Mark>,
}

/// A line.
#[derive(Debug, Clone)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Decides the style: the name, unless another line shares its style.
    key: String,
    is_second: bool,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// One per point, if there are any.
    intervals: Vec<(f64, f64)>,
}

impl Series {
    /// A line in a style of its own.
    #[must_use]
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        let name = name.into();
        Self { key: name.clone(), name, is_second: false, points, intervals: Vec::new() }
    }

    /// The first line of a key: the one that is drawn boldly.
    #[must_use]
    pub fn of(self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self }
    }

    /// The second line of a key: thin, with hollow markers.
    #[must_use]
    pub fn second_of(self, key: &str) -> Self {
        Self { key: key.to_owned(), is_second: true, ..self }
    }

    /// An interval around each point.
    #[must_use]
    pub fn within(self, intervals: Vec<(f64, f64)>) -> Self {
        Self { intervals, ..self }
    }
}

/// A place that is pointed out. Marks of one name are one entry of the legend.
#[derive(Debug, Clone)]
pub enum Mark {
    /// A value of the horizontal axis.
    Vertical {
        /// The value.
        x: f64,
        /// In the legend.
        name: String,
    },
    /// A point.
    Ring {
        /// Its horizontal value.
        x: f64,
        /// Its vertical value.
        y: f64,
        /// In the legend.
        name: String,
    },
}

impl Mark {
    fn name(&self) -> &str {
        match self {
            Self::Vertical { name, .. } | Self::Ring { name, .. } => name,
        }
    }
}

impl Drawing {
    /// Writes an SVG.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ChartError> {
        self.draw(path)
            .map_err(|error| ChartError { path: path.to_owned(), reason: error.to_string() })
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let columns = if self.charts.len() > 1 { 2 } else { 1 };
        let width = CHART_SIZE.0 * columns as u32;
        let title = wrapped(&self.title, width);
        let notes: Vec<String> = self.notes.iter().flat_map(|note| wrapped(note, width)).collect();
        let head = LINE_HEIGHT * title.len() as u32 + 12;
        let foot = LINE_HEIGHT * notes.len() as u32 + 8;
        // Charts side by side get equal room for their legends.
        let heights: Vec<u32> = self
            .charts
            .chunks(columns)
            .map(|row| {
                let rows = row.iter().map(|chart| chart.legend().len() as u32).max().unwrap_or(0);
                CHART_SIZE.1 + rows * LEGEND_HEIGHT
            })
            .collect();
        let all = heights.iter().sum::<u32>();
        let area = SVGBackend::new(path, (width, head + all + foot)).into_drawing_area();
        area.fill(&WHITE)?;
        let (head_area, mut rest) = area.split_vertically(head);
        write_lines(&head_area, &title)?;
        let keys = self.charts.iter().flat_map(|chart| &chart.series);
        let styles = Styles::new(keys.map(|series| series.key.as_str()));
        for (row, height) in self.charts.chunks(columns).zip(heights) {
            let (row_area, below) = rest.split_vertically(height);
            for (chart, area) in row.iter().zip(row_area.split_evenly((1, columns))) {
                let ys = match self.is_common_y {
                    true => self.charts.iter().flat_map(Chart::heights).collect(),
                    false => chart.heights().collect::<Vec<_>>(),
                };
                chart.draw(&area, height, &ys, &styles)?;
            }
            rest = below;
        }
        write_lines(&rest, &notes)?;
        area.present()?;
        Ok(())
    }
}

/// Writes lines of text, one below the other.
pub(crate) fn write_lines(area: &Canvas<'_>, lines: &[String]) -> Result<(), Box<dyn Error>> {
    for (i, line) in lines.iter().enumerate() {
        let at = (14, 8 + LINE_HEIGHT as i32 * i as i32);
        area.draw(&Text::new(line.clone(), at, ("sans-serif", 14).into_font()))?;
    }
    Ok(())
}

/// An entry of a legend.
#[derive(Debug, Clone, Copy)]
enum Entry<'c> {
    Line(&'c Series),
    Mark(&'c Mark),
}

impl Entry<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Line(series) => &series.name,
            Self::Mark(mark) => mark.name(),
        }
    }

    fn width(&self) -> i32 {
        SAMPLE_WIDTH + 26 + (self.name().chars().count() as f64 * 6.6) as i32
    }
}

impl Chart {
    /// Values of the vertical axis.
    fn heights(&self) -> impl Iterator<Item = f64> + '_ {
        let of = |series: &'_ Series| {
            // An infinite interval reaches to the end of the axis.
            let ends = series.intervals.iter().flat_map(|(low, high)| [*low, *high]);
            let ends = ends.filter(|end| end.is_finite());
            series.points.iter().map(|point| point.1).chain(ends).collect::<Vec<_>>()
        };
        self.series.iter().flat_map(of)
    }

    /// The legend's rows.
    fn legend(&self) -> Vec<Vec<Entry<'_>>> {
        let mut marks: Vec<&Mark> = Vec::new();
        for mark in &self.marks {
            if !marks.iter().any(|known| known.name() == mark.name()) {
                marks.push(mark);
            }
        }
        let lines = self.series.iter().map(Entry::Line);
        let mut rows: Vec<Vec<Entry<'_>>> = Vec::new();
        let mut left = 0;
        for entry in lines.chain(marks.into_iter().map(Entry::Mark)) {
            match rows.last_mut() {
                Some(row) if entry.width() <= left => row.push(entry),
                _ => {
                    left = CHART_SIZE.0 as i32 - LEGEND_LEFT;
                    rows.push(vec![entry]);
                }
            }
            left -= entry.width();
        }
        rows
    }

    fn draw(
        &self,
        area: &Canvas<'_>,
        height: u32,
        ys: &[f64],
        styles: &Styles,
    ) -> Result<(), Box<dyn Error>> {
        let legend = self.legend();
        let (plot, foot) = area.split_vertically(CHART_SIZE.1.min(height));
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = self.x.scale(points().map(|point| point.0));
        let y = self.y.scale(ys.iter().copied());
        let (xs, ys) = (x.range.clone(), y.range.clone());
        let ticks = (x.ticks.len(), y.ticks.len());
        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, ("sans-serif", 15))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(&self.x.description)
            .y_desc(&self.y.description)
            .x_labels(ticks.0)
            .y_labels(ticks.1)
            .x_label_formatter(&|place| self.x.text(*place))
            .y_label_formatter(&|place| self.y.text(*place))
            .draw()?;
        let inside = chart.plotting_area();
        let canvas = inside.strip_coord_spec();
        let (left, top) = (inside.get_pixel_range().0.start, inside.get_pixel_range().1.start);
        let pixel = |(x, y): (f64, f64)| {
            let place =
                (self.x.place(x).clamp(xs.start, xs.end), self.y.place(y).clamp(ys.start, ys.end));
            let (x, y) = inside.map_coordinate(&place);
            (x - left, y - top)
        };
        let bottom = inside.dim_in_pixel().1 as i32;
        for mark in &self.marks {
            if let Mark::Vertical { x, .. } = mark {
                let at = pixel((*x, 0.0)).0;
                draw_vertical(&canvas, at, 0, bottom)?;
            }
        }
        for series in &self.series {
            let style = styles.of(&series.key, series.is_second);
            for ((x, _), (low, high)) in series.points.iter().zip(&series.intervals) {
                style.draw_interval(&canvas, pixel((*x, *low)), pixel((*x, *high)))?;
            }
            let line: Vec<(i32, i32)> = series.points.iter().map(|point| pixel(*point)).collect();
            style.draw(&canvas, &line)?;
        }
        for mark in &self.marks {
            if let Mark::Ring { x, y, .. } = mark {
                canvas.draw(&Circle::new(pixel((*x, *y)), 8, MARK_COLOR.stroke_width(2)))?;
            }
        }
        for (row, entries) in legend.iter().enumerate() {
            let y = LEGEND_HEIGHT as i32 * row as i32 + 6;
            let mut x = LEGEND_LEFT;
            for entry in entries {
                draw_entry(&foot, *entry, (x, y), styles)?;
                x += entry.width();
            }
        }
        Ok(())
    }
}

/// A sample and its name.
fn draw_entry(
    foot: &Canvas<'_>,
    entry: Entry<'_>,
    (x, y): (i32, i32),
    styles: &Styles,
) -> Result<(), Box<dyn Error>> {
    match entry {
        Entry::Line(series) => {
            styles.of(&series.key, series.is_second).draw_sample(foot, (x, y))?;
        }
        Entry::Mark(Mark::Vertical { .. }) => {
            draw_vertical(foot, x + SAMPLE_WIDTH / 2, y - 8, y + 8)?;
        }
        Entry::Mark(Mark::Ring { .. }) => {
            let ring = Circle::new((x + SAMPLE_WIDTH / 2, y), 7, MARK_COLOR.stroke_width(2));
            foot.draw(&ring)?;
        }
    }
    let font = ("sans-serif", 12).into_font();
    foot.draw(&Text::new(entry.name().to_owned(), (x + SAMPLE_WIDTH + 8, y - 6), font))?;
    Ok(())
}

fn draw_vertical(canvas: &Canvas<'_>, x: i32, top: i32, bottom: i32) -> Result<(), Box<dyn Error>> {
    for y in (top..bottom).step_by(5) {
        let dot = [(x, y), (x, (y + 2).min(bottom))];
        canvas.draw(&PathElement::new(dot, MARK_COLOR.stroke_width(1)))?;
    }
    Ok(())
}

/// Lines of a text that fit this width, at about 7 pixels a character.
pub(crate) fn wrapped(text: &str, width: u32) -> Vec<String> {
    text.lines().flat_map(|line| wrapped_line(line, width)).collect()
}

fn wrapped_line(text: &str, width: u32) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(names: &[&str]) -> Chart {
        let series = names.iter().zip(1..).map(|(name, slope)| {
            let points = (0..50).map(|x| (f64::from(x), f64::from(x * slope)));
            Series::new(*name, points.collect())
        });
        Chart {
            title: "a chart".to_owned(),
            x: Axis::linear("x"),
            y: Axis::linear("y"),
            series: series.collect(),
            marks: vec![Mark::Vertical { x: 7.0, name: "a place".to_owned() }],
        }
    }

    fn svg(charts: Vec<Chart>, is_common_y: bool) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drawing.svg");
        let drawing =
            Drawing { title: "a drawing".to_owned(), charts, is_common_y, notes: Vec::new() };
        drawing.write(&path).expect("drawn");
        std::fs::read_to_string(&path).expect("written")
    }

    /// Heights of the texts that are this one.
    fn heights(svg: &str, text: &str) -> Vec<u32> {
        let elements = svg.split("<text ").skip(1);
        let elements = elements.filter(|element| {
            element
                .split('>')
                .nth(1)
                .is_some_and(|rest| rest.split('<').next().map(str::trim) == Some(text))
        });
        let height = |element: &str| element.split(" y=\"").nth(1)?.split('"').next()?.parse().ok();
        elements.filter_map(height).collect()
    }

    #[test]
    fn a_legend_stands_below_its_chart() {
        let names =
            ["SR RTO", "EC MDS 32+8", "a line with a rather long name", "another one", "one more"];
        let svg = svg(vec![chart(&names)], false);
        let axis = heights(&svg, "x")[0];
        for name in names.iter().chain(&["a place"]) {
            let heights = heights(&svg, name);
            assert_eq!(heights.len(), 1, "{name}");
            assert!(heights[0] > axis, "{name}: {heights:?}, axis {axis}");
        }
    }

    #[test]
    fn charts_have_one_vertical_axis_if_they_are_to_be_compared() {
        let steep: Vec<&str> = vec!["a", "b", "c", "d"];
        let count =
            |is_common| heights(&svg(vec![chart(&["a"]), chart(&steep)], is_common), "160").len();
        assert_eq!((count(false), count(true)), (1, 2));
    }

    #[test]
    fn an_interval_without_an_end_reaches_to_that_of_the_axis() {
        let series = Series::new("a", vec![(1.0, 2.0), (2.0, 3.0)]);
        let series = series.within(vec![(1.5, f64::INFINITY), (2.5, 3.5)]);
        let svg = svg(vec![Chart { series: vec![series], ..chart(&[]) }], false);
        assert!(svg.starts_with("<svg") && !svg.contains("inf"));
    }
}
