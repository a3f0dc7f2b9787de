//! Replays the fuzzer's corpus of reliable connections, and random inputs beside it.

mod checks;
mod common;

use lacuna_link::SplitMix64;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rc")
}

#[test]
fn the_corpus_holds() {
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).expect("the corpus is in the repository") {
        checks::connection(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn random_inputs_hold() {
    for seed in 0..300 {
        let mut rng = SplitMix64::new(seed);
        let len = rng.below(400) as usize;
        checks::connection(&rng.bytes(len));
    }
}

#[test]
#[ignore = "writes the corpus's seeds"]
fn write_seeds() {
    std::fs::create_dir_all(folder()).unwrap();
    for seed in 0..6u64 {
        let mut rng = SplitMix64::new(1000 + seed);
        // More work than strangers' packets, so that connections live.
        let mut bytes = Vec::new();
        for _ in 0..20 {
            let operation = [0x00, 0x10, 0x20, 0x04, 0x06, 0x01, 0x05, 0x21][rng.below(8) as usize];
            bytes.push(operation);
            bytes.extend(rng.bytes(4));
        }
        std::fs::write(folder().join(format!("seed-{seed}")), bytes).unwrap();
    }
}
