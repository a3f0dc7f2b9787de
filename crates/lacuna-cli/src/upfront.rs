//! Checks the output files of a command before its work begins, so that an unwritable file does not
//! fail it after hours.

use crate::failure::Failure;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Fails if a file cannot be written. Leaves nothing behind.
pub(crate) fn check(path: Option<&PathBuf>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    try_to_write(path).map_err(|error| Failure::file("write", path, &error))
}

fn try_to_write(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_err() {
        OpenOptions::new().write(true).create_new(true).open(path)?;
        return fs::remove_file(path);
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() || metadata.is_dir() => {
            OpenOptions::new().append(true).open(path).map(drop)
        }
        // Opening a pipe would block until it has a reader; a dangling link fails later.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_tried_without_a_trace() {
        let dir = tempfile::tempdir().expect("a folder");
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        fs::write(&old, "content").expect("written");
        for path in [&new, &old] {
            check(Some(path)).expect("it can be written");
        }
        assert!(!new.exists());
        assert_eq!(fs::read_to_string(&old).expect("it is there"), "content");
        for path in [dir.path().to_owned(), dir.path().join("none/file"), old.join("file")] {
            let result = check(Some(&path));
            assert!(matches!(result, Err(Failure::Local(_))), "{}: {result:?}", path.display());
        }
    }
}
