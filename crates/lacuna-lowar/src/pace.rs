//! How long a gap may stay open: a flow's spacing and lateness, measured.
//!
//! The paper's reordering buffer has a timeout without a value. Here it is the time until the block's last
//! repair could be here: (packets of the block left + c) times the spacing of the flow's packets, the longest
//! *pause* between two of them lately, since hosts send and receive in bundles, and the *reordering window*,
//! which is how late packets have been lately: zero until one was. The caller caps it: what the connection
//! above has waited for is late by so much.

/// Packets that share of the measured spacing: an exponential average.
const SPACING_SHARE: u64 = 8;
/// Spacing is a mean; a gap may see twice as much.
const SPACING_MARGIN: u64 = 2;
/// Added to a patience, for a caller's timers.
const PATIENCE_MARGIN_NS: u64 = 50_000;
/// Of window and pause, lost with each block: they halve in about 180.
const DECAY: u64 = 256;

/// Measured times of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    last_ns: Option<u64>,
    spacing_ns: Option<u64>,
    pause_ns: u64,
    window_ns: u64,
}

impl Pace {
    /// A packet has come in order; after more than `pause_ns_max` the flow has paused by itself.
    #[inline]
    pub(crate) fn on_packet(&mut self, now_ns: u64, pause_ns_max: u64) {
        if let Some(last_ns) = self.last_ns {
            let interval_ns = now_ns.saturating_sub(last_ns);
            if interval_ns <= pause_ns_max {
                self.pause_ns = self.pause_ns.max(interval_ns);
                self.spacing_ns = Some(match self.spacing_ns {
                    None => interval_ns,
                    Some(mean) => mean - mean / SPACING_SHARE + interval_ns / SPACING_SHARE,
                });
            }
        }
        self.last_ns = Some(now_ns);
    }

    /// A packet was overtaken by another one that came this much earlier.
    pub(crate) fn on_late(&mut self, late_ns: u64, late_ns_max: u64) {
        let late_ns = late_ns.min(late_ns_max);
        self.window_ns = self.window_ns.max(late_ns + late_ns / 4).min(late_ns_max);
    }

    /// A block is over.
    #[inline]
    pub(crate) fn on_block(&mut self) {
        self.window_ns -= self.window_ns.div_ceil(DECAY);
        self.pause_ns -= self.pause_ns.div_ceil(DECAY);
    }

    /// The reordering window.
    pub(crate) fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// How long to wait for so many packets.
    pub(crate) fn patience_ns(&self, packets: u64, patience_ns_max: u64) -> u64 {
        let Some(spacing_ns) = self.spacing_ns else { return patience_ns_max };
        (SPACING_MARGIN * packets)
            .saturating_mul(spacing_ns)
            .saturating_add(self.window_ns + self.pause_ns + PATIENCE_MARGIN_NS)
            .min(patience_ns_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_NS: u64 = 10_000_000;

    #[test]
    fn patience_is_the_cap_until_spacing_was_measured() {
        let mut pace = Pace::default();
        assert_eq!(pace.patience_ns(10, MAX_NS), MAX_NS);
        for at in 0..100 {
            pace.on_packet(1_000 * at, MAX_NS);
        }
        let patience_ns = 20_000 + 1_000 + PATIENCE_MARGIN_NS;
        assert_eq!(pace.patience_ns(10, MAX_NS), patience_ns);
        pace.on_packet(1_000_000_000, MAX_NS);
        assert_eq!(pace.patience_ns(10, MAX_NS), patience_ns, "the flow had paused");
        assert_eq!(pace.patience_ns(u64::MAX / 4, MAX_NS), MAX_NS);
    }

    #[test]
    fn packets_that_come_in_bundles_are_waited_for_until_the_next_bundle() {
        let mut pace = Pace::default();
        for bundle in 0..100 {
            (0..64).for_each(|_| pace.on_packet(500_000 * bundle, MAX_NS));
            pace.on_block();
        }
        assert!(pace.patience_ns(1, MAX_NS) > 500_000);
    }

    #[test]
    fn the_window_opens_with_a_late_packet_and_closes_block_by_block() {
        let mut pace = Pace::default();
        assert_eq!(pace.window_ns(), 0);
        pace.on_late(4_000, MAX_NS);
        assert_eq!(pace.window_ns(), 5_000);
        (0..180).for_each(|_| pace.on_block());
        assert!((2_000..3_000).contains(&pace.window_ns()), "{}", pace.window_ns());
        (0..10_000).for_each(|_| pace.on_block());
        assert_eq!(pace.window_ns(), 0);
        pace.on_late(u64::MAX, MAX_NS);
        assert_eq!(pace.window_ns(), MAX_NS);
    }
}
