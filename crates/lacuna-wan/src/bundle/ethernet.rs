//! The Ethernet header of a TAP device's frame: destination, source, type (IEEE 802.3, clause 3.2).
//!
//! Tags (802.1Q) are not looked into: a tagged frame is one of some protocol, which is delivered as any other.

/// Length of the header.
pub const HEADER_BYTES: usize = 14;

/// An address of a network card.
pub type Mac = [u8; 6];

/// The address of all.
pub const BROADCAST: Mac = [0xff; 6];

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whom it is for.
    pub destination: Mac,
    /// Who sent it.
    pub source: Mac,
    /// What it carries.
    pub ether_type: u16,
}

impl Header {
    /// Reads the header of a frame, behind the [`VNET_BYTES`](super::VNET_BYTES); `None` if it is too short.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (destination, rest) = frame.split_first_chunk()?;
        let (source, rest) = rest.split_first_chunk()?;
        let (ether_type, _) = rest.split_first_chunk()?;
        Some(Self {
            destination: *destination,
            source: *source,
            ether_type: u16::from_be_bytes(*ether_type),
        })
    }

    /// Whether an IP packet follows.
    #[must_use]
    pub fn has_ip(&self) -> bool {
        matches!(self.ether_type, TYPE_IPV4 | TYPE_IPV6)
    }

    /// Whether it is for a group of hosts, or for all: the first bit on the wire.
    #[must_use]
    pub fn is_for_group(&self) -> bool {
        is_group(&self.destination)
    }
}

/// Whether an address is of a group.
#[must_use]
pub fn is_group(mac: &Mac) -> bool {
    mac[0] & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_read_and_short_frames_have_none() {
        let mut frame = vec![1, 2, 3, 4, 5, 6, 0x10, 12, 13, 14, 15, 16, 0x86, 0xdd, 9];
        let header = Header::parse(&frame).unwrap();
        assert_eq!(header.destination, [1, 2, 3, 4, 5, 6]);
        assert_eq!(header.source, [0x10, 12, 13, 14, 15, 16]);
        assert!(header.has_ip() && header.is_for_group() && !is_group(&header.source));
        frame.truncate(13);
        assert_eq!(Header::parse(&frame), None);
        assert!(is_group(&BROADCAST));
    }
}
