//! Control packets that arrive before the queue pair is connected: the peer knows this end first,
//! and UDP may overtake TCP.

use lacuna_proto::probe::Prober;
use lacuna_proto::qp::QueuePair;

/// Packets that are kept, at most: four per channel. Bounded, because anybody with the key may send
/// them.
const PACKETS_MAX: usize = 4 * lacuna_wire::CHANNELS_MAX;

/// The control packets kept for a queue pair.
#[derive(Debug, Default)]
pub struct Early(Vec<Packet>);

#[derive(Debug)]
struct Packet {
    came_ns: u64,
    channel: u8,
    body: Vec<u8>,
    packet_bytes: usize,
}

impl Early {
    /// Keeps a packet's body, if there is room.
    pub(crate) fn keep(&mut self, came_ns: u64, channel: u8, body: &[u8], packet_bytes: usize) {
        if self.0.len() < PACKETS_MAX {
            self.0.push(Packet { came_ns, channel, body: body.to_vec(), packet_bytes });
        }
    }

    /// Gives copies of all packets to the prober.
    pub(crate) fn copy_to(&self, prober: &mut Prober) {
        for packet in &self.0 {
            prober.on_control(packet.came_ns, packet.channel, &packet.body, packet.packet_bytes);
        }
    }

    /// Gives all packets to the connected queue pair.
    pub(crate) fn move_to(self, qp: &mut QueuePair) {
        for packet in self.0 {
            let Packet { came_ns, channel, body, packet_bytes } = packet;
            // Both ends together may have fewer channels than this end.
            if channel >= qp.config().geometry.channels() {
                continue;
            }
            if let Err(error) = qp.on_control(came_ns, channel, &body, packet_bytes) {
                tracing::debug!(%error, "early control packet dropped");
            }
        }
    }
}
