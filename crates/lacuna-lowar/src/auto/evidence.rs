//! What is known of a path's losses: packets sent, and the distances between lost ones, for as long as the
//! path has been the same.
//!
//! The evidence lies in slices of time, the newest ones short and older ones merged (an exponential
//! histogram, as in ADWIN, Bifet and Gavalda 2007). Whenever a slice is added, each border between two slices
//! is tried: if what is before it and what is behind it differ by more than chance allows, everything
//! before is forgotten. So evidence grows while the path stays as it is, and a change counts within a slice.
//!
//! What is compared: how often losses begin that follow no other closely, and how many of all losses do
//! follow another closely, within [`CLOSE_PACKETS`]. Both together tell a change of the rate and one from
//! single losses to bursts. The measure is the logarithm of the likelihood ratio.
//!
//! What is older than [`FORGET_NS`] is forgotten in any case. Rare losses need long evidence: at 1e-5 and
//! 1 Gbit/s there is one in a second, and it takes tens of them to know the rate within a third. A path that
//! drifts to twice its loss within that time is noticed by the comparison.

use std::collections::VecDeque;

/// Evidence is forgotten after this time.
pub(super) const FORGET_NS: u64 = 30_000_000_000;
/// Losses nearer than this to the one before belong together for the comparison: longer than what lies
/// within bursts, shorter than what lies between most.
const CLOSE_PACKETS: u64 = 16;
/// Logarithm of the likelihood ratio that chance allows: with two numbers that are compared it is above 10
/// once in 20,000 times.
const CHANCE: f64 = 10.0;
/// Slices of one length; one more merges the two oldest.
const SLICES_OF_LENGTH: usize = 3;
/// So many losses in a row are an outage that no repairs help against: they count as one loss.
const OUTAGE_PACKETS: u64 = 128;

/// Distances up to this have a bin each.
const EXACT: u64 = 16;
/// Bins of each doubling beyond.
const BINS_OF_OCTAVE: u64 = 4;
/// Bins: distances up to 2^24.
const BINS: usize = (EXACT + (24 - EXACT.ilog2() as u64) * BINS_OF_OCTAVE) as usize;

/// Evidence of some time.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    begin_ns: u64,
    end_ns: u64,
    /// Merged how often: it is 2^level of the shortest long.
    level: u8,
    /// Packets sent.
    pub(super) packets: u64,
    /// Losses that follow no other closely, and those that do.
    pub(super) apart: u64,
    pub(super) close: u64,
    distances: [u32; BINS],
}

impl Slice {
    fn new(begin_ns: u64) -> Self {
        Self {
            begin_ns,
            end_ns: begin_ns,
            level: 0,
            packets: 0,
            apart: 0,
            close: 0,
            distances: [0; BINS],
        }
    }

    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.apart += other.apart;
        self.close += other.close;
        let both = self.distances.iter_mut().zip(&other.distances);
        both.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        self.begin_ns = self.begin_ns.min(other.begin_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
    }

    /// Losses.
    pub(super) fn losses(&self) -> u64 {
        self.apart + self.close
    }

    /// Distances between losses, and how many of each there were.
    pub(super) fn distances(&self) -> impl Iterator<Item = (f64, f64)> {
        let counts = self.distances.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bin, count)| (distance_of(bin), f64::from(*count)))
    }
}

fn bin_of(distance: u64) -> usize {
    if distance <= EXACT {
        return distance.saturating_sub(1) as usize;
    }
    let octave = u64::from(distance.ilog2());
    let within = (distance << BINS_OF_OCTAVE.ilog2() >> octave) - BINS_OF_OCTAVE;
    let bin = EXACT + (octave - u64::from(EXACT.ilog2())) * BINS_OF_OCTAVE + within;
    (bin as usize).min(BINS - 1)
}

/// The middle of a bin.
fn distance_of(bin: usize) -> f64 {
    let bin = bin as u64;
    if bin < EXACT {
        return (bin + 1) as f64;
    }
    let (octave, within) = ((bin - EXACT) / BINS_OF_OCTAVE, (bin - EXACT) % BINS_OF_OCTAVE);
    let begin = EXACT << octave;
    begin as f64 * (1.0 + (within as f64 + 0.5) / BINS_OF_OCTAVE as f64)
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// The last one is open.
    slices: VecDeque<Slice>,
    /// Packets that were sent before the open slice's end.
    judged: u64,
    /// The place behind the last loss; `None` before the first.
    lost_to: Option<u64>,
    outages: u64,
}

impl Evidence {
    /// So many packets in a row were lost, behind so many that were sent.
    pub(super) fn on_lost(&mut self, now_ns: u64, position: u64, packets: u64) {
        let outage = packets > OUTAGE_PACKETS;
        self.outages += u64::from(outage);
        let distance = position + 1 - self.lost_to.unwrap_or(0).min(position);
        self.lost_to = Some(position + packets);
        let packets = if outage { 1 } else { packets };
        let slice = self.open(now_ns);
        match distance <= CLOSE_PACKETS {
            true => slice.close += 1,
            false => slice.apart += 1,
        }
        slice.distances[bin_of(distance)] += 1;
        slice.close += packets - 1;
        slice.distances[0] += (packets - 1) as u32;
    }

    /// All losses before this place are known.
    pub(super) fn on_judged(&mut self, now_ns: u64, position: u64) {
        let packets = position.saturating_sub(self.judged);
        self.judged = self.judged.max(position);
        if packets > 0 {
            self.open(now_ns).packets += packets;
        }
    }

    fn open(&mut self, now_ns: u64) -> &mut Slice {
        if self.slices.is_empty() {
            self.slices.push_back(Slice::new(now_ns));
        }
        let slice = self.slices.back_mut().expect("one was added");
        slice.end_ns = slice.end_ns.max(now_ns);
        slice
    }

    /// Closes the open slice if it is as long as this; returns whether it did, and the path was found to
    /// have changed.
    pub(super) fn close(&mut self, now_ns: u64, slice_ns: u64) -> Option<bool> {
        let open = self.slices.back()?;
        if now_ns.saturating_sub(open.begin_ns) < slice_ns || open.packets == 0 {
            return None;
        }
        while self.slices.front().is_some_and(|slice| now_ns - slice.end_ns.min(now_ns) > FORGET_NS)
            && self.slices.len() > 1
        {
            self.slices.pop_front();
        }
        let changed = self.forget_what_was_different();
        self.slices.push_back(Slice::new(now_ns));
        self.merge();
        Some(changed)
    }

    fn merge(&mut self) {
        // From the newest, which are the shortest; the open one is none of them.
        let mut end = self.slices.len() - 1;
        for level in 0..u8::MAX {
            let begin = (0..end).rev().find(|at| self.slices[*at].level != level);
            let begin = begin.map_or(0, |at| at + 1);
            if end - begin <= SLICES_OF_LENGTH {
                return;
            }
            let older = self.slices.remove(begin).expect("it is there");
            self.slices[begin].add(&older);
            self.slices[begin].level = level + 1;
            end = begin + 1;
        }
    }

    /// Forgets everything before the border where the difference is the largest, if it is more than chance.
    fn forget_what_was_different(&mut self) -> bool {
        let counts = |slice: &Slice| [slice.packets, slice.apart, slice.close];
        let mut before = [0; 3];
        for slice in &self.slices {
            (0..3).for_each(|i| before[i] += counts(slice)[i]);
        }
        let mut behind = [0; 3];
        let (mut most, mut border) = (CHANCE, 0);
        for at in (1..self.slices.len()).rev() {
            let slice = counts(&self.slices[at]);
            for i in 0..3 {
                behind[i] += slice[i];
                before[i] -= slice[i];
            }
            let ratio = ln_ratio(before, behind);
            if ratio > most {
                (most, border) = (ratio, at);
            }
        }
        self.slices.drain(..border);
        border > 0
    }

    /// All that counts.
    pub(super) fn sum(&self) -> Slice {
        let begin_ns = self.slices.front().map_or(0, |slice| slice.begin_ns);
        self.slices.iter().fold(Slice::new(begin_ns), |mut sum, slice| {
            sum.add(slice);
            sum
        })
    }

    /// Losses in a row that were too many for any repairs.
    pub(super) fn outages(&self) -> u64 {
        self.outages
    }

    /// Bytes of memory on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slices.capacity() * size_of::<Slice>()
    }
}

/// How much likelier two parts of the evidence are if they are of two paths than if they are of one; packets,
/// losses apart and close ones of each.
fn ln_ratio(a: [u64; 3], b: [u64; 3]) -> f64 {
    let events = |a: [u64; 2], b: [u64; 2]| {
        // n ln(n / N) of both parts and of their sum.
        let of = |[events, of]: [u64; 2]| match events {
            0 => 0.0,
            _ => events as f64 * (events as f64 / of as f64).ln(),
        };
        of(a) + of(b) - of([a[0] + b[0], a[1] + b[1]])
    };
    let share = |[_, apart, close]: [u64; 3]| {
        let all = apart + close;
        ([apart, all], [close, all])
    };
    let ((apart_a, close_a), (apart_b, close_b)) = (share(a), share(b));
    events([a[1], a[0].max(1)], [b[1], b[0].max(1)])
        + events(apart_a, apart_b)
        + events(close_a, close_b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_link::SplitMix64;

    const SLICE_NS: u64 = 10_000_000;
    /// Packets of a slice: 1 Gbit/s.
    const PACKETS: u64 = 1_170;

    struct Path {
        evidence: Evidence,
        random: SplitMix64,
        now_ns: u64,
        position: u64,
        changes: Vec<u64>,
    }

    impl Path {
        fn new(seed: u64) -> Self {
            Self {
                evidence: Evidence::default(),
                random: SplitMix64::new(seed),
                now_ns: 0,
                position: 0,
                changes: Vec::new(),
            }
        }

        fn run(&mut self, slices: u64, bursts_ppm: u32, length: u64) {
            for _ in 0..slices {
                for at in 0..PACKETS {
                    if self.random.chance(bursts_ppm) {
                        self.evidence.on_lost(self.now_ns, self.position + at, length);
                    }
                }
                self.position += PACKETS;
                self.evidence.on_judged(self.now_ns, self.position);
                self.now_ns += SLICE_NS;
                if self.evidence.close(self.now_ns, SLICE_NS) == Some(true) {
                    self.changes.push(self.now_ns);
                }
            }
        }
    }

    #[test]
    fn bins_hold_their_distances() {
        for distance in (1..100).chain([127, 128, 1000, 4096, 100_000, 10_000_000]) {
            let ratio = distance_of(bin_of(distance)) / distance as f64;
            assert!((0.88..1.14).contains(&ratio), "{distance}: {ratio}");
        }
        assert_eq!(bin_of(u64::MAX >> 8), BINS - 1);
        assert!((1..1000).all(|distance| bin_of(distance + 1) >= bin_of(distance)));
    }

    #[test]
    fn a_path_that_stays_as_it_is_is_hardly_ever_taken_for_another() {
        for (bursts_ppm, length) in [(0, 1), (10, 1), (100, 1), (10_000, 1), (125, 8)] {
            let mut changes = 0;
            for seed in 0..5 {
                let mut path = Path::new(seed);
                path.run(6_000, bursts_ppm, length);
                changes += path.changes.len();
                assert!(path.evidence.slices.len() < 50, "{}", path.evidence.slices.len());
                let sum = path.evidence.sum();
                assert!(sum.end_ns - sum.begin_ns < 2 * FORGET_NS);
            }
            assert!(changes <= 3, "{bursts_ppm} ppm of {length}: {changes} in five minutes");
        }
    }

    #[test]
    fn a_change_counts_within_fractions_of_a_second() {
        let paths = [(100, 1), (10_000, 1), (125, 8), (0, 1)];
        for (from, to) in [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (2, 0), (2, 1), (3, 0), (3, 1)] {
            let (mut slowest, mut sum) = (0, 0);
            for seed in 0..20 {
                let mut path = Path::new(seed);
                path.run(1_000, paths[from].0, paths[from].1);
                path.changes.clear();
                let begin_ns = path.now_ns;
                path.run(200, paths[to].0, paths[to].1);
                let first = path.changes.first().map_or(u64::MAX, |at_ns| at_ns - begin_ns);
                slowest = slowest.max(first);
                sum += path.evidence.sum().packets;
            }
            let (slowest_ms, packets) = (slowest / 1_000_000, sum / 20);
            println!("{:?} to {:?}: {slowest_ms} ms, {packets}", paths[from], paths[to]);
            assert!(slowest <= 1_500_000_000, "{from} {to}: {slowest}");
            assert!(packets <= 300 * PACKETS, "what was before does not count: {packets}");
        }
    }

    #[test]
    fn an_outage_is_one_loss() {
        let mut evidence = Evidence::default();
        evidence.on_lost(0, 1000, 5000);
        evidence.on_judged(1, 10_000);
        let sum = evidence.sum();
        assert_eq!((sum.losses(), sum.packets, evidence.outages()), (1, 10_000, 1));
    }
}
