//! Server and client in this process over loopback, with an emulated path around the client's
//! sockets: what it is known to do has to be reported.

use super::client::{Measured, measure};
use super::server::Server;
use super::{ClientArgs, ServerArgs};
use crate::failure::Failure;
use crate::output::Output;
use clap::Parser;
use lacuna::Wrap;
use lacuna::datapath::testing::{Hooked, judged};
use lacuna::datapath::{Fraction, Impair, Impairment, Loss};
use lacuna_probe::PathEstimate;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

const OUTPUT: Output = Output { json: false, quiet: true };
const MS: u64 = 1_000_000;

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
    fn start(options: &str) -> Self {
        Self::start_over(options, None)
    }

    fn start_over(options: &str, wrap: Option<Wrap>) -> Self {
        let line = format!("server --listen 127.0.0.1:0 {options}");
        let args = ServerLine::try_parse_from(line.split_whitespace()).expect("a command line");
        let mut server = Server::open(&args.args, wrap.as_ref(), OUTPUT).expect("a port");
        let address = server.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || server.run(&|| stopped.load(Ordering::Relaxed)));
        Self { address, stop, thread: Some(thread) }
    }

    /// What it ends with by itself.
    fn result(mut self) -> Result<(), Failure> {
        let thread = self.thread.take().expect("taken once");
        thread.join().expect("the server does not panic")
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

fn args(to: SocketAddr, options: &str) -> ClientArgs {
    let line = format!("client {to} {options}");
    ClientLine::try_parse_from(line.split_whitespace()).expect("a command line").args
}

fn over(impairment: Impairment, seed: u64) -> Wrap {
    Arc::new(move |socket, inner| {
        Box::new(Impair::new(inner, impairment.clone(), seed ^ u64::from(socket)))
    })
}

/// All that was asked for.
fn path(measured: Measured) -> PathEstimate {
    assert!(measured.failure.is_none(), "{:?}", measured.failure);
    let report = measured.report.expect("trials");
    report.summary().path.clone().expect("trials")
}

#[test]
fn an_emulated_paths_loss_bursts_delay_and_reordering_are_within_their_intervals() {
    let way = Impairment {
        loss: Loss::bursts(0.03, 4.0).expect("possible"),
        delay_ns: 10 * MS,
        reorder: Fraction::from_f64(0.05),
        // Many packets, so that lateness of this process does not matter.
        reorder_delay_ns: 20 * MS,
        ..Impairment::default()
    };
    let back = Impairment { delay_ns: 10 * MS, ..Impairment::default() };
    let server = Running::start_over("", Some(over(back, 2)));
    let args =
        args(server.address, "--rate 20mbit --payload 500 --trials 2 --time 1500ms --flows 2");
    let wrap = over(way, 1);
    let path = path(measure(&args, Some(&wrap), &|| false, OUTPUT).expect("it measures"));
    assert!(path.loss.holds(0.03), "{:?}", path.loss);
    let burst = path.bursts.expect("there were losses").mean_burst_packets;
    assert!(burst.holds(4.0), "{burst:?}");
    assert!(path.reordered.holds(0.05), "{:?}", path.reordered);
    // Round trips on a real clock are never shorter than the path.
    let rtt = path.rtt.expect("round trips");
    assert!(rtt.min_s >= 0.02 && rtt.p50_s.high >= 0.02, "{rtt:?}");
}

#[test]
fn one_client_after_the_other_is_served_and_one_too_many_refused() {
    let server = Running::start("");
    let short = args(server.address, "--payload 200 --trials 1 --time 100ms");
    for _ in 0..2 {
        path(measure(&short, None, &|| false, OUTPUT).expect("it measures"));
    }
    // A client that has its seat, once it got it, until it is told to stop.
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let long = args(server.address, "--payload 200 --trials 1 --time 1h");
    let first = thread::spawn(move || {
        loop {
            let is_stopped = || stopped.load(Ordering::Relaxed);
            let measured = measure(&long, None, &is_stopped, OUTPUT).expect("it asks");
            if matches!(measured.failure, Some(Failure::Interrupted)) {
                return measured;
            }
        }
    });
    let busy = loop {
        let measured = measure(&short, None, &|| false, OUTPUT).expect("it asks");
        if measured.failure.is_some() {
            break measured;
        }
    };
    stop.store(true, Ordering::Relaxed);
    let text = busy.failure.expect("it was refused").to_string();
    assert!(busy.report.is_none() && text.contains("busy"), "{text}");
    first.join().expect("no panic");
}

#[test]
fn a_server_for_one_client_ends_with_it() {
    let server = Running::start("--once");
    let args = args(server.address, "--payload 200 --trials 1 --time 50ms");
    path(measure(&args, None, &|| false, OUTPUT).expect("it measures"));
    server.result().expect("it was served");
}

#[test]
fn a_measurement_beyond_the_servers_limit_is_refused_with_it() {
    let server = Running::start("--max-time 90s");
    let args = args(server.address, "--trials 100 --time 1s --payload 200");
    let failure = measure(&args, None, &|| false, OUTPUT).expect("it asks").failure;
    let text = failure.expect("refused").to_string();
    assert!(text.contains("limit is 90 s") && text.contains("--trials"), "{text}");
}

#[test]
fn what_the_path_cuts_short_is_loss_and_the_rest_is_left_out() {
    let server = Running::start("");
    let args = args(server.address, "--payload 1KiB,8KiB --trials 1 --time 100ms --rate 100mbit");
    // Loopback takes everything; a path that does not is emulated by losing what is long.
    let wrap: Wrap = Arc::new(|_, inner| Box::new(judged(inner, |packet| packet.len() <= 1472)));
    let measured = measure(&args, Some(&wrap), &|| false, OUTPUT).expect("it measures");
    let report = serde_json::to_value(measured.report.expect("trials")).expect("an object");
    assert_eq!(report["path_mtu_bytes"], 1500);
    assert_eq!(report["left_out_payload_bytes"], serde_json::json!([8192]));
    assert_eq!(report["trials"].as_array().map(Vec::len), Some(1));
}

/// The system's answer to what the client sends in packets of so much payload: an error, or none.
fn answering(
    payload_bytes: usize,
    code: impl Fn(u32) -> Option<i32> + Send + Sync + 'static,
) -> Wrap {
    let (count, code) = (Arc::new(AtomicU32::new(0)), Arc::new(code));
    Arc::new(move |_, inner| {
        let (count, code) = (count.clone(), code.clone());
        Box::new(Hooked::new(inner, move |inner, now_ns, burst| {
            let is_meant =
                burst.packets().next().is_some_and(|packet| packet.len() == payload_bytes);
            let nth = if is_meant { count.fetch_add(1, Ordering::Relaxed) } else { 0 };
            match code(nth).filter(|_| is_meant) {
                Some(code) => Err(std::io::Error::from_raw_os_error(code).into()),
                None => inner.send(now_ns, burst),
            }
        }))
    })
}

#[cfg(unix)]
#[test]
fn packets_that_this_host_refuses_are_counted_as_its_own_losses() {
    let server = Running::start("");
    let args = args(server.address, "--payload 555 --trials 2 --time 100ms");
    // EPERM, EACCES and EINVAL: a firewall, routes that prohibit and that swallow. Then all is well.
    let wrap = answering(555, |nth| [1, 13, 22].get(nth as usize / 5).copied());
    let Measured { report, failure } =
        measure(&args, Some(&wrap), &|| false, OUTPUT).expect("it measures");
    assert!(failure.is_none(), "{failure:?}");
    let report = serde_json::to_value(report.expect("trials")).expect("an object");
    assert_eq!(report["refused_packets"], 15);
    let errors = report["refusals"].as_array().expect("a list");
    assert!(errors.len() == 3 && errors.iter().all(|one| one["packets"] == 5), "{errors:?}");
    let of_trial = |trial: usize, field: &str| report["trials"][trial][field].clone();
    assert_eq!((of_trial(0, "refused_packets"), of_trial(0, "marked")), (15.into(), true.into()));
    assert_eq!((of_trial(1, "refused_packets"), of_trial(1, "marked")), (0.into(), false.into()));
}

#[cfg(unix)]
#[test]
fn a_socket_that_breaks_ends_a_measurement_with_what_there_is() {
    let server = Running::start("");
    let args = args(server.address, "--payload 300,555 --trials 1 --time 100ms");
    // EBADF in the second trial.
    let wrap = answering(555, |_| Some(9));
    let Measured { report, failure } =
        measure(&args, Some(&wrap), &|| false, OUTPUT).expect("it measures");
    let Some(Failure::Local(why)) = failure else { panic!("{failure:?}") };
    assert!(why.contains("its descriptor is closed"), "{why}");
    let report = serde_json::to_value(report.expect("the first trial")).expect("an object");
    assert_eq!((&report["interrupted"], &report["why"]), (&true.into(), &why.into()));
    assert_eq!(report["trials"].as_array().map(Vec::len), Some(1));
}

#[cfg(unix)]
#[test]
fn a_host_that_takes_nothing_is_named_and_not_the_server() {
    let server = Running::start("");
    let args = args(server.address, "");
    let refusing = |code| -> Wrap {
        Arc::new(move |_, inner| {
            Box::new(Hooked::new(inner, move |_, _, _| {
                Err(std::io::Error::from_raw_os_error(code).into())
            }))
        })
    };
    let unreachable = if cfg!(target_os = "linux") { 101 } else { 51 };
    for (code, is_here) in [(1, true), (unreachable, false)] {
        let measured = measure(&args, Some(&refusing(code)), &|| false, OUTPUT).expect("it tries");
        assert!(measured.report.is_none());
        let failure = measured.failure.expect("nothing was measured");
        assert_eq!(matches!(failure, Failure::Local(_)), is_here, "{failure}");
        let said = std::io::Error::from_raw_os_error(code).to_string();
        let text = failure.to_string();
        assert!(text.contains(&said) && text.contains("cannot send to 127.0.0.1"), "{text}");
    }
}

#[test]
fn command_lines_that_make_no_sense_are_answered_with_the_range() {
    for (line, part) in [
        ("client h --payload 10", "use 40 B to 63.97 KiB"),
        ("client h --payload 70000", "use 40 B to 63.97 KiB"),
        ("client h --flows 65", "use 1 to 64"),
        ("client h --time 2h", "use 1h at most"),
        ("client h --trials 0", "use 1 to 100000"),
        ("client h --rate 10", "no unit"),
        ("client", "HOST"),
    ] {
        let error = ClientLine::try_parse_from(line.split_whitespace()).err().expect(line);
        assert!(error.to_string().contains(part), "{error}");
    }
    let nowhere: SocketAddr = ([127, 0, 0, 1], 9).into();
    for (options, part) in
        [("--rate 1kbit", "at least 80000"), ("--rate 9tbit --time 1h", "use a lower rate")]
    {
        match measure(&args(nowhere, options), None, &|| false, OUTPUT) {
            Err(Failure::Usage(text)) => assert!(text.contains(part), "{text}"),
            _ => panic!("{options} was taken"),
        }
    }
}
