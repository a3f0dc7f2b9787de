//! `lacuna send`.

use super::SendArgs;
use super::progress::Progress;
use super::report::{Reporter, Side};
use super::ssh::{self, Far};
use super::target::{self, Target, To};
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use crate::trust::code;
use lacuna::address::show;
use lacuna::{ConnectError, ConnectionConfig, ContextConfig};
use lacuna_service::Purpose;
use lacuna_transfer::{SendError, SendOptions, Sender, Sources, Summary};
use std::sync::Arc;

/// Advice when the part that arrived is kept.
const RESUME: &str = "run the same command again to resume";

pub(super) fn run(args: &SendArgs, output: Output) -> Result<(), Failure> {
    args.pace.check()?;
    let Target { paths, to } = target::split(&args.words)?;
    let code = match &to {
        To::Listener { code, .. } => {
            code::of_sender(code.as_ref().map(|(code, host)| (code.as_str(), host.as_str())))?
        }
        To::Ssh(_) => None,
    };
    let sources = Sources::check(&paths).map_err(|error| Failure::of(&error))?;
    interrupt::install()?;
    let capture = Capture::open(&args.capture, Captures::Transport, output)?;
    // ssh may ask for a password: before anything is drawn.
    let route = match to {
        To::Ssh(place) => Route::Ssh(args.far(place, output)?),
        To::Listener { address, .. } => Route::Listener(address),
    };
    let progress = Arc::new(Progress::new(output, Side::Sender));
    let reporter = Reporter::new(output, progress, capture.clone())?;
    let send = |to: &str, security| {
        let sockets = ContextConfig { security, ..sockets(args, &capture) };
        let mut options = options(args, sockets);
        if let Route::Ssh(far) = &route {
            options.stop = far.stop.clone();
            options.connect_within = Some(ssh::CONNECT_WITHIN);
        }
        Sender::new(options).send_sources(sources.clone(), to, &reporter)
    };
    let sent = match &route {
        Route::Ssh(far) => over_ssh(far, &|address| send(address, far.security.clone())),
        Route::Listener(address) => {
            let security = match code {
                Some(code) => args.trust.by_code(code)?,
                None => args.trust.security(output)?,
            };
            match send(address, security) {
                Err(SendError::Connect(error @ ConnectError::NobodyTrusted { .. })) => {
                    match code::ask(output)? {
                        Some(code) => send(address, args.trust.by_code(code)?),
                        None => Err(SendError::Connect(error)),
                    }
                }
                sent => sent,
            }
        }
    };
    let ended = match sent {
        Ok(_) => reporter.finish(None, None),
        Err(SendError::Files(files)) => reporter.finish(None, Some(files)),
        Err(error) => {
            let by_ssh = match &route {
                Route::Ssh(far) => far.ended(),
                Route::Listener(_) => None,
            };
            let failure = match by_ssh.filter(|_| matches!(error, SendError::Interrupted)) {
                Some(ended) => Failure::Network(format!("{ended}; {RESUME}")),
                None => failure(&error),
            };
            reporter.finish(Some(failure), None)
        }
    };
    capture.conclude(ended, output)
}

/// How the receiver is reached.
enum Route {
    /// At this HOST:PORT.
    Listener(String),
    Ssh(Far),
}

/// Sends to the first address of the far end that can be reached.
fn over_ssh(
    far: &Far,
    send: &dyn Fn(&str) -> Result<Summary, SendError>,
) -> Result<Summary, SendError> {
    match (send(&far.address), &far.other_address) {
        (Err(SendError::Connect(error)), Some(other)) if error.is_retryable() => {
            tracing::debug!(%error, "the other address");
            send(other)
        }
        (sent, _) => sent,
    }
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
        connect_within: None,
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
