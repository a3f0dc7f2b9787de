//! A link that several flows share, on a fake clock: a rate, a queue with an end, a delay, losses of
//! its own. Each flow is a real sending path (ledger, reports, pacer, controller) and a real
//! receiver's report; only the payload is left out, so that half a minute at a gigabit is simulated
//! in a fraction of a second. One seed draws everything.

use crate::tcp::TcpBbr;
use lacuna_link::SplitMix64;
use lacuna_path::arrivals::{Arrivals, ArrivedBurst};
use lacuna_path::controller::{ControllerConfig, Setup, StartRate};
use lacuna_path::ledger::Sent;
use lacuna_path::shared_credit::{Senders, SharedCredit};
use lacuna_path::{IP_UDP_BYTES, Path, RtoConfig};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Payload and UDP payload of a packet, as on Ethernet.
const MTU_BYTES: u32 = 1436;
const PACKET_BYTES: u64 = MTU_BYTES as u64 + lacuna_wire::Seal::Crc32c.overhead_bytes(false) as u64;
/// Bytes of a packet on the link.
pub(crate) const WIRE_BYTES: u64 = PACKET_BYTES + IP_UDP_BYTES;
/// Packets that arrive in one burst, as a kernel coalesces them.
const BURST_PACKETS: u64 = 16;
/// Packets of a run at most.
const RUN_PACKETS: u32 = 64;

/// The link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) rate_bits_per_s: u64,
    pub(crate) rtt_ns: u64,
    pub(crate) queue_bytes: u64,
    /// Losses of its own begin with this probability per packet,
    pub(crate) loss_ppm: u32,
    /// and take so many packets.
    pub(crate) burst_packets: u64,
    /// Packets that come when more than this is queued are marked.
    pub(crate) mark_bytes: Option<u64>,
    /// Each burst comes up to so much later; they may overtake each other.
    pub(crate) jitter_ns: u64,
    /// Drops, before the queue, what comes faster than a rate.
    pub(crate) policer: Option<Policer>,
    /// Nothing comes through in either direction.
    pub(crate) is_dark: bool,
    /// What hosts do to times, if they do.
    pub(crate) stalls: Option<Stalls>,
}

/// A token bucket without a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policer {
    pub(crate) rate_bits_per_s: u64,
    pub(crate) bucket_bytes: u64,
}

/// Senders, receivers and the link itself (who emulates it is a host too) are each kept from running
/// now and then, independently: on average so long after the last time, for so long. Kernels note
/// when a packet came, and whoever reads it does so later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stalls {
    pub(crate) every_ns: u64,
    pub(crate) lasts_ns: u64,
}

impl Link {
    /// A clean link whose queue holds so many per cent of what it holds itself.
    pub(crate) fn new(rate_mbit: u64, rtt_ns: u64, queue_percent: u64) -> Self {
        let path = rate_mbit * 125_000 * rtt_ns / SECOND;
        Self {
            rate_bits_per_s: rate_mbit * 1_000_000,
            rtt_ns,
            queue_bytes: (path * queue_percent / 100).max(2 * WIRE_BYTES),
            loss_ppm: 0,
            burst_packets: 1,
            mark_bytes: None,
            jitter_ns: 0,
            policer: None,
            is_dark: false,
            stalls: None,
        }
    }

    /// Loses so much in all, in bursts.
    pub(crate) fn losing(self, loss_ppm: u32, burst_packets: u64) -> Self {
        Self { loss_ppm: loss_ppm / burst_packets as u32, burst_packets, ..self }
    }

    pub(crate) fn path_bytes(&self) -> u64 {
        self.rate_bits_per_s / 8 * self.rtt_ns / SECOND
    }
}

/// What happens next.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    Arrive(usize, Came),
    Report(usize),
    Hear(usize, Box<Heard>),
    Ask(usize, u64),
    SendTcp,
    HearTcp(Came),
    Tick,
}

impl Event {
    /// Index of the host in whose program it happens.
    fn host(&self) -> Option<usize> {
        match self {
            Self::Send(_) | Self::Hear(..) => Some(0),
            Self::Arrive(..) | Self::Report(_) => Some(1),
            Self::Ask(..) | Self::SendTcp | Self::HearTcp(_) | Self::Tick => None,
        }
    }
}
/// Index of the link as a host.
const LINK: usize = 2;
/// Index that stands for the TCP flow.
const TCP: usize = usize::MAX;

/// A burst at the receiver.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Came {
    next_psn: u64,
    packets: u64,
    marked: u64,
    /// When the kernel noted it.
    at_ns: u64,
}

#[derive(Debug)]
struct Heard {
    report: lacuna_wire::Report,
    /// When the kernel noted it.
    at_ns: u64,
}

impl PartialEq for Heard {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Heard {}
impl PartialOrd for Heard {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Heard {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// One flow.
pub(crate) struct Flow {
    pub(crate) path: Path,
    arrivals: Arrivals,
    /// Packets that wait to be sent; `u64::MAX` without end.
    backlog: u64,
    /// Runs in flight: the number after the last packet, and how many of them are lost.
    runs: VecDeque<(u64, u64)>,
    next_psn: u64,
    begins_ns: u64,
    due_ns: Option<u64>,
    pub(crate) received_packets: u64,
    pub(crate) overflowed_packets: u64,
    pub(crate) sent_packets: u64,
    /// When the last packet of what was to be sent came, a way back later.
    pub(crate) done_ns: Option<u64>,
    wanted_packets: u64,
}

/// See the module's text.
pub(crate) struct Bottleneck {
    pub(crate) now_ns: u64,
    pub(crate) link: Link,
    pub(crate) flows: Vec<Flow>,
    /// What flows of one owner share, once they are; else they are strangers.
    owner: Option<(Arc<SharedCredit>, Arc<Senders>)>,
    /// A neighbour with TCP and BBR version 1.
    pub(crate) tcp: Option<TcpBbr>,
    tcp_due_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    counter: u64,
    rng: SplitMix64,
    free_ns: u64,
    burst_left: u64,
    /// When the policer's bucket is full again.
    bucket_full_ns: u64,
    /// When each host is kept from running next, or is now.
    stalled: [(u64, u64); 3],
    /// Sum of the queue's bytes at each tick, and the ticks.
    queue_sum: u128,
    ticks: u128,
}

impl Bottleneck {
    pub(crate) fn new(link: Link, seed: u64) -> Self {
        let mut bottleneck = Self {
            now_ns: SECOND,
            link,
            flows: Vec::new(),
            owner: None,
            tcp: None,
            tcp_due_ns: 0,
            events: BinaryHeap::new(),
            counter: 0,
            rng: SplitMix64::new(seed),
            free_ns: 0,
            burst_left: 0,
            bucket_full_ns: 0,
            stalled: [(0, 0); 3],
            queue_sum: 0,
            ticks: 0,
        };
        bottleneck.at(SECOND, Event::Tick);
        bottleneck
    }

    /// Flows that are added from here on are of one owner.
    pub(crate) fn of_one_owner(mut self) -> Self {
        self.owner = Some(Default::default());
        self
    }

    /// Adds a flow of so many packets that begins after a time.
    pub(crate) fn add(
        &mut self,
        config: ControllerConfig,
        start: Option<StartRate>,
        packets: u64,
        after_ns: u64,
    ) -> usize {
        let flow = self.flows.len();
        let setup = Setup { packet_bytes: WIRE_BYTES, seed: flow as u64 + 1 };
        let mut path = Path::new(1, 0, config.build(setup), RtoConfig::default());
        path.set_credit(0, 1 << 32);
        if let Some((pool, senders)) = &self.owner {
            path.join(0, pool.clone());
            path.count_among(senders.clone());
        }
        // Connecting takes a few round trips.
        path.on_rtt_sample(self.now_ns, self.link.rtt_ns + 30 * US);
        if let Some(start) = start {
            path.start_at(self.now_ns, start);
        }
        let mut arrivals = Arrivals::new(1, 0);
        arrivals.set_credit(u32::MAX);
        let begins_ns = self.now_ns + after_ns;
        self.flows.push(Flow {
            path,
            arrivals,
            backlog: packets,
            runs: VecDeque::new(),
            next_psn: 0,
            begins_ns,
            due_ns: None,
            received_packets: 0,
            overflowed_packets: 0,
            sent_packets: 0,
            done_ns: None,
            wanted_packets: packets,
        });
        self.at(begins_ns, Event::Send(flow));
        flow
    }

    /// Adds a TCP flow with BBR version 1 that begins after a time.
    pub(crate) fn add_tcp_bbr(&mut self, after_ns: u64) {
        let begins_ns = self.now_ns + after_ns;
        self.tcp = Some(TcpBbr::new(begins_ns, self.link.rtt_ns));
        self.tcp_due_ns = begins_ns;
        self.at(begins_ns, Event::SendTcp);
    }

    /// Gives a flow more to send, now.
    pub(crate) fn give(&mut self, flow: usize, packets: u64) {
        let state = &mut self.flows[flow];
        state.backlog += packets;
        state.wanted_packets += packets;
        state.done_ns = None;
        state.begins_ns = self.now_ns;
        self.at(self.now_ns, Event::Send(flow));
    }

    /// How long the flow's latest data took.
    pub(crate) fn took_ns(&self, flow: usize) -> Option<u64> {
        Some(self.flows[flow].done_ns? - self.flows[flow].begins_ns)
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.counter += 1;
        self.events.push(Reverse((at_ns, self.counter, event)));
    }

    pub(crate) fn queue_bytes(&self) -> u64 {
        let ahead_ns = self.free_ns.saturating_sub(self.now_ns);
        (u128::from(ahead_ns) * u128::from(self.link.rate_bits_per_s) / 8_000_000_000) as u64
    }

    /// Mean of the queue since this was last asked, in thousandths of the path.
    pub(crate) fn mean_queue_permille(&mut self) -> u64 {
        let mean = self.queue_sum * 1000 / self.ticks.max(1);
        (self.queue_sum, self.ticks) = (0, 0);
        (mean / u128::from(self.link.path_bytes().max(1))) as u64
    }

    pub(crate) fn run_for(&mut self, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while self.events.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= end_ns) {
            let Some(Reverse((at_ns, _, event))) = self.events.pop() else { break };
            self.now_ns = at_ns;
            match event.host().and_then(|host| self.stalled_until(host, at_ns)) {
                Some(until_ns) => self.at(until_ns, event),
                None => self.on_event(event),
            }
        }
        self.now_ns = end_ns;
    }

    /// Until all flows are done, or so long.
    pub(crate) fn run_until_done(&mut self, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while self.now_ns < end_ns && self.flows.iter().any(|flow| flow.done_ns.is_none()) {
            self.run_for(MS.min(end_ns - self.now_ns));
        }
    }

    /// Until when a host does not run, if it does not run at this time.
    fn stalled_until(&mut self, host: usize, at_ns: u64) -> Option<u64> {
        let Stalls { every_ns, lasts_ns } = self.link.stalls?;
        while at_ns >= self.stalled[host].1 {
            let from_ns = self.stalled[host].1.max(SECOND) + self.rng.below(2 * every_ns + 1);
            self.stalled[host] = (from_ns, from_ns + 1 + self.rng.below(2 * lasts_ns));
        }
        (at_ns >= self.stalled[host].0).then_some(self.stalled[host].1)
    }

    fn on_event(&mut self, event: Event) {
        let now_ns = self.now_ns;
        match event {
            Event::Tick => {
                self.queue_sum += u128::from(self.queue_bytes());
                self.ticks += 1;
                self.at(now_ns + MS / 2, Event::Tick);
            }
            Event::Send(flow) => self.send(flow),
            Event::Arrive(flow, came) => {
                let state = &mut self.flows[flow];
                let has_gap = came.next_psn > state.next_psn + came.packets;
                let reorder_packets = state.next_psn.saturating_sub(came.next_psn);
                state.next_psn = state.next_psn.max(came.next_psn);
                state.received_packets += came.packets;
                if state.received_packets >= state.wanted_packets && state.done_ns.is_none() {
                    state.done_ns = Some(now_ns + self.link.rtt_ns / 2);
                }
                let burst = ArrivedBurst {
                    packets: came.packets,
                    bytes: came.packets * u64::from(MTU_BYTES),
                    next_psn: state.next_psn,
                    has_gap,
                    marked_packets: came.marked,
                    reorder_packets,
                    ..ArrivedBurst::default()
                };
                state.arrivals.on_burst(came.at_ns, 0, &burst, Some(self.link.rtt_ns));
                self.schedule_report(flow);
            }
            Event::SendTcp => {
                if self.tcp_due_ns == now_ns {
                    self.send_tcp();
                }
            }
            Event::HearTcp(came) => {
                if let Some(tcp) = &mut self.tcp {
                    tcp.on_ack(now_ns, came.next_psn, came.packets);
                }
                self.send_tcp();
            }
            Event::Report(flow) => {
                let state = &mut self.flows[flow];
                if state.arrivals.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                    let report = state.arrivals.report(now_ns);
                    if !self.link.is_dark {
                        let at_ns = now_ns + self.link.rtt_ns / 2;
                        self.at(at_ns, Event::Hear(flow, Box::new(Heard { report, at_ns })));
                    }
                }
            }
            Event::Hear(flow, heard) => {
                let state = &mut self.flows[flow];
                for channel in heard.report.channels() {
                    state.path.on_report(heard.at_ns, channel);
                    while state.path.pop_passed().is_some() {
                        state.give_back();
                    }
                }
                state.path.end_report(heard.at_ns);
                self.send(flow);
            }
            Event::Ask(flow, psn) => {
                let state = &mut self.flows[flow];
                state.arrivals.on_flush(0, psn as u32 & 0xFF_FFFF);
                state.arrivals.request(now_ns);
                self.schedule_report(flow);
            }
        }
    }

    fn schedule_report(&mut self, flow: usize) {
        if let Some(due_ns) = self.flows[flow].arrivals.due_ns() {
            self.at(due_ns.max(self.now_ns), Event::Report(flow));
        }
    }

    fn send(&mut self, flow: usize) {
        let now_ns = self.now_ns;
        let state = &mut self.flows[flow];
        let mut expired = false;
        while state.path.pop_expired(now_ns).is_some() {
            expired = true;
            state.give_back();
        }
        if expired {
            state.path.on_expired(now_ns);
        }
        loop {
            let state = &mut self.flows[flow];
            if state.backlog == 0 {
                state.path.on_out_of_data();
                break;
            }
            let waiting = RUN_PACKETS.min(state.backlog.min(64) as u32);
            let packets = state.path.allowance_packets(now_ns, 0, PACKET_BYTES, waiting);
            if packets == 0 {
                break;
            }
            if state.wanted_packets < u64::MAX {
                state.backlog -= u64::from(packets);
            }
            let bytes = u64::from(packets) * PACKET_BYTES;
            let psn = state.path.on_sent(now_ns, 0, run(packets, bytes));
            state.sent_packets += u64::from(packets);
            self.carry(flow, psn, u64::from(packets));
        }
        let state = &mut self.flows[flow];
        if state.backlog == 0 && state.path.in_flight_bytes() > 0 {
            // Behind the data, as on one channel.
            let psn = state.path.next_psn(0);
            let arrives_ns = self.free_ns.max(now_ns) + MS + self.link.rtt_ns / 2;
            self.at(arrives_ns, Event::Ask(flow, psn));
        }
        let state = &self.flows[flow];
        let pace_ns = state.path.pacing_timeout_ns(0).filter(|_| state.backlog > 0);
        let next_ns = pace_ns.into_iter().chain(state.path.expiry_ns()).min();
        if let Some(next_ns) = next_ns.map(|next_ns| next_ns.max(now_ns + 1))
            && state.due_ns.is_none_or(|due_ns| due_ns <= now_ns || next_ns < due_ns)
        {
            self.flows[flow].due_ns = Some(next_ns);
            self.at(next_ns, Event::Send(flow));
        }
    }

    fn send_tcp(&mut self) {
        loop {
            let Some(tcp) = &mut self.tcp else { return };
            match tcp.poll(self.now_ns) {
                Ok((first_psn, packets)) => self.carry(TCP, first_psn, packets),
                Err(Some(at_ns)) => {
                    self.tcp_due_ns = at_ns;
                    return self.at(at_ns, Event::SendTcp);
                }
                Err(None) => return,
            }
        }
    }

    /// Puts a run on the link.
    fn carry(&mut self, flow: usize, first_psn: u64, packets: u64) {
        let mut lost = 0;
        let mut came = Came { next_psn: first_psn, packets: 0, marked: 0, at_ns: 0 };
        for index in 0..packets {
            let queued = self.queue_bytes();
            if queued > self.link.queue_bytes || self.is_policed() {
                lost += 1;
                if let Some(state) = self.flows.get_mut(flow) {
                    state.overflowed_packets += 1;
                }
            } else {
                let took = WIRE_BYTES * 8 * SECOND / self.link.rate_bits_per_s;
                self.free_ns = self.free_ns.max(self.now_ns) + took;
                if self.link.is_dark || self.is_lost() {
                    lost += 1;
                } else {
                    came.packets += 1;
                    came.next_psn = first_psn + index + 1;
                    came.marked += u64::from(self.link.mark_bytes.is_some_and(|b| queued > b));
                }
            }
            if came.packets == BURST_PACKETS || (index + 1 == packets && came.packets > 0) {
                let next_psn = came.next_psn;
                self.deliver(flow, came);
                came = Came { next_psn, packets: 0, marked: 0, at_ns: 0 };
            }
        }
        if let Some(state) = self.flows.get_mut(flow) {
            state.runs.push_back((first_psn + packets, lost));
        }
    }

    fn deliver(&mut self, flow: usize, came: Came) {
        let late_ns = self.rng.below(self.link.jitter_ns + 1);
        let due_ns = self.free_ns + self.link.rtt_ns / 2 + late_ns;
        let at_ns = self.stalled_until(LINK, due_ns).unwrap_or(due_ns);
        let came = Came { at_ns, ..came };
        match flow {
            TCP => self.at(at_ns + self.link.rtt_ns / 2, Event::HearTcp(came)),
            _ => self.at(at_ns, Event::Arrive(flow, came)),
        }
    }

    /// Whether the policer drops a packet of now.
    fn is_policed(&mut self) -> bool {
        let Some(policer) = self.link.policer else { return false };
        let time_of = |bytes: u64| bytes * 8 * SECOND / policer.rate_bits_per_s;
        let full_ns = self.bucket_full_ns.max(self.now_ns) + time_of(WIRE_BYTES);
        let is_policed = full_ns - self.now_ns > time_of(policer.bucket_bytes);
        if !is_policed {
            self.bucket_full_ns = full_ns;
        }
        is_policed
    }

    fn is_lost(&mut self) -> bool {
        if self.burst_left == 0 && self.link.loss_ppm > 0 && self.rng.chance(self.link.loss_ppm) {
            self.burst_left = self.link.burst_packets;
        }
        let is_lost = self.burst_left > 0;
        self.burst_left = self.burst_left.saturating_sub(1);
        is_lost
    }
}

impl Flow {
    /// A run has left the flight: what is lost of it is sent again.
    fn give_back(&mut self) {
        let Some((_, lost)) = self.runs.pop_front() else { return };
        if self.wanted_packets < u64::MAX {
            self.backlog += lost;
        }
    }
}

/// Full packets of some message that leave together.
pub(crate) fn run(packets: u32, bytes: u64) -> Sent {
    Sent { number: 0, packets: 0..packets, pieces: 1, short: 0, bytes }
}
