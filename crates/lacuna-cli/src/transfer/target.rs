//! The arguments of `lacuna send`: paths, and the receiver at the end.
//!
//! If the receiver was forgotten, the command fails at once with a line that shows the right form.

use super::args::PORT;
use crate::address;
use crate::failure::Failure;
use lacuna::trust::Code;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What the words come to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) paths: Vec<PathBuf>,
    /// HOST:PORT.
    pub(super) to: String,
    /// A one-time code, and what is behind it as it was given.
    pub(super) code: Option<(String, String)>,
}

/// Splits into the paths to send and the receiver, which is last.
pub(super) fn split(words: &[OsString]) -> Result<Target, Failure> {
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
    let (code, to) = match to.split_once('@').filter(|(code, _)| is_code(code)) {
        Some((code, host)) => (Some((code.to_owned(), host.to_owned())), host),
        None => (None, to),
    };
    let to = address::to(to, PORT).map_err(|error| match to.contains('/') {
        true => usage(format!("{error} (the folder is chosen there, by recv --dir)")),
        false => usage(error),
    })?;
    if paths.is_empty() {
        return Err(usage(format!(
            "nothing to send: name files or folders before the receiver \"{shown}\""
        )));
    }
    Ok(Target { paths: paths.iter().map(PathBuf::from).collect(), to, code })
}

/// Whether it has the form of a code with its dash, as receivers show it. No name of a user is taken for one otherwise.
fn is_code(text: &str) -> bool {
    text.len() == 7 && text.as_bytes()[3] == b'-' && text.parse::<Code>().is_ok()
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
        let found = split(&words(&[&path, &path, host])).unwrap();
        assert_eq!((found.paths.len(), found.to.as_str(), found.code), (2, "host:7400", None));
        let found = split(&words(&[&path, OsStr::new("k7q-2mx@[::1]:81")])).unwrap();
        let code = Some(("k7q-2mx".to_owned(), "[::1]:81".to_owned()));
        assert_eq!((found.to.as_str(), found.code), ("[::1]:81", code));
        for (given, part) in [
            (words(&[&path, &path]), "no receiver"),
            (words(&[&path]), "no receiver"),
            (words(&[host, OsStr::new("absent/path")]), "no receiver"),
            (words(&[&path, OsStr::new("user@host:/srv/in")]), "recv --dir"),
            (words(&[&path, OsStr::new("k7q-2mu@host:/srv/in")]), "recv --dir"),
            (words(&[&path, OsStr::new("host:99999")]), "out of range"),
            (words(&[host]), "nothing to send"),
            (words(&[]), "nothing to send"),
        ] {
            let error = split(&given).unwrap_err();
            assert!(matches!(&error, Failure::Usage(text) if text.contains(part)), "{error}");
        }
    }
}
