//! Figure 12: longer and faster links. The drop rate is not stated (1e-5 here, that of figure 3),
//! and the text speaks of 8 GiB where the caption says 128 MiB: both are drawn.

use super::setup::{GIB, KM, MIB, RTT_S, Scheme, Setup, log_steps, times_s};
use super::{Csv, Figure, Headline};
use crate::failure::Failure;
use crate::planner::chart::{Axis, Chart, Drawing, Legend, Series, plain};
use crate::units;
use std::path::Path;

const LOSS: f64 = 1e-5;
const RATES_GBIT: [f64; 4] = [100.0, 400.0, 800.0, 3200.0];

pub(super) fn figure_12(setup: &Setup, svg: &Path) -> Result<Figure, Failure> {
    let mut csv = Csv::new("size,scheme,rate_gbit_per_s,distance_km,x_lossless");
    let (mut charts, mut crossings) = (Vec::new(), Vec::new());
    for size in [128 * MIB, 8 * GIB] {
        for (name, scheme) in [("SR RTO", Scheme::Timeout), ("EC MDS 32+8", setup.mds())] {
            let mut series = Vec::new();
            for rate_gbit in RATES_GBIT {
                let mut points = Vec::new();
                for km in log_steps(100.0, 40_000.0, 60) {
                    let transfer =
                        setup.transfer_on(rate_gbit * 1e9, km / KM * RTT_S, size, LOSS)?;
                    let slowdown = times_s(scheme, &transfer)?.0 / transfer.ideal_s();
                    csv.row(&[&units::show_bytes(size), name], &[rate_gbit, km, slowdown]);
                    points.push((km, slowdown));
                }
                series.push(Series { name: format!("{rate_gbit} Gbit/s"), points });
            }
            charts.push(Chart {
                title: format!("{} {name}", units::show_bytes(size)),
                x: Axis::log("distance in km", plain),
                y: Axis::linear("x lossless time"),
                series,
                legend: Legend::Left,
            });
        }
    }
    for (rate_gbit, index) in RATES_GBIT.into_iter().zip(0..) {
        let (sr, ec) = (&charts[2].series[index], &charts[3].series[index]);
        let first = sr.points.iter().zip(&ec.points).find(|(sr, ec)| sr.1 > ec.1);
        crossings.push(match first {
            Some((point, _)) => format!("{:.0} km at {rate_gbit} Gbit/s", point.0),
            None => format!("nowhere at {rate_gbit} Gbit/s"),
        });
    }
    let headlines = vec![Headline {
        section: "5.2.2",
        paper: "with a higher RTT or more bandwidth EC eventually surpasses SR at 8 GiB",
        ours: format!("from {}", crossings.join(", ")),
    }];
    let title = format!("Figure 12: drop rate 1e-5, mean, {}", setup.describe());
    Drawing { title, charts, notes: Headline::notes(&headlines) }.write(svg)?;
    Ok(Figure { number: 12, headlines, csv })
}
