//! Figure 9: how much longer selective repeat takes than erasure coding, by size and drop rate.

use super::setup::{GIB, Scheme, Setup, times_s};
use super::{Csv, Figure, Headline};
use crate::chart::{Axis, HeatMap, power, size, write_heat_maps};
use crate::error::FigureError;
use lacuna_units as units;
use std::path::Path;

/// 128 KiB to 8 GiB, and four drop rates a decade from 1e-8 to 1e-1.
const SIZE_EXPONENTS: std::ops::RangeInclusive<u32> = 17..=33;
const LOSSES_PER_DECADE: i32 = 4;

pub(super) fn figure_9(setup: &Setup, svg: &Path) -> Result<Figure, FigureError> {
    let sizes: Vec<u64> = SIZE_EXPONENTS.map(|exponent| 1 << exponent).collect();
    let losses: Vec<f64> = (-8 * LOSSES_PER_DECADE..=-LOSSES_PER_DECADE)
        .map(|step| 10f64.powf(f64::from(step) / f64::from(LOSSES_PER_DECADE)))
        .collect();
    let mut csv =
        Csv::new("size_bytes,loss,sr_mean_s,sr_p999_s,ec_mean_s,ec_p999_s,mean_ratio,p999_ratio");
    let (mut means, mut tails) = (Vec::new(), Vec::new());
    for size in &sizes {
        let (mut mean_row, mut tail_row) = (Vec::new(), Vec::new());
        for loss in &losses {
            let transfer = setup.transfer(*size, *loss)?;
            let (sr_mean, sr_tail) = times_s(Scheme::Timeout, &transfer)?;
            let (ec_mean, ec_tail) = times_s(setup.mds(), &transfer)?;
            let ratios = (sr_mean / ec_mean, sr_tail / ec_tail);
            csv.row(
                &[&size.to_string()],
                &[*loss, sr_mean, sr_tail, ec_mean, ec_tail, ratios.0, ratios.1],
            );
            mean_row.push(ratios.0);
            tail_row.push(ratios.1);
        }
        means.push(mean_row);
        tails.push(tail_row);
    }
    let most = |values: &[Vec<f64>], up_to: f64| {
        let cells = values
            .iter()
            .enumerate()
            .flat_map(|(i, row)| row.iter().enumerate().map(move |(j, value)| (*value, i, j)));
        let cells = cells.filter(|(_, _, j)| losses[*j] <= up_to);
        let (value, i, j) = cells.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0, 0));
        format!("{value:.2}x ({}, {:.1e})", units::show_bytes(sizes[i]), losses[j])
    };
    // The sentence speaks of 128 KiB to 1 GiB and 1e-6 to 1e-2.
    let inside = |values: &[Vec<f64>]| {
        let rows = values.iter().zip(&sizes).filter(|(_, size)| **size <= GIB);
        let cells = rows.flat_map(|(row, _)| row.iter().zip(&losses));
        cells
            .filter(|(_, loss)| (0.99e-6..1.01e-2).contains(*loss))
            .map(|(value, _)| *value)
            .fold(f64::INFINITY, f64::min)
    };
    let headlines = vec![
        Headline {
            section: "5.2.1",
            paper: "slowdowns of SR of up to 6.5x on average and 12.2x at the 99.9th percentile",
            ours: format!(
                "mean {} up to 1e-2, {} in all; p99.9 {} up to 1e-2, {} in all",
                most(&means, 1.01e-2),
                most(&means, 1.0),
                most(&tails, 1.01e-2),
                most(&tails, 1.0)
            ),
        },
        Headline {
            section: "5.2.1",
            paper: "EC outperforms SR for 128 KiB to 1 GiB within drop rates of 1e-6 to 1e-2",
            ours: format!(
                "there, SR over EC is at least {:.3} on average and {:.3} at p99.9",
                inside(&means),
                inside(&tails)
            ),
        },
    ];
    let map = |title: &str, values| HeatMap {
        title: title.to_owned(),
        x: Axis::log("drop rate", power),
        y: Axis::doubling("message size", size),
        columns: losses.clone(),
        rows: sizes.clone().into_iter().map(|size| size as f64).collect(),
        values,
    };
    let maps = [map("mean", means), map("p99.9", tails)];
    let title = format!("Figure 9: 400 Gbit/s, 25 ms, {}", setup.describe());
    let meaning =
        "time of SR RTO over that of EC MDS 32+8: red where EC is faster, blue where SR is";
    write_heat_maps(svg, &title, meaning, &maps, &Headline::notes(&headlines))?;
    Ok(Figure { number: 9, headlines, csv })
}
