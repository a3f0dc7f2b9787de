//! The receiver's record of a trial.
//!
//! Packet `i` of a trial belongs to flow `i % flows`. One bit per packet records its arrival; losses and
//! their bursts follow from the bits once the number of sent packets is known. Reordering is that of
//! RFC 4737 within each flow, because two flows may take different routes: a packet is reordered if a
//! later one arrived before it (3.3), and its extent is the number of packets between it and the first
//! such packet (4.2). Jitter is that of RFC 3550, as in `iperf3`.
//!
//! The record is bounded: [`PACKETS_MAX`] bits, and per flow a bounded history of packets that arrived
//! with a higher number than all before.

use crate::counted::{BINS, Counted};
use crate::wire::TrialPlan;
use std::collections::VecDeque;

/// Most packets of a trial: 32 MiB of bits.
pub const PACKETS_MAX: u32 = 1 << 28;

/// Length of a flow's history. The extent of a packet that is later than the whole history is counted
/// from its oldest entry.
const HISTORY_MAX: usize = 1024;

/// The record of a trial; see the module's text.
#[derive(Debug)]
pub struct Arrivals {
    bits: Vec<u64>,
    flows: Vec<Flow>,
    received: u64,
    duplicates: u64,
    reordered: u64,
    extent_sum: u64,
    extent_max: u64,
    late_ns_max: u64,
    /// First and last arrival.
    span: Option<(u64, u64)>,
    bin_ns: u64,
    bins: [u32; BINS],
}

#[derive(Debug, Default)]
struct Flow {
    received: u64,
    /// Packets that arrived with a higher number than all before: number, count of packets before, and
    /// arrival time. Ascending in all three.
    highest: VecDeque<(u32, u64, u64)>,
    /// Arrival time minus sending time of the last packet. The two clocks differ, so only differences
    /// of transit times are meaningful.
    transit_ns: Option<i128>,
    jitter_ns: f64,
}

impl Arrivals {
    /// An empty record.
    #[must_use]
    pub fn new(plan: &TrialPlan) -> Self {
        Self {
            bits: Vec::new(),
            flows: (0..plan.flows.max(1)).map(|_| Flow::default()).collect(),
            received: 0,
            duplicates: 0,
            reordered: 0,
            extent_sum: 0,
            extent_max: 0,
            late_ns_max: 0,
            span: None,
            bin_ns: (plan.duration_ns / BINS as u64).max(1),
            bins: [0; BINS],
        }
    }

    /// Packet `index` has arrived.
    pub fn on_packet(&mut self, now_ns: u64, index: u32, sent_ns: u64) {
        if index >= PACKETS_MAX {
            return;
        }
        let (word, bit) = (index as usize / 64, 1u64 << (index % 64));
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        if self.bits[word] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.bits[word] |= bit;
        self.received += 1;
        let (first_ns, _) = *self.span.get_or_insert((now_ns, now_ns));
        self.span = Some((first_ns, now_ns.max(first_ns)));
        let bin = (now_ns.saturating_sub(first_ns) / self.bin_ns) as usize;
        if let Some(count) = self.bins.get_mut(bin) {
            *count += 1;
        }
        let flow = index as usize % self.flows.len();
        if let Some((extent, late_ns)) = self.flows[flow].on_packet(now_ns, index, sent_ns) {
            self.reordered += 1;
            self.extent_sum += extent;
            self.extent_max = self.extent_max.max(extent);
            self.late_ns_max = self.late_ns_max.max(late_ns);
        }
    }

    /// The counts of a trial of `sent` packets; the caller adds the host's drops.
    #[must_use]
    pub fn count(&self, sent: u32) -> Counted {
        let jitter_ns: f64 = self.flows.iter().map(|flow| flow.jitter_ns).sum();
        Counted {
            received: self.received,
            duplicates: self.duplicates,
            bursts: self.bursts(sent, 1),
            flow_bursts: self.bursts(sent, self.flows.len()),
            reordered: self.reordered,
            extent_sum: self.extent_sum,
            extent_max: self.extent_max,
            late_ns_max: self.late_ns_max,
            jitter_ns: (jitter_ns / self.flows.len() as f64) as u64,
            span_ns: self.span.map_or(0, |(first_ns, last_ns)| last_ns - first_ns),
            bin_ns: self.bin_ns,
            bins: self.bins,
            drops: Default::default(),
        }
    }

    /// Starts of loss bursts: lost packets whose predecessor, `stride` before, arrived or does not exist.
    fn bursts(&self, sent: u32, stride: usize) -> u64 {
        let sent = sent.min(PACKETS_MAX) as usize;
        (0..sent.div_ceil(64))
            .map(|word| {
                let first = word * 64;
                let before = self.lost_from(first as i64 - stride as i64, sent);
                u64::from((self.lost_from(first as i64, sent) & !before).count_ones())
            })
            .sum()
    }

    /// 64 packets from `first` on: a bit for each that was sent and lost. Packets before 0 count as not
    /// lost.
    fn lost_from(&self, first: i64, sent: usize) -> u64 {
        let word = |index: i64| {
            let Ok(index) = usize::try_from(index) else { return 0 };
            let lost = !self.bits.get(index).copied().unwrap_or(0);
            match sent.saturating_sub(index * 64) {
                0 => 0,
                left if left < 64 => lost & ((1 << left) - 1),
                _ => lost,
            }
        };
        let (index, shift) = (first.div_euclid(64), first.rem_euclid(64));
        match shift {
            0 => word(index),
            shift => word(index) >> shift | word(index + 1) << (64 - shift),
        }
    }
}

impl Flow {
    /// Extent and late time of a reordered packet; `None` for one in order.
    fn on_packet(&mut self, now_ns: u64, index: u32, sent_ns: u64) -> Option<(u64, u64)> {
        let transit_ns = i128::from(now_ns) - i128::from(sent_ns);
        if let Some(last_ns) = self.transit_ns.replace(transit_ns) {
            let change_ns = (transit_ns - last_ns).unsigned_abs() as f64;
            self.jitter_ns += (change_ns - self.jitter_ns) / 16.0;
        }
        let position = self.received;
        self.received += 1;
        if self.highest.back().is_none_or(|(highest, ..)| index > *highest) {
            if self.highest.len() == HISTORY_MAX {
                self.highest.pop_front();
            }
            self.highest.push_back((index, position, now_ns));
            return None;
        }
        let first = self.highest.partition_point(|(highest, ..)| *highest < index);
        let (_, came, came_ns) = self.highest.get(first)?;
        Some((position - came, now_ns.saturating_sub(*came_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(flows: u16, order: &[u32]) -> Arrivals {
        let plan = TrialPlan { payload_bytes: 100, flows, duration_ns: 32_000 };
        let mut arrivals = Arrivals::new(&plan);
        for (at, index) in order.iter().enumerate() {
            arrivals.on_packet(at as u64 * 10, *index, u64::from(*index) * 10);
        }
        arrivals
    }

    #[test]
    fn losses_and_their_runs_are_counted_at_both_ends_too() {
        // Of 0..=9 are missing: 0, 3 4 5, 8 9.
        let counted = arrivals(1, &[1, 2, 6, 7]).count(10);
        assert_eq!((counted.received, counted.bursts, counted.flow_bursts), (4, 3, 3));
        let nothing = arrivals(4, &[]).count(130);
        assert_eq!((nothing.received, nothing.bursts, nothing.flow_bursts), (0, 1, 4));
        assert_eq!(arrivals(1, &[0, 1, 2]).count(3).bursts, 0);
        assert_eq!(arrivals(1, &[0, 1, 2]).count(0).bursts, 0);
    }

    #[test]
    fn a_run_on_the_path_is_shorter_within_each_of_several_flows() {
        // Lost: 4..=11, with 4 flows two packets of each.
        let order: Vec<u32> = (0..100).filter(|index| !(4..12).contains(index)).collect();
        let counted = arrivals(4, &order).count(100);
        assert_eq!((counted.bursts, counted.flow_bursts), (1, 4));
    }

    #[test]
    fn a_packet_behind_one_that_was_sent_later_is_reordered() {
        // RFC 4737, 7.1, shows such a case: 4 comes behind 5, 6 and 7.
        let counted = arrivals(1, &[1, 2, 3, 5, 6, 7, 4, 8]).count(9);
        assert_eq!((counted.reordered, counted.extent_sum, counted.extent_max), (1, 3, 3));
        assert_eq!(counted.late_ns_max, 30);
        // Both of a swapped pair's successors are in order.
        let counted = arrivals(1, &[0, 2, 1, 4, 3]).count(5);
        assert_eq!((counted.reordered, counted.extent_sum), (2, 2));
        assert_eq!(arrivals(1, &[0, 5, 9]).count(10).reordered, 0);
    }

    #[test]
    fn flows_overtake_each_other_without_reordering() {
        let order: Vec<u32> = (0..50).map(|i| 2 * i + 1).chain((0..50).map(|i| 2 * i)).collect();
        assert_eq!(arrivals(2, &order).count(100).reordered, 0);
        assert_eq!(arrivals(1, &order).count(100).reordered, 50);
    }

    #[test]
    fn what_comes_twice_counts_once() {
        let counted = arrivals(1, &[0, 1, 1, 0, 2]).count(3);
        assert_eq!((counted.received, counted.duplicates, counted.reordered), (3, 2, 0));
    }

    #[test]
    fn a_number_beyond_all_bounds_is_ignored() {
        let counted = arrivals(1, &[0, PACKETS_MAX, u32::MAX]).count(1);
        assert_eq!((counted.received, counted.bursts), (1, 0));
    }

    #[test]
    fn arrivals_are_counted_by_time() {
        let counted = arrivals(1, &(0..200).collect::<Vec<_>>()).count(200);
        assert_eq!((counted.bin_ns, counted.span_ns), (1000, 1990));
        assert_eq!(counted.bins[..3], [100, 100, 0]);
        // Sending and arrival keep step.
        assert_eq!(counted.jitter_ns, 0);
    }

    proptest::proptest! {
        #[test]
        fn runs_agree_with_a_walk_over_all_packets(
            flows in 1u16..20,
            came in proptest::collection::vec(proptest::bool::ANY, 0..400),
        ) {
            let order: Vec<u32> = (0..came.len() as u32).filter(|i| came[*i as usize]).collect();
            let counted = arrivals(flows, &order).count(came.len() as u32);
            let starts = |stride: usize| (0..came.len())
                .filter(|i| !came[*i] && i.checked_sub(stride).is_none_or(|before| came[before]))
                .count() as u64;
            proptest::prop_assert_eq!(counted.bursts, starts(1));
            proptest::prop_assert_eq!(counted.flow_bursts, starts(usize::from(flows)));
        }
    }
}
