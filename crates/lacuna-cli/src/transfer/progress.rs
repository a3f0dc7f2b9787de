//! Progress of a transfer: a bar on a terminal, a line now and then elsewhere.
//!
//! A line is cut to the terminal's width: less important parts are left out, the file's name first.

use super::report::Side;
use crate::output::{Output, complain};
use crate::units::{show_bytes, show_count, show_rate};
use indicatif::{ProgressBar, ProgressStyle};
use lacuna_transfer::Progress as Snapshot;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Width without a terminal, or if it does not report one.
const COLUMNS: usize = 80;
/// Columns of the bar and its separators, and the last column, which some terminals cannot fill
/// without a line break.
const BAR_COLUMNS: usize = 12;
/// Least columns to show a name.
const NAME_COLUMNS_MIN: usize = 10;

/// A silence from this length on is shown: twice the interval of keep-alives.
const SILENCE_SHOWN_FROM: Duration = Duration::from_secs(4);

/// The progress display.
pub(crate) struct Progress {
    output: Output,
    side: Side,
    bar: Option<ProgressBar>,
    state: Mutex<State>,
}

struct State {
    line: Instant,
    /// Whether the present silence is shown.
    is_silent: bool,
}

impl Progress {
    pub(crate) fn new(output: Output, side: Side) -> Self {
        let bar = output.shows_progress().then(|| {
            // A bar of unknown length is drawn empty, not full.
            let bar = ProgressBar::new(u64::MAX);
            // The name may be wider than its number of characters; the bar cuts it then.
            let template = format!("{{bar:{}}} {{wide_msg}}", BAR_COLUMNS - 2);
            let style = ProgressStyle::with_template(&template).expect("a valid template");
            bar.set_style(style);
            bar
        });
        let state = State { line: Instant::now(), is_silent: false };
        Self { output, side, bar, state: Mutex::new(state) }
    }

    /// Shows on the bar that there is no connection; elsewhere notes do.
    pub(crate) fn reconnecting(&self) {
        if let Some(bar) = &self.bar {
            bar.set_message("no connection, trying again");
        }
    }

    /// Shows a new state.
    pub(crate) fn update(&self, snapshot: &Snapshot) {
        let now = Instant::now();
        let mut state = self.lock();
        let rate = snapshot.bytes_per_s;
        let was_silent = state.is_silent;
        state.is_silent = snapshot.silent >= SILENCE_SHOWN_FROM;
        if let Some(bar) = &self.bar {
            bar.set_length(snapshot.bytes_total.unwrap_or(u64::MAX));
            bar.set_position(snapshot.done_bytes);
            bar.set_message(describe(snapshot, self.side, rate, columns() - BAR_COLUMNS));
        } else if now - state.line >= LINE_EVERY || (state.is_silent && !was_silent) {
            state.line = now;
            self.output.note(&describe(snapshot, self.side, rate, COLUMNS));
        }
    }

    /// Prints a note without disturbing the bar.
    pub(crate) fn note(&self, note: &str) {
        self.suspend(|| self.output.note(note));
    }

    /// Prints an error, also with --quiet.
    pub(crate) fn error(&self, error: &str) {
        self.suspend(|| complain(error));
    }

    /// Runs something that prints.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Which end speaks.
    pub(crate) fn side(&self) -> Side {
        self.side
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Width of the terminal, at least what the bar needs.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { COLUMNS } else { columns.max(2 * BAR_COLUMNS) }
}

/// A state in at most `columns`, the most important parts first.
fn describe(snapshot: &Snapshot, side: Side, bytes_per_s: Option<f64>, columns: usize) -> String {
    let done = snapshot.done_bytes;
    let mut text = brief(&show_bytes(done));
    if let Some(total) = snapshot.bytes_total {
        text += &format!(" of {}", brief(&show_bytes(total.max(done))));
    }
    let mut add = |part: String| {
        if text.chars().count() + 2 + part.chars().count() <= columns {
            text = format!("{text}, {part}");
        }
    };
    if snapshot.silent >= SILENCE_SHOWN_FROM {
        add(format!("{} for {} s", side.silence(), snapshot.silent.as_secs()));
    } else if snapshot.is_hashing_holes() {
        add(format!("{} of holes to hash", brief(&show_bytes(snapshot.zeros_left_bytes))));
    } else if let Some(rate) = bytes_per_s {
        add(brief(&show_rate(rate * 8.0)));
        if let Some(total) = snapshot.bytes_total
            && rate >= 1.0
        {
            let left_s = (total.saturating_sub(done) as f64 / rate).ceil().min(1e9) as u64;
            add(format!("{} left", show_clock(left_s)));
        }
    }
    if snapshot.repaired_share > 0.0 {
        add(format!("{:.2} % {}", snapshot.repaired_share * 100.0, side.repaired()));
    }
    match snapshot.files_total {
        Some(1) => {}
        Some(total) => {
            add(format!("{} of {} files", snapshot.files, total.max(snapshot.files)));
        }
        None => add(show_count(snapshot.files, "file")),
    }
    if let Some(name) = &snapshot.name {
        let room = columns.saturating_sub(text.chars().count() + 2);
        if let Some(name) = ending(name, room) {
            text = format!("{text}, {name}");
        }
    }
    text
}

/// The end of a name, which says more than its beginning, in at most `columns`.
fn ending(name: &str, columns: usize) -> Option<String> {
    let length = name.chars().count();
    if length <= columns {
        return Some(name.to_owned());
    }
    if columns < NAME_COLUMNS_MIN {
        return None;
    }
    let end: String = name.chars().skip(length + 1 - columns).collect();
    Some(format!("…{end}"))
}

/// A quantity in three digits, or more if needed before the point.
fn brief(quantity: &str) -> String {
    match quantity.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let point = number.find('.').unwrap_or(number.len());
            let end = point.max(4).min(number.len());
            format!("{} {unit}", number[..end].trim_end_matches('.'))
        }
        _ => quantity.to_owned(),
    }
}

fn show_clock(seconds: u64) -> String {
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

    fn snapshot() -> Snapshot {
        Snapshot {
            moved_bytes: 1 << 30,
            done_bytes: 2 << 30,
            bytes_total: Some(4 << 30),
            files: 1,
            files_total: Some(3),
            bytes_per_s: None,
            repaired_share: 0.0012,
            silent: Duration::ZERO,
            zeros_left_bytes: 0,
            name: Some("a/folder/and/then/a.file".to_owned()),
        }
    }

    #[test]
    fn a_state_is_described_with_rate_loss_and_time_left() {
        let snapshot = snapshot();
        assert_eq!(
            describe(&snapshot, Side::Sender, Some(125e6), 100),
            "2 GiB of 4 GiB, 1 Gbit/s, 0:18 left, 0.12 % resent, 1 of 3 files, \
             a/folder/and/then/a.file"
        );
        let unknown =
            Snapshot { bytes_total: None, files_total: None, name: None, ..snapshot.clone() };
        assert_eq!(describe(&unknown, Side::Receiver, None, 80), "2 GiB, 0.12 % lost, 1 file");
        let one = Snapshot { repaired_share: 0.0, files_total: Some(1), ..unknown };
        assert_eq!(describe(&one, Side::Sender, Some(117.66e6), 80), "2 GiB, 941 Mbit/s");
        assert_eq!(show_clock(3 * 3600 + 62), "3:01:02");
    }

    #[test]
    fn what_was_there_before_counts_as_done_and_not_as_speed() {
        // Resumed behind 90 %: a tenth is left, at the speed of now.
        let snapshot = Snapshot {
            moved_bytes: 1 << 20,
            done_bytes: 90 << 20,
            bytes_total: Some(100 << 20),
            ..Snapshot::default()
        };
        let text = describe(&snapshot, Side::Sender, Some(1_048_576.0), 80);
        assert!(text.starts_with("90 MiB of 100 MiB, 8.39 Mbit/s, 0:10 left"), "{text}");
    }

    #[test]
    fn a_silence_takes_the_place_of_the_speed() {
        let silent = Snapshot { silent: Duration::from_millis(12_900), ..snapshot() };
        let text = describe(&silent, Side::Sender, Some(125e6), 60);
        assert!(text.starts_with("2 GiB of 4 GiB, no answer for 12 s, "), "{text}");
        assert!(!text.contains("left") && !text.contains("bit/s"), "{text}");
        let text = describe(&silent, Side::Receiver, Some(125e6), 60);
        assert!(text.contains("nothing came for 12 s"), "{text}");
        let short = Snapshot { silent: Duration::from_secs(3), ..snapshot() };
        assert!(describe(&short, Side::Sender, Some(125e6), 60).contains("1 Gbit/s"));
    }

    #[test]
    fn holes_that_are_hashed_take_the_place_of_the_speed() {
        let hashing = Snapshot { zeros_left_bytes: 3 << 39, ..snapshot() };
        let text = describe(&hashing, Side::Sender, Some(125e6), 60);
        assert!(text.starts_with("2 GiB of 4 GiB, 1.5 TiB of holes to hash, "), "{text}");
        assert!(!text.contains("left") && !text.contains("bit/s"), "{text}");
        let short = Snapshot { zeros_left_bytes: 1 << 20, ..snapshot() };
        assert!(describe(&short, Side::Sender, Some(125e6), 60).contains("1 Gbit/s"));
    }

    #[test]
    fn a_line_fits_and_the_name_gives_way_first() {
        let long = Snapshot {
            done_bytes: (1023 << 30) + 12_345_678,
            bytes_total: Some(1 << 50),
            repaired_share: 0.1234,
            files: 123_456,
            files_total: Some(1_234_567),
            name: Some("x".repeat(200)),
            ..snapshot()
        };
        for columns in 12..200 {
            let text = describe(&long, Side::Sender, Some(98.76e6), columns);
            assert!(text.chars().count() <= columns.max(20), "{columns}: {text}");
        }
        let text = describe(&snapshot(), Side::Sender, Some(117.66e6), 80 - BAR_COLUMNS);
        assert_eq!(text, "2 GiB of 4 GiB, 941 Mbit/s, 0:19 left, 0.12 % resent, 1 of 3 files");
        let one = Snapshot { files_total: Some(1), ..snapshot() };
        let text = describe(&one, Side::Sender, Some(117.66e6), 80 - BAR_COLUMNS);
        assert!(text.ends_with("% resent, …d/then/a.file"), "{text}");
        assert_eq!(text.chars().count(), 80 - BAR_COLUMNS);
    }
}
