//! How the queue pair and its reliable streams come together: what comes by them, and READs that they answer.

use super::{CONTROL_MAX, Endpoint};
use crate::discard::{Discard, of_key};
use crate::incoming::Incoming;
use crate::outgoing::Message;
use crate::peers::PeerId;
use crate::reliable::{self, Acknowledged, Came, Host, What};
use crate::run::{Data, Header};
use core::net::SocketAddr;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::Rights;
use lacuna_wire::ddp::{
    self, About, ControlFrame, ControlReason, Operation, ReadRequest, RecordFlags, Segment, Space,
};

impl Endpoint {
    /// Runs something with the streams and with what of the queue pair they need; `None` if there are none.
    fn with_streams<R>(
        &mut self,
        peer: PeerId,
        address: SocketAddr,
        run: impl FnOnce(&mut reliable::Reliable, &mut Host<'_>, &mut crate::peers::Peers) -> R,
    ) -> Option<R> {
        let Self { config, reliable, incoming, peers, keys, reads, done, requests, .. } = self;
        let reliable = reliable.as_mut()?;
        let Incoming { receives, records, counts, .. } = incoming;
        let mut host = Host {
            peer,
            address,
            keys,
            receives,
            reads,
            done,
            requests,
            records,
            whole: &mut counts.whole,
            partial: &mut counts.partial,
            may_open: reliable.open() < config.open.in_all,
        };
        Some(run(reliable, &mut host, peers))
    }

    /// Posts a message to a peer whose stream is there.
    pub(super) fn send_reliably(
        &mut self,
        now_ns: u64,
        to: PeerId,
        message: Message,
        cancelled: Option<ControlReason>,
    ) {
        let message = Message { is_reliable: true, ..message };
        if let Some(reliable) = &mut self.reliable {
            reliable.post(now_ns, &mut self.peers, to, message, cancelled);
        }
    }

    /// A segment came, of a reliable queue pair or to one; `None` if it is neither, or is control.
    pub(super) fn on_reliable(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        segment: &Segment,
        payload: &[u8],
        datagram_bytes: usize,
    ) -> Option<Result<(), Discard>> {
        let is_reliable = match segment {
            Segment::Untagged(untagged) if untagged.operation == Operation::Control => return None,
            Segment::Untagged(untagged) => untagged.is_reliable,
            Segment::Tagged(tagged) => tagged.flags.is_reliable,
        };
        match (is_reliable, self.reliable.is_some()) {
            (true, true) => {}
            (false, false) => return None,
            _ => return Some(Err(Discard::Service)),
        }
        let (number, length, place, what) = match *segment {
            Segment::Tagged(tagged) => {
                // A name that nothing has is a key that nobody has.
                let key = match tagged.flags.is_named {
                    true => self.names.get(&tagged.stag).copied().unwrap_or(0),
                    false => tagged.stag,
                };
                let offset = tagged.offset;
                let is_solicited = tagged.flags.is_solicited;
                let what = match tagged.flags.is_answer {
                    true => What::Answer { sink: key },
                    false => What::Record { key, offset, is_solicited },
                };
                (tagged.number, tagged.length, tagged.place, what)
            }
            Segment::Untagged(untagged) => {
                let is_solicited = untagged.operation == Operation::SendSolicited;
                let what = match untagged.operation {
                    Operation::ReadRequest => What::Request,
                    _ => What::Send { is_solicited },
                };
                (untagged.number, untagged.length, untagged.place, what)
            }
        };
        let came = Came { number, length, place, payload, datagram_bytes, what };
        let taken = match self.peers.find(from) {
            Some(peer) => self.with_streams(peer, from, |streams, host, _| {
                streams.on_segment(now_ns, host, &came)
            })?,
            None => Err(None),
        };
        if let Some(peer) = self.peers.find(from) {
            self.answer(now_ns, peer);
        }
        Some(match taken {
            Ok(()) => Ok(()),
            Err(Some(discard)) => Err(discard),
            Err(None) => {
                // Where there is no room, a beginning would be of no use.
                let peer = self.peers.find(from);
                if self.reliable.as_ref().is_some_and(|streams| streams.has_room(peer)) {
                    let about = About { space: Space::Reliable, number };
                    self.ask(from, about, (0, 0), datagram_bytes);
                }
                Err(Discard::Stranger)
            }
        })
    }

    /// Asks a source where its messages begin. No more is said than was heard, so who forges questions gains nothing;
    /// and no limit of their number keeps the true source from being asked.
    fn ask(&mut self, from: SocketAddr, about: About, known: (u32, u64), datagram_bytes: usize) {
        let frames = reliable::ask(about, known);
        let bytes = ddp::UNTAGGED_HEADER_BYTES + frames.len() + ddp::TRAILER_BYTES;
        if self.control.len() < CONTROL_MAX && bytes <= datagram_bytes {
            self.control.push_back((from, frames));
        }
    }

    /// A word about reliable messages came.
    pub(super) fn on_reliable_word(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        frame: &ControlFrame<'_>,
        datagram_bytes: usize,
    ) {
        if self.reliable.is_none() {
            return;
        }
        let about = frame.about();
        let number = about.number;
        if let ControlFrame::Begin { instance, token, .. } = *frame {
            let Some(peer) = self.peers.find_or_add(from) else { return };
            let asked = self.with_streams(peer, from, |streams, host, peers| {
                streams.on_begin(now_ns, peers, host, (number, instance), (token, datagram_bytes))
            });
            if let Some(known) = asked.flatten() {
                self.ask(from, about, known, datagram_bytes);
            }
            return;
        }
        let Some(peer) = self.peers.find(from) else { return };
        let Some(streams) = &mut self.reliable else { return };
        match *frame {
            ControlFrame::Ask { token, .. } => streams.on_ask(now_ns, peer, token),
            ControlFrame::Acknowledge {
                instance,
                record,
                horizon,
                latest,
                waited_us,
                missing,
                ..
            } => {
                let waited_ns = u64::from(waited_us) * 1000;
                let acknowledged =
                    Acknowledged { number, instance, horizon, latest, waited_ns, missing };
                streams.on_acknowledged(now_ns, peer, record, &acknowledged, &mut self.left);
                self.after_reliable();
            }
            ControlFrame::Error { reason, .. } => {
                streams.on_refused(peer, number, reason, &mut self.left);
                self.after_reliable();
            }
            ControlFrame::Cancel { reason, key, .. } => {
                self.with_streams(peer, from, |streams, host, _| {
                    streams.on_cancel(now_ns, host, (number, key), reason);
                });
                self.answer(now_ns, peer);
            }
            _ => {}
        }
    }

    /// Answers the READs of a peer that are whole and whose turn it is.
    fn answer(&mut self, now_ns: u64, peer: PeerId) {
        for request in std::mem::take(&mut self.requests) {
            let ReadRequest { source_stag: key, source_offset: offset, length, .. } = request;
            let flags =
                RecordFlags { is_answer: true, is_reliable: true, ..RecordFlags::default() };
            let header =
                Header::Record { key: request.sink_stag, offset: request.sink_offset, flags };
            let waiting = self.reliable.as_ref().map_or(0, reliable::Reliable::messages);
            let is_busy = waiting >= self.config.answers_max;
            let refused =
                if is_busy { Some(ControlReason::Busy) } else { self.why_not(peer, &request) };
            let left_ns = u64::from(request.time_left_us) * 1000;
            let deadline_ns = (left_ns > 0).then(|| now_ns.saturating_add(left_ns));
            let data = match refused {
                Some(_) => Data::Buffer(SendBuffer::from(Vec::new())),
                None => Data::Read { keys: self.keys.clone(), peer: peer.number(), key, offset },
            };
            let answer = Message { deadline_ns, ..Message::new(header, data, length) };
            self.send_reliably(now_ns, peer, answer, refused);
        }
    }

    /// Why a peer may not read, if it may not.
    fn why_not(&self, peer: PeerId, request: &ReadRequest) -> Option<ControlReason> {
        let start = request.source_offset;
        let Some(end) = start.checked_add(request.length.into()) else {
            return Some(ControlReason::Bounds);
        };
        let pinned =
            self.keys.pin(request.source_stag, peer.number(), Rights::REMOTE_READ, start..end);
        let discard = pinned.err().map(|error| of_key(&error))?;
        Some(discard.reason().unwrap_or(ControlReason::Key))
    }

    /// What the streams have ended completes, and what belongs to peers in error.
    pub(super) fn after_reliable(&mut self) {
        let Some(streams) = &mut self.reliable else { return };
        for (peer, failure) in streams.take_failures() {
            self.reads.fail(peer, failure, &mut self.done);
        }
        for (peer, address, mut into) in streams.take_over() {
            self.with_streams(peer, address, |_, host, _| into.end(host));
        }
        self.take_left();
    }

    /// Ends all streams.
    pub(super) fn end_streams(&mut self) {
        let Some(streams) = &mut self.reliable else { return };
        streams.flush(&mut self.left);
        for (peer, address) in streams.peers() {
            self.with_streams(peer, address, |streams, host, _| streams.end(host));
        }
        self.take_left();
    }
}
