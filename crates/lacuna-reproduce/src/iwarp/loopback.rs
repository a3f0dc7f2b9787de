//! Figures 5 and 6, measured over loopback: latency of a message, and bandwidth one way, beside TCP.
//!
//! The paper's baseline is iWARP over TCP (RC), with MPA's markers and CRC. Here it is TCP itself, with `TCP_NODELAY` and
//! one write for each message, which has less to do. The measurements are somebody else's work, since nothing here
//! opens a socket: [`pings`] and [`flows`] say which there are, [`Latencies`] and [`Bandwidths`] take their numbers.

use super::{LIVE, NAME, title};
use crate::cells::Effort;
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Verdict};
use lacuna_planner::chart::{Axis, Chart, Series, plain, size};

/// Messages that the paper calls small, and averages over.
const SMALL_BYTES_MAX: u32 = 2048;
const BASELINE: &str =
    "the baseline here is TCP itself: without MPA's markers and CRC, which the paper's has";

/// A way to bring messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// TCP with a write for each message, at once.
    Tcp,
    /// TCP that gathers messages into long writes.
    TcpGathered,
    /// Sends of a datagram queue pair.
    Send,
    /// Its Write-Records.
    WriteRecord,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP, a write each",
            Self::TcpGathered => "TCP, gathered",
            Self::Send => "Send",
            Self::WriteRecord => "Write-Record",
        }
    }
}

/// How an end waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// It looks again and again.
    Polling,
    /// It sleeps until the system wakes it.
    Blocking,
}

impl Waiting {
    fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Blocking => "blocking",
        }
    }
}

/// Messages back and forth, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    /// How.
    pub way: Way,
    /// How both ends wait.
    pub waiting: Waiting,
    /// Bytes of a message.
    pub message_bytes: u32,
}

/// Messages one way, as fast as they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// How.
    pub way: Way,
    /// Bytes of a message.
    pub message_bytes: u32,
}

impl Ping {
    /// In words, for progress and remarks.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { way, waiting, message_bytes } = self;
        format!("{}, {}, {}", way.name(), waiting.name(), size(f64::from(*message_bytes)))
    }
}

impl Flow {
    /// In words, for progress and remarks.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{}, {}", self.way.name(), size(f64::from(self.message_bytes)))
    }
}

/// What figure 5 needs. What is compared stands side by side, so that the machine is in the same state.
#[must_use]
pub fn pings(effort: Effort) -> Vec<Ping> {
    let few = [1, 64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20];
    let mut pings = Vec::new();
    for waiting in [Waiting::Polling, Waiting::Blocking] {
        for message_bytes in sizes(effort, &few) {
            pings.extend([Way::Tcp, Way::Send, Way::WriteRecord].map(|way| Ping {
                way,
                waiting,
                message_bytes,
            }));
        }
    }
    pings
}

/// What figure 6 needs.
#[must_use]
pub fn flows(effort: Effort) -> Vec<Flow> {
    let few = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20];
    let ways = [Way::Tcp, Way::TcpGathered, Way::Send, Way::WriteRecord];
    let all = |message_bytes| ways.map(|way| Flow { way, message_bytes });
    sizes(effort, &few).into_iter().flat_map(all).collect()
}

fn sizes(effort: Effort, few: &[u32]) -> Vec<u32> {
    match effort {
        Effort::Quick => few.to_vec(),
        Effort::Full => (0..=20).map(|bits| 1 << bits).collect(),
    }
}

/// Half of a round trip's time, the median, in ns.
#[derive(Debug, Clone)]
pub struct Latencies {
    /// How long each was measured.
    pub time_s: f64,
    /// What the longest packets have.
    pub packet_bytes: usize,
    /// Each one's number, or why there is none.
    pub runs: Vec<(Ping, Result<f64, String>)>,
}

/// Payload that came, in bits per second.
#[derive(Debug, Clone)]
pub struct Bandwidths {
    /// How long each was measured.
    pub time_s: f64,
    /// What the longest packets have.
    pub packet_bytes: usize,
    /// Each one's number, or why there is none.
    pub runs: Vec<(Flow, Result<f64, String>)>,
}

impl Latencies {
    fn at(&self, way: Way, waiting: Waiting, message_bytes: u32) -> Option<f64> {
        let ping = Ping { way, waiting, message_bytes };
        number(&self.runs, &ping)
    }

    /// How much less than TCP's it is, on average over small messages.
    fn improvement(&self, way: Way, waiting: Waiting) -> f64 {
        let small = |ping: &Ping| ping.message_bytes <= SMALL_BYTES_MAX;
        let pings = self.runs.iter().map(|(ping, _)| *ping).filter(small);
        let pings = pings.filter(|ping| (ping.way, ping.waiting) == (way, waiting));
        let shares = pings.filter_map(|ping| {
            let tcp = self.at(Way::Tcp, waiting, ping.message_bytes)?;
            Some(1.0 - number(&self.runs, &ping)? / tcp)
        });
        mean(shares)
    }

    fn statements(&self) -> Vec<Statement> {
        let small = |way, paper: f64| {
            let [polling, blocking] =
                [Waiting::Polling, Waiting::Blocking].map(|waiting| self.improvement(way, waiting));
            Statement::at_least(
                "3.2.1, figure 5",
                format!("up to 2 kB UD {} takes {:.1} % less than RC", way.name(), paper * 100.0),
                format!(
                    "{:.1} % polling, {:.1} % blocking, than TCP",
                    polling * 100.0,
                    blocking * 100.0
                ),
                (paper, polling),
                0.9,
            )
            .because(BASELINE)
        };
        let ratio = |message_bytes| {
            let of = |way| self.at(way, Waiting::Polling, message_bytes).unwrap_or(f64::NAN);
            of(Way::Send) / of(Way::Tcp)
        };
        let [medium, larger, large] = [16 << 10, 64 << 10, 128 << 10].map(ratio);
        // Without a number nothing holds.
        let verdict = match large < 1.0 && !medium.is_nan() && !larger.is_nan() {
            true if medium < 1.0 && larger < 1.0 => Verdict::Exceeded,
            true => Verdict::Holds,
            false => Verdict::Differs,
        };
        vec![
            small(Way::Send, 0.181),
            small(Way::WriteRecord, 0.244),
            Statement {
                section: "3.2.1, figure 5",
                paper: "RC is better from 16 to 64 kB, UD again from 128 kB on".to_owned(),
                ours: format!(
                    "Send takes {medium:.2} of TCP's time at 16 KiB, {larger:.2} at 64, {large:.2} at 128"
                ),
                verdict,
                why: Some(BASELINE.to_owned()),
            },
        ]
    }

    /// What the numbers come to.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let us = |ns: f64| ns / 1e3;
        let chart = |waiting: Waiting| {
            let line = |way: Way| {
                let points = self.runs.iter().filter_map(|(ping, latency)| {
                    let is_it = (ping.way, ping.waiting) == (way, waiting);
                    let latency = latency.as_ref().ok().filter(|_| is_it)?;
                    Some((f64::from(ping.message_bytes), us(*latency)))
                });
                Series::new(way.name(), points.collect())
            };
            let lines = [Way::Tcp, Way::Send, Way::WriteRecord].map(line).into_iter();
            Chart {
                title: waiting.name().to_owned(),
                x: Axis::log("bytes of a message", size),
                y: Axis::log("latency in us", plain),
                series: lines.filter(|line| !line.points.is_empty()).collect(),
                marks: Vec::new(),
            }
        };
        let charts = [Waiting::Polling, Waiting::Blocking].map(chart).into_iter();
        let mut csv = Csv::new("way,waiting,message_bytes,latency_us,share_of_tcp");
        let mut rows = Vec::new();
        for (ping, latency) in &self.runs {
            let Ok(latency) = latency else { continue };
            let tcp = self.at(Way::Tcp, ping.waiting, ping.message_bytes).unwrap_or(f64::NAN);
            let numbers = [f64::from(ping.message_bytes), us(*latency), latency / tcp];
            csv.row(&[&ping.way.name().replace(',', ""), ping.waiting.name()], &numbers);
            rows.push(vec![
                ping.words(),
                format!("{:.2}", us(*latency)),
                format!("{:.2}", latency / tcp),
            ]);
        }
        let header = ["", "us", "of TCP"].map(str::to_owned).into();
        Outcome {
            paper: NAME,
            item: Item::Figure(5),
            live: true,
            title: title(&LIVE, Item::Figure(5)),
            workload: format!(
                "messages back and forth over loopback, median of half of the round trip, {} s each, two threads of one process, packets of {} bytes",
                plain(self.time_s),
                self.packet_bytes
            ),
            statements: self.statements(),
            charts: charts.filter(|chart| !chart.series.is_empty()).collect(),
            rows: Some(Rows { header, rows }),
            remarks: missing(&self.runs, Ping::words),
            csv,
        }
    }
}

impl Bandwidths {
    fn at(&self, way: Way, message_bytes: u32) -> f64 {
        number(&self.runs, &Flow { way, message_bytes }).unwrap_or(f64::NAN)
    }

    fn statements(&self) -> Vec<Statement> {
        let more = |way: Way, message_bytes: u32, paper: f64| {
            let (ours, tcp) = (self.at(way, message_bytes), self.at(Way::Tcp, message_bytes));
            let gathered = self.at(Way::TcpGathered, message_bytes);
            let bytes = size(message_bytes.into());
            Statement::at_least(
                "3.2.1, figure 6",
                format!("at {bytes} UD {} has {paper:.1} % more than RC", way.name()),
                format!(
                    "{:.2} Gbit/s, {:+.1} % of a write each ({:.2}); {:.2} if TCP gathers messages",
                    ours / 1e9,
                    (ours / tcp - 1.0) * 100.0,
                    tcp / 1e9,
                    gathered / 1e9
                ),
                (1.0 + paper / 100.0, ours / tcp),
                0.95,
            )
            .because(BASELINE)
        };
        vec![
            more(Way::Send, 1 << 10, 193.0),
            more(Way::WriteRecord, 1 << 10, 188.8),
            more(Way::Send, 256 << 10, 33.4),
            more(Way::WriteRecord, 512 << 10, 256.0),
        ]
    }

    /// What the numbers come to.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let ways = [Way::Tcp, Way::TcpGathered, Way::Send, Way::WriteRecord];
        let line = |way: Way| {
            let points = self.runs.iter().filter_map(|(flow, rate)| {
                let rate = rate.as_ref().ok().filter(|_| flow.way == way)?;
                Some((f64::from(flow.message_bytes), rate / 1e9))
            });
            Series::new(way.name(), points.collect())
        };
        let lines = ways.map(line).into_iter().filter(|line| !line.points.is_empty());
        let mut csv = Csv::new("way,message_bytes,gbit_per_s,share_of_tcp");
        let mut rows = Vec::new();
        for (flow, rate) in &self.runs {
            let Ok(rate) = rate else { continue };
            let share = rate / self.at(Way::Tcp, flow.message_bytes);
            let numbers = [f64::from(flow.message_bytes), rate / 1e9, share];
            csv.row(&[&flow.way.name().replace(',', "")], &numbers);
            rows.push(vec![flow.words(), format!("{:.3}", rate / 1e9), format!("{share:.2}")]);
        }
        let header = ["", "Gbit/s", "of TCP"].map(str::to_owned).into();
        Outcome {
            paper: NAME,
            item: Item::Figure(6),
            live: true,
            title: title(&LIVE, Item::Figure(6)),
            workload: format!(
                "messages one way over loopback as fast as they go, payload that came, {} s each, two threads of one process, packets of {} bytes",
                plain(self.time_s),
                self.packet_bytes
            ),
            statements: self.statements(),
            charts: vec![Chart {
                title: "one way".to_owned(),
                x: Axis::log("bytes of a message", size),
                y: Axis::log("Gbit/s", plain),
                series: lines.collect(),
                marks: Vec::new(),
            }],
            rows: Some(Rows { header, rows }),
            remarks: missing(&self.runs, Flow::words),
            csv,
        }
    }
}

fn number<R: PartialEq>(runs: &[(R, Result<f64, String>)], run: &R) -> Option<f64> {
    let (_, number) = runs.iter().find(|(other, _)| other == run)?;
    number.as_ref().ok().copied()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

fn missing<R>(runs: &[(R, Result<f64, String>)], words: impl Fn(&R) -> String) -> Vec<String> {
    let failed = runs.iter().filter_map(|(run, number)| Some((run, number.as_ref().err()?)));
    failed.map(|(run, why)| format!("No number for {}: {why}", words(run))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn improvements_are_of_small_messages_and_beside_the_papers() {
        let runs = pings(Effort::Quick)
            .into_iter()
            .map(|ping| {
                let tcp = 1000.0 + f64::from(ping.message_bytes);
                let share = match ping.way {
                    Way::Tcp | Way::TcpGathered => 1.0,
                    Way::Send if ping.message_bytes > SMALL_BYTES_MAX => 2.0,
                    Way::Send => 0.8,
                    Way::WriteRecord => 0.9,
                };
                (ping, Ok(tcp * share))
            })
            .collect();
        let latencies = Latencies { time_s: 0.3, packet_bytes: 1472, runs };
        assert!((latencies.improvement(Way::Send, Waiting::Polling) - 0.2).abs() < 1e-9);
        let outcome = latencies.outcome();
        let verdicts: Vec<_> =
            outcome.statements.iter().map(|statement| statement.verdict).collect();
        assert_eq!(verdicts, [Verdict::Holds, Verdict::Differs, Verdict::Differs]);
        assert_eq!(outcome.charts.len(), 2);
    }

    #[test]
    fn what_has_no_number_is_said_and_nothing_holds_for_it() {
        let flow = |way| Flow { way, message_bytes: 1024 };
        let runs = vec![(flow(Way::Tcp), Ok(1e9)), (flow(Way::Send), Err("no port".to_owned()))];
        let ping = Ping { way: Way::Send, waiting: Waiting::Polling, message_bytes: 128 << 10 };
        let of = |way, number| (Ping { way, ..ping }, Ok(number));
        let pings = vec![of(Way::Tcp, 2.0), of(Way::Send, 1.0)];
        let latencies = Latencies { time_s: 0.5, packet_bytes: 1472, runs: pings }.outcome();
        assert!(latencies.statements.iter().all(|statement| statement.verdict == Verdict::Differs));
        let outcome = Bandwidths { time_s: 0.5, packet_bytes: 1472, runs }.outcome();
        assert!(outcome.statements.iter().all(|statement| statement.verdict == Verdict::Differs));
        assert_eq!(outcome.remarks, ["No number for Send, 1 KiB: no port"]);
    }
}
