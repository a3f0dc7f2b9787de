//! Sealed datagrams: the keys of one queue pair that any number of peers, which share a secret with it, send to.
//!
//! There is no connection that could agree on keys, so two packets do (`hello.rs`): an end that has something for an
//! address which it does not know asks it with a *hello*, and has keys for both directions with the answer. An
//! *association* is what follows from the secret, the nonce that each end drew for it, and both ends' identities, which
//! are drawn when a queue pair is made. So its packets were sealed after both began, nothing that was recorded before
//! opens, and an association that was forgotten is followed by one with other keys, whose numbers may begin at 0.
//!
//! The end that answered keeps the association aside until a packet opens by it: that is the proof that the asking end
//! has the answer, so is where its packets come from, and is there now. The asking end sends an empty packet for it. Then
//! it takes the place of an earlier association. That is kept for what is late, and as the other end may go on with it
//! where both asked at once.
//!
//! A packet to a group is sealed with a key of the secret and the sender's identity. Who gets one and does not know the
//! sender at that address asks it by a hello, and holds few packets back meanwhile. The answer says from which number on to
//! take any: none that the sender sent before the receiver began, or forgot other senders, or a second ago.
//!
//! A packet that does not open by its id says that its sender and this end do not know each other (any more): one of
//! them began anew, or has forgotten the other. It is answered by a hello, at most once in a second to an address that has
//! proved itself, and to others with at most three times the bytes that came from there.
//!
//! Who has the secret can compute all keys, now and later: there is no forward secrecy, and members are alike.
//!
//! | module | contents |
//! |---|---|
//! | `keys` | numbers, keys and windows of one direction |
//! | `hello` | the two packets that make an association |
//! | `asking` | hellos that wait for their answers |
//! | `marks` | group packets of the last second, for who hears of a sender by them |
//! | `peers` | how peers come, go and rest |
//! | `opener`, `stats` | opening, without the keyring; counters |
//!
//! Invariants: a key never seals two packets with one number; nothing but counters, and hellos that are bounded, follows
//! from a packet that did not open; each table has a bound.

mod asking;
mod hello;
mod keys;
mod marks;
mod opener;
mod peers;
mod stats;

use crate::cipher::Cipher;
use crate::schedule::Secret;
use crate::{NUMBER_BYTES, TAG_BYTES};
use asking::{Asking, Due, Standing};
use core::net::SocketAddr;
use hello::{ANSWER, Greeting, HELLO, Stamp, What};
pub use keys::{Receiving, Sealer, Sending};
use marks::Marks;
pub use opener::{OpenError, Opener};
pub use stats::KeyringStats;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Bytes of an association's id.
const ID_BYTES: usize = 4;
/// What is in front of a packet's text: kind, id and number.
pub const HEAD_BYTES: usize = 1 + ID_BYTES + NUMBER_BYTES;
/// What is behind it.
pub const TAIL_BYTES: usize = TAG_BYTES;

/// First bytes of packets to one end by whom the association was asked for and by whom it was answered, and of those to a
/// group. Direction and kind are part of the key as well.
const FROM_ASKING: u8 = 0xd0;
const FROM_ANSWERING: u8 = 0xd1;
const TO_GROUP: u8 = 0xd2;

/// Associations that were answered and not used yet, at most.
const PENDING_MAX: usize = 1024;
/// Packets that wait to be sent, at most.
const OUT_MAX: usize = 4096;
/// A known peer is asked at most so often because of packets that do not open.
const ASK_NS: u64 = 1_000_000_000;
type Id = [u8; ID_BYTES];
type Nonce = [u8; 16];
type Identity = [u8; 16];

/// How much a key may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Packets that one key seals.
    pub packets: u64,
    /// Packets that may fail to open before an association is given up (RFC 9001, 6.6).
    pub failures: u64,
}

impl Limits {
    /// Half of the packets that a cipher may seal, and all the failures that it may have.
    #[must_use]
    pub const fn of(cipher: Cipher) -> Self {
        Self { packets: cipher.packets_max() / 2, failures: cipher.failures_max() }
    }
}

/// Settings of a [`Keyring`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyringConfig {
    /// Algorithm of all keys. All ends with one secret have the same.
    pub cipher: Cipher,
    /// How much a key may do.
    pub limits: Limits,
    /// Peers with associations at a time; those that were not used lately go for others.
    pub peers_max: usize,
}

/// What became of an address that something was to be sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyringEvent {
    /// There are keys.
    Ready(SocketAddr),
    /// It does not answer.
    Unanswered(SocketAddr),
}

/// Keys for both directions with one peer.
#[derive(Debug, Clone)]
struct Association {
    /// By who asked.
    nonce: Nonce,
    send: Arc<Sending>,
    receive: Arc<Receiving>,
}

/// One that was answered and not used.
#[derive(Debug)]
struct Pending {
    association: Association,
    /// By this end.
    nonce: Nonce,
    serial: u64,
}

#[derive(Debug)]
struct Peer {
    current: Association,
    previous: Option<Association>,
    /// The sender at this address, if it sends to groups.
    source: Option<Identity>,
    /// When it was asked because of packets that did not open.
    asked_ns: Option<u64>,
    is_used: bool,
    /// Its place in the ring.
    at: usize,
}

/// A sender to groups, wherever its packets come from: so a number counts once.
#[derive(Debug)]
struct Source {
    receive: Arc<Receiving>,
    /// Peers that have it.
    users: usize,
}

/// See the module's text.
#[derive(Debug)]
pub struct Keyring {
    config: KeyringConfig,
    secret: Secret,
    stamp: Stamp,
    own: Identity,
    /// Nonces follow from this and a count.
    random: Secret,
    drawn: u64,
    /// What this end sends to groups.
    group: Arc<Sending>,
    marks: Marks,
    /// Since when no group packet was taken whose sender was forgotten, and how many senders were.
    fresh_since_ns: u64,
    forgotten: u64,
    peers: HashMap<SocketAddr, Peer>,
    sources: HashMap<Identity, Source>,
    /// All peers, for the hands that go around.
    ring: Vec<SocketAddr>,
    evict_at: usize,
    /// The next of the steps in which all peers are looked at.
    rest_step: u64,
    rest_ns: Option<u64>,
    /// Something was active since the first of these steps.
    is_any_active: bool,
    pending: HashMap<(SocketAddr, Id), Pending>,
    pending_order: VecDeque<((SocketAddr, Id), u64)>,
    asking: Asking,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<KeyringEvent>,
    opened: Vec<(SocketAddr, Vec<u8>)>,
    stats: KeyringStats,
}

impl Keyring {
    /// For a new queue pair. `seed` is random, and nobody else's ever.
    #[must_use]
    pub fn new(config: KeyringConfig, secret: Secret, seed: Secret, now_ns: u64) -> Self {
        let own = *seed.bytes(b"lacuna datagram identity", &[]);
        let KeyringConfig { cipher, limits, .. } = config;
        let of_group = group_secret(&secret, &own);
        let group = Sending::new(TO_GROUP, group_id(&own), cipher, limits, of_group);
        Self {
            config: KeyringConfig { peers_max: config.peers_max.max(1), ..config },
            stamp: Stamp::new(&secret),
            secret,
            own,
            random: seed.derive(b"lacuna datagram nonces", &[]),
            drawn: 0,
            group: Arc::new(group),
            marks: Marks::default(),
            fresh_since_ns: now_ns,
            forgotten: 0,
            peers: HashMap::new(),
            sources: HashMap::new(),
            ring: Vec::new(),
            evict_at: 0,
            rest_step: 0,
            rest_ns: None,
            is_any_active: false,
            pending: HashMap::new(),
            pending_order: VecDeque::new(),
            asking: Asking::default(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            opened: Vec::new(),
            stats: KeyringStats::default(),
        }
    }

    // ---- what is sent ----

    /// Whether there are keys for an address. If not they are asked for, and an event tells what comes of it.
    pub fn is_ready(&mut self, now_ns: u64, to: SocketAddr) -> bool {
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.is_used = true;
            return true;
        }
        let draw = || (draw(&self.random, &mut self.drawn), self.forgotten);
        if let Some(nonce) = self.asking.want(now_ns, to, draw) {
            self.ask(now_ns, to, nonce);
        }
        false
    }

    /// What seals packets to an address; `None` without keys.
    pub fn sending(&mut self, now_ns: u64, to: SocketAddr) -> Option<Arc<Sending>> {
        let send = self.peers.get(&to)?.current.send.clone();
        self.stir(now_ns);
        Some(send)
    }

    /// What seals packets to groups.
    pub fn sending_to_groups(&mut self, now_ns: u64) -> Arc<Sending> {
        self.marks.on_sending(now_ns, || self.group.number());
        self.group.clone()
    }

    /// The next packet of the keyring's own, as it is to be sent.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }

    /// Whether there is one.
    #[must_use]
    pub fn has_packets(&self) -> bool {
        !self.out.is_empty()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<KeyringEvent> {
        self.events.pop_front()
    }

    // ---- what comes ----

    /// What opens the packets of an address.
    #[must_use]
    pub fn opener(&mut self, now_ns: u64, from: SocketAddr) -> Opener {
        let own_group = group_id(&self.own);
        let Some(peer) = self.peers.get_mut(&from) else {
            return Opener { current: None, previous: None, group: None, own_group };
        };
        peer.is_used = true;
        let source = peer.source.and_then(|source| self.sources.get(&source));
        let opener = Opener {
            current: Some(peer.current.receive.clone()),
            previous: peer.previous.as_ref().map(|previous| previous.receive.clone()),
            group: source.map(|source| source.receive.clone()),
            own_group,
        };
        self.stir(now_ns);
        opener
    }

    /// A packet did not open. Counts it, takes hellos and answers, and asks who its sender is. `true` if it is open now:
    /// the first one of an association, or of a batch in which an earlier one was that.
    pub fn on_unopened(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        packet: &mut [u8],
        error: OpenError,
    ) -> bool {
        let error = match error {
            OpenError::Unknown => match self.open_late(now_ns, from, packet) {
                Ok(()) => return true,
                Err(error) => error,
            },
            error => error,
        };
        match error {
            OpenError::Kind => self.on_greeting(now_ns, from, packet),
            OpenError::TooShort { .. } => self.stats.malformed += 1,
            OpenError::Unknown => {
                self.stats.unknown += 1;
                self.on_unknown(now_ns, from, packet);
            }
            OpenError::Repeated { .. } => self.stats.repeated += 1,
            OpenError::Forged => self.stats.forged += 1,
            OpenError::Reflected => self.stats.reflected += 1,
            OpenError::Spent { .. } => {
                self.stats.spent += 1;
                self.give_up_spent(now_ns, from, packet.len());
            }
        }
        false
    }

    /// Group packets that were held back and are open now, and from where they are. Texts as [`Opener::open`] has them.
    pub fn take_opened(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.opened)
    }

    /// By what has come about since the opener was made, or by an association that was not used yet.
    fn open_late(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        packet: &mut [u8],
    ) -> Result<(), OpenError> {
        match self.opener(now_ns, from).open(packet) {
            Err(OpenError::Unknown) => {}
            opened => return opened,
        }
        let &[kind, ref id @ ..] =
            packet.first_chunk::<{ 1 + ID_BYTES }>().ok_or(OpenError::Unknown)?;
        let key = (from, *id);
        let pending = self.pending.get(&key).filter(|_| kind == FROM_ASKING);
        let pending = pending.ok_or(OpenError::Unknown)?;
        // Its keys were made for a hello that may be an old one: what else has its id is of another association.
        let opened = pending.association.receive.open(packet);
        opened.map_err(|_| OpenError::Unknown)?;
        if let Some(Pending { association, .. }) = self.pending.remove(&key) {
            self.install(now_ns, from, association);
        }
        Ok(())
    }

    /// By whatever is not known at an address, somebody is there who should be asked; or nobody is.
    fn on_unknown(&mut self, now_ns: u64, from: SocketAddr, packet: &[u8]) {
        let is_of_group = packet.first() == Some(&TO_GROUP);
        self.ask_who(now_ns, from, (packet.len(), is_of_group));
        if is_of_group {
            match self.asking.hold(from, packet) {
                true => self.stats.held += 1,
                false => self.stats.held_dropped += 1,
            }
        }
    }

    fn ask_who(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        (packet_bytes, is_of_group): (usize, bool),
    ) {
        let peer = self.peers.get_mut(&from);
        // A known one is asked seldom, so at once for all that it may send: nobody's forgery delays one for the other.
        let packet = (packet_bytes, is_of_group || peer.is_some());
        let standing = match &peer {
            None => Standing::Stranger,
            Some(peer) if peer.asked_ns.is_none_or(|ns| now_ns >= ns + ASK_NS) => Standing::Proved,
            Some(_) => Standing::Asked,
        };
        let draw = || (draw(&self.random, &mut self.drawn), self.forgotten);
        if let Some(nonce) = self.asking.on_unknown(now_ns, from, packet, standing, draw) {
            if let Some(peer) = peer {
                peer.asked_ns = Some(now_ns);
            }
            self.ask(now_ns, from, nonce);
        }
    }

    fn on_greeting(&mut self, now_ns: u64, from: SocketAddr, packet: &[u8]) {
        if !matches!(packet.first(), Some(&(HELLO | ANSWER))) || packet.len() != hello::BYTES {
            self.stats.malformed += 1;
            return;
        }
        let Some(greeting) = self.stamp.parse(packet) else {
            self.stats.forged += 1;
            return;
        };
        if greeting.identity == self.own {
            self.stats.reflected += 1;
            return;
        }
        match greeting.what {
            What::Hello { fresh_us } => self.on_hello(now_ns, from, &greeting, fresh_us),
            What::Answer { floor, nonce } => {
                self.on_answer(now_ns, from, &greeting, (floor, nonce));
            }
        }
    }

    fn on_hello(&mut self, now_ns: u64, from: SocketAddr, hello: &Greeting, fresh_us: u64) {
        let is_in_use = self.peers.get(&from).is_some_and(|peer| {
            let mut all = std::iter::once(&peer.current).chain(&peer.previous);
            all.any(|association| association.nonce == hello.nonce)
        });
        if is_in_use || self.out.len() >= OUT_MAX {
            self.stats.repeated += u64::from(is_in_use);
            return;
        }
        let key = (from, id_of(&hello.nonce));
        let same = self.pending.get(&key).filter(|it| it.association.nonce == hello.nonce);
        let nonce = match same {
            // The answer was lost, or is on its way.
            Some(pending) => pending.nonce,
            None => {
                let nonce = self.draw();
                let (theirs, own) = (hello.identity, self.own);
                let association = self.associate(hello.nonce, nonce, [theirs, own], false);
                self.keep_aside(key, association, nonce);
                nonce
            }
        };
        let fresh_ns = fresh_us.saturating_mul(1000);
        let floor = self.marks.floor(now_ns, fresh_ns).unwrap_or_else(|| self.group.number());
        let what = What::Answer { floor, nonce };
        let answer = Greeting { nonce: hello.nonce, identity: self.own, what };
        self.out.push_back((from, self.stamp.emit(&answer)));
        self.stats.answered += 1;
    }

    fn keep_aside(&mut self, key: (SocketAddr, Id), association: Association, nonce: Nonce) {
        while self.pending_order.len() >= PENDING_MAX {
            let Some((oldest, serial)) = self.pending_order.pop_front() else { break };
            if self.pending.get(&oldest).is_some_and(|pending| pending.serial == serial) {
                self.pending.remove(&oldest);
            }
        }
        let serial = self.drawn;
        self.pending.insert(key, Pending { association, nonce, serial });
        self.pending_order.push_back((key, serial));
    }

    fn on_answer(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        answer: &Greeting,
        (floor, nonce): (u64, Nonce),
    ) {
        let Some(asked) = self.asking.take(from, &answer.nonce) else {
            self.stats.unasked += 1;
            return;
        };
        let ids = [self.own, answer.identity];
        let association = self.associate(answer.nonce, nonce, ids, true);
        // The peer hears by this that the answer is here, also where nothing else is to be sent.
        let mut confirmation = vec![0; HEAD_BYTES + TAIL_BYTES];
        association.send.sealer().seal(&mut confirmation);
        self.out.push_back((from, confirmation));
        self.install(now_ns, from, association);
        if asked.is_wanted {
            self.events.push_back(KeyringEvent::Ready(from));
        }
        // Packets that were taken of a sender which was forgotten since the hello could come again.
        if asked.is_for_group && asked.forgotten == self.forgotten {
            self.set_source(now_ns, from, answer.identity, floor);
            let opener = self.opener(now_ns, from);
            for mut packet in asked.held {
                match opener.open(&mut packet) {
                    Ok(()) => self.opened.push((from, packet)),
                    Err(OpenError::Repeated { .. }) => self.stats.repeated += 1,
                    Err(_) => self.stats.forged += 1,
                }
            }
        }
    }

    /// Keys of an association. `ids` are those of who asked and of who answered.
    fn associate(
        &self,
        asking: Nonce,
        answering: Nonce,
        ids: [Identity; 2],
        is_asking: bool,
    ) -> Association {
        let KeyringConfig { cipher, limits, .. } = self.config;
        let context = [asking, answering, ids[0], ids[1]].concat();
        let secret = self.secret.derive(b"lacuna datagram pair", &context);
        let id = id_of(&asking);
        let (own, other) =
            if is_asking { (FROM_ASKING, FROM_ANSWERING) } else { (FROM_ANSWERING, FROM_ASKING) };
        let of = |kind: u8| secret.derive(b"lacuna datagram from", &[kind]);
        Association {
            nonce: asking,
            send: Arc::new(Sending::new(own, id, cipher, limits, of(own))),
            receive: Arc::new(Receiving::new(other, id, cipher, limits, of(other), 0)),
        }
    }

    /// Keys that have seen too much forgery go.
    fn give_up_spent(&mut self, now_ns: u64, from: SocketAddr, packet_bytes: usize) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let spent_source =
            peer.source.filter(|of| self.sources.get(of).is_some_and(|it| it.receive.is_spent()));
        if peer.current.receive.is_spent() || spent_source.is_some() {
            self.forget(now_ns, from);
        } else {
            peer.previous.take_if(|previous| previous.receive.is_spent());
        }
        self.ask_who(now_ns, from, (packet_bytes, false));
    }

    // ---- time ----

    /// When [`Keyring::on_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        [self.asking.poll_timeout(), self.rest_ns].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now_ns: u64) {
        while let Some(due) = self.asking.pop_due(now_ns) {
            match due {
                Due::Again(to, nonce) => self.ask(now_ns, to, nonce),
                Due::Unanswered(to) => {
                    self.stats.unanswered += 1;
                    self.events.push_back(KeyringEvent::Unanswered(to));
                }
                Due::Over => {}
            }
        }
        if self.rest_ns.is_some_and(|ns| ns <= now_ns) {
            self.rest(now_ns);
        }
    }

    // ---- the rest ----

    /// A snapshot of the counters.
    #[must_use]
    pub fn stats(&self) -> KeyringStats {
        let waiting = self.asking.len() + self.pending.len();
        KeyringStats { peers: self.peers.len(), waiting, ..self.stats }
    }

    fn ask(&mut self, now_ns: u64, to: SocketAddr, nonce: Nonce) {
        if self.out.len() >= OUT_MAX {
            return;
        }
        let fresh_us = now_ns.saturating_sub(self.fresh_since_ns) / 1000;
        let what = What::Hello { fresh_us };
        let hello = Greeting { nonce, identity: self.own, what };
        self.out.push_back((to, self.stamp.emit(&hello)));
        self.stats.asked += 1;
    }

    fn draw(&mut self) -> Nonce {
        draw(&self.random, &mut self.drawn)
    }
}

fn draw(random: &Secret, drawn: &mut u64) -> Nonce {
    *drawn += 1;
    *random.bytes(b"lacuna datagram nonce", &drawn.to_be_bytes())
}

fn id_of(nonce: &Nonce) -> Id {
    *nonce.first_chunk().expect("sixteen bytes have four")
}

fn group_id(identity: &Identity) -> Id {
    *identity.first_chunk().expect("sixteen bytes have four")
}

fn group_secret(secret: &Secret, identity: &Identity) -> Secret {
    secret.derive(b"lacuna datagram group", identity)
}
