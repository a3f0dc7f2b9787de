//! The demo's results as a picture: each run's completion time, per mode, and
//! the ideal.

use super::ModeResult;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

const SIZE: (u32, u32) = (760, 420);

/// Writes an SVG.
pub(super) fn write(path: &Path, results: &[ModeResult]) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let ideal = results.first().map_or(1.0, |result| result.ideal_ms);
    let slowest = results.iter().map(|result| result.completion_ms.max).fold(ideal, f64::max);
    let size = crate::units::show_bytes(results.first().map_or(0, |result| result.size_bytes));
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("Completion of one {size} message"), ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..results.len() as f64 - 0.5, 0.0..slowest * 1.12)?;
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
    chart.draw_series(DashedLineSeries::new(
        [(-0.5, ideal), (results.len() as f64 - 0.5, ideal)],
        6,
        4,
        BLACK.stroke_width(1),
    ))?;
    let label = format!("ideal {ideal:.0} ms");
    let style = ("sans-serif", 13).into_font();
    chart.draw_series(std::iter::once(Text::new(label, (-0.48, ideal * 0.96), style)))?;
    for (index, result) in results.iter().enumerate() {
        let color = Palette99::pick(index).mix(0.9);
        let count = result.times_ms.len().max(2) as f64 - 1.0;
        let spread = |run: usize| index as f64 + (run as f64 / count - 0.5) * 0.5;
        chart.draw_series(
            result
                .times_ms
                .iter()
                .enumerate()
                .map(|(run, time)| Circle::new((spread(run), *time), 4, color.filled())),
        )?;
        let mean = result.completion_ms.mean;
        let at = index as f64;
        chart.draw_series(std::iter::once(PathElement::new(
            [(at - 0.32, mean), (at + 0.32, mean)],
            color.stroke_width(2),
        )))?;
    }
    area.present()?;
    Ok(())
}
