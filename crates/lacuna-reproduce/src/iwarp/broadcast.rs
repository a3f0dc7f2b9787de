//! Figure 7: a broadcast Send to several receivers, and what each of them has of it.
//!
//! The paper broadcasts without losses, and its switch has 12 to 13 % overhead for large messages. Here there are
//! lossless runs for one to three receivers, and lossy ones, in which each receiver loses by itself, with and
//! without repairs. The measurements are somebody else's work, since nothing here opens a socket: [`runs`] says which
//! there are, [`Shares`] takes their numbers.

use super::{LIVE, NAME, title};
use crate::cells::Effort;
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Verdict};
use lacuna_planner::chart::{Axis, Chart, Series, plain, size};

/// What the source offers, headers included.
pub const RATE_BITS_PER_S: u64 = 300_000_000;
/// Receivers at most, as the paper has.
pub const RECEIVERS_MAX: u8 = 3;
/// Share of packets that each receiver loses in the lossy runs.
const LOSS: f64 = 1e-2;
/// Messages from here on have the paper's overhead, of which this is what it leaves.
const LARGE_BYTES: u32 = 64 << 10;
const PAPER_SHARE: f64 = 0.87;
const LONGEST_BYTES: u32 = 1 << 20;
/// Messages of one packet.
const SHORT_BYTES: u32 = 1 << 10;
/// How near to linear a bandwidth is that scales well.
const SCALES_WELL: f64 = 0.95;
const SECTION: &str = "3.2.2, figure 7";

/// A broadcast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// How many hear it.
    pub receivers: u8,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Share of packets that each receiver loses, by itself.
    pub loss: f64,
    /// Whether what receivers miss is sent again.
    pub repairs: bool,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Came {
    /// Payload that left, without repairs.
    pub offered_bits_per_s: f64,
    /// Share of its bytes that each receiver has.
    pub shares: Vec<f64>,
    /// Packets that left, repairs included.
    pub packets: u64,
    /// Those that left again.
    pub packets_again: u64,
    /// Frames that this machine lost by itself.
    pub dropped_frames: u64,
}

impl Run {
    /// In words, for progress and remarks.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { receivers, message_bytes, loss, repairs } = self;
        let plural = if *receivers == 1 { "" } else { "s" };
        let (bytes, percent) = (size(f64::from(*message_bytes)), plain(loss * 100.0));
        let repairs = if *repairs { "" } else { ", no repairs" };
        format!("{receivers} receiver{plural}, {bytes}, loss {percent} %{repairs}")
    }
}

impl Came {
    /// The least share of a receiver; not a number if there is none.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.shares.iter().copied().fold(f64::NAN, f64::min)
    }

    /// Payload at all receivers together.
    #[must_use]
    pub fn aggregate_bits_per_s(&self) -> f64 {
        self.offered_bits_per_s * self.shares.iter().sum::<f64>()
    }
}

/// What figure 7 needs. What is compared stands side by side, so that the machine is in the same state.
#[must_use]
pub fn runs(effort: Effort) -> Vec<Run> {
    let sizes: Vec<u32> = match effort {
        Effort::Quick => vec![1 << 10, 8 << 10, LARGE_BYTES, 256 << 10, LONGEST_BYTES],
        Effort::Full => (3..=10).map(|bits| 1 << (2 * bits)).collect(),
    };
    let mut runs = Vec::new();
    for message_bytes in sizes {
        let run = |receivers, loss, repairs| Run { receivers, message_bytes, loss, repairs };
        runs.extend((1..=RECEIVERS_MAX).map(|receivers| run(receivers, 0.0, true)));
        runs.push(run(RECEIVERS_MAX, 0.0, false));
        runs.extend([true, false].map(|repairs| run(RECEIVERS_MAX, LOSS, repairs)));
    }
    runs
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Shares {
    /// How long each was measured.
    pub time_s: f64,
    /// Each one's numbers, or why there are none.
    pub runs: Vec<(Run, Result<Came, String>)>,
    /// Runs that there should be.
    pub planned: usize,
}

impl Shares {
    fn at(&self, run: Run) -> Option<&Came> {
        let (_, came) = self.runs.iter().find(|(other, _)| *other == run)?;
        came.as_ref().ok()
    }

    /// Lossless with repairs, the lengths that are measured so.
    fn lossless(&self, receivers: u8) -> impl Iterator<Item = (u32, &Came)> {
        self.runs.iter().filter_map(move |(run, came)| {
            let is_it = run.receivers == receivers && run.loss == 0.0 && run.repairs;
            came.as_ref().ok().filter(|_| is_it).map(|came| (run.message_bytes, came))
        })
    }

    /// How much more so many receivers have together than one, the least of these lengths. Each has a share of what was
    /// sent: a busy machine may send less in one run than in another, which is not the network's doing.
    fn scaling(&self, receivers: u8, is_one: impl Fn(u32) -> bool) -> f64 {
        let ratios = self.lossless(receivers).filter(|(bytes, _)| is_one(*bytes));
        let ratios = ratios.filter_map(|(message_bytes, came)| {
            let alone = Run { receivers: 1, message_bytes, loss: 0.0, repairs: true };
            Some(came.shares.iter().sum::<f64>() / self.at(alone)?.shares.iter().sum::<f64>())
        });
        ratios.fold(f64::NAN, f64::min)
    }

    /// The least share of any receiver of three, and at which length.
    fn least(&self, loss: f64, repairs: bool) -> (f64, u32) {
        let all = self.runs.iter().filter_map(|(run, came)| {
            let is_it =
                (run.receivers, run.repairs) == (RECEIVERS_MAX, repairs) && run.loss == loss;
            Some((came.as_ref().ok().filter(|_| is_it)?.least(), run.message_bytes))
        });
        all.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::NAN, 0))
    }

    fn statements(&self) -> Vec<Statement> {
        let all = f64::from(RECEIVERS_MAX);
        let small = |receivers| self.scaling(receivers, |bytes| bytes < LARGE_BYTES);
        let [two, three] = [2, RECEIVERS_MAX].map(small);
        let large = self.scaling(RECEIVERS_MAX, |bytes| bytes >= LARGE_BYTES);
        let scales = two >= 2.0 * SCALES_WELL && three >= all * SCALES_WELL;
        let (least, at) = self.least(0.0, true);
        let (bare, _) = self.least(0.0, false);
        let lossy = |repairs| {
            let run =
                Run { receivers: RECEIVERS_MAX, message_bytes: LONGEST_BYTES, loss: LOSS, repairs };
            self.at(run).map_or(f64::NAN, Came::least)
        };
        let [repaired, lost] = [true, false].map(lossy);
        let (repaired_any, repaired_at) = self.least(LOSS, true);
        let percent = plain(LOSS * 100.0);
        vec![
            Statement {
                section: SECTION,
                paper: "for two and three receivers the bandwidth scales well for small and medium messages"
                    .to_owned(),
                ours: format!("below 64 KiB at least {two:.2} and {three:.2} times that of one"),
                verdict: if scales { Verdict::Holds } else { Verdict::Differs },
                why: Some("of what was sent in each run".to_owned()),
            },
            Statement::at_least(
                SECTION,
                "above 64 kB three receivers have 12 to 13 % overhead: 2.61 times one".to_owned(),
                format!("from 64 KiB on at least {large:.2} times one"),
                (all * PAPER_SHARE, large),
                SCALES_WELL,
            ),
            Statement::at_least(
                SECTION,
                "which leaves each of them 0.87 of the bytes".to_owned(),
                format!(
                    "at 300 Mbit/s each of three has at least {least:.4}, the least at {}; without repairs {bare:.4}",
                    size(at.into())
                ),
                (PAPER_SHARE, least),
                SCALES_WELL,
            ),
            Statement::at_least(
                SECTION,
                "broadcasts are not repaired, and a lost segment loses the message (3.2.3)".to_owned(),
                format!(
                    "at {percent} % loss each of three has at least {repaired:.4} of 1 MiB messages with repairs, {lost:.4} without; of all lengths {repaired_any:.4}, at {}",
                    size(repaired_at.into())
                ),
                (lost, repaired),
                SCALES_WELL,
            )
            .because("each receiver asks for what it misses; several that ask for the same are answered once"),
        ]
    }

    fn charts(&self) -> Vec<Chart> {
        let x = || Axis::log("bytes of a message", size);
        let lines = (1..=RECEIVERS_MAX).map(|receivers| {
            let points = self.lossless(receivers);
            let points =
                points.map(|(bytes, came)| (f64::from(bytes), came.aggregate_bits_per_s() / 1e6));
            let plural = if receivers == 1 { "" } else { "s" };
            Series::new(format!("{receivers} receiver{plural}"), points.collect())
        });
        let share = |name: &str, repairs| {
            let points = self.runs.iter().filter_map(|(run, came)| {
                let came = came.as_ref().ok()?;
                (run.loss > 0.0 && run.repairs == repairs)
                    .then(|| (f64::from(run.message_bytes), came.least()))
            });
            Series::new(name, points.collect())
        };
        let bandwidth = Chart {
            title: "payload at all receivers, no loss".to_owned(),
            x: x(),
            y: Axis::linear("Mbit/s"),
            series: lines.filter(|line| !line.points.is_empty()).collect(),
            marks: Vec::new(),
        };
        let shares = [share("with repairs", true), share("without", false)].into_iter();
        let lossy = Chart {
            title: format!("three receivers, each loses {} %", plain(LOSS * 100.0)),
            x: x(),
            y: Axis::linear("least share of the bytes at a receiver"),
            series: shares.filter(|line| !line.points.is_empty()).collect(),
            marks: Vec::new(),
        };
        [bandwidth, lossy].into_iter().filter(|chart| !chart.series.is_empty()).collect()
    }

    /// What the numbers come to.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let mut csv = Csv::new(
            "repairs,receivers,message_bytes,loss,offered_bits_per_s,aggregate_bits_per_s,share_least,share_mean,packets,packets_again,dropped_frames",
        );
        let mut rows = Vec::new();
        for (run, came) in &self.runs {
            let Ok(came) = came else { continue };
            let mean = came.shares.iter().sum::<f64>() / came.shares.len().max(1) as f64;
            let numbers = [
                run.receivers.into(),
                run.message_bytes.into(),
                run.loss,
                came.offered_bits_per_s,
                came.aggregate_bits_per_s(),
                came.least(),
                mean,
                came.packets as f64,
                came.packets_again as f64,
                came.dropped_frames as f64,
            ];
            csv.row(&[if run.repairs { "yes" } else { "no" }], &numbers);
            let again = came.packets_again as f64 * 100.0 / came.packets.max(1) as f64;
            rows.push(vec![
                run.words(),
                format!("{:.1}", came.offered_bits_per_s / 1e6),
                format!("{:.1}", came.aggregate_bits_per_s() / 1e6),
                format!("{:.4}", came.least()),
                format!("{again:.2}"),
            ]);
        }
        let header = ["", "Mbit/s sent", "at all", "least share", "% again"];
        let mut remarks: Vec<String> = self
            .runs
            .iter()
            .filter_map(|(run, came)| Some((run.words(), came.as_ref().err()?)))
            .map(|(run, why)| format!("No number for {run}: {why}"))
            .collect();
        let is_short =
            |run: &Run| run.loss > 0.0 && run.repairs && run.message_bytes <= SHORT_BYTES;
        if self.runs.iter().any(|(run, _)| is_short(run)) {
            remarks.push(
                "Of messages of one packet, 30,000 a second, repairs come too late: a receiver knows which of the last 56 messages of a source it has, and drops older ones"
                    .to_owned(),
            );
        }
        let dropped = self.runs.iter().filter_map(|(_, came)| came.as_ref().ok());
        let dropped: u64 = dropped.map(|came| came.dropped_frames).sum();
        if dropped > 0 {
            remarks.push(format!(
                "{dropped} frames were lost by this machine itself, which was too slow"
            ));
        }
        if self.runs.len() < self.planned {
            remarks.push(format!("{} of {} runs were done", self.runs.len(), self.planned));
        }
        Outcome {
            paper: NAME,
            item: Item::Figure(7),
            live: true,
            title: title(&LIVE, Item::Figure(7)),
            workload: format!(
                "Sends to the broadcast address of an emulated LAN at 300 Mbit/s with headers, packets of 1,500 bytes, {} s each",
                plain(self.time_s)
            ),
            statements: self.statements(),
            charts: self.charts(),
            rows: Some(Rows { header: header.map(str::to_owned).into(), rows }),
            remarks,
            csv,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of the quick runs, with these shares at each receiver of a run.
    fn measured(share: impl Fn(&Run) -> f64) -> Shares {
        let runs = runs(Effort::Quick);
        let planned = runs.len();
        let came = |run: &Run| Came {
            offered_bits_per_s: 280e6,
            shares: vec![share(run); run.receivers.into()],
            packets: 1000,
            ..Came::default()
        };
        let runs = runs.into_iter().map(|run| (run, Ok(came(&run)))).collect();
        Shares { time_s: 2.0, runs, planned }
    }

    fn verdicts(shares: &Shares) -> Vec<Verdict> {
        shares.outcome().statements.iter().map(|statement| statement.verdict).collect()
    }

    #[test]
    fn what_scales_and_is_repaired_exceeds_the_paper() {
        let shares = measured(|run| if run.loss > 0.0 && !run.repairs { 0.1 } else { 1.0 });
        assert_eq!(
            verdicts(&shares),
            [Verdict::Holds, Verdict::Exceeded, Verdict::Exceeded, Verdict::Exceeded]
        );
        assert_eq!(shares.outcome().charts.len(), 2);
        let remarks = shares.outcome().remarks;
        assert!(remarks.len() == 1 && remarks[0].contains("one packet"), "{remarks:?}");
    }

    #[test]
    fn the_least_receiver_and_length_decide() {
        let mut shares = measured(|run| match (run.receivers, run.message_bytes) {
            (3, LARGE_BYTES..) => 0.87,
            _ => 1.0,
        });
        let holds = [Verdict::Holds, Verdict::Holds, Verdict::Holds];
        assert_eq!(verdicts(&shares)[..3], holds);
        let longest = |(run, _): &&mut (Run, Result<Came, String>)| {
            run.receivers == 3 && run.message_bytes == LONGEST_BYTES && run.repairs
        };
        let (_, came) = shares.runs.iter_mut().find(longest).expect("it is measured");
        came.as_mut().expect("it has numbers").shares[1] = 0.5;
        assert_eq!(verdicts(&shares)[1..3], [Verdict::Differs, Verdict::Differs]);
    }

    #[test]
    fn what_has_no_number_is_said_and_nothing_holds_for_it() {
        let run = Run { receivers: 3, message_bytes: 1 << 10, loss: 0.0, repairs: false };
        let shares =
            Shares { time_s: 2.0, runs: vec![(run, Err("no hosts".to_owned()))], planned: 2 };
        assert!(verdicts(&shares).iter().all(|verdict| *verdict == Verdict::Differs));
        let remarks = shares.outcome().remarks.join("\n");
        assert!(
            remarks.contains("3 receivers, 1 KiB, loss 0 %, no repairs: no hosts"),
            "{remarks}"
        );
        assert!(remarks.contains("1 of 2 runs"), "{remarks}");
    }
}
