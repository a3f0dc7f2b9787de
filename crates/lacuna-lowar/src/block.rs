//! A block of the decoder: what has come of it, its sums, and the recovery of what is missing.
//!
//! The sums hold the packets whose bytes left the shim (and repairs, once they came). A packet that waits
//! in the ring is added when it leaves, or when a recovery needs it. So a recovery reads
//!
//! ```text
//! missing packets = packets that left + repairs + packets that wait
//! ```
//!
//! and needs no copy of a packet that was in order. With XOR the unit itself becomes the packet.
//!
//! Wrong bytes must never come out of sums, so a block is *blind*, which is for good, as soon as something
//! disagrees: a repair with another first packet, strength or end than what came, a packet that left
//! without being added, a recovered body with bytes behind its end. A blind block takes no more packets.

use crate::packet::{BTH_BYTES, Kind, class_of, opcode_of, operation_of, recovered_header};
use crate::places::Places;
use crate::reorder::{Content, Held, Queue};
use crate::shared::Shared;
use crate::strength::{fits, repairs_of};
use crate::sums::Sums;
use crate::units::Unit;
use crate::upper::How;
use lacuna_code::Codec;
use lacuna_wire::rc::{BlockHeader, CodeKind, Opcode, Operation, Part, Strength};
use lacuna_wire::{Qpn, psn};
use std::sync::Arc;

/// What a flow knows that its recovered packets need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) destination: Qpn,
    pub(crate) migration: u8,
    /// Payload of all packets of a message but the last; `None` until one was seen.
    pub(crate) mtu: Option<u16>,
    /// The flow was sent again lately: until this time, packets with numbers below this one may be of
    /// either round.
    pub(crate) mixed: Option<(u64, u64)>,
}

impl Facts {
    /// Whether a packet may be of a round that had other bytes. Packets of go-back-N are the same in all
    /// rounds. The answer to a READ that was asked for again is not if its memory has changed.
    pub(crate) fn is_mixed(&self, operation: Operation, psn: u64, arrived_ns: u64) -> bool {
        operation == Operation::ReadResponse
            && self.mixed.is_some_and(|(until_ns, below)| arrived_ns < until_ns && psn < below)
    }
}

/// What a recovery came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// This many packets are in the queue that were not.
    Recovered(usize),
    /// Nothing more can be done with what has come.
    Nothing,
    /// The ring is full.
    NoSlot,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) first: u64,
    pub(crate) strength: Strength,
    sums: Sums,
    /// Places whose packets are in the sums, or were recovered.
    seen: Places,
    /// Repairs that are in the sums.
    repairs: Places,
    /// What its repairs say, once one came.
    header: Option<BlockHeader>,
    is_blind: bool,
    /// The flow's round when the block began.
    round: u8,
    /// What the packets that are in the sums were.
    operation: Option<Operation>,
    has_first: Option<bool>,
    /// Place, opcode and payload of the message's last packet.
    last: Option<(usize, Opcode, u16)>,
}

impl Block {
    pub(crate) fn new() -> Self {
        Self {
            first: 0,
            strength: Strength { block_packets: 1, repairs: 1, code: CodeKind::Xor },
            sums: Sums::default(),
            seen: Places::default(),
            repairs: Places::default(),
            header: None,
            is_blind: true,
            round: 0,
            operation: None,
            has_first: None,
            last: None,
        }
    }

    /// Begins a block in the memory of one that was released.
    pub(crate) fn begin(
        &mut self,
        first: u64,
        strength: Strength,
        codec: Option<Arc<Codec>>,
        round: u8,
    ) {
        let mut sums = std::mem::take(&mut self.sums);
        sums.begin(strength, codec);
        *self = Self { first, strength, sums, is_blind: false, round, ..Self::new() };
    }

    pub(crate) fn release(&mut self, shared: &mut Shared) {
        self.sums.release(&mut shared.decode);
        self.is_blind = true;
    }

    /// Whether its packets are of the answer to a READ.
    pub(crate) fn is_of_read(&self) -> bool {
        let of_header = self.header.map(|header| operation_of(header.class));
        self.operation.or(of_header) == Some(Operation::ReadResponse)
    }

    pub(crate) fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// Gives the units back: nothing will be recovered.
    pub(crate) fn blind(&mut self, shared: &mut Shared) {
        self.release(shared);
    }

    pub(crate) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// The number behind it: known from a repair, from its last packet, or the most that it can be.
    pub(crate) fn end(&self) -> u64 {
        let packets = match (&self.header, self.last) {
            (Some(header), _) => u64::from(header.packets),
            (None, Some((place, ..))) => place as u64 + 1,
            (None, None) => u64::from(self.strength.block_packets),
        };
        self.first + packets
    }

    /// Whether its repairs say that it has numbers from `psn` on.
    pub(crate) fn is_known_to_reach(&self, psn: u64) -> bool {
        self.header.is_some() && self.end() > psn
    }

    /// Adds a packet whose bytes leave the shim, unless it was added before.
    pub(crate) fn add(
        &mut self,
        shared: &mut Shared,
        psn: u64,
        (opcode, payload_bytes): (Opcode, u16),
        body: &[u8],
    ) {
        let place = (psn - self.first) as usize;
        if self.is_blind || place >= usize::from(self.strength.block_packets) {
            return;
        }
        if self.seen.contains(place) {
            return;
        }
        if self.header.is_some_and(|header| !agrees(&header, place, opcode, payload_bytes))
            || !self.sums.add(&mut shared.decode, place, body)
        {
            return self.blind(shared);
        }
        self.note(place, opcode, payload_bytes);
        if self.operation != Some(opcode.operation()) {
            self.blind(shared);
        }
    }

    fn note(&mut self, place: usize, opcode: Opcode, payload_bytes: u16) {
        let part = opcode.part();
        self.seen.insert(place);
        self.operation.get_or_insert(opcode.operation());
        if place == 0 {
            self.has_first = Some(part.begins());
        }
        if part.ends() {
            self.last = Some((place, opcode, payload_bytes));
        }
    }

    /// Takes a repair. What it says must agree with what has come; false if it does not, or there is no
    /// unit for it, and the block is blind then.
    pub(crate) fn add_repair(
        &mut self,
        shared: &mut Shared,
        header: &BlockHeader,
        index: u8,
        sum: &[u8],
    ) -> bool {
        if self.is_blind {
            return false;
        }
        let index = usize::from(index);
        if index >= usize::from(repairs_of(header.strength, header.packets)) {
            return false;
        }
        match self.header {
            None => {
                if !self.admits(header) {
                    self.blind(shared);
                    return false;
                }
                self.sums.fold(&mut shared.decode, header.strength.repairs.into());
                self.header = Some(*header);
            }
            Some(known) if (BlockHeader { round: header.round, ..known }) != *header => {
                self.blind(shared);
                return false;
            }
            Some(_) => {}
        }
        // Rounds of go-back-N have the same bytes. The answer to a READ that was asked for again may have
        // others, if its memory has changed: two rounds are never mixed.
        if header.round != self.round && operation_of(header.class) == Operation::ReadResponse {
            self.blind(shared);
            return false;
        }
        if self.repairs.contains(index) {
            return true;
        }
        if !self.sums.add_repair(&mut shared.decode, index, sum) {
            self.blind(shared);
            return false;
        }
        self.repairs.insert(index);
        true
    }

    /// Whether what has come agrees with a block's first repair.
    fn admits(&self, header: &BlockHeader) -> bool {
        let packets = usize::from(header.packets);
        let last = self.last.map(|(place, opcode, payload_bytes)| {
            (place + 1 == packets && header.has_last)
                && class_of(opcode) == Some(header.class)
                && payload_bytes == header.last_bytes
        });
        let last_seen = self.seen.contains(packets - 1);
        fits(header.strength, self.strength, header.packets)
            && self.seen.end() <= packets
            && self.operation.is_none_or(|operation| operation == operation_of(header.class))
            && self.has_first.is_none_or(|has_first| has_first == header.has_first)
            && last.unwrap_or(!(last_seen && header.has_last))
    }

    /// Recovers what can be, into the queue. `left_before` is the number before which everything has left
    /// the shim.
    pub(crate) fn recover(
        &mut self,
        shared: &mut Shared,
        queue: &mut Queue,
        now_ns: u64,
        left_before: u64,
        facts: &Facts,
    ) -> Outcome {
        let Some(header) = self.header else { return Outcome::Nothing };
        if self.is_blind || self.repairs.is_empty() {
            return Outcome::Nothing;
        }
        let packets = usize::from(header.packets);
        let mut here = self.seen;
        for held in queue.data_in(self.first, self.first + packets as u64) {
            let place = (held.psn - self.first) as usize;
            if !agrees(&header, place, held.opcode, held.payload_bytes)
                || facts.is_mixed(held.opcode.operation(), held.psn, held.arrived_ns)
            {
                self.blind(shared);
                return Outcome::Nothing;
            }
            here.insert(place);
        }
        // What left without being added is in the repairs and not in the sums.
        let left = left_before.saturating_sub(self.first).min(packets as u64) as usize;
        if (0..left).any(|place| !self.seen.contains(place)) {
            self.blind(shared);
            return Outcome::Nothing;
        }
        if here.len() == packets {
            return Outcome::Nothing;
        }
        let outcome = match header.strength.code {
            CodeKind::Xor => self.recover_xor(shared, queue, now_ns, &header, here, facts),
            CodeKind::Mds => self.recover_mds(shared, queue, now_ns, &header, here, facts),
        };
        match outcome {
            Ok(count) if count > 0 => Outcome::Recovered(count),
            Ok(_) => Outcome::Nothing,
            Err(Stop::NoSlot) => Outcome::NoSlot,
            Err(Stop::Blind) => {
                self.blind(shared);
                Outcome::Nothing
            }
        }
    }

    fn recover_xor(
        &mut self,
        shared: &mut Shared,
        queue: &mut Queue,
        now_ns: u64,
        header: &BlockHeader,
        here: Places,
        facts: &Facts,
    ) -> Result<usize, Stop> {
        let (packets, repairs) = (header.packets.into(), usize::from(header.strength.repairs));
        let mut count = 0;
        let come = self.repairs;
        for index in (0..repairs.min(packets)).filter(|index| come.contains(*index)) {
            let mut missing = (index..packets).step_by(repairs).filter(|at| !here.contains(*at));
            let (Some(place), None) = (missing.next(), missing.next()) else { continue };
            self.add_held(shared, queue, |other| other % repairs == index)?;
            let mut slot = shared.ring.slots.take().ok_or(Stop::NoSlot)?;
            let Some(unit) = self.sums.unit_mut(index) else { return Err(Stop::Blind) };
            // The sum is the packet now: no byte is copied.
            std::mem::swap(&mut slot, unit);
            match self.finish(slot, header, place, facts, now_ns) {
                Ok(held) => queue.insert(held),
                Err(slot) => {
                    shared.ring.slots.give(slot);
                    return Err(Stop::Blind);
                }
            }
            count += 1;
        }
        Ok(count)
    }

    fn recover_mds(
        &mut self,
        shared: &mut Shared,
        queue: &mut Queue,
        now_ns: u64,
        header: &BlockHeader,
        here: Places,
        facts: &Facts,
    ) -> Result<usize, Stop> {
        let packets = usize::from(header.packets);
        let missing = || (0..packets).filter(|place| !here.contains(*place));
        let count = missing().count();
        if count > self.repairs.len() {
            return Ok(0);
        }
        self.add_held(shared, queue, |_| true)?;
        let Some(codec) = self.sums.codec().cloned() else { return Err(Stop::Blind) };
        let mut slots: Vec<Unit> = Vec::with_capacity(count);
        while slots.len() < count {
            let Some(slot) = shared.ring.slots.take() else {
                slots.drain(..).for_each(|slot| shared.ring.slots.give(slot));
                return Err(Stop::NoSlot);
            };
            slots.push(slot);
        }
        let is_solved = self.solve(shared, &codec, packets, &here, &mut slots);
        let mut is_right = is_solved;
        for (slot, place) in slots.into_iter().zip(missing()) {
            match self.finish(slot, header, place, facts, now_ns) {
                Ok(held) if is_right => queue.insert(held),
                Ok(Held { content: Content::Copy(slot, _), .. }) | Err(slot) => {
                    is_right = false;
                    shared.ring.slots.give(slot);
                }
                Ok(_) => unreachable!("it was recovered"),
            }
        }
        // The sums are used up; there is nothing left to recover either.
        if is_right { Ok(count) } else { Err(Stop::Blind) }
    }

    /// Computes the missing packets' bodies from the sums.
    fn solve(
        &self,
        shared: &mut Shared,
        codec: &Arc<Codec>,
        packets: usize,
        here: &Places,
        slots: &mut [Unit],
    ) -> bool {
        let bytes = self.sums.mds_bytes();
        if bytes == 0 {
            return true;
        }
        // The packets that are not missing have been taken out of the repairs, so they count as zeros.
        shared.zeros.resize(shared.zeros.len().max(bytes), 0);
        let zeros = &shared.zeros[..bytes];
        let data = (0..packets).filter(|place| here.contains(*place)).map(|place| (place, zeros));
        let sums = self.sums.filled().filter(|(at, _)| self.repairs.contains(*at));
        let k = codec.code().data_chunks();
        let present = data.chain(sums.map(|(at, sum)| (k + at, sum)));
        let missing = (0..packets).filter(|place| !here.contains(*place));
        let outputs = missing.zip(slots.iter_mut().map(|slot| slot.take_first(bytes)));
        let workspace = shared.workspaces.of(codec);
        codec.reconstruct_listed(workspace, packets, present, outputs).is_ok()
    }

    /// Adds the waiting packets at some places to the sums.
    fn add_held(
        &mut self,
        shared: &mut Shared,
        queue: &Queue,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<(), Stop> {
        for held in queue.data_in(self.first, self.end()) {
            let place = (held.psn - self.first) as usize;
            if self.seen.contains(place) || !is_wanted(place) {
                continue;
            }
            // One that was placed ahead was added then, or the block would be blind.
            let Some(body) = held.body() else { return Err(Stop::Blind) };
            if !self.sums.add(&mut shared.decode, place, body) {
                return Err(Stop::Blind);
            }
            self.note(place, held.opcode, held.payload_bytes);
        }
        Ok(())
    }

    /// Makes a packet of a recovered body; gives the slot back if it cannot be one.
    fn finish(
        &mut self,
        mut slot: Unit,
        header: &BlockHeader,
        place: usize,
        facts: &Facts,
        now_ns: u64,
    ) -> Result<Held, Unit> {
        let is_last = place + 1 == usize::from(header.packets) && header.has_last;
        let part = Part::of(place == 0 && header.has_first, is_last);
        let opcode = opcode_of(header.class, part);
        let extended_bytes = opcode.extended_bytes();
        let sum_bytes = slot.filled_bytes();
        let Some(mtu) = mtu_of(header, place, sum_bytes, facts.mtu) else { return Err(slot) };
        let payload_bytes = if is_last { header.last_bytes.into() } else { mtu };
        let body_bytes = extended_bytes + payload_bytes;
        // Behind the body there is nothing but the zeros that it was padded with.
        if body_bytes > sum_bytes || slot.filled()[body_bytes..].iter().any(|byte| *byte != 0) {
            return Err(slot);
        }
        let packet_bytes = body_bytes.next_multiple_of(4);
        if packet_bytes > slot.len() {
            return Err(slot);
        }
        slot.resize(packet_bytes);
        let psn = self.first + place as u64;
        let bth = recovered_header(
            opcode,
            facts.destination,
            psn::wrap(psn),
            payload_bytes,
            facts.migration,
        );
        slot.with_header::<BTH_BYTES>(&bth);
        self.note(place, opcode, payload_bytes as u16);
        Ok(Held {
            psn,
            opcode,
            kind: Kind::Data(part),
            payload_bytes: payload_bytes as u16,
            arrived_ns: now_ns,
            content: Content::Copy(slot, How::Recovered),
        })
    }

    /// Whether a missing packet is beyond what this block's repairs can do: all of those that cover it have
    /// come and were not enough.
    pub(crate) fn is_hopeless_for(&self, psn: u64) -> bool {
        let Some(header) = self.header else { return self.is_blind };
        if self.is_blind {
            return true;
        }
        let place = (psn - self.first) as usize;
        match header.strength.code {
            CodeKind::Xor => self.repairs.contains(place % usize::from(header.strength.repairs)),
            CodeKind::Mds => self.repairs.len() == usize::from(header.strength.repairs),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.sums.memory_bytes()
    }
}

/// Why a recovery stopped.
enum Stop {
    NoSlot,
    Blind,
}

/// Whether a packet at a place is one that the block may have there.
fn agrees(header: &BlockHeader, place: usize, opcode: Opcode, payload_bytes: u16) -> bool {
    let packets = usize::from(header.packets);
    let part = opcode.part();
    let is_last = place + 1 == packets && header.has_last;
    place < packets
        && opcode.operation() == operation_of(header.class)
        && part.begins() == (place == 0 && header.has_first)
        && part.ends() == is_last
        && (!is_last
            || class_of(opcode) == Some(header.class) && payload_bytes == header.last_bytes)
}

/// Bytes of the body of the packet at a place.
fn body_bytes(header: &BlockHeader, place: usize, mtu: usize) -> usize {
    let is_last = place + 1 == usize::from(header.packets) && header.has_last;
    let part = Part::of(place == 0 && header.has_first, is_last);
    let payload_bytes = if is_last { header.last_bytes.into() } else { mtu };
    opcode_of(header.class, part).extended_bytes() + payload_bytes
}

/// Whether the packets of a block at two places are in the same sum.
fn is_summed_with(header: &BlockHeader, place: usize, other: usize) -> bool {
    let depth = usize::from(header.strength.repairs);
    header.strength.code == CodeKind::Mds || place % depth == other % depth
}

/// The payload of the packets before a message's last one, so that the sum that covers `place` is as long
/// as it is; `None` if there is none, or more than one.
///
/// Such payloads are whole words, as all MTUs are.
fn mtu_of(
    header: &BlockHeader,
    place: usize,
    sum_bytes: usize,
    known: Option<u16>,
) -> Option<usize> {
    let members = || (0..header.packets.into()).filter(|at| is_summed_with(header, place, *at));
    let has_last = |at: &usize| at + 1 == usize::from(header.packets) && header.has_last;
    let longest = |mtu| members().map(|at| body_bytes(header, at, mtu)).max().unwrap_or(0);
    if let Some(mtu) = known {
        let mtu = usize::from(mtu);
        return (longest(mtu).next_multiple_of(4) == sum_bytes).then_some(mtu);
    }
    let headers = members().filter(|at| !has_last(at)).map(|at| body_bytes(header, at, 0)).max();
    let Some(headers) = headers else {
        // Only the last packet is summed: the payload of others is not asked for.
        return (longest(0).next_multiple_of(4) == sum_bytes).then_some(0);
    };
    // The longest body is one of those, or the last one; a last payload is not longer than theirs.
    let mtu = sum_bytes.checked_sub(headers).filter(|mtu| *mtu > 0)?;
    let last_bytes = members().find(has_last).map_or(0, |at| body_bytes(header, at, 0));
    let is_longest = last_bytes.next_multiple_of(4) < sum_bytes;
    let last_payload = usize::from(header.last_bytes).next_multiple_of(4);
    (is_longest || header.has_last && last_payload == mtu).then_some(mtu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_wire::rc::MessageClass;

    #[test]
    fn payloads_follow_from_the_length_of_a_sum() {
        let header = |packets, has_first, has_last, class, last_bytes, repairs| BlockHeader {
            first_psn: 0,
            packets,
            has_first,
            has_last,
            class,
            last_bytes,
            round: 0,
            strength: Strength { block_packets: 8, repairs, code: CodeKind::Xor },
        };
        let write = header(5, true, true, MessageClass::Write, 7, 2);
        // With the first packet and its RETH, and without.
        assert_eq!(mtu_of(&write, 0, 1040, None), Some(1024));
        assert_eq!(mtu_of(&write, 1, 1024, None), Some(1024));
        assert_eq!(mtu_of(&write, 0, 1040, Some(1024)), Some(1024));
        assert_eq!(mtu_of(&write, 0, 1024, Some(1024)), None, "no such sum");
        // The last one is as long as the others, or longer by its immediate.
        let full = header(4, false, true, MessageClass::Send, 1024, 1);
        assert_eq!(mtu_of(&full, 1, 1024, None), Some(1024));
        let longer = header(4, false, true, MessageClass::SendImmediate, 1024, 1);
        assert_eq!(mtu_of(&longer, 1, 1028, None), None, "1024 or 1028");
        assert_eq!(mtu_of(&longer, 1, 1028, Some(1024)), Some(1024));
    }
}
