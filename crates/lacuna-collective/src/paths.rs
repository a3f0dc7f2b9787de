//! What the paths between ranks are like, and which schedule suits an operation on them.
//!
//! Each rank knows the round trips to the others since it connected. When a group forms, all ranks gather the rows of that
//! table, so all know the same and choose the same schedule, without a word for each operation. Ranks that are near each
//! other are a site; between sites the longest round trip counts. A rate is known if it was given or remembered.
//!
//! Where all are near, sizes alone decide: there a phase costs a message, not a round trip, and the model of times
//! (`lacuna_schedule::choose`) knows little of messages.

use lacuna_model::{Framing, Loss, Path, RepairTiming};
use lacuna_schedule::choose::{Surroundings, choose};
use lacuna_schedule::schedule::{Algorithm, Collective};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Below so many bytes latency counts, not the rate.
const SMALL_BYTES: usize = 64 << 10;
/// A round trip from which on a rank is far: longer than those within a site or a data centre. A judgement.
pub(crate) const FAR_US: u64 = 1_000;
/// Rate of a path of which none is known: a usual one between sites. The round trips decide more.
const RATE_BITS_PER_S: u64 = 1_000_000_000;
/// What a path loses that nobody has measured.
const LOSS: f64 = 1e-4;
/// Of a packet, and its headers.
const PACKET_BYTES: u64 = 1400;
const OVERHEAD_BYTES: u64 = 62;
/// What a message costs beside its bytes, about.
const MESSAGE_S: f64 = 50e-6;
/// Choices that are kept. An application has few sizes.
const KEPT_MAX: usize = 1024;

/// What an operation is for the choice: its name, all its elements, and the bytes of one.
type Kind = (&'static str, usize, usize);

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// `None`: all ranks are near.
    surroundings: Option<Surroundings>,
    chosen: Mutex<HashMap<Kind, Algorithm>>,
}

impl Paths {
    /// By what every rank knows: for each its round trips in microseconds by rank, and behind them its least rate in bit/s
    /// (0: unknown).
    pub(crate) fn new(rows: &[Vec<u64>], chunk_bytes: usize) -> Self {
        let ranks = rows.len();
        // A path is as short as the shorter of two measurements.
        let rtt_us = |a: usize, b: usize| match (rows[a][b], rows[b][a]) {
            (0, known) | (known, 0) => known,
            (one, other) => one.min(other),
        };
        let pairs = || (0..ranks).flat_map(|a| (0..a).map(move |b| (a, b)));
        let farthest_us = pairs().map(|(a, b)| rtt_us(a, b)).max().unwrap_or(0);
        if farthest_us < FAR_US {
            return Self::default();
        }
        let rate = rows.iter().filter_map(|row| row.last()).copied().filter(|rate| *rate > 0).min();
        let path = |rtt_us: u64| Path {
            rate_bits_per_s: rate.unwrap_or(RATE_BITS_PER_S) as f64,
            rtt_s: rtt_us as f64 / 1e6,
            loss: Loss::PerPacket(LOSS),
        };
        let sites = sites(ranks, |a, b| rtt_us(a, b) < FAR_US);
        let inside = pairs().filter(|(a, b)| sites[*a] == sites[*b]);
        let near = inside.map(|(a, b)| rtt_us(a, b).max(1)).max();
        let framing = Framing {
            chunk_bytes: chunk_bytes as u64,
            packet_bytes: PACKET_BYTES,
            overhead_bytes: OVERHEAD_BYTES,
        };
        let surroundings = Surroundings {
            path: path(farthest_us),
            near: near.map(|near_us| (path(near_us), sites)),
            framing,
            message_s: MESSAGE_S,
            repair: RepairTiming::NACK,
        };
        Self { surroundings: Some(surroundings), chosen: Mutex::default() }
    }

    /// The schedule for an operation of so many elements of `element_bytes`.
    pub(crate) fn choose(
        &self,
        collective: &Collective,
        ranks: usize,
        (elements, element_bytes): (usize, usize),
        bytes: usize,
    ) -> Algorithm {
        let usual = || usual(collective, bytes, ranks);
        let Some(surroundings) = &self.surroundings else { return usual() };
        let kind = (collective.name(), elements, element_bytes);
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(algorithm) = chosen.get(&kind) {
            return algorithm.clone();
        }
        let choice = choose(collective, ranks, element_bytes, surroundings);
        let algorithm = choice.map_or_else(|_| usual(), |choice| choice.algorithm);
        if chosen.len() < KEPT_MAX {
            chosen.insert(kind, algorithm.clone());
        }
        algorithm
    }
}

/// The site of each rank: ranks are of one if they are near, or near to the same.
fn sites(ranks: usize, is_near: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut sites: Vec<usize> = (0..ranks).collect();
    for a in 0..ranks {
        for b in 0..a {
            if is_near(a, b) && sites[a] != sites[b] {
                let (kept, gone) = (sites[a].min(sites[b]), sites[a].max(sites[b]));
                sites.iter_mut().filter(|site| **site == gone).for_each(|site| *site = kept);
            }
        }
    }
    // Numbered without gaps, in the order of their first ranks.
    let mut numbers: Vec<usize> = sites.clone();
    numbers.sort_unstable();
    numbers.dedup();
    sites.iter().map(|site| numbers.partition_point(|number| number < site)).collect()
}

/// The schedule that is usual for an operation between ranks that are near.
fn usual(collective: &Collective, bytes: usize, ranks: usize) -> Algorithm {
    let is_small = bytes <= SMALL_BYTES;
    match collective {
        Collective::AllReduce { .. } if is_small || ranks == 2 && bytes < 4 * SMALL_BYTES => {
            Algorithm::Doubling
        }
        Collective::AllReduce { .. }
        | Collective::ReduceScatter { .. }
        | Collective::AllGather { .. } => Algorithm::Ring,
        Collective::Broadcast { .. } if !is_small => Algorithm::Ring,
        Collective::Broadcast { .. } | Collective::Reduce { .. } => Algorithm::Tree,
        Collective::Barrier => Algorithm::Doubling,
        Collective::Gather { .. }
        | Collective::Scatter { .. }
        | Collective::AllToAll { .. }
        | Collective::Exchange { .. } => Algorithm::Direct,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For 1 MiB.
    fn chosen(rtt_us: impl Fn(usize, usize) -> u64, ranks: usize) -> Algorithm {
        chosen_for(1 << 18, rtt_us, ranks)
    }

    fn chosen_for(count: usize, rtt_us: impl Fn(usize, usize) -> u64, ranks: usize) -> Algorithm {
        let row = |a: usize| (0..ranks).map(|b| rtt_us(a, b)).chain([0]).collect();
        let rows: Vec<Vec<u64>> = (0..ranks).map(row).collect();
        Paths::new(&rows, 64 << 10).choose(
            &Collective::AllReduce { count },
            ranks,
            (count, 4),
            4 * count,
        )
    }

    #[test]
    fn ranks_that_are_near_choose_by_size() {
        assert_eq!(chosen(|_, _| 80, 4), Algorithm::Ring);
    }

    #[test]
    fn ranks_that_are_far_go_few_ways_one_after_the_other() {
        assert_eq!(chosen(|_, _| 25_000, 4), Algorithm::Transpose);
    }

    #[test]
    fn ranks_of_two_sites_cross_the_long_path_seldom() {
        let rtt_us = |a: usize, b: usize| if a % 2 == b % 2 { 100 } else { 40_000 };
        let hierarchical = Algorithm::Hierarchical { sites: vec![0, 1, 0, 1, 0, 1, 0, 1] };
        assert_eq!(chosen_for(1 << 24, rtt_us, 8), hierarchical);
    }

    #[test]
    fn every_rank_chooses_the_same_though_each_has_measured_for_itself() {
        let rtt_us = |a: usize, b: usize| 900 + 70 * (3 * a + b) as u64;
        let (one, other) = (chosen(rtt_us, 3), chosen(|a, b| rtt_us(b, a), 3));
        assert_eq!(one, other);
    }

    #[test]
    fn a_rank_that_is_near_to_one_of_a_site_belongs_to_it() {
        let is_near = |a: usize, b: usize| matches!((a, b), (3, 1) | (4, 3) | (2, 0));
        assert_eq!(sites(5, is_near), [0, 1, 0, 1, 1]);
    }
}
