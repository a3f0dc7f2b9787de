//! The header that a TUN device with `IFF_VNET_HDR` puts before each packet: `virtio_net_hdr` of
//! `linux/virtio_net.h` (virtio 1.2, section 5.1.6), in the machine's byte order.
//!
//! It tells whether a bundle follows, which is still to be segmented, and whether a checksum is still
//! to be completed.

/// Length of the header, without the field for merged buffers, which TUN devices omit.
pub const VNET_BYTES: usize = 10;

/// The checksum field holds the sum of the pseudo-header only.
pub(super) const NEEDS_CSUM: u8 = 1;

/// A bundle's first packet carries CWR (RFC 3168), the others do not.
pub(super) const GSO_ECN: u8 = 0x80;
pub(super) const GSO_NONE: u8 = 0;
pub(super) const GSO_TCPV4: u8 = 1;
pub(super) const GSO_TCPV6: u8 = 4;
pub(super) const GSO_UDP_L4: u8 = 5;

/// A `virtio_net_hdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Vnet {
    pub(super) flags: u8,
    /// One of the `GSO_` kinds, perhaps with [`GSO_ECN`].
    pub(super) gso_type: u8,
    /// Length of the headers of a bundle; a hint, not relied on here.
    pub(super) hdr_len: u16,
    /// Payload of each packet of a bundle but the last.
    pub(super) gso_size: u16,
    /// Offset of the transport header, if a checksum is to be completed, …
    pub(super) csum_start: u16,
    /// … and offset of the checksum in it.
    pub(super) csum_offset: u16,
}

impl Vnet {
    pub(super) fn parse(bytes: &[u8; VNET_BYTES]) -> Self {
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: field(2),
            gso_size: field(4),
            csum_start: field(6),
            csum_offset: field(8),
        }
    }

    pub(super) fn emit(&self, bytes: &mut [u8; VNET_BYTES]) {
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let fields = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset];
        for (place, field) in bytes[2..].chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
    }

    pub(super) fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_the_header_is_read_and_written() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let mut again = [0xa5; VNET_BYTES];
        Vnet::parse(&bytes).emit(&mut again);
        assert_eq!(again, bytes);
    }
}
