//! The handshake against broken peers: garbage, silence, other versions, absurd parameters. Each is
//! a precise error, and none harms the context or the next peer.

use lacuna::{
    ConnectError, Connection, ConnectionConfig, Context, ContextConfig, Failure, Listener, ScopedIp,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const MAGIC: &[u8; 8] = b"LACUNA\r\n";

fn context_at(bind: impl Into<ScopedIp>) -> Context {
    Context::new(ContextConfig { bind: bind.into(), ..ContextConfig::default() })
        .expect("sockets on loopback")
}

fn context() -> Context {
    context_at(Ipv4Addr::LOCALHOST)
}

fn within(connect_timeout: Duration) -> ConnectionConfig {
    ConnectionConfig { connect_timeout, ..ConnectionConfig::default() }
}

fn listener(context: &Context, config: ConnectionConfig) -> Listener {
    Listener::bind(context, "127.0.0.1:0".parse().unwrap(), config).unwrap()
}

fn message(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes(), body].concat()
}

/// A valid hello of a peer whose packets go nowhere.
fn hello() -> Value {
    json!({
        "version": lacuna::PROTOCOL_VERSION,
        "agent": "test",
        "mode": "sr",
        "chunk_bytes": 65536,
        "mtu_bytes": null,
        "generations": 4,
        "split": [10, 18, 4],
        "max_message_bytes": 0,
        "end": end(1, &[9]),
    })
}

fn end(queue_pair: u32, ports: &[u16]) -> Value {
    json!({
        "queue_pair": queue_pair,
        "rkey": 6,
        "qkey": 7,
        "first_psn": 8,
        "credit_bytes": 1 << 20,
        "ports": ports,
    })
}

fn opening(hello: &Value) -> Vec<u8> {
    [&MAGIC[..], &message(hello.to_string().as_bytes())].concat()
}

/// The listener's error for a peer that sends `bytes` and, with `close`, closes; and the bytes it
/// answers.
fn accept_from(listener: &Listener, bytes: &[u8], close: bool) -> (ConnectError, Vec<u8>) {
    let mut peer = TcpStream::connect(listener.local_addr()).unwrap();
    peer.write_all(bytes).unwrap();
    if close {
        peer.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let error = listener.accept().expect_err("no peer to agree with");
    let mut answer = Vec::new();
    // A connection closed with bytes unread ends in an error instead.
    let _ = peer.read_to_end(&mut answer);
    (error, answer)
}

/// The connecting end's error for a listener that reads the hello and answers `bytes`.
fn connect_to(bytes: Vec<u8>) -> ConnectError {
    let fake = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = fake.local_addr().unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = fake.accept().unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head[..8], MAGIC);
        let len = u32::from_be_bytes(head[8..].try_into().unwrap());
        stream.read_exact(&mut vec![0; len as usize]).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let error = Connection::connect(&context(), address, within(Duration::from_secs(20)));
    answering.join().unwrap();
    error.expect_err("nothing to connect to")
}

/// Checks that a listener which has met bad peers still serves a good one.
fn still_serves(listener: Listener) {
    let address = listener.local_addr();
    let accepting = thread::spawn(move || listener.accept());
    let config = within(Duration::from_secs(10));
    let a = Connection::connect(&context(), address, config).expect("it accepts");
    let b = accepting.join().unwrap().expect("the peer connects");
    let receive = b.post_recv(vec![0; 5]).unwrap();
    a.send(b"still").unwrap();
    receive.wait(Duration::from_secs(20)).unwrap();
    assert_eq!(receive.complete().buffer, b"still");
}

#[test]
fn garbage_is_named_and_harms_nobody_else() {
    let context = context();
    let listener = listener(&context, within(Duration::from_secs(20)));
    let huge = [&MAGIC[..], &[0xFF; 4]].concat();
    let nested = [&MAGIC[..], &message(&[b'['; 16_000])].concat();
    let bare = [&MAGIC[..], &message(b"{}")].concat();
    let other = [&MAGIC[..], &message(b"\x1b[2Jnot json")].concat();
    let cases: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n", "it began with \"GET / HT\""),
        (&[0; 64], "it began with"),
        (&huge, "a message of 4294967295 bytes"),
        (&nested, "while waiting for the hello"),
        (&bare, "missing field `version`"),
        (&other, "while waiting for the hello"),
    ];
    for (bytes, expected) in cases {
        let (error, _) = accept_from(&listener, bytes, false);
        assert!(matches!(error, ConnectError::NotLacuna { .. }), "{error}");
        assert!(!error.is_retryable());
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains("does not speak Lacuna"), "{text}");
        assert!(!text.contains('\x1b'), "{text:?}");
    }
    still_serves(listener);
}

#[test]
fn a_peer_that_leaves_at_any_step_is_an_error_at_that_step() {
    let context = context();
    let listener = listener(&context, within(Duration::from_secs(20)));
    let whole = opening(&hello());
    for sent in [0, 3, 8, 11, 12, 40, whole.len() - 1] {
        let (error, _) = accept_from(&listener, &whole[..sent], true);
        let text = error.to_string();
        assert!(matches!(error, ConnectError::Exchange { .. }), "{sent} bytes: {text}");
        assert!(text.contains("waiting for the hello"), "{sent} bytes: {text}");
        assert!(text.contains("closed the connection"), "{sent} bytes: {text}");
    }
    still_serves(listener);
}

#[test]
fn a_peer_that_stalls_is_given_up_and_holds_nobody() {
    let context = context();
    let listener = listener(&context, within(Duration::from_millis(300)));
    let whole = opening(&hello());
    for sent in [0, 8, 40] {
        let (error, _) = accept_from(&listener, &whole[..sent], false);
        let text = error.to_string();
        assert!(text.contains("waiting for the hello: timed out"), "{sent} bytes: {text}");
    }
    // The same with a long timeout, and a good peer beside it.
    let patient =
        Listener::bind(&context, "127.0.0.1:0".parse().unwrap(), within(Duration::from_secs(20)))
            .unwrap();
    let silent = TcpStream::connect(patient.local_addr()).unwrap();
    thread::scope(|scope| {
        let address = patient.local_addr();
        let accepting = scope.spawn(|| patient.accept());
        let config = ConnectionConfig::default();
        let a = Connection::connect(&self::context(), address, config).expect("it accepts");
        accepting.join().unwrap().expect("the peer connects");
        assert_eq!(a.peer(), address);
        drop(silent);
        assert!(patient.accept().is_err());
    });
}

#[test]
fn a_connection_whose_packets_go_nowhere_ends_with_an_error_that_says_so() {
    let context = context();
    let listener = listener(&context, within(Duration::from_millis(300)));
    let mut peer = TcpStream::connect(listener.local_addr()).unwrap();
    peer.write_all(&opening(&hello())).unwrap();
    let connection = listener.accept().expect("nothing is known of its packets yet");
    let mut magic = [0; 8];
    peer.read_exact(&mut magic).unwrap();
    assert_eq!(&magic, MAGIC);
    let error = connection.recv(&mut [0; 8]).unwrap_err();
    let expected = Failure::NoUdp { answered: 0, channels: 1, packet_bytes: 4132, waited_ms: 0 };
    let Some(Failure::NoUdp { answered: 0, channels: 1, packet_bytes, .. }) = connection.failure()
    else {
        panic!("{error} instead of, for instance, {expected}");
    };
    assert_eq!(packet_bytes, 4132);
    assert!(error.to_string().contains("is UDP between the ends blocked"), "{error}");
}

#[test]
fn a_silent_peer_holds_up_nobody() {
    let context = context();
    let listener = listener(&context, within(Duration::from_secs(20)));
    let address = listener.local_addr();
    let silent = TcpStream::connect(address).unwrap();
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(&opening(&hello())[..20]).unwrap();
    let accepting = thread::spawn(move || (listener.accept(), listener));
    Connection::connect(&self::context(), address, within(Duration::from_secs(20)))
        .expect("it accepts");
    let (accepted, listener) = accepting.join().unwrap();
    accepted.expect("the one that spoke comes first");
    // Slow peers are still served.
    slow.write_all(&opening(&hello())[20..]).unwrap();
    listener.accept().expect("it has spoken now");
    drop(silent);
    let error = listener.accept().unwrap_err().to_string();
    assert!(error.contains("waiting for the hello: the peer closed"), "{error}");
}

#[test]
fn another_version_is_told_apart_from_nonsense() {
    // Whatever else the hello of another version contains.
    let context = context();
    let listener = listener(&context, within(Duration::from_secs(20)));
    let newer = json!({ "version": 9, "something": "new" });
    let (error, answer) = accept_from(&listener, &opening(&newer), false);
    let text = error.to_string();
    let here = lacuna::PROTOCOL_VERSION;
    let expected = format!("speaks version 9 of the protocol, this end version {here}");
    assert!(text.contains(&expected), "{text}");
    assert_eq!(&answer[..8], MAGIC);
    let refusal: Value = serde_json::from_slice(&answer[12..]).unwrap();
    assert_eq!(refusal["Refused"]["version"], lacuna::PROTOCOL_VERSION);
    still_serves(listener);

    let refusal = json!({ "Refused": { "version": 9, "reason": "this end speaks version 9" } });
    let error = connect_to(opening(&refusal));
    assert!(matches!(error, ConnectError::Version { there: 9, .. }), "{error}");
}

#[test]
fn wishes_that_make_no_sense_are_refused_with_the_numbers() {
    let context = context();
    let listener = listener(&context, within(Duration::from_secs(20)));
    let cases = [
        ("mtu_bytes", json!(u32::MAX), "mtu of 4294967295 bytes"),
        ("mtu_bytes", json!(1), "mtu of 1 bytes"),
        ("mtu_bytes", json!(0), "mtu of 0 bytes"),
        ("chunk_bytes", json!(0), "chunk of 0 packets"),
        ("generations", json!(0), "0 generations"),
        ("generations", json!(255), "255 generations"),
        ("split", json!([10, 18, 3]), "3 bits"),
        ("split", json!([255, 255, 255]), "255"),
        ("split", json!([0, 0, 32]), "0"),
        ("mode", json!("hope"), "hope"),
        ("mode", json!("ec:mds:0:8"), "k = 0, m = 8"),
        ("mode", json!("ec:mds:200:56"), "200 + 56"),
        ("mode", json!("ec:xor:4:8"), "m = 8 is more than k = 4"),
        ("end", end(1, &[]), "0 channels"),
        ("end", end(1, &[1; 17]), "17 channels"),
        ("end", end(1, &[9, 0]), "port 0 for channel 1"),
        ("end", end(0, &[9]), "queue pair 0"),
        ("end", end(u32::MAX, &[9]), "queue pair 4294967295"),
    ];
    for (field, value, expected) in cases {
        let mut hello = hello();
        hello[field] = value;
        let (error, answer) = accept_from(&listener, &opening(&hello), false);
        let text = error.to_string();
        assert!(matches!(error, ConnectError::Unacceptable { .. }), "{field}: {text}");
        assert!(text.contains(expected), "{field}: {text}");
        let refusal: Value = serde_json::from_slice(&answer[12..]).unwrap();
        let reason = refusal["Refused"]["reason"].as_str().unwrap();
        assert!(reason.contains(expected), "{field}: the peer is told {reason}");
    }
    still_serves(listener);
}

#[test]
fn a_code_over_chunks_that_do_not_fit_the_message_is_refused_with_the_numbers() {
    let context = context();
    let listener = listener(&context, within(Duration::from_secs(20)));
    for (chunk_bytes, max_message_bytes, expected) in [
        (1 << 20, 1 << 16, "must be 1 to"),
        (1 << 31, 0, "use smaller chunks"),
        (u64::MAX, 0, "use smaller chunks"),
    ] {
        let mut hello = hello();
        hello["mode"] = json!("ec");
        hello["chunk_bytes"] = json!(chunk_bytes);
        hello["max_message_bytes"] = json!(max_message_bytes);
        let (error, _) = accept_from(&listener, &opening(&hello), false);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let config = ConnectionConfig {
        mode: "ec".parse().unwrap(),
        chunk_bytes: 1 << 20,
        max_message_bytes: 1 << 16,
        ..within(Duration::from_secs(20))
    };
    let refused = Connection::connect(&context, listener.local_addr(), config).unwrap_err();
    assert!(
        matches!(refused, ConnectError::QueuePair(_)),
        "before the peer is troubled: {refused}"
    );
    // It saw that somebody came and went.
    listener.accept().unwrap_err();
    still_serves(listener);
}

#[test]
fn absurd_lengths_are_cut_and_overflow_nothing() {
    let context = context();
    let listener = listener(&context, within(Duration::from_millis(200)));
    for field in ["chunk_bytes", "max_message_bytes"] {
        for value in [1, u64::from(u32::MAX) + 1, u64::MAX] {
            let mut hello = hello();
            hello[field] = json!(value);
            let mut peer = TcpStream::connect(listener.local_addr()).unwrap();
            peer.write_all(&opening(&hello)).unwrap();
            listener.accept().unwrap_or_else(|error| panic!("{field} {value}: {error}"));
        }
    }
    let config = ConnectionConfig::default();
    assert!(config.geometry(u32::MAX, 1).is_err());
    assert!(config.geometry(0, 1).is_err());
    still_serves(self::listener(&context, config));
}

#[test]
fn a_listener_that_is_something_else_is_named() {
    let error = connect_to(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    assert!(error.to_string().contains("it began with \"HTTP/1.1\""), "{error}");

    let error = connect_to(Vec::new());
    assert!(error.to_string().contains("waiting for the welcome"), "{error}");
    assert!(error.is_retryable());

    let version = lacuna::PROTOCOL_VERSION;
    let refusal = json!({ "Refused": { "version": version, "reason": "full\u{1b}[31m" } });
    let error = connect_to(opening(&refusal));
    assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
    assert!(error.to_string().ends_with("refused: full\\u{1b}[31m"), "{error}");

    let info = [&b"LCQP"[..], &[0; 60]].concat();
    let welcome =
        json!({ "version": version, "agent": "test", "is_mtu_given": false, "info": info });
    let error = connect_to(opening(&json!({ "Accepted": welcome })));
    assert!(error.to_string().contains("the peer's info cannot be read"), "{error}");
}

#[test]
fn nobody_there_and_nobody_talking_are_different_errors() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let error =
        Connection::connect(&context(), address, within(Duration::from_millis(100))).unwrap_err();
    assert!(error.to_string().contains("waiting for the welcome: timed out"), "{error}");
    drop(silent);
    let error =
        Connection::connect(&context(), address, within(Duration::from_secs(5))).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}

#[test]
fn patience_without_end_is_a_valid_wish() {
    let context = context();
    let listener = listener(&context, within(Duration::MAX));
    let address = listener.local_addr();
    let accepting = thread::spawn(move || listener.accept());
    Connection::connect(&self::context(), address, within(Duration::MAX)).expect("it accepts");
    accepting.join().unwrap().expect("the peer connects");
}

/// The control connection and the sockets may use different address families, and the same host may
/// appear as IPv4 or as IPv4-mapped IPv6.
#[test]
fn control_connections_may_be_of_another_family_than_the_sockets() {
    let any_v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    if TcpListener::bind(any_v6).is_err() {
        return;
    }
    for bind in [ScopedIp::from(Ipv4Addr::UNSPECIFIED), ScopedIp::ANY] {
        let context = context_at(bind);
        let listener = Listener::bind(&context, any_v6, within(Duration::from_secs(2))).unwrap();
        let port = listener.local_addr().port();
        let accepting = thread::spawn(move || listener.accept());
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let config = within(Duration::from_secs(2));
        Connection::connect(&context_at(Ipv4Addr::UNSPECIFIED), to, config)
            .unwrap_or_else(|error| panic!("a listener's context at {bind}: {error}"));
        accepting.join().unwrap().unwrap();
    }

    let (context, peer) = (context(), context_at(Ipv6Addr::LOCALHOST));
    let listener = Listener::bind(
        &peer,
        SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0),
        within(Duration::from_secs(2)),
    );
    let error = Connection::connect(
        &context,
        listener.unwrap().local_addr(),
        within(Duration::from_secs(2)),
    );
    let text = error.unwrap_err().to_string();
    assert!(text.contains("no packets from sockets at 127.0.0.1 to ::1"), "{text}");
}

/// By default, an end connects to and accepts peers of both families, and an IPv4 peer is reported
/// as IPv4 everywhere.
#[test]
fn by_default_both_families_connect() {
    let everything = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    let context = || Context::new(ContextConfig::default()).expect("sockets");
    let there = context();
    let listener = Listener::bind(&there, everything, within(Duration::from_secs(9))).unwrap();
    let port = listener.local_addr().port();
    let has_v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    let hosts =
        [Some(IpAddr::from(Ipv4Addr::LOCALHOST)), has_v6.then_some(Ipv6Addr::LOCALHOST.into())];
    for host in hosts.into_iter().flatten() {
        thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept().unwrap());
            let config = within(Duration::from_secs(9));
            let here = Connection::connect(&context(), SocketAddr::new(host, port), config);
            let (here, there) = (here.unwrap(), accepting.join().unwrap());
            assert_eq!((here.peer().ip(), there.peer().ip()), (host, host));
            let receive = there.post_recv(vec![0; 1 << 20]).unwrap();
            here.send(&vec![7; 1 << 20]).unwrap();
            assert_eq!(receive.complete().buffer, vec![7; 1 << 20]);
            // The payload of a packet follows from the headers of the family, whichever the socket.
            assert_eq!(here.chosen().mtu_bytes, there.chosen().mtu_bytes);
        });
    }
}

#[test]
fn an_interface_that_there_is_not_is_said() {
    let peer = "[fe80::1%nothere0]:7400";
    let error = Connection::connect(&context(), peer, ConnectionConfig::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no network interface \"nothere0\""), "{text}");
    let peer: SocketAddr = "[fe80::1]:7400".parse().unwrap();
    let error = Connection::connect(&context(), peer, ConnectionConfig::default()).unwrap_err();
    assert!(error.to_string().contains("use fe80::1%INTERFACE"), "{error}");
    let error = Context::new(ContextConfig { bind: peer.into(), ..ContextConfig::default() });
    assert!(error.unwrap_err().to_string().contains("needs its interface"));
}

#[test]
fn the_accepting_end_reads_what_the_connection_is_for() {
    let context = context();
    let listener = listener(&context, ConnectionConfig::default());
    let address = listener.local_addr();
    let config = ConnectionConfig { tag: u64::MAX - 1, ..ConnectionConfig::default() };
    let accepting = thread::spawn(move || listener.accept().unwrap().tag());
    let connection = Connection::connect(&context, address, config).unwrap();
    assert_eq!(accepting.join().unwrap(), u64::MAX - 1);
    assert_eq!(connection.tag(), u64::MAX - 1);
}

#[test]
fn a_peer_that_is_for_something_else_is_refused_with_the_reason() {
    let context = context();
    let listener = listener(&context, ConnectionConfig::default());
    let address = listener.local_addr();
    let accepting = thread::spawn(move || {
        let agree = || {
            let incoming = listener.accept_incoming().unwrap();
            let takes =
                |tag| if tag == 7 { Ok(()) } else { Err(format!("{tag}: only 7 comes in here")) };
            listener.agree_if(incoming, takes)
        };
        (agree(), agree())
    });
    let connect = |tag| {
        let config = ConnectionConfig { tag, ..ConnectionConfig::default() };
        Connection::connect(&self::context(), address, config)
    };
    let refused = connect(8).expect_err("8 does not come in");
    let text = refused.to_string();
    assert!(matches!(refused, ConnectError::Refused { .. }) && !refused.is_retryable());
    assert!(text.ends_with("refused: 8: only 7 comes in here"), "{text}");
    let taken = connect(7).expect("7 comes in");
    let (first, second) = accepting.join().unwrap();
    assert!(matches!(first, Err(ConnectError::Unacceptable { .. })), "{first:?}");
    assert_eq!(second.unwrap().tag(), taken.tag());
}

/// A peer with fewer channels: both ends use as many as both have.
#[test]
fn fewer_channels_than_this_end_has_are_said() {
    let channels = |channels| {
        let bind = Ipv4Addr::LOCALHOST.into();
        Context::new(ContextConfig { bind, channels, ..ContextConfig::default() }).unwrap()
    };
    let (context, peer) = (channels(4), channels(2));
    let listener = listener(&peer, ConnectionConfig::default());
    let address = listener.local_addr();
    let accepting = thread::spawn(move || listener.accept().unwrap());
    let a = Connection::connect(&context, address, ConnectionConfig::default()).unwrap();
    let b = accepting.join().unwrap();
    assert_eq!((a.chosen().channels, a.chosen().channels_here), (2, 4));
    assert_eq!((b.chosen().channels, b.chosen().channels_here), (2, 2));
}
