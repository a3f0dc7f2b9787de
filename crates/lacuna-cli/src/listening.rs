//! The address that a server listens at, reported at its start: a line for people, or with `--json`
//! an object before the results.

use crate::failure::Failure;
use crate::output::Output;
use lacuna::address::show;
use lacuna::datapath::families;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};

/// The report of a listening server.
#[derive(Debug, Serialize)]
struct Listening {
    /// ADDRESS:PORT, with the actual port, and the interface of a link-local address.
    listening: String,
    /// `tcp` or `udp`.
    protocol: &'static str,
    /// Address families of the peers that it accepts: `ipv6`, `ipv4`.
    families: Vec<&'static str>,
}

/// Reports it; `more` is appended to the line for people.
pub(crate) fn tell(
    output: Output,
    address: SocketAddr,
    protocol: &'static str,
    more: &str,
) -> Result<(), Failure> {
    let listening =
        Listening { listening: show(address).to_string(), protocol, families: of(address) };
    output.note(&format!("listening on {}{more}", describe(&listening, address.ip())));
    if output.json { output.object(&listening) } else { Ok(()) }
}

fn of(address: SocketAddr) -> Vec<&'static str> {
    let (takes_v4, takes_v6) = families(address);
    [(takes_v6, "ipv6"), (takes_v4, "ipv4")]
        .into_iter()
        .filter_map(|(takes, family)| takes.then_some(family))
        .collect()
}

/// The address, with the families that a wildcard address accepts.
fn describe(listening: &Listening, ip: IpAddr) -> String {
    let is_udp = listening.protocol == "udp";
    let families = match listening.families[..] {
        ["ipv6", "ipv4"] => Some("IPv6 and IPv4"),
        ["ipv6"] if ip.is_unspecified() => Some("IPv6 alone"),
        ["ipv4"] if ip.is_unspecified() => Some("IPv4 alone"),
        _ => None,
    };
    let notes: Vec<&str> = is_udp.then_some("UDP").into_iter().chain(families).collect();
    match notes.is_empty() {
        true => listening.listening.clone(),
        false => format!("{} ({})", listening.listening, notes.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_show_by_the_address_is_said() {
        for (address, protocol, said) in [
            ("[::]:7400", "tcp", "[::]:7400 (IPv6 and IPv4)"),
            ("[::]:7403", "udp", "[::]:7403 (UDP, IPv6 and IPv4)"),
            ("0.0.0.0:7400", "tcp", "0.0.0.0:7400 (IPv4 alone)"),
            ("127.0.0.1:7400", "tcp", "127.0.0.1:7400"),
            ("[::1]:7403", "udp", "[::1]:7403 (UDP)"),
            ("[fe80::1%1]:7400", "tcp", "[fe80::1%lo]:7400"),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            let listening =
                Listening { listening: show(address).to_string(), protocol, families: of(address) };
            assert_eq!(describe(&listening, address.ip()), said);
        }
    }
}
