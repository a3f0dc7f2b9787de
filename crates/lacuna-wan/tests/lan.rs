//! Tests of a LAN in real namespaces. Where the system refuses them, the tests say so and pass.
//!
//! The program in a host is this test program again, in one of the roles below.

#![cfg(target_os = "linux")]

use lacuna_wan::{
    Fraction, HostConfig, HostError, Lan, LanConfig, LanError, LanReport, Loss, Outcome, Program,
    WayConfig,
};
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "LACUNA_LAN_TEST_ROLE";
const PORT: u16 = 7000;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
/// Datagrams that are told.
const COUNT: usize = 2000;
/// The end is told so often: at a loss of 20 % it is heard.
const ENDS: usize = 40;

/// Longest wait for anything: no test may hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The LAN, or `None` where there can be none.
fn start(config: &LanConfig) -> Option<Lan> {
    match Lan::start(config) {
        Ok(lan) => Some(lan),
        Err(LanError::Host(error @ (HostError::NoNamespace { .. } | HostError::NoTun { .. }))) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A role in a host, and what it says.
struct Role {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Role {
    fn start(lan: &Lan, number: usize, role: &str) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command
            .args(["--exact", "role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        lan.hosts()[number - 1].place(&mut command).expect("descriptors");
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

    fn end(&self) -> Outcome {
        let mut program = Program::new(&self.child).expect("a process");
        program.wait(PATIENCE).expect("our child").expect("it ends")
    }
}

/// Not a test by itself: the entry of this program in a host.
#[test]
fn role() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["hear"] => hear(None),
        ["hear", group] => hear(Some(group.parse().expect("a group"))),
        ["tell", to] => tell(to.parse().expect("an address")),
        ["stream-sink", address] => stream_sink(address.parse().expect("an address")),
        ["stream-source", address] => stream_source(address.parse().expect("an address")),
        _ => panic!("no such role: {role}"),
    }
}

/// Takes datagrams until it hears the end, and tells how often each number came: a digit for each.
fn hear(group: Option<Ipv4Addr>) {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    if let Some(group) = group {
        socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED).expect("a route to groups");
    }
    println!("result: ready");
    let mut times = vec![0u8; COUNT];
    let mut datagram = [0; 100];
    loop {
        let bytes = socket.recv(&mut datagram).expect("an end");
        let text = std::str::from_utf8(&datagram[..bytes]).expect("text");
        match text.parse::<usize>() {
            Ok(number) => times[number] += 1,
            Err(_) => break,
        }
    }
    let digits: String = times.iter().map(|times| char::from(b'0' + times)).collect();
    println!("result: {digits}");
}

/// Tells all numbers to one address, or several, and then to all that this was the end.
fn tell(to: Ipv4Addr) {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    socket.set_broadcast(true).expect("allowed");
    for number in 0..COUNT {
        socket.send_to(number.to_string().as_bytes(), (to, PORT)).expect("sent");
        // The pauses are the shape of the traffic: no socket's buffer is to overflow.
        if number % 20 == 19 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    for _ in 0..ENDS {
        socket.send_to(b"end", (Ipv4Addr::BROADCAST, PORT)).expect("sent");
    }
    println!("result: done");
}

const STREAM_BYTES: usize = 4 << 20;

/// What a stream carries at this place.
fn pattern(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)).wrapping_mul(167) as u8
}

fn stream_sink(address: IpAddr) {
    let listener = TcpListener::bind((address, PORT)).expect("the address is ours");
    println!("result: ready");
    let (mut stream, _) = listener.accept().expect("somebody comes");
    let mut bytes = vec![];
    stream.read_to_end(&mut bytes).expect("a stream");
    assert_eq!(bytes.len(), STREAM_BYTES);
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == pattern(at)), "wrong bytes");
    println!("result: good");
}

fn stream_source(address: IpAddr) {
    let mut stream = TcpStream::connect(SocketAddr::new(address, PORT)).expect("connected");
    let bytes: Vec<u8> = (0..STREAM_BYTES).map(pattern).collect();
    stream.write_all(&bytes).expect("sent");
    stream.shutdown(std::net::Shutdown::Write).expect("ended");
    // Until the other end has taken all.
    let _ = stream.read(&mut [0]);
    println!("result: done");
}

/// Host 1 tells `to` what hosts 2 to 4 listen for; what each of these heard.
fn tell_all(
    config: &LanConfig,
    to: Ipv4Addr,
    roles: [&str; 3],
) -> Option<(Vec<String>, LanReport)> {
    let lan = start(config)?;
    let mut hearers: Vec<Role> =
        (2..).zip(roles).map(|(number, role)| Role::start(&lan, number, role)).collect();
    for hearer in &mut hearers {
        assert_eq!(hearer.result(), "ready");
    }
    let mut teller = Role::start(&lan, 1, &format!("tell {to}"));
    assert_eq!(teller.result(), "done");
    let heard = hearers.iter_mut().map(Role::result).collect();
    assert!(hearers.iter().chain([&teller]).all(|role| role.end().status.success()));
    Some((heard, lan.stop().expect("a report")))
}

fn four() -> LanConfig {
    LanConfig { hosts: 4, ..LanConfig::default() }
}

#[test]
fn a_broadcast_reaches_all_others_once() {
    for to in [Ipv4Addr::BROADCAST, Ipv4Addr::new(10, 77, 0, 255)] {
        let Some((heard, report)) = tell_all(&four(), to, ["hear"; 3]) else { return };
        for heard in heard {
            assert_eq!(heard, "1".repeat(COUNT));
        }
        let [teller, hearers @ ..] = &report.total.hosts[..] else { panic!("four") };
        // The hosts end by the first word that it is over; others may still be under way then.
        assert!(teller.group_packets > COUNT as u64, "{teller:?}");
        assert!(hearers.iter().all(|host| host.to_host.delivered_packets >= COUNT as u64));
        // Nothing of it comes back.
        assert!(teller.to_host.sent_packets < COUNT as u64, "{teller:?}");
    }
}

#[test]
fn a_group_is_heard_by_those_who_joined() {
    let joined = format!("hear {GROUP}");
    let Some((heard, _)) = tell_all(&four(), GROUP, [&joined, "hear", &joined]) else { return };
    let all = "1".repeat(COUNT);
    assert_eq!(heard, [all.clone(), "0".repeat(COUNT), all]);
}

#[test]
fn what_is_for_one_goes_to_no_other() {
    let host_3 = Ipv4Addr::new(10, 77, 0, 3);
    let Some((heard, report)) = tell_all(&four(), host_3, ["hear"; 3]) else { return };
    let none = "0".repeat(COUNT);
    assert_eq!(heard, [none.clone(), "1".repeat(COUNT), none]);
    for number in [2, 4] {
        // Ends, questions for addresses, and what kernels say by themselves.
        let counters = &report.total.hosts[number - 1].to_host;
        assert!(counters.sent_packets < 500, "host {number}: {counters:?}");
    }
}

#[test]
fn each_receiver_loses_by_itself() {
    let loss = Loss::Independent(Fraction::from_f64(0.2));
    let way = WayConfig { loss, ..WayConfig::default() };
    let config = LanConfig { way, ..four() };
    let Some((heard, report)) = tell_all(&config, Ipv4Addr::BROADCAST, ["hear"; 3]) else { return };
    let shares: Vec<f64> =
        heard.iter().map(|heard| heard.matches('1').count() as f64 / COUNT as f64).collect();
    assert!(shares.iter().all(|share| (0.76..0.84).contains(share)), "{shares:?}");
    let by_all = (0..COUNT).filter(|at| heard.iter().all(|heard| heard.as_bytes()[*at] == b'1'));
    // 0.512 of independent ones; 0.8 if all lost the same.
    let by_all = by_all.count() as f64 / COUNT as f64;
    assert!((0.46..0.56).contains(&by_all), "{by_all}");
    for host in &report.total.hosts[1..] {
        assert_eq!(host.to_host.lost + host.to_host.delivered_packets, host.to_host.sent_packets);
    }
}

#[test]
fn streams_find_their_hosts_over_ipv4_and_ipv6_and_survive_a_bad_lan() {
    let way = WayConfig {
        rate_bits_per_s: Some(400_000_000),
        queue_bytes: 300_000,
        jitter_ns: 100_000,
        loss: Loss::bursts(2e-3, 2.0).expect("possible"),
        reorder: Fraction::from_f64(2e-3),
        reorder_delay_ns: 500_000,
        duplicate: Fraction::from_f64(2e-3),
        corrupt: Fraction::from_f64(2e-3),
        mark: Fraction::from_f64(2e-3),
        ..WayConfig::default()
    };
    for offload in [true, false] {
        let sysctls = vec![("net.ipv4.tcp_ecn".to_owned(), "1".to_owned())];
        let host = HostConfig { offload, sysctls, ..HostConfig::default() };
        let config = LanConfig { hosts: 3, way: way.clone(), host, ..LanConfig::default() };
        for is_ipv6 in [false, true] {
            let Some(lan) = start(&config) else { return };
            let sink = &lan.hosts()[2];
            if is_ipv6 && !sink.has_ipv6() {
                eprintln!("skipped: no IPv6 here");
                continue;
            }
            let address: IpAddr = if is_ipv6 { sink.ipv6().into() } else { sink.ipv4().into() };
            let mut sink = Role::start(&lan, 3, &format!("stream-sink {address}"));
            assert_eq!(sink.result(), "ready");
            let mut source = Role::start(&lan, 1, &format!("stream-source {address}"));
            assert_eq!(sink.result(), "good");
            assert_eq!(source.result(), "done");
            let LanReport { total, .. } = lan.stop().expect("a report");
            let counters = &total.hosts[2].to_host;
            assert!(counters.lost > 0 && counters.marked > 0 && counters.corrupted > 0);
            assert!(total.hosts.iter().all(|host| host.malformed_frames == 0));
            assert!(total.hosts[1].to_host.sent_bytes < STREAM_BYTES as u64 / 100);
        }
    }
}

#[test]
fn hosts_have_the_mtu_and_know_each_other() {
    let host = HostConfig { mtu_bytes: 9000, ..HostConfig::default() };
    let Some(lan) = start(&LanConfig { hosts: 3, host, ..LanConfig::default() }) else { return };
    let mut command = Command::new("sh");
    let script = "echo $LACUNA_WAN_HOST/$LACUNA_WAN_HOSTS $LACUNA_WAN_ADDR, $LACUNA_WAN_PEERS; \
                  grep -h . /sys/class/net/$LACUNA_WAN_DEVICE/mtu; echo $LACUNA_WAN_BROADCAST";
    lan.hosts()[1].place(command.args(["-c", script])).expect("descriptors");
    let said = String::from_utf8(command.output().expect("sh").stdout).expect("text");
    assert_eq!(said, "2/3 10.77.0.2, 10.77.0.1 10.77.0.3\n9000\n10.77.0.255\n");
}

#[test]
fn a_lan_can_be_changed_while_it_runs_and_ends_its_programs() {
    let Some(lan) = start(&four()) else { return };
    let dark = WayConfig { loss: Loss::Independent(Fraction::always()), ..WayConfig::default() };
    lan.change(dark).expect("a way");
    let wrong = WayConfig { rate_bits_per_s: Some(0), ..WayConfig::default() };
    assert!(matches!(lan.change(wrong), Err(LanError::Way(_))));
    let mut hearer = Role::start(&lan, 2, "hear");
    assert_eq!(hearer.result(), "ready");
    let mut teller = Role::start(&lan, 1, "tell 10.77.0.255");
    assert_eq!(teller.result(), "done");
    let give_up = Instant::now() + PATIENCE;
    // What was sent is counted when the switch has read it.
    while lan.progress().expect("it runs").hosts[0].group_packets < (COUNT + ENDS) as u64 {
        assert!(Instant::now() < give_up, "it is never counted");
        std::thread::yield_now();
    }
    drop(lan);
    assert!(!hearer.child.wait().expect("our child").success());
}

#[test]
fn impossible_lans_are_refused() {
    for hosts in [0, 1, 101] {
        let config = LanConfig { hosts, ..LanConfig::default() };
        assert!(matches!(Lan::start(&config), Err(LanError::Hosts { .. })));
    }
    let way = WayConfig { rate_bits_per_s: Some(0), ..WayConfig::default() };
    assert!(matches!(Lan::start(&LanConfig { way, ..four() }), Err(LanError::Way(_))));
}
