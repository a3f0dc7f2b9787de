//! A box plot of drop rates by payload size, in the manner of SDR-RDMA figure 2: a box from quartile
//! to quartile with the median in it, whiskers to the last trial within one and a half of its height
//! (Tukey 1977), and a dot for each trial.
//!
//! The axis of the rates is logarithmic; a trial without a drop, which has no place on it, stands on
//! a line of its own below. Marked trials are not drawn.

use super::chart::{LINE_HEIGHT, wrapped};
use crate::failure::Failure;
use crate::units::show_bytes;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// Width and height of the chart.
const SIZE: (u32, u32) = (640, 420);

/// What a trial says of the drop rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drops {
    pub(crate) payload_bytes: u32,
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    /// A host dropped packets by itself meanwhile.
    pub(crate) is_marked: bool,
}

impl Drops {
    pub(crate) fn rate(&self) -> f64 {
        self.lost as f64 / self.packets.max(1) as f64
    }
}

/// The drop rates of a payload size.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spread {
    pub(crate) payload_bytes: u32,
    /// Ascending, without marked trials.
    pub(crate) rates: Vec<f64>,
    pub(crate) marked: usize,
}

impl Spread {
    /// Of each payload size, ascending.
    pub(crate) fn all(drops: &[Drops]) -> Vec<Self> {
        let mut payloads: Vec<u32> = drops.iter().map(|trial| trial.payload_bytes).collect();
        payloads.sort_unstable();
        payloads.dedup();
        let spread = |payload_bytes| {
            let of_size = || drops.iter().filter(move |trial| trial.payload_bytes == payload_bytes);
            let clean = of_size().filter(|trial| !trial.is_marked && trial.packets > 0);
            let mut rates: Vec<f64> = clean.map(Drops::rate).collect();
            rates.sort_by(f64::total_cmp);
            let marked = of_size().filter(|trial| trial.is_marked).count();
            Self { payload_bytes, rates, marked }
        };
        payloads.into_iter().map(spread).collect()
    }

    /// The value at a share of the trials, between two of them if need be.
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

/// Writes an SVG, with lines of text below.
pub(crate) fn draw(
    path: &Path,
    title: &str,
    drops: &[Drops],
    notes: &[String],
) -> Result<(), Failure> {
    drawn(path, title, &Spread::all(drops), notes)
        .map_err(|error| Failure::Local(format!("cannot write {}: {error}", path.display())))
}

fn drawn(
    path: &Path,
    title: &str,
    spreads: &[Spread],
    notes: &[String],
) -> Result<(), Box<dyn Error>> {
    let title = wrapped(title, SIZE.0);
    let notes: Vec<String> = notes.iter().flat_map(|note| wrapped(note, SIZE.0)).collect();
    let head = LINE_HEIGHT * title.len() as u32 + 12;
    let foot = LINE_HEIGHT * notes.len() as u32 + 8;
    let area = SVGBackend::new(path, (SIZE.0, head + SIZE.1 + foot)).into_drawing_area();
    area.fill(&WHITE)?;
    let (head_area, rest) = area.split_vertically(head);
    let (middle, foot_area) = rest.split_vertically(SIZE.1);
    for (area, lines) in [(&head_area, &title), (&foot_area, &notes)] {
        for (i, line) in lines.iter().enumerate() {
            let at = (14, 8 + LINE_HEIGHT as i32 * i as i32);
            area.draw(&Text::new(line.clone(), at, ("sans-serif", 14).into_font()))?;
        }
    }
    let seen = || spreads.iter().flat_map(|spread| &spread.rates).filter(|rate| **rate > 0.0);
    let least = seen().copied().fold(1.0, f64::min).log10().floor().min(-1.0);
    let most = seen().copied().fold(10f64.powf(least + 1.0), f64::max).log10().ceil();
    // A decade below all: no drop.
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
            // Side by side, so that trials that are alike are seen.
            let aside = 0.36 + 0.08 * (i % 3) as f64 / 2.0;
            chart.plotting_area().draw(&Circle::new(
                (x + aside, place(*rate)),
                2,
                BLUE.mix(0.5).filled(),
            ))?;
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
        let nothing = Spread { payload_bytes: 1, rates: vec![], marked: 0 };
        assert_eq!((nothing.five(), nothing.quantile(0.5)), (None, None));
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
            draw(&path, "drops", &drops, &["below".to_owned()]).expect("drawn");
            let svg = std::fs::read_to_string(&path).expect("written");
            assert!(svg.starts_with("<svg") && svg.contains("drop rate"));
        }
    }
}
