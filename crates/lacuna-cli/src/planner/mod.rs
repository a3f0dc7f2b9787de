//! `lacuna model`, `plan` and `figures`: the faces of the completion-time model (`lacuna-model`).

mod arguments;
mod auto;
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
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of a data packet on the link that are not payload: the transport's headers and trailer,
/// and those of IPv4 and UDP below, as the emulated path of `lacuna demo` counts them. Parity
/// has 16 more, a hundredth of a packet, that the model does not know.
const OVERHEAD_BYTES: u64 = lacuna_wire::DATA_OVERHEAD_BYTES as u64 + 20 + 8;

/// Standard deviations of a normal variable that 99 % lie within.
const Z_99: f64 = 2.575_829_303_548_901;

/// Longest file of measurements that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The text of a file of measurements. A device that never ends is none.
fn read_text(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::file("read", path, &error);
    let mut text = String::new();
    let mut file = File::open(path).map_err(failed)?.take(FILE_BYTES_MAX + 1);
    file.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let most = crate::units::show_bytes(FILE_BYTES_MAX);
        let what = format!("{} is longer than {most}: no measurement", path.display());
        return Err(Failure::Usage(what));
    }
    Ok(text)
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self::Usage(error.to_string())
    }
}
