//! What one worker alone has of a queue pair: the responder, and below it a repair shim, if there is one.
//!
//! LoWAR (`lacuna_lowar`) puts the shim between the reliable connection and the network, and neither notices.
//! Here is the seam: packets that came go through the decoder and then to the responder or, as answers, to
//! an [`AnswerSink`]; packets that leave go through the encoder, which adds repairs behind them. A payload
//! behind a gap is written to its place at once where that is known (the paper's future work: reordering in
//! place), and only its headers wait.
//!
//! A queue pair that was asked for nothing makes a shim when the peer's first repair or announcement comes,
//! so a sender may protect its packets without an agreement.
//!
//! Invariants: data packets are the same bytes with a shim and without; without one, a packet costs one
//! comparison more.

use crate::config::{RcConfig, Repair};
use crate::responder::{Repairs, Responder, Taken};
use crate::run::Run;
use lacuna_lowar::{
    AutoConfig, How, Leaving, Shared, Shim, ShimConfig, StrengthError, Upper, bundle_packets,
};
use lacuna_wire::rc::{
    NOTIFICATION_OPCODE, REPAIR_HEADER_BYTES, REPAIR_OPCODE, RcHeader, Strength, parse_notification,
};
use lacuna_wire::{PacketError, Qpn, Seal};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A gap stays open for this part of the round trip at most (LoWAR leaves the time open): far less than what
/// going back costs, and short enough that a READ that is asked again finds no old gap.
const HOLDS_PER_RTT: u64 = 4;

/// What is done about losses below a reliable connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShimSettings {
    /// Nothing: repairs of the peer are dropped.
    Off,
    /// Repairs of the peer are used, and none are sent.
    #[default]
    Accept,
    /// As many repairs are sent as the losses call for: each end asks the other for what it needs, and grants
    /// what it is asked for.
    Auto,
    /// Repairs are sent, too.
    Protect {
        /// How many.
        strength: Strength,
        /// Whether short messages have only their share of repairs.
        caps_short_blocks: bool,
    },
}

/// Settings that cannot be read from their text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no repair shim: off, lowar:auto, lowar:R:C or lowar:mds:R:C, such as lowar:32:1"
)]
pub struct ParseShimError {
    /// What was given.
    pub text: String,
}

impl fmt::Display for ShimSettings {
    /// `off`, `accept`, `lowar:auto`, or `lowar:32:1`; the share of short messages is not in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Accept => f.write_str("accept"),
            Self::Auto => f.write_str("lowar:auto"),
            Self::Protect { strength, .. } => write!(f, "lowar:{strength}"),
        }
    }
}

impl FromStr for ShimSettings {
    type Err = ParseShimError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseShimError { text: text.to_owned() };
        match text {
            "off" => Ok(Self::Off),
            "accept" => Ok(Self::Accept),
            "lowar:auto" => Ok(Self::Auto),
            _ => {
                let strength = text.strip_prefix("lowar:").ok_or_else(error)?;
                let strength = strength.parse().map_err(|_| error())?;
                let settings = Self::Protect { strength, caps_short_blocks: false };
                settings.check().map_err(|_| error()).map(|()| settings)
            }
        }
    }
}

impl ShimSettings {
    /// Checks the strength.
    ///
    /// # Errors
    /// When no shim can have it.
    pub fn check(self) -> Result<(), StrengthError> {
        self.shim(ShimConfig::new(Qpn::from_bits(0))).map(drop)
    }

    /// The shim to begin with; `None` if there is none yet.
    fn shim(self, plain: ShimConfig) -> Result<Option<Box<Shim>>, StrengthError> {
        let config = match self {
            Self::Off | Self::Accept => return Ok(None),
            Self::Auto => {
                let auto = AutoConfig::default();
                let requests_percent_max = auto.percent_max;
                ShimConfig { auto: Some(auto), requests_percent_max, ..plain }
            }
            Self::Protect { strength, caps_short_blocks } => {
                ShimConfig { strength: Some(strength), caps_short_blocks, ..plain }
            }
        };
        Ok(Some(Box::new(Shim::new(config)?)))
    }
}

/// Takes the answers among the packets that came: the queue pair, under its lock.
pub trait AnswerSink {
    /// An answer, with its payload.
    fn on_answer(&mut self, header: &RcHeader, payload: &[u8]);
    /// See [`crate::QueuePair::place_answer_ahead`].
    fn place_answer_ahead(&mut self, header: &RcHeader, payload: &[u8]) -> bool;
    /// See [`crate::QueuePair::on_placed_answer`].
    fn on_placed_answer(&mut self, header: &RcHeader, payload_bytes: usize);
    /// The peer says that packets of this end met congestion.
    fn on_notification(&mut self);
    /// A request is taken next: the queue pair's lock must not be held, since keys are pinned.
    fn before_request(&mut self);
    /// A packet that is none of a reliable connection.
    fn on_rejected(&mut self, error: PacketError);
}

/// See the module's text.
#[derive(Debug)]
pub struct Lane {
    /// A shim that sends no repairs.
    plain: ShimConfig,
    responder: Responder,
    taken: Taken,
    shim: Option<Box<Shim>>,
    accepts_repairs: bool,
    rtt_ns: Option<u64>,
    /// Repairs that follow the packet that is made; empty between packets.
    waiting: Coded,
    /// Those of the run that is made.
    repairs: Repairs,
}

/// Packets of a run as bytes, with repairs among them.
#[derive(Debug, Default)]
pub struct Coded {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Coded {
    /// Packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A packet, trailer included.
    ///
    /// # Panics
    /// If there is no such packet.
    #[must_use]
    pub fn packet(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    fn with_capacity(packets: usize, packet_bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(packets * packet_bytes),
            ends: Vec::with_capacity(packets),
        }
    }

    /// Adds a packet that `emit` writes into at most `bytes_max` bytes; where it begins and ends, without
    /// trailer.
    fn emit(
        &mut self,
        bytes_max: usize,
        seal: Seal,
        emit: impl FnOnce(&mut [u8]) -> usize,
    ) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.resize(start + bytes_max + seal.bytes(), 0);
        let bytes = emit(&mut self.bytes[start..start + bytes_max]);
        self.bytes.truncate(start + bytes + seal.bytes());
        let (covered, trailer) = self.bytes[start..].split_at_mut(bytes);
        seal.emit_trailer_of(covered, trailer);
        self.ends.push(self.bytes.len() as u32);
        start..start + bytes
    }

    /// Moves all packets of another one here.
    fn append(&mut self, other: &mut Self) {
        let start = self.bytes.len() as u32;
        self.bytes.append(&mut other.bytes);
        self.ends.extend(other.ends.drain(..).map(|end| start + end));
    }

    fn push(&mut self, packet: &[u8], seal: Seal) {
        self.emit(packet.len(), seal, |out| {
            out.copy_from_slice(packet);
            packet.len()
        });
    }
}

impl Lane {
    /// The lane of a queue pair with this configuration ([`crate::QueuePair::accept`] gives the responder).
    ///
    /// # Errors
    /// When no shim can have the strength.
    pub fn new(
        config: &RcConfig,
        settings: ShimSettings,
        responder: Responder,
    ) -> Result<Self, StrengthError> {
        let mut plain = ShimConfig::new(config.number);
        plain.decoder.goes_back = config.repair == Repair::GoBackN;
        Ok(Self {
            plain,
            responder,
            taken: Taken::default(),
            shim: settings.shim(plain)?,
            accepts_repairs: settings != ShimSettings::Off,
            rtt_ns: None,
            waiting: Coded::default(),
            repairs: Repairs::default(),
        })
    }

    /// What the queue pair is to be told ([`crate::QueuePair::on_taken`]).
    pub fn taken(&mut self) -> &mut Taken {
        self.responder.conclude(&mut self.taken);
        if let Some(shim) = &self.shim {
            self.taken.shim = Some(shim.counters());
            self.taken.auto = shim.auto().and_then(|auto| auto.reason().copied());
        }
        &mut self.taken
    }

    /// The queue pair's round trip, once it is known: how long gaps may stay open.
    pub fn set_rtt_ns(&mut self, rtt_ns: u64) {
        if self.rtt_ns.replace(rtt_ns) != Some(rtt_ns)
            && let Some(shim) = &mut self.shim
        {
            shim.set_hold_ns_max(rtt_ns / HOLDS_PER_RTT);
        }
    }

    /// The queue pair is over ([`crate::QueuePair::take_stop`]).
    pub fn stop(&mut self) {
        self.responder.stop(&mut self.taken);
    }

    /// A router had marked packets that came now: "congestion experienced".
    pub fn on_marked(&mut self) {
        self.taken.is_marked = true;
    }

    /// The ICRC of a packet was checked but for its identification.
    pub fn on_half_checked(&mut self) {
        self.taken.half_checked += 1;
    }

    /// Takes a packet, from the BTH to the pad.
    pub fn receive(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        packet: &[u8],
        sink: &mut dyn AnswerSink,
    ) {
        if packet.first() == Some(&NOTIFICATION_OPCODE) {
            return match parse_notification(packet, 0) {
                Ok(_) => sink.on_notification(),
                Err(error) => sink.on_rejected(error),
            };
        }
        let is_repair = packet.first() == Some(&REPAIR_OPCODE);
        if is_repair && self.shim.is_none() && self.accepts_repairs {
            self.accept_repairs();
        }
        let mut above = Above { responder: &mut self.responder, taken: &mut self.taken, sink };
        match &mut self.shim {
            Some(shim) => shim.on_receive(now_ns, shared, packet, &mut above),
            None if is_repair => above.taken.refusals.stray += 1,
            None => above.take(packet, How::Passed),
        }
    }

    #[cold]
    fn accept_repairs(&mut self) {
        let mut shim = Shim::new(self.plain).ok().map(Box::new);
        if let (Some(shim), Some(rtt_ns)) = (&mut shim, self.rtt_ns) {
            shim.set_hold_ns_max(rtt_ns / HOLDS_PER_RTT);
        }
        self.shim = shim;
    }

    /// When [`Lane::on_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.shim.as_ref()?.poll_timeout()
    }

    /// Time has passed: a gap may be given up.
    pub fn on_timeout(&mut self, now_ns: u64, shared: &mut Shared, sink: &mut dyn AnswerSink) {
        let mut above = Above { responder: &mut self.responder, taken: &mut self.taken, sink };
        if let Some(shim) = &mut self.shim {
            shim.on_timeout(now_ns, shared, &mut above);
        }
    }

    /// A packet that asks the peer's queue pair for other repairs, if one is to be sent now.
    pub fn poll_request(&mut self, now_ns: u64, peer: Qpn, seal: Seal) -> Option<Coded> {
        let request = self.shim.as_mut()?.poll_request(now_ns, self.rtt_ns?, peer)?;
        let mut coded = Coded::default();
        coded.push(&request, seal);
        Some(coded)
    }

    /// Whether packets that leave must go through [`Lane::encode`].
    #[must_use]
    pub fn encodes(&self) -> bool {
        self.shim.as_ref().is_some_and(|shim| shim.strength().is_some())
    }

    /// Makes the packets of a run, with repairs, each ended by `seal`. The repairs of blocks that end within a
    /// bundle of packets leave together behind it ([`bundle_packets`]).
    pub fn encode(&mut self, shared: &mut Shared, run: &Run, seal: Seal) -> Coded {
        let packet_bytes = run.packet_bytes(0) + REPAIR_HEADER_BYTES + seal.bytes();
        let mut coded = Coded::with_capacity(run.len() + run.len() / 4 + 2, packet_bytes);
        let bundle_packets = bundle_packets(packet_bytes);
        let repairs = &mut self.repairs;
        let is_answer = run.is_answer();
        for index in 0..run.len() {
            let bytes_max = run.packet_bytes(index);
            let Some(shim) = &mut self.shim else {
                coded.emit(bytes_max, seal, |out| run.emit(index, out));
                continue;
            };
            if shim.announces(is_answer) {
                let mut packet = vec![0; bytes_max];
                let bytes = run.emit(index, &mut packet);
                shim.on_send(shared, &packet[..bytes], &mut |leaving, packet| match leaving {
                    Leaving::Data => coded.push(packet, seal),
                    Leaving::Announcement | Leaving::Repair => {
                        coded.push(packet, seal);
                        repairs.packets += 1;
                        repairs.bytes += (packet.len() + seal.bytes()) as u64;
                    }
                });
                continue;
            }
            let at = coded.emit(bytes_max, seal, |out| run.emit(index, out));
            let waiting = &mut self.waiting;
            shim.on_sent(shared, &coded.bytes[at], &mut |repair| waiting.push(repair, seal));
            if (index + 1) % bundle_packets == 0 || index + 1 == run.len() {
                repairs.packets += waiting.len() as u64;
                repairs.bytes += waiting.bytes.len() as u64;
                coded.append(waiting);
            }
        }
        if repairs.packets > 0 {
            let told = &mut self.taken.repairs;
            told.packets += repairs.packets;
            told.bytes += repairs.bytes;
            told.psn_end = run.request_end().or(told.psn_end);
            *repairs = Repairs::default();
        }
        coded
    }

    /// What the shim did, if there is one.
    #[must_use]
    pub fn shim(&self) -> Option<&Shim> {
        self.shim.as_deref()
    }

    /// Gives back what it has of the shared memory.
    pub fn release(self, shared: &mut Shared) {
        if let Some(shim) = self.shim {
            shim.release(shared);
        }
    }
}

/// The connection above the shim.
struct Above<'l> {
    responder: &'l mut Responder,
    taken: &'l mut Taken,
    sink: &'l mut dyn AnswerSink,
}

impl Upper for Above<'_> {
    fn take(&mut self, packet: &[u8], _how: How) {
        match RcHeader::parse(packet, 0) {
            Ok((header, payload)) if header.opcode.is_request() => {
                self.sink.before_request();
                self.responder.take(&header, payload, self.taken);
            }
            Ok((header, payload)) => self.sink.on_answer(&header, payload),
            Err(error) => self.sink.on_rejected(error),
        }
    }

    fn place_ahead(&mut self, packet: &[u8]) -> bool {
        let Ok((header, payload)) = RcHeader::parse(packet, 0) else { return false };
        if header.opcode.is_request() {
            self.sink.before_request();
            self.responder.place_ahead(&header, payload)
        } else {
            self.sink.place_answer_ahead(&header, payload)
        }
    }

    fn placed(&mut self, headers: &[u8], payload_bytes: usize) {
        let Ok(header) = RcHeader::parse_headers(headers) else { return };
        if header.opcode.is_request() {
            self.sink.before_request();
            self.responder.take_placed(&header, payload_bytes, self.taken);
        } else {
            self.sink.on_placed_answer(&header, payload_bytes);
        }
    }
}
