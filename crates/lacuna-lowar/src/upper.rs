//! What is above a decoder: the receiver of the reliable connection.

/// Why a packet is handed up now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum How {
    /// As it came.
    Passed,
    /// It came earlier and waited behind a gap.
    Held,
    /// It was lost, and computed from others.
    Recovered,
}

/// Takes what a decoder hands up.
pub trait Upper {
    /// A packet, from the BTH to the pad.
    fn take(&mut self, packet: &[u8], how: How);

    /// Offers a data packet that is behind a gap. A connection that knows where its payload belongs may put
    /// it there at once and answer true: the packet then takes no memory of the shim, and
    /// [`placed`](Self::placed) is called in its turn. Otherwise a copy waits.
    fn place_ahead(&mut self, packet: &[u8]) -> bool {
        let _ = packet;
        false
    }

    /// It is the turn of a packet whose payload of `payload_bytes` was placed ahead; its headers, BTH first.
    fn placed(&mut self, headers: &[u8], payload_bytes: usize) {
        let _ = (headers, payload_bytes);
    }
}
