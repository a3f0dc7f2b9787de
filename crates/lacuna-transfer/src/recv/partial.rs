//! A partial file: a hidden file beside the final name, only ever appended to, locked by one
//! transfer, and renamed when it is complete.
//!
//! A hole exists on the disk only once data was written after it, or when the file gets its final
//! length. After a break before that, the hole is announced again.

use super::metadata::set_modified;
use super::tree::{Found, look, open_file};
use super::write_behind::{WriteBehind, Written};
use crate::extents::allocated_bytes;
use crate::name::Name;
use crate::prefix;
use crate::wire::{Hash, Time};
use lacuna_service::STOP_POLL;
use rustix::fs::{
    AtFlags, Mode, OFlags, SeekFrom, fchmod, fstat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for another transfer's lock: a sender that reconnects may be faster than the
/// end of its broken connection.
const HELD: Duration = Duration::from_secs(10);

/// A partial file, locked by this transfer.
#[derive(Debug)]
pub(crate) struct Partial {
    folder: Arc<OwnedFd>,
    leaf: String,
    file: Arc<File>,
    /// Valid bytes, holes included.
    len_bytes: u64,
    /// Valid bytes that are data.
    data_bytes: u64,
    written: Written,
}

/// How to complete the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish {
    pub(crate) permissions: Mode,
    pub(crate) modified: Time,
    /// Replace an existing regular file.
    pub(crate) overwrite: bool,
    /// Sync it to the disk first.
    pub(crate) sync: bool,
}

impl Partial {
    /// Opens the partial file of an earlier transfer, if there is one.
    pub(crate) fn find(
        folder: &Arc<OwnedFd>,
        name: &Name,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        Self::open(folder, name, false, stop)
    }

    /// Opens the partial file, or creates an empty one.
    pub(crate) fn make(
        folder: &Arc<OwnedFd>,
        name: &Name,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let made = Self::open(folder, name, true, stop)?;
        Ok(made.expect("made if it was not there"))
    }

    fn open(
        folder: &Arc<OwnedFd>,
        name: &Name,
        make: bool,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        let leaf = name.partial();
        let since = Instant::now();
        let mut flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        flags.set(OFlags::CREATE, make);
        loop {
            let file = match openat(&**folder, leaf.as_str(), flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT) if !make => return Ok(None),
                // An earlier transfer was killed after it set the final permissions and before it
                // renamed the file.
                Err(Errno::ACCESS) if make_writable(&**folder, &leaf) => continue,
                Err(Errno::LOOP) => return Err(io::Error::other("its partial file is a link")),
                Err(errno) => return Err(errno.into()),
            };
            let metadata = file.metadata()?;
            if !metadata.is_file() || metadata.nlink() > 1 {
                return Err(io::Error::other("its partial file is no file of its own"));
            }
            match file.try_lock() {
                // Some file systems have no locks; then no other transfer has one.
                Ok(()) | Err(TryLockError::Error(_)) => {}
                Err(TryLockError::WouldBlock) if stop() => {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Err(TryLockError::WouldBlock) if since.elapsed() < HELD => {
                    std::thread::sleep(STOP_POLL);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another transfer is receiving it"));
                }
            }
            // The transfer that held the lock may have renamed the file.
            if is_at(&file, &**folder, &leaf)? {
                let metadata = file.metadata()?;
                let (len_bytes, data_bytes) = (metadata.len(), allocated_bytes(&metadata));
                let (folder, written) = (folder.clone(), Written::from(len_bytes));
                let file = Arc::new(file);
                return Ok(Some(Self { folder, leaf, file, len_bytes, data_bytes, written }));
            }
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Valid bytes, holes included.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Valid bytes that are data.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Whether the file system allows files of this size.
    pub(crate) fn may_be_of(&self, size_bytes: u64) -> bool {
        // Moving the file position is harmless: all reads and writes here give an offset.
        rustix::fs::seek(&*self.file, SeekFrom::Start(size_bytes)) != Err(Errno::INVAL)
    }

    /// Discards everything after the first `len_bytes`.
    pub(crate) fn cut(&mut self, len_bytes: u64) -> io::Result<()> {
        debug_assert!(len_bytes <= self.len_bytes, "it becomes longer by what comes");
        if len_bytes < self.len_bytes {
            self.file.set_len(len_bytes)?;
            self.len_bytes = len_bytes;
            self.data_bytes = allocated_bytes(&self.file.metadata()?);
            self.written = Written::from(len_bytes);
        }
        Ok(())
    }

    /// Appends data. After an error, the data written before it is valid.
    pub(crate) fn write(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            match self.file.write_at(data, self.len_bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.len_bytes += count as u64;
                    self.data_bytes += count as u64;
                    self.written.add(count as u64);
                    data = &data[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Appends a hole.
    pub(crate) fn skip(&mut self, len_bytes: u64) {
        give_up_room(&self.file, self.len_bytes, len_bytes);
        self.len_bytes += len_bytes;
    }

    /// Has the disk begin to write the data (write-behind).
    pub(crate) fn write_behind(&mut self, behind: &WriteBehind) -> io::Result<()> {
        behind.advance(&self.file, &mut self.written, self.len_bytes)
    }

    /// Renames the file to its final name. Returns the error if its permissions or time could not
    /// be set: some network shares have none of their own, and the content is worth more. An error
    /// of kind `AlreadyExists` means that the name is taken; the partial file is kept then.
    pub(crate) fn finish(&self, name: &Name, finish: &Finish) -> io::Result<Option<io::Error>> {
        if self.file.metadata()?.len() < self.len_bytes {
            // The file may end in a hole.
            self.file.set_len(self.len_bytes)?;
        }
        let permissions = fchmod(&*self.file, finish.permissions).map_err(io::Error::from);
        let time = set_modified(&self.file, finish.modified);
        let unkept = permissions.and(time).err();
        if finish.sync {
            self.file.sync_all()?;
        }
        let to = OsStr::from_bytes(name.leaf());
        if finish.overwrite {
            match look(&*self.folder, name.leaf())? {
                Found::Nothing | Found::File { .. } => {
                    renameat(&*self.folder, self.leaf.as_str(), &*self.folder, to)?;
                }
                Found::Folder | Found::Other(_) => {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
            }
        } else {
            rename_to_new(&*self.folder, &self.leaf, to)?;
        }
        if finish.sync {
            rustix::fs::fsync(&*self.folder)?;
        }
        Ok(unkept)
    }
}

impl Partial {
    /// Whether a file with this name and content has appeared beside it.
    pub(crate) fn has_appeared(
        &self,
        name: &Name,
        hash: &Hash,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        // Something other than a regular file has no content to compare.
        let Ok(file) = open_file(&*self.folder, name.leaf()) else { return Ok(false) };
        let is_same_size = file.metadata()?.len() == self.len_bytes;
        Ok(is_same_size && prefix::hash_of(&file, self.len_bytes, stop)? == *hash)
    }

    /// Removes it.
    pub(crate) fn remove(self) -> io::Result<()> {
        Ok(unlinkat(&*self.folder, self.leaf.as_str(), AtFlags::empty())?)
    }

    /// Removes the partial file of a file that is complete, unless another transfer holds it.
    pub(crate) fn clear_away(folder: &Arc<OwnedFd>, name: &Name) {
        if let Ok(Some(partial)) = Self::find(folder, name, &|| true) {
            // Best effort: a leftover does no harm.
            let _ = partial.remove();
        }
    }
}

/// Frees the space that a file system preallocated after the end of a growing file, as XFS does: it
/// would remain in the hole. Best effort.
fn give_up_room(file: &File, from: u64, len_bytes: u64) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(file, hole, from, len_bytes);
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (file, from, len_bytes);
}

/// Makes a partial file writable again; `false` if it was.
fn make_writable(folder: impl AsFd, leaf: &str) -> bool {
    let Ok(file) = open_file(folder, leaf.as_bytes()) else { return false };
    let is_writable = file.metadata().is_ok_and(|metadata| metadata.mode() & 0o200 != 0);
    !is_writable && fchmod(&file, Mode::RUSR | Mode::WUSR).is_ok()
}

/// Whether `leaf` still names this file.
pub(crate) fn is_at(file: &File, folder: impl AsFd, leaf: impl AsRef<OsStr>) -> io::Result<bool> {
    let here = fstat(file)?;
    match statat(folder, leaf.as_ref(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok((there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Renames without replacing anything.
fn rename_to_new(folder: impl AsFd, from: &str, to: &OsStr) -> io::Result<()> {
    let folder = folder.as_fd();
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        use rustix::fs::{RenameFlags, renameat_with};
        match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
            // The file system, the kernel or a sandbox does not support the flag.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::PERM) => {}
            result => return Ok(result?),
        }
    }
    // Instead: reserve the name with an empty file, which the rename then replaces.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    drop(openat(folder, to, flags, Mode::RUSR | Mode::WUSR)?);
    renameat(folder, from, folder, to).inspect_err(|_| {
        let _ = unlinkat(folder, to, AtFlags::empty());
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use std::path::Path;

    const NEVER: &dyn Fn() -> bool = &|| false;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).unwrap()
    }

    fn folder(path: &Path) -> Arc<OwnedFd> {
        Tree::open(path).unwrap()
    }

    fn plain() -> Finish {
        let modified = Time { seconds: 1_000_000_000, nanos: 123_456_789 };
        let permissions = Mode::from_raw_mode(0o640);
        Finish { permissions, modified, overwrite: false, sync: true }
    }

    #[test]
    fn a_file_appears_whole_with_its_time_and_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        let mut partial = Partial::make(&folder, &name("f"), NEVER).unwrap();
        partial.write(b"hello, ").unwrap();
        assert!(!dir.path().join("f").exists());
        drop(partial);
        let mut partial = Partial::find(&folder, &name("f"), NEVER).unwrap().unwrap();
        assert_eq!(partial.len_bytes(), 7);
        partial.cut(5).unwrap();
        partial.write(b" there").unwrap();
        partial.finish(&name("f"), &plain()).unwrap();
        let path = dir.path().join("f");
        assert_eq!(std::fs::read(&path).unwrap(), b"hello there");
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o640);
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(Partial::find(&folder, &name("f"), NEVER).unwrap().is_none());
    }

    #[test]
    fn a_hole_takes_no_room_and_is_there_at_the_end() {
        const MIB: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        let mut partial = Partial::make(&folder, &name("f"), NEVER).unwrap();
        assert!(partial.may_be_of(1 << 40) && !partial.may_be_of(u64::MAX));
        partial.skip(8 * MIB);
        partial.write(&[1; MIB as usize]).unwrap();
        partial.skip(4 * MIB);
        assert_eq!((partial.len_bytes(), partial.data_bytes()), (13 * MIB, MIB));
        drop(partial);
        // A hole that nothing is behind is lost, as is what is behind a cut.
        let mut partial = Partial::find(&folder, &name("f"), NEVER).unwrap().unwrap();
        assert_eq!((partial.len_bytes(), partial.data_bytes()), (9 * MIB, MIB));
        partial.cut(9 * MIB - 1).unwrap();
        partial.skip(MIB + 1);
        partial.write(b"end").unwrap();
        partial.skip(6 * MIB - 3);
        partial.finish(&name("f"), &plain()).unwrap();
        let path = dir.path().join("f");
        let expected = [
            vec![0; 8 << 20],
            vec![1; (1 << 20) - 1],
            vec![0; (1 << 20) + 1],
            b"end".to_vec(),
            vec![0; (6 << 20) - 3],
        ];
        assert!(std::fs::read(&path).unwrap() == expected.concat());
        let allocated = path.metadata().unwrap().blocks() * 512;
        assert!(allocated < 2 * MIB, "{allocated} bytes for one of data");
    }

    #[test]
    fn what_exists_is_kept_unless_it_may_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        std::fs::write(dir.path().join("f"), "old").unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("link")).unwrap();
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        let overwriting = Finish { overwrite: true, ..plain() };
        for (taken, finish) in
            [("f", plain()), ("link", plain()), ("link", overwriting), ("dir", overwriting)]
        {
            let mut partial = Partial::make(&folder, &name(taken), NEVER).unwrap();
            partial.cut(0).unwrap();
            partial.write(b"new").unwrap();
            let error = partial.finish(&name(taken), &finish).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{taken}");
        }
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"old");
        let partial = Partial::make(&folder, &name("f"), NEVER).unwrap();
        partial.finish(&name("f"), &overwriting).unwrap();
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"new");
        // The other way, for file systems that cannot rename without replacing.
        let partial = Partial::make(&folder, &name("g"), NEVER).unwrap();
        let leaf = partial.leaf.clone();
        rename_to_new(&*folder, &leaf, OsStr::new("g")).unwrap();
        assert!(dir.path().join("g").exists());
    }

    #[test]
    fn only_a_file_of_the_same_content_has_appeared() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        let hash: Hash = blake3::hash(b"content").into();
        let mut partial = Partial::make(&folder, &name("f"), NEVER).unwrap();
        partial.write(b"content").unwrap();
        let appeared = |partial: &Partial| partial.has_appeared(&name("f"), &hash, NEVER).unwrap();
        assert!(!appeared(&partial));
        for other in ["contenT", "content and more", ""] {
            std::fs::write(dir.path().join("f"), other).unwrap();
            assert!(!appeared(&partial), "{other}");
        }
        std::fs::write(dir.path().join("f"), "content").unwrap();
        assert!(appeared(&partial));
        std::fs::rename(dir.path().join("f"), dir.path().join("g")).unwrap();
        std::os::unix::fs::symlink("g", dir.path().join("f")).unwrap();
        assert!(!appeared(&partial), "a link is not followed");
        partial.remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_left_of_a_whole_file_goes_unless_it_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        let held = Partial::make(&folder, &name("f"), NEVER).unwrap();
        Partial::clear_away(&folder, &name("f"));
        assert!(dir.path().join(name("f").partial()).exists(), "another transfer holds it");
        drop(held);
        Partial::clear_away(&folder, &name("f"));
        assert!(!dir.path().join(name("f").partial()).exists());
        Partial::clear_away(&folder, &name("f"));
    }

    #[test]
    fn one_transfer_at_a_time_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        let first = Partial::make(&folder, &name("f"), NEVER).unwrap();
        let error = Partial::make(&folder, &name("f"), &|| true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        // A second one that waits gets a file of its own once the first is done.
        let waiting = {
            let folder = folder.clone();
            std::thread::spawn(move || Partial::make(&folder, &name("f"), NEVER).unwrap())
        };
        first.finish(&name("f"), &plain()).unwrap();
        let second = waiting.join().unwrap();
        assert!(is_at(&second.file, &*folder, &second.leaf).unwrap());
        assert!(dir.path().join("f").exists());
    }

    #[test]
    fn a_planted_partial_file_is_not_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = folder(dir.path());
        let target = outside.path().join("target");
        std::fs::write(&target, "x").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join(name("a").partial())).unwrap();
        std::fs::hard_link(&target, dir.path().join(name("b").partial())).unwrap();
        std::fs::create_dir(dir.path().join(name("c").partial())).unwrap();
        for planted in ["a", "b", "c"] {
            assert!(Partial::make(&folder, &name(planted), NEVER).is_err(), "{planted}");
        }
        assert_eq!(std::fs::read(&target).unwrap(), b"x");
    }

    /// Has the kernel refuse these system calls to the thread that runs `test`, as
    /// sandboxes and file systems do.
    #[cfg(target_os = "linux")]
    fn where_refused(calls: &[libc::c_long], errno: Errno, test: impl FnOnce() + Send) {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
        let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
        let refused = SeccompAction::Errno(errno.raw_os_error() as u32);
        let arch = std::env::consts::ARCH.try_into().expect("a known one");
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
        let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
        std::thread::scope(|scope| {
            let test = scope.spawn(move || match apply_filter(&program) {
                Ok(()) => test(),
                Err(error) => println!("skipped: {error}"),
            });
            test.join().expect("no panic");
        });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_is_there_even_where_permissions_and_times_cannot_be_set() {
        for call in [libc::SYS_fchmod, libc::SYS_utimensat] {
            for errno in [Errno::PERM, Errno::NOSYS, Errno::NOTSUP, Errno::INVAL] {
                let dir = tempfile::tempdir().unwrap();
                let folder = folder(dir.path());
                let mut partial = Partial::make(&folder, &name("f"), NEVER).unwrap();
                partial.write(b"content").unwrap();
                where_refused(&[call], errno, || {
                    let unkept = partial.finish(&name("f"), &plain()).unwrap();
                    assert_eq!(unkept.unwrap().raw_os_error(), Some(errno.raw_os_error()));
                    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"content");
                    let metadata = dir.path().join("f").metadata().unwrap();
                    // One does not keep the other away.
                    match call {
                        libc::SYS_fchmod => assert_eq!(metadata.mtime(), plain().modified.seconds),
                        _ => assert_eq!(metadata.mode() & 0o777, 0o640),
                    }
                });
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_gets_its_name_where_the_system_cannot_rename_without_replacing() {
        for errno in [Errno::PERM, Errno::NOSYS, Errno::INVAL] {
            let dir = tempfile::tempdir().unwrap();
            let folder = folder(dir.path());
            std::fs::write(dir.path().join("taken"), "old").unwrap();
            where_refused(&[libc::SYS_renameat2], errno, || {
                for leaf in ["new", "taken"] {
                    let mut partial = Partial::make(&folder, &name(leaf), NEVER).unwrap();
                    partial.write(b"content").unwrap();
                    let finished = partial.finish(&name(leaf), &plain());
                    let kind =
                        finished.map_err(|error| error.kind()).map(|unkept| unkept.is_none());
                    let is_taken = leaf == "taken";
                    let expected =
                        if is_taken { Err(io::ErrorKind::AlreadyExists) } else { Ok(true) };
                    assert_eq!(kind, expected, "{leaf}, {errno}");
                }
            });
            assert_eq!(std::fs::read(dir.path().join("new")).unwrap(), b"content");
            assert_eq!(std::fs::read(dir.path().join("taken")).unwrap(), b"old");
        }
    }
}
