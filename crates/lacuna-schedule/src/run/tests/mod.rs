//! The runner in virtual time against the tables' meaning: what a network does to packets, and what is in
//! flight at once, must not show in a result.

mod bounded;
mod complete;

use super::*;
use crate::element::{Element, Op};
use crate::reduce::{encode, reduce_into};
use crate::schedule::check::{Symbol, interpret_lossy};
use crate::schedule::{Algorithm, Collective, Request, Table, plan};
use crate::simulated::{Config, Fate, Group, Judge, Network};
use lacuna_link::SplitMix64;
use lacuna_path::ranges::Ranges;

/// Of one operation: each rank's report and output.
type Results = Vec<(Report, Vec<u8>)>;

/// What is run, on all ranks.
#[derive(Clone)]
struct Case {
    all: Vec<Collective>,
    algorithm: Algorithm,
    element: Element,
    op: Op,
    is_in_place: bool,
}

/// Contributions whose sums and products are exact in every type.
fn contribution(case: &Case, rank: usize, index: usize) -> Vec<u8> {
    let mixed = SplitMix64::new((rank << 32 | index) as u64).next_u64();
    let value = match case.op {
        Op::Product => [1, -1, 2][mixed as usize % 3],
        _ => (mixed % 7) as i8 - 3,
    };
    encode(case.element, value)
}

impl Case {
    fn same(collective: Collective, algorithm: Algorithm, ranks: usize) -> Self {
        let all = vec![collective; ranks];
        Self { all, algorithm, element: Element::F32, op: Op::Sum, is_in_place: false }
    }

    fn ranks(&self) -> usize {
        self.all.len()
    }

    fn tables(&self) -> Vec<Table> {
        let table = |rank: usize| {
            plan(&Request {
                collective: &self.all[rank],
                algorithm: &self.algorithm,
                rank,
                ranks: self.ranks(),
                is_average: self.op == Op::Average,
                is_in_place: self.is_in_place,
            })
            .unwrap()
        };
        (0..self.ranks()).map(table).collect()
    }

    /// Where a rank's input is in its memory, and how long.
    fn input_at(&self, rank: usize, table: &Table) -> (usize, usize) {
        let before = |counts: &[usize]| counts[..rank].iter().sum::<usize>();
        match &self.all[rank] {
            _ if !self.is_in_place => (0, table.input),
            Collective::AllGather { counts } => (before(counts), counts[rank]),
            Collective::Gather { root, counts } if *root == rank => (before(counts), counts[rank]),
            Collective::Broadcast { root, .. } if *root != rank => (0, 0),
            Collective::Scatter { root, .. } if *root != rank => (0, 0),
            _ => (0, table.output),
        }
    }

    fn job(&self, rank: usize, table: Table, time: Time) -> Job {
        let size = self.element.size_bytes();
        let (at, len) = self.input_at(rank, &table);
        let own: Vec<u8> = (0..len).flat_map(|i| contribution(self, rank, i)).collect();
        let mut buffers = Vectors { input: Vec::new(), output: vec![0xdd; table.output * size] };
        if self.is_in_place {
            buffers.output[at * size..][..own.len()].copy_from_slice(&own);
        } else {
            buffers.input = own;
        }
        let label = Label {
            name: format!("{} by {}", self.all[rank].name(), self.algorithm),
            elements: 0,
            element: self.element,
            op: self.op,
        };
        Job { table, label, buffers: Box::new(buffers), time, losses: Vec::new() }
    }

    /// The bytes of an element that has these contributions.
    fn value(&self, symbol: &Symbol, by: usize) -> Vec<u8> {
        let size = self.element.size_bytes();
        let mut contributions = symbol.contributions.iter();
        let Some((rank, index)) = contributions.next() else { return vec![0; size] };
        let mut value = contribution(self, *rank, *index);
        for (rank, index) in contributions {
            let other = contribution(self, *rank, *index);
            reduce_into(self.op, self.element, &mut value, &other);
        }
        if symbol.divided > 0 {
            crate::reduce::Engine::best().divide(self.element, &mut value, by as u32);
        }
        value
    }

    /// Checks results and reports of all ranks against the tables and what was lost.
    fn check(&self, tables: &[Table], results: &[(Report, Vec<u8>)], divisor: Divisor) {
        let ranks = self.ranks();
        let size = self.element.size_bytes();
        let inputs: Vec<(usize, usize)> =
            (0..ranks).map(|rank| self.input_at(rank, &tables[rank])).collect();
        let lost = |rank: usize, receive: usize| -> Ranges<usize> {
            let lost = &results[rank].0.hops[receive].lost;
            lost.iter().map(|range| range.start / size..range.end.div_ceil(size)).collect()
        };
        let symbols = interpret_lossy(tables, &inputs, &lost);
        for (rank, (report, output)) in results.iter().enumerate() {
            let what =
                format!("{:?} by {}, rank {rank} of {ranks}", self.all[rank], self.algorithm);
            assert_eq!(report.uncertain, [], "{what}");
            for (range, whose) in &tables[rank].expected {
                let lacks_of = |index: usize| {
                    let missing = report.missing.iter().find(|(range, _)| range.contains(&index));
                    missing.map_or(RankSet::default(), |(_, lacks)| lacks.clone())
                };
                for index in range.clone() {
                    let symbol = &symbols[rank][index];
                    let here: RankSet =
                        symbol.contributions.iter().map(|(rank, _)| *rank).collect();
                    let expected = match whose {
                        crate::schedule::Whose::All => RankSet::all(ranks),
                        crate::schedule::Whose::Rank(rank) => [*rank].into_iter().collect(),
                    };
                    assert_eq!(lacks_of(index), expected.without(&here), "{what}, {index}");
                    let by = match divisor {
                        Divisor::Ranks => ranks,
                        Divisor::Contributors => here.len(),
                    };
                    let value = self.value(symbol, by);
                    let found = &output[index * size..][..size];
                    assert_eq!(found, value, "{what}, element {index} of {symbol:?}");
                }
            }
        }
    }
}

/// Runs operations of all ranks at once; results by operation, then rank.
fn run(
    cases: &[Case],
    tables: &[Vec<Table>],
    network: Network,
    time: Time,
    settings: Settings,
) -> (Vec<Results>, Group) {
    let ranks = cases[0].ranks();
    let mut group = Group::new(network, settings);
    for (case, tables) in cases.iter().zip(tables) {
        for (rank, table) in tables.iter().enumerate() {
            group.start(rank, case.job(rank, table.clone(), time));
        }
    }
    assert!(group.run(u64::MAX), "something waits for ever");
    let mut results: Vec<Results> = vec![Vec::new(); cases.len()];
    for rank in 0..ranks {
        let mut finished = group.take(rank);
        finished.sort_by_key(|(_, finished)| finished.sequence);
        assert_eq!(finished.len(), cases.len());
        for (_, finished) in finished {
            let report = finished.result.unwrap_or_else(|error| panic!("rank {rank}: {error}"));
            let output = finished.buffers.output().to_vec();
            results[finished.sequence as usize].push((report, output));
        }
    }
    (results, group)
}

/// Loses and delays packets at random.
fn disorder(loss_ppm: u32, extra_ns_max: u64, seed: u64) -> Judge {
    let mut random = SplitMix64::new(seed);
    Box::new(move |_| match random.chance(loss_ppm) {
        true => Fate::Lost,
        false => Fate::Comes { extra_ns: random.below(extra_ns_max + 1) },
    })
}

/// Packets of 64 bytes, chunks of two.
fn small(config: Config) -> Config {
    Config { packet_bytes: 64, chunk_packets: 2, ..config }
}

/// Every operation by every algorithm, for so many ranks and so many elements.
fn cases(ranks: usize, count: usize, random: &mut SplitMix64) -> Vec<Case> {
    let counts: Vec<usize> = (0..ranks).map(|_| random.below(count as u64 + 1) as usize).collect();
    let root = random.below(ranks as u64) as usize;
    let mut cases = Vec::new();
    let mut add = |collective: Collective, algorithms: &[Algorithm]| {
        for algorithm in algorithms {
            cases.push(Case::same(collective.clone(), algorithm.clone(), ranks));
        }
    };
    let sites = (0..ranks).map(|rank| rank * 2 / ranks).collect();
    let (ring, transpose) = (Algorithm::Ring, Algorithm::Transpose);
    let cube = Algorithm::Cube { radix: 2 };
    add(
        Collective::AllReduce { count },
        &[
            ring.clone(),
            transpose.clone(),
            cube.clone(),
            Algorithm::Halving,
            Algorithm::Doubling,
            Algorithm::Hierarchical { sites },
        ],
    );
    add(
        Collective::ReduceScatter { counts: counts.clone() },
        &[ring.clone(), transpose.clone(), cube.clone()],
    );
    add(
        Collective::AllGather { counts: counts.clone() },
        &[ring.clone(), transpose, cube, Algorithm::Doubling],
    );
    add(Collective::Broadcast { root, count }, &[ring, Algorithm::Tree]);
    add(Collective::Reduce { root, count }, &[Algorithm::Tree]);
    add(Collective::Gather { root, counts: counts.clone() }, &[Algorithm::Direct]);
    add(Collective::Scatter { root, counts }, &[Algorithm::Direct]);
    add(Collective::Barrier, &[Algorithm::Doubling]);
    let sent: Vec<Vec<usize>> = (0..ranks)
        .map(|_| (0..ranks).map(|_| random.below(count as u64 + 1) as usize).collect())
        .collect();
    let received = |rank: usize| sent.iter().map(|sent| sent[rank]).collect();
    let uneven =
        |rank: usize| Collective::AllToAll { sent: sent[rank].clone(), received: received(rank) };
    let mut all_to_all = Case::same(Collective::Barrier, Algorithm::Direct, ranks);
    all_to_all.all = (0..ranks).map(uneven).collect();
    cases.push(all_to_all);
    for case in &mut cases {
        case.element = Element::ALL[random.below(12) as usize];
        case.op = Op::ALL[random.below(5) as usize];
        let can_be_in_place = !matches!(case.all[0], Collective::AllToAll { .. });
        case.is_in_place = can_be_in_place && random.chance(300_000);
    }
    cases
}
