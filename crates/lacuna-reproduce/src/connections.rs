//! WRITEs over reliable connections between two hosts, in virtual time: the transport's own engine, queue
//! pairs and shims over a link that is made up.
//!
//! As in the papers' experiments, messages go back to back: so many are posted to each connection, and the
//! next one when one has ended. Connections share the link's rate evenly and send at that pace, since the
//! paper's cards have no congestion control over the emulated path.
//!
//! The same seed gives the same losses, whatever is compared.

use lacuna_engine::harness::{Flights, Handle, Links, Net, Packet, Place, Sent, Wire};
use lacuna_engine::{Books, Lane, Machine, RcLane, State};
use lacuna_link::{Loss, PipeConfig};
use lacuna_path::controller::{AnyController, Fixed};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope};
use lacuna_rc::{
    Flags, Peer, QueuePair, RcConfig, RcStats, ReceiveQueue, Remote, Repair, SendWork,
    ShimSettings, Verb,
};
use lacuna_wire::rc::REPAIR_OPCODE;
use lacuna_wire::{Qpn, Seal};
use std::collections::VecDeque;
use std::sync::Arc;

/// Headers and trailer of a packet on the link: IPv4, UDP, BTH, checksum.
pub const OVERHEAD_BYTES: u64 = 20 + 8 + 12 + 4;

/// A workload on a path.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Rate of the link, both ways.
    pub rate_bits_per_s: u64,
    /// Round-trip time of the link alone.
    pub rtt_ns: u64,
    /// Losses, both ways.
    pub loss: Loss,
    /// Data packets that are lost beside that, counted from the first one sent.
    pub dropped: Vec<u64>,
    /// Payload of a full packet.
    pub mtu_bytes: u32,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Messages that each connection has posted at a time.
    pub depth: usize,
    /// Connections.
    pub connections: u32,
    /// How a connection repairs losses.
    pub repair: Repair,
    /// What repairs them below it.
    pub shim: ShimSettings,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// How long it runs before anything counts.
    pub warm_up_ns: u64,
    /// How long it runs then, at most.
    pub duration_ns: u64,
    /// It ends after so many messages, if that is sooner.
    pub messages: Option<u64>,
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Payload of messages that ended, over the time.
    pub goodput_bits_per_s: f64,
    /// Time of each message from posting to completion, in seconds, in no order.
    pub times_s: Vec<f64>,
    /// Packets of requests, and those of them that were sent again.
    pub packets: u64,
    /// See above.
    pub retransmitted_packets: u64,
    /// Repairs that were sent, warm-up included.
    pub repairs: u64,
    /// Packets that were recovered.
    pub recovered: u64,
    /// Gaps that were left to the connection.
    pub failed: u64,
}

impl Measured {
    /// Adds another run of the same workload: goodput is the mean.
    #[must_use]
    pub fn pooled(runs: Vec<Self>) -> Self {
        let count = runs.len().max(1) as f64;
        runs.into_iter().fold(Self::default(), |mut all, run| {
            all.goodput_bits_per_s += run.goodput_bits_per_s / count;
            all.times_s.extend(run.times_s);
            all.packets += run.packets;
            all.retransmitted_packets += run.retransmitted_packets;
            all.repairs += run.repairs;
            all.recovered += run.recovered;
            all.failed += run.failed;
            all
        })
    }

    /// Mean time of a message.
    #[must_use]
    pub fn mean_s(&self) -> f64 {
        self.times_s.iter().sum::<f64>() / self.times_s.len().max(1) as f64
    }

    /// The time below which a share of the messages ended (nearest rank).
    #[must_use]
    pub fn quantile_s(&self, share: f64) -> f64 {
        let mut sorted = self.times_s.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }
}

impl Workload {
    /// 1 MB WRITEs back to back over one connection as LoWAR's prototype does them: MTU 1024, and so many
    /// posted that the path is full.
    #[must_use]
    pub fn new(rate_bits_per_s: u64, rtt_ns: u64, loss: Loss) -> Self {
        let message_bytes = 1_000_000;
        let path_bytes = rate_bits_per_s as u128 * u128::from(rtt_ns) / 8_000_000_000;
        Self {
            rate_bits_per_s,
            rtt_ns,
            loss,
            dropped: Vec::new(),
            mtu_bytes: 1024,
            message_bytes,
            // A loss keeps what is behind it open for two round trips with selective repeat.
            depth: (4 * path_bytes as usize / message_bytes + 2).min(512),
            connections: 1,
            repair: Repair::GoBackN,
            shim: ShimSettings::Off,
            seed: 1,
            warm_up_ns: 4 * rtt_ns,
            duration_ns: 5_000_000_000,
            messages: None,
        }
    }

    /// The most goodput that the link leaves, without repairs.
    #[must_use]
    pub fn goodput_max(&self) -> f64 {
        let mtu_bytes = f64::from(self.mtu_bytes);
        self.rate_bits_per_s as f64 * mtu_bytes / (mtu_bytes + OVERHEAD_BYTES as f64)
    }

    /// Runs it. `None` once `stop` is true.
    #[must_use]
    pub fn run(&self, stop: &dyn Fn() -> bool) -> Option<Measured> {
        let mut run = Run::new(self);
        let begin_ns = run.net.now_ns() + self.warm_up_ns;
        run.post_all();
        let Run { net, wire, ends, .. } = &mut run;
        if self.warm_up_ns > 0 {
            net.run_until(self.warm_up_ns, wire, |net| {
                ends.iter_mut().for_each(|end| end.take(net, self, None));
                stop()
            });
        }
        let mut result = Measured::default();
        net.run_until(self.duration_ns, wire, |net| {
            for end in &mut *ends {
                end.take(net, self, Some((begin_ns, &mut result)));
            }
            let is_done = |messages| result.times_s.len() as u64 >= messages;
            self.messages.is_some_and(is_done) || stop()
        });
        if stop() {
            return None;
        }
        let took_s = (net.now_ns() - begin_ns) as f64 / 1e9;
        let bytes: u64 = ends.iter().map(Connection::acknowledged_bytes).sum();
        let before: u64 = ends.iter().map(|end| end.before_bytes).sum();
        result.goodput_bits_per_s = (bytes - before) as f64 * 8.0 / took_s;
        for end in &*ends {
            end.add_counts(&mut result);
        }
        Some(result)
    }
}

/// Both ends of a connection.
#[derive(Debug)]
struct Connection {
    sender: Handle,
    receiver: Handle,
    remote: Remote,
    data: SendBuffer,
    /// When the messages in flight were posted.
    posted_ns: VecDeque<u64>,
    next_id: u64,
    /// Messages that ended before anything counted, in bytes.
    before_bytes: u64,
}

#[derive(Debug)]
struct Run<'w> {
    workload: &'w Workload,
    net: Net,
    wire: Dropping,
    ends: Vec<Connection>,
}

/// Links that lose some data packets beside.
#[derive(Debug)]
struct Dropping {
    links: Links,
    dropped: Vec<u64>,
    data_packets: u64,
}

impl Wire for Dropping {
    fn carry(&mut self, now_ns: u64, sent: Sent, flights: &mut Flights) {
        let is_data = match &sent.packet {
            Packet::Bytes(bytes) => sent.from.host == 0 && bytes[0] != REPAIR_OPCODE,
            Packet::Header(_) => false,
        };
        if is_data {
            self.data_packets += 1;
            if self.dropped.contains(&(self.data_packets - 1)) {
                return;
            }
        }
        self.links.carry(now_ns, sent, flights);
    }
}

fn with<R>(handle: &Handle, each: impl FnOnce(&mut QueuePair) -> R) -> R {
    match &mut handle.books.lock().machine {
        Machine::Rc(qp) => each(qp),
        other => panic!("a reliable connection, not {other:?}"),
    }
}

impl<'w> Run<'w> {
    fn new(workload: &'w Workload) -> Self {
        let Workload { rate_bits_per_s, rtt_ns, mtu_bytes, .. } = *workload;
        let path_bytes = (u128::from(rate_bits_per_s) * u128::from(rtt_ns) / 8_000_000_000) as u64;
        let pipe = PipeConfig {
            delay_ns: rtt_ns / 2,
            rate_bits_per_s: Some(rate_bits_per_s),
            // The pacer makes up for a millisecond at once, which is more than a LAN holds.
            queue_bytes: path_bytes.max(4 << 20),
            loss: workload.loss.clone(),
            ..PipeConfig::default()
        };
        let links = Links::new(pipe, workload.seed);
        let mut net = Net::new();
        let hosts = [net.add_host(1), net.add_host(1)];
        let data = SendBuffer::from(vec![0x5a; workload.message_bytes]);
        let memory = vec![0; workload.message_bytes.max(8)];
        let region = Region::new(memory, RegionConfig::default());
        let keys = Arc::new(KeyTable::new(workload.seed));
        let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
        let range = 0..region.len();
        let key = keys.register(&region, range, access, || 0x1234_5678).expect("the first key");
        let ends = (1..=workload.connections)
            .map(|number| {
                let share = rate_bits_per_s / u64::from(workload.connections);
                let config = RcConfig {
                    repair: workload.repair,
                    ..RcConfig::new(
                        Qpn::new(number, 0, 0),
                        mtu_bytes,
                        AnyController::Fixed(Fixed::new(share)),
                    )
                };
                let shims = match workload.shim {
                    ShimSettings::Off => [ShimSettings::Off; 2],
                    shim => [shim, ShimSettings::Accept],
                };
                let [sender, receiver] = [0, 1].map(|at| {
                    let receives = Arc::new(ReceiveQueue::new());
                    let mut qp = QueuePair::new(config.clone(), keys.clone(), receives)
                        .expect("a configuration of the workload");
                    let peer = Peer { number: config.number, first_psn: 0, answers_max: 16 };
                    let responder = qp.accept(peer).expect("it is new");
                    qp.start();
                    let lane = lacuna_rc::Lane::new(&config, shims[at], responder)
                        .expect("a strength that a shim can have");
                    let far = Place { host: hosts[1 - at], channel: 0 }.address();
                    let machine = Machine::Rc(Box::new(qp));
                    let state = State::new(machine, [Some(far)]);
                    let books = Books::new(number, 0, Seal::default(), state, 1);
                    net.open(hosts[at], books, vec![Lane::Rc(Box::new(RcLane::new(0, lane)))])
                });
                Connection {
                    sender,
                    receiver,
                    remote: Remote { address: 0, key },
                    data: data.clone(),
                    posted_ns: VecDeque::new(),
                    next_id: 0,
                    before_bytes: 0,
                }
            })
            .collect();
        let dropped = workload.dropped.clone();
        Self { workload, net, wire: Dropping { links, dropped, data_packets: 0 }, ends }
    }

    fn post_all(&mut self) {
        for end in &mut self.ends {
            for _ in 0..self.workload.depth {
                end.post(&mut self.net);
            }
        }
    }
}

impl Connection {
    fn post(&mut self, net: &mut Net) {
        let verb = Verb::Write { data: self.data.clone(), remote: self.remote, immediate: None };
        let work = SendWork { id: self.next_id, verb, flags: Flags::default() };
        self.next_id += 1;
        self.posted_ns.push_back(net.now_ns());
        with(&self.sender, |qp| qp.post_send(work)).expect("it is connected");
        net.kick(&self.sender);
    }

    /// Takes messages that have ended, and posts others. `counts`: the time from which they count.
    fn take(&mut self, net: &mut Net, workload: &Workload, counts: Option<(u64, &mut Measured)>) {
        let now_ns = net.now_ns();
        let ended = with(&self.sender, |qp| {
            std::iter::from_fn(|| qp.poll_done())
                .inspect(|done| {
                    assert_eq!(done.status, Ok(()), "a connection does not fail in {workload:?}");
                })
                .count()
        });
        if ended == 0 {
            return;
        }
        if let Some((_, result)) = counts {
            let times = self.posted_ns.drain(..ended);
            let times = times.map(|posted_ns| (now_ns - posted_ns) as f64 / 1e9);
            result.times_s.extend(times);
        } else {
            self.posted_ns.drain(..ended);
            self.before_bytes = self.acknowledged_bytes();
        }
        for _ in 0..ended {
            self.post(net);
        }
    }

    fn acknowledged_bytes(&self) -> u64 {
        with(&self.sender, |qp| qp.stats().bytes_acknowledged)
    }

    fn add_counts(&self, result: &mut Measured) {
        let RcStats { packets, retransmitted_packets, shim, .. } =
            with(&self.sender, |qp| qp.stats());
        result.packets += packets;
        result.retransmitted_packets += retransmitted_packets;
        result.repairs += shim.map_or(0, |shim| shim.sent.repairs_sent);
        if let Some(shim) = with(&self.receiver, |qp| qp.stats().shim) {
            result.recovered += shim.received.packets_recovered;
            result.failed += shim.received.blocks_failed;
        }
    }
}
