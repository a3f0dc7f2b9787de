//! `lacuna reproduce tcp`, hidden: a bulk transfer over TCP, to stand beside reliable connections in
//! `lacuna reproduce lowar --live`.
//!
//! The receiver keeps the time: it counts payload from the end of the warm-up on, which begins when all
//! streams are there, prints what it has counted and ends. The sender writes until its streams are closed. So
//! neither slow start nor what lies in buffers at the end is in the result.

use crate::failure::Failure;
use crate::output::Output;
use crate::units;
use clap::{Args, Subcommand};
use lacuna::datapath::limit::Said;
use lacuna_service::thread;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What one call reads or writes at most: enough that calls cost little beside copying.
const PIECE_BYTES: usize = 256 << 10;
/// Streams at most.
const STREAMS_MAX: u16 = 256;

/// Bulk transfer over TCP
#[derive(Debug, Args)]
pub(super) struct TcpArgs {
    #[command(subcommand)]
    end: End,
}

#[derive(Debug, Subcommand)]
enum End {
    /// Take what comes for some time, and count it
    Receive(ReceiveArgs),
    /// Send until the receiver has enough
    Send(SendArgs),
}

#[derive(Debug, Args)]
struct ReceiveArgs {
    /// Port to listen at
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Streams to wait for
    #[arg(long, default_value = "1", value_parser = units::count(1..=STREAMS_MAX))]
    streams: u16,
    /// Time before anything counts
    #[arg(long, default_value = "2s", value_parser = units::duration, value_name = "TIME")]
    warmup: Duration,
    /// Time that counts
    #[arg(long, default_value = "5s", value_parser = units::some_duration, value_name = "TIME")]
    time: Duration,
}

#[derive(Debug, Args)]
struct SendArgs {
    /// Where the receiver is
    host: Ipv4Addr,
    /// Its port
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Streams at a time
    #[arg(long, default_value = "1", value_parser = units::count(1..=STREAMS_MAX))]
    streams: u16,
    /// Congestion control, as the kernel calls it
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    cc: String,
}

const PORT: u16 = 7407;

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Received {
    /// While it counted.
    pub(super) goodput_bits_per_s: f64,
    pub(super) seconds: f64,
    /// In all, the warm-up included.
    pub(super) bytes: u64,
}

pub(super) fn run(args: &TcpArgs, output: Output) -> Result<(), Failure> {
    match &args.end {
        End::Receive(args) => receive(args, output),
        End::Send(args) => send(args),
    }
}

fn receive(args: &ReceiveArgs, output: Output) -> Result<(), Failure> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port));
    let listener = TcpListener::bind(address).map_err(|error| {
        Failure::Local(format!("cannot listen at TCP port {}: {}", args.port, Said(&error)))
    })?;
    let received = take(&listener, args.streams, args.warmup, args.time)?;
    output.object(&received)
}

/// Accepts the streams and counts what they bring.
fn take(
    listener: &TcpListener,
    streams: u16,
    warm_up: Duration,
    time: Duration,
) -> Result<Received, Failure> {
    let count = Arc::new(Count::default());
    for _ in 0..streams {
        let (stream, _) = listener.accept().map_err(|error| lost(&error))?;
        let count = count.clone();
        thread::start("lacuna-tcp", move || drain(stream, &count))?;
    }
    std::thread::sleep(warm_up);
    let (started, before) = (Instant::now(), count.bytes.load(Ordering::Relaxed));
    std::thread::sleep(time);
    let (seconds, all) = (started.elapsed().as_secs_f64(), count.bytes.load(Ordering::Relaxed));
    count.is_over.store(true, Ordering::Relaxed);
    let early = count.ended_early.load(Ordering::Relaxed);
    if early > 0 {
        return Err(Failure::Network(format!("{early} of {streams} streams ended early")));
    }
    Ok(Received { goodput_bits_per_s: (all - before) as f64 * 8.0 / seconds, seconds, bytes: all })
}

/// What the streams have in common.
#[derive(Debug, Default)]
struct Count {
    bytes: AtomicU64,
    /// Enough has come: streams are closed.
    is_over: AtomicBool,
    ended_early: AtomicUsize,
}

/// Reads until enough has come, and closes the stream.
fn drain(mut stream: TcpStream, count: &Count) {
    let mut piece = vec![0; PIECE_BYTES];
    while !count.is_over.load(Ordering::Relaxed) {
        match stream.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => {
                count.ended_early.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Ok(some) => {
                count.bytes.fetch_add(some as u64, Ordering::Relaxed);
            }
        }
    }
}

fn send(args: &SendArgs) -> Result<(), Failure> {
    let address = SocketAddr::from((args.host, args.port));
    let mut threads = Vec::new();
    for _ in 0..args.streams {
        let stream = TcpStream::connect(address).map_err(|error| {
            Failure::Network(format!("cannot connect to {address}: {}", Said(&error)))
        })?;
        choose(&stream, &args.cc)?;
        threads.push(thread::start("lacuna-tcp", move || fill(stream))?);
    }
    for thread in threads {
        match thread.join() {
            Ok(result) => result.map_err(|error| lost(&error))?,
            Err(_) => return Err(Failure::Local("a sending thread panicked".to_owned())),
        }
    }
    Ok(())
}

/// Sets a stream's congestion control.
fn choose(stream: &TcpStream, cc: &str) -> Result<(), Failure> {
    sockopt::set_tcp_congestion(stream, cc).map_err(|error| {
        let why = io::Error::from(error);
        Failure::Local(format!(
            "the kernel refuses TCP congestion control {cc}: {}: as root, modprobe tcp_{cc}",
            Said(&why)
        ))
    })
}

/// Writes until the receiver has closed the stream.
fn fill(mut stream: TcpStream) -> io::Result<()> {
    let piece = vec![0x5a; PIECE_BYTES];
    loop {
        match stream.write_all(&piece) {
            Ok(()) => {}
            Err(error) => match error.kind() {
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => return Ok(()),
                _ => return Err(error),
            },
        }
    }
}

fn lost(error: &io::Error) -> Failure {
    Failure::Network(format!("lost a TCP stream: {}", Said(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_counted_after_the_warm_up_and_the_sender_ends_with_the_receiver() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (host, cc) = (Ipv4Addr::LOCALHOST, "cubic".to_owned());
        let sender = std::thread::spawn(move || {
            let address = SocketAddr::from((host, port));
            let streams = [0, 1].map(|_| TcpStream::connect(address).expect("it listens"));
            streams.iter().for_each(|stream| choose(stream, &cc).expect("every kernel has it"));
            let ends = streams.map(|stream| std::thread::spawn(move || fill(stream)));
            ends.map(|end| end.join().expect("no panic"))
        });
        let time = Duration::from_millis(100);
        let received = take(&listener, 2, time, time).expect("it comes");
        assert!(received.seconds >= 0.1 && received.goodput_bits_per_s > 0.0, "{received:?}");
        let counted = received.goodput_bits_per_s * received.seconds / 8.0;
        assert!((received.bytes as f64) > counted, "the warm-up is part of all bytes");
        let ends = sender.join().expect("no panic");
        assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    }

    #[test]
    fn an_unknown_congestion_control_is_refused_in_one_line() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let error = choose(&stream, "magic").expect_err("there is none").to_string();
        assert!(error.contains("magic") && !error.contains('\n'), "{error}");
    }
}
