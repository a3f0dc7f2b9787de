//! Datagram queue pairs over real sockets: on threads and with manual progress.

use lacuna::datagram::{
    ControlReason, Done, Ended, Operation, QueuePair, RecvWork, SendWork, Settings, Space, Target,
    Verb,
};
use lacuna::datapath::{Fraction, Impair, Impairment, Loss};
use lacuna::{Context, ContextConfig, Progress, Region, RegionOptions, Rights, Wrap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(60);

fn queue_pair(progress: Progress) -> QueuePair {
    let bind = Ipv4Addr::LOCALHOST.into();
    let context =
        Context::new(ContextConfig { bind, progress, ..ContextConfig::default() }).unwrap();
    context.datagram_queue_pair(&Settings { bind, ..Settings::default() }).unwrap()
}

fn register(end: &QueuePair, bytes: Vec<u8>) -> Region {
    let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
    let options = RegionOptions { rights, ..RegionOptions::default() };
    end.context().register(bytes, options).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at * 7 + (at >> 9)) as u8).collect()
}

/// The next completion of an end; the other one makes progress meanwhile if it has no thread.
fn next(end: &QueuePair, other: &QueuePair) -> Done {
    let begin = Instant::now();
    while begin.elapsed() < WAIT {
        other.progress();
        if let Some(done) = end.wait(Duration::from_micros(200)) {
            return done;
        }
    }
    panic!("nothing ends: {:?} {:?}", end.stats(), other.stats());
}

fn all_operations(progress: Progress) {
    let [near, far] = [(); 2].map(|()| queue_pair(progress));
    let to_far = near.peer(far.local_addr()).unwrap();
    let len = 100_000;
    let data = pattern(len);
    let inbox = register(&far, vec![0; len]);
    let target = register(&far, vec![0; len]);
    let into = register(&near, vec![0; len]);
    let all = 0..len as u64;
    far.post_recv(RecvWork { id: 5, into: inbox.slice(all.clone()).unwrap() }).unwrap();

    near.post_send(SendWork::new(1, to_far, Verb::Send { data: data.clone().into() })).unwrap();
    let done = next(&near, &far);
    assert_eq!((done.id, done.operation, done.status), (1, Operation::Send, Ok(())));
    let done = next(&far, &near);
    let arrived = done.arrived.unwrap();
    assert_eq!((done.id, done.operation, done.bytes), (5, Operation::Receive, len as u64));
    assert_eq!((arrived.source, arrived.ended), (near.local_addr(), Ended::Whole));

    let to = Target { key: target.key(), offset: 0 };
    near.post_send(SendWork::new(2, to_far, Verb::WriteRecord { data: data.clone().into(), to }))
        .unwrap();
    assert_eq!(next(&near, &far).id, 2);
    let done = next(&far, &near);
    let arrived = done.arrived.unwrap();
    assert_eq!((done.operation, arrived.place, arrived.missed), (Operation::Record, Some(to), 0));
    assert_eq!(done.bytes, len as u64);

    let verb = Verb::Read { into: into.slice(all).unwrap(), from: to };
    near.post_send(SendWork::new(3, to_far, verb)).unwrap();
    let done = next(&near, &far);
    assert_eq!((done.id, done.operation, done.bytes), (3, Operation::Read, len as u64));
    for region in [&inbox, &target, &into] {
        let mut bytes = vec![0; len];
        region.read(0, &mut bytes).unwrap();
        assert!(bytes == data);
    }
}

#[test]
fn all_operations_on_threads() {
    all_operations(Progress::default());
}

#[test]
fn all_operations_with_manual_progress() {
    all_operations(Progress::Manual);
}

#[test]
fn errors_are_told_to_both_ends_and_end_nothing() {
    let [near, far] = [(); 2].map(|()| queue_pair(Progress::default()));
    let to_far = near.peer(far.local_addr()).unwrap();
    // Nobody has posted a receive.
    near.post_send(SendWork::new(1, to_far, Verb::Send { data: vec![1; 100].into() })).unwrap();
    let here = far.wait_error(WAIT).unwrap();
    assert_eq!((here.peer, here.reason), (near.local_addr(), ControlReason::NoBuffer));
    let told = near.wait_error(WAIT).unwrap();
    assert!(told.is_told && told.about.space == Space::Sends && told.about == here.about);
    // Memory that is too short for the message.
    let target = register(&far, vec![0; 50]);
    let to = Target { key: target.key(), offset: 0 };
    let verb = Verb::WriteRecord { data: vec![1; 100].into(), to };
    near.post_send(SendWork::new(2, to_far, verb)).unwrap();
    assert_eq!(near.wait_error(WAIT).unwrap().reason, ControlReason::Bounds);
    let verb = Verb::WriteRecord { data: vec![1; 50].into(), to };
    near.post_send(SendWork::new(3, to_far, verb)).unwrap();
    assert_eq!(far.wait(WAIT).unwrap().operation, Operation::Record);
}

#[test]
fn a_read_of_nobody_ends_by_its_deadline() {
    let near = queue_pair(Progress::default());
    let gone: SocketAddr = ([127, 0, 0, 1], 9).into();
    let into = register(&near, vec![0; 10]);
    let verb = Verb::Read { into: into.slice(0..10).unwrap(), from: Target { key: 1, offset: 0 } };
    let peer = near.peer(gone).unwrap();
    let work =
        SendWork { deadline_ns: Some(near.now_ns() + 50_000_000), ..SendWork::new(1, peer, verb) };
    near.post_send(work).unwrap();
    let done = near.wait(WAIT).unwrap();
    assert_eq!((done.id, done.bytes), (1, 0));
    assert_eq!(done.status, Err(lacuna::datagram::Failure::Deadline));
}

#[test]
fn the_wrap_of_a_context_goes_around_the_datapath_of_its_queue_pairs() {
    let links = Arc::new(Mutex::new(Vec::new()));
    let kept = links.clone();
    let wrap: Wrap = Arc::new(move |_, inner| {
        let loss = Loss::Independent(Fraction::always());
        let impaired = Impair::new(inner, Impairment { loss, ..Impairment::default() }, 1);
        kept.lock().unwrap().push(impaired.counters_handle());
        Box::new(impaired)
    });
    let context = Context::new(ContextConfig { wrap: Some(wrap), ..ContextConfig::default() });
    let near = context.unwrap().datagram_queue_pair(&Settings::default()).unwrap();
    let far = queue_pair(Progress::default());
    let to_far = near.peer(far.local_addr()).unwrap();
    near.post_send(SendWork::new(1, to_far, Verb::Send { data: pattern(100).into() })).unwrap();
    assert_eq!(near.wait(WAIT).unwrap().status, Ok(()));
    let lost = || links.lock().unwrap().iter().map(|link| link.read().lost).sum::<u64>();
    let begin = Instant::now();
    while lost() == 0 {
        assert!(begin.elapsed() < WAIT, "no packet went through the wrap");
    }
    assert_eq!((lost(), far.stats().packets_taken), (1, 0));
}
