//! Connections over real sockets on loopback, and over the in-process network:
//! the same behaviour with threads and without, with offloads and plain.

use lacuna::datapath::{Impair, Impairment, Loss, MemNetwork};
use lacuna::{
    Connection, ConnectionConfig, Context, ContextConfig, DatapathKind, Listener, Mode, Progress,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn context(config: ContextConfig) -> Context {
    Context::new(ContextConfig { bind: LOCALHOST.into(), ..config }).expect("sockets on loopback")
}

/// Two connected ends, each with a context of its own.
fn pair(
    here: ContextConfig,
    there: ContextConfig,
    config: ConnectionConfig,
) -> (Connection, Connection) {
    let listening = context(there);
    let listener = Listener::bind(&listening, "127.0.0.1:0".parse().unwrap(), config).unwrap();
    let address = listener.local_addr();
    let accepting = thread::spawn(move || listener.accept().expect("the peer connects"));
    let connected = Connection::connect(&context(here), address, config).expect("it accepts");
    (connected, accepting.join().unwrap())
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Every way to run a context.
fn ways() -> Vec<(&'static str, ContextConfig, ContextConfig)> {
    let manual = || ContextConfig { progress: Progress::Manual, ..ContextConfig::default() };
    let network = MemNetwork::new();
    let mem = || ContextConfig {
        datapath: DatapathKind::Mem(network.clone()),
        receive_buffer_bytes: 8 << 20,
        ..ContextConfig::default()
    };
    let plain = || ContextConfig { datapath: DatapathKind::UdpPlain, ..ContextConfig::default() };
    let channels = || ContextConfig { channels: 4, ..ContextConfig::default() };
    vec![
        ("udp, threads", ContextConfig::default(), ContextConfig::default()),
        ("udp, manual", manual(), manual()),
        ("udp plain", plain(), plain()),
        ("udp, four channels", channels(), channels()),
        ("udp, four channels towards one", channels(), ContextConfig::default()),
        ("mem", mem(), mem()),
    ]
}

#[test]
fn messages_of_any_length_arrive_in_order_every_way() {
    in_order_every_way(ConnectionConfig::default());
}

#[test]
fn coded_messages_of_any_length_arrive_in_order_every_way() {
    in_order_every_way(ConnectionConfig { mode: Mode::EC, ..ConnectionConfig::default() });
}

fn in_order_every_way(config: ConnectionConfig) {
    for (way, here, there) in ways() {
        let (a, b) = pair(here, there, config);
        let messages: Vec<Vec<u8>> =
            [0, 1, 5, 4096, 65_537, 1_000_000, 9_000_001].map(|len| bytes(len, len as u64)).into();
        let expected = messages.clone();
        let reader = thread::spawn(move || {
            for message in &expected {
                let mut buffer = vec![0; 10_000_000];
                let received = b.recv(&mut buffer).expect("the message arrives");
                assert!(buffer[..received.len] == **message);
            }
            b
        });
        for message in &messages {
            a.send(message).unwrap_or_else(|error| panic!("{way}: {error}"));
        }
        drop(reader.join().unwrap_or_else(|_| panic!("{way}")));
    }
}

#[test]
fn the_bitmap_is_live_while_the_message_arrives() {
    let slow =
        ConnectionConfig { rate_bits_per_s: Some(100_000_000), ..ConnectionConfig::default() };
    let (a, b) = pair(ContextConfig::default(), ContextConfig::default(), slow);
    let message = bytes(4 << 20, 1);
    let receive = b.post_recv(vec![0; 4 << 20]).unwrap();
    let send = a.start_send(message.clone(), Some(77)).unwrap();
    let mut seen_partial = false;
    while !receive.is_complete() {
        let done = receive.chunks_done();
        seen_partial |= done > 0 && done < receive.chunks();
        for chunk in 0..receive.chunks() {
            if let Some(data) = receive.chunk(chunk) {
                let at = chunk as usize * b.chosen().chunk_bytes as usize;
                assert!(data == &message[at..at + data.len()]);
            }
        }
    }
    send.wait().unwrap();
    assert!(seen_partial, "at 100 Mbit/s chunks come one after the other");
    let done = receive.complete();
    assert_eq!((done.len, done.immediate, done.is_complete), (Some(4 << 20), Some(77), true));
    assert!(done.buffer == message);
}

#[test]
fn a_lossy_path_is_repaired() {
    let (a, b) = pair(impaired(1), impaired(100), ConnectionConfig::default());
    let message = bytes(8 << 20, 3);
    let receive = b.post_recv(vec![0; 8 << 20]).unwrap();
    a.send(&message).unwrap();
    assert!(receive.complete().buffer == message);
    assert!(a.stats().sent.retransmitted_packets > 0);
}

#[test]
fn a_lossy_path_is_repaired_from_parity() {
    let config = ConnectionConfig { mode: Mode::EC, ..ConnectionConfig::default() };
    let (a, b) = pair(impaired(1), impaired(100), config);
    let message = bytes(8 << 20, 3);
    let receive = b.post_recv(vec![0; 8 << 20]).unwrap();
    a.send(&message).unwrap();
    assert!(receive.complete().buffer == message);
    let (sent, received) = (a.stats().sent, b.stats());
    assert!(sent.parity_packets * 5 > sent.packets / 2, "a fifth of what is sent: {sent:?}");
    assert!(sent.encode_s > 0.0);
    let repaired: u64 = received.channels.iter().map(|channel| channel.repaired_packets).sum();
    assert!(repaired > 0 && received.channels[0].decode_s > 0.0, "{received:?}");
}

/// A path that loses in bursts.
fn impaired(seed: u64) -> ContextConfig {
    ContextConfig {
        wrap: Some(Arc::new(move |channel, inner| {
            let impairment = Impairment {
                loss: Loss::bursts(0.02, 3.0).unwrap(),
                delay_ns: 2_000_000,
                ..Impairment::default()
            };
            Box::new(Impair::new(inner, impairment, seed + u64::from(channel)))
        })),
        ..ContextConfig::default()
    }
}

#[test]
fn a_lost_clear_to_send_is_asked_for_by_whoever_waits_for_it() {
    let lossy = |seed: u64| ContextConfig {
        wrap: Some(Arc::new(move |channel, inner| {
            let loss = Loss::bursts(0.3, 1.0).unwrap();
            let impairment = Impairment { loss, ..Impairment::default() };
            Box::new(Impair::new(inner, impairment, seed + u64::from(channel)))
        })),
        ..ContextConfig::default()
    };
    let (a, b) = pair(lossy(5), lossy(50), ConnectionConfig::default());
    for number in 0..60u8 {
        let receive = b.post_recv(vec![0; 100]).unwrap();
        a.wait_clear_to_send(Duration::from_secs(20)).unwrap();
        let send = a.queue_pair().try_send(vec![number; 100], None).unwrap();
        send.wait().unwrap();
        assert_eq!(receive.complete().buffer, [number; 100]);
    }
}

#[test]
fn without_loss_on_the_path_nothing_is_lost_in_the_host() {
    for (way, here, there) in ways() {
        let (a, b) = pair(here, there, ConnectionConfig::default());
        let message: Arc<Vec<u8>> = Arc::new(bytes(8 << 20, 4));
        let receives: Vec<_> =
            (0..16).map(|_| b.post_recv(vec![0; message.len()]).unwrap()).collect();
        let memory = lacuna::SendBuffer::new(message.clone());
        let sends: Vec<_> = (0..16).map(|_| a.start_send(memory.clone(), None).unwrap()).collect();
        // Both ends make progress, threads or not.
        let writer = thread::spawn(move || {
            for send in sends {
                send.wait().unwrap();
            }
            a
        });
        for receive in receives {
            receive.wait(Duration::from_secs(60)).unwrap();
            assert!(receive.complete().buffer == **message);
        }
        let a = writer.join().unwrap();
        let (sent, received) = (a.stats(), b.stats());
        assert_eq!(received.context.receive_drops, 0, "{way}");
        assert_eq!(received.lost_packets, 0, "{way}");
        // A host that takes the cores away for long makes timeouts expire (one in twenty packets,
        // with a sanitizer beside other tests); repairs must not be the rule.
        let share = sent.sent.retransmission_share;
        assert!(share < 0.2, "{way}: {share} of packets were sent again: {}", sent.to_json());
    }
}

#[test]
fn a_peer_that_dies_ends_all_operations() {
    let (a, b) =
        pair(ContextConfig::default(), ContextConfig::default(), ConnectionConfig::default());
    let waiting = a.start_send(bytes(1000, 5), None).unwrap();
    let receive = a.post_recv(vec![0; 100]).unwrap();
    drop(b);
    let error = waiting.wait().unwrap_err().to_string();
    assert!(error.contains("the peer is gone"), "{error}");
    let error = receive.wait(Duration::from_secs(10)).unwrap_err();
    assert!(error.is_closed(), "{error}");
    assert!(a.send(b"more").is_err());
}

#[test]
fn a_deadline_says_what_it_waited_for() {
    let config =
        ConnectionConfig { deadline: Duration::from_millis(50), ..ConnectionConfig::default() };
    let (a, b) = pair(ContextConfig::default(), ContextConfig::default(), config);
    let error = a.send(b"nobody posted a receive").unwrap_err().to_string();
    assert!(error.contains("waiting for the peer to post a receive"), "{error}");
    let error = b.recv(&mut [0; 10]).unwrap_err().to_string();
    assert!(error.contains("0 of 1 chunks"), "{error}");
}

#[test]
fn a_message_that_does_not_fit_is_refused_with_both_lengths() {
    let (a, b) =
        pair(ContextConfig::default(), ContextConfig::default(), ConnectionConfig::default());
    let _receive = b.post_recv(vec![0; 100]).unwrap();
    let error = a.send(&[0; 101]).unwrap_err().to_string();
    assert!(error.contains("101 bytes") && error.contains("100 bytes"), "{error}");
    a.send(&[0; 100]).expect("the receive is still there");
}

#[test]
fn modes_differ_per_connection() {
    for mode in ["auto", "raw", "sr", "sr:rto"] {
        let config =
            ConnectionConfig { mode: mode.parse::<Mode>().unwrap(), ..ConnectionConfig::default() };
        let (a, b) = pair(ContextConfig::default(), ContextConfig::default(), config);
        assert_eq!(b.chosen().mode, mode);
        let receive = b.post_recv(vec![0; 100_000]).unwrap();
        let send = a.start_send(bytes(100_000, 6), None).unwrap();
        send.wait().unwrap();
        assert!(send.wait_finished(Duration::from_secs(10)));
        assert!(receive.complete().buffer == bytes(100_000, 6));
    }
}
