//! The one-sided operations of a queue pair: writes to regions of the peer and reads of them, and what the
//! peer does with this end's. No receive is posted for them, and no message is sent.

use super::error::PostSendError;
use super::reads::{
    ANSWER_NS_MAX, Answer, PostReadError, ReadFailure, ReadId, ReadRequest, ReadStatus,
};
use super::recv::Written;
use super::send::{SendSide, Target};
use super::user_send::{SendId, SendRequest};
use super::{Changes, QueuePair};
use crate::modes::Mode;
use lacuna_place::region::KeyTable;
use lacuna_wire::{ControlWriter, Frame, Read, ReadRefusal};
use std::sync::Arc;

impl QueuePair {
    /// Makes this a one-sided queue pair, before it is connected: its peer writes to regions by their
    /// keys, and it writes to the peer's. No receives are posted and no messages sent. `peer`: the number
    /// of the peer in the table of keys.
    ///
    /// The mode must not be `raw`, in which nobody would end a write that has lost something.
    pub fn become_one_sided(&mut self, keys: Arc<KeyTable>, peer: u64) {
        debug_assert!(self.config.mode != Mode::Raw, "use bounded");
        self.table.use_keys(keys.clone(), peer);
        self.keys = Some((keys, peer));
        self.recv.become_one_sided();
        self.send.become_one_sided();
    }

    /// Whether [`QueuePair::become_one_sided`] was called.
    pub fn is_one_sided(&self) -> bool {
        self.recv.is_one_sided()
    }

    /// Queues a write of any length to a region of the peer. With an immediate the peer's application is
    /// told. With `is_offered`, bytes are sent once they were offered ([`QueuePair::offer`]).
    pub fn queue_write(
        &mut self,
        request: SendRequest,
        target: Target,
        is_offered: bool,
    ) -> Result<SendId, PostSendError> {
        self.check()?;
        self.send.queue_write(request, target, is_offered)
    }

    /// Calls `queue`, and has the send or write that it queues wait until all earlier ones, and all earlier
    /// reads, have ended, well or not. What is queued after it waits behind it.
    pub fn fenced<R>(&mut self, queue: impl FnOnce(&mut Self) -> R) -> R {
        let (reads_end, oldest_read) = self.reads.open_range();
        self.send.fence(reads_end, oldest_read);
        let queued = queue(self);
        self.send.drop_fence();
        queued
    }

    /// Asks for a part of a region of the peer. The owner must be woken.
    pub fn queue_read(
        &mut self,
        now_ns: u64,
        request: ReadRequest,
    ) -> Result<ReadId, PostReadError> {
        if let Some(failure) = self.failure() {
            return Err(failure.into());
        }
        if self.keys.is_none() || self.peer.is_none() {
            return Err(PostReadError::NoRegions);
        }
        let id = self.reads.ask(now_ns, request)?;
        if self.reads.status(id).is_some_and(|status| status.outcome.is_some()) {
            self.pending_events.add(Changes::READ_ENDED);
        }
        Ok(id)
    }

    /// State of a read; `None` once it was released.
    pub fn read_status(&self, id: ReadId) -> Option<ReadStatus> {
        self.reads.status(id)
    }

    /// Has the end of a read told by [`QueuePair::poll_ended_read`].
    pub fn notify_read(&mut self, id: ReadId) {
        self.reads.notify(id);
    }

    /// The next read that has ended and notifies, with the bytes that came. It is released; see
    /// [`QueuePair::release_read`].
    pub fn poll_ended_read(&mut self) -> Option<(ReadId, Result<u64, ReadFailure>)> {
        self.reads.poll_ended()
    }

    /// Forgets a read. To be called once for each, when the key that it is written to was revoked or is
    /// of no use any more.
    pub fn release_read(&mut self, id: ReadId) {
        self.reads.release(id);
        self.on_reads_changed();
    }

    /// Tells fences which reads are open.
    pub(super) fn on_reads_changed(&mut self) {
        self.send.on_reads(self.reads.open_range().1);
    }

    /// Takes in a request of the peer to read a region here.
    pub(super) fn on_read(&mut self, now_ns: u64, read: &Read) {
        let left_ns = match u64::from(read.left_us) * 1000 {
            0 => ANSWER_NS_MAX,
            left_ns => left_ns,
        };
        let deadline_ns = now_ns.saturating_add(left_ns);
        let is_reliable = self.config.mode.is_reliable();
        let send = &self.send;
        self.reads.on_request(read, deadline_ns, is_reliable, |id| progress(send, id));
        self.answer_reads(now_ns);
    }

    /// Answers reads of the peer with writes, or refuses them, as far as the time for it has come.
    pub(super) fn answer_reads(&mut self, now_ns: u64) {
        let Some((keys, peer)) = self.keys.clone() else { return };
        loop {
            let send = &self.send;
            let next = self.reads.poll_answer(now_ns, |id| progress(send, id));
            let Some((read, deadline_ns)) = next else { return };
            let data = match self.copies.copy(&keys, peer, &read) {
                Ok(data) => data,
                Err(why) => {
                    self.reads.refuse(read.id, why);
                    continue;
                }
            };
            let deadline_ns = Some(deadline_ns);
            let request = SendRequest { data, immediate: None, deadline_ns };
            let target = Target { key: read.sink_key, address: read.sink_address };
            match self.send.queue_answer(request, target) {
                Ok(id) => {
                    self.reads.on_answer(&read, id);
                    self.send.release(id);
                }
                Err(_) => self.reads.refuse(read.id, ReadRefusal::Unable),
            }
        }
    }

    /// The next message with an immediate that the peer has written to a region.
    pub fn poll_written(&mut self, now_ns: u64) -> Option<Written> {
        let written = self.recv.poll_written()?;
        // It may have made room for more.
        self.arrivals.request_some_time(now_ns);
        Some(written)
    }

    /// What [`QueuePair::poll_written`] returns next.
    pub fn peek_written(&self) -> Option<&Written> {
        self.recv.peek_written()
    }

    /// Takes in that receives of a one-sided queue pair are over.
    #[inline]
    pub(super) fn reap(&mut self, now_ns: u64) {
        if self.recv.has_ended() {
            self.reap_ended(now_ns);
        }
    }

    fn reap_ended(&mut self, now_ns: u64) {
        let reads = &mut self.reads;
        let mut has_read = false;
        let has_written = self.recv.reap(|receive, reason| {
            let (is_answer, has_ended) = reads.on_over(receive, reason);
            has_read |= has_ended;
            is_answer
        });
        if has_written {
            self.pending_events.add(Changes::WRITTEN);
        }
        if has_read {
            self.pending_events.add(Changes::READ_ENDED);
            self.on_reads_changed();
        }
        if self.recv.sender_runs_short() {
            self.arrivals.request(now_ns);
        } else {
            self.arrivals.request_some_time(now_ns);
        }
    }

    /// Writes refusals and requests of reads. Requests that do not fit are due again after a timeout.
    pub(super) fn write_reads(&mut self, now_ns: u64, writer: &mut ControlWriter) {
        while let Some(refused) = self.reads.poll_refusal() {
            if !writer.push(&Frame::ReadRefused(refused)) {
                // The peer asks again.
                break;
            }
        }
        let recv = &self.recv;
        let rto_ns = self.path.rto_ns();
        for read in self.reads.poll_requests(now_ns, rto_ns, |key| recv.has_begun(key)) {
            writer.push(&Frame::Read(read));
        }
    }
}

/// How far an answer is. What has ended is forgotten.
fn progress(send: &SendSide, id: SendId) -> Answer {
    match send.status(id) {
        Some(status) if status.outcome.is_none() => match status.injected {
            true => Answer::Sent,
            false => Answer::Queued,
        },
        _ => Answer::Ended,
    }
}
