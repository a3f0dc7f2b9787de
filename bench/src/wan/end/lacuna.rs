//! Lacuna, through its library and with its defaults: packet size found on the path, chunks,
//! windows and buffers as they come. A message is a write into a receive that is posted, and is
//! there when the write is acknowledged.

use super::{Line, Message, Order, Program, Reuse, Task, crowd, now_ns, say, thread, watch};
use anyhow::{Context as _, Result, bail};
use lacuna::trust::{Token, Trust};
use lacuna::{
    ConnectError, Connection, ConnectionConfig, Context, ContextConfig, ControllerKind, Listener,
    Mode, RecvHandle, ScopedIp, Security, SendBuffer,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A bulk transfer is messages of this size, …
const BULK_BYTES: usize = 8 << 20;
/// … so many on the way, and what the path has in flight four times: 16 at 1 Gbit/s over
/// 250 ms. No more than that: memory that nobody has used yet has to be cleared first, and a
/// run at 100 Mbit/s takes 10 s to fill 16 of them once.
const BULK_AHEAD: usize = 2;
const BULK_PATHS: u64 = 4;
/// Receives posted on a connection that stays.
const AHEAD: usize = 2;
/// Longer than any run.
const PATIENCE: Duration = Duration::from_secs(3600);

fn config(order: &Order, mode: &str, cc: &str) -> Result<ConnectionConfig> {
    let controller = match cc {
        "default" => None,
        name => Some(name.parse()?),
    };
    let is_told = controller == Some(ControllerKind::Fixed);
    Ok(ConnectionConfig {
        mode: mode.parse::<Mode>()?,
        controller,
        rate_bits_per_s: is_told.then_some(order.rate_bits_per_s),
        deadline: PATIENCE,
        ..ConnectionConfig::default()
    })
}

fn context(order: &Order, bind: ScopedIp) -> Result<Context> {
    let security = match order.program {
        Program::Lacuna { sealed: true, .. } => {
            Security::Keys(Trust::of_token(&order.identity.token.parse::<Token>()?))
        }
        // Its hosts are alone on their network.
        _ => Security::Insecure,
    };
    Ok(Context::new(ContextConfig { bind, security, ..ContextConfig::default() })?)
}

pub(super) fn serve(order: &Order, mode: &str, cc: &str) -> Result<()> {
    let context = context(order, order.address.into())?;
    let listener = Listener::bind(&context, order.address, config(order, mode, cc)?)?;
    say(&Line::Listening)?;
    if let Task::Bulk { seconds } = order.task {
        let mut bulk = Bulk::new(listener.accept()?, bulk_ahead(order))?;
        return watch(seconds, || bulk.received());
    }
    let listener = Arc::new(listener);
    let used = Arc::new(Used::default());
    let bytes = order.task.message_bytes();
    let ahead = match order.task {
        Task::Messages { connection: Reuse::Kept, .. } => AHEAD,
        _ => 1,
    };
    loop {
        let incoming = match listener.accept_incoming() {
            Err(error @ ConnectError::Accept { .. }) => return Err(error.into()),
            Err(error) => {
                eprintln!("{error}");
                continue;
            }
            Ok(incoming) => incoming,
        };
        let (listener, used) = (listener.clone(), used.clone());
        thread(move || {
            let taken = listener.agree(incoming).map_err(Into::into);
            if let Err(error) = taken.and_then(|it| take(&it, bytes, ahead, &used)) {
                eprintln!("{error:#}");
            }
        })?;
    }
}

fn bulk_ahead(order: &Order) -> usize {
    BULK_AHEAD + (BULK_PATHS * order.bdp_bytes / BULK_BYTES as u64) as usize
}

/// The receiving end of a bulk transfer.
struct Bulk {
    connection: Connection,
    posted: VecDeque<RecvHandle>,
    complete_bytes: u64,
}

impl Bulk {
    fn new(connection: Connection, ahead: usize) -> Result<Self> {
        let posted = (0..ahead).map(|_| connection.post_recv(vec![0; BULK_BYTES]));
        let posted = posted.collect::<Result<_, _>>()?;
        Ok(Self { connection, posted, complete_bytes: 0 })
    }

    /// Posts anew what is complete; bytes that have come.
    fn received(&mut self) -> Result<u64> {
        while self.posted.front().is_some_and(RecvHandle::is_complete)
            && let Some(front) = self.posted.pop_front()
        {
            let buffer = front.complete().buffer;
            self.complete_bytes += BULK_BYTES as u64;
            self.posted.push_back(self.connection.post_recv(buffer)?);
        }
        if let Some(failure) = self.connection.failure() {
            bail!("{failure}");
        }
        Ok(self.complete_bytes + self.posted.iter().map(arrived_bytes).sum::<u64>())
    }
}

/// What is there of a message that may still be on its way.
fn arrived_bytes(message: &RecvHandle) -> u64 {
    let chunk_bytes = message.geometry().chunk_bytes();
    (u64::from(message.chunks_done()) * chunk_bytes).min(BULK_BYTES as u64)
}

/// Buffers of connections that have ended. Whoever takes message after message takes them into the
/// same memory, as the peers read theirs through one buffer; new memory has to be cleared first, and
/// that of 128 MiB costs a hundredth of its time on a link of 1 Gbit/s.
#[derive(Default)]
struct Used(Mutex<Vec<Vec<u8>>>);

impl Used {
    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.pop().unwrap_or_else(|| vec![0; bytes])
    }

    fn put(&self, buffer: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

fn take(connection: &Connection, bytes: usize, ahead: usize, used: &Used) -> Result<()> {
    let mut posted = VecDeque::new();
    for _ in 0..ahead {
        posted.push_back(connection.post_recv(used.take(bytes))?);
    }
    while let Some(front) = posted.pop_front() {
        match front.wait(PATIENCE) {
            Err(error) if error.is_closed() => return Ok(()),
            result => result?,
        }
        let buffer = front.complete().buffer;
        match ahead {
            1 => used.put(buffer),
            _ => posted.push_back(connection.post_recv(buffer)?),
        }
    }
    // The client closes it; until then its last packets may need an answer.
    connection.wait_closed(PATIENCE);
    Ok(())
}

pub(super) fn send(order: &Order, mode: &str, cc: &str) -> Result<()> {
    let unspecified = match order.address {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => ScopedIp::ANY,
    };
    let context = context(order, unspecified)?;
    let config = config(order, mode, cc)?;
    let address = order.address;
    match order.task {
        Task::Bulk { .. } => {
            // Memory that nobody has used yet is cleared first: before the clock starts.
            let data = Arc::new(vec![0x5A; BULK_BYTES]);
            let connection = Connection::connect(&context, address, config)?;
            send_bulk(&connection, &data, bulk_ahead(order))
        }
        Task::Messages { count, connection: reuse, .. } => {
            let data = vec![0x5A; order.task.message_bytes()];
            let mut kept = None;
            for _ in 0..count {
                let began_ns = now_ns();
                let connection = match kept.take() {
                    Some(connection) => connection,
                    None => connect(&context, address, config)?,
                };
                say(&Line::Message(write(&connection, &data, began_ns)?))?;
                kept = (reuse == Reuse::Kept).then_some(connection);
            }
            Ok(())
        }
        Task::Crowd { connections, .. } => {
            let data = Arc::new(vec![0x5A; order.task.message_bytes()]);
            crowd(connections, move || {
                let began_ns = now_ns();
                let connection = connect(&context, address, config)?;
                write(&connection, &data, began_ns)
            })
        }
    }
}

fn send_bulk(connection: &Connection, data: &Arc<Vec<u8>>, ahead: usize) -> Result<()> {
    let mut under_way = VecDeque::new();
    loop {
        while under_way.len() < ahead {
            under_way.push_back(connection.start_send(SendBuffer::new(data.clone()), None)?);
        }
        under_way.pop_front().context("it was there")?.wait()?;
    }
}

fn connect(context: &Context, address: SocketAddr, config: ConnectionConfig) -> Result<Connection> {
    let connection = Connection::connect(context, address, config)?;
    connection.wait_clear_to_send(PATIENCE)?;
    Ok(connection)
}

fn write(connection: &Connection, data: &[u8], connecting_ns: u64) -> Result<Message> {
    let began_ns = now_ns();
    connection.send(data)?;
    let took_ns = now_ns() - began_ns;
    Ok(Message { began_ns, setup_ns: began_ns - connecting_ns, took_ns })
}
