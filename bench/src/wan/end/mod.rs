//! The ends: what runs in the hosts. A server takes what a client sends, in the task of the cell;
//! Lacuna, TCP and quinn have one file of the same shape each, and [`piped`] gives programs that
//! read and write standard streams that shape.
//!
//! An end gets its [`Order`] as one argument and says what it found in lines of JSON ([`Line`]), as
//! soon as it knows, so that what a stopped end has said counts. Both ends and the race are on one
//! machine: their times are of one clock ([`now_ns`]).
//!
//! - Of a bulk transfer the server tells, since what arrived is what counts: it samples the bytes
//!   that the application has, for the time of the task, then ends; that ends the run.
//! - Of messages the client tells: from its call until it knows that all has arrived. For TCP and
//!   QUIC that is the peer's answer of one byte, for Lacuna the acknowledged write. What it took to
//!   connect is told apart.

mod lacuna;
mod piped;
mod quic;
mod tcp;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// How often a server looks at what has arrived, in the first part of a run and after:
/// often enough to see a round trip of 1 ms in a start, and seldom enough to be no load.
const SAMPLE_FIRST: Duration = Duration::from_millis(1);
const FIRST_NS: u64 = 200_000_000;
const SAMPLE: Duration = Duration::from_millis(10);
/// Of a thread per connection: a thousand of them must not take gigabytes.
const STACK_BYTES: usize = 256 << 10;
/// What a bulk transfer writes at a time.
const WRITE_BYTES: usize = 1 << 20;

/// What an end is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) side: Side,
    /// Where the server listens, as this end reaches it.
    pub(crate) address: SocketAddr,
    pub(crate) program: Program,
    pub(crate) task: Task,
    /// The link's, for those who may be told.
    pub(crate) rate_bits_per_s: u64,
    /// That times the path's round-trip time.
    pub(crate) bdp_bytes: u64,
    /// The server's certificate and key, DER, for those who encrypt.
    pub(crate) identity: Identity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    Server,
    Client,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
    /// The secret of both ends, for those who have one.
    pub(crate) token: String,
}

/// Who moves the bytes, and with which settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Program {
    Lacuna {
        mode: String,
        /// `default`, or a controller's name; `fixed` is told the link's rate.
        #[serde(default = "default_controller")]
        cc: String,
        /// Whether packets are encrypted.
        #[serde(default)]
        sealed: bool,
    },
    Tcp {
        cc: String,
    },
    Quinn {
        cc: String,
        /// Of streams, connection and sender alike; quinn's defaults without.
        window_mib: Option<u32>,
        /// The same in products of the path's rate and round-trip time, for who knows the path.
        window_bdp: Option<f64>,
    },
    /// A client that reads what to send from its standard input, and a server that writes what came
    /// to its standard output. In the words, `{host}` and `{port}` are the server's.
    Piped {
        server: Vec<String>,
        client: Vec<String>,
    },
}

fn default_controller() -> String {
    "default".to_owned()
}

/// What is to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "lowercase")]
pub(crate) enum Task {
    /// As much as goes.
    Bulk { seconds: f64 },
    /// One message after the other.
    Messages { bytes: u64, count: u32, connection: Reuse },
    /// A message on each of so many connections, all at once.
    Crowd { bytes: u64, connections: u32 },
}

impl Task {
    /// Bytes of a message, where there are messages.
    fn message_bytes(self) -> usize {
        match self {
            Self::Bulk { .. } => WRITE_BYTES,
            Self::Messages { bytes, .. } | Self::Crowd { bytes, .. } => bytes as usize,
        }
    }
}

/// On which connection a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reuse {
    /// Each on its own. From the second on the path is known, to those who remember.
    Fresh,
    /// All on one that stays.
    Kept,
}

/// What an end says, a line each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Line {
    /// A server that clients may connect to.
    Listening,
    /// A client's message is there.
    Message(Message),
    /// All that a server had, over time: [`now_ns`] and bytes. The first is the client's arrival.
    Arrived(Vec<(u64, u64)>),
}

/// One message that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// When the client called.
    pub(crate) began_ns: u64,
    /// What connecting took before that, 0 on a connection that was there.
    pub(crate) setup_ns: u64,
    /// From the call until the client knew.
    pub(crate) took_ns: u64,
}

/// Nanoseconds of the machine's monotonic clock, the same in all processes.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Runs an end.
pub(crate) fn run(order: &str) -> Result<()> {
    let order: Order = serde_json::from_str(order).context("the order")?;
    match (&order.program, order.side) {
        (Program::Lacuna { mode, cc, .. }, Side::Server) => lacuna::serve(&order, mode, cc),
        (Program::Lacuna { mode, cc, .. }, Side::Client) => lacuna::send(&order, mode, cc),
        (Program::Tcp { cc }, Side::Server) => tcp::serve(&order, cc),
        (Program::Tcp { cc }, Side::Client) => tcp::send(&order, cc),
        (Program::Quinn { cc, .. }, Side::Server) => quic::serve(&order, cc, window(&order)?),
        (Program::Quinn { cc, .. }, Side::Client) => quic::send(&order, cc, window(&order)?),
        (Program::Piped { server, .. }, Side::Server) => piped::serve(&order, server),
        (Program::Piped { client, .. }, Side::Client) => piped::send(&order, client),
    }
}

/// The window that an order asks for, in bytes.
fn window(order: &Order) -> Result<Option<u32>> {
    let Program::Quinn { window_mib, window_bdp, .. } = &order.program else { return Ok(None) };
    let of_path = window_bdp.map(|products| (order.bdp_bytes as f64 * products) as u64);
    let bytes = of_path.or(window_mib.map(|mib| u64::from(mib) << 20));
    bytes.map(u32::try_from).transpose().context("a window of more than 4 GiB")
}

/// Says something to the race.
fn say(line: &Line) -> Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Watches what arrives for the time of a bulk transfer, and tells.
fn watch(seconds: f64, mut received: impl FnMut() -> Result<u64>) -> Result<()> {
    let began_ns = now_ns();
    let end_ns = began_ns + (seconds * 1e9) as u64;
    let mut samples = vec![(began_ns, 0)];
    loop {
        let is_first = now_ns() < began_ns + FIRST_NS;
        std::thread::sleep(if is_first { SAMPLE_FIRST } else { SAMPLE });
        let (bytes, at_ns) = (received()?, now_ns());
        if at_ns >= end_ns {
            samples.push((at_ns, bytes));
            return say(&Line::Arrived(samples));
        }
        if samples.last().is_some_and(|(_, before)| *before != bytes) {
            samples.push((at_ns, bytes));
        }
    }
}

/// Starts a thread with a small stack.
fn thread(work: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    Ok(std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work)?)
}

/// Runs the client's part of a crowd: a thread for each connection, all at once.
fn crowd(
    connections: u32,
    one: impl Fn() -> Result<Message> + Clone + Send + 'static,
) -> Result<()> {
    let threads = (0..connections).map(|_| {
        let one = one.clone();
        thread(move || match one() {
            Ok(message) => drop(say(&Line::Message(message))),
            Err(error) => eprintln!("{error:#}"),
        })
    });
    for thread in threads.collect::<Result<Vec<_>>>()? {
        let _ = thread.join();
    }
    Ok(())
}
