//! The fabric over connections: each message is a message of a queue pair, whose record says which chunks are here.
//!
//! Progress is made by whoever polls: the context has no threads of its own, so nobody is woken for a chunk. Notes go by
//! the connection's critical class, which is repaired whatever the mode of the data is.

use crate::pool::Buffers;
use lacuna::{
    Class, Completed, Connection, Context, OfferedPool, OfferedSend, PostReceiveError, RecvHandle,
    RecvOptions, SendBuffer,
};
use lacuna_path::ranges::Ranges;
use lacuna_schedule::run::{Event, Fabric, FabricError, NOTE_BYTES_MAX, Posting, Token};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Receives for notes of each peer.
const NOTES_AHEAD: usize = 2;
/// Between two looks whether peers live and sends have ended, which nobody waits for.
const LOOK_EVERY_NS: u64 = 1_000_000;

struct Peer {
    connection: Connection,
    notes: VecDeque<RecvHandle>,
    /// Receives that have no slot yet, and those that have one, in order.
    waiting: VecDeque<Posting>,
    /// Receives that have a slot and are not over.
    open: usize,
    has_failed: bool,
}

/// A receive, or what is left of it once it is over.
enum State {
    Open {
        handle: RecvHandle,
        /// Words of the chunks' bitmap as they were seen.
        seen: Vec<u64>,
        /// All words before this one are full.
        first: usize,
    },
    Over(Vec<u8>),
}

struct Receive {
    peer: usize,
    len_bytes: usize,
    state: State,
}

/// See the module's text.
pub(crate) struct Sockets {
    context: Context,
    begin: Instant,
    /// By rank; its own place is empty.
    peers: Vec<Option<Peer>>,
    /// Those that are not over have their turn in the order in which they were posted.
    receives: BTreeMap<Token, Receive>,
    sends: HashMap<Token, OfferedSend>,
    events: VecDeque<Event>,
    buffers: Buffers,
    offered: OfferedPool,
    chunk_bytes: usize,
    looked_ns: u64,
}

impl Sockets {
    pub(crate) fn new(
        context: Context,
        connections: Vec<Option<Connection>>,
    ) -> Result<Self, FabricError> {
        let chosen = |connection: &Connection| connection.chosen().chunk_bytes as usize;
        let chunk_bytes = connections.iter().flatten().map(chosen).max().unwrap_or(1);
        let peer = |connection| Peer {
            connection,
            notes: VecDeque::new(),
            waiting: VecDeque::new(),
            open: 0,
            has_failed: false,
        };
        let mut sockets = Self {
            context,
            begin: Instant::now(),
            peers: connections.into_iter().map(|connection| connection.map(peer)).collect(),
            receives: BTreeMap::new(),
            sends: HashMap::new(),
            events: VecDeque::new(),
            buffers: Buffers::default(),
            offered: OfferedPool::default(),
            chunk_bytes,
            looked_ns: 0,
        };
        for rank in 0..sockets.peers.len() {
            for _ in 0..NOTES_AHEAD {
                sockets.post_note(rank)?;
            }
        }
        Ok(sockets)
    }

    fn peer(&mut self, rank: usize) -> Result<&mut Peer, FabricError> {
        let broken = || FabricError::Broken { cause: format!("there is no peer {rank}") };
        self.peers.get_mut(rank).and_then(Option::as_mut).ok_or_else(broken)
    }

    fn post_note(&mut self, rank: usize) -> Result<(), FabricError> {
        let Some(peer) = self.peers[rank].as_mut() else { return Ok(()) };
        let queue_pair =
            peer.connection.class(Class::Critical).ok_or_else(|| FabricError::Broken {
                cause: format!("the connection with rank {rank} has no critical class"),
            })?;
        let handle =
            queue_pair.post_recv(vec![0; NOTE_BYTES_MAX]).map_err(|error| of_peer(rank, &error))?;
        peer.notes.push_back(handle);
        Ok(())
    }

    /// Gives waiting receives of a peer the slots that are free.
    fn post_waiting(&mut self, rank: usize) -> Result<(), FabricError> {
        let now_ns = self.now_ns();
        while let Some(posting) = self.peer(rank)?.waiting.front().copied() {
            let options = RecvOptions {
                deadline: posting
                    .deadline_ns
                    .map(|ns| Duration::from_nanos(ns.saturating_sub(now_ns))),
                ..RecvOptions::default()
            };
            let buffer = self.buffers.take(posting.len_bytes);
            let peer = self.peer(rank)?;
            match peer.connection.post_recv_with(buffer, options) {
                Ok(handle) => {
                    peer.waiting.pop_front();
                    peer.open += 1;
                    let seen = vec![0; handle.live_chunk_bits().map_or(0, <[_]>::len)];
                    let state = State::Open { handle, seen, first: 0 };
                    let receive = Receive { peer: rank, len_bytes: posting.len_bytes, state };
                    self.receives.insert(posting.token, receive);
                }
                Err(PostReceiveError::NoSlot { .. }) => break,
                Err(error) => return Err(of_peer(rank, &error)),
            }
        }
        Ok(())
    }

    /// Looks what has come.
    fn look(&mut self) {
        self.context.progress();
        let mut over = Vec::new();
        for (token, receive) in &mut self.receives {
            let State::Open { handle, seen, first } = &mut receive.state else { continue };
            if handle.reason().is_some() {
                over.push(*token);
            } else {
                arrived(*token, handle, (seen, first), receive.len_bytes, &mut self.events);
            }
        }
        for token in over {
            self.end(token);
        }
        self.take_notes();
        let now_ns = self.now_ns();
        if now_ns >= self.looked_ns + LOOK_EVERY_NS {
            self.looked_ns = now_ns;
            self.look_around();
        }
    }

    fn end(&mut self, token: Token) {
        let Some(receive) = self.receives.get_mut(&token) else { return };
        let state = std::mem::replace(&mut receive.state, State::Over(Vec::new()));
        let State::Open { handle, .. } = state else { return };
        let rank = receive.peer;
        if let Some(peer) = self.peers[rank].as_mut() {
            peer.open -= 1;
        }
        let Completed { buffer, len, reason, packets, .. } = handle.complete();
        let missing: Ranges<usize> = packets.gaps().collect();
        receive.state = State::Over(buffer);
        self.events.push_back(Event::Ended { token, reason, missing, len_bytes: len });
        if let Err(error) = self.post_waiting(rank) {
            self.fail(rank, error.to_string());
        }
    }

    fn take_notes(&mut self) {
        for rank in 0..self.peers.len() {
            while let Some(handle) = self.next_note(rank) {
                let done = handle.complete();
                if !done.is_complete {
                    // The connection has failed, which is told besides.
                    break;
                }
                let mut note = done.buffer;
                note.truncate(done.len.unwrap_or(0));
                self.events.push_back(Event::Told { peer: rank, note });
                if let Err(error) = self.post_note(rank) {
                    self.fail(rank, error.to_string());
                    break;
                }
            }
        }
    }

    /// A receive of a note that is over.
    fn next_note(&mut self, rank: usize) -> Option<RecvHandle> {
        let notes = &mut self.peers[rank].as_mut()?.notes;
        notes.front()?.reason()?;
        notes.pop_front()
    }

    /// What nobody waits for.
    fn look_around(&mut self) {
        let ended: Vec<Token> =
            self.sends.iter().filter(|(_, send)| send.is_done()).map(|(token, _)| *token).collect();
        for token in ended {
            let Some(send) = self.sends.remove(&token) else { continue };
            let is_whole = matches!(send.status().outcome, Some(Ok(())));
            self.events.push_back(Event::Sent { token, is_whole });
        }
        let failed: Vec<(usize, String)> = self
            .peers
            .iter()
            .enumerate()
            .filter_map(|(rank, peer)| {
                // Who is not waited for may go. Whoever posts something for it later is told.
                let is_waited_for =
                    |peer: &&Peer| !peer.has_failed && peer.open + peer.waiting.len() > 0;
                let peer = peer.as_ref().filter(is_waited_for)?;
                Some((rank, peer.connection.failure()?.to_string()))
            })
            .collect();
        for (rank, cause) in failed {
            self.fail(rank, cause);
        }
    }

    fn fail(&mut self, rank: usize, cause: String) {
        if let Some(peer) = self.peers[rank].as_mut()
            && !std::mem::replace(&mut peer.has_failed, true)
        {
            self.events.push_back(Event::PeerFailed { peer: rank, cause });
        }
    }

    /// Waits until something may have come, for at most this long.
    pub(crate) fn wait(context: &Context, limit: Duration) {
        context.progress_within(limit);
    }

    /// Lets what was sent arrive, and closes; for how long at most.
    pub(crate) fn close(&mut self, limit: Duration) {
        let begin = Instant::now();
        for peer in self.peers.iter().flatten().filter(|peer| !peer.has_failed) {
            peer.connection.flush(limit.saturating_sub(begin.elapsed()));
        }
    }
}

/// Tells of chunks that have come since the last look.
fn arrived(
    token: Token,
    handle: &RecvHandle,
    (seen, first): (&mut [u64], &mut usize),
    limit: usize,
    events: &mut VecDeque<Event>,
) {
    let Some(bits) = handle.live_chunk_bits() else { return };
    let chunk_bytes = handle.geometry().chunk_bytes() as usize;
    let mut run: Option<Range<usize>> = None;
    for at in *first..seen.len() {
        let now = bits[at].load(Ordering::Acquire);
        let mut new = now & !seen[at];
        seen[at] = now;
        while new != 0 {
            let skipped = new.trailing_zeros();
            let length = (new >> skipped).trailing_ones();
            let start = at * 64 + skipped as usize;
            let end = start + length as usize;
            new &= if skipped + length == 64 { 0 } else { u64::MAX << (skipped + length) };
            match &mut run {
                Some(run) if run.end == start => run.end = end,
                _ => tell(token, run.replace(start..end), (chunk_bytes, limit), events),
            }
        }
        if now == u64::MAX && at == *first {
            *first += 1;
        }
    }
    tell(token, run, (chunk_bytes, limit), events);
}

fn tell(
    token: Token,
    chunks: Option<Range<usize>>,
    (chunk_bytes, limit): (usize, usize),
    events: &mut VecDeque<Event>,
) {
    if let Some(chunks) = chunks {
        let bytes = chunks.start * chunk_bytes..(chunks.end * chunk_bytes).min(limit);
        if !bytes.is_empty() {
            events.push_back(Event::Arrived { token, bytes });
        }
    }
}

fn of_peer(peer: usize, error: &dyn std::error::Error) -> FabricError {
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
        self.peer(posting.peer)?.waiting.push_back(*posting);
        self.post_waiting(posting.peer)
    }

    fn post_send(&mut self, posting: &Posting) -> Result<(), FabricError> {
        let rank = posting.peer;
        let connection = self.peer(rank)?.connection.clone();
        let send = connection
            .send_offered_from(&self.offered, posting.len_bytes, None)
            .map_err(|error| of_peer(rank, &error))?;
        self.sends.insert(posting.token, send);
        Ok(())
    }

    fn offer(&mut self, token: Token, offset: usize, bytes: &[u8]) -> Result<(), FabricError> {
        // A send that has ended has no use for it.
        let Some(send) = self.sends.get(&token) else { return Ok(()) };
        send.write(offset, bytes).map_err(|error| FabricError::Broken { cause: error.to_string() })
    }

    fn view(&self, token: Token, bytes: Range<usize>) -> &[u8] {
        match &self.receives[&token].state {
            State::Open { handle, .. } => handle
                .bytes(bytes.start as u64..bytes.end as u64)
                .expect("the runner reads what has come"),
            State::Over(buffer) => &buffer[bytes],
        }
    }

    fn release(&mut self, token: Token) {
        let Some(receive) = self.receives.remove(&token) else { return };
        match receive.state {
            State::Over(buffer) => self.buffers.give_back(buffer),
            State::Open { .. } => {
                if let Some(peer) = self.peers[receive.peer].as_mut() {
                    peer.open -= 1;
                }
            }
        }
    }

    fn cancel(&mut self, token: Token) {
        if let Some(send) = self.sends.remove(&token) {
            send.cancel();
        }
    }

    fn tell(&mut self, rank: usize, note: &[u8]) -> Result<(), FabricError> {
        let peer = self.peer(rank)?;
        let queue_pair =
            peer.connection.class(Class::Critical).ok_or_else(|| FabricError::Broken {
                cause: format!("the connection with rank {rank} has no critical class"),
            })?;
        queue_pair
            .send(SendBuffer::copy_of(note), None)
            .map(drop)
            .map_err(|error| of_peer(rank, &error))
    }

    fn poll(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.look();
        }
        self.events.pop_front()
    }
}
