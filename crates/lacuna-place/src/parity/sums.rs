//! Checksums of packets whose bytes others may overwrite, as those in regions.
//!
//! Repairs with parity read packets that have arrived. Another writer may have overwritten those since,
//! and the repaired packet would be nobody's bytes. So a message in regions that may carry parity keeps
//! the CRC32C of each packet that arrived, and a row is repaired only if the bytes that are read still
//! have these sums. Of a packet that came in pieces no sum is known, so its row is not repaired.

use crate::sync::{AtomicU32, Ordering};
use lacuna_crc::crc32c;
use std::sync::OnceLock;

/// CRC32C of each packet that arrived, 0 if it is unknown. The memory comes with the packets: a peer could
/// bind many receives to a large region and send nothing.
#[derive(Debug)]
pub(super) struct Sums(Box<[OnceLock<Box<[AtomicU32]>>]>);

impl Sums {
    const SEGMENT: usize = 256;

    pub(super) fn new(packets: u32) -> Self {
        Self((0..(packets as usize).div_ceil(Self::SEGMENT)).map(|_| OnceLock::new()).collect())
    }

    /// Notes the sum of a packet whose bytes these are.
    pub(super) fn note(&self, packet: u32, bytes: &[u8]) {
        let (segment, at) = (packet as usize / Self::SEGMENT, packet as usize % Self::SEGMENT);
        let make = || (0..Self::SEGMENT).map(|_| AtomicU32::new(0)).collect();
        if let Some(segment) = self.0.get(segment) {
            // Only the worker that places all packets of the row reads it.
            segment.get_or_init(make)[at].store(crc32c(bytes), Ordering::Relaxed);
        }
    }

    /// Whether these are the bytes of a packet as it arrived.
    pub(super) fn are_of(&self, packet: u32, bytes: &[u8]) -> bool {
        let (segment, at) = (packet as usize / Self::SEGMENT, packet as usize % Self::SEGMENT);
        let segment = self.0.get(segment).and_then(OnceLock::get);
        let sum = segment.map_or(0, |segment| segment[at].load(Ordering::Relaxed));
        sum != 0 && sum == crc32c(bytes)
    }
}
