//! A datagram queue pair: work requests in, packets out; packets in, completions out.
//!
//! It is ready to send when it is made (datagram-iWARP 2.1.2): there is no connection and nothing to negotiate. Every
//! work request names its peer, every completion its source. A send or Write-Record is done when its packets
//! were handed out, without a promise (2.1.1).

mod network;
mod reliable;
mod sealed;
mod stats;

pub use network::Parsed;
pub use stats::Stats;

use crate::config::Config;
use crate::errors::{Errors, MessageError};
use crate::feedback::Counts;
use crate::groups::Repair;
use crate::incoming::Incoming;
use crate::map::ValidMemory;
use crate::outgoing::{Left, Message, Outgoing};
use crate::peers::{Numbered, PeerId, Peers, is_group};
use crate::reads::Reads;
use crate::reliable::Reliable;
use crate::run::{Data, Header, Run};
use crate::sealing::SEAL_BYTES;
use crate::work::{Done, Failure, Operation, PostError, RecvWork, SendWork, Target, Verb};
use core::net::{IpAddr, SocketAddr};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::{KeyTable, Slices};
use lacuna_secure::datagram::Keyring;
use lacuna_wire::ddp::{self, About, ControlFrame, ReadRequest, RecordFlags, Space};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Control packets that wait, at most.
const CONTROL_MAX: usize = 1024;

/// See the module's text.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    keys: Arc<KeyTable>,
    peers: Peers,
    /// Of a queue pair whose datagrams are sealed.
    keyring: Option<Keyring>,
    /// What the last of those who are no peers yet have asked, so that they are answered from there. Oldest first.
    strangers: VecDeque<(SocketAddr, IpAddr)>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// What has come of sources that ask for it.
    counts: Counts,
    reads: Reads,
    /// With everything that is sent until it has come; `None` of an unreliable queue pair.
    reliable: Option<Reliable>,
    /// READs of a peer that came reliably and are to be answered.
    requests: Vec<ReadRequest>,
    /// Keys of regions, by the names that sources know.
    names: HashMap<u32, u32>,
    errors: Errors,
    control: VecDeque<(SocketAddr, Vec<u8>)>,
    done: VecDeque<Done>,
    left: Vec<Left>,
    next_read: u32,
    random: u64,
    /// Packets are being made of what was polled.
    is_emitting: bool,
    is_closed: bool,
    stats: Stats,
}

impl Endpoint {
    /// A queue pair, ready to send. The same seed gives the same numbers.
    #[must_use]
    pub fn new(config: Config, keys: Arc<KeyTable>, seed: u64) -> Self {
        Self::with_keyring(config, keys, seed, None)
    }

    /// The same, whose datagrams are sealed. Packets are no longer for that: their payload is shorter.
    #[must_use]
    pub fn sealed(config: Config, keys: Arc<KeyTable>, seed: u64, keyring: Keyring) -> Self {
        let packet_bytes_max = config.packet_bytes_max.saturating_sub(SEAL_BYTES);
        Self::with_keyring(Config { packet_bytes_max, ..config }, keys, seed, Some(keyring))
    }

    fn with_keyring(
        config: Config,
        keys: Arc<KeyTable>,
        seed: u64,
        keyring: Option<Keyring>,
    ) -> Self {
        let mut random = seed;
        let next_read = draw(&mut random);
        Self {
            peers: Peers::new(config.peers_max, seed ^ 0x9e37_79b9_7f4a_7c15),
            keyring,
            strangers: VecDeque::new(),
            outgoing: Outgoing::new(config.pace(), config.packet_bytes_max, config.group_repairs),
            counts: Counts::default(),
            incoming: Incoming::new(keys.clone(), config.open, config.records_max, seed),
            reads: Reads::default(),
            reliable: config
                .reliable
                .map(|reliable| Reliable::new(reliable, config.packet_bytes_max, seed)),
            requests: Vec::new(),
            names: HashMap::new(),
            errors: Errors::default(),
            control: VecDeque::new(),
            done: VecDeque::new(),
            left: Vec::new(),
            next_read,
            random,
            is_emitting: false,
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
        self.free_peers();
        let peer = self.peers.find_or_add(address)?;
        self.peers.hold(peer, true);
        Some(peer)
    }

    /// Several hosts as one peer: a multicast group, or a broadcast address. What is sent to it goes to all that have
    /// joined, once each; gaps are repaired as far as that goes. `None` if all handles are held.
    pub fn group(&mut self, address: SocketAddr) -> Option<PeerId> {
        let peer = self.peer(address)?;
        self.peers.set_group(peer);
        Some(peer)
    }

    /// Whether what is posted to a peer goes to a group. Its bytes are kept for a while after it has completed, as its
    /// receivers may ask for them again.
    #[must_use]
    pub fn is_group(&self, peer: PeerId) -> bool {
        self.peers.is_group(peer)
    }

    /// A name for a region of this end: Write-Records to a group name one, and each receiver has it at a place of its
    /// own. Without a key the name is nobody's any more.
    pub fn name_region(&mut self, name: u32, key: Option<u32>) {
        match key {
            Some(key) => self.names.insert(name, key),
            None => self.names.remove(&name),
        };
    }

    /// Tells a peer up to where has been sent, once that has left: it notices then which messages were lost last.
    pub fn say_sent(&mut self, peer: PeerId) {
        if self.reliable.is_none() && !self.outgoing.say_after(&self.peers, peer) {
            self.say_now(peer);
        }
    }

    fn say_now(&mut self, peer: PeerId) {
        let Some(address) = self.peers.address(peer) else { return };
        let group = self.peers.group(peer);
        let spaces = match group {
            0 => [(Numbered::Sends, Space::Sends), (Numbered::Records, Space::Records)],
            _ => [(Numbered::Sends, Space::GroupSends), (Numbered::Records, Space::GroupRecords)],
        };
        let mut frames = Vec::new();
        for (numbered, space) in spaces {
            if let Some(number) = self.peers.last_number(peer, numbered) {
                let about = About { space, number };
                ddp::emit_control(&ControlFrame::Sent { about, group }, &mut frames);
            }
        }
        if self.control.len() < CONTROL_MAX {
            self.control.push_back((address, frames));
        }
    }

    /// Gives a handle back: the peer may go when others need its place, and no READ waits for it.
    pub fn forget(&mut self, peer: PeerId) {
        self.peers.hold(peer, false);
    }

    /// Peers may go whose READs are over.
    fn free_peers(&mut self) {
        for peer in self.reads.take_freed() {
            self.peers.keep_for_reads(peer, false);
        }
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
    pub fn post_recv(&mut self, now_ns: u64, work: RecvWork) -> Result<(), PostError> {
        if self.is_closed {
            return Err(PostError::Closed);
        }
        self.incoming.post(work);
        if let Some(reliable) = &mut self.reliable {
            reliable.on_receive(now_ns);
        }
        Ok(())
    }

    /// Ends the error of a peer, so that work can be posted to it again. Only reliable queue pairs have such errors.
    pub fn reset(&mut self, peer: PeerId) {
        if let Some(reliable) = &mut self.reliable {
            reliable.reset(&mut self.peers, peer);
        }
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
        let address = self.peers.address(to).ok_or(PostError::Peer)?;
        if is_group(address) {
            self.peers.set_group(to);
        }
        let group = self.peers.group(to);
        if let Some(reliable) = &mut self.reliable {
            if group != 0 {
                return Err(PostError::Group { address });
            }
            if let Some(failure) = reliable.failed(to) {
                return Err(PostError::Failed(failure));
            }
            if !reliable.make(now_ns, &mut self.peers, to) {
                return Err(PostError::Streams { streams: reliable.len() });
            }
        }
        let bytes = match &verb {
            Verb::Send { data }
            | Verb::WriteRecord { data, .. }
            | Verb::WriteNamed { data, .. } => data.len() as u64,
            Verb::Read { into, .. } => into.len(),
        };
        let length = u32::try_from(bytes).map_err(|_| PostError::TooLong { bytes })?;
        let is_reliable = self.reliable.is_some();
        let (header, data, operation, numbered) = match verb {
            Verb::Send { data } => {
                (Header::Send { is_solicited }, data, Operation::Send, Numbered::Sends)
            }
            Verb::WriteRecord { data, to } => {
                let flags = RecordFlags { is_solicited, is_reliable, ..RecordFlags::default() };
                let header = Header::Record { key: to.key, offset: to.offset, flags };
                (header, data, Operation::WriteRecord, Numbered::Records)
            }
            Verb::WriteNamed { data, name, offset } => {
                let flags = RecordFlags {
                    is_solicited,
                    is_reliable,
                    is_named: true,
                    ..RecordFlags::default()
                };
                let header = Header::Record { key: name, offset, flags };
                (header, data, Operation::WriteRecord, Numbered::Records)
            }
            Verb::Read { into, from } => {
                if group != 0 {
                    return Err(PostError::Group { address });
                }
                self.read(now_ns, (id, to), (into, from), deadline_ns);
                return Ok(());
            }
        };
        let message = Message {
            id,
            operation: Some(operation),
            is_signaled,
            deadline_ns,
            group,
            ..Message::new(header, Data::Buffer(data), length)
        };
        if !is_reliable {
            let number = self.peers.next_number(to, numbered).ok_or(PostError::Peer)?;
            self.outgoing.push(now_ns, &mut self.peers, to, Message { number, ..message });
            return Ok(());
        }
        self.send_reliably(now_ns, to, message, None);
        Ok(())
    }

    /// Asks for bytes of a peer.
    fn read(
        &mut self,
        now_ns: u64,
        (id, to): (u64, PeerId),
        (into, from): (Slices, Target),
        deadline_ns: Option<u64>,
    ) {
        self.peers.keep_for_reads(to, true);
        let mut sink = draw(&mut self.random);
        while self.reads.has(sink) {
            sink = draw(&mut self.random);
        }
        let left_ns = deadline_ns.map(|ns| ns.saturating_sub(now_ns));
        let request = ReadRequest {
            sink_stag: sink,
            sink_offset: 0,
            length: into.len() as u32,
            source_stag: from.key,
            source_offset: from.offset,
            time_left_us: left_ns
                .map_or(0, |ns| u32::try_from(ns / 1000).unwrap_or(u32::MAX).max(1)),
        };
        let data = SendBuffer::from(request.emit().to_vec());
        let length = data.len() as u32;
        let question =
            Message { deadline_ns, ..Message::new(Header::Request, Data::Buffer(data), length) };
        if self.reliable.is_some() {
            self.reads.open(sink, sink, (id, to), into, deadline_ns);
            self.send_reliably(now_ns, to, question, None);
            return;
        }
        let number = self.next_read;
        self.next_read = number.wrapping_add(1);
        self.reads.open(number, sink, (id, to), into, deadline_ns);
        self.outgoing.push(now_ns, &mut self.peers, to, Message { number, ..question });
    }

    /// The next completion.
    pub fn poll_done(&mut self) -> Option<Done> {
        let done = self.done.pop_front()?;
        self.incoming.records.used -= usize::from(done.operation == Operation::Record);
        Some(done)
    }

    /// The next completion that is no Write-Record's; what those have written before it becomes part of `memory`.
    pub fn poll_memory(&mut self, memory: &mut ValidMemory) -> Option<Done> {
        loop {
            let done = self.poll_done()?;
            if !memory.add(&done) {
                return Some(done);
            }
        }
    }

    /// Write-Records that are open or wait to be polled.
    #[must_use]
    pub fn records(&self) -> usize {
        self.incoming.records.used
    }

    /// How many there may be; those that are there already stay.
    pub fn set_records_max(&mut self, records_max: usize) {
        self.incoming.records.max = records_max;
    }

    /// Work requests of the send queue that have not completed, at most; READs of peers are among them.
    #[must_use]
    pub fn open_sends(&self) -> usize {
        self.outgoing.messages()
            + self.left.len()
            + self.reads.len()
            + self.reliable.as_ref().map_or(0, Reliable::messages)
    }

    /// The next error.
    pub fn poll_error(&mut self) -> Option<MessageError> {
        self.errors.poll()
    }

    /// Ends it: everything that was posted completes, flushed.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.end_streams();
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
                is_signaled: true,
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
            messages_waiting: self.outgoing.messages()
                + self.reliable.as_ref().map_or(0, Reliable::messages),
            messages_open: self.incoming.open()
                + self.reads.len()
                + self.reliable.as_ref().map_or(0, Reliable::open),
            messages_whole: self.incoming.counts.whole,
            messages_partial: self.incoming.counts.partial,
            messages_missed: self.incoming.counts.missed,
            messages_evicted: self.incoming.counts.evicted,
            errors_dropped: self.errors.dropped,
            errors_silenced: self.errors.silenced,
            streams: self.reliable.as_ref().map_or(0, Reliable::len),
            bytes_again: self.stats.bytes_again
                + self.reliable.as_ref().map_or(0, |reliable| reliable.bytes_again),
            peers_failed: self.reliable.as_ref().map_or(0, |reliable| reliable.peers_failed),
            sealed: self.keyring.as_ref().map_or_else(Default::default, Keyring::stats),
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

    /// The next packets for one address, at most so many, or two where a word about them goes with one; none of none.
    /// `runs` gets them.
    /// What the last call gave has been made into packets by now, or never will be ([`Endpoint::on_emitted`]).
    pub fn poll_transmit(
        &mut self,
        now_ns: u64,
        packets_max: usize,
        runs: &mut Vec<Run>,
    ) -> Option<SocketAddr> {
        self.on_emitted();
        let to = self.poll_runs(now_ns, packets_max, runs);
        self.is_emitting = to.is_some();
        self.take_left();
        to
    }

    /// What [`Endpoint::poll_transmit`] gave has been made into packets, or never will be. Until then no work request
    /// completes: packets may be made of its bytes, and who hears that it is done may change them.
    pub fn on_emitted(&mut self) {
        self.is_emitting = false;
        self.take_left();
    }

    fn poll_runs(
        &mut self,
        now_ns: u64,
        packets_max: usize,
        runs: &mut Vec<Run>,
    ) -> Option<SocketAddr> {
        if packets_max == 0 {
            return None;
        }
        if let Some(to) = self.poll_greeting(runs) {
            return Some(to);
        }
        while let Some((to, frames)) = self.control.pop_front() {
            if !self.has_keys(now_ns, to) {
                // Whom it was for has been forgotten, and so has what it speaks of.
                continue;
            }
            runs.push(Run::control(frames));
            self.stats.packets_sent += 1;
            return Some(to);
        }
        let Self { reliable, keyring, .. } = self;
        if let Some(reliable) = reliable {
            let to = reliable.poll(now_ns, packets_max, runs, keyring.as_mut());
            if to.is_none() {
                // Where there were no keys, somebody is asked.
                return self.poll_greeting(runs);
            }
            self.stats.packets_sent += runs.iter().map(|run| run.len() as u64).sum::<u64>();
            return to;
        }
        let Self { outgoing, peers, left, keyring, .. } = self;
        let keyring = keyring.as_mut();
        let to = outgoing.poll(now_ns, peers, packets_max, runs, left, keyring);
        while let Some(peer) = self.outgoing.poll_word() {
            self.say_now(peer);
        }
        let has_greetings = self.keyring.as_ref().is_some_and(Keyring::has_packets);
        if to.is_none() && (!self.control.is_empty() || has_greetings) {
            // Nothing was left of what it stood behind, or there were no keys and somebody is asked.
            return self.poll_runs(now_ns, packets_max, runs);
        }
        self.stats.packets_sent += runs.iter().map(|run| run.len() as u64).sum::<u64>();
        to
    }

    /// A peer has sent to this address of the host, which is the one to answer from; `None` if it cannot be.
    pub fn on_asked_at(&mut self, from: SocketAddr, local: Option<IpAddr>) {
        self.peers.set_local(from, local);
        if self.keyring.is_some() && self.peers.find(from).is_none() {
            self.note_stranger(from, local);
        }
    }

    /// The address of this host that packets to a peer leave from, if it has asked one.
    #[must_use]
    pub fn leaves_from(&self, to: SocketAddr) -> Option<IpAddr> {
        self.peers.local(to).or_else(|| self.stranger_asked(to))
    }

    /// Whether packets may leave at once.
    #[must_use]
    pub fn has_packets(&self) -> bool {
        !self.control.is_empty()
            || self.keyring.as_ref().is_some_and(Keyring::has_packets)
            || self.outgoing.is_ready()
            || self.reliable.as_ref().is_some_and(Reliable::is_ready)
    }

    fn take_left(&mut self) {
        if self.is_emitting {
            return;
        }
        for Left { id, peer, operation, status, bytes, is_signaled } in self.left.drain(..) {
            self.stats.messages_sent += u64::from(status.is_ok());
            if is_signaled || status.is_err() {
                let arrived = None;
                self.done.push_back(Done {
                    id,
                    operation,
                    peer,
                    status,
                    bytes,
                    is_signaled,
                    arrived,
                });
            }
        }
    }

    /// When [`Endpoint::on_timeout`] is to be called, or packets may leave that have to wait now.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let all = [
            self.incoming.poll_timeout(),
            self.reads.poll_timeout(),
            self.outgoing.poll_timeout(),
            self.reliable.as_ref().and_then(Reliable::poll_timeout),
            self.keyring.as_ref().and_then(Keyring::poll_timeout),
        ];
        all.into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now_ns: u64) {
        if let Some(keyring) = &mut self.keyring {
            keyring.on_timeout(now_ns);
            self.after_keyring();
        }
        self.free_peers();
        let Self { incoming, peers, done, reads, .. } = self;
        let mut asks = Vec::new();
        incoming.on_timeout(now_ns, peers, done, &mut asks);
        reads.on_timeout(now_ns, done);
        if let Some(reliable) = &mut self.reliable {
            reliable.on_timeout(now_ns, peers, reads, &mut self.left);
            self.after_reliable();
        }
        self.outgoing.on_timeout(now_ns, &mut self.left);
        self.take_left();
        asks.truncate(CONTROL_MAX.saturating_sub(self.control.len()));
        self.control.extend(asks);
        self.repair(now_ns);
    }

    /// Sends again what receivers of groups ask for.
    fn repair(&mut self, now_ns: u64) {
        let mut repairs = Vec::new();
        self.outgoing.kepts.on_timeout(now_ns, &mut repairs);
        for repair in repairs {
            match repair {
                Repair::Bytes { group, asker, message } => {
                    let to = match asker {
                        None => Some(group),
                        Some(asker) => self.peers.find_or_add(asker),
                    };
                    if let Some(to) = to {
                        self.stats.bytes_again += u64::from(message.end - message.next);
                        self.outgoing.push(now_ns, &mut self.peers, to, message);
                    }
                }
                Repair::Word { group } => self.say_sent(group),
            }
        }
    }
}

pub(crate) fn draw(random: &mut u64) -> u32 {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*random >> 32) as u32
}
