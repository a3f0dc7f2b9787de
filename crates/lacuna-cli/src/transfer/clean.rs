//! `lacuna recv --clean`: reports the partial files of broken transfers, and which were removed.

use super::RecvArgs;
use super::report::hex_unless_text;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Output, complain};
use crate::units::{show_bytes, show_count, show_time};
use lacuna_transfer::{
    CleanError, CleanEvent, CleanOptions, CleanSummary, PartialFile, clean, shown,
};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;

/// One partial file.
#[derive(Debug, Serialize)]
struct Leftover {
    partial: String,
    /// Its bytes in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial_hex: Option<String>,
    bytes: u64,
    age_s: u64,
    removed: bool,
    /// Why it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
}

#[derive(Debug, Serialize)]
struct Summary {
    /// Removed, or to be removed.
    files: u64,
    bytes: u64,
    /// Kept: in use or too young.
    kept: u64,
    dry_run: bool,
}

pub(super) fn run(args: &RecvArgs, output: Output) -> Result<(), Failure> {
    let older_than = args.older_than.unwrap_or_default();
    let options = CleanOptions { older_than, dry_run: args.dry_run };
    let summary = clean(&args.dir, options, &interrupt::stop(), |event| match event {
        CleanEvent::Partial(partial) => tell(partial, output),
        CleanEvent::Refused(error) => {
            complain(error);
            Ok(())
        }
    })?;
    finish(&summary, args.dry_run, output)?;
    match summary.refused {
        0 => Ok(()),
        _ => Err(Failure::Local("not everything could be looked at".to_owned())),
    }
}

impl From<CleanError> for Failure {
    fn from(error: CleanError) -> Self {
        Self::of(&error)
    }
}

fn tell(partial: &PartialFile, output: Output) -> Result<(), Failure> {
    let path = partial.path.display().to_string();
    let age_s = partial.age.as_secs();
    if output.json {
        return output.object(&Leftover {
            partial: path,
            partial_hex: hex_unless_text(partial.path.as_os_str().as_bytes()),
            bytes: partial.bytes,
            age_s,
            removed: partial.removed,
            kept: partial.kept.clone(),
        });
    }
    let path = shown(path.as_bytes());
    let what = format!("{path} ({}, {} old)", show_bytes(partial.bytes), show_time(age_s as f64));
    output.line(&match &partial.kept {
        Some(why) => format!("kept {what}: {why}"),
        None if partial.removed => format!("removed {what}"),
        None => format!("would remove {what}"),
    })
}

fn finish(summary: &CleanSummary, dry_run: bool, output: Output) -> Result<(), Failure> {
    let CleanSummary { files, bytes, kept, .. } = *summary;
    if output.json {
        return output.object(&Summary { files, bytes, kept, dry_run });
    }
    let verb = if dry_run { "would remove" } else { "removed" };
    output.line(&format!(
        "{verb} {}, {}; kept {kept}",
        show_count(files, "partial file"),
        show_bytes(bytes),
    ))
}
