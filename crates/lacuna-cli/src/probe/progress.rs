//! Progress of a measurement: a bar on a terminal; elsewhere a line per trial.

use crate::output::Output;
use indicatif::{ProgressBar, ProgressStyle};
use lacuna_probe::client::Progress;
use std::time::{Duration, Instant};

/// Least time between two drawings of the bar: the loop runs for every packet.
const EVERY: Duration = Duration::from_millis(100);

/// The progress bar.
pub(super) struct Bar {
    output: Output,
    bar: Option<ProgressBar>,
    drawn: std::cell::Cell<Instant>,
}

impl Bar {
    pub(super) fn new(output: Output) -> Self {
        let bar = output.shows_progress().then(|| {
            let bar = ProgressBar::new(u64::MAX);
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}").expect("a template");
            bar.set_style(style);
            bar
        });
        Self { output, bar, drawn: std::cell::Cell::new(Instant::now()) }
    }

    pub(super) fn update(&self, progress: &Progress) {
        let Some(bar) = &self.bar else { return };
        if self.drawn.get().elapsed() < EVERY {
            return;
        }
        self.drawn.set(Instant::now());
        bar.set_length(progress.total_ns.max(1));
        bar.set_position(progress.done_ns.min(progress.total_ns));
        bar.set_message(describe(progress));
    }

    /// Prints a note without breaking the bar.
    pub(super) fn note(&self, note: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.output.note(note)),
            None => self.output.note(note),
        }
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn describe(progress: &Progress) -> String {
    let Progress { doing, done_ns, total_ns, trials_done, trials } = *progress;
    if trials_done == trials {
        return doing.to_owned();
    }
    let left_s = total_ns.saturating_sub(done_ns).div_ceil(1_000_000_000);
    let (minutes, seconds) = (left_s / 60, left_s % 60);
    format!("{doing}, trial {} of {trials}, {minutes}:{seconds:02} left", trials_done + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_says_what_is_done_and_how_long_it_takes() {
        let progress = Progress {
            doing: "sending",
            done_ns: 17_000_000_000,
            total_ns: 120_500_000_000,
            trials_done: 3,
            trials: 24,
        };
        assert_eq!(describe(&progress), "sending, trial 4 of 24, 1:44 left");
        let done = Progress { doing: "done", trials_done: 24, ..progress };
        assert_eq!(describe(&done), "done");
    }
}
