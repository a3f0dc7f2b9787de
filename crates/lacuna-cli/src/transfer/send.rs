//! `lacuna send`.

use super::progress::Progress;
use super::report::{Reporter, Side};
use super::{SendArgs, target};
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use crate::trust::code;
use lacuna::address::show;
use lacuna::{ConnectError, ConnectionConfig, ContextConfig};
use lacuna_service::Purpose;
use lacuna_transfer::{SendError, SendOptions, Sender, Sources};
use std::sync::Arc;

/// Advice when the part that arrived is kept.
const RESUME: &str = "run the same command again to resume";

pub(super) fn run(args: &SendArgs, output: Output) -> Result<(), Failure> {
    args.pace.check()?;
    let target = target::split(&args.words)?;
    let word = target.code.as_ref().map(|(code, host)| (code.as_str(), host.as_str()));
    let code = code::of_sender(word)?;
    let sources = Sources::check(&target.paths).map_err(|error| Failure::of(&error))?;
    interrupt::install()?;
    let capture = Capture::open(&args.capture, Captures::Transport, output)?;
    let progress = Arc::new(Progress::new(output, Side::Sender));
    let reporter = Reporter::new(output, progress, capture.clone())?;
    let send = |security| {
        let sockets = ContextConfig { security, ..sockets(args, &capture) };
        let sender = Sender::new(options(args, sockets));
        sender.send_sources(sources.clone(), &target.to, &reporter)
    };
    let mut sent = send(match code {
        Some(code) => args.trust.by_code(code)?,
        None => args.trust.security(output)?,
    });
    if let Err(SendError::Connect(ConnectError::NobodyTrusted { .. })) = sent
        && let Some(code) = code::ask(output)?
    {
        sent = send(args.trust.by_code(code)?);
    }
    let ended = match sent {
        Ok(_) => reporter.finish(None, None),
        Err(SendError::Files(files)) => reporter.finish(None, Some(files)),
        Err(error) => reporter.finish(Some(failure(&error)), None),
    };
    capture.conclude(ended, output)
}

fn sockets(args: &SendArgs, capture: &Capture) -> ContextConfig {
    args.pace.context(ContextConfig {
        channels: args.channels,
        wrap: capture.around(None),
        ..ContextConfig::default()
    })
}

fn options(args: &SendArgs, sockets: ContextConfig) -> SendOptions {
    let plain = ConnectionConfig::default();
    SendOptions {
        retry: args.retry,
        quick: args.quick,
        buffers_bytes: args.buffers,
        connection: args.pace.connection(ConnectionConfig {
            mode: args.mode,
            chunk_bytes: args.chunk.unwrap_or(plain.chunk_bytes),
            mtu_bytes: args.mtu,
            wire: args.wire,
            ..plain
        }),
        sockets,
        stop: interrupt::stop(),
    }
}

fn failure(error: &SendError) -> Failure {
    match error {
        SendError::Connect(ConnectError::NobodyTrusted { peer }) => {
            let (peer, ip) = (show(*peer), peer.ip());
            Failure::Usage(format!(
                "{peer} is not this host, so both ends have to prove who they are: give the code that lacuna recv shows there, as in CODE@{ip}, or what --help says of encryption"
            ))
        }
        SendError::Connect(error) => Failure::unreached(error, Purpose::Files),
        SendError::Lost { reason, retry } if retry.is_zero() => {
            Failure::Network(format!("{reason}; {RESUME}"))
        }
        SendError::Lost { .. } => Failure::Network(format!("{error}, {RESUME}")),
        SendError::GaveUp { .. } => Failure::Network(format!("{error}; {RESUME}")),
        error => Failure::of(error),
    }
}
