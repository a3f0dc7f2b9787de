//! A datagram queue pair: work requests in, packets out; packets in, completions out.
//!
//! It is ready to send when it is made (datagram-iWARP 2.1.2): there is no connection and nothing to negotiate. Every
//! work request names its peer, every completion its source. A send or Write-Record is done when its packets
//! were handed out, without a promise (2.1.1).

use crate::config::Config;
use crate::errors::{Errors, MessageError};
use crate::incoming::{Discard, Discards, Incoming, SendSegment, stranger};
use crate::outgoing::{Left, Message, Outgoing};
use crate::peers::{Numbered, PeerId, Peers};
use crate::reads::Reads;
use crate::run::{Data, Header, Run};
use crate::work::{Done, Failure, Operation, PostError, RecvWork, SendWork, Verb};
use core::net::SocketAddr;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::{KeyTable, Rights};
use lacuna_wire::ddp::{
    self, About, ControlFrame, ControlFrames, DdpError, DdpErrorKind, ReadRequest, RecordFlags,
    Segment, Space, Tagged, Untagged,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// Control packets that wait, at most.
const CONTROL_MAX: usize = 1024;

/// What a datagram queue pair did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Peers that are known.
    pub peers: usize,
    /// Peers with something to send.
    pub active_peers: usize,
    /// Peers that went for others.
    pub peers_evicted: u64,
    /// Messages that wait to be sent.
    pub messages_waiting: usize,
    /// Messages from here that were handed to the network.
    pub messages_sent: u64,
    /// Packets of them, and of control.
    pub packets_sent: u64,
    /// Packets that came and were taken.
    pub packets_taken: u64,
    /// Bytes of messages in them.
    pub bytes_taken: u64,
    /// Messages that came whole, Sends and Write-Records.
    pub messages_whole: u64,
    /// Write-Records that ended with something missing.
    pub messages_partial: u64,
    /// Messages of which nothing came, as far as their numbers tell.
    pub messages_missed: u64,
    /// Messages that are open.
    pub messages_open: usize,
    /// Messages that were closed as there were too many open.
    pub messages_evicted: u64,
    /// Segments that were dropped.
    pub discards: Discards,
    /// Datagrams that are no packets, by [`DdpErrorKind`].
    pub rejected: [u64; DdpErrorKind::COUNT],
    /// Errors that found the queue full.
    pub errors_dropped: u64,
    /// Errors that their source was not told, as it was told enough.
    pub errors_silenced: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    keys: Arc<KeyTable>,
    peers: Peers,
    outgoing: Outgoing,
    incoming: Incoming,
    reads: Reads,
    errors: Errors,
    control: VecDeque<(SocketAddr, Vec<u8>)>,
    done: VecDeque<Done>,
    left: Vec<Left>,
    next_read: u32,
    random: u64,
    is_closed: bool,
    stats: Stats,
}

impl Endpoint {
    /// A queue pair, ready to send. The same seed gives the same numbers.
    #[must_use]
    pub fn new(config: Config, keys: Arc<KeyTable>, seed: u64) -> Self {
        let mut random = seed;
        let next_read = draw(&mut random);
        Self {
            peers: Peers::new(config.peers_max, seed ^ 0x9e37_79b9_7f4a_7c15),
            outgoing: Outgoing::default(),
            incoming: Incoming::new(keys.clone(), config.open),
            reads: Reads::default(),
            errors: Errors::default(),
            control: VecDeque::new(),
            done: VecDeque::new(),
            left: Vec::new(),
            next_read,
            random,
            is_closed: false,
            stats: Stats::default(),
            config,
            keys,
        }
    }

    // ---- the application ----

    /// The peer with this address: an address handle, which stays until it is given back
    /// ([`Endpoint::forget`]). Equal addresses are one handle. `None` if all handles are held.
    pub fn peer(&mut self, address: SocketAddr) -> Option<PeerId> {
        let peer = self.peers.find_or_add(address)?;
        self.peers.hold(peer, true);
        Some(peer)
    }

    /// Gives a handle back: the peer may go when others need its place.
    pub fn forget(&mut self, peer: PeerId) {
        self.peers.hold(peer, false);
    }

    /// The address of a peer, if it is known.
    #[must_use]
    pub fn address(&self, peer: PeerId) -> Option<SocketAddr> {
        self.peers.address(peer)
    }

    /// Posts a receive, for a Send of anybody.
    ///
    /// # Errors
    /// When the queue pair is closed.
    pub fn post_recv(&mut self, work: RecvWork) -> Result<(), PostError> {
        if self.is_closed {
            return Err(PostError::Closed);
        }
        self.incoming.post(work);
        Ok(())
    }

    /// Posts a work request. Those to one peer are done in order.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then.
    pub fn post_send(&mut self, now_ns: u64, work: SendWork) -> Result<(), PostError> {
        if self.is_closed {
            return Err(PostError::Closed);
        }
        let SendWork { id, to, verb, is_signaled, is_solicited, deadline_ns } = work;
        if self.peers.address(to).is_none() {
            return Err(PostError::Peer);
        }
        let bytes = match &verb {
            Verb::Send { data } | Verb::WriteRecord { data, .. } => data.len() as u64,
            Verb::Read { into, .. } => into.len(),
        };
        let length = u32::try_from(bytes).map_err(|_| PostError::TooLong { bytes })?;
        let (header, data, numbered, operation) = match verb {
            Verb::Send { data } => {
                (Header::Send { is_solicited }, data, Numbered::Sends, Operation::Send)
            }
            Verb::WriteRecord { data, to } => {
                let flags = RecordFlags { is_solicited, ..RecordFlags::default() };
                let header = Header::Record { key: to.key, offset: to.offset, flags };
                (header, data, Numbered::Records, Operation::WriteRecord)
            }
            Verb::Read { into, from } => {
                let number = self.next_read;
                self.next_read = number.wrapping_add(1);
                let sink = draw(&mut self.random);
                let left_ns = deadline_ns.map(|ns| ns.saturating_sub(now_ns));
                let time_left_us =
                    left_ns.map_or(0, |ns| u32::try_from(ns / 1000).unwrap_or(u32::MAX).max(1));
                let request = ReadRequest {
                    sink_stag: sink,
                    sink_offset: 0,
                    length,
                    source_stag: from.key,
                    source_offset: from.offset,
                    time_left_us,
                };
                self.reads.open(number, sink, (id, to), into, deadline_ns);
                let data = SendBuffer::from(request.emit().to_vec());
                self.send(to, number, Header::Request, Data::Buffer(data), None, deadline_ns, id);
                return Ok(());
            }
        };
        let number = self.peers.next_number(to, numbered).ok_or(PostError::Peer)?;
        let message = Message {
            id,
            header,
            number,
            data: Data::Buffer(data),
            length,
            next: 0,
            operation: Some(operation),
            is_signaled,
            deadline_ns,
        };
        self.outgoing.push(&mut self.peers, to, message);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "of two callers")]
    fn send(
        &mut self,
        to: PeerId,
        number: u32,
        header: Header,
        data: Data,
        length: Option<u32>,
        deadline_ns: Option<u64>,
        id: u64,
    ) {
        let of_data = match &data {
            Data::Buffer(buffer) => buffer.len() as u32,
            Data::Read { .. } => 0,
        };
        let message = Message {
            id,
            header,
            number,
            data,
            length: length.unwrap_or(of_data),
            next: 0,
            operation: None,
            is_signaled: false,
            deadline_ns,
        };
        self.outgoing.push(&mut self.peers, to, message);
    }

    /// The next completion.
    pub fn poll_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// The next error.
    pub fn poll_error(&mut self) -> Option<MessageError> {
        self.errors.poll()
    }

    /// Ends it: everything that was posted completes, flushed.
    pub fn close(&mut self) {
        self.is_closed = true;
        let Self { outgoing, peers, left, .. } = self;
        outgoing.flush(peers, left);
        self.take_left();
        self.reads.flush(&mut self.done);
        let nobody = PeerId::NOBODY;
        for RecvWork { id, .. } in self.incoming.flush() {
            self.done.push_back(Done {
                id,
                operation: Operation::Receive,
                peer: nobody,
                status: Err(Failure::Flushed),
                bytes: 0,
                arrived: None,
            });
        }
    }

    /// A snapshot of the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            peers: self.peers.len(),
            active_peers: self.outgoing.active_peers(),
            peers_evicted: self.peers.evicted(),
            messages_waiting: self.outgoing.messages(),
            messages_open: self.incoming.open() + self.reads.len(),
            messages_whole: self.incoming.counts.whole,
            messages_partial: self.incoming.counts.partial,
            messages_missed: self.incoming.counts.missed,
            messages_evicted: self.incoming.counts.evicted,
            errors_dropped: self.errors.dropped,
            errors_silenced: self.errors.silenced,
            ..self.stats
        }
    }

    /// Receives that no message has taken.
    #[must_use]
    pub fn receives(&self) -> usize {
        self.incoming.receives()
    }

    /// Peers that are known.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Bytes that the peers take.
    #[must_use]
    pub fn peer_bytes(&self) -> usize {
        self.peers.memory_bytes()
    }

    // ---- the network ----

    /// A datagram came.
    pub fn on_datagram(&mut self, now_ns: u64, from: SocketAddr, datagram: &[u8]) {
        let parsed = ddp::parse(datagram).and_then(|parsed| ddp::check(datagram).map(|()| parsed));
        let (segment, payload) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.reject(&error),
        };
        let taken = match segment {
            Segment::Tagged(tagged) if tagged.flags.is_answer => {
                self.on_answer(from, &tagged, payload)
            }
            Segment::Tagged(tagged) => {
                let Self { incoming, peers, done, .. } = self;
                let taken = incoming.on_record(now_ns, peers, from, &tagged, payload, done);
                let about = About { space: Space::Records, number: tagged.number };
                taken.map_err(|discard| (discard, about))
            }
            Segment::Untagged(untagged) => self.on_untagged(now_ns, from, &untagged, payload),
        };
        match taken {
            Ok(()) => {
                self.stats.packets_taken += 1;
                self.stats.bytes_taken += payload.len() as u64;
            }
            Err((discard, about)) => self.refuse(now_ns, from, discard, about, datagram.len()),
        }
    }

    fn on_untagged(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        untagged: &Untagged,
        payload: &[u8],
    ) -> Result<(), (Discard, About)> {
        let Untagged { operation, number, length, place } = *untagged;
        let is_solicited = operation == ddp::Operation::SendSolicited;
        match operation {
            ddp::Operation::Send | ddp::Operation::SendSolicited => {
                let segment = SendSegment { number, length, place, is_solicited };
                let Self { incoming, peers, done, .. } = self;
                let taken = incoming.on_send(now_ns, peers, from, segment, payload, done);
                taken.map_err(|discard| (discard, About { space: Space::Sends, number }))
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
                self.on_control(now_ns, from, payload);
                Ok(())
            }
            ddp::Operation::WriteRecord => Ok(()),
        }
    }

    fn on_answer(
        &mut self,
        from: SocketAddr,
        tagged: &Tagged,
        payload: &[u8],
    ) -> Result<(), (Discard, About)> {
        let about = About { space: Space::Reads, number: tagged.number };
        let answered = self
            .peers
            .find(from)
            .and_then(|peer| self.reads.on_answer(peer, tagged, payload, &mut self.done));
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
        pinned.map_err(|error| crate::incoming::of_key(&error))?;
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
        self.send(peer, number, header, data, Some(length), deadline_ns, 0);
        Ok(())
    }

    fn on_control(&mut self, now_ns: u64, from: SocketAddr, payload: &[u8]) {
        // Only what is known here can be spoken of.
        let Some(peer) = self.peers.find(from) else { return };
        for frame in ControlFrames::new(payload) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return self.reject(&error),
            };
            let about = frame.about();
            let numbered = match about.space {
                Space::Sends => Some(Numbered::Sends),
                Space::Records => Some(Numbered::Records),
                Space::Reads => None,
            };
            match (frame, numbered) {
                (ControlFrame::Error { reason, .. }, None)
                    if self.reads.peer_of(about.number) == Some(peer) =>
                {
                    let failure = Failure::Peer(reason);
                    self.done.extend(self.reads.close(about.number, Err(failure)));
                }
                (ControlFrame::Error { reason, .. }, Some(_)) => {
                    self.errors.push(MessageError { peer: from, about, reason, is_told: true });
                }
                (ControlFrame::Cancel { .. }, Some(numbered)) => {
                    let Self { incoming, done, .. } = self;
                    incoming.on_word(now_ns, peer, numbered, about.number, true, done);
                }
                (ControlFrame::Sent { .. }, Some(numbered)) => {
                    let Self { incoming, done, .. } = self;
                    incoming.on_word(now_ns, peer, numbered, about.number, false, done);
                }
                _ => {}
            }
        }
    }

    fn reject(&mut self, error: &DdpError) {
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
        let Some(reason) = discard.reason() else { return };
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

    /// The next packets for one address, at most so many; `runs` gets them.
    pub fn poll_transmit(
        &mut self,
        now_ns: u64,
        packets_max: usize,
        runs: &mut Vec<Run>,
    ) -> Option<SocketAddr> {
        if let Some((to, frames)) = self.control.pop_front() {
            runs.push(Run::control(frames));
            self.stats.packets_sent += 1;
            return Some(to);
        }
        let limits = (packets_max, self.config.packet_bytes_max);
        let rate = self.config.rate_bits_per_s;
        let Self { outgoing, peers, left, .. } = self;
        let to = outgoing.poll(now_ns, peers, limits, rate, runs, left);
        self.take_left();
        self.stats.packets_sent += runs.iter().map(|run| run.len() as u64).sum::<u64>();
        to
    }

    /// Whether packets may leave at once.
    #[must_use]
    pub fn has_packets(&self) -> bool {
        !self.control.is_empty() || self.outgoing.is_ready()
    }

    fn take_left(&mut self) {
        for Left { id, peer, operation, status, bytes, is_signaled } in self.left.drain(..) {
            self.stats.messages_sent += u64::from(status.is_ok());
            if is_signaled || status.is_err() {
                self.done.push_back(Done { id, operation, peer, status, bytes, arrived: None });
            }
        }
    }

    /// When [`Endpoint::on_timeout`] is to be called, or packets may leave that have to wait now.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let all =
            [self.incoming.poll_timeout(), self.reads.poll_timeout(), self.outgoing.poll_timeout()];
        all.into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now_ns: u64) {
        let Self { incoming, peers, done, reads, .. } = self;
        incoming.on_timeout(now_ns, peers, done);
        reads.on_timeout(now_ns, done);
    }
}

fn draw(random: &mut u64) -> u32 {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*random >> 32) as u32
}
