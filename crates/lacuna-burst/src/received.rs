//! A batch of received packets: packets from one source, one after the other in one buffer.
//!
//! A kernel with receive coalescing (GRO) delivers packets in this form, and a sender with segmentation
//! offload (GSO) has sent them in it. A packet that is received alone is a batch of one.

use core::net::{IpAddr, SocketAddr};

/// Packets from one source, adjacent in one buffer. A batch holds at least one packet; an empty packet
/// is always alone in its batch.
#[derive(Debug)]
pub struct ReceivedBatch<'a> {
    /// The sender. An IPv4 sender appears with its IPv4 address, also at an IPv6 socket.
    pub source: SocketAddr,
    /// The packets' destination, an address of this host; `None` where the datapath does not know it, or
    /// was not asked for it (`UdpConfig::tells_local`, [`Datapath::tell_local`](crate::Datapath::tell_local)).
    pub local: Option<IpAddr>,
    /// All packets, in the order of their arrival.
    pub bytes: &'a mut [u8],
    /// Every packet has this size except the last, which may be shorter.
    pub segment_bytes: usize,
    /// Whether a router on the path marked the batch "congestion experienced" (RFC 3168).
    pub congestion_experienced: bool,
    /// How long the batch waited at this host, in nanoseconds: the difference of two readings of the
    /// system's clock (`CLOCK_REALTIME`), the kernel's at the arrival and the datapath's when it delivers
    /// the batch. 0 if the datapath does not know it
    /// ([`Capabilities::timestamps`](crate::Capabilities::timestamps)). Round-trip samples subtract it,
    /// so that they do not include the receiver's sleep.
    pub waited_ns: u64,
}

impl ReceivedBatch<'_> {
    /// The packets, one by one.
    pub fn packets(&self) -> Packets<'_> {
        Packets { rest: &*self.bytes, segment_bytes: self.segment_bytes, packets: self.len() }
    }

    /// The packets, one by one, mutable.
    pub fn packets_mut(&mut self) -> PacketsMut<'_> {
        let (segment_bytes, packets) = (self.segment_bytes, self.len());
        PacketsMut { rest: &mut *self.bytes, segment_bytes, packets }
    }

    /// How many packets there are; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        // The last packet can be empty only if it is the only one.
        match self.segment_bytes {
            0 => 1,
            segment_bytes if self.bytes.len() <= segment_bytes => 1,
            segment_bytes => self.bytes.len().div_ceil(segment_bytes),
        }
    }
}

/// The packets of a batch.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    rest: &'a [u8],
    segment_bytes: usize,
    packets: usize,
}

impl<'a> Iterator for Packets<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.packets = self.packets.checked_sub(1)?;
        let last = self.packets == 0;
        let at = if last { self.rest.len() } else { self.segment_bytes };
        let (packet, rest) = self.rest.split_at(at);
        self.rest = rest;
        Some(packet)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.packets, Some(self.packets))
    }
}

impl ExactSizeIterator for Packets<'_> {}

/// The packets of a batch, mutable.
#[derive(Debug)]
pub struct PacketsMut<'a> {
    rest: &'a mut [u8],
    segment_bytes: usize,
    packets: usize,
}

impl<'a> Iterator for PacketsMut<'a> {
    type Item = &'a mut [u8];

    fn next(&mut self) -> Option<&'a mut [u8]> {
        self.packets = self.packets.checked_sub(1)?;
        let last = self.packets == 0;
        let at = if last { self.rest.len() } else { self.segment_bytes };
        self.rest.split_off_mut(..at)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.packets, Some(self.packets))
    }
}

impl ExactSizeIterator for PacketsMut<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(bytes: usize, segment_bytes: usize) -> Vec<usize> {
        let mut bytes = vec![0; bytes];
        let mut batch = ReceivedBatch {
            source: SocketAddr::from(([127, 0, 0, 1], 1)),
            local: None,
            bytes: &mut bytes,
            segment_bytes,
            congestion_experienced: false,
            waited_ns: 0,
        };
        let sizes: Vec<usize> = batch.packets().map(<[u8]>::len).collect();
        assert_eq!(sizes.len(), batch.len());
        assert_eq!(batch.packets().len(), batch.len());
        for (number, packet) in batch.packets_mut().enumerate() {
            packet.fill(number as u8 + 1);
        }
        for ((number, packet), size) in batch.packets().enumerate().zip(&sizes) {
            assert_eq!(packet, vec![number as u8 + 1; *size]);
        }
        sizes
    }

    #[test]
    fn only_the_last_packet_may_be_shorter() {
        assert_eq!(sizes(10, 4), [4, 4, 2]);
        assert_eq!(sizes(8, 4), [4, 4]);
        assert_eq!(sizes(3, 4), [3]);
        assert_eq!(sizes(1, 1), [1]);
    }

    #[test]
    fn an_empty_packet_is_a_packet() {
        assert_eq!(sizes(0, 0), [0]);
        assert_eq!(sizes(0, 4), [0]);
        assert_eq!(sizes(5, 0), [5]);
    }
}
