//! Reads of a region of the peer, under way.
//!
//! A long read is divided into parts, several of which are under way at once. Each part is written under a
//! window of its own, which is revoked when the part has ended: nothing of an old part comes into a new one.

use crate::clock::{Clock, after};
use crate::connection::Connection;
use crate::error::ReadError;
use crate::handles::wait_for;
use crate::queue_pair::QueuePair;
use crate::region::{Keyed, Region, Rights, Window};
use crate::shared::Shared;
use lacuna_proto::qp::{PostReadError, ReadFailure, ReadId, ReadRequest, Target};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Bytes of one part of a read. The peer copies a part just before it sends it, so a part is not longer than
/// a core's cache (measured: M-reads-1).
pub const READ_PART_BYTES: u64 = 1 << 20;
/// Parts of a read that are under way at once: a good deal more than a path of 10 Gbit/s and 20 ms holds. All
/// reads of a connection have [`READS_OPEN_MAX`](crate::READS_OPEN_MAX) parts at most.
pub const READ_PARTS_MAX: usize = 32;

/// Parts of a read that are under way and to come. Whoever drops it has released the parts.
pub(crate) struct Parts {
    from: Target,
    into: Keyed,
    /// Where the first byte lands in `into`.
    offset: u64,
    len_bytes: u64,
    asked_bytes: u64,
    end_ns: u64,
    /// Parts under way, each with the window that it is written to.
    open: VecDeque<(ReadId, Window)>,
    placed_bytes: u64,
}

impl Parts {
    pub(crate) fn new(from: Target, len: u64, into: &Region, offset: u64, end_ns: u64) -> Self {
        let (asked_bytes, placed_bytes, open) = (0, 0, VecDeque::new());
        let into = into.keyed().clone();
        Self { from, into, offset, len_bytes: len, asked_bytes, end_ns, open, placed_bytes }
    }

    /// Asks for further parts, as many as may be under way. `notifies`: their ends are told in a list.
    /// Without the queue pair's lock, since the keys' lock may have to be waited for.
    pub(crate) fn ask(
        &mut self,
        shared: &Shared,
        clock: Clock,
        notifies: bool,
    ) -> Result<(), ReadError> {
        let mut has_asked = false;
        while self.asked_bytes < self.len_bytes && self.open.len() < READ_PARTS_MAX {
            let len_bytes = READ_PART_BYTES.min(self.len_bytes - self.asked_bytes);
            let address = self.from.address.saturating_add(self.asked_bytes);
            let from = Target { address, ..self.from };
            let at = self.offset.saturating_add(self.asked_bytes);
            let range = at..at.saturating_add(len_bytes);
            let window = self.into.window(range, Rights::REMOTE_WRITE)?;
            let into = Target { key: window.key(), address: 0 };
            let request = ReadRequest { from, len_bytes, into, deadline_ns: Some(self.end_ns) };
            let now_ns = clock.now_ns();
            let asked = shared.with_qp(|qp| {
                let id = qp.queue_read(now_ns, request)?;
                if notifies {
                    qp.notify_read(id);
                }
                Ok(id)
            });
            match asked {
                Ok(id) => self.open.push_back((id, window)),
                // They make room when they end.
                Err(PostReadError::Busy { .. }) if !self.open.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
            self.asked_bytes += len_bytes;
            has_asked = true;
        }
        if has_asked {
            shared.kick();
        }
        Ok(())
    }

    /// Takes off a part that has ended, if it is one of these; the window is to be dropped without the
    /// queue pair's lock.
    pub(crate) fn on_ended(&mut self, id: ReadId, placed_bytes: u64) -> Option<Window> {
        let index = self.open.iter().position(|(open, _)| *open == id)?;
        self.placed_bytes += placed_bytes;
        Some(self.open.remove(index)?.1)
    }

    /// Whether everything was asked for and has ended.
    pub(crate) fn are_done(&self) -> bool {
        self.open.is_empty() && self.asked_bytes >= self.len_bytes
    }

    /// Bytes that came, of parts that have ended.
    pub(crate) fn placed_bytes(&self) -> u64 {
        self.placed_bytes
    }

    /// Gives up the parts under way.
    pub(crate) fn release(&mut self, shared: &Shared) {
        while let Some((id, window)) = self.open.pop_front() {
            shared.with_qp(|qp| qp.release_read(id));
            drop(window);
        }
    }
}

/// A read of a region of the peer. Dropping it gives it up.
///
/// Parts of a long read that were not asked for yet are asked for in [`ReadHandle::wait`].
pub struct ReadHandle<'c> {
    queue_pair: &'c QueuePair,
    parts: Parts,
}

impl Connection {
    /// Starts a read of a part of a region of the peer into one of this context; wait for it on the handle. It
    /// fails after `deadline`.
    ///
    /// # Errors
    /// As [`Connection::read_into`].
    pub fn start_read_into<'c>(
        &'c self,
        from: Target,
        len: u64,
        into: &'c Region,
        offset: u64,
        deadline: Duration,
    ) -> Result<ReadHandle<'c>, ReadError> {
        let queue_pair = self.one_sided().ok_or(PostReadError::NoRegions)?;
        let end_ns = queue_pair.owner.context.clock().end_of(deadline);
        let parts = Parts::new(from, len, into, offset, end_ns);
        let mut read = ReadHandle { queue_pair, parts };
        let owner = &queue_pair.owner;
        read.parts.ask(&owner.shared, owner.context.clock(), false)?;
        Ok(read)
    }
}

impl ReadHandle<'_> {
    /// Waits until it has ended, at most `timeout`; returns whether it has.
    ///
    /// # Errors
    /// When the peer refuses, the deadline passes, or the connection ends. What came until then may be in the
    /// region.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, ReadError> {
        let owner = &self.queue_pair.owner;
        let clock = owner.context.clock();
        let until_ns = after(clock.now_ns(), timeout).min(self.parts.end_ns);
        loop {
            self.parts.ask(&owner.shared, clock, false)?;
            let Some((id, _)) = self.parts.open.front() else { return Ok(true) };
            let id = *id;
            let ended = wait_for(owner, until_ns, |qp| {
                let status = qp.read_status(id)?;
                Some((status.outcome?, status.placed_bytes))
            });
            match ended {
                Some((outcome, placed_bytes)) => {
                    outcome?;
                    owner.shared.with_qp(|qp| qp.release_read(id));
                    drop(self.parts.on_ended(id, placed_bytes));
                }
                // The protocol's deadline is the same; it may not have been looked at.
                None if clock.until(self.parts.end_ns).is_zero() => {
                    let (placed_bytes, len_bytes) = (self.placed_bytes(), self.len());
                    return Err(ReadFailure::Deadline { placed_bytes, len_bytes }.into());
                }
                None => return Ok(false),
            }
        }
    }

    /// Bytes that came, of the parts that have ended. Once the read has ended with success: all, but in a
    /// bounded mode, where what was lost leaves the bytes as they were.
    pub fn placed_bytes(&self) -> u64 {
        self.parts.placed_bytes
    }

    /// Bytes that it reads.
    pub fn len(&self) -> u64 {
        self.parts.len_bytes
    }

    /// Whether it reads nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for ReadHandle<'_> {
    fn drop(&mut self) {
        self.parts.release(&self.queue_pair.owner.shared);
    }
}

impl fmt::Debug for ReadHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadHandle")
            .field("len_bytes", &self.len())
            .field("placed_bytes", &self.placed_bytes())
            .finish_non_exhaustive()
    }
}
