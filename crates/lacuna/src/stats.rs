//! Statistics of a connection, for people and as JSON.

use crate::context::ContextStats;
use lacuna_place::discard::Discard;
use lacuna_proto::modes::auto;
use lacuna_proto::qp::QpStats;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counters of a connection since it was made.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ConnectionStats {
    /// Seconds since it was made.
    pub elapsed_s: f64,
    /// Sending side.
    pub sent: SentStats,
    /// Receiving side, per channel.
    pub channels: Vec<ChannelStats>,
    /// Messages received complete.
    pub messages_received: u64,
    /// Packets that the peer sent and that never came.
    pub lost_packets: u64,
    /// Round-trip time.
    pub rtt: RttStats,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Window of the congestion controller; `None` when it only paces.
    pub window_bytes: Option<u64>,
    /// Rate of the congestion controller, if it paces.
    pub rate_bits_per_s: Option<u64>,
    /// Payload bytes of a full packet on the wire: less than
    /// [`Chosen::mtu_bytes`](crate::Chosen::mtu_bytes) where the path has become
    /// narrower, and packets go in pieces.
    pub payload_bytes_max: u32,
    /// What the mode `auto` knows and chooses, if it is that.
    pub auto: Option<AutoStats>,
    /// Packets that reached no queue pair of this context.
    pub context: ContextStats,
}

/// What the mode `auto` knows of the path, and what it chose by that.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct AutoStats {
    /// Share of packets that the path loses, as it is estimated now.
    pub loss: f64,
    /// Mean packets lost in a row.
    pub burst_packets: f64,
    /// Packets that the estimates are worth, what is believed beforehand included.
    pub evidence_packets: f64,
    /// Time after which a loss shows.
    pub rtt_us: f64,
    /// Wire bits per second that the path carries, as it is estimated now.
    pub rate_bits_per_s: u64,
    /// Parity per 32 chunks that the end of the newest message got.
    pub parity: u8,
    /// How often each of its repairs went out from its end on.
    pub repair_copies: u8,
    /// Messages, counted by slot.
    pub messages: u64,
    /// Of those, the ones that got parity.
    pub coded_messages: u64,
    /// How often the choice was another than the one before.
    pub changes: u64,
    /// The newest choice and its reason, in a sentence.
    pub why: String,
}

/// Sending side.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct SentStats {
    /// Data packets put on the wire.
    pub packets: u64,
    /// Payload bytes put on the wire, repairs included.
    pub bytes: u64,
    /// Sends completed.
    pub messages: u64,
    /// Packets sent as repairs.
    pub retransmitted_packets: u64,
    /// Chunks queued to be sent again; what is acknowledged before it leaves is not sent.
    pub retransmitted_chunks: u64,
    /// Repairs as a share of all packets.
    pub retransmission_share: f64,
    /// Of the packets, those of parity.
    pub parity_packets: u64,
    /// Payload bytes of those.
    pub parity_bytes: u64,
    /// Seconds spent on computing it.
    pub encode_s: f64,
    /// Submessages of finished messages whose parity did not suffice.
    pub fallbacks: u64,
    /// Runs whose timeout expired: nothing was heard of them, or the mode waits
    /// for the timeout before it repairs.
    pub timeouts: u64,
}

/// Receiving side of one channel.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ChannelStats {
    /// Data packets placed, and parity packets that came.
    pub packets: u64,
    /// Payload bytes placed.
    pub bytes: u64,
    /// Chunks completed.
    pub chunks: u64,
    /// Of the packets, those of parity.
    pub parity_packets: u64,
    /// Payload bytes of those.
    pub parity_bytes: u64,
    /// Packets that never came and were computed from parity.
    pub repaired_packets: u64,
    /// Of the chunks, those that were completed by that.
    pub repaired_chunks: u64,
    /// Seconds that it took.
    pub decode_s: f64,
    /// Packets that were here already.
    pub duplicates: u64,
    /// Packets thrown away, by reason; only reasons that occurred.
    pub discarded: BTreeMap<&'static str, u64>,
    /// Packets with a congestion mark.
    pub marked: u64,
}

/// Round-trip time in microseconds; `None` before the first sample.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct RttStats {
    /// Smoothed.
    pub smoothed_us: Option<f64>,
    /// Variance.
    pub variance_us: f64,
    /// Smallest of the last seconds.
    pub min_us: Option<f64>,
}

impl ConnectionStats {
    pub(crate) fn new(stats: &QpStats, context: ContextStats, elapsed: Duration) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let send = &stats.send;
        Self {
            elapsed_s: elapsed.as_secs_f64(),
            sent: SentStats {
                packets: send.packets,
                bytes: send.bytes,
                messages: send.messages,
                retransmitted_packets: send.retransmitted_packets,
                retransmitted_chunks: send.retransmitted_chunks,
                retransmission_share: send.retransmitted_packets as f64
                    / send.packets.max(1) as f64,
                parity_packets: send.parity_packets,
                parity_bytes: send.parity_bytes,
                encode_s: send.encode_ns as f64 / 1e9,
                fallbacks: send.fallbacks,
                timeouts: stats.timeouts,
            },
            channels: stats.channels.iter().map(ChannelStats::new).collect(),
            messages_received: stats.messages_received,
            lost_packets: stats.lost_packets(),
            rtt: RttStats {
                smoothed_us: stats.rtt.smoothed_ns().map(us),
                variance_us: us(stats.rtt.variance_ns()),
                min_us: stats.rtt.min_ns().map(us),
            },
            in_flight_bytes: stats.in_flight_bytes,
            window_bytes: (stats.window_bytes != u64::MAX).then_some(stats.window_bytes),
            rate_bits_per_s: stats.rate_bits_per_s,
            payload_bytes_max: stats.payload_bytes_max,
            auto: stats.auto.as_ref().map(AutoStats::new),
            context,
        }
    }

    /// The statistics as one JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names")
    }
}

impl AutoStats {
    fn new(stats: &auto::AutoStats) -> Self {
        let auto::AutoStats { estimate, last, .. } = stats;
        let choice = last.map(|last| last.choice).unwrap_or_default();
        Self {
            loss: estimate.loss(),
            burst_packets: estimate.burst_packets,
            evidence_packets: estimate.evidence_packets,
            rtt_us: estimate.rtt_ns as f64 / 1e3,
            rate_bits_per_s: estimate.rate_bits_per_s,
            parity: choice.parity,
            repair_copies: choice.repair_copies,
            messages: stats.messages,
            coded_messages: stats.coded_messages,
            changes: stats.changes,
            why: last.map_or_else(|| "nothing was sent yet".to_owned(), |last| last.to_string()),
        }
    }
}

impl ChannelStats {
    fn new(stats: &lacuna_proto::qp::ChannelStats) -> Self {
        let counted = |reason: &Discard| {
            let count = stats.discarded[reason.index()];
            (count > 0).then_some((reason.name(), count))
        };
        Self {
            packets: stats.packets,
            bytes: stats.bytes,
            chunks: stats.chunks,
            parity_packets: stats.parity_packets,
            parity_bytes: stats.parity_bytes,
            repaired_packets: stats.repaired_packets,
            repaired_chunks: stats.repaired_chunks,
            decode_s: stats.decode_ns as f64 / 1e9,
            duplicates: stats.duplicates,
            discarded: Discard::ALL.iter().filter_map(counted).collect(),
            marked: stats.marked,
        }
    }
}
