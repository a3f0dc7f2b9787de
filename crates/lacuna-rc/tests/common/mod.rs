//! Two queue pairs over a link with faults, in virtual time.
#![allow(dead_code, reason = "each test binary uses its part")]

use lacuna_link::{InFlight, Pipe, PipeConfig, Schedule, SplitMix64};
use lacuna_lowar::Shared;
use lacuna_path::controller::{AnyController, Fixed};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride};
use lacuna_rc::{
    AnswerSink, Done, Flags, Lane, Peer, QueuePair, RcConfig, ReceiveQueue, RecvWork, Remote,
    SendWork, ShimSettings, Verb,
};
use lacuna_wire::rc::{NOTIFICATION_OPCODE, Opcode, REPAIR_OPCODE, RcHeader, rc_destination};
use lacuna_wire::{PacketError, Qpn, Seal};
use std::sync::Arc;

/// Where virtual time begins.
pub(crate) const START_NS: u64 = 1_000_000_000;
/// Packets of a turn.
const TURN_PACKETS: u32 = 64;

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) lane: Lane,
    pub(crate) shared: Shared,
    pub(crate) keys: Arc<KeyTable>,
    pub(crate) receives: Arc<ReceiveQueue>,
    /// Memory that the peer may write and read.
    pub(crate) region: Arc<Region>,
    pub(crate) key: u32,
    /// Completions, in order.
    pub(crate) done: Vec<Done>,
}

/// The queue pair takes the answers; there is no lock.
struct Answers<'q>(u64, &'q mut QueuePair);

impl AnswerSink for Answers<'_> {
    fn on_answer(&mut self, header: &RcHeader, payload: &[u8]) {
        self.1.on_answer(self.0, header, payload);
    }

    fn place_answer_ahead(&mut self, header: &RcHeader, payload: &[u8]) -> bool {
        self.1.place_answer_ahead(header, payload)
    }

    fn on_placed_answer(&mut self, header: &RcHeader, payload_bytes: usize) {
        self.1.on_placed_answer(self.0, header, payload_bytes);
    }

    fn on_notification(&mut self) {
        self.1.on_notification(self.0);
    }

    fn before_request(&mut self) {}

    fn on_rejected(&mut self, _error: PacketError) {}
}

/// Two ends and the link between them.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) ends: [End; 2],
    pipes: [Pipe; 2],
    schedule: Schedule<usize>,
    /// Decides what is lost beside the pipe: `true` drops.
    pub(crate) filter: Filter,
    pub(crate) packets: u64,
}

/// A decision about each packet, by its sender and header.
pub(crate) struct Filter(Decide);

type Decide = Box<dyn FnMut(usize, &RcHeader) -> bool>;

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Filter")
    }
}

pub(crate) fn fixed(rate_bits_per_s: u64) -> AnyController {
    AnyController::Fixed(Fixed::new(rate_bits_per_s))
}

/// A configuration at a gigabit per second.
pub(crate) fn config(number: u32, mtu_bytes: u32) -> RcConfig {
    let mut config = RcConfig::new(Qpn::new(number, 0, 0), mtu_bytes, fixed(1_000_000_000));
    // Near the end, so that numbers wrap.
    config.first_psn = 0xff_fff0 - number;
    config
}

pub(crate) fn region(bytes: usize) -> Arc<Region> {
    Region::new(vec![0; bytes], RegionConfig { has_validity: true, is_exclusive: false })
}

pub(crate) fn all_of(region: &Arc<Region>) -> Slices {
    slice(region, 0, region.len())
}

pub(crate) fn slice(region: &Arc<Region>, start: u64, bytes: u64) -> Slices {
    Slices::new([(region.clone(), Stride::of_range(start..start + bytes))]).unwrap()
}

pub(crate) fn bytes_of(slices: &Slices) -> Vec<u8> {
    let mut bytes = vec![0; slices.len() as usize];
    slices.read(0, &mut bytes).unwrap();
    bytes
}

pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    SplitMix64::new(seed).bytes(len)
}

pub(crate) fn send(id: u64, data: &[u8]) -> SendWork {
    let data = SendBuffer::from(data.to_vec());
    SendWork { id, verb: Verb::Send { data, immediate: None }, flags: Flags::default() }
}

pub(crate) fn write(id: u64, data: &[u8], remote: Remote) -> SendWork {
    let data = SendBuffer::from(data.to_vec());
    SendWork { id, verb: Verb::Write { data, remote, immediate: None }, flags: Flags::default() }
}

pub(crate) fn read(id: u64, into: Slices, remote: Remote) -> SendWork {
    SendWork { id, verb: Verb::Read { into, remote }, flags: Flags::default() }
}

impl End {
    pub(crate) fn new(
        config: &RcConfig,
        shim: ShimSettings,
        peer: Peer,
        memory_bytes: usize,
    ) -> Self {
        let keys = Arc::new(KeyTable::new(u64::from(config.number.bits())));
        let region = region(memory_bytes);
        let mut rng = SplitMix64::new(config.number.bits().into());
        let rights = Rights::LOCAL | Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let access = Access { rights, scope: Scope::Any };
        let key = keys
            .register(&region, 0..memory_bytes as u64, access, || rng.next_u64() as u32)
            .unwrap();
        let receives = Arc::new(ReceiveQueue::new());
        let mut qp = QueuePair::new(config.clone(), keys.clone(), receives.clone()).unwrap();
        let responder = qp.accept(peer).unwrap();
        qp.start();
        let lane = Lane::new(config, shim, responder).unwrap();
        let shared = Shared::default();
        Self { qp, lane, shared, keys, receives, region, key, done: Vec::new() }
    }

    pub(crate) fn remote(&self, address: u64) -> Remote {
        Remote { address, key: self.key }
    }

    pub(crate) fn post(&mut self, work: SendWork) {
        self.qp.post_send(work).unwrap();
    }

    pub(crate) fn post_recv(&mut self, id: u64, into: Slices) {
        self.qp.post_recv(RecvWork { id, into }).unwrap();
    }

    /// Gives a packet to the half that it is for.
    pub(crate) fn take(&mut self, now_ns: u64, packet: &[u8]) {
        let destination = rc_destination(packet);
        if destination == Some(self.qp.config().number) {
            let mut answers = Answers(now_ns, &mut self.qp);
            self.lane.receive(now_ns, &mut self.shared, packet, &mut answers);
        }
    }

    /// Tells the queue pair what the responder did, and takes the completions.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        self.qp.on_taken(now_ns, self.lane.taken());
        if self.qp.take_stop() {
            self.lane.stop();
            self.qp.on_taken(now_ns, self.lane.taken());
        }
        if let Some(rtt_ns) = self.qp.rtt_ns() {
            self.lane.set_rtt_ns(rtt_ns);
        }
        while let Some(done) = self.qp.poll_done() {
            self.done.push(done);
        }
    }

    pub(crate) fn on_timeout(&mut self, now_ns: u64) {
        let mut answers = Answers(now_ns, &mut self.qp);
        self.lane.on_timeout(now_ns, &mut self.shared, &mut answers);
        self.qp.on_timeout(now_ns);
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        [self.qp.poll_timeout(), self.lane.poll_timeout()].into_iter().flatten().min()
    }

    /// The packets that may leave now, without trailers.
    pub(crate) fn poll(&mut self, now_ns: u64, out: &mut Vec<Vec<u8>>) -> bool {
        let run = self.qp.poll_answer(now_ns, TURN_PACKETS);
        let run = run.or_else(|| self.qp.poll_request(now_ns, TURN_PACKETS));
        let Some(run) = run else { return false };
        let seal = Seal::default();
        let coded = self.lane.encode(&mut self.shared, &run, seal);
        let packets = (0..coded.len()).map(|index| coded.packet(index));
        out.extend(packets.map(|packet| packet[..packet.len() - seal.bytes()].to_vec()));
        true
    }

    pub(crate) fn take_done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.done)
    }
}

impl World {
    /// Ends with this MTU and a link that delays by 5 ms.
    pub(crate) fn simple(mtu_bytes: u32) -> Self {
        let pipe = PipeConfig { delay_ns: 5_000_000, ..PipeConfig::default() };
        Self::new([config(3, mtu_bytes), config(5, mtu_bytes)], [pipe.clone(), pipe], 1)
    }

    pub(crate) fn new(configs: [RcConfig; 2], pipes: [PipeConfig; 2], seed: u64) -> Self {
        Self::with_shims(configs, [ShimSettings::Off; 2], pipes, seed)
    }

    pub(crate) fn with_shims(
        configs: [RcConfig; 2],
        shims: [ShimSettings; 2],
        pipes: [PipeConfig; 2],
        seed: u64,
    ) -> Self {
        let describe = |config: &RcConfig| Peer {
            number: config.number,
            first_psn: config.first_psn,
            answers_max: config.answers_max,
        };
        let peers = [describe(&configs[1]), describe(&configs[0])];
        let [one, other] = pipes;
        Self {
            now_ns: START_NS,
            ends: [
                End::new(&configs[0], shims[0], peers[0], 1 << 20),
                End::new(&configs[1], shims[1], peers[1], 1 << 20),
            ],
            pipes: [Pipe::new(one, seed, 0), Pipe::new(other, seed, 100)],
            schedule: Schedule::default(),
            filter: Filter(Box::new(|_, _| false)),
            packets: 0,
        }
    }

    /// Loses what the function says.
    pub(crate) fn lose(&mut self, filter: impl FnMut(usize, &RcHeader) -> bool + 'static) {
        self.filter = Filter(Box::new(filter));
    }

    fn carry(&mut self, from: usize, packet: &[u8]) {
        self.packets += 1;
        if !matches!(packet[0], REPAIR_OPCODE | NOTIFICATION_OPCODE) {
            let (header, _) = RcHeader::parse(packet, 0).expect("a queue pair makes valid packets");
            if (self.filter.0)(from, &header) {
                return;
            }
        }
        let pipe = &mut self.pipes[from];
        let faults = pipe.draw(packet.len() as u64);
        if faults.is_lost {
            return;
        }
        let Some(passed) = pipe.pass(self.now_ns, packet.len() as u64, &faults) else { return };
        for _ in 0..1 + usize::from(faults.is_duplicated) {
            self.schedule
                .insert(passed.release_ns, 1 - from, |bytes| bytes.extend_from_slice(packet));
        }
    }

    /// Does all that is due now.
    pub(crate) fn run_now(&mut self) {
        let mut due: Vec<(usize, Vec<u8>)> = Vec::new();
        while let Some(index) = self.schedule.pop_due(self.now_ns) {
            let InFlight { tag, bytes } = self.schedule.packet(index);
            due.push((*tag, bytes.clone()));
            self.schedule.remove(index);
        }
        for (to, bytes) in due {
            self.ends[to].take(self.now_ns, &bytes);
        }
        for at in 0..2 {
            let now_ns = self.now_ns;
            self.ends[at].settle(now_ns);
            self.ends[at].on_timeout(now_ns);
            self.ends[at].settle(now_ns);
            let mut packets = Vec::new();
            while self.ends[at].poll(now_ns, &mut packets) {
                packets.drain(..).for_each(|packet| self.carry(at, &packet));
                self.ends[at].settle(now_ns);
            }
        }
    }

    /// When something happens next.
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        let ends = self.ends.iter().filter_map(End::poll_timeout);
        ends.chain(self.schedule.next_ns()).min()
    }

    /// Runs until `is_done`; `false` if that takes longer than `limit_ns`, or nothing happens any more.
    pub(crate) fn run_until(
        &mut self,
        limit_ns: u64,
        mut is_done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let end_ns = self.now_ns + limit_ns;
        let mut stuck = 0;
        loop {
            self.run_now();
            if is_done(self) {
                return true;
            }
            let Some(next_ns) = self.next_ns() else { return false };
            if next_ns > end_ns {
                self.now_ns = end_ns;
                return false;
            }
            stuck = if next_ns <= self.now_ns { stuck + 1 } else { 0 };
            assert!(stuck < 1000, "something is due for ever");
            self.now_ns = self.now_ns.max(next_ns);
        }
    }

    /// Runs until nothing happens any more.
    pub(crate) fn run_out(&mut self) {
        let over = self.run_until(3_600_000_000_000, |_| false);
        assert!(!over);
        assert!(self.next_ns().is_none(), "it takes more than an hour");
    }
}

/// Whether a header is a data packet's of this opcode.
pub(crate) fn is(header: &RcHeader, opcode: Opcode) -> bool {
    header.opcode == opcode
}
