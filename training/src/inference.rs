//! Decoding by ranks that have a part of the model each (OptiNIC's figure 4): texts are continued, many at a time.
//!
//! The first rank has the texts and tells the others, chooses each next character and tells them that, too: both go
//! over the exact group, because they are critical (OptiNIC 3.2). The activations that ranks add up go over the data
//! group, by its delivery. What is lost there changes the scores a little, and differently on each rank.
//!
//! Each batch is a number of texts that begin at the same time. The time to its first character is that from the
//! moment at which the first rank has the texts until it has chosen all first characters.
//!
//! Batches of a second kind are *read*: they go on as they were written, whatever is chosen. So choices and scores for
//! the same text can be compared with those of a model that lost nothing, and there is a validation loss.

use crate::model::{Shape, Split};
use crate::network::{Ends, Network, Received, on_all_ranks};
use crate::random::Stream;
use crate::task::Text;
use candle_core::{D, Tensor};
use std::time::Instant;

/// What is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Settings {
    /// Texts of a batch.
    pub texts: usize,
    /// Characters of a text that are known.
    pub prompt: usize,
    /// Characters that are added to each.
    pub more: usize,
    /// Batches before the clock starts: connections and budgets learn.
    pub warm_up: usize,
    /// Batches that are timed.
    pub batches: usize,
    /// Batches that are read.
    pub readings: usize,
    /// The seed that texts are made from.
    pub data_seed: u64,
}

/// The model.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// How large it is.
    pub shape: Shape,
    /// In the order of [`crate::model::Transformer`].
    pub parameters: Vec<f32>,
}

/// What came of texts that were read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// The mean loss of the characters that were written, in nats.
    pub loss: f64,
    /// What would have been chosen.
    pub choices: Vec<u32>,
    /// The scores, a row for each character.
    pub scores: Vec<f32>,
}

/// What was decoded, by the first rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decoded {
    /// Milliseconds to the first characters of each timed batch.
    pub first_ms: Vec<f64>,
    /// Milliseconds from one character to the next.
    pub next_ms: Vec<f64>,
    /// Characters per second, over all timed batches.
    pub per_s: f64,
    /// What was chosen in the timed batches, in order.
    pub chosen: Vec<u32>,
    /// The texts that were read.
    pub reading: Reading,
    /// Fraction of the bytes that did not come, over all ranks.
    pub lost: f64,
    /// Fraction of the bytes that were late.
    pub late: f64,
    /// Fraction of the parts that sums lack.
    pub missing: f64,
}

/// How near a result is to another.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Agreement {
    /// Fraction of the characters that were chosen alike, where each goes on with its own.
    pub chosen: f64,
    /// The same where both read the same text.
    pub read: f64,
    /// The root of the mean square difference of scores, over that of the scores.
    pub scores: f64,
}

impl Decoded {
    /// How near this is to another result for the same texts.
    #[must_use]
    pub fn agreement(&self, with: &Self) -> Agreement {
        let equal = |own: &[u32], others: &[u32]| {
            let equal = own.iter().zip(others).filter(|(own, other)| own == other).count();
            equal as f64 / own.len().max(1) as f64
        };
        let (mut apart, mut all) = (0.0, 0.0);
        for (own, other) in self.reading.scores.iter().zip(&with.reading.scores) {
            apart += f64::from(own - other).powi(2);
            all += f64::from(*other).powi(2);
        }
        Agreement {
            chosen: equal(&self.chosen, &with.chosen),
            read: equal(&self.reading.choices, &with.reading.choices),
            scores: if all > 0.0 { (apart / all).sqrt() } else { 0.0 },
        }
    }
}

/// What a rank needs others for.
trait Peers {
    fn sum(&mut self, part: Vec<f32>) -> anyhow::Result<Vec<f32>>;

    fn tell(&mut self, numbers: Vec<u32>) -> anyhow::Result<Vec<u32>>;
}

/// There are none.
struct Alone;

impl Peers for Alone {
    fn sum(&mut self, part: Vec<f32>) -> anyhow::Result<Vec<f32>> {
        Ok(part)
    }

    fn tell(&mut self, numbers: Vec<u32>) -> anyhow::Result<Vec<u32>> {
        Ok(numbers)
    }
}

/// Over a network; adds up what did not come.
struct Others<'e> {
    ends: &'e Ends,
    network: &'e Network,
    /// Bytes of the sum that a fixed budget is for.
    usual_bytes: usize,
    bytes: u64,
    lost_bytes: u64,
    late_bytes: u64,
    /// Contributions: all, and those that lacked.
    contributions: f64,
    missing: f64,
}

impl Peers for Others<'_> {
    fn sum(&mut self, part: Vec<f32>) -> anyhow::Result<Vec<f32>> {
        let Network { ranks, path, .. } = *self.network;
        let ms = |bytes| path.all_reduce_ms(ranks, bytes);
        let usual_ms = ms(self.usual_bytes);
        let times = if usual_ms > 0.0 { ms(4 * part.len()) / usual_ms } else { 1.0 };
        let received = self.ends.data.sum(part, times)?;
        let Received { bytes, lost_bytes, late_bytes, missing, .. } = received;
        self.bytes += bytes;
        self.lost_bytes += lost_bytes;
        self.late_bytes += late_bytes;
        let contributions = received.values.len() as f64;
        self.contributions += contributions;
        self.missing += contributions * missing;
        Ok(received.values)
    }

    fn tell(&mut self, numbers: Vec<u32>) -> anyhow::Result<Vec<u32>> {
        self.ends.exact.tell(&numbers)
    }
}

/// Texts: what is known of them and how they go on, both text by text.
struct Texts {
    known: Vec<u32>,
    rest: Vec<u32>,
}

impl Settings {
    fn all_texts(&self) -> Vec<Texts> {
        let Self { texts, prompt, more, warm_up, batches, readings, data_seed } = *self;
        let length = (prompt + more).max(1);
        let count = (warm_up + batches + readings) * texts * length;
        let all = Text::new(data_seed).characters(data_seed, Stream::Test, count);
        let batches = all.chunks(texts.max(1) * length);
        let of = |batch: &[u32], from: usize, to: usize| {
            batch.chunks(length).flat_map(|text| &text[from..to]).copied().collect()
        };
        batches
            .map(|batch| Texts { known: of(batch, 0, prompt), rest: of(batch, prompt, length) })
            .collect()
    }
}

/// Characters of a text, one after the other.
struct Batch {
    /// Milliseconds from the beginning to each.
    ms: Vec<f64>,
    chosen: Vec<u32>,
    scores: Vec<f32>,
    loss: f64,
}

fn batch(
    split: &Split,
    peers: &mut dyn Peers,
    texts: &Texts,
    settings: &Settings,
    is_read: bool,
) -> anyhow::Result<Batch> {
    let mut found = Batch { ms: Vec::new(), chosen: Vec::new(), scores: Vec::new(), loss: 0.0 };
    let begin = Instant::now();
    let mut next = peers.tell(texts.known.clone())?;
    let mut seen = split.begin(settings.texts);
    for step in 0..settings.more {
        let scores = split.see(&mut seen, &next, &mut |part| peers.sum(part))?;
        let chosen = scores.argmax(D::Minus1)?.to_vec1::<u32>()?;
        found.ms.push(begin.elapsed().as_secs_f64() * 1e3);
        found.chosen.extend_from_slice(&chosen);
        if is_read {
            next = texts.rest.iter().skip(step).step_by(settings.more).copied().collect();
            found.loss += loss(&scores, &next)?;
            found.scores.extend(scores.flatten_all()?.to_vec1::<f32>()?);
        } else if step + 1 < settings.more {
            next = peers.tell(chosen)?;
        }
    }
    Ok(found)
}

/// The sum of the losses of what was written.
fn loss(scores: &Tensor, written: &[u32]) -> anyhow::Result<f64> {
    let rows = scores.to_vec2::<f32>()?;
    let of_row = |(row, written): (&Vec<f32>, &u32)| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|score| f64::from(score - largest).exp()).sum();
        sum.ln() + f64::from(largest - row[*written as usize])
    };
    Ok(rows.iter().zip(written).map(of_row).sum())
}

fn decode(split: &Split, peers: &mut dyn Peers, settings: &Settings) -> anyhow::Result<Decoded> {
    let mut decoded = Decoded::default();
    let (mut seconds, mut characters, mut read) = (0.0, 0usize, 0usize);
    for (number, texts) in settings.all_texts().iter().enumerate() {
        let is_read = number >= settings.warm_up + settings.batches;
        let found = batch(split, peers, texts, settings, is_read)?;
        if is_read {
            decoded.reading.loss += found.loss;
            decoded.reading.choices.extend(found.chosen);
            decoded.reading.scores.extend(found.scores);
            read += texts.rest.len();
        } else if number >= settings.warm_up {
            decoded.first_ms.extend(found.ms.first());
            decoded.next_ms.extend(found.ms.windows(2).map(|ms| ms[1] - ms[0]));
            seconds += found.ms.last().copied().unwrap_or(0.0) / 1e3;
            characters += found.chosen.len();
            decoded.chosen.extend(found.chosen);
        }
    }
    decoded.per_s = if seconds > 0.0 { characters as f64 / seconds } else { 0.0 };
    decoded.reading.loss /= read.max(1) as f64;
    Ok(decoded)
}

/// Decodes by one process, without a network.
///
/// # Errors
/// When a tensor cannot be computed or the texts are longer than the model can see.
pub fn alone(weights: &Weights, settings: &Settings) -> anyhow::Result<Decoded> {
    let split = Split::new(weights.shape, &weights.parameters, (0, 1))?;
    decode(&split, &mut Alone, settings)
}

/// Decodes by the ranks of a network.
///
/// # Errors
/// When the model cannot be split, a tensor cannot be computed, or the network fails.
pub fn over(weights: &Weights, network: &Network, settings: &Settings) -> anyhow::Result<Decoded> {
    let found = on_all_ranks(network, |ends| {
        let part = (ends.rank(), ends.ranks());
        let split = Split::new(weights.shape, &weights.parameters, part)?;
        let mut others = Others {
            ends: &ends,
            network,
            usual_bytes: 4 * settings.texts * weights.shape.width,
            bytes: 0,
            lost_bytes: 0,
            late_bytes: 0,
            contributions: 0.0,
            missing: 0.0,
        };
        ends.exact.barrier()?;
        let decoded = decode(&split, &mut others, settings)?;
        ends.exact.barrier()?;
        let share = |bytes: u64| bytes as f64 / others.bytes.max(1) as f64;
        let lost = (share(others.lost_bytes), share(others.late_bytes));
        Ok((decoded, lost, others.missing / others.contributions.max(1.0)))
    })?;
    let ranks = found.len().max(1) as f64;
    let (mut lost, mut late, mut missing) = (0.0, 0.0, 0.0);
    for (_, (lost_here, late_here), missing_here) in &found {
        lost += lost_here / ranks;
        late += late_here / ranks;
        missing += missing_here / ranks;
    }
    let first = found.into_iter().next().map(|(decoded, ..)| decoded).unwrap_or_default();
    Ok(Decoded { lost, late, missing, ..first })
}
