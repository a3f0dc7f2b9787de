//! The results as a picture, after SDR-RDMA figure 11: throughput against
//! threads, a panel per operation, a line per code and engine.

use super::{Op, Row};
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// Of one panel.
const SIZE: (u32, u32) = (430, 400);

/// 400 Gbit/s, the paper's link, in GB/s.
const LINK_GBYTE_PER_S: f64 = 50.0;

/// Writes an SVG.
pub(super) fn write(path: &Path, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let ops: Vec<Op> = Op::ALL.into_iter().filter(|op| rows.iter().any(|r| r.op == *op)).collect();
    let width = SIZE.0 * ops.len().max(1) as u32;
    let area = SVGBackend::new(path, (width, SIZE.1)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let line = (row.code.name(), row.engine.as_str());
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let threads_max = rows.iter().map(|row| row.threads).max().unwrap_or(1) as f64;
    let fastest = rows.iter().map(|row| row.gbyte_per_s).fold(1.0, f64::max);
    for (op, panel) in ops.iter().zip(area.split_evenly((1, ops.len().max(1)))) {
        let lost = rows.iter().find(|row| row.op == *op).map_or(0, |row| row.lost);
        let caption = match lost {
            0 => op.name().to_owned(),
            lost => format!("{} of {lost} lost chunks", op.name()),
        };
        let mut chart = ChartBuilder::on(&panel)
            .caption(caption, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..threads_max + 0.5, 0.0..fastest * 1.1)?;
        chart
            .configure_mesh()
            .x_desc("threads")
            .y_desc("GB/s of data")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .x_labels(threads_max.min(12.0) as usize + 1)
            .draw()?;
        if LINK_GBYTE_PER_S < fastest * 1.1 {
            let link = [(0.0, LINK_GBYTE_PER_S), (threads_max + 0.5, LINK_GBYTE_PER_S)];
            chart.draw_series(DashedLineSeries::new(link, 6, 4, BLACK.stroke_width(1)))?;
            let below = (threads_max * 0.75, LINK_GBYTE_PER_S - fastest * 0.01);
            let style = ("sans-serif", 13).into_font();
            chart.draw_series(std::iter::once(Text::new("400 Gbit/s", below, style)))?;
        }
        for (index, (code, engine)) in lines.iter().enumerate() {
            let mut points: Vec<(f64, f64)> = rows
                .iter()
                .filter(|row| row.op == *op && (row.code.name(), &*row.engine) == (*code, *engine))
                .map(|row| (row.threads as f64, row.gbyte_per_s))
                .collect();
            if points.is_empty() {
                continue;
            }
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let color = Palette99::pick(index).mix(0.9);
            let label =
                if code == engine { (*code).to_owned() } else { format!("{code} {engine}") };
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                .label(label)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2))
                });
            chart.draw_series(points.into_iter().map(|at| Circle::new(at, 3, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .draw()?;
    }
    area.present()?;
    Ok(())
}
