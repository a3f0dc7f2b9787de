//! Heat maps: a table of ratios over two axes, each cell with its number, and a colour bar.

use super::{Axis, LINE_HEIGHT, wrapped, write_lines};
use crate::error::ChartError;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// A table of values over two logarithmic axes.
#[derive(Debug)]
pub(crate) struct HeatMap {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Ascending.
    pub(crate) columns: Vec<f64>,
    /// Ascending.
    pub(crate) rows: Vec<f64>,
    /// By row, then column. 1 is white, more is red, less is blue.
    pub(crate) values: Vec<Vec<f64>>,
}

/// Draws heat maps one below the other, the colour bar above and lines of text below.
pub(crate) fn write_heat_maps(
    path: &Path,
    title: &str,
    meaning: &str,
    maps: &[HeatMap],
    notes: &[String],
) -> Result<(), ChartError> {
    draw_heat_maps(path, title, meaning, maps, notes)
        .map_err(|error| ChartError { path: path.to_owned(), reason: error.to_string() })
}

/// Width of a heat map's cell and height of its row.
const CELL_SIZE: (u32, u32) = (38, 22);
/// Room for the labels of rows and columns.
const LABEL_SIZE: (u32, u32) = (84, 70);
/// Height of the title, and of the colour bar with its numbers.
const TITLE_HEIGHT: u32 = 36;
const BAR_HEIGHT: u32 = 62;
/// Ratios labelled on the bar; the first and the last are its ends.
const BAR_RATIOS: [f64; 9] = [0.8, 0.9, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0];
/// Position of white on the bar, as a fraction of its length.
const BAR_WHITE: f64 = 0.2;

fn draw_heat_maps(
    path: &Path,
    title: &str,
    meaning: &str,
    maps: &[HeatMap],
    notes: &[String],
) -> Result<(), Box<dyn Error>> {
    let columns = maps.iter().map(|map| map.columns.len()).max().unwrap_or(1) as u32;
    let rows = maps.iter().map(|map| map.rows.len()).max().unwrap_or(1) as u32;
    let width = LABEL_SIZE.0 + CELL_SIZE.0 * columns + 20;
    let map_height = LABEL_SIZE.1 + CELL_SIZE.1 * rows;
    let notes: Vec<String> = notes.iter().flat_map(|note| wrapped(note, width)).collect();
    let head = TITLE_HEIGHT + BAR_HEIGHT;
    let maps_height = map_height * maps.len() as u32;
    let foot = LINE_HEIGHT * notes.len() as u32 + 12;
    let area = SVGBackend::new(path, (width, head + maps_height + foot)).into_drawing_area();
    area.fill(&WHITE)?;
    let font = |size: u32| ("sans-serif", size).into_font();
    area.draw(&Text::new(title.to_owned(), (14, 10), font(15)))?;
    let left = LABEL_SIZE.0 as i32;
    area.draw(&Text::new(meaning.to_owned(), (left, TITLE_HEIGHT as i32), font(12)))?;
    let bar = (left, TITLE_HEIGHT as i32 + 18);
    let bar_width = (CELL_SIZE.0 * columns).min(520) as i32;
    for x in 0..bar_width {
        let ratio = bar_ratio(f64::from(x) / f64::from(bar_width));
        let column = [(bar.0 + x, bar.1), (bar.0 + x + 1, bar.1 + 14)];
        area.draw(&Rectangle::new(column, heat(ratio).filled()))?;
    }
    let frame = [bar, (bar.0 + bar_width, bar.1 + 14)];
    area.draw(&Rectangle::new(frame, BLACK.mix(0.5).stroke_width(1)))?;
    for ratio in BAR_RATIOS {
        let x = bar.0 + (bar_share(ratio) * f64::from(bar_width)).round() as i32;
        area.draw(&PathElement::new([(x, bar.1 + 14), (x, bar.1 + 18)], BLACK.stroke_width(1)))?;
        area.draw(&Text::new(format!("{ratio}"), (x - 6, bar.1 + 20), font(11)))?;
    }
    for (index, map) in maps.iter().enumerate() {
        let top = (head + map_height * index as u32) as i32;
        area.draw(&Text::new(map.title.clone(), (14, top), font(14)))?;
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
    let (_, foot_area) = area.split_vertically(head + maps_height);
    write_lines(&foot_area, &notes)?;
    area.present()?;
    Ok(())
}

/// The ratio at a share of the bar's length.
fn bar_ratio(share: f64) -> f64 {
    let (first, last) = (BAR_RATIOS[0], BAR_RATIOS[BAR_RATIOS.len() - 1]);
    if share < BAR_WHITE {
        first + (1.0 - first) * share / BAR_WHITE
    } else {
        last.powf((share - BAR_WHITE) / (1.0 - BAR_WHITE))
    }
}

/// Where on the bar a ratio is.
fn bar_share(ratio: f64) -> f64 {
    let (first, last) = (BAR_RATIOS[0], BAR_RATIOS[BAR_RATIOS.len() - 1]);
    if ratio < 1.0 {
        (ratio - first) / (1.0 - first) * BAR_WHITE
    } else {
        BAR_WHITE + (1.0 - BAR_WHITE) * ratio.ln() / last.ln()
    }
}

/// White at 1; red towards 12, blue towards 0.8.
fn heat(value: f64) -> RGBColor {
    let strength = |share: f64| 255 - (share.clamp(0.0, 1.0) * 170.0) as u8;
    if value >= 1.0 {
        let cold = strength(value.log2() / 12f64.log2());
        RGBColor(255, cold, cold)
    } else {
        let cold = strength((1.0 - value) / 0.2);
        RGBColor(cold, cold, 255)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_names_the_ratio_that_has_its_colour() {
        for ratio in BAR_RATIOS {
            let there = bar_ratio(bar_share(ratio));
            assert!((there / ratio - 1.0).abs() < 1e-9, "{ratio} {there}");
        }
        assert_eq!(heat(bar_ratio(BAR_WHITE)), WHITE);
        assert_ne!(heat(0.9), heat(1.5));
    }
}
