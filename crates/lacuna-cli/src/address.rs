//! Addresses as people write them: a host without a port, a port alone.
//!
//! Names are looked up later, by whoever connects; what can be told to be wrong
//! by itself is told here, in one line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// An address to connect to, with `default_port` if it names none.
pub(crate) fn to(text: &str, default_port: u16) -> Result<String, String> {
    // A bare IPv6 address has colons but no port.
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, default_port).to_string());
    }
    let (host, port_text) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    if host.is_empty() {
        return Err(format!(
            "\"{text}\" names no host: use HOST:PORT, or HOST alone for port {default_port}"
        ));
    }
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if !is_bracketed && host.contains([':', '[', ']']) {
        return Err(format!(
            "\"{text}\" is no address: use [ADDRESS]:PORT for IPv6, like [::1]:{default_port}"
        ));
    }
    match port_text {
        None => Ok(format!("{host}:{default_port}")),
        Some("") => Err(format!(
            "\"{text}\" has no port behind the colon: use HOST:PORT, \
             or HOST alone for port {default_port}"
        )),
        Some(digits) if is_number(digits) => match digits.parse::<u16>() {
            Ok(port) if port > 0 => Ok(format!("{host}:{port}")),
            _ => Err(format!("port {digits} is out of range: use 1 to 65535")),
        },
        Some(other) => Err(format!("\"{other}\" is no port: use HOST:PORT with a number")),
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
    if is_number(port_text) {
        let port = port_text.parse().map_err(|_| {
            format!("port {port_text} is out of range: use 1 to 65535, or 0 for any that is free")
        })?;
        if host.is_empty() {
            return Ok(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port));
        }
    }
    Err(format!(
        "\"{text}\" is no address of this machine: use ADDRESS:PORT like 0.0.0.0:{default_port}, \
         or a port alone for all addresses"
    ))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
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
            ("", "names no host"),
            (":5", "names no host"),
            ("host:99999", "port 99999 is out of range"),
            ("[::1]:99999", "port 99999 is out of range"),
            ("host:", "no port behind the colon"),
            ("host:http", "\"http\" is no port"),
            ("host:0", "port 0 is out of range"),
            ("fe80::zz:7402", "[ADDRESS]:PORT"),
            ("[::1]7402", "[ADDRESS]:PORT"),
        ] {
            let error = to(text, 7402).expect_err(text);
            assert!(error.contains(part) && error.contains("use "), "{error}");
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
            assert!(error.contains(part) && error.contains("use "), "{error}");
        }
    }
}
