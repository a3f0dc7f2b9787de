//! A box plot of drop rates by payload size, as in SDR-RDMA figure 2: a box from quartile to
//! quartile with the median, whiskers to the last trial within 1.5 box heights (Tukey 1977), and a
//! dot per trial.
//!
//! The rate axis is logarithmic, so a trial without a drop has no place on it. Such a trial gives
//! an upper bound of the rate: an arrow points from the bound down to a line of its own below
//! everything. Marked trials are not drawn.

use super::chart::{LINE_HEIGHT, wrapped, write_lines};
use crate::error::ChartError;
use lacuna_probe::estimate::{CONFIDENCE, share};
use lacuna_units::show_bytes;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// Width and height of the chart.
const SIZE: (u32, u32) = (640, 420);

/// Packets that were dropped in one trial of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drops {
    /// UDP payload of a packet.
    pub payload_bytes: u32,
    /// Packets that were sent.
    pub packets: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Whether a host dropped packets during the trial, so that the path's share is unknown.
    pub is_marked: bool,
}

impl Drops {
    pub(crate) fn rate(&self) -> f64 {
        self.lost as f64 / self.packets.max(1) as f64
    }
}

/// Upper bound of the rate after `packets` without a drop, with [`CONFIDENCE`].
pub(crate) fn nothing_lost(packets: u64) -> f64 {
    share(0.0, packets as f64, 1.0).high
}

/// The drop rates measured with one payload size.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spread {
    pub(crate) payload_bytes: u32,
    /// Rates in ascending order, without marked trials.
    pub(crate) rates: Vec<f64>,
    /// Packets of each trial without a drop, ascending, without marked trials.
    pub(crate) clean_packets: Vec<u64>,
    pub(crate) marked: usize,
}

impl Spread {
    /// Groups trials by payload size, ascending.
    pub(crate) fn all(drops: &[Drops]) -> Vec<Self> {
        let mut payloads: Vec<u32> = drops.iter().map(|trial| trial.payload_bytes).collect();
        payloads.sort_unstable();
        payloads.dedup();
        let spread = |payload_bytes| {
            let of_size = || drops.iter().filter(move |trial| trial.payload_bytes == payload_bytes);
            let unmarked = || of_size().filter(|trial| !trial.is_marked && trial.packets > 0);
            let mut rates: Vec<f64> = unmarked().map(Drops::rate).collect();
            rates.sort_by(f64::total_cmp);
            let clean = unmarked().filter(|trial| trial.lost == 0);
            let mut clean_packets: Vec<u64> = clean.map(|trial| trial.packets).collect();
            clean_packets.sort_unstable();
            let marked = of_size().filter(|trial| trial.is_marked).count();
            Self { payload_bytes, rates, clean_packets, marked }
        };
        payloads.into_iter().map(spread).collect()
    }

    /// Upper bound of the rate of the trials without a drop, if there are any: of all trials
    /// together if none had a drop, else of the longest one, since others had drops.
    pub(crate) fn clean_bound(&self) -> Option<f64> {
        let all_are = self.clean_packets.len() == self.rates.len();
        let packets = if all_are {
            self.clean_packets.iter().sum()
        } else {
            self.clean_packets.last().copied().unwrap_or(0)
        };
        (packets > 0).then(|| nothing_lost(packets))
    }

    /// The interpolated quantile of the rates.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.rates.len().checked_sub(1)?;
        let place = share * last as f64;
        let (below, above) =
            (self.rates[place.floor() as usize], self.rates[place.ceil() as usize]);
        Some(below + (above - below) * place.fract())
    }

    /// Lower whisker, quartile, median, quartile, upper whisker.
    fn five(&self) -> Option<[f64; 5]> {
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| self.quantile(share));
        let (low, median, high) = (low?, median?, high?);
        let reach = 1.5 * (high - low);
        let least = self.rates.iter().copied().find(|rate| *rate >= low - reach)?;
        let most = self.rates.iter().copied().rfind(|rate| *rate <= high + reach)?;
        Some([least, low, median, high, most])
    }
}

/// Draws trials as boxes by payload size, and writes an SVG with lines of text below.
///
/// # Errors
/// When the file cannot be written.
pub fn draw_drops(
    path: &Path,
    title: &str,
    drops: &[Drops],
    notes: &[String],
) -> Result<(), ChartError> {
    drawn(path, title, &Spread::all(drops), notes)
        .map_err(|error| ChartError { path: path.to_owned(), reason: error.to_string() })
}

fn drawn(
    path: &Path,
    title: &str,
    spreads: &[Spread],
    notes: &[String],
) -> Result<(), Box<dyn Error>> {
    let title = wrapped(title, SIZE.0);
    let bounds = format!(
        "Arrows: trials without a drop, down from the highest rate that they leave, with {:.0} %.",
        CONFIDENCE * 100.0
    );
    let has_clean = spreads.iter().any(|spread| !spread.clean_packets.is_empty());
    let notes = has_clean.then_some(&bounds).into_iter().chain(notes);
    let notes: Vec<String> = notes.flat_map(|note| wrapped(note, SIZE.0)).collect();
    let head = LINE_HEIGHT * title.len() as u32 + 12;
    let foot = LINE_HEIGHT * notes.len() as u32 + 8;
    let area = SVGBackend::new(path, (SIZE.0, head + SIZE.1 + foot)).into_drawing_area();
    area.fill(&WHITE)?;
    let (head_area, rest) = area.split_vertically(head);
    let (middle, foot_area) = rest.split_vertically(SIZE.1);
    write_lines(&head_area, &title)?;
    write_lines(&foot_area, &notes)?;
    let bounds = |spread: &Spread| -> Vec<f64> {
        let each = spread.clean_packets.iter().map(|packets| nothing_lost(*packets));
        each.chain(spread.clean_bound()).collect()
    };
    let rates = spreads.iter().flat_map(|spread| &spread.rates).copied();
    let seen: Vec<f64> =
        rates.filter(|rate| *rate > 0.0).chain(spreads.iter().flat_map(bounds)).collect();
    let least = seen.iter().copied().fold(1.0, f64::min).log10().floor().min(-1.0);
    let most = seen.iter().copied().fold(10f64.powf(least + 1.0), f64::max).log10().ceil();
    // The line for trials without a drop: a decade below everything.
    let none = least - 1.0;
    let place = |rate: f64| if rate > 0.0 { rate.log10().max(none) } else { none };
    let mut chart = ChartBuilder::on(&middle)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..spreads.len() as f64 - 0.5, none - 0.3..most + 0.1)?;
    let size = |x: &f64| {
        let index = x.round();
        let at = (x - index).abs() < 1e-6 && index >= 0.0;
        let spread = at.then(|| spreads.get(index as usize)).flatten();
        spread.map_or_else(String::new, |spread| show_bytes(spread.payload_bytes.into()))
    };
    let rate = |y: &f64| {
        let is_decade = (y - y.round()).abs() < 1e-6;
        match *y {
            y if is_decade && y > none + 0.5 => format!("1e{y:.0}"),
            y if is_decade && (y - none).abs() < 1e-6 => "none".to_owned(),
            _ => String::new(),
        }
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("UDP payload")
        .y_desc("drop rate")
        .x_labels(2 * spreads.len() + 1)
        .y_labels((most - none) as usize + 2)
        .x_label_formatter(&size)
        .y_label_formatter(&rate)
        .draw()?;
    let line = BLACK.stroke_width(1);
    for (index, spread) in spreads.iter().enumerate() {
        let x = index as f64;
        for (i, rate) in spread.rates.iter().enumerate() {
            // Side by side, so that equal trials can be told apart.
            let at = x + 0.36 + 0.08 * (i % 3) as f64 / 2.0;
            let area = chart.plotting_area();
            // They come first, in the same order: fewer packets, higher bound.
            let Some(packets) = spread.clean_packets.get(i) else {
                area.draw(&Circle::new((at, place(*rate)), 2, BLUE.mix(0.5).filled()))?;
                continue;
            };
            let bound = place(nothing_lost(*packets));
            let arrow = BLUE.mix(0.5);
            area.draw(&PathElement::new([(at, bound), (at, none)], arrow.stroke_width(1)))?;
            area.draw(&PathElement::new(
                [(at - 0.03, bound), (at + 0.03, bound)],
                arrow.stroke_width(2),
            ))?;
            area.draw(
                &(EmptyElement::at((at, none))
                    + Polygon::new(vec![(-4, -7), (4, -7), (0, 0)], arrow.filled())),
            )?;
        }
        if let Some(bound) = spread.clean_bound()
            && spread.clean_packets.len() == spread.rates.len()
        {
            // No trial had a drop: draw the bound of all together.
            let (area, bound) = (chart.plotting_area(), place(bound));
            area.draw(&PathElement::new([(x, bound), (x, none)], line))?;
            area.draw(&PathElement::new([(x - 0.25, bound), (x + 0.25, bound)], line))?;
            area.draw(
                &(EmptyElement::at((x, none))
                    + Polygon::new(vec![(-5, -9), (5, -9), (0, 0)], BLACK.filled())),
            )?;
            continue;
        }
        let Some(five) = spread.five() else { continue };
        let [least, low, median, high, most] = five.map(place);
        let area = chart.plotting_area();
        area.draw(&Rectangle::new([(x - 0.25, low), (x + 0.25, high)], BLUE.mix(0.2).filled()))?;
        area.draw(&Rectangle::new([(x - 0.25, low), (x + 0.25, high)], line))?;
        for (from, to) in [(least, low), (high, most)] {
            area.draw(&PathElement::new([(x, from), (x, to)], line))?;
        }
        for y in [least, most] {
            area.draw(&PathElement::new([(x - 0.12, y), (x + 0.12, y)], line))?;
        }
        area.draw(&PathElement::new(
            [(x - 0.25, median), (x + 0.25, median)],
            RED.stroke_width(2),
        ))?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(payload_bytes: u32, lost: u64, is_marked: bool) -> Drops {
        Drops { payload_bytes, packets: 1000, lost, is_marked }
    }

    #[test]
    fn trials_are_sorted_by_size_and_marked_ones_left_out() {
        let drops = [
            trial(8192, 5, false),
            trial(1024, 9, false),
            trial(1024, 1, false),
            trial(1024, 7, true),
        ];
        let spreads = Spread::all(&drops);
        assert_eq!(spreads[0].rates, [1e-3, 9e-3]);
        assert_eq!((spreads[0].payload_bytes, spreads[0].marked), (1024, 1));
        assert_eq!(spreads[1].rates, [5e-3]);
    }

    #[test]
    fn whiskers_end_at_trials_and_leave_outliers_out() {
        let drops: Vec<Drops> =
            [10, 20, 30, 40, 50, 900].map(|lost| trial(1024, lost, false)).to_vec();
        let spread = &Spread::all(&drops)[0];
        assert_eq!(spread.five(), Some([0.01, 0.0225, 0.035, 0.0475, 0.05]));
        let nothing = Spread { payload_bytes: 1, rates: vec![], clean_packets: vec![], marked: 0 };
        assert_eq!((nothing.five(), nothing.quantile(0.5)), (None, None));
    }

    #[test]
    fn trials_without_a_drop_bound_the_rate() {
        // Wilson's interval, 95 %, of 0 out of 1000 and of 3000.
        let bound = |drops: &[Drops]| Spread::all(drops)[0].clean_bound();
        let near = |bound: Option<f64>, expected: f64| {
            bound.is_some_and(|bound| (bound / expected - 1.0).abs() < 1e-3)
        };
        assert!(near(bound(&[trial(1024, 0, false), trial(1024, 5, false)]), 3.8267e-3));
        assert!(near(bound(&[trial(1024, 0, false); 3]), 1.2788e-3), "all of them together");
        assert_eq!(bound(&[trial(1024, 5, false), trial(1024, 0, true)]), None);
    }

    #[test]
    fn a_plot_shows_the_bound_of_trials_without_a_drop() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drops.svg");
        let svg = |drops: &[Drops]| {
            draw_drops(&path, "drops", drops, &[]).expect("drawn");
            std::fs::read_to_string(&path).expect("written")
        };
        assert!(svg(&[trial(1024, 0, false)]).contains("with 95 %"));
        assert!(!svg(&[trial(1024, 1, false)]).contains("with 95 %"));
    }

    #[test]
    fn a_plot_of_anything_is_an_image() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drops.svg");
        for drops in [
            vec![],
            vec![trial(1024, 0, false)],
            vec![trial(1024, 1000, false), trial(2048, 1, true)],
            (0..30).map(|i| trial(1024 << (i % 4), i * i, false)).collect(),
        ] {
            draw_drops(&path, "drops", &drops, &["below".to_owned()]).expect("drawn");
            let svg = std::fs::read_to_string(&path).expect("written");
            assert!(svg.starts_with("<svg") && svg.contains("drop rate"));
        }
    }
}
