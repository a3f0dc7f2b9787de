//! Control packets of a queue pair: writes them, and handles received ones.
//!
//! Frames carry state, never deltas, so a lost one costs time and nothing else. Control packets are
//! numbered, and state older than the newest is ignored. When everything was sent and something is
//! not acknowledged, the sender sends a flush (`flush.rs` has the times). The receiver answers with a
//! report, in as many packets as the flush had, because a repeated flush means that answers get lost.
//!
//! A path MTU may be so small that flushes pass and long answers do not. If the peer keeps sending
//! flushes after long answers, this end limits its answers to a size that passes everywhere.

use super::flush::{FlushPolicy, FlushTimer};
use super::{Changes, Peer, QueuePair};
use crate::path_frames::PathFrames;
use lacuna_path::small_vec::SmallVec;
use lacuna_wire::{
    ChannelReport, ControlBody, ControlHeader, ControlWriter, FRAME_HEADER_BYTES, Flush, FlushMark,
    Frame, FrameError, Probe, ProbeReply, Qpn, psn,
};
use std::collections::VecDeque;

/// Longest UDP payload that passes everywhere: the smallest datagram that every host must take, 576
/// bytes, less the longest IPv4 header and UDP's (RFC 791).
const SHORT_PACKET_BYTES: usize = 508;
/// Answers become short after this many long ones in a row that had no effect: a round trip later,
/// the peer sent another flush and no data.
const LONG_UNANSWERED_MAX: u32 = 2;
/// Time between two calls beyond which the peer's silence does not count. A queue pair whose peer
/// owes an answer is called at least ten times a second, unless its process or host was stopped.
/// After a stop, the peer's answer may be unread, or the peer was stopped too; so it is asked again.
const UNATTENDED_NS_MAX: u64 = 2_000_000_000;
/// Time between the first announcement of receives and the second, to a peer that is far away: behind most
/// bursts of losses, and short beside a round trip. A judgement.
const ANNOUNCED_AGAIN_NS: u64 = 1_000_000;
/// Round trip of such a peer.
pub(super) const FAR_NS: u64 = 2 * ANNOUNCED_AGAIN_NS;
/// Most probe replies waiting to be sent; a peer that asks for more is flooding.
const REPLIES_MAX: usize = 32;

/// A control packet that cannot be used. The peer's fault; it is logged and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// A frame does not parse.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The queue pair knows no peer yet.
    #[error("control packet before the queue pair was connected")]
    NotConnected,
}

/// State of the control packets in both directions.
#[derive(Debug)]
pub(super) struct Control {
    next_sequence: u64,
    /// Sequence number of the newest control packet received.
    seen_sequence: u64,
    /// When any packet of the peer was last received.
    heard_ns: u64,
    /// Since when the peer has owed an answer without interruption; `None` while it owes none.
    owed_since_ns: Option<u64>,
    /// When `owed_since_ns` was last updated.
    tracked_ns: u64,
    /// Flush timers, per channel.
    flushes: SmallVec<FlushTimer>,
    /// Channel of the peer's first flush since the last report, and the number of flushes on it.
    flushed_on: Option<(u8, u32)>,
    /// Further copies of the last report to send.
    copies_left: u32,
    /// Replies and probes to send.
    replies: VecDeque<ProbeReply>,
    probes: VecDeque<Probe>,
    /// Parts of the last report that are still to be sent.
    receives_unfinished: bool,
    acks_unfinished: bool,
    answer_length: AnswerLength,
    /// What the control packet that was handled last says of its path.
    path_frames: PathFrames,
}

/// Limit on the length of answers; see the module's text.
#[derive(Debug, Default)]
struct AnswerLength {
    /// When a long answer was sent, if no data have come since.
    long_ns: Option<u64>,
    /// Long answers in a row that were followed by another flush.
    unanswered: u32,
    are_short: bool,
}

impl AnswerLength {
    /// Data came, so the peer has received an answer.
    fn on_data(&mut self) {
        (self.long_ns, self.unanswered) = (None, 0);
    }

    /// A flush came. If it came more than a round trip after a long answer, the answer was lost.
    fn on_flush(&mut self, now_ns: u64, srtt_ns: u64) {
        if self.long_ns.is_some_and(|long_ns| now_ns > long_ns + srtt_ns) {
            self.long_ns = None;
            self.unanswered += 1;
            self.are_short |= self.unanswered >= LONG_UNANSWERED_MAX;
        }
    }

    fn on_sent(&mut self, now_ns: u64, packet_bytes: usize) {
        if packet_bytes > SHORT_PACKET_BYTES {
            self.long_ns.get_or_insert(now_ns);
        }
    }
}

impl Control {
    pub(super) fn new(channels: u8) -> Self {
        Self {
            next_sequence: 1,
            seen_sequence: 0,
            heard_ns: 0,
            owed_since_ns: None,
            tracked_ns: 0,
            flushes: (0..channels).map(|_| FlushTimer::idle()).collect(),
            flushed_on: None,
            copies_left: 0,
            replies: VecDeque::new(),
            probes: VecDeque::new(),
            receives_unfinished: false,
            acks_unfinished: false,
            answer_length: AnswerLength::default(),
            path_frames: PathFrames::default(),
        }
    }

    /// Data came from the peer.
    pub(super) fn on_data(&mut self) {
        self.answer_length.on_data();
    }

    /// This host refused to send a control packet because it is too large.
    pub(super) fn on_too_large(&mut self) {
        self.answer_length.are_short = true;
    }

    pub(super) fn heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
    }

    /// A flush came on a channel.
    fn on_flush_received(&mut self, channel: u8) {
        match &mut self.flushed_on {
            None => self.flushed_on = Some((channel, 1)),
            Some((first, times)) if *first == channel => *times = times.saturating_add(1),
            // Each channel has flushes of its own, but one answer reports on all channels.
            Some(_) => {}
        }
    }

    /// A report is sent. Sets the number of copies to follow it.
    fn on_report(&mut self) {
        self.copies_left = match self.flushed_on.take() {
            Some((_, times)) => times.min(FlushPolicy::DEFAULT.copies_max) - 1,
            None => self.copies_left.saturating_sub(1),
        };
    }

    pub(super) fn on_sent(&mut self, now_ns: u64, channel: usize, srtt_ns: u64) {
        self.flushes[channel] = FlushTimer::on_sent(now_ns, srtt_ns);
    }

    /// When to poll again for anything but a flush.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        (!self.is_idle()).then_some(0)
    }

    /// When the next flush of a channel is due.
    pub(super) fn flush_due_ns(&self, channel: usize) -> u64 {
        self.flushes[channel].due_ns()
    }

    /// Whether a part of the last report is still to be sent: the state of receives or
    /// acknowledgements.
    fn has_state_left(&self) -> bool {
        self.receives_unfinished || self.acks_unfinished
    }

    /// Whether nothing but reports and flushes is to be sent.
    fn is_idle(&self) -> bool {
        !self.has_state_left() && self.replies.is_empty() && self.probes.is_empty()
    }

    /// Records whether the peer owes an answer. Silence counts from when it began to owe one, not from
    /// when an idle peer was last heard.
    pub(super) fn track_silence(&mut self, now_ns: u64, owes: bool) {
        let unattended_ns =
            now_ns.saturating_sub(self.tracked_ns).saturating_sub(UNATTENDED_NS_MAX);
        self.tracked_ns = self.tracked_ns.max(now_ns);
        self.owed_since_ns = match self.owed_since_ns {
            _ if !owes => None,
            Some(owed_since_ns) if unattended_ns > 0 => {
                Some(owed_since_ns.max(self.heard_ns) + unattended_ns)
            }
            owed_since_ns => owed_since_ns.or(Some(now_ns)),
        };
    }

    /// Time for which the peer has owed an answer and sent nothing.
    pub(super) fn silent_ns(&self, now_ns: u64) -> u64 {
        self.owed_since_ns
            .map_or(0, |owed_since_ns| now_ns.saturating_sub(owed_since_ns.max(self.heard_ns)))
    }

    pub(super) fn silence_ends_ns(&self, silence_max_ns: u64) -> Option<u64> {
        Some(self.owed_since_ns?.max(self.heard_ns).saturating_add(silence_max_ns))
    }
}

impl QueuePair {
    /// Takes in the body of a control packet of `packet_bytes` that came on `channel` with this
    /// queue pair's key. Returns whether it is newer than all before it.
    pub fn on_control(
        &mut self,
        now_ns: u64,
        channel: u8,
        body: &[u8],
        packet_bytes: usize,
    ) -> Result<bool, ControlError> {
        if self.peer.is_none() {
            return Err(ControlError::NotConnected);
        }
        let body = ControlBody::parse(body)?;
        let sequence = unwrap_sequence(body.sequence, self.control.seen_sequence);
        let is_newest = sequence > self.control.seen_sequence;
        self.control.heard(now_ns);
        self.control.path_frames = PathFrames::default();
        let (mut has_report, mut has_flush) = (false, false);
        for frame in body.frames() {
            let frame = frame?;
            match frame {
                // What is relayed comes with last words only (`handshake/goodbye.rs`).
                Frame::Padding(_) | Frame::Relayed(_) => {}
                Frame::Probe(probe) => {
                    if self.control.replies.len() < REPLIES_MAX {
                        let (id, echo_ns) = (probe.id, probe.sent_ns);
                        let packet_bytes = packet_bytes as u32;
                        self.control.replies.push_back(ProbeReply { id, echo_ns, packet_bytes });
                    }
                }
                Frame::ProbeReply(reply) => {
                    if let Some(sample_ns) = now_ns.checked_sub(reply.echo_ns) {
                        self.path.on_rtt_sample(now_ns, sample_ns);
                    }
                    self.on_mtu_probe(now_ns, reply.id, reply.packet_bytes);
                }
                Frame::Report(report) if is_newest => {
                    has_report = true;
                    report.channels().iter().for_each(|c| self.path.on_report(now_ns, c));
                }
                Frame::Receives(receives) if is_newest => {
                    self.send.on_receives(&receives);
                }
                Frame::ReceivesBefore(before) if is_newest => self.send.on_before(&before),
                Frame::Report(_) | Frame::Receives(_) | Frame::ReceivesBefore(_) => {}
                Frame::Ack(ack) => self.send.on_ack(sequence, &ack),
                Frame::Flush(flush) => {
                    for mark in flush.marks().iter().filter(|mark| mark.channel == channel) {
                        self.arrivals.on_flush(mark.channel, mark.next_psn);
                        self.update_span(mark.channel);
                    }
                    self.recv.on_flush(flush.started);
                    has_flush = true;
                    self.arrivals.request(now_ns);
                }
                Frame::Cancel(cancel) => {
                    let grace_ns = self.grace_ns();
                    if self.recv.on_cancel(now_ns, cancel.message, cancel.reason, grace_ns) {
                        self.pending_events.add(Changes::RECEIVE_ENDED);
                    }
                    self.arrivals.request(now_ns);
                }
                Frame::Sent(sent) if sent.channel == channel => {
                    let grace_ns = self.grace_ns();
                    if self.recv.on_word(now_ns, channel, sent.before, grace_ns) {
                        self.pending_events.add(Changes::RECEIVE_ENDED);
                    }
                }
                Frame::Sent(_) => {}
                Frame::Read(read) => self.on_read(now_ns, &read),
                Frame::PathChallenge(_) | Frame::PathResponse(_) => {
                    self.control.path_frames.take_in(&frame);
                }
                Frame::ReadRefused(refused) => {
                    if self.reads.on_refused(&refused) {
                        self.pending_events.add(Changes::READ_ENDED);
                        self.on_reads_changed();
                    }
                }
            }
        }
        if has_flush {
            self.control.on_flush_received(channel);
            let srtt_ns = self.path.rtt().smoothed_ns().unwrap_or(0);
            self.control.answer_length.on_flush(now_ns, srtt_ns);
        }
        if has_report {
            // Handle the passed runs last, because acknowledgements in the same packet describe the
            // same state.
            while let Some(entry) = self.path.pop_passed() {
                self.send.on_passed(sequence, entry, self.path.rto_ns());
            }
            self.path.end_report(now_ns);
            self.watch_mtu(now_ns);
        }
        self.reap(now_ns);
        self.control.seen_sequence = self.control.seen_sequence.max(sequence);
        let owes = self.peer_owes_answer();
        self.control.track_silence(now_ns, owes);
        Ok(is_newest)
    }

    /// What the control packet that [`QueuePair::on_control`] handled last says of its path.
    pub fn path_frames(&self) -> PathFrames {
        self.control.path_frames
    }

    /// Writes a control packet with nothing but this frame; `None` if there is no peer.
    pub fn write_alone<'w>(
        &mut self,
        channel: u8,
        frame: &Frame<'_>,
        writer: &'w mut ControlWriter,
    ) -> Option<&'w [u8]> {
        let peer = self.peer.filter(|_| self.failure().is_none())?;
        self.start_packet(peer, channel, writer);
        writer.push(frame);
        Some(writer.finish())
    }

    /// The packets of a channel take another path from now on, to the same host or another one. Much
    /// was lost when the old one ended, so the peer gets a report, and is asked for one if it owes one,
    /// without delay.
    pub fn on_path_moved(&mut self, now_ns: u64, channel: u8, is_other_host: bool) {
        match is_other_host {
            true => self.path.on_other_host(super::controller(&self.config)),
            false => self.path.on_rerouted(),
        }
        self.arrivals.request(now_ns);
        if let Some(flush) = self.control.flushes.get_mut(usize::from(channel)) {
            flush.hasten(now_ns);
        }
    }

    fn start_packet(&mut self, peer: Peer, channel: u8, writer: &mut ControlWriter) {
        let sequence = self.control.next_sequence;
        self.control.next_sequence += 1;
        let header = ControlHeader {
            dest: Qpn::new(peer.queue_pair, channel, 0),
            psn: sequence as u32 & 0xFF_FFFF,
            qkey: peer.qkey,
            source: Qpn::new(self.config.queue_pair, channel, 0),
        };
        writer.start(&header, sequence as u32, self.config.geometry.seal());
    }

    /// Sends the peer a probe, for a sign of life and a round-trip sample.
    pub fn probe(&mut self, now_ns: u64) {
        if self.control.probes.len() < REPLIES_MAX {
            self.control.probes.push_back(Probe { id: 0, sent_ns: now_ns });
        }
    }

    /// Writes the next control packet that is due on `channel`; `None` if none is.
    pub fn poll_control<'w>(
        &mut self,
        now_ns: u64,
        channel: u8,
        writer: &'w mut ControlWriter,
    ) -> Option<&'w [u8]> {
        let peer = self.peer?;
        if self.failure().is_some() {
            return None;
        }
        let owes = self.peer_owes_answer();
        self.control.track_silence(now_ns, owes);
        let copies = self.control.copies_left > 0 && !self.control.has_state_left();
        let reports = copies || self.arrivals.due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        let index = usize::from(channel);
        let is_flush_due = self.flushes_on(index) && self.control.flushes[index].is_due(now_ns);
        let pieces = self.send.pieces();
        let probe_pieces =
            self.take_proof(channel).then_some(pieces).or_else(|| self.take_mtu_probe(channel));
        let cancels = match probe_pieces {
            Some(_) => Vec::new(),
            None => self.send.poll_cancels(now_ns, self.path.rto_ns()),
        };
        let reads_due = channel == 0 && probe_pieces.is_none() && self.reads.has_due(now_ns);
        let word = match probe_pieces {
            Some(_) => None,
            None => self.poll_word(now_ns, channel),
        };
        let sends_flush = is_flush_due || word.is_some_and(|(_, asks)| asks);
        if probe_pieces.is_none()
            && !reports
            && !sends_flush
            && cancels.is_empty()
            && word.is_none()
            && !reads_due
            && self.control.is_idle()
        {
            return None;
        }
        self.start_packet(peer, channel, writer);
        if self.control.answer_length.are_short {
            // The counts of all channels go into one frame, which may need more than the short
            // length.
            let seal = self.config.geometry.seal();
            let counts_bytes = self.channels.len() * ChannelReport::BYTES + FRAME_HEADER_BYTES;
            writer
                .keep_within(SHORT_PACKET_BYTES.max(seal.control_overhead_bytes() + counts_bytes));
        }
        if let Some(pieces) = probe_pieces {
            // The probe has a packet of its own, because everything else must arrive even if this
            // size does not pass.
            self.write_mtu_probe(now_ns, channel, pieces, writer);
            return Some(writer.finish());
        }
        while let Some(reply) = self.control.replies.pop_front() {
            writer.push(&Frame::ProbeReply(reply));
        }
        while let Some(probe) = self.control.probes.pop_front() {
            writer.push(&Frame::Probe(Probe { sent_ns: now_ns, ..probe }));
        }
        for cancel in cancels {
            writer.push(&Frame::Cancel(cancel));
        }
        if reads_due {
            self.write_reads(now_ns, writer);
        }
        if let Some((word, _)) = word {
            writer.push(&Frame::Sent(word));
        }
        if sends_flush {
            let mut flush = Flush::new(self.send.started());
            let next_psn = psn::wrap(self.path.flush_psn(now_ns, index));
            flush.push(FlushMark { channel, next_psn });
            writer.push(&Frame::Flush(flush));
            let is_dark = self.path.is_dark();
            let heard_ns = self.control.heard_ns;
            self.control.flushes[index].on_flush_sent(now_ns, heard_ns, is_dark);
        }
        if reports {
            let is_first = writer.is_empty();
            if !writer.push(&Frame::Report(self.arrivals.report(now_ns))) && !is_first {
                // The report goes into the next packet.
                self.arrivals.request(now_ns);
            } else {
                self.control.on_report();
                let srtt_ns = self.path.rtt().smoothed_ns().unwrap_or(0);
                let waits = self.recv.is_in_progress();
                self.nudge.on_report(now_ns, self.control.heard_ns, srtt_ns, waits);
                if std::mem::take(&mut self.announces_again) {
                    self.arrivals.request_by(now_ns + ANNOUNCED_AGAIN_NS);
                }
            }
            self.control.receives_unfinished = true;
            self.control.acks_unfinished = true;
            self.recv.begin_acks();
        }
        let has_state_left = self.control.has_state_left();
        if self.control.receives_unfinished {
            self.control.receives_unfinished = !self.recv.write_receives(writer);
        }
        if self.control.acks_unfinished && !self.control.receives_unfinished {
            self.control.acks_unfinished = !self.recv.write_acks(writer);
        }
        let packet = writer.finish();
        if has_state_left {
            self.arrivals.on_report_bytes(packet.len());
            self.control.answer_length.on_sent(now_ns, packet.len());
        }
        Some(packet)
    }
}

/// The number with low 32 bits `wire` that is nearest to `near`.
fn unwrap_sequence(wire: u32, near: u64) -> u64 {
    let ahead = wire.wrapping_sub(near as u32);
    if ahead < 1 << 31 {
        near + u64::from(ahead)
    } else {
        near.checked_sub(u64::from(ahead.wrapping_neg())).unwrap_or(near + u64::from(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::unwrap_sequence;

    #[test]
    fn sequences_go_on_past_32_bits() {
        let near = (1 << 32) - 2;
        assert_eq!(unwrap_sequence(1, near), (1 << 32) + 1);
        assert_eq!(unwrap_sequence(u32::MAX - 9, near), (1 << 32) - 10);
    }
}
