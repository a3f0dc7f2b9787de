//! Counters of one direction of a path.

/// Counters of one direction of a path. Packets are those on the wire, not bundles; bytes include the
/// IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WayCounters {
    /// Packets that the host sent.
    pub sent_packets: u64,
    /// Bytes that the host sent.
    pub sent_bytes: u64,
    /// Packets that the other host received, duplicates included.
    pub delivered_packets: u64,
    /// Bytes that the other host received, duplicates included.
    pub delivered_bytes: u64,
    /// Packets lost at random or by the trace.
    pub lost: u64,
    /// Bursts of consecutive losses.
    pub loss_bursts: u64,
    /// Packets that found the queue full.
    pub queue_dropped: u64,
    /// Packets for which the emulator had no memory: [`WayConfig::HELD_BYTES_MAX`] is in flight.
    ///
    /// [`WayConfig::HELD_BYTES_MAX`]: super::WayConfig::HELD_BYTES_MAX
    pub held_dropped: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets held back, so that later ones overtook them.
    pub reordered: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets marked with CE.
    pub marked: u64,
    /// Packets that the other host's kernel refused: damaged headers, most likely.
    pub refused: u64,
    /// Frames that were no packets or could not be cut.
    pub malformed_frames: u64,
    /// Link-local multicast packets, which no router forwards. Not counted as sent.
    pub link_local: u64,
    /// Packets of others that were sent over the link.
    pub background_packets: u64,
    /// Those of them that found the queue full.
    pub background_dropped: u64,
    /// The longest queue, overhead included.
    pub queue_bytes_max: u64,
    /// Time that packets waited in the queue: the sum …
    pub queue_ns_sum: u64,
    /// … and the longest.
    pub queue_ns_max: u64,
}

impl WayCounters {
    /// How many packets passed the queue.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.sent_packets - self.lost - self.queue_dropped - self.held_dropped
    }

    /// The mean time that a packet waited in the queue.
    #[must_use]
    pub fn queue_ns_mean(&self) -> f64 {
        self.queue_ns_sum as f64 / self.admitted().max(1) as f64
    }
}
