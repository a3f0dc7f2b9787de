//! Groups that come from other ones, over real sockets: split by colour, without ranks that are gone, with newcomers.

use lacuna_collective::rendezvous::{HeldPort, Meeting, MeetingError};
use lacuna_collective::{
    Collective, Element, Group, GroupConfig, GroupError, Op, Operation, OperationError, Options,
    Vectors,
};
use std::net::Ipv4Addr;
use std::sync::Barrier;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);
const COUNT: usize = 50_000;

/// Of this process, until it ends.
fn free_port() -> u16 {
    let held = HeldPort::any(Ipv4Addr::LOCALHOST.into()).unwrap();
    let port = held.address().port();
    std::mem::forget(held);
    port
}

fn config(meeting: Meeting) -> GroupConfig {
    let meeting = Meeting { job: "a run".to_owned(), timeout: WAIT, ..meeting };
    GroupConfig { bind: Ipv4Addr::LOCALHOST.into(), ..GroupConfig::new(meeting) }
}

fn on_all<R: Send>(ranks: usize, run: impl Fn(Group) -> R + Sync) -> Vec<R> {
    let port = free_port();
    std::thread::scope(|scope| {
        let start = |rank| {
            let run = &run;
            let host = format!("127.0.0.1:{port}");
            let meeting = Meeting { host, rank, ranks, job: String::new(), timeout: WAIT };
            scope.spawn(move || run(Group::form(&config(meeting)).unwrap()))
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Starts the sum of a value over the ranks.
fn start(group: &Group, value: usize) -> Result<Operation<'_>, OperationError> {
    let input: Vec<u8> = (value as u32).to_le_bytes().repeat(COUNT);
    let buffers = Box::new(Vectors { input, output: vec![0; 4 * COUNT] });
    let types = (Element::U32, Op::Sum);
    group.start(&Collective::AllReduce { count: COUNT }, types, buffers, &Options::default())
}

fn sum(operation: Operation<'_>) -> Result<u32, OperationError> {
    let outcome = operation.wait()?;
    let (elements, rest) = outcome.buffers.output().as_chunks::<4>();
    assert!(rest.is_empty() && elements.iter().all(|element| *element == elements[0]));
    Ok(u32::from_le_bytes(elements[0]))
}

#[test]
fn ranks_of_one_colour_compute_together_beside_the_group_that_they_come_from() {
    for ranks in [4, 6] {
        let found = on_all(ranks, |group| {
            let old = group.rank();
            // Two by two in the order that ranks have, and all odd or even ones in the reverse one.
            let pair = group.split(Some(old as u64 / 2), 0).unwrap().unwrap();
            let half = group.split(Some(old as u64 % 2), -(old as i64)).unwrap().unwrap();
            // Operations of all three go on at once, and end in another order.
            let rounds: Vec<_> = (0..5)
                .map(|round| {
                    let all = start(&group, old + round).unwrap();
                    let of_pair = start(&pair, old + round).unwrap();
                    let of_half = start(&half, old + round).unwrap();
                    [of_half, all, of_pair].map(|operation| sum(operation).unwrap())
                })
                .collect();
            ((pair.rank(), pair.ranks()), (half.rank(), half.ranks()), rounds)
        });
        for (old, (pair, half, rounds)) in found.into_iter().enumerate() {
            assert_eq!(pair, (old % 2, 2));
            assert_eq!(half, ((ranks - 1 - old) / 2, ranks / 2));
            for (round, [of_half, all, of_pair]) in rounds.into_iter().enumerate() {
                let of = |members: &dyn Fn(usize) -> bool| {
                    (0..ranks).filter(|rank| members(*rank)).map(|rank| rank + round).sum::<usize>()
                };
                assert_eq!(all as usize, of(&|_| true));
                assert_eq!(of_pair as usize, of(&|rank| rank / 2 == old / 2));
                assert_eq!(of_half as usize, of(&|rank| rank % 2 == old % 2));
            }
        }
    }
}

#[test]
fn a_group_that_fails_does_nothing_to_the_others() {
    let ranks = 4;
    let has_left = Barrier::new(ranks);
    let found = on_all(ranks, |group| {
        let old = group.rank();
        // Rank 3 has no part in it, and stays in the other.
        let three = group.split((old < 3).then_some(0), 0).unwrap();
        let all = group.split(Some(0), 0).unwrap().unwrap();
        let Some(three) = three else {
            has_left.wait();
            return (None, sum(start(&all, 1).unwrap()).unwrap());
        };
        if old == 1 {
            drop(three);
            has_left.wait();
            return (None, sum(start(&all, 1).unwrap()).unwrap());
        }
        has_left.wait();
        let beside = start(&all, 1).unwrap();
        let error = start(&three, 1).and_then(sum).unwrap_err();
        assert!(matches!(three.split(Some(0), 0), Err(GroupError::Failed(_))));
        let beside = sum(beside).unwrap();
        // The one that has failed is formed again; the other two are as they were.
        let two = three.form_again(WAIT).unwrap();
        assert_eq!((two.ranks(), sum(start(&two, 1).unwrap()).unwrap()), (2, 2));
        (Some(error), beside)
    });
    for (error, beside) in found {
        assert_eq!(beside, 4);
        assert!(error.is_none_or(|error| error.to_string().contains("rank 1")));
    }
}

#[test]
fn a_group_that_lost_a_rank_takes_in_a_newcomer() {
    let port = free_port();
    let found = std::thread::scope(|scope| {
        let newcomer = scope.spawn(move || {
            let meeting = Meeting::joining(&format!("127.0.0.1:{port}"));
            let group = Group::form(&config(meeting)).unwrap();
            assert_eq!((group.rank(), group.ranks()), (2, 3));
            sum(start(&group, 10).unwrap()).unwrap()
        });
        let mut found = on_all(3, |group| {
            let old = group.rank();
            if old == 1 {
                return None;
            }
            start(&group, 1).and_then(sum).unwrap_err();
            let group = group.form_again(WAIT).unwrap();
            assert_eq!((group.rank(), group.ranks()), (old / 2, 2));
            assert_eq!(sum(start(&group, 1).unwrap()).unwrap(), 2);
            // It need not fail to take somebody in.
            let group = group.form_with(&format!("127.0.0.1:{port}"), 1, WAIT).unwrap();
            assert_eq!((group.rank(), group.ranks()), (old / 2, 3));
            Some(sum(start(&group, 1).unwrap()).unwrap())
        });
        found.push(Some(newcomer.join().unwrap()));
        found
    });
    assert_eq!(found, [Some(12), None, Some(12), Some(12)]);
}

#[test]
fn a_newcomer_that_nobody_takes_in_is_told_where_it_waited() {
    let port = free_port();
    let meeting = Meeting::joining(&format!("127.0.0.1:{port}"));
    let mut config = config(meeting);
    config.meeting.timeout = Duration::ZERO;
    let error = Group::form(&config).unwrap_err();
    let is_told = matches!(&error, GroupError::Meeting(MeetingError::NoHost { host, .. })
        if host.ends_with(&port.to_string()));
    assert!(is_told, "{error}");
}
