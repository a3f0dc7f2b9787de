//! The arguments of `lacuna send`: paths here, and the receiver at the end; or paths at another host, and a folder here.
//!
//! If the receiver was forgotten, the command fails at once with a line that shows the right form.

use super::args::PORT;
use super::ssh::{Login, Place};
use crate::address;
use crate::failure::Failure;
use lacuna::trust::Code;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What the words come to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// From here.
    Send { paths: Vec<PathBuf>, to: To },
    /// From another host to here.
    Fetch { from: Login, paths: Vec<Vec<u8>>, folder: PathBuf },
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

/// Splits into the paths and what is last, the receiver or a folder here.
pub(super) fn split(words: &[OsString]) -> Result<Target, Failure> {
    let usage = |text: String| Failure::Usage(text);
    let Some((last, paths)) = words.split_last() else {
        return Err(usage("nothing to send: use `lacuna send PATH... HOST:PORT`".to_owned()));
    };
    let elsewhere: Vec<_> = paths.iter().map(|path| place_elsewhere(path)).collect();
    if elsewhere.iter().any(Option::is_some) {
        return fetched(paths, elsewhere, last).map_err(usage);
    }
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
        let hint = match to {
            To::Ssh(_) => ", or the folder here that it is to be fetched into behind it",
            To::Listener { .. } => "",
        };
        return Err(usage(format!(
            "nothing to send: name files or folders before the receiver \"{shown}\"{hint}"
        )));
    }
    Ok(Target::Send { paths: paths.iter().map(PathBuf::from).collect(), to })
}

/// A path at another host. One that is here as it is written is a file of this host.
fn place_elsewhere(path: &OsStr) -> Option<Place> {
    Place::of(path).filter(|_| !is_ip(&path.to_string_lossy()) && !Path::new(path).exists())
}

/// Paths of one other host, and a folder here.
fn fetched(
    paths: &[OsString],
    places: Vec<Option<Place>>,
    folder: &OsStr,
) -> Result<Target, String> {
    let folder_path = Path::new(folder);
    if is_host(folder) && !folder_path.exists() {
        let folder = folder.to_string_lossy();
        return Err(format!(
            "both ends are on other hosts: run lacuna send on one of them, or fetch into a folder here first, not \"{folder}\""
        ));
    }
    if folder_path.exists() && !folder_path.is_dir() {
        let folder = folder.to_string_lossy();
        return Err(format!("files are fetched into a folder, and \"{folder}\" is none"));
    }
    let mut from = None;
    let mut fetched = Vec::new();
    for (path, place) in paths.iter().zip(places) {
        let Some(Place { login, path: there }) = place else {
            let path = path.to_string_lossy();
            return Err(format!(
                "\"{path}\" is on this host and others are not: a transfer goes one way"
            ));
        };
        let first = from.get_or_insert_with(|| login.clone());
        if *first != login {
            return Err(format!(
                "files are fetched from one host at a time, and {first} and {login} are two"
            ));
        }
        fetched.push(there);
    }
    let from = from.ok_or("nothing to fetch")?;
    Ok(Target::Fetch { from, paths: fetched, folder: folder_path.to_owned() })
}

/// Whether it can only be another host: one with a path or a port, one with a code, an address.
fn is_host(word: &OsStr) -> bool {
    let text = word.to_string_lossy();
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        && !text.contains('/');
    let has_code = text.split_once('@').is_some_and(|(code, _)| is_code(code));
    is_ip(&text) || has_port || has_code || Place::of(word).is_some()
}

/// A receiver that listens: `[CODE@]HOST[:PORT]`.
fn listener(word: &OsStr) -> Result<To, String> {
    let text = word.to_str().ok_or_else(|| {
        let shown = word.to_string_lossy();
        format!("\"{shown}\" is no receiver: the last word must be HOST or HOST:PORT")
    })?;
    let (code, host) = match text.split_once('@') {
        Some((code, host)) if is_code(code) => (Some((code.to_owned(), host.to_owned())), host),
        Some((_, host)) => {
            return Err(format!(
                "\"{text}\" has no code before the @: it is CODE@HOST with the code that lacuna recv shows, \
                 such as k7q-2mx@{host}, or USER@HOST:FOLDER over ssh"
            ));
        }
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
        let sent = |given: &[&OsStr]| match split(&words(given)).unwrap() {
            Target::Send { paths, to } => (paths.len(), to),
            Target::Fetch { .. } => panic!("it is to be sent"),
        };
        assert_eq!(sent(&[&path, &path, host]), (2, listener("host:7400", None)));
        for (word, to) in [
            ("k7q-2mx@[::1]:81", listener("[::1]:81", Some(("k7q-2mx", "[::1]:81")))),
            ("::1", listener("[::1]:7400", None)),
            ("user@host:/srv/in", To::Ssh(Place::of(OsStr::new("user@host:/srv/in")).unwrap())),
            ("k7q-2mx@host:in", To::Ssh(Place::of(OsStr::new("k7q-2mx@host:in")).unwrap())),
        ] {
            assert_eq!(sent(&[&path, OsStr::new(word)]).1, to, "{word}");
        }
        for (given, part) in [
            (words(&[&path, &path]), "no receiver"),
            (words(&[&path]), "no receiver"),
            (words(&[host, OsStr::new("absent/path")]), "no receiver"),
            (words(&[&path, OsStr::new("host:99999")]), "out of range"),
            (words(&[host]), "nothing to send"),
            (words(&[]), "nothing to send"),
        ] {
            let error = split(&given).unwrap_err();
            assert!(matches!(&error, Failure::Usage(text) if text.contains(part)), "{error}");
        }
    }
    #[test]
    fn what_is_at_another_host_is_fetched_into_the_last_word() {
        let here = tempfile::tempdir().unwrap();
        let (folder, file) = (here.path().to_str().unwrap(), here.path().join("a:b"));
        std::fs::write(&file, "x").unwrap();
        let file = file.to_str().unwrap();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let fetched = |given: &[&str]| match split(&words(given)).unwrap() {
            Target::Fetch { from, paths, folder } => (from.to_string(), paths, folder),
            Target::Send { .. } => panic!("it is to be fetched"),
        };
        for (from, given, path) in [
            ("me@host", "me@host:/srv/it's *", "/srv/it's *"),
            ("host", "host:", ""),
            ("[::1]", "[::1]:a:b", "a:b"),
            ("host", "host:~/x", "~/x"),
        ] {
            let expected = (from.to_owned(), vec![path.as_bytes().to_vec()], PathBuf::from(folder));
            assert_eq!(fetched(&[given, folder]), expected, "{given}");
        }
        assert_eq!(fetched(&["host:a", "host:b", "new"]).1, [b"a".to_vec(), b"b".to_vec()]);
        for given in ["me@host", "@host", "k7q2mx@host", "k7q-2mxx@host:7400"] {
            let error = split(&words(&[file, given])).unwrap_err();
            assert!(
                matches!(&error, Failure::Usage(text) if text.contains("CODE@HOST")),
                "{error}"
            );
        }
        // A file of this host, though its name has a colon.
        assert!(matches!(split(&words(&[file, "host"])), Ok(Target::Send { .. })));
        for (given, part) in [
            (["host:a", "host:b", "other:c"], "both ends are on other hosts"),
            (["host:a", "host:b", "other:7400"], "both ends are on other hosts"),
            (["host:a", "host:b", "[::1]:7400"], "both ends are on other hosts"),
            (["host:a", "host:b", "10.0.0.7"], "both ends are on other hosts"),
            (["host:a", "host:b", "k7q-2mx@other"], "both ends are on other hosts"),
            (["host:a", folder, folder], "a transfer goes one way"),
            ([folder, "host:a", folder], "a transfer goes one way"),
            (["host:a", "me@host:b", folder], "from one host at a time"),
            (["host:a", "host:b", file], "is none"),
        ] {
            let error = split(&words(&given)).unwrap_err();
            assert!(matches!(&error, Failure::Usage(text) if text.contains(part)), "{error}");
        }
    }
}
