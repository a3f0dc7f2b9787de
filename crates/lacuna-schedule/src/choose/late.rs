//! How much later the last chunk of a ring comes because of losses.
//!
//! In a ring each part goes from rank to rank, chunk by chunk. A lost chunk waits for its own repair and holds up
//! nobody: those behind it are passed on. So a chunk is late by the sum of its repairs on all its hops, and the
//! ring by the chunk that is late most, less the time that the chunks behind it in its part take anyway.
//!
//! With `q` the loss of a chunk and `a` that of what is sent again, `k >= 1` repairs on a hop have probability
//! `q a^(k-1) (1 - a)`; those of all hops add up to a distribution `F`. Chunks are independent, so the latest of
//! `n` parts with `m` chunks each comes by `t` with probability `prod_j F(t + behind_j)^n`, and its mean is the
//! integral of what is missing to one.

/// Chunks of a part that are taken together: the product needs no more.
const GROUPS: usize = 64;
/// Steps of the integral.
const STEPS: usize = 400;
/// Repairs on a hop, and on all, that are told apart; more count as so many.
const HOP_REPAIRS_MAX: usize = 12;
const REPAIRS_MAX: usize = 256;

/// A ring, as far as losses matter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ring {
    /// Parts that travel at once, and chunks of each.
    pub(super) parts: u64,
    pub(super) chunks: u64,
    /// Hops that a part takes.
    pub(super) hops: usize,
    /// What a chunk occupies a link for.
    pub(super) chunk_s: f64,
    /// What a repair takes.
    pub(super) repair_s: f64,
    /// Loss of a chunk, and of what is sent again of it.
    pub(super) loss: f64,
    pub(super) loss_again: f64,
}

impl Ring {
    /// The mean lateness.
    pub(super) fn mean_s(&self) -> f64 {
        if self.loss <= 0.0 || self.hops == 0 || self.chunks == 0 {
            return 0.0;
        }
        let by_count = self.repairs_at_most();
        let at_most = |late_s: f64| match late_s {
            ..0.0 => 0.0,
            _ => by_count[((late_s / self.repair_s) as usize).min(by_count.len() - 1)],
        };
        let groups = self.chunks.min(GROUPS as u64);
        let in_group = self.chunks as f64 / groups as f64 * self.parts as f64;
        let step_s = by_count.len() as f64 * self.repair_s / STEPS as f64;
        let mut mean_s = 0.0;
        for step in 0..STEPS {
            let time_s = (step as f64 + 0.5) * step_s;
            let mut all = 1.0;
            for group in 0..groups {
                let share = (group as f64 + 0.5) / groups as f64;
                let behind_s = self.chunks as f64 * self.chunk_s * (1.0 - share);
                all *= f64::powf(at_most(time_s + behind_s), in_group);
            }
            mean_s += (1.0 - all) * step_s;
        }
        mean_s
    }

    /// The probability that a chunk needs at most so many repairs on its way, by their number.
    fn repairs_at_most(&self) -> Vec<f64> {
        let hop = |count: usize| match count {
            0 => 1.0 - self.loss,
            HOP_REPAIRS_MAX => self.loss * self.loss_again.powi(count as i32 - 1),
            _ => self.loss * self.loss_again.powi(count as i32 - 1) * (1.0 - self.loss_again),
        };
        let mut sum = vec![1.0];
        for _ in 0..self.hops {
            let mut next = vec![0.0; (sum.len() + HOP_REPAIRS_MAX).min(REPAIRS_MAX)];
            let most = next.len() - 1;
            for (before, weight) in sum.iter().enumerate() {
                for more in 0..=HOP_REPAIRS_MAX {
                    next[(before + more).min(most)] += weight * hop(more);
                }
            }
            sum = next;
        }
        let mut total = 0.0;
        for weight in &mut sum {
            total += *weight;
            *weight = total;
        }
        // Beyond what any chunk of the ring needs, steps of the integral would be wasted.
        let many = (self.parts * self.chunks) as f64;
        let enough = sum.iter().position(|at_most| 1.0 - at_most < 1e-4 / many);
        sum.truncate(enough.map_or(sum.len(), |enough| enough + 1));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_link::SplitMix64;

    /// The same, drawn.
    fn drawn_s(ring: &Ring, draws: u32) -> f64 {
        let mut random = SplitMix64::new(7);
        let mut is_lost = |loss: f64| random.chance((loss * 1e6) as u32);
        let mut sum_s = 0.0;
        for _ in 0..draws {
            let mut latest_s: f64 = 0.0;
            for chunk in 0..ring.parts * ring.chunks {
                let mut repairs = 0;
                for _ in 0..ring.hops {
                    let mut loss = ring.loss;
                    while is_lost(loss) {
                        repairs += 1;
                        loss = ring.loss_again;
                    }
                }
                let behind = ring.chunks - chunk % ring.chunks;
                let own_s = f64::from(repairs) * ring.repair_s - behind as f64 * ring.chunk_s;
                latest_s = latest_s.max(own_s);
            }
            sum_s += latest_s;
        }
        sum_s / f64::from(draws)
    }

    #[test]
    fn the_mean_is_that_of_rings_that_were_drawn() {
        let ring = Ring {
            parts: 4,
            chunks: 64,
            hops: 6,
            chunk_s: 5.5e-4,
            repair_s: 0.025,
            loss: 0.0,
            loss_again: 0.0,
        };
        assert_eq!(ring.mean_s(), 0.0);
        for (loss, loss_again) in [(0.005, 1e-4), (0.05, 1e-3), (0.4, 0.01), (0.4, 0.4)] {
            for chunk_s in [1e-5, 5.5e-4] {
                let ring = Ring { loss, loss_again, chunk_s, ..ring };
                let (mean_s, drawn_s) = (ring.mean_s(), drawn_s(&ring, 300));
                assert!((mean_s / drawn_s - 1.0).abs() < 0.06, "{ring:?}: {mean_s} {drawn_s}");
            }
        }
    }
}
