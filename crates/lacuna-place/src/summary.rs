//! What one burst did: the counts that the placer hands to the queue pair.

use crate::discard::Discard;
use crate::parity::Taken;

/// What one burst of packets of one queue pair on one channel did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BurstSummary {
    /// Packets that came for the first time, parity included.
    pub packets: u64,
    /// Payload bytes placed for the first time.
    pub bytes: u64,
    /// Of the packets, those of parity.
    pub parity_packets: u64,
    /// Payload bytes of those.
    pub parity_bytes: u64,
    /// Packets that were lost and repaired with parity.
    pub repaired_packets: u64,
    /// Chunks completed by that; they count among `chunks` too.
    pub repaired_chunks: u64,
    /// Time that the repairing took, as whoever has a clock measured it.
    pub decode_ns: u64,
    /// Chunks completed.
    pub chunks: u64,
    /// Packets whose bit was set already.
    pub duplicates: u64,
    /// Packets with a congestion mark.
    pub marked: u64,
    /// Packets thrown away, by [`Discard::index`].
    pub discarded: [u64; Discard::ALL.len()],
    /// One past the highest sequence number after the burst.
    pub next_psn: u64,
    /// Sequence numbers that were skipped when the highest moved on: a gap.
    pub gap: bool,
    /// Largest distance by which a packet that was missing came after a later
    /// one, in packets.
    pub reorder_packets: u64,
    /// Highest message number that a packet was placed for, and the lowest.
    pub touched: Option<(u64, u64)>,
    /// Whether a late packet came: the peer has not heard of a completion.
    pub late: bool,
}

impl BurstSummary {
    /// Whether any packet had the key. What has none may be noise, and is no sign of life.
    #[inline]
    pub fn is_of_the_peer(&self) -> bool {
        let discarded: u64 = self.discarded.iter().sum();
        let with_the_key = discarded - self.discarded[Discard::Key.index()];
        self.packets + self.duplicates + with_the_key > 0
    }

    /// A packet was placed for this message.
    #[inline]
    pub(crate) fn touch(&mut self, number: u64) {
        self.touched = Some(match self.touched {
            None => (number, number),
            Some((low, high)) => (low.min(number), high.max(number)),
        });
    }

    /// A parity packet of so many bytes came. Whether it came for the first time, as far as that
    /// is known.
    pub(crate) fn count_parity(&mut self, taken: Taken, bytes: u64) -> bool {
        if taken == Taken::Duplicate {
            self.duplicates += 1;
            return false;
        }
        self.packets += 1;
        self.parity_packets += 1;
        self.parity_bytes += bytes;
        // Of a finished message it is not known whether it came before.
        taken != Taken::Finished
    }
}
