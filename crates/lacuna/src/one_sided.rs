//! One-sided operations of a connection: writes to regions of the peer and reads of them, without a posted
//! receive.
//!
//! They travel on a queue pair of their own beside that of the messages
//! (`lacuna_proto::handshake::Sibling`), so neither waits for the other.

use crate::borrowed::Borrowed;
use crate::clock::after;
use crate::completed::PacketMap;
use crate::connection::Connection;
use crate::error::{PostSendError, ReadError, SendError};
use crate::handles::{SendHandle, wait_for};
use crate::queue_pair::QueuePair;
use crate::region::{Region, RegionOptions, Rights};
use crate::stats::ConnectionStats;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::reason::Reason;
use lacuna_place::region::Bound;
use lacuna_proto::qp::{SendRequest, Target};
use std::time::Duration;

/// A message with an immediate that the peer has written to a region here.
#[derive(Debug)]
pub struct Written {
    /// Key of the region or window.
    pub key: u32,
    /// Where the message begins, from the start of the key's range.
    pub address: u64,
    /// Bytes of the message; `None` if its end did not come.
    pub len: Option<u64>,
    /// Bytes that came; copies count once.
    pub bytes: u64,
    /// The immediate; `None` if not all of it came.
    pub immediate: Option<u32>,
    /// Why the message is over.
    pub reason: Reason,
    /// Packets that came; the first begins at `address`.
    pub packets: PacketMap,
}

impl Written {
    pub(crate) fn of(written: &lacuna_proto::qp::Written) -> Self {
        let record = written.receive.record();
        let place = written.receive.bound();
        Self {
            key: place.map_or(0, Bound::key),
            address: place.map_or(0, Bound::address),
            len: record.length_bytes(),
            bytes: record.placed_bytes(),
            immediate: record.immediate(),
            reason: written.reason,
            packets: PacketMap::of_record(record),
        }
    }
}

impl QueuePair {
    fn start_write(
        &self,
        to: Target,
        data: SendBuffer,
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<SendHandle, PostSendError> {
        let deadline_ns = Some(self.owner.context.clock().end_of(deadline));
        let request = SendRequest { data, immediate, deadline_ns };
        let id = self.owner.shared.with_qp(|qp| qp.queue_write(request, to, false))?;
        self.owner.shared.kick();
        Ok(SendHandle::new(self.owner.clone(), id))
    }
}

impl Connection {
    /// Whether both ends have the one-sided operations: the connecting end asks for them
    /// ([`crate::ConnectionConfig::one_sided`]).
    pub fn has_one_sided(&self) -> bool {
        self.one_sided().is_some()
    }

    /// A snapshot of the counters of the one-sided operations, which [`Connection::stats`] does not contain;
    /// `None` if the connection has none. Received are writes of the peer and answers to reads.
    pub fn one_sided_stats(&self) -> Option<ConnectionStats> {
        let queue_pair = self.one_sided()?;
        let context = queue_pair.owner.context.stats();
        Some(ConnectionStats::new(&queue_pair.stats(), context, self.elapsed()))
    }

    fn to_regions(&self) -> Result<&QueuePair, PostSendError> {
        self.one_sided().ok_or(PostSendError::NoRegions)
    }

    /// Starts a write of any length to a region of the peer. Wait for it on the handle; it fails after
    /// the connection's deadline. With an immediate, the peer's application is told
    /// ([`Connection::wait_written`]).
    ///
    /// Writes keep no order among each other, nor towards messages: wait for one before the next if it
    /// matters.
    ///
    /// # Errors
    /// When the connection has no one-sided operations, too many writes are queued, or the connection
    /// has ended.
    pub fn start_write_to(
        &self,
        to: Target,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
    ) -> Result<SendHandle, PostSendError> {
        self.start_write_to_within(to, data, immediate, self.deadline())
    }

    /// As [`Connection::start_write_to`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`Connection::start_write_to`].
    pub fn start_write_to_within(
        &self,
        to: Target,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<SendHandle, PostSendError> {
        self.to_regions()?.start_write(to, data.into(), immediate, deadline)
    }

    /// Writes to a region of the peer and waits until all of it is there (in a mode without repair: until
    /// all of it is on the wire), at most until `deadline`.
    ///
    /// # Errors
    /// As [`Connection::start_write_to`], and when the peer refuses it or the deadline passes.
    pub fn write_to(&self, to: Target, data: &[u8], deadline: Duration) -> Result<(), SendError> {
        self.write_lent(to, data, None, deadline)
    }

    /// As [`Connection::write_to`], and tells the peer's application.
    ///
    /// # Errors
    /// As [`Connection::write_to`].
    pub fn write_to_with_immediate(
        &self,
        to: Target,
        data: &[u8],
        immediate: u32,
        deadline: Duration,
    ) -> Result<(), SendError> {
        self.write_lent(to, data, Some(immediate), deadline)
    }

    fn write_lent(
        &self,
        to: Target,
        data: &[u8],
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<(), SendError> {
        let queue_pair = self.to_regions()?;
        let owner = &queue_pair.owner;
        Borrowed::lend(
            data,
            |memory| {
                let handle = queue_pair.start_write(to, memory, immediate, deadline)?;
                let result = handle.wait();
                handle.cancel();
                result
            },
            || {
                // A worker drops its reference in its next step, after sending what it holds.
                owner.shared.kick();
                if !owner.context.progress() {
                    std::thread::yield_now();
                }
            },
        )
    }

    /// Reads a part of a region of the peer into one of this context, and waits until it is here, at most
    /// until `deadline`. Returns how many bytes came: all, but in a bounded mode, where what was lost leaves
    /// the bytes as they were.
    ///
    /// Long reads are divided, and several parts are under way at once. The deadline travels with them, so
    /// that the peer does not go on after it.
    ///
    /// # Errors
    /// When the connection has no one-sided operations, `into` has no room at `offset`, the peer refuses, the
    /// deadline passes, or the connection ends. What came until then may be in the region.
    pub fn read_into(
        &self,
        from: Target,
        len: u64,
        into: &Region,
        offset: u64,
        deadline: Duration,
    ) -> Result<u64, ReadError> {
        let mut read = self.start_read_into(from, len, into, offset, deadline)?;
        read.wait(deadline)?;
        Ok(read.placed_bytes())
    }

    /// As [`Connection::read_into`], into memory of its own; bytes that were lost in a bounded mode are
    /// zeros.
    ///
    /// # Errors
    /// As [`Connection::read_into`].
    pub fn read_from(
        &self,
        from: Target,
        len: usize,
        deadline: Duration,
    ) -> Result<Vec<u8>, ReadError> {
        let context = &self.queue_pair().owner.context;
        let options = RegionOptions { rights: Rights::NONE, ..RegionOptions::default() };
        let sink = context.register(vec![0; len], options)?;
        self.read_into(from, len as u64, &sink, 0, deadline)?;
        Ok(sink.into_vec().expect("its windows have gone"))
    }

    /// The next message with an immediate that the peer has written to a region here; `None` if none
    /// comes within `timeout`, the connection ends, or it has no one-sided operations.
    ///
    /// While a thousand of them wait, the peer's writes wait, too.
    pub fn wait_written(&self, timeout: Duration) -> Option<Written> {
        let owner = &self.one_sided()?.owner;
        let clock = owner.context.clock();
        let deadline_ns = after(clock.now_ns(), timeout);
        let mut makes_room = false;
        let found = wait_for(owner, deadline_ns, |qp| {
            let report_ns = qp.report_due_ns();
            let written = qp.poll_written(clock.now_ns());
            makes_room = qp.report_due_ns() != report_ns;
            if written.is_some() { Some(written) } else { qp.failure().map(|_| None) }
        });
        let written = found.flatten()?;
        if makes_room {
            // The peer is to hear that it can go on.
            owner.shared.kick();
        }
        Some(Written::of(&written))
    }
}
