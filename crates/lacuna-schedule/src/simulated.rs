//! A network in virtual time, and a group of runners on it: for tests and simulations of schedules.
//!
//! Each rank has a link of a rate in each direction, which its peers use in turns, packet by packet; each pair
//! has a delay. A judge says
//! what becomes of each packet. In a reliable network a lost packet comes later; in one that is not it is
//! lost, and a receive ends by its deadline or when all has been sent. A message is sent once its receive is
//! posted and that is known to the sender, as with real queue pairs. Reducing takes no time.
//!
//! The same judge and the same operations give the same events: equal times are ordered by a counter.

use crate::run::{
    Event, Fabric, FabricError, Finished, Job, Posting, Reason, Runner, Settings, Token,
};
use lacuna_link::SplitMix64;
use lacuna_path::ranges::Ranges;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;

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

/// A rank's side of a network.
pub struct Endpoint<'a> {
    network: &'a mut Network,
    rank: usize,
}

impl Fabric for Endpoint<'_> {
    fn now_ns(&self) -> u64 {
        self.network.now_ns
    }

    fn chunk_bytes(&self) -> usize {
        self.network.config.packet_bytes * self.network.config.chunk_packets
    }

    fn post_receive(&mut self, posting: &Posting) -> Result<(), FabricError> {
        let pair = (posting.peer, self.rank);
        let receive = Receive {
            token: posting.token,
            buffer: vec![0xee; posting.len_bytes],
            here: Ranges::default(),
            told: Ranges::default(),
            is_over: false,
        };
        let state = self.network.pairs.entry(pair).or_default();
        let message = state.receives.len();
        state.receives.push(receive);
        self.network.nodes[self.rank].receives.insert(posting.token, (pair, message));
        let delay_ns = (self.network.config.delay_ns)(self.rank, posting.peer);
        self.network.at(self.network.now_ns + delay_ns, Happening::Credit { pair });
        if let Some(deadline_ns) = posting.deadline_ns {
            self.network.at(deadline_ns, Happening::Deadline { pair, message });
        }
        Ok(())
    }

    fn post_send(&mut self, posting: &Posting) -> Result<(), FabricError> {
        let pair = (self.rank, posting.peer);
        let (token, len) = (posting.token, posting.len_bytes);
        let state = self.network.pairs.entry(pair).or_default();
        state.sends.push(Send { token, len, offered: 0, left: 0, waiting: Vec::new() });
        let message = state.sends.len() - 1;
        self.network.nodes[self.rank].sends.insert(token, (pair, message));
        Ok(())
    }

    fn offer(&mut self, token: Token, offset: usize, bytes: &[u8]) -> Result<(), FabricError> {
        let Some((pair, message)) = self.network.nodes[self.rank].sends.get(&token).copied() else {
            return Err(FabricError::Broken { cause: format!("{token:?} was not posted") });
        };
        let state = self.network.pairs.entry(pair).or_default();
        let send = &mut state.sends[message];
        send.offered += bytes.len();
        assert!(send.offered <= send.len, "more was offered than the message has");
        send.waiting.push((offset, bytes.to_vec()));
        self.network.flush(pair, message);
        Ok(())
    }

    fn view(&self, token: Token, bytes: Range<usize>) -> &[u8] {
        let (pair, message) = self.network.nodes[self.rank].receives[&token];
        let receive = &self.network.pairs[&pair].receives[message];
        assert!(receive.here.covers(&bytes), "{bytes:?} has not come");
        &receive.buffer[bytes]
    }

    fn release(&mut self, token: Token) {
        if let Some((pair, message)) = self.network.nodes[self.rank].receives.remove(&token)
            && let Some(state) = self.network.pairs.get_mut(&pair)
        {
            let receive = &mut state.receives[message];
            receive.is_over = true;
            receive.buffer = Vec::new();
        }
    }

    fn cancel(&mut self, token: Token) {
        if let Some((pair, message)) = self.network.nodes[self.rank].sends.remove(&token)
            && let Some(state) = self.network.pairs.get_mut(&pair)
        {
            state.sends[message].waiting.clear();
        }
    }

    fn tell(&mut self, peer: usize, note: &[u8]) -> Result<(), FabricError> {
        if !self.network.nodes[self.rank].is_dead {
            let (from, to, note) = (self.rank, peer, note.to_vec());
            let time_ns = self.network.now_ns + (self.network.config.delay_ns)(from, to);
            self.network.at(time_ns, Happening::Note { from, to, note });
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<Event> {
        self.network.nodes[self.rank].events.pop_front()
    }
}

/// All ranks of a network with their runners.
pub struct Group {
    /// The network.
    pub network: Network,
    runners: Vec<Runner>,
    finished: Vec<Vec<(u64, Finished)>>,
}

impl Group {
    /// A group at time 0.
    #[must_use]
    pub fn new(network: Network, settings: Settings) -> Self {
        let ranks = network.nodes.len();
        let runners = (0..ranks).map(|rank| Runner::new(rank, ranks, settings)).collect();
        Self { network, runners, finished: (0..ranks).map(|_| Vec::new()).collect() }
    }

    /// Starts an operation of a rank.
    pub fn start(&mut self, rank: usize, job: Job) -> u64 {
        self.runners[rank].start(&mut self.network.endpoint(rank), job)
    }

    /// Runs until nothing is in flight, or nothing happens any more, or this time. Returns whether all
    /// operations of ranks that are alive are over.
    pub fn run(&mut self, until_ns: u64) -> bool {
        loop {
            let now_ns = self.network.now_ns;
            for (rank, runner) in self.runners.iter_mut().enumerate() {
                if !self.network.nodes[rank].is_dead {
                    runner.poll(&mut self.network.endpoint(rank));
                    while let Some(finished) = runner.take() {
                        self.finished[rank].push((now_ns, finished));
                    }
                }
            }
            let alive = || {
                let all = self.runners.iter().zip(&self.network.nodes);
                all.filter(|(_, node)| !node.is_dead).map(|(runner, _)| runner)
            };
            if alive().all(|runner| runner.in_flight() == 0) {
                return true;
            }
            let due_ns = alive().filter_map(Runner::poll_timeout);
            let next_ns = due_ns.chain(self.network.next_ns()).min();
            match next_ns.filter(|next_ns| *next_ns <= until_ns) {
                Some(next_ns) => self.network.advance(next_ns),
                None => return false,
            }
        }
    }

    /// The runner of a rank.
    pub fn runner(&mut self, rank: usize) -> &mut Runner {
        &mut self.runners[rank]
    }

    /// Operations of a rank that are over, each with the time.
    pub fn take(&mut self, rank: usize) -> Vec<(u64, Finished)> {
        std::mem::take(&mut self.finished[rank])
    }
}
