//! The form of data packets, and whether the path suits it.
//!
//! The short form is for Lacuna's ends alone. The form of RDMA covers the IP addresses and UDP ports
//! of every packet by its trailer, so nothing on the path may change them. Address translation does,
//! to TCP as to UDP. So the hello tells the addresses of the control connection as the connecting
//! end sees them, and the accepting end, which sees others behind a translation, refuses.

use super::messages::Hello;
use core::fmt;
use core::net::SocketAddr;
use core::str::FromStr;
use lacuna_wire::Seal;
use serde::{Deserialize, Serialize};

/// The form of a connection's data packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wire {
    /// UC SEND Only with Immediate wherever the packet's number gives its place, with a CRC32C
    /// trailer. 1.1 % fewer bytes at 1,500-byte packets, passes address translation, and the default.
    #[default]
    Short,
    /// RDMA WRITE Only with Immediate, RETH and ICRC for every packet, as RoCEv2 cards make and take
    /// them. Needs a datapath that knows its packets' IP headers (UDP on Linux) and a path without
    /// address translation.
    Rdma,
    /// The short form, encrypted and authenticated. Nobody asks for it: it follows from a control
    /// connection whose ends know each other by their keys.
    Sealed,
}

impl Wire {
    /// All forms that can be asked for.
    pub const ALL: [Self; 2] = [Self::Short, Self::Rdma];

    /// Name: lower case, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Rdma => "rdma",
            Self::Sealed => "sealed",
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Short => {
                "sends with a CRC32C, between Lacuna's ends alone; passes address translation"
            }
            Self::Rdma => {
                "RDMA writes with RETH and ICRC, as RoCEv2 cards take them; no address translation"
            }
            Self::Sealed => {
                "encrypted and authenticated, between Lacuna's ends that trust each other"
            }
        }
    }

    /// The trailer of its data packets.
    #[must_use]
    pub const fn seal(self) -> Seal {
        match self {
            Self::Short => Seal::Crc32c,
            Self::Rdma => Seal::Icrc,
            Self::Sealed => Seal::Aead,
        }
    }

    /// The form with this trailer.
    #[must_use]
    pub const fn of_seal(seal: Seal) -> Self {
        match seal {
            Seal::Aead => Self::Sealed,
            Seal::Crc32c => Self::Short,
            Seal::Icrc => Self::Rdma,
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no form of packets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown wire {0:?}: must be short or rdma")]
pub struct ParseWireError(String);

impl FromStr for Wire {
    type Err = ParseWireError;

    fn from_str(text: &str) -> Result<Self, ParseWireError> {
        let found = Self::ALL.into_iter().find(|wire| wire.name() == text);
        found.ok_or_else(|| ParseWireError(text.chars().take(40).collect()))
    }
}

/// The addresses of a control connection, as one end sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireEnds {
    /// This end's.
    pub here: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
}

/// The form of data packets in the hello, if it is not the short one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HelloWire {
    form: String,
    ends: Option<WireEnds>,
}

impl HelloWire {
    pub(super) fn new(wire: Wire, ends: Option<WireEnds>) -> Option<Self> {
        // Only RDMA's form covers addresses; sealed packets pass translators.
        let ends = ends.filter(|_| wire == Wire::Rdma);
        (wire != Wire::default()).then(|| Self { form: wire.name().to_owned(), ends })
    }
}

impl Hello {
    /// The form of data packets that the connecting end wants.
    ///
    /// # Errors
    /// If this end does not know it, with a text for the peer.
    pub fn wire(&self) -> Result<Wire, String> {
        let Some(HelloWire { form, .. }) = &self.wire else { return Ok(Wire::Short) };
        if *form == Wire::Sealed.name() {
            return Ok(Wire::Sealed);
        }
        form.parse().map_err(|error: ParseWireError| error.to_string())
    }

    /// Checks that no address was translated between the connecting end and this one, which sees the
    /// control connection with the addresses `ends`, if the form of packets needs that.
    ///
    /// # Errors
    /// If one was, with a text for the peer.
    pub fn check_path(&self, ends: Option<WireEnds>) -> Result<(), String> {
        let told = self.wire.as_ref().and_then(|wire| wire.ends);
        let (Some(there), Some(here)) = (told, ends) else { return Ok(()) };
        let pairs = [(there.here, here.peer), (there.peer, here.here)];
        match pairs.into_iter().find(|(there, here)| !is_same(*there, *here)) {
            Some((there, here)) => Err(format!(
                "address translation on the path (your {there} is {here} here), which wire rdma cannot pass: use wire short"
            )),
            None => Ok(()),
        }
    }
}

/// Whether two ends mean one address: zones are local, and IPv4 may be IPv4-mapped.
fn is_same(a: SocketAddr, b: SocketAddr) -> bool {
    (a.ip().to_canonical(), a.port()) == (b.ip().to_canonical(), b.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_by_its_name() {
        for wire in Wire::ALL {
            assert_eq!(wire.to_string().parse(), Ok(wire));
            assert_eq!(Wire::of_seal(wire.seal()), wire);
        }
        let error = "long".parse::<Wire>().unwrap_err().to_string();
        assert_eq!(error, "unknown wire \"long\": must be short or rdma");
    }

    #[test]
    fn zones_and_mapped_addresses_are_no_translation() {
        for (a, b, same) in [
            ("[fe80::1%2]:5", "[fe80::1%3]:5", true),
            ("[::ffff:10.0.0.1]:5", "10.0.0.1:5", true),
            ("10.0.0.1:5", "10.0.0.1:6", false),
            ("10.0.0.1:5", "10.0.0.2:5", false),
        ] {
            assert_eq!(is_same(a.parse().unwrap(), b.parse().unwrap()), same, "{a} {b}");
        }
    }
}
