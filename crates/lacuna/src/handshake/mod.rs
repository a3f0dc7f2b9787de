//! The exchange over TCP that makes a connection: who each end is, what both
//! will use, and the queue pairs' info.
//!
//! ```text
//! connecting end                                accepting end
//!   magic, hello (wishes, ports, keys)  ─────▶
//!                                       ◀─────  magic, welcome (ports, keys) or refusal
//!   probes over UDP, each channel       ◀────▶  probes over UDP, each channel
//!   found (largest packet that passed)  ◀────▶  found
//!   info (queue pair blob)              ◀────▶  info
//! ```
//!
//! After that TCP only tells that the peer lives; see `monitor.rs`. Messages
//! are a length and JSON, so that a capture reads well and fields may be added;
//! a wrong magic, version or parameter is an error that says so.

use crate::config::{Chosen, ConnectionConfig};
use crate::context::Context;
use crate::error::{ConnectError, QueuePairError};
use crate::queue_pair::{Keys, Owner, QueuePair, check_agreement, check_config};
use crate::queue_pair::{info_of, protocol};
use crate::shared::{Machine, Shared};
use lacuna_proto::modes::Mode;
use lacuna_proto::probe::{MTU_CANDIDATES, ProbeOutcome, Prober};
use lacuna_wire::{ImmediateSplit, QpInfo, Qpn};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Opens every control connection.
const MAGIC: &[u8; 8] = b"LACUNA\r\n";
/// Version of the exchange and of everything after it.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest message: far above what any holds.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Longest time that connecting may take: what is longer counts as for ever.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Characters of a peer's text that go into an error.
const QUOTED_CHARS_MAX: usize = 300;
/// Longest single wait for probes; news wake it earlier.
const NAP: Duration = Duration::from_millis(20);

/// What the hello of every version begins with; the rest is that version's own.
#[derive(Debug, Deserialize)]
struct AnyHello {
    version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: u32,
    /// Name and version of the program, for logs.
    agent: String,
    mode: String,
    chunk_bytes: u64,
    mtu_bytes: Option<u32>,
    generations: u8,
    /// Bits of message id, packet offset, user fragment.
    split: [u8; 3],
    max_message_bytes: u64,
    #[serde(default)]
    tag: u64,
    end: End,
}

/// How to reach one end's channels.
#[derive(Debug, Serialize, Deserialize)]
struct End {
    queue_pair: u32,
    qkey: u32,
    ports: Vec<u16>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Welcome {
    Accepted { version: u32, agent: String, mtu_bytes: Option<u32>, end: End },
    Refused { version: u32, reason: String },
}

#[derive(Debug, Serialize, Deserialize)]
struct Found {
    mtu_bytes: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Info {
    /// The queue pair's blob.
    queue_pair: Vec<u8>,
}

/// A finished exchange.
pub(crate) struct Agreed {
    pub(crate) queue_pair: QueuePair,
    pub(crate) config: ConnectionConfig,
    pub(crate) chosen: Chosen,
    pub(crate) control: TcpStream,
    pub(crate) peer: SocketAddr,
}

/// The control connection during the exchange.
struct Exchange {
    stream: TcpStream,
    peer: SocketAddr,
    deadline: Instant,
    doing: &'static str,
}

/// Ends a queue pair whose exchange did not get through.
struct Reservation {
    owner: Arc<Owner>,
}

/// When an exchange that begins now has taken too long.
pub(crate) fn deadline_of(config: &ConnectionConfig) -> Instant {
    Instant::now() + config.connect_timeout.min(TIMEOUT_MAX)
}

/// The connecting end.
pub(crate) fn connect(
    context: &Context,
    stream: TcpStream,
    config: ConnectionConfig,
    deadline: Instant,
) -> Result<Agreed, ConnectError> {
    // Nonsense is refused before the peer is troubled with it.
    check_config(&config)?;
    let mtu_bytes = config.mtu_bytes.unwrap_or(MTU_CANDIDATES[0]);
    config.geometry(mtu_bytes, context.config().channels).map_err(QueuePairError::from)?;
    let mut exchange = Exchange::new(stream, deadline)?;
    let peer_host = host_of(exchange.peer, context).map_err(|why| ConnectError::Unreachable {
        peer: exchange.peer.to_string(),
        source: io::Error::new(io::ErrorKind::Unsupported, why),
    })?;
    let keys = Keys::random()?;
    let reservation = Reservation::new(context, &keys)?;
    exchange.doing = "introducing itself";
    exchange.send_magic()?;
    exchange.send(&Hello {
        version: PROTOCOL_VERSION,
        agent: agent(),
        mode: config.mode.to_string(),
        chunk_bytes: config.chunk_bytes,
        mtu_bytes: config.mtu_bytes,
        generations: config.generations,
        split: [config.split.message_bits(), config.split.packet_bits(), config.split.user_bits()],
        max_message_bytes: config.max_message_bytes,
        tag: config.tag,
        end: reservation.end(context, &keys),
    })?;
    exchange.doing = "waiting for the welcome";
    exchange.receive_magic()?;
    let (end, mtu_bytes) = match exchange.receive()? {
        Welcome::Refused { version, reason } => {
            exchange.check_version(version)?;
            let reason = printable(&reason);
            return Err(ConnectError::Refused { peer: exchange.peer, reason });
        }
        Welcome::Accepted { version, mtu_bytes, end, .. } => {
            exchange.check_version(version)?;
            check_end(&end).map_err(|why| exchange.not_lacuna(why))?;
            (end, mtu_bytes)
        }
    };
    let config = ConnectionConfig { mtu_bytes: smaller(config.mtu_bytes, mtu_bytes), ..config };
    finish(context, exchange, reservation, &keys, config, peer_host, &end)
}

/// The accepting end. `config` holds this end's own choices (rate, deadlines,
/// timeouts, an MTU if fixed); mode and geometry are the connecting end's.
/// `takes` sees the connecting end's tag, and may refuse it with a reason.
pub(crate) fn accept(
    context: &Context,
    stream: TcpStream,
    config: ConnectionConfig,
    takes: impl FnOnce(u64) -> Result<(), String>,
) -> Result<Agreed, ConnectError> {
    let mut exchange = Exchange::new(stream, deadline_of(&config))?;
    exchange.doing = "waiting for the hello";
    exchange.receive_magic()?;
    let hello = exchange.receive_body()?;
    let AnyHello { version } = exchange.parse(&hello)?;
    exchange.send_magic()?;
    let refuse = |exchange: &mut Exchange, reason: String| {
        exchange.send(&Welcome::Refused { version: PROTOCOL_VERSION, reason })
    };
    if version != PROTOCOL_VERSION {
        refuse(&mut exchange, format!("this end speaks version {PROTOCOL_VERSION}"))?;
        exchange.check_version(version)?;
    }
    let hello: Hello = exchange.parse(&hello)?;
    let wished = wishes(&hello, &config);
    let agreed = wished.and_then(|wished| {
        let peer_host = host_of(exchange.peer, context)?;
        // Last: whoever takes it may set something aside for it.
        takes(wished.tag)?;
        Ok((wished, peer_host))
    });
    let (wished, peer_host) = match agreed {
        Ok(agreed) => agreed,
        Err(reason) => {
            refuse(&mut exchange, reason.clone())?;
            let reason = printable(&reason);
            return Err(ConnectError::Unacceptable { peer: exchange.peer, reason });
        }
    };
    let keys = Keys::random()?;
    let reservation = Reservation::new(context, &keys)?;
    exchange.doing = "sending the welcome";
    exchange.send(&Welcome::Accepted {
        version: PROTOCOL_VERSION,
        agent: agent(),
        mtu_bytes: config.mtu_bytes,
        end: reservation.end(context, &keys),
    })?;
    finish(context, exchange, reservation, &keys, wished, peer_host, &hello.end)
}

/// This end's configuration with the connecting end's wishes.
fn wishes(hello: &Hello, config: &ConnectionConfig) -> Result<ConnectionConfig, String> {
    let mode: Mode = hello.mode.parse().map_err(|error| format!("{error}"))?;
    let [message_bits, packet_bits, user_bits] = hello.split;
    let split = ImmediateSplit::new(message_bits, packet_bits, user_bits)
        .map_err(|error| error.to_string())?;
    let wished = ConnectionConfig {
        mode,
        chunk_bytes: hello.chunk_bytes,
        mtu_bytes: smaller(config.mtu_bytes, hello.mtu_bytes),
        split,
        generations: hello.generations,
        max_message_bytes: hello.max_message_bytes,
        tag: hello.tag,
        ..*config
    };
    // Whatever packet size is found, this must make a geometry.
    let channels = check_end(&hello.end)?;
    let mtu_bytes = wished.mtu_bytes.unwrap_or(MTU_CANDIDATES[0]);
    wished.geometry(mtu_bytes, channels).map_err(|error| error.to_string())?;
    check_config(&wished).map_err(|error| error.to_string())?;
    Ok(wished)
}

/// Whether packets can be addressed to an end; gives its number of channels.
fn check_end(end: &End) -> Result<u8, String> {
    let (least, most) = (Qpn::QUEUE_PAIR_MIN, Qpn::QUEUE_PAIR_MAX);
    if !(least..=most).contains(&end.queue_pair) {
        return Err(format!("queue pair {}: must be {least} to {most}", end.queue_pair));
    }
    if let Some(channel) = end.ports.iter().position(|port| *port == 0) {
        return Err(format!("port 0 for channel {channel}: nothing can be sent there"));
    }
    match end.ports.len() {
        count @ 1..=lacuna_wire::CHANNELS_MAX => Ok(count as u8),
        count => Err(format!("{count} channels: must be 1 to {}", lacuna_wire::CHANNELS_MAX)),
    }
}

/// The peer's host as this end's sockets have to name it: control connections
/// may be of another address family than the context.
fn host_of(peer: SocketAddr, context: &Context) -> Result<SocketAddr, String> {
    let local = context.addresses()[0].ip();
    match (local, peer.ip().to_canonical()) {
        (IpAddr::V6(local), IpAddr::V4(ip)) if local.is_unspecified() => {
            Ok(SocketAddr::new(ip.to_ipv6_mapped().into(), 0))
        }
        (IpAddr::V4(_), IpAddr::V4(ip)) => Ok(SocketAddr::new(ip.into(), 0)),
        // As it is: a link-local address has a scope.
        (IpAddr::V6(_), IpAddr::V6(_)) => Ok(peer),
        (_, ip) => Err(format!(
            "no packets from sockets at {local} to {ip}: bind the context to an address of the same family"
        )),
    }
}

/// A peer's text as it may be shown: short, and without control characters.
fn printable(text: &str) -> String {
    let mut shown = String::new();
    for char in text.chars().take(QUOTED_CHARS_MAX) {
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}

fn smaller(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn agent() -> String {
    concat!("lacuna/", env!("CARGO_PKG_VERSION")).to_owned()
}

/// From here on both ends do the same.
fn finish(
    context: &Context,
    mut exchange: Exchange,
    reservation: Reservation,
    keys: &Keys,
    config: ConnectionConfig,
    peer_host: SocketAddr,
    end: &End,
) -> Result<Agreed, ConnectError> {
    let shared = &reservation.owner.shared;
    let at = |port: &u16| {
        let mut address = peer_host;
        address.set_port(*port);
        Some(address)
    };
    let addresses: Vec<_> =
        end.ports.iter().take(usize::from(context.config().channels)).map(at).collect();
    let channels = addresses.len() as u8;
    let clock = context.clock();
    let now_ns = clock.now_ns();
    let patience = exchange.left()?;
    {
        let mut state = shared.lock();
        state.addresses = addresses;
        state.machine = Machine::Probing(Box::new(Prober::new(
            now_ns,
            (shared.number, keys.qkey),
            (end.queue_pair, end.qkey),
            channels,
            config.mtu_bytes,
            (patience * 3 / 4).as_nanos() as u64,
        )));
    }
    shared.kick();
    exchange.doing = "probing the path";
    let (found, rtt_ns) = probe(context, shared, &exchange, channels, patience)?;
    exchange.doing = "agreeing on the packet size";
    exchange.send(&Found { mtu_bytes: found })?;
    let theirs: Found = exchange.receive_while(context)?;
    let mtu_bytes = found.min(theirs.mtu_bytes);

    let geometry = config.geometry(mtu_bytes, channels).map_err(QueuePairError::from)?;
    let queue_pair = QueuePair { owner: reservation.owner.clone() };
    let addresses = {
        let qp = protocol(shared.number, &config, geometry, keys, 0);
        let mut state = shared.lock();
        state.machine = Machine::Connected(Box::new(qp));
        state.addresses.clone()
    };
    // Only now, when a change of the shares reaches this queue pair too.
    context.share_credit(Some(shared));
    exchange.doing = "exchanging the queue pairs' info";
    let local = context.addresses()[..usize::from(channels)].to_vec();
    let info = shared.with_qp(|qp| info_of(qp, local));
    exchange.send(&Info { queue_pair: info.emit() })?;
    let theirs: Info = exchange.receive_while(context)?;
    let theirs = QpInfo::parse(&theirs.queue_pair).map_err(QueuePairError::from)?;
    check_agreement(&geometry, &theirs)?;
    let start = queue_pair.connect_to(&theirs, addresses, rtt_ns, config.start_rate())?;

    let chosen = Chosen::new(&config, &geometry, context, theirs.credit_bytes, rtt_ns, start);
    exchange.stream.set_read_timeout(None).and(exchange.stream.set_write_timeout(None)).ok();
    Ok(Agreed { queue_pair, config, chosen, control: exchange.stream, peer: exchange.peer })
}

/// Waits for the probers to settle.
fn probe(
    context: &Context,
    shared: &Shared,
    exchange: &Exchange,
    channels: u8,
    patience: Duration,
) -> Result<(u32, Option<u64>), ConnectError> {
    let (clock, peer) = (context.clock(), exchange.peer);
    let mut state = shared.lock();
    loop {
        let Machine::Probing(prober) = &state.machine else { unreachable!("set by the caller") };
        match prober.outcome(clock.now_ns()) {
            ProbeOutcome::Settled { mtu_bytes } => {
                return Ok((mtu_bytes, prober.rtt().min_ns()));
            }
            ProbeOutcome::NoAnswer { answered } => {
                let (channels, waited) = (u32::from(channels), patience * 3 / 4);
                return Err(ConnectError::NoUdp { peer, answered, channels, waited });
            }
            ProbeOutcome::Pending => {}
        }
        if has_ended(&exchange.stream) {
            return Err(exchange.failed(io::ErrorKind::UnexpectedEof.into()));
        }
        if context.is_manual() {
            drop(state);
            context.progress_within(NAP);
            state = shared.lock();
        } else {
            state = shared.wait(state, NAP);
        }
    }
}

impl Reservation {
    fn new(context: &Context, keys: &Keys) -> Result<Self, ConnectError> {
        let shared = context.open_queue_pair(keys.qkey, |_| Machine::Reserved)?;
        Ok(Self { owner: Arc::new(Owner { context: context.clone(), shared }) })
    }

    fn end(&self, context: &Context, keys: &Keys) -> End {
        let ports = context.addresses().iter().map(SocketAddr::port).collect();
        End { queue_pair: self.owner.shared.number, qkey: keys.qkey, ports }
    }
}

impl Exchange {
    fn new(stream: TcpStream, deadline: Instant) -> Result<Self, ConnectError> {
        let peer = stream.peer_addr();
        let peer = peer
            .map_err(|source| ConnectError::Unreachable { peer: "the peer".to_owned(), source })?;
        let exchange = Self { stream, peer, deadline, doing: "starting" };
        exchange.stream.set_nodelay(true).map_err(|source| exchange.failed(source))?;
        Ok(exchange)
    }

    fn left(&self) -> Result<Duration, ConnectError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.failed(io::ErrorKind::TimedOut.into()));
        }
        Ok(left)
    }

    fn failed(&self, source: io::Error) -> ConnectError {
        // A read timeout shows as "would block"; say what it is.
        let source = match source.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "timed out"),
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection")
            }
            _ => source,
        };
        ConnectError::Exchange { peer: self.peer, doing: self.doing, source }
    }

    fn send_magic(&mut self) -> Result<(), ConnectError> {
        self.write(MAGIC)
    }

    fn receive_magic(&mut self) -> Result<(), ConnectError> {
        let mut magic = [0; MAGIC.len()];
        self.read(&mut magic)?;
        if &magic != MAGIC {
            return Err(self.not_lacuna(format!("it began with \"{}\"", magic.escape_ascii())));
        }
        Ok(())
    }

    fn check_version(&self, there: u32) -> Result<(), ConnectError> {
        if there == PROTOCOL_VERSION {
            return Ok(());
        }
        Err(ConnectError::Version { peer: self.peer, here: PROTOCOL_VERSION, there })
    }

    fn send(&mut self, message: &impl Serialize) -> Result<(), ConnectError> {
        let body = serde_json::to_vec(message).expect("plain data without maps");
        let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
        bytes.extend(body);
        self.write(&bytes)
    }

    fn not_lacuna(&self, why: String) -> ConnectError {
        ConnectError::NotLacuna { peer: self.peer, why }
    }

    fn receive<M: for<'d> Deserialize<'d>>(&mut self) -> Result<M, ConnectError> {
        let body = self.receive_body()?;
        self.parse(&body)
    }

    fn parse<M: for<'d> Deserialize<'d>>(&self, body: &[u8]) -> Result<M, ConnectError> {
        serde_json::from_slice(body).map_err(|error| {
            let error = printable(&error.to_string());
            self.not_lacuna(format!("while {}: {error}", self.doing))
        })
    }

    fn receive_body(&mut self) -> Result<Vec<u8>, ConnectError> {
        let mut length = [0; 4];
        self.read(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            let why = format!("a message of {length} bytes, at most {MESSAGE_BYTES_MAX} expected");
            return Err(self.not_lacuna(why));
        }
        let mut body = vec![0; length];
        self.read(&mut body)?;
        Ok(body)
    }

    /// Receives while probes are still being answered, which without threads
    /// is this end's own work.
    fn receive_while<M: for<'d> Deserialize<'d>>(
        &mut self,
        context: &Context,
    ) -> Result<M, ConnectError> {
        while context.is_manual() {
            self.stream
                .set_read_timeout(Some(Duration::from_millis(1)))
                .map_err(|source| self.failed(source))?;
            match self.stream.peek(&mut [0]) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    self.left()?;
                    context.progress();
                }
                Err(source) => return Err(self.failed(source)),
            }
        }
        self.receive()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ConnectError> {
        let left = self.left()?;
        let written =
            self.stream.set_write_timeout(Some(left)).and_then(|()| self.stream.write_all(bytes));
        written.map_err(|source| self.failed(source))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), ConnectError> {
        let mut filled = 0;
        while filled < bytes.len() {
            // The deadline holds for the whole, not for each byte of a slow peer.
            let left = self.left()?;
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut bytes[filled..]));
            match read {
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.failed(source)),
            }
        }
        Ok(())
    }
}

/// Whether the peer has closed the control connection, without waiting.
fn has_ended(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let ended = match stream.peek(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => !is_timeout(&error) && error.kind() != io::ErrorKind::Interrupted,
    };
    stream.set_nonblocking(false).is_err() || ended
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
