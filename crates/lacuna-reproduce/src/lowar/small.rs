//! Figure 12: throughput of small messages, 128 in flight, at a loss of 1e-3 over 40 ms.

use super::{MS_NS, NAME, RATE_BITS_PER_S, Scheme, losses, title};
use crate::cells::{Lab, Stopped};
use crate::connections::Workload;
use crate::outcome::{Csv, Item, Outcome, Statement};
use lacuna_planner::chart::{Axis, Chart, Series, size};

const LOSS: f64 = 1e-3;
/// The paper's length of the send queue.
const DEPTH: usize = 128;

pub(super) fn figure_12(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let schemes = [
        Scheme::GO_BACK_N,
        Scheme::lowar("LoWAR(32,1)", 32, 1),
        Scheme::lowar("LoWAR(8,1)", 8, 1),
        Scheme::SELECTIVE,
    ];
    let [_, wide, narrow, _] = schemes;
    let sizes: &[usize] = lab.effort.pick(
        &[64, 1 << 10, 8 << 10, 64 << 10],
        &[64, 256, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10],
    );
    let seeds = lab.effort.pick(2, 5);
    let mut points = Vec::new();
    for bytes in sizes {
        points.push((Scheme::GO_BACK_N, *bytes, 0.0));
        points.extend(schemes.iter().map(|scheme| (*scheme, *bytes, LOSS)));
    }
    let workloads: Vec<_> = points
        .iter()
        .map(|(scheme, bytes, loss)| {
            let plain = Workload::new(RATE_BITS_PER_S, 40 * MS_NS, losses(*loss));
            let duration_ns = lab.effort.pick(8, 60) * 1000 * MS_NS;
            scheme.on(Workload { depth: DEPTH, message_bytes: *bytes, duration_ns, ..plain })
        })
        .collect();
    let measured = lab.run(&workloads, seeds)?;
    let share = |scheme: Scheme, bytes: usize| {
        let find = |point| {
            let index = points.iter().position(|other| *other == point);
            measured[index.expect("it is in the grid")].goodput_bits_per_s
        };
        find((scheme, bytes, LOSS)) / find((Scheme::GO_BACK_N, bytes, 0.0))
    };
    let mut csv = Csv::new("scheme,message_bytes,loss,goodput_mbit_per_s,share_of_lossless");
    for ((scheme, bytes, loss), measured) in points.iter().zip(&measured) {
        let of_lossless = if *loss > 0.0 { share(*scheme, *bytes) } else { 1.0 };
        let mbit = measured.goodput_bits_per_s / 1e6;
        csv.row(&[scheme.name], &[*bytes as f64, *loss, mbit, of_lossless]);
    }
    let charts = vec![Chart {
        title: "goodput over what is there without loss".to_owned(),
        x: Axis::doubling("bytes of a message", size),
        y: Axis::linear("share"),
        series: schemes
            .iter()
            .map(|scheme| {
                let point = |bytes: &usize| (*bytes as f64, share(*scheme, *bytes));
                Series::new(scheme.name, sizes.iter().map(point).collect())
            })
            .collect(),
        marks: Vec::new(),
    }];
    let worst = |scheme| sizes.iter().map(|bytes| share(scheme, *bytes)).fold(1.0, f64::min);
    let up_to = |scheme, most| {
        let small = sizes.iter().filter(|bytes| **bytes <= most);
        small.map(|bytes| share(scheme, *bytes)).fold(1.0, f64::min)
    };
    let statements = vec![
        Statement::at_least(
            "VI-A, figure 12",
            "the shim's goodput is nearly that without loss".to_owned(),
            format!(
                "(32,1) at least {:.3} up to 8 KiB, {:.3} up to 64 KiB; (8,1) {:.3}",
                up_to(wide, 8 << 10),
                worst(wide),
                worst(narrow)
            ),
            (1.0, up_to(wide, 8 << 10)),
            0.98,
        ),
        Statement::at_least(
            "VI-A, figure 12",
            "the card falls behind".to_owned(),
            format!("go-back-N keeps {:.3} at 64 KiB", share(Scheme::GO_BACK_N, 64 << 10)),
            (1.0, 1.0 - share(Scheme::GO_BACK_N, 64 << 10) + 0.9),
            1.0,
        ),
    ];
    Ok(Outcome {
        paper: NAME,
        item: Item::Figure(12),
        live: false,
        title: title(Item::Figure(12)),
        workload: format!(
            "WRITEs, {DEPTH} in flight, MTU 1024, 10 Gbit/s, 40 ms, loss of 1e-3 both ways, {seeds} seeds pooled, virtual time"
        ),
        statements,
        charts,
        rows: None,
        remarks: Vec::new(),
        csv,
    })
}
