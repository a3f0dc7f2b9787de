//! Prints result lines on a thread of its own, so that a slow reader blocks neither the transfer
//! nor Ctrl-C.

use super::progress::Progress;
use crate::failure::Failure;
use crate::interrupt::{self, POLL_INTERVAL};
use crate::output::Output;
use lacuna_service::thread;
use std::io::IsTerminal;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines that may wait, a few megabytes; beyond that the transfer blocks.
const WAITING_MAX: usize = 16_384;
/// How long after Ctrl-C the reader may take.
const GRACE: Duration = Duration::from_secs(1);

/// A line, or why there is none.
type Line = Result<String, Failure>;

/// The printing thread.
pub(crate) struct Printer {
    /// `None` ends it.
    lines: SyncSender<Option<Line>>,
    /// The error of printing, once all lines were tried.
    ended: Mutex<Receiver<Option<Failure>>>,
}

impl Printer {
    pub(crate) fn start(output: Output, progress: Arc<Progress>) -> Result<Self, Failure> {
        let (lines, work) = sync_channel(WAITING_MAX);
        let (done, ended) = channel();
        let print = move || print(output, &progress, &work, &done);
        thread::start("lacuna-print", print)?;
        Ok(Self { lines, ended: Mutex::new(ended) })
    }

    /// Queues a line.
    pub(crate) fn line(&self, line: Line) {
        self.give(Some(line), &mut interrupt::requested);
    }

    /// Queues a last line, if there is one, and waits until all are printed.
    pub(crate) fn finish(&self, line: Option<Line>) -> Result<(), Failure> {
        let mut asked = None;
        let mut is_late =
            || interrupt::requested() && asked.get_or_insert_with(Instant::now).elapsed() >= GRACE;
        let given = line.is_none_or(|line| self.give(Some(line), &mut is_late));
        if !given || !self.give(None, &mut is_late) {
            return Ok(());
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match ended.recv_timeout(POLL_INTERVAL) {
                Ok(failure) => return failure.map_or(Ok(()), Err),
                Err(RecvTimeoutError::Timeout) if !is_late() => {}
                Err(_) => return Ok(()),
            }
        }
    }

    /// Queues a line, unless `is_late`.
    fn give(&self, mut line: Option<Line>, is_late: &mut dyn FnMut() -> bool) -> bool {
        loop {
            match self.lines.try_send(line) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) => line = back,
                Err(TrySendError::Disconnected(_)) => return false,
            }
            if is_late() {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn print(
    output: Output,
    progress: &Progress,
    work: &Receiver<Option<Line>>,
    done: &Sender<Option<Failure>>,
) {
    // On a terminal a line must be coordinated with the bar; elsewhere the bar must not wait for
    // it.
    let breaks_bar = std::io::stdout().is_terminal();
    let mut failure = None;
    while let Ok(Some(line)) = work.recv() {
        let print = || output.line(&line?);
        let printed = if breaks_bar { progress.suspend(print) } else { print() };
        failure = failure.or(printed.err());
    }
    let _ = done.send(failure);
}
