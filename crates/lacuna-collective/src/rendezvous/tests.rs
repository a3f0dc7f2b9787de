//! Meetings over loopback.

use super::words::{Answer, Join, PROTOCOL, line};
use super::*;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
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
                    old.again(reserve, places, &known, Duration::from_secs(2)).unwrap()
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
