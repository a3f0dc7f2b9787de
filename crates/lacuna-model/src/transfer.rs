//! One message on one path, in the model's own units: chunks, the time of a chunk on the wire,
//! the round-trip time, the loss of a chunk (SDR-RDMA 4.2.1).
//!
//! The message is cut into `M = ceil(size / chunk)` chunks of equal length. `T`, here `chunk_s`,
//! is the time that one chunk occupies the link; the paper counts payload only, so headers count
//! when [`Framing::overhead_bytes`] says so. A chunk longer than the message is as long as the message.

use crate::ModelError;
use crate::error::check;
use crate::loss::{ChunkLoss, Loss};

/// Longest message in chunks: `f64` represents larger indices inexactly.
const CHUNKS_MAX: f64 = 9_007_199_254_740_992.0;

/// A path between two endpoints.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Rate of the link in bits per second.
    pub rate_bits_per_s: f64,
    /// Round-trip time in seconds.
    pub rtt_s: f64,
    /// What the path loses.
    pub loss: Loss,
}

/// How a message is cut for the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framing {
    /// Payload bytes of a chunk, the unit of the receiver's bitmap and of repair.
    pub chunk_bytes: u64,
    /// Payload bytes of a packet.
    pub packet_bytes: u64,
    /// Bytes of each packet on the link that are not payload; 0 as in the paper.
    pub overhead_bytes: u64,
}

impl Framing {
    /// Chunks of one packet of 4 KiB, without headers: hypothesis A of the reproduced figures.
    pub const PAPER: Self = Self { chunk_bytes: 4096, packet_bytes: 4096, overhead_bytes: 0 };

    /// Packets of a full chunk.
    #[must_use]
    pub fn packets_per_chunk(&self) -> u64 {
        self.chunk_bytes.div_ceil(self.packet_bytes.max(1)).max(1)
    }
}

/// A message of `chunks` chunks on a path. Every model is built from one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    chunks: u64,
    chunk_s: f64,
    rtt_s: f64,
    loss: ChunkLoss,
}

impl Transfer {
    /// A message of `size_bytes`, cut as `framing` says.
    ///
    /// # Errors
    ///
    /// [`ModelError`] names the first argument that is out of range.
    pub fn new(path: &Path, framing: &Framing, size_bytes: u64) -> Result<Self, ModelError> {
        let loss = |packets| path.loss.of_chunk(packets);
        Self::with_loss(path.rate_bits_per_s, path.rtt_s, framing, size_bytes, loss)
    }

    /// The same, with the loss of a chunk of so many packets from elsewhere.
    pub(crate) fn with_loss(
        rate_bits_per_s: f64,
        rtt_s: f64,
        framing: &Framing,
        size_bytes: u64,
        loss: impl FnOnce(u64) -> Result<ChunkLoss, ModelError>,
    ) -> Result<Self, ModelError> {
        let whole = |argument, bytes: u64| {
            check(argument, bytes as f64, bytes > 0, "at least 1 byte").map(|_| ())
        };
        whole("size", size_bytes)?;
        whole("chunk", framing.chunk_bytes)?;
        whole("packet", framing.packet_bytes)?;
        let rate = rate_bits_per_s;
        check("rate", rate, rate > 0.0 && rate.is_finite(), "more than 0 bits per second")?;
        let framing = Framing { chunk_bytes: framing.chunk_bytes.min(size_bytes), ..*framing };
        let packets = framing.packets_per_chunk();
        let wire_bytes =
            framing.chunk_bytes as f64 + packets as f64 * framing.overhead_bytes as f64;
        Self::from_chunks(
            size_bytes.div_ceil(framing.chunk_bytes),
            wire_bytes * 8.0 / rate,
            rtt_s,
            loss(packets)?,
        )
    }

    /// A message in the model's own terms: `M`, `T` in seconds, RTT in seconds, loss of a chunk.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] when a number is negative, not finite, or zero where that makes
    /// no sense.
    pub fn from_chunks(
        chunks: u64,
        chunk_s: f64,
        rtt_s: f64,
        loss: ChunkLoss,
    ) -> Result<Self, ModelError> {
        let count = chunks as f64;
        check("chunks", count, (1.0..=CHUNKS_MAX).contains(&count), "1 to 2^53")?;
        check("chunk time", chunk_s, chunk_s > 0.0 && chunk_s.is_finite(), "more than 0 s")?;
        check("rtt", rtt_s, rtt_s >= 0.0 && rtt_s.is_finite(), "at least 0 s")?;
        Ok(Self { chunks, chunk_s, rtt_s, loss })
    }

    /// `M`.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// `T_INJ`: seconds that a chunk occupies the link.
    #[must_use]
    pub fn chunk_s(&self) -> f64 {
        self.chunk_s
    }

    /// Round-trip time in seconds.
    #[must_use]
    pub fn rtt_s(&self) -> f64 {
        self.rtt_s
    }

    /// Loss of a chunk.
    #[must_use]
    pub fn loss(&self) -> &ChunkLoss {
        &self.loss
    }

    /// `M T`: seconds to put the message on the link once.
    #[must_use]
    pub fn injection_s(&self) -> f64 {
        self.chunks as f64 * self.chunk_s
    }

    /// `M T + RTT`: no transport is faster.
    #[must_use]
    pub fn ideal_s(&self) -> f64 {
        self.injection_s() + self.rtt_s
    }

    /// The same path with a message of another length.
    #[cfg(test)]
    pub(crate) fn with_chunks(self, chunks: u64) -> Self {
        Self { chunks, ..self }
    }
}
