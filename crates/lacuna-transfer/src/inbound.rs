//! Incoming messages of one end: several receives are posted ahead, so that a long path stays full, and a
//! peer may be silent for a bounded time.

use super::pool::{Block, Pool};
use lacuna::{Connection, RecvError, RecvHandle};
use lacuna_service::STOP_POLL;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A peer that says nothing for this long counts as hung. It says that it
/// lives every few seconds, whatever it does ([`super::lane`]).
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The incoming half of a connection.
pub(crate) struct Inbound {
    connection: Connection,
    pool: Pool,
    posted: VecDeque<RecvHandle>,
    /// Receives to keep posted.
    ahead: usize,
}

/// No message came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InboundError {
    #[error(transparent)]
    Receive(#[from] RecvError),
    #[error("it said nothing for {} s", PATIENCE.as_secs())]
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
    /// Keeps `ahead` receives posted, of the pool's blocks.
    pub(crate) fn new(connection: Connection, pool: Pool, ahead: usize) -> Self {
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
                // All blocks are with the disk or the hash.
                if let Some(block) = self.pool.take_within(STOP_POLL) {
                    self.posted.push_back(
                        self.connection.post_recv(block.into_bytes()).map_err(RecvError::Post)?,
                    );
                }
                continue;
            };
            match front.wait(STOP_POLL) {
                Ok(()) => break,
                // A slow path shows by its chunks.
                Err(RecvError::Deadline { chunks_done, .. }) => {
                    if seen != Some(chunks_done) {
                        (seen, since) = (Some(chunks_done), Instant::now());
                    }
                    if since.elapsed() > PATIENCE {
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
                // What is here already is still to be read.
                Err(_) if self.posted.front().is_some_and(RecvHandle::is_complete) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
