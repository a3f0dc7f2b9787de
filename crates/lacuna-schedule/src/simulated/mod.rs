//! A network in virtual time, and a group of runners on it: for tests and simulations of schedules.
//!
//! Each rank has a link of a rate in each direction, which its peers use in turns, packet by packet; each pair
//! has a delay. A judge says
//! what becomes of each packet. In a reliable network a lost packet comes later; in one that is not it is
//! lost, and a receive ends by its deadline or when all has been sent. A message is sent once its receive is
//! posted and that is known to the sender, as with real queue pairs. Reducing takes no time.
//!
//! Or messages are carried whole, each in a time that a [`Carrier`] says: that of a real protocol, measured
//! before, or one that a model has drawn. Then neither packets nor links are made up.
//!
//! The same judge and the same operations give the same events: equal times are ordered by a counter.

mod endpoint;
mod group;
mod whole;

use crate::run::{Event, Reason, Token};
pub use endpoint::Endpoint;
pub use group::Group;
use lacuna_link::SplitMix64;
use lacuna_path::ranges::Ranges;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
pub use whole::{Carried, Carrier};

/// A packet, for the judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// Which message from the one to the other.
    pub message: usize,
    /// Its first byte in the message.
    pub offset: usize,
    /// Its bytes.
    pub len: usize,
    /// When it leaves.
    pub time_ns: u64,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It comes, so much later than usual.
    Comes {
        /// Beyond the pair's delay.
        extra_ns: u64,
    },
    /// It does not come.
    Lost,
}

/// Says what becomes of each packet.
pub type Judge = Box<dyn FnMut(&Packet) -> Fate>;

/// A judge that loses packets independently.
#[must_use]
pub fn independent_loss(loss_ppm: u32, seed: u64) -> Judge {
    let mut random = SplitMix64::new(seed);
    Box::new(
        move |_| {
            if random.chance(loss_ppm) { Fate::Lost } else { Fate::Comes { extra_ns: 0 } }
        },
    )
}

/// What a network is like.
pub struct Config {
    /// Its ranks.
    pub ranks: usize,
    /// Of each rank's link, in each direction.
    pub rate_bits_per_s: u64,
    /// One way, from a rank to another.
    pub delay_ns: Box<dyn Fn(usize, usize) -> u64>,
    /// Payload of a packet.
    pub packet_bytes: usize,
    /// Packets of a chunk.
    pub chunk_packets: usize,
    /// Lost packets come later.
    pub is_reliable: bool,
    /// How much later, beyond a round trip.
    pub repair_ns: u64,
    /// When a receive ends after the sender's last packet should have come; `None`: not before its deadline.
    pub grace_ns: Option<u64>,
    /// Receives are known to their senders at once, as if they had been posted by the operation before.
    pub is_warm: bool,
    /// Each note comes a second time, and every other one is overtaken by those behind it.
    pub has_unruly_notes: bool,
    /// How long each message takes, if it is carried whole: rates, packets and the judge do not matter then.
    pub carrier: Option<Carrier>,
}

impl Config {
    /// A reliable network with links of this rate and delays of this length.
    #[must_use]
    pub fn reliable(ranks: usize, rate_bits_per_s: u64, delay_ns: u64) -> Self {
        Self {
            ranks,
            rate_bits_per_s,
            delay_ns: Box::new(move |_, _| delay_ns),
            packet_bytes: 1024,
            chunk_packets: 4,
            is_reliable: true,
            repair_ns: 0,
            grace_ns: None,
            is_warm: false,
            has_unruly_notes: false,
            carrier: None,
        }
    }

    /// The same where what is lost is lost.
    #[must_use]
    pub fn best_effort(ranks: usize, rate_bits_per_s: u64, delay_ns: u64) -> Self {
        Self { is_reliable: false, ..Self::reliable(ranks, rate_bits_per_s, delay_ns) }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A packet has left its sender.
    Leaves {
        from: usize,
    },
    /// A packet is at the receiver's link; then it has passed it.
    Reaches {
        pair: (usize, usize),
        message: usize,
        offset: usize,
        data: Vec<u8>,
    },
    Comes {
        pair: (usize, usize),
        message: usize,
        offset: usize,
        data: Vec<u8>,
    },
    /// The sender learns that a receive is posted.
    Credit {
        pair: (usize, usize),
    },
    /// All of a message that was not lost has come.
    Accounted {
        pair: (usize, usize),
        message: usize,
    },
    Deadline {
        pair: (usize, usize),
        message: usize,
    },
    Note {
        from: usize,
        to: usize,
        note: Vec<u8>,
    },
    Failed {
        peer: usize,
        seen_by: usize,
    },
    /// A message that is carried whole is there; then the next one of the pair may begin.
    CameWhole {
        pair: (usize, usize),
        message: usize,
        data: Vec<u8>,
    },
    Next {
        pair: (usize, usize),
        message: usize,
    },
}

struct Send {
    token: Token,
    len: usize,
    offered: usize,
    left: usize,
    /// Offered before the receive was known to be posted.
    waiting: Vec<(usize, Vec<u8>)>,
}

struct Receive {
    token: Token,
    buffer: Vec<u8>,
    here: Ranges<usize>,
    told: Ranges<usize>,
    is_over: bool,
}

#[derive(Default)]
struct Pair {
    sends: Vec<Send>,
    receives: Vec<Receive>,
    /// Receives that the sender knows of.
    credit: usize,
    /// The message that is to be carried whole next, and whether one is on its way.
    next_whole: usize,
    is_carrying: bool,
}

/// A packet of a message before it leaves: the message, its place, its bytes.
type Queued = (usize, usize, Vec<u8>);

#[derive(Default)]
struct Node {
    /// What may leave, by peer.
    queues: BTreeMap<usize, VecDeque<Queued>>,
    /// What is leaving, and to whom. The next one's turn is after that peer.
    leaving: Option<(usize, Queued)>,
    last_peer: usize,
    enters_ns: u64,
    events: VecDeque<Event>,
    is_dead: bool,
    /// Sends and receives by token: the pair and the message.
    sends: BTreeMap<Token, ((usize, usize), usize)>,
    receives: BTreeMap<Token, ((usize, usize), usize)>,
}

/// See the module's text.
pub struct Network {
    config: Config,
    judge: Judge,
    now_ns: u64,
    count: u64,
    happenings: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    nodes: Vec<Node>,
    pairs: BTreeMap<(usize, usize), Pair>,
    sent_packets: u64,
}

impl Network {
    /// A network at time 0.
    #[must_use]
    pub fn new(config: Config, judge: Judge) -> Self {
        let nodes = (0..config.ranks).map(|_| Node::default()).collect();
        Self {
            config,
            judge,
            now_ns: 0,
            count: 0,
            happenings: BinaryHeap::new(),
            nodes,
            pairs: BTreeMap::new(),
            sent_packets: 0,
        }
    }

    /// Now.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Packets that were sent, lost ones included.
    #[must_use]
    pub fn sent_packets(&self) -> u64 {
        self.sent_packets
    }

    /// A rank's side of it.
    pub fn endpoint(&mut self, rank: usize) -> Endpoint<'_> {
        Endpoint { network: self, rank }
    }

    /// A rank stops; the others see it after this time.
    pub fn kill(&mut self, rank: usize, seen_after_ns: u64) {
        self.nodes[rank].is_dead = true;
        for seen_by in (0..self.nodes.len()).filter(|other| *other != rank) {
            self.at(self.now_ns + seen_after_ns, Happening::Failed { peer: rank, seen_by });
        }
    }

    /// When something happens next.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.happenings.peek().map(|Reverse((time_ns, _, _))| *time_ns)
    }

    /// Lets everything happen up to a time, which is now then.
    pub fn advance(&mut self, to_ns: u64) {
        while let Some(Reverse((time_ns, _, _))) = self.happenings.peek()
            && *time_ns <= to_ns
            && let Some(Reverse((time_ns, _, happening))) = self.happenings.pop()
        {
            self.now_ns = self.now_ns.max(time_ns);
            self.happen(happening);
        }
        self.now_ns = self.now_ns.max(to_ns);
    }

    fn at(&mut self, time_ns: u64, happening: Happening) {
        self.count += 1;
        self.happenings.push(Reverse((time_ns, self.count, happening)));
    }

    fn transmission_ns(&self, bytes: usize) -> u64 {
        let bits = bytes as u128 * 8_000_000_000;
        bits.div_ceil(u128::from(self.config.rate_bits_per_s)) as u64
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Leaves { from } => self.left(from),
            Happening::Reaches { pair, message, offset, data } => {
                let free_ns = self.nodes[pair.1].enters_ns.max(self.now_ns);
                let time_ns = free_ns + self.transmission_ns(data.len());
                self.nodes[pair.1].enters_ns = time_ns;
                self.at(time_ns, Happening::Comes { pair, message, offset, data });
            }
            Happening::Comes { pair, message, offset, data } => {
                self.place(pair, message, offset, &data);
            }
            Happening::Credit { pair } => {
                let message = {
                    let state = self.pairs.entry(pair).or_default();
                    state.credit += 1;
                    state.credit - 1
                };
                self.flush(pair, message);
            }
            Happening::Accounted { pair, message } => self.end(pair, message, Reason::Accounted),
            Happening::Deadline { pair, message } => self.end(pair, message, Reason::Deadline),
            Happening::Note { from, to, note } => {
                self.nodes[to].events.push_back(Event::Told { peer: from, note });
            }
            Happening::Failed { peer, seen_by } => {
                let cause = "no sign of life".to_owned();
                self.nodes[seen_by].events.push_back(Event::PeerFailed { peer, cause });
            }
            Happening::CameWhole { pair, message, data } => self.place(pair, message, 0, &data),
            Happening::Next { pair, message } => self.next_whole(pair, message),
        }
    }

    fn place(&mut self, pair: (usize, usize), message: usize, offset: usize, data: &[u8]) {
        let chunk = self.config.packet_bytes * self.config.chunk_packets;
        let Some(receive) = self.pairs.get_mut(&pair).and_then(|p| p.receives.get_mut(message))
        else {
            return;
        };
        let len = receive.buffer.len();
        if receive.is_over || offset + data.len() > len {
            return;
        }
        receive.buffer[offset..offset + data.len()].copy_from_slice(data);
        receive.here.add(offset..offset + data.len());
        if receive.here.covers(&(0..len)) {
            self.end(pair, message, Reason::Whole);
            return;
        }
        let chunks = offset / chunk..(offset + data.len()).div_ceil(chunk);
        for chunk in chunks.map(|index| index * chunk..((index + 1) * chunk).min(len)) {
            if receive.here.covers(&chunk) && !receive.told.covers(&chunk) {
                receive.told.add(chunk.clone());
                let event = Event::Arrived { token: receive.token, bytes: chunk };
                self.nodes[pair.1].events.push_back(event);
            }
        }
    }

    fn end(&mut self, pair: (usize, usize), message: usize, reason: Reason) {
        let Some(receive) = self.pairs.get_mut(&pair).and_then(|p| p.receives.get_mut(message))
        else {
            return;
        };
        if !receive.is_over {
            receive.is_over = true;
            self.nodes[pair.1].events.push_back(Event::Ended {
                token: receive.token,
                reason,
                missing: receive.here.gaps(&(0..receive.buffer.len())).collect(),
                len_bytes: None,
            });
        }
    }

    /// Queues what was offered of a message whose receive is posted.
    fn flush(&mut self, pair: (usize, usize), message: usize) {
        if self.config.carrier.is_some() {
            return self.carry_whole(pair);
        }
        let (from, to) = pair;
        let state = self.pairs.entry(pair).or_default();
        if message >= state.credit || self.nodes[from].is_dead {
            return;
        }
        let Some(send) = state.sends.get_mut(message) else { return };
        let queue = self.nodes[from].queues.entry(to).or_default();
        for (mut offset, data) in std::mem::take(&mut send.waiting) {
            let mut rest = &data[..];
            while !rest.is_empty() {
                let step = self.config.packet_bytes - offset % self.config.packet_bytes;
                let (packet, later) = rest.split_at(step.min(rest.len()));
                queue.push_back((message, offset, packet.to_vec()));
                offset += packet.len();
                rest = later;
            }
        }
        self.serve(from);
    }

    /// Lets the next packet leave, if none is leaving.
    fn serve(&mut self, from: usize) {
        let node = &mut self.nodes[from];
        if node.leaving.is_some() || node.is_dead {
            return;
        }
        let has_some = |(_, queue): &(&usize, &VecDeque<Queued>)| !queue.is_empty();
        let later = node.queues.range(node.last_peer + 1..).find(has_some);
        let next = later.or_else(|| node.queues.iter().find(has_some));
        let Some(peer) = next.map(|(peer, _)| *peer) else { return };
        let Some(queued) = node.queues.get_mut(&peer).and_then(VecDeque::pop_front) else { return };
        node.last_peer = peer;
        let len = queued.2.len();
        node.leaving = Some((peer, queued));
        let time_ns = self.now_ns + self.transmission_ns(len);
        self.at(time_ns, Happening::Leaves { from });
    }

    /// A packet has left.
    fn left(&mut self, from: usize) {
        let Some((to, (message, offset, data))) = self.nodes[from].leaving.take() else { return };
        let (pair, now_ns) = ((from, to), self.now_ns);
        let delay_ns = (self.config.delay_ns)(from, to);
        self.carry(pair, message, offset, &data, now_ns, delay_ns);
        let send = &mut self.pairs.entry(pair).or_default().sends[message];
        send.left += data.len();
        if send.left == send.len {
            let token = send.token;
            if let Some(grace_ns) = self.config.grace_ns.filter(|_| !self.config.is_reliable) {
                self.at(now_ns + delay_ns + grace_ns, Happening::Accounted { pair, message });
            }
            self.nodes[from].events.push_back(Event::Sent { token, is_whole: true });
        }
        self.serve(from);
    }

    fn carry(
        &mut self,
        pair: (usize, usize),
        message: usize,
        offset: usize,
        data: &[u8],
        leaves_ns: u64,
        delay_ns: u64,
    ) {
        let packet = Packet {
            from: pair.0,
            to: pair.1,
            message,
            offset,
            len: data.len(),
            time_ns: leaves_ns,
        };
        let mut time_ns = leaves_ns + delay_ns;
        loop {
            self.sent_packets += 1;
            match (self.judge)(&packet) {
                Fate::Comes { extra_ns } => {
                    let data = data.to_vec();
                    let reaches = Happening::Reaches { pair, message, offset, data };
                    return self.at(time_ns + extra_ns, reaches);
                }
                Fate::Lost if self.config.is_reliable => {
                    time_ns += 2 * delay_ns + self.config.repair_ns + 1;
                }
                Fate::Lost => return,
            }
        }
    }
}
