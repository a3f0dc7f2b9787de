//! Replays the fuzzer's corpus of frames, and random inputs beside it.

mod checks;
mod common;

use lacuna_link::SplitMix64;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gateway")
}

#[test]
fn the_corpus_holds() {
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).expect("the corpus is in the repository") {
        checks::frames(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn random_inputs_hold() {
    for seed in 0..300 {
        let mut rng = SplitMix64::new(seed);
        let len = rng.below(2_000) as usize;
        checks::frames(&rng.bytes(len));
        checks::frames(&traffic(seed, 1 + len / 8));
    }
}

/// Data in both directions with few losses, and repairs of what was lost.
fn traffic(seed: u64, operations: usize) -> Vec<u8> {
    let mut rng = SplitMix64::new(seed);
    let mut bytes = vec![seed as u8];
    for _ in 0..operations {
        let side = rng.below(2) as u8;
        let packets = rng.below(4) as u8;
        match rng.below(16) {
            // A repair of the last packets, here or there; a request for gateways; a loss.
            0 | 1 => bytes.extend([0x4c | side, 0x30, packets, 0x30 | packets, 0]),
            2 => bytes.extend([0x4a, 0x28, 7, packets]),
            3 => bytes.extend([0x42 | side, 0x80, 2]),
            _ => bytes.extend([0x42 | side, 0]),
        }
    }
    bytes
}

#[test]
#[ignore = "writes the corpus's seeds"]
fn write_seeds() {
    std::fs::create_dir_all(folder()).unwrap();
    for seed in 0..6u64 {
        // Each kind of gateway.
        let mut bytes = traffic(seed, 100);
        bytes[0] = [0x00, 0x02, 0x21, 0x31, 0x11, 0x04][seed as usize];
        std::fs::write(folder().join(format!("seed-{seed}")), bytes).unwrap();
    }
}
