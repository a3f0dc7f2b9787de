//! The planner: which reliability mode suits a path, how long messages take on it, and the figures
//! of the SDR paper.
//!
//! Three questions, each with its own error:
//!
//! - [`completion`]: how long a message takes under one mode.
//! - [`recommend`]: which mode to choose for a path, why, and where the choice changes.
//! - [`FigureOptions`]: the paper's figures, as drawings and numbers.
//!
//! The mathematics is in `lacuna-model`. This crate adds the transport's side: its headers, and the
//! rule of its mode `auto`, which it calls. It prints nothing; charts and numbers go to files that
//! the caller names.
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
pub mod chart;
mod completion;
mod drops;
mod error;
mod figures;
mod measurement;
mod plan;

pub use completion::{
    ByDeadline, CodeQuestion, CompletionAnswer, CompletionQuestion, Drawn, Draws, LossPer, Missing,
    Reliability, UsedCode, UsedTail, completion,
};
pub use drops::{Drops, draw_drops};
pub use error::{
    AutoError, ChartError, CompletionError, FigureError, MeasurementError, PlanChartError,
    PlanError,
};
pub use figures::{DROPS_FIGURE, ENCODING_FIGURE, FigureOptions, Headline, WrittenFigure};
pub use lacuna_model::CodeKind;
pub use lacuna_model::plan::{Expected, InTime, LossKnown, Objective, Plan, Question};
pub use plan::{
    AutoAnswer, CandidateAnswer, ConnectionAnswer, ConnectionSide, FlipAnswer, InTimeAnswer,
    Measured, PlanAnswer, PlanRequest, Recommendation, Recommended, UnrepairedAnswer, fibre_rtt_s,
    recommend,
};

use lacuna_wire::Seal;

/// Link bytes of a data packet that are not payload: the transport's headers and trailer, UDP and
/// IPv4. Parity packets have 16 more, 1 % of a packet, which the model ignores.
const OVERHEAD_BYTES: u64 = Seal::Crc32c.overhead_bytes(false) as u64 + 20 + 8;

/// The 99 % two-sided quantile of the standard normal distribution.
const Z_99: f64 = 2.575_829_303_548_901;
