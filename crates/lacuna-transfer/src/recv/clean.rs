//! Removes partial files that broken transfers left behind.
//!
//! Only files that a receiver has made are touched: regular files with a single link, with exactly
//! the name of a partial file, and not locked by a transfer. Links are not followed, so nothing
//! outside the folder is reached.

use super::partial::is_at;
use super::tree::{FOLDER, Tree, open_file};
use crate::error::{CleanError, FileError};
use crate::extents::allocated_bytes;
use crate::name::is_partial;
use lacuna_service::Stop;
use rustix::fs::{AtFlags, Dir, FileType, Mode, openat, statat, unlinkat};
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Which partial files to remove.
#[derive(Debug, Clone, Copy, Default)]
pub struct CleanOptions {
    /// Partial files that changed less long ago are kept.
    pub older_than: Duration,
    /// Report only; remove nothing.
    pub dry_run: bool,
}

/// One partial file.
#[derive(Debug, Clone)]
pub struct PartialFile {
    /// Where it is.
    pub path: PathBuf,
    /// Space that it takes.
    pub bytes: u64,
    /// Since its last change.
    pub age: Duration,
    /// Whether it was removed.
    pub removed: bool,
    /// Why it was kept.
    pub kept: Option<String>,
}

/// An event while a folder is searched.
#[derive(Debug)]
pub enum CleanEvent<'a> {
    /// A partial file.
    Partial(&'a PartialFile),
    /// A file or folder that the system does not allow to be read or removed.
    Refused(&'a FileError),
}

/// Totals of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleanSummary {
    /// Removed, or with `dry_run` to be removed.
    pub files: u64,
    /// Space that they took.
    pub bytes: u64,
    /// Kept: in use or too young.
    pub kept: u64,
    /// Files and folders that the system does not allow to be read or removed.
    pub refused: u64,
}

/// A folder still to be searched: its path, its parent, and its name there.
struct Waiting {
    path: PathBuf,
    parent: Arc<OwnedFd>,
    name: Vec<u8>,
}

struct Cleaner<'s, F> {
    options: CleanOptions,
    stop: &'s Stop,
    now: SystemTime,
    waiting: Vec<Waiting>,
    summary: CleanSummary,
    on_event: F,
}

/// Searches a folder and all below it, and removes the partial files that no transfer is using.
/// Each is reported to `on_event`, whose error ends the search.
///
/// # Errors
/// When the folder cannot be opened or `stop` was requested; or the error of `on_event`. What the
/// system refuses below the folder is an event and is counted.
pub fn clean<E: From<CleanError>>(
    folder: &Path,
    options: CleanOptions,
    stop: &Stop,
    on_event: impl FnMut(CleanEvent<'_>) -> Result<(), E>,
) -> Result<CleanSummary, E> {
    let root = Tree::open(folder)
        .map_err(|error| CleanError::from(FileError::new("open", folder, error)))?;
    let (waiting, now, summary) = (Vec::new(), SystemTime::now(), CleanSummary::default());
    let mut cleaner = Cleaner { options, stop, now, waiting, summary, on_event };
    cleaner.visit(folder, root)?;
    while let Some(Waiting { path, parent, name }) = cleaner.waiting.pop() {
        match openat(&*parent, OsStr::from_bytes(&name), FOLDER, Mode::empty()) {
            Ok(folder) => cleaner.visit(&path, Arc::new(folder))?,
            Err(errno) => cleaner.refused("open", &path, errno.into())?,
        }
    }
    Ok(cleaner.summary)
}

impl<E, F> Cleaner<'_, F>
where
    E: From<CleanError>,
    F: FnMut(CleanEvent<'_>) -> Result<(), E>,
{
    /// Searches one folder; those in it are queued.
    fn visit(&mut self, path: &Path, folder: Arc<OwnedFd>) -> Result<(), E> {
        let entries = match Dir::read_from(&*folder) {
            Ok(entries) => entries,
            Err(errno) => {
                return self.refused("read", path, errno.into());
            }
        };
        for entry in entries {
            if self.stop.is_requested() {
                return Err(CleanError::Interrupted.into());
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    return self.refused("read", path, errno.into());
                }
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let leaf = OsStr::from_bytes(name);
            // Not every file system returns the type with the name.
            let kind = match entry.file_type() {
                FileType::Unknown => match statat(&*folder, leaf, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => continue,
                },
                kind => kind,
            };
            if kind == FileType::Directory {
                let (path, parent) = (path.join(leaf), folder.clone());
                self.waiting.push(Waiting { path, parent, name: name.to_vec() });
            } else if kind == FileType::RegularFile && is_partial(name) {
                self.leftover(&path.join(leaf), &folder, name)?;
            }
        }
        Ok(())
    }

    /// A file with the name of a partial file.
    fn leftover(&mut self, path: &Path, folder: &OwnedFd, name: &[u8]) -> Result<(), E> {
        let (file, metadata) = match open_file(folder, name).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((file, metadata))
        }) {
            Ok(opened) => opened,
            // A transfer has completed and renamed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return self.refused("open", path, error);
            }
        };
        // Not the modification time, which is the source's once the file is complete; the change
        // time is this host's.
        let changed = u64::try_from(metadata.ctime()).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
        let age = self.now.duration_since(changed).unwrap_or_default();
        let kept = self.reason_to_keep(&file, metadata.nlink(), age);
        if kept.is_none() && !self.options.dry_run {
            match remove(&file, folder, name) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    return self.refused("remove", path, error);
                }
            }
        }
        self.tell(&PartialFile {
            path: path.to_owned(),
            // Space that is freed: a file may have holes.
            bytes: allocated_bytes(&metadata),
            age,
            removed: kept.is_none() && !self.options.dry_run,
            kept,
        })
    }

    /// Why the file must be kept; if `None`, it is locked until `file` is dropped.
    fn reason_to_keep(&self, file: &File, links: u64, age: Duration) -> Option<String> {
        if links > 1 {
            return Some("it has other names".to_owned());
        }
        if age < self.options.older_than {
            return Some("it is not as old".to_owned());
        }
        match file.try_lock() {
            Ok(()) => None,
            Err(TryLockError::WouldBlock) => Some("a transfer is using it".to_owned()),
            Err(TryLockError::Error(error)) => {
                Some(format!("it cannot be seen whether a transfer is using it: {error}"))
            }
        }
    }

    fn tell(&mut self, partial: &PartialFile) -> Result<(), E> {
        let summary = &mut self.summary;
        if partial.kept.is_some() {
            summary.kept += 1;
        } else {
            summary.files += 1;
            summary.bytes += partial.bytes;
        }
        (self.on_event)(CleanEvent::Partial(partial))
    }

    fn refused(&mut self, what: &'static str, path: &Path, error: io::Error) -> Result<(), E> {
        self.summary.refused += 1;
        (self.on_event)(CleanEvent::Refused(&FileError::new(what, path, error)))
    }
}

/// Removes a locked file, unless it has been renamed meanwhile.
fn remove(file: &File, folder: &OwnedFd, name: &[u8]) -> io::Result<bool> {
    let leaf = OsStr::from_bytes(name);
    if !is_at(file, folder, leaf)? {
        return Ok(false);
    }
    unlinkat(folder, leaf, AtFlags::empty())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::partial::Partial;
    use super::*;
    use crate::name::Name;
    use std::fs;

    const ALL: CleanOptions = CleanOptions { older_than: Duration::ZERO, dry_run: false };

    fn clean(folder: &Path, options: CleanOptions) -> Result<CleanSummary, CleanError> {
        super::clean(folder, options, &Stop::new(), |_| Ok(()))
    }

    #[test]
    fn only_what_a_receiver_left_is_removed() {
        let top = tempfile::tempdir().unwrap();
        let (dir, outside) = (top.path().join("in"), top.path().join("out"));
        fs::create_dir_all(dir.join("sub/deeper")).unwrap();
        fs::create_dir(&outside).unwrap();
        let partial = |name: &str| Name::parse(name.as_bytes()).unwrap().partial();
        let leftovers = [
            dir.join(partial("file.iso")),
            dir.join("sub").join(partial("日本語")),
            dir.join("sub/deeper").join(partial(&"x".repeat(255))),
        ];
        let others = [
            dir.join("file.iso"),
            // Not quite such names.
            dir.join("notes.lacuna-part"),
            dir.join(".hidden.lacuna-part"),
            dir.join(".f.00112233445566.lacuna-part"),
            dir.join(".f.0011223344556677.lacuna-part.bak"),
            dir.join(".f.001122334455667X.lacuna-part"),
            dir.join("f.0011223344556677.lacuna-part"),
            outside.join(partial("elsewhere")),
            outside.join("linked"),
        ];
        for path in leftovers.iter().chain(&others) {
            fs::write(path, "part").unwrap();
        }
        std::os::unix::fs::symlink(&outside, dir.join("way")).unwrap();
        std::os::unix::fs::symlink(outside.join("linked"), dir.join(partial("link"))).unwrap();
        fs::hard_link(outside.join("linked"), dir.join(partial("hard"))).unwrap();
        fs::create_dir(dir.join(partial("folder"))).unwrap();
        let held =
            Partial::make(&Tree::open(&dir).unwrap(), &Name::parse(b"held").unwrap(), &|| false);
        clean(&dir, CleanOptions { dry_run: true, ..ALL }).unwrap();
        clean(&dir, CleanOptions { older_than: Duration::from_secs(3600), ..ALL }).unwrap();
        assert!(leftovers.iter().all(|path| path.exists()), "too young, or a dry run");
        clean(&dir, ALL).unwrap();
        assert!(leftovers.iter().all(|path| !path.exists()));
        assert!(others.iter().all(|path| path.exists()));
        for kept in ["link", "hard", "folder", "held"] {
            assert!(dir.join(partial(kept)).symlink_metadata().is_ok(), "{kept}");
        }
        // Its transfer is over.
        drop(held);
        clean(&dir, ALL).unwrap();
        assert!(!dir.join(partial("held")).exists());
    }

    #[test]
    fn a_file_that_got_its_name_meanwhile_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Tree::open(dir.path()).unwrap();
        fs::write(dir.path().join("part"), "1").unwrap();
        let file = open_file(&*folder, b"part").unwrap();
        fs::rename(dir.path().join("part"), dir.path().join("whole")).unwrap();
        fs::write(dir.path().join("part"), "2").unwrap();
        assert!(!remove(&file, &folder, b"part").unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
