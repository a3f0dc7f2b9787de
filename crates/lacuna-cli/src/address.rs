//! Addresses on the command line: a host without a port, a port alone, a link-local address with
//! its interface.
//!
//! Names are looked up later, by the code that connects; errors that show without a lookup are
//! reported here, in one line.

use lacuna::ScopedIp;
use lacuna::address::AddressError;
use std::net::SocketAddr;

/// For the long help: how to write addresses.
pub(crate) const HELP: &str = "\
Addresses are of IPv4 or IPv6; with a port one of IPv6 is in brackets, [2001:db8::1]:PORT. A
link-local one names its interface, fe80::1%eth0 or [fe80::1%eth0]:PORT.";

/// For the long help of servers: where to listen.
pub(crate) const LISTEN_HELP: &str = "\
A port alone, and [::]:PORT, listen on all addresses of this machine, IPv6 and IPv4; 0.0.0.0:PORT on
those of IPv4. A link-local address names its interface, [fe80::1%eth0]:PORT.";

/// Parses an IP address; `Ok(None)` if the text is something else, an error if only its zone is
/// wrong.
fn ip(text: &str) -> Result<Option<ScopedIp>, String> {
    match text.parse() {
        Ok(ip) => Ok(Some(ip)),
        Err(AddressError::NotAnIp { .. } | AddressError::NotASocketAddr { .. }) => Ok(None),
        Err(error @ AddressError::NoZone { .. }) => Err(error.to_string()),
        Err(error @ AddressError::NoInterface { .. }) => {
            Err(format!("{error}: use one that `ip link` shows"))
        }
    }
}

/// The text within brackets, if there are any.
fn in_brackets(text: &str) -> Option<&str> {
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']'))
}

/// An address to connect to, with `default_port` if it names none.
pub(crate) fn to(text: &str, default_port: u16) -> Result<String, String> {
    // A bare IPv6 address has colons but no port.
    if let Some(ip) = ip(text)? {
        return Ok(lacuna::address::show(ip.at_port(default_port)).to_string());
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
    let is_ipv6 = match in_brackets(host).filter(|host| host.contains(':')) {
        Some(host) => ip(host)?.is_some(),
        None => false,
    };
    if !is_ipv6 && host.contains([':', '[', ']']) {
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

/// An address to listen at: ADDRESS:PORT, a port alone for all addresses, or an
/// address alone for `default_port`.
pub(crate) fn at(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = lacuna::address::parse(text) {
        return Ok(address);
    }
    if let Some(ip) = ip(in_brackets(text).unwrap_or(text))? {
        return Ok(ip.at_port(default_port));
    }
    let (host, port_text) = text.rsplit_once(':').unwrap_or(("", text));
    if is_number(port_text) {
        let port = port_text.parse().map_err(|_| {
            format!("port {port_text} is out of range: use 1 to 65535, or 0 for any that is free")
        })?;
        if host.is_empty() {
            return Ok(ScopedIp::ANY.at_port(port));
        }
        // Reports what is wrong with the IP address, if it is one.
        in_brackets(host).map(ip).transpose()?;
    }
    Err(format!(
        "\"{text}\" is no address of this machine: use ADDRESS:PORT like 127.0.0.1:{default_port} or \
         [::1]:{default_port}, or a port alone for all addresses"
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
            ("2001:db8::1:2", "[2001:db8::1:2]:7402"),
            ("[::1]:5", "[::1]:5"),
            ("[::1]", "[::1]:7402"),
            ("fe80::1%lo", "[fe80::1%lo]:7402"),
            ("[fe80::1%lo]", "[fe80::1%lo]:7402"),
            ("[fe80::1%lo]:5", "[fe80::1%lo]:5"),
            ("fe80::1%1", "[fe80::1%lo]:7402"),
            ("[fe80::1%1]:5", "[fe80::1%1]:5"),
            ("::ffff:10.0.0.1", "10.0.0.1:7402"),
            ("[::ffff:10.0.0.1]:5", "[::ffff:10.0.0.1]:5"),
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
            ("[10.0.0.1]:7402", "[ADDRESS]:PORT"),
            ("[host]:7402", "[ADDRESS]:PORT"),
            ("fe80::1", "fe80::1 is link-local: use fe80::1%INTERFACE"),
            ("[fe80::1]:7402", "fe80::1 is link-local: use fe80::1%INTERFACE"),
            ("fe80::1%nothere0", "no network interface \"nothere0\""),
            ("[fe80::1%nothere0]:7402", "no network interface \"nothere0\""),
        ] {
            let error = to(text, 7402).expect_err(text);
            assert!(error.contains(part) && error.contains("use "), "{error}");
        }
    }

    #[test]
    fn a_port_alone_listens_everywhere() {
        for (text, full) in [
            ("7402", "[::]:7402"),
            (":81", "[::]:81"),
            ("0", "[::]:0"),
            ("[::]:81", "[::]:81"),
            ("0.0.0.0:81", "0.0.0.0:81"),
            ("fe80::1%lo", "[fe80::1%1]:7402"),
            ("[fe80::1%lo]", "[fe80::1%1]:7402"),
            ("[fe80::1%lo]:9", "[fe80::1%1]:9"),
            ("[fe80::1%1]:9", "[fe80::1%1]:9"),
            ("[::ffff:10.0.0.1]:9", "10.0.0.1:9"),
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
            ("localhost:7402", "like 127.0.0.1:7402 or [::1]:7402"),
            ("fe80::1", "fe80::1 is link-local: use fe80::1%INTERFACE"),
            ("[fe80::1]:7402", "fe80::1 is link-local: use fe80::1%INTERFACE"),
            ("[fe80::1%nothere0]:7402", "no network interface \"nothere0\""),
            ("", "or a port alone"),
            ("127.0.0.1:", "or a port alone"),
        ] {
            let error = at(text, 7402).expect_err(text);
            assert!(error.contains(part) && error.contains("use "), "{error}");
        }
    }
}
