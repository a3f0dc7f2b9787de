//! The shim of one queue pair: encoders for the packets that leave, decoders for those that come.
//!
//! In each direction pass two streams that are numbered apart: requests (SEND, WRITE, requests of READs) by
//! their sender, answers (to READs, acknowledgements) by the requests that they are for. So each stream has
//! an encoder and a decoder of its own. Those for answers are made when the first READ is answered. A
//! connection without READs has none, and its acknowledgements pass by.
//!
//! LoWAR IV-C, the negotiation: a receiver may ask for another strength as losses grow or ease, with a
//! packet that is a repair header alone; the sender announces what it does from then on. Which strength to
//! ask for is the caller's decision, or that of `auto`, if it is on; a request is granted if the caller has
//! allowed it, up to a strength that the caller sets.

use crate::auto::{Auto, AutoConfig, AutoCounters};
use crate::decoder::{Decoder, DecoderConfig, DecoderCounters};
use crate::encoder::{Encoder, EncoderCounters};
use crate::packet::{Packet, class_of};
use crate::shared::Shared;
use crate::strength::StrengthError;
use crate::upper::{How, Upper};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{
    MessageClass, Opcode, Operation, REPAIR_HEADER_BYTES, REPAIR_OPCODE, RepairHeader, Strength,
};

/// What a packet that leaves is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Leaving {
    /// An announcement, before the packet.
    Announcement,
    /// The packet itself, as it was given.
    Data,
    /// A repair, behind it.
    Repair,
}

/// Settings of a shim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShimConfig {
    /// Of the packets that come.
    pub decoder: DecoderConfig,
    /// How the packets that leave are protected at first.
    pub strength: Option<Strength>,
    /// Whether short blocks have only their share of repairs.
    pub caps_short_blocks: bool,
    /// Most overhead that a peer may ask for, in repairs for a hundred packets; zero grants no request.
    pub requests_percent_max: u16,
    /// Chooses how the packets that come are protected, and asks the peer for it. See
    /// [`poll_request`](Shim::poll_request).
    pub auto: Option<AutoConfig>,
}

impl ShimConfig {
    /// A shim for packets to this queue pair that protects nothing at first and grants no request.
    #[must_use]
    pub fn new(destination: Qpn) -> Self {
        Self {
            decoder: DecoderConfig::new(destination),
            strength: None,
            caps_short_blocks: false,
            requests_percent_max: 0,
            auto: None,
        }
    }
}

/// What a shim did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Of the packets that leave.
    pub sent: EncoderCounters,
    /// Of the packets that come.
    pub received: DecoderCounters,
    /// Strengths that the peer asked for.
    pub requests_received: u64,
    /// Those of them that were granted.
    pub requests_granted: u64,
    /// Strengths that the peer was asked for.
    pub requests_sent: u64,
    /// Repair packets that could not be read.
    pub repairs_malformed: u64,
    /// Of the choice of a strength.
    pub auto: AutoCounters,
}

impl Counters {
    /// These and those of another shim together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            sent: self.sent.with(&other.sent),
            received: self.received.with(&other.received),
            requests_received: self.requests_received + other.requests_received,
            requests_granted: self.requests_granted + other.requests_granted,
            requests_sent: self.requests_sent + other.requests_sent,
            repairs_malformed: self.repairs_malformed + other.repairs_malformed,
            auto: AutoCounters {
                choices: self.auto.choices + other.auto.choices,
                path_changes: self.auto.path_changes + other.auto.path_changes,
                refusals: self.auto.refusals + other.auto.refusals,
                outages: self.auto.outages + other.auto.outages,
            },
        }
    }
}

/// Bytes of memory: the rows of the paper's table I.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// State of the flows.
    pub state_bytes: usize,
    /// Coding units of encoders: allocated, and the most.
    pub encode_bytes: (usize, usize),
    /// Coding units of decoders: allocated, and the most.
    pub decode_bytes: (usize, usize),
    /// The ring: allocated, and the most.
    pub ring_bytes: (usize, usize),
}

impl Memory {
    /// That of a host with these shims.
    #[must_use]
    pub fn of<'s>(shared: &Shared, shims: impl IntoIterator<Item = &'s Shim>) -> Self {
        Self {
            state_bytes: shims.into_iter().map(Shim::memory_bytes).sum(),
            encode_bytes: shared.encode.memory_bytes(),
            decode_bytes: shared.decode.memory_bytes(),
            ring_bytes: shared.ring.memory_bytes(),
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Shim {
    requests: Coders,
    answers: Option<Box<Coders>>,
    decoder_config: DecoderConfig,
    caps_short_blocks: bool,
    auto: Option<Box<Auto>>,
    requests_percent_max: u16,
    requests_received: u64,
    requests_granted: u64,
    requests_sent: u64,
    repairs_malformed: u64,
}

/// Of one stream in both directions: what leaves and what comes.
#[derive(Debug)]
struct Coders {
    encoder: Encoder,
    decoder: Decoder,
}

impl Coders {
    fn memory_bytes(&self) -> usize {
        self.encoder.memory_bytes() + self.decoder.memory_bytes()
    }

    fn release(mut self, shared: &mut Shared) {
        self.encoder.release(&mut shared.encode);
        self.decoder.release(shared);
    }
}

impl Shim {
    /// A shim for a queue pair.
    ///
    /// # Errors
    /// When no block can have the strength.
    pub fn new(config: ShimConfig) -> Result<Self, StrengthError> {
        let mut encoder = Encoder::new();
        encoder.set_strength(config.strength)?;
        encoder.set_caps_short_blocks(config.caps_short_blocks);
        Ok(Self {
            requests: Coders { encoder, decoder: Decoder::new(config.decoder) },
            answers: None,
            decoder_config: config.decoder,
            caps_short_blocks: config.caps_short_blocks,
            auto: config.auto.map(|config| Box::new(Auto::new(config))),
            requests_percent_max: config.requests_percent_max,
            requests_received: 0,
            requests_granted: 0,
            requests_sent: 0,
            repairs_malformed: 0,
        })
    }

    /// Those of the answers, made if they are not there.
    fn answers(&mut self) -> &mut Coders {
        self.answers.get_or_insert_with(|| {
            let mut encoder = Encoder::new();
            // The same strength was possible for requests.
            let _ = encoder.set_strength(self.requests.encoder.next_strength());
            encoder.set_caps_short_blocks(self.caps_short_blocks);
            Box::new(Coders { encoder, decoder: Decoder::new(self.decoder_config) })
        })
    }

    fn coders(&mut self, class: MessageClass) -> &mut Coders {
        if class.is_answer() { self.answers() } else { &mut self.requests }
    }

    /// Those of a packet that leaves, if it is data.
    fn coders_of(&mut self, packet: &[u8]) -> Option<&mut Coders> {
        class_of(Opcode::of(*packet.first()?)?).map(|class| self.coders(class))
    }

    /// Whether an announcement may be due before the next packet of a request, or of an answer to a READ.
    #[must_use]
    pub fn announces(&self, is_answer: bool) -> bool {
        match (&self.answers, is_answer) {
            (Some(answers), true) => answers.encoder.announces(),
            // Those that are made get the strength of the requests.
            (None, true) => self.strength().is_some(),
            (_, false) => self.requests.encoder.announces(),
        }
    }

    /// As [`on_send`](Self::on_send) of a packet that was sent already, while the shim does not
    /// [announce](Self::announces): `repair` gets what follows it.
    pub fn on_sent(&mut self, shared: &mut Shared, packet: &[u8], repair: &mut dyn FnMut(&[u8])) {
        if let Some(coders) = self.coders_of(packet) {
            coders.encoder.on_packet(&mut shared.encode, packet, repair);
        }
    }

    /// A packet leaves, from the BTH to the pad. `send` gets everything that is to be sent, in order, the
    /// packet itself included.
    pub fn on_send(
        &mut self,
        shared: &mut Shared,
        packet: &[u8],
        send: &mut dyn FnMut(Leaving, &[u8]),
    ) {
        let announcement =
            self.coders_of(packet).and_then(|coders| coders.encoder.announcement(packet));
        if let Some(announcement) = announcement {
            send(Leaving::Announcement, &announcement);
        }
        send(Leaving::Data, packet);
        self.on_sent(shared, packet, &mut |bytes| send(Leaving::Repair, bytes));
    }

    /// A packet came, from the BTH to the pad: of the connection, or the peer's shim.
    pub fn on_receive(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        packet: &[u8],
        up: &mut dyn Upper,
    ) {
        if packet.first() == Some(&REPAIR_OPCODE) {
            return match RepairHeader::parse(packet, 0) {
                Ok((_, header, sum)) => self.on_repair_header(now_ns, shared, &header, sum, up),
                Err(_) => self.repairs_malformed += 1,
            };
        }
        if let (Some(auto), Some(packet)) = (&mut self.auto, Packet::parse(packet)) {
            auto.on_packet(now_ns, &packet);
        }
        let opcode = packet.first().and_then(|byte| Opcode::of(*byte));
        let decoder = match opcode.map(Opcode::operation) {
            Some(Operation::ReadResponse) => &mut self.answers().decoder,
            Some(Operation::Acknowledge | Operation::AtomicAcknowledge) => {
                match &mut self.answers {
                    Some(answers) => &mut answers.decoder,
                    None => return up.take(packet, How::Passed),
                }
            }
            Some(_) => &mut self.requests.decoder,
            None => return up.take(packet, How::Passed),
        };
        decoder.on_packet(now_ns, shared, packet, up);
    }

    fn on_repair_header(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        header: &RepairHeader,
        sum: &[u8],
        up: &mut dyn Upper,
    ) {
        match header {
            RepairHeader::Repair { block, index } => {
                if let Some(auto) = &mut self.auto {
                    auto.on_repair(now_ns, block, *index);
                }
                let decoder = &mut self.coders(block.class).decoder;
                decoder.on_repair(now_ns, shared, block, *index, sum, up);
            }
            RepairHeader::Announce { first_psn, class, strength } => {
                if let Some(auto) = &mut self.auto {
                    auto.on_strength(*strength);
                }
                self.coders(*class).decoder.on_announce(*first_psn, *strength);
            }
            RepairHeader::Request { strength } => self.on_request(*strength),
        }
    }

    fn on_request(&mut self, strength: Option<Strength>) {
        self.requests_received += 1;
        let is_allowed = self.requests_percent_max > 0
            && strength.is_none_or(|strength| {
                let most = u32::from(self.requests_percent_max) * u32::from(strength.block_packets);
                100 * u32::from(strength.repairs) <= most
            });
        if is_allowed && self.set_strength(strength).is_ok() {
            self.requests_granted += 1;
        }
    }

    /// Writes a packet, without trailer, that asks the peer to protect its packets so; `destination` is the
    /// peer's queue pair.
    pub fn request(
        &mut self,
        destination: Qpn,
        strength: Option<Strength>,
    ) -> [u8; REPAIR_HEADER_BYTES] {
        self.requests_sent += 1;
        let mut packet = [0; REPAIR_HEADER_BYTES];
        RepairHeader::Request { strength }.emit(destination, &mut packet);
        packet
    }

    /// The packet, without trailer, that is to be sent to the peer's queue pair now, if one is: it asks for the
    /// strength that `auto` has chosen. To be called when packets have been taken, with the path's round trip,
    /// before which nothing is asked for.
    pub fn poll_request(
        &mut self,
        now_ns: u64,
        rtt_ns: u64,
        destination: Qpn,
    ) -> Option<[u8; REPAIR_HEADER_BYTES]> {
        let late_ns = self.reordering_window_ns();
        let strength = self.auto.as_mut()?.poll(now_ns, rtt_ns, late_ns)?;
        Some(self.request(destination, strength))
    }

    /// The choice of a strength for the packets that come, if it is on.
    #[must_use]
    pub fn auto(&self) -> Option<&Auto> {
        self.auto.as_deref()
    }

    /// Protects the packets that leave so from the next block on.
    ///
    /// # Errors
    /// When no block can have this strength; nothing changes then.
    pub fn set_strength(&mut self, strength: Option<Strength>) -> Result<(), StrengthError> {
        self.requests.encoder.set_strength(strength)?;
        match &mut self.answers {
            Some(answers) => answers.encoder.set_strength(strength),
            None => Ok(()),
        }
    }

    /// How the packets that leave are protected from the next block on.
    #[must_use]
    pub fn strength(&self) -> Option<Strength> {
        self.requests.encoder.next_strength()
    }

    /// Sets the longest time that a gap stays open: a quarter of the round trip, once it is known.
    pub fn set_hold_ns_max(&mut self, hold_ns_max: u64) {
        self.decoder_config.hold_ns_max = hold_ns_max;
        self.decoders_mut().for_each(|decoder| decoder.set_hold_ns_max(hold_ns_max));
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.decoders().filter_map(Decoder::poll_timeout).min()
    }

    /// Gives up gaps whose time is over.
    pub fn on_timeout(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        self.decoders_mut().for_each(|decoder| decoder.on_timeout(now_ns, shared, up));
    }

    /// How the peer protects the requests that come, if that is known.
    #[must_use]
    pub fn peer_strength(&self) -> Option<Strength> {
        self.requests.decoder.strength()
    }

    /// How late packets have been lately, of the stream where that is most.
    #[must_use]
    pub fn reordering_window_ns(&self) -> u64 {
        self.decoders().map(Decoder::reordering_window_ns).max().unwrap_or(0)
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let Coders { encoder, decoder } = &self.requests;
        let (mut sent, mut received) = (encoder.counters(), decoder.counters());
        if let Some(answers) = &self.answers {
            sent = sent.with(&answers.encoder.counters());
            received = received.with(&answers.decoder.counters());
        }
        Counters {
            sent,
            received,
            requests_received: self.requests_received,
            requests_granted: self.requests_granted,
            requests_sent: self.requests_sent,
            repairs_malformed: self.repairs_malformed,
            auto: self.auto().map(Auto::counters).unwrap_or_default(),
        }
    }

    /// Bytes of memory, without units and slots of the ring.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let auto = self.auto().map_or(0, Auto::memory_bytes);
        let answers = self.answers.as_ref().map_or(0, |answers| answers.memory_bytes());
        size_of::<Self>() - size_of::<Coders>() + self.requests.memory_bytes() + answers + auto
    }

    /// Hands up everything that waits, as it is.
    pub fn flush(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        self.decoders_mut().for_each(|decoder| decoder.flush(now_ns, shared, up));
    }

    /// Gives units and slots back; what waits is lost. See [`flush`](Self::flush).
    pub fn release(self, shared: &mut Shared) {
        self.requests.release(shared);
        if let Some(answers) = self.answers {
            answers.release(shared);
        }
    }

    fn decoders(&self) -> impl Iterator<Item = &Decoder> {
        std::iter::once(&self.requests.decoder)
            .chain(self.answers.as_ref().map(|answers| &answers.decoder))
    }

    fn decoders_mut(&mut self) -> impl Iterator<Item = &mut Decoder> {
        std::iter::once(&mut self.requests.decoder)
            .chain(self.answers.as_mut().map(|answers| &mut answers.decoder))
    }
}
