//! The verbs beside each other over loopback: bulk sends, writes and reads, and the latency of a small write
//! with an immediate beside that of a small send.
//!
//! Both ends are threads of this process, each on a core and without further threads, over a connection for
//! what is large and one for what is small, which live through all rounds; the first round is not counted. In a round all verbs take their turn, in
//! turned-around order from round to round, and a ratio is that of two verbs of the same round. Bulk: as many
//! messages in flight and as much memory for each verb, waited for on handles. Latency: one message at a time
//! back and forth, both ends poll; half of the round.

use crate::pin;
use crate::run::{Spread, spread};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use lacuna::{
    Connection, ConnectionConfig, Context, ContextConfig, Listener, Progress, RecvHandle, Region,
    RegionOptions, Rights, SendBuffer, Target,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of both queue pairs.
const MODE: &str = "sr";
const BULK_BYTES: usize = 8 << 20;
/// Bulk messages in flight.
const IN_FLIGHT: usize = 4;
const SMALL_BYTES: usize = 64;
/// Receives of small messages posted ahead, so that a send never waits for one.
const AHEAD: usize = 64;
/// Ends what hangs.
const LONG: Duration = Duration::from_secs(20);
/// How often an end that only serves looks whether it is over.
const LOOK: Duration = Duration::from_millis(1);

/// What takes turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Send,
    Write,
    Read,
    SmallSend,
    /// A send with an immediate. That takes eight packets, each of which has room for a part of it.
    ToldSend,
    SmallWrite,
}

impl Turn {
    const ALL: [Self; 6] =
        [Self::Send, Self::Write, Self::Read, Self::SmallSend, Self::ToldSend, Self::SmallWrite];

    fn name(self) -> &'static str {
        match self {
            Self::Send => "send, 8 MiB",
            Self::Write => "write, 8 MiB",
            Self::Read => "read, 8 MiB",
            Self::SmallSend => "send, 64 bytes",
            Self::ToldSend => "send with immediate, 64 bytes",
            Self::SmallWrite => "write with a small immediate, 64 bytes",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Send | Self::Write | Self::Read => "Gbit/s",
            Self::SmallSend | Self::ToldSend | Self::SmallWrite => "us one way",
        }
    }
}

/// One verb beside another.
struct Pair {
    ours: Turn,
    theirs: Turn,
    /// The goal: rates are to be at least, latencies at most so many times the other's.
    goal: Option<f64>,
}

const PAIRS: [Pair; 4] = [
    Pair { ours: Turn::Write, theirs: Turn::Send, goal: Some(0.95) },
    Pair { ours: Turn::Read, theirs: Turn::Write, goal: Some(0.93) },
    Pair { ours: Turn::SmallWrite, theirs: Turn::SmallSend, goal: Some(1.1) },
    Pair { ours: Turn::SmallWrite, theirs: Turn::ToldSend, goal: None },
];

/// How much a turn does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Bulk messages of a turn.
    pub(crate) messages: usize,
    /// Round trips of a turn.
    pub(crate) trips: usize,
}

impl Effort {
    pub(crate) const FULL: Self = Self { messages: 64, trips: 4000 };
}

/// A verb's line.
#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    unit: &'static str,
    median: f64,
    least: f64,
    most: f64,
}

/// A pair's line.
#[derive(Debug, Serialize)]
struct Ratio {
    ratio: String,
    median: f64,
    least: f64,
    most: f64,
    goal: Option<f64>,
    is_met: Option<bool>,
}

/// Measures all verbs `rounds` times; prints a table.
pub(crate) fn run(rounds: u32, json: bool, effort: Effort) -> Result<()> {
    ensure!(rounds > 0, "--rounds must be 1 or more");
    let cores = pin::allowed()?;
    // On one core the ends take turns, and the figures say little.
    let cores = [cores[0], *cores.get(1).unwrap_or(&cores[0])];
    pin::this_thread(cores[0])?;
    let mut ends = Ends::new(cores[1])?;
    let mut values: [Vec<f64>; 6] = Default::default();
    for round in 0..=rounds {
        let mut turns: Vec<usize> = (0..Turn::ALL.len()).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            let value = ends.take(Turn::ALL[turn], effort);
            let value = value.with_context(|| Turn::ALL[turn].name())?;
            if round > 0 {
                values[turn].push(value);
            }
        }
    }
    if !json {
        println!("mode {MODE}, loopback, medians of {rounds} rounds [least-most]");
    }
    for (turn, values) in Turn::ALL.into_iter().zip(&values) {
        let Spread { median, least, most } = spread(values.clone()).context("no rounds")?;
        let line = Line { what: turn.name(), unit: turn.unit(), median, least, most };
        if json {
            println!("{}", serde_json::to_string(&line)?);
        } else {
            let (what, unit) = (line.what, line.unit);
            println!("{what:<32} {median:>8.2} {unit} [{least:.2}-{most:.2}]");
        }
    }
    for pair in &PAIRS {
        let of = |turn: Turn| Turn::ALL.iter().position(|other| *other == turn);
        let (ours, theirs) = of(pair.ours).zip(of(pair.theirs)).context("all take turns")?;
        let ratios = values[ours].iter().zip(&values[theirs]).map(|(ours, theirs)| ours / theirs);
        let Spread { median, least, most } = spread(ratios.collect()).context("no rounds")?;
        let is_latency = pair.ours.unit() != Turn::Send.unit();
        let is_met = |goal: f64| if is_latency { median <= goal } else { median >= goal };
        let is_met = pair.goal.map(is_met);
        let ratio = format!("{} / {}", pair.ours.name(), pair.theirs.name());
        if json {
            let ratio = Ratio { ratio, median, least, most, goal: pair.goal, is_met };
            println!("{}", serde_json::to_string(&ratio)?);
            continue;
        }
        let sign = if is_latency { "<=" } else { ">=" };
        let met = if is_met == Some(true) { "met" } else { "not met" };
        let goal = pair.goal.map(|goal| format!(", goal {sign} {goal}: {met}"));
        let goal = goal.unwrap_or_default();
        println!("{ratio}: {median:.3} [{least:.3}-{most:.3}]{goal}");
    }
    Ok(())
}

/// One end.
struct End {
    context: Context,
    bulk: Connection,
    small: Connection,
    /// Receives of large messages, and of small ones; always posted.
    bulk_receives: Receives,
    small_receives: Receives,
    /// Written to by the other end, or by this end's reads.
    sink: Region,
    /// Sent and written from.
    buffers: Vec<Arc<Vec<u8>>>,
    small_buffer: Arc<Vec<u8>>,
}

/// Both ends: the active one on this thread, and the other on a thread of its own while a turn lasts.
struct Ends {
    here: End,
    there: End,
    /// Read by the active end.
    source: Region,
    core_there: usize,
}

impl Ends {
    fn new(core_there: usize) -> Result<Self> {
        let context = || {
            Context::new(ContextConfig {
                bind: Ipv4Addr::LOCALHOST.into(),
                progress: Progress::Manual,
                ..ContextConfig::default()
            })
        };
        let (here, there) = (context()?, context()?);
        let (bulk, small) = (connected(&here, &there)?, connected(&here, &there)?);
        let options = RegionOptions { rights: Rights::REMOTE_READ, ..RegionOptions::default() };
        let source = there.register(vec![0xA5; IN_FLIGHT * BULK_BYTES], options)?;
        let (here, there) = (End::new(here, bulk.0, small.0)?, End::new(there, bulk.1, small.1)?);
        Ok(Self { here, there, source, core_there })
    }

    /// A turn's rate in Gbit/s, or its latency one way in microseconds.
    fn take(&mut self, turn: Turn, effort: Effort) -> Result<f64> {
        let Effort { messages, trips } = effort;
        let Self { here, there, source, core_there } = self;
        let core = *core_there;
        match turn {
            Turn::Send => {
                let serve = |_: &AtomicBool| there.take_bulk(messages);
                gbit_per_s(messages, both(core, || here.send_bulk(messages), serve)?)
            }
            Turn::Write => {
                let to = there.sink.key();
                let run = || here.write_bulk(to, messages);
                gbit_per_s(messages, both(core, run, |is_over| there.serve(is_over))?)
            }
            Turn::Read => {
                let run = || here.read_bulk(source.key(), messages);
                gbit_per_s(messages, both(core, run, |is_over| there.serve(is_over))?)
            }
            Turn::SmallSend | Turn::ToldSend => {
                let immediate = (turn == Turn::ToldSend).then_some(7);
                let run = || here.ping_sends(immediate, trips);
                one_way_us(&both(core, run, |is_over| there.pong_sends(immediate, is_over))?)
            }
            Turn::SmallWrite => {
                let (to, back) = (there.sink.key(), here.sink.key());
                let run = || here.ping_writes(to, trips);
                one_way_us(&both(core, run, |is_over| there.pong_writes(back, is_over))?)
            }
        }
    }
}

/// Runs one thing here and the other on another core, until the first is over.
fn both<R>(
    core: usize,
    run: impl FnOnce() -> Result<R>,
    serve: impl FnOnce(&AtomicBool) -> Result<()> + Send,
) -> Result<R> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            pin::this_thread(core)?;
            serve(&is_over)
        });
        let result = run();
        is_over.store(true, Ordering::Relaxed);
        let served = serving.join().map_err(|_| anyhow!("the other end panicked"))?;
        let result = result?;
        served.map(|()| result)
    })
}

/// A connection with both queue pairs: the active end's and the other's.
fn connected(here: &Context, there: &Context) -> Result<(Connection, Connection)> {
    let config = ConnectionConfig {
        mode: MODE.parse()?,
        one_sided: true,
        deadline: LONG,
        ..ConnectionConfig::default()
    };
    let listener = Listener::bind(there, (Ipv4Addr::LOCALHOST, 0).into(), config)?;
    let address = listener.local_addr();
    let is_connected = AtomicBool::new(false);
    let (connected, accepted) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let accepted = listener.accept();
            // The other end probes the path.
            while !is_connected.load(Ordering::Relaxed) {
                there.progress();
            }
            accepted
        });
        let connected = Connection::connect(here, address, config);
        is_connected.store(true, Ordering::Relaxed);
        (connected, accepting.join())
    });
    let accepted = accepted.map_err(|_| anyhow!("the other end panicked"))?;
    Ok((connected?, accepted?))
}

impl End {
    fn new(context: Context, bulk: Connection, small: Connection) -> Result<Self> {
        Ok(Self {
            sink: context.register(vec![0; IN_FLIGHT * BULK_BYTES], RegionOptions::default())?,
            bulk_receives: Receives::post(&bulk, IN_FLIGHT, BULK_BYTES)?,
            small_receives: Receives::post(&small, AHEAD, SMALL_BYTES)?,
            buffers: (0..IN_FLIGHT).map(|_| Arc::new(vec![0x5A; BULK_BYTES])).collect(),
            small_buffer: Arc::new(vec![0x5A; SMALL_BYTES]),
            context,
            bulk,
            small,
        })
    }

    fn send_bulk(&self, messages: usize) -> Result<Duration> {
        let begun = Instant::now();
        let mut in_flight = VecDeque::new();
        for number in 0..messages + IN_FLIGHT {
            if number >= IN_FLIGHT {
                let send: lacuna::SendHandle = in_flight.pop_front().context("in flight")?;
                ensure!(send.wait_finished(LONG), "a send does not end");
            }
            if number < messages {
                let data = SendBuffer::new(self.buffers[number % IN_FLIGHT].clone());
                in_flight.push_back(self.bulk.start_send(data, None)?);
            }
        }
        Ok(begun.elapsed())
    }

    fn write_bulk(&self, key: u32, messages: usize) -> Result<Duration> {
        let begun = Instant::now();
        let mut in_flight = VecDeque::new();
        for number in 0..messages + IN_FLIGHT {
            if number >= IN_FLIGHT {
                let write: lacuna::SendHandle = in_flight.pop_front().context("in flight")?;
                ensure!(write.wait_finished(LONG), "a write does not end");
            }
            if number < messages {
                let place = number % IN_FLIGHT;
                let to = Target { key, address: (place * BULK_BYTES) as u64 };
                let data = SendBuffer::new(self.buffers[place].clone());
                in_flight.push_back(self.bulk.start_write_to(to, data, None)?);
            }
        }
        Ok(begun.elapsed())
    }

    fn read_bulk(&self, key: u32, messages: usize) -> Result<Duration> {
        let begun = Instant::now();
        let mut in_flight = VecDeque::new();
        for number in 0..messages + IN_FLIGHT {
            if number >= IN_FLIGHT {
                let mut read: lacuna::ReadHandle<'_> =
                    in_flight.pop_front().context("in flight")?;
                ensure!(read.wait(LONG)?, "a read does not end");
            }
            if number < messages {
                let address = (number % IN_FLIGHT * BULK_BYTES) as u64;
                let from = Target { key, address };
                let (len, into) = (BULK_BYTES as u64, &self.sink);
                in_flight.push_back(self.bulk.start_read_into(from, len, into, address, LONG)?);
            }
        }
        Ok(begun.elapsed())
    }

    /// Makes progress for writes and reads of the other end; waits as one that waits for messages does.
    fn serve(&self, is_over: &AtomicBool) -> Result<()> {
        while !is_over.load(Ordering::Relaxed) {
            ensure!(self.bulk.wait_written(LOOK).is_none(), "nothing is to be told");
            check(&self.bulk)?;
        }
        Ok(())
    }

    /// Takes so many large messages.
    fn take_bulk(&mut self, messages: usize) -> Result<()> {
        for _ in 0..messages {
            self.bulk_receives.front()?.wait(LONG)?;
            self.bulk_receives.renew(&self.bulk)?;
        }
        // The other end waits for what this one says of the last.
        self.bulk.wait_written(LOOK);
        Ok(())
    }

    fn ping_sends(&mut self, immediate: Option<u32>, trips: usize) -> Result<Vec<Duration>> {
        let is_over = AtomicBool::new(false);
        self.small.wait_clear_to_send(LONG)?;
        let mut times = Vec::with_capacity(trips);
        for _ in 0..trips {
            let sent = Instant::now();
            self.send_small(immediate)?;
            ensure!(self.await_message(immediate, &is_over)?, "nothing came");
            times.push(sent.elapsed());
            self.small_receives.renew(&self.small)?;
        }
        Ok(times)
    }

    fn pong_sends(&mut self, immediate: Option<u32>, is_over: &AtomicBool) -> Result<()> {
        while self.await_message(immediate, is_over)? {
            self.send_small(immediate)?;
            self.small_receives.renew(&self.small)?;
        }
        Ok(())
    }

    fn send_small(&self, immediate: Option<u32>) -> Result<()> {
        self.small.start_send(SendBuffer::new(self.small_buffer.clone()), immediate)?;
        self.context.progress();
        Ok(())
    }

    /// Polls until the next message is here; `false` when it is over.
    fn await_message(&self, immediate: Option<u32>, is_over: &AtomicBool) -> Result<bool> {
        let front = self.small_receives.front()?;
        while !(front.has_chunk(0) && (immediate.is_none() || front.immediate() == immediate)) {
            self.context.progress();
            if is_over.load(Ordering::Relaxed) {
                return Ok(false);
            }
            check(&self.small)?;
        }
        Ok(true)
    }

    fn ping_writes(&self, key: u32, trips: usize) -> Result<Vec<Duration>> {
        let is_over = AtomicBool::new(false);
        let mut times = Vec::with_capacity(trips);
        for number in 0..trips {
            // As the number of a buffer, which rides on the packet.
            let number = number as u32 % 128;
            let sent = Instant::now();
            self.write_small(key, number)?;
            ensure!(self.await_written(&is_over)? == Some(number), "another one came");
            times.push(sent.elapsed());
        }
        Ok(times)
    }

    fn pong_writes(&self, key: u32, is_over: &AtomicBool) -> Result<()> {
        while let Some(number) = self.await_written(is_over)? {
            self.write_small(key, number)?;
        }
        Ok(())
    }

    fn write_small(&self, key: u32, number: u32) -> Result<()> {
        let data = SendBuffer::new(self.small_buffer.clone());
        self.small.start_write_to(Target { key, address: 0 }, data, Some(number))?;
        self.context.progress();
        Ok(())
    }

    /// Polls until a write with an immediate was told of; `None` when it is over.
    fn await_written(&self, is_over: &AtomicBool) -> Result<Option<u32>> {
        loop {
            self.context.progress();
            if let Some(written) = self.small.wait_written(Duration::ZERO) {
                return Ok(Some(written.immediate.context("all of it came")?));
            }
            if is_over.load(Ordering::Relaxed) {
                return Ok(None);
            }
            check(&self.small)?;
        }
    }
}

fn check(connection: &Connection) -> Result<()> {
    match connection.failure() {
        None => Ok(()),
        Some(failure) => bail!("the connection has ended: {failure}"),
    }
}

/// Receives that are always posted.
struct Receives {
    posted: VecDeque<RecvHandle>,
}

impl Receives {
    fn post(connection: &Connection, count: usize, size: usize) -> Result<Self> {
        let posted = (0..count).map(|_| connection.post_recv(vec![0; size]));
        Ok(Self { posted: posted.collect::<Result<_, _>>()? })
    }

    /// The one that the next message lands in.
    fn front(&self) -> Result<&RecvHandle> {
        self.posted.front().context("always some posted")
    }

    /// Takes the message that is here, and posts its buffer anew.
    fn renew(&mut self, connection: &Connection) -> Result<()> {
        let done = self.posted.pop_front().context("one was awaited")?.complete();
        self.posted.push_back(connection.post_recv(done.buffer)?);
        Ok(())
    }
}

fn gbit_per_s(messages: usize, took: Duration) -> Result<f64> {
    Ok((messages * BULK_BYTES * 8) as f64 / took.as_secs_f64() / 1e9)
}

/// Half of the median round trip.
fn one_way_us(trips: &[Duration]) -> Result<f64> {
    let trips = trips.iter().map(|trip| trip.as_secs_f64() * 1e6 / 2.0).collect();
    Ok(spread(trips).context("no round trips")?.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_verbs_take_their_turn() {
        run(1, true, Effort { messages: 5, trips: 10 }).unwrap();
    }
}
