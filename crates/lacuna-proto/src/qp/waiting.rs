//! Queue of sends that wait for the peer's receives, in the order in which they were made.

use super::user_send::{SendId, SendRequest};
use std::collections::VecDeque;

/// Empty entries that are kept, besides as many as there are sends. A judgement.
const EMPTY_MAX: usize = 64;

/// Waiting sends.
///
/// Most sends leave at the front, as receives are posted. A send that is cancelled or whose deadline
/// passes leaves from anywhere, and all may do so at once. Such a removal costs a binary search and
/// leaves an empty entry, which is removed at the front or when empty entries outnumber the others.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// In ascending order. The first entry is not empty.
    entries: VecDeque<(SendId, Option<SendRequest>)>,
    /// Entries that are not empty.
    count: usize,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a send, mostly one that is newer than all others; others go to their place.
    pub(super) fn push(&mut self, id: SendId, request: SendRequest) {
        if self.entries.back().is_none_or(|(last, _)| *last < id) {
            self.entries.push_back((id, Some(request)));
        } else {
            let at = self.entries.partition_point(|(other, _)| *other < id);
            self.entries.insert(at, (id, Some(request)));
        }
        self.count += 1;
    }

    /// The first send.
    pub(super) fn first(&self) -> Option<SendId> {
        self.entries.front().map(|(id, _)| *id)
    }

    /// Length of the first send.
    pub(super) fn first_len_bytes(&self) -> Option<u64> {
        let (_, request) = self.entries.front()?;
        request.as_ref().map(|request| request.data.len() as u64)
    }

    /// Takes the first send.
    pub(super) fn pop(&mut self) -> Option<(SendId, SendRequest)> {
        let (id, request) = self.entries.pop_front()?;
        self.count -= 1;
        self.tidy();
        Some((id, request.expect("the first entry is not empty")))
    }

    /// Drops a send and its memory, if it waits.
    pub(super) fn remove(&mut self, id: SendId) {
        let Ok(at) = self.entries.binary_search_by_key(&id, |(waiting, _)| *waiting) else {
            return;
        };
        if self.entries[at].1.take().is_some() {
            self.count -= 1;
            self.tidy();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn tidy(&mut self) {
        if self.entries.len() > 2 * self.count + EMPTY_MAX {
            self.entries.retain(|(_, request)| request.is_some());
        }
        while self.entries.front().is_some_and(|(_, request)| request.is_none()) {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qp::user_send::UserSends;
    use lacuna_link::SplitMix64;
    use lacuna_place::buffer::SendBuffer;

    fn request(tag: u32) -> SendRequest {
        SendRequest { data: SendBuffer::from(vec![0]), immediate: Some(tag), deadline_ns: None }
    }

    #[test]
    fn sends_leave_as_from_a_plain_list() {
        for seed in 0..50 {
            let mut rng = SplitMix64::new(seed);
            let mut sends = UserSends::default();
            let (mut waiting, mut list) = (Waiting::default(), Vec::<(SendId, u32)>::new());
            let mut made = Vec::new();
            // Mostly coming, mostly leaving, by turns.
            for step in 0..4_000_u32 {
                let comes = if step / 500 % 2 == 0 { 7 } else { 2 };
                match rng.below(10) {
                    draw if draw < comes => {
                        let id = sends.admit(1, None);
                        waiting.push(id, request(step));
                        list.push((id, step));
                        made.push(id);
                    }
                    8 => {
                        let first = (!list.is_empty()).then(|| list.remove(0));
                        let popped = waiting.pop();
                        let popped = popped.map(|(id, request)| (id, request.immediate.unwrap()));
                        assert_eq!(popped, first, "seed {seed}");
                    }
                    _ if made.is_empty() => {}
                    _ => {
                        // One that has left before, too.
                        let id = made[rng.below(made.len() as u64) as usize];
                        waiting.remove(id);
                        list.retain(|(other, _)| *other != id);
                    }
                }
                assert_eq!((waiting.len(), waiting.is_empty()), (list.len(), list.is_empty()));
                assert!(waiting.entries.len() <= 2 * list.len() + EMPTY_MAX, "seed {seed}");
            }
        }
    }
}
