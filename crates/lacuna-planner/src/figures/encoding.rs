//! Figure 11: the processor cores that parity takes at 400 Gbit/s, from measurements of
//! `lacuna ec-bench` on this host.

use super::setup::RATE_BITS_PER_S;
use super::{Csv, Figure, Headline};
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::error::{FigureError, MeasurementError};
use crate::measurement::{read_text, refused};
use lacuna_units::{show_bytes, show_count};
use serde::Deserialize;
use std::path::Path;

/// A row of `ec-bench --json`.
#[derive(Debug, Clone, Deserialize)]
struct Row {
    code: String,
    engine: String,
    op: String,
    k: usize,
    m: usize,
    chunk_bytes: u64,
    size_bytes: u64,
    threads: usize,
    gbyte_per_s: f64,
}

/// The paper's link, 400 Gbit/s, at whose rate parity must be computed.
const LINK_GBYTE_PER_S: f64 = RATE_BITS_PER_S / 8e9;

pub(super) fn figure_11(file: Option<&Path>, svg: &Path) -> Result<Figure, FigureError> {
    let file = file.ok_or(FigureError::NotMeasured { number: 11 })?;
    let rows = read(file).map_err(|source| FigureError::Measurement { number: 11, source })?;
    let mut csv = Csv::new("code,engine,k,m,chunk_bytes,size_bytes,threads,gbit_per_s");
    let mut series: Vec<Series> = Vec::new();
    for row in &rows {
        let numbers = [row.k as u64, row.m as u64, row.chunk_bytes, row.size_bytes];
        let numbers = numbers.map(|number| number.to_string());
        let mut labels = vec![row.code.as_str(), row.engine.as_str()];
        labels.extend(numbers.iter().map(String::as_str));
        let gbit_per_s = row.gbyte_per_s * 8.0;
        csv.row(&labels, &[row.threads as f64, gbit_per_s]);
        let name = name(row);
        let index = series.iter().position(|line| line.name == name).unwrap_or_else(|| {
            series.push(Series::new(name, Vec::new()));
            series.len() - 1
        });
        series[index].points.push((row.threads as f64, gbit_per_s));
    }
    for line in &mut series {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let headlines = vec![Headline {
        section: "5.2.1, 11",
        paper: "at 400 Gbit/s XOR (32,8) is hidden by 4 cores, MDS needs twice as many (Xeon Platinum \
                8580, 4 GHz, ISA-L)",
        ours: ["xor", "mds", "isal"]
            .iter()
            .filter_map(|code| cores(&rows, code))
            .collect::<Vec<_>>()
            .join("; "),
    }];
    let first = &rows[0];
    let title = format!(
        "Figure 11: encoding ({}, {}), chunks of {}, {} of data",
        first.k,
        first.m,
        show_bytes(first.chunk_bytes),
        show_bytes(first.size_bytes)
    );
    let threads = rows.iter().map(|row| row.threads).max().unwrap_or(1) as f64;
    let link_gbit = RATE_BITS_PER_S / 1e9;
    let link = vec![(1.0, link_gbit), (threads.max(2.0), link_gbit)];
    series.push(Series::new("link of 400 Gbit/s", link));
    let charts = vec![Chart {
        title: "encoding throughput".to_owned(),
        x: Axis::count("threads"),
        y: Axis::linear("Gbit/s of data"),
        series,
        marks: Vec::new(),
    }];
    Drawing { title, charts, is_common_y: false, notes: Headline::notes(&headlines) }.write(svg)?;
    Ok(Figure { number: 11, headlines, csv })
}

fn name(row: &Row) -> String {
    if row.code == row.engine { row.code.clone() } else { format!("{} {}", row.code, row.engine) }
}

/// Cores that a code needs for the link: measured if that many were tried, else extrapolated from
/// one core, which the text says.
fn cores(rows: &[Row], code: &str) -> Option<String> {
    let of_code = || rows.iter().filter(|row| row.code == code);
    let enough = of_code().filter(|row| row.gbyte_per_s >= LINK_GBYTE_PER_S);
    if let Some(row) = enough.min_by_key(|row| row.threads) {
        return Some(format!("{code} {}", show_count(row.threads as u64, "core")));
    }
    let most = of_code()
        .max_by(|a, b| a.threads.cmp(&b.threads).then(a.gbyte_per_s.total_cmp(&b.gbyte_per_s)))?;
    let needed = (LINK_GBYTE_PER_S / most.gbyte_per_s * most.threads as f64).ceil();
    let gbit_per_s = most.gbyte_per_s * 8.0;
    Some(format!(
        "{code} {gbit_per_s:.0} Gbit/s with {}, so {} if it goes on so",
        show_count(most.threads as u64, "thread"),
        show_count(needed as u64, "core"),
    ))
}

fn read(path: &Path) -> Result<Vec<Row>, MeasurementError> {
    let text = read_text(path)?;
    let rows: Result<Vec<Row>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
    let rows = rows.map_err(|error| refused(path, error))?;
    let rows: Vec<Row> =
        rows.into_iter().filter(|row| row.op == "encode" && row.code != "copy").collect();
    if rows.is_empty() {
        return Err(refused(path, "no encoding in it"));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(code: &str, threads: usize, gbyte_per_s: f64) -> Row {
        Row {
            code: code.to_owned(),
            engine: "portable".to_owned(),
            op: "encode".to_owned(),
            k: 32,
            m: 8,
            chunk_bytes: 65_536,
            size_bytes: 1 << 27,
            threads,
            gbyte_per_s,
        }
    }

    #[test]
    fn cores_are_those_measured_or_told_to_be_a_projection() {
        let rows =
            [row("xor", 1, 20.0), row("xor", 4, 55.0), row("mds", 1, 10.0), row("mds", 2, 18.0)];
        assert_eq!(cores(&rows, "xor").as_deref(), Some("xor 4 cores"));
        assert_eq!(
            cores(&rows, "mds").as_deref(),
            Some("mds 144 Gbit/s with 2 threads, so 6 cores if it goes on so")
        );
        assert_eq!(cores(&rows, "isal"), None);
        // Of several engines the fastest counts.
        let engines = [row("mds", 2, 18.0), row("mds", 2, 3.0)];
        assert!(cores(&engines, "mds").is_some_and(|text| text.starts_with("mds 144 Gbit/s")));
        assert_eq!(cores(&[row("xor", 1, 60.0)], "xor").as_deref(), Some("xor 1 core"));
    }
}
