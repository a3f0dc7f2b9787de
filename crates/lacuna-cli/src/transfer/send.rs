//! `lacuna send`.

use super::progress::Progress;
use super::report::{Reporter, Side};
use super::{SendArgs, target};
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use lacuna::{ConnectionConfig, ContextConfig};
use lacuna_service::Purpose;
use lacuna_transfer::{SendError, SendOptions, Sender, Sources};
use std::sync::Arc;

/// Advice when the part that arrived is kept.
const RESUME: &str = "run the same command again to resume";

pub(super) fn run(args: &SendArgs, output: Output) -> Result<(), Failure> {
    args.pace.check()?;
    let (paths, target) = target::split(&args.words)?;
    let sources = Sources::check(&paths).map_err(|error| Failure::of(&error))?;
    interrupt::install()?;
    let capture = Capture::open(&args.capture, Captures::Transport, output)?;
    let progress = Arc::new(Progress::new(output, Side::Sender));
    let reporter = Reporter::new(output, progress, capture.clone())?;
    let sent = Sender::new(options(args, &capture)).send_sources(sources, &target, &reporter);
    let ended = match sent {
        Ok(_) => reporter.finish(None, None),
        Err(SendError::Files(files)) => reporter.finish(None, Some(files)),
        Err(error) => reporter.finish(Some(failure(&error)), None),
    };
    capture.conclude(ended, output)
}

fn options(args: &SendArgs, capture: &Capture) -> SendOptions {
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
        sockets: args.pace.context(ContextConfig {
            channels: args.channels,
            wrap: capture.around(None),
            ..ContextConfig::default()
        }),
        stop: interrupt::stop(),
    }
}

fn failure(error: &SendError) -> Failure {
    match error {
        SendError::Connect(error) => Failure::unreached(error, Purpose::Files),
        SendError::Lost { reason, retry } if retry.is_zero() => {
            Failure::Network(format!("{reason}; {RESUME}"))
        }
        SendError::Lost { .. } => Failure::Network(format!("{error}, {RESUME}")),
        SendError::GaveUp { .. } => Failure::Network(format!("{error}; {RESUME}")),
        error => Failure::of(error),
    }
}
