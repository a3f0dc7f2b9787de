//! Lines of results, printed by a thread of their own: whoever reads them may
//! take its time, and neither the transfer nor Ctrl-C is to wait for that.

use super::progress::Progress;
use crate::failure::Failure;
use crate::interrupt::{self, LOOK};
use crate::output::Output;
use lacuna_service::thread;
use std::io::IsTerminal;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines that may wait: a few megabytes. Then the transfer does.
const WAITING_MAX: usize = 16_384;
/// How long after Ctrl-C somebody may still read.
const GRACE: Duration = Duration::from_secs(1);

/// A line, or why there is none.
type Line = Result<String, Failure>;

/// See the module's text.
pub(crate) struct Printer {
    /// `None` comes after the last.
    lines: SyncSender<Option<Line>>,
    /// Why something was not printed, once everything was tried.
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

    /// Has a line printed, after those before.
    pub(crate) fn line(&self, line: Line) {
        self.give(Some(line), &mut interrupt::requested);
    }

    /// Has the last line printed, if there is one, and waits for the end of it.
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
            match ended.recv_timeout(LOOK) {
                Ok(failure) => return failure.map_or(Ok(()), Err),
                Err(RecvTimeoutError::Timeout) if !is_late() => {}
                Err(_) => return Ok(()),
            }
        }
    }

    /// Puts a line behind those that wait, unless it gets too late.
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
            std::thread::sleep(LOOK);
        }
    }
}

fn print(
    output: Output,
    progress: &Progress,
    work: &Receiver<Option<Line>>,
    done: &Sender<Option<Failure>>,
) {
    // Elsewhere a line cannot break the bar, and the bar must not wait for it.
    let breaks_bar = std::io::stdout().is_terminal();
    let mut failure = None;
    while let Ok(Some(line)) = work.recv() {
        let print = || output.line(&line?);
        let printed = if breaks_bar { progress.suspend(print) } else { print() };
        failure = failure.or(printed.err());
    }
    let _ = done.send(failure);
}
