//! Packets in flight: copies, in order of their release times; packets of equal time come out in order
//! of insertion.
//!
//! The heap orders small keys. The packets are in slots that are reused with their storage, so a
//! schedule that has reached its working size allocates nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes charged for a packet in flight besides its own: its slot, its key and slack of its storage (a
/// judgement). So a bound in bytes also bounds a flood of empty packets.
pub const PACKET_CHARGE_BYTES: u64 = 128;

/// A packet in flight.
#[derive(Debug)]
pub struct InFlight<T> {
    /// The caller's data, such as the destination.
    pub tag: T,
    /// The packet's bytes.
    pub bytes: Vec<u8>,
}

/// Index of a packet's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotIndex(usize);

/// The packets in flight; see the module's text.
#[derive(Debug)]
pub struct Schedule<T> {
    /// Time of release, number of insertion, slot.
    heap: BinaryHeap<Reverse<(u64, u64, SlotIndex)>>,
    slots: Vec<InFlight<T>>,
    free: Vec<SlotIndex>,
    /// Breaks ties between equal times.
    inserted: u64,
    /// Sum of [`charge_bytes`] over all packets.
    charge_bytes: u64,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            inserted: 0,
            charge_bytes: 0,
        }
    }
}

impl<T> Schedule<T> {
    /// Sum of [`charge_bytes`] over all packets in flight.
    #[must_use]
    pub fn charge_bytes(&self) -> u64 {
        self.charge_bytes
    }

    /// Inserts a packet whose bytes `fill` writes into an empty buffer.
    pub fn insert(&mut self, release_ns: u64, tag: T, fill: impl FnOnce(&mut Vec<u8>)) {
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index.0].tag = tag;
                index
            }
            None => {
                self.slots.push(InFlight { tag, bytes: Vec::new() });
                SlotIndex(self.slots.len() - 1)
            }
        };
        let packet = &mut self.slots[index.0];
        fill(&mut packet.bytes);
        self.charge_bytes += charge_bytes(packet.bytes.len());
        self.heap.push(Reverse((release_ns, self.inserted, index)));
        self.inserted += 1;
    }

    /// The next release time.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((release_ns, ..))| *release_ns)
    }

    /// Takes the next due packet. It stays in its slot until [`Schedule::remove`].
    pub fn pop_due(&mut self, now_ns: u64) -> Option<SlotIndex> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((.., index))| index)
    }

    /// A packet that was popped and not removed yet.
    #[must_use]
    pub fn packet(&self, index: SlotIndex) -> &InFlight<T> {
        &self.slots[index.0]
    }

    /// Frees the slot of a packet that was popped.
    pub fn remove(&mut self, index: SlotIndex) {
        let packet = &mut self.slots[index.0];
        self.charge_bytes -= charge_bytes(packet.bytes.len());
        packet.bytes.clear();
        self.free.push(index);
    }
}

/// Bytes charged for a packet of this size in flight: its own and [`PACKET_CHARGE_BYTES`].
#[must_use]
pub fn charge_bytes(packet_bytes: usize) -> u64 {
    packet_bytes as u64 + PACKET_CHARGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_by_time_and_then_by_age() {
        let mut schedule = Schedule::default();
        for (time, name) in [(30, b'c'), (10, b'a'), (20, b'b'), (10, b'x'), (30, b'd')] {
            schedule.insert(time, (), |bytes| bytes.push(name));
        }
        assert_eq!(schedule.charge_bytes(), 5 * charge_bytes(1));
        assert_eq!(schedule.next_ns(), Some(10));
        assert_eq!(schedule.pop_due(9), None);
        let mut out = Vec::new();
        while let Some(index) = schedule.pop_due(30) {
            out.extend_from_slice(&schedule.packet(index).bytes);
            schedule.remove(index);
        }
        assert_eq!(out, b"axbcd");
        assert_eq!((schedule.next_ns(), schedule.charge_bytes()), (None, 0));
        schedule.insert(1, (), |bytes| assert!(bytes.is_empty()));
        assert_eq!(schedule.slots.len(), 5, "slots are reused");
    }

    proptest::proptest! {
        /// The oracle is a stable sort.
        #[test]
        fn packets_come_out_as_from_a_stable_sort(
            steps in proptest::collection::vec((0..50u64, 0..5u64), 0..200),
        ) {
            let mut schedule = Schedule::default();
            let mut oracle: Vec<(u64, Vec<u8>)> = Vec::new();
            let mut now_ns = 0;
            for (number, (delay_ns, step_ns)) in steps.into_iter().enumerate() {
                let packet = vec![number as u8; number % 7];
                schedule.insert(now_ns + delay_ns, (), |bytes| bytes.extend_from_slice(&packet));
                oracle.push((now_ns + delay_ns, packet));
                oracle.sort_by_key(|(release_ns, _)| *release_ns);
                now_ns += step_ns;
                while let Some(index) = schedule.pop_due(now_ns) {
                    let (release_ns, packet) = oracle.remove(0);
                    proptest::prop_assert!(release_ns <= now_ns);
                    proptest::prop_assert_eq!(&schedule.packet(index).bytes, &packet);
                    schedule.remove(index);
                }
                let next_ns = oracle.first().map(|(release_ns, _)| *release_ns);
                proptest::prop_assert_eq!(schedule.next_ns(), next_ns);
                let charge = oracle.iter().map(|(_, packet)| charge_bytes(packet.len())).sum::<u64>();
                proptest::prop_assert_eq!(schedule.charge_bytes(), charge);
            }
        }
    }
}
