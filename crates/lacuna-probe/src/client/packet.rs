//! A packet that is to be sent, in parts, so that a burst of them shares what they are filled with.

use crate::PAYLOAD_BYTES_MAX;
use std::sync::OnceLock;

/// A packet to send: `head`, so many bytes of [`filler`], `trailer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The socket: 0 for the exchange, from 1 on a flow.
    pub lane: usize,
    /// What comes first.
    pub head: Vec<u8>,
    /// How much of [`filler`] comes next.
    pub filler_bytes: usize,
    /// What comes last.
    pub trailer: [u8; 4],
}

impl Packet {
    /// All of it.
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

/// What packets are filled with: bytes without a pattern, so that nothing on the way makes them
/// shorter. The same at all times.
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
