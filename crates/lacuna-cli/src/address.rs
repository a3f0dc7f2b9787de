//! Addresses as people write them: a host without a port, a port alone.
//!
//! Names are looked up later, by whoever connects; what can be told to be wrong
//! by itself is told here, in one line.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address to connect to, with `default_port` if it names none.
pub(crate) fn to(text: &str, default_port: u16) -> Result<String, String> {
    if text.is_empty() {
        return Err(format!("no host: use HOST or HOST:PORT ({default_port} if none is given)"));
    }
    // A bare IPv6 address has colons but no port.
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{text}]:{default_port}"));
    }
    let (host, port_text) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    if host.is_empty() {
        return Err(format!("\"{text}\" names no host"));
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(format!(
            "\"{text}\" is no address: write IPv6 with a port as [::1]:{default_port}"
        ));
    }
    match port_text.map(port).transpose()?.unwrap_or(default_port) {
        0 => Err("port 0 cannot be connected to".to_owned()),
        port => Ok(format!("{host}:{port}")),
    }
}

/// An address to listen at: ADDRESS:PORT, a port alone for all addresses of
/// IPv4, or an address alone for `default_port`.
pub(crate) fn at(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, default_port));
    }
    let (host, port_text) = text.rsplit_once(':').unwrap_or(("", text));
    let is_number = !port_text.is_empty() && port_text.bytes().all(|byte| byte.is_ascii_digit());
    if host.is_empty() && is_number {
        return Ok(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port(port_text)?));
    }
    if is_number {
        port(port_text)?;
    }
    Err(format!(
        "\"{text}\" is no address of this machine: use ADDRESS:PORT like 0.0.0.0:{default_port}, \
         or a port alone"
    ))
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            format!("port {text} is out of range: 65535 at most")
        } else {
            format!("\"{text}\" is no port: use a number up to 65535")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_port_is_filled_in() {
        for (text, full) in [
            ("host", "host:7402"),
            ("host:1", "host:1"),
            ("10.0.0.1", "10.0.0.1:7402"),
            ("::1", "[::1]:7402"),
            ("fe80::1:2", "[fe80::1:2]:7402"),
            ("[::1]:5", "[::1]:5"),
            ("[::1]", "[::1]:7402"),
        ] {
            assert_eq!(to(text, 7402).as_deref(), Ok(full));
        }
    }

    #[test]
    fn where_nobody_can_be_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "no host"),
            (":5", "names no host"),
            ("host:99999", "port 99999 is out of range"),
            ("[::1]:99999", "port 99999 is out of range"),
            ("host:", "\"\" is no port"),
            ("host:http", "\"http\" is no port"),
            ("host:0", "port 0"),
            ("fe80::zz:7402", "write IPv6 with a port as [::1]:7402"),
        ] {
            let error = to(text, 7402).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_port_alone_listens_everywhere() {
        for (text, full) in [
            ("7402", "0.0.0.0:7402"),
            (":81", "0.0.0.0:81"),
            ("0", "0.0.0.0:0"),
            ("127.0.0.1", "127.0.0.1:7402"),
            ("::1", "[::1]:7402"),
            ("[::1]", "[::1]:7402"),
            ("[::1]:9", "[::1]:9"),
            ("10.0.0.1:9", "10.0.0.1:9"),
        ] {
            assert_eq!(at(text, 7402).map(|address| address.to_string()).as_deref(), Ok(full));
        }
        for (text, part) in [
            ("99999", "out of range"),
            ("127.0.0.1:99999", "out of range"),
            ("localhost:7402", "like 0.0.0.0:7402"),
            ("", "or a port alone"),
            ("127.0.0.1:", "or a port alone"),
        ] {
            let error = at(text, 7402).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }
}
