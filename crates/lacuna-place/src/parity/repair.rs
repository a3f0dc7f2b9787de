//! Repairs rows: the list of repairable rows, and the codec and memory that one channel's worker needs
//! for them.
//!
//! Repaired packets are computed into the repairer's own memory. The caller, who has the right to place
//! the channel's packets, places them like packets that arrived.

use super::store::{Kept, ParityStore, missing_of, repairable};
use super::{DataPackets, Row, codec_like};
use lacuna_code::{ChunkSet, Code, CodeKind, Codec, Workspace};
use std::sync::Arc;

/// A row of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowId {
    pub(crate) slot: u32,
    pub(crate) generation: u8,
    /// Submessage, and row in it.
    pub(crate) row: (u32, u32),
}

/// Repairs the rows of one channel; see the module's text.
#[derive(Debug)]
pub(crate) struct Repairer {
    codec: Arc<Codec>,
    /// Allocated at the first loss.
    workspace: Option<Workspace>,
    /// Rows to be repaired at the end of the burst.
    rows: Vec<RowId>,
    scratch: Vec<u8>,
    /// Data packets of a row, at intervals of `mtu_bytes`, if they must be copied.
    copies: Vec<u8>,
}

/// A packet to be repaired: its index in the row, its number and its length.
#[derive(Debug, Clone, Copy)]
struct Lost {
    index: usize,
    packet: u32,
    len: usize,
}

/// Repaired packets, and their bytes at intervals of `mtu_bytes`.
#[derive(Debug)]
pub(crate) struct Repaired<'r> {
    mtu_bytes: usize,
    packets: Vec<Lost>,
    /// Empty for a phantom receive.
    bytes: &'r [u8],
}

impl Repaired<'_> {
    /// Number and payload of each packet.
    pub(crate) fn packets(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.packets.iter().enumerate().map(|(position, lost)| {
            let start = position * self.mtu_bytes;
            (lost.packet, self.bytes.get(start..start + lost.len).unwrap_or_default())
        })
    }
}

impl Repairer {
    pub(crate) fn new(codec: Arc<Codec>) -> Self {
        let (rows, scratch, copies) = (Vec::new(), Vec::new(), Vec::new());
        Self { codec, workspace: None, rows, scratch, copies }
    }

    /// Adds a row to be repaired at the end of the burst.
    pub(crate) fn push(&mut self, row: RowId) {
        if !self.rows.contains(&row) {
            self.rows.push(row);
        }
    }

    /// Whether there are rows to repair.
    pub(crate) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// The next row to be repaired.
    pub(crate) fn pop(&mut self) -> Option<RowId> {
        self.rows.pop()
    }

    /// Repairs a row of a message of `packets` data packets as far as possible. Parity that is still
    /// needed stays in the store; parity that contradicts the message's length is dropped.
    pub(crate) fn repair(
        &mut self,
        data: &impl DataPackets,
        store: &ParityStore,
        channel: u8,
        row: (u32, u32),
        packets: u32,
    ) -> Repaired<'_> {
        let mtu_bytes = data.mtu_bytes() as usize;
        let layout = *store.layout();
        let mut kept = store.remove(channel, row);
        let missing = missing_of(data, &layout, row, packets);
        let code = layout.code_of(layout.chunks_of(row.0, packets));
        let wanted = repairable(code, &missing, &kept);
        let packets_of_row = layout.row(row.0, row.1, packets);
        let lost = packets_of_row.packets().enumerate();
        let lost = lost.filter(|(index, _)| wanted.contains(*index));
        let lost = lost.map(|(index, packet)| Lost { index, packet, len: data.bytes_of(packet) });
        let mut lost: Vec<Lost> = lost.collect();
        if !data.are_phantom() {
            self.scratch.resize(self.scratch.len().max(lost.len() * mtu_bytes), 0);
        }
        let is_repaired = lost.is_empty()
            || self.compute(data, (code, packets_of_row), (&kept, &missing), &lost).is_some();
        match code.kind() {
            // The row was not repaired because its parity contradicts the message.
            _ if !is_repaired => kept.clear(),
            CodeKind::Mds if !lost.is_empty() || missing.is_empty() => kept.clear(),
            CodeKind::Mds => {}
            CodeKind::Xor => {
                let groups = code.parity_chunks();
                let still = missing.without(&wanted);
                let waits =
                    |parity: u32| still.iter().any(|chunk| chunk % groups == parity as usize);
                kept.retain(|kept| waits(kept.parity));
            }
        }
        store.put_back(channel, row, kept);
        if !is_repaired {
            lost.clear();
        }
        let bytes = if data.are_phantom() { &[][..] } else { &self.scratch };
        Repaired { mtu_bytes, packets: lost, bytes }
    }

    /// Writes the packets `lost` to the scratch memory, `mtu_bytes` apart.
    fn compute(
        &mut self,
        packets: &impl DataPackets,
        (code, row): (Code, Row),
        (kept, missing): (&Kept, &ChunkSet),
        lost: &[Lost],
    ) -> Option<()> {
        let mtu_bytes = packets.mtu_bytes() as usize;
        let first_bytes = packets.bytes_of(row.first);
        if kept.iter().any(|kept| kept.len != first_bytes) {
            // The sender has changed the end of the message since.
            return None;
        }
        if first_bytes == 0 || packets.are_phantom() {
            return Some(());
        }
        if kept.iter().any(|kept| kept.bytes.is_none()) {
            // Parity without bytes repairs nothing.
            return None;
        }
        if packets.must_be_copied() {
            copy_row(packets, row, missing, &mut self.copies)?;
        }
        let copies = &self.copies;
        let data = row.packets().enumerate().filter(|(index, _)| !missing.contains(*index));
        let data: Option<Vec<_>> = data
            .map(|(index, packet)| match packets.must_be_copied() {
                true => Some((index, &copies[index * mtu_bytes..][..packets.bytes_of(packet)])),
                false => Some((index, packets.payload(packet)?)),
            })
            .collect();
        let k = code.data_chunks();
        let parity = kept.iter().filter_map(|kept| {
            kept.bytes.as_deref().map(|bytes| (k + kept.parity as usize, bytes))
        });
        let outputs = self.scratch.chunks_mut(mtu_bytes).zip(lost);
        let outputs = outputs.map(|(bytes, lost)| (lost.index, &mut bytes[..lost.len]));
        let present = data?.into_iter().chain(parity);
        let count = row.count as usize;
        if code == self.codec.code() {
            let codec = &self.codec;
            let workspace = self.workspace.get_or_insert_with(|| Workspace::new(codec));
            codec.reconstruct_listed(workspace, count, present, outputs).ok()
        } else {
            let codec = codec_like(&self.codec, code);
            let mut workspace = Workspace::new(&codec);
            codec.reconstruct_listed(&mut workspace, count, present, outputs).ok()
        }
    }
}

/// Copies the data packets of a row that have arrived, at intervals of an MTU. `None` if the bytes of one
/// are no longer those that arrived.
fn copy_row(
    packets: &impl DataPackets,
    row: Row,
    missing: &ChunkSet,
    copies: &mut Vec<u8>,
) -> Option<()> {
    let mtu_bytes = packets.mtu_bytes() as usize;
    copies.resize(copies.len().max(row.count as usize * mtu_bytes), 0);
    for (index, packet) in row.packets().enumerate().filter(|(index, _)| !missing.contains(*index))
    {
        let out = &mut copies[index * mtu_bytes..][..packets.bytes_of(packet)];
        packets.copy(packet, out).then_some(())?;
    }
    Some(())
}
