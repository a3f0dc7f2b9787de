//! Finds whether payloads are sent faster copied behind their headers or gathered by the kernel.
//!
//! It depends on the processor, on the payloads' size and on what the receiver does with the caches
//! (see `packetize.rs`), so nothing but trying tells. A sender of large bursts times them: now and
//! then some in a row go the other way, and if those took less for a byte, by their median, that way
//! is taken from then on. A wrong choice, made while the host was slow, lasts until the next trial.
//! The two are tried for each power of two of the payload's size by itself.

use crate::clock::Clock;

/// Bursts in a row that a way is judged by.
const SPAN: usize = 16;
/// After so many spans the other way is tried for one: a 32nd, of what is a few per cent slower.
const TRY_EVERY: u32 = 31;
/// And for the first time after so many: whoever has just begun fills caches and windows.
const FIRST_TRY: u32 = 3;
/// What the other way has to save to be taken, of so many parts: less is noise.
const GAIN_PARTS: u64 = 32;
/// Shorter bursts are copied, and not judged by: a call costs more than they do.
const BURST_BYTES_MIN: usize = 32 << 10;
/// Payloads of less are copied: a piece of a gather list costs what they do.
const PAYLOAD_BYTES_MIN: usize = 1 << MIN_LOG;
/// Payloads of more are gathered: the second-level cache would not hold a bundle twice. (Zen 3:
/// copying 16,000 bytes is 3 % faster, 32,000 bytes 2 % slower.)
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1 << MAX_LOG;
const MIN_LOG: u32 = 10;
const MAX_LOG: u32 = 14;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Copying {
    clock: Clock,
    sizes: [Ways; (MAX_LOG - MIN_LOG + 1) as usize],
}

/// A burst that is being made and sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    /// Payloads that are not too large for it are copied.
    pub(crate) is_copied: bool,
    /// Which size of payloads, and when it began; `None` if it is not judged by.
    judged: Option<(usize, u64)>,
}

/// What is known of the two ways for payloads of about one size.
#[derive(Debug)]
struct Ways {
    /// The better one, as far as known.
    gathers: bool,
    /// The other one is being tried.
    is_trial: bool,
    /// Spans of the better one since a trial.
    spans: u32,
    /// Before a trial.
    spans_wanted: u32,
    /// Picoseconds a byte: of this span's bursts, and the better way's last median.
    costs: [u64; SPAN],
    bursts: usize,
    best: u64,
}

impl Copying {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, sizes: [const { Ways::new() }; _] }
    }

    /// How to send the next burst, of as many packets as wait, with payloads of about `payload_bytes`.
    pub(crate) fn start(&self, packets: usize, payload_bytes: impl FnOnce() -> usize) -> Timed {
        const UNJUDGED: Timed = Timed { is_copied: true, judged: None };
        // What most small messages are: not worth another look.
        if packets < BURST_BYTES_MIN / PAYLOAD_BYTES_MAX {
            return UNJUDGED;
        }
        let payload_bytes = payload_bytes();
        let is_short = payload_bytes.saturating_mul(packets) < BURST_BYTES_MIN;
        if is_short || !(PAYLOAD_BYTES_MIN..=PAYLOAD_BYTES_MAX).contains(&payload_bytes) {
            return UNJUDGED;
        }
        let size = (payload_bytes.ilog2() - MIN_LOG) as usize;
        let ways = &self.sizes[size];
        Timed {
            is_copied: ways.gathers == ways.is_trial,
            judged: Some((size, self.clock.now_ns())),
        }
    }

    /// The burst has left, all of it, with so many bytes.
    pub(crate) fn end(&mut self, timed: Timed, bytes: usize) {
        let Some((size, start_ns)) = timed.judged else { return };
        if bytes < BURST_BYTES_MIN {
            return;
        }
        let took_ns = self.clock.now_ns().saturating_sub(start_ns);
        self.sizes[size].on_burst(took_ns.saturating_mul(1000) / bytes as u64);
    }
}

impl Ways {
    const fn new() -> Self {
        Self {
            gathers: false,
            is_trial: false,
            spans: 0,
            spans_wanted: FIRST_TRY,
            costs: [0; SPAN],
            bursts: 0,
            best: 0,
        }
    }

    /// A burst took so much a byte.
    fn on_burst(&mut self, cost: u64) {
        self.costs[self.bursts] = cost;
        self.bursts += 1;
        if self.bursts < SPAN {
            return;
        }
        self.bursts = 0;
        let (_, median, _) = self.costs.select_nth_unstable(SPAN / 2);
        let median = *median;
        if self.is_trial {
            if median < self.best - self.best / GAIN_PARTS {
                self.gathers = !self.gathers;
            }
            (self.is_trial, self.spans, self.spans_wanted) = (false, 0, TRY_EVERY);
            return;
        }
        self.best = median;
        self.spans += 1;
        self.is_trial = self.spans >= self.spans_wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts with what a byte costs copied and gathered; how many of the last 1,000 were copied.
    fn copied(ways: &mut Ways, bursts: usize, costs: impl Fn(usize) -> (u64, u64)) -> usize {
        let mut copied = 0;
        for burst in 0..bursts {
            let is_copied = ways.gathers == ways.is_trial;
            copied += usize::from(is_copied && burst + 1000 >= bursts);
            let (if_copied, if_gathered) = costs(burst);
            ways.on_burst(if is_copied { if_copied } else { if_gathered });
        }
        copied
    }

    #[test]
    fn the_faster_way_is_found_and_the_other_tried_seldom() {
        for (costs, faster) in [((200, 150), 0), ((150, 200), 1000)] {
            let copied = copied(&mut Ways::new(), 5000, |_| costs);
            assert!(copied.abs_diff(faster) <= 1000 / 20, "{copied} of 1,000");
        }
    }

    #[test]
    fn what_becomes_slower_is_left() {
        let mut ways = Ways::new();
        assert!(copied(&mut ways, 5000, |_| (150, 200)) > 900);
        assert!(copied(&mut ways, 5000, |_| (150, 120)) < 100);
        assert!(copied(&mut ways, 5000, |_| (100, 120)) > 900);
    }

    #[test]
    fn a_difference_within_the_noise_and_a_few_late_bursts_change_nothing() {
        let late = |burst: usize| if burst.is_multiple_of(3) { 100_000 } else { 0 };
        assert!(copied(&mut Ways::new(), 9000, |burst| (200 + late(burst), 198)) > 900);
    }

    #[test]
    fn short_bursts_tiny_payloads_and_those_never_copied_are_not_judged() {
        let copying = Copying::new(Clock::new());
        let is_judged = |packets, bytes| copying.start(packets, || bytes).judged.is_some();
        assert!(!is_judged(10_000, 64));
        assert!(!is_judged(20, 1400) && is_judged(24, 1400));
        assert!(!is_judged(1, PAYLOAD_BYTES_MAX) && is_judged(2, PAYLOAD_BYTES_MAX));
        assert!(!is_judged(24, PAYLOAD_BYTES_MAX + 1));
    }
}
