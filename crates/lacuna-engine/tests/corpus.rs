//! Replays all fuzzing inputs through the same checks in the ordinary test run, and random inputs
//! for the single endpoint.

mod checks;
mod common;

use checks::endpoint::Reached;
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
        checks::pair(bytes);
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
        // The same for the modes with a code, which the first two bytes choose; and for lists of the newer
        // kinds, which have bounded modes, and regions, too.
        let kinds: &[(&str, &[&[u8]])] = match target {
            "pair" => &[
                ("ec", &[&[0, 3], &[0, 4], &[0, 5], &[0, 6]]),
                ("bounded", &[&[0xFF, 1], &[0xFF, 3], &[0xFF, 5], &[0xFF, 7]]),
                (
                    "one-sided",
                    &[&[0xFF, 0, 0, 0], &[0xFF, 0, 0, 3], &[0xFF, 0, 0, 5], &[0xFF, 0, 0, 7]],
                ),
            ],
            _ => &[
                ("ec", &[&[2, 6], &[3, 8], &[1, 10], &[2, 12]]),
                ("bounded", &[&[0x81, 0, 2], &[0x8E, 2, 2], &[0xA2, 4, 2], &[0x80, 6, 0]]),
                ("regions", &[&[0x81, 0, 1], &[0x8E, 2, 3], &[0xA2, 6, 1], &[0x8D, 0, 5]]),
            ],
        };
        for (name, firsts) in kinds {
            for (index, first) in firsts.iter().enumerate() {
                let list = [first, &Rng::new(100 + index as u64).bytes(1500)[..]].concat();
                fs::write(folder(target).join(format!("seed-{name}-{index}")), list).unwrap();
            }
        }
    }
}

#[test]
fn an_endpoint_withstands_random_peers() {
    let mut reached = Reached::default();
    for seed in 0..2000 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let len = 20 + rng.below(3000) as usize;
        let of_list = checks::endpoint::run(&rng.bytes(len));
        reached.repaired_packets += of_list.repaired_packets;
        reached.ended_early += of_list.ended_early;
        reached.written_packets += of_list.written_packets;
        reached.refused_packets += of_list.refused_packets;
        reached.told += of_list.told;
        reached.answers += of_list.answers;
    }
    println!("{reached:?}");
    assert!(reached.repaired_packets > 1000, "{reached:?}");
    assert!(reached.written_packets > 1000 && reached.refused_packets > 1000, "{reached:?}");
    assert!(reached.ended_early > 1000, "{reached:?}");
    assert!(reached.told > 100 && reached.answers > 50, "{reached:?}");
}
