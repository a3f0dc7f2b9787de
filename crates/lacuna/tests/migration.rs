//! A NAT that gives a host another port while messages are under way: a forwarder of TCP and UDP at another
//! loopback address, in this process.
#![cfg(target_os = "linux")] // Elsewhere loopback has one address.

use lacuna::trust::{Token, Trust};
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener, ScopedIp, Security};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Nobody but the NAT sends there: the server knows the NAT's outside, which is at its own address.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
/// Where the client believes the server to be.
const NAT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Ends what would hang; no test asserts a time.
const LONG: Duration = Duration::from_secs(30);
/// How soon a forwarding thread sees that it is to stop.
const TICK: Duration = Duration::from_millis(20);
/// Packets of the client until it gets another port.
const PACKETS_PER_PORT: u32 = 40;
const MESSAGE_BYTES: usize = 4 << 20;
const MESSAGES: usize = 4;

/// What the threads of the NAT share.
struct Nat {
    inside: UdpSocket,
    /// Has the present port.
    outside: Mutex<Arc<UdpSocket>>,
    client: Mutex<Option<SocketAddr>>,
    /// How often it gave another port.
    ports: AtomicU32,
    forgets: AtomicBool,
    stops: AtomicBool,
}

fn outside(server: SocketAddr) -> Arc<UdpSocket> {
    let socket = UdpSocket::bind((SERVER, 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(TICK)).unwrap();
    Arc::new(socket)
}

impl Nat {
    fn new(server: SocketAddr) -> Self {
        let inside = UdpSocket::bind((NAT, server.port())).unwrap();
        inside.set_read_timeout(Some(TICK)).unwrap();
        Self {
            inside,
            outside: Mutex::new(outside(server)),
            client: Mutex::new(None),
            ports: AtomicU32::new(0),
            forgets: AtomicBool::new(false),
            stops: AtomicBool::new(false),
        }
    }

    fn present(&self) -> Arc<UdpSocket> {
        self.outside.lock().unwrap().clone()
    }

    /// From the client to the server.
    fn forward_out(&self, server: SocketAddr) {
        let (mut packet, mut packets) = ([0; 1 << 16], 0);
        while !self.stops.load(Ordering::Relaxed) {
            let Ok((bytes, from)) = self.inside.recv_from(&mut packet) else { continue };
            *self.client.lock().unwrap() = Some(from);
            if self.forgets.load(Ordering::Relaxed) {
                packets += 1;
                if packets % PACKETS_PER_PORT == 0 {
                    *self.outside.lock().unwrap() = outside(server);
                    self.ports.fetch_add(1, Ordering::Relaxed);
                }
            }
            // A full socket loses it.
            _ = self.present().send(&packet[..bytes]);
        }
    }

    /// From the server to the client; what was on its way to an earlier port is lost.
    fn forward_in(&self) {
        let mut packet = [0; 1 << 16];
        while !self.stops.load(Ordering::Relaxed) {
            let outside = self.present();
            let Ok(bytes) = outside.recv(&mut packet) else { continue };
            if let Some(client) = *self.client.lock().unwrap()
                && Arc::ptr_eq(&outside, &self.outside.lock().unwrap())
            {
                _ = self.inside.send_to(&packet[..bytes], client);
            }
        }
    }
}

/// Forwards one connection of TCP in both directions, as long as it lasts: an end may keep it for later ones.
fn forward_tcp(listener: TcpListener, server: SocketAddr) {
    thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(server).unwrap();
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            thread::spawn(move || {
                _ = io::copy(&mut from, &mut to);
                _ = to.shutdown(Shutdown::Write);
            });
        }
    });
}

/// Stops the threads of a NAT, whatever becomes of the test.
struct Stop<'n>(&'n Nat);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stops.store(true, Ordering::Relaxed);
    }
}

fn data(seed: usize) -> Vec<u8> {
    (0..MESSAGE_BYTES).map(|at| (at * 31 + at / 255 + seed) as u8).collect()
}

/// Sends messages from one to the other.
fn transfer(from: &Connection, to: &Connection) {
    for seed in 0..MESSAGES {
        let receive = to.post_recv(vec![0; MESSAGE_BYTES]).unwrap();
        let send = from.start_send(data(seed), None).unwrap();
        receive.wait(LONG).unwrap();
        send.wait().unwrap();
        assert!(receive.complete().buffer == data(seed), "message {seed}");
    }
}

#[test]
fn messages_go_on_in_both_directions_while_a_nat_gives_one_end_ever_other_ports() {
    let trust = Trust::of_token(&Token::generate().unwrap());
    for security in [Security::Insecure, Security::Keys(trust)] {
        let [client, server] = [CLIENT, SERVER].map(|bind| {
            let security = security.clone();
            Context::new(ContextConfig { bind: bind.into(), security, ..ContextConfig::default() })
                .expect("sockets on loopback")
        });
        let listener =
            Listener::bind(&server, (SERVER, 0).into(), ConnectionConfig::default()).unwrap();
        let (tcp_server, udp_server) = (listener.local_addr(), server.addresses()[0]);
        let tcp = TcpListener::bind((NAT, 0)).unwrap();
        let tcp_nat = tcp.local_addr().unwrap();
        let nat = Nat::new(udp_server);
        forward_tcp(tcp, tcp_server);
        thread::scope(|scope| {
            let _stop = Stop(&nat);
            scope.spawn(|| nat.forward_out(udp_server));
            scope.spawn(|| nat.forward_in());
            let accepting = scope.spawn(|| listener.accept().unwrap());
            let inner = Connection::connect(&client, tcp_nat, ConnectionConfig::default()).unwrap();
            let outer = accepting.join().unwrap();
            nat.forgets.store(true, Ordering::Relaxed);
            transfer(&inner, &outer);
            transfer(&outer, &inner);
            nat.forgets.store(false, Ordering::Relaxed);
            transfer(&inner, &outer);
        });
        let stats = server.stats();
        let ports = nat.ports.load(Ordering::Relaxed);
        println!("{ports} ports, {stats:?}");
        assert!(ports > 2 && stats.paths_moved > 0, "{ports} ports, {stats:?}");
        assert_eq!(client.stats().paths_moved, 0);
    }
}

#[test]
fn a_peer_that_stays_where_it_is_is_not_asked_whether_it_is_there() {
    for bind in [ScopedIp::ANY, SERVER.into()] {
        let [client, server] = [(); 2].map(|()| {
            Context::new(ContextConfig { bind, ..ContextConfig::default() }).expect("sockets")
        });
        let port = (bind.ip(), 0).into();
        let listener = Listener::bind(&server, port, ConnectionConfig::default()).unwrap();
        let address = (SERVER, listener.local_addr().port());
        let address: SocketAddr = address.into();
        let (here, there) = std::thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept().unwrap());
            let here = Connection::connect(&client, address, ConnectionConfig::default()).unwrap();
            (here, accepting.join().unwrap())
        });
        transfer(&here, &there);
        for context in [client, server] {
            let stats = context.stats();
            let asked = [stats.paths_moved, stats.paths_kept, stats.paths_unproved];
            assert_eq!(asked, [0; 3], "{bind}");
        }
    }
}
