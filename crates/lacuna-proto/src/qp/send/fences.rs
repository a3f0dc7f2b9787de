//! Fences: a send that waits until all earlier ones of the application have ended, and all earlier reads
//! (the fence of verbs, which there is for reads). Writes keep no order otherwise.
//!
//! What is queued after a fenced send waits behind it, so that sends keep their order. Answers to the
//! peer's reads do not: two ends whose fences waited for each other's answers would wait for ever.

use super::SendSide;
use crate::qp::user_send::{SendId, SendRequest};
use std::collections::VecDeque;

/// Sends that wait for a fence, or behind one.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// The next send that is queued is fenced, and waits for the reads before this number.
    next: Option<u64>,
    held: VecDeque<Held>,
    /// Number of the oldest read that has not ended; `u64::MAX` if all have.
    oldest_read: u64,
}

#[derive(Debug)]
struct Held {
    id: SendId,
    request: SendRequest,
    fence: Option<Fence>,
}

#[derive(Debug)]
struct Fence {
    /// Reads with smaller numbers come first.
    reads_end: u64,
    /// Earlier sends that have not ended; `None` while others are held before this one.
    earlier: Option<usize>,
}

impl Fences {
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.next.is_none() && self.held.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// The first send that is held.
    pub(super) fn first(&self) -> Option<SendId> {
        self.held.front().map(|held| held.id)
    }

    pub(super) fn remove(&mut self, id: SendId) {
        self.held.retain(|held| held.id != id);
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
    }

    /// A send has ended.
    pub(super) fn on_settled(&mut self, id: SendId) {
        if let Some(Held { id: first, fence: Some(fence), .. }) = self.held.front_mut()
            && id < *first
            && let Some(earlier) = &mut fence.earlier
        {
            *earlier -= 1;
        }
    }
}

impl SendSide {
    /// Has the next send that is queued wait for all earlier ones and for the reads before number
    /// `reads_end`, of which `oldest_read` is the first that has not ended.
    pub(crate) fn fence(&mut self, reads_end: u64, oldest_read: Option<u64>) {
        self.fences.next = Some(reads_end);
        self.fences.oldest_read = oldest_read.unwrap_or(u64::MAX);
    }

    /// The next send is not fenced after all.
    pub(crate) fn drop_fence(&mut self) {
        self.fences.next = None;
    }

    /// Holds a send back if it is fenced or behind a fence, else returns it.
    #[cold]
    pub(super) fn hold(&mut self, id: SendId, request: SendRequest) -> Option<SendRequest> {
        let fence = self.fences.next.take();
        if fence.is_none() && self.fences.held.is_empty() {
            return Some(request);
        }
        let fence = fence.map(|reads_end| Fence { reads_end, earlier: None });
        self.fences.held.push_back(Held { id, request, fence });
        self.lift_fences();
        None
    }

    /// Reads have ended; this one is now the first that has not.
    pub(crate) fn on_reads(&mut self, oldest_read: Option<u64>) {
        self.fences.oldest_read = oldest_read.unwrap_or(u64::MAX);
        self.lift_fences();
    }

    /// Queues the sends whose fences hold no longer.
    #[inline]
    pub(super) fn lift_fences(&mut self) {
        if !self.fences.held.is_empty() {
            self.lift_first_fences();
        }
    }

    #[cold]
    fn lift_first_fences(&mut self) {
        while let Some(held) = self.fences.held.front_mut() {
            if let Some(fence) = &mut held.fence {
                let count = || self.sends.open_before(held.id);
                let earlier = *fence.earlier.get_or_insert_with(count);
                if earlier > 0 || self.fences.oldest_read < fence.reads_end {
                    return;
                }
            }
            let Some(Held { id, request, .. }) = self.fences.held.pop_front() else { return };
            self.enqueue_send(id, request);
        }
    }
}
