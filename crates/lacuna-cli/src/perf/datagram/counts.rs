//! What came of the messages: as the server tells it, and as it is reported.

use super::super::protocol::{Counters, Done};
use super::super::sending::{Measured, Tally};
use super::{ClientArgs, Receiver, group};
use lacuna::datagram::Stats;
use serde::{Deserialize, Serialize};

/// What a server's queue pair has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::perf) struct Placed {
    /// Bytes that the maps of messages show; of a message that was not delivered, none.
    pub(in crate::perf) bytes: u64,
    pub(in crate::perf) whole: u64,
    pub(in crate::perf) partial: u64,
    /// Of those that came to nothing, how many the numbers of later ones have told of.
    pub(in crate::perf) noticed: u64,
    /// Sources of these.
    pub(in crate::perf) sources: u64,
    /// Packets that came, also those that were dropped.
    pub(in crate::perf) packets: u64,
    /// Packets that this end has sent.
    pub(in crate::perf) sent_packets: u64,
    /// Packets of messages that were over.
    pub(in crate::perf) late_packets: u64,
    pub(in crate::perf) duplicate_packets: u64,
    /// Packets for which no receive was posted.
    pub(in crate::perf) no_buffer_packets: u64,
    /// Packets that were refused for another reason: a key, its range, too many messages open.
    pub(in crate::perf) refused_packets: u64,
    /// Messages that had to go for others.
    pub(in crate::perf) evicted: u64,
}

impl Placed {
    /// With what a queue pair has counted of packets.
    pub(super) fn with(self, stats: &Stats) -> Self {
        let discards = stats.discards;
        let refused = discards.inconsistent
            + discards.key
            + discards.rights
            + discards.bounds
            + discards.overlap
            + discards.busy;
        let dropped = discards.late + discards.duplicate + discards.no_buffer + refused;
        Self {
            noticed: stats.messages_missed,
            packets: stats.packets_taken + dropped,
            sent_packets: stats.packets_sent,
            late_packets: discards.late,
            duplicate_packets: discards.duplicate,
            no_buffer_packets: discards.no_buffer,
            refused_packets: refused,
            evicted: stats.messages_evicted,
            ..self
        }
    }
}

/// The part of a report that only datagrams have.
#[derive(Debug, Clone, Default, Serialize)]
pub(in crate::perf) struct Counted {
    /// Queue pairs of the client.
    pub(in crate::perf) peers: u16,
    /// Where messages went, if not to each server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::perf) group: Option<String>,
    /// Whether what servers missed was sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::perf) group_repairs: Option<bool>,
    /// What came to each server of the group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::perf) receivers: Vec<Receiver>,
    /// Share of the bytes of all messages that the target's maps show.
    pub(in crate::perf) placed_fraction: Option<f64>,
    pub(in crate::perf) messages_whole: Option<u64>,
    pub(in crate::perf) messages_partial: Option<u64>,
    /// Messages of which nothing was delivered.
    pub(in crate::perf) messages_missed: Option<u64>,
    /// Of these, those that the numbers of later ones have told the receiver of.
    pub(in crate::perf) missed_noticed: Option<u64>,
    pub(in crate::perf) late_packets: Option<u64>,
    pub(in crate::perf) no_buffer_packets: Option<u64>,
    pub(in crate::perf) refused_by_peer_packets: Option<u64>,
    pub(in crate::perf) messages_evicted: Option<u64>,
    /// The client's own, of READs.
    #[serde(skip)]
    received: Placed,
}

impl Counted {
    /// What the client knows of its queue pairs.
    pub(super) fn of_client(peers: u16, stats: &Stats) -> Self {
        Self { peers, received: Placed::default().with(stats), ..Self::default() }
    }

    /// With the group that the messages went to, if they did.
    pub(super) fn with_group(self, args: &ClientArgs) -> Self {
        let group_repairs = args.group.map(|_| !args.no_group_repair);
        Self { group: args.group.map(group::name), group_repairs, ..self }
    }

    /// With what is known of the messages in the end: those that the client has counted if it has read, else
    /// those that the server has.
    pub(in crate::perf) fn with(
        self,
        done: &Done,
        size_bytes: u64,
        tally: &Tally,
        (counters, is_read): (Option<&Counters>, bool),
    ) -> Self {
        let told = counters.and_then(|counters| counters.datagrams);
        let messages = counters.map_or(done.messages, |counters| counters.messages);
        let all_bytes = messages.saturating_mul(size_bytes);
        let placed = match is_read {
            true => {
                let whole = tally.ended.get("whole").copied().unwrap_or(0);
                let bytes = all_bytes.saturating_sub(tally.lost_bytes.unwrap_or(0));
                let partial = messages.saturating_sub(whole + tally.missed);
                Some(Placed { bytes, whole, partial, ..self.received })
            }
            false => told,
        };
        let Some(placed) = placed else { return self };
        let known = placed.whole + placed.partial;
        Self {
            // Do not believe a server that has more than was sent.
            placed_fraction: (all_bytes > 0)
                .then(|| (placed.bytes as f64 / all_bytes as f64).min(1.0)),
            messages_whole: Some(placed.whole),
            messages_partial: Some(placed.partial),
            messages_missed: Some(messages.saturating_sub(known)),
            missed_noticed: (!is_read).then_some(placed.noticed),
            late_packets: Some(placed.late_packets),
            no_buffer_packets: Some(placed.no_buffer_packets),
            refused_by_peer_packets: Some(placed.refused_packets),
            messages_evicted: Some(placed.evicted),
            ..self
        }
    }

    /// With what came to a further server, or the first one, of a group.
    pub(in crate::perf) fn add_receiver(
        &mut self,
        host: &str,
        size_bytes: u64,
        result: &Measured,
        counters: Option<&Counters>,
    ) {
        let told = (counters, false);
        let counted = Self::default().with(&result.done(), size_bytes, &result.tally, told);
        self.receivers.push(Receiver::new(host, &counted, counters));
    }

    /// Packets of the measurement that got lost.
    pub(in crate::perf) fn lost_packets(
        &self,
        sent_packets: u64,
        (counters, is_read): (Option<&Counters>, bool),
    ) -> Option<u64> {
        let told = counters.and_then(|counters| counters.datagrams)?;
        // Some of those that were sent were for others.
        if self.group.is_some() {
            return None;
        }
        let (sent, came) = match is_read {
            true => (told.sent_packets, self.received.packets),
            false => (sent_packets, told.packets),
        };
        Some(sent.saturating_sub(came))
    }

    /// For people.
    pub(in crate::perf) fn lines(&self) -> Vec<String> {
        match self.receivers.is_empty() {
            true => vec![self.line()],
            false => self.receivers.iter().map(Receiver::line).collect(),
        }
    }

    fn line(&self) -> String {
        let (Some(fraction), Some(whole), Some(partial), Some(missed)) = (
            self.placed_fraction,
            self.messages_whole,
            self.messages_partial,
            self.messages_missed,
        ) else {
            return " what came is not known: the server has not said".to_owned();
        };
        let more = [
            ("late", self.late_packets),
            ("without a receive", self.no_buffer_packets),
            ("refused", self.refused_by_peer_packets),
        ];
        let more = more.iter().filter(|(_, count)| count.is_some_and(|count| count > 0));
        let more: String =
            more.map(|(name, count)| format!(", {name} {}", count.unwrap_or(0))).collect();
        let evicted = match self.messages_evicted {
            Some(count @ 1..) => format!(", evicted {count}"),
            _ => String::new(),
        };
        format!(
            " placed {:.3} % of the bytes: messages whole {whole}, partial {partial}, missed {missed}{evicted}; packets{}",
            fraction * 100.0,
            if more.is_empty() { " none dropped".to_owned() } else { more[1..].to_owned() },
        )
    }
}
