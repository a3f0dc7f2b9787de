//! Erasure coding with repair by submessage, drawn on a link that carries one chunk at a time: what
//! [`StreamedCoding`](crate::StreamedCoding) computes.
//!
//! Submessages pass the link in order, each with its parity. What one misses for good goes out
//! again one timeout after its end, before any submessage that has not begun. Losses are drawn for
//! the whole message, so between them a trial does nothing but count submessages.

use super::Sample;
use super::losses::Link;
use crate::{Code, CodeKind, ModelError, Random, RepairTiming, StreamedCoding, Transfer};
use std::collections::{BTreeMap, VecDeque};

/// See the module's text. Without [`RepairTiming::wire_time`] repairs delay nothing.
#[derive(Debug, Clone)]
pub struct StreamedSampler {
    transfer: Transfer,
    code: Code,
    timing: RepairTiming,
}

/// Chunks that go out again.
struct Repair {
    start_s: f64,
    chunks: u64,
}

impl StreamedSampler {
    /// A message with this code.
    ///
    /// # Errors
    ///
    /// As [`StreamedCoding::new`].
    pub fn new(transfer: &Transfer, code: Code, timing: RepairTiming) -> Result<Self, ModelError> {
        StreamedCoding::new(transfer, code, timing)?;
        let code = code.shortened_to(transfer.chunks());
        Ok(Self { transfer: *transfer, code, timing })
    }

    /// Data chunks that each submessage misses for good, where any are; the submessages ascend.
    fn failed(&self, random: &mut Random) -> Vec<(u64, u64)> {
        let (k, m) = (u64::from(self.code.k()), u64::from(self.code.m()));
        let chunks = self.transfer.chunks();
        let (whole, tail) = (chunks / k, chunks % k);
        let tail_parity = if tail > 0 { self.code.shortened_to(tail).m() } else { 0 };
        let mut lost: BTreeMap<u64, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
        // Parity follows its data at once.
        let sent = chunks + whole * m + u64::from(tail_parity);
        Link::new(self.transfer.loss(), random).pass_all(sent, random, |chunk| {
            let (index, place) = (chunk / (k + m), chunk % (k + m));
            let data = k.min(chunks - index * k);
            let (of_data, of_parity) = lost.entry(index).or_default();
            if place < data {
                of_data.push(place as u32);
            } else {
                of_parity.push((place - data) as u32);
            }
        });
        let missing = |(index, (data, parity)): (u64, (Vec<u32>, Vec<u32>))| {
            let code = self.code.shortened_to(chunks - index * k);
            (index, unrepaired(code, &data, &parity))
        };
        lost.into_iter().map(missing).filter(|(_, chunks)| *chunks > 0).collect()
    }
}

/// How many of the lost data chunks parity does not bring back.
fn unrepaired(code: Code, data: &[u32], parity: &[u32]) -> u64 {
    match code.kind() {
        CodeKind::Mds if data.len() + parity.len() <= code.m() as usize => 0,
        CodeKind::Mds => data.len() as u64,
        CodeKind::Xor => {
            let group = |chunk: &u32| chunk % code.m();
            let in_group = |of| data.iter().filter(|chunk| group(chunk) == of).count();
            let is_missing = |of: u32| in_group(of) > 1 || parity.contains(&of);
            data.iter().filter(|chunk| is_missing(group(chunk))).count() as u64
        }
    }
}

impl Sample for StreamedSampler {
    fn sample_s(&self, random: &mut Random) -> f64 {
        let (chunk_s, rtt_s) = (self.transfer.chunk_s(), self.transfer.rtt_s());
        let (k, m) = (u64::from(self.code.k()), u64::from(self.code.m()));
        let chunks = self.transfer.chunks();
        let submessages = chunks.div_ceil(k);
        let wait_s = self.timing.rto_rtts * rtt_s;
        let mut failed = self.failed(random).into_iter().peekable();
        let mut repairs: VecDeque<Repair> = VecDeque::new();
        // When the link is free, and when the last chunk so far has left it.
        let (mut free_s, mut done_s): (f64, f64) = (0.0, 0.0);
        let again =
            |repair: Repair, free_s: f64, repairs: &mut VecDeque<Repair>, random: &mut Random| {
                let start_s =
                    if self.timing.wire_time { repair.start_s.max(free_s) } else { repair.start_s };
                let end_s = start_s + repair.chunks as f64 * chunk_s;
                let mut lost = 0;
                Link::new(self.transfer.loss(), random)
                    .pass_all(repair.chunks, random, |_| lost += 1);
                if lost > 0 {
                    let next = Repair { start_s: end_s + wait_s, chunks: lost };
                    let place = repairs.partition_point(|other| other.start_s <= next.start_s);
                    repairs.insert(place, next);
                }
                end_s
            };
        let mut index = 0;
        while index < submessages {
            if repairs.front().is_some_and(|repair| repair.start_s <= free_s)
                && let Some(repair) = repairs.pop_front()
            {
                let end_s = again(repair, free_s, &mut repairs, random);
                if self.timing.wire_time {
                    free_s = end_s;
                }
                done_s = done_s.max(end_s);
                continue;
            }
            let code = self.code.shortened_to(chunks - index * k);
            free_s += (u64::from(code.k()) + u64::from(code.m())).min(k + m) as f64 * chunk_s;
            done_s = done_s.max(free_s);
            if let Some((_, missing)) = failed.next_if(|(failed, _)| *failed == index) {
                let repair = Repair { start_s: free_s + wait_s, chunks: missing };
                let place = repairs.partition_point(|other| other.start_s <= repair.start_s);
                repairs.insert(place, repair);
            }
            index += 1;
        }
        while let Some(repair) = repairs.pop_front() {
            let end_s = again(repair, free_s, &mut repairs, random);
            free_s = free_s.max(end_s);
            done_s = done_s.max(end_s);
        }
        done_s + rtt_s
    }
}
