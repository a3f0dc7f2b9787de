//! Figure 11: losses in bursts, by a chain of two states.

use super::{MS_NS, NAME, RATE_BITS_PER_S, Scheme, gbit, title};
use crate::cells::{Lab, Stopped};
use crate::connections::Workload;
use crate::outcome::{Csv, Item, Outcome, Statement};
use lacuna_link::{Fraction, Loss};
use lacuna_planner::chart::{Axis, Chart, Series};

/// The chance per packet of going to the high state.
const UP: f64 = 1e-4;

/// The paper's chain: nothing is lost in the low state.
fn chain(high: f64, burst: f64) -> Loss {
    Loss::Gilbert {
        low: Fraction::never(),
        high: Fraction::from_f64(high),
        low_to_high: Fraction::from_f64(UP),
        high_to_low: Fraction::from_f64(1.0 / burst),
    }
}

pub(super) fn figure_11(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let schemes = [
        Scheme::GO_BACK_N,
        Scheme::lowar("LoWAR(64,8)", 64, 8),
        Scheme::lowar("LoWAR(32,1)", 32, 1),
        Scheme::SELECTIVE,
    ];
    let deep = schemes[1];
    let bursts: &[f64] = lab.effort.pick(&[2.0, 8.0, 12.0], &[2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    let seeds = lab.effort.pick(2, 5);
    let highs = [0.3, 0.7];
    let mut points = vec![(deep, 0.0, 1.0)];
    for high in highs {
        for scheme in schemes {
            points.extend(bursts.iter().map(|burst| (scheme, high, *burst)));
        }
    }
    let workloads: Vec<_> = points
        .iter()
        .map(|(scheme, high, burst)| {
            let loss = if *high > 0.0 { chain(*high, *burst) } else { Loss::None };
            let plain = Workload::new(RATE_BITS_PER_S, 40 * MS_NS, loss);
            let duration_ns = lab.effort.pick(1200, 10_000) * MS_NS;
            scheme.on(Workload { duration_ns, ..plain })
        })
        .collect();
    let measured = lab.run(&workloads, seeds)?;
    let find = |scheme: Scheme, high: f64, burst: f64| {
        let index = points.iter().position(|point| *point == (scheme, high, burst));
        gbit(measured[index.expect("it is in the grid")].goodput_bits_per_s)
    };
    let lossless = find(deep, 0.0, 1.0);
    let mut csv = Csv::new("scheme,p_high,burst_packets,goodput_gbit_per_s,share_of_lossless");
    for ((scheme, high, burst), measured) in points.iter().zip(&measured) {
        let goodput = gbit(measured.goodput_bits_per_s);
        csv.row(&[scheme.name], &[*high, *burst, goodput, goodput / lossless]);
    }
    let charts = highs
        .map(|high| Chart {
            title: format!("p_high {high}"),
            x: Axis::linear("mean packets of a burst"),
            y: Axis::linear("goodput in Gbit/s"),
            series: schemes
                .iter()
                .map(|scheme| {
                    let point = |burst: &f64| (*burst, find(*scheme, high, *burst));
                    Series::new(scheme.name, bursts.iter().map(point).collect())
                })
                .collect(),
            marks: Vec::new(),
        })
        .into();
    let statements = highs
        .map(|high| {
            let [short, long] = [2.0, 8.0].map(|burst| find(deep, high, burst));
            Statement::at_least(
                "VI-A, figure 11",
                "(64,8) holds about 8 Gbit/s to bursts of 8".to_owned(),
                format!(
                    "p_high {high}: {short:.2} Gbit/s at 2, {long:.2} at 8, {lossless:.2} lossless"
                ),
                (8.0, long),
                0.9,
            )
            .because(
                "a burst of mean 8 is longer than 8 in one of three, and then a block may fail",
            )
        })
        .into();
    Ok(Outcome {
        paper: NAME,
        item: Item::Figure(11),
        live: false,
        title: title(Item::Figure(11)),
        workload: format!(
            "WRITEs of 1 MB back to back, MTU 1024, 10 Gbit/s, 40 ms, chain of two states both ways (low 0, up 1e-4), {seeds} seeds pooled, virtual time"
        ),
        statements,
        charts,
        rows: None,
        remarks: Vec::new(),
        csv,
    })
}
