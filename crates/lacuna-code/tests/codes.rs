//! The codes against their definition, on every engine that this processor can
//! run: all erasure patterns of small codes, random ones of large codes.

use lacuna_code::{
    ChunkSet, Chunked, ChunkedMut, Chunks, Code, CodeKind, Codec, Engine, EngineKind,
    ReconstructError, ShapeError, VerifyError, Workspace,
};
use proptest::prelude::*;

/// Bytes from a seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// A block in separate chunks, with the parity that the naive engine computes.
struct Block {
    code: Code,
    data: Vec<Vec<u8>>,
    parity: Vec<Vec<u8>>,
}

impl Block {
    /// `data_chunks` of `chunk_bytes`, the last one of `tail_bytes`.
    fn new(code: Code, data_chunks: usize, chunk_bytes: usize, tail_bytes: usize) -> Self {
        let mut data: Vec<Vec<u8>> =
            (0..data_chunks).map(|index| noise(index as u64, chunk_bytes)).collect();
        data[data_chunks - 1].truncate(tail_bytes);
        let mut parity = vec![vec![0xa5; chunk_bytes]; code.parity_chunks()];
        let naive = Engine::new(EngineKind::Naive).unwrap();
        Codec::with_engine(code, naive).encode(&data[..], &mut parity[..]).unwrap();
        Self { code, data, parity }
    }

    /// The block with the lost chunks overwritten.
    fn without(&self, lost: &ChunkSet) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (mut data, mut parity) = (self.data.clone(), self.parity.clone());
        for (index, chunk) in data.iter_mut().enumerate() {
            if lost.contains(index) {
                chunk.fill(0xee);
            }
        }
        for (index, chunk) in parity.iter_mut().enumerate() {
            if lost.contains(self.code.data_chunks() + index) {
                chunk.fill(0xee);
            }
        }
        (data, parity)
    }

    /// Loses chunks and has them repaired, or refused when the code says so.
    fn lose(&self, codec: &Codec, workspace: &mut Workspace, lost: &ChunkSet) {
        let (mut data, mut parity) = self.without(lost);
        let result = codec.reconstruct_data(workspace, &mut data[..], &parity[..], lost);
        if self.code.can_recover(lost) {
            assert_eq!(result, Ok(()), "{} {lost:?}", self.code);
            assert!(data == self.data, "{} {lost:?}", self.code);
        } else {
            assert!(result.is_err(), "{} {lost:?}", self.code);
            assert!(data == self.without(lost).0, "a refused repair wrote: {lost:?}");
        }
        let (mut data, _) = self.without(lost);
        let result = codec.reconstruct(workspace, &mut data[..], &mut parity[..], lost);
        if result.is_ok() {
            assert!(data == self.data && parity == self.parity, "{} {lost:?}", self.code);
        }
        // What repairs the data repairs the parity, unless nothing of an XOR
        // group is lost but its parity and more: no such case exists.
        assert_eq!(result.is_ok(), self.code.can_recover(lost), "{} {lost:?}", self.code);
    }
}

fn engines() -> impl Iterator<Item = Engine> {
    Engine::available()
}

#[test]
fn parity_is_what_the_definition_says() {
    let xor = Block::new(Code::xor(7, 3).unwrap(), 7, 50, 20);
    for (group, parity) in xor.parity.iter().enumerate() {
        let mut sum = vec![0; 50];
        for chunk in xor.data.iter().skip(group).step_by(3) {
            sum.iter_mut().zip(chunk).for_each(|(sum, byte)| *sum ^= byte);
        }
        assert_eq!(*parity, sum, "XOR group {group}");
    }
    // With one data chunk of one byte, parity i is the byte over i + 1.
    let mds = Code::mds(1, 254).unwrap();
    let mut parity = vec![vec![0; 1]; 254];
    let naive = Codec::with_engine(mds, Engine::new(EngineKind::Naive).unwrap());
    naive.encode(&[[1]][..], &mut parity[..]).unwrap();
    assert_eq!((parity[0][0], parity[1][0]), (1, 142), "1 / 1, 1 / 2");
}

#[test]
fn all_engines_compute_the_same_parity_for_all_codes_in_a_table() {
    let shapes = [(1, 1), (2, 1), (4, 2), (5, 5), (8, 3), (17, 8), (32, 8), (33, 9), (200, 55)];
    for (k, m) in shapes {
        for code in [Code::xor(k, m).unwrap(), Code::mds(k, m).unwrap()] {
            for (chunk_bytes, tail_bytes) in [(1, 1), (63, 1), (64, 64), (333, 100), (1000, 0)] {
                let block = Block::new(code, k, chunk_bytes, tail_bytes);
                for engine in engines() {
                    let codec = Codec::with_engine(code, engine);
                    let mut parity = vec![vec![1; chunk_bytes]; m];
                    codec.encode(&block.data[..], &mut parity[..]).unwrap();
                    assert!(parity == block.parity, "{code} {} {chunk_bytes}", engine.kind());
                    assert_eq!(codec.verify(&block.data[..], &parity[..]), Ok(()));
                }
            }
        }
    }
}

#[test]
fn every_erasure_pattern_of_small_codes_is_repaired_or_refused() {
    let shapes = [(1, 1), (1, 3), (2, 2), (3, 2), (5, 3), (4, 4), (6, 3)];
    for engine in engines() {
        for (k, m) in shapes {
            let codes = [Code::mds(k, m).ok(), Code::xor(k, m).ok()];
            for code in codes.into_iter().flatten() {
                let codec = Codec::with_engine(code, engine);
                let mut workspace = Workspace::new(&codec);
                let block = Block::new(code, k, 70, 33);
                for pattern in 0..1u64 << (k + m) {
                    let lost = ChunkSet::from_words([pattern, 0, 0, 0]);
                    block.lose(&codec, &mut workspace, &lost);
                }
            }
        }
    }
}

#[test]
fn short_blocks_and_missing_parity_are_part_of_the_same_code() {
    for engine in engines() {
        for code in [Code::mds(6, 3).unwrap(), Code::xor(6, 3).unwrap()] {
            let codec = Codec::with_engine(code, engine);
            let mut workspace = Workspace::new(&codec);
            for data_chunks in 1..=6 {
                // The same parity as of a full block of zeros behind.
                let block = Block::new(code, data_chunks, 70, 33);
                let mut full = block.data.clone();
                full[data_chunks - 1].resize(70, 0);
                full.resize(6, vec![0; 70]);
                codec.verify(&full[..], &block.parity[..]).unwrap();
                for pattern in 0..1u64 << data_chunks {
                    for parity_lost in 0..8 {
                        let lost = ChunkSet::from_words([pattern | parity_lost << 6, 0, 0, 0]);
                        block.lose(&codec, &mut workspace, &lost);
                    }
                }
                // Two parity chunks sent of three.
                let lost = ChunkSet::from_iter([0, 8]);
                let (mut data, parity) = block.without(&lost);
                let done =
                    codec.reconstruct_data(&mut workspace, &mut data[..], &parity[..2], &lost);
                assert_eq!((done, data == block.data), (Ok(()), true));
            }
        }
    }
}

#[test]
fn random_erasures_of_large_codes_are_repaired() {
    for (k, m) in [(32, 8), (20, 20), (100, 30), (128, 127), (240, 15)] {
        for code in [Code::mds(k, m).unwrap(), Code::xor(k, m.min(k)).unwrap()] {
            let block = Block::new(code, k, 150, 149);
            for engine in engines() {
                let codec = Codec::with_engine(code, engine);
                let mut workspace = Workspace::new(&codec);
                for round in 0..6 {
                    let order = noise(round * 31 + k as u64, 8 * code.chunks());
                    let mut indices: Vec<usize> = (0..code.chunks()).collect();
                    indices.sort_by_key(|index| &order[index * 8..index * 8 + 8]);
                    let count = [1, 2, m / 2 + 1, m, m, m + 1][round as usize];
                    let lost: ChunkSet = indices.into_iter().take(count).collect();
                    block.lose(&codec, &mut workspace, &lost);
                }
            }
        }
    }
}

#[test]
fn folding_pieces_in_any_order_gives_the_parity_of_the_whole() {
    for (code, chunk_bytes) in [("mds:10:9", 300), ("xor:10:3", 300), ("mds:3:1", 65)] {
        let code: Code = code.parse().unwrap();
        let block = Block::new(code, code.data_chunks(), chunk_bytes, chunk_bytes - 7);
        for engine in engines() {
            let codec = Codec::with_engine(code, engine);
            let mut parity = vec![vec![0; chunk_bytes]; code.parity_chunks()];
            // Chunks last to first, pieces of 97 bytes, the odd ones first.
            for (index, chunk) in block.data.iter().enumerate().rev() {
                for odd in [1, 0] {
                    for (number, piece) in chunk.chunks(97).enumerate().skip(odd).step_by(2) {
                        codec.update(&mut parity[..], index, number * 97, piece).unwrap();
                    }
                }
            }
            assert!(parity == block.parity, "{code} {}", engine.kind());
            // The same by several chunks at once.
            let mut parity = vec![vec![0; chunk_bytes]; code.parity_chunks()];
            let (low, high) = block.data.split_at(code.data_chunks() / 2);
            codec.update_many(&mut parity[..], low.len(), high).unwrap();
            codec.update_many(&mut parity[..], 0, low).unwrap();
            assert!(parity == block.parity, "{code} {}", engine.kind());
        }
    }
}

#[test]
fn a_message_is_coded_where_it_lies() {
    let code = Code::mds(8, 3).unwrap();
    let codec = Codec::new(code).unwrap();
    let mut workspace = Workspace::new(&codec);
    let original = noise(1, 7 * 1000 + 321);
    let mut message = original.clone();
    // Parity chunks with a gap between them.
    let mut parity = vec![0x55; 3 * 1024];
    let mut view = ChunkedMut::with_stride(&mut parity, 1000, 1024).unwrap();
    codec.encode(&Chunked::new(&message, 1000).unwrap(), &mut view).unwrap();
    assert_eq!(parity[1000..1024], [0x55; 24]);
    let parity = Chunked::with_stride(&parity, 1000, 1024).unwrap();
    for lost in [[0, 3, 7], [5, 6, 7], [0, 1, 2]] {
        lost.iter().for_each(|index| {
            let end = message.len().min(index * 1000 + 1000);
            message[index * 1000..end].fill(0);
        });
        let mut data = ChunkedMut::new(&mut message, 1000).unwrap();
        let lost = lost.into_iter().collect();
        codec.reconstruct_data(&mut workspace, &mut data, &parity, &lost).unwrap();
        assert!(message == original, "{lost:?}");
    }
}

#[test]
fn listed_chunks_are_all_that_is_read_and_written() {
    for code in [Code::mds(5, 3).unwrap(), Code::xor(5, 2).unwrap()] {
        let block = Block::new(code, 5, 100, 60);
        let codec = Codec::new(code).unwrap();
        let mut workspace = Workspace::new(&codec);
        let k = code.data_chunks();
        // The last data chunk and the first parity are missing, and are named in
        // no order; chunk 1 of the MDS code is lost but not asked for.
        let (mut tail, mut parity) = (vec![0xee; 60], vec![0xee; 100]);
        let spared = if code.kind() == CodeKind::Mds { 1 } else { k };
        let data_there = (0..4).filter(|index| *index != spared && *index != 0);
        let mut present: Vec<(usize, &[u8])> =
            data_there.map(|index| (index, &block.data[index][..])).collect();
        present.push((0, &block.data[0]));
        let parity_of = |index: usize| (k + index, &block.parity[index][..]);
        // XOR: chunk 4 is in group 0, its parity is needed.
        let (wanted, given) = if code.kind() == CodeKind::Mds { (0, 1) } else { (1, 0) };
        present.push(parity_of(given));
        if code.kind() == CodeKind::Mds {
            present.push(parity_of(2));
        }
        let missing = [(k + wanted, &mut parity[..]), (4, &mut tail[..])];
        codec.reconstruct_listed(&mut workspace, 5, present, missing).unwrap();
        assert!(tail == block.data[4] && parity == block.parity[wanted], "{code}");
    }
}

#[test]
fn wrong_bytes_are_noticed_and_never_repaired_silently() {
    let code = Code::mds(6, 3).unwrap();
    let block = Block::new(code, 6, 2100, 2000);
    let codec = Codec::new(code).unwrap();
    let mut workspace = Workspace::new(&codec);
    for wrong in 0..9 {
        for at in [0, 1023, 1024, 1999] {
            let (mut data, mut parity) = (block.data.clone(), block.parity.clone());
            if wrong < 6 {
                data[wrong][at] ^= 0x10;
            } else {
                parity[wrong - 6][at] ^= 0x10;
            }
            let error = codec.verify(&data[..], &parity[..]).unwrap_err();
            let expected =
                VerifyError::Mismatch { parity: wrong.saturating_sub(6), offset_bytes: at };
            assert_eq!(error, expected, "chunk {wrong}");
            // One lost chunk beside the wrong one.
            let lost = ChunkSet::from_iter([(wrong + 1) % 6]);
            data[(wrong + 1) % 6].fill(0xee);
            let result =
                codec.reconstruct_data_verified(&mut workspace, &mut data[..], &parity[..], &lost);
            match result {
                Err(ReconstructError::Inconsistent { offset_bytes, .. }) => {
                    assert_eq!(offset_bytes, at);
                }
                other => panic!("wrong chunk {wrong}: {other:?}"),
            }
            assert!(data[(wrong + 1) % 6].iter().all(|byte| *byte == 0));
        }
    }
    // Right bytes pass.
    let lost = ChunkSet::from_iter([2, 5]);
    let (mut data, parity) = block.without(&lost);
    codec.reconstruct_data_verified(&mut workspace, &mut data[..], &parity[..], &lost).unwrap();
    assert!(data == block.data);
}

#[test]
fn a_repair_that_cannot_be_checked_is_refused_when_a_check_is_asked_for() {
    let lost = ChunkSet::from_iter([0, 1, 2]);
    let block = Block::new(Code::mds(6, 3).unwrap(), 6, 50, 50);
    let codec = Codec::new(block.code).unwrap();
    let mut workspace = Workspace::new(&codec);
    let (mut data, parity) = block.without(&lost);
    let result = codec.reconstruct_data_verified(&mut workspace, &mut data[..], &parity[..], &lost);
    assert_eq!(result, Err(ReconstructError::Unverifiable { lost: 3 }));
    assert!(data == block.without(&lost).0, "nothing was written");

    let block = Block::new(Code::xor(6, 3).unwrap(), 6, 50, 50);
    let codec = Codec::new(block.code).unwrap();
    let mut workspace = Workspace::new(&codec);
    for (lost, expected) in [
        (ChunkSet::from_iter([1]), Err(ReconstructError::Unverifiable { lost: 1 })),
        (ChunkSet::new(), Ok(())),
    ] {
        let (mut data, parity) = block.without(&lost);
        let result =
            codec.reconstruct_data_verified(&mut workspace, &mut data[..], &parity[..], &lost);
        assert_eq!(result, expected);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_numbers() {
    let codec = Codec::new(Code::mds(4, 2).unwrap()).unwrap();
    let data = vec![vec![0u8; 10]; 5];
    let mut parity = vec![vec![0u8; 10]; 3];
    let encode = |data: &[Vec<u8>], parity: &mut [Vec<u8>]| codec.encode(data, parity);
    assert_eq!(encode(&data, &mut parity[..2]), Err(ShapeError::DataChunks { have: 5, max: 4 }));
    assert_eq!(encode(&[], &mut parity[..2]), Err(ShapeError::DataChunks { have: 0, max: 4 }));
    assert_eq!(encode(&data[..4], &mut parity), Err(ShapeError::ParityChunks { have: 3, max: 2 }));
    assert_eq!(encode(&data[..4], &mut []), Err(ShapeError::ParityChunks { have: 0, max: 2 }));
    let mut uneven = data[..4].to_vec();
    uneven[1].pop();
    assert_eq!(
        encode(&uneven, &mut parity[..2]),
        Err(ShapeError::Length { chunk: 1, have: 9, want: 10 })
    );
    uneven[1].resize(11, 0);
    assert!(encode(&uneven, &mut parity[..2]).is_err());
    parity[1].push(0);
    assert_eq!(
        encode(&data[..4], &mut parity[..2]),
        Err(ShapeError::Length { chunk: 5, have: 11, want: 10 })
    );
    parity[1].pop();
    let parity = &mut parity[..2];
    assert_eq!(
        codec.update(parity, 4, 0, &[1]),
        Err(ShapeError::Index { chunk: 4, data_chunks: 4 })
    );
    assert_eq!(
        codec.update(parity, 0, 4, &[0; 7]),
        Err(ShapeError::Piece { offset: 4, len: 7, chunk_bytes: 10 })
    );
    assert!(codec.update(parity, 0, usize::MAX, &[0; 7]).is_err());
    assert_eq!(
        codec.update_many(parity, 3, &data[..2]),
        Err(ShapeError::DataChunks { have: 2, max: 1 })
    );

    let mut workspace = Workspace::new(&codec);
    let present = |indices: &'static [usize]| indices.iter().map(|index| (*index, &[0u8; 10][..]));
    let (mut first, mut second) = ([0; 10], [0; 10]);
    let result =
        codec.reconstruct_listed(&mut workspace, 4, present(&[0, 0]), [(1, &mut first[..])]);
    assert_eq!(result, Err(ShapeError::Index { chunk: 0, data_chunks: 4 }.into()));
    let result =
        codec.reconstruct_listed(&mut workspace, 3, present(&[0, 1, 3]), [(2, &mut first[..])]);
    assert_eq!(result, Err(ShapeError::Index { chunk: 3, data_chunks: 3 }.into()));
    let result = codec.reconstruct_listed(
        &mut workspace,
        4,
        present(&[0, 1, 5]),
        [(2, &mut first[..]), (3, &mut second[..])],
    );
    assert_eq!(result, Err(ReconstructError::TooManyLost { lost: 2, parity: 1 }));
    let result =
        codec.reconstruct_listed(&mut workspace, 4, present(&[0, 1, 3, 4]), [(2, &mut first[..9])]);
    assert_eq!(result, Err(ShapeError::Length { chunk: 2, have: 9, want: 10 }.into()));
    let other = Codec::new(Code::mds(5, 2).unwrap()).unwrap();
    let result =
        other.reconstruct_listed(&mut workspace, 4, present(&[0, 1, 3]), [(2, &mut first[..])]);
    assert_eq!(result, Err(ReconstructError::Workspace));
}

#[test]
fn patterns_are_remembered_and_the_oldest_forgotten() {
    let code = Code::mds(100, 2).unwrap();
    let codec = Codec::new(code).unwrap();
    let mut workspace = Workspace::new(&codec);
    let block = Block::new(code, 100, 8, 8);
    let repair = |workspace: &mut Workspace, index: usize| {
        let lost = ChunkSet::from_iter([index]);
        let (mut data, parity) = block.without(&lost);
        codec.reconstruct_data(workspace, &mut data[..], &parity[..], &lost).unwrap();
        assert!(data == block.data);
    };
    for _ in 0..3 {
        (0..20).for_each(|index| repair(&mut workspace, index));
    }
    assert_eq!(workspace.misses(), 20, "each pattern was computed once");
    (0..100).for_each(|index| repair(&mut workspace, index));
    assert_eq!(workspace.misses(), 100);
    repair(&mut workspace, 0);
    assert_eq!(workspace.misses(), 101, "the first was forgotten meanwhile");
}

#[cfg(feature = "rayon")]
#[test]
fn threads_compute_what_one_thread_does() {
    for code in [Code::mds(12, 5).unwrap(), Code::xor(12, 5).unwrap()] {
        // An odd length, and a tail that ends within one of the ranges.
        let block = Block::new(code, 12, 100_003, 30_001);
        let codec = Codec::new(code).unwrap();
        let mut workspace = Workspace::new(&codec);
        let mut parity = vec![vec![0; 100_003]; 5];
        codec.encode_parallel(&block.data[..], &mut parity[..]).unwrap();
        assert!(parity == block.parity);
        for lost in [[0, 1, 2], [2, 3, 11]] {
            let lost = lost.into_iter().collect();
            let (mut data, parity) = block.without(&lost);
            codec
                .reconstruct_data_parallel(&mut workspace, &mut data[..], &parity[..], &lost)
                .unwrap();
            assert!(data == block.data);
        }
    }
}

proptest! {
    #[test]
    fn any_block_survives_any_loss_that_its_code_repairs(
        k in 1usize..40,
        m in 1usize..20,
        xor: bool,
        short_by in 0usize..10,
        chunk_bytes in 1usize..400,
        tail in 0.0f64..=1.0,
        loss in 0.0f64..0.5,
        seed: u64,
    ) {
        let code = if xor { Code::xor(k, m.min(k)) } else { Code::mds(k, m) }.unwrap();
        let data_chunks = k.saturating_sub(short_by).max(1);
        let tail_bytes = (tail * chunk_bytes as f64) as usize;
        let block = Block::new(code, data_chunks, chunk_bytes, tail_bytes);
        let draws = noise(seed, code.chunks());
        let lost: ChunkSet = (0..code.chunks())
            .filter(|index| *index < data_chunks || *index >= k)
            .filter(|index| f64::from(draws[*index]) < loss * 256.0)
            .collect();
        for engine in engines() {
            let codec = Codec::with_engine(code, engine);
            prop_assert_eq!(codec.verify(&block.data[..], &block.parity[..]), Ok(()));
            block.lose(&codec, &mut Workspace::new(&codec), &lost);
        }
    }

    #[test]
    fn no_set_of_indices_makes_a_repair_panic(
        words: [u64; 4],
        data_chunks in 0usize..8,
        parity_chunks in 0usize..6,
        lengths in prop::collection::vec(0usize..40, 14),
    ) {
        let codec = Codec::new(Code::mds(6, 4).unwrap()).unwrap();
        let mut workspace = Workspace::new(&codec);
        let lost = ChunkSet::from_words(words);
        let mut data: Vec<Vec<u8>> = lengths[..data_chunks].iter().map(|len| vec![1; *len]).collect();
        let mut parity: Vec<Vec<u8>> =
            lengths[8..8 + parity_chunks].iter().map(|len| vec![1; *len]).collect();
        let _ = codec.reconstruct_data_verified(&mut workspace, &mut data[..], &parity[..], &lost);
        let _ = codec.reconstruct(&mut workspace, &mut data[..], &mut parity[..], &lost);
        let _ = codec.verify(&data[..], &parity[..]);
        prop_assert_eq!(data[..].count(), data_chunks);
    }
}
