//! Replays the fuzzer's corpus of datagram queue pairs, and random inputs beside it.

mod checks;

use lacuna_link::SplitMix64;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/datagram")
}

#[test]
fn the_corpus_holds() {
    let entries = std::fs::read_dir(folder()).expect("the corpus is in the repository");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        // Shown only if the check fails, and then says which input it was.
        println!("{}", path.display());
        checks::endpoints(&std::fs::read(&path).unwrap());
    }
}

#[test]
fn random_inputs_hold() {
    for seed in 0..500 {
        println!("seed {seed}");
        checks::endpoints(&random(seed));
    }
}

#[test]
fn the_same_input_does_the_same() {
    for seed in 0..40 {
        let bytes = random(seed);
        let [first, second] = [0, 1].map(|_| checks::story(&bytes));
        assert!(first == second && !first.is_empty(), "seed {seed}");
    }
}

/// More work than strangers' packets, so that messages end in all ways.
fn random(seed: u64) -> Vec<u8> {
    const OFTEN: [u8; 12] = [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9];
    /// Bytes that each operation takes, about.
    const OPERANDS: [usize; 16] = [4, 7, 7, 9, 4, 4, 2, 2, 4, 2, 12, 8, 12, 11, 40, 3];
    let mut rng = SplitMix64::new(seed);
    let mut bytes = vec![rng.next_u64() as u8];
    for _ in 0..10 + rng.below(150) {
        let operation = match rng.below(4) {
            0 => rng.below(16) as u8,
            _ => OFTEN[rng.below(12) as usize],
        };
        let options = [0, 0, 0, 1, 1, 2, 3, 3][rng.below(8) as usize] << 5;
        bytes.push(operation << 1 | rng.below(2) as u8 | options | (rng.below(8) as u8 / 7) << 7);
        bytes.extend(rng.bytes(OPERANDS[usize::from(operation)]));
    }
    bytes
}

#[test]
#[ignore = "writes the corpus's seeds"]
fn write_seeds() {
    std::fs::create_dir_all(folder()).unwrap();
    for seed in 0..16u64 {
        let mut bytes = random(1000 + seed);
        bytes.truncate(600);
        bytes[0] = seed as u8;
        std::fs::write(folder().join(format!("seed-{seed}")), bytes).unwrap();
    }
}
