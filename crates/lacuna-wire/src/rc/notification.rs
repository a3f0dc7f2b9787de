//! Congestion notification packets (CNP): the receiver of packets that a router has marked tells their
//! sender so.
//!
//! RoCEv2 annex A17, section 17.9.3: a BTH with opcode 0x81 and sixteen reserved bytes. BECN is set, the
//! sequence number is not looked at.

use crate::bth;
use crate::{PacketError, Qpn};

/// The first byte.
pub const NOTIFICATION_OPCODE: u8 = 0x81;
/// Bytes of a notification without its trailer.
pub const NOTIFICATION_BYTES: usize = bth::BYTES + 16;
const BECN: u8 = 0x40;

/// Writes a notification for the sender of marked packets, without its trailer.
pub fn emit_notification(destination: Qpn, out: &mut [u8; NOTIFICATION_BYTES]) {
    out.fill(0);
    let base = out.first_chunk_mut().expect("a BTH opens it");
    bth::emit(base, NOTIFICATION_OPCODE, false, destination, 0);
    out[4] |= BECN;
}

/// Whether a datagram is a notification for a queue pair, and for which.
///
/// # Errors
/// When it is too short, too long, or another packet.
pub fn parse_notification(packet: &[u8], trailer_bytes: usize) -> Result<Qpn, PacketError> {
    let (needed, found) = (NOTIFICATION_BYTES + trailer_bytes, packet.len());
    let (Some(base), true) = (packet.first_chunk(), found >= needed) else {
        return Err(PacketError::TooShort { needed, found });
    };
    match bth::first(base) == bth::accepted(NOTIFICATION_OPCODE) {
        true if found == needed => Ok(bth::destination(base)),
        true => Err(PacketError::Unaligned { found }),
        false if base[0] != NOTIFICATION_OPCODE => Err(PacketError::Opcode { found: base[0] }),
        false => Err(bth::reason_of_known(base)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_the_sender_of_marked_packets() {
        let mut packet = [0xa5; NOTIFICATION_BYTES];
        emit_notification(Qpn::from_bits(0x12_3456), &mut packet);
        assert_eq!(packet[..12], [0x81, 0, 0xff, 0xff, 0x40, 0x12, 0x34, 0x56, 0, 0, 0, 0]);
        let mut sealed = packet.to_vec();
        sealed.extend([0; 4]);
        assert_eq!(parse_notification(&sealed, 4), Ok(Qpn::from_bits(0x12_3456)));
        assert!(parse_notification(&sealed[..31], 4).is_err());
        sealed[0] = 0x11;
        assert_eq!(parse_notification(&sealed, 4), Err(PacketError::Opcode { found: 0x11 }));
    }
}
