//! Control packets that came before the queue pair was connected: the peer
//! knows this end before this end knows the peer, and UDP may overtake TCP.

use lacuna_proto::probe::Prober;
use lacuna_proto::qp::QueuePair;

/// Packets that are kept: a few for each of the most channels there can be.
/// Whoever has the key may send them, so there is a bound.
const PACKETS_MAX: usize = 4 * lacuna_wire::CHANNELS_MAX;

/// See the module's text.
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

    /// Shows all of them to the prober.
    pub(crate) fn show(&self, prober: &mut Prober) {
        for packet in &self.0 {
            prober.on_control(packet.came_ns, packet.channel, &packet.body, packet.packet_bytes);
        }
    }

    /// Hands all of them to the queue pair, which is connected.
    pub(crate) fn hand_to(self, qp: &mut QueuePair) {
        for packet in self.0 {
            let Packet { came_ns, channel, body, packet_bytes } = packet;
            // There may be fewer channels than this end has.
            if channel >= qp.config().geometry.channels() {
                continue;
            }
            if let Err(error) = qp.on_control(came_ns, channel, &body, packet_bytes) {
                tracing::debug!(%error, "early control packet dropped");
            }
        }
    }
}
