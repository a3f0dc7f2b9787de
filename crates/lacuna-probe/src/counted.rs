//! What a server counted of a trial, as it goes back to the client: sums and counts, from which the
//! client computes shares, means and intervals.

use crate::host::HostDrops;

/// Spans that a trial is divided into to see how steady the rate is. With 32, an interval of
/// Student's distribution is within 4 % of the normal one, and the report fits one packet.
pub const BINS: usize = 32;

/// See the module's text. Of a packet that came more than once, the first counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Different packets that arrived.
    pub received: u64,
    /// Packets that had arrived before.
    pub duplicates: u64,
    /// Runs of lost packets, in the order of sending over all flows.
    pub bursts: u64,
    /// The same within each flow.
    pub flow_bursts: u64,
    /// Packets that arrived behind one of their flow that was sent later (RFC 4737, 3.3).
    pub reordered: u64,
    /// Sum over them of the reordering extent: how many packets of the flow came in between
    /// (RFC 4737, 4.2).
    pub extent_sum: u64,
    /// The largest.
    pub extent_max: u64,
    /// The latest that one of them came behind the first that should have come later (RFC 4737,
    /// 4.3, late time offset).
    pub late_ns_max: u64,
    /// Smoothed difference of transit times, the mean over flows (RFC 3550, 6.4.1).
    pub jitter_ns: u64,
    /// From the first arrival to the last.
    pub span_ns: u64,
    /// Length of a bin; the first begins with the first arrival.
    pub bin_ns: u64,
    /// Packets that arrived within each bin, repeated ones not counted.
    pub bins: [u32; BINS],
    /// What the server's host dropped by itself meanwhile.
    pub drops: HostDrops,
}

impl Counted {
    /// Bytes on the wire.
    pub(crate) const BYTES: usize = 8 * NUMBERS + 4 * BINS;

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for number in self.numbers() {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for bin in self.bins {
            out.extend_from_slice(&bin.to_be_bytes());
        }
    }

    /// From at least [`Counted::BYTES`].
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.split_at_checked(8 * NUMBERS)?;
        let mut numbers = numbers
            .chunks_exact(8)
            .map(|bytes| bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
        let mut next = || numbers.next().unwrap_or(0);
        let mut counted = Self {
            received: next(),
            duplicates: next(),
            bursts: next(),
            flow_bursts: next(),
            reordered: next(),
            extent_sum: next(),
            extent_max: next(),
            late_ns_max: next(),
            jitter_ns: next(),
            span_ns: next(),
            bin_ns: next(),
            bins: [0; BINS],
            drops: HostDrops { socket: next(), kernel: next(), card: next() },
        };
        let bins = rest.get(..4 * BINS)?.chunks_exact(4);
        for (bin, bytes) in counted.bins.iter_mut().zip(bins) {
            *bin = bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        }
        Some(counted)
    }

    fn numbers(&self) -> [u64; NUMBERS] {
        [
            self.received,
            self.duplicates,
            self.bursts,
            self.flow_bursts,
            self.reordered,
            self.extent_sum,
            self.extent_max,
            self.late_ns_max,
            self.jitter_ns,
            self.span_ns,
            self.bin_ns,
            self.drops.socket,
            self.drops.kernel,
            self.drops.card,
        ]
    }
}

/// Numbers of 64 bits.
const NUMBERS: usize = 14;
