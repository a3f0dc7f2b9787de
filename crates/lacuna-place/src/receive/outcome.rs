//! How a receive goes and how it ended: when its packets arrived, why it is over, how much arrived; and
//! the zeros for what did not.
//!
//! The protocol writes times and reason under its lock; any thread reads them without one. Placing has
//! no clock: a worker only leaves a mark that it placed packets, and the protocol gives the mark the
//! time of the burst.

use super::Receive;
use crate::reason::Reason;
use crate::sync::Ordering;

impl Receive {
    /// Leaves the mark that packets were placed.
    #[inline]
    pub(crate) fn touch(&self) {
        self.live.touched.store(1, Ordering::Relaxed);
    }

    /// Whether packets were placed since the last call.
    #[inline]
    pub fn take_touched(&self) -> bool {
        // Two accesses instead of one read-modify-write: a mark that another worker sets in between is
        // the mark of a burst that is being reported now, too.
        if self.live.touched.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.live.touched.store(0, Ordering::Relaxed);
        true
    }

    /// Notes the arrival of packets at this time, on the owner's clock.
    #[inline]
    pub fn note_arrival(&self, now_ns: u64) {
        if self.live.first_ns.load(Ordering::Relaxed) == 0 {
            self.live.first_ns.store(now_ns + 1, Ordering::Relaxed);
        }
        self.live.last_ns.store(now_ns + 1, Ordering::Relaxed);
    }

    /// When the first packet arrived, on the owner's clock.
    pub fn first_arrival_ns(&self) -> Option<u64> {
        self.live.first_ns.load(Ordering::Relaxed).checked_sub(1)
    }

    /// When the last packet arrived so far, on the owner's clock. Copies of packets do not count.
    pub fn last_arrival_ns(&self) -> Option<u64> {
        self.live.last_ns.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Notes why the receive is over; only the first reason counts.
    #[inline]
    pub fn end_by(&self, reason: Reason) {
        // Only the protocol ends receives, under its lock.
        if self.live.reason.load(Ordering::Relaxed) == 0 {
            self.live.reason.store(reason as u8, Ordering::Release);
        }
    }

    /// Why the receive is over; `None` while it is not.
    #[inline]
    pub fn reason(&self) -> Option<Reason> {
        let code = usize::from(self.live.reason.load(Ordering::Acquire));
        Reason::ALL.get(code.wrapping_sub(1)).copied()
    }

    /// Packets whose bytes are here, repaired ones included; copies count once.
    pub fn placed_packets(&self) -> u32 {
        let set = self.packet_bits().iter().map(|word| word.load(Ordering::Acquire).count_ones());
        set.sum()
    }

    /// Bytes of the message that are here; copies count once.
    pub fn placed_bytes(&self) -> u64 {
        let full = u64::from(self.placed_packets()) * u64::from(self.geometry.mtu_bytes());
        // Only the message's last packet may be short.
        match self.length_bytes().map(|length| (length, self.geometry.packets(length) - 1)) {
            Some((length, last)) if self.has_packet(last) => {
                let end = (u64::from(last) + 1) * u64::from(self.geometry.mtu_bytes());
                full - (end - length)
            }
            _ => full,
        }
    }

    /// Whether a packet came that carried a fragment of an immediate.
    pub fn says_immediate(&self) -> bool {
        self.live.carries_immediate.load(Ordering::Acquire) != 0
    }

    /// A word of the packet bitmap, for readers: packet `i` is bit `i % 64` of word `i / 64`. 0 beyond
    /// the buffer.
    pub fn packets_here(&self, word: u32) -> u64 {
        let word = self.packet_bits().get(word as usize);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Zeroes the bytes of packets that did not arrive, up to the end of the message, or of the buffer if
    /// the end is not known. Returns how many bytes that are. To be called once the slot is closed, which
    /// the exclusive borrow shows: the table holds a reference until then.
    pub fn zero_missing(&mut self) -> u64 {
        let limit = self.limit_bytes();
        let mtu_bytes = u64::from(self.geometry.mtu_bytes());
        let packets = self.geometry.packets(limit);
        let mut zeroed = 0;
        let mut packet = 0;
        while packet < packets {
            let bits = self.packets_here(packet / 64) >> (packet % 64);
            // Whole runs of missing packets are zeroed at once.
            let here = (!bits).trailing_zeros().min(64 - packet % 64);
            if here > 0 {
                packet += here;
                continue;
            }
            let missing = bits.trailing_zeros().min(64 - packet % 64).min(packets - packet);
            let start = u64::from(packet) * mtu_bytes;
            let end = (start + u64::from(missing) * mtu_bytes).min(limit);
            self.placement.zero(start as usize, (end - start) as usize);
            zeroed += end - start;
            packet += missing;
        }
        zeroed
    }
}
