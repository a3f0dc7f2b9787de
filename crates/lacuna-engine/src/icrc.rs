//! Checks the ICRC of received packets: the trailer of queue pairs in the form of RDMA.
//!
//! The trailer covers IP and UDP headers, so it is checked here, where the packet's source and
//! destination are known, and before anything of the packet is read. A datapath that does not tell
//! the destination gets no packet past this.

use core::net::SocketAddr;
use lacuna_burst::ReceivedBatch;
use lacuna_wire::{DataHeader, IcrcFlow, Identification, PacketError};
use std::cell::RefCell;

/// Checks the packets of one channel.
#[derive(Debug)]
pub(crate) struct IcrcCheck {
    /// The channel's own port.
    port: u16,
    /// For the peer of the last packet.
    flow: RefCell<Option<IcrcFlow>>,
}

impl IcrcCheck {
    pub(crate) fn new(port: u16) -> Self {
        Self { port, flow: RefCell::default() }
    }

    /// Checks a packet of `batch`, from which `header` was read.
    ///
    /// # Errors
    /// When its ICRC does not match, or it has no address, as no card's packet.
    #[inline(never)]
    pub(crate) fn check(
        &self,
        batch: &ReceivedBatch<'_>,
        packet: &[u8],
        header: &DataHeader,
    ) -> Result<(), PacketError> {
        if header.address.is_none() {
            return Err(PacketError::Opcode { found: packet[0] });
        }
        self.check_any(batch, packet, Identification::OfBundle)
    }

    /// The same of a packet of any kind.
    ///
    /// # Errors
    /// When its ICRC does not match.
    pub(crate) fn check_any(
        &self,
        batch: &ReceivedBatch<'_>,
        packet: &[u8],
        identification: Identification,
    ) -> Result<(), PacketError> {
        // An address of no packet: nothing matches it.
        let local = batch.local.unwrap_or(match batch.source {
            SocketAddr::V4(_) => [0; 4].into(),
            SocketAddr::V6(_) => [0; 16].into(),
        });
        let (source, destination) = (batch.source, SocketAddr::new(local, self.port));
        let mut flow = self.flow.borrow_mut();
        if !flow.as_ref().is_some_and(|flow| flow.is(source, destination)) {
            *flow = IcrcFlow::new(source, destination);
        }
        match &mut *flow {
            Some(flow) => flow.check_with(packet, identification),
            // No datapath delivers a packet from one family to the other.
            None => Err(PacketError::Opcode { found: packet[0] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_wire::{ICRC_BYTES, Qpn, Seal};

    #[test]
    fn a_packet_passes_only_where_it_was_sent_to_and_with_an_address() {
        let (source, there): (SocketAddr, SocketAddr) =
            ("10.0.0.1:5".parse().unwrap(), "10.0.0.2:6".parse().unwrap());
        let mut header = DataHeader {
            dest: Qpn::new(1, 0, 0),
            psn: 1,
            ends_message: false,
            carries_immediate: false,
            address: Some(64),
            rkey: 7,
            length: 8,
            behind: 0,
            immediate: 9,
        };
        let mut packet = vec![0; Seal::Icrc.packet_bytes(&header)];
        Seal::Icrc.emit_packet(&header, &mut packet, &[3; 8]);
        let end = packet.len() - ICRC_BYTES;
        let mut flow = IcrcFlow::new(source, there).unwrap();
        let inner = *packet.last_chunk().unwrap();
        let icrc = flow.seal(inner, packet.len(), 2);
        packet[end..].copy_from_slice(&icrc);
        let check = IcrcCheck::new(6);
        let mut bytes = packet.clone();
        let mut batch = ReceivedBatch {
            source,
            local: Some(there.ip()),
            segment_bytes: bytes.len(),
            bytes: &mut bytes,
            congestion_experienced: false,
            waited_ns: 0,
        };
        assert_eq!(check.check(&batch, &packet, &header), Ok(()));
        for other in [None, Some("10.0.0.3".parse().unwrap())] {
            batch.local = other;
            assert!(check.check(&batch, &packet, &header).is_err());
        }
        batch.local = Some(there.ip());
        assert!(IcrcCheck::new(7).check(&batch, &packet, &header).is_err());
        header.address = None;
        assert!(check.check(&batch, &packet, &header).is_err());
    }
}
