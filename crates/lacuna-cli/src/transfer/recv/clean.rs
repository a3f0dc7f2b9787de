//! `lacuna recv --clean`: removes what broken transfers left behind.
//!
//! Only what a receiver made itself is touched: regular files without other
//! links, with exactly the name that a partial file gets, which no transfer
//! holds. Links are not followed, so nothing outside the folder is reached.

use super::partial::is_at;
use super::tree::{FOLDER, Tree, open_file};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Output, complain};
use crate::transfer::extents::allocated_bytes;
use crate::transfer::name::{is_partial, shown};
use crate::transfer::report::hex_unless_text;
use crate::units::{show_bytes, show_count, show_time};
use rustix::fs::{AtFlags, Dir, FileType, Mode, openat, statat, unlinkat};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What the user asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Partial files that changed later are kept.
    pub(crate) older_than: Duration,
    /// Only say what would go.
    pub(crate) dry_run: bool,
}

/// One partial file.
#[derive(Debug, Serialize)]
struct Leftover {
    partial: String,
    /// Its bytes in hexadecimal, if they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial_hex: Option<String>,
    bytes: u64,
    age_s: u64,
    removed: bool,
    /// Why it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    /// Removed, or to be removed.
    files: u64,
    bytes: u64,
    /// In use, or not to be removed.
    kept: u64,
    dry_run: bool,
}

/// A folder whose turn is to come: where it is, and its parent with its name.
struct Waiting {
    path: PathBuf,
    parent: Arc<OwnedFd>,
    name: Vec<u8>,
}

struct Cleaner {
    wanted: Wanted,
    output: Output,
    now: SystemTime,
    waiting: Vec<Waiting>,
    summary: Summary,
    /// The first thing that the system refused.
    failed: Option<Failure>,
}

/// See the module's text.
pub(crate) fn run(dir: &Path, wanted: Wanted, output: Output) -> Result<(), Failure> {
    let root = Tree::open(dir).map_err(|error| Failure::file("open", dir, &error))?;
    let summary = Summary { dry_run: wanted.dry_run, ..Summary::default() };
    let (waiting, now) = (Vec::new(), SystemTime::now());
    let mut cleaner = Cleaner { wanted, output, now, waiting, summary, failed: None };
    cleaner.visit(dir, root)?;
    while let Some(Waiting { path, parent, name }) = cleaner.waiting.pop() {
        match openat(&*parent, OsStr::from_bytes(&name), FOLDER, Mode::empty()) {
            Ok(folder) => cleaner.visit(&path, Arc::new(folder))?,
            Err(errno) => cleaner.refused("open", &path, &errno.into()),
        }
    }
    cleaner.finish()
}

impl Cleaner {
    /// Goes through one folder; those in it wait.
    fn visit(&mut self, path: &Path, folder: Arc<OwnedFd>) -> Result<(), Failure> {
        let entries = match Dir::read_from(&*folder) {
            Ok(entries) => entries,
            Err(errno) => {
                self.refused("read", path, &errno.into());
                return Ok(());
            }
        };
        for entry in entries {
            if interrupt::requested() {
                return Err(Failure::Interrupted);
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    self.refused("read", path, &errno.into());
                    return Ok(());
                }
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let leaf = OsStr::from_bytes(name);
            // Not every file system says it with the name.
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

    /// A file with the name of a partial one.
    fn leftover(&mut self, path: &Path, folder: &OwnedFd, name: &[u8]) -> Result<(), Failure> {
        let (file, metadata) = match open_file(folder, name).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((file, metadata))
        }) {
            Ok(opened) => opened,
            // It has become a whole file meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.refused("open", path, &error);
                return Ok(());
            }
        };
        // The time of the content is the source's, once it is whole; that of
        // the last change is this machine's.
        let changed = u64::try_from(metadata.ctime()).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(changed);
        let age = self.now.duration_since(changed).unwrap_or_default();
        let kept = self.reason_to_keep(&file, metadata.nlink(), age);
        if kept.is_none() && !self.wanted.dry_run {
            match remove(&file, folder, name) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.refused("remove", path, &error);
                    return Ok(());
                }
            }
        }
        self.tell(Leftover {
            partial: path.display().to_string(),
            partial_hex: hex_unless_text(path.as_os_str().as_bytes()),
            // What is freed: a file may have holes.
            bytes: allocated_bytes(&metadata),
            age_s: age.as_secs(),
            removed: kept.is_none() && !self.wanted.dry_run,
            kept,
        })
    }

    /// Looks whether it may go; if so it is locked until `file` is dropped.
    fn reason_to_keep(&self, file: &File, links: u64, age: Duration) -> Option<String> {
        if links > 1 {
            return Some("it has other names".to_owned());
        }
        if age < self.wanted.older_than {
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

    fn tell(&mut self, leftover: Leftover) -> Result<(), Failure> {
        let summary = &mut self.summary;
        if leftover.kept.is_some() {
            summary.kept += 1;
        } else {
            summary.files += 1;
            summary.bytes += leftover.bytes;
        }
        if self.output.json {
            return self.output.object(&leftover);
        }
        let path = shown(leftover.partial.as_bytes());
        let what = format!(
            "{path} ({}, {} old)",
            show_bytes(leftover.bytes),
            show_time(leftover.age_s as f64)
        );
        self.output.line(&match &leftover.kept {
            Some(why) => format!("kept {what}: {why}"),
            None if leftover.removed => format!("removed {what}"),
            None => format!("would remove {what}"),
        })
    }

    fn refused(&mut self, what: &str, path: &Path, error: &io::Error) {
        let failure = Failure::file(what, path, error);
        complain(&failure);
        self.failed.get_or_insert(failure);
    }

    fn finish(self) -> Result<(), Failure> {
        let summary = &self.summary;
        if self.output.json {
            self.output.object(summary)?;
        } else {
            let verb = if summary.dry_run { "would remove" } else { "removed" };
            self.output.line(&format!(
                "{verb} {}, {}; kept {}",
                show_count(summary.files, "partial file"),
                show_bytes(summary.bytes),
                summary.kept
            ))?;
        }
        match self.failed {
            None => Ok(()),
            Some(_) => Err(Failure::Local("not everything could be looked at".to_owned())),
        }
    }
}

/// Removes a file that is locked, unless it has got another name meanwhile.
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
    use crate::transfer::name::Name;
    use std::fs;

    const ALL: Wanted = Wanted { older_than: Duration::ZERO, dry_run: false };

    fn clean(dir: &Path, wanted: Wanted) -> Result<(), Failure> {
        run(dir, wanted, Output { json: false, quiet: true })
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
        clean(&dir, Wanted { dry_run: true, ..ALL }).unwrap();
        clean(&dir, Wanted { older_than: Duration::from_secs(3600), ..ALL }).unwrap();
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
