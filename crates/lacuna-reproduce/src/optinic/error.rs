//! Figure 7: the error that losses leave, by encoding and stride.
//!
//! The paper draws the mean squared error. That is the share of packets lost times the energy, in the mean, for
//! every orthonormal encoding, none included (Parseval); what an encoding changes is how the error is spread. So
//! this also gives the worst block's squared error over the block's energy, in the mean of the patterns.
//!
//! All encodings meet the same patterns of independent losses, of packets of one block's length.

use super::{NAME, title};
use crate::cells::{Lab, Stopped};
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Verdict};
use lacuna_code::hadamard::{
    Arrived, Element, Engine, Layout, Scale, Transform, bytes_of, bytes_of_mut,
};
use lacuna_link::SplitMix64;
use lacuna_planner::chart::{Axis, Chart, Series, plain};

/// Elements of a block, and of a packet.
const BLOCK: usize = 1024;
const SEED: u64 = 7;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    /// Standard normal.
    Normal,
    /// Normal, each block of a scale of its own, whose logarithm is uniform over three decades.
    Decades,
}

impl Data {
    const ALL: [Self; 2] = [Self::Normal, Self::Decades];

    fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Decades => "three decades",
        }
    }

    fn values(self, blocks: usize) -> Vec<f32> {
        let mut random = SplitMix64::new(SEED);
        // Never 0, so that it has a logarithm.
        let mut uniform = || ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let mut values = Vec::with_capacity(blocks * BLOCK);
        for block in 0..blocks {
            let scale = match self {
                Self::Normal => 1.0,
                // Both ends are there.
                Self::Decades => match block {
                    0 => 1.0,
                    1 => 1e-3,
                    _ => 1e-3f64.powf(uniform()),
                },
            };
            values.extend((0..BLOCK).map(|_| {
                let angle = std::f64::consts::TAU * uniform();
                ((-2.0 * uniform().ln()).sqrt() * angle.cos() * scale) as f32
            }));
        }
        values
    }
}

/// How it is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Raw,
    /// All of the message as one block.
    Message,
    /// Blocks, of which so many share packets.
    Stride(usize),
}

impl Encoding {
    const ALL: [Self; 8] = [
        Self::Raw,
        Self::Stride(1),
        Self::Stride(4),
        Self::Stride(16),
        Self::Stride(64),
        Self::Stride(256),
        Self::Stride(1024),
        Self::Message,
    ];

    fn name(self) -> String {
        match self {
            Self::Raw => "raw".to_owned(),
            Self::Message => "message".to_owned(),
            Self::Stride(1) => "block".to_owned(),
            Self::Stride(stride) => format!("S = {stride}"),
        }
    }
}

/// The errors of all patterns at one loss.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Errors {
    /// Squared error over energy of everything: mean of the patterns and standard deviation.
    mean: f64,
    deviation: f64,
    /// The worst block's, in the mean of the patterns.
    worst: f64,
}

/// A cell of the figure.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    data: Data,
    encoding: Encoding,
    loss: f64,
}

/// How much is sent how often.
#[derive(Debug, Clone, Copy)]
struct Extent {
    blocks: usize,
    patterns: u64,
}

impl Cell {
    /// `None` if it was told to stop.
    fn run(&self, extent: Extent, stop: &dyn Fn() -> bool) -> Option<Errors> {
        let values = self.data.values(extent.blocks);
        let coder = Coder::new(self.encoding, values.len());
        let mut coder = coder.expect("the strides are possible and every processor has an engine");
        let encoded = coder.encode(&values);
        let energies: Vec<f64> = values.chunks(BLOCK).map(|block| squared(block, None)).collect();
        let energy: f64 = energies.iter().sum();
        let (mut all, mut worst) = (Vec::new(), 0.0);
        for pattern in 0..extent.patterns {
            if stop() {
                return None;
            }
            let mut random = SplitMix64::new(SEED ^ (pattern + 1) << 20);
            let mut came = vec![0u64; extent.blocks.div_ceil(64)];
            for packet in 0..extent.blocks {
                if (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 >= self.loss {
                    came[packet / 64] |= 1 << (packet % 64);
                }
            }
            let decoded = coder.decode(&encoded, &came);
            let blocks = decoded.chunks(BLOCK).zip(values.chunks(BLOCK));
            let errors: Vec<f64> = blocks.map(|(mine, exact)| squared(exact, Some(mine))).collect();
            all.push(errors.iter().sum::<f64>() / energy);
            let shares = errors.iter().zip(&energies).map(|(error, energy)| error / energy);
            worst += shares.fold(0.0, f64::max) / extent.patterns as f64;
        }
        let count = all.len() as f64;
        let mean = all.iter().sum::<f64>() / count;
        let variance = all.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / count;
        Some(Errors { mean, deviation: variance.sqrt(), worst })
    }
}

/// The energy of values, or of their difference to others.
fn squared(values: &[f32], others: Option<&[f32]>) -> f64 {
    let difference = |(index, value): (usize, &f32)| {
        let other = others.map_or(0.0, |others| others[index]);
        (f64::from(*value) - f64::from(other)).powi(2)
    };
    values.iter().enumerate().map(difference).sum()
}

/// An encoding at work.
struct Coder {
    encoding: Encoding,
    transform: Transform,
    layout: Layout,
    signs: Vec<bool>,
}

impl Coder {
    fn new(encoding: Encoding, elements: usize) -> Option<Self> {
        let stride = if let Encoding::Stride(stride) = encoding { stride } else { 1 };
        let mut random = SplitMix64::new(SEED);
        Some(Self {
            encoding,
            transform: Transform::with_engine(Element::F32, SEED, Engine::fastest()),
            layout: Layout::new(BLOCK, stride, &[elements]).ok()?,
            signs: (0..elements).map(|_| random.next_u64() >> 63 == 1).collect(),
        })
    }

    fn encode(&mut self, values: &[f32]) -> Vec<f32> {
        let mut encoded = values.to_vec();
        match self.encoding {
            Encoding::Raw => {}
            Encoding::Message => {
                self.negate(&mut encoded);
                whole(&mut encoded);
            }
            Encoding::Stride(_) => {
                let to = bytes_of_mut(&mut encoded);
                let raw = self.transform.encode(&self.layout, bytes_of(values), to);
                assert!(raw.is_ok_and(|raw| raw.is_empty()), "the data is finite");
            }
        }
        encoded
    }

    fn decode(&mut self, encoded: &[f32], came: &[u64]) -> Vec<f32> {
        let mut wire = encoded.to_vec();
        let arrived = Arrived::Bits(came);
        if let Encoding::Stride(_) = self.encoding {
            let mut decoded = vec![0.0; wire.len()];
            let raw = lacuna_code::hadamard::RawBlocks::none(self.layout.blocks());
            let (wire, to) = (bytes_of_mut(&mut wire), bytes_of_mut(&mut decoded));
            let result = self.transform.decode(&self.layout, wire, arrived, &raw, Scale::Kept, to);
            result.expect("the buffers fit the layout");
            return decoded;
        }
        for (packet, values) in wire.chunks_mut(BLOCK).enumerate() {
            if !arrived.has(packet) {
                values.fill(0.0);
            }
        }
        if self.encoding == Encoding::Message {
            whole(&mut wire);
            self.negate(&mut wire);
        }
        wire
    }

    fn negate(&self, values: &mut [f32]) {
        for (value, is_negated) in values.iter_mut().zip(&self.signs) {
            if *is_negated {
                *value = -*value;
            }
        }
    }
}

/// All of it as one block.
fn whole(values: &mut [f32]) {
    let scale = (values.len() as f64).sqrt().recip() as f32;
    Engine::fastest().transform_in_place(values, scale);
}

pub(super) fn figure_7(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let losses: &[f64] =
        lab.effort.pick(&[1e-3, 1e-2, 5e-2], &[1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2]);
    // Strides up to 1,024 need as many blocks.
    let extent = Extent { blocks: 1024, patterns: lab.effort.pick(25, 200) };
    let mut cells = Vec::new();
    for data in Data::ALL {
        for encoding in Encoding::ALL {
            cells.extend(losses.iter().map(|loss| Cell { data, encoding, loss: *loss }));
        }
    }
    let errors = lab.each(&cells, |cell| cell.run(extent, lab.stop))?;
    let find = |data: Data, encoding: Encoding, loss: f64| {
        let index = cells.iter().position(|cell| *cell == Cell { data, encoding, loss });
        errors[index.expect("it is in the grid")]
    };
    let mut csv = Csv::new("data,encoding,loss,nmse_mean,nmse_sd,nmse_worst_block");
    for (cell, errors) in cells.iter().zip(&errors) {
        let numbers = [cell.loss, errors.mean, errors.deviation, errors.worst];
        csv.row(&[cell.data.name(), &cell.encoding.name()], &numbers);
    }
    Ok(Outcome {
        paper: NAME,
        item: Item::Figure(7),
        live: false,
        title: title(Item::Figure(7)),
        workload: format!(
            "{} blocks and packets of {BLOCK} f32, signs by a seed, independent losses, {} patterns that all encodings meet",
            extent.blocks, extent.patterns
        ),
        statements: statements(&find),
        charts: charts(&find, losses),
        rows: Some(rows(&find)),
        remarks: vec![
            "Worst block: squared error over energy of the block where that is largest, in the mean of the patterns. It grows with the number of blocks: at S = 4 one group of four more easily loses two of four packets.".to_owned(),
        ],
        csv,
    })
}

type Find<'f> = &'f dyn Fn(Data, Encoding, f64) -> Errors;

fn charts(find: Find<'_>, losses: &[f64]) -> Vec<Chart> {
    let chart = |data: Data, what: &str, value: fn(Errors) -> f64| Chart {
        title: format!("{what}, {}", data.name()),
        x: Axis::log("loss of packets", plain),
        y: Axis::log("squared error / energy", plain),
        series: Encoding::ALL
            .iter()
            .map(|encoding| {
                let points = losses.iter().map(|loss| (*loss, value(find(data, *encoding, *loss))));
                // Nothing was lost in any pattern: that has no place on a logarithmic axis.
                Series::new(encoding.name(), points.filter(|(_, error)| *error > 0.0).collect())
            })
            .collect(),
        marks: Vec::new(),
    };
    vec![
        chart(Data::Normal, "worst block", |errors| errors.worst),
        chart(Data::Decades, "worst block", |errors| errors.worst),
        chart(Data::Normal, "mean", |errors| errors.mean),
        chart(Data::Normal, "standard deviation", |errors| errors.deviation),
    ]
}

fn rows(find: Find<'_>) -> Rows {
    let mut rows = Vec::new();
    for data in Data::ALL {
        for encoding in Encoding::ALL {
            let Errors { mean, deviation, worst } = find(data, encoding, 5e-2);
            let numbers = [mean, deviation, worst].map(|value| format!("{value:.4}"));
            rows.push([vec![data.name().to_owned(), encoding.name()], numbers.into()].concat());
        }
    }
    let header = ["data", "encoding", "mean at 5 %", "sd", "worst block"];
    Rows { header: header.map(str::to_owned).into(), rows }
}

fn statements(find: Find<'_>) -> Vec<Statement> {
    let errors = |data: Data| Encoding::ALL.map(|encoding| find(data, encoding, 5e-2));
    let normal = errors(Data::Normal);
    let [raw, block, four, sixteen, sixty_four, .., message] = normal.map(|errors| errors.worst);
    let is = |holds: bool| if holds { Verdict::Holds } else { Verdict::Differs };
    let means = normal.map(|errors| errors.mean);
    let (least, most) =
        (means.iter().copied().fold(1.0, f64::min), means.iter().copied().fold(0.0, f64::max));
    let decades = errors(Data::Decades).map(|errors| errors.worst);
    let gain = decades[7] / decades[4];
    vec![
        Statement {
            section: "5.3.3, figure 7a",
            paper: "the mean squared error of HD:Blk is far above that of HD:Msg".to_owned(),
            ours: format!("5 % lost, mean of all encodings {least:.4} to {most:.4}"),
            verdict: is(most > 2.0 * least),
            why: Some("the mean is the loss for every orthonormal encoding (Parseval)".to_owned()),
        },
        Statement {
            section: "5.3.3, figure 7a",
            paper: "a lost packet removes a whole block of HD:Blk; stride is comparable to HD:Msg"
                .to_owned(),
            ours: format!(
                "5 % lost, worst block: raw {raw:.3}, block {block:.3}, S = 64 {sixty_four:.3}, message {message:.3}"
            ),
            verdict: is((raw - block).abs() < 0.1 * raw
                && block > 4.0 * sixty_four
                && sixty_four < 4.0 * message),
            why: Some("of the worst block; comparable: less than four times".to_owned()),
        },
        Statement {
            section: "5.3.3, figure 7b",
            paper: "resilience improves with the stride".to_owned(),
            ours: format!(
                "5 % lost, worst block: block {block:.3}, S = 4 {four:.3}, 16 {sixteen:.3}, 64 {sixty_four:.3}"
            ),
            verdict: is(block > four && four > sixteen && sixteen > sixty_four),
            why: None,
        },
        Statement {
            section: "5.3.3, figure 7a",
            paper: "HD:Blk+Str matches the robustness of full-message transforms".to_owned(),
            ours: format!(
                "blocks over three decades, worst block: S = 64 {:.3}, message {:.0}: {gain:.0} times below",
                decades[4], decades[7]
            ),
            verdict: if gain >= 1000.0 { Verdict::Exceeded } else { Verdict::Differs },
            why: Some(
                "a message's transform spreads the error of large blocks over small ones"
                    .to_owned(),
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_block_is_ordered_by_stride_and_message_destroys_small_blocks() {
        let extent = Extent { blocks: 256, patterns: 6 };
        let errors = |data: Data, encoding: Encoding| {
            Cell { data, encoding, loss: 0.05 }.run(extent, &|| false).expect("not stopped")
        };
        let worst = |encoding: Encoding| errors(Data::Normal, encoding).worst;
        let strides = [1, 4, 16, 64].map(|stride| worst(Encoding::Stride(stride)));
        assert!(strides.is_sorted_by(|a, b| a > b), "{strides:?}");
        let raw = worst(Encoding::Raw);
        assert!(
            (raw - strides[0]).abs() < 0.05 && strides[0] > 1.5 * strides[1],
            "{raw} {strides:?}"
        );
        assert!(strides[3] < 4.0 * worst(Encoding::Message));
        let of = |encoding: Encoding| errors(Data::Decades, encoding).worst;
        assert!(of(Encoding::Message) > 1000.0 * of(Encoding::Stride(64)));
        // The same patterns lose the same share, whatever the encoding.
        for encoding in Encoding::ALL {
            let mean = errors(Data::Normal, encoding).mean;
            assert!((mean - errors(Data::Normal, Encoding::Raw).mean).abs() < 0.01, "{mean}");
        }
    }

    #[test]
    fn a_cell_ends_when_told_to() {
        let cell = Cell { data: Data::Normal, encoding: Encoding::Raw, loss: 0.05 };
        assert_eq!(cell.run(Extent { blocks: 64, patterns: 1 }, &|| true), None);
    }
}
