//! Figure 12: longer and faster links. The paper does not state the drop rate (1e-5 here, as in
//! figure 3), and its text says 8 GiB where the caption says 128 MiB: both are drawn, each with
//! both schemes on one axis, and the crossover is ringed.

use super::crossover::{Crossover, FARTHEST_KM};
use super::setup::{GIB, KM, MIB, RTT_S, Scheme, Setup, log_steps, times_s};
use super::{Csv, Figure, Headline};
use crate::chart::{Axis, Chart, Drawing, Mark, Series, plain};
use crate::error::FigureError;
use lacuna_units as units;
use std::path::Path;

const LOSS: f64 = 1e-5;
const RATES_GBIT: [f64; 4] = [100.0, 400.0, 800.0, 3200.0];
const NEAREST_KM: f64 = 100.0;

pub(super) fn figure_12(setup: &Setup, svg: &Path) -> Result<Figure, FigureError> {
    let mut csv = Csv::new("size,scheme,rate_gbit_per_s,distance_km,x_lossless");
    let mut charts = Vec::new();
    let mut crossings = Vec::new();
    for size in [128 * MIB, 8 * GIB] {
        let (mut series, mut marks) = (Vec::new(), Vec::new());
        for (name, scheme) in [("SR RTO", Scheme::Timeout), ("EC MDS 32+8", setup.mds())] {
            for rate_gbit in RATES_GBIT {
                let slowdown = |km: f64| {
                    let rtt_s = km / KM * RTT_S;
                    let transfer = setup.transfer_on(rate_gbit * 1e9, rtt_s, size, LOSS)?;
                    Ok::<_, FigureError>(times_s(scheme, &transfer)?.0 / transfer.ideal_s())
                };
                let mut points = Vec::new();
                for km in log_steps(NEAREST_KM, FARTHEST_KM, 60) {
                    let slowdown = slowdown(km)?;
                    csv.row(&[&units::show_bytes(size), name], &[rate_gbit, km, slowdown]);
                    points.push((km, slowdown));
                }
                let rate = format!("{rate_gbit} Gbit/s");
                let line = Series::new(format!("{name}, {rate}"), points);
                if scheme == Scheme::Timeout {
                    series.push(line.of(&rate));
                    continue;
                }
                series.push(line.second_of(&rate));
                let crossover = Crossover::find(setup, rate_gbit * 1e9, size, LOSS)?;
                if let Crossover::From(km) = crossover
                    && km >= NEAREST_KM
                {
                    let name = "EC overtakes SR".to_owned();
                    marks.push(Mark::Ring { x: km, y: slowdown(km)?, name });
                }
                if size == 8 * GIB {
                    crossings.push(format!("{} at {rate}", crossover.describe()));
                }
            }
        }
        charts.push(Chart {
            title: units::show_bytes(size),
            x: Axis::log("distance in km", plain),
            y: Axis::ratio("x lossless time"),
            series,
            marks,
        });
    }
    let headlines = vec![Headline {
        section: "5.2.2",
        paper: "with a higher RTT or more bandwidth EC eventually surpasses SR at 8 GiB",
        ours: crossings.join(", "),
    }];
    let title = format!("Figure 12: drop rate 1e-5, mean, {}", setup.describe());
    Drawing { title, charts, is_common_y: true, notes: Headline::notes(&headlines) }.write(svg)?;
    Ok(Figure { number: 12, headlines, csv })
}
