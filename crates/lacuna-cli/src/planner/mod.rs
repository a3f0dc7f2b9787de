//! `lacuna model`, `plan` and `figures`: the faces of the completion-time model (`lacuna-model`).

mod arguments;
mod boxes;
mod chart;
mod figures;
mod model;
mod plan;

pub(crate) use boxes::{Drops, draw as draw_drops};
pub(crate) use figures::{FiguresArgs, run as figures};
pub(crate) use model::{ModelArgs, run as model};
pub(crate) use plan::{PlanArgs, run as plan};

use crate::failure::Failure;
use lacuna_model::ModelError;

/// Bytes of a data packet on the link that are not payload: the transport's headers and trailer,
/// and those of IPv4 and UDP below, as the emulated path of `lacuna demo` counts them.
const OVERHEAD_BYTES: u64 = lacuna_wire::DATA_OVERHEAD_BYTES as u64 + 20 + 8;

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self::Usage(error.to_string())
    }
}
