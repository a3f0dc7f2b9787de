//! Figure 13: what repairs cost in time, of messages of 1 MB one by one in a LAN. Part d, processor time, is a
//! measurement on real sockets.

use super::{MS_NS, NAME, RATE_BITS_PER_S, Scheme, title};
use crate::cells::{Lab, Stopped};
use crate::connections::{Measured, Workload};
use crate::outcome::{Csv, Item, Outcome, Statement, Verdict};
use lacuna_link::Loss;
use lacuna_planner::chart::{Axis, Chart, Series, plain};

/// Round trip of the LAN.
const RTT_NS: u64 = MS_NS / 20;
/// A packet in the middle of the message that is lost, counted from its first.
const LOST: u64 = 403;

/// One message, alone.
fn message(scheme: Scheme, dropped: Vec<u64>) -> Workload {
    let plain = Workload::new(RATE_BITS_PER_S, RTT_NS, Loss::None);
    scheme.on(Workload {
        depth: 1,
        dropped,
        warm_up_ns: 0,
        duration_ns: 1000 * MS_NS,
        messages: Some(1),
        ..plain
    })
}

fn us(measured: &Measured) -> f64 {
    measured.mean_s() * 1e6
}

pub(super) fn figure_13(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let sizes = [8u16, 16, 32, 64, 128];
    let scheme = |r: u16, c: u16| Scheme::lowar("LoWAR", r, c);
    let mut workloads = vec![message(Scheme::GO_BACK_N, Vec::new())];
    for r in sizes {
        let block = u64::from(r);
        // One in a block; one in each of two blocks.
        let lost = LOST / block * block + block / 2;
        workloads.push(message(scheme(r, 1), Vec::new()));
        workloads.push(message(scheme(r, 1), vec![lost]));
        workloads.push(message(scheme(r, 1), vec![lost, lost + block]));
    }
    let start = 3 * 128 + 20;
    workloads.push(message(scheme(128, 16), Vec::new()));
    workloads.push(message(scheme(128, 16), vec![start]));
    workloads.push(message(scheme(128, 16), (start..start + 16).collect()));
    workloads.push(message(Scheme::GO_BACK_N, vec![LOST]));
    let measured = lab.run(&workloads, 1)?;
    let without = us(&measured[0]);
    let packet_us = (1024.0 + 44.0) * 8.0 / (RATE_BITS_PER_S as f64 / 1e6);
    let mut csv = Csv::new("case,r,c,lost,time_us,more_than_lossless_us");
    let (mut lossless, mut one, mut two) = (Vec::new(), Vec::new(), Vec::new());
    for (index, r) in sizes.into_iter().enumerate() {
        let [whole, single, double] = [0, 1, 2].map(|case| us(&measured[1 + 3 * index + case]));
        let r = f64::from(r);
        csv.row(&["lossless"], &[r, 1.0, 0.0, whole, whole - without]);
        csv.row(&["one lost"], &[r, 1.0, 1.0, single, single - whole]);
        csv.row(&["one lost in each of two blocks"], &[r, 1.0, 2.0, double, double - whole]);
        lossless.push((r, whole - without));
        one.push((r, single - whole));
        two.push((r, double - whole));
    }
    let [whole, single, burst, again] =
        [0, 1, 2, 3].map(|case| us(&measured[1 + 3 * sizes.len() + case]));
    csv.row(&["lossless"], &[128.0, 16.0, 0.0, whole, whole - without]);
    csv.row(&["one lost"], &[128.0, 16.0, 1.0, single, single - whole]);
    csv.row(&["16 in a row lost"], &[128.0, 16.0, 16.0, burst, burst - whole]);
    csv.row(&["go-back-N, one lost"], &[0.0, 0.0, 1.0, again, again - without]);
    let repairs: Vec<f64> =
        sizes.iter().map(|r| (1_000_000f64 / 1024.0 / f64::from(*r)).ceil() * packet_us).collect();
    let off = lossless.iter().zip(&repairs).map(|((_, more), sent)| (more - sent).abs() / sent);
    let worst_off = off.fold(0.0, f64::max);
    let statements = vec![
        Statement {
            section: "VI-B, figure 13a",
            paper: "lossless, the time grows by the transmission of the repairs".to_owned(),
            ours: format!("within {:.0} % of that", worst_off * 100.0),
            verdict: if worst_off < 0.15 { Verdict::Holds } else { Verdict::Differs },
            why: None,
        },
        Statement {
            section: "VI-B, figure 13b",
            paper: "recovery takes time in proportion to r, twice as much for two blocks".to_owned(),
            ours: format!(
                "{:.1} us at r = 8, {:.1} us at r = 128; two blocks {:.1} us",
                one[0].1,
                one[4].1,
                two[4].1
            ),
            verdict: if one[4].1 < packet_us { Verdict::Exceeded } else { Verdict::Differs },
            why: Some(
                "later packets are placed at once, so nothing has to be drained; a lost packet is not even carried"
                    .to_owned(),
            ),
        },
        Statement {
            section: "VI-B, figure 13c",
            paper: "(128,16): one loss takes as long as 16 in a row".to_owned(),
            ours: format!("{:.1} and {:.1} us", single - whole, burst - whole),
            verdict: if (single - burst).abs() < 17.0 * packet_us { Verdict::Holds } else { Verdict::Differs },
            why: None,
        },
        Statement {
            section: "VI-B",
            paper: "(not in the paper) go-back-N for one loss".to_owned(),
            ours: format!("{:.1} us", again - without),
            verdict: Verdict::Holds,
            why: Some("in a LAN going back costs a round trip of 50 us and what is in flight".to_owned()),
        },
    ];
    let axis = || Axis::doubling("r, packets of a block", plain);
    let charts = vec![
        Chart {
            title: "lossless".to_owned(),
            x: axis(),
            y: Axis::linear("us more than without a shim"),
            series: vec![
                Series::new("measured", lossless),
                Series::new(
                    "transmission of the repairs",
                    sizes.iter().map(|r| f64::from(*r)).zip(repairs).collect(),
                ),
            ],
            marks: Vec::new(),
        },
        Chart {
            title: "recovery".to_owned(),
            x: axis(),
            y: Axis::linear("us more than lossless"),
            series: vec![
                Series::new("one lost", one),
                Series::new("one in each of two blocks", two),
            ],
            marks: Vec::new(),
        },
    ];
    Ok(Outcome {
        paper: NAME,
        item: Item::Figure(13),
        live: false,
        title: title(Item::Figure(13)),
        workload:
            "a WRITE of 1 MB alone, MTU 1024, 10 Gbit/s, 50 us, virtual time (no processor time)"
                .to_owned(),
        statements,
        charts,
        rows: None,
        remarks: Vec::new(),
        csv,
    })
}
