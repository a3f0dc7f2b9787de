//! The parity packets of one receive: a bit for each that came, and the bytes of those that may still
//! repair something.
//!
//! Parity is kept only while its row misses more data than parity is there for.
//! So the bytes kept are fewer than the bytes missing, whatever a peer sends.
//!
//! Invariants:
//! - the rows of a submessage are touched by the one worker of its channel; the
//!   locks, one per channel, are never waited for and only make that safe;
//! - a bit is set once, for the first copy of a parity packet.

use super::{DataPackets, Layout, ParityPacket};
use crate::payload::Payload;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use lacuna_code::{ChunkSet, Code, CodeKind};
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// What became of a parity packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// A copy came before.
    Duplicate,
    /// It is a piece of one that is not whole yet.
    Part,
    /// Its row has all data, or will have by what is kept.
    Unneeded,
    /// It is kept; `enough` if something can be repaired with it now.
    Kept {
        /// See above.
        enough: bool,
    },
    /// The message is finished, as is usual when the last parity comes.
    Finished,
}

/// A parity packet that is kept.
#[derive(Debug)]
pub(crate) struct KeptPacket {
    /// Its parity chunk.
    pub(super) parity: u32,
    pub(super) len: usize,
    /// Unless only the length is known, or there is no memory to repair.
    pub(super) bytes: Option<Box<[u8]>>,
}

/// Parity packets of a row that are kept.
pub(crate) type Kept = Vec<KeptPacket>;

/// What is kept, by submessage and row.
type Rows = BTreeMap<(u32, u32), Kept>;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Held {
    layout: Layout,
    /// By number less the layout's base.
    bits: Box<[AtomicU64]>,
    /// Per channel.
    rows: Box<[Mutex<Rows>]>,
}

impl Held {
    /// For a receive of `packets` data packets.
    pub(crate) fn new(layout: Layout, packets: u32, channels: u8) -> Self {
        let words = layout.numbers(packets).div_ceil(64);
        Self {
            layout,
            bits: (0..words).map(|_| AtomicU64::new(0)).collect(),
            rows: (0..channels).map(|_| Mutex::new(BTreeMap::new())).collect(),
        }
    }

    /// Takes a parity packet of a message of `packets`. The caller has checked
    /// that the message has such a packet, of this length.
    pub(crate) fn take(
        &self,
        data: &impl DataPackets,
        channel: u8,
        number: u32,
        packets: u32,
        payload: impl Payload,
    ) -> Taken {
        let index = number - self.layout.base();
        let bit = 1 << (index % 64);
        if self.bits[(index / 64) as usize].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return Taken::Duplicate;
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
            return Taken::Unneeded;
        }
        let mut rows = self.rows_of(channel);
        let kept = rows.entry((at.submessage, at.row)).or_default();
        if code.kind() == CodeKind::Mds && kept.len() >= wanted {
            return Taken::Unneeded;
        }
        let bytes = payload.bytes().filter(|_| !data.are_phantom()).map(Into::into);
        kept.push(KeptPacket { parity: at.parity, len: payload.len(), bytes });
        Taken::Kept { enough: !repairable(code, &missing, kept).is_empty() }
    }

    /// Whether a parity packet has come.
    pub(crate) fn has(&self, number: u32) -> bool {
        let index = number - self.layout.base();
        self.bits[(index / 64) as usize].load(Ordering::Relaxed) >> (index % 64) & 1 == 1
    }

    /// Whether nothing is kept on a channel.
    pub(crate) fn is_empty(&self, channel: u8) -> bool {
        self.rows_of(channel).is_empty()
    }

    /// The row of a data packet that just came, if parity is kept for it:
    /// something of it may be repairable now.
    pub(crate) fn row_of(&self, channel: u8, packet: u32) -> Option<(u32, u32)> {
        let data = packet % self.layout.data_packets();
        let row = (self.layout.submessage_of(packet), data % self.layout.chunk_packets());
        self.rows_of(channel).contains_key(&row).then_some(row)
    }

    /// Takes what is kept for a row.
    pub(crate) fn remove(&self, channel: u8, row: (u32, u32)) -> Kept {
        self.rows_of(channel).remove(&row).unwrap_or_default()
    }

    /// Gives back what still waits.
    pub(crate) fn put_back(&self, channel: u8, row: (u32, u32), kept: Kept) {
        if !kept.is_empty() {
            self.rows_of(channel).insert(row, kept);
        }
    }

    /// Where parity stands.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The data packets of a row that are not here, by their chunk's index.
    fn missing(&self, data: &impl DataPackets, at: ParityPacket, packets: u32) -> ChunkSet {
        // Without loss this is all that is looked at.
        if data.has_chunks_of(self.layout.data_of(at.submessage, packets)) {
            return ChunkSet::new();
        }
        missing_of(data, &self.layout, (at.submessage, at.row), packets)
    }

    fn rows_of(&self, channel: u8) -> MutexGuard<'_, Rows> {
        self.rows[usize::from(channel)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The data packets of a row that are not here, by their chunk's index.
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

/// Which of the missing packets of a row the kept parity gives: with MDS all or
/// none, with XOR the only missing one of a group.
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
