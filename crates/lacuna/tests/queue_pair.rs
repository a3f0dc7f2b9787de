//! The SDR core as a library: connection info exchanged by hand, receives completed early, streams,
//! misuse.

use lacuna::{
    ConnectionConfig, Context, ContextConfig, Mode, PostReceiveError, PostSendError, Progress,
    QueuePair, QueuePairError,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WAIT: Duration = Duration::from_secs(20);

fn raw() -> ConnectionConfig {
    ConnectionConfig { mode: Mode::Raw, ..ConnectionConfig::default() }
}

fn queue_pair(config: &ConnectionConfig) -> QueuePair {
    let context =
        Context::new(ContextConfig { bind: LOCALHOST.into(), ..ContextConfig::default() });
    context.unwrap().queue_pair(config).unwrap()
}

fn connected(config: &ConnectionConfig) -> (QueuePair, QueuePair) {
    let (a, b) = (queue_pair(config), queue_pair(config));
    a.connect(&b.info(LOCALHOST)).unwrap();
    b.connect(&a.info(LOCALHOST)).unwrap();
    (a, b)
}

/// Sends as soon as the peer's receive is announced.
fn send_when_posted(a: &QueuePair, data: Vec<u8>) -> lacuna::SendHandle {
    a.send(data, None).unwrap()
}

#[test]
fn one_shot_sends_land_in_the_order_of_the_receives() {
    let (a, b) = connected(&raw());
    let receives: Vec<_> = (0..20).map(|_| b.post_recv(vec![0; 5000]).unwrap()).collect();
    for number in 0..20u8 {
        send_when_posted(&a, vec![number; 5000 - usize::from(number)]);
    }
    for (number, receive) in receives.into_iter().enumerate() {
        receive.wait(WAIT).unwrap();
        let done = receive.complete();
        assert_eq!(done.len, Some(5000 - number));
        assert!(done.buffer[..5000 - number].iter().all(|byte| usize::from(*byte) == number));
    }
}

#[test]
fn a_stream_sends_any_chunk_in_any_order_and_again() {
    let config = ConnectionConfig { chunk_bytes: 4096, mtu_bytes: Some(1024), ..raw() };
    let (a, b) = connected(&config);
    let message: Vec<u8> = (0..64 * 1024u32).map(|i| (i * 7 / 8) as u8).collect();
    let receive = b.post_recv(vec![0; message.len()]).unwrap();
    let stream = loop {
        match a.open_stream(Some(0xCAFE)) {
            Ok(stream) => break stream,
            Err(PostSendError::Unposted { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    let push = |chunk: usize| {
        let at = chunk * 4096;
        stream.push(at as u64, message[at..at + 4096].to_vec(), chunk == 15).unwrap();
    };
    // Every other chunk first; the receiver has just those.
    (0..16).rev().step_by(2).for_each(push);
    while receive.chunks_done() < 8 {
        std::thread::yield_now();
    }
    assert!((0..16).all(|chunk| receive.has_chunk(chunk) == (chunk % 2 == 1)));
    assert!(!receive.is_complete());
    // All chunks; repeating the first ones is harmless. Chunk 0, which the receiver lacks, is last,
    // because a sender that knows the message is complete sends no more of it.
    (0..16).map(|i| (5 * i + 5) % 16).for_each(push);
    stream.end().unwrap().wait().unwrap();
    receive.wait(WAIT).unwrap();
    let done = receive.complete();
    assert_eq!(done.immediate, Some(0xCAFE));
    assert!(done.buffer == message);
    assert_eq!(a.stats().send.packets, 16 * 4 + 8 * 4);
}

#[test]
fn polling_for_a_receive_asks_the_peer_for_it() {
    let (a, b) = connected(&raw());
    assert!(!a.is_clear_to_send());
    let receive = b.post_recv(vec![0; 100]).unwrap();
    while !a.is_clear_to_send() {
        std::thread::yield_now();
    }
    a.try_send(vec![7; 100], None).unwrap();
    assert!(!a.is_clear_to_send(), "the receive is used up");
    receive.wait(WAIT).unwrap();
}

#[test]
fn an_early_completion_gives_the_buffer_back_and_nothing_is_written_after() {
    let slow = ConnectionConfig { rate_bits_per_s: Some(50_000_000), ..raw() };
    let (a, b) = connected(&slow);
    let mut buffer = vec![0xEE; 4 << 20];
    for round in 0..5u8 {
        let receive = b.post_recv(buffer).unwrap();
        let send = send_when_posted(&a, vec![round + 1; 4 << 20]);
        while receive.chunks_done() < 3 {
            std::thread::yield_now();
        }
        // Packets of this message are still on their way.
        let done = receive.complete();
        assert!(!done.is_complete);
        let snapshot = done.buffer.clone();
        buffer = done.buffer;
        assert!(send.wait_finished(WAIT), "the sender hears of it");
        // Once a later message has arrived, all earlier packets have.
        let fence = b.post_recv(vec![0; 8]).unwrap();
        send_when_posted(&a, vec![9; 8]);
        fence.wait(WAIT).unwrap();
        assert!(buffer == snapshot, "round {round}: late packets changed the buffer");
        // The next round reuses the memory while old packets still arrive.
    }
}

#[test]
fn each_misuse_is_its_own_error_with_the_numbers() {
    let config = ConnectionConfig {
        split: lacuna::ImmediateSplit::new(3, 21, 8).unwrap(),
        max_message_bytes: 1 << 20,
        ..raw()
    };
    let unconnected = queue_pair(&config);
    assert!(matches!(unconnected.send(vec![1], None), Err(PostSendError::NotConnected)));
    let (a, b) = connected(&config);
    let error = a.try_send(vec![1], None).unwrap_err();
    assert!(matches!(error, PostSendError::Unposted { number: 0, posted: 0 }), "{error}");
    let receives: Vec<_> = (0..8).map(|_| b.post_recv(vec![0; 10]).unwrap()).collect();
    let error = b.post_recv(vec![0; 10]).unwrap_err();
    assert_eq!(error, PostReceiveError::NoSlot { needed: 1, open: 8, slots: 8 });
    assert!(error.is_retryable());
    drop(receives);
    let error = b.post_recv(vec![0; 9 << 20]).unwrap_err();
    assert!(matches!(error, PostReceiveError::TooLong { slots: 8, .. }), "{error}");
}

#[test]
fn ends_that_do_not_agree_are_told_on_what() {
    let a = queue_pair(&ConnectionConfig { mtu_bytes: Some(1024), ..raw() });
    let b = queue_pair(&ConnectionConfig { mtu_bytes: Some(4096), ..raw() });
    let error = a.connect(&b.info(LOCALHOST)).unwrap_err();
    assert!(
        matches!(
            error,
            QueuePairError::Mismatch { what: "the MTU in bytes", here: 1024, there: 4096 }
        ),
        "{error}"
    );
    let mode = |mode: &str| ConnectionConfig { mode: mode.parse().unwrap(), ..raw() };
    for (here, there, text) in [
        ("ec:mds:32:8", "ec:xor:32:8", "mds:32:8 here, xor:32:8 at the peer"),
        ("ec", "sr", "mds:32:8 here, none at the peer"),
        ("sr", "ec:mds:4:2", "none here, mds:4:2 at the peer"),
    ] {
        let (here, there) = (queue_pair(&mode(here)), queue_pair(&mode(there)));
        let error = here.connect(&there.info(LOCALHOST)).unwrap_err();
        assert!(matches!(error, QueuePairError::Code { .. }), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(matches!(a.connect(b"rubbish"), Err(QueuePairError::Info(_))));
}

#[test]
fn ends_whose_codes_lie_otherwise_in_a_message_do_not_connect() {
    // Everything else is the same: as many packets make a stripe and the longest message.
    let mode = "ec:mds:8:2".parse().unwrap();
    let config = ConnectionConfig { mode, mtu_bytes: Some(1400), chunk_bytes: 1, ..raw() };
    let (a, b) = (queue_pair(&config), queue_pair(&config));
    let mut blob = b.info(LOCALHOST);
    let end = blob.len();
    assert_eq!(blob[end - 4..], [0, 0, 0, 3], "the code is the last field");
    blob[end - 1] = 1;
    let error = a.connect(&blob).unwrap_err();
    assert!(
        matches!(
            error,
            QueuePairError::Mismatch { what: "chunks in a chunk of the code", here: 3, there: 1 }
        ),
        "{error}"
    );
}

#[test]
fn the_live_bitmap_is_one_pointer_that_shows_chunks_and_their_packets() {
    let config = ConnectionConfig { chunk_bytes: 70 * 1024, mtu_bytes: Some(1024), ..raw() };
    let (a, b) = connected(&config);
    let receive = b.post_recv(vec![0; 3 * 70 * 1024]).unwrap();
    assert_eq!((receive.capacity_chunks(), receive.geometry().chunk_packets()), (3, 70));
    let bits = receive.live_chunk_bits().unwrap();
    let stream = loop {
        match a.open_stream(None) {
            Ok(stream) => break stream,
            Err(PostSendError::Unposted { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    // All of chunk 1, and the first 65 packets of chunk 2.
    stream.push(2 * 70 * 1024, vec![2; 65 * 1024], false).unwrap();
    stream.push(70 * 1024, vec![1; 70 * 1024], false).unwrap();
    let mut packets = [0; 3];
    while bits[0].load(Ordering::Acquire) != 0b10 || packets[1] != 1 {
        receive.copy_chunk_packets(2, &mut packets);
        std::thread::yield_now();
    }
    assert_eq!(packets, [u64::MAX, 1, 0]);
    receive.copy_chunk_packets(1, &mut packets);
    assert_eq!(packets, [u64::MAX, (1 << 6) - 1, 0]);
    let mut short = [7];
    receive.copy_chunk_packets(1, &mut short);
    assert_eq!(short, [u64::MAX]);
    receive.copy_chunk_packets(u32::MAX, &mut packets);
    assert_eq!(packets, [0; 3], "there is no such chunk");

    let slot_bytes = a.geometry().max_message_bytes();
    let many = ConnectionConfig { max_message_bytes: 1 << 20, ..config };
    assert!(slot_bytes > 2 << 20);
    let (_c, d) = connected(&many);
    let long = d.post_recv(vec![0; 2 << 20]).unwrap();
    assert!(long.live_chunk_bits().is_none(), "two slots have two bitmaps");
}

#[test]
fn a_thread_that_sleeps_for_packets_lets_another_make_progress() {
    let config = ContextConfig {
        bind: LOCALHOST.into(),
        progress: Progress::Manual,
        ..ContextConfig::default()
    };
    let context = Context::new(config).unwrap();
    let is_done = Arc::new(AtomicBool::new(false));
    let sleeper = std::thread::spawn({
        let (context, is_done) = (context.clone(), is_done.clone());
        move || {
            while !is_done.load(Ordering::Acquire) {
                context.progress_within(Duration::from_secs(60));
                std::thread::yield_now();
            }
        }
    });
    let mut steps = 0;
    while steps < 20 {
        match context.try_progress() {
            Some(_) => steps += 1,
            None => context.interrupt(),
        }
    }
    is_done.store(true, Ordering::Release);
    context.interrupt();
    sleeper.join().unwrap();
    let threaded =
        Context::new(ContextConfig { bind: LOCALHOST.into(), ..ContextConfig::default() });
    assert_eq!(threaded.unwrap().try_progress(), None, "its threads make progress");
}

#[test]
fn a_report_does_not_wait_for_the_turns_of_other_queue_pairs() {
    let config = ContextConfig {
        bind: LOCALHOST.into(),
        progress: Progress::Manual,
        ..ContextConfig::default()
    };
    let [here, there] = [config.clone(), config].map(|config| Context::new(config).unwrap());
    let config =
        ConnectionConfig { mode: Mode::SR, mtu_bytes: Some(4096), ..ConnectionConfig::default() };
    let pairs: Vec<_> = (0..33)
        .map(|_| {
            let (a, b) = (here.queue_pair(&config).unwrap(), there.queue_pair(&config).unwrap());
            a.connect(&b.info(LOCALHOST)).unwrap();
            b.connect(&a.info(LOCALHOST)).unwrap();
            (a, b)
        })
        .collect();
    let (lone, busy) = pairs.split_first().unwrap();
    let receive = lone.0.post_recv(vec![0; 1000]).unwrap();
    let posted = busy.iter().map(|(_, b)| b.post_recv(vec![0; 1 << 20]).unwrap());
    let _posted: Vec<_> = posted.collect();
    while here.progress() | there.progress() {}
    let bulk = busy.iter().map(|(a, _)| a.send(vec![1; 1 << 20], None).unwrap());
    let bulk: Vec<_> = bulk.collect();
    let send = lone.1.send(vec![2; 1000], None).unwrap();
    there.progress();
    here.progress();
    assert!(receive.is_complete());
    while there.progress() {}
    assert!(send.is_done(), "reported in the step in which it came");
    assert!(bulk.iter().any(|send| !send.status().injected), "others wait for their turns");
}
