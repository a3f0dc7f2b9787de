//! Errors: one enum per operation. The text of each variant says whose fault it is: the caller
//! asked for something impossible, a file is not a measurement, or this host refused a file. No
//! operation fails by chance, so a retry never helps.

use lacuna::GeometryError;
use lacuna::datapath::limit::Said;
use lacuna_model::ModelError;
use lacuna_units::show_bytes;
use std::io;
use std::path::{Path, PathBuf};

/// The mode `auto` has no rule for these packets. The caller's fault.
#[derive(Debug, thiserror::Error)]
pub enum AutoError {
    /// The transport has no packets of this size.
    #[error("packets of {packet_bytes} bytes: {source}")]
    PacketBytes {
        /// Payload bytes of a packet, as asked for.
        packet_bytes: u32,
        /// What the transport says.
        source: GeometryError,
    },
    /// The model does not take the code of the mode.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// [`completion`](crate::completion) has no answer. The caller's fault.
#[derive(Debug, thiserror::Error)]
pub enum CompletionError {
    /// Samples of the mode `auto` were requested, which has only the exact distribution.
    #[error("sr, ec and best-effort are drawn: of auto there is the exact distribution alone")]
    AutoIsNotDrawn,
    /// Samples of bursts were requested on a link that repairs share.
    #[error("no bursts are drawn on a link that repairs share")]
    BurstsAreNotDrawn,
    /// A quantity is out of the model's range.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The mode `auto` has no rule for these packets.
    #[error(transparent)]
    Auto(#[from] AutoError),
}

/// A file of measurements cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MeasurementError {
    /// This machine's fault.
    #[error("cannot read {}: {}", path.display(), Said(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The caller's fault: no measurement is that long.
    #[error("{} is longer than {}: no measurement", path.display(), show_bytes(*bytes_max))]
    Long {
        /// The file.
        path: PathBuf,
        /// Most bytes of a measurement.
        bytes_max: u64,
    },
    /// The caller's fault: the content is something else.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
}

impl MeasurementError {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. } | Self::Long { path, .. } | Self::Content { path, .. } => path,
        }
    }
}

/// [`recommend`](crate::recommend) has no answer. The caller's fault.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not all that must be known of the path is known.
    #[error("not known of the path: {}", missing.join(", "))]
    Unknown {
        /// Among `rate`, `rtt` and `loss`.
        missing: Vec<&'static str>,
    },
    /// A quantity is out of the model's range.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The mode `auto` has no rule for these packets.
    #[error(transparent)]
    Auto(#[from] AutoError),
}

/// A chart cannot be written. This machine's fault.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {reason}", path.display())]
pub struct ChartError {
    /// The file.
    pub path: PathBuf,
    /// What the system or the drawing library says.
    pub reason: String,
}

/// A recommendation was not drawn.
#[derive(Debug, thiserror::Error)]
pub enum PlanChartError {
    /// A size around those asked for is out of the model's range.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The file cannot be written.
    #[error(transparent)]
    Chart(#[from] ChartError),
}

/// A figure was not made.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The caller's fault: this crate does not draw this figure.
    #[error("figure {number} is not drawn here: one of 2, 3, 9, 10, 11, 12, 13, 15")]
    Unknown {
        /// Of the paper.
        number: u32,
    },
    /// The caller's fault: the figure shows a measurement, and none was given.
    #[error("figure {number} is a measurement, which is not given")]
    NotMeasured {
        /// Of the paper.
        number: u32,
    },
    /// The file of measurements for this figure cannot be used.
    #[error("figure {number}: {source}")]
    Measurement {
        /// Of the paper.
        number: u32,
        /// What is wrong with the file.
        source: MeasurementError,
    },
    /// The caller's fault: a quantity is out of the model's range.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// This machine's fault.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// This machine's fault.
    #[error("cannot write {}: {}", path.display(), Said(source))]
    Write {
        /// The file with the numbers.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
