//! Datagram queue pairs over real sockets: on threads and with manual progress.

mod datagrams;

use datagrams::{WAIT, next, pattern, register};
use lacuna::datagram::{
    ControlReason, Done, Ended, Failure, Full, Multicast, Operation, PostError, QueuePair,
    RecvWork, Reliable, SendWork, Settings, Space, Target, ValidMemory, Verb, WorkError,
};
use lacuna::datapath::{Fraction, Impair, Impairment, Loss};
use lacuna::{Completion, Context, ContextConfig, Outcome, Progress, ScopedIp, Wrap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn context(progress: Progress) -> Context {
    let bind = Ipv4Addr::LOCALHOST.into();
    Context::new(ContextConfig { bind, progress, ..ContextConfig::default() }).unwrap()
}

fn made(context: &Context, settings: Settings) -> QueuePair {
    let bind = Ipv4Addr::LOCALHOST.into();
    context.datagram_queue_pair(&Settings { bind, ..settings }).unwrap()
}

fn queue_pair(progress: Progress) -> QueuePair {
    made(&context(progress), Settings::default())
}

fn reliable() -> Settings {
    Settings { reliable: Some(Reliable::default()), ..Settings::default() }
}

fn all_operations(progress: Progress, settings: &Settings) {
    let [near, far] = [(); 2].map(|()| made(&context(progress), settings.clone()));
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
    all_operations(Progress::default(), &Settings::default());
    all_operations(Progress::default(), &reliable());
}

#[test]
fn all_operations_with_manual_progress() {
    all_operations(Progress::Manual, &Settings::default());
    all_operations(Progress::Manual, &reliable());
}

#[test]
fn waiting_with_manual_progress_brings_on_the_other_queue_pairs_of_the_context() {
    let context = context(Progress::Manual);
    let [near, far] = [(); 2].map(|()| made(&context, Settings::default()));
    let memory = register(&far, pattern(5_000));
    let into = register(&near, vec![0; 5_000]);
    let to = near.peer(far.local_addr()).unwrap();
    let from = Target { key: memory.key(), offset: 0 };
    let verb = Verb::Read { into: into.slice(0..5_000).unwrap(), from };
    near.post_send(SendWork::new(1, to, verb)).unwrap();
    let done = near.wait(WAIT).unwrap();
    assert_eq!((done.operation, done.bytes), (Operation::Read, 5_000));
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
    // ValidMemory that is too short for the message.
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
    assert_eq!(done.status, Err(Failure::Deadline));
}

/// The next completion of a queue, which is a datagram queue pair's.
fn next_queued(queue: &lacuna::CompletionQueue) -> Completion {
    let mut found = Vec::new();
    assert_eq!(queue.poll(&mut found, 1, WAIT).unwrap(), 1, "nothing ends");
    found.pop().unwrap()
}

fn done_of(completion: Completion) -> Done {
    match completion.outcome {
        Outcome::Datagram(done) => done,
        other => panic!("{other:?}"),
    }
}

fn queued_operations(progress: Progress, settings: &Settings) {
    let context = context(progress);
    let queue = context.completion_queue(64).unwrap();
    let settings = Settings { completions: Some(queue.clone()), ..settings.clone() };
    let [near, far] = [(); 2].map(|()| made(&context, settings.clone()));
    assert_ne!(near.number(), far.number());
    let to_far = near.peer(far.local_addr()).unwrap();
    let target = register(&far, vec![0; 5_000]);
    let to = Target { key: target.key(), offset: 0 };
    let inbox = register(&far, vec![0; 100]);
    far.post_recv(RecvWork { id: 9, into: inbox.slice(0..100).unwrap() }).unwrap();
    let works = [
        Verb::WriteRecord { data: vec![3; 5_000].into(), to },
        Verb::Send { data: vec![4; 100].into() },
        Verb::WriteRecord { data: vec![5; 10].into(), to },
    ];
    for (id, verb) in works.into_iter().enumerate() {
        let work = SendWork { is_signaled: id != 2, ..SendWork::new(id as u64, to_far, verb) };
        near.post_send(work).unwrap();
    }
    let mut seen: Vec<_> = (0..5)
        .map(|_| {
            let completion = next_queued(&queue);
            let at =
                [near.number(), far.number()].iter().position(|at| *at == completion.queue_pair);
            let (id, done) = (completion.user_data, done_of(completion));
            assert_eq!((done.id, done.status), (id, Ok(())));
            (at.unwrap(), done.operation as u8, id, done.bytes)
        })
        .collect();
    seen.sort_unstable();
    let mut expected = [
        (0, Operation::WriteRecord as u8, 0, 5_000),
        (0, Operation::Send as u8, 1, 100),
        (1, Operation::Receive as u8, 9, 100),
        (1, Operation::Record as u8, 0, 5_000),
        (1, Operation::Record as u8, 0, 10),
    ];
    expected.sort_unstable();
    assert_eq!(seen, expected);
    // What was posted goes with the queue pair, and the queue is told.
    far.post_recv(RecvWork { id: 10, into: inbox.slice(0..100).unwrap() }).unwrap();
    drop(far);
    let completion = next_queued(&queue);
    assert_eq!(completion.user_data, 10);
    assert_eq!(done_of(completion).status, Err(Failure::Flushed));
    drop(near);
    assert_eq!((queue.len(), queue.reserved()), (0, 0));
}

#[test]
fn work_and_what_comes_complete_into_a_queue() {
    for progress in [Progress::default(), Progress::Manual] {
        queued_operations(progress, &Settings::default());
        queued_operations(progress, &reliable());
    }
}

#[test]
fn a_full_queue_refuses_work_and_drops_records_that_it_cannot_tell_of() {
    let context = context(Progress::default());
    let queue = context.completion_queue(2).unwrap();
    let settings = Settings { completions: Some(queue.clone()), ..Settings::default() };
    let far = made(&context, settings);
    let near = queue_pair(Progress::default());
    let target = register(&far, vec![0; 100]);
    let to = Target { key: target.key(), offset: 0 };
    let inbox = register(&far, vec![0; 100]);
    for id in 0..2 {
        far.post_recv(RecvWork { id, into: inbox.slice(0..100).unwrap() }).unwrap();
    }
    let full = far.post_recv(RecvWork { id: 2, into: inbox.slice(0..100).unwrap() });
    assert!(matches!(full, Err(PostError::Full(Full { .. }))), "{full:?}");
    let to_far = near.peer(far.local_addr()).unwrap();
    let record = || Verb::WriteRecord { data: vec![1; 100].into(), to };
    near.post_send(SendWork::new(1, to_far, record())).unwrap();
    let error = near.wait_error(WAIT).unwrap();
    assert_eq!(error.reason, ControlReason::Busy);
    assert_eq!(far.stats().discards.busy, 1);
    // A receive is over, and its entry free again.
    near.post_send(SendWork::new(2, to_far, Verb::Send { data: vec![2; 10].into() })).unwrap();
    assert_eq!(done_of(next_queued(&queue)).operation, Operation::Receive);
    near.post_send(SendWork::new(3, to_far, record())).unwrap();
    assert_eq!(done_of(next_queued(&queue)).operation, Operation::Record);
}

#[test]
fn memory_can_be_polled_instead_of_messages() {
    let [near, far] = [(); 2].map(|()| queue_pair(Progress::default()));
    let to_far = near.peer(far.local_addr()).unwrap();
    let target = register(&far, vec![0; 1_000]);
    let inbox = register(&far, vec![0; 10]);
    far.post_recv(RecvWork { id: 4, into: inbox.slice(0..10).unwrap() }).unwrap();
    for offset in [0, 100, 500] {
        let to = Target { key: target.key(), offset };
        let verb = Verb::WriteRecord { data: vec![1; 100].into(), to };
        near.post_send(SendWork::new(0, to_far, verb)).unwrap();
    }
    near.post_send(SendWork::new(1, to_far, Verb::Send { data: vec![2; 10].into() })).unwrap();
    let mut memory = ValidMemory::default();
    let done = far.poll_memory(&mut memory, WAIT).unwrap();
    assert_eq!(done.id, 4);
    assert_eq!(memory.written(target.key()).collect::<Vec<_>>(), [0..200, 500..600]);
    assert_eq!(memory.take(target.key()).iter().len(), 2);
    assert_eq!(memory.written(target.key()).count(), 0);
}

#[test]
fn a_reliable_peer_that_is_not_there_ends_what_was_posted_and_is_in_error() {
    let silence = Duration::from_millis(100);
    let settings = Reliable { silence, ..Reliable::default() };
    let near =
        made(&context(Progress::default()), Settings { reliable: Some(settings), ..reliable() });
    let gone = near.peer(([127, 0, 0, 1], 9).into()).unwrap();
    let work = SendWork::new(1, gone, Verb::Send { data: vec![1; 10].into() });
    near.post_send(work.clone()).unwrap();
    assert_eq!(near.wait(WAIT).unwrap().status, Err(Failure::Unreachable));
    let refused = near.post_send(work.clone());
    assert_eq!(refused, Err(PostError::Work(WorkError::Failed(Failure::Unreachable))));
    near.reset(gone);
    near.post_send(work).unwrap();
    assert_eq!(near.wait(WAIT).unwrap().status, Err(Failure::Unreachable));
}

#[test]
fn what_is_sent_to_a_group_comes_to_all_that_joined_it() {
    // The loopback interface.
    let interface = 1;
    let multicast = Multicast { interface, ..Multicast::default() };
    let settings = || Settings { bind: ScopedIp::ANY, multicast, ..Settings::default() };
    let contexts = [(); 3].map(|()| context(Progress::default()));
    let first = contexts[0].datagram_queue_pair(&settings()).unwrap();
    let port = first.local_addr().port();
    let group: IpAddr = [239, 77, 1, 2].into();
    if let Err(error) = first.join(group, interface) {
        println!("skipped: no multicast here: {error}");
        return;
    }
    let sender = contexts[1].datagram_queue_pair(&settings()).unwrap();
    let to = sender.group(SocketAddr::new(group, port)).unwrap();
    let inbox = register(&first, vec![0; 3_000]);
    let target = register(&first, vec![0; 3_000]);
    first.name_region(77, Some(target.key()));
    first.post_recv(RecvWork { id: 1, into: inbox.slice(0..3_000).unwrap() }).unwrap();
    let data = pattern(3_000);
    sender.post_send(SendWork::new(1, to, Verb::Send { data: data.clone().into() })).unwrap();
    let Some(done) = first.wait(Duration::from_secs(5)) else {
        println!("skipped: multicast does not come over the loopback interface here");
        return;
    };
    assert_eq!((done.id, done.operation, done.bytes), (1, Operation::Receive, 3_000));
    assert_eq!(done.arrived.unwrap().source.port(), sender.local_addr().port());
    let verb = Verb::WriteNamed { data: data.clone().into(), name: 77, offset: 0 };
    sender.post_send(SendWork::new(2, to, verb)).unwrap();
    assert_eq!(first.wait(WAIT).unwrap().operation, Operation::Record);
    for region in [&inbox, &target] {
        let mut bytes = vec![0; 3_000];
        region.read(0, &mut bytes).unwrap();
        assert!(bytes == data);
    }
    first.leave(group, interface).unwrap();
    assert!(first.leave(group, interface).is_err());
}

#[test]
fn a_host_answers_from_the_address_that_was_asked() {
    let asked: [SocketAddr; 2] = [2, 3].map(|host| ([127, 0, 0, host], 0).into());
    let far = context(Progress::default());
    let far = far.datagram_queue_pair(&Settings { bind: ScopedIp::ANY, ..Settings::default() });
    let far = far.unwrap();
    let near = queue_pair(Progress::default());
    let memory = register(&far, pattern(100));
    let into = register(&near, vec![0; 100]);
    for mut to in asked {
        to.set_port(far.local_addr().port());
        let peer = near.peer(to).unwrap();
        let from = Target { key: memory.key(), offset: 0 };
        let verb = Verb::Read { into: into.slice(0..100).unwrap(), from };
        let deadline_ns = Some(near.now_ns() + WAIT.as_nanos() as u64);
        near.post_send(SendWork { deadline_ns, ..SendWork::new(1, peer, verb) }).unwrap();
        // An answer from another address would be nobody's.
        assert_eq!(near.wait(WAIT).unwrap().status, Ok(()));
    }
}

#[test]
fn several_workers_on_one_port_take_what_many_peers_send() {
    let far = context(Progress::default());
    let far = made(&far, Settings { workers: 3, ..Settings::default() });
    let inbox = register(&far, vec![0; 1000]);
    for id in 0..100 {
        let into = inbox.slice(id * 10..id * 10 + 10).unwrap();
        far.post_recv(RecvWork { id, into }).unwrap();
    }
    let near = context(Progress::default());
    let peers: Vec<_> = (0..10).map(|_| made(&near, Settings::default())).collect();
    for peer in &peers {
        let to = peer.peer(far.local_addr()).unwrap();
        for _ in 0..10 {
            peer.post_send(SendWork::new(0, to, Verb::Send { data: vec![1; 10].into() })).unwrap();
        }
    }
    let mut sources = std::collections::HashMap::new();
    for _ in 0..100 {
        let arrived = far.wait(WAIT).unwrap().arrived.unwrap();
        *sources.entry(arrived.source).or_insert(0) += 1;
    }
    assert_eq!(sources.len(), 10);
    assert!(sources.values().all(|count| *count == 10), "{sources:?}");
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
    let settings = Settings { controller: None, ..Settings::default() };
    let near = context.unwrap().datagram_queue_pair(&settings).unwrap();
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
