//! The distance from which on erasure coding is faster than selective repeat, to a relative
//! precision of 1e-6: one answer for every figure that states or marks it.

use super::setup::{KM, RTT_S, Scheme, Setup, log_steps, times_s};
use crate::error::FigureError;
use lacuna_model::crossing;

/// Range of distances searched.
pub(super) const NEAREST_KM: f64 = 50.0;
pub(super) const FARTHEST_KM: f64 = 40_000.0;

/// Steps of the search from the far end, 4 % each; two crossings within one step are missed.
const STEPS: u32 = 160;

const PRECISION: f64 = 1e-6;

/// Where the mean time of coding falls below that of selective repeat and stays there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Crossover {
    /// Coding wins at every distance.
    Everywhere,
    /// Coding wins from this distance on, in kilometres.
    From(f64),
    /// Coding does not win even at the largest distance.
    Nowhere,
}

impl Crossover {
    /// Of a message on a link of this rate.
    pub(super) fn find(
        setup: &Setup,
        rate_bits_per_s: f64,
        size: u64,
        loss: f64,
    ) -> Result<Self, FigureError> {
        let coding_wins = |km: f64| {
            let transfer = setup.transfer_on(rate_bits_per_s, km / KM * RTT_S, size, loss)?;
            let (repeating_s, coding_s) =
                (times_s(Scheme::Timeout, &transfer)?.0, times_s(setup.mds(), &transfer)?.0);
            Ok::<_, FigureError>(coding_s < repeating_s)
        };
        let mut far = None;
        for km in log_steps(FARTHEST_KM, NEAREST_KM, STEPS) {
            if coding_wins(km)? {
                far = Some(km);
                continue;
            }
            let Some(far) = far else { return Ok(Self::Nowhere) };
            return Ok(Self::From(crossing(far, km, PRECISION, coding_wins)?));
        }
        Ok(Self::Everywhere)
    }

    /// For a sentence.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Everywhere => format!("at every distance from {NEAREST_KM:.0} km on"),
            Self::From(km) => format!("from {km:.0} km on"),
            Self::Nowhere => format!("at no distance up to {FARTHEST_KM:.0} km"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::setup::{GIB, RATE_BITS_PER_S};
    use super::*;
    use crate::LossPer;

    #[test]
    fn both_schemes_take_as_long_where_they_cross() {
        let setup = Setup::new(4096, LossPer::Chunk).expect("a setup");
        let Ok(Crossover::From(km)) = Crossover::find(&setup, RATE_BITS_PER_S, 8 * GIB, 1e-5)
        else {
            panic!("no crossing");
        };
        // From an independent evaluation of the formulas.
        assert!((km - 2556.0).abs() < 1.0, "{km}");
        let ratio = |km: f64| {
            let rtt_s = km / KM * RTT_S;
            let transfer = setup.transfer_on(RATE_BITS_PER_S, rtt_s, 8 * GIB, 1e-5).expect("one");
            let mean_s = |scheme| times_s(scheme, &transfer).expect("times").0;
            mean_s(Scheme::Timeout) / mean_s(setup.mds())
        };
        assert!((ratio(km) - 1.0).abs() < 1e-6);
        assert!(ratio(km - 1.0) < 1.0 && ratio(km + 1.0) > 1.0);
    }

    #[test]
    fn a_short_message_is_coded_at_every_distance_and_a_long_one_at_none() {
        let setup = Setup::new(4096, LossPer::Chunk).expect("a setup");
        let find = |size, loss| Crossover::find(&setup, 1e12, size, loss).expect("an answer");
        assert_eq!(find(1 << 17, 1e-2), Crossover::Everywhere);
        assert_eq!(find(1 << 44, 1e-5), Crossover::Nowhere);
    }
}
