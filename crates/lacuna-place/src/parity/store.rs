//! The parity store of one receive: a bit for each parity packet that arrived, and the bytes of those
//! that may still be needed.
//!
//! A parity packet is kept only if its row misses more data packets than the store has parity for. So
//! it never holds more bytes than are missing, whatever a peer sends.
//!
//! Invariants:
//! - only the worker of a channel uses the rows of its submessages; so the locks, one per channel, are
//!   never contended and only make the sharing safe;
//! - a bit is set once, for the first copy of a parity packet.

use super::sums::Sums;
use super::{DataPackets, Layout, ParityPacket};
use crate::payload::Payload;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use lacuna_code::{ChunkSet, Code, CodeKind};
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// What was done with a parity packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParityOutcome {
    /// A copy had arrived before.
    Duplicate,
    /// It was a piece; the parity packet is still incomplete.
    Part,
    /// Its row is complete, or already has enough parity.
    Unneeded,
    /// It is kept.
    Kept {
        /// Whether something can be repaired with it now.
        enough: bool,
    },
    /// The message was finished before, as is usual for the last parity packets.
    Finished,
}

/// A stored parity packet.
#[derive(Debug)]
pub(crate) struct KeptPacket {
    /// Index of its parity chunk.
    pub(super) parity: u32,
    pub(super) len: usize,
    /// `None` if only the length is known, or the receive has no memory to repair.
    pub(super) bytes: Option<Box<[u8]>>,
}

/// The stored parity packets of a row.
pub(crate) type Kept = Vec<KeptPacket>;

/// Stored parity, by submessage and row.
type Rows = BTreeMap<(u32, u32), Kept>;

/// The parity of one receive; see the module's text.
#[derive(Debug)]
pub(crate) struct ParityStore {
    layout: Layout,
    /// Parity packets that arrived: bit `number - layout.base()`.
    bits: Box<[AtomicU64]>,
    /// By channel.
    rows: Box<[Mutex<Rows>]>,
    /// Only if others may write the data.
    sums: Option<Box<Sums>>,
}

impl ParityStore {
    /// An empty store for a receive of `packets` data packets, which others may write if
    /// `are_shared`.
    pub(crate) fn new(layout: Layout, packets: u32, channels: u8, are_shared: bool) -> Self {
        let words = layout.numbers(packets).div_ceil(64);
        Self {
            layout,
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
            rows: (0..channels).map(|_| Mutex::new(BTreeMap::new())).collect(),
            sums: are_shared.then(|| Box::new(Sums::new(packets))),
        }
    }

    /// Notes the bytes of a data packet that has arrived, if others may write them later.
    pub(crate) fn note_sum(&self, packet: u32, bytes: &[u8]) {
        if let Some(sums) = &self.sums {
            sums.note(packet, bytes);
        }
    }

    /// Whether these are the bytes of a data packet as it arrived.
    pub(crate) fn has_sum(&self, packet: u32, bytes: &[u8]) -> bool {
        self.sums.as_ref().is_some_and(|sums| sums.are_of(packet, bytes))
    }

    /// Takes a parity packet of a message of `packets` data packets. The caller has checked that the
    /// message has a parity packet with this number and length.
    pub(crate) fn take(
        &self,
        data: &impl DataPackets,
        channel: u8,
        number: u32,
        packets: u32,
        payload: impl Payload,
    ) -> ParityOutcome {
        let index = number - self.layout.base();
        let bit = 1 << (index % 64);
        if self.bits[(index / 64) as usize].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return ParityOutcome::Duplicate;
        }
        let at = self.layout.locate(number);
        let missing = self.missing(data, at, packets);
        let chunks = self.layout.chunks_of(at.submessage, packets);
        let code = self.layout.code_of(chunks);
        let wanted = match code.kind() {
            CodeKind::Mds => missing.len(),
            CodeKind::Xor => {
                let groups = code.parity_chunks();
                missing.iter().filter(|chunk| chunk % groups == at.parity as usize).count()
            }
        };
        if wanted == 0 {
            return ParityOutcome::Unneeded;
        }
        let mut rows = self.rows_of(channel);
        let kept = rows.entry((at.submessage, at.row)).or_default();
        if code.kind() == CodeKind::Mds && kept.len() >= wanted {
            return ParityOutcome::Unneeded;
        }
        let bytes = payload.bytes().filter(|_| !data.are_phantom()).map(Into::into);
        kept.push(KeptPacket { parity: at.parity, len: payload.len(), bytes });
        ParityOutcome::Kept { enough: !repairable(code, &missing, kept).is_empty() }
    }

    /// Whether a parity packet has arrived.
    pub(crate) fn has(&self, number: u32) -> bool {
        let index = number - self.layout.base();
        self.bits[(index / 64) as usize].load(Ordering::Relaxed) >> (index % 64) & 1 == 1
    }

    /// Whether no parity of a channel is stored.
    pub(crate) fn is_empty(&self, channel: u8) -> bool {
        self.rows_of(channel).is_empty()
    }

    /// The row of a data packet that just arrived, if parity is stored for it: the row may be repairable
    /// now.
    pub(crate) fn row_of(&self, channel: u8, packet: u32) -> Option<(u32, u32)> {
        let data = packet % self.layout.data_packets();
        let row = (self.layout.submessage_of(packet), data % self.layout.chunk_packets());
        self.rows_of(channel).contains_key(&row).then_some(row)
    }

    /// Takes out the parity of a row.
    pub(crate) fn remove(&self, channel: u8, row: (u32, u32)) -> Kept {
        self.rows_of(channel).remove(&row).unwrap_or_default()
    }

    /// Puts back the parity that is still needed.
    pub(crate) fn put_back(&self, channel: u8, row: (u32, u32), kept: Kept) {
        if !kept.is_empty() {
            self.rows_of(channel).insert(row, kept);
        }
    }

    /// The numbering of parity packets.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The missing data packets of a row, by the index of their chunk.
    fn missing(&self, data: &impl DataPackets, at: ParityPacket, packets: u32) -> ChunkSet {
        // Without loss this check is enough.
        if data.has_chunks_of(self.layout.data_of(at.submessage, packets)) {
            return ChunkSet::new();
        }
        missing_of(data, &self.layout, (at.submessage, at.row), packets)
    }

    fn rows_of(&self, channel: u8) -> MutexGuard<'_, Rows> {
        self.rows[usize::from(channel)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The missing data packets of a row, by the index of their chunk.
pub(super) fn missing_of(
    data: &impl DataPackets,
    layout: &Layout,
    (submessage, row): (u32, u32),
    packets: u32,
) -> ChunkSet {
    let row = layout.row(submessage, row, packets);
    let missing = |(_, packet): &(usize, u32)| !data.has(*packet);
    row.packets().enumerate().filter(missing).map(|(index, _)| index).collect()
}

/// The missing packets of a row that the kept parity can repair: with an MDS code all or none, with an
/// XOR code the single missing one of each group.
pub(super) fn repairable(code: Code, missing: &ChunkSet, kept: &Kept) -> ChunkSet {
    match code.kind() {
        CodeKind::Mds if missing.len() <= kept.len() => *missing,
        CodeKind::Mds => ChunkSet::new(),
        CodeKind::Xor => {
            let groups = code.parity_chunks();
            let of_group = |parity: u32| {
                let mut members = missing.iter().filter(move |c| c % groups == parity as usize);
                members.next().filter(|_| members.next().is_none())
            };
            kept.iter().filter_map(|kept| of_group(kept.parity)).collect()
        }
    }
}
