//! Writes to regions of the peer (one-sided: no receive is posted for them).
//!
//! A write is a send whose packets name a region's key and their address there, so the peer places them
//! without asking anybody (`recv/unbound.rs`, `lacuna_place::region`). It takes one of the peer's unbound
//! receives for each slot's worth of data. Everything else is as for a send: mode, deadline, offers.
//!
//! The packet that ends a message must leave whole, because a receiver that sees it first could not tell
//! its last part from the whole. So packets of writes are never cut. On a path that has become too narrow for
//! them (`pmtu.rs`) writes end by their deadlines, and a new connection finds a size that passes. (Failing
//! them at once would take more certainty than probes give: with 5 % loss they are wrong now and then.)

use super::SendSide;
use crate::qp::error::PostSendError;
use crate::qp::user_send::{SendId, SendRequest};
use std::collections::BTreeMap;

/// A place in a region of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Key of the region, or of a window of it.
    pub key: u32,
    /// Bytes from the start of the key's range.
    pub address: u64,
}

impl Target {
    /// The place so many bytes further on.
    pub(super) fn at(self, offset_bytes: u64) -> Self {
        Self { address: self.address.wrapping_add(offset_bytes), ..self }
    }
}

/// Targets of writes that were not built.
#[derive(Debug, Default)]
pub(super) struct Writes {
    targets: BTreeMap<SendId, Target>,
}

impl Writes {
    #[inline]
    pub(super) fn take(&mut self, id: SendId) -> Option<Target> {
        if self.targets.is_empty() { None } else { self.targets.remove(&id) }
    }
}

impl SendSide {
    /// Sends nothing but writes to regions from now on.
    pub(crate) fn become_one_sided(&mut self) {
        self.is_one_sided = true;
        self.pairs_in_order = false;
    }

    /// Queues a write; it waits until the peer has receives for it. `is_offered`: nothing is sent before
    /// it was offered.
    pub(crate) fn queue_write(
        &mut self,
        request: SendRequest,
        target: Target,
        is_offered: bool,
    ) -> Result<SendId, PostSendError> {
        if !self.is_one_sided {
            return Err(PostSendError::NoRegions);
        }
        let len_bytes = request.data.len() as u64;
        if target.address.checked_add(len_bytes).is_none() {
            return Err(PostSendError::TooLong { len_bytes, capacity_bytes: !target.address });
        }
        self.queue_any(request, |side, id| {
            side.writes.targets.insert(id, target);
            if is_offered && len_bytes > 0 {
                side.withhold_all(id);
            }
        })
    }

    /// Queues the answer to a read of the peer, which waits for no fence.
    pub(crate) fn queue_answer(
        &mut self,
        request: SendRequest,
        target: Target,
    ) -> Result<SendId, PostSendError> {
        let fences = std::mem::take(&mut self.fences);
        let id = self.queue_write(request, target, false);
        self.fences = fences;
        id
    }
}
