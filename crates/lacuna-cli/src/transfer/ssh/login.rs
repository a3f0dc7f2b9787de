//! Words of the command line that name another host as ssh does: `[USER@]HOST:PATH`.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;

/// `[USER@]HOST`, as ssh takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::transfer) struct Login(String);

/// A path at another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::transfer) struct Place {
    pub(in crate::transfer) login: Login,
    /// As bytes: names need not be text. Relative to the home folder.
    pub(in crate::transfer) path: Vec<u8>,
}

impl std::fmt::Display for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Place {
    /// Of a word like `[USER@]HOST:PATH`. `None` if it is something else: a path, an address with a port.
    pub(in crate::transfer) fn of(word: &OsStr) -> Option<Self> {
        let bytes = word.as_bytes();
        // An IPv6 address in brackets has colons.
        let start = match bytes.iter().position(|byte| *byte == b'[') {
            Some(open) if open == 0 || bytes[open - 1] == b'@' => {
                bytes.iter().position(|byte| *byte == b']')?
            }
            _ => 0,
        };
        let colon = start + bytes[start..].iter().position(|byte| *byte == b':')?;
        let login = std::str::from_utf8(&bytes[..colon]).ok()?;
        let path = &bytes[colon + 1..];
        let is_port = !path.is_empty() && path.iter().all(u8::is_ascii_digit);
        // A host that begins with a dash would be an option of ssh.
        let is_host = !login.is_empty() && !login.starts_with('-') && !login.contains('/');
        let place = || Self { login: Login(login.to_owned()), path: path.to_owned() };
        (is_host && !is_port).then(place)
    }
}

impl Login {
    /// Without the user and the brackets.
    fn host(&self) -> &str {
        let host = self.0.rsplit_once('@').map_or(self.0.as_str(), |(_, host)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// As ssh takes it, which has no brackets around addresses.
    pub(super) fn ssh_word(&self) -> String {
        match self.0.rsplit_once('@') {
            Some((user, _)) => format!("{user}@{}", self.host()),
            None => self.host().to_owned(),
        }
    }

    /// The address to try first, and another one: where ssh has reached it, and its name.
    pub(super) fn addresses(&self, seen: Option<IpAddr>, port: u16) -> (String, Option<String>) {
        let host = self.host();
        let named = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        match seen.map(|ip| SocketAddr::new(ip, port).to_string()) {
            Some(seen) if seen != named => (seen, Some(named)),
            _ => (named, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_path_are_told_from_paths_and_ports() {
        let place = |word: &str| {
            let place = Place::of(OsStr::new(word))?;
            let path = String::from_utf8(place.path.clone()).unwrap();
            Some((place.login.ssh_word(), path))
        };
        let found = |login: &str, path: &str| Some((login.to_owned(), path.to_owned()));
        assert_eq!(place("host:in"), found("host", "in"));
        assert_eq!(place("me@host:/srv/it's here"), found("me@host", "/srv/it's here"));
        assert_eq!(place("host:"), found("host", ""));
        assert_eq!(place("host:./81"), found("host", "./81"));
        assert_eq!(place("[::1]:in"), found("::1", "in"));
        assert_eq!(place("me@[fe80::1%eth0]:a:b"), found("me@fe80::1%eth0", "a:b"));
        for other in
            ["host", "host:81", "[::1]:7400", "./a:b", "in/a:b", ":in", "-oProxyCommand=x:in"]
        {
            assert_eq!(place(other), None, "{other}");
        }
    }

    #[test]
    fn the_address_that_the_far_end_knows_goes_before_the_name() {
        let addresses = |login: &str, seen: Option<&str>| {
            let seen = seen.map(|ip| ip.parse().unwrap());
            Login(login.to_owned()).addresses(seen, 7)
        };
        let name = || "alias:7".to_owned();
        let seen = ("10.0.0.7:7".to_owned(), Some(name()));
        assert_eq!(addresses("me@alias", Some("10.0.0.7")), seen);
        assert_eq!(addresses("me@alias", None), (name(), None));
        assert_eq!(addresses("[::1]", Some("::1")), ("[::1]:7".to_owned(), None));
    }
}
