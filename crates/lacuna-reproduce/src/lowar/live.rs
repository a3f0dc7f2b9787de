//! Figures 9 and 13d on real sockets: which runs there are, and what their numbers come to.
//!
//! The runs themselves are somebody else's work, since nothing here opens a socket: [`runs`] says which ones
//! there are, [`outcome`] takes their numbers. Each run is a sender and a receiver over an emulated path that
//! loses packets both ways: a reliable connection, repaired in one of four ways, or TCP with one of two
//! congestion controls, all with [`PAYLOAD_BYTES`] in a packet.
//!
//! The paper's links have 10 Gbit/s. What a loss costs depends on the packets of a round trip, so a link of a
//! tenth of the rate is compared at ten times the loss. Goodput is payload that the receiver has, after the
//! start; processor time is that of sender and receiver over the whole run, for a byte that arrived.

mod statements;

use super::{NAME, Scheme, gbit, loss_axis, loss_place, losses};
use crate::cells::Effort;
use crate::connections::Workload;
use crate::outcome::{Csv, Item, Outcome, Rows};
use lacuna_model::Loss as ModelLoss;
use lacuna_planner::chart::{Axis, Chart, Series};

/// What is measured on real sockets, with what it shows.
pub const EXPERIMENTS: [(Item, &str); 2] = [
    (Item::Figure(9), "goodput by loss on real sockets, beside TCP"),
    (Item::Figure(13), "processor time on real sockets (13d), beside TCP"),
];

/// Payload of a packet: the paper's MTU.
pub const PAYLOAD_BYTES: u32 = 1024;
/// More frames than these that the machine loses by itself are worth a remark.
const DROPPED_FRAMES_FEW: u64 = 10;
/// Bytes of a WRITE.
pub const MESSAGE_BYTES: u64 = 1_000_000;

const WAN_MS: u32 = 40;
const LONG_WAN_MS: u32 = 80;

/// A way to bring bytes over the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A reliable connection as cards have it.
    GoBackN,
    /// The same above LoWAR(32,1).
    Wide,
    /// The same above LoWAR, which chooses its strength.
    Auto,
    /// A reliable connection with selective repeat.
    Selective,
    /// TCP with CUBIC.
    Cubic,
    /// TCP with BBR.
    Bbr,
}

impl Transport {
    /// In the order of legends and tables.
    pub const ALL: [Self; 6] =
        [Self::GoBackN, Self::Wide, Self::Auto, Self::Selective, Self::Cubic, Self::Bbr];

    /// In legends and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GoBackN => Scheme::GO_BACK_N.name,
            Self::Wide => "LoWAR(32,1)",
            Self::Auto => "LoWAR auto",
            Self::Selective => Scheme::SELECTIVE.name,
            Self::Cubic => "TCP cubic",
            Self::Bbr => "TCP bbr",
        }
    }

    /// TCP's congestion control, as Linux calls it; `None` for a reliable connection.
    #[must_use]
    pub fn congestion(self) -> Option<&'static str> {
        match self {
            Self::Cubic => Some("cubic"),
            Self::Bbr => Some("bbr"),
            Self::GoBackN | Self::Wide | Self::Auto | Self::Selective => None,
        }
    }

    /// The same in virtual time, if there is a closed form of it.
    fn scheme(self) -> Option<Scheme> {
        match self {
            Self::GoBackN => Some(Scheme::GO_BACK_N),
            Self::Wide => Some(Scheme::lowar("LoWAR(32,1)", 32, 1)),
            Self::Auto | Self::Selective | Self::Cubic | Self::Bbr => None,
        }
    }
}

/// A sender and a receiver over a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// How.
    pub transport: Transport,
    /// Round trip; a LAN has none.
    pub rtt_ms: u32,
    /// Share of packets that are lost, each way.
    pub loss: f64,
    /// Queue pairs or streams, which share the link.
    pub connections: u32,
}

impl Run {
    fn is_lan(&self) -> bool {
        self.rtt_ms == 0
    }

    /// In words, for progress and remarks.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { transport, connections, .. } = self;
        format!("{}, {}, {connections}x", transport.name(), self.path())
    }

    fn path(&self) -> String {
        match (self.is_lan(), self.loss) {
            (true, _) => "LAN".to_owned(),
            (false, 0.0) => format!("{} ms, no loss", self.rtt_ms),
            (false, loss) => format!("{} ms, loss {loss:.0e}", self.rtt_ms),
        }
    }

    /// Messages in flight on each queue pair: together two round trips of the link and more, so that the link
    /// is always full.
    #[must_use]
    pub fn inflight(&self, rate_bits_per_s: u64) -> u32 {
        let depth = self.workload(rate_bits_per_s).depth as u32;
        depth.div_ceil(self.connections).max(4)
    }

    /// The same workload in virtual time.
    fn workload(&self, rate_bits_per_s: u64) -> Workload {
        let rtt_ns = u64::from(self.rtt_ms) * super::MS_NS;
        let plain = Workload::new(rate_bits_per_s, rtt_ns, losses(self.loss));
        Workload { connections: self.connections, ..plain }
    }
}

/// The numbers of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Payload at the receiver, after the start.
    pub goodput_bits_per_s: f64,
    /// Processor time of sender and receiver, and the payload of the whole run.
    pub processor_s: f64,
    /// See there.
    pub payload_bytes: u64,
    /// Packets that found the link's queue full.
    pub queue_dropped: u64,
    /// Frames that the machine lost by itself, because it was too slow.
    pub dropped_frames: u64,
}

impl Measured {
    fn ns_per_byte(&self) -> f64 {
        self.processor_s * 1e9 / self.payload_bytes.max(1) as f64
    }
}

/// The runs that these experiments need, each once.
#[must_use]
pub fn runs(items: &[Item], effort: Effort) -> Vec<Run> {
    let losses: &[f64] = effort.pick(&[0.0, 1e-4, 1e-3], &[0.0, 1e-5, 1e-4, 1e-3, 1e-2]);
    let counts: &[u32] = effort.pick(&[1], &[1, 16, 32]);
    let rtts_ms: &[u32] = effort.pick(&[WAN_MS], &[WAN_MS, LONG_WAN_MS]);
    let mut paths = vec![(0, 1, 0.0)];
    if items.contains(&Item::Figure(13)) {
        paths.extend(losses.iter().map(|loss| (WAN_MS, 1, *loss)));
    }
    if items.contains(&Item::Figure(9)) {
        for rtt_ms in rtts_ms {
            for connections in counts {
                paths.extend(losses.iter().map(|loss| (*rtt_ms, *connections, *loss)));
            }
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    for (rtt_ms, connections, loss) in paths {
        for transport in Transport::ALL {
            let run = Run { transport, rtt_ms, loss, connections };
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
    }
    runs
}

/// All that was measured.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Of the link.
    pub rate_bits_per_s: u64,
    /// How long each run was measured.
    pub time_s: f64,
    /// The path's seed of the first run.
    pub seed: u64,
    /// Runs that there should be.
    pub planned: usize,
    /// Each run's numbers, or why there are none.
    pub runs: Vec<(Run, Result<Measured, String>)>,
}

impl Measurement {
    /// The numbers of a run, if it was done and worked.
    fn at(&self, run: Run) -> Option<&Measured> {
        let (_, measured) = self.runs.iter().find(|(other, _)| *other == run)?;
        measured.as_ref().ok()
    }

    /// The most payload that the link leaves for packets of a reliable connection.
    fn goodput_max(&self, run: Run) -> f64 {
        run.workload(self.rate_bits_per_s).goodput_max()
    }

    fn closed_form(&self, run: Run) -> Option<f64> {
        let workload = run.workload(self.rate_bits_per_s);
        let scheme = run.transport.scheme().filter(|_| !run.is_lan())?;
        let share = scheme.closed_form(&workload, ModelLoss::PerPacket(run.loss))?;
        Some(share * workload.goodput_max())
    }

    /// Places of the runs: round trip and connections.
    fn places(&self) -> Vec<(u32, u32)> {
        let mut places: Vec<_> =
            self.runs.iter().map(|(run, _)| (run.rtt_ms, run.connections)).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// A line for each transport over the losses of a place.
    fn lines(&self, place: (u32, u32), value: &dyn Fn(&Measured) -> f64) -> Vec<Series> {
        let line = |transport: Transport| {
            let here = self.runs.iter().filter(|(run, _)| {
                (run.rtt_ms, run.connections) == place && run.transport == transport
            });
            let points = here
                .filter_map(|(run, measured)| {
                    Some((loss_place(run.loss), value(measured.as_ref().ok()?)))
                })
                .collect();
            Series::new(transport.name(), points).of(transport.name())
        };
        Transport::ALL.map(line).into_iter().filter(|line| !line.points.is_empty()).collect()
    }

    fn closed_lines(&self, place: (u32, u32)) -> Vec<Series> {
        let line = |transport: Transport| {
            let here =
                self.runs.iter().map(|(run, _)| *run).filter(|run| {
                    (run.rtt_ms, run.connections) == place && run.transport == transport
                });
            let points = here
                .filter_map(|run| Some((loss_place(run.loss), gbit(self.closed_form(run)?))))
                .collect();
            let name = format!("{}, closed form", transport.name());
            Series::new(name, points).second_of(transport.name())
        };
        Transport::ALL.map(line).into_iter().filter(|line| !line.points.is_empty()).collect()
    }

    /// A row for each path, a column for each transport.
    fn rows(&self, unit: &str, value: &dyn Fn(&Measured) -> String) -> Rows {
        let mut header = vec![unit.to_owned(), "connections".to_owned()];
        header.extend(Transport::ALL.map(|transport| transport.name().to_owned()));
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut done: Vec<Run> = Vec::new();
        for (run, _) in &self.runs {
            let first = Run { transport: Transport::GoBackN, ..*run };
            if done.contains(&first) {
                continue;
            }
            done.push(first);
            let mut row = vec![run.path(), run.connections.to_string()];
            row.extend(Transport::ALL.map(|transport| {
                self.at(Run { transport, ..first }).map_or("-".to_owned(), value)
            }));
            rows.push(row);
        }
        Rows { header, rows }
    }

    fn csv(&self) -> Csv {
        let mut csv = Csv::new(
            "transport,rtt_ms,connections,loss,goodput_gbit_per_s,closed_form_gbit_per_s,processor_ns_per_byte,queue_dropped,dropped_frames",
        );
        for (run, measured) in &self.runs {
            let Ok(measured) = measured else { continue };
            let closed = self.closed_form(*run).map_or(f64::NAN, gbit);
            csv.row(
                &[run.transport.name()],
                &[
                    run.rtt_ms.into(),
                    run.connections.into(),
                    run.loss,
                    gbit(measured.goodput_bits_per_s),
                    closed,
                    measured.ns_per_byte(),
                    measured.queue_dropped as f64,
                    measured.dropped_frames as f64,
                ],
            );
        }
        csv
    }

    /// What went wrong, in sentences.
    fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = self
            .runs
            .iter()
            .filter_map(|(run, measured)| Some((run, measured.as_ref().err()?)))
            .map(|(run, why)| format!("No number for {}: {why}", run.words()))
            .collect();
        let done = self.runs.len();
        if done < self.planned {
            remarks.push(format!("{done} of {} runs were done", self.planned));
        }
        let dropped = |(_, measured): &&(Run, Result<Measured, String>)| {
            measured.as_ref().is_ok_and(|measured| measured.dropped_frames > DROPPED_FRAMES_FEW)
        };
        match self.runs.iter().filter(dropped).count() {
            0 => {}
            count => remarks.push(format!(
                "In {count} of {} runs this machine was too slow for the link and lost frames by itself",
                self.runs.len()
            )),
        }
        remarks
    }
}

/// What the numbers come to. `None` if that is not measured on real sockets.
#[must_use]
pub fn outcome(item: Item, measurement: &Measurement) -> Option<Outcome> {
    let title = EXPERIMENTS.iter().find(|(known, _)| *known == item)?.1.to_owned();
    let rate = gbit(measurement.rate_bits_per_s as f64);
    let Measurement { time_s, seed, .. } = measurement;
    let setting = format!(
        "{PAYLOAD_BYTES} bytes of payload in a packet, {rate} Gbit/s emulated, losses both ways, {time_s} s for each run after its start, seeds from {seed} on"
    );
    let goodput = |measured: &Measured| gbit(measured.goodput_bits_per_s);
    let (charts, rows, workload, statements) = match item {
        Item::Figure(9) => {
            let charts = measurement.places().into_iter().filter(|(rtt_ms, _)| *rtt_ms > 0);
            let charts = charts.map(|place| {
                let mut series = measurement.lines(place, &goodput);
                series.extend(measurement.closed_lines(place));
                chart(place, "goodput in Gbit/s", series)
            });
            let mbit = |measured: &Measured| format!("{:.0}", measured.goodput_bits_per_s / 1e6);
            let workload = format!(
                "WRITEs of 1 MB back to back at the link's rate, and TCP; goodput of payload at the receiver; {setting}"
            );
            let rows = measurement.rows("Mbit/s", &mbit);
            (charts.collect(), rows, workload, statements::of_goodput(measurement))
        }
        _ => {
            let series = measurement.lines((WAN_MS, 1), &Measured::ns_per_byte);
            let charts = vec![chart((WAN_MS, 1), "processor time, ns per byte", series)];
            let workload = format!(
                "User and system time of sender and receiver over payload that arrived, not that of the emulator; {setting}"
            );
            let ns = |measured: &Measured| format!("{:.2}", measured.ns_per_byte());
            let rows = measurement.rows("ns per byte", &ns);
            (charts, rows, workload, statements::of_processor_time(measurement))
        }
    };
    Some(Outcome {
        paper: NAME,
        item,
        live: true,
        title,
        workload,
        statements,
        charts,
        rows: Some(rows),
        remarks: measurement.remarks(),
        csv: measurement.csv(),
    })
}

fn chart((rtt_ms, connections): (u32, u32), y: &str, series: Vec<Series>) -> Chart {
    let plural = if connections == 1 { "" } else { "s" };
    Chart {
        title: format!("{rtt_ms} ms, {connections} connection{plural}"),
        x: loss_axis(),
        y: Axis::linear(y),
        series,
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
