//! Addresses as people write them: the receiver at the end of a `send`, and
//! where a `recv` listens.
//!
//! A wrong one is answered before anything else is done, with what would be
//! right, in one line.

use super::args::PORT;
use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The paths to send and the receiver, which is the last word.
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
    let to = receiver(to).map_err(usage)?;
    if paths.is_empty() {
        return Err(usage(format!(
            "nothing to send: name files or folders before the receiver \"{shown}\""
        )));
    }
    Ok((paths.iter().map(PathBuf::from).collect(), to))
}

/// Whether the last word was meant to be sent: the receiver was forgotten.
fn is_meant_as_path(word: &OsStr) -> bool {
    let text = word.to_string_lossy();
    if text.parse::<IpAddr>().is_ok() {
        return false;
    }
    match text.rsplit_once(':') {
        Some((_, port)) => port.parse::<u16>().is_err() && Path::new(word).exists(),
        None => text.contains('/') || Path::new(word).exists(),
    }
}

/// `HOST`, `HOST:PORT`, an IPv6 address with or without brackets.
fn receiver(text: &str) -> Result<String, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, PORT).to_string());
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, after)) => {
            let host = format!("[{inside}]");
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(format!("\"{text}\" is no receiver: use [ADDRESS]:PORT")),
            }
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (text.to_owned(), None),
        },
    };
    if host.is_empty() {
        return Err(format!("\"{text}\" has no host: use HOST:PORT"));
    }
    if host.contains(':') && !host.starts_with('[') {
        return Err(format!("\"{text}\" has several colons: use [ADDRESS]:PORT for IPv6"));
    }
    let port = port.map_or(Ok(PORT), |port| self::port(text, port))?;
    Ok(format!("{host}:{port}"))
}

fn port(text: &str, port: &str) -> Result<u16, String> {
    if port.is_empty() {
        return Err(format!(
            "\"{text}\" has no port behind the colon: use HOST:PORT, or HOST alone for port {PORT}"
        ));
    }
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "\"{text}\" is no receiver: use HOST:PORT (its folder is chosen there, by recv --dir)"
        ));
    }
    match port.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("port {port} is out of range: use HOST:PORT with a port of 1 to 65535")),
    }
}

/// Where a receiver listens: `ADDR:PORT`, or either alone.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let (ip, port) = match text.rsplit_once(':') {
        None | Some(("", _)) => (Ok(Ipv4Addr::UNSPECIFIED.into()), text.trim_start_matches(':')),
        Some((ip, port)) => (ip.trim_matches(['[', ']']).parse::<IpAddr>(), port),
    };
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match (ip, port.parse()) {
        (Ok(ip), Ok(port)) => Ok(SocketAddr::new(ip, port)),
        (Ok(_), Err(_)) if is_number => {
            Err(format!("port {port} is out of range: use 1 to 65535, or 0 for any that is free"))
        }
        _ => Err(format!(
            "\"{text}\" is no address of this machine: use ADDR:PORT, such as 127.0.0.1:{PORT}, \
             or a port alone for all addresses"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_may_be_left_out() {
        for (to, expected) in [
            ("host", "host:7400"),
            ("host:1", "host:1"),
            ("10.0.0.1", "10.0.0.1:7400"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("::1", "[::1]:7400"),
            ("[::1]", "[::1]:7400"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(receiver(to).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_wrong_receiver_is_answered_with_what_would_be_right() {
        for (to, part) in [
            ("host:99999", "port 99999 is out of range"),
            ("host:0", "port 0 is out of range"),
            ("host:", "no port behind the colon"),
            (":7400", "no host"),
            ("user@host:/srv/in", "recv --dir"),
            ("fe80::1:x", "[ADDRESS]:PORT"),
            ("[::1]7400", "[ADDRESS]:PORT"),
        ] {
            let error = receiver(to).unwrap_err();
            assert!(error.contains(part) && error.contains("use "), "{to}: {error}");
        }
    }

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
            (words(&[host]), "nothing to send"),
            (words(&[]), "nothing to send"),
        ] {
            let error = split(&given).unwrap_err();
            assert!(matches!(&error, Failure::Usage(text) if text.contains(part)), "{error}");
        }
    }

    #[test]
    fn a_port_alone_listens_on_all_addresses() {
        for (text, expected) in [
            ("7401", "0.0.0.0:7401"),
            (":7401", "0.0.0.0:7401"),
            ("127.0.0.1", "127.0.0.1:7400"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("::", "[::]:7400"),
            ("[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(listen(text).map(|address| address.to_string()).as_deref(), Ok(expected));
        }
        for (text, part) in [
            ("99999", "out of range"),
            ("127.0.0.1:65536", "out of range"),
            ("localhost:7400", "127.0.0.1:7400"),
            ("", "a port alone"),
            ("nonsense", "a port alone"),
        ] {
            let error = listen(text).unwrap_err();
            assert!(error.contains(part) && error.contains("use "), "{text}: {error}");
        }
    }
}
