//! Operations without a posted receive complete into queues: reads, and messages that the peer has written
//! to regions here. And what receives tell a queue while they go on: chunks, and pools that run low.

use lacuna::datapath::impair::{Fraction, Impair, Impairment, Loss};
use lacuna::{
    Completion, CompletionQueue, CompletionQueueError, Connection, ConnectionConfig, Context,
    ContextConfig, Listener, Outcome, Pool, PostReadError, QueueError, QueuedRead, QueuedSend,
    ReadError, ReadFailure, Reason, RecvOptions, Region, RegionOptions, Rights, Target, Wrap,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Ends what would hang; no test asserts a time.
const LONG: Duration = Duration::from_secs(20);

fn context(loss: f64) -> Context {
    let wrap: Wrap = Arc::new(move |channel, datapath| {
        let loss = Loss::Independent(Fraction::from_f64(loss));
        let impairment = Impairment { loss, ..Impairment::default() };
        Box::new(Impair::new(datapath, impairment, u64::from(channel) + 1))
    });
    Context::new(ContextConfig {
        bind: LOCALHOST.into(),
        wrap: (loss > 0.0).then_some(wrap),
        ..ContextConfig::default()
    })
    .unwrap()
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

fn poll(queue: &CompletionQueue, count: usize) -> Vec<Completion> {
    let mut found = Vec::new();
    while found.len() < count {
        let more = queue.poll(&mut found, count, LONG).unwrap();
        assert!(more > 0, "{} of {count}", found.len());
    }
    found
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i >> 8) as u8 ^ i as u8 ^ seed).collect()
}

fn readable(context: &Context, memory: Vec<u8>) -> Region {
    let options = RegionOptions { rights: Rights::REMOTE_READ, ..RegionOptions::default() };
    context.register(memory, options).unwrap()
}

#[test]
fn reads_of_any_length_complete_into_a_queue() {
    let (here, there) = (context(0.01), context(0.01));
    let (a, _b) = connected(&here, &there, "auto");
    let queue = here.completion_queue(100).unwrap();
    a.complete_to(&queue).unwrap();
    let data = bytes(40 << 20, 3);
    let source = readable(&there, data.clone());
    let sink = here.register(vec![0; 41 << 20], RegionOptions::default()).unwrap();
    // The first takes more parts than may be under way at once.
    let lengths: [u64; 6] = [data.len() as u64, 0, 1, 70_000, 5 << 20, 100];
    for (number, len) in (0..).zip(lengths) {
        // Into places of their own behind the first, or over it: what is read is the same.
        let from = Target { key: source.key(), address: 100 * number };
        let offset = 100 * number;
        let len = len.min(data.len() as u64 - offset);
        let read = QueuedRead { from, len, into: &sink, offset, deadline: None, user_data: number };
        a.queue_read(read).unwrap();
    }
    let mut done = poll(&queue, lengths.len());
    done.sort_by_key(|completion| completion.user_data);
    for (completion, len) in done.iter().zip(lengths) {
        let Outcome::Read(Ok(bytes)) = &completion.outcome else { panic!("{completion:?}") };
        assert_eq!(*bytes, len);
    }
    let mut got = vec![0; data.len()];
    sink.read(0, &mut got).unwrap();
    assert!(got == data);
    assert_eq!(queue.reserved(), 0);
}

#[test]
fn reads_that_are_refused_or_lose_their_place_or_their_connection_fail() {
    let (here, there) = (context(0.0), context(0.0));
    let (a, b) = connected(&here, &there, "auto");
    let queue = here.completion_queue(100).unwrap();
    let sink = here.register(vec![0; 100], RegionOptions::default()).unwrap();
    let source = readable(&there, vec![1; 100]);
    let from = Target { key: source.key(), address: 0 };
    let into = &sink;
    let read = QueuedRead { from, len: 100, into, offset: 0, deadline: None, user_data: 1 };
    assert!(matches!(a.queue_read(read), Err(QueueError::NoQueue)));
    a.complete_to(&queue).unwrap();
    let long = a.queue_read(QueuedRead { len: 101, ..read });
    assert!(matches!(long, Err(QueueError::Post(ReadError::Region(_)))), "{long:?}");

    let wrong = Target { key: source.key() ^ 1, address: 0 };
    a.queue_read(QueuedRead { from: wrong, user_data: 2, ..read }).unwrap();
    let [refused] = &poll(&queue, 1)[..] else { unreachable!() };
    assert!(matches!(
        refused.outcome,
        Outcome::Read(Err(ReadError::Failed(ReadFailure::Refused(_))))
    ));

    // Without time left it is over at once.
    let deadline = Some(Duration::ZERO);
    a.queue_read(QueuedRead { deadline, user_data: 4, ..read }).unwrap();
    let [late] = &poll(&queue, 1)[..] else { unreachable!() };
    let outcome = &late.outcome;
    let is_late = matches!(
        outcome,
        Outcome::Read(Err(ReadError::Failed(ReadFailure::Deadline { placed_bytes: 0, .. })))
    );
    assert!(is_late, "{outcome:?}");

    // It may have been read before it lost its place; it ends one way or the other.
    let deadline = Some(Duration::from_millis(1));
    let gone = here.register(vec![0; 100], RegionOptions::default()).unwrap();
    a.queue_read(QueuedRead { into: &gone, deadline, user_data: 3, ..read }).unwrap();
    drop(gone);
    let [ended] = &poll(&queue, 1)[..] else { unreachable!() };
    assert_eq!(ended.user_data, 3);

    for number in 0..20 {
        a.queue_read(QueuedRead { user_data: number, ..read }).unwrap();
    }
    drop((a, b));
    for completion in poll(&queue, 20) {
        assert!(matches!(completion.outcome, Outcome::Read(_)));
    }
    assert_eq!(queue.reserved(), 0);
    let (plain, _other) = {
        let plain = ConnectionConfig::default();
        let listener = Listener::bind(&there, (LOCALHOST, 0).into(), plain).unwrap();
        let address = listener.local_addr();
        std::thread::scope(|scope| {
            let accepting = scope.spawn(move || listener.accept().unwrap());
            (Connection::connect(&here, address, plain).unwrap(), accepting.join().unwrap())
        })
    };
    plain.complete_to(&queue).unwrap();
    let none = plain.queue_read(read);
    let expected = QueueError::Post(ReadError::Post(PostReadError::NoRegions));
    assert_eq!(none, Err(expected));
    assert!(matches!(plain.queue_written(0), Err(CompletionQueueError::NoRegions)));
}

#[test]
fn written_messages_complete_into_a_queue_and_wait_while_it_is_full() {
    let (here, there) = (context(0.02), context(0.02));
    let (a, b) = connected(&here, &there, "auto");
    let queue = there.completion_queue(4).unwrap();
    assert!(matches!(b.queue_written(7), Err(CompletionQueueError::Unset)));
    b.complete_to(&queue).unwrap();
    b.queue_written(7).unwrap();
    assert!(matches!(b.queue_written(8), Err(CompletionQueueError::Set)));
    let region = there.register(vec![0; 200 << 10], RegionOptions::default()).unwrap();
    let data = bytes(200 << 10, 5);
    let sends: Vec<_> = (0..200)
        .map(|number| {
            let at = (number as usize) << 10;
            let to = Target { key: region.key(), address: at as u64 };
            a.start_write_to(to, data[at..at + 1024].to_vec(), Some(number)).unwrap()
        })
        .collect();
    let mut told = [false; 200];
    for _ in 0..200 {
        let completion = poll(&queue, 1).remove(0);
        assert_eq!(completion.user_data, 7);
        let Outcome::Written(written) = completion.outcome else { panic!("{completion:?}") };
        let number = written.immediate.unwrap() as usize;
        assert_eq!((written.reason, written.bytes), (Reason::Whole, 1024));
        assert_eq!((written.key, written.address), (region.key(), (number as u64) << 10));
        assert!(!std::mem::replace(&mut told[number], true), "told once");
        assert!(queue.reserved() <= 4);
    }
    sends.iter().for_each(|send| send.wait().unwrap());
    assert!(queue.refused() > 0, "200 messages never had 200 entries");
    let mut got = vec![0; data.len()];
    region.read(0, &mut got).unwrap();
    assert!(got == data);
    assert_eq!(queue.reserved(), 0);
}

#[test]
fn a_write_with_an_immediate_that_is_fenced_comes_after_all_that_was_written_before() {
    let (here, there) = (context(0.05), context(0.0));
    let (a, b) = connected(&here, &there, "sr");
    let queues = [here.completion_queue(1000).unwrap(), there.completion_queue(1000).unwrap()];
    a.complete_to(&queues[0]).unwrap();
    b.complete_to(&queues[1]).unwrap();
    b.queue_written(0).unwrap();
    let region = there.register(vec![0; 1 << 20], RegionOptions::default()).unwrap();
    for round in 1..=5 {
        for part in 0..16 {
            let to = Target { key: region.key(), address: part << 16 };
            a.queue_write_to(to, vec![round; 1 << 16], QueuedSend::default()).unwrap();
        }
        let to = Target { key: region.key(), address: 0 };
        let immediate = Some(u32::from(round));
        let fenced = QueuedSend { immediate, is_fenced: true, ..QueuedSend::default() };
        a.queue_write_to(to, vec![round], fenced).unwrap();
        let written = poll(&queues[1], 1).remove(0);
        assert!(matches!(written.outcome, Outcome::Written(_)));
        let mut got = vec![0; 1 << 20];
        region.read(0, &mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == round));
        poll(&queues[0], 17);
    }
}

#[test]
fn so_many_chunks_are_an_event_for_a_queue_and_for_a_thread() {
    let (here, there) = (context(0.01), context(0.0));
    let (a, b) = connected(&here, &there, "sr");
    let queue = there.completion_queue(10).unwrap();
    b.complete_to(&queue).unwrap();
    let receive = b.post_recv(vec![0; 4 << 20]).unwrap();
    let chunks = receive.chunks();
    receive.queue_chunks(chunks / 2, 1).unwrap();
    receive.queue_chunks(chunks + 1, 2).unwrap();
    let send = a.start_send(bytes(4 << 20, 1), None).unwrap();
    assert!(receive.wait_chunks(chunks / 4, LONG) >= chunks / 4);
    let half = poll(&queue, 1).remove(0);
    assert!(matches!(half.outcome, Outcome::Chunks(done) if done >= chunks / 2));
    assert_eq!(half.user_data, 1);
    let all = poll(&queue, 1).remove(0);
    assert!(matches!(all.outcome, Outcome::Chunks(done) if done == chunks), "no more will come");
    receive.queue_chunks(1, 3).unwrap();
    assert_eq!(poll(&queue, 1)[0].user_data, 3);
    assert_eq!(receive.wait_chunks(chunks + 1, LONG), chunks);
    send.wait().unwrap();
    assert!(receive.complete().buffer == bytes(4 << 20, 1));

    // Of a receive that is given back, too.
    let receive = b.post_recv(vec![0; 100]).unwrap();
    receive.queue_chunks(1, 4).unwrap();
    assert_eq!(receive.complete().buffer, [0; 100]);
    assert!(matches!(poll(&queue, 1)[0].outcome, Outcome::Chunks(0)));
    assert_eq!(queue.reserved(), 0);
}

#[test]
fn a_pool_serves_receives_of_several_connections_and_tells_when_it_runs_low() {
    let (here, there) = (context(0.01), context(0.0));
    let pairs: Vec<_> = (0..4).map(|_| connected(&here, &there, "auto")).collect();
    let queue = there.completion_queue(100).unwrap();
    let pool = Pool::new(20_000, 6);
    for (number, (_, b)) in (0u64..).zip(&pairs) {
        b.complete_to(&queue).unwrap();
        for _ in 0..10 {
            b.queue_recv(&pool, RecvOptions::default(), number).unwrap();
        }
    }
    assert_eq!(pool.free(), 6, "posting takes none");
    pool.arm(4, &queue, 99).unwrap();
    let mut sends = Vec::new();
    for (number, (a, _)) in (0u8..).zip(&pairs) {
        let send = |message: u8| a.start_send(bytes(20_000, 16 * number + message), None).unwrap();
        sends.extend((0..10).map(send));
    }
    let (mut received, mut low) = (0, 0);
    while received < 40 {
        let completion = poll(&queue, 1).remove(0);
        match completion.outcome {
            Outcome::Received(ended) => {
                let done = ended.take();
                let number = done.buffer[0] / 16;
                assert_eq!(u64::from(number), completion.user_data);
                assert!(done.buffer == bytes(20_000, done.buffer[0]));
                pool.put(done.buffer);
                received += 1;
            }
            Outcome::PoolLow => {
                assert_eq!((completion.user_data, completion.queue_pair), (99, 0));
                low += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(low, 1, "it is told once");
    sends.iter().for_each(|send| send.wait().unwrap());
    assert_eq!(pool.free(), 6);
    // At once if fewer are free already; another alarm or the end of the pool gives the entry back.
    pool.arm(7, &queue, 5).unwrap();
    assert!(matches!(poll(&queue, 1)[0].outcome, Outcome::PoolLow));
    pool.arm(2, &queue, 6).unwrap();
    pool.arm(3, &queue, 6).unwrap();
    assert_eq!(queue.reserved(), 1);
    pool.arm(0, &queue, 6).unwrap();
    assert_eq!(queue.reserved(), 0);
    pool.arm(3, &queue, 6).unwrap();
    drop(pool);
    assert_eq!(queue.reserved(), 0);
}
