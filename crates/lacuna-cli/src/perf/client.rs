//! The client: opens a session, announces the measurement, measures on a second connection, and
//! reports both ends' counters.

use super::protocol::{
    ANSWERED_WITHIN, Answer, Awaited, Counters, Done, Request, TalkError, send, send_within,
};
use super::report::Report;
use super::sending::{self, Measured, Sending};
use super::{ClientArgs, cpu};
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Output, conclude, start_line};
use lacuna::{Connection, ConnectionConfig, ContextConfig, Wrap};
use lacuna_service::{Purpose, ReachError, connect, connect_again, random};
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
        tag: Purpose::Measured.tag(run),
        ..plain
    });
    args.pace.check()?;
    // Check this end's options before a server is involved.
    if let Some(mtu_bytes) = args.mtu {
        let geometry = config.geometry(mtu_bytes, args.end.channels);
        geometry.map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let buffers = sending::buffers(args, stop, output)?;
    let session = ConnectionConfig { tag: Purpose::Session.tag(run), ..plain };
    let sockets = args.pace.context(ContextConfig {
        channels: args.end.channels,
        progress: args.end.progress(),
        datapath: args.end.datapath(),
        wrap,
        ..ContextConfig::default()
    });
    let reached = connect(&args.host, &sockets, session, stop);
    let (context, session) = reached.map_err(|error| match error {
        ReachError::Connect(error) => Failure::unreached(&error, Purpose::Session),
        error => error.into(),
    })?;
    ask(args, &session, stop)?;
    let measured = connect_again(&context, session.peer(), config, stop)?;
    output.note(&start_line(&measured));

    let cpu_before_s = cpu::process_s();
    let mut result = Sending::new(args, &measured, buffers, stop).run();
    let cpu_s = cpu::process_s() - cpu_before_s;
    let counters = counters(&session, &mut result, stop);
    result.ended = result.ended.map(|failure| match failure {
        Failure::Network(text) => Failure::Network(format!("{}: {text}", args.host)),
        failure => failure,
    });
    Ok(Report::new(args, &measured, result, counters, cpu_s))
}

/// Announces the measurement and waits for the server's consent.
fn ask(args: &ClientArgs, session: &Connection, stop: &dyn Fn() -> bool) -> Result<(), Failure> {
    let host = &args.host;
    let request =
        Request { size_bytes: args.size, inflight: args.inflight, validate: args.validate };
    let answer = Awaited::<Answer>::post(session).map_err(TalkError::from);
    send(session, &request).map_err(|failure| {
        Failure::Network(format!("{host} took no request ({failure}): is it lacuna perf server?"))
    })?;
    match answer.and_then(|answer| answer.wait(ANSWERED_WITHIN, stop)) {
        Ok(Answer::Ready) => Ok(()),
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
    let done = Done { messages: result.messages };
    let counters = if result.ended.is_some() {
        send_within(session, &done, COUNTED_SOON)?;
        counters.wait(COUNTED_SOON, &|| false)
    } else {
        send(session, &done)?;
        counters.wait(COUNTED_WITHIN, stop)
    };
    counters.map_err(lost)
}
