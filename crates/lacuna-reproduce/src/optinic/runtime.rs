//! Table 3: how long the transform of 128 MiB takes, as one block or split into several. On one core, in place.

use super::{NAME, title};
use crate::cells::{Lab, Stopped};
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Verdict};
use lacuna_code::hadamard::Engine;
use std::time::Instant;

/// 128 MiB of f32.
const ELEMENTS: usize = 32 << 20;
/// The paper's columns: splits, milliseconds.
const PAPER: [(usize, f64); 4] = [(1, 22.1), (4, 19.9), (16, 17.5), (64, 8.4)];

pub(super) fn table_3(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let rounds = lab.effort.pick(5, 21);
    let engine = Engine::fastest();
    let mut data: Vec<f32> = (0..ELEMENTS).map(|index| (index % 251) as f32 - 125.0).collect();
    // Splits of the paper, and blocks of 1,024 elements.
    let splits = [1, 4, 16, 64, ELEMENTS / 1024];
    let mut times_ms = splits.map(|_| Vec::new());
    for round in 0..=rounds {
        (lab.progress)(round, rounds + 1);
        for (splits, times_ms) in splits.iter().zip(&mut times_ms) {
            if (lab.stop)() {
                return Err(Stopped);
            }
            let begun = Instant::now();
            for part in data.chunks_exact_mut(ELEMENTS / splits) {
                engine.transform_in_place(part, (part.len() as f64).sqrt().recip() as f32);
            }
            // The first round touches the memory.
            if round > 0 {
                times_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    let summaries = times_ms.map(|times_ms| {
        let count = times_ms.len() as f64;
        let mean = times_ms.iter().sum::<f64>() / count;
        let variance = times_ms.iter().map(|ms| (ms - mean).powi(2)).sum::<f64>() / count;
        (mean, variance.sqrt())
    });
    let mut csv = Csv::new("splits,ms_mean,ms_sd,paper_ms");
    let mut rows = Vec::new();
    for (index, (splits, (mean, deviation))) in splits.iter().zip(summaries).enumerate() {
        let paper = PAPER.get(index).map(|(_, ms)| *ms);
        csv.row(&[], &[*splits as f64, mean, deviation, paper.unwrap_or(f64::NAN)]);
        let paper = paper.map_or(String::new(), |ms| ms.to_string());
        rows.push(vec![splits.to_string(), format!("{mean:.1} ± {deviation:.1}"), paper]);
    }
    let ratio = summaries[0].0 / summaries[3].0;
    let verdict = if ratio >= 2.6 { Verdict::Holds } else { Verdict::Differs };
    let header = ["splits", "ms here", "ms in the paper"].map(str::to_owned).into();
    Ok(Outcome {
        paper: NAME,
        item: Item::Table(3),
        live: false,
        title: title(Item::Table(3)),
        workload: format!(
            "128 MiB of f32 in place, engine {}, one core of this machine, {rounds} rounds",
            engine.kind()
        ),
        statements: vec![Statement {
            section: "5.3.3, table 3",
            paper: "64 splits take 2.5 times less than one (22.1 and 8.4 ms: 2.63)".to_owned(),
            ours: format!(
                "{:.1} and {:.1} ms: {ratio:.2}; blocks of 1,024: {:.1} ms",
                summaries[0].0, summaries[3].0, summaries[4].0
            ),
            verdict,
            why: Some(
                "the paper's is a GPU; here a transform of everything is itself done in parts that fit the caches, which leaves splits less to gain".to_owned(),
            ),
        }],
        charts: Vec::new(),
        rows: Some(Rows { header, rows }),
        remarks: Vec::new(),
        csv,
    })
}
