//! The time line of queue, loss and rate, as CSV and as a picture.

use crate::failure::Failure;
use lacuna_wan::{Direction, Sample, Timeline, WaySample};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

/// Of the picture; a third of the height for each panel.
const SIZE: (u32, u32) = (960, 840);

/// A value of an interval of this many seconds.
type Value = fn(&WaySample, f64) -> f64;

/// The panels: what their axis says, and their lines.
const PANELS: [(&str, &[(&str, Value)]); 3] = [
    ("rate, Mbit/s", &[("delivered", |way, s| mbit(way.delivered_bytes, s))]),
    ("queue, KiB", &[("most in the interval", |way, _| way.queue_bytes_max as f64 / 1024.0)]),
    (
        "packets per s",
        &[
            ("lost", |way, s| way.lost as f64 / s),
            ("dropped in queue", |way, s| way.dropped as f64 / s),
        ],
    ),
];

fn mbit(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8.0 / 1e6 / seconds
}

/// Intervals with their lengths in seconds.
fn intervals(timeline: &Timeline) -> impl Iterator<Item = (&Sample, f64)> {
    let starts = std::iter::once(0).chain(timeline.samples().iter().map(|sample| sample.end_ns));
    let lengths = timeline.samples().iter().zip(starts);
    // The last interval may be empty.
    lengths
        .map(|(sample, start_ns)| (sample, (sample.end_ns - start_ns) as f64 / 1e9))
        .filter(|(_, seconds)| *seconds > 0.0)
}

/// A line per interval and way.
pub(super) fn csv(timeline: &Timeline) -> String {
    let mut text = String::from(
        "end_s,way,sent_bytes,delivered_bytes,delivered_packets,delivered_bits_per_s,\
         queue_bytes,queue_bytes_max,lost,dropped,marked\n",
    );
    for (sample, seconds) in intervals(timeline) {
        for (direction, way) in Direction::ALL.iter().zip(&sample.ways) {
            // A string takes whatever is written to it.
            let _ = writeln!(
                text,
                "{:.6},{},{},{},{},{:.0},{},{},{},{},{}",
                sample.end_ns as f64 / 1e9,
                direction.name(),
                way.sent_bytes,
                way.delivered_bytes,
                way.delivered_packets,
                mbit(way.delivered_bytes, seconds) * 1e6,
                way.queue_bytes,
                way.queue_bytes_max,
                way.lost,
                way.dropped,
                way.marked,
            );
        }
    }
    text
}

/// Writes an SVG.
pub(super) fn plot(path: &Path, title: &str, timeline: &Timeline) -> Result<(), Failure> {
    draw(path, title, timeline)
        .map_err(|error| Failure::Local(format!("cannot write {}: {error}", path.display())))
}

fn draw(path: &Path, title: &str, timeline: &Timeline) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(34);
    head.draw(&Text::new(title.to_owned(), (14, 10), ("sans-serif", 13).into_font()))?;
    for ((description, lines), panel) in PANELS.iter().zip(body.split_evenly((PANELS.len(), 1))) {
        draw_panel(&panel, description, lines, timeline)?;
    }
    area.present()?;
    Ok(())
}

fn draw_panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    description: &str,
    lines: &[(&str, Value)],
    timeline: &Timeline,
) -> Result<(), Box<dyn Error>> {
    let points = |way: usize, value: Value| {
        intervals(timeline)
            .map(move |(sample, s)| (sample.end_ns as f64 / 1e9, value(&sample.ways[way], s)))
    };
    let end_s = intervals(timeline).last().map_or(1.0, |(sample, _)| sample.end_ns as f64 / 1e9);
    let highest = lines.iter().flat_map(|(_, value)| (0..2).flat_map(|way| points(way, *value)));
    let highest = highest.map(|(_, value)| value).fold(0.0, f64::max);
    // A visible axis if nothing happened.
    let top = if highest > 0.0 { highest * 1.08 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end_s, 0.0..top)?;
    chart.configure_mesh().light_line_style(TRANSPARENT).x_desc("s").y_desc(description).draw()?;
    let mut color = 0;
    for (name, value) in lines {
        for (way, direction) in Direction::ALL.iter().enumerate() {
            let style = Palette99::pick(color).mix(0.9).stroke_width(1);
            color += 1;
            chart
                .draw_series(LineSeries::new(points(way, *value), style))?
                .label(format!("{name}, {}", direction.name().replace('_', " ")))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_wan::WayCounters;

    fn timeline() -> Timeline {
        let mut timeline = Timeline::new(100_000_000);
        let mut counters = [WayCounters::default(); 2];
        for number in 1..=3 {
            counters[0].delivered_bytes += 1_250_000;
            counters[0].lost += 5;
            timeline.push(number * 100_000_000, counters, [(10, 2048), (0, 0)]);
        }
        // Stopped right behind an interval.
        timeline.push(300_000_000, counters, [(0, 0), (0, 0)]);
        timeline
    }

    #[test]
    fn there_is_a_line_for_each_interval_and_way() {
        let text = csv(&timeline());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 3 * 2);
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
        assert_eq!(lines[3], "0.200000,to_server,0,1250000,0,100000000,10,2048,5,0,0");
    }

    #[test]
    fn the_picture_has_all_panels() {
        let folder = tempfile::tempdir().unwrap();
        for (name, timeline) in [("full", timeline()), ("empty", Timeline::new(1))] {
            let path = folder.path().join(name);
            plot(&path, "a path", &timeline).unwrap();
            let svg = std::fs::read_to_string(&path).unwrap();
            assert!(svg.contains("a path") && PANELS.iter().all(|(axis, _)| svg.contains(axis)));
        }
        assert!(plot(Path::new("/nonexistent/x.svg"), "", &timeline()).is_err());
    }
}
