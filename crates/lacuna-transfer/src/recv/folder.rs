//! The folder that files are received into, by its path. A server may run for weeks, and the folder
//! may be removed, renamed or mounted over meanwhile.
//!
//! Each sender gets the folder that has the path when it connects; it is created again if missing.
//! A transfer keeps the folder that it began in: if that is renamed, the transfer completes there;
//! if it is removed, the transfer ends with an error ([`is_removed`]), and the next one finds a new
//! folder.

use super::tree::Tree;
use crate::error::FileError;
use rustix::fs::fstat;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A folder and its path.
pub(crate) struct Folder {
    /// The path as the user gave it.
    named: PathBuf,
    /// The absolute path, which stays valid if the current directory changes.
    path: PathBuf,
    /// The folder found last, kept open so that a file system mounted there cannot be unmounted
    /// between two senders: the next would write below the mount point.
    last: Mutex<Arc<OwnedFd>>,
}

/// What was found at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The folder that was there before.
    Same,
    /// A different folder from the one before.
    Another,
    /// None; it was created.
    Made,
}

impl Folder {
    /// Opens the folder, creating it if needed.
    pub(crate) fn open(named: &Path) -> Result<Self, FileError> {
        let path = std::path::absolute(named).map_err(|e| FileError::new("find", named, e))?;
        std::fs::create_dir_all(&path)
            .map_err(|error| FileError::new("make the folder", named, error))?;
        let opened = Tree::open(&path).map_err(|error| FileError::new("open", named, error))?;
        Ok(Self { named: named.to_owned(), path, last: Mutex::new(opened) })
    }

    /// The path as the user gave it.
    pub(crate) fn named(&self) -> &Path {
        &self.named
    }

    /// Opens the folder that has the path now.
    pub(crate) fn look(&self) -> io::Result<(Arc<OwnedFd>, Which)> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (opened, found) = match Tree::open(&self.path) {
            Ok(opened) if is_same(&opened, &*last)? => (opened, Which::Same),
            Ok(opened) => (opened, Which::Another),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.path)?;
                (Tree::open(&self.path)?, Which::Made)
            }
            Err(error) => return Err(error),
        };
        last.clone_from(&opened);
        Ok((opened, found))
    }
}

/// Whether an open folder has been removed.
pub(crate) fn is_removed(folder: impl AsFd) -> bool {
    fstat(folder).is_ok_and(|stat| stat.st_nlink == 0)
}

fn is_same(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_path_decides_and_a_folder_that_is_gone_is_made_again() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a/inbox");
        let folder = Folder::open(&path).unwrap();
        assert_eq!(folder.named(), path);
        assert_eq!(folder.look().unwrap().1, Which::Same);
        // Renamed: what was found before stays where it is.
        let (before, _) = folder.look().unwrap();
        fs::rename(&path, top.path().join("old")).unwrap();
        let (after, found) = folder.look().unwrap();
        assert_eq!(found, Which::Made);
        assert!(path.is_dir() && !is_same(&*before, &*after).unwrap());
        assert!(!is_removed(&*before) && !is_removed(&*after));
        assert_eq!(folder.look().unwrap().1, Which::Same);
        // Removed, with the folder above.
        fs::remove_dir_all(top.path().join("a")).unwrap();
        assert!(is_removed(&*after));
        assert_eq!(folder.look().unwrap().1, Which::Made);
        // Another one has taken its place.
        fs::remove_dir(&path).unwrap();
        fs::rename(top.path().join("old"), &path).unwrap();
        assert_eq!(folder.look().unwrap().1, Which::Another);
        // Something is there that is none.
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "x").unwrap();
        assert!(folder.look().is_err());
        fs::remove_file(&path).unwrap();
        assert_eq!(folder.look().unwrap().1, Which::Made);
    }
}
