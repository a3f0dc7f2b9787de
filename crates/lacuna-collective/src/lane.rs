//! Long messages of one peer over one queue pair: each lands in its receive, and those that have no slot yet wait in order.

use crate::fabric::{Receive, State};
use crate::pool::Buffers;
use lacuna::{PostReceiveError, QueuePair, RecvHandle, RecvOptions};
use lacuna_schedule::run::{Event, Posting, Token};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// See the module's text.
pub(crate) struct Lane {
    queue_pair: QueuePair,
    waiting: VecDeque<Posting>,
    /// Receives that have a slot and are not over.
    open: usize,
}

impl Lane {
    pub(crate) fn new(queue_pair: QueuePair) -> Self {
        Self { queue_pair, waiting: VecDeque::new(), open: 0 }
    }

    pub(crate) fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.open + self.waiting.len() > 0
    }

    pub(crate) fn add(&mut self, posting: Posting) {
        self.waiting.push_back(posting);
    }

    /// A receive is over, or is not wanted any more.
    pub(crate) fn close_one(&mut self) {
        self.open -= 1;
    }

    /// Gives receives that wait the slots that are free.
    pub(crate) fn post_waiting(
        &mut self,
        now_ns: u64,
        buffers: &mut Buffers,
        receives: &mut BTreeMap<Token, Receive>,
    ) -> Result<(), String> {
        while let Some(posting) = self.waiting.front() {
            let left = |ns: u64| Duration::from_nanos(ns.saturating_sub(now_ns));
            let deadline = posting.deadline_ns.map(left);
            let options = RecvOptions { deadline, ..RecvOptions::default() };
            let buffer = buffers.take(posting.len_bytes);
            match self.queue_pair.post_recv_with(buffer, options) {
                Ok(handle) => {
                    let seen = vec![0; handle.live_chunk_bits().map_or(0, <[_]>::len)];
                    let state = State::Open {
                        handle,
                        seen,
                        first: 0,
                        is_bounded: posting.deadline_ns.is_some(),
                    };
                    let Posting { token, peer, len_bytes, .. } = *posting;
                    receives.insert(token, Receive { peer, len_bytes, state });
                    self.waiting.pop_front();
                    self.open += 1;
                }
                Err(PostReceiveError::NoSlot { .. }) => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}

/// Tells of chunks that have come since the last look.
pub(crate) fn arrived(
    token: Token,
    handle: &RecvHandle,
    (seen, first): (&mut [u64], &mut usize),
    limit: usize,
    events: &mut VecDeque<Event>,
) {
    let Some(bits) = handle.live_chunk_bits() else { return };
    let chunk_bytes = handle.geometry().chunk_bytes() as usize;
    let mut run: Option<Range<usize>> = None;
    for at in *first..seen.len() {
        let now = bits[at].load(Ordering::Acquire);
        let mut new = now & !seen[at];
        seen[at] = now;
        while new != 0 {
            let skipped = new.trailing_zeros();
            let length = (new >> skipped).trailing_ones();
            let start = at * 64 + skipped as usize;
            let end = start + length as usize;
            new &= if skipped + length == 64 { 0 } else { u64::MAX << (skipped + length) };
            match &mut run {
                Some(run) if run.end == start => run.end = end,
                _ => tell(token, run.replace(start..end), (chunk_bytes, limit), events),
            }
        }
        if now == u64::MAX && at == *first {
            *first += 1;
        }
    }
    tell(token, run, (chunk_bytes, limit), events);
}

fn tell(
    token: Token,
    chunks: Option<Range<usize>>,
    (chunk_bytes, limit): (usize, usize),
    events: &mut VecDeque<Event>,
) {
    if let Some(chunks) = chunks {
        let bytes = chunks.start * chunk_bytes..(chunks.end * chunk_bytes).min(limit);
        if !bytes.is_empty() {
            events.push_back(Event::Arrived { token, bytes });
        }
    }
}
