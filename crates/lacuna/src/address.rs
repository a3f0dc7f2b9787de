//! Addresses with their zones, as people write them.
//!
//! A link-local address of IPv6 (`fe80::/10`) is one of a link, and a host with several interfaces
//! has several links: only together with an interface, its zone, does it say where (RFC 4007). Written
//! it is `fe80::1%eth0`, as `ip`, `ping` and `ssh` take it, or with the interface's number; in a
//! [`SocketAddr`] the number is `scope_id`. That number is this host's own: it is never told to a
//! peer, and never taken from one.
//!
//! An address is *canonical* here: one of IPv4 is never written as one of IPv6 (`::ffff:192.0.2.1`),
//! only what is link-local has a zone, and there is no flow information. So equal places are equal
//! values, whichever socket has seen them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::str::FromStr;
use std::{fmt, io};

/// An IP address, and if it is link-local the interface whose link is meant.
///
/// It is read from text like `192.0.2.1`, `2001:db8::1`, `fe80::1%eth0` or `fe80::1%3`, and made of
/// the standard library's types. Printed it has the interface's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopedIp {
    ip: IpAddr,
    /// Number of the interface; 0 for what is not link-local.
    scope_id: u32,
}

/// Text that is no address of this host or of a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is not written like an IP address.
    #[error("\"{text}\" is no IP address")]
    NotAnIp {
        /// What was given.
        text: String,
    },
    /// It is not written like an IP address with a port.
    #[error("\"{text}\" is not ADDRESS:PORT, as in 192.0.2.1:7400 or [fe80::1%eth0]:7400")]
    NotASocketAddr {
        /// What was given.
        text: String,
    },
    /// It is link-local, and does not say on which link.
    #[error("{ip} is link-local: use {ip}%INTERFACE, with this host's interface to it")]
    NoZone {
        /// The address.
        ip: Ipv6Addr,
    },
    /// It names an interface that this host does not have.
    #[error("this host has no network interface \"{zone}\"")]
    NoInterface {
        /// Its name.
        zone: String,
    },
}

impl ScopedIp {
    /// All addresses of this host, of IPv6 and IPv4; on a host without IPv6 those of IPv4. It is
    /// `::`.
    pub const ANY: Self = Self { ip: IpAddr::V6(Ipv6Addr::UNSPECIFIED), scope_id: 0 };

    /// The address.
    pub const fn ip(self) -> IpAddr {
        self.ip
    }

    /// The number of the interface whose link is meant; 0 if it is not link-local.
    pub const fn scope_id(self) -> u32 {
        self.scope_id
    }

    /// This address with a port.
    pub const fn at_port(self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(_) => SocketAddr::new(self.ip, port),
            IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, self.scope_id)),
        }
    }

    fn new(ip: IpAddr, scope_id: u32) -> Self {
        let ip = ip.to_canonical();
        Self { ip, scope_id: if is_link_local(ip) { scope_id } else { 0 } }
    }
}

/// Of what is link-local the zone is not known.
impl From<IpAddr> for ScopedIp {
    fn from(ip: IpAddr) -> Self {
        Self::new(ip, 0)
    }
}

impl From<Ipv4Addr> for ScopedIp {
    fn from(ip: Ipv4Addr) -> Self {
        Self::new(ip.into(), 0)
    }
}

/// Of what is link-local the zone is not known.
impl From<Ipv6Addr> for ScopedIp {
    fn from(ip: Ipv6Addr) -> Self {
        Self::new(ip.into(), 0)
    }
}

/// The host's part of it.
impl From<SocketAddr> for ScopedIp {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::new((*v4.ip()).into(), 0),
            SocketAddr::V6(v6) => Self::new((*v6.ip()).into(), v6.scope_id()),
        }
    }
}

impl FromStr for ScopedIp {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let not_an_ip = || AddressError::NotAnIp { text: text.to_owned() };
        let Some((ip, zone)) = text.split_once('%') else {
            return match text.parse::<IpAddr>().map_err(|_| not_an_ip())? {
                IpAddr::V6(ip) if ip.is_unicast_link_local() => Err(AddressError::NoZone { ip }),
                ip => Ok(ip.into()),
            };
        };
        let ip = ip.parse::<Ipv6Addr>().map_err(|_| not_an_ip())?;
        let scope_id = number_of(zone);
        let scope_id =
            scope_id.ok_or_else(|| AddressError::NoInterface { zone: zone.to_owned() })?;
        Ok(Self::new(ip.into(), scope_id))
    }
}

impl fmt::Display for ScopedIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.scope_id, name_of(self.scope_id)) {
            (0, _) => write!(f, "{}", self.ip),
            (_, Some(name)) => write!(f, "{}%{name}", self.ip),
            (number, None) => write!(f, "{}%{number}", self.ip),
        }
    }
}

/// The same place in its canonical form.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    ScopedIp::from(address).at_port(address.port())
}

/// Reads ADDRESS:PORT, as in `192.0.2.1:7400` or `[fe80::1%eth0]:7400`.
///
/// # Errors
/// When it is written otherwise, or names an interface that there is not.
pub fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    let not_an_address = || AddressError::NotASocketAddr { text: text.to_owned() };
    let (host, port) = text.rsplit_once(':').ok_or_else(not_an_address)?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_number).ok_or_else(not_an_address)?;
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // Of IPv6 without brackets it is not clear where the port begins; nothing else has them.
    if in_brackets.is_some() != host.contains(':') {
        return Err(not_an_address());
    }
    match in_brackets.unwrap_or(host).parse::<ScopedIp>() {
        Ok(ip) => Ok(ip.at_port(port)),
        Err(AddressError::NotAnIp { .. }) => Err(not_an_address()),
        Err(error) => Err(error),
    }
}

/// The addresses of HOST:PORT, which is an address as [`parse`] takes it, or a name to be looked up;
/// in the system's order of preference (RFC 6724), and canonical.
///
/// # Errors
/// When there is no such host, in the system's words.
pub fn look_up(peer: &(impl ToSocketAddrs + fmt::Display)) -> io::Result<Vec<SocketAddr>> {
    match parse(&peer.to_string()) {
        Ok(address) => return Ok(vec![address]),
        Err(error @ (AddressError::NoZone { .. } | AddressError::NoInterface { .. })) => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        Err(AddressError::NotAnIp { .. } | AddressError::NotASocketAddr { .. }) => {}
    }
    let mut found = Vec::new();
    for address in peer.to_socket_addrs()?.map(canonical) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    Ok(found)
}

/// An address for people: canonical, and with the interface's name where it has one.
pub fn show(address: SocketAddr) -> impl fmt::Display {
    struct Shown(SocketAddr);
    impl fmt::Display for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let (ip, port) = (ScopedIp::from(self.0), self.0.port());
            match ip.ip() {
                IpAddr::V4(_) => write!(f, "{ip}:{port}"),
                IpAddr::V6(_) => write!(f, "[{ip}]:{port}"),
            }
        }
    }
    Shown(address)
}

/// Whether an address is one of a link.
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Number of the interface with this name or number.
fn number_of(zone: &str) -> Option<u32> {
    let is_name = |char: char| char.is_ascii_graphic() && !"%/:[]".contains(char);
    if zone.is_empty() || !zone.chars().all(is_name) {
        return None;
    }
    // The standard library's way to the system's names of interfaces: no name is looked up for this,
    // since the address is a number. Some systems take a zone with a link-local address only.
    let address = (format!("fe80::1%{zone}"), 0).to_socket_addrs().ok()?.next()?;
    match address {
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|number| *number != 0),
        SocketAddr::V4(_) => None,
    }
}

/// Name of the interface with this number.
#[cfg(target_os = "linux")]
fn name_of(number: u32) -> Option<String> {
    use rustix::net::{AddressFamily, SocketType, netdevice, socket};
    if number == 0 {
        return None;
    }
    // Any socket will do to ask by.
    let asking = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    netdevice::index_to_name(asking, number).ok()
}

#[cfg(not(target_os = "linux"))]
fn name_of(_number: u32) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name and number of the loopback interface.
    fn loopback() -> Option<(&'static str, u32)> {
        ["lo", "lo0"].into_iter().find_map(|name| Some((name, number_of(name)?)))
    }

    #[test]
    fn a_zone_is_read_by_name_and_by_number() {
        let Some((name, number)) = loopback() else { panic!("no loopback interface") };
        for zone in [name.to_owned(), number.to_string()] {
            let ip: ScopedIp = format!("fe80::1%{zone}").parse().unwrap();
            assert_eq!((ip.ip(), ip.scope_id()), ("fe80::1".parse().unwrap(), number));
            let address = parse(&format!("[fe80::1%{zone}]:7400")).unwrap();
            assert_eq!(address, ip.at_port(7400));
            let SocketAddr::V6(v6) = address else { panic!("{address}") };
            assert_eq!((v6.scope_id(), v6.flowinfo()), (number, 0));
            assert_eq!(look_up(&format!("[fe80::1%{zone}]:7400")).unwrap(), [address]);
            if cfg!(target_os = "linux") {
                assert_eq!(ip.to_string(), format!("fe80::1%{name}"));
                assert_eq!(show(address).to_string(), format!("[fe80::1%{name}]:7400"));
            }
        }
        // An interface may be gone that was there.
        let gone = SocketAddrV6::new("fe80::1".parse().unwrap(), 1, 0, 1 << 30);
        assert_eq!(show(gone.into()).to_string(), format!("[fe80::1%{}]:1", 1 << 30));
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, part) in [
            ("fe80::1", "use fe80::1%INTERFACE"),
            ("fe80::1%", "no network interface \"\""),
            ("fe80::1%0", "no network interface \"0\""),
            ("fe80::1%nothere0", "no network interface \"nothere0\""),
            ("fe80::1%lo:1", "no network interface \"lo:1\""),
            ("fe80::1%lo%lo", "no network interface \"lo%lo\""),
            ("192.0.2.1%lo", "\"192.0.2.1%lo\" is no IP address"),
            ("%lo", "is no IP address"),
            ("", "\"\" is no IP address"),
            ("[::1]", "is no IP address"),
            ("host", "is no IP address"),
        ] {
            let error = text.parse::<ScopedIp>().expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
        for (text, part) in [
            ("[fe80::1]:7400", "use fe80::1%INTERFACE"),
            ("[fe80::1%nothere0]:7400", "no network interface"),
            ("fe80::1%lo:7400", "not ADDRESS:PORT"),
            ("::1:7400", "not ADDRESS:PORT"),
            ("[192.0.2.1]:7400", "not ADDRESS:PORT"),
            ("192.0.2.1", "not ADDRESS:PORT"),
            ("192.0.2.1:", "not ADDRESS:PORT"),
            ("192.0.2.1:+1", "not ADDRESS:PORT"),
            ("192.0.2.1:99999", "not ADDRESS:PORT"),
            ("[::1]", "not ADDRESS:PORT"),
            ("host:7400", "not ADDRESS:PORT"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
        let error = look_up(&"[fe80::1%nothere0]:1".to_owned()).unwrap_err();
        assert!(error.to_string().contains("no network interface"), "{error}");
    }

    #[test]
    fn one_place_has_one_form() {
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:7400".parse().unwrap();
        assert_eq!(canonical(mapped).to_string(), "192.0.2.1:7400");
        assert_eq!(parse("[::ffff:192.0.2.1]:7400").unwrap(), canonical(mapped));
        assert_eq!(show(mapped).to_string(), "192.0.2.1:7400");
        let global: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let with_more = SocketAddrV6::new(global, 7400, 5, 3);
        assert_eq!(canonical(with_more.into()), SocketAddr::from((global, 7400)));
        let linked: Ipv6Addr = "fe80::1".parse().unwrap();
        let [a, b] = [3, 4].map(|zone| SocketAddr::from(SocketAddrV6::new(linked, 7400, 5, zone)));
        assert_ne!(ScopedIp::from(a), ScopedIp::from(b), "another link, another host");
        assert_eq!(canonical(a), SocketAddrV6::new(linked, 7400, 0, 3).into());
    }
}
