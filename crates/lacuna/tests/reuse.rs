//! Reuse of control connections: the next connection to the same listener takes one, whichever end
//! closed first; a dead one costs no connection; and those of peers that do not reuse are closed.

use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener, Progress};
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WAIT: Duration = Duration::from_secs(20);

fn context() -> Context {
    Context::new(ContextConfig { bind: LOCALHOST.into(), ..ContextConfig::default() })
        .expect("sockets on loopback")
}

fn listen(context: &Context, address: SocketAddr) -> Listener {
    Listener::bind(context, address, ConnectionConfig::default()).unwrap()
}

fn any_port() -> SocketAddr {
    (LOCALHOST, 0).into()
}

type Accept = fn(&Listener) -> Connection;

/// Both ways of accepting.
const ACCEPTS: [Accept; 2] = [
    |listener| listener.accept().expect("the peer connects"),
    |listener| listener.agree(listener.accept_incoming().unwrap()).expect("the peer connects"),
];

/// Connects to `address`, which leads to `listener`, and sends a message.
fn join(
    context: &Context,
    address: SocketAddr,
    listener: &Listener,
    accept: Accept,
) -> (Connection, Connection) {
    thread::scope(|scope| {
        let accepting = scope.spawn(|| accept(listener));
        let config = ConnectionConfig::default();
        let a = Connection::connect(context, address, config).expect("it accepts");
        let b = accepting.join().unwrap();
        let receive = b.post_recv(vec![0; 5]).unwrap();
        a.send(b"again").unwrap();
        receive.wait(WAIT).unwrap();
        assert_eq!(receive.complete().buffer, b"again");
        (a, b)
    })
}

fn wait_until_over(connection: &Connection) {
    while connection.failure().is_none() {
        thread::yield_now();
    }
}

#[test]
fn the_next_connection_takes_the_control_connection_of_the_last() {
    let (here, there) = (context(), context());
    let listener = listen(&there, any_port());
    let address = listener.local_addr();
    let mut peers = Vec::new();
    for accept in ACCEPTS {
        for does_accepting_leave_first in [false, true] {
            let (a, b) = join(&here, address, &listener, accept);
            peers.push(b.peer());
            if does_accepting_leave_first {
                drop(b);
                wait_until_over(&a);
            } else {
                drop(a);
                wait_until_over(&b);
            }
        }
    }
    assert!(peers.iter().all(|peer| *peer == peers[0]), "{peers:?}");
}

#[test]
fn connections_at_the_same_time_have_control_connections_of_their_own() {
    let (here, there) = (context(), context());
    let listener = listen(&there, any_port());
    let address = listener.local_addr();
    let one = join(&here, address, &listener, ACCEPTS[0]);
    let other = join(&here, address, &listener, ACCEPTS[0]);
    let (first, second) = (one.1.peer(), other.1.peer());
    assert_ne!(first, second);
    drop((one, other));
    let held = [0, 1].map(|_| join(&here, address, &listener, ACCEPTS[0]));
    let mut kept = held.each_ref().map(|(_, b)| b.peer());
    kept.sort();
    assert_eq!(kept, [first.min(second), first.max(second)]);
}

#[test]
fn a_listener_that_was_started_anew_is_reached_at_once() {
    let (here, there) = (context(), context());
    let listener = listen(&there, any_port());
    let address = listener.local_addr();
    drop(join(&here, address, &listener, ACCEPTS[0]));
    drop(listener);
    let listener = listen(&there, address);
    drop(join(&here, address, &listener, ACCEPTS[0]));
}

#[test]
fn a_listener_without_threads_does_not_keep_what_it_could_not_hear() {
    let here = context();
    let config = ContextConfig { bind: LOCALHOST.into(), ..ContextConfig::default() };
    let there = Context::new(ContextConfig { progress: Progress::Manual, ..config }).unwrap();
    let listener = listen(&there, any_port());
    let mut peers = Vec::new();
    for _ in 0..2 {
        let config = ConnectionConfig::default();
        let (address, here) = (listener.local_addr(), here.clone());
        let connecting = thread::spawn(move || Connection::connect(&here, address, config));
        let b = listener.accept().unwrap();
        while !connecting.is_finished() {
            there.progress();
        }
        peers.push(b.peer());
        drop(connecting.join().unwrap().unwrap());
    }
    assert_ne!(peers[0], peers[1]);
}

/// A TCP proxy that can declare its streams dead: they break at the next byte.
struct Relay {
    address: SocketAddr,
    dead: Arc<AtomicUsize>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn to(target: SocketAddr) -> Self {
        let door = TcpListener::bind(any_port()).unwrap();
        let address = door.local_addr().unwrap();
        let (dead, streams) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let relay = Self { address, dead: dead.clone(), streams: streams.clone() };
        thread::spawn(move || {
            for (number, near) in door.incoming().enumerate() {
                let near = near.unwrap();
                let far = TcpStream::connect(target).unwrap();
                streams.lock().unwrap().push(near.try_clone().unwrap());
                for (from, to) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))] {
                    let (dead, from, to) = (dead.clone(), from.unwrap(), to.unwrap());
                    thread::spawn(move || {
                        pass_on(from, to, || dead.load(Ordering::SeqCst) > number)
                    });
                }
            }
        });
        relay
    }

    fn kill(&self) -> usize {
        let streams = self.streams.lock().unwrap().len();
        self.dead.store(streams, Ordering::SeqCst);
        streams
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_dead: impl Fn() -> bool) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let count = from.read(&mut bytes)?;
        if is_dead() {
            return from.shutdown(Shutdown::Both);
        }
        to.write_all(&bytes[..count])?;
        if count == 0 {
            return to.shutdown(Shutdown::Write);
        }
    }
}

#[test]
fn a_kept_connection_that_the_way_has_forgotten_is_made_anew() {
    let (here, there) = (context(), context());
    let listener = listen(&there, any_port());
    let relay = Relay::to(listener.local_addr());
    let (a, b) = join(&here, relay.address, &listener, ACCEPTS[0]);
    drop(a);
    wait_until_over(&b);
    assert_eq!(relay.kill(), 1);
    drop(join(&here, relay.address, &listener, ACCEPTS[0]));
    assert_eq!(relay.kill(), 2, "by a new one");
}

#[test]
fn a_listener_that_is_long_in_coming_is_waited_for() {
    let (here, there) = (context(), context());
    let listener = listen(&there, any_port());
    let address = listener.local_addr();
    let (a, b) = join(&here, address, &listener, ACCEPTS[0]);
    drop(a);
    wait_until_over(&b);
    let config = ConnectionConfig { connect_timeout: Duration::from_secs(2), ..Default::default() };
    // Longer than the timeout of the hello.
    let error = Connection::connect(&here, address, config).unwrap_err();
    assert!(error.to_string().contains("waiting for the welcome"), "{error}");
    // The stale connection is closed, and there is no second one.
    let peer = b.peer();
    assert_eq!(listener.accept().unwrap().peer(), peer);
    let (_a, b) = join(&here, address, &listener, ACCEPTS[0]);
    assert_ne!(b.peer(), peer);
}

/// The hello of a peer whose packets go nowhere.
fn hello(keeps: bool) -> Vec<u8> {
    let hello = json!({
        "version": lacuna::PROTOCOL_VERSION, "agent": "test", "mode": "sr", "chunk_bytes": 65536,
        "mtu_bytes": null, "generations": 4, "split": [10, 18, 4], "max_message_bytes": 0,
        "keeps": keeps,
        "end": { "queue_pair": 1, "rkey": 6, "qkey": 7, "first_psn": 8, "credit_bytes": 1 << 20,
            "ports": [9] },
    })
    .to_string();
    [b"LACUNA\r\n", &(hello.len() as u32).to_be_bytes()[..], hello.as_bytes()].concat()
}

const GOODBYE: [u8; 4] = [0; 4];

/// Runs the handshake by hand; returns the peer's stream and the listener's connection.
fn join_by_hand(listener: &Listener, keeps: bool) -> (TcpStream, Connection) {
    let mut peer = TcpStream::connect(listener.local_addr()).unwrap();
    peer.write_all(&hello(keeps)).unwrap();
    (peer, listener.accept().unwrap())
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    body
}

fn read_welcome(stream: &mut TcpStream) -> String {
    let mut magic = [0; 8];
    stream.read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"LACUNA\r\n");
    String::from_utf8(read_frame(stream)).unwrap()
}

#[test]
fn goodbye_and_hello_may_come_in_one_piece() {
    let there = context();
    let listener = listen(&there, any_port());
    let mut peer = TcpStream::connect(listener.local_addr()).unwrap();
    peer.write_all(&[&hello(true)[..], &GOODBYE, &hello(true), &GOODBYE].concat()).unwrap();
    for accept in ACCEPTS {
        let connection = accept(&listener);
        assert!(read_welcome(&mut peer).contains("\"keeps\":true"));
        wait_until_over(&connection);
        read_frame(&mut peer);
    }
    peer.shutdown(Shutdown::Write).unwrap();
    // The end of such a stream is neither a peer nor an error: the listener serves the next.
    drop(join(&context(), listener.local_addr(), &listener, ACCEPTS[0]));
}

#[test]
fn peers_that_never_say_goodbye_are_closed_when_there_are_many() {
    let there = context();
    let listener = listen(&there, any_port());
    let mut peers: Vec<_> = (0..=128)
        .map(|_| {
            let (mut peer, connection) = join_by_hand(&listener, true);
            drop(connection);
            read_welcome(&mut peer);
            read_frame(&mut peer);
            peer
        })
        .collect();
    assert_eq!(peers[0].read(&mut [0]).unwrap(), 0, "the first is the first to go");
    peers[1].set_nonblocking(true).unwrap();
    assert_eq!(peers[1].read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_connection_outlives_its_listener_and_is_closed_then() {
    let there = context();
    let listener = listen(&there, any_port());
    let (mut peer, connection) = join_by_hand(&listener, true);
    drop(listener);
    drop(connection);
    read_welcome(&mut peer);
    read_frame(&mut peer);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

#[test]
fn the_control_connection_of_a_peer_that_does_not_keep_its_own_is_closed() {
    let there = context();
    let listener = listen(&there, any_port());
    let (mut peer, connection) = join_by_hand(&listener, false);
    assert!(read_welcome(&mut peer).contains("\"keeps\":false"));
    drop(connection);
    read_frame(&mut peer);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}
