//! READs that wait for their answers.
//!
//! A READ asks with one packet, and the answer is a Write-Record to a *sink* that only this question has: a random
//! number, under which the peer's segments go into the memory of the work request. So no key of this end is given
//! away, and what comes after the READ is over finds nothing. The number of a READ is the queue pair's, not the
//! peer's. The peer stays known until its READs are over, though its handle is given back.
//!
//! An answer of which a segment is lost ends by silence (`silence.rs`). If all of it is lost, or the question, the
//! deadline ends it.
//!
//! Invariant: bytes go into the memory of an open READ of the peer that answers, and nowhere else.

use crate::peers::PeerId;
use crate::silence::Silence;
use crate::work::{Done, Failure, Operation};
use lacuna_path::ranges::Ranges;
use lacuna_place::region::Slices;
use lacuna_wire::ddp::{ControlReason, Tagged};
use std::collections::{BTreeSet, HashMap};

#[derive(Debug)]
struct OpenRead {
    id: u64,
    peer: PeerId,
    sink: u32,
    into: Slices,
    came: Ranges,
    bytes: u64,
    deadline_ns: Option<u64>,
    /// Since the first segment of an answer that may lose some.
    silence: Option<Silence>,
    /// When it is looked at because of that.
    looks_ns: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    open: HashMap<u32, OpenRead>,
    deadlines: BTreeSet<(u64, u32)>,
    /// When it is looked whether an answer still comes, of each that has begun.
    silences: BTreeSet<(u64, u32)>,
    /// How many are open of a peer.
    of_peer: HashMap<PeerId, usize>,
    /// Peers whose last READ is over, until that was asked for.
    freed: Vec<PeerId>,
}

impl Reads {
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Opens a READ.
    pub(crate) fn open(
        &mut self,
        number: u32,
        sink: u32,
        (id, peer): (u64, PeerId),
        into: Slices,
        deadline_ns: Option<u64>,
    ) {
        let came = Ranges::default();
        let read = OpenRead {
            id,
            peer,
            sink,
            into,
            came,
            bytes: 0,
            deadline_ns,
            silence: None,
            looks_ns: 0,
        };
        self.deadlines.extend(deadline_ns.map(|ns| (ns, number)));
        self.open.insert(number, read);
        *self.of_peer.entry(peer).or_default() += 1;
    }

    /// Peers of which no READ is open any more.
    pub(crate) fn take_freed(&mut self) -> impl Iterator<Item = PeerId> {
        let freed = std::mem::take(&mut self.freed);
        freed.into_iter().filter(|peer| !self.of_peer.contains_key(peer))
    }

    /// A segment of an answer came; `None` if it answers nothing.
    pub(crate) fn on_answer(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        tagged: &Tagged,
        payload: &[u8],
        done: &mut impl Extend<Done>,
    ) -> Option<()> {
        let read = self.open.get_mut(&tagged.number)?;
        let is_its = read.peer == peer
            && read.sink == tagged.stag
            && u64::from(tagged.length) == read.into.len()
            && tagged.offset == u64::from(tagged.place);
        if !is_its {
            return None;
        }
        let range = u64::from(tagged.place)..u64::from(tagged.place) + payload.len() as u64;
        if read.came.within(&range).next().is_some() {
            return None;
        }
        read.into.write(range.start, payload).ok()?;
        read.bytes += payload.len() as u64;
        read.came.add(range);
        match &mut read.silence {
            Some(silence) => silence.on_segment(now_ns),
            None => {
                read.looks_ns = read.silence.insert(Silence::new(now_ns)).due_ns();
                self.silences.insert((read.looks_ns, tagged.number));
            }
        }
        if read.bytes == read.into.len() {
            done.extend(self.close(tagged.number, Ok(())));
        }
        Some(())
    }

    /// Whether a peer is to answer anything.
    pub(crate) fn has_any_of(&self, peer: PeerId) -> bool {
        self.of_peer.contains_key(&peer)
    }

    /// Whether an answer to this sink, of so many bytes, is awaited from the peer. Reliable READs are numbered by
    /// their sinks.
    pub(crate) fn awaits(&self, peer: PeerId, sink: u32, length: u32) -> bool {
        let read = self.open.get(&sink);
        read.is_some_and(|read| read.peer == peer && read.into.len() == u64::from(length))
    }

    /// A segment of a reliable answer, which comes once; `false` if nobody wants it any more.
    pub(crate) fn write(&mut self, peer: PeerId, sink: u32, place: u32, payload: &[u8]) -> bool {
        let Some(read) = self.open.get_mut(&sink).filter(|read| read.peer == peer) else {
            return false;
        };
        read.bytes += payload.len() as u64;
        read.into.write(place.into(), payload).is_ok()
    }

    /// The peer will not answer a reliable READ.
    pub(crate) fn refuse(
        &mut self,
        peer: PeerId,
        sink: u32,
        reason: ControlReason,
        done: &mut impl Extend<Done>,
    ) {
        if self.peer_of(sink) == Some(peer) {
            done.extend(self.close(sink, Err(Failure::Peer(reason))));
        }
    }

    /// The READs of a peer fail.
    pub(crate) fn fail(&mut self, peer: PeerId, failure: Failure, done: &mut impl Extend<Done>) {
        let of_peer = self.open.iter().filter(|(_, read)| read.peer == peer);
        let mut numbers: Vec<u32> = of_peer.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        for number in numbers {
            done.extend(self.close(number, Err(failure)));
        }
    }

    /// Whether a READ has this number.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.open.contains_key(&number)
    }

    /// A READ is over.
    pub(crate) fn close(&mut self, number: u32, status: Result<(), Failure>) -> Option<Done> {
        let OpenRead { id, peer, bytes, deadline_ns, looks_ns, .. } = self.open.remove(&number)?;
        self.silences.remove(&(looks_ns, number));
        if let Some(ns) = deadline_ns {
            self.deadlines.remove(&(ns, number));
        }
        if let Some(count) = self.of_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.of_peer.remove(&peer);
                self.freed.push(peer);
            }
        }
        let operation = Operation::Read;
        Some(Done { id, operation, peer, status, bytes, is_signaled: true, arrived: None })
    }

    /// The peer of an open READ.
    pub(crate) fn peer_of(&self, number: u32) -> Option<PeerId> {
        self.open.get(&number).map(|read| read.peer)
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let first = |times: &BTreeSet<(u64, u32)>| times.first().map(|(ns, _)| *ns);
        [first(&self.deadlines), first(&self.silences)].into_iter().flatten().min()
    }

    /// Ends the READs whose time is over.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, done: &mut impl Extend<Done>) {
        while let Some((_, number)) =
            self.deadlines.first().copied().filter(|(ns, _)| *ns <= now_ns)
        {
            done.extend(self.close(number, Err(Failure::Deadline)));
        }
        while let Some((ns, number)) =
            self.silences.first().copied().filter(|(ns, _)| *ns <= now_ns)
        {
            self.silences.remove(&(ns, number));
            let Some(read) = self.open.get_mut(&number) else { continue };
            read.looks_ns = read.silence.map_or(0, |silence| silence.due_ns());
            if read.looks_ns <= now_ns {
                done.extend(self.close(number, Err(Failure::Lost)));
            } else {
                self.silences.insert((read.looks_ns, number));
            }
        }
    }

    /// Gives all up.
    pub(crate) fn flush(&mut self, done: &mut impl Extend<Done>) {
        let mut numbers: Vec<u32> = self.open.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            done.extend(self.close(number, Err(Failure::Flushed)));
        }
    }
}
