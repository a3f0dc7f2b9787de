//! `--qp rc`: the measurement over reliable connections (`lacuna::rc`), both sides of it.
//!
//! There is no second connection: the ends exchange the descriptions of their queue pairs over the session. Each
//! queue pair has the messages in flight that were asked for, and the next one goes where one has ended. A
//! reliable connection delivers in order and whole, so a message's content is that of its number on its queue
//! pair modulo the messages in flight. Twice as many receives are posted, so that a message that follows a
//! completion at once finds one.

mod client;
mod server;

pub(super) use client::Requests;
pub(super) use server::{Served, accept, places_of};

use super::ClientArgs;
use super::protocol::{Chosen, Repairs, Sent};
use super::report::{Facts, RcCounts};
use super::turns::Turns;
use crate::failure::Failure;
use lacuna::controller::ControllerConfig;
use lacuna::rc::{self, Done, QueuePair, RcStats, Repair, Settings, ShimCounters, ShimSettings};
use lacuna::{Connection, Wire};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest packet payload that a card could take, too.
const MTU_BYTES_MAX: u32 = rc::MTU_BYTES_MAX;
/// What headers of a reliable connection and of LoWAR's repairs take more than those of other packets.
const MORE_HEADER_BYTES: u32 = 16;
/// Requests in flight, at most.
pub(super) const DEPTH_MAX: u32 = 512;
/// Queue pairs, at most.
pub(super) const QUEUE_PAIRS_MAX: u16 = 256;

/// The queue pairs of one end, as they are told to the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Described {
    /// `QueuePair::info`, in hexadecimal.
    info: String,
    /// The same of further ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    more: Vec<String>,
    mtu_bytes: u32,
    /// How losses are repaired; go-back-N of an end of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repair: Option<String>,
    /// The shim that both ends are to have; none of a client of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shim: Option<String>,
}

impl Described {
    /// The settings that the server is asked for, and how many queue pairs.
    fn settings(&self) -> Result<(Settings, usize), String> {
        let shim = self.shim.as_deref().map_or(Ok(ShimSettings::Off), str::parse);
        let shim = shim.map_err(|error| error.to_string())?;
        let repair = self.repair.as_deref().map_or(Ok(Repair::default()), str::parse);
        let repair = repair.map_err(|error| error.to_string())?;
        let settings = Settings { mtu_bytes: self.mtu_bytes, repair, shim, ..Settings::default() };
        Ok((settings, self.count()))
    }

    /// Queue pairs.
    pub(super) fn count(&self) -> usize {
        1 + self.more.len()
    }
}

/// The queue pairs of one end.
#[derive(Debug)]
pub(super) struct Ends {
    all: Vec<QueuePair>,
    settings: Settings,
    turns: Turns,
}

impl Ends {
    fn open(session: &Connection, settings: Settings, count: usize) -> Result<Self, String> {
        let context = session.queue_pair().context();
        let open = |_| context.rc_queue_pair(&settings).map_err(|error| error.to_string());
        let all = (0..count).map(open).collect::<Result<_, _>>()?;
        Ok(Self { all, settings, turns: Turns::default() })
    }

    fn described(&self, session: &Connection) -> Described {
        let Settings { mtu_bytes, repair, shim, .. } = self.settings;
        // The host is known from the session; only the port counts.
        let info = |qp: &QueuePair| {
            qp.info(session.peer().ip()).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        Described {
            info: info(&self.all[0]),
            more: self.all[1..].iter().map(info).collect(),
            mtu_bytes,
            repair: (repair != Repair::default()).then(|| repair.name().to_owned()),
            shim: (shim != ShimSettings::Off).then(|| shim.to_string()),
        }
    }

    /// Connects each to the one that is described in its place, which is where the session's peer is.
    fn connect(&self, described: &Described, session: &Connection) -> Result<(), String> {
        if described.count() != self.all.len() {
            let (here, there) = (self.all.len(), described.count());
            return Err(format!("the other end has {there} queue pairs, this one {here}"));
        }
        for (qp, info) in self.all.iter().zip([&described.info].into_iter().chain(&described.more))
        {
            let digits = info.as_bytes();
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            let info: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
            let info = info.ok_or("a queue pair's description is no hexadecimal number")?;
            qp.connect_at(&info, session.peer()).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The next completion of any, and whose it is; waits at most so long.
    fn wait(&self, limit: Duration) -> Option<(usize, Done)> {
        self.turns.wait(&self.all, QueuePair::poll, QueuePair::wait, limit)
    }

    /// The counters of all together.
    pub(super) fn stats(&self) -> RcStats {
        self.all.iter().map(QueuePair::stats).reduce(|a, b| a.with(&b)).unwrap_or_default()
    }

    fn close(&self) {
        self.all.iter().for_each(QueuePair::close);
    }
}

/// The round trip as the session has measured it.
fn rtt(session: &Connection) -> Option<Duration> {
    let rtt = session.stats().rtt;
    rtt.min_us.or(rtt.smoothed_us).map(|us| Duration::from_secs_f64(us / 1e6))
}

/// Payload of a packet: as asked for, or what the path of the session passes.
fn mtu_bytes(args: &ClientArgs, session: &Connection) -> u32 {
    let found = session.chosen().mtu_bytes.saturating_sub(MORE_HEADER_BYTES);
    args.mtu.unwrap_or(found.clamp(rc::MTU_BYTES_MIN, MTU_BYTES_MAX) / 4 * 4)
}

/// The client's end, not connected yet, and what the server is told of it.
pub(super) fn open(args: &ClientArgs, session: &Connection) -> Result<(Ends, Described), Failure> {
    let count = usize::from(args.queue_pairs);
    // Together they have the rate that was asked for.
    let rate = args.pace.rate.map(|rate| (rate / count as u64).max(1));
    let controller = ControllerConfig::of(args.pace.cc, rate)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let mtu_bytes = mtu_bytes(args, session);
    // Another controller than `fixed` only begins at the rate.
    let is_fixed = matches!(controller, ControllerConfig::Fixed { .. });
    let start_bits_per_s = rate.filter(|_| !is_fixed);
    let settings = Settings {
        mtu_bytes,
        rtt: rtt(session),
        controller,
        start_bits_per_s,
        repair: args.repair,
        shim: args.shim,
        ..Settings::default()
    };
    let ends = Ends::open(session, settings, count).map_err(Failure::Usage)?;
    let described = ends.described(session);
    Ok((ends, described))
}

/// Connects the client's end to the server's.
pub(super) fn connect(
    args: &ClientArgs,
    ends: &Ends,
    session: &Connection,
    described: Option<Described>,
) -> Result<(), Failure> {
    let described = described.ok_or_else(|| {
        let text = "the server is of an older version, which has no reliable connections";
        Failure::Network(text.to_owned())
    })?;
    let is_older = args.shim != ShimSettings::Off && described.shim.is_none()
        || args.repair != Repair::default() && described.repair.is_none()
        || described.count() != ends.all.len();
    if is_older {
        let text = "the server is of an older version, which has no --shim, --repair and --queue-pairs: update it, or leave them out";
        return Err(Failure::Network(text.to_owned()));
    }
    ends.connect(&described, session).map_err(Failure::Network)
}

/// What a user is told at the start.
pub(super) fn start_line(args: &ClientArgs, session: &Connection) -> String {
    let mtu_bytes = mtu_bytes(args, session);
    let shim = match args.shim {
        ShimSettings::Off => String::new(),
        shim => format!(", repairs {shim}"),
    };
    let repair = match args.repair {
        Repair::GoBackN => "go-back-N",
        Repair::SelectiveRepeat => "selective repeat",
    };
    let connections = match args.queue_pairs {
        1 => "reliable connection".to_owned(),
        count => format!("{count} reliable connections"),
    };
    let wire = match wire(session) {
        Wire::Sealed => ", wire sealed",
        Wire::Short | Wire::Rdma => "",
    };
    format!("{connections}, {repair}, {mtu_bytes} bytes a packet{wire}{shim}")
}

/// The form of packets: the session's context has a token, or none, for all that it makes.
fn wire(session: &Connection) -> Wire {
    match session.chosen().wire == Wire::Sealed.name() {
        true => Wire::Sealed,
        false => Wire::Rdma,
    }
}

/// What the report says of the connection.
pub(super) fn facts(
    args: &ClientArgs,
    session: &Connection,
    stats: &RcStats,
    refused_packets: u64,
) -> Facts {
    let mtu_bytes = mtu_bytes(args, session);
    Facts {
        mode: args.repair.name().to_owned(),
        channels: 1,
        chunk_bytes: mtu_bytes.into(),
        mtu_bytes,
        wire: wire(session).name(),
        payload_bytes_max: mtu_bytes,
        refused_packets,
        sent: sent(stats),
        auto: None,
        rc: Some(RcCounts {
            psn_naks: stats.psn_naks,
            rnr_naks: stats.rnr_naks,
            timeouts: stats.timeouts,
            shim: args.shim.to_string(),
            chosen: chosen(stats),
            repairs: Repairs::of(stats),
        }),
        datagrams: None,
    }
}

/// Why the packets that came to an end were protected as they were.
fn chosen(stats: &RcStats) -> Option<Chosen> {
    let choices = stats.shim.map_or(0, |shim| shim.auto.choices);
    stats.auto.map(|why| Chosen { why: why.to_string(), choices })
}

impl Repairs {
    fn of(stats: &RcStats) -> Self {
        let ShimCounters { sent, received, .. } = stats.shim.unwrap_or_default();
        Self {
            sent: sent.repairs_sent,
            blocks_uncoded: sent.blocks_uncoded,
            recovered: received.packets_recovered,
            failed: received.blocks_failed,
        }
    }
}

/// What the client's end has sent.
fn sent(stats: &RcStats) -> Sent {
    Sent {
        packets: stats.packets,
        bytes: stats.bytes_acknowledged,
        retransmitted_packets: stats.retransmitted_packets,
        ..Sent::default()
    }
}
