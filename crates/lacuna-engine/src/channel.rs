//! One channel of an engine: a datapath, and what waits to leave by it.

use crate::control_queue::ControlQueue;
use crate::packetize::{Packetizer, SentHeader};
use core::net::SocketAddr;
use lacuna_burst::Datapath;

/// What one queue pair may send on a channel per turn, in pieces that leave in
/// one system call: some 250 KiB. Small enough that acknowledgements are read
/// in time and queue pairs take turns. A rest of less than a piece goes along: as a
/// turn of its own it costs two more visits to a queue pair that is in no cache by
/// then and another report, 3 % of a message of 256 KiB with a thousand queue pairs.
/// (That it waits for those of others, to fill a piece with them, is no gain: the
/// message then ends a turn later all the same.)
const TURN_BUNDLES: u32 = 4;
/// The same where each packet is a piece of its own.
const TURN_PACKETS: u32 = 64;

/// See the module's text.
pub(crate) struct Channel {
    pub(crate) index: u8,
    pub(crate) datapath: Box<dyn Datapath>,
    pub(crate) packetizer: Packetizer,
    pub(crate) control: ControlQueue,
    /// Packets that are worth a burst.
    pub(crate) turn_packets: u32,
    /// The way out is full.
    pub(crate) is_blocked: bool,
    /// Data packets leave as headers, and wait here to be taken.
    pub(crate) headers: Option<Vec<SentHeader>>,
}

impl Channel {
    pub(crate) fn new(index: u8, datapath: Box<dyn Datapath>) -> Self {
        Self {
            index,
            datapath,
            packetizer: Packetizer::new(),
            control: ControlQueue::new(),
            turn_packets: TURN_PACKETS,
            is_blocked: false,
            headers: None,
        }
    }

    /// Packets of so many bytes that leave in one piece; notes what a turn of them is.
    pub(crate) fn bundle(&mut self, packet_bytes: u32) -> u32 {
        let bundle = self.datapath.capabilities().bundle_packets(packet_bytes as usize) as u32;
        self.turn_packets = if bundle > 1 { TURN_BUNDLES * bundle } else { TURN_PACKETS };
        bundle
    }

    pub(crate) fn send_control(&mut self, now_ns: u64, to: SocketAddr, packet: &[u8]) {
        self.control.push(now_ns, &mut *self.datapath, to, packet);
    }
}

/// Where a channel's packets go, once that is known.
#[inline]
pub(crate) fn address(addresses: &[Option<SocketAddr>], channel: u8) -> Option<SocketAddr> {
    addresses.get(usize::from(channel)).copied().flatten()
}
