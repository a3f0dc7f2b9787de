//! `lacuna send`, from here. What it fetches from elsewhere is in `fetch.rs`.

use super::SendArgs;
use super::fetch;
use super::progress::Progress;
use super::report::{Reporter, Side};
use super::ssh::{self, Far, Place, Want};
use super::target::{self, Target, To};
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use crate::trust::code;
use crate::trust::known::Meeting;
use lacuna::address::show;
use lacuna::{ConnectError, ContextConfig, Security};
use lacuna_service::Purpose;
use lacuna_transfer::{SendError, SendOptions, Sender, Sources, Summary};
use std::path::PathBuf;
use std::sync::Arc;

/// Advice when the part that arrived is kept.
pub(super) const RESUME: &str = "run the same command again to resume";

pub(super) fn run(args: &SendArgs, output: Output) -> Result<(), Failure> {
    args.pace.check()?;
    match target::split(&args.words)? {
        Target::Send { paths, to } => send(args, &paths, to, output),
        Target::Fetch { from, paths, folder } => fetch::run(args, from, paths, &folder, output),
    }
}

fn send(args: &SendArgs, paths: &[PathBuf], to: To, output: Output) -> Result<(), Failure> {
    let code = match &to {
        To::Listener { code, .. } => {
            code::of_sender(code.as_ref().map(|(code, host)| (code.as_str(), host.as_str())))?
        }
        To::Ssh(_) => None,
    };
    let sources = Sources::check(paths).map_err(|error| Failure::of(&error))?;
    interrupt::install()?;
    let capture = Capture::open(&args.capture, Captures::Transport, output)?;
    // ssh may ask for a password: before anything is drawn.
    let route = match to {
        To::Ssh(Place { login, path: folder }) => {
            let want = Want::Receive { folder, overwrite: args.ssh.overwrite };
            Route::Ssh(Box::new(args.far(login, want, output)?))
        }
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
        Route::Ssh(far) => far.at_an_address(
            |address| send(address, far.security.clone()),
            |error| matches!(error, SendError::Connect(error) if error.is_retryable()),
        ),
        Route::Listener(address) => match code {
            Some(code) => send(address, args.trust.by_code(code)?),
            None => introduced(args, address, &send, output)?,
        },
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

/// Sends without a code, as long as none is wanted: to a receiver that is known by what the command says, or by its key.
fn introduced(
    args: &SendArgs,
    address: &str,
    send: &dyn Fn(&str, Security) -> Result<Summary, SendError>,
    output: Output,
) -> Result<Result<Summary, SendError>, Failure> {
    let meeting = match args.trust.says_something() {
        true => None,
        false => Meeting::new(address, &args.known)?,
    };
    let mut by_keys = match &meeting {
        Some(meeting) => args.trust.is_sealed() || meeting.is_expected()?,
        None => false,
    };
    loop {
        let security = match &meeting {
            Some(meeting) if by_keys => meeting.security(output)?,
            _ => args.trust.security(output)?,
        };
        let error = match send(address, security) {
            Err(SendError::Connect(error)) => error,
            sent => return Ok(sent),
        };
        let wants_keys =
            error.wants_encryption() || matches!(error, ConnectError::NobodyTrusted { .. });
        if meeting.is_some() && !by_keys && wants_keys {
            by_keys = true;
            continue;
        }
        if matches!(error, ConnectError::CodeWanted { .. })
            && let Some(code) = code::ask(output)?
        {
            return Ok(send(address, args.trust.by_code(code)?));
        }
        let again = match &meeting {
            Some(meeting) => meeting.decide(output)?,
            None => false,
        };
        if !again {
            return Ok(Err(SendError::Connect(error)));
        }
    }
}

/// How the receiver is reached.
enum Route {
    /// At this HOST:PORT.
    Listener(String),
    Ssh(Box<Far>),
}

fn sockets(args: &SendArgs, capture: &Capture) -> ContextConfig {
    args.pace.context(ContextConfig {
        channels: args.channels,
        wrap: capture.around(None),
        ..ContextConfig::default()
    })
}

fn options(args: &SendArgs, sockets: ContextConfig) -> SendOptions {
    SendOptions {
        retry: args.retry,
        quick: args.quick,
        buffers_bytes: args.buffers,
        connection: args.pace.connection(args.connection()),
        sockets,
        connect_within: None,
        stop: interrupt::stop(),
    }
}

fn failure(error: &SendError) -> Failure {
    match error {
        SendError::Connect(ConnectError::CodeWanted { peer }) => {
            let (peer, ip) = (show(*peer), peer.ip());
            Failure::Usage(format!(
                "{peer} does not know this host, so both ends have to prove who they are: give the code that lacuna recv shows there, as in CODE@{ip}, or what --help says of encryption"
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
