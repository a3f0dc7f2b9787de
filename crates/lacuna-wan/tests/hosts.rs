//! Tests of hosts, devices and the running path in real namespaces. Where the system refuses them, the
//! tests say so and pass.
//!
//! The program in a host is this test program again, in one of the roles below.

#![cfg(target_os = "linux")]

use lacuna_wan::{
    Delay, Direction, Fraction, HostConfig, HostError, Loss, Outcome, Program, Report, Side, Wan,
    WanConfig, WanError, WayConfig,
};
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "LACUNA_WAN_TEST_ROLE";
const PORT: u16 = 7000;

/// Longest wait for anything: no test may hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The path, or `None` where there can be none.
fn start(config: &WanConfig) -> Option<Wan> {
    match Wan::start(config) {
        Ok(wan) => Some(wan),
        Err(WanError::Host(error @ (HostError::NoNamespace { .. } | HostError::NoTun { .. }))) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn both(way: WayConfig) -> WanConfig {
    WanConfig { ways: [way.clone(), way], ..WanConfig::default() }
}

/// This program as a role.
fn role_command(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn start_role(wan: &Wan, side: Side, role: &str) -> Child {
    let mut command = role_command(role);
    wan.host(side).place(&mut command).expect("descriptors");
    command.spawn().expect("it starts")
}

/// The text that a role prints after `result: `.
fn result_of(child: &mut Child) -> String {
    // The pipe stays open for what else it says.
    let mut stdout = BufReader::new(child.stdout.as_mut().expect("piped"));
    let mut line = String::new();
    while stdout.read_line(&mut line).expect("text") > 0 {
        if let Some((_, result)) = line.split_once("result: ") {
            return result.trim().to_owned();
        }
        line.clear();
    }
    panic!("it said nothing")
}

fn wait(child: &Child) -> Outcome {
    let mut program = Program::new(child).expect("a process");
    let outcome = program.wait(PATIENCE).expect("our child");
    outcome.expect("it ends")
}

/// Runs a server and a client role and returns their results.
fn run_roles(wan: &Wan, server: &str, client: &str) -> (String, String) {
    let mut server = start_role(wan, Side::Server, server);
    let give_up = Instant::now() + PATIENCE;
    while !wan.host(Side::Server).is_listening() {
        assert!(Instant::now() < give_up, "the server does not listen");
        std::thread::yield_now();
    }
    let mut client = start_role(wan, Side::Client, client);
    let results = (result_of(&mut server), result_of(&mut client));
    assert!(wait(&server).status.success() && wait(&client).status.success());
    results
}

/// Nanoseconds on a clock that all processes of this machine share.
fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

// The roles.

/// Not a test by itself: the entry of this program in a host.
#[test]
fn role() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["datagram-sink"] => datagram_sink(),
        ["datagram-source"] => datagram_source(),
        ["stream-sink", address] => stream_sink(address.parse().expect("an address")),
        ["stream-source", address] => stream_source(address.parse().expect("an address")),
        ["owner"] => owner(),
        ["idle"] => loop {
            std::thread::park();
        },
        _ => panic!("no such role: {role}"),
    }
}

/// Bytes of a datagram; with the headers of UDP and IPv4 1200, on the link 1214.
const DATAGRAM_BYTES: usize = 1172;
const LINK_BYTES: u64 = DATAGRAM_BYTES as u64 + 28 + 14;
/// Datagrams that come one by one, which wait for nobody, and those that come at once.
const LONE: u64 = 200;
const CROWD: u64 = 12_000;

/// Takes datagrams until none comes for a while, and tells: how many; the shortest way of a lone
/// one; the first and last arrival in the crowd's second half, and how many came between.
fn datagram_sink() {
    let socket = UdpSocket::bind((Side::Server.ipv4(), PORT)).expect("the address is ours");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let room = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 32 << 20);
    room.expect("as much as there may be");
    let (mut count, mut way_ns) = (0u64, u64::MAX);
    let mut arrivals = vec![];
    let mut datagram = [0; 2000];
    while socket.recv(&mut datagram).is_ok() {
        let now_ns = monotonic_ns();
        let number = u64::from_ne_bytes(datagram[..8].try_into().expect("8 bytes"));
        let sent_ns = u64::from_ne_bytes(datagram[8..16].try_into().expect("8 bytes"));
        count += 1;
        if number < LONE {
            way_ns = way_ns.min(now_ns - sent_ns);
        } else if number >= LONE + CROWD / 2 {
            arrivals.push(now_ns);
        }
        // The crowd drains in seconds; all of it has left long before.
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    }
    let between = arrivals.len() - 1;
    println!("result: {count} {way_ns} {} {between}", arrivals[between] - arrivals[0]);
}

fn datagram_source() {
    let socket = UdpSocket::bind((Side::Client.ipv4(), 0)).expect("the address is ours");
    socket.connect((Side::Server.ipv4(), PORT)).expect("a route");
    let mut datagram = [0; DATAGRAM_BYTES];
    let mut send = |number: u64| {
        datagram[..8].copy_from_slice(&number.to_ne_bytes());
        datagram[8..16].copy_from_slice(&monotonic_ns().to_ne_bytes());
        socket.send(&datagram).expect("sent");
    };
    // The pauses are the shape of the traffic, nothing waits for them.
    for number in 0..LONE {
        send(number);
        std::thread::sleep(Duration::from_millis(1));
    }
    for number in 0..CROWD {
        send(LONE + number);
        if number % 40 == 39 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    println!("result: done");
}

const STREAM_BYTES: usize = 8 << 20;

/// What a stream carries at this place.
fn pattern(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)).wrapping_mul(167) as u8
}

fn stream_sink(address: IpAddr) {
    let listener = TcpListener::bind((address, PORT)).expect("the address is ours");
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

/// Makes hosts with a program in each, tells their numbers, and waits to be killed.
fn owner() {
    let wan = Wan::start(&WanConfig::default()).expect("its starter could");
    let children = Side::ALL.map(|side| start_role(&wan, side, "idle"));
    println!("result: {} {}", children[0].id(), children[1].id());
    loop {
        std::thread::park();
    }
}

// The tests.

#[test]
fn rate_delay_and_losses_between_real_hosts_are_as_asked() {
    const RATE: u64 = 100_000_000;
    const DELAY: Duration = Duration::from_millis(40);
    let config = both(WayConfig {
        rate_bits_per_s: Some(RATE),
        // Nothing is dropped for want of room.
        queue_bytes: 2 * CROWD * LINK_BYTES,
        delay: Delay::Fixed(DELAY.as_nanos() as u64),
        loss: Loss::bursts(0.01, 3.0).expect("possible"),
        ..WayConfig::default()
    });
    // What is measured is the machine too, and that may be busy with something else.
    let mut last = String::new();
    for _ in 0..5 {
        let Some(wan) = start(&config) else { return };
        let (seen, _) = run_roles(&wan, "datagram-sink", "datagram-source");
        let report = wan.stop().expect("a report");
        let counters = &report.total.ways[0];
        let [count, way_ns, span_ns, between] =
            seen.split(' ').map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>()[..]
        else {
            panic!("{seen}")
        };

        // Counts are exact, whatever the machine does.
        assert_eq!(report.device_drops[0] + counters.sent_packets, LONE + CROWD, "{report:?}");
        assert_eq!(counters.delivered_packets, counters.sent_packets - counters.lost);
        assert!(count <= counters.delivered_packets);
        let share = counters.lost as f64 / counters.sent_packets as f64;
        assert!((0.005..0.02).contains(&share), "lost {share}");
        assert!(way_ns >= DELAY.as_nanos() as u64, "faster than the path: {way_ns} ns");

        // Lost packets do not occupy the link: the losses come before it.
        let rate = between as f64 * LINK_BYTES as f64 * 8.0 / (span_ns as f64 / 1e9);
        let (rate, way) = (rate / RATE as f64, way_ns as f64 / DELAY.as_nanos() as f64);
        last = format!("{rate:.4} of the rate, {way:.4} of the delay");
        eprintln!("{last}");
        if count < counters.delivered_packets {
            eprintln!("the receiver's socket was full: this machine is busy");
            continue;
        }
        if (rate - 1.0).abs() <= 0.02 && (way - 1.0).abs() <= 0.02 {
            return;
        }
    }
    panic!("{last}");
}

#[test]
fn streams_survive_all_that_a_path_does_to_their_bundles() {
    let bad = WayConfig {
        rate_bits_per_s: Some(400_000_000),
        queue_bytes: 300_000,
        delay: Delay::Fixed(2_000_000),
        jitter_ns: 100_000,
        loss: Loss::bursts(2e-3, 2.0).expect("possible"),
        reorder: Fraction::from_f64(2e-3),
        reorder_delay_ns: 500_000,
        duplicate: Fraction::from_f64(2e-3),
        corrupt: Fraction::from_f64(2e-3),
        mark: Fraction::from_f64(2e-3),
        mark_above_bytes: Some(100_000),
        ..WayConfig::default()
    };
    for offload in [true, false] {
        let hosts = HostConfig {
            offload,
            sysctls: vec![("net.ipv4.tcp_ecn".to_owned(), "1".to_owned())],
            ..HostConfig::default()
        };
        let config = WanConfig { hosts, ..both(bad.clone()) };
        let v4 = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
        let v6 = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));
        for address in [v4, v6] {
            let Some(wan) = start(&config) else { return };
            if address == v6 && !wan.host(Side::Server).has_ipv6() {
                eprintln!("skipped: no IPv6 here");
                continue;
            }
            let roles = [format!("stream-sink {address}"), format!("stream-source {address}")];
            let (sink, _) = run_roles(&wan, &roles[0], &roles[1]);
            assert_eq!(sink, "good");
            let Report { total, .. } = wan.stop().expect("a report");
            let counters = &total.ways[0];
            let effects = [
                counters.lost,
                counters.reordered,
                counters.duplicated,
                counters.corrupted,
                counters.marked,
            ];
            assert!(effects.iter().all(|count| *count > 0), "{counters:?}");
            assert_eq!(counters.malformed_frames, 0);
            assert!(counters.sent_bytes > STREAM_BYTES as u64);
        }
    }
}

#[test]
fn a_path_can_be_asked_and_changed_while_it_runs() {
    let Some(wan) = start(&WanConfig::default()) else { return };
    let dark = WayConfig { loss: Loss::Independent(Fraction::always()), ..WayConfig::default() };
    wan.change(Direction::ToServer, dark).expect("a way");
    let wrong = WayConfig { rate_bits_per_s: Some(0), ..WayConfig::default() };
    assert!(matches!(wan.change(Direction::ToClient, wrong), Err(WanError::Way(_))));
    let mut source = start_role(&wan, Side::Client, "datagram-source");
    assert_eq!(result_of(&mut source), "done");
    assert!(wait(&source).status.success());
    let ways = wan.progress().expect("it runs").ways;
    let report = wan.stop().expect("a report");
    assert!(ways[0].sent_packets <= report.total.ways[0].sent_packets);
    let counters = &report.total.ways[0];
    assert_eq!(counters.lost + report.device_drops[0], LONE + CROWD, "{report:?}");
    assert_eq!(counters.delivered_packets, 0);
    let lost: u64 = report.timeline.samples().iter().map(|sample| sample.ways[0].lost).sum();
    assert_eq!(lost, counters.lost);
}

#[test]
fn what_runs_in_the_hosts_ends_with_whoever_made_them_even_if_killed() {
    let Some(wan) = start(&WanConfig::default()) else { return };
    // Dropped: programs that were not waited for.
    let mut child = start_role(&wan, Side::Server, "idle");
    drop(wan);
    assert!(!child.wait().expect("our child").success());

    let mut owner = role_command("owner").spawn().expect("it starts");
    let numbers = result_of(&mut owner);
    let programs: Vec<_> = numbers
        .split(' ')
        .map(|number| {
            let pid = rustix::process::Pid::from_raw(number.parse().unwrap()).unwrap();
            let flags = rustix::process::PidfdFlags::empty();
            rustix::process::pidfd_open(pid, flags).expect("it runs")
        })
        .collect();
    owner.kill().expect("it is ours");
    owner.wait().expect("it is ours");
    for program in &programs {
        let flags = rustix::event::PollFlags::IN;
        let mut fds = [rustix::event::PollFd::new(program, flags)];
        let timeout = rustix::event::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(1), "it still runs");
    }
}

#[test]
fn settings_hold_in_the_hosts_and_wrong_ones_are_named() {
    let with = |name: &str, value: &str| WanConfig {
        hosts: HostConfig {
            sysctls: vec![(name.to_owned(), value.to_owned())],
            ..HostConfig::default()
        },
        ..WanConfig::default()
    };
    let Some(wan) = start(&with("net.ipv4.ip_default_ttl", "17")) else { return };
    for side in Side::ALL {
        let mut command = Command::new("cat");
        command.arg("/proc/sys/net/ipv4/ip_default_ttl");
        wan.host(side).place(&mut command).expect("descriptors");
        let output = command.output().expect("cat");
        assert_eq!(output.stdout, b"17\n");
    }
    let Err(WanError::Host(HostError::Sysctl { path, .. })) =
        Wan::start(&with("net.ipv4.no_such_thing", "1"))
    else {
        panic!("refused")
    };
    assert_eq!(path, "/proc/sys/net/ipv4/no_such_thing");
}
