//! Ring allreduce: reduce-scatter, then allgather, each `N - 1` stages around the ring.

use super::Grid;
use crate::error::check;
use crate::monte_carlo::{Sample, Samples};
use crate::{Completion, ModelError, Random};

use super::SITES_MAX;

/// `2N - 2`.
///
/// # Errors
///
/// [`ModelError::OutOfRange`] for fewer than 2 sites or more than [`SITES_MAX`].
pub fn ring_stages(sites: u32) -> Result<u32, ModelError> {
    check("sites", f64::from(sites), (2..=SITES_MAX).contains(&sites), "2 to 4096")?;
    Ok(2 * sites - 2)
}

/// A lower bound of the mean: the stages of one site, one after the other (appendix C).
///
/// # Errors
///
/// As [`ring_stages`].
pub fn ring_mean_s_min(stage: &impl Completion, sites: u32) -> Result<f64, ModelError> {
    Ok(f64::from(ring_stages(sites)?) * stage.mean_s())
}

/// Completion times of a ring allreduce, drawn. `stage` is one message of `size / sites` bytes.
///
/// Site `i` has done stage `s` at `t_i(s) = max(t_i(s-1), t_{i-1}(s-1)) + T_i(s)`, with an
/// independent message time `T` each; the ring is done when all sites are.
///
/// # Errors
///
/// As [`ring_stages`].
pub fn ring_allreduce(
    stage: &impl Sample,
    sites: u32,
    trials: usize,
    random: &mut Random,
) -> Result<Samples, ModelError> {
    Ok(Samples::from_times(draw(stage, sites, trials.max(1), random)?))
}

/// How narrow the interval of a quantile is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Narrow {
    /// Of the quantile.
    pub probability: f64,
    /// See [`Samples::quantile_interval_s`].
    pub z: f64,
    /// Half of the interval, as a fraction of the quantile.
    pub half_width: f64,
    /// Fewest and most trials.
    pub trials: std::ops::RangeInclusive<usize>,
}

/// The same with as many trials as narrow a quantile down: a time that is likely to come in steps of whole
/// round trips has quantiles that a few more trials move by one.
///
/// # Errors
///
/// As [`ring_stages`].
pub fn ring_allreduce_until(
    stage: &impl Sample,
    sites: u32,
    narrow: &Narrow,
    random: &mut Random,
) -> Result<Samples, ModelError> {
    let (fewest, most) = (*narrow.trials.start(), *narrow.trials.end());
    let mut times_s = draw(stage, sites, fewest.max(1), random)?;
    loop {
        let samples = Samples::from_times(times_s);
        let (low_s, high_s) = samples.quantile_interval_s(narrow.probability, narrow.z);
        let allowed_s = 2.0 * narrow.half_width * samples.quantile_s(narrow.probability);
        let more = samples.count().min(most.saturating_sub(samples.count()));
        if high_s - low_s <= allowed_s || more == 0 {
            return Ok(samples);
        }
        times_s = samples.into_times();
        times_s.extend(draw(stage, sites, more, random)?);
    }
}

fn draw(
    stage: &impl Sample,
    sites: u32,
    trials: usize,
    random: &mut Random,
) -> Result<Vec<f64>, ModelError> {
    let stages = ring_stages(sites)?;
    let mut done_s = vec![0.0f64; sites as usize];
    let mut before_s = done_s.clone();
    let mut one = || {
        before_s.fill(0.0);
        for _ in 0..stages {
            for (i, done_s) in done_s.iter_mut().enumerate() {
                let neighbour_s = before_s[if i == 0 { before_s.len() - 1 } else { i - 1 }];
                *done_s = before_s[i].max(neighbour_s) + stage.sample_s(random);
            }
            std::mem::swap(&mut done_s, &mut before_s);
        }
        before_s.iter().copied().fold(0.0, f64::max)
    };
    Ok((0..trials).map(|_| one()).collect())
}

/// The distribution of a ring allreduce whose sites wait for all others after every stage, on a
/// grid of `points` per stage: never earlier than the ring that does not, and the same for two
/// sites.
///
/// # Errors
///
/// As [`ring_stages`].
pub fn lockstep_ring_allreduce(
    stage: &impl Completion,
    sites: u32,
    points: usize,
) -> Result<Grid, ModelError> {
    let stages = ring_stages(sites)?;
    let one = Grid::new(stage, points);
    let slowest = (1..sites).fold(one.clone(), |slowest, _| slowest.max(&one));
    Ok((0..stages).fold(one.nothing(), |sum, _| sum.plus(&slowest)))
}
