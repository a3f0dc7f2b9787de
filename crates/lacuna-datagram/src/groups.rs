//! Repair of messages to groups: broadcast and multicast (datagram-iWARP 2.3).
//!
//! A receiver that misses something of a message, or a message between two others, asks its source (a negative
//! acknowledgement), after a random while, so that receivers which miss the same do not all ask at once. The source
//! keeps what it sent lately; it gathers questions for a moment, and sends again what is missing: to the one that
//! asked, or, if several did, to the group. Once a message went out the source says up to where it has sent, so that
//! the loss of the last message is noticed, too.
//!
//! This is repair as far as it goes, not a promise: a receiver asks a few times, and with no more than three times the
//! bytes that came under the source's address, which may be forged (as QUIC does, RFC 9000, section 8.1); a source keeps messages for a second
//! at most, and sends again no more than a few times the bytes of a message, whoever asks.
//!
//! Invariant: what is kept and what is asked for are bounded.

use crate::outgoing::Message;
use crate::peers::{Numbered, PeerId};
use core::net::SocketAddr;
use lacuna_path::ranges::Ranges;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

/// Messages that a source keeps, and their bytes, and how long.
const KEPT_MAX: usize = 256;
const KEPT_BYTES_MAX: u64 = 32 << 20;
const KEPT_NS: u64 = 1_000_000_000;
/// How long a source gathers questions about a message.
const GATHER_NS: u64 = 1_000_000;
/// A message is sent again this many times, in bytes.
const AGAIN_MAX: u64 = 4;
/// When a source says up to where it has sent, after the last message.
const WORDS_NS: [u64; 2] = [5_000_000, 50_000_000];

/// How long a receiver waits before it asks, at most, and how much longer each time after.
const ASK_NS: u64 = 2_000_000;
const ASK_AGAIN_NS: u64 = 20_000_000;
/// A message of which segments came lately is not asked about.
pub(crate) const ARRIVING_NS: u64 = 3_000_000;
/// How often a receiver asks about a message.
const ASKED_MAX: u8 = 4;
/// Messages that a receiver asks about at a time, of all sources.
const GAPS_MAX: usize = 4096;
/// Questions have this many times the bytes that came, and what came counts up to so many bytes.
const ASKED_SHARE: u64 = 3;
const HEARD_MAX: u64 = 64 << 10;
/// How long a receiver keeps a message of a group open for repairs.
pub(crate) const OPEN_NS: u64 = 200_000_000;

/// A message that was sent to a group.
#[derive(Debug)]
struct Kept {
    to: PeerId,
    numbered: Numbered,
    message: Message,
    sent_ns: u64,
    /// What is asked for, by whom if it is one only, and until when more is gathered.
    wanted: Ranges,
    asker: Option<SocketAddr>,
    is_asked_by_several: bool,
    due_ns: Option<u64>,
    again_bytes: u64,
}

/// Something that is to be sent again, or said.
#[derive(Debug)]
pub(crate) enum Repair {
    /// To the group, or to one that asked.
    Bytes { group: PeerId, asker: Option<SocketAddr>, message: Message },
    /// Up to where was sent to the group.
    Word { group: PeerId },
}

/// The source's side.
#[derive(Debug, Default)]
pub(crate) struct Kepts {
    messages: VecDeque<Kept>,
    bytes: u64,
    /// Groups that are to hear up to where was sent: when, and how often they have.
    words: BTreeMap<PeerId, (u64, usize)>,
}

impl Kepts {
    /// A message has left.
    pub(crate) fn keep(&mut self, now_ns: u64, to: PeerId, numbered: Numbered, message: Message) {
        self.words.insert(to, (now_ns + WORDS_NS[0], 0));
        self.bytes += u64::from(message.length);
        let wanted = Ranges::default();
        self.messages.push_back(Kept {
            to,
            numbered,
            message,
            sent_ns: now_ns,
            wanted,
            asker: None,
            is_asked_by_several: false,
            due_ns: None,
            again_bytes: 0,
        });
        self.forget(now_ns);
    }

    fn forget(&mut self, now_ns: u64) {
        while let Some(first) = self.messages.front() {
            let is_old = first.sent_ns + KEPT_NS <= now_ns;
            if !is_old && self.messages.len() <= KEPT_MAX && self.bytes <= KEPT_BYTES_MAX {
                return;
            }
            self.bytes -= u64::from(first.message.length);
            self.messages.pop_front();
        }
    }

    /// A receiver asks. An empty list asks for all of it.
    pub(crate) fn on_missing(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        (numbered, number): (Numbered, u32),
        ranges: impl Iterator<Item = Range<u32>>,
    ) {
        let is_it = |kept: &&mut Kept| kept.numbered == numbered && kept.message.number == number;
        let Some(kept) = self.messages.iter_mut().rev().find(is_it) else { return };
        let length = kept.message.length;
        let mut has_any = false;
        for range in ranges {
            has_any = true;
            kept.wanted.add(range.start.min(length).into()..range.end.min(length).into());
        }
        if !has_any {
            // An empty message has no bytes, but a packet.
            kept.wanted.add(0..u64::from(length).max(1));
        }
        kept.is_asked_by_several |= kept.asker.is_some_and(|asker| asker != from);
        kept.asker = Some(from);
        kept.due_ns.get_or_insert(now_ns + GATHER_NS);
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let repairs = self.messages.iter().filter_map(|kept| kept.due_ns);
        repairs.chain(self.words.values().map(|(due_ns, _)| *due_ns)).min()
    }

    pub(crate) fn on_timeout(&mut self, now_ns: u64, repairs: &mut Vec<Repair>) {
        for kept in &mut self.messages {
            if kept.due_ns.is_none_or(|ns| ns > now_ns) {
                continue;
            }
            kept.due_ns = None;
            let asker = kept.asker.take().filter(|_| !kept.is_asked_by_several);
            kept.is_asked_by_several = false;
            let length = kept.message.length;
            for range in std::mem::take(&mut kept.wanted) {
                let bytes = range.end - range.start;
                if kept.again_bytes + bytes > AGAIN_MAX * u64::from(length.max(1)) {
                    break;
                }
                kept.again_bytes += bytes;
                let message = Message {
                    next: range.start as u32,
                    end: (range.end as u32).min(length),
                    operation: None,
                    ..kept.message.clone()
                };
                repairs.push(Repair::Bytes { group: kept.to, asker, message });
            }
        }
        self.words.retain(|group, (due_ns, said)| {
            if *due_ns > now_ns {
                return true;
            }
            repairs.push(Repair::Word { group: *group });
            *said += 1;
            match WORDS_NS.get(*said) {
                Some(later_ns) => {
                    *due_ns = now_ns + later_ns;
                    true
                }
                None => false,
            }
        });
        self.forget(now_ns);
    }
}

/// What a receiver misses, and asks for: messages, by their source in the group, what they are and their number.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    asked: HashMap<(PeerId, Numbered, u32), (u64, u8)>,
    due: BTreeSet<(u64, PeerId, Numbered, u32)>,
    /// Bytes of questions that each source may still get.
    allowed: HashMap<PeerId, u64>,
    random: u64,
}

impl Gaps {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: seed, ..Self::default() }
    }

    /// Something of a message is missing, or all of it. It is asked for in a while, and `later_ns` more.
    pub(crate) fn add(&mut self, now_ns: u64, which: (PeerId, Numbered, u32), later_ns: u64) {
        if self.asked.len() >= GAPS_MAX || self.asked.contains_key(&which) {
            return;
        }
        let wait_ns = u64::from(crate::endpoint::draw(&mut self.random)) % ASK_NS;
        let due_ns = now_ns + later_ns + wait_ns;
        self.asked.insert(which, (due_ns, 0));
        self.due.insert((due_ns, which.0, which.1, which.2));
    }

    /// So many bytes came from a source in a group.
    pub(crate) fn hear(&mut self, source: PeerId, bytes: usize) {
        if self.allowed.len() >= GAPS_MAX && !self.allowed.contains_key(&source) {
            self.allowed.clear();
        }
        let allowed = self.allowed.entry(source).or_default();
        *allowed = (*allowed + ASKED_SHARE * bytes as u64).min(ASKED_SHARE * HEARD_MAX);
    }

    /// Whether a source may be asked with so many bytes; they count then.
    pub(crate) fn may_ask(&mut self, source: PeerId, bytes: usize) -> bool {
        let Some(allowed) = self.allowed.get_mut(&source) else { return false };
        let left = allowed.checked_sub(bytes as u64);
        *allowed = left.unwrap_or(*allowed);
        left.is_some()
    }

    /// Nothing of it is missing any more, or it is over.
    pub(crate) fn remove(&mut self, which: (PeerId, Numbered, u32)) {
        if let Some((due_ns, _)) = self.asked.remove(&which) {
            self.due.remove(&(due_ns, which.0, which.1, which.2));
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.due.first().map(|(ns, ..)| *ns)
    }

    /// The next message to ask for, if its time has come. It will be asked for again later, a few times.
    pub(crate) fn poll(&mut self, now_ns: u64) -> Option<(PeerId, Numbered, u32)> {
        let (_, peer, numbered, number) =
            self.due.first().copied().filter(|due| due.0 <= now_ns)?;
        let which = (peer, numbered, number);
        self.due.pop_first();
        let (_, asked) = self.asked.remove(&which)?;
        if asked < ASKED_MAX {
            let due_ns = now_ns + (ASK_AGAIN_NS << asked);
            self.asked.insert(which, (due_ns, asked + 1));
            self.due.insert((due_ns, peer, numbered, number));
        }
        Some(which)
    }

    /// It was not asked for now, since it is coming.
    pub(crate) fn postpone(&mut self, now_ns: u64, which: (PeerId, Numbered, u32)) {
        self.remove(which);
        self.add(now_ns, which, ARRIVING_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Data, Header};

    fn message(number: u32, length: u32) -> Message {
        let data = Data::Buffer(vec![0; length as usize].into());
        let header = Header::Send { is_solicited: false };
        Message { number, ..Message::new(header, data, length) }
    }

    fn asker(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 7))
    }

    fn group() -> PeerId {
        PeerId::NOBODY
    }

    #[test]
    fn one_is_answered_alone_and_several_by_the_group() {
        let (mut kepts, mut repairs) = (Kepts::default(), Vec::new());
        kepts.keep(0, group(), Numbered::Sends, message(5, 1000));
        kepts.on_missing(10, asker(1), (Numbered::Sends, 5), [100..200, 150..300].into_iter());
        kepts.on_timeout(10 + GATHER_NS, &mut repairs);
        let Some(Repair::Bytes { asker: Some(to), message, .. }) = repairs.pop() else { panic!() };
        assert_eq!((to, message.next, message.end), (asker(1), 100, 300));
        for host in 1..3 {
            kepts.on_missing(0, asker(host), (Numbered::Sends, 5), std::iter::empty());
        }
        kepts.on_timeout(2 * GATHER_NS, &mut repairs);
        let Some(Repair::Bytes { asker: None, message, .. }) = repairs.pop() else { panic!() };
        assert_eq!((message.next, message.end), (0, 1000));
        // Another number, or kind, is none of it.
        kepts.on_missing(0, asker(1), (Numbered::Records, 5), std::iter::empty());
        kepts.on_missing(0, asker(1), (Numbered::Sends, 6), std::iter::empty());
        kepts.on_timeout(4 * GATHER_NS, &mut repairs);
        assert!(repairs.is_empty());
    }

    #[test]
    fn what_is_sent_again_is_bounded_and_what_is_kept() {
        let (mut kepts, mut repairs) = (Kepts::default(), Vec::new());
        kepts.keep(0, group(), Numbered::Sends, message(1, 1000));
        for at in 0..100 {
            kepts.on_missing(at * GATHER_NS, asker(1), (Numbered::Sends, 1), std::iter::empty());
            kepts.on_timeout((at + 1) * GATHER_NS, &mut repairs);
        }
        let bytes = repairs.iter().filter(|repair| matches!(repair, Repair::Bytes { .. })).count();
        assert_eq!(bytes as u64, AGAIN_MAX);
        for number in 0..1000 {
            kepts.keep(0, group(), Numbered::Sends, message(number, 1000));
        }
        assert_eq!(kepts.messages.len(), KEPT_MAX);
        kepts.forget(KEPT_NS);
        assert_eq!((kepts.messages.len(), kepts.bytes), (0, 0));
    }

    #[test]
    fn a_source_says_up_to_where_it_has_sent_a_few_times() {
        let (mut kepts, mut repairs) = (Kepts::default(), Vec::new());
        kepts.keep(0, group(), Numbered::Sends, message(1, 10));
        kepts.keep(1, group(), Numbered::Sends, message(2, 10));
        let mut said = 0;
        while let Some(ns) = kepts.poll_timeout() {
            kepts.on_timeout(ns, &mut repairs);
            for repair in repairs.drain(..) {
                assert!(matches!(repair, Repair::Word { .. }), "{repair:?}");
                said += 1;
            }
        }
        assert_eq!(said, WORDS_NS.len());
    }

    #[test]
    fn a_receiver_asks_a_few_times_and_less_often_each_time() {
        let mut gaps = Gaps::new(1);
        let which = (group(), Numbered::Sends, 7);
        gaps.add(0, which, 0);
        gaps.add(0, (group(), Numbered::Sends, 8), 0);
        gaps.remove((group(), Numbered::Sends, 8));
        let mut asked = Vec::new();
        while let Some(ns) = gaps.poll_timeout() {
            assert_eq!(gaps.poll(ns), Some(which));
            asked.push(ns);
        }
        assert_eq!(asked.len(), usize::from(ASKED_MAX) + 1);
        assert!(asked[0] < ASK_NS && asked.windows(2).all(|pair| pair[0] < pair[1]), "{asked:?}");
    }
}
