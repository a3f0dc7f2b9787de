//! `lacuna perf`: throughput and completion times between two hosts, in the manner of
//! `ib_write_bw`.
//!
//! A session has two connections: a reliable one announces the measurement and returns the server's
//! counters; the other is measured, in the requested mode. With `--mode raw` nothing is repaired
//! and the server only polls the bitmap, as in the paper's benchmark (SDR-RDMA 5.4.1).
//!
//! | at the client | at the server | verb |
//! |---|---|---|
//! | `sending`, `sends` | `receiving`, `give_up` | send |
//! | `sending`, `sends` | `region` | write, with immediate or without |
//! | `ping` | `region` | write with immediate, back and forth |
//! | `sending`, `reads` | `region` | read |
//! | `rc` | `rc` | all, over a reliable connection, which needs no second connection |
//! | `datagram` | `datagram` | send, write-record and read, over datagram queue pairs |

mod client;
mod cpu;
mod datagram;
mod give_up;
mod idle;
mod pattern;
mod ping;
mod protocol;
mod rc;
mod reads;
mod receiving;
mod region;
mod report;
mod sending;
mod sends;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod turns;
mod verb;

use crate::capture::CaptureArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::pace::PaceArgs;
use crate::trust::{self, TrustArgs};
use crate::{address, interrupt, listening, modes, units, wire};
use clap::{Args, Subcommand};
use datagram::Asked;
use lacuna::rc::{Repair, ShimSettings};
use lacuna::{DatapathKind, Mode, Progress, Region, Wire};
use protocol::{Fill, Place, Request, Terms};
use rc::Described;
use server::{Server, Settings};
use std::net::SocketAddr;
use std::time::Duration;
use verb::Verb;

/// Where a server listens unless told otherwise.
const PORT: u16 = 7402;
/// Most messages per run: the time of each is kept in memory.
const COUNT_MAX: u64 = 1_000_000_000;

const EXAMPLES: &str = "\
Examples:
  lacuna perf server                on one machine, for as many clients as come
  lacuna perf client HOST           on the other: 8 MiB messages for 5 s";

const SERVER_EXAMPLES: &str = "\
Examples:
  lacuna perf server                           port 7402, IPv6 and IPv4, until Ctrl-C
  lacuna perf server --once --listen 81        one client, another port
  lacuna perf server --listen 0.0.0.0:7402     over IPv4 alone";

const CLIENT_EXAMPLES: &str = "\
Examples:
  lacuna perf client HOST                      8 MiB messages, 16 in flight, for 5 s
  lacuna perf client HOST -s 64KiB -n 1000     1000 messages of 64 KiB
  lacuna perf client HOST --mode raw           without repair: what the path delivers
  lacuna perf client HOST:81 --validate --json every byte checked, the result for a script
  lacuna perf client HOST --mode bounded --deadline 20ms
                                               what is there in time, and how much is lost
  lacuna perf client HOST --qp rc --verb write as an RDMA card would: in order, go-back-N
  lacuna perf client HOST --qp rc --verb write --shim lowar:32:1
                                               the same with a repair packet for each 32
  lacuna perf client HOST --qp ud --verb write-record --rate 1gbit
                                               datagrams: what of them came, and how many whole
  lacuna perf client HOST --qp ud -s 200 --peers 1000 --rate 100mbit --validate
                                               a server with a thousand clients
  lacuna perf client HOST1 HOST2 HOST3 --qp ud --group 192.168.1.255 --rate 300mbit
                                               each message once, for three servers
  lacuna perf client HOST --verb read          read the server's memory, several reads in flight
  lacuna perf client HOST --verb write-imm --ping-pong -s 64
                                               the latency of a small write";

/// Measure throughput and completion times between two machines.
///
/// Start `lacuna perf server` on one, `lacuna perf client HOST` on the other.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    side: Side,
}

/// Each is described where its arguments are.
#[derive(Debug, Subcommand)]
enum Side {
    Server(ServerArgs),
    Client(Box<ClientArgs>),
}

/// What both ends may choose.
#[derive(Debug, Args)]
struct EndArgs {
    /// Sockets, each with its own 4-tuple: as many as both ends ask for, 16 at most
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = units::count(1..=16u8))]
    channels: u8,
    /// Who makes progress: threads, or this program's own calls
    #[arg(long, default_value = "threads", value_parser = ["threads", "manual"])]
    progress: String,
    /// How long a thread looks for work before it sleeps
    #[arg(long, default_value = "20us", value_name = "TIME", value_parser = units::duration)]
    spin: Duration,
    /// Send and receive one packet a call, without the kernel's offloads
    #[arg(long)]
    no_offload: bool,
    #[command(flatten)]
    capture: CaptureArgs,
    #[command(flatten)]
    trust: TrustArgs,
}

impl EndArgs {
    fn progress(&self) -> Progress {
        match self.progress.as_str() {
            "manual" => Progress::Manual,
            _ => Progress::Threads { workers: 0, spin: self.spin },
        }
    }

    fn datapath(&self) -> DatapathKind {
        if self.no_offload { DatapathKind::UdpPlain } else { DatapathKind::Udp }
    }
}

/// Wait for clients and take what they send.
///
/// Ends by Ctrl-C, or with --once after a client. Several clients may measure at once; they share this machine and the path,
/// and one too many is told that the server is busy.
#[derive(Debug, Args)]
#[command(
    after_help = SERVER_EXAMPLES,
    after_long_help = [SERVER_EXAMPLES, trust::HELP, address::LISTEN_HELP, units::HELP].join("\n\n")
)]
struct ServerArgs {
    /// Where to listen: ADDRESS:PORT, or a port alone for all addresses,
    /// IPv6 and IPv4; port 0 takes any and prints it
    #[arg(
        long,
        default_value = "[::]:7402",
        value_name = "ADDRESS:PORT",
        value_parser = |text: &str| address::at(text, PORT)
    )]
    listen: SocketAddr,
    /// Clients at a time, 64 at most
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = units::count(1..=64u8))]
    clients: u8,
    /// End after one client, with its result
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    end: EndArgs,
}

/// Send to a server and report.
///
/// Rate and time are of the messages alone, after a warm-up: from posting a
/// message until the server has it. With --mode raw or bounded nothing is
/// repaired; the server counts what is missing, and the rate is of what arrived.
///
/// "ended" says why operations were over: whole, or with gaps because the last
/// packet had come (end), because the sender had said that all was sent
/// (accounted), by their deadline, because a later one came (preempted), or
/// because an end gave them up (cancelled).
#[derive(Debug, Args)]
#[command(
    after_help = CLIENT_EXAMPLES,
    after_long_help = [CLIENT_EXAMPLES, trust::HELP, address::HELP, units::HELP].join("\n\n")
)]
struct ClientArgs {
    /// The server: HOST or HOST:PORT (7402 if none is given)
    #[arg(value_parser = |text: &str| address::to(text, PORT))]
    host: String,
    /// More servers, which hear the same --group
    #[arg(value_name = "HOST", value_parser = |text: &str| address::to(text, PORT))]
    others: Vec<String>,
    /// Bytes per message
    #[arg(long, short, default_value = "8MiB", value_parser = units::some_bytes)]
    size: u64,
    /// Messages to send; without it, as many as --duration allows
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = units::count(1..=COUNT_MAX))]
    iters: Option<u64>,
    /// How long messages are begun; at least until one of the warm-up and one more have arrived
    #[arg(
        long,
        short = 'D',
        visible_alias = "time",
        default_value = "5s",
        value_name = "TIME",
        value_parser = units::some_duration
    )]
    duration: Duration,
    /// Messages before the measurement begins
    #[arg(long, default_value_t = 16, value_name = "COUNT", value_parser = units::count(0..=COUNT_MAX))]
    warmup: u64,
    /// Bytes per chunk, rounded up to whole packets: what a lost packet costs to repair;
    /// one packet if not given
    #[arg(long, value_name = "SIZE", value_parser = units::some_bytes)]
    chunk: Option<u64>,
    /// Payload bytes per packet; found by probing if not given
    #[arg(long, short, value_name = "SIZE", value_parser = units::packet_bytes)]
    mtu: Option<u32>,
    /// Messages in flight, 1024 at most
    #[arg(
        long,
        short = 't',
        visible_alias = "queue-depth",
        default_value_t = 16,
        value_name = "COUNT",
        value_parser = units::count(1..=1024u32)
    )]
    inflight: u32,
    /// Reliability; auto measures the path and says what it chose
    #[arg(long, default_value = "auto", value_parser = modes::parser())]
    mode: Mode,
    /// Operation that is measured
    #[arg(long, default_value = "send", value_parser = verb::parser())]
    verb: Verb,
    /// Kind of queue pair
    #[arg(long, default_value = "sdr", value_parser = verb::qp_parser())]
    qp: String,
    /// Queue pairs of --qp rc, each with --inflight messages; together they have --rate, 256 at most
    #[arg(
        long,
        default_value_t = 1,
        value_name = "COUNT",
        value_parser = units::count(1..=rc::QUEUE_PAIRS_MAX)
    )]
    queue_pairs: u16,
    /// Queue pairs of --qp ud, each a socket and so one more peer for the one queue pair of the server, which
    /// sees as many clients; each has --inflight messages, together they have --rate, 4096 at most
    #[arg(
        long,
        default_value_t = 1,
        value_name = "COUNT",
        value_parser = units::count(1..=datagram::PEERS_MAX)
    )]
    peers: u16,
    /// With --qp ud, send each message once, to this multicast group or broadcast address, ADDRESS or ADDRESS:PORT
    /// (7409 if none is given); every HOST takes what comes there, and asks for what it misses
    #[arg(long, value_name = "ADDRESS", value_parser = |text: &str| datagram::group::parse(text))]
    group: Option<SocketAddr>,
    /// What the servers of --group miss is not sent again
    #[arg(long, requires = "group")]
    no_group_repair: bool,
    /// How --qp rc repairs losses: gbn sends everything from a lost packet on again, as cards do, sr only what
    /// is missing
    #[arg(long, default_value = "gbn", value_name = "REPAIR")]
    repair: Repair,
    /// Repairs of lost packets below --qp rc, at both ends: off, lowar:auto as the losses call for, or
    /// lowar:R:C, C repairs for each R packets of a message, by exclusive or; lowar:mds:R:C by a code that
    /// repairs any C losses
    #[arg(long, default_value = "off", value_name = "SHIM")]
    shim: ShimSettings,
    /// Time after which an operation ends, with what came until then; of a receive it begins when it is posted,
    /// which the server does when an earlier one has ended. With --qp ud of reads alone: 1 s, and with --rate
    /// twice as long as all in flight take, unless given
    #[arg(long, value_name = "TIME", value_parser = units::some_duration)]
    deadline: Option<Duration>,
    /// What gaps of a message hold when its receive is over; if not given, zeros in mode bounded
    #[arg(long, value_enum)]
    missing: Option<Fill>,
    /// With write-imm: one write at a time, which the server writes back; times are halves of rounds
    #[arg(long)]
    ping_pong: bool,
    /// Form of data packets; the server takes either, if its datapath can
    #[arg(long, default_value = "short", value_parser = wire::parser())]
    wire: Wire,
    #[command(flatten)]
    pace: PaceArgs,
    /// Fill every message anew and check every byte at the server
    #[arg(long)]
    validate: bool,
    #[command(flatten)]
    end: EndArgs,
}

impl ClientArgs {
    /// Refuses options that do not go together.
    fn check(&self) -> Result<(), Failure> {
        let verb = self.verb.name();
        let is_lossy = !self.mode.is_reliable();
        let is_rc = self.is_rc();
        let of_sdr = [
            ("--ping-pong", self.ping_pong),
            ("--deadline", self.deadline.is_some()),
            ("--missing", self.missing.is_some()),
            ("--chunk", self.chunk.is_some()),
            ("--wire rdma", self.wire != Wire::default()),
            ("--mode", self.mode != Mode::Auto),
        ];
        let refused = if let Some(refused) = datagram::group::refused(self) {
            Some(refused.to_owned())
        } else if self.is_datagram()
            && let Some(refused) = datagram::refused(self)
        {
            Some(refused)
        } else if let Some(refused) = self.verb.refused(self.is_datagram()) {
            Some(refused)
        } else if !self.is_datagram() && self.peers > 1 {
            Some("--peers is for --qp ud: leave it out, or take --qp ud".to_owned())
        } else if let (true, Some((name, _))) = (is_rc, of_sdr.iter().find(|(_, is)| *is)) {
            Some(format!("{name} is not for --qp rc: leave it out, or take --qp sdr"))
        } else if !is_rc && self.queue_pairs > 1 {
            Some("--queue-pairs is for --qp rc: leave it out, or take --qp rc".to_owned())
        } else if !is_rc && (self.shim != ShimSettings::Off || self.repair != Repair::default()) {
            Some("--shim and --repair are of --qp rc: leave them out, or take --qp rc".to_owned())
        } else if is_rc && self.inflight > rc::DEPTH_MAX {
            Some(format!("--qp rc has --inflight {} at most", rc::DEPTH_MAX))
        } else if self.ping_pong && self.verb != Verb::WriteImm {
            Some(format!("--ping-pong needs --verb write-imm, not {verb}"))
        } else if self.ping_pong && is_lossy && self.deadline.is_none() {
            let mode = self.mode;
            Some(format!(
                "--ping-pong with --mode {mode} needs --deadline: a lost write never comes back"
            ))
        } else if self.missing.is_some() && self.verb.is_one_sided() {
            Some(format!("--missing is of receives, and --verb {verb} has none: leave it out"))
        } else if self.is_datagram() {
            None
        } else if self.validate
            && self.size < 8
            && (self.deadline.is_some() || self.verb.is_one_sided())
        {
            Some(
                "--validate with --deadline or --verb needs a --size of 8 bytes or more".to_owned(),
            )
        } else if self.verb == Verb::Read && (self.pace.rate.is_some() || self.pace.cc.is_some()) {
            Some("--rate and --cc are of this end, and with --verb read the server sends: leave them out".to_owned())
        } else if self.verb == Verb::Read {
            reads::too_many(self.size, self.inflight)
        } else {
            None
        };
        refused.map_or(Ok(()), |refused| Err(Failure::Usage(refused)))
    }

    /// Whether a reliable connection is measured.
    fn is_rc(&self) -> bool {
        self.qp == "rc"
    }

    /// Whether datagram queue pairs are measured.
    fn is_datagram(&self) -> bool {
        self.qp == "ud" || self.qp == "rd"
    }

    /// Queue pairs that are measured, each with a depth of its own.
    fn lines(&self) -> u16 {
        if self.is_datagram() { self.peers } else { self.queue_pairs }
    }

    /// Operations in flight at a time.
    fn depth(&self) -> u32 {
        if self.ping_pong { 1 } else { self.inflight }
    }

    fn request(&self) -> Request {
        Request { size_bytes: self.size, inflight: self.depth(), validate: self.validate }
    }

    /// What is asked of the server beyond plain sends; answers are written to `sink`.
    fn terms(
        &self,
        sink: Option<&Region>,
        rc: Option<Described>,
        datagram: Option<Asked>,
    ) -> Option<Terms> {
        let echo = sink.filter(|_| self.ping_pong);
        let terms = || Terms {
            verb: self.verb.name().to_owned(),
            deadline_us: self.deadline.map(|deadline| deadline.as_micros().max(1) as u64),
            missing: self.missing,
            echo: echo.map(|sink| Place { key: sink.key(), address: 0 }),
            rc: rc.clone(),
            datagram,
        };
        (!self.beyond_plain().is_empty()).then(terms)
    }

    /// The options that a server for plain sends alone does not know.
    fn beyond_plain(&self) -> Vec<&'static str> {
        let options = [
            ("--verb", self.verb != Verb::Send),
            ("--qp", self.is_rc() || self.is_datagram()),
            ("--deadline", self.deadline.is_some()),
            ("--missing", self.missing.is_some()),
        ];
        options.into_iter().filter_map(|(name, is_used)| is_used.then_some(name)).collect()
    }
}

pub(crate) fn run(args: &PerfArgs, output: Output) -> Result<(), Failure> {
    match &args.side {
        Side::Server(args) => {
            interrupt::install()?;
            let stop = Box::new(interrupt::requested);
            let server = Server::open(args, Settings::new(args), None, output, stop)?;
            listening::tell(output, server.local_addr(), "tcp", "")?;
            let (capture, ended) = (server.capture().clone(), server.run());
            drop(server);
            capture.conclude(ended, output)
        }
        Side::Client(args) => client::run(args, output),
    }
}
