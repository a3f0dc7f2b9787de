//! A ring all-reduce in bounded mode, packet by packet, without a network.
//!
//! The ring of `lacuna-schedule`: the vector is cut into a part per rank. Each part goes once around to be
//! summed and ends at the rank of its number, which divides; then it goes around once more. A packet that is
//! lost on a hop of the first round takes the contributions of all ranks before that hop with it; one that is
//! lost in the second round leaves zeros on all ranks behind that hop. Each link has its own seeded loss
//! process, which sees the packets in the order in which they are sent, so losses in bursts hit neighbours.
//!
//! Invariants: the sum is taken in the ring's order, so without loss every rank has the same bits; an element
//! always has the contribution of the rank at which its part ends.

use super::{Exchange, Missing, check};
use lacuna_link::{Loss, LossProcess, Prng};
use std::ops::Range;

/// Elements of a packet: 1,400 bytes of f32.
pub const PACKET_ELEMENTS: usize = 350;

/// What a sum that lacks contributions is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Divisor {
    /// The ranks that contributed.
    Contributors,
    /// All ranks: what is missing counts as zero.
    Ranks,
}

/// The exchange.
#[derive(Debug)]
pub struct Lossy {
    divisor: Divisor,
    /// One per link, from a rank to the next.
    links: Vec<LossProcess>,
    /// Whether a packet was lost, by phase and packet.
    lost: Vec<bool>,
}

impl Lossy {
    /// For so many ranks, with losses by a seed.
    #[must_use]
    pub fn new(ranks: usize, loss: &Loss, divisor: Divisor, seed: u64) -> Self {
        // Streams apart from those of `random::Stream`.
        let stream = |link| Prng::new(seed, 1 << 32 | link as u64);
        let links = (0..ranks).map(|link| LossProcess::new(loss.clone(), stream(link)));
        Self { divisor, links: links.collect(), lost: Vec::new() }
    }

    /// Draws what is lost in `2 (ranks - 1)` phases; returns how many packets are.
    fn draw(&mut self, parts: &[Range<usize>], packets: usize, phases: usize) -> u64 {
        let ranks = self.links.len();
        self.lost.clear();
        self.lost.resize(packets * phases, false);
        let mut count = 0;
        for phase in 0..phases {
            for (rank, link) in self.links.iter_mut().enumerate() {
                // What a rank sends: first the part of the rank before it, in the end its own once more.
                let part = (rank + 2 * ranks - 1 - phase) % ranks;
                for packet in parts[part].clone() {
                    let is_lost = link.loses();
                    self.lost[phase * packets + packet] = is_lost;
                    count += u64::from(is_lost);
                }
            }
        }
        count
    }
}

impl Exchange for Lossy {
    fn average(
        &mut self,
        vectors: &[Vec<f32>],
        results: &mut [Vec<f32>],
    ) -> anyhow::Result<Missing> {
        let elements = check(vectors, results);
        let (ranks, packets) = (vectors.len(), elements.div_ceil(PACKET_ELEMENTS));
        assert_eq!(ranks, self.links.len(), "a link per rank");
        let start = |part: usize| part * packets / ranks;
        let parts: Vec<Range<usize>> =
            (0..ranks).map(|part| start(part)..start(part + 1)).collect();
        let is_own = results.len() == ranks && ranks > 1;
        // One result for all has come to all.
        let phases = if is_own { 2 * (ranks - 1) } else { ranks - 1 };
        let lost_packets = self.draw(&parts, packets, phases);
        let lost = |phase: usize, packet: usize| self.lost[phase * packets + packet];

        let (mut left_out, mut not_come) = (0, 0);
        for (part, range) in parts.into_iter().enumerate() {
            for packet in range {
                let end = elements.min((packet + 1) * PACKET_ELEMENTS);
                let at = packet * PACKET_ELEMENTS..end;
                // Contributions in the ring's order; those before the last loss are gone.
                let first = (0..ranks - 1).rev().find(|phase| lost(*phase, packet));
                let first = first.map_or(0, |phase| phase + 1);
                let rank_at = |place: usize| (part + 1 + place) % ranks;
                let owner = if is_own { part } else { 0 };
                let sum = &mut results[owner][at.clone()];
                sum.copy_from_slice(&vectors[rank_at(first)][at.clone()]);
                for place in first + 1..ranks {
                    let from = &vectors[rank_at(place)][at.clone()];
                    sum.iter_mut().zip(from).for_each(|(sum, value)| *sum += value);
                }
                let by = match self.divisor {
                    Divisor::Contributors => ranks - first,
                    Divisor::Ranks => ranks,
                };
                sum.iter_mut().for_each(|sum| *sum /= by as f32);
                left_out += first * at.len();
                if is_own {
                    not_come += pass_on(results, owner, &at, |hop| lost(ranks - 1 + hop, packet));
                }
            }
        }
        let of_all = |count: usize| count as f64 / (elements * ranks).max(1) as f64;
        Ok(Missing {
            packets: (packets * phases) as u64,
            lost_packets,
            contributions: of_all(left_out),
            results: of_all(not_come),
        })
    }
}

/// Passes a packet around from its owner. Returns the elements that did not come, over all ranks.
fn pass_on(
    results: &mut [Vec<f32>],
    owner: usize,
    at: &Range<usize>,
    lost: impl Fn(usize) -> bool,
) -> usize {
    let ranks = results.len();
    let mut not_come = 0;
    let mut has_come = true;
    for hop in 0..ranks - 1 {
        has_come &= !lost(hop);
        let to = (owner + 1 + hop) % ranks;
        if has_come {
            let [from, to] = results.get_disjoint_mut([owner, to]).expect("two ranks");
            to[at.clone()].copy_from_slice(&from[at.clone()]);
        } else {
            results[to][at.clone()].fill(0.0);
            not_come += at.len();
        }
    }
    not_come
}
