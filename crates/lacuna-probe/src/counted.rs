//! The server's counts of a trial, as it reports them to the client, which computes fractions, means and
//! confidence intervals from them.

use crate::host::HostDrops;

/// Time bins of a trial, to estimate how steady the rate is. With 32, an interval of Student's
/// distribution is within 4 % of the normal one, and the report fits one packet.
pub const BINS: usize = 32;

/// The counts of a trial. Only the first copy of a packet counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Different packets that arrived.
    pub received: u64,
    /// Packets that had arrived before.
    pub duplicates: u64,
    /// Loss bursts: runs of lost packets, in order of sending over all flows.
    pub bursts: u64,
    /// Loss bursts within each flow, summed.
    pub flow_bursts: u64,
    /// Packets that arrived after a later one of their flow (RFC 4737, 3.3).
    pub reordered: u64,
    /// Sum of their reordering extents: the packets of the flow that arrived in between (RFC 4737,
    /// 4.2).
    pub extent_sum: u64,
    /// The largest reordering extent.
    pub extent_max: u64,
    /// The largest time that a reordered packet arrived after the first later one (RFC 4737, 4.3, late
    /// time offset).
    pub late_ns_max: u64,
    /// Smoothed difference of transit times, the mean over flows (RFC 3550, 6.4.1).
    pub jitter_ns: u64,
    /// Time from the first arrival to the last.
    pub span_ns: u64,
    /// Length of a bin; the first begins with the first arrival.
    pub bin_ns: u64,
    /// Packets that arrived in each bin, without duplicates.
    pub bins: [u32; BINS],
    /// Packets that the server's host dropped during the trial.
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

    /// Parses at least [`Counted::BYTES`].
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

/// How many numbers of 64 bits there are.
const NUMBERS: usize = 14;
