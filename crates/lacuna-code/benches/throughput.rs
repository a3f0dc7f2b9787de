//! What the codes cost on this machine, per engine: (32, 8) from memory and from
//! the second-level cache, one thread, in GB of data a second.
//!
//! `cargo bench -p lacuna-code`. Each figure is the median of interleaved rounds,
//! with a copy of the same data beside it as the measure of what memory gives.
//! Under `cargo test --benches` each case runs once over little data, so that it
//! does not rot. `lacuna ec-bench` measures other shapes, threads and libraries.

use lacuna_code::{ChunkSet, Chunked, ChunkedMut, Code, Codec, Engine, EngineKind, Workspace};
use std::hint::black_box;
use std::time::Instant;

const K: usize = 32;
const M: usize = 8;
/// Rounds in which every case has its turn.
const ROUNDS: usize = 7;
/// Bytes of data that a case processes per round.
const ROUND_BYTES: usize = 128 << 20;

/// Works on the data and the parity of one block.
type Work<'c> = Box<dyn FnMut(&mut [u8], &mut [u8]) + 'c>;

/// One way to spend time.
struct Case<'c> {
    name: String,
    work: Work<'c>,
    gbyte_per_s: Vec<f64>,
}

fn main() {
    let full = std::env::args().any(|arg| arg == "--bench");
    let (rounds, round_bytes) = if full { (ROUNDS, ROUND_BYTES) } else { (1, 4 << 20) };
    for (place, chunk_bytes, size_bytes) in
        [("memory", 64 << 10, round_bytes), ("cache", 4 << 10, K * (4 << 10))]
    {
        println!("\n(32, 8), chunks of {chunk_bytes} bytes in {size_bytes} bytes ({place})");
        measure(chunk_bytes, size_bytes, rounds, round_bytes);
    }
}

fn measure(chunk_bytes: usize, size_bytes: usize, rounds: usize, round_bytes: usize) {
    let (block_bytes, parity_bytes) = (K * chunk_bytes, M * chunk_bytes);
    let blocks = size_bytes / block_bytes;
    let mut data: Vec<u8> = (0..size_bytes).map(|at| ((at * 167) >> 3) as u8).collect();
    let mut parity = vec![1; blocks * parity_bytes];
    let mut cases = cases(chunk_bytes);
    for _ in 0..rounds {
        for case in &mut cases {
            let start = Instant::now();
            for _ in 0..round_bytes / size_bytes {
                for block in 0..blocks {
                    let data = &mut data[block * block_bytes..][..block_bytes];
                    let parity = &mut parity[block * parity_bytes..][..parity_bytes];
                    (case.work)(black_box(data), black_box(parity));
                }
            }
            let bytes = round_bytes / size_bytes * blocks * block_bytes;
            case.gbyte_per_s.push(bytes as f64 / start.elapsed().as_secs_f64() / 1e9);
        }
    }
    for case in &mut cases {
        case.gbyte_per_s.sort_by(f64::total_cmp);
        let rates = &case.gbyte_per_s;
        let (low, high) = (rates[0], rates[rates.len() - 1]);
        println!("{:>32} {:>7.2} [{low:.2}-{high:.2}]", case.name, rates[rates.len() / 2]);
    }
}

fn cases<'c>(chunk_bytes: usize) -> Vec<Case<'c>> {
    let mut copy = vec![0; M * chunk_bytes];
    let mut cases = Vec::new();
    let mut add = |name: String, work: Work<'c>| {
        cases.push(Case { name, work, gbyte_per_s: Vec::new() });
    };
    add(
        "copy into an eighth of it".to_owned(),
        Box::new(move |data, _| {
            data.chunks(copy.len()).for_each(|part| copy[..part.len()].copy_from_slice(part));
            black_box(&copy);
        }),
    );
    for engine in Engine::available().filter(|engine| engine.kind() != EngineKind::Naive) {
        for code in [Code::mds(K, M), Code::xor(K, M)] {
            let codec = Codec::with_engine(code.expect("in range"), engine);
            let name = |op: &str| format!("{} {} {op}", codec.code().kind().name(), engine.kind());
            let encoder = codec.clone();
            add(
                name("encode"),
                Box::new(move |data, parity| {
                    encoder
                        .encode(&chunked(data, chunk_bytes), &mut cut(parity, chunk_bytes))
                        .expect("the shapes fit");
                }),
            );
            let updater = codec.clone();
            add(
                name("update"),
                Box::new(move |data, parity| {
                    // As a sender does: pieces of a packet, in order.
                    for (index, chunk) in data.chunks(chunk_bytes).enumerate() {
                        for (number, piece) in chunk.chunks(4096).enumerate() {
                            updater
                                .update(&mut cut(parity, chunk_bytes), index, number * 4096, piece)
                                .expect("the shapes fit");
                        }
                    }
                }),
            );
            let mut workspace = Workspace::new(&codec);
            let lost: ChunkSet = (8..8 + M).collect();
            let decoder = codec.clone();
            add(
                name("decode 8"),
                Box::new(move |data, parity| {
                    let mut data = cut(data, chunk_bytes);
                    let parity = chunked(parity, chunk_bytes);
                    decoder
                        .reconstruct_data(&mut workspace, &mut data, &parity, &lost)
                        .expect("eight chunks, one per group, can be had");
                }),
            );
        }
    }
    cases
}

fn chunked(bytes: &[u8], chunk_bytes: usize) -> Chunked<'_> {
    Chunked::new(bytes, chunk_bytes).expect("chunks have bytes")
}

fn cut(bytes: &mut [u8], chunk_bytes: usize) -> ChunkedMut<'_> {
    ChunkedMut::new(bytes, chunk_bytes).expect("chunks have bytes")
}
