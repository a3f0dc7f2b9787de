//! Errors of invalid arguments. All are the caller's fault; retrying does not help.

/// Why a model cannot be built from these numbers.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// An argument is outside the range of the formulas.
    #[error("{argument} is {value}: must be {accepted}")]
    OutOfRange {
        /// The argument's name, as in the command line without dashes.
        argument: &'static str,
        /// What was given.
        value: f64,
        /// What is accepted.
        accepted: &'static str,
    },
    /// No two-state chain has this much loss in bursts this short.
    #[error(
        "burst is {mean_burst_packets} packets at loss {loss}: must be at least 1 and at least loss / (1 - loss)"
    )]
    ImpossibleBursts {
        /// Mean loss.
        loss: f64,
        /// Mean length of a run of lost packets.
        mean_burst_packets: f64,
    },
}

/// `value` if `accepted` holds for it.
pub(crate) fn check(
    argument: &'static str,
    value: f64,
    holds: bool,
    accepted: &'static str,
) -> Result<f64, ModelError> {
    // A NaN makes every comparison false, so it never passes.
    if holds { Ok(value) } else { Err(ModelError::OutOfRange { argument, value, accepted }) }
}
