//! The arguments of `lacuna send`: paths, and the receiver at the end.
//!
//! If the receiver was forgotten, the command fails at once with a line that shows the right form.

use super::args::PORT;
use super::ssh::Place;
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
    pub(super) to: To,
}

/// The receiver.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum To {
    /// One that listens.
    Listener {
        /// HOST:PORT.
        address: String,
        /// A one-time code, and what is behind it as it was given.
        code: Option<(String, String)>,
    },
    /// One that ssh starts.
    Ssh(Place),
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
            "no receiver: the last word must be HOST, HOST:PORT or HOST:FOLDER, and \"{shown}\" is a path{hint}"
        )));
    }
    let to = match Place::of(last).filter(|_| !is_ip(&shown)) {
        Some(place) => To::Ssh(place),
        None => listener(last).map_err(usage)?,
    };
    if paths.is_empty() {
        return Err(usage(format!(
            "nothing to send: name files or folders before the receiver \"{shown}\""
        )));
    }
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    let is_elsewhere = |path: &&PathBuf| Place::of(path.as_os_str()).is_some() && !path.exists();
    if let Some(path) = paths.iter().find(is_elsewhere) {
        return Err(usage(format!(
            "{} is on another host: send it from there, to a `lacuna recv` here",
            path.display()
        )));
    }
    Ok(Target { paths, to })
}

/// A receiver that listens: `[CODE@]HOST[:PORT]`.
fn listener(word: &OsStr) -> Result<To, String> {
    let text = word.to_str().ok_or_else(|| {
        let shown = word.to_string_lossy();
        format!("\"{shown}\" is no receiver: the last word must be HOST or HOST:PORT")
    })?;
    let (code, host) = match text.split_once('@').filter(|(code, _)| is_code(code)) {
        Some((code, host)) => (Some((code.to_owned(), host.to_owned())), host),
        None => (None, text),
    };
    Ok(To::Listener { address: address::to(host, PORT)?, code })
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
        let listener = |address: &str, code: Option<(&str, &str)>| To::Listener {
            address: address.to_owned(),
            code: code.map(|(code, host)| (code.to_owned(), host.to_owned())),
        };
        let found = split(&words(&[&path, &path, host])).unwrap();
        assert_eq!((found.paths.len(), found.to), (2, listener("host:7400", None)));
        for (word, to) in [
            ("k7q-2mx@[::1]:81", listener("[::1]:81", Some(("k7q-2mx", "[::1]:81")))),
            ("::1", listener("[::1]:7400", None)),
            ("user@host:/srv/in", To::Ssh(Place::of(OsStr::new("user@host:/srv/in")).unwrap())),
            ("k7q-2mx@host:in", To::Ssh(Place::of(OsStr::new("k7q-2mx@host:in")).unwrap())),
        ] {
            assert_eq!(split(&words(&[&path, OsStr::new(word)])).unwrap().to, to, "{word}");
        }
        for (given, part) in [
            (words(&[&path, &path]), "no receiver"),
            (words(&[&path]), "no receiver"),
            (words(&[host, OsStr::new("absent/path")]), "no receiver"),
            (words(&[OsStr::new("host:file"), OsStr::new("host")]), "on another host"),
            (words(&[&path, OsStr::new("host:99999")]), "out of range"),
            (words(&[host]), "nothing to send"),
            (words(&[]), "nothing to send"),
        ] {
            let error = split(&given).unwrap_err();
            assert!(matches!(&error, Failure::Usage(text) if text.contains(part)), "{error}");
        }
    }
}
