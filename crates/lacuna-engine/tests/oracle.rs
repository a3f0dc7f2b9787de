//! Random lists of operations on two queue pairs, against the oracle of `checks/oracle.rs`:
//! receives, sends, streams, cancels, early completions, link changes, both directions at once,
//! all modes. Protects invariants 1, 2, 3 and 5.
//!
//! A failure prints its seed; run it alone with
//! `SEED=7 cargo test -p lacuna-engine --test oracle one_list -- --ignored`.

mod checks;
mod common;

use checks::one_sided::Reached;
use lacuna_engine::testing::Rng;

fn list(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let len = 50 + rng.below(1500) as usize;
    rng.bytes(len)
}

fn lists(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        println!("seed {seed}");
        checks::oracle::run(&list(seed));
    }
}

#[test]
fn lists_of_operations_keep_the_oracle_content() {
    lists(0..1000);
}

#[test]
fn more_lists_of_operations_keep_the_oracle_content() {
    lists(1000..2000);
}

#[test]
fn with_any_parity_for_the_tail_lists_keep_the_oracle_content() {
    for seed in 2000..2600 {
        println!("seed {seed}");
        checks::oracle::run_auto(&list(seed), checks::oracle::any_choice);
    }
}

#[test]
fn in_bounded_modes_lists_keep_the_oracle_content() {
    for seed in 2600..5600 {
        let mode = ["bounded", "bounded:1", "bounded+ec:mds:4:2"][seed as usize % 3];
        println!("seed {seed}, {mode}");
        checks::oracle::run_mode(&list(seed), mode.parse().unwrap());
    }
}

#[test]
fn with_deadlines_of_receives_lists_keep_the_oracle_content() {
    for seed in 3200..3500 {
        let mode = ["sr", "auto", "raw", "ec:mds:4:2"][seed as usize % 4];
        println!("seed {seed}, {mode}");
        checks::oracle::run_mode(&list(seed), mode.parse().unwrap());
    }
}

#[test]
fn writes_and_reads_of_regions_keep_the_oracle_content() {
    let mut reached = Reached::default();
    for seed in 4000..4250 {
        println!("seed {seed}");
        let of_list = checks::one_sided::run(&list(seed));
        reached.writes += of_list.writes;
        reached.refused += of_list.refused;
        reached.told += of_list.told;
        reached.reads += of_list.reads;
    }
    println!("{reached:?}");
    assert!(reached.writes > 1000 && reached.refused > 100, "{reached:?}");
    assert!(reached.told > 500 && reached.reads > 500, "{reached:?}");
}

#[test]
fn the_same_list_gives_the_same_packets() {
    for seed in 0..10 {
        println!("seed {seed}");
        assert!(checks::oracle::run(&list(seed)) == checks::oracle::run(&list(seed)));
        let auto = || checks::oracle::run_auto(&list(seed), lacuna_proto::modes::auto::plan);
        assert!(auto() == auto());
    }
}

#[test]
#[ignore = "for one seed, given as SEED"]
fn one_list() {
    let seed = std::env::var("SEED").expect("SEED is set").parse().expect("a number");
    checks::oracle::run(&list(seed));
}

#[test]
#[ignore = "long: ten thousand seeds from SEED on"]
fn ten_thousand_one_sided_lists() {
    let seed = std::env::var("SEED").map_or(4000, |seed| seed.parse().expect("a number"));
    for seed in seed..seed + 10_000u64 {
        println!("seed {seed}");
        checks::one_sided::run(&list(seed));
    }
}

#[test]
#[ignore = "long: ten thousand seeds from SEED on"]
fn ten_thousand_lists() {
    let seed = std::env::var("SEED").map_or(2000, |seed| seed.parse().expect("a number"));
    lists(seed..seed + 10_000);
}
