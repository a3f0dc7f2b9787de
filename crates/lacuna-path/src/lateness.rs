//! How late packets come: for a receiver that repairs nothing, the time that it waits for packets which
//! the path has reordered.
//!
//! A packet is late by the time from the arrival of the first packet behind it to its own. The marks of
//! a channel tell when its highest sequence number reached which value; a packet that arrives behind the
//! highest number finds its place among them. The window is the greatest lateness of late, with a
//! quarter on top, and 0 where no packet was ever late: then a gap is a loss at once. (The sender's
//! counterpart, which decides about repairs, is `reordering`.)
//!
//! A copy of an old packet looks like a late one, so the window is at most a round trip.

use crate::small_vec::SmallVec;

/// Marks of a channel. With [`SPACINGS_PER_RTT`] they reach two round trips back.
const MARKS: usize = 32;
/// Shortest time between marks as a part of the round trip.
const SPACINGS_PER_RTT: u64 = 16;
/// Round trip that is assumed while none is known.
const UNKNOWN_RTT_NS: u64 = 100_000_000;
/// The greatest lateness is forgotten after one to two of these. A judgement: a path whose reordering
/// has ended costs the grace for so much longer.
const MEMORY_NS: u64 = 30_000_000_000;

/// When the highest number of a channel passed which values.
#[derive(Debug, Clone)]
struct Marks {
    /// One past the highest number, and when that was reached; a ring.
    ring: [(u64, u64); MARKS],
    /// Index of the newest mark.
    newest: usize,
    /// Marks in use.
    len: usize,
}

impl Marks {
    fn new() -> Self {
        Self { ring: [(0, 0); MARKS], newest: 0, len: 0 }
    }

    fn advance(&mut self, now_ns: u64, next_psn: u64, spacing_ns: u64) {
        let (psn_end, since_ns) = &mut self.ring[self.newest];
        if self.len > 0 && next_psn <= *psn_end {
            return;
        }
        if self.len > 0 && now_ns < *since_ns + spacing_ns {
            // The time stays that of the interval's start, so lateness is rounded up.
            *psn_end = next_psn;
            return;
        }
        self.newest = (self.newest + 1) % MARKS;
        self.ring[self.newest] = (next_psn, now_ns);
        self.len = (self.len + 1).min(MARKS);
    }

    /// When the highest number passed `psn`; `None` if that is longer ago than the marks reach.
    fn passed_ns(&self, psn: u64) -> Option<u64> {
        let mut found = None;
        for back in 0..self.len {
            let (psn_end, at_ns) = self.ring[(self.newest + MARKS - back) % MARKS];
            if psn_end <= psn {
                return found;
            }
            found = Some(at_ns);
        }
        // All marks are behind the packet, so it may be older than they reach.
        None
    }
}

/// Lateness of the packets of all channels.
#[derive(Debug, Clone)]
pub struct Lateness {
    channels: SmallVec<Marks>,
    /// The greatest lateness since `since_ns`, and in the time before that.
    worst_ns: u64,
    before_ns: u64,
    since_ns: u64,
}

impl Lateness {
    /// Nothing came yet.
    pub fn new(channels: u8) -> Self {
        let channels = (0..channels.max(1)).map(|_| Marks::new()).collect();
        Self { channels, worst_ns: 0, before_ns: 0, since_ns: 0 }
    }

    /// Takes in a burst: one past the highest number of the channel after it, and the most packets by
    /// which one of its packets was behind the highest number; 0 if none was.
    pub fn on_burst(
        &mut self,
        now_ns: u64,
        channel: u8,
        next_psn: u64,
        behind_packets: u64,
        srtt_ns: Option<u64>,
    ) {
        if now_ns >= self.since_ns + MEMORY_NS {
            self.before_ns = std::mem::take(&mut self.worst_ns);
            self.since_ns = now_ns;
        }
        let Some(marks) = self.channels.get_mut(usize::from(channel)) else { return };
        let rtt_ns = srtt_ns.unwrap_or(UNKNOWN_RTT_NS);
        if behind_packets > 0
            && let Some(psn) = next_psn.checked_sub(behind_packets + 1)
            && let Some(passed_ns) = marks.passed_ns(psn)
        {
            self.worst_ns = self.worst_ns.max(now_ns.saturating_sub(passed_ns).min(rtt_ns));
        }
        marks.advance(now_ns, next_psn, rtt_ns / SPACINGS_PER_RTT);
    }

    /// How long to wait for packets that the path may have reordered.
    pub fn window_ns(&self) -> u64 {
        let worst_ns = self.worst_ns.max(self.before_ns);
        worst_ns + worst_ns / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RTT: Option<u64> = Some(40 * MS);

    #[test]
    fn a_path_that_keeps_the_order_needs_no_window() {
        let mut lateness = Lateness::new(1);
        for psn in 1..1000 {
            lateness.on_burst(psn * MS, 0, psn, 0, RTT);
        }
        assert_eq!(lateness.window_ns(), 0);
    }

    #[test]
    fn the_window_is_the_greatest_lateness_and_a_quarter() {
        let mut lateness = Lateness::new(2);
        for psn in 1..=100 {
            lateness.on_burst(psn * MS, 1, psn, 0, RTT);
        }
        // Number 89, the 11th from the end, was passed when 90 of them were here.
        lateness.on_burst(100 * MS, 1, 100, 10, RTT);
        let exact_ns = 10 * MS + 10 * MS / 4;
        let spacing_ns = 40 * MS / SPACINGS_PER_RTT;
        let window_ns = lateness.window_ns();
        assert!((exact_ns..=exact_ns + 2 * spacing_ns).contains(&window_ns), "{window_ns}");
    }

    #[test]
    fn a_very_old_packet_is_a_copy() {
        let mut lateness = Lateness::new(1);
        for psn in 1..=1000 {
            lateness.on_burst(psn * MS, 0, psn, 0, RTT);
        }
        lateness.on_burst(1000 * MS, 0, 1000, 900, RTT);
        assert_eq!(lateness.window_ns(), 0);
    }

    #[test]
    fn lateness_is_forgotten() {
        let mut lateness = Lateness::new(1);
        for psn in 1..=20 {
            lateness.on_burst(psn * MS, 0, psn, 0, RTT);
        }
        lateness.on_burst(20 * MS, 0, 20, 3, RTT);
        assert!(lateness.window_ns() > 0);
        for second in 1..=90 {
            lateness.on_burst(second * 1000 * MS, 0, 20 + second, 0, RTT);
        }
        assert_eq!(lateness.window_ns(), 0);
    }
}
