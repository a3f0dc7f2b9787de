//! Selective repeat on a link that carries one chunk at a time, drawn: what the model's wire-time
//! option approximates.
//!
//! As long as first transmissions are left, every slot of the link is used. A chunk lost in slot
//! `s` takes slot `s + 1 + RTO / T`, before any first transmission. Losses are in different slots,
//! so repairs never wait for each other, and the slot of each is known when the loss is: which
//! chunk it was does not matter. First transmissions end after `M` slots plus those that repairs
//! took until then. Afterwards the link carries repairs only. So a trial touches losses only.

use super::Sample;
use crate::{ModelError, Random, RepairTiming, Transfer};
use std::collections::VecDeque;

/// Draws completion times of selective repeat with repairs that take link time. Losses are
/// independent of each other, whatever the transfer's loss says of bursts.
#[derive(Debug, Clone)]
pub struct SerializedSampler {
    transfer: Transfer,
    /// Slots from a transmission to its repetition, beyond the one that it took.
    wait_slots: f64,
}

impl SerializedSampler {
    /// A message with repair as `timing` says.
    ///
    /// # Errors
    ///
    /// As [`SelectiveRepeat::new`](crate::SelectiveRepeat::new).
    pub fn new(transfer: &Transfer, timing: RepairTiming) -> Result<Self, ModelError> {
        let timing = timing.checked()?;
        let wait_slots = timing.rto_rtts * transfer.rtt_s() / transfer.chunk_s();
        Ok(Self { transfer: *transfer, wait_slots })
    }
}

impl Sample for SerializedSampler {
    fn sample_s(&self, random: &mut Random) -> f64 {
        let p = self.transfer.loss().probability();
        let ln_came = (-p).ln_1p();
        // Slots are counted as times: a repair starts at the end of the lost transmission plus the
        // wait, on the next slot boundary while the link is busy.
        let wait = self.wait_slots.ceil();
        // Starts of repairs that are known, ascending.
        let mut repairs: VecDeque<f64> = VecDeque::new();
        let mut first_left = self.transfer.chunks() as f64;
        let mut slot = 0.0;
        loop {
            // The next lost transmission, if the link stays busy until then.
            let mut transmissions = random.failures(ln_came) + 1.0;
            // Walk slots in stretches between repairs.
            while transmissions > 0.0 && first_left > 0.0 {
                let stretch = repairs.front().map_or(f64::INFINITY, |start| start - slot);
                if stretch <= 0.0 {
                    repairs.pop_front();
                    (slot, transmissions) = (slot + 1.0, transmissions - 1.0);
                    continue;
                }
                let step = stretch.min(transmissions).min(first_left);
                first_left -= step;
                (slot, transmissions) = (slot + step, transmissions - step);
            }
            if transmissions > 0.0 {
                break;
            }
            repairs.push_back(slot + wait);
        }
        // The draw that was cut short says nothing of what follows; losses have no memory.
        let mut end = slot;
        while let Some(start) = repairs.pop_front() {
            if random.chance(p) {
                // Later than all others that are known.
                repairs.push_back(start + 1.0 + wait);
            } else {
                end = end.max(start + 1.0);
            }
        }
        end * self.transfer.chunk_s() + self.transfer.rtt_s()
    }
}
