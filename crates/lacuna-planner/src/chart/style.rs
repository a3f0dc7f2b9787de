//! Line styles: colour, dashes and markers together, so that a drawing can be read without colours,
//! and by people who cannot tell some of them apart.
//!
//! A line's key decides all three. Reliability schemes have the same style in every drawing; other
//! keys take the remaining styles in the order in which they appear, and keep them in all charts of
//! a drawing. Two lines of one key, such as a mean and a percentile, differ in weight: the second
//! is thin with hollow markers.
//!
//! The colours are those of Okabe and Ito ("Color Universal Design", 2008) without yellow, which is
//! too light on white, plus a grey and a dark red.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;

/// Where lines are drawn, in pixels.
pub(super) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The styles, those of schemes first. Their number limits the keys of a drawing.
const STYLES: [Style; 9] = [
    Style::new(RGBColor(0, 114, 178), &[], Marker::Circle),
    Style::new(RGBColor(213, 94, 0), &[9.0, 4.0], Marker::Square),
    Style::new(RGBColor(0, 158, 115), &[2.0, 3.0], Marker::Triangle),
    Style::new(RGBColor(204, 121, 167), &[9.0, 3.0, 2.0, 3.0], Marker::Diamond),
    Style::new(RGBColor(0, 0, 0), &[16.0, 3.0], Marker::Star),
    Style::new(RGBColor(230, 159, 0), &[5.0, 3.0], Marker::TriangleDown),
    Style::new(RGBColor(86, 180, 233), &[14.0, 3.0, 2.0, 3.0, 2.0, 3.0], Marker::Cross),
    Style::new(RGBColor(110, 110, 110), &[3.0, 6.0], Marker::Bar),
    Style::new(RGBColor(136, 34, 85), &[6.0, 6.0], Marker::Plus),
];

/// Prefixes of the schemes' keys, in the figures' words and the transport's, by style.
const SCHEMES: [&[&str]; 5] = [
    &["SR RTO", "sr:rto"],
    &["EC MDS 32+8", "ec:mds"],
    &["SR NACK", "sr"],
    &["EC XOR", "ec:xor"],
    &["auto"],
];

/// Pixels along a line from one marker to the next.
const MARKER_DISTANCE: f64 = 74.0;

/// A line with no more points than this has a marker at each.
const POINTS_MARKED_MAX: usize = 24;

/// The style of one line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Style {
    color: RGBColor,
    /// Alternating lengths of dashes and gaps in pixels; empty for a solid line.
    dashes: &'static [f64],
    marker: Marker,
    /// The second line of its key.
    is_second: bool,
    /// Index of the style; offsets markers so that lines on top of each other stay distinguishable.
    slot: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Star,
    TriangleDown,
    Cross,
    Bar,
    Plus,
}

/// The styles of a drawing's keys.
#[derive(Debug, Default)]
pub(super) struct Styles(BTreeMap<String, usize>);

impl Styles {
    /// For these keys, in the order in which they appear.
    pub(super) fn new<'k>(keys: impl Iterator<Item = &'k str> + Clone) -> Self {
        let mut slots: BTreeMap<String, usize> = BTreeMap::new();
        for key in keys.clone() {
            if let Some(slot) = scheme(key)
                && !slots.values().any(|taken| *taken == slot)
            {
                slots.insert(key.to_owned(), slot);
            }
        }
        for key in keys {
            if !slots.contains_key(key) {
                let is_free = |slot: &usize| !slots.values().any(|taken| taken == slot);
                let free = (0..STYLES.len()).find(is_free);
                slots.insert(key.to_owned(), free.unwrap_or(slots.len() % STYLES.len()));
            }
        }
        Self(slots)
    }

    pub(super) fn of(&self, key: &str, is_second: bool) -> Style {
        let slot = self.0.get(key).copied().unwrap_or(0);
        Style { is_second, slot, ..STYLES[slot] }
    }
}

/// The scheme with the longest matching prefix.
fn scheme(key: &str) -> Option<usize> {
    let begins =
        |words: &[&str]| words.iter().filter(|word| key.starts_with(*word)).map(|w| w.len()).max();
    let longest =
        SCHEMES.iter().enumerate().filter_map(|(slot, words)| Some((begins(words)?, slot)));
    longest.max().map(|(_, slot)| slot)
}

impl Style {
    const fn new(color: RGBColor, dashes: &'static [f64], marker: Marker) -> Self {
        Self { color, dashes, marker, is_second: false, slot: 0 }
    }

    /// The sample of a legend, from here to the right.
    pub(super) fn draw_sample(
        &self,
        canvas: &Canvas<'_>,
        at: (i32, i32),
    ) -> Result<(), Box<dyn Error>> {
        let line = [at, (at.0 + SAMPLE_WIDTH, at.1)].map(float);
        self.draw_dashes(canvas, &line)?;
        self.draw_marker(canvas, (at.0 + SAMPLE_WIDTH / 2, at.1))
    }

    /// A line through these points, with its markers.
    pub(super) fn draw(
        &self,
        canvas: &Canvas<'_>,
        points: &[(i32, i32)],
    ) -> Result<(), Box<dyn Error>> {
        let line: Vec<(f64, f64)> = points.iter().copied().map(float).collect();
        self.draw_dashes(canvas, &line)?;
        if points.len() <= POINTS_MARKED_MAX {
            return points.iter().try_for_each(|point| self.draw_marker(canvas, *point));
        }
        // Offset by style, so that markers of coinciding lines do not coincide.
        let share =
            (self.slot as f64 + if self.is_second { 0.5 } else { 0.0 }) / STYLES.len() as f64;
        let mut next = MARKER_DISTANCE * (0.2 + 0.8 * share);
        walk(&line, |from, to, length| {
            let mut passed = 0.0;
            while next <= length - passed {
                passed += next;
                next = MARKER_DISTANCE;
                self.draw_marker(canvas, between(from, to, passed / length))?;
            }
            next -= length - passed;
            Ok(())
        })
    }

    /// A vertical line from the low to the high end of an interval, with ends.
    pub(super) fn draw_interval(
        &self,
        canvas: &Canvas<'_>,
        low: (i32, i32),
        high: (i32, i32),
    ) -> Result<(), Box<dyn Error>> {
        let ink = self.color.stroke_width(1);
        canvas.draw(&PathElement::new([low, high], ink))?;
        for (x, y) in [low, high] {
            canvas.draw(&PathElement::new([(x - 4, y), (x + 4, y)], ink))?;
        }
        Ok(())
    }

    fn draw_dashes(&self, canvas: &Canvas<'_>, line: &[(f64, f64)]) -> Result<(), Box<dyn Error>> {
        let ink = self.color.stroke_width(if self.is_second { 1 } else { 2 });
        if self.dashes.is_empty() {
            let line: Vec<(i32, i32)> =
                line.iter().map(|point| between(*point, *point, 0.0)).collect();
            return Ok(canvas.draw(&PathElement::new(line, ink))?);
        }
        for dash in dashed(line, self.dashes) {
            canvas.draw(&PathElement::new(dash, ink))?;
        }
        Ok(())
    }

    fn draw_marker(&self, canvas: &Canvas<'_>, (x, y): (i32, i32)) -> Result<(), Box<dyn Error>> {
        let corners: &[(i32, i32)] = match self.marker {
            Marker::Circle => {
                &[(4, 0), (3, 3), (0, 4), (-3, 3), (-4, 0), (-3, -3), (0, -4), (3, -3)]
            }
            Marker::Square => &[(-3, -3), (3, -3), (3, 3), (-3, 3)],
            Marker::Triangle => &[(0, -5), (4, 3), (-4, 3)],
            Marker::TriangleDown => &[(0, 5), (4, -3), (-4, -3)],
            Marker::Diamond => &[(0, -5), (4, 0), (0, 5), (-4, 0)],
            Marker::Star => &[(0, -6), (2, -2), (6, 0), (2, 2), (0, 6), (-2, 2), (-6, 0), (-2, -2)],
            Marker::Cross => &[
                (-4, -2),
                (-2, -4),
                (0, -2),
                (2, -4),
                (4, -2),
                (2, 0),
                (4, 2),
                (2, 4),
                (0, 2),
                (-2, 4),
                (-4, 2),
                (-2, 0),
            ],
            Marker::Bar => &[(-1, -5), (1, -5), (1, 5), (-1, 5)],
            Marker::Plus => &[
                (-1, -5),
                (1, -5),
                (1, -1),
                (5, -1),
                (5, 1),
                (1, 1),
                (1, 5),
                (-1, 5),
                (-1, 1),
                (-5, 1),
                (-5, -1),
                (-1, -1),
            ],
        };
        let corners: Vec<(i32, i32)> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        let inside = if self.is_second { WHITE } else { self.color };
        canvas.draw(&Polygon::new(corners.clone(), inside.filled()))?;
        let outline = corners.iter().chain(corners.first()).copied().collect::<Vec<_>>();
        Ok(canvas.draw(&PathElement::new(outline, self.color.stroke_width(1)))?)
    }
}

/// Width of a legend's sample.
pub(super) const SAMPLE_WIDTH: i32 = 36;

fn float((x, y): (i32, i32)) -> (f64, f64) {
    (x.into(), y.into())
}

fn between(from: (f64, f64), to: (f64, f64), share: f64) -> (i32, i32) {
    let at = |from: f64, to: f64| (from + (to - from) * share).round() as i32;
    (at(from.0, to.0), at(from.1, to.1))
}

/// Goes through the straight parts of a line that have a length.
fn walk(
    line: &[(f64, f64)],
    mut on: impl FnMut((f64, f64), (f64, f64), f64) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    for pair in line.windows(2) {
        let length = (pair[1].0 - pair[0].0).hypot(pair[1].1 - pair[0].1);
        if length > 0.0 {
            on(pair[0], pair[1], length)?;
        }
    }
    Ok(())
}

/// The parts of a line that are drawn.
fn dashed(line: &[(f64, f64)], dashes: &[f64]) -> Vec<Vec<(i32, i32)>> {
    let mut parts: Vec<Vec<(i32, i32)>> = Vec::new();
    let (mut index, mut left) = (0, dashes[0]);
    let mut part: Vec<(i32, i32)> = Vec::new();
    for pair in line.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let mut passed = 0.0;
        while passed < length {
            let step = left.min(length - passed);
            if index % 2 == 0 {
                if part.is_empty() {
                    part.push(between(from, to, passed / length));
                }
                part.push(between(from, to, (passed + step) / length));
            }
            passed += step;
            left -= step;
            if left <= 0.0 {
                if index % 2 == 0 {
                    parts.push(std::mem::take(&mut part));
                }
                index = (index + 1) % dashes.len();
                left = dashes[index];
            }
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn styles(keys: &[&str]) -> Styles {
        Styles::new(keys.iter().copied())
    }

    #[test]
    fn no_two_keys_share_a_colour_dashes_or_a_marker() {
        let keys =
            ["SR RTO", "MDS 32+2", "SR NACK", "EC MDS 32+8", "a", "b", "EC XOR 32+8", "c", "auto"];
        let styles = styles(&keys);
        let all: Vec<Style> = keys.iter().map(|key| styles.of(key, false)).collect();
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                assert!(a.color != b.color && a.dashes != b.dashes && a.marker != b.marker);
            }
        }
    }

    #[test]
    fn a_scheme_looks_alike_in_every_drawing_and_under_both_of_its_names() {
        let one = styles(&["SR RTO", "EC MDS 32+8", "SR NACK"]);
        let two = styles(&["auto", "sr", "ec:mds:32:4", "sr:rto", "100 Gbit/s"]);
        for (a, b) in [("SR RTO", "sr:rto"), ("EC MDS 32+8", "ec:mds:32:4"), ("SR NACK", "sr")] {
            assert_eq!(one.of(a, false), two.of(b, false), "{a}");
        }
        assert_eq!(one.of("SR RTO", true).color, one.of("SR RTO", false).color);
        assert_ne!(one.of("SR RTO", true), one.of("SR RTO", false));
    }

    #[test]
    fn dashes_go_on_around_corners() {
        let line = [(0.0, 0.0), (6.0, 0.0), (6.0, 10.0)];
        let parts = dashed(&line, &[4.0, 4.0]);
        assert_eq!(parts, [vec![(0, 0), (4, 0)], vec![(6, 2), (6, 6)], vec![(6, 10)]][..2]);
        assert_eq!(dashed(&line, &[8.0, 4.0])[0], [(0, 0), (6, 0), (6, 2)]);
    }
}
