//! Keys of two ends that share a secret and have nothing but datagrams between them, such as two gateways with a tunnel:
//! either may start and start again at any time, in any order.
//!
//! ```text
//! starts: Ask(offer A) ─────────────▶                       nothing is kept of it: it may be a recorded one
//!         ◀───────────── Answer(offer B, echo of A)
//! fresh:  a session of A and B, not in use yet
//!         Answer(offer A, echo of B), Nothing ─────────────▶ fresh: the same session
//!                                                            opened: in use; offer B is replaced
//! opened: in use; offer A is replaced ◀───────────── Nothing
//! ```
//!
//! An offer is a nonce and a key of X25519. Who answers with the nonce of an offer that stands now has the shared secret
//! and is there now, so only such an answer makes a session. The session's secret follows from both offers, what X25519
//! makes of them, and the shared secret. It is used for sending once a packet of the peer was opened with it, or at once
//! if there is none before it. So recorded packets of any age replace no keys; and a peer that starts again asks, proves
//! itself, and only then ends the session of its predecessor.
//!
//! Invariants:
//! - no two sessions of an end have the same keys: an offer makes one session with each offer of a peer, and is replaced
//!   once one of them is in use;
//! - nothing of a packet is used, and nothing but a counter changes, before its tag was checked;
//! - an end answers at a limited rate, with no more bytes than came, and keeps nothing for whoever only asks.
//!
//! Forward secrecy: offers go when they are replaced, and so do their keys; who gets to know the shared secret after
//! that cannot read what was recorded. X25519 alone: a quantum computer can, if it has the shared secret, too.
//!
//! Everybody who has the shared secret is equal: two ends with one secret for several peers cannot tell which of them
//! they have.
//!
//! No clock, socket or randomness: time and a seed are arguments. Who has the socket calls [`Peering::on_packet`] with
//! what comes, [`Peering::sealer`] for what goes, and [`Peering::on_timeout`] and [`Peering::poll_transmit`] when
//! [`Peering::poll_timeout`] says so.

mod hello;
#[cfg(test)]
mod tests;

use crate::association::{self, Association, Limits, OpenError, SealError};
use crate::cipher::Cipher;
use crate::schedule::{End, Secret};
use crate::{HEAD_BYTES, TRAILER_BYTES};
use aws_lc_rs::hmac;
use hello::{ANSWER, ASK, Hello, Nonce, Offer};
use std::collections::VecDeque;

/// Bytes with which all packets begin: whose they are, and the version.
pub const MAGIC_BYTES: usize = 3;
/// Bytes before a frame that is sealed: magic, kind, session.
pub const FRAME_AT: usize = HEAD_BYTES;
/// Bytes that a sealed packet has more than its frame.
pub const OVERHEAD_BYTES: usize = HEAD_BYTES + TRAILER_BYTES;

/// The kind of a packet with a frame.
const FRAME: u8 = 3;
/// The kind of a packet that only shows that its sender has the keys.
const NOTHING: u8 = 4;
const ID_BYTES: usize = HEAD_BYTES - MAGIC_BYTES - 1;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// Until the second try of an ask or an answer; each further one takes twice as long. A judgement: above most round
/// trips.
const RETRY_NS_MIN: u64 = 250 * MS;
/// The longest time between tries. The peer asks when it starts, so this only matters if that is lost.
const RETRY_NS_MAX: u64 = 4 * SECOND;
/// How long a session may be made and not used. Longer than several tries.
const CANDIDATE_NS: u64 = 10 * SECOND;
/// How long packets of the session before the present one are opened. Longer than packets are on their way.
const PREVIOUS_NS: u64 = 30 * SECOND;
/// Who sends and hears nothing for so long asks again. Several times [`WORD_NS`].
const SILENCE_NS: u64 = 5 * SECOND;
/// Who hears and has nothing to send says so after this time, so that the peer's keys can be replaced.
const WORD_NS: u64 = SECOND;
/// Answers a second, and in a row, to those who are not proved. A judgement: several times what a peer needs.
const ANSWERS_PER_S: u64 = 64;
/// Peers' offers that one offer makes sessions with.
const OFFER_PEERS_MAX: usize = 8;
/// Packets that wait to be sent. Answers are limited, so it is never reached by a caller that sends what there is.
const OUTGOING_MAX: usize = 2 * ANSWERS_PER_S as usize;

/// What became of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sessions that came into use.
    pub sessions: u64,
    /// Hellos that were sent.
    pub hellos_sent: u64,
    /// Hellos of somebody who has the shared secret.
    pub hellos_came: u64,
    /// Hellos of somebody else, damaged, or in another form.
    pub hellos_forged: u64,
    /// Hellos of this end itself.
    pub hellos_reflected: u64,
    /// Answers to what is not asked any more: late, or recorded.
    pub hellos_stale: u64,
    /// Hellos that were not answered because too many came.
    pub hellos_ignored: u64,
    /// Frames that were opened.
    pub frames_opened: u64,
    /// Packets that are not the peer's.
    pub forged: u64,
    /// Packets that came before, or too late for that to be known.
    pub repeated: u64,
    /// Packets with a key that is over.
    pub outdated: u64,
    /// Packets of a session that this end does not have: of a peer that has started again, or was before this end.
    pub other_session: u64,
    /// Packets of another version, or none of these.
    pub strange: u64,
}

/// Keys that both ends have.
#[derive(Debug)]
struct Session {
    association: Association,
    id: [u8; ID_BYTES],
    /// The nonce of the peer's offer.
    peer: Nonce,
}

/// A session that was made, and of which nothing was opened yet.
#[derive(Debug)]
struct Candidate {
    session: Session,
    until_ns: u64,
    retry: Retry,
}

/// When something is tried next.
#[derive(Debug, Clone, Copy)]
struct Retry {
    due_ns: u64,
    interval_ns: u64,
}

impl Retry {
    fn at(due_ns: u64) -> Self {
        Self { due_ns, interval_ns: RETRY_NS_MIN }
    }

    /// Whether it is time, and sets the next one.
    fn take(&mut self, now_ns: u64) -> bool {
        let is_due = self.due_ns <= now_ns;
        if is_due {
            self.due_ns = now_ns + self.interval_ns;
            self.interval_ns = (2 * self.interval_ns).min(RETRY_NS_MAX);
        }
        is_due
    }
}

/// Answers that may be given.
#[derive(Debug)]
struct Budget {
    answers: u64,
    since_ns: u64,
}

impl Budget {
    fn take(&mut self, now_ns: u64) -> bool {
        let more = now_ns.saturating_sub(self.since_ns) / (SECOND / ANSWERS_PER_S);
        if more > 0 {
            self.answers = self.answers.saturating_add(more).min(ANSWERS_PER_S);
            self.since_ns = now_ns;
        }
        let is_there = self.answers > 0;
        self.answers -= u64::from(is_there);
        is_there
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Peering {
    magic: [u8; MAGIC_BYTES],
    shared: Secret,
    hello_key: hmac::Key,
    seed: Secret,
    limits: Limits,
    offer: Offer,
    candidate: Option<Candidate>,
    current: Option<Session>,
    /// The one before, and until when.
    previous: Option<(Session, u64)>,
    outgoing: VecDeque<Vec<u8>>,
    /// The next time to ask, as long as there is a reason.
    ask: Option<Retry>,
    budget: Budget,
    /// When something was sealed after which nothing was opened.
    unanswered_since_ns: Option<u64>,
    /// When a word is due to a peer that was heard.
    word_due_ns: Option<u64>,
    counters: Counters,
}

impl Peering {
    /// With a secret that the ends share for this alone, and a seed of random bytes, never used before.
    #[must_use]
    pub fn new(
        magic: [u8; MAGIC_BYTES],
        shared: Secret,
        mut seed: Secret,
        limits: Limits,
        now_ns: u64,
    ) -> Self {
        let mut key = zeroize::Zeroizing::new([0; 32]);
        shared.expand(&[b"lacuna peering hello", &magic], key.as_mut());
        let offer = Offer::next(&mut seed);
        Self {
            magic,
            shared,
            hello_key: hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()),
            seed,
            limits,
            offer,
            candidate: None,
            current: None,
            previous: None,
            outgoing: VecDeque::new(),
            ask: Some(Retry::at(now_ns)),
            budget: Budget { answers: ANSWERS_PER_S, since_ns: now_ns },
            unanswered_since_ns: None,
            word_due_ns: None,
            counters: Counters::default(),
        }
    }

    /// What became of packets.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes a packet that came. Gives its frame, in `out`, if it has one that is the peer's.
    ///
    /// # Panics
    /// If `out` is shorter than the packet.
    pub fn on_packet<'o>(
        &mut self,
        now_ns: u64,
        packet: &[u8],
        out: &'o mut [u8],
    ) -> Option<&'o mut [u8]> {
        match packet.split_first_chunk::<{ MAGIC_BYTES + 1 }>() {
            Some(([magic @ .., kind], _)) if *magic == self.magic => match *kind {
                ASK | ANSWER => self.on_hello(now_ns, packet),
                FRAME | NOTHING => return self.on_sealed(now_ns, packet, out),
                _ => self.counters.strange += 1,
            },
            _ => self.counters.strange += 1,
        }
        None
    }

    fn on_hello(&mut self, now_ns: u64, packet: &[u8]) {
        let Some(hello) = hello::parse(&self.hello_key, packet) else {
            self.counters.hellos_forged += 1;
            return;
        };
        let Hello { kind, nonce, echo, .. } = hello;
        if nonce == self.offer.nonce {
            self.counters.hellos_reflected += 1;
            return;
        }
        self.counters.hellos_came += 1;
        let is_fresh = echo == self.offer.nonce;
        let is_of = |session: &Session| session.peer == nonce;
        if self.candidate.as_ref().is_some_and(|candidate| is_of(&candidate.session)) {
            // It has not heard this end's answer, or nothing of the session.
            if self.may_answer(now_ns) {
                match is_fresh {
                    true => self.say_nothing(now_ns),
                    false => self.say_hello(ANSWER, nonce),
                }
            }
        } else if self.current.as_ref().is_some_and(is_of) {
            // It has heard nothing of the session; or this is a copy.
            if self.may_answer(now_ns) {
                self.say_nothing(now_ns);
            }
        } else if is_fresh && self.offer.used.len() < OFFER_PEERS_MAX && !self.is_used(nonce) {
            self.make_session(now_ns, &hello);
        } else if is_fresh {
            // Another offer came between, whose session is not in use. Both begin anew with other nonces.
            if self.may_answer(now_ns) {
                self.replace_offer();
                self.say_hello(ANSWER, nonce);
            }
        } else if kind == ASK {
            if self.may_answer(now_ns) {
                self.say_hello(ANSWER, nonce);
            }
        } else {
            self.counters.hellos_stale += 1;
        }
    }

    fn is_used(&self, nonce: Nonce) -> bool {
        self.offer.used.contains(&nonce)
    }

    fn may_answer(&mut self, now_ns: u64) -> bool {
        let may = self.budget.take(now_ns);
        self.counters.hellos_ignored += u64::from(!may);
        may
    }

    /// The peer has answered this end's offer.
    fn make_session(&mut self, now_ns: u64, hello: &Hello) {
        let Some(agreed) = self.offer.agree(hello.public) else {
            self.counters.strange += 1;
            return;
        };
        let own = (&self.offer.nonce, &self.offer.public);
        let peer = (&hello.nonce, &hello.public);
        // Nonces differ: this end's own was refused.
        let (end, first, second) = match own.0 < peer.0 {
            true => (End::Connecting, own, peer),
            false => (End::Accepting, peer, own),
        };
        let context = [&first.0[..], first.1, second.0, second.1].concat();
        let secret = self.shared.mix(agreed.as_ref()).derive(b"lacuna peering", &context);
        let id = secret.number(b"lacuna peering session", 0).to_be_bytes();
        let (cipher, limits) = (Cipher::default(), self.limits);
        let association = Association::new(cipher, secret, end, 1, limits, now_ns);
        self.offer.used.push(hello.nonce);
        let session = Session { association, id, peer: hello.nonce };
        let retry = Retry::at(now_ns + RETRY_NS_MIN);
        self.candidate = Some(Candidate { session, until_ns: now_ns + CANDIDATE_NS, retry });
        self.say_hello(ANSWER, hello.nonce);
        self.say_nothing(now_ns);
    }

    fn on_sealed<'o>(
        &mut self,
        now_ns: u64,
        packet: &[u8],
        out: &'o mut [u8],
    ) -> Option<&'o mut [u8]> {
        let id = packet.get(MAGIC_BYTES + 1..HEAD_BYTES)?;
        let Self { candidate, current, previous, counters, .. } = self;
        let candidate = candidate.as_ref().map(|candidate| &candidate.session);
        let previous = previous.as_ref().map(|(session, _)| session);
        let all = [current.as_ref(), candidate, previous];
        let found = all.iter().position(|of| of.is_some_and(|session| session.id == *id));
        let Some((at, session)) = found.and_then(|at| Some((at, all[at]?))) else {
            counters.other_session += 1;
            return None;
        };
        let opened = session.association.opener(0, now_ns)?.open(packet, out);
        let text = match opened {
            Ok(text) => text,
            Err(error) => {
                match error {
                    OpenError::TooShort { .. } => counters.strange += 1,
                    OpenError::Repeated { .. } => counters.repeated += 1,
                    OpenError::Epoch => counters.outdated += 1,
                    OpenError::Forged | OpenError::Spent { .. } => counters.forged += 1,
                }
                return None;
            }
        };
        let has_frame = packet[MAGIC_BYTES] == FRAME;
        counters.frames_opened += u64::from(has_frame);
        if at == 1 {
            self.use_candidate(now_ns);
        }
        if at < 2 {
            self.unanswered_since_ns = None;
        }
        if has_frame && self.word_due_ns.is_none() {
            self.word_due_ns = Some(now_ns + WORD_NS);
        }
        has_frame.then(|| &mut text[FRAME_AT..])
    }

    /// The peer has the keys of the session that was made last.
    fn use_candidate(&mut self, now_ns: u64) {
        let Some(Candidate { session, .. }) = self.candidate.take() else { return };
        let before = self.current.replace(session);
        self.previous = before.map(|session| (session, now_ns + PREVIOUS_NS));
        self.counters.sessions += 1;
        self.ask = None;
        self.replace_offer();
        // So that the peer can use it, too, if what was said before is lost.
        self.say_nothing(now_ns);
    }

    fn replace_offer(&mut self) {
        self.offer = Offer::next(&mut self.seed);
        self.candidate = None;
    }

    fn say_hello(&mut self, kind: u8, echo: Nonce) {
        if self.outgoing.len() < OUTGOING_MAX {
            let packet = hello::emit(&self.hello_key, self.magic, kind, &self.offer, echo);
            self.outgoing.push_back(packet);
            self.counters.hellos_sent += 1;
        }
    }

    /// Shows the peer of the newest session that this end has its keys.
    fn say_nothing(&mut self, now_ns: u64) {
        let candidate = self.candidate.as_ref().map(|candidate| &candidate.session);
        let Some(session) = candidate.or(self.current.as_ref()) else { return };
        let mut packet = vec![0; OVERHEAD_BYTES];
        let sealer = session.association.sealer(0, now_ns);
        let Some(mut sealer) = sealer.filter(|_| self.outgoing.len() < OUTGOING_MAX) else {
            return;
        };
        head(self.magic, NOTHING, session, &mut packet);
        if sealer.seal(&mut packet).is_ok() {
            drop(sealer);
            self.outgoing.push_back(packet);
            self.word_due_ns = None;
        }
    }

    /// Seals frames; `None` as long as there are no keys, and frames have to be dropped.
    pub fn sealer(&mut self, now_ns: u64) -> Option<FrameSealer<'_>> {
        let candidate = self.candidate.as_ref().map(|candidate| &candidate.session);
        let session = self.current.as_ref().or(candidate)?;
        let sealer = session.association.sealer(0, now_ns)?;
        self.word_due_ns = None;
        self.unanswered_since_ns.get_or_insert(now_ns);
        Some(FrameSealer { magic: self.magic, session, sealer })
    }

    /// Handles what is due.
    pub fn on_timeout(&mut self, now_ns: u64) {
        if self.previous.as_ref().is_some_and(|(_, until_ns)| *until_ns <= now_ns) {
            self.previous = None;
        }
        if let Some(candidate) = &mut self.candidate {
            let (is_over, peer) = (candidate.until_ns <= now_ns, candidate.session.peer);
            if !is_over && candidate.retry.take(now_ns) {
                self.say_hello(ANSWER, peer);
                self.say_nothing(now_ns);
            } else if is_over {
                self.replace_offer();
            }
        }
        let is_silent = self.silence_ends_ns().is_some_and(|end_ns| end_ns <= now_ns);
        match self.candidate.is_none() && (self.current.is_none() || is_silent) {
            true => {
                if self.ask.get_or_insert(Retry::at(now_ns)).take(now_ns) {
                    self.say_hello(ASK, Nonce::default());
                }
            }
            false => self.ask = None,
        }
        if self.word_due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.word_due_ns = None;
            self.say_nothing(now_ns);
        }
    }

    fn silence_ends_ns(&self) -> Option<u64> {
        self.unanswered_since_ns.map(|since_ns| since_ns + SILENCE_NS)
    }

    /// When [`Peering::on_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let candidate = self.candidate.as_ref().map(|it| it.retry.due_ns.min(it.until_ns));
        let previous = self.previous.as_ref().map(|(_, until_ns)| *until_ns);
        let may_ask = self.candidate.is_none();
        let ask = match self.ask {
            Some(retry) => Some(retry.due_ns),
            None if self.current.is_none() => Some(0),
            None => self.silence_ends_ns(),
        };
        let ask = ask.filter(|_| may_ask);
        [candidate, previous, ask, self.word_due_ns].into_iter().flatten().min()
    }

    /// The next packet to send to the peer.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outgoing.pop_front()
    }
}

/// Seals frames of one session.
#[derive(Debug)]
pub struct FrameSealer<'p> {
    magic: [u8; MAGIC_BYTES],
    session: &'p Session,
    sealer: association::Sealer<'p>,
}

impl FrameSealer<'_> {
    /// Seals a packet in place: its frame is at [`FRAME_AT`], and behind it there is room for the trailer; together
    /// [`OVERHEAD_BYTES`].
    ///
    /// # Errors
    /// See [`SealError`]. The packet must not be sent then.
    ///
    /// # Panics
    /// If it is shorter than that.
    #[inline]
    pub fn seal(&mut self, packet: &mut [u8]) -> Result<(), SealError> {
        head(self.magic, FRAME, self.session, packet);
        self.sealer.seal(packet)
    }
}

fn head(magic: [u8; MAGIC_BYTES], kind: u8, session: &Session, packet: &mut [u8]) {
    packet[..MAGIC_BYTES].copy_from_slice(&magic);
    packet[MAGIC_BYTES] = kind;
    packet[MAGIC_BYTES + 1..HEAD_BYTES].copy_from_slice(&session.id);
}

const _: () = assert!(ID_BYTES == 8, "an id is a number");
const _: () = assert!(WORD_NS * 2 < SILENCE_NS, "a peer that is there is heard in time");
