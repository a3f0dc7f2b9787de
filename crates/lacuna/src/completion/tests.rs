//! Completion queues with pushes of the tests' own.

use super::*;
use crate::config::ConnectionConfig;
use crate::context::{Context, ContextConfig, DatapathKind, Progress};
use lacuna_datapath::MemNetwork;
use lacuna_place::buffer::SendBuffer;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A wake-up that is lost makes a test fail, not slow.
const LONG: Duration = Duration::from_secs(600);

fn context(progress: Progress) -> Context {
    let config = ContextConfig { bind: LOCALHOST.into(), progress, ..ContextConfig::default() };
    Context::new(config).unwrap()
}

fn completion(user_data: u64) -> Completion {
    let outcome = Outcome::Sent(Ok(()));
    Completion { user_data, queue_pair: 1, is_silent: false, outcome }
}

/// What is queued, by `user_data`.
fn poll_all(queue: &CompletionQueue) -> Vec<u64> {
    let mut found = Vec::new();
    while queue.try_poll(&mut found, 2).unwrap() > 0 {}
    found.iter().map(|completion| completion.user_data).collect()
}

#[cfg(unix)]
fn is_readable(queue: &CompletionQueue) -> bool {
    use crate::readiness::{For, source, wait};
    wait([(source(queue), For::Reading)], Some(Duration::ZERO)).unwrap()[0]
}

#[test]
fn entries_are_taken_from_the_reservation_to_the_poll() {
    let context = context(Progress::Manual);
    let queue = context.completion_queue(3).unwrap();
    let mut reservation = queue.reserve(2).unwrap();
    assert_eq!(queue.reserve(2).unwrap_err(), Full { entries: 3, reserved: 2, needed: 2 });
    reservation.push(completion(7), false);
    assert_eq!((queue.len(), queue.reserved(), queue.capacity()), (1, 2, 3));
    drop(reservation);
    assert_eq!(queue.reserved(), 1);
    assert_eq!(poll_all(&queue), [7]);
    assert!(queue.is_empty());
    assert_eq!(queue.reserved(), 0);
    assert!(matches!(context.completion_queue(0), Err(CompletionQueueError::Entries(_))));
}

#[test]
fn a_message_that_nobody_asked_for_is_counted_when_it_finds_no_entry() {
    let context = context(Progress::Manual);
    let queue = context.completion_queue(1).unwrap();
    let mut reservation = queue.try_reserve().unwrap();
    assert!(queue.try_reserve().is_none());
    reservation.push(completion(1), true);
    assert!(queue.try_reserve().is_none(), "the entry is filled");
    assert_eq!(queue.refused(), 2);
    assert_eq!(poll_all(&queue), [1]);
    assert!(queue.try_reserve().is_some());
}

#[cfg(unix)]
#[test]
fn the_descriptor_is_readable_once_per_arming() {
    let context = context(Progress::default());
    let queue = context.completion_queue(9).unwrap();
    let mut reservation = queue.reserve(9).unwrap();
    reservation.push(completion(0), true);
    assert!(!is_readable(&queue));
    assert!(queue.arm(Arm::Solicited).unwrap(), "one is queued");
    assert!(!is_readable(&queue));
    reservation.push(completion(1), false);
    assert!(!is_readable(&queue));
    reservation.push(completion(2), true);
    assert!(is_readable(&queue));
    assert_eq!(poll_all(&queue), [0, 1, 2]);
    assert!(is_readable(&queue), "until it is armed again");
    assert!(!queue.arm(Arm::Any).unwrap());
    assert!(!is_readable(&queue));
    reservation.push(completion(3), false);
    assert!(is_readable(&queue));
}

/// Asynchronous runtimes register descriptors edge-triggered, as mio does.
#[cfg(unix)]
#[test]
fn an_asynchronous_runtime_misses_no_completion() {
    use mio::unix::SourceFd;
    use mio::{Events, Interest, Poll, Token};
    const COUNT: u64 = 10_000;
    let context = context(Progress::default());
    let queue = context.completion_queue(4).unwrap();
    let producer = thread::spawn({
        let queue = queue.clone();
        move || {
            for number in 0..COUNT {
                let mut reservation = loop {
                    match queue.reserve(1) {
                        Ok(reservation) => break reservation,
                        Err(full) => assert!(full.is_retryable()),
                    }
                    thread::yield_now();
                };
                reservation.push(completion(number), true);
            }
            // The last wake-up: the end of the context.
            drop(context);
        }
    });
    let mut poll = Poll::new().unwrap();
    let source = &mut SourceFd(&queue.as_raw_fd());
    poll.registry().register(source, Token(0), Interest::READABLE).unwrap();
    let (mut events, mut found) = (Events::with_capacity(1), Vec::new());
    let end = 'run: loop {
        queue.arm(Arm::Solicited).unwrap();
        loop {
            match queue.try_poll(&mut found, 3) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => break 'run error,
            }
        }
        poll.poll(&mut events, Some(LONG)).unwrap();
        assert!(!events.is_empty(), "a lost wake-up");
    };
    assert_eq!(end, PollError::Closed);
    producer.join().unwrap();
    assert!(found.iter().map(|completion| completion.user_data).eq(0..COUNT));
}

#[test]
fn a_poll_that_sleeps_is_woken_by_a_push_and_by_the_end_of_the_context() {
    let context = context(Progress::default());
    let queue = context.completion_queue(1).unwrap();
    let mut reservation = queue.reserve(1).unwrap();
    thread::scope(|scope| {
        let polls = scope.spawn(|| {
            let mut found = Vec::new();
            assert_eq!(queue.poll(&mut found, 5, LONG), Ok(1));
            assert_eq!(queue.poll(&mut found, 5, LONG), Err(PollError::Closed));
            found[0].user_data
        });
        thread::sleep(Duration::from_millis(20));
        reservation.push(completion(5), false);
        thread::sleep(Duration::from_millis(20));
        drop(context);
        assert_eq!(polls.join().unwrap(), 5);
    });
}

#[test]
fn threads_that_poll_without_end_do_not_keep_the_context_for_each_other() {
    let context = context(Progress::Manual);
    let queue = context.completion_queue(1).unwrap();
    thread::scope(|scope| {
        let poll = || queue.poll(&mut Vec::new(), 5, Duration::MAX);
        let polls: Vec<_> = (0..4).map(|_| scope.spawn(poll)).collect();
        thread::sleep(Duration::from_millis(20));
        drop(context);
        for poll in polls {
            assert_eq!(poll.join().unwrap(), Err(PollError::Closed));
        }
    });
}

#[test]
fn what_is_queued_outlives_the_context() {
    for progress in [Progress::Manual, Progress::default()] {
        let context = context(progress);
        let queue = context.completion_queue(2).unwrap();
        queue.reserve(1).unwrap().push(completion(4), false);
        drop(context);
        let mut found = Vec::new();
        assert_eq!(queue.poll(&mut found, 2, LONG), Ok(1));
        assert_eq!(queue.poll(&mut found, 2, LONG), Err(PollError::Closed));
        assert_eq!(queue.try_poll(&mut found, 2), Err(PollError::Closed));
        assert!(!queue.arm(Arm::Solicited).unwrap());
        #[cfg(unix)]
        assert!(is_readable(&queue));
    }
}

#[test]
fn a_poll_ends_when_its_time_is_over() {
    for progress in [Progress::Manual, Progress::default()] {
        let context = context(progress);
        let queue = context.completion_queue(2).unwrap();
        let before_ns = context.clock().now_ns();
        assert_eq!(queue.poll(&mut Vec::new(), 1, Duration::from_millis(30)), Ok(0));
        assert!(context.clock().now_ns() - before_ns >= 30_000_000);
        assert_eq!(queue.poll(&mut Vec::new(), 1, Duration::ZERO), Ok(0));
        assert_eq!(queue.poll(&mut Vec::new(), 0, LONG), Ok(0));
    }
}

#[test]
fn without_threads_polling_makes_the_progress() {
    let network = MemNetwork::new();
    let [here, there] = [(); 2].map(|()| {
        let config = ContextConfig {
            bind: LOCALHOST.into(),
            datapath: DatapathKind::Mem(network.clone()),
            progress: Progress::Manual,
            ..ContextConfig::default()
        };
        Context::new(config).unwrap()
    });
    let config = ConnectionConfig { mtu_bytes: Some(1024), ..ConnectionConfig::default() };
    let (sender, receiver) =
        (here.queue_pair(&config).unwrap(), there.queue_pair(&config).unwrap());
    sender.connect(&receiver.info(LOCALHOST)).unwrap();
    receiver.connect(&sender.info(LOCALHOST)).unwrap();
    let [here, there] = [here, there].map(|context| context.completion_queue(1).unwrap());
    let posted = receiver.post_recv(vec![0; 5000]).unwrap();
    let sent = sender.send(SendBuffer::new(Arc::new(vec![7; 5000])), None).unwrap();
    let mut found = Vec::new();
    while !(posted.is_complete() && sent.is_done()) {
        assert_eq!(here.try_poll(&mut found, 1), Ok(0));
        assert_eq!(there.poll(&mut found, 1, Duration::from_micros(10)), Ok(0));
    }
}

#[test]
fn a_queue_is_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<CompletionQueue>();
}
