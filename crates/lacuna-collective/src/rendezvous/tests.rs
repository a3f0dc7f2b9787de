//! Meetings over loopback.

use super::words::{Answer, Join, PROTOCOL, line};
use super::*;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Of this process, until it ends.
fn free_port() -> u16 {
    let held = HeldPort::any(Ipv4Addr::LOCALHOST.into()).unwrap();
    let port = held.address().port();
    std::mem::forget(held);
    port
}

fn meeting(port: u16, rank: usize, ranks: usize) -> Meeting {
    let timeout = Duration::from_secs(60);
    Meeting { host: format!("127.0.0.1:{port}"), rank, ranks, job: "a".to_owned(), timeout }
}

fn listens(rank: usize) -> Places {
    let at = |port: usize| SocketAddr::from((Ipv4Addr::UNSPECIFIED, (port + rank) as u16));
    Places { listens: at(1000), meets: at(2000) }
}

#[test]
fn all_ranks_learn_where_all_are() {
    let port = free_port();
    let rolls: Vec<Roll> = std::thread::scope(|scope| {
        // The host is the last to come.
        let meets: Vec<_> = (0..5)
            .rev()
            .map(|rank| scope.spawn(move || meeting(port, rank, 5).meet(listens(rank)).unwrap()))
            .collect();
        meets.into_iter().rev().map(|meet| meet.join().unwrap()).collect()
    });
    let addresses: Vec<SocketAddr> =
        (0..5).map(|rank| ([127, 0, 0, 1], 1000 + rank).into()).collect();
    let meets: Vec<SocketAddr> = (0..5).map(|rank| ([127, 0, 0, 1], 2000 + rank).into()).collect();
    for (rank, roll) in rolls.iter().enumerate() {
        let (addresses, meets) = (addresses.clone(), meets.clone());
        assert_eq!(roll, &Roll { group: rolls[0].group, rank, addresses, meets });
    }
}

#[test]
fn one_rank_meets_nobody() {
    let roll = meeting(free_port(), 0, 1).meet(listens(0)).unwrap();
    assert_eq!(roll.addresses, [listens(0).listens]);
    assert!(matches!(
        meeting(1, 3, 3).meet(listens(3)),
        Err(MeetingError::Rank { rank: 3, ranks: 3 })
    ));
}

/// Says something to the host, which may not be there yet; what it answers.
fn ask(port: u16, word: &[u8]) -> Option<Answer> {
    let mut stream = loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => break stream,
            Err(_) => std::thread::yield_now(),
        }
    };
    stream.write_all(word).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).ok()?;
    serde_json::from_str(&answer).ok()
}

#[test]
fn who_does_not_belong_is_told_why_and_disturbs_nobody() {
    let port = free_port();
    let join = Join {
        protocol: PROTOCOL.to_owned(),
        job: "a".to_owned(),
        rank: 1,
        ranks: 3,
        listens: listens(1).listens,
        meets: listens(1).meets,
        part: None,
        is_newcomer: false,
    };
    std::thread::scope(|scope| {
        let host = scope.spawn(move || meeting(port, 0, 3).meet(listens(0)).unwrap());
        let refused = |word: &[u8]| match ask(port, word) {
            Some(Answer::Refused { reason }) => reason,
            other => panic!("{other:?}"),
        };
        assert!(refused(&line(&Join { job: "b".to_owned(), ..join.clone() })).contains("job"));
        assert!(refused(&line(&Join { ranks: 4, ..join.clone() })).contains("3 ranks here, not 4"));
        assert!(refused(&line(&Join { rank: 0, ..join.clone() })).contains("cannot join"));
        assert!(
            refused(&line(&Join { protocol: "x".to_owned(), ..join.clone() })).contains("not x")
        );
        assert!(refused(b"GET / HTTP/1.1\r\n\r\n").contains("no word"));
        // One that says too much, and more that say nothing.
        assert_eq!(ask(port, &vec![b'x'; 100_000]), None);
        let silent: Vec<_> =
            (0..300).filter_map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()).collect();
        let first = scope.spawn(move || meeting(port, 1, 3).meet(listens(1)).unwrap());
        // The same rank again is refused once the first is there; before that it would be the first itself.
        let second = scope.spawn(move || meeting(port, 2, 3).meet(listens(2)).unwrap());
        assert_eq!(host.join().unwrap().addresses.len(), 3);
        assert_eq!(first.join().unwrap().rank, 1);
        assert_eq!(second.join().unwrap().rank, 2);
        drop(silent);
    });
}

#[test]
fn who_did_not_come_is_named_to_everybody() {
    let port = free_port();
    let short = |rank| Meeting { timeout: Duration::from_millis(300), ..meeting(port, rank, 4) };
    std::thread::scope(|scope| {
        let host = scope.spawn(move || short(0).meet(listens(0)).unwrap_err());
        let guest = scope.spawn(move || {
            Meeting { timeout: Duration::from_secs(60), ..short(2) }.meet(listens(2)).unwrap_err()
        });
        let host = host.join().unwrap();
        assert!(matches!(&host, MeetingError::Missing { missing, .. } if *missing == [1, 3]));
        let guest = guest.join().unwrap();
        let text = guest.to_string();
        // It may have come too late for the host, which is gone then.
        assert!(
            text.contains("did not come: 1, 3") || matches!(guest, MeetingError::NoHost { .. })
        );
    });
}

#[test]
fn a_host_that_never_comes_ends_the_wait() {
    let short = Meeting { timeout: Duration::ZERO, ..meeting(free_port(), 1, 2) };
    assert!(matches!(short.meet(listens(1)), Err(MeetingError::NoHost { .. })));
}

#[test]
fn the_variables_of_torchrun_make_a_meeting() {
    let make = |pairs: &[(&'static str, &str)]| {
        let map: HashMap<_, _> =
            pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Meeting::from_variables(|name| map.get(name).cloned())
    };
    let base =
        [("MASTER_ADDR", "node0"), ("MASTER_PORT", "29500"), ("RANK", "2"), ("WORLD_SIZE", "8")];
    let meeting = make(&base).unwrap();
    assert_eq!((meeting.host.as_str(), meeting.rank, meeting.ranks), ("node0:29500", 2, 8));
    let elastic = [
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("TORCHELASTIC_RUN_ID", "7"),
        ("TORCHELASTIC_RESTART_COUNT", "1"),
    ];
    let meeting = make(&[&base[..], &elastic[..]].concat()).unwrap();
    assert_eq!((meeting.host.as_str(), meeting.job.as_str()), ("node0:29501", "7.1"));
    let v6 = [("MASTER_ADDR", "fd00::1")];
    assert_eq!(make(&[&base[1..], &v6[..]].concat()).unwrap().host, "[fd00::1]:29500");
    assert_eq!(make(&base[1..]), Err(EnvironmentError::Missing { name: "MASTER_ADDR" }));
    let wrong = make(&[&base[..3], &[("WORLD_SIZE", "many")]].concat());
    assert_eq!(
        wrong,
        Err(EnvironmentError::Number { name: "WORLD_SIZE", value: "many".to_owned() })
    );
}

#[test]
fn those_that_are_left_meet_again_whoever_is_gone() {
    for gone in [vec![2], vec![0], vec![0, 1, 3]] {
        // Each has a socket for it; those of the ones that are gone are closed.
        let reserves: Vec<TcpListener> =
            (0..5).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let meets: Vec<SocketAddr> =
            reserves.iter().map(|reserve| reserve.local_addr().unwrap()).collect();
        let left: Vec<usize> = (0..5).filter(|rank| !gone.contains(rank)).collect();
        let rolls: Vec<Roll> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (rank, reserve) in reserves.into_iter().enumerate() {
                if gone.contains(&rank) {
                    drop(reserve);
                    continue;
                }
                let old = Roll { group: 77, rank, addresses: meets.clone(), meets: meets.clone() };
                // Only one of those that are gone is known to be.
                let known = gone.iter().copied().take(1).collect();
                threads.push(scope.spawn(move || {
                    let places = Places { listens: listens(rank).listens, meets: old.meets[rank] };
                    old.again(reserve, places, &known, None, Duration::from_secs(2)).unwrap()
                }));
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let ports: Vec<u16> = left.iter().map(|rank| 1000 + *rank as u16).collect();
        for (new_rank, roll) in rolls.iter().enumerate() {
            assert_eq!((roll.rank, roll.group), (new_rank, rolls[0].group));
            let found: Vec<u16> = roll.addresses.iter().map(SocketAddr::port).collect();
            assert_eq!(found, ports);
        }
        assert_ne!(rolls[0].group, 77);
    }
}

/// A roll of so many ranks with the sockets that they would meet at.
fn group(ranks: usize) -> (Roll, Vec<TcpListener>) {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let reserves: Vec<TcpListener> = (0..ranks).map(bind).collect();
    let meets: Vec<SocketAddr> =
        reserves.iter().map(|reserve| reserve.local_addr().unwrap()).collect();
    (Roll { group: 77, rank: 0, addresses: meets.clone(), meets }, reserves)
}

#[test]
fn a_split_tells_each_its_own_kind_in_the_order_of_keys() {
    let (roll, reserves) = group(6);
    // Colours 5, 9 and none; keys against the order of ranks, and two that are the same.
    let parts = [(Some(5), 3), (Some(9), 0), (Some(5), -1), (None, 0), (Some(9), 0), (Some(5), 3)];
    let rolls: Vec<Option<Roll>> = std::thread::scope(|scope| {
        let split = |(rank, reserve)| {
            let roll = Roll { rank, ..roll.clone() };
            let part = parts[rank];
            let places = listens(rank);
            scope.spawn(move || {
                roll.split(reserve, places, 0, part, Duration::from_secs(60)).unwrap()
            })
        };
        let threads: Vec<_> = reserves.into_iter().enumerate().map(split).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let members = [(5, vec![2, 0, 5]), (9, vec![1, 4])];
    let mut groups = Vec::new();
    for (_, ranks) in &members {
        let ports: Vec<u16> = ranks.iter().map(|rank| 1000 + *rank as u16).collect();
        for (new_rank, old) in ranks.iter().enumerate() {
            let roll = rolls[*old].as_ref().unwrap();
            assert_eq!(roll.rank, new_rank);
            let found: Vec<u16> = roll.addresses.iter().map(SocketAddr::port).collect();
            assert_eq!(found, ports);
            groups.push(roll.group);
        }
    }
    assert_eq!(rolls[3], None);
    assert!(groups[0] == groups[1] && groups[1] == groups[2] && groups[3] == groups[4]);
    assert!(groups[0] != groups[3] && groups[0] != 77 && groups[3] != 77);
}

#[test]
fn a_split_that_a_rank_does_not_come_to_names_it() {
    let (roll, mut reserves) = group(3);
    let short = Duration::from_millis(300);
    let first = reserves.remove(0);
    std::thread::scope(|scope| {
        let own = roll.clone();
        let host =
            scope.spawn(move || own.split(first, listens(0), 0, (Some(1), 0), short).unwrap_err());
        let other = Roll { rank: 2, ..roll.clone() };
        let reserve = reserves.pop().unwrap();
        let guest = scope.spawn(move || {
            other.split(reserve, listens(2), 0, (Some(1), 0), Duration::from_secs(60)).unwrap_err()
        });
        let host = host.join().unwrap();
        assert!(
            matches!(&host, MeetingError::Missing { missing, .. } if *missing == [1]),
            "{host}"
        );
        let guest = guest.join().unwrap().to_string();
        assert!(guest.contains("did not come: 1"), "{guest}");
    });
}

#[test]
fn a_group_at_another_meeting_lets_its_ranks_wait_and_refuses_strangers() {
    let (roll, mut reserves) = group(2);
    let (second, first) = (reserves.pop().unwrap(), reserves.pop().unwrap());
    let port = roll.meets[0].port();
    let (own, other) = (roll.clone(), Roll { rank: 1, ..roll.clone() });
    std::thread::scope(|scope| {
        let host = scope.spawn(move || {
            let long = Duration::from_secs(60);
            own.split(first, listens(0), 0, (Some(1), 0), long).unwrap().unwrap()
        });
        let join = |job: &str| Join {
            protocol: PROTOCOL.to_owned(),
            job: job.to_owned(),
            rank: 1,
            ranks: 2,
            listens: listens(1).listens,
            meets: listens(1).meets,
            part: None,
            is_newcomer: false,
        };
        let ask = |job: &str| ask(port, &line(&join(job)));
        let own = "lacuna-group/000000000000004d";
        for job in [own, &format!("{own}/split/1")] {
            assert!(matches!(ask(job), Some(Answer::Later { .. })), "{job}");
        }
        for job in ["", "lacuna-group/0", "lacuna-group/000000000000004e/split/0", "lacuna-group/"]
        {
            assert!(matches!(ask(job), Some(Answer::Refused { .. })), "{job}");
        }
        let newcomer = Join { is_newcomer: true, ..join(own) };
        assert!(matches!(super::tests::ask(port, &line(&newcomer)), Some(Answer::Later { .. })));
        let long = Duration::from_secs(60);
        let guest = other.split(second, listens(1), 0, (Some(1), 0), long).unwrap().unwrap();
        let host = host.join().unwrap();
        assert_eq!((host.group, host.rank, guest.rank), (guest.group, 0, 1));
    });
}

#[test]
fn newcomers_come_behind_those_that_are_left_and_need_their_job() {
    let (roll, mut reserves) = group(3);
    let port = free_port();
    // Rank 1 is gone.
    drop(reserves.remove(1));
    let newcomers =
        Newcomers { at: format!("127.0.0.1:{port}"), count: 2, job: "a run".to_owned() };
    let long = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let joining = |job: &str, timeout, listens| {
            // The first place is nobody's.
            let meeting = Meeting::joining(&format!("127.0.0.1:1, 127.0.0.1:{port}"));
            Meeting { job: job.to_owned(), timeout, ..meeting }.meet(listens)
        };
        let first = scope.spawn(move || joining("a run", long, listens(7)).unwrap());
        let second = scope.spawn(move || joining("a run", long, listens(7)).unwrap());
        let stranger = scope
            .spawn(move || joining("another", Duration::from_secs(5), listens(8)).unwrap_err());
        let mut left = Vec::new();
        for (rank, reserve) in [0, 2].into_iter().zip(reserves) {
            let (roll, newcomers) = (Roll { rank, ..roll.clone() }, newcomers.clone());
            let places = Places { listens: listens(rank).listens, meets: roll.meets[rank] };
            left.push(scope.spawn(move || {
                let gone = [1].into_iter().collect();
                roll.again(reserve, places, &gone, Some(&newcomers), long).unwrap()
            }));
        }
        let stranger = stranger.join().unwrap().to_string();
        assert!(stranger.contains("of job \"a run\"") || stranger.contains("nobody answered"));
        let mut rolls: Vec<Roll> = left.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut came = [first.join().unwrap(), second.join().unwrap()];
        came.sort_unstable_by_key(|roll| roll.rank);
        rolls.extend(came);
        for (rank, roll) in rolls.iter().enumerate() {
            assert_eq!((roll.rank, roll.group), (rank, rolls[0].group));
            let ports: Vec<u16> = roll.addresses.iter().map(SocketAddr::port).collect();
            assert_eq!(ports, [1000, 1002, 1007, 1007]);
        }
    });
}

#[test]
fn a_variable_makes_a_rank_join() {
    let read = |name| match name {
        "LACUNA_JOIN" => Some("a:1,b:1".to_owned()),
        "LACUNA_JOB" => Some("a run".to_owned()),
        _ => None,
    };
    let meeting = Meeting::from_variables(read).unwrap();
    assert_eq!((meeting.host.as_str(), meeting.job.as_str()), ("a:1,b:1", "a run"));
    assert_eq!(meeting, Meeting { job: "a run".to_owned(), ..Meeting::joining("a:1,b:1") });
}
