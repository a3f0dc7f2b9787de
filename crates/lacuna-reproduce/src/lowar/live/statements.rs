//! The paper's statements about goodput and processor time, beside what was measured on real sockets.
//!
//! A statement is left out if a run that it needs is missing. The paper's losses are of 10 Gbit/s: here they
//! grow as the rate shrinks, so that as many packets are in flight for each loss. That is what go-back-N goes by. Whether a block of
//! the shim fails goes by the loss itself, so what (32,1) keeps at the paper's highest loss is not compared.

use super::{LONG_WAN_MS, Measured, Measurement, Run, Transport, WAN_MS};
use crate::lowar::RATE_BITS_PER_S;
use crate::outcome::{Statement, Verdict};

/// What software may take more than the same without the shim, and still be called the same.
const SAME_SHARE: f64 = 1.1;
/// A short run over a random path: what is less than the paper's number by this share still holds.
const TOLERANCE: f64 = 0.85;
/// Of its goodput without loss, what "efficient" is taken to mean.
const EFFICIENT_SHARE: f64 = 0.75;

impl Measurement {
    fn goodput(&self, transport: Transport, place: (u32, u32), loss: f64) -> Option<f64> {
        let (rtt_ms, connections) = place;
        let run = Run { transport, rtt_ms, loss, connections };
        self.at(run).map(|measured| measured.goodput_bits_per_s)
    }

    fn ns_per_byte(&self, transport: Transport, rtt_ms: u32, loss: f64) -> Option<f64> {
        let run = Run { transport, rtt_ms, loss, connections: 1 };
        self.at(run).map(Measured::ns_per_byte)
    }

    /// Goodput with the shim over that without.
    fn gain(&self, place: (u32, u32), loss: f64) -> Option<f64> {
        let of = |transport| self.goodput(transport, place, loss);
        Some(of(Transport::Wide)? / of(Transport::GoBackN)?)
    }

    /// Of its goodput without loss, what is left.
    fn kept(&self, transport: Transport, place: (u32, u32), loss: f64) -> Option<f64> {
        let of = |loss| self.goodput(transport, place, loss);
        Some(of(loss)? / of(0.0)?)
    }

    /// The loss here for one of the paper's, as one of the runs has it.
    fn scaled(&self, paper: f64) -> Option<f64> {
        let loss = paper * RATE_BITS_PER_S as f64 / self.rate_bits_per_s as f64;
        let is_it = |run: &Run| run.loss > 0.0 && (run.loss / loss - 1.0).abs() < 1e-6;
        self.runs.iter().map(|(run, _)| run).find(|run| is_it(run)).map(|run| run.loss)
    }
}

pub(super) fn of_goodput(all: &Measurement) -> Vec<Statement> {
    let wan = (WAN_MS, 1);
    let saturates = || {
        let whole = all.goodput(Transport::GoBackN, wan, 0.0)?;
        let run = Run { transport: Transport::GoBackN, rtt_ms: WAN_MS, loss: 0.0, connections: 1 };
        let most = all.goodput_max(run);
        let (ours, share) = (whole / most, 0.95);
        Some(Statement {
            section: "II-C",
            paper: "without loss, one connection saturates the link over 40 ms".to_owned(),
            ours: format!(
                "{:.0} Mbit/s of the {:.0} that the link leaves",
                whole / 1e6,
                most / 1e6
            ),
            verdict: if ours >= share { Verdict::Holds } else { Verdict::Differs },
            why: (ours < share).then(|| {
                format!("{:.0} %: two hosts and an emulator on this machine", ours * 100.0)
            }),
        })
    };
    let gains = |place: (u32, u32), paper: &str, least: f64| {
        let (low, high) = (all.scaled(1e-5)?, all.scaled(1e-4)?);
        let [at_low, at_high] = [all.gain(place, low)?, all.gain(place, high)?];
        let statement = Statement::at_least(
            "VI-A, figure 9",
            paper.to_owned(),
            format!("{at_low:.2} times at {low:.0e}, {at_high:.2} at {high:.0e}"),
            (least, at_high),
            TOLERANCE,
        );
        Some(statement.because(
            "by the higher loss; at the lower one the paper's baseline pays 4.65 windows a loss, ours one",
        ))
    };
    let with_16 = || {
        let loss = all.scaled(1e-4)?;
        let [near, far] = [all.gain((WAN_MS, 16), loss)?, all.gain((LONG_WAN_MS, 16), loss)?];
        Some(Statement::at_least(
            "VI-A, figure 9",
            "16 connections at 1e-4: 1.28 times at 40 ms, 1.50 at 80 ms".to_owned(),
            format!("{near:.2} and {far:.2} at {loss:.0e}"),
            (1.28, near),
            TOLERANCE,
        ))
    };
    let bbr = || {
        let loss = all.scaled(1e-4)?;
        let [bbr, cubic] = [Transport::Bbr, Transport::Cubic].map(|tcp| all.kept(tcp, wan, loss));
        let (bbr, cubic) = (bbr?, cubic?);
        let [with_bbr, wide] = [Transport::Bbr, Transport::Wide]
            .map(|transport| all.goodput(transport, wan, loss).unwrap_or(f64::NAN) / 1e6);
        Some(Statement {
            section: "VI-B",
            paper: "TCP with BBR is efficient in WANs whose losses are no congestion".to_owned(),
            ours: format!(
                "at {loss:.0e} bbr keeps {:.0} %, {with_bbr:.0} Mbit/s, cubic {:.0} %; LoWAR(32,1) has {wide:.0} Mbit/s",
                bbr * 100.0,
                cubic * 100.0
            ),
            verdict: if bbr >= EFFICIENT_SHARE { Verdict::Holds } else { Verdict::Differs },
            why: None,
        })
    };
    let near = gains(
        wan,
        "40 ms, one connection: (32,1) has 2.05 to 5.01 times the goodput from 1e-5 to 1e-4",
        5.01,
    );
    let far = gains((LONG_WAN_MS, 1), "80 ms: 11.55 to 19.07 times", 11.55);
    [saturates(), near, far, with_16(), bbr()].into_iter().flatten().collect()
}

pub(super) fn of_processor_time(all: &Measurement) -> Vec<Statement> {
    let shim = |rtt_ms: u32, place: &str| {
        let of = |transport| all.ns_per_byte(transport, rtt_ms, 0.0);
        let (without, with) = (of(Transport::GoBackN)?, of(Transport::Wide)?);
        let ratio = with / without;
        Some(Statement {
            section: "VI-B, figure 13d",
            paper: "LoWAR takes as much processor time as the reliable connection alone".to_owned(),
            ours: format!(
                "{place}, no loss: {with:.2} ns per byte with LoWAR(32,1), {without:.2} without, {ratio:.2} times"
            ),
            verdict: if ratio <= SAME_SHARE { Verdict::Holds } else { Verdict::Differs },
            why: (ratio > SAME_SHARE)
                .then(|| "the paper's shim is in the card, ours is a program".to_owned()),
        })
    };
    let lossy = || {
        let loss = all.scaled(1e-4)?;
        let of = |transport| all.ns_per_byte(transport, WAN_MS, loss);
        let (without, with) = (of(Transport::GoBackN)?, of(Transport::Wide)?);
        Some(Statement {
            section: "VI-A",
            paper: "LoWAR mitigates the inefficiency of retransmissions".to_owned(),
            ours: format!(
                "at {loss:.0e} over 40 ms {with:.2} ns per byte with LoWAR(32,1), {without:.2} without"
            ),
            verdict: if with < without { Verdict::Holds } else { Verdict::Differs },
            why: None,
        })
    };
    let tcp = || {
        let of = |transport| all.ns_per_byte(transport, WAN_MS, 0.0);
        let (rdma, bbr) = (of(Transport::GoBackN)?, of(Transport::Bbr)?);
        let holds = bbr > rdma;
        Some(Statement {
            section: "VI-B, figure 13d",
            paper: "TCP with BBR takes much processor time, in contrast to RDMA".to_owned(),
            ours: format!(
                "40 ms, no loss: {bbr:.2} ns per byte with TCP bbr, {rdma:.2} with a reliable connection"
            ),
            verdict: if holds { Verdict::Holds } else { Verdict::Differs },
            why: (!holds).then(|| {
                "the paper's RDMA is in the card; here it is a program above UDP, and TCP is in the kernel with its offloads"
                    .to_owned()
            }),
        })
    };
    [shim(0, "LAN"), shim(WAN_MS, "40 ms"), lossy(), tcp()].into_iter().flatten().collect()
}
