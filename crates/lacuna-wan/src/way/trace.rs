//! Traces of losses and delays, read from text.
//!
//! * Losses: a `0` for each packet that arrived and a `1` for each lost one.
//! * Delays: a line for each change, `TIME DELAY`, both in milliseconds, separated by blanks or a
//!   comma. A delay holds until the next line's time. Times count from the first line's.
//!
//! Blank lines and text after a `#` are ignored. Traces repeat from their start; the last delay holds
//! as long as the one before it.

use std::sync::Arc;

use lacuna_link::Loss;

/// The most entries of a recording: a day of delays every millisecond, or ten minutes of losses at
/// 10 Gbit/s (a judgement).
const ENTRIES_MAX: usize = 1 << 29;

/// The longest delay or time: a year.
const MS_MAX: f64 = 366.0 * 24.0 * 3600.0 * 1e3;

/// Why a trace cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// It has no entries.
    #[error("the recording is empty")]
    Empty,
    /// It has too many entries.
    #[error("the recording has more than {ENTRIES_MAX} entries")]
    TooLong,
    /// Neither `0` nor `1`.
    #[error("line {line}: '{found}' is neither 0 (the packet came) nor 1 (it was lost)")]
    NeitherBit {
        /// Counted from 1.
        line: usize,
        /// What is there.
        found: char,
    },
    /// Not a time and a delay.
    #[error("line {line}: \"{found}\" is not a time and a delay in milliseconds, like 100 20.5")]
    NotTwoNumbers {
        /// Counted from 1.
        line: usize,
        /// What is there.
        found: String,
    },
    /// Times that do not grow.
    #[error("line {line}: the time is not later than that of the line before")]
    NotLater {
        /// Counted from 1.
        line: usize,
    },
}

/// Parses a loss trace.
///
/// # Errors
///
/// The first error, with its line.
pub fn parse_losses(text: &str) -> Result<Loss, TraceError> {
    let mut losses = vec![];
    for (line, content) in lines(text) {
        for found in content.chars().filter(|found| !found.is_whitespace()) {
            losses.push(match found {
                '0' => false,
                '1' => true,
                _ => return Err(TraceError::NeitherBit { line, found }),
            });
        }
    }
    match losses.len() {
        0 => Err(TraceError::Empty),
        length if length > ENTRIES_MAX => Err(TraceError::TooLong),
        _ => Ok(Loss::Trace(losses.into())),
    }
}

/// A delay trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayTrace {
    /// Time since the start and delay, in nanoseconds; the first time is 0, and times grow.
    points: Arc<[(u64, u64)]>,
    /// When the trace repeats; 0 if there is only one point.
    period_ns: u64,
}

impl DelayTrace {
    /// Parses a delay trace.
    ///
    /// # Errors
    ///
    /// The first error, with its line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut points: Vec<(u64, u64)> = vec![];
        let mut start_ns = 0;
        for (line, content) in lines(text) {
            let wrong = || TraceError::NotTwoNumbers { line, found: content.to_owned() };
            let mut numbers =
                content.split([',', ' ', '\t']).filter(|word| !word.is_empty()).map(ns);
            let (Some(Some(at_ns)), Some(Some(delay_ns)), None) =
                (numbers.next(), numbers.next(), numbers.next())
            else {
                return Err(wrong());
            };
            match points.last() {
                None => start_ns = at_ns,
                Some((last_ns, _)) if at_ns <= *last_ns + start_ns => {
                    return Err(TraceError::NotLater { line });
                }
                Some(_) => {}
            }
            points.push((at_ns - start_ns, delay_ns));
        }
        if points.len() > ENTRIES_MAX {
            return Err(TraceError::TooLong);
        }
        let period_ns = match points[..] {
            [] => return Err(TraceError::Empty),
            [_] => 0,
            [.., (before_ns, _), (last_ns, _)] => 2 * last_ns - before_ns,
        };
        Ok(Self { points: points.into(), period_ns })
    }

    /// The delay at this time.
    pub(super) fn at_ns(&self, time_ns: u64) -> u64 {
        let time_ns = time_ns.checked_rem(self.period_ns).unwrap_or(0);
        let later = self.points.partition_point(|(at_ns, _)| *at_ns <= time_ns);
        self.points[later.saturating_sub(1)].1
    }

    /// The shortest delay.
    pub(super) fn min_ns(&self) -> u64 {
        self.points.iter().map(|(_, delay_ns)| *delay_ns).min().unwrap_or(0)
    }

    /// The longest delay.
    pub(super) fn max_ns(&self) -> u64 {
        self.points.iter().map(|(_, delay_ns)| *delay_ns).max().unwrap_or(0)
    }
}

/// Numbered lines, without comments and blank lines.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let contents = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    (1..).zip(contents).filter(|(_, content)| !content.is_empty())
}

/// Parses milliseconds into nanoseconds.
fn ns(text: &str) -> Option<u64> {
    let ms: f64 = text.parse().ok()?;
    (0.0..=MS_MAX).contains(&ms).then(|| (ms * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_and_repeat() {
        let Ok(Loss::Trace(losses)) = parse_losses("# two lines\n0 0 1\n\n10 # and so on\n") else {
            panic!("a recording");
        };
        assert_eq!(*losses, [false, false, true, true, false]);
    }

    #[test]
    fn delays_hold_until_the_next_line_and_repeat() {
        let text = "# ms, ms\n1000 20\n1010,30.5\n\n1030 1 # long\n";
        let trace = DelayTrace::parse(text).unwrap();
        let ms = 1_000_000;
        for (at_ms, delay_ns) in [
            (0, 20_000_000),
            (9, 20_000_000),
            (10, 30_500_000),
            (29, 30_500_000),
            (30, 1_000_000),
            (49, 1_000_000),
            (50, 20_000_000),
            (560, 30_500_000),
        ] {
            assert_eq!(trace.at_ns(at_ms * ms), delay_ns, "{at_ms}");
        }
        assert_eq!((trace.min_ns(), trace.max_ns()), (1_000_000, 30_500_000));
        assert_eq!(DelayTrace::parse("5 7").unwrap().at_ns(u64::MAX), 7 * ms);
    }

    #[test]
    fn nonsense_is_answered_with_its_line() {
        assert_eq!(parse_losses("# no\n").unwrap_err(), TraceError::Empty);
        let error = parse_losses("0\n012").unwrap_err();
        assert_eq!(error, TraceError::NeitherBit { line: 2, found: '2' });
        assert_eq!(DelayTrace::parse("").unwrap_err(), TraceError::Empty);
        for text in ["1", "1 2 3", "a b", "1 -2", "1 nan", "1 inf", "1 1e30"] {
            let error = DelayTrace::parse(text).unwrap_err();
            assert!(matches!(error, TraceError::NotTwoNumbers { line: 1, .. }), "{text}");
        }
        let error = DelayTrace::parse("5 1\n9 1\n9 2").unwrap_err();
        assert_eq!(error, TraceError::NotLater { line: 3 });
    }
}
