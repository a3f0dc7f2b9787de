//! Walks the files and folders below the given paths, in memory that does not grow with the number
//! of files.
//!
//! A folder comes before its entries. One folder is open at a time; of the others only the paths
//! are kept.

use crate::error::{FileError, PathError};
use crate::extents::{data_bytes, may_have_holes};
use crate::name::{NAME_BYTES_MAX, Name, PARTIAL_SUFFIX};
use crate::wire::{Kind, Meta, Time};
use std::collections::BTreeSet;
use std::fs::{self, ReadDir};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// From this size on the kernel is asked to read a file ahead.
const READ_AHEAD_FROM: u64 = 1 << 20;

/// A file or folder to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) path: PathBuf,
    /// Name below the receiver's folder.
    pub(crate) name: Vec<u8>,
    pub(crate) meta: Meta,
    /// Why it is not sent, if it is only told of.
    pub(crate) unsent: Option<Unsent>,
}

/// Why something is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsent {
    /// That it is no regular file and no folder, which is not an error.
    pub(crate) is_skipped: bool,
    pub(crate) reason: String,
}

impl Item {
    pub(crate) fn unsent(name: Vec<u8>, kind: Kind, unsent: Unsent) -> Self {
        let modified = Time { seconds: 0, nanos: 0 };
        let meta = Meta { kind, mode: 0, size_bytes: 0, data_bytes: 0, modified };
        Self { path: PathBuf::new(), name, meta, unsent: Some(unsent) }
    }
}

/// What the walk finds.
#[derive(Debug)]
pub(crate) enum Entry {
    Item(Item),
    /// Not sent, which is not an error.
    Skipped {
        name: Vec<u8>,
        reason: &'static str,
    },
    /// Not sent, because it cannot be read.
    Unreadable {
        name: Vec<u8>,
        kind: Kind,
        error: io::Error,
    },
}

/// A path that the caller gave, with its name at the receiver.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    path: PathBuf,
    name: Vec<u8>,
}

impl Root {
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }
}

/// Checks the caller's paths. A path that is a link is followed; links found below are not.
pub(crate) fn roots(paths: &[impl AsRef<Path>]) -> Result<Vec<Root>, PathError> {
    let mut names = BTreeSet::new();
    let mut roots = Vec::new();
    for given in paths.iter().map(AsRef::as_ref) {
        // Checked first: a shell's `<(command)` is a pipe that can be opened and has no path.
        let unreadable = |error| FileError::new("read", given, error);
        let metadata = fs::metadata(given).map_err(unreadable)?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(PathError::Kind { path: given.to_owned() });
        }
        let path = fs::canonicalize(given).map_err(unreadable)?;
        let name = given.file_name().or(path.file_name());
        let name = name.ok_or_else(|| PathError::NoName { path: given.to_owned() })?;
        let name = name.as_bytes().to_vec();
        if let Err(source) = Name::parse(&name) {
            return Err(PathError::Name { path: given.to_owned(), source });
        }
        if !names.insert(name.clone()) {
            return Err(PathError::SameName { name });
        }
        roots.push(Root { path, name });
    }
    Ok(roots)
}

/// The walk: an iterator over what it finds.
pub(crate) struct Walker {
    roots: std::vec::IntoIter<Root>,
    /// Folders still to be entered.
    waiting: Vec<(PathBuf, Vec<u8>)>,
    open: Option<Open>,
}

/// The folder that is being read.
struct Open {
    entries: ReadDir,
    path: Arc<PathBuf>,
    name: Vec<u8>,
}

impl Walker {
    pub(crate) fn new(roots: Vec<Root>) -> Self {
        Self { roots: roots.into_iter(), waiting: Vec::new(), open: None }
    }

    fn visit(&mut self, path: PathBuf, name: Vec<u8>) -> Option<Entry> {
        if name.ends_with(PARTIAL_SUFFIX.as_bytes()) {
            return Some(Entry::Skipped { name, reason: "a partial file of an earlier transfer" });
        }
        if name.len() > NAME_BYTES_MAX {
            let error = io::Error::from(io::ErrorKind::InvalidFilename);
            return Some(Entry::Unreadable { name, kind: Kind::File, error });
        }
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) => return Some(Entry::Unreadable { name, kind: Kind::File, error }),
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            self.waiting.push((path, name));
            return None;
        }
        if !kind.is_file() {
            let reason = if kind.is_symlink() { "a symbolic link" } else { "no regular file" };
            return Some(Entry::Skipped { name, reason });
        }
        let mut meta = meta_of(&metadata);
        if may_have_holes(&metadata)
            && let Ok(bytes) = open(&path).and_then(|(file, _)| data_bytes(&file))
        {
            meta.data_bytes = bytes.min(meta.size_bytes);
        }
        Some(Entry::Item(Item { path, name, meta, unsent: None }))
    }

    /// Opens the next folder.
    fn enter(&mut self, path: PathBuf, name: Vec<u8>) -> Entry {
        let opened = fs::symlink_metadata(&path)
            .and_then(|metadata| Ok((meta_of(&metadata), fs::read_dir(&path)?)));
        match opened {
            Ok((meta, entries)) => {
                let folder = Arc::new(path);
                self.open = Some(Open { entries, path: folder.clone(), name: name.clone() });
                Entry::Item(Item { path: folder.to_path_buf(), name, meta, unsent: None })
            }
            Err(error) => Entry::Unreadable { name, kind: Kind::Folder, error },
        }
    }
}

impl Iterator for Walker {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            if let Some(open) = &mut self.open {
                let found = match open.entries.next() {
                    None => {
                        self.open = None;
                        continue;
                    }
                    Some(Err(error)) => {
                        let name = open.name.clone();
                        self.open = None;
                        return Some(Entry::Unreadable { name, kind: Kind::Folder, error });
                    }
                    Some(Ok(entry)) => {
                        let mut name = open.name.clone();
                        name.push(b'/');
                        name.extend(entry.file_name().as_bytes());
                        (open.path.join(entry.file_name()), name)
                    }
                };
                if let Some(entry) = self.visit(found.0, found.1) {
                    return Some(entry);
                }
            } else if let Some((path, name)) = self.waiting.pop() {
                return Some(self.enter(path, name));
            } else {
                let root = self.roots.next()?;
                if let Some(entry) = self.visit(root.path, root.name) {
                    return Some(entry);
                }
            }
        }
    }
}

/// Properties of a file or folder.
pub(crate) fn meta_of(metadata: &fs::Metadata) -> Meta {
    let kind = if metadata.is_dir() { Kind::Folder } else { Kind::File };
    let size_bytes = if kind == Kind::File { metadata.len() } else { 0 };
    Meta {
        kind,
        mode: (metadata.mode() & 0o777) as u16,
        size_bytes,
        // The walk subtracts holes later.
        data_bytes: size_bytes,
        modified: Time {
            seconds: metadata.mtime(),
            nanos: metadata.mtime_nsec().clamp(0, 999_999_999) as u32,
        },
    }
}

/// Opens a file that the walk found, if it still is a regular file.
pub(crate) fn open(path: &Path) -> io::Result<(fs::File, Meta)> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    // Does not follow a link or block on a pipe that has replaced it since.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("no regular file any more"));
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if metadata.len() > READ_AHEAD_FROM {
        use rustix::fs::{Advice, fadvise};
        let _ = fadvise(&file, 0, None, Advice::Sequential);
    }
    Ok((file, meta_of(&metadata)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::shown;
    use std::os::unix::fs::symlink;

    fn names(paths: &[PathBuf]) -> (Vec<String>, Vec<String>) {
        let (mut items, mut skipped) = (Vec::new(), Vec::new());
        for entry in Walker::new(roots(paths).unwrap()) {
            match entry {
                Entry::Item(item) => items.push(shown(&item.name)),
                Entry::Skipped { name, .. } => skipped.push(shown(&name)),
                Entry::Unreadable { name, error, .. } => panic!("{}: {error}", shown(&name)),
            }
        }
        (items, skipped)
    }

    #[test]
    fn folders_come_before_what_is_in_them_and_links_are_skipped() {
        let top = tempfile::tempdir().unwrap();
        let tree = top.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(tree.join("empty")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        fs::write(tree.join("file"), "x").unwrap();
        fs::write(tree.join(".f.00.lacuna-part"), "x").unwrap();
        symlink("/etc/passwd", tree.join("link")).unwrap();
        let (items, mut skipped) = names(&[tree]);
        let at = |name: &str| items.iter().position(|item| item == name).expect(name);
        assert_eq!(items.len(), 6);
        assert!(at("tree") < at("tree/file"));
        assert!(at("tree") < at("tree/a") && at("tree/a") < at("tree/a/b"));
        assert!(at("tree/a/b") < at("tree/a/b/file") && at("tree") < at("tree/empty"));
        skipped.sort();
        assert_eq!(skipped, ["tree/.f.00.lacuna-part", "tree/link"]);
    }

    #[test]
    fn paths_of_the_command_line_are_checked() {
        let top = tempfile::tempdir().unwrap();
        let (one, two) = (top.path().join("one"), top.path().join("two"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&two).unwrap();
        fs::write(one.join("same"), "1").unwrap();
        fs::write(two.join("same"), "2").unwrap();
        symlink(one.join("same"), two.join("link")).unwrap();
        assert_eq!(names(&[two.join("link")]).0, ["link"], "a link named by the user is followed");
        let error = roots(&[one.join("same"), two.join("same")]).unwrap_err();
        assert!(matches!(error, PathError::SameName { name } if name == b"same"));
        assert!(matches!(roots(&[PathBuf::from("/")]), Err(PathError::NoName { .. })));
        assert!(matches!(roots(&[PathBuf::from("/dev/null")]), Err(PathError::Kind { .. })));
        assert!(matches!(roots(&[top.path().join("absent")]), Err(PathError::File(_))));
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd;
            let (pipe, _writer) = io::pipe().unwrap();
            let pipe = format!("/dev/fd/{}", pipe.as_raw_fd());
            let error = roots(&[PathBuf::from(pipe)]).unwrap_err();
            assert!(matches!(&error, PathError::Kind { .. }), "{error}");
        }
        assert_eq!(names(&[one.join("../one")]).0, ["one", "one/same"]);
    }
}
