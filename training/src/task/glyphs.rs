//! Noisy glyphs: small images of ten classes, made from a seed.
//!
//! A class is a line through five random points, smoothed. An example is the class's line, turned, scaled,
//! moved and bent by random amounts, drawn with a soft pen, with part of another glyph over it and normal
//! noise on top. Noise and overlay are chosen so that a good model reaches 85 to 94 %: a task of which the
//! last percent is out of reach shows what a worse gradient costs (in the manner of mnist1d; Greydanus,
//! "Scaling down deep learning", 2020).

use crate::random::{Random, Stream};

/// Pixels along a side.
pub const SIDE: usize = 16;
/// Pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;
/// Classes.
pub const CLASSES: usize = 10;

/// Points of a template.
const KNOTS: usize = 5;
/// Points of the smooth line through them.
const POINTS: usize = 16;
/// Half of the pen's width, in pixels.
const PEN: f64 = 0.8;
/// Deviation of the noise of each pixel, beside ink of 1. This and [`OVERLAY`] were tried until the
/// perceptron's accuracy lay between 85 and 94 %.
const NOISE: f64 = 0.42;
/// Ink of the other glyph.
const OVERLAY: f64 = 0.4;

type Point = (f64, f64);

/// The templates.
#[derive(Debug, Clone, PartialEq)]
pub struct Glyphs {
    templates: Vec<[Point; KNOTS]>,
}

impl Glyphs {
    /// Templates from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, Stream::Templates);
        let mut point = || (random.between(-1.0, 1.0), random.between(-1.0, 1.0));
        Self { templates: (0..CLASSES).map(|_| std::array::from_fn(|_| point())).collect() }
    }

    /// Examples: pixels of all, and classes.
    #[must_use]
    pub fn examples(&self, seed: u64, stream: Stream, count: usize) -> (Vec<f32>, Vec<u32>) {
        let mut random = Random::new(seed, stream);
        let mut pixels = Vec::with_capacity(count * PIXELS);
        let mut classes = Vec::with_capacity(count);
        let mut ink = [0.0; PIXELS];
        for _ in 0..count {
            let class = random.below(CLASSES);
            ink.fill(0.0);
            self.draw(class, 1.0, 0..POINTS - 1, &mut random, &mut ink);
            let other = random.below(CLASSES);
            let start = random.below(POINTS / 2);
            self.draw(other, OVERLAY, start..start + POINTS / 3, &mut random, &mut ink);
            // Centred, so that the first layer sees neither much ink nor little.
            pixels.extend(ink.iter().map(|ink| (ink - 0.2 + NOISE * random.normal()) as f32));
            classes.push(class as u32);
        }
        (pixels, classes)
    }

    /// Draws some segments of a class's line.
    fn draw(
        &self,
        class: usize,
        strength: f64,
        segments: std::ops::Range<usize>,
        random: &mut Random,
        ink: &mut [f64; PIXELS],
    ) {
        let (sin, cos) = random.between(-0.2, 0.2).sin_cos();
        let scale = random.between(0.75, 1.1) * SIDE as f64 * 0.36;
        let (right, down) = (random.between(-1.0, 1.0), random.between(-1.0, 1.0));
        let knots = self.templates[class].map(|(x, y)| {
            let (x, y) = (x + 0.08 * random.normal(), y + 0.08 * random.normal());
            let middle = (SIDE as f64 - 1.0) / 2.0;
            (
                middle + right + scale * (cos * x - sin * y),
                middle + down + scale * (sin * x + cos * y),
            )
        });
        for segment in segments {
            let (from, to) = (smooth(&knots, segment), smooth(&knots, segment + 1));
            for (pixel, ink) in ink.iter_mut().enumerate() {
                let at = ((pixel % SIDE) as f64, (pixel / SIDE) as f64);
                let distance = distance_to_segment(at, from, to);
                if distance < 3.0 * PEN {
                    *ink = ink.max(strength * (-(distance / PEN).powi(2)).exp());
                }
            }
        }
    }
}

/// A point of the line through the knots (Catmull and Rom).
fn smooth(knots: &[Point; KNOTS], point: usize) -> Point {
    let along = point as f64 / (POINTS - 1) as f64 * (KNOTS - 1) as f64;
    let knot = (along as usize).min(KNOTS - 2);
    let t = along - knot as f64;
    let near = [knot.saturating_sub(1), knot, knot + 1, (knot + 2).min(KNOTS - 1)];
    let weights = [
        t * (-0.5 + t * (1.0 - 0.5 * t)),
        1.0 + t * t * (1.5 * t - 2.5),
        t * (0.5 + t * (2.0 - 1.5 * t)),
        t * t * (0.5 * t - 0.5),
    ];
    near.iter().zip(weights).fold((0.0, 0.0), |(x, y), (near, weight)| {
        (x + weight * knots[*near].0, y + weight * knots[*near].1)
    })
}

fn distance_to_segment(at: Point, from: Point, to: Point) -> f64 {
    let (along_x, along_y) = (to.0 - from.0, to.1 - from.1);
    let (at_x, at_y) = (at.0 - from.0, at.1 - from.1);
    let square = along_x * along_x + along_y * along_y;
    let share = if square > 0.0 { (at_x * along_x + at_y * along_y) / square } else { 0.0 };
    let share = share.clamp(0.0, 1.0);
    (at_x - share * along_x).hypot(at_y - share * along_y)
}
