//! Groups over real sockets, each rank with its own context in one process.

use lacuna::Wrap;
use lacuna::datapath::{Fraction, Impair, Impairment, Loss};
use lacuna::rc::Repair;
use lacuna_collective::rendezvous::{HeldPort, Meeting};
use lacuna_collective::{
    Algorithm, Budget, Collective, Element, Group, GroupConfig, GroupError, Op, OperationError,
    Options, Outcome, Transport, Vectors,
};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// Of this process, until it ends.
fn free_port() -> u16 {
    let held = HeldPort::any(Ipv4Addr::LOCALHOST.into()).unwrap();
    let port = held.address().port();
    std::mem::forget(held);
    port
}

fn config(port: u16, rank: usize, ranks: usize) -> GroupConfig {
    let host = format!("127.0.0.1:{port}");
    let meeting = Meeting { host, rank, ranks, job: String::new(), timeout: WAIT };
    GroupConfig { bind: Ipv4Addr::LOCALHOST.into(), ..GroupConfig::new(meeting) }
}

/// Runs the same on all ranks; what each of them returned.
fn on_all<R: Send>(
    ranks: usize,
    change: impl Fn(&mut GroupConfig) + Sync,
    run: impl Fn(&Group) -> R + Sync,
) -> Vec<R> {
    let port = free_port();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                let (change, run) = (&change, &run);
                scope.spawn(move || {
                    let mut config = config(port, rank, ranks);
                    change(&mut config);
                    run(&Group::form(&config).unwrap())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The same with a group that may be given up.
fn on_all_groups<R: Send>(ranks: usize, run: impl Fn(Group) -> R + Sync) -> Vec<R> {
    let port = free_port();
    std::thread::scope(|scope| {
        let start = |rank| {
            let run = &run;
            scope.spawn(move || run(Group::form(&config(port, rank, ranks)).unwrap()))
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn floats(rank: usize, count: usize) -> Vec<u8> {
    (0..count).flat_map(|at| ((rank * 3 + at % 1000) as f32).to_le_bytes()).collect()
}

fn output(outcome: Outcome) -> Vec<u8> {
    outcome.buffers.output().to_vec()
}

fn all_reduce(group: &Group, count: usize) -> Vec<u8> {
    let collective = Collective::AllReduce { count };
    let input = floats(group.rank(), count);
    let buffers = Box::new(Vectors { input, output: vec![0; 4 * count] });
    let types = (Element::F32, Op::Sum);
    output(group.run(&collective, types, buffers, &Options::default()).unwrap())
}

fn sum(ranks: usize, count: usize) -> Vec<u8> {
    let of = |at: usize| (0..ranks).map(|rank| (rank * 3 + at % 1000) as f32).sum::<f32>();
    (0..count).flat_map(|at| of(at).to_le_bytes()).collect()
}

/// Loses and reorders packets of all its datapaths.
fn lossy() -> Wrap {
    let loss = Loss::Independent(Fraction::from_ppm(50_000));
    Arc::new(move |number, inner| {
        let impairment = Impairment { loss: loss.clone(), ..Impairment::default() };
        Box::new(Impair::new(inner, impairment, u64::from(number) + 1))
    })
}

#[test]
fn all_ranks_get_the_sum_of_all_whatever_its_size() {
    for ranks in [1, 2, 3, 5] {
        let counts = [0, 1, 7, 1000, 100_000, 300_001];
        let found = on_all(ranks, |_| {}, |group| counts.map(|count| all_reduce(group, count)));
        for result in found {
            for (count, bytes) in counts.into_iter().zip(result) {
                assert!(bytes == sum(ranks, count), "{count} elements on {ranks} ranks");
            }
        }
    }
}

#[test]
fn a_lossy_path_changes_nothing_in_the_result() {
    let found = on_all(
        3,
        |config| config.wrap = Some(lossy()),
        |group| [10, 100_000].map(|count| all_reduce(group, count)),
    );
    for [small, large] in found {
        assert!(small == sum(3, 10) && large == sum(3, 100_000));
    }
}

/// Reliable connections with go-back-N, over the lossy path.
/// 20 ms of round trip, which the control connections over loopback do not have.
fn far(config: &mut GroupConfig) {
    config.wrap = Some(Arc::new(|number, inner| {
        let impairment = Impairment { delay_ns: 10_000_000, ..Impairment::default() };
        Box::new(Impair::new(inner, impairment, u64::from(number) + 1))
    }));
}

#[test]
fn ranks_that_are_far_from_each_other_take_a_schedule_of_few_round_trips() {
    let count = 1 << 18;
    let algorithm = |group: &Group| {
        let collective = Collective::AllReduce { count };
        let input = floats(group.rank(), count);
        let buffers = Vectors { output: vec![0; input.len()], input };
        let kind = (Element::F32, Op::Sum);
        group.run(&collective, kind, Box::new(buffers), &Options::default()).unwrap().algorithm
    };
    assert_eq!(on_all(4, far, algorithm), ["transpose"; 4]);
}

fn by_rc(config: &mut GroupConfig) {
    config.transport = Transport::Rc(Repair::GoBackN);
    config.wrap = Some(lossy());
}

#[test]
fn reliable_connections_carry_the_same_operations() {
    let found = on_all(3, by_rc, |group| {
        let start = || {
            let count = 60_000;
            let input = floats(group.rank(), count);
            let buffers = Box::new(Vectors { input, output: vec![0; 4 * count] });
            let types = (Element::F32, Op::Sum);
            let collective = Collective::AllReduce { count };
            group.start(&collective, types, buffers, &Options::default()).unwrap()
        };
        let several: Vec<_> = (0..3).map(|_| start()).collect();
        let several = several.into_iter().map(|one| output(one.wait().unwrap())).collect();
        ([10, 100_000].map(|count| all_reduce(group, count)), several)
    });
    for ([small, large], several) in found {
        let several: Vec<Vec<u8>> = several;
        assert!(small == sum(3, 10) && large == sum(3, 100_000));
        assert!(several.iter().all(|one| *one == sum(3, 60_000)));
    }
}

#[test]
fn reliable_connections_end_nothing_in_time() {
    let refused = on_all(2, by_rc, |group| {
        let buffers = Box::new(Vectors { input: floats(0, 9), output: vec![0; 36] });
        let options = Options { budget: Budget::Adaptive, ..Options::default() };
        let collective = Collective::AllReduce { count: 9 };
        group.run(&collective, (Element::F32, Op::Sum), buffers, &options).unwrap_err()
    });
    assert!(refused.iter().all(|error| *error == OperationError::WholeOnly));
    let mut config = config(free_port(), 0, 1);
    by_rc(&mut config);
    config.mode = "bounded".parse().unwrap();
    assert!(matches!(Group::form(&config), Err(GroupError::Transport(_))));
}

#[test]
fn several_operations_go_on_at_once_and_end_in_any_order() {
    let count = 50_000;
    let found = on_all(
        2,
        |_| {},
        |group| {
            let start = || {
                let collective = Collective::AllReduce { count };
                let input = floats(group.rank(), count);
                let buffers = Box::new(Vectors { input, output: vec![0; 4 * count] });
                let types = (Element::F32, Op::Sum);
                group.start(&collective, types, buffers, &Options::default()).unwrap()
            };
            let (first, second, dropped, third) = (start(), start(), start(), start());
            drop(dropped);
            group.barrier().unwrap();
            [third, first, second].map(|operation| output(operation.wait().unwrap()))
        },
    );
    assert!(found.into_iter().flatten().all(|bytes| bytes == sum(2, count)));
}

#[test]
fn messages_of_one_operation_never_reach_another() {
    // Later messages of one operation and first ones of the next go at the same time, in an order that differs by rank.
    let (ranks, at_once) = (3, 4);
    for count in [3_000, 50_000] {
        let found = on_all(
            ranks,
            |config| config.wrap = Some(lossy()),
            |group| {
                let options =
                    Options { algorithm: Some(Algorithm::Cube { radix: 2 }), ..Options::default() };
                let start = |at: usize| {
                    let input = floats(group.rank() * 100 + at, count);
                    let buffers = Box::new(Vectors { input, output: vec![0; 4 * count] });
                    let collective = Collective::AllReduce { count };
                    group.start(&collective, (Element::F32, Op::Sum), buffers, &options).unwrap()
                };
                let round = |first: usize| {
                    let all: Vec<_> = (first..first + at_once).map(start).collect();
                    all.into_iter().map(|one| output(one.wait().unwrap())).collect::<Vec<_>>()
                };
                (0..10).flat_map(|i| round(i * at_once)).collect::<Vec<_>>()
            },
        );
        let expected = |at: usize| {
            let of = |i: usize| 3 * (300 + ranks * at) + ranks * (i % 1000);
            (0..count).flat_map(|i| (of(i) as f32).to_le_bytes()).collect::<Vec<_>>()
        };
        for outputs in found {
            for (at, bytes) in outputs.iter().enumerate() {
                assert!(*bytes == expected(at), "operation {at} of {count} elements");
            }
        }
    }
}

#[test]
fn ranks_that_do_not_run_the_same_are_told() {
    let found = on_all(
        2,
        |_| {},
        |group| {
            let count = 100 + group.rank();
            let collective = Collective::AllReduce { count };
            let buffers = Box::new(Vectors { input: floats(0, count), output: vec![0; 4 * count] });
            let types = (Element::F32, Op::Sum);
            group.run(&collective, types, buffers, &Options::default()).map(|_| ())
        },
    );
    for result in found {
        assert!(matches!(result, Err(OperationError::Run(_))), "{result:?}");
    }
}

#[test]
fn ranks_that_did_the_same_and_then_differ_are_told() {
    let found = on_all(
        3,
        |_| {},
        |group| {
            let types = (Element::F32, Op::Sum);
            for _ in 0..5 {
                let input = floats(group.rank(), 300);
                let buffers = Box::new(Vectors { input, output: vec![0; 1200] });
                // Another rank may have come to where they differ.
                let same = Collective::AllReduce { count: 300 };
                group.run(&same, types, buffers, &Options::default())?;
            }
            let root = usize::from(group.rank() == 1);
            let collective = Collective::Broadcast { root, count: 300 };
            let input = if group.rank() == root { floats(0, 300) } else { Vec::new() };
            let buffers = Box::new(Vectors { input, output: vec![0; 1200] });
            let within = Options { budget: Budget::Within(WAIT), ..Options::default() };
            let result = group.run(&collective, types, buffers, &within);
            result?;
            // A rank may be through a barrier before it hears that the others differ.
            (0..100).try_for_each(|_| group.barrier().map(|_| ()))
        },
    );
    for result in found {
        assert!(matches!(result, Err(OperationError::Run(_))), "{result:?}");
    }
}

#[test]
fn a_rank_that_sends_short_messages_ahead_of_the_others_waits_for_them() {
    // More than what is kept of messages that nobody expects.
    let (count, operations) = (8_000, 200);
    let found = on_all(
        2,
        |_| {},
        |group| {
            let collective = Collective::Broadcast { root: 0, count };
            let types = (Element::F32, Op::Sum);
            let start = |at: usize| {
                let is_root = group.rank() == 0;
                let input = if is_root { floats(at, count) } else { Vec::new() };
                let buffers = Box::new(Vectors { input, output: vec![0; 4 * count] });
                group.start(&collective, types, buffers, &Options::default()).unwrap()
            };
            if group.rank() == 0 {
                let all: Vec<_> = (0..operations).map(start).collect();
                return all.into_iter().map(|one| output(one.wait().unwrap())).collect::<Vec<_>>();
            }
            (0..operations).map(|at| output(start(at).wait().unwrap())).collect()
        },
    );
    for outputs in found {
        for (at, bytes) in outputs.iter().enumerate() {
            assert!(*bytes == floats(at, count), "operation {at}");
        }
    }
}

#[test]
fn memory_that_does_not_fit_the_operation_is_refused() {
    let found = on_all(
        1,
        |_| {},
        |group| {
            let collective = Collective::AllReduce { count: 3 };
            let buffers = Box::new(Vectors { input: vec![0; 12], output: vec![0; 11] });
            let types = (Element::F32, Op::Sum);
            group.run(&collective, types, buffers, &Options::default()).map(|_| ())
        },
    );
    let expected = OperationError::Memory { what: "output", found: 11, expected: 12 };
    assert_eq!(found, [Err(expected)]);
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let mut config = config(free_port(), 0, 2);
    config.meeting.timeout = Duration::from_millis(100);
    let error = Group::form(&config).unwrap_err();
    assert!(
        matches!(&error, GroupError::Meeting(_)) && error.to_string().ends_with(": 1"),
        "{error}"
    );
}

#[test]
fn a_rank_that_has_done_its_part_may_go_while_others_go_on() {
    for _ in 0..20 {
        // Each leaves as soon as it is through.
        on_all(4, |_| {}, |group| group.barrier().map(drop))
            .into_iter()
            .for_each(|end| end.unwrap());
    }
}

#[test]
fn a_rank_that_goes_in_the_middle_is_named_to_all() {
    let found = on_all(
        3,
        |_| {},
        |group| {
            if group.rank() == 2 {
                return Ok(());
            }
            let collective = Collective::AllReduce { count: 100_000 };
            let buffers = Box::new(Vectors { input: floats(0, 100_000), output: vec![0; 400_000] });
            let types = (Element::F32, Op::Sum);
            group.run(&collective, types, buffers, &Options::default()).map(drop)
        },
    );
    for result in &found[..2] {
        let text = result.as_ref().unwrap_err().to_string();
        assert!(text.contains("rank 2"), "{text}");
    }
}

fn bounded(config: &mut GroupConfig) {
    config.mode = "bounded".parse().unwrap();
    config.wrap = Some(lossy());
}

/// An all-reduce that ends in time: the outcome, and the elements that are told to lack something.
fn in_time(group: &Group, count: usize, budget: Budget) -> (Outcome, Vec<bool>) {
    let collective = Collective::AllReduce { count };
    let buffers =
        Box::new(Vectors { input: floats(group.rank(), count), output: vec![0; 4 * count] });
    let options = Options { budget, ..Options::default() };
    let outcome = group.run(&collective, (Element::F32, Op::Sum), buffers, &options).unwrap();
    let mut told = vec![false; count];
    let report = &outcome.report;
    let ranges = report.missing.iter().map(|(range, _)| range).chain(&report.uncertain);
    ranges.for_each(|range| told[range.clone()].fill(true));
    (outcome, told)
}

#[test]
fn an_operation_in_time_tells_what_it_lacks_and_the_rest_is_right() {
    let count = 200_000;
    let found = on_all(3, bounded, |group| {
        let (outcome, told) = in_time(group, count, Budget::Fixed(WAIT));
        (outcome.report.lost_bytes(), told, output(outcome))
    });
    let expected = sum(3, count);
    for (lost_bytes, told, bytes) in found {
        assert!(lost_bytes > 0, "the path loses");
        assert!(told.iter().any(|told| !told), "not all is lost");
        for (at, told) in told.iter().enumerate() {
            let element = 4 * at..4 * at + 4;
            assert!(*told || bytes[element.clone()] == expected[element], "element {at}");
        }
    }
}

#[test]
fn an_operation_without_a_budget_is_whole_although_the_group_loses() {
    let found = on_all(3, bounded, |group| {
        let lossy = in_time(group, 50_000, Budget::Fixed(WAIT)).0.report.lost_bytes();
        (lossy, [100, 50_000].map(|count| all_reduce(group, count)))
    });
    for (lost_bytes, [small, large]) in found {
        assert!(lost_bytes > 0, "the path loses");
        assert!(small == sum(3, 100) && large == sum(3, 50_000));
    }
}

#[test]
fn a_budget_that_is_learned_is_about_what_operations_take() {
    let budgets = on_all(2, bounded, |group| {
        let run = || in_time(group, 20_000, Budget::Adaptive).0.budget.unwrap();
        (0..10).map(|_| run()).collect::<Vec<_>>()
    });
    for budgets in budgets {
        assert!(budgets[0] > Duration::from_secs(10), "time enough at first");
        assert!(*budgets.last().unwrap() < Duration::from_secs(10), "{budgets:?}");
    }
}

#[test]
fn those_that_are_left_go_on_without_a_rank_that_is_gone() {
    for gone in [0, 1, 3] {
        let found = on_all_groups(4, |group| {
            if group.rank() == gone {
                return None;
            }
            let collective = Collective::AllReduce { count: 1000 };
            let buffers = Box::new(Vectors { input: floats(0, 1000), output: vec![0; 4000] });
            let types = (Element::F32, Op::Sum);
            group.run(&collective, types, buffers, &Options::default()).unwrap_err();
            let group = group.form_again(WAIT).unwrap();
            Some((group.rank(), all_reduce(&group, 1000)))
        });
        let left: Vec<_> = found.into_iter().flatten().collect();
        assert_eq!(left.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(left.iter().all(|(_, bytes)| *bytes == sum(3, 1000)));
    }
}
