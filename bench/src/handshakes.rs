//! Connecting while others flood the listener: 10,000 half-open exchanges a second from eight addresses, which say nothing or begin
//! a session of TLS and go no further. Meanwhile honest peers connect, from an address of their own.
//!
//! The listener is a process of its own, so that its memory and descriptors can be looked at: at most a thousand exchanges are
//! kept, memory hardly grows, and every honest peer is through within a second. Flood, peers and listener
//! share the machine's cores.

use anyhow::{Context as _, Result, ensure};
use lacuna::trust::{Session, Token, Trust};
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener, Security};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use serde::Serialize;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The flood's addresses are 127.0.0.2 and so on.
const SOURCES: u32 = 8;
/// Ports of each, from the first one on.
const PORT: u16 = 10_000;
const PORTS: u32 = 50_000;
/// As many of its connections are held at once by whoever floods: more than a listener keeps.
const HELD: usize = 4096;
const HONEST: usize = 50;
const KEPT_MAX: usize = 1000;
const GROWTH_MAX_BYTES: u64 = 64 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// Settings of the command line.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HandshakesArgs {
    /// Half-open exchanges of each kind
    #[arg(long, default_value_t = 100_000)]
    exchanges: u32,
    /// Half-open exchanges in a second
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// What those who flood say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Silent,
    /// The first message of TLS, from somebody with another token.
    Tls,
}

#[derive(Debug, Serialize)]
struct Line {
    kind: Kind,
    exchanges: u32,
    per_s: f64,
    /// Half-open exchanges that the listener had at a time.
    kept: usize,
    grown_bytes: u64,
    honest: usize,
    connect_median_ms: f64,
    connect_most_ms: f64,
    /// Of the same peers, without a flood.
    undisturbed_median_ms: f64,
    holds: bool,
}

pub(crate) fn run(args: &HandshakesArgs) -> Result<()> {
    let most = SOURCES * PORTS;
    ensure!((1..=most).contains(&args.exchanges), "--exchanges must be 1 to {most}");
    ensure!(args.rate > 0, "--rate must be 1 or more");
    raise_descriptors()?;
    let mut all_hold = true;
    for kind in [Kind::Silent, Kind::Tls] {
        let line = measure(kind, args)?;
        all_hold &= line.holds;
        if args.json {
            println!("{}", serde_json::to_string(&line)?);
        } else {
            println!("{}", line.text());
        }
    }
    ensure!(all_hold, "a flood was felt more than it may");
    Ok(())
}

impl Line {
    fn text(&self) -> String {
        let what = match self.kind {
            Kind::Silent => "say nothing",
            Kind::Tls => "begin TLS",
        };
        format!(
            "{} that {what}, {:.0} per second: {} kept at most, {:.1} MiB more memory; {} honest peers connect in {:.1} ms (median), {:.1} ms (slowest), without a flood {:.1} ms: {}",
            self.exchanges,
            self.per_s,
            self.kept,
            self.grown_bytes as f64 / f64::from(1 << 20),
            self.honest,
            self.connect_median_ms,
            self.connect_most_ms,
            self.undisturbed_median_ms,
            if self.holds { "holds" } else { "does NOT hold" },
        )
    }
}

/// Most file descriptors that this process may have.
fn raise_descriptors() -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(())
}

/// A listener, in a process of its own.
struct Listening {
    process: Child,
    address: SocketAddr,
}

impl Listening {
    fn start(token: &Token) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("listen")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.as_mut().context("a pipe")?;
        writeln!(input, "{}", *token.to_text())?;
        let mut said = String::new();
        BufReader::new(process.stdout.as_mut().context("a pipe")?).read_line(&mut said)?;
        let address = said.trim().parse().with_context(|| format!("the listener said {said}"))?;
        Ok(Self { process, address })
    }

    fn descriptors(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.process.id()))?.count())
    }

    /// Resident memory.
    fn bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = kib.and_then(|kib| kib.split_whitespace().next()).context("no VmRSS")?;
        Ok(kib.parse::<u64>()? << 10)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The listener's process: accepts connections and keeps them for a moment, until its input ends.
pub(crate) fn listen() -> Result<()> {
    raise_descriptors()?;
    let mut lines = std::io::stdin().lines();
    let token: Token = lines.next().context("no token")??.parse()?;
    let context = context(&token)?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Listener::bind(&context, any, ConnectionConfig::default())?;
    println!("{}", listener.local_addr());
    // Whoever accepts serves a connection elsewhere.
    let mut connections = VecDeque::new();
    loop {
        if let Ok(connection) = listener.accept() {
            connections.push_back(connection);
            if connections.len() > HONEST {
                connections.pop_front();
            }
        }
    }
}

fn context(token: &Token) -> Result<Context> {
    Ok(Context::new(ContextConfig {
        bind: Ipv4Addr::LOCALHOST.into(),
        security: Security::Keys(Trust::of_token(token)),
        ..ContextConfig::default()
    })?)
}

/// Connects so often, one after the other, `apart`; how long each takes.
fn connect_honestly(token: &Token, address: SocketAddr, apart: Duration) -> Result<Vec<Duration>> {
    (0..HONEST)
        .map(|_| {
            // A peer of its own, with nothing that it could use again.
            let context = context(token)?;
            let began = Instant::now();
            let connection = Connection::connect(&context, address, ConnectionConfig::default())?;
            let took = began.elapsed();
            drop(connection);
            std::thread::sleep(apart.saturating_sub(began.elapsed()));
            Ok(took)
        })
        .collect()
}

fn measure(kind: Kind, args: &HandshakesArgs) -> Result<Line> {
    let (token, other) = (Token::generate()?, Token::generate()?);
    let listening = Listening::start(&token)?;
    let address = listening.address;
    let undisturbed = connect_honestly(&token, address, Duration::ZERO)?;
    let (descriptors, bytes) = (listening.descriptors()?, listening.bytes()?);
    let first = match kind {
        Kind::Silent => Vec::new(),
        Kind::Tls => first_message(&other)?,
    };
    let flood_s = f64::from(args.exchanges) / f64::from(args.rate);
    let apart = Duration::from_secs_f64(flood_s * 0.8 / HONEST as f64);
    let is_over = AtomicBool::new(false);
    let (times, took, kept, most_bytes) = std::thread::scope(|scope| -> Result<_> {
        let flooding = scope.spawn(|| flood(address, args, &first));
        let connecting = scope.spawn(|| {
            let times = connect_honestly(&token, address, apart);
            is_over.store(true, Ordering::Relaxed);
            times
        });
        let (mut kept, mut most_bytes) = (0, 0);
        while !flooding.is_finished() || !is_over.load(Ordering::Relaxed) {
            kept = kept.max(listening.descriptors()?.saturating_sub(descriptors));
            most_bytes = most_bytes.max(listening.bytes()?);
            std::thread::sleep(Duration::from_millis(20));
        }
        let panicked = |_| anyhow::anyhow!("a thread panicked");
        let times = connecting.join().map_err(panicked)??;
        Ok((times, flooding.join().map_err(panicked)??, kept, most_bytes))
    })?;
    let grown_bytes = most_bytes.saturating_sub(bytes);
    let [median, most] = of(times.clone());
    // An honest peer's control connection is one of those that are open, and so is one that is being accepted.
    let kept = kept.saturating_sub(HONEST);
    Ok(Line {
        kind,
        exchanges: args.exchanges,
        per_s: f64::from(args.exchanges) / took.as_secs_f64(),
        kept,
        grown_bytes,
        honest: times.len(),
        connect_median_ms: median,
        connect_most_ms: most,
        undisturbed_median_ms: of(undisturbed)[0],
        holds: kept <= KEPT_MAX
            && grown_bytes < GROWTH_MAX_BYTES
            && times.iter().all(|time| *time < CONNECT_MAX),
    })
}

/// Median and most, in milliseconds.
fn of(mut times: Vec<Duration>) -> [f64; 2] {
    times.sort_unstable();
    let at = |index: usize| times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3);
    [at(times.len() / 2), at(times.len().saturating_sub(1))]
}

/// What a peer with a token says first.
fn first_message(token: &Token) -> Result<Vec<u8>> {
    let mut session = Session::connecting(&Trust::of_token(token))?;
    let mut sent = Sent(Vec::new());
    session.flush(&mut sent)?;
    ensure!(!sent.0.is_empty(), "a session begins with a message");
    Ok(sent.0)
}

/// A stream that takes everything and says nothing.
struct Sent(Vec<u8>);

impl std::io::Read for Sent {
    fn read(&mut self, _bytes: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Begins exchanges, at the rate; how long all took.
fn flood(to: SocketAddr, args: &HandshakesArgs, first: &[u8]) -> Result<Duration> {
    let began = Instant::now();
    let mut held: VecDeque<TcpStream> = VecDeque::new();
    for number in 0..args.exchanges {
        let due = Duration::from_secs_f64(f64::from(number) / f64::from(args.rate));
        if let Some(early) = due.checked_sub(began.elapsed())
            && early > Duration::from_millis(1)
        {
            std::thread::sleep(early);
        }
        let stream = half_open(to, number)?;
        if held.len() == HELD {
            held.pop_front();
        }
        held.push_back(stream);
        // What was begun some time ago is connected now, so it takes bytes.
        if !first.is_empty()
            && let Some(stream) = held.len().checked_sub(16).and_then(|at| held.get_mut(at))
        {
            // It may have been turned away.
            let _ = stream.write(first);
        }
    }
    Ok(began.elapsed())
}

/// Begins to connect from the flood's addresses in turn, and from each port of theirs once.
fn half_open(to: SocketAddr, number: u32) -> Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // An earlier flood may have used the port, towards another place.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    let from = Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 0, 2).to_bits() + number % SOURCES);
    let port = PORT + (number / SOURCES % PORTS) as u16;
    bind(&socket, &SocketAddr::from((from, port)))?;
    match connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error).context("cannot begin to connect"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_exchanges_come_from_eight_addresses_and_tls_begins_with_a_message() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let held: Vec<_> = (0..SOURCES).map(|number| half_open(to, number).unwrap()).collect();
        let mut sources: Vec<_> = held.iter().map(|_| listener.accept().unwrap().1.ip()).collect();
        sources.sort_unstable();
        sources.dedup();
        assert_eq!(sources.len(), SOURCES as usize);
        assert_eq!(first_message(&Token::generate().unwrap()).unwrap()[0], 0x16);
    }
}
