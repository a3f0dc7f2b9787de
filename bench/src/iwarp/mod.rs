//! iWARP over datagrams beside iWARP over TCP, in one run: what Grant et al., "Scalable connectionless RDMA over
//! unreliable datagrams" (datagram-iWARP), section 3.2, measured, with the goals of this project beside.
//!
//! | contestant | |
//! |---|---|
//! | `TCP` | messages in a stream, one `write` each, or many in one (`coalesced`) |
//! | `RC Send`, `RC Write` | the paper's baseline: DDP and RDMAP over MPA with markers and CRC32C over TCP (`rc.rs`, `mpa.rs`, `ddp.rs`) |
//! | `UD Send`, `UD Write-Record` | Lacuna's datagram queue pair, CRC32C always on (`datagram.rs`) |
//!
//! No contestant has a thread besides the two that play, each on a core. Contestants take turns, in turned-around order
//! from round to round; the first round is not counted, and a ratio is that of two turns of one round.

mod bulk;
mod checksum;
mod datagram;
mod ddp;
mod echo;
mod end;
mod fairness;
mod hub;
mod latency;
mod line;
mod mpa;
mod path;
mod peers;
mod rates;
mod rc;
mod stream;
mod turn;
mod ucx;

use crate::pin;
use anyhow::{Result, ensure};
use datagram::{Datagram, Kind};
use end::Contestant;
use line::Printer;
use path::Path;
use rc::{Rc, Verb, Writes};
use std::time::Duration;
use stream::Stream;
use turn::Sides;

const TCP: &str = "TCP";
const RC_SEND: &str = "RC Send";
const RC_WRITE: &str = "RC Write";
const UD_SEND: &str = "UD Send";
const UD_RECORD: &str = "UD Write-Record";
/// What can be named on the command line.
const PARTS: [&str; 6] = ["peers", "fairness", "latency", "rates", "checksum", "ucx"];

/// Settings of the command line.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct IwarpArgs {
    /// Only these parts: peers, fairness, latency, rates, checksum, ucx
    only: Vec<String>,
    /// Only this path: loopback, veth
    #[arg(long)]
    path: Option<String>,
    /// Only messages of so many bytes, in latency and rates
    #[arg(long, value_delimiter = ',')]
    bytes: Vec<usize>,
    /// Only these contestants, in latency and rates, as in "UD Send"
    #[arg(long, value_delimiter = ',')]
    who: Vec<String>,
    /// Longest packet of datagram queue pairs, as UDP payload; the path's without
    #[arg(long)]
    packet_bytes: Option<usize>,
    #[arg(long, default_value_t = 11)]
    rounds: u32,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// How much a turn does.
#[derive(Debug, Clone, Copy)]
struct Effort {
    rounds: u32,
    /// Round trips of a turn.
    trips: usize,
    /// The longest messages.
    bytes_max: usize,
    /// Bytes of a turn one way, and its messages at most.
    bytes: usize,
    messages: usize,
    /// Messages of a turn with many peers.
    peer_messages: usize,
    /// How long a program of others runs.
    ucx: Duration,
}

/// What of latency and rates is measured.
#[derive(Debug)]
struct Limits {
    bytes: Vec<usize>,
    who: Vec<String>,
    bytes_max: usize,
}

impl Limits {
    fn has_bytes(&self, bytes: usize) -> bool {
        bytes <= self.bytes_max && (self.bytes.is_empty() || self.bytes.contains(&bytes))
    }

    fn has_contestant(&self, name: &str) -> bool {
        self.who.is_empty() || self.who.iter().any(|who| who == name)
    }
}

/// Measures everything; prints a table.
pub(crate) fn run(args: &IwarpArgs) -> Result<()> {
    let effort = Effort {
        rounds: args.rounds,
        trips: 2000,
        bytes_max: usize::MAX,
        bytes: 256 << 20,
        messages: 60_000,
        peer_messages: 40_000,
        ucx: Duration::from_millis(300),
    };
    measure(args, effort)
}

fn measure(args: &IwarpArgs, effort: Effort) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds must be 1 or more");
    let unknown = args.only.iter().find(|part| !PARTS.contains(&part.as_str()));
    ensure!(unknown.is_none(), "no part {unknown:?}: there are {}", PARTS.join(", "));
    let wants = |part: &str| args.only.is_empty() || args.only.iter().any(|only| only == part);
    let cores = pin::allowed()?;
    // On one core the ends take turns, and the figures say little.
    let cores = [cores[0], *cores.get(1).unwrap_or(&cores[0])];
    let limits =
        Limits { bytes: args.bytes.clone(), who: args.who.clone(), bytes_max: effort.bytes_max };
    let mut out = Printer { is_json: args.json, path: "", missed: 0 };
    out.say(&format!("medians of {} rounds [least-most]", args.rounds));
    // Many peers are addresses of loopback, and UCX's programs meet there.
    if args.path.as_ref().is_none_or(|only| only == "loopback") {
        out.begin("loopback");
        let path = Path::loopback();
        let sides = Sides { cores, path: &path };
        if wants("peers") {
            peers::run(sides, effort, &mut out)?;
        }
        if wants("fairness") {
            fairness::run(sides, effort, &mut out)?;
        }
        if wants("ucx") {
            ucx::run(sides, effort, &out)?;
        }
    }
    for name in ["loopback", "veth"] {
        if args.path.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let mut path = match name {
            "loopback" => Path::loopback(),
            _ => match Path::veth() {
                Ok(path) => path,
                Err(error) => {
                    eprintln!("veth: skipped, {error:#}");
                    continue;
                }
            },
        };
        path.packet_bytes = args.packet_bytes;
        let sides = Sides { cores, path: &path };
        out.begin(path.name());
        let (udp, tcp) = (path.udp_bytes(), path.tcp_bytes());
        out.say(&format!("{name}: packets of {udp} bytes (UDP payload), TCP segments of {tcp}"));
        if wants("latency") {
            latency::run(sides, effort, &limits, &mut out)?;
        }
        if wants("rates") {
            rates::run(sides, effort, &limits, &mut out)?;
        }
        if wants("checksum") {
            checksum::run(sides, effort, &mut out)?;
        }
    }
    let missed = out.missed;
    out.say(&format!("goals not met: {missed}"));
    Ok(())
}

fn tcp<'m>(name: &'static str, path: &'m Path, writes: Writes, bytes: usize) -> Contestant<'m> {
    Contestant::new(name, move || {
        let [near, far] = path.sockets()?;
        let [near, far] = [Stream::new(near, writes, bytes)?, Stream::new(far, writes, bytes)?];
        Ok([Box::new(near), Box::new(far)])
    })
}

fn rc<'m>(
    name: &'static str,
    path: &'m Path,
    kind: (Verb, Writes),
    bytes: usize,
) -> Contestant<'m> {
    Contestant::new(name, move || {
        let [near, far] = Rc::pair(path.sockets()?, kind, bytes, path.tcp_bytes())?;
        Ok([Box::new(near), Box::new(far)])
    })
}

fn ud<'m>(name: &'static str, path: &'m Path, kind: Kind, bytes: usize) -> Contestant<'m> {
    Contestant::new(name, move || {
        let end = |side| {
            path.inside(side, || Datagram::new(path.address(side), kind, bytes, path.udp_bytes()))
        };
        let (mut near, mut far) = (end(0)?, end(1)?);
        near.meet(far.address(), far.key())?;
        far.meet(near.address(), near.key())?;
        Ok([Box::new(near), Box::new(far)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_contestants_take_their_turn() {
        // Without UCX, whose programs this one starts by starting itself.
        let only = PARTS.iter().filter(|part| **part != "ucx").map(|part| (*part).to_owned());
        let only = only.collect();
        let args = IwarpArgs {
            only,
            bytes: Vec::new(),
            who: Vec::new(),
            path: None,
            packet_bytes: None,
            rounds: 1,
            json: true,
        };
        let effort = Effort {
            rounds: 1,
            trips: 20,
            bytes_max: 64 << 10,
            bytes: 1 << 20,
            messages: 100,
            peer_messages: 256,
            ucx: Duration::from_millis(200),
        };
        measure(&args, effort).unwrap();
    }
}
