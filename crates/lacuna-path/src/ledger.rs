//! The runs in flight on one channel, in the order of their sequence numbers.
//!
//! The ledger has one entry per run and not per packet, so a burst without loss costs one entry
//! that is pushed and popped once. A run leaves the ledger in one of two ways: the peer reports
//! packets that were sent after it (the run was *passed*, and what is still missing of it is lost),
//! or the run is older than the retransmission timeout (it *expired*). The reliability mode decides
//! what either means for the message.
//!
//! The ledger keeps the send times of some expired runs. Each number is sent once, so a late report
//! of one still gives a round-trip sample; it is the only one on a path whose round trip has become
//! longer than the timeout.

use super::IP_UDP_BYTES;
use super::delivery::Stamp;
use std::collections::VecDeque;
use std::ops::Range;

/// Most expired runs remembered. On a path that has become longer, the oldest is reported first.
const EXPIRED_MAX: usize = 64;

/// A run of packets that is sent together. Only the owner interprets `number` and `packets`; the path
/// returns them when the run is passed or expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Number of the message.
    pub number: u64,
    /// Packets of the message.
    pub packets: Range<u32>,
    /// Pieces that each packet is cut into; 1 if it is sent whole.
    pub pieces: u32,
    /// Of the packets on the wire, those at the end that are shorter than full ones.
    pub short: u32,
    /// UDP payload bytes.
    pub bytes: u64,
}

impl Sent {
    /// Packets on the wire.
    #[inline]
    pub fn count(&self) -> u64 {
        u64::from(self.packets.end - self.packets.start) * u64::from(self.pieces)
    }
}

/// A run in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The run.
    pub sent: Sent,
    /// One past the sequence number of the last packet.
    pub psn_end: u64,
    /// Charge of the run in the peer's socket buffer, see [`charge`].
    pub charge: u64,
    /// When it was sent.
    pub sent_ns: u64,
    /// Wire bytes of all runs of the channel up to this one's end.
    pub wire_end: u64,
    /// Short packets of all runs of the channel up to this one's end.
    pub short_end: u64,
    /// Totals when it was sent: the base of a delivery-rate sample.
    pub stamp: Stamp,
}

impl LedgerEntry {
    /// Packets on the wire.
    #[inline]
    pub fn count(&self) -> u64 {
        self.sent.count()
    }

    /// Of those, the short ones, at the end.
    #[inline]
    pub fn short(&self) -> u32 {
        self.sent.short
    }

    /// UDP payload and the headers of IP and UDP.
    #[inline]
    pub fn wire_bytes(&self) -> u64 {
        self.sent.bytes + self.count() * IP_UDP_BYTES
    }
}

/// Upper bound on what `packets` packets with `bytes` of UDP payload in all are charged in a
/// receiver's socket buffer, in the kernel's own unit.
///
/// Linux charges each packet's buffer (`truesize`), not its payload: a linear
/// buffer is rounded up to a power of two (4,132 B to 8,192) and carries about
/// 640 B of headroom, shared info and `struct sk_buff`. Coalesced bundles cost
/// less; charging them alike errs on the safe side.
#[inline]
pub fn charge(packets: u64, bytes: u64) -> u64 {
    packets * 640 + 2 * bytes
}

/// The runs in flight on one channel.
#[derive(Debug)]
pub struct Ledger {
    next_psn: u64,
    entries: VecDeque<LedgerEntry>,
    /// Expired runs: their numbers, and when they were sent.
    expired: VecDeque<(Range<u64>, u64)>,
    in_flight_bytes: u64,
    in_flight_charge: u64,
    /// Wire bytes of all runs ever sent.
    wire_bytes: u64,
    /// Short packets of all runs ever sent.
    short_packets: u64,
}

impl Ledger {
    /// An empty ledger whose first packet gets `first_psn`.
    pub fn new(first_psn: u32) -> Self {
        Self {
            next_psn: u64::from(first_psn),
            entries: VecDeque::new(),
            expired: VecDeque::new(),
            in_flight_bytes: 0,
            in_flight_charge: 0,
            wire_bytes: 0,
            short_packets: 0,
        }
    }

    /// The next sequence number.
    #[inline]
    pub fn next_psn(&self) -> u64 {
        self.next_psn
    }

    /// UDP payload bytes in flight.
    #[inline]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Charge of what is in flight.
    #[inline]
    pub fn in_flight_charge(&self) -> u64 {
        self.in_flight_charge
    }

    /// When the oldest run in flight was sent.
    #[inline]
    pub fn oldest_sent_ns(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.sent_ns)
    }

    /// Wire bytes of all runs ever sent.
    #[inline]
    pub fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// Short packets of all runs ever sent.
    pub fn short_packets(&self) -> u64 {
        self.short_packets
    }

    /// Adds a run and sets its `psn_end`, `wire_end` and `short_end`. Returns its first number.
    pub fn push(&mut self, mut entry: LedgerEntry) -> u64 {
        let first_psn = self.next_psn;
        self.next_psn += entry.count();
        entry.psn_end = self.next_psn;
        self.wire_bytes += entry.wire_bytes();
        entry.wire_end = self.wire_bytes;
        self.short_packets += u64::from(entry.short());
        entry.short_end = self.short_packets;
        self.in_flight_bytes += entry.sent.bytes;
        self.in_flight_charge += entry.charge;
        self.entries.push_back(entry);
        first_psn
    }

    /// One past the last number in flight that was sent by `sent_ns`.
    pub fn psn_sent_by(&self, sent_ns: u64) -> Option<u64> {
        let index = self.entries.partition_point(|entry| entry.sent_ns <= sent_ns);
        Some(self.entries.get(index.checked_sub(1)?)?.psn_end)
    }

    /// Takes the oldest run if all of it is before `psn`.
    #[inline]
    pub fn pop_passed(&mut self, psn: u64) -> Option<LedgerEntry> {
        self.pop_if(|entry| entry.psn_end <= psn)
    }

    /// Takes the oldest run if it was sent at or before `sent_ns`.
    pub fn pop_expired(&mut self, sent_ns: u64) -> Option<LedgerEntry> {
        let entry = self.pop_if(|entry| entry.sent_ns <= sent_ns)?;
        // Keep the oldest expired runs, because they are reported first.
        if self.expired.len() < EXPIRED_MAX {
            let psns = entry.psn_end - entry.count()..entry.psn_end;
            self.expired.push_back((psns, entry.sent_ns));
        }
        Some(entry)
    }

    /// `psn`, which is in no run in flight, was reported. Returns when it was sent, if its run has
    /// expired. Forgets all earlier runs.
    pub fn take_expired(&mut self, psn: u64) -> Option<u64> {
        let before = self.expired.partition_point(|(psns, _)| psns.end <= psn);
        self.expired.drain(..before);
        let (psns, sent_ns) = self.expired.front()?;
        psns.contains(&psn).then_some(*sent_ns)
    }

    fn pop_if(&mut self, due: impl FnOnce(&LedgerEntry) -> bool) -> Option<LedgerEntry> {
        if !self.entries.front().is_some_and(due) {
            return None;
        }
        let entry = self.entries.pop_front()?;
        self.in_flight_bytes -= entry.sent.bytes;
        self.in_flight_charge -= entry.charge;
        Some(entry)
    }

    /// The run that holds sequence number `psn`, if it is still in flight.
    pub fn find(&self, psn: u64) -> Option<&LedgerEntry> {
        let index = self.entries.partition_point(|entry| entry.psn_end <= psn);
        let entry = self.entries.get(index)?;
        (entry.psn_end - entry.count() <= psn).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(packets: Range<u32>, sent_ns: u64) -> LedgerEntry {
        LedgerEntry {
            sent: Sent { number: 1, packets, pieces: 1, short: 0, bytes: 1000 },
            psn_end: 0,
            charge: 2000,
            sent_ns,
            wire_end: 0,
            short_end: 0,
            stamp: Stamp::default(),
        }
    }

    #[test]
    fn runs_leave_when_all_their_packets_were_passed() {
        let mut ledger = Ledger::new(5);
        assert_eq!(ledger.push(entry(0..4, 10)), 5);
        assert_eq!(ledger.push(entry(4..6, 20)), 9);
        assert_eq!((ledger.next_psn(), ledger.in_flight_bytes()), (11, 2000));
        assert_eq!(ledger.pop_passed(8), None);
        assert_eq!(ledger.pop_passed(10).unwrap().sent.packets, 0..4);
        assert_eq!(ledger.pop_passed(10), None);
        assert_eq!(ledger.in_flight_charge(), 2000);
        assert_eq!(ledger.pop_expired(19), None);
        assert_eq!(ledger.pop_expired(20).unwrap().sent.packets, 4..6);
        assert_eq!((ledger.in_flight_bytes(), ledger.in_flight_charge()), (0, 0));
    }

    #[test]
    fn when_an_expired_run_was_sent_is_told_once_and_not_guessed() {
        let mut ledger = Ledger::new(0);
        for run in 0..3 * EXPIRED_MAX as u64 {
            ledger.push(entry(0..2, run));
        }
        assert_eq!(ledger.take_expired(0), None, "in flight");
        while ledger.pop_expired(1000).is_some() {}
        assert_eq!(ledger.take_expired(3), Some(1));
        assert_eq!(ledger.take_expired(1), None, "before what was told");
        assert_eq!(ledger.take_expired(4), Some(2));
        assert_eq!(ledger.take_expired(4 * EXPIRED_MAX as u64), None, "not kept");
        assert!(ledger.expired.is_empty());
    }

    #[test]
    fn a_sequence_number_finds_its_run() {
        let mut ledger = Ledger::new(0);
        ledger.push(entry(0..4, 10));
        ledger.push(entry(8..10, 20));
        assert_eq!(ledger.find(3).unwrap().sent.packets, 0..4);
        assert_eq!(ledger.find(4).unwrap().sent.packets, 8..10);
        assert_eq!(ledger.find(6), None);
    }

    #[test]
    fn the_charge_covers_what_linux_accounts() {
        // truesize of linear buffers: payload + 36 B of ours, 28 B of headers,
        // 320 B shared info and headroom, rounded up by the slab, + 256 B.
        for (payload, truesize) in [(64, 768), (1400, 2304), (4096, 8448), (8192, 16640)] {
            assert!(charge(1, payload + 36) >= truesize, "{payload}");
        }
    }
}
