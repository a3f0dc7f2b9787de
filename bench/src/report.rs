//! What a run found, as a table for people, JSON for programs and a picture.

use crate::cell::{Kind, Suite};
use crate::run::{CellResults, Results, spread};
use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use std::fmt::Write as _;
use std::path::Path;

/// The table: medians and ranges, then each goal with its ratio.
pub(crate) fn table(results: &Results, suite: &Suite) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    for found in &results.cells {
        let cell = &found.cell;
        line(format!("{}: {} ({})", cell.name, cell.about, cell.kind.unit()));
        for name in &cell.contestants {
            line(format!("  {name:<16} {}", row(found, name)));
        }
    }
    line(String::new());
    line("goals: ratio in one run, median over the rounds [least-most]".to_owned());
    for goal in &suite.goals {
        let Some(ratio) = spread(results.ratios(goal)) else { continue };
        let against = goal.against.join(" or ");
        let place = match &goal.against_cell {
            Some(other) => format!("{} against {other}", goal.cell),
            None => goal.cell.clone(),
        };
        line(format!(
            "  {} {} / {against} ({place}): {:.2} [{:.2}-{:.2}], wanted {:.2}",
            if ratio.median >= goal.at_least { "holds " } else { "misses" },
            goal.ours,
            ratio.median,
            ratio.least,
            ratio.most,
            goal.at_least,
        ));
    }
    text
}

fn row(found: &CellResults, name: &str) -> String {
    if let Some(why) = found.skipped.get(name) {
        return format!("skipped: {why}");
    }
    let Some(spread) = found.spread(name) else { return "no result".to_owned() };
    let samples = || found.samples[name].iter().flatten();
    let mut text = format!("{:>8.2} [{:.2}-{:.2}]", spread.median, spread.least, spread.most);
    let cpu: Vec<f64> = samples().filter_map(|sample| sample.cpu_s_per_gbyte).collect();
    if let Some(cpu) = crate::run::spread(cpu) {
        let _ = write!(text, "  {:.3} CPU-s/GB", cpu.median);
    }
    let lost: u64 = samples().filter_map(|sample| sample.lost).sum();
    let again: u64 = samples().filter_map(|sample| sample.retransmitted).sum();
    if lost + again > 0 {
        let _ = write!(text, "  lost {lost}, sent again {again} packets in all rounds");
    }
    text
}

/// A picture: a bar to the median and a line from least to most for each
/// contestant of each throughput cell.
pub(crate) fn plot(results: &Results, path: &Path) -> Result<()> {
    let cells: Vec<_> =
        results.cells.iter().filter(|found| found.cell.kind == Kind::Throughput).collect();
    let bars: Vec<_> = cells
        .iter()
        .flat_map(|found| {
            let names = found.cell.contestants.iter();
            names.filter_map(|name| Some((found.cell.name.as_str(), name, found.spread(name)?)))
        })
        .collect();
    if bars.is_empty() {
        return Ok(());
    }
    let most = bars.iter().map(|(_, _, spread)| spread.most).fold(1.0, f64::max);
    let height = 60 + 22 * bars.len() as u32;
    let area = SVGBackend::new(path, (900, height)).into_drawing_area();
    let failed = |error| anyhow!("{error}");
    area.fill(&WHITE).map_err(failed)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("Throughput over loopback, Gbit/s of payload: median, range", ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(28)
        .y_label_area_size(270)
        .build_cartesian_2d(0.0..most * 1.05, (bars.len() as f64 - 0.5)..-0.5)
        .map_err(|error| anyhow!("{error}"))?;
    let name = |y: &f64| {
        let is_bar = (y - y.round()).abs() < 0.01 && *y > -0.4;
        let bar = bars.get(y.round().max(0.0) as usize).filter(|_| is_bar);
        bar.map_or_else(String::new, |(cell, name, _)| format!("{cell}  {name}"))
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(2 * bars.len() + 1)
        .y_label_formatter(&name)
        .draw()
        .map_err(|error| anyhow!("{error}"))?;
    for (index, (_, name, spread)) in bars.iter().enumerate() {
        let y = index as f64;
        let color = if name.starts_with("lacuna") {
            RGBColor(0x1f, 0x77, 0xb4)
        } else if name.starts_with("bare") {
            RGBColor(0x88, 0x88, 0x88)
        } else {
            RGBColor(0xd9, 0x8b, 0x4a)
        };
        let bar = Rectangle::new([(0.0, y - 0.35), (spread.median, y + 0.35)], color.filled());
        let range = PathElement::new([(spread.least, y), (spread.most, y)], BLACK);
        chart.draw_series([bar]).map_err(|error| anyhow!("{error}"))?;
        chart.draw_series([range]).map_err(|error| anyhow!("{error}"))?;
    }
    area.present().map_err(|error| anyhow!("{error}"))
}

/// Writes raw results, table and picture into a folder.
pub(crate) fn keep(results: &Results, suite: &Suite, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("results.json", &serde_json::to_string_pretty(results)?)?;
    write("table.txt", &table(results, suite))?;
    plot(results, &folder.join("throughput.svg"))
}
