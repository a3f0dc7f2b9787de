//! Parity against the answers of an independent implementation,
//! `known_answers.py`, which says how data and parity are defined.

use lacuna_code::{Chunked, ChunkedMut, Code, Codec, Engine};

const ANSWERS: &str = include_str!("known_answers.txt");

fn data_byte(chunk: usize, at: usize) -> u8 {
    let number = (chunk as u32 + 1)
        .wrapping_mul(0x9e37_79b1)
        .wrapping_add((at as u32).wrapping_mul(0x85eb_ca6b));
    (number >> 13) as u8
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

#[test]
fn parity_is_what_an_independent_implementation_computed() {
    let mut cases = 0;
    for line in ANSWERS.lines() {
        let mut words = line.split(' ');
        let code: Code = words.next().unwrap().parse().unwrap();
        let chunk_bytes: usize = words.next().unwrap().parse().unwrap();
        let tail_bytes: usize = words.next().unwrap().parse().unwrap();
        let expected: Vec<u8> = words.flat_map(bytes_of).collect();
        assert_eq!(expected.len(), code.parity_chunks() * chunk_bytes);
        let k = code.data_chunks();
        let message: Vec<u8> = (0..(k - 1) * chunk_bytes + tail_bytes)
            .map(|at| data_byte(at / chunk_bytes, at % chunk_bytes))
            .collect();
        for engine in Engine::available() {
            let mut parity = vec![0xa5; expected.len()];
            let data = Chunked::new(&message, chunk_bytes).unwrap();
            let mut view = ChunkedMut::new(&mut parity, chunk_bytes).unwrap();
            Codec::with_engine(code, engine).encode(&data, &mut view).unwrap();
            assert!(parity == expected, "{code} on {}", engine.kind());
        }
        cases += 1;
    }
    assert_eq!(cases, 16);
}
