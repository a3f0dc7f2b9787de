//! Statistics of a connection, for people and as JSON.

use crate::context::ContextStats;
use lacuna_place::discard::Discard;
use lacuna_place::reason::Reason;
use lacuna_proto::modes::auto;
use lacuna_proto::qp::{EndStats, QpStats};
use std::collections::BTreeMap;
use std::time::Duration;

/// Counters of a connection since it was made.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ConnectionStats {
    /// Time since then, in seconds.
    pub elapsed_s: f64,
    /// Sending side.
    pub sent: SentStats,
    /// Receiving side, per channel.
    pub channels: Vec<ChannelStats>,
    /// Messages received complete.
    pub messages_received: u64,
    /// How receives ended.
    pub ended: EndedStats,
    /// Packets that the peer sent and that did not arrive.
    pub lost_packets: u64,
    /// Round-trip time.
    pub rtt: RttStats,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Window of the congestion controller; `None` if it has none.
    pub window_bytes: Option<u64>,
    /// Pacing rate of the congestion controller, if it has one.
    pub rate_bits_per_s: Option<u64>,
    /// Payload bytes of a full packet on the wire: less than
    /// [`Chosen::mtu_bytes`](crate::Chosen::mtu_bytes) if the path has become narrower and packets
    /// are cut into pieces.
    pub payload_bytes_max: u32,
    /// Estimates and choice of the mode `auto`, if it is used.
    pub auto: Option<AutoStats>,
    /// Packets that reached no queue pair of this context.
    pub context: ContextStats,
}

/// How receives ended.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct EndedStats {
    /// Receives, by [`Reason`]; only reasons that occurred.
    pub receives: BTreeMap<&'static str, u64>,
    /// Bytes that were missing. The length of a message whose end did not come is taken to be that of
    /// its buffer.
    pub missing_bytes: u64,
    /// Packets that came while a receive waited for what the path had reordered: without that grace
    /// they would be missing.
    pub graced_packets: u64,
    /// How often message numbers came round within four round trips, or sooner than packets are late.
    /// An old packet could then land in a new message: use more slots or generations.
    pub quick_wraps: u64,
}

/// What the mode `auto` knows of the path, and what it chose.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct AutoStats {
    /// Share of packets that the path loses, by the present estimate.
    pub loss: f64,
    /// Mean length of a loss burst, in packets.
    pub burst_packets: f64,
    /// Packets that the estimates are based on; prior beliefs count as packets.
    pub evidence_packets: f64,
    /// Time until the sender notices a loss, in microseconds.
    pub rtt_us: f64,
    /// Wire bits per second that the path carries, by the present estimate.
    pub rate_bits_per_s: u64,
    /// Parity chunks per 32 data chunks at the end of the newest message.
    pub parity: u8,
    /// Copies of each repair at the end of the newest message.
    pub repair_copies: u8,
    /// Messages, counted by slot.
    pub messages: u64,
    /// Messages with parity.
    pub coded_messages: u64,
    /// How often the choice has changed.
    pub changes: u64,
    /// The newest choice and its reason, as a sentence.
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
    /// Chunks queued for retransmission; those acknowledged before they leave are not sent.
    pub retransmitted_chunks: u64,
    /// Repairs as a share of all packets.
    pub retransmission_share: f64,
    /// Parity packets among `packets`.
    pub parity_packets: u64,
    /// Payload bytes of parity packets.
    pub parity_bytes: u64,
    /// Seconds spent computing parity.
    pub encode_s: f64,
    /// Submessages of finished messages whose parity was not enough.
    pub fallbacks: u64,
    /// Runs that expired: no report covered them in time, or the mode repairs only after the
    /// timeout.
    pub timeouts: u64,
}

/// Receiving side of one channel.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ChannelStats {
    /// Data packets placed, and parity packets received.
    pub packets: u64,
    /// Payload bytes placed.
    pub bytes: u64,
    /// Chunks completed.
    pub chunks: u64,
    /// Parity packets among `packets`.
    pub parity_packets: u64,
    /// Payload bytes of parity packets.
    pub parity_bytes: u64,
    /// Data packets that were lost and computed from parity.
    pub repaired_packets: u64,
    /// Chunks completed by such packets.
    pub repaired_chunks: u64,
    /// Seconds spent computing them.
    pub decode_s: f64,
    /// Packets that had arrived before.
    pub duplicates: u64,
    /// Packets discarded, by reason; only reasons that occurred.
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
    /// Smallest of the last seconds (windowed minimum).
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
            ended: EndedStats::new(&stats.ends),
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

impl EndedStats {
    fn new(stats: &EndStats) -> Self {
        let counted = |reason: &Reason| {
            let count = stats.receives[reason.index()];
            (count > 0).then_some((reason.name(), count))
        };
        Self {
            receives: Reason::ALL.iter().filter_map(counted).collect(),
            missing_bytes: stats.missing_bytes,
            graced_packets: stats.graced_packets,
            quick_wraps: stats.quick_wraps,
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
