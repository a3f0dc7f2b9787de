//! One-sided operations over real sockets: writes to regions of the peer beside the messages of the same
//! connection.

use lacuna::datapath::impair::{Fraction, Impair, Impairment, Loss};
use lacuna::{
    Class, Classes, Connection, ConnectionConfig, Context, ContextConfig, Listener, PostSendError,
    Progress, READ_PART_BYTES, ReadError, Reason, RegionOptions, Rights, SendError, SendFailure,
    Target, Wrap,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Ends what would hang; no test asserts a time.
const LONG: Duration = Duration::from_secs(20);

fn context(loss: f64, channels: u8, progress: Progress) -> Context {
    let wrap: Wrap = Arc::new(move |channel, datapath| {
        let loss = Loss::Independent(Fraction::from_f64(loss));
        let impairment = Impairment { loss, ..Impairment::default() };
        Box::new(Impair::new(datapath, impairment, u64::from(channel) + 1))
    });
    Context::new(ContextConfig {
        bind: LOCALHOST.into(),
        channels,
        progress,
        wrap: (loss > 0.0).then_some(wrap),
        ..ContextConfig::default()
    })
    .unwrap()
}

fn config(mode: &str) -> ConnectionConfig {
    ConnectionConfig {
        mode: mode.parse().unwrap(),
        one_sided: true,
        deadline: LONG,
        ..ConnectionConfig::default()
    }
}

/// A connection over two contexts: the connecting end and the accepting one, which has the second
/// context.
fn connected(contexts: [&Context; 2], config: ConnectionConfig) -> (Connection, Connection) {
    let [here, there] = contexts;
    let plain = ConnectionConfig::default();
    let listener = Listener::bind(there, (LOCALHOST, 0).into(), plain).unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(move || listener.accept().unwrap());
        let connected = Connection::connect(here, address, config).unwrap();
        (connected, accepting.join().unwrap())
    })
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i >> 8) as u8 ^ i as u8 ^ seed).collect()
}

#[test]
fn writes_of_any_length_arrive_without_a_receive_beside_messages() {
    for mode in ["auto", "sr", "ec"] {
        for (loss, channels) in [(0.0, 1), (0.03, 1), (0.02, 3)] {
            let contexts =
                [loss, 0.0].map(|loss| context(loss, channels, ContextConfig::default().progress));
            let (a, b) = connected([&contexts[0], &contexts[1]], config(mode));
            let region = contexts[1].register(vec![0; 3 << 20], RegionOptions::default()).unwrap();
            let receive = b.post_recv(vec![0; 100_000]).unwrap();
            let message = bytes(100_000, 9);
            let send = a.start_send(message.clone(), None).unwrap();
            for (number, len) in [0, 1, 4095, 4096, 4097, 300_000, 2 << 20].into_iter().enumerate()
            {
                let data = bytes(len, number as u8);
                let to = Target { key: region.key(), address: 1000 + number as u64 };
                a.write_to(to, &data, LONG).unwrap();
                let mut got = vec![0; len];
                region.read(to.address, &mut got).unwrap();
                assert!(got == data, "{mode}, {len} bytes");
            }
            send.wait().unwrap();
            receive.wait(LONG).unwrap();
            assert!(receive.complete().buffer == message);
        }
    }
}

#[test]
fn both_ends_write_and_are_told_by_an_immediate() {
    let contexts = [(); 2].map(|()| context(0.0, 1, ContextConfig::default().progress));
    let (a, b) = connected([&contexts[0], &contexts[1]], config("auto"));
    assert!(a.has_one_sided() && b.has_one_sided());
    let regions = contexts
        .each_ref()
        .map(|context| context.register(vec![0; 10_000], RegionOptions::default()).unwrap());
    for (from, to, region) in [(&a, &b, &regions[1]), (&b, &a, &regions[0])] {
        let target = Target { key: region.key(), address: 10 };
        from.write_to(target, &[1; 100], LONG).unwrap();
        from.write_to_with_immediate(target, &[2; 5000], 0xABCD_1234, LONG).unwrap();
        let written = to.wait_written(LONG).expect("it came");
        assert_eq!((written.key, written.address), (region.key(), 10));
        assert_eq!(
            (written.len, written.bytes, written.immediate),
            (Some(5000), 5000, Some(0xABCD_1234))
        );
        assert_eq!((written.reason, written.packets.gaps().count()), (Reason::Whole, 0));
        assert!(to.wait_written(Duration::ZERO).is_none(), "the first said nothing");
        let mut got = vec![0; 5000];
        region.read(10, &mut got).unwrap();
        assert_eq!(got, [2; 5000]);
    }
}

#[test]
fn a_validity_map_tells_what_came_and_is_taken_once() {
    let contexts = [(); 2].map(|()| context(0.0, 1, ContextConfig::default().progress));
    let (a, _b) = connected([&contexts[0], &contexts[1]], config("auto"));
    let options = RegionOptions { has_validity: true, ..RegionOptions::default() };
    let region = contexts[1].register(vec![0; 1 << 16], options).unwrap();
    a.write_to(Target { key: region.key(), address: 100 }, &[1; 1000], LONG).unwrap();
    let valid = region.take_valid(0..1 << 16).unwrap();
    let mut ranges = valid.ranges();
    assert_eq!(ranges.next(), Some(128..1088), "granules of 64 bytes that were written whole");
    assert_eq!(ranges.next(), None);
    assert!(region.valid(0..1 << 16).unwrap().is_empty());
}

#[test]
fn windows_have_keys_and_rights_of_their_own() {
    let contexts = [(); 2].map(|()| context(0.0, 1, ContextConfig::default().progress));
    let (a, _b) = connected([&contexts[0], &contexts[1]], config("sr"));
    let options = RegionOptions { rights: Rights::NONE, ..RegionOptions::default() };
    let region = contexts[1].register(vec![0; 1000], options).unwrap();
    let refused = |to| match a.write_to(to, &[1; 10], LONG) {
        Err(SendError::Failed(SendFailure::Refused)) => true,
        Ok(()) => false,
        Err(error) => panic!("{error}"),
    };
    assert!(refused(Target { key: region.key(), address: 0 }), "the region's key has no right");
    let window = region.window(100..200, Rights::REMOTE_WRITE).unwrap();
    assert!(!refused(Target { key: window.key(), address: 90 }));
    assert!(refused(Target { key: window.key(), address: 91 }), "it reaches behind the window");
    let key = window.key();
    drop(window);
    assert!(refused(Target { key, address: 0 }), "it was revoked");
    let memory = region.into_vec().unwrap();
    let written: Vec<_> = memory.iter().enumerate().filter(|(_, byte)| **byte == 1).collect();
    assert_eq!((written.len(), written[0].0), (10, 190));
}

#[test]
fn a_bounded_write_comes_with_a_map() {
    let contexts = [0.1, 0.0].map(|loss| context(loss, 1, ContextConfig::default().progress));
    let (a, b) = connected([&contexts[0], &contexts[1]], config("bounded"));
    let region = contexts[1].register(vec![0; 1 << 20], RegionOptions::default()).unwrap();
    let data = bytes(1 << 20, 3);
    a.write_to_with_immediate(Target { key: region.key(), address: 0 }, &data, 1, LONG).unwrap();
    let written = b.wait_written(LONG).expect("some of the first packets came");
    let mut got = vec![0; 1 << 20];
    region.read(0, &mut got).unwrap();
    let mut expected = data;
    written.packets.gaps().for_each(|gap| expected[gap].fill(0));
    if let Some(len) = written.len {
        assert_eq!(len, 1 << 20);
        assert!(got == expected);
    }
    assert!(written.bytes < 1 << 20 && written.bytes > 1 << 19);
}

#[test]
fn in_mode_raw_writes_end_as_in_a_bounded_mode() {
    let contexts = [0.2, 0.0].map(|loss| context(loss, 1, ContextConfig::default().progress));
    let (a, b) = connected([&contexts[0], &contexts[1]], config("raw"));
    let region = contexts[1].register(vec![0; 100_000], RegionOptions::default()).unwrap();
    let to = Target { key: region.key(), address: 0 };
    let (mut told, mut lossy) = (0, 0);
    // More than receives are open at once.
    for _ in 0..600 {
        a.write_to_with_immediate(to, &[1; 20_000], 3, LONG).unwrap();
        while let Some(written) = b.wait_written(Duration::ZERO) {
            told += 1;
            lossy += u32::from(written.reason != Reason::Whole);
        }
    }
    assert!(told > 300 && lossy > 100, "{told} told of, {lossy} with gaps");
}

#[test]
fn without_threads_writes_go_on_in_the_applications_calls() {
    let contexts = [(); 2].map(|()| context(0.0, 1, Progress::Manual));
    let there = contexts[1].clone();
    let (a, b) = connected([&contexts[0], &there], config("auto"));
    let region = contexts[1].register(vec![0; 10_000], RegionOptions::default()).unwrap();
    let to = Target { key: region.key(), address: 0 };
    let write = a.start_write_to(to, vec![5; 10_000], Some(8)).unwrap();
    let written = loop {
        contexts[0].progress();
        if let Some(written) = b.wait_written(Duration::from_millis(1)) {
            break written;
        }
    };
    assert_eq!((written.len, written.immediate), (Some(10_000), Some(8)));
    while !write.is_done() {
        contexts[0].progress();
        contexts[1].progress();
    }
}

#[test]
fn reads_of_any_length_come_back_without_the_peers_application() {
    for (mode, loss) in [("auto", 0.0), ("auto", 0.02), ("ec", 0.02)] {
        let contexts = [0.0, loss].map(|loss| context(loss, 2, ContextConfig::default().progress));
        let (a, _b) = connected([&contexts[0], &contexts[1]], config(mode));
        let data = bytes(20 << 20, 7);
        let options = RegionOptions { rights: Rights::REMOTE_READ, ..RegionOptions::default() };
        let region = contexts[1].register(data.clone(), options).unwrap();
        for (address, len) in [(0, 0), (5, 1), (100, 70_000), (3, (9 << 20) + 1), (0, 20 << 20)] {
            let from = Target { key: region.key(), address };
            let got = a.read_from(from, len, LONG).unwrap();
            assert!(got == data[address as usize..][..len], "{mode}, {len} bytes");
        }
        let into = contexts[0].register(vec![1; 1000], RegionOptions::default()).unwrap();
        let from = Target { key: region.key(), address: 50 };
        assert_eq!(a.read_into(from, 100, &into, 900, LONG), Ok(100));
        let mut got = [0; 101];
        into.read(899, &mut got).unwrap();
        assert!(got[0] == 1 && got[1..] == data[50..150]);
        assert!(matches!(a.read_into(from, 101, &into, 900, LONG), Err(ReadError::Region(_))));
    }
}

#[test]
fn several_reads_are_under_way_at_once_and_counted_apart() {
    let contexts = [(); 2].map(|()| context(0.0, 1, ContextConfig::default().progress));
    let (a, b) = connected([&contexts[0], &contexts[1]], config("auto"));
    let data = bytes(9 << 20, 5);
    let options = RegionOptions { rights: Rights::REMOTE_READ, ..RegionOptions::default() };
    let region = contexts[1].register(data.clone(), options).unwrap();
    let into = contexts[0].register(vec![0; 9 << 20], RegionOptions::default()).unwrap();
    let part = 3 << 20;
    let start = |number: u64| {
        let from = Target { key: region.key(), address: number * part };
        a.start_read_into(from, part, &into, number * part, LONG).unwrap()
    };
    let reads = [0, 1, 2].map(start);
    for mut read in reads {
        assert_eq!(read.placed_bytes(), 0);
        assert!(read.wait(LONG).unwrap() && read.wait(Duration::ZERO).unwrap(), "{read:?}");
        assert_eq!((read.placed_bytes(), read.len()), (part, part));
    }
    let mut got = vec![0; data.len()];
    into.read(0, &mut got).unwrap();
    assert!(got == data);
    let counted = a.one_sided_stats().unwrap();
    assert_eq!(counted.ended.receives.get("whole"), Some(&(3 * part.div_ceil(READ_PART_BYTES))));
    assert!(b.one_sided_stats().unwrap().sent.bytes >= 9 << 20);
    assert_eq!(a.stats().messages_received, 0, "messages are another queue pair's");
    // Given up before it has ended.
    drop(start(0));
    let late =
        a.start_read_into(Target { key: region.key(), address: 0 }, 1, &into, 0, Duration::ZERO);
    assert!(matches!(late.unwrap().wait(LONG), Err(ReadError::Failed(_))));
}

#[test]
fn a_read_that_the_key_does_not_allow_is_refused_with_the_reason() {
    let contexts = [(); 2].map(|()| context(0.0, 1, ContextConfig::default().progress));
    let (a, b) = connected([&contexts[0], &contexts[1]], config("auto"));
    let region = contexts[1].register(vec![0; 1000], RegionOptions::default()).unwrap();
    let from = Target { key: region.key(), address: 0 };
    let error = a.read_from(from, 10, LONG).unwrap_err();
    assert!(error.to_string().contains("does not allow reading"), "{error}");
    let window = region.window(0..100, Rights::REMOTE_READ).unwrap();
    let from = Target { key: window.key(), address: 95 };
    assert_eq!(a.read_from(from, 5, LONG), Ok(vec![0; 5]));
    let error = a.read_from(from, 6, LONG).unwrap_err();
    assert!(error.to_string().contains("outside of the key's range"), "{error}");
    drop(b);
    assert!(matches!(a.read_from(from, 5, LONG), Err(ReadError::Failed(_) | ReadError::Post(_))));
}

#[test]
fn without_threads_a_read_is_answered_in_the_peers_calls() {
    let contexts = [(); 2].map(|()| context(0.0, 1, Progress::Manual));
    let (a, _b) = connected([&contexts[0], &contexts[1]], config("auto"));
    let options = RegionOptions { rights: Rights::REMOTE_READ, ..RegionOptions::default() };
    let region = contexts[1].register(vec![6; 100_000], options).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                contexts[1].progress();
            }
        });
        let from = Target { key: region.key(), address: 0 };
        let got = a.read_from(from, 100_000, LONG);
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(got, Ok(vec![6; 100_000]));
    });
}

#[test]
fn a_connection_without_them_says_so() {
    let contexts = [(); 2].map(|()| context(0.0, 1, ContextConfig::default().progress));
    let (a, b) = connected([&contexts[0], &contexts[1]], ConnectionConfig::default());
    assert!(!a.has_one_sided() && !b.has_one_sided());
    let refused = a.start_write_to(Target { key: 1, address: 0 }, vec![1], None).unwrap_err();
    assert_eq!(refused, PostSendError::NoRegions);
    assert!(b.wait_written(Duration::ZERO).is_none());
}

#[test]
fn writes_end_when_the_peer_closes() {
    let contexts = [(); 2].map(|()| context(0.0, 1, ContextConfig::default().progress));
    let (a, b) = connected([&contexts[0], &contexts[1]], config("auto"));
    // An unknown key is answered by nobody.
    let write = a.start_write_to(Target { key: 12345, address: 0 }, vec![1; 10], None).unwrap();
    drop(b);
    assert!(matches!(write.wait(), Err(SendError::Failed(SendFailure::Failed(_)))));
    assert!(a.wait_written(LONG).is_none());
}

#[test]
fn what_arrived_before_the_peer_closed_has_succeeded_on_every_queue_pair() {
    let contexts = [(); 2].map(|()| context(0.0, 1, ContextConfig::default().progress));
    let config = ConnectionConfig { classes: Classes::ALL, ..config("auto") };
    for round in 0..50u32 {
        let (a, b) = connected([&contexts[0], &contexts[1]], config);
        let region = contexts[1].register(vec![0; 5000], RegionOptions::default()).unwrap();
        let urgent = b.class(Class::Critical).unwrap().post_recv(vec![0; 5000]).unwrap();
        let to = Target { key: region.key(), address: 0 };
        let write = a.start_write_to(to, vec![1; 5000], Some(round)).unwrap();
        let send = a.class(Class::Critical).unwrap().send(vec![2; 5000], None).unwrap();
        b.wait_written(LONG).unwrap();
        urgent.wait(LONG).unwrap();
        drop((urgent, b));
        assert_eq!((write.wait(), send.wait()), (Ok(()), Ok(())), "round {round}");
    }
}

#[test]
fn without_threads_accepting_sends_the_first_packets_of_all_queue_pairs() {
    // Else the peer, which has a thread to wait in, would wait for them until its queue pairs fail.
    let config = ConnectionConfig { classes: Classes::ALL, ..config("auto") };
    for _ in 0..30 {
        let contexts = [(); 2].map(|()| context(0.0, 1, Progress::Manual));
        let (a, _b) = connected([&contexts[0], &contexts[1]], config);
        let region = contexts[1].register(vec![0; 5000], RegionOptions::default()).unwrap();
        let to = Target { key: region.key(), address: 0 };
        let write = a.start_write_to(to, vec![5; 5000], None).unwrap();
        while !write.is_done() {
            contexts.iter().for_each(|context| _ = context.progress());
        }
        assert_eq!(write.wait(), Ok(()));
    }
}
