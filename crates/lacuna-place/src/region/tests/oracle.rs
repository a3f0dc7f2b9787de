//! Random overlapping writes by several writers, one after the other against an oracle, and all at once.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const REGION_BYTES: usize = 6000;
const WRITERS: usize = 4;
/// What no writer writes.
const NOTHING: u8 = 0;

/// A message under way, and which of its packets arrived.
struct Open {
    message: Message,
    byte: u8,
    has: Vec<bool>,
}

/// What should be in the region and in its map.
struct Oracle {
    bytes: Vec<u8>,
    /// By byte: some writer wrote it.
    written: Vec<bool>,
    /// By granule.
    marked: Vec<bool>,
}

impl Oracle {
    fn new() -> Self {
        Self {
            bytes: vec![NOTHING; REGION_BYTES],
            written: vec![false; REGION_BYTES],
            marked: vec![false; REGION_BYTES.div_ceil(64)],
        }
    }

    /// A packet has arrived: the message's arrived bytes cover the granules that are marked.
    fn place(&mut self, open: &Open, packet: u32, key_start: usize) {
        let at = |packet: u32| {
            let start = key_start + open.message.base as usize + packet as usize * MTU;
            start..start + open.message.bytes_of(packet)
        };
        self.bytes[at(packet)].fill(open.byte);
        self.written[at(packet)].fill(true);
        let mut here = vec![false; REGION_BYTES];
        for other in 0..open.message.packets() {
            if open.has[other as usize] {
                here[at(other)].fill(true);
            }
        }
        let range = at(packet);
        for granule in range.start / 64..range.end.div_ceil(64) {
            let end = (granule * 64 + 64).min(REGION_BYTES);
            self.marked[granule] |= here[granule * 64..end].iter().all(|here| *here);
        }
    }
}

#[test]
fn random_overlapping_writes_are_those_of_the_oracle() {
    const PACKETS: u64 = 100_000;
    let mut rng = SplitMix64::new(42);
    let mut target = Target::new(REGION_BYTES, WITH_MAP);
    // Windows that begin within a granule, within a word, and overlap.
    let windows: Vec<(u32, usize, usize)> = [(0, 6000), (1000, 4000), (77, 1900), (2003, 5998)]
        .into_iter()
        .map(|(start, end)| {
            let range = start as u64..end as u64;
            (target.register(range, Rights::REMOTE_WRITE, Scope::Any), start, end - start)
        })
        .collect();
    let mut ends: Vec<End> =
        (0..WRITERS).map(|peer| End::new(&target.keys, peer as u64, 2, None)).collect();
    let mut open: [Vec<(Open, usize, Arc<Receive>)>; WRITERS] = Default::default();
    let mut numbers = [0u64; WRITERS];
    let mut oracle = Oracle::new();
    let (mut placed, mut taken, mut claimed) = (0, 0, 0u64);
    while placed < PACKETS {
        let writer = rng.below(WRITERS as u64) as usize;
        let end = &mut ends[writer];
        if open[writer].len() < 3 {
            let (key, start, len) = windows[rng.below(windows.len() as u64) as usize];
            let bytes = 1 + rng.below(900) as usize;
            let base = rng.below((len - bytes) as u64 + 1);
            let number = numbers[writer];
            numbers[writer] += 1;
            let message = Message { number, key, base, bytes };
            let byte = rng.below(255) as u8 + 1;
            let has = vec![false; message.packets() as usize];
            // A message that stays incomplete for long makes room in its slot.
            if !end.table.is_free(number) {
                open[writer].retain(|(open, ..)| open.message.number + 16 != number);
                assert!(end.table.close(number - 16).is_some());
            }
            let receive = end.post(number);
            open[writer].push((Open { message, byte, has }, start, receive));
        }
        let which = rng.below(open[writer].len() as u64) as usize;
        let (message, start, receive) = &mut open[writer][which];
        let packet = rng.below(u64::from(message.message.packets())) as u32;
        let summary = end.place(message.message, packet, message.byte);
        let is_new = !std::mem::replace(&mut message.has[packet as usize], true);
        assert_eq!((summary.packets, summary.duplicates), (u64::from(is_new), u64::from(!is_new)));
        if is_new {
            placed += 1;
            oracle.place(message, packet, *start);
        }
        let is_whole = message.has.iter().all(|has| *has);
        assert_eq!(receive.record().is_complete(), is_whole);
        // Some messages end incomplete.
        if is_whole || rng.chance(20_000) {
            assert!(end.table.close(message.message.number).is_some());
            open[writer].swap_remove(which);
        }
        if rng.chance(10_000) {
            let from = rng.below(REGION_BYTES as u64);
            let to = from + rng.below(REGION_BYTES as u64);
            let granules = target.region.validity().unwrap().take(from..to);
            taken += 1;
            for granule in 0..oracle.marked.len() {
                let (first, last) = (granule as u64 * 64, (granule as u64 * 64 + 64).min(6000));
                let is_inside = from <= first && last <= to;
                let expected = is_inside && std::mem::take(&mut oracle.marked[granule]);
                if !is_inside && granules.contains(first) {
                    panic!("granule {granule} is outside");
                }
                assert_eq!(granules.contains(first), expected, "granule {granule}");
            }
            for range in granules.ranges() {
                let range = range.start as usize..range.end as usize;
                claimed += range.len() as u64;
                assert!(oracle.written[range].iter().all(|written| *written));
            }
        }
        if placed % 64 == 0 {
            assert_eq!(target.bytes(), oracle.bytes);
            let marks = target.region.validity().unwrap().copy(0..REGION_BYTES as u64);
            for (granule, is_marked) in oracle.marked.iter().enumerate() {
                assert_eq!(marks.contains(granule as u64 * 64), *is_marked, "granule {granule}");
            }
        }
    }
    assert!(taken > 500 && claimed > 1 << 20);
}

#[test]
fn writers_at_once_leave_whole_words_and_readers_take_only_what_was_written() {
    const PACKETS_EACH: u64 = 25_000;
    let mut target = Target::new(REGION_BYTES, WITH_MAP);
    let keys: Vec<u32> = (0..3)
        .map(|_| target.register(0..REGION_BYTES as u64, Rights::REMOTE_WRITE, Scope::Any))
        .collect();
    let mut ends: Vec<End> =
        (0..WRITERS).map(|peer| End::new(&target.keys, peer as u64, 2, None)).collect();
    let (writing, taken) = (AtomicU64::new(WRITERS as u64), AtomicU64::new(0));
    let is_checked = AtomicBool::new(false);
    let region = &target.region;
    std::thread::scope(|scope| {
        for (writer, end) in ends.iter_mut().enumerate() {
            let (keys, writing) = (&keys, &writing);
            scope.spawn(move || {
                let mut rng = SplitMix64::new(writer as u64);
                let (mut placed, mut number) = (0, 0);
                while placed < PACKETS_EACH {
                    let key = keys[rng.below(3) as usize];
                    let bytes = 1 + rng.below(900) as usize;
                    let base = rng.below((REGION_BYTES - bytes) as u64 + 1);
                    let message = Message { number, key, base, bytes };
                    let receive = end.post(number);
                    // The queue pair's two workers place their packets at the same time.
                    let geometry = end.geometry;
                    let place = |worker: &mut ChannelWriter| {
                        let mut placed = 0;
                        for packet in 0..message.packets() {
                            let header = message.header(&geometry, packet);
                            if header.dest.channel() == worker.channel() {
                                let payload = [writer as u8 + 1; MTU];
                                let payload = &payload[..message.bytes_of(packet)];
                                let mut placer = worker.burst();
                                placer.place(&header, payload, false);
                                placed += placer.finish().packets;
                            }
                        }
                        placed
                    };
                    let [first, second] = &mut end.writers[..] else { unreachable!() };
                    // A thread for each message is slow; one in sixteen is enough.
                    placed += if number % 16 == 0 {
                        std::thread::scope(|both| {
                            let first = both.spawn(|| place(first));
                            place(second) + first.join().unwrap()
                        })
                    } else {
                        place(first) + place(second)
                    };
                    assert!(receive.record().is_complete());
                    assert!(end.table.close(number).is_some());
                    number += 1;
                }
                writing.fetch_sub(1, Ordering::Release);
            });
        }
        let (writing, taken, is_checked) = (&writing, &taken, &is_checked);
        scope.spawn(move || {
            let mut rng = SplitMix64::new(99);
            while writing.load(Ordering::Acquire) > 0 {
                let from = rng.below(REGION_BYTES as u64 / 2);
                let granules = region.validity().unwrap().take(from..from + 3000);
                for range in granules.ranges() {
                    let mut bytes = vec![0; (range.end - range.start) as usize];
                    region.read(range.start, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte != NOTHING), "{range:?}");
                    taken.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                }
                std::thread::yield_now();
            }
            is_checked.store(true, Ordering::Relaxed);
        });
    });
    assert!(is_checked.into_inner() && taken.into_inner() > 1 << 16);
    assert!(target.bytes().iter().all(|byte| usize::from(*byte) <= WRITERS));
    for key in keys.iter().chain([&target.key]) {
        assert!(target.keys.revoke(*key));
    }
    assert!(target.region.into_memory().is_ok());
}
