//! Messages that come: Sends into posted receives, Write-Records into memory that has a key.
//!
//! A message of one packet is over at once. Of others the segments are placed as they come, in any order, and what
//! came is kept as ranges of bytes: the record. It is closed when all is there, when later messages of the source
//! show that all was sent and nothing more comes (datagram-iWARP has no such end; with it the loss of a
//! last segment costs no timeout), or by *silence*: nothing came for four times as long as its segments were
//! apart lately, ten milliseconds at least and a second at most (2.2 leaves the time open; a source that serves many
//! in turns lets each rest for some). What comes after that is dropped.
//!
//! A source that has too many open loses its oldest one. If there are too many in all, one of another source goes of
//! which nothing came for a while: forged sources cannot keep others out by holding all places.
//!
//! A Send is delivered whole or not at all: its receive goes back to the front if a part is lost. A Write-Record
//! is delivered with the map of what came (partial placement, 2.2.1).
//!
//! Before a byte moves the key, its rights, scope and range are checked, and the key is pinned while the bytes are
//! copied; so nothing is written once a key was revoked, or the record was closed.
//!
//! Invariants: a map has no byte that its message did not write; open messages are bounded, of each source and
//! in all.

mod open;

use crate::discard::{Discard, of_key};
use crate::groups::{ARRIVING_NS, Gaps};
use crate::map::Map;
use crate::numbers::{Sight, WINDOW};
use crate::peers::{Numbered, Origin, PeerId, Peers};
use crate::work::{Arrived, Done, Ended, Operation, RecvWork, Target};
use core::net::SocketAddr;
use lacuna_place::region::{KeyTable, PinnedKey, Rights};
use lacuna_wire::ddp::{self, About, ControlFrame, MissingRanges, Rows, Space, Tagged};
use open::{Goal, OVERTAKEN_NS, Open};
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Gaps of a record, at most: a map that needs more is of a sender that does not mean well.
const RANGES_MAX: usize = 1 << 12;

/// Sources with missed messages that no completion has told of, at most. Counters have all.
const UNTOLD_MAX: usize = 1 << 14;
/// A message of which nothing came for so long may go where others need its place.
const RESTING_NS: u64 = 1_000_000;
/// Open messages that are looked at for one that may go.
const LOOKS_MAX: usize = 64;

/// Sources that have said up to where they have sent, at most.
const WORDS_MAX: usize = 1 << 14;

/// Bounds of what is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenLimits {
    /// Messages of one source.
    pub of_source: usize,
    /// Messages in all.
    pub in_all: usize,
}

/// How many Write-Records are open or wait to be polled, and how many may: their completions are nobody's who posted
/// anything, so their number has to be bounded here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordBound {
    pub(crate) used: usize,
    pub(crate) max: usize,
}

impl RecordBound {
    pub(crate) fn has_room(self) -> bool {
        self.used < self.max
    }
}

/// A segment of a Send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendSegment {
    pub(crate) number: u32,
    pub(crate) length: u32,
    pub(crate) place: u32,
    pub(crate) is_solicited: bool,
}

/// What is open of one source.
#[derive(Debug)]
struct Source {
    peer: PeerId,
    /// The peer that its messages are told of.
    told: PeerId,
    address: SocketAddr,
    opens: Vec<Open>,
}

/// A time to look at a message: when, whose, which.
type Alarm = std::cmp::Reverse<(u64, u32, u8, u32)>;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Incoming {
    keys: Arc<KeyTable>,
    limits: OpenLimits,
    pub(crate) receives: VecDeque<RecvWork>,
    /// By the peer's index.
    sources: HashMap<u32, Source>,
    open: usize,
    /// Open messages, to be looked at in turns. Those that are over are here, too, for a while.
    turns: VecDeque<(PeerId, Numbered, u32)>,
    pub(crate) records: RecordBound,
    alarms: BinaryHeap<Alarm>,
    /// Sources that have said up to where they have sent, and when that is believed.
    words: BTreeSet<(u64, PeerId, Numbered, u32)>,
    /// What is missing of messages to groups.
    pub(crate) gaps: Gaps,
    /// Missed messages that no completion has told of.
    untold: HashMap<PeerId, u32>,
    pub(crate) counts: Counts,
}

/// How messages ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) whole: u64,
    pub(crate) partial: u64,
    pub(crate) missed: u64,
    pub(crate) evicted: u64,
}

impl Incoming {
    pub(crate) fn new(
        keys: Arc<KeyTable>,
        limits: OpenLimits,
        records_max: usize,
        seed: u64,
    ) -> Self {
        Self {
            keys,
            limits,
            receives: VecDeque::new(),
            sources: HashMap::new(),
            open: 0,
            turns: VecDeque::new(),
            records: RecordBound { used: 0, max: records_max },
            alarms: BinaryHeap::new(),
            words: BTreeSet::new(),
            gaps: Gaps::new(seed),
            untold: HashMap::new(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn post(&mut self, work: RecvWork) {
        self.receives.push_back(work);
    }

    /// Receives that no message has taken.
    pub(crate) fn receives(&self) -> usize {
        self.receives.len()
    }

    /// Messages that are not over.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Takes every receive back, those of open messages included.
    pub(crate) fn flush(&mut self) -> Vec<RecvWork> {
        let mut sources: Vec<_> = std::mem::take(&mut self.sources).into_iter().collect();
        sources.sort_unstable_by_key(|(index, _)| *index);
        let open = sources.into_iter().flat_map(|(_, source)| source.opens);
        let mut all = Vec::new();
        for open in open {
            match open.goal {
                Goal::Receive(work) => all.push(work),
                Goal::Record { .. } => self.records.used -= 1,
            }
        }
        all.extend(std::mem::take(&mut self.receives));
        self.open = 0;
        self.turns.clear();
        self.alarms.clear();
        all
    }

    /// A segment of a Send came.
    pub(crate) fn on_send(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        from: Origin,
        segment: SendSegment,
        payload: &[u8],
        done: &mut VecDeque<Done>,
    ) -> Result<(), Discard> {
        let SendSegment { number, length, place, is_solicited } = segment;
        let known = peers.find_in(from);
        if let Some(peer) = known {
            if let Some(at) = self.find(peer, Numbered::Sends, number) {
                return self.go_on(
                    now_ns,
                    peer,
                    at,
                    length,
                    place,
                    done,
                    |open, _| {
                        let Goal::Receive(work) = &open.goal else {
                            return Err(Discard::Inconsistent);
                        };
                        work.into
                            .write(place.into(), payload)
                            .map_err(|_| Discard::Inconsistent)?;
                        Ok(payload.len())
                    },
                    payload.len(),
                );
            }
            if peers.knows_number(peer, Numbered::Sends, number) {
                return Err(Discard::Late);
            }
        }
        if self.receives.front().is_none_or(|work| work.into.len() < length.into()) {
            return Err(Discard::NoBuffer);
        }
        let peer = match known {
            Some(peer) => peer,
            None => peers.find_or_add_in(from).ok_or(Discard::Busy)?,
        };
        let is_whole = payload.len() == length as usize;
        if !is_whole {
            self.make_room(now_ns, peer, done)?;
            // A receive that came back for it is the first one now.
            if self.receives.front().is_none_or(|work| work.into.len() < length.into()) {
                return Err(Discard::NoBuffer);
            }
        }
        let missed = self.begin(now_ns, peers, peer, (Numbered::Sends, number), from.group != 0)?;
        let Some(work) = self.receives.pop_front() else { return Err(Discard::NoBuffer) };
        if work.into.write(place.into(), payload).is_err() {
            self.receives.push_front(work);
            return Err(Discard::Inconsistent);
        }
        let mut open = Open::new(Numbered::Sends, number, Goal::Receive(work), length, now_ns);
        (open.missed, open.is_solicited) = (missed, is_solicited);
        open.add(place, payload.len());
        self.open_or_deliver(now_ns, peers, (peer, from), open, done);
        Ok(())
    }

    /// A message has begun, with its first segment.
    fn open_or_deliver(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        (peer, from): (PeerId, Origin),
        mut open: Open,
        done: &mut VecDeque<Done>,
    ) {
        open.is_of_group = from.group != 0;
        let told = match open.is_of_group {
            true => peers.find_or_add(from.address).unwrap_or(PeerId::NOBODY),
            false => peer,
        };
        if open.bytes == u64::from(open.length) {
            return self.deliver(told, from.address, open, Ended::Whole, done);
        }
        if open.is_of_group {
            self.gaps.add(now_ns, (peer, open.numbered, open.number), ARRIVING_NS);
        }
        self.keep(peer, told, from.address, open, done);
    }

    /// A segment of a Write-Record came.
    pub(crate) fn on_record(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        from: Origin,
        tagged: &Tagged,
        payload: &[u8],
        done: &mut VecDeque<Done>,
    ) -> Result<(), Discard> {
        let Tagged { stag, offset, number, length, place, flags, .. } = *tagged;
        let base = offset.checked_sub(place.into()).ok_or(Discard::Bounds)?;
        let known = peers.find_in(from);
        let open_at =
            known.and_then(|peer| Some((peer, self.find(peer, Numbered::Records, number)?)));
        if open_at.is_none()
            && known.is_some_and(|peer| peers.knows_number(peer, Numbered::Records, number))
        {
            return Err(Discard::Late);
        }
        let keys = self.keys.clone();
        // The scope of keys knows hosts, whatever group they send to.
        let host = if from.group == 0 { known } else { peers.find(from.address) };
        let user = host.map_or_else(|| stranger(from.address), PeerId::number);
        let range = offset..offset.checked_add(payload.len() as u64).ok_or(Discard::Bounds)?;
        let pinned =
            keys.pin(stag, user, Rights::REMOTE_WRITE, range).map_err(|error| of_key(&error))?;
        if let Some((peer, at)) = open_at {
            return self.go_on(
                now_ns,
                peer,
                at,
                length,
                place,
                done,
                |open, merged| {
                    let Goal::Record { key, generation, base: begun } = open.goal else {
                        return Err(Discard::Inconsistent);
                    };
                    if (key, generation, begun) != (stag, pinned.generation(), base) {
                        return Err(Discard::Inconsistent);
                    }
                    write(&pinned, offset, payload, base + merged.start..base + merged.end)?;
                    Ok(payload.len())
                },
                payload.len(),
            );
        }
        // All of the message has to fit, or it is refused before a byte moves.
        if u64::from(length) > pinned.len().saturating_sub(base) {
            return Err(Discard::Bounds);
        }
        let peer = match known {
            Some(peer) => peer,
            None => peers.find_or_add_in(from).ok_or(Discard::Busy)?,
        };
        let is_whole = payload.len() == length as usize;
        if !is_whole {
            self.make_room(now_ns, peer, done)?;
        }
        if !self.records.has_room() {
            return Err(Discard::Busy);
        }
        write(&pinned, offset, payload, offset..offset + payload.len() as u64)?;
        let missed =
            self.begin(now_ns, peers, peer, (Numbered::Records, number), from.group != 0)?;
        self.records.used += 1;
        let goal = Goal::Record { key: stag, generation: pinned.generation(), base };
        let mut open = Open::new(Numbered::Records, number, goal, length, now_ns);
        (open.missed, open.is_solicited) = (missed, flags.is_solicited);
        open.add(place, payload.len());
        self.open_or_deliver(now_ns, peers, (peer, from), open, done);
        Ok(())
    }

    /// The source has sent all of the messages up to this one, or gave this one up.
    pub(crate) fn on_word(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        numbered: Numbered,
        number: u32,
        is_cancelled: bool,
        done: &mut VecDeque<Done>,
    ) {
        if is_cancelled {
            if let Some(at) = self.find(peer, numbered, number) {
                self.close(peer, at, Ended::Cancelled, done);
            }
            return;
        }
        self.overtake(now_ns, peer, numbered, number.wrapping_add(1));
        if self.words.len() < WORDS_MAX {
            self.words.insert((now_ns + OVERTAKEN_NS, peer, numbered, number));
        }
    }

    /// A source has sent all of the messages up to this one to a group: what did not come is asked for.
    pub(crate) fn on_group_word(
        &mut self,
        now_ns: u64,
        peers: &Peers,
        peer: PeerId,
        numbered: Numbered,
        number: u32,
    ) {
        for back in 0..peers.ahead(peer, numbered, number).min(WINDOW) {
            self.gaps.add(now_ns, (peer, numbered, number.wrapping_sub(back)), 0);
        }
    }

    /// Asks for what is missing of messages to groups.
    fn ask(&mut self, now_ns: u64, peers: &Peers, asks: &mut Vec<(SocketAddr, Vec<u8>)>) {
        while let Some(which) = self.gaps.poll(now_ns) {
            let (peer, numbered, number) = which;
            let open = self.find(peer, numbered, number).and_then(|at| {
                self.sources.get(&peer.index).and_then(|source| source.opens.get(at))
            });
            let mut rows = Vec::new();
            match open {
                Some(open) if now_ns < open.silence.last_ns + ARRIVING_NS => {
                    self.gaps.postpone(now_ns, which);
                    continue;
                }
                Some(open) => {
                    let gaps = open.came.gaps(&(0..u64::from(open.length)));
                    rows.extend(
                        gaps.take(MissingRanges::MAX).map(|gap| [gap.start as u32, gap.end as u32]),
                    );
                }
                None if peers.knows_number(peer, numbered, number) => {
                    self.gaps.remove(which);
                    continue;
                }
                None => {}
            }
            let Some(source) = peers.address(peer) else {
                self.gaps.remove(which);
                continue;
            };
            let space = match numbered {
                Numbered::Sends => Space::GroupSends,
                Numbered::Records => Space::GroupRecords,
            };
            let (about, ranges) = (About { space, number }, Rows::new(&rows));
            let mut frames = Vec::new();
            ddp::emit_control(&ControlFrame::Missing { about, ranges }, &mut frames);
            let bytes = ddp::UNTAGGED_HEADER_BYTES + frames.len() + ddp::TRAILER_BYTES;
            if self.gaps.may_ask(peer, bytes) {
                asks.push((source, frames));
            }
        }
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let alarm_ns = self.alarms.peek().map(|alarm| alarm.0.0);
        let word_ns = self.words.first().map(|word| word.0);
        [alarm_ns, word_ns, self.gaps.poll_timeout()].into_iter().flatten().min()
    }

    /// Closes the messages whose time is over.
    pub(crate) fn on_timeout(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        done: &mut VecDeque<Done>,
        asks: &mut Vec<(SocketAddr, Vec<u8>)>,
    ) {
        self.ask(now_ns, peers, asks);
        while let Some((_, peer, numbered, number)) =
            self.words.first().copied().filter(|word| word.0 <= now_ns)
        {
            self.words.pop_first();
            self.counts.missed += u64::from(peers.settle(peer, numbered, number));
        }
        while let Some(std::cmp::Reverse((ns, index, numbered, number))) =
            self.alarms.peek().copied()
            && ns <= now_ns
        {
            self.alarms.pop();
            let numbered = if numbered == 0 { Numbered::Sends } else { Numbered::Records };
            // Of a peer that had to go, too.
            let Some(peer) = self.sources.get(&index).map(|source| source.peer) else { continue };
            let Some(at) = self.find(peer, numbered, number) else { continue };
            let Some(open) =
                self.sources.get_mut(&index).and_then(|source| source.opens.get_mut(at))
            else {
                continue;
            };
            let (due_ns, ended) = open.due();
            if due_ns <= now_ns {
                self.close(peer, at, ended, done);
            } else {
                open.armed_ns = due_ns;
                self.alarms.push(alarm(due_ns, peer, open));
            }
        }
    }

    fn find(&self, peer: PeerId, numbered: Numbered, number: u32) -> Option<usize> {
        let source = self.sources.get(&peer.index).filter(|source| source.peer == peer)?;
        source.opens.iter().position(|open| open.number == number && open.numbered == numbered)
    }

    /// Another segment of an open message. `place_it` gets the range of the message that is there with it.
    #[expect(clippy::too_many_arguments, reason = "of two callers")]
    fn go_on(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        at: usize,
        length: u32,
        place: u32,
        done: &mut VecDeque<Done>,
        place_it: impl FnOnce(&Open, Range<u64>) -> Result<usize, Discard>,
        payload_bytes: usize,
    ) -> Result<(), Discard> {
        let Some(source) = self.sources.get_mut(&peer.index) else { return Err(Discard::Late) };
        let open = &mut source.opens[at];
        if open.length != length {
            return Err(Discard::Inconsistent);
        }
        let range = u64::from(place)..u64::from(place) + payload_bytes as u64;
        if open.came.within(&range).next().is_some() {
            // Segments of a message do not overlap, so it came before.
            return Err(Discard::Duplicate);
        }
        let merged = open.merged(&range);
        if merged == range && open.came.iter().len() >= RANGES_MAX {
            return Err(Discard::Busy);
        }
        let bytes = place_it(open, merged)?;
        open.silence.on_segment(now_ns);
        open.add(place, bytes);
        if open.bytes == u64::from(open.length) {
            self.close(peer, at, Ended::Whole, done);
            return Ok(());
        }
        // What is known by now of its pace may end it sooner. A look too early finds a later time.
        let due_ns = open.due().0;
        let left_ns = open.armed_ns.saturating_sub(now_ns);
        if due_ns < open.armed_ns - left_ns / 4 {
            open.armed_ns = due_ns;
            self.alarms.push(alarm(due_ns, peer, open));
        }
        Ok(())
    }

    /// A message begins: its number is taken, and earlier ones of its source are overtaken.
    fn begin(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        peer: PeerId,
        (numbered, number): (Numbered, u32),
        is_of_group: bool,
    ) -> Result<u32, Discard> {
        match peers.take_number(peer, numbered, number) {
            Sight::New { missed, ahead } => {
                self.overtake(now_ns, peer, numbered, number);
                if is_of_group {
                    self.gaps.remove((peer, numbered, number));
                    for back in 1..ahead.min(WINDOW) {
                        self.gaps.add(now_ns, (peer, numbered, number.wrapping_sub(back)), 0);
                    }
                }
                self.counts.missed += u64::from(missed);
                Ok(missed)
            }
            Sight::Known | Sight::Old => Err(Discard::Late),
        }
    }

    /// All messages before this one were sent, so what is missing of them comes soon or never.
    fn overtake(&mut self, now_ns: u64, peer: PeerId, numbered: Numbered, number: u32) {
        let Some(source) = self.sources.get_mut(&peer.index) else { return };
        for open in &mut source.opens {
            let is_earlier = (number.wrapping_sub(open.number) as i32) > 0;
            if open.numbered == numbered && is_earlier && open.overtaken_ns.is_none() {
                open.overtaken_ns = Some(now_ns);
                open.armed_ns = open.due().0;
                self.alarms.push(alarm(open.armed_ns, peer, open));
            }
        }
    }

    /// Makes room for one more open message.
    fn make_room(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        done: &mut VecDeque<Done>,
    ) -> Result<(), Discard> {
        let of_source = self.sources.get(&peer.index).map_or(0, |source| source.opens.len());
        if of_source >= self.limits.of_source.max(1) {
            self.counts.evicted += 1;
            // The oldest: they are in the order in which they began.
            self.close(peer, 0, Ended::Evicted, done);
        } else if self.open >= self.limits.in_all.max(1) {
            return self.evict_silent(now_ns, peer, done);
        }
        Ok(())
    }

    /// A message of another source goes of which nothing came for a while, if there is one: the first in turn, as in
    /// the clock algorithm.
    fn evict_silent(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        done: &mut VecDeque<Done>,
    ) -> Result<(), Discard> {
        for _ in 0..self.turns.len().min(LOOKS_MAX) {
            let Some((other, numbered, number)) = self.turns.pop_front() else { break };
            let Some(at) = self.find(other, numbered, number) else { continue };
            let last_ns = self.sources[&other.index].opens[at].silence.last_ns;
            if other != peer && last_ns + RESTING_NS <= now_ns {
                self.counts.evicted += 1;
                self.close(other, at, Ended::Evicted, done);
                return Ok(());
            }
            self.turns.push_back((other, numbered, number));
        }
        Err(Discard::Busy)
    }

    fn keep(
        &mut self,
        peer: PeerId,
        told: PeerId,
        address: SocketAddr,
        mut open: Open,
        done: &mut VecDeque<Done>,
    ) {
        // The peer that was here had to go, and so must what is open of it.
        while let Some(other) = self.sources.get(&peer.index).map(|source| source.peer)
            && other != peer
        {
            self.counts.evicted += 1;
            self.close(other, 0, Ended::Evicted, done);
        }
        open.armed_ns = open.due().0;
        self.alarms.push(alarm(open.armed_ns, peer, &open));
        let source = self.sources.entry(peer.index).or_insert_with(|| Source {
            peer,
            told,
            address,
            opens: Vec::new(),
        });
        self.turns.push_back((peer, open.numbered, open.number));
        source.opens.push(open);
        self.open += 1;
        if self.turns.len() > 2 * self.open + LOOKS_MAX {
            let mut turns = std::mem::take(&mut self.turns);
            turns.retain(|(peer, numbered, number)| self.find(*peer, *numbered, *number).is_some());
            self.turns = turns;
        }
    }

    fn close(&mut self, peer: PeerId, at: usize, ended: Ended, done: &mut VecDeque<Done>) {
        let Some(source) = self.sources.get_mut(&peer.index) else { return };
        if at >= source.opens.len() {
            return;
        }
        let (open, told, address) = (source.opens.remove(at), source.told, source.address);
        if open.is_of_group {
            self.gaps.remove((peer, open.numbered, open.number));
        }
        if source.opens.is_empty() {
            self.sources.remove(&peer.index);
        }
        self.open -= 1;
        self.deliver(told, address, open, ended, done);
    }

    fn deliver(
        &mut self,
        peer: PeerId,
        source: SocketAddr,
        open: Open,
        ended: Ended,
        done: &mut VecDeque<Done>,
    ) {
        let Open { number, goal, length, came, bytes, mut missed, is_solicited, .. } = open;
        let is_whole = bytes == u64::from(length);
        self.counts.whole += u64::from(is_whole);
        self.counts.partial += u64::from(!is_whole && matches!(goal, Goal::Record { .. }));
        let map = if is_whole { Map::Whole } else { Map::Parts(came) };
        let (id, operation, place) = match goal {
            Goal::Receive(work) if is_whole => (work.id, Operation::Receive, None),
            Goal::Receive(work) => {
                // A Send is whole or nothing: the source's next message tells of it.
                self.receives.push_front(work);
                self.counts.missed += 1;
                if self.untold.len() < UNTOLD_MAX {
                    *self.untold.entry(peer).or_default() += missed + 1;
                }
                return;
            }
            Goal::Record { key, base, .. } => {
                (0, Operation::Record, Some(Target { key, offset: base }))
            }
        };
        missed += self.untold.remove(&peer).unwrap_or(0);
        let arrived = Arrived { source, number, length, map, place, ended, missed, is_solicited };
        let arrived = Some(Box::new(arrived));
        done.push_back(Done {
            id,
            operation,
            peer,
            status: Ok(()),
            bytes,
            is_signaled: true,
            arrived,
        });
    }
}

fn alarm(due_ns: u64, peer: PeerId, open: &Open) -> Alarm {
    std::cmp::Reverse((due_ns, peer.index, open.numbered as u8, open.number))
}

/// Copies a segment to its place, and marks what is covered of the region's map.
pub(crate) fn write(
    pinned: &PinnedKey<'_>,
    offset: u64,
    payload: &[u8],
    merged: Range<u64>,
) -> Result<(), Discard> {
    let region = pinned.region();
    let start = pinned.range().start;
    let range = start + offset..start + offset + payload.len() as u64;
    if region.is_exclusive()
        && region.validity().is_some_and(|validity| validity.touches(range.clone()))
    {
        return Err(Discard::Overlap);
    }
    pinned.write(offset, payload).map_err(|_| Discard::Bounds)?;
    if let Some(validity) = region.validity() {
        validity.mark_joint(range, start + merged.start..start + merged.end);
    }
    Ok(())
}

/// A number for a source that is no peer yet, for the books of who guesses keys.
pub(crate) fn stranger(from: SocketAddr) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    from.hash(&mut hasher);
    hasher.finish() | 1 << 63
}
