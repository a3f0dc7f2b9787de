//! The planner: which reliability mode a path calls for, how long messages take on it, and the figures of the
//! SDR paper.
//!
//! Three questions, each with its own error:
//!
//! - [`completion`]: how long a message takes under one mode.
//! - [`recommend`]: which mode to take for a path, why, and where the answer changes.
//! - [`FigureOptions`]: the paper's figures, as drawings and numbers.
//!
//! The mathematics is that of `lacuna-model`. This crate adds what the transport does: its headers, and the
//! rule of its mode `auto`, which is asked for and not written down again. It prints nothing; charts and
//! numbers go to the files that the caller names.
//!
//! ```
//! use lacuna_planner::{Measured, Objective, PlanRequest, recommend};
//!
//! let path = Measured::new(10e9, 0.025, 1e-4);
//! let advice = recommend(&PlanRequest { path, sizes_bytes: vec![64 << 20], objective: Objective::P999 })?;
//! assert!(advice.lines()[0].starts_with("take "));
//! # Ok::<(), lacuna_planner::PlanError>(())
//! ```

#![forbid(unsafe_code)]

mod auto;
mod chart;
mod completion;
mod drops;
mod error;
mod figures;
mod measurement;
mod plan;

pub use completion::{
    CodeQuestion, CompletionAnswer, CompletionQuestion, Drawn, Draws, LossPer, Missing,
    Reliability, UsedCode, UsedTail, completion,
};
pub use drops::{Drops, draw_drops};
pub use error::{
    AutoError, ChartError, CompletionError, FigureError, MeasurementError, PlanChartError,
    PlanError,
};
pub use figures::{DROPS_FIGURE, ENCODING_FIGURE, FigureOptions, Headline, WrittenFigure};
pub use lacuna_model::CodeKind;
pub use lacuna_model::plan::{Expected, LossKnown, Objective, Plan, Question};
pub use plan::{
    AutoAnswer, CandidateAnswer, FlipAnswer, Measured, PlanAnswer, PlanRequest, Recommendation,
    Recommended, fibre_rtt_s, recommend,
};

use lacuna_wire::Seal;

/// Bytes of a data packet on the link that are not payload: the transport's headers and trailer, and those of
/// IPv4 and UDP below. Parity has 16 more, a hundredth of a packet, that the model does not know.
const OVERHEAD_BYTES: u64 = Seal::Crc32c.overhead_bytes(false) as u64 + 20 + 8;

/// Standard deviations of a normal variable that 99 % lie within.
const Z_99: f64 = 2.575_829_303_548_901;
