//! The counts of one burst, which the placer hands to the queue pair.

use crate::discard::Discard;
use crate::parity::ParityOutcome;

/// The counts of one burst of packets of one queue pair on one channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BurstSummary {
    /// Packets that arrived for the first time, parity included.
    pub packets: u64,
    /// Payload bytes placed for the first time.
    pub bytes: u64,
    /// Parity packets among `packets`.
    pub parity_packets: u64,
    /// Payload bytes of the parity packets.
    pub parity_bytes: u64,
    /// Packets that were lost and repaired with parity.
    pub repaired_packets: u64,
    /// Chunks completed by repairs; `chunks` includes them.
    pub repaired_chunks: u64,
    /// Time of the repairs, measured by the caller, which has a clock.
    pub decode_ns: u64,
    /// Chunks completed.
    pub chunks: u64,
    /// Packets whose bit was set already.
    pub duplicates: u64,
    /// Packets with a congestion mark.
    pub marked: u64,
    /// Discarded packets, by [`Discard::index`].
    pub discarded: [u64; Discard::ALL.len()],
    /// Whether any packet was discarded, which is rare.
    pub has_discarded: bool,
    /// One past the highest sequence number after the burst.
    pub next_psn: u64,
    /// Whether the burst skipped sequence numbers.
    pub gap: bool,
    /// Reordering distance: the most packets by which a missing packet arrived after a later one.
    pub reorder_packets: u64,
    /// The same for packets that arrived after their message was over: the most by which one was behind.
    pub late_packets: u64,
    /// Lowest and highest number of the messages that packets were placed for.
    pub touched: Option<(u64, u64)>,
    /// A message of which a packet may not be placed, though it names a key that the peer has or had: the
    /// right is missing, the key was revoked, or the place is outside of its range.
    pub refused: Option<u64>,
    /// Whether a late packet arrived: the peer has not learned of a completion.
    pub late: bool,
}

impl BurstSummary {
    /// Whether any packet had the remote key, or the key of a region that it may use. Packets without
    /// it may come from a third party, so they do not show that the peer is alive.
    #[inline]
    pub fn is_of_the_peer(&self) -> bool {
        self.packets + self.duplicates > 0 || self.has_discarded_with_the_key()
    }

    #[cold]
    fn has_discarded_with_the_key(&self) -> bool {
        let without = [Discard::Key, Discard::UnknownKey, Discard::Scope, Discard::Guesses];
        let mut with = Discard::ALL.iter().filter(|reason| !without.contains(reason));
        with.any(|reason| self.discarded[reason.index()] > 0)
    }

    /// Counts a discarded packet.
    pub(crate) fn discard(&mut self, reason: Discard) {
        self.discarded[reason.index()] += 1;
        self.has_discarded = true;
    }

    /// Counts a message that a packet was placed for.
    #[inline]
    pub(crate) fn touch(&mut self, number: u64) {
        self.touched = Some(match self.touched {
            None => (number, number),
            Some((low, high)) => (low.min(number), high.max(number)),
        });
    }

    /// Counts a parity packet of `bytes` bytes. Returns whether it is known to be the first copy.
    pub(crate) fn count_parity(&mut self, outcome: ParityOutcome, bytes: u64) -> bool {
        if outcome == ParityOutcome::Duplicate {
            self.duplicates += 1;
            return false;
        }
        self.packets += 1;
        self.parity_packets += 1;
        self.parity_bytes += bytes;
        // The record of a finished message is gone, so duplicates cannot be told.
        outcome != ParityOutcome::Finished
    }
}
