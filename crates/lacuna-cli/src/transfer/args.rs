//! The command lines of `lacuna send` and `lacuna recv`.

use super::target;
use crate::units;
use clap::Args;
use lacuna::Mode;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where a receiver listens unless told otherwise.
pub(super) const PORT: u16 = 7400;

/// Send files and folders to a receiver.
///
/// Regular files and folders are sent, with their permissions and files with
/// their times; symbolic links and special files below the given paths are
/// skipped with a note (a link that is given as a PATH is followed). Names are
/// sent byte for byte, whatever their script, text or not.
///
/// A transfer that broke, at either end and for whatever reason, is resumed by
/// the same command: what has arrived is compared by its hash, not sent again.
#[derive(Debug, Args)]
#[command(override_usage = "lacuna send [OPTIONS] <PATH>... <HOST:PORT>")]
pub(crate) struct SendArgs {
    /// Files and folders, which keep their last names; the last word is the
    /// receiver: HOST, or HOST:PORT if the port is not 7400
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    pub(super) words: Vec<OsString>,
    /// How long to try to go on without any progress; 0s gives up at the first
    /// break. A path is broken after half of it without an answer, but not
    /// before 5s and not later than 30s
    #[arg(long, default_value = "60s", value_parser = units::duration, value_name = "TIME")]
    pub(super) retry: Duration,
    /// Take files of the same size and time at the receiver as identical, without reading them
    #[arg(long)]
    pub(super) quick: bool,
    /// Reliability: sr, sr:rto
    #[arg(long, default_value = "sr")]
    pub(super) mode: Mode,
    /// Send at this rate instead of probing for one
    #[arg(long, value_parser = units::rate)]
    pub(super) rate: Option<u64>,
    /// Payload bytes per packet; found by probing if not given
    #[arg(long)]
    pub(super) mtu: Option<u32>,
    /// Bytes per chunk, rounded up to whole packets: what a lost packet costs to repair
    #[arg(long, default_value = "4KiB", value_parser = units::bytes, value_name = "SIZE")]
    pub(super) chunk: u64,
    /// Sockets, each with its own 4-tuple
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(super) channels: u8,
    /// Memory for data on its way; by the round-trip time if not given (32 to 160 MiB)
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    pub(super) buffers: Option<u64>,
}

/// Receive files and folders.
///
/// Everything stays below the folder: names that lead out of it, and paths on
/// which a symbolic link lies, are refused. A file gets its name only after the
/// hash of its content was verified; until then it is a hidden file ending in
/// .lacuna-part beside it, from which a later transfer resumes.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    /// Where to listen: ADDR:PORT, or a port for all addresses; port 0 takes any and prints it
    #[arg(long, default_value = "0.0.0.0:7400", value_parser = target::listen, value_name = "ADDR:PORT")]
    pub(super) listen: SocketAddr,
    /// Folder to receive into; made if it does not exist
    #[arg(long, default_value = ".")]
    pub(super) dir: PathBuf,
    /// End after one sender, with its result
    #[arg(long)]
    pub(super) once: bool,
    /// Replace existing files that differ
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Write each file through to the disk before it gets its name
    #[arg(long)]
    pub(super) sync: bool,
    /// Do not listen: remove what broken transfers left below --dir, all of it
    /// that no transfer is using
    #[arg(long, requires = "dir", conflicts_with_all = ["listen", "once", "overwrite", "sync", "channels", "buffers"])]
    pub(super) clean: bool,
    /// With --clean: only what has not changed for so long, such as 7d or 12h
    #[arg(long, requires = "clean", value_parser = age, value_name = "TIME")]
    pub(super) older_than: Option<Duration>,
    /// With --clean: only say what would be removed
    #[arg(long, requires = "clean")]
    pub(super) dry_run: bool,
    /// Sockets, each with its own 4-tuple
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(super) channels: u8,
    /// Memory for data on its way, per sender; by the round-trip time if not given (32 to 160 MiB)
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    pub(super) buffers: Option<u64>,
}

/// A time that may be in days.
fn age(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let Some(days) = text.strip_suffix('d') else {
        let hint = |error| format!("{error}; days are written 7d");
        return units::duration(text).map_err(hint);
    };
    match days.trim_end().parse::<u32>() {
        Ok(days) => Ok(Duration::from_secs(u64::from(days) * 24 * 3600)),
        Err(_) => Err(format!("\"{text}\" is not a time like 7d or 12h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_may_be_in_days() {
        assert_eq!(age("7d"), Ok(Duration::from_secs(7 * 24 * 3600)));
        assert_eq!(age("12h"), Ok(Duration::from_secs(12 * 3600)));
        for wrong in ["7", "d", "-1d", "week", "99999999999d"] {
            assert!(age(wrong).unwrap_err().contains("7d"), "{wrong}");
        }
    }
}
