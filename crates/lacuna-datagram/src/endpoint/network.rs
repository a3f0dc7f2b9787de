//! What comes: segments to where they belong, control to whom it concerns, and what its sources are told.

use super::{CONTROL_MAX, Endpoint};
use crate::discard::{Discard, of_key};
use crate::errors::MessageError;
use crate::incoming::{SendSegment, stranger};
use crate::outgoing::Message;
use crate::peers::{Numbered, Origin, PeerId};
use crate::run::{Data, Header};
use crate::sealing;
use crate::work::Failure;
use core::net::SocketAddr;
use lacuna_place::region::Rights;
use lacuna_wire::ddp::{
    self, About, ControlFrame, ControlFrames, DdpError, ReadRequest, RecordFlags, Segment, Space,
    Tagged, Untagged,
};

/// A datagram as it was read: its headers, once its checksum was found right. Nothing of a queue pair is needed for
/// that, so it can be done without a lock.
#[derive(Debug)]
pub struct Parsed<'d> {
    datagram: &'d [u8],
    segment: Result<(Segment, &'d [u8]), DdpError>,
}

impl<'d> Parsed<'d> {
    /// Reads a datagram.
    #[must_use]
    pub fn of(datagram: &'d [u8]) -> Self {
        let segment = ddp::parse(datagram).and_then(|parsed| ddp::check(datagram).map(|()| parsed));
        Self { datagram, segment }
    }

    /// Reads a sealed datagram that was opened in place ([`Endpoint::opener`]); `None` if it says nothing but that its
    /// sender is there.
    #[must_use]
    pub fn opened(datagram: &'d [u8]) -> Option<Self> {
        let datagram = sealing::opened(datagram)?;
        Some(Self { datagram, segment: ddp::parse(datagram) })
    }

    /// Whether it may begin a Write-Record, or is part of one.
    #[must_use]
    pub fn is_tagged(&self) -> bool {
        matches!(self.segment, Ok((Segment::Tagged(_), _)))
    }
}

impl Endpoint {
    /// A datagram came.
    pub fn on_datagram(&mut self, now_ns: u64, from: SocketAddr, datagram: &[u8]) {
        match self.is_sealed() {
            true => self.on_sealed(now_ns, from, datagram),
            false => self.on_parsed(now_ns, from, Parsed::of(datagram)),
        }
    }

    /// The same, of a datagram that was read already.
    pub fn on_parsed(&mut self, now_ns: u64, from: SocketAddr, parsed: Parsed<'_>) {
        let Parsed { datagram, segment } = parsed;
        if self.is_closed {
            return;
        }
        self.free_peers();
        let (segment, payload) = match segment {
            Ok(parsed) => parsed,
            Err(error) => return self.reject(&error),
        };
        if !self.counts.is_empty()
            && let Some(peer) = self.peers.find(from)
        {
            let is_control = matches!(segment, Segment::Untagged(untagged) if untagged.operation == ddp::Operation::Control);
            self.counts.add(peer, if is_control { 0 } else { payload.len() });
        }
        if let Some(taken) = self.on_reliable(now_ns, from, &segment, payload, datagram.len()) {
            return self.count(taken, payload.len());
        }
        let taken = match segment {
            Segment::Tagged(tagged) if tagged.flags.is_answer => {
                self.on_answer(now_ns, from, &tagged, payload)
            }
            Segment::Tagged(tagged) => {
                let space = if tagged.group == 0 { Space::Records } else { Space::GroupRecords };
                let about = About { space, number: tagged.number };
                self.on_record(now_ns, from, tagged, payload).map_err(|discard| (discard, about))
            }
            Segment::Untagged(untagged) => {
                self.on_untagged(now_ns, from, &untagged, payload, datagram.len())
            }
        };
        match taken {
            Ok(()) => {
                self.count(Ok(()), payload.len());
                let (Segment::Tagged(Tagged { group, .. })
                | Segment::Untagged(Untagged { group, .. })) = segment;
                let origin = Origin { address: from, group };
                if let Some(peer) = self.peers.find_in(origin).filter(|_| group != 0) {
                    self.incoming.gaps.hear(peer, datagram.len());
                }
            }
            Err((discard, about)) => self.refuse(now_ns, from, discard, about, datagram.len()),
        }
    }

    fn on_record(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        tagged: Tagged,
        payload: &[u8],
    ) -> Result<(), Discard> {
        let Self { incoming, peers, done, names, .. } = self;
        let stag = match tagged.flags.is_named {
            true => *names.get(&tagged.stag).ok_or(Discard::Key)?,
            false => tagged.stag,
        };
        let origin = Origin { address: from, group: tagged.group };
        let tagged = Tagged { stag, ..tagged };
        incoming.on_record(now_ns, peers, origin, &tagged, payload, done)
    }

    fn count(&mut self, taken: Result<(), Discard>, payload_bytes: usize) {
        match taken {
            Ok(()) => {
                self.stats.packets_taken += 1;
                self.stats.bytes_taken += payload_bytes as u64;
            }
            Err(discard) => self.stats.discards.count(discard),
        }
    }

    fn on_untagged(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        untagged: &Untagged,
        payload: &[u8],
        datagram_bytes: usize,
    ) -> Result<(), (Discard, About)> {
        let Untagged { operation, group, number, length, place, .. } = *untagged;
        let is_solicited = operation == ddp::Operation::SendSolicited;
        match operation {
            ddp::Operation::Send | ddp::Operation::SendSolicited => {
                let segment = SendSegment { number, length, place, is_solicited };
                let Self { incoming, peers, done, .. } = self;
                let origin = Origin { address: from, group };
                let taken = incoming.on_send(now_ns, peers, origin, segment, payload, done);
                let space = if group == 0 { Space::Sends } else { Space::GroupSends };
                taken.map_err(|discard| (discard, About { space, number }))
            }
            ddp::Operation::ReadRequest => {
                let about = About { space: Space::Reads, number };
                match ReadRequest::parse(payload) {
                    Ok(request) => self
                        .on_request(now_ns, from, number, &request)
                        .map_err(|discard| (discard, about)),
                    Err(error) => {
                        self.reject(&error);
                        Ok(())
                    }
                }
            }
            ddp::Operation::Control => {
                self.on_control(now_ns, from, payload, datagram_bytes);
                Ok(())
            }
            ddp::Operation::WriteRecord => Ok(()),
        }
    }

    fn on_answer(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        tagged: &Tagged,
        payload: &[u8],
    ) -> Result<(), (Discard, About)> {
        let about = About { space: Space::Reads, number: tagged.number };
        let answered = self
            .peers
            .find(from)
            .and_then(|peer| self.reads.on_answer(now_ns, peer, tagged, payload, &mut self.done));
        answered.ok_or((Discard::Late, about))
    }

    /// A peer asks for bytes.
    fn on_request(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        number: u32,
        request: &ReadRequest,
    ) -> Result<(), Discard> {
        let ReadRequest { source_stag: key, source_offset, length, .. } = *request;
        let known = self.peers.find(from);
        let user = known.map_or_else(|| stranger(from), PeerId::number);
        let end = source_offset.checked_add(length.into()).ok_or(Discard::Bounds)?;
        let pinned = self.keys.pin(key, user, Rights::REMOTE_READ, source_offset..end);
        pinned.map_err(|error| of_key(&error))?;
        let peer = match known {
            Some(peer) => peer,
            None => self.peers.find_or_add(from).ok_or(Discard::Busy)?,
        };
        if self.outgoing.messages() >= self.config.answers_max {
            return Err(Discard::Busy);
        }
        let flags = RecordFlags { is_answer: true, ..RecordFlags::default() };
        let header = Header::Record { key: request.sink_stag, offset: request.sink_offset, flags };
        let keys = self.keys.clone();
        let data = Data::Read { keys, peer: user, key, offset: source_offset };
        let left_ns = u64::from(request.time_left_us) * 1000;
        let deadline_ns = (left_ns > 0).then(|| now_ns.saturating_add(left_ns));
        let answer = Message { number, deadline_ns, ..Message::new(header, data, length) };
        self.outgoing.push(now_ns, &mut self.peers, peer, answer);
        Ok(())
    }

    fn on_control(&mut self, now_ns: u64, from: SocketAddr, payload: &[u8], datagram_bytes: usize) {
        for frame in ControlFrames::new(payload) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return self.reject(&error),
            };
            let about = frame.about();
            if let ControlFrame::Probe { .. } = frame {
                self.on_probe(now_ns, from, about, datagram_bytes);
                continue;
            }
            if let ControlFrame::Report { bytes, waited_us, .. } = frame {
                if let Some(peer) = self.peers.find(from) {
                    let report = (about.number, bytes, u64::from(waited_us) * 1000);
                    self.outgoing.on_report(now_ns, &self.peers, peer, report);
                }
                continue;
            }
            if about.space == Space::Reliable {
                self.on_reliable_word(now_ns, from, &frame, datagram_bytes);
                continue;
            }
            self.on_word(now_ns, from, &frame);
        }
    }

    /// A source asks how much has come of it. What it hears is no longer than its question.
    fn on_probe(&mut self, now_ns: u64, from: SocketAddr, about: About, datagram_bytes: usize) {
        let Some(peer) = self.peers.find_or_add(from) else { return };
        let Some(bytes) = self.counts.on_probe(now_ns, peer) else { return };
        let mut frames = Vec::new();
        ddp::emit_control(&ControlFrame::Report { about, bytes, waited_us: 0 }, &mut frames);
        let packet_bytes = ddp::UNTAGGED_HEADER_BYTES + frames.len() + ddp::TRAILER_BYTES;
        if self.control.len() < CONTROL_MAX && packet_bytes <= datagram_bytes {
            self.control.push_back((from, frames));
        }
    }

    /// A word about unreliable messages came. Only what is known here can be spoken of.
    fn on_word(&mut self, now_ns: u64, from: SocketAddr, frame: &ControlFrame<'_>) {
        let about @ About { space, number } = frame.about();
        let is_of_group = matches!(space, Space::GroupSends | Space::GroupRecords);
        let numbered = match space {
            Space::Sends | Space::GroupSends => Numbered::Sends,
            Space::Records | Space::GroupRecords => Numbered::Records,
            Space::Reads | Space::Reliable => return self.on_read_word(from, frame),
        };
        let Self { incoming, outgoing, peers, done, .. } = self;
        if let (ControlFrame::Missing { ranges, .. }, true) = (*frame, is_of_group) {
            let ranges = ranges.iter().map(|[start, end]| start..end);
            outgoing.kepts.on_missing(now_ns, from, (numbered, number), ranges);
            return;
        }
        let group = match *frame {
            ControlFrame::Sent { group, .. } => group,
            _ => 0,
        };
        let Some(peer) = peers.find_in(Origin { address: from, group }) else { return };
        match (*frame, is_of_group) {
            (ControlFrame::Error { reason, .. }, false) => {
                self.errors.push(MessageError { peer: from, about, reason, is_told: true });
            }
            (ControlFrame::Cancel { .. }, false) => {
                incoming.on_word(now_ns, peer, numbered, number, true, done);
            }
            (ControlFrame::Sent { .. }, false) => {
                incoming.on_word(now_ns, peer, numbered, number, false, done);
            }
            (ControlFrame::Sent { .. }, true) => {
                incoming.gaps.hear(peer, frame.bytes());
                incoming.on_group_word(now_ns, peers, peer, numbered, number);
            }
            _ => {}
        }
    }

    /// A peer will not answer a READ.
    fn on_read_word(&mut self, from: SocketAddr, frame: &ControlFrame<'_>) {
        let About { space, number } = frame.about();
        if let ControlFrame::Error { reason, .. } = *frame
            && space == Space::Reads
            && let Some(peer) = self.peers.find(from)
            && self.reads.peer_of(number) == Some(peer)
        {
            self.done.extend(self.reads.close(number, Err(Failure::Peer(reason))));
        }
    }

    pub(super) fn reject(&mut self, error: &DdpError) {
        self.stats.rejected[error.kind() as usize] += 1;
    }

    /// A segment was dropped: counts it, and tells the application and the source what they should know.
    fn refuse(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        discard: Discard,
        about: About,
        datagram_bytes: usize,
    ) {
        self.stats.discards.count(discard);
        if matches!(discard, Discard::Key | Discard::Rights) {
            // Who guessed too often has been refused for long enough.
            self.keys.forgive_each_second(now_ns);
        }
        let Some(reason) = discard.reason() else { return };
        // All of a group would speak at once.
        if matches!(about.space, Space::GroupSends | Space::GroupRecords) {
            return;
        }
        self.errors.push(MessageError { peer: from, about, reason, is_told: false });
        let mut frames = Vec::new();
        ddp::emit_control(&ControlFrame::Error { about, reason }, &mut frames);
        let bytes = ddp::UNTAGGED_HEADER_BYTES + frames.len() + ddp::TRAILER_BYTES;
        if self.control.len() < CONTROL_MAX
            && self.errors.may_tell(now_ns, from, (bytes, datagram_bytes))
        {
            self.control.push_back((from, frames));
        }
    }
}
