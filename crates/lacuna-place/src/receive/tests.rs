//! Compares the bitmaps with a plain list of booleans: any geometry of chunks and words, any order,
//! duplicates, messages shorter than the buffer; and tests packets that contradict each other.

#![allow(unsafe_code)]

use super::{Placed, Position, Receive};
use crate::discard::Discard;
use crate::geometry::{Geometry, GeometryConfig, MTU_BYTES_MIN};
use crate::placement::Placement;
use lacuna_link::SplitMix64;

const MTU: usize = MTU_BYTES_MIN as usize;

fn receive(chunk_packets: u32, capacity: usize) -> Receive {
    let config = GeometryConfig {
        mtu_bytes: MTU_BYTES_MIN,
        chunk_packets,
        stripe_packets: chunk_packets,
        ..GeometryConfig::default()
    };
    Receive::new(0, Geometry::new(config).unwrap(), Placement::from_vec(vec![0; capacity]))
}

fn place(receive: &Receive, packet: u32, payload: &[u8], ends: bool) -> Result<Placed, Discard> {
    let offset = u64::from(packet) * MTU as u64;
    let at = Position { packet, offset, ends_message: ends, carries_immediate: false, fragment: 0 };
    // SAFETY: one thread, and nobody closes the receive.
    unsafe { receive.place(at, payload) }
}

/// The expected record after some packets have arrived, computed the slow way.
struct Oracle {
    chunk_packets: usize,
    /// Packets of the message; of the buffer while its end is unknown.
    packets: Vec<bool>,
    end: Option<usize>,
}

impl Oracle {
    fn message_packets(&self) -> usize {
        self.end.map_or(self.packets.len(), |end| end.div_ceil(MTU).max(1))
    }

    fn has_chunk(&self, chunk: usize) -> bool {
        let first = chunk * self.chunk_packets;
        let end = (first + self.chunk_packets).min(self.message_packets());
        first < end && self.packets[first..end].iter().all(|has| *has)
    }

    fn chunks(&self) -> usize {
        self.message_packets().div_ceil(self.chunk_packets)
    }

    fn check(&self, receive: &Receive, data: &[u8]) {
        let chunks = self.chunks();
        let bits: Vec<bool> = (0..chunks).map(|chunk| self.has_chunk(chunk)).collect();
        let done = bits.iter().filter(|has| **has).count();
        assert_eq!(receive.chunks() as usize, chunks);
        assert_eq!(receive.chunks_done() as usize, done);
        assert_eq!(receive.length_bytes(), self.end.map(|end| end as u64));
        let cumulative = bits.iter().take_while(|has| **has).count();
        assert_eq!(receive.cumulative() as usize, cumulative);
        assert_eq!(receive.is_complete(), done == chunks);
        for (chunk, has) in bits.iter().enumerate() {
            assert_eq!(receive.has_chunk(chunk as u32), *has, "chunk {chunk}");
            let start = chunk * self.chunk_packets * MTU;
            let limit = self.end.unwrap_or(data.len());
            let end = (start + self.chunk_packets * MTU).min(limit);
            let expected = has.then(|| &data[start..end]);
            assert_eq!(receive.chunk(chunk as u32), expected, "chunk {chunk}");
            let first = chunk * self.chunk_packets;
            let mut packets = 0;
            for bit in 0..self.chunk_packets.min(64) {
                packets |= u64::from(self.packets.get(first + bit) == Some(&true)) << bit;
            }
            assert_eq!(receive.chunk_packets(chunk as u32), packets, "chunk {chunk}");
        }
        for (packet, has) in self.packets.iter().enumerate() {
            assert_eq!(receive.has_packet(packet as u32), *has, "packet {packet}");
        }
        assert!(!receive.has_chunk(u32::MAX) && receive.chunk(u32::MAX).is_none());
    }

    fn check_copies(&self, receive: &Receive, out_bytes: usize) {
        let bits: Vec<bool> = (0..self.chunks()).map(|chunk| self.has_chunk(chunk)).collect();
        for first in 0..bits.len() + 70 {
            let mut out = vec![0; out_bytes];
            let used = receive.copy_chunk_bits(first as u32, &mut out);
            let mut last = 0;
            for bit in 0..out_bytes * 8 {
                let has = bits.get(first + bit) == Some(&true);
                assert_eq!(out[bit / 8] >> (bit % 8) & 1 == 1, has, "{first} + {bit}");
                if has {
                    last = bit / 8 + 1;
                }
            }
            assert_eq!(used, last);
        }
    }
}

#[test]
fn the_bitmap_is_what_a_list_of_booleans_says() {
    let mut rng = SplitMix64::new(1);
    for chunk_packets in (1..=130).flat_map(|chunk_packets| [chunk_packets; 3]) {
        let capacity_packets = 1 + rng.below(400) as usize;
        let capacity = capacity_packets * MTU - rng.below(MTU as u64) as usize;
        let short = rng.chance(500_000);
        let len = if short { rng.below(capacity as u64 + 1) as usize } else { capacity };
        let receive = receive(chunk_packets, capacity);
        let data = rng.bytes(capacity);
        let packets = len.div_ceil(MTU).max(1);
        let mut oracle = Oracle {
            chunk_packets: chunk_packets as usize,
            packets: vec![false; capacity_packets],
            end: None,
        };
        let mut order: Vec<usize> = (0..packets).collect();
        // Some in order, some from the back, some shuffled.
        match rng.below(3) {
            0 => {}
            1 => order.reverse(),
            _ => {
                for i in (1..packets).rev() {
                    order.swap(i, rng.below(i as u64 + 1) as usize);
                }
            }
        }
        let checks = rng.below(4) + 1;
        let mut chunks_said = 0;
        for (index, packet) in order.iter().copied().enumerate() {
            let range = packet * MTU..(packet * MTU + MTU).min(len);
            let ends = packet + 1 == packets;
            let placed = place(&receive, packet as u32, &data[range.clone()], ends).unwrap();
            let Placed::New { chunk } = placed else { panic!("{placed:?}") };
            oracle.packets[packet] = true;
            if ends {
                oracle.end = Some(len);
            }
            let own = packet / chunk_packets as usize;
            assert_eq!(chunk, oracle.has_chunk(own).then_some(own as u32));
            chunks_said += u32::from(chunk.is_some());
            // Again, with other bytes: nothing is written.
            let again = place(&receive, packet as u32, &vec![0xEE; range.len()], ends).unwrap();
            assert_eq!(again, Placed::Duplicate { chunk: None });
            if (index as u64).is_multiple_of(packets as u64 / checks + 1) {
                oracle.check(&receive, &data);
            }
        }
        oracle.check(&receive, &data);
        oracle.check_copies(&receive, 1 + rng.below(20) as usize);
        assert!(receive.is_complete());
        assert_eq!(chunks_said, receive.chunks_done());
    }
}

#[test]
fn an_end_learnt_from_a_second_copy_completes_its_chunk_once() {
    let receive = receive(4, 8 * MTU);
    for packet in 0..3 {
        place(&receive, packet, &[1; MTU], false).unwrap();
    }
    assert_eq!(receive.chunks_done(), 0);
    let again = place(&receive, 2, &[1; MTU], true).unwrap();
    assert_eq!(again, Placed::Duplicate { chunk: Some(0) });
    let again = place(&receive, 2, &[1; MTU], true).unwrap();
    assert_eq!(again, Placed::Duplicate { chunk: None });
    assert!(receive.is_complete());
    assert_eq!(receive.chunk(0).map(<[u8]>::len), Some(3 * MTU));
}

#[test]
fn a_payload_longer_than_the_mtu_writes_nothing() {
    let receive = receive(1, 8 * MTU);
    place(&receive, 1, &[1; MTU], false).unwrap();
    assert_eq!(place(&receive, 0, &[9; 2 * MTU], true), Err(Discard::Inconsistent));
    assert_eq!(receive.chunk(1), Some(&[1; MTU][..]));
    assert_eq!(receive.length_bytes(), None);
}

#[test]
fn an_end_is_refused_before_any_packet_that_came() {
    for came in [1u32, 5, 63, 64, 65, 127, 128, 200] {
        let receive = receive(3, 256 * MTU);
        place(&receive, came, &[1; MTU], false).unwrap();
        for packet in [0, 1, 62, 63, 64, 65, 126, 127, 128] {
            let ended = place(&receive, packet, &[1; 10], true);
            if packet < came {
                assert_eq!(ended, Err(Discard::Inconsistent), "{packet} before {came}");
            } else {
                assert!(ended.is_ok(), "{packet} from {came}");
                break;
            }
        }
    }
}

#[test]
fn chunks_behind_a_moved_end_do_not_stand_in_for_missing_ones() {
    // Two workers may race: one has checked its packet, then the other learns an earlier end. The
    // record then holds a chunk beyond the end; the message must not look complete by it.
    let receive = receive(1, 8 * MTU);
    place(&receive, 5, &[1; MTU], false).unwrap();
    place(&receive, 0, &[1; MTU], false).unwrap();
    receive.live.end.store(2 * MTU as u64 + 1, super::Ordering::Release);
    assert_eq!((receive.chunks(), receive.chunks_done()), (2, 2));
    assert!(!receive.is_complete(), "chunk 1 is missing");
    assert_eq!(receive.chunk(5), None);
    place(&receive, 1, &[1; MTU], false).unwrap();
    assert!(receive.is_complete());
}

#[test]
fn an_empty_message_is_complete_with_its_one_packet() {
    for capacity in [0, 1, 1000] {
        let receive = receive(4, capacity);
        assert!(!receive.is_complete());
        assert_eq!(place(&receive, 0, &[], true), Ok(Placed::New { chunk: Some(0) }));
        assert!(receive.is_complete());
        assert_eq!((receive.length_bytes(), receive.chunk(0)), (Some(0), Some(&[][..])));
    }
}

#[test]
fn a_chunk_that_no_message_has_holds_no_packet() {
    let receive = receive(2, 4 * MTU);
    for packet in 0..4 {
        place(&receive, packet, &[1; MTU], false).unwrap();
    }
    assert_eq!(receive.chunk_packets(1), 0b11);
    for chunk in [2, 1 << 31, u32::MAX] {
        assert_eq!(receive.chunk_packets(chunk), 0, "{chunk}");
    }
}

#[test]
fn a_record_whose_memory_was_taken_keeps_its_bits_and_has_no_bytes() {
    let mut receive = receive(1, 2 * MTU);
    place(&receive, 0, &[7; MTU], false).unwrap();
    let placement = receive.take_placement();
    assert!(receive.has_chunk(0) && !receive.has_chunk(1));
    assert_eq!(receive.chunk(0), None);
    assert_eq!(receive.capacity_bytes(), 2 * MTU as u64);
    receive.zero_missing();
    assert_eq!(placement.into_vec().unwrap()[..MTU], [7; MTU]);
    assert!(receive.take_placement().into_vec().is_err());
}

#[test]
fn what_changes_per_packet_shares_no_cache_line_with_what_is_read() {
    // For any start of the heap block: a multiple of 8 bytes.
    let read = std::mem::offset_of!(Receive, _padding);
    for start in (0..64).step_by(8) {
        let (last_read, first_live) =
            (start + read - 1, start + std::mem::offset_of!(Receive, live));
        assert!(last_read / 64 < first_live / 64);
    }
    assert!(std::mem::align_of::<Receive>() <= 16, "glibc reuses such heap blocks");
    assert_eq!(std::mem::size_of::<Receive>(), 272);
}

#[test]
fn bitmaps_of_one_word_take_no_piece_of_the_heap() {
    let has_pieces = |capacity| {
        let receive = receive(2, capacity);
        [receive.packet_bits.is_some(), receive.chunk_bits.is_some()]
    };
    assert_eq!(has_pieces(64 * MTU), [false, false]);
    assert_eq!(has_pieces(65 * MTU), [true, false]);
    assert_eq!(has_pieces(129 * MTU), [true, true]);
}

#[test]
fn words_of_packets_complete_the_chunks_whose_packets_are_all_here() {
    const PACKETS: u32 = 256;
    for chunk_packets in [1, 2, 3, 4, 8, 16, 32, 48, 64, 128] {
        let receive = receive(chunk_packets, PACKETS as usize * MTU);
        let (mut here, mut done) = (vec![false; PACKETS as usize], 0);
        // The second part fills the word.
        for (word, fresh) in [2, 0, 3, 1].into_iter().flat_map(|w| [(w, 0xff0f), (w, !0xff0f)]) {
            done += receive.publish(word, fresh);
            let bits = (0..64).filter(|bit| fresh >> bit & 1 == 1);
            bits.for_each(|bit| here[word as usize * 64 + bit] = true);
            let mut whole = 0;
            for (chunk, packets) in here.chunks(chunk_packets as usize).enumerate() {
                let is_set = receive.chunk_bits()[chunk / 64]
                    .load(std::sync::atomic::Ordering::Acquire)
                    >> (chunk % 64)
                    & 1;
                assert_eq!(is_set == 1, packets.iter().all(|is_here| *is_here), "{chunk}");
                whole += is_set;
            }
            assert_eq!(done, whole, "chunks of {chunk_packets}");
        }
    }
}
