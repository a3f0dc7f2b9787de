//! Operations that have to end in time, in virtual time: by their deadline exactly and never a tick later,
//! whatever is lost, late or killed; and how a budget is divided over phases (OptiNIC 3.1.2).

use lacuna_link::SplitMix64;
use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::run::{Divisor, Finished, Job, Label, Report, Settings, Time, Vectors};
use lacuna_schedule::schedule::{Algorithm, Collective, Request, Table, plan};
use lacuna_schedule::simulated::{Config, Fate, Group, Judge, Network};
use proptest::prelude::*;

/// Operations of a group: the same on all ranks, each by each of its algorithms.
fn operations(ranks: usize, count: usize, root: usize) -> Vec<(Collective, Algorithm)> {
    let (ring, transpose) = (Algorithm::Ring, Algorithm::Transpose);
    let cube = Algorithm::Cube { radix: 2 };
    let sites = (0..ranks).map(|rank| rank * 2 / ranks).collect();
    let counts: Vec<usize> = (0..ranks).map(|rank| count + rank).collect();
    let to_all = || Collective::AllToAll { sent: vec![count; ranks], received: vec![count; ranks] };
    let (all, scatter) =
        (Collective::AllReduce { count }, Collective::ReduceScatter { counts: counts.clone() });
    let gather = Collective::AllGather { counts: counts.clone() };
    vec![
        (all.clone(), ring.clone()),
        (all.clone(), transpose.clone()),
        (all.clone(), cube.clone()),
        (all.clone(), Algorithm::Halving),
        (all.clone(), Algorithm::Doubling),
        (all, Algorithm::Hierarchical { sites }),
        (scatter.clone(), ring.clone()),
        (scatter.clone(), transpose.clone()),
        (scatter, cube.clone()),
        (gather.clone(), ring.clone()),
        (gather.clone(), transpose),
        (gather.clone(), cube),
        (gather, Algorithm::Doubling),
        (Collective::Broadcast { root, count }, ring),
        (Collective::Broadcast { root, count }, Algorithm::Tree),
        (Collective::Reduce { root, count }, Algorithm::Tree),
        (Collective::Gather { root, counts: counts.clone() }, Algorithm::Direct),
        (Collective::Scatter { root, counts }, Algorithm::Direct),
        (to_all(), Algorithm::Direct),
        (Collective::Barrier, Algorithm::Doubling),
    ]
}

fn table((collective, algorithm): &(Collective, Algorithm), rank: usize, ranks: usize) -> Table {
    let (is_average, is_in_place) = (false, false);
    plan(&Request { collective, algorithm, rank, ranks, is_average, is_in_place })
        .expect("there is such a schedule")
}

fn job(table: Table, (budget_ns, usual_ns): (u64, u64), divisor: Divisor) -> Job {
    let buffers = Vectors { input: vec![1; 4 * table.input], output: vec![0; 4 * table.output] };
    let label = Label { name: String::new(), elements: 0, element: Element::I32, op: Op::Sum };
    let time = Time::Bounded { budget_ns, usual_ns, divisor };
    Job { table, label, buffers: Box::new(buffers), time, losses: Vec::new() }
}

/// What happens to packets and ranks.
#[derive(Debug, Clone)]
struct Trouble {
    loss_ppm: u32,
    /// Up to so much later than usual, which may be long after the deadline.
    late_ns: u64,
    /// A rank that stops, when, and how long later the others see it.
    killed: Option<(usize, u64, u64)>,
    /// A rank that never begins.
    absent: Option<usize>,
    seed: u64,
}

impl Trouble {
    fn judge(&self) -> Judge {
        let (mut random, Self { loss_ppm, late_ns, .. }) =
            (SplitMix64::new(self.seed), self.clone());
        Box::new(move |_| match random.chance(loss_ppm) {
            true => Fate::Lost,
            false => Fate::Comes { extra_ns: random.below(late_ns + 1) },
        })
    }
}

fn config(ranks: usize, grace_ns: Option<u64>) -> Config {
    Config {
        packet_bytes: 64,
        chunk_packets: 2,
        grace_ns,
        ..Config::best_effort(ranks, 1_000_000_000, 50_000)
    }
}

/// Runs an operation; what each rank has, with the time.
fn run(
    tables: &[Table],
    mut group: Group,
    (budget_ns, usual_ns): (u64, u64),
    divisor: Divisor,
    trouble: &Trouble,
) -> Vec<Option<(u64, Finished)>> {
    for (rank, table) in tables.iter().enumerate().filter(|(rank, _)| trouble.absent != Some(*rank))
    {
        group.start(rank, job(table.clone(), (budget_ns, usual_ns), divisor));
    }
    let is_over = match trouble.killed {
        Some((rank, at_ns, seen_after_ns)) => {
            group.run(at_ns) || {
                // Nothing may have happened at that time.
                let now_ns = group.network.now_ns();
                group.network.advance(now_ns.max(at_ns));
                group.network.kill(rank, seen_after_ns);
                group.run(u64::MAX)
            }
        }
        None => group.run(u64::MAX),
    };
    assert!(is_over, "something waits for ever");
    (0..tables.len()).map(|rank| group.take(rank).pop()).collect()
}

fn report(finished: &Option<(u64, Finished)>) -> &Report {
    finished.as_ref().expect("it was started").1.result.as_ref().expect("nobody is gone")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_operation_ends_by_its_deadline_whatever_happens(
        ranks in 2usize..=7,
        count in 0usize..300,
        budget_ns in 1u64..4_000_000,
        usual_ns in 0u64..5_000_000,
        ahead in 1usize..=8,
        by_contributors in any::<bool>(),
        grace_ns in proptest::option::of(0u64..200_000),
        loss_ppm in prop_oneof![Just(0u32), 0u32..300_000, Just(1_000_000u32)],
        late_ns in prop_oneof![Just(0u64), 0u64..8_000_000],
        killed in proptest::option::of((0usize..7, 0u64..4_000_000, 0u64..8_000_000)),
        absent in proptest::option::of(0usize..7),
        (is_pipelined, has_unruly_notes) in any::<(bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let killed = killed.map(|(rank, at_ns, seen_ns)| (rank % ranks, at_ns, seen_ns));
        let absent = absent.map(|rank| rank % ranks);
        let trouble = Trouble { loss_ppm, late_ns, killed, absent, seed };
        let divisor = if by_contributors { Divisor::Contributors } else { Divisor::Ranks };
        let settings = Settings { receives_ahead: ahead, is_pipelined, has_checks: true };
        for operation in operations(ranks, count, seed as usize % ranks) {
            let tables: Vec<Table> = (0..ranks).map(|rank| table(&operation, rank, ranks)).collect();
            let config = Config { has_unruly_notes, ..config(ranks, grace_ns) };
            let group = Group::new(Network::new(config, trouble.judge()), settings);
            let results = run(&tables, group, (budget_ns, usual_ns), divisor, &trouble);
            for (rank, finished) in results.iter().enumerate() {
                let dead = trouble.killed.is_some_and(|(killed, ..)| killed == rank);
                let Some((time_ns, finished)) = finished else {
                    prop_assert!(dead || trouble.absent == Some(rank), "rank {rank} has no result");
                    continue;
                };
                prop_assert!(*time_ns <= budget_ns, "{operation:?}, rank {rank}: {time_ns}");
                match &finished.result {
                    Ok(report) => {
                        prop_assert!(report.ended_ns <= budget_ns);
                        for hop in &report.hops {
                            prop_assert!(hop.ended_ns <= budget_ns);
                        }
                    }
                    // Who is gone is named; others may have said so first.
                    Err(error) => prop_assert_eq!(error.rank(), trouble.killed.map(|killed| killed.0)),
                }
            }
        }
    }

    #[test]
    fn what_never_comes_is_waited_for_until_the_deadline_of_its_phase_and_no_longer(
        ranks in 2usize..=8,
        count in 8usize..200,
        budget_ns in 200_000u64..9_000_000,
        usual in 0.0..=1.0,
        ahead in 1usize..=8,
    ) {
        let trouble =
            Trouble { loss_ppm: 1_000_000, late_ns: 0, killed: None, absent: None, seed: 0 };
        let settings = Settings { receives_ahead: ahead, ..Settings::default() };
        let usual_ns = (usual * budget_ns as f64) as u64;
        for operation in operations(ranks, count, 0) {
            let tables: Vec<Table> = (0..ranks).map(|rank| table(&operation, rank, ranks)).collect();
            let group = Group::new(Network::new(config(ranks, None), trouble.judge()), settings);
            let results = run(&tables, group, (budget_ns, usual_ns), Divisor::Ranks, &trouble);
            for (table, finished) in tables.iter().zip(&results) {
                let report = report(finished);
                let total: u64 = table.phases.iter().sum();
                for hop in &report.hops {
                    // Slices in proportion to what the phases carry, behind the reserve; all messages of a phase share
                    // one.
                    let through: u64 = table.phases[..=hop.phase].iter().sum();
                    let slice_ends_ns = budget_ns - usual_ns + usual_ns * through / total;
                    prop_assert_eq!(hop.ended_ns, slice_ends_ns, "{:?}, phase {}", operation, hop.phase);
                    prop_assert_eq!(hop.lost_bytes(), hop.bytes);
                }
                let last_ns = report.hops.iter().map(|hop| hop.ended_ns).max();
                prop_assert_eq!(report.ended_ns, last_ns.unwrap_or(report.ended_ns));
            }
            // Somebody receives in the last phase, and ends exactly when the budget does.
            let last = results.iter().map(|finished| report(finished).ended_ns).max();
            prop_assert_eq!(last, Some(budget_ns), "{:?}", operation);
        }
    }
}

/// The slices of a ring's six phases are 1.5 ms.
const USUAL_NS: u64 = 9_000_000;

/// A ring of 200 KB in six phases of 400 us; one rank's packets of some phases are late.
fn ring(reserve_ns: u64, late: impl Fn(usize, usize) -> u64 + 'static) -> Vec<Report> {
    let operation = (Collective::AllReduce { count: 50_000 }, Algorithm::Ring);
    let tables: Vec<Table> = (0..4).map(|rank| table(&operation, rank, 4)).collect();
    let judge: Judge =
        Box::new(move |packet| Fate::Comes { extra_ns: late(packet.from, packet.message) });
    let network = Network::new(Config::best_effort(4, 1_000_000_000, 10_000), judge);
    let group = Group::new(network, Settings::default());
    let trouble = Trouble { loss_ppm: 0, late_ns: 0, killed: None, absent: None, seed: 0 };
    let results = run(&tables, group, (USUAL_NS + reserve_ns, USUAL_NS), Divisor::Ranks, &trouble);
    results.iter().map(|finished| report(finished).clone()).collect()
}

#[test]
fn what_a_slow_first_phase_leaves_of_its_slice_is_used_by_the_next_ones() {
    // The first phase takes twice its usual time, half of its slice; the second one longer than a slice.
    let reports = ring(0, |from, message| match (from, message) {
        (0, 0) => 200_000,
        (1, 1) => 1_700_000,
        _ => 0,
    });
    let lost = reports.iter().flat_map(|report| &report.hops).find(|hop| hop.lost_bytes() > 0);
    assert_eq!(lost, None);
    let ends = |rank: usize, phase: usize| reports[rank].hops[phase].ended_ns;
    assert!((600_000..1_000_000).contains(&ends(1, 0)), "{}", ends(1, 0));
    assert!(ends(2, 1) - ends(1, 0) > 1_500_000, "longer than its own slice");
    assert!(ends(2, 1) < 3_000_000, "and in time");
}

#[test]
fn a_first_phase_that_exceeds_its_slice_is_cut_and_those_behind_it_are_not() {
    let reports = ring(0, |from, message| if (from, message) == (0, 0) { 4_000_000 } else { 0 });
    let first = &reports[1].hops[0];
    assert_eq!((first.ended_ns, first.lost_bytes()), (1_500_000, first.bytes));
    let others = reports.iter().flat_map(|report| &report.hops).filter(|hop| *hop != first);
    // What is missing is left out of the sum; it is passed on in time.
    assert!(others.clone().count() == 23 && others.into_iter().all(|hop| hop.lost_bytes() == 0));
    assert!(reports.iter().all(|report| report.ended_ns < 9_000_000));
}

#[test]
fn a_first_phase_that_exceeds_its_slice_has_the_reserve_besides() {
    let late = |from, message| if (from, message) == (0, 0) { 4_000_000 } else { 0 };
    let reports = ring(4_000_000, late);
    let lost = reports.iter().flat_map(|report| &report.hops).find(|hop| hop.lost_bytes() > 0);
    assert_eq!(lost, None);
    let first = &reports[1].hops[0];
    assert!((4_000_000..5_500_000).contains(&first.ended_ns), "{}", first.ended_ns);
}
