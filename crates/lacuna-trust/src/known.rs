//! A file of hosts that were met before and the keys that they showed, in the manner of ssh's `known_hosts`.
//!
//! A line is HOST:PORT as it was given, and the public key; empty lines and those that begin with `#` are skipped. A
//! host may have several lines, any of which is good. The file is replaced as a whole, so that who reads it never sees
//! half of it, and under a lock on a file beside it, so that of two processes neither loses the other's line. What else
//! is in it stays.

use crate::file::{FILE_BYTES_MAX, FileError, make_folder_of, written_beside};
use crate::key::PublicKey;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A file of hosts that are known.
#[derive(Debug, Clone)]
pub struct KnownHosts {
    path: PathBuf,
}

/// What is known of a host that shows a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It has this key.
    Same,
    /// Nothing.
    Unknown,
    /// It has another one.
    Changed {
        /// The line that says so, from 1.
        line: usize,
    },
}

impl KnownHosts {
    /// In this file, which need not exist.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether anything is known of a host (HOST:PORT).
    ///
    /// # Errors
    /// If the file cannot be read, or a line of this host has no key.
    pub fn has(&self, host: &str) -> Result<bool, FileError> {
        Ok(!self.keys(&self.read()?, host)?.is_empty())
    }

    /// What is known of a host (HOST:PORT) that shows this key.
    ///
    /// # Errors
    /// As [`KnownHosts::has`].
    pub fn look(&self, host: &str, key: &PublicKey) -> Result<Known, FileError> {
        self.judge(&self.read()?, host, key)
    }

    /// Adds a host with its key, if nothing is known of it; returns what was known. The file is its owner's alone.
    ///
    /// # Errors
    /// As [`KnownHosts::has`]; or if the file cannot be written.
    pub fn remember(&self, host: &str, key: &PublicKey) -> Result<Known, FileError> {
        let failed = |source| FileError::Write { path: self.path.clone(), source };
        if host.starts_with('#') || host.contains(char::is_whitespace) {
            return Err(failed(io::Error::other(format!("{host:?} is no host"))));
        }
        // A link is kept, and what it leads to replaced.
        let path = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        make_folder_of(&path).map_err(failed)?;
        let mut lock = path.clone().into_os_string();
        lock.push(".lock");
        let lock = File::options().create(true).append(true).open(lock).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut text = self.read()?;
        let known = self.judge(&text, host, key)?;
        if known == Known::Unknown {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text += &format!("{} {key}\n", host.to_ascii_lowercase());
            let written = written_beside(&path, &text).map_err(failed)?;
            written.persist(&path).map_err(|error| failed(error.error))?;
        }
        Ok(known)
    }

    fn judge(&self, text: &str, host: &str, key: &PublicKey) -> Result<Known, FileError> {
        let keys = self.keys(text, host)?;
        Ok(match keys.first() {
            None => Known::Unknown,
            Some(_) if keys.iter().any(|(_, known)| known == key) => Known::Same,
            Some((line, _)) => Known::Changed { line: *line },
        })
    }

    /// The lines of a host, with their keys.
    fn keys(&self, text: &str, host: &str) -> Result<Vec<(usize, PublicKey)>, FileError> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            let Some((name, key)) = line.split_once(char::is_whitespace) else { continue };
            if line.starts_with('#') || !name.eq_ignore_ascii_case(host) {
                continue;
            }
            let (path, line) = (self.path.clone(), index + 1);
            let key = key.trim().parse();
            keys.push((line, key.map_err(|source| FileError::Line { path, line, source })?));
        }
        Ok(keys)
    }

    fn read(&self) -> Result<String, FileError> {
        let failed = |source| FileError::Read { path: self.path.clone(), source };
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            opened => opened.map_err(failed)?,
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        match text.len() as u64 > FILE_BYTES_MAX {
            // Half of it would be written back.
            true => Err(failed(io::Error::from(io::ErrorKind::FileTooLarge))),
            false => Ok(text),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::HostKey;
    use std::os::unix::fs::PermissionsExt;

    fn keys<const N: usize>() -> [PublicKey; N] {
        [(); N].map(|()| HostKey::generate().unwrap().public())
    }

    #[test]
    fn a_host_is_remembered_once_and_another_key_is_no_news_but_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownHosts::at(folder.path().join("config/lacuna/known_hosts"));
        let [a, b] = keys();
        assert!(!known.has("host:1").unwrap());
        assert_eq!(known.look("host:1", &a).unwrap(), Known::Unknown);
        assert_eq!(known.remember("Host:1", &a).unwrap(), Known::Unknown);
        assert!(known.has("HOST:1").unwrap());
        assert_eq!(known.look("host:1", &a).unwrap(), Known::Same);
        assert_eq!(known.look("host:2", &a).unwrap(), Known::Unknown, "another port");
        for change in [known.look("host:1", &b), known.remember("host:1", &b)] {
            assert_eq!(change.unwrap(), Known::Changed { line: 1 });
        }
        assert_eq!(known.remember("host:1", &a).unwrap(), Known::Same);
        let written = std::fs::read_to_string(known.path()).unwrap();
        assert_eq!(written, format!("host:1 {a}\n"));
        let mode = std::fs::metadata(known.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(known.remember("a host:1", &a).is_err() && known.remember("#h:1", &a).is_err());
    }

    #[test]
    fn what_people_wrote_into_the_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, [a, b, c]) = (folder.path().join("known"), keys());
        let before = format!("# ours\n\nhost:1 {a} the old one\nhost:1 {b}\nnonsense\n# end");
        std::fs::write(&path, &before).unwrap();
        let known = KnownHosts::at(&path);
        for key in [a, b] {
            assert_eq!(known.look("host:1", &key).unwrap(), Known::Same, "either is good");
        }
        assert_eq!(known.look("host:1", &c).unwrap(), Known::Changed { line: 3 });
        known.remember("[::1]:7", &c).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written, format!("{before}\n[::1]:7 {c}\n"));
        std::fs::write(&path, "other:1 ?\nhost:1 ssh-rsa AAAA\n").unwrap();
        let wrong = known.look("host:1", &a).unwrap_err();
        assert!(matches!(wrong, FileError::Line { line: 2, .. }), "{wrong}");
        assert!(known.remember("host:1", &a).is_err());
    }

    #[test]
    fn a_link_to_the_file_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("elsewhere"), folder.path().join("known"));
        std::fs::write(&path, "# mine\n").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let [a] = keys();
        KnownHosts::at(&link).remember("host:1", &a).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("# mine\nhost:1 {a}\n"));
    }

    #[test]
    fn nobodys_line_is_lost_when_many_write_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownHosts::at(folder.path().join("known"));
        let [key] = keys();
        std::thread::scope(|scope| {
            for number in 0..16 {
                let known = &known;
                scope.spawn(move || known.remember(&format!("host:{number}"), &key).unwrap());
            }
        });
        for number in 0..16 {
            assert_eq!(known.look(&format!("host:{number}"), &key).unwrap(), Known::Same);
        }
        let left: Vec<_> =
            folder.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "the file and its lock: {left:?}");
    }
}
