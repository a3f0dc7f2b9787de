//! Regions: registered memory that peers address by a 32-bit key and an offset. Several queue pairs may
//! write one region at once, also the same bytes.
//!
//! | module | contents |
//! |---|---|
//! | `memory` | bytes that several threads write and read at once |
//! | `keys` | the keys under which ranges of regions are known to peers; revoking them |
//! | `validity` | the map of what was written |
//! | `slices` | parts of regions as one piece of memory, for receives and sends |
//! | `bound` | the record of a message whose first packet chose its place in a region |
//!
//! A *slot* (`slot.rs`) belongs to one message and each of its bytes to one writer, who copies without
//! looking at others. In a region neither holds; its rules are:
//!
//! - bytes are written by relaxed atomic accesses, so overlapping writes are no data race;
//! - of two packets for the same bytes the one that is placed later stays, whole; if both are placed at
//!   the same time, each aligned word of eight bytes is of one of them. An *exclusive* region refuses a
//!   packet that touches valid bytes instead, until they were taken ([`Validity::take`]);
//! - a packet that has arrived is not written again: a late copy does not overwrite what another peer has
//!   written since;
//! - once a key is revoked, nothing is written or read under it any more (`keys.rs`).
//!
//! What is written is known from the messages' records ([`Bound`]), and optionally from the region's
//! [`Validity`] map.

pub mod keys;
pub mod memory;
pub mod validity;

mod bound;
#[cfg(all(test, loom))]
mod loom_tests;
mod slices;
#[cfg(all(test, not(loom)))]
mod tests;

pub use bound::Bound;
pub(crate) use bound::Unbound;
pub use keys::{
    Access, GUESSES_MAX, KEYS_MAX, KeyError, KeyTable, PinnedKey, RegisterError, Registration,
    Rights, Scope,
};
pub use memory::{Memory, OutOfBounds};
pub use slices::{Slices, Stride};
pub use validity::{GRANULE_BYTES, Granules, Validity};

use std::ops::Range;
use std::sync::Arc;

/// What a region keeps and allows beside its memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegionConfig {
    /// Keep a map of what was written. It takes 1/512 of the memory.
    pub has_validity: bool,
    /// Discard packets that touch bytes which the map says are valid. The region keeps a map then.
    pub is_exclusive: bool,
}

/// Registered memory; see the module's text. A [`KeyTable`] gives ranges of it to peers.
///
/// The application may read and write it at any time. What it reads is complete where the validity map,
/// the record of a message, or the return of [`KeyTable::revoke`] says so.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    validity: Option<Validity>,
    is_exclusive: bool,
}

impl Region {
    /// A region over `memory`, which no peer can reach yet.
    pub fn new(memory: impl Into<Memory>, config: RegionConfig) -> Arc<Self> {
        let memory = memory.into();
        let has_validity = config.has_validity || config.is_exclusive;
        let validity = has_validity.then(|| Validity::new(memory.len()));
        Arc::new(Self { memory, validity, is_exclusive: config.is_exclusive })
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Whether the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Whether packets that touch valid bytes are discarded.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// The map of what was written, if the region keeps one. Only packets mark it: [`Region::write`] and
    /// [`Region::zero`] do not.
    #[inline]
    pub fn validity(&self) -> Option<&Validity> {
        self.validity.as_ref()
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// If they do not fit; then nothing is written.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.memory.write(offset, bytes)
    }

    /// Copies from `offset` to all of `out`.
    ///
    /// # Errors
    /// If the region is too short; then `out` is unchanged.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfBounds> {
        self.memory.read(offset, out)
    }

    /// Tells loom that nobody else accesses the memory any more, in tests.
    #[cfg(all(test, loom))]
    pub(crate) fn own(&self) {
        self.memory.own();
    }

    /// Zeroes a range.
    ///
    /// # Errors
    /// If it is out of bounds; then nothing is written.
    pub fn zero(&self, range: Range<u64>) -> Result<(), OutOfBounds> {
        self.memory.zero(range)
    }

    /// The memory; it can be had when every key was revoked and all calls of [`KeyTable::revoke`] have
    /// returned (the table's references are gone then), and the other references were dropped.
    ///
    /// # Errors
    /// The region, if others hold it.
    pub fn into_memory(self: Arc<Self>) -> Result<Memory, Arc<Self>> {
        Arc::try_unwrap(self).map(|region| region.memory)
    }
}
