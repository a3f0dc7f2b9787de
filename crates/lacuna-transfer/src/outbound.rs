//! Outgoing messages of one end: keeps several in flight and collects their completions. Without
//! other messages, it sends a keep-alive every two seconds, so that the peer can tell a slow disk
//! from a dead program.

use super::wire::BLOCK_BYTES;
use lacuna::{Connection, SendBuffer, SendError, SendHandle};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval of keep-alives: well within the shortest silence that counts as a break
/// (`send/retry.rs`).
const ALIVE_EVERY: Duration = Duration::from_secs(2);
/// Deadline of a message: practically none, as the path and the peer's disk take the time they
/// need. The connection notices a dead peer, and [`super::inbound::SILENCE_MAX`] a hung one.
const DEADLINE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Messages in flight. Data is bounded by its blocks already; this bounds answers to a sender that
/// does not read them.
const IN_FLIGHT_MAX: usize = 256;
/// How long a peer may take no messages at all.
const STALLED: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);
/// Span over which the rate is measured; messages are sized by it.
const RATE_SPAN: Duration = Duration::from_millis(250);
/// Messages per second on a slow path, where messages are smaller than a block: a break must not
/// cost a whole block, and progress must not stand still until one is through.
const MESSAGES_PER_S: u64 = 4;
/// Shortest and longest message to fill.
const FILL_BYTES: (u64, u64) = (128 << 10, BLOCK_BYTES as u64);
/// Length of messages before the rate is known.
const FILL_BYTES_FIRST: u64 = 1 << 20;

/// The outgoing half of a connection.
pub(crate) struct Outbound {
    connection: Connection,
    state: Mutex<State>,
    /// The keep-alive message.
    alive: Vec<u8>,
}

struct State {
    /// Sends in flight, with the file bytes in each.
    in_flight: VecDeque<(SendHandle, u64)>,
    /// File bytes that the peer has.
    delivered_bytes: u64,
    spoke: Instant,
    /// Start of the present rate measurement, and the bytes delivered by then; restarted when
    /// nothing was in flight.
    measured: (Instant, u64),
    /// Present length of messages to fill.
    fill_bytes: u64,
}

/// The peer does not take messages.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutboundError {
    #[error(transparent)]
    Write(#[from] SendError),
    #[error("the peer took no messages for {} s", STALLED.as_secs())]
    Stalled,
    #[error("stopped")]
    Stopped,
}

impl Outbound {
    pub(crate) fn new(connection: Connection, alive: Vec<u8>) -> Self {
        let now = Instant::now();
        let state = State {
            in_flight: VecDeque::new(),
            delivered_bytes: 0,
            spoke: now,
            measured: (now, 0),
            fill_bytes: FILL_BYTES_FIRST,
        };
        Self { connection, state: Mutex::new(state), alive }
    }

    /// Starts a message with `payload_bytes` of files.
    pub(crate) fn send(
        &self,
        message: SendBuffer,
        payload_bytes: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), OutboundError> {
        let since = Instant::now();
        let mut state = self.lock();
        loop {
            state.prune()?;
            if state.in_flight.len() < IN_FLIGHT_MAX {
                break;
            }
            drop(state);
            if stop() {
                return Err(OutboundError::Stopped);
            }
            if since.elapsed() > STALLED {
                return Err(OutboundError::Stalled);
            }
            std::thread::sleep(LOOK);
            state = self.lock();
        }
        let handle =
            self.connection.start_send_within(message, None, DEADLINE).map_err(SendError::Post)?;
        let now = Instant::now();
        if state.in_flight.is_empty() {
            state.measured = (now, state.delivered_bytes);
        }
        state.in_flight.push_back((handle, payload_bytes));
        state.spoke = now;
        Ok(())
    }

    /// Collects completions, and sends a keep-alive if it is due. A failure is reported by the next
    /// send.
    pub(crate) fn tick(&self) {
        let mut state = self.lock();
        let pruned = state.prune();
        if pruned.is_ok() && state.spoke.elapsed() >= ALIVE_EVERY && state.in_flight.is_empty() {
            let alive = self.alive.clone();
            if let Ok(handle) = self.connection.start_send_within(alive, None, DEADLINE) {
                state.in_flight.push_back((handle, 0));
            }
            state.spoke = Instant::now();
        }
    }

    /// How long the next message may be, by the path's rate.
    pub(crate) fn fill_bytes(&self) -> usize {
        self.lock().fill_bytes as usize
    }

    /// File bytes that the peer has.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.lock().delivered_bytes
    }

    /// Waits until the peer has everything; `false` if it does not within `timeout`.
    pub(crate) fn drain(&self, timeout: Duration) -> bool {
        self.connection.flush(timeout) && self.lock().prune().is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn prune(&mut self) -> Result<(), SendError> {
        while let Some((handle, bytes)) = self.in_flight.front() {
            match handle.status().outcome {
                None => break,
                Some(Err(failure)) => return Err(failure.into()),
                Some(Ok(())) => self.delivered_bytes += bytes,
            }
            self.in_flight.pop_front();
        }
        let (since, before) = self.measured;
        let span = since.elapsed();
        if span >= RATE_SPAN && self.delivered_bytes > before {
            let bytes = self.delivered_bytes - before;
            let per_s = bytes as f64 / span.as_secs_f64();
            self.fill_bytes = (per_s as u64 / MESSAGES_PER_S).clamp(FILL_BYTES.0, FILL_BYTES.1);
            self.measured = (Instant::now(), self.delivered_bytes);
        }
        Ok(())
    }
}
