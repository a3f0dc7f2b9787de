//! Modification time and permissions of files that are already here: updated from the source
//! without moving content.
//!
//! A file system may store times in coarser units (1 s or 2 s) or not at all (before 1980, after
//! 2038), and some store no permissions. So stored values are compared: two times are equal if this
//! file system would store the source's time as the one that is here, and a file counts as updated
//! only if its stored values differ afterwards.

use super::partial::Partial;
use crate::name::Name;
use crate::wire::Time;
use rustix::fs::{Mode, RawMode, fchmod, fstat};
use std::fs::{File, FileTimes};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Mode bits that are transferred.
pub(crate) const CARRIED: RawMode = 0o777;
/// Coarsest time unit of a file system in use, in seconds (FAT).
const GRAIN_S_MAX: u64 = 2;
/// Unix times that every file system in use can store: FAT begins in 1980, old ext3 and XFS end in
/// 2038.
const HELD_BY_ALL_S: std::ops::Range<i64> = 315_532_800..0x7FFF_FFFF;

/// Outcome of updating time and permissions.
#[derive(Debug)]
pub(crate) enum Update {
    /// They were equal, or as near as this file system can store.
    NotNeeded,
    Done,
    /// For example because the file belongs to another user.
    Failed(io::Error),
}

impl Update {
    /// The error's text, if it failed.
    pub(crate) fn fault(&self) -> Option<String> {
        match self {
            Self::Failed(error) => {
                Some(format!("its time and permissions cannot be brought up to date: {error}"))
            }
            Self::NotNeeded | Self::Done => None,
        }
    }
}

/// Identity and times of a file when it was read: if they are the same later, so is its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    place: (u64, u64),
    pub(crate) modified: Time,
    size_bytes: u64,
    mode: RawMode,
}

impl Seen {
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        let stat = fstat(file)?;
        Ok(Self {
            place: (stat.st_dev as u64, stat.st_ino as u64),
            modified: time_of(&stat),
            size_bytes: stat.st_size as u64,
            mode: stat.st_mode,
        })
    }
}

/// Updates a file.
pub(crate) fn update_file(file: &File, permissions: Mode, modified: Time) -> Update {
    let update = || {
        let before = Seen::of(file)?;
        if before.mode & CARRIED != permissions.as_raw_mode() {
            // Clears other mode bits, such as set-user-ID, which were not meant for this content.
            fchmod(file, permissions)?;
        }
        if before.modified != modified {
            set_modified(file, modified)?;
        }
        Ok(Seen::of(file)? != before)
    };
    told(update())
}

/// Updates a folder.
pub(crate) fn update_folder(folder: impl AsFd, permissions: Mode) -> Update {
    let update = || {
        let before = Seen::of(&folder)?;
        if before.mode & CARRIED == permissions.as_raw_mode() {
            return Ok(false);
        }
        // Keeps set-group-ID and sticky bits, which the receiver decides.
        let kept = Mode::from_raw_mode(before.mode & 0o7000);
        fchmod(&folder, permissions | kept)?;
        Ok(Seen::of(&folder)?.mode != before.mode)
    };
    told(update())
}

fn told(updated: io::Result<bool>) -> Update {
    match updated {
        Ok(true) => Update::Done,
        Ok(false) => Update::NotNeeded,
        Err(error) => Update::Failed(error),
    }
}

/// Whether a file with the time `here` has the time `source`, as far as this file system can store
/// it. If in doubt, tries it on the partial file of this name.
pub(crate) fn is_same_time(here: Time, source: Time, folder: &Arc<OwnedFd>, name: &Name) -> bool {
    if here == source {
        return true;
    }
    let is_near = here.seconds.abs_diff(source.seconds) <= GRAIN_S_MAX;
    if !is_near && HELD_BY_ALL_S.contains(&source.seconds) {
        return false;
    }
    // Another transfer holds the partial file: let content be compared.
    let Ok(partial) = Partial::make(folder, name, &|| true) else { return false };
    let stored = set_modified(partial.file(), source).and_then(|()| Seen::of(partial.file()));
    if partial.len_bytes() == 0 {
        // It was created for this test, or is no more useful than a new one.
        let _ = partial.remove();
    }
    stored.is_ok_and(|stored| stored.modified == here)
}

/// Sets the modification time. A time that this host cannot represent is left out.
pub(crate) fn set_modified(file: &File, time: Time) -> io::Result<()> {
    match system_time(time) {
        Some(time) => file.set_times(FileTimes::new().set_modified(time)),
        None => Ok(()),
    }
}

#[allow(clippy::unnecessary_cast, reason = "the types differ from one system to the next")]
pub(crate) fn time_of(stat: &rustix::fs::Stat) -> Time {
    Time { seconds: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 }
}

fn system_time(time: Time) -> Option<SystemTime> {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let seconds = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)?
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)?
    };
    seconds.checked_add(Duration::from_nanos(time.nanos.into()))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const TIME: Time = Time { seconds: 1_000_000_000, nanos: 123_456_789 };

    #[test]
    fn a_file_gets_time_and_permissions_and_loses_bits_that_do_not_travel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
        let file = File::open(&path).unwrap();
        let mode = Mode::from_raw_mode(0o640);
        assert!(matches!(update_file(&file, mode, TIME), Update::Done));
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o640);
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));
        assert!(matches!(update_file(&file, mode, TIME), Update::NotNeeded));
    }

    #[test]
    fn a_folder_keeps_what_says_how_it_is_used_here() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o3755)).unwrap();
        let folder = Tree::open(&path).unwrap();
        let update = || update_folder(&*folder, Mode::from_raw_mode(0o711));
        assert!(matches!(update(), Update::Done));
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o3711);
        assert!(matches!(update(), Update::NotNeeded));
    }

    #[test]
    fn times_are_compared_as_the_file_system_keeps_them() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Tree::open(dir.path()).unwrap();
        let name = Name::parse(b"f").unwrap();
        let is_same = |here, source| is_same_time(here, source, &folder, &name);
        assert!(is_same(TIME, TIME));
        // This one keeps nanoseconds, or is none that tests run on.
        let second = Time { nanos: 0, ..TIME };
        assert!(!is_same(second, TIME), "it would have been kept exactly");
        assert!(!is_same(Time { seconds: TIME.seconds + 60, ..TIME }, TIME));
        // What it makes of a time that it cannot hold.
        let file = tempfile::tempfile_in(dir.path()).unwrap();
        let source = Time { seconds: 1 << 40, nanos: 5 };
        set_modified(&file, source).unwrap();
        let here = Seen::of(&file).unwrap().modified;
        assert!(is_same(here, source), "{here:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn times_before_1970_are_kept() {
        let time = system_time(Time { seconds: -2, nanos: 500_000_000 }).unwrap();
        let before = SystemTime::UNIX_EPOCH.duration_since(time).unwrap();
        assert_eq!(before, Duration::from_millis(1500));
    }
}
