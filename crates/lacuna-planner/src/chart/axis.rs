//! Axes: position of a value, range of an axis, and positions of its ticks.
//!
//! A logarithmic axis is a linear one of the binary logarithm. Ticks are round numbers, at most
//! [`TICKS_MAX`]: multiples of 1, 2 or 5 on a linear axis, whole numbers where things are counted, powers of
//! ten (and 2 and 5 times them where they are few) or of two on a logarithmic one.

use lacuna_units as units;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

/// Most ticks of an axis.
const TICKS_MAX: f64 = 10.0;

/// From this many decades on, an axis has ticks at powers of ten only.
const DECADES_ENOUGH: f64 = 3.5;

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    pub(super) description: String,
    kind: Kind,
    label: fn(f64) -> String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// From zero.
    Linear,
    /// From one: times over a time that none is shorter than.
    Ratio,
    /// Whole numbers.
    Count,
    /// Powers of ten.
    Decades,
    /// Powers of two.
    Doublings,
}

impl Axis {
    /// From zero on.
    #[must_use]
    pub fn linear(description: &str) -> Self {
        Self::new(description, Kind::Linear, plain)
    }

    /// Times as multiples of the shortest possible one: the axis begins at 1.
    #[must_use]
    pub fn ratio(description: &str) -> Self {
        Self::new(description, Kind::Ratio, plain)
    }

    /// A number of things.
    #[must_use]
    pub fn count(description: &str) -> Self {
        Self::new(description, Kind::Count, plain)
    }

    /// Logarithmic, with ticks at powers of ten.
    #[must_use]
    pub fn log(description: &str, label: fn(f64) -> String) -> Self {
        Self::new(description, Kind::Decades, label)
    }

    /// Logarithmic, with ticks at powers of two: sizes, and numbers that double.
    #[must_use]
    pub fn doubling(description: &str, label: fn(f64) -> String) -> Self {
        Self::new(description, Kind::Doublings, label)
    }

    fn new(description: &str, kind: Kind, label: fn(f64) -> String) -> Self {
        Self { description: description.to_owned(), kind, label }
    }

    fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Decades | Kind::Doublings)
    }

    /// Position of a value.
    pub(super) fn place(&self, value: f64) -> f64 {
        if self.is_log() { value.max(f64::MIN_POSITIVE).log2() } else { value }
    }

    /// Label at a position.
    pub(super) fn text(&self, place: f64) -> String {
        (self.label)(if self.is_log() { place.exp2() } else { place })
    }

    /// The range of the values, with some margin, and the ticks.
    pub(super) fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let places: Vec<f64> = values.map(|value| self.place(value)).collect();
        let low = places.iter().copied().fold(f64::INFINITY, f64::min);
        let high = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return Scale { range: 0.0..1.0, ticks: vec![] };
        }
        let mut scale = match self.kind {
            Kind::Linear => from(low.min(0.0), high, 0.0),
            Kind::Ratio => {
                let mut scale = from(low.min(1.0), high, 0.0);
                // The axis's end is the reference for everything, so it gets a label unless another
                // one is too close.
                let step = scale.ticks.windows(2).next().map_or(1.0, |pair| pair[1] - pair[0]);
                if scale.ticks.iter().all(|tick| (tick - 1.0).abs() > step * 0.4) {
                    scale.ticks.insert(0, 1.0);
                }
                scale
            }
            Kind::Count => from(low, high, 1.0),
            Kind::Decades => decades(low, high),
            Kind::Doublings => {
                let stride = ((high - low) / TICKS_MAX).ceil().max(1.0);
                Scale { range: with_room(low, high), ticks: multiples(low, high, stride) }
            }
        };
        // A place without a label is no place for a line either.
        scale.ticks.retain(|tick| !self.text(*tick).is_empty());
        scale
    }
}

/// Starts at `low`, with ticks at least `step_min` apart.
fn from(low: f64, high: f64, step_min: f64) -> Scale {
    let span = if high > low { high - low } else { low.abs().max(1.0) };
    let rough = span / TICKS_MAX;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade);
    let step = step.into_iter().find(|step| *step >= rough * (1.0 - 1e-9)).unwrap_or(rough);
    let high = low + span * 1.05;
    Scale { range: low..high, ticks: multiples(low, high, step.max(step_min)) }
}

/// Powers of ten; between two of few of them, 2 and 5 times as much.
fn decades(low: f64, high: f64) -> Scale {
    let decade = 10f64.log2();
    let range = with_room(low, high);
    let count = (high - low) / decade;
    if count >= DECADES_ENOUGH {
        let stride = (count / TICKS_MAX).ceil() * decade;
        return Scale { range, ticks: multiples(low, high, stride) };
    }
    let (first, last) = ((low / decade).floor() as i32, (high / decade).ceil() as i32);
    let ticks = (first..=last)
        .flat_map(|power| [1.0f64, 2.0, 5.0].map(|n| n.log2() + f64::from(power) * decade));
    let ticks = ticks.filter(|place| range.contains(place)).collect();
    Scale { range, ticks }
}

fn with_room(low: f64, high: f64) -> Range<f64> {
    let room = ((high - low) * 0.02).max(0.05);
    low - room..high + room
}

fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// An axis as the plotting library asks for it: a range with ticks of our choice.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    pub(super) range: Range<f64>,
    pub(super) ticks: Vec<f64>,
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// A number for an axis.
#[must_use]
pub fn plain(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A power of ten for an axis.
#[must_use]
pub fn power(value: f64) -> String {
    format!("{value:.0e}")
}

/// A size for an axis.
#[must_use]
pub fn size(bytes: f64) -> String {
    units::show_bytes(bytes.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis, low: f64, high: f64) -> Vec<String> {
        axis.scale([low, high].into_iter()).ticks.iter().map(|place| axis.text(*place)).collect()
    }

    #[test]
    fn things_that_are_counted_have_whole_ticks() {
        assert_eq!(ticks(&Axis::count("threads"), 1.0, 2.0), ["1", "2"]);
        assert_eq!(ticks(&Axis::count("threads"), 1.0, 4.0), ["1", "2", "3", "4"]);
        let many = ticks(&Axis::count("threads"), 1.0, 96.0);
        assert!(many.len() >= 5 && many.iter().all(|tick| tick.parse::<u32>().is_ok()), "{many:?}");
    }

    #[test]
    fn every_axis_has_ticks_enough_and_not_too_many() {
        let log = |label| Axis::log("", label);
        for (axis, low, high) in [
            (Axis::linear(""), 0.0, 0.7),
            (Axis::linear(""), 0.0, 3e6),
            (Axis::ratio(""), 1.0, 1.31),
            (Axis::ratio(""), 1.0, 12.9),
            (Axis::doubling("", plain), 1.0, 64.0),
            (Axis::doubling("", size), 131_072.0, 1.1e12),
            (log(plain), 1.0, 64.0),
            (log(plain), 50.0, 40_000.0),
            (log(plain), 100.0, 40_000.0),
            (log(power), 1e-8, 1e-1),
            (log(power), 1e-6, 6.2e-2),
            (log(power), 1e-60, 1e-2),
        ] {
            let ticks = ticks(&axis, low, high);
            assert!((4..=11).contains(&ticks.len()), "{axis:?} {low} {high}: {ticks:?}");
            let mut distinct = ticks.clone();
            distinct.dedup();
            assert_eq!(distinct, ticks, "{axis:?}");
        }
    }

    #[test]
    fn a_ratio_begins_at_one_or_below_where_the_values_do() {
        let start = |low| Axis::ratio("").scale([low, 4.0].into_iter()).range.start;
        assert_eq!((start(1.2), start(0.9)), (1.0, 0.9));
        assert_eq!(ticks(&Axis::ratio(""), 1.0, 12.0)[..2], ["1", "2"]);
        assert_eq!(ticks(&Axis::ratio(""), 1.0, 22.0)[..2], ["1", "5"]);
    }

    #[test]
    fn a_place_without_a_label_has_no_tick() {
        let sparse = |value: f64| if value < 4.0 { String::new() } else { plain(value) };
        assert_eq!(ticks(&Axis::log("", sparse), 1.0, 20.0), ["5", "10", "20"]);
    }

    #[test]
    fn nothing_and_a_single_value_have_an_axis() {
        assert!(ticks(&Axis::linear(""), f64::INFINITY, f64::NEG_INFINITY).len() < 12);
        for axis in [Axis::linear(""), Axis::ratio(""), Axis::count(""), Axis::log("", plain)] {
            let range = axis.scale(std::iter::once(3.0)).range;
            assert!(range.start < range.end, "{axis:?}");
        }
    }
}
