//! Draws the lost chunks of a run.

use crate::Random;
use crate::gilbert::ChunkChain;
use crate::loss::ChunkLoss;

/// A link as chunks pass it in order.
pub(super) struct Link<'m> {
    loss: &'m ChunkLoss,
    ln_ok: f64,
    /// State of the chain before the next chunk; without a chain, of no meaning.
    state: usize,
}

impl<'m> Link<'m> {
    /// A link in its long-run state.
    pub(super) fn new(loss: &'m ChunkLoss, random: &mut Random) -> Self {
        let state = loss.chain().map_or(0, |chain| usize::from(random.chance(chain.stationary[1])));
        Self { loss, ln_ok: (-loss.probability()).ln_1p(), state }
    }

    /// Calls `on_loss` with the index of each of `chunks` chunks that is lost.
    pub(super) fn pass_all(
        &mut self,
        chunks: u64,
        random: &mut Random,
        mut on_loss: impl FnMut(u64),
    ) {
        let mut next = 0;
        loop {
            let ok = match self.loss.chain() {
                None => random.failures(self.ln_ok),
                // From the low state: so many chunks come and leave the link low.
                Some(chain) if self.state == 0 => random.failures(chain.step.ok[0][0].ln()),
                Some(_) => 0.0,
            };
            if ok >= (chunks - next) as f64 {
                return;
            }
            next += ok as u64;
            let lost = match self.loss.chain() {
                None => true,
                Some(chain) => self.step(chain, self.state == 0, random),
            };
            if lost {
                on_loss(next);
            }
            next += 1;
            if next == chunks {
                return;
            }
        }
    }

    /// Whether the chunk is lost that follows `skipped` others whose fate does not matter.
    pub(super) fn passes_after(&mut self, skipped: u64, random: &mut Random) -> bool {
        match self.loss.chain() {
            None => random.chance(self.loss.probability()),
            Some(chain) => {
                let high = chain.step.repeated(skipped).all()[self.state][1];
                self.state = usize::from(random.chance(high));
                self.step(chain, false, random)
            }
        }
    }

    /// One chunk: whether it is lost. `not_quiet`: it is known not to have come and left the link
    /// in its low state.
    fn step(&mut self, chain: &ChunkChain, not_quiet: bool, random: &mut Random) -> bool {
        let (ok, lost) = (chain.step.ok[self.state], chain.step.lost[self.state]);
        let quiet = if not_quiet { 0.0 } else { ok[0] };
        let mut left = random.unit() * (quiet + ok[1] + lost[0] + lost[1]);
        for (share, is_lost, state) in
            [(quiet, false, 0), (ok[1], false, 1), (lost[0], true, 0), (lost[1], true, 1)]
        {
            if left <= share && share > 0.0 {
                self.state = state;
                return is_lost;
            }
            left -= share;
        }
        // Rounding left a crumb beyond the last share.
        self.state = 1;
        true
    }
}
