//! The encoder of one flow: repairs from the data packets that pass (LoWAR IV-B2, algorithm 1).
//!
//! Places count from 0. The packet at place i of a block belongs to unit i mod c (XOR) or to all c units
//! (MDS); after r packets, or at the message's end, the repairs leave. Line 5 of the algorithm prints
//! `i mod c = 0` for the end of a block; figure 6 shows that r is meant. Data packets are never changed.
//!
//! Where blocks begin is told in `grid`. After a retransmission the grid begins at the packet that is
//! sent again, and blocks are coded again; the *round* in their headers counts such restarts, modulo 256.
//! A block that a restart cuts off sends no repairs: its packets were acknowledged or come again.
//!
//! The shim may start in the middle of a message: the grid then begins with the first packet that it sees.
//!
//! Invariant: a flow holds units only while a block is open.

use crate::grid::{Grid, PSN_ORIGIN};
use crate::packet::{Packet, class_of};
use crate::strength::{StrengthError, capped, codec, repairs_of};
use crate::sums::Sums;
use crate::units::UnitPool;
use lacuna_code::Codec;
use lacuna_wire::rc::{BlockHeader, Opcode, REPAIR_HEADER_BYTES, RepairHeader, Strength};
use lacuna_wire::{Qpn, psn};
use std::sync::Arc;

/// Blocks that are announced with a new strength, so that a lost announcement does little harm.
const ANNOUNCEMENTS: u8 = 3;

/// What an encoder did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct EncoderCounters {
    /// Repair packets made.
    pub repairs_sent: u64,
    /// Their bytes, header and sum.
    pub repair_bytes: u64,
    /// Announcements made.
    pub announcements_sent: u64,
    /// Blocks whose repairs were made.
    pub blocks_coded: u64,
    /// Blocks that were to be coded and were not: no unit was free, or a packet was longer than a unit.
    pub blocks_uncoded: u64,
    /// Blocks that a retransmission or another packet cut off.
    pub blocks_cut: u64,
    /// Restarts at lower numbers: retransmissions that were seen.
    pub restarts: u64,
}

impl EncoderCounters {
    /// These and those of another one together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            repairs_sent: self.repairs_sent + other.repairs_sent,
            repair_bytes: self.repair_bytes + other.repair_bytes,
            announcements_sent: self.announcements_sent + other.announcements_sent,
            blocks_coded: self.blocks_coded + other.blocks_coded,
            blocks_uncoded: self.blocks_uncoded + other.blocks_uncoded,
            blocks_cut: self.blocks_cut + other.blocks_cut,
            restarts: self.restarts + other.restarts,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Encoder {
    /// `None` before the first packet.
    grid: Option<Grid>,
    wanted: Option<Strength>,
    wanted_codec: Option<Arc<Codec>>,
    announcements_left: u8,
    caps_short_blocks: bool,
    /// Restarts at lower numbers, modulo 256.
    round: u8,
    /// The open block's; `None` if it is not coded.
    strength: Option<Strength>,
    block: Block,
    sums: Sums,
    counters: EncoderCounters,
}

/// The block that is open.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    has_first: bool,
    packets: u16,
    /// Whether its sums are of use.
    is_summed: bool,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder that makes no repairs yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            grid: None,
            wanted: None,
            wanted_codec: None,
            announcements_left: 0,
            caps_short_blocks: false,
            round: 0,
            strength: None,
            block: Block::default(),
            sums: Sums::default(),
            counters: EncoderCounters::default(),
        }
    }

    /// Protects the blocks from the next one on so; `None` is not at all.
    ///
    /// # Errors
    /// When no block can have this strength; nothing changes then.
    pub fn set_strength(&mut self, strength: Option<Strength>) -> Result<(), StrengthError> {
        let codec = strength.map(codec).transpose()?.flatten();
        if strength != self.wanted {
            self.announcements_left = if strength.is_some() { ANNOUNCEMENTS } else { 0 };
        }
        (self.wanted, self.wanted_codec) = (strength, codec);
        Ok(())
    }

    /// The strength from the next block on.
    #[must_use]
    pub fn next_strength(&self) -> Option<Strength> {
        self.wanted
    }

    /// Whether a short block has only its share of a full block's repairs, rounded up. Off at first, as in
    /// the paper, where a message of one packet has as many bytes of repairs as of data.
    pub fn set_caps_short_blocks(&mut self, caps_short_blocks: bool) {
        self.caps_short_blocks = caps_short_blocks;
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> EncoderCounters {
        self.counters
    }

    /// Whether [`announcement`](Self::announcement) may have one.
    #[must_use]
    pub fn announces(&self) -> bool {
        self.announcements_left > 0 && self.wanted.is_some()
    }

    /// The announcement that is to be sent before a packet, if one is. To be called before
    /// [`on_packet`](Self::on_packet) with the same packet.
    pub fn announcement(&mut self, packet: &[u8]) -> Option<[u8; REPAIR_HEADER_BYTES]> {
        let strength = self.wanted.filter(|_| self.announcements_left > 0)?;
        let packet = Packet::parse(packet)?;
        let part = packet.part()?;
        let continues_block = self.strength.is_some()
            && self.grid.is_some_and(|grid| !grid.begins(psn::unwrap(packet.psn, grid.next), part));
        if continues_block {
            return None;
        }
        self.announcements_left -= 1;
        self.counters.announcements_sent += 1;
        let mut header = [0; REPAIR_HEADER_BYTES];
        let class = class_of(packet.opcode)?;
        RepairHeader::Announce { first_psn: packet.psn, class, strength }
            .emit(packet.destination, &mut header);
        Some(header)
    }

    /// A packet leaves. `repair` gets the repair packets, without trailer, that are to be sent right
    /// behind it. What is not coded passes and changes nothing.
    pub fn on_packet(
        &mut self,
        units: &mut UnitPool,
        packet: &[u8],
        repair: &mut dyn FnMut(&[u8]),
    ) {
        let Some(packet) = Packet::parse(packet) else { return };
        let Some(part) = packet.part() else { return };
        let mut grid = self.grid.unwrap_or_else(|| Grid::at(PSN_ORIGIN + u64::from(packet.psn)));
        let psn = psn::unwrap(packet.psn, grid.next);
        if self.strength.is_none() || grid.begins(psn, part) {
            if psn < grid.next {
                self.round = self.round.wrapping_add(1);
                self.counters.restarts += 1;
            }
            self.begin(units, part.begins());
            grid.in_block = false;
        }
        let block_packets = self.strength.map_or(1, |strength| strength.block_packets);
        grid.step(psn, part, block_packets);
        self.grid = Some(grid);
        let Some(strength) = self.strength else { return };
        if self.block.is_summed && !self.sums.add(units, self.block.packets.into(), packet.body) {
            self.block.is_summed = false;
            self.counters.blocks_uncoded += 1;
            self.sums.release(units);
        }
        self.block.packets += 1;
        if !grid.in_block {
            if self.block.is_summed {
                let header = self.header(strength, packet.opcode, packet.payload_bytes, grid.first);
                self.emit(units, packet.destination, header, repair);
            }
            // So the next block is none that was cut off.
            self.block.packets = 0;
        }
    }

    /// Gives all units back. The flow may go on, but for the block that is open.
    pub fn release(&mut self, units: &mut UnitPool) {
        self.sums.release(units);
        self.block.is_summed = false;
    }

    /// Bytes of memory, without the units that it holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.sums.memory_bytes()
    }

    fn begin(&mut self, units: &mut UnitPool, has_first: bool) {
        if self.block.packets > 0 && self.strength.is_some() {
            self.counters.blocks_cut += 1;
        }
        self.sums.release(units);
        self.strength = self.wanted;
        self.block = Block { has_first, packets: 0, is_summed: self.strength.is_some() };
        if let Some(strength) = self.strength {
            self.sums.begin(strength, self.wanted_codec.clone());
        }
    }

    /// The header of a block whose last packet is given.
    fn header(
        &self,
        strength: Strength,
        last: Opcode,
        last_bytes: u16,
        first_psn: u64,
    ) -> BlockHeader {
        let Block { has_first, packets, .. } = self.block;
        let has_last = last.part().ends();
        let is_short = packets < strength.block_packets;
        let strength = match self.caps_short_blocks && is_short {
            true => capped(strength, packets),
            false => strength,
        };
        BlockHeader {
            first_psn: psn::wrap(first_psn),
            packets,
            has_first,
            has_last,
            class: class_of(last).expect("only messages are coded"),
            last_bytes: if has_last { last_bytes } else { 0 },
            round: self.round,
            strength,
        }
    }

    fn emit(
        &mut self,
        units: &mut UnitPool,
        destination: Qpn,
        block: BlockHeader,
        repair: &mut dyn FnMut(&[u8]),
    ) {
        self.sums.fold(units, block.strength.repairs.into());
        for index in 0..repairs_of(block.strength, block.packets) {
            let Some(unit) = self.sums.unit_mut(index.into()) else { continue };
            unit.resize(unit.filled_bytes().next_multiple_of(4));
            let mut header = [0; REPAIR_HEADER_BYTES];
            RepairHeader::Repair { block, index: index as u8 }.emit(destination, &mut header);
            let packet = unit.with_header(&header);
            self.counters.repairs_sent += 1;
            self.counters.repair_bytes += packet.len() as u64;
            repair(packet);
        }
        self.counters.blocks_coded += 1;
        self.sums.release(units);
    }
}
