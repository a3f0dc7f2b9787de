//! A telemetry collector: one datagram queue pair takes numbered samples of 10,000 clients, without a connection to
//! any of them, and knows exactly what each of them lost.
//!
//! ```text
//! cargo run --release -p lacuna --example telemetry -- --help
//! cargo run --release -p lacuna --example telemetry
//! cargo run --release -p lacuna --example telemetry -- --verb write-record --loss 0.05
//! ```
//!
//! All of it runs in this process, over loopback. The collector is a [`lacuna::datagram::QueuePair`] with a thread
//! and a socket. Ten thousand of these for the clients would be as many threads and some sockets more; so a client is
//! what such a queue pair has inside, the protocol ([`lacuna_datagram::Endpoint`]), with a UDP socket of its own at
//! an address of its own (127.1.0.0, 127.1.0.1, ...), and one thread drives them all. Everything that the
//! collector sees is as from 10,000 hosts.
//!
//! **Send**: a sample goes into the next of the collector's receives. **Write-Record**: each sample of each client
//! has its place in the collector's memory, and the client writes it there; the collector learns from the completion
//! which place was written, and need not look at it.
//!
//! **Counts.** Some packets are dropped on the way on purpose (`--loss`), and a busy machine drops more. A gap in a
//! client's numbers is what was lost before a sample; what was lost after the last one, nothing in the samples can
//! tell. So in the end each client says how many samples it sent, again and again until the collector has
//! answered. Then for each client the samples that came and those that are missed are exactly those that it sent.
//! The queue pair counts lost messages by itself, too ([`lacuna::datagram::Arrived::missed`]): those that are more
//! than 56 messages before the last one of their source, as a later one may still come.

use lacuna::datagram::{
    Done, Operation, PeerId, QueuePair, RecvWork, SendWork, Settings, Target, Verb,
};
use lacuna::{Context, ContextConfig, Region, RegionOptions, Rights};
use lacuna_datagram::{Config, Endpoint, Run};
use lacuna_link::SplitMix64;
use lacuna_place::region::KeyTable;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: telemetry [OPTIONS]
  --clients N          addresses that send [10000]
  --samples N          samples of each [100]
  --verb VERB          send, or write-record [send]
  --rate N             samples a second, of all together; 0 is as fast as they can [100000]
  --loss SHARE         packets of clients that are dropped on the way [0.01]
  --seed N             of the dropped ones [1]";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of a sample, and of the word at the end: what it is, whose, its number (or how many there were), and a
/// value.
const SAMPLE_BYTES: usize = 16;
/// Receives of the collector that are posted at a time.
const RECEIVES: u64 = 4096;
/// Descriptors of this process besides the clients'.
const OTHER_DESCRIPTORS: u64 = 64;
/// Numbers of messages that a queue pair remembers of each source: what is older and did not come is lost.
const REMEMBERED: u32 = 56;
/// How often the word at the end is repeated, at most, and how long answers are waited for each time.
const WORDS_MAX: u32 = 500;
const ANSWER: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    WriteRecord,
}

#[derive(Debug, Clone, Copy)]
struct Options {
    clients: u32,
    samples: u32,
    verb: Kind,
    /// Of all clients together, in a second.
    rate: u64,
    loss_per_million: u32,
    seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clients: 10_000,
            samples: 100,
            verb: Kind::Send,
            rate: 100_000,
            loss_per_million: 10_000,
            seed: 1,
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(&words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Result<Options> {
    fn value<T: FromStr>(name: &str, text: &str) -> Result<T> {
        text.parse().map_err(|_| format!("{name} {text}: no such value").into())
    }
    let mut options = Options::default();
    for pair in words.chunks(2) {
        let [name, text] = pair else { return Err(format!("{} needs a value", pair[0]).into()) };
        match name.as_str() {
            "--clients" => options.clients = value(name, text)?,
            "--samples" => options.samples = value(name, text)?,
            "--rate" => options.rate = value(name, text)?,
            "--seed" => options.seed = value(name, text)?,
            "--loss" => options.loss_per_million = (value::<f64>(name, text)? * 1e6) as u32,
            "--verb" if text == "send" => options.verb = Kind::Send,
            "--verb" if text == "write-record" => options.verb = Kind::WriteRecord,
            _ => return Err(format!("{name} {text}: no such option").into()),
        }
    }
    let has_some = (1..=60_000).contains(&options.clients) && options.samples > 0;
    if !has_some || options.loss_per_million >= 1_000_000 {
        return Err("1 to 60000 clients, a sample at least, and a loss below 1".into());
    }
    Ok(options)
}

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// A sample of this number.
    Sample(u32),
    /// There were so many samples, and there are no more.
    End(u32),
}

/// A message of a client. Numbers are written plus 1, so that no sample is all zeros.
fn emit(client: u32, word: Word, value: f32) -> Vec<u8> {
    let (kind, number) = match word {
        Word::Sample(number) => (1u32, number + 1),
        Word::End(count) => (2, count),
    };
    let fields = [kind, client, number, value.to_bits()];
    fields.iter().flat_map(|field| field.to_be_bytes()).collect()
}

fn read(bytes: &[u8; SAMPLE_BYTES]) -> Option<(u32, Word)> {
    let field =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let word = match field(0) {
        1 => Word::Sample(field(8).checked_sub(1)?),
        2 => Word::End(field(8)),
        _ => return None,
    };
    Some((field(4), word))
}

// ---- the clients ----

struct Client {
    socket: UdpSocket,
    endpoint: Endpoint,
    collector: PeerId,
    /// Samples that were sent, and of these those that were dropped on the way.
    sent: u32,
    dropped: u32,
    is_answered: bool,
}

/// What all clients share: the way out.
struct Way {
    start: Instant,
    rng: SplitMix64,
    loss_per_million: u32,
    runs: Vec<Run>,
    packet: Vec<u8>,
}

impl Way {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Sends what a client has to send; how many packets were dropped on the way.
    fn flush(&mut self, client: &mut Client) -> Result<u32> {
        let mut dropped = 0;
        let now_ns = self.now_ns();
        while let Some(to) = client.endpoint.poll_transmit(now_ns, 64, &mut self.runs) {
            for run in self.runs.drain(..) {
                for at in 0..run.len() {
                    self.packet.resize(run.packet_bytes(at), 0);
                    let bytes = run.emit(at, &mut self.packet);
                    if self.rng.chance(self.loss_per_million) {
                        dropped += 1;
                        continue;
                    }
                    match client.socket.send_to(&self.packet[..bytes], to) {
                        Ok(_) => {}
                        // The system has no room: lost, as on a path.
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(dropped)
    }
}

/// An address of its own for each client, where loopback has so many.
fn client_ip(client: u32) -> Ipv4Addr {
    match cfg!(target_os = "linux") {
        true => Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 0).to_bits() + client),
        false => Ipv4Addr::LOCALHOST,
    }
}

fn clients(options: &Options, collector: SocketAddr) -> Result<Vec<Client>> {
    let keys = Arc::new(KeyTable::new(options.seed));
    let client = |client: u32| -> Result<Client> {
        let socket = UdpSocket::bind((client_ip(client), 0))?;
        socket.set_nonblocking(true)?;
        let seed = options.seed << 32 | u64::from(client);
        let mut endpoint = Endpoint::new(Config::default(), keys.clone(), seed);
        let collector = endpoint.peer(collector).ok_or("no room for a peer")?;
        Ok(Client { socket, endpoint, collector, sent: 0, dropped: 0, is_answered: false })
    };
    (0..options.clients).map(client).collect()
}

/// Sends all samples of all clients, and then their words at the end until all are answered. `table` is the key of
/// the collector's memory, and `answers` memory that answers go into.
fn drive(
    options: &Options,
    mut clients: Vec<Client>,
    table: u32,
    answers: &Region,
) -> Result<Vec<Client>> {
    let mut way = Way {
        start: Instant::now(),
        rng: SplitMix64::new(options.seed),
        loss_per_million: options.loss_per_million,
        runs: Vec::new(),
        packet: Vec::new(),
    };
    let unsignaled = |to, verb| SendWork { is_signaled: false, ..SendWork::new(0, to, verb) };
    let mut sent = 0u64;
    for number in 0..options.samples {
        for (at, client) in (0..).zip(&mut clients) {
            if options.rate > 0 && sent.is_multiple_of(64) {
                let due = Duration::from_secs_f64(sent as f64 / options.rate as f64);
                std::thread::sleep(due.saturating_sub(way.start.elapsed()));
            }
            let value = (number as f32 / 10.0 + at as f32).sin();
            let data = emit(at, Word::Sample(number), value).into();
            let verb = match options.verb {
                Kind::Send => Verb::Send { data },
                Kind::WriteRecord => {
                    let offset = place(options, at, number);
                    Verb::WriteRecord { data, to: Target { key: table, offset } }
                }
            };
            client.endpoint.post_send(way.now_ns(), unsignaled(client.collector, verb))?;
            client.dropped += way.flush(client)?;
            client.sent += 1;
            sent += 1;
        }
    }
    let mut datagram = [0; 2048];
    for _ in 0..WORDS_MAX {
        for (at, client) in (0..).zip(&mut clients).filter(|(_, client)| !client.is_answered) {
            let data = emit(at, Word::End(client.sent), 0.0).into();
            let work = unsignaled(client.collector, Verb::Send { data });
            let answer = RecvWork { id: 0, into: answers.slice(0..1)? };
            client.endpoint.post_recv(way.now_ns(), answer)?;
            client.endpoint.post_send(way.now_ns(), work)?;
            way.flush(client)?;
        }
        let asked = Instant::now();
        while asked.elapsed() < ANSWER {
            for client in clients.iter_mut().filter(|client| !client.is_answered) {
                while let Ok((bytes, from)) = client.socket.recv_from(&mut datagram) {
                    client.endpoint.on_datagram(way.now_ns(), from, &datagram[..bytes]);
                }
                let mut done = std::iter::from_fn(|| client.endpoint.poll_done());
                client.is_answered = done.any(|done| done.operation == Operation::Receive);
            }
            if clients.iter().all(|client| client.is_answered) {
                return Ok(clients);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let left = clients.iter().filter(|client| !client.is_answered).count();
    Err(format!("{left} clients were never answered").into())
}

/// Where a sample is in the collector's memory.
fn place(options: &Options, client: u32, number: u32) -> u64 {
    let samples = u64::from(client) * u64::from(options.samples) + u64::from(number);
    samples * SAMPLE_BYTES as u64
}

// ---- the collector ----

/// What is known of one client.
#[derive(Debug, Clone, Default)]
struct Tally {
    /// Samples that came, by bits, and how many.
    came: Vec<u64>,
    whole: u32,
    /// Samples before the next one that did not come.
    missed: u32,
    next: u32,
    /// How many it sent, if it has said so.
    sent: Option<u32>,
    /// What the queue pair told of lost messages.
    told: u32,
    /// The first sample that came, and the number of the message that sample 0 was in.
    first: Option<(u32, u32)>,
    /// The latest message that came, from that number on.
    latest: u32,
}

impl Tally {
    fn on_sample(&mut self, number: u32) -> Result<()> {
        let (at, bit) = (number as usize / 64, 1 << (number % 64));
        if self.came.len() <= at {
            self.came.resize(at + 1, 0);
        }
        if self.came[at] & bit != 0 {
            return Err(format!("sample {number} came twice").into());
        }
        self.came[at] |= bit;
        self.whole += 1;
        if number < self.next {
            // It was overtaken, and counted as missed.
            self.missed -= 1;
        } else {
            self.missed += number - self.next;
            self.next = number + 1;
        }
        Ok(())
    }

    fn on_end(&mut self, sent: u32) {
        if self.sent.is_none() {
            self.missed += sent - self.next;
            self.next = sent;
            self.sent = Some(sent);
        }
    }

    /// Lost samples that the queue pair can know of by the numbers of messages: those after the first that came
    /// and at least [`REMEMBERED`] before the latest.
    fn knowable(&self) -> u32 {
        let Some((first, _)) = self.first else { return 0 };
        let has = |number: u32| {
            self.came.get(number as usize / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
        };
        let end = (self.latest + 1).saturating_sub(REMEMBERED).min(self.next);
        (first..end).filter(|number| !has(*number)).count() as u32
    }
}

struct Collector {
    options: Options,
    queue_pair: QueuePair,
    /// Receives, a place each.
    inbox: Region,
    /// A place for each sample of each client.
    table: Region,
    tallies: Vec<Tally>,
    /// Clients by their addresses, from what they say.
    clients: HashMap<PeerId, u32>,
    ended: u32,
}

impl Collector {
    fn new(options: &Options) -> Result<Self> {
        let bind = Ipv4Addr::LOCALHOST.into();
        let context = Context::new(ContextConfig { bind, ..ContextConfig::default() })?;
        let queue_pair = context.datagram_queue_pair(&Settings { bind, ..Settings::default() })?;
        let own = RegionOptions { rights: Rights::NONE, ..RegionOptions::default() };
        let inbox = context.register(vec![0; RECEIVES as usize * SAMPLE_BYTES], own)?;
        let places = match options.verb {
            Kind::Send => 1,
            Kind::WriteRecord => options.clients as usize * options.samples as usize,
        };
        let table = context.register(vec![0; places * SAMPLE_BYTES], RegionOptions::default())?;
        let tallies = vec![Tally::default(); options.clients as usize];
        let clients = HashMap::new();
        let collector =
            Self { options: *options, queue_pair, inbox, table, tallies, clients, ended: 0 };
        (0..RECEIVES).try_for_each(|id| collector.post(id))?;
        Ok(collector)
    }

    fn post(&self, id: u64) -> Result<()> {
        let start = id * SAMPLE_BYTES as u64;
        let into = self.inbox.slice(start..start + SAMPLE_BYTES as u64)?;
        Ok(self.queue_pair.post_recv(RecvWork { id, into })?)
    }

    fn on_done(&mut self, done: &Done) -> Result<()> {
        let Some(arrived) = &done.arrived else { return Ok(()) };
        let (client, word) = match (done.operation, arrived.place) {
            (Operation::Receive, _) => {
                let mut bytes = [0; SAMPLE_BYTES];
                self.inbox.read(done.id * SAMPLE_BYTES as u64, &mut bytes)?;
                self.post(done.id)?;
                read(&bytes).ok_or("a message that is no sample")?
            }
            (Operation::Record, Some(place)) => {
                // The place says it all.
                let sample = place.offset / SAMPLE_BYTES as u64;
                let samples = u64::from(self.options.samples);
                ((sample / samples) as u32, Word::Sample((sample % samples) as u32))
            }
            _ => return Ok(()),
        };
        if *self.clients.entry(done.peer).or_insert(client) != client {
            return Err(format!("client {client} sends from the address of another").into());
        }
        let tally = self.tallies.get_mut(client as usize).ok_or("no such client")?;
        tally.told += arrived.missed;
        // The queue pair numbers Sends and Write-Records apart.
        let is_of_samples =
            (self.options.verb == Kind::Send) == (done.operation == Operation::Receive);
        if is_of_samples {
            let before = match word {
                Word::Sample(number) => number,
                Word::End(_) => 0,
            };
            let (_, base) =
                *tally.first.get_or_insert((before, arrived.number.wrapping_sub(before)));
            tally.latest = tally.latest.max(arrived.number.wrapping_sub(base));
        }
        match word {
            Word::Sample(number) => tally.on_sample(number)?,
            Word::End(sent) => {
                self.ended += u32::from(tally.sent.is_none());
                tally.on_end(sent);
                let verb = Verb::Send { data: vec![0].into() };
                let work = SendWork { is_signaled: false, ..SendWork::new(0, done.peer, verb) };
                self.queue_pair.post_send(work)?;
            }
        }
        Ok(())
    }
}

// ---- both ----

/// How it went.
struct Report {
    options: Options,
    took: Duration,
    /// Samples of all clients.
    sent: u64,
    whole: u64,
    missed: u64,
    /// Of the missed ones, those that were dropped on the way on purpose.
    dropped: u64,
    /// Of the missed ones, those that the queue pair told of, and those that it can know of.
    told: u64,
    knowable: u64,
    peers: usize,
    /// Messages that found no receive posted.
    unposted: u64,
    /// Places of the collector's memory that hold what belongs there.
    filled: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, whole, missed, dropped, told, knowable, peers, filled, .. } = *self;
        let Options { clients, verb, .. } = self.options;
        let rate = sent as f64 / self.took.as_secs_f64();
        writeln!(f, "{clients} clients sent {sent} samples, {rate:.0} a second")?;
        writeln!(f, "{whole} came and {missed} are missed, exactly, for each client")?;
        let machine = missed - dropped;
        writeln!(f, "  of the missed: {dropped} dropped on the way, {machine} by this machine")?;
        writeln!(f, "  {} messages found no receive posted", self.unposted)?;
        writeln!(
            f,
            "  the queue pair itself told of {told}, of {knowable} that are {REMEMBERED} messages old"
        )?;
        if verb == Kind::WriteRecord {
            writeln!(f, "the collector's memory holds {filled} samples, each in its place")?;
        }
        write!(f, "one queue pair, {peers} peers")
    }
}

/// Raises the limit of descriptors, and says how many there may be.
#[cfg(unix)]
fn descriptors(wanted: u64) -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        // What is refused shows below.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(not(unix))]
fn descriptors(_: u64) -> u64 {
    u64::MAX
}

fn run(options: &Options) -> Result<Report> {
    let wanted = u64::from(options.clients) + OTHER_DESCRIPTORS;
    let allowed = descriptors(wanted);
    if allowed < wanted {
        let most = allowed.saturating_sub(OTHER_DESCRIPTORS);
        return Err(format!(
            "this system allows {allowed} descriptors, and each client has a socket: --clients {most}, or \
             raise the limit (ulimit -Hn {wanted})"
        )
        .into());
    }
    let mut collector = Collector::new(options)?;
    let start = Instant::now();
    let clients = clients(options, collector.queue_pair.local_addr())?;
    let table = collector.table.key();
    let own = RegionOptions { rights: Rights::NONE, ..RegionOptions::default() };
    let answers = collector.queue_pair.context().register(vec![0; 1], own)?;
    let clients = std::thread::scope(|scope| -> Result<Vec<Client>> {
        let run = || drive(options, clients, table, &answers).map_err(|error| error.to_string());
        let driver = scope.spawn(run);
        let mut shown = Instant::now();
        // Until the clients are through and nothing more comes.
        loop {
            let is_over = driver.is_finished();
            match collector.queue_pair.wait(Duration::from_millis(100)) {
                Some(done) => collector.on_done(&done)?,
                None if is_over => break,
                None => {}
            }
            if shown.elapsed() > Duration::from_secs(1) {
                shown = Instant::now();
                let whole: u64 = collector.tallies.iter().map(|tally| u64::from(tally.whole)).sum();
                let missed: u64 =
                    collector.tallies.iter().map(|tally| u64::from(tally.missed)).sum();
                let seconds = start.elapsed().as_secs_f64();
                eprintln!("{seconds:5.1} s: {whole} came, {missed} missed before them");
            }
        }
        Ok(driver.join().map_err(|_| "the clients' thread panicked")??)
    })?;
    let took = start.elapsed();
    // For each client, and so for all.
    for (at, (tally, client)) in collector.tallies.iter().zip(&clients).enumerate() {
        let Tally { whole, missed, sent, .. } = *tally;
        if sent != Some(client.sent) || whole + missed != client.sent || missed < client.dropped {
            return Err(format!(
                "client {at} sent {}, of which {} were dropped; counted: {tally:?}",
                client.sent, client.dropped
            )
            .into());
        }
    }
    let sum = |of: fn(&Tally) -> u32| -> u64 {
        collector.tallies.iter().map(|tally| u64::from(of(tally))).sum()
    };
    let mut filled = 0;
    if options.verb == Kind::WriteRecord {
        for client in 0..options.clients {
            for number in 0..options.samples {
                let mut bytes = [0; SAMPLE_BYTES];
                collector.table.read(place(options, client, number), &mut bytes)?;
                filled += u64::from(read(&bytes) == Some((client, Word::Sample(number))));
            }
        }
    }
    let stats = collector.queue_pair.stats();
    Ok(Report {
        options: *options,
        took,
        sent: clients.iter().map(|client| u64::from(client.sent)).sum(),
        dropped: clients.iter().map(|client| u64::from(client.dropped)).sum(),
        whole: sum(|tally| tally.whole),
        missed: sum(|tally| tally.missed),
        told: sum(|tally| tally.told),
        knowable: sum(Tally::knowable),
        peers: stats.peers,
        unposted: stats.discards.no_buffer,
        filled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_are_exact(verb: Kind) {
        let allowed = descriptors(10_000 + OTHER_DESCRIPTORS) - OTHER_DESCRIPTORS;
        let clients = allowed.min(10_000) as u32;
        let options = Options {
            clients,
            samples: 70,
            verb,
            rate: 200_000,
            loss_per_million: 20_000,
            ..Options::default()
        };
        let report = run(&options).unwrap();
        println!("{report}");
        assert_eq!(report.whole + report.missed, u64::from(clients) * 70);
        assert_eq!(report.sent, u64::from(clients) * 70);
        assert!(report.whole > 0 && report.dropped > 0 && report.told > 0);
        assert_eq!(report.peers, clients as usize);
        assert_eq!(report.told, report.knowable);
        if verb == Kind::WriteRecord {
            assert_eq!(report.filled, report.whole);
        }
    }

    #[test]
    fn what_came_and_what_is_missed_is_all_that_was_sent() {
        // One after the other: together they would need twice as many descriptors.
        counts_are_exact(Kind::Send);
        counts_are_exact(Kind::WriteRecord);
    }

    #[test]
    fn options_are_read_and_wrong_ones_refused() {
        let parse = |text: &str| parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let options = parse("--clients 5 --verb write-record --loss 0.5").unwrap();
        assert_eq!((options.clients, options.verb), (5, Kind::WriteRecord));
        assert_eq!(options.loss_per_million, 500_000);
        for wrong in ["--clients", "--clients x", "--verb read", "--loss 1", "--clients 0", "-x 1"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
