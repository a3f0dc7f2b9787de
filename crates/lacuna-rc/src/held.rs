//! Requests that came behind a gap, kept at the responder until it closes (selective repeat).
//!
//! IRN places them at once and keeps a bitmap. That is done here for the message that is open, whose place is
//! known for sure; of others the bytes wait, since an earlier message that is repaired later must not cover
//! what a later one wrote, and a SEND's receive is not known. Requests are always done in order.
//!
//! Bounded by [`BYTES_MAX`] and [`PACKETS_MAX`]: what does not fit is dropped, and sent again.

use lacuna_path::ranges::Ranges;
use lacuna_wire::rc::RcHeader;
use std::collections::BTreeMap;

/// Bytes of payloads that wait, of one queue pair: a round trip of 100 ms at 10 Gbit/s. They are allocated as they
/// come.
const BYTES_MAX: usize = 128 << 20;
/// Packets that wait.
const PACKETS_MAX: usize = 1 << 17;

/// A request that waits.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    pub(crate) header: RcHeader,
    pub(crate) content: Content,
}

/// What is known of its payload.
#[derive(Debug)]
pub(crate) enum Content {
    Bytes(Box<[u8]>),
    /// So many bytes, which are in place.
    Placed(usize),
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Held {
    requests: BTreeMap<u64, HeldRequest>,
    came: Ranges,
    bytes: usize,
}

impl Held {
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.came.covers(&(number..number + 1))
    }

    /// Numbers that have come.
    pub(crate) fn came(&self) -> &Ranges {
        &self.came
    }

    /// Keeps a request with so many numbers; `false` if there is no room.
    pub(crate) fn keep(&mut self, number: u64, numbers: u32, request: HeldRequest) -> bool {
        let bytes = match &request.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Placed(_) => 0,
        };
        if self.bytes + bytes > BYTES_MAX || self.requests.len() >= PACKETS_MAX {
            return false;
        }
        self.bytes += bytes;
        self.came.add(number..number + u64::from(numbers));
        self.requests.insert(number, request);
        true
    }

    /// Takes the request with this number, if it has come. Those before it are done.
    pub(crate) fn take(&mut self, number: u64) -> Option<HeldRequest> {
        let request = self.requests.remove(&number)?;
        if let Content::Bytes(bytes) = &request.content {
            self.bytes -= bytes.len();
        }
        Some(request)
    }

    /// Everything before this number is done.
    pub(crate) fn on_done(&mut self, number: u64) {
        self.came.remove_below(number);
        while let Some(entry) = self.requests.first_entry().filter(|entry| *entry.key() < number) {
            if let Content::Bytes(bytes) = entry.remove().content {
                self.bytes -= bytes.len();
            }
        }
    }
}
