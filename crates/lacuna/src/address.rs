//! IP addresses with zones, as people write them.
//!
//! A link-local IPv6 address (`fe80::/10`) is unique only on its link, so a host with several
//! interfaces needs the interface, too: the address's zone (RFC 4007). It is written
//! `fe80::1%eth0`, as `ip`, `ping` and `ssh` take it, or with the interface's number. In a
//! [`SocketAddr`] the number is `scope_id`. Zones are local to a host: none is sent to a peer or
//! taken from one.
//!
//! Invariant: addresses are *canonical* here. An IPv4 address is never written as IPv6
//! (`::ffff:192.0.2.1`), only link-local addresses have a zone, and flow information is 0. So equal
//! addresses are equal values, whichever socket reported them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::str::FromStr;
use std::{fmt, io};

/// An IP address, with its zone if it is link-local.
///
/// Parses `192.0.2.1`, `2001:db8::1`, `fe80::1%eth0` or `fe80::1%3`, and converts from the standard
/// library's types. Printed with the interface's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopedIp {
    ip: IpAddr,
    /// Interface number; 0 unless the address is link-local.
    scope_id: u32,
}

/// Text that is not a usable address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not written like an IP address.
    #[error("\"{text}\" is no IP address")]
    NotAnIp {
        /// What was given.
        text: String,
    },
    /// Not written like an IP address with a port.
    #[error("\"{text}\" is not ADDRESS:PORT, as in 192.0.2.1:7400 or [fe80::1%eth0]:7400")]
    NotASocketAddr {
        /// What was given.
        text: String,
    },
    /// Link-local without an interface.
    #[error("{ip} is link-local: use {ip}%INTERFACE, with this host's interface to it")]
    NoZone {
        /// The address.
        ip: Ipv6Addr,
    },
    /// Names an interface that this host does not have.
    #[error("this host has no network interface \"{zone}\"")]
    NoInterface {
        /// Its name.
        zone: String,
    },
}

impl ScopedIp {
    /// The wildcard `::`: all addresses of this host, IPv6 and IPv4; on a host without IPv6, the
    /// IPv4 ones.
    pub const ANY: Self = Self { ip: IpAddr::V6(Ipv6Addr::UNSPECIFIED), scope_id: 0 };

    /// The address.
    pub const fn ip(self) -> IpAddr {
        self.ip
    }

    /// Number of the interface; 0 unless the address is link-local.
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

/// A link-local address gets no zone.
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

/// A link-local address gets no zone.
impl From<Ipv6Addr> for ScopedIp {
    fn from(ip: Ipv6Addr) -> Self {
        Self::new(ip.into(), 0)
    }
}

/// Without the port.
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

/// The same address in canonical form.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    ScopedIp::from(address).at_port(address.port())
}

/// Reads ADDRESS:PORT, as in `192.0.2.1:7400` or `[fe80::1%eth0]:7400`.
///
/// # Errors
/// When it is written otherwise, or names an interface that this host does not have.
pub fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    let not_an_address = || AddressError::NotASocketAddr { text: text.to_owned() };
    let (host, port) = text.rsplit_once(':').ok_or_else(not_an_address)?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_number).ok_or_else(not_an_address)?;
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // IPv6 needs brackets, since its colons would hide the port's; nothing else has them.
    if in_brackets.is_some() != host.contains(':') {
        return Err(not_an_address());
    }
    match in_brackets.unwrap_or(host).parse::<ScopedIp>() {
        Ok(ip) => Ok(ip.at_port(port)),
        Err(AddressError::NotAnIp { .. }) => Err(not_an_address()),
        Err(error) => Err(error),
    }
}

/// Resolves HOST:PORT, an address as [`parse`] takes it or a name. The result is canonical and in
/// the system's order of preference (RFC 6724).
///
/// # Errors
/// When there is no such host; with the system's error.
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

/// Formats an address for people: canonical, with the interface's name if it has a zone.
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

/// Whether an address is link-local.
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Number of the interface that `zone` names, by its name or number.
fn number_of(zone: &str) -> Option<u32> {
    let is_name = |char: char| char.is_ascii_graphic() && !"%/:[]".contains(char);
    if zone.is_empty() || !zone.chars().all(is_name) {
        return None;
    }
    // The standard library's only way to resolve interface names. No name server is asked, since
    // the address is numeric. `fe80::`, because some systems accept a zone on link-local addresses
    // only.
    let address = (format!("fe80::1%{zone}"), 0).to_socket_addrs().ok()?.next()?;
    match address {
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|number| *number != 0),
        SocketAddr::V4(_) => None,
    }
}

/// Name of an interface.
#[cfg(target_os = "linux")]
fn name_of(number: u32) -> Option<String> {
    use rustix::net::{AddressFamily, SocketType, netdevice, socket};
    if number == 0 {
        return None;
    }
    // The query needs a socket; any one will do.
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
