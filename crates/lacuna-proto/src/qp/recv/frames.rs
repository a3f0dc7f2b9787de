//! The frames that tell the sender about receives: which are posted, which are finished, and what of the
//! open ones has arrived.

use super::{Incoming, RecvSide, State};
use lacuna_wire::{
    Ack, ControlWriter, FRAME_HEADER_BYTES, Frame, Receives, ReceivesBefore, Run, RunList, U64List,
};

/// Most incomplete messages in one frame, 8 bytes each; the newest are sent. For an older one, the
/// sender goes by the acknowledgements.
const FAILED_PER_FRAME_MAX: usize = 64;
/// Most runs of receives in one frame.
const RUNS_PER_FRAME_MAX: usize = 16;
/// Bytes of a run in the frame.
const RUN_BYTES: usize = 13;

/// With less room than this in a packet, an acknowledgement waits for the next one.
const ACK_ROOM_MIN: usize = 64;
/// Most bitmap bytes of one acknowledgement: 8,192 chunks.
const ACK_BITMAP_MAX: usize = 1024;

impl RecvSide {
    /// Writes the Receives frame. Returns `false` if it did not fit behind other frames. Alone in a
    /// packet, the frame is shortened until it fits.
    pub(crate) fn write_receives(&mut self, writer: &mut ControlWriter) -> bool {
        let mut finished: Vec<u8> = Vec::new();
        for number in self.base..self.finished_end {
            if self.entry(number).is_some_and(|incoming| incoming.state == State::Finished) {
                let index = (number - self.base) as usize;
                finished.resize(index / 8 + 1, 0);
                finished[index / 8] |= 1 << (index % 8);
            }
        }
        // The list of runs may end after any receive.
        let mut first_runs = [Run::default(); RUNS_PER_FRAME_MAX];
        first_runs.iter_mut().zip(&self.runs).for_each(|(first, run)| *first = *run);
        let mut runs = &first_runs[..self.runs.len().min(RUNS_PER_FRAME_MAX)];
        let before = self.pairs_in_order().then(|| self.receives_before());
        let before_bytes = before.map_or(0, |_| FRAME_HEADER_BYTES + ReceivesBefore::BYTES);
        let room = writer.room().saturating_sub(Receives::FIXED_BYTES + before_bytes);
        let failed_max = FAILED_PER_FRAME_MAX.min(self.failed.len());
        let wanted = finished.len() + failed_max * 8 + runs.len() * RUN_BYTES;
        let is_first = writer.is_empty();
        if wanted > room && !is_first {
            return false;
        }
        if let Some(before) = before {
            writer.push(&Frame::ReceivesBefore(before));
        }
        finished.truncate(room / 2);
        let failed_max = failed_max.min((room - finished.len()) / 2 / 8);
        let runs_max = (room - finished.len() - failed_max * 8) / RUN_BYTES;
        runs = &runs[..runs_max.min(runs.len())];
        let mut newest = self.failed.iter().rev().copied();
        let failed: Vec<u64> = newest.by_ref().take(failed_max).collect();
        let failed_from = newest.next().map_or(self.failed_from, |omitted| omitted + 1);
        let is_written = writer.push(&Frame::Receives(Receives {
            base: self.base,
            posted: self.posted,
            finished: &finished,
            failed_from,
            failed: U64List::from_values(&failed),
            runs: RunList::from_runs(runs),
        }));
        if is_written {
            self.announced = self.base + runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        }
        // If not even the fixed part fits an empty packet, give up, so that the caller does not loop.
        is_written || is_first
    }

    /// How many receives began before `base`.
    fn receives_before(&self) -> ReceivesBefore {
        let at_base = |incoming: &Incoming| incoming.ordinal + u64::from(incoming.index > 0);
        let receives = self.entry(self.base).map_or(self.receives, at_base);
        ReceivesBefore { base: self.base, receives }
    }

    /// Begins a round of acknowledgements.
    pub(crate) fn begin_acks(&mut self) {
        self.ack_next = self.base;
    }

    /// Writes acknowledgements of open messages until the packet is full.
    /// Returns whether the round is over.
    pub(crate) fn write_acks(&mut self, writer: &mut ControlWriter) -> bool {
        let Some(highest_started) = self.highest_started else { return true };
        while self.ack_next <= highest_started {
            let room = writer.room();
            if room < ACK_ROOM_MIN {
                return writer.is_empty();
            }
            let number = self.ack_next;
            self.prefetch(number + PREFETCH_AHEAD);
            let Some(incoming) = self.entry_mut(number) else { return true };
            if incoming.state == State::Open
                && let Some(receive) = &incoming.receive
            {
                let mut scratch = [0u8; ACK_BITMAP_MAX];
                let room = (room - Ack::FIXED_BYTES).min(ACK_BITMAP_MAX) / 4 * 4;
                let ack = incoming.machine.poll_ack(receive.record(), &mut scratch[..room]);
                if let Some(ack) = ack
                    && !writer.push(&Frame::Ack(ack))
                {
                    return false;
                }
            }
            self.ack_next += 1;
        }
        true
    }
}

/// How many messages ahead a receive is prefetched before it is acknowledged (a judgement): one
/// comes from memory while two are written.
const PREFETCH_AHEAD: u64 = 2;
