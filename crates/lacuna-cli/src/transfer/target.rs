//! The arguments of `lacuna send`: paths, and the receiver at the end.
//!
//! If the receiver was forgotten, the command fails at once with a line that shows the right form.

use super::args::PORT;
use crate::address;
use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Splits into the paths to send and the receiver, which is last.
pub(super) fn split(words: &[OsString]) -> Result<(Vec<PathBuf>, String), Failure> {
    let usage = |text: String| Failure::Usage(text);
    let Some((last, paths)) = words.split_last() else {
        return Err(usage("nothing to send: use `lacuna send PATH... HOST:PORT`".to_owned()));
    };
    let shown = last.to_string_lossy();
    if is_meant_as_path(last) {
        let hint = match shown.contains('/') {
            true => String::new(),
            false => format!("; for a host of that name use {shown}:{PORT}"),
        };
        return Err(usage(format!(
            "no receiver: the last word must be HOST or HOST:PORT, and \"{shown}\" is a path{hint}"
        )));
    }
    let to = last.to_str().ok_or_else(|| {
        usage(format!("\"{shown}\" is no receiver: the last word must be HOST or HOST:PORT"))
    })?;
    let to = address::to(to, PORT).map_err(|error| match to.contains('/') {
        true => usage(format!("{error} (the folder is chosen there, by recv --dir)")),
        false => usage(error),
    })?;
    if paths.is_empty() {
        return Err(usage(format!(
            "nothing to send: name files or folders before the receiver \"{shown}\""
        )));
    }
    Ok((paths.iter().map(PathBuf::from).collect(), to))
}

/// Whether it is an IP address, possibly with a zone; paths do not look like that.
fn is_ip(text: &str) -> bool {
    let without_zone = text.split_once('%').map_or(text, |(ip, _)| ip);
    without_zone.parse::<IpAddr>().is_ok()
}

/// Whether the last argument was meant as a path, because the receiver was forgotten.
fn is_meant_as_path(word: &OsStr) -> bool {
    let text = word.to_string_lossy();
    if is_ip(&text) {
        return false;
    }
    match text.rsplit_once(':') {
        Some((_, port)) => port.parse::<u16>().is_err() && Path::new(word).exists(),
        None => text.contains('/') || Path::new(word).exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_the_receiver() {
        let here = tempfile::NamedTempFile::new().unwrap();
        let path = here.path().as_os_str().to_owned();
        let words = |words: &[&OsStr]| -> Vec<OsString> {
            words.iter().map(|word| (*word).to_owned()).collect()
        };
        let host = OsStr::new("host");
        let (paths, to) = split(&words(&[&path, &path, host])).unwrap();
        assert_eq!((paths.len(), to.as_str()), (2, "host:7400"));
        for (given, part) in [
            (words(&[&path, &path]), "no receiver"),
            (words(&[&path]), "no receiver"),
            (words(&[host, OsStr::new("absent/path")]), "no receiver"),
            (words(&[&path, OsStr::new("user@host:/srv/in")]), "recv --dir"),
            (words(&[&path, OsStr::new("host:99999")]), "out of range"),
            (words(&[host]), "nothing to send"),
            (words(&[]), "nothing to send"),
        ] {
            let error = split(&given).unwrap_err();
            assert!(matches!(&error, Failure::Usage(text) if text.contains(part)), "{error}");
        }
    }
}
