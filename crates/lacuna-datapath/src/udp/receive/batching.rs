//! Receive batching: delays reading a socket that a fast flow was caught up with, so that one look
//! brings much.
//!
//! A receiver that keeps up with its sender takes every bundle as it comes, and the kernel hands the
//! pages just freed to the sender's next bundle. Their lines are then in both cores' caches, and to
//! write them the sender has to take them away from the receiver, which on AMD Zen 4 costs more than
//! to fetch them from the third-level cache. A receiver that is a step behind makes the ring of pages
//! larger. Measured: M-udp-2.
//!
//! Nobody must wait for it at the end of a flow. So only a flow that has brought much, fast, is left
//! in the socket; the socket is asked how much lies there, and when that stops growing it is read at
//! once, and the flow trusted less from then on.

/// A flow has to bring so much before any of it is left in the socket: a message of a few megabytes
/// is over before.
const FLOW_BYTES: u64 = 4 << 20;
/// From batch to batch, with each that became as large as it was to be half of that, down to this;
const BETWEEN_BYTES: u64 = 128 << 10;
/// with each that stopped growing eight times as much, up to this. So few messages of a megabyte that
/// are waited for one by one come late: one in 600 in the test below. A flow that goes on after all
/// has to bring 2 GiB until it is trusted as before, half a second at 35 Gbit/s.
const FLOW_BYTES_MAX: u64 = 1 << 30;
/// A slower flow is read as it comes: its sender has other costs. 8 Gbit/s.
const BYTES_PER_US_MIN: u64 = 1000;
/// How large a batch is to be, by the kernel's accounting. A MiB is no better. Measured: M-udp-2.
const BATCH_BYTES: u64 = 512 << 10;
/// And in parts of the socket's buffer, of which the rest is for what comes meanwhile.
const BUFFER_PART: u64 = 8;
/// A batch that would be smaller than that is not worth it.
const BATCH_BYTES_MIN: u64 = 256 << 10;
/// The longest that anything is left in the socket.
const WAIT_NS_MAX: u64 = 350_000;
/// In the time that the flow takes for so many bytes a batch has to grow: five bundles of
/// segmentation offload. With two and a half, of which two leave together, one batch in four was
/// taken for the end of a flow that had none.
const GROWS_BYTES: u64 = 320 << 10;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Batching {
    batch_bytes: u64,
    /// What the flow has to bring before its packets are left in the socket.
    wanted_bytes: u64,
    /// Since when it is counted, and what it has brought.
    began_ns: u64,
    bytes: u64,
    waiting: Option<Waiting>,
}

/// A batch that grows in the socket.
#[derive(Debug)]
struct Waiting {
    since_ns: u64,
    /// When the batch was last seen to have grown, and how large it was then.
    grown_ns: u64,
    queued_bytes: u64,
    /// In how long it has to grow.
    patience_ns: u64,
    /// When to ask again.
    look_ns: u64,
}

impl Batching {
    /// For a socket with a buffer of `buffer_bytes` by the kernel's accounting.
    pub(super) fn new(buffer_bytes: usize) -> Self {
        let batch_bytes = (buffer_bytes as u64 / BUFFER_PART).min(BATCH_BYTES);
        Self { batch_bytes, wanted_bytes: FLOW_BYTES, began_ns: 0, bytes: 0, waiting: None }
    }

    /// So many bytes were taken, and that was all if `is_drained`.
    pub(super) fn on_taken(&mut self, now_ns: u64, bytes: usize, is_drained: bool) {
        if self.batch_bytes < BATCH_BYTES_MIN {
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
            self.waiting = Some(Waiting {
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
    pub(super) fn waits(
        &mut self,
        now_ns: u64,
        queued_bytes: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let Some(waiting) = &mut self.waiting else { return false };
        if now_ns < waiting.look_ns {
            return true;
        }
        let queued_bytes = queued_bytes().unwrap_or(u64::MAX);
        if queued_bytes > waiting.queued_bytes {
            (waiting.grown_ns, waiting.queued_bytes) = (now_ns, queued_bytes);
        }
        let is_enough = queued_bytes >= self.batch_bytes
            || now_ns.saturating_sub(waiting.since_ns) >= WAIT_NS_MAX;
        let is_over = now_ns.saturating_sub(waiting.grown_ns) >= waiting.patience_ns;
        if is_enough {
            self.wanted_bytes = (self.wanted_bytes / 2).max(BETWEEN_BYTES);
        } else if is_over {
            self.wanted_bytes = (self.wanted_bytes * 8).min(FLOW_BYTES_MAX);
        } else {
            waiting.look_ns = now_ns + waiting.patience_ns / 4;
            return true;
        }
        self.waiting = None;
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

    /// Takes bundles one by one until some are left in the socket; when that is, or `None` if not within `bytes`.
    fn flow(batching: &mut Batching, mut now_ns: u64, bundle_ns: u64, bytes: u64) -> Option<u64> {
        for _ in 0..bytes / BUNDLE_BYTES as u64 {
            assert!(!batching.waits(now_ns, || panic!("not asked while nothing waits")));
            batching.on_taken(now_ns, BUNDLE_BYTES, true);
            if batching.waiting.is_some() {
                return Some(now_ns);
            }
            now_ns += bundle_ns;
        }
        None
    }

    /// Looks every microsecond while a batch grows by `bundles` and then no more; how long it
    /// waited, and how large it was.
    fn batch(batching: &mut Batching, since_ns: u64, bundles: u64) -> (u64, u64) {
        for now_ns in (since_ns..).step_by(1000) {
            let queued = ((now_ns - since_ns) / BUNDLE_NS).min(bundles) * BUNDLE_BYTES as u64;
            if !batching.waits(now_ns, || Some(queued)) {
                return (now_ns - since_ns, queued);
            }
        }
        unreachable!()
    }

    #[test]
    fn a_fast_flow_is_left_in_the_socket_until_the_batch_is_large() {
        let mut batching = Batching::new(BUFFER_BYTES);
        assert_eq!(flow(&mut batching, 0, BUNDLE_NS, FLOW_BYTES), None, "it may be over before");
        let mut since_ns = flow(&mut batching, 1_100_000, BUNDLE_NS, 1 << 20).unwrap();
        let mut brought = Vec::new();
        for _ in 0..6 {
            let (waited_ns, large) = batch(&mut batching, since_ns, u64::MAX);
            let slack = 2 * GROWS_BYTES;
            assert!((BATCH_BYTES..BATCH_BYTES + slack).contains(&large), "{large} bytes");
            assert!(waited_ns <= WAIT_NS_MAX);
            let taken_ns = since_ns + waited_ns;
            since_ns = flow(&mut batching, taken_ns, BUNDLE_NS, FLOW_BYTES).unwrap();
            brought.push(since_ns - taken_ns);
        }
        assert!(brought.is_sorted_by(|earlier, later| earlier >= later), "{brought:?}");
        assert!(brought[5] <= 3 * BUNDLE_NS, "{brought:?}");
    }

    #[test]
    fn a_batch_that_stops_growing_is_taken_and_the_flow_trusted_less() {
        let mut batching = Batching::new(BUFFER_BYTES);
        let since_ns = flow(&mut batching, 0, BUNDLE_NS, 2 * FLOW_BYTES).unwrap();
        let (waited_ns, _) = batch(&mut batching, since_ns, 1);
        assert!(waited_ns < 2 * GROWS_BYTES * BUNDLE_NS / BUNDLE_BYTES as u64, "{waited_ns} ns");
        assert_eq!(
            flow(&mut batching, since_ns + waited_ns, BUNDLE_NS, 2 * FLOW_BYTES - (1 << 20)),
            None
        );
    }

    /// Messages of so many bundles, each sent when the one before is there; how many of them came
    /// late, as what they end with waited longer than it took to come.
    fn late(messages: u32, bundles: u64) -> u32 {
        let mut batching = Batching::new(BUFFER_BYTES);
        let (mut now_ns, mut late) = (0, 0);
        for _ in 0..messages {
            let mut left = bundles;
            while left > 0 {
                if batching.waiting.is_none() {
                    now_ns += BUNDLE_NS;
                    left -= 1;
                    batching.on_taken(now_ns, BUNDLE_BYTES, true);
                    continue;
                }
                let (waited_ns, large) = batch(&mut batching, now_ns, left);
                let came = large / BUNDLE_BYTES as u64;
                now_ns += waited_ns;
                left -= came;
                late += u32::from(left == 0 && waited_ns > (came + 1) * BUNDLE_NS);
                batching.on_taken(now_ns, large as usize, true);
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
        // What long ones gain by batches is worth more than that each of them ends with one.
        assert!(late(100, 136) > 0);
    }

    #[test]
    fn nothing_waits_for_long_however_slowly_it_grows() {
        let mut batching = Batching::new(BUFFER_BYTES);
        let since_ns = flow(&mut batching, 0, 3 * BUNDLE_NS, 2 * FLOW_BYTES).unwrap();
        let mut queued = 0;
        let mut looks = (since_ns..).step_by(1000).take_while(|now_ns| {
            queued += 1;
            batching.waits(*now_ns, || Some(queued))
        });
        let longest_ns = WAIT_NS_MAX + GROWS_BYTES * 3 * BUNDLE_NS / BUNDLE_BYTES as u64;
        assert!(looks.by_ref().last().unwrap() - since_ns < longest_ns);
    }

    #[test]
    fn a_slow_flow_one_that_pauses_and_a_small_buffer_are_left_alone() {
        let slow_ns = BUNDLE_BYTES as u64 * 1000 / BYTES_PER_US_MIN + 1000;
        assert_eq!(flow(&mut Batching::new(BUFFER_BYTES), 0, slow_ns, 1 << 30), None);
        let mut batching = Batching::new(BUFFER_BYTES);
        for message in 0..100 {
            assert_eq!(flow(&mut batching, message * 20_000_000, BUNDLE_NS, 2 << 20), None);
        }
        let mut batching = Batching::new(BATCH_BYTES_MIN as usize * BUFFER_PART as usize - 1);
        assert_eq!(flow(&mut batching, 0, BUNDLE_NS, 1 << 30), None);
    }

    #[test]
    fn a_flow_that_was_not_caught_up_with_for_days_waits_as_any_other() {
        let mut batching = Batching::new(BUFFER_BYTES);
        for hour in 1..100 {
            batching.on_taken(hour * 3_600_000_000_000, 14_400_000_000_000, false);
        }
        let since_ns = 360_000_000_000_000;
        batching.on_taken(since_ns, BUNDLE_BYTES, true);
        let (waited_ns, _) = batch(&mut batching, since_ns, 1);
        assert!((BUNDLE_NS..WAIT_NS_MAX).contains(&waited_ns), "{waited_ns} ns");
    }

    #[test]
    fn a_socket_that_does_not_tell_is_taken_at_the_first_look() {
        let mut batching = Batching::new(BUFFER_BYTES);
        let since_ns = flow(&mut batching, 0, BUNDLE_NS, 2 * FLOW_BYTES).unwrap();
        assert!(!batching.waits(since_ns + WAIT_NS_MAX, || None));
    }
}
