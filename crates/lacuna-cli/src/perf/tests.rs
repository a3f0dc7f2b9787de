//! Server and client in this process, over loopback: several clients, clients
//! that are not what they should be, and a path that drops.

mod datagrams;
mod verbs;

use super::protocol::{Answer, Awaited, Request, send};
use super::report::Report;
use super::server::{Server, Settings};
use super::{ClientArgs, ServerArgs, client, sending};
use crate::failure::Failure;
use crate::output::Output;
use clap::Parser;
use lacuna::datapath::{Fraction, Impair, ImpairCountersHandle, Impairment, Loss};
use lacuna::{ConnectError, Connection, ConnectionConfig, Context, Listener, Wrap};
use lacuna_service::{Purpose, random};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const OUTPUT: Output = Output { json: false, quiet: true };
/// Long enough for anything that happens at all.
const LONG: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct ServerLine {
    #[command(flatten)]
    args: ServerArgs,
}

#[derive(Parser)]
struct ClientLine {
    #[command(flatten)]
    args: ClientArgs,
}

/// A server that runs until it is dropped.
struct Running {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Running {
    fn start(options: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let line = format!("server --listen 127.0.0.1:0 {options}");
        let args = ServerLine::try_parse_from(line.split_whitespace()).expect("a command line");
        let mut settings = Settings::new(&args.args);
        change(&mut settings);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let is_stopped = Box::new(move || stopped.load(Ordering::Relaxed));
        let server = Server::open(&args.args, settings, None, OUTPUT, is_stopped);
        let server = server.expect("a port on loopback");
        let address = server.local_addr();
        Self { address, stop, thread: Some(thread::spawn(move || server.run())) }
    }

    /// What it ends with by itself.
    fn result(mut self) -> Result<(), Failure> {
        let thread = self.thread.take().expect("taken once");
        thread.join().expect("the server does not panic")
    }

    fn session(&self) -> Connection {
        connect(self.address, Purpose::Session.tag(random() as u32)).expect("there is a seat")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn connect(to: SocketAddr, tag: u64) -> Result<Connection, ConnectError> {
    let context = Context::new(lacuna::ContextConfig::default())?;
    Connection::connect(&context, to, ConnectionConfig { tag, ..ConnectionConfig::default() })
}

/// Measures with these options, shortly unless they say otherwise.
fn measure(to: SocketAddr, options: &str) -> Result<Report, Failure> {
    measure_over(to, options, None, &|| false)
}

fn measure_over(
    to: SocketAddr,
    options: &str,
    wrap: Option<Wrap>,
    stop: &dyn Fn() -> bool,
) -> Result<Report, Failure> {
    let line = format!("client {to} --size 256KiB --inflight 4 {options}");
    let args = ClientLine::try_parse_from(line.split_whitespace()).expect("a command line");
    client::measure(&args.args, wrap, stop, OUTPUT)
}

/// Asks for a measurement by hand, and hears that it may begin.
fn ask(session: &Connection) {
    let answer = Awaited::<Answer>::post(session).expect("a free slot");
    let request = Request { size_bytes: 65_536, inflight: 2, validate: false };
    send(session, &request).expect("the server takes it");
    let answer = answer.wait(LONG, &|| false).expect("it answers");
    assert!(matches!(answer, Answer::Ready));
}

/// Waits until the server has closed a connection.
fn wait_closed(connection: &Connection) {
    // Nothing is ever sent into it.
    let Ok(receive) = connection.post_recv(vec![0; 16]) else { return };
    let error = receive.wait(LONG).expect_err("nothing comes");
    assert!(error.is_closed(), "{error}");
}

fn network(result: Result<Report, Failure>) -> String {
    match result {
        Err(Failure::Network(text)) => text,
        Err(other) => panic!("no failure of the network: {other:?}"),
        Ok(_) => panic!("it measured"),
    }
}

#[test]
fn filling_the_first_messages_is_interrupted() {
    let line = "client host --size 48MiB --inflight 1";
    let args = ClientLine::try_parse_from(line.split_whitespace()).expect("a command line");
    let looks = std::cell::Cell::new(0);
    let stop = || looks.replace(looks.get() + 1) == 1;
    let filled = sending::buffers(&args.args, &stop, OUTPUT);
    assert!(matches!(filled, Err(Failure::Interrupted)), "{filled:?}");
}

type Links = Arc<Mutex<Vec<ImpairCountersHandle>>>;

/// A path that loses a share of the packets that the wrapped end sends.
fn lossy(loss: f64) -> (Wrap, Links) {
    let links = Links::default();
    let kept = links.clone();
    let wrap: Wrap = Arc::new(move |channel, inner| {
        let impairment = Impairment {
            loss: Loss::Independent(Fraction::from_f64(loss)),
            delay_ns: 1_000_000,
            ..Impairment::default()
        };
        let impaired = Impair::new(inner, impairment, u64::from(channel));
        kept.lock().expect("no panics").push(impaired.counters_handle());
        Box::new(impaired)
    });
    (wrap, links)
}

/// Packets that the links have lost so far.
fn lost(links: &Links) -> u64 {
    links.lock().expect("no panics").iter().map(|link| link.read().lost).sum()
}

#[test]
fn raw_messages_that_lack_packets_are_given_up_and_told() {
    let server = Running::start("", |_| {});
    let (wrap, links) = lossy(0.02);
    let options = "--mode raw --iters 30 --chunk 4KiB --mtu 4096 --rate 200mbit --validate";
    let report = measure_over(server.address, options, Some(wrap), &|| false).expect("it ends");
    assert_eq!((report.mode.as_str(), report.iterations), ("raw", 30));
    let counted = &report.counted;
    let (Some(missing), Some(incomplete)) = (counted.missing_chunks, counted.incomplete_messages)
    else {
        panic!("the server's counters are there: {report:?}")
    };
    // 2 % of some 3000 packets: the odds that none of them is lost are nil.
    assert!(missing > 0 && incomplete > 0 && incomplete <= missing, "{report:?}");
    assert!(counted.messages >= Some(30));
    let missing_share = counted.missing_share.expect("counted");
    assert!(missing_share > 0.0 && missing_share < 0.5, "{report:?}");
    let reported = counted.lost_packets.expect("counted");
    assert!(reported > 0 && reported <= lost(&links), "{reported} of {}", lost(&links));
    assert_eq!(report.retransmitted_packets, 0);
    assert_eq!(report.validated, Some(true), "what arrived is right");
    let sent_gbit_per_s = 30.0 * 256.0 * 1024.0 * 8.0 / report.seconds / 1e9;
    assert!(report.gbit_per_s < sent_gbit_per_s, "what is missing was not delivered");
    let text = report.lines().join("\n");
    assert!(text.contains(&format!("missing {missing} chunk")), "{text}");
    assert!(text.contains(&format!("lost {reported},")), "{text}");
}

/// A message that is lost as a whole has nothing behind it when it is alone.
#[test]
fn raw_messages_of_one_packet_are_given_up_one_by_one() {
    let server = Running::start("", |_| {});
    let (wrap, links) = lossy(0.3);
    let options = "--mode raw --size 1KiB --inflight 1 --warmup 0 --iters 40 --validate";
    let line = format!("client {} {options}", server.address);
    let args = ClientLine::try_parse_from(line.split(' ')).expect("a command line");
    let report = client::measure(&args.args, Some(wrap), &|| false, OUTPUT).expect("it ends");
    assert_eq!(report.iterations, 40);
    let counted = &report.counted;
    assert!(counted.messages >= Some(40));
    assert_eq!(counted.incomplete_messages, counted.missing_chunks, "all or nothing");
    // That none of 40 is lost has a probability of 0.7^40, less than 1e-6.
    assert!(counted.missing_chunks > Some(0), "{report:?}");
    assert!(counted.lost_packets <= Some(lost(&links)));
}

#[test]
fn a_mode_that_repairs_misses_nothing_on_the_same_path() {
    let server = Running::start("", |_| {});
    let (wrap, links) = lossy(0.02);
    let options = "--mode sr --iters 30 --chunk 4KiB --mtu 4096 --rate 200mbit --validate";
    let report = measure_over(server.address, options, Some(wrap), &|| false).expect("it ends");
    assert_eq!(report.counted.missing_chunks, Some(0));
    assert_eq!(report.validated, Some(true));
    assert!(lost(&links) > 0 && report.retransmitted_packets > 0);
    assert!(!report.lines().join("\n").contains("missing"));
}

#[test]
fn a_stopped_measurement_reports_what_was_finished() {
    let server = Running::start("", |_| {});
    let asked = AtomicU32::new(0);
    let stop = || asked.fetch_add(1, Ordering::Relaxed) > 100;
    let report = measure_over(server.address, "--iters 1000000", None, &stop).expect("a report");
    assert!(report.ending.interrupted);
    assert!((1..1_000_000).contains(&report.iterations), "{report:?}");
    assert!(report.counted.messages >= Some(report.iterations), "the server was asked");
    assert!(report.gbit_per_s > 0.0);
    assert!(report.lines().join("\n").contains("interrupted after"));
}

#[test]
fn a_server_that_ends_leaves_a_report_of_what_was_finished() {
    let server = Running::start("", |_| {});
    let asked = AtomicU32::new(0);
    let stop = || {
        if asked.fetch_add(1, Ordering::Relaxed) == 100 {
            server.stop.store(true, Ordering::Relaxed);
        }
        false
    };
    let mut report = measure_over(server.address, "--duration 1h", None, &stop).expect("a report");
    assert!(report.ending.interrupted && report.iterations > 0, "{report:?}");
    let Some(Failure::Network(why)) = report.take_failure() else { panic!("{report:?}") };
    assert!(why.contains("closed the connection"), "{why}");
    let json = serde_json::to_value(&report).expect("an object");
    assert_eq!((&json["why"], &json["messages"]), (&why.into(), &serde_json::Value::Null));
    let text = report.lines().join("\n");
    assert!(text.contains("interrupted after") && text.contains("closed the connection"), "{text}");
}

#[test]
fn a_measurement_stopped_in_its_warm_up_has_numbers_all_the_same() {
    let server = Running::start("", |_| {});
    let asked = AtomicU32::new(0);
    // The wait for the answer asks a few times before the sending does.
    let stop = || asked.fetch_add(1, Ordering::Relaxed) > 100;
    let options = "--warmup 1000000 --duration 1h";
    let report = measure_over(server.address, options, None, &stop).expect("a report");
    assert_eq!((report.ending.interrupted, report.iterations), (true, 0));
    let json = serde_json::to_value(&report).expect("an object");
    for field in ["gbit_per_s", "mpps", "mean_us", "p99_us", "seconds"] {
        assert_eq!(json[field], 0.0, "{field}");
    }
}

#[test]
fn silent_connections_hold_up_nobody() {
    let server = Running::start("", |_| {});
    // More than are held.
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.address).expect("it listens")).collect();
    let idle_session = server.session();
    measure(server.address, "--iters 20").expect("it is served");
    drop((silent, idle_session));
}

#[test]
fn several_clients_are_served_at_once() {
    let server = Running::start("--clients 3", |_| {});
    let address = server.address;
    // One is in the middle of its measurement all the time.
    let other = server.session();
    ask(&other);
    let clients: Vec<_> =
        (0..2).map(|_| thread::spawn(move || measure(address, "--iters 50 --validate"))).collect();
    for client in clients {
        let report = client.join().expect("no panic").expect("it is served");
        assert_eq!((report.iterations, report.validated), (50, Some(true)));
        assert_eq!(report.cpu_s_per_gbyte, None, "the server's time is not one client's");
    }
}

#[test]
fn a_client_too_many_is_told_so_and_comes_in_later() {
    let server = Running::start("--clients 1", |_| {});
    let first = server.session();
    let text = network(measure(server.address, "--iters 1"));
    assert!(text.contains("refused: busy: it serves 1 client already"), "{text}");
    // It dies; its seat is free as soon as the server has noticed.
    drop(first);
    loop {
        match measure(server.address, "--iters 1") {
            Ok(report) => break assert_eq!(report.iterations, 1),
            busy => assert!(network(busy).contains("busy")),
        }
    }
}

#[test]
fn with_once_a_second_client_is_refused_and_the_first_one_decides() {
    let server = Running::start("--once", |_| {});
    let first = server.session();
    let text = network(measure(server.address, "--iters 1"));
    assert!(text.contains("busy: it serves one client only (--once)"), "{text}");
    drop(first);
    let failure = server.result().expect_err("its client ended without a measurement");
    assert!(matches!(failure, Failure::Network(_)), "{failure:?}");

    let server = Running::start("--once", |_| {});
    // Neither a stranger nor a silent connection is the one client.
    let silent = TcpStream::connect(server.address).expect("it listens");
    connect(server.address, 0).expect_err("no perf client");
    measure(server.address, "--iters 1").expect("it is served");
    server.result().expect("its client was served");
    drop(silent);
}

#[test]
fn a_client_that_connects_nothing_to_measure_loses_its_seat() {
    let settings = |settings: &mut Settings| settings.pairing = Duration::from_millis(100);
    let server = Running::start("--clients 1", settings);
    let session = server.session();
    ask(&session);
    wait_closed(&session);
    // The seat is free.
    server.session();
}

#[test]
fn a_client_that_sends_nothing_loses_its_seat() {
    let settings = |settings: &mut Settings| settings.idle = Duration::from_millis(100);
    let server = Running::start("--clients 1", settings);
    let run = random() as u32;
    let session = connect(server.address, Purpose::Session.tag(run)).expect("a seat");
    ask(&session);
    let measured = connect(server.address, Purpose::Measured.tag(run)).expect("its other half");
    wait_closed(&session);
    wait_closed(&measured);
    // The seat is free.
    server.session();
}

#[test]
fn strangers_are_told_what_this_is() {
    let server = Running::start("", |_| {});
    for tag in [0, Purpose::Files.tag(1), 7] {
        let error = connect(server.address, tag).expect_err("no perf client");
        assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("this is lacuna perf server"), "{error}");
    }
    let error = connect(server.address, Purpose::Measured.tag(9)).expect_err("nobody waits for it");
    assert!(error.to_string().contains("its session has ended"), "{error}");
}

#[test]
fn a_server_that_ends_says_goodbye() {
    let server = Running::start("", |_| {});
    let session = server.session();
    ask(&session);
    server.stop.store(true, Ordering::Relaxed);
    wait_closed(&session);
    let failure = server.result().expect_err("stopped");
    assert!(matches!(failure, Failure::Interrupted), "{failure:?}");
}

/// Something else than a perf server, which takes one connection and does this.
fn other(serve: impl FnOnce(Connection) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let context = Context::new(lacuna::ContextConfig::default()).expect("sockets");
    let any_port = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(&context, any_port, ConnectionConfig::default()).expect("a port");
    let address = listener.local_addr();
    (address, thread::spawn(move || serve(listener.accept().expect("a client"))))
}

#[test]
fn a_client_says_when_the_other_end_is_no_perf_server() {
    let (address, serving) = other(|connection| {
        let mut request = [0; 1000];
        connection.recv(&mut request).expect("a request");
        connection.send(b"\x07not JSON").expect("the client takes it");
    });
    let text = network(measure(address, ""));
    assert!(text.contains("is no lacuna perf server"), "{text}");
    serving.join().expect("no panic");

    let (address, serving) = other(|connection| {
        let mut request = [0; 1000];
        connection.recv(&mut request).expect("a request");
    });
    let text = network(measure(address, ""));
    assert!(text.contains("is it lacuna perf server?"), "{text}");
    serving.join().expect("no panic");

    let (address, serving) = other(drop);
    let text = network(measure(address, ""));
    assert!(text.contains("is it lacuna perf server?"), "{text}");
    serving.join().expect("no panic");
}
