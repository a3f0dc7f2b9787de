//! Which algorithm: by size, round trip, rate and loss, from the completion-time model.
//!
//! An algorithm's time is the sum of its phases; a phase takes as long as the message of what the busiest rank
//! receives in it, until it is there (selective repeat, [`lacuna_model::SelectiveRepeat`], less the way of
//! the last acknowledgement), and something for each message that is posted. In a ring, and in the
//! ring between sites, a rank passes a chunk on
//! while the next ones come, so a phase takes the time of its bytes or the way of a chunk, whichever is longer;
//! over all phases, the longer one of the two sums. What losses cost there, the chunk that is late most tells
//! (`late.rs`). A phase whose messages all stay within
//! sites takes the near path; in a ring over several sites, what travels farthest crosses a long path in some of
//! its phases only. In a chain later hops take the way of a chunk. Where the model
//! cannot tell two apart, the one is taken that sends to fewer peers.
//!
//! With losses it is rough but for rings: a phase really waits for the slowest of its messages
//! (`lacuna reproduce optinic schedules` has both beside it).
//!
//! The model knows of one link per rank. Where each pair of ranks has a path of its own rate, as between
//! sites in a ring, name [`Algorithm::Ring`].

mod late;

use crate::schedule::{Action, Algorithm, Collective, Request, ScheduleError, Table, plan};
use lacuna_model::{
    Completion, Framing, Loss, ModelError, Path, RepairTiming, SelectiveRepeat, Transfer,
};
use late::Ring;

/// Times that differ by less are the same: the model is not better than that.
const TIE: f64 = 0.05;

/// What the group runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct Surroundings {
    /// Between ranks of different sites, or all, if there is one site.
    pub path: Path,
    /// Within a site, and the site of each rank, if there are several.
    pub near: Option<(Path, Vec<usize>)>,
    /// How messages are cut.
    pub framing: Framing,
    /// What a rank needs for each message beside its bytes.
    pub message_s: f64,
    /// When what is lost is sent again: with modes that see gaps, [`RepairTiming::NACK`].
    pub repair: RepairTiming,
}

/// The algorithm to take, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The one to take.
    pub algorithm: Algorithm,
    /// Its time.
    pub expected_s: f64,
    /// All that were compared with their times, the fastest first.
    pub compared: Vec<(Algorithm, f64)>,
}

impl Choice {
    /// The reason, in a sentence.
    #[must_use]
    pub fn reason(&self) -> String {
        let others = self.compared.iter().filter(|(algorithm, _)| *algorithm != self.algorithm);
        let others: Vec<String> =
            others.map(|(algorithm, time_s)| format!("{algorithm} {:.3}", time_s * 1e3)).collect();
        let chosen = format!("{}: {:.3} ms expected", self.algorithm, self.expected_s * 1e3);
        match others.is_empty() {
            true => format!("{chosen}, there is no other"),
            false => format!("{chosen}; {}", others.join(", ")),
        }
    }
}

/// Why nothing is chosen: the caller's fault.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChooseError {
    /// There is no such schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The path makes no sense.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Those that have schedules for it, those with fewer peers first.
fn candidates(collective: &Collective, surroundings: &Surroundings) -> Vec<Algorithm> {
    let (ring, transpose) = (Algorithm::Ring, Algorithm::Transpose);
    match collective {
        Collective::AllReduce { .. } => {
            let sites = surroundings.near.as_ref().map(|(_, sites)| sites.clone());
            let hierarchical = sites.map(|sites| Algorithm::Hierarchical { sites });
            let flat = [ring, Algorithm::Doubling, Algorithm::Halving, transpose];
            hierarchical.into_iter().chain(flat).collect()
        }
        Collective::ReduceScatter { .. } => vec![ring, Algorithm::Cube { radix: 2 }, transpose],
        Collective::AllGather { .. } => vec![ring, Algorithm::Doubling, transpose],
        Collective::Broadcast { .. } => vec![ring, Algorithm::Tree],
        Collective::Reduce { .. } => vec![Algorithm::Tree],
        Collective::Barrier => vec![Algorithm::Doubling],
        Collective::Gather { .. }
        | Collective::Scatter { .. }
        | Collective::AllToAll { .. }
        | Collective::Exchange { .. } => vec![Algorithm::Direct],
    }
}

/// Chooses for a group. All ranks have to ask the same; `collective` is that of rank 0.
///
/// # Errors
/// [`ChooseError`], for operations or paths that make no sense.
pub fn choose(
    collective: &Collective,
    ranks: usize,
    element_bytes: usize,
    surroundings: &Surroundings,
) -> Result<Choice, ChooseError> {
    let mut compared = Vec::new();
    for algorithm in candidates(collective, surroundings) {
        let time_s = time_s(collective, &algorithm, ranks, element_bytes, surroundings)?;
        compared.push((algorithm, time_s));
    }
    let least_s = compared.iter().map(|(_, time_s)| *time_s).fold(f64::INFINITY, f64::min);
    let is_near = |time_s: f64| time_s <= least_s * (1.0 + TIE);
    let chosen = compared.iter().find(|(_, time_s)| is_near(*time_s)).cloned();
    let (algorithm, expected_s) = chosen.expect("there is a candidate for every operation");
    compared.sort_by(|a, b| a.1.total_cmp(&b.1));
    Ok(Choice { algorithm, expected_s, compared })
}

/// The expected time of an algorithm.
///
/// # Errors
/// As [`choose`].
pub fn time_s(
    collective: &Collective,
    algorithm: &Algorithm,
    ranks: usize,
    element_bytes: usize,
    surroundings: &Surroundings,
) -> Result<f64, ChooseError> {
    let table = |rank| -> Result<Table, ScheduleError> {
        let (is_average, is_in_place) = (false, false);
        plan(&Request { collective, algorithm, rank, ranks, is_average, is_in_place })
    };
    let first = table(0)?;
    let mut sends = vec![0usize; first.phases.len()];
    // Of each rank, whether what it sends in a phase leaves its site.
    let mut leaves = vec![Vec::new(); first.phases.len()];
    let mut is_far = vec![surroundings.near.is_none(); first.phases.len()];
    // Other ranks matter only for which paths are used; operations of this rank alone say it of its own.
    let others = match (&surroundings.near, collective) {
        (Some(_), Collective::AllToAll { .. } | Collective::Exchange { .. }) | (None, _) => 1,
        (Some(_), _) => ranks,
    };
    for rank in 0..others {
        let other = if rank == 0 { first.clone() } else { table(rank)? };
        let mut counts = vec![0usize; sends.len()];
        leaves.iter_mut().for_each(|leaves| leaves.push(false));
        for entry in &other.entries {
            if let Action::Send { peer, .. } = entry.action {
                counts[entry.phase] += 1;
                if let Some((_, sites)) = &surroundings.near {
                    let is_leaving = sites.get(rank) != sites.get(peer);
                    leaves[entry.phase][rank] |= is_leaving;
                    is_far[entry.phase] |= is_leaving;
                }
            }
        }
        sends.iter_mut().zip(counts).for_each(|(most, count)| *most = count.max(*most));
    }
    let is_chain =
        matches!((collective, algorithm), (Collective::Broadcast { .. }, Algorithm::Ring));
    if surroundings.near.is_some() && *algorithm == Algorithm::Ring && !is_chain {
        // A part goes from rank to rank, so it meets the long paths one after the other: from where it begins,
        // the most of them.
        let far = |begin: usize| -> Vec<bool> {
            leaves.iter().enumerate().map(|(phase, of)| of[(begin + phase) % ranks]).collect()
        };
        let count = |far: &Vec<bool>| far.iter().filter(|is_far| **is_far).count();
        is_far = (0..ranks).map(far).max_by_key(count).unwrap_or(is_far);
    }
    let mut sum_s = 0.0;
    // Of a ring: all bytes, and all ways.
    let (mut wires_s, mut ways_s) = (0.0, 0.0);
    // What follows the last phase of a ring: the way of its last bytes.
    let mut last_s = 0.0;
    // Rings over near and over far links.
    let mut rings: [Option<Ring>; 2] = [None; 2];
    for (phase, (weight, sends)) in first.phases.iter().zip(sends).enumerate() {
        let is_far = is_far[phase];
        if *weight == 0 {
            continue;
        }
        let path = match &surroundings.near {
            Some((near, _)) if !is_far => near,
            _ => &surroundings.path,
        };
        let bytes = weight.saturating_mul(element_bytes as u64);
        let transfer = Transfer::new(path, &surroundings.framing, bytes)?;
        let message = SelectiveRepeat::new(&transfer, surroundings.repair)?;
        let arrives_s = message.mean_s() - path.rtt_s / 2.0;
        let way_s = path.rtt_s / 2.0 + transfer.chunk_s();
        let wire_s = transfer.injection_s();
        let repair_s = (arrives_s - path.rtt_s / 2.0 - wire_s).max(0.0);
        let passes_chunks = matches!(algorithm, Algorithm::Ring | Algorithm::Hierarchical { .. });
        if passes_chunks && !is_chain {
            let repair = surroundings.repair;
            let ring = ring(path, &transfer, repair, ranks);
            rings[usize::from(is_far)].get_or_insert(ring).hops += 1;
        }
        let phase_s = match algorithm {
            Algorithm::Ring if is_chain && phase > 0 => way_s + repair_s,
            Algorithm::Ring if !is_chain => {
                (wires_s, ways_s) = (wires_s + wire_s, ways_s + way_s);
                let longest_s = if is_far { path.rtt_s } else { surroundings.path.rtt_s } / 2.0;
                last_s = if wire_s > way_s { longest_s } else { wire_s - transfer.chunk_s() };
                0.0
            }
            Algorithm::Hierarchical { .. } => {
                last_s =
                    if wire_s > way_s { path.rtt_s / 2.0 } else { wire_s - transfer.chunk_s() };
                wire_s.max(way_s)
            }
            _ => arrives_s,
        };
        sum_s += phase_s + sends as f64 * surroundings.message_s;
    }
    let late_s: f64 = rings.iter().flatten().map(Ring::mean_s).sum();
    Ok(sum_s + f64::max(wires_s, ways_s) + last_s + late_s)
}

/// A ring without hops, over this path.
fn ring(path: &Path, transfer: &Transfer, repair: RepairTiming, ranks: usize) -> Ring {
    let loss = transfer.loss().probability();
    Ring {
        parts: ranks as u64,
        chunks: transfer.chunks(),
        hops: 0,
        chunk_s: transfer.chunk_s(),
        repair_s: repair.rto_rtts * path.rtt_s,
        loss,
        loss_again: match path.loss {
            // Of a chunk only the packets that were lost, mostly one.
            Loss::PerPacket(loss) => loss,
            _ => loss,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_model::Loss;

    fn path(rate_bits_per_s: f64, rtt_s: f64) -> Path {
        Path { rate_bits_per_s, rtt_s, loss: Loss::PerChunk(1e-5) }
    }

    fn surroundings(rtt_s: f64) -> Surroundings {
        Surroundings {
            path: path(1e9, rtt_s),
            near: None,
            framing: Framing { chunk_bytes: 16_384, packet_bytes: 1024, overhead_bytes: 70 },
            message_s: 10e-6,
            repair: RepairTiming::TIMEOUT,
        }
    }

    #[test]
    fn short_tensors_take_few_steps_and_long_ones_few_bytes() {
        let all_reduce = |count, rtt_s| {
            let collective = Collective::AllReduce { count };
            choose(&collective, 8, 4, &surroundings(rtt_s)).unwrap()
        };
        assert_ne!(all_reduce(256, 0.04).algorithm, Algorithm::Ring);
        assert_eq!(
            all_reduce(64 << 20, 20e-6).algorithm,
            Algorithm::Ring,
            "no round trips to spare"
        );
        let long = all_reduce(1 << 18, 0.04);
        assert_eq!(long.algorithm, Algorithm::Transpose, "{}", long.reason());
        assert!(long.reason().starts_with("transpose: ") && long.reason().contains("ring "));
        let of = |wanted: &Algorithm| {
            long.compared.iter().find(|(algorithm, _)| algorithm == wanted).unwrap().1
        };
        // Fourteen ways of half a round trip, against two and what is sent.
        assert!((0.28..0.30).contains(&of(&Algorithm::Ring)), "{}", long.reason());
        assert!(of(&Algorithm::Doubling) > 1.4 * of(&Algorithm::Transpose));
        // Of a long tensor the ring hides its ways behind what is sent.
        assert_eq!(all_reduce(16 << 20, 0.04).algorithm, Algorithm::Ring);
        let choice = choose(&Collective::Barrier, 8, 1, &surroundings(0.04)).unwrap();
        assert!(choice.reason().contains("no other"));
    }

    #[test]
    fn sites_are_used_where_their_paths_are_better() {
        let sites = vec![0, 0, 0, 0, 1, 1, 1, 1];
        let near = Some((path(10e9, 50e-6), sites.clone()));
        let surroundings = Surroundings { near, ..surroundings(0.03) };
        let choice =
            choose(&Collective::AllReduce { count: 1 << 22 }, 8, 4, &surroundings).unwrap();
        assert_eq!(choice.algorithm, Algorithm::Hierarchical { sites }, "{}", choice.reason());
    }

    #[test]
    fn a_ring_over_two_sites_crosses_the_long_path_in_some_of_its_phases_only() {
        let near = Some((path(1e9, 50e-6), vec![0, 0, 0, 0, 1, 1, 1, 1]));
        let sites = Surroundings { near, ..surroundings(0.02) };
        let time_s = |collective: &Collective| {
            time_s(collective, &Algorithm::Ring, 8, 4, &sites).expect("a ring")
        };
        // Of fourteen phases, a part is on the two long edges in four at most; in a chain, one of seven hops.
        let all_reduce_s = time_s(&Collective::AllReduce { count: 256 });
        assert!((0.040..0.042).contains(&all_reduce_s), "{all_reduce_s}");
        let chain_s = time_s(&Collective::Broadcast { root: 0, count: 256 });
        assert!((0.010..0.012).contains(&chain_s), "{chain_s}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let gather = Collective::AllGather { counts: vec![1; 2] };
        assert!(matches!(
            choose(&gather, 3, 4, &surroundings(0.01)),
            Err(ChooseError::Schedule(ScheduleError::Counts { counts: 2, ranks: 3 }))
        ));
        let nowhere = Surroundings { path: path(0.0, 0.01), ..surroundings(0.01) };
        let all_reduce = Collective::AllReduce { count: 9 };
        assert!(matches!(choose(&all_reduce, 3, 4, &nowhere), Err(ChooseError::Model(_))));
        // Nothing to do takes no time.
        let nothing = Collective::AllReduce { count: 0 };
        assert_eq!(choose(&nothing, 3, 4, &surroundings(0.01)).unwrap().expected_s, 0.0);
    }
}
