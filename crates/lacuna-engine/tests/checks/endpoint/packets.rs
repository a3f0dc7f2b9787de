//! Data packets of the peer of `endpoint.rs`: for the posted receives, or for the regions, or nearly so.

use super::targets::Targets;
use super::{MTU, RKEY, SLOT_PACKETS, World};
use crate::checks::Choices;
use lacuna_engine::testing::data_packet;
use lacuna_wire::{DataHeader, ImmediateFields, Qpn, parse_data};

impl World {
    /// The number of a message with an open receive, or one near it.
    fn near_number(&self, choice: u8) -> u64 {
        let open = self.receives.iter().filter(|received| received.closed.is_none());
        let numbers: Vec<u64> =
            open.flat_map(|r| &r.posted.parts).map(|part| part.number()).collect();
        let base = match numbers[..] {
            // Of a one-sided queue pair, whose receives mostly end in order.
            [] if self.targets.is_some() => {
                let over: u64 = self.qp.stats().ends.receives.iter().sum();
                over + u64::from(choice & 3)
            }
            [] => 0,
            _ => numbers[usize::from(choice & 15) % numbers.len()],
        };
        let slots = u64::from(self.geometry.slots());
        match choice >> 4 {
            15 => base + slots,
            14 => base.saturating_sub(slots),
            13 => base + 1,
            12 => base.saturating_sub(1),
            _ => base,
        }
    }

    /// Data packets for the posted receives, or nearly so.
    pub(super) fn burst(&mut self, count: u8, choices: &mut Choices<'_>) {
        let geometry = self.geometry;
        let channel = usize::from(choices.byte()) % self.writers.len();
        let mut packets = Vec::new();
        for _ in 0..=count {
            let number = self.near_number(choices.byte());
            let (place, shape) = (choices.byte(), choices.byte());
            if let Some(parity) = self.parity(number, channel, place, shape, choices) {
                packets.push(parity);
                continue;
            }
            let packet = u32::from(place) % 16;
            let faults = choices.byte();
            let slot = geometry.slot_of(number);
            let fields = ImmediateFields { message: slot, packet, fragment: packet % 4 };
            // Mostly full packets, so that chunks and messages complete.
            let (len, ends_message) = match shape {
                0..=199 => (MTU, false),
                200..=215 => (MTU, true),
                216..=231 => (usize::from(choices.byte()) % MTU, true),
                232..=247 => (usize::from(choices.byte()) % (3 * MTU), shape & 1 != 0),
                _ => (0, shape & 1 != 0),
            };
            let (rkey, base) = self.place_of(number);
            let address = base + u64::from(packet) * MTU as u64;
            let mut header = DataHeader {
                dest: Qpn::new(1, channel as u8, geometry.generation_of(number)),
                psn: self.psn[channel],
                ends_message,
                carries_immediate: faults & 15 == 15,
                address: (self.targets.is_some() || place & 16 != 0).then_some(address),
                rkey,
                length: len as u32,
                behind: 0,
                immediate: geometry.split().pack(fields),
            };
            self.psn[channel] = (self.psn[channel] + 1) & 0xFF_FFFF;
            match faults >> 4 {
                15 => match &self.targets {
                    Some(targets) => header.rkey = targets.key(choices.byte()),
                    None => header.rkey ^= 1,
                },
                14 => {
                    header.address = Some(address.wrapping_add(choices.below(4096) as u64));
                }
                13 => header.immediate ^= 1 << (choices.byte() % 32),
                12 => header.psn = choices.below(65_536) as u32 * 256,
                11 => header.dest = Qpn::new(1, 0, choices.byte() % 8),
                10 => header.address = Some(u64::MAX - u64::from(choices.byte())),
                _ => {}
            }
            let payload = self.payload(len);
            packets.push((header, payload));
        }
        if let Some(targets) = &mut self.targets {
            packets.iter().for_each(|(header, payload)| targets.offer(header, payload));
        }
        let mut placer = self.writers[channel].burst();
        for (header, payload) in packets {
            let packet = data_packet(&header, &payload);
            if header.psn & 1 == 0 && parse_data(&packet).is_some() {
                let checked = placer.check_and_place(&packet, &header, &payload, false);
                assert_eq!(checked, Ok(()));
            } else {
                placer.place(&header, &payload, false);
            }
        }
        let summary = placer.finish();
        self.qp.on_burst(self.now_ns, channel as u8, &summary);
    }

    fn payload(&mut self, len: usize) -> Vec<u8> {
        let bytes = self.fill.bytes(len);
        if self.targets.is_some() { Targets::without_secret(bytes) } else { bytes }
    }

    /// The key and address of a message.
    fn place_of(&self, number: u64) -> (u32, u64) {
        match &self.targets {
            Some(targets) => targets.place_of(number),
            None => (RKEY, self.geometry.slot_address(self.geometry.slot_of(number))),
        }
    }

    /// With a code, now and then a parity packet: of a message as long as its receive, or of
    /// another length, with a length of its own that mostly fits.
    fn parity(
        &mut self,
        number: u64,
        channel: usize,
        place: u8,
        shape: u8,
        choices: &mut Choices<'_>,
    ) -> Option<(DataHeader, Vec<u8>)> {
        let geometry = self.geometry;
        let layout = geometry.layout().filter(|_| shape & 1 == 1)?;
        let slot = geometry.slot_of(number);
        let packet = layout.base() + u32::from(place) % 24;
        let at = layout.locate(packet);
        let bytes = match shape >> 1 & 7 {
            0 => choices.below(SLOT_PACKETS as usize * MTU + 100) as u64,
            1 => (SLOT_PACKETS - 2) * MTU as u64 + 5,
            _ => SLOT_PACKETS * MTU as u64,
        };
        let packets = bytes.div_ceil(MTU as u64).max(1) as u32;
        let mut len = layout.parity_bytes(at, bytes, packets, MTU as u32) as usize;
        if shape >> 4 == 15 {
            len = usize::from(choices.byte()) % (2 * MTU);
        }
        let fields = ImmediateFields { message: slot, packet, fragment: packet % 4 };
        let ahead = u64::from(packet - layout.base()) * MTU as u64;
        let (rkey, base) = self.place_of(number);
        let header = DataHeader {
            dest: Qpn::new(1, channel as u8, geometry.generation_of(number)),
            psn: self.psn[channel],
            ends_message: shape >> 4 & 3 != 0,
            carries_immediate: shape >> 6 == 3,
            // A parity packet without is none.
            address: (place < 240).then_some(base + bytes + ahead),
            rkey,
            length: len as u32,
            behind: 0,
            immediate: geometry.split().pack(fields),
        };
        self.psn[channel] = (self.psn[channel] + 1) & 0xFF_FFFF;
        Some((header, self.payload(len)))
    }
}
