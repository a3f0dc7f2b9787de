//! Tests of sites in real namespaces. Where the system refuses them, the tests say so and pass.
//!
//! The program in a host is this test program again, in one of the roles below.

#![cfg(target_os = "linux")]

use lacuna_wan::{
    Background, Delay, Fraction, HostConfig, HostError, Loss, Network, NetworkConfig, NetworkError,
    Node, Program, Topology, WayConfig, WayCounters,
};
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "LACUNA_NETWORK_TEST_ROLE";
const PORT: u16 = 7000;
/// Of a stream; long enough that bundles are cut at every fault.
const STREAM_BYTES: usize = 12 << 20;
/// Longest wait for anything: no test may hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The network, or `None` where there can be none.
fn start(config: &NetworkConfig) -> Option<Network> {
    match Network::start(config) {
        Ok(network) => Some(network),
        Err(NetworkError::Host(
            error @ (HostError::NoNamespace { .. } | HostError::NoTun { .. }),
        )) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn network(topology: Topology, hosts: u8, way: &WayConfig) -> NetworkConfig {
    let ways = [way.clone(), way.clone()];
    NetworkConfig { topology, hosts, ways, host: HostConfig::default(), seed: 3 }
}

/// A role in a host, and what it says.
struct Role {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Role {
    fn start(network: &Network, number: usize, role: &str) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command
            .args(["--exact", "role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        network.hosts()[number - 1].place(&mut command).expect("descriptors");
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdout }
    }

    /// The next text that it prints after `result: `.
    fn result(&mut self) -> String {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).expect("text") > 0 {
            if let Some((_, result)) = line.split_once("result: ") {
                return result.trim().to_owned();
            }
            line.clear();
        }
        panic!("it said nothing")
    }

    fn end(&self) {
        let mut program = Program::new(&self.child).expect("a process");
        program.wait(PATIENCE).expect("our child").expect("it ends");
    }
}

/// Not a test by itself: the entry of this program in a host.
#[test]
fn role() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["sink", address] => sink(address.parse().expect("an address")),
        ["source", address] => source(address.parse().expect("an address")),
        ["echo"] => echo(),
        ["ask", address, count] => {
            ask(address.parse().expect("an address"), count.parse().expect("a number"));
        }
        _ => panic!("no such role"),
    }
}

fn byte(at: usize) -> u8 {
    (at * 31 + at / 4096) as u8
}

fn sink(address: IpAddr) {
    let listener = TcpListener::bind((address, PORT)).expect("a port");
    println!("result: ready");
    let (mut stream, _) = listener.accept().expect("a stream");
    let mut bytes = vec![];
    stream.read_to_end(&mut bytes).expect("all of it");
    let is_good = bytes.len() == STREAM_BYTES
        && bytes.iter().enumerate().all(|(at, found)| *found == byte(at));
    println!("result: {}", if is_good { "good" } else { "bad" });
}

fn source(address: IpAddr) {
    let mut stream = TcpStream::connect((address, PORT)).expect("the sink listens");
    let bytes: Vec<u8> = (0..STREAM_BYTES).map(byte).collect();
    stream.write_all(&bytes).expect("a connection");
    println!("result: done");
}

fn echo() {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a port");
    println!("result: ready");
    let mut bytes = [0; 2000];
    while let Ok((length, from)) = socket.recv_from(&mut bytes) {
        socket.send_to(&bytes[..length], from).expect("a way back");
    }
}

/// Round trips, one after the other: the shortest, in microseconds.
fn ask(address: IpAddr, count: u32) {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    socket.connect((address, PORT)).expect("an address");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
    let mut least = None;
    for _ in 0..count {
        let begin = Instant::now();
        socket.send(&[0; 1000]).expect("sent");
        if socket.recv(&mut [0; 2000]).is_ok() {
            least = Some(begin.elapsed().min(least.unwrap_or(Duration::MAX)));
        }
    }
    println!("result: {}", least.map_or(0, |least| least.as_micros()));
}

fn counters(network: &Network, from: Node, to: Node) -> WayCounters {
    let ways = network.progress().expect("it runs").ways;
    let way = ways.iter().find(|way| (way.from, way.to) == (from, to));
    way.expect("such a way").counters
}

#[test]
fn packets_take_the_links_of_their_route_and_the_delay_of_each() {
    let way = WayConfig { delay: Delay::Fixed(3_000_000), ..WayConfig::default() };
    let host = Node::Host;
    for (topology, to, links, passed) in [
        (Topology::Star, 3, 2, (Node::Switch, host(3))),
        (Topology::Ring, 2, 1, (host(1), host(2))),
        (Topology::Ring, 3, 2, (host(2), host(3))),
        (Topology::Ring, 4, 2, (host(5), host(4))),
    ] {
        let Some(network) = start(&network(topology, 5, &way)) else { return };
        let mut echo = Role::start(&network, to, "echo");
        assert_eq!(echo.result(), "ready");
        let mut asker = Role::start(&network, 1, &format!("ask 10.77.0.{to} 5"));
        let rtt_us: u128 = asker.result().parse().expect("a number");
        // A busy machine delays more, and none less.
        assert!(rtt_us >= links * 2 * 3000 * 99 / 100, "{topology:?} to {to}: {rtt_us} us");
        let there = counters(&network, passed.0, passed.1);
        let back = counters(&network, passed.1, passed.0);
        assert_eq!((there.delivered_packets, back.delivered_packets), (5, 5));
        let ways = network.stop().expect("a report").total.ways;
        let all: u64 = ways.iter().map(|way| way.counters.delivered_packets).sum();
        assert_eq!(u128::from(all), 10 * links, "they take no other link");
    }
}

#[test]
fn streams_survive_links_with_every_fault_over_ipv4_and_ipv6() {
    let way = WayConfig {
        rate_bits_per_s: Some(400_000_000),
        queue_bytes: 300_000,
        jitter_ns: 100_000,
        loss: Loss::bursts(4e-3, 2.0).expect("possible"),
        reorder: Fraction::from_f64(2e-3),
        reorder_delay_ns: 500_000,
        duplicate: Fraction::from_f64(2e-3),
        corrupt: Fraction::from_f64(2e-3),
        mark: Fraction::from_f64(2e-3),
        ..WayConfig::default()
    };
    let sysctls = vec![("net.ipv4.tcp_ecn".to_owned(), "1".to_owned())];
    for (topology, is_ipv6) in [(Topology::Star, false), (Topology::Ring, true)] {
        let host = HostConfig { sysctls: sysctls.clone(), ..HostConfig::default() };
        let config = NetworkConfig { host, ..network(topology, 4, &way) };
        let Some(network) = start(&config) else { return };
        let sink = &network.hosts()[2];
        if is_ipv6 && !sink.has_ipv6() {
            eprintln!("skipped: no IPv6 here");
            continue;
        }
        let address: IpAddr = if is_ipv6 { sink.ipv6().into() } else { sink.ipv4().into() };
        let mut sink = Role::start(&network, 3, &format!("sink {address}"));
        assert_eq!(sink.result(), "ready");
        let mut source = Role::start(&network, 1, &format!("source {address}"));
        assert_eq!(sink.result(), "good");
        assert_eq!(source.result(), "done");
        source.end();
        let ways = network.stop().expect("a report").total.ways;
        let used = ways.iter().filter(|way| way.counters.sent_bytes > STREAM_BYTES as u64);
        let mut links = 0;
        for way in used {
            let counters = &way.counters;
            assert!(counters.lost > 0 && counters.corrupted > 0, "{way:?}");
            assert!(counters.duplicated > 0 && counters.reordered > 0, "{way:?}");
            links += 1;
        }
        assert_eq!(links, 2);
    }
}

#[test]
fn others_on_a_link_make_packets_wait_and_are_received_by_nobody() {
    let way = WayConfig {
        rate_bits_per_s: Some(50_000_000),
        background: Some(Background { share_ppm: 800_000, burst_ns: 1_000_000 }),
        ..WayConfig::default()
    };
    let Some(network) = start(&network(Topology::Ring, 3, &way)) else { return };
    let mut echo = Role::start(&network, 2, "echo");
    assert_eq!(echo.result(), "ready");
    let mut asker = Role::start(&network, 1, "ask 10.77.0.2 200");
    asker.result();
    asker.end();
    let there = counters(&network, Node::Host(1), Node::Host(2));
    assert!(there.background_packets > 100, "{there:?}");
    // A packet of others takes 240 us.
    assert!(there.queue_ns_max > 100_000, "{there:?}");
    assert_eq!(there.delivered_packets, 200);
    let received = std::fs::read_to_string(format!("/proc/{}/net/dev", network.hosts()[1].pid()));
    let received = received.expect("readable");
    let line = received.lines().find_map(|line| line.trim().strip_prefix("wan0:"));
    let packets = line.and_then(|line| line.split_ascii_whitespace().nth(1)).expect("a number");
    assert_eq!(packets, "200", "{received}");
}

#[test]
fn programs_know_their_rank_and_where_the_first_one_is() {
    let Some(network) = start(&network(Topology::Star, 3, &WayConfig::default())) else { return };
    let mut command = Command::new("sh");
    let script = "echo $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT \
                  $GLOO_SOCKET_IFNAME $LACUNA_WAN_PEERS ${LACUNA_WAN_BROADCAST-none}";
    network.hosts()[1].place(command.args(["-c", script])).expect("descriptors");
    let said = String::from_utf8(command.output().expect("sh").stdout).expect("text");
    assert_eq!(said, "1/3 0 10.77.0.1 29500 wan0 10.77.0.1 10.77.0.3 none\n");
}

#[test]
fn a_network_can_be_changed_and_ends_its_programs() {
    let Some(network) = start(&network(Topology::Star, 3, &WayConfig::default())) else { return };
    let dark = WayConfig { loss: Loss::Independent(Fraction::always()), ..WayConfig::default() };
    network.change([WayConfig::default(), dark]).expect("two ways");
    let wrong = WayConfig { rate_bits_per_s: Some(0), ..WayConfig::default() };
    let refused = network.change([WayConfig::default(), wrong]);
    assert!(matches!(refused, Err(NetworkError::Way(_))));
    let mut echo = Role::start(&network, 2, "echo");
    assert_eq!(echo.result(), "ready");
    let mut asker = Role::start(&network, 1, "ask 10.77.0.2 1");
    assert_eq!(asker.result(), "0");
    let (up, down) = (
        counters(&network, Node::Host(1), Node::Switch),
        counters(&network, Node::Switch, Node::Host(2)),
    );
    assert_eq!((up.delivered_packets, down.lost), (1, 1));
    drop(network);
    assert!(!echo.child.wait().expect("our child").success());
}

#[test]
fn packets_for_nobody_are_counted_and_impossible_networks_refused() {
    for hosts in [0, 2, 65] {
        let config = network(Topology::Ring, hosts, &WayConfig::default());
        assert!(matches!(Network::start(&config), Err(NetworkError::Hosts { .. })));
    }
    let background = Some(Background { share_ppm: 1, burst_ns: 1 << 20 });
    let way = WayConfig { background, ..WayConfig::default() };
    let config = network(Topology::Star, 3, &way);
    assert!(matches!(Network::start(&config), Err(NetworkError::Way(_))));
    let Some(network) = start(&network(Topology::Star, 3, &WayConfig::default())) else { return };
    let mut asker = Role::start(&network, 1, "ask 10.77.0.99 1");
    assert_eq!(asker.result(), "0");
    let report = network.stop().expect("a report");
    assert!(report.total.unroutable[0] >= 1 && report.total.unroutable[1] == 0, "{report:?}");
}
