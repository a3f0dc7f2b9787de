//! The sums of a block, updated packet by packet: the encoder's repairs in the making, and the decoder's
//! intermediate values (LoWAR IV-B2, buffer-based update-style calculation).
//!
//! XOR: the packet at place i is added to unit i mod c, and a unit is taken when its first packet comes.
//! MDS: a packet is added to all c units, each time with its own coefficient (`lacuna_code`); blocks that
//! are short are prefixes, their absent packets are zeros.
//!
//! A decoder adds repairs to the same sums: what is left in a unit is then the sum of the missing packets.

use crate::units::{Unit, UnitPool};
use lacuna_code::{Chunks, ChunksMut, Codec};
use lacuna_wire::rc::{CodeKind, Strength};
use std::sync::Arc;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    units: Vec<Option<Unit>>,
    /// c.
    repairs: usize,
    /// Of an MDS code.
    codec: Option<Arc<Codec>>,
    /// Bytes of all units of an MDS code.
    mds_bytes: usize,
}

impl Sums {
    /// Begins a block; the units of the one before must have been released.
    pub(crate) fn begin(&mut self, strength: Strength, codec: Option<Arc<Codec>>) {
        debug_assert!(self.units.iter().all(Option::is_none));
        debug_assert_eq!(codec.is_some(), strength.code == CodeKind::Mds);
        self.repairs = strength.repairs.into();
        self.units.resize_with(self.repairs, || None);
        self.codec = codec;
        self.mds_bytes = 0;
    }

    /// Adds the body of the packet at a place; false if there is no unit for it, or it is longer than one.
    /// The sums are then of no use.
    #[inline]
    pub(crate) fn add(&mut self, pool: &mut UnitPool, place: usize, body: &[u8]) -> bool {
        if self.codec.is_none() {
            return self.add_to(pool, place % self.repairs, body);
        }
        if !self.extend(pool, body.len()) {
            return false;
        }
        let (Some(codec), false) = (&self.codec, body.is_empty()) else { return true };
        let mut view = View { units: &mut self.units, bytes: self.mds_bytes };
        codec.update(&mut view, place, 0, body).is_ok()
    }

    /// Adds a repair to its unit; false as for [`add`](Self::add).
    pub(crate) fn add_repair(&mut self, pool: &mut UnitPool, index: usize, sum: &[u8]) -> bool {
        if self.codec.is_some() && !self.extend(pool, sum.len()) {
            return false;
        }
        self.add_to(pool, index, sum)
    }

    fn add_to(&mut self, pool: &mut UnitPool, at: usize, bytes: &[u8]) -> bool {
        let slot = &mut self.units[at];
        if slot.is_none() {
            *slot = pool.take();
        }
        slot.as_mut().is_some_and(|unit| pool.add(unit, bytes))
    }

    /// Takes all units of an MDS code, and makes them at least `bytes` long.
    fn extend(&mut self, pool: &mut UnitPool, bytes: usize) -> bool {
        // Whole words, as the repairs will have.
        let bytes = self.mds_bytes.max(bytes).next_multiple_of(4);
        let is_taken = self.units.last().is_some_and(Option::is_some);
        if is_taken && bytes == self.mds_bytes {
            return true;
        }
        if bytes > pool.unit_bytes() {
            return false;
        }
        for slot in self.units.iter_mut().filter(|_| !is_taken) {
            *slot = pool.take();
            if slot.is_none() {
                return false;
            }
        }
        self.mds_bytes = bytes;
        self.units.iter_mut().flatten().for_each(|unit| unit.resize(bytes));
        true
    }

    /// Makes c' sums of c, of which c' is a divisor (XOR), or leaves the first c' (MDS).
    pub(crate) fn fold(&mut self, pool: &mut UnitPool, repairs: usize) {
        debug_assert!(repairs <= self.repairs);
        for at in repairs..self.repairs {
            let Some(unit) = self.units[at].take() else { continue };
            if self.codec.is_none() {
                let into = &mut self.units[at % repairs];
                match into {
                    Some(into) => {
                        let fits = pool.add(into, unit.filled());
                        debug_assert!(fits, "units are of one length");
                    }
                    None => {
                        *into = Some(unit);
                        continue;
                    }
                }
            }
            pool.give(unit);
        }
        self.units.truncate(repairs);
        self.repairs = repairs;
    }

    /// A unit, if anything was added to it.
    pub(crate) fn unit_mut(&mut self, at: usize) -> Option<&mut Unit> {
        self.units.get_mut(at)?.as_mut()
    }

    /// The codec of an MDS code.
    pub(crate) fn codec(&self) -> Option<&Arc<Codec>> {
        self.codec.as_ref()
    }

    /// The bytes of the units with these indices, with their indices.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let units = self.units.iter().enumerate();
        units.filter_map(|(at, unit)| Some((at, unit.as_ref()?.filled())))
    }

    /// Bytes of all units of an MDS code.
    pub(crate) fn mds_bytes(&self) -> usize {
        self.mds_bytes
    }

    /// Gives all units back.
    pub(crate) fn release(&mut self, pool: &mut UnitPool) {
        self.units.drain(..).flatten().for_each(|unit| pool.give(unit));
        self.codec = None;
    }

    /// Bytes of memory without the units.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.units.capacity() * size_of::<Option<Unit>>()
    }
}

/// The first bytes of all units, as parity of a codec.
struct View<'u> {
    units: &'u mut [Option<Unit>],
    bytes: usize,
}

impl Chunks for View<'_> {
    fn count(&self) -> usize {
        self.units.len()
    }

    fn chunk(&self, index: usize) -> &[u8] {
        self.units[index].as_ref().map_or(&[], Unit::filled)
    }
}

impl ChunksMut for View<'_> {
    fn chunks_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let bytes = self.bytes;
        self.units.iter_mut().flatten().map(move |unit| unit.take_first(bytes))
    }
}
