//! Coding units: the buffers that sums of packets are computed in, from a pool that all flows of a host
//! share.
//!
//! LoWAR IV-B2 and its appendix: a unit is as long as the longest transport packet, free units wait in a
//! first-in first-out queue, a flow takes one when a block begins and gives it back when its repairs have
//! left. So flows without traffic hold none.
//!
//! A unit's memory is allocated when it is first used, and kept in the pool from then on. Before its bytes
//! there is room for a header: a sum becomes a repair packet, and a recovered body a packet, in place.
//! Bytes behind `filled_bytes` have no meaning and count as zeros, so no unit is ever cleared.

use lacuna_code::{Code, Codec, Engine};
use std::collections::VecDeque;

/// Units of a pool: those of the paper's prototype, 1.1 MB at its MTU (section V).
pub const UNITS_DEFAULT: usize = 1024;

/// Bytes before a unit's bytes: the longer of a repair header (16) and a BTH (12).
pub(crate) const HEADROOM_BYTES: usize = 16;
/// The longest headers behind a BTH: those of an atomic operation.
const EXTENDED_BYTES_MAX: usize = 28;

/// A buffer, in the hands of one flow.
#[derive(Debug)]
pub struct Unit {
    /// Headroom, then the unit's bytes.
    bytes: Box<[u8]>,
    /// How many of the bytes have a meaning.
    filled_bytes: usize,
}

impl Unit {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - HEADROOM_BYTES
    }

    pub(crate) fn filled_bytes(&self) -> usize {
        self.filled_bytes
    }

    /// The bytes that have a meaning.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[HEADROOM_BYTES..][..self.filled_bytes]
    }

    /// Makes the first `len` bytes the ones that have a meaning; new ones are zeros.
    ///
    /// # Panics
    /// If the unit is shorter.
    pub(crate) fn resize(&mut self, len: usize) {
        if len > self.filled_bytes {
            self.bytes[HEADROOM_BYTES..][self.filled_bytes..len].fill(0);
        }
        self.filled_bytes = len;
    }

    /// The first `len` bytes, which all get a meaning.
    pub(crate) fn take_first(&mut self, len: usize) -> &mut [u8] {
        self.resize(len);
        &mut self.bytes[HEADROOM_BYTES..][..len]
    }

    /// The bytes with a meaning and a header right before them, in one piece.
    pub(crate) fn with_header<const N: usize>(&mut self, header: &[u8; N]) -> &[u8] {
        const { assert!(N <= HEADROOM_BYTES) };
        self.bytes[HEADROOM_BYTES - N..HEADROOM_BYTES].copy_from_slice(header);
        self.packet(N)
    }

    /// The same, with the header that is there.
    pub(crate) fn packet(&self, header_bytes: usize) -> &[u8] {
        &self.bytes[HEADROOM_BYTES - header_bytes..HEADROOM_BYTES + self.filled_bytes]
    }

    /// Copies a packet, so that the bytes behind its header of `header_bytes` are the unit's; false if they
    /// do not fit.
    pub(crate) fn store(&mut self, packet: &[u8], header_bytes: usize) -> bool {
        let filled_bytes = packet.len() - header_bytes;
        if filled_bytes > self.len() {
            return false;
        }
        self.bytes[HEADROOM_BYTES - header_bytes..][..packet.len()].copy_from_slice(packet);
        self.filled_bytes = filled_bytes;
        true
    }
}

/// The units of a host, for one direction; see the module's text.
#[derive(Debug)]
pub struct UnitPool {
    free: VecDeque<Unit>,
    /// Units whose memory was allocated; they are free or in the hands of flows.
    made: usize,
    units_max: usize,
    unit_bytes: usize,
    /// Adds two byte strings with the processor's widest instructions.
    xor: Codec,
}

impl UnitPool {
    /// A pool of up to `units_max` units for packets with payloads of up to `payload_bytes_max`.
    #[must_use]
    pub fn new(units_max: usize, payload_bytes_max: usize) -> Self {
        let code = Code::xor(1, 1).expect("the smallest code");
        Self {
            free: VecDeque::new(),
            made: 0,
            units_max,
            unit_bytes: (payload_bytes_max + EXTENDED_BYTES_MAX).next_multiple_of(4),
            xor: Codec::with_engine(code, engine()),
        }
    }

    /// The unit that has been free for longest; `None` if all are in use.
    pub fn take(&mut self) -> Option<Unit> {
        let mut unit = match self.free.pop_front() {
            Some(unit) => unit,
            None if self.made < self.units_max => {
                self.made += 1;
                let bytes = vec![0; HEADROOM_BYTES + self.unit_bytes].into_boxed_slice();
                Unit { bytes, filled_bytes: 0 }
            }
            None => return None,
        };
        unit.filled_bytes = 0;
        Some(unit)
    }

    /// Takes a unit back.
    pub fn give(&mut self, unit: Unit) {
        debug_assert_eq!(unit.len(), self.unit_bytes, "a unit of another pool");
        self.free.push_back(unit);
        debug_assert!(self.free.len() <= self.made);
    }

    /// Adds bytes to a unit; false, and nothing was added, if they are longer than it.
    pub(crate) fn add(&self, unit: &mut Unit, bytes: &[u8]) -> bool {
        if bytes.len() > unit.len() {
            return false;
        }
        let (sum, rest) = bytes.split_at(bytes.len().min(unit.filled_bytes));
        let room = &mut unit.bytes[HEADROOM_BYTES..];
        if !sum.is_empty() {
            let mut parity = [&mut room[..sum.len()]];
            self.xor.update(&mut parity[..], 0, 0, sum).expect("as long as the bytes");
        }
        if !rest.is_empty() {
            room[sum.len()..][..rest.len()].copy_from_slice(rest);
            unit.filled_bytes = bytes.len();
        }
        true
    }

    /// Units in the hands of flows.
    #[must_use]
    pub fn used(&self) -> usize {
        self.made - self.free.len()
    }

    /// Most units at a time.
    #[must_use]
    pub fn units_max(&self) -> usize {
        self.units_max
    }

    /// Bytes of a unit: the longest body of a packet, behind its BTH.
    #[must_use]
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Bytes of memory that the pool has allocated, and the most that it will.
    #[must_use]
    pub fn memory_bytes(&self) -> (usize, usize) {
        let each = HEADROOM_BYTES + self.unit_bytes + size_of::<Unit>();
        (self.made * each, self.units_max * each)
    }
}

/// The engine of the process; the fastest one if the environment names one that does not exist, which is
/// an error where connections are made.
pub(crate) fn engine() -> Engine {
    Engine::chosen().unwrap_or_else(|_| Engine::fastest())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_allocated_on_first_use_and_never_more_than_their_number() {
        let mut pool = UnitPool::new(3, 1000);
        assert_eq!((pool.memory_bytes().0, pool.unit_bytes()), (0, 1028));
        let units: Vec<Unit> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((units.len(), pool.used()), (3, 3));
        let full = pool.memory_bytes();
        assert_eq!(full.0, full.1);
        units.into_iter().for_each(|unit| pool.give(unit));
        assert_eq!((pool.used(), pool.memory_bytes()), (0, full));
    }

    #[test]
    fn the_unit_that_was_given_back_first_is_taken_first() {
        let mut pool = UnitPool::new(2, 8);
        let (mut first, second) = (pool.take().unwrap(), pool.take().unwrap());
        first.take_first(1)[0] = 7;
        pool.give(first);
        pool.give(second);
        let mut again = pool.take().unwrap();
        assert_eq!(again.filled_bytes(), 0);
        assert_eq!(again.bytes[HEADROOM_BYTES], 7, "it is the first one, not cleared");
        assert_eq!(again.take_first(1), [0], "but what had a meaning has none any more");
    }

    #[test]
    fn what_was_added_twice_is_gone_and_shorter_bytes_count_as_padded() {
        let mut pool = UnitPool::new(1, 8);
        let mut unit = pool.take().unwrap();
        for bytes in [&[1, 2][..], &[4, 4, 4], &[1, 2]] {
            assert!(pool.add(&mut unit, bytes));
        }
        assert_eq!(unit.filled(), [4, 4, 4]);
        assert!(!pool.add(&mut unit, &[0; 37]));
        assert_eq!(unit.with_header(&[9, 9]), [9, 9, 4, 4, 4]);
    }
}
