//! Cost and robustness of connecting: round trips, counted by holding one direction back and not by
//! the clock; links that are narrower than TCP knows; a thousand peers at once.

use lacuna::datapath::Datapath;
use lacuna::datapath::testing::judged;
use lacuna::{
    ConnectError, Connecting, Connection, ConnectionConfig, Context, ContextConfig, Failure, Gone,
    Listener, Progress,
};
use lacuna_wire::{Frame, Packet, parse};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WAIT: Duration = Duration::from_secs(20);

/// Decides whether a packet may leave.
type Judge = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

fn context(judge: Option<Judge>) -> Context {
    let config = ContextConfig { bind: LOCALHOST.into(), ..ContextConfig::default() };
    let Some(judge) = judge else { return Context::new(config).expect("sockets on loopback") };
    let wrap = move |_, inner| -> Box<dyn Datapath> {
        let judge = judge.clone();
        Box::new(judged(inner, move |packet| judge(packet)))
    };
    Context::new(ContextConfig { wrap: Some(Arc::new(wrap)), ..config }).unwrap()
}

fn listener(context: &Context) -> Listener {
    let address = SocketAddr::new(LOCALHOST, 0);
    Listener::bind(context, address, ConnectionConfig::default()).unwrap()
}

/// Whether a control packet says that a receive is posted.
fn says_posted(packet: &[u8]) -> bool {
    let Ok(Packet::Control(_, body)) = parse(packet) else { return false };
    let Ok(body) = lacuna_wire::ControlBody::parse(body) else { return false };
    let posted = |frame| matches!(frame, Ok(Frame::Receives(receives)) if receives.posted > 0);
    body.frames().any(posted)
}

/// State of the accepting end's UDP direction.
#[derive(Default)]
struct Way {
    /// The announcement of a receive has passed.
    is_clear: bool,
    /// Blocks everything.
    is_closed: bool,
}

/// Connecting and the first message take one flight each way: after the welcome and the packets
/// beside it, the connecting end needs nothing more from its peer.
#[test]
fn data_follows_the_welcome_and_nothing_else_is_waited_for() {
    let way = Arc::new((Mutex::new(Way::default()), Condvar::new()));
    let watched = way.clone();
    let judge: Judge = Arc::new(move |packet| {
        let mut way = watched.0.lock().unwrap();
        way.is_clear |= says_posted(packet);
        watched.1.notify_all();
        !way.is_closed
    });
    let listening = context(Some(judge));
    let listener = listener(&listening);
    let behind = listener.local_addr();
    let server = thread::spawn(move || {
        let connection = listener.accept().expect("the peer connects");
        let receive = connection.post_recv(vec![0; 20_000]).unwrap();
        receive.wait(WAIT).expect("the message comes");
        (receive.complete().buffer, connection)
    });

    // A TCP proxy: it passes the hello, and holds the welcome until a receive was announced over
    // UDP. Then the way back is closed.
    let gate = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let address = gate.local_addr().unwrap();
    let held = way.clone();
    let passing = thread::spawn(move || {
        let (mut near, mut far) = (gate.accept().unwrap().0, TcpStream::connect(behind).unwrap());
        pass_message(&mut near, &mut far);
        let way = held.1.wait_while(held.0.lock().unwrap(), |way| !way.is_clear).unwrap();
        drop(way);
        held.0.lock().unwrap().is_closed = true;
        pass_message(&mut far, &mut near);
        (near, far)
    });
    let connection =
        Connection::connect(&context(None), address, ConnectionConfig::default()).unwrap();
    let write = connection.start_send(vec![7; 20_000], None).unwrap();
    let (buffer, _there) = server.join().unwrap();
    assert!(buffer == [7; 20_000]);
    // Only the acknowledgement needs the way back.
    way.0.lock().unwrap().is_closed = false;
    write.wait().expect("it has arrived");
    passing.join().unwrap();
}

/// Forwards one handshake message.
fn pass_message(from: &mut TcpStream, to: &mut TcpStream) {
    to.write_all(&take_message(from)).unwrap();
}

/// Reads one handshake message.
fn take_message(from: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 12];
    from.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_be_bytes(head[8..].try_into().unwrap()) as usize];
    from.read_exact(&mut body).unwrap();
    [&head[..], &body].concat()
}

/// How an application waits for many attempts at once.
fn wait_for_all(connecting: Vec<Connecting>) -> Vec<Connection> {
    let connect = |mut connecting: Connecting| {
        connecting.wait(WAIT).expect("within the time").expect("it accepts")
    };
    connecting.into_iter().map(connect).collect()
}

/// One thread begins 127 connections, which together take the round trips of one: all hellos are
/// sent before any welcome, however long a round trip is. After TCP's own handshake that is one
/// round trip. A thread that connected one by one would hang here.
#[test]
fn many_connections_from_one_thread_take_the_round_trips_of_one() {
    const PEERS: usize = 127;
    for progress in [Progress::default(), Progress::Manual] {
        let there = context(None);
        let listener = listener(&there);
        let behind = listener.local_addr();
        let gate = TcpListener::bind((LOCALHOST, 0)).unwrap();
        let address = gate.local_addr().unwrap();
        let passing = thread::spawn(move || {
            let mut streams = Vec::new();
            for _ in 0..PEERS {
                streams.push((gate.accept().unwrap().0, TcpStream::connect(behind).unwrap()));
            }
            // The first flight: all hellos come before any answer.
            let hellos: Vec<_> = streams.iter_mut().map(|(near, _)| take_message(near)).collect();
            for ((_, far), hello) in streams.iter_mut().zip(hellos) {
                far.write_all(&hello).unwrap();
            }
            // The second flight.
            let welcomes: Vec<_> = streams.iter_mut().map(|(_, far)| take_message(far)).collect();
            for ((near, _), welcome) in streams.iter_mut().zip(welcomes) {
                near.write_all(&welcome).unwrap();
            }
            streams
        });
        let accepting = thread::spawn(move || {
            (0..PEERS).map(|_| listener.accept().expect("another peer")).collect::<Vec<_>>()
        });
        let config = ContextConfig { bind: LOCALHOST.into(), progress, ..ContextConfig::default() };
        let here = Context::new(config).unwrap();
        let begin = |_| here.connect_start(address, ConnectionConfig::default()).unwrap();
        let mut connecting: Vec<_> = (0..PEERS).map(begin).collect();
        let connected = match progress {
            // The context's thread drives all attempts.
            Progress::Threads { .. } => wait_for_all(connecting),
            // Calls drive the attempts, each its own.
            Progress::Manual => {
                let mut connected = Vec::new();
                while connected.len() < PEERS {
                    for connecting in &mut connecting {
                        connected.extend(connecting.poll().map(|made| made.expect("it accepts")));
                    }
                }
                connected
            }
        };
        assert_eq!(connected.len(), PEERS);
        drop((connected, accepting.join().unwrap(), passing.join().unwrap()));
    }
}

/// Connecting and accepting at both ends in one non-blocking thread.
#[test]
fn one_thread_connects_and_accepts_many() {
    const PEERS: usize = 16;
    for progress in [Progress::default(), Progress::Manual] {
        let config = ContextConfig { bind: LOCALHOST.into(), progress, ..ContextConfig::default() };
        let [here, there] = [(); 2].map(|()| Context::new(config.clone()).unwrap());
        let listener = listener(&there);
        assert!(listener.try_accept().unwrap().is_none(), "nobody has come");
        let tagged = |tag| ConnectionConfig { tag, ..ConnectionConfig::default() };
        let begin = |tag| here.connect_start(listener.local_addr(), tagged(tag as u64)).unwrap();
        let mut connecting: Vec<_> = (0..PEERS).map(begin).collect();
        let (mut connected, mut accepted) = (Vec::new(), Vec::new());
        while connected.len() < PEERS || accepted.len() < PEERS {
            accepted.extend(listener.try_accept().expect("a peer"));
            for connecting in &mut connecting {
                connected.extend(connecting.poll().map(|made| made.expect("it accepts")));
            }
        }
        accepted.sort_by_key(Connection::tag);
        assert!(accepted.iter().map(Connection::tag).eq(0..PEERS as u64));
        // They work like any other connection.
        connected.sort_by_key(Connection::tag);
        for (a, b) in connected.iter().zip(&accepted) {
            let receive = b.post_recv(vec![0; 9]).unwrap();
            let write = a.start_send(b"one of 16".to_vec(), None).unwrap();
            while !receive.is_complete() {
                here.progress();
                there.progress();
            }
            assert_eq!(receive.complete().buffer, b"one of 16");
            drop(write);
        }
        let mut first = connecting.swap_remove(0);
        assert!(first.poll().is_none() && first.wait(WAIT).is_none(), "it was said already");
    }
}

/// A dropped attempt leaves nothing behind and reports nothing.
#[test]
fn an_attempt_that_is_dropped_is_over() {
    let here = context(None);
    let silent = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let address = silent.local_addr().unwrap();
    let mut connecting = here.connect_start(address, ConnectionConfig::default()).unwrap();
    let mut peer = silent.accept().unwrap().0;
    take_message(&mut peer);
    assert!(connecting.poll().is_none());
    assert!(connecting.wait(Duration::from_millis(1)).is_none(), "nothing was answered");
    drop(connecting);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the control connection is closed");
}

/// An error of an attempt that nobody waits for is returned by the next poll.
#[test]
fn an_attempt_that_fails_says_why() {
    for progress in [Progress::default(), Progress::Manual] {
        let config = ContextConfig { bind: LOCALHOST.into(), progress, ..ContextConfig::default() };
        let here = Context::new(config).unwrap();
        let within = |ms| ConnectionConfig {
            connect_timeout: Duration::from_millis(ms),
            ..ConnectionConfig::default()
        };
        let silent = TcpListener::bind((LOCALHOST, 0)).unwrap();
        let address = silent.local_addr().unwrap();
        let error = here.connect_start(address, within(100)).unwrap().wait(WAIT).unwrap();
        let text = error.unwrap_err().to_string();
        assert!(text.contains("waiting for the welcome: timed out"), "{text}");
        drop(silent);
        let error = here.connect_start(address, within(5000)).unwrap().wait(WAIT).unwrap();
        assert!(matches!(error, Err(ConnectError::Unreachable { .. })), "{error:?}");
        let error = here.connect_start("[::1]:9", within(5000)).unwrap().wait(WAIT).unwrap();
        let text = error.unwrap_err().to_string();
        assert!(text.contains("no packets from sockets at 127.0.0.1 to ::1"), "{text}");
    }
}

/// A link between the ends that is narrower than both ends' interfaces, which TCP cannot know.
#[test]
fn a_link_that_is_narrower_than_tcp_knows_is_found() {
    let narrow = || context(Some(Arc::new(|packet| packet.len() <= 1400)));
    let there = narrow();
    let listener = listener(&there);
    let address = listener.local_addr();
    let accepting = thread::spawn(move || {
        let first = listener.accept().expect("with packets that do not pass");
        let second = listener.accept().expect("with smaller ones");
        (first, second)
    });
    let here =
        Connection::connect(&narrow(), address, ConnectionConfig::default()).expect("it passes");
    let (first, second) = accepting.join().unwrap();
    assert_eq!((here.chosen().mtu_bytes, second.chosen().mtu_bytes), (1360, 1360));
    let gone = first.recv(&mut [0; 8]).unwrap_err();
    assert!(gone.is_closed(), "{gone}");
    assert_eq!(first.failure(), Some(Failure::PeerGone(Gone::Closed)));
    let receive = second.post_recv(vec![0; 100_000]).unwrap();
    here.send(&vec![3; 100_000]).unwrap();
    assert!(receive.complete().is_complete);

    // A given size is not changed. The TCP handshake must fit the time limit, also on a loaded
    // host.
    let given = ConnectionConfig {
        mtu_bytes: Some(1436),
        connect_timeout: Duration::from_secs(3),
        ..ConnectionConfig::default()
    };
    let listener = self::listener(&there);
    let address = listener.local_addr();
    let accepting = thread::spawn(move || listener.accept());
    let error = Connection::connect(&narrow(), address, given).unwrap_err();
    assert!(matches!(error, ConnectError::NoUdp { .. }), "{error}");
    accepting.join().unwrap().expect("it cannot know");
}

/// What an overloaded host does to connections, and what a full listener says.
#[test]
fn a_peer_that_resets_or_is_busy_is_tried_again() {
    let there = context(None);
    let listener = listener(&there);
    let behind = listener.local_addr();
    let gate = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let address = gate.local_addr().unwrap();
    let overloaded = thread::spawn(move || {
        // Closed with the hello unread: a reset.
        let mut first = gate.accept().unwrap().0;
        first.read_exact(&mut [0]).unwrap();
        drop(first);
        let mut second = gate.accept().unwrap().0;
        let busy =
            format!(r#"{{"Busy":{{"version":{},"reason":"full"}}}}"#, lacuna::PROTOCOL_VERSION);
        let length = (busy.len() as u32).to_be_bytes();
        second.write_all(&[&b"LACUNA\r\n"[..], &length, busy.as_bytes()].concat()).unwrap();
        let (mut near, mut far) = (gate.accept().unwrap().0, TcpStream::connect(behind).unwrap());
        pass_message(&mut near, &mut far);
        pass_message(&mut far, &mut near);
        (near, far, second)
    });
    let accepting = thread::spawn(move || listener.accept());
    Connection::connect(&context(None), address, ConnectionConfig::default()).expect("at last");
    accepting.join().unwrap().expect("the third try");
    overloaded.join().unwrap();
}

/// One listener, two contexts, a thousand connections that all begin before any is accepted, a
/// message on each.
#[test]
fn a_thousand_peers_at_once_are_all_served() {
    const PEERS: usize = 1000;
    const BYTES: usize = 2000;
    allow_files(2 * PEERS as u64 + 200);
    let (here, there) = (context(None), context(None));
    let listener = listener(&there);
    let address = listener.local_addr();
    // Some of them stay silent.
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let connecting: Vec<_> = (0..PEERS)
        .map(|peer| {
            let here = here.clone();
            let connect = move || {
                let connection = Connection::connect(&here, address, ConnectionConfig::default())
                    .unwrap_or_else(|error| panic!("peer {peer}: {error}"));
                connection.send(&[peer as u8; BYTES]).unwrap();
                connection
            };
            thread::Builder::new().stack_size(256 << 10).spawn(connect).unwrap()
        })
        .collect();
    let mut receives = Vec::new();
    for _ in 0..PEERS {
        // Peers that have to come again, as too many are there without a word at once, do.
        let connection = loop {
            match listener.accept() {
                Err(ConnectError::Crowded { .. }) => {}
                accepted => break accepted.expect("another peer"),
            }
        };
        receives.push((connection.post_recv(vec![0; BYTES]).unwrap(), connection));
    }
    let mut counts = [0; 256];
    let mut served = Vec::new();
    for (receive, connection) in receives {
        receive.wait(WAIT).expect("its message comes");
        let buffer = receive.complete().buffer;
        assert!(buffer.iter().all(|byte| *byte == buffer[0]));
        counts[usize::from(buffer[0])] += 1;
        served.push(connection);
    }
    for connecting in connecting {
        connecting.join().expect("connected");
    }
    for (byte, count) in counts.iter().enumerate() {
        assert_eq!(*count, PEERS / 256 + usize::from(byte < PEERS % 256), "messages of {byte}");
    }
    drop(silent);
}

/// Raises the soft limit of open files if needed.
fn allow_files(count: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        let current = limit.maximum.map_or(count, |maximum| maximum.min(count));
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit }).unwrap();
    }
}
