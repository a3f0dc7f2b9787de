//! Numbering of parity packets: arithmetic that both ends share.
//!
//! Data packets are numbered as in every mode. Parity packets are numbered after all numbers that data
//! of a slot can have: submessage `s` owns `m * chunk_packets` numbers from `base + s * m *
//! chunk_packets` on, chunk after chunk. So a parity packet's number determines its submessage, its
//! parity chunk and its packet in that chunk, whatever the message's length.
//!
//! Chunks here are chunks of the code: one or several chunks of the bitmap. A *row* consists of the
//! packets with the same position in the chunks of a submessage. Packet `r` of parity chunk `i` is
//! parity `i` of row `r`: each row is a codeword.
//!
//! The last submessage may be shorter: `t` chunks, the last of them with fewer packets. It has
//! `ceil(t m / k)` parity chunks (the paper leaves this open; the overhead stays the same), each as
//! long as its first data chunk.

use lacuna_code::{Code, CodeKind};
use std::ops::Range;

/// The numbering of parity packets; see the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    code: Code,
    chunk_packets: u32,
    base: u32,
}

/// A parity packet, decoded from its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParityPacket {
    /// Submessage of the message.
    pub submessage: u32,
    /// Parity chunk of the submessage.
    pub parity: u32,
    /// Packet of the chunk.
    pub row: u32,
}

/// The data packets of one row: `first`, and `count - 1` more at intervals of `chunk_packets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Number of the row's first packet.
    pub first: u32,
    /// Number of packets.
    pub count: u32,
    /// Distance between them.
    pub chunk_packets: u32,
}

impl Row {
    /// The packets, in the order of the code's data chunks.
    #[inline]
    pub fn packets(&self) -> impl Iterator<Item = u32> + use<> {
        let Self { first, count, chunk_packets } = *self;
        (0..count).map(move |index| first + index * chunk_packets)
    }
}

/// Most packets of a submessage, so that sums do not overflow.
const SUBMESSAGE_PACKETS_MAX: u64 = 1 << 28;

impl Layout {
    /// The layout of `code` with parity numbered from `base` on; `None` if chunks are empty or a
    /// submessage would have more than 2^28 packets.
    pub fn new(code: Code, chunk_packets: u32, base: u32) -> Option<Self> {
        let packets = code.chunks() as u64 * u64::from(chunk_packets);
        (chunk_packets > 0 && packets <= SUBMESSAGE_PACKETS_MAX).then_some(Self {
            code,
            chunk_packets,
            base,
        })
    }

    /// The code of whole submessages.
    #[inline]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The code of a submessage of `chunks` data chunks. The MDS code needs no change for a short one.
    /// For the XOR code, a short submessage has as many groups as it has parity chunks, so that the
    /// groups still cover all data.
    #[inline]
    pub fn code_of(&self, chunks: u32) -> Code {
        let is_short = (chunks as usize) < self.code.data_chunks();
        if is_short && self.code.kind() == CodeKind::Xor {
            let groups = self.parity_chunks(chunks) as usize;
            return Code::xor(chunks as usize, groups).unwrap_or(self.code);
        }
        self.code
    }

    /// Packets per chunk of the code.
    #[inline]
    pub fn chunk_packets(&self) -> u32 {
        self.chunk_packets
    }

    /// The first number of a parity packet.
    #[inline]
    pub fn base(&self) -> u32 {
        self.base
    }

    /// Whether the number is that of a parity packet.
    #[inline]
    pub fn is_parity(&self, packet: u32) -> bool {
        packet >= self.base
    }

    /// Data packets of a whole submessage.
    #[inline]
    pub fn data_packets(&self) -> u32 {
        self.code.data_chunks() as u32 * self.chunk_packets
    }

    /// Packet numbers reserved for the parity of a submessage.
    #[inline]
    pub fn parity_packets(&self) -> u32 {
        self.code.parity_chunks() as u32 * self.chunk_packets
    }

    /// Submessages of a message of `packets` data packets.
    #[inline]
    pub fn submessages(&self, packets: u32) -> u32 {
        packets.div_ceil(self.data_packets())
    }

    /// Packet numbers reserved for the parity of a message of `packets` data packets.
    #[inline]
    pub fn numbers(&self, packets: u32) -> u64 {
        u64::from(self.submessages(packets)) * u64::from(self.parity_packets())
    }

    /// The submessage that a data packet belongs to.
    #[inline]
    pub fn submessage_of(&self, packet: u32) -> u32 {
        packet / self.data_packets()
    }

    /// Decodes the number of a parity packet.
    #[inline]
    pub fn locate(&self, packet: u32) -> ParityPacket {
        debug_assert!(self.is_parity(packet));
        let index = packet - self.base;
        let within = index % self.parity_packets();
        ParityPacket {
            submessage: index / self.parity_packets(),
            parity: within / self.chunk_packets,
            row: within % self.chunk_packets,
        }
    }

    /// Data packets of a submessage of a message of `packets`.
    #[inline]
    pub fn data_of(&self, submessage: u32, packets: u32) -> Range<u32> {
        let start = u64::from(submessage) * u64::from(self.data_packets());
        let start = start.min(u64::from(packets)) as u32;
        start..packets.min(start.saturating_add(self.data_packets()))
    }

    /// Data chunks of a submessage of a message of `packets`.
    #[inline]
    pub fn chunks_of(&self, submessage: u32, packets: u32) -> u32 {
        let data = self.data_of(submessage, packets);
        (data.end - data.start).div_ceil(self.chunk_packets)
    }

    /// Parity chunks for a submessage of `chunks` data chunks.
    #[inline]
    pub fn parity_chunks(&self, chunks: u32) -> u32 {
        let (k, m) = (self.code.data_chunks() as u32, self.code.parity_chunks() as u32);
        (chunks * m).div_ceil(k)
    }

    /// Rows of a submessage of a message of `packets`.
    #[inline]
    pub fn rows_of(&self, submessage: u32, packets: u32) -> u32 {
        let data = self.data_of(submessage, packets);
        (data.end - data.start).min(self.chunk_packets)
    }

    /// The data packets of a row of a message of `packets`.
    #[inline]
    pub fn row(&self, submessage: u32, row: u32, packets: u32) -> Row {
        let data = self.data_of(submessage, packets);
        let first = data.start + row;
        let count = data.end.saturating_sub(first).div_ceil(self.chunk_packets);
        Row { first, count, chunk_packets: self.chunk_packets }
    }

    /// The parity packets of a submessage of a message of `packets`: ranges of numbers, only one unless
    /// the submessage's only data chunk is short.
    pub fn parity_of(
        &self,
        submessage: u32,
        packets: u32,
    ) -> impl Iterator<Item = Range<u32>> + use<> {
        let count = self.parity_chunks(self.chunks_of(submessage, packets));
        self.first_parity_of(submessage, packets, count)
    }

    /// The packets of the first `count` parity chunks of a submessage, which must have that many.
    pub fn first_parity_of(
        &self,
        submessage: u32,
        packets: u32,
        count: u32,
    ) -> impl Iterator<Item = Range<u32>> + use<> {
        let rows = self.rows_of(submessage, packets);
        let first = self.base + submessage * self.parity_packets();
        let chunk_packets = self.chunk_packets;
        let (runs, run_packets) =
            if rows == chunk_packets { (count.min(1), count * rows) } else { (count, rows) };
        (0..runs).map(move |run| {
            let start = first + run * chunk_packets;
            start..start + run_packets
        })
    }

    /// Bytes of a parity packet: as many as the first data packet of its row has, in a message of `bytes`
    /// in `packets` packets of `mtu_bytes`.
    #[inline]
    pub fn parity_bytes(&self, at: ParityPacket, bytes: u64, packets: u32, mtu_bytes: u32) -> u64 {
        let mtu_bytes = u64::from(mtu_bytes);
        let first = u64::from(self.row(at.submessage, at.row, packets).first);
        bytes.saturating_sub(first * mtu_bytes).min(mtu_bytes)
    }
}

/// Data packets of the longest message that needs at most `numbers` packet numbers, parity included.
pub(crate) fn data_packets_limit(numbers: u32, chunk_packets: u32, code: Code) -> u32 {
    let data = code.data_chunks() as u64 * u64::from(chunk_packets);
    let parity = code.parity_chunks() as u64 * u64::from(chunk_packets);
    let whole = u64::from(numbers) / (data + parity);
    let rest = u64::from(numbers) - whole * (data + parity);
    (whole * data + rest.saturating_sub(parity)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(code: &str, chunk_packets: u32, base: u32) -> Layout {
        Layout::new(code.parse().unwrap(), chunk_packets, base).unwrap()
    }

    #[test]
    fn a_whole_message_has_its_share_of_parity() {
        let layout = layout("mds:32:8", 16, 1 << 17);
        assert_eq!(layout.submessages(1024), 2);
        assert_eq!(layout.data_of(1, 1024), 512..1024);
        let mut parity = layout.parity_of(1, 1024);
        assert_eq!(parity.next(), Some((1 << 17) + 128..(1 << 17) + 256));
        assert_eq!(parity.next(), None);
        let at = layout.locate((1 << 17) + 128 + 17);
        assert_eq!(at, ParityPacket { submessage: 1, parity: 1, row: 1 });
        let row = layout.row(1, 1, 1024);
        assert_eq!((row.first, row.count), (513, 32));
        assert_eq!(row.packets().nth(2), Some(545));
    }

    #[test]
    fn a_tail_keeps_the_share_rounded_up() {
        let layout = layout("mds:32:8", 4, 1000);
        // Five chunks, the last of two packets.
        let packets = 18;
        assert_eq!((layout.chunks_of(0, packets), layout.parity_chunks(5)), (5, 2));
        assert_eq!((layout.row(0, 1, packets).count, layout.row(0, 2, packets).count), (5, 4));
        let mut parity = layout.parity_of(0, packets);
        assert_eq!((parity.next(), parity.next()), (Some(1000..1008), None));
    }

    #[test]
    fn one_short_chunk_has_short_parity() {
        let layout = layout("mds:2:4", 4, 1000);
        let parity: Vec<_> = layout.parity_of(0, 3).collect();
        assert_eq!(parity, [1000..1003, 1004..1007]);
        let at = layout.locate(1006);
        assert_eq!(layout.parity_bytes(at, 2 * 64 + 5, 3, 64), 5);
        assert_eq!(layout.parity_bytes(layout.locate(1000), 2 * 64 + 5, 3, 64), 64);
        assert_eq!(layout.parity_bytes(layout.locate(1000), 0, 1, 64), 0, "an empty message");
    }

    #[test]
    fn the_groups_of_a_short_xor_block_cover_all_of_it() {
        let layout = layout("xor:32:8", 1, 1000);
        assert_eq!(layout.code_of(32).to_string(), "xor:32:8");
        assert_eq!(layout.code_of(4).to_string(), "xor:4:1");
        assert_eq!(layout.code_of(9).to_string(), "xor:9:3");
    }

    proptest! {
        #[test]
        fn every_parity_packet_is_found_again(
            k in 1usize..20, m in 1usize..20, chunk in 1u32..9, packets in 1u32..500,
        ) {
            let layout = Layout::new(Code::mds(k, m).unwrap(), chunk, 600).unwrap();
            let mut seen = Vec::new();
            for submessage in 0..layout.submessages(packets) {
                for packet in layout.parity_of(submessage, packets).flatten() {
                    let at = layout.locate(packet);
                    prop_assert_eq!(at.submessage, submessage);
                    prop_assert!(at.row < layout.rows_of(submessage, packets));
                    let chunks = layout.chunks_of(submessage, packets);
                    prop_assert!(at.parity < layout.parity_chunks(chunks));
                    prop_assert!(layout.parity_chunks(chunks) <= m as u32);
                    prop_assert!(layout.row(submessage, at.row, packets).count >= 1);
                    prop_assert!(u64::from(packet) < 600 + layout.numbers(packets));
                    seen.push(packet);
                }
            }
            prop_assert!(seen.is_sorted_by(|a, b| a < b), "no number twice");
        }

        #[test]
        fn every_data_packet_is_in_one_row(
            k in 1usize..9, m in 1usize..9, chunk in 1u32..9, packets in 1u32..500,
        ) {
            let layout = Layout::new(Code::mds(k, m).unwrap(), chunk, 600).unwrap();
            let mut seen = vec![0; packets as usize];
            for submessage in 0..layout.submessages(packets) {
                for row in 0..layout.rows_of(submessage, packets) {
                    for packet in layout.row(submessage, row, packets).packets() {
                        prop_assert_eq!(layout.submessage_of(packet), submessage);
                        seen[packet as usize] += 1;
                    }
                }
            }
            prop_assert!(seen.iter().all(|count| *count == 1));
        }

        #[test]
        fn the_longest_message_has_room_for_its_parity(
            k in 1usize..40, m in 1usize..40, chunk in 1u32..9, numbers in 1u32..100_000,
        ) {
            let code = Code::mds(k, m).unwrap();
            let limit = data_packets_limit(numbers, chunk, code);
            let layout = Layout::new(code, chunk, limit).unwrap();
            prop_assert!(u64::from(limit) + layout.numbers(limit) <= u64::from(numbers));
            let more = u64::from(limit) + 1 + layout.numbers(limit + 1);
            prop_assert!(more > u64::from(numbers), "and not one packet more");
        }
    }
}
