//! A gateway: frames from the local network to the path, and back.
//!
//! Of a frame from the local network, only data packets of reliable connections with a right ICRC are coded.
//! Of those from the path, only flows with repairs have a decoder; repairs end here. Every other frame
//! passes at once, bit by bit. Requests for another strength pass too, from one end host's shim to another's; but
//! those for gateways end here.
//!
//! Invariants: memory is bounded by the configuration, whatever comes; a frame from the path that was taken
//! comes out once, unless it is a duplicate of one that still waits.

use crate::config::Config;
use crate::counters::{Counters, add_sent};
use crate::flows::{Candidates, FLOW_RUN_PACKETS, Flows};
use crate::frame::{FlowKey, Layout};
use crate::grants::Grants;
use crate::incoming::{Incoming, Tools, add};
use crate::outgoing::{Outgoing, Workshop};
use crate::round_trip::{Expected, RoundTrips};
use crate::template::Template;
use crate::watch::{GATEWAYS, Watches};
use lacuna_lowar::{
    AutoConfig, DecoderConfig, DecoderCounters, EncoderCounters, HOLD_NS_MAX_DEFAULT, Shared,
    StrengthError,
};
use lacuna_wire::rc::{
    BlockHeader, Nak, Operation, REPAIR_OPCODE, RcHeader, RepairHeader, Syndrome,
};
use std::collections::BTreeSet;

/// Packets that have to continue before a repair makes a decoder: fewer than for an encoder, as the path
/// loses some.
const DECODER_RUN_PACKETS: u8 = 2;
/// A gap stays open for this part of the round trip at most, as at an end host.
const HOLDS_PER_RTT: u64 = 4;
/// A measured round trip may be that of a path that hardly is one.
const HOLD_NS_MIN: u64 = 200_000;

/// See the module's text.
#[derive(Debug)]
pub struct Gateway {
    config: Config,
    outgoing: Flows<Outgoing>,
    outgoing_candidates: Candidates,
    incoming: Flows<Incoming>,
    incoming_candidates: Candidates,
    timers: BTreeSet<(u64, u32)>,
    trips: RoundTrips,
    /// Both are there if strengths are chosen.
    watches: Option<Watches>,
    grants: Option<Grants>,
    shared: Shared,
    workshop: Workshop,
    counters: Counters,
    encoded: EncoderCounters,
    decoded: DecoderCounters,
}

impl Gateway {
    /// A gateway that has seen nothing yet.
    ///
    /// # Errors
    /// When no block can have the strength.
    pub fn new(mut config: Config) -> Result<Self, StrengthError> {
        // A strength is for all flows of a pair of hosts, with long messages and short ones.
        config.caps_short_blocks |= config.auto.is_some();
        let auto = config.auto.map(|auto| AutoConfig { caps_short_blocks: true, ..auto });
        // So that every flow can be protected later.
        Outgoing::new(config.strength, config.caps_short_blocks)?;
        Ok(Self {
            config,
            outgoing: Flows::new(config.flows_max),
            outgoing_candidates: Candidates::new(config.seed),
            incoming: Flows::new(config.flows_max),
            incoming_candidates: Candidates::new(config.seed),
            timers: BTreeSet::new(),
            trips: RoundTrips::new(config.seed),
            watches: auto.map(|auto| Watches::new(auto, config.flows_max)),
            grants: auto.map(|auto| Grants::new(auto, config.strength, config.flows_max)),
            shared: Shared::new(config.shared),
            workshop: Workshop::new(config.frame_bytes_max, config.seed as u16),
            counters: Counters::default(),
            encoded: EncoderCounters::default(),
            decoded: DecoderCounters::default(),
        })
    }

    /// A frame came from the local network. `out` gets the frames for the path.
    pub fn on_local(&mut self, now_ns: u64, frame: &[u8], out: &mut dyn FnMut(&[u8])) {
        self.counters.local_frames += 1;
        let Some(layout) = Layout::of(frame) else {
            self.counters.other_frames += 1;
            return out(frame);
        };
        let packet = layout.packet(frame);
        if packet[0] == REPAIR_OPCODE {
            for is_answer in [false, true] {
                if let Some(index) = self.outgoing.find(&layout.key(frame, is_answer))
                    && let Some(flow) = self.outgoing.state_mut(index)
                {
                    flow.leave_to_host(&mut self.shared.encode);
                }
            }
            return out(frame);
        }
        let Ok((header, _)) = RcHeader::parse(packet, 0) else {
            self.counters.other_frames += 1;
            return out(frame);
        };
        let key = layout.key(frame, !header.opcode.is_request());
        if self.config.round_trip_ns.is_none()
            && let Some((psn, expected)) = question_of(&header)
        {
            self.trips.on_question(now_ns, &key, psn, expected);
        }
        if let Some(watches) = &mut self.watches
            && let Some(request) = watches.poll_request(&key)
            && let Some(made) = self.workshop.build(&Template::of(frame, &layout), &request)
        {
            out(made);
        }
        if !is_data(&header) || self.config.strength.is_none() && self.grants.is_none() {
            return out(frame);
        }
        let index = match self.outgoing.find(&key) {
            Some(index) => index,
            None => {
                if self.outgoing_candidates.on_packet(&key, header.psn) < FLOW_RUN_PACKETS
                    || !layout.is_intact(frame)
                {
                    return out(frame);
                }
                match self.add_outgoing(key) {
                    Some(index) => index,
                    None => return out(frame),
                }
            }
        };
        let Some(flow) = self.outgoing.state_mut(index) else { return out(frame) };
        if let Some(grants) = &mut self.grants
            && flow.version != grants.version(now_ns)
        {
            flow.set_strength(&mut self.shared.encode, grants.strength_of(&key));
            flow.version = grants.version(now_ns);
        }
        if !flow.is_protected() {
            return out(frame);
        }
        if !layout.is_intact(frame) {
            self.counters.bad_icrc += 1;
            return out(frame);
        }
        self.counters.packets_coded += 1;
        let at = (frame, &layout);
        flow.on_frame(&mut self.shared.encode, &mut self.workshop, at, out);
    }

    /// A frame came from the path. `out` gets the frames for the local network.
    pub fn on_remote(&mut self, now_ns: u64, frame: &[u8], out: &mut dyn FnMut(&[u8])) {
        self.counters.remote_frames += 1;
        let Some(layout) = Layout::of(frame) else {
            self.counters.other_frames += 1;
            return out(frame);
        };
        let packet = layout.packet(frame);
        if packet[0] == REPAIR_OPCODE {
            return self.on_repair(now_ns, frame, &layout, out);
        }
        let Ok((header, _)) = RcHeader::parse(packet, 0) else {
            self.counters.other_frames += 1;
            return out(frame);
        };
        let key = layout.key(frame, !header.opcode.is_request());
        let is_data = is_data(&header);
        if self.config.round_trip_ns.is_none()
            && let Some(is) = answer_of(&header)
        {
            self.trips.on_answer(now_ns, &key, header.psn, is);
        }
        let found = self.incoming.find(&key);
        let mut has_shown_itself = is_data && found.is_some();
        if is_data && found.is_none() {
            let run = self.incoming_candidates.on_packet(&key, header.psn);
            has_shown_itself = run >= FLOW_RUN_PACKETS;
        }
        let watched = match &mut self.watches {
            Some(watches) if has_number(&header) => watches.find(now_ns, &key, has_shown_itself),
            _ => None,
        };
        if found.is_none() && watched.is_none() {
            return out(frame);
        }
        if !layout.is_intact(frame) {
            self.counters.bad_icrc += 1;
            return out(frame);
        }
        self.watch(now_ns, watched, found, &key, packet);
        let Some(index) = found else { return out(frame) };
        self.with_incoming(now_ns, index, |flow, tools| flow.on_frame(tools, frame, &layout, out));
    }

    fn on_repair(
        &mut self,
        now_ns: u64,
        frame: &[u8],
        layout: &Layout,
        out: &mut dyn FnMut(&[u8]),
    ) {
        let packet = layout.packet(frame);
        let read = RepairHeader::parse(packet, 0);
        let is_answer = match read {
            Ok((_, RepairHeader::Repair { block: BlockHeader { class, .. }, .. }, _))
            | Ok((_, RepairHeader::Announce { class, .. }, _)) => class.is_answer(),
            Ok((_, RepairHeader::Request { .. }, _)) | Err(_) => false,
        };
        let key = layout.key(frame, is_answer);
        if key.queue_pair == GATEWAYS {
            return match (layout.is_intact(frame), read) {
                (true, Ok((_, RepairHeader::Request { strength }, _))) => {
                    self.counters.requests_received += 1;
                    if let Some(grants) = &mut self.grants {
                        grants.on_request(now_ns, &key, strength);
                    }
                }
                (true, _) => self.counters.repairs_without_flow += 1,
                (false, _) => self.counters.bad_icrc += 1,
            };
        }
        let found = self.incoming.find(&key);
        if !layout.is_intact(frame) {
            // Of whom it is, is not known: a flow with state has its repairs from a gateway.
            return match found {
                Some(_) => self.counters.bad_icrc += 1,
                None => out(frame),
            };
        }
        let (header, sum) = match read {
            Ok((_, RepairHeader::Request { .. }, _)) | Err(_) => return out(frame),
            Ok((_, header, sum)) => (header, sum),
        };
        let index = match found {
            Some(index) => index,
            None if self.incoming_candidates.run_of(&key) >= DECODER_RUN_PACKETS => {
                let template = Template::of(frame, layout);
                self.add_incoming(now_ns, key, template, out)
            }
            None => {
                self.counters.repairs_without_flow += 1;
                return;
            }
        };
        let watched = self.watches.as_mut().and_then(|watches| watches.find_followed(&key));
        self.watch(now_ns, watched, Some(index), &key, packet);
        let hold_ns_max = self.hold_ns_max(&key);
        self.with_incoming(now_ns, index, |flow, tools| {
            flow.set_hold_ns_max(hold_ns_max);
            flow.on_repair(tools, &header, sum, out);
        });
    }

    /// Shows a packet to the choice of its pair of addresses, which is at `watched`.
    fn watch(
        &mut self,
        now_ns: u64,
        watched: Option<u32>,
        flow: Option<u32>,
        key: &FlowKey,
        packet: &[u8],
    ) {
        let (Some(watches), Some(watched)) = (&mut self.watches, watched) else { return };
        let round_trip_ns = self.config.round_trip_ns.or_else(|| self.trips.of_incoming(key));
        let flow = flow.and_then(|index| self.incoming.state_mut(index));
        let late_ns = flow.map_or(0, |flow| flow.reordering_window_ns());
        watches.on_packet(now_ns, watched, packet, round_trip_ns, late_ns);
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.first().map(|(deadline_ns, _)| *deadline_ns)
    }

    /// Gives up gaps whose time is over. `out` gets frames for the local network.
    pub fn on_timeout(&mut self, now_ns: u64, out: &mut dyn FnMut(&[u8])) {
        // Each flow once, so that it ends.
        let due: Vec<u32> = {
            let due = self.timers.iter().take_while(|(deadline_ns, _)| *deadline_ns <= now_ns);
            due.map(|(_, index)| *index).collect()
        };
        for index in due {
            self.with_incoming(now_ns, index, |flow, tools| flow.on_timeout(tools, out));
        }
    }

    /// Hands out every frame that waits, for the local network: the gateway ends.
    pub fn flush(&mut self, now_ns: u64, out: &mut dyn FnMut(&[u8])) {
        let incoming = std::mem::replace(&mut self.incoming, Flows::new(self.config.flows_max));
        self.timers.clear();
        for flow in incoming.into_states() {
            let tools = Tools { now_ns, shared: &mut self.shared, workshop: &mut self.workshop };
            add(&mut self.decoded, &flow.release(tools, out));
        }
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut received = self.decoded;
        self.incoming.states().for_each(|flow| add(&mut received, &flow.counters()));
        let mut sent = self.encoded;
        self.outgoing.states().for_each(|flow| add_sent(&mut sent, &flow.counters()));
        Counters {
            frames_too_long: self.workshop.too_long,
            flows: (self.outgoing.len() as u64, self.incoming.len() as u64),
            repairs_sent: sent.repairs_sent,
            repair_bytes: sent.repair_bytes,
            announcements_sent: sent.announcements_sent,
            restarts: sent.restarts,
            received,
            requests_sent: self.watches.as_ref().map_or(0, Watches::requests_sent),
            requests_granted: self.grants.as_ref().map_or(0, Grants::requests_granted),
            auto: self.watches.as_ref().map(Watches::counters).unwrap_or_default(),
            chosen: self.watches.as_ref().and_then(Watches::reason),
            round_trip_ns: self.config.round_trip_ns.unwrap_or(self.trips.last_ns()),
            ..self.counters
        }
    }

    /// Bytes of memory that it has allocated.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let Shared { encode, decode, ring, .. } = &self.shared;
        let shared = encode.memory_bytes().0 + decode.memory_bytes().0 + ring.memory_bytes().0;
        let outgoing = self.outgoing.states().map(Outgoing::memory_bytes).sum::<usize>();
        let incoming = self.incoming.states().map(Incoming::memory_bytes).sum::<usize>();
        let tables = self.outgoing.memory_bytes()
            + self.incoming.memory_bytes()
            + self.outgoing_candidates.memory_bytes()
            + self.incoming_candidates.memory_bytes()
            + self.trips.memory_bytes()
            + self.watches.as_ref().map_or(0, Watches::memory_bytes)
            + self.grants.as_ref().map_or(0, Grants::memory_bytes);
        shared + outgoing + incoming + tables
    }

    fn hold_ns_max(&self, key: &FlowKey) -> u64 {
        let round_trip_ns = self.config.round_trip_ns.or_else(|| self.trips.of_incoming(key));
        round_trip_ns.map_or(HOLD_NS_MAX_DEFAULT, |ns| (ns / HOLDS_PER_RTT).max(HOLD_NS_MIN))
    }

    fn add_outgoing(&mut self, key: FlowKey) -> Option<u32> {
        let flow = Outgoing::new(self.config.strength, self.config.caps_short_blocks).ok()?;
        let (index, gone) = self.outgoing.insert(key, flow);
        if let Some(gone) = gone {
            self.counters.flows_evicted += 1;
            add_sent(&mut self.encoded, &gone.release(&mut self.shared.encode));
        }
        Some(index)
    }

    fn add_incoming(
        &mut self,
        now_ns: u64,
        key: FlowKey,
        template: Template,
        out: &mut dyn FnMut(&[u8]),
    ) -> u32 {
        let config = DecoderConfig {
            destination: key.destination_queue_pair(),
            hold_ns_max: self.hold_ns_max(&key),
            goes_back: true,
        };
        let (index, gone) = self.incoming.insert(key, Incoming::new(config, template));
        if let Some(gone) = gone {
            self.counters.flows_evicted += 1;
            if let Some(deadline_ns) = gone.deadline_ns {
                self.timers.remove(&(deadline_ns, index));
            }
            let tools = Tools { now_ns, shared: &mut self.shared, workshop: &mut self.workshop };
            add(&mut self.decoded, &gone.release(tools, out));
        }
        index
    }

    /// Lets a flow do something, and notes its timeout.
    fn with_incoming(
        &mut self,
        now_ns: u64,
        index: u32,
        act: impl FnOnce(&mut Incoming, Tools<'_>),
    ) {
        let Some(flow) = self.incoming.state_mut(index) else { return };
        act(flow, Tools { now_ns, shared: &mut self.shared, workshop: &mut self.workshop });
        let deadline_ns = flow.poll_timeout();
        if deadline_ns != flow.deadline_ns {
            if let Some(old_ns) = flow.deadline_ns {
                self.timers.remove(&(old_ns, index));
            }
            self.timers.extend(deadline_ns.map(|ns| (ns, index)));
            flow.deadline_ns = deadline_ns;
        }
    }
}

/// Whether a packet is coded.
fn is_data(header: &RcHeader) -> bool {
    use Operation::{ReadResponse, Send, Write};
    matches!(header.opcode.operation(), Send | Write | ReadResponse)
}

/// Whether a packet takes a number of its flow.
fn has_number(header: &RcHeader) -> bool {
    use Operation::{Acknowledge, AtomicAcknowledge};
    !matches!(header.opcode.operation(), Acknowledge | AtomicAcknowledge)
}

/// What answers a packet that leaves, and with which number.
fn question_of(header: &RcHeader) -> Option<(u32, Expected)> {
    let expected = match header.opcode.operation() {
        Operation::ReadRequest => Expected::Data,
        Operation::Acknowledge => {
            let is_nak = matches!(header.fields.aeth()?.syndrome, Syndrome::Nak(Nak::PsnSequence));
            if is_nak { Expected::Data } else { return None }
        }
        _ if header.asks_ack => Expected::Acknowledgement,
        _ => return None,
    };
    Some((header.psn, expected))
}

/// What a packet that comes may answer.
fn answer_of(header: &RcHeader) -> Option<Expected> {
    match header.opcode.operation() {
        Operation::Acknowledge => Some(Expected::Acknowledgement),
        _ => is_data(header).then_some(Expected::Data),
    }
}
