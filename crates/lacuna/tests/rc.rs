//! Reliable connections over real sockets: on threads and with manual progress.

use lacuna::rc::{
    Done, Error, Failure, Flags, Operation, PostError, QpState, QueuePair, RecvWork, Remote,
    SendWork, Settings, SharedReceives, ShimSettings, Status, Verb,
};
use lacuna::trust::{Token, Trust};
use lacuna::{
    Completion, CompletionQueue, Context, ContextConfig, Outcome, Progress, QueuePairError, Region,
    RegionOptions, Rights, Security, Wire,
};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

fn context(progress: Progress) -> Context {
    let bind = Ipv4Addr::LOCALHOST.into();
    Context::new(ContextConfig { bind, progress, ..ContextConfig::default() }).unwrap()
}

/// The same with a token.
fn secure_context(progress: Progress, token: &Token) -> Context {
    let (bind, security) = (Ipv4Addr::LOCALHOST.into(), Security::Keys(Trust::of_token(token)));
    Context::new(ContextConfig { bind, progress, security, ..ContextConfig::default() }).unwrap()
}

/// Two ends that are connected, each on a context of its own.
fn pair(progress: Progress, settings: &Settings) -> [QueuePair; 2] {
    let token = Token::generate().unwrap();
    let ends = [(); 2].map(|()| {
        let context = match settings.wire {
            Wire::Sealed => secure_context(progress, &token),
            Wire::Short | Wire::Rdma => context(progress),
        };
        context.rc_queue_pair(settings).unwrap()
    });
    let infos = ends.each_ref().map(|end| end.info(Ipv4Addr::LOCALHOST.into()));
    ends[0].connect(&infos[1]).unwrap();
    ends[1].connect(&infos[0]).unwrap();
    ends
}

fn register(end: &QueuePair, bytes: Vec<u8>) -> Region {
    let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
    let options = RegionOptions { rights, ..RegionOptions::default() };
    end.context().register(bytes, options).unwrap()
}

fn post(end: &QueuePair, id: u64, verb: Verb) {
    end.post_send(SendWork { id, verb, flags: Flags::default() }).unwrap();
}

/// The next completion of an end; the other one makes progress meanwhile if it has no threads.
fn next(end: &QueuePair, other: &QueuePair) -> Done {
    for _ in 0..600_000 {
        other.context().progress();
        if let Some(done) = end.wait(Duration::from_millis(if is_manual(end) { 0 } else { 100 })) {
            return done;
        }
        end.context().progress();
    }
    panic!("nothing ends: {:?}", end.stats());
}

fn is_manual(end: &QueuePair) -> bool {
    end.context().config().progress == Progress::Manual
}

fn all_operations(progress: Progress) {
    let shim: ShimSettings = "lowar:8:2".parse().unwrap();
    for (mtu_bytes, wire, shim) in [
        (256, Wire::Short, ShimSettings::default()),
        (1024, Wire::Rdma, ShimSettings::default()),
        (1024, Wire::Rdma, shim),
        (4096, Wire::Short, shim),
        (1024, Wire::Sealed, ShimSettings::Off),
        (4096, Wire::Sealed, shim),
    ] {
        let settings = Settings { mtu_bytes, wire, shim, ..Settings::default() };
        let [near, far] = pair(progress, &settings);
        assert_eq!((near.wire(), far.wire()), (wire, wire));
        let data: Vec<u8> = (0..500_000u32).map(|at| (at * 7 + (at >> 9)) as u8).collect();
        let target = register(&far, vec![0; data.len()]);
        let inbox = register(&far, vec![0; data.len()]);
        let into = register(&near, vec![0; data.len()]);
        let all = 0..data.len() as u64;
        far.post_recv(RecvWork { id: 4, into: inbox.slice(all.clone()).unwrap() }).unwrap();
        let remote = Remote { address: 0, key: target.key() };
        post(&near, 1, Verb::Write { data: data.clone().into(), remote, immediate: None });
        post(&near, 2, Verb::Send { data: data.clone().into(), immediate: Some(9) });
        post(&near, 3, Verb::Read { into: into.slice(all).unwrap(), remote });
        for (id, operation) in [(1, Operation::Write), (2, Operation::Send), (3, Operation::Read)] {
            let done = next(&near, &far);
            let bytes = data.len() as u64;
            assert_eq!((done.id, done.operation, done.bytes), (id, operation, bytes));
            assert_eq!(done.status, Ok(()), "{:?}", near.stats());
        }
        let done = next(&far, &near);
        assert_eq!((done.id, done.status, done.bytes), (4, Ok(()), data.len() as u64));
        assert_eq!(done.received.unwrap().immediate, Some(9));
        for region in [&target, &inbox, &into] {
            let mut bytes = vec![0; data.len()];
            region.read(0, &mut bytes).unwrap();
            assert!(bytes == data);
        }
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
fn a_context_with_a_token_encrypts_whatever_is_asked_for_but_rdma() {
    let token = Token::generate().unwrap();
    let here = secure_context(Progress::default(), &token);
    let end = here.rc_queue_pair(&Settings::default()).unwrap();
    assert_eq!(end.wire(), Wire::Sealed);
    let rdma = Settings { wire: Wire::Rdma, ..Settings::default() };
    let error = here.rc_queue_pair(&rdma).unwrap_err();
    let is_clear = |error: &Error| {
        matches!(error, Error::QueuePair(QueuePairError::ClearWire { wire: Wire::Rdma }))
    };
    assert!(is_clear(&error), "{error}");
    let sealed = Settings { wire: Wire::Sealed, ..Settings::default() };
    let error = context(Progress::default()).rc_queue_pair(&sealed).unwrap_err();
    assert!(matches!(error, Error::QueuePair(QueuePairError::NoTrust)), "{error}");
}

#[test]
fn an_end_with_a_token_and_one_without_refuse_each_other_in_words() {
    let token = Token::generate().unwrap();
    let secure = secure_context(Progress::default(), &token);
    let secure = secure.rc_queue_pair(&Settings::default()).unwrap();
    let clear = context(Progress::default()).rc_queue_pair(&Settings::default()).unwrap();
    let [of_secure, of_clear] = [&secure, &clear].map(|end| end.info(Ipv4Addr::LOCALHOST.into()));
    let error = secure.connect(&of_clear).unwrap_err().to_string();
    assert!(error.contains("of an end in clear"), "{error}");
    let error = clear.connect(&of_secure).unwrap_err().to_string();
    assert!(error.contains("of an end that encrypts"), "{error}");
    let error = secure.connect(&of_secure).unwrap_err().to_string();
    assert!(error.contains("this end's own"), "{error}");
    // Nothing has changed by it.
    let other = secure.context().rc_queue_pair(&Settings::default()).unwrap();
    secure.connect(&other.info(Ipv4Addr::LOCALHOST.into())).unwrap();
}

#[test]
fn in_clear_nobody_off_this_host_is_spoken_to_unless_a_program_says_so() {
    let far = "203.0.113.7".parse().unwrap();
    let connect = |security| {
        let config = ContextConfig { security, ..ContextConfig::default() };
        let ends = [(); 2].map(|()| {
            Context::new(config.clone()).unwrap().rc_queue_pair(&Settings::default()).unwrap()
        });
        ends[0].connect(&ends[1].info(far))
    };
    let error = connect(Security::FromEnvironment).unwrap_err();
    let is_it =
        matches!(&error, Error::QueuePair(QueuePairError::NobodyTrusted { peer }) if *peer == far);
    assert!(is_it, "{error}");
    connect(Security::Insecure).unwrap();
}

#[test]
fn ends_that_differ_or_are_connected_twice_are_refused() {
    let here = context(Progress::default());
    let ends = [1024, 2048]
        .map(|mtu_bytes| Settings { mtu_bytes, ..Settings::default() })
        .map(|settings| here.rc_queue_pair(&settings).unwrap());
    let infos = ends.each_ref().map(|end| end.info(Ipv4Addr::LOCALHOST.into()));
    let error = ends[0].connect(&infos[1]).unwrap_err();
    assert!(matches!(error, Error::Mtu { here: 1024, there: 2048 }), "{error}");
    assert!(matches!(ends[0].connect(b"nonsense").unwrap_err(), Error::Info(_)));
    // To itself, which is possible.
    ends[0].connect(&infos[0]).unwrap();
    let error = ends[0].connect(&infos[0]).unwrap_err();
    assert!(matches!(error, Error::State { state: QpState::ReadyToSend }), "{error}");
    let settings = Settings { mtu_bytes: 1026, ..Settings::default() };
    assert!(matches!(here.rc_queue_pair(&settings).unwrap_err(), Error::Settings(_)));
}

#[test]
fn closing_gives_back_what_was_posted() {
    let [near, far] = pair(Progress::default(), &Settings::default());
    let inbox = register(&near, vec![0; 10]);
    near.post_recv(RecvWork { id: 1, into: inbox.slice(0..10).unwrap() }).unwrap();
    // The peer has no receive: this waits.
    post(&near, 2, Verb::Send { data: vec![1; 10].into(), immediate: None });
    near.close();
    let mut ids = [(); 2].map(|()| {
        let done = near.wait(WAIT).unwrap();
        assert_eq!(done.status, Err(Failure::Flushed));
        done.id
    });
    ids.sort_unstable();
    assert_eq!((ids, near.state()), ([1, 2], QpState::Error));
    drop(far);
}

#[test]
fn a_peer_that_is_gone_ends_the_connection_after_the_retries() {
    let settings = Settings { retry_count: 1, ..Settings::default() };
    let [near, far] = pair(Progress::default(), &settings);
    drop(far);
    post(&near, 1, Verb::Send { data: vec![1; 10].into(), immediate: None });
    let done = near.wait(WAIT).unwrap();
    assert_eq!(done.status, Err(Failure::RetryExceeded { retries: 1 }));
}

/// Polls until this many completions are there; fewer if they do not come.
fn take(queue: &CompletionQueue, count: usize) -> Vec<Completion> {
    let mut came = Vec::new();
    let begin = std::time::Instant::now();
    while came.len() < count && begin.elapsed() < WAIT {
        queue.poll(&mut came, count, Duration::from_secs(1)).unwrap();
    }
    came
}

fn verb(completion: &Completion) -> (u64, Operation, Status) {
    match completion.outcome {
        Outcome::Verb(done) => (completion.user_data, done.operation, done.status),
        _ => panic!("{completion:?}"),
    }
}

/// What is there.
fn take_now(queue: &CompletionQueue) -> Vec<(u64, Operation, Status)> {
    let mut came = Vec::new();
    queue.try_poll(&mut came, 100).unwrap();
    came.iter().map(verb).collect()
}

#[test]
fn work_of_several_connections_completes_into_one_queue() {
    let [near, far] = [(); 2].map(|()| context(Progress::default()));
    let [near_queue, far_queue] =
        [&near, &far].map(|context| context.completion_queue(64).unwrap());
    let receives = Arc::new(SharedReceives::new(Some(&far_queue)));
    let near_settings = Settings { completions: Some(near_queue.clone()), ..Settings::default() };
    let far_settings = Settings {
        completions: Some(far_queue.clone()),
        receives: Some(receives.clone()),
        ..Settings::default()
    };
    let pairs: Vec<[QueuePair; 2]> = (0..3)
        .map(|_| {
            let ends = [near.rc_queue_pair(&near_settings), far.rc_queue_pair(&far_settings)]
                .map(Result::unwrap);
            let infos = ends.each_ref().map(|end| end.info(Ipv4Addr::LOCALHOST.into()));
            ends[0].connect(&infos[1]).unwrap();
            ends[1].connect(&infos[0]).unwrap();
            ends
        })
        .collect();
    let inbox = register(&pairs[0][1], vec![0; 3000]);
    for id in 0..3 {
        receives
            .post(RecvWork { id, into: inbox.slice(id * 1000..id * 1000 + 1000).unwrap() })
            .unwrap();
    }
    for (id, [end, _]) in (10..).zip(&pairs) {
        post(end, id, Verb::Send { data: vec![id as u8; 700].into(), immediate: None });
    }
    let mut sent: Vec<_> = take(&near_queue, 3).iter().map(verb).collect();
    sent.sort_by_key(|(id, ..)| *id);
    assert_eq!(sent, [10, 11, 12].map(|id| (id, Operation::Send, Ok(()))));
    let came = take(&far_queue, 3);
    let mut ids: Vec<_> = came.iter().map(|completion| verb(completion).0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2]);
    let mut numbers: Vec<_> = came.iter().map(|completion| completion.queue_pair).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "each says which connection took it");
    assert_eq!((near_queue.reserved(), far_queue.reserved()), (0, 0));
    assert_eq!(pairs[0][0].poll(), None);
}

#[test]
fn a_completion_queue_never_overruns_and_work_without_completion_gives_its_entry_back() {
    let [near, far] = [(); 2].map(|()| context(Progress::default()));
    let queue = near.completion_queue(2).unwrap();
    let settings = Settings { completions: Some(queue.clone()), ..Settings::default() };
    let end = near.rc_queue_pair(&settings).unwrap();
    let peer = far.rc_queue_pair(&Settings::default()).unwrap();
    let infos = [&end, &peer].map(|end| end.info(Ipv4Addr::LOCALHOST.into()));
    let target = register(&peer, vec![0; 100]);
    let inbox = register(&end, vec![0; 100]);
    let remote = Remote { address: 0, key: target.key() };
    let write = |id| {
        let verb = Verb::Write { data: vec![7; 100].into(), remote, immediate: None };
        SendWork { id, verb, flags: Flags::default() }
    };
    // Nothing ends before the peer is connected, too.
    end.connect(&infos[1]).unwrap();
    end.post_recv(RecvWork { id: 1, into: inbox.slice(0..100).unwrap() }).unwrap();
    end.post_send(write(2)).unwrap();
    let full = end.post_send(write(3)).unwrap_err();
    assert!(matches!(full, PostError::Full(full) if full.is_retryable()), "{full}");
    peer.connect(&infos[0]).unwrap();
    assert_eq!(verb(&take(&queue, 1)[0]), (2, Operation::Write, Ok(())));
    for id in 4..50 {
        let silent = Flags { is_signaled: false, ..Flags::default() };
        // Those before it end without a completion, and their entries come back.
        let begin = std::time::Instant::now();
        while let Err(error) = end.post_send(SendWork { flags: silent, ..write(id) }) {
            assert!(matches!(error, PostError::Full(_)) && begin.elapsed() < WAIT, "{error}");
            std::thread::yield_now();
        }
    }
    // The last write may not be done; then it is flushed, too.
    drop(end);
    let ended = take(&queue, 1).iter().map(verb).chain(take_now(&queue)).collect::<Vec<_>>();
    assert_eq!(ended.last(), Some(&(1, Operation::Receive, Err(Failure::Flushed))));
    assert!(ended.iter().all(|(.., status)| *status == Err(Failure::Flushed)), "{ended:?}");
}

#[test]
fn shared_receives_and_their_queue_pairs_agree_on_completion_queues() {
    let context = context(Progress::Manual);
    let queue = context.completion_queue(4).unwrap();
    for (completes, queue_pair_completes) in [(true, false), (false, true)] {
        let receives = SharedReceives::new(completes.then_some(&queue));
        let settings = Settings {
            receives: Some(Arc::new(receives)),
            completions: queue_pair_completes.then(|| queue.clone()),
            ..Settings::default()
        };
        assert!(matches!(context.rc_queue_pair(&settings), Err(Error::Completions)));
    }
}
