//! Outgoing messages of one end: several are in flight, and the end of each is noticed. When there is nothing
//! to send, a keep-alive goes out every two seconds, so that the peer can tell a slow disk from a dead
//! program.

use super::wire::BLOCK_BYTES;
use lacuna::{Connection, SendBuffer, SendError, SendHandle};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An end that has said nothing for this long says that it lives: well within
/// the shortest silence that counts as a break (`send/patience.rs`).
const ALIVE_EVERY: Duration = Duration::from_secs(2);
/// A message may take as long as the path and the peer's disk need; that the
/// peer is gone is noticed by the connection, and that its program hangs by
/// its silence ([`super::inbound::PATIENCE`]).
const DEADLINE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Messages that may be unfinished. Data is bounded by its blocks; this bounds
/// answers to a sender that does not take them.
const IN_FLIGHT_MAX: usize = 256;
/// How long to wait for a peer that takes no messages at all.
const STALLED: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);
/// Span over which the rate is measured that messages are sized by.
const RATE_SPAN: Duration = Duration::from_millis(250);
/// A message takes the path about a quarter of a second, if its size allows:
/// on a slow path a break should not cost a whole block, nor progress stand
/// still until one is through.
const MESSAGES_PER_S: u64 = 4;
/// Shortest and longest messages to fill.
const FILL_BYTES: (u64, u64) = (128 << 10, BLOCK_BYTES as u64);
/// Before anything is known of the path.
const FILL_BYTES_FIRST: u64 = 1 << 20;

/// The outgoing half of a connection.
pub(crate) struct Lane {
    connection: Connection,
    state: Mutex<State>,
    /// What is said to show that this end lives.
    alive: Vec<u8>,
}

struct State {
    /// Sends not known to have ended, with the bytes of files in each.
    in_flight: VecDeque<(SendHandle, u64)>,
    /// Bytes of files that the peer has.
    delivered_bytes: u64,
    spoke: Instant,
    /// What was delivered at a time since when the lane was never empty.
    measured: (Instant, u64),
    /// Bytes to fill a message with.
    fill_bytes: u64,
}

/// The peer did not take a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaneError {
    #[error(transparent)]
    Write(#[from] SendError),
    #[error("the peer took no messages for {} s", STALLED.as_secs())]
    Stalled,
    #[error("stopped")]
    Stopped,
}

impl Lane {
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

    /// Starts a message that carries `payload_bytes` of files.
    pub(crate) fn send(
        &self,
        message: SendBuffer,
        payload_bytes: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), LaneError> {
        let since = Instant::now();
        let mut state = self.lock();
        loop {
            state.prune()?;
            if state.in_flight.len() < IN_FLIGHT_MAX {
                break;
            }
            drop(state);
            if stop() {
                return Err(LaneError::Stopped);
            }
            if since.elapsed() > STALLED {
                return Err(LaneError::Stalled);
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

    /// Notices what has ended, and says that this end lives if it is time. A
    /// failure shows at the next send.
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

    /// How far to fill a message, by the path's rate.
    pub(crate) fn fill_bytes(&self) -> usize {
        self.lock().fill_bytes as usize
    }

    /// Bytes of files that the peer has.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.lock().delivered_bytes
    }

    /// Waits until the peer has everything; `false` if it does not take it.
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
