//! Which algorithm: by size, round trip, rate and loss, from the completion-time model.
//!
//! An algorithm's time is the sum of its phases; a phase takes as long as the message of what the busiest rank
//! receives in it, until it is there (selective repeat, [`lacuna_model::SelectiveRepeat`], less the way of
//! the last acknowledgement), and something for each message that is posted. In a ring, and in the
//! ring between sites, a rank passes a chunk on
//! while the next ones come, so a phase takes the time of its bytes or the way of a chunk, whichever is longer,
//! and what a loss costs. A phase whose messages all stay within sites takes the near path. Where the model
//! cannot tell two apart, the one is taken that sends to fewer peers.
//!
//! The model knows of one link per rank. Where each pair of ranks has a path of its own rate, as between
//! sites in a ring, name [`Algorithm::Ring`].

use crate::schedule::{Action, Algorithm, Collective, Request, ScheduleError, Table, plan};
use lacuna_model::{
    Completion, Framing, ModelError, Path, RepairTiming, SelectiveRepeat, Transfer,
};

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
    let mut is_far = vec![surroundings.near.is_none(); first.phases.len()];
    // Other ranks matter only for which paths are used; operations of this rank alone say it of its own.
    let others = match (&surroundings.near, collective) {
        (Some(_), Collective::AllToAll { .. } | Collective::Exchange { .. }) | (None, _) => 1,
        (Some(_), _) => ranks,
    };
    for rank in 0..others {
        let other = if rank == 0 { first.clone() } else { table(rank)? };
        let mut counts = vec![0usize; sends.len()];
        for entry in &other.entries {
            if let Action::Send { peer, .. } = entry.action {
                counts[entry.phase] += 1;
                if let Some((_, sites)) = &surroundings.near {
                    is_far[entry.phase] |= sites.get(rank) != sites.get(peer);
                }
            }
        }
        sends.iter_mut().zip(counts).for_each(|(most, count)| *most = count.max(*most));
    }
    let mut sum_s = 0.0;
    // What follows the last phase of a ring: the way of its last bytes.
    let mut last_s = 0.0;
    for ((weight, sends), is_far) in first.phases.iter().zip(sends).zip(is_far) {
        if *weight == 0 {
            continue;
        }
        let path = match &surroundings.near {
            Some((near, _)) if !is_far => near,
            _ => &surroundings.path,
        };
        let bytes = weight.saturating_mul(element_bytes as u64);
        let transfer = Transfer::new(path, &surroundings.framing, bytes)?;
        let message = SelectiveRepeat::new(&transfer, RepairTiming::TIMEOUT)?;
        let arrives_s = message.mean_s() - path.rtt_s / 2.0;
        let way_s = path.rtt_s / 2.0 + transfer.chunk_s();
        let wire_s = transfer.injection_s();
        let is_ring = matches!(algorithm, Algorithm::Ring | Algorithm::Hierarchical { .. });
        let phase_s = if is_ring {
            let repair_s = (arrives_s - path.rtt_s / 2.0 - wire_s).max(0.0);
            last_s = if wire_s > way_s { path.rtt_s / 2.0 } else { wire_s - transfer.chunk_s() };
            wire_s.max(way_s) + repair_s
        } else {
            arrives_s
        };
        sum_s += phase_s + sends as f64 * surroundings.message_s;
    }
    Ok(sum_s + last_s)
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
