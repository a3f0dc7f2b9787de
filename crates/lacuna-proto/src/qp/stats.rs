//! Counters of a queue pair.

use super::{EndStats, QueuePair, SendStats};
use crate::modes::auto::AutoStats;
use lacuna_path::rtt::RttEstimator;
use lacuna_place::discard::Discard;

/// Counters of one channel's receiving side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Data packets placed, and parity packets received.
    pub packets: u64,
    /// Payload bytes placed.
    pub bytes: u64,
    /// Chunks completed.
    pub chunks: u64,
    /// Of the packets, parity packets.
    pub parity_packets: u64,
    /// Payload bytes of the parity packets.
    pub parity_bytes: u64,
    /// Packets that never came and were computed from parity.
    pub repaired_packets: u64,
    /// Of the chunks, those completed with parity.
    pub repaired_chunks: u64,
    /// Time spent on decoding, as far as the owner measures it.
    pub decode_ns: u64,
    /// Packets received more than once.
    pub duplicates: u64,
    /// Packets thrown away, by [`Discard::index`].
    pub discarded: [u64; Discard::ALL.len()],
    /// Packets with a congestion mark.
    pub marked: u64,
    /// Sequence numbers that the peer has used, as far as known, received or not.
    pub span: u64,
}

/// Counters and state of a queue pair.
#[derive(Debug, Clone, Default)]
pub struct QpStats {
    /// Sending side.
    pub send: SendStats,
    /// Receiving side, per channel.
    pub channels: Vec<ChannelStats>,
    /// Messages received complete.
    pub messages_received: u64,
    /// How receives ended.
    pub ends: EndStats,
    /// Round-trip time.
    pub rtt: RttEstimator,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Congestion window.
    pub window_bytes: u64,
    /// Pacing rate of the controller, if it paces.
    pub rate_bits_per_s: Option<u64>,
    /// Runs whose timeout expired: nothing was heard of them, or the mode waits
    /// for the timeout before it repairs.
    pub timeouts: u64,
    /// Repairs that were not needed: packets that the peer had already, but not more than were sent
    /// as repairs. Copies made by the network count too.
    pub spurious_repairs: u64,
    /// Choices of the mode `auto`, if this is the mode.
    pub auto: Option<AutoStats>,
    /// Payload bytes of a full packet on the wire: less than agreed on a path that has become
    /// narrower.
    pub payload_bytes_max: u32,
}

impl QpStats {
    /// Packets that the peer sent and that never came.
    pub fn lost_packets(&self) -> u64 {
        let lost = |c: &ChannelStats| {
            let late = c.discarded[Discard::Late.index()];
            c.span.saturating_sub(c.packets + c.duplicates + late)
        };
        self.channels.iter().map(lost).sum()
    }
}

impl QueuePair {
    /// Updates `span` to what the peer is known to have sent: up to the last packet that came, or
    /// as far as a flush said, so that a lost tail counts too.
    pub(super) fn update_span(&mut self, channel: u8) {
        let first_psn = self.peer.map_or(0, |peer| u64::from(peer.first_psn));
        let sent_psn = self.arrivals.sent_psn(channel);
        if let Some(stats) = self.channels.get_mut(usize::from(channel)) {
            stats.span = sent_psn.saturating_sub(first_psn);
        }
    }

    /// Current values.
    pub fn stats(&self) -> QpStats {
        QpStats {
            send: self.send.stats,
            channels: self.channels.to_vec(),
            messages_received: self.recv.messages,
            ends: self.recv.ends,
            rtt: *self.path.rtt(),
            in_flight_bytes: self.path.in_flight_bytes(),
            window_bytes: self.path.limits().window_bytes,
            rate_bits_per_s: self.path.limits().rate_bits_per_s,
            timeouts: self.timeouts,
            spurious_repairs: self
                .send
                .stats
                .retransmitted_packets
                .min(self.path.duplicate_packets()),
            auto: self.send.auto_stats(&self.path),
            payload_bytes_max: self.send.payload_bytes_max(),
        }
    }
}
