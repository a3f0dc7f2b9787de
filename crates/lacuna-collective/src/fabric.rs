//! The fabric over connections: each message is a message of a queue pair, whose record says which chunks are here.
//!
//! Progress is made by whoever polls: the context has no threads of its own, so nobody is woken for a chunk. Three queue
//! pairs of a connection carry messages:
//!
//! - the usual one, in the mode of the group;
//! - where that mode repairs nothing, another one for messages that have no deadline and have to be whole;
//! - the critical class: notes, and short messages without a deadline ([`crate::control`]).
//!
//! To compare, a reliable connection may carry all long messages instead ([`crate::rc`]).

use crate::control::{Came, Control, Number, SHORT_BYTES_MAX};
use crate::lane::{Lane, arrived};
use crate::pool::Buffers;
use crate::rc::RcLane;
use lacuna::controller::ControllerConfig;
use lacuna::rc::Repair;
use lacuna::{
    Class, Completed, Connection, Context, OfferedPool, OfferedSend, RecvHandle, SendHandle,
};
use lacuna_path::controller::SHORT_PATH_NS;
use lacuna_path::ranges::Ranges;
use lacuna_schedule::run::{Event, Fabric, FabricError, Posting, Reason, Token};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Between two looks whether peers live and sends have ended, which nobody waits for.
const LOOK_EVERY_NS: u64 = 1_000_000;
/// Longest wait for a peer's queue pair, before it is looked whether the peer lives.
const WAIT_AT_MOST: Duration = Duration::from_millis(20);
/// Bytes of a long offer that are copied before they are sent, so that they are still in the cache then.
const OFFER_BYTES: usize = 128 << 10;

struct Peer {
    connection: Connection,
    control: Control,
    usual: Lane,
    repaired: Option<Lane>,
    rc: Option<RcLane>,
    /// When this peer was last asked for something, which it answers if it lives.
    asked_ns: u64,
    has_failed: bool,
}

impl Peer {
    fn new(rank: usize, connection: Connection) -> Result<Self, FabricError> {
        let class = connection.class(Class::Critical).cloned();
        let class = class.ok_or_else(|| FabricError::Broken {
            cause: format!("the connection with rank {rank} has no critical class"),
        })?;
        let rtt_us = connection.chosen().rtt_us.unwrap_or(0);
        let is_long = rtt_us.saturating_mul(1000) >= SHORT_PATH_NS;
        let repaired = connection.class(Class::Repaired).cloned().map(Lane::new);
        let note_copies = if repaired.is_some() && is_long { 2 } else { 1 };
        Ok(Self {
            control: Control::new(class, note_copies)
                .map_err(|cause| FabricError::Peer { peer: rank, cause })?,
            usual: Lane::new(connection.queue_pair().clone()),
            repaired,
            connection,
            rc: None,
            asked_ns: 0,
            has_failed: false,
        })
    }

    fn lane(&mut self, is_bounded: bool) -> &mut Lane {
        match &mut self.repaired {
            Some(repaired) if !is_bounded => repaired,
            _ => &mut self.usual,
        }
    }

    fn is_waited_for(&self) -> bool {
        let mut lanes = self.repaired.iter().chain([&self.usual]);
        self.control.is_waited_for()
            || lanes.any(Lane::is_waited_for)
            || self.rc.as_ref().is_some_and(RcLane::is_waited_for)
    }

    fn failure(&self) -> Option<String> {
        let failure = self.connection.failure().or_else(|| self.control.queue_pair().failure());
        let repaired = || self.repaired.as_ref()?.queue_pair().failure();
        failure.or_else(repaired).map(|failure| failure.to_string())
    }
}

/// A receive, or what is left of it once it is over.
pub(crate) enum State {
    /// A short message that has not come.
    Short,
    Open {
        handle: RecvHandle,
        /// Words of the chunks' bitmap as they were seen.
        seen: Vec<u64>,
        /// All words before this one are full.
        first: usize,
        is_bounded: bool,
    },
    /// A message that is put together here.
    Filling(Vec<u8>),
    Over(Vec<u8>),
}

pub(crate) struct Receive {
    pub(crate) peer: usize,
    pub(crate) len_bytes: usize,
    pub(crate) state: State,
}

enum Send {
    Long(OfferedSend),
    /// What has been offered of a short one, which is sent whole.
    Short {
        peer: usize,
        number: Number,
        bytes: Vec<u8>,
        left: usize,
    },
    ShortSent(SendHandle),
    /// The number of a message to a peer, which tells its end itself.
    Rc(usize, u32),
}

impl Send {
    /// Whether it arrived, if it has ended.
    fn ended(&self) -> Option<bool> {
        let handle: &SendHandle = match self {
            Self::Long(send) => send,
            Self::ShortSent(handle) => handle,
            Self::Short { .. } | Self::Rc(..) => return None,
        };
        handle.is_done().then(|| matches!(handle.status().outcome, Some(Ok(()))))
    }
}

fn is_short(posting: &Posting) -> bool {
    posting.deadline_ns.is_none() && posting.len_bytes <= SHORT_BYTES_MAX
}

/// See the module's text.
pub(crate) struct Sockets {
    context: Context,
    begin: Instant,
    /// By rank; its own place is empty.
    peers: Vec<Option<Peer>>,
    /// Those that are not over have their turn in the order in which they were posted.
    receives: BTreeMap<Token, Receive>,
    sends: HashMap<Token, Send>,
    events: VecDeque<Event>,
    buffers: Buffers,
    offered: OfferedPool,
    chunk_bytes: usize,
    looked_ns: u64,
    /// How long a peer that is waited for may say nothing before it is asked whether it is there.
    ask_after_ns: u64,
}

impl Sockets {
    pub(crate) fn new(
        context: Context,
        connections: Vec<Option<Connection>>,
        silence: Duration,
    ) -> Result<Self, FabricError> {
        let chosen = |connection: &Connection| connection.chosen().chunk_bytes as usize;
        let chunk_bytes = connections.iter().flatten().map(chosen).max().unwrap_or(1);
        let peers = connections.into_iter().enumerate();
        let peers = peers.map(|(rank, connection)| {
            connection.map(|connection| Peer::new(rank, connection)).transpose()
        });
        Ok(Self {
            context,
            begin: Instant::now(),
            peers: peers.collect::<Result<_, _>>()?,
            receives: BTreeMap::new(),
            sends: HashMap::new(),
            events: VecDeque::new(),
            buffers: Buffers::default(),
            offered: OfferedPool::default(),
            chunk_bytes,
            looked_ns: 0,
            ask_after_ns: u64::try_from(silence.as_nanos() / 4).unwrap_or(u64::MAX),
        })
    }

    /// Long messages go over reliable connections from here on. All ranks call it, before anything else.
    pub(crate) fn use_rc(
        &mut self,
        repair: Repair,
        controller: ControllerConfig,
        timeout: Duration,
    ) -> Result<(), FabricError> {
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            let lane = RcLane::new(
                &self.context,
                &peer.connection,
                (repair, controller),
                self.chunk_bytes,
            )
            .map_err(|cause| of_peer(rank, cause))?;
            let info = lane.info(&peer.connection);
            peer.control.tell_lane(&info).map_err(|cause| of_peer(rank, cause))?;
            peer.rc = Some(lane);
        }
        let begin = Instant::now();
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            let info = loop {
                self.context.progress();
                match peer.control.next() {
                    Some(Came::Lane(info)) => break info,
                    // Of a peer that knows this rank's queue pair already.
                    Some(Came::Note(note)) => {
                        self.events.push_back(Event::Told { peer: rank, note });
                        continue;
                    }
                    Some(Came::Short(..)) => continue,
                    None => {}
                }
                if let Some(cause) = peer.failure() {
                    return Err(of_peer(rank, cause));
                }
                let left = timeout.saturating_sub(begin.elapsed());
                if left.is_zero() {
                    return Err(of_peer(rank, "it does not say where its queue pair is"));
                }
                self.context.progress_within(left.min(WAIT_AT_MOST));
            };
            if let Some(lane) = &peer.rc {
                lane.connect(&info, &peer.connection).map_err(|cause| of_peer(rank, cause))?;
            }
        }
        Ok(())
    }

    fn peer(&mut self, rank: usize) -> Result<&mut Peer, FabricError> {
        let broken = || FabricError::Broken { cause: format!("there is no peer {rank}") };
        self.peers.get_mut(rank).and_then(Option::as_mut).ok_or_else(broken)
    }

    /// Gives waiting receives of a peer the slots that are free.
    fn post_waiting(&mut self, rank: usize, is_bounded: bool) -> Result<(), FabricError> {
        let now_ns = self.now_ns();
        let Self { peers, buffers, receives, .. } = self;
        let Some(peer) = peers.get_mut(rank).and_then(Option::as_mut) else { return Ok(()) };
        peer.lane(is_bounded)
            .post_waiting(now_ns, buffers, receives)
            .map_err(|cause| FabricError::Peer { peer: rank, cause })
    }

    /// Looks what has come.
    fn look(&mut self) {
        self.context.progress();
        let now_ns = self.now_ns();
        let is_time = now_ns >= self.looked_ns + LOOK_EVERY_NS;
        // First: what came before a peer went is taken all the same.
        let gone = if is_time { self.gone() } else { Vec::new() };
        let mut over = Vec::new();
        for (token, receive) in &mut self.receives {
            let State::Open { handle, seen, first, .. } = &mut receive.state else { continue };
            if handle.reason().is_some() {
                over.push(*token);
            } else {
                arrived(*token, handle, (seen, first), receive.len_bytes, &mut self.events);
            }
        }
        for token in over {
            self.end(token);
        }
        for rank in 0..self.peers.len() {
            self.take_control(rank);
            let Some(lane) = self.peers[rank].as_mut().and_then(|peer| peer.rc.as_mut()) else {
                continue;
            };
            match lane.poll(&mut self.receives, &mut self.events) {
                Ok(arrived) => arrived.iter().for_each(|token| drop(self.sends.remove(token))),
                Err(cause) => self.fail(rank, cause),
            }
        }
        if is_time {
            self.looked_ns = now_ns;
            self.look_around(now_ns, gone);
        }
    }

    /// Peers whose connections have failed.
    fn gone(&self) -> Vec<(usize, String)> {
        let peers = self.peers.iter().enumerate();
        peers.filter_map(|(rank, peer)| Some((rank, peer.as_ref()?.failure()?))).collect()
    }

    fn end(&mut self, token: Token) {
        let Some(receive) = self.receives.get_mut(&token) else { return };
        let state = std::mem::replace(&mut receive.state, State::Over(Vec::new()));
        let State::Open { handle, is_bounded, .. } = state else { return };
        let rank = receive.peer;
        if let Some(peer) = self.peers[rank].as_mut() {
            peer.lane(is_bounded).close_one();
        }
        let Completed { buffer, len, reason, packets, .. } = handle.complete();
        let missing: Ranges<usize> = packets.gaps().collect();
        receive.state = State::Over(buffer);
        self.events.push_back(Event::Ended { token, reason, missing, len_bytes: len });
        if let Err(error) = self.post_waiting(rank, is_bounded) {
            self.fail(rank, error.to_string());
        }
    }

    /// Takes notes and short messages of a peer.
    fn take_control(&mut self, rank: usize) {
        while let Some(came) = self.peers[rank].as_mut().and_then(|peer| peer.control.next()) {
            let (token, message) = match came {
                Came::Note(note) => {
                    self.events.push_back(Event::Told { peer: rank, note });
                    continue;
                }
                Came::Lane(_) => continue,
                Came::Short(token, message) => (token, message),
            };
            // One that is not wanted any more took its turn all the same.
            let Some(receive) = self.receives.get_mut(&token) else { continue };
            let len = message.len();
            let missing = (len < receive.len_bytes).then_some(len..receive.len_bytes);
            receive.state = State::Over(message);
            self.events.push_back(Event::Ended {
                token,
                reason: Reason::Whole,
                missing: missing.into_iter().collect(),
                len_bytes: Some(len),
            });
        }
    }

    /// What nobody waits for.
    fn look_around(&mut self, now_ns: u64, gone: Vec<(usize, String)>) {
        let ended = |(token, send): (&Token, &Send)| Some((*token, send.ended()?));
        let ended: Vec<(Token, bool)> = self.sends.iter().filter_map(ended).collect();
        for (token, is_whole) in ended {
            self.sends.remove(&token);
            self.events.push_back(Event::Sent { token, is_whole });
        }
        // Who is not waited for may go. Whoever posts something for it later is told.
        let is_waited_for = |peer: &Peer| !peer.has_failed && peer.is_waited_for();
        for (rank, cause) in gone {
            if self.peers[rank].as_ref().is_some_and(is_waited_for) {
                self.fail(rank, cause);
            }
        }
        for peer in self.peers.iter_mut().flatten().filter(|peer| is_waited_for(peer)) {
            if now_ns >= peer.asked_ns.saturating_add(self.ask_after_ns) {
                // Who only waits would never learn that the other is gone. If this cannot be sent, the next look
                // finds out why.
                peer.asked_ns = now_ns;
                let _ = peer.control.ask();
            }
        }
    }

    fn fail(&mut self, rank: usize, cause: String) {
        if let Some(peer) = self.peers[rank].as_mut()
            && !std::mem::replace(&mut peer.has_failed, true)
        {
            self.events.push_back(Event::PeerFailed { peer: rank, cause });
        }
    }

    /// Whether anything that was sent has not arrived, as far as it is known.
    pub(crate) fn has_sends(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Waits until something may have come, for at most this long.
    pub(crate) fn wait(context: &Context, limit: Duration) {
        context.progress_within(limit);
    }

    /// Lets what was sent arrive, and closes; for how long at most.
    pub(crate) fn close(&mut self, limit: Duration) {
        let begin = Instant::now();
        let left = || limit.saturating_sub(begin.elapsed());
        let is_rc = |send: &Send| matches!(send, Send::Rc(..));
        while !left().is_zero() && self.sends.values().any(is_rc) {
            self.context.progress_within(left().min(WAIT_AT_MOST));
            self.look();
        }
        for peer in self.peers.iter().flatten().filter(|peer| !peer.has_failed) {
            peer.connection.flush(left());
        }
    }
}

fn of_peer(peer: usize, error: impl std::fmt::Display) -> FabricError {
    FabricError::Peer { peer, cause: error.to_string() }
}

impl Fabric for Sockets {
    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    fn post_receive(&mut self, posting: &Posting) -> Result<(), FabricError> {
        let Posting { token, peer: rank, len_bytes, deadline_ns } = *posting;
        let peer = self.peer(rank)?;
        if is_short(posting) {
            peer.control.expect(token);
            self.receives.insert(token, Receive { peer: rank, len_bytes, state: State::Short });
            return Ok(());
        }
        let is_bounded = deadline_ns.is_some();
        let Self { peers, buffers, receives, events, .. } = self;
        let Some(peer) = peers[rank].as_mut() else { return Ok(()) };
        if let Some(lane) = &mut peer.rc {
            lane.post_receive(posting, buffers, receives, events);
            return Ok(());
        }
        peer.lane(is_bounded).add(*posting);
        self.post_waiting(rank, is_bounded)
    }

    fn post_send(&mut self, posting: &Posting) -> Result<(), FabricError> {
        let Posting { token, peer: rank, len_bytes, deadline_ns } = *posting;
        let send = if is_short(posting) {
            let number = self.peer(rank)?.control.number();
            Send::Short { peer: rank, number, bytes: vec![0; len_bytes], left: len_bytes }
        } else if let Some(lane) = &mut self.peer(rank)?.rc {
            Send::Rc(rank, lane.post_send(posting))
        } else {
            let lane = self.peer(rank)?.lane(deadline_ns.is_some());
            let queue_pair = lane.queue_pair().clone();
            let send = queue_pair.send_offered_from(&self.offered, len_bytes, None);
            Send::Long(send.map_err(|error| of_peer(rank, error))?)
        };
        self.sends.insert(token, send);
        Ok(())
    }

    fn offer(&mut self, token: Token, offset: usize, bytes: &[u8]) -> Result<(), FabricError> {
        let (rank, number, message) = match self.sends.get_mut(&token) {
            // A send that has ended has no use for it.
            None | Some(Send::ShortSent(_)) => return Ok(()),
            Some(Send::Long(send)) => {
                for (at, part) in (offset..).step_by(OFFER_BYTES).zip(bytes.chunks(OFFER_BYTES)) {
                    send.write(at, part)
                        .map_err(|error| FabricError::Broken { cause: error.to_string() })?;
                    if bytes.len() > OFFER_BYTES {
                        self.context.progress();
                    }
                }
                return Ok(());
            }
            Some(Send::Rc(rank, message)) => {
                let (rank, message) = (*rank, *message);
                let Some(lane) = &mut self.peer(rank)?.rc else { return Ok(()) };
                return lane.offer(message, offset, bytes).map_err(|cause| of_peer(rank, cause));
            }
            Some(Send::Short { peer, number, bytes: message, left }) => {
                message[offset..offset + bytes.len()].copy_from_slice(bytes);
                *left -= bytes.len();
                if *left > 0 {
                    return Ok(());
                }
                (*peer, *number, std::mem::take(message))
            }
        };
        let sent = self.peer(rank)?.control.send_short(number, &message);
        let handle = sent.map_err(|cause| FabricError::Peer { peer: rank, cause })?;
        self.sends.insert(token, Send::ShortSent(handle));
        Ok(())
    }

    fn view(&self, token: Token, bytes: Range<usize>) -> &[u8] {
        match &self.receives[&token].state {
            State::Open { handle, .. } => handle
                .bytes(bytes.start as u64..bytes.end as u64)
                .expect("the runner reads what has come"),
            State::Filling(buffer) | State::Over(buffer) => &buffer[bytes],
            State::Short => panic!("the runner reads what has come"),
        }
    }

    fn release(&mut self, token: Token) {
        let Some(receive) = self.receives.remove(&token) else { return };
        match receive.state {
            State::Over(buffer) => self.buffers.give_back(buffer),
            State::Open { is_bounded, .. } => {
                if let Some(peer) = self.peers[receive.peer].as_mut() {
                    peer.lane(is_bounded).close_one();
                }
            }
            State::Short | State::Filling(_) => {}
        }
    }

    fn cancel(&mut self, token: Token) {
        match self.sends.remove(&token) {
            Some(Send::Long(send)) => send.cancel(),
            Some(Send::ShortSent(handle)) => handle.cancel(),
            Some(Send::Rc(rank, message)) => {
                if let Some(lane) = self.peers[rank].as_mut().and_then(|peer| peer.rc.as_mut()) {
                    lane.forget(message);
                }
            }
            Some(Send::Short { .. }) | None => {}
        }
    }

    fn tell(&mut self, rank: usize, note: &[u8]) -> Result<(), FabricError> {
        let now_ns = self.now_ns();
        let peer = self.peer(rank)?;
        peer.asked_ns = now_ns;
        peer.control.tell(note).map_err(|cause| FabricError::Peer { peer: rank, cause })
    }

    fn poll(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.look();
        }
        self.events.pop_front()
    }
}
