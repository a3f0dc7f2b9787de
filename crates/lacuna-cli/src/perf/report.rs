//! The results of a measurement, as a table in the manner of `ib_write_bw` or as JSON.
//!
//! The rate counts bytes that arrived, without those lost in a mode without repair. The server's
//! counters are missing if it died, or did not send them before an interrupted client left.

use super::ClientArgs;
use super::datagram;
use super::protocol::{Chosen, Counters, Ended, Repairs, Sent};
use super::sending::{Measured, Tally};
use super::verb::Verb;
use crate::capture::Captured;
use crate::failure::{Ending, Failure};
use crate::output::{Output, narrower};
use crate::units::{show_bytes, show_count};
use lacuna::{AutoStats, Connection, Reason};
use serde::Serialize;

/// What is known of the measured connection at the end.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) mode: String,
    pub(super) channels: u8,
    pub(super) chunk_bytes: u64,
    pub(super) mtu_bytes: u32,
    pub(super) wire: &'static str,
    pub(super) payload_bytes_max: u32,
    /// Packets that this host refused since the measurement began.
    pub(super) refused_packets: u64,
    /// What this end has sent.
    pub(super) sent: Sent,
    pub(super) auto: Option<AutoStats>,
    pub(super) rc: Option<RcCounts>,
    /// What this end knows of datagrams.
    pub(super) datagrams: Option<datagram::Counted>,
}

/// What the requester of a reliable connection counts.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RcCounts {
    /// Refusals "sequence error".
    pub(super) psn_naks: u64,
    /// Refusals "receiver not ready".
    pub(super) rnr_naks: u64,
    /// Timeouts that expired.
    pub(super) timeouts: u64,
    /// The repair shim of both ends.
    pub(super) shim: String,
    /// What this end's did, and why it asked for repairs.
    #[serde(skip)]
    pub(super) repairs: Repairs,
    #[serde(skip)]
    pub(super) chosen: Option<Chosen>,
}

/// What the repair shims of a reliable connection did: of the end that sends, and of the one that receives.
#[derive(Debug, Serialize)]
pub(super) struct Repaired {
    pub(super) repairs_sent: Option<u64>,
    pub(super) blocks_uncoded: Option<u64>,
    pub(super) packets_recovered: Option<u64>,
    pub(super) blocks_failed: Option<u64>,
    /// Why there were so many, with `--shim lowar:auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shim_chosen: Option<Chosen>,
}

impl Repaired {
    fn new(rc: &RcCounts, counters: Option<&Counters>, is_read: bool) -> Self {
        let here = rc.repairs;
        let there = counters.and_then(|counters| counters.repairs);
        let shim_chosen = match is_read {
            true => rc.chosen.clone(),
            false => counters.and_then(|counters| counters.chosen.clone()),
        };
        let (sender, receiver) = if is_read { (there, Some(here)) } else { (Some(here), there) };
        Self {
            repairs_sent: sender.map(|sender| sender.sent),
            blocks_uncoded: sender.map(|sender| sender.blocks_uncoded),
            packets_recovered: receiver.map(|receiver| receiver.recovered),
            blocks_failed: receiver.map(|receiver| receiver.failed),
            shim_chosen,
        }
    }
}

impl Facts {
    /// Of an SDR connection. `refused_before`: packets that were refused before, such as probes of the MTU.
    pub(super) fn of_connection(
        args: &ClientArgs,
        measured: &Connection,
        refused_before: u64,
    ) -> Self {
        let chosen = measured.chosen();
        let one_sided = measured.one_sided_stats().filter(|_| args.verb.is_one_sided());
        let stats = one_sided.unwrap_or_else(|| measured.stats());
        Self {
            mode: chosen.mode.clone(),
            channels: chosen.channels,
            chunk_bytes: chosen.chunk_bytes,
            mtu_bytes: chosen.mtu_bytes,
            wire: chosen.wire,
            payload_bytes_max: stats.payload_bytes_max,
            refused_packets: stats.context.refused_by_datapath - refused_before,
            sent: Sent::of(&stats.sent),
            // Of reads the server chooses.
            auto: stats.auto.filter(|_| args.verb != Verb::Read),
            rc: None,
            datagrams: None,
        }
    }
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) mode: String,
    pub(super) verb: &'static str,
    /// Kind of queue pair.
    pub(super) qp: String,
    /// Whether each write came back; times are halves of rounds then.
    pub(super) ping_pong: bool,
    pub(super) deadline_us: Option<u64>,
    pub(super) size_bytes: u64,
    pub(super) iterations: u64,
    #[serde(flatten)]
    pub(super) ending: Ending,
    pub(super) seconds: f64,
    pub(super) inflight: u32,
    pub(super) channels: u8,
    pub(super) chunk_bytes: u64,
    pub(super) mtu_bytes: u32,
    /// Form of data packets.
    pub(super) wire: &'static str,
    /// Payload per packet at the end: less if the path became narrower.
    pub(super) payload_bytes_max: u32,
    pub(super) gbit_per_s: f64,
    pub(super) mpps: f64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
    pub(super) sent_packets: u64,
    pub(super) retransmitted_packets: u64,
    /// Packets that this host refused to send, control packets included.
    pub(super) refused_packets: u64,
    /// Parity packets among those sent, and their bytes.
    pub(super) parity_packets: u64,
    pub(super) parity_bytes: u64,
    /// Submessages whose parity did not suffice.
    pub(super) fallbacks: u64,
    /// Time spent on computing parity.
    pub(super) encode_s: f64,
    /// What the mode `auto` knows of the path and chose, if it is that.
    pub(super) auto: Option<AutoStats>,
    /// Counts of a reliable connection.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) rc: Option<RcCounts>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) repaired: Option<Repaired>,
    /// What came of datagrams.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) datagrams: Option<datagram::Counted>,
    #[serde(flatten)]
    pub(super) counted: Counted,
    /// Processor time of both ends per 10^9 bytes of payload; `None` if the
    /// server had other clients meanwhile.
    pub(super) cpu_s_per_gbyte: Option<f64>,
    pub(super) client_cpu_s: f64,
    pub(super) server_cpu_s: Option<f64>,
    /// Whether every byte that arrived is right, if that was looked at.
    pub(super) validated: Option<bool>,
    /// The packets of both connections, if they were captured.
    pub(super) capture: Option<Captured>,
    #[serde(skip)]
    wrong: Option<String>,
    /// What ended the measurement early.
    #[serde(skip)]
    failure: Option<Failure>,
}

/// The server's counters for all messages, warm-up included.
#[derive(Debug, Default, Serialize)]
pub(super) struct Counted {
    pub(super) messages: Option<u64>,
    pub(super) incomplete_messages: Option<u64>,
    pub(super) missing_chunks: Option<u64>,
    /// Share of the bytes.
    pub(super) missing_share: Option<f64>,
    pub(super) lost_packets: Option<u64>,
    pub(super) duplicate_packets: Option<u64>,
    pub(super) rejected_packets: Option<u64>,
    pub(super) receive_drops: Option<u64>,
    /// Chunks computed from parity, and the time it took.
    pub(super) repaired_chunks: Option<u64>,
    pub(super) decode_s: Option<f64>,
    /// Bytes that did not come; `None` if the server is of an older version, or operations were given up.
    pub(super) lost_bytes: Option<u64>,
    /// How operations ended, by reason; `None` if it is not known.
    pub(super) ended: Option<Ended>,
    /// Writes with an immediate that the server's program was told of.
    pub(super) told_messages: Option<u64>,
}

impl Report {
    pub(super) fn new(
        args: &ClientArgs,
        facts: Facts,
        result: Measured,
        counters: Option<Counters>,
        cpu_s: f64,
    ) -> Self {
        let is_read = args.verb == Verb::Read;
        let counters =
            counters.map(|counters| counters.with(&result.tally, result.received.as_ref()));
        let told = (counters.as_ref(), is_read);
        let mut datagrams = facts.datagrams.as_ref().map(|datagrams| {
            datagrams.clone().with(&result.done(), args.size, &result.tally, told)
        });
        let sent = match &counters {
            Some(counters) if is_read => counters.sent.unwrap_or_default(),
            None if is_read => Sent::default(),
            _ => facts.sent,
        };
        let mut sorted: Vec<f64> =
            result.times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        let iterations = sorted.len() as u64;
        let seconds = result.took.as_secs_f64();
        let per_s = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let counted = counters.as_ref().map(|counters| Counted {
            // In a region there are no chunks.
            missing_chunks: Some(counters.missing_chunks)
                .filter(|_| !args.verb.is_one_sided() && datagrams.is_none()),
            // A reliable connection takes nothing behind a gap, so nobody knows what was lost.
            lost_packets: match &datagrams {
                Some(datagrams) => datagrams.lost_packets(sent.packets, told),
                None => Some(counters.lost_packets).filter(|_| facts.rc.is_none()),
            },
            // The sockets of datagrams have no such count.
            receive_drops: Some(counters.receive_drops).filter(|_| datagrams.is_none()),
            ..Counted::new(counters, args.size)
        });
        let counted = counted.unwrap_or_default();
        let repaired = facts.rc.as_ref().map(|rc| Repaired::new(rc, counters.as_ref(), is_read));
        let arrived_share = 1.0 - counted.missing_share.unwrap_or(0.0);
        let payload_bytes = iterations as f64 * args.size as f64;
        for receiver in datagrams.iter_mut().flat_map(|datagrams| &mut datagrams.receivers) {
            let placed = receiver.placed_fraction();
            receiver.gbit_per_s = placed.map(|placed| per_s(payload_bytes * placed * 8.0) / 1e9);
        }
        let packets = args.size.div_ceil(u64::from(facts.mtu_bytes)).max(1);
        let server_cpu_s = counters.as_ref().and_then(|counters| counters.cpu_s);
        let validated = counters.as_ref().filter(|_| args.validate);
        Self {
            mode: facts.mode,
            verb: args.verb.name(),
            qp: args.qp.clone(),
            ping_pong: args.ping_pong,
            deadline_us: args.deadline.map(|deadline| deadline.as_micros() as u64),
            size_bytes: args.size,
            iterations,
            ending: Ending::of(result.ended.as_ref()),
            seconds,
            inflight: args.depth(),
            channels: facts.channels,
            chunk_bytes: facts.chunk_bytes,
            mtu_bytes: facts.mtu_bytes,
            wire: facts.wire,
            payload_bytes_max: facts.payload_bytes_max,
            gbit_per_s: per_s(payload_bytes * arrived_share * 8.0) / 1e9,
            mpps: per_s((iterations * packets) as f64 * arrived_share) / 1e6,
            mean_us: mean(&sorted),
            p50_us: quantile(&sorted, 0.5),
            p99_us: quantile(&sorted, 0.99),
            max_us: sorted.last().copied().unwrap_or(0.0),
            sent_packets: sent.packets,
            retransmitted_packets: sent.retransmitted_packets,
            refused_packets: facts.refused_packets,
            parity_packets: sent.parity_packets,
            parity_bytes: sent.parity_bytes,
            fallbacks: sent.fallbacks,
            encode_s: sent.encode_s,
            auto: facts.auto,
            rc: facts.rc,
            repaired,
            datagrams,
            counted,
            // Processor time covers all messages, warm-up included.
            cpu_s_per_gbyte: server_cpu_s.map(|server_cpu_s| {
                (cpu_s + server_cpu_s) / (sent.data_bytes().max(1) as f64 / 1e9)
            }),
            client_cpu_s: cpu_s,
            server_cpu_s,
            validated: validated.map(|counters| counters.wrong == 0),
            capture: None,
            wrong: counters.filter(|counters| counters.wrong > 0).map(|counters| {
                let messages = show_count(counters.wrong, "message");
                let first = counters.first_wrong.unwrap_or_default();
                format!("{messages} arrived wrong, first: {first}")
            }),
            failure: result.ended,
        }
    }

    /// Wrong data, if there was any.
    pub(super) fn wrong(&self) -> Option<String> {
        self.wrong.clone()
    }

    /// Why it ended early, if it did.
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    pub(super) fn print(&self, output: Output) -> Result<(), Failure> {
        if output.json {
            return output.object(self);
        }
        self.lines().iter().try_for_each(|line| output.line(line))
    }

    pub(super) fn lines(&self) -> Vec<String> {
        // Two decimals say nothing of 5 Mbit/s.
        let digits = if self.gbit_per_s < 0.1 { 5 } else { 2 };
        let mut lines = vec![
            " #bytes     #iterations    BW average[Gb/sec]   MsgRate[Mpps]   t_avg[usec]   t_99%[usec]"
                .to_owned(),
            format!(
                " {:<10} {:<14} {:<20.digits$} {:<15.4} {:<13.1} {:<.1}",
                self.size_bytes, self.iterations, self.gbit_per_s, self.mpps, self.mean_us, self.p99_us
            ),
        ];
        let Counted { missing_chunks, missing_share, incomplete_messages, .. } = self.counted;
        if let Some(RcCounts { psn_naks, rnr_naks, timeouts, .. }) = &self.rc {
            lines.push(format!(
                " sent {}, retransmitted {}; refused for a gap {psn_naks}, for want of a receive {rnr_naks}; timeouts {timeouts}{}",
                show_count(self.sent_packets, "packet"),
                self.retransmitted_packets,
                self.cpu_s_per_gbyte.map_or(String::new(), |cpu_s| format!("; {cpu_s:.3} CPU-s per GB")),
            ));
        }
        if let Some(Repaired {
            repairs_sent: Some(sent @ 1..),
            packets_recovered,
            blocks_failed,
            ..
        }) = self.repaired
        {
            let known =
                |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
            lines.push(format!(
                " repairs {sent} ({:.1} % of the packets); recovered {} of the lost packets, gaps left to the connection {}",
                sent as f64 * 100.0 / (self.sent_packets + sent) as f64,
                known(packets_recovered),
                known(blocks_failed),
            ));
        }
        if let Some(Repaired { shim_chosen: Some(Chosen { why, .. }), .. }) = &self.repaired {
            lines.push(format!(" at last {why}"));
        }
        match (self.counted.lost_packets, self.counted.receive_drops) {
            _ if self.rc.is_some() => {}
            _ if self.is_to_group() => lines.push(format!(
                " sent {}, of them again {}",
                show_count(self.sent_packets, "packet"),
                self.retransmitted_packets,
            )),
            (lost, _) if self.datagrams.is_some() => lines.push(format!(
                " sent {}, lost {}{}",
                show_count(self.sent_packets, "packet"),
                lost.map_or("?".to_owned(), |lost| lost.to_string()),
                self.cpu_s_per_gbyte.map_or(String::new(), |cpu_s| format!("; {cpu_s:.3} CPU-s per GB")),
            )),
            (Some(lost), Some(drops)) => lines.push(format!(
                " lost {lost}, retransmitted {}, duplicate {}, rejected {}, dropped by the receiving socket {drops}{}",
                self.retransmitted_packets,
                self.counted.duplicate_packets.unwrap_or(0),
                self.counted.rejected_packets.unwrap_or(0),
                self.cpu_s_per_gbyte.map_or(String::new(), |cpu_s| format!("; {cpu_s:.3} CPU-s per GB")),
            )),
            _ => lines.push(format!(
                " retransmitted {}; what the server counted is not known",
                self.retransmitted_packets
            )),
        }
        lines.extend(self.datagrams.iter().flat_map(datagram::Counted::lines));
        if self.refused_packets > 0 {
            let packets = show_count(self.refused_packets, "packet");
            lines.push(format!(" this host refused to send {packets}"));
        }
        if self.parity_packets > 0 {
            let Counted { repaired_chunks, decode_s, .. } = self.counted;
            lines.push(format!(
                " parity {:.1} % of the packets, computed in {:.3} s; repaired {} in {:.3} s; fell back {}",
                self.parity_packets as f64 * 100.0 / self.sent_packets.max(1) as f64,
                self.encode_s,
                show_count(repaired_chunks.unwrap_or(0), "chunk"),
                decode_s.unwrap_or(0.0),
                show_count(self.fallbacks, "submessage"),
            ));
        }
        if let Some(narrower) = narrower(self.mtu_bytes, self.payload_bytes_max) {
            lines.push(format!(" {narrower}"));
        }
        if let Some(auto) = &self.auto {
            lines.push(format!(" auto: {}", auto.why));
        }
        if let (Some(missing), Some(share), Some(incomplete), Some(messages)) =
            (missing_chunks, missing_share, incomplete_messages, self.counted.messages)
            && missing > 0
        {
            lines.push(format!(
                " missing {} ({:.3} % of the bytes) in {incomplete} of {}; BW is of what arrived",
                show_count(missing, "chunk"),
                share * 100.0,
                show_count(messages, "message"),
            ));
        }
        lines.extend(self.ended_line());
        if self.validated == Some(true) {
            lines.push(" validated: every byte that arrived is right".to_owned());
        }
        if let Some(why) = &self.ending.why {
            let messages = show_count(self.iterations, "message");
            lines.push(format!(" interrupted after {messages} in {:.2} s: {why}", self.seconds));
        }
        lines
    }

    /// Whether each message went to several servers.
    fn is_to_group(&self) -> bool {
        self.datagrams.as_ref().is_some_and(|datagrams| datagrams.group.is_some())
    }

    /// How the operations ended, unless all came whole and nothing else was to be expected.
    fn ended_line(&self) -> Option<String> {
        let ended = self.counted.ended.as_ref()?;
        let of = |reason: &Reason| Some((reason.name(), *ended.get(reason.name())?));
        let mut by: Vec<_> = Reason::ALL.iter().filter_map(of).collect();
        let named = |name: &str| Reason::ALL.iter().any(|reason| reason.name() == name);
        // Of a server of a newer version.
        by.extend(
            ended.iter().map(|(name, n)| (name.as_str(), *n)).filter(|(name, _)| !named(name)),
        );
        let is_plain = by.iter().all(|(name, _)| *name == Reason::Whole.name());
        let lost_bytes = self.counted.lost_bytes;
        let is_bounded = self.deadline_us.is_some() || self.mode.starts_with("bounded");
        if by.is_empty() || is_plain && lost_bytes == Some(0) && !is_bounded {
            return None;
        }
        let by: Vec<_> = by.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let lost = match (lost_bytes, self.counted.messages) {
            (Some(lost_bytes), Some(messages)) => {
                let all = (messages as f64 * self.size_bytes as f64).max(1.0);
                let share = (lost_bytes as f64 / all).min(1.0) * 100.0;
                format!("; lost {} ({share:.3} % of the bytes)", show_bytes(lost_bytes))
            }
            _ => String::new(),
        };
        Some(format!(" ended: {}{lost}", by.join(", ")))
    }
}

impl Counters {
    /// With what this end has counted; of reads that is all that was received.
    fn with(mut self, tally: &Tally, received: Option<&Self>) -> Self {
        if let Some(received) = received {
            self.lost_packets = received.lost_packets;
            self.duplicate_packets = received.duplicate_packets;
            self.rejected_packets = received.rejected_packets;
            self.receive_drops = received.receive_drops;
            self.repaired_chunks = received.repaired_chunks;
            self.decode_s = received.decode_s;
        }
        self.wrong = self.wrong.saturating_add(tally.wrong);
        self.first_wrong = self.first_wrong.or_else(|| tally.first_wrong.clone());
        self
    }
}

impl Counted {
    pub(super) fn new(counters: &Counters, size_bytes: u64) -> Self {
        let all_bytes = counters.messages as f64 * size_bytes as f64;
        let missing_share = counters.missing_bytes as f64 / all_bytes.max(1.0);
        Self {
            messages: Some(counters.messages),
            incomplete_messages: Some(counters.incomplete),
            missing_chunks: Some(counters.missing_chunks),
            // Do not believe a server that reports more missing bytes than were sent.
            missing_share: Some(missing_share.min(1.0)),
            lost_packets: Some(counters.lost_packets),
            duplicate_packets: Some(counters.duplicate_packets),
            rejected_packets: Some(counters.rejected_packets),
            receive_drops: Some(counters.receive_drops),
            repaired_chunks: Some(counters.repaired_chunks),
            decode_s: Some(counters.decode_s),
            lost_bytes: counters.lost_bytes,
            ended: Some(counters.ended.clone()).filter(|ended| !ended.is_empty()),
            told_messages: counters.told_messages,
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    // The sum of an empty iterator is -0.
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The value below which a share of the sorted values lies (nearest rank).
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 50.0);
        assert_eq!(quantile(&values, 0.99), 99.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn the_mean_of_nothing_is_zero_and_not_less() {
        assert_eq!(mean(&[1.0, 3.0]), 2.0);
        assert!(mean(&[]).is_sign_positive());
    }

    #[test]
    fn what_is_missing_is_a_share_of_what_was_sent() {
        let counters = Counters { messages: 4, missing_bytes: 100, ..Counters::default() };
        assert_eq!(Counted::new(&counters, 100).missing_share, Some(0.25));
        assert_eq!(Counted::new(&Counters::default(), 100).missing_share, Some(0.0));
    }
}
