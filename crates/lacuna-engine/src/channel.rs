//! One channel of an engine: a datapath with the packets that wait for it.

use crate::books::Books;
use crate::control_queue::ControlQueue;
use crate::icrc::IcrcCheck;
use crate::kinds::seal;
use crate::packetize::{Packetizer, SentHeader};
use core::net::SocketAddr;
use lacuna_burst::Datapath;

/// Bundles that one queue pair may send on a channel per turn, about 250 KiB: small enough that
/// reports are read in time and other queue pairs get their turns. A remainder of less than a
/// bundle goes along. Measured: M-turn-1.
const TURN_BUNDLES: u32 = 4;
/// The same in packets, where the datapath sends each packet in a call of its own.
const TURN_PACKETS: u32 = 64;

/// One channel of an engine.
pub(crate) struct Channel {
    pub(crate) index: u8,
    pub(crate) datapath: Box<dyn Datapath>,
    pub(crate) packetizer: Packetizer,
    pub(crate) control: ControlQueue,
    /// Packets per turn, for the present packet size.
    pub(crate) turn_packets: u32,
    /// Checks the packets of queue pairs that have ICRCs.
    pub(crate) icrc: IcrcCheck,
    /// The datapath accepts no packets for now.
    pub(crate) is_blocked: bool,
    /// Data packets as headers, if the engine does not make bytes
    /// ([`Engine::send_headers`](crate::Engine::send_headers)).
    pub(crate) headers: Option<Vec<SentHeader>>,
}

impl Channel {
    pub(crate) fn new(index: u8, datapath: Box<dyn Datapath>) -> Self {
        Self {
            index,
            icrc: IcrcCheck::new(datapath.local_addr().port()),
            datapath,
            packetizer: Packetizer::new(),
            control: ControlQueue::new(),
            turn_packets: TURN_PACKETS,
            is_blocked: false,
            headers: None,
        }
    }

    /// Packets of this size that leave as one bundle; also sets the length of a turn.
    pub(crate) fn bundle(&mut self, packet_bytes: u32) -> u32 {
        let bundle = self.datapath.capabilities().bundle_packets(packet_bytes as usize) as u32;
        self.turn_packets = if bundle > 1 { TURN_BUNDLES * bundle } else { TURN_PACKETS };
        bundle
    }

    /// Sends a control packet of the queue pair with these books.
    pub(crate) fn send_control(
        &mut self,
        now_ns: u64,
        to: SocketAddr,
        packet: &[u8],
        books: &Books,
    ) {
        if books.seal().is_secure() && books.association().is_none() {
            // Both ends do not have the keys yet, so the peer expects nothing.
            return;
        }
        let number = books.number();
        let packet = self.control.push(now_ns, &mut *self.datapath, to, (number, packet));
        let sealer = books.association().and_then(|keys| keys.sealer(self.index, now_ns));
        if let Some(mut sealer) = sealer {
            seal(&mut sealer, packet);
        }
    }
}

/// The peer's address on a channel, if known.
#[inline]
pub(crate) fn address(addresses: &[Option<SocketAddr>], channel: u8) -> Option<SocketAddr> {
    addresses.get(usize::from(channel)).copied().flatten()
}
