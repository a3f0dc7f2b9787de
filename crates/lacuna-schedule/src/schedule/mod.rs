//! Schedules: which rank sends what to whom, as tables.
//!
//! | algorithm | | steps of `n` ranks | bytes that a rank sends, of `b` |
//! |---|---|---|---|
//! | [`Algorithm::Ring`] | reduce-scatter, all-gather, all-reduce; as a chain: broadcast | `n - 1`, all-reduce twice that | `b (n - 1) / n`, all-reduce twice that |
//! | [`Algorithm::Cube`] | reduce-scatter, all-gather, all-reduce along dimensions of a radix | `log_r n` | the same |
//! | [`Algorithm::Transpose`] | the same in one dimension | 1 | the same |
//! | [`Algorithm::Halving`] | all-reduce, any number of ranks | `2 log2 n` | as a ring, for powers of two |
//! | [`Algorithm::Doubling`] | all-reduce, all-gather, barrier, any number of ranks | `log2 n` | all-reduce `b log2 n` |
//! | [`Algorithm::Tree`] | broadcast, reduce | `log2 n` | `b` to each child |
//! | [`Algorithm::Hierarchical`] | all-reduce within sites, then between them | | over long paths as a ring of sites |
//! | [`Algorithm::Direct`] | gather, scatter, all-to-all, send and receive | 1 | |
//!
//! Each algorithm reduces an element in one order, and on one rank before the result is passed on (or on
//! several in the same order), so every rank gets the same bytes, in every run.
//!
//! [`Table`] says what a table means, [`plan`] makes one; [`mod@crate::choose`] says which algorithm to take.

#[cfg(test)]
pub(crate) mod check;
mod cube;
mod direct;
mod doubling;
mod hierarchy;
mod ring;
mod table;
#[cfg(test)]
mod tests;
mod tree;

use ring::Members;
use std::fmt;
pub use table::{Action, Entry, Part, Space, Table, Whose};
use table::{Builder, longest, offsets, shares};

/// What is computed. Counts are elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collective {
    /// Everybody gets the reduction of all inputs.
    AllReduce {
        /// Of each input, and of each output.
        count: usize,
    },
    /// Each gets its part of the reduction of all inputs.
    ReduceScatter {
        /// Of each rank's part; an input has all of them.
        counts: Vec<usize>,
    },
    /// Everybody gets all inputs, in order.
    AllGather {
        /// Of each rank's input.
        counts: Vec<usize>,
    },
    /// Everybody gets the root's input.
    Broadcast {
        /// Whose.
        root: usize,
        /// Of the input.
        count: usize,
    },
    /// The root gets the reduction of all inputs.
    Reduce {
        /// Who.
        root: usize,
        /// Of each input.
        count: usize,
    },
    /// The root gets all inputs, in order.
    Gather {
        /// Who.
        root: usize,
        /// Of each rank's input.
        counts: Vec<usize>,
    },
    /// Each gets its part of the root's input.
    Scatter {
        /// Who.
        root: usize,
        /// Of each rank's part.
        counts: Vec<usize>,
    },
    /// Each gets a part of everybody's input.
    AllToAll {
        /// What this rank sends to each.
        sent: Vec<usize>,
        /// What this rank receives from each.
        received: Vec<usize>,
    },
    /// Nobody goes on before everybody has come.
    Barrier,
    /// The input goes to one rank, the output comes from one.
    Exchange {
        /// To whom, and how many.
        to: Option<(usize, usize)>,
        /// From whom, and how many.
        from: Option<(usize, usize)>,
    },
}

impl Collective {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AllReduce { .. } => "all-reduce",
            Self::ReduceScatter { .. } => "reduce-scatter",
            Self::AllGather { .. } => "all-gather",
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::AllToAll { .. } => "all-to-all",
            Self::Barrier => "barrier",
            Self::Exchange { .. } => "exchange",
        }
    }

    /// Whether elements are reduced.
    #[must_use]
    pub const fn reduces(&self) -> bool {
        matches!(self, Self::AllReduce { .. } | Self::ReduceScatter { .. } | Self::Reduce { .. })
    }

    fn counts(&self) -> Option<&[usize]> {
        match self {
            Self::ReduceScatter { counts }
            | Self::AllGather { counts }
            | Self::Gather { counts, .. }
            | Self::Scatter { counts, .. } => Some(counts),
            _ => None,
        }
    }

    fn root(&self) -> Option<usize> {
        match self {
            Self::Broadcast { root, .. }
            | Self::Reduce { root, .. }
            | Self::Gather { root, .. }
            | Self::Scatter { root, .. } => Some(*root),
            _ => None,
        }
    }
}

/// How it is computed; see the module's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Algorithm {
    /// From each to the next.
    Ring,
    /// Along dimensions of this radix; what the number of ranks has left over is one more dimension.
    Cube {
        /// 2 or more.
        radix: usize,
    },
    /// From each to each, in one dimension.
    Transpose,
    /// Recursive halving, then doubling.
    Halving,
    /// Recursive doubling.
    Doubling,
    /// A binomial tree.
    Tree,
    /// Within sites, between them, within sites.
    Hierarchical {
        /// The site of each rank; sites are numbered from 0 without gaps.
        sites: Vec<usize>,
    },
    /// From whom it is to whom it goes.
    Direct,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring => f.write_str("ring"),
            Self::Cube { radix } => write!(f, "cube:{radix}"),
            Self::Transpose => f.write_str("transpose"),
            Self::Halving => f.write_str("halving"),
            Self::Doubling => f.write_str("doubling"),
            Self::Tree => f.write_str("tree"),
            Self::Hierarchical { .. } => f.write_str("hierarchical"),
            Self::Direct => f.write_str("direct"),
        }
    }
}

/// Why there is no such schedule: the caller's fault. Retrying does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The rank is none of the group's.
    #[error("rank {rank} of {ranks} ranks")]
    Rank {
        /// The rank.
        rank: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// The root, or the peer, is none of the group's.
    #[error("rank {peer} is root or peer of {ranks} ranks, for rank {rank}")]
    Peer {
        /// The root or peer.
        peer: usize,
        /// For whom.
        rank: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// There is not a count for each rank.
    #[error("{counts} counts for {ranks} ranks")]
    Counts {
        /// The counts.
        counts: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// The counts exceed the address space.
    #[error("the counts add up to more than {} elements", usize::MAX)]
    TooMany,
    /// A part for this rank is not as long for its sender as for its receiver.
    #[error("rank {rank} sends itself {sent} elements and receives {received}")]
    Own {
        /// The rank.
        rank: usize,
        /// What it sends.
        sent: usize,
        /// What it receives.
        received: usize,
    },
    /// The sites are not one per rank, numbered from 0 without gaps.
    #[error("{sites} sites for {ranks} ranks, which must be numbered from 0 without gaps")]
    Sites {
        /// Entries in the list.
        sites: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// The algorithm has no schedule for it.
    #[error("{collective} by {algorithm}: there is no such schedule")]
    Unsupported {
        /// What.
        collective: &'static str,
        /// How.
        algorithm: String,
    },
    /// It cannot be done in place.
    #[error("{collective} in place: contributions would be overwritten before they are sent")]
    InPlace {
        /// What.
        collective: &'static str,
    },
}

/// A table to be made.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What is computed.
    pub collective: &'a Collective,
    /// How.
    pub algorithm: &'a Algorithm,
    /// For which rank.
    pub rank: usize,
    /// Of how many.
    pub ranks: usize,
    /// Whether what is reduced is divided by the number of contributions.
    pub is_average: bool,
    /// Whether input and output are the same memory: the rank's own part of the larger one is the other.
    pub is_in_place: bool,
}

/// Makes the table of a rank.
///
/// # Errors
/// [`ScheduleError`], for a request that makes no sense or that no schedule is known for.
pub fn plan(request: &Request<'_>) -> Result<Table, ScheduleError> {
    check_request(request)?;
    let mut table = build(request)?;
    if table.phases.is_empty() {
        // A rank alone.
        table.phases.push(0);
    }
    debug_assert_eq!(table.fault(), None);
    if request.is_in_place { placed(request, &table) } else { Ok(table) }
}

fn check_request(request: &Request<'_>) -> Result<(), ScheduleError> {
    let Request { collective, rank, ranks, .. } = *request;
    if rank >= ranks {
        return Err(ScheduleError::Rank { rank, ranks });
    }
    let peer = |peer: usize| if peer < ranks { Ok(()) } else { Err(peer) };
    let all_known = match collective {
        Collective::Exchange { to, from } => {
            let other = |peer: usize| if peer < ranks && peer != rank { Ok(()) } else { Err(peer) };
            to.map_or(Ok(()), |to| other(to.0)).and(from.map_or(Ok(()), |from| other(from.0)))
        }
        _ => collective.root().map_or(Ok(()), peer),
    };
    all_known.map_err(|peer| ScheduleError::Peer { peer, rank, ranks })?;
    let listed = match collective {
        Collective::AllToAll { sent, received } => {
            if sent.len() == ranks && received.len() == ranks && sent[rank] != received[rank] {
                let (sent, received) = (sent[rank], received[rank]);
                return Err(ScheduleError::Own { rank, sent, received });
            }
            vec![&sent[..], &received[..]]
        }
        _ => collective.counts().into_iter().collect(),
    };
    for counts in listed {
        if counts.len() != ranks {
            return Err(ScheduleError::Counts { counts: counts.len(), ranks });
        }
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        sum.ok_or(ScheduleError::TooMany)?;
    }
    if let Algorithm::Hierarchical { sites } = request.algorithm {
        let largest = sites.iter().max().copied().unwrap_or(0);
        let has_gap = (0..=largest.min(ranks)).any(|site| !sites.contains(&site));
        if sites.len() != ranks || has_gap {
            return Err(ScheduleError::Sites { sites: sites.len(), ranks });
        }
    }
    Ok(())
}

fn build(request: &Request<'_>) -> Result<Table, ScheduleError> {
    let Request { collective, algorithm, rank, ranks, is_average, .. } = *request;
    // One contribution is its average.
    let is_average = is_average && ranks > 1;
    let all: Vec<usize> = (0..ranks).collect();
    let members = Members { ranks: &all, me: rank };
    let unsupported = || ScheduleError::Unsupported {
        collective: collective.name(),
        algorithm: algorithm.to_string(),
    };
    let radices = match algorithm {
        Algorithm::Cube { radix } if *radix >= 2 => cube::radices(ranks, *radix),
        Algorithm::Transpose => vec![ranks],
        _ => Vec::new(),
    };
    match collective {
        Collective::AllReduce { count } => {
            let count = *count;
            let mut builder = Builder::new(rank, ranks, count, count);
            builder.expect(0..count, Whose::All);
            let offsets = shares(count, ranks);
            match algorithm {
                _ if ranks == 1 => {
                    builder.copy(Part::input(0..count), Part::output(0..count));
                }
                Algorithm::Ring => ring::all_reduce(
                    &mut builder,
                    members,
                    &offsets,
                    &Part::input,
                    &Part::output,
                    is_average,
                ),
                Algorithm::Cube { radix: 2.. } | Algorithm::Transpose => {
                    cube_all_reduce(&mut builder, members, &radices, &offsets, is_average);
                }
                Algorithm::Halving => {
                    doubling::halving_all_reduce(&mut builder, members, count, is_average);
                }
                Algorithm::Doubling => {
                    doubling::all_reduce(&mut builder, members, count, is_average);
                }
                Algorithm::Hierarchical { sites } => {
                    hierarchy::all_reduce(&mut builder, members, sites, count, is_average);
                }
                _ => return Err(unsupported()),
            }
            Ok(builder.table)
        }
        Collective::ReduceScatter { counts } => {
            let offsets = offsets(counts);
            let mut builder = Builder::new(rank, ranks, offsets[ranks], counts[rank]);
            builder.expect(0..counts[rank], Whose::All);
            let result = Part::output(0..counts[rank]);
            match algorithm {
                _ if ranks == 1 => builder.copy(Part::input(0..counts[0]), result),
                Algorithm::Ring => scatter_ring(&mut builder, members, &offsets),
                Algorithm::Cube { radix: 2.. } | Algorithm::Transpose => {
                    if radices.len() > 1 {
                        builder.scratch(offsets[ranks]);
                    }
                    let result = |_| result;
                    cube::reduce_scatter(
                        &mut builder,
                        members,
                        &radices,
                        &offsets,
                        &Part::input,
                        &Part::scratch,
                        &result,
                    );
                }
                _ => return Err(unsupported()),
            }
            if is_average {
                builder.divide(result);
            }
            Ok(builder.table)
        }
        Collective::AllGather { counts } => {
            let offsets = offsets(counts);
            let mut builder = Builder::new(rank, ranks, counts[rank], offsets[ranks]);
            expect_each(&mut builder, &offsets);
            let own = Part::input(0..counts[rank]);
            let part = |i: usize| Part::output(offsets[i]..offsets[i + 1]);
            builder.copy(own, part(rank));
            match algorithm {
                Algorithm::Ring => {
                    ring::all_gather(&mut builder, members, longest(&offsets), own, &part);
                }
                Algorithm::Cube { radix: 2.. } | Algorithm::Transpose => {
                    cube::all_gather(&mut builder, members, &radices, &offsets, own, &Part::output);
                }
                Algorithm::Doubling => doubling::all_gather(&mut builder, members, &offsets),
                _ => return Err(unsupported()),
            }
            Ok(builder.table)
        }
        Collective::Broadcast { root, count } => {
            let input = if rank == *root { *count } else { 0 };
            let mut builder = Builder::new(rank, ranks, input, *count);
            builder.expect(0..*count, Whose::Rank(*root));
            if rank == *root {
                builder.copy(Part::input(0..*count), Part::output(0..*count));
            }
            match algorithm {
                Algorithm::Ring => ring::broadcast(&mut builder, members, *root, *count),
                Algorithm::Tree => tree::broadcast(&mut builder, members, *root, *count),
                _ => return Err(unsupported()),
            }
            Ok(builder.table)
        }
        Collective::Reduce { root, count } => {
            let output = if rank == *root { *count } else { 0 };
            let mut builder = Builder::new(rank, ranks, *count, output);
            builder.expect(0..output, Whose::All);
            match algorithm {
                _ if ranks == 1 => builder.copy(Part::input(0..*count), Part::output(0..*count)),
                Algorithm::Tree => tree::reduce(&mut builder, members, *root, *count),
                _ => return Err(unsupported()),
            }
            if is_average {
                builder.divide(Part::output(0..output));
            }
            Ok(builder.table)
        }
        Collective::Gather { root, counts } => {
            let offsets = offsets(counts);
            let output = if rank == *root { offsets[ranks] } else { 0 };
            let mut builder = Builder::new(rank, ranks, counts[rank], output);
            if rank == *root {
                expect_each(&mut builder, &offsets);
            }
            match algorithm {
                Algorithm::Direct => direct::gather(&mut builder, members, *root, &offsets),
                _ => return Err(unsupported()),
            }
            Ok(builder.table)
        }
        Collective::Scatter { root, counts } => {
            let offsets = offsets(counts);
            let input = if rank == *root { offsets[ranks] } else { 0 };
            let mut builder = Builder::new(rank, ranks, input, counts[rank]);
            builder.expect(0..counts[rank], Whose::Rank(*root));
            match algorithm {
                Algorithm::Direct => direct::scatter(&mut builder, members, *root, &offsets),
                _ => return Err(unsupported()),
            }
            Ok(builder.table)
        }
        Collective::AllToAll { sent, received } => {
            let (sent, received) = (offsets(sent), offsets(received));
            let mut builder = Builder::new(rank, ranks, sent[ranks], received[ranks]);
            expect_each(&mut builder, &received);
            match algorithm {
                Algorithm::Direct => direct::all_to_all(&mut builder, members, &sent, &received),
                _ => return Err(unsupported()),
            }
            Ok(builder.table)
        }
        Collective::Barrier => {
            let mut builder = Builder::new(rank, ranks, 0, 0);
            match algorithm {
                Algorithm::Doubling => doubling::barrier(&mut builder, members),
                _ => return Err(unsupported()),
            }
            Ok(builder.table)
        }
        Collective::Exchange { to, from } => {
            let counts = [to, from].map(|peer| peer.map_or(0, |(_, count)| count));
            let mut builder = Builder::new(rank, ranks, counts[0], counts[1]);
            if let Some((peer, count)) = from {
                builder.expect(0..*count, Whose::Rank(*peer));
            }
            match algorithm {
                Algorithm::Direct => direct::exchange(&mut builder, *to, *from),
                _ => return Err(unsupported()),
            }
            Ok(builder.table)
        }
    }
}

fn expect_each(builder: &mut Builder, offsets: &[usize]) {
    for (rank, pair) in offsets.windows(2).enumerate() {
        builder.expect(pair[0]..pair[1], Whose::Rank(rank));
    }
}

fn cube_all_reduce(
    builder: &mut Builder,
    members: Members<'_>,
    radices: &[usize],
    offsets: &[usize],
    is_average: bool,
) {
    let (own, sum) = (&Part::input, &Part::output);
    cube::reduce_scatter(builder, members, radices, offsets, own, sum, sum);
    let mine = Part::output(offsets[members.me]..offsets[members.me + 1]);
    if is_average {
        builder.divide(mine);
    }
    cube::all_gather(builder, members, radices, offsets, mine, sum);
}

/// Sums on their way are in two scratch parts in turn.
fn scatter_ring(builder: &mut Builder, members: Members<'_>, offsets: &[usize]) {
    let longest = longest(offsets);
    let steps = members.count() - 1;
    builder.scratch(2 * longest);
    let own = |i: usize| Part::input(offsets[i]..offsets[i + 1]);
    let to = |step: usize, i: usize| {
        let len = offsets[i + 1] - offsets[i];
        let start = step % 2 * longest;
        if step + 1 == steps { Part::output(0..len) } else { Part::scratch(start..start + len) }
    };
    ring::reduce_scatter(builder, members, longest, &own, &to);
}

/// The same table with one memory for input and output.
fn placed(request: &Request<'_>, table: &Table) -> Result<Table, ScheduleError> {
    let rank = request.rank;
    let own = |counts: &[usize]| offsets(counts)[rank];
    let (input_at, output_at) = match request.collective {
        Collective::AllReduce { .. }
        | Collective::Broadcast { .. }
        | Collective::Reduce { .. }
        | Collective::Barrier => (0, 0),
        Collective::AllGather { counts } => (own(counts), 0),
        Collective::Gather { root, counts } if *root == rank => (own(counts), 0),
        Collective::ReduceScatter { counts } => (0, own(counts)),
        Collective::Scatter { root, counts } if *root == rank => (0, own(counts)),
        Collective::Gather { .. } | Collective::Scatter { .. } => (0, 0),
        Collective::AllToAll { .. } | Collective::Exchange { .. } => {
            return Err(ScheduleError::InPlace { collective: request.collective.name() });
        }
    };
    Ok(table.in_place(input_at, output_at))
}
