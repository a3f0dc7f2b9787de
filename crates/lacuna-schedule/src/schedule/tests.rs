//! Every schedule, carried out with symbols: each element of a result has each contribution that belongs
//! to it exactly once, for 1 to 17 ranks and lengths that divide badly.

use super::check::{Symbol, interpret};
use super::*;
use lacuna_link::SplitMix64;

/// What a rank's output has to be, and how long its input is.
fn oracle(all: &[Collective], rank: usize, is_average: bool) -> (usize, Vec<Symbol>) {
    let ranks = all.len();
    let divided = u32::from(is_average && ranks > 1);
    let sum = |range: std::ops::Range<usize>| {
        let one = |i| Symbol { contributions: (0..ranks).map(|r| (r, i)).collect(), divided };
        range.map(one).collect::<Vec<_>>()
    };
    let of = |rank: usize, range: std::ops::Range<usize>| {
        range.map(move |i| Symbol { contributions: vec![(rank, i)], divided: 0 })
    };
    match &all[rank] {
        Collective::AllReduce { count } => (*count, sum(0..*count)),
        Collective::ReduceScatter { counts } => {
            let offsets = offsets(counts);
            (offsets[ranks], sum(offsets[rank]..offsets[rank + 1]))
        }
        Collective::AllGather { counts } => {
            (counts[rank], (0..ranks).flat_map(|r| of(r, 0..counts[r])).collect())
        }
        Collective::Broadcast { root, count } => {
            (if rank == *root { *count } else { 0 }, of(*root, 0..*count).collect())
        }
        Collective::Reduce { root, count } => {
            (*count, if rank == *root { sum(0..*count) } else { Vec::new() })
        }
        Collective::Gather { root, counts } => {
            let gathered = (0..ranks).flat_map(|r| of(r, 0..counts[r]));
            (counts[rank], if rank == *root { gathered.collect() } else { Vec::new() })
        }
        Collective::Scatter { root, counts } => {
            let offsets = offsets(counts);
            let input = if rank == *root { offsets[ranks] } else { 0 };
            (input, of(*root, offsets[rank]..offsets[rank + 1]).collect())
        }
        Collective::AllToAll { sent, received } => {
            let from = |r: usize| {
                let Collective::AllToAll { sent, .. } = &all[r] else { unreachable!() };
                let offsets = offsets(sent);
                of(r, offsets[rank]..offsets[rank + 1])
            };
            assert_eq!(received.iter().sum::<usize>(), (0..ranks).flat_map(from).count());
            (sent.iter().sum(), (0..ranks).flat_map(from).collect())
        }
        Collective::Barrier => (0, Vec::new()),
        Collective::Exchange { to, from } => {
            let input = to.map_or(0, |(_, count)| count);
            (input, from.map_or(Vec::new(), |(peer, count)| of(peer, 0..count).collect()))
        }
    }
}

/// Checks the tables of all ranks.
fn check(all: &[Collective], algorithm: &Algorithm, is_average: bool, is_in_place: bool) {
    let ranks = all.len();
    let what = format!("{:?} by {algorithm}, {ranks} ranks", all[0]);
    let tables: Vec<Table> = (0..ranks)
        .map(|rank| {
            let collective = &all[rank];
            let request = Request { collective, algorithm, rank, ranks, is_average, is_in_place };
            let table = plan(&request).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(table.fault(), None, "{what}");
            table
        })
        .collect();
    for table in &tables {
        if !matches!(all[0], Collective::AllToAll { .. } | Collective::Exchange { .. }) {
            assert_eq!(table.phases, tables[0].phases, "{what}");
        }
        assert!(table.entries.windows(2).all(|pair| pair[0].phase <= pair[1].phase), "{what}");
        let covered: usize = table.expected.iter().map(|(range, _)| range.len()).sum();
        assert!(is_in_place || covered == table.output, "{what}");
    }
    let places: Vec<(usize, usize, usize)> = (0..ranks)
        .map(|rank| {
            let (input, _) = oracle(all, rank, is_average);
            match &all[rank] {
                _ if !is_in_place => (0, input, 0),
                Collective::AllGather { counts } => (offsets(counts)[rank], input, 0),
                Collective::Gather { root, counts } if *root == rank => {
                    (offsets(counts)[rank], input, 0)
                }
                Collective::ReduceScatter { counts } => (0, input, offsets(counts)[rank]),
                Collective::Scatter { root, counts } if *root == rank => {
                    (0, input, offsets(counts)[rank])
                }
                _ => (0, input, 0),
            }
        })
        .collect();
    let inputs: Vec<(usize, usize)> = places.iter().map(|(at, len, _)| (*at, *len)).collect();
    for tables in [tables.clone(), tables.iter().map(|table| table.cut(3)).collect()] {
        for (rank, output) in interpret(&tables, &inputs).iter().enumerate() {
            let (_, expected) = oracle(all, rank, is_average);
            let output = &output[places[rank].2..][..expected.len()];
            assert_eq!(output, expected, "{what}, rank {rank}, in place {is_in_place}");
        }
    }
}

fn same(collective: &Collective, ranks: usize) -> Vec<Collective> {
    vec![collective.clone(); ranks]
}

/// Sizes of parts: equal, none, of one only, and random ones.
fn counts(ranks: usize) -> Vec<Vec<usize>> {
    let mut random = SplitMix64::new(ranks as u64);
    vec![
        vec![2; ranks],
        vec![0; ranks],
        (0..ranks).map(|rank| usize::from(rank == ranks / 2) * 5).collect(),
        (0..ranks).map(|_| random.below(6) as usize).collect(),
    ]
}

fn sites(ranks: usize) -> Vec<Vec<usize>> {
    let mut random = SplitMix64::new(ranks as u64);
    let mut lists = vec![vec![0; ranks], (0..ranks).collect()];
    lists.push((0..ranks).map(|rank| rank * 2 / ranks).collect());
    lists.push((0..ranks).map(|rank| rank % 3.min(ranks)).collect());
    let mut uneven: Vec<usize> = (0..ranks).map(|_| random.below(2) as usize).collect();
    uneven[0] = 0;
    uneven[ranks - 1] = usize::from(ranks > 1);
    lists.push(uneven);
    lists
}

#[test]
fn all_reduce_has_every_contribution_once() {
    for ranks in 1..=17 {
        let mut algorithms = vec![
            Algorithm::Ring,
            Algorithm::Transpose,
            Algorithm::Cube { radix: 2 },
            Algorithm::Cube { radix: 3 },
            Algorithm::Halving,
            Algorithm::Doubling,
        ];
        algorithms.extend(sites(ranks).into_iter().map(|sites| Algorithm::Hierarchical { sites }));
        for algorithm in &algorithms {
            for count in [0, 1, 7, 31] {
                for is_in_place in [false, true] {
                    let all = same(&Collective::AllReduce { count }, ranks);
                    check(&all, algorithm, count == 31, is_in_place);
                }
            }
        }
    }
}

#[test]
fn reduce_scatter_and_all_gather_have_the_right_parts() {
    for ranks in 1..=17 {
        for counts in counts(ranks) {
            for is_in_place in [false, true] {
                for algorithm in
                    [Algorithm::Ring, Algorithm::Transpose, Algorithm::Cube { radix: 2 }]
                {
                    let scatter = Collective::ReduceScatter { counts: counts.clone() };
                    check(&same(&scatter, ranks), &algorithm, is_in_place, is_in_place);
                    let gather = Collective::AllGather { counts: counts.clone() };
                    check(&same(&gather, ranks), &algorithm, false, is_in_place);
                }
                let gather = Collective::AllGather { counts: counts.clone() };
                check(&same(&gather, ranks), &Algorithm::Doubling, false, is_in_place);
            }
        }
    }
}

#[test]
fn operations_with_a_root_work_for_every_root() {
    for ranks in 1..=17 {
        for root in 0..ranks {
            for is_in_place in [false, true] {
                for count in [0, 1, 13] {
                    let broadcast = same(&Collective::Broadcast { root, count }, ranks);
                    check(&broadcast, &Algorithm::Tree, false, is_in_place);
                    check(&broadcast, &Algorithm::Ring, false, is_in_place);
                    let reduce = same(&Collective::Reduce { root, count }, ranks);
                    check(&reduce, &Algorithm::Tree, is_in_place, is_in_place);
                }
                let counts = counts(ranks).pop().unwrap();
                let gather = Collective::Gather { root, counts: counts.clone() };
                check(&same(&gather, ranks), &Algorithm::Direct, false, is_in_place);
                let scatter = Collective::Scatter { root, counts };
                check(&same(&scatter, ranks), &Algorithm::Direct, false, is_in_place);
            }
        }
    }
}

#[test]
fn all_to_all_moves_equal_and_uneven_parts() {
    let mut random = SplitMix64::new(4);
    for ranks in 1..=17 {
        for bound in [1, 6u64] {
            let mut part = || 2 + random.below(bound) as usize - bound.min(2) as usize;
            let sent: Vec<Vec<usize>> =
                (0..ranks).map(|_| (0..ranks).map(|_| part()).collect()).collect();
            let all: Vec<Collective> = (0..ranks)
                .map(|rank| Collective::AllToAll {
                    sent: sent[rank].clone(),
                    received: sent.iter().map(|sent| sent[rank]).collect(),
                })
                .collect();
            check(&all, &Algorithm::Direct, false, false);
        }
    }
}

#[test]
fn ranks_send_around_a_circle_at_once() {
    for ranks in 2..=5 {
        let all: Vec<Collective> = (0..ranks)
            .map(|rank| Collective::Exchange {
                to: Some(((rank + 1) % ranks, 3 + rank)),
                from: Some(((rank + ranks - 1) % ranks, 3 + (rank + ranks - 1) % ranks)),
            })
            .collect();
        check(&all, &Algorithm::Direct, false, false);
    }
    let one_way = [
        Collective::Exchange { to: Some((1, 4)), from: None },
        Collective::Exchange { to: None, from: Some((0, 4)) },
    ];
    check(&one_way, &Algorithm::Direct, false, false);
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_has_come() {
    // Who is known to have come, by following the sends.
    for ranks in 1..=17usize {
        check(&same(&Collective::Barrier, ranks), &Algorithm::Doubling, false, false);
        let mut known: Vec<u32> = (0..ranks).map(|rank| 1 << rank).collect();
        let table = |rank| {
            let (collective, algorithm) = (&Collective::Barrier, &Algorithm::Doubling);
            let (is_average, is_in_place) = (false, false);
            plan(&Request { collective, algorithm, rank, ranks, is_average, is_in_place }).unwrap()
        };
        let tables: Vec<Table> = (0..ranks).map(table).collect();
        for phase in 0..tables[0].phases.len() {
            let before = known.clone();
            for table in &tables {
                for entry in table.entries.iter().filter(|entry| entry.phase == phase) {
                    if let Action::Receive { peer, .. } = entry.action {
                        known[table.rank] |= before[peer];
                    }
                }
            }
        }
        assert!(known.iter().all(|known| *known == (1 << ranks) - 1), "{ranks}");
    }
}

#[test]
fn a_rank_of_a_ring_sends_no_more_than_it_must() {
    let sent = |algorithm: &Algorithm, ranks: usize, count: usize| -> usize {
        let collective = &Collective::AllReduce { count };
        let (is_average, is_in_place) = (false, false);
        let request = Request { collective, algorithm, rank: 0, ranks, is_average, is_in_place };
        let table = plan(&request).unwrap();
        let sends = table.entries.iter().filter(|e| matches!(e.action, Action::Send { .. }));
        sends.map(|entry| entry.action.elements()).sum()
    };
    for ranks in [2, 4, 8, 16] {
        let least = 2 * 1600 * (ranks - 1) / ranks;
        for algorithm in [
            Algorithm::Ring,
            Algorithm::Halving,
            Algorithm::Transpose,
            Algorithm::Cube { radix: 2 },
        ] {
            assert_eq!(sent(&algorithm, ranks, 1600), least, "{algorithm}");
        }
        assert_eq!(sent(&Algorithm::Doubling, ranks, 1600), 1600 * ranks.ilog2() as usize);
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let ask = |collective: &Collective, algorithm: &Algorithm, rank, is_in_place| {
        let (ranks, is_average) = (3, false);
        plan(&Request { collective, algorithm, rank, ranks, is_average, is_in_place }).unwrap_err()
    };
    let (ring, direct) = (&Algorithm::Ring, &Algorithm::Direct);
    let reduce = &Collective::AllReduce { count: 3 };
    assert_eq!(ask(reduce, ring, 3, false), ScheduleError::Rank { rank: 3, ranks: 3 });
    let error = ask(reduce, &Algorithm::Tree, 0, false);
    assert_eq!(error.to_string(), "all-reduce by tree: there is no such schedule");
    assert!(ask(reduce, &Algorithm::Cube { radix: 1 }, 0, false).to_string().contains("cube:1"));
    let broadcast = &Collective::Broadcast { root: 3, count: 1 };
    assert_eq!(ask(broadcast, ring, 0, false), ScheduleError::Peer { peer: 3, rank: 0, ranks: 3 });
    let own = &Collective::Exchange { to: Some((1, 1)), from: None };
    assert_eq!(ask(own, direct, 1, false), ScheduleError::Peer { peer: 1, rank: 1, ranks: 3 });
    let gather = &Collective::AllGather { counts: vec![1; 2] };
    assert_eq!(ask(gather, ring, 0, false), ScheduleError::Counts { counts: 2, ranks: 3 });
    let gather = &Collective::AllGather { counts: vec![usize::MAX, 1, 1] };
    assert_eq!(ask(gather, ring, 0, false), ScheduleError::TooMany);
    let parts = &Collective::AllToAll { sent: vec![1, 1, 1], received: vec![2, 1, 1] };
    let error = ScheduleError::Own { rank: 0, sent: 1, received: 2 };
    assert_eq!(ask(parts, direct, 0, false), error);
    let parts = &Collective::AllToAll { sent: vec![1; 3], received: vec![1; 3] };
    let error = ScheduleError::InPlace { collective: "all-to-all" };
    assert_eq!(ask(parts, direct, 0, true), error);
    for sites in [vec![0, 1], vec![0, 0, 2], vec![usize::MAX, 0, 1]] {
        let error = ScheduleError::Sites { sites: sites.len(), ranks: 3 };
        assert_eq!(ask(reduce, &Algorithm::Hierarchical { sites }, 0, false), error);
    }
}
