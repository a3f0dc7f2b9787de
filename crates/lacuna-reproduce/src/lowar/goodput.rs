//! Figures 3a and 9: goodput of WRITEs of 1 MB back to back, by loss, round trip and number of connections.

use super::{MS_NS, NAME, RATE_BITS_PER_S, Scheme, gbit, loss_axis, loss_place, losses, title};
use crate::cells::{Lab, Stopped};
use crate::connections::{Measured, Workload};
use crate::outcome::{Csv, Item, Outcome, Statement, Verdict};
use lacuna_model::Loss as ModelLoss;
use lacuna_planner::chart::{Axis, Chart, Series};

/// The paper's baseline at 40 ms without loss, and at 1e-5 (II-C).
const CARD_GBIT: (f64, f64) = (9.21, 2.92);

/// A point of a grid.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    scheme: Scheme,
    rtt_ns: u64,
    connections: u32,
    loss: f64,
}

#[derive(Debug)]
struct Grid {
    points: Vec<Point>,
    measured: Vec<Measured>,
    workloads: Vec<Workload>,
    seeds: u64,
}

impl Grid {
    fn run(lab: &Lab<'_>, points: Vec<Point>) -> Result<Self, Stopped> {
        let seeds = lab.effort.pick(2, 5);
        let workloads: Vec<_> = points
            .iter()
            .map(|point| {
                let Point { scheme, rtt_ns, connections, loss } = *point;
                let plain = Workload::new(RATE_BITS_PER_S, rtt_ns, losses(loss));
                // A LAN's round trips are many in little time.
                let round_trips = lab.effort.pick(30, 250);
                let duration_ns =
                    (round_trips * rtt_ns).max(lab.effort.pick(MS_NS * 200, MS_NS * 2000));
                let depth = plain.depth.div_ceil(connections as usize).max(2);
                let warm_up_ns = plain.warm_up_ns.max(10 * MS_NS);
                scheme.on(Workload { connections, depth, duration_ns, warm_up_ns, ..plain })
            })
            .collect();
        let measured = lab.run(&workloads, seeds)?;
        Ok(Self { points, measured, workloads, seeds })
    }

    fn at(&self, point: Point) -> f64 {
        let index = self.points.iter().position(|other| *other == point);
        index.map_or(f64::NAN, |index| self.measured[index].goodput_bits_per_s)
    }

    fn closed_form(&self, index: usize) -> Option<f64> {
        let (point, workload) = (self.points[index], &self.workloads[index]);
        let share = point.scheme.closed_form(workload, ModelLoss::PerPacket(point.loss))?;
        Some(share * workload.goodput_max())
    }

    fn csv(&self) -> Csv {
        let mut csv = Csv::new(
            "scheme,rtt_ms,connections,loss,goodput_gbit_per_s,closed_form_gbit_per_s,retransmitted_share,repair_share",
        );
        for (index, (point, measured)) in self.points.iter().zip(&self.measured).enumerate() {
            let packets = measured.packets.max(1) as f64;
            let closed = self.closed_form(index).map_or(f64::NAN, gbit);
            csv.row(
                &[point.scheme.name],
                &[
                    point.rtt_ns as f64 / 1e6,
                    point.connections.into(),
                    point.loss,
                    gbit(measured.goodput_bits_per_s),
                    closed,
                    measured.retransmitted_packets as f64 / packets,
                    measured.repairs as f64 / (packets + measured.repairs as f64),
                ],
            );
        }
        csv
    }

    /// Lines by loss of what is at this place.
    fn lines(&self, rtt_ns: u64, connections: u32, schemes: &[Scheme]) -> Vec<Series> {
        let mut lines = Vec::new();
        for scheme in schemes {
            let is_there = |point: &Point| {
                (point.scheme, point.rtt_ns, point.connections) == (*scheme, rtt_ns, connections)
            };
            let there: Vec<_> =
                (0..self.points.len()).filter(|index| is_there(&self.points[*index])).collect();
            let line = |value: &dyn Fn(usize) -> Option<f64>| -> Vec<(f64, f64)> {
                let point = |index: &usize| {
                    Some((loss_place(self.points[*index].loss), gbit(value(*index)?)))
                };
                there.iter().filter_map(point).collect()
            };
            let measured = line(&|index| Some(self.measured[index].goodput_bits_per_s));
            lines.push(Series::new(scheme.name, measured).of(scheme.name));
            let closed = line(&|index| self.closed_form(index));
            if !closed.is_empty() {
                let name = format!("{}, closed form", scheme.name);
                lines.push(Series::new(name, closed).second_of(scheme.name));
            }
        }
        lines
    }
}

fn chart(title: String, series: Vec<Series>) -> Chart {
    Chart { title, x: loss_axis(), y: Axis::linear("goodput in Gbit/s"), series, marks: Vec::new() }
}

pub(super) fn figure_3(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let (wan, lan) = (40 * MS_NS, MS_NS / 10);
    let scheme = Scheme::GO_BACK_N;
    let wan_losses: &[f64] = lab
        .effort
        .pick(&[0.0, 1e-5, 1e-4, 1e-3], &[0.0, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3]);
    let lan_losses: &[f64] = lab
        .effort
        .pick(&[0.0, 1e-4, 1e-3, 5e-3, 1e-2], &[0.0, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2]);
    let mut points = Vec::new();
    for connections in [1, 16, 32] {
        points.extend(wan_losses.iter().map(|loss| Point {
            scheme,
            rtt_ns: wan,
            connections,
            loss: *loss,
        }));
    }
    points.extend(lan_losses.iter().map(|loss| Point {
        scheme,
        rtt_ns: lan,
        connections: 1,
        loss: *loss,
    }));
    let grid = Grid::run(lab, points)?;
    let at = |rtt_ns, connections, loss| gbit(grid.at(Point { scheme, rtt_ns, connections, loss }));
    let (whole, at_1e5) = (at(wan, 1, 0.0), at(wan, 1, 1e-5));
    let (kept, card_kept) = (at_1e5 / whole, CARD_GBIT.1 / CARD_GBIT.0);
    let (of_16, of_32) = (at(wan, 16, 1e-4), at(wan, 32, 1e-4));
    let lan_kept = [1e-3, 5e-3].map(|loss| at(lan, 1, loss) / at(lan, 1, 0.0));
    let statements = vec![
        Statement::at_least(
            "II-C",
            "one connection saturates 10 Gbit/s over 40 ms: 9.21 Gbit/s".to_owned(),
            format!("{whole:.2} Gbit/s"),
            (CARD_GBIT.0, whole),
            0.95,
        ),
        Statement {
            section: "II-C",
            paper: format!("at a loss of 1e-5 2.92 Gbit/s are left, {:.0} %", card_kept * 100.0),
            ours: format!("{at_1e5:.2} Gbit/s, {:.0} %", kept * 100.0),
            verdict: Verdict::Differs,
            why: Some(
                "the card pays 4.65 windows a loss, go-back-N as specified pays one: 68 %"
                    .to_owned(),
            ),
        },
        Statement {
            section: "II-C",
            paper: "nearly nothing is left above 1e-3".to_owned(),
            ours: format!("{:.0} % at 1e-3", at(wan, 1, 1e-3) / whole * 100.0),
            verdict: if at(wan, 1, 1e-3) / whole < 0.05 {
                Verdict::Holds
            } else {
                Verdict::Differs
            },
            why: None,
        },
        Statement {
            section: "II-C",
            paper: "in a LAN only losses above 5e-3 hurt".to_owned(),
            ours: format!(
                "{:.0} % is kept at 1e-3, {:.0} % at 5e-3",
                lan_kept[0] * 100.0,
                lan_kept[1] * 100.0
            ),
            verdict: if lan_kept[0] > 0.85 { Verdict::Holds } else { Verdict::Differs },
            why: Some(
                "over 0.1 ms; after each pause the sender makes up for up to 1 ms at once, which waits in front of the link, so a loss costs ten round trips: the closed form has 89 % and 63 %"
                    .to_owned(),
            ),
        },
        Statement {
            section: "II-C",
            paper: "no gain from 16 to 32 connections".to_owned(),
            ours: format!("at 1e-4 {of_16:.2} Gbit/s with 16, {of_32:.2} with 32"),
            verdict: if of_32 < of_16 * 1.1 { Verdict::Holds } else { Verdict::Differs },
            why: Some(
                "a loss costs the window of one connection: twice as many connections, half the waste"
                    .to_owned(),
            ),
        },
    ];
    let charts = vec![
        chart("40 ms, 1 connection".to_owned(), grid.lines(wan, 1, &[scheme])),
        chart("40 ms, 16 connections".to_owned(), grid.lines(wan, 16, &[scheme])),
        chart("40 ms, 32 connections".to_owned(), grid.lines(wan, 32, &[scheme])),
        chart("0.1 ms (LAN)".to_owned(), grid.lines(lan, 1, &[scheme])),
    ];
    Ok(Outcome {
        paper: NAME,
        item: Item::Figure(3),
        live: false,
        title: title(Item::Figure(3)),
        workload: workload(grid.seeds),
        statements,
        charts,
        rows: None,
        remarks: Vec::new(),
        csv: grid.csv(),
    })
}

fn workload(seeds: u64) -> String {
    format!(
        "WRITEs of 1 MB back to back, MTU 1024, 10 Gbit/s, losses both ways, {seeds} seeds pooled, virtual time"
    )
}

pub(super) fn figure_9(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let schemes = [
        Scheme::GO_BACK_N,
        Scheme::lowar("LoWAR(32,1)", 32, 1),
        Scheme::lowar("LoWAR(8,1)", 8, 1),
        Scheme::SELECTIVE,
    ];
    let [gbn, wide, narrow, _] = schemes;
    let losses: &[f64] = lab.effort.pick(
        &[0.0, 1e-5, 1e-4, 1e-3],
        &[0.0, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 1e-2],
    );
    let mut points = Vec::new();
    for rtt_ns in [40 * MS_NS, 80 * MS_NS] {
        for connections in [1, 16] {
            for scheme in schemes {
                points.extend(losses.iter().map(|loss| Point {
                    scheme,
                    rtt_ns,
                    connections,
                    loss: *loss,
                }));
            }
        }
    }
    let grid = Grid::run(lab, points)?;
    let at = |scheme, rtt_ms: u64, connections, loss| {
        grid.at(Point { scheme, rtt_ns: rtt_ms * MS_NS, connections, loss })
    };
    let gain = |rtt_ms, connections, loss| {
        at(wide, rtt_ms, connections, loss) / at(gbn, rtt_ms, connections, loss)
    };
    let gains = |rtt_ms| {
        format!("{:.2} times at 1e-5, {:.2} at 1e-4", gain(rtt_ms, 1, 1e-5), gain(rtt_ms, 1, 1e-4))
    };
    let baseline = "the paper's baseline pays 4.65 windows a loss, ours one";
    let kept = at(wide, 40, 16, 1e-3) / at(wide, 40, 16, 0.0);
    let statements = vec![
        Statement::at_least(
            "VI-A",
            "40 ms, one connection: (32,1) has 2.05 to 5.01 times the goodput from 1e-5 to 1e-4"
                .to_owned(),
            gains(40),
            (5.01, gain(40, 1, 1e-4)),
            0.9,
        )
        .because(format!("at 1e-4; at 1e-5 {baseline}")),
        Statement::at_least(
            "VI-A",
            "80 ms: 11.55 to 19.07 times".to_owned(),
            gains(80),
            (11.55, gain(80, 1, 1e-4)),
            0.9,
        )
        .because(baseline),
        Statement::at_least(
            "VI-A",
            "16 connections at 1e-4: 1.28 times at 40 ms, 1.50 at 80 ms".to_owned(),
            format!("{:.2} and {:.2}", gain(40, 16, 1e-4), gain(80, 16, 1e-4)),
            (1.28, gain(40, 16, 1e-4)),
            0.95,
        ),
        Statement::at_least(
            "VI-A",
            "16 connections: (32,1) keeps 87.29 % at 1e-3".to_owned(),
            format!("{:.2} % at 40 ms", kept * 100.0),
            (0.8729, kept),
            0.95,
        ),
        Statement {
            section: "VI-A",
            paper: "(8,1) tolerates more loss than (32,1)".to_owned(),
            ours: format!(
                "at 1e-3, 80 ms: {:.2} and {:.2} Gbit/s",
                gbit(at(narrow, 80, 1, 1e-3)),
                gbit(at(wide, 80, 1, 1e-3))
            ),
            verdict: if at(narrow, 80, 1, 1e-3) > at(wide, 80, 1, 1e-3) {
                Verdict::Holds
            } else {
                Verdict::Differs
            },
            why: None,
        },
    ];
    let charts = [(40, 1), (40, 16), (80, 1), (80, 16)].map(|(rtt_ms, connections)| {
        let title = format!(
            "{rtt_ms} ms, {connections} {}",
            if connections == 1 { "connection" } else { "connections" }
        );
        chart(title, grid.lines(rtt_ms * MS_NS, connections, &schemes))
    });
    Ok(Outcome {
        paper: NAME,
        item: Item::Figure(9),
        live: false,
        title: title(Item::Figure(9)),
        workload: workload(grid.seeds),
        statements,
        charts: charts.into(),
        rows: None,
        remarks: Vec::new(),
        csv: grid.csv(),
    })
}
