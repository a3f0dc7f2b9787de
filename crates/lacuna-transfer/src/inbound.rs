//! Incoming messages of one end: keeps several receives posted, so that a long path stays full, and
//! bounds the peer's silence.

use super::pool::{Block, BufferPool};
use lacuna::{Connection, RecvError, RecvHandle};
use lacuna_service::STOP_POLL;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A peer that sends nothing for this long counts as hung: it sends a keep-alive every two seconds,
/// whatever it does ([`super::outbound`]).
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The incoming half of a connection.
pub(crate) struct Inbound {
    connection: Connection,
    pool: BufferPool,
    posted: VecDeque<RecvHandle>,
    /// Receives to keep posted.
    ahead: usize,
}

/// Why there is no next message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InboundError {
    #[error(transparent)]
    Receive(#[from] RecvError),
    #[error("it said nothing for {} s", SILENCE_MAX.as_secs())]
    Hung,
    #[error("stopped")]
    Stopped,
}

impl InboundError {
    /// Whether the peer closed the connection in good order.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Receive(error) if error.is_closed())
    }
}

impl Inbound {
    /// Keeps `ahead` receives posted, over blocks of the pool.
    pub(crate) fn new(connection: Connection, pool: BufferPool, ahead: usize) -> Self {
        Self { connection, pool, posted: VecDeque::new(), ahead }
    }

    /// The next message: its block and its length.
    pub(crate) fn next(&mut self, stop: &dyn Fn() -> bool) -> Result<(Block, usize), InboundError> {
        let mut since = Instant::now();
        let mut seen = None;
        loop {
            self.post()?;
            if stop() {
                return Err(InboundError::Stopped);
            }
            let Some(front) = self.posted.front() else {
                // The disk or the hash thread holds all blocks.
                if let Some(block) = self.pool.take_within(STOP_POLL) {
                    self.posted.push_back(
                        self.connection.post_recv(block.into_bytes()).map_err(RecvError::Post)?,
                    );
                }
                continue;
            };
            match front.wait(STOP_POLL) {
                Ok(()) => break,
                // On a slow path, chunks that arrive show that the peer lives.
                Err(RecvError::Deadline { chunks_done, .. }) => {
                    if seen != Some(chunks_done) {
                        (seen, since) = (Some(chunks_done), Instant::now());
                    }
                    if since.elapsed() > SILENCE_MAX {
                        return Err(InboundError::Hung);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        let done = self.posted.pop_front().expect("waited for above").complete();
        let len = done.len.unwrap_or(0);
        Ok((self.pool.adopt(done.buffer), len))
    }

    fn post(&mut self) -> Result<(), RecvError> {
        while self.posted.len() < self.ahead
            && let Some(block) = self.pool.try_take()
        {
            match self.connection.post_recv(block.into_bytes()) {
                Ok(handle) => self.posted.push_back(handle),
                // A message that is complete is still returned.
                Err(_) if self.posted.front().is_some_and(RecvHandle::is_complete) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
