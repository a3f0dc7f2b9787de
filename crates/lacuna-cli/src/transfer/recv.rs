//! `lacuna recv`.

use super::progress::Progress;
use super::report::{Reporter, Side};
use super::{RecvArgs, clean};
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::output::{Output, complain, start_line};
use crate::trust::code::CodeServed;
use crate::{interrupt, listening};
use lacuna::address::show;
use lacuna::{Connection, ContextConfig};
use lacuna_transfer::{
    BindError, Blames, ReceiveError, ReceiveOptions, Receiver, ReceiverEvent, Sessions,
};
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Advice when the received part is kept.
pub(super) const RESUME: &str = "the same command at the sender resumes";

pub(super) fn run(args: &RecvArgs, output: Output) -> Result<(), Failure> {
    interrupt::install()?;
    if args.clean {
        return clean::run(args, output);
    }
    let capture = Capture::open(&args.capture, Captures::Transport, output)?;
    let (security, code) = args.trust.offering(output)?;
    let sockets = ContextConfig {
        channels: args.channels,
        wrap: capture.around(None),
        ..ContextConfig::default()
    };
    let options = ReceiveOptions {
        overwrite: args.overwrite,
        sync: args.sync,
        buffers_bytes: args.buffers,
        sockets: ContextConfig { security, ..sockets },
        stop: interrupt::stop(),
    };
    let receiver = Receiver::bind(args.listen, &args.dir, options)?;
    let served = Arc::new(Served {
        output,
        capture: capture.clone(),
        once: args.once,
        below: below(&args.dir),
        code: CodeServed::default(),
        last: Mutex::new(None),
    });
    let into = format!(", receiving into {}", args.dir.display());
    listening::tell(output, receiver.local_addr(), "tcp", &into)?;
    if let Some(code) = code {
        code.show(args.once, served.code.clone(), output)?;
    }
    let ended = match args.once {
        true => served.conclude(receiver.serve_one(served.clone())),
        false => receiver.serve(served).map_err(|error| failure(&error)),
    };
    capture.conclude(ended, output)
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        match error {
            BindError::Listen(error) => error.into(),
            error @ BindError::Folder(_) => Self::of(&error),
        }
    }
}

fn failure(error: &ReceiveError) -> Failure {
    match error {
        ReceiveError::Lost { .. } | ReceiveError::Unable { .. } => {
            Failure::by(error.fault(), format!("{error}; {RESUME}"))
        }
        // This command's own error.
        ReceiveError::Observer(observer) => {
            observer.downcast_ref().cloned().unwrap_or_else(|| Failure::of(error))
        }
        error => Failure::of(error),
    }
}

/// Prefix for file names: the folder, or nothing for the current one.
pub(super) fn below(folder: &Path) -> String {
    let below = folder.components().filter(|part| *part != Component::CurDir);
    below.collect::<PathBuf>().join("").display().to_string()
}

/// The sessions of one command.
struct Served {
    output: Output,
    capture: Capture,
    once: bool,
    below: String,
    code: CodeServed,
    /// Outcome of the last session, with its lines.
    last: Mutex<Option<Result<(), Failure>>>,
}

impl Served {
    /// How the command ends after its one sender.
    fn conclude(&self, served: Result<(), ReceiveError>) -> Result<(), Failure> {
        if matches!(served, Err(ReceiveError::Interrupted)) {
            return Err(Failure::Interrupted);
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        last.unwrap_or_else(|| served.map_err(|error| failure(&error)))
    }
}

impl Sessions for Served {
    type Observer = Reporter;

    fn begin(&self, connection: &Connection) -> Result<Reporter, Box<dyn Error + Send + Sync>> {
        let progress = Arc::new(Progress::new(self.output, Side::Receiver));
        progress.note(&start_line(connection));
        let reporter = Reporter::new(self.output, progress, self.capture.clone())?;
        Ok(reporter.below(self.below.clone()))
    }

    fn end(&self, reporter: Reporter, peer: SocketAddr, result: Result<(), &ReceiveError>) {
        let result = match result {
            Ok(()) => reporter.finish(None, None),
            Err(ReceiveError::Files(files)) => reporter.finish(None, Some(files.clone())),
            Err(error) => reporter.finish(Some(failure(error)), None),
        };
        if result.is_ok() {
            self.code.note();
        }
        // An interrupt is reported once, at the end.
        if let Err(failure) = &result
            && !self.once
            && !matches!(failure, Failure::Interrupted)
        {
            reporter.error(&format!("{}: {failure}", show(peer)));
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    fn on_event(&self, event: &ReceiverEvent<'_>) {
        match event.is_end() {
            true => complain(event),
            false => self.output.note(&event.to_string()),
        }
    }
}
