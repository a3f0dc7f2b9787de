//! `lacuna model`, `plan` and `figures`: the command lines of `lacuna-planner`, and its answers as text and
//! JSON.

mod arguments;
mod figures;
mod model;
mod plan;

pub(crate) use figures::{FiguresArgs, run as figures};
pub(crate) use model::{ModelArgs, run as model};
pub(crate) use plan::{PlanArgs, run as plan};

use crate::failure::Failure;
use clap::ValueEnum;
use lacuna_planner::{ChartError, LossPer, MeasurementError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LossPerName {
    Chunk,
    Packet,
}

impl LossPerName {
    fn loss_per(self) -> LossPer {
        match self {
            Self::Chunk => LossPer::Chunk,
            Self::Packet => LossPer::Packet,
        }
    }
}

impl From<ChartError> for Failure {
    fn from(error: ChartError) -> Self {
        Self::Local(error.to_string())
    }
}

/// The failure for an unusable file of measurements; `content` describes an error of its content.
fn unusable(error: &MeasurementError, content: impl FnOnce(&str) -> String) -> Failure {
    match error {
        MeasurementError::Read { .. } => Failure::Local(error.to_string()),
        MeasurementError::Long { .. } => Failure::Usage(error.to_string()),
        MeasurementError::Content { reason, .. } => Failure::Usage(content(reason)),
    }
}
