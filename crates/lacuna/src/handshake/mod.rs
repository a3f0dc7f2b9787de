//! The exchange over TCP that makes a connection: who each end is, what both
//! will use, and the queue pairs' info.
//!
//! ```text
//! connecting end                                 accepting end
//!   hello (wishes, ports, keys)          ─────▶  connected: posts receives
//!                                        ◀─────  welcome (packet size, info) or refusal
//!                                        ◀─────  over UDP: full packets, each channel;
//!   connected: data                      ─────▶          receives posted (clear to send)
//! ```
//!
//! One round trip behind TCP's own, and data right behind it. Four things that
//! would cost more are taken from elsewhere:
//!
//! - The control connection may be one that has served before, without TCP's round
//!   trip (`reuse.rs`).
//! - The round-trip time is TCP's, which its handshake has measured, if the
//!   exchange took no longer; else what the exchange took, until there is a
//!   sample. Only where packets over UDP come later than the welcome is TCP of
//!   another path, and time is taken to measure.
//! - The packet size is the largest candidate that both ends' TCP would send.
//!   That it passes shows by the accepting end's full packets, which come beside
//!   the welcome; from there on both ends prove it (`proof.rs` of `lacuna-proto`).
//!   Where those do not come, because of address translation, loss or a narrow
//!   link between, the connecting end probes before it goes on. If only smaller
//!   packets pass, it says goodbye and connects anew with what does.
//! - What the peer sends over UDP may overtake its welcome: it is kept
//!   (`early.rs`), since the peer's word that receives are posted may be in it.
//!
//! After that TCP only tells that the peer lives; see `monitor.rs`. A wrong
//! magic, version or parameter is an error that says so.

pub(crate) mod exchange;
mod rtt;
mod words;

pub(crate) use rtt::Rtt;
pub use words::PROTOCOL_VERSION;

use crate::address::{ScopedIp, canonical};
use crate::config::{Chosen, ConnectionConfig};
use crate::context::Context;
use crate::error::{ConnectError, QueuePairError};
use crate::queue_pair::{Keys, Owner, QueuePair, check_agreement, check_config};
use crate::queue_pair::{info_of, join, protocol};
use crate::reuse::{Heir, Kept};
use crate::shared::Shared;
use exchange::{Ended, Exchange};
use lacuna_datapath::{families, tcp_path};
use lacuna_engine::Lane;
use lacuna_engine::Machine;
use lacuna_engine::kinds::Early;
use lacuna_path::report_policy::ReportPolicy;
use lacuna_place::geometry::Geometry;
use lacuna_proto::modes::Mode;
use lacuna_proto::probe::{MTU_CANDIDATES, ProbeOutcome, Prober, candidates_within};
use lacuna_proto::qp::Peer;
use lacuna_wire::{ImmediateSplit, QpInfo};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use words::{AnyHello, End, Hello, Welcome, addresses, agent, printable, smaller};

/// Longest time that connecting may take: what is longer counts as for ever.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longest single wait for probes; news wake it earlier.
const NAP: Duration = Duration::from_millis(20);

/// A finished exchange.
pub(crate) struct Agreed {
    pub(crate) queue_pair: QueuePair,
    pub(crate) config: ConnectionConfig,
    pub(crate) chosen: Chosen,
    pub(crate) exchange: Exchange,
    /// Who gets the control connection afterwards, if it may serve again.
    pub(crate) heir: Option<Heir>,
}

/// What an exchange goes over.
pub(crate) enum Line {
    New(TcpStream),
    /// It has served before.
    Kept(Kept),
}

/// What became of connecting.
pub(crate) enum Connected {
    /// It is done.
    Agreed(Box<Agreed>),
    /// Packets of the size that was agreed on do not pass, of this payload do:
    /// to be done again with those.
    Smaller(u32),
    /// Nothing came over a control connection that was kept.
    Stale(ConnectError),
}

/// Ends a queue pair whose exchange did not get through.
struct Reservation {
    owner: Arc<Owner>,
}

/// What a queue pair is made and connected with.
struct Terms {
    config: ConnectionConfig,
    geometry: Geometry,
    peer: Peer,
    /// When the peer wants reports, if not by the default.
    reports: Option<ReportPolicy>,
    addresses: Vec<Option<SocketAddr>>,
    rtt: Option<Rtt>,
    patience: Duration,
    heir: Option<Heir>,
}

/// How long an exchange may take.
pub(crate) fn patience_of(config: &ConnectionConfig) -> Duration {
    config.connect_timeout.min(TIMEOUT_MAX)
}

/// When an exchange that begins now has taken too long.
pub(crate) fn deadline_of(config: &ConnectionConfig) -> Instant {
    Instant::now() + patience_of(config)
}

/// The part of what is left that finding out whether packets pass may take: so
/// that who gives up can still say why.
fn patience(left: Duration) -> Duration {
    left * 3 / 4
}

/// How long the hello may take over a control connection that was kept, before that is
/// taken for dead: a segment may be lost, and TCP sends it again after a round trip and
/// 200 ms. A hello that has arrived is waited with like any other, as the listener may
/// have others to serve first.
fn patience_with_kept(stream: &TcpStream) -> Duration {
    const LEAST: Duration = Duration::from_secs(1);
    let rtt_ns = tcp_path(stream).map_or(0, |path| path.rtt_ns);
    LEAST + 4 * Duration::from_nanos(rtt_ns)
}

fn is_timeout(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Exchange { source, .. } if source.kind() == io::ErrorKind::TimedOut)
}

/// The connecting end.
pub(crate) fn connect(
    context: &Context,
    line: Line,
    config: ConnectionConfig,
    deadline: Instant,
) -> Result<Connected, ConnectError> {
    // Nonsense is refused before the peer is troubled with it.
    check_config(&config)?;
    let mtu_bytes = config.mtu_bytes.unwrap_or(MTU_CANDIDATES[0]);
    config.geometry(mtu_bytes, context.config().channels).map_err(QueuePairError::from)?;
    let is_kept = matches!(line, Line::Kept(_));
    let mut exchange = match line {
        Line::New(stream) => Exchange::new(stream, deadline)?,
        Line::Kept(kept) => {
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = patience_with_kept(&kept.stream).min(left / 3);
            Exchange::again(kept, Instant::now() + patience)?
        }
    };
    let peer_host = host_of(exchange.peer, context).map_err(|why| ConnectError::Unreachable {
        peer: exchange.peer.to_string(),
        source: io::Error::new(io::ErrorKind::Unsupported, why),
    })?;
    let keys = Keys::random()?;
    let reservation = Reservation::new(context, &keys)?;
    let tcp = tcp_path(&exchange.stream);
    let asked_ns = context.clock().now_ns();
    exchange.doing = "introducing itself";
    let hello = Hello {
        version: PROTOCOL_VERSION,
        agent: agent(),
        mode: config.mode.to_string(),
        chunk_bytes: config.chunk_bytes,
        mtu_bytes: config.mtu_bytes,
        packet_bytes: tcp.map(|path| path.packet_bytes),
        generations: config.generations,
        split: [config.split.message_bits(), config.split.packet_bits(), config.split.user_bits()],
        max_message_bytes: config.max_message_bytes,
        tag: config.tag,
        // Without word of what has arrived, who is dead looks like who is busy.
        keeps: tcp.is_some(),
        end: reservation.end(context, &keys),
    };
    let mut body = exchange.open(&hello).and_then(|()| {
        exchange.doing = "waiting for the welcome";
        exchange.receive()
    });
    if is_kept {
        exchange.deadline = deadline;
        let is_late = exchange.left().is_ok() && body.as_ref().is_err_and(is_timeout);
        if is_late && tcp_path(&exchange.stream).is_some_and(|path| path.is_acknowledged) {
            body = exchange.receive();
        }
        if let Err(error @ ConnectError::Exchange { .. }) = body {
            // Others to there are likely to be dead too.
            context.idle().forget(exchange.peer);
            exchange.left()?;
            exchange.abandon();
            return Ok(Connected::Stale(error));
        }
    }
    let body = body?;
    let answered_ns = context.clock().now_ns();
    let (is_mtu_given, info, keeps) = match exchange.parse(&body)? {
        Welcome::Refused { version, reason } => {
            exchange.check_version(version)?;
            let reason = printable(&reason);
            return Err(ConnectError::Refused { peer: exchange.peer, reason });
        }
        Welcome::Busy { version, reason } => {
            exchange.check_version(version)?;
            let reason = printable(&reason);
            return Err(ConnectError::Busy { peer: exchange.peer, reason });
        }
        Welcome::Accepted { version, is_mtu_given, info, keeps, .. } => {
            exchange.check_version(version)?;
            (is_mtu_given, QpInfo::parse(&info).map_err(QueuePairError::from)?, keeps)
        }
    };
    if let Some(channel) = info.channels.iter().position(|address| address.port() == 0) {
        let why = format!("port 0 for channel {channel}: nothing can be sent there");
        return Err(exchange.not_lacuna(why));
    }
    let channels = info.channels.len().min(usize::from(context.config().channels));
    let geometry = config.geometry(info.mtu_bytes, channels as u8).map_err(QueuePairError::from)?;
    check_agreement(&geometry, &info)?;
    let peer = peer_of(&info);
    let addresses = addresses(peer_host, info.channels.iter().map(SocketAddr::port));

    let candidates = match is_mtu_given {
        true => vec![info.mtu_bytes],
        false => MTU_CANDIDATES.into_iter().filter(|mtu| *mtu <= info.mtu_bytes).collect(),
    };
    let patience = patience(exchange.left()?);
    let shared = &reservation.owner.shared;
    let prober = Prober::new(
        context.clock().now_ns(),
        (shared.number(), keys.qkey),
        (peer.queue_pair, peer.qkey),
        geometry.channels(),
        candidates,
        patience.as_nanos() as u64,
    );
    {
        let mut state = shared.lock();
        state.addresses = addresses.iter().copied().collect();
        state.machine.probe(prober);
    }
    exchange.doing = "probing the path";
    let tcp_ns = tcp_path(&exchange.stream).map(|path| path.rtt_ns);
    let rtt = Rtt::of_exchange(tcp_ns, answered_ns - asked_ns);
    let lag_ns_max = rtt.most_ns() / 2 + rtt::SLACK_NS;
    let (found, measured) =
        probe(context, shared, &exchange, patience, answered_ns.saturating_add(lag_ns_max))?;
    if found < info.mtu_bytes {
        let (peer, agreed) = (exchange.peer, info.mtu_bytes);
        tracing::info!(%peer, found, agreed, "the path takes smaller packets than TCP knows");
        exchange.say_goodbye();
        return Ok(Connected::Smaller(found));
    }
    let config = ConnectionConfig { mtu_bytes: is_mtu_given.then_some(found), ..config };
    let rtt = Some(measured.unwrap_or(rtt));
    let heir = keeps.then(|| Heir::Connecting(context.idle().clone(), exchange.peer));
    let reports = info.reports.as_ref().map(ReportPolicy::of_peer);
    let terms = Terms { config, geometry, peer, reports, addresses, rtt, patience, heir };
    let agreed = reservation.settle(context, &keys, terms, exchange);
    Ok(Connected::Agreed(Box::new(agreed)))
}

/// The accepting end, in one go. `config` holds this end's own choices (rate,
/// deadlines, timeouts, an MTU if given); mode and geometry are the connecting
/// end's. `takes` sees the connecting end's tag, and may refuse it with a reason.
pub(crate) fn accept(
    context: &Context,
    stream: TcpStream,
    config: &ConnectionConfig,
    heir: Heir,
    takes: impl FnOnce(u64) -> Result<(), String>,
) -> Result<Agreed, ConnectError> {
    let exchange = expect_hello(stream, deadline_of(config))?;
    answer(context, exchange, config, heir, takes)
}

/// The accepting end before its peer has said anything.
pub(crate) fn expect_hello(stream: TcpStream, deadline: Instant) -> Result<Exchange, ConnectError> {
    let mut exchange = Exchange::new(stream, deadline)?;
    exchange.doing = "waiting for the hello";
    Ok(exchange)
}

/// Tells a peer that has said nothing yet that there is no room for it.
pub(crate) fn turn_away(stream: &TcpStream, reason: String) {
    exchange::turn_away(stream, &Welcome::Busy { version: PROTOCOL_VERSION, reason });
}

/// The accepting end once its peer has said something.
pub(crate) fn answer(
    context: &Context,
    mut exchange: Exchange,
    config: &ConnectionConfig,
    heir: Heir,
    takes: impl FnOnce(u64) -> Result<(), String>,
) -> Result<Agreed, ConnectError> {
    let hello = exchange.receive()?;
    let AnyHello { version } = exchange.parse(&hello)?;
    let refuse = |exchange: &mut Exchange, reason: String| {
        exchange.open(&Welcome::Refused { version: PROTOCOL_VERSION, reason })
    };
    if version != PROTOCOL_VERSION {
        refuse(&mut exchange, format!("this end speaks version {PROTOCOL_VERSION}"))?;
        exchange.check_version(version)?;
    }
    let hello: Hello = exchange.parse(&hello)?;
    let path = tcp_path(&exchange.stream);
    let agreed = host_of(exchange.peer, context).and_then(|peer_host| {
        let packet_bytes = smaller(path.map(|path| path.packet_bytes), hello.packet_bytes);
        let largest = candidates_within(packet_bytes, header_bytes(peer_host));
        let (config, geometry) = wishes(&hello, config, largest[0], context.config().channels)?;
        // Last: whoever takes it may set something aside for it.
        takes(config.tag)?;
        Ok((config, geometry, peer_host))
    });
    let (config, geometry, peer_host) = match agreed {
        Ok(agreed) => agreed,
        Err(reason) => {
            refuse(&mut exchange, reason.clone())?;
            let reason = printable(&reason);
            return Err(ConnectError::Unacceptable { peer: exchange.peer, reason });
        }
    };
    let keys = Keys::random()?;
    let reservation = Reservation::new(context, &keys)?;
    let ports = hello.end.ports.iter().copied().take(usize::from(geometry.channels()));
    // Without threads nobody would hear the goodbye while this end waits for a hello, and
    // without `poll` (`waiting_room.rs`) nobody the hello.
    let keeps = hello.keeps && cfg!(unix) && !context.is_manual();
    let terms = Terms {
        config,
        geometry,
        peer: hello.end.peer(),
        // A hello does not say: no controller of this version wants any but the default.
        reports: None,
        addresses: addresses(peer_host, ports),
        rtt: path.map(|path| Rtt::Guessed(path.rtt_ns, path.rtt_ns)),
        patience: patience(exchange.left()?),
        heir: keeps.then_some(heir),
    };
    exchange.doing = "sending the welcome";
    // Before the welcome: what the peer sends behind it finds everything ready.
    let mut agreed = reservation.settle(context, &keys, terms, exchange);
    let local = context.addresses()[..usize::from(geometry.channels())].to_vec();
    let info = agreed.queue_pair.owner.shared.with_qp(|qp| info_of(qp, local));
    agreed.exchange.open(&Welcome::Accepted {
        version: PROTOCOL_VERSION,
        agent: agent(),
        is_mtu_given: config.mtu_bytes.is_some(),
        info: info.emit(),
        keeps,
    })?;
    // Without threads the first packets leave now or when the application looks.
    context.progress();
    Ok(agreed)
}

/// This end's configuration with the connecting end's wishes, and what follows
/// if packets have `mtu_bytes`, unless an end gives a size.
fn wishes(
    hello: &Hello,
    config: &ConnectionConfig,
    mtu_bytes: u32,
    channels: u8,
) -> Result<(ConnectionConfig, Geometry), String> {
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
    let channels = hello.end.check()?.min(channels);
    let mtu_bytes = wished.mtu_bytes.unwrap_or(mtu_bytes);
    let geometry = wished.geometry(mtu_bytes, channels).map_err(|error| error.to_string())?;
    check_config(&wished).map_err(|error| error.to_string())?;
    Ok((wished, geometry))
}

/// Headers of IP and UDP towards a host.
fn header_bytes(host: SocketAddr) -> u32 {
    match host {
        SocketAddr::V4(_) => 28,
        SocketAddr::V6(_) => 48,
    }
}

fn peer_of(info: &QpInfo) -> Peer {
    Peer {
        queue_pair: info.queue_pair,
        rkey: info.rkey,
        qkey: info.qkey,
        first_psn: info.first_psn,
        credit_bytes: info.credit_bytes,
    }
}

/// The peer's host, if packets from this context's sockets can go there: control connections may be
/// of another address family. The zone of a link-local address is that of the control connection at
/// this end.
pub(crate) fn host_of(peer: SocketAddr, context: &Context) -> Result<SocketAddr, String> {
    let (local, peer) = (context.addresses()[0], canonical(peer));
    let (takes_v4, takes_v6) = families(local);
    if peer.is_ipv4() && !takes_v4 || peer.is_ipv6() && !takes_v6 {
        let (local, ip) = (ScopedIp::from(local), peer.ip());
        return Err(format!(
            "no packets from sockets at {local} to {ip}: bind the context to an address of the same family"
        ));
    }
    Ok(peer)
}

/// Waits until it is known which packets pass, and if the peer's own did not come
/// by `lag_end_ns`, how long a round trip over UDP takes.
fn probe(
    context: &Context,
    shared: &Shared,
    exchange: &Exchange,
    patience: Duration,
    lag_end_ns: u64,
) -> Result<(u32, Option<Rtt>), ConnectError> {
    let (clock, peer) = (context.clock(), exchange.peer);
    let mut state = shared.lock();
    let gives_up_ns = clock.now_ns().saturating_add(patience.as_nanos() as u64);
    let mut is_asking = false;
    loop {
        let Machine::Probing(prober, _) = &state.machine else { unreachable!("set by the caller") };
        let mtu_bytes = prober.largest();
        match prober.outcome(clock.now_ns()) {
            ProbeOutcome::Settled { mtu_bytes } => {
                let rtt = prober.rtt().min_ns().map(Rtt::Measured);
                let is_late = prober.heard_ns().is_none_or(|heard_ns| heard_ns > lag_end_ns);
                if !is_late || rtt.is_some() || clock.now_ns() >= gives_up_ns {
                    return Ok((mtu_bytes, rtt));
                }
            }
            ProbeOutcome::NoAnswer { answered } => {
                let (channels, waited) = (u32::from(prober.channels()), patience);
                return Err(ConnectError::NoUdp { peer, answered, channels, waited });
            }
            ProbeOutcome::Pending => {}
        }
        if !is_asking {
            is_asking = true;
            shared.kick();
        }
        match exchange.has_ended() {
            None => {}
            Some(Ended::Broken) => {
                return Err(exchange.failed(io::ErrorKind::UnexpectedEof.into()));
            }
            // It has agreed, and gone since: what is done with the connection says so.
            Some(Ended::InGoodOrder) => return Ok((mtu_bytes, None)),
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
        let shared = context.roster().open(keys.qkey, |_| Machine::Reserved(Early::default()))?;
        Ok(Self { owner: Arc::new(Owner::new(context, shared)) })
    }

    fn end(&self, context: &Context, keys: &Keys) -> End {
        End {
            queue_pair: self.owner.shared.number(),
            rkey: keys.rkey,
            qkey: keys.qkey,
            first_psn: keys.first_psn,
            credit_bytes: context.roster().credit_now(),
            ports: context.addresses().iter().map(SocketAddr::port).collect(),
        }
    }

    /// Makes the queue pair that both ends have agreed on, connected, and takes
    /// in what came for it.
    fn settle(self, context: &Context, keys: &Keys, terms: Terms, exchange: Exchange) -> Agreed {
        let Terms { config, geometry, peer, reports, addresses, rtt, patience, heir } = terms;
        let rtt_ns = rtt.map(Rtt::most_ns);
        let Self { owner } = self;
        let shared = &owner.shared;
        let now_ns = context.clock().now_ns();
        let host = addresses.iter().flatten().next().copied().map(ScopedIp::from);
        let known = host.zip(rtt).map(|(host, rtt)| context.remembered(host, rtt.range_ns()));
        let mut remembered = known.unwrap_or_default();
        remembered.start = config.start_rate().or(remembered.start);
        let start = remembered.start;
        let rtt = remembered.rtt_ns.map(Rtt::Measured).or(rtt);
        let mut qp = protocol(shared.number(), &config, geometry, keys, 0);
        let writers = join(context, &mut qp, &addresses, peer, rtt, remembered);
        if let Some(reports) = reports {
            qp.set_report_policy(reports);
        }
        qp.prove(now_ns, patience.as_nanos() as u64);
        {
            let mut state = shared.lock();
            state.addresses = addresses.into_iter().collect();
            state.machine.connect(qp);
        }
        context.roster().hand_out(shared.number(), writers.into_iter().map(Lane::Sdr));
        if let Some(host) = host {
            context.roster().note_peer(host, shared);
            owner.peer.set(host).ok();
        }
        // Only now, when a change of the shares reaches this queue pair too.
        context.roster().share_credit(Some(shared));
        let credit_bytes = peer.credit_bytes;
        let chosen = Chosen::new(&config, &geometry, context, credit_bytes, rtt_ns, start);
        exchange
            .stream()
            .set_read_timeout(None)
            .and(exchange.stream().set_write_timeout(None))
            .ok();
        Agreed { queue_pair: QueuePair { owner }, config, chosen, exchange, heir }
    }
}
