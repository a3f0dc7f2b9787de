//! Pictures of the race: of every path and task, the value of each contestant over loss.

use super::cell::{Kind, loss_name};
use super::record::Record;
use super::summary::{Summary, is_rate};
use plotters::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 420;
/// Room for the names at the right.
const LEGEND: u32 = 170;

/// An SVG and the name of its file.
pub(crate) struct Picture {
    pub(crate) name: String,
    pub(crate) svg: String,
}

/// A task over one path: everything about a cell but its loss.
type Family = (String, u64, u64, u32, String);

fn family(record: &Record) -> Family {
    let cell = &record.cell;
    let burst = if cell.burst > 1 { format!("-b{}", cell.burst) } else { String::new() };
    let end = format!("-{}{burst}", loss_name(cell.loss));
    let stem = cell.name.strip_suffix(&end).unwrap_or(&cell.name);
    (cell.grid.clone(), cell.rate_mbit, cell.rtt_ms, cell.burst, format!("{stem}{burst}"))
}

/// Families that have a line: two losses at least, and flows of one contestant each.
fn families(records: &[Record]) -> BTreeMap<Family, Vec<&Record>> {
    let mut families: BTreeMap<Family, Vec<&Record>> = BTreeMap::new();
    let is_single = |record: &&Record| {
        record.cell.kind != Kind::Crowd
            && record.cell.changes.is_empty()
            && !record.cell.is_shared()
    };
    for record in records.iter().filter(is_single) {
        families.entry(family(record)).or_default().push(record);
    }
    families.retain(|_, records| records.len() > 1);
    for records in families.values_mut() {
        records.sort_by(|one, other| one.cell.loss.total_cmp(&other.cell.loss));
    }
    families
}

/// The files of a grid's pictures.
pub(crate) fn names(records: &[Record], grid: &str) -> Vec<String> {
    let families = families(records);
    let of_grid = families.keys().filter(|family| family.0 == grid);
    of_grid.map(|family| format!("{}.svg", family.4)).collect()
}

/// All pictures. One that cannot be drawn is left out, with a word.
pub(crate) fn pictures(records: &[Record]) -> Vec<Picture> {
    let drawn = families(records).into_iter().filter_map(|(family, records)| {
        let mut svg = String::new();
        if let Err(error) = draw(&mut svg, &family.4, &records) {
            eprintln!("no picture of {}: {error}", family.4);
            return None;
        }
        Some(Picture { name: format!("{}.svg", family.4), svg })
    });
    drawn.collect()
}

fn draw(
    svg: &mut String,
    title: &str,
    records: &[&Record],
) -> Result<(), Box<dyn std::error::Error>> {
    let kind = records[0].cell.kind;
    let names: BTreeSet<&str> =
        records.iter().flat_map(|record| record.entries.keys().map(String::as_str)).collect();
    let value = |record: &Record, name: &str| -> Option<f64> {
        Some(Summary::new(record.entries.get(name)?).value?.median)
    };
    let ideal = |record: &Record| record.cell.ideal_ms().unwrap_or(record.cell.ideal_mbit());
    let values = records.iter().flat_map(|record| {
        names.iter().filter_map(|name| value(record, name)).chain([ideal(record)])
    });
    let (least, most) = values
        .fold((f64::INFINITY, 1.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    let losses: Vec<String> = records.iter().map(|record| loss_name(record.cell.loss)).collect();
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let unit = if is_rate(kind) { "goodput, Mbit/s" } else { "mean time, ms" };
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}: {unit}, over loss"), ("sans-serif", 16))
        .margin(10)
        .margin_right(LEGEND)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d(
            -0.2..records.len() as f64 - 0.8,
            (least.max(0.1) * 0.8..most * 1.25).log_scale(),
        )?;
    let loss = |x: &f64| {
        let is_whole = (x - x.round()).abs() < 0.01 && *x > -0.1;
        let found = losses.get(x.round().max(0.0) as usize).filter(|_| is_whole);
        found.cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * records.len() + 1)
        .x_label_formatter(&loss)
        .light_line_style(TRANSPARENT)
        .draw()?;
    let points = |value: &dyn Fn(&Record) -> Option<f64>| -> Vec<(f64, f64)> {
        let all = records.iter().enumerate();
        all.filter_map(|(x, record)| Some((x as f64, value(record)?))).collect()
    };
    let mut legend = vec![("ideal", BLACK.stroke_width(1))];
    let line = points(&|record| Some(ideal(record)));
    chart.draw_series(DashedLineSeries::new(line, 4, 4, BLACK.into()))?;
    for (index, name) in names.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let style = color.stroke_width(if name.starts_with("lacuna") { 3 } else { 1 });
        let line = points(&|record| value(record, name));
        chart.draw_series(line.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
        chart.draw_series(LineSeries::new(line, style))?;
        legend.push((name, style));
    }
    let left = WIDTH as i32 - LEGEND as i32;
    for (row, (name, style)) in legend.into_iter().enumerate() {
        let y = 40 + 16 * row as i32;
        area.draw(&PathElement::new([(left, y), (left + 20, y)], style))?;
        area.draw(&Text::new(name, (left + 26, y - 6), ("sans-serif", 12)))?;
    }
    area.present()?;
    drop(chart);
    drop(area);
    Ok(())
}
