//! Ranges of local ports, and binding to the first free port of one.
//!
//! Users behind a firewall, or whose peer expects a certain port (4791 of RoCEv2), need sockets at
//! known ports. Several sockets can share a range: each takes the next free port.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::BindError;

/// Ports from the first to the last, inclusive; at least one, and none of them 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// From `first` to `last`; `None` if the range is empty or includes 0.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || first > last { None } else { Some(Self { first, last }) }
    }

    /// All ports, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }
}

/// One port as `4791`, several as `4791-4799`.
impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { first, last } if first == last => write!(f, "{first}"),
            Self { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// The text is not a range of ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is neither a port nor a range of them, as in 4791-4799")]
pub struct PortRangeError(String);

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) => Self::new(first, last),
            _ => None,
        };
        ports.ok_or_else(|| PortRangeError(text.to_owned()))
    }
}

/// Calls `bind` for each port of `ports` at the IP address of `local` until one is free. Returns the
/// result and the ports before it, which were taken.
///
/// # Errors
///
/// [`BindError::AllInUse`] when all ports are taken; any other error of `bind` at once.
pub fn bind_in<D>(
    local: SocketAddr,
    ports: PortRange,
    mut bind: impl FnMut(SocketAddr) -> Result<D, BindError>,
) -> Result<(D, Vec<u16>), BindError> {
    let mut taken = Vec::new();
    for port in ports.iter() {
        let mut at = local;
        at.set_port(port);
        match bind(at) {
            Ok(bound) => return Ok((bound, taken)),
            Err(BindError::InUse(_)) => taken.push(port),
            Err(error) => return Err(error),
        }
    }
    Err(BindError::AllInUse { ip: local.ip(), ports })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_shown() {
        for (text, first, last) in [("4791", 4791, 4791), ("1-65535", 1, 65_535), ("7 - 9", 7, 9)] {
            let ports: PortRange = text.parse().unwrap();
            assert_eq!(Some(ports), PortRange::new(first, last));
            assert_eq!(ports.to_string().parse(), Ok(ports));
        }
        for text in ["", "0", "0-4", "9-7", "-", "1-", "a", "65536", "1-2-3"] {
            let error = text.parse::<PortRange>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("\"{text}\" is neither")), "{error}");
        }
    }

    #[test]
    fn the_first_free_port_is_taken_and_those_before_it_are_told() {
        let local = "127.0.0.1:0".parse().unwrap();
        let ports = PortRange::new(10, 14).unwrap();
        let bind = |free: u16| {
            bind_in(local, ports, |at| match at.port() {
                port if port >= free => Ok(at),
                _ => Err(BindError::InUse(at)),
            })
        };
        assert_eq!(bind(10).unwrap(), ("127.0.0.1:10".parse().unwrap(), vec![]));
        assert_eq!(bind(13).unwrap(), ("127.0.0.1:13".parse().unwrap(), vec![10, 11, 12]));
        let error = bind(15).unwrap_err();
        assert!(matches!(error, BindError::AllInUse { .. }));
        assert_eq!(error.to_string(), "cannot bind to 127.0.0.1: ports 10-14 are all in use");
        let refused = bind_in(local, ports, |at| Err::<(), _>(BindError::Permission(at)));
        assert!(matches!(refused, Err(BindError::Permission(at)) if at.port() == 10));
    }
}
