//! Files of secrets and of whom to believe.
//!
//! A secret is read only from a file that nobody but its owner can read, as ssh wants it of its keys: one that others can
//! read is no secret any more, and whoever is told so can still mend it. New files are made for their owner alone.

use crate::key::{HostKey, KeyError, PublicKey};
use crate::token::{Token, TokenError};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// The longest file that is read: some hundred thousand keys.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;

/// A file of secrets or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others can read the secret.
    #[error(
        "{} can be read by others (mode {mode:03o}), so it is no secret: chmod 600 it, or make a new one",
        path.display()
    )]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It has no token.
    #[error("{}: {source}", path.display())]
    Token {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: TokenError,
    },
    /// It has no secret key.
    #[error("{}: {source}", path.display())]
    Key {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: KeyError,
    },
    /// A line has no public key.
    #[error("{}, line {line}: {source}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        source: KeyError,
    },
    /// It cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Token {
    /// Reads one from a file that only its owner can read.
    ///
    /// # Errors
    /// If it cannot be read, others can read it, or it has no token.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = read_secret(path)?;
        text.parse().map_err(|source| FileError::Token { path: path.to_owned(), source })
    }
}

impl HostKey {
    /// Reads one from a file that only its owner can read.
    ///
    /// # Errors
    /// If it cannot be read, others can read it, or it has no key.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = read_secret(path)?;
        Self::of_pem(&text).map_err(|source| FileError::Key { path: path.to_owned(), source })
    }

    /// Reads it, or makes a new one there if there is no such file. Of several who make it at once all get the same.
    ///
    /// # Errors
    /// As [`HostKey::read`]; or if it cannot be made.
    pub fn read_or_make(path: &Path) -> Result<Self, FileError> {
        match Self::read(path) {
            Err(FileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        let failed = |source| FileError::Write { path: path.to_owned(), source };
        let made = Self::generate().map_err(|error| failed(io::Error::other(error)))?;
        match write_secret(path, &made.to_pem()) {
            Ok(()) => Ok(made),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Self::read(path),
            Err(source) => Err(failed(source)),
        }
    }
}

/// Reads public keys, one a line; empty lines and those that begin with `#` are skipped.
///
/// # Errors
/// If the file cannot be read, or a line has no key.
pub fn read_public_keys(path: &Path) -> Result<Vec<PublicKey>, FileError> {
    let mut text = String::new();
    let opened = File::open(path);
    let read = opened.and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    keys.map(|(line, key)| {
        key.parse().map_err(|source| FileError::Line { path: path.to_owned(), line, source })
    })
    .collect()
}

/// Writes a new file that only its owner can read, whole or not at all. Makes its folder, for the owner alone.
///
/// # Errors
/// `AlreadyExists` if there is such a file; or if it cannot be made.
pub fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    make_folder_of(path)?;
    let file = written_beside(path, text)?;
    file.persist_noclobber(path).map(drop).map_err(|error| error.error)
}

/// Makes a file's folder, for the owner alone.
pub(crate) fn make_folder_of(path: &Path) -> io::Result<()> {
    let mut maker = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut maker, 0o700);
    maker.recursive(true).create(folder_of(path))
}

/// A new file in the same folder that only its owner can read, on the disk.
pub(crate) fn written_beside(path: &Path, text: &str) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(folder_of(path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

pub(crate) fn read_secret(path: &Path) -> Result<Zeroizing<String>, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata().map_err(failed)?) & 0o777;
        if mode & 0o077 != 0 {
            return Err(FileError::Exposed { path: path.to_owned(), mode });
        }
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let folder = folder();
        let path = folder.path().join("config/lacuna/key");
        let made: Vec<_> = std::thread::scope(|scope| {
            let makers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| HostKey::read_or_make(&path))).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        let made: Vec<_> = made.into_iter().map(|made| made.unwrap().public()).collect();
        assert!(made.iter().all(|key| *key == made[0]), "{made:?}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().read_dir().unwrap().count(), 1, "nothing left aside");
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let folder = folder();
        let path = folder.path().join("token");
        let token = Token::generate().unwrap();
        write_secret(&path, &token.to_text()).unwrap();
        assert_eq!(Token::read(&path).unwrap().key().public(), token.key().public());
        for mode in [0o640, 0o604, 0o620] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = Token::read(&path).unwrap_err();
            assert!(matches!(error, FileError::Exposed { mode: found, .. } if found == mode));
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn what_is_there_is_never_replaced() {
        let folder = folder();
        let path = folder.path().join("key");
        write_secret(&path, "one").unwrap();
        let again = write_secret(&path, "two").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
    }

    #[test]
    fn public_keys_are_lines_and_a_wrong_one_is_named() {
        let folder = folder();
        let path = folder.path().join("trusted");
        let [a, b] = [(); 2].map(|()| HostKey::generate().unwrap().public());
        write(&path, format!("# ours\n{a} alice\n\n  {b}\n")).unwrap();
        assert_eq!(read_public_keys(&path).unwrap(), [a, b]);
        write(&path, format!("{a}\nssh-ed25519 AAAA\n")).unwrap();
        let error = read_public_keys(&path).unwrap_err();
        assert!(matches!(error, FileError::Line { line: 2, .. }), "{error}");
    }
}
