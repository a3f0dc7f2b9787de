//! A packet to send, in parts, so that the packets of a burst share their filler.

use crate::PAYLOAD_BYTES_MAX;
use std::sync::OnceLock;

/// A packet to send: `head`, `filler_bytes` of [`filler`], `trailer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Index of the socket: 0 for requests, from 1 on for the flows.
    pub lane: usize,
    /// Header and body.
    pub head: Vec<u8>,
    /// Bytes of [`filler`] after the head.
    pub filler_bytes: usize,
    /// CRC32C of all before.
    pub trailer: [u8; 4],
}

impl Packet {
    /// The whole packet.
    #[must_use]
    pub fn bytes(&self, filler: &[u8]) -> Vec<u8> {
        [&self.head, &filler[..self.filler_bytes], &self.trailer].concat()
    }

    /// Its length.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.head.len() + self.filler_bytes + self.trailer.len()
    }
}

/// Filler of packets: pseudo-random bytes, so that no device on the path can compress them. Always the
/// same.
pub fn filler() -> &'static [u8] {
    static FILLER: OnceLock<Vec<u8>> = OnceLock::new();
    FILLER.get_or_init(|| {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            // xorshift64 (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..PAYLOAD_BYTES_MAX as usize).map(|_| (next() >> 32) as u8).collect()
    })
}
