//! What the tests share: packets of random messages, a receiver that keeps what is handed up, and a
//! channel that loses, delays and duplicates.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use lacuna_link::SplitMix64;
use lacuna_lowar::{Decoder, DecoderConfig, Encoder, How, Shared, SharedConfig, Upper};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{
    Aeth, CodeKind, Fields, Opcode, Operation, Part, RcHeader, RepairHeader, Reth, Strength,
};
use std::collections::BTreeMap;

pub const QPN: u32 = 0x00_1234;
pub const HOLD_NS: u64 = 10_000_000;

pub fn xor(block_packets: u16, repairs: u16) -> Strength {
    Strength { block_packets, repairs, code: CodeKind::Xor }
}

pub fn mds(block_packets: u16, repairs: u16) -> Strength {
    Strength { block_packets, repairs, code: CodeKind::Mds }
}

/// A strength of any kind.
pub fn any_strength(random: &mut SplitMix64) -> Strength {
    let size = |random: &mut SplitMix64| match random.below(5) {
        0 => 1,
        1 => 256,
        2 => 1 + random.below(256) as u16,
        _ => 1 + random.below(40) as u16,
    };
    let (r, c) = (size(random), size(random));
    match random.below(3) {
        0 => mds(r.min(200), c.min(54)),
        _ => xor(r, c),
    }
}

/// Shared memory for small packets.
pub fn shared() -> Shared {
    Shared::new(SharedConfig { payload_bytes_max: 4096, ..SharedConfig::default() })
}

pub fn decoder() -> Decoder {
    Decoder::new(DecoderConfig { hold_ns_max: HOLD_NS, ..DecoderConfig::new(Qpn::from_bits(QPN)) })
}

/// Makes the packets of a flow.
pub struct Messages {
    pub random: SplitMix64,
    pub psn: u32,
    pub mtu: usize,
    /// Answers to READs, or SENDs and WRITEs.
    pub is_responder: bool,
    pub packets_max: u64,
}

impl Messages {
    pub fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mtu = 256 << random.below(5);
        let is_responder = random.below(3) == 0;
        // Some flows wrap.
        let psn = if random.below(2) == 0 { 0xff_ff80 } else { random.below(1 << 24) as u32 };
        Self { random, psn, mtu, is_responder, packets_max: 200 }
    }

    pub fn packet(&mut self, opcode: Opcode, payload: &[u8], length: u32) -> Vec<u8> {
        let random = &mut self.random;
        let fields = match opcode.operation() {
            Operation::Write if opcode.part().begins() => {
                let address = random.next_u64();
                let reth = Reth { address, key: random.next_u64() as u32, length };
                match opcode.has_immediate() {
                    true => Fields::RethImmediate(reth, random.next_u64() as u32),
                    false => Fields::Reth(reth),
                }
            }
            _ if opcode.has_immediate() => Fields::Immediate(random.next_u64() as u32),
            _ if matches!(opcode, Opcode::SendLastInvalidate | Opcode::SendOnlyInvalidate) => {
                Fields::Invalidate(random.next_u64() as u32)
            }
            Operation::ReadResponse if opcode.part() != Part::Middle => {
                Fields::Aeth(Aeth::ack(random.below(1 << 24) as u32))
            }
            _ => Fields::None,
        };
        let header = RcHeader {
            opcode,
            destination: Qpn::from_bits(QPN),
            psn: self.psn,
            asks_ack: opcode.part().ends(),
            is_solicited: opcode.part().ends() && random.below(4) == 0,
            fields,
        };
        self.psn = (self.psn + 1) & 0xff_ffff;
        let mut packet = vec![0; header.packet_bytes(payload.len())];
        header.emit(payload.len(), &mut packet);
        packet[header.header_bytes()..][..payload.len()].copy_from_slice(payload);
        packet
    }

    /// The packets of a message of so many.
    pub fn message_of(&mut self, packets: u64) -> Vec<Vec<u8>> {
        let random = &mut self.random;
        let operation = match (self.is_responder, random.below(2)) {
            (true, _) => Operation::ReadResponse,
            (false, 0) => Operation::Send,
            (false, _) => Operation::Write,
        };
        let has_immediate = !self.is_responder && random.below(3) == 0;
        let is_invalidate = operation == Operation::Send && random.below(5) == 0;
        let mtu = self.mtu;
        let last_bytes = match random.below(3) {
            0 => mtu,
            _ if packets == 1 => random.below(mtu as u64 + 1) as usize,
            _ => 1 + random.below(mtu as u64) as usize,
        };
        let length = (packets as usize - 1) * mtu + last_bytes;
        let bytes = match random.below(6) {
            // Zeros look like padding.
            0 => vec![0; length],
            _ => random.bytes(length),
        };
        (0..packets as usize)
            .map(|place| {
                let part = Part::of(place == 0, place as u64 + 1 == packets);
                let opcode = match (is_invalidate, part) {
                    (true, Part::Last) => Opcode::SendLastInvalidate,
                    (true, Part::Only) => Opcode::SendOnlyInvalidate,
                    _ => Opcode::of_part(operation, part, has_immediate).unwrap(),
                };
                let payload = &bytes[place * mtu..length.min((place + 1) * mtu)];
                self.packet(opcode, payload, length as u32)
            })
            .collect()
    }

    /// The packets of a message; now and then one that is not coded.
    pub fn message(&mut self) -> Vec<Vec<u8>> {
        match self.random.below(12) {
            0 if self.is_responder => {
                let mut ack = self.packet(Opcode::ReadResponseMiddle, &[], 0);
                self.psn = self.psn.wrapping_sub(1) & 0xff_ffff;
                let header = RcHeader {
                    opcode: Opcode::Acknowledge,
                    destination: Qpn::from_bits(QPN),
                    psn: self.psn,
                    asks_ack: false,
                    is_solicited: false,
                    fields: Fields::Aeth(Aeth::ack(5)),
                };
                ack.resize(header.packet_bytes(0), 0);
                header.emit(0, &mut ack);
                // The numbers of requests that were acknowledged with it.
                self.psn = (self.psn + 1 + self.random.below(5) as u32) & 0xff_ffff;
                vec![ack]
            }
            0 => {
                let length = self.random.below(5 * self.mtu as u64) as u32;
                let header = RcHeader {
                    opcode: Opcode::ReadRequest,
                    destination: Qpn::from_bits(QPN),
                    psn: self.psn,
                    asks_ack: false,
                    is_solicited: false,
                    fields: Fields::Reth(Reth { address: 7, key: 8, length }),
                };
                let mut packet = vec![0; header.packet_bytes(0)];
                header.emit(0, &mut packet);
                let numbers = length.div_ceil(self.mtu as u32).max(1);
                self.psn = (self.psn + numbers) & 0xff_ffff;
                vec![packet]
            }
            draw => {
                let most = if draw < 6 { 5 } else { self.packets_max };
                let packets = 1 + self.random.below(most);
                self.message_of(packets)
            }
        }
    }

    pub fn messages(&mut self, count: usize) -> Vec<Vec<u8>> {
        (0..count).flat_map(|_| self.message()).collect()
    }
}

/// A packet without the bits that a recovered one cannot have.
pub fn without_flags(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[1] &= 0x7f;
    packet[8] &= 0x7f;
    packet
}

/// Everything that was handed up, in order.
#[derive(Default)]
pub struct Receiver {
    pub packets: Vec<(Vec<u8>, How)>,
    /// Places packets ahead, of which this many in four.
    pub places_ahead: u64,
    pub seed: u64,
    /// Packets that were placed ahead, by their headers.
    pub ahead: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Receiver {
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        self.packets.iter().map(|(packet, _)| packet.clone()).collect()
    }

    pub fn count(&self, how: How) -> usize {
        self.packets.iter().filter(|(_, found)| *found == how).count()
    }
}

impl Upper for Receiver {
    fn take(&mut self, packet: &[u8], how: How) {
        self.packets.push((packet.to_vec(), how));
    }

    fn place_ahead(&mut self, packet: &[u8]) -> bool {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if self.seed >> 62 >= self.places_ahead {
            return false;
        }
        let (header, _) = RcHeader::parse(packet, 0).unwrap();
        self.ahead.insert(packet[..header.header_bytes()].to_vec(), packet.to_vec());
        true
    }

    fn placed(&mut self, headers: &[u8], payload_bytes: usize) {
        let packet = self.ahead.remove(headers).expect("it was placed ahead");
        let (_, payload) = RcHeader::parse(&packet, 0).unwrap();
        assert_eq!(payload.len(), payload_bytes);
        self.packets.push((packet, How::Held));
    }
}

/// What leaves an encoder for these packets, in order: data and repairs.
pub fn encode(encoder: &mut Encoder, shared: &mut Shared, packet: &[u8]) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    out.extend(encoder.announcement(packet).map(|announcement| announcement.to_vec()));
    out.push(packet.to_vec());
    encoder.on_packet(&mut shared.encode, packet, &mut |repair| out.push(repair.to_vec()));
    out
}

pub fn is_data(packet: &[u8]) -> bool {
    packet[0] != 0x1f
}

/// Gives a packet of the wire to a decoder.
pub fn deliver(
    decoder: &mut Decoder,
    shared: &mut Shared,
    now_ns: u64,
    packet: &[u8],
    up: &mut dyn Upper,
) {
    if is_data(packet) {
        return decoder.on_packet(now_ns, shared, packet, up);
    }
    match RepairHeader::parse(packet, 0) {
        Ok((_, RepairHeader::Repair { block, index }, sum)) => {
            decoder.on_repair(now_ns, shared, &block, index, sum, up);
        }
        Ok((_, RepairHeader::Announce { first_psn, strength, .. }, _)) => {
            decoder.on_announce(first_psn, strength);
        }
        _ => {}
    }
}

/// Calls timers that are due.
pub fn run_timers(decoder: &mut Decoder, shared: &mut Shared, now_ns: u64, up: &mut dyn Upper) {
    while let Some(at_ns) = decoder.poll_timeout().filter(|at_ns| *at_ns <= now_ns) {
        decoder.on_timeout(at_ns, shared, up);
    }
}
