//! Lifetimes under concurrency: connections dropped under waiting threads, contexts dropped under
//! live handles, closing against cancelling; and many connections, or both ends of one, in one
//! context.

use lacuna::datapath::Datapath;
use lacuna::datapath::testing::Hooked;
use lacuna::{
    Connection, ConnectionConfig, Context, ContextConfig, Failure, Gone, ImmediateSplit, Listener,
    Memory, Mode, PostSendError, Progress, QueuePair, QueuePairError, SendBuffer, SendError,
    SendFailure,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WAIT: Duration = Duration::from_secs(20);

fn context(config: ContextConfig) -> Context {
    Context::new(ContextConfig { bind: LOCALHOST.into(), ..config }).expect("sockets on loopback")
}

fn manual() -> ContextConfig {
    ContextConfig { progress: Progress::Manual, ..ContextConfig::default() }
}

fn join(here: &Context, there: &Context, config: ConnectionConfig) -> (Connection, Connection) {
    let listener = Listener::bind(there, "127.0.0.1:0".parse().unwrap(), config).unwrap();
    let address = listener.local_addr();
    let accepting = thread::spawn(move || listener.accept().expect("the peer connects"));
    let connected = Connection::connect(here, address, config).expect("it accepts");
    (connected, accepting.join().unwrap())
}

fn pair(config: ConnectionConfig) -> (Connection, Connection) {
    join(&context(ContextConfig::default()), &context(ContextConfig::default()), config)
}

fn raw() -> ConnectionConfig {
    ConnectionConfig { mode: Mode::Raw, ..ConnectionConfig::default() }
}

/// Two connected queue pairs of these contexts.
fn queue_pairs(
    here: &Context,
    there: &Context,
    config: &ConnectionConfig,
) -> (QueuePair, QueuePair) {
    let (a, b) = (here.queue_pair(config).unwrap(), there.queue_pair(config).unwrap());
    a.connect(&b.info(LOCALHOST)).unwrap();
    b.connect(&a.info(LOCALHOST)).unwrap();
    (a, b)
}

#[test]
fn a_connection_dropped_while_the_peer_waits_ends_the_waiting() {
    for config in [ContextConfig::default(), manual()] {
        let (a, b) = join(&context(config.clone()), &context(config), ConnectionConfig::default());
        let (posted, is_posted) = channel();
        let waiting = thread::spawn(move || {
            let receive = b.post_recv(vec![0; 100]).unwrap();
            posted.send(()).unwrap();
            let received = receive.wait(Duration::from_secs(600));
            let written = b.send(b"after that");
            (received, written)
        });
        is_posted.recv().unwrap();
        drop(a);
        let (received, written) = waiting.join().unwrap();
        assert!(received.unwrap_err().is_closed());
        assert!(matches!(written, Err(SendError::Post(PostSendError::Failed(_)))));
    }
}

#[test]
fn an_end_that_waits_for_the_peer_to_close_hears_of_it() {
    for config in [ContextConfig::default(), manual()] {
        let (a, b) = join(&context(config.clone()), &context(config), ConnectionConfig::default());
        assert_eq!(b.wait_closed(Duration::from_millis(1)), None);
        let waiting = thread::spawn(move || b.wait_closed(Duration::from_secs(600)));
        drop(a);
        assert_eq!(waiting.join().unwrap(), Some(Failure::PeerGone(Gone::Closed)));
    }
}

#[test]
fn an_end_dropped_under_its_own_handles_ends_them() {
    let (a, b) = pair(ConnectionConfig::default());
    let receive = a.post_recv(vec![7; 100]).unwrap();
    let send = a.start_send(vec![1; 100], None).unwrap();
    let clone = a.clone();
    let waiting = thread::spawn(move || (receive.wait(Duration::from_secs(600)), receive));
    drop(a);
    assert!(clone.failure().is_none(), "it lives as long as a clone");
    drop(clone);
    let (received, receive) = waiting.join().unwrap();
    assert_eq!(received.unwrap_err().to_string(), "the connection was closed");
    assert_eq!(send.wait().unwrap_err().to_string(), "the connection was closed");
    // The handle keeps the context alive, and the buffer comes back.
    let done = receive.complete();
    assert!(!done.is_complete);
    assert_eq!(done.buffer, [7; 100]);
    drop(send);
    assert!(b.recv(&mut [0; 10]).unwrap_err().is_closed());
}

#[test]
fn one_thread_makes_progress_for_both_ends() {
    let (here, there) = (context(manual()), context(manual()));
    let (a, b) = join(&here, &there, ConnectionConfig::default());
    let message: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    let limit = Instant::now() + WAIT;
    for (from, to) in [(&a, &b), (&b, &a), (&a, &b)] {
        let receive = to.post_recv(vec![0; message.len()]).unwrap();
        let send = from.start_send(message.clone(), Some(5)).unwrap();
        while !(send.is_done() && receive.is_complete()) {
            assert!(Instant::now() < limit, "stuck: {receive:?}, {:?}", send.status());
            here.progress();
            there.progress();
        }
        send.wait().unwrap();
        let done = receive.complete();
        assert!(done.buffer == message);
        assert_eq!(done.immediate, Some(5));
    }
    drop(a);
    while b.failure().is_none() {
        assert!(Instant::now() < limit);
        there.progress();
    }
}

#[test]
fn fifty_connections_at_once_share_a_context() {
    const CONNECTIONS: usize = 50;
    const BYTES: usize = 200_000;
    let (here, there) = (context(ContextConfig::default()), context(ContextConfig::default()));
    let config = ConnectionConfig::default();
    let listener = Listener::bind(&there, "127.0.0.1:0".parse().unwrap(), config).unwrap();
    let address = listener.local_addr();
    let start = Barrier::new(CONNECTIONS);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let connection = listener.agree(listener.accept_incoming().unwrap()).unwrap();
                let mut buffer = vec![0; BYTES];
                let received = connection.recv(&mut buffer).unwrap();
                assert_eq!(received.len, BYTES);
                assert!(buffer.iter().all(|byte| *byte == buffer[0]));
                assert_eq!(received.immediate, Some(u32::from(buffer[0])));
                connection.send(&buffer[..100]).unwrap();
            });
        }
        for number in 0..CONNECTIONS {
            let (here, start) = (&here, &start);
            scope.spawn(move || {
                start.wait();
                let connection = Connection::connect(here, address, config).unwrap();
                let (byte, deadline) = (number as u8, Duration::from_secs(60));
                connection.send_with(&[byte; BYTES], Some(number as u32), deadline).unwrap();
                let mut answer = [0xFF; 100];
                connection.recv(&mut answer).unwrap();
                assert_eq!(answer, [byte; 100]);
            });
        }
    });
    // All others are gone: the next one has the sockets to itself.
    let (a, b) = join(&here, &there, config);
    assert_eq!((a.chosen().peer_credit_bytes, b.chosen().peer_credit_bytes), (alone(), alone()));
}

/// Credit of a context's only connection.
fn alone() -> u64 {
    pair(ConnectionConfig::default()).0.chosen().peer_credit_bytes
}

#[test]
fn connections_made_at_once_are_promised_no_more_than_the_sockets_hold() {
    const CONNECTIONS: usize = 8;
    let (here, there) = (context(ContextConfig::default()), context(ContextConfig::default()));
    let ends: Vec<_> = thread::scope(|scope| {
        let connect = || join(&here, &there, ConnectionConfig::default());
        let made: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(connect)).collect();
        made.into_iter().map(|one| one.join().unwrap()).collect()
    });
    // The last one to be made was told its part of all of them.
    let least = |chosen: fn(&(Connection, Connection)) -> u64| ends.iter().map(chosen).min();
    let share = Some(alone() / CONNECTIONS as u64);
    assert_eq!(least(|(a, _)| a.chosen().peer_credit_bytes), share);
    assert_eq!(least(|(_, b)| b.chosen().peer_credit_bytes), share);
}

#[test]
fn closing_and_cancelling_at_once_always_ends_and_gives_everything_back() {
    let slow = ConnectionConfig { rate_bits_per_s: Some(2_000_000_000), ..Default::default() };
    let (a, b) = pair(slow);
    let message = Arc::new(vec![0xAB; 400_000]);
    let barrier = Barrier::new(2);
    let mut buffer = vec![0; message.len()];
    for round in 0..100 {
        let receive = b.post_recv(buffer).unwrap();
        let send = a.start_send(SendBuffer::new(message.clone()), None).unwrap();
        let done = thread::scope(|scope| {
            let closing = scope.spawn(|| {
                barrier.wait();
                receive.complete()
            });
            barrier.wait();
            send.cancel();
            let result = send.wait();
            assert!(send.is_done(), "{result:?}");
            closing.join().unwrap()
        });
        assert_eq!(done.buffer.len(), message.len(), "round {round}: the buffer is whole");
        assert!(done.buffer.iter().all(|byte| [0, 0xAB].contains(byte)));
        buffer = done.buffer;
        buffer.fill(0);
    }
    // Late packets of it do no harm to the next message.
    let receive = b.post_recv(buffer).unwrap();
    // A send that was cancelled before it began took no receive, so this one may land in the
    // receive that was closed meanwhile.
    while let Err(error) = a.send(&message) {
        assert_eq!(error, SendError::Failed(SendFailure::ClosedByPeer));
    }
    receive.wait(WAIT).unwrap();
    assert!(receive.complete().buffer == *message);
    assert_eq!(Arc::strong_count(&message), 1, "no send is kept");
}

#[test]
fn a_raw_send_does_not_wait_for_a_peer_that_is_gone() {
    let (a, b) = pair(raw());
    let _receive = b.post_recv(vec![0; 1 << 20]).unwrap();
    a.wait_clear_to_send(WAIT).unwrap();
    let stream = a.queue_pair().open_stream(None).unwrap();
    stream.push(0, vec![1; 65_536], false).unwrap();
    let send = stream.end().unwrap();
    send.wait().expect("all of it is on the wire");
    drop(b);
    let start = Instant::now();
    assert!(!send.wait_finished(Duration::from_secs(60)));
    assert!(start.elapsed() < WAIT, "it cannot finish any more");
}

#[test]
fn connecting_twice_is_refused_and_changes_nothing() {
    let (here, there) = (context(manual()), context(manual()));
    let (a, b) = queue_pairs(&here, &there, &raw());
    let receives = [0, 1].map(|_| b.post_recv(vec![0; 5]).unwrap());
    let limit = Instant::now() + WAIT;
    while a.try_send(b"first".to_vec(), None).is_err() {
        assert!(Instant::now() < limit);
        here.progress();
        there.progress();
    }
    // Until the peer has nothing left to say, so that no packet teaches `a` the new address.
    let mut idle = 0;
    while !receives[0].is_complete() || idle < 1000 {
        assert!(Instant::now() < limit);
        idle = if here.progress() | there.progress() { 0 } else { idle + 1 };
    }
    let other = context(ContextConfig::default()).queue_pair(&raw()).unwrap();
    assert!(matches!(a.connect(&other.info(LOCALHOST)), Err(QueuePairError::Connected)));
    a.try_send(b"again".to_vec(), None).expect("the second receive is known");
    while !receives[1].is_complete() {
        assert!(Instant::now() < limit, "packets went elsewhere");
        here.progress();
        there.progress();
    }
}

#[test]
fn a_short_message_in_a_receive_of_many_slots_counts_its_own_chunks() {
    let config = ConnectionConfig {
        split: ImmediateSplit::new(3, 21, 8).unwrap(),
        max_message_bytes: 65_536,
        chunk_bytes: 65_536,
        ..ConnectionConfig::default()
    };
    let (a, b) = pair(config);
    let receive = b.post_recv(vec![0; 4 * 65_536]).unwrap();
    assert_eq!(receive.chunks(), 4);
    a.send(&[1; 10_000]).unwrap();
    receive.wait(WAIT).unwrap();
    assert_eq!((receive.chunks(), receive.chunks_done(), receive.len()), (1, 1, Some(10_000)));
}

// ---- faulty datapaths ----

/// Refuses data for ever.
const SHUT: usize = usize::MAX;
/// Panics at the next burst of data.
const BREAK: usize = usize::MAX - 1;

/// Reports on drop whether the thread is panicking.
struct End(Sender<bool>);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.send(thread::panicking());
    }
}

/// A context whose datapaths refuse data for a while: the counter holds the number of bursts to
/// refuse. Control packets pass.
fn gated(
    config: ContextConfig,
    drops: u64,
) -> (Context, Arc<AtomicUsize>, std::sync::mpsc::Receiver<bool>) {
    let refuse = Arc::new(AtomicUsize::new(0));
    let (ended, has_ended) = channel();
    let (gate, ended) = (refuse.clone(), std::sync::Mutex::new(ended));
    let wrap = move |_, inner| -> Box<dyn Datapath> {
        let (gate, end) = (gate.clone(), End(ended.lock().unwrap().clone()));
        let gated = Hooked::new(inner, move |inner, now_ns, burst| {
            let _end = &end;
            let is_data = burst.packets().next().is_some_and(|packet| packet.len() > 2000);
            let left = gate.load(Ordering::Acquire);
            assert!(!is_data || left != BREAK, "broken on purpose, by a test");
            if is_data && left > 0 {
                if left != SHUT {
                    gate.store(left - 1, Ordering::Release);
                }
                return Ok(0);
            }
            inner.send(now_ns, burst)
        });
        Box::new(gated.with_drops(drops))
    };
    (context(ContextConfig { wrap: Some(Arc::new(wrap)), ..config }), refuse, has_ended)
}

#[test]
fn a_worker_that_panics_ends_all_operations_of_its_context() {
    let (broken, refuse, has_ended) = gated(ContextConfig::default(), 0);
    let (a, b) = join(&broken, &context(ContextConfig::default()), ConnectionConfig::default());
    let receive = b.post_recv(vec![0; 100_000]).unwrap();
    a.wait_clear_to_send(WAIT).unwrap();
    refuse.store(BREAK, Ordering::Release);
    let error = a.send(&[1; 100_000]).unwrap_err().to_string();
    assert!(error.contains("panicked"), "{error}");
    assert!(has_ended.recv_timeout(WAIT).unwrap(), "the worker has gone");
    let error = broken.queue_pair(&raw()).unwrap_err().to_string();
    assert!(error.contains("panicked"), "{error}");
    drop(receive);
}

#[test]
fn drops_of_all_channels_of_a_worker_are_counted() {
    let config = ContextConfig {
        channels: 3,
        progress: Progress::Threads { workers: 1, spin: Duration::ZERO },
        ..ContextConfig::default()
    };
    let (here, _, _ended) = gated(config.clone(), 5);
    let (a, _b) = join(&here, &context(config), ConnectionConfig::default());
    // Drops are counted when the worker is idle, possibly after connecting.
    let limit = Instant::now() + WAIT;
    while a.stats().context.receive_drops != 15 {
        assert!(Instant::now() < limit, "{}", a.stats().context.receive_drops);
        std::thread::yield_now();
    }
}

#[test]
fn a_way_out_that_is_free_again_serves_those_who_were_passed_over() {
    let (here, refuse, _ended) = gated(manual(), 0);
    let there = context(ContextConfig::default());
    let ends = [0, 1].map(|_| queue_pairs(&here, &there, &raw()));
    let receives = [0, 1].map(|i| ends[i].1.post_recv(vec![0; 4000]).unwrap());
    refuse.store(SHUT, Ordering::Release);
    let limit = Instant::now() + WAIT;
    let sends = [0, 1].map(|i| {
        loop {
            here.progress();
            assert!(Instant::now() < limit);
            if let Ok(send) = ends[i].0.try_send(vec![9; 4000], None) {
                return send;
            }
        }
    });
    here.progress();
    // One has its packet in the blocked datapath; the other was skipped.
    let first = sends.iter().position(|send| send.status().injected).expect("was served");
    assert!(!sends[1 - first].status().injected);
    // The datapath is still blocked at the beginning of the next step, and free when the first one
    // is served.
    refuse.store(1, Ordering::Release);
    let _news = ends[first].0.post_recv(vec![0; 1]).unwrap();
    while !receives.iter().all(lacuna::RecvHandle::is_complete) {
        assert!(Instant::now() < limit, "{:?}", sends.map(|send| send.status()));
        here.progress();
    }
}

/// Memory that keeps alive the context that sends it.
struct Holder {
    bytes: Vec<u8>,
    _context: Context,
    dropped: Arc<AtomicBool>,
}

impl Memory for Holder {
    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn range(&self, offset: usize, len: usize) -> &[u8] {
        &self.bytes[offset..][..len]
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
    }
}

#[test]
fn a_worker_may_let_go_of_the_last_handle_on_its_context() {
    let (here, refuse, has_ended) = gated(ContextConfig::default(), 0);
    let there = context(ContextConfig::default());
    let (a, b) = queue_pairs(&here, &there, &raw());
    let receive = b.post_recv(vec![0; 4000]).unwrap();
    refuse.store(SHUT, Ordering::Release);
    let dropped = Arc::new(AtomicBool::new(false));
    let holder = Holder { bytes: vec![3; 4000], _context: here, dropped: dropped.clone() };
    let send = a.send(SendBuffer::new(Arc::new(holder)), None).unwrap();
    send.wait().expect("handed to the worker");
    drop((send, a));
    assert!(!dropped.load(Ordering::Acquire), "the packets are still to be sent");
    refuse.store(0, Ordering::Release);
    let panicked = has_ended.recv_timeout(WAIT).expect("the worker ends");
    assert!(!panicked);
    assert!(dropped.load(Ordering::Acquire));
    receive.wait(WAIT).expect("and what it had to send was sent");
}
