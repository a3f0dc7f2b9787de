//! The client: opens a session, announces the measurement, measures on a second connection, and
//! reports both ends' counters.

use super::datagram::{self, Asked, Ends, Offered};
use super::ping::Pings;
use super::protocol::{
    ANSWERED_WITHIN, Answer, Awaited, Counters, Opening, TalkError, send, send_within,
};
use super::rc::{self, Described, Requests};
use super::reads::Reads;
use super::report::{Facts, Report};
use super::sending::{self, Measured, Sending};
use super::sends::Sends;
use super::verb::Verb;
use super::{ClientArgs, cpu};
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::interrupt;
use crate::memory;
use crate::output::{Output, conclude, start_line};
use lacuna::{
    Connection, ConnectionConfig, Context, ContextConfig, Region, RegionOptions, Rights, Wrap,
};
use lacuna_service::{Purpose, ReachError, connect, connect_again, random};
use std::sync::Arc;
use std::time::Duration;

/// How long the server may take to send its counters: it may have messages to check.
const COUNTED_WITHIN: Duration = Duration::from_secs(60);
/// The same after an early end, when a user may be waiting after Ctrl-C.
const COUNTED_SOON: Duration = Duration::from_secs(3);

pub(super) fn run(args: &ClientArgs, output: Output) -> Result<(), Failure> {
    interrupt::install()?;
    let capture = Capture::open(&args.end.capture, Captures::Transport, output)?;
    let result = measure(args, capture.around(None), &interrupt::requested, output);
    let ended = result.and_then(|mut report| {
        report.capture = capture.so_far();
        let told = report.print(output);
        let wrong = report.wrong().map(Failure::Verification);
        conclude(wrong.or_else(|| report.take_failure()), told)
    });
    capture.conclude(ended, output)
}

/// Measures once. `stop`, a server that dies, or any failure ends it early; the report then covers
/// what completed. `wrap` goes around the datapath of each channel.
pub(super) fn measure(
    args: &ClientArgs,
    wrap: Option<Wrap>,
    stop: &dyn Fn() -> bool,
    output: Output,
) -> Result<Report, Failure> {
    let plain = ConnectionConfig { deadline: Duration::MAX, ..ConnectionConfig::default() };
    let run = random() as u32;
    let config = args.pace.connection(ConnectionConfig {
        mode: args.mode,
        chunk_bytes: args.chunk.unwrap_or(plain.chunk_bytes),
        mtu_bytes: args.mtu,
        wire: args.wire,
        one_sided: args.verb.is_one_sided(),
        tag: Purpose::Measured.tag(run),
        ..plain
    });
    args.check()?;
    args.pace.check()?;
    // Check this end's options before a server is involved.
    if let Some(mtu_bytes) = args.mtu {
        let geometry = config.geometry(mtu_bytes, args.end.channels);
        geometry.map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let prepared = Prepared::new(args, stop, output)?;
    let session = ConnectionConfig { wire: args.wire, tag: Purpose::Session.tag(run), ..plain };
    let sockets = args.pace.context(ContextConfig {
        channels: args.end.channels,
        progress: args.end.progress(),
        datapath: args.end.datapath(),
        wrap: wrap.clone().filter(|_| !args.is_datagram()),
        ..ContextConfig::default()
    });
    let sockets = args.end.trust.context(sockets, output)?;
    let reached = connect(&args.host, &sockets, session, stop);
    let (context, session) = reached.map_err(unreached)?;
    let Prepared { buffers, sink } = prepared;
    // Answers are written here; the key is known to the server alone.
    let sink = sink.map(|sink| register(&context, sink)).transpose()?;
    if args.is_rc() {
        let memory = Prepared { buffers, sink: None };
        return measure_rc(args, &session, (memory, sink), stop, output);
    }
    if args.is_datagram() {
        let mut sessions = vec![(args.host.as_str(), session)];
        for host in &args.others {
            let config = ConnectionConfig { tag: Purpose::Session.tag(run), ..plain };
            let (_, session) = connect(host, &sockets, config, stop).map_err(unreached)?;
            sessions.push((host.as_str(), session));
        }
        let memory = Prepared { buffers, sink: None };
        return measure_datagrams(args, &sessions, (memory, sink), wrap, stop, output);
    }
    let asked = (sink.as_ref(), None, None);
    let Agreed { key, .. } = ask(args, (&args.host, &session), asked, stop)?;
    let measured = connect_again(&context, session.peer(), config, stop)?;
    output.note(&start_line(&measured));

    let before = measured.stats().context;
    let cpu_before_s = cpu::process_s();
    let request = args.request();
    let mut result = match (args.verb, &sink, key) {
        (Verb::Read, Some(sink), Some(key)) => {
            let reads = Reads::new(args, &measured, key, request, sink);
            Sending::new(args, reads, stop).run()
        }
        (_, Some(sink), Some(key)) => {
            let buffer = buffers.into_iter().next().unwrap_or_default();
            let pings = Pings::new(args, &measured, key, request, sink, buffer);
            Sending::new(args, pings, stop).run().halved()
        }
        (_, _, key) => {
            let sends = Sends::new(args, &measured, key.map(|key| (key, request)), buffers);
            Sending::new(args, sends, stop).run()
        }
    };
    let cpu_s = cpu::process_s() - cpu_before_s;
    let refused_before = before.refused_by_datapath;
    if args.verb == Verb::Read {
        result.received = measured.one_sided_stats().map(|stats| {
            let (rejected, drops) = (before.rejected_packets(), before.receive_drops);
            Counters::default().with_received(&stats, rejected, drops)
        });
    }
    let counters = counters(&session, &mut result, stop);
    result.name_host(&args.host);
    let facts = Facts::of_connection(args, &measured, refused_before);
    Ok(Report::new(args, facts, result, counters, cpu_s))
}

/// The same over a reliable connection.
fn measure_rc(
    args: &ClientArgs,
    session: &Connection,
    (memory, sink): (Prepared, Option<Region>),
    stop: &dyn Fn() -> bool,
    output: Output,
) -> Result<Report, Failure> {
    let (qp, described) = rc::open(args, session)?;
    let asked = (None, Some(described), None);
    let Agreed { key, rc: server, .. } = ask(args, (&args.host, session), asked, stop)?;
    rc::connect(args, &qp, session, server)?;
    output.note(&rc::start_line(args, session));
    let refused_before = session.stats().context.refused_by_datapath;
    let cpu_before_s = cpu::process_s();
    let requests = Requests::new(args, &qp, key.unwrap_or_default(), memory.buffers, sink.as_ref());
    let mut result = Sending::new(args, requests, stop).run();
    let cpu_s = cpu::process_s() - cpu_before_s;
    // Before it is closed and the counters of the path are gone with it.
    let stats = qp.stats();
    let counters = counters(session, &mut result, stop);
    result.name_host(&args.host);
    let refused = session.stats().context.refused_by_datapath - refused_before;
    Ok(Report::new(args, rc::facts(args, session, &stats, refused), result, counters, cpu_s))
}

/// The same over datagram queue pairs, to the servers of these sessions: of several all hear one group.
fn measure_datagrams(
    args: &ClientArgs,
    sessions: &[(&str, Connection)],
    (memory, sink): (Prepared, Option<Region>),
    wrap: Option<Wrap>,
    stop: &dyn Fn() -> bool,
    output: Output,
) -> Result<Report, Failure> {
    // Packets have to pass every path.
    let narrowest = sessions.iter().min_by_key(|(_, session)| session.chosen().mtu_bytes);
    let Some((_, session)) = narrowest else {
        return Err(Failure::Usage("there is no server".to_owned()));
    };
    let asked = datagram::asked(args, session);
    let agree = |(host, session): &(&str, Connection)| {
        let agreed = ask(args, (*host, session), (None, None, Some(asked)), stop)?;
        let offered = agreed.datagram.ok_or_else(|| {
            let text = format!("{host} is of an older version, which has no --qp ud: update it");
            Failure::Network(text)
        })?;
        offered.check(args, host)?;
        Ok::<Offered, Failure>(offered)
    };
    let offered = sessions.iter().map(agree).collect::<Result<Vec<_>, _>>()?.swap_remove(0);
    let ends = Ends::open(args, session, asked.packet_bytes(), &offered, wrap)?;
    output.note(&datagram::start_line(args, session));
    let cpu_before_s = cpu::process_s();
    let requests =
        datagram::Requests::new(args, &ends, offered, memory.buffers, sink.as_ref(), output);
    let mut result = Sending::new(args, requests, stop).run();
    let cpu_s = cpu::process_s() - cpu_before_s;
    if args.verb == Verb::Read {
        let duplicate_packets = ends.stats().discards.duplicate;
        result.received = Some(Counters { duplicate_packets, ..Counters::default() });
    }
    let told: Vec<_> = sessions
        .iter()
        .map(|(host, session)| (host, counters(session, &mut result, stop)))
        .collect();
    if args.group.is_none() {
        result.name_host(&args.host);
    }
    // Repairs went out until the last server had counted.
    let mut facts = datagram::facts(args, session, &ends.stats(), result.messages);
    let counters = told.first().and_then(|(_, counters)| counters.clone());
    let Some(datagrams) = facts.datagrams.as_mut().filter(|_| args.group.is_some()) else {
        return Ok(Report::new(args, facts, result, counters, cpu_s));
    };
    for (host, counters) in &told {
        datagrams.add_receiver(host, args.size, &result, counters.as_ref());
    }
    let others = told.iter().skip(1).filter_map(|(_, counters)| counters.as_ref());
    let counters = counters.map(|first| first.beside(others));
    Ok(Report::new(args, facts, result, counters, cpu_s))
}

fn unreached(error: ReachError) -> Failure {
    match error {
        ReachError::Connect(error) => Failure::unreached(&error, Purpose::Session),
        error => error.into(),
    }
}

/// What the server has agreed to.
#[derive(Default)]
struct Agreed {
    /// The key of its region, if it has one for this client.
    key: Option<u32>,
    rc: Option<Described>,
    datagram: Option<Offered>,
}

/// Memory of this end, made before a server is involved.
struct Prepared {
    /// Messages to send or to write.
    buffers: Vec<Arc<Vec<u8>>>,
    /// Where the server writes to.
    sink: Option<Vec<u8>>,
}

impl Prepared {
    fn new(args: &ClientArgs, stop: &dyn Fn() -> bool, output: Output) -> Result<Self, Failure> {
        let all = args.request().times(args.lines().into());
        let zeroed = || memory::zeroed(all.region_bytes() as usize);
        if args.verb == Verb::Read {
            sending::check_memory(args, output)?;
            return Ok(Self { buffers: Vec::new(), sink: Some(zeroed()?) });
        }
        let buffers = sending::buffers(args, stop, output)?;
        let sink = args.ping_pong.then(zeroed).transpose()?;
        Ok(Self { buffers, sink })
    }
}

fn register(context: &Context, memory: Vec<u8>) -> Result<Region, Failure> {
    let options = RegionOptions { rights: Rights::REMOTE_WRITE, ..RegionOptions::default() };
    context.register(memory, options).map_err(|error| Failure::Local(error.to_string()))
}

/// Announces the measurement and waits for the server's consent.
fn ask(
    args: &ClientArgs,
    (host, session): (&str, &Connection),
    (sink, rc, datagram): (Option<&Region>, Option<Described>, Option<Asked>),
    stop: &dyn Fn() -> bool,
) -> Result<Agreed, Failure> {
    let terms = args.terms(sink, rc, datagram);
    let needs_key = (args.verb.is_one_sided() || args.is_rc()) && !args.is_datagram();
    let is_plain = terms.is_none();
    let request = Opening { request: args.request(), terms };
    let answer = Awaited::<Answer>::post(session).map_err(TalkError::from);
    send(session, &request).map_err(|failure| {
        Failure::Network(format!("{host} took no request ({failure}): is it lacuna perf server?"))
    })?;
    match answer.and_then(|answer| answer.wait(ANSWERED_WITHIN, stop)) {
        Ok(Answer::Ready) if is_plain => Ok(Agreed::default()),
        Ok(Answer::Agreed { key, rc, datagram }) if key.is_some() || !needs_key => {
            Ok(Agreed { key, rc, datagram })
        }
        Ok(Answer::Ready | Answer::Agreed { .. }) => Err(Failure::Network(format!(
            "{host} is of an older version, which measures plain sends alone: update it, or leave out {}",
            args.beyond_plain().join(", ")
        ))),
        Ok(Answer::Refused { reason }) => {
            Err(Failure::Network(format!("{host} refused: {reason}")))
        }
        Err(TalkError::Stopped) => Err(Failure::Interrupted),
        Err(TalkError::Foreign(_)) => Err(Failure::Network(format!(
            "{host} is no lacuna perf server, or one of another version: it speaks another protocol"
        ))),
        Err(TalkError::Receive(error)) if error.is_closed() => Err(Failure::Network(format!(
            "{host} ended the session without an answer: is it lacuna perf server?"
        ))),
        Err(error) => Err(Failure::Network(format!("no answer from {host}: {error}"))),
    }
}

/// Ends the session and returns the server's counters; `None` if they do not come.
fn counters(
    session: &Connection,
    result: &mut Measured,
    stop: &dyn Fn() -> bool,
) -> Option<Counters> {
    // Do not wait for a server that has died.
    if result.ended.is_some() && session.failure().is_some() {
        return None;
    }
    match ask_for_counters(session, result, stop) {
        Ok(counters) => Some(counters),
        Err(failure) => {
            result.ended.get_or_insert(failure);
            None
        }
    }
}

fn ask_for_counters(
    session: &Connection,
    result: &Measured,
    stop: &dyn Fn() -> bool,
) -> Result<Counters, Failure> {
    let lost = |error: TalkError| match error {
        TalkError::Stopped => Failure::Interrupted,
        error => Failure::Network(format!("no result: {error}")),
    };
    let counters = Awaited::<Counters>::post(session).map_err(|error| lost(error.into()))?;
    let done = result.done();
    let counters = if result.ended.is_some() {
        send_within(session, &done, COUNTED_SOON)?;
        counters.wait(COUNTED_SOON, &|| false)
    } else {
        send(session, &done)?;
        counters.wait(COUNTED_WITHIN, stop)
    };
    counters.map_err(lost)
}
