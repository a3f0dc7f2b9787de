//! The right to place packets of one channel.
//!
//! It exists once per channel and is handed to the worker that owns the channel. Because a packet's
//! channel is a function of its place, that makes each byte's writer unique, by construction rather
//! than by care.

use crate::burst::{BurstPlacer, Repairs};
use crate::geometry::Geometry;
use crate::parity::Repairer;
use crate::pieces::Pieces;
use crate::summary::BurstSummary;
use crate::table::RecvTable;
use lacuna_code::Codec;
use std::sync::Arc;

/// The right to place packets of one channel.
#[derive(Debug)]
pub struct ChannelWriter {
    table: Arc<RecvTable>,
    channel: u8,
    /// One past the highest packet sequence number that came.
    next_psn: u64,
    /// If messages carry parity.
    repairer: Option<Box<Repairer>>,
    /// Of packets that come in pieces.
    pieces: Pieces,
    /// What the last burst did so far.
    summary: BurstSummary,
}

impl ChannelWriter {
    /// A table without posted receives whose packets must carry `rkey`, and
    /// the one writer of each channel, which repairs with `codec`.
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

    /// The channel this is the writer of.
    #[inline]
    pub fn channel(&self) -> u8 {
        self.channel
    }

    /// The slots that it writes to.
    #[cfg(test)]
    pub(crate) fn table(&self) -> &RecvTable {
        &self.table
    }

    /// Sets the first sequence number that the peer will use.
    #[inline]
    pub fn expect_psn(&mut self, first_psn: u32) {
        self.next_psn = u64::from(first_psn);
    }

    /// Begins a burst; the slots it touches stay pinned until it is dropped.
    #[inline]
    pub fn burst(&mut self) -> BurstPlacer<'_> {
        self.summary = BurstSummary { next_psn: self.next_psn, ..BurstSummary::default() };
        self.resume()
    }

    /// Goes on with the last burst, whose slots were let go meanwhile: for packets that came with
    /// it and are taken later.
    #[inline]
    pub fn resume(&mut self) -> BurstPlacer<'_> {
        let repairs = Repairs::new(self.repairer.as_deref_mut());
        let (next_psn, pieces) = (&mut self.next_psn, &mut self.pieces);
        BurstPlacer::new(&self.table, self.channel, next_psn, repairs, pieces, &mut self.summary)
    }

    /// Whether the last burst left something to repair ([`BurstPlacer::repair`]).
    #[inline]
    pub fn has_repairs(&self) -> bool {
        self.repairer.as_deref().is_some_and(Repairer::has_rows)
    }

    /// What the last burst did, which is over.
    #[inline]
    pub fn summary(&mut self) -> &BurstSummary {
        self.summary.next_psn = self.next_psn;
        &self.summary
    }
}
