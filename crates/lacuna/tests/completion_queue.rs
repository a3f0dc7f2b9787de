//! Completion queues end to end: sends, receives and writes of several connections complete into one queue,
//! in order, with their user data, also when they fail.

use lacuna::{
    Arm, Completion, CompletionQueue, CompletionQueueError, Connection, ConnectionConfig, Context,
    ContextConfig, Listener, Outcome, Progress, QueueError, QueuedSend, Reason, RecvOptions,
    RegionOptions, SendFailure, Target,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Ends what would hang; no test asserts a time.
const LONG: Duration = Duration::from_secs(20);

fn context(progress: Progress) -> Context {
    let config = ContextConfig { bind: LOCALHOST.into(), progress, ..ContextConfig::default() };
    Context::new(config).unwrap()
}

fn connected(here: &Context, there: &Context, mode: &str) -> (Connection, Connection) {
    let config = ConnectionConfig {
        mode: mode.parse().unwrap(),
        one_sided: true,
        deadline: LONG,
        ..ConnectionConfig::default()
    };
    let plain = ConnectionConfig::default();
    let listener = Listener::bind(there, (LOCALHOST, 0).into(), plain).unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(move || listener.accept().unwrap());
        let connected = Connection::connect(here, address, config).unwrap();
        (connected, accepting.join().unwrap())
    })
}

/// Polls until `count` completions are here.
fn poll(queue: &CompletionQueue, count: usize) -> Vec<Completion> {
    let mut found = Vec::new();
    while found.len() < count {
        let more = queue.poll(&mut found, count, LONG).unwrap();
        assert!(more > 0, "{} of {count}", found.len());
    }
    found
}

fn send(user_data: u64) -> QueuedSend {
    QueuedSend { user_data, ..QueuedSend::default() }
}

#[test]
fn sends_and_receives_of_many_connections_complete_into_one_queue_in_order() {
    let (here, there) = (context(Progress::default()), context(Progress::default()));
    let (sent, received) =
        (here.completion_queue(1000).unwrap(), there.completion_queue(1000).unwrap());
    let pairs: Vec<_> = (0..5).map(|_| connected(&here, &there, "auto")).collect();
    for (number, (a, b)) in (0u64..).zip(&pairs) {
        a.complete_to(&sent).unwrap();
        b.complete_to(&received).unwrap();
        for message in 0..20 {
            let user_data = 100 * number + message;
            b.queue_recv(vec![0; 10_000], RecvOptions::default(), user_data).unwrap();
            let options = QueuedSend { immediate: Some(user_data as u32), ..send(user_data) };
            a.queue_send(vec![user_data as u8; 9000], options).unwrap();
        }
    }
    let mut last = [None; 5];
    for completion in poll(&sent, 100) {
        assert!(matches!(completion.outcome, Outcome::Sent(Ok(()))));
        let number = (completion.user_data / 100) as usize;
        assert!(last[number].replace(completion.user_data) < Some(completion.user_data));
    }
    let mut last = [None; 5];
    for completion in poll(&received, 100) {
        let Outcome::Received(ended) = completion.outcome else { panic!("not a receive") };
        assert_eq!((ended.reason(), ended.bytes()), (Reason::Whole, 9000));
        assert_eq!(ended.immediate(), Some(completion.user_data as u32));
        let done = ended.take();
        assert!(done.buffer[..9000].iter().all(|byte| *byte == completion.user_data as u8));
        let number = (completion.user_data / 100) as usize;
        assert!(last[number].replace(completion.user_data) < Some(completion.user_data));
    }
    assert_eq!((sent.reserved(), received.reserved()), (0, 0));
}

#[test]
fn slots_of_receives_that_nobody_takes_are_given_back() {
    let (here, there) = (context(Progress::default()), context(Progress::default()));
    let (a, b) = connected(&here, &there, "auto");
    let queue = there.completion_queue(10).unwrap();
    b.complete_to(&queue).unwrap();
    for round in 0..5000 {
        b.queue_recv(vec![0; 10], RecvOptions::default(), round).unwrap();
        a.send(&[1; 10]).unwrap();
        drop(poll(&queue, 1));
    }
}

#[test]
fn writes_complete_and_silent_ones_only_when_they_fail() {
    let (here, there) = (context(Progress::default()), context(Progress::default()));
    let (a, _b) = connected(&here, &there, "auto");
    let queue = here.completion_queue(100).unwrap();
    a.complete_to(&queue).unwrap();
    let region = there.register(vec![0; 1000], RegionOptions::default()).unwrap();
    for number in 0..20 {
        let to = Target { key: region.key(), address: 10 * number };
        let is_silent = number % 10 != 9;
        let options = QueuedSend { is_silent, ..send(number) };
        a.queue_write_to(to, vec![1; 10], options).unwrap();
    }
    let told: Vec<_> = poll(&queue, 2).iter().map(|completion| completion.user_data).collect();
    assert_eq!(told, [9, 19]);
    let outside = Target { key: region.key(), address: 995 };
    let options = QueuedSend { is_silent: true, ..send(77) };
    a.queue_write_to(outside, vec![1; 10], options).unwrap();
    let [failed] = &poll(&queue, 1)[..] else { unreachable!() };
    assert_eq!(failed.user_data, 77);
    assert!(matches!(failed.outcome, Outcome::Wrote(Err(SendFailure::Refused))));
    assert_eq!(queue.reserved(), 0);
}

#[test]
fn bounded_receives_complete_by_their_deadlines() {
    let (here, there) = (context(Progress::default()), context(Progress::default()));
    let (_a, b) = connected(&here, &there, "bounded");
    let queue = there.completion_queue(100).unwrap();
    b.complete_to(&queue).unwrap();
    for number in 0..10 {
        let options = RecvOptions::within(Duration::from_millis(50 - 5 * number));
        b.queue_recv(vec![7; 100], options, number).unwrap();
    }
    let ended = poll(&queue, 10);
    let order: Vec<_> = ended.iter().map(|completion| completion.user_data).collect();
    assert_eq!(order, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], "the earliest deadline first");
    for completion in ended {
        let Outcome::Received(ended) = completion.outcome else { panic!("not a receive") };
        let done = ended.take();
        assert_eq!((done.reason, done.buffer), (Reason::Deadline, vec![0; 100]));
    }
}

#[test]
fn a_full_queue_refuses_before_anything_is_posted() {
    let (here, there) = (context(Progress::default()), context(Progress::default()));
    let (a, b) = connected(&here, &there, "auto");
    let unset = b.queue_recv(vec![0; 10], RecvOptions::default(), 0).unwrap_err();
    assert!(matches!(unset, QueueError::NoQueue));
    let queue = there.completion_queue(2).unwrap();
    b.complete_to(&queue).unwrap();
    assert!(matches!(b.complete_to(&queue), Err(CompletionQueueError::Set)));
    for number in 0..2 {
        b.queue_recv(vec![0; 10], RecvOptions::default(), number).unwrap();
    }
    let full = b.queue_recv(vec![0; 10], RecvOptions::default(), 2).unwrap_err();
    assert!(matches!(full, QueueError::Full(full) if full.is_retryable()));
    a.send(&[1; 10]).unwrap();
    assert_eq!(poll(&queue, 1)[0].user_data, 0);
    b.queue_recv(vec![0; 10], RecvOptions::default(), 3).unwrap();
    assert_eq!(queue.reserved(), 2);
}

#[test]
fn operations_of_a_connection_that_breaks_or_is_dropped_fail() {
    let (here, there) = (context(Progress::default()), context(Progress::default()));
    let (a, b) = connected(&here, &there, "auto");
    let queue = here.completion_queue(10).unwrap();
    a.complete_to(&queue).unwrap();
    a.queue_recv(vec![0; 10], RecvOptions::default(), 1).unwrap();
    a.queue_send(vec![1; 10], send(2)).unwrap();
    drop(b);
    let mut failed = poll(&queue, 2);
    failed.sort_by_key(|completion| completion.user_data);
    let Outcome::Received(ended) = &failed[0].outcome else { panic!("not a receive") };
    assert_eq!(ended.reason(), Reason::Failed);
    assert!(matches!(failed[1].outcome, Outcome::Sent(Err(SendFailure::Failed(_)))));
    drop(failed);

    let (a, _b) = connected(&here, &there, "auto");
    let other = here.completion_queue(10).unwrap();
    a.complete_to(&other).unwrap();
    a.queue_recv(vec![0; 10], RecvOptions::default(), 1).unwrap();
    a.queue_send(vec![1; 10], send(2)).unwrap();
    drop(a);
    assert_eq!(other.len(), 2);
    for completion in poll(&other, 2) {
        match completion.outcome {
            Outcome::Sent(result) => assert!(result.is_err()),
            Outcome::Received(ended) => assert_eq!(ended.take().reason, Reason::Failed),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(other.reserved(), 0);
}

#[test]
fn a_queue_with_manual_progress_makes_progress_when_it_is_polled() {
    let (here, there) = (context(Progress::Manual), context(Progress::Manual));
    let (a, b) = connected(&here, &there, "auto");
    let queues = [here.completion_queue(10).unwrap(), there.completion_queue(10).unwrap()];
    a.complete_to(&queues[0]).unwrap();
    b.complete_to(&queues[1]).unwrap();
    b.queue_recv(vec![0; 100], RecvOptions::default(), 5).unwrap();
    a.queue_send(vec![1; 100], send(6)).unwrap();
    let mut found = Vec::new();
    while found.len() < 2 {
        for queue in &queues {
            queue.try_poll(&mut found, 10).unwrap();
        }
    }
}

#[test]
fn only_a_message_with_an_immediate_wakes_who_waits_for_solicited_completions() {
    let (here, there) = (context(Progress::default()), context(Progress::default()));
    let (a, b) = connected(&here, &there, "auto");
    let queue = there.completion_queue(10).unwrap();
    b.complete_to(&queue).unwrap();
    for number in 0..2 {
        b.queue_recv(vec![0; 10], RecvOptions::default(), number).unwrap();
    }
    assert!(!queue.arm(Arm::Solicited).unwrap());
    a.send(&[1; 10]).unwrap();
    a.send_with(&[1; 10], Some(9), LONG).unwrap();
    assert_eq!(poll(&queue, 2).len(), 2);
}
