//! Figures 8 and 9: what is left of 500 Mbit/s under independent losses, by the length of messages.
//!
//! One grid gives both: a message in fragmented datagrams that came whole is figure 8's, each datagram that came
//! figure 9's. In virtual time all schemes of a cell lose the same packets by their numbers; live runs fill the
//! same grid ([`Measurement`]). Shares are of the same scheme without loss, so that headers do not matter.

use super::fragments::{CameInDatagrams, Datagrams, Reassembly, SEGMENT_BYTES};
use super::stream::{Stream, Verb};
use super::{LIVE, NAME, title};
use crate::cells::{Effort, Lab, Stopped};
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Verdict};
use lacuna_planner::chart::{Axis, Chart, Series, plain, size};

/// What the source offers, headers included.
pub const RATE_BITS_PER_S: u64 = 500_000_000;
/// What Write-Records have to keep, of 1 - p.
const KEPT_MIN: f64 = 0.99;
/// Survival of a segment of 45 fragments at losses of 0.1, 0.5, 1 and 5 %: the paper's partial placement at best.
const SEGMENT_SURVIVAL: &str = "0.956, 0.798, 0.636, 0.099";
const LARGE_BYTES: u32 = 1 << 20;
const MEDIUM_BYTES: u32 = 64 << 10;

/// A way to bring messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Sends of a datagram queue pair.
    Send,
    /// The same, repaired until they have come (RD).
    Reliable,
    /// Its Write-Records.
    WriteRecord,
    /// UDP datagrams of up to 64 KiB, in IP fragments.
    Fragments(Reassembly),
}

/// In the order in which each cell's numbers are.
const SCHEMES: [Scheme; 5] = [
    Scheme::Send,
    Scheme::Reliable,
    Scheme::WriteRecord,
    Scheme::Fragments(Reassembly::Unbounded),
    Scheme::Fragments(Reassembly::Linux),
];

/// What is shown of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    /// Whole messages.
    Whole,
    /// Everything that was placed.
    Placed,
}

impl View {
    fn of(item: Item) -> Option<Self> {
        match item {
            Item::Figure(8) => Some(Self::Whole),
            Item::Figure(9) => Some(Self::Placed),
            _ => None,
        }
    }

    fn schemes(self) -> impl Iterator<Item = Scheme> {
        let is_send = |scheme| matches!(scheme, Scheme::Send | Scheme::Reliable);
        SCHEMES.into_iter().filter(move |scheme| self == Self::Whole || !is_send(*scheme))
    }
}

impl Scheme {
    fn name(self, view: View) -> &'static str {
        match (self, view) {
            (Self::Send, _) => "Send",
            (Self::Reliable, _) => "Send, reliable",
            (Self::WriteRecord, _) => "Write-Record",
            (Self::Fragments(Reassembly::Unbounded), View::Whole) => "64 KiB datagrams, whole",
            (Self::Fragments(Reassembly::Unbounded), View::Placed) => "64 KiB datagrams, each",
            (Self::Fragments(Reassembly::Linux), View::Whole) => "the same on Linux, whole",
            (Self::Fragments(Reassembly::Linux), View::Placed) => "the same on Linux, each",
        }
    }
}

/// A point of the grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// How.
    pub scheme: Scheme,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Share of packets that are lost.
    pub loss: f64,
}

impl Cell {
    /// In words, for progress and remarks.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { scheme, message_bytes, loss } = self;
        let (name, bytes) = (scheme.name(View::Whole), size(f64::from(*message_bytes)));
        format!("{name}, {bytes}, loss {} %", percent(*loss))
    }

    fn run(&self, duration_ns: u64, stop: &dyn Fn() -> bool) -> Option<CameInDatagrams> {
        let Self { scheme, message_bytes, loss } = *self;
        let (rate_bits_per_s, seed) = (RATE_BITS_PER_S, u64::from(message_bytes));
        let verb = match scheme {
            Scheme::Send | Scheme::Reliable => Verb::Send,
            Scheme::WriteRecord => Verb::WriteRecord,
            Scheme::Fragments(reassembly) => {
                let datagrams = Datagrams {
                    reassembly,
                    message_bytes,
                    rate_bits_per_s,
                    loss,
                    duration_ns,
                    seed,
                };
                return datagrams.run(stop);
            }
        };
        let reliable = scheme == Scheme::Reliable;
        let stream =
            Stream { verb, reliable, message_bytes, rate_bits_per_s, loss, duration_ns, seed };
        let placed = stream.run(stop)?;
        Some(CameInDatagrams { placed, whole_bytes: placed.whole * u64::from(message_bytes) })
    }
}

/// The cells of a grid, and how long each is measured in virtual time.
#[must_use]
pub fn cells(effort: Effort, is_live: bool) -> Vec<Cell> {
    let sizes: Vec<u32> = match (effort, is_live) {
        (Effort::Full, false) => (10..=20).map(|bits| 1 << bits).collect(),
        (Effort::Quick, true) => vec![1 << 10, 16 << 10, MEDIUM_BYTES, LARGE_BYTES],
        _ => vec![1 << 10, 4 << 10, 16 << 10, MEDIUM_BYTES, 256 << 10, LARGE_BYTES],
    };
    let losses: &[f64] =
        effort.pick(&[0.0, 1e-3, 1e-2, 5e-2], &[0.0, 1e-3, 5e-3, 1e-2, 2e-2, 3e-2, 4e-2, 5e-2]);
    losses
        .iter()
        .flat_map(|loss| sizes.iter().map(move |bytes| (*loss, *bytes)))
        .flat_map(|(loss, message_bytes)| {
            SCHEMES.map(|scheme| Cell { scheme, message_bytes, loss })
        })
        .collect()
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Whether real programs were.
    pub live: bool,
    /// How long each cell took.
    pub time_s: f64,
    /// Each cell's numbers, or why there are none.
    pub runs: Vec<(Cell, Result<CameInDatagrams, String>)>,
    /// Cells that there should be.
    pub planned: usize,
}

impl Measurement {
    fn in_virtual_time(lab: &Lab<'_>) -> Result<Self, Stopped> {
        let cells = cells(lab.effort, false);
        let duration_ns = lab.effort.pick(1_000_000_000, 5_000_000_000);
        let came = lab.each(&cells, |cell| cell.run(duration_ns, lab.stop))?;
        let planned = cells.len();
        let runs = cells.into_iter().zip(came.into_iter().map(Ok)).collect();
        Ok(Self { live: false, time_s: duration_ns as f64 / 1e9, runs, planned })
    }

    fn at(&self, cell: Cell) -> Option<&CameInDatagrams> {
        let (_, came) = self.runs.iter().find(|(other, _)| *other == cell)?;
        came.as_ref().ok()
    }

    /// Goodput of what is shown; not a number if there is none.
    fn goodput(&self, cell: Cell, view: View) -> f64 {
        match (self.at(cell), cell.scheme, view) {
            (None, ..) => f64::NAN,
            (Some(came), Scheme::Fragments(_), View::Whole) => came.whole_bits_per_s(),
            (Some(came), ..) => came.placed.goodput_bits_per_s(),
        }
    }

    /// Of what was offered, what is shown, as a share of lossless: the goodput's share where as much is offered.
    /// A busy machine may offer less in one live run than in another, which is not the path's doing.
    fn share(&self, cell: Cell, view: View) -> f64 {
        let kept = |cell: Cell| {
            let came = self.at(cell)?;
            if cell.scheme == Scheme::Reliable {
                // All comes, and what was lost costs time.
                return Some(came.placed.goodput_bits_per_s());
            }
            let bytes = match (cell.scheme, view) {
                (Scheme::Fragments(_), View::Whole) => came.whole_bytes,
                _ => came.placed.placed_bytes,
            };
            Some(bytes as f64 / came.placed.offered_bytes as f64)
        };
        let lossless = kept(Cell { loss: 0.0, ..cell });
        kept(cell).zip(lossless).map_or(f64::NAN, |(kept, lossless)| kept / lossless)
    }

    /// The lengths, and the losses without none.
    fn axes(&self) -> (Vec<u32>, Vec<f64>) {
        let mut sizes: Vec<u32> = self.runs.iter().map(|(cell, _)| cell.message_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut losses: Vec<f64> = self.runs.iter().map(|(cell, _)| cell.loss).collect();
        losses.retain(|loss| *loss > 0.0);
        losses.sort_by(f64::total_cmp);
        losses.dedup();
        (sizes, losses)
    }

    fn charts(&self, view: View) -> Vec<Chart> {
        let (sizes, losses) = self.axes();
        let chart = |loss: f64| Chart {
            title: format!("loss {} %", percent(loss)),
            x: Axis::log("bytes of a message", size),
            y: Axis::linear("share of the goodput without loss"),
            series: view
                .schemes()
                .map(|scheme| {
                    let point = |message_bytes: &u32| {
                        let cell = Cell { scheme, message_bytes: *message_bytes, loss };
                        (f64::from(*message_bytes), self.share(cell, view))
                    };
                    let points = sizes.iter().map(point).filter(|(_, share)| share.is_finite());
                    Series::new(scheme.name(view), points.collect())
                })
                .filter(|series| !series.points.is_empty())
                .collect(),
            marks: Vec::new(),
        };
        losses.into_iter().map(chart).filter(|chart| !chart.series.is_empty()).collect()
    }

    fn csv(&self, view: View) -> Csv {
        let mut csv = Csv::new(
            "scheme,message_bytes,loss,goodput_bits_per_s,share_of_lossless,messages,whole,partial,packets,lost_packets",
        );
        for (cell, came) in &self.runs {
            let Ok(came) = came else { continue };
            if !view.schemes().any(|scheme| scheme == cell.scheme) {
                continue;
            }
            let placed = &came.placed;
            let counts = [
                placed.messages,
                placed.whole,
                placed.partial,
                placed.packets,
                placed.lost_packets,
            ];
            let goodput = self.goodput(*cell, view);
            let share = self.share(*cell, view);
            let mut numbers = vec![f64::from(cell.message_bytes), cell.loss, goodput, share];
            numbers.extend(counts.map(|count| count as f64));
            csv.row(&[&cell.scheme.name(view).replace(',', "")], &numbers);
        }
        csv
    }

    /// A row for each length and loss, a column for each scheme.
    fn rows(&self, view: View) -> Rows {
        let (sizes, losses) = self.axes();
        let mut header = vec!["share of lossless".to_owned(), "loss".to_owned()];
        header.extend(view.schemes().map(|scheme| scheme.name(view).to_owned()));
        let mut rows = Vec::new();
        for loss in losses {
            for message_bytes in &sizes {
                let mut row = vec![size(f64::from(*message_bytes)), format!("{} %", percent(loss))];
                row.extend(view.schemes().map(|scheme| {
                    let cell = Cell { scheme, message_bytes: *message_bytes, loss };
                    match self.share(cell, view) {
                        share if share.is_finite() => format!("{share:.4}"),
                        _ => "-".to_owned(),
                    }
                }));
                rows.push(row);
            }
        }
        Rows { header, rows }
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = vec![format!(
            "64 KiB datagrams: up to {SEGMENT_BYTES} bytes of a message in each, which IP cuts into up to 45 fragments; whole: all datagrams of a message came; on Linux: it keeps 4 MiB of broken ones for 30 s, without: they have memory enough"
        )];
        let failed = self.runs.iter().filter_map(|(cell, came)| Some((cell, came.as_ref().err()?)));
        remarks.extend(failed.map(|(cell, why)| format!("No number for {}: {why}", cell.words())));
        if self.runs.len() < self.planned {
            remarks.push(format!("{} of {} runs were done", self.runs.len(), self.planned));
        }
        remarks
    }

    /// What the numbers come to; `None` if that is not figure 8 or 9.
    #[must_use]
    pub fn outcome(&self, item: Item) -> Option<Outcome> {
        let view = View::of(item)?;
        let time = if self.live { "measured over an emulated link" } else { "virtual time" };
        let statements = match view {
            View::Whole => self.of_whole(),
            View::Placed => self.of_placed(),
        };
        Some(Outcome {
            paper: NAME,
            item,
            live: self.live,
            title: title(if self.live { &LIVE } else { &super::EXPERIMENTS }, item),
            workload: format!(
                "messages back to back at 500 Mbit/s with headers, packets of 1,500 bytes, independent losses, {} s a cell, {time}",
                plain(self.time_s)
            ),
            statements,
            charts: self.charts(view),
            rows: Some(self.rows(view)),
            remarks: self.remarks(),
            csv: self.csv(view),
        })
    }

    fn of_whole(&self) -> Vec<Statement> {
        let at = |scheme, message_bytes| {
            self.share(Cell { scheme, message_bytes, loss: 1e-2 }, View::Whole)
        };
        let fragments = Scheme::Fragments(Reassembly::Unbounded);
        let linux = Scheme::Fragments(Reassembly::Linux);
        let large = [fragments, Scheme::Send].map(|scheme| at(scheme, LARGE_BYTES));
        let medium = [fragments, linux, Scheme::Send].map(|scheme| at(scheme, MEDIUM_BYTES));
        let holds = |is_so| if is_so { Verdict::Holds } else { Verdict::Differs };
        vec![
            Statement {
                section: "3.2.3, figure 8",
                paper: "a lost segment loses the message: catastrophic for large messages"
                    .to_owned(),
                ours: format!(
                    "1 MiB at 1 %: {:.4} of lossless in 64 KiB datagrams, {:.4} by Send",
                    large[0], large[1]
                ),
                verdict: holds(large.iter().all(|share| *share < 0.1)),
                why: Some(
                    "a message that has to be whole has a chance of 0.99^700, however it is cut; Write-Record (figure 9) keeps what came"
                        .to_owned(),
                ),
            },
            Statement {
                section: "3.2.3, figure 8",
                paper: "observable losses for medium messages".to_owned(),
                ours: format!(
                    "64 KiB at 1 %: {:.3} of lossless in fragments alone, {:.3} on Linux, {:.3} by Send",
                    medium[0], medium[1], medium[2]
                ),
                verdict: holds((0.5..0.8).contains(&medium[0])),
                why: Some(
                    "fragments alone leave 0.636; Linux keeps what is broken and then takes nothing new"
                        .to_owned(),
                ),
            },
        ]
    }

    fn of_placed(&self) -> Vec<Statement> {
        let kept = |cell: Cell| {
            let came = self.at(cell)?;
            // What was lost in this run, not on average: a live run is short.
            let lost = came.placed.lost_packets as f64 / came.placed.packets.max(1) as f64;
            let share = self.share(cell, View::Placed);
            Some((share / (1.0 - cell.loss), share / (1.0 - lost), cell))
        };
        let cells = self.runs.iter().map(|(cell, _)| *cell);
        let least = cells
            .filter(|cell| cell.scheme == Scheme::WriteRecord && cell.loss > 0.0)
            .filter_map(kept)
            .filter(|(kept, ..)| kept.is_finite())
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let large = |scheme| {
            self.share(Cell { scheme, message_bytes: LARGE_BYTES, loss: 5e-2 }, View::Placed)
        };
        let fragments = large(Scheme::Fragments(Reassembly::Unbounded));
        let ours = large(Scheme::WriteRecord);
        let mut statements = Vec::new();
        if let Some((kept, of_run, cell)) = least {
            statements.push(Statement {
                section: "3.2.3, figure 9",
                paper: format!(
                    "a drop at 64 kB, then partial placement holds: of a segment {SEGMENT_SURVIVAL} come at 0.1, 0.5, 1, 5 %"
                ),
                ours: format!(
                    "at least {kept:.4} (1 - p) of lossless at every length; least at {}, {} %, where {of_run:.4} of what was not lost is there",
                    size(cell.message_bytes.into()),
                    percent(cell.loss)
                ),
                verdict: if kept >= KEPT_MIN { Verdict::Exceeded } else { Verdict::Differs },
                why: Some("each packet is placed by itself: a loss costs its own bytes".to_owned()),
            });
        }
        statements.push(Statement::at_least(
            "3.2.3, figure 9",
            "partial placement makes large messages of use under loss".to_owned(),
            format!(
                "1 MiB at 5 %: {ours:.3} of lossless by packets, {fragments:.3} by 64 KiB datagrams"
            ),
            (fragments, ours),
            0.9,
        ));
        statements
    }
}

fn percent(share: f64) -> String {
    plain(share * 100.0)
}

pub(super) fn figure(item: Item, lab: &Lab<'_>) -> Option<Result<Outcome, Stopped>> {
    View::of(item)?;
    match Measurement::in_virtual_time(lab) {
        Ok(measurement) => measurement.outcome(item).map(Ok),
        Err(stopped) => Some(Err(stopped)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_records_keep_what_was_not_lost_at_every_length() {
        let stop = || false;
        for message_bytes in [1 << 10, 64 << 10, 1 << 20] {
            let share = |loss| {
                let cell = Cell { scheme: Scheme::WriteRecord, message_bytes, loss };
                let came = cell.run(500_000_000, &stop).expect("not stopped").placed;
                (came.goodput_bits_per_s(), came.lost_packets as f64 / came.packets as f64)
            };
            let (lossless, none) = share(0.0);
            assert_eq!(none, 0.0);
            for loss in [0.001, 0.05] {
                let (goodput, lost) = share(loss);
                // By what was lost in this run, as it is short.
                assert!(goodput >= 0.99 * (1.0 - lost) * lossless, "{message_bytes} at {loss}");
            }
        }
    }

    #[test]
    fn an_experiment_that_is_stopped_has_no_outcome() {
        let lab = Lab { effort: Effort::Quick, stop: &|| true, progress: &|_, _| {} };
        let run = |number| super::super::run(Item::Figure(number), &lab);
        assert!(run(9).is_some_and(|outcome| outcome.is_err()));
        assert!(run(7).is_none());
    }

    #[test]
    fn numbers_that_are_missing_are_said_and_change_no_verdict() {
        let came = |placed_bytes| {
            let placed = super::super::Came {
                placed_bytes,
                offered_bytes: 1000,
                packets: 100,
                sent_ns: 1_000_000_000,
                ..Default::default()
            };
            CameInDatagrams { placed, whole_bytes: 0 }
        };
        let cell = |scheme, loss| Cell { scheme, message_bytes: LARGE_BYTES, loss };
        let runs = vec![
            (cell(Scheme::WriteRecord, 0.0), Ok(came(1000))),
            (cell(Scheme::WriteRecord, 0.01), Ok(came(985))),
            (cell(Scheme::Send, 0.01), Err("no route".to_owned())),
        ];
        let measurement = Measurement { live: true, time_s: 1.0, runs, planned: 4 };
        let outcome = measurement.outcome(Item::Figure(9)).expect("there is one");
        assert_eq!(outcome.statements[0].verdict, Verdict::Exceeded);
        let remarks = outcome.remarks.join("\n");
        assert!(remarks.contains("Send, 1 MiB, loss 1 %: no route"), "{remarks}");
        assert!(remarks.contains("3 of 4 runs"), "{remarks}");
        assert!(measurement.outcome(Item::Figure(5)).is_none());
    }
}
