//! Receives of which the application waits for some chunks, so that it works on them while the rest
//! arrives. It reads the live bitmap itself; here is only when it is woken.
//!
//! A watch is kept until its chunks are here or its receive is over, which is told anyway.

use super::{PostedReceive, RecvSide};

/// The open watches. Few receives have any.
#[derive(Debug, Default)]
pub(super) struct ChunkWatches {
    /// The first message of a receive, and the chunks of it that are waited for.
    open: Vec<(u64, u32)>,
}

impl RecvSide {
    /// Watches for this many chunks of a receive; returns whether they are here already.
    pub(crate) fn watch_chunks(&mut self, posted: &PostedReceive, chunks: u32) -> bool {
        let done: u32 = posted.parts.iter().map(|part| part.chunks_done()).sum();
        if done >= chunks {
            return true;
        }
        let watch = (posted.first, chunks);
        if self.is_open(posted.first) && !self.chunk_watches.open.contains(&watch) {
            self.chunk_watches.open.push(watch);
        }
        false
    }

    /// Whether chunks are here that were waited for, after packets were placed.
    #[inline]
    pub(crate) fn are_chunks_here(&mut self) -> bool {
        !self.chunk_watches.open.is_empty() && self.take_watches()
    }

    fn take_watches(&mut self) -> bool {
        let mut open = std::mem::take(&mut self.chunk_watches.open);
        let mut any = false;
        open.retain(|&(head, chunks)| {
            let is_here = self.chunks_done(head) >= chunks;
            any |= is_here;
            !is_here && self.is_open(head)
        });
        self.chunk_watches.open = open;
        any
    }

    /// Chunks of an open receive that are here.
    fn chunks_done(&self, head: u64) -> u32 {
        let records = self.numbers(head).filter_map(|n| self.entry(n)?.receive.as_ref());
        records.map(|receive| receive.record().chunks_done()).sum()
    }
}
