//! Path memory: saved parameters of paths, so that the next flow can start at the known rate (Careful
//! Resume, RFC 9959, section 3.1).
//!
//! A record has the rate that the path accepted (delivered, plus the path's own loss), the smallest
//! round trip, and the time. The start rate depends on the record's age and on whether the round trip
//! measured while connecting is still the same: another path, or one with a queue, does not get the
//! whole rate. The RFC jumps to at most half of the rate. Here a record of the last minutes with the
//! same round trip gives the whole rate; `controller/bbr/start.rs` says why that is no more load than
//! slow start.
//!
//! The caller passes in the time and stores the text. Anybody may have edited the file, so each line
//! is checked, and invalid lines are skipped.

use super::controller::StartRate;
use super::loss::LossEstimate;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Age up to which a record is believed as a whole: other flows on a path change within minutes. A
/// judgement.
const FRESH_S: u64 = 600;
/// Age beyond which a record is ignored. A judgement.
const AGE_S_MAX: u64 = 24 * 3600;
/// A round trip longer by more than one part in so many, and by more than hosts take
/// while they connect, is not the same. Measured: M-path-5.
const SAME_RTT_PART: u64 = 8;
const SAME_RTT_NS: u64 = 1_000_000;
/// RFC 9959, 3.5: a round trip below half or above ten times the saved one is another path.
const RTT_TIMES: (u64, u64) = (2, 10);
/// Least start rate of one of many flows, per round trip: the initial window of RFC 6928. The path's
/// known rate is a further limit.
const INITIAL_WINDOW_BYTES: u64 = 10 * 1500;
/// For this time, a lower rate found by one of several flows does not replace the path's known rate,
/// because it is only a share. Measured: M-path-6.
const SHARED_S: u64 = 60;
/// Largest weight of remembered losses, in packets: enough to have seen a dozen bursts of eight at
/// a loss of one in a thousand. Measured: M-path-7.
const EVIDENCE_PACKETS_MAX: f64 = 100_000.0;
/// Weight for each burst that was seen, on top of [`EVIDENCE_PACKETS_KEPT`]: many packets without a
/// loss show less than one message with some.
const EVIDENCE_PACKETS_PER_BURST: f64 = 8000.0;
/// Time in which the weight halves, as within a flow (`loss.rs`), and the least weight while the
/// record is fresh; a quarter of it later.
const EVIDENCE_HALF_LIFE_S: f64 = 30.0;
const EVIDENCE_PACKETS_KEPT: f64 = 4000.0;
/// Most records; the oldest is dropped.
const RECORDS_MAX: usize = 1024;
/// Longest key in a text.
const KEY_BYTES_MAX: usize = 64;

/// Saved parameters of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathRecord {
    /// Wire bits per second that the path accepted without a queue.
    pub rate_bits_per_s: u64,
    /// Smallest round trip.
    pub min_rtt_ns: u64,
    /// When it was saved, in seconds since 1970.
    pub saved_s: u64,
    /// Its losses, if known.
    pub losses: Option<PathLosses>,
}

/// How a path loses packets, in whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathLosses {
    /// Lost packets in 10^9.
    pub lost_ppb: u32,
    /// Mean packets lost in a row, in thousandths.
    pub burst_thousandths: u32,
    /// Number of packets observed.
    pub packets: u32,
}

/// Records by path: the owner's name for it, such as the peer's address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathMemory {
    records: BTreeMap<String, PathRecord>,
}

impl PathRecord {
    /// The rate to begin at, for one of `flows` that share it now.
    pub fn start_rate(&self, now_s: u64, rtt_ns: u64, flows: u64) -> Option<StartRate> {
        let age_s = now_s.saturating_sub(self.saved_s);
        let is_this_path = rtt_ns >= self.min_rtt_ns / RTT_TIMES.0
            && rtt_ns <= self.min_rtt_ns.saturating_mul(RTT_TIMES.1);
        if age_s > AGE_S_MAX || !is_this_path || self.rate_bits_per_s == 0 {
            return None;
        }
        let longer_ns = (self.min_rtt_ns / SAME_RTT_PART).max(SAME_RTT_NS);
        let same_ns = self.min_rtt_ns.saturating_add(longer_ns);
        let parts = if age_s <= FRESH_S && rtt_ns <= same_ns { 1 } else { 2 };
        let whole = self.rate_bits_per_s / parts;
        let window_bits = 8 * u128::from(INITIAL_WINDOW_BYTES);
        let least = window_bits * 1_000_000_000 / u128::from(rtt_ns.max(1));
        let least = u64::try_from(least).unwrap_or(u64::MAX).min(whole);
        let rate_bits_per_s = (whole / flows.max(1)).max(least);
        Some(StartRate { rate_bits_per_s: rate_bits_per_s.max(1) })
    }
}

impl PathLosses {
    /// A share of lost packets, in bursts of this mean length, observed in this many packets.
    pub fn new(loss: f64, burst_packets: f64, packets: f64) -> Self {
        // Casts from floating point stay within the bounds of the integer.
        Self {
            lost_ppb: (loss.clamp(0.0, 1.0) * 1e9) as u32,
            burst_thousandths: (burst_packets.max(1.0) * 1e3) as u32,
            packets: packets.max(0.0) as u32,
        }
    }

    /// The observed part of an estimate.
    pub fn of(found: &LossEstimate) -> Self {
        Self::new(found.loss(), found.seen_burst_packets(), found.seen_packets())
    }

    /// Share of packets lost.
    pub fn loss(&self) -> f64 {
        f64::from(self.lost_ppb) / 1e9
    }

    /// Mean packets lost in a row.
    pub fn burst_packets(&self) -> f64 {
        (f64::from(self.burst_thousandths) / 1e3).max(1.0)
    }

    /// Weight as evidence at this age of the record, in packets. It is bounded, because a message
    /// soon shows more about the path itself.
    pub fn evidence_packets(&self, age_s: u64) -> f64 {
        let packets = f64::from(self.packets);
        let bursts = packets * self.loss() / self.burst_packets();
        let most = EVIDENCE_PACKETS_KEPT + EVIDENCE_PACKETS_PER_BURST * bursts;
        let kept = packets.min(EVIDENCE_PACKETS_KEPT);
        match age_s {
            0..=FRESH_S => {
                let fades = (-(age_s as f64) / EVIDENCE_HALF_LIFE_S).exp2();
                (packets.min(most).min(EVIDENCE_PACKETS_MAX) * fades).max(kept)
            }
            _ if age_s <= AGE_S_MAX => kept / 4.0,
            _ => 0.0,
        }
    }
}

impl PathMemory {
    /// Stores a new record in place of the path's old one.
    pub fn save(&mut self, key: &str, record: PathRecord) {
        if !is_key(key) {
            return;
        }
        self.records.insert(key.to_owned(), record);
        if self.records.len() > RECORDS_MAX {
            let oldest = self.records.iter().min_by_key(|(_, record)| record.saved_s);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.records.remove(&oldest);
            }
        }
    }

    /// Stores the record of one of several flows on a path. Its rate is only a share, so a recent,
    /// higher rate of the path is kept.
    pub fn save_share(&mut self, key: &str, record: PathRecord) {
        let known = self.get(key).filter(|known| {
            known.rate_bits_per_s > record.rate_bits_per_s
                && record.saved_s <= known.saved_s.saturating_add(SHARED_S)
                && known.start_rate(record.saved_s, record.min_rtt_ns, 1).is_some()
        });
        let record = match known {
            // A flow that was never alone has measured the round trip with a queue.
            Some(&PathRecord { rate_bits_per_s, saved_s, min_rtt_ns, .. }) => {
                let min_rtt_ns = min_rtt_ns.min(record.min_rtt_ns);
                PathRecord { rate_bits_per_s, saved_s, min_rtt_ns, ..record }
            }
            None => record,
        };
        self.save(key, record);
    }

    /// The record of a path.
    pub fn get(&self, key: &str) -> Option<&PathRecord> {
        self.records.get(key)
    }

    /// Takes over newer records of another memory, at `now_s`. Records from the future, of a clock
    /// that was ahead, are left out: their age is unknown, and they would stay the newest.
    pub fn merge(&mut self, other: &Self, now_s: u64) {
        for (key, record) in &other.records {
            let is_newer = self.get(key).is_none_or(|kept| kept.saved_s < record.saved_s);
            if is_newer && record.saved_s <= now_s.saturating_add(FRESH_S) {
                self.save(key, *record);
            }
        }
    }

    /// The records as text, a line each.
    pub fn to_text(&self) -> String {
        let mut text = String::from(
            "# lacuna paths: address, bit/s, round trip in ns, unix time; \
             lost of 1e9, a thousand times the burst, seen in packets\n",
        );
        for (key, record) in &self.records {
            let PathRecord { rate_bits_per_s, min_rtt_ns, saved_s, losses } = record;
            // Writing to a string cannot fail.
            let _ = write!(text, "{key} {rate_bits_per_s} {min_rtt_ns} {saved_s}");
            if let Some(PathLosses { lost_ppb, burst_thousandths, packets }) = losses {
                let _ = write!(text, " {lost_ppb} {burst_thousandths} {packets}");
            }
            text.push('\n');
        }
        text
    }

    /// Reads the text of [`PathMemory::to_text`]. Returns also how many lines were wrong.
    pub fn from_text(text: &str) -> (Self, usize) {
        let mut memory = Self::default();
        let mut refused = 0;
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            match parse(line) {
                Some((key, record)) => memory.save(key, record),
                None => refused += 1,
            }
        }
        (memory, refused)
    }
}

fn parse(line: &str) -> Option<(&str, PathRecord)> {
    let mut words = line.split_ascii_whitespace();
    let key = words.next().filter(|key| is_key(key))?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (rate_bits_per_s, min_rtt_ns, saved_s) = (number()?, number()?, number()?);
    let is_sane = rate_bits_per_s > 0 && (1..=60_000_000_000).contains(&min_rtt_ns);
    // Lines of older versions end here.
    let losses = match words.clone().next() {
        None => None,
        Some(_) => {
            let mut number = || words.next()?.parse::<u32>().ok();
            let (lost_ppb, burst_thousandths) = (number()?, number()?);
            Some(PathLosses { lost_ppb, burst_thousandths, packets: number()? })
        }
    };
    let is_sane = is_sane && losses.is_none_or(|losses| losses.lost_ppb <= 1_000_000_000);
    let record = PathRecord { rate_bits_per_s, min_rtt_ns, saved_s, losses };
    (is_sane && words.next().is_none()).then_some((key, record))
}

fn is_key(key: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RECORD: PathRecord = PathRecord {
        rate_bits_per_s: 1_000_000_000,
        min_rtt_ns: 40 * MS,
        saved_s: 100_000,
        losses: None,
    };

    fn rate(now_s: u64, rtt_ms: u64, flows: u64) -> Option<u64> {
        RECORD.start_rate(now_s, rtt_ms * MS, flows).map(|start| start.rate_bits_per_s)
    }

    #[test]
    fn a_fresh_record_of_the_same_path_is_believed() {
        assert_eq!(rate(100_100, 41, 1), Some(1_000_000_000));
        assert_eq!(rate(100_100, 41, 4), Some(250_000_000), "shared with those that send now");
        // A clock that was set back makes nothing older.
        assert_eq!(rate(99_000, 41, 1), Some(1_000_000_000));
    }

    #[test]
    fn an_old_record_or_a_longer_round_trip_counts_half_or_nothing() {
        assert_eq!(rate(101_000, 41, 1), Some(500_000_000));
        assert_eq!(rate(100_100, 60, 1), Some(500_000_000));
        assert_eq!(rate(100_100, 401, 1), None);
        assert_eq!(rate(100_100, 19, 1), None);
        assert_eq!(rate(100_000 + AGE_S_MAX + 1, 41, 1), None);
    }

    #[test]
    fn one_of_many_begins_with_a_window_that_nobody_need_know_a_path_for() {
        assert_eq!(rate(100_100, 40, 1000), Some(10 * 1500 * 8 * 25), "and not 1 Mbit/s");
        let narrow = PathRecord { rate_bits_per_s: 1_000_000, ..RECORD };
        let start = narrow.start_rate(100_100, 40 * MS, 300).unwrap();
        assert_eq!(start.rate_bits_per_s, 1_000_000, "all that the path carries");
    }

    #[test]
    fn what_flows_find_that_share_a_path_lowers_nothing_for_a_while() {
        let after = |share: PathRecord| {
            let mut memory = PathMemory::default();
            memory.save("a", RECORD);
            memory.save_share("a", share);
            *memory.get("a").unwrap()
        };
        let losses = Some(PathLosses::new(1e-3, 2.5, 1e6));
        let share = PathRecord { rate_bits_per_s: 5, losses, ..RECORD };
        let soon = after(PathRecord { saved_s: RECORD.saved_s + SHARED_S, ..share });
        assert_eq!(soon, PathRecord { losses, ..RECORD }, "of the same age");
        let queued = after(PathRecord { min_rtt_ns: 90 * MS, ..share });
        assert_eq!(queued.min_rtt_ns, RECORD.min_rtt_ns);
        let shorter = after(PathRecord { min_rtt_ns: 39 * MS, ..share });
        assert_eq!(shorter.min_rtt_ns, 39 * MS);
        let late = PathRecord { saved_s: RECORD.saved_s + SHARED_S + 1, ..share };
        assert_eq!(after(late), late);
        let elsewhere = PathRecord { min_rtt_ns: 900 * MS, ..share };
        assert_eq!(after(elsewhere), elsewhere);
        let more = PathRecord { rate_bits_per_s: 2 * RECORD.rate_bits_per_s, ..share };
        assert_eq!(after(more), more);
    }

    #[test]
    fn a_short_path_is_the_same_behind_hosts_that_take_their_time() {
        let record = PathRecord { min_rtt_ns: MS, ..RECORD };
        let rate = |rtt_ns| {
            record.start_rate(100_100, rtt_ns, 1).map(|start| start.rate_bits_per_s / 1_000_000)
        };
        assert_eq!(rate(1_500_000), Some(1000));
        assert_eq!(rate(3 * MS), Some(500));
        assert_eq!(rate(11 * MS), None);
    }

    #[test]
    fn remembered_losses_are_some_evidence_and_less_when_old() {
        let losses = PathLosses::new(1e-2, 1.0, 1e6);
        assert_eq!(losses.evidence_packets(0), EVIDENCE_PACKETS_MAX);
        assert_eq!(losses.evidence_packets(30), EVIDENCE_PACKETS_MAX / 2.0);
        assert_eq!(losses.evidence_packets(FRESH_S), EVIDENCE_PACKETS_KEPT);
        assert!(losses.evidence_packets(FRESH_S + 1) < EVIDENCE_PACKETS_KEPT / 2.0);
        assert_eq!(losses.evidence_packets(AGE_S_MAX + 1), 0.0);
        assert_eq!(PathLosses::new(1e-2, 1.0, 7.0).evidence_packets(10), 7.0);
        let few = PathLosses::new(1e-2, 1.0, 20_000.0);
        assert_eq!(few.evidence_packets(30), 10_000.0);
        let clean = PathLosses::new(0.0, 1.0, 1e6);
        assert_eq!(clean.evidence_packets(0), EVIDENCE_PACKETS_KEPT, "nothing to forget");
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut memory = PathMemory::default();
        memory.save("10.0.0.1", RECORD);
        let losses = Some(PathLosses::new(1e-3, 2.5, 1e6));
        memory.save("fe80::1", PathRecord { saved_s: 7, losses, ..RECORD });
        assert_eq!(PathMemory::from_text(&memory.to_text()), (memory, 0));
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let text = "10.0.0.1 5 6 7\n\n# note\nx\n10.0.0.2 5 6\n10.0.0.3 5 6 7 8\n10.0.0.4 0 6 7\n\
                    10.0.0.7 5 6 7 8 9 10 11\n10.0.0.8 5 6 7 2000000000 1000 5\n\
                    10.0.0.5 5 99999999999999 7\n10.0.0.6 -1 6 7\n\u{1}x 5 6 7";
        let (memory, refused) = PathMemory::from_text(text);
        assert_eq!((memory.records.len(), refused), (1, 9));
        assert!(memory.get("10.0.0.1").is_some());
    }

    #[test]
    fn of_two_memories_the_newer_record_counts_but_none_of_a_clock_that_was_ahead() {
        let of = |saved_s| {
            let mut memory = PathMemory::default();
            memory.save("a", PathRecord { saved_s, ..RECORD });
            memory
        };
        let merged = |ours, theirs| {
            let mut memory = of(ours);
            memory.merge(&of(theirs), 100_000);
            memory.get("a").map(|record| record.saved_s)
        };
        assert_eq!(merged(8, 9), Some(9));
        assert_eq!(merged(9, 8), Some(9));
        assert_eq!(merged(8, 100_010), Some(100_010), "clocks differ");
        assert_eq!(merged(8, 200_000), Some(8));
    }

    #[test]
    fn what_is_found_now_replaces_a_record_whatever_its_time_and_there_is_a_bound() {
        let mut memory = PathMemory::default();
        memory.save("a", PathRecord { saved_s: 9, ..RECORD });
        memory.save("a", PathRecord { saved_s: 8, ..RECORD });
        assert_eq!(memory.get("a").map(|record| record.saved_s), Some(8));
        for index in 0..2 * RECORDS_MAX as u64 {
            memory.save(&format!("b{index}"), PathRecord { saved_s: 10 + index, ..RECORD });
        }
        assert_eq!(memory.records.len(), RECORDS_MAX);
        assert_eq!(memory.get("a"), None);
    }
}
