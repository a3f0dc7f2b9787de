//! How far a transfer is: a bar on a terminal, a line now and then elsewhere.

use super::report::Side;
use crate::output::Output;
use crate::units::{show_bytes, show_rate};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Time over which the rate is smoothed.
const SMOOTH: Duration = Duration::from_secs(3);
/// Shorter spans give no rate worth showing.
const SPAN_MIN: Duration = Duration::from_millis(50);

/// What there is to show.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Snapshot {
    /// Bytes of files moved.
    pub(crate) bytes: u64,
    /// Bytes there are in all, once known.
    pub(crate) bytes_total: Option<u64>,
    /// Bytes that need not move: they are there already.
    pub(crate) bytes_skipped: u64,
    /// Files that have ended.
    pub(crate) files: u64,
    /// Files there are in all, once known.
    pub(crate) files_total: Option<u64>,
    /// Share of packets sent again (sender) or lost (receiver).
    pub(crate) repaired_share: f64,
}

/// See the module's text.
pub(crate) struct Progress {
    output: Output,
    side: Side,
    bar: Option<ProgressBar>,
    state: Mutex<State>,
}

struct State {
    started: Instant,
    line: Instant,
    rate: Rate,
}

impl Progress {
    pub(crate) fn new(output: Output, side: Side) -> Self {
        let bar = output.shows_progress().then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{bar:30} {msg}").expect("a valid template");
            bar.set_style(style);
            bar
        });
        let now = Instant::now();
        Self {
            output,
            side,
            bar,
            state: Mutex::new(State { started: now, line: now, rate: Rate::new(now) }),
        }
    }

    /// Shows a new state.
    pub(crate) fn update(&self, snapshot: &Snapshot) {
        let now = Instant::now();
        let mut state = self.lock();
        state.rate.add(now, snapshot.bytes);
        let rate = state.rate.bytes_per_s;
        if let Some(bar) = &self.bar {
            bar.set_length(snapshot.bytes_total.unwrap_or(0));
            bar.set_position(snapshot.bytes + snapshot.bytes_skipped);
            bar.set_message(describe(snapshot, self.side, rate));
        } else if now - state.line >= LINE_EVERY {
            state.line = now;
            self.output.note(&describe(snapshot, self.side, rate));
        }
    }

    /// Prints a note without breaking the bar.
    pub(crate) fn note(&self, note: &str) {
        self.suspend(|| self.output.note(note));
    }

    /// Prints an error, quiet or not.
    pub(crate) fn error(&self, error: &str) {
        self.suspend(|| eprintln!("lacuna: {error}"));
    }

    /// Runs something that prints.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Seconds since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.lock().started.elapsed()
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exponentially smoothed rate.
struct Rate {
    at: Instant,
    bytes: u64,
    bytes_per_s: Option<f64>,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self { at: now, bytes: 0, bytes_per_s: None }
    }

    fn add(&mut self, now: Instant, bytes: u64) {
        let span = now - self.at;
        if span < SPAN_MIN {
            return;
        }
        let latest = bytes.saturating_sub(self.bytes) as f64 / span.as_secs_f64();
        let weight = 1.0 - (-span.as_secs_f64() / SMOOTH.as_secs_f64()).exp();
        self.bytes_per_s = Some(match self.bytes_per_s {
            None => latest,
            Some(before) => before + weight * (latest - before),
        });
        (self.at, self.bytes) = (now, bytes);
    }
}

fn describe(snapshot: &Snapshot, side: Side, bytes_per_s: Option<f64>) -> String {
    let done = snapshot.bytes + snapshot.bytes_skipped;
    let mut text = show_bytes(done);
    if let Some(total) = snapshot.bytes_total {
        text += &format!(" of {}", show_bytes(total.max(done)));
    }
    let rate = bytes_per_s.unwrap_or(0.0);
    let repaired = snapshot.repaired_share * 100.0;
    text += &format!(", {}, {repaired:.2} % {}", show_rate(rate * 8.0), side.repaired());
    text += &match snapshot.files_total {
        Some(total) => format!(", {} of {} files", snapshot.files, total.max(snapshot.files)),
        None => format!(", {} files", snapshot.files),
    };
    if let Some(total) = snapshot.bytes_total
        && rate >= 1.0
    {
        let left_s = (total.saturating_sub(done) as f64 / rate).ceil().min(1e9) as u64;
        text += &format!(", {} left", show_time(left_s));
    }
    text
}

fn show_time(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_described_with_rate_loss_and_time_left() {
        let snapshot = Snapshot {
            bytes: 1 << 30,
            bytes_total: Some(4 << 30),
            bytes_skipped: 1 << 30,
            files: 1,
            files_total: Some(3),
            repaired_share: 0.0012,
        };
        assert_eq!(
            describe(&snapshot, Side::Sender, Some(125e6)),
            "2 GiB of 4 GiB, 1 Gbit/s, 0.12 % resent, 1 of 3 files, 0:18 left"
        );
        let unknown = Snapshot { bytes_total: None, files_total: None, ..snapshot };
        assert_eq!(
            describe(&unknown, Side::Receiver, None),
            "2 GiB, 0 kbit/s, 0.12 % lost, 1 files"
        );
        assert_eq!(show_time(3 * 3600 + 62), "3:01:02");
    }

    #[test]
    fn the_rate_follows_what_moved() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        rate.add(start + Duration::from_millis(1), 1);
        assert_eq!(rate.bytes_per_s, None, "too short to tell");
        rate.add(start + Duration::from_secs(1), 1000);
        assert_eq!(rate.bytes_per_s, Some(1000.0));
        for second in 2..30 {
            rate.add(start + Duration::from_secs(second), 1000 + (second - 1) * 3000);
        }
        assert!((rate.bytes_per_s.unwrap() - 3000.0).abs() < 10.0);
    }
}
