//! The pair harness: two queue pairs, a fake clock and a lossy link.
//!
//! Everything is deterministic: one seed draws all effects, equal times are
//! ordered by a counter, and packets travel as real bytes with real trailers,
//! so that corruption meets the same checks as on a socket. Tests of the
//! protocol need no socket, thread or sleep.

use crate::buffer::SendBuffer;
use crate::modes::{Mode, auto};
use crate::qp::Peer;
use crate::qp::PostedReceive;
use crate::qp::QpConfig;
use crate::qp::QueuePair;
use crate::qp::SendId;
use crate::qp::SendRequest;
use crate::qp::SendStatus;
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_path::pacer::time_of;
use lacuna_place::geometry::Geometry;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::placement::Placement;
use lacuna_place::writer::ChannelWriter;
use lacuna_wire::{
    CONTROL_HEADER_BYTES, ControlWriter, DataHeader, Packet, check_crc32c, pad_bytes, parse,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

/// Random numbers that are the same for ever: splitmix64 (Steele, Lea, Flood
/// 2014), one state word.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }

    /// True once in a while: `per_million` of a million times.
    pub fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// Turns in which an end must have done all that is due at one time.
const TURNS_MAX: u32 = 4;

/// Packets further apart are not lost in a row: what loses packets for so long
/// is a path that is dark.
const BURST_NS_MAX: u64 = 1_000_000;

/// What the link does to packets; probabilities in millionths.
#[derive(Debug, Clone, Copy)]
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

/// A packet under way; ordered by arrival, then by departure.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    due_ns: u64,
    counter: u64,
    to: Side,
    channel: u8,
    bytes: Vec<u8>,
}

/// One end.
#[derive(Debug)]
pub struct End {
    /// The queue pair.
    pub qp: QueuePair,
    /// Data packets that it put on the link.
    pub data_packets: u64,
    /// Control packets that it put on the link.
    pub control_packets: u64,
    /// Packets that came and were refused before they reached the queue pair.
    pub rejected: u64,
    /// Packets that were too long for the link.
    pub too_long: u64,
    writers: Vec<ChannelWriter>,
    control: ControlWriter,
    link_free_ns: u64,
    /// Until then the next packet may be lost in a row with the last.
    burst_ends_ns: u64,
}

/// Says of a data packet, by its number in its message, whether it is lost.
pub type Loses = Box<dyn Fn(u32) -> bool>;

/// See the module's text.
pub struct Pair {
    /// The clock.
    pub now_ns: u64,
    /// The link, both ways; may be changed at any time.
    pub link: Link,
    /// Draws the link's effects.
    pub rng: Rng,
    /// One end.
    pub a: End,
    /// The other.
    pub b: End,
    /// Data packets towards B that are lost besides, if anybody says so.
    pub drop_data: Option<Loses>,
    /// So many control packets of B are lost next.
    pub answers_lost: u32,
    flying: BinaryHeap<Reverse<Flying>>,
    counter: u64,
    /// Every packet that was put on the link, when asked for: what a
    /// hostile peer could send again.
    pub recorded: Option<Vec<(Side, u8, Vec<u8>)>>,
}

impl Pair {
    /// Two connected queue pairs.
    pub fn new(config: PairConfig, link: Link) -> Self {
        let end = |number: u32| {
            let geometry = GeometryConfig { code: config.mode.code(), ..config.geometry };
            let qp = QueuePair::new(QpConfig {
                geometry: Geometry::new(geometry).expect("a valid test geometry"),
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
            });
            End {
                qp,
                writers: Vec::new(),
                control: ControlWriter::new(1400),
                link_free_ns: 0,
                burst_ends_ns: 0,
                data_packets: 0,
                control_packets: 0,
                rejected: 0,
                too_long: 0,
            }
        };
        let mut pair = Self {
            now_ns: 1_000_000_000,
            link,
            rng: Rng::new(config.seed),
            a: end(1),
            b: end(2),
            drop_data: None,
            answers_lost: 0,
            flying: BinaryHeap::new(),
            counter: 0,
            recorded: None,
        };
        let info = |end: &End| {
            let config = end.qp.config();
            Peer {
                queue_pair: config.queue_pair,
                rkey: config.rkey,
                qkey: config.qkey,
                first_psn: config.first_psn,
                credit_bytes: config.credit_bytes,
            }
        };
        let (a, b) = (info(&pair.a), info(&pair.b));
        pair.a.qp.connect(pair.now_ns, b);
        pair.b.qp.connect(pair.now_ns, a);
        pair.a.writers = pair.a.qp.take_writers();
        pair.b.writers = pair.b.qp.take_writers();
        pair
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
        let now_ns = self.now_ns;
        let buffer = Placement::from_vec(vec![0; capacity_bytes]);
        self.end(side).qp.post_receive(now_ns, buffer).expect("a slot is free")
    }

    /// Sends bytes, waiting for the receive if need be.
    pub fn send(&mut self, side: Side, data: Vec<u8>, immediate: Option<u32>) -> SendId {
        let request = SendRequest { data: SendBuffer::from(data), immediate, deadline_ns: None };
        self.end(side).qp.queue_send(request).expect("the send is taken")
    }

    /// Where a send stands.
    pub fn status(&mut self, side: Side, id: SendId) -> SendStatus {
        self.end(side).qp.send_status(id).expect("not released")
    }

    /// Closes a receive and gives the bytes of its message's buffer back.
    pub fn close(&mut self, side: Side, posted: PostedReceive) -> Vec<u8> {
        let now_ns = self.now_ns;
        let qp = &mut self.end(side).qp;
        for part in &posted.parts {
            qp.table().close(part.number());
        }
        qp.on_receive_closed(now_ns, &posted);
        let bytes = read(&posted);
        drop(posted);
        bytes
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
            self.advance(end_ns);
        }
    }

    /// Runs for a time.
    pub fn run_for(&mut self, time_ns: u64) {
        self.run_until(time_ns, |_| false);
    }

    /// Puts foreign bytes on the link, as a third party could.
    pub fn inject(&mut self, to: Side, channel: u8, bytes: Vec<u8>) {
        self.fly(self.now_ns, to, channel, bytes);
    }

    /// Moves the clock to the next event, or to the end if nothing will happen.
    fn advance(&mut self, end_ns: u64) {
        let arrival = self.flying.peek().map(|Reverse(packet)| packet.due_ns);
        let next = [arrival, self.a.qp.poll_timeout(), self.b.qp.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(end_ns);
        self.now_ns = next.clamp(self.now_ns + 1, end_ns);
    }

    /// Delivers what is due and lets both ends send what they may.
    fn pump(&mut self) {
        while self.flying.peek().is_some_and(|Reverse(packet)| packet.due_ns <= self.now_ns) {
            self.deliver_burst();
        }
        for side in [Side::A, Side::B] {
            self.serve(side);
        }
    }

    /// Lets one end do what is due. Sending may make a question to the peer
    /// due, so it takes more than one turn; but a time that stays in the past
    /// would make a worker spin.
    fn serve(&mut self, side: Side) {
        let now_ns = self.now_ns;
        for _ in 0..TURNS_MAX {
            if self.end(side).qp.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
                self.end(side).qp.on_timeout(now_ns);
            }
            self.transmit(side);
            let link = self.link;
            let qp = &mut self.end(side).qp;
            if qp.take_route_question() && link.narrowness != Narrowness::Hidden {
                qp.on_route_mtu(now_ns, link.packet_bytes_max.try_into().unwrap_or(u32::MAX));
            }
            let due_ns = self.end(side).qp.poll_timeout();
            if due_ns.is_none_or(|due_ns| due_ns > now_ns) {
                return;
            }
        }
        panic!("{side:?} has something due at {now_ns} for ever");
    }

    /// Packets due at once for one channel come as one burst, as from a socket.
    fn deliver_burst(&mut self) {
        let Some(Reverse(first)) = self.flying.pop() else { return };
        let (to, channel) = (first.to, first.channel);
        let mut burst = vec![first];
        while let Some(Reverse(next)) = self.flying.peek() {
            let same = next.due_ns <= self.now_ns && next.to == to && next.channel == channel;
            if !same || burst.len() == 64 {
                break;
            }
            burst.extend(self.flying.pop().map(|Reverse(packet)| packet));
        }
        let now_ns = self.now_ns;
        let end = self.end(to);
        let mut placer = end.writers[usize::from(channel)].burst();
        let mut data_packets = 0;
        let mut controls = Vec::new();
        for packet in &burst {
            match parse(&packet.bytes) {
                Ok(Packet::Data(header, payload))
                    if header.dest.queue_pair() == end.qp.config().queue_pair =>
                {
                    match placer.check_and_place(&packet.bytes, &header, payload, false) {
                        Ok(()) => data_packets += 1,
                        Err(_) => end.rejected += 1,
                    }
                }
                Ok(Packet::Control(header, body))
                    if header.qkey == end.qp.config().qkey
                        && check_crc32c(&packet.bytes).is_ok() =>
                {
                    controls.push((body, packet.bytes.len()));
                }
                _ => end.rejected += 1,
            }
        }
        let summary = placer.finish();
        if data_packets > 0 {
            end.qp.on_burst(now_ns, channel, &summary);
        }
        for (body, packet_bytes) in controls {
            if end.qp.on_control(now_ns, channel, body, packet_bytes).is_err() {
                end.rejected += 1;
            }
        }
    }

    fn transmit(&mut self, side: Side) {
        let now_ns = self.now_ns;
        let channels = self.end(side).qp.config().geometry.channels();
        let mut out: Vec<(u8, bool, Vec<u8>)> = Vec::new();
        let end = self.end(side);
        for channel in 0..channels {
            while let Some(packet) = end.qp.poll_control(now_ns, channel, &mut end.control) {
                debug_assert!(packet.len() > CONTROL_HEADER_BYTES);
                out.push((channel, false, packet.to_vec()));
                end.control_packets += 1;
            }
            while let Some(transmit) = end.qp.poll_transmit(now_ns, channel, 32) {
                let before = out.len();
                for (index, without_bytes) in transmit.headers_from(0).enumerate() {
                    let (header, payload) = transmit.packet(index);
                    debug_assert_eq!(
                        header, without_bytes,
                        "who asks for no bytes is told the same"
                    );
                    debug_assert_eq!(header.length as usize, payload.len());
                    out.push((channel, transmit.takes_marks(), data_packet(&header, payload)));
                    end.data_packets += 1;
                }
                let bytes: usize = out[before..].iter().map(|(.., packet)| packet.len()).sum();
                let run = transmit.measure();
                let charged = run.padded_bytes + run.overhead_bytes;
                debug_assert_eq!(bytes as u64, charged, "the window is charged what is sent");
            }
        }
        for (channel, takes_marks, bytes) in out {
            self.put_on_link(side, channel, takes_marks, bytes);
        }
    }

    fn put_on_link(&mut self, from: Side, channel: u8, takes_marks: bool, mut bytes: Vec<u8>) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push((from, channel, bytes.clone()));
        }
        let (link, now_ns) = (self.link, self.now_ns);
        let end = self.end(from);
        let mut leaves_ns = now_ns;
        if let Some(rate) = link.rate_bits_per_s {
            end.link_free_ns =
                end.link_free_ns.max(now_ns) + time_of(bytes.len() as u64 + 28, rate);
            leaves_ns = end.link_free_ns;
        }
        if from == Side::A
            && let Some(loses) = &self.drop_data
            && let Ok(Packet::Data(header, _)) = parse(&bytes)
            && loses(self.a.qp.config().geometry.split().unpack(header.immediate).packet)
        {
            return;
        }
        if from == Side::B
            && self.answers_lost > 0
            && matches!(parse(&bytes), Ok(Packet::Control(..)))
        {
            self.answers_lost -= 1;
            return;
        }
        if link.is_ecn_hole && takes_marks {
            return;
        }
        if bytes.len() > link.packet_bytes_max {
            let end = self.end(from);
            end.too_long += 1;
            if link.narrowness == Narrowness::Refused {
                end.qp.on_too_large(now_ns, bytes.len() as u32);
            }
            return;
        }
        if link.dark || self.is_lost(from) {
            return;
        }
        let mut due_ns = leaves_ns + link.delay_ns;
        if self.rng.chance(link.reorder_ppm) {
            due_ns += self.rng.below(link.reorder_ns);
        }
        if self.rng.chance(link.duplicate_ppm) {
            let again_ns = due_ns + self.rng.below(1 + link.reorder_ns);
            self.fly(again_ns, from.peer(), channel, bytes.clone());
        }
        if self.rng.chance(link.corrupt_ppm) {
            let bit = self.rng.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.fly(due_ns, from.peer(), channel, bytes);
    }

    /// Whether the link loses the next packet of this end.
    fn is_lost(&mut self, from: Side) -> bool {
        let (link, now_ns) = (self.link, self.now_ns);
        // The chance that a burst goes on: its length is geometric.
        let goes_on_ppm = 1_000_000 - 1_000_000 / link.burst_packets.max(1);
        let is_late = self.end(from).burst_ends_ns <= now_ns;
        let is_lost = !is_late && self.rng.chance(goes_on_ppm) || self.rng.chance(link.loss_ppm);
        let ends_ns = if is_lost && link.burst_packets > 1 { now_ns + BURST_NS_MAX } else { 0 };
        self.end(from).burst_ends_ns = ends_ns;
        is_lost
    }

    fn fly(&mut self, due_ns: u64, to: Side, channel: u8, bytes: Vec<u8>) {
        self.counter += 1;
        let counter = self.counter;
        self.flying.push(Reverse(Flying { due_ns, counter, to, channel, bytes }));
    }
}

/// A whole data packet with its trailer.
pub fn data_packet(header: &DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut headers = vec![0; header.header_bytes()];
    header.emit(&mut headers);
    let pad = &[0; 3][..pad_bytes(payload.len())];
    let trailer = header.trailer(&[&headers, payload, pad]);
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
