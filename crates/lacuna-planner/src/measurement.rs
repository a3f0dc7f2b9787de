//! Reading files of measurements.

use crate::error::MeasurementError;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest file of measurements that is read (a judgement).
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads a file of measurements. An endless device is refused as too long.
pub(crate) fn read_text(path: &Path) -> Result<String, MeasurementError> {
    let failed = |source| MeasurementError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let mut file = File::open(path).map_err(failed)?.take(FILE_BYTES_MAX + 1);
    file.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(MeasurementError::Long { path: path.to_owned(), bytes_max: FILE_BYTES_MAX });
    }
    Ok(text)
}

/// The error for content that is not a measurement.
pub(crate) fn refused(path: &Path, reason: impl ToString) -> MeasurementError {
    MeasurementError::Content { path: path.to_owned(), reason: reason.to_string() }
}
