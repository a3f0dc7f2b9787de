//! What one direction of a path did.

/// What one direction of a path has done so far. Packets are those on the wire, not bundles; bytes
/// count from the IP header on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WayCounters {
    /// What the host sent.
    pub sent_packets: u64,
    /// The same in bytes.
    pub sent_bytes: u64,
    /// What the other host got, copies included.
    pub delivered_packets: u64,
    /// The same in bytes.
    pub delivered_bytes: u64,
    /// Packets lost at random or by the recording.
    pub lost: u64,
    /// In how many runs of packets that followed each other.
    pub loss_bursts: u64,
    /// Packets that found the queue full.
    pub queue_dropped: u64,
    /// Packets for which the emulator had no memory: [`WayConfig::HELD_BYTES_MAX`] is in flight.
    ///
    /// [`WayConfig::HELD_BYTES_MAX`]: super::WayConfig::HELD_BYTES_MAX
    pub held_dropped: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets held back for others to pass.
    pub reordered: u64,
    /// Packets with a bit flipped.
    pub corrupted: u64,
    /// Packets marked with CE.
    pub marked: u64,
    /// Packets that the other host's kernel refused: damaged headers, most likely.
    pub refused: u64,
    /// Frames that were no packets or could not be cut.
    pub malformed_frames: u64,
    /// Packets for neighbours only, which no router forwards. Not part of what was sent.
    pub link_local: u64,
    /// The most that waited in front of the link, as the link charges it.
    pub queue_bytes_max: u64,
    /// How long packets waited in front of the link, together …
    pub queue_ns_sum: u64,
    /// … and at most.
    pub queue_ns_max: u64,
}

impl WayCounters {
    /// How many packets passed the queue.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.sent_packets - self.lost - self.queue_dropped - self.held_dropped
    }

    /// The mean time a packet waited in front of the link.
    #[must_use]
    pub fn queue_ns_mean(&self) -> f64 {
        self.queue_ns_sum as f64 / self.admitted().max(1) as f64
    }
}
