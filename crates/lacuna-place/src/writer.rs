//! The exclusive right to place packets of one channel.
//!
//! There is one [`ChannelWriter`] per channel, owned by the channel's worker. A packet's offset
//! determines its channel, so each byte has only one writer, and the type system enforces it.

use crate::burst::{BurstPlacer, Repairs};
use crate::geometry::Geometry;
use crate::parity::Repairer;
use crate::pieces::Pieces;
use crate::summary::BurstSummary;
use crate::table::RecvTable;
use lacuna_code::Codec;
use lacuna_wire::Seal;
use std::sync::Arc;

/// The exclusive right to place packets of one channel.
#[derive(Debug)]
pub struct ChannelWriter {
    table: Arc<RecvTable>,
    channel: u8,
    /// One past the highest packet sequence number that arrived.
    next_psn: u64,
    /// `Some` if messages carry parity.
    repairer: Option<Box<Repairer>>,
    /// Incomplete packets that arrive in pieces.
    pieces: Pieces,
    /// Counts of the last burst.
    summary: BurstSummary,
}

impl ChannelWriter {
    /// Makes a table without posted receives, whose packets must carry `rkey`, and the one writer of
    /// each channel. The writers repair with `codec`.
    pub fn of_table(
        geometry: Geometry,
        rkey: u32,
        first_psn: u32,
        codec: Option<&Arc<Codec>>,
    ) -> (Arc<RecvTable>, Vec<Self>) {
        let table = Arc::new(RecvTable::new(geometry, rkey));
        let writers = (0..geometry.channels())
            .map(|channel| Self {
                table: table.clone(),
                channel,
                next_psn: u64::from(first_psn),
                repairer: codec.map(|codec| Box::new(Repairer::new(codec.clone()))),
                pieces: Pieces::default(),
                summary: BurstSummary::default(),
            })
            .collect();
        (table, writers)
    }

    /// The channel of this writer.
    #[inline]
    pub fn channel(&self) -> u8 {
        self.channel
    }

    /// The packets' trailer.
    pub fn seal(&self) -> Seal {
        self.table.geometry().seal()
    }

    /// The slots that this writer places into.
    #[cfg(test)]
    pub(crate) fn table(&self) -> &RecvTable {
        &self.table
    }

    /// Sets the first sequence number that the peer will use.
    #[inline]
    pub fn expect_psn(&mut self, first_psn: u32) {
        self.next_psn = u64::from(first_psn);
    }

    /// Begins a burst, which keeps one slot at a time pinned until it is dropped.
    #[inline]
    pub fn burst(&mut self) -> BurstPlacer<'_> {
        self.summary = BurstSummary { next_psn: self.next_psn, ..BurstSummary::default() };
        self.resume()
    }

    /// Continues the last burst, which was dropped and so has unpinned its slot: for packets that
    /// arrived with it and are placed later.
    #[inline]
    pub fn resume(&mut self) -> BurstPlacer<'_> {
        let repairs = Repairs::new(self.repairer.as_deref_mut());
        let (next_psn, pieces) = (&mut self.next_psn, &mut self.pieces);
        BurstPlacer::new(&self.table, self.channel, next_psn, repairs, pieces, &mut self.summary)
    }

    /// Whether the last burst left rows to repair ([`BurstPlacer::repair`]).
    #[inline]
    pub fn has_repairs(&self) -> bool {
        self.repairer.as_deref().is_some_and(Repairer::has_rows)
    }

    /// The counts of the last burst, which has ended.
    #[inline]
    pub fn summary(&mut self) -> &BurstSummary {
        self.summary.next_psn = self.next_psn;
        &self.summary
    }
}
