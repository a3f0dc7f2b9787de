//! The pair harness: two engines with a queue pair each, a fake clock and a lossy link.
//!
//! Everything is deterministic: one seed draws all effects, equal times are
//! ordered by a counter, and packets travel as real bytes with real trailers,
//! so that corruption meets the same checks as on a socket. Tests of the
//! protocol need no socket, thread or sleep.

use crate::event::Event;
use crate::harness::{Flights, Handle, Held, Net, Packet as Flown, Place, Sent, Wire};
use crate::kinds::{Early, Machine};
pub use lacuna_link::SplitMix64 as Rng;
use lacuna_link::{Chances, FaultGenerator, Fraction, Loss, Pipe, PipeConfig};
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_proto::modes::{Mode, auto};
use lacuna_proto::qp::{
    self, PostedReceive, QpConfig, QueuePair, RecvOptions, RecvRequest, SendId, SendRequest,
    SendStatus,
};
use lacuna_wire::{DataHeader, Packet, Seal, pad_bytes};
use std::sync::atomic::Ordering;

/// Which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Called the sender in most tests.
    A,
    /// Called the receiver in most tests.
    B,
}

impl Side {
    /// The other end.
    pub fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Packets further apart are not lost in a row: what loses packets for so long
/// is a path that is dark.
const BURST_NS_MAX: u64 = 1_000_000;

/// What the link does to packets; probabilities in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// One-way delay.
    pub delay_ns: u64,
    /// Rate each way; `None` is unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// Lost: where bursts begin.
    pub loss_ppm: u32,
    /// Mean packets lost in a row; 1 for independent losses.
    pub burst_packets: u32,
    /// Arrive twice.
    pub duplicate_ppm: u32,
    /// One bit flipped.
    pub corrupt_ppm: u32,
    /// Held back by up to `reorder_ns`.
    pub reorder_ppm: u32,
    /// See `reorder_ppm`.
    pub reorder_ns: u64,
    /// Nothing passes.
    pub dark: bool,
    /// Nothing passes that says that its sender answers to congestion marks.
    pub is_ecn_hole: bool,
    /// Longer packets do not pass, either way.
    pub packet_bytes_max: usize,
    /// Who learns that one was too long.
    pub narrowness: Narrowness,
}

/// Who learns that a packet was too long for the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrowness {
    /// Nobody: a black hole.
    Hidden,
    /// The host, if it asks for what it knows of the route, as routers tell it.
    Told,
    /// The sender at once: its own link refuses the packet.
    Refused,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay_ns: 5_000_000,
            rate_bits_per_s: None,
            loss_ppm: 0,
            burst_packets: 1,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            reorder_ppm: 0,
            reorder_ns: 1_000_000,
            dark: false,
            is_ecn_hole: false,
            packet_bytes_max: usize::MAX,
            narrowness: Narrowness::Hidden,
        }
    }
}

impl Link {
    /// What it does to each packet, but for how long it holds one back and when a copy comes: that is
    /// drawn for each.
    fn pipe(&self) -> PipeConfig {
        let begins = Fraction::from_ppm(self.loss_ppm);
        let loss = match self.burst_packets {
            0 | 1 => Loss::Independent(begins),
            packets => Loss::Gilbert {
                low: Fraction::never(),
                high: Fraction::always(),
                low_to_high: begins,
                high_to_low: Fraction::from_ppm(1_000_000 / packets),
            },
        };
        PipeConfig {
            delay_ns: self.delay_ns,
            rate_bits_per_s: self.rate_bits_per_s,
            loss,
            chances: Chances {
                reorder: Fraction::from_ppm(self.reorder_ppm),
                duplicate: Fraction::from_ppm(self.duplicate_ppm),
                corrupt: Fraction::from_ppm(self.corrupt_ppm),
                ..Chances::default()
            },
            ..PipeConfig::default()
        }
    }
}

/// How the two queue pairs are made.
#[derive(Debug, Clone, Copy)]
pub struct PairConfig {
    /// Geometry of both.
    pub geometry: GeometryConfig,
    /// Mode of both.
    pub mode: Mode,
    /// What the mode `auto` chooses by.
    pub policy: auto::Policy,
    /// Controller of both.
    pub controller: ControllerConfig,
    /// What each socket holds.
    pub credit_bytes: u32,
    /// Timeouts.
    pub rto: RtoConfig,
    /// Seed of the link.
    pub seed: u64,
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            geometry: GeometryConfig {
                mtu_bytes: 1024,
                chunk_packets: 4,
                stripe_packets: 16,
                ..GeometryConfig::default()
            },
            mode: Mode::SR,
            policy: auto::plan,
            controller: ControllerConfig::Bbr,
            credit_bytes: 4 << 20,
            rto: RtoConfig::default(),
            seed: 1,
        }
    }
}

/// One end.
#[derive(Debug)]
pub struct End {
    /// Data packets that it put on the link.
    pub data_packets: u64,
    /// Control packets that it put on the link.
    pub control_packets: u64,
    /// Packets that came and were refused before they reached the queue pair.
    pub rejected: u64,
    /// Packets that were too long for the link.
    pub too_long: u64,
    handle: Handle,
    /// The link from here.
    pipe: Pipe,
    /// Until then the next packet may be lost in a row with the last.
    burst_ends_ns: u64,
}

impl End {
    /// The queue pair.
    pub fn qp(&self) -> Held<'_> {
        self.handle.qp()
    }

    /// The queue pair, for itself.
    pub fn into_qp(self) -> QueuePair {
        let mut state = self.handle.books.lock();
        match std::mem::replace(&mut state.machine, Machine::Reserved(Early::default())) {
            Machine::Sdr(qp) => qp,
            other => panic!("a queue pair that is connected, not {other:?}"),
        }
    }
}

/// Says of a data packet, by its number in its message, whether it is lost.
pub type Loses = Box<dyn Fn(u32) -> bool>;

/// See the module's text.
pub struct Pair {
    /// The clock.
    pub now_ns: u64,
    /// The link, both ways; may be changed at any time.
    pub link: Link,
    /// One end.
    pub a: End,
    /// The other.
    pub b: End,
    /// Data packets towards B that are lost besides, if anybody says so.
    pub drop_data: Option<Loses>,
    /// So many control packets of B are lost next.
    pub answers_lost: u32,
    /// Every packet that was put on the link, when asked for: what a
    /// hostile peer could send again.
    pub recorded: Option<Vec<(Side, u8, Vec<u8>)>>,
    /// What the engines told of the queue pairs.
    pub events: Vec<(Side, qp::Event)>,
    net: Net,
    geometry: Geometry,
    /// The link as the ends' pipes have it.
    piped: Link,
    /// Draws how late packets and copies come.
    rng: Rng,
}

impl Pair {
    /// Two connected queue pairs.
    pub fn new(config: PairConfig, link: Link) -> Self {
        let geometry = GeometryConfig { code: config.mode.code(), ..config.geometry };
        let geometry = Geometry::new(geometry).expect("a valid test geometry");
        let qp_config = |number: u32| QpConfig {
            geometry,
            mode: config.mode,
            policy: config.policy,
            controller: config.controller,
            rto: config.rto,
            queue_pair: number,
            rkey: 0x1000 + number,
            qkey: 0x2000 + number,
            first_psn: 0xFF_FFF0 + number,
            credit_bytes: config.credit_bytes,
            silence_max_ns: 30_000_000_000,
        };
        let mut net = Net::new();
        let hosts = [(); 2].map(|()| net.add_host(geometry.channels()));
        let [a, b] = net.connect(hosts, [1, 2].map(qp_config)).map(|handle| End {
            pipe: Pipe::new(link.pipe(), config.seed, handle.host as u64 * FaultGenerator::STREAMS),
            handle,
            burst_ends_ns: 0,
            data_packets: 0,
            control_packets: 0,
            rejected: 0,
            too_long: 0,
        });
        Self {
            now_ns: net.now_ns(),
            link,
            a,
            b,
            drop_data: None,
            answers_lost: 0,
            recorded: None,
            events: Vec::new(),
            net,
            geometry,
            piped: link,
            rng: Rng::new(config.seed),
        }
    }

    /// One end.
    pub fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }

    /// Posts a zeroed buffer.
    pub fn post(&mut self, side: Side, capacity_bytes: usize) -> PostedReceive {
        self.post_with(side, capacity_bytes, RecvOptions::default())
    }

    /// Posts a zeroed buffer that is over by these options.
    pub fn post_with(
        &mut self,
        side: Side,
        capacity_bytes: usize,
        options: RecvOptions,
    ) -> PostedReceive {
        let now_ns = self.now_ns;
        let buffer = Placement::from_vec(vec![0; capacity_bytes]);
        let request = RecvRequest { buffer, options, notifies: false };
        self.end(side).qp().post_receive_with(now_ns, request).expect("a slot is free")
    }

    /// Sends bytes, waiting for the receive if need be.
    pub fn send(&mut self, side: Side, data: Vec<u8>, immediate: Option<u32>) -> SendId {
        let request = SendRequest { data: SendBuffer::from(data), immediate, deadline_ns: None };
        self.end(side).qp().queue_send(request).expect("the send is taken")
    }

    /// Where a send stands.
    pub fn status(&mut self, side: Side, id: SendId) -> SendStatus {
        self.end(side).qp().send_status(id).expect("not released")
    }

    /// Closes a receive and gives the bytes of its message's buffer back.
    pub fn close(&mut self, side: Side, posted: PostedReceive) -> Vec<u8> {
        let now_ns = self.now_ns;
        let mut qp = self.end(side).qp();
        for part in &posted.parts {
            qp.table().close(part.number());
        }
        qp.on_receive_closed(now_ns, &posted);
        let bytes = read(&posted);
        drop(posted);
        bytes
    }

    /// The first event of `side` that `wanted` picks, with all before it gone.
    pub fn take_event<T>(
        &mut self,
        side: Side,
        mut wanted: impl FnMut(&qp::Event) -> Option<T>,
    ) -> Option<T> {
        let picked = |(index, (of, event)): (usize, &(Side, qp::Event))| {
            Some((index, wanted(event).filter(|_| *of == side)?))
        };
        let (index, picked) = self.events.iter().enumerate().find_map(picked)?;
        self.events.drain(..=index);
        Some(picked)
    }

    /// Runs until `done` holds; `false` if that takes longer than `limit_ns`.
    pub fn run_until(&mut self, limit_ns: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end_ns = self.now_ns + limit_ns;
        loop {
            self.pump();
            if done(self) {
                return true;
            }
            if self.now_ns >= end_ns {
                return false;
            }
            self.net.advance(end_ns);
            self.now_ns = self.net.now_ns();
        }
    }

    /// Runs for a time.
    pub fn run_for(&mut self, time_ns: u64) {
        self.run_until(time_ns, |_| false);
    }

    /// Puts foreign bytes on the link, as a third party could.
    pub fn inject(&mut self, to: Side, channel: u8, bytes: Vec<u8>) {
        let [from, to] = [to.peer(), to].map(|side| place(side, channel));
        self.net.inject(from, to, bytes);
    }

    /// Delivers what is due and lets both ends do what is due.
    fn pump(&mut self) {
        self.net.set_now_ns(self.now_ns);
        self.set_narrowness();
        if self.piped != self.link {
            self.piped = self.link;
            for end in [&mut self.a, &mut self.b] {
                end.pipe.change(self.link.pipe());
            }
        }
        let Self { net, a, b, link, rng, drop_data, answers_lost, recorded, geometry, .. } = self;
        // A test may have done anything with them.
        net.kick(&a.handle);
        net.kick(&b.handle);
        let ends = [a, b];
        let mut effects =
            Effects { link, rng, ends, drop_data, answers_lost, recorded, geometry: *geometry };
        net.run_now(&mut effects);
        for (side, end) in [(Side::A, &mut self.a), (Side::B, &mut self.b)] {
            let host = self.net.host(end.handle.host);
            let told = host.take_events().into_iter().filter_map(|event| match event {
                Event::QueuePair(_, event) => Some((side, event)),
                _ => None,
            });
            self.events.extend(told);
            let counters = host.engine().counters();
            let rejected = counters.rejected.iter().map(|count| count.load(Ordering::Relaxed));
            end.rejected = rejected.sum::<u64>() + counters.unknown.load(Ordering::Relaxed);
        }
    }

    /// Tells the ends' ports what they know of how narrow the link is.
    fn set_narrowness(&mut self) {
        let Link { packet_bytes_max, narrowness, .. } = self.link;
        let channels = self.a.qp().config().geometry.channels();
        for host in [Side::A, Side::B].map(|side| place(side, 0).host) {
            for channel in 0..channels {
                let port = self.net.host(host).port(channel);
                let is_refused = narrowness == Narrowness::Refused;
                port.set_packet_bytes_max(if is_refused { packet_bytes_max } else { usize::MAX });
                let is_known = narrowness != Narrowness::Hidden;
                port.set_route_packet_bytes(is_known.then_some(packet_bytes_max));
            }
        }
    }
}

fn place(side: Side, channel: u8) -> Place {
    Place { host: side as usize, channel }
}

/// What the link does.
struct Effects<'p> {
    link: &'p Link,
    rng: &'p mut Rng,
    ends: [&'p mut End; 2],
    drop_data: &'p Option<Loses>,
    answers_lost: &'p mut u32,
    recorded: &'p mut Option<Vec<(Side, u8, Vec<u8>)>>,
    geometry: Geometry,
}

impl Wire for Effects<'_> {
    fn carry(&mut self, now_ns: u64, sent: Sent, flights: &mut Flights) {
        let Sent { from, to, takes_marks, packet } = sent;
        let Flown::Bytes(mut bytes) = packet else { unreachable!("both hosts send bytes") };
        let side = if from.host == 0 { Side::A } else { Side::B };
        if let Some(recorded) = &mut self.recorded {
            recorded.push((side, from.channel, bytes.clone()));
        }
        let link = *self.link;
        let end = &mut *self.ends[from.host];
        let seal = self.geometry.seal();
        let is_data = matches!(seal.parse(&bytes), Ok(Packet::Data(..)));
        end.data_packets += u64::from(is_data);
        end.control_packets += u64::from(!is_data);
        if end.burst_ends_ns <= now_ns {
            end.pipe.faults_mut().end_burst();
        }
        let mut faults = end.pipe.draw(bytes.len() as u64);
        end.burst_ends_ns = if faults.is_lost { now_ns + BURST_NS_MAX } else { 0 };
        let is_held_back = std::mem::replace(&mut faults.is_held_back, false);
        // What is lost takes its time on the link too: who loses it is further on.
        let passed = end.pipe.pass(now_ns, bytes.len() as u64, &faults);
        if side == Side::A
            && let Some(loses) = &self.drop_data
            && let Ok(Packet::Data(header, _)) = seal.parse(&bytes)
            && loses(self.geometry.split().unpack(header.immediate).packet)
        {
            return;
        }
        if side == Side::B && *self.answers_lost > 0 && !is_data {
            *self.answers_lost -= 1;
            return;
        }
        if link.is_ecn_hole && takes_marks {
            return;
        }
        if bytes.len() > link.packet_bytes_max {
            end.too_long += 1;
            return;
        }
        let Some(passed) = passed.filter(|_| !faults.is_lost && !link.dark) else { return };
        let mut due_ns = passed.release_ns;
        if is_held_back {
            due_ns += self.rng.below(link.reorder_ns);
        }
        if faults.is_duplicated {
            let again_ns = due_ns + self.rng.below(1 + link.reorder_ns);
            flights.fly(again_ns, from, to, Flown::Bytes(bytes.clone()), false);
        }
        if let Some(bit) = faults.flipped_bit {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        flights.fly(due_ns, from, to, Flown::Bytes(bytes), false);
    }
}

/// A whole data packet, with the trailer that is usual.
pub fn data_packet(header: &DataHeader, payload: &[u8]) -> Vec<u8> {
    // The header may announce another payload.
    let mut headers = vec![0; header.header_bytes()];
    header.emit(&mut headers);
    let pad = &[0; 3][..pad_bytes(payload.len())];
    let mut trailer = vec![0; Seal::default().bytes()];
    Seal::default().emit_trailer(header, &[&headers, payload, pad], &mut trailer);
    [&headers, payload, pad, &trailer].concat()
}

/// All complete chunks of a receive, zeros between them.
pub fn read(posted: &PostedReceive) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in &posted.parts {
        let start = bytes.len();
        bytes.resize(start + part.capacity_bytes() as usize, 0);
        for chunk in 0..part.chunks() {
            if let Some(data) = part.chunk(chunk) {
                let at = start + chunk as usize * part.geometry().chunk_bytes() as usize;
                bytes[at..at + data.len()].copy_from_slice(data);
            }
        }
    }
    if let Some(length) = posted.length_bytes() {
        bytes.truncate(length as usize);
    }
    bytes
}
