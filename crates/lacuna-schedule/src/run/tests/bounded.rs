//! Operations that have to end in time: by their budget exactly, and what is missing is what was lost.

use super::*;

fn bounded(budget_ns: u64, divisor: Divisor) -> Time {
    Time::Bounded { budget_ns, usual_ns: budget_ns, divisor }
}

#[test]
fn what_is_missing_is_what_was_lost() {
    for ranks in 2..=9 {
        for (count, loss_ppm) in [(0, 0), (1, 300_000), (97, 100_000), (600, 20_000)] {
            let seed = (ranks * 1000 + count) as u64;
            let mut random = SplitMix64::new(seed);
            for case in cases(ranks, count, &mut random) {
                let divisor = [Divisor::Ranks, Divisor::Contributors][random.below(2) as usize];
                let mut config = small(Config::best_effort(ranks, 1_000_000_000, 50_000));
                config.grace_ns = random.chance(500_000).then_some(60_000);
                let network = Network::new(config, disorder(loss_ppm, 20_000, seed));
                let (budget_ns, tables) = (20_000_000, case.tables());
                let (results, _) = run(
                    std::slice::from_ref(&case),
                    std::slice::from_ref(&tables),
                    network,
                    bounded(budget_ns, divisor),
                    Settings::default(),
                );
                case.check(&tables, &results[0], divisor);
                assert!(results[0].iter().all(|(report, _)| report.ended_ns <= budget_ns));
            }
        }
    }
}

#[test]
fn losses_on_purpose_leave_missing_what_a_path_did() {
    for ranks in [2, 3, 5] {
        let mut random = SplitMix64::new(ranks as u64);
        for case in cases(ranks, 300, &mut random) {
            let best_effort = || {
                let mut config = small(Config::best_effort(ranks, 1_000_000_000, 50_000));
                config.grace_ns = Some(60_000);
                config
            };
            let divisor = [Divisor::Ranks, Divisor::Contributors][random.below(2) as usize];
            let (time, tables) = (bounded(20_000_000, divisor), case.tables());
            let (logged, _) = run(
                std::slice::from_ref(&case),
                std::slice::from_ref(&tables),
                Network::new(best_effort(), disorder(100_000, 20_000, ranks as u64)),
                time,
                Settings::default(),
            );
            let network = Network::new(best_effort(), disorder(0, 20_000, 0));
            let mut group = Group::new(network, Settings::default());
            for (rank, table) in tables.iter().enumerate() {
                let mut job = case.job(rank, table.clone(), time);
                let hops = &logged[0][rank].0.hops;
                job.losses = hops.iter().map(|hop| hop.lost.iter().cloned().collect()).collect();
                // Behind the end of a message nothing can be lost.
                job.losses.iter_mut().for_each(|losses| losses.add(1 << 30..1 << 31));
                group.start(rank, job);
            }
            assert!(group.run(u64::MAX));
            for (rank, (report, output)) in logged[0].iter().enumerate() {
                let finished = group.take(rank).remove(0).1;
                let replayed = finished.result.unwrap();
                let lost = |report: &Report| -> Vec<_> {
                    report.hops.iter().map(|hop| hop.lost.clone()).collect()
                };
                assert_eq!(lost(&replayed), lost(report));
                assert_eq!(replayed.missing, report.missing);
                assert!(finished.buffers.output() == output, "rank {rank} of {:?}", case.all[rank]);
            }
        }
    }
}

#[test]
fn an_operation_ends_at_its_deadline_exactly() {
    // A rank whose packets are all lost, and nobody says what was sent.
    let judge: Judge = Box::new(|packet| match packet.from {
        1 => Fate::Lost,
        _ => Fate::Comes { extra_ns: 0 },
    });
    let config = small(Config::best_effort(4, 1_000_000_000, 50_000));
    let case = Case::same(Collective::AllReduce { count: 400 }, Algorithm::Transpose, 4);
    let tables = case.tables();
    let (results, mut group) = run(
        std::slice::from_ref(&case),
        std::slice::from_ref(&tables),
        Network::new(config, judge),
        bounded(3_000_001, Divisor::Ranks),
        Settings::default(),
    );
    case.check(&tables, &results[0], Divisor::Ranks);
    for (rank, (report, _)) in results[0].iter().enumerate() {
        if rank != 1 {
            assert_eq!(report.ended_ns, 3_000_001);
            // Its own part, and its contribution to the others'.
            let lacks = |range: usize| report.missing.iter().find(|(r, _)| r.contains(&range));
            assert_eq!(lacks(0).unwrap().1, [1].into_iter().collect());
            assert_eq!(lacks(100).unwrap().1, RankSet::all(4));
            assert_eq!(report.straggler.unwrap().rank, 1);
            assert_eq!(report.lost_bytes(), 800);
        }
    }
    assert!(group.take(0).is_empty());
}

#[test]
fn an_operation_ends_in_time_although_a_rank_never_comes() {
    for algorithm in [Algorithm::Ring, Algorithm::Halving, Algorithm::Transpose] {
        let case = Case::same(Collective::AllReduce { count: 300 }, algorithm, 4);
        let config = small(Config::best_effort(4, 1_000_000_000, 50_000));
        let mut group = Group::new(Network::new(config, disorder(0, 0, 0)), Settings::default());
        for (rank, table) in case.tables().into_iter().enumerate().take(3) {
            let time = bounded(2_000_000, Divisor::Contributors);
            group.start(rank, case.job(rank, table, time));
        }
        assert!(group.run(u64::MAX));
        for rank in 0..3 {
            let (time_ns, finished) = group.take(rank).remove(0);
            assert!(time_ns <= 2_000_000);
            let report = finished.result.unwrap();
            // Nothing of the fourth is in the result, and that is known.
            let known: usize = report.missing.iter().map(|(range, _)| range.len()).sum();
            let open: usize = report.uncertain.iter().map(std::ops::Range::len).sum();
            assert_eq!(known + open, 300);
            assert!(report.missing.iter().all(|(_, lacks)| lacks.contains(3)));
        }
    }
}

#[test]
fn time_that_a_phase_does_not_use_is_left_to_later_ones() {
    // A ring of 2 MB in six phases. The last hop of one pair is slow: it takes three times its slice,
    // which the phases before it have left over.
    let case = Case::same(Collective::AllReduce { count: 50_000 }, Algorithm::Ring, 4);
    let judge: Judge = Box::new(|packet| match (packet.from, packet.message) {
        (0, 5) => Fate::Comes { extra_ns: 4_000_000 },
        _ => Fate::Comes { extra_ns: 0 },
    });
    let network = Network::new(Config::best_effort(4, 1_000_000_000, 10_000), judge);
    let tables = case.tables();
    // 400 us per phase, and slices of 1.5 ms.
    let (results, _) = run(
        std::slice::from_ref(&case),
        std::slice::from_ref(&tables),
        network,
        bounded(9_000_000, Divisor::Ranks),
        Settings::default(),
    );
    case.check(&tables, &results[0], Divisor::Ranks);
    assert!(results[0].iter().all(|(report, _)| report.lost_bytes() == 0));
    let report = &results[0][1].0;
    assert!(report.hops[5].ended_ns > 6_000_000, "{:?}", report.hops[5]);
    let straggler = report.straggler.unwrap();
    assert_eq!((straggler.rank, straggler.phase), (0, 5));
}

#[test]
fn the_same_losses_leave_the_same_ranges_missing() {
    let case = Case::same(Collective::AllReduce { count: 4000 }, Algorithm::Ring, 4);
    let tables = case.tables();
    let missing = |judge: Judge| {
        let network = Network::new(small(Config::best_effort(4, 1_000_000_000, 50_000)), judge);
        let (results, _) = run(
            std::slice::from_ref(&case),
            std::slice::from_ref(&tables),
            network,
            bounded(50_000_000, Divisor::Ranks),
            Settings::default(),
        );
        case.check(&tables, &results[0], Divisor::Ranks);
        results
    };
    let first = missing(disorder(30_000, 0, 9));
    // The log: what each hop lacked. Replayed in a network that delays packets at random.
    let log: Vec<Vec<Hop>> = first[0].iter().map(|(report, _)| report.hops.clone()).collect();
    let mut random = SplitMix64::new(3);
    let second = missing(Box::new(move |packet| {
        let hop = &log[packet.to][packet.message];
        let is_lost = hop.lost.iter().any(|range| range.contains(&packet.offset));
        if is_lost { Fate::Lost } else { Fate::Comes { extra_ns: random.below(90_000) } }
    }));
    assert!(first[0].iter().any(|(report, _)| !report.missing.is_empty()));
    for ((first, bytes), (second, other)) in first[0].iter().zip(&second[0]) {
        assert_eq!(first.missing, second.missing);
        assert_eq!(bytes, other);
    }
}

#[test]
fn proposals_travel_with_the_next_operation_and_budgets_are_the_same_on_all_ranks() {
    use crate::budget::{Key, Observed, Profiles, Proposal, Rule};
    let ranks = 5;
    let case = Case::same(Collective::AllReduce { count: 4000 }, Algorithm::Ring, ranks);
    let config = small(Config::best_effort(ranks, 1_000_000_000, 50_000));
    let mut group =
        Group::new(Network::new(config, disorder(10_000, 20_000, 6)), Settings::default());
    let key = Key::new(0, 0, 16_000);
    let mut profiles: Vec<Profiles> = (0..ranks).map(|_| Profiles::new(Rule::default())).collect();
    profiles.iter_mut().for_each(|profiles| profiles.warm_up(key, 25_600, &[1_000_000; 4]));
    for step in 0..20u64 {
        let budgets: Vec<u64> =
            profiles.iter().map(|profiles| profiles.timeout_ns(key, 25_600).unwrap()).collect();
        assert!(budgets.iter().all(|budget_ns| *budget_ns == budgets[0]), "step {step}");
        for (rank, table) in case.tables().into_iter().enumerate() {
            let time = bounded(budgets[rank] * 4, Divisor::Ranks);
            group.start(rank, case.job(rank, table, time));
        }
        assert!(group.run(u64::MAX));
        for (rank, profiles) in profiles.iter_mut().enumerate() {
            // The proposals after the step before this one have come along with it.
            let runner = group.runner(rank);
            let heard: Vec<Proposal> = (0..ranks)
                .filter_map(|of| runner.published(of))
                .filter(|(stamp, _)| *stamp == step)
                .map(|(_, bytes)| Proposal::from_bytes(bytes.try_into().unwrap()).unwrap())
                .collect();
            assert_eq!(heard.len(), if step == 0 { 0 } else { ranks }, "step {step}, rank {rank}");
            profiles.update(key, &heard);
            let (_, finished) = group.take(rank).remove(0);
            let observed = Observed::of(&finished.result.unwrap());
            let proposal = profiles.proposal(key, 25_600, &observed).unwrap();
            group.runner(rank).publish(step + 1, &proposal.to_bytes());
        }
    }
    assert_ne!(profiles[0].timeout_ns(key, 25_600), Some(1_300_000));
}
