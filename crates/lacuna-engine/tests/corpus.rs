//! Replays all fuzzing inputs through the same checks in the ordinary test run, and random inputs
//! for the single endpoint.

mod checks;
mod common;

use lacuna_engine::testing::Rng;
use std::fs;
use std::path::{Path, PathBuf};

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder:?} has no inputs");
    for path in paths {
        // Printed if the check fails: names the input.
        println!("{}", path.display());
        check(&fs::read(&path).unwrap());
    }
}

#[test]
fn endpoint_corpus() {
    replay("endpoint", |bytes| {
        checks::endpoint::run(bytes);
    });
}

#[test]
fn pair_corpus() {
    replay("pair", |bytes| {
        checks::oracle::run(bytes);
        checks::oracle::run_auto(bytes, checks::oracle::any_choice);
    });
}

/// Writes the lists that fuzzing starts from.
#[test]
#[ignore = "writes into the source tree"]
fn write_seeds() {
    for target in ["endpoint", "pair"] {
        fs::create_dir_all(folder(target)).unwrap();
        for seed in 0..8 {
            let list = Rng::new(seed).bytes(300);
            fs::write(folder(target).join(format!("seed-{seed}")), list).unwrap();
        }
        // The same for the modes with a code, which the first two bytes choose.
        let coded: &[[u8; 2]] = match target {
            "pair" => &[[0, 3], [0, 4], [0, 5], [0, 6]],
            _ => &[[2, 6], [3, 8], [1, 10], [2, 12]],
        };
        for (index, first) in coded.iter().enumerate() {
            let list = [&first[..], &Rng::new(100 + index as u64).bytes(1500)].concat();
            fs::write(folder(target).join(format!("seed-ec-{index}")), list).unwrap();
        }
    }
}

#[test]
fn an_endpoint_withstands_random_peers() {
    let mut repaired = 0;
    for seed in 0..2000 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let len = 20 + rng.below(3000) as usize;
        repaired += checks::endpoint::run(&rng.bytes(len));
    }
    assert!(repaired > 1000, "the peers made it repair {repaired} packets only");
}
