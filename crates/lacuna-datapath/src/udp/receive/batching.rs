//! Receive batching: delays reading a socket that a fast flow keeps filling, so that one read returns
//! many packets.
//!
//! A receiver that keeps up with its sender reads each bundle as it arrives, and the kernel reuses the
//! pages just freed for the sender's next bundle. Their cache lines are then in the receiver's core,
//! and the sender must invalidate them there before it can write; on AMD Zen 4 that costs more than
//! fetching other lines from the L3 cache. If the receiver lags one batch behind, the kernel cycles
//! through more pages. Measured: M-udp-2.
//!
//! The end of a flow must not wait. So only a flow that has delivered many bytes at a high rate is
//! delayed. While a batch grows, the kernel is asked how much the socket holds; when that stops
//! growing, the socket is read at once, and the flow must deliver more bytes before the next batch.

/// Bytes that a new flow must deliver before it is delayed, so that messages of a few megabytes never
/// are.
const FLOW_BYTES: u64 = 4 << 20;
/// Each batch that reaches its size halves the bytes to deliver before the next one, down to this.
const FLOW_BYTES_MIN: u64 = 128 << 10;
/// Each batch that stops growing multiplies them by 8, up to this. So few messages of 1 MiB that are
/// sent one by one arrive late: one in 600 in the test below. A flow that continues must then deliver
/// 2 GiB until it is back at the minimum, 0.5 s at 35 Gbit/s.
const FLOW_BYTES_MAX: u64 = 1 << 30;
/// A flow slower than this, 8 Gbit/s, is never delayed: other costs limit its sender.
const BYTES_PER_US_MIN: u64 = 1000;
/// Wanted size of a batch, by the kernel's accounting. 1 MiB is no better. Measured: M-udp-2.
const BATCH_BYTES: u64 = 512 << 10;
/// A batch is at most this fraction of the socket's buffer (1/8); the rest is for packets that arrive
/// until it is read.
const BATCHES_PER_BUFFER: u64 = 8;
/// A smaller batch is not worth the delay.
const BATCH_BYTES_MIN: u64 = 256 << 10;
/// Longest delay.
const WAIT_NS_MAX: u64 = 350_000;
/// A batch must grow within the time that the flow takes to deliver this many bytes: five bundles of
/// segmentation offload. With two and a half, one batch in four was mistaken for the end of a flow,
/// because two bundles leave together.
const GROWTH_BYTES: u64 = 320 << 10;

/// Decides how long the connected socket is left unread; see the module's text.
#[derive(Debug)]
pub(super) struct Batching {
    batch_bytes: u64,
    /// Bytes that the flow must deliver before the next batch.
    wanted_bytes: u64,
    /// Start of the period over which `bytes` is counted.
    began_ns: u64,
    bytes: u64,
    growing: Option<GrowingBatch>,
}

/// A batch that grows in the socket.
#[derive(Debug)]
struct GrowingBatch {
    since_ns: u64,
    /// When the batch was last seen to have grown, and its size then.
    grown_ns: u64,
    queued_bytes: u64,
    /// It must grow within this time.
    growth_timeout_ns: u64,
    /// When to ask the kernel for its size again.
    next_check_ns: u64,
}

impl Batching {
    /// `buffer_bytes` is the socket's receive buffer by the kernel's accounting.
    pub(super) fn new(buffer_bytes: usize) -> Self {
        let batch_bytes = (buffer_bytes as u64 / BATCHES_PER_BUFFER).min(BATCH_BYTES);
        Self { batch_bytes, wanted_bytes: FLOW_BYTES, began_ns: 0, bytes: 0, growing: None }
    }

    /// `bytes` were read from the socket; it was empty afterwards if `is_drained`.
    pub(super) fn on_taken(&mut self, now_ns: u64, bytes: usize, is_drained: bool) {
        if self.batch_bytes < BATCH_BYTES_MIN {
            return;
        }
        self.bytes += bytes as u64;
        let took_ns = now_ns.saturating_sub(self.began_ns);
        if self.bytes < took_ns / 1000 * BYTES_PER_US_MIN {
            // Too slow, or the flow has paused.
            (self.began_ns, self.bytes) = (now_ns, 0);
            return;
        }
        if is_drained && self.bytes >= self.wanted_bytes {
            let bytes_per_us = self.bytes / (took_ns / 1000 + 1);
            let growth_timeout_ns = GROWTH_BYTES * 1000 / bytes_per_us.max(1);
            self.growing = Some(GrowingBatch {
                since_ns: now_ns,
                grown_ns: now_ns,
                queued_bytes: 0,
                growth_timeout_ns,
                next_check_ns: now_ns + growth_timeout_ns / 4,
            });
            (self.began_ns, self.bytes) = (now_ns, 0);
        }
    }

    /// Whether to leave the socket unread for now. `queued_bytes` asks the kernel how much it holds.
    pub(super) fn delays_read(
        &mut self,
        now_ns: u64,
        queued_bytes: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let Some(growing) = &mut self.growing else { return false };
        if now_ns < growing.next_check_ns {
            return true;
        }
        let queued_bytes = queued_bytes().unwrap_or(u64::MAX);
        if queued_bytes > growing.queued_bytes {
            (growing.grown_ns, growing.queued_bytes) = (now_ns, queued_bytes);
        }
        let is_enough = queued_bytes >= self.batch_bytes
            || now_ns.saturating_sub(growing.since_ns) >= WAIT_NS_MAX;
        let is_over = now_ns.saturating_sub(growing.grown_ns) >= growing.growth_timeout_ns;
        if is_enough {
            self.wanted_bytes = (self.wanted_bytes / 2).max(FLOW_BYTES_MIN);
        } else if is_over {
            self.wanted_bytes = (self.wanted_bytes * 8).min(FLOW_BYTES_MAX);
        } else {
            growing.next_check_ns = now_ns + growing.growth_timeout_ns / 4;
            return true;
        }
        self.growing = None;
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

    /// Reads bundles one by one until the flow is delayed; returns when, or `None` if not within
    /// `bytes`.
    fn flow(batching: &mut Batching, mut now_ns: u64, bundle_ns: u64, bytes: u64) -> Option<u64> {
        for _ in 0..bytes / BUNDLE_BYTES as u64 {
            assert!(!batching.delays_read(now_ns, || panic!("not asked while nothing waits")));
            batching.on_taken(now_ns, BUNDLE_BYTES, true);
            if batching.growing.is_some() {
                return Some(now_ns);
            }
            now_ns += bundle_ns;
        }
        None
    }

    /// Polls every microsecond while a batch grows by `bundles` and then no more. Returns how long it
    /// waited and how large it became.
    fn batch(batching: &mut Batching, since_ns: u64, bundles: u64) -> (u64, u64) {
        for now_ns in (since_ns..).step_by(1000) {
            let queued = ((now_ns - since_ns) / BUNDLE_NS).min(bundles) * BUNDLE_BYTES as u64;
            if !batching.delays_read(now_ns, || Some(queued)) {
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
            let slack = 2 * GROWTH_BYTES;
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
        assert!(waited_ns < 2 * GROWTH_BYTES * BUNDLE_NS / BUNDLE_BYTES as u64, "{waited_ns} ns");
        assert_eq!(
            flow(&mut batching, since_ns + waited_ns, BUNDLE_NS, 2 * FLOW_BYTES - (1 << 20)),
            None
        );
    }

    /// Sends messages of `bundles` bundles, each when the one before has arrived. Returns how many
    /// arrived late: their last batch waited longer than it took to arrive.
    fn late(messages: u32, bundles: u64) -> u32 {
        let mut batching = Batching::new(BUFFER_BYTES);
        let (mut now_ns, mut late) = (0, 0);
        for _ in 0..messages {
            let mut left = bundles;
            while left > 0 {
                if batching.growing.is_none() {
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
        // A long message may end with one wait: the batches before have saved more.
        assert!(late(100, 136) > 0);
    }

    #[test]
    fn nothing_waits_for_long_however_slowly_it_grows() {
        let mut batching = Batching::new(BUFFER_BYTES);
        let since_ns = flow(&mut batching, 0, 3 * BUNDLE_NS, 2 * FLOW_BYTES).unwrap();
        let mut queued = 0;
        let mut looks = (since_ns..).step_by(1000).take_while(|now_ns| {
            queued += 1;
            batching.delays_read(*now_ns, || Some(queued))
        });
        let longest_ns = WAIT_NS_MAX + GROWTH_BYTES * 3 * BUNDLE_NS / BUNDLE_BYTES as u64;
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
        let mut batching =
            Batching::new(BATCH_BYTES_MIN as usize * BATCHES_PER_BUFFER as usize - 1);
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
        assert!(!batching.delays_read(since_ns + WAIT_NS_MAX, || None));
    }
}
