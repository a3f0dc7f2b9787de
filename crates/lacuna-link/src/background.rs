//! Traffic of others on a link: bursts of packets that take the link's time and places in its queue, and that nobody
//! here receives.
//!
//! A source that is on and off: while it is on, it sends packets of [`PACKET_BYTES`] at the link's own rate, as hosts
//! behind a faster network do; so beside it a sender that uses half of the link already fills the queue. On and off
//! periods are uniform from 0 to twice their means. The source sends UDP, so to speak: it does not give way when packets
//! are lost, and it never takes more than its share in the mean.
//!
//! Nothing happens between packets of the link's user: when one enters, what the source has sent by then is admitted
//! first, at its own times. So there is no timer, and the same seed gives the same bursts.

use crate::{Link, Prng};

/// Of each packet of the source, from its IP header on.
const PACKET_BYTES: u64 = 1500;

/// Most packets that are admitted at a time. After a longer silence of the link's user the source begins anew: all that
/// is left of its packets by then is what the queue holds.
const PACKETS_MAX: u64 = 1 << 16;

const PPM: u64 = 1_000_000;

/// How much traffic others send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// Its share of the link's rate in the mean, in millionths, within 1 and [`Background::SHARE_PPM_MAX`].
    pub share_ppm: u32,
    /// How long it is on at a time, in the mean; at least [`Background::BURST_NS_MIN`].
    pub burst_ns: u64,
}

impl Background {
    /// More leaves the link's user less than what bursts leave room for.
    pub const SHARE_PPM_MAX: u32 = 950_000;
    /// Shorter bursts are single packets.
    pub const BURST_NS_MIN: u64 = 10_000;
    /// Some ten milliseconds: a web page's worth at 1 Gbit/s.
    pub const BURST_NS: u64 = 10_000_000;

    /// Whether it is within bounds.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        (1..=Self::SHARE_PPM_MAX).contains(&self.share_ppm)
            && (Self::BURST_NS_MIN..=1 << 40).contains(&self.burst_ns)
    }

    fn pause_ns(&self) -> u64 {
        let (share, burst) = (u64::from(self.share_ppm), u128::from(self.burst_ns));
        u64::try_from(burst * u128::from(PPM - share) / u128::from(share)).unwrap_or(u64::MAX / 4)
    }
}

/// What the source has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackgroundCounters {
    /// Packets.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
}

/// The source; see the module's text.
#[derive(Debug)]
pub(crate) struct Source {
    config: Background,
    prng: Prng,
    /// When the next packet is sent, …
    next_ns: u64,
    /// … unless the period is over by then.
    until_ns: u64,
    counters: BackgroundCounters,
}

impl Source {
    pub(crate) fn new(config: Background, prng: Prng) -> Self {
        let counters = BackgroundCounters::default();
        Self { config, prng, next_ns: 0, until_ns: 0, counters }
    }

    pub(crate) fn counters(&self) -> BackgroundCounters {
        self.counters
    }

    /// Admits what it has sent until `now_ns` to a link of this rate.
    pub(crate) fn admit(&mut self, now_ns: u64, link: &mut Link, overhead_bytes: u32) {
        let charge_bytes = PACKET_BYTES + u64::from(overhead_bytes);
        let packet_ns = (charge_bytes * 8_000_000_000).div_ceil(link.rate_bits_per_s()).max(1);
        let oldest_ns = now_ns.saturating_sub(packet_ns.saturating_mul(PACKETS_MAX));
        if self.next_ns < oldest_ns {
            (self.next_ns, self.until_ns) = (oldest_ns, oldest_ns);
        }
        while self.next_ns <= now_ns {
            if self.next_ns >= self.until_ns {
                let pause_ns = self.prng.up_to(2 * self.config.pause_ns());
                let burst_ns = self.prng.up_to(2 * self.config.burst_ns);
                self.next_ns = self.until_ns.saturating_add(pause_ns);
                self.until_ns = self.next_ns.saturating_add(burst_ns);
                continue;
            }
            self.counters.sent_packets += 1;
            self.counters.sent_bytes += PACKET_BYTES;
            self.counters.dropped += u64::from(link.admit(self.next_ns, charge_bytes).is_none());
            self.next_ns += packet_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;

    fn source(share_ppm: u32) -> Source {
        let config = Background { share_ppm, burst_ns: 1_000_000 };
        assert!(config.is_possible());
        Source::new(config, Prng::new(7, 0))
    }

    #[test]
    fn it_takes_its_share_of_the_link_in_the_mean() {
        for share_ppm in [50_000, 300_000, 900_000] {
            let (mut source, mut link) = (source(share_ppm), Link::new(GBIT, 1 << 20));
            // 60 s, looked at each 100 us.
            for tick in 0..600_000 {
                source.admit(tick * 100_000, &mut link, 0);
            }
            let share = source.counters().sent_bytes as f64 * 8.0 / 60e9;
            let expected = f64::from(share_ppm) / 1e6;
            assert!((share / expected - 1.0).abs() < 0.04, "{share} of {expected}");
            assert_eq!(source.counters().dropped, 0, "it does not exceed the link by itself");
        }
    }

    #[test]
    fn it_comes_in_bursts_that_fill_the_queue_of_who_sends_beside_it() {
        let (mut source, mut link) = (source(300_000), Link::new(GBIT, 1 << 30));
        let mut longest = 0;
        let mut empty = 0;
        for tick in 0..100_000 {
            let now_ns = tick * 20_000;
            source.admit(now_ns, &mut link, 0);
            // Half of the rate, evenly.
            link.admit(now_ns, 1250);
            longest = link.waiting_bytes(now_ns).max(longest);
            empty += u32::from(link.waiting_bytes(now_ns) == 0);
        }
        assert!(longest > 50_000 && empty > 20_000, "{longest} bytes at most, {empty} times empty");
    }

    #[test]
    fn a_long_silence_costs_no_more_than_a_short_one() {
        let (mut source, mut link) = (source(900_000), Link::new(GBIT, 1 << 20));
        source.admit(3600 * GBIT, &mut link, 0);
        let sent_packets = source.counters().sent_packets;
        assert!((1..=PACKETS_MAX + 1).contains(&sent_packets), "{sent_packets}");
    }

    #[test]
    fn the_same_seed_sends_the_same_whenever_it_is_asked() {
        let ask = |tick_ns: u64| {
            let (mut source, mut link) = (source(300_000), Link::new(GBIT, 1 << 20));
            (0..=GBIT / 2 / tick_ns).for_each(|tick| source.admit(tick * tick_ns, &mut link, 0));
            source.counters()
        };
        assert_eq!(ask(1_000), ask(10_000_000));
    }

    #[test]
    fn what_leaves_nothing_or_is_nothing_is_impossible() {
        for (share_ppm, burst_ns) in [(0, 1 << 20), (960_000, 1 << 20), (1, 9_999)] {
            assert!(!Background { share_ppm, burst_ns }.is_possible());
        }
    }
}
