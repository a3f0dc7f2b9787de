//! The gateway: frames from the local network get repairs on their way to the long path; frames from the long
//! path are recovered and handed on in order.
//!
//! **From the local network.** A data frame leaves as it came. If its flow has state and its ICRC is right, the
//! encoder adds it, and repairs follow in frames with the flow's own headers. A frame with a wrong ICRC is
//! not coded: what would be recovered from it would be wrong, too.
//!
//! **From the long path.** Frames of a flow that has a shim at its other end go through the decoder. What waits
//! behind a gap is kept as a whole frame, so that it is handed on bit by bit. A lost packet becomes a frame with the
//! headers of the flow's last one; its identification (IPv4) is 0, its ICRC is of what is sent. Repairs end here.
//!
//! **Round trips.** The time from a packet that asks for an acknowledgement to the answer with its number, as
//! seen here on the way out and back; the shorter of the last ones. Numbers are drawn by the hosts, so two
//! connections between the same hosts hardly ever have the same. A gap stays open for a quarter of it.

use crate::flows::{FlowKey, Flows};
use crate::frame::{RoceFrame, Template};
use core::net::IpAddr;
use lacuna_lowar::{
    Decoder, DecoderConfig, DecoderCounters, Encoder, EncoderCounters, How, Shared, StrengthError,
    Upper,
};
use lacuna_wire::PSN_MASK;
use lacuna_wire::rc::{Operation, REPAIR_OPCODE, RcHeader, RepairHeader, Strength, rc_destination};
use std::collections::VecDeque;

/// Flows with state, of each direction: with all of it 64 MiB.
const FLOWS_MAX: usize = 4096;
/// Frames of a flow that wait behind a gap, at most.
const HELD_MAX: usize = 2048;
/// A gap stays open for this part of a round trip.
const HOLDS_PER_RTT: u64 = 4;
/// An answer may be for so many packets more than the one that is waited for: answers in a row are one.
const JOINED_MAX: u32 = 256;
/// After this time no answer is expected any more.
const UNANSWERED_NS: u64 = 250_000_000;
/// Bytes of a BTH.
const BTH_BYTES: usize = 12;

/// Settings of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatewayConfig {
    /// How flows from the local network are protected; `None` adds no repairs, and takes those that come.
    pub strength: Option<Strength>,
    /// Whether short messages have only their share of repairs.
    pub caps_short_blocks: bool,
    /// Flows with state, of each direction, at most.
    pub flows_max: usize,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self { strength: None, caps_short_blocks: false, flows_max: FLOWS_MAX }
    }
}

/// What a gateway did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames from the local network, and how many were of RoCEv2.
    pub local_frames: u64,
    /// See above.
    pub local_roce_frames: u64,
    /// Frames from the long path, and how many were of RoCEv2.
    pub remote_frames: u64,
    /// See above.
    pub remote_roce_frames: u64,
    /// Frames of RoCEv2 whose ICRC was wrong: handed on, and not coded.
    pub wrong_icrc: u64,
    /// Flows that got state, and those that lost it to others.
    pub flows: u64,
    /// See above.
    pub flows_evicted: u64,
    /// Repairs that were sent.
    pub repairs_sent: u64,
    /// Blocks that went without, for want of memory.
    pub blocks_uncoded: u64,
    /// Repairs that came, and those that could not be used.
    pub repairs_received: u64,
    /// See above.
    pub repairs_refused: u64,
    /// Packets that were recovered.
    pub packets_recovered: u64,
    /// Packets that waited behind a gap.
    pub packets_held: u64,
    /// Gaps that were handed on as they were.
    pub blocks_failed: u64,
    /// The path's round trip; 0 before it is known.
    pub rtt_ns: u64,
}

/// A frame that waits: its packet's BTH, and what is around the packet.
#[derive(Debug)]
struct Held {
    bth: [u8; BTH_BYTES],
    frame: Vec<u8>,
}

/// A flow from the local network.
#[derive(Debug)]
struct Outgoing {
    encoder: Box<Encoder>,
    /// The number behind the newest packet: what is sent again has an answer that may be the first one's.
    next_psn: u32,
}

/// A flow from the long path.
#[derive(Debug)]
struct Incoming {
    decoder: Box<Decoder>,
    template: Template,
    held: VecDeque<Held>,
}

/// A packet that asks for an acknowledgement, on its way.
#[derive(Debug, Clone, Copy)]
struct Asked {
    source: IpAddr,
    destination: IpAddr,
    psn: u32,
    sent_ns: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Gateway {
    config: GatewayConfig,
    shared: Shared,
    outgoing: Flows<Outgoing>,
    incoming: Flows<Incoming>,
    asked: Option<Asked>,
    rtt_ns: Option<u64>,
    counters: Counters,
    /// Of flows that have gone.
    sent: EncoderCounters,
    received: DecoderCounters,
}

impl Gateway {
    /// A gateway that has seen nothing.
    ///
    /// # Errors
    /// When no block can have the strength.
    pub fn new(config: GatewayConfig) -> Result<Self, StrengthError> {
        Encoder::new().set_strength(config.strength)?;
        Ok(Self {
            config,
            shared: Shared::default(),
            outgoing: Flows::new(config.flows_max),
            incoming: Flows::new(config.flows_max),
            asked: None,
            rtt_ns: None,
            counters: Counters::default(),
            sent: EncoderCounters::default(),
            received: DecoderCounters::default(),
        })
    }

    /// What it did.
    pub fn counters(&mut self) -> Counters {
        let mut sent = self.sent;
        let mut received = self.received;
        self.outgoing.iter_mut().for_each(|(_, flow)| sent = sent.with(&flow.encoder.counters()));
        let decoders = self.incoming.iter_mut();
        decoders.for_each(|(_, flow)| received = received.with(&flow.decoder.counters()));
        Counters {
            repairs_sent: sent.repairs_sent,
            blocks_uncoded: sent.blocks_uncoded,
            repairs_received: received.repairs_received,
            repairs_refused: received.repairs_refused,
            packets_recovered: received.packets_recovered,
            packets_held: received.packets_held,
            blocks_failed: received.blocks_failed,
            rtt_ns: self.rtt_ns.unwrap_or(0),
            ..self.counters
        }
    }

    /// Flows with state, of both directions.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.outgoing.len() + self.incoming.len()
    }

    /// A frame came from the local network: `send` gets what goes to the long path, the frame first.
    pub fn on_local(&mut self, now_ns: u64, frame: &[u8], send: &mut dyn FnMut(&[u8])) {
        self.counters.local_frames += 1;
        let Some(roce) = RoceFrame::parse(frame) else { return send(frame) };
        self.counters.local_roce_frames += 1;
        let packet = roce.packet();
        let Some((header, key)) = flow_of(&roce) else { return send(frame) };
        if self.config.strength.is_none() {
            return send(frame);
        }
        if !roce.has_right_icrc() {
            self.counters.wrong_icrc += 1;
            return send(frame);
        }
        if self.outgoing.get_mut(&key).is_none() {
            if !is_data(&header) || !self.outgoing.confirms(&key, header.psn) {
                return send(frame);
            }
            self.open_outgoing(key, header.psn);
        }
        let Some(Outgoing { encoder, next_psn }) = self.outgoing.get_mut(&key) else {
            return send(frame);
        };
        let ahead = header.psn.wrapping_sub(*next_psn) & PSN_MASK;
        let is_new = ahead <= PSN_MASK / 2;
        if is_new {
            *next_psn = (header.psn + 1) & PSN_MASK;
        }
        let template = Template::of(&roce);
        if let Some(announcement) = encoder.announcement(packet) {
            send(&template.frame(&announcement));
        }
        send(frame);
        encoder.on_packet(&mut self.shared.encode, packet, &mut |repair| {
            send(&template.frame(repair));
        });
        if is_new {
            self.watch(now_ns, &roce, &header);
        }
    }

    fn open_outgoing(&mut self, key: FlowKey, next_psn: u32) {
        let mut encoder = Box::new(Encoder::new());
        if encoder.set_strength(self.config.strength).is_err() {
            return;
        }
        encoder.set_caps_short_blocks(self.config.caps_short_blocks);
        self.counters.flows += 1;
        if let Some(mut gone) = self.outgoing.insert(key, Outgoing { encoder, next_psn }) {
            self.counters.flows_evicted += 1;
            self.sent = self.sent.with(&gone.encoder.counters());
            gone.encoder.release(&mut self.shared.encode);
        }
    }

    /// A frame came from the long path: `send` gets what goes to the local network, now.
    pub fn on_remote(&mut self, now_ns: u64, frame: &[u8], send: &mut dyn FnMut(&[u8])) {
        self.counters.remote_frames += 1;
        let Some(roce) = RoceFrame::parse(frame) else { return send(frame) };
        self.counters.remote_roce_frames += 1;
        let packet = roce.packet();
        let is_right = roce.has_right_icrc();
        if packet.first() == Some(&REPAIR_OPCODE) {
            // It is for nobody but this gateway.
            match is_right {
                true => self.on_repair(now_ns, &roce, send),
                false => self.counters.wrong_icrc += 1,
            }
            return;
        }
        let Some((header, key)) = flow_of(&roce) else { return send(frame) };
        self.answer(now_ns, &roce, &header);
        if !is_right {
            self.counters.wrong_icrc += 1;
            return send(frame);
        }
        let Some(flow) = self.incoming.get_mut(&key) else { return send(frame) };
        flow.template = Template::of(&roce);
        let Incoming { decoder, template, held } = flow;
        let mut way = Way { current: Some(&roce), template, held, send };
        decoder.on_packet(now_ns, &mut self.shared, packet, &mut way);
        // It waits now: it was not handed on.
        if way.current.is_some() && decoder.holds_packets() {
            hold(held, &roce);
        }
    }

    fn on_repair(&mut self, now_ns: u64, roce: &RoceFrame<'_>, send: &mut dyn FnMut(&[u8])) {
        let packet = roce.packet();
        let (Ok((_, header, sum)), Some(queue_pair)) =
            (RepairHeader::parse(packet, 0), rc_destination(packet))
        else {
            self.counters.repairs_refused += 1;
            return;
        };
        let key = FlowKey { source: roce.source, destination: roce.destination, queue_pair };
        if self.incoming.get_mut(&key).is_none() {
            self.open_incoming(key, roce);
        }
        let Some(Incoming { decoder, template, held }) = self.incoming.get_mut(&key) else {
            return;
        };
        match &header {
            RepairHeader::Announce { first_psn, strength } => {
                decoder.on_announce(*first_psn, *strength);
            }
            RepairHeader::Repair { block, index } => {
                let mut way = Way { current: None, template, held, send };
                decoder.on_repair(now_ns, &mut self.shared, block, *index, sum, &mut way);
            }
            // Gateways do not ask yet.
            RepairHeader::Request { .. } => {}
        }
    }

    fn open_incoming(&mut self, key: FlowKey, roce: &RoceFrame<'_>) {
        let mut config = DecoderConfig::new(key.queue_pair);
        if let Some(rtt_ns) = self.rtt_ns {
            config.hold_ns_max = rtt_ns / HOLDS_PER_RTT;
        }
        let decoder = Box::new(Decoder::new(config));
        let flow = Incoming { decoder, template: Template::of(roce), held: VecDeque::new() };
        self.counters.flows += 1;
        if let Some(gone) = self.incoming.insert(key, flow) {
            self.counters.flows_evicted += 1;
            self.received = self.received.with(&gone.decoder.counters());
            gone.decoder.release(&mut self.shared);
        }
    }

    /// When [`Gateway::on_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&mut self) -> Option<u64> {
        self.incoming.iter_mut().filter_map(|(_, flow)| flow.decoder.poll_timeout()).min()
    }

    /// Time has passed: gaps may be given up; `send` as for [`Gateway::on_remote`].
    pub fn on_timeout(&mut self, now_ns: u64, send: &mut dyn FnMut(&[u8])) {
        for (_, Incoming { decoder, template, held }) in self.incoming.iter_mut() {
            if decoder.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
                let mut way = Way { current: None, template, held, send };
                decoder.on_timeout(now_ns, &mut self.shared, &mut way);
            }
        }
    }

    /// Notes when a packet that asks for an acknowledgement goes out.
    fn watch(&mut self, now_ns: u64, roce: &RoceFrame<'_>, header: &RcHeader) {
        let RoceFrame { source, destination, .. } = *roce;
        let is_old = self.asked.is_none_or(|asked| now_ns > asked.sent_ns + UNANSWERED_NS);
        if header.asks_ack && is_old {
            self.asked = Some(Asked { source, destination, psn: header.psn, sent_ns: now_ns });
        }
    }

    /// Takes an answer as the end of a round trip.
    fn answer(&mut self, now_ns: u64, roce: &RoceFrame<'_>, header: &RcHeader) {
        let is_answer = header.opcode.operation() == Operation::Acknowledge;
        let Some(asked) = self.asked.filter(|_| is_answer) else { return };
        let behind = header.psn.wrapping_sub(asked.psn) & PSN_MASK;
        let is_it = (asked.source, asked.destination) == (roce.destination, roce.source);
        if !is_it || behind > JOINED_MAX {
            return;
        }
        self.asked = None;
        let sample_ns = now_ns.saturating_sub(asked.sent_ns);
        // Slowly up, at once down: what hosts add is no part of the path.
        let rtt_ns = self.rtt_ns.map_or(sample_ns, |rtt_ns| sample_ns.min(rtt_ns + rtt_ns / 64));
        self.rtt_ns = Some(rtt_ns);
        for (_, flow) in self.incoming.iter_mut() {
            flow.decoder.set_hold_ns_max(rtt_ns / HOLDS_PER_RTT);
        }
    }
}

/// The headers of a packet of a reliable connection, and its flow.
fn flow_of(roce: &RoceFrame<'_>) -> Option<(RcHeader, FlowKey)> {
    let (header, _) = RcHeader::parse(roce.packet(), 0).ok()?;
    let RoceFrame { source, destination, .. } = *roce;
    Some((header, FlowKey { source, destination, queue_pair: header.destination }))
}

/// Whether it is a packet that is coded: part of a message or an answer to a READ.
fn is_data(header: &RcHeader) -> bool {
    matches!(
        header.opcode.operation(),
        Operation::Send | Operation::Write | Operation::ReadResponse
    )
}

/// Keeps a frame that waits.
fn hold(held: &mut VecDeque<Held>, roce: &RoceFrame<'_>) {
    let Some(bth) = roce.packet().first_chunk() else { return };
    if held.len() >= HELD_MAX {
        held.pop_front();
    }
    held.push_back(Held { bth: *bth, frame: roce.bytes().to_vec() });
}

/// The way to the local network.
struct Way<'w> {
    /// The frame that has just come, until it is handed on.
    current: Option<&'w RoceFrame<'w>>,
    template: &'w Template,
    held: &'w mut VecDeque<Held>,
    send: &'w mut dyn FnMut(&[u8]),
}

impl Upper for Way<'_> {
    fn take(&mut self, packet: &[u8], how: How) {
        if let Some(current) = self.current.filter(|current| current.packet() == packet) {
            self.current = None;
            return (self.send)(current.bytes());
        }
        let is_it = |held: &Held| packet.starts_with(&held.bth);
        let found = match how {
            How::Recovered => None,
            How::Passed | How::Held => self.held.iter().position(is_it),
        };
        match found.and_then(|at| self.held.remove(at)) {
            Some(held) => (self.send)(&held.frame),
            None => (self.send)(&self.template.frame(packet)),
        }
    }
}
