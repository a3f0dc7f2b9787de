//! Figures 3 and 10: slowdown over the lossless time, along one parameter at a time.

use super::crossover::{Crossover, FARTHEST_KM, NEAREST_KM};
use super::setup::{
    GIB, KM, MIB, RATE_BITS_PER_S, RTT_S, Scheme, Setup, coded, log_steps, times_s,
};
use super::{Csv, Figure, Headline};
use crate::chart::{Axis, Chart, Drawing, Mark, Series, plain, power, size as show_size};
use crate::error::FigureError;
use lacuna_model::{Code, Completion, RepairTiming, SelectiveRepeat, Transfer};
use std::path::Path;

/// The drop rate of figures 3a, 3b and 10a.
const RARE: f64 = 1e-5;
/// Probabilities below this are not shown in figure 10c.
const UNSEEN: f64 = 1e-6;
/// The size of figures 3c and 10b to 10d.
const SMALL: u64 = 128 * MIB;

/// Mean or 99.9th percentile over the lossless time.
#[derive(Clone, Copy)]
enum What {
    Mean,
    Tail,
}

impl What {
    fn slowdown(self, scheme: Scheme, transfer: &Transfer) -> Result<f64, FigureError> {
        let (mean_s, tail_s) = times_s(scheme, transfer)?;
        let time_s = match self {
            Self::Mean => mean_s,
            Self::Tail => tail_s,
        };
        Ok(time_s / transfer.ideal_s())
    }
}

/// Slowdown along some parameter.
fn along(
    panel: &str,
    name: &str,
    csv: &mut Csv,
    xs: impl Iterator<Item = f64>,
    slowdown: impl Fn(f64) -> Result<f64, FigureError>,
) -> Result<Series, FigureError> {
    let mut points = Vec::new();
    for x in xs {
        let y = slowdown(x)?;
        csv.row(&[panel, name], &[x, y]);
        points.push((x, y));
    }
    Ok(Series::new(name, points))
}

pub(super) fn figure_3(setup: &Setup, svg: &Path) -> Result<Figure, FigureError> {
    let mut csv = Csv::new("panel,scheme,x,slowdown");
    let schemes = [("SR RTO", Scheme::Timeout), ("EC MDS 32+8", setup.mds())];
    let (mut by_size, mut by_distance, mut by_loss) = (Vec::new(), Vec::new(), Vec::new());
    let at_distance = |km: f64| setup.transfer_on(RATE_BITS_PER_S, km / KM * RTT_S, 8 * GIB, RARE);
    let sizes = || log_steps(2f64.powi(17), 2f64.powi(40), 138);
    for (name, scheme) in schemes {
        by_size.push(along("a", name, &mut csv, sizes(), |size| {
            What::Mean.slowdown(scheme, &setup.transfer(size as u64, RARE)?)
        })?);
        by_distance.push(along(
            "b",
            name,
            &mut csv,
            log_steps(NEAREST_KM, FARTHEST_KM, 80),
            |km| What::Mean.slowdown(scheme, &at_distance(km)?),
        )?);
        by_loss.push(along("c", name, &mut csv, log_steps(1e-8, 1e-1, 70), |loss| {
            What::Mean.slowdown(scheme, &setup.transfer(SMALL, loss)?)
        })?);
    }
    let peak = peak(&by_size[0].points, |size| {
        What::Mean.slowdown(Scheme::Timeout, &setup.transfer(size as u64, RARE)?)
    })?;
    let at_32_gib = What::Mean.slowdown(Scheme::Timeout, &setup.transfer(32 * GIB, RARE)?)?;
    let crossover = Crossover::find(setup, RATE_BITS_PER_S, 8 * GIB, RARE)?;
    let overtakes = match crossover {
        Crossover::From(km) => {
            vec![Mark::Vertical { x: km, name: format!("EC wins {}", crossover.describe()) }]
        }
        _ => Vec::new(),
    };
    let one_loss = setup.one_loss_bytes(RARE)?;
    let one_loss_mark =
        Mark::Vertical { x: one_loss, name: format!("1/P chunks, {}", show_size(one_loss)) };
    let at = |loss| What::Mean.slowdown(Scheme::Timeout, &setup.transfer(SMALL, loss)?);
    let headlines = vec![
        Headline {
            section: "2.1, 3a",
            paper: "SR peaks where one packet is likely to be dropped; above 32 GiB injection dominates",
            ours: format!(
                "peak {:.2}x at {}; 1/P chunks are {}; {at_32_gib:.3}x at 32 GiB",
                peak.1,
                show_size(peak.0),
                show_size(one_loss)
            ),
        },
        Headline {
            section: "2.1, 3b",
            paper: "8 GiB turn from large (SR wins) to small (EC wins) with distance",
            ours: format!("EC wins {}", crossover.describe()),
        },
        Headline {
            section: "2.1, 3c",
            paper: "128 MiB above 1e-4: 3x to 10x",
            ours: format!(
                "{:.2}x at 1e-4, {:.2}x at 1e-2, {:.1}x at 1e-1",
                at(1e-4)?,
                at(1e-2)?,
                at(1e-1)?
            ),
        },
    ];
    let chart = |title: &str, x, series, marks| Chart {
        title: title.to_owned(),
        x,
        y: Axis::ratio("x lossless time"),
        series,
        marks,
    };
    let charts = vec![
        chart(
            "(a) 3750 km, 1e-5",
            Axis::doubling("message size", show_size),
            by_size,
            vec![one_loss_mark],
        ),
        chart("(b) 8 GiB, 1e-5", Axis::log("distance in km", plain), by_distance, overtakes),
        chart("(c) 128 MiB, 3750 km", Axis::log("drop rate", power), by_loss, Vec::new()),
    ];
    let title = format!("Figure 3: 400 Gbit/s, mean, {}", setup.describe());
    Drawing { title, charts, is_common_y: false, notes: Headline::notes(&headlines) }.write(svg)?;
    Ok(Figure { number: 3, headlines, csv })
}

/// The maximum of a curve, searched for around the highest point drawn.
fn peak(
    points: &[(f64, f64)],
    of: impl Fn(f64) -> Result<f64, FigureError>,
) -> Result<(f64, f64), FigureError> {
    let highest = (0..points.len()).max_by(|a, b| points[*a].1.total_cmp(&points[*b].1));
    let Some(highest) = highest else { return Ok((0.0, 0.0)) };
    let beside = |index: usize| points[index.min(points.len() - 1)].0;
    let mut best = points[highest];
    for x in log_steps(beside(highest.saturating_sub(1)), beside(highest + 1), 400) {
        let y = of(x)?;
        if y > best.1 {
            best = (x, y);
        }
    }
    Ok(best)
}

pub(super) fn figure_10(setup: &Setup, svg: &Path) -> Result<Figure, FigureError> {
    let mut csv = Csv::new("panel,scheme,x,y");
    let (mut by_size, mut by_loss, mut splits) = (Vec::new(), Vec::new(), Vec::new());
    for (scheme_name, scheme) in
        [("SR RTO", Scheme::Timeout), ("SR NACK", Scheme::Nack), ("EC MDS 32+8", setup.mds())]
    {
        for (what_name, what) in [("mean", What::Mean), ("p99.9", What::Tail)] {
            let name = format!("{scheme_name} {what_name}");
            let sizes = log_steps(2f64.powi(17), 2f64.powi(35), 108);
            let line = along("a", &name, &mut csv, sizes, |size| {
                what.slowdown(scheme, &setup.transfer(size as u64, RARE)?)
            })?;
            by_size.push(match what {
                What::Mean => line.of(scheme_name),
                What::Tail => line.second_of(scheme_name),
            });
        }
    }
    for (name, scheme) in [
        ("SR RTO", Scheme::Timeout),
        ("SR NACK", Scheme::Nack),
        ("EC MDS 32+8", setup.mds()),
        ("EC XOR 32+8", setup.xor()),
    ] {
        by_loss.push(along("b", name, &mut csv, log_steps(1e-8, 1e-1, 84), |loss| {
            What::Mean.slowdown(scheme, &setup.transfer(SMALL, loss)?)
        })?);
    }
    let tails = tails(setup, &mut csv)?;
    for m in [2, 4, 8, 16, 32] {
        let scheme = Scheme::Code(Code::mds(32, m)?);
        let name = format!("EC MDS 32+{m}");
        splits.push(along("d", &name, &mut csv, log_steps(1e-5, 1e-1, 80), |loss| {
            What::Tail.slowdown(scheme, &setup.transfer(SMALL, loss)?)
        })?);
    }
    let headlines = headlines_10(setup)?;
    let slowdown = || Axis::ratio("x lossless time");
    let charts = vec![
        Chart {
            title: "(a) 1e-5".to_owned(),
            x: Axis::doubling("message size", show_size),
            y: slowdown(),
            series: by_size,
            marks: Vec::new(),
        },
        Chart {
            title: "(b) 128 MiB, mean".to_owned(),
            x: Axis::log("drop rate", power),
            y: slowdown(),
            series: by_loss,
            marks: Vec::new(),
        },
        Chart {
            title: "(c) 128 MiB, 1e-5: not done by".to_owned(),
            x: Axis::linear("time in ms"),
            y: Axis::log("probability", power),
            series: tails,
            marks: Vec::new(),
        },
        Chart {
            title: "(d) 128 MiB, p99.9 by parity".to_owned(),
            x: Axis::log("drop rate", power),
            y: slowdown(),
            series: splits,
            marks: Vec::new(),
        },
    ];
    let title = format!("Figure 10: 400 Gbit/s, 25 ms, {}", setup.describe());
    Drawing { title, charts, is_common_y: false, notes: Headline::notes(&headlines) }.write(svg)?;
    Ok(Figure { number: 10, headlines, csv })
}

/// Figure 10c: probability that a message is not complete, over time.
fn tails(setup: &Setup, csv: &mut Csv) -> Result<Vec<Series>, FigureError> {
    let transfer = setup.transfer(SMALL, RARE)?;
    let timeout = SelectiveRepeat::new(&transfer, RepairTiming::TIMEOUT)?;
    let nack = SelectiveRepeat::new(&transfer, RepairTiming::NACK)?;
    let ec = coded(Code::mds(32, 8)?, &transfer)?;
    let models: [(&str, &dyn Completion); 3] =
        [("SR RTO", &timeout), ("SR NACK", &nack), ("EC MDS 32+8", &ec)];
    let mut series = Vec::new();
    for (name, model) in models {
        let all = (0..=1500).map(|step| f64::from(step) * 0.2);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (ms, left) in all.map(|ms| (ms, model.survival(ms / 1e3))) {
            // Draw the line down to the axis even where it drops at once.
            points.push((ms, left.max(UNSEEN)));
            if left <= UNSEEN {
                break;
            }
            csv.row(&["c", name], &[ms, left]);
        }
        series.push(Series::new(name, points));
    }
    Ok(series)
}

fn headlines_10(setup: &Setup) -> Result<Vec<Headline>, FigureError> {
    let mut best: (f64, f64) = (0.0, 0.0);
    for exponent in 17..=33 {
        for step in 4..=32 {
            let transfer = setup.transfer(1 << exponent, 10f64.powf(-f64::from(step) / 4.0))?;
            let (rto, nack) =
                (times_s(Scheme::Timeout, &transfer)?, times_s(Scheme::Nack, &transfer)?);
            best = (best.0.max(rto.0 / nack.0), best.1.max(rto.1 / nack.1));
        }
    }
    let fallback = |code: Code, loss: f64| -> Result<f64, FigureError> {
        Ok(coded(code, &setup.transfer(SMALL, loss)?)?.fallback_probability())
    };
    let (mds, xor) = (Code::mds(32, 8)?, Code::xor(32, 8)?);
    Ok(vec![
        Headline {
            section: "5.2.1",
            paper: "NACK improves SR by up to 4x, mean and tail",
            ours: format!(
                "{:.2}x mean, {:.2}x p99.9: 3 RTT against 1 RTT cannot give 3x or more",
                best.0, best.1
            ),
        },
        Headline {
            section: "5.2.1",
            paper: "at 128 MiB XOR falls back at about 1e-3, MDS is robust beyond 1e-2",
            ours: format!(
                "P(fallback) of XOR {:.2e} at 1e-3; of MDS {:.2e} at 1e-2, {:.2e} at 3e-2",
                fallback(xor, 1e-3)?,
                fallback(mds, 1e-2)?,
                fallback(mds, 3e-2)?
            ),
        },
        Headline {
            section: "5.2.1, 10d",
            paper: "(32,8) tolerates 1e-2 at no more than 20 % bandwidth inflation",
            ours: "parity is 20 % of the wire, 25 % of the data".to_owned(),
        },
    ])
}
