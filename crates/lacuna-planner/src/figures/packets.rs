//! Figure 15, the part that the model covers: the effect of longer chunks on the loss of a chunk.
//! (The other part, throughput by chunk length, is a measurement of hardware.)

use super::setup::PACKET_BYTES;
use super::{Csv, Figure, Headline};
use crate::chart::{Axis, Chart, Drawing, Series, plain, power};
use crate::error::FigureError;
use lacuna_model::Loss;
use std::path::Path;

const LOSSES: [f64; 4] = [1e-6, 1e-5, 1e-4, 1e-3];

pub(super) fn figure_15(svg: &Path) -> Result<Figure, FigureError> {
    let mut csv = Csv::new("loss,packets_per_chunk,chunk_bytes,chunk_loss");
    let mut series = Vec::new();
    for loss in LOSSES {
        let mut points = Vec::new();
        for packets in (0..=6).map(|exponent| 1u64 << exponent) {
            let chunk_loss = Loss::PerPacket(loss).of_chunk(packets)?.probability();
            csv.row(&[], &[loss, packets as f64, (packets * PACKET_BYTES) as f64, chunk_loss]);
            points.push((packets as f64, chunk_loss));
        }
        series.push(Series::new(format!("loss of packets {loss:e}"), points));
    }
    let at = |packets: usize| series[1].points[packets].1;
    let headlines = vec![Headline {
        section: "5.4.2",
        paper: "p_chunk = 1 - (1 - P)^N: at 1e-5 from 1e-5 (1 packet) over 1.6e-4 (16) to 6.4e-4 (64)",
        ours: format!("{:.2e}, {:.2e}, {:.2e}", at(0), at(4), at(6)),
    }];
    let charts = vec![Chart {
        title: "loss of a chunk".to_owned(),
        x: Axis::doubling("packets of 4 KiB per chunk", plain),
        y: Axis::log("chunk loss", power),
        series,
        marks: Vec::new(),
    }];
    let title = "Figure 15: loss of a chunk by its length".to_owned();
    Drawing { title, charts, is_common_y: false, notes: Headline::notes(&headlines) }.write(svg)?;
    Ok(Figure { number: 15, headlines, csv })
}
