//! The demo's results as a picture: each run's completion time, per mode, and
//! the ideal; above it what was sent over which path, and what the marks mean.

use super::path::Ways;
use super::result::ModeResult;
use crate::units::show_bytes;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

const SIZE: (u32, u32) = (760, 460);
/// Height of title, subtitle and legend.
const HEAD: u32 = 84;
/// Colour of the legend's marks, which no mode has.
const NEUTRAL: RGBColor = RGBColor(90, 90, 90);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes an SVG.
pub(super) fn write(
    path: &Path,
    results: &[ModeResult],
    ways: &Ways,
) -> Result<(), Box<dyn Error>> {
    let Some(first) = results.first() else { return Ok(()) };
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(HEAD);
    draw_head(&head, first, ways)?;
    draw_times(&body, results, first.ideal_ms)?;
    area.present()?;
    Ok(())
}

/// Title, parameters, and what the marks mean.
fn draw_head(head: &Area<'_>, first: &ModeResult, ways: &Ways) -> Result<(), Box<dyn Error>> {
    let (title, small) = (("sans-serif", 18).into_font(), ("sans-serif", 12).into_font());
    let text = format!("Completion of one {} message", show_bytes(first.size_bytes));
    head.draw(&Text::new(text, (16, 12), title))?;
    let found = if first.find_rate { ", rate found by probing" } else { "" };
    let parameters = format!(
        "{ways}, queue {}; chunk {}, packets of {} B, seed {}{found}",
        show_bytes(ways.queue_bytes()),
        show_bytes(first.chunk_bytes),
        first.mtu_bytes,
        first.seed,
    );
    head.draw(&Text::new(parameters, (16, 37), small.clone()))?;
    let (marks_y, text_y) = (66, 60);
    head.draw(&Circle::new((22, marks_y), 4, NEUTRAL.filled()))?;
    head.draw(&Text::new("one run", (32, text_y), small.clone()))?;
    let mean = [(100, marks_y), (124, marks_y)];
    head.draw(&PathElement::new(mean, NEUTRAL.stroke_width(2)))?;
    head.draw(&Text::new("mean", (130, text_y), small.clone()))?;
    for dash in 0..3 {
        let start = 184 + dash * 10;
        let ideal = [(start, marks_y), (start + 6, marks_y)];
        head.draw(&PathElement::new(ideal, BLACK.stroke_width(1)))?;
    }
    let ideal = format!("ideal, size / rate + RTT: {:.1} ms", first.ideal_ms);
    head.draw(&Text::new(ideal, (218, text_y), small))?;
    Ok(())
}

fn draw_times(
    body: &Area<'_>,
    results: &[ModeResult],
    ideal_ms: f64,
) -> Result<(), Box<dyn Error>> {
    let slowest = results.iter().map(|result| result.completion_ms.max).fold(ideal_ms, f64::max);
    let end = results.len() as f64 - 0.5;
    let mut chart = ChartBuilder::on(body)
        .margin(14)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..end, 0.0..slowest * 1.12)?;
    let name = |x: &f64| {
        let nearest = x.round();
        let is_mode = (x - nearest).abs() < 0.01 && nearest >= 0.0;
        let result = results.get(nearest as usize).filter(|_| is_mode);
        result.map_or_else(String::new, |result| result.mode.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(results.len() * 2 + 1)
        .x_label_formatter(&name)
        .y_desc("ms")
        .draw()?;
    let line = [(-0.5, ideal_ms), (end, ideal_ms)];
    chart.draw_series(DashedLineSeries::new(line, 6, 4, BLACK.stroke_width(1)))?;
    for (index, result) in results.iter().enumerate() {
        let color = Palette99::pick(index).mix(0.9);
        let count = result.times_ms.len().max(2) as f64 - 1.0;
        let at = index as f64;
        let spread = |run: usize| at + (run as f64 / count - 0.5) * 0.5;
        let runs = result.times_ms.iter().enumerate();
        chart.draw_series(
            runs.map(|(run, time)| Circle::new((spread(run), *time), 4, color.filled())),
        )?;
        let mean = result.completion_ms.mean;
        let bar = [(at - 0.32, mean), (at + 0.32, mean)];
        chart.draw_series(std::iter::once(PathElement::new(bar, color.stroke_width(2))))?;
    }
    Ok(())
}
