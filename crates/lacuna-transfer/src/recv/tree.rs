//! Paths below the receiver's folder. Every path is opened component by component from an open
//! handle on the folder, and no component may be a link: whatever the peer names and whatever
//! exists there, nothing outside the folder is reached.

use super::folder;
use super::metadata::{CARRIED, Update, time_of, update_folder};
use crate::name::Name;
use crate::wire::Time;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, mkdirat, openat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Opens a folder, never through a link.
pub(crate) const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// One session's access to the folder.
pub(crate) struct Tree {
    root: Arc<OwnedFd>,
    /// The folder of the last name, as files of one folder follow each other.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
    umask: Mode,
}

/// What exists at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    File {
        size_bytes: u64,
        modified: Time,
        /// Its permissions.
        mode: RawMode,
    },
    Folder,
    /// A link, a device, a pipe, or a socket.
    Other(&'static str),
}

impl Tree {
    /// Opens the receiver's folder itself; links in its path are the user's own.
    pub(crate) fn open(path: &Path) -> io::Result<Arc<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Arc::new(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// `umask`: permissions that nothing gets.
    pub(crate) fn new(root: Arc<OwnedFd>, umask: Mode) -> Self {
        Self { root, last: None, umask }
    }

    /// Whether the folder was removed since.
    pub(crate) fn is_removed(&self) -> bool {
        folder::is_removed(&*self.root)
    }

    /// Opens the folder of a name.
    pub(crate) fn folder_of(&mut self, name: &Name) -> io::Result<Arc<OwnedFd>> {
        let path = name.folder();
        if let Some((last, folder)) = &self.last
            && last == path
        {
            return Ok(folder.clone());
        }
        let mut folder = self.root.clone();
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let next = openat(&*folder, OsStr::from_bytes(part), FOLDER, Mode::empty());
            folder = Arc::new(next.map_err(|errno| explain(errno, part))?);
        }
        self.last = Some((path.to_vec(), folder.clone()));
        Ok(folder)
    }

    /// Creates a folder, or updates the permissions of an existing one.
    pub(crate) fn make_folder(&mut self, name: &Name, mode: u16) -> io::Result<Update> {
        let folder = self.folder_of(name)?;
        let leaf = OsStr::from_bytes(name.leaf());
        // The owner must be able to write into it.
        let mode = self.permissions(mode) | Mode::RWXU;
        match mkdirat(&*folder, leaf, mode) {
            Ok(()) => Ok(Update::NotNeeded),
            Err(Errno::EXIST) => match look(&*folder, name.leaf())? {
                Found::Folder => Ok(match openat(&*folder, leaf, FOLDER, Mode::empty()) {
                    Ok(opened) => update_folder(opened, mode),
                    Err(errno) => Update::Failed(errno.into()),
                }),
                Found::File { .. } => Err(io::Error::other("exists and is a file")),
                Found::Nothing => Err(Errno::AGAIN.into()),
                Found::Other(what) => Err(io::Error::other(format!("exists and is {what}"))),
            },
            Err(errno) => Err(errno.into()),
        }
    }

    /// The permissions for a file.
    pub(crate) fn permissions(&self, mode: u16) -> Mode {
        // The owner may always read it.
        Mode::from_raw_mode(RawMode::from(mode & 0o777)).difference(self.umask) | Mode::RUSR
    }
}

/// What exists at a single-component name; does not follow links.
pub(crate) fn look(folder: impl AsFd, leaf: &[u8]) -> io::Result<Found> {
    let stat = match statat(folder, OsStr::from_bytes(leaf), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(errno) => return Err(errno.into()),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Found::File {
            size_bytes: stat.st_size as u64,
            modified: time_of(&stat),
            mode: stat.st_mode & CARRIED,
        },
        FileType::Directory => Found::Folder,
        FileType::Symlink => Found::Other("a symbolic link"),
        FileType::Fifo => Found::Other("a pipe"),
        FileType::Socket => Found::Other("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Found::Other("a device"),
        _ => Found::Other("no regular file"),
    })
}

/// Opens a regular file for reading by a single-component name; does not follow links or block on a
/// pipe.
pub(crate) fn open_file(folder: impl AsFd, leaf: &[u8]) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(folder, OsStr::from_bytes(leaf), flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("no regular file"));
    }
    Ok(file)
}

fn explain(errno: Errno, part: &[u8]) -> io::Error {
    let part = crate::name::shown(part);
    match errno {
        // Linux returns one or the other for a link, depending on its version.
        Errno::LOOP | Errno::NOTDIR => {
            io::Error::other(format!("\"{part}\" is a symbolic link or no folder"))
        }
        Errno::NOENT => io::Error::other(format!("there is no folder \"{part}\"")),
        errno => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree(path: &Path) -> Tree {
        Tree::new(Tree::open(path).unwrap(), Mode::from_raw_mode(0o022))
    }

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn links_in_the_way_are_refused() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        symlink(outside.path(), inside.path().join("way")).unwrap();
        symlink(outside.path().join("secret"), inside.path().join("file")).unwrap();
        symlink("nowhere", inside.path().join("dangling")).unwrap();
        let mut tree = tree(inside.path());
        for out in ["way/new", "way/deeper/new", "file/new", "dangling/new"] {
            let error = tree.folder_of(&name(out)).unwrap_err().to_string();
            assert!(error.contains("link"), "{out}: {error}");
            assert!(tree.make_folder(&name(out), 0o755).is_err());
        }
        for taken in ["way", "file", "dangling"] {
            let error = tree.make_folder(&name(taken), 0o755).unwrap_err().to_string();
            assert!(error.contains("a symbolic link"), "{taken}: {error}");
            let root = tree.folder_of(&name(taken)).unwrap();
            assert_eq!(look(&*root, taken.as_bytes()).unwrap(), Found::Other("a symbolic link"));
            assert!(open_file(&*root, taken.as_bytes()).is_err());
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn folders_are_made_once_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = tree(dir.path());
        for part in ["a", "a/b", "a/b", "a", "a/ü"] {
            tree.make_folder(&name(part), 0o000).unwrap();
        }
        assert!(dir.path().join("a/ü").is_dir());
        let folder = tree.folder_of(&name("a/b/file")).unwrap();
        assert!(Arc::ptr_eq(&folder, &tree.folder_of(&name("a/b/other")).unwrap()));
        assert_eq!(look(&*folder, b"file").unwrap(), Found::Nothing);
        std::fs::write(dir.path().join("a/b/file"), "12345").unwrap();
        assert!(matches!(look(&*folder, b"file"), Ok(Found::File { size_bytes: 5, .. })));
        assert!(tree.make_folder(&name("a/b/file"), 0o755).is_err());
        assert!(tree.make_folder(&name("x/y"), 0o755).is_err(), "its folder comes first");
    }

    #[test]
    fn permissions_lose_what_the_umask_takes_and_stay_readable() {
        let tree = tree(Path::new("."));
        for (sent, given) in [(0o777, 0o755), (0o7777, 0o755), (0o000, 0o400), (0o444, 0o444)] {
            assert_eq!(tree.permissions(sent), Mode::from_raw_mode(given));
        }
    }
}
