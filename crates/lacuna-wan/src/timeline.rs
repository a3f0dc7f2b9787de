//! Counters and queue lengths over time, in intervals of equal length.
//!
//! The time line is bounded. When it is full, neighbouring intervals are merged and the interval
//! doubles, so a path that runs for a week takes no more memory than one that runs for an hour.

use crate::way::WayCounters;

/// About an hour at 50 ms.
const SAMPLES_MAX: usize = 1 << 16;

/// One interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// End of the interval, since the start of the path.
    pub end_ns: u64,
    /// Counters per way.
    pub ways: [WaySample; 2],
}

/// Counters of one way in an interval. Packets and bytes as in [`WayCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaySample {
    /// Bytes that the host sent.
    pub sent_bytes: u64,
    /// Bytes that the other host received.
    pub delivered_bytes: u64,
    /// Packets that the other host received.
    pub delivered_packets: u64,
    /// Packets lost at random or by the trace.
    pub lost: u64,
    /// Packets dropped because the queue or the emulator's memory was full.
    pub dropped: u64,
    /// Packets marked with CE.
    pub marked: u64,
    /// Queue length at the end of the interval.
    pub queue_bytes: u64,
    /// Longest queue in the interval.
    pub queue_bytes_max: u64,
}

impl WaySample {
    /// The difference of two readings of the counters. The queue is left at 0.
    fn between(before: &WayCounters, after: &WayCounters) -> Self {
        let dropped = |counters: &WayCounters| counters.queue_dropped + counters.held_dropped;
        Self {
            sent_bytes: after.sent_bytes - before.sent_bytes,
            delivered_bytes: after.delivered_bytes - before.delivered_bytes,
            delivered_packets: after.delivered_packets - before.delivered_packets,
            lost: after.lost - before.lost,
            dropped: dropped(after) - dropped(before),
            marked: after.marked - before.marked,
            queue_bytes: 0,
            queue_bytes_max: 0,
        }
    }

    /// Merges this interval with the next one.
    fn joined(&self, next: &Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes + next.sent_bytes,
            delivered_bytes: self.delivered_bytes + next.delivered_bytes,
            delivered_packets: self.delivered_packets + next.delivered_packets,
            lost: self.lost + next.lost,
            dropped: self.dropped + next.dropped,
            marked: self.marked + next.marked,
            queue_bytes: next.queue_bytes,
            queue_bytes_max: self.queue_bytes_max.max(next.queue_bytes_max),
        }
    }
}

/// The samples of a path; see the module's text.
#[derive(Clone, Debug)]
pub struct Timeline {
    interval_ns: u64,
    samples: Vec<Sample>,
    /// The counters at the end of the last interval.
    counters: [WayCounters; 2],
}

impl Timeline {
    /// A time line that starts at time 0.
    ///
    /// # Panics
    ///
    /// When the interval is 0.
    #[must_use]
    pub fn new(interval_ns: u64) -> Self {
        assert!(interval_ns > 0, "an interval takes some time");
        Self { interval_ns, samples: vec![], counters: Default::default() }
    }

    /// End of the next interval; the caller calls [`Timeline::push`] then.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        let last_ns = self.samples.last().map_or(0, |sample| sample.end_ns);
        last_ns - last_ns % self.interval_ns + self.interval_ns
    }

    /// Adds an interval that ends now. `queues`: queue length of each way now, and the longest since the
    /// last call.
    pub fn push(&mut self, now_ns: u64, counters: [WayCounters; 2], queues: [(u64, u64); 2]) {
        let mut sample = Sample { end_ns: now_ns, ..Sample::default() };
        for (way, place) in sample.ways.iter_mut().enumerate() {
            *place = WaySample::between(&self.counters[way], &counters[way]);
            (place.queue_bytes, place.queue_bytes_max) = queues[way];
        }
        self.counters = counters;
        self.samples.push(sample);
        if self.samples.len() >= SAMPLES_MAX {
            self.halve();
        }
    }

    /// The intervals, oldest first. The last may be shorter than the others; one may be longer if the
    /// machine was busy.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    fn halve(&mut self) {
        let joined = self.samples.chunks(2).map(|pair| match pair {
            [first, second] => Sample {
                end_ns: second.end_ns,
                ways: std::array::from_fn(|way| first.ways[way].joined(&second.ways[way])),
            },
            _ => pair[0],
        });
        self.samples = joined.collect();
        self.interval_ns *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(seen: u64) -> [WayCounters; 2] {
        let mut counters = [WayCounters::default(); 2];
        counters[0].delivered_bytes = seen;
        counters[1].lost = 2 * seen;
        counters
    }

    #[test]
    fn samples_tell_what_happened_in_their_interval() {
        let mut timeline = Timeline::new(100);
        assert_eq!(timeline.next_ns(), 100);
        timeline.push(105, counters(10), [(1, 2), (3, 4)]);
        assert_eq!(timeline.next_ns(), 200);
        timeline.push(200, counters(15), [(0, 0), (7, 9)]);
        assert_eq!(timeline.next_ns(), 300);
        let [first, second] = timeline.samples() else { panic!("two") };
        assert_eq!(
            (first.end_ns, first.ways[0].delivered_bytes, first.ways[1].lost),
            (105, 10, 20)
        );
        assert_eq!((second.ways[0].delivered_bytes, second.ways[1].lost), (5, 10));
        assert_eq!((first.ways[0].queue_bytes, second.ways[1].queue_bytes_max), (1, 9));
    }

    #[test]
    fn a_full_time_line_becomes_coarser_and_loses_nothing() {
        let mut timeline = Timeline::new(10);
        let mut now_ns = 0;
        for seen in 1..=3 * SAMPLES_MAX as u64 {
            now_ns = timeline.next_ns();
            timeline.push(now_ns, counters(seen), [(seen % 7, seen % 11), (0, 0)]);
        }
        assert!(timeline.samples().len() < SAMPLES_MAX);
        assert!(timeline.samples().is_sorted_by_key(|sample| sample.end_ns));
        assert_eq!(timeline.samples().last().unwrap().end_ns, now_ns);
        let sum: u64 = timeline.samples().iter().map(|s| s.ways[0].delivered_bytes).sum();
        assert_eq!(sum, 3 * SAMPLES_MAX as u64);
        assert!(timeline.samples().iter().all(|sample| sample.ways[0].queue_bytes_max >= 1));
    }
}
