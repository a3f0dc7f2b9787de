//! Lets packets of a fast flow lie in their socket until there are many.
//!
//! A receiver that keeps up with its sender takes every bundle as it comes, and the kernel hands
//! the pages just freed to the sender's next bundle. Each of their lines is then in both cores'
//! caches, and to write it the sender has to take it away from the receiver, which on some
//! processors (Zen 4) costs more than to fetch it from the third-level cache: 4,096 bytes written
//! into a ring that another core reads take 445 ns if the ring is up to 512 KiB, 270 from 2 MiB on.
//! A receiver that is a step behind makes the ring of pages larger. With `lacuna perf`, 8 MiB messages
//! and packets of 8,192 bytes, that is 32.5 for 28.4 Gbit/s; piles of 1 MiB instead of half are no better.
//!
//! What it must not do is make anybody wait at the end of a flow. So only a flow that has brought
//! much, fast, is let lie; the socket is asked how much lies there, and when that stops growing it is
//! taken at once, and the flow trusted less from then on.

/// A flow has to bring so much before any of it is let lie: a message of a few megabytes is over
/// before.
const FLOW_BYTES: u64 = 4 << 20;
/// From pile to pile, with each that became as high as it was to be half of that, down to this;
const BETWEEN_BYTES: u64 = 128 << 10;
/// with each that stopped growing eight times as much, up to this. So of messages of a megabyte that
/// are waited for one by one few come late, one in 600 in the test below. (With an eighth for half,
/// and 64 MiB here, one in 20 did.) A flow that goes on after all has to bring 2 GiB until it is
/// trusted as before, half a second at 35 Gbit/s.
const FLOW_BYTES_MAX: u64 = 1 << 30;
/// A slower flow is not let lie: its sender has other costs. 8 Gbit/s.
const BYTES_PER_US_MIN: u64 = 1000;
/// How high a pile is to be, by the kernel's accounting.
const HIGH_BYTES: u64 = 512 << 10;
/// And in parts of the socket's buffer, of which the rest is for what comes meanwhile.
const BUFFER_PART: u64 = 8;
/// A pile that would be lower than that is not worth it.
const LOW_BYTES: u64 = 256 << 10;
/// The longest that anything is let lie.
const LIES_NS: u64 = 350_000;
/// In the time that the flow takes for so many bytes a pile has to grow: five bundles of segmentation
/// offload. With two and a half, of which two leave together, one pile in four was taken for the
/// end of a flow that had none.
const GROWS_BYTES: u64 = 320 << 10;

/// See the module's text.
#[derive(Debug)]
pub(in crate::udp) struct Pile {
    high_bytes: u64,
    /// What the flow has to bring before its packets are let lie.
    wanted_bytes: u64,
    /// Since when it is counted, and what it has brought.
    began_ns: u64,
    bytes: u64,
    lying: Option<Lying>,
}

#[derive(Debug)]
struct Lying {
    since_ns: u64,
    /// When the pile was last seen to have grown, and how high it was then.
    grown_ns: u64,
    queued_bytes: u64,
    /// In how long it has to grow.
    patience_ns: u64,
    /// When to ask again.
    look_ns: u64,
}

impl Pile {
    /// For a socket with a buffer of `buffer_bytes` by the kernel's accounting.
    pub(in crate::udp) fn new(buffer_bytes: usize) -> Self {
        let high_bytes = (buffer_bytes as u64 / BUFFER_PART).min(HIGH_BYTES);
        Self { high_bytes, wanted_bytes: FLOW_BYTES, began_ns: 0, bytes: 0, lying: None }
    }

    /// So many bytes were taken, and that was all if `is_drained`.
    pub(in crate::udp) fn on_taken(&mut self, now_ns: u64, bytes: usize, is_drained: bool) {
        if self.high_bytes < LOW_BYTES {
            return;
        }
        self.bytes += bytes as u64;
        let took_ns = now_ns.saturating_sub(self.began_ns);
        if self.bytes < took_ns / 1000 * BYTES_PER_US_MIN {
            // Too slow, or it has paused.
            (self.began_ns, self.bytes) = (now_ns, 0);
            return;
        }
        if is_drained && self.bytes >= self.wanted_bytes {
            let bytes_per_us = self.bytes / (took_ns / 1000 + 1);
            let patience_ns = GROWS_BYTES * 1000 / bytes_per_us.max(1);
            self.lying = Some(Lying {
                since_ns: now_ns,
                grown_ns: now_ns,
                queued_bytes: 0,
                patience_ns,
                look_ns: now_ns + patience_ns / 4,
            });
            (self.began_ns, self.bytes) = (now_ns, 0);
        }
    }

    /// Whether to leave what is there. `queued_bytes` asks the socket how much that is.
    pub(in crate::udp) fn lies(
        &mut self,
        now_ns: u64,
        queued_bytes: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let Some(lying) = &mut self.lying else { return false };
        if now_ns < lying.look_ns {
            return true;
        }
        let queued_bytes = queued_bytes().unwrap_or(u64::MAX);
        if queued_bytes > lying.queued_bytes {
            (lying.grown_ns, lying.queued_bytes) = (now_ns, queued_bytes);
        }
        let is_high =
            queued_bytes >= self.high_bytes || now_ns.saturating_sub(lying.since_ns) >= LIES_NS;
        let is_over = now_ns.saturating_sub(lying.grown_ns) >= lying.patience_ns;
        if is_high {
            self.wanted_bytes = (self.wanted_bytes / 2).max(BETWEEN_BYTES);
        } else if is_over {
            self.wanted_bytes = (self.wanted_bytes * 8).min(FLOW_BYTES_MAX);
        } else {
            lying.look_ns = now_ns + lying.patience_ns / 4;
            return true;
        }
        self.lying = None;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER_BYTES: usize = 32 << 20;
    /// One bundle, and how long the flow takes for it: 31 Gbit/s.
    const BUNDLE_BYTES: usize = 61_800;
    const BUNDLE_NS: u64 = 16_000;

    /// Takes bundles one by one until some are let lie; when that is, or `None` if not within `bytes`.
    fn flow(pile: &mut Pile, mut now_ns: u64, bundle_ns: u64, bytes: u64) -> Option<u64> {
        for _ in 0..bytes / BUNDLE_BYTES as u64 {
            assert!(!pile.lies(now_ns, || panic!("not asked while nothing is let lie")));
            pile.on_taken(now_ns, BUNDLE_BYTES, true);
            if pile.lying.is_some() {
                return Some(now_ns);
            }
            now_ns += bundle_ns;
        }
        None
    }

    /// Looks every microsecond while a pile grows by `bundles` and then no more; how long it lay,
    /// and how high it was.
    fn lie(pile: &mut Pile, since_ns: u64, bundles: u64) -> (u64, u64) {
        for now_ns in (since_ns..).step_by(1000) {
            let queued = ((now_ns - since_ns) / BUNDLE_NS).min(bundles) * BUNDLE_BYTES as u64;
            if !pile.lies(now_ns, || Some(queued)) {
                return (now_ns - since_ns, queued);
            }
        }
        unreachable!()
    }

    #[test]
    fn a_fast_flow_is_let_lie_until_the_pile_is_high() {
        let mut pile = Pile::new(BUFFER_BYTES);
        assert_eq!(flow(&mut pile, 0, BUNDLE_NS, FLOW_BYTES), None, "it may be over before");
        let mut since_ns = flow(&mut pile, 1_100_000, BUNDLE_NS, 1 << 20).unwrap();
        let mut brought = Vec::new();
        for _ in 0..6 {
            let (lay_ns, high) = lie(&mut pile, since_ns, u64::MAX);
            let slack = 2 * GROWS_BYTES;
            assert!((HIGH_BYTES..HIGH_BYTES + slack).contains(&high), "{high} bytes");
            assert!(lay_ns <= LIES_NS);
            let taken_ns = since_ns + lay_ns;
            since_ns = flow(&mut pile, taken_ns, BUNDLE_NS, FLOW_BYTES).unwrap();
            brought.push(since_ns - taken_ns);
        }
        assert!(brought.is_sorted_by(|earlier, later| earlier >= later), "{brought:?}");
        assert!(brought[5] <= 3 * BUNDLE_NS, "{brought:?}");
    }

    #[test]
    fn a_pile_that_stops_growing_is_taken_and_the_flow_trusted_less() {
        let mut pile = Pile::new(BUFFER_BYTES);
        let since_ns = flow(&mut pile, 0, BUNDLE_NS, 2 * FLOW_BYTES).unwrap();
        let (lay_ns, _) = lie(&mut pile, since_ns, 1);
        assert!(lay_ns < 2 * GROWS_BYTES * BUNDLE_NS / BUNDLE_BYTES as u64, "{lay_ns} ns");
        assert_eq!(flow(&mut pile, since_ns + lay_ns, BUNDLE_NS, 2 * FLOW_BYTES - (1 << 20)), None);
    }

    /// Messages of so many bundles, each sent when the one before is there; how many of them came
    /// late, as what they end with lay there longer than it took to come.
    fn late(messages: u32, bundles: u64) -> u32 {
        let mut pile = Pile::new(BUFFER_BYTES);
        let (mut now_ns, mut late) = (0, 0);
        for _ in 0..messages {
            let mut left = bundles;
            while left > 0 {
                if pile.lying.is_none() {
                    now_ns += BUNDLE_NS;
                    left -= 1;
                    pile.on_taken(now_ns, BUNDLE_BYTES, true);
                    continue;
                }
                let (lay_ns, high) = lie(&mut pile, now_ns, left);
                let came = high / BUNDLE_BYTES as u64;
                now_ns += lay_ns;
                left -= came;
                late += u32::from(left == 0 && lay_ns > (came + 1) * BUNDLE_NS);
                pile.on_taken(now_ns, high as usize, true);
            }
            // The answer, and the next message's first bundle.
            now_ns += 30_000;
        }
        late
    }

    #[test]
    fn few_messages_that_are_waited_for_one_by_one_come_late() {
        for (bundles, late_max) in [(4, 10), (9, 10), (17, 20), (34, 1000)] {
            let late = late(10_000, bundles);
            assert!(late <= late_max, "{late} of {bundles} bundles");
        }
        // That long ones gain by piles is worth more than that each of them ends with one.
        assert!(late(100, 136) > 0);
    }

    #[test]
    fn nothing_is_let_lie_for_long_however_slowly_it_grows() {
        let mut pile = Pile::new(BUFFER_BYTES);
        let since_ns = flow(&mut pile, 0, 3 * BUNDLE_NS, 2 * FLOW_BYTES).unwrap();
        let mut queued = 0;
        let mut looks = (since_ns..).step_by(1000).take_while(|now_ns| {
            queued += 1;
            pile.lies(*now_ns, || Some(queued))
        });
        let longest_ns = LIES_NS + GROWS_BYTES * 3 * BUNDLE_NS / BUNDLE_BYTES as u64;
        assert!(looks.by_ref().last().unwrap() - since_ns < longest_ns);
    }

    #[test]
    fn a_slow_flow_one_that_pauses_and_a_small_buffer_are_left_alone() {
        let slow_ns = BUNDLE_BYTES as u64 * 1000 / BYTES_PER_US_MIN + 1000;
        assert_eq!(flow(&mut Pile::new(BUFFER_BYTES), 0, slow_ns, 1 << 30), None);
        let mut pile = Pile::new(BUFFER_BYTES);
        for message in 0..100 {
            assert_eq!(flow(&mut pile, message * 20_000_000, BUNDLE_NS, 2 << 20), None);
        }
        let mut pile = Pile::new(LOW_BYTES as usize * BUFFER_PART as usize - 1);
        assert_eq!(flow(&mut pile, 0, BUNDLE_NS, 1 << 30), None);
    }

    #[test]
    fn a_flow_that_was_not_caught_up_with_for_days_is_let_lie_as_any_other() {
        let mut pile = Pile::new(BUFFER_BYTES);
        for hour in 1..100 {
            pile.on_taken(hour * 3_600_000_000_000, 14_400_000_000_000, false);
        }
        let since_ns = 360_000_000_000_000;
        pile.on_taken(since_ns, BUNDLE_BYTES, true);
        let (lay_ns, _) = lie(&mut pile, since_ns, 1);
        assert!((BUNDLE_NS..LIES_NS).contains(&lay_ns), "{lay_ns} ns");
    }

    #[test]
    fn a_socket_that_does_not_tell_is_taken_at_the_first_look() {
        let mut pile = Pile::new(BUFFER_BYTES);
        let since_ns = flow(&mut pile, 0, BUNDLE_NS, 2 * FLOW_BYTES).unwrap();
        assert!(!pile.lies(since_ns + LIES_NS, || None));
    }
}
