//! Sealed datagrams over real sockets: all that works in clear, between those who have the token, and with nobody else.

mod datagrams;

use datagrams::{WAIT, next, pattern, register};
use lacuna::datagram::{
    Ended, Failure, Multicast, Operation, QueuePair, RecvWork, Reliable, SEAL_BYTES, SendWork,
    Settings, Target, Verb,
};
use lacuna::datapath::{Fraction, Impair, Impairment, Loss};
use lacuna::trust::{Token, Trust};
use lacuna::{Context, ContextConfig, Progress, ScopedIp, Security, Wrap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn token() -> Trust {
    Trust::of_token(&Token::generate().unwrap())
}

fn made(trust: &Trust, progress: Progress, wrap: Option<Wrap>, settings: &Settings) -> QueuePair {
    let security = Security::Keys(trust.clone());
    let config = ContextConfig { security, progress, wrap, ..ContextConfig::default() };
    let settings = Settings { bind: Ipv4Addr::LOCALHOST.into(), ..settings.clone() };
    Context::new(config).unwrap().datagram_queue_pair(&settings).unwrap()
}

/// A Send, a Write-Record and a READ, in this order, from `near` to `far` and back.
fn all_operations(near: &QueuePair, far: &QueuePair) {
    assert!(near.is_sealed() && far.is_sealed());
    let to_far = near.peer(far.local_addr()).unwrap();
    let len = 100_000;
    let data = pattern(len);
    let inbox = register(far, vec![0; len]);
    let target = register(far, vec![0; len]);
    let into = register(near, vec![0; len]);
    let all = 0..len as u64;
    far.post_recv(RecvWork { id: 5, into: inbox.slice(all.clone()).unwrap() }).unwrap();
    near.post_send(SendWork::new(1, to_far, Verb::Send { data: data.clone().into() })).unwrap();
    assert_eq!((next(near, far).status, next(far, near).bytes), (Ok(()), len as u64));
    let to = Target { key: target.key(), offset: 0 };
    let verb = Verb::WriteRecord { data: data.clone().into(), to };
    near.post_send(SendWork::new(2, to_far, verb)).unwrap();
    assert_eq!(next(near, far).id, 2);
    let done = next(far, near);
    let arrived = done.arrived.unwrap();
    assert_eq!((done.operation, arrived.ended), (Operation::Record, Ended::Whole));
    let verb = Verb::Read { into: into.slice(all).unwrap(), from: to };
    near.post_send(SendWork::new(3, to_far, verb)).unwrap();
    let done = next(near, far);
    assert_eq!((done.id, done.status, done.bytes), (3, Ok(()), len as u64));
    for region in [&inbox, &target, &into] {
        let mut bytes = vec![0; len];
        region.read(0, &mut bytes).unwrap();
        assert!(bytes == data);
    }
}

fn reliable() -> Settings {
    Settings { reliable: Some(Reliable::default()), ..Settings::default() }
}

#[test]
fn all_operations_work_sealed_on_threads_and_without() {
    let short = Settings { packet_bytes: 128, ..reliable() };
    let long = Settings { packet_bytes: 9000, workers: 3, ..Settings::default() };
    for progress in [Progress::default(), Progress::Manual] {
        for settings in [Settings::default(), reliable(), short.clone(), long.clone()] {
            let trust = token();
            let [near, far] = [(); 2].map(|()| made(&trust, progress, None, &settings));
            all_operations(&near, &far);
            let stats = [near.stats().sealed, far.stats().sealed];
            assert!(stats.iter().all(|stats| stats.peers == 1 && stats.forged == 0), "{stats:?}");
        }
    }
}

#[test]
fn reliable_messages_come_sealed_over_a_lossy_path() {
    let wrap: Wrap = Arc::new(|channel, datapath| {
        let loss = Loss::Independent(Fraction::from_ppm(50_000));
        let impairment = Impairment { loss, ..Impairment::default() };
        Box::new(Impair::new(datapath, impairment, u64::from(channel) + 1))
    });
    let trust = token();
    let [near, far] =
        [(); 2].map(|()| made(&trust, Progress::default(), Some(wrap.clone()), &reliable()));
    all_operations(&near, &far);
}

#[test]
fn who_has_another_token_or_none_reaches_nobody() {
    let [near, far] =
        [(); 2].map(|()| made(&token(), Progress::default(), None, &Settings::default()));
    let inbox = register(&far, vec![0; 1000]);
    far.post_recv(RecvWork { id: 1, into: inbox.slice(0..1000).unwrap() }).unwrap();
    // In clear, from anybody.
    let security = Security::Insecure;
    let clear = Context::new(ContextConfig { security, ..ContextConfig::default() }).unwrap();
    let settings = Settings { bind: Ipv4Addr::LOCALHOST.into(), ..Settings::default() };
    let clear = clear.datagram_queue_pair(&settings).unwrap();
    assert!(!clear.is_sealed());
    let to_far = clear.peer(far.local_addr()).unwrap();
    clear.post_send(SendWork::new(9, to_far, Verb::Send { data: pattern(500).into() })).unwrap();
    assert_eq!(next(&clear, &far).status, Ok(()));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for first in 0..=255u8 {
        let bytes = [&[first][..], &pattern(200)].concat();
        socket.send_to(&bytes, far.local_addr()).unwrap();
    }
    // With another token.
    let to_far = near.peer(far.local_addr()).unwrap();
    near.post_send(SendWork::new(2, to_far, Verb::Send { data: pattern(500).into() })).unwrap();
    let done = next(&near, &far);
    assert_eq!((done.id, done.status), (2, Err(Failure::Unreachable)));
    assert_eq!(far.poll(), None);
    let stats = far.stats();
    assert_eq!((stats.packets_taken, stats.sealed.peers, stats.sealed.answered), (0, 0, 0));
    assert!(stats.sealed.forged >= 6 && stats.sealed.malformed > 0, "{:?}", stats.sealed);
}

#[test]
fn a_peer_that_begins_anew_is_reached_again() {
    let trust = token();
    let settings = Settings::default();
    let near = made(&trust, Progress::default(), None, &settings);
    let mut far = made(&trust, Progress::default(), None, &settings);
    let (address, port) = (far.local_addr(), Some(far.local_addr().port()));
    let to_far = near.peer(address).unwrap();
    for life in 0..2 {
        let inbox = register(&far, vec![0; 500]);
        far.post_recv(RecvWork { id: life, into: inbox.slice(0..500).unwrap() }).unwrap();
        // What is sent before both ends know is lost, as with any unreliable datagram.
        let begin = Instant::now();
        let mut came = None;
        while came.is_none() && begin.elapsed() < WAIT {
            let verb = Verb::Send { data: pattern(500).into() };
            near.post_send(SendWork::new(1, to_far, verb)).unwrap();
            came = far.wait(Duration::from_millis(20));
        }
        assert_eq!(came.map(|done| done.bytes), Some(500), "{:?}", near.stats());
        if life == 0 {
            drop(far);
            far = made(&trust, Progress::default(), None, &Settings { port, ..settings.clone() });
        }
    }
}

#[test]
fn what_is_sent_to_a_group_comes_sealed_to_all_that_joined_it() {
    // The loopback interface.
    let interface = 1;
    let multicast = Multicast { interface, ..Multicast::default() };
    let settings = Settings { bind: ScopedIp::ANY, multicast, ..Settings::default() };
    let trust = token();
    let open = || {
        let security = Security::Keys(trust.clone());
        let context = Context::new(ContextConfig { security, ..ContextConfig::default() }).unwrap();
        context.datagram_queue_pair(&settings).unwrap()
    };
    let [first, sender] = [open(), open()];
    let port = first.local_addr().port();
    let group: IpAddr = [239, 77, 1, 3].into();
    if let Err(error) = first.join(group, interface) {
        println!("skipped: no multicast here: {error}");
        return;
    }
    let to = sender.group(SocketAddr::new(group, port)).unwrap();
    let inbox = register(&first, vec![0; 3_000]);
    let target = register(&first, vec![0; 3_000]);
    first.name_region(77, Some(target.key()));
    first.post_recv(RecvWork { id: 1, into: inbox.slice(0..3_000).unwrap() }).unwrap();
    let data = pattern(3_000);
    // Of a receiver that has just begun, the first ones are not taken.
    let mut came = None;
    for _ in 0..100 {
        let verb = Verb::Send { data: data.clone().into() };
        sender.post_send(SendWork::new(1, to, verb)).unwrap();
        came = first.wait(Duration::from_millis(50));
        if came.is_some() {
            break;
        }
    }
    let Some(done) = came else {
        assert_eq!(first.stats().sealed.held, 0, "{:?}", first.stats());
        println!("skipped: multicast does not come over the loopback interface here");
        return;
    };
    assert_eq!((done.id, done.operation, done.bytes), (1, Operation::Receive, 3_000));
    let verb = Verb::WriteNamed { data: data.clone().into(), name: 77, offset: 0 };
    sender.post_send(SendWork::new(2, to, verb)).unwrap();
    assert_eq!(first.wait(WAIT).unwrap().operation, Operation::Record);
    for region in [&inbox, &target] {
        let mut bytes = vec![0; 3_000];
        region.read(0, &mut bytes).unwrap();
        assert!(bytes == data);
    }
}

#[test]
fn a_packet_is_no_longer_than_was_asked_for_and_shows_nothing_of_its_message() {
    let trust = token();
    let settings = Settings { packet_bytes: 600, ..Settings::default() };
    let near = made(&trust, Progress::default(), None, &settings);
    let far = made(&trust, Progress::default(), None, &settings);
    // Between the two, as a gateway is.
    let between = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    between.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let inbox = register(&far, vec![0; 3000]);
    far.post_recv(RecvWork { id: 1, into: inbox.slice(0..3000).unwrap() }).unwrap();
    let peer = near.peer(between.local_addr().unwrap()).unwrap();
    let data = b"secret! ".repeat(375);
    near.post_send(SendWork::new(1, peer, Verb::Send { data: data.clone().into() })).unwrap();
    let (mut lengths, mut buffer) = (Vec::new(), [0; 2000]);
    let begin = Instant::now();
    let done = loop {
        assert!(begin.elapsed() < WAIT, "{:?}", far.stats());
        if let Ok((length, from)) = between.recv_from(&mut buffer) {
            let to = if from == near.local_addr() { far.local_addr() } else { near.local_addr() };
            between.send_to(&buffer[..length], to).unwrap();
            assert!(!buffer[..length].windows(7).any(|window| window == b"secret!"));
            lengths.push(length);
        }
        if let Some(done) = far.poll() {
            break done;
        }
    };
    assert_eq!(done.bytes, 3000);
    assert_eq!(lengths.iter().max(), Some(&600));
    // Headers and trailer of 22 bytes, and the seal.
    let full = 600 - 22 - SEAL_BYTES;
    assert_eq!(lengths.iter().filter(|length| **length == 600).count(), 3000 / full);
    let mut bytes = vec![0; 3000];
    inbox.read(0, &mut bytes).unwrap();
    assert!(bytes == data);
}

/// Bytes per second that come by unreliable Sends.
fn rate(security: &Security, reliable: bool) -> f64 {
    const LEN: u64 = 1 << 18;
    let open = || {
        let config = ContextConfig { security: security.clone(), ..ContextConfig::default() };
        let settings = if reliable { self::reliable() } else { Settings::default() };
        let settings = Settings { bind: Ipv4Addr::LOCALHOST.into(), ..settings };
        Context::new(config).unwrap().datagram_queue_pair(&settings).unwrap()
    };
    let [near, far] = [open(), open()];
    let peer = near.peer(far.local_addr()).unwrap();
    let inbox = register(&far, vec![0; 64 * LEN as usize]);
    let post = |id: u64| {
        let into = inbox.slice(id * LEN..(id + 1) * LEN).unwrap();
        far.post_recv(RecvWork { id, into }).unwrap();
    };
    (0..64).for_each(post);
    let data = Arc::new(pattern(LEN as usize));
    let send = || {
        let data = lacuna::SendBuffer::new(data.clone());
        near.post_send(SendWork::new(1, peer, Verb::Send { data })).unwrap();
    };
    (0..8).for_each(|_| send());
    let (mut begin, mut bytes) = (None, 0);
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        while near.poll().is_some() {
            send();
        }
        while let Some(done) = far.wait(Duration::from_micros(50)) {
            begin.get_or_insert_with(Instant::now);
            bytes += done.bytes;
            post(done.id);
        }
    }
    bytes as f64 / begin.map_or(f64::MAX, |begin| begin.elapsed().as_secs_f64())
}

#[test]
#[ignore = "a measurement: prints rates; run it alone"]
fn rates_in_clear_and_sealed() {
    for reliable in [false, true] {
        let sealed = Security::Keys(token());
        let mut rates = [0.0, 0.0];
        for _ in 0..5 {
            for (sum, security) in rates.iter_mut().zip([&Security::Insecure, &sealed]) {
                *sum += rate(security, reliable) * 8.0 / 5e9;
            }
        }
        let [clear, sealed] = rates;
        println!(
            "reliable {reliable}: clear {clear:.2} Gbit/s, sealed {sealed:.2}, ratio {:.2}",
            sealed / clear
        );
    }
}

/// Also of the packets by which keys are drawn, before the host knows who asks.
#[test]
fn a_host_answers_from_the_address_that_was_asked() {
    let trust = token();
    let security = Security::Keys(trust.clone());
    let far = Context::new(ContextConfig { security, ..ContextConfig::default() }).unwrap();
    let far = far.datagram_queue_pair(&Settings { bind: ScopedIp::ANY, ..Settings::default() });
    let far = far.unwrap();
    let inbox = register(&far, vec![0; 10]);
    for (id, host) in [2, 3].into_iter().enumerate() {
        let into = inbox.slice(id as u64 * 5..id as u64 * 5 + 5).unwrap();
        far.post_recv(RecvWork { id: id as u64, into }).unwrap();
        let near = made(&trust, Progress::default(), None, &Settings::default());
        let asked = SocketAddr::from(([127, 0, 0, host], far.local_addr().port()));
        let peer = near.peer(asked).unwrap();
        near.post_send(SendWork::new(1, peer, Verb::Send { data: vec![host; 5].into() })).unwrap();
        assert_eq!(near.wait(WAIT).unwrap().status, Ok(()));
        assert_eq!(far.wait(WAIT).unwrap().id, id as u64);
    }
}
