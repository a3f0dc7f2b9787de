//! The file of the path memory: reads it, and replaces it atomically.
//!
//! Symbolic links are followed, and the new file keeps owner and permissions of the old one. What
//! is not a regular file with path records (a device, a pipe, other text) is refused and not
//! replaced.

use lacuna_path::memory::PathMemory;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// Symbolic links to follow in a row, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// Names to try for the temporary file.
const NAMES_MAX: usize = 16;

/// Reads the records; none if the file does not exist.
pub(super) fn read(file: &Path) -> io::Result<PathMemory> {
    // Checked before opening too: opening some devices has side effects.
    if metadata(file)?.is_none() {
        return Ok(PathMemory::default());
    }
    let opened = match open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(PathMemory::default()),
        opened => opened?,
    };
    regular(&opened.metadata()?)?;
    let mut bytes = Vec::new();
    opened.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(invalid("it is too long for one"));
    }
    let text = str::from_utf8(&bytes).map_err(|_| invalid("it holds something else, not text"))?;
    let (memory, refused) = PathMemory::from_text(text);
    if refused > 0 {
        if memory == PathMemory::default() {
            return Err(invalid("it holds something else, no line is a record of a path"));
        }
        tracing::warn!(file = %file.display(), refused, "lines of the path memory make no sense");
    }
    Ok(memory)
}

/// Replaces the content atomically.
pub(super) fn replace(file: &Path, text: &str) -> io::Result<()> {
    replace_with(file, |beside| beside.write_all(text.as_bytes()))
}

fn replace_with(file: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let target = target(file)?;
    let old = metadata(&target)?;
    let (beside, mut opened) = create_beside(&target, old.as_ref())?;
    let written = write(&mut opened)
        .and_then(|()| keep_access(&opened, old.as_ref()))
        .and_then(|()| std::fs::rename(&beside, &target));
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

/// Metadata of a regular file; `None` if nothing is there.
fn metadata(file: &Path) -> io::Result<Option<Metadata>> {
    match std::fs::metadata(file) {
        Ok(found) => regular(&found).map(|()| Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() { Ok(()) } else { Err(invalid("it is not a regular file")) }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Opens without blocking, even if the path has become a pipe since it was checked.
fn open(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
    }
    options.open(file)
}

/// Follows symbolic links; the target need not exist.
fn target(file: &Path) -> io::Result<PathBuf> {
    let mut path = file.to_owned();
    for _ in 0..LINKS_MAX {
        if !path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return Ok(path);
        }
        let link = std::fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    Err(invalid("it is a link that leads nowhere"))
}

/// Creates a temporary file in the same folder, with no more permissions than the old file has.
fn create_beside(target: &Path, old: Option<&Metadata>) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if let Some(old) = old {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
        options.mode(old.mode() & 0o777);
    }
    #[cfg(not(unix))]
    let _ = old;
    let mut taken = None;
    for _ in 0..NAMES_MAX {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".{}.{count}", std::process::id()));
        let beside = PathBuf::from(name);
        match options.open(&beside) {
            Ok(file) => return Ok((beside, file)),
            // Left by a process that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(taken.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

/// Gives the new file owner and permissions of the old one, as far as this process and the file
/// system allow. It was created with no more than those.
fn keep_access(new: &File, old: Option<&Metadata>) -> io::Result<()> {
    let Some(old) = old else { return Ok(()) };
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let made = new.metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            // Only root may change the owner; otherwise the file belongs to this user.
            let _ = fchown(new, Some(old.uid()), Some(old.gid()));
        }
    }
    let _ = new.set_permissions(old.permissions());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn what_holds_something_else_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths");
        let long = "#".repeat(BYTES_MAX as usize + 1);
        for (content, why) in [
            (b"\x7fELF\xff\xfe".as_slice(), "not text"),
            (b"dear diary\n", "no line is a record"),
            (long.as_bytes(), "too long"),
        ] {
            std::fs::write(&file, content).unwrap();
            let error = read(&file).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        std::fs::write(&file, b"dear diary\n10.0.0.1 1000000 40000000 1\n").unwrap();
        assert!(read(&file).unwrap().get("10.0.0.1").is_some(), "one bad line is left out");
        std::fs::write(&file, b"").unwrap();
        assert_eq!(read(&file).unwrap(), PathMemory::default());
    }

    #[test]
    fn nothing_is_left_beside_the_file_when_it_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths");
        std::fs::write(&file, "old").unwrap();
        let full = |beside: &mut File| {
            beside.write_all(b"ha")?;
            Err(io::ErrorKind::StorageFull.into())
        };
        assert_eq!(replace_with(&file, full).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(names(dir.path()), ["paths"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay_when_it_is_replaced() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        let (real, link) = (elsewhere.join("real"), dir.path().join("link"));
        symlink("elsewhere/hop", &link).unwrap();
        symlink("real", elsewhere.join("hop")).unwrap();
        // Nothing is there yet.
        assert_eq!(read(&link).unwrap(), PathMemory::default());
        replace(&link, "first").unwrap();
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "first");
        for mode in [0o600, 0o640, 0o666] {
            std::fs::set_permissions(&real, PermissionsExt::from_mode(mode)).unwrap();
            replace(&link, "second").unwrap();
            assert_eq!(real.metadata().unwrap().permissions().mode() & 0o7777, mode);
        }
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "second");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(names(dir.path()), ["elsewhere", "link"]);
        assert_eq!(names(&elsewhere), ["hop", "real"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_in_a_circle_end() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("link", &link).unwrap();
        assert!(read(&link).is_err() && replace(&link, "").is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pipe_is_refused_at_once_and_not_replaced() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let (pipe, link) = (dir.path().join("pipe"), dir.path().join("link"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::os::unix::fs::symlink("pipe", &link).unwrap();
        for file in [&pipe, &link] {
            for result in [read(file).map(drop), replace(file, "")] {
                let error = result.unwrap_err().to_string();
                assert!(error.contains("not a regular file"), "{error}");
            }
        }
        // Nor does it wait if the pipe comes in between.
        assert!(regular(&open(&pipe).unwrap().metadata().unwrap()).is_err());
        assert_eq!(names(dir.path()), ["link", "pipe"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_was_learnt_is_kept_where_permissions_cannot_be_set() {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths");
        std::fs::write(&file, "old").unwrap();
        // As file systems of other operating systems do over the network.
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let rules = [(libc::SYS_fchmod, Vec::new()), (libc::SYS_fchown, Vec::new())].into();
        let arch = std::env::consts::ARCH.try_into().expect("a known one");
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
        let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
        // The filter holds for one thread and ends with it.
        let replacing = std::thread::scope(|scope| {
            let replacing = scope.spawn(|| match apply_filter(&program) {
                Ok(()) => replace(&file, "new"),
                Err(error) => {
                    println!("skipped: {error}");
                    std::fs::write(&file, "new")
                }
            });
            replacing.join().expect("no panic")
        });
        replacing.unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(names(dir.path()), ["paths"]);
    }
}
