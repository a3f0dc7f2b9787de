//! Repairs of one burst. While packets are placed, rows that have become repairable are collected. They
//! are repaired at the end of the burst, before its counts are reported (`parity/mod.rs`).

#![allow(unsafe_code)]

use super::current::Current;
use crate::parity::{ParityOutcome, Repairer, RowId};
use crate::region::Bound;
use crate::summary::BurstSummary;
use crate::table::RecvTable;

/// The repairs of one burst; `None` if messages carry no parity.
#[derive(Debug)]
pub(crate) struct Repairs<'w>(Option<&'w mut Repairer>);

impl<'w> Repairs<'w> {
    pub(crate) fn new(repairer: Option<&'w mut Repairer>) -> Self {
        Self(repairer)
    }

    /// Whether messages carry parity.
    #[inline]
    pub(super) fn are_possible(&self) -> bool {
        self.0.is_some()
    }

    /// Whether there are rows to repair.
    #[inline]
    pub(super) fn has_rows(&self) -> bool {
        self.0.as_deref().is_some_and(Repairer::has_rows)
    }

    /// A data packet has arrived: the stored parity of its row may suffice now.
    #[inline]
    pub(super) fn on_data(&mut self, current: &Current<'_>, channel: u8, packet: u32) {
        if current.has_parity
            && let (Some(parity), Some(repairer)) = (current.receive.record().parity(), &mut self.0)
            && let Some(row) = parity.row_of(channel, packet)
        {
            repairer.push(RowId { slot: current.slot, generation: current.generation, row });
        }
    }

    /// A parity packet has arrived.
    pub(super) fn on_parity(
        &mut self,
        current: &mut Current<'_>,
        packet: u32,
        outcome: ParityOutcome,
    ) {
        current.has_parity |= matches!(outcome, ParityOutcome::Kept { .. });
        if let (ParityOutcome::Kept { enough: true }, Some(layout), Some(repairer)) =
            (outcome, current.receive.geometry().layout(), &mut self.0)
        {
            let at = layout.locate(packet);
            let row = (at.submessage, at.row);
            repairer.push(RowId { slot: current.slot, generation: current.generation, row });
        }
    }

    /// Repairs the collected rows, as far as possible.
    ///
    /// # Safety
    /// The caller is the only one that places packets of this channel in the table.
    pub(super) unsafe fn run(
        &mut self,
        table: &RecvTable,
        channel: u8,
        summary: &mut BurstSummary,
    ) {
        let Some(repairer) = self.0.as_deref_mut() else { return };
        let mtu_bytes = u64::from(table.geometry().mtu_bytes());
        while let Some(at) = repairer.pop() {
            let Some(receive) = table.pin(at.slot, at.generation) else { continue };
            if let Some(bound) = receive.bound() {
                if repair_bound(repairer, table, bound, (channel, at.row), summary).is_some() {
                    summary.touch(receive.number());
                }
                continue;
            }
            let Some(parity) = receive.parity() else { continue };
            let packets = receive.packets();
            let repaired = repairer.repair(&**receive, parity, channel, at.row, packets);
            for (packet, bytes) in repaired.packets() {
                let offset = u64::from(packet) * mtu_bytes;
                // SAFETY: the slot is pinned until the bit is published. The
                // packet belongs to this channel, as its parity does, whose only
                // writer the caller is, and its bit was found clear: nobody
                // else reads or writes these bytes.
                if unsafe { receive.put(offset, bytes) }.is_err() {
                    continue;
                }
                let chunks = receive.publish(packet / 64, 1 << (packet % 64));
                summary.repaired_packets += 1;
                summary.repaired_chunks += chunks;
                summary.chunks += chunks;
            }
            summary.touch(receive.number());
        }
    }
}

/// Repairs a row of a message in a region; `None` if its key was revoked.
fn repair_bound(
    repairer: &mut Repairer,
    table: &RecvTable,
    bound: &Bound,
    (channel, row): (u8, (u32, u32)),
    summary: &mut BurstSummary,
) -> Option<()> {
    let parity = bound.record().parity()?;
    let window = table.pin_key(bound.key()).ok().filter(|window| bound.is_under(window))?;
    let message = bound.in_window(&window);
    let packets = bound.record().packets();
    let repaired = repairer.repair(&message, parity, channel, row, packets);
    for (packet, bytes) in repaired.packets() {
        let Ok(chunks) = message.place_repaired(packet, bytes) else { continue };
        summary.repaired_packets += 1;
        summary.repaired_chunks += chunks;
        summary.chunks += chunks;
    }
    Some(())
}
