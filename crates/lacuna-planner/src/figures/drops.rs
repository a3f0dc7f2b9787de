//! Figure 2: drop rates by payload size, from what `lacuna probe client` measured on a real path.
//!
//! A file holds JSON objects, one behind the other as runs were appended, or the rows of `--csv`.

use super::{Csv, Figure, Headline};
use crate::drops::{Drops, Spread, draw_drops};
use crate::error::{FigureError, MeasurementError};
use crate::measurement::{read_text, refused};
use lacuna_probe::estimate::CONFIDENCE;
use lacuna_units::{show_bytes, show_count};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The fields of a probe's report that are used.
#[derive(Debug, Deserialize)]
struct Report {
    trials: Vec<Trial>,
}

#[derive(Debug, Deserialize)]
struct Trial {
    payload_bytes: u32,
    packets: u64,
    lost_packets: u64,
    marked: bool,
}

impl From<Trial> for Drops {
    fn from(trial: Trial) -> Self {
        Self {
            payload_bytes: trial.payload_bytes,
            packets: trial.packets,
            lost: trial.lost_packets,
            is_marked: trial.marked,
        }
    }
}

pub(super) fn figure_2(files: &[PathBuf], svg: &Path) -> Result<Figure, FigureError> {
    let mut drops = Vec::new();
    for file in files {
        let read = read(file);
        drops.extend(read.map_err(|source| FigureError::Measurement { number: 2, source })?);
    }
    let spreads = Spread::all(&drops);
    let mut csv = Csv::new(
        "payload_bytes,trials,marked_trials,trials_without_drop,least,quartile_1,median,quartile_3,most,\
         without_drop_at_most",
    );
    for spread in &spreads {
        let at = |share| spread.quantile(share).unwrap_or(f64::NAN);
        let labels = [
            spread.payload_bytes.to_string(),
            spread.rates.len().to_string(),
            spread.marked.to_string(),
            spread.clean_packets.len().to_string(),
        ];
        csv.row(
            &labels.each_ref().map(String::as_str),
            &[
                at(0.0),
                at(0.25),
                at(0.5),
                at(0.75),
                at(1.0),
                spread.clean_bound().unwrap_or(f64::NAN),
            ],
        );
    }
    let headlines = vec![Headline {
        section: "2.1, 2",
        paper: "1e-4 to 1e-2 at 1 KiB, 1e-3 to over 1e-1 at 8 KiB; up to three orders of magnitude \
                between trials (16 flows, 100 Gbit/s, 350 km)",
        ours: describe(&spreads),
    }];
    let title = "Figure 2: drop rates by payload size".to_owned();
    draw_drops(svg, &title, &drops, &Headline::notes(&headlines))?;
    Ok(Figure { number: 2, headlines, csv })
}

fn describe(spreads: &[Spread]) -> String {
    let of_size = |spread: &Spread| {
        let size = show_bytes(spread.payload_bytes.into());
        match (spread.quantile(0.0), spread.quantile(1.0)) {
            (Some(least), Some(most)) => {
                let trials = show_count(spread.rates.len() as u64, "trial");
                let range =
                    match spread.clean_bound().map(|bound| format!("none (at most {bound:.1e})")) {
                        Some(none) if most == 0.0 => none,
                        Some(none) => format!("{none} to {most:.1e}"),
                        None => format!("{least:.1e} to {most:.1e}"),
                    };
                format!("{range} at {size} ({trials})")
            }
            _ => format!("no unmarked trial at {size}"),
        }
    };
    let mut parts: Vec<String> = spreads.iter().map(of_size).collect();
    // Trials without a loss have no ratio.
    let ratio = spreads
        .iter()
        .filter_map(|spread| {
            let least = spread.rates.iter().find(|rate| **rate > 0.0)?;
            Some(spread.rates.last()? / least)
        })
        .fold(1.0, f64::max);
    if ratio > 1.0 {
        parts.push(format!("{:.1} orders of magnitude between trials with drops", ratio.log10()));
    }
    if spreads.iter().any(|spread| !spread.clean_packets.is_empty()) {
        parts.push(format!("\"at most\" with {:.0} %", CONFIDENCE * 100.0));
    }
    parts.join("; ")
}

fn read(path: &Path) -> Result<Vec<Drops>, MeasurementError> {
    let text = read_text(path)?;
    let drops = if text.trim_start().starts_with('{') { json(&text) } else { rows(&text) };
    match drops {
        Ok(drops) if drops.is_empty() => Err("there is no trial in it".to_owned()),
        drops => drops,
    }
    .map_err(|reason| refused(path, reason))
}

fn json(text: &str) -> Result<Vec<Drops>, String> {
    let mut drops = Vec::new();
    for report in serde_json::Deserializer::from_str(text).into_iter::<Report>() {
        let report = report.map_err(|error| error.to_string())?;
        drops.extend(report.trials.into_iter().map(Drops::from));
    }
    Ok(drops)
}

fn rows(text: &str) -> Result<Vec<Drops>, String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let names: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
    let column = |name: &str| {
        let found = names.iter().position(|candidate| candidate.trim() == name);
        found.ok_or_else(|| format!("no column {name}"))
    };
    let (payload, packets) = (column("payload_bytes")?, column("packets")?);
    let (lost, marked) = (column("lost_packets")?, column("marked")?);
    lines
        // Files that were concatenated have further header lines.
        .filter(|line| !line.starts_with(names[0]))
        .enumerate()
        .map(|(index, line)| {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let cell = |at: usize| cells.get(at).copied().unwrap_or("");
            let number = |at: usize| {
                cell(at).parse::<u64>().map_err(|_| format!("row {}: \"{}\"", index + 1, cell(at)))
            };
            Ok(Drops {
                payload_bytes: u32::try_from(number(payload)?).unwrap_or(u32::MAX),
                packets: number(packets)?,
                lost: number(lost)?,
                is_marked: cell(marked) == "true",
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_objects_are_the_same_measurement() {
        let objects = r#"{"host":"h","trials":[
            {"payload_bytes":1024,"packets":100,"lost_packets":3,"marked":false,"rtt_s":null}]}
            {"trials":[{"payload_bytes":2048,"packets":50,"lost_packets":0,"marked":true}]}"#;
        let rows_ = "trial,payload_bytes,packets,lost_packets,marked\n1,1024,100,3,false\n\
                     trial,payload_bytes,packets,lost_packets,marked\n1,2048,50,0,true\n";
        let drops = json(objects).expect("objects");
        assert_eq!(drops, rows(rows_).expect("rows"));
        assert_eq!((drops.len(), drops[0].rate(), drops[1].is_marked), (2, 0.03, true));
    }

    #[test]
    fn what_is_no_measurement_is_refused_with_the_place() {
        assert!(json("{\"trials\": 5}").expect_err("no list").contains("line 1"));
        assert_eq!(rows("a,b\n1,2\n"), Err("no column payload_bytes".to_owned()));
        let names = "payload_bytes,packets,lost_packets,marked\n";
        assert_eq!(rows(&format!("{names}1,x,2,false\n")), Err("row 1: \"x\"".to_owned()));
        assert_eq!(rows(&format!("{names}1\n")), Err("row 1: \"\"".to_owned()));
    }

    #[test]
    fn the_headline_tells_the_range_of_each_size() {
        let trial =
            |payload_bytes, lost| Drops { payload_bytes, packets: 10_000, lost, is_marked: false };
        let spreads =
            Spread::all(&[trial(1024, 0), trial(1024, 1), trial(1024, 100), trial(8192, 20)]);
        assert_eq!(
            describe(&spreads),
            "none (at most 3.8e-4) to 1.0e-2 at 1 KiB (3 trials); 2.0e-3 to 2.0e-3 at 8 KiB (1 trial); \
             2.0 orders of magnitude between trials with drops; \"at most\" with 95 %"
        );
        let nothing = Spread::all(&[trial(1024, 0), trial(1024, 0)]);
        assert_eq!(
            describe(&nothing),
            "none (at most 1.9e-4) at 1 KiB (2 trials); \"at most\" with 95 %"
        );
    }
}
